"""The contract of action distributions, framework-neutral part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from rlcatalog.errors import ModelContractError, NoClosedFormError, NotServedError, StaleOutputError

if TYPE_CHECKING:
    import gymnasium


class ActionDistribution:
    """Distribution over a batch of raw actions.

    `inputs` carries everything but weights, action masks included, so that a distribution can be rebuilt from stored
    inputs. `sample` returns raw actions, in the distribution's own space; `logp` is the true density of those.

    Args:
        inputs: Model output `[B, size]`.
        model: The model that made it, or None.
    """

    #: `"exact"` when `entropy` and `kl` have a closed form, else `"estimate"`.
    entropy_kind: ClassVar[str] = "exact"
    #: What `sample` or `deterministic_sample` returned last.
    last_sample: Any = None

    def __init__(self, inputs: Any, model: Any = None) -> None:
        self.inputs = inputs
        self.model = model

    # --- to implement ----------------------------------------------------------------------------------------------

    def sample(self) -> Any:
        """Draw raw actions, fresh at each call and without gradient: `[B]` for a single Discrete, else `[B, width]`."""
        raise NotImplementedError(f"{type(self).__name__} must implement sample().")

    def rsample(self) -> Any:
        """Draw raw actions through which gradients reach the inputs, where the distribution has such a form."""
        return self.sample()

    def deterministic_sample(self) -> Any:
        """Return the most likely raw actions."""
        raise NotImplementedError(f"{type(self).__name__} must implement deterministic_sample().")

    def logp(self, actions: Any) -> Any:
        """Return the log density `[B]` of raw actions."""
        raise NotImplementedError(f"{type(self).__name__} must implement logp(actions).")

    def entropy(self) -> Any:
        """Return the entropy `[B]` in nats."""
        raise NoClosedFormError(f"{type(self).__name__} has no closed form for its entropy; use entropy_estimate().")

    def kl(self, other: ActionDistribution) -> Any:
        """Return the Kullback-Leibler divergence `KL(self || other)`, `[B]`, in nats."""
        raise NoClosedFormError(f"{type(self).__name__} has no closed form for its kl; average logp ratios of samples.")

    @staticmethod
    def required_model_output_shape(
        action_space: gymnasium.Space[Any], model_config: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the number of model outputs the distribution needs."""
        raise NotImplementedError("required_model_output_shape(action_space, model_config) must be implemented.")

    @classmethod
    def masked(cls, inputs: Any, mask: Any) -> Any:
        """Return `inputs` with an action mask baked in.

        Args:
            inputs: Model output `[B, size]`.
            mask: Boolean tensor in Gymnasium's mask format, batched; True (or 1) means allowed.

        Raises:
            NotServedError: This distribution takes no masks.
        """
        raise NotServedError(f"{cls.__name__} takes no action mask.")

    # --- to call ---------------------------------------------------------------------------------------------------

    def sampled_action_logp(self) -> Any:
        """Return the log density `[B]` of the last sample.

        Raises:
            StaleOutputError: Nothing was sampled yet.
        """
        if self.last_sample is None:
            raise StaleOutputError(f"{type(self).__name__}: call sample() before sampled_action_logp().")
        return self.logp(self.last_sample)

    def entropy_estimate(self) -> Any:
        """Return an unbiased estimate `[B]` of the entropy: minus the log density of a fresh (reparameterised) draw."""
        return -self.logp(self.rsample())

    def multi_kl(self, other: ActionDistribution) -> Any:
        """Return the divergence per component; the same as `kl` for a distribution of one component."""
        return self.kl(other)

    def multi_entropy(self) -> Any:
        """Return the entropy per component; the same as `entropy` for a distribution of one component."""
        return self.entropy()


def same_kind(dist: ActionDistribution, other: Any) -> None:
    """Raise unless `other` is a distribution of the same kind, as a divergence needs.

    Raises:
        ModelContractError: It is not.
    """
    if not isinstance(other, type(dist)):
        raise ModelContractError(f"{type(dist).__name__}.kl() takes another {type(dist).__name__}, found {other!r}.")


def entropy_of(dist: Any, flat: Callable[[Any], Any]) -> tuple[Any, str]:
    """Return a distribution's entropy `[B]` and its kind, `"exact"` or `"estimate"`.

    Args:
        dist: The distribution; one without a closed form, or without any `entropy` method of its own, is estimated.
        flat: Turns a sample into the stored form that `logp` takes.
    """
    if getattr(dist, "entropy_kind", "exact") == "exact":
        try:
            return dist.entropy(), "exact"
        except NoClosedFormError:
            pass
    if type(dist).entropy_estimate is not ActionDistribution.entropy_estimate:
        return dist.entropy_estimate(), "estimate"
    return -dist.logp(flat(dist.rsample())), "estimate"
