"""Masks of the observation, and masks that depend on earlier parts: never violated, scored right,
errors that help.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

import rlcatalog
from rlcatalog.errors import ActionMaskError

pytestmark = pytest.mark.twins

PAIR = Tuple([Discrete(4), Discrete(4)])
X = Box(-1, 1, (3,), np.float32)


def differ(framework):
    """A function after which each of two or three choices is another value than those before it."""

    def mask(path, earlier):
        allowed = None
        for value in earlier.values():
            here = (
                torch.nn.functional.one_hot(value, 4) == 0
                if framework == "torch"
                else tf.one_hot(value, 4) == 0
            )
            allowed = here if allowed is None else allowed & here
        return allowed

    return mask


@pytest.mark.grid
@pytest.mark.parametrize("action", ["tuple", "dict", "multi_discrete"])
def test_masks_in_the_observation_are_never_violated_and_scored_right(ar, framework, action):
    one = MultiBinary(3)
    space, shown = {
        "tuple": (
            Tuple([Discrete(3), Box(-1, 1, (2,)), Discrete(3)]),
            Tuple([one, Box(0, 1, (0,), np.int8), one]),
        ),
        "dict": (
            Dict({"a": Discrete(3), "b": Tuple([Discrete(3)])}),
            Dict({"a": one, "b": Tuple([one])}),
        ),
        "multi_discrete": (MultiDiscrete([3, 3]), Tuple([one, one])),
    }[action]
    policy = ar.build(space, framework, obs=Dict({"x": X, "action_mask": shown}))
    assert policy.preprocessor.shape == (3,)
    rng, rows = np.random.default_rng(0), 2000
    masks = (rng.random((rows, 2, 3)) < 0.5).astype(np.int8)
    masks[np.arange(rows)[:, None], [[0, 1]], rng.integers(0, 3, (rows, 2))] = 1
    shape = {
        "tuple": lambda a, b: (a, np.zeros((rows, 0), np.int8), b),
        "dict": lambda a, b: {"a": a, "b": (b,)},
        "multi_discrete": lambda a, b: (a, b),
    }[action]
    obs = {"x": ar.observations(rows), "action_mask": shape(masks[:, 0], masks[:, 1])}
    with ar.untraced(policy):
        best = policy.act(obs, explore=False)
    for step in (policy.act(obs), best):
        choices = step.raw_action[:, [0, -1]].astype(int)
        assert (masks[np.arange(rows)[:, None], [[0, 1]], choices] == 1).all()
        assert np.isfinite(step.logp).all()
    batch = {
        "obs": policy.preprocess(obs),
        "raw_action": step.raw_action,
        "mask": policy.action_mask(obs),
        "dist_inputs": step.dist_inputs,
    }
    found = policy.evaluate(batch)
    np.testing.assert_allclose(ar.array(found.logp), step.logp, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(ar.array(found.kl), 0, atol=1e-5)
    assert np.isfinite(ar.array(found.entropy)).all()


def test_masked_densities_are_the_free_ones_renormalised_part_by_part(ar, framework):
    space = MultiDiscrete([3, 2, 3])
    policy, one = ar.build(space, framework), ar.observations(1)
    raw = ar.all_actions(space)
    obs = np.repeat(one, len(raw), axis=0)
    mask = np.array([[1, 0, 1, 1, 1, 0, 1, 1]], bool)
    dist = ar.dist_of(policy, obs, np.repeat(mask, len(raw), axis=0))
    found = np.exp(ar.array(dist.logp(ar.tensor(raw, framework))).astype(np.float64))
    reference = ar.Reference(policy.model.get_weights(), space)
    p = np.ones(len(raw))
    for part, allowed in enumerate(([0, 2], [0, 1], [1, 2])):
        values = range(int(space.nvec[part]))
        versions = [np.where(np.arange(3) == part, v, raw) for v in values]
        given = np.exp([reference.part_logp(obs, version, part) for version in versions])
        given[[v for v in values if v not in allowed]] = 0
        p *= (given / given.sum(axis=0))[raw[:, part], np.arange(len(raw))]
    np.testing.assert_allclose(found, p, atol=1e-5)
    assert found.sum() == pytest.approx(1.0, abs=1e-5)
    alone = ar.dist_of(policy, one, mask)
    likely = p[p > 0]
    assert ar.array(alone.entropy())[0] == pytest.approx(-(likely * np.log(likely)).sum(), abs=1e-4)


@pytest.mark.grid
@pytest.mark.parametrize("parts", [2, 3])
def test_a_function_of_earlier_parts_is_never_violated_and_scored_right(ar, framework, parts):
    """Four values, each drawn once at most: ten thousand draws, and the allowed actions'
    probabilities sum to 1.
    """
    space = MultiDiscrete([4] * parts)
    config = {"autoregressive_mask": differ(framework), "autoregressive_order": [1]}
    policy, rows = ar.build(space, framework, config), 10_000
    obs = ar.observations(rows)
    step = policy.act(obs)
    assert all(len(set(row)) == parts for row in step.raw_action.tolist())
    with ar.untraced(policy):
        best = policy.act(obs[:500], explore=False)
    assert all(len(set(row)) == parts for row in best.raw_action.tolist())
    assert np.isfinite(step.logp).all()
    found = policy.evaluate(
        {"obs": obs, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}
    )
    np.testing.assert_allclose(ar.array(found.logp), step.logp, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(ar.array(found.kl), 0, atol=1e-5)
    raw = ar.all_actions(space)
    allowed = np.array([len(set(row)) == parts for row in raw.tolist()])
    dist = ar.dist_of(policy, np.repeat(obs[:1], len(raw), axis=0))
    p = np.exp(ar.array(dist.logp(ar.tensor(raw, framework))).astype(np.float64))
    assert p[allowed].sum() == pytest.approx(1.0, abs=1e-4)
    assert p[~allowed].max() == 0
    # Stored parameters score alike without the function: the masks are baked in.
    stored = policy.stored_dist(ar.tensor(step.dist_inputs, framework))
    np.testing.assert_allclose(
        ar.array(stored.logp(ar.tensor(step.raw_action, framework))), step.logp, atol=1e-4
    )
    entropy = ar.array(ar.dist_of(policy, obs[:1]).entropy())[0]
    assert entropy == pytest.approx(-(p[allowed] * np.log(p[allowed])).sum(), abs=1e-4)


def test_a_function_is_asked_with_the_same_values_in_drawing_and_in_scoring(ar, framework):
    """By path, raw values, counted from 0: `[B]` for a choice, `[B, n]` for anything else."""
    space = Dict(
        {
            "a": Discrete(3, start=7),
            "b": Box(-1, 1, (2,)),
            "c": MultiBinary(2),
            "d": MultiDiscrete([2, 2]),
        }
    )
    asked = []

    def note(path, earlier):
        asked.append(
            (
                path,
                {
                    name: (
                        tuple(x.shape)[1:],
                        str(x.dtype).split(".")[-1].strip("'>").split("'")[-1],
                    )
                    for name, x in earlier.items()
                },
            )
        )

    policy, obs = (
        ar.build(space, framework, {"autoregressive_mask": note, "autoregressive_order": ["d"]}),
        X.sample(),
    )
    dist = ar.dist_of(policy, obs[None])
    asked.clear()
    drawn = dist.sample()
    in_drawing = list(asked)
    asked.clear()
    dist.logp(policy.stored_dist(dist.params_given(drawn), None).join(drawn))
    paths = ["action['d'][0]", "action['d'][1]", "action['a']", "action['b']", "action['c']"]
    assert [path for path, _ in in_drawing] == paths
    assert list(in_drawing[-1][1]) == paths[:-1]
    assert [shape for shape, _ in in_drawing[-1][1].values()] == [(), (), (), (2,)]
    in_scoring = dict(asked[-5:])
    assert in_scoring == dict(in_drawing)


def test_a_function_may_forbid_bits(ar, framework):
    """Two columns per bit: may be 0, may be 1.

    Here the bits must be those of the number drawn before.
    """
    space = Tuple([Discrete(4), MultiBinary(2)])

    def binary(path, earlier):
        if path == "action[0]":
            return None
        table = np.array([[1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1]], np.int8)
        number = earlier["action[0]"]
        return (
            torch.from_numpy(table)[number]
            if framework == "torch"
            else tf.gather(tf.constant(table), number)
        )

    policy = ar.build(space, framework, {"autoregressive_mask": binary})
    step = policy.act(ar.observations(2000))
    number, bits = step.raw_action[:, 0].astype(int), step.raw_action[:, 1:].astype(int)
    np.testing.assert_array_equal(bits @ [2, 1], number)
    assert set(number) == {0, 1, 2, 3}
    reference = ar.Reference(policy.model.get_weights(), space)
    np.testing.assert_allclose(
        step.logp, reference.part_logp(ar.observations(2000), step.raw_action, 0), atol=1e-4
    )


def test_nothing_need_be_allowed_under_a_value_that_is_never_drawn(ar, framework):
    """The second part must be larger; the first one is never the largest.

    Scoring and sums meet that prefix, too.
    """

    def larger(path, earlier):
        if not earlier:
            return np.array([[1, 1, 1, 0]])
        first, values = earlier["action[0]"], np.arange(4)
        return (
            torch.from_numpy(values) > first[:, None]
            if framework == "torch"
            else values > first[:, None]
        )

    policy = ar.build(PAIR, framework, {"autoregressive_mask": larger})
    obs = ar.observations(500)
    with ar.untraced(policy):
        step = policy.act(obs)
    assert (step.raw_action[:, 1] > step.raw_action[:, 0]).all()
    found = policy.evaluate({"obs": obs, "raw_action": step.raw_action})
    assert found.entropy_kind == "exact"
    raw = ar.all_actions(PAIR)
    logp = ar.array(
        ar.dist_of(policy, np.repeat(obs[:1], 16, axis=0)).logp(ar.tensor(raw, framework))
    )
    p = np.exp(logp.astype(np.float64))
    assert p[raw[:, 1] > raw[:, 0]].sum() == pytest.approx(1.0, abs=1e-4)
    likely = p[p > 0]
    assert ar.array(found.entropy)[0] == pytest.approx(-(likely * np.log(likely)).sum(), abs=1e-4)


@pytest.mark.parametrize(
    "with_observation", [False, True], ids=["alone", "with the observation's mask"]
)
def test_a_row_that_leaves_nothing_is_an_error_naming_row_and_part(ar, framework, with_observation):
    """In the second case each mask leaves something, and both together nothing."""

    def third_row(path, earlier):
        if path == "action[0]":
            return None
        mask = np.ones((4, 4), bool)
        mask[2] = [False, False, False, with_observation]
        return mask

    policy = ar.build(PAIR, framework, {"autoregressive_mask": third_row})
    allowed = np.ones((4, 8), bool)
    allowed[:, 7] = not with_observation
    says = (
        r"autoregressive_mask: row 2 allows no value of action\[1\] together with the action mask"
    )
    with pytest.raises(ActionMaskError, match=says):
        ar.dist_of(policy, ar.observations(4), allowed).sample()
    with pytest.raises(ActionMaskError, match=says):
        policy.act(ar.observations(4), mask=allowed)
    allowed[:] = True
    if with_observation:
        assert policy.act(ar.observations(4), mask=allowed).raw_action[2, 1] == 3


def test_bits_that_two_masks_leave_nothing_of_are_an_error(ar, framework):
    policy = ar.build(
        Tuple([Discrete(2), MultiBinary(2)]),
        framework,
        {
            "autoregressive_mask": lambda path, earlier: (
                np.array([[1, 1, 0, 1]] * 3) if earlier else None
            )
        },
    )
    mask = np.ones((3, 6), bool)
    mask[1, 5] = False  # the second bit must be 0 here, and the function says 1
    with pytest.raises(ActionMaskError, match=r"row 1 allows no value of action\[1\]"):
        ar.dist_of(policy, ar.observations(3), mask).sample()


@pytest.mark.parametrize(
    ("mask", "says"),
    [
        (
            np.ones((3, 5)),
            r"autoregressive_mask\('action\[1\]', …\): expected a mask \[B, 4\], found shape \(3,"
            r" 5\)",
        ),
        (np.ones(4), r"expected a mask \[B, 4\], found shape \(4,\)"),
    ],
)
def test_a_mask_of_another_width_is_refused(ar, framework, mask, says):
    config = {"autoregressive_mask": lambda path, earlier: mask if earlier else None}
    policy = ar.build(PAIR, framework, config)
    with pytest.raises(ActionMaskError, match=says):
        policy.act(ar.observations(3))


def test_a_mask_of_a_part_without_choices_is_refused(ar, framework):
    config = {"autoregressive_mask": lambda path, earlier: np.ones((3, 4)) if earlier else None}
    policy = ar.build(Tuple([Discrete(2), Box(-1, 1, (2,))]), framework, config)
    with pytest.raises(
        ActionMaskError, match=r"values of this part cannot be forbidden; return None for it"
    ):
        policy.act(ar.observations(3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_stays_finite(ar, dtype):
    space = Tuple([Discrete(4), MultiBinary(2), Discrete(4), Box(-1, 1, (2,))])

    def other(path, earlier):
        return (
            torch.nn.functional.one_hot(earlier["action[0]"], 4) == 0
            if path == "action[2]"
            else None
        )

    policy = ar.build(space, "torch", {"autoregressive_mask": other})
    mask = np.ones((400, 12), bool)
    mask[:, [0, 3, 5, 6]] = False
    inputs, _ = policy.model({"obs": torch.from_numpy(ar.observations(400))}, [], None)
    policy.model.conditionals.to(dtype)
    dist = policy.dist_class(
        policy.dist_class.masked(inputs.to(dtype), torch.from_numpy(mask)), policy.model
    )
    assert dist.params_given(dist.sample()).dtype is dtype
    for drawn in (dist.sample(), dist.deterministic_sample()):
        assert (drawn[0] > 0).all()
        assert (drawn[0] != drawn[2]).all()
        assert (drawn[1] == torch.tensor([0, 1])).all()
        logp = dist.logp(drawn)
        assert torch.isfinite(logp).all()
        assert torch.isfinite(dist.params_given(drawn)).all()
    logp.mean().backward()
    assert all(
        torch.isfinite(p.grad).all() for p in policy.model.parameters() if p.grad is not None
    )
    assert torch.isfinite(dist.entropy_estimate()).all()


def test_autocast_serves_acting_and_training(ar):
    policy = ar.build(
        PAIR, "torch", {"autoregressive_mask": differ("torch"), "autoregressive_hiddens": [4, 4]}
    )
    obs = ar.observations(300)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        drawn = ar.dist_of(policy, obs).sample()
        assert (drawn[0] != drawn[1]).all()
        logp = ar.dist_of(policy, obs).logp(drawn)
    assert torch.isfinite(logp).all()
    exact = ar.dist_of(policy, obs).logp(drawn)
    np.testing.assert_allclose(logp.float().detach(), exact.detach(), atol=0.1)
    logp.float().sum().backward()
    assert all(
        torch.isfinite(p.grad).all() for p in policy.model.parameters() if p.grad is not None
    )


def test_masks_and_a_function_under_a_vector_environment(ar, framework):
    """Pick two different cards of those on the table; the environment raises on a
    forbidden pair.
    """

    class Table(gym.Env):
        observation_space = Dict({"x": X, "action_mask": Tuple([MultiBinary(4), MultiBinary(4)])})
        action_space = Tuple([Discrete(4), Discrete(4)])

        def _look(self):
            lying = np.zeros(4, np.int8)
            lying[self.np_random.choice(4, 2 + self.np_random.integers(3), replace=False)] = 1
            self.lying = lying
            return {
                "x": self.np_random.uniform(-1, 1, 3).astype(np.float32),
                "action_mask": (lying, lying),
            }

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self._look(), {}

        def step(self, action):
            assert action[0] != action[1]
            assert self.lying[action[0]]
            assert self.lying[action[1]]
            return self._look(), 1.0, False, False, {}

    envs = gym.vector.SyncVectorEnv([Table] * 16)
    policy = rlcatalog.build(
        env=envs, config={**ar.SMALL, "autoregressive_mask": differ(framework)}, framework=framework
    )
    obs, _ = envs.reset(seed=0)
    for _ in range(40):
        obs, *_ = envs.step(policy.act(obs).action)
    envs.close()
