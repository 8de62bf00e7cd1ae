"""Defaults of the model config under Stable-Baselines3, which follow its own nets."""

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

from gymnasium.spaces import Box, Dict, Discrete
from sb3_helpers import RandomEnv, extractor_kwargs
from scipy.stats import ks_2samp
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3

from rlcatalog_sb3 import CatalogPolicy, for_sb3, to_policy

THREE_NUMBERS = Box(-1, 1, (3,), np.float32)
IMAGE_42x42 = Box(0, 255, (42, 42, 3), np.uint8)
TWO_NUMBERS = Box(-2, 2, (2,), np.float32)


def own_policy_name(observation_space):
    """Return the name of Stable-Baselines3's own policy for an observation space."""
    if isinstance(observation_space, Dict):
        return "MultiInputPolicy"
    return "CnnPolicy" if len(observation_space.shape) == 3 else "MlpPolicy"


def make_model(algorithm, policy, env, **policy_kwargs):
    return algorithm(policy, env, n_steps=64, device="cpu", seed=0, policy_kwargs=policy_kwargs)


def env_with(observation_space):
    """Return an environment with two actions."""
    return RandomEnv(observation_space, Discrete(2))


# --- layers that actor and critic share -----------------------------------------------------------


@pytest.mark.parametrize("algorithm", [PPO, A2C])
@pytest.mark.parametrize(
    "observation_space",
    [
        pytest.param(THREE_NUMBERS, id="vector"),
        pytest.param(IMAGE_42x42, id="image"),
        pytest.param(Dict({"a": THREE_NUMBERS, "b": IMAGE_42x42}), id="vector and image"),
        pytest.param(Dict({"a": THREE_NUMBERS, "b": THREE_NUMBERS}), id="two vectors"),
    ],
)
@pytest.mark.parametrize("flatten", [False, True])
def test_actor_and_critic_share_layers_as_in_own_nets(algorithm, observation_space, flatten):
    env = env_with(observation_space)
    own_policy = make_model(algorithm, own_policy_name(observation_space), env).policy
    # Actor and critic share the features extractor, which has weights only for images.
    own_nets_share = len(list(own_policy.features_extractor.parameters())) > 0

    policy = make_model(algorithm, CatalogPolicy, for_sb3(env) if flatten else env).policy

    assert policy.catalog_policy.config["vf_share_layers"] == own_nets_share


@pytest.mark.parametrize("vf_share_layers", [True, False])
@pytest.mark.parametrize("observation_space", [THREE_NUMBERS, IMAGE_42x42], ids=["vector", "image"])
def test_vf_share_layers_of_the_policy_overrides_default(observation_space, vf_share_layers):
    config = {"vf_share_layers": vf_share_layers}

    model = make_model(PPO, CatalogPolicy, env_with(observation_space), model_config=config)

    assert model.policy.catalog_policy.config["vf_share_layers"] is vf_share_layers


@pytest.mark.parametrize("vf_share_layers", [True, False])
@pytest.mark.parametrize("observation_space", [THREE_NUMBERS, IMAGE_42x42], ids=["vector", "image"])
def test_vf_share_layers_of_the_environment_overrides_default(observation_space, vf_share_layers):
    env = for_sb3(env_with(observation_space), {"vf_share_layers": vf_share_layers})

    model = make_model(PPO, CatalogPolicy, env)

    assert model.policy.catalog_policy.config["vf_share_layers"] is vf_share_layers


def test_loaded_algorithm_has_separate_layers_as_before(tmp_path):
    # Actor and critic have no common layers by default if observations are vectors.
    model = make_model(PPO, CatalogPolicy, env_with(Box(-1, 1, (3,))))
    model.save(tmp_path / "model.zip")

    loaded = PPO.load(tmp_path / "model.zip", device="cpu")

    assert loaded.policy.catalog_policy.config["vf_share_layers"] is False
    obs = np.zeros((2, 3), np.float32)
    expected, _ = model.predict(obs, deterministic=True)
    actions, _ = loaded.predict(obs, deterministic=True)
    np.testing.assert_array_equal(actions, expected)


# --- standard deviations --------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_stddevs_start_at_1_as_in_the_own_net(algorithm):
    env = RandomEnv(THREE_NUMBERS, TWO_NUMBERS)
    own_policy = make_model(algorithm, "MlpPolicy", env).policy
    policy = make_model(algorithm, CatalogPolicy, env).policy
    four_observations = torch.randn(4, 3)

    own_stddev = own_policy.get_distribution(four_observations).distribution.stddev
    stddev = torch.as_tensor(policy.get_distribution(four_observations).distribution.std)

    assert (own_stddev == 1).all()
    assert (stddev == 1).all()
    # As in the own net, the stddevs are weights: they do not depend on observations.
    assert policy.catalog_policy.config["free_log_std"]


@pytest.mark.parametrize(
    ("action_space", "config"),
    [
        pytest.param(Discrete(3), {}, id="Discrete"),
        pytest.param(TWO_NUMBERS, {"free_log_std": False}, id="switched off"),
        pytest.param(TWO_NUMBERS, {"custom_action_dist": "beta"}, id="beta"),
    ],
)
def test_free_log_std_is_off_without_a_gaussian(action_space, config, recwarn):
    env = RandomEnv(THREE_NUMBERS, action_space)

    policy = make_model(PPO, CatalogPolicy, env, model_config=config).policy

    assert policy.catalog_policy.config["free_log_std"] is False
    assert policy.catalog_policy.config["vf_share_layers"] is False  # as without this key
    messages = [str(warning.message) for warning in recwarn]
    assert not any("free_log_std" in message for message in messages)


# --- initial weights of DQN, SAC and TD3 ----------------------------------------------------------


def make_off_policy(algorithm, observation_space, config=None, **policy_kwargs):
    """Return an algorithm with a catalog trunk or, without a config, with its own net."""
    if config is not None:
        policy_kwargs = extractor_kwargs(config, **policy_kwargs)
    action_space = Discrete(2) if algorithm is DQN else TWO_NUMBERS
    return algorithm(
        own_policy_name(observation_space),
        RandomEnv(observation_space, action_space),
        policy_kwargs=policy_kwargs,
        buffer_size=50,
        device="cpu",
        seed=0,
    )


def own_dense_layers(model):
    """Return Stable-Baselines3's own dense layers of DQN's Q-net, or of the actor."""
    if isinstance(model, DQN):
        return model.policy.q_net.q_net
    if isinstance(model, SAC):
        return model.policy.actor.latent_pi
    return model.policy.actor.mu


def trunk_of(model):
    network = model.policy.q_net if isinstance(model, DQN) else model.policy.actor
    return network.features_extractor.trunk


def assert_same_distribution(weights, own_weights):
    """Compare the values of weights with a Kolmogorov-Smirnov test."""
    pvalue = ks_2samp(weights.detach().flatten(), own_weights.detach().flatten()).pvalue
    assert pvalue > 1e-3


@pytest.mark.parametrize("algorithm", [DQN, SAC, TD3])
@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"fcnet_hiddens": [300, 400]}, id="fcnet"),
        pytest.param({"fcnet_hiddens": [300], "post_fcnet_hiddens": [400]}, id="post_fcnet"),
    ],
)
def test_dense_layers_start_like_the_own_net(algorithm, config):
    own_model = make_off_policy(algorithm, THREE_NUMBERS, net_arch=[300, 400])
    model = make_off_policy(algorithm, THREE_NUMBERS, config)

    # Two layers have four arrays: weights and biases. The own net has an output layer too.
    own_weights = list(own_dense_layers(own_model).parameters())[:4]
    weights = list(trunk_of(model).parameters())

    for weight, own_weight in zip(weights, own_weights, strict=True):
        assert weight.shape == own_weight.shape
        assert_same_distribution(weight, own_weight)


def test_convolutions_start_like_the_own_net():
    own_model = make_off_policy(DQN, IMAGE_42x42)
    # The layers of Stable-Baselines3's own CNN.
    config = {
        "conv_filters": [[32, 8, 4], [64, 4, 2], [64, 3, 1]],
        "conv_padding": "valid",
        "conv_flatten": True,
    }
    model = make_off_policy(DQN, IMAGE_42x42, config)

    own_weights = own_model.policy.q_net.features_extractor.cnn.parameters()
    weights = trunk_of(model).parameters()

    for weight, own_weight in zip(weights, own_weights, strict=True):
        assert weight.numel() == own_weight.numel()
        assert_same_distribution(weight, own_weight)


def test_fcnet_weights_initializer_overrides_the_default():
    config = {"fcnet_hiddens": [8], "fcnet_weights_initializer": "zeros"}

    weight, bias = trunk_of(make_off_policy(DQN, THREE_NUMBERS, config)).parameters()

    assert not weight.any()
    assert bias.any()


def test_fcnet_bias_initializer_overrides_the_default():
    config = {"fcnet_hiddens": [8], "fcnet_bias_initializer": "zeros"}

    weight, bias = trunk_of(make_off_policy(DQN, THREE_NUMBERS, config)).parameters()

    assert weight.any()
    assert not bias.any()


@pytest.mark.parametrize(
    ("observation_space", "config"),
    [
        pytest.param(THREE_NUMBERS, {"fcnet_hiddens": [8]}, id="vector"),
        pytest.param(IMAGE_42x42, {"conv_filters": [[4, 8, 4]], "conv_flatten": True}, id="image"),
    ],
)
def test_exported_policy_has_no_default_initializers(observation_space, config, recwarn):
    policy = to_policy(make_off_policy(DQN, observation_space, config, net_arch=[]))

    assert policy.config["fcnet_bias_initializer"] is None
    messages = [str(warning.message) for warning in recwarn]
    assert not any("initializer" in message for message in messages)
