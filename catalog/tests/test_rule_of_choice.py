"""The rule of choice: a name or a switch, the program's parts, the listed ones, and in need all
others.
"""

from __future__ import annotations

import sys
import types

import gymnasium as gym
import msgspec
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from rlcatalog import (
    ActionCodecSpec,
    ActionDistSpec,
    Catalog,
    EnvWrapperSpec,
    Match,
    ModelSpec,
    PreprocessorSpec,
    Rank,
    Request,
    SpaceInfo,
)
from rlcatalog.errors import AmbiguousChoiceError, MissingPluginError, NoMatchError, PartError
from rlcatalog.plugins.discovery import scan
from rlcatalog.spaces.action_codecs import codec_class
from rlcatalog_testing import PluginEntryPoint, plugin_of

VECTOR, IMAGE, CHOICE = (
    Box(-1, 1, (4,), np.float32),
    Box(0, 255, (84, 84, 3), np.uint8),
    Discrete(3),
)
NET = {"torch": "made_up:Net"}
CODEC = {"numpy": "rlcatalog_preprocessors.arrays:NoPreprocessor"}


class Angle(Box):
    """A subclass of Box, as a user's program defines one."""


def takes_all(request):
    return Match(Rank.SPECIFIC, "takes anything")


def raises(request):
    raise ValueError("boom")


def plugin(distribution, **hooks):
    return PluginEntryPoint(
        plugin_of(**{f"rlcatalog_{name}": specs for name, specs in hooks.items()}), distribution
    )


def catalog_with(*plugins, **options):
    return Catalog((*scan(), *plugins), environ=options.pop("environ", {}), **options)


def chosen(catalog, obs=VECTOR, action=CHOICE, config=None, slot="model", framework="torch"):
    found = catalog.explain(obs, action, config, framework).as_dict()[slot]
    return found["chosen"] and f"{found['distribution']}/{found['chosen']}"


@pytest.fixture
def switch(monkeypatch):
    """The key `acme_on` in a config struct that declarations can name."""
    module = types.ModuleType("acme_config")
    module.Keys = msgspec.defstruct(
        "Keys", [("acme_on", float | bool, False)], frozen=True, kw_only=True
    )
    module.wrap = lambda env, config: gym.wrappers.FlattenObservation(env)
    monkeypatch.setitem(sys.modules, "acme_config", module)
    return {"switch": "acme_on", "config": "acme_config:Keys"}


# --- what is installed beside the listed parts ----------------------------------------------------


def test_built_in_part_wins_over_a_plugin_that_takes_anything():
    greedy = plugin(
        "acme",
        models=[
            ModelSpec(f"acme_{slot}", NET, "", slot=slot, match=takes_all)
            for slot in ("trunk", "memory", "head")
        ],
        action_dists=[
            ActionDistSpec("acme_dist", NET, "", match=takes_all, size=lambda action, config: 4)
        ],
        preprocessors=[PreprocessorSpec("acme_codec", CODEC, "", match=takes_all)],
    )
    bare, full = catalog_with(), catalog_with(greedy)
    for slot in ("preprocessor", "model", "memory", "head", "action_dist"):
        for obs in (VECTOR, IMAGE, Dict({"a": VECTOR, "b": Discrete(2)})):
            assert chosen(full, obs, slot=slot) == chosen(bare, obs, slot=slot)


def test_explanation_says_how_to_choose_an_unasked_part():
    catalog = catalog_with(plugin("acme", models=[ModelSpec("acme_net", NET, "", match=raises)]))
    candidates = catalog.explain(VECTOR, CHOICE, {}, "torch").as_dict()["model"]["candidates"]
    (mine,) = [part for part in candidates if part["name"] == "acme_net"]
    assert mine["rank"] is None
    assert mine["reason"] == (
        "not considered: 'fcnet' comes first; to choose it: custom_model='acme/acme_net'"
        " or RLCATALOG_PREFER_PLUGINS=acme"
    )


def test_plugin_part_is_chosen_if_no_built_in_part_fits():
    video = Box(0, 1, (4, 8, 8, 3), np.float32)
    assert chosen(catalog_with(), video) == "rlcatalog-fcnet/fcnet"
    greedy = plugin("acme", models=[ModelSpec("acme_net", NET, "", match=takes_all)])
    without = {
        "RLCATALOG_DISABLE_PLUGINS": "rlcatalog-fcnet,rlcatalog-visionnet,rlcatalog-complex-input"
    }
    assert chosen(catalog_with(greedy, environ=without)) == "acme/acme_net"


def test_failing_match_without_alternative_names_plugin():
    bad = plugin("acme", models=[ModelSpec("acme_net", NET, "", match=raises)])
    without = {
        "RLCATALOG_DISABLE_PLUGINS": "rlcatalog-fcnet,rlcatalog-visionnet,rlcatalog-complex-input"
    }
    with pytest.raises(
        PartError, match=r"'acme_net' \(acme .*\): its match function raised ValueError: boom"
    ):
        chosen(catalog_with(bad, environ=without))
    with pytest.raises(PartError, match="acme_net"):
        chosen(catalog_with(bad), config={"custom_model": "acme_net"})


def test_plugins_that_match_equally_well_are_ambiguous():
    two = [
        plugin(name, models=[ModelSpec(f"{name}_net", NET, "", match=takes_all)])
        for name in ("acme", "emca")
    ]
    without = {
        "RLCATALOG_DISABLE_PLUGINS": "rlcatalog-fcnet,rlcatalog-visionnet,rlcatalog-complex-input"
    }
    with pytest.raises(AmbiguousChoiceError, match="custom_model='acme/acme_net'"):
        chosen(catalog_with(*two, environ=without))
    assert chosen(catalog_with(*two, environ=without, prefer=["emca"])) == "emca/emca_net"


# --- preferred packages ---------------------------------------------------------------------------


def test_preferred_part_wins_ties_with_built_in_parts():
    generic = plugin(
        "acme",
        models=[
            ModelSpec("acme_net", NET, "", match=lambda request: Match(Rank.GENERIC, "a vector"))
        ],
    )
    assert chosen(catalog_with(generic)) == "rlcatalog-fcnet/fcnet"
    assert chosen(catalog_with(generic, prefer=["acme"])) == "acme/acme_net"
    assert (
        chosen(catalog_with(prefer=["rlcatalog-fcnet"]), IMAGE) == "rlcatalog-visionnet/visionnet"
    )


# --- switches -------------------------------------------------------------------------------------


def test_switch_chooses_its_part_in_every_slot(switch):
    acme = plugin(
        "acme",
        models=[
            ModelSpec("acme_head", NET, "", slot="head", **switch),
            ModelSpec("acme_net", NET, "", **switch),
        ],
        action_dists=[
            ActionDistSpec("acme_dist", NET, "", size=lambda action, config: 4, **switch)
        ],
        preprocessors=[PreprocessorSpec("acme_codec", CODEC, "", **switch)],
        env_wrappers=[EnvWrapperSpec("acme_wrapper", {"numpy": "acme_config:wrap"}, "", **switch)],
    )
    catalog = catalog_with(acme)
    for slot, name in (
        ("head", "head"),
        ("model", "net"),
        ("action_dist", "dist"),
        ("preprocessor", "codec"),
    ):
        assert chosen(catalog, config={"acme_on": True}, slot=slot) == f"acme/acme_{name}"
        assert chosen(catalog, config={"acme_on": False}, slot=slot) == chosen(
            catalog_with(), slot=slot
        )
    env = gym.make("CartPole-v1")
    applied = [
        c.name
        for c, answer in catalog.explain_wrapping(env, {"acme_on": True})[1]
        if answer.rank is not None
    ]
    assert applied == ["acme_wrapper"]
    assert catalog.explain_wrapping(env)[1] == catalog_with().explain_wrapping(env)[1]


def test_switch_of_zero_is_on(switch):
    catalog = catalog_with(
        plugin("acme", models=[ModelSpec("acme_head", NET, "", slot="head", **switch)])
    )
    assert chosen(catalog, config={"acme_on": 0.0}, slot="head") == "acme/acme_head"


def test_switch_of_a_part_that_does_not_fit_is_an_error(switch):
    acme = plugin("acme", models=[ModelSpec("acme_head", NET, "", slot="head", **switch)])
    with pytest.raises(
        NoMatchError, match=r"acme_on=True selects 'acme_head' .* has no code for framework 'tf'"
    ):
        chosen(catalog_with(acme), config={"acme_on": True}, slot="head", framework="tf")
    spec = ModelSpec(
        "acme_head", NET, "", slot="head", match=lambda r: Match(None, "too small"), **switch
    )
    picky = plugin("acme", models=[spec])
    with pytest.raises(NoMatchError, match=r"too small\. Remove acme_on from the config"):
        chosen(catalog_with(picky), config={"acme_on": True}, slot="head")


# --- the running program --------------------------------------------------------------------------


@pytest.mark.parametrize("rank", Rank)
def test_registered_part_wins_at_any_rank(rank):
    catalog = catalog_with()
    catalog.register(ModelSpec("mine", NET, "", match=lambda request: Match(rank, "the program's")))
    assert chosen(catalog) == "/mine"
    catalog.register(ModelSpec("mine", NET, ""))
    assert chosen(catalog) == "rlcatalog-fcnet/fcnet"


def test_registered_name_wins_over_a_plugin():
    catalog = catalog_with()
    catalog.register(ModelSpec("fcnet", NET, ""))
    assert chosen(catalog, config={"custom_model": "fcnet"}) == "/fcnet"
    assert (
        chosen(catalog, config={"custom_model": "rlcatalog-fcnet/fcnet"}) == "rlcatalog-fcnet/fcnet"
    )


# --- classes of spaces ----------------------------------------------------------------------------


def test_preprocessor_of_a_space_class_is_from_its_package(monkeypatch):
    module = types.ModuleType("acme_spaces")
    module.Angle = type("Angle", (Box,), {"__module__": "acme_spaces"})
    module.Codec = type("Codec", (), {})
    monkeypatch.setitem(sys.modules, "acme_spaces", module)
    space = module.Angle(-1, 1, (2,), np.float32)
    kinds = ("acme_spaces.Angle",)
    home = PreprocessorSpec("acme_angle", {"numpy": "acme_spaces:Codec"}, "", kinds=kinds)
    third = PreprocessorSpec("emca_angle", CODEC, "", kinds=kinds)

    def codec(*plugins, **options):
        catalog = catalog_with(*plugins, **options)
        return catalog.slots.preprocessor(Request(SpaceInfo.read(space)), None).component.address

    assert codec() == "rlcatalog-preprocessors/none"
    assert codec(plugin("emca", preprocessors=[third])) == "rlcatalog-preprocessors/none"
    assert codec(plugin("emca", preprocessors=[third]), prefer=["emca"]) == "emca/emca_angle"
    assert codec(plugin("acme", preprocessors=[home])) == "acme/acme_angle"


def test_explanation_of_unasked_preprocessor_with_kinds():
    spec = PreprocessorSpec(
        "acme_box", {"numpy": "rlcatalog_preprocessors.arrays:NoPreprocessor"}, "", kinds=("box",)
    )
    resolution = catalog_with(plugin("acme", preprocessors=[spec])).resolve(VECTOR, CHOICE)
    (answer,) = [
        answer for c, answer in resolution.choices["preprocessor"].verdicts if c.name == "acme_box"
    ]
    assert answer == Match(
        None,
        "not considered: 'none' comes first; to choose it: custom_preprocessor='acme/acme_box' or"
        " RLCATALOG_PREFER_PLUGINS=acme",
    )


def test_action_codec_of_a_space_class_is_from_its_package(monkeypatch):
    module = types.ModuleType("acme_spaces")
    module.Angle = type("Angle", (Box,), {"__module__": "acme_spaces"})
    module.Dial = type("Dial", (gym.Space,), {"__module__": "acme_spaces"})
    module.Codec = type("Codec", (), {})
    monkeypatch.setitem(sys.modules, "acme_spaces", module)
    angle, dial = (
        SpaceInfo.read(module.Angle(-1, 1, (2,), np.float32)),
        SpaceInfo.read(module.Dial()),
    )
    kinds = ("acme_spaces.Angle", "acme_spaces.Dial")

    def codecs(distribution, target):
        spec = ActionCodecSpec(f"{distribution}_codec", {"numpy": target}, "", kinds=kinds)
        catalog_with(plugin(distribution, action_codecs=[spec]))
        try:
            return [codec_class(info).__name__ for info in (angle, dial)]
        finally:
            spec.leave()

    assert codec_class(angle).__name__ == "BoxCodec"
    assert codecs("emca", "rlcatalog_preprocessors.actions.kinds:DiscreteCodec") == [
        "BoxCodec",
        "DiscreteCodec",
    ]
    assert codecs("acme", "acme_spaces:Codec") == ["Codec", "Codec"]


def test_distribution_may_be_for_a_space_class_of_its_package(monkeypatch):
    module = types.ModuleType("acme_spaces")
    module.Angle = type("Angle", (Box,), {"__module__": "acme_spaces"})
    monkeypatch.setitem(sys.modules, "acme_spaces", module)
    space = module.Angle(-1, 1, (2,), np.float32)
    spec = ActionDistSpec(
        "acme_angle",
        {"torch": "acme_spaces:Dist"},
        "",
        size=lambda action, config: 4,
        kinds=("acme_spaces.Angle",),
    )
    assert (
        chosen(catalog_with(), action=space, slot="action_dist")
        == "rlcatalog-gaussian/diag_gaussian"
    )
    found = catalog_with(plugin("acme", action_dists=[spec]))
    assert chosen(found, action=space, slot="action_dist") == "acme/acme_angle"
    assert (
        chosen(found, action=Box(-1, 1, (2,)), slot="action_dist")
        == "rlcatalog-gaussian/diag_gaussian"
    )


# --- listed packages that failed ------------------------------------------------------------------


def broken(distribution):
    entry_points = [point for point in scan() if point.dist.name != distribution]
    return Catalog(
        (*entry_points, PluginEntryPoint("no_such_module_at_all", distribution)), environ={}
    )


def test_failed_built_in_package_is_an_error_if_it_would_fit():
    with pytest.warns(match="no_such_module_at_all"):
        vision = broken("rlcatalog-visionnet")
    assert chosen(vision) == "rlcatalog-fcnet/fcnet"
    with pytest.raises(MissingPluginError, match=r"rlcatalog-visionnet .* which has failed"):
        chosen(vision, IMAGE)
    assert chosen(vision, IMAGE, config={"custom_model": "fcnet"}) == "rlcatalog-fcnet/fcnet"
    with pytest.warns(match="no_such_module_at_all"):
        lstm = broken("rlcatalog-lstm")
    assert chosen(lstm, IMAGE) == "rlcatalog-visionnet/visionnet"
    with pytest.raises(Exception, match=r"rlcatalog-lstm .* which has failed"):
        chosen(lstm, config={"use_lstm": True})


def test_composites_choose_parts_by_the_same_rule():
    greedy = plugin(
        "acme",
        action_dists=[
            ActionDistSpec("acme_dist", NET, "", match=takes_all, size=lambda action, config: 4)
        ],
    )
    space = Tuple([CHOICE, Box(-1, 1, (2,))])
    found = catalog_with(greedy).explain(VECTOR, space, {}, "torch").as_dict()["action_parts"]
    assert [part["chosen"] for part in found] == ["categorical", "diag_gaussian"]
