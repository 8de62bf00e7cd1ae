"""The convolutional network in TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rlcatalog_tf import (
    DenseStack,
    OutputLayers,
    ScaledInput,
    TFModelV2,
    activation,
    initial_value,
    tf,
)
from rlcatalog_visionnet.common import Vision
from rlcatalog_visionnet.convolutions import ConvSpec, LayerSpec, PoolSpec, ResidualSpec
from rlcatalog_visionnet.plan import ImagePlan

#: Canonical name, variable, and axes that convert its value to the canonical layout.
Named = Iterator[tuple[str, Any, tuple[int, ...] | None]]


class Conv:
    """Convolution with its activation; feature maps have shape `[B, H, W, C]`.

    The kernel is stored in TensorFlow's layout `[height, width, in, out]`; its canonical form is
    PyTorch's `[out, in, height, width]`. A convolution whose output is 1x1 is computed as a matrix
    product.
    """

    def __init__(self, spec: ConvSpec) -> None:
        ours, canonical = (
            (*spec.kernel, spec.inputs, spec.channels),
            (spec.channels, spec.inputs, *spec.kernel),
        )
        if callable(spec.weights):  # Keras' initialisers compute the fans from TensorFlow's layout
            kernel = initial_value(ours, spec.weights, spec.weights_config)
        else:
            kernel = tf.transpose(
                initial_value(canonical, spec.weights, spec.weights_config), (2, 3, 1, 0)
            )
        self.kernel = tf.Variable(kernel, name="kernel")
        bias = initial_value(
            (spec.channels,), spec.bias, spec.bias_config, math.prod(canonical[1:])
        )
        self.bias = tf.Variable(bias, name="bias")
        self.spec = spec
        self.covers = spec.size == (1, 1)
        self.activate = activation(spec.activation)

    def __call__(self, x: Any) -> Any:
        """Map `[B, H, W, C]` to the next feature map."""
        if self.covers:
            output = self._product(x)[:, None, None, :]
        else:
            output = tf.nn.conv2d(x, self.kernel, self.spec.stride, self.spec.padding.upper())
            # For 0 rows, it returns the input's.
            output = tf.reshape(output, [-1, *self.spec.size, self.spec.channels])
            output = tf.nn.bias_add(output, self.bias)
        return output if self.activate is None else self.activate(output)

    def _product(self, x: Any) -> Any:
        """Return the output `[B, out]` for the only window."""
        spec = self.spec
        if spec.pads != ((0, 0), (0, 0)):
            x = tf.pad(x, ((0, 0), *spec.pads, (0, 0)))
        height, width = spec.kernel
        if tuple(x.shape[1:3]) != spec.kernel:
            x = x[:, :height, :width]
        size = height * width * spec.inputs
        product = tf.matmul(
            tf.reshape(x, [-1, size]), tf.reshape(self.kernel, [size, spec.channels])
        )
        return tf.nn.bias_add(product, self.bias)

    def canonical(self) -> Named:
        """Yield the canonical name, the variable, and its axis order in the canonical layout."""
        yield "weight", self.kernel, (3, 2, 0, 1)
        yield "bias", self.bias, None


class Pool:
    """Max pooling with 3x3 windows and stride 2."""

    def __call__(self, x: Any) -> Any:
        """Map `[B, H, W, C]` to `[B, H/2, W/2, C]`, rounded up."""
        return tf.nn.max_pool2d(x, 3, 2, "SAME")


class Residual:
    """Residual block: activation, convolution, activation, convolution; the input is added to the
    result.
    """

    def __init__(self, spec: ResidualSpec) -> None:
        self.activate = activation(spec.activation)
        self.first, self.second = Conv(spec.first), Conv(spec.second)

    def __call__(self, x: Any) -> Any:
        """Map `[B, H, W, C]` to an output of the same shape."""
        inner = x if self.activate is None else self.activate(x)
        return x + self.second(self.first(inner))


LAYERS: dict[type[LayerSpec], Any] = {
    ConvSpec: Conv,
    PoolSpec: lambda spec: Pool(),
    ResidualSpec: Residual,
}


class ConvStack:
    """A plan's convolutions, with flattened output."""

    def __init__(self, image_plan: ImagePlan) -> None:
        self.layers = [LAYERS[type(spec)](spec) for spec in image_plan.layers]
        self.activate = activation(image_plan.activation)
        self.features = image_plan.output.inputs

    def __call__(self, x: Any) -> Any:
        """Map images `[B, H, W, C]` to features `[B, height x width x channels]`."""
        for part in self.layers:
            x = part(x)
        if self.activate is not None:
            x = self.activate(x)
        return tf.reshape(x, [-1, self.features])


class ConvLogits(Conv):
    """Convolution that replaces the logits layer."""

    def __call__(self, features: Any) -> Any:
        """Map features `[B, height x width x channels]` to `[B, outputs]`."""
        maps = tf.reshape(features, [-1, *self.spec.size_in, self.spec.inputs])
        return super().__call__(maps)[:, 0, 0]


class VisionNetwork(Vision, TFModelV2):
    """Convolutions, followed by dense layers if configured, logits and a value; see `Vision`."""

    convs_class = ConvStack
    stack_class = DenseStack
    outputs_class = OutputLayers
    logits_class = ConvLogits
    scaled_class = ScaledInput

    def _ordered(self, images: Any) -> Any:
        """Return images as float32 `[B, H, W, C]`."""
        if self.layout.has_frames:
            height, width, channels = self.layout.size(images.shape[1:])
            axes = [0, 3, 4, 1, 2] if self.layout.channels_first else [0, 2, 3, 1, 4]
            images = tf.reshape(tf.transpose(images, axes), [-1, height, width, channels])
        elif self.layout.channels_first:
            images = tf.transpose(images, [0, 2, 3, 1])
        return tf.cast(images, tf.float32)
