"""Plans of action distributions: which part of an action space gets which of the made-up
distributions below, and with how many inputs.
"""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from rlcatalog import ActionDistribution, ActionDistSpec, Match, Rank, Request, SpaceInfo
from rlcatalog.choice import PartAddresses
from rlcatalog.choice.dist_plan import named_dists, plan_dists
from rlcatalog.choice.slots import Slots
from rlcatalog.errors import ConfigError, PartError, UnsupportedSpaceError
from rlcatalog.plugins import Part
from rlcatalog.plugins.registry import Registry

OBS = SpaceInfo.read(Box(-1, 1, (3,)))
TWO_ACTIONS = Discrete(2)
THREE_FEATURES = Box(-1, 1, (3,))
PAIR = Tuple([TWO_ACTIONS, THREE_FEATURES])
NESTED = Dict({"a": PAIR, "b": TWO_ACTIONS})


def match_kinds(*kinds):
    """Return a match function for action spaces of these kinds."""

    def match(request):
        if request.action.kind in kinds:
            return Match(Rank.GENERIC, "by its kind")
        return Match(None, "by its kind")

    return match


def size_of_box(action, config):
    """Return two inputs for each dimension of a Box; reject every other space."""
    if action.kind != "box":
        raise UnsupportedSpaceError(f"{action.path}: only boxes")
    return 2 * action.shape[0]


def size_one(action, config):
    return 1


def make_dist(
    name, *, match=None, distribution="acme", target="acme_dists:Dist", objects=None, **fields
):
    """Return a distribution of a plugin, or of the program if `distribution` is empty."""
    spec = ActionDistSpec(name, {"torch": target}, "", match=match, **fields)
    version = "1.0" if distribution else ""
    return Part(spec, distribution, version, objects=objects or {})


DISTS = [
    # The defaults: they match a kind of space.
    make_dist("box", match=match_kinds("box"), size=size_of_box, reads=("free_log_std",)),
    make_dist("cat", match=match_kinds("discrete"), size=lambda action, config: action.n),
    make_dist("joint", match=match_kinds("tuple", "dict"), composite=True),
    # These have to be named.
    make_dist("named_box", size=size_of_box),
    make_dist("named_joint", composite=True),
    make_dist("wrapper", size=lambda action, config, inner: 10 + inner, wraps_default=True),
]
DIST_OF_NAME = {dist.name: dist for dist in DISTS}
SLOTS = Slots(Registry([], DISTS, {}, {}), ())


def plan(space, names=None, *, config=None, pins=None):
    """Plan the distributions of `space`.

    `names` maps the path of a part, or None for all parts, to the name of a distribution above or
    to a distribution.
    """
    named = {}
    for path, dist in (names or {}).items():
        named[path] = DIST_OF_NAME[dist] if isinstance(dist, str) else dist
    request = Request(OBS, SpaceInfo.read(space, "action"), config or {}, "torch")
    return plan_dists(SLOTS, request, named, pins)


def read_plan(planned):
    """Return place → name and number of inputs."""
    return {node.place: (node.part.name, node.size) for node in planned.walk()}


def read_names(planned):
    """Return place → name."""
    return {node.place: node.part.name for node in planned.walk()}


# --- names in the config --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("custom_action_dist", "dist_type", "expected"),
    [
        pytest.param("acme/box", None, {None: "box"}, id="config"),
        pytest.param(None, "acme/cat", {None: "cat"}, id="argument"),
        pytest.param("acme/box", "acme/cat", {None: "box"}, id="config-overrides-argument"),
        pytest.param(None, None, {}, id="neither"),
        pytest.param({"action[1]": "acme/box"}, None, {"action[1]": "box"}, id="path"),
        pytest.param(
            {"action[1]": "acme/box", "action[0]": None},
            "acme/cat",
            {"action[1]": "box", None: "cat"},
            id="path-beside-argument",
        ),
        pytest.param(
            {None: "acme/box"}, "acme/cat", {None: "box"}, id="all-parts-override-argument"
        ),
    ],
)
def test_named_dists_come_from_config_or_argument(custom_action_dist, dist_type, expected):
    named = named_dists(SLOTS, custom_action_dist, dist_type)

    assert {path: dist.name for path, dist in named.items()} == expected


# --- planning -------------------------------------------------------------------------------------


def test_name_for_all_parts_applies_to_a_single_space():
    assert read_plan(plan(THREE_FEATURES, {None: "named_box"})) == {"action": ("named_box", 6)}


def test_name_for_all_parts_applies_to_parts_that_it_fits():
    assert read_plan(plan(PAIR, {None: "named_box"})) == {
        "action": ("joint", 2 + 6),
        "action[0]": ("cat", 2),
        "action[1]": ("named_box", 6),
    }


def test_composite_named_for_all_parts_applies_to_the_whole():
    assert read_names(plan(NESTED, {None: "named_joint"})) == {
        "action": "named_joint",
        "action['a']": "joint",
        "action['a'][0]": "cat",
        "action['a'][1]": "box",
        "action['b']": "cat",
    }


def test_dist_that_fits_the_whole_space_is_not_used_for_parts():
    anything = make_dist("anything", size=size_one)

    assert read_plan(plan(NESTED, {None: anything})) == {"action": ("anything", 1)}


def test_dist_that_fits_all_is_used_for_parts_of_a_named_whole():
    anything = make_dist("anything", size=size_one)

    assert read_names(plan(NESTED, {None: anything, "action": "joint"})) == {
        "action": "joint",
        "action['a']": "joint",
        "action['a'][0]": "anything",
        "action['a'][1]": "anything",
        "action['b']": "anything",
    }


def test_name_for_all_parts_applies_where_match_accepts():
    # Its size is known for any space.
    picky = make_dist("picky", match=match_kinds("box"), size=size_one)

    assert read_names(plan(PAIR, {None: picky})) == {
        "action": "joint",
        "action[0]": "cat",
        "action[1]": "picky",
    }


@pytest.mark.parametrize("path", [None, "action"])
def test_named_dist_whose_match_refuses_is_an_error(path):
    picky = make_dist("picky", match=match_kinds("box"), size=size_one)

    with pytest.raises(UnsupportedSpaceError, match=r"picky.* not fit .*Discrete.*: by its kind"):
        plan(Discrete(2), {path: picky})


def test_name_by_path_overrides_name_for_all_parts():
    other = make_dist("other", size=size_one)

    assert read_plan(
        plan(Tuple([THREE_FEATURES, THREE_FEATURES]), {None: "named_box", "action[1]": other})
    ) == {
        "action": ("joint", 6 + 1),
        "action[0]": ("named_box", 6),
        "action[1]": ("other", 1),
    }


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(
            {None: "wrapper"},
            {
                "action": ("wrapper", 10 + 8),
                "action inside wrapper": ("joint", 8),
                "action[0]": ("cat", 2),
                "action[1]": ("box", 6),
            },
            id="around-the-whole",
        ),
        pytest.param(
            {"action": "wrapper", None: "named_box"},
            {
                "action": ("wrapper", 10 + 8),
                "action inside wrapper": ("joint", 8),
                "action[0]": ("cat", 2),
                "action[1]": ("named_box", 6),
            },
            id="around-the-whole-with-named-parts",
        ),
        pytest.param(
            {"action[0]": "wrapper"},
            {
                "action": ("joint", 12 + 6),
                "action[0]": ("wrapper", 10 + 2),
                "action[0] inside wrapper": ("cat", 2),
                "action[1]": ("box", 6),
            },
            id="around-a-part",
        ),
    ],
)
def test_wrapping_dist_has_the_default_inside(names, expected):
    assert read_plan(plan(PAIR, names)) == expected


# --- pins -----------------------------------------------------------------------------------------


def test_pins_choose_each_distribution_by_its_place():
    pins = PartAddresses(
        action_dists={"action": "acme/wrapper", "action inside wrapper": "acme/named_box"}
    )

    assert read_plan(plan(THREE_FEATURES, pins=pins)) == {
        "action": ("wrapper", 10 + 6),
        "action inside wrapper": ("named_box", 6),
    }


@pytest.mark.parametrize(
    "names",
    [
        pytest.param({}, id="no-name"),
        pytest.param({None: "box"}, id="another-name"),
        # An unknown path is an error only when a choice is made.
        pytest.param({"elsewhere": "box"}, id="unknown-path"),
    ],
)
def test_pins_override_names(names):
    pins = PartAddresses(action_dists={"action": "acme/named_box"})

    assert read_plan(plan(THREE_FEATURES, names, pins=pins)) == {"action": ("named_box", 6)}


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "size"),
    [
        pytest.param(3, 3, id="integer"),
        pytest.param(0, 0, id="zero"),
        pytest.param(3.0, 3, id="integral-float"),
        pytest.param((2, 3), 2 * 3, id="shape"),
        pytest.param([2, [3, 4]], 2 * 3 * 4, id="nested-shape"),
        pytest.param((), 1, id="empty-shape"),
    ],
)
def test_size_may_be_a_number_or_a_shape(answer, size):
    dist = make_dist("mine", size=lambda action, config: answer)

    assert plan(THREE_FEATURES, {None: dist}).size == size


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(-1, id="negative"),
        pytest.param(2.5, id="fraction"),
        pytest.param("many", id="text"),
        pytest.param((2, -3), id="shape-with-negative-axis"),
        pytest.param(None, id="none"),
    ],
)
def test_invalid_size_error_names_the_plugin(answer):
    dist = make_dist("mine", size=lambda action, config: answer)

    with pytest.raises(PartError, match="its size function returned") as caught:
        plan(THREE_FEATURES, {None: dist})

    assert str(caught.value).startswith("action_dist 'mine' (acme 1.0): ")


def test_registered_composite_may_need_more_than_its_parts():
    class JointOf50Inputs(ActionDistribution):
        composite = True

        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return 50

    joint = make_dist(
        "mine",
        composite=True,
        distribution="",  # a class of the running program
        objects={"torch": JointOf50Inputs},
        size=lambda action, config: 50,
    )

    # The key None stands for the action and all its parts.
    planned = plan(Tuple([Discrete(2), Box(-1, 1, (3,))]), {None: joint})

    assert planned.part is joint
    assert planned.size == 50
    # Two logits; a mean and a log standard deviation for each of three numbers.
    assert [child.size for child in planned.children] == [2, 6]


def test_registered_composite_may_have_the_size_of_its_parts():
    class Joint(ActionDistribution):
        composite = True

    joint = make_dist(
        "mine",
        composite=True,
        distribution="",
        objects={"torch": Joint},
        # Not called, because the class has no required_model_output_shape().
        size=lambda action, config: 50,
    )

    planned = plan(Tuple([Discrete(2), Box(-1, 1, (3,))]), {None: joint})

    # Two logits; a mean and a log standard deviation for each of three numbers.
    assert planned.size == 2 + 6


# --- classes --------------------------------------------------------------------------------------


class WithoutLogp:
    """Lacks a distribution's method `logp`."""


class WithRawKind:
    logp = None
    raw_kind = "indices"


class WithoutRawKind:
    logp = None


@pytest.fixture
def dist_classes(monkeypatch):
    """Make the three classes above importable from `acme_dists`, without a framework."""
    module = ModuleType("acme_dists")
    for cls in (WithoutLogp, WithRawKind, WithoutRawKind):
        setattr(module, cls.__name__, cls)
    monkeypatch.setitem(sys.modules, "acme_dists", module)
    monkeypatch.setattr(Part, "check_framework", lambda self, framework: None)
    monkeypatch.setattr("rlcatalog.plugins.part.frameworks", dict)


@pytest.mark.usefixtures("dist_classes")
@pytest.mark.parametrize(
    ("target", "distribution"),
    [
        pytest.param("WithRawKind", "acme", id="distribution-of-a-plugin"),
        pytest.param("WithRawKind", "", id="distribution-of-the-program"),
        pytest.param("WithoutLogp", "", id="another-class-of-the-program"),
    ],
)
def test_plan_loads_the_class(target, distribution):
    dist = make_dist(
        "mine", size=size_of_box, target=f"acme_dists:{target}", distribution=distribution
    )

    assert plan(THREE_FEATURES, {None: dist}).load("torch", {}).__name__ == target


@pytest.mark.usefixtures("dist_classes")
def test_plan_rejects_plugin_class_that_is_not_a_distribution():
    dist = make_dist("mine", size=size_of_box, target="acme_dists:WithoutLogp")

    with pytest.raises(PartError, match=r"'mine' \(acme 1\.0\): .*WithoutLogp"):
        plan(THREE_FEATURES, {None: dist}).load("torch", {})


@pytest.mark.usefixtures("dist_classes")
def test_raw_kinds_come_from_the_class_of_each_part():
    first = make_dist("first", size=size_one, target="acme_dists:WithRawKind")
    second = make_dist("second", size=size_one, target="acme_dists:WithoutRawKind")

    planned = plan(PAIR, {"action[0]": first, "action[1]": second})

    assert planned.raw_kinds("torch") == {"action[0]": "indices", "action[1]": "values"}


# --- names that are rejected ----------------------------------------------------------------------


def test_unknown_path_error_lists_the_parts():
    names = {"action[2]": "box", "action[1]": "box", "elsewhere": "box"}

    with pytest.raises(ConfigError, match=r"'action\[2\]'; ") as caught:
        plan(PAIR, names)

    assert "action, action[0], action[1]" in str(caught.value)


@pytest.mark.parametrize(
    ("names", "unknown_path"),
    [
        pytest.param(
            {None: "named_box", "elsewhere": "named_box"}, "elsewhere", id="same-name-for-all-parts"
        ),
        pytest.param(
            {"action": "named_box", "action[1]": "named_box"}, "action[1]", id="same-name-by-path"
        ),
    ],
)
def test_unknown_path_is_rejected_beside_a_valid_one(names, unknown_path):
    with pytest.raises(ConfigError) as caught:
        plan(THREE_FEATURES, names)

    assert repr(unknown_path) in str(caught.value)


def test_named_dist_that_fits_no_part_is_rejected():
    with pytest.raises(UnsupportedSpaceError, match="action: only boxes"):
        plan(TWO_ACTIONS, {None: "named_box"})


def test_named_composite_is_rejected_for_a_single_space():
    with pytest.raises(UnsupportedSpaceError, match=r"action: named_joint .*Discrete\(2\)"):
        plan(TWO_ACTIONS, {None: "named_joint"})


def test_named_dist_that_fits_only_the_whole_is_rejected():
    def size_of_composite(action, config):
        if action.children:
            return 1
        raise UnsupportedSpaceError(f"{action.path}: only composites")

    dist = make_dist("mine", size=size_of_composite)
    # "joint" is named for the whole action, and "mine" for the rest: the two parts.
    names = {None: dist, "action": "joint"}

    with pytest.raises(UnsupportedSpaceError, match=r"Tuple\(Discrete\(2\), ") as caught:
        plan(Tuple([Discrete(2), Discrete(2)]), names)

    assert "mine " in str(caught.value)


# --- free_log_std ---------------------------------------------------------------------------------

FREE_LOG_STD = {"free_log_std": True}


def test_free_log_std_is_accepted_by_dist_that_reads_it():
    assert plan(THREE_FEATURES, config=FREE_LOG_STD).part.name == "box"


def test_free_log_std_is_accepted_by_registered_dist():
    registered = make_dist("mine", size=size_of_box, distribution="")  # it may read any key

    assert plan(THREE_FEATURES, {None: registered}, config=FREE_LOG_STD).part is registered


def test_free_log_std_is_rejected_by_named_dist():
    with pytest.raises(ConfigError, match=r"named_box, for Box.* box\.") as caught:
        plan(THREE_FEATURES, {None: "named_box"}, config=FREE_LOG_STD)

    assert "free_log_std" in str(caught.value)


def test_free_log_std_is_rejected_by_default_dist():
    with pytest.raises(ConfigError, match=r"cat, for Discrete\(2\)"):
        plan(TWO_ACTIONS, config=FREE_LOG_STD)


def test_free_log_std_false_is_accepted_by_every_dist():
    assert plan(TWO_ACTIONS, config={"free_log_std": False}).part.name == "cat"
