"""`Policy.act`: the arrays that it returns, and raw actions beside the environment's."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Discrete, Tuple

import rlcatalog
from rlcatalog.actions import action_codec
from rlcatalog.errors import ActionError
from rlcatalog.spaces import SpaceInfo

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])

FOUR_NUMBERS = spaces.Box(-1, 1, (4,), np.float32)
TWO = Discrete(2)
SMALL = {"fcnet_hiddens": [8]}


def sample_observations(*, rows):
    FOUR_NUMBERS.seed(0)
    return np.stack([FOUR_NUMBERS.sample() for _ in range(rows)])


# --- what act returns -----------------------------------------------------------------------------


@both_frameworks
def test_step_contains_arrays_with_a_row_for_each_observation(catalog, framework):
    policy = rlcatalog.build(FOUR_NUMBERS, TWO, SMALL, framework, catalog=catalog)

    step = policy.act(sample_observations(rows=6))

    assert step.action.shape == (6,)
    assert step.raw_action.shape == (6, 1)
    assert step.logp.shape == (6,)
    assert step.value.shape == (6,)
    assert step.dist_inputs.shape == (6, 2)  # two logits
    for array in (step.action, step.raw_action, step.logp, step.value, step.dist_inputs):
        assert type(array) is np.ndarray
    for array in (step.logp, step.value, step.dist_inputs):
        assert array.dtype == np.float32
    assert step.state is None  # the model has no memory


def as_read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def with_gaps(array):
    """Return the same numbers as every second column of an array that is twice as wide."""
    wide = np.zeros((len(array), 2 * array.shape[1]), array.dtype)
    wide[:, ::2] = array
    return wide[:, ::2]


def with_negative_strides(array):
    return array[::-1].copy()[::-1]


@both_frameworks
@pytest.mark.parametrize(
    "convert",
    [
        pytest.param(list, id="list-of-arrays"),
        pytest.param(lambda array: array.astype(np.float64), id="float64"),
        pytest.param(as_read_only, id="read-only"),
        pytest.param(np.asfortranarray, id="fortran-order"),
        pytest.param(with_gaps, id="gaps"),
        pytest.param(with_negative_strides, id="negative-strides"),
    ],
)
def test_observations_may_have_any_memory_layout(catalog, framework, convert):
    policy = rlcatalog.build(FOUR_NUMBERS, TWO, SMALL, framework, catalog=catalog)
    obs = sample_observations(rows=6)
    expected = policy.act(obs, explore=False).dist_inputs

    dist_inputs = policy.act(convert(obs), explore=False).dist_inputs

    np.testing.assert_allclose(dist_inputs, expected, rtol=1e-6)


@both_frameworks
def test_rows_of_a_batch_do_not_depend_on_one_another(catalog, framework):
    policy = rlcatalog.build(FOUR_NUMBERS, TWO, SMALL, framework, catalog=catalog)
    obs = sample_observations(rows=6)
    expected = policy.act(obs, explore=False).dist_inputs

    reversed_rows = policy.act(obs[::-1], explore=False).dist_inputs
    first_row = policy.act(obs[:1], explore=False).dist_inputs

    np.testing.assert_allclose(reversed_rows, expected[::-1], rtol=1e-6)
    np.testing.assert_allclose(first_row, expected[:1], rtol=1e-5)


@both_frameworks
def test_step_does_not_change_with_later_observations_or_weights(catalog, framework):
    # Without hidden layers, outputs might share memory with inputs or weights.
    policy = rlcatalog.build(FOUR_NUMBERS, TWO, {"fcnet_hiddens": []}, framework, catalog=catalog)
    obs = sample_observations(rows=6)
    step = policy.act(obs)
    before = copy.deepcopy(step)

    obs += 1
    policy.act(obs)
    weights = policy.model.get_weights()
    policy.model.set_weights({name: array + 1 for name, array in weights.items()})
    policy.act(obs)

    # The first five entries of a step are its arrays.
    for array, array_before in zip(step[:5], before[:5], strict=True):
        np.testing.assert_array_equal(array, array_before)


@both_frameworks
@pytest.mark.parametrize(
    "action_space",
    [Discrete(2), Discrete(2, start=3), spaces.Box(-9, 9, (2,), np.float32)],
    ids=str,
)
def test_raw_action_does_not_share_memory_with_the_action(catalog, framework, action_space):
    policy = rlcatalog.build(FOUR_NUMBERS, action_space, SMALL, framework, catalog=catalog)
    step = policy.act(sample_observations(rows=6))
    raw_action_before = step.raw_action.copy()

    step.action[...] = 0  # as a caller that overrules the policy

    np.testing.assert_array_equal(step.raw_action, raw_action_before)


# --- raw and environment actions ------------------------------------------------------------------

HUGE = 3e38
DISCRETE_SPACES = [
    Discrete(3),
    Discrete(3, start=-4),
    Discrete(4, start=10, dtype=np.int32),
]
BOXES = [
    (spaces.Box(-0.5, 0.5, (2,), np.float32), {"action_bounds": "clip"}),
    (spaces.Box(-0.5, 0.5, (2,), np.float32), {}),
    (
        spaces.Box(np.float32([-1, 0.5, -np.inf]), np.float32([3, 6, 0.5])),
        {"action_bounds": "clip"},
    ),
    (spaces.Box(np.float32([-1, 5, -np.inf]), np.float32([3, 6, 0.5])), {}),
    (spaces.Box(-np.inf, np.inf, (2,), np.float32), {}),
    (spaces.Box(0, 0.5, (2,), np.float64), {"action_bounds": "clip"}),
    (spaces.Box(0, 0.1, (2,), np.float64), {}),
    (spaces.Box(-0.1, 0.1, (2,), np.float16), {}),
    (spaces.Box(-1, 1, (), np.float32), {}),
    (spaces.Box(-1, 1, (2, 2), np.float32), {}),
    (spaces.Box(-HUGE, HUGE, (2,), np.float32), {"action_bounds": "affine_all"}),
]
ALL_SPACES = [*((space, {}) for space in DISCRETE_SPACES), *BOXES]


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize("space", DISCRETE_SPACES, ids=str)
def test_discrete_action_is_the_raw_action_plus_start(catalog, framework, space):
    policy = rlcatalog.build(FOUR_NUMBERS, space, SMALL, framework, catalog=catalog)

    for explore in (True, False):
        step = policy.act(sample_observations(rows=300), explore=explore)

        np.testing.assert_array_equal(step.action, step.raw_action[:, 0] + space.start)
        assert step.action.dtype == space.dtype
        for action in step.action:
            assert space.contains(action)


def scale_and_clip(raw_action, space, *, scales):
    """Return a Box's actions for raw ones; where both bounds are finite, -1 to 1 may be scaled."""
    low = space.low.astype(np.float64)
    high = space.high.astype(np.float64)
    action = raw_action.reshape(-1, *space.shape).astype(np.float64)
    if scales:
        is_bounded = np.isfinite(low) & np.isfinite(high)
        finite_low = np.where(is_bounded, low, 0)
        finite_high = np.where(is_bounded, high, 0)
        scaled = finite_low + (action + 1) / 2 * (finite_high - finite_low)
        action = np.where(is_bounded, scaled, action)
    return np.clip(action, low, high)


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize(("space", "config"), BOXES, ids=lambda value: str(value)[:30])
def test_box_action_is_the_raw_action_within_the_bounds(catalog, framework, space, config):
    config = {**SMALL, **config}
    policy = rlcatalog.build(FOUR_NUMBERS, space, config, framework, catalog=catalog)
    scales = policy.config["action_bounds"] != "clip"
    rtol = 2e-3 if space.dtype == np.float16 else 1e-5

    for explore in (True, False):
        step = policy.act(sample_observations(rows=300), explore=explore)

        expected = scale_and_clip(step.raw_action, space, scales=scales)
        np.testing.assert_allclose(step.action, expected, rtol=rtol, atol=1e-6)
        assert step.action.dtype == space.dtype
        assert step.action.shape == (300, *space.shape)
        for action in step.action:
            assert space.contains(np.asarray(action))


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize(("space", "config"), ALL_SPACES, ids=lambda value: str(value)[:30])
def test_evaluate_of_the_raw_action_returns_the_same_logp(catalog, framework, space, config):
    config = {**SMALL, **config}
    policy = rlcatalog.build(FOUR_NUMBERS, space, config, framework, catalog=catalog)
    obs = sample_observations(rows=300)

    for explore in (True, False):
        step = policy.act(obs, explore=explore)
        batch = {"obs": policy.preprocess(obs), "raw_action": step.raw_action}
        logp = policy.evaluate(batch).logp
        if framework == "torch":
            logp = logp.detach()

        np.testing.assert_allclose(logp, step.logp, rtol=1e-4, atol=1e-5)


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize(("space", "config"), ALL_SPACES, ids=lambda value: str(value)[:30])
def test_sampled_actions_differ(catalog, framework, space, config):
    policy = rlcatalog.build(FOUR_NUMBERS, space, {**SMALL, **config}, framework, catalog=catalog)

    raw_action = policy.act(sample_observations(rows=300)).raw_action

    assert len(np.unique(raw_action)) > 1


# --- action codecs --------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, -4, 10])
def test_codec_of_a_discrete_space_adds_start(start):
    codec = action_codec(SpaceInfo.read(Discrete(3, start=start)))
    raw_action = np.array([[0], [2], [1]])

    action = codec.adapt(raw_action)

    assert action.tolist() == [start, start + 2, start + 1]
    np.testing.assert_array_equal(codec.invert(action), raw_action)


def test_codec_with_affine_bounds_scales_from_minus_1_to_1():
    box = spaces.Box(low=np.float32([-1, 5]), high=np.float32([3, 6]))
    codec = action_codec(SpaceInfo.read(box), "affine")
    raw_action = np.float32([[-1, -1], [1, 1], [0.5, -0.25]])

    action = codec.adapt(raw_action)

    # 0.5 is 3/4 of the way from -1 to 3, and -0.25 is 3/8 of the way from 5 to 6.
    np.testing.assert_allclose(action, [[-1, 5], [3, 6], [2, 5.375]])
    np.testing.assert_allclose(codec.invert(action), raw_action)


def test_codec_that_clips_inverts_actions_within_the_bounds():
    box = spaces.Box(low=np.float32([-1, 5]), high=np.float32([3, 6]))
    codec = action_codec(SpaceInfo.read(box), "clip")

    np.testing.assert_array_equal(codec.invert(np.float32([[0, 5.5]])), [[0, 5.5]])


def test_codec_that_clips_does_not_invert_other_actions():
    box = spaces.Box(low=np.float32([-1, 5]), high=np.float32([3, 6]))
    codec = action_codec(SpaceInfo.read(box), "clip")

    with pytest.raises(ActionError, match="expected values within the bounds"):
        codec.invert(np.zeros((1, 2)))  # 0 is below 5


def test_codec_of_a_structure_splits_columns_in_its_order():
    numbers = spaces.Box(-1, 1, (2, 1), np.float32)
    choices = spaces.MultiDiscrete([2, 4])
    space = spaces.Dict([("z", Discrete(3, start=1)), ("a", Tuple([numbers, choices]))])
    codec = action_codec(SpaceInfo.read(space))
    # The columns are "z", then two numbers and two choices of "a".
    raw_action = np.float32([[2, 0.5, -3, 1, 3], [0, 7, 0.25, 0, 0]])

    action = codec.adapt(raw_action)

    assert codec.width == 5
    assert list(action) == ["z", "a"]
    assert action["z"].tolist() == [3, 1]
    assert action["a"][0].tolist() == [[[0.5], [-1]], [[1], [0.25]]]  # clipped
    assert action["a"][1].tolist() == [[1, 3], [0, 0]]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(3, 9, (2,), np.uint8),
        spaces.Box(-(2**31), 2**31 - 1, (2,), np.int32),
        spaces.Box(-(2**40), 2**40, (2,), np.int64),
    ],
    ids=str,
)
def test_codec_of_an_integer_box_counts_from_its_lowest_value(space):
    codec = action_codec(SpaceInfo.read(space))
    low = int(space.low[0])

    [action] = codec.adapt(np.array([[0, 5]]))

    assert action.tolist() == [low, low + 5]


@pytest.mark.parametrize("raw_action", [[[0.0, 2.4]], [[-7.0, 1e30]], [[0, 2**50]]], ids=str)
@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(3, 9, (2,), np.uint8),
        spaces.Box(-(2**31), 2**31 - 1, (2,), np.int32),
        spaces.Box(-(2**40), 2**40, (2,), np.int64),
    ],
    ids=str,
)
def test_codec_of_an_integer_box_brings_any_number_into_it(space, raw_action):
    codec = action_codec(SpaceInfo.read(space))

    [action] = codec.adapt(np.array(raw_action))

    assert space.contains(action)
