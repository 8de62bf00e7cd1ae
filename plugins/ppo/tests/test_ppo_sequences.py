"""PPO with models that have a memory: sequences, their initial memory, and training on them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from numbered_env import NumberedEpisodes, read_numbers

import rlcatalog
from rlcatalog.errors import ModelContractError
from rlcatalog.spaces import map_tensors
from rlcatalog_ppo import PPO
from rlcatalog_ppo.advantages import training_batch
from rlcatalog_ppo.minibatches import minibatches

pytestmark = pytest.mark.twins

#: A rollout has 3 * 17 = 51 steps.
SMALL = {"num_envs": 3, "rollout_length": 17, "minibatch_size": 16, "num_epochs": 2, "seed": 0}
LSTM = {"fcnet_hiddens": [8], "max_seq_len": 4, "use_lstm": True, "lstm_cell_size": 5}
ATTENTION = {
    "fcnet_hiddens": [8],
    "max_seq_len": 4,
    "use_attention": True,
    "attention_dim": 16,
    "attention_head_dim": 8,
    "attention_memory_inference": 6,
    "attention_memory_training": 6,
}
#: "past" models also read the last actions and rewards; "apart" ones have a separate value network.
MEMORIES = {
    "lstm": LSTM,
    "lstm_past": {**LSTM, "lstm_use_prev_action": True, "lstm_use_prev_reward": True},
    "lstm_apart": {**LSTM, "lstm_use_prev_action": True, "vf_share_layers": False},
    "attention": ATTENTION,
    "attention_past": {
        **ATTENTION,
        "attention_use_n_prev_actions": 2,
        "attention_use_n_prev_rewards": 3,
    },
    "attention_apart": {**ATTENTION, "vf_share_layers": False},
}


def to_array(tensor):
    return np.asarray(tensor.detach() if isinstance(tensor, torch.Tensor) else tensor)


# --- sequences ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "memory"),
    [
        *(("torch", memory) for memory in MEMORIES),
        *(("tf", memory) for memory in ("lstm", "lstm_past", "lstm_apart", "attention_past")),
        pytest.param("tf", "attention", marks=pytest.mark.slow),
        pytest.param("tf", "attention_apart", marks=pytest.mark.slow),
    ],
)
def test_minibatches_of_sequences_score_actions_as_acting_did(framework, memory):
    algo = PPO(NumberedEpisodes, {**SMALL, "framework": framework, "model": MEMORIES[memory]})
    algo._collector.collect(17)

    # The second rollout begins in the middle of episodes. It has 17 steps of 3 environments.
    batch = training_batch(algo._collector.collect(17), gamma=0.9, lambda_=0.9)
    parts = list(minibatches(batch, 16, np.random.default_rng(0)))

    assert batch["seq_lens"].sum() == 3 * 17
    assert batch["seq_lens"].max() <= 4  # max_seq_len of all models
    assert sum(len(part["logp"]) for part in parts) == 3 * 17
    # No update has changed the weights, so the probabilities are those of acting.
    for part in parts:
        evaluation = algo.policy.evaluate(part)
        np.testing.assert_allclose(to_array(evaluation.logp), part["logp"], rtol=1e-4, atol=1e-5)
        assert evaluation.value.shape == part["logp"].shape
        assert evaluation.entropy.shape == part["logp"].shape


def list_sequences(batch):
    """Return the rows of each sequence, and the hidden state of an LSTM before it."""
    ends = np.cumsum(batch["seq_lens"])
    hidden_states = batch["state"][0]
    slices = [slice(end - n, end) for end, n in zip(ends, batch["seq_lens"], strict=True)]
    return list(zip(slices, hidden_states, strict=True))


def test_sequences_do_not_cross_episodes():
    algo = PPO(NumberedEpisodes, {**SMALL, "model": LSTM})

    for _ in range(2):  # the second rollout begins in the middle of episodes
        batch = training_batch(algo._collector.collect(17), gamma=0.9, lambda_=0.9)
        for rows, _ in list_sequences(batch):
            episode, step = read_numbers(batch["obs"][rows])
            assert (episode == episode[0]).all()
            assert (np.diff(step) == 1).all()


def test_memory_is_empty_only_at_the_beginning_of_episodes():
    algo = PPO(NumberedEpisodes, {**SMALL, "model": LSTM})

    for _ in range(2):  # the second rollout begins in the middle of episodes
        batch = training_batch(algo._collector.collect(17), gamma=0.9, lambda_=0.9)
        for rows, hidden_state in list_sequences(batch):
            _, step = read_numbers(batch["obs"][rows])
            has_memory = np.any(hidden_state != 0)
            assert has_memory == (step[0] > 0)


def sum_outputs(policy, batch):
    """Return a loss that depends on all that a policy computes from a batch."""
    evaluation = policy.evaluate(batch)
    if policy.framework == "torch":
        squares = evaluation.value.square().sum()
        return evaluation.logp.sum() + squares + evaluation.entropy.sum()
    squares = tf.reduce_sum(evaluation.value**2)
    return tf.reduce_sum(evaluation.logp) + squares + tf.reduce_sum(evaluation.entropy)


def compute_gradients(policy, batches):
    """Return the gradient of the batches' sum of `sum_outputs`, by name of the weight."""
    model = policy.model
    if policy.framework == "torch":
        model.zero_grad(set_to_none=True)
        sum(sum_outputs(policy, batch) for batch in batches).backward()
        return {name: weight.grad.numpy().copy() for name, weight in model.named_parameters()}
    variables = model.trainable_variables(as_dict=True)
    with tf.GradientTape() as tape:
        loss = sum(sum_outputs(policy, batch) for batch in batches)
    gradients = tape.gradient(loss, list(variables.values()))
    return {
        name: tf.convert_to_tensor(gradient).numpy()
        for name, gradient in zip(variables, gradients, strict=True)
    }


def split_sequences(batch):
    """Return a batch for each sequence."""
    columns = {name: part for name, part in batch.items() if name not in ("seq_lens", "state")}
    batches = []
    end = 0
    for number, length in enumerate(batch["seq_lens"]):
        rows = slice(end, end + length)
        end += length
        one_sequence = map_tensors(columns, lambda array, rows=rows: array[rows])
        one_sequence["seq_lens"] = np.array([length])
        one_sequence["state"] = [part[[number]] for part in batch["state"]]
        batches.append(one_sequence)
    return batches


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_padding_of_short_sequences_adds_nothing_to_gradients(framework):
    config = {**SMALL, "num_envs": 1, "framework": framework, "model": MEMORIES["lstm_past"]}
    algo = PPO(NumberedEpisodes, config)
    batch = training_batch(algo._collector.collect(17), gamma=0.9, lambda_=0.9)
    # Sequences of different lengths are padded to the longest.
    assert len(set(batch["seq_lens"])) > 2
    batch_of_each_sequence = split_sequences(batch)

    padded = compute_gradients(algo.policy, [batch])
    unpadded = compute_gradients(algo.policy, batch_of_each_sequence)

    for name, gradient in padded.items():
        np.testing.assert_allclose(gradient, unpadded[name], rtol=1e-3, atol=1e-4, err_msg=name)


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "memory"),
    [
        *(("torch", memory) for memory in MEMORIES),
        # TensorFlow traces each model anew, which is slow. Attention also takes a step in
        # test_ppo_one_algorithm.py.
        ("tf", "lstm_apart"),
        pytest.param("tf", "attention_past", marks=pytest.mark.slow),
    ],
)
def test_training_changes_every_weight(framework, memory):
    algo = PPO(NumberedEpisodes, {**SMALL, "framework": framework, "model": MEMORIES[memory]})
    before = algo.policy.model.get_weights()

    algo.train()

    for name, weight in algo.policy.model.get_weights().items():
        assert np.any(weight != before[name]), name


# --- batches that do not fit ----------------------------------------------------------------------


@pytest.fixture
def lstm_policy():
    return rlcatalog.build(env=NumberedEpisodes(), config=LSTM)


def test_evaluate_needs_a_memory_for_each_sequence(lstm_policy):
    batch = {
        "obs": np.zeros((4, 2), np.float32),
        "raw_action": np.zeros((4, 1), np.int64),
        "seq_lens": [2, 2],
        # An LSTM's memory has two parts. Each should have two rows, one for each sequence.
        "state": [np.zeros((4, 5)), np.zeros((4, 5))],
    }
    message = r"batch\['state'\]: expected 2 parts with a row for each of 2 seq"
    with pytest.raises(ModelContractError, match=message):
        lstm_policy.evaluate(batch)


def test_evaluate_needs_lengths_that_add_up(lstm_policy):
    batch = {
        "obs": np.zeros((4, 2), np.float32),
        "raw_action": np.zeros((4, 1), np.int64),
        "seq_lens": [2, 3],  # instead of four rows
    }
    with pytest.raises(ModelContractError, match=r"add up to 4 rows, found \[2, 3\]"):
        lstm_policy.evaluate(batch)
