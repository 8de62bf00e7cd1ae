"""Padding where there is nothing to pad: no sequences at all, inside a trace as well."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import torch

from rlcatalog_policy import chop_into_sequences, pad_sequences, sequence_mask, unpad_sequences
from rlcatalog_tf.sequences import Padding as TFPadding
from rlcatalog_torch.sequences import Padding as TorchPadding

NO_ROWS, NO_LENGTHS = np.zeros((0, 2), np.float32), np.zeros(0, np.int32)


def test_no_sequences_have_no_padding():
    assert sequence_mask([]).shape == (0, 0)
    assert sequence_mask([], 3).shape == (0, 3)
    assert pad_sequences(NO_ROWS, []).shape == (0, 0, 2)
    assert pad_sequences(NO_ROWS, [], 3).shape == (0, 3, 2)
    assert unpad_sequences(np.zeros((0, 3, 2)), []).shape == (0, 2)
    assert chop_into_sequences([], 4).shape == (0,)
    assert TorchPadding.of(torch.from_numpy(NO_LENGTHS), torch.from_numpy(NO_ROWS)) is None
    assert TFPadding.of(tf.constant(NO_LENGTHS), tf.constant(NO_ROWS)) is None


def test_trace_for_any_number_of_sequences_takes_none():
    @tf.function(input_signature=[tf.TensorSpec([None, 2]), tf.TensorSpec([None], tf.int32)])
    def real_rows(padded, lengths):
        return TFPadding.of(lengths, padded).take(padded)

    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    np.testing.assert_array_equal(real_rows(rows, [3, 1]), rows[:4])
    np.testing.assert_array_equal(real_rows(rows, [1, 3]), rows[[0, 3, 4, 5]])
    assert real_rows(NO_ROWS, NO_LENGTHS).shape == (0, 2)
