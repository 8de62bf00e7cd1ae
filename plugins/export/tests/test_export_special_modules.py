"""Exports of compiled modules, of half precision, and of Keras's Lambda layers."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import NotServedError

pytest.importorskip("onnxruntime", reason="needs rlcatalog-export")

SIX_FEATURES = spaces.Box(-1, 1, (6,), np.float32)
THREE_ACTIONS = spaces.Discrete(3)
TWO_OBSERVATIONS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)


def build_policy(model, framework="torch"):
    return rlcatalog.build(SIX_FEATURES, THREE_ACTIONS, {"custom_model": model}, framework)


def act_greedily(policy):
    return policy.act(TWO_OBSERVATIONS, explore=False).dist_inputs


# --- compiled modules -----------------------------------------------------------------------------


def make_compiled_module():
    """Return a compiled module, and a list that gets an entry at each compiled pass."""
    import torch

    torch.compiler.reset()  # forgets the graphs of other tests
    passes = []

    def backend(graph, inputs):
        def run(*args):
            passes.append(graph)
            return graph(*args)

        return run

    return torch.compile(torch.nn.Linear(6, 4), backend=backend), passes


@pytest.mark.parametrize("name", ["policy.onnx", "policy.pt2"])
def test_export_of_a_compiled_module_acts_like_the_policy(name, tmp_path):
    module, _ = make_compiled_module()
    policy = build_policy(module)

    policy.export(tmp_path / name)

    actor = rlcatalog.Actor(tmp_path / name)
    np.testing.assert_allclose(act_greedily(actor), act_greedily(policy), atol=1e-5)


def test_deepcopy_of_a_compiled_module_is_compiled_too():
    module, compiled_passes = make_compiled_module()
    policy = build_policy(module)
    expected = act_greedily(policy)

    copied = copy.deepcopy(policy)
    compiled_passes.clear()

    np.testing.assert_array_equal(act_greedily(copied), expected)
    assert len(compiled_passes) == 1  # the copy has used compiled code
    assert copied.model.module is not policy.model.module


# --- half precision -------------------------------------------------------------------------------


@pytest.fixture
def bfloat16_module_policy():
    """A policy whose module computes in bfloat16, behind observations in float32."""
    import torch

    class HalfPrecisionNet(torch.nn.Module):
        def __init__(self, space):
            super().__init__()
            self.layer = torch.nn.Linear(6, 4, dtype=torch.bfloat16)

        def forward(self, x):
            return self.layer(x.to(torch.bfloat16))

    return build_policy(HalfPrecisionNet)


def test_export_of_a_bfloat16_module_to_onnx_is_an_error(bfloat16_module_policy, tmp_path):
    # onnxruntime has no matrix product for bfloat16 on the CPU.
    with pytest.raises(NotServedError, match=r"onnx was not written, .* bfloat16"):
        bfloat16_module_policy.export(tmp_path / "policy.onnx")

    assert list(tmp_path.iterdir()) == []


def test_export_of_a_bfloat16_module_to_torch_acts_like_it(bfloat16_module_policy, tmp_path):
    bfloat16_module_policy.export(tmp_path / "policy.pt2")

    actor = rlcatalog.Actor(tmp_path / "policy.pt2")
    expected = act_greedily(bfloat16_module_policy)
    np.testing.assert_allclose(act_greedily(actor), expected, atol=1e-2)


def test_export_of_a_bfloat16_policy_to_onnx_acts_like_it(tmp_path):
    import torch

    policy = rlcatalog.build(SIX_FEATURES, THREE_ACTIONS, {"fcnet_hiddens": [8]}, "torch")
    policy.model.to(torch.bfloat16)

    policy.export(tmp_path / "policy.onnx")

    actor = rlcatalog.Actor(tmp_path / "policy.onnx")
    np.testing.assert_allclose(act_greedily(actor), act_greedily(policy), atol=1e-2)


# --- Lambda layers --------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "format"), [("policy.onnx", "onnx"), ("policy", "savedmodel")])
def test_export_of_a_keras_lambda_is_an_error_and_no_file(name, format, tmp_path):
    from rlcatalog_tf import keras

    layers = [keras.layers.Lambda(lambda x: x * 2), keras.layers.Dense(4)]
    policy = build_policy(keras.Sequential([keras.layers.Input((6,)), *layers]), "tf")

    with pytest.raises(NotServedError, match="Lambda"):
        policy.export(tmp_path / name, format)

    assert list(tmp_path.iterdir()) == []


# --- plain memories -------------------------------------------------------------------------------


def build_with_lstm(**memory_config):
    from torch import nn

    config = {"memory": nn.LSTM, "memory_config": {"hidden_size": 5, **memory_config}}
    return rlcatalog.build(SIX_FEATURES, THREE_ACTIONS, {"fcnet_hiddens": [7], **config}, "torch")


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(
    ("name", "memory_config"),
    [("policy.onnx", {"num_layers": 2}), ("policy.pt2", {"num_layers": 2, "proj_size": 3})],
)
def test_exported_memory_acts_like_the_policy(name, memory_config, tmp_path):
    policy = build_with_lstm(**memory_config)

    policy.export(tmp_path / name)

    actor = rlcatalog.Actor(tmp_path / name)
    step = policy.act(TWO_OBSERVATIONS, explore=False)
    actor_step = actor.act(TWO_OBSERVATIONS, explore=False)
    expected = policy.act(-TWO_OBSERVATIONS, step.state, explore=False)
    result = actor.act(-TWO_OBSERVATIONS, actor_step.state, explore=False)
    np.testing.assert_allclose(result.dist_inputs, expected.dist_inputs, atol=1e-6)
    np.testing.assert_allclose(result.value, expected.value, atol=1e-6)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_onnx_of_an_lstm_with_projections_is_an_error(tmp_path):
    policy = build_with_lstm(proj_size=3)

    with pytest.raises(NotServedError, match=r"nn\.LSTM with proj_size"):
        policy.export(tmp_path / "policy.onnx")
