"""GTrXL in TensorFlow: around a trunk, and by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcatalog_attention.layers.tf import Transformer
from rlcatalog_attention.models import AroundTrunk, ByItself, TransformerModel
from rlcatalog_tf import OPS, OutputLayers, TFModelV2, features_of, flatten_rows, sequence_mask, steps_of, tf


class _Model(TransformerModel, TFModelV2):
    ops, transformer_class, outputs_class = OPS, Transformer, OutputLayers

    def _padding(self, x: Any, input_dict: Mapping[str, Any], seq_lens: Any) -> tuple[Any, Any]:
        if seq_lens is None or input_dict.get("single_steps"):
            return None, None
        return seq_lens, sequence_mask(seq_lens, steps_of(x, seq_lens))


class AttentionWrapper(AroundTrunk, _Model):
    """A gated transformer behind a trunk, then logits and a value; see `AroundTrunk`."""

    def _inputs(self, input_dict: dict[str, Any], past: list[Any]) -> Any:
        x, _ = features_of(self.trunk, input_dict, [], None)
        return tf.concat([x, *(tf.cast(flatten_rows(view), tf.float32) for view in past)], axis=1) if past else x


class GTrXLNet(ByItself, _Model):
    """The gated transformer by itself; see `ByItself`."""
