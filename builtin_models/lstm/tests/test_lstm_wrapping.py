"""What the LSTM is wrapped around, and the layout of its weights that cuDNN asks for."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from torch import nn

import rlcatalog
from rlcatalog.errors import NotServedError
from rlcatalog_lstm.config import CellPlan, Initial
from rlcatalog_lstm.torch import LSTMCell
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

OBS, ACTIONS = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)


class TorchMemory(TorchModelV2, nn.Module):
    """A user's model with a state of its own."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs or 4, model_config, name)
        nn.Module.__init__(self)
        self.layer = nn.Linear(3, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs_flat"]), state

    def get_initial_state(self):
        return [torch.zeros(2)]


class TFMemory(TFModelV2):
    """The same in TensorFlow."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs or 4, model_config, name)
        self.weight = tf.Variable(tf.zeros([3, self.num_outputs]))
        self.register_variables([self.weight])

    def forward(self, input_dict, state, seq_lens):
        return input_dict["obs_flat"] @ self.weight, state

    def get_initial_state(self):
        return [tf.zeros(2)]


@pytest.mark.parametrize("cls", [TorchMemory, TFMemory])
def test_a_model_with_a_memory_of_its_own_gets_no_second_one(cls):
    config = {"custom_model": cls, "use_lstm": True, "lstm_cell_size": 4}
    with pytest.raises(
        NotServedError, match=f"{cls.__name__} is itself recurrent .*LSTMWrapper cannot be wrapped"
    ):
        rlcatalog.build(OBS, ACTIONS, config)


class OnGPU(torch.Tensor):
    """A tensor that says it is on a GPU, where there is none."""

    is_cuda = True


def test_weights_for_cudnn_lie_in_one_piece_of_memory_and_are_the_same(monkeypatch):
    gates = (Initial("normal", {}),) * 4
    cell = LSTMCell(CellPlan(3, 5, gates, gates, gates))
    weights = cell._weights()
    assert cell._compact() is not None
    monkeypatch.setattr(
        cell, "_weights", lambda: [weight.detach().as_subclass(OnGPU) for weight in weights]
    )
    compact = cell._compact()
    assert [w.shape for w in compact] == [w.shape for w in weights]
    for one, other in zip(compact, weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.detach().numpy())
    first = compact[0].data_ptr()
    offsets = np.cumsum([0, *(w.numel() for w in weights[:-1])]) * 4
    assert [w.data_ptr() - first for w in compact] == offsets.tolist()


@pytest.mark.parametrize("lengths", [[3, 2], [3, 3], None], ids=["mixed", "full", "steps"])
def test_without_a_state_the_sequences_of_a_batch_begin_with_zeros(framework, lstm, lengths):
    """`forward` itself, as a user's model that holds one calls it."""
    model, tensor = lstm.model(framework), lstm.convert[framework]
    x = tensor(np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32))
    zeros = tensor(np.zeros((6 if lengths is None else 2, 5), np.float32))
    seq_lens = None if lengths is None else tensor(np.array(lengths, np.int32))
    one, other = (
        model.forward({"obs": x, "obs_flat": x}, start, seq_lens) for start in ([], [zeros, zeros])
    )
    lstm.close(lstm.array(one[0]), lstm.array(other[0]))
    lstm.close([lstm.array(part) for part in one[1]], [lstm.array(part) for part in other[1]])
