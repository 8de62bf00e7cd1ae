"""What raw actions become between the bounds of a Box, and the warning about actions that a new
policy hardly reaches.

Crosses: policy, gaussian, bounded.
"""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

import rlcatalog
from rlcatalog import ActionDistSpec, SpaceInfo
from rlcatalog.actions import action_codec
from rlcatalog.actions.reach import covered_shares, inside_shares
from rlcatalog.errors import ActionRangeWarning, PartError
from rlcatalog.spaces import Simplex
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
SMALL = {"fcnet_hiddens": [4]}
TABLE = tomllib.loads(Path(__file__).with_name("action_bounds.toml").read_text())["case"]


def over_the_table(*columns):
    """Run a test for each row of the table in `action_bounds.toml`, with the values of columns."""
    labels = [f"[{row['low']:g}, {row['high']:g}] {row['action_bounds']}" for row in TABLE]
    values = [[row[column] for column in columns] for row in TABLE]
    return pytest.mark.parametrize(columns, values, ids=labels)


def build_policy(action_space, framework="torch", **config):
    """Build a small policy, and return it with the texts of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ActionRangeWarning)
        policy = rlcatalog.build(THREE_FEATURES, action_space, {**SMALL, **config}, framework)
    return policy, [str(warning.message) for warning in caught]


def make_codec(action_space, bounds="affine", raw_kind="values"):
    return action_codec(SpaceInfo.read(action_space, "action"), bounds, {"action": raw_kind})


# --- what raw actions become ----------------------------------------------------------------------


@over_the_table("low", "high", "action_bounds", "actions")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_raw_actions_become_those_of_the_table(low, high, action_bounds, actions, dtype):
    space = Box(low, high, (1,), dtype)
    raw_actions = np.array([[-1], [0], [1], [3]], np.float32)  # those of the table

    adapted = make_codec(space, action_bounds).adapt(raw_actions)

    np.testing.assert_allclose(adapted[:, 0], np.array(actions, dtype), rtol=1e-7)
    assert adapted.dtype == dtype
    assert all(space.contains(action) for action in adapted)


@over_the_table("low", "high", "action_bounds", "actions")
def test_inverted_action_is_adapted_to_the_same_action(low, high, action_bounds, actions):
    codec = make_codec(Box(low, high, (1,), np.float32), action_bounds)
    column = np.array(actions, np.float32)[:, None]

    np.testing.assert_array_equal(codec.adapt(codec.invert(column)), column)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_affine_is_the_default(framework):
    policy, messages = build_policy(Box(15, 30, (1,), np.float32), framework)

    step = policy.act(np.zeros((1, 3), np.float32), explore=False)

    assert policy.config["action_bounds"] == "affine"
    # [-1, 1] is scaled to [15, 30].
    np.testing.assert_allclose(step.action, 22.5 + 7.5 * step.raw_action, rtol=1e-6)
    assert messages == []


def test_values_of_a_box_are_mapped_by_their_own_bounds():
    low = np.array([15, -np.inf, 0, -2e6, 7], np.float32)
    high = np.array([30, np.inf, np.inf, 2e6, 7], np.float32)
    codec = make_codec(Box(low, high, dtype=np.float32))

    action = codec.adapt(np.array([[0.5, 0.5, -0.5, 0.5, 0.5]], np.float32))

    # 22.5 + 0.5 * 7.5, as drawn, clipped to 0, as drawn, the only value
    np.testing.assert_array_equal(action, [[26.25, 0.5, 0, 0.5, 7]])


def test_box_from_minus_one_to_one_keeps_raw_actions():
    codec = make_codec(Box(-1, 1, (2,), np.float32))
    raw = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)

    np.testing.assert_array_equal(codec.adapt(raw), raw)
    assert codec.invert(raw).dtype == np.float32


def test_bounded_distributions_are_not_scaled_again():
    # Such a distribution draws actions within the bounds already.
    codec = make_codec(Box(15, 30, (1,), np.float32), raw_kind="bounded")
    actions = np.array([[15.0], [20.0], [30.0]], np.float32)

    np.testing.assert_array_equal(codec.adapt(actions), actions)


@pytest.mark.parametrize("action_bounds", ["clip", "affine", "affine_all"])
def test_integer_boxes_count_from_the_lower_bound(action_bounds):
    codec = make_codec(Box(15, 30, (1,), np.int64), action_bounds)
    np.testing.assert_array_equal(codec.adapt(np.array([[0], [15]])), [[15], [30]])


heads = pytest.mark.parametrize(
    "head", [{}, {"use_autoregressive": True}], ids=["plain", "autoregressive"]
)
HEAT_AND_LEVEL = Dict(
    heat=Box(15, 30, (1,), np.float32),
    mode=Tuple([Discrete(2), Box(0, 1, (1,), np.float32)]),
)


@heads
def test_parts_of_an_action_are_scaled_to_their_bounds(head):
    policy, messages = build_policy(HEAT_AND_LEVEL, **head)

    # The raw action is that of heat, the choice, and that of the level.
    action = policy.action_codec.adapt(np.array([[-1, 1, 0]], np.float32))

    assert action["heat"] == 15  # -1 is the lower bound
    assert action["mode"][1] == 0.5  # 0 is the middle of [0, 1]
    assert messages == []


@heads
def test_warning_names_the_part_of_an_action(head):
    _, messages = build_policy(HEAT_AND_LEVEL, **head, action_bounds="clip")
    # [0, 1] is reached: draws have mean 0 and deviation 1.
    assert [text.partition(":")[0] for text in messages] == ["action['heat'] in [15, 30]"]


# --- which actions a new policy reaches -----------------------------------------------------------


LOW = np.array([-20, 0.5, -1, 3])
HIGH = np.array([20, 2, 1, np.inf])


def test_inside_shares_are_those_of_many_draws():
    codec = make_codec(Box(LOW, HIGH, dtype=np.float64), "clip")
    draws = np.random.default_rng(0).normal(0, 2, (400_000, 1))

    shares = inside_shares(codec, std=2.0)

    expected = ((draws >= LOW) & (draws <= HIGH)).mean(axis=0)
    np.testing.assert_allclose(shares, expected, atol=3e-3)


def test_covered_shares_count_three_deviations():
    codec = make_codec(Box(LOW, HIGH, dtype=np.float64), "clip")
    # Within ±6: 12 of 40, all, all; a range without an end is not covered in part.
    np.testing.assert_allclose(covered_shares(codec, std=2.0), [0.3, 1, 1, 1])


@over_the_table("low", "high", "action_bounds", "warning")
def test_warning_is_that_of_the_table(low, high, action_bounds, warning):
    space = Box(low, high, (1,), np.float32)

    _, messages = build_policy(space, action_bounds=action_bounds)

    if warning:
        assert len(messages) == 1
        assert warning in messages[0]
    else:
        assert messages == []


def test_explanation_has_the_text_of_the_warning():
    heat = Box(15, 30, (1,), np.float32)
    _, (message,) = build_policy(heat, action_bounds="clip")

    explanation = rlcatalog.explain(THREE_FEATURES, heat, {"action_bounds": "clip"})

    (action_range,) = explanation.as_dict()["action_ranges"]
    assert action_range["problems"] == [message]
    assert f"hard to reach: {message}" in explanation.text()


def test_warning_names_the_first_value_and_the_remedy():
    low = np.array([[-1, -1], [-1, -1]], np.float32)
    high = np.array([[1, 500], [500, 1]], np.float32)

    _, (text,) = build_policy(Box(low, high), action_bounds="clip")

    assert text.startswith("action[0, 1] in [-1, 500] and 1 more: diag_gaussian begins with mean 0")
    assert "Set action_bounds='affine' in the model config" in text


def test_explanation_names_the_mapping_of_each_box():
    space = Dict(
        heat=Box(15, 30, (1,), np.float32),
        force=Box(-np.inf, np.inf, (1,), np.float32),
        level=Box(0, np.inf, (1,), np.float32),
        both=Box(np.array([0, 0], np.float32), np.array([2, np.inf], np.float32)),
        choice=Discrete(3),
    )

    explanation = rlcatalog.explain(THREE_FEATURES, space).as_dict()

    mapping_of_path = {box["path"]: box["mapping"] for box in explanation["action_ranges"]}
    assert mapping_of_path == {
        "action['heat']": "scaled from [-1, 1] to the bounds",
        "action['force']": "as drawn, because there are no bounds",
        "action['level']": "clipped to the bounds",
        "action['both']": "1 of 2 values scaled from [-1, 1], others clipped",
    }


@pytest.mark.parametrize(
    ("space", "dist"),
    [
        (Box(15, 30, (1,), np.float32), "beta"),
        (Box(15, 30, (1,), np.float32), "squashed_gaussian"),
        (Simplex((3,)), None),  # the default is a Dirichlet
    ],
    ids=["beta", "squashed_gaussian", "simplex"],
)
def test_bounded_distributions_never_warn(space, dist):
    _, messages = build_policy(space, custom_action_dist=dist, action_bounds="clip")
    assert messages == []


def test_range_that_deviations_cover_in_part_does_not_warn():
    # exp(-3) = 0.05: three of them to each side are 15 % of [-1, 1].
    _, messages = build_policy(Box(15, 30, (1,), np.float32), gaussian_log_std_max=-3.0)
    assert messages == []


def test_range_that_deviations_hardly_cover_warns():
    # exp(-4) = 0.018: three of them to each side are 5.5 % of [-1, 1].
    _, messages = build_policy(Box(15, 30, (1,), np.float32), gaussian_log_std_max=-4.0)
    assert len(messages) == 1
    assert "covers 5.5 % of it" in messages[0]


def test_loaded_policy_does_not_warn_again(tmp_path):
    policy, messages = build_policy(Box(15, 30, (1,), np.float32), action_bounds="clip")
    assert len(messages) == 1
    policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path)  # the suite turns warnings into errors

    assert loaded.config["action_bounds"] == "clip"


def resolve_wide_gaussian(std):
    """Resolve a thermostat's actions with a plugin's Gaussian that begins with a deviation."""
    spec = ActionDistSpec(
        "acme_wide",
        {"torch": "rlcatalog_gaussian.torch:DiagGaussian"},
        "wide",
        size=lambda action, config: 2,  # a mean and a deviation
        reads=("action_bounds",),
        initial_std=lambda action, config: std,
    )
    plugin = PluginEntryPoint(plugin_of(rlcatalog_action_dists=[spec]), "acme-wide")
    catalog = isolated_catalog("rlcatalog-preprocessors", "rlcatalog-fcnet", plugin)
    config = {**SMALL, "custom_action_dist": "acme_wide", "action_bounds": "clip"}
    return catalog.resolve(THREE_FEATURES, Box(15, 30, (1,), np.float32), config)


def test_wide_distribution_of_a_plugin_does_not_warn():
    resolve_wide_gaussian(std=20.0)  # 16 % of its draws lie in [15, 30]


def test_narrow_distribution_of_a_plugin_warns():
    with pytest.warns(ActionRangeWarning, match="begins .* deviation 3, so nearly all"):
        resolve_wide_gaussian(std=3.0)


def test_negative_initial_std_is_an_error():
    with pytest.raises(PartError, match=r"its initial_std function returned -1\.0"):
        resolve_wide_gaussian(std=-1.0)
