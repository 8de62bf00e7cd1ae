"""What the tests of the codecs share: comparing structures, and reordering their keys."""

from __future__ import annotations

import numpy as np
import pytest


def _assert_same(found, expected):
    """Compare structures of arrays or tensors: same containers, same keys, same values."""
    if isinstance(expected, dict):
        assert isinstance(found, dict)
        assert list(found) == list(expected)
        for key in expected:
            _assert_same(found[key], expected[key])
    elif isinstance(expected, tuple):
        assert isinstance(found, tuple)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _assert_same(one, other)
    else:
        assert tuple(found.shape) == expected.shape
        np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.fixture(scope="session")
def assert_same():
    """Compare structures of arrays or tensors: `assert_same(found, expected)`."""
    return _assert_same


def _permuted(value):
    """The same observation, with the keys of every dict in another order."""
    if isinstance(value, dict):
        return {key: _permuted(value[key]) for key in reversed(list(value))}
    return tuple(_permuted(part) for part in value) if isinstance(value, tuple) else value


@pytest.fixture(scope="session")
def permuted():
    """Give the keys of every dict another order: `permuted(obs)`."""
    return _permuted
