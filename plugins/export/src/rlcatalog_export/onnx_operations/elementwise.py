"""Elementwise operations, with the formulas from PyTorch's documentation."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from rlcatalog_export.onnx_operations.table import (
    FORMS,
    Recording,
    Value,
    dtype_of,
    form_of,
    value_of,
)

#: Shift of the argument of Stirling's series, so that a few terms give float64 precision.
_SHIFT = 8
#: log Γ(z) = (z - 1/2) log z - z + log(2π)/2 + (t₀ + t₁/z² + t₂/z⁴ + …)/z
_TERMS = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)


def _log_gamma(a: Value) -> Value:
    """Return log Γ(x) for x > 0 in float64: Stirling's series at x + 8, minus the logs of the
    factors in between.
    """
    x = between = a.cast("float64")
    for i in range(1, _SHIFT):
        between = between * (x + i)
    z = x + _SHIFT
    square = z * z
    series = z.constant(_TERMS[-1])
    for term in reversed(_TERMS[:-1]):
        series = series / square + term
    return (
        (z - 0.5) * z.log() - z + series / z + 0.5 * math.log(2 * math.pi) - between.log()
    ).cast(a.dtype)


def _log1p(a: Value) -> Value:
    """Return log(1 + x), corrected for the rounding of 1 + x (Goldberg 1991, theorem 4)."""
    wide = a + 1
    kept = wide - 1
    return kept.to("Equal", 0, dtype="bool").to("Where", a, wide.log() * (a / kept), dtype=a.dtype)


def _search_sorted(ordered: Value, values: Value, right: bool = False) -> Value:
    """Return insertion indices of values into sorted numbers or rows: the counts of lower (or not
    higher) numbers.
    """
    last, before = (values.constant([axis], "int64") for axis in (-1, -2))
    places = ordered.to("Unsqueeze", before).to(
        "LessOrEqual" if right else "Less", values.to("Unsqueeze", last), dtype="bool"
    )
    return places.cast("int64").to("ReduceSum", last, keepdims=0)


def _softplus(a: Value, beta: float = 1, threshold: float = 20) -> Value:
    # max(x, 0) + log(1 + exp(-|x|)) does not overflow.
    x = a * beta
    return (x.to("Max", 0) + (x.to("Abs").to("Neg").to("Exp") + 1).log()) / beta


def _elu(a: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    # PyTorch implements SELU and CELU with this operation, too.
    below = ((a.to("Min", 0) * input_scale).to("Exp") - 1) * (alpha * scale)
    return a.to("Max", 0) * scale + below


def _gelu(a: Value, *, approximate: str = "none") -> Value:
    if approximate == "none":
        inner = (a * (1 / math.sqrt(2))).to("Erf")
    else:
        inner = ((a + a * a * a * 0.044715) * math.sqrt(2 / math.pi)).to("Tanh")
    return a * 0.5 * (inner + 1)


def _truncated(a: Value) -> Value:
    return a.to("Less", 0).to("Where", a.to("Ceil"), a.to("Floor"))


def _divided(a: Value, b: Any, *, rounding_mode: str | None = None) -> Value:
    ratio: Value = a / b
    if rounding_mode is None or (rounding_mode == "trunc" and a.dtype.startswith("int")):
        return ratio
    if not a.dtype.startswith("float"):
        raise TypeError(f"rounding_mode={rounding_mode!r} of {a.dtype}")
    return ratio.to("Floor") if rounding_mode == "floor" else _truncated(ratio)


def _clamped(a: Value, low: Any = None, high: Any = None, **kwargs: Any) -> Value:
    low, high = kwargs.get("min", low), kwargs.get("max", high)
    raised = a if low is None else a.to("Max", low)
    return raised if high is None else raised.to("Min", high)


def _operation(name: str) -> Callable[..., Value]:
    return lambda a, *more: a.to(name, *more)


def _either(numbers: str, booleans: str) -> Callable[..., Value]:
    """Return a formula for an operation that ONNX names differently for booleans."""
    return lambda a, *more: a.to(booleans if a.dtype == "bool" else numbers, *more)


#: PyTorch's name for an operation → function of its arguments, in the dtype of its result.
FORMULAS: dict[str, Callable[..., Value]] = {
    **{
        name: _operation(operator)
        for name, operator in {
            "tanh": "Tanh",
            "sigmoid": "Sigmoid",
            "exp": "Exp",
            "log": "Log",
            "sqrt": "Sqrt",
            "sin": "Sin",
            "cos": "Cos",
            "tan": "Tan",
            "atan": "Atan",
            "neg": "Neg",
            "abs": "Abs",
            "relu": "Relu",
            "floor": "Floor",
            "ceil": "Ceil",
            "round": "Round",
            "erf": "Erf",
            "reciprocal": "Reciprocal",
            "sign": "Sign",
            "maximum": "Max",
            "minimum": "Min",
            "logical_and": "And",
            "logical_or": "Or",
            "logical_not": "Not",
            "clamp_min": "Max",
            "clamp_max": "Min",
            "hardswish": "HardSwish",
        }.items()
    },
    "add": lambda a, b, *, alpha=1: a + b * alpha,
    "sub": lambda a, b, *, alpha=1: a - b * alpha,
    "rsub": lambda a, b, alpha=1: b - a * alpha,
    "mul": lambda a, b: a.to("And", b) if a.dtype == "bool" else a * b,
    **dict.fromkeys(("div", "true_divide"), _divided),
    **dict.fromkeys(("trunc", "fix"), _truncated),
    "pow": lambda a, b: a * a if not isinstance(b, Value) and b == 2 else a.to("Pow", b),
    "square": lambda a: a * a,
    "rsqrt": lambda a: a.to("Sqrt").to("Reciprocal"),
    "addcmul": lambda a, b, c, *, value=1: a + b * c * value,
    "addcdiv": lambda a, b, c, *, value=1: a + b / c * value,
    "lerp": lambda a, b, weight: a + (b - a) * weight,
    **dict.fromkeys(("clamp", "hardtanh"), _clamped),
    "bitwise_and": _either("BitwiseAnd", "And"),
    "bitwise_or": _either("BitwiseOr", "Or"),
    "bitwise_not": _either("BitwiseNot", "Not"),
    "softplus": _softplus,
    "elu": _elu,
    "celu": lambda a, alpha=1.0: _elu(a, alpha, 1, 1 / alpha),
    "mish": lambda a: a * _softplus(a).to("Tanh"),
    "leaky_relu": lambda a, slope=0.01: a.to("LeakyRelu", alpha=float(slope)),
    "silu": lambda a: a * a.to("Sigmoid"),
    "gelu": _gelu,
    "log1p": _log1p,
    "expm1": lambda a: (a.cast("float64").to("Exp") - 1).cast(a.dtype),
    "lgamma": _log_gamma,
    "searchsorted": _search_sorted,
    "where": lambda condition, a, b: condition.to("Where", a, b, dtype=a.dtype),
    "hardsigmoid": lambda a: a.to("HardSigmoid", alpha=1 / 6, beta=0.5),
}


def _form(
    formula: Callable[..., Value], r: Recording, out: Any, a: Any, *args: Any, **kwargs: Any
) -> Any:
    """Add a formula, computed in the dtype of PyTorch's result."""
    dtype = dtype_of(out)
    values = [value_of(r, x, dtype) if hasattr(x, "shape") else x for x in args]
    return formula(value_of(r, a, dtype), *values, **kwargs).name


def _compared(operators: tuple[str, ...], r: Recording, out: Any, a: Any, b: Any) -> Any:
    dtype = r.common(a, b)
    dtype = "int32" if dtype == "bool" else dtype
    answer = value_of(r, a, dtype).to(operators[0], value_of(r, b, dtype), dtype="bool")
    for operator in operators[1:]:
        answer = answer.to(operator)
    return answer.cast(dtype_of(out)).name


FORMS.update({name: partial(_form, formula) for name, formula in FORMULAS.items()})


@form_of("where")
def _where(r: Recording, out: Any, condition: Any, a: Any, b: Any) -> Any:
    dtype = dtype_of(out)
    return FORMULAS["where"](
        value_of(r, condition, "bool"), value_of(r, a, dtype), value_of(r, b, dtype)
    ).name


@form_of("searchsorted")
def _places(
    r: Recording, out: Any, a: Any, values: Any, *, right: bool = False, out_int32: bool = False
) -> Any:
    return _search_sorted(value_of(r, a), value_of(r, values), right).cast(dtype_of(out)).name


FORMS.update(
    {
        name: partial(_compared, operators)
        for name, operators in {
            "eq": ("Equal",),
            "ne": ("Equal", "Not"),
            "lt": ("Less",),
            "gt": ("Greater",),
            "le": ("LessOrEqual",),
            "ge": ("GreaterOrEqual",),
        }.items()
    }
)
FORMS |= {
    "isnan": lambda r, out, a: r.graph.add("IsNaN", r.name(a)),
    "log_sigmoid_forward": lambda r, out, a: [_softplus(value_of(r, a).to("Neg")).to("Neg").name],
    "masked_fill": lambda r, out, a, mask, value: _where(r, out, mask, value, a),
}
