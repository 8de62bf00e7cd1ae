"""PyTorch's names and layouts for the weights of common Keras layers, so that weights can be
copied.

This covers layers that compute the same function in both frameworks. Other layers, and GRUs without
`reset_after`, keep Keras's names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layout:
    """Canonical form of a variable, as one or several arrays.

    Attributes:
        names: Canonical names of the arrays.
        axes: Axes that transpose the value into its only canonical array, if transposing suffices.
        to: In other cases, a function that converts the value into the canonical arrays.
        back: The inverse of `to`.
    """

    names: tuple[str, ...]
    axes: tuple[int, ...] | None = None
    to: Callable[[Array], tuple[Array, ...]] | None = None
    back: Callable[..., Array] | None = None

    def split(self, value: Array) -> tuple[Array, ...]:
        """Return the canonical arrays for a value."""
        if self.to is not None:
            return self.to(value)
        return (value if self.axes is None else value.transpose(self.axes),)

    def join(self, *arrays: Array) -> Array:
        """Return the value for its canonical arrays."""
        if self.back is not None:
            return self.back(*arrays)
        return arrays[0] if self.axes is None else arrays[0].transpose(np.argsort(self.axes))


def layouts_of(layer: Any, keras: Any) -> list[tuple[Any, Layout]] | None:
    """Return the variables of a layer with their canonical forms, or None for an unsupported layer.

    Args:
        layer: A built layer.
        keras: The module that the layer comes from: Keras or legacy Keras.
    """
    for names, describe in _TABLE:
        classes = tuple(
            cls for name in names if (cls := getattr(keras.layers, name, None)) is not None
        )
        if isinstance(layer, classes):
            return describe(layer)
    return None


def _named(layer: Any, **layouts: Layout) -> list[tuple[Any, Layout]]:
    """Return a layer's existing variables with their layouts."""
    return [
        (variable, layout)
        for name, layout in layouts.items()
        if (variable := getattr(layer, name, None)) is not None and hasattr(variable, "shape")
    ]


#: Unchanged weights and biases.
_WEIGHT, _BIAS = Layout(("weight",)), Layout(("bias",))


def _convolution(layer: Any) -> list[tuple[Any, Layout]] | None:
    """Map `[*window, in, out]` to `[out, in, *window]`; transposed: `[*window, out, in]` to
    `[in, out, *window]`.
    """
    rank = len(layer.kernel.shape)
    return _named(
        layer, kernel=Layout(("weight",), (rank - 1, rank - 2, *range(rank - 2))), bias=_BIAS
    )


def _batch_norm(layer: Any) -> list[tuple[Any, Layout]]:
    count = Layout(
        ("running_var", "num_batches_tracked"),  # PyTorch counts them; nobody here does
        to=lambda value: (value, np.zeros((), np.int64)),
        back=lambda variance, batches: variance,
    )
    return _named(
        layer,
        gamma=_WEIGHT,
        beta=_BIAS,
        moving_mean=Layout(("running_mean",)),
        moving_variance=count,
    )


def _lstm(layer: Any, end: str) -> list[tuple[Any, Layout]]:
    """Return the gates in the order that both frameworks use.

    PyTorch adds two biases; Keras has only the first.
    """
    bias = Layout(
        (f"bias_ih{end}", f"bias_hh{end}"),
        to=lambda value: (value, np.zeros_like(value)),
        back=lambda one, two: one + two,
    )
    weights = Layout((f"weight_ih{end}",), (1, 0)), Layout((f"weight_hh{end}",), (1, 0))
    return _named(layer, kernel=weights[0], recurrent_kernel=weights[1], bias=bias)


def _gru(layer: Any, end: str) -> list[tuple[Any, Layout]] | None:
    """Reorder the gates: reset, update, new in PyTorch; update, reset, new in Keras."""
    if not layer.reset_after:
        return None  # it computes a different function
    weights = [
        Layout(
            (f"weight_{which}{end}",),
            to=lambda value: (_gates(value).T,),
            back=lambda one: _gates(one.T),
        )
        for which in ("ih", "hh")
    ]
    bias = Layout(
        (f"bias_ih{end}", f"bias_hh{end}"),
        to=lambda value: tuple(_gates(value)),
        back=lambda one, two: _gates(np.stack([one, two])),
    )
    return _named(layer, kernel=weights[0], recurrent_kernel=weights[1], bias=bias)


def _gates(value: Array) -> Array:
    """Swap the first two thirds of the last axis."""
    first, second, third = np.split(value, 3, axis=-1)
    return np.concatenate([second, first, third], axis=-1)


_TABLE: tuple[tuple[tuple[str, ...], Callable[[Any], list[tuple[Any, Layout]] | None]], ...] = (
    (("Dense",), lambda layer: _named(layer, kernel=Layout(("weight",), (1, 0)), bias=_BIAS)),
    (
        ("DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D"),
        lambda layer: None,
    ),
    (
        ("Conv1D", "Conv2D", "Conv3D", "Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"),
        _convolution,
    ),
    (("LayerNormalization",), lambda layer: _named(layer, gamma=_WEIGHT, beta=_BIAS)),
    (("BatchNormalization",), _batch_norm),
    (("Embedding",), lambda layer: _named(layer, embeddings=_WEIGHT)),
    (("LSTM",), lambda layer: _lstm(layer.cell, "_l0")),
    (("LSTMCell",), lambda layer: _lstm(layer, "")),
    (("GRU",), lambda layer: _gru(layer.cell, "_l0")),
    (("GRUCell",), lambda layer: _gru(layer, "")),
)
