"""Inputs of a policy that are not observations, masks or stored actions: each is an error, and none
is taken for something else.

By default, only the first observation is compared with its space completely. Therefore most tests
pass a valid observation before an invalid one.
"""

from __future__ import annotations

import datetime
from functools import cache

import numpy as np
import pytest
import tensorflow as tf
import torch
from action_kinds import ACTIONS, DEPENDENT
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

import rlcatalog
from rlcatalog.errors import ActionError, ActionMaskError, ObservationError
from rlcatalog.spaces import Repeated, Simplex

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")
slow = pytest.mark.slow

# --- observations ---------------------------------------------------------------------------------

#: Description → function that makes an array of a shape, whose entries are no numbers.
MAKE_NO_NUMBERS = {
    "texts": lambda shape: np.full(shape, "1"),
    "bytes": lambda shape: np.full(shape, b"1"),
    "complex numbers": lambda shape: np.full(shape, 1 + 0j),
    "datetimes": lambda shape: np.full(shape, np.datetime64("2020-01-01")),
    "durations": lambda shape: np.full(shape, np.timedelta64(1, "s")),
    "nothing": lambda shape: np.full(shape, None),
    "objects": lambda shape: np.full(shape, datetime.date(2020, 1, 1)),
    "records": lambda shape: np.zeros(shape, [("a", "f4")]),
}
NUMBERS = {
    "float": spaces.Box(-9, 9, (3,), np.float32),
    "double": spaces.Box(-9, 9, (2, 2), np.float64),
    "number": spaces.Box(-9, 9, (), np.float32),
    "byte": spaces.Box(0, 200, (3,), np.uint8),
    "whole": spaces.Box(-9, 9, (2,), np.int64),
    "flag": spaces.Box(0, 1, (2,), np.bool_),
    "choice": spaces.Discrete(4, start=-1),
    "choices": spaces.MultiDiscrete([[3, 2], [2, 5]]),
    "bits": spaces.MultiBinary(3),
    "simplex": Simplex((3,)),
}
#: A Dict of all the spaces of numbers, a Tuple and a Text.
WORLD = spaces.Dict(
    {
        **NUMBERS,
        "more": spaces.Tuple([spaces.Discrete(3), NUMBERS["float"]]),
        "word": spaces.Text(4),
    }
)
#: A Dict of spaces whose values are lists or tuples.
LISTS = spaces.Dict(
    {
        "list": Repeated(NUMBERS["float"], 3),
        "pair": spaces.Tuple([NUMBERS["number"], NUMBERS["number"]]),
        "sequence": spaces.Sequence(NUMBERS["choice"]),
        "texts": spaces.Sequence(spaces.Text(3)),
        "stacked": spaces.Sequence(NUMBERS["float"], stack=True),
        "graph": spaces.Graph(NUMBERS["float"], NUMBERS["choice"]),
        "one": spaces.OneOf([NUMBERS["float"], NUMBERS["choice"]]),
    }
)


def make_preprocessor(space, *, check="first"):
    """Return a preprocessor that compares only the first observation with its space, or all."""
    config = {
        "sequence_max_len": 3,
        "graph_max_nodes": 4,
        "graph_max_edges": 4,
        "check_observations": check,
    }
    catalog = rlcatalog.default_catalog()
    return catalog.preprocessor_for(space, catalog.parse_config(config))


def wrap_in_dict(value):
    return {"a": value}


def leave_alone(value):
    return value


alone_or_in_a_dict = pytest.mark.parametrize(
    ("wrap", "path"),
    [
        pytest.param(leave_alone, "obs", id="alone"),
        pytest.param(wrap_in_dict, "obs['a']", id="dict"),
    ],
)
as_array_or_list = pytest.mark.parametrize(
    "convert", [leave_alone, np.ndarray.tolist], ids=["array", "list"]
)


def preprocessor_after_first_observation(space, wrap):
    """Return a preprocessor that has seen a valid observation, and checks less from now on."""
    whole_space = spaces.Dict({"a": space}) if wrap is wrap_in_dict else space
    preprocessor = make_preprocessor(whole_space)
    preprocessor.encode_batch([wrap(space.sample())])
    assert not preprocessor._checks_next
    return preprocessor


@pytest.mark.grid
@alone_or_in_a_dict
@as_array_or_list
@pytest.mark.parametrize("kind", MAKE_NO_NUMBERS)
@pytest.mark.parametrize("name", NUMBERS)
def test_observation_without_numbers_is_an_error(name, kind, wrap, path, convert):
    space = NUMBERS[name]
    preprocessor = preprocessor_after_first_observation(space, wrap)
    invalid_obs = wrap(convert(MAKE_NO_NUMBERS[kind](space.shape)))

    with pytest.raises(ObservationError) as caught:
        preprocessor.transform(invalid_obs)

    assert str(caught.value).startswith(f"{path}: expected")


@pytest.mark.grid
@alone_or_in_a_dict
@as_array_or_list
@pytest.mark.parametrize("kind", MAKE_NO_NUMBERS)
@pytest.mark.parametrize("name", NUMBERS)
def test_list_with_an_observation_without_numbers_is_an_error(name, kind, wrap, path, convert):
    space = NUMBERS[name]
    preprocessor = preprocessor_after_first_observation(space, wrap)
    invalid_obs = wrap(convert(MAKE_NO_NUMBERS[kind](space.shape)))

    with pytest.raises(ObservationError, match=r"^obs"):
        preprocessor.encode_batch([wrap(space.sample()), invalid_obs])


@pytest.mark.grid
@alone_or_in_a_dict
@pytest.mark.parametrize("kind", MAKE_NO_NUMBERS)
@pytest.mark.parametrize("name", NUMBERS)
def test_batch_without_numbers_is_an_error(name, kind, wrap, path):
    space = NUMBERS[name]
    preprocessor = preprocessor_after_first_observation(space, wrap)
    array = MAKE_NO_NUMBERS[kind]((2, *space.shape))

    with pytest.raises(ObservationError, match=r"^obs"):
        preprocessor.encode_batch(wrap(array))


@pytest.mark.grid
@alone_or_in_a_dict
@pytest.mark.parametrize("kind", MAKE_NO_NUMBERS)
@pytest.mark.parametrize("name", NUMBERS)
def test_batch_of_lists_without_numbers_is_an_error(name, kind, wrap, path):
    space = NUMBERS[name]
    preprocessor = preprocessor_after_first_observation(space, wrap)
    rows = MAKE_NO_NUMBERS[kind]((2, *space.shape)).tolist()
    # A plain list would be a list of observations; a tuple is a batch.
    batch = wrap(rows) if wrap is wrap_in_dict else tuple(rows)

    with pytest.raises(ObservationError, match=r"^obs"):
        preprocessor.encode_batch(batch)


def test_valid_observation_is_encoded_after_an_error():
    preprocessor = make_preprocessor(NUMBERS["float"])
    preprocessor.encode_batch([np.float32([1, 2, 3])])
    with pytest.raises(ObservationError):
        preprocessor.transform(np.array(["1", "2", "3"]))

    encoded = preprocessor.encode_batch([np.float32([1, 2, 3])])

    assert encoded.tolist() == [[1, 2, 3]]


def sample_lists():
    """Return an observation of `LISTS` that does not exceed the sizes in the config."""
    LISTS.seed(0)
    obs = {}
    for key, space in LISTS.spaces.items():
        if isinstance(space, spaces.Graph):
            obs[key] = space.sample(num_nodes=3, num_edges=2)
            continue
        value = space.sample()
        while not isinstance(space, spaces.OneOf) and len(value) > 3:
            value = space.sample()
        obs[key] = value
    return obs


no_lists = pytest.mark.parametrize(
    "value", ["text", b"text", None, 3, 1.5, 1j, {"a": 1}, {1, 2}, np.datetime64(1, "s")], ids=str
)


@pytest.mark.grid
@no_lists
@pytest.mark.parametrize("key", LISTS.spaces)
def test_observation_without_a_list_is_an_error(key, value):
    preprocessor = make_preprocessor(LISTS)
    valid_obs = sample_lists()
    preprocessor.encode_batch([valid_obs])

    with pytest.raises(ObservationError):
        preprocessor.transform({**valid_obs, key: value})


@pytest.mark.grid
@no_lists
@pytest.mark.parametrize("key", LISTS.spaces)
def test_batch_with_an_observation_without_a_list_is_an_error(key, value):
    preprocessor = make_preprocessor(LISTS)
    valid_obs = sample_lists()
    preprocessor.encode_batch([valid_obs])

    with pytest.raises(ObservationError):
        preprocessor.encode_batch([valid_obs, {**valid_obs, key: value}])


def without_bits(batch):
    return {key: value for key, value in batch.items() if key != "bits"}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda batch: {**batch, "extra": np.zeros(3)}, id="another-key"),
        pytest.param(without_bits, id="missing-key"),
        pytest.param(lambda batch: {**batch, "bits": batch["bits"][:2]}, id="fewer-rows"),
        pytest.param(lambda batch: {**batch, "float": batch["float"][:, :2]}, id="fewer-columns"),
        pytest.param(
            lambda batch: {**batch, "byte": batch["byte"].astype(np.float32)}, id="other-dtype"
        ),
        pytest.param(lambda batch: {**batch, "more": batch["more"][:1]}, id="shorter-tuple"),
    ],
)
def test_batch_with_a_wrong_column_is_an_error(change):
    preprocessor = make_preprocessor(WORLD)
    observations = [WORLD.sample() for _ in range(3)]
    batch = concatenate(WORLD, observations, create_empty_array(WORLD, 3))
    preprocessor.encode_batch(observations)
    preprocessor.encode_batch(batch)  # the batch itself is valid

    with pytest.raises(ObservationError):
        preprocessor.encode_batch(change(batch))


@pytest.mark.parametrize("value", [-1, 256, 2**40])
def test_integer_that_does_not_fit_into_a_byte_is_an_error(value):
    preprocessor = make_preprocessor(NUMBERS["byte"])
    preprocessor.encode_batch([NUMBERS["byte"].sample()])

    with pytest.raises(ObservationError):
        preprocessor.encode_batch(np.full((2, 3), value))


def test_integers_that_fit_into_a_byte_are_encoded():
    preprocessor = make_preprocessor(NUMBERS["byte"])
    preprocessor.encode_batch([NUMBERS["byte"].sample()])

    encoded = preprocessor.encode_batch(np.full((2, 3), 7))

    assert encoded.tolist() == [[7, 7, 7], [7, 7, 7]]


class Damage:
    """A random change of one entry of an observation of `WORLD`, after which it is invalid.

    Attributes:
        key: The changed entry.
        kind: What was done: "text", "kind", "shape", "range" or "NaN".
    """

    def __init__(self, random):
        self._random = random
        self.key = random.choice([*NUMBERS, "more", "word"])
        if self.key == "word":
            self.kind = "text"
        else:
            self.kind = self._choose_kind()

    def _space(self):
        return NUMBERS["float"] if self.key == "more" else NUMBERS[self.key]

    def _choose_kind(self):
        kinds = ["kind", "shape"]
        if self.key != "flag":  # all flags are in their range
            kinds.append("range")
        if self._space().dtype.kind == "f":
            kinds.append("NaN")
        return kinds[self._random.integers(len(kinds))]

    def apply(self, obs):
        if self.key == "word":
            too_long_or_other_characters = np.array(["toolong", "sp ce", "é"], object)
            obs["word"] = self._random.choice(too_long_or_other_characters)
        elif self.key == "more":
            first, second = obs["more"]
            obs["more"] = (first, self._damaged(second))
        else:
            obs[self.key] = self._damaged(obs[self.key])

    def _damaged(self, value):
        space = self._space()
        random = self._random
        if self.kind == "kind":
            return MAKE_NO_NUMBERS[random.choice([*MAKE_NO_NUMBERS])](space.shape)
        if self.kind == "shape":
            return np.zeros((*space.shape, 1 + random.integers(3)), space.dtype)
        wide_dtype = np.float64 if space.dtype.kind == "f" else np.int64
        array = np.array(value).astype(wide_dtype)
        place = tuple(random.integers(n) for n in space.shape)
        if self.kind == "NaN":
            array[place] = random.choice([np.nan, np.inf, -np.inf])
        else:
            array[place] = random.choice([-50, 250, 1 << 30])
        return array


@pytest.mark.parametrize(
    ("seed", "count"),
    [(0, 500), *(pytest.param(seed, 25_000, marks=slow) for seed in range(1, 5))],
)
@pytest.mark.parametrize("check", ["always", "first"])
def test_damaged_observation_is_an_error(check, seed, count):
    random = np.random.default_rng(seed)
    WORLD.seed(seed)  # a Dict of all kinds of spaces
    preprocessor = make_preprocessor(WORLD, check=check)
    preprocessor.encode_batch([WORLD.sample()])

    for _ in range(count):
        damage = Damage(random)
        # With check="first", later observations may be out of range; acting rejects NaN.
        if check == "first" and damage.kind in ("range", "NaN"):
            continue
        obs = WORLD.sample()
        damaged_obs = dict(obs)
        damage.apply(damaged_obs)

        preprocessor.transform(obs)  # raises nothing
        with pytest.raises(ObservationError):
            preprocessor.transform(damaged_obs)
        with pytest.raises(ObservationError):
            preprocessor.encode_batch([obs, damaged_obs])


@pytest.mark.parametrize("check", ["always", "first"])
def test_observations_are_encoded_alone_as_in_a_batch(check):
    WORLD.seed(0)
    observations = [WORLD.sample() for _ in range(64)]
    preprocessor = make_preprocessor(WORLD, check=check)

    batch = preprocessor.encode_batch(observations)

    rows = [preprocessor.transform(obs) for obs in observations]
    np.testing.assert_array_equal(batch, rows)


# --- masks ----------------------------------------------------------------------------------------

#: Kinds of actions that a mask can forbid.
MASKED_KINDS = [
    kind
    for kind, (space, _) in ACTIONS.items()
    if rlcatalog.actions.ActionMasks(rlcatalog.SpaceInfo.read(space)).size
]
TWO_NUMBERS = spaces.Box(-1, 1, (2,), np.float32)


@cache  # building a policy takes longer than most of the tests
def build_policy(kind, framework="torch"):
    """Build a policy for this kind of action."""
    action_space, config = {**ACTIONS, **DEPENDENT}[kind]
    config = {"fcnet_hiddens": [4], **config}
    return rlcatalog.build(TWO_NUMBERS, action_space, config, framework)


def random_mask(policy, random):
    """Return a mask of four rows that allows about half of the choices, and one of each."""
    mask = random.random((4, policy.masks.size)) < 0.5
    start = 0
    for _, count in policy.masks.choices:
        mask[:, start + random.integers(count)] = True
        start += count
    return mask


@pytest.mark.parametrize("kind", MASKED_KINDS)
@pytest.mark.parametrize(
    "dtype", [bool, np.int8, np.uint8, np.int64, np.float32, np.float64], ids=lambda d: d.__name__
)
def test_mask_may_contain_booleans_or_0_and_1(kind, dtype):
    policy = build_policy(kind)
    mask = random_mask(policy, np.random.default_rng(0))

    np.testing.assert_array_equal(policy.masks.matrix(mask.astype(dtype), 4), mask)


@pytest.mark.parametrize("kind", MASKED_KINDS)
def test_mask_may_be_a_list(kind):
    policy = build_policy(kind)
    mask = random_mask(policy, np.random.default_rng(0))

    np.testing.assert_array_equal(policy.masks.matrix(mask.tolist(), 4), mask)


#: Values that a mask must not contain → the dtypes of arrays that can hold them.
INVALID_MASK_VALUES = [
    (np.nan, np.float64),
    (0.3, np.float64),
    (-1, np.float64),
    (3, np.float64),
    (np.inf, np.float64),
    (1e-30, np.float64),
    ("0", object),
    ("0", str),
    (b"1", object),
    (b"1", bytes),
    (None, object),
    (1j, complex),
]


@pytest.mark.parametrize("kind", MASKED_KINDS)
@pytest.mark.parametrize(("value", "dtype"), INVALID_MASK_VALUES, ids=str)
@as_array_or_list
def test_mask_with_another_value_is_an_error(kind, value, dtype, convert):
    policy = build_policy(kind)
    random = np.random.default_rng(0)
    mask = random_mask(policy, random).astype(object)
    mask[random.integers(4), random.integers(policy.masks.size)] = value
    mask = mask.astype(dtype)

    with pytest.raises(ActionMaskError, match="expected booleans, or 0 and 1; found"):
        policy.act(np.zeros((4, 2), np.float32), mask=convert(mask))


def test_mask_of_bits_contains_0_1_and_2():
    # As in Gymnasium, 2 allows both values of a bit.
    policy = build_policy("multi_binary")
    mask = np.array([[0, 1, 2], [1, 1, 0]], np.int8)

    step = policy.act(np.zeros((2, 2), np.float32), mask=mask)

    assert step.action[1].tolist() == [1, 1, 0]


@pytest.mark.parametrize("value", [3, -1, 0.5, np.nan])
def test_mask_of_bits_with_another_value_is_an_error(value):
    policy = build_policy("multi_binary")
    mask = np.array([[0, 1, value], [1, 1, 0]])

    with pytest.raises(ActionMaskError, match="values 0, 1 or 2, where 2 means either"):
        policy.act(np.zeros((2, 2), np.float32), mask=mask)


# --- stored actions -------------------------------------------------------------------------------


def to_tensors(framework, batch):
    to_tensor = torch.from_numpy if framework == "torch" else tf.convert_to_tensor
    return {key: to_tensor(value) for key, value in batch.items()}


def list_choices(codec):
    """Return (column, number of choices) for each column of raw actions that is a choice."""
    if not codec.children:
        return [] if codec.counts is None else list(enumerate(codec.counts))
    choices = []
    start = 0
    for child in codec.children:
        for column, count in list_choices(child):
            choices.append((start + column, count))
        start += child.width
    return choices


class InvalidBatches:
    """Makes invalid batches from a valid one; all methods yield (description, batch, error)."""

    def __init__(self, policy, batch):
        self.policy = policy
        self.batch = batch
        self.random = np.random.default_rng(0)
        raw = batch["raw_action"]
        used = policy.action_codec.used(raw)
        #: Which raw values count: in a OneOf, only those of the chosen part.
        self.used = np.ones(raw.shape, bool) if used is None else used

    def with_other_shapes(self):
        raw = self.batch["raw_action"]
        shapes = {
            "one row": raw[:1],
            "no axis": raw[0],
            "a column more": np.concatenate([raw, raw[:, :1]], 1),
            "a column less": raw[:, 1:],
            "an axis more": raw[..., None],
        }
        for description, array in shapes.items():
            yield description, {**self.batch, "raw_action": array}, ActionError
        wider_obs = np.concatenate([self.batch["obs"]] * 2, 1)
        yield "a wider observation", {**self.batch, "obs": wider_obs}, ObservationError

    def with_other_choices(self):
        raw = self.batch["raw_action"]
        for column, count in list_choices(self.policy.action_codec):
            values = [-1, count, count + 5, 2**40]
            if raw.dtype.kind == "f":
                values += [np.nan, np.inf, 0.5]
            if not self.used[:, column].any():
                continue
            for value in values:
                changed = self._with_value(raw, value, column=column)
                description = f"{value} of {count} choices"
                yield description, {**self.batch, "raw_action": changed}, ActionError

    def with_numbers_that_are_not_finite(self):
        raw = self.batch["raw_action"]
        if raw.dtype.kind != "f":
            return
        for value in (np.nan, np.inf, -np.inf):
            changed = self._with_value(raw, value)
            yield f"{value} in an action", {**self.batch, "raw_action": changed}, ActionError

    def _with_value(self, array, value, column=None):
        changed = array.copy()
        if column is None:
            column = self.random.choice(np.flatnonzero(self.used.any(axis=0)))
        row = self.random.choice(np.flatnonzero(self.used[:, column]))
        changed[row, column] = value
        return changed


@cache  # four tests evaluate batches of a kind
def make_policy_and_batch(kind, framework):
    policy = build_policy(kind, framework)
    obs = np.random.default_rng(0).uniform(-1, 1, (5, 2)).astype(np.float32)
    batch = {"obs": obs}
    if kind in MASKED_KINDS:
        batch["mask"] = np.ones((5, policy.masks.size), bool)
    step = policy.act(obs, mask=batch.get("mask"))
    batch["raw_action"] = step.raw_action
    if "relaxed" not in kind and "autoregressive" not in kind:
        batch["dist_inputs"] = step.dist_inputs
    return policy, batch, step.logp


@pytest.fixture
def policy_and_batch(kind, framework):
    """A policy for a kind of action, a batch that it acted on, and the log densities."""
    return make_policy_and_batch(kind, framework)


each_kind = pytest.mark.parametrize("kind", [*ACTIONS, *DEPENDENT])
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


@pytest.mark.grid
@both_frameworks
@each_kind
def test_valid_batch_is_evaluated(policy_and_batch):
    policy, batch, expected_logp = policy_and_batch

    logp = policy.evaluate(batch).logp

    if policy.framework == "torch":
        logp = logp.detach()
    np.testing.assert_allclose(logp.numpy(), expected_logp, atol=1e-4)


def assert_all_are_errors(policy, invalid_batches):
    for description, batch, error in invalid_batches:
        for form in (batch, to_tensors(policy.framework, batch)):
            with pytest.raises(error) as caught:
                policy.evaluate(form)
            assert type(caught.value) is error, description


@pytest.mark.grid
@both_frameworks
@each_kind
def test_batch_with_other_shapes_is_an_error(policy_and_batch):
    policy, batch, _ = policy_and_batch

    assert_all_are_errors(policy, InvalidBatches(policy, batch).with_other_shapes())


@pytest.mark.grid
@both_frameworks
@each_kind
def test_batch_with_choices_outside_of_the_space_is_an_error(policy_and_batch):
    policy, batch, _ = policy_and_batch

    assert_all_are_errors(policy, InvalidBatches(policy, batch).with_other_choices())


@pytest.mark.grid
@both_frameworks
@each_kind
def test_batch_with_numbers_that_are_not_finite_is_an_error(policy_and_batch):
    policy, batch, _ = policy_and_batch

    assert_all_are_errors(policy, InvalidBatches(policy, batch).with_numbers_that_are_not_finite())
