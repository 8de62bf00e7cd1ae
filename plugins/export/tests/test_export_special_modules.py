"""Exports of compiled modules, half precision and Keras's Lambda layers: a file that acts like the
policy, or a typed error and no file.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import NotServedError

pytest.importorskip("onnxruntime", reason="needs rlcatalog-export")

OBS, ACT = spaces.Box(-1, 1, (6,), np.float32), spaces.Discrete(3)
ROWS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)


def build(model, framework="torch"):
    return rlcatalog.build(OBS, ACT, {"custom_model": model}, framework)


def dist_inputs(policy):
    return policy.act(ROWS, explore=False).dist_inputs


def compiled_module():
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
    policy = build(compiled_module()[0])
    policy.export(tmp_path / name)
    actor = rlcatalog.Actor(tmp_path / name)
    np.testing.assert_allclose(dist_inputs(actor), dist_inputs(policy), atol=1e-5)


def test_copy_of_a_compiled_module_is_compiled_too():
    module, passes = compiled_module()
    policy = build(module)
    expected = dist_inputs(policy)
    twin = copy.deepcopy(policy)
    passes.clear()
    np.testing.assert_array_equal(dist_inputs(twin), expected)
    assert len(passes) == 1
    assert twin.model.module is not policy.model.module


def test_export_of_a_bfloat16_module_to_onnx_is_refused(tmp_path):
    import torch

    class Half(torch.nn.Module):
        def __init__(self, space):
            super().__init__()
            self.layer = torch.nn.Linear(6, 4, dtype=torch.bfloat16)

        def forward(self, x):
            return self.layer(x.to(torch.bfloat16))

    policy = build(Half)
    # onnxruntime has no matrix product for bfloat16 on the CPU.
    with pytest.raises(NotServedError, match=r"policy\.onnx was not written, .* bfloat16"):
        policy.export(tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []
    policy.export(tmp_path / "policy.pt2")
    actor = rlcatalog.Actor(tmp_path / "policy.pt2")
    np.testing.assert_allclose(dist_inputs(actor), dist_inputs(policy), atol=1e-2)


def test_export_of_a_bfloat16_policy_acts_like_it(tmp_path):
    import torch

    policy = rlcatalog.build(OBS, ACT, {"fcnet_hiddens": [8]}, "torch")
    policy.model.to(torch.bfloat16)
    policy.export(tmp_path / "policy.onnx")
    actor = rlcatalog.Actor(tmp_path / "policy.onnx")
    np.testing.assert_allclose(dist_inputs(actor), dist_inputs(policy), atol=1e-2)


def test_export_of_a_keras_lambda_is_refused_before_a_file(tmp_path):
    from rlcatalog_tf import keras

    layers = [keras.layers.Lambda(lambda x: x * 2), keras.layers.Dense(4)]
    policy = build(keras.Sequential([keras.layers.Input((6,)), *layers]), "tf")
    for name in ("policy.onnx", "policy"):
        with pytest.raises(NotServedError, match="Lambda"):
            policy.export(tmp_path / name, "onnx" if name.endswith("onnx") else "savedmodel")
    assert list(tmp_path.iterdir()) == []
