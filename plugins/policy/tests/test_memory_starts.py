"""Where a model's memory begins: at what `get_initial_state` says, which need not be zeros, in
every new episode.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from torch import nn

import rlcatalog
from rlcatalog.errors import ModelContractError
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

BOX, TWO = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
FIRST = ([5.0, -7.0], [[0.5], [3.0]])


class TorchCounter(TorchModelV2, nn.Module):
    """Counts the steps of an episode, from unusual numbers on; its logits show them."""

    def __init__(self, *args):
        TorchModelV2.__init__(self, *args)
        nn.Module.__init__(self)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, input_dict, state, seq_lens):
        outputs = (
            state[0].repeat_interleave(len(input_dict["obs"]) // len(state[0]), dim=0) * self.scale
        )
        self._values = outputs[:, 1]
        return outputs, [state[0] + 1, state[1] + 10]

    def value_function(self):
        return self._values

    def get_initial_state(self):
        return [torch.tensor(part) for part in FIRST]


class TFCounter(TFModelV2):
    """The same in TensorFlow."""

    def __init__(self, *args):
        super().__init__(*args)
        self.scale = tf.Variable([1.0])
        self.register_variables([self.scale])

    def forward(self, input_dict, state, seq_lens):
        outputs = (
            tf.repeat(state[0], tf.shape(input_dict["obs"])[0] // tf.shape(state[0])[0], axis=0)
            * self.scale
        )
        self._values = outputs[:, 1]
        return outputs, [state[0] + 1, state[1] + 10]

    def value_function(self):
        return self._values

    def get_initial_state(self):
        return [tf.constant(part) for part in FIRST]


@pytest.fixture(params=[TorchCounter, TFCounter])
def policy(request):
    return rlcatalog.build(BOX, TWO, {"custom_model": request.param})


def memory_after(steps):
    """The memory of rows that many steps into their episodes."""
    ages = np.asarray(steps, np.float32)
    return [ages[:, None] + np.float32(FIRST[0]), 10 * ages[:, None, None] + np.float32(FIRST[1])]


def check(state, steps):
    for found, expected in zip(state.memory, memory_after(steps), strict=True):
        np.testing.assert_array_equal(np.asarray(found), expected)


def test_it_begins_where_the_model_says_and_new_episodes_begin_there_again(policy):
    obs = np.zeros((3, 2), np.float32)
    state = policy.initial_state(3)
    check(state, [0, 0, 0])
    for rows, ages in (
        ([], [1, 1, 1]),
        ([1], [2, 1, 2]),
        (np.array([True, False, True]), [1, 2, 1]),
    ):
        state = policy.restart(state, rows)
        step = policy.act(obs, state)
        np.testing.assert_array_equal(step.value, memory_after(ages)[0][:, 1] - 1)
        state = step.state
        check(state, ages)


def test_an_act_without_a_state_begins_there_too(policy):
    obs = np.zeros((2, 2), np.float32)
    step = policy.act(obs)
    np.testing.assert_array_equal(step.dist_inputs, [FIRST[0]] * 2)
    check(step.state, [1, 1])
    check(step.state.rows([1]), [1])


def test_so_do_the_rows_of_a_stepper_that_are_done(policy):
    stepper, obs = policy.stepper(2), np.zeros((2, 2), np.float32)
    for done, ages in (
        (None, [0, 0]),
        ([False, False], [1, 1]),
        ([True, False], [0, 2]),
        ([False, True], [1, 0]),
    ):
        step = stepper.step(obs, done=done)
        np.testing.assert_array_equal(step.dist_inputs, memory_after(ages)[0])


def test_sequences_scored_without_a_state_begin_there(policy):
    lengths = np.array([2, 1], np.int32)

    batch = {
        "obs": np.zeros((3, 2), np.float32),
        "raw_action": np.zeros((3, 1), np.int64),
        "seq_lens": lengths,
    }
    for start in ({}, {"state": policy.initial_state(2)}):
        value = policy.evaluate({**batch, **start}).value
        found = value.detach() if isinstance(value, torch.Tensor) else value
        np.testing.assert_array_equal(np.asarray(found), [FIRST[0][1]] * 3)


def test_a_memory_of_other_parts_or_rows_is_refused(policy):
    batch = {
        "obs": np.zeros((3, 2), np.float32),
        "raw_action": np.zeros((3, 1), np.int64),
        "seq_lens": [2, 1],
    }
    first, second = (np.asarray(part) for part in policy.initial_state(2).memory)
    for state in (
        [first],
        [first, second, second],
        [first[:1], second],
        [first, np.concatenate([second, second])],
    ):
        with pytest.raises(
            ModelContractError,
            match=r"batch\['state'\]: expected 2 parts with a row for each of 2 seq",
        ):
            policy.evaluate({**batch, "state": state})
