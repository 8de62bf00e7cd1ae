"""Preprocessor classes in RLlib's old form, and of other plugins inside composites."""

from __future__ import annotations

import sys
from types import ModuleType

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

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

BOX = spaces.Box(-1, 1, (2,), np.float32)


class MyPreprocessorClass(Preprocessor):
    """The seeds' example, filled in."""

    def _init_shape(self, obs_space, options):
        self.factor = options["custom_options"].get("factor", 1)
        return (2 * obs_space.shape[0],)

    def transform(self, observation):
        return np.concatenate([observation, self.factor * observation])


@pytest.fixture
def default(monkeypatch):
    """A default catalog of this test's own."""
    default_catalog.cache_clear()
    yield default_catalog()
    default_catalog.cache_clear()


@pytest.mark.parametrize("by_name", [True, False])
def test_a_custom_preprocessor_with_its_options(default, by_name):
    ModelCatalog.register_custom_preprocessor("my_prep", MyPreprocessorClass)
    config = {
        "custom_preprocessor": "my_prep" if by_name else MyPreprocessorClass,
        "custom_options": {"factor": 3},
    }
    with pytest.warns(
        DeprecationWarning, match="'custom_options' is now called 'custom_model_config'"
    ):
        preprocessor = ModelCatalog.get_preprocessor_for_space(BOX, config)
    assert isinstance(preprocessor, MyPreprocessorClass)
    assert (preprocessor.shape, preprocessor.size) == ((4,), 4)
    np.testing.assert_array_equal(preprocessor.transform(np.array([0.5, 1.0])), [0.5, 1, 1.5, 3])
    # What the base makes of the two methods.
    batch_of_two = np.array([[0.5, 1.0], [0.0, -1.0]], np.float32)
    expected = [[0.5, 1, 1.5, 3], [0, -1, 0, -3]]
    np.testing.assert_array_equal(preprocessor.transform_batch(batch_of_two), expected)
    np.testing.assert_array_equal(preprocessor.transform_batch(list(batch_of_two)), expected)
    array = np.full(6, 7.0)
    preprocessor.write(batch_of_two[0], array, 1)
    np.testing.assert_array_equal(array, [7, 0.5, 1, 1.5, 3, 7])
    assert preprocessor.observation_space.shape == (4,)
    assert preprocessor.observation_space.original_space is BOX
    # A Box observation stays as the preprocessor made it.
    flat = np.zeros((2, 4))
    assert restore_original_dimensions(flat, preprocessor.observation_space) is flat


def test_a_custom_preprocessor_with_a_constructor_in_rllibs_form(default):
    class WithConstructor(Preprocessor):
        def __init__(self, obs_space, options=None):
            super().__init__(obs_space, options)
            self.ready = True

        def _init_shape(self, obs_space, options):
            return (1,)

        def transform(self, observation):
            self.check_shape(observation)
            return np.array([observation.sum()])

    preprocessor = ModelCatalog.get_preprocessor_for_space(
        BOX, {"custom_preprocessor": WithConstructor, "check_observations": "always"}
    )
    assert preprocessor.ready
    np.testing.assert_array_equal(
        preprocessor.transform_batch([np.array([0.25, 0.5], np.float32)]), [[0.75]]
    )
    with pytest.raises(ObservationError, match=r"obs: expected a value of Box\(2,\) float32"):
        preprocessor.transform(np.array([2.0, 0.0]))


def test_a_custom_preprocessor_takes_what_the_built_in_one_takes(default):
    # Many environments declare float32 and emit float64, or Python's lists.
    custom = ModelCatalog.get_preprocessor_for_space(
        BOX, {"custom_preprocessor": MyPreprocessorClass}
    )
    for row in (np.array([0.25, 0.5]), [0.25, 0.5], np.array([0, 1])):
        built_in = ModelCatalog.get_preprocessor_for_space(BOX).transform_batch([row])
        custom.set_check("always")
        np.testing.assert_array_equal(custom.transform_batch([row])[:, :2], built_in)


def test_a_custom_preprocessor_serves_a_space_that_has_no_codec(default):
    class Length(Preprocessor):
        def _init_shape(self, obs_space, options):
            return (1,)

        def transform(self, observation):
            return [len(observation)]

    preprocessor = ModelCatalog.get_preprocessor_for_space(
        spaces.Text(9), {"custom_preprocessor": Length}
    )
    np.testing.assert_array_equal(preprocessor.transform_batch(["ab", "abcd"]), [[2], [4]])


class Forgetful(Preprocessor):
    def _init_shape(self, obs_space, options):
        pass


class OneTooFew(Preprocessor):
    def _init_shape(self, obs_space, options):
        return (3,)

    def transform(self, observation):
        return observation[:1]


def test_a_custom_preprocessor_that_breaks_its_contract(default):
    with pytest.raises(ModelContractError, match="must be a registered name or a subclass"):
        ModelCatalog.get_preprocessor_for_space(BOX, {"custom_preprocessor": dict})
    with pytest.raises(
        ModelContractError, match=r"Forgetful\._init_shape\(\) must return a shape, found None"
    ):
        ModelCatalog.get_preprocessor_for_space(BOX, {"custom_preprocessor": Forgetful})
    preprocessor = ModelCatalog.get_preprocessor_for_space(BOX, {"custom_preprocessor": OneTooFew})
    # One value must not be spread over three.
    with pytest.raises((ModelContractError, ObservationError)):
        preprocessor.transform_batch([np.zeros(2, np.float32)])


class Doubled(NoPreprocessor):
    """A codec of Box of somebody else's."""

    def writer(self, start):
        write = super().writer(start)
        return lambda obs, out: write(2 * obs, out)


def catalog_with(codec, match, monkeypatch):
    """Return a catalog of the built-in codecs and one of somebody else's."""
    module = ModuleType("made_up_codecs")
    setattr(module, codec.__name__, codec)
    monkeypatch.setitem(sys.modules, "made_up_codecs", module)
    catalog = Catalog([point for point in scan() if point.name == "preprocessors"], environ={})
    name = codec.__name__
    catalog.register(
        PreprocessorSpec(name.lower(), {"numpy": f"made_up_codecs:{name}"}, "", match=match)
    )
    return catalog


def test_the_children_of_a_composite_are_the_catalogs(monkeypatch):
    catalog = catalog_with(Doubled, _boxes_of_two, monkeypatch)
    space = spaces.Dict({"a": BOX, "b": spaces.Tuple([BOX, spaces.Box(-1, 1, (1,), np.float32)])})
    found = catalog.preprocessor_for(space).transform(
        {"a": np.ones(2), "b": (np.ones(2), np.ones(1))}
    )
    np.testing.assert_array_equal(found, [2, 2, 2, 2, 1])


def _boxes_of_two(request):
    return (
        Match(Rank.SPECIFIC, "two values")
        if request.obs.shape == (2,)
        else Match(None, "another shape")
    )


class Negated(DictFlatteningPreprocessor):
    """A codec of Dict of somebody else's, with a writer of its own."""

    def writer(self, start):
        write = super().writer(start)

        def write_negated(obs, out):
            write(obs, out)
            out[start : start + self.size] *= -1

        return write_negated


def test_a_subclass_of_a_composite_writes_as_it_says_wherever_it_stands(monkeypatch):
    catalog = catalog_with(Negated, _dicts_with_minus, monkeypatch)
    space = spaces.Dict({"inner": spaces.Dict({"minus": BOX}), "outer": spaces.Dict({"plus": BOX})})
    ones = {"inner": {"minus": np.ones(2, np.float32)}, "outer": {"plus": np.ones(2, np.float32)}}
    np.testing.assert_array_equal(catalog.preprocessor_for(space).transform(ones), [-1, -1, 1, 1])


def _dicts_with_minus(request):
    found = request.obs.kind == "dict" and "minus" in request.obs.keys
    return Match(Rank.SPECIFIC, "minus") if found else Match(None, "another space")


def test_keys_are_never_read_as_code():
    keys = ["v0]", "'", '"', "\\", "a\nb", "{}", "é", "", "out", "#", "k1]\n    raise SystemExit"]
    space = spaces.Dict({key: spaces.Tuple([BOX, spaces.Discrete(2)]) for key in keys})
    space.seed(0)
    preprocessor = default_catalog().preprocessor_for(space)
    for row in (space.sample() for _ in range(3)):
        expected = np.concatenate(
            [np.r_[row[key][0], np.eye(2)[row[key][1]]] for key in space.spaces]
        )
        np.testing.assert_array_equal(preprocessor.transform(row), expected.astype(np.float32))
        batch = gym.vector.utils.concatenate(
            space, [row], gym.vector.utils.create_empty_array(space, 1)
        )
        np.testing.assert_array_equal(
            preprocessor.transform_batch(batch), expected[None].astype(np.float32)
        )


# --- writers that return -------------------------------------------------------------------------


class ReturnsRow(Preprocessor):
    """Returns the values, as a transform does, instead of writing them."""

    def _init_shape(self, obs_space, options):
        return obs_space.shape

    def writer(self, start):
        return lambda obs, out: obs

    def batch_writer(self, start):
        return lambda batch, out: batch


class WritesAndReturns(ReturnsRow):
    """Returns its array as well, as NumPy's functions with an argument `out` do."""

    def writer(self, start):
        return lambda obs, out: np.copyto(out[start : start + 2], obs) or out

    def batch_writer(self, start):
        return lambda batch, out: np.copyto(out[:, start : start + 2], batch) or out


@pytest.mark.parametrize("value", [0.5, 0.0])
def test_writer_that_returns_instead_of_writing_is_refused(value):
    obs = np.full(2, value, np.float32)
    expected = r"ReturnsRow: its writer\(start\) returns .* instead of writing into `out`"
    with pytest.raises(ModelContractError, match=expected):
        ReturnsRow(BOX).transform(obs)
    with pytest.raises(ModelContractError, match=expected):
        ReturnsRow(BOX).transform_batch([obs])


def test_writer_that_writes_and_returns_is_accepted():
    obs = np.array([0.5, -0.5], np.float32)
    assert WritesAndReturns(BOX).transform(obs).tolist() == [0.5, -0.5]
    assert WritesAndReturns(BOX).transform_batch([obs]).tolist() == [[0.5, -0.5]]
