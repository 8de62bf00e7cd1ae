"""Outputs of models and distributions in the one form that engines store: samples `[B, width]`, values `[B]`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlcatalog.models import check_values
from rlcatalog.spaces import parts_of
from rlcatalog_torch.dtypes import HALF
from rlcatalog_torch.ops import flatten_rows


def flat_sample(sample: Any) -> Tensor:
    """Return a sample in its stored form: a structure's parts side by side, `[B, width]`; one tensor as it is."""
    if isinstance(sample, Tensor):
        return sample
    parts = [flatten_rows(part) for part in parts_of(sample) or []]
    if len({part.dtype for part in parts}) > 1:  # float32 holds whole numbers that half precision would not
        parts = [part if part.dtype is torch.float64 else part.float() for part in parts]
    return torch.cat(parts, dim=1)


def values_of(model: Any, rows: int | None = None) -> Tensor:
    """Return the value estimates `[B]` of a model's last pass, float32 at least; a column `[B, 1]` will do as well.

    Args:
        model: The model.
        rows: B, where it is known.

    Raises:
        ModelContractError: They have another shape.
    """
    value: Tensor = model.value_function()
    if type(value) is not Tensor or value.shape != (rows,):
        check_values(model, value, rows)
        if value.ndim == 2:
            value = value[:, 0]
    return value.float() if value.dtype in HALF else value
