"""Model APIs of the examples, over default models, custom models and memories."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Dict, Discrete, Space

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

from model_apis.tf import ContActionQModel, DuelingQModel, QModel
from model_apis.torch import TorchContActionQModel, TorchDuelingQModel, TorchQModel

from rlcatalog import ModelCatalog
from rlcatalog.errors import StaleOutputError
from rlcatalog.models import DenseSpec
from rlcatalog_tf import Dense, TFModelV2
from rlcatalog_torch import TorchModelV2, dense

pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded")]

VECTOR = Box(-1.0, 1.0, (4,), np.float32)
IMAGE = Box(0, 255, (42, 42, 3), np.uint8)
THREE_ACTIONS = Discrete(3)
TWO_NUMBERS = Box(-2.0, 2.0, (2,), np.float32)

#: Framework → the example's class.
DUELING = {"torch": TorchDuelingQModel, "tf": DuelingQModel}
SINGLE_Q = {"torch": TorchContActionQModel, "tf": ContActionQModel}
PLAIN = {"torch": TorchQModel, "tf": QModel}

LAYER_OF_FIVE = DenseSpec(5, "tanh", "normc", {"std": 1.0}, "zeros", {})


class TorchTrunk(TorchModelV2):
    """A custom trunk with one layer of width 5."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        assert num_outputs is None
        self.num_outputs = 5
        self.layer = dense(4, LAYER_OF_FIVE)

    def forward(self, input_dict, state, seq_lens):
        return torch.tanh(self.layer(input_dict["obs"])), state


class TFTrunk(TFModelV2):
    """A custom trunk with one layer of width 5, in TensorFlow."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        assert num_outputs is None
        self.num_outputs = 5
        self.layer = Dense(4, LAYER_OF_FIVE)

    def forward(self, input_dict, state, seq_lens):
        return tf.tanh(self.layer(input_dict["obs"])), state


CUSTOM_TRUNKS = {"torch": TorchTrunk, "tf": TFTrunk}
LSTM = {"use_lstm": True, "lstm_cell_size": 6, "fcnet_hiddens": [8]}
ATTENTION = {
    "use_attention": True, "fcnet_hiddens": [8], "attention_dim": 6,
    "attention_num_transformer_units": 1, "attention_num_heads": 2, "attention_head_dim": 4,
    "attention_position_wise_mlp_dim": 7, "attention_memory_inference": 5,
    "attention_memory_training": 5,
}  # fmt: skip


class Case(NamedTuple):
    """A model that an API is put over."""

    obs_space: Space
    config: dict[str, Any]
    width: int  # of the model's output
    has_custom_trunk: bool = False


CASES = {
    "default net": Case(VECTOR, {"fcnet_hiddens": [8, 7]}, width=7),
    "net for a Dict": Case(Dict({"x": VECTOR, "n": Discrete(2)}), {"fcnet_hiddens": [7]}, width=7),
    "custom model": Case(VECTOR, {"fcnet_hiddens": [8]}, width=5, has_custom_trunk=True),
    "image net": Case(IMAGE, {"fcnet_hiddens": [8]}, width=256),
    "LSTM": Case(VECTOR, LSTM, width=6),
    "LSTM around custom model": Case(VECTOR, LSTM, width=6, has_custom_trunk=True),
    "attention": Case(VECTOR, ATTENTION, width=6),
    "attention around custom model": Case(VECTOR, ATTENTION, width=6, has_custom_trunk=True),
}
CASES_WITH_MEMORY = [name for name in CASES if name.startswith(("LSTM", "attention"))]

in_both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
over_each_model = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def build_model(framework, case, interface, action_space):
    config = {**case.config}
    if case.has_custom_trunk:
        config["custom_model"] = CUSTOM_TRUNKS[framework]
    encoded = ModelCatalog.get_preprocessor_for_space(case.obs_space).observation_space
    api = interface[framework]
    return ModelCatalog.get_model_v2(
        encoded, action_space, 4, config, framework, "my_model", model_interface=api
    )


def sample_rows(model, rows, seed=0):
    """Return encoded observations `[rows, ...]`."""
    space = getattr(model.obs_space, "original_space", model.obs_space)
    space.seed(seed)
    preprocessor = ModelCatalog.get_preprocessor_for_space(space)
    return np.stack([preprocessor.transform(space.sample()) for _ in range(rows)])


def to_tensor(framework, array):
    return torch.from_numpy(array) if framework == "torch" else tf.constant(array)


def to_array(tensor):
    return tensor.detach().numpy() if isinstance(tensor, torch.Tensor) else np.asarray(tensor)


def run_model(model, obs, state=(), seq_lens=None):
    """Call the model with arrays, and return its output and state as tensors."""
    tensors = [to_tensor(model.framework, to_array(part)) for part in state]
    lengths = None
    if seq_lens is not None:
        lengths = to_tensor(model.framework, np.asarray(seq_lens, np.int32))
    return model({"obs": to_tensor(model.framework, obs)}, tensors, lengths)


def initial_state(model, rows):
    parts = [np.asarray(part) for part in model.get_initial_state()]
    return [np.repeat(part[None], rows, axis=0) for part in parts]


def state_after_a_step(model, rows):
    """Return a state that is not the initial one, or `[]` if the model has none."""
    _, state = run_model(model, sample_rows(model, rows=rows, seed=1), initial_state(model, rows))
    return [to_array(part) for part in state]


def compute_linear(weights, layer, x):
    return x @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]


# --- a dueling head -------------------------------------------------------------------------------


@pytest.mark.grid
@in_both_frameworks
@over_each_model
def test_q_values_are_value_plus_centred_advantages(framework, case):
    model = build_model(framework, case, DUELING, THREE_ACTIONS)

    output, state = run_model(model, sample_rows(model, rows=6), state_after_a_step(model, rows=6))
    q = model.get_q_values(output)

    assert model.num_outputs == case.width
    assert output.shape == (6, case.width)
    assert len(state) == len(model.get_initial_state())
    weights = model.get_weights()
    advantages = compute_linear(weights, "A", to_array(output))
    value = compute_linear(weights, "V", to_array(output))
    expected = value + advantages - advantages.mean(axis=1, keepdims=True)
    assert q.shape == (6, 3)
    np.testing.assert_allclose(to_array(q), expected, rtol=1e-4, atol=1e-5)


@in_both_frameworks
def test_value_function_under_a_dueling_head_is_an_error(framework):
    model = build_model(framework, CASES["default net"], DUELING, THREE_ACTIONS)
    run_model(model, sample_rows(model, rows=5))
    with pytest.raises(StaleOutputError, match="it was built as a trunk"):
        model.value_function()


@in_both_frameworks
def test_weights_can_be_copied_before_the_first_call(framework):
    model = build_model(framework, CASES["default net"], DUELING, THREE_ACTIONS)
    target = build_model(framework, CASES["default net"], DUELING, THREE_ACTIONS)
    obs = sample_rows(model, rows=5)

    target.set_weights(model.get_weights())

    output, _ = run_model(model, obs)
    target_output, _ = run_model(target, obs)
    np.testing.assert_array_equal(
        to_array(model.get_q_values(output)), to_array(target.get_q_values(target_output))
    )


@pytest.mark.grid
@in_both_frameworks
@pytest.mark.parametrize("name", CASES_WITH_MEMORY)
def test_steps_one_by_one_equal_a_sequence(framework, name):
    model = build_model(framework, CASES[name], DUELING, THREE_ACTIONS)
    obs = sample_rows(model, rows=8)  # two sequences of four
    steps = obs.reshape(2, 4, -1)

    output, state_of_sequence = run_model(model, obs, initial_state(model, rows=2), seq_lens=[4, 4])
    q_of_sequence = to_array(model.get_q_values(output)).reshape(2, 4, 3)
    state = initial_state(model, rows=2)
    q_of_steps = []
    for t in range(4):
        output, state = run_model(model, steps[:, t], state)
        q_of_steps.append(to_array(model.get_q_values(output)))

    np.testing.assert_allclose(np.stack(q_of_steps, axis=1), q_of_sequence, rtol=1e-4, atol=1e-5)
    for part, expected in zip(state, state_of_sequence, strict=True):
        np.testing.assert_allclose(to_array(part), to_array(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.grid
@in_both_frameworks
@pytest.mark.parametrize("name", CASES_WITH_MEMORY)
def test_q_values_depend_on_the_memory(framework, name):
    model = build_model(framework, CASES[name], DUELING, THREE_ACTIONS)
    obs = sample_rows(model, rows=2)

    output, _ = run_model(model, obs, initial_state(model, rows=2))
    q_at_first = to_array(model.get_q_values(output))
    output, _ = run_model(model, obs, state_after_a_step(model, rows=2))
    q_after_a_step = to_array(model.get_q_values(output))

    assert np.abs(q_after_a_step - q_at_first).max() > 1e-4


# --- one Q-value for an action --------------------------------------------------------------------


@pytest.mark.grid
@in_both_frameworks
@over_each_model
def test_single_q_value_is_a_net_of_features_and_action(framework, case):
    model = build_model(framework, case, SINGLE_Q, TWO_NUMBERS)
    output, _ = run_model(model, sample_rows(model, rows=6), state_after_a_step(model, rows=6))
    action = np.random.default_rng(0).uniform(-2, 2, (6, 2)).astype(np.float32)

    q = model.get_single_q_value(output, to_tensor(framework, action))

    weights = model.get_weights()
    x = np.concatenate([to_array(output), action], axis=1)
    for i in range(len(case.config["fcnet_hiddens"])):
        x = np.tanh(compute_linear(weights, f"q_hidden.hidden.layers.{i}", x))
    expected = compute_linear(weights, "q_value", x)
    assert q.shape == (6, 1)
    np.testing.assert_allclose(to_array(q), expected, rtol=1e-4, atol=1e-5)


# --- both APIs ------------------------------------------------------------------------------------


ACTIONS_OF_ONES = np.ones((6, 2), np.float32)


def compute_q(model, output, interface):
    if interface is DUELING:
        return model.get_q_values(output)
    return model.get_single_q_value(output, to_tensor(model.framework, ACTIONS_OF_ONES))


def compute_gradients(model, interface):
    """Return weight → gradient of the sum of the first Q-value of six observations."""
    obs = sample_rows(model, rows=6)
    state = state_after_a_step(model, rows=2)
    lengths = [3, 3] if state else None
    if model.framework == "torch":
        output, _ = run_model(model, obs, state, lengths)
        compute_q(model, output, interface)[:, 0].sum().backward()
        return {name: parameter.grad for name, parameter in model.named_parameters()}
    variables = model.trainable_variables(as_dict=True)
    with tf.GradientTape() as tape:
        output, _ = run_model(model, obs, state, lengths)
        loss = tf.reduce_sum(compute_q(model, output, interface)[:, 0])
    return dict(zip(variables, tape.gradient(loss, list(variables.values())), strict=True))


over_both_apis = pytest.mark.parametrize(
    ("interface", "action_space"),
    [(DUELING, THREE_ACTIONS), (SINGLE_Q, TWO_NUMBERS)],
    ids=["dueling", "single Q"],
)


@pytest.mark.grid
@in_both_frameworks
@over_each_model
@over_both_apis
def test_gradients_reach_every_weight(framework, case, interface, action_space):
    model = build_model(framework, case, interface, action_space)

    gradients = compute_gradients(model, interface)

    assert any(name.startswith("inner.") for name in gradients)
    for name, gradient in gradients.items():
        assert gradient is not None, name
        assert np.abs(to_array(gradient)).max() > 0, name


@pytest.mark.grid
@over_each_model
@over_both_apis
def test_frameworks_agree_on_copied_weights(case, interface, action_space):
    torch_model = build_model("torch", case, interface, action_space)
    tf_model = build_model("tf", case, interface, action_space)
    tf_model.set_weights(torch_model.get_weights())
    obs = sample_rows(torch_model, rows=6)
    state = state_after_a_step(torch_model, rows=3)
    lengths = None
    is_real = np.ones(6, bool)
    if state:
        lengths = [2, 1, 2]
        is_real[3] = False  # the second sequence is padded to two steps

    torch_output, torch_state = run_model(torch_model, obs, state, lengths)
    tf_output, tf_state = run_model(tf_model, obs, state, lengths)

    torch_q = to_array(compute_q(torch_model, torch_output, interface))
    tf_q = to_array(compute_q(tf_model, tf_output, interface))
    np.testing.assert_allclose(tf_q[is_real], torch_q[is_real], rtol=1e-4, atol=1e-5)
    for part, expected in zip(tf_state, torch_state, strict=True):
        np.testing.assert_allclose(to_array(part), to_array(expected), rtol=1e-4, atol=1e-5)


# --- models that have an API ----------------------------------------------------------------------


@in_both_frameworks
def test_model_whose_outputs_are_q_values_keeps_its_value(framework):
    # The plain API passes num_outputs on, so the default model below it is complete.
    model = build_model(framework, CASES["default net"], PLAIN, Discrete(4))

    output, _ = run_model(model, sample_rows(model, rows=5))

    assert model.num_outputs == 4
    assert model.get_q_values(output) is output
    assert model.value_function().shape == (5,)


class TorchFirstObservations(TorchQModel):
    """A custom model with the plain API, whose outputs are the first numbers of observations."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = num_outputs or 2

    def forward(self, input_dict, state, seq_lens):
        return input_dict["obs"][:, : self.num_outputs], state


class TFFirstObservations(QModel):
    """A custom model with the plain API, whose outputs are the first numbers of observations."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = num_outputs or 2

    def forward(self, input_dict, state, seq_lens):
        return input_dict["obs"][:, : self.num_outputs], state


models_with_the_plain_api = pytest.mark.parametrize(
    ("framework", "custom_model"),
    [("torch", TorchFirstObservations), ("tf", TFFirstObservations)],
    ids=["torch", "tf"],
)


def build_custom_model(framework, custom_model, interface):
    config = {"custom_model": custom_model}
    return ModelCatalog.get_model_v2(
        VECTOR, THREE_ACTIONS, 3, config, framework, "mine", model_interface=interface[framework]
    )


@models_with_the_plain_api
def test_api_of_a_custom_class_is_not_mixed_in_twice(framework, custom_model):
    model = build_custom_model(framework, custom_model, PLAIN)

    obs = sample_rows(model, rows=5)
    output, _ = run_model(model, obs)

    assert type(model) is custom_model
    np.testing.assert_array_equal(model.get_q_values(output), obs[:, :3])


@models_with_the_plain_api
def test_other_api_is_put_around_a_custom_class(framework, custom_model):
    model = build_custom_model(framework, custom_model, DUELING)

    output, _ = run_model(model, sample_rows(model, rows=5))

    assert type(model) is not custom_model
    assert type(model.inner) is custom_model
    assert model.get_q_values(output).shape == (5, 3)
