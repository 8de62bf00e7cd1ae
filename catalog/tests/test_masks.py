"""Action masks as one boolean matrix, with a column for each choice that may be forbidden."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from masked_env import MASKED, random_mask

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionCodec, ActionMasks, action_codec, mask_key
from rlcatalog.errors import ActionMaskError, ConfigError, NotServedError, ObservationError
from rlcatalog.observations.batches import stack
from rlcatalog_preprocessors.actions.composites import CompositeCodec


def read(space):
    return SpaceInfo.read(space, "action")


def make_masks(space, key=None):
    return ActionMasks(read(space), key)


# --- the matrix -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "mask", "expected"),
    [
        pytest.param(
            spaces.Discrete(3, start=5),
            np.array([[1, 0, 1], [0, 1, 0]], np.int8),
            [[1, 0, 1], [0, 1, 0]],
            id="discrete",
        ),
        # Three columns for the first number, two for the second.
        pytest.param(
            spaces.MultiDiscrete([3, 2]),
            (np.array([[1, 0, 0]]), np.array([[0, 1]])),
            [[1, 0, 0, 0, 1]],
            id="multi-discrete",
        ),
        pytest.param(
            spaces.MultiDiscrete([[1, 2], [1, 2]]),
            (
                (np.array([[1]]), np.array([[0, 1]])),
                (np.array([[1]]), np.array([[1, 0]])),
            ),
            [[1, 0, 1, 1, 1, 0]],
            id="multi-discrete-of-two-axes",
        ),
        # A bit has a column for 0 and one for 1. Its mask is 0 or 1 to allow only that, 2 for both.
        pytest.param(spaces.MultiBinary(3), np.array([[0, 1, 2]]), [[1, 0, 0, 1, 1, 1]], id="bits"),
        pytest.param(
            spaces.MultiBinary((1, 2)), np.array([[[0, 1]]]), [[1, 0, 0, 1]], id="bits-of-two-axes"
        ),
        # A Box has no columns.
        pytest.param(
            spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (2,)), spaces.MultiBinary(1)]),
            (np.array([[0, 1]]), None, np.array([[2]])),
            [[0, 1, 1, 1]],
            id="tuple",
        ),
        pytest.param(
            spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(3)}),
            {"a": np.array([[0, 1]]), "b": np.array([[1, 0, 0]])},
            [[0, 1, 1, 0, 0]],
            id="dict",
        ),
        # Parts without a mask are not restricted.
        pytest.param(
            spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(3)}),
            {"a": np.array([[1, 0]])},
            [[1, 0, 1, 1, 1]],
            id="dict-without-the-mask-of-b",
        ),
        pytest.param(
            spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(3)}),
            {"a": None, "b": np.array([[0, 0, 1]])},
            [[1, 1, 0, 0, 1]],
            id="dict-with-none-for-a",
        ),
    ],
)
def test_matrix_has_a_column_for_each_choice(space, mask, expected):
    masks = make_masks(space)

    assert masks.size == len(expected[0])
    np.testing.assert_array_equal(masks.matrix(mask), expected)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.float32])
def test_matrix_itself_is_accepted_as_a_mask(dtype):
    matrix = np.array([[1, 0, 0, 1], [0, 1, 1, 1]], dtype)

    columns = make_masks(spaces.MultiBinary(2)).matrix(matrix, batch_size=2)

    np.testing.assert_array_equal(columns, matrix.astype(bool))


# Gymnasium's masks of a OneOf do not have the choice of a part, which these masks have.
@pytest.mark.parametrize("name", [name for name in MASKED if "one of" not in name])
def test_matrix_allows_what_gymnasium_samples(name):
    action_space, _ = MASKED[name]
    action_space.seed(0)
    rng = np.random.default_rng(1)
    masks = make_masks(action_space)
    codec = action_codec(read(action_space))

    for _ in range(50):
        mask = random_mask(action_space, rng)
        action = action_space.sample(mask=mask)

        [allowed] = masks.matrix([mask], batch_size=1)
        raw_actions = codec.invert(stack(read(action_space), [action]))
        # The columns of the matrix that stand for the choices in this action.
        [columns_of_action] = codec.mask_taken(raw_actions)

        assert allowed[columns_of_action].all()


# --- columns of actions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "actions", "columns"),
    [
        pytest.param(spaces.Discrete(3, start=5), np.array([5, 7]), [[0], [2]], id="discrete"),
        # Columns 0 to 2 are of the first number, 3 and 4 of the second.
        pytest.param(
            spaces.MultiDiscrete([3, 2]), np.array([[0, 0], [2, 1]]), [[0, 3], [2, 4]], id="numbers"
        ),
        # Columns 0 and 1 are of the first bit, 2 and 3 of the second.
        pytest.param(
            spaces.MultiBinary(2), np.array([[0, 0], [1, 1]]), [[0, 2], [1, 3]], id="bits"
        ),
        pytest.param(
            spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]),
            (np.array([0, 1]), np.array([0, 1])),
            [[0, 2], [1, 3]],
            id="tuple",
        ),
    ],
)
def test_codec_names_the_columns_of_actions(space, actions, columns):
    codec = action_codec(read(space))

    np.testing.assert_array_equal(codec.mask_taken(codec.invert(actions)), columns)


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
        make_masks(space).matrix(mask, rows)


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param({0: np.ones((1, 2)), 1: np.ones((1, 3))}, id="dict"),
        pytest.param((np.ones((1, 2)), np.ones((1, 3)), np.ones((1, 3))), id="too-many"),
        pytest.param({}, id="empty-dict"),
    ],
)
def test_mask_of_a_tuple_has_to_be_a_tuple_of_equal_length(mask):
    pair = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])

    with pytest.raises(ActionMaskError, match="action: expected a tuple of 2 masks"):
        make_masks(pair).matrix(mask)


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param((np.ones((2, 2)), None), id="tuple"),
        pytest.param(np.ones((2, 5)), id="matrix"),
    ],
)
def test_mask_with_another_number_of_rows_is_rejected(mask):
    masks = make_masks(spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)]))

    assert masks.matrix(mask, batch_size=2).shape == (2, 5)
    with pytest.raises(ActionMaskError, match=r"expected shape \(3, \d\)") as caught:
        masks.matrix(mask, batch_size=3)
    assert "found shape (2, " in str(caught.value)


def test_mask_of_a_box_is_rejected():
    with pytest.raises(NotServedError, match="no values that a mask could forbid") as caught:
        make_masks(spaces.Box(-1, 1, (2,))).matrix(np.ones((1, 2)))

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


#: Two observations, as a list of rows and as a dict of columns.
OBS_ROWS = [
    {"allowed": np.array([1, 0, 1], np.int8), "x": 0.5},
    {"allowed": np.array([0, 1, 0], np.int8), "x": 1.5},
]
OBS_COLUMNS = {"allowed": np.array([[1, 0, 1], [0, 1, 0]], np.int8), "x": np.array([0.5, 1.5])}


@pytest.mark.parametrize("obs", [OBS_ROWS, OBS_COLUMNS], ids=["rows", "columns"])
def test_mask_is_read_from_observations(obs):
    masks = make_masks(spaces.Discrete(3), "allowed")

    np.testing.assert_array_equal(masks.of(obs), [[True, False, True], [False, True, False]])


def test_mask_is_removed_from_observations():
    masks = make_masks(spaces.Discrete(3), "allowed")

    assert masks.without(OBS_ROWS) == [{"x": 0.5}, {"x": 1.5}]
    assert list(masks.without(OBS_COLUMNS)) == ["x"]


def test_mask_without_a_key_is_none():
    assert make_masks(spaces.Discrete(3)).of(OBS_ROWS) is None


@pytest.mark.parametrize(
    "obs",
    [
        pytest.param({"x": np.ones((3, 2))}, id="dict"),
        pytest.param([{"x": np.ones(2)}], id="list-of-dicts"),
        pytest.param(np.ones((3, 2)), id="array"),
    ],
)
def test_observation_without_its_mask_is_an_error(obs):
    masks = make_masks(spaces.Discrete(2), "action_mask")

    with pytest.raises(ObservationError, match="the action mask under 'action_mask'"):
        masks.of(obs)
