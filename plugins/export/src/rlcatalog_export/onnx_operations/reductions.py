"""Reductions."""

from __future__ import annotations

from functools import partial
from typing import Any

from rlcatalog_export.onnx_operations.table import (
    FORMS,
    Recording,
    axis_of,
    dtype_of,
    form_of,
    shape_of,
)


def _reduce(r: Recording, operator: str, name: str, ndim: int, axes: Any, keepdim: bool) -> str:
    """Reduce a value with `ndim` axes over the given axes, or over all by default."""
    axes = range(ndim) if axes is None or axes == [] else [axes] if isinstance(axes, int) else axes
    places = r.graph.constant([axis_of(axis, ndim) for axis in axes], "int64")
    return r.graph.add(operator, name, places, keepdims=int(keepdim))


def _reduction(
    operator: str, r: Recording, out: Any, a: Any, axes: Any = None, keepdim: bool = False, **_: Any
) -> str:
    return _reduce(r, operator, r.name(a, dtype_of(out)), a.ndim, axes, keepdim)


def _extreme(
    operator: str,
    place: str,
    r: Recording,
    out: Any,
    a: Any,
    axis: Any = None,
    keepdim: bool = False,
) -> Any:
    extreme = _reduce(r, operator, r.name(a), a.ndim, axis, keepdim)
    return extreme if axis is None else [extreme, _place(place, r, out, a, axis, keepdim)]


def _place(
    operator: str, r: Recording, out: Any, a: Any, axis: Any = None, keepdim: bool = False
) -> str:
    name = r.name(a, "int32" if dtype_of(a) == "bool" else None)
    if axis is None:
        name, axis = r.reshaped(name, shape_of(a), (a.numel(),)), 0
    return r.graph.add(operator, name, axis=axis_of(axis, a.ndim), keepdims=int(keepdim))


def _whether(
    operator: str, r: Recording, out: Any, a: Any, axes: Any = None, keepdim: bool = False
) -> str:
    ones = r.cast(r.name(a, "bool"), "bool", "int32")
    return r.cast(_reduce(r, operator, ones, a.ndim, axes, keepdim), "int32", "bool")


def _along(operator: str, r: Recording, out: Any, a: Any, axis: int, *_: Any) -> str:
    return r.graph.add(operator, r.name(a, dtype_of(out)), axis=axis_of(axis, a.ndim))


FORMS |= {
    name: partial(_reduction, operator)
    for name, operator in {
        "sum": "ReduceSum",
        "mean": "ReduceMean",
        "prod": "ReduceProd",
        "amax": "ReduceMax",
        "amin": "ReduceMin",
        "logsumexp": "ReduceLogSumExp",
    }.items()
}
FORMS.update(
    {
        "max": partial(_extreme, "ReduceMax", "ArgMax"),
        "min": partial(_extreme, "ReduceMin", "ArgMin"),
        "argmax": partial(_place, "ArgMax"),
        "argmin": partial(_place, "ArgMin"),
        "any": partial(_whether, "ReduceMax"),
        "all": partial(_whether, "ReduceMin"),
        "softmax": partial(_along, "Softmax"),
        "_softmax": partial(_along, "Softmax"),
        "log_softmax": partial(_along, "LogSoftmax"),
        "_log_softmax": partial(_along, "LogSoftmax"),
        "aminmax": lambda r, out, a, *, dim=None, keepdim=False: [
            _reduce(r, operator, r.name(a), a.ndim, dim, keepdim)
            for operator in ("ReduceMin", "ReduceMax")
        ],
        "cumsum": lambda r, out, a, axis, **_: r.graph.add(
            "CumSum", r.name(a, dtype_of(out)), r.graph.constant(axis_of(axis, a.ndim), "int64")
        ),
    }
)


@form_of("_safe_softmax")
def _safe_softmax(r: Recording, out: Any, a: Any, axis: int, *_: Any, **__: Any) -> str:
    # A row that contains only minus infinity becomes zeros.
    shares = _along("Softmax", r, out, a, axis)
    return r.graph.add("Where", r.graph.add("IsNaN", shares), r.name(0.0, dtype_of(out)), shares)


@form_of("linalg_vector_norm")
def _norm(
    r: Recording,
    out: Any,
    a: Any,
    order: Any = 2,
    axes: Any = None,
    keepdim: bool = False,
    **_: Any,
) -> str:
    if order not in (1, 2):
        raise r.refused(f"a norm of order {order}")
    return _reduce(r, f"ReduceL{int(order)}", r.name(a, dtype_of(out)), a.ndim, axes, keepdim)
