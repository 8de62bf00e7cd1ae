"""RLlib's PPO with the catalog's net: from the weights of Ray's own net and with the same episodes,
ten updates end at the same weights; `init` names Ray's own start.
"""

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from scipy.stats import ks_2samp

ENV_ID = "CartPole-v1"
WIDTH = 8
#: Each weight of a catalog model → that of Ray's own module; both have one hidden layer.
OWN_NAMES = {
    "hidden.layers.0": "encoder.actor_encoder.net.mlp.0",
    "value_hidden.layers.0": "encoder.critic_encoder.net.mlp.0",
    "outputs.logits": "pi.net.mlp.0",
    "outputs.value": "vf.net.mlp.0",
}
SETTINGS = {"num_epochs": 10, "minibatch_size": 24, "lr": 3e-3}


def configure_own(config):
    """Return a configured algorithm's settings with Ray's own net."""
    own = PPOConfig().environment(ENV_ID).debugging(seed=0, log_level="ERROR")
    own.env_runners(
        num_env_runners=0,
        num_envs_per_env_runner=config.num_envs_per_env_runner,
        rollout_fragment_length=config.rollout_fragment_length,
    )
    own.training(train_batch_size_per_learner=config.train_batch_size_per_learner, **SETTINGS)
    net = DefaultModelConfig(
        fcnet_hiddens=[WIDTH], fcnet_activation="tanh", head_fcnet_hiddens=[], vf_share_layers=False
    )
    return own.rl_module(model_config=net)


def own_parameters(module):
    """Return the name of each weight of a catalog model → the weight of Ray's own module."""
    weights = dict(module.named_parameters())
    parameters = {}
    for name, own_name in OWN_NAMES.items():
        for kind in ("weight", "bias"):
            parameters[f"{name}.{kind}"] = weights[f"{own_name}.{kind}"]
    return parameters


def test_ten_updates_equal_those_of_the_own_net(rllib):
    config = rllib.configure(ENV_ID, {"fcnet_hiddens": [WIDTH]}, **SETTINGS)
    theirs = rllib.make_training(configure_own(config))
    ours = rllib.make_training(config)
    weights = dict(ours.module.policy.model.named_parameters())
    with torch.no_grad():
        for name, weight in own_parameters(theirs.module).items():
            weights[name].copy_(weight)
    assert weights.keys() == own_parameters(theirs.module).keys()
    before = weights["outputs.value.weight"].detach().clone()
    episodes = theirs.runner.sample()

    for training in (theirs, ours):
        rllib.update(training.learner, copy.deepcopy(episodes))

    for name, expected in own_parameters(theirs.module).items():
        torch.testing.assert_close(weights[name], expected, rtol=1e-5, atol=1e-5, msg=name)
    # The updates have moved the weights by more than the tolerance.
    assert (weights["outputs.value.weight"] - before).abs().max() > 1e-3


def test_layers_start_like_the_own_net_with_init(rllib):
    config = rllib.configure(ENV_ID, {"fcnet_hiddens": [WIDTH], "init": "fan_in_uniform"})
    env = gym.make(ENV_ID)
    values = {}
    own_values = {}
    for _ in range(50):
        module = config.get_rl_module_spec(env=env).build()
        own_module = configure_own(config).get_rl_module_spec(env=env).build()
        for name, weight in module.policy.model.named_parameters():
            values.setdefault(name, []).append(weight.detach().numpy().ravel())
        for name, weight in own_parameters(own_module).items():
            own_values.setdefault(name, []).append(weight.detach().numpy().ravel())

    assert values.keys() == own_values.keys()
    for name, draws in values.items():
        pvalue = ks_2samp(np.concatenate(draws), np.concatenate(own_values[name])).pvalue
        assert pvalue > 1e-4, name
