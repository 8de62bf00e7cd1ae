"""Plain Keras layers and models as models: building, trial pass, copies, saving, and inputs."""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

import rlcatalog
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog_plain.tf import PlainModel
from rlcatalog_tf import TFLearner, keras, tf

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

FOUR_FEATURES = Box(-1, 1, (4,), np.float32)
TWO_OBSERVATIONS = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


class DropoutNet(keras.Model):
    """A dense layer, created at the first call, and dropout."""

    def __init__(self, space, hidden=8):
        super().__init__()
        self.module_space = space
        self.layer = keras.layers.Dense(hidden, activation="tanh")
        self.drop = keras.layers.Dropout(0.5)

    def call(self, obs):
        return self.drop(self.layer(obs))


class BatchNormLayer(keras.layers.Layer):
    """A layer that Keras cannot create again, because it has no `get_config`."""

    def __init__(self, space):
        super().__init__()
        self.inner = keras.Sequential([keras.layers.Dense(6)])
        self.norm = keras.layers.BatchNormalization()

    def call(self, obs):
        return self.norm(self.inner(obs))


class LogitsAndValueNet(keras.Model):
    """Takes `num_outputs`, and returns logits and value itself."""

    def __init__(self, space, num_outputs):
        super().__init__()
        self.logits = keras.layers.Dense(num_outputs)
        self.value = keras.layers.Dense(1)

    def call(self, obs):
        return self.logits(obs), self.value(obs)


def make_functional_model():
    inputs = keras.Input((4,))
    return keras.Model(inputs, keras.layers.Dense(5)(inputs))


def build_policy(model, config=None):
    return rlcatalog.build(FOUR_FEATURES, Discrete(3), config, "tf", model=model)


def apply_layer(weights, name, x):
    """Return the output of the dense layer with this name."""
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def act_greedily(policy):
    return policy.act(TWO_OBSERVATIONS, explore=False).dist_inputs


# --- building -------------------------------------------------------------------------------------


def test_layer_class_returns_features_below_logits_and_value():
    policy = build_policy(DropoutNet)

    step = policy.act(TWO_OBSERVATIONS)

    weights = policy.model.get_weights()
    # A dense layer with tanh; acting applies no dropout.
    features = np.tanh(apply_layer(weights, "module.layer", TWO_OBSERVATIONS))
    logits = apply_layer(weights, "outputs.logits", features)
    values = apply_layer(weights, "outputs.value", features)[:, 0]
    np.testing.assert_allclose(step.dist_inputs, logits, atol=1e-6)
    np.testing.assert_allclose(step.value, values, atol=1e-6)


def test_layer_class_receives_the_space():
    assert build_policy(DropoutNet).model.module.module_space == FOUR_FEATURES


def test_layer_with_num_outputs_returns_logits_and_value():
    policy = build_policy(LogitsAndValueNet)

    step = policy.act(TWO_OBSERVATIONS)

    weights = policy.model.get_weights()
    logits = apply_layer(weights, "module.logits", TWO_OBSERVATIONS)
    values = apply_layer(weights, "module.value", TWO_OBSERVATIONS)[:, 0]
    np.testing.assert_allclose(step.dist_inputs, logits, atol=1e-6)
    np.testing.assert_allclose(step.value, values, atol=1e-6)


def test_act_runs_without_dropout():
    policy = build_policy(DropoutNet, {"custom_model_config": {"hidden": 64}})

    np.testing.assert_array_equal(act_greedily(policy), act_greedily(policy))


def test_evaluate_runs_with_dropout():
    policy = build_policy(DropoutNet, {"custom_model_config": {"hidden": 64}})
    step = policy.act(TWO_OBSERVATIONS, explore=False)

    evaluation = policy.evaluate({"obs": TWO_OBSERVATIONS, "raw_action": step.raw_action})

    assert not np.allclose(evaluation.dist.inputs, step.dist_inputs, atol=1e-7)


@pytest.fixture(
    params=[
        pytest.param(DropoutNet, id="model-class"),
        pytest.param(BatchNormLayer, id="layer-class"),
        pytest.param(make_functional_model, id="function"),
        pytest.param(lambda space: DropoutNet(space, 4), id="lambda"),
        pytest.param(keras.layers.Dense(5), id="instance"),
        pytest.param(LogitsAndValueNet, id="num_outputs"),
    ]
)
def model_argument(request):
    """Anything that `build(..., model=...)` accepts."""
    return request.param


def test_log_probability_and_value_have_gradients(model_argument):
    policy = build_policy(model_argument)
    step = policy.act(TWO_OBSERVATIONS)

    with tf.GradientTape() as tape:
        evaluation = policy.evaluate({"obs": TWO_OBSERVATIONS, "raw_action": step.raw_action})
        loss = tf.reduce_sum(evaluation.logp) + tf.reduce_sum(evaluation.value)

    gradients = tape.gradient(loss, policy.model.trainable_variables())
    assert all(gradient is not None for gradient in gradients)


def test_saved_layer_is_loaded_with_its_code(model_argument, tmp_path):
    policy = build_policy(model_argument)
    policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path, model=model_argument)

    np.testing.assert_array_equal(act_greedily(loaded), act_greedily(policy))


def test_other_keras_backend_is_an_error(monkeypatch):
    # As if Keras ran on JAX.
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")

    with pytest.raises(NotServedError, match="Keras uses the backend 'jax'") as caught:
        build_policy(keras.layers.Dense(3))

    assert "Dense is a Keras layer, and Keras uses" in str(caught.value)


BUILD_A_KERAS_LAYER = """
import keras, gymnasium, rlcatalog

space = gymnasium.spaces.Box(-1, 1, (4,))
try:
    rlcatalog.build(space, gymnasium.spaces.Discrete(2), model=keras.layers.Dense(3))
except rlcatalog.errors.NotServedError as error:
    print(error)
"""


@pytest.mark.slow
def test_keras_backend_of_another_framework_is_an_error():
    process = subprocess.run(
        [sys.executable, "-c", BUILD_A_KERAS_LAYER],
        capture_output=True,
        text=True,
        env={**os.environ, "KERAS_BACKEND": "torch"},
        check=True,
    )

    expected = "Keras uses the backend 'torch', but framework='tf' needs 'tensorflow'"
    assert expected in process.stdout  # the script prints the error


# --- the trial pass, before anything is built around a layer --------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(lambda x: x[:, None], r"found \w+ of shape \(2, 1, 4\)", id="3-axes"),
        pytest.param(lambda x: tf.cast(x > 0, tf.int32), "floating-point features", id="integers"),
        pytest.param(
            lambda x: (x, [x]),
            "list of shape .*no state: set use_lstm",
            id="pair-with-a-state",
        ),
    ],
)
def test_layer_with_other_outputs_is_an_error(call, message):
    with pytest.raises(ModelContractError, match=message):
        build_policy(keras.layers.Lambda(call))


def test_layer_with_seq_lens_is_an_error():
    class TakesSeqLens(keras.layers.Layer):
        def call(self, obs, seq_lens=None):
            return obs

    with pytest.raises(NotServedError, match=r"takes seq_lens. .*use_lstm"):
        build_policy(TakesSeqLens)


class CountingLayer(keras.layers.Layer):
    """Counts its passes in a variable, and draws numbers."""

    def __init__(self):
        super().__init__()
        self.passes = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.built = True

    def call(self, obs):
        self.passes.assign_add(1.0)
        return obs + 0 * tf.random.normal(tf.shape(obs))


def run_trial_pass(layer):
    # Without outputs nothing but the trial pass calls the layer.
    num_outputs = None
    PlainModel.of(layer)(FOUR_FEATURES, Discrete(3), num_outputs, {}, "net")


def test_trial_pass_keeps_the_variables():
    layer = CountingLayer()

    run_trial_pass(layer)

    assert float(layer.passes) == 0.0


def test_trial_pass_keeps_the_random_state():
    layer = CountingLayer()
    tf.random.set_seed(3)
    first_draw = tf.random.normal([3]).numpy()
    tf.random.set_seed(3)

    run_trial_pass(layer)

    np.testing.assert_array_equal(tf.random.normal([3]).numpy(), first_draw)


# --- weights and copies ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "copy_policy",
    [pytest.param(lambda policy: policy, id="original"), pytest.param(copy.deepcopy, id="copy")],
)
def test_frozen_layers_are_not_trained(copy_policy):
    layer = keras.Sequential([keras.layers.Dense(6), keras.layers.Dense(5)])
    layer.layers[0].trainable = False
    policy = copy_policy(build_policy(layer))

    trained = policy.model.trainable_variables(as_dict=True)

    assert [name for name in trained if name.startswith("module")] == [
        "module.1.weight",
        "module.1.bias",
    ]
    assert len(TFLearner(policy).variables) == len(trained)


def build_weights(seed):
    TFLearner.seed(seed)
    return build_policy(DropoutNet).model.get_weights()["module.layer.weight"]


def test_seed_determines_the_weights_of_a_class():
    weights = build_weights(seed=1)

    np.testing.assert_array_equal(weights, build_weights(seed=1))
    assert not np.array_equal(weights, build_weights(seed=2))


@pytest.mark.parametrize(
    "make_layer",
    [
        pytest.param(make_functional_model, id="functional-model"),
        pytest.param(lambda: DropoutNet(FOUR_FEATURES), id="model"),
        pytest.param(lambda: BatchNormLayer(FOUR_FEATURES), id="layer"),
        pytest.param(lambda: keras.layers.Dense(3), id="keras-layer"),
    ],
)
def test_deepcopy_of_a_policy_has_its_own_layer(make_layer):
    layer = make_layer()
    policy = build_policy(layer)
    assert policy.model.module is layer
    before = act_greedily(policy)

    copied = copy.deepcopy(policy)
    np.testing.assert_array_equal(act_greedily(copied), before)
    for variable in copied.model.variables():
        variable.assign(tf.zeros_like(variable))

    assert not act_greedily(copied).any()  # with all weights 0
    np.testing.assert_array_equal(act_greedily(policy), before)


def test_separate_value_has_its_own_layer():
    policy = build_policy(DropoutNet, {"vf_share_layers": False})

    weights = policy.model.get_weights()

    assert not np.array_equal(weights["module.layer.weight"], weights["value_module.layer.weight"])


# --- inputs ---------------------------------------------------------------------------------------


class FlatteningLayer(keras.layers.Layer):
    """Keeps the space it was built with, and returns its inputs, flat and side by side."""

    def __init__(self, space):
        super().__init__()
        self.module_space = space

    def call(self, obs):
        flat_parts = []
        for part in tf.nest.flatten(obs):
            size = int(np.prod(part.shape[1:]))
            flat_parts.append(tf.reshape(part, [tf.shape(part)[0], size]))
        return tf.concat(flat_parts, 1)


def record_inputs(space, observations, config=None):
    """Return the space that a layer receives, and its inputs, flat and side by side."""
    policy = rlcatalog.build(space, Discrete(3), config, "tf", model=FlatteningLayer)
    model = policy.model
    model({"obs": tf.constant(policy.preprocess(observations))})
    return model.module.module_space, model._features.numpy()


@pytest.mark.parametrize(
    ("shape", "config"),
    [
        pytest.param((4, 18, 20), {}, id="recognized"),
        pytest.param((3, 5, 7), {"image_layout": "chw"}, id="image_layout-chw"),
    ],
)
def test_image_with_channels_first_has_them_last_in_keras(shape, config):
    channels, height, width = shape
    image = np.zeros(shape, np.uint8)
    image[:3, 1, 2] = [0, 51, 255]

    module_space, inputs = record_inputs(Box(0, 255, shape, np.uint8), [image], config)

    assert module_space == Box(0, 1, (height, width, channels), np.float32)
    pixels = inputs.reshape(height, width, channels)
    np.testing.assert_allclose(pixels[1, 2, :3], [0, 0.2, 1], rtol=1e-6)  # 51 / 255 = 0.2


def test_image_with_channels_last_is_scaled():
    image = np.zeros((5, 7, 3), np.uint8)
    image[1, 2] = [0, 51, 255]

    module_space, inputs = record_inputs(Box(0, 255, (5, 7, 3), np.uint8), [image])

    assert module_space == Box(0, 1, (5, 7, 3), np.float32)
    pixels = inputs.reshape(5, 7, 3)
    np.testing.assert_allclose(pixels[1, 2], [0, 0.2, 1], rtol=1e-6)  # 51 / 255 = 0.2


def test_dict_with_a_tuple_keeps_its_structure_without_mask():
    space = Dict(a=Tuple([FOUR_FEATURES, Discrete(3)]), action_mask=Box(0, 1, (3,), np.int8))
    obs = {"a": (np.float32([-1, 0, 0.5, 1]), 2), "action_mask": np.int8([1, 0, 1])}

    module_space, inputs = record_inputs(space, [obs])

    assert module_space == Dict(a=Tuple([FOUR_FEATURES, Box(0, 1, (3,), np.float32)]))
    np.testing.assert_array_equal(inputs, [[-1, 0, 0.5, 1, 0, 0, 1]])  # the vector, the one-hot
