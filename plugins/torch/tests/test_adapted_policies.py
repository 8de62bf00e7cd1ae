"""Policies with a class of `torch.distributions`: built, acting, learning, saved, frozen and
exported.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from action_kinds import Anything
from torch import distributions as td
from torch_dists import CASES, FREE, NO_ENTROPY, register

import rlcatalog
from rlcatalog.errors import NoClosedFormError, NotServedError, SavedPolicyError
from rlcatalog_ppo import PPO


@pytest.fixture(autouse=True)
def validated():
    """Let PyTorch check the arguments of distributions, as it does by default: TorchRL and skrl,
    which other tests import, switch the checks off for the whole process.
    """
    td.Distribution.set_default_validate_args(True)


@pytest.mark.parametrize("case", CASES)
def test_one_is_built_acts_is_evaluated_and_learns(catalog, case):
    space, config = CASES[case][1], register(catalog, case)
    policy = rlcatalog.build(env=Anything(space), config=config, catalog=catalog)
    observations = np.array([[0.5, -0.5], [-1.0, 1.0]], np.float32)
    step = policy.act(observations)
    assert all(space.contains(action) for action in list(step.action))
    scores = policy.evaluate(
        {"obs": policy.preprocess(observations), "raw_action": step.raw_action}
    )
    np.testing.assert_allclose(scores.logp.detach(), step.logp, rtol=1e-4, atol=1e-4)
    assert scores.entropy_kind == ("estimate" if case in NO_ENTROPY else "exact")

    training = {"num_epochs": 1, "rollout_length": 8, "num_envs": 2, "minibatch_size": 16}
    coefficients = {"kl_coeff": 0.0, "entropy_coeff": 0.01, "seed": 0}
    algo = PPO(
        env=lambda _=None: Anything(space), config={"model": config, **training, **coefficients}
    )
    before = algo.policy.model.get_weights()
    algo.train()
    after = algo.policy.model.get_weights()
    algo.stop()
    assert all(
        (before[name] != after[name]).any() and np.isfinite(after[name]).all() for name in before
    )


def test_a_policy_with_one_is_saved_copied_and_pickled(catalog, tmp_path):
    policy = rlcatalog.build(
        env=Anything(FREE), config=register(catalog, "StudentT"), catalog=catalog
    )
    observations = np.zeros((1, 2), np.float32)
    step = policy.act(observations)
    policy.save(tmp_path / "saved")
    loaded = rlcatalog.load(tmp_path / "saved", catalog=catalog)
    batch = {"obs": policy.preprocess(observations), "raw_action": step.raw_action}
    for other in (loaded, copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        np.testing.assert_allclose(other.evaluate(batch).logp.detach(), step.logp, rtol=1e-5)


def test_a_policy_with_a_function_of_no_module_cannot_be_pickled(catalog):
    catalog.register_action_dist("own", lambda x: td.Normal(x, 1.0), num_inputs=2)
    policy = rlcatalog.build(
        env=Anything(FREE), config={"custom_action_dist": "own"}, catalog=catalog
    )
    with pytest.raises(SavedPolicyError, match="lambda cannot be imported from"):
        pickle.dumps(policy)


#: Case → what exporting it raises, and its text; None where it is exported.
EXPORTED = {
    **dict.fromkeys(
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
        ]
    ),
    "StudentT": (NotServedError, "data-dependent"),
    "VonMises": (NotServedError, "the number of random numbers per row must not depend"),
    "Poisson": (NotServedError, "poisson"),
    "MixtureSameFamily": (NoClosedFormError, "has no mode"),
}
OBSERVATIONS = np.array([[0.5, -0.5], [-1.0, 1.0]], np.float32)


@pytest.mark.parametrize(
    "case", ["Laplace", "StudentT", "Beta", "Categorical", "Poisson", "MixtureSameFamily"]
)
def test_one_acts_frozen(catalog, case):
    policy = rlcatalog.build(
        env=Anything(CASES[case][1]), config=register(catalog, case), catalog=catalog
    )
    drawn = policy.freeze().act(OBSERVATIONS)
    batch = {"obs": policy.preprocess(OBSERVATIONS), "raw_action": drawn.raw_action}
    np.testing.assert_allclose(
        policy.evaluate(batch).logp.detach(), drawn.logp, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.attack if error is None or case == "Beta" else ())
        for case, error in EXPORTED.items()
    ],
)
def test_one_is_exported_or_refused_with_a_reason(catalog, case, tmp_path):
    policy = rlcatalog.build(
        env=Anything(CASES[case][1]), config=register(catalog, case), catalog=catalog
    )
    if EXPORTED[case] is not None:
        error, text = EXPORTED[case]
        with pytest.raises(error, match=text):
            policy.export(tmp_path / "policy.onnx")
        return
    policy.export(tmp_path / "policy.onnx")
    actor = rlcatalog.Actor(tmp_path / "policy.onnx")
    expected = policy.act(OBSERVATIONS, explore=False).action
    np.testing.assert_allclose(
        actor.act(OBSERVATIONS, explore=False).action, expected, rtol=1e-4, atol=1e-5
    )
