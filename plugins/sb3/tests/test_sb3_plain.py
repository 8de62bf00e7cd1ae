"""Plain modules of PyTorch as models under Stable-Baselines3."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from sb3_helpers import RandomEnv, extractor_kwargs
from stable_baselines3 import DQN, PPO
from torch import nn
from torch_weights import assert_every_weight_changed, copy_weights

from rlcatalog.errors import ConfigError
from rlcatalog_sb3 import CatalogPolicy, for_sb3

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")


class Net(nn.Module):
    """A layer for four numbers."""

    def __init__(self, space):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh())

    def forward(self, obs):
        return self.layers(obs)


def make_net(space):
    return Net(space)


# --- PPO ------------------------------------------------------------------------------------------


def make_ppo(model, *, flatten=False):
    """Return PPO for CartPole, whose observations are four numbers."""
    env = gym.make("CartPole-v1")
    return PPO(
        CatalogPolicy,
        for_sb3(env) if flatten else env,
        n_steps=32,
        batch_size=32,
        n_epochs=1,
        device="cpu",
        policy_kwargs={"model": model},
    )


@pytest.mark.parametrize(
    ("model", "is_shared"),
    [
        pytest.param(Net, False, id="class"),
        pytest.param(make_net, False, id="function"),
        # There is only one instance for actor and critic.
        pytest.param(Net(None), True, id="instance"),
    ],
)
@pytest.mark.parametrize("flatten", [False, True])
def test_actor_and_critic_share_an_instance_only(model, is_shared, flatten):
    policy = make_ppo(model, flatten=flatten).policy.catalog_policy

    assert policy.config["vf_share_layers"] is is_shared


def test_instance_is_the_module_of_the_policy():
    net = Net(None)

    policy = make_ppo(net).policy.catalog_policy

    assert policy.model.module is net


#: Functions that return a model in each form.
each_form = pytest.mark.parametrize(
    "make_model",
    [
        pytest.param(lambda: Net, id="class"),
        pytest.param(lambda: make_net, id="function"),
        pytest.param(lambda: Net(None), id="instance"),
    ],
)


@each_form
def test_ppo_trains_every_weight(make_model):
    algorithm = make_ppo(make_model())
    weights_before = copy_weights(algorithm.policy.model)

    algorithm.learn(32)

    assert_every_weight_changed(algorithm.policy.model, weights_before)


@each_form
@pytest.mark.parametrize("flatten", [False, True])
def test_saved_ppo_has_the_weights(tmp_path, make_model, flatten):
    algorithm = make_ppo(make_model(), flatten=flatten)
    algorithm.save(tmp_path / "algorithm.zip")

    loaded = PPO.load(tmp_path / "algorithm.zip", device="cpu")

    loaded_weights = loaded.policy.catalog_policy.model.get_weights()
    for name, weight in algorithm.policy.catalog_policy.model.get_weights().items():
        np.testing.assert_array_equal(loaded_weights[name], weight)


def test_model_and_custom_model_exclude_each_other():
    kwargs = {"model": Net, "model_config": {"custom_model": "fcnet"}}

    with pytest.raises(ConfigError, match="are both given"):
        PPO(CatalogPolicy, "CartPole-v1", policy_kwargs=kwargs)


# --- dtypes of observations -----------------------------------------------------------------------


class ReadsPartA(Net):
    """Reads the part "a" of an observation, whose parts must all be float32."""

    def forward(self, obs):
        assert {part.dtype for part in obs.values()} == {torch.float32}
        return super().forward(obs["a"])


#: Numbers that are the same in each precision, as a user may pass them to `predict`.
each_vector = pytest.mark.parametrize(
    "vector",
    [
        pytest.param([0.25, -0.5, 0.75, 1.0], id="list"),
        pytest.param(np.array([0.25, -0.5, 0.75, 1.0], np.float64), id="float64"),
        pytest.param(np.array([0.25, -0.5, 0.75, 1.0], np.float32), id="float32"),
        pytest.param(np.array([0.25, -0.5, 0.75, 1.0], np.float16), id="float16"),
    ],
)
TWO_NUMBERS = Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@each_vector
def test_predict_takes_vectors_of_any_dtype(dtype, vector):
    env = RandomEnv(Box(-1, 1, (4,), dtype), TWO_NUMBERS)
    algorithm = PPO(CatalogPolicy, env, device="cpu", policy_kwargs={"model": Net})

    action, _ = algorithm.predict(vector, deterministic=True)

    expected, _ = algorithm.predict(np.array(vector, dtype), deterministic=True)
    np.testing.assert_array_equal(action, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@each_vector
def test_predict_takes_dicts_with_vectors_of_any_dtype(dtype, vector):
    env = RandomEnv(Dict({"a": Box(-1, 1, (4,), dtype), "b": Discrete(3)}), TWO_NUMBERS)
    algorithm = PPO(CatalogPolicy, env, device="cpu", policy_kwargs={"model": ReadsPartA})

    action, _ = algorithm.predict({"a": vector, "b": 2}, deterministic=True)

    expected_obs = {"a": np.array(vector, dtype), "b": 2}
    expected, _ = algorithm.predict(expected_obs, deterministic=True)
    np.testing.assert_array_equal(action, expected)


# --- CatalogExtractor -----------------------------------------------------------------------------


def make_dqn(model):
    kwargs = extractor_kwargs({"custom_model": model})
    return DQN("MlpPolicy", "CartPole-v1", policy_kwargs=kwargs, learning_starts=4, device="cpu")


def test_extractor_builds_a_class_for_each_net():
    algorithm = make_dqn(Net).learn(12)

    q_module = algorithm.q_net.features_extractor.trunk.module
    target_module = algorithm.q_net_target.features_extractor.trunk.module
    assert isinstance(q_module, Net)
    assert isinstance(target_module, Net)
    assert q_module is not target_module


def test_extractor_rejects_an_instance():
    with pytest.raises(ConfigError, match="Net is an instance, but") as caught:
        make_dqn(Net(None))

    assert "builds an extractor more than once" in str(caught.value)
