"""A distribution over slates in PyTorch."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from rlcatalog_categorical.slates.contract import SlateMultiCategoricalContract
from rlcatalog_categorical.slates.table import Slates
from rlcatalog_categorical.torch import Categorical
from rlcatalog_torch import LOWEST


@lru_cache(maxsize=64)
def _tensors(slates: Slates, device: torch.device) -> tuple[Tensor, ...]:
    """Return table, weights, codes and order on a device."""
    # Outside of inference mode, or what is remembered could not be used in training.
    with torch.inference_mode(False):
        return tuple(
            torch.as_tensor(array, device=device)
            for array in (slates.table, slates.weights, slates.codes, slates.order)
        )


class SlateMultiCategorical(SlateMultiCategoricalContract, Categorical):
    """Distribution over a list of slates `[B, k]`; see `SlateMultiCategoricalContract`."""

    @classmethod
    def _allowed(cls, mask: Tensor, columns: Any) -> Tensor:
        return mask.bool()[:, torch.as_tensor(columns, device=mask.device)].all(dim=-1)

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
