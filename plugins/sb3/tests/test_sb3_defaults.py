"""What holds where the model config is silent: what Stable-Baselines3's own nets have."""

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

from gymnasium.spaces import Box, Dict, Discrete
from scipy.stats import ks_2samp
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3

from rlcatalog_sb3 import CatalogExtractor, CatalogPolicy, for_sb3, to_policy

VECTOR, IMAGE = Box(-1, 1, (3,), np.float32), Box(0, 255, (42, 42, 3), np.uint8)


class Seen(gym.Env):
    """Shows observations of a space."""

    def __init__(self, space, actions=None):
        self.observation_space, self.action_space = (
            space,
            Discrete(2) if actions is None else actions,
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def own_net_shares(algorithm, space):
    """Whether Stable-Baselines3's own net has weights that actor and critic both use behind a
    features extractor.
    """
    kind = (
        "MultiInputPolicy"
        if isinstance(space, Dict)
        else "CnnPolicy"
        if len(space.shape) == 3
        else "MlpPolicy"
    )
    policy = algorithm(kind, Seen(space), n_steps=64, device="cpu").policy
    return any(True for _ in policy.features_extractor.parameters())


@pytest.mark.parametrize("algorithm", [PPO, A2C])
@pytest.mark.parametrize(
    "space", [VECTOR, IMAGE, Dict({"a": VECTOR, "b": IMAGE}), Dict({"a": VECTOR, "b": VECTOR})]
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_actor_and_critic_share_what_its_own_nets_share(algorithm, space, wrapped):
    env = for_sb3(Seen(space)) if wrapped else Seen(space)
    policy = algorithm(CatalogPolicy, env, n_steps=64, device="cpu").policy.catalog_policy
    assert policy.config["vf_share_layers"] == own_net_shares(algorithm, space)


@pytest.mark.parametrize("where", ["policy", "environment"])
@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("space", [VECTOR, IMAGE])
def test_a_given_key_wins(where, asked, space):
    config = {"vf_share_layers": asked}
    env = for_sb3(Seen(space), config) if where == "environment" else Seen(space)
    kwargs = {"model_config": config} if where == "policy" else {}
    model = PPO(CatalogPolicy, env, n_steps=64, device="cpu", policy_kwargs=kwargs)
    assert model.policy.catalog_policy.config["vf_share_layers"] is asked


def test_a_saved_algorithm_comes_back_with_it(tmp_path):
    model = PPO(CatalogPolicy, Seen(VECTOR), n_steps=64, device="cpu", seed=0)
    model.save(tmp_path / "model.zip")
    loaded = PPO.load(tmp_path / "model.zip", device="cpu")
    obs = np.zeros((2, 3), np.float32)
    assert not loaded.policy.catalog_policy.config["vf_share_layers"]
    np.testing.assert_array_equal(
        model.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0]
    )


NUMBERS = Box(-2, 2, (2,), np.float32)


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_standard_deviations_depend_on_the_observation_where_its_own_do(algorithm):
    own, ours = (
        algorithm(kind, Seen(VECTOR, NUMBERS), n_steps=64, device="cpu", seed=0).policy
        for kind in ("MlpPolicy", CatalogPolicy)
    )
    obs = torch.randn(4, 3)
    np.testing.assert_array_equal(
        own.get_distribution(obs).distribution.stddev.detach().numpy(), np.ones((4, 2))
    )
    assert ours.catalog_policy.config["free_log_std"]
    # Layers that see the observation begin at small values, none at 0.
    np.testing.assert_array_equal(
        ours.actor_critic.dist(obs).log_std.detach().numpy() * np.ones((4, 2)), 0.0
    )


@pytest.mark.parametrize(
    ("actions", "config"),
    [
        (Discrete(3), {}),
        (NUMBERS, {"free_log_std": False}),
        (NUMBERS, {"custom_action_dist": "beta"}),
    ],
)
def test_where_nothing_is_free_the_rest_of_the_defaults_stays(actions, config, recwarn):
    model = PPO(
        CatalogPolicy,
        Seen(VECTOR, actions),
        n_steps=64,
        device="cpu",
        policy_kwargs={"model_config": config},
    )
    found = model.policy.catalog_policy.config
    assert (found["free_log_std"], found["vf_share_layers"]) == (False, False)
    assert not [warning for warning in recwarn if "free_log_std" in str(warning.message)]


def off_policy(algorithm, space, config=None, **kwargs):
    """An algorithm with an extractor, or with its own net if there is no config."""
    own = "CnnPolicy" if len(space.shape) == 3 else "MlpPolicy"
    if config is not None:
        kwargs |= {
            "features_extractor_class": CatalogExtractor,
            "features_extractor_kwargs": {"model_config": config},
        }
    actions = Discrete(2) if algorithm is DQN else NUMBERS
    return algorithm(
        own, Seen(space, actions), policy_kwargs=kwargs, buffer_size=50, device="cpu", seed=0
    )


def trunk_of(model):
    policy = model.policy
    return (policy.q_net if hasattr(policy, "q_net") else policy.actor).features_extractor.trunk


@pytest.mark.parametrize("algorithm", [DQN, SAC, TD3])
@pytest.mark.parametrize("post", [False, True])
def test_dense_layers_begin_like_its_own(algorithm, post):
    own = off_policy(algorithm, VECTOR, net_arch=[300, 400])
    own = (
        own.policy.q_net.q_net
        if algorithm is DQN
        else getattr(own.policy.actor, "latent_pi", own.policy.actor.mu)
    )
    hiddens = (
        {"fcnet_hiddens": [300, 400]}
        if not post
        else {"fcnet_hiddens": [300], "post_fcnet_hiddens": [400]}
    )
    ours = list(trunk_of(off_policy(algorithm, VECTOR, hiddens)).parameters())
    assert len(ours) == 4
    for mine, its in zip(ours, own.parameters(), strict=False):
        assert mine.shape == its.shape
        assert ks_2samp(mine.detach().flatten(), its.detach().flatten()).pvalue > 1e-3


def test_convolutions_begin_like_its_own():
    layers = {
        "conv_filters": [[32, 8, 4], [64, 4, 2], [64, 3, 1]],
        "conv_padding": "valid",
        "conv_flatten": True,
    }
    own = off_policy(DQN, IMAGE).policy.q_net.features_extractor.cnn
    ours = list(trunk_of(off_policy(DQN, IMAGE, layers)).parameters())
    assert len(ours) == 6
    for mine, its in zip(ours, own.parameters(), strict=False):
        assert mine.numel() == its.numel()
        assert ks_2samp(mine.detach().flatten(), its.detach().flatten()).pvalue > 1e-3


@pytest.mark.parametrize("key", ["fcnet_weights_initializer", "fcnet_bias_initializer"])
def test_a_given_initialiser_wins(key):
    weight, bias = trunk_of(
        off_policy(DQN, VECTOR, {"fcnet_hiddens": [8], key: "zeros"})
    ).parameters()
    assert bool(weight.any()) == (key != "fcnet_weights_initializer")
    assert bool(bias.any()) == (key != "fcnet_bias_initializer")


@pytest.mark.parametrize("space", [VECTOR, IMAGE])
def test_converting_names_no_key_that_nobody_gave(space, recwarn):
    config = (
        {"fcnet_hiddens": [8]}
        if space is VECTOR
        else {"conv_filters": [[4, 8, 4]], "conv_flatten": True}
    )
    assert (
        to_policy(off_policy(DQN, space, config, net_arch=[])).config["fcnet_bias_initializer"]
        is None
    )
    assert not [warning for warning in recwarn if "initializer" in str(warning.message)]
