"""The column `"restarts"` of `Policy.evaluate`: rollouts of a device are scored as they are, and
not cut at the ends of episodes.

Crosses: policy, torch, lstm, attention.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensor_batches import to_tensors

import rlcatalog
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.spaces import map_tensors

pytestmark = pytest.mark.usefixtures("one_thread")

THREE_FEATURES = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (2,))})
LSTM = {"use_lstm": True, "lstm_cell_size": 4}
MEMORIES = {
    "lstm": LSTM,
    "gru": {"use_gru": True},
    "lstm-with-past": {**LSTM, "lstm_use_prev_action": True, "lstm_use_prev_reward": True},
    "lstm-separate-value": {**LSTM, "vf_share_layers": False},
    "attention": {
        "use_attention": True,
        "attention_dim": 8,
        "attention_memory_inference": 3,
        "attention_memory_training": 3,
    },
}
SEQUENCES = 4
STEPS = 6


def build_policy(**config):
    return rlcatalog.build(THREE_FEATURES, ACTIONS, {"fcnet_hiddens": [8], **config}, "torch")


def stack_steps(values):
    """Join the values `[S, ...]` of each step as the rows of sequences, `[S * T, ...]`."""
    first = values[0]
    if isinstance(first, dict):
        return {key: stack_steps([value[key] for value in values]) for key in first}
    return np.stack(values, axis=1).reshape(SEQUENCES * STEPS, *first.shape[1:])


def collect(policy, *, seed=0):
    """Act in four environments, in which episodes end at random.

    Returns:
        The batch for `evaluate`, and the log densities and values of the steps.
    """
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)

    def act(state):
        obs = rng.uniform(-1, 1, (SEQUENCES, 3)).astype(np.float32)
        return obs, policy.act(obs, state, prev_reward=rng.normal(size=SEQUENCES))

    _, step = act(None)  # the rollout begins within episodes
    state = step.state
    start = state.memory
    rows = []
    for t in range(STEPS):
        begins = rng.random(SEQUENCES) < 0.4
        if t == 0:
            begins[:2] = [
                False,
                True,
            ]  # one sequence continues an episode, one begins with a new one
        state = policy.restart(state, begins)
        obs, step = act(state)
        state = step.state
        rows.append(
            {
                "obs": obs,
                "raw_action": step.raw_action,
                "dist_inputs": step.dist_inputs,
                "views": dict(step.state.views),
                "restarts": begins,
                "logp": step.logp,
                "value": step.value,
            }
        )
    batch = stack_steps(rows)
    logp = batch.pop("logp")
    value = batch.pop("value")
    return {**batch, "state": start, "seq_lens": STEPS}, logp, value


def cut_at_restarts(policy, batch):
    """Return a batch whose sequences end where episodes end, with the lengths of the sequences."""
    restarts = batch["restarts"].reshape(SEQUENCES, STEPS)
    lengths = []
    states = [[] for _ in batch["state"]]
    for sequence in range(SEQUENCES):
        firsts = [0, *[t for t in range(1, STEPS) if restarts[sequence, t]]]
        lengths += np.diff([*firsts, STEPS]).tolist()
        for first in firsts:
            for part, initial, kept in zip(
                batch["state"], policy.memory.initial, states, strict=True
            ):
                kept.append(initial if restarts[sequence, first] else part[sequence])
    columns = {name: values for name, values in batch.items() if name != "restarts"}
    state = tuple(np.stack(parts) for parts in states)
    return {**columns, "state": state, "seq_lens": np.array(lengths)}


@pytest.mark.parametrize("config", MEMORIES.values(), ids=MEMORIES)
def test_restarts_score_what_acting_computed(config):
    policy = build_policy(**config)
    batch, logp, value = collect(policy)

    evaluation = policy.evaluate(batch)

    np.testing.assert_allclose(evaluation.logp.detach().numpy(), logp, atol=1e-5)
    np.testing.assert_allclose(evaluation.value.detach().numpy(), value, atol=1e-5)
    np.testing.assert_allclose(evaluation.kl.detach().numpy(), 0, atol=1e-5)


# Not attention: as in Transformer-XL, its memory is constant, and step by step all earlier steps
# are memory. In a sequence, gradients also reach the steps before.
@pytest.mark.parametrize("name", ["lstm", "gru", "lstm-with-past", "lstm-separate-value"])
def test_restarts_give_the_gradients_of_cut_sequences(name):
    policy = build_policy(**MEMORIES[name])
    batch, _, _ = collect(policy)
    gradients = []
    for one_batch in (batch, cut_at_restarts(policy, batch)):
        policy.model.zero_grad()
        evaluation = policy.evaluate(one_batch)
        (evaluation.logp.sum() + evaluation.value.square().sum()).backward()
        gradients.append([weight.grad.clone() for weight in policy.model.parameters()])

    for gradient, of_cut_sequences in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, of_cut_sequences, rtol=1e-4, atol=2e-5)


def test_restarts_are_the_same_for_tensors():
    policy = build_policy(**MEMORIES["lstm-with-past"])
    batch, _, _ = collect(policy)
    tensors = {**to_tensors(batch), "seq_lens": STEPS}

    evaluation = policy.evaluate(tensors)

    assert torch.equal(evaluation.logp, policy.evaluate(batch).logp)


def test_restarts_without_a_state_begin_new_episodes():
    policy = build_policy(**LSTM)
    batch, _, _ = collect(policy)
    batch["restarts"] = np.zeros(SEQUENCES * STEPS, bool)
    zeros = map_tensors(batch["state"], np.zeros_like)  # an LSTM begins with zeros

    evaluation = policy.evaluate({**batch, "state": None})

    expected = policy.evaluate({**batch, "state": zeros})
    assert torch.equal(evaluation.logp, expected.logp)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"seq_lens": np.full(SEQUENCES, STEPS)}, "expected the length of all sequences"),
        ({"seq_lens": 5}, "an integer that divides 24 rows; found 5"),
        ({"restarts": np.zeros(3, bool)}, "expected 24 booleans"),
        ({"restarts": np.zeros(24, np.int64)}, "expected 24 booleans"),
        ({"restarts": None, "seq_lens": 6}, "needs the column 'restarts'"),
    ],
    ids=["lengths", "other-length", "too-few", "integers", "no-restarts"],
)
def test_evaluate_refuses_wrong_restarts(columns, message):
    policy = build_policy(**LSTM)
    batch, _, _ = collect(policy)

    with pytest.raises(ModelContractError, match=message):
        policy.evaluate({**batch, **columns})


def test_tensorflow_policies_refuse_restarts():
    policy = rlcatalog.build(THREE_FEATURES, ACTIONS, {"fcnet_hiddens": [8], **LSTM}, "tf")
    batch = {
        "obs": np.zeros((4, 3), np.float32),
        "raw_action": np.zeros((4, 3), np.float32),
        "restarts": np.zeros(4, bool),
        "seq_lens": 2,
    }

    with pytest.raises(NotServedError, match="'tf' takes sequences without restarts"):
        policy.evaluate(batch)
