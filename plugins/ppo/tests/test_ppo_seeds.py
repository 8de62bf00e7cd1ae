"""One seed makes a run: its episodes, weights and minibatches, shared with no other seed."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest

from rlcatalog.errors import ConfigError
from rlcatalog_ppo import A2C, PG, PPO
from rlcatalog_ppo.callbacks import Evaluation
from rlcatalog_runs.seeds import SeedStream, derive_seed

SMALL = {"rollout_length": 16, "model": {"fcnet_hiddens": [8]}}
QUICK = {**SMALL, "minibatch_size": 16}


class Start(gym.Env):
    """Episodes of four random observations; notes how each began."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)
    starts: ClassVar[list[tuple[float, ...]]] = []
    seeds: ClassVar[list[int]] = []

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
        return obs, float(obs[0] * action), False, self.t == 4, {}

    def _observe(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


@pytest.fixture(autouse=True)
def _no_notes():
    Start.starts.clear()
    Start.seeds.clear()


def take_notes():
    """Return the episodes' first observations so far, and forget them."""
    starts = list(Start.starts)
    Start.starts.clear()
    return starts


def derived(seed, stream, count):
    return [derive_seed(seed, stream, i) for i in range(count)]


def train_ppo(seed, **config):
    algo = PPO(Start, {**QUICK, "seed": seed, **config})
    algo.train()
    return algo


def weights_of(algo):
    return np.concatenate([array.ravel() for array in algo.policy.model.get_weights().values()])


# --- different seeds ------------------------------------------------------------------------------


def test_two_seeds_share_no_episode_start():
    runs = []
    for seed in (0, 1):
        algo = train_ppo(seed, num_envs=8)
        algo.evaluate(8)
        runs.append(take_notes())
    # 8 environments begin 5 episodes each in 16 steps; then 8 episodes, and the 8 that follow them.
    assert [len(starts) for starts in runs] == [56, 56]
    assert len({*runs[0], *runs[1]}) == 112


@pytest.mark.parametrize("algorithm", [PPO, A2C, PG])
def test_each_environment_has_its_own_seed(algorithm):
    algorithm(Start, {**(QUICK if algorithm is PPO else SMALL), "seed": 7, "num_envs": 3})
    assert Start.seeds == derived(7, SeedStream.ENVIRONMENTS, 3)


def test_passed_vector_environment_gets_a_seed_each():
    envs = gym.vector.SyncVectorEnv([Start] * 2, autoreset_mode=gym.vector.AutoresetMode.NEXT_STEP)
    PPO(envs, {**QUICK, "seed": 7})
    assert Start.seeds == derived(7, SeedStream.ENVIRONMENTS, 2)


def test_vectorized_environment_gets_one_seed():
    envs = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")
    PPO(envs, {**QUICK, "seed": 7})
    assert envs.unwrapped.np_random_seed == derive_seed(7, SeedStream.ENVIRONMENTS)


# --- the same seed --------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("frozen", ["never", "always"])
def test_same_seed_gives_the_same_run(framework, frozen):
    runs = [train_ppo(3, framework=framework, frozen=frozen, num_envs=2) for _ in range(2)]
    assert np.array_equal(*(weights_of(algo) for algo in runs))
    assert runs[0].evaluate(3) == runs[1].evaluate(3)


def test_number_of_environments_changes_nothing_else():
    few, many = (PPO(Start, {**QUICK, "seed": 3, "num_envs": n}) for n in (2, 5))
    assert np.array_equal(weights_of(few), weights_of(many))
    orders = [algo._rng.permutation(50).tolist() for algo in (few, many)]
    assert orders[0] == orders[1]
    assert Start.seeds[:2] == Start.seeds[2:4]


def test_seed_covers_a_passed_policy():
    policy = PPO(Start, {**QUICK, "seed": 0}).policy
    actions = []
    for _ in range(2):
        algo = PPO(Start, {**QUICK, "model": {}, "seed": 1}, policy=policy)
        actions.append(algo._collector.collect(16).raw_action)
    assert np.array_equal(*actions)


# --- evaluations ----------------------------------------------------------------------------------


def test_evaluate_follows_the_configs_seed():
    algo = train_ppo(7, num_envs=2)
    take_notes(), Start.seeds.clear()
    assert algo.evaluate(3) == algo.evaluate(3) == algo.evaluate(3, seed=7)
    assert Start.seeds == 3 * derived(7, SeedStream.EVALUATION, 3)
    assert algo.evaluate(3, seed=8) != algo.evaluate(3)


def test_evaluate_without_any_seed_is_random():
    algo = train_ppo(None, num_envs=2)
    take_notes()
    algo.evaluate(3)
    first = take_notes()
    algo.evaluate(3)
    assert not {*first} & {*take_notes()}
    assert Start.seeds == []


@pytest.mark.parametrize(("own", "seed"), [(None, 7), (5, 5)])
def test_evaluation_callback_follows_the_seed(own, seed):
    algo = PPO(Start, {**QUICK, "seed": 7, "num_envs": 2}, callbacks=[Evaluation(1, 3, seed=own)])
    Start.seeds.clear()
    algo.train()
    # Most likely actions, then sampled ones, in the same episodes.
    assert Start.seeds == 2 * derived(seed, SeedStream.EVALUATION, 3)


def test_evaluation_with_an_impossible_seed_is_refused():
    with pytest.raises(ConfigError, match="seed: expected an integer of at least 0"):
        train_ppo(7, num_envs=2).evaluate(1, seed=-1)
