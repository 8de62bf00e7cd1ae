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
from rlcatalog_ppo.custom_loss import loss_inputs, loss_terms, rllib_actions
from rlcatalog_ppo.update import PPO_OBJECTIVE, UpdateHyperparameters

both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def compute_losses(framework, config, *, ratio, kl_coeff=0.0, **columns):
    """Return PPO's losses for rows with these probability ratios; other columns are 0 by default.

    The columns are `advantage`, `value`, `target`, `entropy` and `kl`.
    """
    convert = {"torch": torch.as_tensor, "tf": tf.constant}[framework]

    def to_tensor(name):
        return convert(np.float32(columns.get(name, np.zeros(len(ratio)))))

    evaluation = Evaluation(
        logp=convert(np.float32(np.log(ratio))),
        entropy=to_tensor("entropy"),
        entropy_kind="exact",
        value=to_tensor("value"),
        dist=None,
        kl=to_tensor("kl"),
    )
    batch = {
        "logp": convert(np.zeros(len(ratio), np.float32)),
        "advantage": to_tensor("advantage"),
        "target": to_tensor("target"),
    }
    hyperparameters = UpdateHyperparameters(lr=0.0, kl_coeff=kl_coeff)
    return PPO_OBJECTIVE.losses(evaluation, batch, config, tensor_ops(framework), hyperparameters)


# --- losses of PPO --------------------------------------------------------------------------------


@both_frameworks
def test_loss_is_weighted_sum_of_its_parts(framework):
    result = compute_losses(
        framework,
        PPOConfig(clip_param=0.2, vf_loss_coeff=0.5, entropy_coeff=0.25),
        ratio=[1.5, 1.5, 0.5, 0.5],
        advantage=[1, -1, 1, -1],
        value=[0, 0, 0, 0],
        target=[2, 2, 4, 4],
        entropy=[0.6, 0.6, 0.2, 0.2],
        kl=[1, 3, 3, 5],
        kl_coeff=2.0,
    )

    # The products of ratio and advantage. The ratio is limited to 0.8 or 1.2 where that makes the
    # product smaller.
    mean_product = (1.2 - 1.5 + 0.5 - 0.8) / 4
    policy_loss = -mean_product / np.sqrt(4 / 3)  # the advantages' deviation, with n - 1 = 3
    vf_loss = 5.0  # half the mean of 4, 4, 16 and 16
    entropy = 0.4  # the mean of the four
    kl = 3.0  # the mean of the four
    total = policy_loss + 0.5 * vf_loss - 0.25 * entropy + 2.0 * kl
    assert float(result.policy_loss) == pytest.approx(policy_loss, rel=1e-5)
    assert float(result.vf_loss) == pytest.approx(vf_loss)
    assert float(result.entropy) == pytest.approx(entropy)
    assert float(result.total) == pytest.approx(total, rel=1e-5)


@both_frameworks
def test_nearly_equal_advantages_are_not_blown_up(framework):
    config = PPOConfig(clip_param=0.2)

    result = compute_losses(framework, config, ratio=[1.1, 0.9], advantage=[1e-9, -1e-9])

    # The 1e-8 that is added to the standard deviation is much larger than it.
    divisor = np.sqrt(2) * 1e-9 + 1e-8
    mean_product = (1.1 * 1e-9 - 0.9 * 1e-9) / 2
    assert float(result.policy_loss) == pytest.approx(-mean_product / divisor, rel=1e-4)


def test_ratio_at_clip_limit_does_not_count_as_clipped():
    ratio = torch.tensor([2.0, 2.5, 1.0, 0.5])
    losses_of_step = SimpleNamespace(
        policy_loss=torch.tensor(1.0),
        vf_loss=torch.tensor(2.0),
        entropy=torch.tensor(3.0),
        log_ratio=torch.log(ratio),
        clip_param=1.0,
    )

    policy_loss, vf_loss, entropy, kl, clip_fraction = PPO_OBJECTIVE.metrics(
        losses_of_step, tensor_ops("torch")
    )

    assert (policy_loss, vf_loss, entropy) == (1.0, 2.0, 3.0)
    # The KL divergence is estimated as the mean of ratio - 1 - log(ratio). The ratios minus 1 add
    # up to 2, and the logarithms of 2, 1 and 0.5 to 0.
    assert float(kl) == pytest.approx((2.0 - np.log(2.5)) / 4, rel=1e-5)
    # The limits are 0 and 2. Only 2.5 is outside; 2.0 is exactly at the limit.
    assert clip_fraction == 0.25


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

    actions = rllib_actions(fake_policy(has_scalar_actions=True), raw_actions)

    assert actions.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_other_raw_actions_stay_as_they_are():
    raw_actions = np.arange(6).reshape(2, 3, 1)

    assert rllib_actions(fake_policy(has_scalar_actions=False), raw_actions) is raw_actions


# --- results of custom_loss -----------------------------------------------------------------------


def is_float(term):
    """Stands for the check of a framework: a float is a tensor here."""
    return type(term) is float


def check_result(loss):
    return loss_terms(fake_policy(has_scalar_actions=True), loss, is_float)


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
