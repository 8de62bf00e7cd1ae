"""LSTM policies in sequences: the state, what is seen of the past, weights and copies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from builders import to_array
from model_runs import add_to_weights, assert_close, run_sequences

from rlcatalog_lstm.torch import LSTMWrapper

pytestmark = pytest.mark.twins

#: Observations of three environments.
OBSERVATIONS = np.random.default_rng(1).normal(size=(3, 3)).astype(np.float32)
PAST = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}


# --- the state ------------------------------------------------------------------------------------


def test_initial_state_is_zeros(framework, build_model):
    h, c = build_model(framework).get_initial_state()

    np.testing.assert_array_equal(to_array(h), [0, 0, 0, 0, 0])
    np.testing.assert_array_equal(to_array(c), [0, 0, 0, 0, 0])


def test_evaluate_begins_with_the_stored_state(framework, build_policy):
    policy = build_policy(framework)
    first = policy.act(OBSERVATIONS)
    second = policy.act(OBSERVATIONS, first.state)
    assert not np.allclose(second.value, first.value, atol=1e-3)  # the state matters

    batch = {
        "obs": OBSERVATIONS,
        "raw_action": second.raw_action,
        "state": first.state.memory,
        "seq_lens": np.array([1, 1, 1]),
    }
    evaluation = policy.evaluate(batch)

    assert_close(to_array(evaluation.logp), second.logp)
    assert_close(to_array(evaluation.value), second.value)


def test_restart_makes_a_row_act_as_in_its_first_step(framework, build_policy):
    policy = build_policy(framework, PAST)
    first = policy.act(OBSERVATIONS)
    second = policy.act(OBSERVATIONS, first.state, prev_reward=[1.0, 1.0, 1.0])

    restarted = policy.restart(second.state, [1])
    third = policy.act(OBSERVATIONS, restarted, prev_reward=[1.0, 1.0, 1.0])

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
    first = policy.act(OBSERVATIONS)
    policy.act(OBSERVATIONS, first.state)

    # The second step reads the memory that the first one wrote.
    h, c = states_in[1]
    new_h, new_c = states_out[0]
    assert h.data_ptr() == new_h.data_ptr()
    assert c.data_ptr() == new_c.data_ptr()


# --- past actions and rewards ---------------------------------------------------------------------


def test_first_step_has_zeros_as_past_action_and_reward(framework, build_policy):
    policy = build_policy(framework, PAST)

    seen = policy.act(OBSERVATIONS).state.views

    assert not seen["past_actions"].any()  # not action 0, which is [1, 0, 0, 0]
    assert not seen["past_rewards"].any()


def test_second_step_has_the_first_action_one_hot(framework, build_policy):
    policy = build_policy(framework, PAST)
    first = policy.act(OBSERVATIONS)

    second = policy.act(OBSERVATIONS, first.state, prev_reward=[1.0, 2.0, 3.0])

    one_hot = np.eye(4)[first.action]
    np.testing.assert_array_equal(second.state.views["past_actions"], one_hot)
    assert second.state.views["past_rewards"].tolist() == [1, 2, 3]


# --- the value ------------------------------------------------------------------------------------


def test_value_function_runs_no_second_pass(framework, build_model):
    model = build_model(framework)
    values = run_sequences(model, OBSERVATIONS[:, None]).values

    # A second pass through the trunk and the LSTM would give other values.
    add_to_weights(model, 1, prefixes=["trunk", "cell"])

    assert_close(to_array(model.value_function()), values[:, 0])
    assert not np.allclose(run_sequences(model, OBSERVATIONS[:, None]).values, values)


# --- weights --------------------------------------------------------------------------------------


def test_make_model_returns_a_model_with_its_own_weights(framework, build_policy):
    policy = build_policy(framework, PAST)
    second = policy.make_model()
    before = second.get_weights()

    add_to_weights(policy.model, 1)

    for name, array in second.get_weights().items():
        np.testing.assert_array_equal(array, before[name])
    assert policy.model.view_requirements is not second.view_requirements


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


#: Three sequences of two steps.
SEQUENCES = np.stack([OBSERVATIONS, -OBSERVATIONS], axis=1)


@pytest.fixture
def weight_norm_model(build_model):
    """A model whose recurrent weights have weight norm."""
    model = build_model("torch")
    torch.nn.utils.parametrizations.weight_norm(model.cell, "weight_hh")
    return model


def test_weight_norm_keeps_the_outputs(weight_norm_model, build_model):
    results = run_sequences(weight_norm_model, SEQUENCES)

    assert_close(results.outputs, run_sequences(build_model("torch"), SEQUENCES).outputs)


def test_weight_norm_changes_outputs_with_the_norm(weight_norm_model):
    before = run_sequences(weight_norm_model, SEQUENCES).outputs

    with torch.no_grad():
        weight_norm_model.cell.parametrizations.weight_hh.original0.mul_(2)  # the norms

    after = run_sequences(weight_norm_model, SEQUENCES).outputs
    assert_close(after[:, 0], before[:, 0])  # the first step has no state to multiply
    assert not np.allclose(after[:, 1], before[:, 1], atol=1e-3)


def test_weight_norm_is_the_same_in_steps_and_sequences(weight_norm_model):
    with torch.no_grad():
        weight_norm_model.cell.parametrizations.weight_hh.original0.mul_(2)  # the norms

    first = run_sequences(weight_norm_model, SEQUENCES[:, :1])
    second = run_sequences(weight_norm_model, SEQUENCES[:, 1:], first.state)

    sequence = run_sequences(weight_norm_model, SEQUENCES)
    assert_close(second.state, sequence.state)
