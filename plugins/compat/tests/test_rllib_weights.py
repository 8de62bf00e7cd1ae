"""RLlib's weights in policies: they act as its PyTorch and TensorFlow networks did."""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import rlcatalog
from rlcatalog.errors import (
    CatalogWarning,
    ConfigError,
    ModelContractError,
    NotServedError,
    UnreadKeysWarning,
)
from rlcatalog_compat import load_rllib_weights
from rlcatalog_compat.rllib.models.torch.fcnet import FullyConnectedNetwork as TorchFC
from rlcatalog_compat.rllib.models.torch.misc import SlimFC
from rlcatalog_tf import TFModelV2, tf
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

VECTOR = gym.spaces.Box(-1, 1, (3,), np.float32)
IMAGE = gym.spaces.Box(0, 255, (42, 42, 3), np.uint8)
BYTES = gym.spaces.Box(0, 255, (3,), np.uint8)
MIXED = gym.spaces.Dict({"a": VECTOR, "d": gym.spaces.Discrete(3), "img": IMAGE})
FOUR_ACTIONS = gym.spaces.Discrete(4)
TWO_LAYERS = {"fcnet_hiddens": [6, 5]}
#: RLlib does not scale images.
UNSCALED = {"image_scale": False}
LSTM = {**TWO_LAYERS, "use_lstm": True, "lstm_cell_size": 6, "lstm_use_prev_reward": True}
ATTENTION = {
    **TWO_LAYERS,
    "use_attention": True,
    "attention_dim": 8,
    "attention_num_heads": 2,
    "attention_head_dim": 5,
    "attention_num_transformer_units": 2,
    "attention_memory_inference": 4,
    "attention_memory_training": 4,
}


def assert_close(result, expected):
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def draw_observations(space):
    """Return three observations of a space."""
    space.seed(1)
    return [space.sample() for _ in range(3)]


# --- RLlib's PyTorch networks ---------------------------------------------------------------------


def build_rllib_model(space, config):
    """Return a network of RLlib with large weights, and these as `Policy.get_weights` has them."""
    pytest.importorskip("ray.rllib", reason="Ray is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.rllib.models.catalog import MODEL_DEFAULTS, ModelCatalog
        from ray.rllib.models.preprocessors import get_preprocessor

        if isinstance(space, gym.spaces.Dict):
            space = get_preprocessor(space)(space).observation_space
        model = ModelCatalog.get_model_v2(
            space, FOUR_ACTIONS, 4, {**MODEL_DEFAULTS, **config}, framework="torch"
        )
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0, 0.3 if weight.dim() < 4 else 0.02)
    return model, {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def encode_for_rllib(space, observations):
    """Return the input of RLlib's network for observations."""
    if not isinstance(space, gym.spaces.Dict):
        return {"obs": torch.from_numpy(np.stack(observations))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.rllib.models.modelv2 import restore_original_dimensions
        from ray.rllib.models.preprocessors import get_preprocessor

    preprocessor = get_preprocessor(space)(space)
    rows = [preprocessor.transform(obs) for obs in observations]
    flat = torch.from_numpy(np.stack(rows).astype(np.float32))
    return {
        "obs": restore_original_dimensions(flat, preprocessor.observation_space, "torch"),
        "obs_flat": flat,
    }


#: Observation space, the config in both, and what is added to ours.
NETWORKS = {
    "fcnet": (VECTOR, TWO_LAYERS, {}),
    "fcnet, separate value": (VECTOR, {**TWO_LAYERS, "vf_share_layers": False}, {}),
    "fcnet, free_log_std": (VECTOR, {**TWO_LAYERS, "free_log_std": True}, {}),
    "fcnet, post": (
        VECTOR,
        {**TWO_LAYERS, "post_fcnet_hiddens": [7], "post_fcnet_activation": "tanh"},
        {},
    ),
    "fcnet, no layers": (VECTOR, {"fcnet_hiddens": []}, {}),
    "visionnet": (IMAGE, {"conv_activation": "tanh"}, UNSCALED),
    "visionnet, separate value": (IMAGE, {"vf_share_layers": False}, UNSCALED),
    "complex": (MIXED, {"fcnet_hiddens": [5], "post_fcnet_hiddens": [7]}, UNSCALED),
    "complex, separate value": (
        MIXED,
        {"fcnet_hiddens": [5], "vf_share_layers": False},
        {**UNSCALED, "vf_share_layers": True},
    ),
}


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("network", NETWORKS)
def test_network_acts_like_that_of_rllib(network, framework):
    space, config, more = NETWORKS[network]
    model, weights = build_rllib_model(space, config)
    has_free_log_std = "free_log_std" in config
    actions = gym.spaces.Box(-1, 1, (2,)) if has_free_log_std else FOUR_ACTIONS
    policy = rlcatalog.build(space, actions, {**config, **more}, framework)
    observations = draw_observations(space)

    load_rllib_weights(policy, weights)
    step = policy.act_encoded(policy.preprocess(observations), explore=False)

    outputs, _ = model(encode_for_rllib(space, observations), [], None)
    assert_close(step.dist_inputs, outputs.detach().numpy())
    assert_close(step.value, model.value_function().detach().numpy())
    if not has_free_log_std:
        # The outputs depend on the observations.
        assert np.ptp(step.dist_inputs, axis=0).min() > 1e-3


@pytest.fixture(params=[False, True], ids=["", "no_final_linear"])
def no_final_linear(request):
    """A config key that has no effect under a memory, here as in RLlib."""
    return {"no_final_linear": True} if request.param else {}


def build_with_memory(config, framework):
    """Build a policy, which warns of `no_final_linear`."""
    if "no_final_linear" not in config:
        return rlcatalog.build(VECTOR, FOUR_ACTIONS, config, framework)
    with pytest.warns(UnreadKeysWarning, match="no_final_linear"):
        return rlcatalog.build(VECTOR, FOUR_ACTIONS, config, framework)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_lstm_acts_like_that_of_rllib_over_steps(framework, no_final_linear):
    config = {**LSTM, **no_final_linear}
    model, weights = build_rllib_model(VECTOR, config)
    policy = build_with_memory(config, framework)
    random = np.random.default_rng(0)

    load_rllib_weights(policy, weights)

    state = None
    rllib_state = [torch.zeros(2, 6), torch.zeros(2, 6)]
    for t in range(4):
        obs = random.normal(size=(2, 3)).astype(np.float32)
        reward = np.full(2, 0.5 * t, np.float32)
        step = policy.act(obs, state, prev_reward=reward, explore=False)
        inputs = {"obs": torch.from_numpy(obs), "prev_rewards": torch.from_numpy(reward)}
        outputs, rllib_state = model(inputs, rllib_state, torch.ones(2, dtype=torch.int32))
        assert_close(step.dist_inputs, outputs.detach().numpy())
        assert_close(step.value, model.value_function().detach().numpy())
        h, c = rllib_state
        assert_close(step.state.memory[0], h.detach().numpy())
        assert_close(step.state.memory[1], c.detach().numpy())
        state = step.state


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_attention_with_a_full_memory_acts_like_that_of_rllib(framework, no_final_linear):
    config = {**ATTENTION, **no_final_linear}
    # With layers for a separate value, which RLlib does not read under a memory.
    model, weights = build_rllib_model(VECTOR, {**config, "vf_share_layers": False})
    policy = build_with_memory(config, framework)
    random = np.random.default_rng(0)
    obs = random.normal(size=(2, 3)).astype(np.float32)
    memory = random.normal(size=(2, 2, 4, 8)).astype(np.float32)  # 2 rows, 2 units, 4 steps

    # Before the memory is full, RLlib's differs: see test_rllib_attention.py.
    with pytest.warns(CatalogWarning, match="in the first 8 steps of every episode"):
        load_rllib_weights(policy, weights)
    used = np.full(2, 4, np.int32)
    state = policy.initial_state(2)._replace(memory=(memory, used))
    step = policy.act(obs, state, explore=False)

    rllib_memory = [torch.from_numpy(memory[:, 0]), torch.from_numpy(memory[:, 1])]
    outputs, new_memory = model(
        {"obs": torch.from_numpy(obs)}, rllib_memory, torch.ones(2, dtype=torch.int32)
    )
    assert_close(step.dist_inputs, outputs.detach().numpy())
    assert_close(step.value, model.value_function().detach().numpy())
    newest = step.state.memory[0][:, :, -1]
    assert_close(newest[:, 0], new_memory[0].detach().numpy())
    assert_close(newest[:, 1], new_memory[1].detach().numpy())


# --- TensorFlow's names ---------------------------------------------------------------------------

#: The names that RLlib's policies give a variable.
STATIC_GRAPH = "default_policy/{}"
EAGER = "{}:0"


def name_weights(model, form):
    """Return the weights of a Keras model under the names of RLlib."""
    return {form.format(variable.path): variable.numpy() for variable in model.weights}


def set_random_weights(model):
    random = np.random.default_rng(0)
    weights = []
    for array in model.get_weights():
        weights.append(random.normal(0, 0.3 if array.ndim < 4 else 0.02, array.shape))
    model.set_weights(weights)
    return model


def build_keras_fcnet(share):
    """Build a fully connected network with the layers and names of RLlib's."""
    layers = tf.keras.layers
    inputs = layers.Input((3,))
    hidden = layers.Dense(6, "tanh", name="fc_1")(inputs)
    features = layers.Dense(5, "tanh", name="fc_2")(hidden)
    value_features = features
    if not share:
        value_hidden = layers.Dense(6, "tanh", name="fc_value_1")(inputs)
        value_features = layers.Dense(5, "tanh", name="fc_value_2")(value_hidden)
    outputs = layers.Dense(4, name="fc_out")(features)
    value = layers.Dense(1, name="value_out")(value_features)
    return set_random_weights(tf.keras.Model(inputs, [outputs, value]))


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("form", [STATIC_GRAPH, EAGER], ids=["static graph", "eager"])
@pytest.mark.parametrize("share", [True, False], ids=["shared-value", "separate-value"])
def test_fcnet_reads_weights_with_names_of_tensorflow(share, form, framework):
    keras_model = build_keras_fcnet(share)
    config = {"fcnet_hiddens": [6, 5], "vf_share_layers": share}
    policy = rlcatalog.build(VECTOR, FOUR_ACTIONS, config, framework)
    obs = np.stack(draw_observations(VECTOR))

    load_rllib_weights(policy, name_weights(keras_model, form))
    step = policy.act(obs, explore=False)

    outputs, values = keras_model(obs)
    assert_close(step.dist_inputs, outputs)
    assert_close(step.value, values[:, 0])


def test_visionnet_reads_weights_with_names_of_tensorflow():
    layers = tf.keras.layers
    inputs = layers.Input((42, 42, 3))
    x = layers.Conv2D(16, 4, 2, "same", activation="relu", name="conv1")(inputs)
    x = layers.Conv2D(32, 4, 2, "same", activation="relu", name="conv2")(x)
    x = layers.Conv2D(256, 11, 1, "valid", activation="relu", name="conv3")(x)
    outputs = layers.Conv2D(4, 1, name="conv_out")(x)
    values = layers.Dense(1, name="value_out")(layers.Reshape((256,))(x))
    keras_model = set_random_weights(tf.keras.Model(inputs, [outputs, values]))
    policy = rlcatalog.build(IMAGE, FOUR_ACTIONS, {"image_scale": False}, "torch")
    images = np.stack(draw_observations(IMAGE))

    load_rllib_weights(policy, name_weights(keras_model, STATIC_GRAPH))
    step = policy.act(images, explore=False)

    outputs, values = keras_model(images.astype(np.float32))
    # They are numbers in the hundreds.
    np.testing.assert_allclose(step.dist_inputs, outputs[:, 0, 0], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(step.value, values[:, 0], rtol=1e-4, atol=1e-3)


def test_lstm_reads_weights_with_names_of_tensorflow():
    layers = tf.keras.layers
    inputs = layers.Input((None, 3))
    x = layers.Dense(6, "tanh", name="fc_1")(inputs)
    x = layers.Dense(5, "tanh", name="fc_2")(x)
    x = layers.LSTM(6, return_sequences=True, name="lstm")(x)
    outputs = layers.Dense(4, name="logits")(x)
    values = layers.Dense(1, name="values")(x)
    keras_model = set_random_weights(tf.keras.Model(inputs, [outputs, values]))
    policy = rlcatalog.build(VECTOR, FOUR_ACTIONS, {**LSTM, "lstm_use_prev_reward": False}, "torch")
    obs = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)

    # RLlib also saves the value of the network below the LSTM, which nothing reads.
    weights = name_weights(keras_model, STATIC_GRAPH)
    weights["default_policy/value_out/kernel"] = np.zeros((5, 1))
    weights["default_policy/value_out/bias"] = np.zeros(1)
    load_rllib_weights(policy, weights)

    outputs, values = keras_model(obs)
    state = None
    for t in range(4):
        step = policy.act(obs[:, t], state, explore=False)
        assert_close(step.dist_inputs, outputs[:, t])
        assert_close(step.value, values[:, t, 0])
        state = step.state


# --- custom models --------------------------------------------------------------------------------


class PortedModel(TorchModelV2, nn.Module):
    """As in RLlib's examples: a network of RLlib inside, and layers of its own."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.torch_sub_model = TorchFC(obs_space, action_space, num_outputs, model_config, name)
        self.branch = nn.Sequential(SlimFC(3, 4), SlimFC(4, num_outputs))

    def forward(self, input_dict, state, seq_lens):
        logits, _ = self.torch_sub_model({"obs": input_dict["obs"].float()}, state, seq_lens)
        return logits + self.branch(input_dict["obs_flat"].float()), []

    def value_function(self):
        return self.torch_sub_model.value_function()


def test_ported_model_reads_rllib_names_and_its_own():
    model, rllib_weights = build_rllib_model(VECTOR, TWO_LAYERS)
    random = np.random.default_rng(0)
    weights = {f"torch_sub_model.{name}": array for name, array in rllib_weights.items()}
    for i, inputs in enumerate((3, 4)):
        layer = f"branch.{i}._model.0"
        weights[f"{layer}.weight"] = random.normal(size=(4, inputs)).astype(np.float32)
        weights[f"{layer}.bias"] = random.normal(size=4).astype(np.float32)
    policy = rlcatalog.build(
        VECTOR, FOUR_ACTIONS, {**TWO_LAYERS, "custom_model": PortedModel}, "torch"
    )
    obs = np.stack(draw_observations(VECTOR))

    load_rllib_weights(policy, weights)
    step = policy.act(obs, explore=False)

    outputs, _ = model({"obs": torch.from_numpy(obs)}, [], None)
    branch = obs
    for i in range(2):
        layer = f"branch.{i}._model.0"
        branch = branch @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]
    expected = outputs.detach().numpy() + branch
    np.testing.assert_allclose(step.dist_inputs, expected, rtol=1e-5, atol=1e-5)
    assert_close(step.value, model.value_function().detach().numpy())


def test_ported_keras_model_reads_the_names_of_its_layers():
    class KerasModel(TFModelV2):
        def __init__(self, *args):
            super().__init__(*args)
            inputs = tf.keras.layers.Input((3,), name="observations")
            x = tf.keras.layers.Dense(5, "tanh", name="my_layer1")(inputs)
            outputs = tf.keras.layers.Dense(4, name="my_out")(x)
            value = tf.keras.layers.Dense(1, name="value_out")(x)
            self.base_model = tf.keras.Model(inputs, [outputs, value])

        def forward(self, input_dict, state, seq_lens):
            outputs, self._value_out = self.base_model(input_dict["obs"])
            return outputs, state

        def value_function(self):
            return tf.reshape(self._value_out, [-1])

    policy = rlcatalog.build(VECTOR, FOUR_ACTIONS, {"custom_model": KerasModel}, "tf")
    other_policy = rlcatalog.build(VECTOR, FOUR_ACTIONS, {"custom_model": KerasModel}, "tf")
    keras_model = set_random_weights(other_policy.model.base_model)
    obs = np.stack(draw_observations(VECTOR))

    load_rllib_weights(policy, name_weights(keras_model, STATIC_GRAPH))

    outputs, _ = keras_model(obs)
    assert_close(policy.act(obs, explore=False).dist_inputs, outputs)


# --- forms of weights -----------------------------------------------------------------------------


def test_weights_by_policy_are_read():
    _, weights = build_rllib_model(VECTOR, TWO_LAYERS)
    policy = rlcatalog.build(VECTOR, FOUR_ACTIONS, TWO_LAYERS, "torch")
    expected = rlcatalog.build(VECTOR, FOUR_ACTIONS, TWO_LAYERS, "torch")
    load_rllib_weights(expected, weights)

    # As `Algorithm.get_weights` returns them.
    load_rllib_weights(policy, {"default_policy": weights})

    for name, array in policy.model.get_weights().items():
        np.testing.assert_array_equal(array, expected.model.get_weights()[name])


def test_state_dict_is_read_into_a_model():
    model, weights = build_rllib_model(VECTOR, TWO_LAYERS)
    policy = rlcatalog.build(VECTOR, FOUR_ACTIONS, TWO_LAYERS, "torch")
    expected = rlcatalog.build(VECTOR, FOUR_ACTIONS, TWO_LAYERS, "torch")
    load_rllib_weights(expected, weights)

    load_rllib_weights(policy.model, model.state_dict())

    for name, array in policy.model.get_weights().items():
        np.testing.assert_array_equal(array, expected.model.get_weights()[name])


# --- weights that do not fit ----------------------------------------------------------------------


@pytest.fixture
def deeper_policy():
    """A policy with another and a further layer than the weights of `TWO_LAYERS` have."""
    return rlcatalog.build(VECTOR, FOUR_ACTIONS, {"fcnet_hiddens": [6, 7, 5]}, "torch")


def test_weights_of_another_network_are_listed(deeper_policy):
    _, weights = build_rllib_model(VECTOR, {"fcnet_hiddens": [6, 5]})
    weights["extra.weight"] = np.zeros(2)

    with pytest.raises(ModelContractError) as caught:
        load_rllib_weights(deeper_policy, weights)

    message = str(caught.value)
    assert "Missing: ['hidden.layers.2.weight', 'hid" in message
    assert "unused: ['extra.weight']" in message
    assert "hidden.layers.1.weight (7, 6), given (5, 6)" in message


def test_weights_of_another_network_change_nothing(deeper_policy):
    _, weights = build_rllib_model(VECTOR, {"fcnet_hiddens": [6, 5]})
    before = deeper_policy.model.get_weights()

    with pytest.raises(ModelContractError):
        load_rllib_weights(deeper_policy, {**weights, "extra.weight": np.zeros(2)})

    for name, array in deeper_policy.model.get_weights().items():
        np.testing.assert_array_equal(array, before[name])


def test_weights_of_a_separate_value_do_not_fit_a_shared_one():
    policy = rlcatalog.build(VECTOR, FOUR_ACTIONS, TWO_LAYERS, "torch")
    _, weights = build_rllib_model(VECTOR, {**TWO_LAYERS, "vf_share_layers": False})

    with pytest.raises(ModelContractError, match=r"unused: \['_value_branch_separate\.") as caught:
        load_rllib_weights(policy, weights)

    assert "Missing: none; unused: " in str(caught.value)


def test_weights_of_an_lstm_do_not_fit_a_separate_value():
    # RLlib's LSTM always shares its layers.
    policy = rlcatalog.build(VECTOR, FOUR_ACTIONS, {**LSTM, "vf_share_layers": False}, "torch")
    _, weights = build_rllib_model(VECTOR, LSTM)

    with pytest.raises(ModelContractError, match=r"Missing: \['value_trunk\."):
        load_rllib_weights(policy, weights)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        pytest.param([np.zeros(3)], "expected a dictionary, found list", id="list"),
        pytest.param(
            "checkpoint-100",
            r"expected a dictionary, found str\. Files are not supported",
            id="path",
        ),
        pytest.param(
            {"a": {}, "b": {}},
            r"several policies, \['a', 'b'\]; pass the weights",
            id="two-policies",
        ),
    ],
)
def test_weights_in_another_form_are_an_error(weights, message):
    policy = rlcatalog.build(VECTOR, FOUR_ACTIONS, TWO_LAYERS, "torch")

    with pytest.raises(NotServedError, match=message):
        load_rllib_weights(policy, weights)


def test_attention_weights_of_tensorflow_are_an_error():
    policy = rlcatalog.build(VECTOR, FOUR_ACTIONS, ATTENTION, "torch")

    with pytest.raises(NotServedError, match="does not name its variables"):
        load_rllib_weights(policy, {"default_policy/mha_1/w:0": np.zeros(2)})


@pytest.mark.parametrize(
    ("space", "config", "message"),
    [
        pytest.param(IMAGE, {}, "Build the policy with image_scale=False", id="scaled-images"),
        pytest.param(
            BYTES,
            TWO_LAYERS,
            r"scales the Box.* Build the policy with scale_integers=False",
            id="scaled-integers",
        ),
        pytest.param(
            IMAGE,
            {**UNSCALED, "post_fcnet_hiddens": [4]},
            "the same weights would behave differently",
            id="post-layers-behind-a-visionnet",
        ),
        pytest.param(
            VECTOR,
            {**TWO_LAYERS, "post_fcnet_hiddens": [4]},
            "with post_fcnet_activation='tanh'",
            id="post-layers-with-another-activation",
        ),
    ],
)
def test_policy_that_would_act_differently_is_an_error(space, config, message):
    policy = rlcatalog.build(space, FOUR_ACTIONS, config, "torch")

    with pytest.raises(ConfigError, match=message):
        load_rllib_weights(policy, {})
