"""Elementwise operations, with the formulas from PyTorch's documentation.

A formula is a function of `Value`s. For a frozen policy it is computed in the dtype of PyTorch's
result; the converters of whole models use the same formulas for what ONNX lacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rlcatalog_export.onnx_operations.graph_values import (
    FORMS,
    Number,
    Operand,
    Recording,
    Value,
    dtype_of,
    form_of,
    value_of,
)

if TYPE_CHECKING:
    from torch import Tensor

Formula = Callable[..., Value]
_Formula = TypeVar("_Formula", bound=Formula)

#: PyTorch's name for an operation → function of its arguments, in the dtype of its result.
FORMULAS: dict[str, Formula] = {}

#: Shift of the argument of Stirling's series, so that a few terms give float64 precision.
_SHIFT = 8
#: log Γ(z) = (z - 1/2) log z - z + log(2π)/2 + (t₀ + t₁/z² + t₂/z⁴ + …)/z
_TERMS = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)


def formula_of(*names: str) -> Callable[[_Formula], _Formula]:
    """Register a formula for some operations."""

    def register(formula: _Formula) -> _Formula:
        for name in names:
            FORMULAS[name] = formula
        return formula

    return register


# --- operations that ONNX has under another name --------------------------------------------------


def _apply(operator: str, a: Value, *others: Operand) -> Value:
    return a.to(operator, *others)


FORMULAS.update(
    {
        "tanh": partial(_apply, "Tanh"),
        "sigmoid": partial(_apply, "Sigmoid"),
        "exp": partial(_apply, "Exp"),
        "log": partial(_apply, "Log"),
        "sqrt": partial(_apply, "Sqrt"),
        "sin": partial(_apply, "Sin"),
        "cos": partial(_apply, "Cos"),
        "tan": partial(_apply, "Tan"),
        "atan": partial(_apply, "Atan"),
        "neg": partial(_apply, "Neg"),
        "abs": partial(_apply, "Abs"),
        "relu": partial(_apply, "Relu"),
        "floor": partial(_apply, "Floor"),
        "ceil": partial(_apply, "Ceil"),
        "round": partial(_apply, "Round"),
        "erf": partial(_apply, "Erf"),
        "reciprocal": partial(_apply, "Reciprocal"),
        "sign": partial(_apply, "Sign"),
        "maximum": partial(_apply, "Max"),
        "minimum": partial(_apply, "Min"),
        "logical_and": partial(_apply, "And"),
        "logical_or": partial(_apply, "Or"),
        "logical_not": partial(_apply, "Not"),
        "clamp_min": partial(_apply, "Max"),
        "clamp_max": partial(_apply, "Min"),
        "hardswish": partial(_apply, "HardSwish"),
    }
)


def _apply_bitwise(
    numeric_operator: str, boolean_operator: str, a: Value, *others: Operand
) -> Value:
    # ONNX has other operations for booleans.
    operator = boolean_operator if a.dtype == "bool" else numeric_operator
    return a.to(operator, *others)


FORMULAS.update(
    {
        "bitwise_and": partial(_apply_bitwise, "BitwiseAnd", "And"),
        "bitwise_or": partial(_apply_bitwise, "BitwiseOr", "Or"),
        "bitwise_not": partial(_apply_bitwise, "BitwiseNot", "Not"),
    }
)


# --- arithmetic -----------------------------------------------------------------------------------


@formula_of("add")
def _add(a: Value, b: Operand, *, alpha: Number = 1) -> Value:
    return a + b * alpha


@formula_of("sub")
def _subtract(a: Value, b: Operand, *, alpha: Number = 1) -> Value:
    return a - b * alpha


@formula_of("rsub")
def _subtract_from(a: Value, b: Operand, alpha: Number = 1) -> Value:
    return b - a * alpha


@formula_of("mul")
def _multiply(a: Value, b: Operand) -> Value:
    if a.dtype == "bool":
        return a.to("And", b)
    return a * b


@formula_of("div", "true_divide")
def _divide(a: Value, b: Operand, *, rounding_mode: str | None = None) -> Value:
    """Divide, and round as `torch.div` does."""
    ratio = a / b
    # ONNX's division of integers truncates already.
    is_truncated = rounding_mode == "trunc" and a.dtype.startswith("int")
    if rounding_mode is None or is_truncated:
        return ratio
    if not a.dtype.startswith("float"):
        raise TypeError(f"rounding_mode={rounding_mode!r} of {a.dtype}")
    if rounding_mode == "floor":
        return ratio.to("Floor")
    return _truncate(ratio)


@formula_of("trunc", "fix")
def _truncate(a: Value) -> Value:
    is_negative = a.to("Less", 0)
    return is_negative.to("Where", a.to("Ceil"), a.to("Floor"))


@formula_of("pow")
def _power(a: Value, b: Operand) -> Value:
    if not isinstance(b, Value) and b == 2:
        return a * a
    return a.to("Pow", b)


@formula_of("square")
def _square(a: Value) -> Value:
    return a * a


@formula_of("rsqrt")
def _inverse_root(a: Value) -> Value:
    return a.to("Sqrt").to("Reciprocal")


@formula_of("addcmul")
def _add_product(a: Value, b: Value, c: Value, *, value: Number = 1) -> Value:
    return a + b * c * value


@formula_of("addcdiv")
def _add_ratio(a: Value, b: Value, c: Value, *, value: Number = 1) -> Value:
    return a + b / c * value


@formula_of("lerp")
def _interpolate(a: Value, b: Value, weight: Operand) -> Value:
    return a + (b - a) * weight


@formula_of("clamp", "hardtanh")
def _clamp(
    a: Value,
    low: Operand | None = None,
    high: Operand | None = None,
    *,
    min: Operand | None = None,  # PyTorch's names of the two arguments
    max: Operand | None = None,
) -> Value:
    """Limit values from below, from above, or both."""
    lowest = low if min is None else min
    highest = high if max is None else max
    clamped = a
    if lowest is not None:
        clamped = clamped.to("Max", lowest)
    if highest is not None:
        clamped = clamped.to("Min", highest)
    return clamped


# --- activations ----------------------------------------------------------------------------------


@formula_of("softplus")
def _softplus(a: Value, beta: Number = 1, threshold: Number = 20) -> Value:
    # max(x, 0) + log(1 + exp(-|x|)) does not overflow, so the threshold is not needed.
    x = a * beta
    decay = x.to("Abs").to("Neg").to("Exp")
    return (x.to("Max", 0) + (decay + 1).log()) / beta


@formula_of("elu")
def _elu(a: Value, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Value:
    # PyTorch implements SELU and CELU with this operation, too.
    below_zero = ((a.to("Min", 0) * input_scale).to("Exp") - 1) * (alpha * scale)
    above_zero = a.to("Max", 0) * scale
    return above_zero + below_zero


@formula_of("celu")
def _celu(a: Value, alpha: Number = 1.0) -> Value:
    return _elu(a, alpha, scale=1, input_scale=1 / alpha)


@formula_of("gelu")
def _gelu(a: Value, *, approximate: str = "none") -> Value:
    if approximate == "none":
        inner = (a * (1 / math.sqrt(2))).to("Erf")
    else:
        inner = ((a + a * a * a * 0.044715) * math.sqrt(2 / math.pi)).to("Tanh")
    return a * 0.5 * (inner + 1)


@formula_of("mish")
def _mish(a: Value) -> Value:
    return a * _softplus(a).to("Tanh")


@formula_of("leaky_relu")
def _leaky_relu(a: Value, slope: Number = 0.01) -> Value:
    return a.to("LeakyRelu", alpha=float(slope))


@formula_of("silu")
def _silu(a: Value) -> Value:
    return a * a.to("Sigmoid")


@formula_of("hardsigmoid")
def _hard_sigmoid(a: Value) -> Value:
    return a.to("HardSigmoid", alpha=1 / 6, beta=0.5)


# --- special functions ----------------------------------------------------------------------------


@formula_of("lgamma")
def _log_gamma(a: Value) -> Value:
    """Return log Γ(x) for x > 0 in float64: Stirling's series at x + 8, minus the logs of the
    factors in between.
    """
    x = a.cast("float64")
    product = x
    for i in range(1, _SHIFT):
        product = product * (x + i)
    z = x + _SHIFT
    square = z * z
    series = z.constant(_TERMS[-1])
    for term in reversed(_TERMS[:-1]):
        series = series / square + term
    main_term = (z - 0.5) * z.log() - z
    constant = 0.5 * math.log(2 * math.pi)
    stirling = main_term + series / z + constant
    return (stirling - product.log()).cast(a.dtype)


@formula_of("log1p")
def _log1p(a: Value) -> Value:
    """Return log(1 + x), corrected for the rounding of 1 + x (Goldberg 1991, theorem 4)."""
    rounded_sum = a + 1
    # What is left of x in the rounded sum; 0 where x is lost.
    remainder = rounded_sum - 1
    is_lost = remainder.to("Equal", 0, dtype="bool")
    return is_lost.to("Where", a, rounded_sum.log() * (a / remainder), dtype=a.dtype)


@formula_of("expm1")
def _expm1(a: Value) -> Value:
    return (a.cast("float64").to("Exp") - 1).cast(a.dtype)


@formula_of("searchsorted")
def _search_sorted(ordered: Value, values: Value, right: bool = False) -> Value:
    """Return insertion indices of values into sorted numbers or rows: the counts of lower (or not
    higher) numbers.
    """
    last_axis = values.constant([-1], "int64")
    axis_before = values.constant([-2], "int64")
    operator = "LessOrEqual" if right else "Less"
    is_lower = ordered.to("Unsqueeze", axis_before).to(
        operator, values.to("Unsqueeze", last_axis), dtype="bool"
    )
    return is_lower.cast("int64").to("ReduceSum", last_axis, keepdims=0)


@formula_of("where")
def _choose(condition: Value, a: Value, b: Value) -> Value:
    return condition.to("Where", a, b, dtype=a.dtype)


# --- forms: formulas in a recording ---------------------------------------------------------------


def _record_formula(
    formula: Formula,
    recording: Recording,
    result: Tensor,
    a: Tensor,
    *args: Tensor | Number,
    **options: Any,
) -> Any:
    """Add a formula, computed in the dtype of PyTorch's result."""
    dtype = dtype_of(result)
    operands: list[Operand] = []
    for argument in args:
        # PyTorch passes numbers as Python numbers, which become constants.
        if hasattr(argument, "shape"):
            operands.append(value_of(recording, argument, dtype))
        else:
            operands.append(argument)
    return formula(value_of(recording, a, dtype), *operands, **options).name


for _name, _function in FORMULAS.items():
    FORMS[_name] = partial(_record_formula, _function)


def _record_comparison(
    operators: tuple[str, ...],
    recording: Recording,
    result: Tensor,
    a: Tensor,
    b: Tensor | Number,
) -> Any:
    """Add a comparison and the operators that follow it, such as `Not`."""
    dtype = recording.common_dtype(a, b)
    if dtype == "bool":
        dtype = "int32"  # ONNX does not order booleans
    comparison = value_of(recording, a, dtype).to(
        operators[0], value_of(recording, b, dtype), dtype="bool"
    )
    for operator in operators[1:]:
        comparison = comparison.to(operator)
    return comparison.cast(dtype_of(result)).name


FORMS.update(
    {
        "eq": partial(_record_comparison, ("Equal",)),
        "ne": partial(_record_comparison, ("Equal", "Not")),
        "lt": partial(_record_comparison, ("Less",)),
        "gt": partial(_record_comparison, ("Greater",)),
        "le": partial(_record_comparison, ("LessOrEqual",)),
        "ge": partial(_record_comparison, ("GreaterOrEqual",)),
    }
)


@form_of("where")
def _record_where(
    recording: Recording, result: Tensor, condition: Tensor, a: Tensor, b: Tensor
) -> Any:
    dtype = dtype_of(result)
    chosen = _choose(
        value_of(recording, condition, "bool"),
        value_of(recording, a, dtype),
        value_of(recording, b, dtype),
    )
    return chosen.name


@form_of("masked_fill")
def _record_masked_fill(
    recording: Recording, result: Tensor, a: Tensor, mask: Tensor, value: Any
) -> Any:
    return _record_where(recording, result, mask, value, a)


@form_of("searchsorted")
def _record_search_sorted(
    recording: Recording,
    result: Tensor,
    ordered: Tensor,
    values: Tensor,
    *,
    right: bool = False,
    out_int32: bool = False,  # the result's dtype says it
) -> Any:
    places = _search_sorted(value_of(recording, ordered), value_of(recording, values), right)
    return places.cast(dtype_of(result)).name


@form_of("isnan")
def _record_isnan(recording: Recording, result: Tensor, a: Tensor) -> str:
    return recording.graph.add("IsNaN", recording.name(a))


@form_of("log_sigmoid_forward")
def _record_log_sigmoid(recording: Recording, result: tuple[Tensor, ...], a: Tensor) -> list[Any]:
    # log(sigmoid(x)) = -softplus(-x). PyTorch's second result is a buffer for the gradient.
    return [_softplus(value_of(recording, a).to("Neg")).to("Neg").name]
