"""A resolution and its pins: addresses of the parts, shapes, keys that nothing reads, and what a
model sees.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

from rlcatalog import FilterSpec, Match, ModelSpec
from rlcatalog.choice import Pins
from rlcatalog.choice.selection import Choice
from rlcatalog.choice.slots import unclaimed_by
from rlcatalog.errors import MissingPluginError, PartError, UnknownNameError
from rlcatalog.plugins import Component
from rlcatalog_testing import isolated_catalog

BOX, TWO = Box(-1, 1, (3,), np.float32), Discrete(2)
MASKED = Dict({"a": BOX, "b": BOX, "mask": MultiBinary(2)})
PARTS = (
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
    return isolated_catalog(*PARTS)


def resolved(catalog, obs=BOX, action=TWO, config=None):
    return catalog.explain(obs, action, config or {}, "torch").resolution


# --- pins -----------------------------------------------------------------------------------------


def test_pins_are_addresses_of_parts_by_place(catalog):
    config = {"use_lstm": True, "observation_filter": "MeanStdFilter"}
    pins = Pins.of(resolved(catalog, Tuple([BOX, TWO]), Tuple([TWO, BOX]), config)).as_dict()
    assert pins["parts"] == {
        "filter": "rlcatalog-filters/MeanStdFilter",
        "trunk": "rlcatalog-fcnet/fcnet",
        "memory": "rlcatalog-lstm/lstm",
    }
    assert pins["preprocessors"] == {
        "obs": "rlcatalog-preprocessors/tuple",
        "obs[0]": "rlcatalog-preprocessors/none",
        "obs[1]": "rlcatalog-preprocessors/onehot",
    }
    assert pins["action_dists"] == {
        "action": "rlcatalog-multi-action/multi_action",
        "action[0]": "rlcatalog-categorical/categorical",
        "action[1]": "rlcatalog-gaussian/diag_gaussian",
    }
    assert set(pins["versions"]) == set(PARTS)
    assert pins["versions"]["rlcatalog-lstm"] == catalog.registry.get("model", "lstm").version
    assert Pins(**pins).as_dict() == pins


@pytest.mark.parametrize(
    ("pins", "missing"),
    [
        (Pins({"trunk": "rlcatalog-visionnet/visionnet"}), True),
        (Pins({"filter": "rlcatalog-atari/any"}), True),
        (Pins({}, {"obs": "rlcatalog-atari/any"}), True),
        (Pins({}, {}, {"action": "rlcatalog-bounded/beta"}), True),
        (Pins({"memory": "rlcatalog-filters/MeanStdFilter"}), True),  # it is no model
        (Pins({"filter": "rlcatalog-lstm/lstm"}), True),  # it is no filter
        (
            Pins({"memory": "rlcatalog-lstm/lstm", "filter": "rlcatalog-filters/MeanStdFilter"}),
            False,
        ),
        (
            Pins(
                {},
                {"obs": "rlcatalog-preprocessors/none"},
                {"action": "rlcatalog-categorical/categorical"},
            ),
            False,
        ),
    ],
)
def test_pins_are_checked_slot_by_slot(catalog, pins, missing):
    if missing:
        with pytest.raises((MissingPluginError, UnknownNameError)):
            pins.check(catalog.registry)
    else:
        pins.check(catalog.registry)


# --- parts and shapes -----------------------------------------------------------------------------


def test_components_are_those_of_the_given_slots_or_all(catalog):
    resolution = resolved(catalog)
    every = {slot: part.name for slot, part in resolution.components().items()}
    assert every == {"preprocessor": "none", "trunk": "fcnet", "action_dist": "categorical"}
    assert [part.name for part in resolution.components("memory", "trunk").values()] == ["fcnet"]
    assert resolution.components("memory") == {}


def test_weights_belong_to_stages_of_the_model_only(catalog):
    resolution = resolved(
        catalog, config={"fcnet_hiddens": [5], "observation_filter": "MeanStdFilter"}
    )
    shapes = [(stage.name, stage.shape, stage.weights) for stage in resolution.shapes]
    assert shapes[:3] == [
        ("observation", (3,), 0),
        ("preprocessor: none", (3,), 0),
        ("filter: MeanStdFilter", (3,), 0),
    ]
    assert shapes[-2:] == [("categorical: inputs", (2,), 0), ("action", (), 0)]
    # Hidden layer, logits, value.
    assert sum(weights for *_, weights in shapes) == (3 * 5 + 5) + (5 * 2 + 2) + (5 + 1)
    assert (resolution.action.path, resolution.num_outputs) == ("action", 2)


def test_mask_is_visible_if_the_observation_keeps_it(catalog):
    masked = {"action_mask_key": "mask"}
    hidden = resolved(catalog, MASKED, config=masked)
    assert hidden.mask_key == "mask"
    assert not hidden.shows_mask
    assert not resolved(catalog, MASKED).shows_mask  # nothing is a mask
    seen = replace(hidden, request=resolved(catalog, MASKED).request)
    assert seen.shows_mask
    assert not replace(seen, mask_key=None).shows_mask


def test_model_views_have_the_dtype_after_the_filter(catalog):
    image = Box(0, 255, (4, 4, 3), np.uint8)
    for filter_name, dtype in (("NoFilter", "uint8"), ("MeanStdFilter", "float32")):
        config = {"observation_filter": filter_name, "fcnet_hiddens": [4]}
        if filter_name != "NoFilter":
            config["filter_include"] = ["obs"]
        views = resolved(catalog, image, config=config).model_views
        assert views == [("obs", (4, 4, 3), dtype), ("obs_flat", (48,), dtype)]


# --- keys -----------------------------------------------------------------------------------------


def component(name, slot="trunk", distribution="acme", **fields):
    return Component(
        ModelSpec(name, {"torch": "m:C"}, "", slot=slot, **fields), distribution, "1.0"
    )


def pinning(slot, answer):
    def pinned_keys(request):
        return answer if answer is not None else {slot: request.obs.path}

    return component(slot, slot, pinned_keys=pinned_keys)


def with_parts(resolution, *parts, **fields):
    chosen = {part.declaration.slot: Choice(part, "", ((part, Match(None, "")),)) for part in parts}
    return replace(resolution, choices={**resolution.choices, **chosen}, **fields)


def test_pinned_keys_are_for_the_observation_a_part_sees(catalog):
    resolution = resolved(catalog, Dict({"a": BOX, "b": BOX}))
    parts = [pinning(slot, None) for slot in ("trunk", "memory", "head")]
    assert with_parts(resolution, *parts).pinned_keys() == dict.fromkeys(
        ("trunk", "memory", "head"), "obs"
    )
    assert with_parts(resolution, component("plain"), parts[2]).pinned_keys() == {"head": "obs"}
    head = component("h", "head", claims=lambda request: ["b"])
    unclaimed = unclaimed_by(head, resolution.request)
    assert with_parts(resolution, *parts, unclaimed=unclaimed).pinned_keys() == {
        "trunk": "obs['a']",
        "memory": "obs['a']",
        "head": "obs",
    }


@pytest.mark.parametrize("answer", ["a", ["ab"], {1: 2}, {"a": 1, 2: 3}], ids=repr)
def test_pinned_keys_without_a_dict_of_text_name_the_part(catalog, answer):
    resolution = with_parts(resolved(catalog), pinning("trunk", answer))
    with pytest.raises(
        PartError, match=r"model 'trunk' \(acme 1\.0\): its pinned_keys function returned"
    ):
        resolution.pinned_keys()


def unread(catalog, config, *parts, **fields):
    return with_parts(resolved(catalog, config=config), *parts, **fields).unread


def test_unread_engine_defaults_are_not_reported(catalog):
    resolution = catalog.resolve(
        BOX, TWO, {"fcnet_hiddens": [4]}, "torch", defaults={"lstm_cell_size": 7}
    )
    assert resolution.unread == {}
    assert resolved(catalog, config={"lstm_cell_size": 7}).unread == {"lstm_cell_size": ""}


def test_unread_switch_is_reported_only_if_it_is_on(catalog):
    assert unread(catalog, {"use_lstm": False}) == {}
    other = component("other", "memory", reads=("max_seq_len",))
    assert unread(catalog, {"use_lstm": True}, other) == {"use_lstm": ""}


def test_unread_keys_depend_on_the_memory(catalog):
    config = {
        "max_seq_len": 5,
        "no_final_linear": True,
        "vf_memory": "none",
        "fcnet_hiddens": [4],
        "check_observations": "always",
    }
    assert set(unread(catalog, {**config, "use_lstm": True})) == {"no_final_linear"}
    assert set(unread(catalog, config)) == {"max_seq_len", "vf_memory"}
    # It may have a state itself.
    other = component("other", reads=("fcnet_hiddens", "no_final_linear"))
    assert set(unread(catalog, config, other)) == {"vf_memory"}
    assert list(unread(catalog, {"lstm_cell_size": 7, **config})) == [
        "lstm_cell_size",
        "max_seq_len",
        "vf_memory",
    ]


def test_registered_part_without_reads_reads_all_keys(catalog):
    config = {"lstm_cell_size": 7, "post_fcnet_activation": "tanh"}
    for mine, left in (
        (component("mine", distribution=""), set()),
        (component("theirs"), set(config)),
        (component("mine", distribution="", reads=("lstm_cell_size",)), {"post_fcnet_activation"}),
    ):
        assert set(unread(catalog, config, mine)) == left
    assert set(unread(catalog, config, beside=[component("mine", reads=("lstm_cell_size",))])) == {
        "post_fcnet_activation"
    }


def test_ignored_keys_are_reported_with_their_condition(catalog):
    ignoring = component(
        "mine",
        reads=("lstm_cell_size", "lstm_use_prev_action"),
        ignores=lambda request: {"lstm_cell_size": "a wide space"},
    )
    config = {"lstm_cell_size": 7, "lstm_use_prev_action": True}
    assert unread(catalog, config, ignoring) == {"lstm_cell_size": "a wide space"}
    reading = component("h", "head", reads=("lstm_cell_size",))
    assert unread(catalog, config, ignoring, reading) == {}


def test_dependent_key_is_read_if_the_other_key_is_set(catalog):
    for post, left in (([4], {}), ([], {"post_fcnet_activation": "post_fcnet_hiddens"})):
        assert (
            unread(catalog, {"post_fcnet_hiddens": post, "post_fcnet_activation": "tanh"}) == left
        )
    custom = {"custom_model_config": {"a": 1}}
    assert unread(catalog, custom) == {"custom_model_config": "custom_model or custom_preprocessor"}
    assert unread(catalog, {**custom, "custom_model": "fcnet"}) == {}
    assert unread(catalog, {**custom, "custom_preprocessor": "none"}) == {}


def test_filter_reads_its_own_keys(catalog):
    given = Component(
        FilterSpec("half", {"numpy": "m:C"}, "", reads=("lstm_cell_size",)), "acme", "1.0"
    )
    resolution = resolved(catalog, config={"lstm_cell_size": 7})
    assert (
        replace(resolution, choices={**resolution.choices, "filter": Choice(given, "")}).unread
        == {}
    )
