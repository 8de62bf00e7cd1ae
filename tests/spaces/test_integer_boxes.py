"""Actions of integer Boxes, over the whole range of every dtype, against Python's integers, which
have no bounds.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from properties import share

import rlcatalog
from rlcatalog import SpaceInfo, ViewRequirement
from rlcatalog.actions import action_codec
from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

OBS = spaces.Box(-1, 1, (2,), np.float32)
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


def number_of_examples(count):
    return settings(
        max_examples=share(count),
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


def representations(raw):
    """Return raw values in each of the dtypes that hold them exactly."""
    largest = raw.max() if raw.size else 0
    arrays = [raw]
    if largest <= INT.max:
        arrays.append(raw.astype(np.int64))
    if largest <= 2**24:  # a float32 has 24 bits for an integer
        arrays.append(raw.astype(np.float32))
    return arrays


@number_of_examples(150)
@given(spaces_and_raw())
def test_adapt_agrees_with_python_integers(space_and_raw):
    space, raw = space_and_raw
    codec = make_codec(space)

    for array in representations(raw):
        action = codec.adapt(array)

        assert action.dtype == space.dtype
        assert action.shape == (len(raw), *space.shape)
        assert to_lists(action) == adapt_in_python(space, raw.tolist())
        assert all(space.contains(np.asarray(row)) for row in action)


@number_of_examples(150)
@given(spaces_and_raw())
def test_invert_returns_the_raw_integers(space_and_raw):
    space, raw = space_and_raw
    codec = make_codec(space)
    action = codec.adapt(raw)

    inverted = codec.invert(action)

    assert inverted.dtype.kind in "iu"
    assert inverted.tolist() == raw.tolist()
    assert codec.invert(action.tolist()).tolist() == raw.tolist()  # Python's integers


@number_of_examples(100)
@given(
    spaces_and_raw(),
    st.lists(st.integers(INT.min, INT.max), min_size=4, max_size=4),  # 4 values at most
    st.booleans(),
)
def test_adapt_clips_any_raw_value_into_the_space(space_and_raw, values, as_floats):
    space, _ = space_and_raw
    raw = np.array([values[: int(np.prod(space.shape))]])
    assume(raw.size)
    if as_floats:
        raw = raw.astype(np.float32)

    action = make_codec(space).adapt(raw)

    assert space.contains(np.asarray(action[0]))
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
    narrow = spaces.Box(-5, 2**24 - 5, (2,), np.int64)
    wide = spaces.Box(-5, 2**24 - 4, (2,), np.int64)

    accepted = SpaceInfo.read(spaces.Tuple([narrow, floats]), "action")
    rejected = SpaceInfo.read(spaces.Tuple([wide, floats]), "action")

    # The check needs raw kinds, which are known once distributions are chosen.
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
BESIDE_FLOATS = spaces.Dict({**NARROW_BOXES, "x": OBS})


def build_with_random_weights(space, framework):
    """Build a policy whose outputs differ from row to row."""
    policy = rlcatalog.build(OBS, space, SMALL, framework)
    rng = np.random.default_rng(0)
    weights = {}
    for name, array in policy.model.get_weights().items():
        weights[name] = array + rng.normal(0, 0.2, array.shape).astype(array.dtype)
    policy.model.set_weights(weights)
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
        if box is OBS:
            assert all(box.contains(row) for row in action)
        else:
            assert_drawn_from(box, step.raw_action[:, first:last], action)
        first = last
    assert first == step.raw_action.shape[1]


@frameworks
def test_policy_draws_exactly_the_values_of_a_box(framework):
    space = spaces.Box(2**53, 2**53 + 3, (2,), np.int64)
    policy = build_with_random_weights(space, framework)

    step = policy.act(random_observations(300))

    assert step.raw_action.dtype == np.int64
    assert_drawn_from(space, step.raw_action, step.action)


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
@pytest.mark.parametrize(
    "space", [BOXES["beyond float64"], spaces.Dict(BOXES)], ids=["a box", "a dict of all"]
)
def test_loaded_policy_scores_integer_actions_as_drawn(framework, space, tmp_path):
    build_with_random_weights(space, framework).save(tmp_path)
    policy = rlcatalog.load(tmp_path)
    assert policy.action_space == space
    obs = random_observations(300)
    step = policy.act(obs)

    raw_action = policy.action_codec.invert(step.action)
    logp = policy.evaluate({"obs": obs, "raw_action": raw_action}).logp

    np.testing.assert_array_equal(raw_action, step.raw_action)
    if framework == "torch":
        logp = logp.detach()
    np.testing.assert_allclose(logp.numpy(), step.logp, rtol=1e-4, atol=1e-4)


@frameworks
def test_saved_space_with_floats_is_loaded(framework, tmp_path):
    build_with_random_weights(BESIDE_FLOATS, framework).save(tmp_path)
    policy = rlcatalog.load(tmp_path)

    assert policy.action_space == BESIDE_FLOATS
    assert_parts_drawn_from(BESIDE_FLOATS, policy.act(random_observations(300)))


@frameworks
@pytest.mark.parametrize(
    ("low", "high", "logits"),
    [(0, 2**53, "9,007,199,254,740,993"), (INT.min, INT.max, "18,446")],
    ids=["2**53", "all of int64"],
)
def test_boxes_with_too_many_values_are_rejected_by_name(framework, low, high, logits):
    space = spaces.Dict({"n": spaces.Box(low, high, (1,), np.int64), "x": OBS})

    with pytest.raises(UnsupportedSpaceError, match=rf"action\['n'\]: .* would need {logits}"):
        rlcatalog.build(OBS, space, SMALL, framework)


# --- past actions as inputs -----------------------------------------------------------------------


@boxes
def test_inputs_are_raw_actions_divided_by_their_span(space):
    low, high = space.low.reshape(-1).tolist(), space.high.reshape(-1).tolist()
    spans = [int(last) - int(first) for first, last in zip(low, high, strict=True)]
    smallest = [0] * len(spans)
    middle = [span // 2 for span in spans]
    raw = np.array([smallest, spans, middle])

    inputs = make_codec(space).inputs(raw)

    expected = []
    for row in raw.tolist():
        # A box of one value has the span 0, and its input is 0.
        expected.append([value / max(span, 1) for value, span in zip(row, spans, strict=True)])
    np.testing.assert_allclose(inputs, expected, rtol=1e-7)


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
    space = spaces.Box(2**53, 2**53 + 3, (2,), np.int64)
    policy = rlcatalog.build(OBS, space, {"custom_model": model}, framework)
    stepper = policy.stepper(5)
    last_raw = np.zeros((5, 2))  # before the first step

    for _ in range(4):
        step = stepper.step(random_observations(5))

        inputs = last_raw / 3  # 3 is the span of the box
        np.testing.assert_allclose(step.dist_inputs[:, 0], inputs.sum(1), rtol=1e-6)
        np.testing.assert_array_equal(step.value, last_raw[:, 0])
        last_raw = step.raw_action
