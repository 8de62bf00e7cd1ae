"""Masks of the observation, and `autoregressive_mask`, which depends on earlier parts."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from autoregressive_policies import (
    SMALL_MODEL,
    all_actions,
    build_policy,
    compute_logp,
    distribution,
    exact_probabilities,
    random_observations,
    to_numpy,
)
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

import rlcatalog
from rlcatalog.errors import ActionMaskError

pytestmark = pytest.mark.twins


def is_not(value, framework):
    """Return a mask `[B, 4]` that allows all values but one in each row."""
    if framework == "torch":
        return torch.nn.functional.one_hot(value, 4) == 0
    return tf.one_hot(value, 4) == 0


def make_different(framework):
    """Return an `autoregressive_mask` after which all parts, of four values, have different
    values.
    """

    def mask(path, earlier):
        allowed = None
        for value in earlier.values():
            differs = is_not(value, framework)
            allowed = differs if allowed is None else allowed & differs
        return allowed

    return mask


def entropy_of(probabilities):
    positive = probabilities[probabilities > 0]
    return -(positive * np.log(positive)).sum()


def probabilities_of_all(policy, space, obs):
    """Return all raw actions, and their probabilities for one observation."""
    actions = all_actions(space)
    logp = compute_logp(policy, np.repeat(obs, len(actions), axis=0), actions)
    return actions, np.exp(logp)


# --- masks in the observation ---------------------------------------------------------------------


def test_masked_probabilities_are_normalised_part_by_part(framework):
    space = MultiDiscrete([3, 3])
    policy = build_policy(space, framework)
    obs = random_observations(rows=1)
    # The first choice may be anything, and the second must not be 2.
    mask = np.array([[True, True, True, True, True, False]])
    allowed_actions = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]])

    logp = compute_logp(
        policy, np.repeat(obs, 6, axis=0), allowed_actions, np.repeat(mask, 6, axis=0)
    )

    _, unmasked = exact_probabilities(policy, space, obs)
    table = unmasked.reshape(3, 3)  # rows are values of the first choice
    first = table.sum(axis=1, keepdims=True)
    # After each value of the first choice, the second is 0 or 1.
    second = table[:, :2] / table[:, :2].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(logp), (first * second).ravel(), atol=1e-5)


def test_masked_entropy_is_sum_over_allowed_actions(framework):
    space = MultiDiscrete([3, 2])
    policy = build_policy(space, framework)
    obs = random_observations(rows=1)
    # The first choice must not be 1, and the second may be anything.
    mask = np.array([[True, False, True, True, True]])

    entropy = distribution(policy, obs, mask).entropy()

    _, unmasked = exact_probabilities(policy, space, obs)
    table = unmasked.reshape(3, 2)  # rows are values of the first choice
    allowed = table[[0, 2]]
    expected = entropy_of(allowed / allowed.sum())
    np.testing.assert_allclose(to_numpy(entropy), [expected], atol=1e-4)


def test_evaluate_with_mask_scores_as_act_does(framework):
    policy = build_policy(MultiDiscrete([3, 2]), framework)
    obs = random_observations(rows=100)
    # The first choice must not be 1, and the second must be 0.
    mask = np.tile([True, False, True, True, False], (100, 1))
    step = policy.act(obs, mask=mask)

    evaluation = policy.evaluate(
        {
            "obs": obs,
            "raw_action": step.raw_action,
            "mask": mask,
            "dist_inputs": step.dist_inputs,
        }
    )

    np.testing.assert_allclose(to_numpy(evaluation.logp), step.logp, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(to_numpy(evaluation.kl), 0, atol=1e-5)  # the same policy


# --- a mask that depends on earlier parts: all choices must differ --------------------------------


def build_different_choices(framework):
    """Build a policy over three choices among four values, which must all differ."""
    return build_policy(
        MultiDiscrete([4, 4, 4]),
        framework,
        autoregressive_mask=make_different(framework),
        autoregressive_order=[1],  # draw the second part first
    )


@pytest.mark.parametrize("explore", [True, False])
def test_mask_of_earlier_parts_is_never_violated(framework, explore):
    policy = build_different_choices(framework)

    actions = policy.act(random_observations(rows=10_000), explore=explore).raw_action

    first, second, third = actions.T
    assert (first != second).all()
    assert (second != third).all()
    assert (third != first).all()


def test_evaluate_with_mask_of_earlier_parts_scores_as_act_does(framework):
    policy = build_different_choices(framework)  # a mask forbids equal values
    obs = random_observations(rows=1000)
    step = policy.act(obs)

    evaluation = policy.evaluate(
        {"obs": obs, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}
    )

    np.testing.assert_allclose(to_numpy(evaluation.logp), step.logp, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(to_numpy(evaluation.kl), 0, atol=1e-5)  # the same policy


def test_probabilities_of_allowed_actions_sum_to_one(framework):
    policy = build_different_choices(framework)

    actions, probabilities = probabilities_of_all(
        policy, MultiDiscrete([4, 4, 4]), random_observations(rows=1)
    )

    is_allowed = np.array([len(set(action)) == 3 for action in actions.tolist()])
    assert probabilities[is_allowed].sum() == pytest.approx(1.0, abs=1e-4)
    assert probabilities[~is_allowed].max() == 0


def test_entropy_with_mask_of_earlier_parts_is_sum_over_actions(framework):
    policy = build_different_choices(framework)
    obs = random_observations(rows=1)

    entropy = distribution(policy, obs).entropy()

    _, probabilities = probabilities_of_all(policy, MultiDiscrete([4, 4, 4]), obs)
    np.testing.assert_allclose(to_numpy(entropy), [entropy_of(probabilities)], atol=1e-4)


# --- what the mask function gets and returns ------------------------------------------------------


def test_mask_function_gets_earlier_values_in_drawing_order(framework):
    space = Dict({"a": Discrete(3), "b": Box(-1, 1, (2,)), "c": MultiDiscrete([2, 2])})
    calls = []

    def mask(path, earlier):
        shapes = {name: tuple(value.shape) for name, value in earlier.items()}
        calls.append((path, shapes))

    policy = build_policy(space, framework, autoregressive_mask=mask, autoregressive_order=["c"])
    dist = distribution(policy, random_observations(rows=5))

    calls.clear()  # forget those of building
    dist.sample()

    assert calls == [
        ("action['c'][0]", {}),
        ("action['c'][1]", {"action['c'][0]": (5,)}),
        ("action['a']", {"action['c'][0]": (5,), "action['c'][1]": (5,)}),
        (
            "action['b']",
            {"action['c'][0]": (5,), "action['c'][1]": (5,), "action['a']": (5,)},
        ),
    ]


def test_mask_function_gets_the_same_values_in_scoring(framework):
    space = Dict({"a": Discrete(3), "b": Box(-1, 1, (2,)), "c": MultiBinary(2)})
    calls = {}

    def mask(path, earlier):
        calls[path] = {name: to_numpy(value) for name, value in earlier.items()}

    policy = build_policy(space, framework, autoregressive_mask=mask)
    dist = distribution(policy, random_observations(rows=5))

    sample = dist.sample()
    calls_in_drawing = dict(calls)
    calls.clear()
    dist.logp({"c": sample["c"], "b": sample["b"], "a": sample["a"]})  # not the drawn object

    assert calls.keys() == calls_in_drawing.keys()
    for path, earlier in calls.items():
        for name, value in earlier.items():
            np.testing.assert_array_equal(value, calls_in_drawing[path][name])
            assert value.dtype == calls_in_drawing[path][name].dtype


def test_mask_function_may_forbid_values_of_bits(framework):
    # The second part's bits must be both 0 after 0, and both 1 after 1. The columns of a mask:
    # may the first bit be 0, may it be 1, may the second be 0, may it be 1.
    masks = np.array([[1, 0, 1, 0], [0, 1, 0, 1]], np.int8)

    def allow_equal_bits(path, earlier):
        if path == "action[0]":
            return None
        if framework == "torch":
            return torch.from_numpy(masks)[earlier["action[0]"]]
        return tf.gather(tf.constant(masks), earlier["action[0]"])

    policy = build_policy(
        Tuple([Discrete(2), MultiBinary(2)]), framework, autoregressive_mask=allow_equal_bits
    )

    actions = policy.act(random_observations(rows=500)).raw_action

    assert set(map(tuple, actions.tolist())) == {(0, 0, 0), (1, 1, 1)}


@pytest.fixture
def increasing_pairs(framework):
    """A policy over pairs of four values in which the second is larger than the first.

    The first is never 3, after which the function allows nothing. Sums meet this value, too.
    """

    def allow_larger(path, earlier):
        if not earlier:
            return np.array([[1, 1, 1, 0]])
        first = earlier["action[0]"]
        values = np.arange(4)
        if framework == "torch":
            return torch.from_numpy(values) > first[:, None]
        return values > first[:, None]

    return build_policy(MultiDiscrete([4, 4]), framework, autoregressive_mask=allow_larger)


def test_mask_may_allow_nothing_after_forbidden_value(increasing_pairs):
    first, second = increasing_pairs.act(random_observations(rows=500)).raw_action.T

    assert (second > first).all()


def test_entropy_is_exact_if_a_value_allows_nothing(increasing_pairs):
    obs = random_observations(rows=1)

    dist = distribution(increasing_pairs, obs)

    _, probabilities = probabilities_of_all(increasing_pairs, MultiDiscrete([4, 4]), obs)
    assert dist.entropy_kind == "exact"
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-4)
    np.testing.assert_allclose(to_numpy(dist.entropy()), [entropy_of(probabilities)], atol=1e-4)


# --- errors ---------------------------------------------------------------------------------------


def build_with_second_mask(framework, space, mask):
    """Build a policy whose `autoregressive_mask` returns a fixed mask for the second part."""
    return build_policy(
        space, framework, autoregressive_mask=lambda path, earlier: mask if earlier else None
    )


def test_row_without_allowed_value_is_an_error(framework):
    mask = np.array([[True, True], [False, False], [True, True]])
    policy = build_with_second_mask(framework, MultiDiscrete([2, 2]), mask)
    obs = random_observations(rows=3)

    with pytest.raises(ActionMaskError, match=r"row 1 allows no value of action\[1\]"):
        distribution(policy, obs).sample()
    with pytest.raises(ActionMaskError, match="mask: row 1 allows no value"):
        policy.act(obs)


def test_masks_that_together_allow_nothing_are_an_error(framework):
    must_be_1 = np.array([[False, True], [False, True]])
    policy = build_with_second_mask(framework, MultiDiscrete([2, 2]), must_be_1)
    # In row 1, the observation's mask forbids value 1 of the second choice, its last column.
    observed_mask = np.array([[True, True, True, True], [True, True, True, False]])

    message = r"row 1 allows no value of action\[1\] together with"
    with pytest.raises(ActionMaskError, match=message):
        policy.act(random_observations(rows=2), mask=observed_mask)


def test_masks_that_together_allow_one_value_decide(framework):
    not_2 = np.tile([True, True, False], (100, 1))
    policy = build_with_second_mask(framework, MultiDiscrete([2, 3]), not_2)
    # The observation's mask forbids value 0 of the second choice, its third column.
    observed_mask = np.tile([True, True, False, True, True], (100, 1))

    step = policy.act(random_observations(rows=100), mask=observed_mask)

    assert (step.raw_action[:, 1] == 1).all()


def test_masks_of_bits_that_together_allow_nothing_are_an_error(framework):
    # Columns: may the first bit be 0, may it be 1, may the second be 0, may it be 1.
    second_bit_must_be_1 = np.array([[True, True, False, True]])
    policy = build_with_second_mask(
        framework, Tuple([Discrete(2), MultiBinary(2)]), second_bit_must_be_1
    )
    # Two columns of the choice, then those of the bits: the second must be 0.
    observed_mask = np.array([[True, True, True, True, True, False]])

    with pytest.raises(ActionMaskError, match=r"row 0 allows no value of action\[1\]"):
        distribution(policy, random_observations(rows=1), observed_mask).sample()


@pytest.mark.parametrize("shape", [(3, 5), (4,)], ids=str)
def test_mask_of_wrong_shape_is_an_error(framework, shape):
    policy = build_with_second_mask(framework, MultiDiscrete([4, 4]), np.ones(shape))

    with pytest.raises(ActionMaskError, match=r"expected a mask \[B, 4\], found shape") as caught:
        policy.act(random_observations(rows=3))

    assert str(caught.value).startswith("autoregressive_mask('action[1]', …): ")
    assert f"found shape {shape}" in str(caught.value)


def test_mask_of_box_is_an_error(framework):
    space = Tuple([Discrete(2), Box(-1, 1, (2,))])
    policy = build_with_second_mask(framework, space, np.ones((3, 4)))

    with pytest.raises(ActionMaskError, match="values of this part cannot be forbidden") as caught:
        policy.act(random_observations(rows=3))

    assert str(caught.value).endswith("; return None for it.")


# --- half precision -------------------------------------------------------------------------------


def gradients_are_finite(policy):
    gradients = [weight.grad for weight in policy.model.parameters()]
    return all(torch.isfinite(gradient).all() for gradient in gradients if gradient is not None)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_half_precision_obeys_masks(dtype, method):
    space = Tuple([Discrete(4), MultiBinary(2), Discrete(4), Box(-1, 1, (2,))])

    def differ_from_first(path, earlier):
        if path == "action[2]":
            return is_not(earlier["action[0]"], "torch")
        return None

    policy = build_policy(space, "torch", autoregressive_mask=differ_from_first)
    inputs = distribution(policy, random_observations(rows=400)).inputs.to(dtype)
    policy.model.conditionals.to(dtype)
    first_is_not_0 = [False, True, True, True]
    bits_are_0_and_1 = [True, False, False, True]  # may the first be 0, be 1, the second 0, 1
    second_is_anything = [True, True, True, True]
    mask = torch.tensor([first_is_not_0 + bits_are_0_and_1 + second_is_anything]).repeat(400, 1)
    dist = policy.dist_class(policy.dist_class.masked(inputs, mask), policy.model)

    sample = getattr(dist, method)()
    dist.logp(sample).mean().backward()

    first, bits, second, _ = sample
    assert (first != 0).all()
    assert (bits == torch.tensor([0, 1])).all()
    assert (second != first).all()
    assert torch.isfinite(dist.logp(sample)).all()
    assert torch.isfinite(dist.params_given(sample)).all()
    assert torch.isfinite(dist.entropy_estimate()).all()
    assert gradients_are_finite(policy)


def test_autocast_samples_obey_masks_and_train():
    policy = build_policy(
        MultiDiscrete([4, 4]), "torch", autoregressive_mask=make_different("torch")
    )
    obs = random_observations(rows=300)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        sample = distribution(policy, obs).sample()
        logp = distribution(policy, obs).logp(sample)
    logp.float().sum().backward()

    logp_in_float32 = distribution(policy, obs).logp(sample).detach()
    assert (sample[:, 0] != sample[:, 1]).all()
    # bfloat16 has about two decimal digits.
    np.testing.assert_allclose(logp.float().detach(), logp_in_float32, atol=0.1)
    assert gradients_are_finite(policy)


# --- in an environment ----------------------------------------------------------------------------


class PickTwoCards(gym.Env):
    """Pick two different cards of those on the table; it raises an error for any others."""

    observation_space = Dict(
        {
            "x": Box(-1, 1, (3,), np.float32),
            "action_mask": Tuple([MultiBinary(4), MultiBinary(4)]),
        }
    )
    action_space = Tuple([Discrete(4), Discrete(4)])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._deal(), {}

    def step(self, action):
        first, second = action
        assert first != second
        assert self.on_table[first]
        assert self.on_table[second]
        return self._deal(), 1.0, False, False, {}

    def _deal(self):
        """Put two to four cards on the table."""
        count = 2 + self.np_random.integers(3)
        self.on_table = np.zeros(4, np.int8)
        self.on_table[self.np_random.choice(4, count, replace=False)] = 1
        x = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return {"x": x, "action_mask": (self.on_table, self.on_table)}


def test_masks_of_both_kinds_hold_in_a_vector_environment(framework):
    envs = gym.vector.SyncVectorEnv([PickTwoCards] * 16)
    config = {**SMALL_MODEL, "autoregressive_mask": make_different(framework)}
    policy = rlcatalog.build(env=envs, config=config, framework=framework)

    obs, _ = envs.reset(seed=0)
    for _ in range(40):
        obs, *_ = envs.step(policy.act(obs).action)  # the environment checks the cards
    envs.close()
