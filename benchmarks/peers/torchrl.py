"""TorchRL: TensorDict modules, its distributions and transforms, and its PPO loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any

import gymnasium as gym
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import Tensor, nn
from torch.distributions import Categorical
from torchrl.envs import CatTensors, GymWrapper, RewardSum, TransformedEnv
from torchrl.modules import MLP, IndependentNormal, ProbabilisticActor, ValueOperator

from benchmarks.peers import work

PACKAGES = ("torchrl", "tensordict")


def env_of(num_envs: int) -> Any:
    """Return one environment, or Gymnasium's vector environment, which is faster here than
    TorchRL's `SerialEnv`.
    """
    no_reset = {"autoreset_mode": gym.vector.AutoresetMode.DISABLED}
    env = (
        gym.make(work.ENV)
        if num_envs == 1
        else gym.make_vec(work.ENV, num_envs, vectorization_mode="sync", vector_kwargs=no_reset)
    )
    return TransformedEnv(GymWrapper(env, categorical_action_encoding=True), RewardSum())


def parts(env: Any) -> tuple[Any, Any]:
    """Return an actor and a critic."""
    net, value_net = (
        MLP(4, out, num_cells=list(work.HIDDENS), activation_class=nn.Tanh) for out in (2, 1)
    )
    actor = ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=Categorical,
        return_log_prob=True,
        spec=env.action_spec,
    )
    return actor, ValueOperator(value_net, in_keys=["observation"])


def act(obs: work.Array) -> Callable[[], Any]:
    both = TensorDictSequential(*parts(env_of(1)))

    def run() -> tuple[Any, ...]:
        with torch.no_grad():
            found = both(TensorDict({"observation": torch.from_numpy(obs)}, [len(obs)]))
        return tuple(found[name].numpy() for name in ("action", "action_log_prob", "state_value"))

    return run


def parameters() -> int:
    return sum(weight.numel() for part in parts(env_of(1)) for weight in part.parameters())


def categorical(logits: Tensor) -> Callable[[], Any]:
    return work.drawn(lambda: Categorical(logits=logits))


def gaussian(mean: Tensor, log_std: Tensor) -> Callable[[], Any]:
    return work.drawn(lambda: IndependentNormal(mean, log_std.exp()))


def preprocess(observed: dict[str, work.Array]) -> Callable[[], Tensor]:
    """As a vector environment reads and joins observations; reading replaces parts of the dict."""
    envs = gym.vector.SyncVectorEnv(
        [work.Dicts] * work.OBSERVATIONS, autoreset_mode=gym.vector.AutoresetMode.DISABLED
    )
    wrapped, join = GymWrapper(envs), CatTensors(list(work.OBSERVED), "observation")

    @torch.no_grad()
    def run() -> Tensor:
        read = TensorDict(wrapped.read_obs(dict(observed)), [work.OBSERVATIONS])
        found: Tensor = join(read)["observation"]
        return found

    return run


def learner(actor: Any, critic: Any) -> tuple[Any, Callable[[Any], None]]:
    """Return the advantage estimator, and a call that learns from rows."""
    from torchrl.objectives import ClipPPOLoss  # what only acts needs no memory for it
    from torchrl.objectives.value import GAE

    advantage = GAE(gamma=work.GAMMA, lmbda=work.LAMBDA, value_network=critic)
    loss = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=work.CLIP,
        entropy_bonus=False,
        critic_coeff=work.VALUE_WEIGHT,
        normalize_advantage=True,
    )
    optimizer = torch.optim.Adam(loss.parameters(), lr=work.LR)

    def learn(rows: Any) -> None:
        for _ in range(work.EPOCHS):
            for index in torch.randperm(len(rows)).split(work.MINIBATCH):
                losses = loss(rows[index])
                optimizer.zero_grad()
                (losses["loss_objective"] + losses["loss_critic"]).backward()
                nn.utils.clip_grad_norm_(loss.parameters(), work.GRAD_CLIP)
                optimizer.step()

    return advantage, learn


def train(columns: Mapping[str, work.Array]) -> Callable[[], Any]:
    _, learn = learner(*parts(env_of(1)))
    names = {"observation": "obs", "action": "action", "action_log_prob": "logp"}
    found = {name: torch.from_numpy(columns[column]) for name, column in names.items()}
    found |= {
        name: torch.from_numpy(columns[column])[:, None]
        for name, column in {
            "state_value": "value",
            "advantage": "advantage",
            "value_target": "target",
        }.items()
    }
    rows = TensorDict(found, [work.ROWS])
    return lambda: learn(rows)


def ppo(num_envs: int) -> Callable[[int], float]:
    from torchrl.collectors import Collector

    env = env_of(num_envs)
    actor, critic = parts(env)
    advantage, learn = learner(actor, critic)
    collector = iter(
        Collector(
            env,
            actor,
            frames_per_batch=work.ROWS,
            total_frames=-1,
            auto_register_policy_transforms=False,
        )
    )

    def run(rollouts: int) -> None:
        for rollout in islice(collector, rollouts):
            with torch.no_grad():
                advantage(rollout)
            learn(rollout.reshape(-1))

    return partial(work.per_step, run)
