"""Memory across the ends of episodes, in each of Gymnasium's modes of resetting environments."""

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


class PlayedAlone:
    """The outputs of a policy in a single environment, with a fresh state for each episode.

    Attributes:
        dist_inputs: The distribution's inputs of each step.
        last_values: Number of steps so far → the value of an episode's last observation.
    """

    def __init__(self, policy, env, *, steps):
        self.dist_inputs = []
        self.last_values = {}
        while len(self.dist_inputs) < steps:
            self._play_episode(policy, env)

    def _play_episode(self, policy, env):
        obs, _ = env.reset()
        state = None
        reward = None
        is_over = False
        while not is_over:
            step = policy.act(obs[None], state, prev_reward=reward, explore=False)
            self.dist_inputs.append(step.dist_inputs[0])
            obs, last_reward, terminated, truncated, _ = env.step(int(step.action[0]))
            state = step.state
            reward = np.array([last_reward])
            is_over = terminated or truncated
        last_step = policy.act(obs[None], state, prev_reward=reward, explore=False)
        self.last_values[len(self.dist_inputs)] = last_step.value[0]


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
    alone = [PlayedAlone(policy, Walk(number), steps=16) for number in range(3)]
    makers = [lambda number=number: Walk(number) for number in range(3)]
    envs = SyncVectorEnv(makers, copy=False, autoreset_mode=mode)
    stepper = policy.stepper(envs)
    dist_inputs = [[], [], []]

    obs, _ = envs.reset()
    done = None
    reward = None
    for _ in range(16):
        step = stepper.step(obs, done=done, prev_reward=reward, explore=False)
        for i in range(3):
            if mode is AutoresetMode.NEXT_STEP and done is not None and done[i]:
                # The environment ignores this action; the value is that of the last observation.
                expected_value = alone[i].last_values[len(dist_inputs[i])]
                np.testing.assert_allclose(step.value[i], expected_value, rtol=1e-4, atol=1e-5)
            else:
                dist_inputs[i].append(step.dist_inputs[i])
        obs, reward, terminated, truncated, _ = envs.step(step.action)
        done = terminated | truncated
        if mode is AutoresetMode.DISABLED and done.any():
            obs, _ = envs.reset(options={"reset_mask": done})

    for i in range(3):
        steps = len(dist_inputs[i])
        assert steps >= 11  # the rest are ignored actions
        expected = alone[i].dist_inputs[:steps]
        np.testing.assert_allclose(dist_inputs[i], expected, rtol=1e-4, atol=1e-5)


class NothingLeftAtTheEnd(Walk):
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
    envs = SyncVectorEnv([lambda: NothingLeftAtTheEnd(keys)] * 2)
    config = {"fcnet_hiddens": [8]}
    policy = rlcatalog.build(env=envs, config=config, framework=framework)
    stepper = policy.stepper(envs)
    finished_episodes = 0

    obs, _ = envs.reset()
    done = None
    for _ in range(12):
        step = stepper.step(obs, done=done)
        assert np.isfinite(step.value).all()
        obs, _, terminated, truncated, _ = envs.step(step.action)
        done = terminated | truncated
        finished_episodes += done.sum()

    assert finished_episodes > 4


@both_frameworks
@masked_keys
def test_observation_to_act_on_must_allow_an_action(framework, keys):
    env = NothingLeftAtTheEnd(keys)
    config = {"fcnet_hiddens": [8]}
    policy = rlcatalog.build(env=env, config=config, framework=framework)
    env.reset()
    env.step(0)
    last_obs, *_ = env.step(0)  # the first episode has two steps

    # In the same-step mode, which is the default, the observation is the next episode's first.
    with pytest.raises(ActionMaskError, match="allows no action"):
        policy.stepper(1).step([last_obs], done=[True])


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


@all_modes
def test_mode_may_be_passed_as_gymnasiums_enum(walk_policy, mode):
    assert walk_policy.stepper(4, mode).autoreset == mode.name.lower()


@all_modes
def test_mode_may_be_passed_by_name(walk_policy, mode):
    assert walk_policy.stepper(4, mode.name.lower()).autoreset == mode.name.lower()


def test_mode_of_environments_written_as_vectors_is_read():
    # CartPole has a class of its own for many poles.
    envs = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")

    assert autoreset_of(envs) == "next_step"


def test_vector_environment_without_mode_is_an_error(walk_policy):
    envs_without_mode = SimpleNamespace(num_envs=2, metadata={})

    with pytest.raises(ConfigError, match="does not declare when it resets") as caught:
        walk_policy.stepper(envs_without_mode)

    assert "SimpleNamespace does not declare" in str(caught.value)
    assert " pass autoreset=" in str(caught.value)


def test_vector_environment_without_mode_works_with_a_passed_one(walk_policy):
    envs_without_mode = SimpleNamespace(num_envs=2, metadata={})

    assert walk_policy.stepper(envs_without_mode, "disabled").n == 2


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_done_for_three_environments_of_two_is_an_error(walk_policy, mode):
    stepper = walk_policy.stepper(2, mode)

    with pytest.raises(ModelContractError, match="done: expected 2 booleans"):
        stepper.step(np.zeros((2, 2), np.float32), done=np.zeros(3, bool))


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_observations_for_three_environments_of_two_are_an_error(walk_policy, mode):
    stepper = walk_policy.stepper(2, mode)

    with pytest.raises(ModelContractError, match="observations of 2 environments, found 3"):
        stepper.step(np.zeros((3, 2), np.float32))
