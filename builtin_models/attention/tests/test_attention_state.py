"""The memory of the transformer: padding, NaN, windows, gradients and tf.function."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from builders import to_array
from gymnasium import spaces
from model_runs import assert_close, run_model, run_sequences, to_tensor

import rlcatalog
from rlcatalog.errors import NonFiniteError

pytestmark = pytest.mark.twins

#: Three sequences of eight steps with three numbers.
SEQUENCES = np.random.default_rng(0).normal(size=(3, 8, 3)).astype(np.float32)


def test_padded_sequence_matches_the_sequence_alone(framework, build_net):
    model = build_net(framework)
    padded = SEQUENCES[:2].copy()
    padded[0, 3:] = 100  # the first sequence has 3 steps, the second all 8

    results = run_sequences(model, padded, lengths=[3, 8])

    alone = run_sequences(model, SEQUENCES[:1, :3])
    memory, used = results.state
    memory_alone, used_alone = alone.state
    assert_close(results.outputs[0, :3], alone.outputs[0])
    assert_close(results.values[0, :3], alone.values[0])
    assert_close(memory[0], memory_alone[0])
    assert used[0] == used_alone[0] == 3


def test_nan_in_an_unused_slot_is_an_error(framework):
    policy = rlcatalog.build(
        spaces.Box(-1, 1, (3,)), spaces.Discrete(2), {"use_attention": True}, framework
    )
    state = policy.initial_state(3)
    memory, _ = state.memory

    memory[1, 0, 0] = np.nan  # row 1, unit 0, slot 0: no step has filled it yet

    with pytest.raises(NonFiniteError, match="row 1 of 3"):
        policy.act(np.zeros((3, 3), np.float32), state)


@pytest.mark.parametrize(("acting", "training", "longer"), [(2, 5, 5), (3, 0, 3)])
def test_memory_keeps_the_longer_window(framework, acting, training, longer, build_net):
    model = build_net(framework, memory_inference=acting, memory_training=training)

    memory, _ = model.get_initial_state()

    assert tuple(memory.shape) == (2, longer, 6)  # 2 units of width 6


def test_rows_without_lengths_are_sequences_of_one(framework, build_net):
    model = build_net(framework)

    results = run_model(model, SEQUENCES[:, 0])

    expected = run_sequences(model, SEQUENCES[:, :1])
    memory, used = results.state
    assert_close(results.outputs, expected.outputs[:, 0])
    assert memory.shape == (3, 2, 4, 6)  # 3 rows, 2 units, 4 slots, width 6
    assert used.tolist() == [1, 1, 1]


def test_number_of_used_slots_may_be_an_integer(framework, build_net):
    model = build_net(framework)
    memory, used = run_sequences(model, SEQUENCES[:, :3]).state

    state = to_tensor(framework, [memory, used.astype(np.int32)])
    outputs, _ = model({"obs": to_tensor(framework, SEQUENCES[:, 3])}, state)

    expected = run_sequences(model, SEQUENCES[:, 3:4], [memory, used])
    assert_close(to_array(outputs), expected.outputs[:, 0])


# --- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3])
def test_torch_gradients_reach_inputs_and_not_the_memory(steps, build_net):
    model = build_net("torch")
    obs = torch.from_numpy(SEQUENCES[:, :steps].reshape(-1, 3)).requires_grad_()
    memory = torch.randn(3, 2, 4, 6, requires_grad=True)  # 3 rows, 2 units, 4 slots, width 6
    used = torch.tensor([4, 4, 4])  # all slots

    outputs, (new_memory, _) = model({"obs": obs}, [memory, used], torch.tensor([steps] * 3))
    outputs.sum().backward()

    assert obs.grad.any()
    assert memory.grad is None
    assert not new_memory.requires_grad


@pytest.mark.parametrize("steps", [1, 3])
def test_tf_gradients_reach_inputs_and_not_the_memory(steps, build_net):
    model = build_net("tf")
    obs = tf.constant(SEQUENCES[:, :steps].reshape(-1, 3))
    memory = tf.random.normal([3, 2, 4, 6])  # 3 rows, 2 units, 4 slots, width 6
    used = tf.constant([4.0, 4.0, 4.0])  # all slots

    with tf.GradientTape(persistent=True) as tape:
        tape.watch([obs, memory])
        outputs, (new_memory, _) = model({"obs": obs}, [memory, used], tf.constant([steps] * 3))

    assert tf.reduce_any(tape.gradient(outputs, obs) != 0)
    assert tape.gradient(outputs, memory) is None
    assert tape.gradient(new_memory, obs) is None


# --- tf.function ----------------------------------------------------------------------------------


def test_one_trace_serves_sequences_and_single_steps(build_net):
    model = build_net("tf")

    def run(obs, memory, used, lengths):
        outputs, (new_memory, _) = model({"obs": obs}, [memory, used], lengths)
        return outputs, model.value_function(), new_memory

    run_traced = tf.function(
        run,
        input_signature=[
            tf.TensorSpec([None, 3], tf.float32),
            tf.TensorSpec([None, 2, 4, 6], tf.float32),  # 2 units, 4 slots, width 6
            tf.TensorSpec([None], tf.float32),
            tf.TensorSpec([None], tf.int32),
        ],
        autograph=False,
    )

    for sequences, steps in [(3, 1), (2, 6), (1, 3)]:
        arguments = (
            tf.constant(SEQUENCES[:sequences, :steps].reshape(-1, 3)),
            tf.random.normal([sequences, 2, 4, 6]),
            tf.fill([sequences], 4.0),  # used slots
            tf.fill([sequences], steps),
        )
        outputs, values, new_memory = run_traced(*arguments)
        eager_outputs, eager_values, eager_memory = run(*arguments)
        assert_close(outputs, eager_outputs)
        assert_close(values, eager_values)
        assert_close(new_memory, eager_memory)
    assert run_traced.experimental_get_tracing_count() == 1
