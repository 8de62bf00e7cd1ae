"""Parts of the model under RLlib: frozen ones stay as they are, and others have their own rates."""

from __future__ import annotations

import gymnasium as gym
import pytest
import torch
from part_weights import copy_tensors, find_changes, names_of
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from torch import nn
from torch_weights import copy_weights

from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_rllib import configure

pytestmark = pytest.mark.usefixtures("one_thread")

RATES = {"trunk": 1e-5}
SHARED = {"vf_share_layers": True}


class Normalized(nn.Module):
    """Module with batch statistics and dropout."""

    def __init__(self):
        super().__init__()
        norm = nn.BatchNorm1d(8)
        norm.register_buffer("num_batches_tracked", None)  # Ray cannot send a tensor without axes
        self.layers = nn.Sequential(nn.Linear(4, 8), norm, nn.Dropout(0.5))

    def forward(self, x):
        return self.layers(x)


def record_rates(learner):
    """Return a list to which each step of a learner's optimiser adds its groups' rates."""
    rates = []

    def record(optimizer, *_):
        rates.append([float(group["lr"]) for group in optimizer.param_groups])

    learner.get_optimizer("default_policy").register_step_pre_hook(record)
    return rates


@pytest.mark.parametrize("config_class", [PPOConfig, APPOConfig, IMPALAConfig])
def test_frozen_trunk_keeps_all_bytes(rllib, config_class):
    config = config_class().env_runners(num_env_runners=0, rollout_fragment_length=16)
    config.training(train_batch_size_per_learner=16)
    model = {**SHARED, "custom_model": Normalized, "freeze_parts": ["trunk"]}
    config = configure(config, "CartPole-v1", model=model)
    runner, learner, module = rllib.make_training(config)
    before = copy_tensors(module.model)

    rllib.update(learner, runner.sample())

    assert find_changes(module.model, before) == names_of(module.model, "head", "value")


def test_rates_of_parts_follow_schedule(rllib):
    config = PPOConfig().env_runners(num_env_runners=0, rollout_fragment_length=16)
    config.training(
        train_batch_size_per_learner=16,
        minibatch_size=16,
        num_epochs=1,
        lr=[[0, 1e-3], [100, 5e-4], [200, 5e-4]],
    )
    config = configure(config, "CartPole-v1", model=SHARED, lr_parts=RATES)
    runner, learner, _module = rllib.make_training(config)
    rates = record_rates(learner)

    rllib.update(learner, runner.sample())
    # What Ray does after an update, when 100 steps have been taken.
    learner.after_gradient_based_update(timesteps={"num_env_steps_sampled_lifetime": 100})
    rllib.update(learner, runner.sample())

    assert rates[0] == pytest.approx([1e-3, 1e-5])
    assert rates[-1] == pytest.approx([5e-4, 0.5e-5])


@pytest.mark.parametrize("algo", ["ppo", "appo", "impala"])
def test_part_with_rate_zero_stays(rllib, algo):
    config = rllib.configure(lambda: gym.make("CartPole-v1"), SHARED, algo)
    config = configure(config, model={**SHARED, "fcnet_hiddens": [8]}, lr_parts={"trunk": 0.0})
    runner, learner, module = rllib.make_training(config)
    before = copy_tensors(module.model)

    rllib.update(learner, runner.sample())

    assert find_changes(module.model, before) == names_of(module.model, "head", "value")


def test_rates_of_parts_keep_gradient_clipping(rllib):
    gradients = []
    for lr_parts in (None, {"trunk": 1e-3}):
        config = PPOConfig().env_runners(num_env_runners=0, rollout_fragment_length=16)
        config.debugging(seed=0)
        config.training(
            train_batch_size_per_learner=16, minibatch_size=16, num_epochs=1, lr=1e-3, grad_clip=0.1
        )
        config = configure(config, "CartPole-v1", model=SHARED, lr_parts=lr_parts)
        torch.manual_seed(0)
        runner, learner, module = rllib.make_training(config)
        rllib.update(learner, runner.sample())
        gradients.append(copy_tensors(module.model))

    # The part has the rate of the others, so all weights are the same, bit by bit.
    one_group, two_groups = gradients
    for name, tensor in one_group.items():
        assert torch.equal(tensor, two_groups[name]), name


@pytest.mark.parametrize("config_class", [DQNConfig, SACConfig])
def test_rates_of_parts_are_refused(config_class):
    with pytest.raises(NotServedError, match="lr_parts: the learners of DQN and SAC"):
        configure(config_class(), "CartPole-v1", lr_parts=RATES)


def test_rate_of_unknown_part_is_refused():
    with pytest.raises(ConfigError, match="lr_parts: this model has no part"):
        configure(PPOConfig(), "CartPole-v1", lr_parts={"backbone": 1e-5})


def test_frozen_parts_are_refused_for_sac():
    config = configure(SACConfig(), "CartPole-v1", model={"freeze_parts": ["trunk"]})

    with pytest.raises(NotServedError, match="freeze_parts: SAC's critics"):
        config.rl_module_spec.build()


# --- a critic of its own --------------------------------------------------------------------------

CRITIC = {"fcnet_hiddens": [8], "critic": {"custom_model": Normalized}}
#: The parts of this model, and which weights and statistics training changes in each.
PARTS_OF_BOTH_SIDES = ("trunk", "head", "critic.trunk", "critic.value")


@pytest.mark.parametrize("part", ["trunk", "critic.trunk", "critic.value", "critic"])
def test_frozen_part_beside_a_critic_keeps_all_bytes(rllib, part):
    config = rllib.configure("CartPole-v1", {**CRITIC, "freeze_parts": [part]})
    runner, learner, module = rllib.make_training(config)
    before = copy_tensors(module.model)

    rllib.update(learner, runner.sample())

    learned_parts = [name for name in PARTS_OF_BOTH_SIDES if not name.startswith(part)]
    assert find_changes(module.model, before) == names_of(module.model, *learned_parts)


def test_rates_of_a_critics_parts_follow_schedule(rllib):
    schedule = [[0, 1e-3], [100, 5e-4], [200, 5e-4]]
    config = rllib.configure("CartPole-v1", CRITIC, lr=schedule)
    lr_parts = {"trunk": 1e-5, "critic.trunk": 2e-4, "critic.value": 3e-3}
    config = configure(config, model=CRITIC, lr_parts=lr_parts)
    runner, learner, _module = rllib.make_training(config)
    rates = record_rates(learner)

    rllib.update(learner, runner.sample())
    # What Ray does after an update, when 100 steps have been taken.
    learner.after_gradient_based_update(timesteps={"num_env_steps_sampled_lifetime": 100})
    rllib.update(learner, runner.sample())

    # The head has the schedule's own rate, and the others their shares of it.
    assert rates[0] == pytest.approx([1e-3, 1e-5, 2e-4, 3e-3])
    assert rates[-1] == pytest.approx([5e-4, 0.5e-5, 1e-4, 1.5e-3])


@pytest.mark.parametrize("algo", ["ppo", "appo", "impala"])
def test_critic_with_rate_zero_keeps_its_weights(rllib, algo):
    config = rllib.configure("CartPole-v1", CRITIC, algo)
    config = configure(config, model=CRITIC, lr_parts={"critic": 0.0})
    runner, learner, module = rllib.make_training(config)
    before = copy_weights(module.model)

    rllib.update(learner, runner.sample())

    changed = set()
    for name, weight in module.model.named_parameters():
        if not torch.equal(weight, before[name]):
            changed.add(name)
    assert changed == names_of(module.model, "trunk", "head")
