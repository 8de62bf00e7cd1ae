"""Frozen policies in PyTorch: a step of acting, all checks included, against bare modules, by hand,
and the policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import torch

import rlcatalog
from benchmarks import floors
from benchmarks.cases_models import (
    ACTIONS,
    MODELS,
    floor_steps,
    net_of,
    our_steps,
    same_steps,
    some_obs,
)
from benchmarks.floors_models import ActFloor
from benchmarks.harness import Case, Result, report
from rlcatalog.observations import stack
from rlcatalog.spaces import SpaceInfo

BOX, HIDDENS = gym.spaces.Box(-1, 1, (4,)), [256, 256]
#: Largest ratios to the bare modules, at batch 1.
BUDGETS = {"fcnet": 0.45, "LSTM": 0.65, "attention": 0.4, "vision": 0.65, "vision (nature)": 0.65}
#: What is measured against the policy itself: spaces.
KINDS: dict[str, tuple[gym.Space[Any], gym.Space[Any]]] = {
    "MultiDiscrete": (BOX, gym.spaces.MultiDiscrete([3, 4, 5])),
    "masked": (
        gym.spaces.Dict(obs=BOX, action_mask=gym.spaces.MultiBinary(6)),
        gym.spaces.Discrete(6),
    ),
    "nested": (
        gym.spaces.Dict(
            place=BOX, held=gym.spaces.Tuple((gym.spaces.Discrete(5), gym.spaces.MultiBinary(3)))
        ),
        gym.spaces.Dict(
            kind=gym.spaces.Discrete(3),
            how=gym.spaces.Tuple((gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2))),
        ),
    ),
}
BATCHES = (1, 8)


def frozen(policy: Any, rows: int) -> Any:
    """Return a policy, frozen; it must be."""
    found = policy.freeze(rows, seed=0)
    assert found.reason is None, found.reason
    return found


def dense() -> Iterator[Case]:
    """Dense layers against the bare modules, and against hand-fused functional code."""
    for batch in BATCHES:
        policy = rlcatalog.build(BOX, gym.spaces.Discrete(2), {"fcnet_hiddens": HIDDENS}, "torch")
        acting, obs = frozen(policy, batch), some_obs(BOX, batch)
        floor = floors.TorchActFloor(4, 2, HIDDENS)
        fused = floors.torch_act_functional(floor.trunk, floor.logits, floor.value)
        ours = lambda acting=acting, obs=obs: acting.act(obs)  # noqa: E731
        yield Case(
            "frozen, fcnet",
            ours,
            lambda floor=floor, obs=obs: floor.act(obs),
            BUDGETS["fcnet"] if batch == 1 else None,
            str(batch),
        )
        yield Case(
            "frozen, fcnet, to hand-fused",
            ours,
            lambda fused=fused, obs=obs: fused(obs),
            0.75 if batch == 1 else None,
            str(batch),
        )


def models() -> Iterator[Case]:
    """Other models against the bare modules, with the same weights; states go from step to step."""
    for name, (space, config, _) in MODELS.items():
        for batch in BATCHES:
            policy = rlcatalog.build(space, gym.spaces.Discrete(ACTIONS), config, "torch")
            obs = some_obs(space, batch)
            floor = ActFloor(net_of(name, policy.model.get_weights()))
            mine = our_steps(frozen(policy, batch), obs)
            theirs = floor_steps(floor.act, obs, policy.memory.start(batch))
            same_steps(mine, theirs)
            yield Case(
                f"frozen, {name}", mine, theirs, BUDGETS[name] if batch == 1 else None, str(batch)
            )


def kinds() -> Iterator[Case]:
    """Other spaces against the policy itself."""
    for name, (space, action) in KINDS.items():
        policy = rlcatalog.build(space, action, {"fcnet_hiddens": HIDDENS}, "torch")
        space.seed(0)
        one = space.sample()
        if name == "masked":
            one["action_mask"][0] = 1
        obs, acting = stack(SpaceInfo.read(space), [one]), frozen(policy, 1)
        yield Case(
            f"frozen, {name}, to act",
            lambda acting=acting, obs=obs: acting.act(obs),
            lambda policy=policy, obs=obs: policy.act(obs),
            0.35,
            "1",
        )


def updates() -> Iterator[Case]:
    """Taking over the weights of now, with a change in each, and freezing."""
    for name, (space, config, _) in {
        "fcnet": (BOX, {"fcnet_hiddens": HIDDENS}, 0),
        **MODELS,
    }.items():
        policy = rlcatalog.build(space, gym.spaces.Discrete(ACTIONS), config, "torch")
        yield Case(f"frozen, {name}, update", frozen(policy, 1).update, None, None)
        yield Case(f"freeze, {name}", lambda policy=policy: policy.freeze(1, seed=0), None, None)


def run() -> list[Result]:
    """Print the cases of frozen policies."""
    torch.set_num_threads(1)
    return report([*dense(), *models(), *kinds(), *updates()])
