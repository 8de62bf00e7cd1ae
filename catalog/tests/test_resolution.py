"""A resolution: pins of its parts, shapes, what a model sees, and keys that nothing reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from rlcatalog import FilterSpec, Match, ModelSpec
from rlcatalog.choice import PartAddresses
from rlcatalog.choice.selection import Choice
from rlcatalog.choice.slots import unclaimed_by
from rlcatalog.errors import MissingPluginError, PartError, UnknownNameError
from rlcatalog.plugins import Part
from rlcatalog_testing import isolated_catalog

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = Discrete(2)
#: The packages of the catalog.
PACKAGES = (
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-lstm",
    "rlcatalog-categorical",
    "rlcatalog-filters",
    "rlcatalog-multi-action",
    "rlcatalog-gaussian",
)


@pytest.fixture(scope="module")
def catalog():
    return isolated_catalog(*PACKAGES)


def resolve(catalog, obs=THREE_FEATURES, action=TWO_ACTIONS, *, config=None):
    """Return a resolution without a warning about keys that nothing reads."""
    return catalog.explain(obs, action, config or {}, "torch").resolution


# --- pins -----------------------------------------------------------------------------------------


@pytest.fixture
def pins(catalog):
    """The pins of an LSTM with a filter for spaces with two parts each."""
    config = {"use_lstm": True, "observation_filter": "MeanStdFilter"}
    return PartAddresses.of(
        resolve(
            catalog,
            Tuple([THREE_FEATURES, TWO_ACTIONS]),
            Tuple([TWO_ACTIONS, THREE_FEATURES]),
            config=config,
        )
    )


def test_pins_have_the_address_of_each_part(pins):
    assert pins.by_slot == {
        "filter": "rlcatalog-filters/MeanStdFilter",
        "trunk": "rlcatalog-fcnet/fcnet",
        "memory": "rlcatalog-lstm/lstm",
    }


def test_pins_have_the_preprocessor_of_each_subspace(pins):
    assert pins.preprocessors == {
        "obs": "rlcatalog-preprocessors/tuple",
        "obs[0]": "rlcatalog-preprocessors/none",
        "obs[1]": "rlcatalog-preprocessors/onehot",
    }


def test_pins_have_the_distribution_of_each_subspace(pins):
    assert pins.action_dists == {
        "action": "rlcatalog-multi-action/multi_action",
        "action[0]": "rlcatalog-categorical/categorical",
        "action[1]": "rlcatalog-gaussian/diag_gaussian",
    }


def test_pins_have_the_version_of_each_package(catalog, pins):
    assert set(pins.versions) == set(PACKAGES)
    assert pins.versions["rlcatalog-lstm"] == catalog.registry.get("model", "lstm").version


def test_pins_are_restored_from_their_dict(pins):
    data = pins.as_dict()

    assert PartAddresses.from_dict(data).as_dict() == data


@pytest.mark.parametrize(
    "pins",
    [
        pytest.param(
            PartAddresses(
                by_slot={
                    "memory": "rlcatalog-lstm/lstm",
                    "filter": "rlcatalog-filters/MeanStdFilter",
                }
            ),
            id="parts",
        ),
        pytest.param(
            PartAddresses(preprocessors={"obs": "rlcatalog-preprocessors/none"}), id="preprocessor"
        ),
        pytest.param(
            PartAddresses(action_dists={"action": "rlcatalog-categorical/categorical"}),
            id="distribution",
        ),
    ],
)
def test_check_accepts_pins_of_installed_parts(catalog, pins):
    pins.check(catalog.registry)


@pytest.mark.parametrize(
    "pins",
    [
        # None of these packages is in the catalog.
        pytest.param(
            PartAddresses(by_slot={"trunk": "rlcatalog-visionnet/visionnet"}), id="no-trunk"
        ),
        pytest.param(PartAddresses(by_slot={"filter": "rlcatalog-atari/any"}), id="no-filter"),
        pytest.param(
            PartAddresses(preprocessors={"obs": "rlcatalog-atari/any"}), id="no-preprocessor"
        ),
        pytest.param(
            PartAddresses(action_dists={"action": "rlcatalog-bounded/beta"}), id="no-distribution"
        ),
        pytest.param(
            PartAddresses(by_slot={"memory": "rlcatalog-filters/MeanStdFilter"}),
            id="filter-as-memory",
        ),
        pytest.param(
            PartAddresses(by_slot={"filter": "rlcatalog-lstm/lstm"}), id="model-as-filter"
        ),
    ],
)
def test_check_rejects_pins_of_missing_parts(catalog, pins):
    with pytest.raises((MissingPluginError, UnknownNameError)):
        pins.check(catalog.registry)


# --- parts, shapes and views ----------------------------------------------------------------------


def test_parts_of_all_slots_leave_out_empty_ones(catalog):
    parts = resolve(catalog).parts_by_slot()

    names = {slot: part.name for slot, part in parts.items()}
    assert names == {"preprocessor": "none", "trunk": "fcnet", "action_dist": "categorical"}


def test_parts_of_given_slots_leave_out_empty_ones(catalog):
    resolution = resolve(catalog)

    assert list(resolution.parts_by_slot("memory", "trunk")) == ["trunk"]
    assert resolution.parts_by_slot("memory") == {}


def test_shapes_count_weights_of_the_model_only(catalog):
    config = {"fcnet_hiddens": [5], "observation_filter": "MeanStdFilter"}

    shapes = resolve(catalog, config=config).shapes

    stages = [(stage.name, stage.shape, stage.weights) for stage in shapes]
    assert stages[:3] == [
        ("observation", (3,), 0),
        ("preprocessor: none", (3,), 0),
        ("filter: MeanStdFilter", (3,), 0),
    ]
    assert stages[-2:] == [("categorical: inputs", (2,), 0), ("action", (), 0)]
    # Each layer has inputs * outputs weights, and a bias for each output.
    hidden = 3 * 5 + 5
    logits = 5 * 2 + 2
    value = 5 + 1
    assert sum(stage.weights for stage in shapes) == hidden + logits + value


def test_resolution_has_the_action_and_its_number_of_outputs(catalog):
    resolution = resolve(catalog, action=TWO_ACTIONS)

    assert resolution.action.path == "action"
    assert resolution.num_outputs == 2


@pytest.mark.parametrize(
    ("filter_config", "dtype"),
    [
        pytest.param({"observation_filter": "NoFilter"}, "uint8", id="no-filter"),
        pytest.param(
            {"observation_filter": "MeanStdFilter", "filter_include": ["obs"]},
            "float32",
            id="filter",
        ),
    ],
)
def test_model_views_have_the_dtype_after_the_filter(catalog, filter_config, dtype):
    image = Box(0, 255, (4, 4, 3), np.uint8)

    views = resolve(catalog, image, config={"fcnet_hiddens": [4], **filter_config}).model_views

    # 48 values: 4 * 4 * 3.
    assert views == [("obs", (4, 4, 3), dtype), ("obs_flat", (48,), dtype)]


# --- pinned keys ----------------------------------------------------------------------------------


def make_part(name, *, slot="trunk", distribution="acme", **fields):
    spec = ModelSpec(name, {"torch": "m:C"}, "", slot=slot, **fields)
    return Part(spec, distribution, "1.0")


def replace_parts(resolution, *parts, **fields):
    """Return the resolution as if these parts had been chosen for their slots."""
    choices = dict(resolution.choices)
    for part in parts:
        choices[part.declaration.slot] = Choice(part, "", ((part, Match(None, "")),))
    return replace(resolution, choices=choices, **fields)


def make_part_that_pins_its_path(slot):
    """Return a part that pins the key `slot` to the path of the observation that it sees."""

    def pin_path(request):
        return {slot: request.obs.path}

    return make_part("acme", slot=slot, pinned_keys=pin_path)


THREE_PARTS = [make_part_that_pins_its_path(slot) for slot in ("trunk", "memory", "head")]


def test_pinned_keys_come_from_all_parts(catalog):
    resolution = resolve(catalog, Dict({"a": THREE_FEATURES, "b": THREE_FEATURES}))

    pinned = replace_parts(resolution, *THREE_PARTS).pinned_keys()

    assert pinned == {"trunk": "obs", "memory": "obs", "head": "obs"}


def test_part_without_pinned_keys_pins_nothing(catalog):
    resolution = resolve(catalog, Dict({"a": THREE_FEATURES, "b": THREE_FEATURES}))
    trunk = make_part("acme", slot="trunk")
    head = make_part_that_pins_its_path("head")

    assert replace_parts(resolution, trunk, head).pinned_keys() == {"head": "obs"}


def test_pinned_keys_are_for_the_observation_a_part_sees(catalog):
    resolution = resolve(catalog, Dict({"a": THREE_FEATURES, "b": THREE_FEATURES}))
    # A head that reads "b" itself leaves only "a" to trunk and memory.
    head = make_part("h", slot="head", claims=lambda request: ["b"])
    unclaimed = unclaimed_by(head, resolution.request)

    pinned = replace_parts(resolution, *THREE_PARTS, unclaimed=unclaimed).pinned_keys()

    assert pinned == {"trunk": "obs['a']", "memory": "obs['a']", "head": "obs"}


@pytest.mark.parametrize("answer", ["a", ["ab"], {1: 2}, {"a": 1, 2: 3}], ids=repr)
def test_pinned_keys_without_a_dict_of_text_name_the_part(catalog, answer):
    trunk = make_part("acme_net", pinned_keys=lambda request: answer)
    resolution = replace_parts(resolve(catalog), trunk)

    with pytest.raises(PartError, match="its pinned_keys function returned") as caught:
        resolution.pinned_keys()

    assert str(caught.value).startswith("model 'acme_net' (acme 1.0): ")


# --- keys that nothing reads ----------------------------------------------------------------------


def find_unread_keys(catalog, config, *parts):
    """Return the keys that nothing reads, each with what it needs to be read (or "").

    `parts` replace the parts that the config chooses.
    """
    return replace_parts(resolve(catalog, config=config), *parts).unread


def test_ignored_key_is_reported_with_its_condition(catalog):
    trunk = make_part(
        "acme_net",
        reads=("lstm_cell_size", "lstm_use_prev_action"),
        ignores=lambda request: {"lstm_cell_size": "a wide space"},
    )
    config = {"lstm_cell_size": 7, "lstm_use_prev_action": True}

    assert find_unread_keys(catalog, config, trunk) == {"lstm_cell_size": "a wide space"}


def test_ignored_key_is_not_reported_if_another_part_reads_it(catalog):
    trunk = make_part(
        "acme_net",
        reads=("lstm_cell_size",),
        ignores=lambda request: {"lstm_cell_size": "a wide space"},
    )
    head = make_part("acme_head", slot="head", reads=("lstm_cell_size",))

    assert find_unread_keys(catalog, {"lstm_cell_size": 7}, trunk, head) == {}


def test_filter_reads_its_own_keys(catalog):
    resolution = resolve(catalog, config={"lstm_cell_size": 7})
    spec = FilterSpec("half", {"numpy": "m:C"}, "", reads=("lstm_cell_size",))
    choice = Choice(Part(spec, "acme", "1.0"), "")

    resolution = replace(resolution, choices={**resolution.choices, "filter": choice})

    assert resolution.unread == {}
