"""Environments with several agents for these tests."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from ray.rllib.env.multi_agent_env import MultiAgentEnv

_WRITTEN = (spaces.Text(5), spaces.Tuple([spaces.Discrete(2), spaces.Box(-2, 3, (2,), np.float32)]))
#: Agent → its spaces: two alike, two with text and an action of two parts, one with a mask.
AGENTS = {
    "left": (spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(3, start=2)),
    "right": (spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(3, start=2)),
    "reader": _WRITTEN,
    "scribe": _WRITTEN,
    "picker": (
        spaces.Dict(
            {"seen": spaces.Box(0, 9, (2,), np.float32), "action_mask": spaces.MultiBinary(4)}
        ),
        spaces.Discrete(4),
    ),
}


class Agents(MultiAgentEnv):
    """Agents that take turns unevenly; it keeps what it showed and what it was given, per agent and
    episode.

    Every third step `reader` is not asked, and `right` is done after four steps, the episode after
    nine.
    """

    last = None

    def __init__(self, config=None):
        super().__init__()
        self.possible_agents = list((config or {}).get("agents", AGENTS))
        self.agents = list(self.possible_agents)
        self.observation_spaces = {name: AGENTS[name][0] for name in self.possible_agents}
        self.action_spaces = {name: AGENTS[name][1] for name in self.possible_agents}
        self.episodes = []
        type(self).last = self

    def reset(self, *, seed=None, options=None):
        for number, space in enumerate(self.observation_spaces.values()):
            if not self.episodes:
                space.seed(number)
        self.t, self.agents = 0, list(self.possible_agents)
        self.episodes.append({name: ([], [], []) for name in self.agents})
        return {name: self.look(name) for name in self.agents}, {}

    def look(self, name):
        obs = self.observation_spaces[name].sample()
        if name == "picker":
            obs["action_mask"] = np.roll(np.array([1, 0, 1, 0], np.int8), self.t)
        self.episodes[-1][name][0].append(obs)
        return obs

    def step(self, actions):
        shown = self.episodes[-1]
        rewards = {name: (len(name) + self.t) / 10 for name in actions}
        for name, action in actions.items():
            assert self.action_spaces[name].contains(action), (name, action)
            if name == "picker":
                assert shown[name][0][-1]["action_mask"][action]
            shown[name][1].append(action)
            shown[name][2].append(rewards[name])
        self.t += 1
        over = self.t == 9
        gone = {name: over or (name == "right" and self.t == 4) for name in self.agents}
        asked = [
            name for name in self.agents if gone[name] or not (name == "reader" and self.t % 3 == 0)
        ]
        seen = {name: self.look(name) for name in asked}
        self.agents = [name for name in self.agents if not gone[name]]
        return seen, rewards, {**gone, "__all__": over}, {"__all__": False}, {}


class TwoCartPoles(MultiAgentEnv):
    """Two poles, each with a cart of its own; of the second the positions alone are shown, not the
    velocities.
    """

    def __init__(self, config=None):
        super().__init__()
        self.possible_agents = ["whole", "still"]
        self.agents = list(self.possible_agents)
        self.poles = {name: gym.make("CartPole-v1") for name in self.agents}
        whole = self.poles["whole"].observation_space
        still = spaces.Box(whole.low[::2], whole.high[::2])
        self.observation_spaces = {"whole": whole, "still": still}
        self.action_spaces = {name: pole.action_space for name, pole in self.poles.items()}

    def reset(self, *, seed=None, options=None):
        self.agents = list(self.possible_agents)
        seeds = {"whole": seed, "still": None if seed is None else seed + 1}
        return {
            name: self.shown(name, pole.reset(seed=seeds[name])[0])
            for name, pole in self.poles.items()
        }, {}

    def step(self, actions):
        results = {name: self.poles[name].step(action) for name, action in actions.items()}
        seen = {name: self.shown(name, result[0]) for name, result in results.items()}
        rewards, ended, cut = (
            {name: result[i] for name, result in results.items()} for i in (1, 2, 3)
        )
        self.agents = [name for name in self.agents if not (ended.get(name) or cut.get(name))]
        return seen, rewards, {**ended, "__all__": not self.agents}, {**cut, "__all__": False}, {}

    @staticmethod
    def shown(name, obs):
        return obs[::2] if name == "still" else obs
