"""Filters inside policies: when they learn, what is saved, and how PPO trains with them."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog import default_catalog
from rlcatalog.errors import SavedPolicyError
from rlcatalog_filters import EncodedMeanStdFilter, plugin as declarations
from rlcatalog_ppo import PPO

THREE_NUMBERS = spaces.Box(-100, 100, (3,))
WITH_MASK = spaces.Dict(
    {"action_mask": spaces.MultiBinary(2), "gear": spaces.Discrete(3), "speed": THREE_NUMBERS}
)
TWO_ACTIONS = spaces.Discrete(2)


def build_policy(space=THREE_NUMBERS, framework="torch"):
    config = {"observation_filter": "MeanStdFilter", "fcnet_hiddens": [8]}
    return rlcatalog.build(space, TWO_ACTIONS, config, framework)


def sample_with_mask(*, seed=0):
    """Return a batch of twelve observations whose masks allow everything."""
    WITH_MASK.seed(seed)
    samples = [WITH_MASK.sample() for _ in range(12)]
    return {
        "action_mask": np.ones((12, 2), np.int8),
        "gear": np.stack([sample["gear"] for sample in samples]),
        "speed": np.stack([sample["speed"] for sample in samples]),
    }


def assert_same_outputs(policy, other, obs):
    step = policy.act(obs, explore=False)
    other_step = other.act(obs, explore=False)
    np.testing.assert_array_equal(step.dist_inputs, other_step.dist_inputs)
    np.testing.assert_array_equal(step.value, other_step.value)


@pytest.fixture(scope="module", params=["torch", "tf"])
def mask_policy(request):
    """A policy for observations with masks, whose filter has learned from one batch.

    Only the speed is filtered, which is the last three of the encoded numbers.
    """
    policy = build_policy(WITH_MASK, request.param)
    policy.preprocess(sample_with_mask(seed=0), update=True)
    return policy


# --- acting ---------------------------------------------------------------------------------------


def test_policy_filters_its_encoded_observations(mask_policy):
    encoded = mask_policy.preprocess(sample_with_mask(seed=0))

    assert isinstance(mask_policy.filter, EncodedMeanStdFilter)
    assert [leaf.path for leaf in mask_policy.filter.leaves] == ["obs['speed']"]
    speed = encoded[:, -3:]
    assert np.abs(speed.mean(0)).max() < 1e-5
    np.testing.assert_allclose(speed.std(0, ddof=1), 1, rtol=1e-5)


def test_model_has_the_space_of_filtered_observations(mask_policy):
    assert mask_policy.model.obs_space is mask_policy.encoded_space
    for row in mask_policy.preprocess(sample_with_mask(seed=0)):
        assert mask_policy.encoded_space.contains(row)


def test_acting_does_not_update_the_filter(mask_policy):
    obs = sample_with_mask(seed=1)
    state_before = mask_policy.filter.get_state()

    mask_policy.act(obs)
    mask_policy.act_encoded(mask_policy.preprocess(obs), mask=mask_policy.action_mask(obs))
    mask_policy.stepper(12).step(obs)

    for name, array in mask_policy.filter.get_state().items():
        np.testing.assert_array_equal(array, state_before[name])


def test_act_encoded_of_preprocessed_observations_equals_act(mask_policy):
    obs = sample_with_mask(seed=1)

    step = mask_policy.act_encoded(
        mask_policy.preprocess(obs), mask=mask_policy.action_mask(obs), explore=False
    )

    expected = mask_policy.act(obs, explore=False)
    np.testing.assert_allclose(step.dist_inputs, expected.dist_inputs, rtol=1e-6)
    np.testing.assert_allclose(step.value, expected.value, rtol=1e-6)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_act_applies_the_filter(framework):
    policy = build_policy(framework=framework)
    policy.preprocess(np.float32([[0, 0, 0], [2, 4, 6]]), update=True)
    without_filter = rlcatalog.build(THREE_NUMBERS, TWO_ACTIONS, {"fcnet_hiddens": [8]}, framework)
    without_filter.model.set_weights(policy.model.get_weights())

    step = policy.act(np.float32([[2, 4, 6]]), explore=False)

    # The means are 1, 2 and 3, and the deviations sqrt(2) times as much. So 2, 4 and 6 are each
    # 1 / sqrt(2) deviations above the mean.
    filtered = np.full((1, 3), 1 / np.sqrt(2), np.float32)
    expected = without_filter.act(filtered, explore=False)
    np.testing.assert_allclose(step.dist_inputs, expected.dist_inputs, rtol=1e-4, atol=1e-6)


def test_observations_are_not_changed():
    policy = build_policy()
    obs = np.float32([[1, 2, 3], [3, 4, 5]])

    policy.act(obs)
    policy.preprocess(obs, update=True)

    assert obs.tolist() == [[1, 2, 3], [3, 4, 5]]


def test_camera_is_not_filtered_but_speed_is():
    space = spaces.Dict(
        camera=spaces.Box(0, 255, (12, 10, 3), np.uint8),
        speed=spaces.Box(-np.inf, np.inf, (2,), np.float32),
    )
    config = {"observation_filter": "MeanStdFilter", "conv_flatten": True}
    policy = rlcatalog.build(space, TWO_ACTIONS, config)
    dark = {"camera": np.zeros((8, 12, 10, 3), np.uint8), "speed": np.ones((8, 2), np.float32)}
    bright = {**dark, "camera": np.full((8, 12, 10, 3), 200, np.uint8)}

    policy.preprocess(dark, update=True)
    encoded = policy.preprocess(bright)

    pixels = 12 * 10 * 3
    np.testing.assert_array_equal(encoded[:, :pixels], 200)
    np.testing.assert_array_equal(encoded[:, pixels:], 0)  # the speed is as its mean
    assert policy.explain().as_dict()["filtered"] == ["obs['speed']"]


# --- learning -------------------------------------------------------------------------------------


def test_preprocess_does_not_update_the_filter_by_default():
    policy = build_policy()

    policy.preprocess(np.float32([[1, 2, 3]]))
    policy.preprocess(np.float32([[1, 2, 3]]), update=False)

    assert policy.filter.statistics.running_stats.n == 0


def test_preprocess_with_update_updates_the_filter():
    policy = build_policy()

    policy.preprocess(np.float32([[1, 2, 3], [3, 4, 5]]), update=True)
    policy.preprocess([np.float32([5, 6, 7])], update=True)

    stats = policy.filter.statistics.running_stats
    assert stats.n == 3
    assert stats.mean.tolist() == [3, 4, 5]
    np.testing.assert_allclose(stats.std, [2, 2, 2], rtol=1e-12)


# --- saving and restoring -------------------------------------------------------------------------


def test_loaded_policy_has_the_same_outputs_and_statistics(mask_policy, tmp_path):
    mask_policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path)

    for name, array in mask_policy.filter.get_state().items():
        np.testing.assert_array_equal(loaded.filter.get_state()[name], array)
    assert_same_outputs(loaded, mask_policy, sample_with_mask(seed=2))


def test_loaded_filter_learns_on(mask_policy, tmp_path):
    mask_policy.save(tmp_path)
    loaded = rlcatalog.load(tmp_path)

    loaded.preprocess(sample_with_mask(seed=2), update=True)

    assert loaded.filter.statistics.running_stats.n == 12 + 12
    assert loaded.filter.statistics.buffer.n == 12  # the saved statistics have no buffer


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"filtered": np.array([True, True, False])}, "found 2 of 3"),
        ({"mean": np.zeros(2), "m2": np.zeros(2)}, "of shape (3,), found (2,)"),
        ({"n": np.array(-1)}, "integer n >= 0"),
    ],
    ids=["other-values", "other-shape", "negative-count"],
)
def test_set_state_rejects_statistics_that_do_not_fit(changes, message):
    policy = build_policy()
    policy.preprocess(np.float32([[1, 2, 3], [3, 4, 5]]), update=True)
    state = policy.filter.get_state()

    with pytest.raises(SavedPolicyError) as caught:
        policy.filter.set_state({**state, **changes})

    assert message in str(caught.value)
    assert policy.filter.statistics.running_stats.n == 2  # as before


@pytest.mark.parametrize(
    ("name", "message"), [("filtered", "expected 3 of 3"), ("mean", "incomplete")]
)
def test_set_state_rejects_incomplete_statistics(name, message):
    policy = build_policy()
    state = policy.filter.get_state()
    del state[name]

    with pytest.raises(SavedPolicyError, match=message):
        policy.filter.set_state(state)


def test_set_state_replaces_the_statistics():
    policy = build_policy()
    policy.preprocess(np.float32([[9, 9, 9]]), update=True)
    other = build_policy()
    other.preprocess(np.float32([[1, 2, 3], [3, 4, 5]]), update=True)

    policy.filter.set_state(other.filter.get_state())

    assert policy.filter.statistics.running_stats.n == 2
    assert policy.filter.statistics.buffer.n == 0
    obs = np.float32([[1, 2, 3]])
    np.testing.assert_array_equal(policy.preprocess(obs), other.preprocess(obs))


# --- lookups --------------------------------------------------------------------------------------


def test_policy_with_no_filter_has_an_empty_slot():
    policy = rlcatalog.build(THREE_NUMBERS, TWO_ACTIONS, {"observation_filter": "NoFilter"})

    assert policy.filter is None


def test_package_declares_no_filter_named_no_filter():
    # The kernel reads this name by itself, so that such a filter would never be looked up.
    assert [spec.name for spec in declarations.rlcatalog_filters()] == ["MeanStdFilter"]


@pytest.fixture
def explanation():
    config = {"observation_filter": "MeanStdFilter", "fcnet_hiddens": [8]}
    return default_catalog().explain(THREE_NUMBERS, TWO_ACTIONS, config).as_dict()


def test_explanation_names_filter_and_package(explanation):
    assert explanation["filter"]["chosen"] == "MeanStdFilter"
    assert explanation["filter"]["distribution"] == "rlcatalog-filters"


def test_explanation_names_the_config_keys_of_the_filter(explanation):
    assert set(explanation["filter"]["config_keys"]) == {
        "filter_include",
        "filter_exclude",
        "filter_clip",
        "observation_filter",
        "action_mask_key",
    }


def test_explanation_contains_the_shape_after_the_filter(explanation):
    assert {"stage": "filter: MeanStdFilter", "shape": [3]} in explanation["shapes"]


# --- training -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained():
    """PPO after two iterations on CartPole with a filter, and the result of the last one."""
    config = {
        "num_envs": 4,
        "rollout_length": 64,
        "minibatch_size": 128,
        "num_epochs": 2,
        "seed": 0,
        "observation_filter": "MeanStdFilter",
    }
    algo = PPO(env="CartPole-v1", config=config)
    try:
        algo.train()
        yield algo, algo.train()
    finally:
        algo.stop()


def test_ppo_trains_with_the_filter(trained):
    _, result = trained

    learner = result["info"]["learner"]
    assert np.isfinite(learner["policy_loss"])
    assert np.isfinite(learner["vf_loss"])
    assert np.isfinite(learner["entropy"])


def test_ppo_updates_the_filter_once_with_each_observation(trained):
    algo, _ = trained

    # Four environments, two rollouts of 64 steps, and the first observations.
    assert algo.policy.filter.get_state()["n"] == 4 * (2 * 64 + 1)


def test_evaluate_does_not_update_the_filter(trained):
    algo, _ = trained
    state_before = algo.policy.filter.get_state()

    algo.evaluate(episodes=2, seed=1)

    for name, array in algo.policy.filter.get_state().items():
        np.testing.assert_array_equal(array, state_before[name])


def test_policy_of_a_checkpoint_has_the_same_outputs(trained, tmp_path):
    algo, _ = trained

    algo.save(tmp_path)

    first_obs, _ = gym.make("CartPole-v1").reset(seed=2)
    assert_same_outputs(rlcatalog.load(tmp_path), algo.policy, first_obs[None])
