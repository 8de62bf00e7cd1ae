"""The memory of the transformer: steps, chunks, padding, windows, unused slots and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import NonFiniteError

pytestmark = pytest.mark.twins

both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
#: Three sequences of eight steps with three numbers.
SEQUENCES = np.random.default_rng(0).normal(size=(3, 8, 3)).astype(np.float32)


def with_memory_of(steps):
    """Return the sizes of a net that sees and keeps so many past steps."""
    return {"memory_inference": steps, "memory_training": steps}


def select_rows(state, rows):
    return [part[rows] for part in state]


def assert_close(result, expected, tolerance=1e-4):
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


def assert_states_close(state, expected, tolerance=1e-4):
    for part, expected_part in zip(state, expected, strict=True):
        assert_close(part, expected_part, tolerance)


# --- steps and chunks -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "slots"),
    [
        ("torch", 0),
        ("torch", 1),
        ("torch", 4),
        ("torch", 11),
        ("tf", 0),
        ("tf", 4),
        pytest.param("tf", 1, marks=pytest.mark.attack),
        pytest.param("tf", 11, marks=pytest.mark.attack),
    ],
)
def test_single_steps_match_one_pass(framework, slots, build_net, run_net):
    model = build_net(framework, memory_inference=slots, memory_training=slots)
    expected = run_net(model, SEQUENCES, training=True)

    state = ()
    for t in range(8):
        step = run_net(model, SEQUENCES[:, t : t + 1], state)
        state = step.state
        assert_close(step.output[:, 0], expected.output[:, t])
        assert_close(step.value[:, 0], expected.value[:, t])

    assert_states_close(state, expected.state)


@both_frameworks
@pytest.mark.parametrize("slots", [1, 4, 11])
def test_memory_changes_the_output(framework, slots, build_net, run_net):
    model = build_net(framework, **with_memory_of(steps=slots))
    seven_steps = run_net(model, SEQUENCES[:, :-1])

    last_step = run_net(model, SEQUENCES[:, -1:], seven_steps.state)
    without_memory = run_net(model, SEQUENCES[:, -1:])

    assert not np.allclose(without_memory.output, last_step.output, atol=1e-3)


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize(
    ("slots", "cuts"),
    [
        pytest.param(4, (3, 7), id="4-slots"),
        pytest.param(2, (1, 2), id="2-slots"),
        pytest.param(11, (6,), id="11-slots"),
    ],
)
def test_chunks_of_a_sequence_match_one_pass(framework, slots, cuts, build_net, run_net):
    model = build_net(framework, **with_memory_of(steps=slots))
    expected = run_net(model, SEQUENCES)

    state = ()
    outputs = []
    for chunk in np.split(SEQUENCES, cuts, axis=1):
        results = run_net(model, chunk, state)
        outputs.append(results.output)
        state = results.state

    assert_close(np.concatenate(outputs, axis=1), expected.output)
    assert_states_close(state, expected.state)


@both_frameworks
@pytest.mark.parametrize(("row", "length"), [(0, 4), (1, 1), (2, 8)])
def test_padded_sequence_matches_the_sequence_alone(framework, row, length, build_net, run_net):
    model = build_net(framework, **with_memory_of(steps=3))
    random = np.random.default_rng(1)
    lengths = [4, 1, 8]
    padded = SEQUENCES.copy()
    padded[0, 4:] = random.normal(0, 100, (4, 3))
    padded[1, 1:] = random.normal(0, 100, (7, 3))
    state = run_net(model, random.normal(size=(3, 3, 3))).state

    batch = run_net(model, padded, state, lengths)

    alone = run_net(
        model, SEQUENCES[row : row + 1, :length], select_rows(state, slice(row, row + 1))
    )
    np.testing.assert_allclose(batch.output[row, :length], alone.output[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(batch.value[row, :length], alone.value[0], rtol=1e-4, atol=1e-5)
    assert_states_close(select_rows(batch.state, row), select_rows(alone.state, 0), 1e-5)


@both_frameworks
@pytest.mark.parametrize(("steps", "heads"), [(1, 1), (1, 2), (3, 2)])
@pytest.mark.parametrize("row", [1, 2])
def test_row_of_a_batch_matches_the_row_alone(framework, steps, heads, row, build_net, run_net):
    model = build_net(framework, num_heads=heads)
    state = run_net(model, SEQUENCES[:, :3]).state
    obs = SEQUENCES[:, 3 : 3 + steps]

    batch = run_net(model, obs, state)
    alone = run_net(model, obs[row : row + 1], select_rows(state, slice(row, row + 1)))

    np.testing.assert_allclose(alone.output[0], batch.output[row], rtol=1e-5, atol=1e-6)
    assert_states_close(select_rows(alone.state, 0), select_rows(batch.state, row), 1e-5)


# --- unused slots ---------------------------------------------------------------------------------


@pytest.fixture
def part_filled_state(build_net, run_net):
    """Return the state of a net in which the three rows remember 0, 1 and 2 of 4 steps."""

    def make_state(model):
        memory, _ = run_net(model, SEQUENCES[:, :2]).state
        return [memory, np.array([0, 1, 2], np.float32)]

    return make_state


def spoil_unused_slots(state):
    """Return the state with 1e6 in unused slots; the used ones are the last."""
    memory, used = state
    memory = memory.copy()
    for row, count in enumerate(used.astype(int)):
        memory[row, :, : 4 - count] = 1e6
    return [memory, used]


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize("steps", [1, 3])
def test_unused_slots_do_not_change_the_output(
    framework, steps, build_net, run_net, part_filled_state
):
    model = build_net(framework, **with_memory_of(steps=4))
    state = part_filled_state(model)

    spoilt = run_net(model, SEQUENCES[:, :steps], spoil_unused_slots(state))

    expected = run_net(model, SEQUENCES[:, :steps], state)
    np.testing.assert_array_equal(spoilt.output, expected.output)
    memory, used = expected.state
    for row, count in enumerate(used.astype(int)):
        used_slots = slice(4 - count, None)
        np.testing.assert_array_equal(
            spoilt.state[0][row, :, used_slots], memory[row, :, used_slots]
        )


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize("steps", [1, 3])
def test_empty_memory_is_the_start_of_an_episode(
    framework, steps, build_net, run_net, part_filled_state
):
    model = build_net(framework, **with_memory_of(steps=4))

    spoilt = run_net(model, SEQUENCES[:, :steps], spoil_unused_slots(part_filled_state(model)))

    start = run_net(model, SEQUENCES[:, :steps])
    np.testing.assert_allclose(spoilt.output[0], start.output[0], rtol=1e-5, atol=1e-6)


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize("steps", [1, 3])
def test_used_slot_changes_the_output(framework, steps, build_net, run_net, part_filled_state):
    model = build_net(framework, **with_memory_of(steps=4))
    memory, used = part_filled_state(model)
    before = run_net(model, SEQUENCES[:, :steps], [memory, used])

    memory[2, :, 3, 0] += 1  # row 2 uses slots 2 and 3

    after = run_net(model, SEQUENCES[:, :steps], [memory, used])
    assert not np.allclose(after.output[2], before.output[2], atol=1e-3)


@both_frameworks
def test_nan_in_an_unused_slot_is_an_error(framework):
    policy = rlcatalog.build(
        spaces.Box(-1, 1, (3,)), spaces.Discrete(2), {"use_attention": True}, framework
    )
    state = policy.initial_state(3)
    memory, used = state.memory
    assert not used.any()

    memory[1, 0, 0] = np.nan

    with pytest.raises(NonFiniteError, match="row 1 of 3"):
        policy.act(SEQUENCES[:, 0].clip(-1, 1), state)


# --- windows --------------------------------------------------------------------------------------


@both_frameworks
@pytest.mark.parametrize(("acting", "training"), [(2, 5), (3, 0)])
def test_memory_keeps_the_longer_window(framework, acting, training, build_net):
    model = build_net(framework, memory_inference=acting, memory_training=training)

    memory, _ = model.get_initial_state()

    assert tuple(memory.shape) == (2, max(acting, training), 6)  # 2 units of width 6


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize(("acting", "training"), [(2, 5), (3, 0)])
@pytest.mark.parametrize("is_training", [False, True], ids=["acts", "trains"])
def test_acting_and_training_each_have_their_window(
    framework, acting, training, is_training, build_net, run_net
):
    model = build_net(framework, memory_inference=acting, memory_training=training)
    window = training if is_training else acting
    model_with_one_window = build_net(framework, **with_memory_of(steps=window))

    state = ()
    for start, stop in ((0, 3), (3, 4), (4, 6)):
        results = run_net(model, SEQUENCES[:, start:stop], state, training=is_training)
        state = results.state
        expected = run_net(model_with_one_window, SEQUENCES[:, :stop])
        assert_close(results.output, expected.output[:, start:])


@both_frameworks
def test_step_sees_its_window_only(framework, build_net, run_net):
    # One unit: with more, a step also sees what the steps before it saw.
    model = build_net(framework, num_transformer_units=1, **with_memory_of(steps=3))
    before = run_net(model, SEQUENCES).output
    changed = SEQUENCES.copy()
    changed[:, 2] += 1

    after = run_net(model, changed).output

    differs = np.abs(after - before).max(axis=(0, 2)) > 1e-6
    # Step 2 itself and the three steps after it.
    assert differs.tolist() == [False, False, True, True, True, True, False, False]


# --- without a state, without lengths -------------------------------------------------------------


@both_frameworks
def test_initial_state_is_the_start_of_an_episode(framework, build_net, run_net):
    model = build_net(framework)
    state = [np.repeat(np.asarray(part)[None], 3, axis=0) for part in model.get_initial_state()]

    results = run_net(model, SEQUENCES, state)

    memory, used = state
    assert memory.shape == (3, 2, 4, 6)  # 3 rows, 2 units, 4 slots, width 6
    assert used.shape == (3,)
    np.testing.assert_array_equal(results.output, run_net(model, SEQUENCES, state=()).output)


@both_frameworks
def test_rows_without_lengths_are_sequences_of_one(framework, build_net, run_net):
    model = build_net(framework)
    to_tensor = torch.tensor if framework == "torch" else tf.constant

    output, (memory, used) = model({"obs": to_tensor(SEQUENCES[:, 0])})

    outputs = output.detach().numpy() if framework == "torch" else output.numpy()
    np.testing.assert_allclose(outputs, run_net(model, SEQUENCES[:, :1]).output[:, 0], atol=1e-5)
    assert tuple(memory.shape) == (3, 2, 4, 6)  # 3 rows, 2 units, 4 slots, width 6
    np.testing.assert_array_equal(used, 1)


@both_frameworks
def test_number_of_used_slots_may_be_an_integer(framework, build_net, run_net):
    model = build_net(framework)
    memory, used = run_net(model, SEQUENCES[:, :3]).state
    to_tensor = torch.tensor if framework == "torch" else tf.constant

    state = [to_tensor(memory), to_tensor(used.astype(np.int32))]
    output, _ = model({"obs": to_tensor(SEQUENCES[:, 3])}, state, to_tensor(np.ones(3, np.int32)))

    outputs = output.detach().numpy() if framework == "torch" else output.numpy()
    expected = run_net(model, SEQUENCES[:, 3:4], [memory, used]).output[:, 0]
    np.testing.assert_allclose(outputs, expected, atol=1e-6)


# --- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3])
def test_torch_gradients_reach_inputs_and_not_the_memory(steps, build_net):
    model = build_net("torch")
    x = torch.tensor(SEQUENCES[:, :steps].reshape(-1, 3), requires_grad=True)
    memory = torch.randn(3, 2, 4, 6, requires_grad=True)
    used = torch.full((3,), 4.0)

    output, state = model({"obs": x}, [memory, used], torch.full((3,), steps))
    output.sum().backward()

    assert x.grad.abs().sum() > 0
    assert memory.grad is None
    assert not any(part.requires_grad for part in state)


@pytest.mark.parametrize("steps", [1, 3])
def test_tf_gradients_do_not_reach_the_memory(steps, build_net):
    model = build_net("tf")
    x = tf.constant(SEQUENCES[:, :steps].reshape(-1, 3))
    memory = tf.random.normal([3, 2, 4, 6])
    used = tf.fill([3], 4.0)

    with tf.GradientTape() as tape:
        tape.watch([x, memory])
        output, state = model({"obs": x}, [memory, used], tf.fill([3], steps))
        total = tf.reduce_sum(output) + tf.reduce_sum(state[0])

    assert tape.gradient(total, memory) is None


@pytest.mark.parametrize("steps", [1, 3])
def test_tf_gradients_do_not_leave_the_new_memory(steps, build_net):
    model = build_net("tf")
    x = tf.constant(SEQUENCES[:, :steps].reshape(-1, 3))

    with tf.GradientTape() as tape:
        tape.watch(x)
        _, state = model({"obs": x}, [], tf.fill([3], steps))
        total = tf.reduce_sum(state[0])

    assert tape.gradient(total, x) is None


# --- tf.function ----------------------------------------------------------------------------------


def test_one_trace_serves_all_sizes(build_net, run_net):
    model = build_net("tf")
    start = run_net(model, SEQUENCES[:, :3]).state

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 3], tf.float32),
            tf.TensorSpec([None, 2, 4, 6], tf.float32),
            tf.TensorSpec([None], tf.float32),
            tf.TensorSpec([None], tf.int32),
        ],
        autograph=False,
    )
    def run_traced(x, memory, used, lengths):
        output, state = model({"obs": x}, [memory, used], lengths)
        return output, model.value_function(), *state

    for steps, sequences in ((1, 3), (6, 2), (3, 1)):
        x = SEQUENCES[:sequences, :steps]
        state = select_rows(start, slice(sequences))
        lengths = np.full(sequences, steps, np.int32)
        output, value, *new_state = run_traced(x.reshape(-1, 3), *state, lengths)
        expected = run_net(model, x, state)
        assert_close(output, expected.output.reshape(-1, 4), tolerance=1e-5)
        assert_close(value, expected.value.reshape(-1), tolerance=1e-5)
        assert_states_close(new_state, expected.state, tolerance=1e-5)
    assert run_traced.experimental_get_tracing_count() == 1
