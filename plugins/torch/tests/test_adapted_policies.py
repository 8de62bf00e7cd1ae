"""Policies with a class of `torch.distributions`: acting, training, saving and exporting."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from action_kinds import Anything
from builders import assert_ppo_trains_every_weight
from torch import distributions as td
from torch_dists import CASES, FREE, NO_ENTROPY, register

import rlcatalog
from rlcatalog.errors import NoClosedFormError, NotServedError, SavedPolicyError

OBSERVATIONS = np.array([[0.5, -0.5], [-1.0, 1.0]], np.float32)


@pytest.fixture(autouse=True)
def _validate_arguments():
    """Let PyTorch check the arguments of distributions, as it does by default: TorchRL and skrl,
    which other tests import, switch the checks off for the whole process.
    """
    td.Distribution.set_default_validate_args(True)


def build_policy(catalog, case):
    config = register(catalog, case)
    return rlcatalog.build(env=Anything(CASES[case].space), config=config, catalog=catalog)


@pytest.mark.parametrize("case", CASES)
def test_policy_acts_in_the_space(catalog, case):
    policy = build_policy(catalog, case)

    step = policy.act(OBSERVATIONS)

    assert all(policy.action_space.contains(action) for action in list(step.action))


@pytest.mark.parametrize("case", CASES)
def test_policy_evaluates_its_actions_as_drawn(catalog, case):
    policy = build_policy(catalog, case)
    step = policy.act(OBSERVATIONS)

    evaluation = policy.evaluate(
        {"obs": policy.preprocess(OBSERVATIONS), "raw_action": step.raw_action}
    )

    np.testing.assert_allclose(evaluation.logp.detach(), step.logp, rtol=1e-4, atol=1e-4)
    assert evaluation.entropy_kind == ("estimate" if case in NO_ENTROPY else "exact")


@pytest.mark.parametrize("case", CASES)
def test_ppo_trains_every_weight(catalog, case):
    # The environment takes any action of the space, and pays random rewards.
    assert_ppo_trains_every_weight(
        lambda: Anything(CASES[case].space),
        model=register(catalog, case),
        rollout_length=8,
        minibatch_size=16,
        kl_coeff=0.0,
        entropy_coeff=0.01,
    )


# --- copies ---------------------------------------------------------------------------------------


def copy_by_saving(policy, catalog, tmp_path):
    policy.save(tmp_path / "saved")
    return rlcatalog.load(tmp_path / "saved", catalog=catalog)


def copy_by_pickle(policy, catalog, tmp_path):
    return pickle.loads(pickle.dumps(policy))


def copy_in_memory(policy, catalog, tmp_path):
    return copy.deepcopy(policy)


@pytest.mark.parametrize("make_copy", [copy_by_saving, copy_by_pickle, copy_in_memory])
def test_copy_evaluates_actions_alike(catalog, tmp_path, make_copy):
    policy = build_policy(catalog, "StudentT")
    step = policy.act(OBSERVATIONS)
    batch = {"obs": policy.preprocess(OBSERVATIONS), "raw_action": step.raw_action}

    copied = make_copy(policy, catalog, tmp_path)

    np.testing.assert_allclose(copied.evaluate(batch).logp.detach(), step.logp, rtol=1e-5)


def test_pickle_of_lambda_is_an_error(catalog):
    catalog.register_action_dist("own", lambda x: td.Normal(x, 1.0), num_inputs=2)
    config = {"custom_action_dist": "own"}
    policy = rlcatalog.build(env=Anything(FREE), config=config, catalog=catalog)

    with pytest.raises(SavedPolicyError, match="lambda cannot be imported from"):
        pickle.dumps(policy)


# --- frozen and exported policies -----------------------------------------------------------------


@pytest.mark.parametrize(
    "case", ["Laplace", "StudentT", "Beta", "Categorical", "Poisson", "MixtureSameFamily"]
)
def test_frozen_policy_scores_as_evaluate_does(catalog, case):
    policy = build_policy(catalog, case)

    step = policy.freeze().act(OBSERVATIONS)

    evaluation = policy.evaluate(
        {"obs": policy.preprocess(OBSERVATIONS), "raw_action": step.raw_action}
    )
    np.testing.assert_allclose(evaluation.logp.detach(), step.logp, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "Normal",
        "Laplace",
        "LogNormal",
        "Gumbel",
        "Gamma",
        "Kumaraswamy",
        "Beta",
        "Categorical",
        "Bernoulli",
    ],
)
def test_exported_policy_acts_alike(catalog, case, tmp_path):
    policy = build_policy(catalog, case)
    policy.export(tmp_path / "policy.onnx")

    actor = rlcatalog.Actor(tmp_path / "policy.onnx")
    step = actor.act(OBSERVATIONS, explore=False)

    expected = policy.act(OBSERVATIONS, explore=False).action
    np.testing.assert_allclose(step.action, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("case", "error", "message"),
    [
        ("StudentT", NotServedError, "data-dependent"),
        ("VonMises", NotServedError, "numbers per row must not depend"),
        ("Poisson", NotServedError, "poisson"),
        ("MixtureSameFamily", NoClosedFormError, "has no mode"),
    ],
)
def test_export_of_unsuitable_class_is_an_error(catalog, case, error, message, tmp_path):
    policy = build_policy(catalog, case)

    with pytest.raises(error, match=message):
        policy.export(tmp_path / "policy.onnx")
