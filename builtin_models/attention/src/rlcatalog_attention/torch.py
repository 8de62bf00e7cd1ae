"""GTrXL in PyTorch: around a trunk, and by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlcatalog_attention.layers.torch import Transformer
from rlcatalog_attention.models import AroundTrunk, ByItself, TransformerModel
from rlcatalog_torch import OPS, OutputLayers, TorchModelV2, features_of, flatten_rows, sequence_mask


class _Model(TransformerModel, TorchModelV2):
    ops, transformer_class, outputs_class = OPS, Transformer, OutputLayers

    def _padding(self, x: Tensor, input_dict: Mapping[str, Any], seq_lens: Any) -> tuple[Any, Tensor | None]:
        single = seq_lens is None or seq_lens.shape[0] == x.shape[0]
        return seq_lens, None if single else sequence_mask(seq_lens, x.shape[0] // seq_lens.shape[0])


class AttentionWrapper(AroundTrunk, _Model):
    """A gated transformer behind a trunk, then logits and a value; see `AroundTrunk`."""

    def _inputs(self, input_dict: dict[str, Any], past: list[Any]) -> Tensor:
        x, _ = features_of(self.trunk, input_dict, [], None)
        return torch.cat([x, *map(flatten_rows, past)], dim=1) if past else x


class GTrXLNet(ByItself, _Model):
    """The gated transformer by itself; see `ByItself`."""
