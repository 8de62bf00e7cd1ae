"""PPO's penalty on the divergence from the policy that collected."""

import importlib

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from scipy.special import log_softmax

import rlcatalog
from rlcatalog.errors import NoClosedFormError
from rlcatalog_ppo import PPO
from rlcatalog_torch import Categorical

pytestmark = pytest.mark.twins

SMALL = {
    "num_envs": 4,
    "rollout_length": 32,
    "minibatch_size": 64,
    "num_epochs": 4,
    "seed": 0,
    "lr": 3e-3,
    "model": {"fcnet_hiddens": [16]},
}
both = pytest.mark.parametrize("framework", ["torch", "tf"])


def array(x):
    return np.asarray(x.detach() if hasattr(x, "detach") else x)


def moved(algo):
    """Take three iterations; return the last rollout's batch, the one the policy has moved away
    from.
    """
    for _ in range(2):
        algo.train()
    config = algo.config
    batch = algo._collector.collect(32).batch(config.gamma, config.lambda_, dist_inputs=True)
    algo._learner.update(batch, config.lr)
    return batch


@both
def test_the_divergence_is_that_of_the_stored_from_the_present_distribution(framework):
    algo = PPO("CartPole-v1", {**SMALL, "framework": framework, "kl_coeff": 1e-9, "kl_target": 0.0})
    batch = algo._collector.collect(32).batch(0.9, 0.9, dist_inputs=True)
    np.testing.assert_allclose(array(algo.policy.evaluate(batch).kl), 0.0, atol=1e-6)
    batch = moved(algo)
    found = algo.policy.evaluate(batch)
    old, new = (
        log_softmax(batch["dist_inputs"], axis=1),
        log_softmax(array(found.dist.inputs), axis=1),
    )
    expected = (np.exp(old) * (old - new)).sum(axis=1)
    assert expected.max() > 1e-4
    np.testing.assert_allclose(array(found.kl), expected, atol=1e-5)


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=pytest.mark.attack)])
def test_heavy_penalty_keeps_the_policy_near(framework):
    divergence = {}
    for coeff in (1e-6, 20.0):
        algo = PPO(
            "CartPole-v1", {**SMALL, "framework": framework, "kl_coeff": coeff, "kl_target": 0.0}
        )
        algo._learner._adapted = lambda means: {}
        divergence[coeff] = float(array(algo.policy.evaluate(moved(algo)).kl).mean())
    assert divergence[20.0] < 0.3 * divergence[1e-6], divergence


@pytest.mark.parametrize(("target", "change"), [(1e-7, 2.0), (10.0, 0.5)])
def test_weight_follows_the_divergence(target, change):
    algo = PPO("CartPole-v1", {**SMALL, "kl_coeff": 0.2, "kl_target": target})
    weights = [algo.train()["info"]["learner"]["kl_coeff"] for _ in range(3)]
    assert weights == [0.2, 0.2 * change, 0.2 * change**2]


def test_without_a_weight_nothing_is_computed():
    algo = PPO("CartPole-v1", SMALL)
    assert "kl_coeff" not in algo.train()["info"]["learner"]
    assert algo.policy.evaluate(algo._collector.collect(4).batch(0.9, 0.9)).kl is None


@both
def test_parts_that_depend_on_one_another_are_compared_under_the_stored_parts(framework):
    """The mean over drawn actions is the divergence of the joint distributions; under fresh parts
    it would not be.
    """
    space = MultiDiscrete([3, 4])
    config = {"use_autoregressive": True, "fcnet_hiddens": [8]}
    old, new = (rlcatalog.build(Box(-1, 1, (2,)), space, config, framework) for _ in range(2))
    rng = np.random.default_rng(0)
    weights = old.model.get_weights()
    for policy in (old, new):  # far from uniform, and far from one another
        policy.model.set_weights(
            {name: w + rng.normal(0, 0.7, w.shape) for name, w in weights.items()}
        )
    obs = np.repeat(np.array([[0.3, -0.2]], np.float32), 4000, axis=0)
    step = old.act(obs)
    batch = {"obs": obs, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}
    per_row = array(new.evaluate(batch).kl)
    every = np.array(list(np.ndindex(3, 4)), np.int64)
    logp = [array(p.evaluate({"obs": obs[:12], "raw_action": every}).logp) for p in (old, new)]
    exact = float((np.exp(logp[0]) * (logp[0] - logp[1])).sum())
    error = per_row.std() / np.sqrt(len(per_row))
    assert exact > 0.1
    assert abs(per_row.mean() - exact) < 4 * error
    # Rebuilt from the new model's own inputs, both would be the new distribution: a divergence of
    # nothing.
    same = new.evaluate(
        {**batch, "dist_inputs": array(new.evaluate(batch).dist.params_given(step.raw_action))}
    )
    assert abs(array(same.kl).mean() - exact) > 10 * error


def test_distribution_without_a_divergence_is_refused_by_name():
    class NoKl(Categorical):
        def kl(self, other):
            raise NoClosedFormError("NoKl has no closed form for its kl")

    algo = PPO("CartPole-v1", {**SMALL, "kl_coeff": 0.1, "model": {"custom_action_dist": NoKl}})
    with pytest.raises(NoClosedFormError, match="NoKl"):
        algo.train()
    assert isinstance(algo.policy.action_space, Discrete)


@both
def test_a_distribution_whose_constructor_needs_the_model_is_given_it(framework):
    """RLlib's own form, `__init__(self, inputs, model)`; one that reads the model finds today's."""
    base = importlib.import_module(f"rlcatalog_{framework}").Categorical

    class Tempered(base):
        def __init__(self, inputs, model):
            assert model.num_outputs == 2
            super().__init__(inputs / 2.0, model)

    model = {"custom_action_dist": Tempered, **SMALL["model"]}
    algo = PPO("CartPole-v1", {**SMALL, "framework": framework, "kl_coeff": 0.1, "model": model})
    assert algo.train()["info"]["learner"]["kl_coeff"] > 0
    batch = algo._collector.collect(8).batch(0.9, 0.9, dist_inputs=True)
    assert array(algo.policy.evaluate(batch).kl).shape == (32,)
