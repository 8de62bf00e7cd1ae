"""Memory across the ends of episodes, in each of Gymnasium's modes of resetting environments."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rlcatalog
from rlcatalog import ViewRequirement
from rlcatalog.errors import ActionMaskError
from rlcatalog.spaces import Repeated
from rlcatalog_policy import autoreset_of
from rlcatalog_torch import TorchModelV2

pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded", "default")]

both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
all_modes = pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())


class Walk(gym.Env):
    """A walk on a line. Episodes have 2 to 5 steps; two of three are truncated."""

    observation_space = Box(-100, 100, (2,), np.float32)
    action_space = Discrete(3)

    def __init__(self, number=0):
        self.number = number
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.t = 0
        self.x = 0.1 * self.number + 0.3 * self.episode
        return self._observe(), {}

    def step(self, action):
        self.t += 1
        self.x += 0.2 * (float(action) - 1.0)
        is_over = self.t == 2 + (self.number + 2 * self.episode) % 4
        terminated = is_over and self.episode % 3 == 0
        truncated = is_over and self.episode % 3 != 0
        return self._observe(), self.x, terminated, truncated, {}

    def _observe(self):
        return np.array([self.x, 0.1 * self.t], np.float32)


# --- stepping through episodes --------------------------------------------------------------------


class ReadsPastSteps(TorchModelV2):
    """Reads the last two observations, and the last action and reward."""

    def __init__(self, *args):
        super().__init__(*args)
        self.layer = torch.nn.Linear(8, self.num_outputs)
        self.view_requirements |= {
            "past": ViewRequirement("obs", shift="-2:-1"),
            "prev_actions": ViewRequirement("actions", shift=-1),
            "prev_rewards": ViewRequirement("rewards", shift=-1),
        }

    def forward(self, input_dict, state, seq_lens):
        parts = [
            input_dict["obs"],
            input_dict["past"].flatten(1),
            input_dict["prev_actions"].float().reshape(-1, 1),
            input_dict["prev_rewards"][:, None],
        ]
        x = torch.cat(parts, dim=1)
        self._value = x.sum(dim=1)
        return self.layer(x), state

    def value_function(self):
        return self._value


LSTM = {
    "fcnet_hiddens": [8],
    "use_lstm": True,
    "lstm_cell_size": 6,
    "lstm_use_prev_action": True,
    "lstm_use_prev_reward": True,
}
ATTENTION = {
    "fcnet_hiddens": [8],
    "use_attention": True,
    "attention_dim": 8,
    "attention_head_dim": 4,
    "attention_use_n_prev_actions": 2,
    "attention_use_n_prev_rewards": 1,
}
VIEWS = {"custom_model": ReadsPastSteps}


def play_alone(policy, env, *, steps):
    """Return the distribution's inputs of at least as many steps in a single environment, with a
    fresh state for each episode.
    """
    dist_inputs = []
    while len(dist_inputs) < steps:
        obs, _ = env.reset()
        state = None
        reward = None
        is_over = False
        while not is_over:
            step = policy.act(obs[None], state, prev_reward=reward, explore=False)
            dist_inputs.append(step.dist_inputs[0])
            obs, last_reward, terminated, truncated, _ = env.step(int(step.action[0]))
            state = step.state
            reward = np.array([last_reward])
            is_over = terminated or truncated
    return dist_inputs


def play_vector(policy, envs, *, steps):
    """Return, for each environment of a vector environment, the distribution's inputs of the steps
    whose action it did not ignore.
    """
    mode = envs.autoreset_mode
    stepper = policy.stepper(envs)
    dist_inputs = [[] for _ in range(envs.num_envs)]
    obs, _ = envs.reset()
    done = np.zeros(envs.num_envs, bool)
    reward = None
    for _ in range(steps):
        step = stepper.step(obs, done=done, prev_reward=reward, explore=False)
        for i in range(envs.num_envs):
            is_ignored = mode is AutoresetMode.NEXT_STEP and done[i]
            if not is_ignored:
                dist_inputs[i].append(step.dist_inputs[i])
        obs, reward, terminated, truncated, _ = envs.step(step.action)
        done = terminated | truncated
        if mode is AutoresetMode.DISABLED and done.any():
            obs, _ = envs.reset(options={"reset_mask": done})
    return dist_inputs


@pytest.mark.grid
@pytest.mark.parametrize(
    ("config", "framework"),
    [
        pytest.param(LSTM, "torch", id="lstm-torch"),
        pytest.param(LSTM, "tf", id="lstm-tf"),
        pytest.param(ATTENTION, "torch", id="attention-torch"),
        pytest.param(ATTENTION, "tf", id="attention-tf"),
        pytest.param(VIEWS, "torch", id="views-torch"),
    ],
)
@all_modes
def test_stepper_acts_as_in_single_environments(config, framework, mode):
    policy = rlcatalog.build(Walk.observation_space, Walk.action_space, config, framework)
    # Environments whose episodes end after different numbers of steps.
    makers = [partial(Walk, number) for number in range(3)]
    envs = SyncVectorEnv(makers, copy=False, autoreset_mode=mode)

    actual = play_vector(policy, envs, steps=16)

    for number in range(3):
        expected = play_alone(policy, Walk(number), steps=16)
        steps = len(actual[number])
        # At most 5 of 16 actions are ignored: one after the end of each episode.
        assert steps >= 11
        np.testing.assert_allclose(actual[number], expected[:steps], rtol=1e-4, atol=1e-5)


class AllowsNothingAtTheEnd(Walk):
    """A walk whose last observation allows no action, by a mask, a list of actions, or both."""

    def __init__(self, keys):
        super().__init__()
        all_spaces = {
            "x": Walk.observation_space,
            "action_mask": Box(0, 1, (3,), np.int8),
            "avail_actions": Repeated(Box(-1, 1, (2,)), 3),
        }
        self.observation_space = Dict({key: all_spaces[key] for key in ("x", *keys)})

    def _observe(self):
        is_last = self.t == 2 + (2 * self.episode) % 4
        mask = [0, 0, 0] if is_last else [1, 1, 0]
        entries = {
            "x": super()._observe(),
            "action_mask": np.array(mask, np.int8),
            "avail_actions": [np.ones(2, np.float32)] * sum(mask),
        }
        return {key: entries[key] for key in self.observation_space.spaces}

    def step(self, action):
        assert action in (0, 1), action
        return super().step(action)


masked_keys = pytest.mark.parametrize(
    "keys",
    [["action_mask"], ["avail_actions"], ["action_mask", "avail_actions"]],
    ids=["mask", "list", "mask-and-list"],
)


@both_frameworks
@masked_keys
def test_last_observation_need_not_allow_an_action(framework, keys):
    # The entries of the observation under these keys say which actions are allowed.
    envs = SyncVectorEnv([lambda: AllowsNothingAtTheEnd(keys)] * 2)
    policy = rlcatalog.build(env=envs, framework=framework)
    stepper = policy.stepper(envs)
    finished_episodes = 0

    obs, _ = envs.reset()
    done = None
    for _ in range(12):
        step = stepper.step(obs, done=done)  # raises nothing, also at the end of an episode
        assert np.isfinite(step.value).all()
        obs, _, terminated, truncated, _ = envs.step(step.action)
        done = terminated | truncated
        finished_episodes += done.sum()

    assert finished_episodes > 0


@both_frameworks
@masked_keys
def test_observation_to_act_on_must_allow_an_action(framework, keys):
    env = AllowsNothingAtTheEnd(keys)
    policy = rlcatalog.build(env=env, framework=framework)
    stepper = policy.stepper(1, autoreset="same_step")
    env.reset()
    env.step(0)
    last_obs, *_ = env.step(0)  # the first episode has two steps

    # In this mode, the stepper takes the observation for the first of the next episode.
    with pytest.raises(ActionMaskError, match="allows no action"):
        stepper.step([last_obs], done=[True])


# --- reading the mode -----------------------------------------------------------------------------


@pytest.fixture
def walk_policy():
    return rlcatalog.build(env=Walk(), config={"fcnet_hiddens": [8]})


def make_walks_beside_others(mode):
    """Return vector environments with this mode, and make others of the same class after them.

    All share the metadata of the class, in which each that is made writes its mode.
    """
    envs = SyncVectorEnv([Walk], autoreset_mode=mode)
    for other_mode in AutoresetMode:
        SyncVectorEnv([Walk], autoreset_mode=other_mode)
    return envs


@all_modes
def test_mode_is_that_of_the_vector_environment(walk_policy, mode):
    envs = make_walks_beside_others(mode)

    assert autoreset_of(envs) == mode.name.lower()
    assert walk_policy.stepper(envs).autoreset == mode.name.lower()


@all_modes
def test_mode_is_read_through_wrappers(mode):
    envs = make_walks_beside_others(mode)

    wrapped = gym.wrappers.vector.RecordEpisodeStatistics(envs)

    assert autoreset_of(wrapped) == mode.name.lower()


def test_mode_of_environments_written_as_vectors_is_read():
    # CartPole has a class of its own for many poles.
    envs = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")

    assert autoreset_of(envs) == "next_step"
