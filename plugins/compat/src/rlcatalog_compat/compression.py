"""Columns of batches as compressed bytes: arrays in NumPy's format, without pickles."""

from __future__ import annotations

import io
import zlib
from typing import Any

import numpy as np


def packed(array: Any, bulk: bool) -> Any:
    """Return an array as compressed bytes, or its rows as an array of such."""
    if not bulk:
        # An array of bytes would lose their last zeros.
        made = np.empty(len(array), object)
        made[:] = [packed(row, bulk=True) for row in array]
        return made
    held = io.BytesIO()
    np.save(held, np.asarray(array), allow_pickle=False)
    return zlib.compress(held.getvalue())


def unpacked(leaf: Any) -> Any:
    """Undo `packed`; what is not packed is returned as it is."""
    if isinstance(leaf, bytes):
        return np.load(io.BytesIO(zlib.decompress(leaf)), allow_pickle=False)
    rows = isinstance(leaf, np.ndarray) and leaf.dtype == object and len(leaf) and isinstance(leaf[0], bytes)
    return np.stack([unpacked(row) for row in leaf]) if rows else leaf
