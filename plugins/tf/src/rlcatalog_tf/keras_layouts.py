"""PyTorch's names and layouts for the weights of common Keras layers, so that weights can be
copied.

This covers layers that compute the same function in both frameworks. Other layers, and GRUs without
`reset_after`, keep Keras's names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from rlcatalog_tf.private_api import KerasLayer

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layout:
    """Canonical form of a variable, as one or several arrays.

    This class is for a single array; derived classes convert the value in other ways.

    Attributes:
        names: Canonical names of the arrays.
        axes: Axes that transpose the value into its canonical array, or None.
    """

    names: tuple[str, ...]
    axes: tuple[int, ...] | None = None

    def split(self, value: Array) -> tuple[Array, ...]:
        """Return the canonical arrays for a value."""
        if self.axes is None:
            return (value,)
        return (value.transpose(self.axes),)

    def join(self, *arrays: Array) -> Array:
        """Return the value for its canonical arrays."""
        (array,) = arrays
        if self.axes is None:
            return array
        return array.transpose(np.argsort(self.axes))


class _VarianceAndCount(Layout):
    """The running variance of a batch normalisation, and PyTorch's number of batches, which Keras
    does not count.
    """

    def split(self, value: Array) -> tuple[Array, ...]:
        return value, np.zeros((), np.int64)

    def join(self, *arrays: Array) -> Array:
        variance, _ = arrays
        return variance


class _SumOfBiases(Layout):
    """The bias of an LSTM: PyTorch adds two biases; Keras has only the first."""

    def split(self, value: Array) -> tuple[Array, ...]:
        return value, np.zeros_like(value)

    def join(self, *arrays: Array) -> Array:
        input_bias, recurrent_bias = arrays
        return input_bias + recurrent_bias


class _GruWeight(Layout):
    """A weight of a GRU, whose gates are in another order in PyTorch."""

    def split(self, value: Array) -> tuple[Array, ...]:
        return (_swap_gates(value).T,)

    def join(self, *arrays: Array) -> Array:
        (array,) = arrays
        return _swap_gates(array.T)


class _GruBiases(Layout):
    """The two biases of a GRU, which Keras has in one variable `[2, gates]`."""

    def split(self, value: Array) -> tuple[Array, ...]:
        return tuple(_swap_gates(value))

    def join(self, *arrays: Array) -> Array:
        return _swap_gates(np.stack(arrays))


def _swap_gates(value: Array) -> Array:
    """Swap the first two thirds of the last axis: the gates of a GRU are reset, update, new in
    PyTorch, and update, reset, new in Keras.
    """
    first, second, third = np.split(value, 3, axis=-1)
    return np.concatenate([second, first, third], axis=-1)


#: The variables of a layer with their canonical forms; None for a layer that keeps Keras's names.
LayerLayouts: TypeAlias = list[tuple[Any, Layout]] | None


def layouts_of(layer: KerasLayer, keras: ModuleType) -> LayerLayouts:
    """Return the variables of a layer with their canonical forms, or None for an unsupported layer.

    Args:
        layer: A built layer.
        keras: The module that the layer comes from: Keras or legacy Keras.
    """
    for names, describe in _TABLE:
        for name in names:
            # Legacy Keras lacks some classes.
            cls = getattr(keras.layers, name, None)
            if cls is not None and isinstance(layer, cls):
                return None if describe is None else describe(layer)
    return None


def _with_layouts(layer: KerasLayer, **layouts: Layout) -> list[tuple[Any, Layout]]:
    """Return the variables that a layer has, each with its layout.

    Args:
        layer: The layer.
        **layouts: For each attribute that may hold a variable, the variable's layout.
    """
    variables = []
    for name, layout in layouts.items():
        # A Keras layer without a bias, for example, has None there, or no such attribute.
        variable = getattr(layer, name, None)
        # A variable of Keras has a shape; an attribute may also hold something else.
        has_variable = hasattr(variable, "shape")
        if has_variable:
            variables.append((variable, layout))
    return variables


#: An unchanged weight.
_WEIGHT = Layout(("weight",))
#: An unchanged bias.
_BIAS = Layout(("bias",))


def _dense(layer: KerasLayer) -> LayerLayouts:
    return _with_layouts(layer, kernel=Layout(("weight",), axes=(1, 0)), bias=_BIAS)


def _convolution(layer: KerasLayer) -> LayerLayouts:
    """Map `[*window, in, out]` to `[out, in, *window]`; transposed: `[*window, out, in]` to
    `[in, out, *window]`.
    """
    rank = len(layer.kernel.shape)
    axes = (rank - 1, rank - 2, *range(rank - 2))
    return _with_layouts(layer, kernel=Layout(("weight",), axes), bias=_BIAS)


def _layer_norm(layer: KerasLayer) -> LayerLayouts:
    return _with_layouts(layer, gamma=_WEIGHT, beta=_BIAS)


def _batch_norm(layer: KerasLayer) -> LayerLayouts:
    return _with_layouts(
        layer,
        gamma=_WEIGHT,
        beta=_BIAS,
        moving_mean=Layout(("running_mean",)),
        moving_variance=_VarianceAndCount(("running_var", "num_batches_tracked")),
    )


def _embedding(layer: KerasLayer) -> LayerLayouts:
    return _with_layouts(layer, embeddings=_WEIGHT)


def _lstm(layer: KerasLayer) -> LayerLayouts:
    return _lstm_weights(layer.cell, suffix="_l0")


def _lstm_cell(cell: KerasLayer) -> LayerLayouts:
    return _lstm_weights(cell, suffix="")


def _gru(layer: KerasLayer) -> LayerLayouts:
    return _gru_weights(layer.cell, suffix="_l0")


def _gru_cell(cell: KerasLayer) -> LayerLayouts:
    return _gru_weights(cell, suffix="")


def _lstm_weights(cell: KerasLayer, suffix: str) -> LayerLayouts:
    """Return the gates in the order that both frameworks use.

    Args:
        cell: The cell.
        suffix: The end of PyTorch's names, which number the layers of an LSTM.
    """
    return _with_layouts(
        cell,
        kernel=Layout((f"weight_ih{suffix}",), axes=(1, 0)),
        recurrent_kernel=Layout((f"weight_hh{suffix}",), axes=(1, 0)),
        bias=_SumOfBiases((f"bias_ih{suffix}", f"bias_hh{suffix}")),
    )


def _gru_weights(cell: KerasLayer, suffix: str) -> LayerLayouts:
    """Return the gates of a GRU cell with PyTorch's names, such as "weight_ih" and a suffix."""
    if not cell.reset_after:
        # Such a cell computes another function than PyTorch's GRU, so its weights keep their names.
        return None
    return _with_layouts(
        cell,
        kernel=_GruWeight((f"weight_ih{suffix}",)),
        recurrent_kernel=_GruWeight((f"weight_hh{suffix}",)),
        bias=_GruBiases((f"bias_ih{suffix}", f"bias_hh{suffix}")),
    )


#: Names of Keras' classes, and the function for layers of these classes; the first match counts.
_TABLE: tuple[tuple[tuple[str, ...], Callable[[KerasLayer], LayerLayouts] | None], ...] = (
    (("Dense",), _dense),
    # They may be derived from the convolutions below, but compute something else.
    (("DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D"), None),
    (
        ("Conv1D", "Conv2D", "Conv3D", "Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"),
        _convolution,
    ),
    (("LayerNormalization",), _layer_norm),
    (("BatchNormalization",), _batch_norm),
    (("Embedding",), _embedding),
    (("LSTM",), _lstm),
    (("LSTMCell",), _lstm_cell),
    (("GRU",), _gru),
    (("GRUCell",), _gru_cell),
)
