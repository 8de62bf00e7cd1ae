"""PyTorch: acting, the distributions, building."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import torch

import rlcatalog
from benchmarks import floors
from benchmarks.harness import Case, Result, report
from rlcatalog_torch import Categorical, DiagGaussian

HIDDENS = [256, 256]
SPACES = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2)


def acting() -> Iterator[Case]:
    """`policy.act` against the bare modules, and against hand-fused functional code for scale."""
    floor = floors.TorchActFloor(4, 2, HIDDENS)
    fused = floors.torch_act_functional(floor.trunk, floor.logits, floor.value)
    for batch in (1, 32):
        obs = np.random.default_rng(0).uniform(-1, 1, (batch, 4)).astype(np.float32)
        policy = rlcatalog.build(*SPACES, {"fcnet_hiddens": HIDDENS}, "torch")
        budget = 1.25 if batch == 1 else None
        act = lambda policy=policy, obs=obs: policy.act(obs)  # noqa: E731
        yield Case("act, fcnet, torch", act, lambda obs=obs: floor.act(obs), budget, str(batch))
        yield Case(
            "act, fcnet, torch, to hand-fused", act, lambda obs=obs: fused(obs), None, str(batch)
        )


def distributions() -> Iterator[Case]:
    """Construct, sample, logp, entropy and kl."""
    for batch in (1, 1024):
        logits, other = torch.randn(batch, 18), torch.randn(batch, 18)

        def categorical(
            logits: torch.Tensor = logits, other: torch.Tensor = other
        ) -> tuple[torch.Tensor, ...]:
            dist = Categorical(logits)
            sample = dist.sample()
            return sample, dist.logp(sample), dist.entropy(), dist.kl(Categorical(other))

        def peer(
            logits: torch.Tensor = logits, other: torch.Tensor = other
        ) -> tuple[torch.Tensor, ...]:
            dist = torch.distributions.Categorical(logits=logits, validate_args=False)
            sample = dist.sample()
            second = torch.distributions.Categorical(logits=other, validate_args=False)
            return (
                sample,
                dist.log_prob(sample),
                dist.entropy(),
                torch.distributions.kl_divergence(dist, second),
            )

        floor = lambda a=logits, b=other: floors.torch_categorical(a, b)  # noqa: E731
        yield Case("Categorical(18), torch", categorical, floor, 1.3, str(batch))
        yield Case(
            "Categorical(18), torch, to torch.distributions", categorical, peer, None, str(batch)
        )
        params, others = torch.randn(batch, 16), torch.randn(batch, 16)

        def gaussian(
            params: torch.Tensor = params, other: torch.Tensor = others
        ) -> tuple[torch.Tensor, ...]:
            dist = DiagGaussian(params)
            sample = dist.sample()
            return sample, dist.logp(sample), dist.entropy(), dist.kl(DiagGaussian(other))

        floor = lambda a=params, b=others: floors.torch_diag_gaussian(a, b)  # noqa: E731
        yield Case("DiagGaussian(8), torch", gaussian, floor, 1.3, str(batch))


def building() -> Iterator[Case]:
    """Building the model from a lookup, against the bare modules with the same initialisers."""
    catalog = rlcatalog.default_catalog()
    policy = rlcatalog.build(*SPACES, {"fcnet_hiddens": HIDDENS}, "torch")
    yield Case(
        "build, fcnet, torch", policy.make_model, lambda: floors.build_torch(4, 2, HIDDENS), 1.5
    )
    recurrent = rlcatalog.build(*SPACES, {"fcnet_hiddens": HIDDENS, "use_lstm": True}, "torch")
    yield Case(
        "build, LSTM, torch",
        recurrent.make_model,
        lambda: floors.build_lstm_torch(4, 2, HIDDENS, 256),
        1.5,
    )
    config = {"fcnet_hiddens": HIDDENS}
    yield Case(
        "build, whole policy, torch",
        lambda: rlcatalog.build(*SPACES, config, "torch", catalog=catalog),
        lambda: floors.build_torch(4, 2, HIDDENS),
        1.5,
    )


def run() -> list[Result]:
    """Print PyTorch's cases."""
    torch.set_num_threads(1)
    with torch.no_grad():
        found = report(distributions())
    return [*report(acting()), *found, *report(building())]
