"""The network as a class of its own: its defaults, in both frameworks."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from gymnasium import spaces

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


@pytest.mark.parametrize("cls", [TorchNet, TFNet], ids=["torch", "tf"])
def test_the_defaults_are_those_of_rllib(cls):
    parameters = inspect.signature(cls).parameters
    assert {name: parameters[name].default for name in DEFAULTS} == DEFAULTS
    first, second = (
        cls(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2), 2, {}, "net", **options)
        for options in ({}, DEFAULTS)
    )
    shapes, same = (
        {name: w.shape for name, w in net.get_weights().items()} for net in (first, second)
    )
    assert shapes == same
    assert np.asarray(first.get_initial_state()[0]).shape == (1, 50, 64)
