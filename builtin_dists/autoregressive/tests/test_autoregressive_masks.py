"""Masks of the observation, and `autoregressive_mask`, which depends on earlier parts."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from autoregressive_policies import (
    SMALL_MODEL,
    PaperEquations,
    all_actions,
    build_policy,
    compute_logp,
    distribution,
    random_observations,
    to_numpy,
    to_tensor,
    without_tracing,
)
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

import rlcatalog
from rlcatalog.errors import ActionMaskError

pytestmark = pytest.mark.twins

X = Box(-1, 1, (3,), np.float32)


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


# --- masks in the observation ---------------------------------------------------------------------

three_bits = MultiBinary(3)
no_mask = Box(0, 1, (0,), np.int8)
#: Action space; space of its mask; the mask's structure from masks of the first and last choice.
MASKED_CASES = {
    "tuple": (
        Tuple([Discrete(3), Box(-1, 1, (2,)), Discrete(3)]),
        Tuple([three_bits, no_mask, three_bits]),
        lambda first, last: (first, np.zeros((len(first), 0), np.int8), last),
    ),
    "dict": (
        Dict({"a": Discrete(3), "b": Tuple([Discrete(3)])}),
        Dict({"a": three_bits, "b": Tuple([three_bits])}),
        lambda first, last: {"a": first, "b": (last,)},
    ),
    "multi_discrete": (
        MultiDiscrete([3, 3]),
        Tuple([three_bits, three_bits]),
        lambda first, last: (first, last),
    ),
}
masked_cases = pytest.mark.parametrize("case", MASKED_CASES)


def build_masked_policy(case, framework):
    action_space, mask_space, _ = MASKED_CASES[case]
    obs_space = Dict({"x": X, "action_mask": mask_space})
    return build_policy(action_space, framework, obs_space=obs_space)


def random_masked_observations(case, rows):
    """Return observations, and their masks `[rows, 2, 3]` of the first and last choice."""
    rng = np.random.default_rng(0)
    masks = (rng.random((rows, 2, 3)) < 0.5).astype(np.int8)
    for choice in range(2):  # at least one value is allowed
        masks[np.arange(rows), choice, rng.integers(0, 3, rows)] = 1
    structure = MASKED_CASES[case][2]
    obs = {"x": random_observations(rows), "action_mask": structure(masks[:, 0], masks[:, 1])}
    return obs, masks


@pytest.mark.grid
@masked_cases
@pytest.mark.parametrize("explore", [True, False])
def test_actions_obey_masks_in_the_observation(framework, case, explore):
    policy = build_masked_policy(case, framework)
    obs, masks = random_masked_observations(case, rows=2000)

    with without_tracing(policy):
        step = policy.act(obs, explore=explore)

    rows = np.arange(2000)
    first_choice = step.raw_action[:, 0].astype(int)
    last_choice = step.raw_action[:, -1].astype(int)
    assert (masks[rows, 0, first_choice] == 1).all()
    assert (masks[rows, 1, last_choice] == 1).all()
    assert np.isfinite(step.logp).all()


@masked_cases
def test_masks_are_not_part_of_the_preprocessed_observation(framework, case):
    policy = build_masked_policy(case, framework)

    assert policy.preprocessor.shape == (3,)  # only "x"


@pytest.mark.grid
@masked_cases
def test_evaluate_with_masks_scores_as_act_does(framework, case):
    policy = build_masked_policy(case, framework)
    obs, _ = random_masked_observations(case, rows=2000)
    with without_tracing(policy):
        step = policy.act(obs)

    evaluation = policy.evaluate(
        {
            "obs": policy.preprocess(obs),
            "raw_action": step.raw_action,
            "mask": policy.action_mask(obs),
            "dist_inputs": step.dist_inputs,
        }
    )

    np.testing.assert_allclose(to_numpy(evaluation.logp), step.logp, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(to_numpy(evaluation.kl), 0, atol=1e-5)
    assert np.isfinite(to_numpy(evaluation.entropy)).all()


def masked_probabilities(policy, space, obs, allowed_values):
    """Return the probability of each action by the paper's equations: each part's probabilities
    are normalised over its allowed values.
    """
    actions = all_actions(space)
    obs = np.repeat(obs, len(actions), axis=0)
    equations = PaperEquations(policy.model.get_weights(), space)
    probabilities = np.ones(len(actions))
    for part, allowed in enumerate(allowed_values):
        total = np.zeros(len(actions))
        for value in allowed:
            with_value = actions.copy()
            with_value[:, part] = value
            total += np.exp(equations.part_logp(obs, with_value, part))
        own = np.exp(equations.part_logp(obs, actions, part))
        probabilities *= np.where(np.isin(actions[:, part], allowed), own / total, 0)
    return probabilities


def test_masked_probabilities_are_normalised_part_by_part(framework):
    space = MultiDiscrete([3, 2, 3])
    policy = build_policy(space, framework)
    obs = random_observations(rows=1)
    actions = all_actions(space)
    mask = np.array([[1, 0, 1, 1, 1, 0, 1, 1]], bool)

    logp = compute_logp(
        policy,
        np.repeat(obs, len(actions), axis=0),
        actions,
        mask=np.repeat(mask, len(actions), axis=0),
    )

    expected = masked_probabilities(policy, space, obs, allowed_values=[[0, 2], [0, 1], [1, 2]])
    np.testing.assert_allclose(np.exp(logp), expected, atol=1e-5)
    assert np.exp(logp).sum() == pytest.approx(1.0, abs=1e-5)


def test_masked_entropy_is_sum_over_allowed_actions(framework):
    space = MultiDiscrete([3, 2, 3])
    policy = build_policy(space, framework)
    obs = random_observations(rows=1)
    mask = np.array([[1, 0, 1, 1, 1, 0, 1, 1]], bool)

    entropy = distribution(policy, obs, mask).entropy()

    probabilities = masked_probabilities(
        policy, space, obs, allowed_values=[[0, 2], [0, 1], [1, 2]]
    )
    assert to_numpy(entropy)[0] == pytest.approx(entropy_of(probabilities), abs=1e-4)


# --- a mask that depends on earlier parts: all choices must differ --------------------------------

each_length = pytest.mark.parametrize("parts", [2, 3])


def build_different_choices(parts, framework):
    """Build a policy over choices among four values, which must all differ."""
    return build_policy(
        MultiDiscrete([4] * parts),
        framework,
        autoregressive_mask=make_different(framework),
        autoregressive_order=[1],  # draw the second part first
    )


def probabilities_of_all(policy, parts, obs):
    """Return all actions of choices among four values, and their probabilities."""
    actions = all_actions(MultiDiscrete([4] * parts))
    logp = compute_logp(policy, np.repeat(obs, len(actions), axis=0), actions)
    return actions, np.exp(logp)


@pytest.mark.grid
@each_length
@pytest.mark.parametrize(("rows", "explore"), [(10_000, True), (500, False)])
def test_mask_of_earlier_parts_is_never_violated(framework, parts, rows, explore):
    policy = build_different_choices(parts, framework)

    with without_tracing(policy):
        step = policy.act(random_observations(rows), explore=explore)

    assert all(len(set(action)) == parts for action in step.raw_action.tolist())
    assert np.isfinite(step.logp).all()


@pytest.mark.grid
@each_length
def test_evaluate_with_mask_of_earlier_parts_scores_as_act_does(framework, parts):
    policy = build_different_choices(parts, framework)
    obs = random_observations(rows=10_000)
    with without_tracing(policy):
        step = policy.act(obs)

    evaluation = policy.evaluate(
        {"obs": obs, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}
    )

    np.testing.assert_allclose(to_numpy(evaluation.logp), step.logp, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(to_numpy(evaluation.kl), 0, atol=1e-5)


@pytest.mark.grid
@each_length
def test_probabilities_of_allowed_actions_sum_to_one(framework, parts):
    policy = build_different_choices(parts, framework)

    actions, probabilities = probabilities_of_all(policy, parts, random_observations(rows=1))

    is_allowed = np.array([len(set(action)) == parts for action in actions.tolist()])
    assert probabilities[is_allowed].sum() == pytest.approx(1.0, abs=1e-4)
    assert probabilities[~is_allowed].max() == 0


@pytest.mark.grid
@each_length
def test_entropy_with_mask_of_earlier_parts_is_sum_over_actions(framework, parts):
    policy = build_different_choices(parts, framework)
    obs = random_observations(rows=1)

    entropy = distribution(policy, obs).entropy()

    _, probabilities = probabilities_of_all(policy, parts, obs)
    assert to_numpy(entropy)[0] == pytest.approx(entropy_of(probabilities), abs=1e-4)


@pytest.mark.grid
@each_length
def test_stored_parameters_contain_the_mask(framework, parts):
    policy = build_different_choices(parts, framework)
    with without_tracing(policy):
        step = policy.act(random_observations(rows=100))

    # Stored parameters are scored without the mask function.
    stored = policy.stored_dist(to_tensor(step.dist_inputs, framework))
    logp = stored.logp(to_tensor(step.raw_action, framework))

    np.testing.assert_allclose(to_numpy(logp), step.logp, atol=1e-4)


# --- what the mask function gets and returns ------------------------------------------------------


def record_calls():
    """Return an `autoregressive_mask` that forbids nothing, and the list of its calls: the path,
    and the shape (without batch size) and dtype of each earlier value.
    """
    calls = []

    def mask(path, earlier):
        shapes = {name: tuple(value.shape)[1:] for name, value in earlier.items()}
        dtypes = {name: str(value.dtype) for name, value in earlier.items()}
        calls.append((path, shapes, dtypes))

    return mask, calls


def test_mask_function_gets_earlier_values_in_drawing_order(framework):
    space = Dict(
        {
            "a": Discrete(3, start=7),
            "b": Box(-1, 1, (2,)),
            "c": MultiBinary(2),
            "d": MultiDiscrete([2, 2]),
        }
    )
    mask, calls = record_calls()
    policy = build_policy(space, framework, autoregressive_mask=mask, autoregressive_order=["d"])
    dist = distribution(policy, random_observations(rows=1))

    calls.clear()
    dist.sample()

    paths = ["action['d'][0]", "action['d'][1]", "action['a']", "action['b']", "action['c']"]
    last_path, shapes, _ = calls[-1]
    assert [path for path, _, _ in calls] == paths
    assert last_path == "action['c']"
    # [B] for a choice, [B, 2] for the Box.
    assert shapes == dict(zip(paths[:-1], [(), (), (), (2,)], strict=True))


def test_mask_function_gets_the_same_values_in_scoring(framework):
    space = Dict(
        {
            "a": Discrete(3, start=7),
            "b": Box(-1, 1, (2,)),
            "c": MultiBinary(2),
            "d": MultiDiscrete([2, 2]),
        }
    )
    mask, calls = record_calls()
    policy = build_policy(space, framework, autoregressive_mask=mask, autoregressive_order=["d"])
    dist = distribution(policy, random_observations(rows=1))

    calls.clear()
    sample = dist.sample()
    calls_in_drawing = list(calls)

    calls.clear()
    flat_sample = policy.stored_dist(dist.params_given(sample), None).join(sample)
    calls.clear()
    dist.logp(flat_sample)

    # Scoring goes through the parts in the space's order.
    assert sorted(calls, key=str) == sorted(calls_in_drawing, key=str)


def test_mask_function_may_forbid_values_of_bits(framework):
    # The two bits must be those of the number that is drawn first. Columns: may the first bit be
    # 0, may it be 1, may the second be 0, may it be 1.
    table = np.array([[1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1]], np.int8)

    def allow_digits_of_number(path, earlier):
        if path == "action[0]":
            return None
        number = earlier["action[0]"]
        if framework == "torch":
            return torch.from_numpy(table)[number]
        return tf.gather(tf.constant(table), number)

    space = Tuple([Discrete(4), MultiBinary(2)])
    policy = build_policy(space, framework, autoregressive_mask=allow_digits_of_number)
    obs = random_observations(rows=2000)

    step = policy.act(obs)

    number = step.raw_action[:, 0].astype(int)
    bits = step.raw_action[:, 1:].astype(int)
    np.testing.assert_array_equal(bits @ [2, 1], number)
    assert set(number) == {0, 1, 2, 3}
    # The bits are certain then, so that an action is as probable as its number.
    equations = PaperEquations(policy.model.get_weights(), space)
    number_logp = equations.part_logp(obs, step.raw_action, rank=0)
    np.testing.assert_allclose(step.logp, number_logp, atol=1e-4)


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

    space = Tuple([Discrete(4), Discrete(4)])
    return build_policy(space, framework, autoregressive_mask=allow_larger)


def test_mask_may_allow_nothing_after_forbidden_value(increasing_pairs):
    with without_tracing(increasing_pairs):
        step = increasing_pairs.act(random_observations(rows=500))

    assert (step.raw_action[:, 1] > step.raw_action[:, 0]).all()


def test_probabilities_sum_to_one_if_a_value_allows_nothing(increasing_pairs):
    actions, probabilities = probabilities_of_all(
        increasing_pairs, parts=2, obs=random_observations(rows=1)
    )

    is_increasing = actions[:, 1] > actions[:, 0]
    assert probabilities[is_increasing].sum() == pytest.approx(1.0, abs=1e-4)


def test_entropy_is_exact_if_a_value_allows_nothing(increasing_pairs):
    obs = random_observations(rows=1)
    with without_tracing(increasing_pairs):
        step = increasing_pairs.act(obs)

    evaluation = increasing_pairs.evaluate({"obs": obs, "raw_action": step.raw_action})

    _, probabilities = probabilities_of_all(increasing_pairs, parts=2, obs=obs)
    assert evaluation.entropy_kind == "exact"
    entropy = to_numpy(evaluation.entropy)[0]
    assert entropy == pytest.approx(entropy_of(probabilities), abs=1e-4)


# --- errors ---------------------------------------------------------------------------------------

#: Two choices among four values.
PAIR = Tuple([Discrete(4), Discrete(4)])


def mask_second_part(mask):
    """Return an `autoregressive_mask` that returns a fixed mask for the second part."""
    return lambda path, earlier: mask if earlier else None


def test_row_without_allowed_value_is_an_error(framework):
    mask = np.ones((4, 4), bool)
    mask[2] = False
    policy = build_policy(PAIR, framework, autoregressive_mask=mask_second_part(mask))

    message = r"row 2 allows no value of action\[1\]"
    with pytest.raises(ActionMaskError, match=message):
        distribution(policy, random_observations(rows=4)).sample()
    with pytest.raises(ActionMaskError, match=message) as caught:
        policy.act(random_observations(rows=4))
    assert "autoregressive_mask: row 2" in str(caught.value)


@pytest.fixture
def only_last_value(framework):
    """A policy over PAIR whose mask allows only value 3 of the second part, in row 2."""
    mask = np.ones((4, 4), bool)
    mask[2] = [False, False, False, True]
    return build_policy(PAIR, framework, autoregressive_mask=mask_second_part(mask))


def test_masks_that_together_allow_nothing_are_an_error(only_last_value):
    observed_mask = np.ones((4, 8), bool)
    observed_mask[:, 7] = False  # forbids value 3 of the second part

    message = r"row 2 allows no value of action\[1\] together with the action mask"
    with pytest.raises(ActionMaskError, match=message):
        distribution(only_last_value, random_observations(rows=4), observed_mask).sample()
    with pytest.raises(ActionMaskError, match=message):
        only_last_value.act(random_observations(rows=4), mask=observed_mask)


def test_masks_that_together_allow_one_value_decide(only_last_value):
    step = only_last_value.act(random_observations(rows=4), mask=np.ones((4, 8), bool))

    assert step.raw_action[2, 1] == 3


def test_masks_of_bits_that_together_allow_nothing_are_an_error(framework):
    # In all rows the second bit must be 1, and by the observation's mask 0 in row 1.
    second_bit_is_1 = np.array([[1, 1, 0, 1]] * 3)
    policy = build_policy(
        Tuple([Discrete(2), MultiBinary(2)]),
        framework,
        autoregressive_mask=mask_second_part(second_bit_is_1),
    )
    observed_mask = np.ones((3, 6), bool)
    observed_mask[1, 5] = False

    with pytest.raises(ActionMaskError, match=r"row 1 allows no value of action\[1\]"):
        distribution(policy, random_observations(rows=3), observed_mask).sample()


@pytest.mark.parametrize("shape", [(3, 5), (4,)], ids=str)
def test_mask_of_wrong_shape_is_an_error(framework, shape):
    policy = build_policy(PAIR, framework, autoregressive_mask=mask_second_part(np.ones(shape)))

    with pytest.raises(ActionMaskError, match=r"expected a mask \[B, 4\], found shape") as caught:
        policy.act(random_observations(rows=3))

    assert str(caught.value).startswith("autoregressive_mask('action[1]', …): ")
    assert f"found shape {shape}" in str(caught.value)


def test_mask_of_box_is_an_error(framework):
    policy = build_policy(
        Tuple([Discrete(2), Box(-1, 1, (2,))]),
        framework,
        autoregressive_mask=mask_second_part(np.ones((3, 4))),
    )

    with pytest.raises(ActionMaskError, match="values of this part cannot be forbidden") as caught:
        policy.act(random_observations(rows=3))

    assert str(caught.value).endswith("; return None for it.")


# --- half precision -------------------------------------------------------------------------------


def gradients_are_finite(policy):
    gradients = [weight.grad for weight in policy.model.parameters()]
    return all(torch.isfinite(gradient).all() for gradient in gradients if gradient is not None)


@pytest.fixture(params=[torch.float16, torch.bfloat16], ids=str)
def half_precision(request):
    """A policy, and its distribution in half precision for 400 observations.

    Of action[0], value 0 is forbidden; the bits of action[1] must be 0 and 1; action[2] must differ
    from action[0]; action[3] is a Box.
    """

    def differ_from_first(path, earlier):
        if path == "action[2]":
            return is_not(earlier["action[0]"], "torch")
        return None

    space = Tuple([Discrete(4), MultiBinary(2), Discrete(4), Box(-1, 1, (2,))])
    policy = build_policy(space, "torch", autoregressive_mask=differ_from_first)
    mask = torch.ones(400, 12, dtype=torch.bool)
    mask[:, 0] = False  # value 0 of action[0]
    mask[:, [5, 6]] = False  # the first bit may not be 1, the second not 0
    inputs, _ = policy.model({"obs": torch.from_numpy(random_observations(400))}, [], None)
    policy.model.conditionals.to(request.param)
    inputs = policy.dist_class.masked(inputs.to(request.param), mask)
    return policy, policy.dist_class(inputs, policy.model)


@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_half_precision_obeys_masks(half_precision, method):
    _, dist = half_precision

    first, bits, third, _ = getattr(dist, method)()

    assert (first > 0).all()
    assert (bits == torch.tensor([0, 1])).all()
    assert (third != first).all()


@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_half_precision_gives_finite_numbers(half_precision, method):
    policy, dist = half_precision

    sample = getattr(dist, method)()
    logp = dist.logp(sample)
    logp.mean().backward()

    assert torch.isfinite(logp).all()
    assert torch.isfinite(dist.params_given(sample)).all()
    assert dist.params_given(sample).dtype == dist.inputs.dtype
    assert torch.isfinite(dist.entropy_estimate()).all()
    assert gradients_are_finite(policy)


def test_autocast_samples_obey_masks_and_train():
    policy = build_policy(
        Tuple([Discrete(4), Discrete(4)]),
        "torch",
        autoregressive_mask=make_different("torch"),
        autoregressive_hiddens=[4, 4],
    )
    obs = random_observations(rows=300)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        first, second = sample = distribution(policy, obs).sample()
        logp = distribution(policy, obs).logp(sample)
    logp.float().sum().backward()

    in_float32 = distribution(policy, obs).logp(sample)
    assert (first != second).all()
    np.testing.assert_allclose(logp.float().detach(), in_float32.detach(), atol=0.1)
    assert torch.isfinite(logp).all()
    assert gradients_are_finite(policy)


# --- in an environment ----------------------------------------------------------------------------


class PickTwoCards(gym.Env):
    """Pick two different cards of those on the table; it raises an error for any others."""

    observation_space = Dict({"x": X, "action_mask": Tuple([MultiBinary(4), MultiBinary(4)])})
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
