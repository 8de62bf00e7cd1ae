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
            -(-n // s) if self.padding == "same" else (n - k) // s + 1
            for n, k, s in zip(self.size_in, self.kernel, self.stride, strict=True)
        )
        return height, width

    @property
    def pads(self) -> tuple[Pair, Pair]:
        """Numbers of zero rows above and below, and of zero columns on the left and right."""
        if self.padding == "valid":
            return (0, 0), (0, 0)
        rows, columns = (
            max((out - 1) * s + k - n, 0)
            for n, k, s, out in zip(self.size_in, self.kernel, self.stride, self.size, strict=True)
        )
        return (rows // 2, rows - rows // 2), (columns // 2, columns - columns // 2)

    @property
    def weight_count(self) -> int:
        """Number of weights."""
        return (self.kernel[0] * self.kernel[1] * self.inputs + 1) * self.channels

    @property
    def label(self) -> str:
        """Short description for tables, such as `8x8/4 same, relu`."""
        stride = str(self.stride[0]) if self.stride[0] == self.stride[1] else by(self.stride)
        name = (
            self.activation
            if isinstance(self.activation, str)
            else getattr(self.activation, "__name__", "custom")
        )
        return f"{by(self.kernel)}/{stride} {self.padding}, {name}"


@dataclass(frozen=True)
class PoolSpec:
    """Max pooling with 3x3 windows, stride 2 and `"same"` padding."""

    channels: int
    size_in: Pair
    weight_count: ClassVar[int] = 0

    @property
    def size(self) -> Pair:
        """Height and width of the output."""
        return -(-self.size_in[0] // 2), -(-self.size_in[1] // 2)


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


def by(numbers: Sequence[int]) -> str:
    """Format `(8, 4)` as `8x4`."""
    return "x".join(map(str, numbers))


def derived(size: Pair, padding: str | None) -> list[Filter]:
    """Return a list of convolutions that reduces an image of any size to 1x1.

    Along each axis, the kernel depends on the side length: 8 with stride 4 above 44, 4 with stride
        2 above 11, otherwise 3 with stride 1. At least two layers are added, until no side exceeds
        11; they have 16, then 32, then 64 channels. A last layer with 256 channels covers the
        remaining area. For 84x84 and 42x42 images, this gives RLlib's lists.

    Args:
        size: Height and width of the image.
        padding: Value of `conv_padding`; None means RLlib's rule.
    """
    filters: list[Filter] = []
    while len(filters) < 2 or max(size) > 11:
        axes = [(8, 4) if n > 44 else (4, 2) if n > 11 else (min(3, n), 1) for n in size]
        kernel, stride = (axes[0][0], axes[1][0]), (axes[0][1], axes[1][1])
        filters.append(((16, 32, 64)[min(len(filters), 2)], kernel, stride))
        size = ConvSpec(0, 0, kernel, stride, padding or "same", size).size
    return [*filters, cover(size, padding)]


def cover(size: Pair, padding: str | None, channels: int = 256) -> Filter:
    """Return a last layer whose kernel covers the whole feature map, so that the output is 1x1."""
    return channels, size, size if padding == "same" else (1, 1)


def lay_out(
    filters: Sequence[Filter],
    size: Pair,
    channels: int,
    padding: str | None,
    options: Mapping[str, Any],
) -> list[ConvSpec]:
    """Return the convolutions of a list, each applied to the output of the previous one.

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
        pads = padding or ("valid" if i == len(filters) - 1 else "same")
        specs.append(ConvSpec(channels, outputs, kernel, stride, pads, size, **options))
        channels, size = outputs, specs[-1].size
        if min(size) < 1:
            break
    return specs


def working_list(filters: Sequence[Filter], size: Pair, padding: str | None) -> list[Filter]:
    """Return a list of convolutions close to the given list that reduces the image to 1x1.

    If the last kernel covers at least half of its input, it is enlarged to cover all of it;
    otherwise a layer is added. If an earlier kernel does not fit, the result is the list that
    `derived` returns.
    """
    body = lay_out(filters, size, 1, padding, {})
    last = body[-1]
    if len(body) < len(filters):  # an earlier kernel does not fit
        return derived(size, padding)
    covers = all(2 * k >= n for k, n in zip(last.kernel, last.size_in, strict=True))
    if covers or min(last.size) < 1:
        return [*filters[:-1], cover(last.size_in, padding, last.channels)]
    # With an additional layer.
    longer = lay_out([*filters, (1, (1, 1), (1, 1))], size, 1, padding, {})
    return [*filters, cover(longer[-1].size_in, padding)]


def as_config(filters: Sequence[Filter]) -> list[list[Any]]:
    """Return a list of convolutions as users write it in a config."""
    return [
        [n, list(kernel), stride[0] if stride[0] == stride[1] else list(stride)]
        for n, kernel, stride in filters
    ]
