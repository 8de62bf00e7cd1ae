"""Plain memories of PyTorch: results, building, errors, and saving."""

from __future__ import annotations

import copy
import functools

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from model_runs import assert_close, run_sequences
from torch import nn

import rlcatalog
from rlcatalog.errors import (
    AmbiguousChoiceError,
    ConfigError,
    ModelContractError,
    NotServedError,
    SavedPolicyError,
    UnknownNameError,
    UnreadKeysWarning,
)

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

OBS = Box(-10, 10, (3,), np.float32)
RANDOM = np.random.default_rng(3)
#: Four sequences of up to six steps.
OBSERVATIONS = RANDOM.normal(size=(4, 6, 3)).astype(np.float32)
TRUNK = {"fcnet_hiddens": [7]}


class Traces(nn.Module):
    """Keeps a fast and a slow trace of its features, in a dict with a tuple."""

    def __init__(self, width, size=4):
        super().__init__()
        self.size = size
        self.inputs = nn.Linear(width, size)
        self.recurrence = nn.Linear(2 * size, size)

    def initial_state(self, batch_size):
        zeros = torch.zeros(batch_size, self.size)
        return {"fast": zeros, "slow": (torch.ones(batch_size, 2, self.size // 2),)}

    def forward(self, x, state):
        (slow,) = state["slow"]
        traces = torch.cat([state["fast"], slow.flatten(1)], dim=1)
        fast = torch.tanh(self.inputs(x) + self.recurrence(traces))
        slow = 0.9 * slow + 0.1 * fast.view_as(slow)
        return fast, {"fast": fast, "slow": (slow,)}


def build_policy(memory, memory_config=None, **config):
    config = {**TRUNK, "memory_config": memory_config or {}, **config}
    return rlcatalog.build(OBS, Discrete(4), config, "torch", memory=memory)


def run_bare_module(module, features):
    """Return the outputs [T, m] of a sequence of features [T, n], and the last state's vectors."""
    features = torch.from_numpy(features)
    if isinstance(module, Traces):
        state = module.initial_state(1)
        outputs = []
        for x in features:
            y, state = module(x[None], state)
            outputs.append(y[0])
        vectors = [state["fast"][0], state["slow"][0][0].flatten()]
        return torch.stack(outputs), vectors
    outputs, state = module(features)  # PyTorch takes a sequence without a batch axis
    if not isinstance(state, tuple):
        state = (state,)
    return outputs, [part.flatten() for part in state]


MEMORIES = [
    pytest.param(nn.GRU, {"hidden_size": 5}, id="gru"),
    pytest.param(
        nn.GRU, {"hidden_size": 5, "num_layers": 2, "batch_first": True}, id="gru-2-batch-first"
    ),
    pytest.param(nn.LSTM, {"hidden_size": 5, "num_layers": 2}, id="lstm-2"),
    pytest.param(nn.LSTM, {"hidden_size": 5, "proj_size": 3}, id="lstm-projected"),
    pytest.param(nn.RNN, {"hidden_size": 5, "nonlinearity": "relu"}, id="rnn-relu"),
    pytest.param(Traces, {"size": 6}, id="own-module"),
]


# --- results --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("padding", [np.nan, 0.0, 1e6], ids=["nan", "zeros", "large"])
@pytest.mark.parametrize(("memory", "memory_config"), MEMORIES)
def test_sequences_equal_the_bare_module(memory, memory_config, padding):
    model = build_policy(memory, memory_config).model
    lengths = RANDOM.integers(1, 7, size=4)
    obs = OBSERVATIONS.copy()
    for sequence, length in enumerate(lengths):
        obs[sequence, length:] = padding

    with torch.no_grad():
        results = run_sequences(model, obs, lengths=lengths)

    weights = model.get_weights()
    for sequence, length in enumerate(lengths):
        # The trunk is one dense layer with tanh.
        layer = OBSERVATIONS[sequence, :length] @ weights["trunk.hidden.layers.0.weight"].T
        features = np.tanh(layer + weights["trunk.hidden.layers.0.bias"])
        with torch.no_grad():
            outputs, state = run_bare_module(model.module, features)
        logits = outputs.numpy() @ weights["outputs.logits.weight"].T
        logits += weights["outputs.logits.bias"]
        assert_close(results.outputs[sequence, :length], logits, 1e-6)
        for vectors, vector in zip(results.state, state, strict=True):
            assert_close(vectors[sequence], vector, 1e-6)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(("memory", "memory_config"), MEMORIES)
def test_acting_steps_equal_a_sequence(memory, memory_config):
    policy = build_policy(memory, memory_config)
    state = None
    steps = []
    for t in range(6):
        step = policy.act(OBSERVATIONS[:, t], state)
        state = step.state
        steps.append(step)

    evaluation = policy.evaluate(
        {
            "obs": OBSERVATIONS.reshape(24, 3),  # 4 sequences of 6 steps
            "raw_action": np.stack([step.raw_action for step in steps], axis=1).reshape(24),
            "state": policy.memory.start(4),
            "seq_lens": np.full(4, 6),
        }
    )

    value = np.stack([step.value for step in steps], axis=1).reshape(24)
    logp = np.stack([step.logp for step in steps], axis=1).reshape(24)
    assert_close(evaluation.value.detach(), value, 1e-6)
    assert_close(evaluation.logp.detach(), logp, 1e-6)


@pytest.mark.parametrize("memory_class", [nn.GRU, Traces])
def test_nan_in_padding_does_not_reach_the_gradients(memory_class):
    options = {"hidden_size": 4} if memory_class is nn.GRU else {"size": 4}
    model = build_policy(memory_class, options).model
    obs = OBSERVATIONS.copy()
    obs[1, 2:] = np.nan

    rows = torch.from_numpy(obs.reshape(24, 3))
    outputs, _ = model({"obs": rows}, [], torch.tensor([6, 2, 6, 6]))
    outputs.sum().backward()

    assert all(torch.isfinite(weight.grad).all() for weight in model.module.parameters())


def test_time_major_has_no_effect_on_a_plain_memory():
    with pytest.warns(UnreadKeysWarning, match="_time_major"):
        build_policy(nn.GRU, {"hidden_size": 4}, _time_major=True)


def test_state_vectors_follow_the_precision_of_the_weights():
    policy = build_policy(nn.GRU, {"hidden_size": 4})
    policy.model.double()

    step = policy.act(OBSERVATIONS[:, 0])
    step = policy.act(OBSERVATIONS[:, 1], step.state)

    assert step.state.memory[0].dtype == np.float64


# --- building -------------------------------------------------------------------------------------


def make_gru(width, hidden=6):
    return nn.GRU(width, hidden)


@pytest.mark.parametrize(
    ("memory", "memory_config", "width"),
    [
        pytest.param(make_gru, {"hidden": 5}, 5, id="function"),
        pytest.param(make_gru, {}, 6, id="function-without-arguments"),
        pytest.param(functools.partial(nn.GRU, hidden_size=3), {}, 3, id="partial"),
        pytest.param(lambda: nn.GRU(7, 8), {}, 8, id="function-that-knows-the-width"),
        pytest.param(nn.GRU(7, 9), {}, 9, id="instance"),
    ],
)
def test_memory_takes_functions_and_instances(memory, memory_config, width):
    policy = build_policy(memory, memory_config)

    assert policy.model.get_weights()["outputs.logits.weight"].shape == (4, width)  # 4 actions


def test_memory_key_is_the_same_as_the_argument():
    config = {**TRUNK, "memory": nn.GRU, "memory_config": {"hidden_size": 4}}

    policy = rlcatalog.build(OBS, Discrete(4), config)

    assert policy.framework == "torch"
    assert type(policy.model.module) is nn.GRU
    assert policy.explain().as_dict()["memory"]["chosen"] == "GRU"


def test_memory_key_names_a_memory_of_a_package():
    policy = build_policy("lstm", lstm_cell_size=4)

    assert type(policy.model).__name__ == "LSTMWrapper"


def test_get_model_v2_builds_the_memory():
    config = {**TRUNK, "memory": nn.GRU, "memory_config": {"hidden_size": 4}}

    model = rlcatalog.ModelCatalog.get_model_v2(OBS, Discrete(4), 4, config)

    assert [part.shape for part in model.get_initial_state()] == [(4,)]


def test_separate_value_has_a_second_memory():
    policy = build_policy(nn.GRU, {"hidden_size": 4}, vf_share_layers=False)

    assert len(policy.memory.initial) == 2
    assert policy.model.trunk.module is not policy.model.value_trunk.module


def test_memory_follows_a_plain_trunk():
    class Net(nn.Sequential):
        def __init__(self, space):
            super().__init__(nn.Linear(space.shape[0], 5), nn.ReLU())

    config = {"memory_config": {"hidden_size": 4}}
    policy = rlcatalog.build(OBS, Discrete(4), config, model=Net, memory=nn.GRU)

    assert policy.model.module.input_size == 5
    assert not any(isinstance(value, type) for value in policy.model.model_config.values())


def test_copy_of_a_policy_has_its_own_instance():
    memory = nn.GRU(7, 4)
    policy = build_policy(memory)

    twin = copy.deepcopy(policy)

    assert policy.model.module is memory
    assert twin.model.module is not memory
    assert_close(twin.act(OBSERVATIONS[:, 0]).value, policy.act(OBSERVATIONS[:, 0]).value)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [("use_lstm", True), ("use_gru", True), ("use_attention", True), ("custom_model", "lstm")],
)
def test_two_memories_are_an_error(key, value):
    with pytest.raises(AmbiguousChoiceError, match="there is only one") as caught:
        build_policy(nn.GRU, {"hidden_size": 4}, **{key: value})

    assert f"{key}={value!r} each choose a memory" in str(caught.value)


def test_switch_of_the_named_memory_is_accepted():
    assert type(build_policy("lstm", use_lstm=True).model).__name__ == "LSTMWrapper"


def test_name_of_a_trunk_as_memory_is_an_error():
    with pytest.raises(ConfigError, match="memory='fcnet' names a trunk") as caught:
        build_policy("fcnet")

    assert "set custom_model='fcnet'" in str(caught.value)


def test_instance_with_a_separate_value_is_an_error():
    with pytest.raises(ConfigError, match="vf_share_layers=False: the value needs") as caught:
        build_policy(nn.GRU(7, 4), vf_share_layers=False)

    assert "Pass its class (memory=GRU)" in str(caught.value)


def test_instance_serves_the_policy_alone():
    policy = build_policy(nn.GRU(7, 4), vf_share_layers=False, vf_memory="none")

    assert len(policy.memory.initial) == 1


def test_instance_of_another_width_is_an_error():
    with pytest.raises(ModelContractError, match="GRU takes 6 inputs") as caught:
        build_policy(nn.GRU(6, 4))

    assert "the trunk has 7 features" in str(caught.value)
    assert "memory=GRU, memory_config=" in str(caught.value)


def test_own_module_of_another_width_is_an_error():
    with pytest.raises(ModelContractError, match="Traces raised RuntimeError") as caught:
        build_policy(Traces(width=6))

    assert "for features [2, 7]" in str(caught.value)


def test_misspelt_argument_is_an_error():
    with pytest.raises(ConfigError, match="Did you mean 'hidden_size'") as caught:
        build_policy(nn.GRU, {"hiden_size": 4})

    assert str(caught.value).startswith("memory_config: GRU(7, hiden_size=4)")


def test_unknown_argument_of_own_module_is_an_error():
    with pytest.raises(ConfigError, match="does not fit Traces"):
        build_policy(Traces, {"depth": 4})


def test_memory_config_without_memory_is_warned_of():
    with pytest.warns(UnreadKeysWarning, match="memory_config .read with memory"):
        rlcatalog.build(OBS, Discrete(4), {"memory_config": {"hidden_size": 4}})


def test_bidirectional_layer_is_an_error():
    with pytest.raises(NotServedError, match="with bidirectional=True"):
        build_policy(nn.GRU, {"hidden_size": 4, "bidirectional": True})


@pytest.mark.parametrize(
    "memory",
    [nn.TransformerEncoderLayer(7, 1), nn.GRUCell(7, 4), nn.Linear(7, 4)],
    ids=["transformer", "cell", "linear"],
)
def test_module_without_initial_state_is_an_error(memory):
    with pytest.raises(NotServedError, match="cannot be used as a memory") as caught:
        build_policy(memory)

    assert "expected nn.GRU, nn.LSTM or nn.RNN, or a module with" in str(caught.value)


def test_another_object_as_memory_is_an_error():
    with pytest.raises(ModelContractError, match=r"^memory: 3\.0 must be"):
        build_policy(3.0)


def test_module_as_model_is_pointed_to_memory():
    with pytest.raises(ModelContractError, match="recurrent layer as memory="):
        rlcatalog.build(OBS, Discrete(4), model=nn.GRU(3, 4))


class Faulty(nn.Module):
    """A memory whose initial state and step are given."""

    def __init__(self, initial, step):
        super().__init__()
        self.layer = nn.Linear(7, 4)
        self.trained = nn.Parameter(torch.zeros(1, 4))
        self._initial = initial
        self._step = step

    def initial_state(self, batch_size):
        return self._initial(self, batch_size)

    def forward(self, x, state):
        return self._step(self, x, state)


def start_with_zeros(module, rows):
    return torch.zeros(rows, 4)


def return_state(module, x, state):
    return module.layer(x), state


@pytest.mark.parametrize(
    ("initial", "step", "message"),
    [
        pytest.param(lambda m, rows: (), return_state, "returned no tensors", id="no-state"),
        pytest.param(
            lambda m, rows: torch.zeros(4), return_state, "with a row per episode", id="no-rows"
        ),
        pytest.param(
            lambda m, rows: np.zeros((rows, 4)), return_state, "found ndarray", id="arrays"
        ),
        pytest.param(
            start_with_zeros, lambda m, x, s: m.layer(x), r"must return \(y, state\)", id="no-pair"
        ),
        pytest.param(
            start_with_zeros, lambda m, x, s: (x[:, 0], s), r"return y as \[B, m\]", id="no-vector"
        ),
        pytest.param(
            start_with_zeros, lambda m, x, s: (x, s[:, :2]), "states of the shapes", id="shape"
        ),
        pytest.param(
            lambda m, rows: {"h": torch.zeros(rows, 4)},
            lambda m, x, s: (x, {"g": s["h"]}),
            r"expected a dict with \['h'\]",
            id="keys",
        ),
        pytest.param(
            lambda m, rows: 1 / 0, return_state, "raised ZeroDivisionError", id="initial-raises"
        ),
    ],
)
def test_module_that_breaks_the_protocol_is_an_error(initial, step, message):
    with pytest.raises(ModelContractError, match=message):
        build_policy(Faulty(initial, step))


def test_trained_initial_state_is_an_error():
    def start_with_weights(module, rows):
        return module.trained.expand(rows, -1)

    with pytest.raises(NotServedError, match="never be trained"):
        build_policy(Faulty(start_with_weights, return_state))


# --- saving ---------------------------------------------------------------------------------------


def test_saved_memory_is_loaded_with_its_class(tmp_path):
    policy = build_policy(nn.GRU, {"hidden_size": 4, "num_layers": 2})
    policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path, memory=nn.GRU)

    assert_close(loaded.act(OBSERVATIONS[:, 0]).value, policy.act(OBSERVATIONS[:, 0]).value, 0)


def test_saved_memory_without_its_class_is_an_error(tmp_path):
    build_policy(Traces).save(tmp_path)

    with pytest.raises(UnknownNameError, match="memory=Traces") as caught:
        rlcatalog.load(tmp_path)

    assert "'Traces' is not from a package" in str(caught.value)


def test_registered_memory_is_loaded_by_its_name(tmp_path):
    catalog = rlcatalog.Catalog()
    catalog.register_model("traces", Traces, slot="memory")
    config = {**TRUNK, "memory": "traces", "memory_config": {"size": 6}}
    policy = rlcatalog.build(OBS, Discrete(4), config, catalog=catalog)
    policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path, catalog=catalog)

    assert loaded.model.module.size == 6
    assert_close(loaded.act(OBSERVATIONS[:, 0]).value, policy.act(OBSERVATIONS[:, 0]).value, 0)


def make_net(space):
    return nn.Sequential(nn.Linear(space.shape[0], 5), nn.ReLU())


def test_model_and_memory_are_loaded_with_their_code(tmp_path):
    config = {"memory_config": {"hidden_size": 4}}
    policy = rlcatalog.build(OBS, Discrete(4), config, model=make_net, memory=nn.GRU)
    policy.save(tmp_path)

    with pytest.raises(UnknownNameError, match="model=make_net, memory=GRU"):
        rlcatalog.load(tmp_path)
    loaded = rlcatalog.load(tmp_path, model=make_net, memory=nn.GRU)

    assert_close(loaded.act(OBSERVATIONS[:, 0]).value, policy.act(OBSERVATIONS[:, 0]).value, 0)


def test_load_refuses_a_memory_that_the_policy_has_not(tmp_path):
    rlcatalog.build(OBS, Discrete(4), TRUNK).save(tmp_path)

    with pytest.raises(ConfigError, match="memory= is for a memory of the program"):
        rlcatalog.load(tmp_path, memory=nn.GRU)


def test_weights_of_another_memory_are_an_error(tmp_path):
    build_policy(nn.GRU, {"hidden_size": 4}).save(tmp_path)

    with pytest.raises(SavedPolicyError, match="belong to a different model"):
        rlcatalog.load(tmp_path, memory=nn.LSTM)


def test_frozen_policy_acts_as_the_policy():
    policy = build_policy(nn.GRU, {"hidden_size": 4, "num_layers": 2})
    frozen = policy.freeze()
    step = policy.act(OBSERVATIONS[:, 0])
    expected = policy.act(OBSERVATIONS[:, 1], step.state)

    frozen_step = frozen.act(OBSERVATIONS[:, 0])
    result = frozen.act(OBSERVATIONS[:, 1], frozen_step.state)

    assert_close(result.value, expected.value, 1e-6)
    assert_close(result.state.memory[0], expected.state.memory[0], 1e-6)
