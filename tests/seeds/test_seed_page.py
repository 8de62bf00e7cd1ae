"""Preprocessors, environments and action distributions of RLlib's page, with other imports."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from gymnasium.spaces import Discrete
from scipy import special, stats

import rlcatalog
from rlcatalog import ActionDistribution, ModelCatalog, Preprocessor, one_hot
from rlcatalog.errors import ModelContractError
from rlcatalog_tf import (
    FullyConnectedNetwork as TFFullyConnectedNetwork,
    TFModelV2,
)
from rlcatalog_torch import Categorical

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

FOUR_FEATURES = spaces.Box(-1, 1, (4,), np.float32)
TWO_ACTIONS = Discrete(2)
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
    assert ModelCatalog.get_action_dist(TWO_ACTIONS, config, framework="torch") == (MyActionDist, 7)
    assert ModelCatalog.get_action_dist(TWO_ACTIONS, {}, custom_dist, "torch") == (MyActionDist, 7)


def test_custom_action_distribution_serves_a_policy(custom_dist):
    config = {"custom_action_dist": custom_dist, "fcnet_hiddens": [8]}
    policy = rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, config)
    obs = random_observations(6)
    step = policy.act(obs)

    evaluation = policy.evaluate({"obs": obs, "raw_action": step.raw_action})

    assert step.dist_inputs.shape == (6, 7)
    np.testing.assert_allclose(evaluation.logp.detach(), step.logp, rtol=1e-5)
    # The first two of the seven inputs are the logits of the two actions.
    probabilities = special.softmax(step.dist_inputs[:, :2], axis=1)
    entropy = stats.entropy(probabilities, axis=1)
    np.testing.assert_allclose(evaluation.entropy.detach(), entropy, rtol=1e-5)


@pytest.mark.parametrize(("shape", "size"), [((2, 3), 6), ([4], 4), (np.int64(5), 5)])
def test_required_size_may_be_a_shape(shape, size):
    class Sized(MyActionDist):
        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return shape

    _, required_size = ModelCatalog.get_action_dist(TWO_ACTIONS, {"custom_action_dist": Sized})

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
    policy = rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, config, catalog=catalog)
    message = r"ThreeValues\.sample\(\) returned 3 values per action"
    with pytest.raises(ModelContractError, match=message):
        policy.act(random_observations(6))


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
            "cart": FOUR_FEATURES,
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
    obs = draw_parametric_observations(parametric_policy.observation_space, rows=500)
    step = parametric_policy.act(obs)
    batch = {
        "obs": parametric_policy.preprocess(obs),
        "raw_action": step.raw_action,
        "mask": parametric_policy.action_mask(obs),
    }

    evaluation = parametric_policy.evaluate(batch)

    np.testing.assert_allclose(evaluation.logp, step.logp, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(evaluation.value, step.value, rtol=1e-5, atol=1e-6)
    assert np.isfinite(evaluation.entropy).all()
