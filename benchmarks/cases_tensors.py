"""Acting on tensors: 4,096 environments of a simulator, beside a network written by hand.

The checks of the steps are included. They are read after each rollout of 24 steps, as a training
loop does it. The memory is as a training loop leaves it, too: see `free_a_rollout`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from gymnasium import spaces

import rlcatalog
from benchmarks.floors_tensors import ChoiceFloor, GaussianFloor, RunningScale
from benchmarks.harness import Case, Result, report

ROWS = 4096
ROLLOUT = 24
#: Budgets without and with a filter, which computes in float64.
WITHOUT_FILTER, WITH_FILTER = 1.1, 1.3
CHOICE = spaces.Box(-1, 1, (4,)), spaces.Discrete(2)
ROBOT = spaces.Box(-10, 10, (48,)), spaces.Box(-1, 1, (12,))
MASKED = spaces.Dict(
    {
        "arm": spaces.Box(-10, 10, (24,)),
        "body": spaces.Box(-10, 10, (24,)),
        "action_mask": spaces.MultiBinary(6),
    }
)


def acting(
    obs_space: Any, action_space: Any, obs: Any, hidden: int, **config: Any
) -> Callable[[], Any]:
    """Return `policy.act` on tensors."""
    config = {"fcnet_hiddens": [hidden, hidden], **config}
    policy = rlcatalog.build(obs_space, action_space, config, "torch")
    if policy.filter is not None:
        policy.preprocess(obs, update=True)

    steps = itertools.count(1)

    def act() -> Any:
        step = policy.act(obs)
        if next(steps) % ROLLOUT == 0:
            policy.check()
        return step

    return act


def free_a_rollout() -> None:
    """Allocate the activations of a rollout once and free them, as each update of a policy does.

    The C library then keeps the memory that steps free, which is smaller. Before a first update, it
    returns the memory to the system, and a step spends up to a third of its time on getting it
    again; how much depends on the order in which tensors are freed, so it varies by chance.
    """
    torch.empty(ROWS * ROLLOUT, 64)


def without_filter() -> Iterator[Case]:
    """A choice and a robot, with networks of two sizes."""
    for hidden in (64, 256):
        choice_obs = torch.rand(ROWS, 4)
        choice_floor = ChoiceFloor(4, 2, [hidden, hidden])
        yield Case(
            f"act on tensors, choice, 2 × {hidden}",
            acting(*CHOICE, choice_obs, hidden),
            lambda floor=choice_floor, obs=choice_obs: floor.act(obs),
            WITHOUT_FILTER,
            str(ROWS),
        )
        robot_obs = torch.randn(ROWS, 48)
        robot_floor = GaussianFloor(48, 12, [hidden, hidden])
        yield Case(
            f"act on tensors, robot, 2 × {hidden}",
            acting(*ROBOT, robot_obs, hidden, action_bounds="clip"),
            lambda floor=robot_floor, obs=robot_obs: floor.act(obs),
            WITHOUT_FILTER,
            str(ROWS),
        )


def with_filter() -> Iterator[Case]:
    """A robot, and a Dict with a mask, both with a filter."""
    for hidden in (64, 256):
        obs = torch.randn(ROWS, 48)
        scale = RunningScale(48)
        robot_floor = GaussianFloor(48, 12, [hidden, hidden])
        config = {"observation_filter": "MeanStdFilter"}
        yield Case(
            f"act on tensors, robot, filter, 2 × {hidden}",
            acting(*ROBOT, obs, hidden, action_bounds="clip", **config),
            lambda floor=robot_floor, scale=scale, obs=obs: floor.act(scale(obs)),
            WITH_FILTER,
            str(ROWS),
        )
        mask = torch.rand(ROWS, 6) < 0.7
        mask[:, 0] = True
        parts = {"arm": obs[:, :24].clone(), "body": obs[:, 24:].clone(), "action_mask": mask}
        choice_floor = ChoiceFloor(48, 6, [hidden, hidden])

        def floor(
            floor: ChoiceFloor = choice_floor,
            scale: RunningScale = scale,
            parts: dict[str, torch.Tensor] = parts,
        ) -> Any:
            joined = torch.cat([parts["arm"], parts["body"]], 1)
            return floor.act(scale(joined), parts["action_mask"])

        yield Case(
            f"act on tensors, Dict with mask, filter, 2 × {hidden}",
            acting(MASKED, spaces.Discrete(6), parts, hidden, **config),
            floor,
            WITH_FILTER,
            str(ROWS),
        )


def run() -> list[Result]:
    """Print the cases."""
    torch.set_num_threads(1)
    free_a_rollout()
    return [*report(without_filter()), *report(with_filter())]
