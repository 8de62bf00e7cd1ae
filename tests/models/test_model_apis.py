"""Model APIs of the examples, over default models, custom models and memories."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import torch
from builders import sample_observations, to_array, to_tensor
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

FOUR_FEATURES = Box(-1.0, 1.0, (4,), np.float32)
IMAGE = Box(0, 255, (42, 42, 3), np.uint8)

#: API → the examples that have it, and the space of their actions.
APIS = {
    "dueling": ({"torch": TorchDuelingQModel, "tf": DuelingQModel}, Discrete(3)),
    "single Q": ({"torch": TorchContActionQModel, "tf": ContActionQModel}, Box(-2, 2, (2,))),
    "plain": ({"torch": TorchQModel, "tf": QModel}, Discrete(4)),
}

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


class Inner(NamedTuple):
    """A model below an API, and the width of its features."""

    obs_space: Space
    config: dict[str, Any]
    width: int
    is_custom: bool = False


INNER_MODELS = {
    "default net": Inner(FOUR_FEATURES, {"fcnet_hiddens": [8, 7]}, width=7),
    "net for a Dict": Inner(
        Dict({"x": FOUR_FEATURES, "n": Discrete(2)}), {"fcnet_hiddens": [7]}, width=7
    ),
    "custom model": Inner(FOUR_FEATURES, {"fcnet_hiddens": [8]}, width=5, is_custom=True),
    "image net": Inner(IMAGE, {"fcnet_hiddens": [8]}, width=256),
    "LSTM": Inner(FOUR_FEATURES, LSTM, width=6),
    "LSTM around custom model": Inner(FOUR_FEATURES, LSTM, width=6, is_custom=True),
    "attention": Inner(FOUR_FEATURES, ATTENTION, width=6),
    "attention around custom model": Inner(FOUR_FEATURES, ATTENTION, width=6, is_custom=True),
}
DEFAULT_NET = INNER_MODELS["default net"]
MEMORIES = {
    name: inner for name, inner in INNER_MODELS.items() if name.startswith(("LSTM", "attention"))
}

in_both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
over_each_inner_model = pytest.mark.parametrize(
    "inner_model", INNER_MODELS.values(), ids=INNER_MODELS
)
over_each_memory = pytest.mark.parametrize("inner_model", MEMORIES.values(), ids=MEMORIES)
for_both_apis = pytest.mark.parametrize("api", ["dueling", "single Q"])


def build_model(framework, inner_model, api):
    """Build the example of an API ("dueling", "single Q" or "plain") over another model."""
    config = {**inner_model.config}
    if inner_model.is_custom:
        config["custom_model"] = CUSTOM_TRUNKS[framework]
    examples, action_space = APIS[api]
    return ModelCatalog.get_model_v2(
        ModelCatalog.get_preprocessor_for_space(inner_model.obs_space).observation_space,
        action_space,
        num_outputs=4,
        model_config=config,
        framework=framework,
        model_interface=examples[framework],
    )


def sample_rows(model, rows, seed=0):
    """Return encoded observations `[rows, ...]`."""
    space = getattr(model.obs_space, "original_space", model.obs_space)
    preprocessor = ModelCatalog.get_preprocessor_for_space(space)
    return preprocessor.transform_batch(sample_observations(space, rows, seed))


def run_model(model, obs, state=None, seq_lens=None):
    """Call the model with arrays, from its initial state by default; return tensors."""
    lengths = None
    if seq_lens is not None:
        lengths = to_tensor(model.framework, np.asarray(seq_lens, np.int32))
    if state is None:
        sequences = len(obs) if seq_lens is None else len(seq_lens)
        parts = [np.asarray(part) for part in model.get_initial_state()]
        state = [np.repeat(part[None], sequences, axis=0) for part in parts]
    tensors = [to_tensor(model.framework, to_array(part)) for part in state]
    return model({"obs": to_tensor(model.framework, obs)}, tensors, lengths)


def state_after_a_step(model, rows):
    """Return a state that is not the initial one, or `[]` if the model has none."""
    _, state = run_model(model, sample_rows(model, rows=rows, seed=1))
    return state


def apply_layer(model, layer, x):
    """Compute a linear layer of the model from its weights."""
    weights = model.get_weights()
    return to_array(x) @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]


def assert_close(actual, expected):
    np.testing.assert_allclose(to_array(actual), to_array(expected), rtol=1e-4, atol=1e-5)


# --- a dueling head -------------------------------------------------------------------------------


@pytest.mark.grid
@in_both_frameworks
@over_each_inner_model
def test_q_values_are_value_plus_centred_advantages(framework, inner_model):
    model = build_model(framework, inner_model, "dueling")
    features, _ = run_model(model, sample_rows(model, rows=6))

    q = model.get_q_values(features)

    # "V" and "A" are the names of the layers for the value and the advantages.
    value = apply_layer(model, "V", features)
    advantages = apply_layer(model, "A", features)
    centred_advantages = advantages - advantages.mean(axis=1, keepdims=True)
    assert_close(q, value + centred_advantages)


@pytest.mark.grid
@in_both_frameworks
@over_each_inner_model
def test_output_of_an_api_is_the_features_of_the_inner_model(framework, inner_model):
    model = build_model(framework, inner_model, "dueling")

    features, state = run_model(model, sample_rows(model, rows=6))

    assert model.num_outputs == inner_model.width
    assert features.shape == (6, inner_model.width)
    assert len(state) == len(model.get_initial_state())


@in_both_frameworks
def test_value_function_under_a_dueling_head_is_an_error(framework):
    model = build_model(framework, DEFAULT_NET, "dueling")
    run_model(model, sample_rows(model, rows=5))
    with pytest.raises(StaleOutputError, match="it was built as a trunk"):
        model.value_function()


@pytest.mark.grid
@in_both_frameworks
@over_each_memory
def test_q_values_of_single_steps_equal_those_of_a_sequence(framework, inner_model):
    model = build_model(framework, inner_model, "dueling")
    sequence = sample_rows(model, rows=4)

    features, state_after_sequence = run_model(model, sequence, seq_lens=[4])
    q_of_sequence = model.get_q_values(features)

    state = None  # the initial state
    for t in range(4):
        features, state = run_model(model, sequence[t : t + 1], state)
        q_of_step = model.get_q_values(features)
        assert_close(q_of_step[0], q_of_sequence[t])
    for part, expected in zip(state, state_after_sequence, strict=True):
        assert_close(part, expected)


@pytest.mark.grid
@in_both_frameworks
@over_each_memory
def test_q_values_depend_on_the_memory(framework, inner_model):
    model = build_model(framework, inner_model, "dueling")
    obs = sample_rows(model, rows=2)

    features, _ = run_model(model, obs)
    q_at_first = to_array(model.get_q_values(features))
    features, _ = run_model(model, obs, state_after_a_step(model, rows=2))
    q_after_a_step = to_array(model.get_q_values(features))

    assert np.abs(q_after_a_step - q_at_first).max() > 1e-4


# --- one Q-value for an action --------------------------------------------------------------------


@in_both_frameworks
def test_single_q_value_is_a_net_of_features_and_action(framework):
    model = build_model(framework, DEFAULT_NET, "single Q")
    features, _ = run_model(model, sample_rows(model, rows=2))
    actions = np.array([[0.5, -1], [2, 0.25]], np.float32)

    q = model.get_single_q_value(features, to_tensor(framework, actions))

    # The net has two tanh layers, as the config of the default net says, and a linear one.
    x = np.concatenate([to_array(features), actions], axis=1)
    x = np.tanh(apply_layer(model, "q_hidden.hidden.layers.0", x))
    x = np.tanh(apply_layer(model, "q_hidden.hidden.layers.1", x))
    assert_close(q, apply_layer(model, "q_value", x))


# --- both APIs ------------------------------------------------------------------------------------


def compute_q(model, features, api):
    """Return the Q-values of six observations."""
    if api == "dueling":
        return model.get_q_values(features)
    actions = np.ones((6, 2), np.float32)
    return model.get_single_q_value(features, to_tensor(model.framework, actions))


def compute_gradients(model, api):
    """Return weight → gradient of the sum of the first Q-value of six observations."""
    obs = sample_rows(model, rows=6)
    state = state_after_a_step(model, rows=2)
    lengths = [3, 3] if state else None
    if model.framework == "torch":
        features, _ = run_model(model, obs, state, lengths)
        compute_q(model, features, api)[:, 0].sum().backward()
        return {name: parameter.grad for name, parameter in model.named_parameters()}
    variables = model.trainable_variables(as_dict=True)
    with tf.GradientTape() as tape:
        features, _ = run_model(model, obs, state, lengths)
        loss = tf.reduce_sum(compute_q(model, features, api)[:, 0])
    return dict(zip(variables, tape.gradient(loss, list(variables.values())), strict=True))


@pytest.mark.grid
@in_both_frameworks
@over_each_inner_model
@for_both_apis
def test_gradients_reach_every_weight(framework, inner_model, api):
    model = build_model(framework, inner_model, api)

    gradients = compute_gradients(model, api)

    assert any(name.startswith("inner.") for name in gradients)
    for name, gradient in gradients.items():
        assert gradient is not None, name
        assert np.abs(to_array(gradient)).max() > 0, name


@pytest.mark.grid
@over_each_inner_model
@for_both_apis
def test_frameworks_agree_on_copied_weights(inner_model, api):
    torch_model = build_model("torch", inner_model, api)
    tf_model = build_model("tf", inner_model, api)
    tf_model.set_weights(torch_model.get_weights())
    obs = sample_rows(torch_model, rows=6)
    state = state_after_a_step(torch_model, rows=6)

    torch_features, torch_state = run_model(torch_model, obs, state)
    tf_features, tf_state = run_model(tf_model, obs, state)

    torch_q = compute_q(torch_model, torch_features, api)
    tf_q = compute_q(tf_model, tf_features, api)
    assert_close(tf_q, torch_q)
    for tf_part, torch_part in zip(tf_state, torch_state, strict=True):
        assert_close(tf_part, torch_part)


# --- models that have an API ----------------------------------------------------------------------


@in_both_frameworks
def test_model_whose_outputs_are_q_values_keeps_its_value(framework):
    # The plain API passes num_outputs on, so the default model below it has a value as well.
    model = build_model(framework, DEFAULT_NET, "plain")

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


def build_custom_model(framework, custom_model, api):
    examples, _ = APIS[api]
    return ModelCatalog.get_model_v2(
        FOUR_FEATURES,
        Discrete(3),
        num_outputs=3,
        model_config={"custom_model": custom_model},
        framework=framework,
        model_interface=examples[framework],
    )


@models_with_the_plain_api
def test_api_of_a_custom_class_is_not_mixed_in_twice(framework, custom_model):
    model = build_custom_model(framework, custom_model, "plain")

    obs = sample_rows(model, rows=5)
    output, _ = run_model(model, obs)

    assert type(model) is custom_model
    np.testing.assert_array_equal(model.get_q_values(output), obs[:, :3])


@models_with_the_plain_api
def test_other_api_is_put_around_a_custom_class(framework, custom_model):
    model = build_custom_model(framework, custom_model, "dueling")

    output, _ = run_model(model, sample_rows(model, rows=5))

    assert type(model) is not custom_model
    assert type(model.inner) is custom_model
    assert model.get_q_values(output).shape == (5, 3)
