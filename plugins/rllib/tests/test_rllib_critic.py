"""A critic of its own under RLlib: it sees what the policy does not see, and only values depend on
it.
"""

from __future__ import annotations

import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Dict, Discrete, MultiBinary
from hidden_level_env import STEPS, HiddenLevel
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from torch import nn
from torch_weights import assert_every_weight_changed, copy_weights

import rlcatalog_rllib
from rlcatalog.errors import NotServedError
from rlcatalog_rllib import to_policy

pytestmark = pytest.mark.usefixtures("one_thread")


class MaskedLevel(HiddenLevel):
    """The same with a mask, which forbids one of three actions."""

    observation_space = Dict({"action_mask": MultiBinary(3), **HiddenLevel.observation_space})
    action_space = Discrete(3)

    def step(self, action):
        assert self.mask[action], f"{action} is forbidden by {self.mask}"
        return super().step(action)

    def observe(self):
        self.mask = np.ones(3, np.int8)
        self.mask[self.np_random.integers(3)] = 0
        return {"action_mask": self.mask, **super().observe()}


#: The columns of encoded observations: the level comes first, as in the Dict.
LEVEL = slice(0, 1)
X = slice(1, 3)
GROUPS = {"policy": ["x"], "critic": ["level", "x"]}
LSTM = {"use_lstm": True, "lstm_cell_size": 5}


def make_model(*, policy=None, critic=None):
    """Return a model config with a critic that sees the level, which the policy does not see.

    Args:
        policy: Further keys for the policy.
        critic: Further keys for the critic.
    """
    model = {
        "fcnet_hiddens": [8],
        "critic": {"fcnet_hiddens": [6], **(critic or {})},
        "obs_groups": GROUPS,
        **(policy or {}),
    }
    if policy or critic:  # a memory reads it
        model["max_seq_len"] = 4
    return model


CASES = {
    "plain": (HiddenLevel, make_model()),
    "masked": (MaskedLevel, make_model()),
    "lstm of the policy": (HiddenLevel, make_model(policy=LSTM)),
    "lstm of the critic": (MaskedLevel, make_model(critic=LSTM)),
    "lstm of both": (HiddenLevel, make_model(policy=LSTM, critic=LSTM)),
}
each_case = pytest.mark.parametrize(("env", "model"), CASES.values(), ids=CASES)


def encoded_observations(obs):
    """Return the observations themselves, without the masks beside them."""
    return obs["obs"] if isinstance(obs, dict) else obs


def make_module_and_batch(rllib, env, model):
    """Return a learner's module and a training batch from two environments."""
    training = rllib.make_training(rllib.configure(env, model, steps_per_env=13))
    batch = rllib.make_batch(training.learner, training.runner.sample())
    return training.module, batch


def compute_gradients(module, batch):
    """Return the gradients of the distribution's parameters and of the values for a batch's
    observations, `[..., 3]` each.
    """
    obs = encoded_observations(batch["obs"]).clone().requires_grad_()
    outputs = module.forward_train(with_observations(batch, obs))
    gradients = []
    for name in ("action_dist_inputs", "embeddings"):  # the module's values are its embeddings
        (gradient,) = torch.autograd.grad(outputs[name].sum(), obs, retain_graph=True)
        gradients.append(gradient)
    return gradients


def with_observations(batch, obs):
    """Return a batch with other encoded observations; masks stay."""
    if isinstance(batch["obs"], dict):
        return {**batch, "obs": {**batch["obs"], "obs": obs}}
    return {**batch, "obs": obs}


# --- who sees what --------------------------------------------------------------------------------


@each_case
def test_logits_have_no_gradient_for_a_hidden_entry(rllib, env, model):
    module, batch = make_module_and_batch(rllib, env, model)

    of_logits, of_values = compute_gradients(module, batch)

    assert not of_logits[..., LEVEL].any()  # exactly 0
    assert of_logits[..., X].any()
    assert of_values[..., LEVEL].any()
    assert of_values[..., X].any()


@each_case
def test_hidden_entry_changes_values_alone(rllib, env, model):
    module, batch = make_module_and_batch(rllib, env, model)
    obs = encoded_observations(batch["obs"]).clone()
    obs[..., LEVEL] += 0.5

    outputs = module.forward_train(batch)
    other_outputs = module.forward_train(with_observations(batch, obs))

    logits = outputs["action_dist_inputs"]
    assert torch.equal(other_outputs["action_dist_inputs"], logits)
    is_real = batch["loss_mask"]
    values = outputs["embeddings"]
    other_values = other_outputs["embeddings"]
    assert (other_values[is_real] != values[is_real]).all()


# --- training -------------------------------------------------------------------------------------


@each_case
def test_algorithm_trains_both_sides(local_ray, rllib, env, model):
    config = rllib.configure(env, model, steps_per_env=20)

    with rllib.build_algorithm(config) as algorithm:
        module = algorithm.learner_group._learner.module["default_policy"]  # in this process
        before = copy_weights(module.model)
        for _ in range(2):
            algorithm.train()
        policy = to_policy(algorithm)

    assert_every_weight_changed(module.model, before)
    assert any(name.startswith("critic.") for name in before)
    # The policy has the new weights, and acts on what it sees alone.
    observations = [env.observation_space.sample() for _ in range(3)]
    for obs in observations:
        if "action_mask" in obs:
            obs["action_mask"][:] = 1
    step = policy.act(observations, explore=False)
    without_level = [
        {name: entry for name, entry in obs.items() if name != "level"} for obs in observations
    ]
    narrow_step = policy.act(without_level, explore=False)
    assert narrow_step.value is None
    np.testing.assert_array_equal(narrow_step.dist_inputs, step.dist_inputs)
    np.testing.assert_array_equal(narrow_step.action, step.action)


@pytest.mark.parametrize("algo", ["appo", "impala"])
@pytest.mark.parametrize("case", ["masked", "lstm of both"])
def test_updates_of_other_algorithms_change_every_weight(rllib, algo, case):
    env, model = CASES[case]
    config = rllib.configure(env, model, algo, steps_per_env=20).learners(num_learners=0)
    runner, learner, module = rllib.make_training(config)
    before = copy_weights(module.model)

    for _ in range(3):
        rllib.update(learner, runner.sample())

    assert_every_weight_changed(module.model, before)


@each_case
def test_stored_states_give_the_values_of_whole_episodes(rllib, env, model):
    training = rllib.make_training(rllib.configure(env, model, steps_per_env=STEPS))
    module = training.module
    training.runner.module.set_state(module.get_state(inference_only=True))
    episodes = training.runner.sample()
    policy = to_policy(module)
    expected = []
    for episode in episodes:
        state = None
        for obs in encoded_observations(episode.get_observations())[:-1]:
            step = policy.act_encoded(
                obs[None], state, prev_reward=np.zeros(1), mask=None, explore=False
            )
            expected.append(step.value[0])
            state = step.state

    batch = rllib.make_batch(training.learner, episodes)
    values = module.forward_train(batch)["embeddings"]

    # Ray adds a step to each episode, on which it computes no loss.
    np.testing.assert_allclose(values[batch["loss_mask"]].detach(), expected, atol=1e-5)


def test_runner_does_not_run_a_critic_without_memory(rllib, monkeypatch):
    runner = rllib.make_runner(rllib.configure(HiddenLevel, make_model()))

    def fail(*_):
        raise AssertionError("the critic ran")

    monkeypatch.setattr(runner.module.model.critic, "forward", fail)

    chunks = runner.sample(num_timesteps=6)

    assert sum(len(chunk) for chunk in chunks) == 6


def test_policy_has_the_values_of_its_module(rllib):
    env, model = CASES["masked"]
    module, batch = make_module_and_batch(rllib, env, model)

    policy = to_policy(module)

    encoded = encoded_observations(batch["obs"]).numpy()
    values = policy.act_encoded(encoded, mask=None, explore=False).value
    np.testing.assert_array_equal(values, module.compute_values(batch).detach())


class Critic(nn.Module):
    """A class that another process must get from this one."""

    def __init__(self, space):
        super().__init__()
        self.layer = nn.Linear(space.shape[0], 4)

    def forward(self, x):
        return torch.tanh(self.layer(x))


@pytest.fixture
def pickle_this_file(local_ray):
    """Have Ray pickle what this file and its environment's module define, because workers cannot
    import them.
    """
    modules = [sys.modules[__name__], sys.modules[HiddenLevel.__module__]]
    for module in modules:
        local_ray.cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        local_ray.cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.slow  # starts a process
@pytest.mark.usefixtures("pickle_this_file")
def test_runner_in_a_process_trains_a_critic_class(local_ray, rllib):
    groups = {"policy": ["x"], "critic": ["level"]}
    model = {**make_model(), "critic": {"custom_model": Critic}, "obs_groups": groups}
    config = rllib.configure(HiddenLevel, model, num_runners=1, steps_per_env=20)

    with rllib.build_algorithm(config) as algorithm:
        module = algorithm.learner_group._learner.module["default_policy"]
        before = copy_weights(module.model)
        for _ in range(2):
            result = algorithm.train()

    assert_every_weight_changed(module.model, before)
    assert result["num_env_steps_sampled_lifetime"] == 2 * 2 * 20  # iterations, environments, steps


# --- building -------------------------------------------------------------------------------------


def second_layers(model):
    """Return the weights of the second dense layers of the policy's trunk and of the critic's."""
    return [side.hidden.layers[1].weight.detach() for side in (model.policy, model.critic)]


@pytest.mark.parametrize("algo", ["ppo", "appo", "impala"])
def test_both_sides_start_with_the_same_spread(rllib, algo):
    hiddens = {"fcnet_hiddens": [64, 64]}
    model = {**hiddens, "critic": hiddens}

    runner = rllib.make_runner(rllib.configure("CartPole-v1", model, algo))

    # PyTorch's default, as in Ray's own nets: uniform within 1 / sqrt(64 inputs).
    expected = 64**-0.5 / 3**0.5
    for weight in second_layers(runner.module.model):
        assert float(weight.std()) == pytest.approx(expected, rel=0.05)


def test_initializer_of_a_critic_overrides_the_default():
    model = {
        "fcnet_hiddens": [8, 8],
        "critic": {"fcnet_hiddens": [8, 8], "fcnet_weights_initializer": "zeros"},
    }
    config = rlcatalog_rllib.configure(PPOConfig(), "CartPole-v1", model=model)

    of_policy, of_critic = second_layers(config.rl_module_spec.build().model)

    assert of_policy.all()
    assert not of_critic.any()


def test_spec_of_a_critic_has_the_same_initializers():
    env = gym.make("CartPole-v1")
    hiddens = {"fcnet_hiddens": [64, 64]}

    spec = rlcatalog_rllib.spec(
        env.observation_space, env.action_space, {**hiddens, "critic": hiddens}
    )

    of_policy, of_critic = second_layers(spec.build().model)
    assert float(of_critic.std()) == pytest.approx(float(of_policy.std()), rel=0.05)


def test_instance_in_a_critic_is_not_copied():
    instance = nn.Linear(4, 8)
    config = rlcatalog_rllib.configure(
        PPOConfig(), "CartPole-v1", model={"critic": {"custom_model": instance}}
    )

    module = config.copy().rl_module_spec.build()

    assert module.model.critic.module is instance


@pytest.mark.parametrize("keys", [{}, {"obs_groups": GROUPS}], ids=["critic", "obs_groups"])
def test_dqn_refuses_a_critic_and_names_what_serves(keys):
    config = rlcatalog_rllib.configure(
        DQNConfig(), HiddenLevel, model={"critic": {"fcnet_hiddens": [6]}, **keys}
    )

    with pytest.raises(NotServedError, match=r"critic: RLlib's DQN learns.*Use PPO"):
        config.rl_module_spec.build()
