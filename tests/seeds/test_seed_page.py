"""Preprocessors, environments and action distributions of RLlib's page, with other imports."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from gymnasium.spaces import Discrete, Tuple
from scipy import special, stats

import rlcatalog
from rlcatalog import ActionDistribution, ModelCatalog, Preprocessor, TupleActions, one_hot
from rlcatalog.errors import ModelContractError
from rlcatalog_tf import (
    Categorical as TFCategorical,
    FullyConnectedNetwork as TFFullyConnectedNetwork,
    TFModelV2,
    normc_initializer,
)
from rlcatalog_torch import Categorical

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

OBS = spaces.Box(-1, 1, (4,), np.float32)
TWO = Discrete(2)
SMALL = {"fcnet_hiddens": [8]}


def random_observations(rows):
    return np.random.default_rng(0).uniform(-1, 1, (rows, 4)).astype(np.float32)


# --- preprocessors and environments of the page ---------------------------------------------------


class MyPreprocessorClass(Preprocessor):
    def _init_shape(self, obs_space, options):
        self.scale = options["custom_options"].get("scale", 1.0)
        return (obs_space.shape[0] + 1,)

    def transform(self, observation):
        return np.append(self.scale * observation, 1.0).astype(np.float32)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("preprocessor", ["my_prep", MyPreprocessorClass], ids=["name", "class"])
def test_custom_preprocessor_serves_a_policy(default, preprocessor):
    ModelCatalog.register_custom_preprocessor("my_prep", MyPreprocessorClass)
    config = {"custom_preprocessor": preprocessor, "custom_options": {"scale": 2.0}, **SMALL}
    policy = rlcatalog.build(env=gym.make("CartPole-v1"), config=config)
    obs = np.array([[0.1, 0.2, 0.3, 0.4]], np.float32)

    encoded = policy.preprocess(obs)

    np.testing.assert_allclose(encoded, [[0.2, 0.4, 0.6, 0.8, 1.0]], rtol=1e-6)
    assert policy.act(obs).action.shape == (1,)


class OneHotEnv(gym.ObservationWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.observation_space = spaces.Box(0, 1, (16,), np.float32)

    def observation(self, observation):
        return one_hot(observation, depth=16)


def test_page_wrapper_works_around_an_environment(default):
    env = OneHotEnv(gym.make("FrozenLake-v1"))
    policy = rlcatalog.build(env=env, config={**SMALL, "check_observations": "always"})
    obs, _ = env.reset(seed=0)
    assert policy.act([obs]).action.shape == (1,)


# --- action distributions of the page -------------------------------------------------------------


class MyActionDist(ActionDistribution):
    """The seeds' example: seven outputs, of which the first few are logits."""

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 7  # controls model output feature vector size

    def __init__(self, inputs, model):
        super(MyActionDist, self).__init__(inputs, model)  # noqa: UP008
        assert model.num_outputs == 7
        self.logits = Categorical(inputs[:, : model.action_space.n], model)

    def sample(self):
        return self.logits.sample()

    def logp(self, actions):
        return self.logits.logp(actions)

    def entropy(self):
        return self.logits.entropy()


@pytest.fixture(params=["my_dist", MyActionDist], ids=["name", "class"])
def custom_dist(request, default):
    """The page's distribution, by its registered name or by its class."""
    ModelCatalog.register_custom_action_dist("my_dist", MyActionDist)
    return request.param


def test_get_action_dist_returns_a_custom_distribution(custom_dist):
    config = {"custom_action_dist": custom_dist}
    assert ModelCatalog.get_action_dist(TWO, config, framework="torch") == (MyActionDist, 7)
    assert ModelCatalog.get_action_dist(TWO, {}, custom_dist, "torch") == (MyActionDist, 7)


def test_custom_action_distribution_serves_a_policy(custom_dist):
    policy = rlcatalog.build(OBS, TWO, {"custom_action_dist": custom_dist, **SMALL})
    obs = random_observations(6)
    step = policy.act(obs)

    evaluation = policy.evaluate({"obs": obs, "raw_action": step.raw_action})

    assert step.dist_inputs.shape == (6, 7)
    np.testing.assert_allclose(evaluation.logp.detach(), step.logp, rtol=1e-5)
    # The first two of seven inputs are the logits.
    probabilities = special.softmax(step.dist_inputs[:, :2], axis=1)
    entropy = stats.entropy(probabilities, axis=1)
    np.testing.assert_allclose(evaluation.entropy.detach(), entropy, rtol=1e-5)
    assert evaluation.entropy_kind == "exact"


@pytest.mark.parametrize(("shape", "size"), [((2, 3), 6), ([4], 4), (np.int64(5), 5)])
def test_required_size_may_be_a_shape(shape, size):
    class Sized(MyActionDist):
        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return shape

    _, required_size = ModelCatalog.get_action_dist(TWO, {"custom_action_dist": Sized})

    assert required_size == size
    assert type(required_size) is int


class ThreeValues(MyActionDist):
    """Returns three values for an action that has one."""

    def sample(self):
        return torch.zeros(len(self.inputs), 3)

    def logp(self, actions):
        return torch.zeros(len(self.inputs))


def test_sample_of_the_wrong_width_is_an_error(catalog):
    config = {"custom_action_dist": ThreeValues, **SMALL}
    policy = rlcatalog.build(OBS, TWO, config, catalog=catalog)
    message = r"ThreeValues\.sample\(\) returned 3 values per action"
    with pytest.raises(ModelContractError, match=message):
        policy.act(random_observations(6))


# --- autoregressive actions -----------------------------------------------------------------------


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
        return TFCategorical(a1_logits, None).logp(a1) + TFCategorical(a2_logits, None).logp(a2)

    def _a1_distribution(self):
        BATCH = tf.shape(self.inputs)[0]
        a1_logits, _ = self.model.action_model([self.inputs, tf.zeros((BATCH, 1))])
        a1_dist = TFCategorical(a1_logits, None)
        return a1_dist

    def _a2_distribution(self, a1):
        a1_vec = tf.expand_dims(tf.cast(a1, tf.float32), 1)
        _, a2_logits = self.model.action_model([self.inputs, a1_vec])
        a2_dist = TFCategorical(a2_logits, None)
        return a2_dist


class AutoregressiveActionsModel(TFModelV2):
    """Implements the `.action_model` branch required above."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super(AutoregressiveActionsModel, self).__init__(  # noqa: UP008
            obs_space, action_space, num_outputs, model_config, name
        )
        if action_space != Tuple([Discrete(2), Discrete(2)]):
            raise ValueError("This model only supports the [2, 2] action space")

        # Inputs
        obs_input = tf.keras.layers.Input(shape=obs_space.shape, name="obs_input")
        a1_input = tf.keras.layers.Input(shape=(1,), name="a1_input")
        ctx_input = tf.keras.layers.Input(shape=(num_outputs,), name="ctx_input")

        # Output of the model (normally 'logits', but for an autoregressive
        # dist this is more like a context/feature layer encoding the obs)
        context = tf.keras.layers.Dense(
            num_outputs,
            name="hidden",
            activation=tf.nn.tanh,
            kernel_initializer=normc_initializer(1.0),
        )(obs_input)

        # P(a1 | obs)
        a1_logits = tf.keras.layers.Dense(
            2, name="a1_logits", activation=None, kernel_initializer=normc_initializer(0.01)
        )(ctx_input)

        # P(a2 | a1)
        a2_context = a1_input
        a2_hidden = tf.keras.layers.Dense(
            16, name="a2_hidden", activation=tf.nn.tanh, kernel_initializer=normc_initializer(1.0)
        )(a2_context)
        a2_logits = tf.keras.layers.Dense(
            2, name="a2_logits", activation=None, kernel_initializer=normc_initializer(0.01)
        )(a2_hidden)

        # Base layers
        self.base_model = tf.keras.Model(obs_input, context)
        self.register_variables(self.base_model.variables)
        self.base_model.summary()

        # Autoregressive action sampler
        self.action_model = tf.keras.Model([ctx_input, a1_input], [a1_logits, a2_logits])
        self.action_model.summary()
        self.register_variables(self.action_model.variables)

    def forward(self, input_dict, state, seq_lens):
        return self.base_model(input_dict["obs"]), state


PAIR = Tuple([Discrete(2), Discrete(2)])


@pytest.fixture
def autoregressive_policy(default):
    """A policy whose second action depends on the first one, by its random weights."""
    ModelCatalog.register_custom_model("autoregressive_model", AutoregressiveActionsModel)
    ModelCatalog.register_custom_action_dist("binary_autoreg_dist", BinaryAutoregressiveOutput)
    config = {"custom_model": "autoregressive_model", "custom_action_dist": "binary_autoreg_dist"}
    policy = rlcatalog.build(OBS, PAIR, config)
    random = np.random.default_rng(0)
    weights = {}
    for name, array in policy.model.get_weights().items():
        weights[name] = random.normal(0, 0.5, array.shape)
    policy.model.set_weights(weights)
    return policy


def test_autoregressive_classes_of_the_page_are_for_tensorflow(autoregressive_policy):
    assert autoregressive_policy.framework == "tf"
    # Kernels and biases of four layers.
    assert len(autoregressive_policy.model.trainable_variables()) == 8


def test_autoregressive_policy_draws_pairs(autoregressive_policy):
    step = autoregressive_policy.act(random_observations(100))

    assert isinstance(step.action, tuple)
    assert step.raw_action.shape == (100, 2)
    assert step.dist_inputs.shape == (100, 16)
    for pair in zip(*step.action, strict=True):
        assert pair in PAIR


def compute_joint_distribution(model, context):
    """Return the probabilities of the four pairs `[2, 2]`, from the logits of both actions."""
    first_logits, _ = model.action_model([context, np.zeros((1, 1), np.float32)])
    first = special.softmax(first_logits.numpy()[0])
    joint = []
    for a1 in (0, 1):
        _, second_logits = model.action_model([context, np.full((1, 1), a1, np.float32)])
        joint.append(first[a1] * special.softmax(second_logits.numpy()[0]))
    joint = np.array(joint, np.float64)
    return joint / joint.sum()


def test_autoregressive_draws_follow_the_joint_distribution(autoregressive_policy):
    one_observation = np.tile(random_observations(1), (4000, 1))

    step = autoregressive_policy.act(one_observation)

    joint = compute_joint_distribution(autoregressive_policy.model, step.dist_inputs[:1])
    conditionals = joint / joint.sum(axis=1, keepdims=True)
    assert abs(conditionals[0, 0] - conditionals[1, 0]) > 0.05  # a2 depends on a1
    a1, a2 = step.raw_action.T.astype(int)
    np.testing.assert_allclose(step.logp, np.log(joint[a1, a2]), rtol=1e-4)
    counts = np.bincount(2 * a1 + a2, minlength=4)
    assert stats.chisquare(counts, 4000 * joint.ravel()).pvalue > 1e-3


def test_autoregressive_actions_score_alike_from_stored_inputs(autoregressive_policy):
    step = autoregressive_policy.act(random_observations(100))

    dist = autoregressive_policy.dist_class(
        tf.constant(step.dist_inputs), autoregressive_policy.model
    )

    np.testing.assert_allclose(dist.logp(tf.constant(step.raw_action)), step.logp, rtol=1e-5)


def test_training_autoregressive_actions_reaches_every_weight(autoregressive_policy):
    obs = random_observations(3000)
    step = autoregressive_policy.act(obs)

    with tf.GradientTape() as tape:
        evaluation = autoregressive_policy.evaluate({"obs": obs, "raw_action": step.raw_action})
        loss = -tf.reduce_mean(evaluation.logp)

    np.testing.assert_allclose(evaluation.logp, step.logp, rtol=1e-4, atol=1e-6)
    for gradient in tape.gradient(loss, autoregressive_policy.model.trainable_variables()):
        assert gradient is not None


def test_entropy_of_the_autoregressive_actions_is_estimated(autoregressive_policy):
    obs = random_observations(3000)
    step = autoregressive_policy.act(obs)

    evaluation = autoregressive_policy.evaluate({"obs": obs, "raw_action": step.raw_action})

    assert evaluation.entropy_kind == "estimate"  # the class has no entropy()
    assert evaluation.entropy.shape == (3000,)
    # The mean of -logp estimates the same entropy.
    assert abs(float(tf.reduce_mean(evaluation.entropy)) + float(step.logp.mean())) < 0.1


def test_page_model_rejects_another_space(default):
    config = {
        "custom_model": AutoregressiveActionsModel,
        "custom_action_dist": BinaryAutoregressiveOutput,
    }
    with pytest.raises(ValueError, match=r"only supports the \[2, 2\] action space"):
        rlcatalog.build(OBS, Tuple([Discrete(2), Discrete(3)]), config)


# --- parametric actions ---------------------------------------------------------------------------


class ParametricActionsModel(TFModelV2):
    """The seeds' model over embeddings of the available actions; `tf.log` is called `tf.math.log`
    now.
    """

    def __init__(
        self,
        obs_space,
        action_space,
        num_outputs,
        model_config,
        name,
        true_obs_shape=(4,),
        action_embed_size=2,
    ):
        super(ParametricActionsModel, self).__init__(  # noqa: UP008
            obs_space, action_space, num_outputs, model_config, name
        )
        self.action_embed_model = TFFullyConnectedNetwork(
            spaces.Box(-1, 1, true_obs_shape),
            action_space,
            action_embed_size,
            model_config,
            name + "_action_embed",
        )

    def forward(self, input_dict, state, seq_lens):
        # Extract the available actions tensor from the observation.
        avail_actions = input_dict["obs"]["avail_actions"]
        action_mask = input_dict["obs"]["action_mask"]
        # Compute the predicted action embedding
        action_embed, _ = self.action_embed_model({"obs": input_dict["obs"]["cart"]})
        # Expand the model output to [BATCH, 1, EMBED_SIZE].
        intent_vector = tf.expand_dims(action_embed, 1)
        # Batch dot product => shape of logits is [BATCH, MAX_ACTIONS].
        action_logits = tf.reduce_sum(avail_actions * intent_vector, axis=2)
        # Mask out invalid actions (use tf.float32.min for stability)
        inf_mask = tf.maximum(tf.math.log(action_mask), tf.float32.min)
        return action_logits + inf_mask, state

    def value_function(self):
        return self.action_embed_model.value_function()


@pytest.fixture
def parametric_policy(catalog):
    """A policy over five actions, of which an observation holds the embeddings."""
    space = spaces.Dict(
        {
            "action_mask": spaces.Box(0, 1, (5,)),
            "avail_actions": spaces.Box(-1, 1, (5, 2)),
            "cart": OBS,
        }
    )
    config = {"custom_model": ParametricActionsModel, **SMALL}
    return rlcatalog.build(space, Discrete(5), config, catalog=catalog)


def draw_parametric_observations(space, rows):
    """Return observations whose masks allow at least one action."""
    space.seed(0)
    random = np.random.default_rng(0)
    observations = []
    for _ in range(rows):
        mask = (random.random(5) < 0.4).astype(np.float32)
        mask[random.integers(5)] = 1
        observations.append({**space.sample(), "action_mask": mask})
    return observations


def test_parametric_policy_takes_allowed_actions(parametric_policy):
    obs = draw_parametric_observations(parametric_policy.observation_space, 500)

    step = parametric_policy.act(obs)

    for row, action in zip(obs, step.action, strict=True):
        assert row["action_mask"][action]
    assert np.isfinite(step.logp).all()


def test_parametric_policy_is_evaluated_as_it_acts(parametric_policy):
    obs = draw_parametric_observations(parametric_policy.observation_space, 500)
    step = parametric_policy.act(obs)

    evaluation = parametric_policy.evaluate(
        {
            "obs": parametric_policy.preprocess(obs),
            "raw_action": step.raw_action,
            "mask": parametric_policy.action_mask(obs),
        }
    )

    np.testing.assert_allclose(evaluation.logp, step.logp, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(evaluation.value, step.value, rtol=1e-5, atol=1e-6)
    assert np.isfinite(evaluation.entropy).all()
