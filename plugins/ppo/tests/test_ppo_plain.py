"""PPO with plain nn.Modules: it trains them, keeps them and goes on with them."""

from __future__ import annotations

import functools

import gymnasium
import numpy as np
import pytest
from torch import nn

import rlcatalog
from rlcatalog.errors import ConfigError, SavedPolicyError, UnknownNameError
from rlcatalog_ppo import PPO

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

CONFIG = {"num_envs": 2, "rollout_length": 16, "num_epochs": 1, "minibatch_size": 16, "seed": 3}


class Net(nn.Module):
    def __init__(self, space, hidden=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(space.shape[0], hidden), nn.Tanh())

    def forward(self, obs):
        return self.layers(obs)


def instance():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh())


MAKERS = {
    "class": lambda: Net,
    "factory": lambda: functools.partial(Net, hidden=6),
    "instance": instance,
}


@pytest.mark.parametrize("form", MAKERS)
@pytest.mark.parametrize("frozen", ["never", "always"])
def test_run_goes_on_from_its_checkpoint(tmp_path, form, frozen):
    model, config = MAKERS[form](), {**CONFIG, "frozen": frozen}
    algo = PPO("CartPole-v1", config, model=model)
    before = {name: weight.copy() for name, weight in algo.policy.model.get_weights().items()}
    algo.train()
    assert all(
        np.any(weight != before[name]) for name, weight in algo.policy.model.get_weights().items()
    )
    algo.save_checkpoint(tmp_path / "checkpoint")
    algo.train()
    with pytest.raises(UnknownNameError, match=r"PPO\.restore\('.*checkpoint', env, model="):
        PPO.restore(tmp_path / "checkpoint", "CartPole-v1")
    with pytest.raises(
        UnknownNameError, match=r"Pass its code: PPO\.restore\('.*checkpoint', model="
    ) as caught:
        PPO.restore(tmp_path / "checkpoint")
    assert "rlcatalog.load" not in str(caught.value)
    again = PPO.restore(tmp_path / "checkpoint", model=instance() if form == "instance" else model)
    again.train()
    for name, weight in algo.policy.model.get_weights().items():
        np.testing.assert_array_equal(again.policy.model.get_weights()[name], weight)
    for one in (algo, again):
        one.stop()


def test_frozen_weights_stay_as_they_are():
    model = instance()
    model[0].weight.requires_grad_(False)
    before = model[0].weight.clone()
    algo = PPO("CartPole-v1", CONFIG, model=model)
    algo.train()
    algo.stop()
    assert algo.policy.model.module is model
    assert (model[0].weight == before).all()


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_frozen_module_is_unfrozen_for_a_second_phase(framework, tmp_path):
    def made(frozen):
        if framework == "torch":
            return instance().requires_grad_(not frozen)
        keras = pytest.importorskip("tensorflow").keras
        net = keras.Sequential([keras.layers.Dense(8, activation="tanh")])
        net.trainable = not frozen
        return net

    def moved(algo):
        before = {name: weight.copy() for name, weight in algo.policy.model.get_weights().items()}
        algo.train()
        after = algo.policy.model.get_weights()
        return {name for name in after if np.any(after[name] != before[name])} == set(before)

    net = made(frozen=True)
    first = PPO("CartPole-v1", CONFIG, model=net)
    assert not moved(first)
    if framework == "torch":
        net.requires_grad_(True)
    else:
        net.trainable = True
    with pytest.raises(
        ConfigError, match=r"has 4 weights, but now 6 are trainable.*PPO\(env, config, policy="
    ):
        first.train()
    second = PPO("CartPole-v1", CONFIG, policy=first.policy)
    assert moved(second)
    second.save_checkpoint(tmp_path)
    with pytest.raises(
        SavedPolicyError,
        match=r"were frozen there, or vice versa: module\.0\.bias, module\.0\.weight",
    ):
        PPO.restore(tmp_path, model=made(frozen=True))
    third = PPO.restore(tmp_path, model=made(frozen=False))
    assert moved(third)
    for algo in (first, second, third):
        algo.stop()


def test_model_beside_a_policy_is_an_error():
    policy = rlcatalog.build(env=gymnasium.make("CartPole-v1"))
    with pytest.raises(ConfigError, match="model= and policy= are both given"):
        PPO("CartPole-v1", CONFIG, model=Net, policy=policy)
    with pytest.raises(ConfigError, match="are both given"):
        PPO("CartPole-v1", {**CONFIG, "model": {"custom_model": "fcnet"}}, model=Net)
