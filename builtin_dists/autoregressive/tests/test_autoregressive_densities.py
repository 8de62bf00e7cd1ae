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
    compute_params,
    distribution,
    exact_logp,
    paths_of,
    random_observations,
    to_numpy,
    to_tensor,
    without_tracing,
)
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

pytestmark = pytest.mark.twins

#: Eight parts of all kinds.
MIXED_SPACE = Dict(
    {
        "go": Discrete(3, start=-1),
        "aim": Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 5.0], np.float32)),
        "keys": MultiBinary(2),
        "more": Tuple([MultiDiscrete([2, 3], start=[1, 4]), Box(3, 5, (2,), np.int8)]),
        "free": Box(-np.inf, np.inf, (1,), np.float32),
    }
)


# --- choices and bits -----------------------------------------------------------------------------


def random_space(rng):
    """Return a space of two to six choices in one of many forms, of at most 250 actions."""

    def random_sizes(count):
        return [int(n) for n in rng.integers(2, 4, count)]

    def choice(n):
        return Discrete(n, start=int(rng.integers(-2, 3)))

    form = rng.integers(5)
    sizes = random_sizes(rng.integers(2, 6))
    if form == 0:
        return Tuple([choice(n) for n in sizes])
    if form == 1:
        return Dict({f"part {i}": choice(n) for i, n in enumerate(sizes)})
    if form == 2:
        return MultiDiscrete(sizes, start=rng.integers(-3, 3, len(sizes)))
    if form == 3:
        inner = Tuple([MultiBinary(2), choice(3)])
        return Tuple([choice(2), Dict({"b": MultiDiscrete(random_sizes(2)), "a": inner})])
    return Dict(
        {
            "x": Box(np.array([0, -2]), np.array([1, 0]), dtype=np.int32),
            "y": MultiDiscrete([[2, 3], [2, 2]]),
        }
    )


@pytest.mark.parametrize(
    ("framework", "spaces"),
    [("torch", 60), ("tf", 40), pytest.param("torch", 200, marks=pytest.mark.attack)],
)
def test_logp_of_all_actions_follows_equations_and_sums_to_one(framework, spaces):
    rng = np.random.default_rng(7)
    for number in range(spaces):
        space = random_space(rng)
        paths = paths_of(space)
        # Some parts, none or all are drawn first.
        order = rng.permutation(paths)[: rng.integers(len(paths) + 1)].tolist()
        hiddens = [[3], [5], [2, 4]][number % 3]
        policy = build_policy(
            space,
            framework,
            seed=number,
            autoregressive_order=order,
            autoregressive_hiddens=hiddens,
        )
        actions = all_actions(space)
        obs = np.repeat(random_observations(rows=1, seed=number), len(actions), axis=0)

        logp = compute_logp(policy, obs, actions)

        expected = exact_logp(policy, space, obs, actions, order, hiddens)
        assert np.exp(logp).sum() == pytest.approx(1.0, abs=2e-5), space
        np.testing.assert_allclose(logp, expected, rtol=1e-4, atol=1e-4, err_msg=str(space))


def test_logp_depends_on_the_order(framework):
    space = MultiDiscrete([2, 3, 3])
    policy = build_policy(space, framework, autoregressive_order=["action[2]"])
    actions = all_actions(space)
    obs = np.repeat(random_observations(rows=1), len(actions), axis=0)

    logp = compute_logp(policy, obs, actions)

    in_another_order = exact_logp(policy, space, obs, actions, order=["action[1]"])
    assert np.abs(logp - in_another_order).max() > 0.05


# --- parts of all kinds ---------------------------------------------------------------------------


def build_mixed_policy(framework, hiddens):
    """Build a policy over MIXED_SPACE, and the equations that describe it."""
    policy = build_policy(
        MIXED_SPACE,
        framework,
        scale=0.5,
        autoregressive_hiddens=hiddens,
        autoregressive_order=["keys", "action['more'][1]"],
    )
    # The second entry is a Box of two integers, which are two parts.
    order = ["action['keys']", "action['more'][1][0]", "action['more'][1][1]"]
    return policy, PaperEquations(policy.model.get_weights(), MIXED_SPACE, order, hiddens)


@pytest.mark.grid
@pytest.mark.parametrize("hiddens", [[4], [3, 5, 2]], ids=str)
def test_parameters_of_each_part_follow_equations(framework, hiddens):
    policy, equations = build_mixed_policy(framework, hiddens)
    obs = random_observations(rows=40)
    with without_tracing(policy):
        step = policy.act(obs)

    in_one_pass = compute_params(policy, obs, step.raw_action)

    assert in_one_pass.shape == (40, equations.n_params)
    for rank in range(len(equations.parts)):
        expected = equations.params(obs.astype(np.float64), step.raw_action, rank)
        columns = equations.part(rank).params
        near = {"rtol": 1e-4, "atol": 1e-4, "err_msg": equations.part(rank).path}
        np.testing.assert_allclose(in_one_pass[:, columns], expected, **near)
        # Acting computes them part by part.
        np.testing.assert_allclose(step.dist_inputs[:, columns], expected, **near)


@pytest.mark.grid
@pytest.mark.parametrize("hiddens", [[4], [3, 5, 2]], ids=str)
def test_logp_of_mixed_parts_follows_equations(framework, hiddens):
    policy, equations = build_mixed_policy(framework, hiddens)
    obs = random_observations(rows=40)
    with without_tracing(policy):
        step = policy.act(obs)

    logp = compute_logp(policy, obs, step.raw_action)

    expected = equations.logp(obs, step.raw_action)
    np.testing.assert_allclose(logp, expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(step.logp, expected, rtol=1e-4, atol=1e-3)


# --- gradients ------------------------------------------------------------------------------------


def gradients_of_logp(policy, obs, raw_actions, row_weights):
    """Return the gradients of weighted log densities by name, in the layout of `get_weights`."""
    variables = policy.model.trainable_variables(as_dict=True)
    if policy.framework == "torch":
        logp = distribution(policy, obs).logp(torch.from_numpy(raw_actions))
        (logp * torch.from_numpy(row_weights)).sum().backward()
        return {name: to_numpy(variable.grad) for name, variable in variables.items()}
    with tf.GradientTape() as tape:
        logp = distribution(policy, obs).logp(tf.constant(raw_actions))
        total = tf.reduce_sum(logp * row_weights.astype(np.float32))
    gradients = dict(zip(variables, tape.gradient(total, list(variables.values())), strict=True))
    # TensorFlow's kernels are transposed.
    return {
        name: None if gradient is None else np.transpose(gradient)
        for name, gradient in gradients.items()
    }


def weights_of_policy_without_value(policy):
    weights = policy.model.get_weights().items()
    return {
        name: w.astype(np.float64) for name, w in weights if not name.startswith("outputs.value")
    }


def test_gradient_of_logp_matches_finite_differences(framework):
    space = Tuple([Discrete(3), Box(-2, 2, (2,)), MultiBinary(2), Discrete(2)])
    policy = build_policy(space, framework, autoregressive_hiddens=[3, 2])
    obs = random_observations(rows=8)
    raw_actions = policy.act(obs).raw_action
    rng = np.random.default_rng(3)
    row_weights = rng.normal(size=8)

    gradients = gradients_of_logp(policy, obs, raw_actions, row_weights)

    # Central differences of the equations, along a random direction of each weight.
    weights = weights_of_policy_without_value(policy)
    for name, weight in weights.items():
        direction = rng.normal(size=weight.shape)
        totals = []
        for step in (1e-5, -1e-5):
            moved = {**weights, name: weight + step * direction}
            equations = PaperEquations(moved, space, hiddens=[3, 2])
            totals.append(equations.logp(obs, raw_actions) @ row_weights)
        expected = (totals[0] - totals[1]) / 2e-5
        assert np.abs(expected) > 1e-3, name
        slope = (gradients[name] * direction).sum()
        assert slope == pytest.approx(expected, rel=2e-3, abs=2e-3), name


# --- what depends on what -------------------------------------------------------------------------


def changes_of_params(policy, obs, raw_actions, columns, is_number):
    """Return by how much the parameters change with some raw values, `[params]`.

    For numbers it is the largest derivative; choices are set to another value.
    """
    if is_number:
        given = to_tensor(raw_actions, policy.framework)
        dist = distribution(policy, obs)
        if policy.framework == "torch":
            jacobian = torch.autograd.functional.jacobian(dist.params_given, given)[0, :, 0]
        else:
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(given)
                params = dist.params_given(given)
            jacobian = tape.jacobian(params, given, experimental_use_pfor=False)[0, :, 0]
        return np.abs(to_numpy(jacobian)[:, columns]).max(axis=1)
    flipped = raw_actions.copy()
    flipped[0, columns] = np.where(raw_actions[0, columns] == 0, 1, 0)
    before = compute_params(policy, obs, raw_actions)[0]
    return np.abs(compute_params(policy, obs, flipped)[0] - before)


@pytest.mark.parametrize(
    ("order", "drawn"),
    [([], [0, 1, 2, 3, 4]), ([3, 1], [3, 1, 0, 2, 4])],
    ids=["space's order", "parts 3 and 1 first"],
)
def test_parts_depend_on_earlier_parts_only(framework, order, drawn):
    space = Tuple([Box(-2, 2, (2,)), Discrete(3), Box(-1, 1, (1,)), MultiDiscrete([2, 3])])
    # The five parts' raw values, and their parameters: means and deviations, or logits.
    raw_columns = [[0, 1], [2], [3], [4], [5]]
    params = [slice(0, 4), slice(4, 7), slice(7, 9), slice(9, 11), slice(11, 14)]
    policy = build_policy(space, framework, autoregressive_order=order)
    raw_actions = np.array([[0.3, -0.7, 1, 0.2, 0, 2]], np.float32)

    for cause in range(5):
        changes = changes_of_params(
            policy,
            random_observations(rows=1),
            raw_actions,
            raw_columns[cause],
            is_number=cause in (0, 2),
        )
        for part in range(5):
            is_earlier = drawn.index(cause) < drawn.index(part)
            if is_earlier:
                assert changes[params[part]].max() > 1e-3, (cause, part)
            else:
                assert not changes[params[part]].any(), (cause, part)


# --- one framework against the other --------------------------------------------------------------


@pytest.fixture
def policy_pair():
    """Policies over MIXED_SPACE in PyTorch and TensorFlow, with the same weights."""
    torch_policy = build_policy(MIXED_SPACE, "torch", autoregressive_hiddens=[4, 3])
    tf_policy = build_policy(MIXED_SPACE, "tf", autoregressive_hiddens=[4, 3])
    tf_policy.model.set_weights(torch_policy.model.get_weights())
    return torch_policy, tf_policy


def test_weights_have_the_same_names_in_both_frameworks(policy_pair):
    torch_policy, tf_policy = policy_pair

    assert list(torch_policy.model.get_weights()) == list(tf_policy.model.get_weights())


def test_policies_with_same_weights_act_alike(policy_pair):
    torch_policy, tf_policy = policy_pair
    obs = random_observations(rows=20)

    by_torch = torch_policy.act(obs, explore=False)
    by_tf = tf_policy.act(obs, explore=False)

    np.testing.assert_allclose(by_torch.raw_action, by_tf.raw_action, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_torch.logp, by_tf.logp, rtol=1e-4, atol=1e-4)
    assert by_torch.dist_inputs.dtype == by_tf.dist_inputs.dtype == np.float32
    assert by_torch.raw_action.dtype == by_tf.raw_action.dtype


@pytest.mark.parametrize("compute", [compute_params, compute_logp])
def test_policies_with_same_weights_score_alike(policy_pair, compute):
    torch_policy, tf_policy = policy_pair
    obs = random_observations(rows=20)
    raw_actions = torch_policy.act(obs).raw_action

    by_torch = compute(torch_policy, obs, raw_actions)
    by_tf = compute(tf_policy, obs, raw_actions)

    np.testing.assert_allclose(by_torch, by_tf, rtol=1e-4, atol=1e-5)
