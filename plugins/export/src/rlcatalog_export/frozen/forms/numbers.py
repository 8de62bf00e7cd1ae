"""Forms of what is done to one number after the other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rlcatalog_export.frozen.forms.common import FORMS, Form, dtype_of, form_of, scaled, times

if TYPE_CHECKING:
    from rlcatalog_export.frozen.torch.recording import Recording


def _alike(operator: str, arity: int) -> Form:
    def made(r: Recording, out: Any, *args: Any, **_: Any) -> str:
        return r.graph.add(operator, *(r.name(x, dtype_of(out)) for x in args[:arity]))

    return made


for _torch, _onnx, _arity in (
    ("tanh", "Tanh", 1), ("sigmoid", "Sigmoid", 1), ("exp", "Exp", 1), ("log", "Log", 1), ("sqrt", "Sqrt", 1),
    ("sin", "Sin", 1), ("cos", "Cos", 1), ("tan", "Tan", 1), ("atan", "Atan", 1), ("neg", "Neg", 1), ("abs", "Abs", 1),
    ("relu", "Relu", 1), ("floor", "Floor", 1), ("ceil", "Ceil", 1), ("round", "Round", 1), ("erf", "Erf", 1),
    ("reciprocal", "Reciprocal", 1), ("sign", "Sign", 1), ("maximum", "Max", 2), ("minimum", "Min", 2),
    ("logical_and", "And", 2), ("logical_or", "Or", 2), ("logical_not", "Not", 1),
):  # fmt: skip
    FORMS[_torch] = _alike(_onnx, _arity)


def _compared(operator: str) -> Form:
    def made(r: Recording, out: Any, a: Any, b: Any) -> str:
        dtype = r.common(a, b)
        if dtype == "bool":
            dtype = "int32"
        return r.cast(r.graph.add(operator, r.name(a, dtype), r.name(b, dtype)), "bool", dtype_of(out))

    return made


for _torch, _onnx in (
    ("eq", "Equal"),
    ("lt", "Less"),
    ("gt", "Greater"),
    ("le", "LessOrEqual"),
    ("ge", "GreaterOrEqual"),
):
    FORMS[_torch] = _compared(_onnx)


@form_of("ne")
def _ne(r: Recording, out: Any, a: Any, b: Any) -> str:
    dtype = r.common(a, b)
    dtype = "int32" if dtype == "bool" else dtype
    same = r.graph.add("Equal", r.name(a, dtype), r.name(b, dtype))
    return r.cast(r.graph.add("Not", same), "bool", dtype_of(out))


@form_of("add")
def _add(r: Recording, out: Any, a: Any, b: Any, *, alpha: Any = 1, _operator: str = "Add") -> str:
    dtype = dtype_of(out)
    second = r.name(b, dtype)
    if alpha != 1:
        second = r.graph.add("Mul", second, r.name(alpha, dtype))
    return r.graph.add(_operator, r.name(a, dtype), second)


@form_of("sub")
def _sub(r: Recording, out: Any, a: Any, b: Any, *, alpha: Any = 1) -> str:
    return _add(r, out, a, b, alpha=alpha, _operator="Sub")


@form_of("rsub")
def _rsub(r: Recording, out: Any, a: Any, b: Any, alpha: Any = 1) -> str:
    return r.graph.add("Sub", r.name(b, dtype_of(out)), times(r, a, alpha, dtype_of(out)))


@form_of("mul")
def _mul(r: Recording, out: Any, a: Any, b: Any) -> str:
    dtype = dtype_of(out)
    if dtype == "bool":
        return r.graph.add("And", r.name(a, dtype), r.name(b, dtype))
    return times(r, a, b, dtype)


@form_of("div", "true_divide")
def _div(r: Recording, out: Any, a: Any, b: Any, *, rounding_mode: str | None = None) -> str:
    dtype = dtype_of(out)
    found = r.graph.add("Div", r.name(a, dtype), r.name(b, dtype))
    if rounding_mode is None or (rounding_mode == "trunc" and dtype.startswith("int")):
        return found
    if not dtype.startswith("float"):
        raise r.refused(f"div(rounding_mode={rounding_mode!r}) of {dtype}")
    if rounding_mode == "floor":
        return r.graph.add("Floor", found)
    return _cut(r, found, dtype)


def _cut(r: Recording, name: str, dtype: str) -> str:
    below = r.graph.add("Less", name, r.name(0, dtype))
    return r.graph.add("Where", below, r.graph.add("Ceil", name), r.graph.add("Floor", name))


@form_of("trunc", "fix")
def _trunc(r: Recording, out: Any, a: Any) -> str:
    return _cut(r, r.name(a, dtype_of(out)), dtype_of(out))


@form_of("pow")
def _pow(r: Recording, out: Any, a: Any, b: Any) -> str:
    dtype = dtype_of(out)
    base = r.name(a, dtype)
    if not hasattr(b, "shape") and b == 2:
        return r.graph.add("Mul", base, base)
    return r.graph.add("Pow", base, r.name(b, dtype))


@form_of("square")
def _square(r: Recording, out: Any, a: Any) -> str:
    return _pow(r, out, a, 2)


@form_of("rsqrt")
def _rsqrt(r: Recording, out: Any, a: Any) -> str:
    return r.graph.add("Reciprocal", r.graph.add("Sqrt", r.name(a, dtype_of(out))))


@form_of("log1p")
def _log1p(r: Recording, out: Any, a: Any) -> str:
    wide = r.name(a, "float64")
    return r.cast(r.graph.add("Log", r.graph.add("Add", wide, r.name(1.0, "float64"))), "float64", dtype_of(out))


@form_of("expm1")
def _expm1(r: Recording, out: Any, a: Any) -> str:
    wide = r.graph.add("Exp", r.name(a, "float64"))
    return r.cast(r.graph.add("Sub", wide, r.name(1.0, "float64")), "float64", dtype_of(out))


@form_of("addcmul")
def _addcmul(r: Recording, out: Any, a: Any, b: Any, c: Any, *, value: Any = 1) -> str:
    dtype = dtype_of(out)
    product = r.graph.add("Mul", r.name(b, dtype), r.name(c, dtype))
    if value != 1:
        product = r.graph.add("Mul", product, r.name(value, dtype))
    return r.graph.add("Add", r.name(a, dtype), product)


@form_of("addcdiv")
def _addcdiv(r: Recording, out: Any, a: Any, b: Any, c: Any, *, value: Any = 1) -> str:
    dtype = dtype_of(out)
    ratio = r.graph.add("Div", r.name(b, dtype), r.name(c, dtype))
    if value != 1:
        ratio = r.graph.add("Mul", ratio, r.name(value, dtype))
    return r.graph.add("Add", r.name(a, dtype), ratio)


@form_of("lerp")
def _lerp(r: Recording, out: Any, a: Any, b: Any, weight: Any) -> str:
    dtype = dtype_of(out)
    start = r.name(a, dtype)
    way = r.graph.add("Sub", r.name(b, dtype), start)
    return r.graph.add("Add", start, r.graph.add("Mul", way, r.name(weight, dtype)))


@form_of("clamp", "hardtanh")
def _clamp(r: Recording, out: Any, a: Any, low: Any = None, high: Any = None, **kwargs: Any) -> str:
    low, high = kwargs.get("min", low), kwargs.get("max", high)
    dtype, found = dtype_of(out), r.name(a, dtype_of(out))
    if low is not None:
        found = r.graph.add("Max", found, r.name(low, dtype))
    return found if high is None else r.graph.add("Min", found, r.name(high, dtype))


@form_of("clamp_min")
def _clamp_min(r: Recording, out: Any, a: Any, low: Any) -> str:
    return _clamp(r, out, a, low)


@form_of("clamp_max")
def _clamp_max(r: Recording, out: Any, a: Any, high: Any) -> str:
    return _clamp(r, out, a, None, high)


@form_of("where")
def _where(r: Recording, out: Any, condition: Any, a: Any, b: Any) -> str:
    dtype = dtype_of(out)
    return r.graph.add("Where", r.name(condition, "bool"), r.name(a, dtype), r.name(b, dtype))


@form_of("masked_fill")
def _masked_fill(r: Recording, out: Any, a: Any, mask: Any, value: Any) -> str:
    dtype = dtype_of(out)
    return r.graph.add("Where", r.name(mask, "bool"), r.name(value, dtype), r.name(a, dtype))


@form_of("bitwise_and")
def _bitwise_and(r: Recording, out: Any, a: Any, b: Any) -> str:
    return r.graph.add(
        "And" if dtype_of(out) == "bool" else "BitwiseAnd", r.name(a, dtype_of(out)), r.name(b, dtype_of(out))
    )


@form_of("bitwise_or")
def _bitwise_or(r: Recording, out: Any, a: Any, b: Any) -> str:
    return r.graph.add(
        "Or" if dtype_of(out) == "bool" else "BitwiseOr", r.name(a, dtype_of(out)), r.name(b, dtype_of(out))
    )


@form_of("bitwise_not")
def _bitwise_not(r: Recording, out: Any, a: Any) -> str:
    return r.graph.add("Not" if dtype_of(out) == "bool" else "BitwiseNot", r.name(a, dtype_of(out)))


@form_of("isnan")
def _isnan(r: Recording, out: Any, a: Any) -> str:
    return r.graph.add("IsNaN", r.name(a))


@form_of("log_sigmoid_forward")
def _log_sigmoid(r: Recording, out: Any, a: Any) -> list[str]:
    # The smaller of x and 0, less log(1 + exp(-|x|)): no number is too large for it.
    dtype = dtype_of(out[0])
    x = r.name(a, dtype)
    inner = r.graph.add("Exp", r.graph.add("Neg", r.graph.add("Abs", x)))
    log = r.graph.add("Log", r.graph.add("Add", inner, r.name(1.0, dtype)))
    return [r.graph.add("Sub", r.graph.add("Min", x, r.name(0.0, dtype)), log)]


@form_of("softplus")
def _softplus(r: Recording, out: Any, a: Any, beta: Any = 1, threshold: Any = 20) -> str:
    dtype = dtype_of(out)
    x = times(r, a, beta, dtype)
    inner = r.graph.add("Exp", r.graph.add("Neg", r.graph.add("Abs", x)))
    log = r.graph.add("Log", r.graph.add("Add", inner, r.name(1.0, dtype)))
    found = r.graph.add("Add", r.graph.add("Max", x, r.name(0.0, dtype)), log)
    return found if beta == 1 else r.graph.add("Div", found, r.name(beta, dtype))


@form_of("elu")
def _elu(r: Recording, out: Any, a: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> str:
    # SELU and CELU come as this one, too.
    dtype = dtype_of(out)
    x = r.name(a, dtype)
    small = r.graph.add("Exp", scaled(r, r.graph.add("Min", x, r.name(0.0, dtype)), input_scale, dtype))
    below = scaled(r, r.graph.add("Sub", small, r.name(1.0, dtype)), alpha * scale, dtype)
    above = scaled(r, r.graph.add("Max", x, r.name(0.0, dtype)), scale, dtype)
    return r.graph.add("Add", above, below)


@form_of("celu")
def _celu(r: Recording, out: Any, a: Any, alpha: Any = 1.0) -> str:
    return _elu(r, out, a, alpha, 1, 1 / alpha)


@form_of("mish")
def _mish(r: Recording, out: Any, a: Any) -> str:
    return r.graph.add("Mul", r.name(a, dtype_of(out)), r.graph.add("Tanh", _softplus(r, out, a)))


@form_of("leaky_relu")
def _leaky_relu(r: Recording, out: Any, a: Any, slope: Any = 0.01) -> str:
    return r.graph.add("LeakyRelu", r.name(a, dtype_of(out)), alpha=float(slope))


@form_of("silu")
def _silu(r: Recording, out: Any, a: Any) -> str:
    x = r.name(a, dtype_of(out))
    return r.graph.add("Mul", x, r.graph.add("Sigmoid", x))


@form_of("gelu")
def _gelu(r: Recording, out: Any, a: Any, *, approximate: str = "none") -> str:
    dtype = dtype_of(out)
    x = r.name(a, dtype)
    if approximate == "none":
        inner = r.graph.add("Erf", r.graph.add("Mul", x, r.name(1 / math.sqrt(2), dtype)))
    else:
        cube = r.graph.add("Mul", r.graph.add("Mul", x, x), x)
        sum_ = r.graph.add("Add", x, r.graph.add("Mul", cube, r.name(0.044715, dtype)))
        inner = r.graph.add("Tanh", r.graph.add("Mul", sum_, r.name(math.sqrt(2 / math.pi), dtype)))
    return r.graph.add("Mul", scaled(r, x, 0.5, dtype), r.graph.add("Add", inner, r.name(1.0, dtype)))


@form_of("hardsigmoid")
def _hardsigmoid(r: Recording, out: Any, a: Any) -> str:
    return r.graph.add("HardSigmoid", r.name(a, dtype_of(out)), alpha=1 / 6, beta=0.5)


@form_of("hardswish")
def _hardswish(r: Recording, out: Any, a: Any) -> str:
    return r.graph.add("HardSwish", r.name(a, dtype_of(out)))
