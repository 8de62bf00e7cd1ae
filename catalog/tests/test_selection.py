"""The selection rule on candidates of one slot: who is asked, in which order, who wins, and what
errors name.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rlcatalog import ActionDistSpec, Match, ModelSpec, PreprocessorSpec, Rank, Request, SpaceInfo
from rlcatalog.choice.selection import Choice, choose, verdict
from rlcatalog.errors import AmbiguousChoiceError, NoMatchError, PartError
from rlcatalog.plugins import Component

BOX = gym.spaces.Box(-1, 1, (3,), np.float32)
OBS, ACTION = SpaceInfo.read(BOX), SpaceInfo.read(gym.spaces.Discrete(2), "action")
REQUEST = Request(OBS, ACTION, {}, "torch")


def part(name, rank=..., distribution="acme", spec=ModelSpec, **fields):
    """A candidate that answers with this rank; without one, it has no match function."""
    if rank is not ...:
        fields["match"] = lambda request: Match(rank, f"{name} says")
    if spec is ActionDistSpec:
        fields["size"] = lambda action, config: 2
    target = "numpy" if spec is PreprocessorSpec else "torch"
    return Component(spec(name, {target: "acme.parts:Part"}, "", **fields), distribution, "1.0")


def codec(name, rank=..., distribution="acme", **fields):
    return part(name, rank, distribution, PreprocessorSpec, **fields)


def dist(name, rank=..., distribution="acme", **fields):
    return part(name, rank, distribution, ActionDistSpec, **fields)


def order(choice):
    return [component.name for component, _ in choice.verdicts]


def reason_of(choice, name):
    return next(answer.why for component, answer in choice.verdicts if component.name == name)


def tie(slot, *candidates, request=REQUEST, **options):
    with pytest.raises(AmbiguousChoiceError) as raised:
        choose(slot, candidates, request, **options)
    return str(raised.value)


# --- who is asked, and in which order -------------------------------------------------------------


def test_choice_lists_the_answer_of_each_candidate():
    choice = Choice(
        None, "", ((part("a"), Match(None, "too small")), (part("b"), Match(None, "no image")))
    )
    assert choice.reasons() == "a: too small; b: no image"
    assert Choice(None, "").reasons("nothing here") == "nothing here"


def test_verdicts_are_sorted_by_rank_with_unasked_parts_last():
    candidates = [
        part("waits"),
        part("mine", None, ""),
        part("refuses", None),
        part("low", Rank.FALLBACK),
        part("middle", Rank.GENERIC),
        part("best", Rank.SPECIFIC),
    ]
    choice = choose("trunk", candidates, REQUEST)
    assert (choice.component.name, choice.why) == ("best", "best says")
    assert order(choice) == ["best", "middle", "low", "mine", "refuses", "waits"]
    assert reason_of(choice, "mine") == "mine says"  # it was asked before the plugins


def test_verdicts_begin_with_the_chosen_part():
    kinds = ("gymnasium.spaces.space.Space",)
    candidates = [
        codec("any", Rank.SPECIFIC, kinds=kinds),
        codec("box", Rank.FALLBACK, kinds=("box",)),
    ]
    # Box is the nearer class.
    assert order(choose("preprocessor", candidates, REQUEST)) == ["box", "any"]


def test_program_comes_before_built_in_before_other_parts():
    program, other = part("mine", Rank.FALLBACK, ""), part("other", Rank.SPECIFIC)
    listed = part("fcnet", Rank.GENERIC, "rlcatalog-fcnet")
    assert choose("trunk", [other, listed, program], REQUEST).component is program
    assert choose("trunk", [other, listed], REQUEST).component is listed
    assert choose("trunk", [other], REQUEST).component is other
    for slot in ("memory", "head"):  # these stay empty rather than take a part that is not listed
        assert choose(slot, [other], REQUEST).component is None
        assert choose(slot, [other], REQUEST, prefer=["acme"]).component is other


def test_part_without_match_and_kinds_is_chosen_by_name_only():
    by_kind, by_match, by_name = (
        codec("kind", kinds=("box",)),
        codec("match", Rank.GENERIC),
        codec("name"),
    )
    assert choose("preprocessor", [by_name], REQUEST).component is None
    assert choose("preprocessor", [by_kind], REQUEST).component is by_kind
    assert choose("preprocessor", [by_match], REQUEST).component is by_match
    choice = choose("preprocessor", [by_kind, by_match], REQUEST, named=by_name)
    assert choice.component is by_name
    assert order(choice) == ["name", "kind", "match"]


def test_switch_selects_its_part_before_any_rank():
    switched, best = part("gru", switch="acme_on"), part("best", Rank.SPECIFIC)
    for value, chosen in ((True, switched), (0, switched), (False, best), (None, best)):
        request = Request(OBS, ACTION, {"acme_on": value, "b_on": True}, "torch")
        assert choose("trunk", [best, switched], request).component is chosen
    named = choose("trunk", [best, switched], Request(OBS, ACTION, {"acme_on": True}), named=best)
    assert named.component is best
    refuses = part("picky", None, switch="acme_on")
    with pytest.raises(NoMatchError, match=r"acme_on=True .*'picky'.* picky says"):
        choose("trunk", [refuses], Request(OBS, ACTION, {"acme_on": True}))


# --- who wins -------------------------------------------------------------------------------------


def test_nearest_space_class_wins_then_rank_then_preference():
    class Angle(gym.spaces.Box):
        pass

    angle = f"{Angle.__module__}.{Angle.__qualname__}"
    request = Request(SpaceInfo.read(Angle(-1, 1, (2,), np.float32)))
    near, box = (
        codec("near", Rank.FALLBACK, kinds=(angle,)),
        codec("box", Rank.SPECIFIC, kinds=("box",)),
    )
    anything = codec("anything", Rank.SPECIFIC)  # without kinds, it comes after any class
    assert choose("preprocessor", [anything, box, near], request).component is near
    assert choose("preprocessor", [anything, box], request).component is box
    assert choose("preprocessor", [anything], request).component is anything
    low, high = codec("low", Rank.GENERIC, "a"), codec("high", Rank.SPECIFIC, "b")
    assert choose("preprocessor", [low, high], REQUEST).component is high
    same = codec("same", Rank.SPECIFIC, "c")
    assert (
        choose("preprocessor", [low, high, same], REQUEST, prefer=["zeta", "c", "b"]).component
        is same
    )
    assert choose("preprocessor", [high, same], REQUEST, prefer=["b", "c"]).component is high


def test_part_wins_only_for_space_classes_of_its_package(monkeypatch):
    class Angle(gym.spaces.Box):
        __module__ = "acme.spaces"

    name = f"acme.spaces.{Angle.__qualname__}"
    request = Request(SpaceInfo.read(Angle(-1, 1, (2,), np.float32)))
    listed = codec("none", Rank.SPECIFIC, "rlcatalog-preprocessors", kinds=("box",))
    home = codec("home", kinds=(name,))
    # Of the same package, for a class of another one.
    also = codec("also", kinds=("gymnasium.spaces.box.Box",))
    foreign = Component(
        PreprocessorSpec("foreign", {"numpy": "emca.parts:C"}, "", kinds=(name,)), "emca", "1.0"
    )
    silent = codec("silent", Rank.SPECIFIC)  # of that package, without space classes
    assert choose("preprocessor", [listed, home], request).component is home
    for other in (also, foreign, silent):
        choice = choose("preprocessor", [listed, other], request)
        assert choice.component is listed
        assert "'none'" in reason_of(choice, other.name)


# --- reasons of the candidates that were not chosen -----------------------------------------------


def test_reasons_of_unasked_parts_show_how_to_choose_them():
    listed = part("fcnet", Rank.GENERIC, "rlcatalog-fcnet")
    asked, named = part("rank", Rank.GENERIC), part("name")
    switched = part("switch", Rank.GENERIC, switch="acme_on")
    built_in = part("visionnet", Rank.GENERIC, "rlcatalog-visionnet")
    unasked = [asked, named, switched, part("off", switch="acme_on"), built_in]
    choice = choose("trunk", [*unasked, listed], REQUEST, named=listed)
    ways = {c.name: answer.why.partition("; to choose it: ")[2] for c, answer in choice.verdicts}
    prefer = " or RLCATALOG_PREFER_PLUGINS=acme"
    assert ways == {
        "fcnet": "",
        "rank": f"custom_model='acme/rank'{prefer}",
        "name": "custom_model='acme/name'",
        "switch": f"acme_on=True{prefer}",
        "off": "acme_on=True",
        "visionnet": "",
    }
    for name in ("rank", "switch", "visionnet"):
        assert "'fcnet'" in reason_of(choice, name)
    assert "acme_on" in reason_of(choice, "off").partition(";")[0]
    assert "name" in reason_of(choice, "name").partition(";")[0]


def test_reason_in_an_empty_slot_names_no_other_part():
    loose = part("loose", Rank.GENERIC, slot="memory")
    lstm = part("lstm", slot="memory", switch="use_lstm", distribution="rlcatalog-lstm")
    for named in (None, lstm):
        text = reason_of(choose("memory", [loose, lstm], REQUEST, named=named), "loose")
        assert "lstm" not in text
        assert "custom_model='acme/loose' or RLCATALOG_PREFER_PLUGINS=acme" in text
    codec_text = reason_of(
        choose(
            "preprocessor", [codec("x", Rank.GENERIC)], REQUEST, named=codec("none", kinds=("box",))
        ),
        "x",
    )
    assert "custom_preprocessor='acme/x'" in codec_text


# --- one candidate's answer -----------------------------------------------------------------------


def test_part_without_code_for_the_framework_does_not_match():
    torch_only, numpy = part("net", Rank.GENERIC), codec("codec", Rank.GENERIC)
    fits = Match(Rank.GENERIC, "net says")
    assert verdict(torch_only, Request(OBS, framework="torch")) == fits
    assert verdict(torch_only, Request(OBS)) == fits  # any framework will do
    refused = verdict(torch_only, Request(OBS, framework="tf"))
    assert refused.rank is None
    assert "'tf'" in refused.why
    # It needs no framework.
    assert verdict(numpy, Request(OBS, framework="tf")).rank is Rank.GENERIC
    torch_only.extensions["tf"] = [part("net")]  # another package has the code
    assert verdict(torch_only, Request(OBS, framework="tf")) == fits


@pytest.mark.parametrize(
    "answer",
    [
        None,
        (Rank.GENERIC, "fits"),
        Match(7, "fits"),
        Match(2.0, "fits"),
        Match("GENERIC", "fits"),
        Match(None, None),
        Match(Rank.GENERIC, 3),
        type("Mine", (Match,), {})(Rank.GENERIC, "fits"),
    ],
    ids=repr,
)
def test_match_function_without_a_match_names_the_part(answer):
    wrong = Component(
        ModelSpec("net", {"torch": "m:C"}, "", match=lambda request: answer), "acme", "1.0"
    )
    with pytest.raises(PartError, match=r"model 'net' \(acme 1\.0\): its match function returned"):
        verdict(wrong, REQUEST)


def test_rank_may_be_given_as_number():
    right = Component(
        ModelSpec("net", {"torch": "m:C"}, "", match=lambda request: Match(2, "fits")),
        "acme",
        "1.0",
    )
    assert verdict(right, REQUEST).rank is Rank.GENERIC


# --- errors ---------------------------------------------------------------------------------------


def test_two_switches_error_says_what_to_turn_off():
    gru, s4 = part("gru", switch="gru_on"), part("s4", switch="s4_on", distribution="zeta")
    request = Request(OBS, ACTION, {"gru_on": True, "s4_on": True}, "torch")
    assert "Remove one of gru_on and s4_on from the config" in tie(
        "memory", gru, s4, request=request
    )
    again = part("s5", switch="gru_on", distribution="zeta")
    text = tie("memory", gru, again, request=request)
    assert "RLCATALOG_DISABLE_PLUGINS=zeta" in text
    assert "Remove one of" not in text
    text = tie("memory", gru, part("s5", switch="gru_on", distribution=""), request=request)
    assert "RLCATALOG_DISABLE_PLUGINS=acme" in text
    assert "PLUGINS=." not in text  # the program's part has no package to name
    text = tie("memory", gru, part("gru2", switch="gru_on"), request=request)
    assert "RLCATALOG" not in text
    assert "switch" in text.rpartition(". ")[2]


def test_tie_error_names_parts_rank_and_options():
    a, b, c = (part(name, Rank.SPECIFIC, name) for name in "abc")
    text = tie("trunk", a, b)
    for piece in (
        "'a' (a 1.0: a says)",
        "'b' (b 1.0: b says)",
        "Box(3,) float32",
        "SPECIFIC",
        "custom_model='a/a'",
        "RLCATALOG_PREFER_PLUGINS=a",
        "RLCATALOG_DISABLE_PLUGINS=b",
    ):
        assert piece in text
    text = tie("trunk", a, b, c)
    assert "RLCATALOG_PREFER_PLUGINS=a" in text
    assert "RLCATALOG_DISABLE_PLUGINS" not in text  # one of the other two would still tie
    text = tie("trunk", part("x", Rank.GENERIC), part("y", Rank.GENERIC))
    assert "GENERIC" in text
    assert "custom_model='acme/x'" in text
    assert "RLCATALOG" not in text  # one package has both
    text = tie(
        "trunk", part("x", Rank.GENERIC), part("y", Rank.GENERIC), part("z", Rank.GENERIC, "zeta")
    )
    assert "RLCATALOG_PREFER_PLUGINS=zeta" in text


@pytest.mark.parametrize(
    ("slot", "make", "obs", "action", "config", "way"),
    [
        ("preprocessor", codec, "obs", "action", {}, "custom_preprocessor='acme/x'"),
        # Parts of an observation have no key.
        ("preprocessor", codec, "obs['a']", "action", {}, None),
        # The key is taken.
        ("preprocessor", codec, "obs", "action", {"custom_preprocessor": "y"}, None),
        ("memory", part, "obs", "action", {"custom_model": "fcnet"}, None),
        ("memory", part, "obs", "action['a']", {}, "custom_model='acme/x'"),
        ("action_dist", dist, "obs", "action", {}, "custom_action_dist='acme/x'"),
        (
            "action_dist",
            dist,
            "obs['a']",
            "action",
            {"custom_action_dist": "y"},
            "custom_action_dist='acme/x'",
        ),
        (
            "action_dist",
            dist,
            "obs",
            "action['a']",
            {},
            "custom_action_dist={\"action['a']\": 'acme/x'}",
        ),
        ("action_dist", dist, "obs", None, {}, "custom_action_dist={'obs': 'acme/x'}"),
    ],
)
def test_tie_error_names_the_config_key_if_there_is_one(slot, make, obs, action, config, way):
    request = Request(
        SpaceInfo.read(BOX, obs),
        action and SpaceInfo.read(gym.spaces.Discrete(2), action),
        config,
        "torch",
    )
    candidates = [
        make(name, Rank.GENERIC, slot=slot) if make is part else make(name, Rank.GENERIC)
        for name in "xy"
    ]
    text = tie(slot, *candidates, request=request, prefer=["acme"])
    assert ("name one in the config" in text) == (way is not None)
    assert way is None or f"({way})" in text
    assert ": ." not in text  # no empty list of options
