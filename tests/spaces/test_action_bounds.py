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

OBS = Box(-1, 1, (3,), np.float32)
SMALL = {"fcnet_hiddens": [4]}
THERMOSTAT = Box(15, 30, (1,), np.float32)
CASES = tomllib.loads(Path(__file__).with_name("action_bounds.toml").read_text())["case"]

each_case = pytest.mark.parametrize(
    "case",
    CASES,
    ids=lambda case: f"[{case['low']:g}, {case['high']:g}] {case['action_bounds']}",
)


def build_policy(action_space, framework="torch", **config):
    """Build a small policy, and return it with the texts of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ActionRangeWarning)
        policy = rlcatalog.build(OBS, action_space, {**SMALL, **config}, framework)
    return policy, [str(warning.message) for warning in caught]


def make_codec(action_space, bounds="affine", raw_kind="values"):
    return action_codec(SpaceInfo.read(action_space, "action"), bounds, {"action": raw_kind})


# --- what raw actions become ----------------------------------------------------------------------


@each_case
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_raw_actions_become_those_of_the_table(case, dtype):
    space = Box(case["low"], case["high"], (1,), dtype)
    codec = make_codec(space, case["action_bounds"])
    raw = np.array([[-1], [0], [1], [3]], np.float32)
    adapted = codec.adapt(raw)
    np.testing.assert_allclose(adapted[:, 0], np.array(case["actions"], dtype), rtol=1e-7)
    assert adapted.dtype == dtype
    assert all(space.contains(action) for action in adapted)


@each_case
def test_raw_action_of_an_action_becomes_it_again(case):
    space = Box(case["low"], case["high"], (1,), np.float32)
    codec = make_codec(space, case["action_bounds"])
    actions = np.array(case["actions"], np.float32)[:, None]
    np.testing.assert_array_equal(codec.adapt(codec.invert(actions)), actions)


def test_affine_is_the_default_in_both_frameworks():
    for framework in ("torch", "tf"):
        policy, warned = build_policy(THERMOSTAT, framework)
        assert policy.config["action_bounds"] == "affine"
        # The mean of a policy without training is close to 0, so its action is close to 22.5.
        step = policy.act(np.zeros((1, 3), np.float32), explore=False)
        np.testing.assert_allclose(step.action, 22.5 + 7.5 * step.raw_action, rtol=1e-6)
        assert not warned


def test_values_of_a_box_are_mapped_by_their_own_bounds():
    low = np.array([15, -np.inf, 0, -2e6, 7], np.float32)
    high = np.array([30, np.inf, np.inf, 2e6, 7], np.float32)
    codec = make_codec(Box(low, high, dtype=np.float32))
    raw = np.array([[0.5, 0.5, -0.5, 0.5, 0.5]], np.float32)
    # 22.5 + 0.5 * 7.5, as drawn, clipped to 0, as drawn, the only value
    np.testing.assert_array_equal(codec.adapt(raw), [[26.25, 0.5, 0, 0.5, 7]])


def test_box_from_minus_one_to_one_keeps_raw_actions():
    raw = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)
    codec = make_codec(Box(-1, 1, (2,), np.float32))
    np.testing.assert_array_equal(codec.adapt(raw), raw)
    assert codec.invert(raw).dtype == np.float32


def test_bounded_distributions_are_not_scaled_again():
    actions = np.array([[15.0], [20.0], [30.0]], np.float32)
    codec = make_codec(THERMOSTAT, raw_kind="bounded")
    np.testing.assert_array_equal(codec.adapt(actions), actions)


def test_integer_boxes_are_counted_with_any_rule():
    for rule in ("clip", "affine", "affine_all"):
        codec = make_codec(Box(15, 30, (1,), np.int64), rule)
        np.testing.assert_array_equal(codec.adapt(np.array([[0], [15]])), [[15], [30]])


@pytest.mark.parametrize(
    "head", [{}, {"use_autoregressive": True}], ids=["plain", "autoregressive"]
)
def test_parts_of_an_action_are_scaled(head):
    space = Dict(heat=THERMOSTAT, mode=Tuple([Discrete(2), Box(0, 1, (1,), np.float32)]))
    policy, warned = build_policy(space, **head)
    action = policy.action_codec.adapt(np.array([[-1, 1, 0]], np.float32))
    assert action["heat"] == 15
    assert action["mode"][1] == 0.5
    assert not warned
    _, warned = build_policy(space, **head, action_bounds="clip")
    assert [text.partition(":")[0] for text in warned] == ["action['heat'] in [15, 30]"]


# --- which actions a new policy reaches -----------------------------------------------------------


def test_shares_are_those_of_many_draws():
    low, high = np.array([-20, 0.5, -1, 3]), np.array([20, 2, 1, np.inf])
    codec = make_codec(Box(low, high, dtype=np.float64), "clip")
    draws = np.random.default_rng(0).normal(0, 2, (400_000, 1))
    inside = ((draws >= low) & (draws <= high)).mean(axis=0)
    np.testing.assert_allclose(inside_shares(codec, 2.0), inside, atol=3e-3)
    # Within ±6: 12 of 40, all, all; a range without an end is not covered in part.
    np.testing.assert_allclose(covered_shares(codec, 2.0), [0.3, 1, 1, 1])


@each_case
def test_warning_is_that_of_the_table(case):
    space = Box(case["low"], case["high"], (1,), np.float32)
    config = {"action_bounds": case["action_bounds"]}
    _, warned = build_policy(space, **config)
    assert len(warned) == bool(case["warning"])
    assert all(case["warning"] in text for text in warned)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explanation = rlcatalog.explain(OBS, space, {**SMALL, **config})
    (box,) = explanation.as_dict()["action_ranges"]
    assert box["problems"] == warned
    assert all(f"hard to reach: {text}" in explanation.text() for text in warned)


def test_warning_names_the_first_value_and_the_way_out():
    low, high = np.full((2, 2), -1, np.float32), np.ones((2, 2), np.float32)
    high[0, 1] = high[1, 0] = 500
    _, (text,) = build_policy(Box(low, high), action_bounds="clip")
    assert text.startswith("action[0, 1] in [-1, 500] and 1 more: diag_gaussian begins with mean 0")
    assert "Set action_bounds='affine' in the model config" in text


def test_explanation_says_what_becomes_of_each_box():
    space = Dict(
        heat=THERMOSTAT,
        force=Box(-np.inf, np.inf, (1,), np.float32),
        level=Box(0, np.inf, (1,), np.float32),
        both=Box(np.array([0, 0], np.float32), np.array([2, np.inf], np.float32)),
        choice=Discrete(3),
    )
    ranges = rlcatalog.explain(OBS, space, SMALL).as_dict()["action_ranges"]
    assert {box["path"]: box["mapping"] for box in ranges} == {
        "action['heat']": "scaled from [-1, 1] to the bounds",
        "action['force']": "as drawn, because there are no bounds",
        "action['level']": "clipped to the bounds",
        "action['both']": "1 of 2 values scaled from [-1, 1], others clipped",
    }


@pytest.mark.parametrize(
    ("space", "dist"),
    [(THERMOSTAT, "beta"), (THERMOSTAT, "squashed_gaussian"), (Simplex((3,)), None)],
)
def test_distributions_within_the_bounds_never_warn(space, dist):
    _, warned = build_policy(space, custom_action_dist=dist, action_bounds="clip")
    assert not warned


def test_limits_of_deviations_count():
    # exp(-3) = 0.05: three of them to each side are 15 % of [-1, 1]. exp(-4) = 0.018: 5.5 %.
    _, warned = build_policy(THERMOSTAT, gaussian_log_std_max=-3.0)
    assert not warned
    _, warned = build_policy(THERMOSTAT, gaussian_log_std_max=-4.0)
    assert ["covers 5.5 % of it" in text for text in warned] == [True]


def test_loaded_policy_does_not_warn_again(tmp_path):
    policy, warned = build_policy(THERMOSTAT, action_bounds="clip")
    assert warned
    policy.save(tmp_path)
    loaded = rlcatalog.load(tmp_path)  # a warning would be an error
    assert loaded.config["action_bounds"] == "clip"


def test_plugin_declares_how_wide_it_begins():
    def make_catalog(std):
        spec = ActionDistSpec(
            "acme_wide",
            {"torch": "rlcatalog_gaussian.torch:DiagGaussian"},
            "wide",
            size=lambda action, config: 2,
            reads=("action_bounds",),
            initial_std=lambda action, config: std,
        )
        plugin = plugin_of(rlcatalog_action_dists=[spec])
        return isolated_catalog(
            "rlcatalog-preprocessors", "rlcatalog-fcnet", PluginEntryPoint(plugin, "acme-wide")
        )

    config = {**SMALL, "custom_action_dist": "acme_wide", "action_bounds": "clip"}
    make_catalog(20.0).resolve(OBS, THERMOSTAT, config)  # 16 % of its draws lie in [15, 30]
    with pytest.warns(ActionRangeWarning, match="acme_wide begins .* deviation 3, so nearly all"):
        make_catalog(3.0).resolve(OBS, THERMOSTAT, config)
    with pytest.raises(PartError, match=r"its initial_std function returned -1\.0"):
        make_catalog(-1.0).resolve(OBS, THERMOSTAT, config)
