"""Comparison of structures of arrays, for the tests of the codecs."""

from __future__ import annotations

import numpy as np
import pytest


def _assert_same(structure, expected):
    if isinstance(expected, dict):
        assert isinstance(structure, dict)
        assert list(structure) == list(expected)
        for key in expected:
            _assert_same(structure[key], expected[key])
    elif isinstance(expected, tuple):
        assert isinstance(structure, tuple)
        assert len(structure) == len(expected)
        for part, expected_part in zip(structure, expected, strict=True):
            _assert_same(part, expected_part)
    else:
        assert tuple(structure.shape) == expected.shape
        np.testing.assert_array_equal(np.asarray(structure), expected)


@pytest.fixture(scope="session")
def assert_same():
    """Check that structures of arrays or tensors have the same containers, keys and values."""
    return _assert_same
