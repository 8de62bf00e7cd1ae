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
from rlcatalog_ppo.config import parse
from rlcatalog_ppo.offline import Reader
from rlcatalog_ppo.reward_scale import RewardScale
from rlcatalog_ppo.rollout import Collector
from rlcatalog_runs.seeds import SeedStream, derive_seed

pytestmark = pytest.mark.twins

#: Three environments, and rollouts of 20 steps in each.
SMALL = {"num_envs": 3, "rollout_length": 20, "seed": 0, "model": {"fcnet_hiddens": [8]}}
#: The same for PPO, with a single minibatch.
SMALL_PPO = {**SMALL, "minibatch_size": 60, "num_epochs": 1}
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
    config = {**SMALL_PPO, "gamma": 0.9, "reward_scale": True, "env_config": {"endless": True}}
    return PPO(LargeRewards, config)


def test_scaled_rewards_equal_gymnasium_within_episodes():
    algo = make_endless_ppo()
    rollouts = [collect(algo, steps=20), collect(algo, steps=20)]

    # The same environments with Gymnasium's wrapper, from the same seeds and with the same actions.
    gym_envs = NormalizeReward(
        SyncVectorEnv([lambda: LargeRewards({"endless": True})] * 3), gamma=0.9
    )
    gym_envs.reset(seed=[derive_seed(0, SeedStream.ENVIRONMENTS, i) for i in range(3)])
    for rollout in rollouts:
        for actions, scaled in zip(rollout.raw_action, rollout.scaled, strict=True):
            _, expected, *_ = gym_envs.step(actions.reshape(3).astype(int))
            np.testing.assert_allclose(scaled, expected, rtol=1e-5)


def test_scaled_rewards_are_much_smaller():
    algo = make_endless_ppo()
    collect(algo)

    second = collect(algo)

    factor = np.abs(second.reward).mean() / np.abs(second.scaled).mean()
    assert 5 < factor < 1000


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
def test_reward_sums_restart_with_each_episode(mode):
    envs = SyncVectorEnv([LargeRewards] * 3, autoreset_mode=mode)
    policy = rlcatalog.build(env=LargeRewards(), config={"fcnet_hiddens": [4]})
    collector = Collector(policy, envs, seed=0, gamma=0.9, scale=RewardScale(3, gamma=0.9))

    rollout = collector.collect(40)

    assert rollout.done.sum() > 10
    # In mode NEXT_STEP, some steps are idle: they only begin an episode.
    idle = np.zeros((40, 3), bool) if rollout.idle is None else rollout.idle
    assert idle.any() == (mode is AutoresetMode.NEXT_STEP)
    all_sums = []
    sums = np.zeros(3)
    for t in range(40):
        is_real = ~idle[t]
        sums[is_real] = 0.9 * sums[is_real] + rollout.reward[t][is_real]
        all_sums.extend(sums[is_real])
        sums[rollout.done[t]] = 0.0
        expected = rollout.reward[t] / np.std(all_sums)
        if t > 20:  # until then, the initial mean of 0 and variance of 1 still count
            np.testing.assert_allclose(rollout.scaled[t][is_real], expected[is_real], rtol=1e-3)


def make_scaled(algorithm, *, reward_clip, record=None, **config):
    """Return an algorithm that scales rewards and clips them."""
    config = {**SMALL, "reward_scale": True, "reward_clip": reward_clip, **config}
    if algorithm is PPO:
        config = {**config, "minibatch_size": 60, "num_epochs": 1}
    return algorithm(LargeRewards, config, record=record)


all_algorithms = pytest.mark.parametrize("algorithm", [PPO, A2C, PG])


@all_algorithms
def test_scaled_rewards_are_clipped(algorithm):
    rollout = collect(make_scaled(algorithm, reward_clip=1.5))

    assert np.abs(rollout.scaled).max() == 1.5
    assert np.abs(rollout.reward).max() > 100


@all_algorithms
def test_advantages_are_of_scaled_rewards(algorithm):
    algo = make_scaled(algorithm, reward_clip=1.5, gamma=0.0)
    rollout = collect(algo)

    batch = algo._batch(rollout)

    # With a discount of 0, the advantage is the reward minus the value; REINFORCE has no values.
    expected = rollout.rows(rollout.scaled)
    if algorithm is not PG:
        expected = expected - rollout.rows(rollout.value)
    np.testing.assert_allclose(batch["advantage"], expected, rtol=1e-5, atol=1e-6)


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


def test_clip_without_scaling_only_clips():
    algo = A2C(LargeRewards, {**SMALL, "reward_clip": 60})

    rollout = collect(algo)

    np.testing.assert_array_equal(rollout.scaled, np.clip(rollout.reward, -60, 60))


def test_rewards_are_not_scaled_by_default():
    assert collect(A2C(LargeRewards, SMALL)).scaled is None


# --- the state of scaling -------------------------------------------------------------------------


def test_state_of_scaling_counts_rewards():
    algo = A2C(LargeRewards, {**SMALL, "reward_scale": True})
    algo.train()

    state = algo._collector.scale.get_state()

    _, _, count = state["moments"]
    assert count == pytest.approx(60, abs=1e-3)  # 3 environments * 20 steps
    assert all(isinstance(part, np.ndarray) for part in state.values())
    assert algo._collector.get_state()["scale"].keys() == state.keys()


def test_restored_scaling_continues_identically():
    scale = RewardScale(3, gamma=0.99)
    rewards = np.float32([100, -30, 7])
    nowhere = np.zeros(3, bool)  # no episode ends, and no step is idle
    for _ in range(20):
        scale(rewards, ended=nowhere, idle=nowhere)

    restored = RewardScale(3, gamma=0.99)
    restored.set_state(scale.get_state())

    for _ in range(3):
        np.testing.assert_array_equal(
            restored(rewards, ended=nowhere, idle=nowhere),
            scale(rewards, ended=nowhere, idle=nowhere),
        )


def test_begin_anew_resets_sums_of_its_environments():
    scale = RewardScale(3, gamma=0.99)
    nowhere = np.zeros(3, bool)  # no episode ends, and no step is idle
    scale(np.float32([100, -30, 7]), ended=nowhere, idle=nowhere)

    scale.begin_anew(np.array([True, False, True]))

    assert scale.get_state()["sums"].tolist() == [0, -30, 0]


def test_resumed_run_may_begin_to_scale(tmp_path):
    algo = A2C(LargeRewards, SMALL)
    algo.train()
    algo.save_checkpoint(tmp_path / "checkpoint")

    scaling = A2C.restore(tmp_path / "checkpoint", LargeRewards, config={"reward_scale": True})
    scaling.train()

    _, _, count = scaling._collector.scale.get_state()["moments"]
    assert count == pytest.approx(60, abs=1e-3)  # 3 environments * 20 steps


# --- schedules ------------------------------------------------------------------------------------


def largest_change(before, after):
    return max(float(np.abs(after[name] - weight).max()) for name, weight in before.items())


@both_frameworks
def test_learning_rate_follows_its_schedule(framework):
    config = {
        **SMALL,
        "framework": framework,
        "lr": 9.0,  # has no effect beside a schedule
        "total_steps": 100,  # nor has this
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

    # At 0, 60, 120, …, 300 steps; 0.07 is half-way between 0.1 and 0.04.
    np.testing.assert_allclose(rates, [0.1, 0.1, 0.07, 0.04, 0.0, 0.0], atol=1e-12)
    assert changes[0] == pytest.approx(0.1, rel=1e-2)  # Adam's first step is the learning rate
    assert changes[4:] == [0, 0]


@both_frameworks
def test_clip_param_follows_its_schedule(framework):
    config = {
        **SMALL,
        "framework": framework,
        "minibatch_size": 30,
        "num_epochs": 3,
        "lr": 0.01,
        "clip_schedule": [[0, 100.0], [60, 100.0], [61, 0.0]],
    }
    algo = PPO(LargeRewards, config)

    figures = [algo.train()["info"]["learner"] for _ in range(4)]  # of 60 steps each

    assert [figure["clip_param"] for figure in figures] == [100, 100, 0, 0]
    # No ratio is beyond 100. With 0, only a ratio of 1 is not clipped.
    clips_most = [figure["clip_fraction"] > 0.9 for figure in figures]
    assert clips_most == [False, False, True, True]


@both_frameworks
def test_constant_clip_schedule_equals_clip_param(framework):
    def train(**config):
        config = {
            **SMALL,
            "framework": framework,
            "minibatch_size": 30,
            "num_epochs": 2,
            **config,
        }
        algo = PPO(LargeRewards, config)
        algo.train()
        algo.train()
        return algo.policy.model.get_weights()

    fixed = train(clip_param=0.05)
    scheduled = train(clip_schedule=[[0, 0.05]])

    for name, weight in fixed.items():
        np.testing.assert_allclose(scheduled[name], weight, atol=1e-6, err_msg=name)


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
