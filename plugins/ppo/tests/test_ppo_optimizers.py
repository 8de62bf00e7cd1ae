"""Optimiser steps of PPO, A2C and PG in both frameworks, on batches of random numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf
import torch
from optimizer_steps import build_policy, make_batch

import rlcatalog
from rlcatalog.errors import NonFiniteError, NotServedError
from rlcatalog_ppo.config import A2CConfig, PGConfig, PPOConfig
from rlcatalog_ppo.optimizer import minibatch_optimizer_of
from rlcatalog_ppo.update import (
    A2C_OBJECTIVE,
    PG_OBJECTIVE,
    PPO_OBJECTIVE,
    ClippedSurrogate,
    UpdateHyperparameters,
)

both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def make_policy_and_optimizer(framework, config=None, objective=PPO_OBJECTIVE, **model):
    """Return a policy and its optimiser; by default, TensorFlow's steps are not traced."""
    policy = build_policy(framework, **model)
    config = config or PPOConfig(eager_tracing=False)
    return policy, minibatch_optimizer_of(framework)(policy, config, objective)


def metric(figures, name):
    """Return a metric of a step of PPO."""
    return float(figures[PPO_OBJECTIVE.metric_names.index(name)])


def sum_of(tensor, framework):
    return tensor.sum() if framework == "torch" else tf.reduce_sum(tensor)


def weights_of(policy):
    return {name: np.array(array) for name, array in policy.model.get_weights().items()}


def changed_weights(policy, before):
    """Return the names of the weights that differ from those before."""
    return {
        name
        for name, array in policy.model.get_weights().items()
        if not np.array_equal(array, before[name])
    }


# --- weights --------------------------------------------------------------------------------------


@both_frameworks
def test_first_step_moves_each_weight_by_learning_rate_at_most(framework):
    policy, optimizer = make_policy_and_optimizer(framework)
    before = weights_of(policy)

    optimizer.step(make_batch(), UpdateHyperparameters(lr=0.01))

    assert changed_weights(policy, before) == set(before)
    for name, array in policy.model.get_weights().items():
        # Adam's first step is the learning rate, in the direction of the gradient's sign.
        assert np.abs(array - before[name]).max() <= 0.0101, name


@both_frameworks
def test_step_with_learning_rate_of_zero_changes_no_weight(framework):
    policy, optimizer = make_policy_and_optimizer(framework)
    optimizer.step(make_batch(), UpdateHyperparameters(lr=0.01))  # Adam's moments are no longer 0
    before = weights_of(policy)

    optimizer.step(make_batch(rows=5), UpdateHyperparameters(lr=0.0))

    assert changed_weights(policy, before) == set()


@both_frameworks
def test_pg_step_leaves_separate_value_network_alone(framework):
    config = PGConfig(eager_tracing=False)
    policy, optimizer = make_policy_and_optimizer(
        framework, config, PG_OBJECTIVE, vf_share_layers=False
    )
    before = weights_of(policy)

    optimizer.step(make_batch(), UpdateHyperparameters(lr=0.01))

    # REINFORCE learns no value, so the weights of the value network have no gradient.
    assert changed_weights(policy, before) == {name for name in before if "value" not in name}


@both_frameworks
def test_a2c_step_changes_separate_value_network(framework):
    config = A2CConfig(eager_tracing=False)
    policy, optimizer = make_policy_and_optimizer(
        framework, config, A2C_OBJECTIVE, vf_share_layers=False
    )
    before = weights_of(policy)

    optimizer.step(make_batch(), UpdateHyperparameters(lr=0.01))

    assert changed_weights(policy, before) == set(before)


@both_frameworks
def test_kl_gradient_is_proportional_to_its_coefficient(framework):
    config = PPOConfig(eager_tracing=False, vf_loss_coeff=0.0, grad_clip=None)
    _, optimizer = make_policy_and_optimizer(framework, config)
    # Without advantages and a value loss, only the KL divergence has a gradient.
    batch = make_batch(
        advantage=np.zeros(8, np.float32),
        dist_inputs=np.random.default_rng(2).normal(size=(8, 2)).astype(np.float32),
    )

    without_kl, _ = optimizer.step(batch, UpdateHyperparameters(lr=0.0, kl_coeff=0.0))
    with_kl, _ = optimizer.step(batch, UpdateHyperparameters(lr=0.0, kl_coeff=1.0))
    with_much_kl, _ = optimizer.step(batch, UpdateHyperparameters(lr=0.0, kl_coeff=50.0))

    norm = metric(with_kl, "grad_norm")
    assert norm > 1e-3
    assert metric(without_kl, "grad_norm") == pytest.approx(0.0, abs=1e-6)
    assert metric(with_much_kl, "grad_norm") == pytest.approx(50 * norm, rel=1e-4)


# --- metrics --------------------------------------------------------------------------------------


@both_frameworks
@pytest.mark.parametrize(
    ("config_class", "objective", "metrics"),
    [
        (
            PPOConfig,
            PPO_OBJECTIVE,
            ["policy_loss", "vf_loss", "entropy", "kl", "clip_fraction", "grad_norm"],
        ),
        (A2CConfig, A2C_OBJECTIVE, ["policy_loss", "vf_loss", "entropy", "grad_norm"]),
        (PGConfig, PG_OBJECTIVE, ["policy_loss", "entropy", "grad_norm"]),
    ],
    ids=["PPO", "A2C", "PG"],
)
def test_step_returns_metrics_of_objective(framework, config_class, objective, metrics):
    _, optimizer = make_policy_and_optimizer(
        framework, config_class(eager_tracing=False), objective
    )

    figures, model_metrics = optimizer.step(make_batch(), UpdateHyperparameters(lr=0.01))

    assert len(figures) == len(metrics)
    assert model_metrics == {}  # the model has no metrics of its own


@both_frameworks
def test_means_are_taken_over_steps(framework):
    convert = {"torch": torch.as_tensor, "tf": tf.constant}[framework]
    _, optimizer = make_policy_and_optimizer(framework)
    # A row for each of three steps.
    figures = (
        np.random.default_rng(0)
        .normal(size=(3, len(PPO_OBJECTIVE.metric_names)))
        .astype(np.float32)
    )

    means = optimizer.means([convert(row) for row in figures])

    np.testing.assert_allclose(means, figures.mean(axis=0), rtol=1e-6)


# --- what PyTorch computes ------------------------------------------------------------------------


@pytest.fixture
def evaluate_calls(monkeypatch):
    """Keyword arguments of all calls of `Policy.evaluate`."""
    calls = []
    evaluate = rlcatalog.Policy.evaluate

    def record(policy, batch, **arguments):
        calls.append(arguments)
        return evaluate(policy, batch, **arguments)

    monkeypatch.setattr(rlcatalog.Policy, "evaluate", record)
    return calls


@pytest.mark.parametrize(
    ("entropy_coeff", "measure", "entropy"),
    [(0.0, True, True), (0.0, False, False), (0.01, True, True), (0.01, False, True)],
)
@pytest.mark.parametrize("check_rows", [True, False])
def test_torch_step_computes_entropy_if_it_is_used(
    check_rows, entropy_coeff, measure, entropy, evaluate_calls
):
    # The entropy is used if it is reported, or part of the loss, and in the first step of all.
    _, optimizer = make_policy_and_optimizer("torch", PPOConfig(entropy_coeff=entropy_coeff))

    for _ in range(2):
        optimizer.step(
            make_batch(), UpdateHyperparameters(lr=0.01), check_rows=check_rows, measure=measure
        )

    assert evaluate_calls == [
        {"check": check_rows, "entropy": True},
        {"check": check_rows, "entropy": entropy},
    ]


def test_torch_step_checks_batch_by_default(evaluate_calls):
    _, optimizer = make_policy_and_optimizer("torch", PPOConfig(entropy_coeff=0.0))

    optimizer.step(make_batch(), UpdateHyperparameters(lr=0.01))

    assert evaluate_calls == [{"check": True, "entropy": True}]


def test_torch_step_measures_only_if_asked():
    _, optimizer = make_policy_and_optimizer("torch")

    figures, _ = optimizer.step(
        make_batch(), UpdateHyperparameters(lr=0.01), check_rows=False, measure=True
    )
    no_figures, _ = optimizer.step(
        make_batch(), UpdateHyperparameters(lr=0.01), check_rows=False, measure=False
    )

    assert len(figures) == len(PPO_OBJECTIVE.metric_names)
    assert no_figures is None


def test_torch_error_computes_entropy_for_its_message(evaluate_calls):
    policy, optimizer = make_policy_and_optimizer("torch", PPOConfig(entropy_coeff=0.0))
    optimizer.step(make_batch(), UpdateHyperparameters(lr=0.01))
    evaluate_calls.clear()  # the first step has a rule of its own
    make_loss_infinite(policy, "torch")

    with pytest.raises(NonFiniteError):
        optimizer.step(
            make_batch(), UpdateHyperparameters(lr=0.01), check_rows=False, measure=False
        )

    # The step itself needs no entropy. The rows are evaluated again to show it in the message.
    assert evaluate_calls == [
        {"check": False, "entropy": False},
        {"check": False, "entropy": True},
    ]


# --- losses and gradients that are not finite -----------------------------------------------------


def make_loss_infinite(policy, framework):
    policy.model.custom_loss = lambda loss, inputs: loss + float("inf")


def make_gradient_infinite(policy, framework):
    """Add the root of 0 to the loss: it is finite, but its slope is not."""
    weight = policy.model.trainable_variables()[0]
    root = torch.sqrt if framework == "torch" else tf.sqrt
    policy.model.custom_loss = lambda loss, inputs: loss + sum_of(root(0.0 * weight), framework)


both_faults = pytest.mark.parametrize("break_loss", [make_loss_infinite, make_gradient_infinite])
checked_or_not = pytest.mark.parametrize("check_rows", [True, False], ids=["checked", "unchecked"])


@both_frameworks
@both_faults
@checked_or_not
def test_non_finite_step_changes_no_weight(framework, break_loss, check_rows):
    policy, optimizer = make_policy_and_optimizer(framework)
    before = weights_of(policy)
    break_loss(policy, framework)

    with pytest.raises(NonFiniteError):
        optimizer.step(
            make_batch(), UpdateHyperparameters(lr=0.01), check_rows=check_rows, measure=False
        )

    assert changed_weights(policy, before) == set()


@both_frameworks
@both_faults
def test_step_after_non_finite_step_changes_weights(framework, break_loss):
    policy, optimizer = make_policy_and_optimizer(framework)
    before = weights_of(policy)
    break_loss(policy, framework)
    with pytest.raises(NonFiniteError):
        optimizer.step(make_batch(), UpdateHyperparameters(lr=0.01))

    del policy.model.custom_loss  # which `break_loss` has set
    optimizer.step(make_batch(), UpdateHyperparameters(lr=0.01))

    assert changed_weights(policy, before) == set(before)


@both_faults
def test_torch_error_clears_gradients(break_loss):
    policy, optimizer = make_policy_and_optimizer("torch")
    break_loss(policy, "torch")

    with pytest.raises(NonFiniteError):
        optimizer.step(make_batch(), UpdateHyperparameters(lr=0.01))

    assert all(parameter.grad is None for parameter in policy.model.parameters())


@both_frameworks
@checked_or_not
def test_error_of_infinite_loss_names_it(framework, check_rows):
    policy, optimizer = make_policy_and_optimizer(framework)
    make_loss_infinite(policy, framework)

    with pytest.raises(NonFiniteError, match=r"loss (inf|nan)") as caught:
        optimizer.step(
            make_batch(), UpdateHyperparameters(lr=0.01), check_rows=check_rows, measure=False
        )

    assert re.search(r"gradient norm \d", str(caught.value))


@both_frameworks
@checked_or_not
def test_error_of_infinite_gradient_names_it(framework, check_rows):
    policy, optimizer = make_policy_and_optimizer(framework)
    make_gradient_infinite(policy, framework)

    with pytest.raises(NonFiniteError, match=r"gradient norm (inf|nan)") as caught:
        optimizer.step(
            make_batch(), UpdateHyperparameters(lr=0.01), check_rows=check_rows, measure=False
        )

    assert re.search(r"the loss -?\d", str(caught.value))


@both_frameworks
@both_faults
@checked_or_not
def test_error_of_non_finite_step_shows_all_metrics(framework, break_loss, check_rows):
    policy, optimizer = make_policy_and_optimizer(framework)
    break_loss(policy, framework)

    with pytest.raises(NonFiniteError) as caught:
        optimizer.step(
            make_batch(), UpdateHyperparameters(lr=0.01), check_rows=check_rows, measure=False
        )

    # The message shows the entropy too, although this step does not need it.
    for name in ("policy_loss", "vf_loss", "entropy", "kl", "clip_fraction"):
        assert re.search(rf"{name} -?\d", str(caught.value)), name


# --- half precision -------------------------------------------------------------------------------


def convert_first_weight_to_half(policy):
    first = next(iter(policy.model.parameters()))
    first.data = first.data.half()


def test_torch_step_refuses_single_float16_weight():
    policy, optimizer = make_policy_and_optimizer("torch")
    convert_first_weight_to_half(policy)

    with pytest.raises(NotServedError, match="PPO: the model's weights are float16"):
        optimizer.step(make_batch(), UpdateHyperparameters(lr=0.01))


def test_torch_optimizer_refuses_single_float16_weight():
    policy = build_policy("torch")
    convert_first_weight_to_half(policy)

    with pytest.raises(NotServedError, match="PPO: the model's weights are float16"):
        minibatch_optimizer_of("torch")(policy, PPOConfig())


# --- traces of TensorFlow -------------------------------------------------------------------------


def record_traces(optimizer):
    """Return a list to which each trace of a step adds the `clip_param` that it reads."""
    clip_params = []

    class RecordingObjective(ClippedSurrogate):
        def losses(self, evaluation, batch, config, ops, hyperparameters):
            clip_params.append(hyperparameters.clip_param)
            return super().losses(evaluation, batch, config, ops, hyperparameters)

    optimizer.objective = RecordingObjective()
    return clip_params


def test_tensorflow_traces_once_for_all_batch_sizes():
    _, optimizer = make_policy_and_optimizer("tf", PPOConfig(clip_param=0.2))
    traces = record_traces(optimizer)

    for rows in (8, 5, 6):
        figures, _ = optimizer.step(make_batch(rows), UpdateHyperparameters(lr=0.01))
        assert 0.0 <= metric(figures, "clip_fraction") <= 1.0

    assert len(traces) == 1


def test_tensorflow_traces_again_for_scheduled_clip_param():
    _, optimizer = make_policy_and_optimizer("tf", PPOConfig(clip_param=0.2))
    clip_params_of_traces = record_traces(optimizer)
    optimizer.step(make_batch(), UpdateHyperparameters(lr=0.0))

    optimizer.step(make_batch(), UpdateHyperparameters(lr=0.0, clip_param=0.5))
    optimizer.step(make_batch(), UpdateHyperparameters(lr=0.0, clip_param=0.4))

    # The first trace uses the config's clip_param. The second one reads it from a tensor, so it
    # serves both 0.5 and 0.4.
    first, second = clip_params_of_traces
    assert first is None
    assert tf.is_tensor(second)


def test_tensorflow_clips_at_scheduled_clip_param_of_each_step():
    _, optimizer = make_policy_and_optimizer("tf", PPOConfig(clip_param=0.2))
    optimizer.step(make_batch(), UpdateHyperparameters(lr=0.0))

    wide, _ = optimizer.step(make_batch(), UpdateHyperparameters(lr=0.0, clip_param=1e9))
    narrow, _ = optimizer.step(make_batch(), UpdateHyperparameters(lr=0.0, clip_param=1e-9))

    assert metric(wide, "clip_fraction") == 0.0
    assert metric(narrow, "clip_fraction") == 1.0


# --- a model's own loss ---------------------------------------------------------------------------


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize("eager_tracing", [True, False])
def test_list_of_losses_is_summed_over_all_elements(framework, eager_tracing):
    config = PPOConfig(eager_tracing=eager_tracing, grad_clip=None)

    def step(custom_loss):
        """Return the weights after a step with `custom_loss(loss, squares)`."""
        policy, optimizer = make_policy_and_optimizer(framework, config)
        weight = policy.model.trainable_variables()[0]
        policy.model.custom_loss = lambda loss, inputs: custom_loss(loss, weight * weight)
        optimizer.step(make_batch(), UpdateHyperparameters(lr=0.01))
        return policy.model.get_weights()

    with_list = step(lambda loss, squares: [loss, squares])
    with_sum = step(lambda loss, squares: loss + sum_of(squares, framework))

    for name, weight in with_list.items():
        np.testing.assert_allclose(weight, with_sum[name], rtol=1e-6, atol=1e-7)
