"""The catalog's action distributions as subclasses of Ray's `Distribution`."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar

import torch
from ray.rllib.core.distribution.distribution import Distribution
from torch import Tensor

from rlcatalog import ActionDistribution, Policy
from rlcatalog.actions import entropy_of
from rlcatalog.errors import NoClosedFormError, NotServedError
from rlcatalog.frameworks import TensorTree
from rlcatalog_rllib.spaces import Space
from rlcatalog_torch import flat_sample


class CatalogDistribution(Distribution):
    """A catalog distribution for the parameters in a batch, stored under `action_dist_inputs`.

    Actions are raw, with the parameters' leading axes: `[...]` for a single Discrete, otherwise
    `[..., width]`. `of(policy)` returns the subclass for a policy.

    Args:
        dist: The catalog's distribution over rows `[N, ...]`.
        shape: Sizes of the leading axes, whose product is N.
    """

    #: The policy, whose `stored_dist` rebuilds the catalog's distribution from parameters
    #: `[N, size]`.
    _policy: ClassVar[Policy]
    _scalar: ClassVar[bool]
    #: Whether samples are the deterministic actions.
    _is_deterministic = False

    def __init__(self, dist: ActionDistribution, shape: torch.Size) -> None:
        self.dist = dist
        self._shape = shape

    @classmethod
    def of(cls, policy: Policy) -> type[CatalogDistribution]:
        """Return the distribution class for a policy's stored parameters."""
        name = f"CatalogDistributionOf{policy.resolution.dists.part.name}"
        attributes = {"_policy": policy, "_scalar": policy.action_codec.scalar}
        return type(name, (cls,), attributes)

    @classmethod
    def from_logits(cls, logits: Tensor, **_kwargs: Any) -> CatalogDistribution:  # type: ignore[override]
        """Return the distribution for parameters `[..., size]`."""
        policy = cls._policy
        rows = logits.reshape(-1, logits.shape[-1])
        # Some RLlib distributions read the model that computed their inputs; here, this is the
        # module's model.
        dist = policy.stored_dist(rows, policy.model)
        return cls(dist, logits.shape[:-1])

    @staticmethod
    def required_input_dim(space: Space, **_kwargs: Any) -> int:
        """Raise an error, because the size depends on the policy as well as on the space."""
        raise NotServedError(
            f"CatalogDistribution: the policy knows the size for {space}:"
            " policy.resolution.num_outputs."
        )

    def sample(
        self,
        *,
        sample_shape: Sequence[int] | None = None,
        return_logp: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Sample raw actions; with `return_logp`, also return their log density."""
        _refuse_sample_shape(sample_shape)
        if self._is_deterministic:
            sample = self.dist.deterministic_sample()
        else:
            sample = self.dist.sample()
        return self._shape_sample(sample, return_logp=return_logp)

    def rsample(
        self,
        *,
        sample_shape: Sequence[int] | None = None,
        return_logp: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Sample raw actions through which gradients flow, if the distribution supports it."""
        _refuse_sample_shape(sample_shape)
        if self._is_deterministic:
            sample = self.dist.deterministic_sample()
        else:
            sample = self.dist.rsample()
        return self._shape_sample(sample, return_logp=return_logp)

    def logp(self, value: Tensor, **kwargs: Any) -> Tensor:  # type: ignore[override]
        """Return the log density of raw actions, with the leading shape."""
        rows = value.reshape(-1) if self._scalar else value.reshape(-1, value.shape[-1])
        return self._with_leading_shape(self.dist.logp(rows))

    def entropy(self, **kwargs: Any) -> Tensor:
        """Return the entropy, with the leading shape; if there is no closed form, an estimate from
        one sample.
        """
        entropy, _ = entropy_of(self.dist, flat_sample)
        return self._with_leading_shape(entropy)

    def kl(self, other: CatalogDistribution, **kwargs: Any) -> Tensor:  # type: ignore[override]
        """Return the divergence between this distribution and `other`, with the leading shape.

        Raises:
            NoClosedFormError: The divergence has no closed form.
        """
        try:
            return self._with_leading_shape(self.dist.kl(other.dist))
        except NoClosedFormError as error:
            error.args = (f"{error} Ray's learners add it to the loss: set use_kl_loss=False.",)
            raise

    def to_deterministic(self) -> CatalogDistribution:
        """Return the same distribution, but with the deterministic actions as its samples."""
        other = copy(self)
        other._is_deterministic = True
        return other

    def _shape_sample(self, sample: TensorTree, *, return_logp: bool) -> Any:
        """Return a sample of the catalog's distribution as Ray expects it.

        Args:
            sample: The sample, a tensor or a structure of tensors `[N, ...]`.
            return_logp: Whether to return its log density as well.
        """
        rows = flat_sample(sample)
        actions_shape = self._shape if self._scalar else (*self._shape, rows.shape[-1])
        actions = rows.reshape(actions_shape)
        if return_logp:
            return actions, self._with_leading_shape(self.dist.logp(rows))
        return actions

    def _with_leading_shape(self, values: Tensor) -> Tensor:
        return values.reshape(self._shape)


def _refuse_sample_shape(sample_shape: Sequence[int] | None) -> None:
    """Reject Ray's argument for several samples from the same parameters.

    Raises:
        NotServedError: The argument is not empty.
    """
    if sample_shape:
        raise NotServedError(
            f"sample_shape={tuple(sample_shape)}: samples always have the parameters' shape."
        )
