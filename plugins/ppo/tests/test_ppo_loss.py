"""Losses of PPO against NumPy, and the arguments and results of a model's `custom_loss`."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import torch

from rlcatalog.errors import ModelContractError
from rlcatalog.frameworks import Evaluation, tensor_ops
from rlcatalog_ppo.config import PPOConfig
from rlcatalog_ppo.loss import PPO_OBJECTIVE, Rates, as_drawn, check_loss, loss_inputs, losses

both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def to_tensors(framework, **arrays):
    """Return arrays as tensors of a framework, by name."""
    convert = {"torch": torch.as_tensor, "tf": tf.constant}[framework]
    return {name: convert(array) for name, array in arrays.items()}


# --- losses of PPO --------------------------------------------------------------------------------


@both_frameworks
@pytest.mark.parametrize("kl_coeff", [None, 2.0], ids=["no-penalty", "penalty"])
def test_kl_penalty_is_weighted_mean_of_kl(framework, kl_coeff):
    rng = np.random.default_rng(0)
    random = rng.normal(size=(7, 5)).astype(np.float32)
    logp, old_logp, advantage, value, target, entropy, kl = random
    outputs = to_tensors(framework, logp=logp, entropy=entropy, value=value, kl=kl)
    evaluation = Evaluation(entropy_kind="exact", dist=None, **outputs)
    batch = to_tensors(framework, logp=old_logp, advantage=advantage, target=target)
    config = PPOConfig(entropy_coeff=0.25, vf_loss_coeff=0.5, clip_param=0.2)
    rates = None if kl_coeff is None else Rates(lr=0.0, kl_coeff=kl_coeff)

    total = losses(evaluation, batch, config, tensor_ops(framework), rates).total

    weight = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)
    ratio = np.exp(logp - old_logp)
    surrogate = np.minimum(ratio * weight, np.clip(ratio, 0.8, 1.2) * weight).mean()
    vf_loss = 0.5 * ((value - target) ** 2).mean()
    expected = -surrogate + 0.5 * vf_loss - 0.25 * entropy.mean()
    if kl_coeff is not None:
        expected += kl_coeff * kl.mean()
    assert float(total) == pytest.approx(expected, rel=1e-5)


@both_frameworks
def test_nearly_equal_advantages_are_not_blown_up(framework):
    # Their standard deviation is about as small as the 1e-8 that is added to it.
    advantage = np.float32([3e-9, -1e-9, -2e-9, 0])
    ratio = np.float32([1.1, 0.9, 1.05, 1.0])
    zeros = np.zeros(4, np.float32)
    outputs = to_tensors(framework, logp=np.log(ratio), entropy=zeros, value=zeros)
    evaluation = Evaluation(entropy_kind="exact", dist=None, **outputs)
    batch = to_tensors(framework, logp=zeros, advantage=advantage, target=zeros)

    policy_loss = losses(
        evaluation, batch, PPOConfig(clip_param=0.2), tensor_ops(framework)
    ).policy_loss

    exact = advantage.astype(np.float64)
    normalized = (exact - exact.mean()) / (exact.std(ddof=1) + 1e-8)
    assert float(policy_loss) == pytest.approx(-(ratio * normalized).mean(), rel=1e-4)


def test_ratio_at_clip_limit_does_not_count_as_clipped():
    ratio = torch.tensor([2.0, 2.5, 1.0, 0.5])
    log_ratio = torch.log(ratio)
    assert log_ratio.exp()[0] == 2.0  # exactly at the limit, 1 + clip_param
    losses_of_step = SimpleNamespace(
        policy_loss=torch.tensor(1.0),
        vf_loss=torch.tensor(2.0),
        entropy=torch.tensor(3.0),
        log_ratio=log_ratio,
        clip_param=1.0,
    )

    metrics = PPO_OBJECTIVE.measured(losses_of_step, tensor_ops("torch"))

    kl = (ratio - 1 - log_ratio).mean()
    clip_fraction = 0.25  # only 2.5 is beyond the limit
    np.testing.assert_allclose(metrics, [1, 2, 3, kl, clip_fraction], rtol=1e-6)


# --- arguments of custom_loss ---------------------------------------------------------------------


def fake_policy(*, has_scalar_actions):
    """Return an object with all that these functions read of a policy."""
    return SimpleNamespace(
        action_codec=SimpleNamespace(scalar=has_scalar_actions),
        model_name="Net",
        framework="torch",
    )


def make_batch(**columns):
    """Return a minibatch of two rows."""
    return {
        "obs": np.zeros((2, 3)),
        "raw_action": np.array([[1], [0]]),
        "reward": np.array([0.0, 1.0]),
        "advantage": np.array([1.0, 2.0]),
        "logp": np.array([2.0, 3.0]),
        "target": np.array([3.0, 4.0]),
        **columns,
    }


@pytest.mark.parametrize(
    ("name_in_rllib", "name"),
    [
        ("rewards", "reward"),
        ("advantages", "advantage"),
        ("action_logp", "logp"),
        ("value_targets", "target"),
    ],
)
def test_loss_inputs_have_names_of_rllib_too(name_in_rllib, name):
    batch = make_batch()

    inputs = loss_inputs(fake_policy(has_scalar_actions=True), batch)

    assert inputs[name] is batch[name]
    assert inputs[name_in_rllib] is batch[name]


def test_loss_inputs_have_observations():
    batch = make_batch()

    inputs = loss_inputs(fake_policy(has_scalar_actions=True), batch)

    assert inputs["obs"] is batch["obs"]


@pytest.mark.parametrize(("has_scalar_actions", "actions"), [(True, [1, 0]), (False, [[1], [0]])])
def test_loss_inputs_have_actions_in_shape_of_rllib(has_scalar_actions, actions):
    batch = make_batch(raw_action=np.array([[1], [0]]))

    inputs = loss_inputs(fake_policy(has_scalar_actions=has_scalar_actions), batch)

    assert inputs["actions"].tolist() == actions


def test_columns_of_custom_loss_become_its_inputs():
    batch = make_batch(columns={"dones": np.ones(2)})

    inputs = loss_inputs(fake_policy(has_scalar_actions=True), batch)

    assert inputs["dones"].tolist() == [1, 1]
    assert "columns" not in inputs


def test_loss_inputs_without_columns_have_no_dones():
    assert "dones" not in loss_inputs(fake_policy(has_scalar_actions=True), make_batch())


def test_scalar_raw_actions_lose_their_last_axis():
    raw_actions = np.arange(6).reshape(2, 3, 1)

    actions = as_drawn(fake_policy(has_scalar_actions=True), raw_actions)

    assert actions.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_other_raw_actions_stay_as_they_are():
    raw_actions = np.arange(6).reshape(2, 3, 1)

    assert as_drawn(fake_policy(has_scalar_actions=False), raw_actions) is raw_actions


# --- results of custom_loss -----------------------------------------------------------------------


def is_float(term):
    """Stands for the check of a framework: a float is a tensor here."""
    return type(term) is float


def check_result(loss):
    return check_loss(fake_policy(has_scalar_actions=True), loss, is_float)


@pytest.mark.parametrize(
    ("loss", "terms"),
    [(1.0, [1.0]), ([1.0, 2.0], [1.0, 2.0]), ((1.0, 2.0), [1.0, 2.0])],
    ids=["tensor", "list", "tuple"],
)
def test_custom_loss_returns_tensor_or_several(loss, terms):
    assert check_result(loss) == terms


@pytest.mark.parametrize(
    "loss", [[], (), [1.0, None], (1.0, None), [None, 1.0], (None, 1.0)], ids=str
)
def test_custom_loss_with_missing_terms_is_an_error(loss):
    with pytest.raises(ModelContractError, match="must return a tensor of torch") as caught:
        check_result(loss)

    assert str(caught.value).startswith("Net: custom_loss()")


@pytest.mark.parametrize(("loss", "shown"), [(None, "found None."), ("text", "found 'text'.")])
def test_custom_loss_of_wrong_type_is_shown_in_error(loss, shown):
    with pytest.raises(ModelContractError) as caught:
        check_result(loss)

    assert shown in str(caught.value)
    assert "Return policy_loss with your terms added" in str(caught.value)
