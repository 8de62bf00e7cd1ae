"""The GRU, and LSTMs and GRUs of several layers, against PyTorch's layers and between the
frameworks.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from model_runs import assert_close, assert_same_gradients, run_sequences, set_random_weights
from torch import nn

import rlcatalog
from rlcatalog import ModelCatalog
from rlcatalog.errors import AmbiguousChoiceError, ConfigError, UnreadKeysWarning

OBS = Box(-10, 10, (3,), np.float32)
RANDOM = np.random.default_rng(5)
#: Four sequences of up to six steps.
OBSERVATIONS = RANDOM.normal(size=(4, 6, 3)).astype(np.float32)
LENGTHS = [6, 2, 1, 4]
LSTM = {"fcnet_hiddens": [7], "use_lstm": True, "lstm_cell_size": 5}
GRU = {"fcnet_hiddens": [7], "use_gru": True, "gru_cell_size": 5}
KINDS = [
    pytest.param({**GRU, "lstm_num_layers": 1}, id="gru"),
    pytest.param({**GRU, "lstm_num_layers": 3}, id="gru-3"),
    pytest.param({**LSTM, "lstm_num_layers": 2}, id="lstm-2"),
]


def build_recurrent_model(framework, config):
    model = ModelCatalog.get_model_v2(OBS, Discrete(4), 4, config, framework)
    return set_random_weights(model)


def build_bare_layer(model, config):
    """Return PyTorch's recurrent layer with a model's weights."""
    num_layers = config["lstm_num_layers"]
    layer_class = nn.GRU if "use_gru" in config else nn.LSTM
    layer = layer_class(7, 5, num_layers=num_layers, batch_first=True)
    weights = {name: torch.from_numpy(array) for name, array in model.get_weights().items()}
    state = {}
    for number in range(num_layers):
        cell = "cell" if number == 0 else f"upper_cells.{number - 1}"
        state[f"weight_ih_l{number}"] = weights[f"{cell}.weight_ih"]
        state[f"weight_hh_l{number}"] = weights[f"{cell}.weight_hh"]
        state[f"bias_ih_l{number}"] = weights[f"{cell}.bias"]
        recurrent_bias = torch.zeros_like(weights[f"{cell}.bias"])
        if layer_class is nn.GRU:
            recurrent_bias[10:] = weights[f"{cell}.bias_hn"]  # of the third gate, of 5 cells
        state[f"bias_hh_l{number}"] = recurrent_bias
    layer.load_state_dict(state)
    return layer


# --- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", KINDS)
@pytest.mark.parametrize("time_major", [False, True], ids=["batch-major", "time-major"])
def test_sequences_equal_the_layers_of_pytorch(framework, config, time_major):
    model = build_recurrent_model(framework, {**config, "_time_major": time_major})

    results = run_sequences(model, OBSERVATIONS, lengths=LENGTHS)

    layer = build_bare_layer(model, config)
    weights = model.get_weights()
    # The trunk is one dense layer with tanh.
    dense = OBSERVATIONS @ weights["trunk.hidden.layers.0.weight"].T
    features = torch.from_numpy(np.tanh(dense + weights["trunk.hidden.layers.0.bias"]))
    for sequence, length in enumerate(LENGTHS):
        with torch.no_grad():
            outputs, state = layer(features[sequence : sequence + 1, :length])
        logits = outputs[0].numpy() @ weights["outputs.logits.weight"].T
        logits += weights["outputs.logits.bias"]
        assert_close(results.outputs[sequence, :length], logits)
        if isinstance(state, tuple):
            state = torch.stack(state, dim=1).flatten(0, 1)  # h and c of each layer in turn
        for vectors, vector in zip(results.state, state, strict=True):
            assert_close(vectors[sequence], vector[0])


@pytest.mark.parametrize("config", KINDS)
def test_single_steps_equal_a_sequence(framework, config):
    model = build_recurrent_model(framework, config)

    state = []
    outputs = []
    for t in range(6):
        step = run_sequences(model, OBSERVATIONS[:, t : t + 1], state)
        state = step.state
        outputs.append(step.outputs[:, 0])

    sequences = run_sequences(model, OBSERVATIONS)
    assert_close(np.stack(outputs, axis=1), sequences.outputs)
    assert_close(state, sequences.state)


@pytest.mark.parametrize("config", KINDS)
def test_frameworks_agree_on_outputs_and_gradients(config):
    model = build_recurrent_model("tf", config)
    other = build_recurrent_model("torch", config)

    past_states = len(other.get_initial_state())
    state = [RANDOM.normal(size=(4, 5)).astype(np.float32) for _ in range(past_states)]
    assert list(model.get_weights()) == list(other.get_weights())
    assert_same_gradients(
        model, other, obs=OBSERVATIONS.reshape(24, 3), state=state, lengths=LENGTHS
    )


@pytest.mark.parametrize("config", KINDS)
def test_torch_func_runs_the_cells_by_hand(config):
    model = build_recurrent_model("torch", config)
    expected = run_sequences(model, OBSERVATIONS[:, :1])

    def run_one(obs):
        outputs, _ = model({"obs": obs[None]}, [], None)
        return outputs[0]

    outputs = torch.func.vmap(run_one)(torch.from_numpy(OBSERVATIONS[:, 0]))

    assert_close(outputs.detach(), expected.outputs[:, 0])


# --- building -------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", KINDS)
def test_stages_count_every_weight(framework, config):
    policy = rlcatalog.build(OBS, Discrete(4), config, framework)

    stages = policy.resolution.stages

    num_weights = sum(array.size for array in policy.model.get_weights().values())
    assert sum(stage.weights for stage in stages) == num_weights
    names = [stage.name for stage in stages if "cell" in stage.name]
    assert len(names) == config["lstm_num_layers"]


def test_lstm_of_one_layer_keeps_its_stage_name():
    resolution = rlcatalog.default_catalog().resolve(OBS, Discrete(4), LSTM)

    assert "lstm: cell (lstm)" in [stage.name for stage in resolution.stages]


def test_gru_reads_past_actions_and_rewards(framework):
    past = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    policy = rlcatalog.build(OBS, Discrete(4), {**GRU, **past}, framework)

    assert policy.model.get_weights()["cell.weight_ih"].shape == (15, 12)  # 7 features, 4 + 1


def test_gru_takes_the_initialisers_of_the_lstm(framework):
    config = {"lstm_bias_initializer": "ones", "lstm_weights_initializer": "zeros"}
    policy = rlcatalog.build(OBS, Discrete(4), {**GRU, **config}, framework)

    weights = policy.model.get_weights()
    assert (weights["cell.bias"] == 1).all()
    assert (weights["cell.bias_hn"] == 1).all()
    assert not weights["cell.weight_hh"].any()


def test_size_of_the_other_kind_is_warned_of():
    with pytest.warns(UnreadKeysWarning, match="lstm_cell_size"):
        rlcatalog.build(OBS, Discrete(4), {**GRU, "lstm_cell_size": 3})


def test_gru_beside_lstm_is_an_error():
    with pytest.raises(AmbiguousChoiceError, match="are switched on together"):
        rlcatalog.build(OBS, Discrete(4), {**GRU, "use_lstm": True})


@pytest.mark.parametrize("layers", [0, 101])
def test_impossible_number_of_layers_is_an_error(layers):
    with pytest.raises(ConfigError, match="lstm_num_layers"):
        rlcatalog.build(OBS, Discrete(4), {**LSTM, "lstm_num_layers": layers})


@pytest.mark.parametrize("config", KINDS)
@pytest.mark.parametrize(("saved", "loaded"), [("torch", "tf"), ("tf", "torch")])
def test_policy_moves_to_the_other_framework(config, saved, loaded, tmp_path):
    policy = rlcatalog.build(OBS, Discrete(4), config, saved)
    policy.save(tmp_path)

    moved = rlcatalog.load(tmp_path, framework=loaded)

    first = policy.act(OBSERVATIONS[:, 0], explore=False)
    moved_first = moved.act(OBSERVATIONS[:, 0], explore=False)
    expected = policy.act(OBSERVATIONS[:, 1], first.state, explore=False)
    result = moved.act(OBSERVATIONS[:, 1], moved_first.state, explore=False)
    assert_close(result.dist_inputs, expected.dist_inputs)
    assert_close(result.value, expected.value)
