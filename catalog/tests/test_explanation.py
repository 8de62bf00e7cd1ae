"""Explanations: their plain data for a lookup, and the sections made from it."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

from rlcatalog import EnvWrapperSpec, Match, ModelSpec, Rank, Stage
from rlcatalog.choice import Explanation
from rlcatalog.choice.explanation import Section, explanation_html, explanation_sheet, outline
from rlcatalog.errors import MissingExtraError
from rlcatalog.plugins import Part
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = Discrete(2)
#: Weights and biases of a net with three inputs, hidden layers of 5 and 4, two logits, one value.
WEIGHTS = (3 * 5 + 5) + (5 * 4 + 4) + (4 * 2 + 2) + (4 + 1)


@pytest.fixture(scope="module")
def catalog():
    """A catalog of some built-in parts, and of "acme_net", which is only chosen by its name."""
    spec = ModelSpec("acme_net", {"torch": "m:C"}, "", reads=("fcnet_hiddens",))
    return isolated_catalog(
        "rlcatalog-preprocessors",
        "rlcatalog-fcnet",
        "rlcatalog-categorical",
        "rlcatalog-multi-action",
        "rlcatalog-gaussian",
        PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme"),
    )


@pytest.fixture(scope="module")
def data(catalog):
    """The explanation of a network with layers of 5 and 4 for a vector and two actions."""
    return catalog.explain(
        THREE_FEATURES, TWO_ACTIONS, {"fcnet_hiddens": [5, 4]}, "torch"
    ).as_dict()


# --- data -----------------------------------------------------------------------------------------


def test_data_of_a_slot_has_the_chosen_part(catalog, data):
    version = catalog.registry.get("model", "fcnet").version

    assert data["model"]["chosen"] == "fcnet"
    assert data["model"]["distribution"] == "rlcatalog-fcnet"
    assert data["model"]["version"] == version
    assert "fcnet_hiddens" in data["model"]["config_keys"]
    assert data["preprocessor"]["chosen"] == "none"
    assert data["action_dist"]["chosen"] == "categorical"


def test_data_of_a_slot_has_all_candidates(data):
    fcnet, acme_net = data["model"]["candidates"]

    assert fcnet["name"] == "fcnet"
    assert fcnet["rank"] == "GENERIC"
    assert fcnet["reason"] == data["model"]["reason"]

    # It is only chosen by its name, so that it has no rank.
    assert acme_net["name"] == "acme_net"
    assert acme_net["distribution"] == "acme"
    assert acme_net["version"] == "1.0"
    assert acme_net["rank"] is None
    assert "custom_model='acme/acme_net'" in acme_net["reason"]


def test_data_of_an_empty_slot_has_no_part(data):
    memory = data["memory"]

    assert memory["chosen"] is None
    assert memory["distribution"] is None
    assert memory["version"] is None
    assert memory["config_keys"] == []
    assert memory["candidates"] == []


def test_data_of_a_named_part_has_the_reason_of_the_choice(catalog):
    data = catalog.explain(
        THREE_FEATURES, TWO_ACTIONS, {"custom_model": "acme_net"}, "torch"
    ).as_dict()

    acme_net = data["model"]["candidates"][0]
    assert acme_net["name"] == "acme_net"
    assert acme_net["rank"] is None
    assert acme_net["reason"] == data["model"]["reason"]


def test_data_has_shapes_from_observation_to_action(data):
    assert data["shapes"][0] == {"stage": "observation", "shape": [3]}
    assert data["shapes"][-2:] == [
        {"stage": "categorical: inputs", "shape": [2]},  # a logit for each action
        {"stage": "action", "shape": []},
    ]


def test_data_has_output_shape_of_a_model_without_description(catalog):
    data = catalog.explain(
        THREE_FEATURES, TWO_ACTIONS, {"custom_model": "acme_net"}, "torch"
    ).as_dict()

    assert {"stage": "acme_net: output", "shape": [2]} in data["shapes"]


def test_data_of_a_dict_has_no_observation_shape(catalog):
    data = catalog.explain(
        Dict({"a": THREE_FEATURES, "b": TWO_ACTIONS}), TWO_ACTIONS, {}, "torch"
    ).as_dict()

    assert data["shapes"][0] == {"stage": "observation", "shape": None}


def test_data_has_the_plan_of_the_observation(data):
    assert data["plan"] == [
        {
            "path": "obs",
            "kind": "box",
            "slice": [0, 3],  # of the numbers that the net reads
            "shape": [3],
            "scaling": "",
            "image": "",
        }
    ]


def test_data_has_the_distribution_of_each_part_of_an_action(catalog):
    data = catalog.explain(
        THREE_FEATURES, Tuple([TWO_ACTIONS, THREE_FEATURES]), {}, "torch"
    ).as_dict()

    chosen = {part["path"]: part["chosen"] for part in data["action_parts"]}
    assert chosen == {"action[0]": "categorical", "action[1]": "diag_gaussian"}


def test_data_of_two_spaces_has_nothing_else(data):
    assert data["env"] is None
    assert data["action_mask"] is None
    assert data["env_wrappers"] == []
    assert data["action_parts"] == []
    assert "frozen" not in data


def test_data_has_the_path_of_the_action_mask(catalog):
    obs = Dict({"part": Dict({"mask": MultiBinary(2)}), "x": THREE_FEATURES})

    data = catalog.explain(obs, TWO_ACTIONS, {"action_mask_key": "part.mask"}, "torch").as_dict()

    assert data["action_mask"] == "obs['part']['mask']"
    assert data["model_sees_mask"] is False


def test_data_has_the_environment_and_its_wrappers(catalog):
    resolution = catalog.explain(THREE_FEATURES, TWO_ACTIONS, {}, "torch").resolution
    applied = Part(EnvWrapperSpec("crop", {"numpy": "m:f"}, ""), "acme", "1.0")
    refused = Part(EnvWrapperSpec("skip", {"numpy": "m:f"}, ""), "acme", "1.0")
    wrappers = (
        (applied, Match(Rank.GENERIC, "an image")),
        (refused, Match(None, "no frames")),
    )

    data = Explanation(resolution, env="Env-v1", wrappers=wrappers).as_dict()

    assert data["env"] == "Env-v1"
    assert data["env_wrappers"] == [
        {"name": "crop", "provider": "acme 1.0", "applied": True, "reason": "an image"},
        {"name": "skip", "provider": "acme 1.0", "applied": False, "reason": "no frames"},
    ]


def test_data_of_a_frozen_policy_has_an_entry(catalog):
    resolution = catalog.explain(THREE_FEATURES, TWO_ACTIONS, {}, "torch").resolution

    data = Explanation(resolution, frozen="acts faster").as_dict()

    assert data["frozen"] == "acts faster"


def test_data_has_the_number_of_weights(catalog, data):
    config = {"custom_model": "acme_net"}
    unknown = catalog.explain(THREE_FEATURES, TWO_ACTIONS, config, "torch").as_dict()

    assert data["weights"] == WEIGHTS
    assert unknown["weights"] is None  # acme_net does not declare its stages


def test_weights_are_unknown_if_a_part_knows_only_a_lower_bound():
    def describe(request):
        return [Stage("features", (3,), weights=12, whole=False)]

    spec = ModelSpec("acme_net", {"torch": "m:C"}, "", describe=describe)
    catalog = isolated_catalog(
        "rlcatalog-preprocessors",
        "rlcatalog-categorical",
        PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme"),
    )

    config = {"custom_model": "acme_net"}
    explanation = catalog.explain(THREE_FEATURES, TWO_ACTIONS, config, "torch")

    assert explanation.as_dict()["weights"] is None


def test_data_has_the_parts_that_do_not_learn(catalog, data):
    config = {"freeze_parts": ["trunk"]}
    frozen = catalog.explain(THREE_FEATURES, TWO_ACTIONS, config, "torch").as_dict()

    assert frozen["frozen_parts"] == ["trunk"]
    assert data["frozen_parts"] == []


# --- output formats -------------------------------------------------------------------------------


def test_notebook_shows_the_picture_and_the_html(catalog, monkeypatch):
    explanation = catalog.explain(THREE_FEATURES, TWO_ACTIONS, {}, "torch")
    monkeypatch.setattr(Explanation, "svg", lambda self: "<svg/>")

    assert explanation._repr_html_() == "<svg/>" + explanation_html(explanation.as_dict())


def test_notebook_shows_only_html_without_the_drawing_library(catalog, monkeypatch):
    def svg(self):
        raise MissingExtraError("drawsvg is not installed")

    explanation = catalog.explain(THREE_FEATURES, TWO_ACTIONS, {}, "torch")
    monkeypatch.setattr(Explanation, "svg", svg)

    assert explanation._repr_html_() == explanation_html(explanation.as_dict())


def test_html_hides_parts_that_were_not_chosen(data):
    always_visible, opened_by_a_click = explanation_html(data).split("<details>")

    assert "acme_net" not in always_visible
    assert "acme_net" in opened_by_a_click


# --- sections -------------------------------------------------------------------------------------


def make_candidate(name, *, rank=None, reason="fits", distribution="acme", version="1.0"):
    return {
        "name": name,
        "distribution": distribution,
        "version": version,
        "rank": rank,
        "reason": reason,
    }


def make_slot(chosen, *others, keys=()):
    """Return the data of a slot that is filled by the first of these candidates.

    `keys` are the config keys that it reads.
    """
    return {
        "chosen": chosen["name"],
        "distribution": chosen["distribution"],
        "version": chosen["version"],
        "reason": chosen["reason"],
        "config_keys": list(keys),
        "candidates": [chosen, *others],
    }


def leave_empty(*candidates):
    """Return the data of a slot in which none of these candidates was chosen."""
    return {
        "chosen": None,
        "distribution": None,
        "version": None,
        "reason": "nothing matches",
        "config_keys": [],
        "candidates": list(candidates),
    }


def make_leaf(path, start, stop):
    """Return the data of a leaf of the observation that a net reads as it is."""
    return {
        "path": path,
        "kind": "box",
        "slice": [start, stop],
        "shape": [stop - start],
        "scaling": "",
        "image": "",
    }


def make_shapes(**shapes):
    """Return the data of shapes: those of the stages between observation (3,) and action (2, 8)."""
    shapes = {"observation": [3], **shapes, "action": [2, 8]}
    return [{"stage": stage, "shape": shape} for stage, shape in shapes.items()]


def make_data(**changes):
    """Return the data of an explanation, in which all slots are empty, with these changes."""
    slots = ("preprocessor", "filter", "model", "memory", "head", "action_dist")
    return {
        "env": None,
        "observation_space": "Box(3,) float32",
        "action_space": "MultiDiscrete([2 8])",
        "framework": "torch",
        "weights": None,
        "frozen_parts": [],
        **{slot: leave_empty() for slot in slots},
        "action_parts": [],
        "action_ranges": [],
        "unread": [],
        "unused_masks": [],
        "action_mask": None,
        "model_sees_mask": False,
        "plan": [],
        "filtered": [],
        "model_sees": [],
        "shapes": make_shapes(),
        "env_wrappers": [],
        **changes,
    }


def make_sections(data, **options):
    """Return the sections of an explanation by title."""
    _, _, sections, _ = outline(data, **options)
    return {section.title: section for section in sections}


def make_notes(data, **options):
    _, _, _, notes = outline(data, **options)
    return notes


def test_sections_go_from_observation_to_action():
    # The other slots are empty.
    data = make_data(
        preprocessor=make_slot(make_candidate("none")),
        model=make_slot(make_candidate("net")),
        action_dist=make_slot(make_candidate("joint")),
    )

    assert list(make_sections(data)) == [
        "observation",
        "preprocessor: none",
        "filter: -",
        "model: net",
        "memory: -",
        "head: -",
        "action_dist: joint",
        "action",
    ]


def test_section_of_frozen_policy_comes_before_the_action():
    sections = make_sections(make_data(frozen="acts faster"))

    assert list(sections)[-2:] == ["frozen", "action"]
    assert sections["frozen"] == Section("frozen", part="", shape="", why="acts faster")


def test_section_of_observation_has_its_space():
    section = make_sections(make_data())["observation"]

    assert section == Section(
        "observation", part="", shape="(3,)", why="Box(3,) float32", branches=[]
    )


def test_section_of_observation_with_parts_has_no_shape():
    shapes = [{"stage": "observation", "shape": None}, {"stage": "action", "shape": []}]
    sections = make_sections(make_data(shapes=shapes))

    assert sections["observation"].shape == ""
    assert sections["action"].shape == "()"


def test_section_of_action_has_its_ranges():
    ranges = [{"path": "action[1]", "mapping": "clipped to the bounds", "problems": []}]

    section = make_sections(make_data(action_ranges=ranges))["action"]

    lines = [("action[1]", "", "clipped to the bounds")]
    assert section == Section(
        "action", part="", shape="(2, 8)", why="MultiDiscrete([2 8])", lines=lines
    )


def test_section_of_preprocessor_lists_the_leaves():
    data = make_data(
        preprocessor=make_slot(
            make_candidate("none", rank="SPECIFIC", reason="fits"),
            make_candidate("onehot", rank=None, reason="no Discrete"),
        ),
        plan=[make_leaf("obs", 0, 3)],  # the numbers 0 to 2
        shapes=make_shapes(**{"preprocessor: none": [4]}),
    )

    assert make_sections(data)["preprocessor: none"] == Section(
        "preprocessor",
        part="none",
        shape="(4,)",
        why="fits (SPECIFIC)",
        branches=[("obs", "(3,)", "box, 0:3")],
        lines=[],
        owner="acme 1.0",
        others=[("onehot", "no Discrete (acme 1.0)")],
    )


def test_section_of_model_lists_inputs_and_its_own_stages():
    shapes = {
        "net: hidden": [5],
        "value, net: hidden": [6],  # the layers of a separate value network
        "other: hidden": [9],  # of another model, not listed
    }
    data = make_data(
        model=make_slot(make_candidate("net")),
        model_sees=[{"name": "obs", "shape": [3], "dtype": "float32"}],
        shapes=make_shapes(**shapes),
    )

    inputs, *stages = make_sections(data)["model: net"].lines

    assert inputs[1:] == ("(B, 3)", "float32")  # B is the size of the batch
    assert stages == [("net: hidden", "(5,)", ""), ("value, net: hidden", "(6,)", "")]


def test_section_of_model_describes_unknown_shapes_in_words():
    data = make_data(
        model=make_slot(make_candidate("net")), shapes=make_shapes(**{"net: hidden": None})
    )

    [(name, shape, _)] = make_sections(data)["model: net"].lines

    assert name == "net: hidden"
    assert "(" not in shape


def test_section_of_registered_part_has_this_process_as_owner():
    net = make_candidate("net", reason="named", distribution="", version="")

    section = make_sections(make_data(model=make_slot(net)))["model: net"]

    assert section.shape == ""  # the lines show the shapes
    assert section.why == "named"
    assert section.owner == "this process"


def test_section_of_empty_slot_lists_the_candidates():
    lstm = make_candidate("lstm", rank="GENERIC", reason="is off")

    section = make_sections(make_data(memory=leave_empty(lstm)))["memory: -"]

    others = [("lstm", "is off (acme 1.0, GENERIC)")]
    assert section == Section("memory", part="-", shape="", why="nothing matches", others=others)


def test_section_of_distribution_lists_the_parts_of_the_action():
    part = make_slot(
        make_candidate("cat", rank="GENERIC", reason="fits"),
        make_candidate("gumbel", reason="by name"),
    )
    data = make_data(
        action_dist=make_slot(make_candidate("joint"), make_candidate("beta", reason="no Box")),
        action_parts=[{"path": "action[0]", "space": "Discrete(2)", **part}],
        shapes=make_shapes(**{"joint: inputs": [7]}),
    )

    section = make_sections(data)["action_dist: joint"]

    assert section.branches == [("action[0]", "", "Discrete(2): cat, fits (acme 1.0, GENERIC)")]
    assert section.lines == [("joint: inputs", "(7,)", "")]
    assert section.others == [
        ("beta", "no Box (acme 1.0)"),
        ("action[0]: gumbel", "by name (acme 1.0)"),
    ]


def make_long_lines(count, **options):
    """Return the lines about `count` leaves, and those about `count` layers."""
    data = make_data(
        preprocessor=make_slot(make_candidate("none")),
        model=make_slot(make_candidate("net")),
        plan=[make_leaf(f"obs[{i}]", i, i + 1) for i in range(count)],
        shapes=make_shapes(**{f"net: hidden {i}": [i] for i in range(count)}),
    )
    sections = make_sections(data, **options)
    return sections["preprocessor: none"].branches, sections["model: net"].lines


def test_long_list_of_lines_is_cut_to_24():
    for lines in make_long_lines(count=30):
        assert len(lines) == 25
        assert lines[-1] == ("... 6 more", "", "")


def test_list_of_24_lines_is_whole():
    leaves, layers = make_long_lines(count=24)

    assert leaves[-1][0] == "obs[23]"
    assert layers[-1][0] == "net: hidden 23"


def test_long_list_of_lines_is_whole_if_all_are_wanted():
    leaves, layers = make_long_lines(count=30, whole=True)

    assert [path for path, _, _ in leaves] == [f"obs[{i}]" for i in range(30)]
    assert [name for name, _, _ in layers] == [f"net: hidden {i}" for i in range(30)]


def test_mask_is_shown_with_the_observation():
    hidden = make_data(action_mask="obs['mask']", model_sees_mask=False)
    visible = make_data(action_mask="obs['mask']", model_sees_mask=True)

    [(_, _, note_on_hidden_mask)] = make_sections(hidden)["observation"].branches
    [(_, _, note_on_visible_mask)] = make_sections(visible)["observation"].branches

    assert "obs['mask']" in note_on_hidden_mask
    assert "obs['mask']" in note_on_visible_mask
    assert note_on_hidden_mask != note_on_visible_mask


def make_wrapper(name, *, applied, reason="fits"):
    return {"name": name, "provider": "acme 1.0", "applied": applied, "reason": reason}


def make_wrapper_section(name, others=()):
    """Return the section about a wrapper that is applied."""
    return Section("env_wrapper", part=name, shape="", why="fits", owner="acme 1.0", others=others)


def make_wrapper_sections(*wrappers):
    """Return the sections about wrappers, which stand before the one about the observation."""
    _, _, sections, _ = outline(make_data(env_wrappers=list(wrappers)))
    end = [section.title for section in sections].index("observation")
    return sections[:end]


def test_environment_without_wrappers_has_no_section_about_them():
    assert make_wrapper_sections() == []


def test_applied_wrappers_have_a_section_each():
    sections = make_wrapper_sections(
        make_wrapper("x", applied=True), make_wrapper("y", applied=True)
    )

    assert sections == [make_wrapper_section("x"), make_wrapper_section("y")]


def test_first_wrapper_section_lists_wrappers_that_were_refused():
    sections = make_wrapper_sections(
        make_wrapper("x", applied=True),
        make_wrapper("z", applied=False, reason="no game"),
        make_wrapper("y", applied=True),
    )

    refused = [("z", "no game (acme 1.0)")]
    assert sections == [make_wrapper_section("x", others=refused), make_wrapper_section("y")]


def test_refused_wrappers_alone_have_an_empty_section():
    [section] = make_wrapper_sections(make_wrapper("z", applied=False, reason="no game"))

    assert section.title == "env_wrapper: -"
    assert section.others == [("z", "no game (acme 1.0)")]
    assert section.owner == ""


# --- overview -------------------------------------------------------------------------------------


def make_overview(**changes):
    """Return the texts of the overview by name."""
    _, overview, _, _ = outline(make_data(**changes))
    return dict(overview)


def test_overview_names_the_part_in_each_slot():
    overview = make_overview(model=make_slot(make_candidate("net")))

    assert overview["model"] == "net"
    assert overview["memory"] == "-"


def test_overview_has_the_number_of_weights():
    assert make_overview(weights=1_234_567)["weights"] == "1,234,567"
    assert make_overview(weights=None)["weights"].startswith("known after build")


def test_overview_has_the_parts_that_do_not_learn():
    overview = make_overview(frozen_parts=["trunk", "value"])

    assert overview["does not learn"] == "trunk, value"
    assert "does not learn" not in make_overview()


def test_overview_has_the_parts_of_a_critic():
    critic = {
        "model": make_slot(make_candidate("net")),
        "memory": leave_empty(),
        "model_sees": [],
        "unread": [],
        "unseen": [],
        "makes_recurrent": False,
    }

    overview = make_overview(critic=critic)

    assert overview["critic"] == "net"
    assert overview["critic memory"] == "-"


# --- title and notes ------------------------------------------------------------------------------


def test_title_names_environment_and_framework():
    title_of_spaces, *_ = outline(make_data())
    title_of_env, *_ = outline(make_data(env="CartPole-v1"))

    assert title_of_spaces == "framework: torch"
    assert title_of_env == "CartPole-v1, framework: torch"


def test_explanation_without_problems_has_no_notes():
    assert make_notes(make_data()) == []


def test_notes_name_unread_keys_and_unused_masks():
    data = make_data(unread=["dim", "grayscale"], unused_masks=["obs['mask']"])

    assert make_notes(data) == [
        ("not read by any part", "dim, grayscale"),
        ("not used as action masks", "obs['mask']"),
    ]


def test_notes_begin_with_the_keys_that_parts_read():
    part = make_slot(make_candidate("cat"), keys=["heat"])
    data = make_data(
        model=make_slot(make_candidate("net"), keys=["width", "depth"]),
        action_parts=[{"path": "action[0]", "space": "Discrete(2)", **part}],
        unread=["dim"],
    )

    assert make_notes(data, keys=True) == [
        ("model reads", "width, depth"),
        ("action[0] reads", "heat"),
        ("not read by any part", "dim"),
    ]
    assert make_notes(data) == [("not read by any part", "dim")]


def test_notes_name_actions_that_are_hard_to_reach():
    box = {"path": "action[1]", "mapping": "clipped to the bounds", "problems": ["far", "wide"]}

    notes = make_notes(make_data(action_ranges=[box]))

    assert notes == [("hard to reach", "far"), ("hard to reach", "wide")]


# --- the sheet ------------------------------------------------------------------------------------


@pytest.fixture
def data_with_losers():
    """The data of an explanation with three candidates that were not chosen."""
    part = make_slot(
        make_candidate("cat"), make_candidate("gumbel", reason="by name"), keys=["heat"]
    )
    return make_data(
        preprocessor=make_slot(
            make_candidate("none", rank="SPECIFIC"), make_candidate("onehot", reason="no Discrete")
        ),
        model=make_slot(make_candidate("net"), keys=["width", "depth"]),
        memory=leave_empty(make_candidate("lstm", rank="GENERIC", reason="is off")),
        action_parts=[{"path": "action[0]", "space": "Discrete(2)", **part}],
        plan=[make_leaf("obs", 0, 3)],
        shapes=make_shapes(**{"preprocessor: none": [4]}),
    )


def read_rows(sheet):
    """Return the rows of the sections, without the table's empty header."""
    _, *rows = sheet.tables[""]
    return rows


def test_sheet_shows_the_sections_as_rows():
    data = make_data(
        preprocessor=make_slot(make_candidate("none", rank="SPECIFIC", distribution="acme")),
        plan=[make_leaf("obs", 0, 3)],
        shapes=make_shapes(**{"preprocessor: none": [4]}),
    )

    rows = read_rows(explanation_sheet(data))

    assert rows[:5] == [
        ("observation", "(3,)", "Box(3,) float32"),
        ("preprocessor: none", "(4,)", "fits (SPECIFIC)"),
        ("  from", "", "acme 1.0"),
        ("  obs", "(3,)", "box, 0:3"),
        ("filter: -", "", "nothing matches"),
    ]


def test_sheet_begins_with_the_overview(data):
    overview, sections = explanation_sheet(data).tables.items()

    assert overview == (
        "parts",
        [
            (),  # the columns have no names
            ("preprocessor", "none"),
            ("filter", "-"),
            ("model", "fcnet"),
            ("memory", "-"),
            ("head", "-"),
            ("action_dist", "categorical"),
            ("weights", str(WEIGHTS)),
        ],
    )
    title_of_sections, _ = sections
    assert title_of_sections == ""


def test_sheet_counts_the_parts_it_does_not_show(data_with_losers):
    [(_, text)] = explanation_sheet(data_with_losers).notes

    assert text.startswith("3 other parts")  # onehot, lstm and gumbel


def test_whole_sheet_shows_parts_that_were_not_chosen(data_with_losers):
    short_rows = read_rows(explanation_sheet(data_with_losers))

    rows = read_rows(explanation_sheet(data_with_losers, all=True))

    assert [row for row in rows if row not in short_rows] == [
        ("  not chosen: onehot", "", "no Discrete (acme 1.0)"),
        ("  not chosen: lstm", "", "is off (acme 1.0, GENERIC)"),
        ("  not chosen: action[0]: gumbel", "", "by name (acme 1.0)"),
    ]
