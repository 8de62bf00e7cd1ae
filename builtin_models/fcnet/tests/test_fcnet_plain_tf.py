"""Plain Keras layers and models as models: how they are built, tried, trained, copied and saved,
and what they see.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

import rlcatalog
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError, UnknownNameError
from rlcatalog_fcnet.tf import PlainModel
from rlcatalog_tf import TFLearner, keras, tf

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

OBS = Box(-1, 1, (4,), np.float32)
IMAGE = Box(0, 255, (5, 7, 3), np.uint8)
ROWS = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


class Net(keras.Model):
    """A layer of a width that is asked for, which is made at the first call."""

    def __init__(self, space, hidden=8):
        super().__init__()
        self.shown_space = space
        self.layer, self.drop = (
            keras.layers.Dense(hidden, activation="tanh"),
            keras.layers.Dropout(0.5),
        )

    def call(self, obs):
        return self.drop(self.layer(obs))


class PlainLayer(keras.layers.Layer):
    """A layer with a batch norm inside, whose constructor Keras cannot repeat from a config."""

    def __init__(self, space):
        super().__init__()
        self.inner, self.norm = (
            keras.Sequential([keras.layers.Dense(6)]),
            keras.layers.BatchNormalization(),
        )

    def call(self, obs):
        return self.norm(self.inner(obs))


class Pair(keras.Model):
    """Gives logits and value itself."""

    def __init__(self, space, num_outputs):
        super().__init__()
        self.logits, self.value = keras.layers.Dense(num_outputs), keras.layers.Dense(1)

    def call(self, obs):
        return self.logits(obs), self.value(obs)


def functional():
    inputs = keras.Input((4,))
    return keras.Model(inputs, keras.layers.Dense(5)(inputs))


def build(model, config=None, obs=OBS):
    return rlcatalog.build(obs, Discrete(3), config, "tf", model=model)


def linear(weights, x, name):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def test_a_class_gives_features_and_rlcatalog_adds_logits_and_value():
    policy = build(Net)
    step, weights = policy.act(ROWS), policy.model.get_weights()
    features = np.tanh(linear(weights, ROWS, "module.layer"))
    np.testing.assert_allclose(
        step.dist_inputs, linear(weights, features, "outputs.logits"), atol=1e-6
    )
    np.testing.assert_allclose(
        step.value, linear(weights, features, "outputs.value")[:, 0], atol=1e-6
    )
    assert policy.model.module.shown_space == OBS


def test_dropout_works_in_training_alone():
    policy = build(Net, {"custom_model_config": {"hidden": 64}})
    step = policy.act(ROWS, explore=False)
    np.testing.assert_array_equal(policy.act(ROWS, explore=False).dist_inputs, step.dist_inputs)
    scored = policy.evaluate({"obs": ROWS, "raw_action": step.raw_action})
    assert not np.allclose(scored.dist.inputs, step.dist_inputs, atol=1e-7)


@pytest.mark.parametrize(
    "model",
    [Net, PlainLayer, functional, lambda space: Net(space, 4), keras.layers.Dense(5), Pair],
    ids=["model", "layer", "function", "lambda", "instance", "num_outputs"],
)
def test_classes_instances_and_factories_act_learn_and_are_saved(model, tmp_path):
    policy = build(model)
    step = policy.act(ROWS)
    with tf.GradientTape() as tape:
        scored = policy.evaluate({"obs": ROWS, "raw_action": step.raw_action})
        loss = tf.reduce_sum(scored.logp) + tf.reduce_sum(scored.value)
    gradients = tape.gradient(loss, policy.model.trainable_variables())
    assert all(gradient is not None for gradient in gradients)
    policy.save(tmp_path)
    with pytest.raises(UnknownNameError, match=r"rlcatalog\.load\(.*, model="):
        rlcatalog.load(tmp_path)
    loaded = rlcatalog.load(tmp_path, model=model)
    acted = [one.act(ROWS, explore=False).dist_inputs for one in (policy, loaded)]
    np.testing.assert_array_equal(*acted)


def test_a_module_that_takes_num_outputs_stands_alone():
    policy = build(Pair)
    step, weights = policy.act(ROWS), policy.model.get_weights()
    np.testing.assert_allclose(step.dist_inputs, linear(weights, ROWS, "module.logits"), atol=1e-6)
    np.testing.assert_allclose(step.value, linear(weights, ROWS, "module.value")[:, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: x[:, None], r"features \[B, F\], found \w+ of shape \(2, 1, 4\)"),
        (lambda x: tf.cast(x > 0, tf.int32), "floating-point features"),
        (
            lambda x: (x, [x]),
            r"found \w+ of shape \(2, 4\) and list of shape \(\).*has no state: set use_lstm",
        ),
    ],
)
def test_other_outputs_are_an_error_with_the_shapes(call, words):
    with pytest.raises(ModelContractError, match=words):
        build(keras.layers.Lambda(call))


def test_a_call_with_seq_lens_is_refused():
    class Sequential(keras.layers.Layer):
        def call(self, obs, seq_lens=None):
            return obs

    with pytest.raises(NotServedError, match=r"its forward method takes seq_lens. .*use_lstm"):
        build(Sequential)


class Counting(keras.layers.Layer):
    """Counts its passes in a variable, and draws."""

    def __init__(self):
        super().__init__()
        self.passes = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.built = True

    def call(self, obs):
        self.passes.assign_add(1.0)
        return obs + 0 * tf.random.normal(tf.shape(obs))


def test_the_pass_leaves_variables_and_random_state_as_they_were():
    layer = Counting()
    tf.random.set_seed(3)
    first = tf.random.normal([3]).numpy()
    tf.random.set_seed(3)
    PlainModel.of(layer)(OBS, Discrete(3), None, {}, "tried")
    np.testing.assert_array_equal(tf.random.normal([3]).numpy(), first)
    assert float(layer.passes) == 0.0


def test_frozen_layers_are_not_trained():
    layer = keras.Sequential([keras.layers.Dense(6), keras.layers.Dense(5)])
    layer.layers[0].trainable = False
    policy = build(layer)
    for one in (policy, copy.deepcopy(policy)):
        names = one.model.trainable_variables(as_dict=True)
        assert [name for name in names if name.startswith("module")] == [
            "module.1.weight",
            "module.1.bias",
        ]
        assert len(TFLearner(one).variables) == len(names)


def test_a_seed_decides_the_weights_of_a_class():
    weights = []
    for seed in (1, 1, 2):
        TFLearner.seed(seed)
        weights.append(build(Net).model.get_weights()["module.layer.weight"])
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[1], weights[2])


@pytest.mark.parametrize(
    "maker", [functional, lambda: Net(OBS), lambda: PlainLayer(OBS), lambda: keras.layers.Dense(3)]
)
def test_a_second_model_of_an_instance_is_a_deep_copy(maker):
    layer = maker()
    policy = build(layer)
    assert policy.model.module is layer
    kept = [variable.numpy() for variable in layer.variables]
    twin = copy.deepcopy(policy)
    assert twin.model.module is not layer
    same = [one.act(ROWS, explore=False).dist_inputs for one in (policy, twin)]
    np.testing.assert_array_equal(*same)
    for variable in twin.model.variables():
        variable.assign(tf.zeros_like(variable))
    assert not twin.act(ROWS, explore=False).dist_inputs.any()
    assert all(np.array_equal(a, b.numpy()) for a, b in zip(kept, layer.variables, strict=True))


def test_a_separate_value_needs_a_class():
    policy = build(Net, {"vf_share_layers": False})
    weights = policy.model.get_weights()
    assert not np.array_equal(weights["module.layer.weight"], weights["value_module.layer.weight"])
    with pytest.raises(ConfigError, match="vf_share_layers=False: the value needs a second module"):
        build(keras.layers.Dense(5), {"vf_share_layers": False})


# --- what it is shown -----------------------------------------------------------------------------


class Watching(keras.layers.Layer):
    """Keeps the space it was built with, and shows what it is given by its features."""

    def __init__(self, space):
        super().__init__()
        self.shown_space = space

    def call(self, obs):
        parts = tf.nest.flatten(obs)
        return tf.concat(
            [tf.reshape(part, [tf.shape(part)[0], int(np.prod(part.shape[1:]))]) for part in parts],
            1,
        )


def watch(space, observations, config=None):
    """Return the space that a layer is given, and all it is shown, side by side."""
    policy = rlcatalog.build(space, Discrete(3), config, "tf", model=Watching)
    model = policy.model
    model({"obs": tf.constant(policy.preprocess(observations))})
    return model.module.shown_space, model._features.numpy()


@pytest.mark.parametrize(
    ("shape", "config"), [((4, 18, 20), {}), ((5, 7, 3), {"image_layout": "chw"})]
)
def test_channels_that_come_first_are_put_last(shape, config):
    box = Box(0, 255, shape, np.uint8)
    images = np.random.default_rng(0).integers(0, 256, (2, *shape)).astype(np.uint8)
    space, shown = watch(box, images, config)
    assert space == Box(0, 1, (*shape[1:], shape[0]), np.float32)
    np.testing.assert_allclose(shown, images.transpose(0, 2, 3, 1).reshape(2, -1) / 255, rtol=1e-6)


def test_images_keep_their_channels_last_and_lie_between_0_and_1():
    images = np.random.default_rng(0).integers(0, 256, (2, 5, 7, 3)).astype(np.uint8)
    space, shown = watch(IMAGE, images)
    assert space == Box(0, 1, (5, 7, 3), np.float32)
    np.testing.assert_allclose(shown, images.reshape(2, -1) / 255, rtol=1e-6)


def test_dicts_and_tuples_arrive_as_such():
    space = Dict(a=Tuple([OBS, Discrete(3)]), action_mask=Box(0, 1, (3,), np.int8))
    observations = [{"a": (row, 2), "action_mask": np.array([1, 0, 1], np.int8)} for row in ROWS]
    seen, shown = watch(space, observations)
    assert seen == Dict(a=Tuple([OBS, Box(0, 1, (3,), np.float32)]))
    np.testing.assert_allclose(shown, np.hstack([ROWS, np.tile([0, 0, 1], (2, 1))]), rtol=1e-6)


def test_another_backend_of_keras_is_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(
        NotServedError, match="Dense is a Keras layer, and Keras uses the backend 'jax'"
    ):
        build(keras.layers.Dense(3))


@pytest.mark.attack
def test_a_layer_of_keras_on_pytorch_is_no_module_of_pytorch():
    code = (
        "import keras, gymnasium, rlcatalog\nspace = gymnasium.spaces.Box(-1, 1, (4,))\ntry:\n"
        "    rlcatalog.build(space, gymnasium.spaces.Discrete(2), model=keras.layers.Dense(3))\n"
        "except rlcatalog.errors.NotServedError as error:\n    print(error)\n"
    )
    environ = {**os.environ, "KERAS_BACKEND": "torch", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=True
    )
    assert "Keras uses the backend 'torch', but framework='tf' needs 'tensorflow'" in done.stdout
