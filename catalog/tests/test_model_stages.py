"""The stages of a model: those its parts describe, and the layers of a separate value network."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from rlcatalog import ModelSpec, Request, SpaceInfo, Stage
from rlcatalog.choice import model_stages
from rlcatalog.choice.slots import unclaimed_by
from rlcatalog.errors import PartError
from rlcatalog.plugins import Part
from rlcatalog_testing import isolated_catalog

THREE_FEATURES = SpaceInfo.read(Box(-1, 1, (3,), np.float32))
ACTION = SpaceInfo.read(Discrete(2), "action")


def declare_part(name, slot, **fields):
    return Part(ModelSpec(name, {"torch": "m:C"}, "", slot=slot, **fields), "acme", "1.0")


def make_request(*, vf_share_layers=True, vf_memory="own"):
    config = {
        "vf_share_layers": vf_share_layers,
        "vf_memory": vf_memory,
        "memory_first": False,
    }
    return Request(THREE_FEATURES, ACTION, config, "torch")


class DescribeCall(NamedTuple):
    """A call of a part's describe function: what the part is told."""

    part: str
    path: str
    num_outputs: int | None
    trunk_width: int | None


@pytest.fixture
def calls():
    """The calls of the describe functions of the parts below, in order."""
    return []


@pytest.fixture
def make_part(calls):
    """Return a part that has these stages and records the calls of its describe function."""

    def make(name, slot, stages, **fields):
        def describe(request):
            call = DescribeCall(name, request.obs.path, request.num_outputs, request.trunk_width)
            calls.append(call)
            return stages

        return declare_part(name, slot, describe=describe, **fields)

    return make


@pytest.fixture
def net(make_part):
    """A trunk with layers of width 5 and 6."""
    return make_part("net", "trunk", [Stage("one", (5,), 20), Stage("two", (6,), 36)])


@pytest.fixture
def gru(make_part):
    """A memory of width 7."""
    return make_part("gru", "memory", [Stage("cell", (7,), 99)])


@pytest.fixture
def mask(make_part):
    """A head without weights."""
    return make_part("mask", "head", [Stage("masked", (4,), 0)])


#: Stages are named after their part.
NET_STAGES = [Stage("net: one", (5,), 20), Stage("net: two", (6,), 36)]
GRU_STAGES = [Stage("gru: cell", (7,), 99)]
MASK_STAGES = [Stage("mask: masked", (4,), 0)]
#: Those of a separate value network.
VALUE_NET_STAGES = [Stage("value, net: one", (5,), 20), Stage("value, net: two", (6,), 36)]
VALUE_GRU_STAGES = [Stage("value, gru: cell", (7,), 99)]


# --- parts that share layers with the value -------------------------------------------------------


@pytest.mark.parametrize("share", [True, False])
def test_trunk_alone_describes_its_value(calls, net, share):
    # A trunk has a value of its own, shared or not.
    stages = model_stages([net], make_request(vf_share_layers=share), num_outputs=4)

    assert stages == NET_STAGES
    assert calls == [DescribeCall("net", "obs", num_outputs=4, trunk_width=None)]


def test_parts_are_described_with_the_width_before_them(calls, net, gru, mask):
    stages = model_stages([net, gru, mask], make_request(), num_outputs=4)

    assert stages == NET_STAGES + GRU_STAGES + MASK_STAGES
    assert calls == [
        DescribeCall("net", "obs", num_outputs=None, trunk_width=None),
        DescribeCall("gru", "obs", num_outputs=None, trunk_width=6),
        DescribeCall("mask", "obs", num_outputs=4, trunk_width=7),
    ]


def test_last_part_is_described_with_the_outputs(calls, net, gru):
    stages = model_stages([net, gru, None], make_request(), num_outputs=4)

    assert stages == NET_STAGES + GRU_STAGES
    assert calls == [
        DescribeCall("net", "obs", num_outputs=None, trunk_width=None),
        DescribeCall("gru", "obs", num_outputs=4, trunk_width=6),
    ]


@pytest.mark.parametrize("share", [True, False])
def test_model_without_outputs_has_no_value(calls, net, gru, share):
    stages = model_stages([net, gru], make_request(vf_share_layers=share), num_outputs=None)

    assert stages == NET_STAGES + GRU_STAGES
    assert calls == [
        DescribeCall("net", "obs", num_outputs=None, trunk_width=None),
        DescribeCall("gru", "obs", num_outputs=None, trunk_width=6),
    ]


# --- a separate value network ---------------------------------------------------------------------


def test_separate_value_has_a_copy_of_trunk_and_memory(calls, net, gru):
    stages = model_stages([net, gru], make_request(vf_share_layers=False), num_outputs=4)

    *copied_stages, value, logits = stages
    assert copied_stages == NET_STAGES + GRU_STAGES + VALUE_NET_STAGES + VALUE_GRU_STAGES
    # The memory has width 7, and each layer behind it has a bias.
    assert value == Stage("value", (), 7 + 1)
    assert logits.shape == (4,)
    assert logits.weights == (7 + 1) * 4
    # The memory itself computes no outputs. It reads the trunk's six.
    assert calls[-1] == DescribeCall("gru", "obs", num_outputs=None, trunk_width=6)


def test_separate_value_has_no_copy_of_the_head(calls, net, gru, mask):
    stages = model_stages([net, gru, mask], make_request(vf_share_layers=False), num_outputs=4)

    value_stages = VALUE_NET_STAGES + VALUE_GRU_STAGES
    assert stages == NET_STAGES + GRU_STAGES + value_stages + MASK_STAGES
    assert calls[-1] == DescribeCall("mask", "obs", num_outputs=4, trunk_width=7)


def test_separate_value_of_a_head_copies_the_trunk(net, mask):
    stages = model_stages([net, mask], make_request(vf_share_layers=False), num_outputs=4)

    assert stages == NET_STAGES + VALUE_NET_STAGES + MASK_STAGES


def test_separate_value_may_do_without_the_memory(net, gru):
    request = make_request(vf_share_layers=False, vf_memory="none")

    *copied_stages, value, logits = model_stages([net, gru], request, num_outputs=4)

    assert copied_stages == NET_STAGES + GRU_STAGES + VALUE_NET_STAGES
    # The value comes from the trunk of width 6, the logits from the memory of width 7.
    assert value == Stage("value", (), 6 + 1)
    assert logits.shape == (4,)
    assert logits.weights == (7 + 1) * 4


def test_separate_value_below_a_head_may_do_without_the_memory(net, gru, mask):
    request = make_request(vf_share_layers=False, vf_memory="none")

    stages = model_stages([net, gru, mask], request, num_outputs=4)

    assert stages == NET_STAGES + GRU_STAGES + VALUE_NET_STAGES + MASK_STAGES


def test_shared_value_has_the_memory_in_any_case(net, gru):
    request = make_request(vf_share_layers=True, vf_memory="none")

    assert model_stages([net, gru], request, num_outputs=4) == NET_STAGES + GRU_STAGES


@pytest.mark.parametrize(
    "memory_stages",
    [
        pytest.param([], id="no-stages"),
        pytest.param([Stage("late", None)], id="unknown-shape"),
        pytest.param([Stage("scalar", ())], id="scalar"),
    ],
)
def test_unknown_width_makes_weights_a_lower_bound(make_part, net, memory_stages):
    gru = make_part("gru", "memory", memory_stages)

    stages = model_stages([net, gru], make_request(vf_share_layers=False), num_outputs=4)

    *_, value, logits = stages
    assert value == Stage("value", (), 1, whole=False)  # at least a bias
    assert logits.shape == (4,)
    assert logits.weights == (1 + 1) * 4  # a width of at least 1
    assert not logits.whole


# --- parts without describe, and parts of an observation ------------------------------------------


@pytest.mark.parametrize(("num_outputs", "shape"), [(4, (4,)), (None, None)])
def test_trunk_without_describe_has_one_stage(num_outputs, shape):
    trunk = declare_part("net", "trunk")

    assert model_stages([trunk], make_request(), num_outputs) == [Stage("net: output", shape)]


@pytest.mark.parametrize(
    ("share", "shape"),
    [
        pytest.param(True, (4,), id="shared-value"),
        # Layers behind the memory compute the outputs and the value.
        pytest.param(False, None, id="separate-value"),
    ],
)
def test_memory_without_describe_has_one_stage(net, share, shape):
    gru = declare_part("gru", "memory")

    stages = model_stages([net, gru], make_request(vf_share_layers=share), num_outputs=4)

    assert stages[:3] == [*NET_STAGES, Stage("gru: output", shape)]


def test_trunk_and_memory_are_described_for_unclaimed_entries(calls, make_part, net, gru):
    space = Dict({"a": Box(-1, 1, (3,)), "mask": MultiBinary(2)})
    request = Request(
        SpaceInfo.read(space),
        SpaceInfo.read(Discrete(2), "action"),
        {"vf_share_layers": True, "vf_memory": "own", "memory_first": False},
        preprocessor=isolated_catalog("rlcatalog-preprocessors").preprocessor_for(space),
    )
    # This head reads the entry "mask" itself, and leaves the entry "a" to the trunk.
    head = make_part("mask", "head", [Stage("masked", (4,), 0)], claims=lambda request: ["mask"])

    unclaimed = unclaimed_by(head, request)
    model_stages([net, gru, head], request, num_outputs=4, unclaimed=unclaimed)

    described_paths = {call.part: call.path for call in calls}
    assert described_paths == {"net": "obs['a']", "gru": "obs['a']", "mask": "obs"}


# --- what a describe function returns -------------------------------------------------------------


class SubclassOfStage(Stage):
    pass


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
        [SubclassOfStage("a", ())],
    ],
    ids=repr,
)
def test_describe_without_a_list_of_stages_names_the_part(stages):
    net = declare_part("net", "trunk", describe=lambda request: stages)

    with pytest.raises(PartError, match="its describe function returned") as caught:
        model_stages([net], make_request(), 4)

    assert str(caught.value).startswith("model 'net' (acme 1.0): ")


def test_describe_may_return_numpy_numbers(make_part):
    net = make_part("net", "trunk", [Stage("a", (np.int64(2), 0), np.int32(3), whole=1)])

    [stage] = model_stages([net], make_request(), num_outputs=4)

    assert stage == Stage("net: a", (2, 0), 3, whole=True)
    # They become Python's numbers.
    assert [type(size) for size in stage.shape] == [int, int]
    assert type(stage.weights) is int
    assert type(stage.whole) is bool
