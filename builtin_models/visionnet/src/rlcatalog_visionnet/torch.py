"""The convolutional network in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlcatalog_torch import (
    DenseStack,
    OutputLayers,
    ScaledInput,
    TorchModelV2,
    activation,
    dtype_of,
    initialize,
)
from rlcatalog_visionnet.common import Vision
from rlcatalog_visionnet.convolutions import ConvSpec, LayerSpec, PoolSpec, ResidualSpec
from rlcatalog_visionnet.plan import ImagePlan


def map_activation(value: Any) -> Any:
    """Return the function for an activation on maps `[B, C, H, W]`, with softmax over channels;
    None for "linear".
    """
    return nn.Softmax2d() if value == "softmax" else activation(value)


class Conv(nn.Conv2d):
    """Convolution with its activation; feature maps have shape `[B, C, H, W]` and are
    `channels_last` in memory.

    The kernel is stored in `channels_last`, the fastest format on CPUs and GPUs. A convolution
    whose output is 1x1 is computed as a matrix product, which takes a third of the time.
    """

    def __init__(self, spec: ConvSpec) -> None:
        (top, bottom), (left, right) = spec.pads
        covers = spec.size == (1, 1)
        # PyTorch's convolutions only support symmetric padding, and a product does not pad.
        pads_itself = (top, left) != (bottom, right) or (covers and bool(bottom or right))
        super().__init__(
            spec.inputs, spec.channels, spec.kernel, spec.stride, 0 if pads_itself else (top, left)
        )
        self.covers = covers
        self.margins = (left, right, top, bottom) if pads_itself else None
        initialize(self.weight, spec.weights, spec.weights_config)
        assert self.bias is not None
        initialize(self.bias, spec.bias, spec.bias_config, self.weight[0].numel())
        self.weight = nn.Parameter(
            self.weight.detach().contiguous(memory_format=torch.channels_last)
        )
        # The output is a new map, so an in-place ReLU is safe; it takes a tenth of the time.
        self.activate = (
            torch.relu_ if spec.activation == "relu" else map_activation(spec.activation)
        )

    def reset_parameters(self) -> None:
        """Do nothing: the spec has already set the initial values."""

    def forward(self, input: Tensor) -> Tensor:
        """Map `[B, C, H, W]` to the next feature map."""
        if self.margins is not None:
            input = F.pad(input, self.margins)
        if self.covers:
            output = self._product(input)[:, :, None, None]
        else:
            # Weights set from outside (functional_call, assigned state dicts) may have PyTorch's
            # default layout.
            weight = self.weight
            if weight.stride(1) != 1:  # not by memory format, which vmap does not support
                weight = weight.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
            output = F.conv2d(input, weight, self.bias, self.stride, self.padding)
        return output if self.activate is None else self.activate(output)

    def _product(self, x: Tensor) -> Tensor:
        """Return the output `[B, out]` for the only window."""
        weight, (height, width) = self.weight, self.kernel_size
        if x.shape[2:] != (height, width):
            x = x[:, :, :height, :width]
        if not weight.is_contiguous():  # channels last, the memory order, avoids copies
            weight, x = weight.permute(0, 2, 3, 1), x.permute(0, 2, 3, 1)
        return F.linear(x.flatten(1), weight.flatten(1), self.bias)


class Pool(nn.Module):
    """Max pooling with 3x3 windows and stride 2, padded as with TensorFlow's "SAME"."""

    def __init__(self, spec: PoolSpec) -> None:
        super().__init__()
        # An even side needs one extra pixel at its end only, which ceil_mode provides.
        self.padding = (spec.size_in[0] % 2, spec.size_in[1] % 2)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[B, C, H, W]` to `[B, C, H/2, W/2]`, rounded up."""
        return F.max_pool2d(x, 3, 2, self.padding, ceil_mode=True)


class Residual(nn.Module):
    """Residual block: activation, convolution, activation, convolution; the input is added to the
    result.
    """

    def __init__(self, spec: ResidualSpec) -> None:
        super().__init__()
        self.activate = map_activation(spec.activation)
        self.first, self.second = Conv(spec.first), Conv(spec.second)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[B, C, H, W]` to an output of the same shape."""
        inner = x if self.activate is None else self.activate(x)
        residual: Tensor = self.second(self.first(inner))
        return x + residual


LAYERS: dict[type[LayerSpec], Any] = {ConvSpec: Conv, PoolSpec: Pool, ResidualSpec: Residual}


class ConvStack(nn.Module):
    """A plan's convolutions, with output flattened in channels-last order."""

    def __init__(self, image_plan: ImagePlan) -> None:
        super().__init__()
        self.layers = nn.ModuleList(LAYERS[type(spec)](spec) for spec in image_plan.layers)
        self.activate = map_activation(image_plan.activation)

    def forward(self, x: Tensor) -> Tensor:
        """Map images `[B, C, H, W]` to features `[B, height x width x channels]`."""
        for module in self.layers:
            x = module(x)
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
    scaled_class = ScaledInput

    def _ordered(self, images: Tensor) -> Tensor:
        """Return images `[B, C, H, W]` in the weights' dtype, as a view if channels are last in
        memory.
        """
        if self.layout.has_frames and self.layout.channels_first:
            images = images.flatten(1, 2)
        elif self.layout.has_frames:
            images = images.permute(0, 2, 3, 1, 4).flatten(3)
        if not self.layout.channels_first:
            images = images.permute(0, 3, 1, 2)
        return images.to(dtype_of(self))
