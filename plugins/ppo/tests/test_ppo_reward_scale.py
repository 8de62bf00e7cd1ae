"""Scaling and clipping of training rewards."""

from __future__ import annotations

import numpy as np
import pytest

from rlcatalog_ppo.config import PPOConfig
from rlcatalog_ppo.reward_scale import RewardScale, scale_of


def scale_rewards(scale, rewards, *, done=False, idle=False):
    """Return the training rewards of one step."""
    rewards = np.asarray(rewards, np.float64)
    everywhere = np.ones(len(rewards), bool)
    return scale(rewards, done & everywhere, idle & everywhere)


def describe_sums(sums):
    """Return mean, variance and weight of sums beside a prior of mean 0 and variance 1.

    The prior has the weight 1e-4, as in Gymnasium's `NormalizeReward`.
    """
    weight = len(sums) + 1e-4
    mean = np.sum(sums) / weight
    mean_square = (1e-4 * 1 + np.sum(np.square(sums))) / weight
    return mean, mean_square - mean**2, weight


def test_rewards_are_divided_by_the_deviation_of_all_sums():
    scale = RewardScale(n=2, gamma=0.5)

    scale_rewards(scale, [2.0, 4.0])
    scaled = scale_rewards(scale, [1.0, 6.0])

    # The discounted sums are 2 and 4, and then 0.5 * 2 + 1 = 2 and 0.5 * 4 + 6 = 8.
    assert scale.get_state()["sums"].tolist() == [2.0, 8.0]
    mean, variance, weight = describe_sums([2.0, 4.0, 2.0, 8.0])
    np.testing.assert_allclose(scale.get_state()["moments"], [mean, variance, weight], rtol=1e-9)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, np.array([1.0, 6.0]) / np.sqrt(variance), rtol=1e-6)


def test_sum_begins_anew_after_an_episode():
    scale = RewardScale(n=2, gamma=0.5)

    scale_rewards(scale, [1.0, 2.0], done=np.array([True, False]))

    assert scale.get_state()["sums"].tolist() == [0.0, 2.0]
    # The statistics still learn from the sum of the episode that ended.
    expected_moments = describe_sums([1.0, 2.0])
    np.testing.assert_allclose(scale.get_state()["moments"], expected_moments, rtol=1e-9)
    # The next sum of the first environment is its reward alone.
    scale_rewards(scale, [4.0, 4.0])
    assert scale.get_state()["sums"].tolist() == [4.0, 0.5 * 2.0 + 4.0]


def test_restored_scaling_continues_identically():
    scale = RewardScale(2, gamma=0.5)
    scale_rewards(scale, [100.0, -30.0])

    restored = RewardScale(2, gamma=0.5)
    restored.set_state(scale.get_state())

    expected = scale_rewards(scale, [7.0, 8.0])
    np.testing.assert_array_equal(scale_rewards(restored, [7.0, 8.0]), expected)


def test_statistics_leave_idle_steps_out():
    scale = RewardScale(3, gamma=0.5)

    scale_rewards(scale, [1.0, 2.0, 3.0], idle=np.array([False, True, False]))

    expected = describe_sums([1.0, 3.0])
    np.testing.assert_allclose(scale.get_state()["moments"], expected, rtol=1e-9)
    assert scale.get_state()["sums"].tolist() == [1, 2, 3]


def test_statistics_stay_if_all_environments_are_idle():
    scale = RewardScale(3, gamma=0.5)
    scale_rewards(scale, [1.0, 2.0, 3.0])
    before = scale.get_state()["moments"]

    scale_rewards(scale, [1.0, 1.0, 1.0], idle=True)

    np.testing.assert_array_equal(scale.get_state()["moments"], before)


def test_begin_anew_clears_the_sums_of_the_given_environments():
    scale = RewardScale(3, gamma=0.5)
    scale_rewards(scale, [1.0, 2.0, 3.0])

    scale.begin_anew(np.array([True, False, True]))

    assert scale.get_state()["sums"].tolist() == [0, 2, 0]


def test_rewards_that_hardly_differ_are_not_blown_up():
    """The variance 0 of many equal rewards counts as 1e-8."""
    scale = RewardScale(2, gamma=0.0)
    mean_variance_and_count = np.array([0.0, 0.0, 1e12])
    scale.set_state({"moments": mean_variance_and_count, "sums": np.zeros(2)})

    scaled = scale_rewards(scale, [1e-6, -1e-6])

    np.testing.assert_allclose(scaled, [0.01, -0.01], rtol=1e-3)  # 1e-6 / sqrt(1e-8)


@pytest.mark.parametrize(
    ("rewards", "expected"), [([300.0, -0.25], [2, -0.25]), ([-300.0, 0.25], [-2, 0.25])]
)
def test_rewards_are_clipped_on_both_sides(rewards, expected):
    scale = RewardScale(2, gamma=0.9, scaled=False, clip=2.0)

    np.testing.assert_array_equal(scale_rewards(scale, rewards), np.float32(expected))


def test_rewards_without_scaling_and_clipping_become_float32():
    scale = RewardScale(2, gamma=0.9, scaled=False)

    np.testing.assert_array_equal(scale_rewards(scale, [300.0, -0.1]), np.float32([300, -0.1]))


def test_rewards_are_clipped_after_they_were_scaled():
    rewards = [300.0, -0.25]
    scaled = scale_rewards(RewardScale(2, gamma=0.9), rewards)

    clipped = scale_rewards(RewardScale(2, gamma=0.9, clip=0.5), rewards)

    assert clipped[0] == 0.5
    assert clipped[1] == scaled[1]


@pytest.mark.parametrize(
    ("keys", "scaled", "clip"),
    [
        ({"reward_scale": True}, True, None),
        ({"reward_clip": 2.0}, False, 2.0),
        ({"reward_scale": True, "reward_clip": 2.0}, True, 2.0),
    ],
    ids=["scale", "clip", "scale and clip"],
)
def test_config_says_how_rewards_are_scaled(keys, scaled, clip):
    scale = scale_of(PPOConfig(num_envs=3, gamma=0.5, **keys))

    assert scale.scaled is scaled
    assert scale.clip == clip
    assert scale.gamma == 0.5
    assert scale.get_state()["sums"].tolist() == [0, 0, 0]


def test_rewards_are_not_scaled_by_default():
    assert scale_of(PPOConfig(num_envs=3, gamma=0.5)) is None
