"""Views of the catalog's distributions with the interface of `torch.distributions`, returned by
`dist.as_torch()`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, register_kl

from rlcatalog.actions import ActionDistribution
from rlcatalog.errors import NoClosedFormError
from rlcatalog_torch.ops import OPS, flat_sample


class TorchDistribution(ActionDistribution):
    """Base class for action distributions in PyTorch; see `rlcatalog.ActionDistribution`."""

    framework_of_class = "torch"
    ops = OPS

    def as_torch(self) -> Distribution:
        """Return the same distribution of raw actions as a `torch.distributions.Distribution` with
        batch shape `[B]`.

        The result includes masks, because they are part of the inputs. Samples are flat
        (`[B, width]`, or `[B]` for a single Discrete), even if `sample` returns a structure.
        Methods without a closed form raise NotImplementedError.
        """
        return DistributionView(self)

    def moment(self, name: str) -> Tensor:
        """Return the `"mean"`, `"variance"` or `"mode"` of raw actions, in the same shape as a flat
        sample.

        Raises:
            NoClosedFormError: The moment has no closed form.
        """
        raise NoClosedFormError(f"{type(self).__name__} has no closed form for its {name}.")


def as_torch(dist: ActionDistribution) -> Distribution:
    """Return an action distribution as a `torch.distributions.Distribution`; see
    `TorchDistribution.as_torch`.
    """
    if isinstance(dist, TorchDistribution):
        return dist.as_torch()
    return DistributionView(dist)


class DistributionView(Distribution):
    """Action distribution with the interface of `torch.distributions`.

    Args:
        dist: The action distribution; the view samples from a copy, so that `dist` keeps its last
            sample.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, dist: ActionDistribution) -> None:
        self.dist: Any = copy.copy(dist)
        self.has_rsample = _has_rsample(dist)
        inputs: Tensor = self.dist.inputs
        gpus = [inputs.device] if inputs.is_cuda else []
        # Only a sample tells the shape. `fork_rng` keeps this draw from changing the caller's
        # random numbers.
        with torch.random.fork_rng(gpus):
            shape = flat_sample(copy.copy(dist).sample()).shape
        super().__init__(batch_shape=shape[:1], event_shape=shape[1:], validate_args=False)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw `[*sample_shape, B, *event]`, without gradients."""
        return self._draw(self.dist.sample, Size(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw in the same way as `sample`, but with gradients."""
        if not self.has_rsample:
            raise NoClosedFormError(
                f"{type(self.dist).__name__} draws without gradients; use sample()."
            )
        return self._draw(self.dist.rsample, Size(sample_shape))

    def _draw(self, draw: Callable[[], Any], sample_shape: Size) -> Tensor:
        samples = [flat_sample(draw()) for _ in range(sample_shape.numel())]
        return torch.stack(samples).reshape(sample_shape + self.batch_shape + self.event_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density `[*sample_shape, B]` of values `[*sample_shape, B, *event]`."""
        batch_shape = self.batch_shape + self.event_shape
        shape = torch.broadcast_shapes(value.shape, batch_shape)  # type: ignore[no-untyped-call]
        sample_shape = Size(shape[: len(shape) - len(batch_shape)])
        batches = value.expand(shape).reshape(sample_shape.numel(), *batch_shape)
        logps: Tensor = torch.stack([self.dist.logp(batch) for batch in batches])
        return logps.reshape(sample_shape + self.batch_shape)

    def entropy(self) -> Tensor:
        """Return the entropy `[B]` in nats."""
        return self.dist.entropy()  # type: ignore[no-any-return]

    @property
    def mean(self) -> Tensor:
        """The mean of raw actions `[B, *event]`."""
        return self.dist.moment("mean")  # type: ignore[no-any-return]

    @property
    def variance(self) -> Tensor:
        """The variance of raw actions `[B, *event]`."""
        return self.dist.moment("variance")  # type: ignore[no-any-return]

    @property
    def mode(self) -> Tensor:
        """The most likely raw actions `[B, *event]`."""
        return self.dist.moment("mode")  # type: ignore[no-any-return]


def _has_rsample(dist: ActionDistribution) -> bool:
    """Return whether all samples of a distribution carry gradients."""
    # A distribution of several parts holds its parts' distributions; others have no groups.
    groups = getattr(dist, "groups", None)
    if groups:
        return all(map(_has_rsample, groups))
    return type(dist).rsample is not ActionDistribution.rsample


@register_kl(DistributionView, DistributionView)  # type: ignore[no-untyped-call, untyped-decorator]
def _kl(p: DistributionView, q: DistributionView) -> Tensor:
    return p.dist.kl(q.dist)  # type: ignore[no-any-return]
