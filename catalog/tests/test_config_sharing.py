"""The model config belongs to its caller: nothing is shared, memory holds copies, and a changed
config is a new one.
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
from rlcatalog import Catalog, Match, Preprocessor, Rank
from rlcatalog.config import KernelConfig, plain, read_config, same
from rlcatalog.errors import ConfigTypeError
from rlcatalog.plugins.discovery import scan

#: Arguments of a custom class are handed about here with no class that reads them.
pytestmark = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")

VECTOR = gym.spaces.Box(-1, 1, (3,), np.float32)
TWO = gym.spaces.Discrete(2)


def catalog_of(*names, environ=None):
    """A catalog of the installed plugins with these entry-point names."""
    return Catalog([point for point in scan() if point.name in names], environ=environ or {})


# --- nothing is shared ----------------------------------------------------------------------------


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
    policy = rlcatalog.build(VECTOR, TWO, given_config, catalog=catalog)
    policy.act(np.zeros((1, 3), np.float32))
    policy.model.model_config["fcnet_hiddens"].append(7)
    policy.model.model_config["custom_model_config"]["a"]["b"].clear()
    policy.config["custom_model_config"]["a"]["b"].append(5)
    policy.config["fcnet_hiddens"].clear()
    assert given_config == before
    assert type(given_config["custom_model_config"]["a"]["b"][1]) is tuple


def test_a_config_that_cannot_be_written_to_is_enough(shared):
    frozen = MappingProxyType(
        {"fcnet_hiddens": (4,), "custom_model_config": MappingProxyType({"a": 1})}
    )
    parsed = shared.parse_config(frozen)
    assert parsed.given == {"fcnet_hiddens": [4], "custom_model_config": {"a": 1}}


def test_two_models_share_nothing(catalog):
    config = {"fcnet_hiddens": [4], "custom_model_config": {"a": [1]}}
    first, second = (
        rlcatalog.build(VECTOR, TWO, config, catalog=catalog),
        rlcatalog.build(VECTOR, TWO, config, catalog=catalog),
    )
    for values in (first.model.model_config, first.config):
        values["fcnet_hiddens"].append(9)
        values["custom_model_config"]["a"].append(9)
        values["vf_share_layers"] = False
    third = rlcatalog.build(VECTOR, TWO, config, catalog=catalog)
    for policy in (second, third):
        for values in (policy.model.model_config, policy.config):
            assert values["fcnet_hiddens"] == [4]
            assert values["custom_model_config"] == {"a": [1]}
            assert values["vf_share_layers"] is True


def test_keyword_arguments_of_a_custom_model_are_its_own(catalog):
    from rlcatalog.models import output_spec
    from rlcatalog_torch import TorchModelV2, dense

    class Greedy(TorchModelV2):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name, sizes=()):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.seen = list(sizes)
            self.layer = dense(3, output_spec(num_outputs))
            sizes.append(99)

        def forward(self, input_dict, state, seq_lens):
            return self.layer(input_dict["obs_flat"]), state

    config = {"custom_model": Greedy, "custom_model_config": {"sizes": [1, 2]}}
    assert rlcatalog.build(VECTOR, TWO, config, catalog=catalog).model.seen == [1, 2]
    assert rlcatalog.build(VECTOR, TWO, config, catalog=catalog).model.seen == [1, 2]
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
    policy = rlcatalog.build(VECTOR, TWO, config, catalog=catalog)
    assert {tuple(sizes) for sizes in seen} == {(1,)}
    assert policy.config["custom_model_config"] == {"sizes": [1]}


# --- lookups from memory --------------------------------------------------------------------------


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
        return catalog.resolve(VECTOR, TWO, {"custom_model_config": {"a": [value]}}).config[
            "custom_model_config"
        ]["a"][0]

    assert [type(inner(value)) for value in (True, 1, 1.0, True, 1.0, 1)] == [
        bool,
        int,
        float,
        bool,
        float,
        int,
    ]


def test_a_config_changed_in_place_is_looked_up_anew(catalog):
    config = {"fcnet_hiddens": [4], "custom_model_config": {"a": [1]}}
    catalog.resolve(VECTOR, TWO, config)
    config["fcnet_hiddens"].append(5)
    assert catalog.resolve(VECTOR, TWO, config).config["fcnet_hiddens"] == [4, 5]
    config["custom_model_config"]["a"].append(2)
    assert catalog.resolve(VECTOR, TWO, config).config["custom_model_config"] == {"a": [1, 2]}


def test_a_numpy_array_changed_in_place_is_looked_up_anew(catalog):
    config = {"fcnet_hiddens": np.array([4, 4])}
    catalog.resolve(VECTOR, TWO, config)
    config["fcnet_hiddens"][:] = 8
    assert catalog.resolve(VECTOR, TWO, config).config["fcnet_hiddens"] == [8, 8]


def test_registering_forgets_remembered_lookups(catalog):
    first = catalog.resolve(VECTOR, TWO, {})
    catalog.register_action_dist("another", type("Another", (rlcatalog.ActionDistribution,), {}))
    assert catalog.resolve(VECTOR, TWO, {}) is not first


def test_what_a_lookup_finds_while_a_part_is_registered_is_not_remembered(catalog):
    """The lookup that is under way goes on with the parts there were; the next one asks the new
    part.
    """

    class Late(rlcatalog.ModelV2):
        framework_of_class = "torch"

    def register_another(request):
        catalog.register_model("late", Late, match=lambda request: Match(Rank.SPECIFIC, "late"))
        return Match(None, "never")

    catalog.register_model("early", type("Early", (Late,), {}), match=register_another)
    assert catalog.resolve(VECTOR, TWO, {}).component("trunk").name == "fcnet"
    assert catalog.resolve(VECTOR, TWO, {}).component("trunk").name == "late"


def test_the_memory_forgets_the_oldest_of_many_lookups(catalog):
    first, *_, last = (
        catalog.resolve(VECTOR, TWO, {"fcnet_hiddens": [size]}) for size in range(1, 101)
    )
    assert catalog.resolve(VECTOR, TWO, {"fcnet_hiddens": [100]}) is last
    again = catalog.resolve(VECTOR, TWO, {"fcnet_hiddens": [1]})
    assert again is not first
    assert again.config.given == first.config.given


def test_spaces_that_are_equal_but_not_the_same_object_get_their_own_lookup(catalog):
    def space():
        return gym.spaces.Box(-1, 1, (3,), np.float32)

    found = [catalog.resolve(space(), TWO, {}).request.obs.space for _ in range(200)]
    assert len({id(one) for one in found}) == 200


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
quick = settings(max_examples=share(60), deadline=None)


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


# --- structs are made once ------------------------------------------------------------------------


@pytest.fixture
def converted(monkeypatch):
    """The keys whose values are converted to their types, as it happens."""
    from rlcatalog.config import flat, key_table, schema

    seen = []

    def convert(value, row, *rest):
        seen.append(row.name)
        return key_table.convert(value, row, *rest)

    for module in (flat, schema):
        monkeypatch.setattr(module, "convert", convert)
    return seen


def test_a_lookup_converts_what_it_is_given_and_nothing_more(converted):
    catalog = catalog_of("fcnet", "lstm", "categorical", "preprocessors")
    rlcatalog.build(
        VECTOR, TWO, {"use_lstm": True, "lstm_cell_size": 4, "fcnet_hiddens": [3]}, catalog=catalog
    )
    assert sorted(converted) == ["fcnet_hiddens", "lstm_cell_size", "use_lstm"]


def test_a_struct_is_handed_on_and_made_anew_where_a_value_has_changed(converted):
    config = catalog_of("fcnet").parse_config({"post_fcnet_hiddens": [4]})
    converted.clear()
    first = read_config(config, KernelConfig)
    assert first.post_fcnet_hiddens == [4]
    assert read_config(config.fresh(), KernelConfig) is first
    assert converted == []
    for change in (
        lambda own: own.update(post_fcnet_hiddens=[5]),
        lambda own: own["post_fcnet_hiddens"].append(6),
        lambda own: own.pop("post_fcnet_hiddens"),
        lambda own: own.update(vf_share_layers=False),
    ):
        own = config.fresh()
        change(own)
        changed = read_config(own, KernelConfig)
        assert (changed.post_fcnet_hiddens, changed.vf_share_layers) == (
            own.get("post_fcnet_hiddens", []),
            own["vf_share_layers"],
        )
        assert read_config(own, KernelConfig) is changed or "post_fcnet_hiddens" not in own
    assert read_config(config, KernelConfig) is first
    assert first.post_fcnet_hiddens == [4]


def test_a_changed_value_of_the_wrong_type_is_still_refused():
    config = catalog_of("fcnet").parse_config({})
    config["vf_share_layers"] = 0
    with pytest.raises(ConfigTypeError, match="'vf_share_layers'"):
        read_config(config, KernelConfig)


def test_a_model_finds_its_config_changed_as_it_left_it():
    """A model may fill its config in before its layers read it."""
    from rlcatalog_fcnet.torch import FullyConnectedNetwork

    class Narrow(FullyConnectedNetwork):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            model_config["fcnet_hiddens"] = [2]
            super().__init__(obs_space, action_space, num_outputs, model_config, name)

    policy = rlcatalog.build(
        VECTOR,
        TWO,
        {"custom_model": Narrow},
        "torch",
        catalog=catalog_of("fcnet", "categorical", "preprocessors"),
    )
    assert {w.shape[0] for name, w in policy.model.get_weights().items() if "bias" in name} == {
        2,
        1,
    }


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda config: pickle.loads(pickle.dumps(config))]
)
def test_a_config_is_copied_like_any_dictionary(copied):
    config = catalog_of("fcnet").parse_config({"fcnet_hiddens": [3]})
    again = copied(config)
    assert again == config == dict(config)
    again["fcnet_hiddens"].append(4)
    assert config["fcnet_hiddens"] == [3]
    assert json.loads(json.dumps(config))["fcnet_hiddens"] == [3]


# --- memory of the single lookups -----------------------------------------------------------------


def test_a_distribution_is_found_again_for_the_same_space_and_an_equal_config(monkeypatch):
    catalog, parsed = catalog_of("categorical", "gaussian"), []
    parse = catalog.parse_config
    monkeypatch.setattr(
        catalog, "parse_config", lambda config: parsed.append(config) or parse(config)
    )
    first = catalog.action_dist(TWO, {}, framework="torch")
    assert catalog.action_dist(TWO, {}, framework="torch") is first
    assert len(parsed) == 1
    for space, config, dist_type, framework in (
        (gym.spaces.Discrete(2), {}, None, "torch"),  # an equal space is another one
        (TWO, {"vf_share_layers": False}, None, "torch"),
        (TWO, {}, "categorical", "torch"),
        (TWO, {}, None, "tf"),
    ):
        assert catalog.action_dist(space, config, dist_type, framework)[1] == 2
    assert len(parsed) == 5
    catalog.register_action_dist("mine", catalog.action_dist(TWO, {}, framework="torch")[0])
    catalog.action_dist(TWO, {}, framework="torch")
    assert len(parsed) == 6


def test_a_model_is_built_anew_from_parts_that_are_found_again(monkeypatch):
    catalog, parsed = catalog_of("fcnet", "categorical", "preprocessors"), []
    parse = catalog.parse_config
    monkeypatch.setattr(
        catalog, "parse_config", lambda config: parsed.append(config) or parse(config)
    )
    config = {"fcnet_hiddens": [3]}
    one, other = (catalog.model_v2(VECTOR, TWO, 2, config, "torch") for _ in range(2))
    assert len(parsed) == 1
    assert one is not other
    assert one.model_config is not other.model_config
    one.model_config["fcnet_hiddens"].append(4)
    assert catalog.model_v2(VECTOR, TWO, 2, config, "torch").model_config["fcnet_hiddens"] == [3]
    config["fcnet_hiddens"] = [5]
    assert catalog.model_v2(VECTOR, TWO, 2, config, "torch").model_config["fcnet_hiddens"] == [5]
    assert catalog.model_v2(VECTOR, TWO, None, config, "torch").num_outputs == 5
    assert len(parsed) == 3
