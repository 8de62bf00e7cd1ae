"""A catalog's lookups: plugins, config keys, engine defaults, pins, cached answers, action masks,
warnings.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import gymnasium as gym
import msgspec
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

import rlcatalog
from rlcatalog import Catalog, Match, ModelSpec, ModelV2, Preprocessor, Rank
from rlcatalog.catalog import catalog as module
from rlcatalog.catalog.snapshot import _seen_by_models, framework_for
from rlcatalog.choice import PartAddresses
from rlcatalog.choice.slots import Slots
from rlcatalog.errors import (
    DuplicateNameError,
    OneHotWarning,
    PluginWarning,
    UnreadKeysWarning,
    UnsupportedSpaceError,
    UnusedMaskWarning,
)
from rlcatalog.plugins import Part
from rlcatalog.plugins.discovery import scan
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = Discrete(2)
PARTS = (
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-categorical",
    "rlcatalog-gaussian",
)
NET = {"torch": "acme_parts:Net"}


@pytest.fixture(scope="module")
def read_only_catalog():
    """A catalog for tests that only read it."""
    plain_model = ModelSpec("acme_plain", NET, "", plain=True)
    model = ModelSpec("acme_net", NET, "")
    return isolated_catalog(*PARTS, make_plugin(plain_model, model))


@pytest.fixture
def catalog():
    return isolated_catalog(*PARTS)


def make_plugin(*models):
    """Return the entry point of a plugin of the distribution acme that declares these models."""
    return PluginEntryPoint(plugin_of(rlcatalog_models=list(models)), "acme")


# --- the catalog ----------------------------------------------------------------------------------


def test_catalog_loads_only_the_given_plugins():
    point = make_plugin(ModelSpec("acme_net", NET, ""))

    catalog = Catalog(iter([point]), environ={})

    assert catalog.entry_points == (point,)
    assert [part.name for part in catalog.parts()] == ["acme_net"]
    assert [part.name for part in catalog.parts("model")] == ["acme_net"]
    assert catalog.parts("filter") == []


def test_catalog_of_an_empty_list_has_no_plugins():
    assert Catalog([], environ={}).entry_points == ()


def test_catalog_without_a_list_scans_installed_plugins(monkeypatch):
    point = make_plugin(ModelSpec("acme_net", NET, ""))
    monkeypatch.setattr(module, "scan", lambda: [point])

    assert Catalog(environ={}).entry_points == (point,)


def test_preferred_plugins_come_from_argument_and_environment(monkeypatch):
    monkeypatch.setenv("RLCATALOG_PREFER_PLUGINS", "Emca, ")

    assert Catalog([], environ={}, prefer=["Zeta_nets"]).prefer == ("zeta-nets",)
    assert Catalog([], prefer=["zeta"]).prefer == ("zeta", "emca")


@pytest.fixture
def cleared_caches(monkeypatch):
    """A list of the caches that a refresh clears: "folders" are Python's, "packages" ours."""
    cleared = []
    monkeypatch.setattr(module.importlib, "invalidate_caches", lambda: cleared.append("folders"))
    monkeypatch.setattr(scan, "cache_clear", lambda: cleared.append("packages"))
    return cleared


def test_refresh_looks_for_newly_installed_packages(cleared_caches):
    assert Catalog(environ={}).refresh() == []

    assert cleared_caches == ["folders", "packages"]


def test_refresh_of_given_plugins_does_not_scan_again(cleared_caches):
    assert Catalog([], environ={}).refresh() == []

    assert cleared_caches == []


def test_refresh_drops_registered_part_whose_key_is_taken(catalog, monkeypatch):
    class Mine(ModelV2):
        framework_of_class = "torch"

    class MineConfig(msgspec.Struct, frozen=True, kw_only=True):
        mine_width: int = 3

    catalog.register_model("mine", Mine, config=MineConfig)

    # A refresh adds registered parts again. It fails as if a new package had taken the key.
    def raise_duplicate(self, part, struct=None):
        raise DuplicateNameError("'mine_width' is taken")

    monkeypatch.setattr(type(catalog.registry), "with_registered", raise_duplicate)

    with pytest.warns(PluginWarning, match=r"'mine'.*'mine_width' is taken"):
        catalog.refresh()

    assert "mine" not in catalog.registry.names(["model"])


@pytest.fixture
def catalog_with_keys(monkeypatch):
    """A catalog of acme_net, which has a config key of its own, and acme_bare, which has none."""
    keys = ModuleType("acme_keys")
    keys.Keys = msgspec.defstruct("Keys", [("acme_width", int, 3)], frozen=True, kw_only=True)
    monkeypatch.setitem(sys.modules, "acme_keys", keys)
    net = ModelSpec(
        "acme_net", NET, "", config="acme_keys:Keys", reads=("max_seq_len", "acme_width")
    )
    return isolated_catalog(make_plugin(net, ModelSpec("acme_bare", NET, "")))


def make_tf_extension(*, reads):
    """Return the TensorFlow code that another package adds to acme_net."""
    return Part(ModelSpec("acme_net", {"tf": "m:C"}, "", reads=reads), "emca", "1.0")


def test_config_keys_are_those_of_the_package_and_of_reads(catalog_with_keys):
    net = catalog_with_keys.registry.get("model", "acme_net")
    bare = catalog_with_keys.registry.get("model", "acme_bare")

    assert catalog_with_keys.config_keys(net) == ["acme_width", "max_seq_len"]
    assert catalog_with_keys.config_keys(bare) == []


def test_config_keys_of_extension_default_to_those_of_the_part(catalog_with_keys):
    net = catalog_with_keys.registry.get("model", "acme_net")
    net.extensions["tf"] = [make_tf_extension(reads=())]

    assert catalog_with_keys.config_keys(net, "tf") == ["acme_width", "max_seq_len"]


def test_config_keys_of_extension_count_for_its_framework_only(catalog_with_keys):
    net = catalog_with_keys.registry.get("model", "acme_net")
    net.extensions["tf"] = [make_tf_extension(reads=("vf_share_layers",))]

    assert catalog_with_keys.config_keys(net, "tf") == ["vf_share_layers"]
    assert catalog_with_keys.config_keys(net, "torch") == ["acme_width", "max_seq_len"]
    assert catalog_with_keys.config_keys(net) == ["acme_width", "max_seq_len"]


# --- explaining -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spaces",
    [
        pytest.param((), id="no-space"),
        pytest.param((THREE_FEATURES,), id="observation-space-only"),
        pytest.param((None, TWO_ACTIONS), id="action-space-only"),
    ],
)
def test_explain_needs_both_spaces_or_an_environment(read_only_catalog, spaces):
    with pytest.raises(UnsupportedSpaceError, match="env="):
        read_only_catalog.explain(*spaces)


def make_vector_env():
    """Return an object that offers a vector environment's spaces and nothing else."""
    return SimpleNamespace(single_observation_space=THREE_FEATURES, single_action_space=TWO_ACTIONS)


def test_spaces_of_vector_like_object_are_its_single_spaces(read_only_catalog):
    obs_space, action_space, name, wrappers, layout = read_only_catalog.read_env(make_vector_env())

    assert obs_space is THREE_FEATURES
    assert action_space is TWO_ACTIONS
    assert name == "SimpleNamespace"
    assert wrappers == []
    assert layout is None


def test_spaces_of_function_do_not_need_a_close_method(read_only_catalog):
    obs_space, action_space, *_ = read_only_catalog.read_env(make_vector_env)

    assert obs_space is THREE_FEATURES
    assert action_space is TWO_ACTIONS


# --- engine defaults and pins ---------------------------------------------------------------------

ENGINE_DEFAULTS = {"vf_share_layers": False, "fcnet_hiddens": [7], "max_seq_len": 5}


def without(defaults, key):
    """Return the defaults except the one with this key."""
    return {name: value for name, value in defaults.items() if name != key}


def test_engine_defaults_are_all_left_out_if_two_are_rejected(catalog):
    def build(resolution):
        keys = resolution.config.given
        if "vf_share_layers" in keys or "max_seq_len" in keys:  # two of the three defaults
            raise LookupError("refused")
        return dict(keys)

    # To leave out one default is not enough, so that all of them are left out.
    used_defaults = catalog.build_from_lookup(
        build, THREE_FEATURES, TWO_ACTIONS, {}, "torch", defaults=ENGINE_DEFAULTS
    )

    assert used_defaults == {}


@pytest.fixture
def failing_builder():
    """A function that always fails; `tried_configs` lists the keys it was called with."""

    def fail(resolution):
        fail.tried_configs.append(dict(resolution.config.given))
        raise LookupError("always")

    fail.tried_configs = []
    return fail


def test_error_that_defaults_did_not_cause_is_raised(catalog, failing_builder):
    with pytest.raises(LookupError, match="always"):
        catalog.build_from_lookup(
            failing_builder, THREE_FEATURES, TWO_ACTIONS, {}, "torch", defaults=ENGINE_DEFAULTS
        )

    one_left_out = [without(ENGINE_DEFAULTS, key) for key in ENGINE_DEFAULTS]
    assert failing_builder.tried_configs == [ENGINE_DEFAULTS, *one_left_out, {}]


def test_error_without_defaults_is_raised_after_one_try(catalog, failing_builder):
    with pytest.raises(LookupError, match="always"):
        catalog.build_from_lookup(failing_builder, THREE_FEATURES, TWO_ACTIONS, {}, "torch")

    assert failing_builder.tried_configs == [{}]


def pin_trunk(resolution, name):
    """Return the choices of a lookup with another trunk."""
    pins = PartAddresses.of(resolution)
    return PartAddresses(pins.by_slot | {"trunk": name}, pins.preprocessors, pins.action_dists)


def test_pinned_lookup_is_not_answered_from_the_cache(catalog):
    catalog.register(ModelSpec("mine", NET, ""))
    unpinned = catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {}, "torch")
    pins = pin_trunk(unpinned, "mine")

    for _ in range(2):
        pinned = catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {}, "torch", pins=pins)
        assert pinned.part("trunk").name == "mine"
        assert pinned.pins == pins
        assert catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {}, "torch") is unpinned


def test_pinned_lookup_does_not_warn_of_unread_keys(catalog):
    pins = PartAddresses.of(catalog.explain(THREE_FEATURES, TWO_ACTIONS, {}, "torch").resolution)
    # pytest makes any warning an error.
    catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {"max_seq_len": 3}, "torch", pins=pins)
    with pytest.warns(UnreadKeysWarning, match="max_seq_len"):
        catalog.resolve(THREE_FEATURES, TWO_ACTIONS, {"max_seq_len": 3}, "torch")


# --- frameworks -----------------------------------------------------------------------------------


def make_part(distribution, *, frameworks):
    targets = dict.fromkeys(frameworks, "m:C")
    return Part(ModelSpec("m", targets, ""), distribution, "")


#: A part without a distribution is a class that the program registered.
REGISTERED_TF = make_part("", frameworks=["tf"])
REGISTERED_BOTH = make_part("", frameworks=["torch", "tf"])
PLUGIN_TF = make_part("acme", frameworks=["tf"])
FIRST_INSTALLED = "torch"


def test_framework_is_that_of_a_registered_class():
    assert framework_for(None, None, PLUGIN_TF, REGISTERED_BOTH, REGISTERED_TF) == "tf"


def test_framework_argument_overrides_registered_class():
    assert framework_for("torch", REGISTERED_TF) == "torch"


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((), id="no-components"),
        pytest.param((None,), id="empty-slot"),
        pytest.param((PLUGIN_TF,), id="class-of-a-plugin"),
        pytest.param((REGISTERED_BOTH,), id="class-of-both-frameworks"),
    ],
)
def test_framework_is_otherwise_the_first_installed(parts):
    assert framework_for(None, *parts) == FIRST_INSTALLED


# --- action masks ---------------------------------------------------------------------------------

MASKED = Dict(
    {"part": Dict({"action_mask": MultiBinary(2), "x": THREE_FEATURES}), "y": THREE_FEATURES}
)
MASK_CONFIG = {"action_mask_key": "part.action_mask"}


def read_visible_paths(catalog, config):
    """Return the paths of the observation's leaves that models see."""
    resolution = catalog.resolve(MASKED, TWO_ACTIONS, config, "torch")
    assert resolution.mask_key_path == ("part", "action_mask")
    return [node.path for node in resolution.request.obs.walk() if not node.children]


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({}, id="default-model"),
        pytest.param({"custom_model": "acme_plain"}, id="plain-module"),  # it knows no masks
    ],
)
def test_action_mask_is_hidden_from_models(read_only_catalog, config):
    paths = read_visible_paths(read_only_catalog, MASK_CONFIG | config)

    assert paths == ["obs['part']['x']", "obs['y']"]


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"custom_model": "acme_net"}, id="custom-model"),
        pytest.param({"custom_preprocessor": "dict"}, id="custom-preprocessor"),
    ],
)
def test_action_mask_is_visible_to_custom_classes(read_only_catalog, config):
    paths = read_visible_paths(read_only_catalog, MASK_CONFIG | config)

    assert paths == ["obs['part']['action_mask']", "obs['part']['x']", "obs['y']"]


def test_action_mask_that_is_used_does_not_warn(read_only_catalog):
    # pytest makes any warning an error.
    explanation = read_only_catalog.explain(MASKED, TWO_ACTIONS, MASK_CONFIG, "torch")
    read_only_catalog.resolve(MASKED, TWO_ACTIONS, MASK_CONFIG, "torch")

    assert explanation.as_dict()["unused_masks"] == []


def test_action_mask_without_its_key_warns(read_only_catalog):
    with pytest.warns(UnusedMaskWarning, match=r"action_mask_key=\"obs\['part'\]"):
        read_only_catalog.resolve(MASKED, TWO_ACTIONS, {}, "torch")


def test_action_mask_for_a_box_warns(read_only_catalog):
    # A mask forbids choices, and a Box has none.
    with pytest.warns(UnusedMaskWarning, match=r"Box\(3,\) float32"):
        read_only_catalog.resolve(MASKED, THREE_FEATURES, {}, "torch")


# --- what models see ------------------------------------------------------------------------------


def make_flat_preprocessor(**space_attributes):
    """Return a preprocessor with six outputs whose observation space has these attributes."""
    space = Box(-1, 1, (6,), np.float32)
    for name, value in space_attributes.items():
        setattr(space, name, value)

    class FlatPreprocessor(Preprocessor):
        observation_space = space

        def _init_shape(self, obs_space, options):
            return (6,)

    return FlatPreprocessor(THREE_FEATURES)


def test_models_see_built_in_preprocessor_unchanged(read_only_catalog):
    preprocessor = read_only_catalog.preprocessor_for(
        Dict({"a": THREE_FEATURES, "b": THREE_FEATURES})
    )

    assert _seen_by_models(preprocessor) is preprocessor


def test_models_see_the_structure_of_original_space():
    preprocessor = make_flat_preprocessor(
        original_space=Dict({"a": THREE_FEATURES, "b": THREE_FEATURES})
    )

    seen = _seen_by_models(preprocessor)

    assert seen.info.kind == "dict"
    assert seen.info.keys == ("a", "b")
    assert seen.shape == (6,)


def test_models_see_flat_numbers_without_original_space():
    preprocessor = make_flat_preprocessor()

    assert _seen_by_models(preprocessor) is preprocessor


def test_models_see_flat_numbers_if_original_space_differs():
    three_numbers = Dict({"a": THREE_FEATURES})  # but the preprocessor returns six
    preprocessor = make_flat_preprocessor(original_space=three_numbers)

    assert _seen_by_models(preprocessor) is preprocessor


# --- warnings -------------------------------------------------------------------------------------


def test_match_function_gets_a_complete_request():
    requests = []

    def match(request):
        requests.append(request)
        return Match(Rank.SPECIFIC, "fits")

    net = ModelSpec("acme_net", {"torch": "m:C"}, "", match=match)
    acme = PluginEntryPoint(plugin_of(rlcatalog_models=[net]), "acme")
    catalog = isolated_catalog(*PARTS, acme, prefer=["acme"])
    catalog.resolve(Box(-1, 1, (3,)), Discrete(5), {}, "torch")

    [request] = requests
    assert request.framework == "torch"
    assert request.encoded_shape == (3,)
    assert request.num_outputs == 5  # a logit for each action
    assert request.mask_key is None  # the observation has no action mask


def test_build_looks_up_each_space_once(monkeypatch):
    spaces = []  # the spaces that a preprocessor was looked up for
    choose_preprocessor = Slots.choose_preprocessor

    def record_lookup(slots, request, *args, **kwargs):
        spaces.append(request.obs.space)
        return choose_preprocessor(slots, request, *args, **kwargs)

    monkeypatch.setattr(Slots, "choose_preprocessor", record_lookup)
    obs_space = Dict({"a": Discrete(3), "b": Box(-1, 1, (2,))})

    rlcatalog.build(obs_space, Discrete(2), {"fcnet_hiddens": [2]}, "torch")

    assert spaces == [obs_space, obs_space["a"], obs_space["b"]]


@pytest.mark.parametrize(
    ("space", "count"),
    [
        (gym.spaces.Discrete(10_001), "10,001"),
        (gym.spaces.MultiDiscrete([6_000, 6_000]), "12,000"),
    ],
    ids=["discrete", "multi-discrete"],
)
def test_onehot_of_more_than_10_000_inputs_warns(space, count):
    with pytest.warns(OneHotWarning, match=f"{count} one-hot inputs.*embeddings=64"):
        rlcatalog.default_catalog().resolve(space, gym.spaces.Discrete(2))
