"""Filters inside policies: when they learn, what they save, and in training."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog import default_catalog
from rlcatalog.errors import SavedPolicyError
from rlcatalog_filters import EncodedMeanStdFilter, plugin as declarations
from rlcatalog_ppo import PPO

BOX = spaces.Box(-100, 100, (3,))
TREE = spaces.Dict({"action_mask": spaces.MultiBinary(2), "gear": spaces.Discrete(3), "speed": BOX})
FILTERED = {"observation_filter": "MeanStdFilter", "fcnet_hiddens": [8]}
FRAMEWORKS = ["torch", "tf"]


def build(space=BOX, framework="torch", **options):
    return rlcatalog.build(space, spaces.Discrete(2), {**FILTERED, **options}, framework)


def batch(space, size=12, seed=0):
    space.seed(seed)
    samples = [space.sample() for _ in range(size)]
    if isinstance(space, spaces.Dict):
        columns = {key: np.stack([x[key] for x in samples]) for key in space.spaces}
        if "action_mask" in columns:
            columns["action_mask"][:] = 1  # everything is allowed
        return columns
    return np.stack(samples)


def outputs(policy, obs):
    step = policy.act(obs, explore=False)
    return step.dist_inputs, step.value


@pytest.fixture(scope="module", params=FRAMEWORKS)
def policy(request):
    """A policy that has learned from one batch; tests leave its statistics as they are."""
    made = build(TREE, request.param)
    made.preprocess(batch(TREE), update=True)
    return made


def test_the_models_space_is_the_filtered_one(policy):
    assert isinstance(policy.filter, EncodedMeanStdFilter)
    assert policy.model.obs_space is policy.encoded_space
    assert [leaf.path for leaf in policy.filter.leaves] == ["obs['speed']"]
    encoded = policy.preprocess(batch(TREE))
    assert all(policy.encoded_space.contains(row) for row in encoded)
    assert np.abs(encoded[:, -3:].mean(0)).max() < 1e-5
    np.testing.assert_allclose(encoded[:, -3:].std(0, ddof=1), 1, rtol=1e-5)


def test_acting_applies_the_filter_and_never_learns(policy):
    """RLlib's inference helpers skip it: their models see numbers they were not trained on."""
    obs, before = batch(TREE, seed=1), policy.filter.get_state()
    acted = outputs(policy, obs)
    stored = policy.act_encoded(policy.preprocess(obs), mask=policy.action_mask(obs), explore=False)
    policy.stepper(12).step(obs)
    for name, array in policy.filter.get_state().items():
        np.testing.assert_array_equal(array, before[name])
    np.testing.assert_allclose(acted[0], stored.dist_inputs, rtol=1e-6)
    np.testing.assert_allclose(acted[1], stored.value, rtol=1e-6)
    speed = batch(TREE)["speed"].astype(np.float64)
    expected = policy.preprocessor.transform_batch(policy.encoder.seen(obs))
    expected[:, -3:] = (obs["speed"] - speed.mean(0)) / (speed.std(0, ddof=1) + 1e-6)
    by_hand = policy.act_encoded(expected, mask=policy.action_mask(obs), explore=False)
    np.testing.assert_allclose(by_hand.dist_inputs, acted[0], rtol=1e-4, atol=1e-6)


def test_a_saved_policy_gives_the_same_outputs(policy, tmp_path):
    policy.save(tmp_path)
    loaded = rlcatalog.load(tmp_path)
    for name, array in policy.filter.get_state().items():
        np.testing.assert_array_equal(loaded.filter.get_state()[name], array)
    obs = batch(TREE, seed=2)
    for found, expected in zip(outputs(loaded, obs), outputs(policy, obs), strict=True):
        np.testing.assert_array_equal(found, expected)
    loaded.preprocess(obs, update=True)
    assert loaded.filter.statistics.running_stats.n == 24
    assert loaded.filter.statistics.buffer.n == 12


def test_statistics_change_only_with_update():
    policy, obs = build(), batch(BOX)
    for _ in range(2):
        policy.preprocess(obs)
        policy.preprocess(obs, update=False)
    assert policy.filter.statistics.running_stats.n == 0
    policy.preprocess(obs, update=True)
    policy.preprocess(list(obs[:5]), update=True)
    stat, stream = (
        policy.filter.statistics.running_stats,
        np.concatenate([obs, obs[:5]]).astype(np.float64),
    )
    assert stat.n == 17
    np.testing.assert_allclose(stat.mean, stream.mean(0), rtol=1e-12)
    np.testing.assert_allclose(stat.std, stream.std(0, ddof=1), rtol=1e-12)


def test_the_environments_observations_are_left_alone():
    policy, obs = build(), batch(BOX)
    before = obs.copy()
    policy.act(obs)
    policy.preprocess(obs, update=True)
    np.testing.assert_array_equal(obs, before)


def test_no_filter_is_an_empty_slot():
    """The kernel reads the name itself; a component of that name would never be asked."""
    assert (
        rlcatalog.build(BOX, spaces.Discrete(2), {"observation_filter": "NoFilter"}).filter is None
    )
    assert [spec.name for spec in declarations.rlcatalog_filters()] == ["MeanStdFilter"]


def test_the_explanation_names_filter_and_keys():
    found = default_catalog().explain(BOX, spaces.Discrete(2), FILTERED).as_dict()
    assert (found["filter"]["chosen"], found["filter"]["distribution"]) == (
        "MeanStdFilter",
        "rlcatalog-filters",
    )
    keys = {
        "filter_include",
        "filter_exclude",
        "filter_clip",
        "observation_filter",
        "action_mask_key",
    }
    assert set(found["filter"]["config_keys"]) == keys
    assert {"stage": "filter: MeanStdFilter", "shape": [3]} in found["shapes"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"filtered": None}, "are for different values of the observation: expected 3 of 3"),
        ({"filtered": np.array([True, True, False])}, "found 2 of 3"),
        ({"mean": None}, "incomplete"),
        (
            {"mean": np.zeros(2), "m2": np.zeros(2)},
            r"expected filter statistics of shape \(3,\), found \(2,\)",
        ),
        ({"n": np.array(-1)}, "integer n >= 0"),
    ],
)
def test_statistics_of_another_observation_are_refused(damage, message):
    policy = build()
    policy.preprocess(batch(BOX), update=True)
    state = {
        name: array
        for name, array in {**policy.filter.get_state(), **damage}.items()
        if array is not None
    }
    with pytest.raises(SavedPolicyError, match=message):
        policy.filter.set_state(state)
    assert policy.filter.statistics.running_stats.n == 12


def test_restoring_replaces_what_was_learned():
    policy, other = build(), build()
    policy.preprocess(batch(BOX), update=True)
    other.preprocess(batch(BOX, seed=3)[:5], update=True)
    policy.filter.set_state(other.filter.get_state())
    stats = policy.filter.statistics
    assert (stats.running_stats.n, stats.buffer.n) == (5, 0)
    np.testing.assert_array_equal(policy.preprocess(batch(BOX)), other.preprocess(batch(BOX)))


# --- training -------------------------------------------------------------------------------------


def test_ppo_trains_with_the_filter_and_evaluation_leaves_it_unchanged(tmp_path):
    config = {
        "num_envs": 4,
        "rollout_length": 64,
        "minibatch_size": 128,
        "num_epochs": 2,
        "seed": 0,
    }
    algo = PPO(env="CartPole-v1", config={**config, "observation_filter": "MeanStdFilter"})
    try:
        for _ in range(2):
            result = algo.train()
        learned = result["info"]["learner"]
        assert np.isfinite([learned[name] for name in ("policy_loss", "vf_loss", "entropy")]).all()
        before = algo.policy.filter.get_state()
        # Every observation once, the first ones included.
        assert int(before["n"]) == 4 * (2 * 64 + 1)
        algo.evaluate(episodes=2, seed=1)
        for name, array in algo.policy.filter.get_state().items():
            np.testing.assert_array_equal(array, before[name])
        algo.save(tmp_path)
        obs = gym.make("CartPole-v1").reset(seed=2)[0][None]
        for found, expected in zip(
            outputs(rlcatalog.load(tmp_path), obs), outputs(algo.policy, obs), strict=True
        ):
            np.testing.assert_array_equal(found, expected)
    finally:
        algo.stop()


def test_camera_is_left_to_the_net_and_speed_is_filtered():
    space = spaces.Dict(
        camera=spaces.Box(0, 255, (12, 10, 3), np.uint8),
        speed=spaces.Box(-np.inf, np.inf, (2,), np.float32),
    )
    config = {"observation_filter": "MeanStdFilter", "conv_flatten": True}
    policy = rlcatalog.build(space, spaces.Discrete(2), config)
    dark = {"camera": np.zeros((8, 12, 10, 3), np.uint8), "speed": np.ones((8, 2), np.float32)}
    policy.preprocess(dark, update=True)

    bright = {**dark, "camera": np.full((8, 12, 10, 3), 200, np.uint8)}
    encoded = policy.preprocess(bright)

    np.testing.assert_array_equal(encoded[:, :360], 200)  # the camera, which the net divides by 255
    np.testing.assert_array_equal(encoded[:, 360:], 0)  # the mean of the speed
    assert policy.explain().as_dict()["filtered"] == ["obs['speed']"]
