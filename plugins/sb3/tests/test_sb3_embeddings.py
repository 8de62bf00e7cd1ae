"""Nets that look ids up in tables, under Stable-Baselines3: flat observations and Dicts."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

from gymnasium import spaces
from sb3_helpers import RandomEnv, extractor_kwargs
from stable_baselines3 import DQN, PPO

from rlcatalog.errors import ConfigError
from rlcatalog_sb3 import CatalogPolicy, for_sb3, to_policy

PAIR = spaces.Box(-1, 1, (2,), np.float32)
SHOP = spaces.Dict({"item": spaces.Discrete(300, start=2), "price": PAIR})
CONFIG = {"embeddings": {"item": 4}, "fcnet_hiddens": [8]}
THREE_ACTIONS = spaces.Discrete(3)


def table_of(algorithm):
    weights = algorithm.policy.state_dict()
    [name] = [name for name in weights if name.endswith("input_embedding.tables.0.weight")]
    return weights[name].numpy().copy()


@pytest.mark.parametrize(
    ("space", "config"),
    [
        pytest.param(SHOP, CONFIG, id="dict"),
        pytest.param(spaces.Discrete(300, start=2), {"embeddings": 4}, id="discrete"),
        pytest.param(spaces.MultiDiscrete([30, 5]), {"embeddings": 4}, id="multi-discrete"),
    ],
)
@pytest.mark.parametrize("is_flat", [True, False], ids=["flat", "as-it-is"])
def test_ppo_trains_the_table(space, config, is_flat, tmp_path):
    env = RandomEnv(space, THREE_ACTIONS)
    if is_flat:
        env = for_sb3(env, config)
    policy_kwargs = {"model_config": {**config, "vf_share_layers": True}}
    algorithm = PPO(
        CatalogPolicy, env, n_steps=32, batch_size=32, seed=0, policy_kwargs=policy_kwargs
    )
    before = table_of(algorithm)

    algorithm.learn(32)

    assert not np.array_equal(table_of(algorithm), before)
    algorithm.save(tmp_path / "saved.zip")
    loaded = PPO.load(tmp_path / "saved.zip")
    np.testing.assert_array_equal(table_of(loaded), table_of(algorithm))
    policy = to_policy(loaded)
    obs = [space.sample()]
    assert policy.act(obs).dist_inputs.shape == (1, 3)


def test_ids_reach_the_policy_unchanged():
    env = RandomEnv(SHOP, THREE_ACTIONS)
    algorithm = PPO(
        CatalogPolicy, env, n_steps=8, batch_size=8, policy_kwargs={"model_config": CONFIG}
    )
    obs = {"item": np.array([301]), "price": np.zeros((1, 2), np.float32)}

    action, _ = algorithm.policy.predict(obs, deterministic=True)
    value = algorithm.policy.predict_values(algorithm.policy.obs_to_tensor(obs)[0])

    step = to_policy(algorithm).act(
        [{"item": 301, "price": np.zeros(2, np.float32)}], explore=False
    )
    np.testing.assert_array_equal(action, step.action)
    np.testing.assert_allclose(value.detach().numpy().ravel(), step.value, atol=1e-6)


@pytest.mark.parametrize("is_flat", [True, False], ids=["flat", "as-it-is"])
def test_features_extractor_embeds(is_flat):
    # Without the catalog's wrapper, Stable-Baselines3 only takes choices that start at 0.
    env = RandomEnv(spaces.Dict({"item": spaces.Discrete(300), "price": PAIR}), THREE_ACTIONS)
    policy = "MultiInputPolicy"
    if is_flat:
        env = for_sb3(env, CONFIG)
        policy = "MlpPolicy"
    algorithm = DQN(
        policy,
        env,
        learning_starts=4,
        buffer_size=100,
        policy_kwargs=extractor_kwargs(CONFIG),
    )

    before = (
        algorithm.q_net.features_extractor.trunk.input_embedding.tables[0].weight.detach().clone()
    )

    algorithm.learn(16)

    table = algorithm.q_net.features_extractor.trunk.input_embedding.tables[0].weight
    assert not table.equal(before)


def test_environment_flattened_without_embeddings_is_refused():
    env = for_sb3(RandomEnv(SHOP, THREE_ACTIONS))

    with pytest.raises(ConfigError, match="was flattened with embeddings=None"):
        PPO(CatalogPolicy, env, policy_kwargs={"model_config": CONFIG})
