"""The page's autoregressive actions, in all editions: its two classes as written, imports changed,
its gaps filled.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Discrete, Tuple
from scipy import special, stats

import rlcatalog
from rlcatalog import ActionDistribution, ModelCatalog, TupleActions
from rlcatalog.errors import NoClosedFormError
from rlcatalog_ppo import PPO
from rlcatalog_tf import Categorical, TFModelV2, normc_initializer

pytestmark = pytest.mark.usefixtures("one_thread", "seeded", "default")

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
PAIR = Tuple([Discrete(2), Discrete(2)])


# --- the page, word for word ----------------------------------------------------------------------

# ruff: noqa: UP008
# fmt: off


class BinaryAutoregressiveOutput(ActionDistribution):
    """Action distribution P(a1, a2) = P(a1) * P(a2 | a1)"""

    @staticmethod
    def required_model_output_shape(self, model_config):
        return 16  # controls model output feature vector size

    def sample(self):
        # first, sample a1
        a1_dist = self._a1_distribution()
        a1 = a1_dist.sample()

        # sample a2 conditioned on a1
        a2_dist = self._a2_distribution(a1)
        a2 = a2_dist.sample()

        # return the action tuple
        return TupleActions([a1, a2])

    def logp(self, actions):
        a1, a2 = actions[:, 0], actions[:, 1]
        a1_vec = tf.expand_dims(tf.cast(a1, tf.float32), 1)
        a1_logits, a2_logits = self.model.action_model([self.inputs, a1_vec])
        return (Categorical(a1_logits, None).logp(a1) + Categorical(
            a2_logits, None).logp(a2))

    def _a1_distribution(self):
        BATCH = tf.shape(self.inputs)[0]
        a1_logits, _ = self.model.action_model(
            [self.inputs, tf.zeros((BATCH, 1))])
        a1_dist = Categorical(a1_logits, None)
        return a1_dist

    def _a2_distribution(self, a1):
        a1_vec = tf.expand_dims(tf.cast(a1, tf.float32), 1)
        _, a2_logits = self.model.action_model([self.inputs, a1_vec])
        a2_dist = Categorical(a2_logits, None)
        return a2_dist


class AutoregressiveActionsModel(TFModelV2):
    """Implements the `.action_model` branch required above."""

    def __init__(self, obs_space, action_space, num_outputs, model_config,
                 name):
        super(AutoregressiveActionsModel, self).__init__(
            obs_space, action_space, num_outputs, model_config, name)
        if action_space != Tuple([Discrete(2), Discrete(2)]):
            raise ValueError(
                "This model only supports the [2, 2] action space")

        # Inputs
        obs_input = tf.keras.layers.Input(
            shape=obs_space.shape, name="obs_input")
        a1_input = tf.keras.layers.Input(shape=(1, ), name="a1_input")
        ctx_input = tf.keras.layers.Input(
            shape=(num_outputs, ), name="ctx_input")

        # Output of the model (normally 'logits', but for an autoregressive
        # dist this is more like a context/feature layer encoding the obs)
        context = tf.keras.layers.Dense(
            num_outputs,
            name="hidden",
            activation=tf.nn.tanh,
            kernel_initializer=normc_initializer(1.0))(obs_input)

        # P(a1 | obs)
        a1_logits = tf.keras.layers.Dense(
            2,
            name="a1_logits",
            activation=None,
            kernel_initializer=normc_initializer(0.01))(ctx_input)

        # P(a2 | a1)
        # note: typically you'd want to implement P(a2 | a1, obs) as follows:
        # a2_context = tf.keras.layers.Concatenate(axis=1)(
        #     [ctx_input, a1_input])
        a2_context = a1_input
        a2_hidden = tf.keras.layers.Dense(
            16,
            name="a2_hidden",
            activation=tf.nn.tanh,
            kernel_initializer=normc_initializer(1.0))(a2_context)
        a2_logits = tf.keras.layers.Dense(
            2,
            name="a2_logits",
            activation=None,
            kernel_initializer=normc_initializer(0.01))(a2_hidden)

        # Base layers
        self.base_model = tf.keras.Model(obs_input, context)
        self.register_variables(self.base_model.variables)
        self.base_model.summary()

        # Autoregressive action sampler
        self.action_model = tf.keras.Model([ctx_input, a1_input],
                                           [a1_logits, a2_logits])
        self.action_model.summary()
        self.register_variables(self.action_model.variables)

# fmt: on


# --- what the page leaves out ---------------------------------------------------------------------


class FilledModel(AutoregressiveActionsModel):
    """The page's model with the methods that it does not show, as RLlib's example
    script has them.
    """

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        context = tf.keras.layers.Input(shape=(num_outputs,), name="context")
        value = tf.keras.layers.Dense(
            1, name="value_out", kernel_initializer=normc_initializer(0.01)
        )(context)
        self.value_model = tf.keras.Model(context, value)
        self.register_variables(self.value_model.variables)

    def forward(self, input_dict, state, seq_lens):
        context = self.base_model(input_dict["obs"])
        self._value_out = self.value_model(context)
        return context, state

    def value_function(self):
        return tf.reshape(self._value_out, [-1])


class FilledOutput(BinaryAutoregressiveOutput):
    """The page's distribution with what greedy actions need."""

    def deterministic_sample(self):
        a1 = self._a1_distribution().deterministic_sample()
        return TupleActions([a1, self._a2_distribution(a1).deterministic_sample()])


@pytest.fixture
def config():
    """The model config that names the page's classes."""
    ModelCatalog.register_custom_model("autoregressive_model", FilledModel)
    ModelCatalog.register_custom_action_dist("binary_autoreg_output", FilledOutput)
    return {"custom_model": "autoregressive_model", "custom_action_dist": "binary_autoreg_output"}


class Correlated(gym.Env):
    """RLlib's environment for its example: the sign of the context and both actions must fit
    together.
    """

    observation_space = THREE_FEATURES
    action_space = PAIR

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 20
        return self._look(), {}

    def step(self, action):
        a1, a2 = action
        reward = 5.0 * (a1 == (self.last > 0)) + 5.0 * (a1 == a2)
        self.left -= 1
        return self._look(), reward, self.left == 0, False, {}

    def _look(self):
        obs = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        self.last = obs[0]
        return obs


def compute_probabilities(policy, inputs):
    """Return the probabilities `[B, 2, 2]` of the four pairs, from the logits of both actions."""

    def run_action_model(a1):
        column = np.full((len(inputs), 1), a1, np.float32)
        a1_logits, a2_logits = policy.model.action_model([inputs, column])
        first = special.softmax(a1_logits.numpy().astype(float), axis=1)
        second = special.softmax(a2_logits.numpy().astype(float), axis=1)
        return first, second

    first, second_after_0 = run_action_model(0)
    _, second_after_1 = run_action_model(1)
    return np.stack([first[:, [0]] * second_after_0, first[:, [1]] * second_after_1], axis=1)


@pytest.fixture
def page_policy(config):
    """A policy of the page's classes with random weights."""
    policy = rlcatalog.build(THREE_FEATURES, PAIR, config)
    rng = np.random.default_rng(0)
    weights = {}
    for name, array in policy.model.get_weights().items():
        weights[name] = rng.normal(0, 0.5, array.shape)
    policy.model.set_weights(weights)
    return policy


ONE_OBSERVATION = np.tile(np.array([[0.2, -0.5, 0.9]], np.float32), (3000, 1))


def random_observations(rows):
    return np.random.default_rng(1).uniform(-1, 1, (rows, 3)).astype(np.float32)


# --- the page's classes ---------------------------------------------------------------------------


def test_page_classes_draw_pairs_in_tensorflow(page_policy):
    step = page_policy.act(ONE_OBSERVATION)

    assert page_policy.framework == "tf"  # the framework of the classes
    assert step.dist_inputs.shape == (3000, 16)
    assert step.value.shape == (3000,)
    assert PAIR.contains(tuple(part[0] for part in step.action))


def test_page_classes_score_the_actions_they_drew(page_policy):
    step = page_policy.act(ONE_OBSERVATION)

    (joint,) = compute_probabilities(page_policy, step.dist_inputs[:1])
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    assert np.abs(joint - independent).max() > 0.01  # a2 depends on a1
    assert joint.sum() == pytest.approx(1.0, abs=1e-5)
    a1, a2 = step.raw_action.T.astype(int)
    np.testing.assert_allclose(step.logp, np.log(joint[a1, a2]), rtol=1e-4, atol=1e-5)


def test_draws_of_page_classes_follow_the_joint_distribution(page_policy):
    step = page_policy.act(ONE_OBSERVATION)

    (joint,) = compute_probabilities(page_policy, step.dist_inputs[:1])
    a1, a2 = step.raw_action.T.astype(int)
    counts = np.bincount(2 * a1 + a2, minlength=4)
    assert stats.chisquare(counts, 3000 * joint.ravel()).pvalue > 1e-3


def test_greedy_actions_of_page_classes_are_the_likeliest(page_policy):
    step = page_policy.act(ONE_OBSERVATION[:1], explore=False)

    (joint,) = compute_probabilities(page_policy, step.dist_inputs)
    a1, a2 = step.raw_action[0].astype(int)
    assert a1 == joint.sum(axis=1).argmax()
    assert a2 == joint[a1].argmax()  # given the first action


def test_page_classes_are_evaluated_with_gradients(page_policy):
    obs = random_observations(500)
    step = page_policy.act(obs)

    with tf.GradientTape() as tape:
        evaluation = page_policy.evaluate({"obs": obs, "raw_action": step.raw_action})
        loss = tf.reduce_sum(evaluation.logp) + tf.reduce_sum(evaluation.value)

    np.testing.assert_allclose(evaluation.logp, step.logp, rtol=1e-4, atol=1e-5)
    variables = page_policy.model.trainable_variables()
    assert len(variables) == 10  # a kernel and a bias in each of five layers
    for gradient in tape.gradient(loss, variables):
        # Not all numbers of the gradient are zero.
        assert np.any(tf.convert_to_tensor(gradient))


def test_entropy_of_page_classes_is_estimated(page_policy):
    obs = random_observations(500)
    step = page_policy.act(obs)

    evaluation = page_policy.evaluate({"obs": obs, "raw_action": step.raw_action})

    assert evaluation.entropy_kind == "estimate"
    # The probabilities of all pairs of actions, for each of the 500 observations.
    joint = compute_probabilities(page_policy, step.dist_inputs)
    exact_entropies = -(joint * np.log(joint)).sum(axis=(1, 2))
    mean_estimate = float(tf.reduce_mean(evaluation.entropy))
    assert mean_estimate == pytest.approx(exact_entropies.mean(), abs=0.1)


def test_entropy_of_page_classes_has_no_closed_form(page_policy):
    dist = page_policy.evaluate(
        {"obs": random_observations(1), "raw_action": np.zeros((1, 2), np.float32)}
    ).dist

    with pytest.raises(NoClosedFormError, match="FilledOutput has no closed form for its"):
        dist.entropy()


def test_page_classes_train_under_ppo(config):
    ppo_config = {
        "model": config,
        "num_envs": 4,
        "rollout_length": 32,
        "minibatch_size": 64,
        "num_epochs": 2,
        "seed": 0,
    }
    algo = PPO(Correlated, ppo_config)
    weights_before = algo.policy.model.get_weights()

    losses = algo.train()["info"]["learner"]

    assert np.isfinite([losses["policy_loss"], losses["vf_loss"]]).all()
    for name, weight in algo.policy.model.get_weights().items():
        assert not np.array_equal(weight, weights_before[name]), name
    algo.stop()


# --- the built-in head ----------------------------------------------------------------------------


def test_page_model_rejects_another_space(config):
    with pytest.raises(ValueError, match=r"only supports the \[2, 2\] action space"):
        rlcatalog.build(THREE_FEATURES, Tuple([Discrete(2), Discrete(3)]), config)


def test_built_in_head_takes_a_space_that_the_page_rejects():
    space = Tuple([Discrete(2), Discrete(3)])
    policy = rlcatalog.build(THREE_FEATURES, space, {"use_autoregressive": True}, "tf")
    assert policy.act(np.zeros((2, 3), np.float32)).raw_action.shape == (2, 2)


def named_layers(*models):
    """Return name → weights of the layers of Keras models."""
    layers = {}
    for model in models:
        for layer in model.layers:
            if layer.weights:
                layers[layer.name] = [weight.numpy() for weight in layer.weights]
    return layers


def build_with_weights_of(page_policy):
    """Build the built-in head, and give it the weights of the page's model."""
    config = {"use_autoregressive": True, "autoregressive_hiddens": [16], "fcnet_hiddens": [16]}
    policy = rlcatalog.build(THREE_FEATURES, PAIR, config, "tf")
    layers = named_layers(page_policy.model.base_model, page_policy.model.action_model)
    assert sorted(layers) == ["a1_logits", "a2_hidden", "a2_logits", "hidden"]
    kernel, bias = layers["hidden"]
    a1_kernel, a1_bias = layers["a1_logits"]
    a2_hidden_kernel, a2_hidden_bias = layers["a2_hidden"]
    a2_kernel, a2_bias = layers["a2_logits"]
    # Zero, where the page's model has no connection.
    weights = {name: np.zeros_like(array) for name, array in policy.model.get_weights().items()}
    weights["trunk.hidden.layers.0.weight"][:] = kernel.T
    weights["trunk.hidden.layers.0.bias"][:] = bias
    weights["outputs.logits.weight"][:2] = a1_kernel.T
    weights["outputs.logits.bias"][:] = np.concatenate([a1_bias, a2_bias])
    weights["to_context.bias"][16:] = a2_hidden_bias  # the units of the second part
    # The page's model gets a1 as a number, the head as a one-hot.
    weights["conditionals.actions"][16:, 1] = a2_hidden_kernel[0]
    weights["conditionals.params"][2:, 16:] = a2_kernel.T
    policy.model.set_weights(weights)
    return policy


def test_built_in_distribution_scores_as_that_of_the_page(page_policy):
    policy = build_with_weights_of(page_policy)
    obs = random_observations(200)
    step = page_policy.act(obs)

    evaluation = policy.evaluate({"obs": obs, "raw_action": step.raw_action})

    np.testing.assert_allclose(evaluation.logp, step.logp, rtol=1e-4, atol=1e-5)


def test_built_in_distribution_has_an_exact_entropy(page_policy):
    policy = build_with_weights_of(page_policy)
    obs = random_observations(200)
    step = page_policy.act(obs)

    evaluation = policy.evaluate({"obs": obs, "raw_action": step.raw_action})

    assert evaluation.entropy_kind == "exact"
    # The probabilities of all pairs of actions, for each of the 200 observations.
    joint = compute_probabilities(page_policy, step.dist_inputs)
    expected = -(joint * np.log(joint)).sum(axis=(1, 2))
    np.testing.assert_allclose(evaluation.entropy, expected, rtol=1e-3)
