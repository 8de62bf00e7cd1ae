"""Environments' actions in every form in which they are recorded, as raw actions."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

from rlcatalog import ActionCodecSpec, Catalog, SpaceInfo
from rlcatalog.actions import ActionCodec, action_codec
from rlcatalog.errors import ActionError, NotServedError, PartError
from rlcatalog.plugins.discovery import scan
from rlcatalog_policy.raw_actions import raw_actions

THREE, PAIR = spaces.Discrete(3, start=5), spaces.Box(-4, 4, (2,), np.float32)
DICT = spaces.Dict(a=THREE, b=PAIR)
TUPLE = spaces.Tuple([PAIR, THREE])


def policy_of(space, codec=None, catalog=None):
    """Return what raw_actions reads of a policy."""
    if catalog is None:
        catalog = Catalog([point for point in scan() if point.name == "preprocessors"], environ={})
    if codec is None:
        # With "clip", the raw values of a Box are the environment's.
        codec = action_codec(SpaceInfo.read(space, "action"), "clip")
    return SimpleNamespace(action_codec=codec, catalog=catalog)


@pytest.mark.parametrize(
    ("space", "actions", "raw"),
    [
        (THREE, 6, [[1]]),
        (THREE, [6], [[1]]),
        (THREE, [5, 7], [[0], [2]]),
        (THREE, np.int64(7), [[2]]),
        (THREE, torch.tensor([5, 6]), [[0], [1]]),
        (THREE, tf.constant([7]), [[2]]),
        (THREE, torch.tensor(6), [[1]]),
        (PAIR, [1, 2], [[1, 2]]),
        (PAIR, [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        (PAIR, np.float64([1, 2]), [[1, 2]]),
        (PAIR, [np.float32([1, 2]), np.float32([3, 4])], [[1, 2], [3, 4]]),
        (PAIR, torch.tensor([[1.0, 2]]), [[1, 2]]),
        (DICT, {"a": 6, "b": [1, 2]}, [[1, 1, 2]]),
        (DICT, {"a": [6, 5], "b": [[1, 2], [3, 4]]}, [[1, 1, 2], [0, 3, 4]]),
        (DICT, [{"a": 6, "b": [1, 2]}, {"a": 7, "b": np.float32([3, 4])}], [[1, 1, 2], [2, 3, 4]]),
        (DICT, {"b": torch.tensor([1.0, 2]), "a": torch.tensor(7)}, [[2, 1, 2]]),
        (TUPLE, ([1, 2], 6), [[1, 2, 1]]),
        (TUPLE, ([[1, 2], [3, 4]], [6, 7]), [[1, 2, 1], [3, 4, 2]]),
        (TUPLE, [([1, 2], 6), ([3, 4], 7)], [[1, 2, 1], [3, 4, 2]]),
        (TUPLE, [([1, 2], 6)], [[1, 2, 1]]),
        (spaces.Tuple([DICT, THREE]), ({"a": 6, "b": [1, 2]}, 7), [[1, 1, 2, 2]]),
        (spaces.Tuple([DICT, THREE]), ({"a": [6], "b": [[1, 2]]}, [7]), [[1, 1, 2, 2]]),
        (spaces.MultiDiscrete([2, 3]), [1, 2], [[1, 2]]),
        (spaces.MultiDiscrete([2, 3]), [[1, 2], [0, 0]], [[1, 2], [0, 0]]),
        (spaces.MultiBinary(2), [1, 0], [[1, 0]]),
        (
            spaces.Tuple([DICT, DICT]),
            ({"a": 6, "b": [1, 2]}, {"a": 7, "b": [3, 4]}),
            [[1, 1, 2, 2, 3, 4]],
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_one_action_a_list_and_a_batch_are_told_apart(space, actions, raw):
    raw_found = raw_actions(policy_of(space), actions)
    assert isinstance(raw_found, np.ndarray)
    np.testing.assert_array_equal(raw_found, raw)


@pytest.mark.parametrize("space", [THREE, PAIR, DICT, TUPLE], ids=str)
def test_no_actions_are_an_empty_batch(space):
    policy, one = policy_of(space), space.sample()
    assert raw_actions(policy, []).shape == (0, policy.action_codec.width)
    assert raw_actions(policy, []).dtype == raw_actions(policy, [one]).dtype


@pytest.mark.parametrize(
    ("space", "actions", "match"),
    [
        (
            DICT,
            [{"a": 6}, {"b": [1, 2]}],
            r"^actions: action: this list has actions outside Dict.*: ",
        ),
        (DICT, [{"a": 6, "b": [1, 2]}, 7], "expected a dict with the keys"),
        (TUPLE, [([1, 2], 6), ([3], 7)], "this list has actions outside Tuple"),
        (DICT, {"a": 6}, "expected a dict with the keys"),
        (DICT, 7, "expected a dict with the keys"),
        (DICT, None, "expected a dict"),
        (TUPLE, {"a": 1}, "found dict"),
        (TUPLE, ([1, 2],), "expected"),
        (TUPLE, ([1, 2], 6, 7), "expected"),
        (TUPLE, 7, "expected"),
        (THREE, 4, "4"),
        (THREE, [5, 8], "8"),
        (THREE, [[5], [6]], "expected numbers"),
        (PAIR, [[1, 2], [3]], "expected"),
        (PAIR, [1, 2, 3], "expected"),
        (PAIR, 1.0, "expected"),
        (THREE, "text", "expected"),
        (PAIR, [(1, 2), (3,)], "expected numbers of shape"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_other_actions_are_refused(space, actions, match):
    with pytest.raises(ActionError, match=match):
        raw_actions(policy_of(space), actions)


def test_tensors_of_a_trace_have_no_values():
    policy = policy_of(PAIR)
    with pytest.raises(ActionError, match="actions: expected values, found a tensor from a trace"):
        tf.function(lambda x: raw_actions(policy, x))(tf.zeros((1, 2)))


# --- codecs of plugins ----------------------------------------------------------------------------


class Words(gym.Space):
    """A kind of space without a shape, whose actions are any structures but batches
    of one action.
    """

    def contains(self, x):
        return not (isinstance(x, tuple) and len(x) == 1)


class Table(ActionCodec):
    """A codec that looks the environment's actions up in a list."""

    listed = ()

    def _size(self):
        return 1

    def invert(self, actions):
        return np.arange(len(actions))[:, None]

    def adapt(self, raw):
        return [self.listed[int(i)] for i in raw[:, 0]]


class Point(gym.Space):
    """A kind of space with a shape."""

    def __init__(self, top=10.0):
        super().__init__((2,), np.float32)
        self.top = top

    def contains(self, x):
        return bool(np.all(np.abs(x) <= self.top))


class Scaled(ActionCodec):
    """Raw values are a tenth of an action's; `error` is added to what comes back."""

    error = 0.0

    def adapt(self, raw):
        return raw * 10 + self.error

    def invert(self, actions):
        return np.asarray(actions) / 10


class NoInverse(Scaled):
    """Defines only adapt anew."""

    def adapt(self, raw):
        return raw * 10 + 1


class Both(Scaled):
    """Defines both anew, one of them wrongly."""

    def adapt(self, raw):
        return raw * 10 + 1

    def invert(self, actions):
        return np.asarray(actions) / 10


@pytest.fixture
def point(module):
    """Make what raw_actions reads of a policy with a plugin's codec:
    `point(Scaled, **attributes)`.
    """

    def make(cls, space=None, **attributes):
        cls = type(cls.__name__, (cls,), attributes) if attributes else cls
        space = Point() if space is None else space
        module(Codec=cls)
        catalog = Catalog([entry for entry in scan() if entry.name == "preprocessors"], environ={})
        kind = f"{type(space).__module__}.{type(space).__qualname__}"
        catalog.register(
            ActionCodecSpec("point", {"numpy": "made_up_parts:Codec"}, "", kinds=(kind,))
        )
        return policy_of(space, cls(SpaceInfo.read(space, "action")), catalog)

    return make


ACTIONS = np.float32([[1, 2], [-3, 4]])


def test_plugins_codec_may_be_wrong_by_rounding(point):
    for error in (0.0, 9e-6, -9e-6):
        np.testing.assert_allclose(
            raw_actions(point(Scaled, error=error), 0 * ACTIONS), 0 * ACTIONS
        )
    np.testing.assert_allclose(raw_actions(point(Scaled), ACTIONS), ACTIONS / 10)
    for error in (1.2e-5, -1.2e-5, 1.0, np.nan):
        with pytest.raises(
            PartError, match=r"Scaled\.invert\(\) of .* gives .*, which adapt\(\) turns into"
        ):
            raw_actions(point(Scaled, error=error), 0 * ACTIONS)
    near, far = ({"adapt": lambda self, raw, by=by: raw * 10 * by} for by in (1 + 9e-5, 1 + 1.6e-4))
    raw_actions(point(Scaled, invert=Scaled.invert, **near), ACTIONS)
    with pytest.raises(PartError, match="turns into"):
        raw_actions(point(Scaled, invert=Scaled.invert, **far), ACTIONS)


def test_actions_outside_a_plugins_space_are_named(point):
    def adapt(self, raw):
        return np.clip(raw * 10, -10, 10)

    policy = point(Scaled, adapt=adapt, invert=Scaled.invert)
    np.testing.assert_allclose(raw_actions(policy, ACTIONS), ACTIONS / 10)
    with pytest.raises(
        ActionError, match=r"^actions: action: expected actions of .*; found .*30.* in row 1\.$"
    ):
        raw_actions(policy, np.float32([[1, 2], [30, 0]]))


def test_codec_that_defines_only_one_way_has_no_inverse(point):
    with pytest.raises(
        NotServedError,
        match=r"NoInverse of .*action_codec 'point'\) has no inverse: it defines adapt\(\)",
    ):
        raw_actions(point(NoInverse), ACTIONS)
    with pytest.raises(PartError, match=r"Both\.invert\(\) of .* turns into"):
        raw_actions(point(Both), ACTIONS)


@pytest.mark.parametrize(
    ("error", "match"),
    [
        (NotImplementedError(), "has no inverse; store step.raw_action"),
        (
            NotServedError("turns are not counted."),
            r"has no inverse: turns are not counted\. So store step.raw_action",
        ),
    ],
)
def test_why_there_is_no_inverse_is_told(point, error, match):
    def invert(self, actions):
        raise error

    with pytest.raises(NotServedError, match=match):
        raw_actions(point(Scaled, invert=invert), ACTIONS)


@pytest.mark.parametrize("shape", [(2,), (1, 2), (2, 1), (2, 2, 1)], ids=str)
def test_raw_actions_have_the_codecs_shape(point, shape):
    match = (
        r"invert\(\) must return an array of shape \(2, 2\) for 2 actions of .*; found"
        rf" \({str(shape)[1:-1]}\)\."
    )
    with pytest.raises(PartError, match=match):
        raw_actions(point(Scaled, invert=lambda self, actions: np.zeros(shape)), ACTIONS)
    with pytest.raises(PartError, match="found 'text'"):
        raw_actions(point(Scaled, invert=lambda self, actions: "text"), ACTIONS)


NESTED = {"a": (1, {"b": "x"}), "c": [2.5]}


@pytest.mark.parametrize(
    ("action", "again", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
        ({"a": 1, "b": 2}, {"a": 3, "b": 2}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "b": 2}, {"a": 1, "c": 2}, False),
        ({"a": 1, "b": 2}, [1, 2], False),
        ({"a": 1}, 1, False),
        ((1, 2), (1, 2), True),
        ((1, 2), [1, 2], True),
        ((1, 2), np.array([1, 2]), True),
        ((1, 2), (1, 3), False),
        ((1, 2), (3, 2), False),
        ((1, 2), (1, 2, 3), False),
        ((1, 2, 3), (1, 2), False),
        ((1, 2), {"a": 1, "b": 2}, False),
        ((1, 2), 1, False),
        (1, 1, True),
        (1, 2, False),
        ("x", "x", True),
        ("x", "y", False),
        ((1, "x"), (1, "x"), True),
        ((1, "x"), (1, "y"), False),
        (np.ones(2), np.ones(2), True),
        (np.ones(2), np.ones(()), False),
        (np.ones(2), np.ones((1, 2)), False),
        (np.ones(2), np.array([1, 2]), False),
        (NESTED, NESTED, True),
        (NESTED, {**NESTED, "a": (1, {"b": "y"})}, False),
        (NESTED, {**NESTED, "c": [2.6]}, False),
    ],
    ids=lambda value: str(value)[:40],
)
def test_structures_come_back_as_they_were(point, action, again, same):
    policy = point(Table, Words(), listed=[again])
    if same:
        assert raw_actions(policy, (action,)).tolist() == [[0]]
        return
    with pytest.raises(
        PartError, match=r"Table\.invert\(\) of .* gives \[0\], which adapt\(\) turns into"
    ):
        raw_actions(policy, (action,))


def test_a_single_action_without_a_shape_is_told_from_a_batch_by_its_space(point):
    policy = point(Table, Words(), listed=["word", 7])
    assert raw_actions(policy, "word").tolist() == [[0]]
    assert raw_actions(policy, ("word",)).tolist() == [[0]]


def test_no_actions_without_a_shape_are_no_action(point):
    assert raw_actions(point(Table, Words()), []).shape == (0, 1)
