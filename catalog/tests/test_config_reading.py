"""Reading a model config: NumPy values, RLlib's old keys, callables, defaults."""

from __future__ import annotations

import json

import numpy as np
import pytest

import rlcatalog
from rlcatalog.config import KernelConfig, read_config
from rlcatalog.config.rllib_keys import IGNORED, REFUSED, RENAMED
from rlcatalog.errors import ConfigError, ConfigTypeError
from rlcatalog_testing import isolated_catalog

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
def test_numpy_values_become_python_values(read_only_catalog, config, python_config):
    parsed = read_only_catalog.parse_config(config)

    assert parsed == read_only_catalog.parse_config(python_config)
    assert json.loads(json.dumps(parsed.given)) == python_config  # json rejects NumPy values


@pytest.mark.parametrize(
    ("config", "cause"),
    [
        pytest.param(
            {"vf_share_layers": np.int64(1)}, "expected a bool, found an int", id="integer-for-bool"
        ),
        pytest.param({"fcnet_hiddens": np.array([8.5])}, "found a float", id="float-for-integer"),
    ],
)
def test_numpy_value_of_wrong_type_is_rejected(read_only_catalog, config, cause):
    with pytest.raises(ConfigTypeError, match=cause):
        read_only_catalog.parse_config(config)


# --- old keys -------------------------------------------------------------------------------------


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
def test_old_and_new_key_together_are_rejected(read_only_catalog, config):
    with pytest.raises(ConfigError, match="another name for 'custom_model_config'"):
        read_only_catalog.parse_config(config)


def test_old_keys_are_not_in_the_schema(read_only_catalog):
    assert not set(read_only_catalog.schema.keys) & ({*RENAMED} | {*IGNORED} | {*REFUSED})


# --- callables and classes ------------------------------------------------------------------------


def test_callables_are_kept_as_they_are(read_only_catalog):
    def soft(x):
        return x

    parsed = read_only_catalog.parse_config(
        {"fcnet_activation": soft, "post_fcnet_weights_initializer": max}
    )

    assert parsed["fcnet_activation"] is soft
    assert parsed.given == {"fcnet_activation": soft, "post_fcnet_weights_initializer": max}
    assert parsed.fresh()["post_fcnet_weights_initializer"] is max


def test_numpy_function_is_kept_as_it_is(read_only_catalog):
    parsed = read_only_catalog.parse_config({"fcnet_activation": np.tanh})

    assert parsed["fcnet_activation"] is np.tanh


# --- defaults -------------------------------------------------------------------------------------


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


def test_config_counts_only_values_that_differ_from_defaults(read_only_catalog):
    changes = {"fcnet_hiddens": [8], "free_log_std": True}

    parsed = read_only_catalog.parse_config({**read_only_catalog.schema.defaults(), **changes})

    assert parsed.given == changes


def test_defaults_are_those_of_the_loaded_packages():
    assert "fcnet_hiddens" not in isolated_catalog("rlcatalog-categorical").schema.defaults()
    assert "vf_share_layers" in isolated_catalog().schema.defaults()  # the kernel's key


def test_schema_names_the_owner_of_a_key(read_only_catalog):
    keys = read_only_catalog.schema.keys

    assert keys["vf_share_layers"].owner == "rlcatalog"
    assert keys["fcnet_hiddens"].owner == "rlcatalog-fcnet"


def test_schema_says_what_each_key_means(read_only_catalog):
    for key in read_only_catalog.schema.keys.values():
        assert key.meaning, key.name


def test_read_config_ignores_keys_of_other_packages():
    struct = read_config({"vf_share_layers": np.bool_(False), "somebody_elses": 3}, KernelConfig)

    assert struct.vf_share_layers is False
    assert struct.post_fcnet_hiddens == []  # the default


def test_read_config_rejects_wrong_type():
    with pytest.raises(ConfigTypeError, match=r"'vf_share_layers'.*found an int"):
        read_config({"vf_share_layers": 0}, KernelConfig)
