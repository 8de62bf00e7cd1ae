"""A distribution over slates in TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlcatalog import SpaceInfo
from rlcatalog.actions import same_kind
from rlcatalog.tf import fill_forbidden, tf
from rlcatalog_categorical.plugin import slate_nvec, slates_size
from rlcatalog_categorical.slates.table import slates_of
from rlcatalog_categorical.tf import Categorical


class SlateMultiCategorical(Categorical):
    """Distribution over a list of slates `[B, k]`, from a logit per slate.

    Args:
        inputs: Logits `[B, S]`, unnormalised.
        model: The model that made them, or None.
        temperature: Divides the logits; above 1 flattens, below 1 sharpens.
        action_space: A MultiDiscrete space of k equal entries n: the slates are the ordered selections of k distinct
            items out of n, in lexicographic order.
        all_slates: The slates instead, `[S, k]`, or a `Slates`, which spares reading them anew each time.
        nvec: The entries of the space instead, `(n,) * k`.
    """

    def __init__(
        self,
        inputs: Any,
        model: Any = None,
        temperature: float = 1.0,
        action_space: Any = None,
        all_slates: Any = None,
        nvec: Sequence[int] | None = None,
    ) -> None:
        super().__init__(inputs, model, temperature)
        #: The list of slates.
        self.slates = slates_of(all_slates, nvec, action_space)
        self.slates.check_width(self.inputs.shape)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return the number of slates."""
        return slates_size(SpaceInfo.read(action_space, "action"), model_config or {})

    @classmethod
    def options_for(
        cls, action: SpaceInfo, config: Mapping[str, Any], children: Sequence[tuple[Any, int]] = ()
    ) -> dict[str, Any]:
        """Return `nvec`."""
        return {"nvec": slate_nvec(action)}

    @classmethod
    def masked(cls, inputs: Any, mask: Any, **options: Any) -> Any:
        """Forbid each slate with a forbidden item; mask `[B, k · n]`, the items of the first place first.

        Args:
            inputs: Logits `[B, S]`.
            mask: True = allowed.
            **options: `all_slates`, `nvec` or `action_space`, as for the constructor.

        Raises:
            ActionMaskError: The mask has not one column per item and place.
        """
        nvec = options.get("nvec")
        slates = slates_of(options.get("all_slates"), nvec, options.get("action_space"))
        columns = slates.columns(nvec, mask.shape[-1])
        return fill_forbidden(inputs, tf.reduce_all(tf.gather(tf.cast(mask, tf.bool), columns, axis=1), axis=-1))

    def sample(self) -> Any:
        """Draw slates, int64 `[B, k]`, anew at each call."""
        return self._slates_of(super().sample())

    def deterministic_sample(self) -> Any:
        """Return the most likely slates, int64 `[B, k]`."""
        return self._slates_of(super().deterministic_sample())

    def _slates_of(self, index: Any) -> Any:
        self.last_sample = tf.gather(self.slates.table, index)
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Return the log probability `[B]` of slates `[B, k]`; of one not in the list the lowest finite number."""
        slates = self.slates
        items = tf.reshape(tf.cast(actions, tf.int64), [tf.shape(self.inputs)[0], len(slates.weights)])
        code = tf.reduce_sum(items * slates.weights, axis=-1)
        place = tf.minimum(tf.searchsorted(slates.codes, code), len(slates.codes) - 1)
        known = (tf.gather(slates.codes, place) == code) & tf.reduce_all((items >= 0) & (items < slates.items), axis=-1)
        found = tf.gather(self.log_probs, tf.gather(slates.order, place), batch_dims=1)
        return tf.where(known, found, found.dtype.min)

    def kl(self, other: Any) -> Any:
        """Return Σ p (log p - log q), `[B]`."""
        same_kind(self, other)
        self.slates.same_as(other.slates)
        return super().kl(other)
