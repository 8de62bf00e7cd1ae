"""Custom preprocessor classes, in RLlib's form and in ours, and those of other plugins."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Text, Tuple

from rlcatalog import (
    Catalog,
    Match,
    ModelCatalog,
    Preprocessor,
    PreprocessorSpec,
    Rank,
    restore_original_dimensions,
)
from rlcatalog.catalog import default_catalog
from rlcatalog.errors import ModelContractError, ObservationError
from rlcatalog.plugins.discovery import scan
from rlcatalog_preprocessors.arrays import NoPreprocessor
from rlcatalog_preprocessors.composites import DictFlatteningPreprocessor

TWO_FEATURES = Box(-1, 1, (2,), np.float32)


@pytest.fixture
def own_default_catalog():
    """Forget the default catalog, so that the test can register classes in one of its own."""
    default_catalog.cache_clear()
    yield
    default_catalog.cache_clear()


# --- a class in RLlib's form ----------------------------------------------------------------------


class RepeatTimesFactor(Preprocessor):
    """Appends the values times the option "factor"."""

    def _init_shape(self, obs_space, options):
        self.factor = options["custom_options"].get("factor", 1)
        return (2 * obs_space.shape[0],)

    def transform(self, observation):
        return np.concatenate([observation, self.factor * observation])


@pytest.mark.parametrize(
    "custom_preprocessor", ["repeat", RepeatTimesFactor], ids=["name", "class"]
)
@pytest.mark.usefixtures("own_default_catalog")
def test_custom_preprocessor_is_made_of_a_name_or_a_class(custom_preprocessor):
    ModelCatalog.register_custom_preprocessor("repeat", RepeatTimesFactor)
    config = {"custom_preprocessor": custom_preprocessor, "custom_model_config": {"factor": 3}}

    preprocessor = ModelCatalog.get_preprocessor_for_space(TWO_FEATURES, config)

    assert isinstance(preprocessor, RepeatTimesFactor)
    assert preprocessor.shape == (4,)
    assert preprocessor.size == 4
    encoded = preprocessor.transform(np.array([0.5, 1.0]))
    np.testing.assert_array_equal(encoded, [0.5, 1, 3 * 0.5, 3 * 1])


@pytest.mark.usefixtures("own_default_catalog")
def test_custom_options_is_the_old_name_of_a_key():
    config = {"custom_preprocessor": RepeatTimesFactor, "custom_options": {"factor": 3}}

    with pytest.warns(DeprecationWarning, match="is now called 'custom_model_config'") as caught:
        preprocessor = ModelCatalog.get_preprocessor_for_space(TWO_FEATURES, config)

    assert "'custom_options'" in str(caught[0].message)
    assert preprocessor.factor == 3


@pytest.fixture
def repeat():
    """A preprocessor that appends the values times 3."""
    return RepeatTimesFactor(TWO_FEATURES, {"custom_options": {"factor": 3}})


@pytest.mark.parametrize("make_batch", [np.array, list])
def test_custom_preprocessor_encodes_batches(repeat, make_batch):
    rows = np.array([[0.5, 1.0], [0.0, -1.0]], np.float32)

    encoded = repeat.transform_batch(make_batch(rows))

    np.testing.assert_array_equal(encoded, [[0.5, 1, 1.5, 3], [0, -1, 0, -3]])


def test_custom_preprocessor_writes_into_an_array(repeat):
    array = np.full(6, 7.0)

    repeat.write(np.array([0.5, 1.0], np.float32), array, 1)

    np.testing.assert_array_equal(array, [7, 0.5, 1, 1.5, 3, 7])


def test_custom_preprocessor_has_an_encoded_space(repeat):
    assert repeat.observation_space.shape == (4,)
    assert repeat.observation_space.original_space is TWO_FEATURES


def test_encoding_of_a_box_is_not_restored(repeat):
    encoded = np.zeros((2, 4))

    assert restore_original_dimensions(encoded, repeat.observation_space) is encoded


class SumWithConstructor(Preprocessor):
    """Has RLlib's constructor, and checks observations itself."""

    def __init__(self, obs_space, options=None):
        super().__init__(obs_space, options)
        self.is_ready = True

    def _init_shape(self, obs_space, options):
        return (1,)

    def transform(self, observation):
        self.check_shape(observation)
        return np.array([observation.sum()])


def test_custom_preprocessor_may_have_a_constructor():
    config = {"custom_preprocessor": SumWithConstructor}

    preprocessor = ModelCatalog.get_preprocessor_for_space(TWO_FEATURES, config)

    assert preprocessor.is_ready
    encoded = preprocessor.transform_batch([np.array([0.25, 0.5], np.float32)])
    np.testing.assert_array_equal(encoded, [[0.75]])


def test_custom_preprocessor_may_check_observations_itself():
    config = {"custom_preprocessor": SumWithConstructor, "check_observations": "always"}
    preprocessor = ModelCatalog.get_preprocessor_for_space(TWO_FEATURES, config)

    with pytest.raises(ObservationError, match=r"expected a value of Box\(2,\) float32"):
        preprocessor.transform(np.array([2.0, 0.0]))


@pytest.mark.parametrize(
    "row",
    [
        # Many environments declare float32 and return float64, or Python's lists.
        pytest.param(np.array([0.25, 0.5]), id="float64"),
        pytest.param([0.25, 0.5], id="list"),
        pytest.param(np.array([0, 1]), id="integers"),
    ],
)
def test_custom_preprocessor_accepts_lists_and_other_dtypes(repeat, row):
    built_in = ModelCatalog.get_preprocessor_for_space(TWO_FEATURES)
    repeat.set_check("always")

    encoded = repeat.transform_batch([row])

    values = encoded[:, :2]  # the preprocessor appends their multiples
    np.testing.assert_array_equal(values, built_in.transform_batch([row]))


def test_custom_preprocessor_encodes_any_space():
    class Length(Preprocessor):
        def _init_shape(self, obs_space, options):
            return (1,)

        def transform(self, observation):
            return [len(observation)]

    config = {"custom_preprocessor": Length}

    preprocessor = ModelCatalog.get_preprocessor_for_space(Text(max_length=9), config)

    np.testing.assert_array_equal(preprocessor.transform_batch(["ab", "abcd"]), [[2], [4]])


# --- classes that break their contract ------------------------------------------------------------


def test_custom_preprocessor_of_another_class_is_an_error():
    with pytest.raises(ModelContractError, match="must be a registered name or a subclass"):
        ModelCatalog.get_preprocessor_for_space(TWO_FEATURES, {"custom_preprocessor": dict})


def test_custom_preprocessor_without_a_shape_is_an_error():
    class WithoutShape(Preprocessor):
        def _init_shape(self, obs_space, options):
            pass

    with pytest.raises(ModelContractError, match="must return a shape, found None") as caught:
        ModelCatalog.get_preprocessor_for_space(TWO_FEATURES, {"custom_preprocessor": WithoutShape})

    assert "WithoutShape._init_shape()" in str(caught.value)


def test_custom_preprocessor_with_too_few_values_is_an_error():
    class OneOfThreeValues(Preprocessor):
        def _init_shape(self, obs_space, options):
            return (3,)

        def transform(self, observation):
            return observation[:1]

    config = {"custom_preprocessor": OneOfThreeValues}
    preprocessor = ModelCatalog.get_preprocessor_for_space(TWO_FEATURES, config)

    # NumPy would broadcast the one value to all three places.
    with pytest.raises((ModelContractError, ObservationError)):
        preprocessor.transform_batch([np.zeros(2, np.float32)])


class ReturnsRow(Preprocessor):
    """Its writers return the values instead of writing them."""

    def _init_shape(self, obs_space, options):
        return obs_space.shape

    def writer(self, start):
        return lambda obs, out: obs

    def batch_writer(self, start):
        return lambda batch, out: batch


class WritesAndReturns(ReturnsRow):
    """Its writers return their array as well, as NumPy's functions with an argument `out` do."""

    def writer(self, start):
        def write(obs, out):
            out[start : start + 2] = obs
            return out

        return write

    def batch_writer(self, start):
        def write(batch, out):
            out[:, start : start + 2] = batch
            return out

        return write


@pytest.mark.parametrize("value", [0.5, 0.0])
def test_writer_that_returns_values_is_an_error(value):
    with pytest.raises(ModelContractError, match="instead of writing into `out`") as caught:
        ReturnsRow(TWO_FEATURES).transform(np.full(2, value, np.float32))

    assert str(caught.value).startswith("ReturnsRow: its writer(start) returns ")


@pytest.mark.parametrize("value", [0.5, 0.0])
def test_batch_writer_that_returns_values_is_an_error(value):
    with pytest.raises(ModelContractError, match="instead of writing into `out`") as caught:
        ReturnsRow(TWO_FEATURES).transform_batch([np.full(2, value, np.float32)])

    assert str(caught.value).startswith("ReturnsRow: its writer(start) returns ")


@pytest.mark.parametrize("check", ["first", "always"])
def test_checks_go_on_after_a_writer_that_returns_values(check):
    preprocessor = ReturnsRow(TWO_FEATURES, check=check)
    obs = np.zeros(2, np.float32)

    for _ in range(2):
        with pytest.raises(ModelContractError, match="instead of writing into `out`"):
            preprocessor.transform(obs)


def test_writer_that_writes_and_returns_is_accepted():
    obs = np.array([0.5, -0.5], np.float32)
    preprocessor = WritesAndReturns(TWO_FEATURES)

    assert preprocessor.transform(obs).tolist() == [0.5, -0.5]
    assert preprocessor.transform_batch([obs]).tolist() == [[0.5, -0.5]]


# --- codecs of other plugins inside composites ----------------------------------------------------


@pytest.fixture
def make_catalog(monkeypatch):
    """Return a catalog of the built-in codecs and this one, which its match function chooses."""

    def make(codec, match):
        module = ModuleType("made_up_codecs")
        module.Codec = codec
        monkeypatch.setitem(sys.modules, "made_up_codecs", module)
        built_in = [point for point in scan() if point.name == "preprocessors"]
        catalog = Catalog(built_in, environ={})
        spec = PreprocessorSpec("acme", {"numpy": "made_up_codecs:Codec"}, "", match=match)
        catalog.register(spec)
        return catalog

    return make


def test_entries_of_a_composite_have_codecs_of_the_catalog(make_catalog):
    class DoubledBox(NoPreprocessor):
        def writer(self, start):
            write = super().writer(start)

            def write_doubled(obs, out):
                write(2 * obs, out)

            return write_doubled

    def match_boxes(request):
        if request.obs.kind == "box":
            return Match(Rank.SPECIFIC, "a box")
        return Match(None, "another space")

    catalog = make_catalog(DoubledBox, match_boxes)
    preprocessor = catalog.preprocessor_for(
        Dict({"a": TWO_FEATURES, "b": Tuple([Discrete(2), TWO_FEATURES])})
    )

    encoded = preprocessor.transform({"a": np.array([0.5, 1]), "b": (1, np.array([-1, 0.25]))})

    # The values of both boxes are doubled; 1 of 2 is a one-hot between them.
    np.testing.assert_array_equal(encoded, [1, 2, 0, 1, -2, 0.5])


def test_subclass_of_a_composite_keeps_its_writer(make_catalog):
    class NegatedDict(DictFlatteningPreprocessor):
        def writer(self, start):
            write = super().writer(start)

            def write_negated(obs, out):
                write(obs, out)
                out[start : start + self.size] *= -1

            return write_negated

    def match_minus(request):
        if request.obs.kind == "dict" and "minus" in request.obs.keys:
            return Match(Rank.SPECIFIC, "minus")
        return Match(None, "another space")

    catalog = make_catalog(NegatedDict, match_minus)
    space = Dict({"inner": Dict({"minus": TWO_FEATURES}), "outer": Dict({"plus": TWO_FEATURES})})
    ones = np.ones(2, np.float32)

    encoded = catalog.preprocessor_for(space).transform(
        {"inner": {"minus": ones}, "outer": {"plus": ones}}
    )

    # Only the Dict with the key "minus" is negated.
    np.testing.assert_array_equal(encoded, [-1, -1, 1, 1])


# --- keys -----------------------------------------------------------------------------------------


def test_keys_are_never_read_as_code():
    keys = ["v0]", "'", '"', "\\", "a\nb", "{}", "é", "", "out", "#", "k1]\n    raise SystemExit"]
    space = Dict([(key, Box(0, 99, (1,), np.float32)) for key in keys])  # in this order
    obs = {key: np.array([i], np.float32) for i, key in enumerate(keys)}
    preprocessor = default_catalog().preprocessor_for(space)

    expected = np.arange(len(keys))
    np.testing.assert_array_equal(preprocessor.transform(obs), expected)
    np.testing.assert_array_equal(preprocessor.transform_batch([obs, obs]), [expected, expected])
