"""Sequence helpers: cutting up, padding, the time axis, masks; NumPy, PyTorch and TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf
import torch
from hypothesis import given, strategies as st

import rlcatalog_tf
import rlcatalog_torch
from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog_policy import chop_into_sequences, pad_sequences, sequence_mask, unpad_sequences
from rlcatalog_tf.sequences import Padding as TFPadding
from rlcatalog_torch.sequences import Padding as TorchPadding

LENGTHS = [3, 1, 4]
ROWS = np.arange(16, dtype=np.float32).reshape(8, 2)


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 6))
def test_sequences_are_cut_where_a_loop_would_cut_them(episodes, longest):
    lengths, previous = [], None
    for episode in episodes:
        if episode != previous or lengths[-1] == longest:
            lengths.append(0)
        lengths[-1] += 1
        previous = episode
    found = chop_into_sequences(episodes, longest)
    assert found.tolist() == lengths
    assert found.dtype == np.int32


def test_a_sequence_ends_where_any_of_several_ids_changes():
    """RLlib adds the ids up, and takes (1, 2) and (2, 1) for the same."""
    assert chop_into_sequences([[1, 2], [2, 1], [2, 1]], 10).tolist() == [1, 2]
    with pytest.raises(ModelContractError, match="max_seq_len: expected at least 1, found 0"):
        chop_into_sequences([1], 0)


def test_padding_there_and_back():
    padded = pad_sequences(ROWS, LENGTHS)
    assert padded.shape == (3, 4, 2)
    np.testing.assert_array_equal(padded[0], [[0, 1], [2, 3], [4, 5], [0, 0]])
    np.testing.assert_array_equal(padded[1], [[6, 7], [0, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(unpad_sequences(padded, LENGTHS), ROWS)
    assert pad_sequences(ROWS, LENGTHS, 6).shape == (3, 6, 2)
    expected = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]]
    np.testing.assert_array_equal(sequence_mask(LENGTHS), np.array(expected, bool))
    for lengths in ([3, 1], [9], [8, 0], [9, -1]):
        with pytest.raises(
            ModelContractError,
            match="seq_lens: expected lengths of at least 1 that add up to 8 rows",
        ):
            pad_sequences(ROWS, lengths, 4)
    with pytest.raises(ModelContractError, match="seq_lens: expected at most 4, found 8"):
        pad_sequences(ROWS, [8], 4)


def test_padding_may_be_each_sequences_last_row():
    np.testing.assert_array_equal(
        pad_sequences(ROWS, LENGTHS, 5, padding="last"), repeating_the_last(LENGTHS, 5)
    )
    np.testing.assert_array_equal(pad_sequences(ROWS, [8], padding="last"), ROWS[None])
    with pytest.raises(ConfigError, match="padding: expected 'zero' or 'last', found 'first'"):
        pad_sequences(ROWS, LENGTHS, padding="first")


def repeating_the_last(lengths, length):
    """Return ROWS padded with each sequence's last row, by a loop."""
    padded, first = [], 0
    for n in lengths:
        padded.append([ROWS[first + min(t, n - 1)] for t in range(length)])
        first += n
    return np.array(padded, np.float32).reshape(len(lengths), length, 2)


@pytest.mark.parametrize("length", [None, 9])
@pytest.mark.parametrize("lengths", [LENGTHS, [4, 4], [1] * 8, [8]])
def test_the_frameworks_pad_alike(lengths, length):
    lengths = np.array(lengths, np.int32)
    to = length or int(lengths.max())
    zeros, expected = pad_sequences(ROWS, lengths, to), repeating_the_last(lengths, to)
    by_torch = TorchPadding(lengths, to, torch.device("cpu"))
    by_tf = TFPadding(tf.constant(lengths), length)
    for padding, rows in ((by_torch, torch.from_numpy(ROWS)), (by_tf, tf.constant(ROWS))):
        padded = padding.fill({"a": (rows,)})["a"][0]
        np.testing.assert_array_equal(np.asarray(padded).reshape(expected.shape), expected)
        np.testing.assert_array_equal(np.asarray(padding.take({"a": (padded,)})["a"][0]), ROWS)
        np.testing.assert_array_equal(np.asarray(padding.zeros(rows)).reshape(zeros.shape), zeros)
        values = padding.take(padded[:, 0])
        np.testing.assert_array_equal(np.asarray(values), ROWS[:, 0])
        # One value every three rows of a sequence, as a model is shown it, and of those the real
        # ones.
        every = padding.fill(rows, 3)
        np.testing.assert_array_equal(np.asarray(every), expected[:, ::3].reshape(-1, 2))
        real = np.split(ROWS, np.cumsum(lengths)[:-1])
        np.testing.assert_array_equal(
            np.asarray(padding.take(every, 3)), np.concatenate([one[::3] for one in real])
        )


def test_tensorflow_pads_inside_a_trace():
    @tf.function(input_signature=[tf.TensorSpec([None, 2]), tf.TensorSpec([None], tf.int32)])
    def there_and_back(rows, lengths):
        padding = TFPadding(lengths)
        padded = padding.fill(rows)
        zeros = padding.zeros(rows)
        assert padded.shape.as_list() == zeros.shape.as_list() == [None, 2]
        return padded, padding.take(padded), zeros

    for lengths in (LENGTHS, [2, 6]):
        padded, back, zeros = there_and_back(ROWS, np.array(lengths, np.int32))
        np.testing.assert_array_equal(
            padded, repeating_the_last(lengths, max(lengths)).reshape(-1, 2)
        )
        np.testing.assert_array_equal(zeros, pad_sequences(ROWS, lengths).reshape(-1, 2))
        np.testing.assert_array_equal(back, ROWS)


@pytest.mark.parametrize("convert", [torch.as_tensor, tf.constant])
def test_where_the_padding_is_in_rows_and_lengths(convert):
    """Rows and lengths as a model is called with them; none where every place is real."""
    padding = TorchPadding if convert is torch.as_tensor else TFPadding
    rows = convert(np.arange(12.0))
    found = padding.of(convert([3, 1, 4]), rows)
    np.testing.assert_array_equal(np.asarray(found.take(rows)), [0, 1, 2, 4, 8, 9, 10, 11])
    np.testing.assert_array_equal(
        np.asarray(padding.of(convert([3, 2]), rows).take(rows)), [0, 1, 2, 6, 7]
    )
    assert padding.of(convert([4, 4, 4]), rows) is None
    assert padding.of(convert([1] * 12), rows) is None
    for lengths in ([5, 4, 3], [4, 4, 0], [4, 4, 2, 1, 1]):
        with pytest.raises(
            ModelContractError, match=r"seq_lens: expected lengths from 1 to \d, as 12 rows hold"
        ):
            padding.of(convert(lengths), rows)


def test_the_time_axis_and_masks_of_the_frameworks():
    padded = pad_sequences(ROWS, LENGTHS)
    flat, lengths = padded.reshape(12, 2), np.array(LENGTHS, np.int32)
    for library, convert in ((rlcatalog_torch, torch.from_numpy), (rlcatalog_tf, tf.constant)):
        rows, seq_lens = convert(flat), convert(lengths)
        np.testing.assert_array_equal(
            np.asarray(library.add_time_dimension(rows, seq_lens)), padded
        )
        major = library.add_time_dimension(rows, seq_lens, time_major=True)
        np.testing.assert_array_equal(np.asarray(major), padded.swapaxes(0, 1))
        np.testing.assert_array_equal(
            np.asarray(library.sequence_mask(seq_lens)), sequence_mask(LENGTHS)
        )
        np.testing.assert_array_equal(
            np.asarray(library.sequence_mask(seq_lens, 6)), sequence_mask(LENGTHS, 6)
        )
