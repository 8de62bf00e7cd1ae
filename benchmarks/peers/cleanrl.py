"""A CleanRL-style file: `examples/hand_written/cleanrl_ppo.py`, our own script in the style of
CleanRL.
"""

from __future__ import annotations

import importlib.util
import io
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from benchmarks import plain_ppo
from benchmarks.peers import work

PACKAGES = ("torch",)
SCRIPT = Path(__file__).parents[2] / "examples" / "hand_written" / "cleanrl_ppo.py"


def script(num_envs: int = 1) -> ModuleType:
    """Return the file as a module, with its constants set."""
    spec = importlib.util.spec_from_file_location("cleanrl_style", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.NUM_ENVS, module.LENGTH = num_envs, work.ROWS // num_envs
    module.EPOCHS, module.MINIBATCH, module.LR = work.EPOCHS, work.MINIBATCH, work.LR
    module.VALUE_WEIGHT = 2 * work.VALUE_WEIGHT  # the file halves the squared error
    found: ModuleType = module
    return found


def agent_of() -> Any:
    return script().Agent(gym.make_vec(work.ENV, 1, vectorization_mode="sync"))


def act(obs: work.Array) -> Callable[[], Any]:
    agent = agent_of()

    def run() -> tuple[Any, ...]:
        with torch.no_grad():
            action, logp, _, value = agent.get_action_and_value(torch.as_tensor(obs))
        return action.numpy(), logp.numpy(), value.flatten().numpy()

    return run


def parameters() -> int:
    return sum(weight.numel() for weight in agent_of().parameters())


def categorical(logits: Tensor) -> Callable[[], Any]:
    @torch.no_grad()
    def run() -> tuple[Tensor, Tensor, Tensor]:
        dist = Categorical(logits=logits)
        sample = dist.sample()
        return sample, dist.log_prob(sample), dist.entropy()

    return run


def gaussian(mean: Tensor, log_std: Tensor) -> Callable[[], Any]:
    @torch.no_grad()
    def run() -> tuple[Tensor, Tensor, Tensor]:
        dist = Normal(mean, log_std.exp())
        sample = dist.sample()
        return sample, dist.log_prob(sample).sum(1), dist.entropy().sum(1)

    return run


def train(columns: Mapping[str, work.Array]) -> Callable[[], Any]:
    """The minibatches of the file, which has no function for them."""
    module, agent = script(), agent_of()
    optimizer = torch.optim.Adam(agent.parameters(), lr=work.LR, eps=1e-5)
    rows = [
        torch.as_tensor(columns[name]) for name in ("obs", "action", "logp", "advantage", "target")
    ]

    def run() -> None:
        for _ in range(work.EPOCHS):
            for index in torch.randperm(work.ROWS).split(work.MINIBATCH):
                seen, taken, old_logp, gain, target = (x[index] for x in rows)
                _, logp, _, value = agent.get_action_and_value(seen, taken)
                ratio = (logp - old_logp).exp()
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                clipped = ratio.clamp(1 - module.CLIP, 1 + module.CLIP) * gain
                loss = -torch.minimum(ratio * gain, clipped).mean()
                loss = loss + module.VALUE_WEIGHT * 0.5 * (value.flatten() - target).square().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), module.LARGEST_GRADIENT)
                optimizer.step()

    return run


class Clock(io.StringIO):
    """Output that notes when each line comes; the file prints one per rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def write(self, text: str) -> int:
        """Note the time of a line's end."""
        self.times += [time.perf_counter()] * text.count("\n")
        return super().write(text)


def ppo(num_envs: int) -> Callable[[int], float]:
    module: Any = script(num_envs)

    def run(rollouts: int) -> float:
        clock = Clock()  # from the end of the first rollout on, to leave out what sets up
        with (
            redirect_stdout(clock),
            patch.object(sys, "argv", ["cleanrl_ppo", "--iterations", str(rollouts + 1)]),
        ):
            module.main()
        return (clock.times[-1] - clock.times[0]) / (rollouts * work.ROWS)

    return run


def envpool(num_envs: int) -> Callable[[int], float]:
    """The floor of our PPO, `benchmarks/plain_ppo.py`: the file above knows no NEXT_STEP."""
    hyper = plain_ppo.Hyper(
        num_envs=num_envs,
        rollout_length=work.POOL_LENGTH,
        epochs=work.POOL_EPOCHS,
        minibatch_size=num_envs * work.POOL_LENGTH // work.POOL_MINIBATCHES,
        lr=work.LR,
        anneal_lr=False,
        vf_coef=2 * work.VALUE_WEIGHT,
        hiddens=work.HIDDENS,
    )

    def train(rollouts: int) -> float:
        envs = work.make_pool(num_envs)
        steps = work.pool_steps(num_envs, rollouts)
        seconds: float = plain_ppo.train(envs, hyper, steps, seed=None)["seconds"]
        return seconds / steps

    return train
