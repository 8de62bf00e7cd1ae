"""Reading a model config: NumPy values, RLlib's old keys, callables, defaults."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import rlcatalog
from rlcatalog import Catalog
from rlcatalog.config import KernelConfig, read_config
from rlcatalog.config.rllib_keys import IGNORED, REFUSED, RENAMED
from rlcatalog.errors import ConfigError, ConfigTypeError
from rlcatalog.plugins.discovery import scan


def make_catalog(*names):
    """Return a catalog of the installed plugins with these entry-point names."""
    return Catalog([point for point in scan() if point.name in names], environ={})


# --- NumPy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "python_config"),
    [
        pytest.param({"fcnet_hiddens": np.array([8, 6])}, {"fcnet_hiddens": [8, 6]}, id="array"),
        pytest.param(
            {"fcnet_hiddens": [np.int32(8), np.uint16(6)]},
            {"fcnet_hiddens": [8, 6]},
            id="list-of-integers",
        ),
        pytest.param(
            {"fcnet_hiddens": (8, np.int64(6))}, {"fcnet_hiddens": [8, 6]}, id="mixed-tuple"
        ),
        pytest.param({"vf_share_layers": np.bool_(False)}, {"vf_share_layers": False}, id="bool"),
        pytest.param({"max_seq_len": np.int8(5)}, {"max_seq_len": 5}, id="integer"),
        pytest.param(
            {"fcnet_activation": np.str_("relu")}, {"fcnet_activation": "relu"}, id="text"
        ),
        pytest.param(
            {"custom_model_config": {"a": np.float32(0.5), "b": {"c": np.arange(3)}}},
            {"custom_model_config": {"a": 0.5, "b": {"c": [0, 1, 2]}}},
            id="nested",
        ),
        pytest.param(
            {
                "fcnet_weights_initializer": "normc",
                "fcnet_weights_initializer_config": {"std": np.float64(2)},
            },
            {
                "fcnet_weights_initializer": "normc",
                "fcnet_weights_initializer_config": {"std": 2.0},
            },
            id="argument-of-an-initialiser",
        ),
    ],
)
def test_numpy_values_become_python_values(shared, config, python_config):
    parsed = shared.parse_config(config)

    assert parsed == shared.parse_config(python_config)
    assert json.loads(json.dumps(parsed.given)) == python_config  # json rejects NumPy values


@pytest.mark.parametrize(
    ("config", "cause"),
    [
        pytest.param(
            {"vf_share_layers": np.int64(1)}, "expected 'bool', got 'int'", id="integer-for-bool"
        ),
        pytest.param({"fcnet_hiddens": np.array([8.5])}, "got 'float'", id="float-for-integer"),
    ],
)
def test_numpy_value_of_wrong_type_is_rejected(shared, config, cause):
    with pytest.raises(ConfigTypeError, match=cause):
        shared.parse_config(config)


# --- old keys -------------------------------------------------------------------------------------


def test_custom_options_becomes_custom_model_config(shared):
    with pytest.warns(DeprecationWarning, match="is now called 'custom_model_config'"):
        parsed = shared.parse_config({"custom_options": {"a": 1}})

    assert parsed["custom_model_config"] == {"a": 1}
    assert "custom_options" not in parsed


def test_always_check_shapes_becomes_check_observations(shared):
    with pytest.warns(DeprecationWarning, match="check_observations"):
        parsed = shared.parse_config({"always_check_shapes": True})

    assert parsed["check_observations"] == "always"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(
            {"custom_options": {"a": 1}, "custom_model_config": {"a": 2}}, id="old-key-first"
        ),
        pytest.param(
            {"custom_model_config": {"a": 2}, "custom_options": {"a": 1}}, id="new-key-first"
        ),
    ],
)
def test_old_and_new_key_together_are_rejected(shared, config):
    with pytest.raises(ConfigError, match="another name for 'custom_model_config'"):
        shared.parse_config(config)


@pytest.mark.parametrize("key", sorted(IGNORED))
def test_ignored_key_warns_and_changes_nothing(shared, key):
    with pytest.warns(DeprecationWarning, match=f"{key!r} has no effect"):
        parsed = shared.parse_config({key: [256, 256]})

    assert parsed == shared.parse_config({})


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_unsupported_key_error_says_what_to_do_instead(shared, key):
    with pytest.raises(ConfigError, match=re.escape(f"{key!r} is not supported: {REFUSED[key]}")):
        shared.parse_config({key: 1})


def test_old_keys_are_not_in_the_schema(shared):
    assert not set(shared.schema.keys) & ({*RENAMED} | {*IGNORED} | {*REFUSED})


# --- callables and classes ------------------------------------------------------------------------


def test_callables_are_kept_as_they_are(shared):
    def soft(x):
        return x

    parsed = shared.parse_config({"fcnet_activation": soft, "post_fcnet_weights_initializer": max})

    assert parsed["fcnet_activation"] is soft
    assert parsed.given == {"fcnet_activation": soft, "post_fcnet_weights_initializer": max}
    assert parsed.fresh()["post_fcnet_weights_initializer"] is max


def test_numpy_function_is_kept_as_it_is(shared):
    parsed = shared.parse_config({"fcnet_activation": np.tanh})

    assert parsed["fcnet_activation"] is np.tanh


# --- defaults -------------------------------------------------------------------------------------


def test_model_defaults_are_those_of_rllib():
    rllib_defaults = {
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
    shared_keys = {key: rlcatalog.MODEL_DEFAULTS[key] for key in rllib_defaults}
    assert shared_keys == rllib_defaults


def test_model_defaults_are_a_new_copy_each_time():
    first = rlcatalog.MODEL_DEFAULTS
    first["fcnet_hiddens"].append(1)
    first["custom_model_config"]["x"] = 1
    first["vf_share_layers"] = False

    second = rlcatalog.MODEL_DEFAULTS

    assert second["fcnet_hiddens"] == [256, 256]
    assert second["custom_model_config"] == {}
    assert second["vf_share_layers"] is True


def test_config_equal_to_defaults_counts_as_empty():
    catalog = rlcatalog.default_catalog()

    assert catalog.parse_config(rlcatalog.MODEL_DEFAULTS).given == {}


def test_config_counts_only_values_that_differ_from_defaults(shared):
    changes = {"fcnet_hiddens": [8], "free_log_std": True}

    parsed = shared.parse_config({**shared.schema.defaults(), **changes})

    assert parsed.given == changes


def test_defaults_are_those_of_the_loaded_packages():
    assert "fcnet_hiddens" not in make_catalog("categorical").schema.defaults()
    assert "vf_share_layers" in make_catalog().schema.defaults()  # the kernel's key


def test_schema_names_owner_and_meaning_of_each_key(shared):
    rows = shared.schema.keys.values()

    assert {row.owner for row in rows} == {
        "rlcatalog",
        "rlcatalog-categorical",
        "rlcatalog-fcnet",
        "rlcatalog-gaussian",
        "rlcatalog-preprocessors",
    }
    assert [row.name for row in rows if len(row.meaning) < 8] == []


def test_read_config_ignores_keys_of_other_packages():
    struct = read_config({"vf_share_layers": np.bool_(False), "somebody_elses": 3}, KernelConfig)

    assert struct.vf_share_layers is False
    assert struct.post_fcnet_hiddens == []  # the default


def test_read_config_rejects_wrong_type():
    with pytest.raises(ConfigTypeError, match=r"'vf_share_layers'.*got 'int'"):
        read_config({"vf_share_layers": 0}, KernelConfig)
