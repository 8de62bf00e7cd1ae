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

OBS, PAIR = Box(-1, 1, (3,), np.float32), Tuple([Discrete(2), Discrete(2)])


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
    ModelCatalog.register_custom_model("autoregressive_model", FilledModel)
    ModelCatalog.register_custom_action_dist("binary_autoreg_output", FilledOutput)
    return {"custom_model": "autoregressive_model", "custom_action_dist": "binary_autoreg_output"}


class Correlated(gym.Env):
    """RLlib's environment for its example: the sign of the context and both actions must fit
    together.
    """

    observation_space, action_space = OBS, PAIR

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


def probabilities(policy, inputs):
    """The four pairs' probabilities `[B, 2, 2]` by hand, from the model's two sets of logits."""
    zeros = np.zeros((len(inputs), 1), np.float32)
    first = special.softmax(
        policy.model.action_model([inputs, zeros])[0].numpy().astype(float), axis=1
    )
    second = [
        special.softmax(
            policy.model.action_model([inputs, zeros + a])[1].numpy().astype(float), axis=1
        )
        for a in (0, 1)
    ]
    return np.stack([first[:, [a]] * second[a] for a in (0, 1)], axis=1)


def randomised(policy):
    rng = np.random.default_rng(0)
    policy.model.set_weights(
        {n: rng.normal(0, 0.5, w.shape) for n, w in policy.model.get_weights().items()}
    )
    return policy


def test_page_classes_score_the_actions_they_drew(config):
    policy = randomised(rlcatalog.build(OBS, PAIR, config))
    assert policy.framework == "tf"  # the classes decide
    rows = 3000
    obs = np.tile(np.array([[0.2, -0.5, 0.9]], np.float32), (rows, 1))
    step = policy.act(obs)
    assert step.dist_inputs.shape == (rows, 16)
    assert step.value.shape == (rows,)
    assert PAIR.contains(tuple(part[0] for part in step.action))
    [joint] = probabilities(policy, step.dist_inputs[:1])
    assert joint.sum() == pytest.approx(1.0, abs=1e-5)
    assert np.abs(joint - np.outer(joint.sum(1), joint.sum(0))).max() > 0.01  # a2 depends on a1
    a1, a2 = step.raw_action.T.astype(int)
    np.testing.assert_allclose(step.logp, np.log(joint[a1, a2]), rtol=1e-4, atol=1e-5)
    assert (
        stats.chisquare(np.bincount(2 * a1 + a2, minlength=4), rows * joint.ravel()).pvalue > 1e-3
    )
    best = policy.act(obs, explore=False).raw_action[0]
    assert best[0] == joint.sum(axis=1).argmax()
    assert best[1] == joint[int(best[0])].argmax()


def test_page_classes_are_evaluated_with_gradients(config):
    policy = randomised(rlcatalog.build(OBS, PAIR, config))
    obs = np.random.default_rng(1).uniform(-1, 1, (500, 3)).astype(np.float32)
    step = policy.act(obs)
    with tf.GradientTape() as tape:
        found = policy.evaluate({"obs": obs, "raw_action": step.raw_action})
        loss = tf.reduce_sum(found.logp) + tf.reduce_sum(found.value)
    np.testing.assert_allclose(found.logp, step.logp, rtol=1e-4, atol=1e-5)
    variables = policy.model.trainable_variables()
    assert len(variables) == 10
    assert all(
        np.any(tf.convert_to_tensor(gradient)) for gradient in tape.gradient(loss, variables)
    )
    # The page's class has no entropy(): one is estimated, and said to be.
    assert found.entropy_kind == "estimate"
    with pytest.raises(NoClosedFormError, match="FilledOutput has no closed form for its entropy"):
        found.dist.entropy()
    joint = probabilities(policy, step.dist_inputs)
    exact = -(joint * np.log(joint)).sum(axis=(1, 2)).mean()
    assert float(tf.reduce_mean(found.entropy)) == pytest.approx(exact, abs=0.1)


def test_page_classes_train_under_ppo(config):
    algo = PPO(
        Correlated,
        {
            "model": config,
            "num_envs": 4,
            "rollout_length": 32,
            "minibatch_size": 64,
            "num_epochs": 2,
            "seed": 0,
        },
    )
    before = algo.policy.model.get_weights()
    learner = algo.train()["info"]["learner"]
    after = algo.policy.model.get_weights()
    assert np.isfinite([value for value in learner.values() if isinstance(value, float)]).all()
    assert [name for name in before if np.array_equal(before[name], after[name])] == []
    algo.stop()


def test_page_model_rejects_spaces_the_built_in_head_takes(config):
    with pytest.raises(ValueError, match=r"only supports the \[2, 2\] action space"):
        rlcatalog.build(OBS, Tuple([Discrete(2), Discrete(3)]), config)
    policy = rlcatalog.build(
        OBS, Tuple([Discrete(2), Discrete(3)]), {"use_autoregressive": True}, "tf"
    )
    assert policy.act(np.zeros((2, 3), np.float32)).raw_action.shape == (2, 2)


def test_built_in_distribution_equals_that_of_the_page(config):
    """With the page's weights moved into the head, both say the same of every pair."""
    page = randomised(rlcatalog.build(OBS, PAIR, config))
    mine = rlcatalog.build(
        OBS,
        PAIR,
        {"use_autoregressive": True, "autoregressive_hiddens": [16], "fcnet_hiddens": [16]},
        "tf",
    )
    theirs, weights = (
        page.model.get_weights(),
        {n: np.zeros_like(w) for n, w in mine.model.get_weights().items()},
    )
    layers = {
        layer.name: [w.numpy() for w in layer.weights]
        for model in (page.model.base_model, page.model.action_model)
        for layer in model.layers
        if layer.weights
    }
    assert len(layers) == 4
    assert theirs
    weights["trunk.hidden.layers.0.weight"][:] = layers["hidden"][0].T
    weights["trunk.hidden.layers.0.bias"][:] = layers["hidden"][1]
    weights["outputs.logits.weight"][:2] = layers["a1_logits"][0].T
    weights["outputs.logits.bias"][:] = np.concatenate(
        [layers["a1_logits"][1], layers["a2_logits"][1]]
    )
    weights["to_context.bias"][16:] = layers["a2_hidden"][1]  # the units of the second part
    # The page feeds a1 as a number.
    weights["conditionals.actions"][16:, 1] = layers["a2_hidden"][0][0]
    weights["conditionals.params"][2:, 16:] = layers["a2_logits"][0].T
    mine.model.set_weights(weights)
    obs = np.random.default_rng(2).uniform(-1, 1, (200, 3)).astype(np.float32)
    step = page.act(obs)
    found = mine.evaluate({"obs": obs, "raw_action": step.raw_action})
    np.testing.assert_allclose(found.logp, step.logp, rtol=1e-4, atol=1e-5)
    joint = probabilities(page, step.dist_inputs)
    assert found.entropy_kind == "exact"
    np.testing.assert_allclose(found.entropy, -(joint * np.log(joint)).sum(axis=(1, 2)), rtol=1e-3)
