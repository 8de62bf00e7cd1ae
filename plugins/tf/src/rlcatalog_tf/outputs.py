"""Outputs of models and distributions in the one form that engines store: samples `[B, width]`, values `[B]`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rlcatalog.models import check_values
from rlcatalog.spaces import parts_of
from rlcatalog_tf.dtypes import to_float32_at_least
from rlcatalog_tf.ops import flatten_rows


def flat_sample(sample: Any) -> Any:
    """Return a sample in its stored form: a structure's parts side by side, `[B, width]`; one tensor as it is."""
    parts = parts_of(sample)
    if parts is None:
        return sample
    rows = [flatten_rows(part) for part in parts]
    dtypes = {part.dtype for part in rows}
    # float32 holds whole numbers that half precision would not.
    wide = tf.float64 if tf.float64 in dtypes else tf.float32
    dtype = rows[0].dtype if len(dtypes) == 1 else wide
    return tf.concat([tf.cast(part, dtype) for part in rows], axis=1)


def values_of(model: Any, rows: int | None = None) -> Any:
    """Return the value estimates `[B]` of a model's last pass, float32 at least; a column `[B, 1]` will do as well.

    Args:
        model: The model.
        rows: B, where it is known.

    Raises:
        ModelContractError: They have another shape.
    """
    value = model.value_function()
    if not tf.is_tensor(value):
        check_values(model, value, rows)
        value = tf.convert_to_tensor(value)
    if value.shape.rank is not None:
        check_values(model, value, rows if value.shape.rank and value.shape[0] is not None else None)
        if value.shape.rank == 2:
            value = value[:, 0]
    return to_float32_at_least(value)
