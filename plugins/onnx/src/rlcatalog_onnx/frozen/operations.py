"""PyTorch's operations in ONNX's words: for each a function that adds nodes to a recording and returns their output.

Shapes are known numbers here. A function gets the recording, what PyTorch returned, and the operation's own arguments;
tensors among them are named by `recording.name`, which brings them into a dtype where one is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rlcatalog_onnx.frozen.torch import Recording

_Form = Callable[..., Any]
FORMS: dict[str, _Form] = {}


def _form(*names: str) -> Callable[[_Form], _Form]:
    def entered(function: _Form) -> _Form:
        FORMS.update(dict.fromkeys(names, function))
        return function

    return entered


def dtype_of(tensor: Any) -> str:
    """Return the name of a tensor's dtype."""
    return str(tensor.dtype).removeprefix("torch.")


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in tensor.shape)


def _axis(axis: int, ndim: int) -> int:
    return axis + ndim if axis < 0 else axis


# --- one number after the other -----------------------------------------------------------------------------------------


def _alike(operator: str) -> _Form:
    def form(r: Recording, out: Any, *args: Any, **_: Any) -> str:
        return r.graph.add(operator, *(r.name(x, dtype_of(out)) for x in args))

    return form


for _torch, _onnx, _arity in (
    ("tanh", "Tanh", 1), ("sigmoid", "Sigmoid", 1), ("exp", "Exp", 1), ("log", "Log", 1), ("sqrt", "Sqrt", 1),
    ("sin", "Sin", 1), ("cos", "Cos", 1), ("tan", "Tan", 1), ("atan", "Atan", 1), ("neg", "Neg", 1), ("abs", "Abs", 1),
    ("relu", "Relu", 1), ("floor", "Floor", 1), ("ceil", "Ceil", 1), ("round", "Round", 1), ("erf", "Erf", 1),
    ("reciprocal", "Reciprocal", 1), ("sign", "Sign", 1), ("maximum", "Max", 2), ("minimum", "Min", 2),
    ("logical_and", "And", 2), ("logical_or", "Or", 2), ("logical_not", "Not", 1),
):  # fmt: skip
    FORMS[_torch] = lambda r, out, *args, _form=_alike(_onnx), _n=_arity, **_: _form(r, out, *args[:_n])


def _compared(operator: str) -> _Form:
    def form(r: Recording, out: Any, a: Any, b: Any) -> str:
        dtype = r.common(a, b)
        if dtype == "bool":
            dtype = "int32"
        return r.cast(r.graph.add(operator, r.name(a, dtype), r.name(b, dtype)), "bool", dtype_of(out))

    return form


for _torch, _onnx in (("eq", "Equal"), ("lt", "Less"), ("gt", "Greater"), ("le", "LessOrEqual"), ("ge", "GreaterOrEqual")):
    FORMS[_torch] = _compared(_onnx)


@_form("ne")
def _ne(r: Recording, out: Any, a: Any, b: Any) -> str:
    dtype = r.common(a, b)
    dtype = "int32" if dtype == "bool" else dtype
    same = r.graph.add("Equal", r.name(a, dtype), r.name(b, dtype))
    return r.cast(r.graph.add("Not", same), "bool", dtype_of(out))


@_form("add")
def _add(r: Recording, out: Any, a: Any, b: Any, *, alpha: Any = 1, _operator: str = "Add") -> str:
    dtype = dtype_of(out)
    second = r.name(b, dtype)
    if alpha != 1:
        second = r.graph.add("Mul", second, r.name(alpha, dtype))
    return r.graph.add(_operator, r.name(a, dtype), second)


@_form("sub")
def _sub(r: Recording, out: Any, a: Any, b: Any, *, alpha: Any = 1) -> str:
    return _add(r, out, a, b, alpha=alpha, _operator="Sub")


@_form("rsub")
def _rsub(r: Recording, out: Any, a: Any, b: Any, alpha: Any = 1) -> str:
    return r.graph.add("Sub", r.name(b, dtype_of(out)), _times(r, a, alpha, dtype_of(out)))


@_form("mul")
def _mul(r: Recording, out: Any, a: Any, b: Any) -> str:
    dtype = dtype_of(out)
    if dtype == "bool":
        return r.graph.add("And", r.name(a, dtype), r.name(b, dtype))
    return _times(r, a, b, dtype)


def _times(r: Recording, a: Any, b: Any, dtype: str) -> str:
    if not isinstance(b, bool) and isinstance(b, int | float) and b == 1:
        return r.name(a, dtype)
    return r.graph.add("Mul", r.name(a, dtype), r.name(b, dtype))


@_form("div", "true_divide")
def _div(r: Recording, out: Any, a: Any, b: Any, *, rounding_mode: str | None = None) -> str:
    dtype = dtype_of(out)
    found = r.graph.add("Div", r.name(a, dtype), r.name(b, dtype))
    if rounding_mode is None or (rounding_mode == "trunc" and dtype.startswith("int")):
        return found
    if not dtype.startswith("float"):
        raise r.refused(f"div(rounding_mode={rounding_mode!r}) of {dtype}")
    if rounding_mode == "floor":
        return r.graph.add("Floor", found)
    zero = r.name(0, dtype)
    below = r.graph.add("Less", found, zero)
    return r.graph.add("Where", below, r.graph.add("Ceil", found), r.graph.add("Floor", found))


@_form("pow")
def _pow(r: Recording, out: Any, a: Any, b: Any) -> str:
    dtype = dtype_of(out)
    base = r.name(a, dtype)
    if not hasattr(b, "shape") and b == 2:
        return r.graph.add("Mul", base, base)
    return r.graph.add("Pow", base, r.name(b, dtype))


@_form("square")
def _square(r: Recording, out: Any, a: Any) -> str:
    return _pow(r, out, a, 2)


@_form("rsqrt")
def _rsqrt(r: Recording, out: Any, a: Any) -> str:
    return r.graph.add("Reciprocal", r.graph.add("Sqrt", r.name(a, dtype_of(out))))


@_form("log1p")
def _log1p(r: Recording, out: Any, a: Any) -> str:
    wide = r.name(a, "float64")
    return r.cast(r.graph.add("Log", r.graph.add("Add", wide, r.name(1.0, "float64"))), "float64", dtype_of(out))


@_form("expm1")
def _expm1(r: Recording, out: Any, a: Any) -> str:
    wide = r.graph.add("Exp", r.name(a, "float64"))
    return r.cast(r.graph.add("Sub", wide, r.name(1.0, "float64")), "float64", dtype_of(out))


@_form("addcmul")
def _addcmul(r: Recording, out: Any, a: Any, b: Any, c: Any, *, value: Any = 1) -> str:
    dtype = dtype_of(out)
    product = r.graph.add("Mul", r.name(b, dtype), r.name(c, dtype))
    if value != 1:
        product = r.graph.add("Mul", product, r.name(value, dtype))
    return r.graph.add("Add", r.name(a, dtype), product)


@_form("addcdiv")
def _addcdiv(r: Recording, out: Any, a: Any, b: Any, c: Any, *, value: Any = 1) -> str:
    dtype = dtype_of(out)
    ratio = r.graph.add("Div", r.name(b, dtype), r.name(c, dtype))
    if value != 1:
        ratio = r.graph.add("Mul", ratio, r.name(value, dtype))
    return r.graph.add("Add", r.name(a, dtype), ratio)


@_form("lerp")
def _lerp(r: Recording, out: Any, a: Any, b: Any, weight: Any) -> str:
    dtype = dtype_of(out)
    start = r.name(a, dtype)
    way = r.graph.add("Sub", r.name(b, dtype), start)
    return r.graph.add("Add", start, r.graph.add("Mul", way, r.name(weight, dtype)))


@_form("clamp", "hardtanh")
def _clamp(r: Recording, out: Any, a: Any, low: Any = None, high: Any = None, **kwargs: Any) -> str:
    low, high = kwargs.get("min", low), kwargs.get("max", high)
    dtype, found = dtype_of(out), r.name(a, dtype_of(out))
    if low is not None:
        found = r.graph.add("Max", found, r.name(low, dtype))
    return found if high is None else r.graph.add("Min", found, r.name(high, dtype))


@_form("clamp_min")
def _clamp_min(r: Recording, out: Any, a: Any, low: Any) -> str:
    return _clamp(r, out, a, low)


@_form("clamp_max")
def _clamp_max(r: Recording, out: Any, a: Any, high: Any) -> str:
    return _clamp(r, out, a, None, high)


@_form("where")
def _where(r: Recording, out: Any, condition: Any, a: Any, b: Any) -> str:
    dtype = dtype_of(out)
    return r.graph.add("Where", r.name(condition, "bool"), r.name(a, dtype), r.name(b, dtype))


@_form("masked_fill")
def _masked_fill(r: Recording, out: Any, a: Any, mask: Any, value: Any) -> str:
    dtype = dtype_of(out)
    return r.graph.add("Where", r.name(mask, "bool"), r.name(value, dtype), r.name(a, dtype))


@_form("bitwise_and")
def _bitwise_and(r: Recording, out: Any, a: Any, b: Any) -> str:
    return r.graph.add("And" if dtype_of(out) == "bool" else "BitwiseAnd", r.name(a, dtype_of(out)), r.name(b, dtype_of(out)))


@_form("bitwise_or")
def _bitwise_or(r: Recording, out: Any, a: Any, b: Any) -> str:
    return r.graph.add("Or" if dtype_of(out) == "bool" else "BitwiseOr", r.name(a, dtype_of(out)), r.name(b, dtype_of(out)))


@_form("bitwise_not")
def _bitwise_not(r: Recording, out: Any, a: Any) -> str:
    return r.graph.add("Not" if dtype_of(out) == "bool" else "BitwiseNot", r.name(a, dtype_of(out)))


@_form("isnan")
def _isnan(r: Recording, out: Any, a: Any) -> str:
    return r.graph.add("IsNaN", r.name(a))


@_form("log_sigmoid_forward")
def _log_sigmoid(r: Recording, out: Any, a: Any) -> list[str]:
    # The smaller of x and 0, less log(1 + exp(-|x|)): no number is too large for it.
    dtype = dtype_of(out[0])
    x = r.name(a, dtype)
    inner = r.graph.add("Exp", r.graph.add("Neg", r.graph.add("Abs", x)))
    log = r.graph.add("Log", r.graph.add("Add", inner, r.name(1.0, dtype)))
    return [r.graph.add("Sub", r.graph.add("Min", x, r.name(0.0, dtype)), log)]


@_form("softplus")
def _softplus(r: Recording, out: Any, a: Any, beta: Any = 1, threshold: Any = 20) -> str:
    dtype = dtype_of(out)
    x = _times(r, a, beta, dtype)
    inner = r.graph.add("Exp", r.graph.add("Neg", r.graph.add("Abs", x)))
    log = r.graph.add("Log", r.graph.add("Add", inner, r.name(1.0, dtype)))
    found = r.graph.add("Add", r.graph.add("Max", x, r.name(0.0, dtype)), log)
    return found if beta == 1 else r.graph.add("Div", found, r.name(beta, dtype))


@_form("elu")
def _elu(r: Recording, out: Any, a: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> str:
    # SELU and CELU come as this one, too.
    dtype = dtype_of(out)
    x = r.name(a, dtype)
    small = r.graph.add("Exp", _scaled(r, r.graph.add("Min", x, r.name(0.0, dtype)), input_scale, dtype))
    below = _scaled(r, r.graph.add("Sub", small, r.name(1.0, dtype)), alpha * scale, dtype)
    above = _scaled(r, r.graph.add("Max", x, r.name(0.0, dtype)), scale, dtype)
    return r.graph.add("Add", above, below)


def _scaled(r: Recording, name: str, factor: Any, dtype: str) -> str:
    return name if factor == 1 else r.graph.add("Mul", name, r.name(float(factor), dtype))


@_form("leaky_relu")
def _leaky_relu(r: Recording, out: Any, a: Any, slope: Any = 0.01) -> str:
    return r.graph.add("LeakyRelu", r.name(a, dtype_of(out)), alpha=float(slope))


@_form("silu")
def _silu(r: Recording, out: Any, a: Any) -> str:
    x = r.name(a, dtype_of(out))
    return r.graph.add("Mul", x, r.graph.add("Sigmoid", x))


@_form("gelu")
def _gelu(r: Recording, out: Any, a: Any, *, approximate: str = "none") -> str:
    dtype = dtype_of(out)
    x = r.name(a, dtype)
    if approximate == "none":
        inner = r.graph.add("Erf", r.graph.add("Mul", x, r.name(1 / math.sqrt(2), dtype)))
    else:
        cube = r.graph.add("Mul", r.graph.add("Mul", x, x), x)
        sum_ = r.graph.add("Add", x, r.graph.add("Mul", cube, r.name(0.044715, dtype)))
        inner = r.graph.add("Tanh", r.graph.add("Mul", sum_, r.name(math.sqrt(2 / math.pi), dtype)))
    return r.graph.add("Mul", _scaled(r, x, 0.5, dtype), r.graph.add("Add", inner, r.name(1.0, dtype)))


@_form("hardsigmoid")
def _hardsigmoid(r: Recording, out: Any, a: Any) -> str:
    return r.graph.add("HardSigmoid", r.name(a, dtype_of(out)), alpha=1 / 6, beta=0.5)


@_form("hardswish")
def _hardswish(r: Recording, out: Any, a: Any) -> str:
    return r.graph.add("HardSwish", r.name(a, dtype_of(out)))


# --- the same numbers ---------------------------------------------------------------------------------------------------


@_form("alias", "detach", "clone", "contiguous", "lift_fresh", "lift_fresh_copy", "positive")
def _same(r: Recording, out: Any, a: Any, **_: Any) -> str:
    return r.name(a)


@_form("_to_copy", "_to")
def _to_copy(r: Recording, out: Any, a: Any, **_: Any) -> str:
    return r.name(a, dtype_of(out))


@_form("copy")
def _copy(r: Recording, out: Any, a: Any, source: Any, non_blocking: bool = False) -> str:
    found = r.name(source, dtype_of(out))
    if _shape(source) == _shape(out):
        return found
    return r.graph.add("Expand", found, r.graph.constant(_shape(out), "int64"))


@_form("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "flatten", "_reshape_alias", "unflatten")
def _view(r: Recording, out: Any, a: Any, *_: Any) -> str:
    return r.reshaped(r.name(a), _shape(a), _shape(out))


@_form("expand")
def _expand(r: Recording, out: Any, a: Any, size: Any, **_: Any) -> str:
    if _shape(a) == _shape(out):
        return r.name(a)
    return r.graph.add("Expand", r.name(a), r.graph.constant(_shape(out), "int64"))


@_form("repeat")
def _repeat(r: Recording, out: Any, a: Any, repeats: Sequence[int]) -> str:
    whole = (*[1] * (len(repeats) - a.ndim), *_shape(a))
    return r.graph.add("Tile", r.reshaped(r.name(a), _shape(a), whole), r.graph.constant(list(repeats), "int64"))


@_form("t")
def _t(r: Recording, out: Any, a: Any) -> str:
    if a.ndim < 2:
        return r.name(a)
    return r.turned(a) or r.graph.add("Transpose", r.name(a), perm=[1, 0])


@_form("transpose")
def _transpose(r: Recording, out: Any, a: Any, first: int, second: int) -> str:
    perm = list(range(a.ndim))
    first, second = _axis(first, a.ndim), _axis(second, a.ndim)
    perm[first], perm[second] = second, first
    return r.graph.add("Transpose", r.name(a), perm=perm)


@_form("permute")
def _permute(r: Recording, out: Any, a: Any, dims: Sequence[int]) -> str:
    perm = [_axis(axis, a.ndim) for axis in dims]
    return r.name(a) if perm == list(range(a.ndim)) else r.graph.add("Transpose", r.name(a), perm=perm)


@_form("select")
def _select(r: Recording, out: Any, a: Any, axis: int, index: int) -> str:
    axis = _axis(axis, a.ndim)
    if a.shape[axis] == 1:
        return r.reshaped(r.name(a), _shape(a), _shape(out))
    return r.graph.add("Gather", r.name(a), r.graph.constant(_axis(index, a.shape[axis]), "int64"), axis=axis)


@_form("slice")
def _slice(r: Recording, out: Any, a: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> str:
    axis = _axis(axis, a.ndim)
    size = int(a.shape[axis])
    start, stop, step = slice(start, end, step).indices(size)
    if (start, stop, step) == (0, size, 1):
        return r.name(a)
    bounds = [r.graph.constant([value], "int64") for value in (start, stop, axis, step)]
    return r.graph.add("Slice", r.name(a), *bounds)


@_form("split_with_sizes", "split")
def _split(r: Recording, out: Any, a: Any, sizes: Any, axis: int = 0) -> list[str]:
    axis = _axis(axis, a.ndim)
    lengths = [int(part.shape[axis]) for part in out]
    if len(lengths) == 1:
        return [r.name(a)]
    return r.graph.several(len(lengths), "Split", r.name(a), r.graph.constant(lengths, "int64"), axis=axis)


@_form("chunk", "unsafe_split")
def _chunk(r: Recording, out: Any, a: Any, count: int, axis: int = 0) -> list[str]:
    return _split(r, out, a, count, axis)


@_form("unbind")
def _unbind(r: Recording, out: Any, a: Any, axis: int = 0) -> list[str]:
    return [_select(r, part, a, axis, i) for i, part in enumerate(out)]


@_form("cat")
def _cat(r: Recording, out: Any, parts: Sequence[Any], axis: int = 0) -> str:
    named = [r.name(part, dtype_of(out)) for part in parts if part.shape != (0,)]
    return named[0] if len(named) == 1 else r.graph.add("Concat", *named, axis=_axis(axis, out.ndim))


@_form("stack")
def _stack(r: Recording, out: Any, parts: Sequence[Any], axis: int = 0) -> str:
    axis = _axis(axis, out.ndim)
    shape = (*_shape(out)[:axis], 1, *_shape(out)[axis + 1 :])
    named = [r.reshaped(r.name(part, dtype_of(out)), _shape(part), shape) for part in parts]
    return named[0] if len(named) == 1 else r.graph.add("Concat", *named, axis=axis)


@_form("constant_pad_nd")
def _pad(r: Recording, out: Any, a: Any, pads: Sequence[int], value: Any = 0) -> str:
    before, after = [0] * a.ndim, [0] * a.ndim
    for i in range(len(pads) // 2):
        before[a.ndim - 1 - i], after[a.ndim - 1 - i] = int(pads[2 * i]), int(pads[2 * i + 1])
    if not any(before + after):
        return r.name(a)
    dtype = dtype_of(out)
    return r.graph.add("Pad", r.name(a), r.graph.constant(before + after, "int64"), r.name(value, dtype))


@_form("index_select")
def _index_select(r: Recording, out: Any, a: Any, axis: int, index: Any) -> str:
    return r.graph.add("Gather", r.name(a), r.name(index), axis=_axis(axis, a.ndim))


@_form("gather")
def _gather(r: Recording, out: Any, a: Any, axis: int, index: Any, **_: Any) -> str:
    return r.graph.add("GatherElements", r.name(a), r.name(index), axis=_axis(axis, a.ndim))


@_form("embedding")
def _embedding(r: Recording, out: Any, weight: Any, indices: Any, *_: Any, **__: Any) -> str:
    return r.graph.add("Gather", r.name(weight), r.name(indices), axis=0)


@_form("index")
def _index(r: Recording, out: Any, a: Any, indices: Sequence[Any]) -> str:
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1 or dtype_of(given[0][1]) == "bool":
        raise r.refused("indexing with several tensors, or with booleans")
    axis, index = given[0]
    size = r.graph.constant(int(a.shape[axis]), "int64")
    places = r.name(index, "int64")
    places = r.graph.add("Where", r.graph.add("Less", places, r.name(0, "int64")), r.graph.add("Add", places, size), places)
    return r.graph.add("Gather", r.name(a), places, axis=axis)


# --- many numbers into one ----------------------------------------------------------------------------------------------


def _axes(axes: Any, ndim: int) -> list[int]:
    if axes is None or axes == []:
        return list(range(ndim))
    return [_axis(axis, ndim) for axis in ([axes] if isinstance(axes, int) else axes)]


def _reduced(operator: str) -> _Form:
    def form(r: Recording, out: Any, a: Any, axes: Any = None, keepdim: bool = False, **_: Any) -> str:
        found, given = r.name(a, dtype_of(out)), _axes(axes, a.ndim)
        return r.graph.add(operator, found, r.graph.constant(given, "int64"), keepdims=int(keepdim))

    return form


for _torch, _onnx in (
    ("sum", "ReduceSum"), ("mean", "ReduceMean"), ("amax", "ReduceMax"), ("amin", "ReduceMin"), ("prod", "ReduceProd"),
    ("logsumexp", "ReduceLogSumExp"),
):  # fmt: skip
    FORMS[_torch] = _reduced(_onnx)


def _extreme(operator: str, place: str) -> _Form:
    def form(r: Recording, out: Any, a: Any, axis: Any = None, keepdim: bool = False) -> Any:
        if axis is None:
            return _reduced(operator)(r, out, a)
        axis = _axis(axis, a.ndim)
        values, places = out
        found = r.graph.add(operator, r.name(a), r.graph.constant([axis], "int64"), keepdims=int(keepdim))
        return [found, r.graph.add(place, r.name(a), axis=axis, keepdims=int(keepdim))]

    return form


FORMS["max"], FORMS["min"] = _extreme("ReduceMax", "ArgMax"), _extreme("ReduceMin", "ArgMin")


def _place(operator: str) -> _Form:
    def form(r: Recording, out: Any, a: Any, axis: Any = None, keepdim: bool = False) -> str:
        found = r.name(a, "int32" if dtype_of(a) == "bool" else None)
        if axis is None:
            found, axis = r.reshaped(found, _shape(a), (a.numel(),)), 0
        else:
            axis = _axis(axis, a.ndim)
        return r.graph.add(operator, found, axis=axis, keepdims=int(keepdim))

    return form


FORMS["argmax"], FORMS["argmin"] = _place("ArgMax"), _place("ArgMin")


def _whether(operator: str) -> _Form:
    def form(r: Recording, out: Any, a: Any, axes: Any = None, keepdim: bool = False) -> str:
        found = r.cast(r.name(a, "bool"), "bool", "int32")
        found = r.graph.add(operator, found, r.graph.constant(_axes(axes, a.ndim), "int64"), keepdims=int(keepdim))
        return r.cast(found, "int32", "bool")

    return form


FORMS["any"], FORMS["all"] = _whether("ReduceMax"), _whether("ReduceMin")


@_form("aminmax")
def _aminmax(r: Recording, out: Any, a: Any, *, dim: Any = None, keepdim: bool = False) -> list[str]:
    found, axes = r.name(a), r.graph.constant(_axes(dim, a.ndim), "int64")
    return [r.graph.add(operator, found, axes, keepdims=int(keepdim)) for operator in ("ReduceMin", "ReduceMax")]


@_form("cumsum")
def _cumsum(r: Recording, out: Any, a: Any, axis: int, **_: Any) -> str:
    return r.graph.add("CumSum", r.name(a, dtype_of(out)), r.graph.constant(_axis(axis, a.ndim), "int64"))


def _over(operator: str) -> _Form:
    def form(r: Recording, out: Any, a: Any, axis: int, *_: Any) -> str:
        return r.graph.add(operator, r.name(a, dtype_of(out)), axis=_axis(axis, a.ndim))

    return form


for _torch in ("_softmax", "softmax"):
    FORMS[_torch] = _over("Softmax")
for _torch in ("_log_softmax", "log_softmax"):
    FORMS[_torch] = _over("LogSoftmax")


@_form("linalg_vector_norm")
def _norm(r: Recording, out: Any, a: Any, order: Any = 2, axes: Any = None, keepdim: bool = False, **_: Any) -> str:
    if order not in (1, 2):
        raise r.refused(f"a norm of order {order}")
    axes = r.graph.constant(_axes(axes, a.ndim), "int64")
    return r.graph.add(f"ReduceL{int(order)}", r.name(a, dtype_of(out)), axes, keepdims=int(keepdim))


# --- layers -------------------------------------------------------------------------------------------------------------


@_form("addmm")
def _addmm(r: Recording, out: Any, bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> str:
    return r.graph.add("Gemm", r.name(a), r.name(b), r.name(bias), alpha=float(alpha), beta=float(beta))


@_form("mm", "bmm", "matmul", "mv", "dot")
def _mm(r: Recording, out: Any, a: Any, b: Any) -> str:
    return r.graph.add("MatMul", r.name(a), r.name(b))


@_form("linear")
def _linear(r: Recording, out: Any, a: Any, weight: Any, bias: Any = None) -> str:
    found = r.graph.add("MatMul", r.name(a), r.graph.add("Transpose", r.name(weight), perm=[1, 0]))
    return found if bias is None else r.graph.add("Add", found, r.name(bias))


@_form("baddbmm")
def _baddbmm(r: Recording, out: Any, bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> str:
    dtype = dtype_of(out)
    found = _scaled(r, r.graph.add("MatMul", r.name(a), r.name(b)), alpha, dtype)
    return found if beta == 0 else r.graph.add("Add", found, _scaled(r, r.name(bias), beta, dtype))


@_form("native_layer_norm")
def _layer_norm(r: Recording, out: Any, a: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> list[str]:
    dtype = dtype_of(out[0])
    scale = r.graph.constant(np.ones(tuple(shape)), dtype) if weight is None else r.name(weight)
    more = [] if bias is None else [r.name(bias)]
    found = r.graph.add("LayerNormalization", r.name(a), scale, *more, axis=-len(shape), epsilon=float(eps))
    return [found]


@_form("native_group_norm")
def _group_norm(
    r: Recording, out: Any, a: Any, weight: Any, bias: Any, n: int, c: int, size: int, groups: int, eps: float
) -> list[str]:
    dtype = dtype_of(out[0])
    grouped = r.reshaped(r.name(a), _shape(a), (n, groups, -1))
    ones, zeros = (r.graph.constant(np.full(groups, value), dtype) for value in (1, 0))
    found = r.graph.add("InstanceNormalization", grouped, ones, zeros, epsilon=float(eps))
    found = r.graph.add("Reshape", found, r.graph.constant(_shape(a), "int64"))
    shape = (c, *[1] * (a.ndim - 2))
    for operator, part in (("Mul", weight), ("Add", bias)):
        if part is not None:
            found = r.graph.add(operator, found, r.reshaped(r.name(part), _shape(part), shape))
    return [found]


@_form("native_batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit")
def _batch_norm(r: Recording, out: Any, a: Any, weight: Any, bias: Any, mean: Any, var: Any, *more: Any) -> list[str]:
    training, eps = (False, more[-1]) if len(more) == 2 else (more[0], more[-1])
    if training or mean is None:
        raise r.refused("batch normalisation over the batch")
    dtype, shape = dtype_of(out[0]), (int(a.shape[1]), *[1] * (a.ndim - 2))
    centred = r.graph.add("Sub", r.name(a), r.reshaped(r.name(mean), _shape(mean), shape))
    spread = r.graph.add("Sqrt", r.graph.add("Add", r.name(var), r.name(float(eps), dtype)))
    found = r.graph.add("Div", centred, r.reshaped(spread, _shape(var), shape))
    for operator, part in (("Mul", weight), ("Add", bias)):
        if part is not None:
            found = r.graph.add(operator, found, r.reshaped(r.name(part), _shape(part), shape))
    return [found]


@_form("convolution", "mkldnn_convolution")
def _convolution(
    r: Recording, out: Any, a: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool = False, output_padding: Any = (), groups: int = 1,
) -> str:  # fmt: skip
    if transposed:
        raise r.refused("transposed convolutions")
    ndim = a.ndim - 2
    r.convolves = True
    strides, pads, dilations = (
        [int(n) for n in given] * (ndim if len(given) == 1 else 1) for given in (stride, padding, dilation)
    )
    more = [] if bias is None else [r.name(bias)]
    return r.graph.add("Conv", r.name(a), r.name(weight), *more, strides=strides, pads=[*pads, *pads],
                       dilations=dilations, group=int(groups))  # fmt: skip


def _pair(given: Any, ndim: int) -> list[int]:
    given = [given] if isinstance(given, int) else list(given)
    return [int(n) for n in given] * (ndim if len(given) == 1 else 1)


@_form("max_pool2d_with_indices", "max_pool2d")
def _max_pool(
    r: Recording, out: Any, a: Any, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,),
    ceil_mode: bool = False,
) -> Any:  # fmt: skip
    kernel = _pair(kernel, 2)
    pads = _pair(padding, 2)
    found = r.graph.add(
        "MaxPool", r.name(a), kernel_shape=kernel, strides=_pair(stride, 2) if stride else kernel, pads=[*pads, *pads],
        dilations=_pair(dilation, 2), ceil_mode=int(ceil_mode),
    )  # fmt: skip
    return [found] if isinstance(out, tuple) else found


@_form("avg_pool2d")
def _avg_pool(
    r: Recording, out: Any, a: Any, kernel: Any, stride: Any = (), padding: Any = (0,), ceil_mode: bool = False,
    count_include_pad: bool = True, divisor: Any = None,
) -> str:  # fmt: skip
    if divisor is not None:
        raise r.refused("avg_pool2d() with a divisor of its own")
    kernel, pads = _pair(kernel, 2), _pair(padding, 2)
    return r.graph.add(
        "AveragePool", r.name(a), kernel_shape=kernel, strides=_pair(stride, 2) if stride else kernel,
        pads=[*pads, *pads], ceil_mode=int(ceil_mode), count_include_pad=int(count_include_pad),
    )  # fmt: skip

