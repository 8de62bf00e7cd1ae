"""Checks of training batches before anything is computed, and of the arrays and masks in them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog.actions import ActionMasks
from rlcatalog.errors import (
    ActionError,
    ActionMaskError,
    MissingColumnError,
    NonFiniteError,
    ObservationError,
)
from rlcatalog_policy.encoder import check_columns, check_encoded, host_values, to_array
from rlcatalog_policy.training_batch import check_batch

THREE_FEATURES = spaces.Box(-1, 1, (3,), np.float32)
SMALL = {"fcnet_hiddens": [2]}
arrays_and_tensors = pytest.mark.parametrize(
    "convert", [np.asarray, torch.as_tensor, tf.convert_to_tensor], ids=["numpy", "torch", "tf"]
)


@pytest.fixture(scope="module")
def discrete_policy():
    """A policy for observations of three numbers and four actions."""
    return rlcatalog.build(THREE_FEATURES, spaces.Discrete(4), SMALL, "torch")


@pytest.fixture(scope="module")
def box_policy():
    """A policy for observations of three numbers and actions of two."""
    return rlcatalog.build(THREE_FEATURES, spaces.Box(-1, 1, (2,)), SMALL, "torch")


def make_batch(**columns):
    """Return a batch of two rows for `discrete_policy`, with these columns changed or added."""
    obs = np.zeros((2, 3), np.float32)
    return {"obs": obs, "raw_action": np.array([[0], [3]]), **columns}


# --- valid batches --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(make_batch(), id="arrays"),
        pytest.param(make_batch(raw_action=np.array([0, 3])), id="actions-without-an-axis"),
        pytest.param(make_batch(dist_inputs=None, mask=None), id="none"),
        pytest.param({"obs": [[0.0] * 3] * 2, "raw_action": [[0], [3]]}, id="lists"),
        pytest.param(make_batch(dist_inputs=np.zeros((2, 4))), id="dist-inputs"),
        pytest.param(make_batch(mask=np.ones((2, 4), bool)), id="mask"),
        pytest.param(make_batch(another=1), id="another-column"),
    ],
)
def test_valid_batch_is_accepted(discrete_policy, batch):
    check_batch(discrete_policy, batch)  # no error


@arrays_and_tensors
def test_batch_of_tensors_is_accepted(discrete_policy, convert):
    batch = make_batch(mask=np.ones((2, 4), bool))

    check_batch(discrete_policy, {name: convert(array) for name, array in batch.items()})


def test_batch_of_actions_with_two_numbers_is_accepted(box_policy):
    check_batch(box_policy, make_batch(raw_action=np.float32([[0, 1], [2, -3]])))


def test_batch_without_rows_is_accepted(discrete_policy):
    batch = {
        "obs": np.zeros((0, 3)),
        "raw_action": np.zeros((0, 1), int),
        "mask": np.zeros((0, 4), bool),
    }

    check_batch(discrete_policy, batch)


# --- missing columns ------------------------------------------------------------------------------


GET_OBS = "'obs' is what Policy.preprocess(observations) returns"
GET_RAW_ACTION = (
    "'raw_action' is what Policy.act returns as step.raw_action; Policy.raw_action(actions)"
    " computes it from actions of the environment"
)
FROM_ACTION = "Set batch['raw_action'] = policy.raw_action(batch['action'])"
FROM_ACTIONS = "Set batch['raw_action'] = policy.raw_action(batch['actions'])"


@pytest.mark.parametrize(
    ("columns", "missing", "advice"),
    [
        ([], "'obs' and 'raw_action'", f"{GET_OBS}. {GET_RAW_ACTION}"),
        (["raw_action"], "'obs'", GET_OBS),
        (["obs"], "'raw_action'", GET_RAW_ACTION),
        (["obs", "action"], "'raw_action'", f"{GET_RAW_ACTION}. {FROM_ACTION}"),
        (["obs", "actions"], "'raw_action'", f"{GET_RAW_ACTION}. {FROM_ACTIONS}"),
        (["raw_action", "action"], "'obs'", GET_OBS),
        (
            ["actions", "action"],
            "'obs' and 'raw_action'",
            f"{GET_OBS}. {GET_RAW_ACTION}. {FROM_ACTION}",
        ),
    ],
)
def test_missing_column_error_says_where_to_get_it(discrete_policy, columns, missing, advice):
    batch = dict.fromkeys(columns, 0)  # only the names are looked at

    with pytest.raises(MissingColumnError) as caught:
        discrete_policy.evaluate(batch)

    assert str(caught.value) == f"the batch lacks {missing}; it has {columns}. {advice}."
    assert isinstance(caught.value, KeyError)


# --- observations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 4), (2, 3, 1), (), (2, 1, 3)], ids=str)
def test_observations_of_another_shape_are_an_error(discrete_policy, shape):
    with pytest.raises(ObservationError) as caught:
        check_batch(discrete_policy, make_batch(obs=np.zeros(shape)))

    assert str(caught.value) == (
        "batch['obs']: expected encoded observations of shape [B, 3],"
        f" as Policy.preprocess returns them, found shape {shape}."
    )


def test_single_observation_error_says_to_add_an_axis(discrete_policy):
    with pytest.raises(ObservationError) as caught:
        check_batch(discrete_policy, make_batch(obs=np.zeros(3)))

    assert str(caught.value) == (
        "batch['obs']: expected encoded observations of shape [B, 3],"
        " as Policy.preprocess returns them, found shape (3,)."
        " This is a single observation: add an axis, obs[None]."
    )


@pytest.mark.parametrize(
    ("batch_shape", "obs_shape"), [((5, 2, 3), (2, 3)), ((5,), ())], ids=["two-axes", "no-axes"]
)
def test_encoded_observations_may_have_any_number_of_axes(batch_shape, obs_shape):
    check_encoded(batch_shape, obs_shape, name="x")  # no error


def test_error_for_encoded_observations_begins_with_their_place():
    with pytest.raises(ObservationError, match=r" \[B, 2, 3\], .*shape \(2, 3\)") as error:
        check_encoded((2, 3), (2, 3), name="x", place="here: ")

    assert str(error.value).startswith("here: expected ")
    assert str(error.value).endswith(" x[None].")


def test_error_for_a_single_number_says_that_it_is_one():
    with pytest.raises(
        ObservationError, match=r"^expected .* \[B\], .* found shape \(\)"
    ) as caught:
        check_encoded((), (), name="x")

    assert "shape (). This is a single obs" in str(caught.value)


def test_error_for_axes_in_another_order_has_no_hint():
    with pytest.raises(ObservationError, match=r"found shape \(5, 3, 2\)\.$"):
        check_encoded((5, 3, 2), (2, 3), name="x")


@arrays_and_tensors
def test_observations_must_be_finite(discrete_policy, convert):
    obs = np.zeros((2, 3), np.float32)
    obs[1, 2] = np.nan

    with pytest.raises(NonFiniteError, match=r"row 1 of 2: its obs.*NaN at obs\[2\]"):
        check_batch(discrete_policy, make_batch(obs=convert(obs)))


# --- actions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (2, 2), (2, 1, 1), (3,), (2, 0)], ids=str)
def test_discrete_actions_have_a_row_for_each_observation(discrete_policy, shape):
    with pytest.raises(ActionError, match=r"expected shape \(2, 1\), a row for each") as caught:
        check_batch(discrete_policy, make_batch(raw_action=np.zeros(shape, int)))

    message = str(caught.value)
    assert message.startswith("batch['raw_action']: expected shape")
    assert message.endswith(f" of Discrete(4), found shape {shape}.")


@pytest.mark.parametrize("shape", [(2,), (2, 1), (1, 2), (2, 3), (2, 2, 1)], ids=str)
def test_box_actions_have_a_column_for_each_number(box_policy, shape):
    with pytest.raises(ActionError, match=r"expected shape \(2, 2\), .* found shape"):
        check_batch(box_policy, make_batch(raw_action=np.zeros(shape, np.float32)))


@pytest.mark.parametrize("wrong_action", [4, -1, 0.5, np.nan])
def test_actions_must_be_in_the_space(discrete_policy, wrong_action):
    with pytest.raises(ActionError, match="expected an integer from 0 to 3; found ") as caught:
        check_batch(discrete_policy, make_batch(raw_action=np.array([[0], [wrong_action]])))

    assert " in row 1, column 0" in str(caught.value)


@pytest.mark.parametrize("wrong_action", [4, -1, 0.5, np.nan])
def test_actions_in_a_tensor_must_be_in_the_space(discrete_policy, wrong_action):
    with pytest.raises(ActionError, match="expected an integer from 0 to 3"):
        check_batch(discrete_policy, make_batch(raw_action=torch.tensor([0, wrong_action])))


def test_actions_must_be_numbers(discrete_policy):
    with pytest.raises(ActionError, match="expected numbers, found dtype <U1") as caught:
        check_batch(discrete_policy, make_batch(raw_action=np.array([["0"], ["3"]])))

    assert str(caught.value).startswith("batch['raw_action']: ")


def test_box_actions_must_be_finite(box_policy):
    with pytest.raises(ActionError, match="found inf in row 0, column 1"):
        check_batch(box_policy, make_batch(raw_action=np.float32([[0, np.inf], [0, 0]])))


@pytest.mark.parametrize("shape", [(1, 4), (3, 4), (4, 2)], ids=str)
def test_dist_inputs_have_a_row_for_each_observation(discrete_policy, shape):
    with pytest.raises(ActionError) as caught:
        check_batch(discrete_policy, make_batch(dist_inputs=np.zeros(shape)))

    assert str(caught.value) == (
        f"batch['dist_inputs']: expected 2 rows, one for each observation, found shape {shape}."
    )


def test_dist_inputs_in_a_list_have_a_row_for_each_observation(discrete_policy):
    with pytest.raises(ActionError, match="expected 2 rows"):
        check_batch(discrete_policy, make_batch(dist_inputs=[[0.0, 0.0, 0.0, 0.0]]))


# --- masks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 4), (2, 3), (2,)], ids=str)
def test_mask_of_another_shape_is_an_error(discrete_policy, shape):
    with pytest.raises(ActionMaskError, match=r"\['mask'\]: expected shape \(2, 4\),"):
        check_batch(discrete_policy, make_batch(mask=np.ones(shape, bool)))


def test_mask_must_allow_an_action_in_each_row(discrete_policy):
    with pytest.raises(ActionMaskError, match="row 1 allows no action"):
        check_batch(discrete_policy, make_batch(mask=[[1, 0, 0, 0], [0, 0, 0, 0]]))


@pytest.fixture(scope="module")
def pair_masks():
    """The reader of masks for a choice out of two and a choice out of three."""
    space = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])
    return ActionMasks(rlcatalog.SpaceInfo.read(space, "action"))


PAIR_MASK = np.array([[1, 0, 1, 1, 0], [1, 1, 0, 0, 1]], np.int8)


@arrays_and_tensors
def test_check_columns_error_names_the_part_that_allows_nothing(pair_masks, convert):
    mask = convert(np.array([[1, 0, 1, 1, 0], [1, 0, 0, 0, 0]], np.int8))

    with pytest.raises(ActionMaskError, match=r"row 1 allows nothing for action\[1\]"):
        check_columns(pair_masks, mask, rows=2, name="mask")


@arrays_and_tensors
def test_check_columns_rejects_other_numbers_than_0_and_1(pair_masks, convert):
    with pytest.raises(ActionMaskError, match="expected booleans, or 0 and 1; found 2"):
        check_columns(pair_masks, convert(2 * PAIR_MASK), rows=2, name="mask")


# --- tensors on other devices ---------------------------------------------------------------------


ON_META = {
    "obs": torch.zeros(2, 3, device="meta"),
    "raw_action": torch.zeros(2, 1, device="meta"),
    "mask": torch.zeros(2, 4, device="meta"),
}


@pytest.fixture(scope="module")
def policy_on_meta():
    return rlcatalog.build(THREE_FEATURES, spaces.Discrete(4), SMALL, "torch").to("meta")


def test_batch_on_the_device_of_the_policy_is_accepted(policy_on_meta):
    check_batch(policy_on_meta, ON_META)  # no error


def test_batch_on_a_device_is_checked_for_its_shapes(policy_on_meta):
    wrong_shape = torch.zeros(2, 2, device="meta")

    with pytest.raises(ActionError, match=r"expected shape \(2, 1\)"):
        check_batch(policy_on_meta, {**ON_META, "raw_action": wrong_shape})


def test_batch_on_another_device_is_refused(discrete_policy):
    with pytest.raises(ObservationError, match="'cpu'; found one on 'meta'"):
        check_batch(discrete_policy, ON_META)


class TensorOnDevice:
    """A tensor [1, 2] of a library that names its device."""

    def __init__(self, device):
        self.device = device

    def __array__(self, dtype=None, copy=None):
        return np.array([1, 2])


def test_to_array_reads_values_on_other_devices():
    assert to_array(TensorOnDevice("cuda:0")).tolist() == [1, 2]


@pytest.mark.parametrize(
    "value", [TensorOnDevice("cuda:0"), torch.zeros(2, device="meta")], ids=["cuda", "meta"]
)
def test_host_values_does_not_read_values_on_other_devices(value):
    assert host_values(value) is None


def test_host_values_of_a_tensor_in_a_trace_are_unknown():
    results = []

    @tf.function
    def record_host_values(x):
        # TensorFlow runs this once to make a graph; there, `x` has no value yet.
        results.append(host_values(x))
        return x

    record_host_values(tf.zeros(2))

    assert results == [None]
