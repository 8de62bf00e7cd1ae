"""Custom models in TensorFlow: Keras models as in RLlib's documentation, layers and variables."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from builders import sample_observations
from gymnasium import spaces
from gymnasium.spaces import Discrete, Tuple

import rlcatalog
from rlcatalog.errors import NotServedError, StaleOutputError
from rlcatalog_policy import load
from rlcatalog_tf import TFModelV2, copy_layer, normc_initializer

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

FOUR_FEATURES = spaces.Box(-1, 1, (4,), np.float32)
TWO_ACTIONS = Discrete(2)


def build_policy(catalog, model, obs_space=FOUR_FEATURES):
    return rlcatalog.build(obs_space, TWO_ACTIONS, {"custom_model": model}, catalog=catalog)


# --- Keras models ---------------------------------------------------------------------------------


class KerasModel(TFModelV2):
    """The Keras model of RLlib's documentation: a hidden layer, logits and a value."""

    def __init__(self, *args, **kwargs):
        super(KerasModel, self).__init__(*args, **kwargs)  # noqa: UP008
        inputs = tf.keras.layers.Input(shape=self.obs_space.shape, name="observations")
        hidden = tf.keras.layers.Dense(16, activation="tanh")(inputs)
        logits = tf.keras.layers.Dense(
            self.num_outputs, kernel_initializer=normc_initializer(0.01)
        )(hidden)
        value = tf.keras.layers.Dense(1, kernel_initializer=normc_initializer(1.0))(hidden)
        self.base_model = tf.keras.Model(inputs, [logits, value])
        self.register_variables(self.base_model.variables)

    def forward(self, input_dict, state, seq_lens):
        self.last_input = input_dict
        model_out, self._value_out = self.base_model(input_dict["obs_flat"])
        return model_out, state

    def value_function(self):
        return tf.reshape(self._value_out, [-1])


NESTED = spaces.Dict(
    {"cart": FOUR_FEATURES, "task": Tuple([Discrete(3), spaces.Box(0, 1, (2, 2), np.float32)])}
)
each_space = pytest.mark.parametrize("space", [FOUR_FEATURES, NESTED], ids=["box", "dict"])


@each_space
def test_keras_model_decides_the_framework(catalog, space):
    assert build_policy(catalog, KerasModel, space).framework == "tf"


@each_space
def test_keras_model_has_its_six_variables(catalog, space):
    model = build_policy(catalog, KerasModel, space).model

    # Three layers have a weight and a bias each.
    assert len(model.variables()) == 6
    assert len(model.trainable_variables()) == 6
    assert len(set(model.variables(as_dict=True))) == 6


@each_space
def test_policy_with_keras_model_evaluates_its_actions(catalog, space):
    policy = build_policy(catalog, KerasModel, space)
    obs = sample_observations(space, rows=6)

    step = policy.act(obs)
    evaluation = policy.evaluate({"obs": policy.preprocess(obs), "raw_action": step.raw_action})

    np.testing.assert_allclose(evaluation.logp, step.logp, rtol=1e-5)
    np.testing.assert_allclose(evaluation.value, step.value, rtol=1e-5, atol=1e-6)


def test_keras_model_gets_nested_observations(catalog):
    policy = build_policy(catalog, KerasModel, NESTED)
    obs = sample_observations(NESTED, rows=6)
    step = policy.act(obs)

    policy.evaluate({"obs": policy.preprocess(obs), "raw_action": step.raw_action})

    restored = policy.model.last_input["obs"]
    assert list(restored) == ["cart", "task"]
    assert restored["task"][1].shape == (6, 2, 2)


def train_one_step(policy, batch):
    """Make the actions of a batch more likely."""
    weights = policy.model.trainable_variables()
    with tf.GradientTape() as tape:
        evaluation = policy.evaluate(batch)
        loss = tf.reduce_mean(evaluation.value**2) - tf.reduce_mean(evaluation.logp)
    gradients = tape.gradient(loss, weights)
    assert all(gradient is not None for gradient in gradients)
    tf.keras.optimizers.SGD(0.1).apply_gradients(zip(gradients, weights, strict=True))


@each_space
def test_gradient_step_of_keras_model_makes_actions_more_likely(catalog, space):
    policy = build_policy(catalog, KerasModel, space)
    obs = sample_observations(space, rows=6)
    batch = {"obs": policy.preprocess(obs), "raw_action": policy.act(obs).raw_action}
    logp_before = tf.reduce_mean(policy.evaluate(batch).logp)

    train_one_step(policy, batch)

    assert tf.reduce_mean(policy.evaluate(batch).logp) > logp_before


@each_space
def test_traced_acting_sees_trained_weights(catalog, space):
    policy = build_policy(catalog, KerasModel, space)
    obs = sample_observations(space, rows=6)
    batch = {"obs": policy.preprocess(obs), "raw_action": policy.act(obs).raw_action}

    train_one_step(policy, batch)  # after acting was traced
    step = policy.act(obs, explore=False)

    expected = policy.evaluate(batch).dist.inputs
    np.testing.assert_allclose(step.dist_inputs, expected, rtol=1e-5, atol=1e-6)


@each_space
def test_acting_and_evaluating_create_no_variables(catalog, space):
    policy = build_policy(catalog, KerasModel, space)
    obs = sample_observations(space, rows=6)

    raw_action = policy.act(obs).raw_action
    policy.evaluate({"obs": policy.preprocess(obs), "raw_action": raw_action})

    assert len(policy.model.variables()) == 6  # those of three layers


def make_keras_model():
    return KerasModel(FOUR_FEATURES, TWO_ACTIONS, 2, {}, "name")


def test_keras_variable_names_do_not_depend_on_earlier_models():
    first = make_keras_model()
    second = make_keras_model()

    assert list(first.get_weights()) == list(second.get_weights())


def test_keras_variables_are_named_by_their_place():
    weights = make_keras_model().get_weights()

    assert all(name.startswith("base_model.") for name in weights)


def test_kernels_of_keras_layers_are_laid_out_as_in_pytorch():
    weights = make_keras_model().get_weights()

    # [out, in] and [out] of the value, the logits and the hidden layer.
    shapes = sorted(array.shape for array in weights.values())
    assert shapes == [(1,), (1, 16), (2,), (2, 16), (16,), (16, 4)]


def test_weights_of_keras_model_are_copied():
    model = make_keras_model()
    other = make_keras_model()
    obs = tf.constant(np.stack(sample_observations(FOUR_FEATURES, rows=6)))

    other.set_weights(model.get_weights())

    np.testing.assert_allclose(model({"obs": obs})[0], other({"obs": obs})[0], rtol=1e-6)


def test_normc_initializer_normalises_kernels_of_keras():
    value_kernel = make_keras_model().base_model.layers[-1].kernel.numpy()  # [in, out]

    np.testing.assert_allclose(np.linalg.norm(value_kernel, axis=0), 1.0, rtol=1e-5)


# --- layers and variables in attributes -----------------------------------------------------------


class LayersInAttributes(TFModelV2):
    """Has layers and a variable as attributes, in a list and in a dict; none are registered."""

    def __init__(self, *args):
        super().__init__(*args)
        self.first = tf.keras.layers.Dense(5)
        self.rest = [tf.keras.layers.Dense(5), {"last": tf.keras.layers.Dense(self.num_outputs)}]
        self.scale = tf.Variable(1.0)
        self.norm = tf.keras.layers.BatchNormalization()

    def forward(self, input_dict, state, seq_lens):
        x = self.norm(self.first(input_dict["obs"]), training=input_dict["is_training"])
        return self.rest[1]["last"](self.rest[0](x)) * self.scale, state


def test_variables_in_attributes_are_found(catalog):
    model = build_policy(catalog, LayersInAttributes).model

    # Weights and biases of three layers, the scale, and of the norm: scale, offset, mean, variance
    # and the count that PyTorch's has.
    assert len(model.get_weights()) == 6 + 1 + 5
    assert len(model.trainable_variables()) == 6 + 1 + 2


def test_acting_does_not_change_variable_names(catalog):
    policy = build_policy(catalog, LayersInAttributes)
    names = list(policy.model.get_weights())

    policy.act(sample_observations(FOUR_FEATURES, rows=6))
    policy.act(sample_observations(FOUR_FEATURES, rows=6), explore=False)

    assert list(policy.model.get_weights()) == names


class Slots:
    __slots__ = ("scale",)


class Parts:
    """Holds layers and variables; a class of no framework."""

    def __init__(self):
        self.bias = tf.Variable([0.5, -0.5])
        self.nested = {"dense": [tf.keras.layers.Dense(2)], "slots": Slots()}
        self.nested["slots"].scale = tf.Variable(2.0)
        self.optimizer = tf.keras.optimizers.Adam()
        self.optimizer.build([tf.Variable(1.0)])  # its variables are no weights


class HoldsParts(TFModelV2):
    def __init__(self, *args):
        super().__init__(*args)
        self.parts = Parts()

    def forward(self, input_dict, state, seq_lens):
        nested = self.parts.nested
        self._value = nested["slots"].scale * tf.reduce_sum(input_dict["obs"], axis=1)
        return nested["dense"][0](input_dict["obs"]) + self.parts.bias, state

    def value_function(self):
        return self._value


@pytest.fixture
def policy_with_parts(catalog):
    """A policy whose model has its variables in objects of other classes."""
    catalog.register_model("holds_parts", HoldsParts)
    return build_policy(catalog, "holds_parts")


def test_variables_of_objects_are_named_by_their_place(policy_with_parts):
    assert set(policy_with_parts.model.get_weights()) == {
        "parts.bias",
        "parts.nested.dense.0.weight",
        "parts.nested.dense.0.bias",
        "parts.nested.slots.scale",
    }


def test_variables_of_objects_have_gradients(policy_with_parts):
    obs = policy_with_parts.preprocess(sample_observations(FOUR_FEATURES, rows=6))
    batch = {"obs": obs, "raw_action": np.zeros((6, 1), np.int64)}
    variables = policy_with_parts.model.trainable_variables()

    with tf.GradientTape() as tape:
        evaluation = policy_with_parts.evaluate(batch)
        loss = tf.reduce_sum(evaluation.logp + tf.square(evaluation.value))
    gradients = tape.gradient(loss, variables)

    # The variables are a bias, a scale, and the weight and the bias of a dense layer.
    assert len(gradients) == 4
    assert all(gradient is not None for gradient in gradients)


def test_variables_of_objects_are_saved_and_loaded(policy_with_parts, catalog, tmp_path):
    obs = sample_observations(FOUR_FEATURES, rows=6)
    for variable in policy_with_parts.model.trainable_variables():
        variable.assign_add(tf.ones_like(variable))

    policy_with_parts.save(tmp_path)
    loaded = load(tmp_path, catalog=catalog)

    expected = policy_with_parts.act(obs, explore=False)
    step = loaded.act(obs, explore=False)
    np.testing.assert_array_equal(step.dist_inputs, expected.dist_inputs)
    np.testing.assert_array_equal(step.value, expected.value)


# --- legacy Keras ---------------------------------------------------------------------------------

#: Checks names, shapes, copies and results of a model with layers of tf_keras.
LEGACY_PROGRAM = """
import gymnasium as gym, numpy as np, rlcatalog
from rlcatalog_tf import TFModelV2, tf


class Net(TFModelV2):
    def __init__(self, *args):
        super().__init__(*args)
        hidden = tf.keras.layers.Dense(5, activation="tanh")
        self.net = tf.keras.Sequential([hidden, tf.keras.layers.Dense(self.num_outputs)])
        self.rest = {
            "norm": tf.keras.layers.LayerNormalization(),
            "value": [tf.keras.layers.Dense(1)],
        }

    def forward(self, input_dict, state, seq_lens):
        self.seen = self.rest["norm"](input_dict["obs"])
        return self.net(self.seen), state

    def value_function(self):
        return self.rest["value"][0](self.seen)[:, 0]


assert tf.keras.layers.Dense.__module__.startswith("tf_keras")
space, obs = gym.spaces.Box(-1, 1, (3,), np.float32), np.float32([[0.1, -0.5, 0.9]])
one, other = (
    rlcatalog.build(space, gym.spaces.Discrete(2), {"custom_model": Net}, "tf") for _ in range(2)
)
shapes = {name: weight.shape for name, weight in one.model.get_weights().items()}
assert shapes == {
    "net.0.weight": (5, 3),
    "net.0.bias": (5,),
    "net.1.weight": (2, 5),
    "net.1.bias": (2,),
    "rest.norm.weight": (3,),
    "rest.norm.bias": (3,),
    "rest.value.0.weight": (1, 3),
    "rest.value.0.bias": (1,),
}, shapes
assert len(one.model.trainable_variables()) == 8
other.model.set_weights(one.model.get_weights())
mine, theirs = (policy.act(obs, explore=False) for policy in (one, other))
assert (mine.dist_inputs == theirs.dist_inputs).all() and (mine.value == theirs.value).all()
kernel, bias = (
    one.model.get_weights()["rest.value.0.weight"],
    one.model.get_weights()["rest.value.0.bias"],
)
seen = (obs - obs.mean()) / np.sqrt(obs.var() + 1e-3)
np.testing.assert_allclose(mine.value, (seen @ kernel.T + bias)[:, 0], rtol=1e-4)
print("done")
"""


@pytest.mark.slow  # starts a process, because TensorFlow chooses its version of Keras once
def test_layers_of_legacy_keras_keep_their_weights():
    pytest.importorskip("tf_keras")

    result = subprocess.run(
        [sys.executable, "-c", LEGACY_PROGRAM],
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
    )

    # The program checks the weights, and prints "done" at its end.
    assert result.stdout.strip().endswith("done"), result.stderr[-2000:]


def test_copy_of_a_legacy_layer_is_refused_with_the_way_out():
    layer = pytest.importorskip("tf_keras").layers.Dense(3)

    with pytest.raises(NotServedError, match="a layer of legacy Keras") as caught:
        copy_layer(layer)

    assert "Pass its class" in str(caught.value)
    assert "Upgrade" not in str(caught.value)


# --- errors ---------------------------------------------------------------------------------------


def test_value_function_outside_the_trace_is_an_error(catalog):
    policy = build_policy(catalog, KerasModel)
    policy.act(sample_observations(FOUR_FEATURES, rows=6))  # in a trace, which is over

    with pytest.raises(StaleOutputError, match="belongs to the last forward pass") as caught:
        policy.model.value_function()

    assert "KerasModel.value_function()" in str(caught.value)


def test_error_inside_tf_function_keeps_its_type():
    model = make_keras_model()

    @tf.function  # whose AutoGraph may raise an error of another type instead
    def forward(x):
        model({"obs": x})

    @tf.function
    def value_in_another_trace():
        return model.value_function()

    forward(tf.zeros([1, 4]))

    with pytest.raises(StaleOutputError):
        value_in_another_trace()
