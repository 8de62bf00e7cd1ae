"""Reductions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rlcatalog_export.onnx_operations.graph_values import (
    FORMS,
    Recording,
    axis_of,
    dtype_of,
    form_of,
    shape_of,
)

if TYPE_CHECKING:
    from torch import Tensor

#: An axis, several, or all of them (None or an empty list).
Axes = int | Sequence[int] | None


def _reduce(
    recording: Recording, operator: str, name: str, ndim: int, axes: Axes, *, keepdim: bool
) -> str:
    """Reduce a value with `ndim` axes over the given axes, or over all by default."""
    chosen: Sequence[int]
    if axes is None or axes == []:
        chosen = range(ndim)
    elif isinstance(axes, int):
        chosen = [axes]
    else:
        chosen = axes
    # ONNX takes the axes as a constant tensor.
    axes_name = recording.graph.constant([axis_of(axis, ndim) for axis in chosen], "int64")
    return recording.graph.add(operator, name, axes_name, keepdims=int(keepdim))


def _record_reduction(
    operator: str,
    recording: Recording,
    result: Tensor,
    a: Tensor,
    axes: Axes = None,
    keepdim: bool = False,
    **_: Any,
) -> str:
    name = recording.name(a, dtype_of(result))
    return _reduce(recording, operator, name, a.ndim, axes, keepdim=keepdim)


def _record_extreme(
    operator: str,
    place_operator: str,
    recording: Recording,
    result: Tensor,
    a: Tensor,
    axis: int | None = None,
    keepdim: bool = False,
) -> str | list[str]:
    """Record `max` or `min`: of all values, or of an axis together with the places."""
    extreme = _reduce(recording, operator, recording.name(a), a.ndim, axis, keepdim=keepdim)
    if axis is None:
        return extreme
    return [extreme, _record_place(place_operator, recording, result, a, axis, keepdim)]


def _record_place(
    operator: str,
    recording: Recording,
    result: Tensor,
    a: Tensor,
    axis: int | None = None,
    keepdim: bool = False,
) -> str:
    dtype = "int32" if dtype_of(a) == "bool" else None
    name = recording.name(a, dtype)
    if axis is None:
        name = recording.reshaped(name, shape_of(a), (a.numel(),))
        axis = 0
    place = axis_of(axis, a.ndim)
    return recording.graph.add(operator, name, axis=place, keepdims=int(keepdim))


def _record_quantifier(
    operator: str,
    recording: Recording,
    result: Tensor,
    a: Tensor,
    axes: Axes = None,
    keepdim: bool = False,
) -> str:
    """Record `any` or `all` as the largest or smallest of zeros and ones."""
    ones = recording.cast(recording.name(a, "bool"), "bool", "int32")
    extreme = _reduce(recording, operator, ones, a.ndim, axes, keepdim=keepdim)
    return recording.cast(extreme, "int32", "bool")


def _record_along_axis(
    operator: str, recording: Recording, result: Tensor, a: Tensor, axis: int, *_: Any
) -> str:
    name = recording.name(a, dtype_of(result))
    return recording.graph.add(operator, name, axis=axis_of(axis, a.ndim))


FORMS.update(
    {
        "sum": partial(_record_reduction, "ReduceSum"),
        "mean": partial(_record_reduction, "ReduceMean"),
        "prod": partial(_record_reduction, "ReduceProd"),
        "amax": partial(_record_reduction, "ReduceMax"),
        "amin": partial(_record_reduction, "ReduceMin"),
        "logsumexp": partial(_record_reduction, "ReduceLogSumExp"),
        "max": partial(_record_extreme, "ReduceMax", "ArgMax"),
        "min": partial(_record_extreme, "ReduceMin", "ArgMin"),
        "argmax": partial(_record_place, "ArgMax"),
        "argmin": partial(_record_place, "ArgMin"),
        "any": partial(_record_quantifier, "ReduceMax"),
        "all": partial(_record_quantifier, "ReduceMin"),
        "softmax": partial(_record_along_axis, "Softmax"),
        "_softmax": partial(_record_along_axis, "Softmax"),
        "log_softmax": partial(_record_along_axis, "LogSoftmax"),
        "_log_softmax": partial(_record_along_axis, "LogSoftmax"),
    }
)


@form_of("aminmax")
def _record_both_extremes(
    recording: Recording,
    result: tuple[Tensor, Tensor],
    a: Tensor,
    *,
    dim: int | None = None,
    keepdim: bool = False,
) -> list[str]:
    return [
        _reduce(recording, operator, recording.name(a), a.ndim, dim, keepdim=keepdim)
        for operator in ("ReduceMin", "ReduceMax")
    ]


@form_of("cumsum")
def _record_cumulative_sum(
    recording: Recording, result: Tensor, a: Tensor, axis: int, **_: Any
) -> str:
    place = recording.graph.constant(axis_of(axis, a.ndim), "int64")
    return recording.graph.add("CumSum", recording.name(a, dtype_of(result)), place)


@form_of("_safe_softmax")
def _record_safe_softmax(
    recording: Recording, result: Tensor, a: Tensor, axis: int, *_: Any, **__: Any
) -> str:
    shares = _record_along_axis("Softmax", recording, result, a, axis)
    # A row that contains only minus infinity has NaN here, and becomes zeros.
    is_nan = recording.graph.add("IsNaN", shares)
    zero = recording.name(0.0, dtype_of(result))
    return recording.graph.add("Where", is_nan, zero, shares)


@form_of("linalg_vector_norm")
def _record_norm(
    recording: Recording,
    result: Tensor,
    a: Tensor,
    order: float = 2,
    axes: Axes = None,
    keepdim: bool = False,
    **_: Any,
) -> str:
    if order not in (1, 2):
        raise recording.refused(f"a norm of order {order}")
    operator = f"ReduceL{int(order)}"
    name = recording.name(a, dtype_of(result))
    return _reduce(recording, operator, name, a.ndim, axes, keepdim=keepdim)
