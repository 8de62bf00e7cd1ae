"""Sequences: cutting steps into sequences, padding them to one length, the time axis and masks, in
NumPy, PyTorch and TensorFlow.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import torch

import rlcatalog_tf
import rlcatalog_torch
from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog_policy import chop_into_sequences, pad_sequences, sequence_mask, unpad_sequences
from rlcatalog_tf.sequences import Padding as TFPadding
from rlcatalog_torch.sequences import Padding as TorchPadding

#: Eight steps of two numbers, in three sequences of these lengths.
ROWS = np.arange(16, dtype=np.float32).reshape(8, 2)
LENGTHS = [3, 1, 4]


def pad_with_last_row(lengths, length):
    """Return ROWS `[sequences, length, 2]`, each sequence padded with its last row, by a loop."""
    padded = []
    first = 0
    for n in lengths:
        padded.append([ROWS[first + min(t, n - 1)] for t in range(length)])
        first += n
    return np.array(padded, np.float32).reshape(len(lengths), length, 2)


# --- cutting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("episode_ids", "expected"),
    [
        pytest.param([1, 1, 2, 2, 2, 3], [2, 3, 1], id="episodes"),
        pytest.param([1, 2, 1], [1, 1, 1], id="id-that-returns"),
        pytest.param([7] * 6, [3, 3], id="two-full-sequences"),
        pytest.param([7] * 5, [3, 2], id="rest-of-an-episode"),
        pytest.param([1, 1, 1, 1, 2, 2], [3, 1, 2], id="both"),
    ],
)
def test_chop_ends_sequences_with_episodes_and_at_max_seq_len(episode_ids, expected):
    lengths = chop_into_sequences(episode_ids, max_seq_len=3)

    assert lengths.tolist() == expected
    assert lengths.dtype == np.int32


def test_chop_ends_a_sequence_where_any_of_several_ids_changes():
    # RLlib adds the ids up, so that it takes (1, 2) and (2, 1) for the same.
    lengths = chop_into_sequences([[1, 2], [2, 1], [2, 1]], 10)

    assert lengths.tolist() == [1, 2]


def test_chop_rejects_max_seq_len_0():
    with pytest.raises(ModelContractError, match="expected at least 1, found 0"):
        chop_into_sequences([1], 0)


# --- padding in NumPy -----------------------------------------------------------------------------


def test_pad_sequences_appends_zeros():
    padded = pad_sequences(ROWS, LENGTHS)

    assert padded.shape == (3, 4, 2)  # the longest sequence has four steps
    np.testing.assert_array_equal(padded[0], [[0, 1], [2, 3], [4, 5], [0, 0]])
    np.testing.assert_array_equal(padded[1], [[6, 7], [0, 0], [0, 0], [0, 0]])


def test_pad_sequences_pads_to_the_given_length():
    assert pad_sequences(ROWS, LENGTHS, 6).shape == (3, 6, 2)


def test_pad_sequences_may_repeat_the_last_row():
    padded = pad_sequences(ROWS, LENGTHS, 5, padding="last")

    np.testing.assert_array_equal(padded, pad_with_last_row(LENGTHS, 5))


def test_pad_sequences_leaves_a_single_sequence_unchanged():
    np.testing.assert_array_equal(pad_sequences(ROWS, [8], padding="last"), ROWS[None])


def test_unpad_sequences_restores_the_rows():
    padded = pad_sequences(ROWS, LENGTHS)

    np.testing.assert_array_equal(unpad_sequences(padded, LENGTHS), ROWS)


def test_sequence_mask_marks_real_steps():
    expected = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]], bool)

    np.testing.assert_array_equal(sequence_mask(LENGTHS), expected)


@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param([3, 1], id="too-few-rows"),
        pytest.param([9], id="too-many-rows"),
        pytest.param([8, 0], id="empty-sequence"),
        pytest.param([9, -1], id="negative-length"),
    ],
)
def test_pad_sequences_rejects_lengths_that_do_not_fit(lengths):
    with pytest.raises(ModelContractError, match="at least 1 that add up to 8 rows"):
        pad_sequences(ROWS, lengths, 4)


def test_pad_sequences_rejects_a_sequence_that_is_too_long():
    with pytest.raises(ModelContractError, match="expected at most 4, found 8"):
        pad_sequences(ROWS, [8], 4)


def test_pad_sequences_rejects_unknown_padding():
    with pytest.raises(ConfigError, match="expected 'zero' or 'last', found 'first'"):
        pad_sequences(ROWS, LENGTHS, padding="first")


# --- padding in the frameworks --------------------------------------------------------------------


@dataclass
class PaddedRows:
    """ROWS in a framework, the padding under test, and both paddings by NumPy."""

    padding: Any
    rows: Any
    lengths: np.ndarray
    last_row_padded: np.ndarray
    zero_padded: np.ndarray


@pytest.fixture(params=[None, 9], ids=["to-the-longest", "to-9"])
def length(request):
    return request.param


@pytest.fixture(
    params=[LENGTHS, [4, 4], [1] * 8, [8]],
    ids=["different-lengths", "equal-lengths", "single-steps", "one-sequence"],
)
def case(request, framework, length):
    lengths = np.array(request.param, np.int32)
    padded_length = length or int(lengths.max())
    if framework == "torch":
        padding = TorchPadding(lengths, padded_length, torch.device("cpu"))
        rows = torch.from_numpy(ROWS)
    else:
        padding = TFPadding(tf.constant(lengths), length)
        rows = tf.constant(ROWS)
    return PaddedRows(
        padding=padding,
        rows=rows,
        lengths=lengths,
        last_row_padded=pad_with_last_row(lengths, padded_length).reshape(-1, 2),
        zero_padded=pad_sequences(ROWS, lengths, padded_length).reshape(-1, 2),
    )


def test_fill_pads_with_the_last_row(case):
    np.testing.assert_array_equal(case.padding.fill(case.rows), case.last_row_padded)


def test_fill_pads_nested_columns(case):
    filled = case.padding.fill({"a": (case.rows,)})

    np.testing.assert_array_equal(filled["a"][0], case.last_row_padded)


def test_fill_with_a_step_keeps_every_third_row_of_a_sequence(case):
    filled = case.padding.fill(case.rows, 3)

    sequences = case.last_row_padded.reshape(len(case.lengths), -1, 2)
    np.testing.assert_array_equal(filled, sequences[:, ::3].reshape(-1, 2))


def test_zeros_pads_with_zeros(case):
    np.testing.assert_array_equal(case.padding.put_back(case.rows), case.zero_padded)


def test_take_removes_the_padding(case):
    padded = case.padding.fill(case.rows)

    np.testing.assert_array_equal(case.padding.take(padded), ROWS)
    np.testing.assert_array_equal(case.padding.take({"a": (padded,)})["a"][0], ROWS)
    np.testing.assert_array_equal(case.padding.take(padded[:, 0]), ROWS[:, 0])


def test_take_with_a_step_removes_the_padding(case):
    every_third = case.padding.fill(case.rows, 3)

    sequences = np.split(ROWS, np.cumsum(case.lengths)[:-1])
    expected = np.concatenate([sequence[::3] for sequence in sequences])
    np.testing.assert_array_equal(case.padding.take(every_third, 3), expected)


def test_tensorflow_pads_inside_a_traced_function():
    @tf.function(input_signature=[tf.TensorSpec([None, 2]), tf.TensorSpec([None], tf.int32)])
    def pad(rows, lengths):
        padding = TFPadding(lengths)
        padded = padding.fill(rows)
        assert padded.shape.as_list() == [None, 2]  # the width stays known
        return padded, padding.take(padded)

    rows = np.float32([[1, 1], [2, 2], [3, 3]])

    padded, restored = pad(rows, np.int32([2, 1]))

    # The second sequence is padded to two steps with its last row.
    assert padded.numpy().tolist() == [[1, 1], [2, 2], [3, 3], [3, 3]]
    np.testing.assert_array_equal(restored, rows)


#: How a framework makes a tensor, and its padding.
each_framework = pytest.mark.parametrize(
    ("as_tensor", "padding_class"),
    [
        pytest.param(torch.as_tensor, TorchPadding, id="torch"),
        pytest.param(tf.constant, TFPadding, id="tf"),
    ],
)
#: Rows as a model gets them: already padded, so that their number is a multiple of the lengths'.
TWELVE_ROWS = np.arange(12.0)


@each_framework
@pytest.mark.parametrize(
    ("lengths", "real_rows"),
    [
        # Three sequences of four places, and two of six.
        pytest.param([3, 1, 4], [0, 1, 2, 4, 8, 9, 10, 11], id="three-sequences"),
        pytest.param([3, 2], [0, 1, 2, 6, 7], id="two-sequences"),
    ],
)
def test_padding_of_padded_rows_finds_the_real_ones(as_tensor, padding_class, lengths, real_rows):
    rows = as_tensor(TWELVE_ROWS)

    padding = padding_class.of(as_tensor(lengths), rows)

    np.testing.assert_array_equal(padding.take(rows), real_rows)


@each_framework
@pytest.mark.parametrize("lengths", [[4, 4, 4], [1] * 12], ids=["full-sequences", "single-steps"])
def test_padding_of_rows_without_any_is_none(as_tensor, padding_class, lengths):
    assert padding_class.of(as_tensor(lengths), as_tensor(TWELVE_ROWS)) is None


@each_framework
@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param([5, 4, 3], id="longer-than-its-places"),
        pytest.param([4, 4, 0], id="empty-sequence"),
        pytest.param([4, 4, 2, 1, 1], id="not-a-divisor-of-the-rows"),
    ],
)
def test_padding_of_lengths_that_do_not_fit_is_rejected(as_tensor, padding_class, lengths):
    with pytest.raises(ModelContractError, match=r"lengths from 1 to \d, as 12 rows hold"):
        padding_class.of(as_tensor(lengths), as_tensor(TWELVE_ROWS))


# --- the time axis --------------------------------------------------------------------------------

each_library = pytest.mark.parametrize(
    ("library", "as_tensor"),
    [
        pytest.param(rlcatalog_torch, torch.from_numpy, id="torch"),
        pytest.param(rlcatalog_tf, tf.constant, id="tf"),
    ],
)


@each_library
def test_add_time_dimension_splits_rows_into_sequences(library, as_tensor):
    padded = pad_sequences(ROWS, LENGTHS)  # [sequences, steps, 2]
    rows = as_tensor(padded.reshape(-1, 2))
    lengths = as_tensor(np.array(LENGTHS, np.int32))

    batch_major = library.add_time_dimension(rows, lengths)
    time_major = library.add_time_dimension(rows, lengths, time_major=True)

    np.testing.assert_array_equal(batch_major, padded)
    np.testing.assert_array_equal(time_major, padded.swapaxes(0, 1))


@each_library
def test_sequence_mask_equals_that_of_numpy(library, as_tensor):
    lengths = as_tensor(np.array(LENGTHS, np.int32))

    np.testing.assert_array_equal(library.sequence_mask(lengths), sequence_mask(LENGTHS))
    np.testing.assert_array_equal(library.sequence_mask(lengths, 6), sequence_mask(LENGTHS, 6))


# --- no sequences ---------------------------------------------------------------------------------


def test_mask_of_no_sequences_is_empty():
    assert sequence_mask([]).shape == (0, 0)
    assert sequence_mask([], 3).shape == (0, 3)


def test_pad_sequences_returns_an_empty_array_for_no_rows():
    no_rows = np.zeros((0, 2), np.float32)

    assert pad_sequences(no_rows, []).shape == (0, 0, 2)
    assert pad_sequences(no_rows, [], 3).shape == (0, 3, 2)


def test_unpad_sequences_returns_no_rows_for_no_sequences():
    assert unpad_sequences(np.zeros((0, 3, 2)), []).shape == (0, 2)


def test_chop_returns_no_sequences_for_no_steps():
    assert chop_into_sequences([], 4).shape == (0,)


def test_torch_padding_of_no_sequences_is_none():
    lengths = torch.zeros(0, dtype=torch.int32)

    assert TorchPadding.of(lengths, torch.zeros(0, 2)) is None


def test_tf_padding_of_no_sequences_is_none():
    lengths = tf.zeros(0, tf.int32)

    assert TFPadding.of(lengths, tf.zeros((0, 2))) is None


@tf.function(input_signature=[tf.TensorSpec([None, 2]), tf.TensorSpec([None], tf.int32)])
def take_rows_in_a_trace(padded, lengths):
    """Return the rows that are no padding, in a graph for any number of sequences."""
    return TFPadding.of(lengths, padded).take(padded)


@pytest.mark.parametrize(
    ("lengths", "rows"),
    [
        # Two sequences of three rows, padding included: rows 0 to 2, and 3 to 5.
        ([3, 1], [0, 1, 2, 3]),
        ([1, 3], [0, 3, 4, 5]),
    ],
    ids=str,
)
def test_trace_takes_the_rows_without_padding(lengths, rows):
    padded = np.arange(12, dtype=np.float32).reshape(6, 2)

    np.testing.assert_array_equal(take_rows_in_a_trace(padded, lengths), padded[rows])


def test_trace_takes_no_rows_of_no_sequences():
    no_rows = np.zeros((0, 2), np.float32)
    no_lengths = np.zeros(0, np.int32)

    assert take_rows_in_a_trace(no_rows, no_lengths).shape == (0, 2)
