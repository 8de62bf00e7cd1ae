"""Framework-independent code for the Gaussians: sizes, options, checks and joining."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from rlcatalog import SpaceInfo
from rlcatalog.actions import (
    ActionDistribution,
    BoundDistribution,
    Interval,
    check_same_kind,
    hashable_bound,
    read_bounds,
    shape_method,
)
from rlcatalog.errors import ModelContractError
from rlcatalog.frameworks import TensorOps
from rlcatalog_gaussian.config import limits
from rlcatalog_gaussian.plugin import size, squashed_size


class NormalsBase(ActionDistribution):
    """Base class for both Gaussians: normal values `[B, d]` without masks.

    Attributes:
        ops: The framework's tensor operations.
        mean: Means of the values.
    """

    maskable = False
    ops: ClassVar[TensorOps]
    mean: Any

    def divergence(self, other: Self) -> Any:
        """Return the KL divergence `[B]` between two sets of normal values, capped at the highest
        finite number.
        """
        raise NotImplementedError


class DiagGaussianBase(NormalsBase):
    """Independent normal values `[B, d]`; raw actions are unbounded, and the action codec maps them
    into the bounds.

    Args:
        inputs: `[B, 2d]`: means, then log standard deviations. Half-precision inputs are widened to
            float32.
        model: The model that computed the inputs, or None.
        log_std_min: Lower limit for the log standard deviations; None for no limit.
        log_std_max: Upper limit for the log standard deviations; None for no limit.
    """

    required_model_output_shape = staticmethod(shape_method(size))

    @classmethod
    def options_for(
        cls,
        action: SpaceInfo,  # noqa: ARG003  (ActionDistribution's signature)
        config: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the limits on the log standard deviations, if the config sets any."""
        return limits(config)

    @classmethod
    def family(cls, options: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """Allow joining normal values with equal limits on the deviations.

        A user's subclass is not joined, because it may behave differently.
        """
        # This class is a direct base of each framework's own class, and of no user's subclass.
        is_own_class = DiagGaussianBase in cls.__bases__
        if not is_own_class:
            return None
        return ("normals", *sorted(options.items()))

    @classmethod
    def side_by_side(
        cls, members: Sequence[tuple[Mapping[str, Any], int]]
    ) -> tuple[Any, list[tuple[int, int, int]]]:
        """Return one DiagGaussian: all members' means, then all members' log standard deviations.

        The slices of the members' inputs are `(member's index, first column, stop)`.
        """
        means = []
        log_deviations = []
        for i, (_, inputs) in enumerate(members):
            means.append((i, 0, inputs // 2))
            log_deviations.append((i, inputs // 2, inputs))
        # All members have the same limits on log standard deviations: they are one family.
        options, _ = members[0]
        joint: Any = cls
        if options:
            joint = BoundDistribution(cls, options)
        return joint, means + log_deviations

    def sample(self) -> Any:
        """Sample `[B, d]`, without gradients."""
        self.last_sample = self.ops.without_gradient(self.rsample())
        return self.last_sample

    def deterministic_sample(self) -> Any:
        """Return the means `[B, d]`."""
        self.last_sample = self.mean
        return self.last_sample

    def kl(self, other: Self) -> Any:  # type: ignore[override]  # of the same kind
        """Return the KL divergence `[B]` between diagonal Gaussians, summed over d."""
        check_same_kind(self, other)
        return self.divergence(other)


class SquashedGaussianBase(NormalsBase):
    """Independent normal values u, squashed into bounds: `low + (tanh(u) + 1) / 2 * (high - low)`,
    `[B, d]`.

    Raw actions lie within the bounds. `logp` is their true log density, including the Jacobian and
    the scale (RLlib omits the term `log((high - low) / 2)`). A stored action is scored by inverting
    the squashing; an action at a bound is scored as the nearest float32 inside the bounds. A tensor
    returned by `rsample` is scored from its normal value instead: near the bounds, where floats are
    sparse, inverting would lose the gradient. The entropy has no closed form; `entropy_estimate`
    also scores a sample from its normal value.

    Args:
        inputs: `[B, 2d]`: means, then log standard deviations. Half-precision inputs are widened to
            float32.
        model: The model that computed the inputs, or None.
        low: Lower bounds: a number, an array `[d]` or a `hashable_bound`.
        high: Upper bounds, in the same form.
        log_std_min: Lower limit for the log standard deviations. If None, -5, as in RLlib.
        log_std_max: Upper limit for the log standard deviations. If None, 2, as in RLlib.
    """

    raw_kind = "bounded"
    entropy_kind = "estimate"

    bounds: Interval

    required_model_output_shape = staticmethod(shape_method(squashed_size))

    @classmethod
    def options_for(cls, action: SpaceInfo, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the bounds, each as a `hashable_bound`, and the config's limits on the log
        standard deviations.
        """
        low, high = read_bounds(action, cls.__name__)
        return {"low": hashable_bound(low), "high": hashable_bound(high), **limits(config)}

    def kl(self, other: Self) -> Any:  # type: ignore[override]  # of the same kind
        """Return the KL divergence `[B]` between the normal values; squashing, a bijection, does
        not change it.

        Raises:
            ModelContractError: The other distribution has a different kind or different bounds.
        """
        check_same_kind(self, other)
        if not self.bounds.has_bounds_of(other.bounds):
            raise ModelContractError(
                "SquashedGaussian.kl() needs a distribution with the same bounds."
            )
        return self.divergence(other)
