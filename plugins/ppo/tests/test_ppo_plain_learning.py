"""Long learning runs of plain modules, and of the same networks in RLlib's form.

The record beside this file says what each must reach.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import minigrid  # noqa: F401  (registers its environments)
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from learning import random_play
from torch import nn

from rlcatalog_ppo import PPO
from rlcatalog_torch import TorchModelV2

pytestmark = [pytest.mark.learn, pytest.mark.usefixtures("one_thread")]


class VectorNet(nn.Module):
    def __init__(self, space):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(space.shape[0], 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()
        )

    def forward(self, obs):
        return self.layers(obs)


class GridNet(nn.Module):
    """Convolutions of the view, concatenated with the one-hot direction."""

    def __init__(self, space):
        super().__init__()
        self.view = nn.Sequential(
            nn.Conv2d(3, 16, 2), nn.ReLU(), nn.Conv2d(16, 32, 2), nn.ReLU(), nn.Flatten()
        )
        self.layers = nn.Sequential(nn.Linear(32 * 5 * 5 + 4, 64), nn.Tanh())

    def forward(self, obs):
        return self.layers(torch.cat([self.view(obs["image"]), obs["direction"]], dim=1))


class MaskedNet(nn.Module):
    """Reads the values only: rlcatalog applies the mask."""

    def __init__(self, space):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())

    def forward(self, obs):
        return self.layers(obs["values"])


class InRllibsForm(TorchModelV2, nn.Module):
    """One of the networks above with RLlib's `forward` and `value_function`; it scales and
    transposes images itself.
    """

    net: type[nn.Module]
    width = 64

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.trunk = self.net(obs_space)
        self.logits = nn.Linear(self.width, num_outputs)
        self.value = nn.Linear(self.width, 1)
        # Start as small as the layers that rlcatalog adds to a plain module.
        for layer in (self.logits, self.value):
            nn.init.normal_(layer.weight)
            layer.weight.data *= 0.01 / layer.weight.data.norm(dim=1, keepdim=True)
            nn.init.zeros_(layer.bias)

    def forward(self, input_dict, state, seq_lens):
        obs = input_dict["obs"]
        if isinstance(obs, dict) and "image" in obs:
            obs = {**obs, "image": obs["image"].permute(0, 3, 1, 2) / 255}
        self.features = self.trunk(obs)
        return self.logits(self.features), state

    def value_function(self):
        return self.value(self.features).squeeze(1)


class HighestAllowed(gym.Env):
    """Six values and a mask, for ten steps: the highest allowed value pays 1, and a forbidden
    action raises an error.
    """

    observation_space = Dict({"action_mask": MultiBinary(6), "values": Box(0, 1, (6,), np.float32)})
    action_space = Discrete(6)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps_left = 10
        return self._draw_obs(), {}

    def step(self, action):
        mask = self.obs["action_mask"]
        values = self.obs["values"]
        assert mask[action], f"{action} is forbidden by {mask}"
        best = np.where(mask == 1, values, -1).argmax()
        self.steps_left -= 1
        return self._draw_obs(), float(action == best), self.steps_left == 0, False, {}

    def _draw_obs(self):
        mask = (self.np_random.random(6) < 0.5).astype(np.int8)
        mask[self.np_random.integers(6)] = 1  # at least one action is allowed
        values = self.np_random.random(6).astype(np.float32)
        self.obs = {"action_mask": mask, "values": values}
        return self.obs


def cartpole():
    return gym.make("CartPole-v1")


def grid():
    env = gym.make("MiniGrid-Empty-Random-5x5-v0")
    return gym.wrappers.FilterObservation(env, ["image", "direction"])


def rllib_form_of(net_class):
    """Return a model class in RLlib's form for one of the networks."""
    return type("Net", (InRllibsForm,), {"net": net_class})


class Task(NamedTuple):
    """An environment, a network for it, steps to train, and keys of PPO's config."""

    make_env: Callable[[], gym.Env]
    net_class: type[nn.Module]
    steps: int
    config: dict[str, Any]


# Values of about 100 would hide the policy's loss in layers that both share.
CARTPOLE_CONFIG = {"vf_loss_coeff": 0.005, "model": {"observation_filter": "MeanStdFilter"}}
TASKS = {
    "cartpole": Task(cartpole, VectorNet, steps=100_000, config=CARTPOLE_CONFIG),
    "minigrid": Task(grid, GridNet, steps=40_000, config={}),
    "masked": Task(HighestAllowed, MaskedNet, steps=30_000, config={}),
}


@pytest.mark.parametrize("form", ["plain", "rllib"])
@pytest.mark.parametrize("name", TASKS)
def test_network_learns_in_either_form(over_seeds, name, form):
    task = TASKS[name]
    model = task.net_class
    if form == "rllib":
        model = rllib_form_of(task.net_class)

    def train(seed):
        config = {"total_steps": task.steps, "seed": seed, **task.config}
        algo = PPO(task.make_env, config, model=model)
        while algo.train()["timesteps_total"] < task.steps:
            pass
        mean_return = float(np.mean(algo.evaluate(100, seed=10_000)))
        algo.stop()
        return mean_return

    over_seeds(train, chance=lambda: random_play(task.make_env))
