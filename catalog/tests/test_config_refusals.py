"""The model config: what is refused, with messages that help, before a framework is imported."""

from __future__ import annotations

import re

import gymnasium as gym
import numpy as np
import pytest
import warm

import rlcatalog
from rlcatalog import Catalog
from rlcatalog.errors import (
    CatalogError,
    ConfigError,
    ConfigTypeError,
    MissingPluginError,
    UnknownConfigKeyError,
    UnknownNameError,
)
from rlcatalog.plugins.discovery import scan

VECTOR = gym.spaces.Box(-1, 1, (3,), np.float32)
TWO = gym.spaces.Discrete(2)
SMALL = {"fcnet_hiddens": [4]}


def catalog_of(*names, environ=None):
    """A catalog of the installed plugins with these entry-point names."""
    return Catalog([point for point in scan() if point.name in names], environ=environ or {})


# --- unknown keys ---------------------------------------------------------------------------------


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
    with pytest.raises(
        UnknownConfigKeyError, match=f"Unknown model config key '{typo}'. Did you mean '{meant}'"
    ):
        shared.parse_config({typo: 1})


def test_an_unknown_key_is_a_key_error_and_a_value_error_with_a_readable_message(shared):
    with pytest.raises(KeyError) as caught:
        shared.parse_config({"zzz": 1})
    assert isinstance(caught.value, ValueError)
    assert str(caught.value).startswith(
        "Unknown model config key 'zzz'. `rlcatalog.MODEL_DEFAULTS` lists"
    )


def test_a_key_that_is_no_text_is_unknown(shared):
    with pytest.raises(UnknownConfigKeyError, match="key 7"):
        shared.parse_config({7: 1})


def test_every_lookup_refuses_a_typo(shared):
    wrong = {"fcnet_hidden": [4]}
    for lookup in (
        lambda: shared.resolve(VECTOR, TWO, wrong),
        lambda: shared.explain(VECTOR, TWO, wrong),
        lambda: rlcatalog.build(VECTOR, TWO, wrong, catalog=shared),
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
    with pytest.raises(
        UnknownConfigKeyError, match="'fcnet_hiddens' is provided by rlcatalog-fcnet, which is not"
    ):
        catalog_of("categorical", "preprocessors").parse_config(SMALL)


def test_a_key_whose_package_is_disabled_says_so():
    catalog = catalog_of(
        "fcnet", "categorical", environ={"RLCATALOG_DISABLE_PLUGINS": "rlcatalog-fcnet"}
    )
    with pytest.raises(
        UnknownConfigKeyError, match=r"rlcatalog-fcnet [\d.]+, which is disabled: .*DISABLE_PLUGINS"
    ):
        catalog.parse_config(SMALL)


def test_a_key_whose_package_failed_says_so(entry_point):
    broken = entry_point("rlcatalog-fcnet", RuntimeError("no such luck"))
    with pytest.warns(rlcatalog.errors.PluginWarning):
        catalog = Catalog([broken], environ={})
    with pytest.raises(UnknownConfigKeyError, match="which has failed: RuntimeError: no such luck"):
        catalog.parse_config(SMALL)


# --- wrong values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "expected", "found"),
    [
        ("fcnet_hiddens", "wide", "expected 'array', got 'str'", "'wide'"),
        ("fcnet_hiddens", 64, "expected 'array', got 'int'", "64"),
        ("fcnet_hiddens", None, "expected 'array', got 'null'", "None"),
        (
            "fcnet_hiddens",
            [8, "x"],
            "expected 'int', got 'str' - at 'fcnet_hiddens[1]'",
            "[8, 'x']",
        ),
        (
            "fcnet_hiddens",
            [8, 2.5],
            "expected 'int', got 'float' - at 'fcnet_hiddens[1]'",
            "[8, 2.5]",
        ),
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
        (
            {"fcnet_activation": "rlu"},
            "'fcnet_activation': unknown activation 'rlu'. Did you mean 'relu'.*silu",
        ),
        ({"post_fcnet_activation": 3}, "'post_fcnet_activation': unknown activation 3"),
        (
            {"fcnet_weights_initializer": "norm_c"},
            "'fcnet_weights_initializer': unknown initialiser.*'normc'",
        ),
        ({"post_fcnet_bias_initializer": "one"}, "'post_fcnet_bias_initializer': unknown.*'ones'"),
        (
            {"fcnet_weights_initializer": "normc", "fcnet_weights_initializer_config": {"sd": 2}},
            "'fcnet_weights_initializer_config': 'normc' takes std; found \\['sd'\\]",
        ),
        (
            {
                "post_fcnet_weights_initializer": "zeros",
                "post_fcnet_weights_initializer_config": {"std": 2},
            },
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


# --- names that do not exist ----------------------------------------------------------------------


def test_an_unknown_model_lists_what_exists(shared):
    with pytest.raises(
        UnknownNameError, match=r"Unknown model 'fcnett'. Did you mean 'fcnet'\? Known: fcnet"
    ):
        shared.resolve(VECTOR, TWO, {"custom_model": "fcnett"})


def test_an_unknown_distribution_lists_what_exists(shared):
    said = "Unknown action dist 'gauss'.* Known: bernoulli, categorical, diag_gaussian"
    with pytest.raises(UnknownNameError, match=said):
        shared.resolve(VECTOR, TWO, {"custom_action_dist": "gauss"})
    with pytest.raises(UnknownNameError, match=said):
        shared.action_dist(TWO, {}, "gauss")


def test_an_unknown_preprocessor_lists_what_exists(shared):
    said = r"Unknown preprocessor 'one_hot'. Did you mean 'onehot'.*dict, graph, index"
    with pytest.raises(UnknownNameError, match=said):
        shared.resolve(VECTOR, TWO, {"custom_preprocessor": "one_hot"})


@pytest.mark.parametrize("framework", ["jax", "Torch", "pytorch", "", 3])
def test_an_unknown_framework_lists_what_exists(shared, framework):
    with pytest.raises(
        UnknownNameError, match=re.escape(f"Unknown framework {framework!r}") + ".*'torch', 'tf'"
    ):
        shared.resolve(VECTOR, TWO, {}, framework)


def test_the_alias_of_tensorflow(shared):
    assert shared.resolve(VECTOR, TWO, {}, "tf2").framework == "tf"


def test_a_filter_of_a_package_that_is_not_there_names_the_package(shared):
    with pytest.raises(
        MissingPluginError, match="'MeanStdFilter' is provided by rlcatalog-filters, which is not"
    ):
        shared.resolve(VECTOR, TWO, {"observation_filter": "MeanStdFilter"})


def test_a_missing_part_names_its_package():
    with pytest.raises(
        MissingPluginError, match=r"action distribution for Discrete\(2\).*rlcatalog-categorical"
    ):
        catalog_of("fcnet", "preprocessors").resolve(VECTOR, TWO)
    with pytest.raises(MissingPluginError, match=r"preprocessor for Box.*rlcatalog-preprocessors"):
        catalog_of("fcnet", "categorical").resolve(VECTOR, TWO)
    with pytest.raises(MissingPluginError, match=r"the default model.*rlcatalog-fcnet"):
        catalog_of("categorical", "preprocessors").resolve(VECTOR, TWO)
    with pytest.raises(MissingPluginError, match=r"model 'fcnet'.*rlcatalog-fcnet"):
        catalog_of("categorical", "preprocessors").resolve(VECTOR, TWO, {"custom_model": "fcnet"})


# --- before a framework ---------------------------------------------------------------------------

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
    lambda: rlcatalog.build(box, two, {"use_lstm": True, "lstm_cell_size": 0}),
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


def test_all_of_it_is_said_before_a_framework_is_imported(tmp_path):
    done = warm.run(["-c", BAD_INPUT], tmp_path, frameworks=False)
    *answers, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    assert answers == [
        "0 UnknownConfigKeyError",
        "1 ConfigTypeError",
        "2 ConfigError",
        "3 ConfigError",
        "4 ConfigTypeError",
        "5 ConfigError",
        "6 ConfigError",
        "7 UnknownNameError",
        "8 ModelContractError",
        "9 UnknownNameError",
        "10 UnknownNameError",
        "11 UnsupportedSpaceError",
        "12 UnsupportedSpaceError",
        "13 UnsupportedSpaceError",
        "14 UnknownConfigKeyError",
        "15 UnknownConfigKeyError",
        "16 UnsupportedSpaceError",
    ]


def test_every_error_of_the_config_is_a_catalog_error():
    for kind in (
        ConfigError,
        ConfigTypeError,
        UnknownConfigKeyError,
        UnknownNameError,
        MissingPluginError,
    ):
        assert issubclass(kind, CatalogError)


def test_a_value_that_is_none_of_the_choices_lists_them(shared):
    with pytest.raises(
        ConfigError, match=r"found 'often'\. Known: 'first', 'always', 'never'\. Default: 'first'"
    ):
        shared.parse_config({"check_observations": "often"})
