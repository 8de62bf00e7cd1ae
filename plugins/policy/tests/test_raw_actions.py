"""`Policy.raw_action`: raw actions for an environment's actions in each form of them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from action_kinds import ACTIONS, DEPENDENT
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from small_catalogs import make_catalog

import rlcatalog
from rlcatalog import (
    ActionCodecSpec,
    ActionDistribution,
    ActionDistSpec,
    Match,
    Rank,
    SpaceInfo,
)
from rlcatalog.actions import ActionCodec, action_codec
from rlcatalog.errors import ActionError, NotServedError, PartError
from rlcatalog_policy.raw_actions import raw_actions
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])

SMALL = {"fcnet_hiddens": [8]}
#: Name → (action space, config), one for each kind of action.
KINDS = {**ACTIONS, **DEPENDENT}
TWO_NUMBERS = spaces.Box(-1, 1, (2,), np.float32)


def build_policy(action_space, config=None, framework="torch"):
    """Build a policy with larger weights than usual, so that rows of its outputs differ."""
    policy = rlcatalog.build(TWO_NUMBERS, action_space, {**SMALL, **(config or {})}, framework)
    random = np.random.default_rng(0)
    weights = policy.model.get_weights()
    for name, array in weights.items():
        weights[name] = array + random.normal(0, 0.3, array.shape).astype(array.dtype)
    policy.model.set_weights(weights)
    return policy


def random_observations(*, rows):
    return np.random.default_rng(1).uniform(-1, 1, (rows, 2)).astype(np.float32)


def batch_of(space, samples):
    """Return samples of a space in the form in which a vector environment takes them."""
    if isinstance(space, spaces.Tuple):
        return tuple(
            batch_of(child, [sample[index] for sample in samples])
            for index, child in enumerate(space.spaces)
        )
    if isinstance(space, spaces.Dict):
        return {
            key: batch_of(child, [sample[key] for sample in samples])
            for key, child in space.spaces.items()
        }
    if isinstance(space, spaces.OneOf):
        return list(samples)
    return np.stack([np.asarray(sample) for sample in samples])


# --- there and back -------------------------------------------------------------------------------


each_kind = pytest.mark.parametrize(("space", "config"), KINDS.values(), ids=KINDS)


@pytest.mark.grid
@pytest.mark.parametrize("bounds", ["clip", "affine"])
@each_kind
def test_adapt_restores_actions_from_their_raw_form(space, config, bounds):
    policy = build_policy(space, {"action_bounds": bounds, **config})
    space.seed(3)
    actions = batch_of(space, [space.sample() for _ in range(400)])

    raw_action = policy.raw_action(actions)

    assert raw_action.shape == (400, policy.action_codec.width)
    policy.action_codec.check_raw(raw_action)  # raises nothing
    is_exact = bounds == "clip"  # scaling to the bounds and back rounds
    assert data_equivalence(policy.adapt(raw_action), actions, exact=is_exact)


@each_kind
def test_batches_lists_and_single_actions_have_equal_raw_actions(space, config):
    policy = build_policy(space, config)
    space.seed(3)
    first = space.sample()
    second = space.sample()

    raw_of_batch = policy.raw_action(batch_of(space, [first, second]))
    raw_of_list = policy.raw_action([first, second])
    raw_of_first = policy.raw_action(first)

    np.testing.assert_array_equal(raw_of_list, raw_of_batch)
    np.testing.assert_array_equal(raw_of_first, raw_of_batch[:1])


@pytest.mark.grid
@pytest.mark.parametrize("bounds", ["clip", "affine"])
@each_kind
def test_raw_action_of_a_taken_action_is_the_drawn_one(space, config, bounds):
    if config.get("custom_action_dist") == "gumbel_softmax":
        pytest.skip("many relaxed choices become the same action")
    policy = build_policy(space, {"action_bounds": bounds, **config})
    step = policy.act(random_observations(rows=50))

    raw_action = policy.raw_action(step.action)

    # What lies beyond the limits of the space was clipped.
    low, high = policy.action_codec.limits
    expected = np.clip(step.raw_action, low, high)
    used = policy.action_codec.used(step.raw_action)
    if used is not None:
        expected = np.where(used, expected, 0)  # a part of a OneOf that is not chosen
    np.testing.assert_allclose(raw_action, expected, rtol=2e-3, atol=2e-3)


def test_raw_action_of_a_relaxed_choice_is_one_hot():
    space, config = KINDS["discrete, relaxed"]  # the actions 1 to 4
    policy = build_policy(space, config)

    raw_action = policy.raw_action([1, 4, 2])
    logp = policy.evaluate({"obs": random_observations(rows=3), "raw_action": raw_action}).logp

    assert raw_action.tolist() == [[1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]]
    assert torch.isfinite(logp).all()


# --- forms of actions -----------------------------------------------------------------------------


def convert_leaves(structure, convert):
    if isinstance(structure, tuple):
        return tuple(convert_leaves(part, convert) for part in structure)
    if isinstance(structure, dict):
        return {key: convert_leaves(part, convert) for key, part in structure.items()}
    return convert(structure)


@pytest.mark.parametrize(
    "convert",
    [torch.from_numpy, tf.constant, np.ndarray.tolist],
    ids=["torch", "tensorflow", "lists"],
)
def test_actions_may_be_tensors_or_lists(convert):
    space, _ = ACTIONS["dict"]
    policy = build_policy(space)
    space.seed(0)
    batch = batch_of(space, [space.sample() for _ in range(4)])

    raw_action = policy.raw_action(convert_leaves(batch, convert))

    np.testing.assert_array_equal(raw_action, policy.raw_action(batch))


def test_tensor_in_a_trace_is_an_error():
    policy = build_policy(TWO_NUMBERS, framework="tf")

    with pytest.raises(ActionError, match="found a tensor from a trace"):
        tf.function(policy.raw_action)(tf.zeros((1, 2)))


def policy_for(space):
    """Return an object with the two attributes of a policy that `raw_actions` reads.

    The raw values of a Box are the environment's.
    """
    codec = action_codec(SpaceInfo.read(space, "action"), "clip")
    return SimpleNamespace(action_codec=codec, catalog=make_catalog(plugins=["preprocessors"]))


FROM_5_TO_7 = spaces.Discrete(3, start=5)
NUMBERS = spaces.Box(-4, 4, (2,), np.float32)
DICT = spaces.Dict(a=FROM_5_TO_7, b=NUMBERS)
TUPLE = spaces.Tuple([NUMBERS, FROM_5_TO_7])


@pytest.mark.parametrize(
    ("space", "actions", "raw"),
    [
        # Choices are counted from 0 in raw actions.
        (FROM_5_TO_7, 6, [[1]]),
        (FROM_5_TO_7, [6], [[1]]),
        (FROM_5_TO_7, [5, 7], [[0], [2]]),
        (FROM_5_TO_7, np.int64(7), [[2]]),
        (FROM_5_TO_7, torch.tensor([5, 6]), [[0], [1]]),
        (FROM_5_TO_7, tf.constant([7]), [[2]]),
        (FROM_5_TO_7, torch.tensor(6), [[1]]),
        (NUMBERS, [1, 2], [[1, 2]]),
        (NUMBERS, [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        (NUMBERS, np.float64([1, 2]), [[1, 2]]),
        (NUMBERS, [np.float32([1, 2]), np.float32([3, 4])], [[1, 2], [3, 4]]),
        (NUMBERS, torch.tensor([[1.0, 2]]), [[1, 2]]),
        (DICT, {"a": 6, "b": [1, 2]}, [[1, 1, 2]]),
        (DICT, {"a": [6, 5], "b": [[1, 2], [3, 4]]}, [[1, 1, 2], [0, 3, 4]]),
        (DICT, [{"a": 6, "b": [1, 2]}, {"a": 7, "b": np.float32([3, 4])}], [[1, 1, 2], [2, 3, 4]]),
        (DICT, {"b": torch.tensor([1.0, 2]), "a": torch.tensor(7)}, [[2, 1, 2]]),
        (TUPLE, ([1, 2], 6), [[1, 2, 1]]),
        (TUPLE, ([[1, 2], [3, 4]], [6, 7]), [[1, 2, 1], [3, 4, 2]]),
        (TUPLE, [([1, 2], 6), ([3, 4], 7)], [[1, 2, 1], [3, 4, 2]]),
        (TUPLE, [([1, 2], 6)], [[1, 2, 1]]),
        (spaces.Tuple([DICT, FROM_5_TO_7]), ({"a": 6, "b": [1, 2]}, 7), [[1, 1, 2, 2]]),
        (spaces.Tuple([DICT, FROM_5_TO_7]), ({"a": [6], "b": [[1, 2]]}, [7]), [[1, 1, 2, 2]]),
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
def test_single_actions_lists_and_batches_are_distinguished(space, actions, raw):
    raw_action = raw_actions(policy_for(space), actions)

    assert isinstance(raw_action, np.ndarray)
    np.testing.assert_array_equal(raw_action, raw)


@pytest.mark.parametrize("space", [FROM_5_TO_7, NUMBERS, DICT, TUPLE], ids=str)
def test_empty_list_is_an_empty_batch(space):
    policy = policy_for(space)

    empty_batch = raw_actions(policy, [])

    assert empty_batch.shape == (0, policy.action_codec.width)
    assert empty_batch.dtype == raw_actions(policy, [space.sample()]).dtype


@pytest.mark.parametrize(
    ("space", "actions", "match"),
    [
        (DICT, [{"a": 6}, {"b": [1, 2]}], "^actions: action: this list has actions"),
        (DICT, [{"a": 6, "b": [1, 2]}, 7], "expected a dict with the keys"),
        (TUPLE, [([1, 2], 6), ([3], 7)], "this list has actions outside Tuple"),
        (DICT, {"a": 6}, "expected a dict with the keys"),
        (DICT, 7, "expected a dict with the keys"),
        (DICT, None, "expected a dict"),
        (TUPLE, {"a": 1}, "found dict"),
        (TUPLE, ([1, 2],), "expected"),
        (TUPLE, ([1, 2], 6, 7), "expected"),
        (TUPLE, 7, "expected"),
        (FROM_5_TO_7, 4, "4"),
        (FROM_5_TO_7, [5, 8], "8"),
        (FROM_5_TO_7, [[5], [6]], "expected numbers"),
        (NUMBERS, [[1, 2], [3]], "expected"),
        (NUMBERS, [1, 2, 3], "expected"),
        (NUMBERS, 1.0, "expected"),
        (FROM_5_TO_7, "text", "expected"),
        (NUMBERS, [(1, 2), (3,)], "expected numbers of shape"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_values_that_are_not_actions_are_an_error(space, actions, match):
    with pytest.raises(ActionError, match=match):
        raw_actions(policy_for(space), actions)


# --- batches without raw actions ------------------------------------------------------------------


@both_frameworks
def test_evaluate_accepts_raw_actions_of_recorded_ones(framework):
    policy = build_policy(TWO_NUMBERS, framework=framework)
    recorded_actions = random_observations(rows=2)
    obs = random_observations(rows=2)

    policy.evaluate({"obs": obs, "raw_action": policy.raw_action(recorded_actions)})


# --- codecs of plugins, with a policy -------------------------------------------------------------


class Angle(gym.Space):
    """Angles in degrees, from 0 to below 360."""

    def __init__(self, seed=None):
        super().__init__((1,), np.float32, seed)

    def sample(self, mask=None, probability=None):
        return self.np_random.uniform(0, 360, 1).astype(np.float32)

    def contains(self, x):
        angle = np.asarray(x)
        return angle.shape == (1,) and bool(0 <= angle[0] < 360)


class CodecWithoutInverse(ActionCodec):
    """The raw value of an angle is the number of turns, 0 to 1."""

    def adapt(self, raw):
        return (np.mod(raw, 1) * 360).astype(np.float32)


class CodecWithInverse(CodecWithoutInverse):
    def invert(self, action):
        return super().invert(action) / 360


class CodecThatRefuses(CodecWithoutInverse):
    def invert(self, action):
        raise NotServedError("turns are not counted.")


class CodecNotImplemented(CodecWithoutInverse):
    def invert(self, action):
        raise NotImplementedError


class CodecThatFails(CodecWithoutInverse):
    def invert(self, action):
        return action.degrees


class AngleDistribution(ActionDistribution):
    """Returns its input as the only action."""

    framework_of_class = "torch"

    def sample(self):
        return self.inputs.detach()


ANGLE_KIND = f"{__name__}.Angle"


@pytest.fixture
def build_angle_policy(monkeypatch):
    """Build a policy for a space with angles, with a codec of a plugin:
    `build_angle_policy(space, codec_class)`.
    """

    def match(request):
        if request.action is not None and request.action.kind == ANGLE_KIND:
            return Match(Rank.GENERIC, "an angle")
        return Match(None, "takes angles")

    def build(space, codec_class):
        monkeypatch.setitem(sys.modules, "angles", sys.modules[__name__])
        target = f"angles:{codec_class.__name__}"
        codec = ActionCodecSpec("angle", {"numpy": target}, "angles", kinds=(ANGLE_KIND,))
        dist = ActionDistSpec(
            "angle",
            {"torch": "angles:AngleDistribution"},
            "angles",
            match=match,
            size=lambda action, config: 1,
        )
        plugin = plugin_of(rlcatalog_action_codecs=[codec], rlcatalog_action_dists=[dist])
        installed = [
            "rlcatalog-preprocessors",
            "rlcatalog-fcnet",
            "rlcatalog-categorical",
            "rlcatalog-multi-action",
        ]
        catalog = isolated_catalog(*installed, PluginEntryPoint(plugin, "acme-angles"))
        return rlcatalog.build(TWO_NUMBERS, space, SMALL, "torch", catalog=catalog)

    return build


def as_plain_actions(angles):
    return np.float32(angles)[:, None]


def as_dict_actions(angles):
    return {"turn": np.float32(angles)[:, None], "go": np.zeros(len(angles), np.int64)}


angle_spaces = pytest.mark.parametrize(
    ("space", "as_actions"),
    [
        pytest.param(Angle(), as_plain_actions, id="alone"),
        pytest.param(
            spaces.Dict([("go", spaces.Discrete(2)), ("turn", Angle())]),
            as_dict_actions,
            id="in-a-dict",
        ),
    ],
)


@angle_spaces
def test_codec_of_a_plugin_inverts_its_actions(build_angle_policy, space, as_actions):
    policy = build_angle_policy(space, CodecWithInverse)

    raw_action = policy.raw_action(as_actions([0, 90, 270]))

    turns = raw_action[:, -1]  # "turn" is the last key of the Dict
    np.testing.assert_allclose(turns, [0, 0.25, 0.75])


@angle_spaces
def test_action_outside_of_a_plugins_space_is_an_error(build_angle_policy, space, as_actions):
    policy = build_angle_policy(space, CodecWithInverse)

    with pytest.raises(ActionError, match=r"actions: action.*: expected actions of ") as caught:
        policy.raw_action(as_actions([0, 400]))

    description = str(caught.value).partition("; found ")[2]
    assert "400" in description
    assert description.endswith(" in row 1.")


@angle_spaces
@pytest.mark.parametrize(
    ("codec_class", "error", "match"),
    [
        (
            CodecWithoutInverse,
            NotServedError,
            r"not invert\(\).*step\.raw_action",
        ),
        (CodecThatRefuses, NotServedError, "has no inverse: turns are not counted"),
        (CodecNotImplemented, NotServedError, "has no inverse; store"),
        (CodecThatFails, PartError, r"\.invert\(\) raised AttributeError"),
    ],
)
def test_codec_without_a_working_inverse_is_named(
    build_angle_policy, space, as_actions, codec_class, error, match
):
    policy = build_angle_policy(space, codec_class)

    with pytest.raises(error, match=match) as caught:
        policy.raw_action(as_actions([0, 90, 270]))

    assert "acme-angles 1.0" in str(caught.value)
    assert codec_class.__name__ in str(caught.value)


# --- codecs of plugins, without a policy ----------------------------------------------------------


class Point(gym.Space):
    """Two numbers from -10 to 10."""

    def __init__(self):
        super().__init__((2,), np.float32)

    def contains(self, x):
        return bool(np.all(np.abs(x) <= 10))


class TenthCodec(ActionCodec):
    """Raw values are a tenth of the action's."""

    def adapt(self, raw):
        return raw * 10

    def invert(self, actions):
        return np.asarray(actions) / 10


@pytest.fixture
def policy_for_codec(module):
    """Return what `raw_actions` reads of a policy whose codec comes from a plugin:
    `policy_for_codec(codec_class, space)`.
    """

    def make(codec_class, space=None):
        space = Point() if space is None else space
        module(Codec=codec_class)
        kind = f"{type(space).__module__}.{type(space).__qualname__}"
        spec = ActionCodecSpec("point", {"numpy": "made_up_parts:Codec"}, "", kinds=(kind,))
        catalog = make_catalog(plugins=["preprocessors"])
        catalog.register(spec)
        codec = codec_class(SpaceInfo.read(space, "action"))
        return SimpleNamespace(action_codec=codec, catalog=catalog)

    return make


#: Two actions of the space `Point`.
TWO_POINTS = np.float32([[1, 2], [-3, 4]])


def test_raw_actions_are_those_of_the_plugins_codec(policy_for_codec):
    raw_action = raw_actions(policy_for_codec(TenthCodec), np.float32([[1, 2], [-3, 4]]))

    np.testing.assert_allclose(raw_action, [[0.1, 0.2], [-0.3, 0.4]])


@pytest.mark.parametrize("error", [0.0, 9e-6, -9e-6])
def test_codec_may_return_zeros_with_an_error_below_1e_5(policy_for_codec, error):
    class InexactCodec(ActionCodec):
        def adapt(self, raw):
            return raw * 10 + error

        def invert(self, actions):
            return np.asarray(actions) / 10

    # `raw_actions` checks that `adapt` turns the result of `invert` into the actions again.
    policy = policy_for_codec(InexactCodec)

    raw_action = raw_actions(policy, np.float32([[0, 0]]))

    assert raw_action.tolist() == [[0, 0]]


@pytest.mark.parametrize("error", [1.2e-5, -1.2e-5, 1.0, np.nan])
def test_codec_that_returns_other_zeros_is_named(policy_for_codec, error):
    class WrongCodec(ActionCodec):
        def adapt(self, raw):
            return raw * 10 + error

        def invert(self, actions):
            return np.asarray(actions) / 10

    # `raw_actions` checks that `adapt` turns the result of `invert` into the actions again.
    policy = policy_for_codec(WrongCodec)

    with pytest.raises(PartError, match=r"WrongCodec\.invert\(\) of .* turns into"):
        raw_actions(policy, np.float32([[0, 0]]))


def test_codec_may_be_wrong_by_a_relative_error_below_1e_4(policy_for_codec):
    class InexactCodec(ActionCodec):
        def adapt(self, raw):
            return raw * 10 * (1 + 9e-5)

        def invert(self, actions):
            return np.asarray(actions) / 10

    raw_actions(policy_for_codec(InexactCodec), TWO_POINTS)  # raises nothing


def test_codec_with_a_larger_relative_error_is_named(policy_for_codec):
    class WrongCodec(ActionCodec):
        def adapt(self, raw):
            return raw * 10 * (1 + 1.6e-4)

        def invert(self, actions):
            return np.asarray(actions) / 10

    with pytest.raises(PartError, match="turns into"):
        raw_actions(policy_for_codec(WrongCodec), TWO_POINTS)


def test_codec_that_overrides_adapt_alone_has_no_inverse(policy_for_codec):
    # TenthCodec has both methods, but its `invert` is not the inverse of another `adapt`.
    class AdaptsOtherwise(TenthCodec):
        def adapt(self, raw):
            return raw * 10 + 1

    with pytest.raises(NotServedError, match=r"has no inverse: it defines adapt\(\)") as caught:
        raw_actions(policy_for_codec(AdaptsOtherwise), TWO_POINTS)

    assert "AdaptsOtherwise of " in str(caught.value)


@pytest.mark.parametrize("shape", [(2,), (1, 2), (2, 1), (2, 2, 1)], ids=str)
def test_raw_actions_of_another_shape_are_an_error(policy_for_codec, shape):
    class WrongShape(ActionCodec):
        def adapt(self, raw):
            return raw

        def invert(self, actions):
            return np.zeros(shape)

    two_actions = np.float32([[1, 2], [-3, 4]])

    with pytest.raises(PartError, match=r"return an array of shape \(2, 2\)") as e:
        raw_actions(policy_for_codec(WrongShape), two_actions)

    assert f"; found {shape}." in str(e.value)


def test_text_as_raw_actions_is_an_error(policy_for_codec):
    class ReturnsText(ActionCodec):
        def adapt(self, raw):
            return raw

        def invert(self, actions):
            return "text"

    with pytest.raises(PartError, match="found 'text'"):
        raw_actions(policy_for_codec(ReturnsText), TWO_POINTS)


# --- actions without a shape ----------------------------------------------------------------------


class AnyValue(gym.Space):
    """A space without a shape; it contains every value except tuples of one, which are batches."""

    def contains(self, x):
        return not (isinstance(x, tuple) and len(x) == 1)


def make_codec_that_restores(*actions):
    """Return a codec that turns the raw actions 0, 1, … into these actions."""

    class Restores(ActionCodec):
        def _size(self):
            return 1

        def invert(self, batch):
            return np.arange(len(batch))[:, None]

        def adapt(self, raw):
            return [actions[int(row[0])] for row in raw]

    return Restores


NESTED = {"a": (1, {"b": "x"}), "c": [2.5]}


@pytest.mark.parametrize(
    ("action", "restored"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ((1, 2), (1, 2)),
        ((1, 2), [1, 2]),
        ((1, 2), np.array([1, 2])),
        (1, 1),
        ("x", "x"),
        ((1, "x"), (1, "x")),
        (np.ones(2), np.ones(2)),
        (NESTED, NESTED),
    ],
    ids=lambda value: str(value)[:40],
)
def test_codec_may_restore_an_equal_structure(policy_for_codec, action, restored):
    policy = policy_for_codec(make_codec_that_restores(restored), AnyValue())

    assert raw_actions(policy, (action,)).tolist() == [[0]]


@pytest.mark.parametrize(
    ("action", "restored"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}),
        ({"a": 1, "b": 2}, {"a": 3, "b": 2}),
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, {"a": 1, "c": 2}),
        ({"a": 1, "b": 2}, [1, 2]),
        ({"a": 1}, 1),
        ((1, 2), (1, 3)),
        ((1, 2), (3, 2)),
        ((1, 2), (1, 2, 3)),
        ((1, 2, 3), (1, 2)),
        ((1, 2), {"a": 1, "b": 2}),
        ((1, 2), 1),
        (1, 2),
        ("x", "y"),
        ((1, "x"), (1, "y")),
        (np.ones(2), np.ones(())),
        (np.ones(2), np.ones((1, 2))),
        (np.ones(2), np.array([1, 2])),
        (NESTED, {"a": (1, {"b": "y"}), "c": [2.5]}),
        (NESTED, {"a": (1, {"b": "x"}), "c": [2.6]}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_codec_that_restores_another_structure_is_named(policy_for_codec, action, restored):
    policy = policy_for_codec(make_codec_that_restores(restored), AnyValue())

    with pytest.raises(PartError, match=r"gives \[0\], which adapt\(\) turns into") as caught:
        raw_actions(policy, (action,))

    assert "Restores.invert() of " in str(caught.value)


@pytest.mark.parametrize("actions", ["word", ("word",)], ids=["action", "batch"])
def test_action_without_a_shape_is_distinguished_by_its_space(policy_for_codec, actions):
    # The space contains "word", but not the batch ("word",).
    policy = policy_for_codec(make_codec_that_restores("word", 7), AnyValue())

    assert raw_actions(policy, actions).tolist() == [[0]]


def test_empty_list_without_a_shape_is_an_empty_batch(policy_for_codec):
    policy = policy_for_codec(make_codec_that_restores(), AnyValue())

    assert raw_actions(policy, []).shape == (0, 1)
