"""Models of other precisions in TensorFlow: Keras' floatx, its mixed precision, variables of
float64.
"""

from __future__ import annotations

import contextlib
from functools import cache

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from action_kinds import ACTIONS as EVERY_ACTION, PAIR, Anything
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

import rlcatalog
from rlcatalog.actions import entropy_of
from rlcatalog.errors import NotServedError
from rlcatalog_ppo import PPO
from rlcatalog_tf import RecurrentNetwork, TFModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

DOUBLE = Box(-1, 1, (2,), np.float64)
NESTED = Tuple([Discrete(3), Dict({"aim": PAIR, "grip": MultiDiscrete([2, 3])})])
DEPENDENT = {"use_autoregressive": True, "autoregressive_hiddens": [4]}
LSTM = {
    "use_lstm": True,
    "lstm_cell_size": 6,
    "lstm_use_prev_action": True,
    "lstm_use_prev_reward": True,
}
ATTENTION = {
    "use_attention": True,
    "attention_dim": 8,
    "attention_head_dim": 4,
    "attention_memory_inference": 5,
    "attention_memory_training": 5,
    "attention_use_n_prev_actions": 2,
}


@contextlib.contextmanager
def keras_in(precision):
    """Let Keras make its layers in a precision: a floatx, or a policy of mixed precision."""
    keras.utils.set_random_seed(0)  # initialisers of Keras have their own seed
    floatx = keras.backend.floatx()
    policy = keras.mixed_precision.dtype_policy()
    try:
        if precision.startswith("mixed"):
            keras.mixed_precision.set_dtype_policy(precision)
        else:
            keras.backend.set_floatx(precision)
            keras.mixed_precision.set_dtype_policy(precision)
        yield
    finally:
        keras.backend.set_floatx(floatx)
        keras.mixed_precision.set_dtype_policy(policy)


class KerasLayers(TFModelV2):
    """A model of Keras layers, which create their variables at their first call."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = num_outputs or 5
        self.body = keras.layers.Dense(self.num_outputs, activation="tanh")
        self.value = None if num_outputs is None else keras.layers.Dense(1)

    def forward(self, input_dict, state, seq_lens):
        self.obs_dtype = input_dict["obs_flat"].dtype
        if self.value is not None:
            self.last_value = self.value(input_dict["obs_flat"])
        return self.body(input_dict["obs_flat"]), state

    def value_function(self):
        return tf.reshape(self.last_value, [-1])


class CustomVariables(KerasLayers):
    """A model of variables in Keras' floatx; TensorFlow multiplies only equal dtypes."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TFModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        size = int(np.prod(obs_space.shape))
        dtype = keras.backend.floatx()
        self.num_outputs = num_outputs or 5
        self.body = tf.Variable(tf.cast(tf.random.normal([size, self.num_outputs]), dtype))
        self.last = tf.Variable(tf.cast(tf.random.normal([size, 1]), dtype))

    def forward(self, input_dict, state, seq_lens):
        self.obs_dtype = input_dict["obs_flat"].dtype
        self.last_value = tf.matmul(input_dict["obs_flat"], self.last)
        return tf.matmul(input_dict["obs_flat"], self.body), state


class CustomRNN(RecurrentNetwork):
    """Variables in Keras' floatx, and an initial state in float32, as RLlib's models have it."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        dtype = keras.backend.floatx()
        self.kernel = tf.Variable(tf.cast(tf.random.normal([6, 4]), dtype))
        self.body = tf.Variable(tf.cast(tf.random.normal([4, num_outputs + 1]), dtype))

    def get_initial_state(self):
        return [np.zeros(4, np.float32)]

    def forward_rnn(self, inputs, state, seq_lens):
        steps = inputs.shape[1]
        if steps is None:  # unknown, while the model is traced
            steps = 2 if tf.executing_eagerly() else 1
        h = state[0]
        states = []
        for t in range(steps):
            h = tf.tanh(tf.matmul(tf.concat([inputs[:, t], h], axis=1), self.kernel))
            states.append(h)
        body = tf.repeat(self.body[None], tf.shape(inputs)[0], axis=0)
        outputs = tf.matmul(tf.stack(states, axis=1), body)
        self.last_value = tf.reshape(outputs[..., -1], [-1])
        return outputs[..., :-1], [h]

    def value_function(self):
        return self.last_value


class CastsIntegers(KerasLayers):
    """Casts integers itself, as models of images do."""

    def forward(self, input_dict, state, seq_lens):
        obs = input_dict["obs_flat"]
        floats = tf.cast(obs, self.body.compute_dtype)
        outputs = super().forward({"obs_flat": floats}, state, seq_lens)
        self.obs_dtype = obs.dtype
        return outputs


def act_two_steps(policy):
    """Act twice on three rows; return the encoded observations and the steps."""
    obs = np.random.default_rng(0).uniform(-1, 1, (3, 2))
    encoded = policy.preprocess(obs)
    first = policy.act_encoded(encoded, None, prev_reward=np.ones(3))
    second = policy.act_encoded(encoded, first.state, prev_reward=np.ones(3))
    return encoded, [first, second]


def by_row(columns):
    """Return the values of two steps, `[3, …]` each, as rows, one sequence behind the other."""
    columns = [np.asarray(column) for column in columns]
    return np.stack(columns, 1).reshape(6, *columns[0].shape[1:])


def make_batch(policy, encoded, steps):
    batch = {
        "obs": np.repeat(encoded, 2, axis=0),
        "raw_action": by_row([step.raw_action for step in steps]),
        "dist_inputs": by_row([step.dist_inputs for step in steps]),
    }
    if policy.memory:
        batch["seq_lens"] = np.full(3, 2)
    state = steps[0].state
    if state is not None and state.views:
        first, second = (step.state.views for step in steps)
        batch["views"] = tf.nest.map_structure(lambda *parts: by_row(parts), first, second)
    return batch


def assert_steps_in(dtype, steps):
    for step in steps:
        for values in (step.logp, step.value, step.dist_inputs):
            assert values.dtype == dtype
            assert np.isfinite(values).all()
        assert step.raw_action.dtype in (dtype, np.int64)


def assert_acts_and_trains_in(dtype, policy):
    """Assert that a policy acts in a precision, and that training agrees with acting."""
    encoded, steps = act_two_steps(policy)
    assert_steps_in(dtype, steps)
    values = policy.values(encoded, prev_reward=np.ones(3))
    np.testing.assert_allclose(values, steps[0].value, rtol=1e-6)

    with tf.GradientTape() as tape:
        evaluation = policy.evaluate(make_batch(policy, encoded, steps))
        loss = tf.reduce_sum(evaluation.logp + evaluation.value + evaluation.kl)

    # Half precision rounds in another way if the batch is another one.
    tolerance = 1e-10 if dtype == np.float64 else 0.1
    logp = by_row([step.logp for step in steps])
    value = by_row([step.value for step in steps])
    np.testing.assert_allclose(evaluation.logp, logp, rtol=0, atol=tolerance)
    np.testing.assert_allclose(evaluation.value, value, rtol=0, atol=tolerance)
    variables = policy.model.trainable_variables()
    for gradient in tape.gradient(loss, variables, unconnected_gradients="zero"):
        assert np.isfinite(tf.cast(gradient, tf.float32)).all()


# --- custom models --------------------------------------------------------------------------------


each_precision_of_keras = pytest.mark.parametrize(
    ("precision", "action", "obs_dtype"),
    [
        ("float64", Discrete(3), tf.float64),
        # Other tests have variables of float16.
        pytest.param("float16", NESTED, tf.float16, marks=pytest.mark.slow),
        ("bfloat16", PAIR, tf.bfloat16),
        ("mixed_float16", NESTED, tf.float32),  # its variables are float32
        pytest.param("mixed_bfloat16", PAIR, tf.float32, marks=pytest.mark.slow),
    ],
    ids=["float64", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16"],
)


def wide(dtype):
    """Return the dtype of what a policy returns: float64 from float64, else float32."""
    return np.float64 if dtype == tf.float64 else np.float32


@each_precision_of_keras
def test_keras_layers_get_the_precision_of_their_variables(precision, action, obs_dtype):
    with keras_in(precision):
        policy = rlcatalog.build(DOUBLE, action, {"custom_model": KerasLayers})
        assert_acts_and_trains_in(wide(obs_dtype), policy)

    assert policy.model.obs_dtype == obs_dtype


@pytest.mark.parametrize(
    ("precision", "action", "obs_dtype"),
    [("float64", NESTED, tf.float64), ("float16", Discrete(3), tf.float16)],
    ids=["float64", "float16"],
)
def test_custom_variables_get_observations_of_their_precision(precision, action, obs_dtype):
    with keras_in(precision):
        policy = rlcatalog.build(DOUBLE, action, {"custom_model": CustomVariables})
        assert_acts_and_trains_in(wide(obs_dtype), policy)

    assert policy.model.obs_dtype == obs_dtype


@pytest.mark.parametrize(
    ("precision", "action", "dtype"),
    [("float64", PAIR, np.float64), ("float16", Discrete(3), np.float32)],
    ids=["float64", "float16"],
)
def test_custom_recurrent_model_works_in_other_precisions(precision, action, dtype):
    with keras_in(precision):
        policy = rlcatalog.build(DOUBLE, action, {"custom_model": CustomRNN})
        assert_acts_and_trains_in(dtype, policy)


@pytest.mark.parametrize(
    ("config", "model", "precision"),
    [
        pytest.param(LSTM, CustomVariables, "float64", id="lstm-float64", marks=pytest.mark.slow),
        pytest.param(LSTM, KerasLayers, "mixed_float16", id="lstm-mixed_float16"),
        pytest.param(
            *(ATTENTION, CustomVariables, "float64"),
            id="attention-float64",
            marks=pytest.mark.slow,
        ),
        pytest.param(DEPENDENT, CustomVariables, "float64", id="autoregressive-float64"),
        pytest.param(
            *(ATTENTION, KerasLayers, "mixed_float16"),
            id="attention-mixed_float16",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(DEPENDENT, KerasLayers, "mixed_float16"),
            id="autoregressive-mixed_float16",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_custom_trunk_of_another_precision_works_with_ours(config, model, precision):
    with keras_in(precision):
        policy = rlcatalog.build(DOUBLE, NESTED, {"custom_model": model, **config})
        assert_acts_and_trains_in(np.float32, policy)  # the built-in part is float32


def test_integer_observations_stay_integers():
    image = Box(0, 255, (2, 2, 3), np.uint8)
    with keras_in("float64"):
        policy = rlcatalog.build(image, Discrete(3), {"custom_model": CastsIntegers})
        policy.act(np.full((2, 2, 2, 3), 7, np.uint8))

    assert policy.model.obs_dtype == tf.uint8


# --- built-in parts -------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("precision", ["float64", "float16", "mixed_float16"])
@pytest.mark.parametrize("config", [{}, LSTM], ids=["fcnet", "lstm"])
def test_built_in_models_stay_float32(config, precision):
    with keras_in(precision):
        policy = rlcatalog.build(DOUBLE, NESTED, {"fcnet_hiddens": [8], **config}, "tf")
        assert_acts_and_trains_in(np.float32, policy)

    assert {variable.dtype for variable in policy.model.variables()} == {tf.float32}


class DoubleDists:
    """A distribution in double precision in both frameworks, and another one for divergences.

    They are compared to 1e-10, which fails if one computes anything in float32.
    """

    def __init__(self, kind):
        space, self.config = EVERY_ACTION[kind]
        config = {"fcnet_hiddens": [2], **self.config}
        torch_policy = rlcatalog.build(PAIR, space, config, "torch")
        tf_policy = rlcatalog.build(PAIR, space, config, "tf")
        width = torch_policy.model.num_outputs
        inputs, other_inputs = np.random.default_rng(0).normal(size=(2, 5, width))
        self.torch_dist = torch_policy.dist_class(torch.from_numpy(inputs))
        self.torch_other = torch_policy.dist_class(torch.from_numpy(other_inputs))
        self.tf_dist = tf_policy.dist_class(tf.constant(inputs))
        self.tf_other = tf_policy.dist_class(tf.constant(other_inputs))


@cache  # several tests compare the distributions of a kind
def build_dists(kind):
    return DoubleDists(kind)


@pytest.fixture
def dists(kind):
    return build_dists(kind)


each_kind = pytest.mark.parametrize("kind", list(EVERY_ACTION))


@each_kind
def test_logp_in_double_precision_is_that_of_pytorch(dists):
    sample = dists.torch_dist.sample()
    if not isinstance(sample, torch.Tensor):  # the parts of an action
        sample = dists.torch_dist.join(sample)

    logp = dists.tf_dist.logp(tf.constant(sample.numpy()))

    np.testing.assert_allclose(logp, dists.torch_dist.logp(sample), rtol=1e-10, atol=1e-10)


@each_kind
def test_entropy_in_double_precision_is_that_of_pytorch(dists):
    entropy, entropy_kind = entropy_of(dists.tf_dist, lambda x: x)

    assert entropy.dtype == tf.float64
    if entropy_kind == "exact":  # an estimate is drawn at random
        expected = dists.torch_dist.entropy()
        np.testing.assert_allclose(entropy, expected, rtol=1e-10, atol=1e-10)


KINDS_WITH_KL = [
    kind
    for kind, (_, config) in EVERY_ACTION.items()
    if config.get("custom_action_dist") != "gumbel_softmax"
]


@pytest.mark.parametrize("kind", KINDS_WITH_KL)
def test_kl_in_double_precision_is_that_of_pytorch(dists):
    kl = dists.tf_dist.kl(dists.tf_other)

    expected = dists.torch_dist.kl(dists.torch_other)
    np.testing.assert_allclose(kl, expected, rtol=1e-10, atol=1e-10)


@each_kind
def test_samples_in_double_precision_are_scored(dists):
    sample = dists.tf_dist.sample()
    assert np.isfinite(dists.tf_dist.logp(sample)).all()


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "precision", ["mixed_float16", pytest.param("float64", marks=pytest.mark.slow)]
)
def test_ppo_trains_keras_layers_of_another_precision(precision):
    config = {
        "num_envs": 2,
        "rollout_length": 16,
        "minibatch_size": 16,
        "num_epochs": 1,
        "seed": 0,
        "kl_coeff": 0.2,
        "lr": 0.01,
        "grad_clip": 0.5,
        "framework": "tf",
        "model": {"custom_model": KerasLayers},
    }
    with keras_in(precision):
        algo = PPO(env=lambda: Anything(NESTED), config=config)
        before = algo.policy.model.get_weights()
        result = algo.train()

    after = algo.policy.model.get_weights()
    policy_loss = result["info"]["learner"]["policy_loss"]
    assert np.isfinite(policy_loss)
    assert all(np.isfinite(array).all() for array in after.values())
    assert any((before[name] != after[name]).any() for name in after)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_ppo_rejects_weights_that_adam_cannot_train(precision):
    # 1 - 0.999 is 0 in bfloat16, and squares of gradients are 0 in float16.
    config = {"num_envs": 2, "framework": "tf", "model": {"custom_model": KerasLayers}}
    with keras_in(precision), pytest.raises(NotServedError, match=f"{precision}.*mixed_precision"):
        PPO(env=lambda: Anything(NESTED), config=config)
