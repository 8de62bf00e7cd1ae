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

THREE_NUMBERS = gym.spaces.Box(-1, 1, (3,), np.float32)
IMAGE_42x42 = gym.spaces.Box(0, 255, (42, 42, 3), np.uint8)
BYTES = gym.spaces.Box(0, 255, (3,), np.uint8)
MIXED = gym.spaces.Dict({"a": THREE_NUMBERS, "d": gym.spaces.Discrete(3), "img": IMAGE_42x42})
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


#: Observation space, config in RLlib and in rlcatalog, and keys that only rlcatalog has.
each_network = pytest.mark.parametrize(
    ("space", "config", "own_keys"),
    [
        pytest.param(THREE_NUMBERS, TWO_LAYERS, {}, id="fcnet"),
        pytest.param(
            THREE_NUMBERS, {**TWO_LAYERS, "vf_share_layers": False}, {}, id="fcnet, separate value"
        ),
        pytest.param(
            THREE_NUMBERS,
            {**TWO_LAYERS, "post_fcnet_hiddens": [7], "post_fcnet_activation": "tanh"},
            {},
            id="fcnet, post",
        ),
        pytest.param(THREE_NUMBERS, {"fcnet_hiddens": []}, {}, id="fcnet, no layers"),
        pytest.param(IMAGE_42x42, {"conv_activation": "tanh"}, UNSCALED, id="visionnet"),
        pytest.param(
            IMAGE_42x42, {"vf_share_layers": False}, UNSCALED, id="visionnet, separate value"
        ),
        pytest.param(
            MIXED, {"fcnet_hiddens": [5], "post_fcnet_hiddens": [7]}, UNSCALED, id="complex"
        ),
        pytest.param(
            MIXED,
            {"fcnet_hiddens": [5], "vf_share_layers": False},
            {**UNSCALED, "vf_share_layers": True},
            id="complex, separate value",
        ),
    ],
)


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@each_network
def test_network_acts_like_that_of_rllib(space, config, own_keys, framework):
    rllib_model, weights = build_rllib_model(space, config)
    policy = rlcatalog.build(space, FOUR_ACTIONS, {**config, **own_keys}, framework)
    observations = draw_observations(space)

    load_rllib_weights(policy, weights)
    step = policy.act_encoded(policy.preprocess(observations), explore=False)

    outputs, _ = rllib_model(encode_for_rllib(space, observations), [], None)
    assert_close(step.dist_inputs, outputs.detach().numpy())
    assert_close(step.value, rllib_model.value_function().detach().numpy())
    # The outputs depend on the observations.
    assert np.ptp(step.dist_inputs, axis=0).min() > 1e-3


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_free_log_std_acts_like_that_of_rllib(framework):
    config = {"fcnet_hiddens": [6, 5], "free_log_std": True}
    # The network has four outputs: two means, and the logarithms of two standard deviations.
    rllib_model, weights = build_rllib_model(THREE_NUMBERS, config)
    policy = rlcatalog.build(THREE_NUMBERS, gym.spaces.Box(-1, 1, (2,)), config, framework)
    obs = np.array([[0.1, -0.2, 0.3]], np.float32)

    load_rllib_weights(policy, weights)
    step = policy.act(obs, explore=False)

    outputs, _ = rllib_model({"obs": torch.from_numpy(obs)}, [], None)
    assert_close(step.dist_inputs, outputs.detach().numpy())


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_key_no_final_linear_has_no_effect_under_a_memory(framework):
    config = {**LSTM, "no_final_linear": True}
    _, weights = build_rllib_model(THREE_NUMBERS, config)  # RLlib ignores the key here too
    with pytest.warns(UnreadKeysWarning, match="no_final_linear"):
        policy = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, config, framework)
    policy_without_key = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, LSTM, framework)
    obs = np.zeros((2, 3), np.float32)

    load_rllib_weights(policy, weights)
    load_rllib_weights(policy_without_key, weights)

    expected = policy_without_key.act(obs, explore=False).dist_inputs
    assert_close(policy.act(obs, explore=False).dist_inputs, expected)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_lstm_acts_like_that_of_rllib_over_steps(framework):
    # An LSTM of six units, which reads the last reward.
    rllib_model, weights = build_rllib_model(THREE_NUMBERS, LSTM)
    policy = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, LSTM, framework)
    load_rllib_weights(policy, weights)
    obs = np.array([[0.1, -0.2, 0.3], [0.5, 0.4, -0.6]], np.float32)

    state = None
    rllib_state = [torch.zeros(2, 6), torch.zeros(2, 6)]
    for last_reward in (0.0, 0.5, 1.0):
        rewards = np.array([last_reward, last_reward], np.float32)
        step = policy.act(obs, state, prev_reward=rewards, explore=False)
        state = step.state
        inputs = {"obs": torch.from_numpy(obs), "prev_rewards": torch.from_numpy(rewards)}
        outputs, rllib_state = rllib_model(inputs, rllib_state, seq_lens=torch.tensor([1, 1]))

        assert_close(step.dist_inputs, outputs.detach().numpy())
        assert_close(step.value, rllib_model.value_function().detach().numpy())
        assert_close(state.memory[0], rllib_state[0].detach().numpy())
        assert_close(state.memory[1], rllib_state[1].detach().numpy())


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_attention_with_a_full_memory_acts_like_that_of_rllib(framework):
    # RLlib does not read the layers for a separate value under a memory.
    rllib_model, weights = build_rllib_model(THREE_NUMBERS, {**ATTENTION, "vf_share_layers": False})
    policy = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, ATTENTION, framework)
    # Before the memory is full, RLlib's outputs differ: see test_rllib_attention.py.
    with pytest.warns(CatalogWarning, match="in the first 8 steps of every episode"):
        load_rllib_weights(policy, weights)
    random = np.random.default_rng(0)
    obs = random.normal(size=(2, 3)).astype(np.float32)
    # For each of two rows and two units, four vectors of eight numbers.
    memory = random.normal(size=(2, 2, 4, 8)).astype(np.float32)

    vectors_in_use = np.array([4, 4], np.int32)
    state = policy.initial_state(2)._replace(memory=(memory, vectors_in_use))
    step = policy.act(obs, state, explore=False)

    first_unit, second_unit = torch.from_numpy(memory).unbind(1)
    outputs, new_vectors = rllib_model(
        {"obs": torch.from_numpy(obs)}, [first_unit, second_unit], seq_lens=torch.tensor([1, 1])
    )
    assert_close(step.dist_inputs, outputs.detach().numpy())
    assert_close(step.value, rllib_model.value_function().detach().numpy())
    newest = step.state.memory[0][:, :, -1]
    assert_close(newest[:, 0], new_vectors[0].detach().numpy())
    assert_close(newest[:, 1], new_vectors[1].detach().numpy())


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


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("share", [True, False], ids=["shared-value", "separate-value"])
def test_fcnet_reads_weights_with_names_of_tensorflow(share, framework):
    keras_model = build_keras_fcnet(share)
    config = {"fcnet_hiddens": [6, 5], "vf_share_layers": share}
    policy = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, config, framework)
    obs = np.stack(draw_observations(THREE_NUMBERS))

    load_rllib_weights(policy, name_weights(keras_model, STATIC_GRAPH))
    step = policy.act(obs, explore=False)

    outputs, values = keras_model(obs)
    assert_close(step.dist_inputs, outputs)
    assert_close(step.value, values[:, 0])


def test_names_of_eager_tensorflow_are_those_of_a_static_graph():
    keras_model = build_keras_fcnet(share=True)
    policy = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, TWO_LAYERS, "torch")
    expected = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, TWO_LAYERS, "torch")

    load_rllib_weights(policy, name_weights(keras_model, EAGER))
    load_rllib_weights(expected, name_weights(keras_model, STATIC_GRAPH))

    for name, weight in policy.model.get_weights().items():
        np.testing.assert_array_equal(weight, expected.model.get_weights()[name])


def test_visionnet_reads_weights_with_names_of_tensorflow():
    # RLlib's network for images of 42 x 42 pixels, with its names of layers.
    layers = tf.keras.layers
    inputs = layers.Input((42, 42, 3))
    x = layers.Conv2D(16, 4, 2, "same", activation="relu", name="conv1")(inputs)
    x = layers.Conv2D(32, 4, 2, "same", activation="relu", name="conv2")(x)
    x = layers.Conv2D(256, 11, 1, "valid", activation="relu", name="conv3")(x)
    outputs = layers.Conv2D(4, 1, name="conv_out")(x)
    values = layers.Dense(1, name="value_out")(layers.Reshape((256,))(x))
    keras_model = set_random_weights(tf.keras.Model(inputs, [outputs, values]))
    policy = rlcatalog.build(IMAGE_42x42, FOUR_ACTIONS, {"image_scale": False}, "torch")
    images = np.stack(draw_observations(IMAGE_42x42))

    load_rllib_weights(policy, name_weights(keras_model, STATIC_GRAPH))
    step = policy.act(images, explore=False)

    outputs, values = keras_model(images.astype(np.float32))
    # The outputs are images of one pixel. They are in the hundreds, because bytes are not
    # scaled, so the tolerance is high.
    np.testing.assert_allclose(step.dist_inputs, outputs[:, 0, 0], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(step.value, values[:, 0], rtol=1e-4, atol=1e-3)


def test_lstm_reads_weights_with_names_of_tensorflow():
    # RLlib's network with an LSTM, and its names of layers.
    layers = tf.keras.layers
    inputs = layers.Input((None, 3))
    x = layers.Dense(6, "tanh", name="fc_1")(inputs)
    x = layers.Dense(5, "tanh", name="fc_2")(x)
    x = layers.LSTM(6, return_sequences=True, name="lstm")(x)
    outputs = layers.Dense(4, name="logits")(x)
    values = layers.Dense(1, name="values")(x)
    keras_model = set_random_weights(tf.keras.Model(inputs, [outputs, values]))
    weights = name_weights(keras_model, STATIC_GRAPH)
    # RLlib also saves the value of the network below the LSTM, which nothing reads.
    weights["default_policy/value_out/kernel"] = np.zeros((5, 1))
    weights["default_policy/value_out/bias"] = np.zeros(1)
    policy = rlcatalog.build(
        THREE_NUMBERS, FOUR_ACTIONS, {**LSTM, "lstm_use_prev_reward": False}, "torch"
    )

    load_rllib_weights(policy, weights)

    two_sequences = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    outputs, values = keras_model(two_sequences)
    state = None
    for t in range(4):
        step = policy.act(two_sequences[:, t], state, explore=False)
        state = step.state
        assert_close(step.dist_inputs, outputs[:, t])
        assert_close(step.value, values[:, t, 0])


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
    rllib_model, rllib_weights = build_rllib_model(THREE_NUMBERS, TWO_LAYERS)
    # The model adds two outputs: of a network of RLlib, and of two layers, its "branch".
    first_kernel = np.full((4, 3), 0.5, np.float32)
    second_kernel = np.full((4, 4), -0.25, np.float32)
    weights = {f"torch_sub_model.{name}": weight for name, weight in rllib_weights.items()}
    weights["branch.0._model.0.weight"] = first_kernel
    weights["branch.0._model.0.bias"] = np.zeros(4)
    weights["branch.1._model.0.weight"] = second_kernel
    weights["branch.1._model.0.bias"] = np.ones(4)
    config = {**TWO_LAYERS, "custom_model": PortedModel}
    policy = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, config, "torch")
    obs = np.array([[0.1, -0.2, 0.4]], np.float32)

    load_rllib_weights(policy, weights)
    step = policy.act(obs, explore=False)

    rllib_outputs, _ = rllib_model({"obs": torch.from_numpy(obs)}, [], None)
    branch_outputs = obs @ first_kernel.T @ second_kernel.T + 1  # its last bias is 1
    assert_close(step.dist_inputs, rllib_outputs.detach().numpy() + branch_outputs)
    assert_close(step.value, rllib_model.value_function().detach().numpy())


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

    policy = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, {"custom_model": KerasModel}, "tf")
    saved_policy = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, {"custom_model": KerasModel}, "tf")
    saved_model = set_random_weights(saved_policy.model.base_model)

    load_rllib_weights(policy, name_weights(saved_model, STATIC_GRAPH))

    obs = np.stack(draw_observations(THREE_NUMBERS))
    expected, _ = saved_model(obs)
    assert_close(policy.act(obs, explore=False).dist_inputs, expected)


# --- forms of weights -----------------------------------------------------------------------------


def test_weights_that_no_keras_layer_takes_are_an_error():
    """One layer is found by its name; this does not make the weights of others fit."""

    class KerasModel(TFModelV2):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.layer = tf.keras.layers.Dense(num_outputs, name="my_layer")
            self.layer.build((None, 3))

        def forward(self, input_dict, state, seq_lens):
            return self.layer(input_dict["obs_flat"]), state

        def value_function(self):
            return tf.zeros([1])

    policy = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, {"custom_model": KerasModel}, "tf")
    weights = {
        "default_policy/my_layer/kernel:0": np.ones((3, 4), np.float32),
        "default_policy/my_layer/bias:0": np.ones(4, np.float32),
    }
    load_rllib_weights(policy, weights)
    weights["default_policy/other_layer/kernel:0"] = np.ones((4, 4), np.float32)

    with pytest.raises(ModelContractError, match=r"unused: .*other_layer"):
        load_rllib_weights(policy, weights)


def test_weights_by_policy_are_read():
    _, weights = build_rllib_model(THREE_NUMBERS, TWO_LAYERS)
    policy = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, TWO_LAYERS, "torch")
    expected = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, TWO_LAYERS, "torch")
    load_rllib_weights(expected, weights)

    # As `Algorithm.get_weights` returns them.
    load_rllib_weights(policy, {"default_policy": weights})

    for name, array in policy.model.get_weights().items():
        np.testing.assert_array_equal(array, expected.model.get_weights()[name])


def test_state_dict_is_read_into_a_model():
    model, weights = build_rllib_model(THREE_NUMBERS, TWO_LAYERS)
    policy = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, TWO_LAYERS, "torch")
    expected = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, TWO_LAYERS, "torch")
    load_rllib_weights(expected, weights)

    load_rllib_weights(policy.model, model.state_dict())

    for name, array in policy.model.get_weights().items():
        np.testing.assert_array_equal(array, expected.model.get_weights()[name])


# --- weights that do not fit ----------------------------------------------------------------------


def test_weights_of_another_network_are_listed():
    policy = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, {"fcnet_hiddens": [6, 7, 5]}, "torch")
    _, weights = build_rllib_model(THREE_NUMBERS, {"fcnet_hiddens": [6, 5]})
    weights["extra.weight"] = np.zeros(2)
    weights_before = policy.model.get_weights()

    with pytest.raises(ModelContractError) as caught:
        load_rllib_weights(policy, weights)

    message = str(caught.value)
    # The policy has a third layer, and a second one of another shape.
    assert "Missing: ['hidden.layers.2.weight', 'hid" in message
    assert "unused: ['extra.weight']" in message
    assert "hidden.layers.1.weight (7, 6), given (5, 6)" in message
    # The weights that fit are not loaded either.
    for name, weight in policy.model.get_weights().items():
        np.testing.assert_array_equal(weight, weights_before[name])


def test_weights_of_a_separate_value_do_not_fit_a_shared_one():
    policy = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, TWO_LAYERS, "torch")
    _, weights = build_rllib_model(THREE_NUMBERS, {**TWO_LAYERS, "vf_share_layers": False})

    with pytest.raises(ModelContractError, match=r"unused: \['_value_branch_separate\.") as caught:
        load_rllib_weights(policy, weights)

    assert "Missing: none; unused: " in str(caught.value)


def test_weights_of_an_lstm_do_not_fit_a_separate_value():
    # RLlib's LSTM always shares its layers.
    policy = rlcatalog.build(
        THREE_NUMBERS, FOUR_ACTIONS, {**LSTM, "vf_share_layers": False}, "torch"
    )
    _, weights = build_rllib_model(THREE_NUMBERS, LSTM)

    with pytest.raises(ModelContractError, match=r"Missing: \['value_trunk\."):
        load_rllib_weights(policy, weights)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        pytest.param([np.zeros(3)], "expected a dictionary, found list", id="list"),
        pytest.param(
            "checkpoint-100",
            r"expected a dictionary, found str\.",
            id="path",
        ),
        pytest.param(
            {"a": {}, "b": {}},
            r"several policies, \['a', 'b'\]",
            id="two-policies",
        ),
    ],
)
def test_weights_in_another_form_are_an_error(weights, message):
    policy = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, TWO_LAYERS, "torch")

    with pytest.raises(NotServedError, match=message):
        load_rllib_weights(policy, weights)


def test_attention_weights_of_tensorflow_are_an_error():
    policy = rlcatalog.build(THREE_NUMBERS, FOUR_ACTIONS, ATTENTION, "torch")

    with pytest.raises(NotServedError, match="does not name its variables"):
        load_rllib_weights(policy, {"default_policy/mha_1/w:0": np.zeros(2)})


@pytest.mark.parametrize(
    ("space", "config", "message"),
    [
        pytest.param(
            IMAGE_42x42, {}, "Build the policy with image_scale=False", id="scaled-images"
        ),
        pytest.param(
            BYTES,
            TWO_LAYERS,
            "scales the Box.* scale_integers=False",
            id="scaled-integers",
        ),
        pytest.param(
            IMAGE_42x42,
            {**UNSCALED, "post_fcnet_hiddens": [4]},
            "same weights would behave differently",
            id="post-layers-behind-a-visionnet",
        ),
        pytest.param(
            THREE_NUMBERS,
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
