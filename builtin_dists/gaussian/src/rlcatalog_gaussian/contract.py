"""The Gaussians without a framework: sizes, options, joining, and refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionDistribution, BoundDistribution, read_bounds, same_kind, sized_by
from rlcatalog.errors import ModelContractError
from rlcatalog.frameworks import TensorOps
from rlcatalog_gaussian.config import limits
from rlcatalog_gaussian.plugin import size, squashed_size


class NormalsContract(ActionDistribution):
    """Normal values `[B, d]` without masks; base of both Gaussians.

    Attributes:
        ops: The framework's tensor operations.
        mean: Their means.
    """

    maskable = False
    ops: TensorOps
    mean: Any

    def divergence(self, other: Any) -> Any:
        """Return the divergence `[B]` between two sets of normal values, at most the highest finite number."""
        raise NotImplementedError


class DiagGaussianContract(NormalsContract):
    """Independent normal values `[B, d]`; raw actions are unbounded, the action codec brings them into their bounds.

    Args:
        inputs: `[B, 2d]`: means, then log standard deviations. Half precisions are widened to float32.
        model: The model that made them, or None.
        log_std_min: Log standard deviations below it are cut off; none when None.
        log_std_max: Log standard deviations above it are cut off; none when None.
    """

    required_model_output_shape = staticmethod(sized_by(size))

    @classmethod
    def options_for(cls, action: SpaceInfo, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the limits of the log standard deviations, if the config has any."""
        return limits(config)

    @classmethod
    def family(cls, options: Mapping[str, Any]) -> Any:
        """Join normal values whose deviations are limited alike; a subclass may mean something else."""
        return ("normals", *sorted(options.items())) if DiagGaussianContract in cls.__bases__ else None

    @classmethod
    def side_by_side(cls, members: Sequence[tuple[Mapping[str, Any], int]]) -> tuple[Any, list[tuple[int, int, int]]]:
        """Return one DiagGaussian: the means of all, then the log standard deviations of all."""
        means = [(i, 0, size // 2) for i, (_, size) in enumerate(members)]
        deviations = [(i, size // 2, size) for i, (_, size) in enumerate(members)]
        options = members[0][0]
        return BoundDistribution(cls, options) if options else cls, means + deviations

    def sample(self) -> Any:
        """Sample `[B, d]`, without gradient."""
        self.last_sample = self.ops.without_gradient(self.rsample())
        return self.last_sample

    def deterministic_sample(self) -> Any:
        """Return the means `[B, d]`."""
        self.last_sample = self.mean
        return self.last_sample

    def kl(self, other: Any) -> Any:
        """Return the divergence `[B]` between diagonal Gaussians, summed over d."""
        same_kind(self, other)
        return self.divergence(other)


class SquashedGaussianContract(NormalsContract):
    """Independent normal values u, squashed into bounds: `low + (tanh(u) + 1) / 2 * (high - low)`, `[B, d]`.

    Raw actions lie within the bounds, and `logp` is their true density, Jacobian and scale included: RLlib leaves the
    term `log((high - low) / 2)` out. A stored action is scored as the number it is, by inverting the squashing; at a
    bound, as the nearest float32 inside. If the tensor itself came from `rsample`, it is scored from its normal value
    instead: near the bounds, where numbers are sparse, this alone keeps the gradient of the draw. There is no closed
    form for the entropy; `entropy_estimate` is made in the same way.

    Args:
        inputs: `[B, 2d]`: means, then log standard deviations. Half precisions are widened to float32.
        model: The model that made them, or None.
        low: Lower bounds, a number or `[d]`.
        high: Upper bounds, a number or `[d]`.
        log_std_min: Log standard deviations below it are cut off; RLlib's -5 when None.
        log_std_max: Log standard deviations above it are cut off; RLlib's 2 when None.
    """

    raw_kind = "bounded"
    entropy_kind = "estimate"

    bounds: Any

    required_model_output_shape = staticmethod(sized_by(squashed_size))

    @classmethod
    def options_for(cls, action: SpaceInfo, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the bounds, float32 `[d]`, and the limits of the log standard deviations that the config gives."""
        low, high = read_bounds(action, cls.__name__)
        return {"low": low, "high": high, **limits(config)}

    def kl(self, other: Any) -> Any:
        """Return the divergence `[B]`, which equals that of the normal values, because the squashing is a bijection.

        Raises:
            ModelContractError: The other distribution is of another kind or has other bounds.
        """
        same_kind(self, other)
        ours, theirs = self.bounds, other.bounds
        if ours is not theirs and not (_equal(ours.low, theirs.low) and _equal(ours.high, theirs.high)):
            raise ModelContractError("SquashedGaussian.kl() takes a distribution with the same bounds.")
        return self.divergence(other)


def _equal(one: Any, other: Any) -> bool:
    """Return whether two tensors or arrays are the same."""
    return one.shape == other.shape and bool((one == other).all())
