"""Models that the LSTM cannot wrap, its weights for cuDNN, and direct calls of `forward`."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from builders import to_array
from gymnasium import spaces
from model_runs import assert_close, to_tensor
from torch import nn

import rlcatalog
from rlcatalog.errors import NotServedError
from rlcatalog_lstm.config import CellPlan, Initial
from rlcatalog_lstm.torch import LSTMCell
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2


class TorchModelWithState(TorchModelV2, nn.Module):
    """A user's model with a state of its own."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs or 4, model_config, name)
        nn.Module.__init__(self)
        self.layer = nn.Linear(3, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs_flat"]), state

    def get_initial_state(self):
        return [torch.zeros(2)]


class TFModelWithState(TFModelV2):
    """The same in TensorFlow."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs or 4, model_config, name)
        self.weight = tf.Variable(tf.zeros([3, self.num_outputs]))
        self.register_variables([self.weight])

    def forward(self, input_dict, state, seq_lens):
        return input_dict["obs_flat"] @ self.weight, state

    def get_initial_state(self):
        return [tf.zeros(2)]


@pytest.mark.parametrize("cls", [TorchModelWithState, TFModelWithState])
def test_lstm_rejects_a_model_with_a_state(cls):
    obs = spaces.Box(-1, 1, (3,), np.float32)
    config = {"custom_model": cls, "use_lstm": True, "lstm_cell_size": 4}

    with pytest.raises(NotServedError, match="LSTMWrapper cannot be wrapped") as caught:
        rlcatalog.build(obs, spaces.Discrete(2), config)

    assert f"{cls.__name__} is itself recurrent " in str(caught.value)


# --- weights for cuDNN ----------------------------------------------------------------------------


class PretendsToBeOnGPU(torch.Tensor):
    """A tensor that says it is on a GPU, where there is none."""

    is_cuda = True


def build_cell():
    """Build a cell with random weights."""
    gates = (Initial("normal", {}),) * 4
    return LSTMCell(CellPlan(3, 5, gates, gates, gates))


def test_weights_on_the_cpu_are_not_copied():
    cell = build_cell()

    for weight, expected in zip(cell._compact(), cell._weights(), strict=True):
        assert weight is expected


@pytest.fixture
def cudnn_cell(monkeypatch):
    """A cell with random weights that seem to be on a GPU."""
    cell = build_cell()
    weights = [weight.detach().as_subclass(PretendsToBeOnGPU) for weight in cell._weights()]
    monkeypatch.setattr(cell, "_weights", lambda: weights)
    return cell


def test_weights_for_cudnn_are_those_of_the_cell(cudnn_cell):
    compact = cudnn_cell._compact()

    for weight, expected in zip(compact, cudnn_cell._weights(), strict=True):
        assert weight.shape == expected.shape
        np.testing.assert_array_equal(weight.numpy(), expected.numpy())


def test_weights_for_cudnn_are_in_one_piece_of_memory(cudnn_cell):
    compact = cudnn_cell._compact()

    address = compact[0].data_ptr()
    for weight in compact:
        assert weight.data_ptr() == address
        address += 4 * weight.numel()  # 4 bytes of a float32


# --- forward --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seq_lens", "sequences"),
    [
        pytest.param([3, 2], 2, id="mixed-lengths"),
        pytest.param([3, 3], 2, id="full-lengths"),
        pytest.param(None, 6, id="single-steps"),
    ],
)
def test_forward_without_a_state_begins_with_zeros(framework, seq_lens, sequences, build_model):
    model = build_model(framework)
    obs = to_tensor(framework, np.linspace(-1, 1, 18, dtype=np.float32).reshape(6, 3))
    zeros = to_tensor(framework, np.zeros((sequences, 5), np.float32))  # 5 cells
    if seq_lens is not None:
        seq_lens = to_tensor(framework, np.array(seq_lens, np.int32))

    # A model that contains the LSTM may call forward, without what __call__ does before it.
    inputs = {"obs": obs, "obs_flat": obs}
    outputs, (h, c) = model.forward(inputs, [], seq_lens)

    expected_outputs, (expected_h, expected_c) = model.forward(inputs, [zeros, zeros], seq_lens)
    assert_close(to_array(outputs), to_array(expected_outputs))
    assert_close(to_array(h), to_array(expected_h))
    assert_close(to_array(c), to_array(expected_c))
