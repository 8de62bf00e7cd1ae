"""Forms of what makes one number of many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlcatalog_export.frozen.forms.common import FORMS, Form, axis_of, dtype_of, form_of, shape_of

if TYPE_CHECKING:
    from rlcatalog_export.frozen.torch.recording import Recording


def _axes(axes: Any, ndim: int) -> list[int]:
    if axes is None or axes == []:
        return list(range(ndim))
    return [axis_of(axis, ndim) for axis in ([axes] if isinstance(axes, int) else axes)]


def _reduced(operator: str) -> Form:
    def made(r: Recording, out: Any, a: Any, axes: Any = None, keepdim: bool = False, **_: Any) -> str:
        found, given = r.name(a, dtype_of(out)), _axes(axes, a.ndim)
        return r.graph.add(operator, found, r.graph.constant(given, "int64"), keepdims=int(keepdim))

    return made


for _torch, _onnx in (
    ("sum", "ReduceSum"), ("mean", "ReduceMean"), ("amax", "ReduceMax"), ("amin", "ReduceMin"), ("prod", "ReduceProd"),
    ("logsumexp", "ReduceLogSumExp"),
):  # fmt: skip
    FORMS[_torch] = _reduced(_onnx)


def _extreme(operator: str, place: str) -> Form:
    def made(r: Recording, out: Any, a: Any, axis: Any = None, keepdim: bool = False) -> Any:
        if axis is None:
            return _reduced(operator)(r, out, a)
        axis = axis_of(axis, a.ndim)
        found = r.graph.add(operator, r.name(a), r.graph.constant([axis], "int64"), keepdims=int(keepdim))
        return [found, r.graph.add(place, r.name(a), axis=axis, keepdims=int(keepdim))]

    return made


FORMS["max"], FORMS["min"] = _extreme("ReduceMax", "ArgMax"), _extreme("ReduceMin", "ArgMin")


def _place(operator: str) -> Form:
    def made(r: Recording, out: Any, a: Any, axis: Any = None, keepdim: bool = False) -> str:
        found = r.name(a, "int32" if dtype_of(a) == "bool" else None)
        if axis is None:
            found, axis = r.reshaped(found, shape_of(a), (a.numel(),)), 0
        else:
            axis = axis_of(axis, a.ndim)
        return r.graph.add(operator, found, axis=axis, keepdims=int(keepdim))

    return made


FORMS["argmax"], FORMS["argmin"] = _place("ArgMax"), _place("ArgMin")


def _whether(operator: str) -> Form:
    def made(r: Recording, out: Any, a: Any, axes: Any = None, keepdim: bool = False) -> str:
        found = r.cast(r.name(a, "bool"), "bool", "int32")
        found = r.graph.add(operator, found, r.graph.constant(_axes(axes, a.ndim), "int64"), keepdims=int(keepdim))
        return r.cast(found, "int32", "bool")

    return made


FORMS["any"], FORMS["all"] = _whether("ReduceMax"), _whether("ReduceMin")


@form_of("aminmax")
def _aminmax(r: Recording, out: Any, a: Any, *, dim: Any = None, keepdim: bool = False) -> list[str]:
    found, axes = r.name(a), r.graph.constant(_axes(dim, a.ndim), "int64")
    return [r.graph.add(operator, found, axes, keepdims=int(keepdim)) for operator in ("ReduceMin", "ReduceMax")]


@form_of("cumsum")
def _cumsum(r: Recording, out: Any, a: Any, axis: int, **_: Any) -> str:
    return r.graph.add("CumSum", r.name(a, dtype_of(out)), r.graph.constant(axis_of(axis, a.ndim), "int64"))


def _over(operator: str) -> Form:
    def made(r: Recording, out: Any, a: Any, axis: int, *_: Any) -> str:
        return r.graph.add(operator, r.name(a, dtype_of(out)), axis=axis_of(axis, a.ndim))

    return made


for _torch in ("_softmax", "softmax"):
    FORMS[_torch] = _over("Softmax")
for _torch in ("_log_softmax", "log_softmax"):
    FORMS[_torch] = _over("LogSoftmax")


@form_of("_safe_softmax")
def _safe_softmax(r: Recording, out: Any, a: Any, axis: int, *_: Any, **__: Any) -> str:
    # A row of nothing but minus infinities becomes zeros.
    found = FORMS["softmax"](r, out, a, axis)
    return r.graph.add("Where", r.graph.add("IsNaN", found), r.name(0.0, dtype_of(out)), found)


@form_of("linalg_vector_norm")
def _norm(r: Recording, out: Any, a: Any, order: Any = 2, axes: Any = None, keepdim: bool = False, **_: Any) -> str:
    if order not in (1, 2):
        raise r.refused(f"a norm of order {order}")
    axes = r.graph.constant(_axes(axes, a.ndim), "int64")
    return r.graph.add(f"ReduceL{int(order)}", r.name(a, dtype_of(out)), axes, keepdims=int(keepdim))
