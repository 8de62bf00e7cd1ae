"""Models that return NumPy arrays, which carry no gradient, are refused at the first run."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import ModelContractError

OBS, ACT = spaces.Box(-1, 1, (6,), np.float32), spaces.Discrete(3)
ROWS = np.zeros((2, 6), np.float32)


def build(model, framework):
    return rlcatalog.build(OBS, ACT, {"custom_model": model}, framework)


def torch_model(forward, value=None):
    """Return a model class in RLlib's form."""
    import torch
    from torch import nn

    from rlcatalog_torch import TorchModelV2

    class Own(TorchModelV2, nn.Module):
        def __init__(self, *args):
            TorchModelV2.__init__(self, *args)
            nn.Module.__init__(self)
            self.layer = nn.Linear(6, 3)

        def forward(self, input_dict, state, seq_lens):
            return forward(self.layer(input_dict["obs"])), state

        def value_function(self):
            return torch.zeros(2) if value is None else value

    return Own


def to_numpy(tensor):
    return tensor.detach().numpy()


RUNS = {
    "act": lambda policy: policy.act(ROWS),
    "evaluate": lambda policy: policy.evaluate(
        {"obs": ROWS, "raw_action": np.zeros((2, 1), np.int64)}
    ),
    "module": lambda policy: policy.as_module()(policy.backend.tensor(ROWS)),
}


@pytest.mark.parametrize("run", RUNS)
def test_numpy_logits_of_a_torch_model_are_refused(run):
    policy = build(torch_model(to_numpy), "torch")
    expected = r"Own.forward\(\) must return tensors .*'torch'; found ndarray"
    with pytest.raises(ModelContractError, match=expected):
        RUNS[run](policy)


@pytest.mark.parametrize("run", ["act", "module"])
def test_numpy_values_of_a_torch_model_are_refused(run):
    policy = build(torch_model(lambda x: x, value=np.zeros(2, np.float32)), "torch")
    expected = r"Own.value_function\(\) must return a torch.Tensor; found ndarray"
    with pytest.raises(ModelContractError, match=expected):
        RUNS[run](policy)


def test_numpy_logits_of_a_tensorflow_model_are_refused():
    from rlcatalog_tf import TFModelV2, tf

    class Own(TFModelV2):
        def forward(self, input_dict, state, seq_lens):
            rows = input_dict["obs"].shape[0] or 1
            return np.zeros((rows, 3), np.float32), state

        def value_function(self):
            return tf.zeros(2)

    expected = r"Own.forward\(\) must return tensors .*'tf'; found ndarray"
    with pytest.raises(ModelContractError, match=expected):
        build(Own, "tf").act(ROWS)


def test_plain_torch_module_that_returns_numpy_is_refused():
    from torch import nn

    class Net(nn.Module):
        def __init__(self, space):
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x):
            return to_numpy(self.layer(x))

    with pytest.raises(ModelContractError, match=r"found ndarray .* tensors of 'torch'"):
        build(Net, "torch")


def test_plain_keras_layer_that_returns_numpy_is_refused():
    from rlcatalog_tf import keras

    class Net(keras.layers.Layer):
        def __init__(self, space):
            super().__init__()

        def call(self, x):
            return np.zeros((2, 4), np.float32)

    with pytest.raises(ModelContractError, match=r"found ndarray .* tensors of 'tf'"):
        build(Net, "tf")
