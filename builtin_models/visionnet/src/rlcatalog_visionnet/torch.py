"""The convolutional network in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlcatalog_torch import (
    DenseStack,
    InputScaling,
    OutputLayers,
    TorchModelV2,
    activation,
    dtype_of,
    initialize,
)
from rlcatalog_visionnet.common import Vision
from rlcatalog_visionnet.convolutions import ConvSpec, LayerSpec, PoolSpec, ResidualSpec
from rlcatalog_visionnet.plan import ImagePlan


def map_activation(value: str | Callable[..., Any]) -> Callable[[Tensor], Tensor] | None:
    """Return the function for an activation on maps `[B, C, H, W]`; None for "linear".

    Softmax is over the channels; on vectors, it is over the last axis.
    """
    if value == "softmax":
        return nn.Softmax2d()
    return activation(value)


class Conv(nn.Conv2d):
    """Convolution with its activation; feature maps have shape `[B, C, H, W]` and are
    `channels_last` in memory.

    The kernel is stored in `channels_last`, the fastest format on CPUs and GPUs. A convolution
    whose output is 1x1 is computed as a matrix product, which takes a third of the time.
    """

    def __init__(self, spec: ConvSpec) -> None:
        (top, bottom), (left, right) = spec.pads
        # The kernel fits only once: then a matrix product is enough.
        has_one_window = spec.size == (1, 1)
        # PyTorch's convolutions pad both sides alike, and a matrix product does not pad. In other
        # cases, `forward` pads its input first.
        padding: int | tuple[int, int] = (top, left)
        margins = None
        is_symmetric = (top, left) == (bottom, right)
        if has_one_window or not is_symmetric:
            padding = 0
            if bottom or right:  # never less than at the top and on the left
                margins = (left, right, top, bottom)
        super().__init__(spec.inputs, spec.channels, spec.kernel, spec.stride, padding)
        self.has_one_window = has_one_window
        self.margins = margins
        initialize(self.weight, spec.weights, spec.weights_config)
        assert self.bias is not None
        inputs_per_window = self.weight[0].numel()
        initialize(self.bias, spec.bias, spec.bias_config, inputs_per_window)
        self.weight = nn.Parameter(
            self.weight.detach().contiguous(memory_format=torch.channels_last)
        )
        self.activate = map_activation(spec.activation)
        if spec.activation == "relu":
            # The output is a new map, so an in-place ReLU is safe; it takes a tenth of the time.
            self.activate = torch.relu_

    def reset_parameters(self) -> None:
        """Do nothing: the spec has already set the initial values."""

    def forward(self, input: Tensor) -> Tensor:
        """Map `[B, C, H, W]` to the next feature map."""
        if self.margins is not None:
            input = F.pad(input, self.margins)
        if self.has_one_window:
            output = self._product(input)[:, :, None, None]
        else:
            # Weights set from outside (functional_call, assigned state dicts) may have PyTorch's
            # default layout. The stride tells, because vmap does not support asking for the memory
            # format.
            weight = self.weight
            is_channels_last = weight.stride(1) == 1
            if not is_channels_last:
                weight = weight.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
            output = F.conv2d(input, weight, self.bias, self.stride, self.padding)
        if self.activate is not None:
            output = self.activate(output)
        return output

    def _product(self, x: Tensor) -> Tensor:
        """Return the output `[B, out]` for the only window."""
        weight = self.weight
        height, width = self.kernel_size
        if x.shape[2:] != (height, width):
            # What is left beside the window is too small for a second one.
            x = x[:, :, :height, :width]
        if not weight.is_contiguous():
            # Channels last is the order in memory, so flattening in this order needs no copy.
            weight = weight.permute(0, 2, 3, 1)
            x = x.permute(0, 2, 3, 1)
        return F.linear(x.flatten(1), weight.flatten(1), self.bias)


class Pool(nn.Module):
    """Max pooling with 3x3 windows and stride 2, padded as with TensorFlow's "SAME"."""

    def __init__(self, spec: PoolSpec) -> None:
        super().__init__()
        # An odd side needs a pixel at both ends; an even side needs one at its end only, which
        # ceil_mode provides.
        height, width = spec.size_in
        self.padding = (height % 2, width % 2)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[B, C, H, W]` to `[B, C, H/2, W/2]`, rounded up."""
        return F.max_pool2d(x, kernel_size=3, stride=2, padding=self.padding, ceil_mode=True)


class Residual(nn.Module):
    """Residual block: activation, convolution, activation, convolution; the input is added to the
    result.
    """

    def __init__(self, spec: ResidualSpec) -> None:
        super().__init__()
        self.activate = map_activation(spec.activation)
        self.first = Conv(spec.first)
        self.second = Conv(spec.second)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[B, C, H, W]` to an output of the same shape."""
        inner = x
        if self.activate is not None:
            inner = self.activate(x)
        residual: Tensor = self.second(self.first(inner))
        return x + residual


def build_layer(spec: LayerSpec) -> nn.Module:
    """Build the layer that a specification describes."""
    if isinstance(spec, ConvSpec):
        return Conv(spec)
    if isinstance(spec, PoolSpec):
        return Pool(spec)
    return Residual(spec)


class ConvStack(nn.Module):
    """A plan's convolutions, with output flattened in channels-last order."""

    def __init__(self, image_plan: ImagePlan) -> None:
        super().__init__()
        self.layers = nn.ModuleList(build_layer(spec) for spec in image_plan.layers)
        self.activate = map_activation(image_plan.activation)

    def forward(self, x: Tensor) -> Tensor:
        """Map images `[B, C, H, W]` to features `[B, height x width x channels]`."""
        for layer in self.layers:
            x = layer(x)
        if self.activate is not None:
            x = self.activate(x)
        return x.permute(0, 2, 3, 1).flatten(1)


class ConvLogits(Conv):
    """Convolution that replaces the logits layer."""

    def __init__(self, spec: ConvSpec) -> None:
        super().__init__(spec)
        self.size_in = spec.size_in

    def forward(self, features: Tensor) -> Tensor:
        """Map features `[B, height x width x channels]` to `[B, outputs]`."""
        maps = features.reshape(-1, *self.size_in, self.in_channels).permute(0, 3, 1, 2)
        return super().forward(maps)[:, :, 0, 0]


class VisionNetwork(Vision, TorchModelV2):
    """Convolutions, followed by dense layers if configured, logits and a value; see `Vision`."""

    convs_class = ConvStack
    stack_class = DenseStack
    outputs_class = OutputLayers
    logits_class = ConvLogits
    input_scaling_class = InputScaling

    def _to_maps(self, images: Tensor) -> Tensor:
        """Return images `[B, C, H, W]` in the weights' dtype, as a view if channels are last in
        memory.
        """
        layout = self.layout
        if layout.has_frames and layout.channels_first:
            # [B, frames, C, H, W] → [B, frames x C, H, W]
            images = images.flatten(1, 2)
        elif layout.has_frames:
            # [B, frames, H, W, C] → [B, H, W, frames x C]
            images = images.permute(0, 2, 3, 1, 4).flatten(3)
        if not layout.channels_first:
            images = images.permute(0, 3, 1, 2)
        return images.to(dtype_of(self))
