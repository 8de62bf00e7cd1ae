"""The network as a class of its own: its defaults, in both frameworks."""

from __future__ import annotations

import inspect

from rlcatalog_attention.tf import GTrXLNet as TFNet
from rlcatalog_attention.torch import GTrXLNet as TorchNet

# Those of RLlib's class of this name.
DEFAULTS = {
    "num_transformer_units": 1,
    "attention_dim": 64,
    "num_heads": 2,
    "memory_inference": 50,
    "memory_training": 50,
    "head_dim": 32,
    "position_wise_mlp_dim": 32,
    "init_gru_gate_bias": 2.0,
}


def test_both_frameworks_have_the_defaults_of_rllib():
    for cls in (TorchNet, TFNet):
        parameters = inspect.signature(cls.__init__).parameters
        assert {name: parameters[name].default for name in DEFAULTS} == DEFAULTS
