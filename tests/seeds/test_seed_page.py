"""The contract on paper: the preprocessors, environments and action distributions of RLlib's page,
imports changed.
"""

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

BOX, TWO = spaces.Box(-1, 1, (4,), np.float32), Discrete(2)
SMALL = {"fcnet_hiddens": [8]}


def observations(space=BOX, n=6, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


# --- preprocessors and environments of the page ---------------------------------------------------


class MyPreprocessorClass(Preprocessor):
    def _init_shape(self, obs_space, options):
        self.scale = options["custom_options"].get("scale", 1.0)
        return (obs_space.shape[0] + 1,)

    def transform(self, observation):
        return np.append(self.scale * observation, 1.0).astype(np.float32)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("named", ["my_prep", MyPreprocessorClass], ids=["name", "class"])
def test_custom_preprocessor_serves_a_policy(default, named):
    ModelCatalog.register_custom_preprocessor("my_prep", MyPreprocessorClass)
    config = {"custom_preprocessor": named, "custom_options": {"scale": 2.0}, **SMALL}
    policy = rlcatalog.build(env=gym.make("CartPole-v1"), config=config)
    obs = np.stack([np.array([0.1, 0.2, 0.3, 0.4], np.float32)] * 2)
    np.testing.assert_allclose(policy.preprocess(obs), [[0.2, 0.4, 0.6, 0.8, 1.0]] * 2, rtol=1e-6)
    assert policy.act(obs).action.shape == (2,)


def test_page_wrapper_works_around_an_environment(default):
    class OneHotEnv(gym.ObservationWrapper):
        def __init__(self, env):
            super().__init__(env)
            self.observation_space = spaces.Box(0, 1, (16,), np.float32)

        def observation(self, observation):
            return one_hot(observation, depth=16)

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


@pytest.mark.parametrize("named", ["my_dist", MyActionDist], ids=["name", "class"])
def test_custom_action_distribution_serves_a_policy(default, named):
    ModelCatalog.register_custom_action_dist("my_dist", MyActionDist)
    config = {"custom_action_dist": named, **SMALL}
    assert ModelCatalog.get_action_dist(TWO, config, framework="torch") == (MyActionDist, 7)
    assert ModelCatalog.get_action_dist(TWO, {}, named, "torch") == (MyActionDist, 7)
    policy = rlcatalog.build(BOX, TWO, config)
    step = policy.act(observations())
    assert step.dist_inputs.shape == (6, 7)
    found = policy.evaluate(
        {"obs": policy.preprocess(observations()), "raw_action": step.raw_action}
    )
    np.testing.assert_allclose(found.logp.detach(), step.logp, rtol=1e-5)
    expected = stats.entropy(special.softmax(step.dist_inputs[:, :2], axis=1), axis=1)
    np.testing.assert_allclose(found.entropy.detach(), expected, rtol=1e-5)
    assert found.entropy_kind == "exact"


@pytest.mark.parametrize(("size", "number"), [((2, 3), 6), ([4], 4), (np.int64(5), 5)])
def test_required_size_may_be_a_shape(size, number):
    class Sized(MyActionDist):
        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return size

    found = ModelCatalog.get_action_dist(TWO, {"custom_action_dist": Sized})[1]
    assert found == number
    assert type(found) is int


def test_sample_of_the_wrong_width_is_rejected(catalog):
    class Wide(MyActionDist):
        def sample(self):
            return torch.zeros(len(self.inputs), 3)

        def logp(self, actions):
            return torch.zeros(len(self.inputs))

    policy = rlcatalog.build(BOX, TWO, {"custom_action_dist": Wide, **SMALL}, catalog=catalog)
    with pytest.raises(
        ModelContractError,
        match=r"Wide\.sample\(\) returned 3 values per action; Discrete\(2\) nee",
    ):
        policy.act(observations())


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
def autoregressive(default):
    ModelCatalog.register_custom_model("autoregressive_model", AutoregressiveActionsModel)
    ModelCatalog.register_custom_action_dist("binary_autoreg_dist", BinaryAutoregressiveOutput)
    config = {"custom_model": "autoregressive_model", "custom_action_dist": "binary_autoreg_dist"}
    policy = rlcatalog.build(BOX, PAIR, config)
    # Weights that make the second action depend on the first one, visibly.
    random = np.random.default_rng(0)
    policy.model.set_weights(
        {n: random.normal(0, 0.5, a.shape) for n, a in policy.model.get_weights().items()}
    )
    return policy


def test_page_autoregressive_actions_work(autoregressive):
    policy, rows = autoregressive, 4000
    assert policy.framework == "tf"
    obs = np.tile(observations(n=1)[0], (rows, 1))
    step = policy.act(obs)
    assert isinstance(step.action, tuple)
    assert step.raw_action.shape == (rows, 2)
    assert step.dist_inputs.shape == (rows, 16)
    assert all(pair in PAIR for pair in zip(*step.action, strict=True))
    # By hand: the joint distribution over the four pairs, from the two conditionals.
    context = step.dist_inputs[:1]
    first = special.softmax(
        policy.model.action_model([context, np.zeros((1, 1), np.float32)])[0].numpy()[0]
    )
    second = [
        special.softmax(
            policy.model.action_model([context, np.full((1, 1), a, np.float32)])[1].numpy()[0]
        )
        for a in (0, 1)
    ]
    joint = np.array([[first[a] * second[a][b] for b in (0, 1)] for a in (0, 1)], np.float64)
    joint /= joint.sum()
    assert abs(second[0][0] - second[1][0]) > 0.05
    a1, a2 = step.raw_action.T.astype(int)
    np.testing.assert_allclose(step.logp, np.log(joint[a1, a2]), rtol=1e-4)
    counts = np.bincount(2 * a1 + a2, minlength=4)
    assert stats.chisquare(counts, rows * joint.ravel()).pvalue > 1e-3
    # The stored raw actions score the same in training, from inputs alone too.
    batch = {"obs": policy.preprocess(obs), "raw_action": step.raw_action}
    rebuilt = policy.dist_class(tf.constant(step.dist_inputs), policy.model)
    np.testing.assert_allclose(rebuilt.logp(tf.constant(step.raw_action)), step.logp, rtol=1e-5)
    assert len(policy.model.trainable_variables()) == 8
    assert batch["obs"].shape == (rows, 4)


def test_training_the_pages_autoregressive_actions(autoregressive):
    policy, obs = autoregressive, np.stack(observations(n=3000))
    step = policy.act(obs)
    batch = {"obs": policy.preprocess(obs), "raw_action": step.raw_action}
    with tf.GradientTape() as tape:
        found = policy.evaluate(batch)
        loss = -tf.reduce_mean(found.logp)
    np.testing.assert_allclose(found.logp, step.logp, rtol=1e-4, atol=1e-6)
    assert all(
        gradient is not None for gradient in tape.gradient(loss, policy.model.trainable_variables())
    )
    # The class has no entropy(): an estimate stands in, and is said to be one.
    assert found.entropy_kind == "estimate"
    assert found.entropy.shape == (3000,)
    assert abs(float(tf.reduce_mean(found.entropy)) + float(step.logp.mean())) < 0.1


def test_page_model_rejects_another_space(default):
    with pytest.raises(ValueError, match=r"only supports the \[2, 2\] action space"):
        rlcatalog.build(
            BOX,
            Tuple([Discrete(2), Discrete(3)]),
            {
                "custom_model": AutoregressiveActionsModel,
                "custom_action_dist": BinaryAutoregressiveOutput,
            },
        )


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


def test_page_parametric_actions_work(catalog):
    n = 5
    space = spaces.Dict(
        {
            "action_mask": spaces.Box(0, 1, (n,)),
            "avail_actions": spaces.Box(-1, 1, (n, 2)),
            "cart": BOX,
        }
    )
    policy = rlcatalog.build(
        space, Discrete(n), {"custom_model": ParametricActionsModel, **SMALL}, catalog=catalog
    )
    obs = observations(space, 500)
    random = np.random.default_rng(0)
    for row in obs:
        row["action_mask"] = (random.random(n) < 0.4).astype(np.float32)
        row["action_mask"][random.integers(n)] = 1
    step = policy.act(obs)
    mask = np.stack([row["action_mask"] for row in obs])
    assert mask[np.arange(500), step.action].all()
    assert np.isfinite(step.logp).all()
    batch = {"obs": policy.preprocess(obs), "raw_action": step.raw_action}
    found = policy.evaluate({**batch, "mask": policy.action_mask(obs)})
    assert np.isfinite(found.entropy).all()
    np.testing.assert_allclose(found.logp, step.logp, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.value, step.value, rtol=1e-5, atol=1e-6)
