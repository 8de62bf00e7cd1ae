"""Layer operations: products, convolutions, normalisations and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog_export.onnx_operations.graph_values import (
    Number,
    Recording,
    dtype_of,
    form_of,
    shape_of,
    value_of,
)

if TYPE_CHECKING:
    from torch import Tensor

#: A length for all axes, or one for each.
Lengths = int | Sequence[int]


# --- products -------------------------------------------------------------------------------------


@form_of("addmm")
def _record_addmm(
    recording: Recording,
    result: Tensor,
    bias: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: Number = 1,
    alpha: Number = 1,
) -> str:
    names = [recording.name(operand) for operand in (a, b, bias)]
    return recording.graph.add("Gemm", *names, alpha=float(alpha), beta=float(beta))


@form_of("mm", "bmm", "matmul", "mv", "dot")
def _record_product(recording: Recording, result: Tensor, a: Tensor, b: Tensor) -> str:
    return recording.graph.add("MatMul", recording.name(a), recording.name(b))


@form_of("linear")
def _record_linear(
    recording: Recording,
    result: Tensor,
    a: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
) -> str:
    name = recording.name(a)
    turned_weight = recording.graph.add("Transpose", recording.name(weight), perm=[1, 0])
    product = recording.graph.add("MatMul", name, turned_weight)
    if bias is None:
        return product
    return recording.graph.add("Add", product, recording.name(bias))


@form_of("baddbmm")
def _record_baddbmm(
    recording: Recording,
    result: Tensor,
    bias: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: Number = 1,
    alpha: Number = 1,
) -> Any:
    product = value_of(recording, a).to("MatMul", value_of(recording, b)) * alpha
    if beta == 0:
        return product.name  # PyTorch does not read the bias then, even where it is NaN
    return (product + value_of(recording, bias) * beta).name


# --- normalisations -------------------------------------------------------------------------------


def _name_or_fill(
    recording: Recording,
    tensor: Tensor | None,
    *,
    number: int,
    shape: Sequence[int],
    like: Tensor,
) -> str:
    """Return a tensor's name, or a constant instead of a missing tensor."""
    if tensor is not None:
        return recording.name(tensor)
    return recording.graph.constant(np.full(tuple(shape), number), dtype_of(like))


@form_of("native_layer_norm")
def _record_layer_norm(
    recording: Recording,
    result: tuple[Tensor, ...],
    a: Tensor,
    shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> list[str]:
    """Add a layer normalisation over the axes of `shape`, the last ones."""
    names = [
        recording.name(a),
        _name_or_fill(recording, weight, number=1, shape=shape, like=a),
    ]
    if bias is not None:
        names.append(recording.name(bias))
    normed = recording.graph.add("LayerNormalization", *names, axis=-len(shape), epsilon=float(eps))
    return [normed]


@form_of("native_group_norm")
def _record_group_norm(
    recording: Recording,
    result: tuple[Tensor, ...],
    a: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    rows: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
) -> list[str]:
    """Add a group normalisation with PyTorch's arguments."""
    # ONNX normalises each channel, so that each group becomes one.
    grouped = recording.reshaped(recording.name(a), shape_of(a), (rows, groups, -1))
    ones = _name_or_fill(recording, tensor=None, number=1, shape=(groups,), like=a)
    zeros = _name_or_fill(recording, tensor=None, number=0, shape=(groups,), like=a)
    normed = recording.graph.add("InstanceNormalization", grouped, ones, zeros, epsilon=float(eps))
    normed = recording.graph.add("Reshape", normed, recording.graph.constant(shape_of(a), "int64"))
    # One axis of length 1 for each axis behind the channels.
    channel_shape = (channels, *[1] * (a.ndim - 2))
    for operator, tensor in (("Mul", weight), ("Add", bias)):
        if tensor is not None:
            by_channel = recording.reshaped(recording.name(tensor), (channels,), channel_shape)
            normed = recording.graph.add(operator, normed, by_channel)
    return [normed]


@form_of("native_batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit")
def _record_batch_norm(
    recording: Recording,
    result: tuple[Tensor, ...],
    a: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor,
    *options: Any,
) -> list[str]:
    """Add a batch normalisation that uses stored statistics."""
    # The options are (momentum, eps), or (training, momentum, eps).
    is_training = len(options) > 2 and options[0]
    eps = options[-1]
    if is_training or mean is None:
        raise recording.refused("batch normalisation over the batch")
    names = [
        recording.name(a),
        _name_or_fill(recording, weight, number=1, shape=shape_of(mean), like=mean),
        _name_or_fill(recording, bias, number=0, shape=shape_of(mean), like=mean),
        recording.name(mean),
        recording.name(var),
    ]
    return [recording.graph.add("BatchNormalization", *names, epsilon=float(eps))]


# --- convolutions and pooling ---------------------------------------------------------------------


def _length_per_axis(lengths: Lengths, axes: int) -> list[int]:
    each = [lengths] if isinstance(lengths, int) else [int(length) for length in lengths]
    return each * axes if len(each) == 1 else each


@form_of("convolution", "mkldnn_convolution")
def _record_convolution(
    recording: Recording,
    result: Tensor,
    a: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Lengths,
    padding: Lengths,
    dilation: Lengths,
    transposed: bool = False,
    output_padding: Lengths = (),  # of transposed convolutions
    groups: int = 1,
) -> str:
    """Add a convolution over any number of axes."""
    if transposed:
        raise recording.refused("transposed convolutions")
    recording.convolves = True
    axes = a.ndim - 2  # without rows and channels
    pads = _length_per_axis(padding, axes)
    names = [recording.name(a), recording.name(weight)]
    if bias is not None:
        names.append(recording.name(bias))
    return recording.graph.add(
        "Conv",
        *names,
        strides=_length_per_axis(stride, axes),
        pads=[*pads, *pads],  # at the beginnings and at the ends of the axes
        dilations=_length_per_axis(dilation, axes),
        group=int(groups),
    )


def _window(
    kernel: Lengths, stride: Lengths, padding: Lengths, *, ceil_mode: bool
) -> dict[str, Any]:
    """Return the attributes that ONNX's two pooling operations share."""
    kernel_shape = _length_per_axis(kernel, 2)
    pads = _length_per_axis(padding, 2)
    return {
        "kernel_shape": kernel_shape,
        "strides": _length_per_axis(stride, 2) if stride else kernel_shape,
        "pads": [*pads, *pads],  # at the beginnings and at the ends of the axes
        "ceil_mode": int(ceil_mode),
    }


@form_of("max_pool2d_with_indices", "max_pool2d")
def _record_max_pool(
    recording: Recording,
    result: Tensor | tuple[Tensor, Tensor],
    a: Tensor,
    kernel: Lengths,
    stride: Lengths = (),
    padding: Lengths = (0,),
    dilation: Lengths = (1,),
    ceil_mode: bool = False,
) -> str | list[str]:
    window = _window(kernel, stride, padding, ceil_mode=ceil_mode)
    dilations = _length_per_axis(dilation, 2)
    pooled = recording.graph.add("MaxPool", recording.name(a), dilations=dilations, **window)
    # The first operation also returns the places, which nothing reads while acting.
    returns_places = isinstance(result, tuple)
    return [pooled] if returns_places else pooled


@form_of("avg_pool2d")
def _record_average_pool(
    recording: Recording,
    result: Tensor,
    a: Tensor,
    kernel: Lengths,
    stride: Lengths = (),
    padding: Lengths = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> str:
    if divisor is not None:
        raise recording.refused("avg_pool2d() with divisor_override")
    window = _window(kernel, stride, padding, ceil_mode=ceil_mode)
    return recording.graph.add(
        "AveragePool", recording.name(a), count_include_pad=int(count_include_pad), **window
    )
