"""Checks of what models and distributions return: which shapes and actions are sound, and who is
named otherwise.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog import ActionDistSpec, Match, Preprocessor, Rank
from rlcatalog.errors import ActionMaskError, ModelContractError
from rlcatalog_policy.contract_checker import fits, shape_of
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of
from rlcatalog_torch import Categorical, DiagGaussian

OBS, THREE = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)
MASKED = spaces.Dict(action_mask=spaces.MultiBinary(3), x=OBS)
SMALL = {"fcnet_hiddens": [2]}
INSTALLED = [
    f"rlcatalog-{name}"
    for name in ("preprocessors", "fcnet", "categorical", "gaussian", "multi-action")
]


@pytest.fixture(scope="module")
def policy():
    return rlcatalog.build(OBS, THREE, SMALL, "torch")


@pytest.fixture(scope="module")
def wide():
    return rlcatalog.build(OBS, spaces.Box(-1, 1, (2,)), SMALL, "torch")


# --- shapes ---------------------------------------------------------------------------------------


def traced(*lengths):
    """Return what shape_of and fits say of a tensor of these lengths inside a trace."""
    seen = []

    @tf.function(input_signature=[tf.TensorSpec(None if lengths == (...,) else lengths)])
    def function(x):
        seen.append((shape_of(x), fits(x, (None, 3)), fits(x, (4, 3))))
        return x

    function.get_concrete_function()
    return seen[0]


def test_shapes_are_read_as_far_as_they_are_known():
    assert (
        shape_of(np.zeros((2, 0)))
        == shape_of(torch.zeros(2, 0))
        == shape_of(tf.zeros((2, 0)))
        == (2, 0)
    )
    assert all(type(n) is int for n in shape_of(torch.zeros(2, 3)))
    assert shape_of(np.float32(1)) == ()
    for other in ([1, 2], None, "text", SimpleNamespace(shape=3), SimpleNamespace(shape=("a",))):
        assert shape_of(other) is None
    assert traced(None, 3) == ((None, 3), True, True)
    assert traced(4, None) == ((4, None), True, True)
    assert traced(1, 3) == ((1, 3), False, False)
    assert traced(5, 3) == ((5, 3), True, False)
    assert traced(None) == ((None,), False, False)
    assert traced(...) == (None, True, True)


@pytest.mark.parametrize(
    ("shape", "expected", "right"),
    [
        ((4, 3), (4, 3), True),
        ((4, 2), (4, 3), False),
        ((5, 3), (4, 3), False),
        ((4, 3, 1), (4, 3), False),
        ((4,), (4, 3), False),
        ((), (), True),
        ((4, 3), (None, 3), True),
        ((0, 3), (None, 3), True),
        ((1, 3), (None, 3), False),
        ((1, 3), (1, 3), True),
        ((2, 3), (None, 1), False),
        ((1,), (None,), False),
        ((3, 4), (4, 3), False),
    ],
)
def test_array_fits_by_its_number_of_axes_and_their_lengths(shape, expected, right):
    for array in (np.zeros(shape), torch.zeros(shape)):
        assert fits(array, expected) is right


def test_what_has_no_shape_fits_nothing():
    for other in ([1.0], None, "text"):
        assert not fits(other, (1,))
        assert not fits(other, ())


# --- return values --------------------------------------------------------------------------------


def refused(match, call, *arguments):
    with pytest.raises(ModelContractError, match=match) as caught:
        call(*arguments)
    return str(caught.value)


def test_outputs_have_a_row_for_each_observation(policy):
    check = policy.contract.check_outputs
    check(torch.zeros(4, 3), 4)
    check(torch.zeros(4, 3), None)
    for outputs, rows, expected, shape in (
        (torch.zeros(4, 2), 4, r"\[4, 3\]", r"shape \[4, 2\]"),
        (torch.zeros(1, 3), None, r"\[B, 3\]", r"shape \[1, 3\]"),
        (None, 4, r"\[4, 3\]", "None"),
        ("x" * 100, 4, r"\[4, 3\]", "'x+"),
    ):
        message = refused(rf"outputs of shape {expected}: .*; found {shape}", check, outputs, rows)
        assert message.startswith(
            "FullyConnectedNetwork.forward() (model 'fcnet' of rlcatalog-fcnet"
        )
        assert (
            "each of the 3 inputs that Categorical (action_dist 'categorical' of"
            " rlcatalog-categorical" in message
        )
    assert len(message.partition("found ")[2]) == 81  # a long value is cut


def test_samples_have_a_row_and_their_width(policy, wide):
    policy.contract.check_sample(torch.zeros(4, 1), 4)
    wide.contract.check_sample(torch.zeros(4, 2), 4)
    wide.contract.check_sample(torch.zeros(4, 2), None)
    for shape, rows in (((4, 3), 4), ((4, 1), None), ((4, 0), 4)):
        message = refused(
            f"returned {shape[1]} values per action; .* needs 2",
            wide.contract.check_sample,
            torch.zeros(shape),
            rows,
        )
        assert message.startswith("DiagGaussian.sample() (action_dist")
    for shape, rows in (((4,), 4), ((3, 1), 4), ((4, 2, 1), 4), ((4, 2, 1), None), ((2,), None)):
        message = refused(
            r"must return one action for each row, \[[4B], 2\]",
            wide.contract.check_sample,
            torch.zeros(shape),
            rows,
            "rsample",
        )
        assert message.startswith("DiagGaussian.rsample() (action_dist")
        assert message.endswith(f"found shape {list(shape)}.")
    refused("or .4. for a single Discrete; found None", policy.contract.check_sample, None, 4)


def test_values_are_the_frameworks_tensors(policy):
    check = policy.contract.check_tensors
    check(torch.zeros(2), "sample")
    check((torch.zeros(2), {"a": torch.zeros(1)}), "sample")
    for value in (
        tf.zeros(2),
        (torch.zeros(2), tf.zeros(1)),
        {"a": torch.zeros(2), "b": tf.zeros(1)},
    ):
        message = refused(
            "must return tensors of the policy's framework, 'torch'; found EagerTensor",
            check,
            value,
            "kl",
        )
        assert message.startswith("Categorical.kl() (")
        assert message.endswith("name the framework that the class is written for: framework='tf'.")
    for value in (np.zeros(2), [], 3.0, (torch.zeros(1), np.zeros(1))):
        message = refused(
            "must return tensors of the policy's framework, 'torch'", check, value, "kl"
        )
        assert message.endswith("written for: framework='tf'.")


def test_one_number_is_returned_for_each_row(policy):
    check = policy.contract.check_rows
    check(torch.zeros(4), 4, "logp")
    check(torch.zeros(4), None, "logp")
    for shape, rows, expected in (
        ((4, 1), 4, r"\[4\]"),
        ((3,), 4, r"\[4\]"),
        ((1,), None, r"\[B\]"),
    ):
        match = f"must return one number per row, shape {expected}; found shape"
        message = refused(match, check, torch.zeros(shape), rows, "logp")
        assert message.startswith("Categorical.logp() (")
    refused("must return tensors of the policy's framework", check, np.zeros(4), 4, "logp")


def test_other_faults_name_the_method(policy):
    contract = policy.contract
    match = r"^FullyConnectedNetwork\.forward\(\) .* must not write into its inputs; obs has"
    refused(match, contract.refuse_written_input, "obs")
    refused(
        r"^Categorical\.sample\(\) .*must return actions without gradient",
        contract.refuse_gradient,
        "sample",
    )
    refused(
        r"^FullyConnectedNetwork\.forward\(\) .* or Categorical .* uses the weight 'w' of shape"
        r" \(2, 3\), which is",
        contract.refuse_lost_weight,
        "w",
        [2, 3],
    )


# --- drawn actions --------------------------------------------------------------------------------


class Own(Categorical):
    """A distribution that the index does not list."""


class OwnGaussian(DiagGaussian):
    """The same for numbers."""


def test_listed_distributions_are_not_checked_without_a_mask(policy):
    assert not policy.contract.checks_actions
    policy.contract.check_actions(np.array([[7]]), None)  # nothing is looked at
    assert policy.adapt(np.array([[1], [2]])).tolist() == [1, 2]
    masked = rlcatalog.build(MASKED, THREE, SMALL, "torch")
    assert not masked.contract.checks_actions


@pytest.fixture(scope="module")
def own():
    return rlcatalog.build(OBS, THREE, {**SMALL, "custom_action_dist": Own}, "torch")


@pytest.mark.parametrize("raw", [[[0], [2]], [[0.0], [2.0]], [[1], [1]]], ids=str)
def test_choices_are_counted_from_zero(own, raw):
    assert own.contract.checks_actions
    own.contract.check_actions(np.array(raw), None)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ([[0], [3]], "3 in row 1"),
        ([[-1], [0]], "-1 in row 0"),
        ([[0], [0.5]], "0.5 in row 1"),
        ([[np.nan], [0]], "nan"),
        ([[np.inf], [0]], "inf in row 0"),
        ([[3], [4]], "3 in row 0"),
    ],
)
def test_other_choices_are_outside(own, raw, problem):
    match = (
        "Own drew an action outside the action space: action: expected an integer from 0 to 2"
        " for Discrete.*, found"
    )
    message = refused(f"{match} {problem}", own.contract.check_actions, np.array(raw), None)
    assert message.endswith("must return raw actions: choices count from 0.")
    with pytest.raises(ModelContractError):
        own.adapt(np.array(raw))


def test_choices_in_range_need_no_conversion(own, monkeypatch):
    monkeypatch.setattr(
        own.action_codec, "adapt", lambda raw: pytest.fail("the actions were converted")
    )
    own.contract.check_actions(np.array([[0], [2]]), None)


def test_a_leaf_that_is_not_drawn_as_integers_is_checked_by_its_space(own, monkeypatch):
    monkeypatch.setattr(own.action_codec, "whole", False)
    own.contract.check_actions(np.array([[0], [2]]), None)
    refused(
        "expected finite numbers for Discrete.*, found nan in row 1",
        own.contract.check_actions,
        np.array([[0], [np.nan]]),
        None,
    )
    refused(
        "expected an action of the space for Discrete.*, found .*7.* in row 1",
        own.contract.check_actions,
        np.array([[0], [7]]),
        None,
    )
    monkeypatch.setattr(own.action_codec, "clips", True)
    # Its codec brings every number into the space.
    own.contract.check_actions(np.array([[0], [7]]), None)


@pytest.mark.parametrize("bounds", [(-1, 1), (-np.inf, np.inf)], ids=str)
def test_numbers_are_finite(bounds):
    space = spaces.Box(*bounds, (2,), np.float32)
    contract = rlcatalog.build(
        OBS, space, {**SMALL, "custom_action_dist": OwnGaussian}, "torch"
    ).contract
    # What goes beyond the bounds is clipped.
    contract.check_actions(np.float32([[0, 5], [-7, 1]]), None)
    for number in (np.nan, -np.inf):
        refused(
            f"OwnGaussian drew .*action: expected finite numbers for Box.*, found {number} in row"
            " 1",
            contract.check_actions,
            np.float32([[0, 1], [0, number]]),
            None,
        )


#: A Tuple whose middle and last parts are drawn by a plugin.
PARTS = spaces.Tuple(
    [THREE, spaces.MultiDiscrete([2, 4]), spaces.Box(0, 1, (1,)), spaces.Discrete(2)]
)


@pytest.fixture
def parts(module):
    module(Own=Own, OwnGaussian=OwnGaussian)

    def only(kind):
        def match(request):
            fits = request.action is not None and request.action.kind == kind
            return Match(Rank.SPECIFIC if fits else None, kind)

        return match

    specs = [
        ActionDistSpec(
            "numbers",
            {"torch": "made_up_parts:OwnGaussian"},
            "",
            match=only("box"),
            size=lambda action, config: 2,
        ),
        ActionDistSpec(
            "own",
            {"torch": "made_up_parts:Own"},
            "",
            match=only("discrete"),
            size=lambda action, config: action.n,
        ),
    ]
    point = PluginEntryPoint(plugin_of(rlcatalog_action_dists=specs), "acme-dists")
    catalog = isolated_catalog(*INSTALLED, point, prefer=["acme-dists"])
    return rlcatalog.build(OBS, PARTS, SMALL, "torch", catalog=catalog)


def test_each_part_is_checked_that_a_plugin_draws(parts):
    sound = np.float32([[2, 1, 3, 0.5, 1], [0, 0, 0, -4, 0]])
    parts.contract.check_actions(sound, None)
    for column, number, who, where in (
        (0, 3, "Own", r"action\[0\]: expected an integer from 0 to 2 for Discrete"),
        (3, np.nan, "OwnGaussian", r"action\[2\]: expected finite numbers for Box"),
        (4, 2, "Own", r"action\[3\]: expected an integer from 0 to 1 for Discrete"),
    ):
        raw = sound.copy()
        raw[1, column] = number
        message = refused(
            f"^{who} drew .*: {where}.*, found {number}", parts.contract.check_actions, raw, None
        )
        assert "in row 1." in message
    listed = sound.copy()
    listed[1, 1:3] = 2, 4
    parts.contract.check_actions(listed, None)  # a listed distribution drew it


def test_plugins_of_a_distribution_are_named(parts, policy):
    message = refused(
        "must return one number per row", parts.contract.check_rows, torch.zeros(2, 1), 2, "entropy"
    )
    labels = "action_dist 'own' of acme-dists 1.0 with action_dist 'numbers' of acme-dists 1.0"
    assert message.partition(" must")[0].endswith(f".entropy() ({labels})")
    message = refused(
        "must return one number per row",
        policy.contract.check_rows,
        torch.zeros(2, 1),
        2,
        "entropy",
    )
    assert message.partition(" must")[0].startswith(
        "Categorical.entropy() (action_dist 'categorical' of rlcatalog-cat"
    )


@pytest.fixture(scope="module")
def masked():
    two = spaces.Tuple([THREE, spaces.Discrete(2)])
    return rlcatalog.build(OBS, two, {**SMALL}, "torch")


def test_forbidden_actions_are_named_with_what_is_allowed(masked):
    check, mask = masked.contract.check_actions, np.array([[1, 1, 1, 1, 1], [0, 1, 1, 0, 1]], bool)
    check(np.array([[0, 0], [1, 1]]), mask)
    check(np.array([[0, 0], [2, 1]]), mask)
    for raw in ([0, 1], [1, 0]):
        with pytest.raises(ActionMaskError) as caught:
            check(np.array([[0, 0], raw]), mask)
        message = str(caught.value)
        allowed = "{'action[0]': [1, 2], 'action[1]': [1]}"
        assert message.startswith(
            f"mask: row 1: the raw action {raw} was drawn, but the mask allows {allowed}. rlcatalog"
        )
        assert "(True or 1 allows); MultiActionDistribution" in message
        assert "forward() or" not in message
        # The outermost listed one alone.
        assert "action_dist 'multi_action' of rlcatalog-multi-action" in message
        assert "action_dist 'categorical'" not in message
    with pytest.raises(ActionMaskError, match=r"mask: row 0: the raw action .0, 1. was drawn"):
        check(np.array([[0, 1], [1, 1]]), mask[::-1])
    check(np.array([[0, 0], [0, 0]]), None)


class Everything(Preprocessor):
    """Shows the whole observation, also its mask."""

    def _init_shape(self, obs_space, options):
        return (5,)

    def transform(self, observation):
        return np.concatenate([observation["action_mask"], observation["x"]]).astype(np.float32)


def test_model_that_sees_the_mask_is_checked_and_named_too(catalog):
    catalog.register_preprocessor("everything", Everything)
    config = {**SMALL, "custom_preprocessor": "everything"}
    contract = rlcatalog.build(MASKED, THREE, config, "torch", catalog=catalog).contract
    assert contract.checks_actions
    mask = np.array([[1, 1, 1], [1, 0, 1]], bool)
    contract.check_actions(np.array([[1], [2]]), mask)
    # Listed distributions are checked with a mask only.
    contract.check_actions(np.array([[7], [7]]), None)
    with pytest.raises(
        ActionMaskError,
        match=r"^mask: row 1: .* \(.*\); FullyConnectedNetwork\.forward\(\) .* or Categorical",
    ):
        contract.check_actions(np.array([[1], [1]]), mask)
