"""Plain nn.Modules under Stable-Baselines3."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
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


@pytest.mark.parametrize(("kind", "shared"), [("class", False), ("factory", False), ("instance", True)])
@pytest.mark.parametrize("flat", [False, True])
def test_ppo_trains_one_saves_it_and_loads_it(tmp_path, kind, shared, flat):
    model, env = make(kind), gymnasium.make("CartPole-v1")
    algo = PPO(CatalogPolicy, for_sb3(env) if flat else env, n_steps=32, batch_size=32, n_epochs=1, device="cpu",
               policy_kwargs={"model": model})  # fmt: skip
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


def test_two_models_are_an_error():
    with pytest.raises(ConfigError, match="are both given"):
        PPO(CatalogPolicy, "CartPole-v1", policy_kwargs={"model": Net, "model_config": {"custom_model": "fcnet"}})


def test_an_extractor_takes_a_class_and_no_instance():
    def dqn(model):
        extractor = {"features_extractor_class": CatalogExtractor,
                     "features_extractor_kwargs": {"model_config": {"custom_model": model}}}  # fmt: skip
        return DQN("MlpPolicy", "CartPole-v1", policy_kwargs=extractor, learning_starts=4, device="cpu")

    algo = dqn(Net)
    algo.learn(12)
    nets = [net.features_extractor.trunk.module for net in (algo.q_net, algo.q_net_target)]
    assert nets[0] is not nets[1]
    with pytest.raises(ConfigError, match=r"Net is an instance, but .* builds an extractor more than once"):
        dqn(Net(None))
