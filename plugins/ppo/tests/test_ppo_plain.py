"""PPO with plain modules: it trains them, restores them, and leaves their frozen weights alone."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from torch import nn

from rlcatalog.errors import ConfigError, SavedPolicyError, UnknownNameError
from rlcatalog_ppo import PPO

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

CONFIG = {"num_envs": 2, "rollout_length": 16, "num_epochs": 1, "minibatch_size": 16, "seed": 3}


class HiddenLayer(nn.Module):
    """A hidden layer, created for an observation space."""

    def __init__(self, space, width=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(space.shape[0], width), nn.Tanh())

    def forward(self, obs):
        return self.layers(obs)


def make_module():
    """Return a hidden layer for the 4 numbers of CartPole."""
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh())


def weights_of(algo):
    return {name: weight.copy() for name, weight in algo.policy.model.get_weights().items()}


def train_and_find_changes(algo):
    """Train; return the names of the weights that changed."""
    before = weights_of(algo)
    algo.train()
    after = weights_of(algo)
    return {name for name in after if np.any(after[name] != before[name])}


# --- checkpoints ----------------------------------------------------------------------------------

every_form = pytest.mark.parametrize(
    "make_model",
    # Each call creates a new instance, because a restore must not find trained weights in it.
    [lambda: HiddenLayer, lambda: functools.partial(HiddenLayer, width=6), make_module],
    ids=["class", "factory", "instance"],
)


@every_form
@pytest.mark.parametrize("frozen", ["never", "always"])  # whether a frozen copy collects
def test_plain_module_is_trained(make_model, frozen):
    algo = PPO("CartPole-v1", {**CONFIG, "frozen": frozen}, model=make_model())

    assert train_and_find_changes(algo) == set(weights_of(algo))


@every_form
def test_restored_run_of_plain_module_continues_identically(make_model, tmp_path):
    algo = PPO("CartPole-v1", CONFIG, model=make_model())
    algo.train()
    algo.save_checkpoint(tmp_path)
    algo.train()

    restored = PPO.restore(tmp_path, model=make_model())
    restored.train()

    expected_weights = weights_of(algo)
    for name, weight in weights_of(restored).items():
        np.testing.assert_array_equal(weight, expected_weights[name])


def test_restore_of_plain_module_asks_for_its_code(tmp_path):
    folder = tmp_path / "checkpoint"
    PPO("CartPole-v1", CONFIG, model=HiddenLayer).save_checkpoint(folder)

    with pytest.raises(UnknownNameError, match="Pass its code: ") as caught:
        PPO.restore(folder)

    # The call in the message can be pasted.
    message = str(caught.value)
    assert f"PPO.restore('{folder}', model=" in message
    assert "rlcatalog.load" not in message


def test_restore_with_environment_repeats_it_in_its_advice(tmp_path):
    folder = tmp_path / "checkpoint"
    PPO("CartPole-v1", CONFIG, model=HiddenLayer).save_checkpoint(folder)

    with pytest.raises(UnknownNameError) as caught:
        PPO.restore(folder, "CartPole-v1")

    assert f"PPO.restore('{folder}', env, model=" in str(caught.value)


# --- frozen weights -------------------------------------------------------------------------------


def test_frozen_weights_do_not_change():
    module = make_module()
    module[0].weight.requires_grad_(False)
    before = module[0].weight.clone()
    algo = PPO("CartPole-v1", CONFIG, model=module)

    algo.train()

    assert algo.policy.model.module is module
    assert (module[0].weight == before).all()


def make_net(framework, *, frozen):
    """Return a hidden layer of PyTorch or Keras, with or without frozen weights."""
    if framework == "torch":
        return make_module().requires_grad_(not frozen)
    keras = pytest.importorskip("tensorflow").keras
    net = keras.Sequential([keras.layers.Dense(8, activation="tanh")])
    net.trainable = not frozen
    return net


def unfreeze(net, framework):
    if framework == "torch":
        net.requires_grad_(True)
    else:
        net.trainable = True


both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


@both_frameworks
def test_frozen_module_is_not_trained(framework):
    algo = PPO("CartPole-v1", CONFIG, model=make_net(framework, frozen=True))

    changed = train_and_find_changes(algo)

    assert changed < set(weights_of(algo))


@both_frameworks
def test_module_unfrozen_during_run_is_trained(framework):
    net = make_net(framework, frozen=True)
    algo = PPO("CartPole-v1", CONFIG, model=net)
    algo.train()
    unfreeze(net, framework)

    assert train_and_find_changes(algo) == set(weights_of(algo))


def train_in_two_phases(framework):
    """Train with a frozen module; return a PPO of the same policy whose module is unfrozen."""
    net = make_net(framework, frozen=True)
    first = PPO("CartPole-v1", CONFIG, model=net)
    first.train()
    unfreeze(net, framework)
    return PPO("CartPole-v1", CONFIG, policy=first.policy)


@both_frameworks
def test_unfrozen_module_is_trained_in_second_phase(framework):
    algo = train_in_two_phases(framework)

    assert train_and_find_changes(algo) == set(weights_of(algo))


@both_frameworks
def test_restore_refuses_module_with_other_frozen_weights(framework, tmp_path):
    algo = train_in_two_phases(framework)
    algo.train()
    algo.save_checkpoint(tmp_path)

    with pytest.raises(SavedPolicyError, match="were frozen there, or vice versa") as caught:
        PPO.restore(tmp_path, model=make_net(framework, frozen=True))

    assert "module.0.bias, module.0.weight" in str(caught.value)


@both_frameworks
def test_restored_unfrozen_module_is_trained(framework, tmp_path):
    algo = train_in_two_phases(framework)
    algo.train()
    algo.save_checkpoint(tmp_path)

    restored = PPO.restore(tmp_path, model=make_net(framework, frozen=False))

    assert train_and_find_changes(restored) == set(weights_of(restored))


def test_model_and_custom_model_at_once_are_an_error():
    config = {**CONFIG, "model": {"custom_model": "fcnet"}}

    with pytest.raises(ConfigError, match="are both given"):
        PPO("CartPole-v1", config, model=HiddenLayer)
