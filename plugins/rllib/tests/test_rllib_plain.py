"""Plain nn.Modules under Ray RLlib."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from torch import nn

from rlcatalog_rllib import configure
from rlcatalog_rllib.parcels import content_of, packed

pytestmark = pytest.mark.usefixtures("one_thread")


class Net(nn.Module):
    def __init__(self, space):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(space.shape[0], 8), nn.Tanh())

    def forward(self, obs):
        return self.layers(obs)


def make_net(space):
    return Net(space)


def instance():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh())


@pytest.mark.parametrize("form", ["class", "factory", "instance"])
def test_a_module_is_built_from_a_config_and_computes_its_loss_s_gradients(form):
    model = {"class": Net, "factory": make_net, "instance": instance()}[form]
    config = configure(PPOConfig(), "CartPole-v1", model=model)
    module = config.rl_module_spec.build()
    assert (module.policy.model.module is model) == (form == "instance")
    assert module.policy.config["vf_share_layers"] == (form == "instance")
    obs = torch.linspace(-0.1, 0.1, 8).reshape(2, 4)
    outputs = module._forward_train({"obs": obs})
    outputs["action_dist_inputs"].sum().backward()
    assert all(
        p.grad is not None
        for name, p in module.model.named_parameters()
        if name.startswith("module")
    )


def test_what_stands_in_a_config_travels_and_stays_itself_in_this_process():
    module = instance()
    parcel = packed({"custom_model": module, "fcnet_hiddens": [8]})["custom_model"]
    assert content_of(copy.deepcopy(parcel)) is module
    sent = content_of(pickle.loads(pickle.dumps(parcel)))
    np.testing.assert_array_equal(sent[0].weight.detach(), module[0].weight.detach())
    made = content_of(
        pickle.loads(pickle.dumps(packed({"custom_model": make_net})["custom_model"]))
    )
    assert made(Box(-1, 1, (4,))).layers[0].in_features == 4
    assert packed({"custom_model": "fcnet"}) == {"custom_model": "fcnet"}


def test_the_critics_of_sac_are_copies_of_an_instance():
    module = nn.Linear(3, 8)
    built = configure(SACConfig(), "Pendulum-v1", model=module).rl_module_spec.build()
    modules = [built.policy.model.module, *(critic.trunk.module for critic in built.critics)]
    assert modules[0] is module
    assert len({id(one) for one in modules}) == 3


def test_ppo_trains_one_in_this_process(local_ray):
    algo = configure(
        PPOConfig()
        .env_runners(num_env_runners=0, rollout_fragment_length=16)
        .training(train_batch_size_per_learner=16, minibatch_size=16, num_epochs=1),
        "CartPole-v1",
        model=Net,
    ).build_algo()
    try:
        model = algo.learner_group._learner.module["default_policy"].policy.model
        before = {name: weight.copy() for name, weight in model.get_weights().items()}
        algo.train()
        assert all(np.any(weight != before[name]) for name, weight in model.get_weights().items())
    finally:
        algo.stop()
