"""Action masks that are tensors: codecs read them as they read arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import assume, given, strategies as st
from masked_env import random_mask
from properties import max_examples
from random_actions import nested
from tensor_batches import to_tensors

from rlcatalog import SpaceInfo
from rlcatalog.actions import action_codec
from rlcatalog.errors import ActionMaskError
from rlcatalog.frameworks import tensor_ops
from rlcatalog.internals import lowered_actions, reads_masks
from rlcatalog_preprocessors.actions.kinds import DiscreteCodec

ROWS = 4
OPS = tensor_ops("torch")


def make_codec(space):
    return action_codec(SpaceInfo.read(space, "action"))


def read_tensors(codec, mask, rows=ROWS):
    """Return the columns of a mask that is tensors, and whether all its numbers are valid."""
    lowered = lowered_actions(codec, OPS)
    valid = []
    columns = lowered.mask_columns(mask, rows, valid)
    return columns, all(bool(is_valid) for is_valid in valid)


@max_examples(120)
@given(space=nested, seed=st.integers(0, 2**16))
def test_masks_of_random_spaces_have_the_same_columns(space, seed):
    codec = make_codec(space)
    assume(codec.mask_width)
    rng = np.random.default_rng(seed)
    masks = [random_mask(space, rng) for _ in range(ROWS)]
    batch = stack_masks(masks)

    columns, is_valid = read_tensors(codec, to_tensors(batch))

    expected = codec.mask_columns(batch, ROWS)
    if columns is None:  # no part of it has a mask
        columns = torch.ones(ROWS, codec.mask_width, dtype=torch.bool)
    np.testing.assert_array_equal(columns.numpy(), expected)
    assert is_valid


def stack_masks(masks):
    """Return single masks as a batch of them."""
    first = masks[0]
    if isinstance(first, dict):
        return {key: stack_masks([mask[key] for mask in masks]) for key in first}
    if isinstance(first, tuple):
        return tuple(stack_masks(list(parts)) for parts in zip(*masks, strict=True))
    return None if first is None else np.stack(masks)


@pytest.mark.parametrize(
    "space",
    [
        Discrete(4, start=2),
        MultiDiscrete([2, 3]),
        MultiBinary(3),
        Tuple([Discrete(2), MultiDiscrete([2, 2])]),
    ],
    ids=["discrete", "multi-discrete", "multi-binary", "tuple"],
)
def test_mask_columns_of_raw_actions_are_the_same(space):
    codec = make_codec(space)
    raw = np.array([[0] * codec.width, [1] * codec.width])

    columns = lowered_actions(codec, OPS).mask_taken(torch.from_numpy(raw))

    expected = codec.mask_taken(raw)
    if expected is None:  # bits have two columns each, which the codec does not say
        assert columns is None or columns.shape == (2, codec.width)
    else:
        np.testing.assert_array_equal(columns.numpy(), expected)


@pytest.mark.parametrize(
    ("space", "mask", "message"),
    [
        (Discrete(3), torch.ones(ROWS, 4), r"expected shape \(4, 3\); found shape \(4, 4\)"),
        (Discrete(3), torch.ones(ROWS, 1, 3), r"found shape \(4, 1, 3\)"),
        (MultiBinary(2), torch.ones(3, 2), "expected 4 rows"),
        (MultiDiscrete([2, 2]), (torch.ones(ROWS, 2),), r"shape \[B, n\] with n = \[2, 2\]"),
        (Tuple([Discrete(2), Discrete(2)]), (torch.ones(ROWS, 2),), "a tuple of 2 masks"),
        (Dict({"a": Discrete(2)}), {"b": torch.ones(ROWS, 2)}, r"a dict with keys of \['a'\]"),
        (Discrete(2), (torch.ones(ROWS, 2),), r"expected shape \(4, 2\); found tuple"),
    ],
    ids=["width", "axes", "rows", "choices", "tuple", "key", "structure"],
)
def test_masks_in_another_form_are_refused(space, mask, message):
    with pytest.raises(ActionMaskError, match=message):
        read_tensors(make_codec(space), mask)


@pytest.mark.parametrize(
    ("space", "mask"),
    [(Discrete(2), [[0, 2]]), (MultiBinary(2), [[0, 3]]), (MultiDiscrete([1, 1]), [[1, -1]])],
    ids=["discrete", "multi-binary", "multi-discrete"],
)
def test_other_numbers_than_those_of_masks_are_found(space, mask):
    _, is_valid = read_tensors(make_codec(space), torch.tensor(mask), rows=1)

    assert not is_valid


def test_missing_masks_of_parts_allow_everything():
    codec = make_codec(Dict({"a": Discrete(2), "b": Box(-1, 1, (2,)), "c": Discrete(3)}))

    columns, _ = read_tensors(codec, {"a": torch.zeros(ROWS, 2, dtype=torch.bool)})

    assert columns.tolist() == [[False, False, True, True, True]] * ROWS


class ReadsItsMaskReversed(DiscreteCodec):
    """Has a mask form of its own, and no tensor form of it."""

    def _mask_rows(self, array):
        return array[:, ::-1]


def test_codecs_with_a_mask_form_of_their_own_need_a_tensor_form():
    codec = ReadsItsMaskReversed(SpaceInfo.read(Discrete(3), "action"))

    assert not reads_masks(codec)
    assert reads_masks(make_codec(Tuple([Discrete(3), MultiBinary(2), Box(-1, 1, (2,))])))
