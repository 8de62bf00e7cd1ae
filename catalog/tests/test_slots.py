"""Candidates of each slot, and the part of an observation that a head leaves to the trunk."""

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
from rlcatalog.choice import PartAddresses
from rlcatalog.choice.slots import Slots, unclaimed_by
from rlcatalog.errors import (
    AmbiguousChoiceError,
    MissingPluginError,
    NoMatchError,
    PartError,
    UnsupportedSpaceError,
)
from rlcatalog.plugins import Part
from rlcatalog.plugins.discovery import PluginRecord
from rlcatalog.plugins.registry import Registry
from rlcatalog_testing import isolated_catalog

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = Discrete(2)


def accept(request):
    return Match(Rank.GENERIC, "fits")


def accept_as_best(request):
    return Match(Rank.SPECIFIC, "fits best")


def accept_as_last(request):
    return Match(Rank.FALLBACK, "fits somehow")


def refuse(request):
    return Match(None, "too small")


def make_model(name, *, distribution="acme", **fields):
    return Part(ModelSpec(name, {"torch": "m:C"}, "", **fields), distribution, "1.0")


def make_preprocessor(name, **fields):
    return Part(PreprocessorSpec(name, {"numpy": "m:C"}, "", **fields), "acme", "1.0")


def make_filter(name, **fields):
    return Part(FilterSpec(name, {"numpy": "m:C"}, "", **fields), "acme", "1.0")


def make_wrapper(name, *, distribution="acme", **fields):
    return Part(EnvWrapperSpec(name, {"numpy": "m:f"}, "", **fields), distribution, "1.0")


def make_dist(name, match):
    def size(action_space, config):
        return 2

    spec = ActionDistSpec(name, {"torch": "m:C"}, "", match=match, size=size)
    return Part(spec, "acme", "1.0")


def make_slots(*parts, prefer=(), packages=None):
    """Return the slots of these parts, and of packages without parts (name → status)."""
    records = [
        PluginRecord(name, name, "1.0", status=status) for name, status in (packages or {}).items()
    ]
    return Slots(Registry(records, parts, {}, {}), prefer)


def make_request(space, path="obs", *, config=None, framework="torch", **fields):
    obs = SpaceInfo.read(space, path)
    action = SpaceInfo.read(TWO_ACTIONS, "action")
    return Request(obs, action, config=config or {}, framework=framework, **fields)


# --- candidates and names -------------------------------------------------------------------------


def test_wrapper_candidates_are_registered_built_in_or_preferred():
    slots = make_slots(
        make_wrapper("mine", distribution=""),  # registered by the program
        make_wrapper("atari", distribution="rlcatalog-atari"),  # built in
        make_wrapper("preferred", distribution="emca"),
        make_wrapper("third-party", distribution="acme", match=accept_as_best),
        prefer=["emca"],
    )

    assert {part.name for part in slots.env_wrappers({})} == {"mine", "atari", "preferred"}


def test_named_part_is_found_by_its_address():
    half = make_filter("half")

    assert make_slots(half).named("filter", "acme/half") is half


def test_named_class_becomes_a_part():
    class Half(Filter):
        pass

    assert make_slots().named("filter", Half).objects == {"numpy": Half}


def test_name_none_is_not_a_part():
    assert make_slots().named("filter", None) is None


@pytest.mark.parametrize(
    ("slot", "part"),
    [
        ("trunk", make_model("net", match=refuse)),
        ("memory", make_model("net", match=refuse)),
        ("filter", make_filter("half", match=refuse)),
    ],
    ids=["trunk", "memory", "filter"],
)
def test_repeat_finds_a_part_without_asking_its_match(slot, part):
    choice = make_slots(part).repeat(slot, part.address)

    assert choice.part is part
    [(candidate, match)] = choice.verdicts
    assert candidate is part
    assert match.rank is None
    assert match.why != "too small"  # the answer of `refuse`


@pytest.mark.parametrize("slot", ["trunk", "memory", "head"])
def test_slot_of_a_model_is_declared(slot):
    assert make_model("net", slot=slot).slot == slot


def test_slot_of_a_filter_is_its_kind():
    assert make_filter("half").slot == "filter"


# --- preprocessors --------------------------------------------------------------------------------

FOR_BOXES = make_preprocessor("boxes", match=accept, kinds=("box",))
FOR_DICTS = make_preprocessor("dicts", match=accept, kinds=("dict",))
FOR_ANYTHING = make_preprocessor("any", match=accept_as_last)


@pytest.mark.parametrize(
    ("path", "candidates"),
    [
        pytest.param("obs", {"boxes", "any", "dicts"}, id="whole-observation"),
        pytest.param("obs['a']", {"boxes", "any"}, id="entry"),
    ],
)
def test_entry_asks_only_preprocessors_of_its_class(path, candidates):
    slots = make_slots(FOR_BOXES, FOR_ANYTHING, FOR_DICTS)

    choice = slots.choose_preprocessor(make_request(THREE_FEATURES, path), pins=None)

    assert choice.part is FOR_BOXES
    assert {part.name for part, _ in choice.verdicts} == candidates


def test_entries_get_preprocessors_of_their_own_class():
    slots = make_slots(FOR_BOXES, FOR_ANYTHING, FOR_DICTS)

    first = slots.choose_preprocessor(make_request(Box(-1, 1, (3,)), "obs['a']"), pins=None)
    second = slots.choose_preprocessor(make_request(Discrete(2), "obs['b']"), pins=None)
    third = slots.choose_preprocessor(make_request(Box(-1, 1, (3,)), "obs['c']"), pins=None)

    assert first.part is FOR_BOXES
    assert second.part is FOR_ANYTHING
    assert third.part is FOR_BOXES


@pytest.mark.parametrize(
    ("path", "preprocessor"),
    [
        pytest.param("obs", FOR_ANYTHING, id="whole-observation"),
        pytest.param("obs['a']", FOR_BOXES, id="entry"),
    ],
)
def test_custom_preprocessor_is_not_for_entries(path, preprocessor):
    slots = make_slots(FOR_BOXES, FOR_ANYTHING)
    request = make_request(THREE_FEATURES, path, config={"custom_preprocessor": "acme/any"})

    assert slots.choose_preprocessor(request, pins=None).part is preprocessor


@pytest.mark.parametrize(
    ("path", "preprocessor"),
    [
        pytest.param("obs['a']", FOR_ANYTHING, id="pinned"),
        pytest.param("obs['b']", FOR_BOXES, id="not-pinned"),
    ],
)
def test_pin_chooses_the_preprocessor_of_an_entry(path, preprocessor):
    slots = make_slots(FOR_BOXES, FOR_ANYTHING)
    pins = PartAddresses(by_slot={}, preprocessors={"obs['a']": "acme/any"})

    assert slots.choose_preprocessor(make_request(THREE_FEATURES, path), pins).part is preprocessor


PREPROCESSORS_INSTALLED = {"rlcatalog-preprocessors": "loaded"}


def test_missing_preprocessor_error_names_first_leaf():
    slots = make_slots(FOR_BOXES, packages=PREPROCESSORS_INSTALLED)
    request = make_request(Dict({"a": THREE_FEATURES, "b": Dict({"t": Text(3)})}))

    with pytest.raises(UnsupportedSpaceError, match=r"^obs\['b'\]\['t'\]: .*Installed: boxes"):
        slots.choose_preprocessor(request, pins=None)


def test_missing_preprocessor_error_names_dict_of_fine_leaves():
    slots = make_slots(FOR_BOXES, packages=PREPROCESSORS_INSTALLED)
    request = make_request(Dict({"a": Tuple([THREE_FEATURES])}))

    # The only leaf is a Box; what has no preprocessor is the Dict.
    with pytest.raises(UnsupportedSpaceError, match=r"^obs: "):
        slots.choose_preprocessor(request, pins=None)


def test_missing_preprocessor_error_says_if_none_is_installed():
    slots = make_slots(packages=PREPROCESSORS_INSTALLED)

    with pytest.raises(UnsupportedSpaceError, match=r"^obs: .*Text\(.*Installed: none"):
        slots.choose_preprocessor(make_request(Text(3)), pins=None)


def test_missing_preprocessor_error_names_the_package_to_install():
    slots = make_slots(FOR_BOXES, packages={})

    with pytest.raises(MissingPluginError, match=r"^obs\['t'\]: .*rlcatalog-preprocessors"):
        slots.choose_preprocessor(make_request(Dict({"t": Text(3)})), pins=None)


def test_missing_preprocessor_error_hints_at_a_similar_class():
    class Angle(gym.Space):
        pass

    # A class of the same name, in another module.
    near = make_preprocessor("near", kinds=("emca.spaces.Angle",))
    far = make_preprocessor("far", kinds=("emca.spaces.Tangle", "text"))

    with pytest.raises(UnsupportedSpaceError, match=r"near is for 'emca\.spaces\.Angle'") as caught:
        make_slots(near, far).choose_preprocessor(make_request(Angle()), pins=None)

    assert "Tangle" not in str(caught.value)


def test_missing_preprocessor_of_text_error_hints_at_no_class():
    near = make_preprocessor("near", kinds=("emca.spaces.Angle",))
    slots = make_slots(near, packages=PREPROCESSORS_INSTALLED)

    with pytest.raises(UnsupportedSpaceError) as caught:
        slots.choose_preprocessor(make_request(Text(3)), pins=None)

    assert "is for" not in str(caught.value)


# --- filters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pins", "filter_name"),
    [
        pytest.param(None, "half", id="no-pins"),
        pytest.param(PartAddresses({"filter": "acme/double"}), "double", id="pinned"),
        pytest.param(PartAddresses(), "half", id="other-pins"),
    ],
)
def test_pinned_filter_overrides_the_config(pins, filter_name):
    slots = make_slots(make_filter("half"), make_filter("double"))
    request = make_request(THREE_FEATURES, config={"observation_filter": "acme/half"})

    assert slots.choose_filter(request, pins).part.name == filter_name


def test_filter_no_filter_leaves_the_slot_empty():
    slots = make_slots(make_filter("half"))
    request = make_request(THREE_FEATURES, config={"observation_filter": "NoFilter"})

    assert slots.choose_filter(request, pins=None).part is None


# --- distributions --------------------------------------------------------------------------------


def test_distribution_does_not_wrap_itself():
    outer = make_dist("outer", match=accept_as_best)
    inner = make_dist("inner", match=accept)
    slots = make_slots(outer, inner)

    alone = slots.choose_action_dist(make_request(THREE_FEATURES), named=None)
    inside_outer = slots.choose_action_dist(make_request(THREE_FEATURES), named=None, outer=outer)

    assert alone.part is outer
    assert inside_outer.part is inner


def test_missing_distribution_error_has_reasons_of_candidates():
    small = make_dist("small", match=refuse)  # its reason is "too small"
    slots = make_slots(small, packages={"rlcatalog-categorical": "loaded"})

    with pytest.raises(UnsupportedSpaceError, match=r"Discrete\(2\) \(small: too small\)"):
        slots.choose_action_dist(make_request(THREE_FEATURES), named=None)


def test_missing_distribution_error_names_the_package_to_install():
    slots = make_slots(make_dist("small", match=refuse), packages={})

    with pytest.raises(MissingPluginError, match=r"Discrete\(2\).*rlcatalog-categorical") as caught:
        slots.choose_action_dist(make_request(THREE_FEATURES), named=None)

    assert str(caught.value).startswith("action: ")


# --- models ---------------------------------------------------------------------------------------

NET = make_model("net", match=accept)
DEEP = make_model("deep")
GRU = make_model("gru", slot="memory")
MASK = make_model("mask", slot="head", match=accept, distribution="emca")


def choose_model(custom=None, *, pins=None, memory=None):
    """Return the parts of a model by slot. The config names `custom` and `memory`.

    By themselves match: the trunk NET, and the head MASK, whose package is preferred. The trunk
    DEEP and the memory GRU have to be named.
    """
    slots = make_slots(NET, DEEP, GRU, MASK, prefer=["emca"])
    choices, unclaimed = slots.choose_model(make_request(THREE_FEATURES), custom, pins, memory)
    assert unclaimed is None
    return {slot: choice.part for slot, choice in choices.items()}


def test_model_slots_are_ordered_from_trunk_to_head():
    assert list(choose_model()) == ["trunk", "memory", "head"]


def test_model_consists_of_matching_parts():
    assert choose_model() == {"trunk": NET, "memory": None, "head": MASK}


def test_named_part_fills_its_own_slot_only():
    assert choose_model(DEEP) == {"trunk": DEEP, "memory": None, "head": MASK}
    assert choose_model(GRU) == {"trunk": NET, "memory": GRU, "head": MASK}


def test_named_memory_goes_with_the_named_trunk():
    assert choose_model(DEEP, memory=GRU) == {"trunk": DEEP, "memory": GRU, "head": MASK}


def test_custom_model_and_memory_for_one_slot_are_an_error():
    config = {"custom_model": "gru", "memory": "gru"}
    slots = make_slots(NET, GRU)

    with pytest.raises(AmbiguousChoiceError, match="each choose a memory"):
        slots.choose_model(make_request(THREE_FEATURES, config=config), GRU, memory=GRU)


def test_pins_of_a_model_leave_its_other_slots_empty():
    pins = PartAddresses({"trunk": "acme/deep"})

    assert choose_model(pins=pins) == {"trunk": DEEP, "memory": None, "head": None}


def test_pins_of_a_model_override_the_named_part():
    pins = PartAddresses({"trunk": "acme/deep"})

    assert choose_model(NET, pins=pins) == {"trunk": DEEP, "memory": None, "head": None}


def test_named_part_fills_a_slot_without_pin():
    pins = PartAddresses({"trunk": "acme/deep"})

    assert choose_model(GRU, pins=pins) == {"trunk": DEEP, "memory": GRU, "head": None}


def test_missing_trunk_error_lists_every_answer():
    slots = make_slots(make_model("small", match=refuse), packages={"rlcatalog-fcnet": "loaded"})

    with pytest.raises(NoMatchError, match="small: too small"):
        slots.choose_model(make_request(THREE_FEATURES), custom=None, pins=None)


def test_missing_trunk_error_names_the_package_to_install():
    slots = make_slots(make_model("small", match=refuse), packages={})

    with pytest.raises(MissingPluginError, match="rlcatalog-fcnet"):
        slots.choose_model(make_request(THREE_FEATURES), custom=None, pins=None)


def test_missing_trunk_of_an_entry_error_names_the_entry():
    slots = make_slots(make_model("small", match=refuse))

    with pytest.raises(NoMatchError, match=r"^obs\['a'\]: .*too small"):
        slots.choose_trunk(make_request(THREE_FEATURES, "obs['a']"), name=None)


# --- packages that cannot be used -----------------------------------------------------------------


def make_image_request():
    """Return a request for which the public index lists rlcatalog-visionnet."""
    return make_request(Box(0, 255, (8, 8, 3), np.uint8), encoded_shape=(8, 8, 3))


@pytest.mark.parametrize("status", ["failed", "incompatible"])
def test_unusable_package_is_an_error_if_it_would_be_asked(status):
    slots = make_slots(NET, packages={"rlcatalog-visionnet": status})

    with pytest.raises(MissingPluginError, match=r"^the trunk .*rlcatalog-visionnet"):
        slots.choose_trunk(make_image_request(), name=None)


def test_unusable_package_does_not_matter_to_other_spaces():
    slots = make_slots(NET, packages={"rlcatalog-visionnet": "failed"})

    assert slots.choose_trunk(make_request(THREE_FEATURES, encoded_shape=(3,)), name=None) is NET


def test_unusable_package_does_not_matter_to_a_named_part():
    slots = make_slots(NET, packages={"rlcatalog-visionnet": "failed"})

    assert slots.choose_trunk(make_image_request(), name="acme/net") is NET


@pytest.mark.parametrize(
    "packages",
    [
        pytest.param({}, id="not-installed"),
        pytest.param({"rlcatalog-visionnet": "disabled"}, id="disabled"),
    ],
)
def test_other_trunk_replaces_a_package_that_is_absent(packages):
    assert make_slots(NET, packages=packages).choose_trunk(make_image_request(), name=None) is NET


def test_unusable_package_error_names_the_entry():
    slots = make_slots(NET, packages={"rlcatalog-fcnet": "failed"})
    request = make_request(THREE_FEATURES, "obs['a']", encoded_shape=(3,))

    with pytest.raises(MissingPluginError, match=r"^obs\['a'\]: the trunk .*rlcatalog-fcnet"):
        slots.choose_trunk(request, name=None)


def test_failed_complex_input_does_not_matter_to_a_vector():
    slots = make_slots(NET, packages={"rlcatalog-complex-input": "failed"})

    assert slots.choose_trunk(make_request(THREE_FEATURES, encoded_shape=(3,)), name=None) is NET


@pytest.mark.parametrize(
    ("packages", "package_in_error"),
    [
        pytest.param(
            {"rlcatalog-complex-input": "failed"}, "rlcatalog-complex-input", id="complex-input"
        ),
        # fcnet is asked first, because a Dict of a vector is encoded as a vector.
        pytest.param(
            {"rlcatalog-complex-input": "failed", "rlcatalog-fcnet": "failed"},
            "rlcatalog-fcnet",
            id="both",
        ),
    ],
)
def test_failed_complex_input_is_an_error_for_a_dict(packages, package_in_error):
    request = make_request(Dict({"a": THREE_FEATURES}), encoded_shape=(3,))

    with pytest.raises(MissingPluginError, match=package_in_error):
        make_slots(NET, packages=packages).choose_trunk(request, name=None)


# --- entries that a head claims -------------------------------------------------------------------

A_B_MASK = Dict({"a": THREE_FEATURES, "b": TWO_ACTIONS, "mask": MultiBinary(2)})


@pytest.fixture(scope="module")
def preprocessors():
    """A catalog that has only preprocessors."""
    return isolated_catalog("rlcatalog-preprocessors")


def make_encoded_request(preprocessors, space, **fields):
    preprocessor = preprocessors.preprocessor_for(space)
    shape = preprocessor.shape
    return make_request(space, preprocessor=preprocessor, encoded_shape=shape, **fields)


def make_head(claims, match=accept):
    """Return a head that reads the entries `claims` of the observation itself."""
    return make_model("mask", slot="head", match=match, claims=lambda request: claims)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(None, id="no-head"),
        pytest.param(make_model("mask", slot="head"), id="head-without-claims"),
        pytest.param(make_head(claims=[]), id="head-claims-nothing"),
    ],
)
def test_observation_is_whole_if_no_head_claims_entries(preprocessors, head):
    assert unclaimed_by(head, make_encoded_request(preprocessors, A_B_MASK)) is None


@pytest.mark.parametrize("claims", [["mask"], ("mask",)], ids=["list", "tuple"])
def test_head_leaves_the_entries_it_does_not_claim(preprocessors, claims):
    request = make_encoded_request(preprocessors, A_B_MASK)

    unclaimed = unclaimed_by(make_head(claims), request)

    assert unclaimed.hidden_keys == ("mask",)
    assert unclaimed.preprocessor.info.keys == ("a", "b")


def test_single_unclaimed_entry_is_passed_without_its_dict(preprocessors):
    request = make_encoded_request(preprocessors, A_B_MASK)

    trunk_request = unclaimed_by(make_head(claims=["mask", "b"]), request).request(request)

    assert trunk_request.obs.path == "obs['a']"
    assert trunk_request.encoded_shape == THREE_FEATURES.shape


def test_trunk_is_chosen_for_unclaimed_entries(preprocessors):
    keys_of_requests = []

    def record_keys(request):
        keys_of_requests.append(request.obs.keys)
        return Match(Rank.GENERIC, "any")

    # Parts of the running program are chosen by their match functions.
    trunk = make_model("net", distribution="", match=record_keys)
    head = make_model(
        "mask", distribution="", slot="head", match=record_keys, claims=lambda request: ["mask"]
    )
    space = Dict({"a": Box(-1, 1, (3,)), "b": Discrete(2), "mask": MultiBinary(2)})
    request = make_encoded_request(preprocessors, space)

    _, unclaimed = make_slots(trunk, head).choose_model(request, custom=None, pins=None)

    assert unclaimed.hidden_keys == ("mask",)
    # The head is asked about the whole observation, then the trunk about the rest.
    assert keys_of_requests == [("a", "b", "mask"), ("a", "b")]


def test_single_entry_beside_a_hidden_mask_is_passed_alone(preprocessors):
    # Models do not see the mask: it is not in their space, and only `mask_key` names it.
    request = make_encoded_request(preprocessors, Dict({"a": THREE_FEATURES}), mask_key="mask")

    unclaimed = unclaimed_by(make_head(claims=[]), request)

    assert unclaimed.preprocessor.info.path == "obs['a']"


@pytest.mark.parametrize(
    ("space", "mask_key"),
    [
        pytest.param(Dict({"a": THREE_FEATURES, "b": TWO_ACTIONS}), "mask", id="two-entries"),
        pytest.param(Dict({"a": THREE_FEATURES}), None, id="no-mask"),
        pytest.param(Dict({"mask": MultiBinary(2)}), "mask", id="models-see-the-mask"),
    ],
)
def test_observation_stays_whole_without_claims(preprocessors, space, mask_key):
    request = make_encoded_request(preprocessors, space, mask_key=mask_key)

    assert unclaimed_by(make_head(claims=[]), request) is None


def test_claims_need_a_preprocessor():
    request = make_request(A_B_MASK)

    with pytest.raises(UnsupportedSpaceError, match=r"^obs: mask "):
        unclaimed_by(make_head(claims=["mask"]), request)


@pytest.mark.parametrize("claims", ["mask", [1], ["mask", 1], None, {"mask": 1}], ids=repr)
def test_claims_that_are_not_list_of_keys_name_the_part(preprocessors, claims):
    request = make_encoded_request(preprocessors, A_B_MASK)

    with pytest.raises(PartError, match="its claims function returned") as caught:
        unclaimed_by(make_head(claims), request)

    assert str(caught.value).startswith("model 'mask' (acme 1.0): ")
