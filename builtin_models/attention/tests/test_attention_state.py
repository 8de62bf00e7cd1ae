"""What the memory of the transformer promises, in both frameworks."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import NonFiniteError

pytestmark = pytest.mark.twins

frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
X = np.random.default_rng(0).normal(size=(3, 8, 3)).astype(np.float32)


def windows(slots):
    return {"memory_inference": slots, "memory_training": slots}


def assert_states(found, expected, tolerance=1e-4):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("framework", "slots"),
    [
        *(("torch", slots) for slots in (0, 1, 4, 11)),
        *(("tf", slots) for slots in (0, 4)),
        *(pytest.param("tf", slots, marks=pytest.mark.attack) for slots in (1, 11)),
    ],
)
def test_stepping_is_one_pass_over_the_sequence(framework, slots, build, run):
    model = build(framework, **windows(slots))
    whole = run(model, X, training=True)
    state = ()
    for t in range(X.shape[1]):
        step = run(model, X[:, t : t + 1], state)
        np.testing.assert_allclose(step.output[:, 0], whole.output[:, t], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(step.value[:, 0], whole.value[:, t], rtol=1e-4, atol=1e-4)
        state = step.state
    assert_states(state, whole.state)
    if slots:  # the control: the memory matters
        assert not np.allclose(run(model, X[:, -1:]).output, step.output, atol=1e-3)


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize(("slots", "cuts"), [(4, (3, 7)), (2, (1, 2)), (11, (6,))])
def test_a_sequence_cut_into_chunks_with_stored_memories(framework, slots, cuts, build, run):
    model = build(framework, **windows(slots))
    whole = run(model, X)
    state, found = (), []
    for start, stop in zip((0, *cuts), (*cuts, X.shape[1]), strict=True):
        chunk = run(model, X[:, start:stop], state)
        found.append(chunk.output)
        state = chunk.state
    np.testing.assert_allclose(np.concatenate(found, axis=1), whole.output, rtol=1e-4, atol=1e-4)
    assert_states(state, whole.state)


@frameworks
def test_padding_changes_nothing(framework, build, run):
    model, lengths = build(framework, **windows(3)), [4, 1, 8]
    rng = np.random.default_rng(1)
    start = run(model, rng.normal(size=(3, 3, 3))).state
    padded = X.copy()
    for row, length in enumerate(lengths):
        padded[row, length:] = rng.normal(0, 100, (8 - length, 3))
    found = run(model, padded, start, lengths)
    for row, length in enumerate(lengths):
        alone = run(model, X[row : row + 1, :length], [part[row : row + 1] for part in start])
        np.testing.assert_allclose(
            found.output[row, :length], alone.output[0], rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(found.value[row, :length], alone.value[0], rtol=1e-4, atol=1e-5)
        assert_states([part[row] for part in found.state], [part[0] for part in alone.state], 1e-5)


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize("steps", [1, 3])
def test_unused_slots_have_no_influence(framework, steps, build, run):
    model = build(framework)
    memory, held = run(model, X[:, :2]).state
    held[:] = [0, 1, 2]
    clean = run(model, X[:, :steps], [memory, held])
    for row, count in enumerate(held.astype(int)):
        memory[row, :, : 4 - count] = 1e6
    dirty = run(model, X[:, :steps], [memory, held])
    np.testing.assert_array_equal(dirty.output, clean.output)
    for row, count in enumerate(clean.state[1].astype(int)):
        np.testing.assert_array_equal(
            dirty.state[0][row, :, 4 - count :], clean.state[0][row, :, 4 - count :]
        )
    fresh = run(model, X[:, :steps])
    np.testing.assert_allclose(dirty.output[0], fresh.output[0], rtol=1e-5, atol=1e-6)
    # The control: a slot that is held matters.
    memory[2, :, 3, 0] += 1
    assert not np.allclose(
        run(model, X[:, :steps], [memory, held]).output[2], clean.output[2], atol=1e-3
    )


@frameworks
def test_nan_in_an_unused_slot_is_an_error_and_not_an_action(framework):
    policy = rlcatalog.build(
        spaces.Box(-1, 1, (3,)), spaces.Discrete(2), {"use_attention": True}, framework
    )
    state = policy.initial_state(3)
    assert not state.memory[1].any()  # no slot is used yet
    state.memory[0][1, 0, 0] = np.nan
    with pytest.raises(NonFiniteError, match="row 1 of 3"):
        policy.act(X[:, 0].clip(-1, 1), state)


@frameworks
@pytest.mark.parametrize(("steps", "heads"), [(1, 1), (1, 2), (3, 2)])
def test_a_row_is_the_same_alone_and_among_others(framework, steps, heads, build, run):
    model = build(framework, num_heads=heads)
    start = run(model, X[:, :3]).state
    found = run(model, X[:, 3 : 3 + steps], start)
    for row in range(1, 3):
        alone = run(model, X[row : row + 1, 3 : 3 + steps], [part[row : row + 1] for part in start])
        np.testing.assert_allclose(alone.output[0], found.output[row], rtol=1e-5, atol=1e-6)
        assert_states([part[0] for part in alone.state], [part[row] for part in found.state], 1e-5)


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize(("acting", "training"), [(2, 5), (3, 0)])
def test_acting_and_training_each_have_their_window(framework, acting, training, build, run):
    both = build(framework, memory_inference=acting, memory_training=training)
    assert tuple(both.get_initial_state()[0].shape) == (2, max(acting, training), 6)
    for slots, is_training in ((acting, False), (training, True)):
        alone = build(framework, **windows(slots))
        x, state = X[:, :6], ()
        for start, stop in ((0, 3), (3, 4), (4, 6)):
            found = run(both, x[:, start:stop], state, training=is_training)
            expected = run(alone, x[:, :stop]).output[:, start:]
            np.testing.assert_allclose(found.output, expected, rtol=1e-4, atol=1e-4)
            state = found.state


@frameworks
def test_a_step_sees_its_window_and_nothing_else(framework, build, run):
    # One unit: with more, a step also sees what the steps it sees saw.
    model = build(framework, num_transformer_units=1, **windows(3))
    before = run(model, X).output
    changed = X.copy()
    changed[:, 2] += 1
    differs = np.abs(run(model, changed).output - before).max(axis=(0, 2)) > 1e-6
    assert differs.tolist() == [False] * 2 + [True] * 4 + [False] * 2


@frameworks
def test_without_a_state_episodes_begin(framework, build, run):
    model = build(framework)
    state = [np.repeat(np.asarray(part)[None], 3, axis=0) for part in model.get_initial_state()]
    assert [part.shape for part in state] == [(3, 2, 4, 6), (3,)]
    np.testing.assert_array_equal(run(model, X, state).output, run(model, X).output)
    # Without lengths each row is a sequence of its own.
    convert = torch.tensor if framework == "torch" else tf.constant
    output, (memory, held) = model({"obs": convert(X[:, 0])})
    np.testing.assert_allclose(
        output if framework == "tf" else output.detach(), run(model, X).output[:, 0], atol=1e-5
    )
    assert tuple(memory.shape) == (3, 2, 4, 6)
    np.testing.assert_array_equal(held, 1)


@pytest.mark.parametrize("steps", [1, 3])
def test_no_gradient_flows_into_the_memory(steps, build):
    model = build("torch")
    x = torch.tensor(X[:, :steps].reshape(-1, 3), requires_grad=True)
    memory = torch.randn(3, 2, 4, 6, requires_grad=True)
    output, state = model({"obs": x}, [memory, torch.full((3,), 4.0)], torch.full((3,), steps))
    output.sum().backward()
    assert memory.grad is None
    assert x.grad.abs().sum() > 0
    assert not any(part.requires_grad for part in state)
    model = build("tf")
    x, memory = tf.constant(X[:, :steps].reshape(-1, 3)), tf.random.normal([3, 2, 4, 6])
    with tf.GradientTape() as tape:
        tape.watch([x, memory])
        output, state = model({"obs": x}, [memory, tf.fill([3], 4.0)], tf.fill([3], steps))
        sums = tf.reduce_sum(output), tf.reduce_sum(state[0])
    assert tape.gradient(sums, memory) is None
    with tf.GradientTape() as tape:
        tape.watch(x)
        _, state = model({"obs": x}, [], tf.fill([3], steps))
        total = tf.reduce_sum(state[0])
    assert tape.gradient(total, x) is None


def test_traced_it_is_the_same_for_any_length(build, run):
    model = build("tf")
    start = run(model, X[:, :3]).state
    shapes = [tf.TensorSpec(shape, tf.float32) for shape in ([None, 3], [None, 2, 4, 6], [None])]

    @tf.function(input_signature=[*shapes, tf.TensorSpec([None], tf.int32)], autograph=False)
    def traced(x, memory, held, lengths):
        output, state = model({"obs": x}, [memory, held], lengths)
        return output, model.value_function(), *state

    for steps, sequences in ((1, 3), (6, 2), (3, 1)):
        x, state = X[:sequences, :steps], [part[:sequences] for part in start]
        expected = run(model, x, state)
        output, value, *new = traced(x.reshape(-1, 3), *state, np.full(sequences, steps, np.int32))
        np.testing.assert_allclose(output, expected.output.reshape(-1, 4), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(value, expected.value.reshape(-1), rtol=1e-5, atol=1e-5)
        assert_states(new, expected.state, 1e-5)
    assert traced.experimental_get_tracing_count() == 1


def test_a_count_of_whole_numbers_is_taken_too(build, run):
    for framework in ("torch", "tf"):
        model = build(framework)
        memory, held = run(model, X[:, :3]).state
        convert = torch.tensor if framework == "torch" else tf.constant
        state = [convert(memory), convert(held.astype(np.int32))]
        output, _ = model({"obs": convert(X[:, 3])}, state, convert(np.ones(3, np.int32)))
        expected = run(model, X[:, 3:4], [memory, held]).output[:, 0]
        np.testing.assert_allclose(
            output if framework == "tf" else output.detach(), expected, atol=1e-6
        )
