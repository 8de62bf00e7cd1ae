"""A model config belongs to its caller: policies get copies of it, cached lookups notice changes,
and config structs are converted once.
"""

from __future__ import annotations

import copy
import json
import pickle
from types import MappingProxyType

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from properties import share

import rlcatalog
from rlcatalog import Match, Preprocessor, Rank
from rlcatalog.config import KernelConfig, plain, read_config, same
from rlcatalog.config.schema import Schema
from rlcatalog.errors import ConfigTypeError
from rlcatalog_testing import isolated_catalog

#: Arguments of a custom class are handed about here with no class that reads them.
pytestmark = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")

THREE_FEATURES = gym.spaces.Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = gym.spaces.Discrete(2)


# --- nothing is shared ----------------------------------------------------------------------------


def test_config_of_the_caller_is_never_changed():
    config = {
        "fcnet_hiddens": [4, 4],
        "fcnet_activation": "relu",
        "custom_model_config": {"a": {"b": [1, (2, 3)]}},
        "fcnet_weights_initializer": "normc",
        "fcnet_weights_initializer_config": {"std": np.float32(2)},
    }
    before = copy.deepcopy(config)
    catalog = isolated_catalog(
        "rlcatalog-fcnet", "rlcatalog-categorical", "rlcatalog-preprocessors"
    )

    catalog.explain(THREE_FEATURES, TWO_ACTIONS, config).as_dict()
    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, catalog=catalog)
    policy.act(np.zeros((1, 3), np.float32))
    policy.model.model_config["fcnet_hiddens"].append(7)
    policy.model.model_config["custom_model_config"]["a"]["b"].clear()
    policy.config["custom_model_config"]["a"]["b"].append(5)
    policy.config["fcnet_hiddens"].clear()

    assert config == before
    assert type(config["custom_model_config"]["a"]["b"][1]) is tuple


def test_read_only_config_is_accepted(read_only_catalog):
    config = MappingProxyType(
        {"fcnet_hiddens": (4,), "custom_model_config": MappingProxyType({"a": 1})}
    )

    parsed = read_only_catalog.parse_config(config)

    assert parsed.given == {"fcnet_hiddens": [4], "custom_model_config": {"a": 1}}


def test_policies_do_not_share_their_config(catalog):
    config = {"fcnet_hiddens": [4], "custom_model_config": {"a": [1]}}
    first = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, catalog=catalog)
    built_before = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, catalog=catalog)

    for first_config in (first.model.model_config, first.config):
        first_config["fcnet_hiddens"].append(9)
        first_config["custom_model_config"]["a"].append(9)
    built_after = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, catalog=catalog)

    for policy in (built_before, built_after):
        for other_config in (policy.model.model_config, policy.config):
            assert other_config["fcnet_hiddens"] == [4]
            assert other_config["custom_model_config"] == {"a": [1]}


def test_custom_model_gets_a_copy_of_its_arguments(catalog):
    from rlcatalog.models import output_spec
    from rlcatalog_torch import TorchModelV2, dense

    class ChangesItsArgument(TorchModelV2):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name, sizes=()):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.received_sizes = list(sizes)
            self.layer = dense(3, output_spec(num_outputs))
            sizes.append(99)

        def forward(self, input_dict, state, seq_lens):
            return self.layer(input_dict["obs_flat"]), state

    config = {"custom_model": ChangesItsArgument, "custom_model_config": {"sizes": [1, 2]}}

    first = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, catalog=catalog)
    second = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, catalog=catalog)

    assert first.model.received_sizes == [1, 2]
    assert second.model.received_sizes == [1, 2]
    assert config["custom_model_config"] == {"sizes": [1, 2]}


def test_custom_preprocessor_gets_a_copy_of_its_options(catalog):
    received_sizes = []

    class ChangesItsOption(Preprocessor):
        def _init_shape(self, obs_space, options):
            received_sizes.append(tuple(options["custom_options"]["sizes"]))
            options["custom_options"]["sizes"].append(99)
            return obs_space.shape

        def transform(self, observation):
            return observation

    # RLlib passes the custom_model_config to a preprocessor as its "custom_options".
    config = {"custom_preprocessor": ChangesItsOption, "custom_model_config": {"sizes": [1]}}

    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, catalog=catalog)

    assert set(received_sizes) == {(1,)}
    assert policy.config["custom_model_config"] == {"sizes": [1]}


# --- cached lookups -------------------------------------------------------------------------------


def test_lookup_of_equal_config_is_cached(catalog):
    first = catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {"fcnet_hiddens": [4]})

    assert catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {"fcnet_hiddens": [4]}) is first
    assert catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {"fcnet_hiddens": [5]}) is not first


def test_cache_does_not_accept_1_after_true(catalog):
    for _ in range(2):
        catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {"vf_share_layers": True})
        with pytest.raises(ConfigTypeError, match="expected a bool, found an int"):
            catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {"vf_share_layers": 1})


def test_cache_does_not_reject_true_after_1(catalog):
    for _ in range(2):
        with pytest.raises(ConfigTypeError, match="expected a bool, found an int"):
            catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {"vf_share_layers": 1})
        catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {"vf_share_layers": True})


def test_cache_compares_types_of_nested_values(catalog):
    for value in (True, 1, 1.0, True, 1.0, 1):  # equal for Python's ==
        config = {"custom_model_config": {"a": [value]}}

        resolution = catalog.resolve(THREE_FEATURES, TWO_ACTIONS, config)

        [cached_value] = resolution.config["custom_model_config"]["a"]
        assert type(cached_value) is type(value)


def test_config_changed_in_place_is_looked_up_again(catalog):
    config = {"fcnet_hiddens": [4], "custom_model_config": {"a": [1]}}
    catalog.resolve(THREE_FEATURES, TWO_ACTIONS, config)

    config["fcnet_hiddens"].append(5)
    assert catalog.resolve(THREE_FEATURES, TWO_ACTIONS, config).config["fcnet_hiddens"] == [4, 5]

    config["custom_model_config"]["a"].append(2)
    assert catalog.resolve(THREE_FEATURES, TWO_ACTIONS, config).config["custom_model_config"] == {
        "a": [1, 2]
    }


def test_numpy_array_changed_in_place_is_looked_up_again(catalog):
    config = {"fcnet_hiddens": np.array([4, 4])}
    catalog.resolve(THREE_FEATURES, TWO_ACTIONS, config)

    config["fcnet_hiddens"][:] = 8

    assert catalog.resolve(THREE_FEATURES, TWO_ACTIONS, config).config["fcnet_hiddens"] == [8, 8]


def test_registering_a_part_clears_the_cache(catalog):
    first = catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {})

    catalog.register_action_dist("another", type("Another", (rlcatalog.ActionDistribution,), {}))

    assert catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {}) is not first


def test_lookup_during_which_a_part_is_registered_is_not_cached(catalog):
    class Net(rlcatalog.ModelV2):
        framework_of_class = "torch"

    def register_late(request):
        catalog.register_model("late", Net, match=lambda request: Match(Rank.SPECIFIC, "late"))
        return Match(None, "never")

    # The first lookup calls this match function, which registers a model that fits better.
    catalog.register_model("early", Net, match=register_late)

    first = catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {})
    second = catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {})

    assert first.part("trunk").name == "fcnet"
    assert second.part("trunk").name == "late"


def test_cache_drops_the_oldest_lookup(catalog):
    sizes = range(1, 101)  # more than the 64 lookups that are kept
    lookups = [
        catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {"fcnet_hiddens": [size]}) for size in sizes
    ]

    latest = catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {"fcnet_hiddens": [100]})
    oldest = catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {"fcnet_hiddens": [1]})

    assert latest is lookups[-1]
    assert oldest is not lookups[0]
    assert oldest.config.given == lookups[0].config.given


def test_equal_spaces_are_looked_up_separately(catalog):
    spaces = [gym.spaces.Box(-1, 1, (3,), np.float32) for _ in range(200)]

    for space in spaces:
        assert catalog.resolve(space, TWO_ACTIONS, {}).request.obs.space is space


# --- copies ---------------------------------------------------------------------------------------

#: Few different numbers, so that values equal under == and different in type meet often.
SCALARS = (
    st.none() | st.booleans() | st.sampled_from([0, 1, 0.0, 1.0, 2.5]) | st.text("ab1", max_size=2)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=1), inner),
    max_leaves=6,
)
#: Pairs of JSON values, of which many are equal.
PAIRS = JSON.flatmap(lambda a: st.tuples(st.just(a), st.just(copy.deepcopy(a)) | JSON))
quick = settings(max_examples=share(60), deadline=None)


def list_containers(value):
    """Return the ids of all lists and dicts in a JSON value."""
    ids = set()
    if isinstance(value, dict):
        ids.add(id(value))
        for item in value.values():
            ids |= list_containers(item)
    elif isinstance(value, list):
        ids.add(id(value))
        for item in value:
            ids |= list_containers(item)
    return ids


@quick
@given(JSON)
def test_plain_copy_is_equal_and_shares_no_container(value):
    copied = plain(value)

    assert copied == json.loads(json.dumps(value))
    assert same(copied, value)
    assert not list_containers(value) & list_containers(copied)


@quick
@given(PAIRS)
def test_same_compares_value_and_type(pair):
    first, second = pair

    # JSON writes True, 1 and 1.0 differently, although they are equal for ==.
    expected = json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    assert same(first, second) == expected


@given(SCALARS, SCALARS)
def test_same_compares_types_of_scalars(first, second):
    assert same(first, second) == (repr(first) == repr(second))


def test_same_accepts_values_without_a_truth_value():
    # `bool(array == array)` raises an error, so that arrays are never the same.
    assert not same([np.arange(3)], [np.arange(3)])
    assert same([len], [len])


# --- config structs -------------------------------------------------------------------------------


@pytest.fixture
def converted_keys(monkeypatch):
    """The list of keys whose values were converted to their types."""
    from rlcatalog.config import flat, key_table, schema

    keys = []

    def convert(value, row, *rest):
        keys.append(row.name)
        return key_table.convert(value, row, *rest)

    for module in (flat, schema):
        monkeypatch.setattr(module, "convert", convert)
    return keys


def test_build_converts_only_the_given_keys(converted_keys):
    catalog = isolated_catalog(
        "rlcatalog-fcnet", "rlcatalog-lstm", "rlcatalog-categorical", "rlcatalog-preprocessors"
    )
    config = {"use_lstm": True, "lstm_cell_size": 4, "fcnet_hiddens": [3]}

    rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, catalog=catalog)

    assert sorted(converted_keys) == ["fcnet_hiddens", "lstm_cell_size", "use_lstm"]


def test_struct_of_unchanged_config_is_reused(converted_keys):
    config = isolated_catalog("rlcatalog-fcnet").parse_config({"post_fcnet_hiddens": [4]})
    converted_keys.clear()

    struct = read_config(config, KernelConfig)

    assert struct.post_fcnet_hiddens == [4]
    assert read_config(config.fresh(), KernelConfig) is struct
    assert converted_keys == []


def test_struct_of_changed_config_is_new():
    config = isolated_catalog("rlcatalog-fcnet").parse_config({"post_fcnet_hiddens": [4]})
    struct = read_config(config, KernelConfig)
    changed_config = config.fresh()
    changed_config["post_fcnet_hiddens"].append(6)
    changed_config["vf_share_layers"] = False

    changed_struct = read_config(changed_config, KernelConfig)

    assert changed_struct.post_fcnet_hiddens == [4, 6]
    assert changed_struct.vf_share_layers is False
    # The original config still has its own struct.
    assert read_config(config, KernelConfig) is struct
    assert struct.post_fcnet_hiddens == [4]


def test_struct_of_config_without_a_key_has_its_default():
    config = isolated_catalog("rlcatalog-fcnet").parse_config({"post_fcnet_hiddens": [4]})
    changed_config = config.fresh()
    changed_config.pop("post_fcnet_hiddens")

    struct = read_config(changed_config, KernelConfig)

    assert struct.post_fcnet_hiddens == []
    assert struct.vf_share_layers is True
    assert read_config(config, KernelConfig).post_fcnet_hiddens == [4]


def test_changed_value_of_wrong_type_is_rejected():
    config = isolated_catalog("rlcatalog-fcnet").parse_config({})
    config["vf_share_layers"] = 0

    with pytest.raises(ConfigTypeError, match="'vf_share_layers'"):
        read_config(config, KernelConfig)


def test_model_may_change_its_config_before_it_builds_layers():
    from rlcatalog_fcnet.torch import FullyConnectedNetwork

    class Narrow(FullyConnectedNetwork):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            model_config["fcnet_hiddens"] = [2]
            super().__init__(obs_space, action_space, num_outputs, model_config, name)

    catalog = isolated_catalog(
        "rlcatalog-fcnet", "rlcatalog-categorical", "rlcatalog-preprocessors"
    )
    policy = rlcatalog.build(
        THREE_FEATURES, TWO_ACTIONS, {"custom_model": Narrow}, "torch", catalog=catalog
    )

    weights = policy.model.get_weights()
    bias_sizes = {array.shape[0] for name, array in weights.items() if "bias" in name}
    assert bias_sizes == {2, 1}  # two hidden units, two logits, one value


def copy_by_pickle(value):
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("make_copy", [copy.deepcopy, copy_by_pickle])
def test_parsed_config_is_copied_like_a_dict(make_copy):
    config = isolated_catalog("rlcatalog-fcnet").parse_config({"fcnet_hiddens": [3]})

    copied = make_copy(config)

    assert copied == config
    assert copied == dict(config)
    copied["fcnet_hiddens"].append(4)
    assert config["fcnet_hiddens"] == [3]


def test_parsed_config_is_written_as_json():
    config = isolated_catalog("rlcatalog-fcnet").parse_config({"fcnet_hiddens": [3]})

    assert json.loads(json.dumps(config))["fcnet_hiddens"] == [3]


# --- cached parts ---------------------------------------------------------------------------------


@pytest.fixture
def parsed_configs(monkeypatch):
    """The configs that catalogs parse: a remembered result adds none."""
    configs = []
    parse = Schema.parse

    def parse_and_record(schema, config, defaults=None):
        configs.append(config)
        return parse(schema, config, defaults)

    monkeypatch.setattr(Schema, "parse", parse_and_record)
    return configs


def test_distribution_of_equal_config_is_cached(parsed_configs):
    catalog = isolated_catalog("rlcatalog-categorical", "rlcatalog-gaussian")

    first = catalog.action_dist(TWO_ACTIONS, {}, framework="torch")
    second = catalog.action_dist(TWO_ACTIONS, {}, framework="torch")

    assert second is first
    assert len(parsed_configs) == 1


@pytest.mark.parametrize(
    ("space", "config", "dist_type", "framework"),
    [
        pytest.param(gym.spaces.Discrete(2), {}, None, "torch", id="equal-space"),
        pytest.param(TWO_ACTIONS, {"vf_share_layers": False}, None, "torch", id="other-config"),
        pytest.param(TWO_ACTIONS, {}, "categorical", "torch", id="other-type"),
        pytest.param(TWO_ACTIONS, {}, None, "tf", id="other-framework"),
    ],
)
def test_distribution_of_another_lookup_is_not_cached(
    parsed_configs, space, config, dist_type, framework
):
    catalog = isolated_catalog("rlcatalog-categorical", "rlcatalog-gaussian")
    catalog.action_dist(TWO_ACTIONS, {}, framework="torch")
    parsed_configs.clear()

    _, size = catalog.action_dist(space, config, dist_type, framework)

    assert size == 2
    assert len(parsed_configs) == 1


def test_distribution_is_not_cached_across_registrations(parsed_configs):
    catalog = isolated_catalog("rlcatalog-categorical", "rlcatalog-gaussian")
    dist_class, _ = catalog.action_dist(TWO_ACTIONS, {}, framework="torch")
    parsed_configs.clear()

    catalog.register_action_dist("mine", dist_class)
    catalog.action_dist(TWO_ACTIONS, {}, framework="torch")

    assert len(parsed_configs) == 1


def test_models_of_a_cached_lookup_are_separate(catalog, parsed_configs):
    config = {"fcnet_hiddens": [3]}

    first = catalog.model_v2(THREE_FEATURES, TWO_ACTIONS, 2, config, "torch")
    first.model_config["fcnet_hiddens"].append(4)
    second = catalog.model_v2(THREE_FEATURES, TWO_ACTIONS, 2, config, "torch")

    assert second is not first
    assert second.model_config["fcnet_hiddens"] == [3]
    assert len(parsed_configs) == 1  # the second model is of the cached lookup


def test_model_of_changed_config_is_looked_up_again(catalog):
    config = {"fcnet_hiddens": [3]}
    catalog.model_v2(THREE_FEATURES, TWO_ACTIONS, 2, config, "torch")

    config["fcnet_hiddens"] = [5]
    with_outputs = catalog.model_v2(THREE_FEATURES, TWO_ACTIONS, 2, config, "torch")
    without_outputs = catalog.model_v2(THREE_FEATURES, TWO_ACTIONS, None, config, "torch")

    assert with_outputs.model_config["fcnet_hiddens"] == [5]
    assert without_outputs.num_outputs == 5  # the width of the last hidden layer
