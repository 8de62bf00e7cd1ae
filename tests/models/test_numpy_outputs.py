"""Models that return NumPy arrays: they carry no gradient, so the first run is an error."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import ModelContractError

SIX_FEATURES = spaces.Box(-1, 1, (6,), np.float32)
THREE_ACTIONS = spaces.Discrete(3)
TWO_ROWS = np.zeros((2, 6), np.float32)


def build_policy(model, framework):
    return rlcatalog.build(SIX_FEATURES, THREE_ACTIONS, {"custom_model": model}, framework)


def build_torch_policy(*, numpy_logits=False, numpy_value=False):
    """Build a policy of a model in RLlib's form, whose logits or value are NumPy arrays."""
    import torch
    from torch import nn

    from rlcatalog_torch import TorchModelV2

    class Model(TorchModelV2, nn.Module):
        def __init__(self, *args):
            TorchModelV2.__init__(self, *args)
            nn.Module.__init__(self)
            self.layer = nn.Linear(6, 3)

        def forward(self, input_dict, state, seq_lens):
            logits = self.layer(input_dict["obs"])
            return logits.detach().numpy() if numpy_logits else logits, state

        def value_function(self):
            return np.zeros(2, np.float32) if numpy_value else torch.zeros(2)

    return build_policy(Model, "torch")


def act(policy):
    return policy.act(TWO_ROWS)


def evaluate(policy):
    return policy.evaluate({"obs": TWO_ROWS, "raw_action": np.zeros((2, 1), np.int64)})


def run_as_module(policy):
    return policy.as_module()(policy.backend.tensor(TWO_ROWS))


@pytest.mark.parametrize("run", [act, evaluate, run_as_module])
def test_numpy_logits_of_a_torch_model_are_refused(run):
    policy = build_torch_policy(numpy_logits=True)
    message = r"Model.forward\(\) must return tensors .*'torch'; found ndarray"
    with pytest.raises(ModelContractError, match=message):
        run(policy)


@pytest.mark.parametrize("run", [act, run_as_module])
def test_numpy_values_of_a_torch_model_are_refused(run):
    policy = build_torch_policy(numpy_value=True)
    message = r"Model.value_function\(\) must return a torch.Tensor; found ndarray"
    with pytest.raises(ModelContractError, match=message):
        run(policy)


def test_numpy_logits_of_a_tensorflow_model_are_refused():
    from rlcatalog_tf import TFModelV2, tf

    class Model(TFModelV2):
        def forward(self, input_dict, state, seq_lens):
            return np.zeros((2, 3), np.float32), state

        def value_function(self):
            return tf.zeros(2)

    policy = build_policy(Model, "tf")
    with pytest.raises(ModelContractError, match=r"return tensors .*'tf'; found ndarray"):
        policy.act(TWO_ROWS)


def test_plain_torch_module_that_returns_numpy_is_refused():
    from torch import nn

    class Net(nn.Module):
        def __init__(self, space):
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x):
            return self.layer(x).detach().numpy()

    with pytest.raises(ModelContractError, match=r"found ndarray .* tensors of 'torch'"):
        build_policy(Net, "torch")


def test_plain_keras_layer_that_returns_numpy_is_refused():
    from rlcatalog_tf import keras

    class Net(keras.layers.Layer):
        def __init__(self, space):
            super().__init__()

        def call(self, x):
            return np.zeros((2, 4), np.float32)

    with pytest.raises(ModelContractError, match=r"found ndarray .* tensors of 'tf'"):
        build_policy(Net, "tf")
