"""Nested values: comparing them, and their leaves."""

import numpy as np


def assert_equal(ours, theirs):
    """Compare nested dictionaries, lists, tuples and arrays."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for name in theirs:
            assert_equal(ours[name], theirs[name])
    elif is_nested(theirs):
        assert len(ours) == len(theirs)
        for our_part, their_part in zip(ours, theirs, strict=True):
            assert_equal(our_part, their_part)
    else:
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def is_nested(value):
    if not isinstance(value, (list, tuple)) or not value:
        return False
    return value[0] is not None and not np.isscalar(value[0])


def leaves(value):
    """Return the arrays or tensors of a structure of dicts and tuples, depth first."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if not isinstance(value, tuple):
        return [value]
    arrays = []
    for part in value:
        arrays += leaves(part)
    return arrays
