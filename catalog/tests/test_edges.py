"""The kernel's functions at their edges: what is left out, empty, of another kind, or alone."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from rlcatalog import Filter, preprocessors
from rlcatalog.actions import LoweredActions, read_bounds
from rlcatalog.config import plain
from rlcatalog.config.flat import FlatConfig
from rlcatalog.config.names import fan_in
from rlcatalog.errors import ConfigError, ModelContractError, UnsupportedSpaceError
from rlcatalog.frameworks import tensor_ops
from rlcatalog.spaces import Repeated, Simplex, SpaceInfo


@pytest.mark.parametrize("value", [[], [0, 2], (1,), np.array([2, 2])], ids=str)
def test_a_repeated_space_holds_short_lists_of_its_items(value):
    assert value in Repeated(gym.spaces.Discrete(3), 2)


@pytest.mark.parametrize("value", [[0, 1, 2], [3], [0, 3], "", "01", {0}, 1, None], ids=str)
def test_a_repeated_space_holds_nothing_else(value):
    assert value not in Repeated(gym.spaces.Discrete(3), 2)


def test_a_space_of_floats_that_is_no_box_has_no_bounds_to_read():
    with pytest.raises(UnsupportedSpaceError, match="Beta needs a Box of floats, found "):
        read_bounds(SpaceInfo.read(Simplex((3,))), "Beta")


def test_exported_actions_of_a_space_without_a_dtype_are_float32():
    codec = SimpleNamespace(info=SpaceInfo.read(gym.Space((2,))))
    assert codec.info.dtype is None
    assert LoweredActions(codec, tensor_ops("numpy")).typed(np.arange(2)).dtype == np.float32


def test_a_key_is_read_under_its_old_name_unless_the_config_has_that():
    config = FlatConfig({"custom_model_config": {"now": 1}})
    assert config.get("custom_options") == config["custom_options"] == {"now": 1}
    config["custom_options"] = "kept"
    assert config.get("custom_options") == config["custom_options"] == "kept"


def test_tuples_become_lists_unless_they_are_to_stay_alike():
    assert plain({"a": ((1, 2), [3])}, "it") == {"a": [[1, 2], [3]]}
    assert plain({"a": ((1, 2), [3])}, "it", alike=True) == {"a": ((1, 2), [3])}


def test_the_fan_in_of_weights_is_in_their_shape_and_that_of_a_bias_is_given():
    assert fan_in((5, 3, 2, 2), None) == 12
    assert fan_in((5,), 7) == 7
    with pytest.raises(ConfigError, match="needs the number of inputs"):
        fan_in((5,), None)


def test_a_name_that_no_package_provides_is_no_attribute():
    with pytest.raises(
        AttributeError,
        match=r"no attribute 'NoSuchPreprocessor'; `dir\(rlcatalog\.preprocessors\)`",
    ):
        _ = preprocessors.NoSuchPreprocessor


class Doubling(Filter):
    """Twice the observations; in place where the options say so."""

    def __call__(self, encoded, *, update=False):
        return np.multiply(encoded, 2, out=encoded if self.options["in place"] else None)


def test_a_filter_that_no_catalog_made_is_checked_as_well():
    before = preprocessors.get_preprocessor(gym.spaces.Box(-1, 1, (2,)))(
        gym.spaces.Box(-1, 1, (2,))
    )
    found = Doubling(before, {"in place": False}).filtered(np.ones((3, 2)))
    np.testing.assert_array_equal(found, np.full((3, 2), 2.0))
    with pytest.raises(ModelContractError, match="modifies its observations"):
        Doubling(before, {"in place": True}).filtered(np.ones((3, 2)))
