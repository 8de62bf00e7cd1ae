"""Sequences of an LSTM: padding, single steps, the state, and what training reads of acting."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import ModelContractError
from rlcatalog_lstm.torch import LSTMWrapper

pytestmark = pytest.mark.twins

PAST = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}
RANDOM = np.random.default_rng(1)
#: Three sequences of up to five steps, and the states of 5 cells before them.
SEQUENCES = RANDOM.normal(size=(3, 5, 3)).astype(np.float32)
STATE = [RANDOM.normal(size=(3, 5)).astype(np.float32) for _ in range(2)]
LENGTHS = np.array([2, 5, 1], np.int32)


# --- padding --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "number"),
    [
        pytest.param(5, 100.0, id="100-in-5-steps"),
        pytest.param(7, 0.0, id="0-in-7-steps"),
        pytest.param(9, -3.0, id="-3-in-9-steps"),
    ],
)
def test_results_do_not_depend_on_padding(
    framework, steps, number, build_model, run_model, select_real_steps, assert_close
):
    model = build_model(framework)
    expected = run_model(model, {"obs": SEQUENCES}, STATE, LENGTHS)
    padded = np.full((3, steps, 3), number, np.float32)
    for sequence, length in enumerate(LENGTHS):
        padded[sequence, :length] = SEQUENCES[sequence, :length]

    results = run_model(model, {"obs": padded}, STATE, LENGTHS)

    assert np.isfinite(results.outputs).all()
    assert_close(
        select_real_steps(results.outputs, LENGTHS), select_real_steps(expected.outputs, LENGTHS)
    )
    assert_close(
        select_real_steps(results.values, LENGTHS), select_real_steps(expected.values, LENGTHS)
    )
    assert_close(results.state, expected.state)


def test_padding_behind_all_sequences_changes_nothing(
    framework, build_model, run_model, assert_close
):
    model = build_model(framework)
    two_steps = SEQUENCES[:, :2]
    padded = np.concatenate([two_steps, np.full((3, 2, 3), 9, np.float32)], axis=1)

    results = run_model(model, {"obs": padded}, STATE, lengths=[2, 2, 2])

    expected = run_model(model, {"obs": two_steps}, STATE, lengths=[2, 2, 2])
    assert_close(results.outputs[:, :2], expected.outputs)
    assert_close(results.state, expected.state)


@pytest.mark.parametrize("lengths", [[2, 5, 0], [2, 6, 1]], ids=["length-0", "length-6-of-5"])
def test_impossible_length_is_an_error(build_model, run_model, lengths):
    with pytest.raises(
        ModelContractError, match="seq_lens: expected lengths from 1 to 5"
    ) as caught:
        run_model(build_model("torch"), {"obs": SEQUENCES}, STATE, lengths)

    assert "found [2, " in str(caught.value)


# --- steps, sequences and batches -----------------------------------------------------------------


@pytest.mark.parametrize("time_major", [False, True])
def test_single_steps_match_one_pass(framework, time_major, build_model, run_model, assert_close):
    model = build_model(framework, {"_time_major": time_major})
    expected = run_model(model, {"obs": SEQUENCES}, STATE, lengths=[5, 5, 5])

    state = STATE
    for t in range(5):
        step = run_model(model, {"obs": SEQUENCES[:, t : t + 1]}, state, lengths=[1, 1, 1])
        state = step.state
        assert_close(step.outputs[:, 0], expected.outputs[:, t])
        assert_close(step.values[:, 0], expected.values[:, t])

    assert_close(state, expected.state)


@pytest.mark.parametrize(("sequence", "length"), [(0, 2), (1, 5), (2, 1)])
def test_sequence_alone_matches_its_row_of_a_batch(
    framework, sequence, length, build_model, run_model, assert_close
):
    model = build_model(framework)
    batch = run_model(model, {"obs": SEQUENCES}, STATE, lengths=[2, 5, 1])

    obs = SEQUENCES[sequence : sequence + 1, :length]
    state = [part[sequence : sequence + 1] for part in STATE]
    alone = run_model(model, {"obs": obs}, state, [length])

    assert_close(alone.outputs[0], batch.outputs[sequence, :length])
    assert_close(alone.values[0], batch.values[sequence, :length])
    assert_close(alone.state[0][0], batch.state[0][sequence])
    assert_close(alone.state[1][0], batch.state[1][sequence])


def test_value_function_runs_no_second_pass(framework, build_model, run_model, monkeypatch):
    model = build_model(framework)
    trunk_class = type(model.trunk)
    forward = trunk_class.forward
    passes = []

    def count_pass(self, *arguments):
        passes.append(1)
        return forward(self, *arguments)

    monkeypatch.setattr(trunk_class, "forward", count_pass)
    run_model(model, {"obs": SEQUENCES}, STATE, LENGTHS)
    model.value_function()

    assert len(passes) == 1


# --- the initial state ----------------------------------------------------------------------------


def test_initial_state_is_zeros(framework, build_model, to_array):
    h, c = build_model(framework).get_initial_state()

    np.testing.assert_array_equal(to_array(h), np.zeros(5))
    np.testing.assert_array_equal(to_array(c), np.zeros(5))


def test_step_without_state_begins_with_zeros(framework, build_model, run_model, assert_close):
    model = build_model(framework)
    zeros = [np.zeros((3, 5)), np.zeros((3, 5))]

    results = run_model(model, {"obs": SEQUENCES[:, :1]}, state=None, lengths=None)

    expected = run_model(model, {"obs": SEQUENCES[:, :1]}, zeros, lengths=[1, 1, 1])
    assert_close(results.outputs, expected.outputs)


def test_sequence_without_state_begins_with_zeros(framework, build_model, run_model, assert_close):
    model = build_model(framework)
    zeros = [np.zeros((3, 5)), np.zeros((3, 5))]

    results = run_model(model, {"obs": SEQUENCES}, state=None, lengths=LENGTHS)

    expected = run_model(model, {"obs": SEQUENCES}, zeros, LENGTHS)
    assert_close(results.state, expected.state)


# --- acting and training --------------------------------------------------------------------------


@dataclass
class Recording:
    """What a policy read and returned in three environments; arrays [3, steps, ...]."""

    obs: np.ndarray
    h: np.ndarray
    c: np.ndarray
    raw_action: np.ndarray
    logp: np.ndarray
    value: np.ndarray
    views: dict[str, np.ndarray]


def act_for_six_steps(policy, restarts):
    """Act in three environments; `restarts` has the rows where an episode begins, by step."""
    random = np.random.default_rng(1)
    obs = random.normal(size=(3, 6, 3)).astype(np.float32)
    state = policy.initial_state(3)
    reward = None
    states = []
    steps = []
    for t in range(6):
        begins = np.isin(np.arange(3), restarts.get(t, []))
        state = policy.restart(state, begins)
        states.append(state)
        step = policy.act(obs[:, t], state, prev_reward=reward)
        steps.append(step)
        state = step.state
        reward = random.normal(size=3).astype(np.float32)

    views = {}
    for name in steps[0].state.seen:
        views[name] = np.stack([step.state.seen[name] for step in steps], axis=1)
    return Recording(
        obs=obs,
        h=np.stack([state.memory[0] for state in states], axis=1),
        c=np.stack([state.memory[1] for state in states], axis=1),
        raw_action=np.stack([step.raw_action for step in steps], axis=1),
        logp=np.stack([step.logp for step in steps], axis=1),
        value=np.stack([step.value for step in steps], axis=1),
        views=views,
    )


#: (environment, first step, end) of each sequence: it ends with its episode, or after four steps.
RESTARTS = {2: [0], 4: [0], 5: [1]}
CUTS = [
    (0, 0, 2), (0, 2, 4), (0, 4, 6),
    (1, 0, 4), (1, 4, 5), (1, 5, 6),
    (2, 0, 4), (2, 4, 6),
]  # fmt: skip


def cut_into_sequences(array):
    return np.concatenate([array[row, start:end] for row, start, end in CUTS])


def make_batch(recording):
    """Return the batch of sequences that training makes of a recording."""
    batch = {
        "obs": cut_into_sequences(recording.obs),
        "raw_action": cut_into_sequences(recording.raw_action),
        "seq_lens": np.array([end - start for _, start, end in CUTS], np.int32),
        "state": [
            np.stack([part[row, start] for row, start, _ in CUTS])
            for part in (recording.h, recording.c)
        ],
    }
    if recording.views:
        views = {name: cut_into_sequences(array) for name, array in recording.views.items()}
        batch["views"] = views
    return batch


@pytest.mark.parametrize("past", [{}, PAST], ids=["no-past", "past"])
def test_evaluate_returns_what_acting_returned(
    framework, past, build_policy, to_array, assert_close
):
    policy = build_policy(framework, past)
    recording = act_for_six_steps(policy, RESTARTS)

    evaluation = policy.evaluate(make_batch(recording))

    assert_close(to_array(evaluation.logp), cut_into_sequences(recording.logp))
    assert_close(to_array(evaluation.value), cut_into_sequences(recording.value))


@pytest.mark.parametrize("past", [{}, PAST], ids=["no-past", "past"])
def test_evaluate_depends_on_the_stored_states(framework, past, build_policy, to_array):
    policy = build_policy(framework, past)
    recording = act_for_six_steps(policy, RESTARTS)

    evaluation = policy.evaluate({**make_batch(recording), "state": None})

    expected = cut_into_sequences(recording.value)
    assert not np.allclose(to_array(evaluation.value), expected, atol=1e-3)


def test_first_step_has_zeros_as_past_action_and_reward(framework, build_policy):
    policy = build_policy(framework, PAST)

    seen = policy.act(SEQUENCES[:, 0]).state.seen

    assert not seen["past_actions"].any()  # not action 0, which is [1, 0, 0, 0]
    assert not seen["past_rewards"].any()


def test_second_step_has_the_first_action_one_hot(framework, build_policy):
    policy = build_policy(framework, PAST)
    first = policy.act(SEQUENCES[:, 0])

    second = policy.act(SEQUENCES[:, 0], first.state, prev_reward=np.ones(3))

    one_hot = np.eye(4)[first.raw_action[:, 0]]
    np.testing.assert_array_equal(second.state.seen["past_actions"], one_hot)


def test_restart_makes_a_row_act_as_in_its_first_step(framework, build_policy, assert_close):
    policy = build_policy(framework, PAST)
    obs = SEQUENCES[:, 0]
    first = policy.act(obs)
    second = policy.act(obs, first.state, prev_reward=np.ones(3))

    restarted = policy.restart(second.state, [1])
    third = policy.act(obs, restarted, prev_reward=np.ones(3))

    assert_close(third.dist_inputs[1], first.dist_inputs[1])
    assert not np.allclose(third.dist_inputs[0], first.dist_inputs[0], atol=1e-3)


def test_state_returns_to_the_model_without_a_copy(build_policy, monkeypatch):
    policy = build_policy("torch")
    forward = LSTMWrapper.forward
    states_in = []
    states_out = []

    def record_states(self, input_dict, state, seq_lens):
        outputs, new_state = forward(self, input_dict, state, seq_lens)
        states_in.append(state)
        states_out.append(new_state)
        return outputs, new_state

    monkeypatch.setattr(LSTMWrapper, "forward", record_states)
    first = policy.act(SEQUENCES[:, 0])
    policy.act(SEQUENCES[:, 1], first.state)

    for second_in, first_out in zip(states_in[1], states_out[0], strict=True):
        assert second_in.data_ptr() == first_out.data_ptr()


def test_loaded_policy_continues_from_a_state(framework, build_policy, assert_close, tmp_path):
    policy = build_policy(framework, PAST)
    first = policy.act(SEQUENCES[:, 0])
    policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path)

    step = loaded.act(SEQUENCES[:, 1], first.state, prev_reward=np.ones(3), explore=False)
    expected = policy.act(SEQUENCES[:, 1], first.state, prev_reward=np.ones(3), explore=False)
    assert_close(step.dist_inputs, expected.dist_inputs, tolerance=1e-6)
    assert_close(step.state.memory, expected.state.memory, tolerance=1e-6)


# --- weights --------------------------------------------------------------------------------------


def test_make_model_returns_a_model_with_its_own_weights(framework):
    config = {"fcnet_hiddens": [7], "use_lstm": True, "lstm_cell_size": 5, **PAST}
    policy = rlcatalog.build(spaces.Box(-1, 1, (3,)), spaces.Discrete(4), config, framework)
    second = policy.make_model()
    before = {name: array.copy() for name, array in second.get_weights().items()}

    policy.model.set_weights({name: np.ones_like(array) for name, array in before.items()})

    for name, array in second.get_weights().items():
        np.testing.assert_array_equal(array, before[name])
    assert policy.model.view_requirements is not second.view_requirements


def test_make_model_does_not_change_the_config(framework):
    config = {"fcnet_hiddens": [7], "use_lstm": True, "lstm_cell_size": 5, **PAST}
    before = copy.deepcopy(config)

    policy = rlcatalog.build(spaces.Box(-1, 1, (3,)), spaces.Discrete(4), config, framework)
    policy.make_model()

    assert config == before


def test_deepcopy_after_evaluate_has_its_own_weights(build_policy):
    policy = build_policy("torch")
    # Leaves tensors in the model that belong to a graph.
    policy.evaluate({"obs": SEQUENCES[:, 0], "raw_action": np.zeros((3, 1), np.int64)})

    copied = copy.deepcopy(policy.model)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.zero_()

    assert list(copied.get_weights()) == list(policy.model.get_weights())
    for array in copied.get_weights().values():
        assert array.any()


def test_state_dict_has_weights_of_layers_and_cell(build_model):
    names = build_model("torch").state_dict()

    assert sorted(names) == [
        "cell.bias",
        "cell.weight_hh",
        "cell.weight_ih",
        "outputs.logits.bias",
        "outputs.logits.weight",
        "outputs.value.bias",
        "outputs.value.weight",
        "trunk.hidden.layers.0.bias",
        "trunk.hidden.layers.0.weight",
    ]


@pytest.fixture
def weight_norm_model(build_model):
    """A model whose recurrent weights have weight norm."""
    model = build_model("torch")
    torch.nn.utils.parametrizations.weight_norm(model.cell, "weight_hh")
    return model


def test_weight_norm_keeps_the_outputs(weight_norm_model, build_model, run_model, assert_close):
    results = run_model(weight_norm_model, {"obs": SEQUENCES}, STATE, LENGTHS)

    expected = run_model(build_model("torch"), {"obs": SEQUENCES}, STATE, LENGTHS)
    assert_close(results.outputs, expected.outputs)


def test_weight_norm_changes_outputs_with_the_norm(weight_norm_model, run_model):
    before = run_model(weight_norm_model, {"obs": SEQUENCES}, STATE, LENGTHS)

    with torch.no_grad():
        weight_norm_model.cell.parametrizations.weight_hh.original0.mul_(2)

    after = run_model(weight_norm_model, {"obs": SEQUENCES}, STATE, LENGTHS)
    assert not np.allclose(after.outputs, before.outputs, atol=1e-3)


def test_weight_norm_is_the_same_in_steps_and_sequences(weight_norm_model, run_model, assert_close):
    with torch.no_grad():
        weight_norm_model.cell.parametrizations.weight_hh.original0.mul_(2)

    step = run_model(weight_norm_model, {"obs": SEQUENCES[:, :1]}, STATE, lengths=[1, 1, 1])
    sequence = run_model(weight_norm_model, {"obs": SEQUENCES}, STATE, lengths=[1, 1, 1])

    assert_close(step.state, sequence.state)
