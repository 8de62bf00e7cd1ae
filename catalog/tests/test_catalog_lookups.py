"""A catalog's lookups: its plugins and keys, its memory, engine defaults, pins, action masks, and
what it warns of.
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

BOX, TWO = Box(-1, 1, (3,), np.float32), Discrete(2)
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
    return isolated_catalog(
        *PARTS, acme(ModelSpec("acme_plain", NET, "", plain=True), ModelSpec("acme_net", NET, ""))
    )


@pytest.fixture
def catalog():
    return isolated_catalog(*PARTS)


def acme(*models):
    return PluginEntryPoint(plugin_of(rlcatalog_models=list(models)), "acme")


# --- the catalog ----------------------------------------------------------------------------------


def test_a_catalog_loads_the_given_plugins_in_the_given_environment(monkeypatch):
    monkeypatch.setenv("RLCATALOG_PREFER_PLUGINS", "Emca, ")
    point = acme(ModelSpec("acme_net", NET, ""))
    assert Catalog([], environ={}, prefer=["Zeta_nets"]).prefer == ("zeta-nets",)
    assert Catalog([], prefer=["zeta"]).prefer == ("zeta", "emca")
    given = Catalog(iter([point]), environ={})
    assert given.entry_points == (point,)
    assert Catalog([], environ={}).entry_points == ()
    assert (
        [c.name for c in given.components("model")]
        == [c.name for c in given.components()]
        == ["acme_net"]
    )
    assert given.components("filter") == []
    monkeypatch.setattr(module, "scan", lambda: [point])
    assert Catalog(environ={}).entry_points == (point,)


def test_a_refresh_looks_for_packages_that_were_installed_since(monkeypatch):
    done = []
    everything = Catalog(environ={})
    monkeypatch.setattr(module.importlib, "invalidate_caches", lambda: done.append("folders"))
    monkeypatch.setattr(scan, "cache_clear", lambda: done.append("packages"))
    assert everything.refresh() == []
    assert done == ["folders", "packages"]
    assert Catalog([], environ={}).refresh() == []  # it has the plugins that it was given
    assert done == ["folders", "packages"]


def test_a_registered_part_whose_key_a_plugin_has_taken_is_left_out_with_a_warning(
    catalog, monkeypatch
):
    struct = msgspec.defstruct("Keys", [("mine_width", int, 3)], frozen=True, kw_only=True)
    catalog.register_model(
        "mine", type("Mine", (ModelV2,), {"framework_of_class": "torch"}), config=struct
    )

    def taken(self, component, struct=None):
        raise DuplicateNameError("'mine_width' is taken")

    monkeypatch.setattr(type(catalog.registry), "add_in_process", taken)
    with pytest.warns(PluginWarning, match=r"'mine'.*'mine_width' is taken"):
        catalog.refresh()
    assert "mine" not in catalog.registry.names(["model"])


def test_a_part_reads_the_keys_of_its_package_and_those_it_names(monkeypatch):
    keys = ModuleType("acme_keys")
    keys.Keys = msgspec.defstruct("Keys", [("acme_width", int, 3)], frozen=True, kw_only=True)
    monkeypatch.setitem(sys.modules, "acme_keys", keys)
    own = ModelSpec(
        "acme_net", NET, "", config="acme_keys:Keys", reads=("max_seq_len", "acme_width")
    )
    bare = ModelSpec("acme_bare", NET, "")
    catalog = isolated_catalog(acme(own, bare))
    net, without = (catalog.registry.get("model", name) for name in ("acme_net", "acme_bare"))
    assert catalog.config_keys(net) == ["acme_width", "max_seq_len"]
    assert catalog.config_keys(without) == []
    silent, speaking = (
        Component(ModelSpec("acme_net", {"tf": "m:C"}, "", reads=reads), "emca", "1.0")
        for reads in ((), ("vf_share_layers",))
    )
    net.extensions["tf"] = [silent]  # its code reads what the part reads
    assert catalog.config_keys(net, "tf") == ["acme_width", "max_seq_len"]
    net.extensions["tf"] = [speaking]
    assert catalog.config_keys(net, "tf") == ["vf_share_layers"]
    assert (
        catalog.config_keys(net, "torch")
        == catalog.config_keys(net)
        == ["acme_width", "max_seq_len"]
    )


# --- explaining -----------------------------------------------------------------------------------


@pytest.mark.parametrize("spaces", [(), (BOX,), (None, TWO)])
def test_both_spaces_or_an_environment_must_be_given(shared, spaces):
    with pytest.raises(UnsupportedSpaceError, match="env="):
        shared.explain(*spaces)


def test_an_object_with_the_spaces_of_a_vector_stands_for_an_environment(shared):
    closed = []
    vector = SimpleNamespace(single_observation_space=BOX, single_action_space=TWO)
    assert shared.spaces_of(vector) == (BOX, TWO, "SimpleNamespace", [], None)
    # It cannot be closed, and need not be.
    assert shared.spaces_of(lambda: vector)[:2] == (BOX, TWO)
    vector.close = lambda: closed.append(True)
    shared.spaces_of(vector)
    assert closed == []  # the caller goes on with it
    shared.spaces_of(lambda: vector)
    assert closed == [True]
    named = SimpleNamespace(
        single_observation_space=BOX, single_action_space=TWO, spec=SimpleNamespace(id="Made-v0")
    )
    assert shared.spaces_of(named)[2] == "Made-v0"


def test_wrapping_returns_the_environment(shared):
    env = gym.make("CartPole-v1")
    assert shared.wrap_env(env) is env
    assert shared.explain_wrapping(env) == (env, [])


# --- engine defaults and pins ---------------------------------------------------------------------

THREE = {"vf_share_layers": False, "fcnet_hiddens": [7], "max_seq_len": 5}


def given(resolution):
    return dict(resolution.config.given)


@pytest.mark.parametrize(
    "refused", [(), *[(key,) for key in THREE], ("vf_share_layers", "max_seq_len"), tuple(THREE)]
)
def test_only_the_default_that_is_refused_gives_way_and_all_if_there_are_several(catalog, refused):
    def build(resolution):
        if any(key in resolution.config.given for key in refused):
            raise LookupError("refused")
        return given(resolution)

    left = (
        {key: value for key, value in THREE.items() if key not in refused}
        if len(refused) < 2
        else {}
    )
    assert catalog.build_from_lookup(build, BOX, TWO, {}, "torch", defaults=THREE) == left


def test_an_error_without_any_default_is_raised(catalog):
    tried = []

    def fail(resolution):
        tried.append(given(resolution))
        raise LookupError("always")

    with pytest.raises(LookupError, match="always"):
        catalog.build_from_lookup(fail, BOX, TWO, {}, "torch", defaults=THREE)
    fewer = [{key: value for key, value in THREE.items() if key != without} for without in THREE]
    assert tried == [THREE, *fewer, {}]
    tried.clear()
    with pytest.raises(LookupError, match="always"):
        catalog.build_from_lookup(fail, BOX, TWO, {}, "torch")
    assert tried == [{}]


def test_pinned_choices_are_neither_taken_from_the_memory_nor_kept_in_it(catalog):
    catalog.register(ModelSpec("mine", NET, ""))
    free = catalog.resolve(BOX, TWO, {}, "torch")
    pins = Pins.of(free)
    pinned = Pins(pins.parts | {"trunk": "mine"}, pins.preprocessors, pins.action_dists)
    for _ in range(2):
        found = catalog.resolve(BOX, TWO, {}, "torch", pins=pinned)
        assert (found.component("trunk").name, found.pins) == ("mine", pinned)
        assert catalog.resolve(BOX, TWO, {}, "torch") is free
    first = catalog.resolve(BOX, TWO, {"fcnet_hiddens": [4]}, "torch", pins=pinned)
    assert first.component("trunk").name == "mine"
    assert (
        catalog.resolve(BOX, TWO, {"fcnet_hiddens": [4]}, "torch").component("trunk").name
        == "fcnet"
    )


def test_a_pinned_lookup_warns_of_nothing(catalog):
    pins = Pins.of(catalog.explain(BOX, TWO, {}, "torch").resolution)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        catalog.resolve(BOX, TWO, {"max_seq_len": 3}, "torch", pins=pins)
    with pytest.warns(UnreadKeysWarning, match="max_seq_len"):
        catalog.resolve(BOX, TWO, {"max_seq_len": 3}, "torch")


# --- the memory -----------------------------------------------------------------------------------


def test_64_lookups_are_remembered_latest_first():
    slots = SimpleNamespace(answers=())
    for i in range(64):
        assert remember(slots, ("what", i), (), {"a": i}, f"answer {i}") == f"answer {i}"
    assert [recall(slots, ("what", i), (), {"a": i}) for i in (0, 1, 63)] == [
        "answer 0",
        "answer 1",
        "answer 63",
    ]
    remember(slots, ("what", 64), (), {}, "answer 64")
    assert recall(slots, ("what", 0), (), {"a": 0}) is None
    assert recall(slots, ("what", 1), (), {"a": 1}) == "answer 1"


def test_an_answer_is_remembered_for_what_was_asked_the_same_spaces_and_an_equal_config():
    slots, a, b = SimpleNamespace(answers=()), [1], [1]
    remember(slots, ("x",), (a, b), ({"k": [1]}, (2,)), "answer")
    assert recall(slots, ("x",), (a, b), ({"k": [1]}, (2,))) == "answer"
    for what, spaces, config in (
        (("y",), (a, b), ({"k": [1]}, (2,))),
        (("x",), (a, a), ({"k": [1]}, (2,))),
        (("x",), (b, b), ({"k": [1]}, (2,))),
        (("x",), (a, b), ({"k": [2]}, (2,))),
        (("x",), (a, b), ({"k": [1]}, [2])),
    ):
        assert recall(slots, what, spaces, config) is None


def test_an_answer_is_found_once():
    slots, found = SimpleNamespace(answers=()), []
    for _ in range(2):
        assert answer_of(slots, ("x",), (), None, lambda: found.append(1) or "answer") == "answer"
    assert found == [1]


# --- frameworks -----------------------------------------------------------------------------------


def test_a_registered_class_of_one_framework_decides_which_is_used():
    def component(distribution, **targets):
        return Component(ModelSpec("m", targets, ""), distribution, "")

    mine, plugins, both = (
        component("", tf="m:C"),
        component("acme", tf="m:C"),
        component("", torch="m:C", tf="m:C"),
    )
    assert framework_for(None, None, plugins, both, mine) == "tf"
    assert framework_for("torch", mine) == "torch"
    for others in ((), (None,), (plugins,), (both,)):
        assert framework_for(None, *others) == "torch"  # the first that is installed


# --- action masks ---------------------------------------------------------------------------------

MASKED = Dict({"part": Dict({"action_mask": MultiBinary(2), "x": BOX}), "y": BOX})
MASK = {"action_mask_key": "part.action_mask"}


def seen(catalog, config):
    found = catalog.resolve(MASKED, TWO, config, "torch")
    assert found.mask_steps == (("part", "action_mask") if "action_mask_key" in config else ())
    return [node.path for node in found.request.obs.walk() if not node.children]


def test_a_mask_is_kept_from_models_unless_a_custom_class_or_preprocessor_sees_everything(shared):
    hidden, shown = (
        ["obs['part']['x']", "obs['y']"],
        ["obs['part']['action_mask']", "obs['part']['x']", "obs['y']"],
    )
    assert seen(shared, MASK) == hidden
    assert seen(shared, {**MASK, "custom_model": "acme_plain"}) == hidden  # it knows of no masks
    assert seen(shared, {**MASK, "custom_model": "acme_net"}) == shown
    assert seen(shared, {**MASK, "custom_preprocessor": "dict"}) == shown


def test_an_entry_that_is_only_named_like_a_mask_is_warned_of(shared):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert shared.explain(MASKED, TWO, MASK, "torch").as_dict()["unused_masks"] == []
        shared.resolve(MASKED, TWO, MASK, "torch")
    with pytest.warns(
        UnusedMaskWarning, match=r"obs\['part'\]\['action_mask'\] .*'part\.action_mask'"
    ):
        shared.resolve(MASKED, TWO, {}, "torch")
    # Which no mask could forbid anything of.
    with pytest.warns(UnusedMaskWarning, match=r"Box\(3,\) float32"):
        shared.resolve(MASKED, BOX, {}, "torch")


# --- what models see ------------------------------------------------------------------------------


def test_models_restore_the_structure_that_the_observation_space_names(shared):
    plain = shared.preprocessor_for(Dict({"a": BOX, "b": BOX}))
    assert _seen_by_models(plain) is plain

    def own(**fields):
        space = Box(-1, 1, (6,), np.float32)
        for name, value in fields.items():
            setattr(space, name, value)
        return type(
            "Own",
            (Preprocessor,),
            {"observation_space": space, "_init_shape": lambda self, space, o: (6,)},
        )

    other = own(original_space=plain.observation_space.original_space)(BOX)
    restored = _seen_by_models(other)
    assert (restored.info.kind, restored.info.keys, restored.shape) == ("dict", ("a", "b"), (6,))
    unnamed = own()(BOX)
    assert _seen_by_models(unnamed) is unnamed
    larger = own(original_space=Dict({"a": BOX}))(BOX)  # which has another size
    assert _seen_by_models(larger) is larger


# --- warnings -------------------------------------------------------------------------------------


def test_keys_without_an_effect_are_listed_with_the_parts_that_would_read_them():
    models = [
        ModelSpec(name, NET, "", reads=("max_seq_len", "vf_memory"))
        for name in ("acme_a", "acme_b")
    ]
    catalog = isolated_catalog(*PARTS, acme(*models))
    config = {"max_seq_len": 3, "image_layout": "chw", "post_fcnet_activation": "tanh"}
    with pytest.warns(UnreadKeysWarning) as caught:
        catalog.resolve(BOX, TWO, config, "torch")
    (text,) = [str(warning.message) for warning in caught]
    assert "max_seq_len (read by acme_a and acme_b), image_layout, post_fcnet_activation (" in text
    assert "post_fcnet_hiddens)" in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        catalog.resolve(BOX, TWO, {"fcnet_hiddens": [3]}, "torch")


def test_a_match_that_a_lookup_needs_is_asked_for_with_the_framework():
    asked = []

    def match(request):
        asked.append(
            (request.framework, request.encoded_shape, request.num_outputs, request.mask_key)
        )
        return Match(Rank.SPECIFIC, "fits")

    catalog = isolated_catalog(
        *PARTS, acme(ModelSpec("acme_net", NET, "", match=match)), prefer=["acme"]
    )
    catalog.resolve(BOX, Discrete(5), {}, "torch")
    assert asked == [("torch", (3,), 5, None)]


def test_a_build_looks_each_space_up_once(monkeypatch):
    asked = []
    look_up = Slots.preprocessor
    monkeypatch.setattr(
        Slots, "preprocessor", lambda *args, **rest: asked.append(args[1]) or look_up(*args, **rest)
    )
    leaves = {"a": Discrete(3), "b": Box(-1, 1, (2,))}
    rlcatalog.build(Dict(leaves), Discrete(2), {"fcnet_hiddens": [2]}, "torch")
    assert len(asked) == 1 + len(leaves)


@pytest.mark.parametrize(
    ("space", "count"),
    [
        (gym.spaces.Discrete(10_001), "10,001"),
        (gym.spaces.MultiDiscrete([6_000, 6_000]), "12,000"),
    ],
    ids=["Discrete", "MultiDiscrete"],
)
def test_very_many_one_hots_are_a_warning(space, count):
    with pytest.warns(OneHotWarning, match=f"obs becomes {count} one-hot inputs.*embeds them"):
        rlcatalog.default_catalog().resolve(space, gym.spaces.Discrete(2))
