"""Candidates of each slot: names, repeated choices, parts of a space, claims of a head, and
unusable packages.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Text, Tuple

from rlcatalog import (
    ActionDistSpec,
    EnvWrapperSpec,
    Filter,
    FilterSpec,
    Match,
    ModelSpec,
    PreprocessorSpec,
    Rank,
    Request,
    SpaceInfo,
)
from rlcatalog.choice import Pins
from rlcatalog.choice.slots import Slots, collect_trunks, slot_of, unclaimed_by
from rlcatalog.errors import MissingPluginError, NoMatchError, PartError, UnsupportedSpaceError
from rlcatalog.plugins import Component
from rlcatalog.plugins.discovery import PluginRecord
from rlcatalog.plugins.registry import Registry
from rlcatalog_testing import isolated_catalog

BOX, TWO = Box(-1, 1, (3,), np.float32), Discrete(2)
TARGET = {PreprocessorSpec: "numpy", EnvWrapperSpec: "numpy", FilterSpec: "numpy"}


def part(name, rank=..., spec=ModelSpec, distribution="acme", **fields):
    if rank is not ...:
        fields["match"] = lambda request: Match(rank, f"{name} says")
    if spec is ActionDistSpec:
        fields["size"] = lambda action, config: 2
    return Component(
        spec(name, {TARGET.get(spec, "torch"): "m:C"}, "", **fields), distribution, "1.0"
    )


def slots_of(*components, prefer=(), **packages):
    """Slots of these components, and of packages without parts: name → status."""
    names = {name.replace("_", "-"): status for name, status in packages.items()}
    return Slots(
        Registry(
            [PluginRecord(n, n, "1.0", status=s) for n, s in names.items()], components, {}, {}
        ),
        prefer,
    )


def request_for(space, path="obs", **fields):
    fields = {"config": {}, "framework": "torch", **fields}
    return Request(SpaceInfo.read(space, path), SpaceInfo.read(TWO, "action"), **fields)


def name_of(choice):
    return choice.component and choice.component.name


# --- candidates and names -------------------------------------------------------------------------


def test_wrapper_candidates_are_trusted_or_switched_on():
    wrappers = [
        part("mine", spec=EnvWrapperSpec, distribution=""),
        part("atari", spec=EnvWrapperSpec, distribution="rlcatalog-atari"),
        part("liked", spec=EnvWrapperSpec, distribution="liked"),
        part("switched", spec=EnvWrapperSpec, switch="acme_on"),
        part("other", Rank.SPECIFIC, spec=EnvWrapperSpec),
    ]
    slots = slots_of(*wrappers, prefer=["liked"])
    assert {c.name for c in slots.env_wrappers({})} == {"mine", "atari", "liked"}
    assert {c.name for c in slots.env_wrappers({"acme_on": True})} == {
        "mine",
        "atari",
        "liked",
        "switched",
    }


def test_named_takes_a_name_or_a_class():
    class Half(Filter):
        pass

    known = part("half", spec=FilterSpec)
    slots = slots_of(known)
    assert slots.named("filter", "acme/half") is known
    assert slots.named("filter", None) is None
    assert slots.named("filter", Half).objects == {"numpy": Half}


def test_repeat_finds_a_part_by_address_without_its_match():
    net, half = part("net", None), part("half", None, FilterSpec)
    slots = slots_of(net, half)
    for slot, component in (("trunk", net), ("memory", net), ("filter", half)):
        again = slots.repeat(slot, component.address)
        assert again.component is component
        assert [(c, answer.rank) for c, answer in again.verdicts] == [(component, None)]


def test_slot_of_a_part_is_its_slot_or_kind():
    assert [slot_of(part("m", slot=slot)) for slot in ("trunk", "memory", "head")] == [
        "trunk",
        "memory",
        "head",
    ]
    assert slot_of(part("f", spec=FilterSpec)) == "filter"


# --- preprocessors and filters --------------------------------------------------------------------

BOXES, ANY = (
    part("boxes", Rank.GENERIC, PreprocessorSpec, kinds=("box",)),
    part("any", Rank.FALLBACK, PreprocessorSpec),
)
DICTS = part("dicts", Rank.GENERIC, PreprocessorSpec, kinds=("dict",))


def test_nested_spaces_ask_only_preprocessors_of_their_class():
    slots = slots_of(BOXES, ANY, DICTS)
    root, inner = (slots.preprocessor(request_for(BOX, path), None) for path in ("obs", "obs['a']"))
    assert name_of(root) == name_of(inner) == "boxes"
    assert {c.name for c, _ in root.verdicts} == {"boxes", "any", "dicts"}
    assert {c.name for c, _ in inner.verdicts} == {"boxes", "any"}
    assert name_of(slots.preprocessor(request_for(TWO, "obs['b']"), None)) == "any"
    assert name_of(slots.preprocessor(request_for(BOX, "obs['c']"), None)) == "boxes"


def test_custom_preprocessor_is_for_the_whole_observation():
    slots, config = slots_of(BOXES, ANY), {"custom_preprocessor": "acme/any"}
    assert name_of(slots.preprocessor(request_for(BOX, config=config), None)) == "any"
    assert name_of(slots.preprocessor(request_for(BOX, "obs['a']", config=config), None)) == "boxes"


def test_pins_apply_to_preprocessors_and_filters():
    half, double = part("half", spec=FilterSpec), part("double", spec=FilterSpec)
    slots, config = slots_of(BOXES, ANY, half, double), {"observation_filter": "acme/half"}
    pins = Pins({"filter": "acme/double"}, {"obs['a']": "acme/any"})
    assert name_of(slots.preprocessor(request_for(BOX, "obs['a']"), pins)) == "any"
    assert name_of(slots.preprocessor(request_for(BOX, "obs['b']"), pins)) == "boxes"
    request = request_for(BOX, config=config)
    assert [name_of(slots.filter(request, p)) for p in (None, pins, Pins())] == [
        "half",
        "double",
        "half",
    ]
    assert (
        name_of(slots.filter(request_for(BOX, config={"observation_filter": "NoFilter"}), None))
        is None
    )


def test_space_without_preprocessor_error_names_first_leaf():
    listed = {"rlcatalog_preprocessors": "loaded"}
    deep = Dict({"a": BOX, "b": Dict({"t": Text(3)})})
    with pytest.raises(UnsupportedSpaceError, match=r"^obs\['b'\]\['t'\]: .*Installed: boxes"):
        slots_of(BOXES, **listed).preprocessor(request_for(deep), None)
    # Each leaf has one, so the whole is at fault.
    with pytest.raises(UnsupportedSpaceError, match=r"^obs: "):
        slots_of(BOXES, **listed).preprocessor(request_for(Dict({"a": Tuple([BOX])})), None)
    with pytest.raises(UnsupportedSpaceError, match=r"^obs: .*Text\(.*Installed: none"):
        slots_of(**listed).preprocessor(request_for(Text(3)), None)
    with pytest.raises(MissingPluginError, match=r"^obs\['t'\]: .*rlcatalog-preprocessors"):
        slots_of(BOXES).preprocessor(request_for(Dict({"t": Text(3)})), None)


def test_missing_preprocessor_error_hints_at_a_similar_class():
    class Angle(gym.Space):
        pass

    kind = f"{Angle.__module__}.{Angle.__qualname__}"
    near = part("near", spec=PreprocessorSpec, kinds=("emca.spaces.Angle",))
    far = part("far", spec=PreprocessorSpec, kinds=("emca.spaces.Tangle", "text"))
    with pytest.raises(UnsupportedSpaceError) as raised:
        slots_of(near, far).preprocessor(request_for(Angle()), None)
    text = str(raised.value)
    assert repr(kind) in text
    assert "near is for 'emca.spaces.Angle'" in text
    assert "Tangle" not in text
    with pytest.raises(UnsupportedSpaceError) as raised:  # of a kind that the kernel knows
        slots_of(near, rlcatalog_preprocessors="loaded").preprocessor(request_for(Text(3)), None)
    assert "is for" not in str(raised.value)


# --- distributions --------------------------------------------------------------------------------


def test_distribution_does_not_wrap_itself():
    outer, inner = (
        part("outer", Rank.SPECIFIC, ActionDistSpec),
        part("inner", Rank.GENERIC, ActionDistSpec),
    )
    slots = slots_of(outer, inner)
    assert name_of(slots.action_dist(request_for(BOX), None)) == "outer"
    assert name_of(slots.action_dist(request_for(BOX), None, outer)) == "inner"


def test_missing_distribution_error_lists_every_answer():
    refuses = part("refuses", None, ActionDistSpec)
    with pytest.raises(
        UnsupportedSpaceError, match=r"^action: .*Discrete\(2\) \(refuses: refuses says\)"
    ):
        slots_of(refuses, rlcatalog_categorical="loaded").action_dist(request_for(BOX), None)
    with pytest.raises(
        MissingPluginError, match=r"^action: .*Discrete\(2\).*rlcatalog-categorical"
    ):
        slots_of(refuses).action_dist(request_for(BOX), None)


# --- models ---------------------------------------------------------------------------------------


def test_model_parts_are_chosen_slot_by_slot():
    net, deep = part("net", Rank.GENERIC), part("deep")
    gru, mask = (
        part("gru", slot="memory"),
        part("mask", Rank.GENERIC, slot="head", distribution="liked"),
    )
    slots = slots_of(net, deep, gru, mask, prefer=["liked"])

    def chosen(custom=None, pins=None):
        choices, unclaimed = slots.model(request_for(BOX), custom, pins)
        assert unclaimed is None
        return {slot: name_of(choice) for slot, choice in choices.items()}

    assert list(chosen()) == ["trunk", "memory", "head"]
    assert chosen() == {"trunk": "net", "memory": None, "head": "mask"}
    assert chosen(deep) == {"trunk": "deep", "memory": None, "head": "mask"}
    assert chosen(gru) == {"trunk": "net", "memory": "gru", "head": "mask"}
    pins = Pins({"trunk": "acme/deep"})  # the others were empty
    assert chosen(pins=pins) == {"trunk": "deep", "memory": None, "head": None}
    # Whatever the name means now.
    assert chosen(net, pins) == {"trunk": "deep", "memory": None, "head": None}
    assert chosen(gru, pins) == {"trunk": "deep", "memory": "gru", "head": None}


def test_observation_without_a_trunk_is_rejected():
    refuses = part("refuses", None)
    for slots, error in (
        (slots_of(refuses, rlcatalog_fcnet="loaded"), NoMatchError),
        (slots_of(refuses), MissingPluginError),
    ):
        with pytest.raises(error, match=r"refuses says|rlcatalog-fcnet"):
            slots.model(request_for(BOX), None, None)
    with pytest.raises(NoMatchError, match=r"^obs\['a'\]: .*refuses says"):
        slots_of(refuses).trunk(request_for(BOX, "obs['a']"), None)


def test_collect_trunks_uses_the_innermost_context():
    net, deep = part("net", Rank.GENERIC), part("deep")
    slots, request = slots_of(net, deep), request_for(BOX)
    with collect_trunks() as outer:
        with collect_trunks() as inner:
            assert slots.trunk(request, "acme/deep") is deep
        assert slots.trunk(request, None) is net
    slots.trunk(request, None)
    assert (inner, outer) == ([deep], [net])


# --- packages that cannot be used -----------------------------------------------------------------


def test_failed_package_is_an_error_if_it_would_be_asked():
    net, request = part("net", Rank.GENERIC), request_for(BOX, encoded_shape=(3,))
    image = request_for(Box(0, 255, (8, 8, 3), np.uint8), encoded_shape=(8, 8, 3))
    for status in ("failed", "incompatible"):
        slots = slots_of(net, rlcatalog_visionnet=status)
        assert slots.trunk(request, None) is net
        assert slots.trunk(request_for(BOX), None) is net  # its shape is not known yet
        assert slots.trunk(image, "acme/net") is net  # a name asks for nothing else
        with pytest.raises(MissingPluginError, match=r"^the trunk .*rlcatalog-visionnet"):
            slots.trunk(image, None)
    for slots in (slots_of(net), slots_of(net, rlcatalog_visionnet="disabled")):
        assert slots.trunk(image, None) is net
    inner = request_for(BOX, "obs['a']", encoded_shape=(3,))
    with pytest.raises(MissingPluginError, match=r"^obs\['a'\]: the trunk .*rlcatalog-fcnet"):
        slots_of(net, rlcatalog_fcnet="failed").trunk(inner, None)


def test_failed_complex_input_is_an_error_for_nested_spaces_only():
    net, flat = part("net", Rank.GENERIC), request_for(BOX, encoded_shape=(3,))
    parts = request_for(Dict({"a": BOX}), encoded_shape=(3,))
    slots = slots_of(net, rlcatalog_complex_input="failed")
    assert slots.trunk(flat, None) is net
    with pytest.raises(MissingPluginError, match="rlcatalog-complex-input"):
        slots.trunk(parts, None)
    both = slots_of(net, rlcatalog_complex_input="failed", rlcatalog_fcnet="failed")
    with pytest.raises(MissingPluginError, match="rlcatalog-fcnet"):  # by the shape first
        both.trunk(parts, None)


# --- claims of a head -----------------------------------------------------------------------------

THREE = Dict({"a": BOX, "b": TWO, "mask": MultiBinary(2)})


@pytest.fixture(scope="module")
def codecs():
    return isolated_catalog("rlcatalog-preprocessors")


def claiming(*keys):
    return part("mask", Rank.GENERIC, slot="head", claims=lambda request: list(keys))


def encoded(codecs, space, **fields):
    preprocessor = codecs.preprocessor_for(space)
    return request_for(space, preprocessor=preprocessor, encoded_shape=preprocessor.shape, **fields)


def test_head_leaves_the_entries_it_does_not_claim(codecs):
    request = encoded(codecs, THREE)
    assert unclaimed_by(None, request) is None
    assert unclaimed_by(part("mask", slot="head"), request) is None  # it claims nothing at any time
    assert unclaimed_by(claiming(), request) is None
    left = unclaimed_by(claiming("mask"), request)
    assert (left.claimed, left.preprocessor.info.keys) == (("mask",), ("a", "b"))
    alone = unclaimed_by(claiming("mask", "b"), request).request(request)
    assert (alone.obs.path, alone.encoded_shape) == ("obs['a']", (3,))


def test_trunk_and_memory_are_chosen_for_unclaimed_entries(codecs):
    seen = []

    def match(request):
        seen.append(request.obs.keys)
        return Match(Rank.GENERIC, "any")

    net = Component(ModelSpec("net", {"torch": "m:C"}, "", match=match), "acme", "1.0")
    head = Component(
        ModelSpec(
            "mask", {"torch": "m:C"}, "", slot="head", match=match, claims=lambda r: ["mask"]
        ),
        "",
        "",
    )
    _, unclaimed = slots_of(net, head).model(encoded(codecs, THREE), None, None)
    assert unclaimed.claimed == ("mask",)
    assert seen == [("a", "b", "mask"), ("a", "b")]


def test_single_entry_beside_a_mask_is_passed_without_its_dict(codecs):
    head = claiming()
    one, two = Dict({"a": BOX}), Dict({"a": BOX, "b": TWO})
    assert (
        unclaimed_by(head, encoded(codecs, one, mask_key="mask")).preprocessor.info.path
        == "obs['a']"
    )
    assert unclaimed_by(head, encoded(codecs, two, mask_key="mask")) is None
    assert unclaimed_by(head, encoded(codecs, one)) is None  # there is no mask
    shown = Dict({"mask": MultiBinary(2)})
    assert unclaimed_by(head, encoded(codecs, shown, mask_key="mask")) is None  # models see it


def test_claims_need_the_preprocessor_and_a_list_of_keys(codecs):
    with pytest.raises(UnsupportedSpaceError, match=r"^obs: mask "):
        unclaimed_by(claiming("mask"), request_for(THREE))
    for answer in ("mask", [1], ["mask", 1], None, {"mask": 1}):
        head = part("mask", slot="head", claims=lambda request, answer=answer: answer)
        with pytest.raises(
            PartError, match=r"model 'mask' \(acme 1\.0\): its claims function returned"
        ):
            unclaimed_by(head, encoded(codecs, THREE))
    assert (
        unclaimed_by(part("mask", slot="head", claims=lambda r: ("mask",)), encoded(codecs, THREE))
        is not None
    )
