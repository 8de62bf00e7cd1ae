"""What a model may add to training: update operations, a loss, metrics and batch normalisation."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch

from rlcatalog import ViewRequirement
from rlcatalog.errors import ModelContractError
from rlcatalog_ppo import PPO
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
#: An iteration has eight optimiser steps: 51 rows are four minibatches, and there are two epochs.
EIGHT_OPTIMISER_STEPS = {
    "num_envs": 3,
    "rollout_length": 17,
    "minibatch_size": 16,
    "num_epochs": 2,
    "seed": 0,
}


def make_layer(framework, outputs):
    """Return a linear layer for the four numbers that CartPole observes."""
    if framework == "torch":
        return torch.nn.Linear(4, outputs)
    return tf.keras.layers.Dense(outputs)


def make_linear_model(framework):
    """Return a class of models with one layer, whose value is the sum of the observation."""
    base = {"torch": TorchModelV2, "tf": TFModelV2}[framework]

    class LinearModel(base):
        def __init__(self, *args):
            super().__init__(*args)
            self.layer = make_layer(framework, self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            obs = input_dict["obs"]
            self._value = obs.sum(1) if framework == "torch" else tf.reduce_sum(obs, 1)
            return self.layer(obs), state

        def value_function(self):
            return self._value

    return LinearModel


# --- batch normalisation --------------------------------------------------------------------------


class TorchBatchNorm(TorchModelV2):
    def __init__(self, *args):
        super().__init__(*args)
        self.norm = torch.nn.BatchNorm1d(4)
        self.layer = torch.nn.Linear(4, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        self.train(mode=bool(input_dict["is_training"]))
        x = self.norm(input_dict["obs"])
        self._value = x.sum(dim=1)
        return self.layer(x), state

    def value_function(self):
        return self._value


class TFBatchNorm(TFModelV2):
    def __init__(self, *args):
        super().__init__(*args)
        self.norm = tf.keras.layers.BatchNormalization()
        self.layer = tf.keras.layers.Dense(self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        x = self.norm(input_dict["obs"], training=input_dict["is_training"])
        self._value = tf.reduce_sum(x, axis=1)
        return self.layer(x), state

    def value_function(self):
        return self._value


def read_running_mean(algo):
    return algo.policy.model.get_weights()["norm.running_mean"].copy()


@pytest.mark.parametrize("model_class", [TorchBatchNorm, TFBatchNorm])
def test_batch_normalisation_learns_in_training(model_class):
    algo = PPO("CartPole-v1", {**EIGHT_OPTIMISER_STEPS, "model": {"custom_model": model_class}})
    before = read_running_mean(algo)

    algo.train()

    assert np.all(read_running_mean(algo) != before)


@pytest.mark.parametrize("model_class", [TorchBatchNorm, TFBatchNorm])
def test_batch_normalisation_does_not_learn_while_collecting(model_class):
    algo = PPO("CartPole-v1", {**EIGHT_OPTIMISER_STEPS, "model": {"custom_model": model_class}})
    before = read_running_mean(algo)

    algo._collector.collect(8)

    np.testing.assert_array_equal(read_running_mean(algo), before)


@pytest.mark.parametrize("model_class", [TorchBatchNorm, TFBatchNorm])
def test_batch_normalisation_does_not_learn_in_evaluations(model_class):
    algo = PPO("CartPole-v1", {**EIGHT_OPTIMISER_STEPS, "model": {"custom_model": model_class}})
    algo.train()
    before = read_running_mean(algo)

    algo.evaluate(2)

    np.testing.assert_array_equal(read_running_mean(algo), before)


# --- update operations ----------------------------------------------------------------------------


@both_frameworks
def test_update_ops_run_once_per_optimiser_step(framework):
    class CountsSteps(make_linear_model(framework)):
        steps = 0

        def update_ops(self):
            return [self.count_step]

        def count_step(self):
            self.steps += 1

    algo = PPO("CartPole-v1", {**EIGHT_OPTIMISER_STEPS, "model": {"custom_model": CountsSteps}})

    algo.train()

    assert algo.policy.model.steps == 8


# --- a trunk inside a memory ----------------------------------------------------------------------


def make_trunk(framework):
    """Return a class of trunks with three outputs."""
    base = {"torch": TorchModelV2, "tf": TFModelV2}[framework]

    class Trunk(base):
        def __init__(self, *args):
            super().__init__(*args)
            self.num_outputs = 3
            self.layer = make_layer(framework, 3)

        def forward(self, input_dict, state, seq_lens):
            self.input_names = sorted(input_dict)
            return self.layer(input_dict["obs"]), state

    return Trunk


def make_ppo_with_lstm(*, trunk):
    lstm = {"use_lstm": True, "lstm_cell_size": 5, "max_seq_len": 4}
    return PPO("CartPole-v1", {**EIGHT_OPTIMISER_STEPS, "model": {**lstm, "custom_model": trunk}})


@both_frameworks
def test_trunk_inside_an_lstm_adds_a_loss(framework):
    class WithLoss(make_trunk(framework)):
        loss_was_called = False

        def custom_loss(self, policy_loss, loss_inputs):
            self.loss_was_called = True
            return policy_loss

    algo = make_ppo_with_lstm(trunk=WithLoss)

    algo.train()

    assert algo.policy.model.trunk.loss_was_called


@both_frameworks
def test_trunk_inside_an_lstm_adds_metrics(framework):
    class WithMetrics(make_trunk(framework)):
        def metrics(self):
            return {"of_the_trunk": 1.0}

    algo = make_ppo_with_lstm(trunk=WithMetrics)

    result = algo.train()

    assert result["info"]["learner"]["model"] == {"of_the_trunk": 1.0}


@both_frameworks
def test_trunk_inside_an_lstm_adds_update_ops(framework):
    class WithUpdateOp(make_trunk(framework)):
        op_was_called = False

        def update_ops(self):
            return [self.update]

        def update(self):
            self.op_was_called = True

    algo = make_ppo_with_lstm(trunk=WithUpdateOp)

    algo.train()

    assert algo.policy.model.trunk.op_was_called


@both_frameworks
def test_trunk_inside_an_lstm_requests_views(framework):
    class SeesRewards(make_trunk(framework)):
        def __init__(self, *args):
            super().__init__(*args)
            self.view_requirements["prev_rewards"] = ViewRequirement("rewards", shift=-1)

    algo = make_ppo_with_lstm(trunk=SeesRewards)

    algo.train()

    assert "prev_rewards" in algo.policy.model.trunk.input_names


# --- custom losses and metrics --------------------------------------------------------------------


@both_frameworks
def test_custom_loss_and_its_metrics(framework):
    class Regularised(make_linear_model(framework)):
        """Adds a large penalty on its weights."""

        def custom_loss(self, policy_loss, loss_inputs):
            if framework == "torch":
                self.penalty = 100 * (self.layer.weight**2).sum()
                # As in RLlib, a list may be returned, and `policy_loss` read like a list of one.
                return [policy_loss[0] + self.penalty]
            kernel = tf.convert_to_tensor(self.layer.kernel)
            self.penalty = 100 * tf.reduce_sum(kernel**2)
            return policy_loss + self.penalty

        def metrics(self):
            return {"penalty": self.penalty, "constant": 3}

    config = {**EIGHT_OPTIMISER_STEPS, "lr": 0.01, "model": {"custom_model": Regularised}}
    algo = PPO("CartPole-v1", config)

    metrics = [algo.train()["info"]["learner"]["model"] for _ in range(12)]

    # Training makes the weights, and with them the penalty, much smaller.
    assert metrics[-1]["penalty"] < 0.2 * metrics[0]["penalty"]
    assert metrics[0]["constant"] == 3.0


def test_hooks_assigned_between_updates_are_called():
    algo = PPO("CartPole-v1", {**EIGHT_OPTIMISER_STEPS, "model": {"fcnet_hiddens": [8]}})
    algo.train()
    calls = []

    def count_loss(policy_loss, loss_inputs):
        calls.append("custom_loss")
        return policy_loss

    algo.policy.model.custom_loss = count_loss
    algo.policy.model.update_ops = lambda: [lambda: calls.append("update_op")]
    algo.train()

    assert calls == ["custom_loss", "update_op"] * 8


def test_custom_loss_may_run_any_python_without_tracing():
    losses = []

    class ConvertsToFloat(make_linear_model("tf")):
        def custom_loss(self, policy_loss, loss_inputs):
            losses.append(float(policy_loss.numpy()))  # a traced function has no numbers
            return policy_loss

    config = {
        **EIGHT_OPTIMISER_STEPS,
        "eager_tracing": False,
        "model": {"custom_model": ConvertsToFloat},
    }
    PPO("CartPole-v1", config).train()

    assert len(losses) == 8  # one for each optimiser step


@both_frameworks
@pytest.mark.parametrize("number", [0.5, np.float32(0.5)], ids=["float", "numpy"])
def test_custom_loss_must_return_a_tensor(framework, number):
    class ReturnsNumber(make_linear_model(framework)):
        def custom_loss(self, policy_loss, loss_inputs):
            return number

    config = {
        **EIGHT_OPTIMISER_STEPS,
        "framework": framework,
        "model": {"custom_model": ReturnsNumber},
    }
    algo = PPO("CartPole-v1", config)

    with pytest.raises(ModelContractError, match=r"custom_loss\(\) must return a tensor"):
        algo.train()


@both_frameworks
def test_custom_loss_must_have_a_gradient(framework):
    class Detached(make_linear_model(framework)):
        def custom_loss(self, policy_loss, loss_inputs):
            if framework == "torch":
                return policy_loss.detach()
            return tf.stop_gradient(policy_loss)

    config = {**EIGHT_OPTIMISER_STEPS, "framework": framework, "model": {"custom_model": Detached}}
    algo = PPO("CartPole-v1", config)

    with pytest.raises(ModelContractError, match="depend on any weight of Detached"):
        algo.train()
