"""Plans of made-up distributions: names by path or for all parts, sizes, wrapped ones, and what is
refused.
"""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from rlcatalog import ActionDistribution, ActionDistSpec, Match, Rank, Request, SpaceInfo
from rlcatalog.choice import Pins
from rlcatalog.choice.dist_plan import named_dists, plan_dists
from rlcatalog.choice.slots import Slots
from rlcatalog.errors import ConfigError, PartError, UnsupportedSpaceError
from rlcatalog.plugins import Component
from rlcatalog.plugins.registry import Registry

OBS = SpaceInfo.read(Box(-1, 1, (3,)))
TWO, BOX = Discrete(2), Box(-1, 1, (3,))
PAIR = Tuple([TWO, BOX])
NESTED = Dict({"a": PAIR, "b": TWO})


def on(*kinds):
    return lambda request: Match(
        Rank.GENERIC if request.action.kind in kinds else None, "by its kind"
    )


def only_boxes(action, config, *inner):
    if action.kind != "box":
        raise UnsupportedSpaceError(f"{action.path}: only boxes")
    return 2 * action.shape[0] + config.get("more", 0)


def part(name, match=None, distribution="acme", target="acme_dists:Dist", objects=None, **fields):
    spec = ActionDistSpec(name, {"torch": target}, "", match=match, **fields)
    return Component(spec, distribution, "1.0" if distribution else "", objects=objects or {})


PARTS = {
    component.name: component
    for component in (
        part("box", on("box"), size=only_boxes, reads=("free_log_std",)),
        part("cat", on("discrete"), size=lambda action, config: action.n),
        part("joint", on("tuple", "dict"), composite=True),
        part("narrow", size=only_boxes),
        part("joint2", composite=True),
        part("around", size=lambda action, config, inner: 10 + inner, wraps_default=True),
    )
}
SLOTS = Slots(Registry([], PARTS.values(), {}, {}), ())


def planned(space, names=None, config=None, pins=None, slots=SLOTS):
    components = {
        path: PARTS[name] if isinstance(name, str) else name for path, name in (names or {}).items()
    }
    request = Request(OBS, SpaceInfo.read(space, "action"), config or {}, "torch")
    return plan_dists(slots, request, components, pins)


def tree(plan):
    """Return path or place → name and size."""
    return {node.place: (node.component.name, node.size) for node in plan.walk()}


# --- names ----------------------------------------------------------------------------------------


def test_names_come_from_the_config_or_from_the_argument():
    for custom, dist_type, expected in (
        ("acme/box", None, {None: "box"}),
        ("acme/box", "acme/cat", {None: "box"}),
        (None, "acme/cat", {None: "cat"}),
        (None, None, {}),
        ({"action[1]": "acme/box"}, None, {"action[1]": "box"}),
        (
            {"action[1]": "acme/box", "action[0]": None},
            "acme/cat",
            {"action[1]": "box", None: "cat"},
        ),
        ({None: "acme/box"}, "acme/cat", {None: "box"}),
    ):
        found = named_dists(SLOTS, custom, dist_type)
        assert {path: component.name for path, component in found.items()} == expected


def test_a_name_for_all_parts_applies_where_it_fits():
    assert tree(planned(PAIR, {None: "narrow"})) == {
        "action": ("joint", 2 + 6),
        "action[0]": ("cat", 2),
        "action[1]": ("narrow", 6),
    }
    assert tree(planned(BOX, {None: "narrow"})) == {"action": ("narrow", 6)}


def test_a_name_for_all_parts_that_joins_parts_applies_to_the_whole_space_only():
    assert {
        place: name for place, (name, _) in tree(planned(NESTED, {None: "joint2"})).items()
    } == {
        "action": "joint2",
        "action['a']": "joint",
        "action['a'][0]": "cat",
        "action['a'][1]": "box",
        "action['b']": "cat",
    }


def test_a_name_for_all_parts_that_fits_every_space_is_not_used_inside_the_whole_space():
    anything = part("anything", size=lambda action, config: 1)
    assert tree(planned(NESTED, {None: anything})) == {"action": ("anything", 1)}
    with_path = tree(planned(NESTED, {None: anything, "action": "joint"}))
    assert {place: name for place, (name, _) in with_path.items()} == {
        "action": "joint",
        "action['a']": "joint",
        "action['a'][0]": "anything",
        "action['a'][1]": "anything",
        "action['b']": "anything",
    }


def test_a_name_by_path_comes_before_the_name_for_all_parts():
    space = Tuple([BOX, BOX])
    other = part("other", size=lambda action, config: 1)
    assert tree(planned(space, {None: "narrow", "action[1]": other})) == {
        "action": ("joint", 7),
        "action[0]": ("narrow", 6),
        "action[1]": ("other", 1),
    }


def test_a_wrapping_distribution_has_the_default_one_inside():
    assert tree(planned(PAIR, {None: "around"})) == {
        "action": ("around", 10 + 8),
        "action inside around": ("joint", 8),
        "action[0]": ("cat", 2),
        "action[1]": ("box", 6),
    }
    assert tree(planned(PAIR, {"action": "around", None: "narrow"})) == {
        "action": ("around", 10 + 8),
        "action inside around": ("joint", 8),
        "action[0]": ("cat", 2),
        "action[1]": ("narrow", 6),
    }
    assert tree(planned(PAIR, {"action[0]": "around"})) == {
        "action": ("joint", 12 + 6),
        "action[0]": ("around", 12),
        "action[0] inside around": ("cat", 2),
        "action[1]": ("box", 6),
    }


# --- repeated choices -----------------------------------------------------------------------------


def test_pins_repeat_each_choice_by_its_place():
    pins = Pins(action_dists={"action": "acme/around", "action inside around": "acme/narrow"})
    assert tree(planned(BOX, pins=pins)) == {
        "action": ("around", 16),
        "action inside around": ("narrow", 6),
    }
    plain = Pins(action_dists={"action": "acme/narrow"})
    # names were read when the choice was made.
    for names in ({}, {None: "box"}, {"elsewhere": "box"}):
        assert tree(planned(BOX, names, pins=plain)) == {"action": ("narrow", 6)}


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "size"),
    [
        (3, 3),
        (0, 0),
        (3.0, 3),
        ((2, 3), 6),
        ([2, [3, 4]], 24),
        ((), 1),
        (-1, None),
        (2.5, None),
        ("many", None),
        ((2, -3), None),
        (None, None),
    ],
    ids=repr,
)
def test_a_size_is_a_number_or_a_shape_of_whole_numbers_from_0(answer, size):
    given = part("given", size=lambda action, config: answer)
    if size is not None:
        assert planned(BOX, {None: given}).size == size
    else:
        with pytest.raises(
            PartError, match=r"action_dist 'given' \(acme 1\.0\): its size function returned"
        ):
            planned(BOX, {None: given})


def test_a_joint_class_of_the_program_may_need_more_outputs_than_its_parts():
    class Joint(ActionDistribution):
        composite = True

    class Larger(Joint):
        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return 50

    for cls, size in ((Joint, 8), (Larger, 50)):
        joint = part(
            "mine",
            composite=True,
            distribution="",
            objects={"torch": cls},
            size=lambda action, config: 50,
        )
        plan = planned(PAIR, {None: joint})
        assert (plan.component, plan.size) == (joint, size)
        assert [child.size for child in plan.children] == [2, 6]


# --- classes --------------------------------------------------------------------------------------


class Bare:
    """Has no logp."""


class Whole:
    logp, raw_kind = None, "indices"


@pytest.fixture
def classes(monkeypatch):
    module = ModuleType("acme_dists")
    module.Bare, module.Whole, module.Unmarked = Bare, Whole, type("Unmarked", (), {"logp": None})
    monkeypatch.setitem(sys.modules, "acme_dists", module)
    monkeypatch.setattr(Component, "check_framework", lambda self, framework: None)
    monkeypatch.setattr("rlcatalog.plugins.component.frameworks", dict)


@pytest.mark.parametrize(
    ("target", "distribution", "loads"),
    [("Whole", "acme", True), ("Bare", "acme", False), ("Whole", "", True), ("Bare", "", True)],
)
def test_a_plugins_class_must_be_a_distribution(classes, target, distribution, loads):
    given = part("given", size=only_boxes, target=f"acme_dists:{target}", distribution=distribution)
    plan = planned(BOX, {None: given})
    if loads:
        assert plan.load("torch", {}).__name__ == target
    else:
        with pytest.raises(PartError, match=r"action_dist 'given' \(acme 1\.0\): .*Bare"):
            plan.load("torch", {})


def test_the_raw_kind_of_each_leaf_is_its_classs(classes):
    first = part("first", size=lambda action, config: 1, target="acme_dists:Whole")
    second = part("second", size=lambda action, config: 1, target="acme_dists:Unmarked")
    plan = planned(PAIR, {"action[0]": first, "action[1]": second})
    assert plan.raw_kinds("torch") == {"action[0]": "indices", "action[1]": "values"}


# --- what is refused ------------------------------------------------------------------------------


def test_a_name_that_no_part_uses_is_refused():
    with pytest.raises(ConfigError, match=r"'action\[2\]'; .*action, action\[0\], action\[1\]"):
        planned(PAIR, {"action[2]": "box", "action[1]": "box", "elsewhere": "box"})
    with pytest.raises(ConfigError, match=r"'elsewhere'"):
        planned(BOX, {None: "narrow", "elsewhere": "narrow"})
    with pytest.raises(UnsupportedSpaceError, match="action: only boxes"):
        planned(TWO, {None: "narrow"})
    with pytest.raises(UnsupportedSpaceError, match=r"action: joint2 .*Discrete\(2\)"):
        planned(TWO, {None: "joint2"})
    some = part(
        "some", size=lambda action, config: only_boxes(action, config) if not action.children else 1
    )
    with pytest.raises(
        UnsupportedSpaceError, match=r"some .*Tuple\(Discrete\(2\), Discrete\(2\)\)"
    ):
        planned(Tuple([TWO, TWO]), {None: some, "action": "joint"})  # it would fit the whole space


def test_a_name_that_is_used_elsewhere_is_still_refused_for_a_path_that_does_not_exist():
    with pytest.raises(ConfigError, match=r"'action\[1\]'"):
        planned(BOX, {"action": "narrow", "action[1]": "narrow"})


def test_free_log_std_needs_a_distribution_that_reads_it():
    config = {"free_log_std": True}
    assert planned(BOX, config=config).component.name == "box"
    mine = part("mine", size=only_boxes, distribution="")
    # a class of the program may read any key.
    assert planned(BOX, {None: mine}, config).component is mine
    with pytest.raises(ConfigError, match=r"free_log_std .*narrow, for Box.* box\."):
        planned(BOX, {None: "narrow"}, config)
    with pytest.raises(ConfigError, match=r"cat, for Discrete\(2\)"):
        planned(TWO, config=config)
    assert planned(TWO, config={"free_log_std": False}).component.name == "cat"
