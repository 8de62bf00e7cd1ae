"""Seeds of runs: the same seed gives the same run, and different seeds share no episode."""

from __future__ import annotations

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from builders import assert_same_weights

from rlcatalog.errors import ConfigError
from rlcatalog_ppo import A2C, PG, PPO
from rlcatalog_ppo.callbacks import Evaluation
from rlcatalog_runs.seeds import SeedStream, derive_seed

SMALL = {"rollout_length": 16, "model": {"fcnet_hiddens": [8]}}
SMALL_PPO = {**SMALL, "minibatch_size": 16}


@pytest.fixture
def env_class():
    """A class of environments that records the seeds and first observations of all episodes.

    Episodes have four random observations.
    """

    class RecordingEnv(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (2,))
        action_space = gym.spaces.Discrete(2)
        starts: ClassVar = []
        seeds: ClassVar = []

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            if seed is not None:
                self.seeds.append(seed)
            self.t = 0
            obs = self._observe()
            self.starts.append(tuple(obs.tolist()))
            return obs, {}

        def step(self, action):
            self.t += 1
            obs = self._observe()
            return obs, float(obs[0] * (1 + action)), False, self.t == 4, {}

        def _observe(self):
            return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    return RecordingEnv


def derive_seeds(seed, stream, count):
    return [derive_seed(seed, stream, i) for i in range(count)]


def train_ppo(env, **config):
    """Return PPO after one iteration of 16 steps in each environment."""
    algo = PPO(env, {**SMALL_PPO, **config})
    algo.train()
    return algo


# --- different seeds ------------------------------------------------------------------------------


def test_different_seeds_share_no_episode_start(env_class):
    for seed in (0, 1):
        algo = train_ppo(env_class, seed=seed, num_envs=8)
        algo.evaluate(8)

    # In training, 8 environments begin 5 episodes each in 16 steps. In the evaluation, they play 8
    # episodes, and begin 8 more.
    assert len(env_class.starts) == 2 * (8 * 5 + 8 + 8)
    assert len(set(env_class.starts)) == len(env_class.starts)


@pytest.mark.parametrize(
    ("algorithm", "config"),
    [(PPO, SMALL_PPO), (A2C, SMALL), (PG, SMALL)],
    ids=["PPO", "A2C", "PG"],
)
def test_each_environment_has_its_own_seed(algorithm, config, env_class):
    algorithm(env_class, {**config, "seed": 7, "num_envs": 3})

    assert env_class.seeds == derive_seeds(7, SeedStream.ENVIRONMENTS, 3)


def test_passed_vector_environment_gets_a_seed_for_each_member(env_class):
    next_step = gym.vector.AutoresetMode.NEXT_STEP
    envs = gym.vector.SyncVectorEnv([env_class] * 2, autoreset_mode=next_step)

    PPO(envs, {**SMALL_PPO, "seed": 7})

    assert env_class.seeds == derive_seeds(7, SeedStream.ENVIRONMENTS, 2)


def test_vector_environment_without_members_gets_one_seed():
    envs = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")

    PPO(envs, {**SMALL_PPO, "seed": 7})

    assert envs.unwrapped.np_random_seed == derive_seed(7, SeedStream.ENVIRONMENTS)


# --- the same seed --------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("frozen", ["never", "always"])
def test_same_seed_gives_the_same_run(framework, frozen, env_class):
    config = {"seed": 3, "framework": framework, "frozen": frozen, "num_envs": 2}

    first_run = train_ppo(env_class, **config)
    second_run = train_ppo(env_class, **config)

    assert_same_weights(first_run, second_run)
    assert first_run.evaluate(3) == second_run.evaluate(3)


def test_number_of_environments_does_not_change_initial_weights(env_class):
    with_two = PPO(env_class, {**SMALL_PPO, "seed": 3, "num_envs": 2})
    with_five = PPO(env_class, {**SMALL_PPO, "seed": 3, "num_envs": 5})

    assert_same_weights(with_two, with_five)


def test_number_of_environments_does_not_change_row_order(env_class):
    with_two = PPO(env_class, {**SMALL_PPO, "seed": 3, "num_envs": 2})
    with_five = PPO(env_class, {**SMALL_PPO, "seed": 3, "num_envs": 5})

    order_with_two = with_two._rng.permutation(50)
    order_with_five = with_five._rng.permutation(50)
    np.testing.assert_array_equal(order_with_two, order_with_five)


def test_number_of_environments_does_not_change_their_seeds(env_class):
    PPO(env_class, {**SMALL_PPO, "seed": 3, "num_envs": 2})
    seeds_of_two = list(env_class.seeds)
    env_class.seeds.clear()

    PPO(env_class, {**SMALL_PPO, "seed": 3, "num_envs": 5})

    assert env_class.seeds[:2] == seeds_of_two


def test_seed_of_a_run_covers_a_passed_policy(env_class):
    policy = PPO(env_class, {**SMALL_PPO, "seed": 0}).policy
    config = {**SMALL_PPO, "model": {}, "seed": 1}

    # Acting draws from the policy's generator, which each run sets anew.
    first_rollout = PPO(env_class, config, policy=policy)._collector.collect(16)
    second_rollout = PPO(env_class, config, policy=policy)._collector.collect(16)

    np.testing.assert_array_equal(first_rollout.raw_action, second_rollout.raw_action)


# --- evaluations ----------------------------------------------------------------------------------


def test_evaluation_is_seeded_by_the_config(env_class):
    algo = train_ppo(env_class, seed=7, num_envs=2)

    env_class.seeds.clear()  # those of the training
    returns = algo.evaluate(3)
    assert env_class.seeds == derive_seeds(7, SeedStream.EVALUATION, 3)

    assert algo.evaluate(3) == returns
    assert algo.evaluate(3, seed=7) == returns


def test_evaluation_takes_another_seed(env_class):
    algo = train_ppo(env_class, seed=7, num_envs=2)

    assert algo.evaluate(3, seed=8) != algo.evaluate(3)


def test_evaluation_without_any_seed_is_random(env_class):
    algo = train_ppo(env_class, seed=None, num_envs=2)
    env_class.starts.clear()

    algo.evaluate(3)
    algo.evaluate(3)

    assert env_class.seeds == []
    assert len(set(env_class.starts)) == len(env_class.starts)


@pytest.mark.parametrize(
    ("seed_of_callback", "expected_seed"),
    [(None, 7), (5, 5)],
    ids=["seed of the run", "seed of the callback"],
)
def test_evaluation_callback_is_seeded(seed_of_callback, expected_seed, env_class):
    callback = Evaluation(1, 3, seed=seed_of_callback)  # three episodes after each iteration
    algo = PPO(env_class, {**SMALL_PPO, "seed": 7, "num_envs": 2}, callbacks=[callback])
    env_class.seeds.clear()

    algo.train()

    # The same episodes are played twice: with the most likely actions, and with drawn ones.
    assert env_class.seeds == 2 * derive_seeds(expected_seed, SeedStream.EVALUATION, 3)


def test_evaluation_refuses_a_negative_seed(env_class):
    algo = PPO(env_class, {**SMALL_PPO, "seed": 7, "num_envs": 2})

    with pytest.raises(ConfigError, match="seed: expected an integer of at least 0"):
        algo.evaluate(1, seed=-1)
