"""What holds where the model config is silent: what Stable-Baselines3's own nets have."""

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

from gymnasium.spaces import Box, Dict, Discrete
from stable_baselines3 import A2C, PPO

from rlcatalog_sb3 import CatalogPolicy, for_sb3

VECTOR, IMAGE = Box(-1, 1, (3,), np.float32), Box(0, 255, (42, 42, 3), np.uint8)


class Seen(gym.Env):
    """Shows observations of a space."""

    def __init__(self, space, actions=None):
        self.observation_space, self.action_space = space, Discrete(2) if actions is None else actions

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def own_net_shares(algorithm, space):
    """Whether Stable-Baselines3's own net has weights that actor and critic both use behind a features extractor."""
    kind = "MultiInputPolicy" if isinstance(space, Dict) else "CnnPolicy" if len(space.shape) == 3 else "MlpPolicy"
    policy = algorithm(kind, Seen(space), n_steps=64, device="cpu").policy
    return any(True for _ in policy.features_extractor.parameters())


@pytest.mark.parametrize("algorithm", [PPO, A2C])
@pytest.mark.parametrize("space", [VECTOR, IMAGE, Dict({"a": VECTOR, "b": IMAGE}), Dict({"a": VECTOR, "b": VECTOR})])
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
    np.testing.assert_array_equal(model.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0])


NUMBERS = Box(-2, 2, (2,), np.float32)


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_standard_deviations_depend_on_the_observation_where_its_own_do(algorithm):
    own, ours = (algorithm(kind, Seen(VECTOR, NUMBERS), n_steps=64, device="cpu", seed=0).policy
                 for kind in ("MlpPolicy", CatalogPolicy))  # fmt: skip
    obs = torch.randn(4, 3)
    np.testing.assert_array_equal(own.get_distribution(obs).distribution.stddev.detach().numpy(), np.ones((4, 2)))
    assert ours.catalog_policy.config["free_log_std"]
    # Layers that see the observation begin at small values, none at 0.
    np.testing.assert_array_equal(ours.actor_critic.dist(obs).log_std.detach().numpy() * np.ones((4, 2)), 0.0)


@pytest.mark.parametrize(
    ("actions", "config"),
    [
        (Discrete(3), {}),
        (NUMBERS, {"free_log_std": False}),
        (NUMBERS, {"custom_action_dist": "beta"}),
    ],
)
def test_where_nothing_is_free_the_rest_of_the_defaults_stays(actions, config, recwarn):
    model = PPO(CatalogPolicy, Seen(VECTOR, actions), n_steps=64, device="cpu", policy_kwargs={"model_config": config})
    found = model.policy.catalog_policy.config
    assert (found["free_log_std"], found["vf_share_layers"]) == (False, False)
    assert not [warning for warning in recwarn if "free_log_std" in str(warning.message)]
