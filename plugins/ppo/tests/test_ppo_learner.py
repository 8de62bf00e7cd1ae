"""Updates of a policy: minibatches, passes, the weight of the KL penalty, and refused policies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch

from rlcatalog import FrameworkSpec
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError
from rlcatalog.frameworks import default_framework
from rlcatalog_ppo import optimizer as optimizer_module
from rlcatalog_ppo.config import A2CConfig, PPOConfig
from rlcatalog_ppo.minibatches import array_rows, minibatches
from rlcatalog_ppo.optimizer import minibatch_optimizer_of, not_finite_error, set_threads
from rlcatalog_ppo.policy_check import check_policy
from rlcatalog_ppo.update import (
    A2C_OBJECTIVE,
    PPO_OBJECTIVE,
    RolloutLearner,
    StepMetrics,
    UpdateHyperparameters,
)

THREE_FEATURES = gym.spaces.Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = gym.spaces.Discrete(2)


class NoShuffling:
    """A generator whose permutations keep the order."""

    def permutation(self, n):
        return np.arange(n)


class Step(NamedTuple):
    """Arguments of one optimiser step."""

    rows: int
    hyperparameters: UpdateHyperparameters
    check_rows: bool
    measure: bool


class RecordingOptimizer:
    """Records its steps and changes no weights.

    Args:
        metrics: The model's metrics that each step returns.
        mean_kl: The KL divergence that `means` returns, with 9 for the other metrics. If None,
            every metric of step n is n.
    """

    objective = PPO_OBJECTIVE

    def __init__(self, metrics=None, mean_kl=None):
        self.steps = []
        self.metrics = metrics or {}
        self.mean_kl = mean_kl
        self.state = None
        self.selections = []

    def select_weights(self):
        self.selections.append(len(self.steps))

    def place_batch(self, batch):
        return batch

    def rows(self, columns, index):
        return array_rows(columns, index)

    def step(self, batch, hyperparameters, *, check_rows, measure):
        self.steps.append(Step(len(batch["logp"]), hyperparameters, check_rows, measure))
        figures = None
        if measure:
            figures = np.full(len(PPO_OBJECTIVE.metric_names), float(len(self.steps)))
        return StepMetrics(figures, self.metrics)

    def means(self, figures):
        if self.mean_kl is None:
            return np.mean(figures, axis=0).tolist()
        return [self.mean_kl if name == "kl" else 9.0 for name in PPO_OBJECTIVE.metric_names]

    def get_state(self):
        return "state"

    def set_state(self, state):
        self.state = state


def make_learner(config, *, update_ops=(), **optimizer_arguments):
    """Return a learner with a `RecordingOptimizer`."""
    model = SimpleNamespace(update_ops=lambda: update_ops)
    optimizer = RecordingOptimizer(**optimizer_arguments)
    policy = SimpleNamespace(model=model, overrides=lambda method: method == "update_ops")
    return RolloutLearner(policy, config, np.random.default_rng(0), optimizer)


def make_batch(*, rows):
    """Return a batch with the column in which rows are counted."""
    return {"logp": np.arange(rows)}


# --- minibatches ----------------------------------------------------------------------------------


def test_minibatches_do_not_split_sequences():
    batch = {
        # Four sequences; the entry of each row is the number of its sequence.
        "logp": np.array([0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 3]),
        "seq_lens": np.array([3, 3, 2, 4]),
        "state": [np.array([0, 10, 20, 30])],  # their memory
    }

    first, second = minibatches(batch, size=6, rng=NoShuffling())

    assert first["logp"].tolist() == [0, 0, 0, 1, 1, 1]
    assert first["seq_lens"].tolist() == [3, 3]
    assert first["state"][0].tolist() == [0, 10]
    assert second["logp"].tolist() == [2, 2, 3, 3, 3, 3]
    assert second["seq_lens"].tolist() == [2, 4]
    assert second["state"][0].tolist() == [20, 30]


@pytest.mark.parametrize(
    ("lengths", "size", "lengths_by_minibatch"),
    [
        # Minibatch 0 has rows 0 to 4, and the second sequence ends at row 5.
        ([3, 3, 2, 4], 5, [[3], [3, 2], [4]]),
        ([1, 4, 1, 1, 3], 5, [[1, 4], [1, 1, 3]]),
        ([2, 2, 2], 2, [[2], [2], [2]]),
        ([5, 1, 5, 5], 100, [[5, 1, 5, 5]]),
    ],
)
def test_sequence_goes_where_its_last_row_falls(lengths, size, lengths_by_minibatch):
    batch = {
        "logp": np.arange(sum(lengths)),
        "seq_lens": np.array(lengths),
        "state": [np.zeros(len(lengths))],
    }

    parts = minibatches(batch, size, NoShuffling())

    assert [part["seq_lens"].tolist() for part in parts] == lengths_by_minibatch


def test_minibatch_of_single_row_is_skipped():
    batch = {"logp": np.arange(7)}  # the number of each row

    parts = list(minibatches(batch, 3, NoShuffling()))

    # Row 6 would be alone, and the advantage of one row cannot be normalised.
    assert [part["logp"].tolist() for part in parts] == [[0, 1, 2], [3, 4, 5]]


def test_minibatches_split_nested_columns():
    batch = {"logp": np.arange(4), "views": {"double": (2 * np.arange(4),)}}

    parts = list(minibatches(batch, 2, NoShuffling()))

    assert [part["views"]["double"][0].tolist() for part in parts] == [[0, 2], [4, 6]]


def test_array_rows_keep_structure():
    columns = {"a": np.ones(2), "b": (np.zeros(1), (np.full(3, 2.0),), {"c": np.arange(2)})}

    rows = array_rows(columns, np.array([0, 0]))  # the first row, twice

    assert isinstance(rows["b"][1], tuple)
    assert rows["a"].tolist() == [1, 1]
    assert rows["b"][0].tolist() == [0, 0]
    assert rows["b"][1][0].tolist() == [2, 2]
    assert rows["b"][2]["c"].tolist() == [0, 0]


# --- passes over a batch --------------------------------------------------------------------------


def test_rows_are_checked_in_first_and_measured_in_last_pass():
    learner = make_learner(PPOConfig(num_epochs=3, minibatch_size=5))

    learner.update(make_batch(rows=10), lr=0.1)

    steps = learner.minibatch_optimizer.steps  # three passes over two minibatches
    assert [step.rows for step in steps] == [5, 5, 5, 5, 5, 5]
    assert [step.check_rows for step in steps] == [True, True, False, False, False, False]
    assert [step.measure for step in steps] == [False, False, False, False, True, True]


def test_single_pass_is_checked_and_measured():
    learner = make_learner(PPOConfig(num_epochs=1, minibatch_size=5))

    learner.update(make_batch(rows=5), lr=0.1)

    hyperparameters = UpdateHyperparameters(lr=0.1, kl_coeff=0.0, clip_param=None)
    assert learner.minibatch_optimizer.steps == [
        Step(5, hyperparameters, check_rows=True, measure=True)
    ]


def test_a2c_takes_one_step_on_whole_batch():
    learner = make_learner(A2CConfig())

    learner.update(make_batch(rows=10), lr=0.1)

    hyperparameters = UpdateHyperparameters(lr=0.1, kl_coeff=0.0, clip_param=None)
    assert learner.minibatch_optimizer.steps == [
        Step(10, hyperparameters, check_rows=True, measure=True)
    ]
    assert learner.kl_coeff == 0.0


def test_steps_receive_scheduled_clip_param():
    learner = make_learner(PPOConfig(num_epochs=3, minibatch_size=5))

    result = learner.update(make_batch(rows=10), lr=0.1, clip_param=0.3)

    hyperparameters = UpdateHyperparameters(lr=0.1, kl_coeff=0.0, clip_param=0.3)
    assert [step.hyperparameters for step in learner.minibatch_optimizer.steps] == [
        hyperparameters
    ] * 6
    assert result["clip_param"] == 0.3


def test_result_has_clip_param_only_with_schedule():
    learner = make_learner(PPOConfig())

    result = learner.update(make_batch(rows=5), lr=0.1)

    assert "clip_param" not in result


def test_result_has_means_of_last_pass():
    learner = make_learner(PPOConfig(num_epochs=3, minibatch_size=5))

    result = learner.update(make_batch(rows=10), lr=0.1)

    # Every metric of step n is n, and the last pass has the steps 5 and 6.
    assert result == {**dict.fromkeys(PPO_OBJECTIVE.metric_names, 5.5), "lr": 0.1, "model": {}}


class TensorWithGradient:
    """A tensor whose value 3.5 can only be read after `detach`."""

    def detach(self):
        return 3.5


def test_model_metrics_become_floats():
    metrics = {"tensor": TensorWithGradient(), "array": np.float32(2), "int": 1}
    learner = make_learner(A2CConfig(), metrics=metrics)

    result = learner.update(make_batch(rows=4), lr=0.1)

    assert result["model"] == {"tensor": 3.5, "array": 2.0, "int": 1.0}
    assert {type(value) for value in result["model"].values()} == {float}


def test_update_ops_run_after_each_step():
    calls = []
    learner = make_learner(
        PPOConfig(num_epochs=3, minibatch_size=5), update_ops=[lambda: calls.append("called")]
    )

    learner.update(make_batch(rows=10), lr=0.1)

    assert len(calls) == 6  # three passes over two minibatches


def test_update_ops_must_be_callable():
    learner = make_learner(A2CConfig(), update_ops=["not callable"])

    with pytest.raises(ModelContractError, match=r"update_ops\(\) must return callables") as caught:
        learner.update(make_batch(rows=4), lr=0.1)

    assert "found 'not callable'" in str(caught.value)


def test_weights_are_selected_before_each_update():
    learner = make_learner(PPOConfig(num_epochs=2, minibatch_size=5))

    learner.update(make_batch(rows=10), lr=0.1)
    learner.update(make_batch(rows=10), lr=0.1)

    assert learner.minibatch_optimizer.selections == [0, 4]  # before the first of four steps each


def test_learning_rates_of_parts_reach_each_step_and_result():
    learner = make_learner(A2CConfig())

    result = learner.update(make_batch(rows=4), lr=0.1, lr_parts={"trunk": 0.01})

    (step,) = learner.minibatch_optimizer.steps
    assert step.hyperparameters.lr_parts == {"trunk": 0.01}
    assert result["lr_parts"] == {"trunk": 0.01}


# --- the weight of the KL penalty -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("kl_target", "kl", "factor"),
    [
        (1.5, 2.26, 2.0),
        (1.5, 2.25, 1.0),  # 1.5 * 1.5
        (1.5, 1.5, 1.0),
        (1.5, 1.0, 1.0),  # 1.5 / 1.5
        (1.5, 0.99, 0.5),
        (0.01, 0.0151, 2.0),
        (0.01, 0.0066, 0.5),
    ],
)
def test_kl_coeff_changes_beyond_one_and_a_half_targets(kl_target, kl, factor):
    config = PPOConfig(kl_coeff=0.5, kl_target=kl_target, num_epochs=1)
    learner = make_learner(config, mean_kl=kl)

    result = learner.update(make_batch(rows=4), lr=0.1)

    # This update still has the weight of the config.
    assert learner.minibatch_optimizer.steps[0].hyperparameters == UpdateHyperparameters(
        lr=0.1, kl_coeff=0.5
    )
    assert result["kl_coeff"] == 0.5
    assert learner.kl_coeff == 0.5 * factor


# --- the state of a learner -----------------------------------------------------------------------


def test_state_holds_kl_coeff_and_state_of_optimizer():
    learner = make_learner(PPOConfig(kl_coeff=0.25))

    # "state" is the state of a `RecordingOptimizer`.
    assert learner.get_state() == {"kl_coeff": 0.25, "optimizer": "state"}


def test_set_state_restores_kl_coeff_and_optimizer():
    learner = make_learner(PPOConfig(kl_coeff=0.25))

    learner.set_state({"kl_coeff": 2.0, "optimizer": "another state"})

    assert learner.kl_coeff == 2.0
    assert learner.minibatch_optimizer.state == "another state"


# --- policies that an algorithm can train ---------------------------------------------------------


def fake_policy(
    *, observation_space=THREE_FEATURES, action_space=TWO_ACTIONS, has_value=True, densities=(True,)
):
    """Return an object with all that `check_policy` reads of a policy.

    Args:
        observation_space: Its observation space.
        action_space: Its action space.
        has_value: Whether its model has a value function.
        densities: `has_density` of each action distribution; None if it does not define it.
    """
    parts = []
    for has_density in densities:
        attributes = {} if has_density is None else {"has_density": has_density}
        dist_class = type("Dist", (), attributes)
        part = SimpleNamespace(load=lambda framework, loaded=dist_class: loaded)
        parts.append(SimpleNamespace(part=part, info=SimpleNamespace(path="action[0]")))
    return SimpleNamespace(
        observation_space=observation_space,
        action_space=action_space,
        has_value=has_value,
        model_name="Net",
        framework="torch",
        resolution=SimpleNamespace(dists=SimpleNamespace(walk=lambda: parts)),
    )


def check_for_ppo(policy, *, needs_values=True):
    """Check a policy for PPO in an environment of three features and two actions."""
    check_policy(
        policy,
        observation_space=THREE_FEATURES,
        action_space=TWO_ACTIONS,
        algorithm="PPO",
        needs_values=needs_values,
    )


@pytest.mark.parametrize("densities", [(True,), (None, True)], ids=["declared", "undeclared"])
def test_policy_with_fitting_spaces_is_accepted(densities):
    check_for_ppo(fake_policy(densities=densities))


def test_policy_without_value_is_accepted_if_none_is_needed():
    check_for_ppo(fake_policy(has_value=False), needs_values=False)


def test_policy_without_value_is_refused_if_one_is_needed():
    with pytest.raises(NotServedError, match="PPO needs a value estimate") as caught:
        check_for_ppo(fake_policy(has_value=False), needs_values=True)

    assert "Net has no value_function()" in str(caught.value)


def test_policy_of_other_observation_space_is_refused():
    policy = fake_policy(observation_space=gym.spaces.Discrete(7))

    with pytest.raises(ConfigError, match=r"its observation_space is Discrete\(7\)") as caught:
        check_for_ppo(policy)

    assert "but the environment has Box" in str(caught.value)


def test_policy_of_other_action_space_is_refused():
    policy = fake_policy(action_space=gym.spaces.Discrete(7))

    with pytest.raises(ConfigError, match=r"its action_space is Discrete\(7\)") as caught:
        check_for_ppo(policy)

    assert "but the environment has Discrete(2)" in str(caught.value)


# --- frameworks -----------------------------------------------------------------------------------


def test_set_threads_sets_threads_of_torch(monkeypatch):
    counts = []
    monkeypatch.setattr(torch, "set_num_threads", counts.append)

    set_threads("torch", 3)

    assert counts == [3]


def test_set_threads_sets_threads_of_tensorflow(monkeypatch):
    counts = []
    # TensorFlow refuses the real call after its first operation.
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", counts.append)

    set_threads("tf", 2)

    assert counts == [2]


@pytest.mark.parametrize(
    ("framework", "learner"),
    [(None, default_framework()), ("torch", "torch"), ("tf", "tf"), ("tf2", "tf")],
)
def test_set_threads_asks_learner_of_framework(framework, learner, monkeypatch):
    calls = []

    def fake_learner_of(name):
        return SimpleNamespace(set_threads=lambda count: calls.append((name, count)))

    monkeypatch.setattr(optimizer_module, "learner_of", fake_learner_of)

    set_threads(framework, 3)

    assert calls == [(learner, 3)]


def test_framework_without_optimizer_is_refused():
    targets = {"backend": "acme:B", "ops": "acme:O"}
    jax = FrameworkSpec(name="jax", targets=targets, summary="", module="numpy")
    jax.enter()  # registers the framework until the end of this test

    with pytest.raises(NotServedError, match="no code for framework='jax'") as caught:
        minibatch_optimizer_of("jax")

    assert "no installed package declares" in str(caught.value)


# --- errors ---------------------------------------------------------------------------------------


def test_non_finite_error_shows_loss_and_all_metrics():
    # The metrics of A2C: policy_loss, vf_loss, entropy and grad_norm.
    metrics = [1.0, 2.0, 3.0, 4.5]
    error = not_finite_error("A2C", A2C_OBJECTIVE, loss=float("nan"), metrics=metrics)

    message = str(error)
    assert message.startswith("A2C: a minibatch has the loss nan and the gradient norm 4.5;")
    assert "This minibatch: policy_loss 1, vf_loss 2, entropy 3, grad_norm 4.5." in message
