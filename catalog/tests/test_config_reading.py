"""The model config as it is read: NumPy's values, old keys, callables and defaults."""

from __future__ import annotations

import json
import re
import warnings

import numpy as np
import pytest

import rlcatalog
from rlcatalog import Catalog
from rlcatalog.config import KernelConfig, read_config
from rlcatalog.config.rllib_keys import IGNORED, REFUSED, RENAMED
from rlcatalog.errors import ConfigError, ConfigTypeError
from rlcatalog.plugins.discovery import scan


def catalog_of(*names, environ=None):
    """A catalog of the installed plugins with these entry-point names."""
    return Catalog([point for point in scan() if point.name in names], environ=environ or {})


# --- NumPy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_value", "python"),
    [
        ({"fcnet_hiddens": np.array([8, 6])}, {"fcnet_hiddens": [8, 6]}),
        ({"fcnet_hiddens": [np.int32(8), np.uint16(6)]}, {"fcnet_hiddens": [8, 6]}),
        ({"fcnet_hiddens": (8, np.int64(6))}, {"fcnet_hiddens": [8, 6]}),
        ({"vf_share_layers": np.bool_(False)}, {"vf_share_layers": False}),
        ({"max_seq_len": np.int8(5)}, {"max_seq_len": 5}),
        ({"fcnet_activation": np.str_("relu")}, {"fcnet_activation": "relu"}),
        (
            {"custom_model_config": {"a": np.float32(0.5), "b": {"c": np.arange(3)}}},
            {"custom_model_config": {"a": 0.5, "b": {"c": [0, 1, 2]}}},
        ),
        (
            {
                "fcnet_weights_initializer": "normc",
                "fcnet_weights_initializer_config": {"std": np.float64(2)},
            },
            {
                "fcnet_weights_initializer": "normc",
                "fcnet_weights_initializer_config": {"std": 2.0},
            },
        ),
    ],
)
def test_numpy_values_become_pythons_own(shared, given_value, python):
    parsed = shared.parse_config(given_value)
    assert parsed == shared.parse_config(python)
    assert json.loads(json.dumps(parsed.given)) == python  # json takes no NumPy value


def test_a_numpy_value_of_the_wrong_type_is_still_refused(shared):
    with pytest.raises(ConfigTypeError, match="expected 'bool', got 'int'"):
        shared.parse_config({"vf_share_layers": np.int64(1)})
    with pytest.raises(ConfigTypeError, match="got 'float'"):
        shared.parse_config({"fcnet_hiddens": np.array([8.5])})


# --- old keys -------------------------------------------------------------------------------------


def test_custom_options_is_custom_model_config(shared):
    with pytest.warns(
        DeprecationWarning, match="'custom_options' is now called 'custom_model_config'"
    ):
        parsed = shared.parse_config({"custom_options": {"a": 1}})
    assert parsed["custom_model_config"] == {"a": 1}
    assert "custom_options" not in parsed


def test_always_check_shapes_is_check_observations(shared):
    with pytest.warns(DeprecationWarning, match="check_observations"):
        assert shared.parse_config({"always_check_shapes": True})["check_observations"] == "always"


@pytest.mark.parametrize("order", [1, -1])
def test_a_key_and_its_alias_at_once_are_refused(shared, order):
    both = dict([("custom_options", {"a": 1}), ("custom_model_config", {"a": 2})][::order])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(
            ConfigError, match="'custom_options' is another name for 'custom_model_config'"
        ):
            shared.parse_config(both)


@pytest.mark.parametrize("key", sorted(IGNORED))
def test_keys_without_effect_warn_and_change_nothing(shared, key):
    with pytest.warns(DeprecationWarning, match=f"{key!r} has no effect"):
        assert shared.parse_config({key: [256, 256]}) == shared.parse_config({})


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_refused_keys_say_what_to_do_instead(shared, key):
    with pytest.raises(ConfigError, match=re.escape(f"{key!r} is not supported: {REFUSED[key]}")):
        shared.parse_config({key: 1})


def test_no_old_key_is_a_key_too(shared):
    assert not set(shared.schema.keys) & ({*RENAMED} | {*IGNORED} | {*REFUSED})


# --- callables and classes ------------------------------------------------------------------------


def test_callables_are_kept_as_they_are(shared):
    def soft(x):
        return x

    parsed = shared.parse_config({"fcnet_activation": soft, "post_fcnet_weights_initializer": max})
    assert parsed["fcnet_activation"] is soft
    assert parsed.given == {"fcnet_activation": soft, "post_fcnet_weights_initializer": max}
    assert parsed.fresh()["post_fcnet_weights_initializer"] is max


def test_a_numpy_function_is_a_callable(shared):
    assert shared.parse_config({"fcnet_activation": np.tanh})["fcnet_activation"] is np.tanh


# --- defaults -------------------------------------------------------------------------------------


def test_the_defaults_are_rllibs_where_both_have_the_key():
    known = {
        "fcnet_hiddens": [256, 256],
        "fcnet_activation": "tanh",
        "post_fcnet_hiddens": [],
        "post_fcnet_activation": "relu",
        "free_log_std": False,
        "no_final_linear": False,
        "vf_share_layers": True,
        "max_seq_len": 20,
        "custom_model": None,
        "custom_model_config": {},
        "custom_action_dist": None,
        "custom_preprocessor": None,
    }
    assert {key: rlcatalog.MODEL_DEFAULTS[key] for key in known} == known


def test_the_defaults_are_fresh_each_time():
    first = rlcatalog.MODEL_DEFAULTS
    first["fcnet_hiddens"].append(1)
    first["custom_model_config"]["x"] = 1
    first["vf_share_layers"] = False
    again = rlcatalog.MODEL_DEFAULTS
    assert again["fcnet_hiddens"] == [256, 256]
    assert again["custom_model_config"] == {}
    assert again["vf_share_layers"] is True


def test_the_defaults_filled_in_are_accepted_back(shared):
    assert rlcatalog.default_catalog().parse_config(rlcatalog.MODEL_DEFAULTS).given == {}
    filled = {**shared.schema.defaults(), "fcnet_hiddens": [8], "free_log_std": True}
    assert shared.parse_config(filled).given == {"fcnet_hiddens": [8], "free_log_std": True}


def test_the_defaults_are_those_of_the_installed_packages():
    assert "fcnet_hiddens" not in catalog_of("categorical").schema.defaults()
    assert "vf_share_layers" in catalog_of().schema.defaults()


def test_every_key_says_what_it_means(shared):
    rows = shared.schema.keys.values()
    assert {row.owner for row in rows} == {
        "rlcatalog",
        "rlcatalog-categorical",
        "rlcatalog-fcnet",
        "rlcatalog-gaussian",
        "rlcatalog-preprocessors",
    }
    assert [row.name for row in rows if len(row.meaning) < 8] == []


def test_a_component_reads_the_part_of_a_config_that_is_its_own():
    found = read_config({"vf_share_layers": np.bool_(False), "somebody_elses": 3}, KernelConfig)
    assert found.vf_share_layers is False
    assert found.post_fcnet_hiddens == []
    with pytest.raises(ConfigTypeError, match=r"'vf_share_layers'.*got 'int'"):
        read_config({"vf_share_layers": 0}, KernelConfig)
