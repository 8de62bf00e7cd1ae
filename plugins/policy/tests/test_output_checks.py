"""Checks of what models and distributions return: which shapes and actions are accepted, and which
part the error names otherwise.
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
from rlcatalog.spaces import TupleActions
from rlcatalog_policy.output_checker import fits, shape_of
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of
from rlcatalog_torch import Categorical, DiagGaussian

TWO_FEATURES = spaces.Box(-1, 1, (2,), np.float32)
THREE_ACTIONS = spaces.Discrete(3)
TWO_NUMBERS = spaces.Box(-1, 1, (2,), np.float32)
WITH_MASK = spaces.Dict(action_mask=spaces.MultiBinary(3), x=TWO_FEATURES)
SMALL = {"fcnet_hiddens": [2]}
INSTALLED = [
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-categorical",
    "rlcatalog-gaussian",
    "rlcatalog-multi-action",
]


def build_checker(action_space, *, obs_space=TWO_FEATURES, custom_action_dist=None):
    config = dict(SMALL)
    if custom_action_dist is not None:
        config["custom_action_dist"] = custom_action_dist
    return rlcatalog.build(obs_space, action_space, config, "torch").output_checker


@pytest.fixture(scope="module")
def discrete_checker():
    """The checks for a FullyConnectedNetwork with a Categorical of three actions."""
    return build_checker(THREE_ACTIONS)


@pytest.fixture(scope="module")
def box_checker():
    """The checks for a FullyConnectedNetwork with a DiagGaussian of two numbers."""
    return build_checker(TWO_NUMBERS)


# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [np.zeros, torch.zeros, tf.zeros], ids=["numpy", "torch", "tf"])
def test_shape_is_read_from_arrays_and_tensors(zeros):
    assert shape_of(zeros((2, 0))) == (2, 0)


def test_shape_of_a_number_is_empty():
    assert shape_of(np.float32(1)) == ()


@pytest.mark.parametrize(
    "value",
    [[1, 2], None, "text", SimpleNamespace(shape=3), SimpleNamespace(shape=("a",))],
    ids=["list", "none", "text", "number-as-shape", "text-in-shape"],
)
def test_other_values_have_no_shape(value):
    assert shape_of(value) is None


def inspect_in_trace(shape, inspect):
    """Return what a function finds out about a tensor inside a trace of TensorFlow, where some of
    its lengths are unknown.
    """
    results = []

    @tf.function(input_signature=[tf.TensorSpec(shape)])
    def function(x):
        results.append(inspect(x))
        return x

    function.get_concrete_function()
    return results[0]


@pytest.mark.parametrize(
    ("shape", "fits_any_rows", "fits_four_rows"),
    [
        pytest.param((None, 3), True, True, id="unknown-rows"),
        pytest.param((4, None), True, True, id="unknown-columns"),
        pytest.param((1, 3), False, False, id="one-row"),
        pytest.param((5, 3), True, False, id="five-rows"),
        pytest.param((None,), False, False, id="one-axis"),
        pytest.param(None, True, True, id="unknown-axes"),
    ],
)
def test_tensor_in_a_trace_fits_by_its_known_lengths(shape, fits_any_rows, fits_four_rows):
    assert inspect_in_trace(shape, lambda x: fits(x, (None, 3))) is fits_any_rows
    assert inspect_in_trace(shape, lambda x: fits(x, (4, 3))) is fits_four_rows


@pytest.mark.parametrize("zeros", [np.zeros, torch.zeros], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    ("shape", "expected", "does_fit"),
    [
        ((4, 3), (4, 3), True),
        ((4, 2), (4, 3), False),
        ((5, 3), (4, 3), False),
        ((4, 3, 1), (4, 3), False),
        ((4,), (4, 3), False),
        ((), (), True),
        # None is an unknown number of rows, which is not 1.
        ((4, 3), (None, 3), True),
        ((0, 3), (None, 3), True),
        ((1, 3), (None, 3), False),
        ((1, 3), (1, 3), True),
        ((2, 3), (None, 1), False),
        ((1,), (None,), False),
        ((3, 4), (4, 3), False),
    ],
)
def test_array_fits_by_its_axes_and_their_lengths(shape, expected, does_fit, zeros):
    assert fits(zeros(shape), expected) is does_fit


@pytest.mark.parametrize("value", [[1.0], None, "text"], ids=repr)
@pytest.mark.parametrize("expected", [(1,), ()], ids=str)
def test_value_without_a_shape_fits_nothing(value, expected):
    assert not fits(value, expected)


# --- outputs of models ----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [4, None])
def test_outputs_have_a_column_for_each_input_of_the_dist(discrete_checker, rows):
    discrete_checker.check_outputs(torch.zeros(4, 3), rows)


@pytest.mark.parametrize(
    ("outputs", "rows", "expected", "description"),
    [
        pytest.param(torch.zeros(4, 2), 4, "[4, 3]", "shape [4, 2]", id="too-few-columns"),
        pytest.param(None, 4, "[4, 3]", "None", id="none"),
        pytest.param("wrong", 4, "[4, 3]", "'wrong'", id="text"),
        # Outputs that always have one row are wrong if the number of rows is unknown (None).
        pytest.param(torch.zeros(1, 3), None, "[B, 3]", "shape [1, 3]", id="always-one-row"),
    ],
)
def test_outputs_of_another_shape_are_an_error(outputs, rows, expected, description):
    checker = build_checker(spaces.Discrete(3))

    with pytest.raises(ModelContractError) as caught:
        checker.check_outputs(outputs, rows)

    message = str(caught.value)
    assert message.startswith("FullyConnectedNetwork.forward() (model 'fcnet' of rlcatalog-fcnet")
    assert f"must return outputs of shape {expected}: " in message
    assert "each of the 3 inputs that Categorical (action_dist 'categorical'" in message
    assert f"; found {description}." in message


def test_outputs_error_cuts_long_values(discrete_checker):
    with pytest.raises(ModelContractError) as caught:
        discrete_checker.check_outputs("x" * 100, 4)

    description = str(caught.value).partition("found ")[2]
    assert description.startswith("'xxx")
    assert len(description) == 80 + len(".")


def test_written_input_error_names_the_model(discrete_checker):
    with pytest.raises(
        ModelContractError, match="must not write into its inputs; obs has"
    ) as error:
        discrete_checker.refuse_written_input("obs")

    assert str(error.value).startswith("FullyConnectedNetwork.forward() ")


def test_lost_weight_error_names_model_and_dist(discrete_checker):
    with pytest.raises(
        ModelContractError, match=r"uses the weight 'w' of shape \(2, 3\),"
    ) as error:
        discrete_checker.refuse_lost_weight("w", [2, 3])

    message = str(error.value)
    assert message.startswith("FullyConnectedNetwork.forward() ")
    assert " or Categorical " in message
    assert "of shape (2, 3), which is" in message


# --- return values of distributions ---------------------------------------------------------------


def test_sample_of_one_choice_has_one_column(discrete_checker):
    discrete_checker.check_sample(torch.zeros(4, 1), 4)


@pytest.mark.parametrize("rows", [4, None])
def test_sample_of_two_numbers_has_two_columns(box_checker, rows):
    box_checker.check_sample(torch.zeros(4, 2), rows)


@pytest.mark.parametrize(("columns", "rows"), [(3, 4), (1, None), (0, 4)])
def test_sample_with_other_columns_is_an_error(box_checker, columns, rows):
    with pytest.raises(ModelContractError, match=f"returned {columns} values per action") as caught:
        box_checker.check_sample(torch.zeros(4, columns), rows)

    message = str(caught.value)
    assert message.startswith("DiagGaussian.sample() (action_dist")
    assert message.endswith("needs 2.")


@pytest.mark.parametrize(
    ("shape", "rows", "expected"),
    [
        pytest.param((4,), 4, "[4, 2]", id="no-columns"),
        pytest.param((3, 1), 4, "[4, 2]", id="too-few-rows"),
        pytest.param((4, 2, 1), 4, "[4, 2]", id="three-axes"),
        pytest.param((4, 2, 1), None, "[B, 2]", id="three-axes-unknown-rows"),
        pytest.param((2,), None, "[B, 2]", id="no-columns-unknown-rows"),
    ],
)
def test_sample_without_one_row_per_action_is_an_error(box_checker, shape, rows, expected):
    with pytest.raises(ModelContractError) as caught:
        box_checker.check_sample(torch.zeros(shape), rows, method="rsample")

    message = str(caught.value)
    assert message.startswith("DiagGaussian.rsample() (action_dist")
    assert f"must return one action for each row, {expected}" in message
    assert message.endswith(f"found shape {list(shape)}.")


def test_sample_error_for_one_choice_allows_a_single_axis(discrete_checker):
    with pytest.raises(ModelContractError, match=r"\[4\] for a single Discrete; found None"):
        discrete_checker.check_sample(None, 4)


@pytest.mark.parametrize(
    "value",
    [torch.zeros(2), (torch.zeros(2), {"a": torch.zeros(1)})],
    ids=["tensor", "structure"],
)
def test_values_are_tensors_of_the_framework(discrete_checker, value):
    discrete_checker.check_tensors(value, "sample")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(tf.zeros(2), id="tensor"),
        pytest.param((torch.zeros(2), tf.zeros(1)), id="tuple"),
        pytest.param({"a": torch.zeros(2), "b": tf.zeros(1)}, id="dict"),
    ],
)
def test_tensors_of_another_framework_are_an_error(discrete_checker, value):
    with pytest.raises(
        ModelContractError, match="policy's framework, 'torch'; found Eager"
    ) as error:
        discrete_checker.check_tensors(value, "kl")

    message = str(error.value)
    assert message.startswith("Categorical.kl() (")
    assert "must return tensors of the policy's framework" in message
    assert message.endswith("name the framework that the class is written for: framework='tf'.")


@pytest.mark.parametrize(
    ("value", "type_name"),
    [
        pytest.param(np.zeros(2), "ndarray", id="array"),
        pytest.param([0.0, 0.0], "float", id="list"),
        pytest.param([], "list", id="empty-list"),
        pytest.param(3.0, "float", id="number"),
        pytest.param(None, "NoneType", id="none"),
        pytest.param((torch.zeros(1), np.zeros(1)), "ndarray", id="array-in-tuple"),
        pytest.param(TupleActions([np.zeros(2)]), "ndarray", id="array-in-TupleActions"),
    ],
)
def test_values_that_are_not_tensors_are_an_error(discrete_checker, value, type_name):
    message = f"policy's framework, 'torch'; found {type_name} "
    with pytest.raises(ModelContractError, match=message) as error:
        discrete_checker.check_tensors(value, "kl")

    assert str(error.value).endswith("written for: framework='tf'.")


@pytest.mark.parametrize("rows", [4, None])
def test_method_returns_one_number_per_row(discrete_checker, rows):
    discrete_checker.check_rows(torch.zeros(4), rows, "logp")


@pytest.mark.parametrize(
    ("shape", "rows", "expected"),
    [
        pytest.param((4, 1), 4, "[4]", id="two-axes"),
        pytest.param((3,), 4, "[4]", id="too-few-rows"),
        pytest.param((1,), None, "[B]", id="always-one-row"),
    ],
)
def test_other_shapes_of_numbers_per_row_are_an_error(discrete_checker, shape, rows, expected):
    with pytest.raises(ModelContractError, match="must return one number per row") as caught:
        discrete_checker.check_rows(torch.zeros(shape), rows, "logp")

    message = str(caught.value)
    assert message.startswith("Categorical.logp() (")
    assert f"one number per row, shape {expected}; found shape" in message


def test_gradient_error_names_the_method(discrete_checker):
    with pytest.raises(ModelContractError, match="must return actions without gradient") as caught:
        discrete_checker.refuse_gradient("sample")

    assert str(caught.value).startswith("Categorical.sample() ")


# --- drawn actions --------------------------------------------------------------------------------


class CustomCategorical(Categorical):
    """A distribution of the program: the conformance kit has not checked its actions."""


class CustomGaussian(DiagGaussian):
    """The same for numbers."""


def test_actions_of_listed_dists_are_not_checked(discrete_checker):
    assert not discrete_checker.checks_actions
    discrete_checker.check_actions(np.array([[7]]), mask=None)  # no error: it looks at nothing


def test_actions_of_listed_dists_are_not_checked_with_masks():
    assert not build_checker(THREE_ACTIONS, obs_space=WITH_MASK).checks_actions


@pytest.fixture(scope="module")
def custom_policy():
    """A policy with a custom distribution for three actions."""
    config = {**SMALL, "custom_action_dist": CustomCategorical}
    return rlcatalog.build(TWO_FEATURES, THREE_ACTIONS, config, "torch")


@pytest.mark.parametrize("raw_action", [[[0], [2]], [[0.0], [2.0]], [[1], [1]]], ids=str)
def test_custom_dist_may_draw_choices_from_0_to_2(custom_policy, raw_action):
    assert custom_policy.output_checker.checks_actions

    custom_policy.output_checker.check_actions(np.array(raw_action), mask=None)


@pytest.mark.parametrize(
    ("raw_action", "description"),
    [
        ([[0], [3]], "3 in row 1"),
        ([[-1], [0]], "-1 in row 0"),
        ([[0], [0.5]], "0.5 in row 1"),
        ([[np.nan], [0]], "nan in row 0"),
        ([[np.inf], [0]], "inf in row 0"),
        ([[3], [4]], "3 in row 0"),
    ],
)
def test_choice_outside_of_the_space_is_an_error(custom_policy, raw_action, description):
    # The space is Discrete(3), and the distribution is CustomCategorical.
    with pytest.raises(ModelContractError, match=r"^CustomCategorical drew") as caught:
        custom_policy.output_checker.check_actions(np.array(raw_action), mask=None)

    message = str(caught.value)
    assert "expected an integer from 0 to 2 for Discrete" in message
    assert f", found {description}" in message
    assert message.endswith("must return raw actions: choices count from 0.")


def test_adapt_rejects_a_choice_outside_of_the_space(custom_policy):
    with pytest.raises(ModelContractError, match="found 3 in row 1"):
        custom_policy.adapt(np.array([[0], [3]]))


@pytest.fixture
def checker_of_other_codec(custom_policy, monkeypatch):
    """The checks of a codec that does not demand integers, so that the space decides."""
    monkeypatch.setattr(custom_policy.action_codec, "whole", False)
    return custom_policy.output_checker


@pytest.mark.parametrize(
    ("choice", "match"),
    [
        (np.nan, "finite numbers .*, found nan in row 1"),
        (7, "an action of .*, found .*7.* in row 1"),
    ],
)
def test_space_may_reject_the_actions(checker_of_other_codec, choice, match):
    with pytest.raises(ModelContractError, match=match):
        checker_of_other_codec.check_actions(np.array([[0], [choice]]), mask=None)


def test_clipping_codec_accepts_any_number(checker_of_other_codec, custom_policy, monkeypatch):
    monkeypatch.setattr(custom_policy.action_codec, "clips", True)

    checker_of_other_codec.check_actions(np.array([[0], [7]]), mask=None)


box_bounds = pytest.mark.parametrize("bound", [1, np.inf], ids=["bounded", "unbounded"])


@box_bounds
def test_custom_dist_may_draw_numbers_beyond_the_bounds(bound):
    box = spaces.Box(-bound, bound, (2,), np.float32)
    checker = build_checker(box, custom_action_dist=CustomGaussian)

    checker.check_actions(np.float32([[0, 5], [-7, 1]]), mask=None)  # no error: they are clipped


@box_bounds
@pytest.mark.parametrize("number", [np.nan, -np.inf])
def test_custom_dist_must_draw_finite_numbers(bound, number):
    box = spaces.Box(-bound, bound, (2,), np.float32)
    checker = build_checker(box, custom_action_dist=CustomGaussian)
    raw_action = np.float32([[0, 1], [0, number]])

    with pytest.raises(ModelContractError, match=r"^CustomGaussian drew ") as caught:
        checker.check_actions(raw_action, mask=None)

    assert "action: expected finite numbers for Box" in str(caught.value)
    assert f", found {number} in row 1" in str(caught.value)


# --- composite actions ----------------------------------------------------------------------------


@pytest.fixture
def tuple_checker(module):
    """The checks for a Tuple whose Discretes and Box are drawn by distributions of a plugin."""
    module(CustomCategorical=CustomCategorical, CustomGaussian=CustomGaussian)

    def match_kind(kind):
        def match(request):
            does_match = request.action is not None and request.action.kind == kind
            return Match(Rank.SPECIFIC if does_match else None, kind)

        return match

    for_boxes = ActionDistSpec(
        "numbers",
        {"torch": "made_up_parts:CustomGaussian"},
        "",
        match=match_kind("box"),
        size=lambda action, config: 2,
    )
    for_choices = ActionDistSpec(
        "choices",
        {"torch": "made_up_parts:CustomCategorical"},
        "",
        match=match_kind("discrete"),
        size=lambda action, config: action.n,
    )
    plugin = plugin_of(rlcatalog_action_dists=[for_boxes, for_choices])
    point = PluginEntryPoint(plugin, "acme-dists")
    catalog = isolated_catalog(*INSTALLED, point, prefer=["acme-dists"])
    space = spaces.Tuple(
        [
            spaces.Discrete(3),
            spaces.MultiDiscrete([2, 4]),
            spaces.Box(0, 1, (1,)),
            spaces.Discrete(2),
        ]
    )
    return rlcatalog.build(TWO_FEATURES, space, SMALL, "torch", catalog=catalog).output_checker


def raw_actions(*, first=0, second=(0, 0), third=0.0, fourth=0):
    """Return raw actions for two rows; the second has these parts of the tuple."""
    return np.float32([[2, 1, 3, 0.5, 1], [first, *second, third, fourth]])


def test_parts_of_a_tuple_may_have_all_values_of_their_spaces(tuple_checker):
    # The third part is a Box from 0 to 1, to which numbers are clipped.
    tuple_checker.check_actions(raw_actions(third=-4), mask=None)


@pytest.mark.parametrize(
    ("part", "value", "dist", "expected"),
    [
        (
            "first",
            3,
            "CustomCategorical",
            "action[0]: expected an integer from 0 to 2 for Discrete",
        ),
        ("third", np.nan, "CustomGaussian", "action[2]: expected finite numbers for Box"),
        ("fourth", 2, "CustomCategorical", "action[3]: expected an integer from 0 to 1 for Disc"),
    ],
)
def test_part_of_a_tuple_from_a_plugin_is_checked(tuple_checker, part, value, dist, expected):
    with pytest.raises(ModelContractError) as caught:
        tuple_checker.check_actions(raw_actions(**{part: value}), mask=None)

    message = str(caught.value)
    assert message.startswith(f"{dist} drew ")
    assert f": {expected}" in message
    assert f", found {value}" in message
    assert "in row 1." in message


def test_part_of_a_tuple_from_a_listed_dist_is_not_checked(tuple_checker):
    # MultiDiscrete([2, 4]) has no choices 2 and 4.
    tuple_checker.check_actions(raw_actions(second=(2, 4)), mask=None)


def test_error_names_all_plugins_of_a_tuple_distribution(tuple_checker):
    with pytest.raises(ModelContractError, match="must return one number per row") as caught:
        tuple_checker.check_rows(torch.zeros(2, 1), 2, "entropy")

    subject = str(caught.value).partition(" must")[0]
    parts = "action_dist 'choices' of acme-dists 1.0 with action_dist 'numbers' of acme-dists 1.0"
    assert subject.endswith(f".entropy() ({parts})")


def test_error_names_the_package_of_a_listed_distribution(discrete_checker):
    with pytest.raises(ModelContractError, match="must return one number per row") as caught:
        discrete_checker.check_rows(torch.zeros(2, 1), 2, "entropy")

    part = "action_dist 'categorical' of rlcatalog-cat"
    assert str(caught.value).startswith(f"Categorical.entropy() ({part}")


# --- masks ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair_checker():
    """The checks for pairs of a choice out of three and a choice out of two."""
    return build_checker(spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)]))


@pytest.mark.parametrize("allowed_pair", [[1, 1], [2, 1]], ids=str)
def test_allowed_actions_are_accepted(pair_checker, allowed_pair):
    mask = np.array([[1, 1, 1, 1, 1], [0, 1, 1, 0, 1]], bool)

    pair_checker.check_actions(np.array([[0, 0], allowed_pair]), mask)


@pytest.mark.parametrize("forbidden_pair", [[0, 1], [1, 0]], ids=["first-choice", "second-choice"])
def test_forbidden_action_error_lists_the_allowed_ones(pair_checker, forbidden_pair):
    # The second row allows the choices 1 and 2 out of three, and 1 out of two.
    mask = np.array([[1, 1, 1, 1, 1], [0, 1, 1, 0, 1]], bool)

    with pytest.raises(ActionMaskError) as caught:
        pair_checker.check_actions(np.array([[0, 0], forbidden_pair]), mask)

    assert str(caught.value).startswith(
        f"mask: row 1: the raw action {forbidden_pair} was drawn, but the mask allows"
        " {'action[0]': [1, 2], 'action[1]': [1]}. rlcatalog"
    )


def test_forbidden_action_error_names_the_outermost_dist():
    checker = build_checker(spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)]))
    forbids_the_first_of_three = np.array([[0, 1, 1, 1, 1]], bool)

    with pytest.raises(ActionMaskError) as caught:
        # The action is 0 of three, which the mask forbids, and 1 of two.
        checker.check_actions(np.array([[0, 1]]), forbids_the_first_of_three)

    message = str(caught.value)
    assert "action_dist 'multi_action' of rlcatalog-multi-action" in message
    # Neither the distribution of a part nor the model is to blame: they do not see the mask.
    assert "action_dist 'categorical'" not in message
    assert "forward()" not in message


class ShowsMask(Preprocessor):
    """Shows the model the whole observation, including its mask."""

    def _init_shape(self, obs_space, options):
        return (5,)

    def transform(self, observation):
        return np.concatenate([observation["action_mask"], observation["x"]]).astype(np.float32)


@pytest.fixture
def checker_of_model_with_mask(catalog):
    catalog.register_preprocessor("shows_mask", ShowsMask)
    config = {**SMALL, "custom_preprocessor": "shows_mask"}
    return rlcatalog.build(
        WITH_MASK, THREE_ACTIONS, config, "torch", catalog=catalog
    ).output_checker


def test_model_that_sees_the_mask_is_checked(checker_of_model_with_mask):
    checker = checker_of_model_with_mask
    mask = np.array([[1, 1, 1], [1, 0, 1]], bool)

    assert checker.checks_actions
    checker.check_actions(np.array([[1], [2]]), mask)


def test_model_that_sees_the_mask_is_not_checked_without_it(checker_of_model_with_mask):
    # There is no action 7, but a listed distribution is trusted to draw existing ones.
    checker_of_model_with_mask.check_actions(np.array([[7], [7]]), mask=None)


def test_forbidden_action_error_names_a_model_that_sees_the_mask(checker_of_model_with_mask):
    mask = np.array([[1, 1, 1], [1, 0, 1]], bool)

    with pytest.raises(ActionMaskError, match=r"^mask: row 1: ") as caught:
        checker_of_model_with_mask.check_actions(np.array([[1], [1]]), mask)

    message = str(caught.value)
    assert "; FullyConnectedNetwork.forward() " in message
    assert " or Categorical" in message
