"""Densities against the paper's equations in NumPy, exhaustive sums, finite differences, and what
depends on what.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

pytestmark = pytest.mark.twins

MIXED = Dict(
    {
        "go": Discrete(3, start=-1),
        "aim": Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 5.0], np.float32)),
        "keys": MultiBinary(2),
        "more": Tuple([MultiDiscrete([2, 3], start=[1, 4]), Box(3, 5, (2,), np.int8)]),
        "free": Box(-np.inf, np.inf, (1,), np.float32),
    }
)


def random_space(rng):
    """A space of two to six choices in one of many forms, of at most 250 actions."""

    def parts(count):
        return [int(n) for n in rng.integers(2, 4, count)]

    def choice(n):
        return Discrete(n, start=int(rng.integers(-2, 3)))

    form = rng.integers(5)
    sizes = parts(rng.integers(2, 6))
    if form == 0:
        return Tuple([choice(n) for n in sizes])
    if form == 1:
        return Dict({f"part {i}": choice(n) for i, n in enumerate(sizes)})
    if form == 2:
        return MultiDiscrete(sizes, start=rng.integers(-3, 3, len(sizes)))
    if form == 3:
        return Tuple(
            [
                choice(2),
                Dict({"b": MultiDiscrete(parts(2)), "a": Tuple([MultiBinary(2), choice(3)])}),
            ]
        )
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
def test_densities_of_random_spaces_sum_to_one_and_are_the_products_of_their_conditionals(
    ar, framework, spaces
):
    rng = np.random.default_rng(7)
    for number in range(spaces):
        space = random_space(rng)
        paths = [path for path, *_ in ar.leaves(space)]
        order = list(rng.permutation(paths)[: rng.integers(len(paths) + 1)])
        hiddens = [[3], [5], [2, 4]][number % 3]
        config = {"autoregressive_order": list(map(str, order)), "autoregressive_hiddens": hiddens}
        policy = ar.build(space, framework, config, seed=number)
        raw = ar.all_actions(space)
        obs = np.repeat(ar.observations(1, seed=number), len(raw), axis=0)
        logp = ar.array(ar.dist_of(policy, obs).logp(ar.tensor(raw, framework)))
        assert np.exp(logp.astype(np.float64)).sum() == pytest.approx(1.0, abs=2e-5), space
        reference = ar.Reference(policy.model.get_weights(), space, order, hiddens)
        np.testing.assert_allclose(
            logp, reference.logp(obs, raw), rtol=1e-4, atol=1e-4, err_msg=str(space)
        )
        # In another order it is another distribution: the order is not ignored.
    backwards = ar.Reference(policy.model.get_weights(), space, paths[::-1], hiddens)
    assert np.abs(logp - backwards.logp(obs, raw)).max() > 0.05


@pytest.mark.grid
@pytest.mark.parametrize("hiddens", [[4], [3, 5, 2]])
def test_each_conditional_of_mixed_parts_is_the_papers(ar, framework, hiddens):
    """Parameters part by part, in one pass and in the passes of drawing."""
    config = {
        "autoregressive_hiddens": hiddens,
        "autoregressive_order": ["keys", "action['more'][1]"],
    }
    policy = ar.build(MIXED, framework, config, scale=0.5)
    obs = ar.observations(40)
    with ar.untraced(policy):
        step = policy.act(obs)
    dist = ar.dist_of(policy, obs)
    raw = ar.tensor(step.raw_action, framework)
    order = ["action['keys']", "action['more'][1][0]", "action['more'][1][1]"]
    reference = ar.Reference(policy.model.get_weights(), MIXED, order, hiddens)
    found = ar.array(dist.params_given(raw))
    assert found.shape == (40, reference.n_params)
    for rank in range(len(reference.parts)):
        part = reference.parts[reference.order[rank]]
        expected = reference.params(obs.astype(np.float64), step.raw_action, rank)
        np.testing.assert_allclose(
            found[:, part.params], expected, rtol=1e-4, atol=1e-4, err_msg=part.path
        )
        np.testing.assert_allclose(
            step.dist_inputs[:, part.params], expected, rtol=1e-4, atol=1e-4, err_msg=part.path
        )
    expected = reference.logp(obs, step.raw_action)
    np.testing.assert_allclose(step.logp, expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(ar.array(dist.logp(raw)), expected, rtol=1e-4, atol=1e-3)


def test_the_gradient_of_logp_is_that_of_finite_differences(ar, framework):
    """Central differences of the NumPy equations in double precision, along a random direction of
    every weight.
    """
    space = Tuple([Discrete(3), Box(-2, 2, (2,)), MultiBinary(2), Discrete(2)])
    config = {"autoregressive_hiddens": [3, 2]}
    policy, obs = ar.build(space, framework, config), ar.observations(8)
    raw, rng, eps = policy.act(obs).raw_action, np.random.default_rng(3), 1e-5
    variables = policy.model.trainable_variables(as_dict=True)
    weighting = rng.normal(size=8)
    if framework == "torch":
        (
            ar.dist_of(policy, obs).logp(torch.from_numpy(raw)) * torch.from_numpy(weighting)
        ).sum().backward()
        gradients = {name: p.grad for name, p in variables.items()}
    else:
        with tf.GradientTape() as tape:
            logp = ar.dist_of(policy, obs).logp(tf.constant(raw))
            total = tf.reduce_sum(logp * weighting.astype(np.float32))
        gradients = dict(
            zip(variables, tape.gradient(total, list(variables.values())), strict=True)
        )
    weights = {name: np.asarray(w, np.float64) for name, w in policy.model.get_weights().items()}
    canonical = _canonical(policy, framework, gradients)
    for name, weight in weights.items():
        if name.startswith("outputs.value"):
            continue
        along = rng.normal(size=weight.shape)
        up, down = (
            ar.Reference({**weights, name: weight + sign * eps * along}, space, (), [3, 2]).logp(
                obs, raw
            )
            @ weighting
            for sign in (1, -1)
        )
        expected = (up - down) / (2 * eps)
        assert np.abs(expected) > 1e-3, name
        assert (canonical[name] * along).sum() == pytest.approx(expected, rel=2e-3, abs=2e-3), name


def _canonical(policy, framework, gradients):
    """Gradients in the layout of `get_weights`: TensorFlow's kernels are transposed."""
    found = {name: None if g is None else np.asarray(g) for name, g in gradients.items()}
    weights = policy.model.get_weights()
    return {
        name: np.zeros_like(weights[name])
        if g is None
        else g
        if framework == "torch" or g.ndim == 1
        else g.T
        for name, g in found.items()
    }


@pytest.mark.parametrize("order", [[], [3, 1]])
def test_a_part_depends_on_the_parts_before_it_and_on_no_others(ar, framework, order):
    """The Jacobian of all parameters with respect to all raw values; discrete values
    are flipped.
    """
    space = Tuple([Box(-2, 2, (2,)), Discrete(3), Box(-1, 1, (1,)), MultiDiscrete([2, 3])])
    paths = [path for path, *_ in ar.leaves(space)]
    assert paths == ["action[0]", "action[1]", "action[2]", "action[3][0]", "action[3][1]"]
    ranks = {paths.index(path): rank for rank, path in enumerate(_drawn(paths, order))}
    policy, obs = ar.build(space, framework, {"autoregressive_order": order}), ar.observations(1)
    raw = np.array([[0.3, -0.7, 1, 0.2, 0, 2]], np.float32)
    columns = [[0, 1], [2], [3], [4], [5]]
    params = [slice(0, 4), slice(4, 7), slice(7, 9), slice(9, 11), slice(11, 14)]
    dist = ar.dist_of(policy, obs)
    given = ar.tensor(raw, framework)
    if framework == "torch":
        jacobian = torch.autograd.functional.jacobian(lambda a: dist.params_given(a)[0], given)[
            :, 0
        ].numpy()
    else:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(given)
            found = dist.params_given(given)
        jacobian = tape.jacobian(found, given, experimental_use_pfor=False).numpy()[0, :, 0]
    for earlier in (1, 3, 4):  # by how much flipping a choice moves every parameter
        other = raw.copy()
        other[0, columns[earlier][0]] = 1 - min(raw[0, columns[earlier][0]], 1)
        moved = ar.array(dist.params_given(ar.tensor(other, framework))) - ar.array(
            dist.params_given(given)
        )
        jacobian[:, columns[earlier][0]] = moved[0]
    for one in range(5):
        for other in range(5):
            block = jacobian[params[one]][:, columns[other]]
            if ranks[other] < ranks[one]:
                assert np.abs(block).max() > 1e-3, (one, other)
            else:
                assert not block.any(), (one, other)


def _drawn(paths, order):
    named = [paths[i] for i in order]
    return named + [path for path in paths if path not in named]


def test_weights_copied_over_give_the_same_distribution(ar):
    policies = {
        name: ar.build(MIXED, name, {"autoregressive_hiddens": [4, 3]}) for name in ("torch", "tf")
    }
    weights = policies["torch"].model.get_weights()
    assert list(weights) == list(policies["tf"].model.get_weights())
    policies["tf"].model.set_weights(weights)
    obs = ar.observations(20)
    raw = policies["torch"].act(obs).raw_action
    best = [policy.act(obs, explore=False) for policy in policies.values()]
    np.testing.assert_allclose(best[0].raw_action, best[1].raw_action, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(best[0].logp, best[1].logp, rtol=1e-4, atol=1e-4)
    dists = [ar.dist_of(policy, obs) for policy in policies.values()]
    for dist, name in zip(dists, policies, strict=True):
        dist.found = (
            ar.array(dist.params_given(ar.tensor(raw, name))),
            ar.array(dist.logp(ar.tensor(raw, name))),
        )
    for ours, theirs in zip(dists[0].found, dists[1].found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert best[0].dist_inputs.dtype == best[1].dist_inputs.dtype == np.float32
    assert best[0].raw_action.dtype == best[1].raw_action.dtype
