"""Batches for training, checked before anything is computed; and the arrays and masks that an
encoder takes.
"""

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

OBS = spaces.Box(-1, 1, (3,), np.float32)
SMALL = {"fcnet_hiddens": [2]}


@pytest.fixture(scope="module")
def discrete():
    return rlcatalog.build(OBS, spaces.Discrete(4), SMALL, "torch")


@pytest.fixture(scope="module")
def wide():
    return rlcatalog.build(OBS, spaces.Box(-1, 1, (2,)), SMALL, "torch")


def batch(**changes):
    return {"obs": np.zeros((2, 3), np.float32), "raw_action": np.array([[0], [3]]), **changes}


def wide_batch(**changes):
    return batch(raw_action=np.float32([[0, 1], [2, -3]]), **changes)


def test_sound_batches_are_accepted(discrete, wide):
    lists = {"obs": [[0.0] * 3] * 2, "raw_action": [[0], [3]]}
    for sound in (
        batch(),
        batch(raw_action=np.array([0, 3])),
        batch(dist_inputs=None, mask=None),
        lists,
        batch(dist_inputs=np.zeros((2, 4))),
        batch(mask=np.ones((2, 4), bool)),
        batch(more=1),
    ):
        check_batch(discrete, sound)
    for convert in (torch.as_tensor, tf.convert_to_tensor):
        check_batch(
            discrete,
            {name: convert(array) for name, array in batch(mask=np.ones((2, 4), bool)).items()},
        )
    check_batch(wide, wide_batch())
    none = {
        "obs": np.zeros((0, 3)),
        "raw_action": np.zeros((0, 1), int),
        "mask": np.zeros((0, 4), bool),
    }
    check_batch(discrete, none)


@pytest.mark.parametrize(
    ("given", "lacks", "hint"),
    [
        ([], "'obs' and 'raw_action'", None),
        (["raw_action"], "'obs'", None),
        (["obs"], "'raw_action'", None),
        (["obs", "action"], "'raw_action'", "action"),
        (["obs", "actions"], "'raw_action'", "actions"),
        (["raw_action", "action"], "'obs'", None),
        (["actions", "action"], "'obs' and 'raw_action'", "action"),
    ],
)
def test_missing_columns_are_named_with_where_to_get_them(discrete, given, lacks, hint):
    with pytest.raises(MissingColumnError) as caught:
        check_batch(discrete, dict.fromkeys(given, 0))
    ways = {
        "'obs'": "'obs': encoded observations, as Policy.preprocess(observations) returns them",
        "'raw_action'": "'raw_action': step.raw_action from Policy.act, or Policy.raw_action(the"
        " environment's actions)",
    }
    how = "; ".join(way for name, way in ways.items() if name in lacks)
    how += (
        "" if hint is None else f". Here: batch['raw_action'] = policy.raw_action(batch['{hint}'])"
    )
    assert str(caught.value) == f"batch lacks {lacks}; it has {given}. {how}."


@pytest.mark.parametrize("shape", [(3,), (2, 4), (2, 3, 1), (), (2, 1, 3)], ids=str)
def test_observations_have_the_encoded_shape(discrete, shape):
    with pytest.raises(ObservationError) as caught:
        check_batch(discrete, batch(obs=np.zeros(shape)))
    hint = " This is a single observation: add an axis, obs[None]." if shape == (3,) else ""
    assert str(caught.value) == (
        "batch['obs']: expected encoded observations of shape [B, 3], as Policy.preprocess returns"
        f" them, found shape {shape}.{hint}"
    )


def test_encoded_shape_may_have_more_axes_or_none():
    check_encoded((5, 2, 3), (2, 3), "x")
    check_encoded((5,), (), "x")
    with pytest.raises(
        ObservationError,
        match=r"^here: expected .* \[B, 2, 3\], .*shape \(2, 3\)\. .* x\[None\]\.$",
    ):
        check_encoded((2, 3), (2, 3), "x", "here: ")
    with pytest.raises(
        ObservationError, match=r"^expected .* \[B\], .* found shape \(\)\. This is a single obs"
    ):
        check_encoded((), (), "x")
    with pytest.raises(ObservationError, match=r"found shape \(5, 3, 2\)\.$"):
        check_encoded((5, 3, 2), (2, 3), "x")


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (2, 2), (2, 1, 1), (3,), (2, 0)], ids=str)
def test_actions_have_a_row_for_each_observation(discrete, shape):
    match = (
        r"batch\['raw_action'\]: expected shape \(2, 1\), a row for each .* of Discrete\(4\),"
        r" found shape"
    )
    with pytest.raises(ActionError, match=match) as caught:
        check_batch(discrete, batch(raw_action=np.zeros(shape, int)))
    assert str(caught.value).endswith(f"found shape {shape}.")


@pytest.mark.parametrize("shape", [(2,), (2, 1), (1, 2), (2, 3), (2, 2, 1)], ids=str)
def test_actions_of_several_numbers_have_a_column_for_each(wide, shape):
    with pytest.raises(ActionError, match=r"expected shape \(2, 2\), .* found shape"):
        check_batch(wide, batch(raw_action=np.zeros(shape, np.float32)))


def test_distributions_parameters_have_a_row_for_each_observation(discrete):
    for shape in ((1, 4), (3, 4), (4, 2)):
        with pytest.raises(ActionError) as caught:
            check_batch(discrete, batch(dist_inputs=np.zeros(shape)))
        expected = f"expected 2 rows, one for each observation, found shape {shape}."
        assert str(caught.value) == f"batch['dist_inputs']: {expected}"
    with pytest.raises(ActionError, match="expected 2 rows"):
        check_batch(discrete, batch(dist_inputs=[[0.0] * 4]))


def test_masks_are_those_of_the_policy(discrete):
    for shape in ((1, 4), (2, 3), (2,)):
        with pytest.raises(
            ActionMaskError,
            match=r"batch\['mask'\]: expected shape \(2, 4\), as Policy\.action_mask",
        ):
            check_batch(discrete, batch(mask=np.ones(shape, bool)))
    with pytest.raises(ActionMaskError, match="row 1 allows no action"):
        check_batch(discrete, batch(mask=[[1, 0, 0, 0], [0, 0, 0, 0]]))


@pytest.mark.parametrize("wrong", [4, -1, 0.5, np.nan])
def test_actions_are_in_the_space(discrete, wrong):
    with pytest.raises(
        ActionError, match=r"expected an integer from 0 to 3; found .* in row 1, column 0"
    ):
        check_batch(discrete, batch(raw_action=np.array([[0], [wrong]])))
    with pytest.raises(ActionError, match="expected an integer from 0 to 3"):
        check_batch(discrete, batch(raw_action=torch.tensor([0, wrong])))


def test_actions_are_numbers(discrete, wide):
    with pytest.raises(
        ActionError, match=r"batch\['raw_action'\]: expected numbers, found dtype <U1"
    ):
        check_batch(discrete, batch(raw_action=np.array([["0"], ["3"]])))
    with pytest.raises(ActionError, match="expected finite numbers; found inf in row 0, column 1"):
        check_batch(wide, batch(raw_action=np.float32([[0, np.inf], [0, 0]])))


def test_observations_are_finite(discrete):
    obs = np.zeros((2, 3), np.float32)
    obs[1, 2] = np.nan
    for convert in (np.asarray, torch.as_tensor, tf.convert_to_tensor):
        with pytest.raises(NonFiniteError, match=r"row 1 of 2: its observation .*NaN at obs\[2\]"):
            check_batch(discrete, batch(obs=convert(obs)))


def test_values_elsewhere_than_on_the_cpu_are_not_waited_for(discrete):
    columns = {
        "obs": torch.zeros(2, 3, device="meta"),
        "raw_action": torch.zeros(2, 1, device="meta"),
    }
    check_batch(discrete, {**columns, "mask": torch.zeros(2, 4, device="meta")})
    with pytest.raises(ActionError, match=r"expected shape \(2, 1\)"):
        check_batch(discrete, {**columns, "raw_action": torch.zeros(2, 2, device="meta")})


# --- what arrays and tensors hold -----------------------------------------------------------------


class OnDevice:
    """A tensor of a library that names its device."""

    def __init__(self, device):
        self.device = device

    def __array__(self, dtype=None, copy=None):
        return np.array([1, 2])


def test_values_on_the_cpu_are_arrays():
    array = np.array([1, 2])
    assert to_array(array) is host_values(array) is array
    assert to_array(None) is None
    values = [
        torch.tensor([1, 2]),
        tf.constant([1, 2]),
        [1, 2],
        torch.tensor([1.0, 2], requires_grad=True),
    ]
    for value in (*values, OnDevice("CPU:0")):
        for convert in (to_array, host_values):
            assert isinstance(convert(value), np.ndarray)
            assert convert(value).tolist() == [1, 2]
    assert host_values(OnDevice("cuda:0")) is None
    assert to_array(OnDevice("cuda:0")).tolist() == [1, 2]
    assert host_values(torch.zeros(2, device="meta")) is None


def test_values_of_a_trace_are_unknown():
    seen = []
    tf.function(lambda x: seen.append(host_values(x)) or x)(tf.zeros(2))
    assert seen == [None]


def test_columns_of_masks_are_checked_for_arrays_and_tensors():
    masks = ActionMasks(
        rlcatalog.SpaceInfo.read(spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)]), "action")
    )
    sound = np.array([[1, 0, 1, 1, 0], [1, 1, 0, 0, 1]], np.int8)
    for convert in (np.asarray, torch.as_tensor, tf.convert_to_tensor):
        check_columns(masks, convert(sound), 2, "mask")
        with pytest.raises(ActionMaskError) as caught:
            check_columns(masks, convert(sound), 3, "its mask")
        expected = (
            "its mask: expected shape (3, 5), as Policy.action_mask returns it, found shape (2, 5)."
        )
        assert str(caught.value) == expected
        with pytest.raises(ActionMaskError, match=r"row 1 allows nothing for action\[1\]"):
            check_columns(
                masks, convert(sound * [[1], [0]] + [[0] * 5, [1, 0, 0, 0, 0]]), 2, "mask"
            )
        with pytest.raises(ActionMaskError, match="expected booleans, or 0 and 1; found 2"):
            check_columns(masks, convert(sound * 2), 2, "mask")
    check_columns(masks, torch.zeros(2, 5, device="meta"), 2, "mask")
    with pytest.raises(
        rlcatalog.errors.NotServedError, match="has no values that a mask could forbid"
    ):
        check_columns(
            ActionMasks(rlcatalog.SpaceInfo.read(OBS, "action")), np.ones((2, 3), bool), 2, "mask"
        )
