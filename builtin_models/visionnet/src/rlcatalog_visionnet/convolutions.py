"""Framework-independent convolutions: layers, their output sizes, and lists chosen by name or image
size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rlcatalog_visionnet.config import Filter, Pair

#: RLlib's lists by height and width. The list for 64x64 ends at 3x3, which is flattened.
BY_SIZE: dict[Pair, list[Filter]] = {
    (480, 640): [(16, (24, 32), (14, 18)), (32, (6, 6), (4, 4)), (256, (9, 9), (1, 1))],
    (240, 320): [(16, (12, 16), (7, 9)), (32, (6, 6), (4, 4)), (256, (9, 9), (1, 1))],
    (96, 96): [(16, (8, 8), (4, 4)), (32, (4, 4), (2, 2)), (256, (11, 11), (2, 2))],
    (84, 84): [(16, (8, 8), (4, 4)), (32, (4, 4), (2, 2)), (256, (11, 11), (1, 1))],
    (64, 64): [(channels, (4, 4), (2, 2)) for channels in (32, 64, 128, 256)],
    (42, 42): [(16, (4, 4), (2, 2)), (32, (4, 4), (2, 2)), (256, (11, 11), (1, 1))],
    (10, 10): [(16, (5, 5), (2, 2)), (32, (5, 5), (2, 2))],
}

#: Mnih et al. 2015, "Human-level control through deep reinforcement learning".
NATURE: list[Filter] = [(32, (8, 8), (4, 4)), (64, (4, 4), (2, 2)), (64, (3, 3), (1, 1))]
NATURE_DENSE = 512
#: Espeholt et al. 2018, "IMPALA", the deeper network: channels of the three sections.
IMPALA = (16, 32, 32)
IMPALA_BLOCKS = 2
IMPALA_DENSE = 256


@dataclass(frozen=True)
class ConvSpec:
    """Specification of a convolution.

    Attributes:
        inputs: Number of input channels.
        channels: Number of output channels.
        kernel: Height and width of the kernel.
        stride: Vertical and horizontal step.
        padding: `"same"` (output `ceil(n / stride)`; if padding is uneven, the extra row or column
            is at the bottom or right) or `"valid"` (no padding).
        size_in: Height and width of the input.
        activation: Neutral name or callable.
        weights: Initialiser of the kernel: a name or a callable.
        weights_config: Arguments for that initialiser.
        bias: Initialiser of the bias: a name or a callable.
        bias_config: Arguments for that initialiser.
    """

    inputs: int
    channels: int
    kernel: Pair
    stride: Pair
    padding: str
    size_in: Pair
    activation: Any = "linear"
    weights: Any = "xavier_uniform"
    weights_config: Mapping[str, Any] = field(default_factory=dict)
    bias: Any = "zeros"
    bias_config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> Pair:
        """Height and width of the output; below 1 if a kernel does not fit."""
        height, width = (
            output_length(length, kernel, stride, self.padding)
            for length, kernel, stride in zip(self.size_in, self.kernel, self.stride, strict=True)
        )
        return height, width

    @property
    def pads(self) -> tuple[Pair, Pair]:
        """Numbers of zero rows above and below, and of zero columns on the left and right."""
        if self.padding == "valid":
            return (0, 0), (0, 0)
        pads = []
        for axis in (0, 1):
            # The length that all windows cover together.
            extent = (self.size[axis] - 1) * self.stride[axis] + self.kernel[axis]
            zeros = max(extent - self.size_in[axis], 0)
            before = zeros // 2
            pads.append((before, zeros - before))
        rows, columns = pads
        return rows, columns

    @property
    def weight_count(self) -> int:
        """Number of weights."""
        return (self.kernel[0] * self.kernel[1] * self.inputs + 1) * self.channels

    @property
    def label(self) -> str:
        """Short description for tables, such as `8x8/4 same, relu`."""
        down, right = self.stride
        stride = str(down) if down == right else format_size(self.stride)
        name = self.activation
        if not isinstance(name, str):
            # A user's callable: a function or class has a name, an instance may have none.
            name = getattr(self.activation, "__name__", "custom")
        return f"{format_size(self.kernel)}/{stride} {self.padding}, {name}"


@dataclass(frozen=True)
class PoolSpec:
    """Max pooling with 3x3 windows, stride 2 and `"same"` padding."""

    channels: int
    size_in: Pair
    weight_count: ClassVar[int] = 0

    @property
    def size(self) -> Pair:
        """Height and width of the output."""
        height, width = self.size_in
        return divide_up(height, 2), divide_up(width, 2)


@dataclass(frozen=True)
class ResidualSpec:
    """Residual block: `x + second(first(activation(x)))`; `first` includes an activation, `second`
    does not.
    """

    activation: Any
    first: ConvSpec
    second: ConvSpec

    @property
    def weight_count(self) -> int:
        """Number of weights."""
        return self.first.weight_count + self.second.weight_count

    @property
    def channels(self) -> int:
        """Number of input and output channels."""
        return self.first.channels

    @property
    def size(self) -> Pair:
        """Height and width of the input and output."""
        return self.first.size_in


LayerSpec = ConvSpec | PoolSpec | ResidualSpec


def divide_up(number: int, divisor: int) -> int:
    """Return the quotient, rounded up."""
    return -(-number // divisor)


def output_length(length: int, kernel: int, stride: int, padding: str) -> int:
    """Return how often a kernel fits along an axis; below 1 if it does not fit."""
    if padding == "same":
        return divide_up(length, stride)
    return (length - kernel) // stride + 1


def format_size(numbers: Sequence[int]) -> str:
    """Format `(8, 4)` as `8x4`."""
    return "x".join(map(str, numbers))


def derived(size: Pair, padding: str | None) -> list[Filter]:
    """Return a list of convolutions that reduces an image of any size to 1x1.

    At least two layers are added, until no side exceeds 11; they have 16, then 32, then 64
    channels. A last layer with 256 channels covers the remaining area. For 84x84 and 42x42 images,
    this gives RLlib's lists.

    Args:
        size: Height and width of the image.
        padding: Value of `conv_padding`; None means RLlib's rule.
    """
    filters: list[Filter] = []
    while len(filters) < 2 or max(size) > 11:
        channels = (16, 32, 64)[min(len(filters), 2)]
        height, width = size
        kernel_height, stride_down = kernel_and_stride(height)
        kernel_width, stride_right = kernel_and_stride(width)
        kernel = (kernel_height, kernel_width)
        stride = (stride_down, stride_right)
        filters.append((channels, kernel, stride))
        size = (
            output_length(height, kernel_height, stride_down, padding or "same"),
            output_length(width, kernel_width, stride_right, padding or "same"),
        )
    return [*filters, cover(size, padding)]


def kernel_and_stride(length: int) -> tuple[int, int]:
    """Return the kernel and the stride of a derived layer, for an axis of this length."""
    if length > 44:
        return 8, 4
    if length > 11:
        return 4, 2
    return min(3, length), 1


def cover(size: Pair, padding: str | None, channels: int = 256) -> Filter:
    """Return a last layer whose kernel covers the whole feature map, so that the output is 1x1."""
    # With "same", the stride alone decides the size of the output.
    stride = size if padding == "same" else (1, 1)
    return channels, size, stride


def lay_out(
    filters: Sequence[Filter],
    size: Pair,
    channels: int,
    padding: str | None,
    options: Mapping[str, Any],
) -> list[ConvSpec]:
    """Return the convolutions of a list, each applied to the output of the previous one.

    The result ends with the first convolution whose kernel does not fit into its input.

    Args:
        filters: The list.
        size: Height and width of the image.
        channels: Number of channels of the image.
        padding: `"same"` or `"valid"` for all layers; None means `"valid"` for the last layer and
            `"same"` for the others.
        options: Activation and initialisers, as arguments of `ConvSpec`.
    """
    specs: list[ConvSpec] = []
    for i, (outputs, kernel, stride) in enumerate(filters):
        is_last = i == len(filters) - 1
        default_padding = "valid" if is_last else "same"
        spec = ConvSpec(
            inputs=channels,
            channels=outputs,
            kernel=kernel,
            stride=stride,
            padding=padding or default_padding,
            size_in=size,
            **options,
        )
        specs.append(spec)
        channels = outputs
        size = spec.size
        if min(size) < 1:  # the kernel does not fit
            break
    return specs


def working_list(filters: Sequence[Filter], size: Pair, padding: str | None) -> list[Filter]:
    """Return a list of convolutions close to the given list that reduces the image to 1x1.

    If the last kernel covers at least half of its input, it is enlarged to cover all of it;
    otherwise a layer is added. If an earlier kernel does not fit, the result is the list that
    `derived` returns.
    """
    # Sizes do not depend on the number of channels, nor on the options.
    specs = lay_out(filters, size, channels=1, padding=padding, options={})
    last = specs[-1]
    an_earlier_kernel_is_too_large = len(specs) < len(filters)
    if an_earlier_kernel_is_too_large:
        return derived(size, padding)
    height, width = last.size_in
    covers_half = 2 * last.kernel[0] >= height and 2 * last.kernel[1] >= width
    last_kernel_fits = min(last.size) >= 1
    if covers_half or not last_kernel_fits:
        return [*filters[:-1], cover(last.size_in, padding, last.channels)]
    # Without a given padding, a layer that is no longer the last one is padded, so its output may
    # be larger than before. A 1x1 layer after it has that output as its input.
    one_by_one: Filter = (1, (1, 1), (1, 1))
    longer = lay_out([*filters, one_by_one], size, channels=1, padding=padding, options={})
    return [*filters, cover(longer[-1].size_in, padding)]


def as_config(filters: Sequence[Filter]) -> list[list[Any]]:
    """Return a list of convolutions as users write it in a config."""
    entries: list[list[Any]] = []
    for channels, kernel, (down, right) in filters:
        stride = down if down == right else [down, right]
        entries.append([channels, list(kernel), stride])
    return entries
