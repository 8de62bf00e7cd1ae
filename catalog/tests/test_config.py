"""The model config: parsed once, strictly, with messages that help; nothing is shared with caller or other models."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import warnings
from types import MappingProxyType

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlcatalog
from rlcatalog import Catalog, Preprocessor
from rlcatalog.config import KernelConfig, part, plain, same
from rlcatalog.discovery import scan
from rlcatalog.errors import (
    CatalogError,
    ConfigError,
    ConfigTypeError,
    MissingPluginError,
    UnknownConfigKeyError,
    UnknownNameError,
)
from rlcatalog.legacy_keys import ALIASES, IGNORED, REFUSED

VECTOR = gym.spaces.Box(-1, 1, (3,), np.float32)
TWO = gym.spaces.Discrete(2)
SMALL = {"fcnet_hiddens": [4]}


def catalog_of(*names, environ=None):
    """A catalog of the installed plugins with these entry-point names."""
    return Catalog([point for point in scan() if point.name in names], environ=environ or {})


@pytest.fixture(scope="module")
def shared():
    return catalog_of("fcnet", "categorical", "gaussian", "preprocessors")


@pytest.fixture
def catalog():
    return catalog_of("fcnet", "categorical", "gaussian", "preprocessors")


# --- unknown keys ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("fcnet_hidden", "fcnet_hiddens"),
        ("fcnet_activations", "fcnet_activation"),
        ("vf_share_layer", "vf_share_layers"),
        ("post_fcnet_hidden", "post_fcnet_hiddens"),
        ("custom_model_configs", "custom_model_config"),
        ("freelogstd", "free_log_std"),
    ],
)
def test_an_unknown_key_names_the_nearest(shared, typo, meant):
    with pytest.raises(UnknownConfigKeyError, match=f"Unknown model config key '{typo}'. Did you mean '{meant}'"):
        shared.parse_config({typo: 1})


def test_an_unknown_key_is_a_key_error_and_a_value_error_with_a_readable_message(shared):
    with pytest.raises(KeyError) as caught:
        shared.parse_config({"zzz": 1})
    assert isinstance(caught.value, ValueError)
    assert str(caught.value).startswith("Unknown model config key 'zzz'. `rlcatalog.MODEL_DEFAULTS` lists")


def test_a_key_that_is_no_text_is_unknown(shared):
    with pytest.raises(UnknownConfigKeyError, match="key 7"):
        shared.parse_config({7: 1})


def test_every_lookup_refuses_a_typo(shared):
    wrong = {"fcnet_hidden": [4]}
    for lookup in (
        lambda: shared.resolve(VECTOR, TWO, wrong),
        lambda: shared.explain(VECTOR, TWO, wrong),
        lambda: shared.build(VECTOR, TWO, wrong),
        lambda: shared.action_dist(TWO, wrong),
        lambda: shared.model_v2(VECTOR, TWO, 2, wrong),
        lambda: rlcatalog.ModelCatalog.get_preprocessor_for_space(VECTOR, wrong),
        lambda: rlcatalog.ModelCatalog.get_action_dist(TWO, wrong),
        lambda: rlcatalog.ModelCatalog.get_model_v2(VECTOR, TWO, 2, wrong),
        lambda: rlcatalog.build(VECTOR, TWO, wrong),
    ):
        with pytest.raises(UnknownConfigKeyError, match="'fcnet_hiddens'"):
            lookup()


def test_a_key_whose_package_is_missing_names_the_package():
    with pytest.raises(UnknownConfigKeyError, match="'fcnet_hiddens' is provided by rlcatalog-fcnet, which is not"):
        catalog_of("categorical", "preprocessors").parse_config(SMALL)


def test_a_key_whose_package_is_disabled_says_so():
    catalog = catalog_of("fcnet", "categorical", environ={"RLCATALOG_DISABLE_PLUGINS": "rlcatalog-fcnet"})
    with pytest.raises(UnknownConfigKeyError, match=r"rlcatalog-fcnet [\d.]+, which is disabled: .*DISABLE_PLUGINS"):
        catalog.parse_config(SMALL)


def test_a_key_whose_package_failed_says_so(entry_point):
    broken = entry_point("rlcatalog-fcnet", RuntimeError("no such luck"))
    with pytest.warns(rlcatalog.errors.PluginWarning):
        catalog = Catalog([broken], environ={})
    with pytest.raises(UnknownConfigKeyError, match="which is failed: RuntimeError: no such luck"):
        catalog.parse_config(SMALL)


def test_a_key_of_a_package_to_come_names_the_package(shared):
    with pytest.raises(UnknownConfigKeyError, match="'use_lstm' will be provided by rlcatalog-lstm, which is not rel"):
        shared.parse_config({"use_lstm": True})


# --- wrong values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "expected", "found"),
    [
        ("fcnet_hiddens", "wide", "expected 'array', got 'str'", "'wide'"),
        ("fcnet_hiddens", 64, "expected 'array', got 'int'", "64"),
        ("fcnet_hiddens", None, "expected 'array', got 'null'", "None"),
        ("fcnet_hiddens", [8, "x"], "expected 'int', got 'str' - at 'fcnet_hiddens[1]'", "[8, 'x']"),
        ("fcnet_hiddens", [8, 2.5], "expected 'int', got 'float' - at 'fcnet_hiddens[1]'", "[8, 2.5]"),
        ("fcnet_hiddens", [True], "expected 'int', got 'bool' - at 'fcnet_hiddens[0]'", "[True]"),
        ("vf_share_layers", 1, "expected 'bool', got 'int'", "1"),
        ("vf_share_layers", "yes", "expected 'bool', got 'str'", "'yes'"),
        ("free_log_std", 0.0, "expected 'bool', got 'float'", "0.0"),
        ("max_seq_len", 2.5, "expected 'int', got 'float'", "2.5"),
        ("max_seq_len", True, "expected 'int', got 'bool'", "True"),
        ("custom_model_config", [1], "expected 'object', got 'array'", "[1]"),
        ("observation_filter", 3, "expected 'str', got 'int'", "3"),
        ("fcnet_weights_initializer_config", 3, "got 'int'", "3"),
    ],
)
def test_a_wrong_type_says_what_was_expected_and_found(shared, key, value, expected, found):
    with pytest.raises(ConfigTypeError) as caught:
        shared.parse_config({key: value})
    assert isinstance(caught.value, TypeError | ValueError)
    message = str(caught.value)
    assert message.startswith(f"model config key {key!r} (")
    assert expected in message
    assert f"; found {found}. Default: " in message


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"fcnet_hiddens": [0]}, "'fcnet_hiddens'.*>= 1.*found \\[0\\]"),
        ({"post_fcnet_hiddens": [8, -1]}, "'post_fcnet_hiddens'.*>= 1.*post_fcnet_hiddens\\[1\\]"),
        ({"max_seq_len": 0}, "'max_seq_len'.*>= 1"),
        ({"check_observations": "sometimes"}, "'check_observations'.*'sometimes'"),
        ({"action_bounds": "tanh"}, "'action_bounds'.*'tanh'"),
        ({"fcnet_activation": "rlu"}, "'fcnet_activation': unknown activation 'rlu'. Did you mean 'relu'.*silu"),
        ({"post_fcnet_activation": 3}, "'post_fcnet_activation': unknown activation 3"),
        ({"fcnet_weights_initializer": "norm_c"}, "'fcnet_weights_initializer': unknown initialiser.*'normc'"),
        ({"post_fcnet_bias_initializer": "one"}, "'post_fcnet_bias_initializer': unknown.*'ones'"),
        (
            {"fcnet_weights_initializer": "normc", "fcnet_weights_initializer_config": {"sd": 2}},
            "'fcnet_weights_initializer_config': 'normc' takes std; found \\['sd'\\]",
        ),
        (
            {"post_fcnet_weights_initializer": "zeros", "post_fcnet_weights_initializer_config": {"std": 2}},
            "'zeros' takes no arguments; found \\['std'\\]",
        ),
    ],
)
def test_a_value_out_of_range_is_refused(shared, config, said):
    with pytest.raises(ConfigError, match=said) as caught:
        shared.parse_config(config)
    assert not isinstance(caught.value, ConfigTypeError)


@pytest.mark.parametrize("initializer", ["xavier_uniform", "kaiming_normal", "orthogonal", "normc"])
def test_an_initialiser_of_matrices_is_refused_for_biases(shared, initializer):
    with pytest.raises(ConfigError, match="fcnet_bias_initializer"):
        shared.parse_config({"fcnet_bias_initializer": initializer})


@pytest.mark.parametrize("config", [[("fcnet_hiddens", [4])], "fcnet", 3, {"fcnet_hiddens"}])
def test_a_config_that_is_no_dict_is_refused(shared, config):
    with pytest.raises(ConfigTypeError, match="expected a dict, found"):
        shared.parse_config(config)


def test_none_is_the_empty_config(shared):
    assert shared.parse_config(None) == shared.parse_config({})
    assert shared.parse_config({}).given == {}


# --- NumPy -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_value", "python"),
    [
        ({"fcnet_hiddens": np.array([8, 6])}, {"fcnet_hiddens": [8, 6]}),
        ({"fcnet_hiddens": [np.int32(8), np.uint16(6)]}, {"fcnet_hiddens": [8, 6]}),
        ({"fcnet_hiddens": (8, np.int64(6))}, {"fcnet_hiddens": [8, 6]}),
        ({"vf_share_layers": np.bool_(False)}, {"vf_share_layers": False}),
        ({"max_seq_len": np.int8(5)}, {"max_seq_len": 5}),
        ({"fcnet_activation": np.str_("relu")}, {"fcnet_activation": "relu"}),
        ({"custom_model_config": {"a": np.float32(0.5), "b": {"c": np.arange(3)}}},
         {"custom_model_config": {"a": 0.5, "b": {"c": [0, 1, 2]}}}),
        ({"fcnet_weights_initializer": "normc", "fcnet_weights_initializer_config": {"std": np.float64(2)}},
         {"fcnet_weights_initializer": "normc", "fcnet_weights_initializer_config": {"std": 2.0}}),
    ],
)  # fmt: skip
def test_numpy_values_become_pythons_own(shared, given_value, python):
    parsed = shared.parse_config(given_value)
    assert parsed == shared.parse_config(python)
    assert json.loads(json.dumps(parsed.given)) == python  # json takes no NumPy value


def test_a_numpy_value_of_the_wrong_type_is_still_refused(shared):
    with pytest.raises(ConfigTypeError, match="expected 'bool', got 'int'"):
        shared.parse_config({"vf_share_layers": np.int64(1)})
    with pytest.raises(ConfigTypeError, match="got 'float'"):
        shared.parse_config({"fcnet_hiddens": np.array([8.5])})


# --- names that do not exist -----------------------------------------------------------------------------------------


def test_an_unknown_model_lists_what_exists(shared):
    with pytest.raises(UnknownNameError, match=r"Unknown model 'fcnett'. Did you mean 'fcnet'\? Known: fcnet"):
        shared.resolve(VECTOR, TWO, {"custom_model": "fcnett"})


def test_an_unknown_distribution_lists_what_exists(shared):
    said = "Unknown action dist 'gauss'.* Known: categorical, diag_gaussian"
    with pytest.raises(UnknownNameError, match=said):
        shared.resolve(VECTOR, TWO, {"custom_action_dist": "gauss"})
    with pytest.raises(UnknownNameError, match=said):
        shared.action_dist(TWO, {}, "gauss")


def test_an_unknown_preprocessor_lists_what_exists(shared):
    with pytest.raises(UnknownNameError, match=r"Unknown preprocessor 'one_hot'. Did you mean 'onehot'.*dict, none"):
        shared.resolve(VECTOR, TWO, {"custom_preprocessor": "one_hot"})


@pytest.mark.parametrize("framework", ["jax", "Torch", "pytorch", "", 3])
def test_an_unknown_framework_lists_what_exists(shared, framework):
    with pytest.raises(UnknownNameError, match=re.escape(f"Unknown framework {framework!r}") + ".*'torch', 'tf'"):
        shared.resolve(VECTOR, TWO, {}, framework)


def test_the_alias_of_tensorflow(shared):
    assert shared.resolve(VECTOR, TWO, {}, "tf2").framework == "tf"


def test_a_filter_of_a_package_to_come_names_the_package(shared):
    with pytest.raises(MissingPluginError, match="'MeanStdFilter' will be provided by rlcatalog-filters"):
        shared.resolve(VECTOR, TWO, {"observation_filter": "MeanStdFilter"})


def test_a_missing_part_names_its_package():
    with pytest.raises(MissingPluginError, match=r"action distribution for Discrete\(2\).*rlcatalog-categorical"):
        catalog_of("fcnet", "preprocessors").resolve(VECTOR, TWO)
    with pytest.raises(MissingPluginError, match=r"preprocessor for Box.*rlcatalog-preprocessors"):
        catalog_of("fcnet", "categorical").resolve(VECTOR, TWO)
    with pytest.raises(MissingPluginError, match=r"the default model.*rlcatalog-fcnet"):
        catalog_of("categorical", "preprocessors").resolve(VECTOR, TWO)
    with pytest.raises(MissingPluginError, match=r"model 'fcnet'.*rlcatalog-fcnet"):
        catalog_of("categorical", "preprocessors").resolve(VECTOR, TWO, {"custom_model": "fcnet"})


# --- old keys --------------------------------------------------------------------------------------------------------


def test_custom_options_is_custom_model_config(shared):
    with pytest.warns(DeprecationWarning, match="'custom_options' is now called 'custom_model_config'"):
        parsed = shared.parse_config({"custom_options": {"a": 1}})
    assert parsed.values["custom_model_config"] == {"a": 1}
    assert "custom_options" not in parsed.values


@pytest.mark.parametrize(("old", "new"), [(True, "always"), (False, "first")])
def test_always_check_shapes_is_check_observations(shared, old, new):
    with pytest.warns(DeprecationWarning, match="check_observations"):
        assert shared.parse_config({"always_check_shapes": old}).values["check_observations"] == new


@pytest.mark.parametrize("order", [1, -1])
def test_a_key_and_its_alias_at_once_are_refused(shared, order):
    both = dict([("custom_options", {"a": 1}), ("custom_model_config", {"a": 2})][::order])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(ConfigError, match="'custom_options' is another name of 'custom_model_config'"):
            shared.parse_config(both)


@pytest.mark.parametrize("key", sorted(IGNORED))
def test_keys_without_effect_warn_and_change_nothing(shared, key):
    with pytest.warns(DeprecationWarning, match=f"{key!r} has no effect"):
        assert shared.parse_config({key: [256, 256]}) == shared.parse_config({})


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_refused_keys_say_what_to_do_instead(shared, key):
    with pytest.raises(ConfigError, match=re.escape(f"{key!r} is refused: {REFUSED[key]}")):
        shared.parse_config({key: 1})


def test_no_old_key_is_a_key_too(shared):
    assert not set(shared.schema.keys) & ({*ALIASES} | {*IGNORED} | {*REFUSED})


# --- callables and classes -------------------------------------------------------------------------------------------


def test_callables_are_kept_as_they_are(shared):
    def soft(x):
        return x

    parsed = shared.parse_config({"fcnet_activation": soft, "post_fcnet_weights_initializer": max})
    assert parsed.values["fcnet_activation"] is soft
    assert parsed.given == {"fcnet_activation": soft, "post_fcnet_weights_initializer": max}
    assert parsed.fresh()["post_fcnet_weights_initializer"] is max


def test_a_numpy_function_is_a_callable(shared):
    assert shared.parse_config({"fcnet_activation": np.tanh}).values["fcnet_activation"] is np.tanh


# --- defaults --------------------------------------------------------------------------------------------------------


def test_the_defaults_are_rllibs_where_both_have_the_key():
    known = {
        "fcnet_hiddens": [256, 256], "fcnet_activation": "tanh", "post_fcnet_hiddens": [],
        "post_fcnet_activation": "relu", "free_log_std": False, "no_final_linear": False, "vf_share_layers": True,
        "max_seq_len": 20, "custom_model": None, "custom_model_config": {}, "custom_action_dist": None,
        "custom_preprocessor": None,
    }  # fmt: skip
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
    assert shared.parse_config(rlcatalog.MODEL_DEFAULTS).given == {}
    filled = {**rlcatalog.MODEL_DEFAULTS, "fcnet_hiddens": [8], "free_log_std": True}
    assert shared.parse_config(filled).given == {"fcnet_hiddens": [8], "free_log_std": True}


def test_the_defaults_are_those_of_the_installed_packages():
    assert "fcnet_hiddens" not in catalog_of("categorical").schema.defaults()
    assert "vf_share_layers" in catalog_of().schema.defaults()


def test_every_key_says_what_it_means(shared):
    rows = shared.schema.keys.values()
    assert {row.owner for row in rows} == {"rlcatalog", "rlcatalog-fcnet"}
    assert [row.name for row in rows if len(row.meaning) < 8] == []


def test_a_component_reads_the_part_of_a_config_that_is_its_own():
    found = part({"vf_share_layers": np.bool_(False), "somebody_elses": 3}, KernelConfig)
    assert found.vf_share_layers is False
    assert found.post_fcnet_hiddens == []
    with pytest.raises(ConfigTypeError, match=r"'vf_share_layers'.*got 'int'"):
        part({"vf_share_layers": 0}, KernelConfig)


# --- nothing is shared -----------------------------------------------------------------------------------------------


def test_the_callers_config_is_never_changed():
    given_config = {
        "fcnet_hiddens": [4, 4],
        "fcnet_activation": "relu",
        "custom_model_config": {"a": {"b": [1, (2, 3)]}},
        "fcnet_weights_initializer": "normc",
        "fcnet_weights_initializer_config": {"std": np.float32(2)},
    }
    before = copy.deepcopy(given_config)
    catalog = catalog_of("fcnet", "categorical", "preprocessors")
    catalog.explain(VECTOR, TWO, given_config).as_dict()
    policy = catalog.build(VECTOR, TWO, given_config)
    policy.act(np.zeros((1, 3), np.float32))
    policy.model.model_config["fcnet_hiddens"].append(7)
    policy.model.model_config["custom_model_config"]["a"]["b"].clear()
    policy.config["custom_model_config"]["a"]["b"].append(5)
    policy.config["fcnet_hiddens"].clear()
    assert given_config == before
    assert type(given_config["custom_model_config"]["a"]["b"][1]) is tuple


def test_a_config_that_cannot_be_written_to_is_enough(shared):
    frozen = MappingProxyType({"fcnet_hiddens": (4,), "custom_model_config": MappingProxyType({"a": 1})})
    parsed = shared.parse_config(frozen)
    assert parsed.given == {"fcnet_hiddens": [4], "custom_model_config": {"a": 1}}


def test_two_models_share_nothing(catalog):
    config = {"fcnet_hiddens": [4], "custom_model_config": {"a": [1]}}
    first, second = catalog.build(VECTOR, TWO, config), catalog.build(VECTOR, TWO, config)
    for values in (first.model.model_config, first.config):
        values["fcnet_hiddens"].append(9)
        values["custom_model_config"]["a"].append(9)
        values["vf_share_layers"] = False
    third = catalog.build(VECTOR, TWO, config)
    for policy in (second, third):
        for values in (policy.model.model_config, policy.config):
            assert values["fcnet_hiddens"] == [4]
            assert values["custom_model_config"] == {"a": [1]}
            assert values["vf_share_layers"] is True


def test_keyword_arguments_of_a_custom_model_are_its_own(catalog):
    from rlcatalog.torch import TorchModelV2, dense
    from rlcatalog_fcnet.torch import output_spec

    class Greedy(TorchModelV2):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name, sizes=()):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.seen = list(sizes)
            self.layer = dense(3, output_spec(num_outputs))
            sizes.append(99)

        def forward(self, input_dict, state, seq_lens):
            return self.layer(input_dict["obs_flat"]), state

    config = {"custom_model": Greedy, "custom_model_config": {"sizes": [1, 2]}}
    assert catalog.build(VECTOR, TWO, config).model.seen == [1, 2]
    assert catalog.build(VECTOR, TWO, config).model.seen == [1, 2]
    assert config["custom_model_config"] == {"sizes": [1, 2]}


def test_options_of_a_custom_preprocessor_are_its_own(catalog):
    seen = []

    class Greedy(Preprocessor):
        def _init_shape(self, obs_space, options):
            seen.append(list(options["custom_options"]["sizes"]))
            options["custom_options"]["sizes"].append(99)
            return obs_space.shape

        def transform(self, observation):
            return observation

    config = {"custom_preprocessor": Greedy, "custom_model_config": {"sizes": [1]}}
    with pytest.warns(DeprecationWarning, match="custom_preprocessor"):
        policy = catalog.build(VECTOR, TWO, config)
    assert {tuple(sizes) for sizes in seen} == {(1,)}
    assert policy.config["custom_model_config"] == {"sizes": [1]}


# --- lookups from memory ---------------------------------------------------------------------------------------------


def test_an_equal_config_is_answered_from_memory(catalog):
    first = catalog.resolve(VECTOR, TWO, {"fcnet_hiddens": [4]})
    assert catalog.resolve(VECTOR, TWO, {"fcnet_hiddens": [4]}) is first
    assert catalog.resolve(VECTOR, TWO, {"fcnet_hiddens": [5]}) is not first


@pytest.mark.parametrize("order", [1, -1])
def test_the_memory_does_not_take_1_for_true(catalog, order):
    good, bad = {"vf_share_layers": True}, {"vf_share_layers": 1}
    for config in [good, bad, good, bad][::order]:
        if config is good:
            catalog.resolve(VECTOR, TWO, config)
        else:
            with pytest.raises(ConfigTypeError, match="expected 'bool', got 'int'"):
                catalog.resolve(VECTOR, TWO, config)


def test_the_memory_looks_at_types_deep_inside(catalog):
    def inner(value):
        return catalog.resolve(VECTOR, TWO, {"custom_model_config": {"a": [value]}}).config.values[
            "custom_model_config"
        ]["a"][0]

    assert [type(inner(value)) for value in (True, 1, 1.0, True, 1.0, 1)] == [bool, int, float, bool, float, int]


def test_a_config_changed_in_place_is_looked_up_anew(catalog):
    config = {"fcnet_hiddens": [4], "custom_model_config": {"a": [1]}}
    catalog.resolve(VECTOR, TWO, config)
    config["fcnet_hiddens"].append(5)
    assert catalog.resolve(VECTOR, TWO, config).config.values["fcnet_hiddens"] == [4, 5]
    config["custom_model_config"]["a"].append(2)
    assert catalog.resolve(VECTOR, TWO, config).config.values["custom_model_config"] == {"a": [1, 2]}


def test_a_numpy_array_changed_in_place_is_looked_up_anew(catalog):
    config = {"fcnet_hiddens": np.array([4, 4])}
    catalog.resolve(VECTOR, TWO, config)
    config["fcnet_hiddens"][:] = 8
    assert catalog.resolve(VECTOR, TWO, config).config.values["fcnet_hiddens"] == [8, 8]


def test_registering_forgets_remembered_lookups(catalog):
    first = catalog.resolve(VECTOR, TWO, {})
    catalog.register_action_dist("another", type("Another", (rlcatalog.ActionDistribution,), {}))
    assert catalog.resolve(VECTOR, TWO, {}) is not first


def test_spaces_that_are_equal_but_not_the_same_object_get_their_own_lookup(catalog):
    def space():
        return gym.spaces.Box(-1, 1, (3,), np.float32)

    found = [catalog.resolve(space(), TWO, {}).request.obs.space for _ in range(200)]
    assert len({id(one) for one in found}) == 200


# --- copies ----------------------------------------------------------------------------------------------------------

#: Few different numbers, so that values equal under == and different in type meet often.
SCALARS = st.none() | st.booleans() | st.sampled_from([0, 1, 0.0, 1.0, 2.5]) | st.text("ab1", max_size=2)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=1), inner), max_leaves=6
)
quick = settings(max_examples=60, deadline=None)


@quick
@given(JSON)
def test_a_copy_is_equal_and_shares_no_container(value):
    copied = plain(value)
    assert copied == json.loads(json.dumps(value))
    assert same(copied, value)
    assert not _containers(value) & _containers(copied)


@quick
@given(JSON.flatmap(lambda a: st.tuples(st.just(a), st.just(copy.deepcopy(a)) | JSON)))
def test_same_is_equality_of_value_and_type(pair):
    # JSON tells True, 1 and 1.0 apart, which == does not.
    first, second = (json.dumps(value, sort_keys=True) for value in pair)
    assert same(*pair) == (first == second)


@given(SCALARS, SCALARS)
def test_same_tells_scalars_apart_by_type(a, b):
    assert same(a, b) == (repr(a) == repr(b))


def _containers(value):
    found = set()
    if isinstance(value, dict | list):
        found.add(id(value))
        for item in value.values() if isinstance(value, dict) else value:
            found |= _containers(item)
    return found


def test_same_copes_with_values_that_have_no_truth():
    assert not same([np.arange(3)], [np.arange(3)])
    assert same([len], [len])


# --- before a framework ----------------------------------------------------------------------------------------------

BAD_INPUT = """
import sys, warnings
import gymnasium as gym
import numpy as np
import rlcatalog
from rlcatalog.errors import CatalogError

warnings.simplefilter("ignore", DeprecationWarning)
box, two = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2)
graph = gym.spaces.Dict({"a": box, "g": gym.spaces.Graph(box, None)})
cases = [
    lambda: rlcatalog.build(box, two, {"fcnet_hidden": [4]}),
    lambda: rlcatalog.build(box, two, {"fcnet_hiddens": "wide"}, "tf"),
    lambda: rlcatalog.build(box, two, {"fcnet_hiddens": [0]}),
    lambda: rlcatalog.build(box, two, {"fcnet_activation": "rlu"}),
    lambda: rlcatalog.build(box, two, {"vf_share_layers": 1}, "tf"),
    lambda: rlcatalog.build(box, two, {"use_lstm": True}),
    lambda: rlcatalog.build(box, two, {"squash_to_range": True}),
    lambda: rlcatalog.build(box, two, {"custom_model": "fcnett"}),
    lambda: rlcatalog.build(box, two, {"custom_model": dict}),
    lambda: rlcatalog.build(box, two, {"custom_action_dist": "gauss"}),
    lambda: rlcatalog.build(box, two, {}, "jax"),
    lambda: rlcatalog.build(graph, two),
    lambda: rlcatalog.build(box, graph),
    lambda: rlcatalog.build("box", two),
    lambda: rlcatalog.ModelCatalog.get_model_v2(box, two, 2, {"fcnet_hidden": [4]}, "tf"),
    lambda: rlcatalog.ModelCatalog.get_action_dist(two, {"fcnet_hidden": [4]}),
    lambda: rlcatalog.ModelCatalog.get_preprocessor_for_space(graph),
]
for i, case in enumerate(cases):
    try:
        case()
    except CatalogError as error:
        print(i, type(error).__name__)
    else:
        print(i, "was accepted")
rlcatalog.explain(box, two, {"fcnet_hiddens": np.array([4])}, "tf").as_dict()
print(sorted({"torch", "tensorflow", "keras", "jax"} & set(sys.modules)))
"""


def test_all_of_it_is_said_before_a_framework_is_imported():
    done = subprocess.run([sys.executable, "-c", BAD_INPUT], capture_output=True, text=True, check=True)
    *answers, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    assert answers == [
        "0 UnknownConfigKeyError", "1 ConfigTypeError", "2 ConfigError", "3 ConfigError", "4 ConfigTypeError",
        "5 UnknownConfigKeyError", "6 ConfigError", "7 UnknownNameError", "8 ModelContractError", "9 UnknownNameError",
        "10 UnknownNameError", "11 UnsupportedSpaceError", "12 MissingPluginError", "13 UnsupportedSpaceError",
        "14 UnknownConfigKeyError", "15 UnknownConfigKeyError", "16 UnsupportedSpaceError",
    ]  # fmt: skip


def test_every_error_of_the_config_is_a_catalog_error():
    for kind in (ConfigError, ConfigTypeError, UnknownConfigKeyError, UnknownNameError, MissingPluginError):
        assert issubclass(kind, CatalogError)
