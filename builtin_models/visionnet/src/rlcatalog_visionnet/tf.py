"""The convolutional network in TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rlcatalog.frameworks import Tensor
from rlcatalog_tf import (
    DenseStack,
    InputScaling,
    OutputLayers,
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
        if callable(spec.weights):
            # Keras' initialisers compute the numbers of inputs and outputs from this layout.
            shape = (*spec.kernel, spec.inputs, spec.channels)
            kernel = initial_value(shape, spec.weights, spec.weights_config)
        else:
            canonical_shape = (spec.channels, spec.inputs, *spec.kernel)
            kernel = initial_value(canonical_shape, spec.weights, spec.weights_config)
            # To Keras' layout.
            kernel = tf.transpose(kernel, (2, 3, 1, 0))
        self.kernel = tf.Variable(kernel, name="kernel")
        inputs_per_window = spec.inputs * math.prod(spec.kernel)
        bias = initial_value((spec.channels,), spec.bias, spec.bias_config, inputs_per_window)
        self.bias = tf.Variable(bias, name="bias")
        self.spec = spec
        # The kernel fits only once: then a matrix product is enough.
        self.has_one_window = spec.size == (1, 1)
        self.activate = activation(spec.activation)

    def __call__(self, x: Tensor) -> Any:
        """Map `[B, H, W, C]` to the next feature map."""
        if self.has_one_window:
            output = self._product(x)[:, None, None, :]
        else:
            output = tf.nn.conv2d(x, self.kernel, self.spec.stride, self.spec.padding.upper())
            # For an empty batch, conv2d returns the height and width of its input.
            output = tf.reshape(output, [-1, *self.spec.size, self.spec.channels])
            output = tf.nn.bias_add(output, self.bias)
        if self.activate is not None:
            output = self.activate(output)
        return output

    def _product(self, x: Tensor) -> Any:
        """Return the output `[B, out]` for the only window."""
        spec = self.spec
        if spec.pads != ((0, 0), (0, 0)):
            x = tf.pad(x, ((0, 0), *spec.pads, (0, 0)))
        height, width = spec.kernel
        if tuple(x.shape[1:3]) != spec.kernel:
            # What is left beside the window is too small for a second one.
            x = x[:, :height, :width]
        size = height * width * spec.inputs
        window = tf.reshape(x, [-1, size])
        weight = tf.reshape(self.kernel, [size, spec.channels])
        return tf.nn.bias_add(tf.matmul(window, weight), self.bias)

    def canonical(self) -> Named:
        """Yield the canonical name, the variable, and its axis order in the canonical layout."""
        yield "weight", self.kernel, (3, 2, 0, 1)
        yield "bias", self.bias, None


class Pool:
    """Max pooling with 3x3 windows and stride 2."""

    def __call__(self, x: Tensor) -> Any:
        """Map `[B, H, W, C]` to `[B, H/2, W/2, C]`, rounded up."""
        return tf.nn.max_pool2d(x, ksize=3, strides=2, padding="SAME")


class Residual:
    """Residual block: activation, convolution, activation, convolution; the input is added to the
    result.
    """

    def __init__(self, spec: ResidualSpec) -> None:
        self.activate = activation(spec.activation)
        self.first = Conv(spec.first)
        self.second = Conv(spec.second)

    def __call__(self, x: Tensor) -> Any:
        """Map `[B, H, W, C]` to an output of the same shape."""
        inner = x
        if self.activate is not None:
            inner = self.activate(x)
        return x + self.second(self.first(inner))


def build_layer(spec: LayerSpec) -> Conv | Pool | Residual:
    """Build the layer that a specification describes."""
    if isinstance(spec, ConvSpec):
        return Conv(spec)
    if isinstance(spec, PoolSpec):
        return Pool()
    return Residual(spec)


class ConvStack:
    """A plan's convolutions, with flattened output."""

    def __init__(self, image_plan: ImagePlan) -> None:
        self.layers = [build_layer(spec) for spec in image_plan.layers]
        self.activate = activation(image_plan.activation)
        self.features = image_plan.output.num_inputs

    def __call__(self, x: Tensor) -> Any:
        """Map images `[B, H, W, C]` to features `[B, height x width x channels]`."""
        for layer in self.layers:
            x = layer(x)
        if self.activate is not None:
            x = self.activate(x)
        return tf.reshape(x, [-1, self.features])


class ConvLogits(Conv):
    """Convolution that replaces the logits layer."""

    def __call__(self, features: Tensor) -> Any:
        """Map features `[B, height x width x channels]` to `[B, outputs]`."""
        maps = tf.reshape(features, [-1, *self.spec.size_in, self.spec.inputs])
        return super().__call__(maps)[:, 0, 0]


class VisionNetwork(Vision, TFModelV2):
    """Convolutions, followed by dense layers if configured, logits and a value; see `Vision`."""

    convs_class = ConvStack
    stack_class = DenseStack
    outputs_class = OutputLayers
    logits_class = ConvLogits
    input_scaling_class = InputScaling

    def _to_maps(self, images: Any) -> Any:
        """Return images as float32 `[B, H, W, C]`."""
        layout = self.layout
        if layout.has_frames:
            height, width, channels = layout.size(images.shape[1:])
            if layout.channels_first:
                # [B, frames, C, H, W] → [B, H, W, frames, C]
                images = tf.transpose(images, [0, 3, 4, 1, 2])
            else:
                # [B, frames, H, W, C] → [B, H, W, frames, C]
                images = tf.transpose(images, [0, 2, 3, 1, 4])
            images = tf.reshape(images, [-1, height, width, channels])
        elif layout.channels_first:
            images = tf.transpose(images, [0, 2, 3, 1])
        return tf.cast(images, tf.float32)
