"""Action masks as one matrix: Gymnasium's format of every kind of action space, and what is
refused.
"""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from masked_env import MASKED, random_mask

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionCodec, ActionMasks, action_codec, mask_key
from rlcatalog.errors import ActionMaskError, ConfigError, NotServedError, ObservationError
from rlcatalog_preprocessors.actions.composites import CompositeCodec


def read(space):
    return SpaceInfo.read(space, "action")


def columns(space, mask):
    """The columns of one mask, value by value."""
    if isinstance(space, spaces.Discrete):
        return [bool(v) for v in mask]
    if isinstance(space, spaces.MultiDiscrete):
        return _columns(space.nvec, mask)
    if isinstance(space, spaces.MultiBinary):
        return [bit for v in np.ravel(mask) for bit in (v != 1, v != 0)]
    if isinstance(space, spaces.Tuple):
        return [
            v for child, part in zip(space.spaces, mask, strict=True) for v in columns(child, part)
        ]
    if isinstance(space, spaces.Dict):
        return [v for key, child in space.spaces.items() for v in columns(child, mask[key])]
    return []


def _columns(nvec, mask):
    if np.ndim(nvec) == 0:
        return [bool(v) for v in mask]
    return [v for part, inner in zip(nvec, mask, strict=True) for v in _columns(part, inner)]


def batched(masks):
    """Stack masks as a vector environment would."""
    first = masks[0]
    if first is None:
        return None
    if isinstance(first, dict):
        return {key: batched([mask[key] for mask in masks]) for key in first}
    if isinstance(first, tuple):
        return tuple(batched(list(part)) for part in zip(*masks, strict=True))
    return np.stack(masks)


@pytest.mark.parametrize("name", MASKED)
def test_gymnasiums_format_as_a_matrix(name):
    space, rng = MASKED[name][0], np.random.default_rng(0)
    rows = [random_mask(space, rng) for _ in range(20)]
    masks, expected = ActionMasks(read(space)), np.array([columns(space, row) for row in rows])
    assert masks.size == expected.shape[1]
    for form in (batched(rows), rows, expected, expected.astype(np.int8)):
        np.testing.assert_array_equal(masks.matrix(form, 20), expected)
        np.testing.assert_array_equal(masks.matrix(form), expected)


@pytest.mark.parametrize("name", MASKED)
def test_gymnasium_draws_what_the_matrix_allows(name):
    """The other way round: what Gymnasium's own sample(mask=...) draws is allowed by
    the columns.
    """
    space, rng = MASKED[name][0], np.random.default_rng(1)
    space.seed(0)
    for _ in range(50):
        mask = random_mask(space, rng)
        matrix = ActionMasks(read(space)).matrix(batched([mask]), 1)[0]
        drawn = space.sample(mask=mask)
        assert matrix[_places(space, drawn)].all()


@pytest.mark.parametrize("name", MASKED)
def test_a_codec_names_the_columns_that_actions_take(name):
    space = MASKED[name][0]
    space.seed(2)
    drawn = [space.sample() for _ in range(20)]
    codec = action_codec(read(space))
    taken = codec.mask_taken(codec.invert(batched(drawn)))
    assert [sorted(row) for row in taken.tolist()] == [
        sorted(map(int, _places(space, action))) for action in drawn
    ]


def test_columns_of_a_one_hot_and_of_what_has_none():
    kinds = {"action[0]": "onehot"}
    codec = action_codec(
        read(spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,)), spaces.Discrete(2)])),
        "clip",
        kinds,
    )
    raw = np.array([[0.1, 0.2, 0.7, 5.0, 5.0, 1.0], [0.8, 0.1, 0.1, 5.0, 5.0, 0.0]])
    np.testing.assert_array_equal(codec.mask_taken(raw), [[2, 4], [0, 3]])
    assert action_codec(read(spaces.Box(-1, 1, (2,)))).mask_taken(np.zeros((4, 2))).shape == (4, 0)


class PairsCodec(ActionCodec):
    """A mask forbids pairs of values, which `counts` does not show."""

    counts = (2, 2)

    def __init__(self, info, *others):
        super().__init__(info, *others)
        self.choices = [(info.path, 4)]


def test_columns_that_only_a_codec_of_its_own_could_name():
    pair = PairsCodec(read(spaces.MultiBinary(2)))
    assert pair.mask_taken(np.zeros((1, 2), np.int64)) is None
    beside = CompositeCodec(
        read(spaces.Tuple([spaces.MultiBinary(2), spaces.Discrete(2)])),
        "values",
        "clip",
        [pair, action_codec(read(spaces.Discrete(2)))],
    )
    assert beside.mask_taken(np.zeros((1, 3), np.int64)) is None


def _places(space, action, start=0):
    """The columns of the values an action takes."""
    if isinstance(space, spaces.Discrete):
        return [start + int(action) - int(space.start)]
    if isinstance(space, spaces.MultiDiscrete):
        counts = space.nvec.ravel()
        return list(start + np.cumsum(counts) - counts + (action - space.start).ravel())
    if isinstance(space, spaces.MultiBinary):
        return [start + 2 * i + int(bit) for i, bit in enumerate(np.ravel(action))]
    found = []
    if isinstance(space, spaces.Tuple | spaces.Dict):
        keyed = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, child in keyed:
            found += _places(child, action[key], start)
            start += ActionMasks(read(child)).size
    return found


def test_parts_without_a_mask_are_free():
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(3)})
    masks = ActionMasks(read(space))
    np.testing.assert_array_equal(
        masks.matrix({"a": np.array([[1, 0]])}), [[True, False, True, True, True]]
    )
    np.testing.assert_array_equal(
        masks.matrix({"b": np.array([[0, 0, 1]]), "a": None}), [[1, 1, 0, 0, 1]]
    )


TWO = spaces.Tuple([spaces.Discrete(2), spaces.MultiDiscrete([2, 3])])


@pytest.mark.parametrize(
    ("space", "mask", "said"),
    [
        (spaces.Discrete(3), [[1, 0, 0], [0, 0, 0]], "row 1 allows no action"),
        (
            spaces.MultiDiscrete([2, 2]),
            [[1, 0, 1, 1], [1, 1, 0, 0]],
            r"row 1 allows nothing for action\[1\]",
        ),
        (
            TWO,
            (np.ones((1, 2)), (np.ones((1, 2)), np.zeros((1, 3)))),
            r"row 0 allows nothing for action\[1\]\[1\]",
        ),
        (
            spaces.Discrete(3),
            np.ones((2, 4)),
            r"action: expected shape \(2, 3\); found shape \(2, 4\)",
        ),
        (spaces.Discrete(3), [[1, 1], [1]], r"action: expected shape \(2, 3\)"),
        (TWO, (np.ones((2, 2)),), r"action: expected a tuple of 2 masks"),
        (
            TWO,
            (np.ones((2, 2)), (np.ones((2, 2)), np.ones((2, 2)))),
            r"action\[1\]: expected arrays .* n = \[2, 3\]",
        ),
        (
            spaces.Dict({"a": spaces.Discrete(2)}),
            {"b": np.ones((2, 2))},
            r"action: expected a dict with keys of",
        ),
    ],
)
def test_what_is_no_mask_is_refused(space, mask, said):
    rows = 1 if "row 0" in said else 2
    with pytest.raises(ActionMaskError, match=f"mask: {said}"):
        ActionMasks(read(space)).matrix(mask, rows)


def test_a_box_has_nothing_to_forbid():
    with pytest.raises(
        NotServedError, match=r"action: Box\(2,\) float32 has no values that a mask could forbid"
    ):
        ActionMasks(read(spaces.Box(-1, 1, (2,)))).matrix(np.ones((1, 2)))


# --- in observations ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_is_found_in_the_observation(name):
    action, mask = MASKED[name]
    obs = SpaceInfo.read(spaces.Dict({"x": spaces.Box(0, 1, (2,)), "action_mask": mask}))
    assert mask_key(obs, read(action), "action_mask") == "action_mask"
    assert mask_key(obs, read(action), "mask") is None
    assert mask_key(obs.without("action_mask"), read(action), "action_mask") is None
    assert mask_key(obs, read(spaces.Box(-1, 1, (2,))), "action_mask") is None


def test_something_else_under_the_key_is_an_error_that_names_the_way_out():
    obs = SpaceInfo.read(spaces.Dict({"action_mask": spaces.MultiBinary(4)}))
    with pytest.raises(
        ConfigError,
        match=r"obs\['action_mask'\]: .* is not an action mask for"
        r" Discrete\(3\).*'action_mask_key'",
    ):
        mask_key(obs, read(spaces.Discrete(3)), "action_mask")


def test_a_missing_mask_is_an_error_of_the_observation():
    masks = ActionMasks(read(spaces.Discrete(2)), "action_mask")
    for obs in ({"x": np.ones((3, 2))}, [{"x": np.ones(2)}], np.ones((3, 2))):
        with pytest.raises(
            ObservationError, match="expected a dict with the action mask under 'action_mask'"
        ):
            masks.of(obs)
