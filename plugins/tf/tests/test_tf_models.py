"""The contract on paper: models in TensorFlow, as RLlib's page writes them."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from gymnasium.spaces import Discrete, Tuple

import rlcatalog
from rlcatalog.errors import StaleOutputError
from rlcatalog_policy import load
from rlcatalog_tf import TFModelV2, normc_initializer

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

BOX, TWO = spaces.Box(-1, 1, (4,), np.float32), Discrete(2)
NESTED = spaces.Dict(
    {"cart": BOX, "task": Tuple([Discrete(3), spaces.Box(0, 1, (2, 2), np.float32)])}
)


def observations(space=BOX, n=6, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


class MyKerasModel(TFModelV2):
    """The seeds' MyModelClass(TFModelV2)."""

    def __init__(self, *args, **kwargs):
        super(MyKerasModel, self).__init__(*args, **kwargs)  # noqa: UP008
        input_layer = tf.keras.layers.Input(shape=self.obs_space.shape, name="observations")
        hidden_layer = tf.keras.layers.Dense(16, activation="tanh")(input_layer)
        output_layer = tf.keras.layers.Dense(
            self.num_outputs, kernel_initializer=normc_initializer(0.01)
        )(hidden_layer)
        value_layer = tf.keras.layers.Dense(1, kernel_initializer=normc_initializer(1.0))(
            hidden_layer
        )
        self.base_model = tf.keras.Model(input_layer, [output_layer, value_layer])
        self.register_variables(self.base_model.variables)

    def forward(self, input_dict, state, seq_lens):
        self.seen = input_dict
        model_out, self._value_out = self.base_model(input_dict["obs_flat"])
        return model_out, state

    def value_function(self):
        return tf.reshape(self._value_out, [-1])


@pytest.mark.parametrize("space", [BOX, NESTED], ids=["box", "dict"])
def test_a_keras_model_builds_acts_and_trains(catalog, space):
    policy = rlcatalog.build(space, TWO, {"custom_model": MyKerasModel}, catalog=catalog)
    assert policy.framework == "tf"  # a custom class decides
    model, obs = policy.model, observations(space)
    assert len(model.variables()) == len(model.trainable_variables()) == 6
    assert len(set(model.variables(as_dict=True))) == 6
    step = policy.act(obs)
    batch = {"obs": policy.preprocess(obs), "raw_action": step.raw_action}
    optimizer = tf.keras.optimizers.SGD(0.1)
    with tf.GradientTape() as tape:
        found = policy.evaluate(batch)
        loss = tf.reduce_mean(found.value**2) - tf.reduce_mean(found.logp)
    np.testing.assert_allclose(found.logp, step.logp, rtol=1e-5)
    np.testing.assert_allclose(found.value, step.value, rtol=1e-5, atol=1e-6)
    if space is NESTED:
        assert list(model.seen["obs"]) == ["cart", "task"]
        assert model.seen["obs"]["task"][1].shape == (6, 2, 2)
    gradients = tape.gradient(loss, model.trainable_variables())
    assert all(gradient is not None for gradient in gradients)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables(), strict=True))
    assert tf.reduce_mean(policy.evaluate(batch).logp) > tf.reduce_mean(found.logp)
    # Acting was traced before; it sees the new weights, and makes no variables.
    again = policy.act(obs, explore=False)
    np.testing.assert_allclose(
        again.dist_inputs, policy.evaluate(batch).dist.inputs, rtol=1e-5, atol=1e-6
    )
    assert len(model.variables()) == 6


def test_names_of_keras_variables_do_not_depend_on_what_was_built_before():
    one, other = (MyKerasModel(BOX, TWO, 2, {}, "n") for _ in range(2))
    weights = one.get_weights()
    assert list(weights) == list(other.get_weights())
    other.set_weights(weights)
    x = tf.constant(np.stack(observations()))
    np.testing.assert_allclose(one({"obs": x})[0], other({"obs": x})[0], rtol=1e-6)
    # Registered or not, a variable is named by where it stands, and dense kernels are laid out as
    # PyTorch's: [out, in].
    assert all(name.startswith("base_model.") for name in weights)
    assert sorted(array.shape for array in weights.values()) == [
        (1,),
        (1, 16),
        (2,),
        (2, 16),
        (16,),
        (16, 4),
    ]


def test_initialisers_with_rllibs_signature_serve_keras():
    kernel = MyKerasModel(BOX, TWO, 2, {}, "n").base_model.layers[-1].kernel.numpy()  # [in, out]
    np.testing.assert_allclose(np.linalg.norm(kernel, axis=0), 1.0, rtol=1e-5)


class Layers(TFModelV2):
    """Keras layers, a raw variable, and such in lists and dicts, as attributes; nothing is
    registered.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.first = tf.keras.layers.Dense(5)
        self.rest = [tf.keras.layers.Dense(5), {"last": tf.keras.layers.Dense(self.num_outputs)}]
        self.scale = tf.Variable(1.0)
        self.norm = tf.keras.layers.BatchNormalization()

    def forward(self, input_dict, state, seq_lens):
        x = self.norm(self.first(input_dict["obs"]), training=input_dict["is_training"])
        return self.rest[1]["last"](self.rest[0](x)) * self.scale, state


def test_variables_are_found_wherever_they_stand(catalog):
    policy = rlcatalog.build(BOX, TWO, {"custom_model": Layers}, catalog=catalog)
    names = list(policy.model.get_weights())
    # Of the norm also the count that PyTorch's has.
    assert len(names) == len(set(names)) == 6 + 1 + 5
    assert len(policy.model.trainable_variables()) == 6 + 1 + 2
    policy.act(observations())
    policy.act(observations(), explore=False)
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


def test_variables_of_objects_of_any_class_are_trained_saved_and_restored(catalog, tmp_path):
    catalog.register_model("holder", HoldsParts)
    policy, obs = (
        rlcatalog.build(BOX, TWO, {"custom_model": "holder"}, catalog=catalog),
        observations(),
    )
    names = [
        "parts.bias",
        "parts.nested.dense.0.weight",
        "parts.nested.dense.0.bias",
        "parts.nested.slots.scale",
    ]
    assert sorted(policy.model.get_weights()) == sorted(names)
    with tf.GradientTape() as tape:
        found = policy.evaluate(
            {"obs": policy.preprocess(obs), "raw_action": np.zeros((len(obs), 1), np.int64)}
        )
        loss = tf.reduce_sum(found.logp + tf.square(found.value))
    variables = policy.model.trainable_variables(as_dict=True)
    assert all(grad is not None for grad in tape.gradient(loss, variables).values())
    for variable in variables.values():
        variable.assign_add(tf.ones_like(variable))
    before = policy.act(obs, explore=False)
    policy.save(tmp_path)
    after = load(tmp_path, catalog=catalog).act(obs, explore=False)
    np.testing.assert_array_equal(after.dist_inputs, before.dist_inputs)
    np.testing.assert_array_equal(after.value, before.value)


LEGACY = """
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


@pytest.mark.attack  # in a process, for a version of Keras is chosen once
def test_layers_of_legacy_keras_keep_their_weights():
    pytest.importorskip("tf_keras")
    done = subprocess.run(
        [sys.executable, "-c", LEGACY],
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip().endswith("done"), done.stderr[-2000:]


def test_a_value_of_a_keras_model_outside_its_trace_is_refused(catalog):
    policy = rlcatalog.build(BOX, TWO, {"custom_model": MyKerasModel}, catalog=catalog)
    policy.act(observations())
    with pytest.raises(
        StaleOutputError, match=r"MyKerasModel\.value_function\(\) belongs to the last forward pass"
    ):
        policy.model.value_function()


def test_a_typed_error_inside_a_function_of_tensorflow_keeps_its_type():
    model = MyKerasModel(BOX, TWO, 2, {}, "n")

    @tf.function  # AutoGraph rewrites errors it cannot rebuild
    def forward(x):
        model({"obs": x})

    @tf.function
    def elsewhere():
        return model.value_function()

    forward(tf.zeros([1, 4]))
    with pytest.raises(StaleOutputError):
        elsewhere()
