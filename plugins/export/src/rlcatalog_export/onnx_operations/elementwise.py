"""Forms of what is done to one number after the other: formulas, as they are written in PyTorch's pages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlcatalog_export.formulas import Value
from rlcatalog_export.onnx_operations.table import FORMS, Form, dtype_of, form_of, value_of

if TYPE_CHECKING:
    from rlcatalog_export.torch.recorder import Recording


def _softplus(a: Value, beta: float = 1, threshold: float = 20) -> Value:
    # The larger of x and 0, and log(1 + exp(-|x|)): no number is too large for it.
    x = a * beta
    return (x.to("Max", 0) + (x.to("Abs").to("Neg").to("Exp") + 1).log()) / beta


def _elu(a: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    # SELU and CELU come as this one, too.
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


def _either(numbers: str, booleans: str) -> Callable[..., Value]:
    """Return a formula of one operation, which ONNX calls otherwise where it is one of booleans."""
    return lambda a, *more: a.to(booleans if a.dtype == "bool" else numbers, *more)


def _operation(name: str) -> Callable[..., Value]:
    return lambda a, *more: a.to(name, *more)


#: PyTorch's name of an operation → what it computes from its arguments, in the dtype of what it returns.
_FORMULAS: dict[str, Callable[..., Value]] = {
    **{name: _operation(operator) for name, operator in {
        "tanh": "Tanh", "sigmoid": "Sigmoid", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos",
        "tan": "Tan", "atan": "Atan", "neg": "Neg", "abs": "Abs", "relu": "Relu", "floor": "Floor", "ceil": "Ceil",
        "round": "Round", "erf": "Erf", "reciprocal": "Reciprocal", "sign": "Sign", "maximum": "Max", "minimum": "Min",
        "logical_and": "And", "logical_or": "Or", "logical_not": "Not", "clamp_min": "Max", "clamp_max": "Min",
        "hardswish": "HardSwish",
    }.items()},
    "add": lambda a, b, *, alpha=1: a + b * alpha,
    "sub": lambda a, b, *, alpha=1: a - b * alpha,
    "rsub": lambda a, b, alpha=1: b - a * alpha,
    "mul": lambda a, b: a.to("And", b) if a.dtype == "bool" else a * b,
    "div": _divided,
    "true_divide": _divided,
    "trunc": _truncated,
    "fix": _truncated,
    "pow": lambda a, b: a * a if not isinstance(b, Value) and b == 2 else a.to("Pow", b),
    "square": lambda a: a * a,
    "rsqrt": lambda a: a.to("Sqrt").to("Reciprocal"),
    "addcmul": lambda a, b, c, *, value=1: a + b * c * value,
    "addcdiv": lambda a, b, c, *, value=1: a + b / c * value,
    "lerp": lambda a, b, weight: a + (b - a) * weight,
    "clamp": _clamped,
    "hardtanh": _clamped,
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
    "hardsigmoid": lambda a: a.to("HardSigmoid", alpha=1 / 6, beta=0.5),
}  # fmt: skip


def _form(formula: Callable[..., Value], dtype: str | None = None) -> Form:
    """Return the form of a formula, which is computed in the dtype of what PyTorch returns, or in another one."""

    def form(r: Recording, out: Any, a: Any, *args: Any, **kwargs: Any) -> str:
        inner = dtype or dtype_of(out)
        values = [value_of(r, x, inner) if hasattr(x, "shape") else x for x in args]
        return r.cast(formula(value_of(r, a, inner), *values, **kwargs).name, inner, dtype_of(out))

    return form


FORMS.update({name: _form(formula) for name, formula in _FORMULAS.items()})
FORMS["log1p"] = _form(lambda a: (a + 1).log(), "float64")
FORMS["expm1"] = _form(lambda a: a.to("Exp") - 1, "float64")


def _compared(operator: str, is_not: bool = False) -> Form:
    def form(r: Recording, out: Any, a: Any, b: Any) -> str:
        dtype = r.common(a, b)
        dtype = "int32" if dtype == "bool" else dtype
        answer = r.graph.add(operator, r.name(a, dtype), r.name(b, dtype))
        return r.cast(r.graph.add("Not", answer) if is_not else answer, "bool", dtype_of(out))

    return form


FORMS.update(
    eq=_compared("Equal"), ne=_compared("Equal", is_not=True), lt=_compared("Less"), gt=_compared("Greater"),
    le=_compared("LessOrEqual"), ge=_compared("GreaterOrEqual"),
)  # fmt: skip


@form_of("where")
def _where(r: Recording, out: Any, condition: Any, a: Any, b: Any) -> str:
    dtype = dtype_of(out)
    return r.graph.add("Where", r.name(condition, "bool"), r.name(a, dtype), r.name(b, dtype))


@form_of("masked_fill")
def _masked_fill(r: Recording, out: Any, a: Any, mask: Any, value: Any) -> str:
    return _where(r, out, mask, value, a)


@form_of("isnan")
def _isnan(r: Recording, out: Any, a: Any) -> str:
    return r.graph.add("IsNaN", r.name(a))


@form_of("log_sigmoid_forward")
def _log_sigmoid(r: Recording, out: Any, a: Any) -> list[str]:
    x = value_of(r, a)
    return [(x.to("Min", 0) - (x.to("Abs").to("Neg").to("Exp") + 1).log()).name]
