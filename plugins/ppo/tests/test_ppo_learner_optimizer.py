"""Optimiser steps by a framework's learner, compared with PyTorch's and TensorFlow's own
steps.
"""

from __future__ import annotations

import numpy as np
import pytest
from optimizer_steps import build_policy, make_batch

from rlcatalog import FrameworkSpec
from rlcatalog.errors import ModelContractError, NonFiniteError
from rlcatalog_ppo import LearnerOptimizer, UpdateHyperparameters
from rlcatalog_ppo.config import A2CConfig, PGConfig, PPOConfig
from rlcatalog_ppo.optimizer import minibatch_optimizer_of
from rlcatalog_ppo.update import A2C_OBJECTIVE, PG_OBJECTIVE, PPO_OBJECTIVE

both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
ALGORITHMS = [
    (PPOConfig(eager_tracing=False), PPO_OBJECTIVE),
    (A2CConfig(eager_tracing=False), A2C_OBJECTIVE),
    (PGConfig(eager_tracing=False), PG_OBJECTIVE),
]


def take_steps(optimizer, num_steps=3):
    """Take steps on different batches; return the means of the metrics."""
    figures = []
    for rows in range(6, 6 + num_steps):
        metrics = optimizer.step(make_batch(rows), UpdateHyperparameters(lr=0.01))
        figures.append(metrics.objective_metrics)
    return optimizer.means(figures)


@both_frameworks
@pytest.mark.parametrize(("config", "objective"), ALGORITHMS, ids=["PPO", "A2C", "PG"])
def test_steps_equal_those_of_the_framework(framework, config, objective):
    own_policy = build_policy(framework)
    policy = build_policy(framework)
    own = minibatch_optimizer_of(framework)(own_policy, config, objective)
    generic = LearnerOptimizer(policy, config, objective)

    expected = take_steps(own)
    actual = take_steps(generic)

    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    for name, array in own_policy.model.get_weights().items():
        np.testing.assert_allclose(policy.model.get_weights()[name], array, rtol=1e-6, atol=1e-7)


@both_frameworks
def test_state_continues_in_the_framework_steps(framework):
    policy = build_policy(framework)
    generic = LearnerOptimizer(policy, PPOConfig())
    take_steps(generic)

    own = minibatch_optimizer_of(framework)(policy, PPOConfig(eager_tracing=False))
    own.set_state(generic.get_state())

    for moment in ("first", "second"):
        for name, array in generic.get_state()[moment].items():
            np.testing.assert_array_equal(own.get_state()[moment][name], array)
    assert own.get_state()["step"] == 3


@both_frameworks
def test_step_that_is_not_finite_changes_no_weight(framework):
    policy = build_policy(framework)
    before = {name: np.array(array) for name, array in policy.model.get_weights().items()}
    batch = make_batch(target=np.full(8, 1e30, np.float32))

    with pytest.raises(NonFiniteError, match="PPO: a minibatch has the loss inf"):
        LearnerOptimizer(policy, PPOConfig()).step(batch, UpdateHyperparameters(lr=0.01))

    for name, array in policy.model.get_weights().items():
        np.testing.assert_array_equal(array, before[name])


@both_frameworks
def test_loss_without_weights_is_an_error(framework, monkeypatch):
    policy = build_policy(framework)
    optimizer = LearnerOptimizer(policy, PPOConfig())
    constant = optimizer._ops.tensor(np.float32(1.0))
    monkeypatch.setattr(policy.model, "custom_loss", lambda policy_loss, batch: constant)

    with pytest.raises(ModelContractError, match="the loss does not depend on any weight"):
        optimizer.step(make_batch(), UpdateHyperparameters(lr=0.01))


def test_framework_with_a_learner_needs_no_steps():
    targets = {"backend": "acme:B", "ops": "acme:O", "learner": "rlcatalog_torch:TorchLearner"}
    FrameworkSpec("jax", targets, "", module="numpy").enter()  # until the end of this test
    assert minibatch_optimizer_of("jax") is LearnerOptimizer


def test_framework_with_own_steps_keeps_them():
    assert minibatch_optimizer_of("torch") is not LearnerOptimizer
