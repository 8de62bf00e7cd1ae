"""Layer operations: products, convolutions, normalisations and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlcatalog_export.onnx_operations.table import Recording, dtype_of, form_of, shape_of, value_of


@form_of("addmm")
def _addmm(
    r: Recording, out: Any, bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1
) -> str:
    return r.graph.add(
        "Gemm", r.name(a), r.name(b), r.name(bias), alpha=float(alpha), beta=float(beta)
    )


form_of("mm", "bmm", "matmul", "mv", "dot")(
    lambda r, out, a, b: r.graph.add("MatMul", r.name(a), r.name(b))
)


@form_of("linear")
def _linear(r: Recording, out: Any, a: Any, weight: Any, bias: Any = None) -> str:
    product = r.graph.add(
        "MatMul", r.name(a), r.graph.add("Transpose", r.name(weight), perm=[1, 0])
    )
    return product if bias is None else r.graph.add("Add", product, r.name(bias))


@form_of("baddbmm")
def _baddbmm(
    r: Recording, out: Any, bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1
) -> str:
    product = value_of(r, a).to("MatMul", value_of(r, b)) * alpha
    return (product + value_of(r, bias) * beta if beta != 0 else product).name  # type: ignore[no-any-return]


def _or_filled(r: Recording, tensor: Any, number: int, shape: Sequence[int], like: Any) -> str:
    """Return a tensor, or a constant instead of a missing tensor."""
    return (
        r.graph.constant(np.full(tuple(shape), number), dtype_of(like))
        if tensor is None
        else r.name(tensor)
    )


@form_of("native_layer_norm")
def _layer_norm(
    r: Recording, out: Any, a: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> list[str]:
    scale, more = _or_filled(r, weight, 1, shape, a), [] if bias is None else [r.name(bias)]
    return [
        r.graph.add(
            "LayerNormalization", r.name(a), scale, *more, axis=-len(shape), epsilon=float(eps)
        )
    ]


@form_of("native_group_norm")
def _group_norm(
    r: Recording,
    out: Any,
    a: Any,
    weight: Any,
    bias: Any,
    n: int,
    c: int,
    size: int,
    groups: int,
    eps: float,
) -> list[str]:
    grouped = r.reshaped(r.name(a), shape_of(a), (n, groups, -1))
    ones, zeros = (_or_filled(r, None, number, (groups,), a) for number in (1, 0))
    normed = r.graph.add("InstanceNormalization", grouped, ones, zeros, epsilon=float(eps))
    normed = r.graph.add("Reshape", normed, r.graph.constant(shape_of(a), "int64"))
    for operator, part in (("Mul", weight), ("Add", bias)):
        if part is not None:
            normed = r.graph.add(
                operator, normed, r.reshaped(r.name(part), (c,), (c, *[1] * (a.ndim - 2)))
            )
    return [normed]


@form_of("native_batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit")
def _batch_norm(
    r: Recording, out: Any, a: Any, weight: Any, bias: Any, mean: Any, var: Any, *more: Any
) -> list[str]:
    training, eps = (False, more[-1]) if len(more) == 2 else (more[0], more[-1])
    if training or mean is None:
        raise r.refused("batch normalisation over the batch")
    scale, shift = (
        _or_filled(r, part, number, shape_of(mean), mean)
        for part, number in ((weight, 1), (bias, 0))
    )
    normed = r.graph.add(
        "BatchNormalization", r.name(a), scale, shift, r.name(mean), r.name(var), epsilon=float(eps)
    )
    return [normed]


def _per_axis(given: Any, ndim: int) -> list[int]:
    given = [given] if isinstance(given, int) else list(given)
    return [int(n) for n in given] * (ndim if len(given) == 1 else 1)


@form_of("convolution", "mkldnn_convolution")
def _convolution(
    r: Recording,
    out: Any,
    a: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool = False,
    output_padding: Any = (),
    groups: int = 1,
) -> str:
    if transposed:
        raise r.refused("transposed convolutions")
    r.convolves = True
    strides, pads, dilations = (
        _per_axis(given, a.ndim - 2) for given in (stride, padding, dilation)
    )
    more = [] if bias is None else [r.name(bias)]
    return r.graph.add(
        "Conv",
        r.name(a),
        r.name(weight),
        *more,
        strides=strides,
        pads=[*pads, *pads],
        dilations=dilations,
        group=int(groups),
    )


def _window(kernel: Any, stride: Any, padding: Any, ceil_mode: bool) -> dict[str, Any]:
    kernel, pads = _per_axis(kernel, 2), _per_axis(padding, 2)
    strides = _per_axis(stride, 2) if stride else kernel
    return {
        "kernel_shape": kernel,
        "strides": strides,
        "pads": [*pads, *pads],
        "ceil_mode": int(ceil_mode),
    }


@form_of("max_pool2d_with_indices", "max_pool2d")
def _max_pool(
    r: Recording,
    out: Any,
    a: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = (0,),
    dilation: Any = (1,),
    ceil_mode: bool = False,
) -> Any:
    window = _window(kernel, stride, padding, ceil_mode)
    pooled = r.graph.add("MaxPool", r.name(a), dilations=_per_axis(dilation, 2), **window)
    return [pooled] if isinstance(out, tuple) else pooled


@form_of("avg_pool2d")
def _avg_pool(
    r: Recording,
    out: Any,
    a: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: Any = None,
) -> str:
    if divisor is not None:
        raise r.refused("avg_pool2d() with divisor_override")
    window = _window(kernel, stride, padding, ceil_mode)
    return r.graph.add("AveragePool", r.name(a), count_include_pad=int(count_include_pad), **window)
