"""Sequences: padding, stepping against one pass, batches against their rows, and what a policy
carries.
"""

from __future__ import annotations

import copy

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
S, T, C = 3, 5, 5
X = RANDOM.normal(size=(S, T, 3)).astype(np.float32)
STATE = [RANDOM.normal(size=(S, C)).astype(np.float32) for _ in range(2)]
LENGTHS = np.array([2, 5, 1], np.int32)
REAL = np.arange(T) < LENGTHS[:, None]


def test_the_padding_is_of_no_account(framework, lstm):
    model = lstm.model(framework)
    outputs, values, state = lstm.run(model, {"obs": X.reshape(-1, 3)}, STATE, LENGTHS)
    for length, content in ((5, 100.0), (7, 0.0), (9, -3.0)):
        x = np.full((S, length, 3), content, np.float32)
        x[:, :T][REAL] = X[REAL]
        found = lstm.run(model, {"obs": x.reshape(-1, 3)}, STATE, LENGTHS)
        assert np.isfinite(found[0]).all()
        lstm.close(found[0].reshape(S, length, 4)[:, :T][REAL], outputs.reshape(S, T, 4)[REAL])
        lstm.close(found[1].reshape(S, length)[:, :T][REAL], values.reshape(S, T)[REAL])
        for one, other in zip(found[2], state, strict=True):
            lstm.close(one, other)
    # Where all sequences end before the padding does, nothing is left of it either.
    short = np.ascontiguousarray(X[:, :2])
    padded = np.concatenate([short, np.full((S, 2, 3), 9, np.float32)], axis=1)
    one = lstm.run(model, {"obs": short.reshape(-1, 3)}, STATE, [2, 2, 2])
    other = lstm.run(model, {"obs": padded.reshape(-1, 3)}, STATE, [2, 2, 2])
    lstm.close(other[0].reshape(S, 4, 4)[:, :2], one[0].reshape(S, 2, 4))
    lstm.close(other[2], one[2])


@pytest.mark.parametrize("time_major", [False, True])
def test_stepping_is_one_pass(framework, lstm, time_major):
    model = lstm.model(framework, {"_time_major": time_major})
    outputs, values, ends = lstm.run(model, {"obs": X.reshape(-1, 3)}, STATE, np.full(S, T))
    state = STATE
    for t in range(T):
        one, value, state = lstm.run(model, {"obs": X[:, t]}, state, np.ones(S))
        lstm.close(one, outputs.reshape(S, T, 4)[:, t])
        lstm.close(value, values.reshape(S, T)[:, t])
    lstm.close(state, ends)


def test_a_batch_of_one_is_its_row(framework, lstm):
    model = lstm.model(framework)
    outputs, values, ends = lstm.run(model, {"obs": X.reshape(-1, 3)}, STATE, LENGTHS)
    for s in range(S):
        n = LENGTHS[s]
        one, value, end = lstm.run(
            model, {"obs": X[s, :n]}, [part[s : s + 1] for part in STATE], [n]
        )
        lstm.close(one, outputs.reshape(S, T, 4)[s, :n])
        lstm.close(value, values.reshape(S, T)[s, :n])
        lstm.close([part[0] for part in end], [part[s] for part in ends])


def test_without_a_state_it_begins_with_zeros(framework, lstm):
    model = lstm.model(framework)
    start = [lstm.array(part) for part in model.get_initial_state()]
    assert [(part.shape, part.sum()) for part in start] == [((C,), 0), ((C,), 0)]
    zeros = [np.zeros((S, C))] * 2
    lstm.close(
        lstm.run(model, {"obs": X[:, 0]}, None, None)[0],
        lstm.run(model, {"obs": X[:, 0]}, zeros, [1] * S)[0],
    )
    rows = {"obs": X.reshape(-1, 3)}
    lstm.close(lstm.run(model, rows, None, LENGTHS)[2], lstm.run(model, rows, zeros, LENGTHS)[2])


def test_a_length_that_cannot_be_is_refused(lstm):
    model = lstm.model("torch")
    for lengths in ([2, 5, 0], [2, 6, 1]):
        with pytest.raises(
            ModelContractError, match=r"seq_lens: expected lengths from 1 to 5, .*found \[2, "
        ):
            lstm.run(model, {"obs": X.reshape(-1, 3)}, STATE, lengths)


def test_value_function_runs_nothing_again(framework, lstm, monkeypatch):
    model, ran = lstm.model(framework), []
    forward = type(model.trunk).forward
    monkeypatch.setattr(
        type(model.trunk), "forward", lambda self, *args: ran.append(1) or forward(self, *args)
    )
    lstm.run(model, {"obs": X.reshape(-1, 3)}, STATE, LENGTHS)
    model.value_function()
    assert ran == [1]


def test_two_models_of_one_config_share_nothing(framework, lstm):
    config = {"fcnet_hiddens": [7], "use_lstm": True, "lstm_cell_size": 5, **PAST}
    before = copy.deepcopy(config)
    policy = rlcatalog.build(spaces.Box(-1, 1, (3,)), spaces.Discrete(4), config, framework)
    first, second = policy.model, policy.make_model()
    kept = {name: w.copy() for name, w in second.get_weights().items()}
    first.set_weights({name: np.ones_like(w) for name, w in kept.items()})
    for name, w in second.get_weights().items():
        np.testing.assert_array_equal(w, kept[name])
    assert first.view_requirements is not second.view_requirements
    assert config == before


def episodes(policy, lstm, steps, rows, restarts):
    """Act for some steps with new episodes where `restarts[t]` says; return what training stores,
    `[rows, steps]`.
    """
    obs = RANDOM.normal(size=(rows, steps, 3)).astype(np.float32)
    state, stored = policy.initial_state(rows), []
    reward = None
    for t in range(steps):
        state = policy.restart(state, restarts[t])
        before = state
        step = policy.act(obs[:, t], state, prev_reward=reward)
        stored.append((before, step))
        state, reward = step.state, RANDOM.normal(size=rows).astype(np.float32)
    return obs, stored


@pytest.mark.parametrize("past", [{}, PAST], ids=["plain", "past"])
def test_training_scores_what_acting_did(framework, lstm, past):
    policy = lstm.policy(framework, past)
    rows, steps = 3, 6
    restarts = np.zeros((steps, rows), bool)
    restarts[2, 0] = restarts[4, 0] = restarts[5, 1] = True
    obs, stored = episodes(policy, lstm, steps, rows, restarts)
    # Sequences end where an episode does, or after four steps: the second part of a long one begins
    # with its state.
    cuts = {0: [0, 2, 4], 1: [0, 4, 5], 2: [0, 4]}
    sequences = [
        (r, a, b)
        for r, starts in cuts.items()
        for a, b in zip(starts, [*starts[1:], steps], strict=True)
    ]

    def column(pick):
        return np.concatenate(
            [np.stack([pick(stored[t], r) for t in range(a, b)]) for r, a, b in sequences]
        )

    batch = {
        "obs": np.concatenate([obs[r, a:b] for r, a, b in sequences]),
        "raw_action": column(lambda pair, r: pair[1].raw_action[r]),
        "seq_lens": np.array([b - a for _, a, b in sequences], np.int32),
        "state": [np.stack([stored[a][0].memory[i][r] for r, a, _ in sequences]) for i in range(2)],
    }
    if past:
        batch["views"] = {
            name: column(lambda pair, r, name=name: pair[1].state.seen[name][r])
            for name in ("past_actions", "past_rewards")
        }
    assert len(set(batch["seq_lens"])) > 1
    found = policy.evaluate(batch)
    lstm.close(lstm.array(found.logp), column(lambda pair, r: pair[1].logp[r]))
    lstm.close(lstm.array(found.value), column(lambda pair, r: pair[1].value[r]))
    # The control: the stored states matter.
    without = policy.evaluate({**batch, "state": None})
    assert not np.allclose(lstm.array(without.value), lstm.array(found.value), atol=1e-3)


def test_a_new_episode_begins_with_zeros(framework, lstm):
    policy = lstm.policy(framework, PAST)
    obs = X[:, 0]
    first = policy.act(obs)
    assert not first.state.seen["past_actions"].any()  # not "action 0"
    assert not first.state.seen["past_rewards"].any()
    second = policy.act(obs, first.state, prev_reward=np.ones(S))
    assert (second.state.seen["past_actions"].argmax(axis=1) == first.raw_action[:, 0]).all()
    np.testing.assert_array_equal(second.state.seen["past_actions"].sum(axis=1), 1)
    again = policy.act(obs, policy.restart(second.state, [1]), prev_reward=np.ones(S))
    lstm.close(again.dist_inputs[1], first.dist_inputs[1])
    assert not np.allclose(again.dist_inputs[0], first.dist_inputs[0], atol=1e-3)


def test_the_memory_comes_back_without_a_copy(lstm, monkeypatch):
    policy, given, forward = lstm.policy("torch"), [], LSTMWrapper.forward

    def noted(self, input_dict, state, seq_lens):
        found = forward(self, input_dict, state, seq_lens)
        given.append((state, found[1]))
        return found

    monkeypatch.setattr(LSTMWrapper, "forward", noted)
    policy.act(X[:, 1], policy.act(X[:, 0]).state)
    assert all(
        one.data_ptr() == other.data_ptr()
        for one, other in zip(given[1][0], given[0][1], strict=True)
    )


def test_saved_and_loaded_it_goes_on_alike(framework, lstm, tmp_path):
    policy = lstm.policy(framework, PAST)
    first = policy.act(X[:, 0])
    policy.save(tmp_path)
    loaded = rlcatalog.load(tmp_path)
    one, other = (
        p.act(X[:, 1], first.state, prev_reward=np.ones(S), explore=False) for p in (policy, loaded)
    )
    lstm.close(one.dist_inputs, other.dist_inputs, 1e-6)
    lstm.close(one.state.memory, other.state.memory, 1e-6)


def test_a_copy_is_independent(lstm):
    policy = lstm.policy("torch")
    # Leaves tensors of a graph behind.
    policy.evaluate({"obs": X[:, 0], "raw_action": np.zeros((S, 1), np.int64)})
    twin = copy.deepcopy(policy.model)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.zero_()
    assert all(np.abs(w).sum() > 0 for w in twin.get_weights().values())
    assert list(twin.get_weights()) == list(policy.model.get_weights())


def test_a_state_dict_holds_the_canonical_names_alone(lstm):
    layers = ("trunk.hidden.layers.0", "outputs.logits", "outputs.value")
    names = [f"{layer}.{part}" for layer in layers for part in ("weight", "bias")]
    names += [f"cell.{name}" for name in ("weight_ih", "weight_hh", "bias")]
    assert sorted(lstm.model("torch").state_dict()) == sorted(names)


def test_weight_norm_on_the_cell_is_felt(lstm):
    model = lstm.model("torch")
    before = lstm.run(model, {"obs": X.reshape(-1, 3)}, STATE, LENGTHS)[0]
    torch.nn.utils.parametrizations.weight_norm(model.cell, "weight_hh")
    lstm.close(lstm.run(model, {"obs": X.reshape(-1, 3)}, STATE, LENGTHS)[0], before)
    with torch.no_grad():
        model.cell.parametrizations.weight_hh.original0.mul_(2)
    assert not np.allclose(
        lstm.run(model, {"obs": X.reshape(-1, 3)}, STATE, LENGTHS)[0], before, atol=1e-3
    )
    one = lstm.run(model, {"obs": X[:, 0]}, STATE, np.ones(S))[2]
    lstm.close(one, lstm.run(model, {"obs": X.reshape(-1, 3)}, STATE, np.ones(S))[2])
