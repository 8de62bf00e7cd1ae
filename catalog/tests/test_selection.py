"""The choice among the candidates of one slot: their order, the winner, and errors about ties."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rlcatalog import ActionDistSpec, Match, ModelSpec, PreprocessorSpec, Rank, Request, SpaceInfo
from rlcatalog.choice.selection import Choice, choose, match_of
from rlcatalog.errors import (
    AmbiguousChoiceError,
    NoMatchError,
    PartError,
    UnsupportedSpaceError,
)
from rlcatalog.plugins import Part

THREE_FEATURES = Box(-1, 1, (3,), np.float32)


def match_as(rank, why="fits"):
    """Return a match function that gives this answer to every request."""

    def match(request):
        return Match(rank, why)

    return match


def make_model(name, *, distribution="acme", **fields):
    return Part(ModelSpec(name, {"torch": "acme.parts:Net"}, "", **fields), distribution, "1.0")


def make_preprocessor(name, *, distribution="acme", target="acme.parts:Codec", **fields):
    return Part(PreprocessorSpec(name, {"numpy": target}, "", **fields), distribution, "1.0")


def make_dist(name, **fields):
    def size(action_space, config):
        return 2

    spec = ActionDistSpec(name, {"torch": "acme.parts:Dist"}, "", size=size, **fields)
    return Part(spec, "acme", "1.0")


def make_request(space=THREE_FEATURES, *, path="obs", action_path="action", config=None):
    action = None if action_path is None else SpaceInfo.read(Discrete(2), action_path)
    return Request(SpaceInfo.read(space, path), action, config or {}, "torch")


REQUEST = make_request()


def names_of(verdicts):
    return [part.name for part, _ in verdicts]


def reason_of(choice, name):
    """Return the reason that a choice gives for a candidate."""
    [why] = [match.why for part, match in choice.verdicts if part.name == name]
    return why


# --- the order of the candidates ------------------------------------------------------------------


def test_verdicts_are_sorted_by_rank_with_unasked_parts_last():
    candidates = [
        make_model("only-by-name"),
        make_model("refuses", match=match_as(None)),
        make_model("low", match=match_as(Rank.FALLBACK)),
        make_model("middle", match=match_as(Rank.GENERIC)),
        make_model("best", match=match_as(Rank.SPECIFIC, "fits best")),
    ]

    choice = choose("trunk", candidates, make_request())

    assert choice.part.name == "best"
    assert choice.why == "fits best"
    assert names_of(choice.verdicts) == ["best", "middle", "low", "refuses", "only-by-name"]


def test_registered_part_that_refuses_keeps_its_reason():
    registered = make_model("mine", match=match_as(None, "too small"), distribution="")
    best = make_model("best", match=match_as(Rank.SPECIFIC))

    choice = choose("trunk", [best, registered], make_request())

    assert choice.part is best
    # It was asked before the parts of packages.
    assert reason_of(choice, "mine") == "too small"


def test_verdicts_begin_with_the_chosen_part():
    any_space = make_preprocessor(
        "any", match=match_as(Rank.SPECIFIC), kinds=("gymnasium.spaces.space.Space",)
    )
    box = make_preprocessor("box", match=match_as(Rank.FALLBACK), kinds=("box",))

    choice = choose("preprocessor", [any_space, box], make_request(Box(-1, 1, (3,))))

    # Although its rank is lower, "box" is for the nearer class.
    assert names_of(choice.verdicts) == ["box", "any"]


def test_reasons_of_a_choice_list_each_candidate():
    verdicts = (
        (make_model("a"), Match(None, "too small")),
        (make_model("b"), Match(None, "no image")),
    )

    assert Choice(None, "", verdicts).reasons() == "a: too small; b: no image"


def test_reasons_of_a_choice_without_candidates_are_the_default():
    assert Choice(None, "").reasons("nothing here") == "nothing here"


# --- the winner -----------------------------------------------------------------------------------


@pytest.fixture
def registered():
    return make_model("mine", match=match_as(Rank.FALLBACK), distribution="")


@pytest.fixture
def built_in():
    return make_model("fcnet", match=match_as(Rank.GENERIC), distribution="rlcatalog-fcnet")


@pytest.fixture
def third_party():
    return make_model("net", match=match_as(Rank.SPECIFIC), distribution="acme")


def test_registered_part_wins_at_the_lowest_rank(registered, built_in, third_party):
    choice = choose("trunk", [third_party, built_in, registered], REQUEST)

    assert choice.part is registered


def test_third_party_part_fills_the_trunk_if_nothing_else_fits(third_party):
    assert choose("trunk", [third_party], REQUEST).part is third_party


@pytest.mark.parametrize("slot", ["memory", "head"])
def test_third_party_part_fills_optional_slot_if_preferred(slot, third_party):
    assert choose(slot, [third_party], REQUEST).part is None
    assert choose(slot, [third_party], REQUEST, prefer=["acme"]).part is third_party


@pytest.mark.parametrize(
    ("fields", "is_chosen"),
    [
        pytest.param({}, False, id="neither"),
        pytest.param({"kinds": ("box",)}, True, id="kinds"),
        pytest.param({"match": match_as(Rank.GENERIC)}, True, id="match"),
    ],
)
def test_part_without_match_and_kinds_is_never_chosen(fields, is_chosen):
    part = make_preprocessor("codec", **fields)

    choice = choose("preprocessor", [part], make_request(THREE_FEATURES))

    assert (choice.part is part) == is_chosen


def test_named_part_is_chosen_before_any_other():
    named = make_preprocessor("named")
    by_kind = make_preprocessor("kind", kinds=("box",))
    by_match = make_preprocessor("match", match=match_as(Rank.GENERIC))

    choice = choose("preprocessor", [by_kind, by_match], make_request(THREE_FEATURES), named=named)

    assert choice.part is named
    assert names_of(choice.verdicts) == ["named", "kind", "match"]


@pytest.mark.parametrize(
    ("slot", "named", "error_class", "reason"),
    [
        pytest.param(
            "trunk",
            make_model("net", match=match_as(None, "takes images")),
            NoMatchError,
            "takes images",
            id="trunk",
        ),
        pytest.param(
            "memory",
            make_model("net", slot="memory", match=match_as(None, "takes images")),
            NoMatchError,
            "takes images",
            id="memory",
        ),
        pytest.param(
            "preprocessor",
            make_preprocessor("net", kinds=("discrete",)),
            UnsupportedSpaceError,
            "takes discrete, not box",
            id="codec of another kind",
        ),
        pytest.param(
            "action_dist",
            make_dist("net", match=match_as(None, "takes Boxes")),
            UnsupportedSpaceError,
            "takes Boxes",
            id="distribution",
        ),
    ],
)
def test_named_part_that_refuses_is_an_error(slot, named, error_class, reason):
    fitting = make_model("fcnet", match=match_as(Rank.GENERIC))

    with pytest.raises(error_class, match=rf"names the .* 'net' \(acme 1\.0\).*: {reason}\. Name"):
        choose(slot, [fitting, named], REQUEST, named=named)


def match_if_named(request):
    if request.is_named:
        return Match(Rank.FALLBACK, "works")
    return Match(None, "leaves this to others")


def test_match_of_named_part_knows_that_it_is_named():
    part = make_model("net", match=match_if_named)

    assert choose("trunk", [part], REQUEST).part is None
    choice = choose("trunk", [part], REQUEST, named=part)

    assert choice.part is part
    assert reason_of(choice, "net") == "works"


def match_switch(request):
    if not request.config["acme_on"]:
        return Match(None, "acme_on is not set")
    if request.obs.kind != "box":
        return Match(None, "takes a Box")
    return Match(Rank.SPECIFIC, "acme_on is set")


def test_name_replaces_the_switch_of_a_part():
    part = make_model("head", slot="head", switch="acme_on", match=match_switch)
    of_box = make_request(config={"acme_on": False})
    of_discrete = make_request(Discrete(2), config={"acme_on": False})

    choice = choose("head", [part], of_box, named=part)

    assert choice.part is part
    assert reason_of(choice, "head") == "named in the config"
    with pytest.raises(NoMatchError, match="takes a Box"):
        choose("head", [part], of_discrete, named=part)


def test_name_replaces_the_switch_of_a_part_for_a_kind_of_space():
    part = make_model("memory", slot="memory", switch="acme_on", kinds=("box",))
    of_box = make_request(config={"acme_on": False})
    of_discrete = make_request(Discrete(2), config={"acme_on": False})

    assert choose("memory", [part], of_box, named=part).part is part
    with pytest.raises(NoMatchError, match="takes box, not discrete"):
        choose("memory", [part], of_discrete, named=part)


def test_named_part_of_a_repeated_lookup_does_not_have_to_match():
    part = make_model("net", match=match_as(None, "takes images"))

    assert choose("trunk", [], REQUEST.replace(is_repeated=True), named=part).part is part


def test_named_part_without_code_is_left_to_the_lookup():
    part = make_model("net", match=match_as(Rank.GENERIC))  # in PyTorch

    assert choose("trunk", [], REQUEST.replace(framework="tf"), named=part).part is part


# --- switches -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "chosen"),
    [
        pytest.param(True, "gru", id="on"),
        pytest.param(0, "gru", id="zero-is-on"),
        pytest.param(False, "best", id="off"),
        pytest.param(None, "best", id="not-set"),
    ],
)
def test_switch_selects_its_part_before_any_rank(value, chosen):
    gru = make_model("gru", switch="acme_on")
    best = make_model("best", match=match_as(Rank.SPECIFIC))
    request = make_request(config={"acme_on": value, "other_key": True})

    assert choose("trunk", [best, gru], request).part.name == chosen


# --- classes of spaces, ranks and preferences -----------------------------------------------------


class Angle(Box):
    """A subclass of Box."""


@pytest.mark.parametrize(
    ("candidates", "winner"),
    [
        (["without-class", "box", "angle"], "angle"),
        (["without-class", "box"], "box"),
        (["without-class"], "without-class"),
    ],
)
def test_nearest_space_class_wins_at_any_rank(candidates, winner):
    best = match_as(Rank.SPECIFIC)
    angle_class = f"{__name__}.Angle"  # a subclass of Box
    parts = {
        "angle": make_preprocessor("angle", match=match_as(Rank.FALLBACK), kinds=(angle_class,)),
        "box": make_preprocessor("box", match=best, kinds=("box",)),
        "without-class": make_preprocessor("without-class", match=best),  # for any space
    }
    request = make_request(Angle(-1, 1, (2,)))

    choice = choose("preprocessor", [parts[name] for name in candidates], request)

    assert choice.part.name == winner


def make_preprocessor_of(distribution, rank):
    return make_preprocessor("codec", match=match_as(rank), distribution=distribution)


def test_better_rank_wins_for_the_same_space_class():
    low = make_preprocessor_of("acme", Rank.GENERIC)
    high = make_preprocessor_of("emca", Rank.SPECIFIC)

    assert choose("preprocessor", [low, high], REQUEST).part is high


@pytest.mark.parametrize(
    ("prefer", "winner"),
    [
        pytest.param(["acme", "emca"], "acme", id="acme-before-emca"),
        pytest.param(["emca", "acme"], "emca", id="emca-before-acme"),
        pytest.param(["not-installed", "emca", "acme"], "emca", id="first-one-not-installed"),
    ],
)
def test_first_preferred_package_wins_a_tie_of_ranks(prefer, winner):
    candidates = [
        make_preprocessor_of("low-rank", Rank.GENERIC),
        make_preprocessor_of("acme", Rank.SPECIFIC),
        make_preprocessor_of("emca", Rank.SPECIFIC),
    ]

    choice = choose("preprocessor", candidates, REQUEST, prefer=prefer)

    assert choice.part.distribution == winner


class AcmeAngle(Box):
    """A subclass of Box that belongs to package acme."""

    __module__ = "acme.spaces"


ACME_ANGLE_KIND = "acme.spaces.AcmeAngle"


@pytest.fixture
def built_in_for_boxes():
    return make_preprocessor(
        "none",
        match=match_as(Rank.SPECIFIC),
        kinds=("box",),
        distribution="rlcatalog-preprocessors",
    )


@pytest.mark.parametrize(
    "third_party",
    [
        pytest.param(
            make_preprocessor("codec", target="acme.parts:C", kinds=("gymnasium.spaces.box.Box",)),
            id="same-package-for-another-class",
        ),
        pytest.param(
            make_preprocessor(
                "codec", target="emca.parts:C", kinds=(ACME_ANGLE_KIND,), distribution="emca"
            ),
            id="another-package",
        ),
        pytest.param(
            make_preprocessor("codec", target="acme.parts:C", match=match_as(Rank.SPECIFIC)),
            id="same-package-without-class",
        ),
    ],
)
def test_other_parts_do_not_win_a_space_class(built_in_for_boxes, third_party):
    request = make_request(AcmeAngle(-1, 1, (2,), np.float32))

    choice = choose("preprocessor", [built_in_for_boxes, third_party], request)

    assert choice.part is built_in_for_boxes
    assert "'none'" in reason_of(choice, "codec")  # the part that comes first


# --- reasons of the candidates that were not asked ------------------------------------------------


def reason_beside_fcnet(part):
    """Return why a trunk was not asked, if the config names fcnet."""
    fcnet = make_model("fcnet", match=match_as(Rank.GENERIC), distribution="rlcatalog-fcnet")
    return reason_of(choose("trunk", [part, fcnet], REQUEST, named=fcnet), part.name)


def test_reason_names_the_part_that_comes_first():
    part = make_model("net", match=match_as(Rank.GENERIC))

    assert reason_beside_fcnet(part) == (
        "not considered: 'fcnet' comes first; to choose it: custom_model='acme/net'"
        " or RLCATALOG_PREFER_PLUGINS=acme"
    )


def test_reason_of_part_without_match_offers_its_name_only():
    part = make_model("net")

    assert reason_beside_fcnet(part) == "only chosen by name; to choose it: custom_model='acme/net'"


def test_reason_of_switch_with_match_offers_the_switch():
    part = make_model("net", match=match_as(Rank.GENERIC), switch="acme_on")

    assert reason_beside_fcnet(part) == (
        "not considered: 'fcnet' comes first; to choose it: acme_on=True"
        " or RLCATALOG_PREFER_PLUGINS=acme"
    )


def test_reason_of_switch_without_match_offers_the_switch_only():
    part = make_model("net", switch="acme_on")

    assert reason_beside_fcnet(part) == "acme_on is not set; to choose it: acme_on=True"


def test_reason_of_a_set_switch_is_that_another_part_is_named():
    part = make_model("net", match=match_as(None), switch="acme_on")
    fcnet = make_model("fcnet", match=match_as(Rank.GENERIC), distribution="rlcatalog-fcnet")
    request = make_request(config={"acme_on": True})

    choice = choose("trunk", [part, fcnet], request, named=fcnet, named_by="custom_model")

    assert reason_of(choice, "net") == "acme_on is set, but the config names 'fcnet'"


def test_saved_choice_is_kept_beside_the_switch_of_another():
    part = make_model("net", match=match_as(Rank.GENERIC), switch="acme_on")
    fcnet = make_model("fcnet", match=match_as(Rank.GENERIC), distribution="rlcatalog-fcnet")
    request = make_request(config={"acme_on": True}).replace(is_repeated=True)

    choice = choose("trunk", [part, fcnet], request, named=fcnet, named_by="custom_model")

    assert choice.part is fcnet


def test_reason_of_built_in_part_offers_nothing():
    part = make_model("visionnet", match=match_as(Rank.GENERIC), distribution="rlcatalog-visionnet")

    assert reason_beside_fcnet(part) == "not considered: 'fcnet' comes first"


@pytest.mark.parametrize("is_lstm_named", [False, True], ids=["empty-slot", "lstm-named"])
def test_reason_in_optional_slot_names_no_other_part(is_lstm_named):
    gru = make_model("gru", match=match_as(Rank.GENERIC), slot="memory")
    lstm = make_model("lstm", slot="memory", switch="use_lstm", distribution="rlcatalog-lstm")
    named = lstm if is_lstm_named else None

    reason = reason_of(choose("memory", [gru, lstm], REQUEST, named=named), "gru")

    assert "lstm" not in reason
    assert "memory='acme/gru' or RLCATALOG_PREFER_PLUGINS=acme" in reason


def test_reason_of_preprocessor_offers_its_key():
    part = make_preprocessor("codec", match=match_as(Rank.GENERIC))
    named = make_preprocessor("none", kinds=("box",))

    reason = reason_of(choose("preprocessor", [part], REQUEST, named=named), "codec")

    assert "custom_preprocessor='acme/codec'" in reason


# --- the answer of one candidate ------------------------------------------------------------------


@pytest.mark.parametrize(
    "framework", [pytest.param("torch", id="its-own"), pytest.param(None, id="any")]
)
def test_part_matches_for_a_framework_it_has_code_for(framework):
    part = make_model("net", match=match_as(Rank.GENERIC))  # its target is for PyTorch
    request = Request(SpaceInfo.read(THREE_FEATURES), framework=framework)

    assert match_of(part, request) == Match(Rank.GENERIC, "fits")


def test_part_does_not_match_for_another_framework():
    part = make_model("net", match=match_as(Rank.GENERIC))
    request = Request(SpaceInfo.read(THREE_FEATURES), framework="tf")

    answer = match_of(part, request)

    assert answer.rank is None
    assert "'tf'" in answer.why


def test_part_matches_if_another_package_has_the_code():
    part = make_model("net", match=match_as(Rank.GENERIC))
    part.extensions["tf"] = [make_model("net", distribution="acme-tf")]
    request = Request(SpaceInfo.read(THREE_FEATURES), framework="tf")

    assert match_of(part, request) == Match(Rank.GENERIC, "fits")


def test_preprocessor_matches_for_any_framework():
    part = make_preprocessor("codec", match=match_as(Rank.GENERIC))  # its target is for NumPy
    request = Request(SpaceInfo.read(THREE_FEATURES), framework="tf")

    assert match_of(part, request).rank is Rank.GENERIC


class SubclassOfMatch(Match):
    pass


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
        SubclassOfMatch(Rank.GENERIC, "fits"),
    ],
    ids=repr,
)
def test_match_function_without_a_match_names_the_part(answer):
    part = make_model("net", match=lambda request: answer)

    with pytest.raises(PartError, match="its match function returned") as caught:
        match_of(part, REQUEST)

    assert str(caught.value).startswith("model 'net' (acme 1.0): ")


def test_rank_may_be_given_as_number():
    part = make_model("net", match=match_as(2))

    assert match_of(part, REQUEST).rank is Rank.GENERIC  # its value is 2


# --- errors about two switches --------------------------------------------------------------------


def catch_tie(slot, *candidates, request=REQUEST, prefer=()):
    """Return the message of the error that the choice raises."""
    with pytest.raises(AmbiguousChoiceError) as caught:
        choose(slot, candidates, request, prefer=prefer)
    return str(caught.value)


def test_shared_switch_error_says_to_disable_a_package():
    gru = make_model("gru", switch="gru_on", distribution="acme")
    same_switch = make_model("s5", switch="gru_on", distribution="zeta")

    message = catch_tie("memory", gru, same_switch, request=make_request(config={"gru_on": True}))

    assert "RLCATALOG_DISABLE_PLUGINS=zeta" in message
    assert "Remove one of" not in message


def test_shared_switch_error_names_the_package_of_the_plugin():
    gru = make_model("gru", switch="gru_on", distribution="acme")
    registered = make_model("s5", switch="gru_on", distribution="")

    message = catch_tie("memory", gru, registered, request=make_request(config={"gru_on": True}))

    assert "RLCATALOG_DISABLE_PLUGINS=acme" in message
    # The registered part has no package that could be disabled.
    assert "PLUGINS=." not in message


def test_shared_switch_in_one_package_error_asks_for_another():
    gru = make_model("gru", switch="gru_on")
    same_package = make_model("gru2", switch="gru_on")

    message = catch_tie("memory", gru, same_package, request=make_request(config={"gru_on": True}))

    advice = message.rpartition(". ")[2]
    assert "switch" in advice
    assert "RLCATALOG" not in message


# --- errors about ties ----------------------------------------------------------------------------


def make_tied_model(name, distribution):
    return make_model(name, match=match_as(Rank.SPECIFIC), distribution=distribution)


def test_tie_error_names_parts_space_and_rank():
    first = make_model("a", match=match_as(Rank.SPECIFIC, "fits well"), distribution="acme")
    second = make_model("b", match=match_as(Rank.SPECIFIC, "fits, too"), distribution="emca")

    message = catch_tie("trunk", first, second)

    assert "'a' (acme 1.0: fits well)" in message
    assert "'b' (emca 1.0: fits, too)" in message
    assert "Box(3,) float32" in message
    assert "SPECIFIC" in message


def test_tie_of_two_packages_offers_name_and_both_packages():
    message = catch_tie("trunk", make_tied_model("a", "acme"), make_tied_model("b", "emca"))

    assert "custom_model='acme/a'" in message
    assert "RLCATALOG_PREFER_PLUGINS=acme" in message
    assert "RLCATALOG_DISABLE_PLUGINS=emca" in message


def test_tie_of_three_packages_does_not_offer_to_disable_one():
    parts = [make_tied_model(name, f"package-{name}") for name in "abc"]

    message = catch_tie("trunk", *parts)

    assert "RLCATALOG_PREFER_PLUGINS=package-a" in message
    # Without one of the packages, the other two would still tie.
    assert "RLCATALOG_DISABLE_PLUGINS" not in message


def test_tie_within_one_package_offers_a_name_only():
    message = catch_tie("trunk", make_tied_model("a", "acme"), make_tied_model("b", "acme"))

    assert "custom_model='acme/a'" in message
    assert "RLCATALOG" not in message


def test_tie_offers_the_package_that_has_only_one_part():
    parts = [
        make_tied_model("a", "acme"),
        make_tied_model("b", "acme"),
        make_tied_model("c", "zeta"),
    ]

    assert "RLCATALOG_PREFER_PLUGINS=zeta" in catch_tie("trunk", *parts)


def make_tied_parts(slot):
    """Return two parts for the slot, x and y of package acme, that match equally well."""
    match = match_as(Rank.GENERIC)
    if slot == "preprocessor":
        return [make_preprocessor(name, match=match) for name in "xy"]
    if slot == "action_dist":
        return [make_dist(name, match=match) for name in "xy"]
    return [make_model(name, match=match, slot=slot) for name in "xy"]


@pytest.mark.parametrize(
    ("slot", "request_fields", "key"),
    [
        pytest.param("preprocessor", {}, "custom_preprocessor='acme/x'", id="preprocessor"),
        pytest.param("memory", {}, "memory='acme/x'", id="memory"),
        pytest.param("action_dist", {}, "custom_action_dist='acme/x'", id="distribution"),
        pytest.param(
            "memory",
            {"action_path": "action['a']"},
            "memory='acme/x'",
            id="memory-for-part-of-action",
        ),
        pytest.param(
            "action_dist",
            {"path": "obs['a']", "config": {"custom_action_dist": "y"}},
            "custom_action_dist='acme/x'",
            id="distribution-for-part-of-observation",
        ),
        pytest.param(
            "action_dist",
            {"action_path": "action['a']"},
            "custom_action_dist={\"action['a']\": 'acme/x'}",
            id="distribution-of-part-of-action",
        ),
        pytest.param(
            "action_dist",
            {"action_path": None},
            "custom_action_dist={'obs': 'acme/x'}",
            id="distribution-of-observation",
        ),
    ],
)
def test_tie_error_names_the_config_key(slot, request_fields, key):
    # Package acme is preferred, or it would be no candidate for the memory.
    message = catch_tie(
        slot, *make_tied_parts(slot), request=make_request(**request_fields), prefer=["acme"]
    )

    assert f"name one in the config ({key})" in message
    assert ": ." not in message  # an empty list of options


@pytest.mark.parametrize(
    ("slot", "request_fields"),
    [
        pytest.param("preprocessor", {"path": "obs['a']"}, id="part-of-observation"),
        pytest.param(
            "preprocessor", {"config": {"custom_preprocessor": "y"}}, id="preprocessor-key-is-taken"
        ),
        pytest.param("memory", {"config": {"memory": "lstm"}}, id="memory-key-is-taken"),
    ],
)
def test_tie_error_names_no_config_key_if_there_is_none(slot, request_fields):
    # Package acme is preferred, or it would be no candidate for the memory.
    message = catch_tie(
        slot, *make_tied_parts(slot), request=make_request(**request_fields), prefer=["acme"]
    )

    assert "name one in the config" not in message
    assert ": ." not in message  # an empty list of options
