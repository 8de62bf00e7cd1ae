"""Several independent choices in PyTorch, all in one padded operation."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from rlcatalog.actions import same_kind
from rlcatalog_categorical.multi.choice_columns import (
    ChoiceColumns,
    check_actions,
    check_width,
    layout_of,
    lens_of,
    same_lens,
)
from rlcatalog_categorical.multi.contract import MultiCategoricalContract
from rlcatalog_categorical.torch import Categorical, race
from rlcatalog_torch import HIGHEST, LOWEST


@lru_cache(maxsize=256)
def _padding(layout: ChoiceColumns, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the column behind each place, and what is added there: -inf where it is padding, else 0."""
    # Outside of inference mode, or what is remembered could not be used in training.
    with torch.inference_mode(False):
        index = torch.as_tensor(layout.index, device=device)
        padding = index == layout.total
        bias = torch.zeros(padding.shape, dtype=dtype, device=device).masked_fill_(padding, -torch.inf)
        return index.clamp(max=layout.total - 1), bias


class MultiCategorical(MultiCategoricalContract):
    """Independent choices `[B, k]`, each counting from 0; see `MultiCategoricalContract`."""

    framework_of_class = "torch"
    choice = Categorical
    last_sample: Tensor
    #: Normalised log probabilities `[B, k, longest]`; -inf in the padding of shorter choices.
    log_probs: Tensor

    # Computed at first use.
    _finite_log_probs: Tensor | None = None
    _exp: Tensor | None = None

    def __init__(self, inputs: Any, model: Any = None, input_lens: Any = None, action_space: Any = None) -> None:
        self.layout = layout_of(input_lens if type(input_lens) is tuple else lens_of(input_lens, action_space))
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        shape, layout = inputs.shape, self.layout
        if len(shape) != 2 or shape[1] != layout.total:
            check_width(shape, layout)
        self.inputs, self.model = inputs, model
        if layout.index is None:
            logits = inputs.reshape(shape[0], len(layout.lens), layout.longest)
        else:
            index, bias = _padding(layout, inputs.dtype, inputs.device)
            logits = inputs.index_select(1, index).add_(bias).view(shape[0], len(layout.lens), layout.longest)
        self.log_probs = logits.log_softmax(-1)

    def sample(self) -> Tensor:
        """Draw int64 `[B, k]`, anew at each call."""
        return self._remembered(race(self._probs()))

    def deterministic_sample(self) -> Tensor:
        """Return the most likely values, int64 `[B, k]`."""
        return self._remembered(self.log_probs.argmax(-1, keepdim=True))

    def _remembered(self, index: Tensor) -> Tensor:
        self._index = index
        self.last_sample = index.squeeze(-1)
        return self.last_sample

    def logp(self, actions: Any) -> Tensor:
        """Return the log probability `[B]`, summed over the choices.

        Args:
            actions: `[B, k]` or `[B, *shape]` in C order, or a list of k tensors or arrays `[B]`.
        """
        if actions is self.last_sample:  # just drawn: its index is at hand, its probability is not 0
            return self.log_probs.gather(-1, self._index).sum((-2, -1))
        log_probs = self._finite().gather(-1, self._indices(actions)).sum((-2, -1))
        # Two forbidden values together have a log probability beyond the dtype.
        return log_probs.maximum(LOWEST[log_probs.dtype])

    def _indices(self, actions: Any) -> Tensor:
        """Return actions in any form as int64 `[B, k, 1]`."""
        device = self.inputs.device
        if isinstance(actions, list | tuple) and actions and hasattr(actions[0], "shape"):
            parts = [torch.as_tensor(part, device=device).reshape(-1) for part in actions]
            values = torch.stack(parts, dim=1)
        else:
            values = torch.as_tensor(actions, device=device)
        rows = self.inputs.shape[0]
        check_actions(values.shape, rows, self.layout)
        return values.long().reshape(rows, len(self.layout.lens), 1)

    def entropy(self) -> Tensor:
        """Return the sum of the choices' entropies, `[B]`."""
        return -(self._probs() * self._finite()).sum((-2, -1))

    def multi_entropy(self) -> Tensor:
        """Return the entropy of each choice, `[B, k]`."""
        return -(self._probs() * self._finite()).sum(-1)

    def kl(self, other: Any) -> Tensor:
        """Return the sum of the choices' divergences, `[B]`."""
        divergence = self._divergences(other).sum((-2, -1))
        return divergence.minimum(HIGHEST[divergence.dtype])

    def multi_kl(self, other: Any) -> Tensor:
        """Return the divergence of each choice, `[B, k]`."""
        divergence = self._divergences(other).sum(-1)
        return divergence.minimum(HIGHEST[divergence.dtype])

    def _divergences(self, other: Any) -> Tensor:
        if type(other) is not type(self):
            same_kind(self, other)
        if other.layout is not self.layout:
            same_lens(self.layout, other.layout)
        divergences: Tensor = self._probs() * (self._finite() - other._finite())
        return divergences

    def _finite(self) -> Tensor:
        """Log probabilities with the lowest finite value in place of -inf, which 0 · log 0 would make NaN."""
        if self._finite_log_probs is None:
            self._finite_log_probs = self.log_probs.maximum(LOWEST[self.log_probs.dtype])
        return self._finite_log_probs

    def _probs(self) -> Tensor:
        if self._exp is None:
            self._exp = self.log_probs.exp()
        return self._exp
