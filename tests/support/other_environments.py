"""Environments with the interfaces of EnvPool, dm_env and PettingZoo, whose packages are not
installed here.

Each has what its adapter uses, as the real package has it; `make environments` runs the adapters
with the real ones. All count steps, so that a test can tell what belongs to which step.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class _PoolBase:
    """Where EnvPool's Python methods are defined; the class below is made elsewhere."""


_PoolBase.__module__ = "envpool.python.envpool"


class Pool(_PoolBase, gym.vector.VectorEnv):
    """Pool of EnvPool in its synchronous mode.

    Environment `i` shows `[i, step of its episode]`. Its episode terminates after `i + 2` steps, or
    is truncated after `limit`. The step after an end resets the environment, pays 0 and shows step
    0. Actions are kept as they arrive.
    """

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self, num_envs=3, limit=4, observation_space=None, action_space=None, masks=False, **config
    ):
        self.config = {
            "num_envs": num_envs, "batch_size": num_envs, "max_num_players": 1, "seed": 42,
            "env_seed": [], **config,
        }  # fmt: skip
        self.num_envs = num_envs
        self.limit = limit
        self.masks = masks
        self.observation_space = observation_space or spaces.Box(-9, 9, (2,), np.float32)
        self.action_space = action_space or spaces.Discrete(2)
        self.single_observation_space = self.observation_space
        self.single_action_space = self.action_space
        self.spec = object()  # has no id
        self.steps = np.zeros(num_envs, np.int32)
        self.ended = np.zeros(num_envs, bool)
        self.actions = []
        self.is_closed = False

    def reset(self, env_id=None, *, seed=None, options=None):
        assert seed is None, "EnvPool ignores the seed, with a warning"
        rows = np.arange(self.num_envs) if env_id is None else env_id
        self.steps[rows] = 0
        self.ended[rows] = False
        return self._obs()[rows], self._infos(rows)

    def step(self, actions):
        self.actions.append(actions)
        self.steps = np.where(self.ended, 0, self.steps + 1).astype(np.int32)
        reward = np.where(self.ended, 0, 1).astype(np.float32)
        truncated = self.steps == self.limit
        terminated = (self.steps == np.arange(self.num_envs) + 2) & ~truncated
        self.ended = terminated | truncated
        rows = np.arange(self.num_envs)
        return self._obs(), reward, terminated, truncated, self._infos(rows)

    def close(self):
        self.is_closed = True

    def _obs(self):
        return np.stack([np.arange(self.num_envs), self.steps], 1).astype(np.float32)

    def _infos(self, rows):
        infos = {"env_id": rows, "players": {"env_id": rows}, "elapsed_step": self.steps[rows]}
        if self.masks:  # even steps forbid action 0
            infos["legal_action_mask"] = np.stack([self.steps % 2 == 1, self.steps >= 0], 1)[rows]
        return infos


# EnvPool makes its classes in a metaclass, so that they name the module of Python's `ABCMeta`.
Pool.__module__ = "abc"


class DmPool(_PoolBase):
    """Pool that was made with `env_type="dm"`, which has no spaces of Gymnasium."""

    config = {"num_envs": 2, "batch_size": 2}  # noqa: RUF012


class _DmEnvironment:
    """Where dm_env defines its interface."""


_DmEnvironment.__module__ = "dm_env._environment"


class Suite(_DmEnvironment):
    """Task of dm_control."""


Suite.__module__ = "dm_control.rl.control"


class Catch(_DmEnvironment):
    """Experiment of bsuite."""


Catch.__module__ = "bsuite.environments.catch"


class OwnDmEnvironment(_DmEnvironment):
    """Environment of a user with the interface dm_env."""


OwnDmEnvironment.__module__ = "my_project"


def make_shimmy() -> ModuleType:
    """Return a module like Shimmy: its two classes, which keep what they wrap."""

    class Compatibility(gym.Env):
        def __init__(self, env):
            self.env_inside = env
            self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
            self.action_space = spaces.Discrete(2)

    module: Any = ModuleType("shimmy")
    module.DmControlCompatibilityV0 = type("DmControlCompatibilityV0", (Compatibility,), {})
    module.BSuiteCompatibilityV0 = type("BSuiteCompatibilityV0", (Compatibility,), {})
    return module


class _ParallelBase:
    """Where PettingZoo defines its parallel interface."""


_ParallelBase.__module__ = "pettingzoo.utils.env"


class Spread(_ParallelBase):
    """Parallel game of three agents.

    Agent `i` observes `[i, step, number drawn at the reset]`, and is paid `10 * i + action`. The
    game is truncated for all of them after `length` steps.

    Args:
        length: Steps of a game.
        leaves: Step after which the last agent leaves, or None.
        other_space: Observation space of the last agent, if it differs.
        masks: Whether infos have masks: an agent may not repeat its last action.
    """

    metadata = {"name": "spread_v0"}  # noqa: RUF012
    possible_agents = ["agent_0", "agent_1", "agent_2"]  # noqa: RUF012

    def __init__(self, length=3, leaves=None, other_space=None, masks=False):
        self.length = length
        self.leaves = leaves
        self.other_space = other_space
        self.masks = masks
        self.seeds = []
        self.is_closed = False

    def observation_space(self, agent):
        if agent == "agent_2" and self.other_space is not None:
            return self.other_space
        return spaces.Box(-9, 9, (3,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.seeds.append(seed)
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.number = self.random.uniform()
        self.agents = [*self.possible_agents]
        self.steps = 0
        self.last = dict.fromkeys(self.agents)
        return self._obs(), self._infos()

    def step(self, actions):
        assert list(actions) == self.agents
        self.steps += 1
        self.last = actions
        rewards = {
            agent: 10 * index + int(actions[agent]) for index, agent in enumerate(self.agents)
        }
        is_over = self.steps == self.length
        terminations = dict.fromkeys(self.agents, False)
        truncations = dict.fromkeys(self.agents, is_over)
        terminations[self.agents[-1]] = self.steps == self.leaves
        result = self._obs(), rewards, terminations, truncations, self._infos()
        if is_over:
            self.agents = []
        elif self.steps == self.leaves:
            self.agents = self.agents[:-1]
        return result

    def close(self):
        self.is_closed = True

    def _obs(self):
        return {
            agent: np.array([index, self.steps, self.number], np.float32)
            for index, agent in enumerate(self.agents)
        }

    def _infos(self):
        if not self.masks:
            return {agent: {} for agent in self.agents}
        infos = {}
        for agent in self.agents:
            mask = np.ones(2, np.int8)
            if self.last[agent] is not None:
                mask[self.last[agent]] = 0
            infos[agent] = {"action_mask": mask}
        return infos


Spread.__module__ = "mpe2.spread"


class TurnBased(_ParallelBase):
    """Game of PettingZoo whose agents take turns."""

    metadata = {"name": "turns_v0"}  # noqa: RUF012
    possible_agents = ["player_0", "player_1"]  # noqa: RUF012

    def agent_iter(self):
        return iter(self.possible_agents)


def install_module(monkeypatch: Any, name: str, **members: Any) -> None:
    """Make a module importable, with these members."""
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)
