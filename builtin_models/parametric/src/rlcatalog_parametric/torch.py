"""Parametric actions in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlcatalog_parametric.common import ParametricHead
from rlcatalog_torch import OPS, OutputLayers, TorchModelV2, features_of, sequence_mask


class ParametricActionsHead(ParametricHead, TorchModelV2):
    """Logits for actions that the observation describes; see `ParametricHead`."""

    ops, outputs_class, features_of = OPS, OutputLayers, staticmethod(features_of)

    def _keep_constants(self) -> None:
        if self._shown is not None and self._shown.places is not None:
            self.register_buffer("places", torch.from_numpy(self._shown.places), persistent=False)
            self.register_buffer(
                "forbidding", torch.from_numpy(self._shown.forbidding), persistent=False
            )

    def _unmasked(self, leaves: list[Any]) -> Tensor:
        values = (
            leaves[0].flatten(1)
            if len(leaves) == 1
            else torch.cat([leaf.flatten(1) for leaf in leaves], dim=1)
        )
        if self._shown is None or self._shown.places is None:
            return values != 0
        return values[:, self.places] != self.forbidding  # type: ignore[no-any-return]

    def _products(self, embeddings: Tensor, intent: Tensor) -> Tensor:
        return torch.bmm(embeddings, intent.unsqueeze(2)).squeeze(2)

    def _check(self, allowed: Tensor, input_dict: dict[str, Any], seq_lens: Any) -> None:
        if torch.compiler.is_compiling():
            return
        rows = allowed.shape[0]
        if seq_lens is not None and seq_lens.shape[0] != rows:  # padding allows no action
            allowed = allowed | ~sequence_mask(seq_lens, rows // seq_lens.shape[0]).view(rows, 1)
        assert self._masks is not None
        self._masks.matrix(allowed.cpu().numpy())
