"""Actions of integer Boxes, over the whole range of every dtype, against Python's integers, which
have no bounds.
"""

from __future__ import annotations

import numpy as np
import pytest
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
DTYPES = ["bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
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
    "each its own": spaces.Box(
        np.array([[INT.min, -1, 2**53], [INT.max - 1, 0, -(2**60) - 1]]),
        np.array([[INT.min + 1, 5, 2**53 + 1], [INT.max, 0, -(2**60) + 1]]),
        dtype=np.int64,
    ),
    "each its own, unsigned": spaces.Box(
        np.array([0, 2**63 + 1, UINT.max - 1], np.uint64),
        np.array([3, 2**63 + 2, UINT.max], np.uint64),
        dtype=np.uint64,
    ),
}
boxes = pytest.mark.parametrize("space", BOXES.values(), ids=BOXES)
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def by_hand(space, raw):
    """Return the actions behind raw values that count from 0, in Python's integers."""
    low, high = space.low.reshape(-1).tolist(), space.high.reshape(-1).tolist()
    return [
        [
            int(first) + min(max(round(value), 0), int(last) - int(first))
            for value, first, last in zip(row, low, high, strict=True)
        ]
        for row in raw
    ]


def plain(action):
    return [[int(value) for value in np.ravel(row).tolist()] for row in action]


@st.composite
def spaces_and_raw(draw):
    """A Box of integers, and rows of raw values in it and beyond."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    least, most = (
        (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    )
    shape = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    values = st.one_of(st.integers(least, most), st.sampled_from([least, most]))
    size = int(np.prod(shape))
    pairs = [sorted((draw(values), draw(values))) for _ in range(size)]
    low, high = (np.array(bound, dtype).reshape(shape) for bound in zip(*pairs, strict=True))
    space = spaces.Box(low, high, shape, dtype.type)
    rows = draw(st.integers(0, 3))
    raw = [[draw(st.integers(0, b - a)) for a, b in pairs] for _ in range(rows)]
    return space, np.array(raw, np.uint64).reshape(rows, size)


@settings(
    max_examples=share(150),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(spaces_and_raw())
def test_adapt_agrees_with_python_integers(drawn):
    space, raw = drawn
    codec = action_codec(SpaceInfo.read(space, "action"))
    forms = [raw]
    if not raw.size or raw.max() <= INT.max:
        forms.append(raw.astype(np.int64))
    if not raw.size or raw.max() <= 2**24:  # as they stand next to floats
        forms.append(raw.astype(np.float32))
    for form in forms:
        action = codec.adapt(form)
        assert action.dtype == space.dtype
        assert action.shape == (len(raw), *space.shape)
        assert plain(action) == by_hand(space, raw.tolist())
        assert all(space.contains(np.asarray(row)) for row in action)
    back = codec.invert(action)
    assert back.dtype.kind in "iu"
    assert back.tolist() == raw.tolist()
    assert codec.invert(action.tolist()).tolist() == raw.tolist()


@settings(
    max_examples=share(100),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(
    spaces_and_raw(), st.lists(st.integers(INT.min, INT.max), min_size=4, max_size=4), st.booleans()
)
def test_adapt_clips_any_raw_value_into_the_space(drawn, beyond, floats):
    space = drawn[0]
    raw = np.array([beyond[: int(np.prod(space.shape))]])
    assume(raw.size)
    raw = raw.astype(np.float32) if floats else raw
    action = action_codec(SpaceInfo.read(space, "action")).adapt(raw)
    assert space.contains(np.asarray(action[0]))
    assert plain(action) == by_hand(space, raw.tolist())


@pytest.mark.parametrize("large", [2.0**63, 2.0**64, 3e38, np.inf])
def test_floats_beyond_every_integer_give_the_upper_bound(large):
    space = BOXES["high end of uint64"]
    action = action_codec(SpaceInfo.read(space, "action")).adapt(np.float32([[large, -large]]))
    assert action.tolist() == [[UINT.max, UINT.max - 3]]


def test_floats_that_are_not_whole_are_rounded():
    raw = np.float32([[-0.4, 0.6], [1.4, 1.6], [2.6, 3.4]])
    for name in ("beyond float64", "high end of uint64"):
        action = action_codec(SpaceInfo.read(BOXES[name], "action")).adapt(raw)
        assert plain(action) == by_hand(BOXES[name], [[0, 1], [1, 2], [3, 3]])


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_full_range_of_64_bits_is_inverted_exactly(dtype):
    space = spaces.Box(np.iinfo(dtype).min, np.iinfo(dtype).max, (2,), dtype)
    raw = np.array([[0, UINT.max], [2**63, 2**63 - 1], [2**53 + 1, UINT.max - 1]], np.uint64)
    codec = action_codec(SpaceInfo.read(space, "action"))
    assert plain(codec.adapt(raw)) == by_hand(space, raw.tolist())
    assert codec.invert(codec.adapt(raw)).tolist() == raw.tolist()


def build(space, framework, config=SMALL):
    policy = rlcatalog.build(OBS, space, config, framework)
    rng = np.random.default_rng(0)
    weights = policy.model.get_weights()
    policy.model.set_weights(
        {n: w + rng.normal(0, 0.2, w.shape).astype(w.dtype) for n, w in weights.items()}
    )
    return policy


def observations(rows):
    return np.random.default_rng(1).uniform(-1, 1, (rows, 2)).astype(np.float32)


def rows_of(space, action):
    """Return name, space, and actions of the parts of a Dict, or of the Box itself."""
    return (
        [(name, space[name], action[name]) for name in space]
        if isinstance(space, spaces.Dict)
        else [("itself", space, action)]
    )


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize("which", ["one", "all", "next to floats"])
def test_policy_draws_exactly_the_values_of_the_space(framework, which, tmp_path):
    few = {name: box for name, box in BOXES.items() if not name.startswith("all of")}
    space = {
        "one": BOXES["beyond float64"],
        "all": spaces.Dict(BOXES),
        "next to floats": spaces.Dict({**few, "x": OBS}),
    }[which]
    build(space, framework).save(tmp_path)
    policy, obs = rlcatalog.load(tmp_path), observations(300)
    assert policy.action_space == space
    step = policy.act(obs)
    assert step.raw_action.dtype == (np.float32 if which == "next to floats" else np.int64)
    first = 0
    for _, box, action in rows_of(space, step.action):
        raw = step.raw_action[:, first : first + action[0].size]
        first += action[0].size
        assert all(box.contains(row) for row in action)
        if box is OBS:
            continue
        assert plain(action) == by_hand(box, raw.tolist())
        for column, low, high in zip(
            zip(*plain(action), strict=True), box.low.flat, box.high.flat, strict=True
        ):
            if (span := int(high) - int(low)) < 6:
                assert set(column) == {int(low) + i for i in range(span + 1)}
    assert first == step.raw_action.shape[1]
    if which == "next to floats":
        return
    raw = policy.action_codec.invert(step.action)
    np.testing.assert_array_equal(raw, step.raw_action)
    found = policy.evaluate({"obs": obs, "raw_action": raw}).logp
    found = found.detach().numpy() if framework == "torch" else found.numpy()
    np.testing.assert_allclose(found, step.logp, rtol=1e-4, atol=1e-4)


def test_multi_discretes_that_begin_far_out_stay_exact():
    space = spaces.MultiDiscrete([3, 4], start=[2**53 + 1, INT.max - 3])
    codec = action_codec(SpaceInfo.read(space, "action"))
    for dtype in (np.int64, np.float32):
        action = codec.adapt(np.array([[0, 0], [2, 3]], dtype))
        assert action.tolist() == [[2**53 + 1, INT.max - 3], [2**53 + 3, INT.max]]
        assert codec.invert(action).tolist() == [[0, 0], [2, 3]]


@frameworks
@pytest.mark.parametrize(("low", "high"), [(0, 2**53), (INT.min, INT.max)])
def test_spans_that_are_too_wide_to_list_are_refused_by_name(framework, low, high):
    box = spaces.Box(low, high, (1,), np.int64)
    space = spaces.Dict({"n": box, "x": OBS})
    with pytest.raises(
        UnsupportedSpaceError,
        match=r"action\['n'\]: .* would need 9,007,199,254,740,993 logits|18,446",
    ):
        rlcatalog.build(OBS, space, SMALL, framework)


def test_integers_beyond_float32_are_rejected_beside_floats():
    wide, fine = (spaces.Box(-5, 2**24 - 5 + more, (2,), np.int64) for more in (1, 0))
    for other in (
        spaces.Box(0, 1, (1,), np.float32),
        spaces.Tuple([spaces.Box(0, 1, (1,), np.float64)]),
    ):
        action_codec(SpaceInfo.read(spaces.Tuple([fine, other]), "action"), raw_kinds={})
        with pytest.raises(
            UnsupportedSpaceError, match=r"action\[0\]: .*16,777,218 values.*next to floats"
        ):
            action_codec(SpaceInfo.read(spaces.Tuple([wide, other]), "action"), raw_kinds={})
    whole = spaces.Tuple([wide, spaces.Discrete(3)])
    action_codec(SpaceInfo.read(whole, "action"), raw_kinds={})  # all of it stays int64


@boxes
def test_past_actions_are_shown_as_parts_of_the_span(space):
    info = SpaceInfo.read(space, "action")
    low, high = space.low.reshape(-1).tolist(), space.high.reshape(-1).tolist()
    spans = [int(last) - int(first) for first, last in zip(low, high, strict=True)]
    raw = np.array([[0] * len(spans), spans, [span // 2 for span in spans]])
    expected = [
        [value / max(span, 1) for value, span in zip(row, spans, strict=True)]
        for row in raw.tolist()
    ]
    np.testing.assert_allclose(action_codec(info).inputs(raw), expected, rtol=1e-7)


class TorchSeer(TorchModelV2):
    def __init__(self, *args):
        super().__init__(*args)
        self.view_requirements["coded"] = ViewRequirement("action_inputs", shift=-1)
        self.view_requirements["prev_actions"] = ViewRequirement("actions", shift=-1)

    def forward(self, input_dict, state, seq_lens):
        self.seen = input_dict["prev_actions"].float()
        return (input_dict["coded"].float().sum(1, keepdim=True)).repeat(1, self.num_outputs), state

    def value_function(self):
        return self.seen[:, 0]


class TFSeer(TFModelV2):
    def __init__(self, *args):
        super().__init__(*args)
        self.view_requirements["coded"] = ViewRequirement("action_inputs", shift=-1)
        self.view_requirements["prev_actions"] = ViewRequirement("actions", shift=-1)

    def forward(self, input_dict, state, seq_lens):
        import tensorflow as tf

        self.seen = tf.cast(input_dict["prev_actions"], tf.float32)
        return tf.tile(
            tf.reduce_sum(input_dict["coded"], axis=1, keepdims=True), [1, self.num_outputs]
        ), state

    def value_function(self):
        return self.seen[:, 0]


@pytest.mark.parametrize(("framework", "seer"), [("torch", TorchSeer), ("tf", TFSeer)])
def test_model_sees_past_actions_of_large_integers(framework, seer):
    space = BOXES["beyond float64"]
    policy = rlcatalog.build(OBS, space, {"custom_model": seer}, framework)
    stepper = policy.stepper(5)
    last = np.zeros((5, 2))
    for _ in range(4):
        step = stepper.step(observations(5))
        np.testing.assert_allclose(step.dist_inputs[:, 0], (last / 3).sum(1), rtol=1e-6)
        np.testing.assert_array_equal(step.value, last[:, 0])
        last = step.raw_action
