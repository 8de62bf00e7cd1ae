"""The contract on paper: what act returns, and raw and environment actions."""

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

BOX, TWO = spaces.Box(-1, 1, (4,), np.float32), Discrete(2)
SMALL = {"fcnet_hiddens": [8]}


def observations(space=BOX, n=6, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


# --- what act returns -----------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a_step_holds_arrays(catalog, framework):
    policy = rlcatalog.build(BOX, TWO, SMALL, framework, catalog=catalog)
    step = policy.act(observations())
    shapes = {
        "action": (6,),
        "raw_action": (6, 1),
        "logp": (6,),
        "value": (6,),
        "dist_inputs": (6, 2),
    }
    assert {name: getattr(step, name).shape for name in shapes} == shapes
    assert all(type(getattr(step, name)) is np.ndarray for name in shapes)
    assert step.logp.dtype == step.value.dtype == step.dist_inputs.dtype == np.float32
    assert step.state is None


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_observations_in_any_form(catalog, framework):
    policy = rlcatalog.build(BOX, TWO, SMALL, framework, catalog=catalog)
    rows = observations()
    expected = policy.act(rows, explore=False).dist_inputs
    array = np.stack(rows)
    locked = array.copy()
    locked.flags.writeable = False
    wide = np.zeros((6, 8), np.float32)
    wide[:, ::2] = array
    for form in (
        array,
        array.astype(np.float64),
        locked,
        np.asfortranarray(array),
        wide[:, ::2],
        array[::-1][::-1],
    ):
        np.testing.assert_allclose(policy.act(form, explore=False).dist_inputs, expected, rtol=1e-6)
    np.testing.assert_allclose(
        policy.act(array[::-1], explore=False).dist_inputs, expected[::-1], rtol=1e-6
    )
    np.testing.assert_allclose(
        policy.act(array[:1], explore=False).dist_inputs, expected[:1], rtol=1e-5
    )


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a_step_stays_as_it_was(catalog, framework):
    policy = rlcatalog.build(BOX, TWO, {"fcnet_hiddens": []}, framework, catalog=catalog)
    obs = np.stack(observations())
    step = policy.act(obs)
    before = copy.deepcopy(step)
    obs += 1
    policy.act(obs)
    policy.model.set_weights(
        {name: array + 1 for name, array in policy.model.get_weights().items()}
    )
    policy.act(obs)
    for found, expected in zip(step[:5], before[:5], strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    "space", [TWO, Discrete(2, start=3), spaces.Box(-9, 9, (2,), np.float32)], ids=str
)
def test_changing_an_action_leaves_the_raw_one_alone(catalog, framework, space):
    step = rlcatalog.build(BOX, space, SMALL, framework, catalog=catalog).act(observations())
    before = step.raw_action.copy()
    step.action[...] = 0  # as a caller overrules some of them
    np.testing.assert_array_equal(step.raw_action, before)


# --- raw and environment actions ------------------------------------------------------------------

HUGE = 3e38
ACTION_SPACES = [
    (Discrete(3), {}),
    (Discrete(3, start=-4), {}),
    (Discrete(4, start=10, dtype=np.int32), {}),
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


def by_hand(space, raw, bounds):
    if isinstance(space, Discrete):
        return raw[:, 0] + space.start
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    value = raw.reshape(-1, *space.shape).astype(np.float64)
    if bounds != "clip":
        both = np.isfinite(low) & np.isfinite(high)
        value = np.where(
            both, low + (value + 1) / 2 * (np.where(both, high, 0) - np.where(both, low, 0)), value
        )
    return np.clip(value, low, high)


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(("space", "config"), ACTION_SPACES, ids=lambda value: str(value)[:30])
def test_every_action_lies_in_its_space_and_its_raw_form_keeps_its_density(
    catalog, framework, space, config
):
    policy = rlcatalog.build(BOX, space, {**SMALL, **config}, framework, catalog=catalog)
    obs = np.stack(observations(n=300))
    for explore in (True, False):
        step = policy.act(obs, explore=explore)
        assert step.action.dtype == space.dtype
        assert step.action.shape == (300, *space.shape)
        for action in step.action:
            assert space.contains(action if isinstance(space, Discrete) else np.asarray(action))
        expected = by_hand(space, step.raw_action, policy.config["action_bounds"])
        np.testing.assert_allclose(
            step.action, expected, rtol=2e-3 if space.dtype == np.float16 else 1e-5, atol=1e-6
        )
        found = policy.evaluate({"obs": policy.preprocess(obs), "raw_action": step.raw_action})
        logp = found.logp.detach() if framework == "torch" else found.logp
        np.testing.assert_allclose(logp, step.logp, rtol=1e-4, atol=1e-5)
    assert len(np.unique(policy.act(obs).raw_action)) > 1


@pytest.mark.parametrize("start", [0, -4, 10])
def test_the_offset_can_be_taken_back(start):
    codec = action_codec(SpaceInfo.read(Discrete(3, start=start)))
    raw = np.array([[0], [2], [1]])
    np.testing.assert_array_equal(codec.adapt(raw), raw[:, 0] + start)
    np.testing.assert_array_equal(codec.invert(codec.adapt(raw)), raw)


def test_an_affine_map_can_be_taken_back_and_clipping_within_the_bounds():
    space = spaces.Box(np.float32([-1, 5]), np.float32([3, 6]))
    raw = np.array([[-1, -1], [1, 1], [0.5, -0.25]], np.float32)
    codec = action_codec(SpaceInfo.read(space), "affine")
    np.testing.assert_allclose(codec.adapt(raw), [[-1, 5], [3, 6], [2, 5.375]])
    np.testing.assert_allclose(codec.invert(codec.adapt(raw)), raw)
    clipping = action_codec(SpaceInfo.read(space), "clip")
    np.testing.assert_array_equal(clipping.invert(np.float32([[0, 5.5]])), [[0, 5.5]])
    with pytest.raises(ActionError, match="expected values within the bounds"):
        clipping.invert(np.zeros((1, 2)))


def test_a_structure_is_joined_in_the_spaces_order():
    pair = Tuple([spaces.Box(-1, 1, (2, 1), np.float32), spaces.MultiDiscrete([2, 4])])
    space = spaces.Dict([("z", Discrete(3, start=1)), ("a", pair)])
    codec = action_codec(SpaceInfo.read(space))
    assert codec.width == 5
    raw = np.array([[2, 0.5, -3, 1, 3], [0, 7, 0.25, 0, 0]], np.float32)
    found = codec.adapt(raw)
    assert list(found) == ["z", "a"]
    np.testing.assert_array_equal(found["z"], [3, 1])
    np.testing.assert_array_equal(found["a"][0], [[[0.5], [-1]], [[1], [0.25]]])
    np.testing.assert_array_equal(found["a"][1], [[1, 3], [0, 0]])
    for row in range(2):
        assert space.contains({"z": found["z"][row], "a": (found["a"][0][row], found["a"][1][row])})


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(3, 9, (2,), np.uint8),
        spaces.Box(-(2**31), 2**31 - 1, (2,), np.int32),
        spaces.Box(-(2**40), 2**40, (2,), np.int64),
    ],
    ids=str,
)
def test_whole_numbers_are_counted_from_the_lowest(space):
    codec = action_codec(SpaceInfo.read(space))
    low = int(space.low[0])
    np.testing.assert_array_equal(codec.adapt(np.array([[0, 5]]))[0], [low, low + 5])
    for raw in (np.array([[0.0, 2.4]]), np.array([[-7.0, 1e30]]), np.array([[0, 2**50]])):
        assert space.contains(codec.adapt(raw)[0])
