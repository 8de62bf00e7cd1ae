"""Small functions of the kernel on unusual input."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from rlcatalog import Filter, preprocessors
from rlcatalog.actions import LoweredActions, read_bounds
from rlcatalog.config import plain
from rlcatalog.config.flat import FlatConfig
from rlcatalog.config.layer_names import fan_in
from rlcatalog.errors import ConfigError, ModelContractError, UnsupportedSpaceError
from rlcatalog.frameworks import tensor_ops
from rlcatalog.spaces import Repeated, Simplex, SpaceInfo

#: Lists of at most two items, each 0, 1 or 2.
SHORT_LISTS = Repeated(gym.spaces.Discrete(3), 2)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([], id="empty"),
        pytest.param([0, 2], id="list"),
        pytest.param((1,), id="tuple"),
        pytest.param(np.array([2, 2]), id="array"),
    ],
)
def test_repeated_space_contains_short_lists_of_its_items(value):
    assert value in SHORT_LISTS


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([0, 1, 2], id="too-long"),
        pytest.param([3], id="item-out-of-range"),
        pytest.param([0, 3], id="second-item-out-of-range"),
        pytest.param("", id="empty-text"),
        pytest.param("01", id="text"),
        pytest.param({0}, id="set"),
        pytest.param(1, id="item-without-list"),
        pytest.param(None, id="none"),
    ],
)
def test_repeated_space_contains_nothing_else(value):
    assert value not in SHORT_LISTS


@pytest.mark.parametrize(
    "make_space",
    [
        pytest.param(lambda: Repeated(gym.spaces.Box(-1, 1, (2,)), 4), id="items"),
        pytest.param(lambda: Repeated(Repeated(gym.spaces.Discrete(5), 3), 3), id="nested"),
    ],
)
def test_equal_seeds_of_repeated_give_equal_samples(make_space):
    def draw(seed):
        space = make_space()
        space.seed(seed)
        return str([space.sample() for _ in range(5)])

    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_bounds_of_a_simplex_are_rejected():
    with pytest.raises(UnsupportedSpaceError, match="Beta needs a Box of floats, found "):
        read_bounds(SpaceInfo.read(Simplex((3,))), "Beta")


def test_exported_actions_of_space_without_dtype_are_float32():
    codec = SimpleNamespace(info=SpaceInfo.read(gym.Space((2,))))
    assert codec.info.dtype is None

    actions = LoweredActions(codec, tensor_ops("numpy")).typed(np.arange(2))

    assert actions.dtype == np.float32


def test_flat_config_offers_a_key_under_its_old_name():
    config = FlatConfig({"custom_model_config": {"now": 1}})

    assert config["custom_options"] == {"now": 1}
    assert config.get("custom_options") == {"now": 1}


def test_flat_config_prefers_an_old_name_that_was_set():
    config = FlatConfig({"custom_model_config": {"now": 1}})
    config["custom_options"] = "kept"

    assert config["custom_options"] == "kept"
    assert config.get("custom_options") == "kept"


def test_plain_turns_tuples_into_lists():
    assert plain({"a": ((1, 2), [3])}, "it") == {"a": [[1, 2], [3]]}


def test_plain_alike_keeps_tuples():
    assert plain({"a": ((1, 2), [3])}, "it", alike=True) == {"a": ((1, 2), [3])}


def test_fan_in_of_a_kernel_is_channels_times_its_size():
    assert fan_in((5, 3, 2, 2), None) == 3 * 2 * 2  # the first axis counts the outputs


def test_fan_in_of_a_bias_is_the_given_number():
    assert fan_in((5,), 7) == 7


def test_fan_in_of_a_bias_without_a_number_is_rejected():
    with pytest.raises(ConfigError, match="needs the number of inputs"):
        fan_in((5,), None)


def test_unknown_preprocessor_attribute_error_names_dir():
    with pytest.raises(AttributeError, match="no attribute 'NoSuchPreprocessor'") as caught:
        _ = preprocessors.NoSuchPreprocessor

    assert "`dir(rlcatalog.preprocessors)`" in str(caught.value)


class Doubling(Filter):
    """Doubles observations; with the option "in place" in the array that it gets."""

    def __call__(self, encoded, *, update=False):
        if self.options["in place"]:
            return np.multiply(encoded, 2, out=encoded)
        return encoded * 2


@pytest.fixture
def preprocessor():
    space = gym.spaces.Box(-1, 1, (2,))
    return preprocessors.get_preprocessor(space)(space)


def test_filter_without_catalog_returns_filtered_numbers(preprocessor):
    filtered = Doubling(preprocessor, {"in place": False}).filtered(np.ones((3, 2)))

    np.testing.assert_array_equal(filtered, np.full((3, 2), 2.0))


def test_filter_without_catalog_may_not_change_its_input(preprocessor):
    with pytest.raises(ModelContractError, match="modifies its observations"):
        Doubling(preprocessor, {"in place": True}).filtered(np.ones((3, 2)))
