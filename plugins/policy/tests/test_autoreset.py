"""Memory over the ends of episodes, in each of the ways in which Gymnasium's vector environments
begin the next one.
"""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rlcatalog
from rlcatalog import ViewRequirement
from rlcatalog.errors import ActionMaskError, ConfigError, ModelContractError
from rlcatalog.spaces import Repeated
from rlcatalog_policy import autoreset_of
from rlcatalog_torch import TorchModelV2

pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded", "default")]

both = pytest.mark.parametrize("framework", ["torch", "tf"])
modes = pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())


class Walk(gym.Env):
    """Goes where the actions lead; every third episode ends by itself, the others are cut, all
    after a few steps.
    """

    observation_space, action_space = Box(-100, 100, (2,), np.float32), Discrete(3)

    def __init__(self, number=0):
        self.number, self.episode = number, -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t, self.x = (
            self.episode + 1,
            0,
            0.1 * self.number + 0.3 * (self.episode + 1),
        )
        return self._seen(), {}

    def step(self, action):
        self.t, self.x = self.t + 1, self.x + 0.2 * (float(action) - 1.0)
        over = self.t == 2 + (self.number + 2 * self.episode) % 4
        return (
            self._seen(),
            self.x,
            over and self.episode % 3 == 0,
            over and self.episode % 3 != 0,
            {},
        )

    def _seen(self):
        return np.array([self.x, 0.1 * self.t], np.float32)


class Back(TorchModelV2):
    """Reads the last two observations and the last action and reward."""

    def __init__(self, *args):
        super().__init__(*args)
        self.layer = torch.nn.Linear(8, self.num_outputs)
        self.view_requirements |= {
            "past": ViewRequirement("obs", shift="-2:-1"),
            "prev_actions": ViewRequirement("actions", shift=-1),
            "prev_rewards": ViewRequirement("rewards", shift=-1),
        }

    def forward(self, input_dict, state, seq_lens):
        d = input_dict
        parts = [
            d["obs"],
            d["past"].flatten(1),
            d["prev_actions"].float().reshape(-1, 1),
            d["prev_rewards"][:, None],
        ]
        x = torch.cat(parts, dim=1)
        self._value = x.sum(dim=1)
        return self.layer(x), state

    def value_function(self):
        return self._value


NET = {"fcnet_hiddens": [8]}
MODELS = {
    "lstm": {
        **NET,
        "use_lstm": True,
        "lstm_cell_size": 6,
        "lstm_use_prev_action": True,
        "lstm_use_prev_reward": True,
    },
    "attention": {
        **NET,
        "use_attention": True,
        "attention_dim": 8,
        "attention_head_dim": 4,
        "attention_use_n_prev_actions": 2,
        "attention_use_n_prev_rewards": 1,
    },
    "views": {"custom_model": Back},
}
CASES = [
    ("lstm", "torch"),
    ("lstm", "tf"),
    ("attention", "torch"),
    ("attention", "tf"),
    ("views", "torch"),
]


def alone(policy, number, steps):
    """Play one environment, each episode from a fresh state; return its steps' outputs, and each
    one's last value.
    """
    env, found, last = Walk(number), [], {}
    while len(found) < steps:
        (obs, _), state, reward, over = env.reset(), None, None, False
        while not over:
            step = policy.act(obs[None], state, prev_reward=reward, explore=False)
            found.append(step.dist_inputs[0])
            obs, reward, terminated, truncated, _ = env.step(int(step.action[0]))
            state, reward, over = step.state, np.array([reward]), terminated or truncated
        last[len(found)] = policy.act(obs[None], state, prev_reward=reward, explore=False).value[0]
    return found, last


@pytest.mark.grid
@pytest.mark.parametrize(("model", "framework"), CASES)
@modes
def test_the_obvious_loop_is_that_of_single_environments(model, framework, mode):
    policy = rlcatalog.build(Walk.observation_space, Walk.action_space, MODELS[model], framework)
    envs = SyncVectorEnv([lambda i=i: Walk(i) for i in range(3)], copy=False, autoreset_mode=mode)
    stepper = policy.stepper(envs)
    (obs, _), done, reward = envs.reset(), None, None
    found, expected = [[] for _ in range(3)], [alone(policy, i, 16) for i in range(3)]
    for _ in range(16):
        step = stepper.step(obs, done=done, prev_reward=reward, explore=False)
        for i in range(3):
            if mode is AutoresetMode.NEXT_STEP and done is not None and done[i]:
                # The value is that of the episode's last observation.
                np.testing.assert_allclose(
                    step.value[i], expected[i][1][len(found[i])], rtol=1e-4, atol=1e-5
                )
                continue
            found[i].append(step.dist_inputs[i])
        obs, reward, terminated, truncated, _ = envs.step(step.action)
        done = terminated | truncated
        if mode is AutoresetMode.DISABLED and done.any():
            obs, _ = envs.reset(options={"reset_mask": done})
    for i in range(3):
        np.testing.assert_allclose(found[i], expected[i][0][: len(found[i])], rtol=1e-4, atol=1e-5)
        assert len(found[i]) >= 11


class Emptied(Walk):
    """In an episode's last observation no action is available, by a mask, by a list or by both."""

    def __init__(self, keys):
        super().__init__()
        spaces = {
            "x": Walk.observation_space,
            "action_mask": Box(0, 1, (3,), np.int8),
            "avail_actions": Repeated(Box(-1, 1, (2,)), 3),
        }
        self.observation_space = Dict({key: spaces[key] for key in ("x", *keys)})

    def _seen(self):
        n = 0 if self.t == 2 + (2 * self.episode) % 4 else 2
        found = {
            "x": super()._seen(),
            "action_mask": np.array([n > 0, n > 1, 0], np.int8),
            "avail_actions": [np.ones(2, np.float32)] * n,
        }
        return {key: found[key] for key in self.observation_space.spaces}

    def step(self, action):
        assert action in (0, 1), action
        return super().step(action)


@both
@pytest.mark.parametrize(
    "keys", [("action_mask",), ("avail_actions",), ("action_mask", "avail_actions")], ids=str
)
def test_a_last_observation_need_not_allow_an_action(framework, keys):
    envs = SyncVectorEnv([lambda: Emptied(keys)] * 2)
    policy = rlcatalog.build(env=envs, config=NET, framework=framework)
    stepper, done, seen = policy.stepper(envs), None, 0
    obs, _ = envs.reset()
    for _ in range(12):
        step = stepper.step(obs, done=done)
        assert np.isfinite(step.value).all()
        obs, _, terminated, truncated, _ = envs.step(step.action)
        done = terminated | truncated
        seen += done.sum()
    assert seen > 4
    single = Emptied(keys)
    single.reset()
    single.step(0)
    # There, an action would be taken.
    with pytest.raises(ActionMaskError, match="allows no action"):
        policy.stepper(1).step([single.step(0)[0]], done=[True])


# --- reading the mode -----------------------------------------------------------------------------


@modes
def test_the_mode_is_the_vector_environments_own(mode):
    """All vector environments over one class share its metadata, in which the last one made writes
    its mode.
    """
    envs = SyncVectorEnv([Walk], autoreset_mode=mode)
    for other in AutoresetMode:
        SyncVectorEnv([Walk], autoreset_mode=other)
    policy = rlcatalog.build(env=envs, config=NET)
    assert autoreset_of(envs) == policy.stepper(envs).autoreset == mode.name.lower()
    wrapped = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    assert autoreset_of(wrapped) == mode.name.lower()
    assert (
        policy.stepper(4, mode).autoreset
        == policy.stepper(4, mode.name.lower()).autoreset
        == mode.name.lower()
    )
    assert policy.stepper(4).autoreset == "same_step"


def test_vector_environments_that_are_written_as_one():
    made = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")
    assert autoreset_of(made) == "next_step"
    silent = SimpleNamespace(num_envs=2, metadata={})
    policy = rlcatalog.build(env=Walk(), config=NET)
    with pytest.raises(
        ConfigError, match=r"SimpleNamespace does not declare when it resets .* pass autoreset="
    ):
        policy.stepper(silent)
    assert policy.stepper(silent, "disabled").n == 2


def test_what_cannot_be_is_refused():
    policy = rlcatalog.build(env=Walk(), config=NET)
    for n in (0, -1, True, 2.0, None, "two"):
        with pytest.raises(ConfigError, match="expected a number of environments, 1 or more"):
            policy.stepper(n)
    with pytest.raises(
        ConfigError,
        match="autoreset: expected one of same_step, next_step, disabled, found 'later'",
    ):
        policy.stepper(2, "later")
    for mode in ("same_step", "next_step"):
        stepper = policy.stepper(2, mode)
        for done in ([True], [[True, False]], True, np.zeros(3, bool)):
            with pytest.raises(ModelContractError, match="done: expected 2 booleans"):
                stepper.step(np.zeros((2, 2), np.float32), done=done)
    with pytest.raises(ModelContractError, match="observations of 2 environments, found 3"):
        stepper.step(np.zeros((3, 2), np.float32))
