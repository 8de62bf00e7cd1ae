"""Plain nn.Modules under Stable-Baselines3."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, PPO
from torch import nn

from rlcatalog.errors import ConfigError
from rlcatalog_sb3 import CatalogExtractor, CatalogPolicy, for_sb3

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

OBS = np.linspace(-0.1, 0.1, 4, dtype=np.float32)[None]


class Net(nn.Module):
    def __init__(self, space):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh())

    def forward(self, obs):
        return self.layers(obs)


def make(kind):
    return {"class": Net, "instance": Net(None), "factory": lambda space: Net(space)}[kind]


@pytest.mark.parametrize(
    ("kind", "shared"), [("class", False), ("factory", False), ("instance", True)]
)
@pytest.mark.parametrize("flat", [False, True])
def test_ppo_trains_one_saves_it_and_loads_it(tmp_path, kind, shared, flat):
    model, env = make(kind), gymnasium.make("CartPole-v1")
    algo = PPO(
        CatalogPolicy,
        for_sb3(env) if flat else env,
        n_steps=32,
        batch_size=32,
        n_epochs=1,
        device="cpu",
        policy_kwargs={"model": model},
    )
    policy = algo.policy.catalog_policy
    assert policy.config["vf_share_layers"] is shared
    assert (policy.model.module is model) == (kind == "instance")
    before = {name: weight.copy() for name, weight in policy.model.get_weights().items()}
    algo.learn(32)
    after = policy.model.get_weights()
    assert all(np.any(weight != before[name]) for name, weight in after.items())
    algo.save(tmp_path / "algo.zip")
    loaded = PPO.load(tmp_path / "algo.zip", device="cpu").policy.catalog_policy.model.get_weights()
    assert all(np.array_equal(weight, loaded[name]) for name, weight in after.items())


class FixedEnv(gymnasium.Env):
    """Observations of any space."""

    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, space):
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}


class FirstPart(Net):
    def forward(self, obs):
        assert {part.dtype for part in obs.values()} == {torch.float32}
        return super().forward(obs["a"])


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_observations_are_predicted_in_any_dtype(nested, dtype):
    box = gymnasium.spaces.Box(-1, 1, (4,), dtype)
    space = gymnasium.spaces.Dict({"a": box, "b": gymnasium.spaces.Discrete(3)}) if nested else box
    kwargs = {"model": FirstPart if nested else Net}
    algo = PPO(
        CatalogPolicy,
        FixedEnv(space),
        n_steps=32,
        batch_size=32,
        device="cpu",
        policy_kwargs=kwargs,
    )
    numbers = [0.25, -0.5, 0.75, 1.0]  # the same in either precision

    def predict(vector):
        return algo.predict({"a": vector, "b": 2} if nested else vector, deterministic=True)[0]

    expected = predict(np.array(numbers, dtype))
    for vector in (
        numbers,
        np.array(numbers),
        np.array(numbers, np.float32),
        np.array(numbers, np.float16),
    ):
        np.testing.assert_array_equal(predict(vector), expected)


def test_two_models_are_an_error():
    with pytest.raises(ConfigError, match="are both given"):
        PPO(
            CatalogPolicy,
            "CartPole-v1",
            policy_kwargs={"model": Net, "model_config": {"custom_model": "fcnet"}},
        )


def test_an_extractor_takes_a_class_and_no_instance():
    def dqn(model):
        extractor = {
            "features_extractor_class": CatalogExtractor,
            "features_extractor_kwargs": {"model_config": {"custom_model": model}},
        }
        return DQN(
            "MlpPolicy", "CartPole-v1", policy_kwargs=extractor, learning_starts=4, device="cpu"
        )

    algo = dqn(Net)
    algo.learn(12)
    nets = [net.features_extractor.trunk.module for net in (algo.q_net, algo.q_net_target)]
    assert nets[0] is not nets[1]
    with pytest.raises(
        ConfigError, match=r"Net is an instance, but .* builds an extractor more than once"
    ):
        dqn(Net(None))
