"""The stages of a model from its parts: shared or separate for the value, their widths, and what a
part may answer.
"""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from rlcatalog import ModelSpec, Request, SpaceInfo, Stage
from rlcatalog.choice import model_stages
from rlcatalog.choice.slots import unclaimed_by
from rlcatalog.errors import PartError
from rlcatalog.plugins import Component
from rlcatalog_testing import isolated_catalog

BOX = SpaceInfo.read(Box(-1, 1, (3,), np.float32))
ACTION = SpaceInfo.read(Discrete(2), "action")


def part(slot, *stages, asked=None, **fields):
    """A part with these stages, which writes down the requests that it is asked with."""

    def describe(request):
        if asked is not None:
            asked.append((slot, request.obs.path, request.num_outputs, request.trunk_width))
        return list(stages)

    if stages != (None,):
        fields["describe"] = describe
    return Component(ModelSpec(slot[0], {"torch": "m:C"}, "", slot=slot, **fields), "acme", "1.0")


HIDDEN = Stage("one", (5,), 20), Stage("two", (6,), 36)


def request_of(share=True, memory="own"):
    return Request(BOX, ACTION, {"vf_share_layers": share, "vf_memory": memory}, "torch")


def lines(parts, num_outputs=4, *, unclaimed=None, request=None, **config):
    stages = model_stages(parts, request or request_of(**config), num_outputs, unclaimed)
    return [(stage.name, stage.shape, stage.weights, stage.whole) for stage in stages]


TRUNK = [("t: one", (5,), 20, True), ("t: two", (6,), 36, True)]
MEMORY = [("m: cell", (7,), 99, True)]
HEAD = [("h: mask", (4,), 0, True)]


def value_of(*stages):
    return [(f"value, {name}", *rest) for name, *rest in stages]


def made(*names, asked=None):
    parts = {"trunk": HIDDEN, "memory": [Stage("cell", (7,), 99)], "head": [Stage("mask", (4,), 0)]}
    return [part(slot, *parts[slot], asked=asked) if slot in names else None for slot in parts]


@pytest.mark.parametrize("share", [True, False])
def test_trunk_alone_describes_its_value(share):
    asked = []
    assert lines(made("trunk", asked=asked), share=share) == TRUNK
    assert asked == [("trunk", "obs", 4, None)]


def test_parts_are_described_with_the_width_before_them():
    asked = []
    assert lines(made("trunk", "memory", "head", asked=asked)) == TRUNK + MEMORY + HEAD
    assert asked == [
        ("trunk", "obs", None, None),
        ("memory", "obs", None, 6),
        ("head", "obs", 4, 7),
    ]
    asked.clear()
    assert lines(made("trunk", "memory", asked=asked)) == TRUNK + MEMORY
    assert asked == [("trunk", "obs", None, None), ("memory", "obs", 4, 6)]


def test_separate_value_has_a_copy_of_trunk_and_memory():
    asked = []
    found = lines(made("trunk", "memory", asked=asked), share=False)
    copies = value_of(*TRUNK, *MEMORY)
    # The layers after the memory belong to the model: weights and bias of each.
    assert found[:-2] == TRUNK + MEMORY + copies
    assert found[-2] == ("value", (), 7 + 1, True)
    assert found[-1][1:] == ((4,), (7 + 1) * 4, True)
    assert asked[-1] == ("memory", "obs", None, 6)  # its output is no longer the model's
    asked.clear()
    assert (
        lines(made("trunk", "memory", "head", asked=asked), share=False)
        == TRUNK + MEMORY + copies + HEAD
    )
    assert asked[-1] == ("head", "obs", 4, 7)
    assert lines(made("trunk", "head"), share=False) == TRUNK + value_of(*TRUNK) + HEAD


def test_separate_value_may_do_without_the_memory():
    found = lines(made("trunk", "memory"), share=False, memory="none")
    assert found[:-2] == TRUNK + MEMORY + value_of(*TRUNK)
    assert found[-2] == ("value", (), 6 + 1, True)  # the trunk's width
    assert found[-1][1:] == ((4,), (7 + 1) * 4, True)
    assert lines(made("trunk", "memory", "head"), share=False, memory="none") == (
        TRUNK + MEMORY + value_of(*TRUNK) + HEAD
    )
    assert lines(made("trunk", "memory"), memory="none") == TRUNK + MEMORY


@pytest.mark.parametrize("share", [True, False])
def test_trunk_without_outputs_has_no_value(share):
    asked = []
    assert lines(made("trunk", "memory", asked=asked), None, share=share) == TRUNK + MEMORY
    assert asked == [("trunk", "obs", None, None), ("memory", "obs", None, 6)]


@pytest.mark.parametrize("last", [None, Stage("late", None), Stage("scalar", ())])
def test_unknown_width_makes_weights_a_lower_bound(last):
    asked = []
    parts = [part("trunk", *HIDDEN), part("memory", *([last] if last else []), asked=asked)]
    found = lines(parts, share=False)
    assert found[-2] == ("value", (), 1, False)
    assert found[-1][1:] == ((4,), (1 + 1) * 4, False)
    assert asked == [("memory", "obs", None, 6)]


def test_part_without_describe_has_one_stage():
    assert lines([part("trunk", None)]) == [("t: output", (4,), None, True)]
    assert lines([part("trunk", None)], None) == [("t: output", None, None, True)]
    trunk, memory = part("trunk", *HIDDEN), part("memory", None)
    assert lines([trunk, memory]) == [*TRUNK, ("m: output", (4,), None, True)]
    assert lines([trunk, memory], share=False)[2] == ("m: output", None, None, True)


def test_trunk_and_memory_are_described_for_unclaimed_entries():
    space, asked = Dict({"a": Box(-1, 1, (3,), np.float32), "mask": MultiBinary(2)}), []
    preprocessor = isolated_catalog("rlcatalog-preprocessors").preprocessor_for(space)
    config = {"vf_share_layers": True, "vf_memory": "own"}
    request = Request(SpaceInfo.read(space), ACTION, config, preprocessor=preprocessor)
    head = part("head", Stage("mask", (4,), 0), asked=asked, claims=lambda request: ["mask"])
    parts = [*made("trunk", "memory", asked=asked)[:2], head]
    lines(parts, unclaimed=unclaimed_by(head, request), request=request)
    assert [(slot, path) for slot, path, *_ in asked] == [
        ("trunk", "obs['a']"),
        ("memory", "obs['a']"),
        ("head", "obs"),
    ]


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stages",
    [
        "none",
        None,
        {"a": Stage("a", ())},
        {Stage("a", ()): "a"},
        ["a"],
        [Stage("a", ()), "b"],
        [Stage(3, ())],
        [Stage("a", (-1,))],
        [Stage("a", (2.0,))],
        [Stage("a", (2, "3"))],
        [Stage("a", (2,), -1)],
        [Stage("a", (2,), 1.5)],
        [Stage("a", (2,), 3), Stage("b", (0.5,))],
        [type("Mine", (Stage,), {})("a", ())],
    ],
    ids=repr,
)
def test_describe_without_a_list_of_stages_names_the_part(stages):
    spec = ModelSpec("t", {"torch": "m:C"}, "", describe=lambda request: stages)
    with pytest.raises(PartError, match=r"model 't' \(acme 1\.0\): its describe function returned"):
        model_stages([Component(spec, "acme", "1.0")], request_of(), 4)


def test_stages_become_python_numbers():
    given = (
        Stage("a", (np.int64(2), 0), np.int32(3), whole=1),
        Stage("b", None),
        Stage("c", (), 0, whole=0),
    )
    spec = ModelSpec("t", {"torch": "m:C"}, "", describe=lambda request: given)
    found = model_stages([Component(spec, "acme", "1.0")], request_of(), 4)
    assert found == [
        Stage("t: a", (2, 0), 3),
        Stage("t: b", None),
        Stage("t: c", (), 0, whole=False),
    ]
    assert [type(value) for value in (*found[0].shape, found[0].weights, found[0].whole)] == [
        int,
        int,
        int,
        bool,
    ]
