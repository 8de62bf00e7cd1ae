"""Long learning runs of GRUs, of several layers, and of plain memories, on the LSTM's task.

The record beside this file says what each must reach.
"""

import functools

import numpy as np
import pytest
import torch
from remembering import Recall
from torch import nn

from rlcatalog_ppo import PPO
from rlcatalog_tf import keras

pytestmark = [pytest.mark.learn, pytest.mark.usefixtures("one_thread")]


class OwnMemory(nn.Module):
    """A gated memory of one step, whose state is a dict."""

    def __init__(self, width, size=64):
        super().__init__()
        self.size = size
        self.gate = nn.Linear(width + size, size)
        self.candidate = nn.Linear(width + size, size)

    def initial_state(self, batch_size):
        return {"h": torch.zeros(batch_size, self.size)}

    def forward(self, x, state):
        inputs = torch.cat([x, state["h"]], dim=1)
        gate = torch.sigmoid(self.gate(inputs))
        h = gate * state["h"] + (1 - gate) * torch.tanh(self.candidate(inputs))
        return h, {"h": h}


MEMORIES = {
    "gru": {"use_gru": True, "gru_cell_size": 64},
    "lstm-2": {"use_lstm": True, "lstm_cell_size": 64, "lstm_num_layers": 2},
    "plain-gru": {"memory": nn.GRU, "memory_config": {"hidden_size": 64}},
    "plain-own": {"memory": OwnMemory},
    "keras-gru": {"memory": functools.partial(keras.layers.GRU, 64)},
}


@pytest.mark.parametrize(
    ("memory", "framework"),
    [
        ("gru", "torch"),
        ("gru", "tf"),
        ("lstm-2", "torch"),
        ("plain-gru", "torch"),
        ("plain-own", "torch"),
        ("keras-gru", "tf"),
    ],
)
def test_memory_recalls_cue_across_sequences(over_seeds, memory, framework):
    # The task and the settings of the LSTM in test_ppo_learning.py: a cue must be remembered for
    # five steps, which is more than half a sequence.
    def train(seed):
        config = {
            "total_steps": 60_000,
            "framework": framework,
            "seed": seed,
            "num_envs": 16,
            "rollout_length": 64,
            "num_epochs": 6,
            "lr": 3e-3,
            "gamma": 0.9,
            "entropy_coeff": 0.01,
            "model": {"fcnet_hiddens": [32], "max_seq_len": 8, **MEMORIES[memory]},
        }
        algo = PPO(lambda: Recall(5, 7), config)  # the cue comes after up to 7 steps
        while algo.train()["timesteps_total"] < 60_000:
            pass
        mean_return = float(np.mean(algo.evaluate(100, seed=10_000)))
        algo.stop()
        return mean_return

    # There are four cues, so guessing pays a quarter.
    over_seeds(train, chance=0.25)
