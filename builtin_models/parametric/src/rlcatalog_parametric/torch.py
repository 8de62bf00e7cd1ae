"""Parametric actions in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlcatalog_parametric.common import ParametricHead
from rlcatalog_torch import OPS, OutputLayers, TorchModelV2, features_of, sequence_mask


class ParametricActionsHead(ParametricHead, TorchModelV2):
    """Logits for actions that the observation describes; see `ParametricHead`."""

    ops = OPS
    outputs_class = OutputLayers
    features_of = staticmethod(features_of)  # type: ignore[assignment]

    def _register_constants(self) -> None:
        if self._mask is not None and self._mask.places is not None:
            places = torch.from_numpy(self._mask.places)
            forbidding = torch.from_numpy(self._mask.forbidding)
            self.register_buffer("places", places, persistent=False)
            self.register_buffer("forbidding", forbidding, persistent=False)

    def _read_mask(self, leaves: list[Any]) -> Tensor:
        """Return which values a mask's tensors allow, as booleans `[B, m]`."""
        if len(leaves) == 1:
            values = leaves[0].flatten(1)
        else:
            values = torch.cat([leaf.flatten(1) for leaf in leaves], dim=1)
        assert self._mask is not None, "the caller checks it"
        if self._mask.places is None:
            # The values are in the columns' order, and 0 means forbidden.
            return values != 0  # type: ignore[no-any-return]
        return values[:, self.places] != self.forbidding  # type: ignore[no-any-return]

    def _products(  # type: ignore[override]
        self, embeddings: Tensor, intent: Tensor
    ) -> Tensor:
        return torch.bmm(embeddings, intent.unsqueeze(2)).squeeze(2)

    def _check_rows(  # type: ignore[override]
        self, allowed: Tensor, input_dict: dict[str, Any], seq_lens: Tensor | None
    ) -> None:
        """Raise an error if a row allows no value."""
        if torch.compiler.is_compiling():
            return  # compiled code has no values to check
        if not allowed.is_cpu:
            # The check would wait for the device. The policy has checked the mask, too; for tensors
            # `Policy.check` reports it.
            return
        rows = allowed.shape[0]
        if seq_lens is not None and seq_lens.shape[0] != rows:
            # Padding allows no action; let it pass the check.
            is_real = sequence_mask(seq_lens, rows // seq_lens.shape[0])
            allowed = allowed | ~is_real.view(rows, 1)
        assert self._row_check is not None
        # Called for its check; it raises an ActionMaskError.
        self._row_check.matrix(allowed.numpy())
