"""Action masks as one boolean matrix, with a column for each choice that may be forbidden.

`MASKED` has an action space of every kind; the columns of its masks are computed here a second
time, value by value.
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
    """Return the columns of one mask, value by value."""
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


def columns_of_action(space, action, start=0):
    """Return the columns of the values that an action has, counted from `start`."""
    if isinstance(space, spaces.Discrete):
        return [start + int(action) - int(space.start)]
    if isinstance(space, spaces.MultiDiscrete):
        counts = space.nvec.ravel()
        return list(start + np.cumsum(counts) - counts + (action - space.start).ravel())
    if isinstance(space, spaces.MultiBinary):
        # Each bit has a column for 0 and a column for 1.
        return [start + 2 * i + int(bit) for i, bit in enumerate(np.ravel(action))]
    if isinstance(space, spaces.Tuple):
        children = list(enumerate(space.spaces))
    elif isinstance(space, spaces.Dict):
        children = list(space.spaces.items())
    else:
        children = []
    found = []
    for key, child in children:
        found += columns_of_action(child, action[key], start)
        start += ActionMasks(read(child)).size
    return found


# --- the matrix -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["batched", "list-of-rows", "booleans", "int8"])
@pytest.mark.parametrize("name", MASKED)
def test_matrix_equals_gymnasium_masks_value_by_value(name, form):
    action_space, _ = MASKED[name]
    rng = np.random.default_rng(0)
    rows = [random_mask(action_space, rng) for _ in range(20)]
    expected = np.array([columns(action_space, row) for row in rows])
    masks = ActionMasks(read(action_space))
    mask = {
        "batched": batched(rows),
        "list-of-rows": rows,
        "booleans": expected,
        "int8": expected.astype(np.int8),
    }[form]

    assert masks.size == expected.shape[1]
    np.testing.assert_array_equal(masks.matrix(mask, 20), expected)
    np.testing.assert_array_equal(masks.matrix(mask), expected)


@pytest.mark.parametrize("name", MASKED)
def test_matrix_allows_what_gymnasium_samples(name):
    action_space, _ = MASKED[name]
    action_space.seed(0)
    rng = np.random.default_rng(1)
    masks = ActionMasks(read(action_space))

    for _ in range(50):
        mask = random_mask(action_space, rng)
        action = action_space.sample(mask=mask)

        [row] = masks.matrix(batched([mask]), 1)

        assert row[columns_of_action(action_space, action)].all()


DICT_OF_TWO = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(3)})


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        # Two columns for "a", three for "b".
        pytest.param({"a": np.array([[1, 0]])}, [[1, 0, 1, 1, 1]], id="absent"),
        pytest.param({"a": None, "b": np.array([[0, 0, 1]])}, [[1, 1, 0, 0, 1]], id="none"),
    ],
)
def test_matrix_allows_everything_for_parts_without_a_mask(mask, expected):
    np.testing.assert_array_equal(ActionMasks(read(DICT_OF_TWO)).matrix(mask), expected)


# --- columns of actions ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", MASKED)
def test_codec_names_the_columns_of_actions(name):
    action_space, _ = MASKED[name]
    action_space.seed(2)
    actions = [action_space.sample() for _ in range(20)]
    codec = action_codec(read(action_space))

    taken = codec.mask_taken(codec.invert(batched(actions)))

    for row, action in zip(taken.tolist(), actions, strict=True):
        assert sorted(row) == sorted(columns_of_action(action_space, action))


def test_codec_names_the_columns_of_one_hots():
    action_space = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,)), spaces.Discrete(2)])
    codec = action_codec(read(action_space), "clip", {"action[0]": "onehot"})

    # Three numbers of the one-hot, two of the Box, one index.
    raw = np.array([[0.1, 0.2, 0.7, 5.0, 5.0, 1.0], [0.8, 0.1, 0.1, 5.0, 5.0, 0.0]])

    # The one-hot has the columns 0 to 2, the Box has none, the index has 3 and 4.
    np.testing.assert_array_equal(codec.mask_taken(raw), [[2, 4], [0, 3]])


def test_codec_of_a_box_has_no_columns():
    codec = action_codec(read(spaces.Box(-1, 1, (2,))))

    assert codec.mask_taken(np.zeros((4, 2))).shape == (4, 0)


class PairsCodec(ActionCodec):
    """Has a mask of 4 columns, one for each pair of values, which `counts` does not show."""

    counts = (2, 2)

    def __init__(self, info, *others):
        super().__init__(info, *others)
        self.choices = [(info.path, 4)]


def test_codec_with_a_mask_of_its_own_names_no_columns():
    codec = PairsCodec(read(spaces.MultiBinary(2)))

    assert codec.mask_taken(np.zeros((1, 2), np.int64)) is None


def test_composite_of_a_codec_that_names_no_columns_names_none():
    action_space = spaces.Tuple([spaces.MultiBinary(2), spaces.Discrete(2)])
    children = [
        PairsCodec(read(spaces.MultiBinary(2))),
        action_codec(read(spaces.Discrete(2))),
    ]
    codec = CompositeCodec(read(action_space), "values", "clip", children)

    assert codec.mask_taken(np.zeros((1, 3), np.int64)) is None


# --- invalid masks --------------------------------------------------------------------------------

NESTED = spaces.Tuple([spaces.Discrete(2), spaces.MultiDiscrete([2, 3])])


@pytest.mark.parametrize(
    ("space", "mask", "rows", "cause"),
    [
        pytest.param(
            spaces.Discrete(3),
            [[1, 0, 0], [0, 0, 0]],
            2,
            "row 1 allows no action",
            id="nothing-allowed",
        ),
        pytest.param(
            spaces.MultiDiscrete([2, 2]),
            [[1, 0, 1, 1], [1, 1, 0, 0]],
            2,
            r"row 1 allows nothing for action\[1\]",
            id="nothing-allowed-in-a-dimension",
        ),
        pytest.param(
            NESTED,
            (np.ones((1, 2)), (np.ones((1, 2)), np.zeros((1, 3)))),
            1,
            r"row 0 allows nothing .* action\[1\]\[1\]",
            id="nothing-allowed-in-a-nested-dimension",
        ),
        pytest.param(
            spaces.Discrete(3),
            np.ones((2, 4)),
            2,
            r"action: expected shape \(2, 3\); found",
            id="too-many-columns",
        ),
        pytest.param(
            spaces.Discrete(3),
            [[1, 1], [1]],
            2,
            r"action: expected shape \(2, 3\)",
            id="ragged-rows",
        ),
        pytest.param(
            NESTED, (np.ones((2, 2)),), 2, "action: expected a tuple of 2 masks", id="too-few-masks"
        ),
        pytest.param(
            NESTED,
            (np.ones((2, 2)), (np.ones((2, 2)), np.ones((2, 2)))),
            2,
            r"action\[1\]: .* arrays .* n = \[2, 3\]",
            id="too-few-columns-in-a-dimension",
        ),
        pytest.param(
            spaces.Dict({"a": spaces.Discrete(2)}),
            {"b": np.ones((2, 2))},
            2,
            "action: expected a dict with keys of",
            id="unknown-key",
        ),
    ],
)
def test_invalid_mask_error_names_the_place(space, mask, rows, cause):
    with pytest.raises(ActionMaskError, match=f"mask: {cause}"):
        ActionMasks(read(space)).matrix(mask, rows)


def test_mask_of_a_box_is_rejected():
    with pytest.raises(NotServedError, match="no values that a mask could forbid") as caught:
        ActionMasks(read(spaces.Box(-1, 1, (2,)))).matrix(np.ones((1, 2)))

    assert "action: Box(2,) float32 has" in str(caught.value)


# --- masks in observations ------------------------------------------------------------------------


@pytest.mark.parametrize("name", MASKED)
def test_mask_key_finds_the_mask_in_the_observation(name):
    action_space, mask_space = MASKED[name]
    obs = SpaceInfo.read(spaces.Dict({"x": spaces.Box(0, 1, (2,)), "action_mask": mask_space}))

    assert mask_key(obs, read(action_space), "action_mask") == "action_mask"


@pytest.mark.parametrize("name", MASKED)
def test_mask_key_is_none_without_a_mask(name):
    action_space, mask_space = MASKED[name]
    obs = SpaceInfo.read(spaces.Dict({"x": spaces.Box(0, 1, (2,)), "action_mask": mask_space}))
    box = spaces.Box(-1, 1, (2,))

    assert mask_key(obs, read(action_space), "another_key") is None
    assert mask_key(obs.without("action_mask"), read(action_space), "action_mask") is None
    assert mask_key(obs, read(box), "action_mask") is None  # a Box has no choices


def test_mask_key_of_another_entry_is_an_error():
    obs = SpaceInfo.read(spaces.Dict({"action_mask": spaces.MultiBinary(4)}))

    with pytest.raises(ConfigError, match=r"not an action mask for Discrete\(3\)") as caught:
        mask_key(obs, read(spaces.Discrete(3)), "action_mask")

    assert str(caught.value).startswith("obs['action_mask']: ")
    assert "'action_mask_key'" in str(caught.value)


@pytest.mark.parametrize(
    "obs",
    [
        pytest.param({"x": np.ones((3, 2))}, id="dict"),
        pytest.param([{"x": np.ones(2)}], id="list-of-dicts"),
        pytest.param(np.ones((3, 2)), id="array"),
    ],
)
def test_observation_without_its_mask_is_an_error(obs):
    masks = ActionMasks(read(spaces.Discrete(2)), "action_mask")

    with pytest.raises(ObservationError, match="the action mask under 'action_mask'"):
        masks.of(obs)
