"""Densities of autoregressive actions, against the paper's equations and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from autoregressive_policies import (
    PaperEquations,
    all_actions,
    build_policy,
    compute_logp,
    distribution,
    exact_logp,
    random_observations,
    to_numpy,
)
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

pytestmark = pytest.mark.twins


@pytest.mark.parametrize(
    ("space", "order", "hiddens"),
    [
        (Tuple([Discrete(2), Discrete(3, start=-1), Discrete(2)]), ["action[2]"], [3]),
        (Dict({"x": Discrete(3), "y": Discrete(2)}), ["action['y']"], [5]),
        (MultiDiscrete([2, 3, 2, 2], start=[1, 0, -3, 2]), [], [2, 4]),
        (MultiDiscrete([[2, 3], [2, 2]]), ["action[1, 1]", "action[0, 1]"], [3]),
        (
            Dict(
                {
                    "b": MultiDiscrete([2, 3]),
                    "a": Tuple([MultiBinary(2), Discrete(3)]),
                    "c": Box(np.array([0, -2]), np.array([1, 0]), dtype=np.int32),
                }
            ),
            ["action['b'][1]", "action['a'][0]"],
            [2, 4],
        ),
    ],
    ids=["Tuple", "Dict", "MultiDiscrete", "rank 2", "nested"],
)
def test_logp_of_all_actions_follows_equations(framework, space, order, hiddens):
    policy = build_policy(
        space, framework, autoregressive_order=order, autoregressive_hiddens=hiddens
    )
    actions = all_actions(space)
    obs = np.repeat(random_observations(rows=1), len(actions), axis=0)

    logp = compute_logp(policy, obs, actions)

    # By the paper's equations (Germain et al. 2015, 8 to 14) with the policy's weights.
    expected = exact_logp(policy, space, obs, actions, order, hiddens)
    np.testing.assert_allclose(logp, expected, rtol=1e-4, atol=1e-4)
    assert np.exp(logp).sum() == pytest.approx(1.0, abs=2e-5)  # of all actions


@pytest.mark.parametrize("hiddens", [[4], [3, 5, 2]], ids=str)
def test_logp_of_mixed_parts_follows_equations(framework, hiddens):
    space = Dict(
        {
            "go": Discrete(3, start=-1),
            "aim": Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 5.0], np.float32)),
            "keys": MultiBinary(2),
            "free": Box(-np.inf, np.inf, (1,), np.float32),
        }
    )
    order = ["action['keys']", "action['go']"]  # the others follow
    policy = build_policy(
        space, framework, autoregressive_order=order, autoregressive_hiddens=hiddens
    )
    obs = random_observations(rows=40)

    # Acting computes the parts one by one, scoring all in one pass.
    step = policy.act(obs)
    logp = compute_logp(policy, obs, step.raw_action)

    # By the paper's equations (Germain et al. 2015, 8 to 14) with the policy's weights.
    expected = exact_logp(policy, space, obs, step.raw_action, order, hiddens)
    np.testing.assert_allclose(step.logp, expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(logp, expected, rtol=1e-4, atol=1e-3)


def test_logp_of_twenty_choices_follows_equations(framework):
    space = MultiDiscrete([3] * 20)
    policy = build_policy(space, framework)
    obs = random_observations(rows=5)

    step = policy.act(obs)

    np.testing.assert_allclose(
        step.logp, exact_logp(policy, space, obs, step.raw_action), rtol=1e-4
    )


def gradients_of_logp(policy, obs, raw_actions):
    """Return the gradients of the summed log density by name, in the layout of `get_weights`."""
    variables = policy.model.trainable_variables(as_dict=True)
    if policy.framework == "torch":
        distribution(policy, obs).logp(torch.from_numpy(raw_actions)).sum().backward()
        gradients = [variable.grad for variable in variables.values()]
    else:
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(distribution(policy, obs).logp(tf.constant(raw_actions)))
        # TensorFlow's kernels are transposed.
        gradients = [
            None if gradient is None else np.transpose(gradient)
            for gradient in tape.gradient(total, list(variables.values()))
        ]
    named = zip(variables, gradients, strict=True)
    return {name: to_numpy(gradient) for name, gradient in named if gradient is not None}


def test_gradient_of_logp_matches_finite_differences(framework):
    space = Tuple([Discrete(3), Box(-2, 2, (2,)), MultiBinary(2), Discrete(2)])
    policy = build_policy(space, framework)
    obs = random_observations(rows=8)
    raw_actions = policy.act(obs).raw_action
    weights = policy.model.get_weights()
    rng = np.random.default_rng(3)

    def total_logp(name, weight):
        equations = PaperEquations(weights | {name: weight}, space)
        return equations.logp(obs, raw_actions).sum()

    for name, gradient in gradients_of_logp(policy, obs, raw_actions).items():
        # Central differences of the paper's equations along a random direction.
        direction = rng.normal(size=gradient.shape)
        above = total_logp(name, weights[name] + 1e-5 * direction)
        below = total_logp(name, weights[name] - 1e-5 * direction)
        expected = (above - below) / 2e-5
        assert (gradient * direction).sum() == pytest.approx(expected, rel=2e-3, abs=2e-3), name
