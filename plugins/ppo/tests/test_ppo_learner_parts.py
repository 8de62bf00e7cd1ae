"""The learner, and the optimisers of both frameworks, on batches made by hand."""

from __future__ import annotations

import re
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch

import rlcatalog
from rlcatalog.errors import ConfigError, ModelContractError, NonFiniteError, NotServedError
from rlcatalog.frameworks import default_framework
from rlcatalog_ppo import learner as learners
from rlcatalog_ppo.config import A2CConfig, PGConfig, PPOConfig
from rlcatalog_ppo.learner import (
    FIGURES,
    Learner,
    check_policy,
    not_finite,
    optimizer_of,
    set_threads,
)
from rlcatalog_ppo.loss import A2C_OBJECTIVE, PG_OBJECTIVE, PPO_OBJECTIVE, Rates

OBS, TWO = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2)
both = pytest.mark.parametrize("framework", ["torch", "tf"])


def policy_of(framework, **model):
    policy = rlcatalog.build(OBS, TWO, {"fcnet_hiddens": [4], **model}, framework)
    rng = np.random.default_rng(1)
    policy.model.set_weights(
        {name: rng.normal(size=w.shape) for name, w in policy.model.get_weights().items()}
    )
    return policy


def batch_of(rows=8, **changes):
    rng = np.random.default_rng(rows)
    floats = {
        name: rng.normal(size=rows).astype(np.float32)
        for name in ("logp", "advantage", "target", "reward")
    }
    obs = rng.normal(size=(rows, 3)).astype(np.float32)
    return {"obs": obs, "raw_action": rng.integers(0, 2, (rows, 1)), **floats, **changes}


def made(framework, config=None, objective=PPO_OBJECTIVE, **model):
    policy = policy_of(framework, **model)
    config = config or PPOConfig(eager_tracing=False)
    return policy, optimizer_of(framework)(policy, config, objective)


def weights_of(policy):
    return {name: np.array(array) for name, array in policy.model.get_weights().items()}


def moved(policy, before):
    return {
        name
        for name, array in policy.model.get_weights().items()
        if not np.array_equal(array, before[name])
    }


# --- optimiser steps ------------------------------------------------------------------------------


@both
def test_step_measures_and_moves_every_weight_by_default(framework):
    policy, optimizer = made(framework)
    before = weights_of(policy)
    figures, metrics = optimizer.step(batch_of(), Rates(0.01))
    assert (len(figures), metrics) == (len(FIGURES), {})
    assert moved(policy, before) == set(before)
    for name, array in policy.model.get_weights().items():
        # Adam's first step is the learning rate.
        assert np.abs(array - before[name]).max() <= 0.0101, name
    before = weights_of(policy)
    optimizer.step(batch_of(5), Rates(0.0))
    assert moved(policy, before) == set()


def test_torch_checks_and_computes_only_what_is_needed(monkeypatch):
    asked = []
    for coeff in (0.0, 0.01):
        policy, optimizer = made("torch", PPOConfig(entropy_coeff=coeff))
        evaluate = policy.evaluate

        def noted(batch, check, entropy, evaluate=evaluate):
            asked.append((check, entropy))
            return evaluate(batch, check=check, entropy=entropy)

        monkeypatch.setattr(policy, "evaluate", noted)
        for check, measure in ((True, True), (True, False), (False, True), (False, False)):
            figures, _ = optimizer.step(batch_of(), Rates(0.01), check=check, measure=measure)
            assert (figures is None) is not measure
        optimizer.step(batch_of(), Rates(0.01))
    rest = [(True, True), (True, True), (False, True)]
    assert asked == [*rest, (False, False), (True, True), *rest, (False, True), (True, True)]
    policy, optimizer = made("torch")
    evaluate = policy.evaluate
    monkeypatch.setattr(
        policy, "evaluate", lambda batch, **given: asked.append(given) or evaluate(batch, **given)
    )
    policy.model.custom_loss = lambda loss, inputs: loss * float("inf")
    with pytest.raises(NonFiniteError):
        optimizer.step(batch_of(), Rates(0.01), check=False, measure=False)
    # Once more for the message, which shows the entropy; the rows are still not checked.
    assert asked[-2:] == [{"check": False, "entropy": False}, {"check": False, "entropy": True}]


@both
@pytest.mark.parametrize("what", ["loss", "gradient"])
@pytest.mark.parametrize("check", [True, False])
def test_loss_or_gradient_that_is_not_finite_moves_nothing(framework, what, check):
    policy, optimizer = made(framework)

    def root_of_zero(weight):  # it is finite, but its slope is not
        if framework == "torch":
            return torch.sqrt(0.0 * weight).sum()
        return tf.reduce_sum(tf.sqrt(0.0 * weight))

    def custom_loss(loss, inputs):
        return loss + (
            float("inf") if what == "loss" else root_of_zero(policy.model.trainable_variables()[0])
        )

    policy.model.custom_loss = custom_loss
    before = weights_of(policy)
    with pytest.raises(NonFiniteError) as caught:
        optimizer.step(batch_of(), Rates(0.01), check=check, measure=False)
    assert moved(policy, before) == set()
    text = str(caught.value)
    assert re.search(r"loss (inf|nan)" if what == "loss" else r"loss -?\d", text)
    assert re.search(r"gradient norm \d" if what == "loss" else r"gradient norm (inf|nan)", text)
    for name in FIGURES[:-1]:
        assert re.search(rf"{name} -?\d", text), name  # the entropy too, though no step needed it
    if framework == "torch":
        assert all(parameter.grad is None for parameter in policy.model.parameters())
    del policy.model.custom_loss
    optimizer.step(batch_of(), Rates(0.01))
    assert moved(policy, before) == set(before)


@both
def test_weights_that_the_loss_does_not_use_stay(framework):
    """Plain policy gradients use no value, so the value's branch has no gradient."""
    policy, optimizer = made(
        framework, PGConfig(eager_tracing=False), PG_OBJECTIVE, vf_share_layers=False
    )
    before = weights_of(policy)
    figures, _ = optimizer.step(batch_of(), Rates(0.01))
    assert len(figures) == 3
    changed = moved(policy, before)
    assert 0 < len(changed) < len(before)
    policy, optimizer = made(
        framework, A2CConfig(eager_tracing=False), A2C_OBJECTIVE, vf_share_layers=False
    )
    before = weights_of(policy)
    assert len(optimizer.step(batch_of(), Rates(0.01))[0]) == 4
    assert moved(policy, before) == set(before) > changed


def test_torch_refuses_a_single_weight_of_half_precision_now_and_later():
    policy, optimizer = made("torch")
    first = next(iter(policy.model.parameters()))
    first.data = first.data.half()
    for refused in (
        lambda: optimizer.step(batch_of(), Rates(0.01)),
        lambda: optimizer_of("torch")(policy, PPOConfig()),
    ):
        with pytest.raises(NotServedError, match="PPO: the model's weights are float16"):
            refused()


def test_tensorflow_traces_once_for_all_sizes_and_again_for_a_scheduled_clip():
    _, optimizer = made("tf", PPOConfig(clip_param=0.2))
    traces, losses = [], optimizer.objective.losses

    def noted(*arguments):
        traces.append(arguments[4].clip_param)
        return losses(*arguments)

    optimizer.objective = optimizer.objective._replace(losses=noted)
    clipped = [
        optimizer.step(batch_of(rows, logp=np.full(rows, -1.0, np.float32)), Rates(0.0))[0][4]
        for rows in (8, 5, 6)
    ]
    assert len(traces) == 1
    assert traces[0] is None
    found = [
        float(optimizer.step(batch_of(8), Rates(0.0, clip_param=clip))[0][4])
        for clip in (1e9, 1e-9)
    ]
    assert found == [0.0, 1.0]  # the share of ratios beyond the clip of each step
    assert len(traces) == 2
    assert all(0 <= float(share) <= 1 for share in clipped)


@both
def test_divergence_counts_with_the_weight_of_the_step(framework):
    """Without an advantage and a value loss, the gradient is that of the divergence alone."""
    _, optimizer = made(
        framework, PPOConfig(eager_tracing=False, vf_loss_coeff=0.0, grad_clip=None)
    )
    batch = batch_of(advantage=np.zeros(8, np.float32))
    batch["dist_inputs"] = np.random.default_rng(2).normal(size=(8, 2)).astype(np.float32)
    norms = [float(optimizer.step(batch, Rates(0.0, coeff))[0][-1]) for coeff in (0.0, 1.0, 50.0)]
    assert norms[0] == pytest.approx(0.0, abs=1e-6)
    assert norms[1] > 1e-3
    assert norms[2] == pytest.approx(50 * norms[1], rel=1e-4)


# --- the learner ----------------------------------------------------------------------------------


class Counting:
    """An optimiser that notes its steps and moves nothing."""

    objective = PPO_OBJECTIVE

    def __init__(self, metrics=None):
        self.calls, self.metrics, self.state = [], metrics or {}, None

    def placed(self, batch):
        return batch

    def rows(self, columns, index):
        return learners.array_rows(columns, index)

    def step(self, batch, rates, *, check, measure):
        self.calls.append((len(batch["logp"]), rates, check, measure))
        return (np.full(len(FIGURES), float(len(self.calls))) if measure else None), self.metrics

    def means(self, figures):
        return np.mean(figures, axis=0).tolist()

    def get_state(self):
        return "state"

    def set_state(self, state):
        self.state = state


def learner_with(config, operations=(), metrics=None, trained=3):
    model = SimpleNamespace(
        update_ops=lambda: operations, trainable_variables=lambda: [0] * trained
    )
    return Learner(
        SimpleNamespace(model=model), config, np.random.default_rng(0), Counting(metrics)
    )


def test_rows_are_checked_in_the_first_pass_and_measured_in_the_last():
    operations = []
    learner = learner_with(
        PPOConfig(num_epochs=3, minibatch_size=5), [lambda: operations.append(1)]
    )
    result = learner.update({"logp": np.arange(10)}, 0.1, 0.3)
    assert [(size, check, measure) for size, _, check, measure in learner.optimizer.calls] == [
        *[(5, True, False)] * 2,
        *[(5, False, False)] * 2,
        *[(5, False, True)] * 2,
    ]
    assert {rates for _, rates, *_ in learner.optimizer.calls} == {Rates(0.1, 0.0, 0.3)}
    assert len(operations) == 6
    assert result == {**dict.fromkeys(FIGURES, 5.5), "lr": 0.1, "model": {}, "clip_param": 0.3}
    once = learner_with(PPOConfig(num_epochs=1, minibatch_size=5))
    assert "clip_param" not in once.update({"logp": np.arange(5)}, 0.1)
    assert once.optimizer.calls == [(5, Rates(0.1, 0.0, None), True, True)]


def test_algorithms_without_minibatches_take_one_step():
    learner = learner_with(A2CConfig())
    learner.update({"logp": np.arange(10)}, 0.1)
    assert learner.optimizer.calls == [(10, Rates(0.1, 0.0, None), True, True)]
    assert learner.kl_coeff == 0.0


class Detached:
    """A tensor that has a value only without its gradient."""

    def detach(self):
        return 3.5


def test_metrics_become_numbers():
    learner = learner_with(A2CConfig(), metrics={"a": Detached(), "b": np.float32(2), "c": 1})
    assert learner.update({"logp": np.arange(4)}, 0.1)["model"] == {"a": 3.5, "b": 2.0, "c": 1.0}


@pytest.mark.parametrize(
    ("kl", "factor"), [(2.26, 2.0), (2.25, 1.0), (1.5, 1.0), (1.0, 1.0), (0.99, 0.5), (0.0, 0.5)]
)
def test_the_weight_of_the_divergence_follows_it_beyond_a_factor_of_one_and_a_half(kl, factor):
    learner = learner_with(PPOConfig(kl_coeff=0.5, kl_target=1.5, num_epochs=1))
    learner.optimizer.means = lambda figures: [kl if name == "kl" else 9.0 for name in FIGURES]
    assert learner.update({"logp": np.arange(4)}, 0.1)["kl_coeff"] == 0.5
    assert learner.kl_coeff == 0.5 * factor
    assert learner.optimizer.calls[0][1] == Rates(0.1, 0.5, None)
    without = learner_with(PPOConfig(num_epochs=1))
    without.optimizer.means = learner.optimizer.means
    assert "kl_coeff" not in without.update({"logp": np.arange(4)}, 0.1)
    assert without.kl_coeff == 0.0


def test_update_operations_must_be_callable():
    with pytest.raises(
        ModelContractError, match=r"update_ops\(\) must return callables.*; found 'op'"
    ):
        learner_with(A2CConfig(), ["op"]).update({"logp": np.arange(4)}, 0.1)


def test_weights_that_were_frozen_later_are_refused():
    learner = learner_with(A2CConfig())
    learner.policy.model.trainable_variables = lambda: [0]
    with pytest.raises(
        ConfigError,
        match=r"A2C: its optimizer has 3 weights, but now 1 are trainable.*A2C\(env, config",
    ):
        learner.update({"logp": np.arange(4)}, 0.1)


def test_the_state_of_a_learner_is_its_weight_and_its_optimisers_state():
    learner = learner_with(PPOConfig(kl_coeff=0.25))
    assert learner.get_state() == {"kl_coeff": 0.25, "optimizer": "state"}
    learner.set_state({"kl_coeff": 2.0, "optimizer": "other"})
    assert (learner.kl_coeff, learner.optimizer.state) == (2.0, "other")


def test_threads_are_set_for_the_framework_asked_for_or_the_default(monkeypatch):
    asked = []
    kind = SimpleNamespace(set_threads=asked.append)
    monkeypatch.setattr(learners, "learner_of", lambda name: asked.append(name) or kind)
    for framework in (None, "tf", "torch", "tf2"):
        set_threads(framework, 3)
    assert asked == [default_framework(), 3, "tf", 3, "torch", 3, "tf", 3]


def test_loss_that_is_not_finite_is_described():
    text = str(not_finite("A2C", A2C_OBJECTIVE, float("nan"), [1.0, 2.0, 3.0, 4.5]))
    assert text.startswith("A2C: a minibatch has the loss nan and the gradient norm 4.5;")
    assert "This minibatch: policy_loss 1, vf_loss 2, entropy 3, grad_norm 4.5." in text


def stub(obs=OBS, action=TWO, has_value=True, densities=(True,)):
    def part(density):
        kind = type("Dist", (), {} if density is None else {"has_density": density})
        return SimpleNamespace(
            component=SimpleNamespace(load=lambda framework: kind),
            info=SimpleNamespace(path="action[0]"),
        )

    dists = SimpleNamespace(walk=lambda: map(part, densities))
    return SimpleNamespace(
        observation_space=obs,
        action_space=action,
        has_value=has_value,
        model_name="Net",
        framework="torch",
        resolution=SimpleNamespace(dists=dists),
    )


@pytest.mark.parametrize(
    ("policy", "needs_values", "error", "message"),
    [
        (stub(), True, None, ""),
        (stub(has_value=False), False, None, ""),
        (stub(densities=(None, True)), True, None, ""),
        (
            stub(obs=TWO),
            True,
            ConfigError,
            r"policy: its observation_space is Discrete\(2\), but the environment has Box",
        ),
        (
            stub(action=OBS),
            True,
            ConfigError,
            r"policy: its action_space is Box.*, but the environment has Discrete\(2\)",
        ),
        (
            stub(has_value=False),
            True,
            NotServedError,
            r"PPO needs a value estimate; Net has no value_function\(\)",
        ),
        (
            stub(densities=(True, False)),
            True,
            NotServedError,
            r"action\[0\]: PPO learns from the density.*Dist has none",
        ),
    ],
)
def test_policy_must_fit_the_environment_and_the_algorithm(policy, needs_values, error, message):
    if error is None:
        check_policy(policy, (OBS, TWO), "PPO", needs_values)
    else:
        with pytest.raises(error, match=message):
            check_policy(policy, (OBS, TWO), "PPO", needs_values)
