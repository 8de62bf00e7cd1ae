"""A memory begins each episode with what the model's `get_initial_state` returns, which need not be
zeros.
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

TWO_FEATURES = spaces.Box(-1, 1, (2,), np.float32)
TWO_ACTIONS = spaces.Discrete(2)
#: The two parts of the initial memory. A step adds 1 to the first and 10 to the second.
INITIAL = ([5.0, -7.0], [[0.5], [3.0]])


class TorchCounter(TorchModelV2, nn.Module):
    """Counts the steps of an episode in its memory; its outputs are the first part of it."""

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
        return [torch.tensor(part) for part in INITIAL]


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
        return [tf.constant(part) for part in INITIAL]


@pytest.fixture(params=[TorchCounter, TFCounter])
def policy(request):
    return rlcatalog.build(TWO_FEATURES, TWO_ACTIONS, {"custom_model": request.param})


def memory_after(steps):
    """Return the memory of rows that have made `steps[row]` steps of their episode."""
    steps = np.asarray(steps, np.float32)
    first = steps[:, None] + np.float32(INITIAL[0])
    second = 10 * steps[:, None, None] + np.float32(INITIAL[1])
    return [first, second]


def check_memory(state, *, steps):
    for part, expected in zip(state.memory, memory_after(steps), strict=True):
        np.testing.assert_array_equal(np.asarray(part), expected)


def test_initial_state_is_that_of_the_model(policy):
    check_memory(policy.initial_state(3), steps=[0, 0, 0])


def test_act_without_a_state_uses_the_initial_one(policy):
    step = policy.act(np.zeros((2, 2), np.float32))

    np.testing.assert_array_equal(step.dist_inputs, [INITIAL[0], INITIAL[0]])
    check_memory(step.state, steps=[1, 1])
    check_memory(step.state.rows([1]), steps=[1])


def test_restart_sets_rows_to_the_initial_state(policy):
    obs = np.zeros((3, 2), np.float32)
    state = policy.act(obs, policy.restart(policy.initial_state(3), [])).state
    check_memory(state, steps=[1, 1, 1])

    state = policy.act(obs, policy.restart(state, [1])).state
    check_memory(state, steps=[2, 1, 2])

    state = policy.act(obs, policy.restart(state, np.array([True, False, True]))).state
    check_memory(state, steps=[1, 2, 1])


def test_value_uses_the_memory_before_the_step(policy):
    obs = np.zeros((3, 2), np.float32)
    state = policy.act(obs).state
    state = policy.restart(state, [1])

    step = policy.act(obs, state)

    first_part = memory_after([1, 0, 1])[0]
    np.testing.assert_array_equal(step.value, first_part[:, 1])


def test_stepper_starts_new_episodes_with_the_initial_state(policy):
    stepper = policy.stepper(2)
    obs = np.zeros((2, 2), np.float32)

    first = stepper.step(obs)
    second = stepper.step(obs, done=[False, False])
    third = stepper.step(obs, done=[True, False])
    fourth = stepper.step(obs, done=[False, True])

    # The outputs of the model are its memory: it begins with [5, -7], and each step adds 1.
    assert first.dist_inputs.tolist() == [[5, -7], [5, -7]]
    assert second.dist_inputs.tolist() == [[6, -6], [6, -6]]
    assert third.dist_inputs.tolist() == [[5, -7], [7, -5]]
    assert fourth.dist_inputs.tolist() == [[6, -6], [5, -7]]


#: A sequence of two steps and one of one step.
BATCH = {
    "obs": np.zeros((3, 2), np.float32),
    "raw_action": np.zeros((3, 1), np.int64),
    "seq_lens": np.array([2, 1], np.int32),
}


@pytest.mark.parametrize("has_state", [False, True], ids=["without-state", "with-initial-state"])
def test_evaluate_starts_sequences_with_the_initial_state(policy, has_state):
    batch = dict(BATCH)
    if has_state:
        batch["state"] = policy.initial_state(2)

    value = policy.evaluate(batch).value

    if isinstance(value, torch.Tensor):
        value = value.detach()
    np.testing.assert_array_equal(np.asarray(value), [INITIAL[0][1]] * 3)


@pytest.mark.parametrize(
    "make_state",
    [
        pytest.param(lambda first, second: [first], id="too-few-parts"),
        pytest.param(lambda first, second: [first, second, second], id="too-many-parts"),
        pytest.param(lambda first, second: [first[:1], second], id="too-few-rows"),
        pytest.param(
            lambda first, second: [first, np.concatenate([second, second])], id="too-many-rows"
        ),
    ],
)
def test_evaluate_rejects_a_state_of_another_shape(policy, make_state):
    first, second = (np.asarray(part) for part in policy.initial_state(2).memory)

    with pytest.raises(ModelContractError, match="2 parts with a row for each of 2 seq") as caught:
        policy.evaluate({**BATCH, "state": make_state(first, second)})

    assert str(caught.value).startswith("batch['state']: ")
