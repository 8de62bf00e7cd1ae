"""`CatalogPolicy` under PPO and A2C, compared with a catalog policy of the same weights."""

import copy
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, OneOf, Text, Tuple
from random_observations import RandomObservations
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import (
    SubprocVecEnv,
    VecFrameStack,
    VecNormalize,
    VecTransposeImage,
)
from torch_weights import assert_every_weight_changed, copy_weights

import rlcatalog
from rlcatalog.errors import NotServedError
from rlcatalog.observations import rows
from rlcatalog_sb3 import CatalogPolicy, for_sb3, to_policy

CPU = torch.device("cpu")


class RandomEnv(RandomObservations):
    """Random observations of any space, in episodes of five steps.

    It records observations and actions, and raises an error at actions outside its space and at
    forbidden ones.
    """

    def __init__(self, observation_space, action_space):
        super().__init__(observation_space, action_space)
        self.observations = []
        self.actions = []

    def step(self, action):
        assert self.action_space.contains(action), action
        obs = self.observations[-1]
        if (
            isinstance(obs, dict)
            and "action_mask" in obs
            and isinstance(self.action_space, Discrete)
        ):
            mask = obs["action_mask"]
            assert mask[action - self.action_space.start], (mask, action)
        self.actions.append(action)
        self.steps += 1
        return self.observe(), float(self.steps), False, self.steps == 5, {}

    def observe(self):
        obs = self.observation_space.sample()
        if isinstance(obs, dict) and "action_mask" in obs:
            obs["action_mask"][..., ::2] = 1  # so that each choice of two values may be 0
        self.observations.append(obs)
        return obs


class Case(NamedTuple):
    observation_space: Any
    action_space: Any
    config: dict[str, Any]


THREE_FEATURES = Box(-1, 1, (3,))
VECTOR_OF_FLOAT64 = Box(-1, 1, (3,), np.float64)
IMAGE = Box(0, 255, (12, 10, 3), np.uint8)
IMAGE_CHANNELS_FIRST = Box(0, 255, (3, 12, 10), np.uint8)
MASKED = Dict({"x": Box(-1, 1, (3,)), "action_mask": Box(0, 1, (4,), np.int8)})
CONVS = {"conv_filters": [[4, 3, 2], [8, 4, 1]], "conv_flatten": True}
SMALL = {"fcnet_hiddens": [16], "post_fcnet_hiddens": []}
EMBEDDED = {**SMALL, "action_embeddings_key": "embeddings"}
SQUASHED = {**SMALL, "custom_action_dist": "squashed_gaussian"}

#: Spaces that Stable-Baselines3 accepts; for_sb3 flattens them as well.
DIRECT = {
    "vector, choice": Case(THREE_FEATURES, Discrete(4), SMALL),
    "doubles, Box": Case(VECTOR_OF_FLOAT64, Box(-2, 1, (2,)), SMALL),
    "doubles, clipped Box": Case(
        VECTOR_OF_FLOAT64, Box(-2, 1, (2,)), {**SMALL, "action_bounds": "clip"}
    ),
    "squashed": Case(THREE_FEATURES, Box(-2, 1, (2,)), SQUASHED),
    "choice, choices": Case(Discrete(5, start=2), MultiDiscrete([2, 3]), SMALL),
    "choices, bits": Case(MultiDiscrete([2, 3]), MultiBinary(3), SMALL),
    "image": Case(IMAGE, Discrete(4), CONVS),
    "image, channels first": Case(
        IMAGE_CHANNELS_FIRST, Discrete(4), {**CONVS, "image_layout": "chw"}
    ),
    "image of floats": Case(Box(0, 1, (12, 10, 3)), Discrete(4), CONVS),
    "dict with image": Case(
        Dict({"i": IMAGE, "n": Discrete(3), "x": Box(-1, 1, (2,))}),
        Discrete(4),
        {**CONVS, **SMALL},
    ),
    "masked": Case(MASKED, Discrete(4), SMALL),
    "masked choices": Case(MASKED, MultiDiscrete([2, 2]), SMALL),
    "embedded actions": Case(
        Dict({**MASKED, "embeddings": Box(-1, 1, (4, 2))}), Discrete(4), EMBEDDED
    ),
}
#: All spaces that for_sb3 flattens.
FLATTENED = {
    **DIRECT,
    "offset": Case(THREE_FEATURES, Discrete(4, start=-2), SMALL),
    "one-hot": Case(THREE_FEATURES, Discrete(4), {**SMALL, "custom_action_dist": "gumbel_softmax"}),
    "whole numbers": Case(THREE_FEATURES, Box(-3, 3, (2,), np.int8), SMALL),
    "nested": Case(
        Tuple([Text(4), Dict({"a": Discrete(3), "b": Tuple([Box(-1, 1, (2,))])})]),
        Discrete(3, start=1),
        SMALL,
    ),
    "hybrid": Case(
        THREE_FEATURES, Tuple([Discrete(3, start=1), Box(0, 1, (2,)), MultiBinary(2)]), SMALL
    ),
    "one of choices": Case(
        THREE_FEATURES, OneOf([Discrete(3, start=1), MultiDiscrete([2, 3])]), SMALL
    ),
    "one of choices and numbers": Case(
        THREE_FEATURES, OneOf([Box(0, 1, (2,)), Discrete(3, start=1)]), SMALL
    ),
    "autoregressive": Case(
        THREE_FEATURES,
        Tuple([Discrete(3, start=1), Box(0, 1, (2,))]),
        {**SMALL, "use_autoregressive": True},
    ),
    "hybrid, masked": Case(
        Dict({"x": Dict({"y": Discrete(2)}), "action_mask": Box(0, 1, (4,), np.int8)}),
        Dict({"go": Discrete(4), "far": Box(-1, 1, (1,))}),
        SMALL,
    ),
}


def train(case, *, flatten, algorithm=PPO, **settings):
    """Train for one rollout of 16 steps.

    Args:
        case: Spaces and config.
        flatten: Whether for_sb3 flattens the environment.
    """
    # Copies, because each space has its own generator.
    observation_space = copy.deepcopy(case.observation_space)
    observation_space.seed(0)
    env = RandomEnv(observation_space, copy.deepcopy(case.action_space))
    policy_kwargs = {"model_config": case.config}
    if flatten:
        env = for_sb3(env, case.config)
        policy_kwargs = {}
    if algorithm is PPO:
        settings = {"batch_size": 8, "n_epochs": 2, **settings}
    model = algorithm(
        CatalogPolicy,
        env,
        n_steps=16,
        seed=0,
        device="cpu",
        policy_kwargs=policy_kwargs,
        **settings,
    )
    return model.learn(16)


class Comparison(NamedTuple):
    model: PPO
    is_flat: bool
    #: Catalog policy with the weights of the model.
    policy: rlcatalog.Policy
    #: Six observations as the environment emits them.
    observations: list[Any]
    #: The same observations as Stable-Baselines3 passes them to its policy.
    batch: Any

    def evaluate(self, raw_actions):
        """Score actions for the observations with the catalog policy."""
        return self.policy.evaluate(
            {
                "obs": self.policy.preprocess(self.observations),
                "raw_action": raw_actions,
                "mask": self.policy.action_mask(self.observations),
            }
        )


def stack(observations):
    if isinstance(observations[0], dict):
        return {key: np.stack([obs[key] for obs in observations]) for key in observations[0]}
    return np.stack(observations)


def compare(case, *, flatten):
    """Train PPO for a rollout, and build a catalog policy with the same weights."""
    model = train(case, flatten=flatten)
    config = model.policy.catalog_policy.resolution.config.given
    policy = rlcatalog.build(case.observation_space, case.action_space, config)
    policy.model.set_weights(model.policy.model.get_weights())

    env = RandomEnv(copy.deepcopy(case.observation_space), case.action_space)
    first_obs, _ = env.reset(seed=7)
    observations = [first_obs, *(env.observe() for _ in range(5))]
    shown = observations
    if flatten:
        flattening = model.env.envs[0].get_wrapper_attr("flattening")
        shown = [flattening.observe(obs) for obs in observations]
    batch = stack(shown)
    if isinstance(model.env, VecTransposeImage):
        batch = model.env.transpose_observations(batch)
    return Comparison(model, flatten, policy, observations, batch)


@pytest.fixture(
    scope="module",
    params=[
        *(pytest.param((case, False), id=f"{name}-own") for name, case in DIRECT.items()),
        *(pytest.param((case, True), id=f"{name}-flat") for name, case in FLATTENED.items()),
    ],
)
def comparison(request):
    """A trained PPO and a catalog policy of the same weights, for spaces of each kind."""
    case, flatten = request.param
    return compare(case, flatten=flatten)


def leaves(value):
    """Return the arrays of a nested action."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if not isinstance(value, tuple | list):
        return [np.asarray(value)]
    arrays = []
    for part in value:
        arrays.extend(leaves(part))
    return arrays


# --- the same outputs -----------------------------------------------------------------------------


def test_predict_acts_like_a_catalog_policy(comparison):
    actions, _ = comparison.model.predict(comparison.batch, deterministic=True)
    if comparison.is_flat:  # predicted actions are raw
        raw_actions = actions.reshape(6, -1)  # of six observations
        actions = comparison.policy.action_codec.adapt(raw_actions)

    expected = comparison.policy.act(comparison.observations, explore=False).action
    for array, expected_array in zip(leaves(actions), leaves(expected), strict=True):
        np.testing.assert_allclose(array, expected_array, rtol=1e-6, atol=1e-6)


def test_sampled_actions_have_the_densities_of_a_catalog_policy(comparison):
    obs = obs_as_tensor(comparison.batch, CPU)

    raw_actions, values, logp = comparison.model.policy(obs)

    expected = comparison.evaluate(raw_actions.reshape(6, -1))  # of six observations
    torch.testing.assert_close(values.flatten(), expected.value, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logp, expected.logp, rtol=1e-5, atol=1e-5)


def test_actions_are_scored_like_in_a_catalog_policy(comparison):
    obs = obs_as_tensor(comparison.batch, CPU)
    raw_actions, _, _ = comparison.model.policy(obs)
    # Stable-Baselines3 stores actions as rows of floats, here six, and choices as rows of one.
    stored_actions = raw_actions.reshape(6, -1).float()
    if isinstance(comparison.model.observation_space, Discrete):
        obs = obs[:, None]  # choices as rows of one, as they are stored

    values, logp, entropy = comparison.model.policy.evaluate_actions(obs, stored_actions)

    expected = comparison.evaluate(stored_actions)
    torch.testing.assert_close(values.flatten(), expected.value, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logp, expected.logp, rtol=1e-5, atol=1e-5)
    assert entropy.shape == (6,)
    if expected.entropy_kind == "exact":  # others are estimated from samples
        torch.testing.assert_close(entropy, expected.entropy, rtol=1e-5, atol=1e-5)


def test_predict_values_returns_the_values_of_forward(comparison):
    obs = obs_as_tensor(comparison.batch, CPU)

    _, values, _ = comparison.model.policy(obs)

    torch.testing.assert_close(comparison.model.policy.predict_values(obs), values)


def test_environment_gets_adapted_actions(comparison):
    model = comparison.model
    raw_actions = model.rollout_buffer.actions.reshape(16, -1)  # a rollout has 16 steps

    codec = model.policy.catalog_policy.action_codec
    adapted_actions = rows(codec.info, codec.adapt(raw_actions))

    recorded_actions = model.env.envs[0].unwrapped.actions
    assert len(recorded_actions) == 16
    for action, adapted_action in zip(recorded_actions, adapted_actions, strict=True):
        # An action may have several parts.
        for part, adapted_part in zip(leaves(action), leaves(adapted_action), strict=True):
            np.testing.assert_array_equal(part, adapted_part)


@pytest.mark.parametrize(
    ("case", "flatten"),
    [
        pytest.param(FLATTENED["hybrid, masked"], True, id="hybrid, masked"),
        pytest.param(DIRECT["doubles, Box"], False, id="doubles, Box"),
        pytest.param(DIRECT["image"], False, id="image"),
    ],
)
def test_stored_actions_are_scored_as_when_sampled(case, flatten):
    # A learning rate of 0 keeps the weights that sampled the actions.
    model = train(case, flatten=flatten, learning_rate=0.0)

    for batch in model.rollout_buffer.get(16):
        actions = batch.actions
        if isinstance(model.action_space, Discrete):
            actions = actions.long().flatten()
        _, logp, _ = model.policy.evaluate_actions(batch.observations, actions)
        torch.testing.assert_close(logp, batch.old_log_prob, rtol=1e-4, atol=1e-5)


def test_images_are_scaled_once():
    config = {"conv_filters": [[4, 3, 2], [8, 4, 1]], "conv_flatten": True}
    # Stable-Baselines3 transposes images, here of 12 x 10 pixels with 3 channels.
    images = Box(0, 255, (12, 10, 3), np.uint8)
    model = train(Case(images, Discrete(4), config), flatten=False)
    assert isinstance(model.env, VecTransposeImage)
    policy_for_floats = rlcatalog.build(Box(0, 1, (12, 10, 3)), Discrete(4), config)
    policy_for_floats.model.set_weights(model.policy.model.get_weights())

    white_bytes = torch.full((1, 3, 12, 10), 255, dtype=torch.uint8)
    values, logp, _ = model.policy.evaluate_actions(white_bytes, actions=torch.zeros(1))

    # In an image of floats, which is not scaled, white is 1.
    white_floats = np.ones((1, 12, 10, 3), np.float32)
    expected = policy_for_floats.evaluate({"obs": white_floats, "raw_action": np.zeros((1, 1))})
    torch.testing.assert_close(values[:, 0], expected.value, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(logp, expected.logp, rtol=1e-5, atol=1e-6)


# --- distributions --------------------------------------------------------------------------------


@pytest.fixture
def masked_distribution():
    """A distribution of four actions: in row 0 only action 0 is allowed, in row 1 only action 1,
    and in row 2 both.
    """
    model = train(DIRECT["masked"], flatten=False)
    mask = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]])
    return model.policy.get_distribution({"x": torch.zeros(3, 3), "action_mask": mask})


def test_distribution_gives_the_only_allowed_action(masked_distribution):
    assert masked_distribution.mode()[:2].tolist() == [0, 1]
    assert masked_distribution.get_actions()[:2].tolist() == [0, 1]


def test_distribution_scores_the_only_allowed_action(masked_distribution):
    logp = masked_distribution.log_prob(torch.tensor([0, 1, 1]))

    torch.testing.assert_close(logp[:2], torch.zeros(2))


def test_distribution_has_no_entropy_if_one_action_is_allowed(masked_distribution):
    entropy = masked_distribution.entropy()

    assert entropy[:2].tolist() == [0.0, 0.0]
    assert entropy[2] > 0.5  # two actions: log(2) if they are equally likely


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_training_changes_every_weight(algorithm):
    case = FLATTENED["hybrid, masked"]
    model = train(case, flatten=True, algorithm=algorithm, learning_rate=0.1)
    weights_before = copy_weights(model.policy.model)

    model.learn(16)

    assert_every_weight_changed(model.policy.model, weights_before)


def test_training_with_the_same_seed_gives_the_same_weights():
    first = train(FLATTENED["hybrid"], flatten=True).policy.model.get_weights()
    second = train(FLATTENED["hybrid"], flatten=True).policy.model.get_weights()

    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


def test_optimizer_arguments_reach_the_optimizer():
    kwargs = {"optimizer_class": torch.optim.SGD, "optimizer_kwargs": {"momentum": 0.5}}
    model = PPO(
        CatalogPolicy, "CartPole-v1", policy_kwargs=kwargs, learning_rate=0.25, device="cpu"
    )

    optimizer = model.policy.optimizer
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.defaults["momentum"] == 0.5
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_adam_has_the_epsilon_of_stable_baselines3():
    model = PPO(CatalogPolicy, "CartPole-v1", device="cpu")

    assert model.policy.optimizer.defaults["eps"] == 1e-5


# --- vector environments --------------------------------------------------------------------------


@pytest.fixture
def normalized_model():
    """PPO whose observations, a nested Dict with an image, VecNormalize normalises."""
    observation_space = Dict({"image": Box(0, 1, (12, 10, 3)), "x": Tuple([Box(-9, 9, (2,))])})
    config = {**CONVS, **SMALL}
    env = make_vec_env(
        lambda: for_sb3(RandomEnv(observation_space, Discrete(3, start=5)), config), 2
    )
    return PPO(CatalogPolicy, VecNormalize(env), n_steps=8, batch_size=8, device="cpu")


def test_normalized_observations_keep_their_structure(normalized_model):
    normalized_model.learn(16)

    # VecNormalize replaces the flat observation space; the action space still has its origin.
    assert normalized_model.policy.catalog_policy.observation_space is not None
    assert type(normalized_model.policy.model).__name__ == "ComplexInputNetwork"


def test_to_policy_rejects_normalized_observations(normalized_model):
    with pytest.raises(NotServedError, match="VecNormalize"):
        to_policy(normalized_model)


def test_ppo_trains_on_stacked_frames():
    images = Box(0, 255, (12, 10, 3), np.uint8)
    envs = make_vec_env(lambda: RandomEnv(images, Discrete(4)), n_envs=2)
    config = {"conv_filters": [[4, 3, 2], [8, 4, 1]], "conv_flatten": True}
    model = PPO(
        CatalogPolicy,
        VecFrameStack(envs, n_stack=2),
        n_steps=8,
        batch_size=8,
        policy_kwargs={"model_config": config},
        device="cpu",
    )

    model.learn(16)

    assert to_policy(model).observation_space.shape == (12, 10, 6)  # 2 frames of 3 channels


@pytest.mark.parametrize("action_space", [Discrete(4), Box(-1, 1, (2,))], ids=["choice", "number"])
def test_to_policy_keeps_the_config_of_channels_first(action_space):
    # Without image_layout, the model expects the channels at the end, and the policy is built again
    # for the environment's layout.
    env = RandomEnv(IMAGE_CHANNELS_FIRST, action_space)
    model = PPO(CatalogPolicy, env, policy_kwargs={"model_config": CONVS}, device="cpu")
    images = np.stack([IMAGE_CHANNELS_FIRST.sample() for _ in range(3)])

    policy = to_policy(model)

    assert policy.observation_space == IMAGE_CHANNELS_FIRST
    expected, _ = model.predict(images, deterministic=True)
    np.testing.assert_allclose(policy.act(images, explore=False).action, expected, rtol=1e-5)


def test_ppo_trains_on_environments_in_processes():
    envs = make_vec_env(
        for_sb3,
        n_envs=2,
        env_kwargs={"env": "CartPole-v1"},
        vec_env_cls=SubprocVecEnv,
        vec_env_kwargs={"start_method": "fork"},
    )
    model = PPO(CatalogPolicy, envs, n_steps=8, batch_size=8, device="cpu")

    model.learn(16)
    envs.close()

    assert to_policy(model).observation_space == gym.make("CartPole-v1").observation_space
