"""A distribution over slates in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from rlcatalog import SpaceInfo
from rlcatalog.actions import same_kind
from rlcatalog.torch import LOWEST, fill_forbidden
from rlcatalog_categorical.plugin import slate_nvec, slates_size
from rlcatalog_categorical.slates.table import Slates, slates_of
from rlcatalog_categorical.torch import Categorical


@lru_cache(maxsize=64)
def _tensors(slates: Slates, device: torch.device) -> tuple[Tensor, ...]:
    """Return table, weights, codes and order on a device."""
    # Outside of inference mode, or what is remembered could not be used in training.
    with torch.inference_mode(False):
        return tuple(
            torch.as_tensor(array, device=device)
            for array in (slates.table, slates.weights, slates.codes, slates.order)
        )


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
    def masked(cls, inputs: Tensor, mask: Tensor, **options: Any) -> Tensor:
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
        columns = torch.as_tensor(slates.columns(nvec, mask.shape[-1]), device=mask.device)
        return fill_forbidden(inputs, mask.bool()[:, columns].all(dim=-1))

    def sample(self) -> Tensor:
        """Draw slates, int64 `[B, k]`."""
        return self._slates_of(super().sample())

    def deterministic_sample(self) -> Tensor:
        """Return the most likely slates, int64 `[B, k]`."""
        return self._slates_of(super().deterministic_sample())

    def _slates_of(self, index: Tensor) -> Tensor:
        self.last_sample = _tensors(self.slates, self.inputs.device)[0][index]
        return self.last_sample

    def logp(self, actions: Any) -> Tensor:
        """Return the log probability `[B]` of slates `[B, k]`; of one not in the list the lowest finite number."""
        _, weights, codes, order = _tensors(self.slates, self.inputs.device)
        items = torch.as_tensor(actions, device=self.inputs.device).long().reshape(self.inputs.shape[0], len(weights))
        code = (items * weights).sum(dim=-1)
        place = torch.searchsorted(codes, code).clamp(max=len(codes) - 1)
        known = (codes[place] == code) & ((items >= 0) & (items < self.slates.items)).all(dim=-1)
        found = self._finite().gather(-1, order[place].unsqueeze(-1)).squeeze(-1)
        return torch.where(known, found, LOWEST[found.dtype])

    def kl(self, other: Any) -> Tensor:
        """Return Σ p (log p - log q), `[B]`."""
        same_kind(self, other)
        self.slates.same_as(other.slates)
        return super().kl(other)
