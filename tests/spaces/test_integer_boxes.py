"""Actions of integer Boxes, over the whole range of every dtype, against Python's integers, which
have no bounds.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from builders import randomize_weights, to_array
from gymnasium import spaces
from hypothesis import given, strategies as st
from properties import max_examples

import rlcatalog
from rlcatalog import SpaceInfo, ViewRequirement
from rlcatalog.actions import action_codec
from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

TWO_FEATURES = spaces.Box(-1, 1, (2,), np.float32)
SMALL = {"fcnet_hiddens": [4]}
INT, UINT = np.iinfo(np.int64), np.iinfo(np.uint64)
DTYPES = [
    "bool",
    *("int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
]
#: Where float64 and int64 end, and what lies just beyond.
BOXES = {
    "beyond float64": spaces.Box(2**53, 2**53 + 3, (2,), np.int64),
    "below float64": spaces.Box(-(2**53) - 3, -(2**53), (2,), np.int64),
    "low end of int64": spaces.Box(INT.min, INT.min + 2, (2,), np.int64),
    "high end of int64": spaces.Box(INT.max - 2, INT.max, (2,), np.int64),
    "beyond int64": spaces.Box(2**63 - 1, 2**63 + 2, (2,), np.uint64),
    "high end of uint64": spaces.Box(UINT.max - 3, UINT.max, (2,), np.uint64),
    "all of int8": spaces.Box(-128, 127, (2,), np.int8),
    "all of uint8": spaces.Box(0, 255, (1, 2), np.uint8),
    "bools": spaces.Box(0, 1, (3,), np.bool_),
    "one value": spaces.Box(INT.max, INT.max, (2,), np.int64),
    "bounds of each value": spaces.Box(
        np.array([[INT.min, -1, 2**53], [INT.max - 1, 0, -(2**60) - 1]]),
        np.array([[INT.min + 1, 5, 2**53 + 1], [INT.max, 0, -(2**60) + 1]]),
        dtype=np.int64,
    ),
    "bounds of each value, unsigned": spaces.Box(
        np.array([0, 2**63 + 1, UINT.max - 1], np.uint64),
        np.array([3, 2**63 + 2, UINT.max], np.uint64),
        dtype=np.uint64,
    ),
}
boxes = pytest.mark.parametrize("space", BOXES.values(), ids=BOXES)
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def make_codec(space):
    return action_codec(SpaceInfo.read(space, "action"))


def adapt_in_python(space, raw):
    """Return the actions of raw values, which count from the lower bound, as Python's integers."""
    bounds = list(zip(space.low.reshape(-1).tolist(), space.high.reshape(-1).tolist(), strict=True))
    actions = []
    for row in raw:
        action = []
        for value, (low, high) in zip(row, bounds, strict=True):
            last = int(high) - int(low)
            action.append(int(low) + min(max(round(value), 0), last))
        actions.append(action)
    return actions


def to_lists(action):
    return [[int(value) for value in np.ravel(row).tolist()] for row in action]


# --- the codec: random spaces ---------------------------------------------------------------------


@st.composite
def spaces_and_raw(draw):
    """Draw a Box of integers, and rows of raw values in it."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    if dtype.kind == "b":
        least, most = 0, 1
    else:
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    shape = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    values = st.one_of(st.integers(least, most), st.sampled_from([least, most]))
    size = int(np.prod(shape))
    bounds = [sorted((draw(values), draw(values))) for _ in range(size)]
    low, high = (np.array(bound, dtype).reshape(shape) for bound in zip(*bounds, strict=True))
    space = spaces.Box(low, high, shape, dtype.type)
    rows = draw(st.integers(0, 3))
    raw = []
    for _ in range(rows):
        raw.append([draw(st.integers(0, last - first)) for first, last in bounds])
    return space, np.array(raw, np.uint64).reshape(rows, size)


def in_dtypes_that_hold_it(raw):
    """Return raw values in each of the dtypes that hold them exactly."""
    largest = raw.max() if raw.size else 0
    arrays = [raw]
    if largest <= INT.max:
        arrays.append(raw.astype(np.int64))
    if largest <= 2**24:  # a float32 has 24 bits for an integer
        arrays.append(raw.astype(np.float32))
    return arrays


@max_examples(150)
@given(spaces_and_raw())
def test_adapted_actions_agree_with_python_integers(space_and_raw):
    space, raw = space_and_raw
    codec = make_codec(space)

    for same_raw in in_dtypes_that_hold_it(raw):
        action = codec.adapt(same_raw)

        assert action.dtype == space.dtype
        assert action.shape == (len(raw), *space.shape)
        assert to_lists(action) == adapt_in_python(space, raw.tolist())
        assert all(space.contains(np.asarray(row)) for row in action)


@max_examples(150)
@given(spaces_and_raw())
def test_invert_returns_the_raw_integers(space_and_raw):
    space, raw = space_and_raw
    codec = make_codec(space)
    action = codec.adapt(raw)

    inverted = codec.invert(action)

    assert inverted.dtype.kind in "iu"
    assert inverted.tolist() == raw.tolist()
    assert codec.invert(action.tolist()).tolist() == raw.tolist()  # Python's integers


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
@max_examples(100)
@given(
    st.integers(INT.min, INT.max),
    st.integers(INT.min, INT.max),
    st.integers(INT.min, INT.max),
)
def test_adapt_clips_any_raw_value_into_the_space(dtype, first, second, raw_value):
    low = min(first, second)
    high = max(first, second)
    space = spaces.Box(low, high, (1,), np.int64)
    raw = np.array([[raw_value]]).astype(dtype)

    action = make_codec(space).adapt(raw)

    assert space.contains(action[0])
    assert to_lists(action) == adapt_in_python(space, raw.tolist())


# --- the codec: single cases ----------------------------------------------------------------------


@pytest.mark.parametrize("large", [2.0**63, 2.0**64, 3e38, np.inf])
def test_floats_beyond_every_integer_are_clipped_to_the_bounds(large):
    space = spaces.Box(UINT.max - 3, UINT.max, (2,), np.uint64)

    action = make_codec(space).adapt(np.float32([[large, -large]]))

    assert action.tolist() == [[UINT.max, UINT.max - 3]]


@pytest.mark.parametrize(
    ("low", "dtype"), [(2**53, np.int64), (UINT.max - 3, np.uint64)], ids=["int64", "uint64"]
)
def test_floats_are_rounded_to_the_nearest_integer(low, dtype):
    space = spaces.Box(low, low + 3, (2,), dtype)

    action = make_codec(space).adapt(np.float32([[-0.4, 0.6], [1.4, 1.6], [2.6, 3.4]]))

    assert to_lists(action) == [[low, low + 1], [low + 1, low + 2], [low + 3, low + 3]]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_full_range_of_64_bits_is_inverted_exactly(dtype):
    space = spaces.Box(np.iinfo(dtype).min, np.iinfo(dtype).max, (2,), dtype)
    raw = np.array([[0, UINT.max], [2**63, 2**63 - 1], [2**53 + 1, UINT.max - 1]], np.uint64)
    codec = make_codec(space)

    action = codec.adapt(raw)

    assert to_lists(action) == adapt_in_python(space, raw.tolist())
    assert codec.invert(action).tolist() == raw.tolist()


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_multi_discretes_with_large_starts_stay_exact(dtype):
    space = spaces.MultiDiscrete([3, 4], start=[2**53 + 1, INT.max - 3])
    codec = make_codec(space)

    action = codec.adapt(np.array([[0, 0], [2, 3]], dtype))

    assert action.tolist() == [[2**53 + 1, INT.max - 3], [2**53 + 3, INT.max]]
    assert codec.invert(action).tolist() == [[0, 0], [2, 3]]


@pytest.mark.parametrize(
    "floats",
    [spaces.Box(0, 1, (1,), np.float32), spaces.Tuple([spaces.Box(0, 1, (1,), np.float64)])],
    ids=["float32", "float64 in a tuple"],
)
def test_integers_beyond_float32_are_rejected_beside_floats(floats):
    # Raw actions with floats are float32, which holds integers up to 2**24 exactly.
    up_to_2_24 = spaces.Box(-5, 2**24 - 5, (2,), np.int64)
    up_to_2_24_and_1 = spaces.Box(-5, 2**24 - 4, (2,), np.int64)
    accepted = SpaceInfo.read(spaces.Tuple([up_to_2_24, floats]), "action")
    rejected = SpaceInfo.read(spaces.Tuple([up_to_2_24_and_1, floats]), "action")

    action_codec(accepted, raw_kinds={})
    with pytest.raises(UnsupportedSpaceError, match=r"action\[0\]: .*16,777,218 values.*floats"):
        action_codec(rejected, raw_kinds={})


def test_integers_beyond_float32_are_accepted_beside_integers():
    wide = spaces.Box(-5, 2**24 - 4, (2,), np.int64)
    space = SpaceInfo.read(spaces.Tuple([wide, spaces.Discrete(3)]), "action")
    codec = action_codec(space, raw_kinds={})

    integers, _ = codec.adapt(np.array([[2**24 + 1, 0, 2]]))  # int64, and not float32

    assert integers.tolist() == [[2**24 - 4, -5]]


# --- policies -------------------------------------------------------------------------------------


NARROW_BOXES = {name: box for name, box in BOXES.items() if not name.startswith("all of")}
#: Boxes of integers beside one of floats.
BESIDE_FLOATS = spaces.Dict({**NARROW_BOXES, "x": TWO_FEATURES})


def build_with_random_weights(space, framework):
    policy = rlcatalog.build(TWO_FEATURES, space, SMALL, framework)
    randomize_weights(policy.model, deviation=0.2)
    return policy


def random_observations(rows):
    return np.random.default_rng(1).uniform(-1, 1, (rows, 2)).astype(np.float32)


def assert_all_values_drawn(box, action):
    """Assert that each part of the actions takes every value of a narrow box, and no other."""
    columns = zip(*to_lists(action), strict=True)
    for column, low, high in zip(columns, box.low.flat, box.high.flat, strict=True):
        span = int(high) - int(low)
        if span < 6:  # few enough values for 300 draws
            assert set(column) == {int(low) + i for i in range(span + 1)}


def assert_drawn_from(box, raw, action):
    assert all(box.contains(row) for row in action)
    assert to_lists(action) == adapt_in_python(box, raw.tolist())
    assert_all_values_drawn(box, action)


def assert_parts_drawn_from(space, step):
    """Assert it for each integer Box of a Dict; each takes the next columns of the raw action."""
    first = 0
    for key, box in space.spaces.items():
        action = step.action[key]
        last = first + action[0].size
        if box is TWO_FEATURES:
            assert all(box.contains(row) for row in action)
        else:
            assert_drawn_from(box, step.raw_action[:, first:last], action)
        first = last
    assert first == step.raw_action.shape[1]


@frameworks
def test_policy_draws_exactly_the_values_of_all_boxes(framework):
    space = spaces.Dict(BOXES)
    policy = build_with_random_weights(space, framework)

    step = policy.act(random_observations(300))

    assert step.raw_action.dtype == np.int64
    assert_parts_drawn_from(space, step)


@frameworks
def test_policy_draws_integers_beside_floats(framework):
    policy = build_with_random_weights(BESIDE_FLOATS, framework)

    step = policy.act(random_observations(300))

    assert step.raw_action.dtype == np.float32
    assert_parts_drawn_from(BESIDE_FLOATS, step)


@frameworks
def test_loaded_policy_scores_integer_actions_as_drawn(framework, tmp_path):
    space = spaces.Dict(BOXES)
    build_with_random_weights(space, framework).save(tmp_path)
    policy = rlcatalog.load(tmp_path)
    obs = random_observations(300)
    step = policy.act(obs)

    raw_action = policy.action_codec.invert(step.action)
    logp = policy.evaluate({"obs": obs, "raw_action": raw_action}).logp

    assert policy.action_space == space
    np.testing.assert_array_equal(raw_action, step.raw_action)
    np.testing.assert_allclose(to_array(logp), step.logp, rtol=1e-4, atol=1e-4)


@frameworks
@pytest.mark.parametrize(
    ("low", "high", "logits"),
    [(0, 2**53, "9,007,199,254,740,993"), (INT.min, INT.max, "18,446")],
    ids=["2**53", "all of int64"],
)
def test_boxes_with_too_many_values_are_rejected_by_name(framework, low, high, logits):
    space = spaces.Dict({"n": spaces.Box(low, high, (1,), np.int64), "x": TWO_FEATURES})

    with pytest.raises(UnsupportedSpaceError, match=rf"action\['n'\]: .* would need {logits}"):
        rlcatalog.build(TWO_FEATURES, space, SMALL, framework)


# --- past actions as inputs -----------------------------------------------------------------------


def test_inputs_are_raw_actions_divided_by_their_span():
    space = spaces.Box(np.array([2**53, -128]), np.array([2**53 + 3, 127]), dtype=np.int64)
    codec = make_codec(space)

    inputs = codec.inputs(np.array([[0, 0], [3, 255], [1, 51]]))

    # The spans of the two values are 3 and 255.
    np.testing.assert_allclose(inputs, [[0, 0], [1, 1], [1 / 3, 1 / 5]], rtol=1e-7)


@boxes
def test_inputs_lie_between_0_and_1(space):
    codec = make_codec(space)

    inputs_of_bounds = codec.inputs(codec.invert(np.stack([space.low, space.high])))

    has_one_value = space.low.ravel() == space.high.ravel()
    np.testing.assert_array_equal(inputs_of_bounds[0], np.zeros(codec.width))
    np.testing.assert_allclose(inputs_of_bounds[1], np.where(has_one_value, 0, 1), rtol=1e-7)


LAST_ACTION = {
    "input": ViewRequirement("action_inputs", shift=-1),
    "prev_actions": ViewRequirement("actions", shift=-1),
}


class TorchEcho(TorchModelV2):
    """Returns the sum of the last action's inputs as logits, and its first raw value as value."""

    def __init__(self, *args):
        super().__init__(*args)
        self.view_requirements |= LAST_ACTION

    def forward(self, input_dict, state, seq_lens):
        self.last_action = input_dict["prev_actions"].float()
        total = input_dict["input"].float().sum(1, keepdim=True)
        return total.repeat(1, self.num_outputs), state

    def value_function(self):
        return self.last_action[:, 0]


class TFEcho(TFModelV2):
    """The same in TensorFlow."""

    def __init__(self, *args):
        super().__init__(*args)
        self.view_requirements |= LAST_ACTION

    def forward(self, input_dict, state, seq_lens):
        self.last_action = tf.cast(input_dict["prev_actions"], tf.float32)
        total = tf.reduce_sum(input_dict["input"], axis=1, keepdims=True)
        return tf.tile(total, [1, self.num_outputs]), state

    def value_function(self):
        return self.last_action[:, 0]


@pytest.mark.parametrize(("framework", "model"), [("torch", TorchEcho), ("tf", TFEcho)])
def test_model_sees_past_actions_of_large_integers(framework, model):
    space = spaces.Box(2**53, 2**53 + 3, (2,), np.int64)  # its raw actions are 0 to 3
    policy = rlcatalog.build(TWO_FEATURES, space, {"custom_model": model}, framework)
    stepper = policy.stepper(5)  # for five environments
    last_raw_action = np.zeros((5, 2))  # before the first step

    for _ in range(4):
        step = stepper.step(random_observations(5))

        # The model returns the sum of its inputs as logits, and the first raw action as value.
        # Raw actions are divided by 3, the largest one, before the model reads them.
        sum_of_inputs = last_raw_action.sum(axis=1) / 3
        np.testing.assert_allclose(step.dist_inputs[:, 0], sum_of_inputs, rtol=1e-6)
        np.testing.assert_array_equal(step.value, last_raw_action[:, 0])
        last_raw_action = step.raw_action
