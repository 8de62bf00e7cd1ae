"""Options of all algorithms: reward scaling, and schedules of the learning rate and the clip."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import NormalizeReward

import rlcatalog
from rlcatalog.errors import ConfigError
from rlcatalog_ppo import A2C, PG, PPO
from rlcatalog_ppo.collector import Collector
from rlcatalog_ppo.config import parse
from rlcatalog_ppo.offline import Reader
from rlcatalog_ppo.reward_scale import RewardScale
from rlcatalog_runs.seeds import SeedStream, derive_seed

pytestmark = pytest.mark.twins

#: Iterations of 60 steps: 20 in each of three environments.
SIXTY_STEPS = {"num_envs": 3, "rollout_length": 20, "seed": 0, "model": {"fcnet_hiddens": [8]}}
#: The same for PPO, with a single minibatch.
SIXTY_STEPS_OF_PPO = {**SIXTY_STEPS, "minibatch_size": 60, "num_epochs": 1}
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


class LargeRewards(gym.Env):
    """Random observations, and rewards of about 50 ± 100.

    An episode ends at random, or is truncated after 7 steps, unless `endless` is true in the
    config.
    """

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config=None):
        self.endless = (config or {}).get("endless", False)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.t += 1
        terminated = not self.endless and self.np_random.random() < 0.2
        truncated = not self.endless and self.t == 7
        obs = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        reward = self.np_random.normal(50, 100)
        return obs, reward, terminated, truncated, {}


def collect(algo, steps=20):
    """Collect a rollout without learning from it."""
    return algo._collector.collect(steps)


# --- scaling rewards ------------------------------------------------------------------------------


def make_endless_ppo():
    """Return a PPO that scales the rewards of episodes that never end."""
    config = {
        **SIXTY_STEPS_OF_PPO,
        "gamma": 0.9,
        "reward_scale": True,
        "env_config": {"endless": True},
    }
    return PPO(LargeRewards, config)


def test_scaled_rewards_equal_gymnasium_within_episodes():
    algo = make_endless_ppo()
    rollout = collect(algo, steps=40)

    def make_env():
        return LargeRewards({"endless": True})

    # The same environments with Gymnasium's wrapper, from the same seeds and with the same actions.
    gym_envs = NormalizeReward(SyncVectorEnv([make_env] * 3), gamma=0.9)
    gym_envs.reset(seed=[derive_seed(0, SeedStream.ENVIRONMENTS, i) for i in range(3)])
    for step in range(40):
        actions = rollout.raw_action[step].reshape(3).astype(int)
        _, expected, *_ = gym_envs.step(actions)
        np.testing.assert_allclose(rollout.scaled_reward[step], expected, rtol=1e-5)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
def test_scaling_receives_ends_and_idle_steps(mode):
    calls = []

    class RecordingScale(RewardScale):
        def __call__(self, rewards, done, idle):
            calls.append({"done": done.tolist(), "idle": idle.tolist()})
            return super().__call__(rewards, done, idle)

    envs = SyncVectorEnv([LargeRewards] * 3, autoreset_mode=mode)
    policy = rlcatalog.build(env=LargeRewards(), config={"fcnet_hiddens": [4]})
    collector = Collector(policy, envs, seed=0, gamma=0.9, scale=RecordingScale(3, gamma=0.9))

    rollout = collector.collect(40)

    assert [call["done"] for call in calls] == rollout.done.tolist()
    if mode is AutoresetMode.NEXT_STEP:  # a step after the end only begins an episode
        assert [call["idle"] for call in calls] == rollout.idle.tolist()
    else:
        assert [call["idle"] for call in calls] == [[False, False, False]] * 40


def make_scaled(algorithm, *, reward_clip, record=None, **config):
    """Return an algorithm that scales rewards and clips them."""
    config = {**SIXTY_STEPS, "reward_scale": True, "reward_clip": reward_clip, **config}
    if algorithm is PPO:
        config = {**config, "minibatch_size": 60, "num_epochs": 1}
    return algorithm(LargeRewards, config, record=record)


all_algorithms = pytest.mark.parametrize("algorithm", [PPO, A2C, PG])


@all_algorithms
def test_scaled_rewards_are_clipped(algorithm):
    rollout = collect(make_scaled(algorithm, reward_clip=1.5))

    assert np.abs(rollout.scaled_reward).max() == 1.5
    assert np.abs(rollout.reward).max() > 100


@all_algorithms
def test_advantages_are_of_scaled_rewards(algorithm):
    # With a discount of 0, an advantage depends on the reward of its step alone.
    algo = make_scaled(algorithm, reward_clip=1.5, gamma=0.0)
    rollout = collect(algo)

    advantage = algo._batch(rollout)["advantage"]

    expected = rollout.rows(rollout.scaled_reward)
    if algorithm is not PG:  # REINFORCE subtracts no value
        expected = expected - rollout.rows(rollout.value)
    np.testing.assert_allclose(advantage, expected, rtol=1e-5, atol=1e-6)


@all_algorithms
def test_batch_keeps_rewards_of_environment(algorithm):
    algo = make_scaled(algorithm, reward_clip=1.5)
    rollout = collect(algo)

    batch = algo._batch(rollout)

    np.testing.assert_array_equal(batch["reward"], rollout.rows(rollout.reward))


@all_algorithms
def test_records_and_returns_have_rewards_of_environment(algorithm, tmp_path):
    algo = make_scaled(algorithm, reward_clip=1.5, record=tmp_path)

    algo.train()

    # Scaled rewards would be 1.5 at most.
    assert np.abs(Reader(tmp_path).next()["rewards"]).max() > 100
    assert np.abs(algo._collector.episodes.returns).max() > 100


# --- the state of scaling -------------------------------------------------------------------------


def test_state_of_scaling_counts_rewards():
    algo = A2C(LargeRewards, {**SIXTY_STEPS, "reward_scale": True})
    algo.train()

    state = algo._collector.scale.get_state()

    _, _, count = state["moments"]
    assert count == pytest.approx(60, abs=1e-3)  # 3 environments * 20 steps
    assert all(isinstance(part, np.ndarray) for part in state.values())
    assert algo._collector.get_state()["scale"].keys() == state.keys()


def test_resumed_run_may_begin_to_scale(tmp_path):
    algo = A2C(LargeRewards, SIXTY_STEPS)
    algo.train()
    algo.save_checkpoint(tmp_path / "checkpoint")

    scaling = A2C.restore(tmp_path / "checkpoint", LargeRewards, config={"reward_scale": True})
    scaling.train()

    _, _, count = scaling._collector.scale.get_state()["moments"]
    assert count == pytest.approx(60, abs=1e-3)  # 3 environments * 20 steps


# --- schedules ------------------------------------------------------------------------------------


def largest_change(before, after):
    return max(float(np.abs(after[name] - weight).max()) for name, weight in before.items())


def test_learning_rate_falls_to_zero_over_total_steps():
    config = {**SIXTY_STEPS, "lr": 0.5, "total_steps": 240}
    algo = A2C(LargeRewards, config)

    rates = [algo.train()["info"]["learner"]["lr"] for _ in range(5)]  # of 60 steps each

    assert rates == [0.5, 0.375, 0.25, 0.125, 0.0]


@pytest.mark.parametrize(
    "config",
    [{"total_steps": 240, "anneal_lr": False}, {"total_steps": None}],
    ids=["not annealed", "unknown total"],
)
def test_learning_rate_stays(config):
    algo = A2C(LargeRewards, {**SIXTY_STEPS, "lr": 0.5, **config})

    rates = [algo.train()["info"]["learner"]["lr"] for _ in range(3)]

    assert rates == [0.5, 0.5, 0.5]


@both_frameworks
def test_learning_rate_follows_its_schedule(framework):
    config = {
        **SIXTY_STEPS,
        "framework": framework,
        "lr": 9.0,  # has no effect beside a schedule
        "total_steps": 100,  # has no effect either
        "lr_schedule": [[60, 0.1], [180, 0.04], [240, 0.0]],
        "grad_clip": None,
    }
    algo = A2C(LargeRewards, config)

    rates = []
    changes = []
    for _ in range(6):  # of 60 steps each
        before = algo.policy.model.get_weights()
        rates.append(algo.train()["info"]["learner"]["lr"])
        changes.append(largest_change(before, algo.policy.model.get_weights()))

    # The rates of 0, 60, 120, 180, 240 and 300 steps; 0.07 is half-way between 0.1 and 0.04.
    np.testing.assert_allclose(rates, [0.1, 0.1, 0.07, 0.04, 0.0, 0.0], atol=1e-12)
    assert changes[0] == pytest.approx(0.1, rel=1e-2)  # Adam's first step is the learning rate
    assert changes[4:] == [0, 0]  # at a rate of 0


@both_frameworks
def test_clip_param_follows_its_schedule(framework):
    config = {
        **SIXTY_STEPS,
        "framework": framework,
        "minibatch_size": 30,
        "num_epochs": 3,
        "lr": 0.01,
        "clip_schedule": [[0, 100.0], [60, 100.0], [61, 0.0]],
    }
    algo = PPO(LargeRewards, config)

    # The iterations begin at 0, 60 and 120 steps.
    first, second, third = [algo.train()["info"]["learner"] for _ in range(3)]

    # All probability ratios are within 100 of 1, so none is clipped.
    assert first["clip_param"] == second["clip_param"] == 100.0
    assert first["clip_fraction"] == second["clip_fraction"] == 0.0
    # With 0, all ratios are clipped that are not exactly 1.
    assert third["clip_param"] == 0.0
    assert third["clip_fraction"] > 0.9


# --- values that are refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("lr_schedule", [], "lr_schedule: expected"),
        ("lr_schedule", [[10, 0.1], [10, 0.2]], "increasing steps"),
        ("clip_schedule", [[10, 0.1], [5, 0.2]], "clip_schedule: expected"),
        ("lr_schedule", [[0, -1.0]], "'lr_schedule'"),
        ("lr_schedule", [[0, 0.1, 2]], "'lr_schedule'"),
        ("lr_schedule", 0.1, "'lr_schedule'"),
        ("reward_clip", 0, "'reward_clip'"),
        ("rollout_length", 10**9, "'rollout_length'"),  # would not fit into memory
        ("num_epochs", 2**63, "'num_epochs'"),  # would not end
    ],
)
def test_invalid_option_is_named(key, value, message):
    with pytest.raises(ConfigError, match=message):
        parse({key: value})
