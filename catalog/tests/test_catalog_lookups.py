"""A catalog's lookups: plugins, config keys, engine defaults, pins, cached answers, action masks,
warnings.
"""

from __future__ import annotations

import sys
import warnings
from types import ModuleType, SimpleNamespace

import gymnasium as gym
import msgspec
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

import rlcatalog
from rlcatalog import Catalog, Match, ModelSpec, ModelV2, Preprocessor, Rank
from rlcatalog.catalog import catalog as module
from rlcatalog.catalog.lookups import _seen_by_models, answer_of, framework_for, recall, remember
from rlcatalog.choice import Pins
from rlcatalog.choice.slots import Slots
from rlcatalog.errors import (
    DuplicateNameError,
    OneHotWarning,
    PluginWarning,
    UnreadKeysWarning,
    UnsupportedSpaceError,
    UnusedMaskWarning,
)
from rlcatalog.plugins import Component
from rlcatalog.plugins.discovery import scan
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

BOX = Box(-1, 1, (3,), np.float32)
TWO = Discrete(2)
PARTS = (
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-categorical",
    "rlcatalog-gaussian",
)
NET = {"torch": "acme_parts:Net"}


@pytest.fixture(scope="module")
def shared():
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
    assert [component.name for component in catalog.components()] == ["acme_net"]
    assert [component.name for component in catalog.components("model")] == ["acme_net"]
    assert catalog.components("filter") == []


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
    keys = msgspec.defstruct("Keys", [("mine_width", int, 3)], frozen=True, kw_only=True)
    model = type("Mine", (ModelV2,), {"framework_of_class": "torch"})
    catalog.register_model("mine", model, config=keys)

    # A refresh adds registered parts again. It fails as if a new package had taken the key.
    def raise_duplicate(self, component, struct=None):
        raise DuplicateNameError("'mine_width' is taken")

    monkeypatch.setattr(type(catalog.registry), "add_in_process", raise_duplicate)

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
    return Component(ModelSpec("acme_net", {"tf": "m:C"}, "", reads=reads), "emca", "1.0")


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
        pytest.param((BOX,), id="observation-space-only"),
        pytest.param((None, TWO), id="action-space-only"),
    ],
)
def test_explain_needs_both_spaces_or_an_environment(shared, spaces):
    with pytest.raises(UnsupportedSpaceError, match="env="):
        shared.explain(*spaces)


def make_vector_env(**attributes):
    """Return an object that offers a vector environment's spaces and nothing else."""
    return SimpleNamespace(single_observation_space=BOX, single_action_space=TWO, **attributes)


def test_spaces_of_vector_like_object_are_its_single_spaces(shared):
    obs_space, action_space, name, wrappers, layout = shared.spaces_of(make_vector_env())

    assert obs_space is BOX
    assert action_space is TWO
    assert name == "SimpleNamespace"
    assert wrappers == []
    assert layout is None


def test_spaces_of_function_do_not_need_a_close_method(shared):
    obs_space, action_space, *_ = shared.spaces_of(make_vector_env)

    assert obs_space is BOX
    assert action_space is TWO


def test_spaces_of_given_environment_leave_it_open(shared):
    closed = []
    shared.spaces_of(make_vector_env(close=lambda: closed.append(True)))

    assert closed == []


def test_spaces_of_function_close_the_environment_it_makes(shared):
    closed = []
    shared.spaces_of(lambda: make_vector_env(close=lambda: closed.append(True)))

    assert closed == [True]


def test_spaces_of_environment_name_its_id(shared):
    env = make_vector_env(spec=SimpleNamespace(id="Made-v0"))

    name = shared.spaces_of(env)[2]

    assert name == "Made-v0"


def test_wrap_env_returns_env_that_needs_no_wrapper(shared):
    env = gym.make("CartPole-v1")

    assert shared.wrap_env(env) is env
    assert shared.explain_wrapping(env) == (env, [])


# --- engine defaults and pins ---------------------------------------------------------------------

ENGINE_DEFAULTS = {"vf_share_layers": False, "fcnet_hiddens": [7], "max_seq_len": 5}


def without(defaults, key):
    """Return the defaults except the one with this key."""
    return {name: value for name, value in defaults.items() if name != key}


def make_builder(*, rejected_keys):
    """Return a function that fails on these keys, and otherwise returns the keys that are set."""

    def build(resolution):
        config = dict(resolution.config.given)
        if any(key in config for key in rejected_keys):
            raise LookupError("refused")
        return config

    return build


@pytest.mark.parametrize(
    ("rejected_keys", "kept_defaults"),
    [
        pytest.param((), ENGINE_DEFAULTS, id="none-rejected"),
        *[
            pytest.param((key,), without(ENGINE_DEFAULTS, key), id=f"only-{key}-rejected")
            for key in ENGINE_DEFAULTS
        ],
        # Each default is left out alone, then all of them together.
        pytest.param(("vf_share_layers", "max_seq_len"), {}, id="two-rejected"),
        pytest.param(tuple(ENGINE_DEFAULTS), {}, id="all-rejected"),
    ],
)
def test_engine_defaults_that_are_rejected_are_left_out(catalog, rejected_keys, kept_defaults):
    build = make_builder(rejected_keys=rejected_keys)

    used = catalog.build_from_lookup(build, BOX, TWO, {}, "torch", defaults=ENGINE_DEFAULTS)

    assert used == kept_defaults


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
        catalog.build_from_lookup(failing_builder, BOX, TWO, {}, "torch", defaults=ENGINE_DEFAULTS)

    one_left_out = [without(ENGINE_DEFAULTS, key) for key in ENGINE_DEFAULTS]
    assert failing_builder.tried_configs == [ENGINE_DEFAULTS, *one_left_out, {}]


def test_error_without_defaults_is_raised_after_one_try(catalog, failing_builder):
    with pytest.raises(LookupError, match="always"):
        catalog.build_from_lookup(failing_builder, BOX, TWO, {}, "torch")

    assert failing_builder.tried_configs == [{}]


def pin_trunk(resolution, name):
    """Return the choices of a lookup with another trunk."""
    pins = Pins.of(resolution)
    return Pins(pins.parts | {"trunk": name}, pins.preprocessors, pins.action_dists)


def test_pinned_lookup_is_not_answered_from_the_cache(catalog):
    catalog.register(ModelSpec("mine", NET, ""))
    unpinned = catalog.resolve(BOX, TWO, {}, "torch")
    pins = pin_trunk(unpinned, "mine")

    for _ in range(2):
        pinned = catalog.resolve(BOX, TWO, {}, "torch", pins=pins)
        assert pinned.component("trunk").name == "mine"
        assert pinned.pins == pins
        assert catalog.resolve(BOX, TWO, {}, "torch") is unpinned


def test_pinned_lookup_is_not_cached(catalog):
    catalog.register(ModelSpec("mine", NET, ""))
    pins = pin_trunk(catalog.resolve(BOX, TWO, {}, "torch"), "mine")
    config = {"fcnet_hiddens": [4]}

    pinned = catalog.resolve(BOX, TWO, config, "torch", pins=pins)
    unpinned = catalog.resolve(BOX, TWO, config, "torch")

    assert pinned.component("trunk").name == "mine"
    assert unpinned.component("trunk").name == "fcnet"


def test_pinned_lookup_does_not_warn_of_unread_keys(catalog):
    pins = Pins.of(catalog.explain(BOX, TWO, {}, "torch").resolution)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        catalog.resolve(BOX, TWO, {"max_seq_len": 3}, "torch", pins=pins)
    with pytest.warns(UnreadKeysWarning, match="max_seq_len"):
        catalog.resolve(BOX, TWO, {"max_seq_len": 3}, "torch")


# --- cached answers -------------------------------------------------------------------------------

#: How many answers are kept.
CACHE_SIZE = 64


def make_cache():
    """Return an empty cache: `remember` and `recall` use only the attribute `answers`."""
    return SimpleNamespace(answers=())


def remember_answers(cache, numbers):
    """Remember the answer to each of these lookups, which have no spaces."""
    for number in numbers:
        remember(cache, ("lookup", number), (), {"a": number}, f"answer {number}")


def recall_answer(cache, number):
    return recall(cache, ("lookup", number), (), {"a": number})


def test_remember_returns_the_answer():
    assert remember(make_cache(), ("lookup", 1), (), {"a": 1}, "answer") == "answer"


def test_cache_keeps_64_answers():
    cache = make_cache()

    remember_answers(cache, range(CACHE_SIZE))

    assert recall_answer(cache, 0) == "answer 0"
    assert recall_answer(cache, 1) == "answer 1"
    assert recall_answer(cache, 63) == "answer 63"


def test_cache_drops_the_oldest_answer_when_it_is_full():
    cache = make_cache()
    remember_answers(cache, range(CACHE_SIZE))

    remember_answers(cache, [CACHE_SIZE])

    assert recall_answer(cache, 0) is None
    assert recall_answer(cache, 1) == "answer 1"


#: Spaces are told apart by identity, so that two equal ones are needed.
FIRST_SPACE = [1]
SECOND_SPACE = [1]
CACHED = {
    "lookup": ("x",),
    "spaces": (FIRST_SPACE, SECOND_SPACE),
    "config": ({"k": [1]}, (2,)),
}


def recall_cached(**changes):
    """Remember an answer for `CACHED`, and recall it with these changes."""
    cache = make_cache()
    remember(cache, CACHED["lookup"], CACHED["spaces"], CACHED["config"], "answer")
    asked = CACHED | changes
    return recall(cache, asked["lookup"], asked["spaces"], asked["config"])


def test_cache_answers_equal_config_for_the_same_spaces():
    assert recall_cached(config=({"k": [1]}, (2,))) == "answer"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"lookup": ("y",)}, id="another-lookup"),
        pytest.param({"spaces": (FIRST_SPACE, FIRST_SPACE)}, id="equal-second-space"),
        pytest.param({"spaces": (SECOND_SPACE, SECOND_SPACE)}, id="equal-first-space"),
        pytest.param({"config": ({"k": [2]}, (2,))}, id="another-value"),
        pytest.param({"config": ({"k": [1]}, [2])}, id="list-instead-of-tuple"),
    ],
)
def test_cache_does_not_answer_a_different_lookup(changes):
    assert recall_cached(**changes) is None


def test_answer_of_calls_its_function_once():
    cache = make_cache()
    calls = []

    def find():
        calls.append("called")
        return "answer"

    answers = [answer_of(cache, ("x",), (), None, find) for _ in range(2)]

    assert answers == ["answer", "answer"]
    assert calls == ["called"]


# --- frameworks -----------------------------------------------------------------------------------


def make_component(distribution, *, frameworks):
    targets = dict.fromkeys(frameworks, "m:C")
    return Component(ModelSpec("m", targets, ""), distribution, "")


#: A component without a distribution is a class that the program registered.
REGISTERED_TF = make_component("", frameworks=["tf"])
REGISTERED_BOTH = make_component("", frameworks=["torch", "tf"])
PLUGIN_TF = make_component("acme", frameworks=["tf"])
FIRST_INSTALLED = "torch"


def test_framework_is_that_of_a_registered_class():
    assert framework_for(None, None, PLUGIN_TF, REGISTERED_BOTH, REGISTERED_TF) == "tf"


def test_framework_argument_overrides_registered_class():
    assert framework_for("torch", REGISTERED_TF) == "torch"


@pytest.mark.parametrize(
    "components",
    [
        pytest.param((), id="no-components"),
        pytest.param((None,), id="empty-slot"),
        pytest.param((PLUGIN_TF,), id="class-of-a-plugin"),
        pytest.param((REGISTERED_BOTH,), id="class-of-both-frameworks"),
    ],
)
def test_framework_is_otherwise_the_first_installed(components):
    assert framework_for(None, *components) == FIRST_INSTALLED


# --- action masks ---------------------------------------------------------------------------------

MASKED = Dict({"part": Dict({"action_mask": MultiBinary(2), "x": BOX}), "y": BOX})
MASK_CONFIG = {"action_mask_key": "part.action_mask"}


def read_visible_paths(catalog, config):
    """Return the paths of the observation's leaves that models see."""
    resolution = catalog.resolve(MASKED, TWO, config, "torch")
    assert resolution.mask_steps == ("part", "action_mask")
    return [node.path for node in resolution.request.obs.walk() if not node.children]


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({}, id="default-model"),
        pytest.param({"custom_model": "acme_plain"}, id="plain-module"),  # it knows no masks
    ],
)
def test_action_mask_is_hidden_from_models(shared, config):
    paths = read_visible_paths(shared, MASK_CONFIG | config)

    assert paths == ["obs['part']['x']", "obs['y']"]


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"custom_model": "acme_net"}, id="custom-model"),
        pytest.param({"custom_preprocessor": "dict"}, id="custom-preprocessor"),
    ],
)
def test_action_mask_is_visible_to_custom_classes(shared, config):
    paths = read_visible_paths(shared, MASK_CONFIG | config)

    assert paths == ["obs['part']['action_mask']", "obs['part']['x']", "obs['y']"]


def test_action_mask_that_is_used_does_not_warn(shared):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explanation = shared.explain(MASKED, TWO, MASK_CONFIG, "torch")
        shared.resolve(MASKED, TWO, MASK_CONFIG, "torch")

    assert explanation.as_dict()["unused_masks"] == []


def test_action_mask_without_its_key_warns(shared):
    with pytest.warns(UnusedMaskWarning, match=r"\['action_mask'\] .*'part\.action_mask'"):
        shared.resolve(MASKED, TWO, {}, "torch")


def test_action_mask_for_a_box_warns(shared):
    # A mask forbids choices, and a Box has none.
    with pytest.warns(UnusedMaskWarning, match=r"Box\(3,\) float32"):
        shared.resolve(MASKED, BOX, {}, "torch")


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

    return FlatPreprocessor(BOX)


def test_models_see_built_in_preprocessor_unchanged(shared):
    preprocessor = shared.preprocessor_for(Dict({"a": BOX, "b": BOX}))

    assert _seen_by_models(preprocessor) is preprocessor


def test_models_see_the_structure_of_original_space():
    preprocessor = make_flat_preprocessor(original_space=Dict({"a": BOX, "b": BOX}))

    seen = _seen_by_models(preprocessor)

    assert seen.info.kind == "dict"
    assert seen.info.keys == ("a", "b")
    assert seen.shape == (6,)


def test_models_see_flat_numbers_without_original_space():
    preprocessor = make_flat_preprocessor()

    assert _seen_by_models(preprocessor) is preprocessor


def test_models_see_flat_numbers_if_original_space_differs():
    three_numbers = Dict({"a": BOX})  # but the preprocessor returns six
    preprocessor = make_flat_preprocessor(original_space=three_numbers)

    assert _seen_by_models(preprocessor) is preprocessor


# --- warnings -------------------------------------------------------------------------------------


def test_unread_keys_warning_lists_parts_that_read_them():
    # The two models are installed, but not chosen: they have to be named.
    acme_a = ModelSpec("acme_a", NET, "", reads=("max_seq_len", "vf_memory"))
    acme_b = ModelSpec("acme_b", NET, "", reads=("max_seq_len", "vf_memory"))
    catalog = isolated_catalog(*PARTS, make_plugin(acme_a, acme_b))

    with pytest.warns(UnreadKeysWarning) as caught:
        catalog.resolve(BOX, TWO, {"max_seq_len": 3, "image_layout": "chw"}, "torch")

    # No installed part reads image_layout.
    [warning] = caught
    assert "max_seq_len (read by acme_a and acme_b), image_layout." in str(warning.message)


def test_unread_keys_warning_names_key_an_activation_needs(catalog):
    config = {"post_fcnet_activation": "tanh"}  # without post_fcnet_hiddens, there are no layers

    with pytest.warns(UnreadKeysWarning, match=r"post_fcnet_activation \(.*post_fcnet_hiddens\)"):
        catalog.resolve(BOX, TWO, config, "torch")


def test_keys_that_are_read_do_not_warn(catalog):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        catalog.resolve(BOX, TWO, {"fcnet_hiddens": [3]}, "torch")


def test_match_function_gets_a_complete_request():
    requests = []

    def match(request):
        requests.append(request)
        return Match(Rank.SPECIFIC, "fits")

    plugin = make_plugin(ModelSpec("acme_net", NET, "", match=match))
    catalog = isolated_catalog(*PARTS, plugin, prefer=["acme"])
    catalog.resolve(BOX, Discrete(5), {}, "torch")

    [request] = requests
    assert request.framework == "torch"
    assert request.encoded_shape == BOX.shape
    assert request.num_outputs == 5  # a logit for each action
    assert request.mask_key is None


def test_build_looks_up_each_space_once(monkeypatch):
    lookups = []
    find_preprocessor = Slots.preprocessor

    def record_lookup(slots, request, *args, **kwargs):
        lookups.append(request)
        return find_preprocessor(slots, request, *args, **kwargs)

    monkeypatch.setattr(Slots, "preprocessor", record_lookup)
    leaves = {"a": Discrete(3), "b": Box(-1, 1, (2,))}

    rlcatalog.build(Dict(leaves), Discrete(2), {"fcnet_hiddens": [2]}, "torch")

    assert len(lookups) == len(leaves) + 1  # the Dict itself is a space too


@pytest.mark.parametrize(
    ("space", "count"),
    [
        (gym.spaces.Discrete(10_001), "10,001"),
        (gym.spaces.MultiDiscrete([6_000, 6_000]), "12,000"),
    ],
    ids=["discrete", "multi-discrete"],
)
def test_onehot_of_more_than_10_000_inputs_warns(space, count):
    with pytest.warns(OneHotWarning, match=f"{count} one-hot inputs.*embeds them"):
        rlcatalog.default_catalog().resolve(space, gym.spaces.Discrete(2))
