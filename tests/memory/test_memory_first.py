"""`memory_first=True`: the memory reads the trunk's features, and the trunk's dense layers follow
it; with every memory, for a separate value, and inside a head.

Crosses: fcnet, visionnet, lstm, attention, plain, policy.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from builders import assert_ppo_trains_every_weight, to_array
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from torch import nn

import rlcatalog
from rlcatalog.errors import UnreadKeysWarning

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
IMAGE = Box(0, 255, (12, 12, 3), np.uint8)
TWO_ACTIONS = Discrete(2)
LSTM = {
    "fcnet_hiddens": [5, 4],
    "use_lstm": True,
    "lstm_cell_size": 6,
    "memory_first": True,
}
MEMORIES = {
    "lstm": LSTM,
    "gru": {"fcnet_hiddens": [5], "use_gru": True, "gru_cell_size": 6, "memory_first": True},
    "attention": {
        "fcnet_hiddens": [5],
        "use_attention": True,
        "attention_dim": 8,
        "attention_head_dim": 4,
        "attention_memory_inference": 3,
        "attention_memory_training": 3,
        "memory_first": True,
    },
}
#: An LSTM after convolutions that reduce an image to four numbers.
IMAGE_LSTM = {
    "conv_filters": [[4, 12, 1]],
    "post_fcnet_hiddens": [5],
    "use_lstm": True,
    "lstm_cell_size": 6,
    "memory_first": True,
}
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
#: Two sequences of four steps.
OBSERVATIONS = np.random.default_rng(0).uniform(-1, 1, (8, 3)).astype(np.float32)


def build(config=LSTM, framework="torch", obs_space=THREE_FEATURES, action_space=TWO_ACTIONS):
    return rlcatalog.build(obs_space, action_space, config, framework)


def evaluate(policy, observations=OBSERVATIONS):
    """Return the log densities and values of two sequences of four steps, as arrays."""
    batch = {
        "obs": observations,
        "raw_action": np.zeros(8, np.int64),
        "seq_lens": np.array([4, 4]),
        "state": policy.initial_state(2),
    }
    evaluation = policy.evaluate(batch)
    return to_array(evaluation.logp), to_array(evaluation.value)


# --- results --------------------------------------------------------------------------------------


def run_by_hand(weights):
    """Return log densities of action 0 and values of the sequences, with PyTorch's own layers."""
    tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
    lstm = nn.LSTM(3, 6, batch_first=True)
    lstm.load_state_dict(
        {
            "weight_ih_l0": tensors["trunk.cell.weight_ih"],
            "weight_hh_l0": tensors["trunk.cell.weight_hh"],
            "bias_ih_l0": tensors["trunk.cell.bias"],
            "bias_hh_l0": torch.zeros(24),
        }
    )
    x, _ = lstm(torch.from_numpy(OBSERVATIONS).reshape(2, 4, 3))
    x = x.reshape(8, 6)
    for layer in ("hidden.layers.0", "hidden.layers.1"):
        x = torch.tanh(
            nn.functional.linear(x, tensors[f"{layer}.weight"], tensors[f"{layer}.bias"])
        )
    outputs = []
    for layer in ("outputs.logits", "outputs.value"):
        outputs.append(
            nn.functional.linear(x, tensors[f"{layer}.weight"], tensors[f"{layer}.bias"])
        )
    logits, values = outputs
    return logits.log_softmax(dim=1)[:, 0].detach().numpy(), values[:, 0].detach().numpy()


@frameworks
def test_lstm_reads_the_observation_and_dense_layers_follow(framework):
    policy = build({**LSTM, "init": "fan_in_uniform"}, framework)

    logp, values = evaluate(policy)

    expected_logp, expected_values = run_by_hand(policy.model.get_weights())
    np.testing.assert_allclose(logp, expected_logp, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(values, expected_values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(
    "value",
    [
        pytest.param({}, id="shared"),
        pytest.param({"vf_share_layers": False}, id="separate"),
        pytest.param({"vf_share_layers": False, "vf_memory": "none"}, id="value without memory"),
        pytest.param({"critic": {"fcnet_hiddens": [7]}}, id="critic"),
    ],
)
def test_both_frameworks_agree(memory, value):
    config = {**MEMORIES[memory], "init": "fan_in_uniform", **value}
    of_torch = build(config, "torch")
    of_tf = build(config, "tf")
    of_tf.model.set_weights(of_torch.model.get_weights())

    for result, expected in zip(evaluate(of_tf), evaluate(of_torch), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@frameworks
def test_acting_step_by_step_agrees_with_sequences(framework):
    policy = build({**LSTM, "init": "fan_in_uniform"}, framework)
    _, expected = evaluate(policy)

    state = None
    values = []
    for step in range(4):
        result = policy.act(OBSERVATIONS.reshape(2, 4, 3)[:, step], state)
        state = result.state
        values.append(result.value)

    np.testing.assert_allclose(np.stack(values, axis=1).ravel(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("memory", MEMORIES)
def test_weights_all_learn(memory):
    config = {**MEMORIES[memory], "vf_share_layers": False}

    assert_ppo_trains_every_weight("CartPole-v1", model=config)


# --- the trunks and memories around it ------------------------------------------------------------


def count_weights(policy):
    return sum(weight.size for weight in policy.model.get_weights().values())


@pytest.mark.parametrize(
    ("obs_space", "action_space", "config"),
    [
        pytest.param(THREE_FEATURES, TWO_ACTIONS, LSTM, id="vector"),
        pytest.param(
            THREE_FEATURES,
            TWO_ACTIONS,
            {**LSTM, "vf_share_layers": False, "vf_memory": "none"},
            id="value without memory",
        ),
        pytest.param(
            THREE_FEATURES,
            TWO_ACTIONS,
            {**LSTM, "critic": {"use_lstm": True, "memory_first": True, "fcnet_hiddens": [3]}},
            id="critic with a memory",
        ),
        pytest.param(IMAGE, TWO_ACTIONS, IMAGE_LSTM, id="image"),
        pytest.param(
            Dict({"a": THREE_FEATURES, "b": IMAGE}),
            TWO_ACTIONS,
            {**IMAGE_LSTM, "fcnet_hiddens": [5, 4]},
            id="vector and image",
        ),
        pytest.param(
            Dict({"action_mask": Box(0, 1, (2,)), "a": THREE_FEATURES}),
            TWO_ACTIONS,
            {**LSTM, "vf_share_layers": False},
            id="masks",
        ),
        pytest.param(
            THREE_FEATURES, MultiDiscrete([2, 3]), {**LSTM, "use_autoregressive": True}, id="head"
        ),
    ],
)
def test_explained_weights_are_those_of_the_model(obs_space, action_space, config):
    policy = build(config, obs_space=obs_space, action_space=action_space)

    assert policy.resolution.num_weights == count_weights(policy)


def test_explanation_has_the_layers_in_their_order():
    names = [stage.name for stage in build().resolution.shapes]

    memory = names.index("lstm: cell (lstm)")
    assert names[memory - 1] == "fcnet: features"
    assert names[memory + 1 : memory + 3] == ["lstm: hidden 1 (tanh)", "lstm: hidden 2 (tanh)"]


def test_dense_layers_after_convolutions_follow_the_memory():
    weights = build(IMAGE_LSTM, obs_space=IMAGE).model.get_weights()

    assert weights["trunk.cell.weight_ih"].shape == (24, 4)  # four channels of 1x1
    assert weights["hidden.layers.0.weight"].shape == (5, 6)  # behind six cells


def test_dense_layers_after_a_plain_module_follow_the_memory():
    class Net(nn.Module):
        def __init__(self, space):
            super().__init__()
            self.layer = nn.Linear(space.shape[0], 7)

        def forward(self, obs):
            return self.layer(obs)

    config = {
        "custom_model": Net,
        "memory": nn.GRU,
        "memory_config": {"hidden_size": 6},
        "post_fcnet_hiddens": [5],
        "memory_first": True,
    }

    weights = build(config).model.get_weights()

    assert weights["hidden.layers.0.weight"].shape == (5, 6)


def test_trunk_without_dense_layers_has_none_to_move():
    config = {**LSTM, "fcnet_hiddens": []}

    moved = build(config).model.get_weights()

    kept = build({**config, "memory_first": False}).model.get_weights()
    assert {name: array.shape for name, array in moved.items()} == {
        name: array.shape for name, array in kept.items()
    }


def test_key_without_a_memory_is_not_read():
    with pytest.warns(UnreadKeysWarning, match="memory_first"):
        build({"fcnet_hiddens": [5], "memory_first": True})


# --- parts and files ------------------------------------------------------------------------------


def test_moved_layers_belong_to_the_trunk():
    policy = build({**LSTM, "freeze_parts": ["trunk"]})

    learning = {name for name, weight in policy.model.named_parameters() if weight.requires_grad}

    assert not any(name.startswith("hidden.") for name in learning)
    assert any(name.startswith("trunk.cell.") for name in learning)
    assert any(name.startswith("outputs.") for name in learning)


def test_memory_can_be_loaded_from_another_policy():
    source = build({**LSTM, "init": "orthogonal"})
    policy = build()

    rlcatalog.load_part(policy, "memory", source)

    weights = policy.model.get_weights()
    for name, array in source.model.get_weights().items():
        is_of_memory = name.startswith("trunk.cell.")
        assert np.array_equal(weights[name], array) == (is_of_memory or not array.any())


@frameworks
def test_saved_policy_acts_as_before(framework, tmp_path):
    policy = build({**LSTM, "lstm_two_biases": True}, framework)
    policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path)

    for result, expected in zip(evaluate(loaded), evaluate(policy), strict=True):
        np.testing.assert_array_equal(result, expected)
