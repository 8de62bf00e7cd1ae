"""Opt-in parts are chosen by their switch; ties name the space they are about and ways out that
exist.
"""

from __future__ import annotations

import copy
import pickle
import re
import sys
from types import ModuleType

import gymnasium as gym
import msgspec
import numpy as np
import pytest

import rlcatalog
from rlcatalog import ActionDistSpec, Match, ModelSpec, PreprocessorSpec, Rank, Request, SpaceInfo
from rlcatalog.errors import AmbiguousChoiceError, PartError
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

BOX = gym.spaces.Box(-1, 1, (3,), np.float32)
TWO = gym.spaces.Discrete(2)
PARTS = (
    "rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-lstm", "rlcatalog-attention",
    "rlcatalog-parametric", "rlcatalog-autoregressive", "rlcatalog-gaussian",
    "rlcatalog-multi-action", "rlcatalog-categorical",
)  # fmt: skip


def config_struct(name, *keys):
    return msgspec.defstruct(name, [(key, bool, False) for key in keys], frozen=True, kw_only=True)


@pytest.fixture
def catalog_of(monkeypatch):
    """Make a catalog of the built-in parts and of plugins: distribution → its models, and the
    switches it owns.
    """

    def make(plugins, *, parts=PARTS, **options):
        points = []
        for distribution, (specs, *switches) in plugins.items():
            module = ModuleType(f"made_up_{distribution}")
            module.Config = config_struct("Config", *switches)
            monkeypatch.setitem(sys.modules, module.__name__, module)
            hooks = {"rlcatalog_models": specs} if isinstance(specs, list) else specs
            points.append(PluginEntryPoint(plugin_of(**hooks), distribution))
        return isolated_catalog(*parts, *points, **options)

    return make


def memory(distribution, name, switch, **fields):
    targets = {"torch": f"made_up_{distribution}:Memory"}
    fields = {
        "slot": "memory",
        "switch": switch,
        "config": f"made_up_{distribution}:Config",
        **fields,
    }
    return ModelSpec(name, targets, "made up", **fields)


def slot(catalog, config, name="memory", obs=BOX, action=TWO):
    return catalog.explain(obs, action, config, "torch").as_dict()[name]


# --- switches -------------------------------------------------------------------------------------


def test_part_with_a_switch_is_chosen_if_it_is_on(catalog_of):
    catalog = catalog_of({"acme": ([memory("acme", "acme_gru", "acme_on")], "acme_on")})
    off, on = slot(catalog, {}), slot(catalog, {"acme_on": True})
    assert (off["chosen"], on["chosen"]) == (None, "acme_gru")
    assert on["candidates"][0] == {
        "name": "acme_gru",
        "distribution": "acme",
        "version": "1.0",
        "rank": "SPECIFIC",
        "reason": "acme_on is set",
    }
    refused = next(c for c in off["candidates"] if c["name"] == "acme_gru")
    assert (refused["rank"], refused["reason"]) == (
        None,
        "acme_on is not set; to choose it: acme_on=True",
    )
    assert "acme_on" in on["config_keys"]


def test_part_that_is_switched_on_and_fails_is_an_error(catalog_of):
    for fields in ({}, {"match": lambda request: Match(Rank.SPECIFIC, "always")}):
        catalog = catalog_of(
            {"acme": ([memory("acme", "acme_gru", "acme_on", **fields)], "acme_on")}
        )
        with pytest.raises(
            PartError, match=r"model 'acme_gru' \(acme 1\.0\).*'made_up_acme:Memory'"
        ):
            rlcatalog.build(BOX, TWO, {"acme_on": True}, "torch", catalog=catalog)
        assert not rlcatalog.build(BOX, TWO, {}, "torch", catalog=catalog).memory


def test_match_function_decides_beside_a_switch():
    def match(request):
        return Match(Rank.GENERIC, "even so")

    part = memory("acme", "gru", "acme_on", match=match)
    assert part.judge(Request(SpaceInfo.read(BOX))) == Match(Rank.GENERIC, "even so")


def test_model_may_be_for_kinds_of_observation():
    part = ModelSpec("net", {"torch": "m:C"}, "", kinds=("discrete", "multi_binary"))
    assert part.judge(Request(SpaceInfo.read(TWO))) == Match(
        Rank.GENERIC, "the space is a discrete"
    )
    assert part.judge(Request(SpaceInfo.read(BOX))) == Match(
        None, "takes discrete or multi_binary, not box"
    )


def test_declaration_survives_copy_and_pickle():
    part = ModelSpec("net", {"torch": "m:C"}, "a net", reads=("max_seq_len",))
    assert copy.deepcopy(part) == pickle.loads(pickle.dumps(part)) == part


@pytest.mark.parametrize(
    ("name", "switch"),
    [
        ("lstm", "use_lstm"),
        ("attention", "use_attention"),
        ("parametric", "use_parametric"),
        ("autoregressive", "use_autoregressive"),
    ],
)
def test_built_in_parts_have_their_switch(name, switch):
    assert rlcatalog.default_catalog().registry.get("model", name).declaration.switch == switch


MEMORIES = {
    "acme": ([memory("acme", "acme_gru", "acme_on")], "acme_on"),
    "zeta": (
        [memory("zeta", "zeta_gru", "zeta_on", match=lambda r: Match(Rank.GENERIC, "any time"))],
        "zeta_on",
    ),
}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("use_lstm", "use_attention"),
        ("use_lstm", "acme_on"),
        ("acme_on", "zeta_on"),
        ("zeta_on", "use_attention"),
    ],
)
@pytest.mark.parametrize("prefer", [[], ["acme"]], ids=["", "preferred"])
def test_memories_switched_on_together_error_names_switches(catalog_of, first, second, prefer):
    """Listed or not, preferred or not, of one rank or of two: both were asked for."""
    plugins = {name: MEMORIES[name] for name in MEMORIES if f"{name}_on" in (first, second)}
    catalog = catalog_of(plugins, prefer=prefer)
    with pytest.raises(AmbiguousChoiceError) as raised:
        catalog.explain(BOX, TWO, {first: True, second: True}, "torch")
    message = str(raised.value)
    assert message.startswith("memory: ")
    assert "are switched on together, but there is only one memory. Remove one of " in message
    switches = re.search(r"Remove one of (\w+) and (\w+) from the config\.$", message)
    assert set(switches.groups()) == {first, second}
    for off in (first, second):  # which are ways out
        catalog.explain(BOX, TWO, {first: True, second: True, off: False}, "torch")


def test_heads_switched_on_together_are_an_error(catalog_of):
    catalog, action = catalog_of({}), gym.spaces.MultiDiscrete([2, 2])
    masked = gym.spaces.Dict({"action_mask": gym.spaces.MultiBinary(4), "x": BOX})
    with pytest.raises(
        AmbiguousChoiceError, match="Remove one of use_autoregressive and use_parametric from"
    ):
        catalog.explain(
            masked, action, {"use_autoregressive": True, "use_parametric": True}, "torch"
        )


def test_memories_with_one_switch_need_a_switch_each(catalog_of):
    both = [memory("acme", name, "acme_on") for name in ("acme_one", "acme_two")]
    catalog = catalog_of({"acme": (both, "acme_on")})
    with pytest.raises(AmbiguousChoiceError, match=r"one memory\. Give each a separate switch\.$"):
        catalog.explain(BOX, TWO, {"acme_on": True}, "torch")


def test_packages_with_one_switch_error_says_to_disable_one(catalog_of):
    """Preferring one would not help: both are switched on."""
    acme = {"acme": ([memory("acme", "acme_gru", "use_lstm")], "acme_on")}
    for prefer in ([], ["acme"]):
        with pytest.raises(
            AmbiguousChoiceError,
            match=r"one memory\. Disable one with RLCATALOG_DISABLE_PLUGINS=acme\.$",
        ):
            catalog_of(acme, prefer=prefer).explain(BOX, TWO, {"use_lstm": True}, "torch")
    catalog = catalog_of(acme, environ={"RLCATALOG_DISABLE_PLUGINS": "acme"})
    assert slot(catalog, {"use_lstm": True})["chosen"] == "lstm"


def test_named_memory_overrides_the_switch_of_another(catalog_of):
    found = slot(catalog_of({}), {"custom_model": "lstm", "use_attention": True})
    assert (found["chosen"], found["reason"]) == ("lstm", "named in the config")


# --- ties, where no listed part fits --------------------------------------------------------------

#: Without a distribution for a Box, without a trunk, without a codec of any kind.
NO_GAUSSIAN, NO_FCNET, NO_CODECS = (
    tuple(part for part in PARTS if part != f"rlcatalog-{name}")
    for name in ("gaussian", "fcnet", "preprocessors")
)


def always(request):
    return Match(Rank.SPECIFIC, "whatever it is")


def dist(name):
    return ActionDistSpec(
        name, {"torch": "m:C"}, "made up", match=on_boxes, size=lambda action, config: 2
    )


def on_boxes(request):
    if request.action.kind == "box":
        return Match(Rank.SPECIFIC, "a Box")
    return Match(None, "no Box")


def test_tie_of_distributions_names_action_and_options(catalog_of):
    plugins = {
        name: ({"rlcatalog_action_dists": [dist(f"{name}_dist")]},) for name in ("one", "two")
    }
    catalog = catalog_of(plugins, parts=NO_GAUSSIAN)
    push = gym.spaces.Box(-2, 2, (7,), np.float32)
    with pytest.raises(AmbiguousChoiceError) as raised:
        catalog.explain(BOX, push, {}, "torch")
    message = str(raised.value)
    assert SpaceInfo.read(push).describe() in message
    assert SpaceInfo.read(BOX).describe() not in message
    assert (
        "(custom_action_dist='one/one_dist'), or prefer one with RLCATALOG_PREFER_PLUGINS=one,"
        in message
    )
    assert "or disable one with RLCATALOG_DISABLE_PLUGINS=two." in message
    found = slot(
        catalog_of(plugins, parts=NO_GAUSSIAN, environ={"RLCATALOG_DISABLE_PLUGINS": "two"}),
        {},
        "action_dist",
        BOX,
        push,
    )
    assert found["chosen"] == "one_dist"
    for options in ({"environ": {"RLCATALOG_PREFER_PLUGINS": "one"}}, {"prefer": ["one"]}):
        assert (
            slot(catalog_of(plugins, parts=NO_GAUSSIAN, **options), {}, "action_dist", BOX, push)[
                "chosen"
            ]
            == "one_dist"
        )
    named = {"custom_action_dist": "one/one_dist"}
    assert slot(catalog, named, "action_dist", BOX, push)["chosen"] == "one_dist"


def test_tie_for_a_part_of_the_action_names_the_part(catalog_of):
    plugins = {
        name: ({"rlcatalog_action_dists": [dist(f"{name}_dist")]},) for name in ("one", "two")
    }
    catalog = catalog_of(plugins, parts=NO_GAUSSIAN)
    push = gym.spaces.Dict({"push": gym.spaces.Box(-2, 2, (7,), np.float32), "go": TWO})
    with pytest.raises(AmbiguousChoiceError) as raised:
        catalog.explain(BOX, push, {}, "torch")
    assert "match Box(7,) float32 equally well" in str(raised.value)
    assert "custom_action_dist={\"action['push']\": 'one/one_dist'}" in str(raised.value)
    parts = catalog.explain(
        BOX, push, {"custom_action_dist": {"action['push']": "one/one_dist"}}, "torch"
    ).as_dict()
    assert {p["path"]: p["chosen"] for p in parts["action_parts"]}["action['push']"] == "one_dist"


def trunk(distribution, name=None):
    name = name or f"{distribution}_net"
    return ModelSpec(name, {"torch": f"made_up_{distribution}:Net"}, "made up", match=always)


def test_tie_within_one_plugin_offers_no_preference(catalog_of):
    catalog = catalog_of(
        {"acme": ([trunk("acme", "acme_a"), trunk("acme", "acme_b")],)}, parts=NO_FCNET
    )
    with pytest.raises(AmbiguousChoiceError) as raised:
        catalog.explain(BOX, TWO, {}, "torch")
    assert str(raised.value).endswith(
        "Options: name one in the config (custom_model='acme/acme_a')."
    )
    assert slot(catalog, {"custom_model": "acme/acme_a"}, "model")["chosen"] == "acme_a"


def test_tie_error_does_not_offer_a_key_that_is_taken(catalog_of):
    """Where `custom_model` names the trunk, it cannot name the memory as well."""
    loose = [
        memory("acme", f"acme_{name}", None, match=always, config=None) for name in ("one", "two")
    ]
    catalog = catalog_of({"acme": (loose,)}, prefer=["acme"])
    with pytest.raises(
        AmbiguousChoiceError, match=r"Let one of them match with a different rank\.$"
    ):
        catalog.explain(BOX, TWO, {"custom_model": "fcnet"}, "torch")
    with pytest.raises(AmbiguousChoiceError, match="custom_model='acme/acme_one'"):
        catalog.explain(BOX, TWO, {}, "torch")
    assert slot(catalog, {"custom_model": "acme/acme_one"})["chosen"] == "acme_one"


def test_tie_of_nested_preprocessors_offers_no_key(catalog_of):
    codecs = [
        PreprocessorSpec(
            n,
            {"numpy": "rlcatalog_preprocessors.arrays:NoPreprocessor"},
            "",
            match=always,
            kinds=("box",),
        )
        for n in ("acme_x", "acme_y")
    ]
    catalog = catalog_of({"acme": ({"rlcatalog_preprocessors": codecs},)}, parts=NO_CODECS)
    with pytest.raises(AmbiguousChoiceError, match=r"\(custom_preprocessor='acme/acme_x'\)\.$"):
        catalog.explain(BOX, TWO, {}, "torch")
    with pytest.raises(
        AmbiguousChoiceError, match=r"Let one of them match with a different rank\.$"
    ):
        catalog.explain(gym.spaces.Dict({"a": BOX}), TWO, {}, "torch")
