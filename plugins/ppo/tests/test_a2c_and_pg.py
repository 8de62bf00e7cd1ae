"""A2C and plain policy gradient: losses against NumPy, what they learn from, and interfaces."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch

import rlcatalog
import rlcatalog_ppo
from rlcatalog import ModelCatalog
from rlcatalog.errors import (
    ConfigError,
    NonFiniteError,
    NotServedError,
    SavedPolicyError,
    UnknownConfigKeyError,
)
from rlcatalog.frameworks import Evaluation, tensor_ops
from rlcatalog_ppo import A2C, PG, PPO
from rlcatalog_ppo.advantages import training_batch
from rlcatalog_ppo.config import A2CConfig, PGConfig
from rlcatalog_ppo.offline import Reader
from rlcatalog_ppo.update import A2C_OBJECTIVE, PG_OBJECTIVE, UpdateHyperparameters
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
both_algorithms = pytest.mark.parametrize("algorithm", [A2C, PG])
#: Two environments, and rollouts of 12 steps in each.
SMALL = {
    "num_envs": 2,
    "rollout_length": 12,
    "seed": 0,
    "lr": 0.01,
    "model": {"fcnet_hiddens": [8]},
}
LSTM = {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5}


class ClockEnv(gym.Env):
    """Observes the number of steps taken, and pays it after each step.

    Keys of the config:
        length: Steps after which an episode ends.
        truncated: Whether it is truncated there instead of terminated.
        scale: Factor of the rewards.
    """

    observation_space = gym.spaces.Box(0, 100, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config=None):
        config = config or {}
        self.length = config.get("length", 5)
        self.truncated = config.get("truncated", False)
        self.scale = config.get("scale", 1.0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.array([0], np.float32), {}

    def step(self, action):
        self.t += 1
        obs = np.array([self.t], np.float32)
        is_over = self.t == self.length
        terminated = is_over and not self.truncated
        truncated = is_over and self.truncated
        return obs, self.scale * self.t, terminated, truncated, {}


def collect_batch(algo, *, steps):
    """Collect a rollout and return the batch that the algorithm would learn from."""
    return algo._batch(algo._collector.collect(steps))


def discounted_returns(rewards, *, following):
    """Return, for each step, the rewards from there on, discounted by 1/2 per step.

    Args:
        rewards: The rewards.
        following: What follows the last reward.
    """
    returns = []
    for reward in reversed(rewards):
        following = reward + 0.5 * following
        returns.insert(0, following)
    return returns


# --- losses and gradients -------------------------------------------------------------------------


def to_tensors(framework, **arrays):
    """Return arrays as tensors of a framework, by name."""
    convert = {"torch": torch.from_numpy, "tf": tf.constant}[framework]
    return {name: convert(array) for name, array in arrays.items()}


@both_frameworks
@pytest.mark.parametrize("normalized", [False, True], ids=["plain", "normalized"])
def test_a2c_losses_equal_numpy(framework, normalized):
    rng = np.random.default_rng(1)
    logp, advantage, value, target, entropy = rng.normal(size=(5, 32)).astype(np.float32)
    outputs = to_tensors(framework, logp=logp, entropy=entropy, value=value)
    evaluation = Evaluation(entropy_kind="exact", dist=None, kl=None, **outputs)
    batch = to_tensors(framework, advantage=advantage, target=target)
    config = A2CConfig(vf_loss_coeff=0.7, entropy_coeff=0.3, normalize_advantage=normalized)

    losses = A2C_OBJECTIVE.losses(
        evaluation, batch, config, tensor_ops(framework), UpdateHyperparameters(lr=0.0)
    )

    if normalized:
        # To mean 0 and sample standard deviation 1, where 1e-8 avoids a division by 0.
        advantage = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)
    policy_loss = -(logp * advantage).mean()
    vf_loss = 0.5 * ((value - target) ** 2).mean()
    total = policy_loss + 0.7 * vf_loss - 0.3 * entropy.mean()
    np.testing.assert_allclose(float(losses.policy_loss), policy_loss, rtol=1e-5)
    np.testing.assert_allclose(float(losses.vf_loss), vf_loss, rtol=1e-5)
    np.testing.assert_allclose(float(losses.entropy), entropy.mean(), rtol=1e-5)
    np.testing.assert_allclose(float(losses.total), total, rtol=1e-5)


@both_frameworks
@pytest.mark.parametrize("normalized", [False, True], ids=["plain", "normalized"])
def test_pg_losses_equal_numpy(framework, normalized):
    rng = np.random.default_rng(1)
    logp, advantage, value, target, entropy = rng.normal(size=(5, 32)).astype(np.float32)
    outputs = to_tensors(framework, logp=logp, entropy=entropy, value=value)
    evaluation = Evaluation(entropy_kind="exact", dist=None, kl=None, **outputs)
    batch = to_tensors(framework, advantage=advantage, target=target)
    config = PGConfig(entropy_coeff=0.3, normalize_advantage=normalized)

    losses = PG_OBJECTIVE.losses(
        evaluation, batch, config, tensor_ops(framework), UpdateHyperparameters(lr=0.0)
    )

    if normalized:
        # To mean 0 and sample standard deviation 1, where 1e-8 avoids a division by 0.
        advantage = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)
    policy_loss = -(logp * advantage).mean()
    total = policy_loss - 0.3 * entropy.mean()
    assert losses.vf_loss is None  # REINFORCE learns no values
    np.testing.assert_allclose(float(losses.policy_loss), policy_loss, rtol=1e-5)
    np.testing.assert_allclose(float(losses.total), total, rtol=1e-5)


@both_frameworks
def test_a2c_gradients_of_linear_policy_equal_numpy(framework):
    config = {
        **SMALL,
        "framework": framework,
        "model": {"fcnet_hiddens": [], "vf_share_layers": False},
        "grad_clip": None,
        "vf_loss_coeff": 0.25,
    }
    algo = A2C(ClockEnv, config)
    batch = collect_batch(algo, steps=12)
    # The two logits and the value are linear in the one observation, so all shapes differ.
    weights = {weight.shape: weight for weight in algo.policy.model.get_weights().values()}
    logit_slopes = weights[(2, 1)][:, 0]
    logit_biases = weights[(2,)]
    value_slope = weights[(1, 1)][0, 0]
    value_bias = weights[(1,)][0]

    algo._learner.update(batch, lr=0.01)

    obs = batch["obs"]
    action = batch["raw_action"].reshape(-1).astype(int)
    logits = obs * logit_slopes + logit_biases
    probability = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    value = obs[:, 0] * value_slope + value_bias
    # The derivative of -log(probability of the action) is probability - one_hot(action).
    d_logits = (probability - np.eye(2)[action]) * batch["advantage"][:, None]
    # The value's loss is half its squared error times vf_loss_coeff, 0.25.
    d_value = 0.25 * (value - batch["target"])
    expected = {
        (2, 1): (d_logits * obs).mean(axis=0)[:, None],
        (2,): d_logits.mean(axis=0),
        (1, 1): (d_value * obs[:, 0]).mean().reshape(1, 1),
        (1,): d_value.mean().reshape(1),
    }
    # Adam's first moment after one step is a tenth of the gradient.
    for moment in algo._learner.minibatch_optimizer.get_state()["first"].values():
        gradient = 10 * moment
        np.testing.assert_allclose(gradient, expected[gradient.shape], rtol=1e-3, atol=1e-5)


# --- returns and targets --------------------------------------------------------------------------


@pytest.mark.parametrize("truncated", [False, True], ids=["terminated", "truncated"])
def test_pg_returns_end_with_episode_and_rollout(truncated):
    env_config = {"length": 5, "truncated": truncated}
    algo = PG(ClockEnv, {**SMALL, "gamma": 0.5, "env_config": env_config})

    batch = collect_batch(algo, steps=12)

    # 12 steps are two episodes and two steps of a third. `ClockEnv` pays the number of the step,
    # and `discounted_returns` discounts by 0.5, as gamma does.
    episode = discounted_returns([1, 2, 3, 4, 5], following=0.0)
    unfinished_episode = discounted_returns([1, 2], following=0.0)
    expected = episode + episode + unfinished_episode
    # The rows of the two environments follow one another.
    np.testing.assert_allclose(batch["advantage"], expected + expected, rtol=1e-6)


def test_a2c_targets_bootstrap_after_truncation_and_rollout():
    env_config = {"length": 5, "truncated": True}
    algo = A2C(ClockEnv, {**SMALL, "gamma": 0.5, "env_config": env_config})

    batch = collect_batch(algo, steps=7)

    # 7 steps are a truncated episode of five and two steps of the next one. `ClockEnv` observes the
    # number of steps: 5 at the truncation, 2 at the end of the rollout.
    value_of_5, value_of_2 = algo.policy.values(np.array([[5.0], [2.0]], np.float32))
    episode = discounted_returns([1, 2, 3, 4, 5], following=value_of_5)
    unfinished_episode = discounted_returns([1, 2], following=value_of_2)
    expected = episode + unfinished_episode
    # The rows of the two environments follow one another.
    np.testing.assert_allclose(batch["target"], expected + expected, rtol=1e-5)


# --- training -------------------------------------------------------------------------------------


@pytest.mark.grid
@both_algorithms
@both_frameworks
def test_rollout_is_one_optimizer_step(algorithm, framework):
    algo = algorithm(ClockEnv, {**SMALL, "framework": framework})

    for _ in range(3):
        result = algo.train()

    assert algo._learner.minibatch_optimizer.get_state()["step"] == 3
    assert result["timesteps_total"] == 3 * 2 * 12  # rollouts * environments * steps


@pytest.mark.grid
@both_algorithms
@both_frameworks
@pytest.mark.parametrize("model", [SMALL["model"], LSTM], ids=["fcnet", "lstm"])
def test_training_changes_weights_of_policy(algorithm, framework, model):
    algo = algorithm(ClockEnv, {**SMALL, "framework": framework, "model": model})
    before = algo.policy.model.get_weights()

    for _ in range(3):
        algo.train()

    after = algo.policy.model.get_weights()
    unchanged = [name for name in after if np.array_equal(after[name], before[name])]
    if algorithm is A2C:
        assert unchanged == []
    else:  # PG learns no values, so that the weights of the value do not change
        assert unchanged
        assert all("value" in name for name in unchanged)


@pytest.mark.grid
@pytest.mark.parametrize(
    ("algorithm", "metrics"),
    [
        (A2C, {"policy_loss", "vf_loss", "entropy", "grad_norm", "lr", "model"}),
        (PG, {"policy_loss", "entropy", "grad_norm", "lr", "model"}),
    ],
)
@both_frameworks
def test_result_has_metrics_of_algorithm(algorithm, metrics, framework):
    algo = algorithm(ClockEnv, {**SMALL, "framework": framework})

    result = algo.train()

    assert set(result["info"]["learner"]) == metrics
    json.dumps(result)  # raises an error for arrays and tensors


@pytest.mark.grid
@both_algorithms
@both_frameworks
def test_overflowing_loss_changes_no_weight(algorithm, framework):
    # The rewards are 6e37, 12e37, …, and float32 ends at 3.4e38: the loss, which averages them,
    # overflows.
    config = {**SMALL, "framework": framework, "env_config": {"scale": 6e37}, "gamma": 0.0}
    algo = algorithm(ClockEnv, config)
    before = algo.policy.model.get_weights()

    with np.errstate(over="ignore"), pytest.raises(NonFiniteError) as caught:
        algo.train()

    message = str(caught.value)
    assert message.startswith(f"{algorithm.__name__}: a minibatch has the loss ")
    assert "This minibatch: policy_loss" in message
    for name, weight in algo.policy.model.get_weights().items():
        np.testing.assert_array_equal(weight, before[name])


# --- models without values ------------------------------------------------------------------------


class ModelWithoutValue(TorchModelV2, torch.nn.Module):
    """A linear model without a value function."""

    def __init__(self, *args):
        TorchModelV2.__init__(self, *args)
        torch.nn.Module.__init__(self)
        self.logits = torch.nn.Linear(1, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.logits(input_dict["obs"]), state


WITHOUT_VALUE = {**SMALL, "model": {"custom_model": ModelWithoutValue}}


def test_pg_trains_model_without_value():
    algo = PG(ClockEnv, {**WITHOUT_VALUE, "env_config": {"truncated": True}})
    before = algo.policy.model.get_weights()

    result = algo.train()

    assert result["info"]["learner"]["grad_norm"] > 0
    for name, weight in algo.policy.model.get_weights().items():
        assert np.any(weight != before[name]), name


def test_pg_records_rollouts_of_model_without_value(tmp_path):
    algo = PG(ClockEnv, WITHOUT_VALUE, record=tmp_path)

    algo.train()

    assert set(Reader(tmp_path).next()) == {"obs", "actions", "rewards", "dones"}


def test_a2c_refuses_model_without_value():
    with pytest.raises(NotServedError, match="A2C needs a value estimate"):
        A2C(ClockEnv, WITHOUT_VALUE)


# --- actions without a density --------------------------------------------------------------------


class SteeredEnv(ClockEnv):
    """`ClockEnv` with two numbers as action."""

    action_space = gym.spaces.Box(-1, 1, (2,))


@pytest.mark.parametrize(
    ("algorithm", "framework"),
    [(PPO, "torch"), (PPO, "tf"), (A2C, "torch"), (A2C, "tf"), (PG, "torch"), (PG, "tf")],
)
def test_deterministic_actions_are_refused(algorithm, framework):
    config = {
        "num_envs": 2,
        "rollout_length": 128,
        "framework": framework,
        "model": {"custom_action_dist": "deterministic", "fcnet_hiddens": [4]},
    }

    with pytest.raises(NotServedError, match="Deterministic has none") as caught:
        algorithm(SteeredEnv, config)

    name = algorithm.__name__
    assert str(caught.value).startswith(f"action: {name} learns from the density of actions")


def test_error_names_part_of_action_without_density():
    class GearAndWheelEnv(ClockEnv):
        action_space = gym.spaces.Dict(
            gear=gym.spaces.Discrete(3), wheel=gym.spaces.Box(-1, 1, (2,))
        )

    with pytest.raises(NotServedError) as caught:
        PG(GearAndWheelEnv, {**SMALL, "model": {"custom_action_dist": "deterministic"}})

    # A `Discrete` part keeps its own distribution, which has a density.
    assert str(caught.value).startswith("action['wheel']: PG learns from the density")


def test_registered_distribution_without_density_is_refused():
    from rlcatalog_gaussian.torch import DiagGaussian

    class Mean(DiagGaussian):
        has_density = False

    ModelCatalog.register_custom_action_dist("mean_alone", Mean)

    with pytest.raises(NotServedError, match="but Mean has none") as caught:
        PG(SteeredEnv, {**SMALL, "model": {"custom_action_dist": "mean_alone"}})

    assert str(caught.value).startswith("action: PG learns")


# --- a model's own loss and metrics ---------------------------------------------------------------


class RegularizedModel(TorchModelV2, torch.nn.Module):
    """A linear model that adds a large multiple of its squared logit weights to the loss.

    It requests a column `twice` for training, which a `postprocess_fn` must add.
    """

    def __init__(self, *args):
        TorchModelV2.__init__(self, *args)
        torch.nn.Module.__init__(self)
        self.logits = torch.nn.Linear(1, self.num_outputs)
        self.value = torch.nn.Linear(1, 1)
        self.view_requirements["twice"] = rlcatalog.ViewRequirement(
            "twice", space=gym.spaces.Box(-1e9, 1e9, ()), used_for_compute_actions=False
        )

    def forward(self, input_dict, state, seq_lens):
        self._value = self.value(input_dict["obs"])
        return self.logits(input_dict["obs"]), state

    def value_function(self):
        return self._value[:, 0]

    def squared_norm(self):
        return self.logits.weight.square().sum()

    def custom_loss(self, policy_loss, loss_inputs):
        self.last_twice = loss_inputs["views"]["twice"].numpy()
        self.last_rewards = loss_inputs["rewards"].numpy()
        return [policy_loss, 1000 * self.squared_norm()]

    def metrics(self):
        return {"squared_norm": self.squared_norm().detach()}


def add_twice_the_rewards(policy, columns, other_agents, episode):
    return {**columns, "twice": 2 * columns["rewards"]}


def make_regularized(algorithm):
    """Return an algorithm with a `RegularizedModel`."""
    config = {**SMALL, "model": {"custom_model": RegularizedModel}}
    return algorithm(ClockEnv, config, postprocess_fn=add_twice_the_rewards)


@both_algorithms
def test_custom_loss_is_minimized_and_its_metrics_reported(algorithm):
    # The model adds a large multiple of its squared norm to the loss, and reports it.
    algo = make_regularized(algorithm)

    norms = []
    for _ in range(60):
        result = algo.train()
        norms.append(result["info"]["learner"]["model"]["squared_norm"])

    assert norms[-1] < 0.2 * norms[0]


@both_algorithms
def test_custom_loss_sees_postprocessed_columns(algorithm):
    algo = make_regularized(algorithm)  # its `postprocess_fn` adds the column `twice`

    algo.train()

    model = algo.policy.model
    np.testing.assert_array_equal(model.last_twice, 2 * model.last_rewards)


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "framework"), [(A2C, "torch"), pytest.param(PG, "tf", marks=pytest.mark.slow)]
)
def test_restored_run_continues_identically(algorithm, framework, tmp_path):
    config = {
        **SMALL,
        "framework": framework,
        "model": LSTM,
        "lr_schedule": [[0, 0.01], [100, 0.0]],
        "reward_scale": True,
        "env_config": {"scale": 3.0},
    }
    uninterrupted = algorithm(ClockEnv, config)
    uninterrupted.train()
    uninterrupted.save_checkpoint(tmp_path)
    # Both runs draw actions from the framework's global generator, which `restore` sets back.
    # Therefore the first run must be finished before the second one begins.
    expected = [uninterrupted.train()["info"] for _ in range(2)]

    restored = algorithm.restore(tmp_path, ClockEnv)
    actual = [restored.train()["info"] for _ in range(2)]

    assert actual == expected
    restored_weights = restored.policy.model.get_weights()
    for name, weight in uninterrupted.policy.model.get_weights().items():
        np.testing.assert_array_equal(restored_weights[name], weight)


@pytest.mark.parametrize(
    ("algorithm", "framework"), [(A2C, "torch"), pytest.param(PG, "tf", marks=pytest.mark.slow)]
)
def test_ppo_does_not_resume_checkpoint_of_other_algorithm(algorithm, framework, tmp_path):
    algorithm(ClockEnv, {**SMALL, "framework": framework}).save_checkpoint(tmp_path)

    with pytest.raises(SavedPolicyError, match=f"{algorithm.__name__} wrote this"):
        PPO.restore(tmp_path, ClockEnv)


# --- RLlib's older names --------------------------------------------------------------------------


@pytest.mark.parametrize(("old_name", "name"), [("A2CTrainer", "A2C"), ("PGTrainer", "PG")])
def test_old_names_warn_and_train(old_name, name):
    trainer_class = getattr(rlcatalog_ppo, old_name)

    with pytest.warns(DeprecationWarning, match=f"{old_name} is now called {name}"):
        trainer = trainer_class(env=ClockEnv, config=SMALL)

    assert trainer.train()["training_iteration"] == 1


class CartPoleModel(TorchModelV2, torch.nn.Module):
    """A linear model for the 4 numbers of CartPole."""

    def __init__(self, *args):
        TorchModelV2.__init__(self, *args)
        torch.nn.Module.__init__(self)
        self.logits = torch.nn.Linear(4, self.num_outputs)
        self.value = torch.nn.Linear(4, 1)

    def forward(self, input_dict, state, seq_lens):
        self._value = self.value(input_dict["obs"])
        return self.logits(input_dict["obs"]), state

    def value_function(self):
        return self._value[:, 0]


def test_example_of_rllib_docs_trains():
    """The example of RLlib 0.8's page on models, with rlcatalog_ppo instead of its `a3c`."""
    ModelCatalog.register_custom_model("my_torch_model", CartPoleModel)
    with (
        pytest.warns(DeprecationWarning, match="A2CTrainer is now called A2C"),
        pytest.warns(DeprecationWarning, match="'use_pytorch' is now"),
    ):
        trainer = rlcatalog_ppo.A2CTrainer(
            env="CartPole-v1",
            config={
                "use_pytorch": True,
                "model": {
                    "custom_model": "my_torch_model",
                    "custom_options": {},  # extra options to pass to your model
                },
            },
        )

    assert isinstance(trainer.policy.model, CartPoleModel)
    assert trainer.train()["timesteps_total"] == 40  # A2C's default: 8 environments, 5 steps


def test_a3c_is_not_supported():
    with pytest.raises(NotServedError, match="A3C is not supported: its workers") as caught:
        rlcatalog_ppo.A3CTrainer(env=ClockEnv, config=SMALL)

    assert "rlcatalog_ppo.A2C" in str(caught.value)


# --- configs and subclasses -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "config", "error", "message"),
    [
        (A2C, {"clip_param": 0.2}, UnknownConfigKeyError, "Unknown A2C config key 'clip_param'"),
        (PG, {"lambda_": 0.9}, UnknownConfigKeyError, "Unknown PG config key 'lambda_'"),
        (PG, {"gamma": 2}, ConfigError, "PG config key 'gamma'"),
        (
            A2C,
            {"num_envs": 1, "rollout_length": 1, "normalize_advantage": True},
            ConfigError,
            "needs at least two steps",
        ),
    ],
    ids=["key-of-ppo", "key-of-a2c", "gamma-above-1", "single-step"],
)
def test_bad_config_is_refused(algorithm, config, error, message):
    with pytest.raises(error, match=message):
        algorithm(ClockEnv, config)


def test_subclass_may_learn_from_immediate_rewards():
    class ImmediateRewards(PG):
        def _batch(self, rollout):
            # With gamma 0, later rewards count nothing.
            return training_batch(rollout, gamma=0.0, lambda_=1.0)

    algo = ImmediateRewards(ClockEnv, SMALL)

    batch = collect_batch(algo, steps=12)

    np.testing.assert_array_equal(batch["advantage"], batch["reward"])
