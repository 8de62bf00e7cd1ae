"""Rejecting a model config: unknown keys, wrong values, unknown names; and all of it before a
framework is imported.
"""

from __future__ import annotations

import json
import re

import gymnasium as gym
import numpy as np
import pytest
import warm

import rlcatalog
from rlcatalog import Catalog, ModelCatalog, public_index
from rlcatalog.config import MODEL_WORDS
from rlcatalog.errors import (
    ConfigError,
    ConfigTypeError,
    UnknownConfigKeyError,
)
from rlcatalog_testing import isolated_catalog

THREE_FEATURES = gym.spaces.Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = gym.spaces.Discrete(2)
SMALL = {"fcnet_hiddens": [4]}


# --- unknown keys ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typo", "suggestion"),
    [
        ("fcnet_hidden", "fcnet_hiddens"),
        ("fcnet_activations", "fcnet_activation"),
        ("vf_share_layer", "vf_share_layers"),
        ("post_fcnet_hidden", "post_fcnet_hiddens"),
        ("custom_model_configs", "custom_model_config"),
        ("freelogstd", "free_log_std"),
    ],
)
def test_unknown_key_error_suggests_the_nearest_key(read_only_catalog, typo, suggestion):
    with pytest.raises(UnknownConfigKeyError) as caught:
        read_only_catalog.parse_config({typo: 1})

    assert f"Unknown model config key '{typo}'" in str(caught.value)
    assert f"Did you mean '{suggestion}'" in str(caught.value)


def test_unknown_key_error_is_key_error_and_value_error(read_only_catalog):
    with pytest.raises(KeyError) as caught:
        read_only_catalog.parse_config({"zzz": 1})

    assert isinstance(caught.value, ValueError)
    # A plain KeyError would show its message in quotation marks.
    assert str(caught.value).startswith("Unknown model config key 'zzz'. ")
    assert "`rlcatalog.MODEL_DEFAULTS` lists" in str(caught.value)


def test_key_that_is_not_text_is_unknown(read_only_catalog):
    with pytest.raises(UnknownConfigKeyError, match="key 7"):
        read_only_catalog.parse_config({7: 1})


#: Every function that takes a model config, called with a catalog and a config.
LOOKUPS = {
    "resolve": lambda catalog, config: catalog.resolve(THREE_FEATURES, TWO_ACTIONS, config),
    "explain": lambda catalog, config: catalog.explain(THREE_FEATURES, TWO_ACTIONS, config),
    "build": lambda catalog, config: rlcatalog.build(
        THREE_FEATURES, TWO_ACTIONS, config, catalog=catalog
    ),
    "build-by-default-catalog": lambda _, config: rlcatalog.build(
        THREE_FEATURES, TWO_ACTIONS, config
    ),
    "action-dist": lambda catalog, config: catalog.action_dist(TWO_ACTIONS, config),
    "model": lambda catalog, config: catalog.model_v2(THREE_FEATURES, TWO_ACTIONS, 2, config),
    "rllib-preprocessor": lambda _, config: ModelCatalog.get_preprocessor_for_space(
        THREE_FEATURES, config
    ),
    "rllib-action-dist": lambda _, config: ModelCatalog.get_action_dist(TWO_ACTIONS, config),
    "rllib-model": lambda _, config: ModelCatalog.get_model_v2(
        THREE_FEATURES, TWO_ACTIONS, 2, config
    ),
}


@pytest.mark.parametrize("look_up", LOOKUPS.values(), ids=LOOKUPS)
def test_unknown_key_is_rejected_by_each_lookup(read_only_catalog, look_up):
    with pytest.raises(UnknownConfigKeyError, match="'fcnet_hiddens'"):
        look_up(read_only_catalog, {"fcnet_hidden": [4]})


def test_key_of_missing_package_error_names_package():
    catalog = isolated_catalog("rlcatalog-categorical", "rlcatalog-preprocessors")

    with pytest.raises(UnknownConfigKeyError, match="by rlcatalog-fcnet, which is not") as caught:
        catalog.parse_config(SMALL)

    assert "'fcnet_hiddens' is provided" in str(caught.value)


def test_key_of_disabled_package_error_names_the_switch():
    environ = {"RLCATALOG_DISABLE_PLUGINS": "rlcatalog-fcnet"}
    catalog = isolated_catalog("rlcatalog-fcnet", "rlcatalog-categorical", environ=environ)

    with pytest.raises(UnknownConfigKeyError, match=r"disabled: .*DISABLE_PLUGINS") as caught:
        catalog.parse_config(SMALL)

    assert re.search(r"rlcatalog-fcnet [\d.]+, which is disabled", str(caught.value))


def test_key_of_failed_package_error_names_the_failure(entry_point):
    broken = entry_point("rlcatalog-fcnet", RuntimeError("no such luck"))
    with pytest.warns(rlcatalog.errors.PluginWarning):
        catalog = Catalog([broken], environ={})

    with pytest.raises(UnknownConfigKeyError, match="failed: RuntimeError: no such luck"):
        catalog.parse_config(SMALL)


# --- words of other libraries ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("net_arch", "fcnet_hiddens"),
        ("activation_fn", "fcnet_activation"),
        ("features_extractor_class", "custom_model"),
        ("features_extractor_kwargs", "custom_model_config"),
        ("normalize_images", "image_scale"),
        ("lstm_hidden_size", "lstm_cell_size"),
    ],
)
def test_word_of_stable_baselines3_leads_to_our_key(read_only_catalog, word, key):
    with pytest.raises(UnknownConfigKeyError, match=f"'{word}' is '{key}' here"):
        read_only_catalog.parse_config({word: 1})


@pytest.mark.parametrize("word", MODEL_WORDS)
def test_words_of_other_libraries_name_keys_that_exist(word):
    advice = MODEL_WORDS[word].replace(f"'{word}'", "")

    named_keys = re.findall(r"'(\w+)'", advice)

    for key in set(named_keys) - MODEL_WORDS.keys():
        assert public_index.provider_of("config", key) is not None, key
    assert public_index.provider_of("config", word) is None


@pytest.mark.parametrize("word", ["learning_rate", "gamma", "n_steps", "train_batch_size"])
def test_setting_of_the_algorithm_is_named(read_only_catalog, word):
    with pytest.raises(UnknownConfigKeyError, match="setting of the algorithm"):
        read_only_catalog.parse_config({word: 1})


# --- wrong values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("fcnet_hiddens", "wide", "expected a list, found a string: 'wide'"),
        ("fcnet_hiddens", 64, "expected a list, found an int: 64"),
        ("fcnet_hiddens", None, "expected a list, found None"),
        (
            "fcnet_hiddens",
            [8, "x"],
            "expected an int, found a string at fcnet_hiddens[1], in [8, 'x']",
        ),
        (
            "fcnet_hiddens",
            [8, 2.5],
            "expected an int, found a float at fcnet_hiddens[1], in [8, 2.5]",
        ),
        ("fcnet_hiddens", [True], "expected an int, found a bool at fcnet_hiddens[0], in [True]"),
        ("vf_share_layers", 1, "expected a bool, found an int: 1"),
        ("vf_share_layers", "yes", "expected a bool, found a string: 'yes'"),
        ("free_log_std", 0.0, "expected a bool, found a float: 0.0"),
        ("max_seq_len", 2.5, "expected an int, found a float: 2.5"),
        ("max_seq_len", True, "expected an int, found a bool: True"),
        ("custom_model_config", [1], "expected a dict, found a list: [1]"),
        ("observation_filter", 3, "expected a string, found an int: 3"),
        ("fcnet_weights_initializer_config", 3, "found an int: 3"),
    ],
)
def test_wrong_type_error_says_expected_and_found(read_only_catalog, key, value, problem):
    with pytest.raises(ConfigTypeError) as caught:
        read_only_catalog.parse_config({key: value})

    assert isinstance(caught.value, TypeError | ValueError)
    message = str(caught.value)
    assert message.startswith(f"model config key {key!r} (")
    assert f"{problem}. Default: " in message


@pytest.mark.parametrize(
    ("config", "phrases"),
    [
        pytest.param(
            {"fcnet_hiddens": [0]}, ("'fcnet_hiddens'", ">= 1", "found [0]"), id="layer-of-size-0"
        ),
        pytest.param(
            {"post_fcnet_hiddens": [8, -1]},
            ("'post_fcnet_hiddens'", ">= 1", "post_fcnet_hiddens[1]"),
            id="layer-of-negative-size",
        ),
        pytest.param({"max_seq_len": 0}, ("'max_seq_len'", ">= 1"), id="sequence-of-length-0"),
        pytest.param({"action_bounds": "tanh"}, ("'action_bounds'", "'tanh'"), id="unknown-bounds"),
        pytest.param(
            {"fcnet_activation": "rlu"},
            ("'fcnet_activation': unknown activation 'rlu'", "Did you mean 'relu'", "silu"),
            id="misspelt-activation",
        ),
        pytest.param(
            {"post_fcnet_activation": 3},
            ("'post_fcnet_activation': unknown activation 3",),
            id="number-as-activation",
        ),
        pytest.param(
            {"fcnet_weights_initializer": "norm_c"},
            ("'fcnet_weights_initializer': unknown initialiser", "'normc'"),
            id="misspelt-initialiser",
        ),
        pytest.param(
            {"post_fcnet_bias_initializer": "one"},
            ("'post_fcnet_bias_initializer': unknown", "'ones'"),
            id="misspelt-bias-initialiser",
        ),
        pytest.param(
            {"fcnet_weights_initializer": "normc", "fcnet_weights_initializer_config": {"sd": 2}},
            ("'fcnet_weights_initializer_config': ", "'normc' takes std; found ['sd']"),
            id="unknown-argument-of-initialiser",
        ),
        pytest.param(
            {
                "post_fcnet_weights_initializer": "zeros",
                "post_fcnet_weights_initializer_config": {"std": 2},
            },
            ("'zeros' takes no arguments; found ['std']",),
            id="argument-of-initialiser-without-any",
        ),
    ],
)
def test_value_out_of_range_is_rejected(read_only_catalog, config, phrases):
    with pytest.raises(ConfigError) as caught:
        read_only_catalog.parse_config(config)

    assert not isinstance(caught.value, ConfigTypeError)
    for phrase in phrases:
        assert phrase in str(caught.value)


def test_value_that_is_not_a_choice_error_lists_the_choices(read_only_catalog):
    with pytest.raises(ConfigError, match="found 'often'") as caught:
        read_only_catalog.parse_config({"check_observations": "often"})

    assert "Known: 'first', 'always', 'never'. Default: 'first'" in str(caught.value)


@pytest.mark.parametrize("initializer", ["xavier_uniform", "kaiming_normal", "orthogonal", "normc"])
def test_initialiser_of_matrices_is_rejected_for_biases(read_only_catalog, initializer):
    with pytest.raises(ConfigError, match="fcnet_bias_initializer"):
        read_only_catalog.parse_config({"fcnet_bias_initializer": initializer})


@pytest.mark.parametrize(
    "config",
    [
        pytest.param([("fcnet_hiddens", [4])], id="list-of-pairs"),
        pytest.param("fcnet", id="text"),
        pytest.param(3, id="number"),
        pytest.param({"fcnet_hiddens"}, id="set"),
    ],
)
def test_config_that_is_not_a_dict_is_rejected(read_only_catalog, config):
    with pytest.raises(ConfigTypeError, match="expected a dict, found"):
        read_only_catalog.parse_config(config)


def test_config_none_is_the_empty_config(read_only_catalog):
    assert read_only_catalog.parse_config(None) == read_only_catalog.parse_config({})
    assert read_only_catalog.parse_config({}).given == {}


# --- before a framework ---------------------------------------------------------------------------

#: A wrong call, and the error that it raises.
WRONG_CALLS = {
    'build(box, two, {"fcnet_hidden": [4]})': "UnknownConfigKeyError",
    'build(box, two, {"fcnet_hiddens": "wide"}, "tf")': "ConfigTypeError",
    'build(box, two, {"fcnet_hiddens": [0]})': "ConfigError",
    'build(box, two, {"fcnet_activation": "rlu"})': "ConfigError",
    'build(box, two, {"vf_share_layers": 1}, "tf")': "ConfigTypeError",
    'build(box, two, {"use_lstm": True, "lstm_cell_size": 0})': "ConfigError",
    'build(box, two, {"squash_to_range": True})': "ConfigError",
    'build(box, two, {"custom_model": "fcnett"})': "UnknownNameError",
    'build(box, two, {"custom_model": dict})': "ModelContractError",
    'build(box, two, {"custom_action_dist": "gauss"})': "UnknownNameError",
    'build(box, two, {}, "jax")': "UnknownNameError",
    "build(graph, two)": "UnsupportedSpaceError",
    "build(box, graph)": "UnsupportedSpaceError",
    'build("box", two)': "UnsupportedSpaceError",
    'ModelCatalog.get_model_v2(box, two, 2, {"fcnet_hidden": [4]}, "tf")': "UnknownConfigKeyError",
    'ModelCatalog.get_action_dist(two, {"fcnet_hidden": [4]})': "UnknownConfigKeyError",
    "ModelCatalog.get_preprocessor_for_space(graph)": "UnsupportedSpaceError",
}

#: Makes the calls, and prints their errors and the frameworks that were imported, as JSON.
MAKE_WRONG_CALLS = f"""
import json, sys, warnings
import gymnasium as gym
import numpy as np
from rlcatalog import ModelCatalog, build, explain
from rlcatalog.errors import CatalogError

warnings.simplefilter("ignore", DeprecationWarning)
box = gym.spaces.Box(-1, 1, (3,))
two = gym.spaces.Discrete(2)
graph = gym.spaces.Dict({{"a": box, "g": gym.spaces.Graph(box, None)}})
errors = {{}}
for call in {list(WRONG_CALLS)}:
    try:
        eval(call)
    except CatalogError as error:
        errors[call] = type(error).__name__
    else:
        errors[call] = "was accepted"
explain(box, two, {{"fcnet_hiddens": np.array([4])}}, "tf").as_dict()
frameworks = sorted({{"torch", "tensorflow", "keras", "jax"}} & set(sys.modules))
print(json.dumps([errors, frameworks]))
"""


def test_wrong_calls_fail_before_a_framework_is_imported(tmp_path):
    process = warm.run(["-c", MAKE_WRONG_CALLS], tmp_path, frameworks=False)

    errors, imported_frameworks = json.loads(process.stdout)
    assert errors == WRONG_CALLS
    assert imported_frameworks == []
