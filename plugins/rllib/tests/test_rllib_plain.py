"""Plain modules of PyTorch as models under RLlib."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from gymnasium.spaces import Box
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from torch import nn
from torch_weights import assert_every_weight_changed, copy_weights

from rlcatalog_rllib import configure
from rlcatalog_rllib.parcels import content_of, packed

pytestmark = pytest.mark.usefixtures("one_thread")


class Net(nn.Module):
    """A layer of eight units."""

    def __init__(self, space):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(space.shape[0], 8), nn.Tanh())

    def forward(self, obs):
        return self.layers(obs)


def make_net(space):
    return Net(space)


def make_instance():
    """Return a module for the four numbers of CartPole's observations."""
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh())


# --- building and training ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "is_shared"),
    [
        pytest.param(Net, False, id="class"),
        pytest.param(make_net, False, id="function"),
        # There is only one instance for actor and critic.
        pytest.param(make_instance(), True, id="instance"),
    ],
)
def test_actor_and_critic_share_an_instance_only(model, is_shared):
    module = configure(PPOConfig(), "CartPole-v1", model=model).rl_module_spec.build()

    assert module.policy.config["vf_share_layers"] is is_shared


def test_instance_is_the_module_of_the_policy():
    model = make_instance()

    module = configure(PPOConfig(), "CartPole-v1", model=model).rl_module_spec.build()

    assert module.policy.model.module is model


def test_critics_of_sac_are_copies_of_an_instance():
    instance = nn.Linear(3, 8)  # Pendulum's observations have three numbers

    module = configure(SACConfig(), "Pendulum-v1", model=instance).rl_module_spec.build()

    actor = module.policy.model.module
    first_critic, second_critic = (critic.trunk.module for critic in module.critics)
    assert actor is instance
    assert first_critic is not instance
    assert second_critic is not instance
    assert first_critic is not second_critic


def test_ppo_trains_every_weight(local_ray, rllib):
    config = PPOConfig().env_runners(num_env_runners=0, rollout_fragment_length=16)
    config.training(train_batch_size_per_learner=16, minibatch_size=16, num_epochs=1)
    configure(config, "CartPole-v1", model=Net)

    with rllib.build_algorithm(config) as algorithm:
        learner = algorithm.learner_group._learner  # in this process
        model = learner.module["default_policy"].policy.model
        weights_before = copy_weights(model)
        algorithm.train()

    assert_every_weight_changed(model, weights_before)


class BatchNet(nn.Module):
    """A layer with batch statistics, whose count of batches is a tensor without axes."""

    def __init__(self, space):
        super().__init__()
        linear = nn.Linear(space.shape[0], 8)
        self.layers = nn.Sequential(linear, nn.BatchNorm1d(8), nn.Tanh())

    def forward(self, obs):
        return self.layers(obs)


@pytest.mark.parametrize(
    "num_runners", [0, pytest.param(1, marks=pytest.mark.slow)], ids=["local", "one-process"]
)
def test_module_with_batch_statistics_trains(local_ray, rllib, num_runners):
    config = PPOConfig().env_runners(num_env_runners=num_runners, rollout_fragment_length=32)
    config.training(train_batch_size_per_learner=32, minibatch_size=32, num_epochs=1)
    configure(config, "CartPole-v1", model=BatchNet)

    with rllib.build_algorithm(config) as algorithm:
        module = algorithm.learner_group._learner.module["default_policy"]  # in this process
        weights_before = copy_weights(module.policy.model)
        for _ in range(3):
            result = algorithm.train()
        # The weights with which the environment runner collects, after they were sent to it.
        algorithm.env_runner_group.sync_weights(
            from_worker_or_learner_group=algorithm.learner_group,
            inference_only=True,
            timeout_seconds=60,
        )
        # Ray pickles a lambda by value, so that the other process need not import this file.
        [state] = algorithm.env_runner_group.foreach_env_runner(
            lambda runner: runner.module.get_state(inference_only=True),
            local_env_runner=num_runners == 0,
        )

    assert_every_weight_changed(module.policy.model, weights_before)
    assert result["num_env_steps_sampled_lifetime"] == 3 * 32
    statistics = module.policy.model.module.layers[1]
    assert statistics.num_batches_tracked > 0
    assert statistics.running_mean.any()
    for name, value in state.items():
        np.testing.assert_allclose(value, module.state_dict()[name].numpy(), rtol=1e-6)


# --- pickling -------------------------------------------------------------------------------------


def pack(model):
    """Pack a model as `configure` does in a config."""
    return packed({"custom_model": model, "fcnet_hiddens": [8]})["custom_model"]


def test_copied_config_has_the_same_instance():
    instance = make_instance()

    assert content_of(copy.deepcopy(pack(instance))) is instance


def test_pickled_instance_has_the_same_weights():
    instance = make_instance()

    loaded = content_of(pickle.loads(pickle.dumps(pack(instance))))

    np.testing.assert_array_equal(loaded[0].weight.detach(), instance[0].weight.detach())


def test_pickled_function_makes_modules():
    make = content_of(pickle.loads(pickle.dumps(pack(make_net))))

    assert make(Box(-1, 1, (4,))).layers[0].in_features == 4


def test_names_of_models_are_not_packed():
    assert packed({"custom_model": "fcnet"}) == {"custom_model": "fcnet"}


# --- plain memories -------------------------------------------------------------------------------

GRU = {
    "memory": nn.GRU,
    "memory_config": {"hidden_size": 5, "num_layers": 2},
    "fcnet_hiddens": [8],
    "max_seq_len": 4,
}


def test_ppo_trains_every_weight_of_a_plain_memory(local_ray, rllib):
    config = PPOConfig().env_runners(num_env_runners=0, rollout_fragment_length=16)
    config.training(train_batch_size_per_learner=16, minibatch_size=16, num_epochs=1)
    configure(config, "CartPole-v1", model=GRU)

    with rllib.build_algorithm(config) as algorithm:
        learner = algorithm.learner_group._learner  # in this process
        model = learner.module["default_policy"].policy.model
        weights_before = copy_weights(model)
        algorithm.train()

    assert_every_weight_changed(model, weights_before)


def test_instance_of_a_memory_is_shared():
    memory = nn.GRU(8, 5)
    model = {"memory": memory, "fcnet_hiddens": [8]}

    module = configure(PPOConfig(), "CartPole-v1", model=model).rl_module_spec.build()

    assert module.policy.config["vf_share_layers"] is True
    assert module.policy.model.module is memory


def test_pickled_memory_has_the_same_weights():
    instance = nn.GRU(8, 5)

    packed_memory = packed({"memory": instance})["memory"]
    loaded = content_of(pickle.loads(pickle.dumps(packed_memory)))

    np.testing.assert_array_equal(loaded.weight_ih_l0.detach(), instance.weight_ih_l0.detach())
