"""Examples for the conformance kit: environments of the packages that are installed.

Without such a package, its adapter has no example here. `make environments` installs each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np

Makers = list[Callable[[], Any]]


def pools() -> Makers:
    """Return functions that make pools of EnvPool."""
    if find_spec("envpool") is None:
        return []
    import envpool

    return [
        partial(envpool.make, name, env_type="gymnasium", num_envs=3)
        for name in ("CartPole-v1", "Pendulum-v1", "CartpoleSwingup-v1")
    ]


def dm_environments() -> Makers:
    """Return functions that make environments of dm_control and bsuite."""
    makers: Makers = []
    if find_spec("shimmy") is None:
        return makers
    if find_spec("dm_control") is not None:
        from dm_control import suite

        makers.append(partial(suite.load, "cartpole", "swingup"))
    if find_spec("bsuite") is not None:
        import bsuite

        makers.append(partial(bsuite.load_from_id, "catch/0"))
    return makers


def games() -> Makers:
    """Return functions that make parallel games of PettingZoo."""
    if find_spec("mpe2") is None:
        return []
    from mpe2 import simple_spread_v3

    return [simple_spread_v3.parallel_env]


def tensor_environments() -> Makers:
    """Return a function that makes a simulator on the CPU."""
    return [Simulator] if find_spec("torch") is not None else []


class Simulator:
    """Two CartPoles with a device, as simulators have one. It takes tensors, and returns arrays,
    which are tensors on the CPU without their type.
    """

    device = "cpu"

    def __init__(self) -> None:
        envs = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync")
        self._envs = envs
        self.num_envs = envs.num_envs
        self.metadata = envs.metadata  # with the mode, in which environments reset themselves
        self.single_observation_space = envs.single_observation_space
        self.single_action_space = envs.single_action_space

    def reset(self, *, seed: int | None = None) -> Any:
        """Begin all episodes."""
        return self._envs.reset(seed=seed)

    def step(self, actions: Any) -> Any:
        """Take a step."""
        return self._envs.step(np.asarray(actions))
