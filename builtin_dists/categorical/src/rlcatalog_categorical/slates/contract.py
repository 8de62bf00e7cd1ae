"""A distribution over slates as far as no framework is needed: size, options, masks, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionDistribution, same_kind
from rlcatalog_categorical.plugin import slate_nvec, slates_size
from rlcatalog_categorical.slates.table import slates_of


class SlateMultiCategoricalContract(ActionDistribution):
    """Distribution over a list of slates `[B, k]`, from a logit per slate; to be put before a framework's Categorical.

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
        super().__init__(inputs, model, temperature)  # type: ignore[call-arg]  # Categorical's
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
        return super().masked(inputs, cls._allowed(mask, slates.columns(nvec, mask.shape[-1])))

    @classmethod
    def _allowed(cls, mask: Any, columns: Any) -> Any:
        """Return which slates are allowed, `[B, S]`: all their items' columns `[S, k]` of the mask are."""
        raise NotImplementedError

    def sample(self) -> Any:
        """Draw slates, int64 `[B, k]`, anew at each call."""
        return self._slates_of(super().sample())

    def deterministic_sample(self) -> Any:
        """Return the most likely slates, int64 `[B, k]`."""
        return self._slates_of(super().deterministic_sample())

    def _slates_of(self, index: Any) -> Any:
        """Return the slates of these numbers `[B]`, and remember them as the last sample."""
        raise NotImplementedError

    def kl(self, other: Any) -> Any:
        """Return Σ p (log p - log q), `[B]`."""
        same_kind(self, other)
        self.slates.same_as(other.slates)
        return super().kl(other)
