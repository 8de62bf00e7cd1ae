"""The catalog's action distributions as subclasses of Ray's `Distribution`."""

from __future__ import annotations

from copy import copy
from typing import Any, ClassVar

import torch
from ray.rllib.core.distribution.distribution import Distribution
from torch import Tensor

from rlcatalog import Policy
from rlcatalog.actions import entropy_of
from rlcatalog.errors import NoClosedFormError, NotServedError
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
    #: Whether samples are the most likely actions.
    _most_likely = False

    def __init__(self, dist: Any, shape: torch.Size) -> None:
        self.dist, self._shape = dist, shape

    @classmethod
    def of(cls, policy: Policy) -> type[CatalogDistribution]:
        """Return the distribution class for a policy's stored parameters."""
        bound = {"_policy": policy, "_scalar": policy.action_codec.scalar}
        return type(f"CatalogDistributionOf{policy.resolution.dists.part.name}", (cls,), bound)

    @classmethod
    def from_logits(cls, logits: Any, **kwargs: Any) -> CatalogDistribution:
        """Return the distribution for parameters `[..., size]`."""
        policy = cls._policy
        # Some RLlib distributions read the model that computed their inputs; here, this is the
        # module's model.
        dist = policy.stored_dist(logits.reshape(-1, logits.shape[-1]), policy.model)
        return cls(dist, logits.shape[:-1])

    @staticmethod
    def required_input_dim(space: Any, **kwargs: Any) -> int:
        """Raise an error, because the size depends on the policy as well as on the space."""
        raise NotServedError(
            "CatalogDistribution: the policy knows the size: policy.resolution.num_outputs."
        )

    def sample(self, *, sample_shape: Any = None, return_logp: bool = False, **kwargs: Any) -> Any:
        """Sample raw actions; with `return_logp`, also return their log density."""
        return self._draw("sample", sample_shape, return_logp)

    def rsample(self, *, sample_shape: Any = None, return_logp: bool = False, **kwargs: Any) -> Any:
        """Sample raw actions through which gradients flow, if the distribution supports it."""
        return self._draw("rsample", sample_shape, return_logp)

    def logp(self, value: Any, **kwargs: Any) -> Tensor:
        """Return the log density of raw actions, with the leading shape."""
        rows = value.reshape(-1) if self._scalar else value.reshape(-1, value.shape[-1])
        return self._with_leading_shape(self.dist.logp(rows))

    def entropy(self, **kwargs: Any) -> Tensor:
        """Return the entropy, with the leading shape; if there is no closed form, an estimate from
        one sample.
        """
        return self._with_leading_shape(entropy_of(self.dist, flat_sample)[0])

    def kl(self, other: Any, **kwargs: Any) -> Tensor:
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
        """Return the same distribution, but with the most likely actions as its samples."""
        other = copy(self)
        other._most_likely = True
        return other

    def _draw(self, method: str, sample_shape: Any, return_logp: bool) -> Any:
        if sample_shape:
            raise NotServedError(
                f"sample_shape={tuple(sample_shape)}: samples always have the parameters' shape."
            )
        action = flat_sample(
            getattr(self.dist, "deterministic_sample" if self._most_likely else method)()
        )
        logp = self._with_leading_shape(self.dist.logp(action)) if return_logp else None
        action = action.reshape(self._shape if self._scalar else (*self._shape, action.shape[-1]))
        return (action, logp) if return_logp else action

    def _with_leading_shape(self, values: Tensor) -> Tensor:
        return values.reshape(self._shape)
