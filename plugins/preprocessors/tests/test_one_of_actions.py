"""The action codec of OneOf: pairs and raw actions, model inputs, masks and errors."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionMasks, action_codec, first_row
from rlcatalog.errors import ActionError, ActionMaskError, UnsupportedSpaceError
from rlcatalog.frameworks import tensor_ops

#: Raw actions: the choice, the Discrete counted from 0, two numbers scaled from [-1, 1], the bits.
SPACE = spaces.OneOf(
    [
        spaces.Discrete(3, start=5),
        spaces.Box(0, 10, (2,), np.float32),
        spaces.MultiBinary(2),
    ]
)
RAW = np.array(
    [[0, 2, 0, 0, 0, 0], [1, 0, -1, 0.5, 0, 0], [2, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0]], np.float32
)
NESTED = spaces.Dict(
    {
        "act": spaces.OneOf([spaces.Discrete(2), SPACE, spaces.Tuple([spaces.Discrete(2), SPACE])]),
        "gear": spaces.Discrete(2),
    }
)


def make_codec(space=SPACE):
    return action_codec(SpaceInfo.read(space, "action"), "affine", raw_kinds={})


def make_masks(space=SPACE):
    return ActionMasks(SpaceInfo.read(space, "action"))


# --- pairs and raw actions ------------------------------------------------------------------------


def test_raw_actions_become_pairs():
    actions = make_codec().adapt(RAW)

    assert [place for place, _ in actions] == [0, 1, 2, 0]
    assert actions[0][1] == 7
    np.testing.assert_array_equal(actions[1][1], [0, 7.5])
    np.testing.assert_array_equal(actions[2][1], [1, 0])
    assert actions[3][1] == 5
    assert all(SPACE.contains(action) for action in actions)
    assert batch_space(SPACE, 4).contains(tuple(actions))
    assert first_row(actions) == (0, 7)


def test_values_of_parts_that_are_not_chosen_are_not_read():
    garbage = RAW.copy()
    garbage[:, 1:][~make_codec().used(RAW)[:, 1:]] = np.nan
    codec = make_codec()

    codec.check_raw(garbage)
    actions = codec.adapt(garbage)

    np.testing.assert_array_equal(codec.invert(actions), RAW)
    np.testing.assert_array_equal(codec.inputs(garbage), codec.inputs(RAW))


@pytest.mark.parametrize("space", [SPACE, NESTED], ids=["alone", "nested"])
def test_pairs_are_inverted(space):
    space.seed(0)
    info = SpaceInfo.read(space, "action")
    samples = [space.sample() for _ in range(50)]
    codec = make_codec(space)
    batch = samples
    if space is NESTED:
        batch = {key: [sample[key] for sample in samples] for key in space.spaces}
        batch["gear"] = np.array(batch["gear"])

    raw = codec.invert(batch)
    again = codec.invert(codec.adapt(raw))

    codec.check_raw(raw)
    np.testing.assert_allclose(again, raw, atol=1e-6)
    assert raw.shape == (50, codec.width)
    assert info.space is space


def test_batch_may_be_a_tuple_as_in_vector_environments():
    codec = make_codec()

    np.testing.assert_array_equal(codec.invert(tuple(codec.adapt(RAW))), RAW)


def test_raw_actions_without_numbers_are_integers():
    codec = make_codec(spaces.OneOf([spaces.Discrete(2), spaces.MultiDiscrete([3, 2])]))

    assert codec.whole
    assert codec.counts == (2, 2, 3, 2)
    raw = codec.invert([(1, np.array([2, 0])), (0, 1)])
    np.testing.assert_array_equal(raw, [[1, 0, 2, 0], [0, 1, 0, 0]])
    assert raw.dtype == np.int64


def test_leaf_actions_hold_only_rows_that_choose_the_leaf():
    codec = make_codec()

    leaves = {leaf.info.path: actions for leaf, actions in codec.leaf_actions(codec.adapt(RAW))}

    np.testing.assert_array_equal(leaves["action.choice"], [0, 1, 2, 0])
    np.testing.assert_array_equal(leaves["action[0]"], [7, 5])
    np.testing.assert_array_equal(leaves["action[1]"], [[0, 7.5]])


def test_leaves_of_a_file_are_joined_by_the_choice():
    codec = make_codec()
    # An exported file has an output for each leaf, in each row.
    numbers = np.tile(np.float32([0, 7.5]), (4, 1))
    leaves = [np.array([0, 1, 2, 0]), np.array([7, 7, 7, 5]), numbers, np.tile([1, 0], (4, 1))]

    joined = codec.join_leaves(iter(leaves))

    np.testing.assert_array_equal(codec.invert(joined), RAW)


# --- as model inputs ------------------------------------------------------------------------------


def test_inputs_are_one_hot_choice_and_chosen_part():
    inputs = make_codec().inputs(RAW)

    choice, discrete, numbers, bits = np.split(inputs, [3, 6, 8], axis=1)
    np.testing.assert_array_equal(choice, np.eye(3)[[0, 1, 2, 0]])
    np.testing.assert_array_equal(discrete, [[0, 0, 1], [0, 0, 0], [0, 0, 0], [1, 0, 0]])
    np.testing.assert_array_equal(numbers, [[0, 0], [-1, 0.5], [0, 0], [0, 0]])
    np.testing.assert_array_equal(bits, [[0, 0], [0, 0], [1, 0], [0, 0]])


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("space", [SPACE, NESTED], ids=["alone", "nested"])
def test_tensor_form_equals_codec(framework, space):
    ops = tensor_ops(framework)
    codec = make_codec(space)
    space.seed(1)
    rows = []
    for _ in range(30):
        sample = space.sample()
        batch = [sample]
        if space is NESTED:
            batch = {"act": [sample["act"]], "gear": np.array([sample["gear"]])}
        rows.append(codec.invert(batch)[0])
    raw = np.array(rows, np.float32)
    tensor = ops.tensor(raw)
    lowered = codec.lowered(codec, ops)

    actions = [np.asarray(ops.array(action)) for _, action in lowered.adapt(tensor)]

    np.testing.assert_allclose(ops.array(lowered.inputs(tensor)), codec.inputs(raw), atol=1e-6)
    joined = codec.join_leaves(iter(actions))
    np.testing.assert_allclose(codec.invert(joined), raw, atol=1e-5)


# --- masks ----------------------------------------------------------------------------------------

#: In Gymnasium's format: one value of the Discrete, no mask for numbers, the first bit is 0.
PART_MASKS = (np.array([[0, 0, 1]]), None, np.array([[0, 2]]))
COLUMNS_OF_PARTS = [0, 0, 1, 1, 0, 1, 1]


def test_mask_of_gymnasium_leaves_the_choice_open():
    matrix = make_masks().matrix(PART_MASKS)

    np.testing.assert_array_equal(matrix, [[1, 1, 1, *COLUMNS_OF_PARTS]])


def test_gymnasium_samples_with_the_same_mask():
    mask = tuple(None if part is None else part[0].astype(np.int8) for part in PART_MASKS)
    codec = make_codec()
    matrix = make_masks().matrix(PART_MASKS)
    SPACE.seed(0)

    samples = [SPACE.sample(mask=mask) for _ in range(100)]

    taken = codec.mask_taken(codec.invert(samples))
    assert matrix[0][taken].all()
    assert {place for place, _ in samples} == {0, 1, 2}


def test_mask_of_the_choice_comes_first():
    matrix = make_masks().matrix((np.array([[1, 0, 1]]), *PART_MASKS))

    np.testing.assert_array_equal(matrix, [[1, 0, 1, *COLUMNS_OF_PARTS]])


def test_masks_may_come_one_for_each_row():
    one = (np.array([1, 0, 1]), np.array([0, 1, 1]), None, np.array([2, 1]))
    other = (np.array([1, 1, 1]), np.array([1, 1, 1]), None, np.array([0, 2]))

    matrix = make_masks().matrix([one, other])

    np.testing.assert_array_equal(
        matrix, [[1, 0, 1, 0, 1, 1, 1, 1, 0, 1], [1, 1, 1, 1, 1, 1, 1, 0, 1, 1]]
    )


@pytest.mark.parametrize(
    "mask",
    [
        # No part may be chosen.
        (np.array([[0, 0, 0]]), None, None, None),
        # The only part that may be chosen allows nothing.
        (np.array([[1, 0, 0]]), np.zeros((1, 3)), None, None),
    ],
)
def test_row_without_action_is_refused(mask):
    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        make_masks().matrix(mask)


def test_row_without_action_in_a_part_of_a_dict_names_its_path():
    space = spaces.Dict({"act": SPACE, "gear": spaces.Discrete(2)})

    with pytest.raises(ActionMaskError, match=r"allows nothing for action\['act'\]"):
        make_masks(space).matrix({"act": (np.zeros((1, 3)), None, None, None)}, 1)


def test_part_that_is_shut_may_allow_nothing():
    mask = (np.array([[0, 1, 1]]), np.zeros((1, 3)), None, None)

    assert make_masks().matrix(mask)[0, 3:6].tolist() == [False] * 3


@pytest.mark.parametrize(
    "mask", [(None, None), (None,) * 5, {"a": None}], ids=["too few", "too many", "a dict"]
)
def test_mask_of_wrong_structure_is_refused(mask):
    with pytest.raises(ActionMaskError, match="a tuple of 3 masks, one for each part"):
        make_masks().matrix(mask, 1)


def test_taken_columns_are_those_of_choice_and_chosen_part():
    taken = make_codec().mask_taken(RAW)

    # Columns: 3 of the choice, 3 of the Discrete, 2 for each bit. Choices of other parts repeat the
    # column of the choice.
    np.testing.assert_array_equal(taken, [[0, 5, 0, 0], [1, 1, 1, 1], [2, 2, 7, 8], [0, 3, 0, 0]])


@pytest.mark.parametrize("has_choice", [True, False])
def test_places_in_an_encoded_mask(has_choice):
    entries = [spaces.MultiBinary(3), spaces.Box(0, 1, (0,), np.int8), spaces.Box(0, 2, (2,))]
    values = [0, 1, 1, 2, 0]  # of the Discrete, and of the bits
    if has_choice:
        entries = [spaces.MultiBinary(3), *entries]
        values = [1, 0, 1, *values]
    shown = SpaceInfo.read(spaces.Tuple(entries))

    places = make_codec().mask_places_in(shown)

    allowed = [place < len(values) and values[place] != forbidding for place, forbidding in places]
    choice = [True, False, True] if has_choice else [True] * 3
    assert allowed == [*choice, False, True, True, True, True, True, False]


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "found"),
    [
        (5, "found int"),
        ([(0, 5), 3], "found 3 in row 1"),
        ([(3, 5)], "the part 3 in row 0"),
        ([(1.5, 5)], "the part 1.5 in row 0"),
        ([(1, [0.5])], "actions of Box"),
    ],
)
def test_other_actions_are_refused(actions, found):
    with pytest.raises(ActionError, match=found):
        make_codec().invert(actions)


def test_value_of_chosen_part_outside_its_space_is_refused():
    with pytest.raises(ActionError, match="integers from 5 to 7"):
        make_codec().invert([(0, 9)])


def test_raw_action_with_unknown_part_is_refused():
    raw = RAW.copy()
    raw[1, 0] = 3

    with pytest.raises(ActionError, match=r"action\.choice: expected an integer from 0 to 2"):
        make_codec().check_raw(raw)


def test_raw_value_of_chosen_part_is_checked_in_its_row():
    raw = RAW.copy()
    raw[3, 1] = 3  # the Discrete has three values

    with pytest.raises(ActionError, match=r"found 3\.0 in row 3"):
        make_codec().check_raw(raw)


def test_part_without_fixed_size_is_named():
    space = spaces.OneOf([spaces.Discrete(2), spaces.Text(3)])

    with pytest.raises(UnsupportedSpaceError, match=r"action\[1\].*no fixed size"):
        make_codec(space)
