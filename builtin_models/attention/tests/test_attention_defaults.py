"""Default sizes of the network `GTrXLNet`, in both frameworks."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog_attention.tf import GTrXLNet as TFNet
from rlcatalog_attention.torch import GTrXLNet as TorchNet

#: Those of RLlib's class with this name.
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


def build_net(cls, **sizes):
    obs = spaces.Box(-1, 1, (3,), np.float32)
    return cls(obs, spaces.Discrete(2), 2, {}, "net", **sizes)


@pytest.mark.parametrize("cls", [TorchNet, TFNet], ids=["torch", "tf"])
def test_default_arguments_are_those_of_rllib(cls):
    parameters = inspect.signature(cls).parameters

    assert {name: parameters[name].default for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("cls", [TorchNet, TFNet], ids=["torch", "tf"])
def test_weights_without_arguments_have_the_default_shapes(cls):
    by_default = build_net(cls).get_weights()
    with_arguments = build_net(cls, **DEFAULTS).get_weights()

    shapes = {name: array.shape for name, array in by_default.items()}
    assert shapes == {name: array.shape for name, array in with_arguments.items()}


@pytest.mark.parametrize("cls", [TorchNet, TFNet], ids=["torch", "tf"])
def test_memory_has_50_slots_by_default(cls):
    memory, _ = build_net(cls).get_initial_state()

    assert np.asarray(memory).shape == (1, 50, 64)  # 1 unit, 50 slots, width 64
