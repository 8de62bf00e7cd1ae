"""Explanations: their plain data for a lookup, and the sections made from it."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rlcatalog import EnvWrapperSpec, Match, ModelSpec, Rank
from rlcatalog.choice import Explanation
from rlcatalog.choice.explanation import Section, explanation_html, explanation_sheet, outline
from rlcatalog.errors import MissingExtraError
from rlcatalog.plugins import Component
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

BOX, TWO = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2)
PARTS = (
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-categorical",
    "rlcatalog-multi-action",
    "rlcatalog-gaussian",
)
SLOTS = ("preprocessor", "filter", "model", "memory", "head", "action_dist")


@pytest.fixture(scope="module")
def catalog():
    spec = ModelSpec("acme_net", {"torch": "m:C"}, "", reads=("fcnet_hiddens",))
    point = PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme")
    return isolated_catalog(*PARTS, point)


# --- data -----------------------------------------------------------------------------------------


def test_explanation_data_is_complete(catalog):
    data = catalog.explain(BOX, TWO, {"fcnet_hiddens": [5, 4]}, "torch").as_dict()
    version = catalog.registry.get("model", "fcnet").version
    model = data["model"]
    assert (model["chosen"], model["distribution"], model["version"]) == (
        "fcnet",
        "rlcatalog-fcnet",
        version,
    )
    assert "fcnet_hiddens" in model["config_keys"]
    first, second = model["candidates"]
    assert (first["name"], first["rank"], first["reason"]) == ("fcnet", "GENERIC", model["reason"])
    assert (second["name"], second["distribution"], second["version"]) == (
        "acme_net",
        "acme",
        "1.0",
    )
    assert second["rank"] is None
    assert "custom_model='acme/acme_net'" in second["reason"]
    empty = data["memory"]
    assert [empty[key] for key in ("chosen", "distribution", "version")] == [None] * 3
    assert (empty["config_keys"], empty["candidates"]) == ([], [])
    assert data["preprocessor"]["chosen"] == "none"
    assert data["action_dist"]["chosen"] == "categorical"
    assert data["shapes"][0] == {"stage": "observation", "shape": [3]}
    assert data["shapes"][-2:] == [
        {"stage": "categorical: inputs", "shape": [2]},
        {"stage": "action", "shape": []},
    ]
    assert data["plan"] == [
        {
            "path": "obs",
            "kind": "box",
            "slice": [0, 3],
            "shape": [3],
            "scaling": "",
            "image": "",
        }
    ]
    assert (data["env"], data["action_mask"], data["env_wrappers"], data["action_parts"]) == (
        None,
        None,
        [],
        [],
    )
    assert "frozen" not in data


def test_explanation_of_named_part_has_its_reason_and_shapes(catalog):
    data = catalog.explain(BOX, TWO, {"custom_model": "acme_net"}, "torch").as_dict()
    first = data["model"]["candidates"][0]
    assert (first["name"], first["rank"], first["reason"]) == (
        "acme_net",
        None,
        data["model"]["reason"],
    )
    own = {stage["stage"]: stage["shape"] for stage in data["shapes"]}
    assert own["acme_net: output"] == [2]
    spaces = gym.spaces.Dict({"a": BOX, "b": TWO})
    shapes = catalog.explain(spaces, gym.spaces.Tuple([TWO, BOX]), {}, "torch").as_dict()
    assert shapes["shapes"][0]["shape"] is None
    assert [(node["path"], node["chosen"]) for node in shapes["action_parts"]] == [
        ("action[0]", "categorical"),
        ("action[1]", "diag_gaussian"),
    ]


def test_explanation_shows_the_path_of_the_action_mask(catalog):
    obs = gym.spaces.Dict({"part": gym.spaces.Dict({"mask": gym.spaces.MultiBinary(2)}), "x": BOX})
    data = catalog.explain(obs, TWO, {"action_mask_key": "part.mask"}, "torch").as_dict()
    assert (data["action_mask"], data["model_sees_mask"]) == ("obs['part']['mask']", False)


def test_explanation_data_has_wrappers_and_frozen_state(catalog):
    resolution = catalog.explain(BOX, TWO, {}, "torch").resolution
    wrappers = tuple(
        (
            Component(EnvWrapperSpec(name, {"numpy": "m:f"}, ""), "acme", "1.0"),
            Match(rank, f"{name} says"),
        )
        for name, rank in (("on", Rank.GENERIC), ("off", None))
    )
    data = Explanation(resolution, frozen="it is", env="Env-v1", wrappers=wrappers).as_dict()
    assert data["env_wrappers"] == [
        {"name": "on", "provider": "acme 1.0", "applied": True, "reason": "on says"},
        {"name": "off", "provider": "acme 1.0", "applied": False, "reason": "off says"},
    ]
    assert (data["frozen"], data["env"]) == ("it is", "Env-v1")


def test_html_begins_with_the_picture_if_it_can_be_drawn(catalog, monkeypatch):
    found = catalog.explain(BOX, TWO, {}, "torch")
    page = explanation_html(found.as_dict())
    monkeypatch.setattr(Explanation, "svg", lambda self: "<svg/>")
    assert found._repr_html_() == "<svg/>" + page

    def cannot(self):
        raise MissingExtraError("no drawing")

    monkeypatch.setattr(Explanation, "svg", cannot)
    assert found._repr_html_() == page


def test_text_leaves_out_parts_that_were_not_chosen(catalog):
    found = catalog.explain(BOX, TWO, {}, "torch")
    assert found.text() == repr(found) == found.text(all=False)
    assert "acme_net" not in found.text()
    assert "acme_net" in found.text(all=True)
    short, opened = explanation_html(found.as_dict()).split("<details>")
    assert "acme_net" not in short
    assert "acme_net" in opened


# --- sections -------------------------------------------------------------------------------------


def candidate(name, rank=None, reason="fits", distribution="acme", version="1.0"):
    return {
        "name": name,
        "distribution": distribution,
        "version": version,
        "rank": rank,
        "reason": reason,
    }


def chosen(*candidates, keys=(), reason="fits"):
    first = candidates[0]
    return {
        "chosen": first["name"],
        "distribution": first["distribution"],
        "version": first["version"],
        "reason": reason,
        "config_keys": list(keys),
        "candidates": list(candidates),
    }


def empty(*candidates):
    return {
        "chosen": None,
        "distribution": None,
        "version": None,
        "reason": "nothing matches",
        "config_keys": [],
        "candidates": list(candidates),
    }


def plan_row(path, start, stop):
    """Return the data of a leaf that a net reads as it is."""
    return {
        "path": path,
        "kind": "box",
        "slice": [start, stop],
        "shape": [stop - start],
        "scaling": "",
        "image": "",
    }


def explained(**changes):
    """The data of an explanation, written by hand."""
    names = {
        "preprocessor: none": [4],
        "net: hidden": [5],
        "value, net: hidden": [6],
        "net: late": None,
        "other: hidden": [9],
        "joint: inputs": [7],
    }
    shapes = {"observation": [3], **names, "action": [2, 8]}
    return {
        "env": None,
        "observation_space": "Box(3,) float32",
        "action_space": "Tuple(Discrete(2))",
        "framework": "torch",
        "preprocessor": chosen(
            candidate("none", "SPECIFIC"), candidate("onehot", None, "no Discrete")
        ),
        "filter": empty(),
        "memory": empty(candidate("lstm", "GENERIC", "is off")),
        "head": empty(),
        "model": chosen(
            candidate("net", None, "named", "", ""), keys=["width", "depth"], reason="named"
        ),
        "action_dist": chosen(candidate("joint", "GENERIC"), candidate("beta", None, "no Box")),
        "action_parts": [
            {
                "path": "action[0]",
                "space": "Discrete(2)",
                **chosen(
                    candidate("cat", "GENERIC"), candidate("gumbel", None, "by name"), keys=["heat"]
                ),
            },
        ],
        "action_ranges": [
            {"path": "action[1]", "mapping": "clipped to the bounds", "problems": []}
        ],
        "unread": [],
        "unused_masks": [],
        "action_mask": None,
        "model_sees_mask": False,
        "plan": [plan_row("obs", 0, 3)],
        "filtered": [],
        "model_sees": [{"name": "obs", "shape": [3], "dtype": "float32"}],
        "shapes": [{"stage": stage, "shape": shape} for stage, shape in shapes.items()],
        "env_wrappers": [],
        **changes,
    }


def sections_of(data, **options):
    return {section.title: section for section in outline(data, **options)[1]}


def test_sections_go_from_observation_to_action():
    titles = [
        "observation",
        "preprocessor: none",
        "filter: -",
        "model: net",
        "memory: -",
        "head: -",
        "action_dist: joint",
        "action",
    ]
    assert list(sections_of(explained())) == titles
    assert list(sections_of(explained(frozen="yes"))) == [*titles[:-1], "frozen", "action"]
    assert sections_of(explained(frozen="yes"))["frozen"] == Section("frozen", "", "yes")


def test_section_has_shape_reason_lines_and_other_parts():
    sections = sections_of(explained())
    assert sections["observation"] == Section("observation", "(3,)", "Box(3,) float32", [])
    assert sections["action"] == Section(
        "action", "(2, 8)", "Tuple(Discrete(2))", [("action[1]", "", "clipped to the bounds")]
    )
    assert sections["preprocessor: none"] == Section(
        "preprocessor: none",
        "(4,)",
        "fits (SPECIFIC)",
        [("obs", "(3,)", "box, 0:3")],
        "acme 1.0",
        [("onehot", "no Discrete (acme 1.0)")],
    )
    model = sections["model: net"]
    assert (model.shape, model.why, model.owner) == ("", "named", "this process")
    assert model.lines[0][1:] == ("(B, 3)", "float32")
    assert [line[:2] for line in model.lines[1:3]] == [
        ("net: hidden", "(5,)"),
        ("value, net: hidden", "(6,)"),
    ]
    assert model.lines[3][0] == "net: late"
    assert "(" not in model.lines[3][1]  # a text, because the shape is not known yet
    assert len(model.lines) == 4
    memory = sections["memory: -"]
    assert memory == Section(
        "memory: -", "", "nothing matches", others=[("lstm", "is off (acme 1.0, GENERIC)")]
    )
    dist = sections["action_dist: joint"]
    assert dist.others == [
        ("beta", "no Box (acme 1.0)"),
        ("action[0]: gumbel", "by name (acme 1.0)"),
    ]
    assert dist.lines[0] == ("action[0]", "", "Discrete(2): cat, fits (acme 1.0, GENERIC)")
    assert dist.lines[1:] == [("joint: inputs", "(7,)", "")]


def test_section_of_composite_space_has_no_shape():
    data = explained(
        shapes=[{"stage": "observation", "shape": None}, {"stage": "action", "shape": []}]
    )
    sections = sections_of(data)
    assert (sections["observation"].shape, sections["action"].shape) == ("", "()")


@pytest.mark.parametrize("count", [23, 24, 25, 30])
def test_long_lists_are_cut_to_24_lines_unless_all_are_wanted(count):
    plan = [{**plan_row(f"obs[{i}]", i, i + 1), "shape": []} for i in range(count)]
    stages = [{"stage": f"net: hidden {i}", "shape": [i]} for i in range(count)]
    data = explained(
        plan=plan,
        shapes=[{"stage": "observation", "shape": [1]}, *stages, {"stage": "a", "shape": [1]}],
    )
    for title, own in (("preprocessor: none", 0), ("model: net", 1)):
        cut, whole = (sections_of(data, whole=whole)[title].lines[own:] for whole in (False, True))
        assert len(whole) == count
        assert sections_of(data)[title].lines[own:] == cut
        assert len(cut) == min(count, 25)
        assert cut[:23] == whole[:23]
        assert [line for line in cut if line[0].startswith("...")] == (
            [(f"... {count - 24} more", "", "")] if count > 24 else []
        )


def test_mask_is_shown_with_the_observation():
    unseen = sections_of(explained(action_mask="obs['mask']"))["observation"].lines
    seen = sections_of(explained(action_mask="obs['mask']", model_sees_mask=True))[
        "observation"
    ].lines
    assert [line[1] for line in (*unseen, *seen)] == ["", ""]
    assert all("obs['mask']" in line[2] for line in (*unseen, *seen))
    assert unseen != seen


def test_title_names_the_environment():
    assert "CartPole-v1, " in outline(explained(env="CartPole-v1"))[0]
    title = outline(explained())[0]
    assert "torch" in title
    assert "," not in title


def test_notes_name_keys_that_are_read_and_unread():
    data = explained(unread=["dim", "grayscale"], unused_masks=["obs['mask']"])
    assert [text for _, text in outline(data)[2]] == ["dim, grayscale", "obs['mask']"]
    notes = outline(data, keys=True)[2]
    assert [text for _, text in notes] == ["width, depth", "heat", "dim, grayscale", "obs['mask']"]
    assert [name.partition(" ")[0] for name, _ in notes[:2]] == ["model", "action[0]"]
    assert outline(explained())[2] == []


def test_notes_name_actions_that_are_hard_to_reach():
    box = {"path": "action[1]", "mapping": "clipped to the bounds", "problems": ["far", "wide"]}
    notes = outline(explained(action_ranges=[box]))[2]
    assert notes == [("hard to reach", "far"), ("hard to reach", "wide")]


def test_wrapper_sections_come_first_and_list_unmatched_ones():
    on = [
        {"name": name, "provider": "acme 1.0", "applied": True, "reason": "fits"}
        for name in ("x", "y")
    ]
    off = {"name": "z", "provider": "zeta 2.0", "applied": False, "reason": "no game"}
    others = [("z", "no game (zeta 2.0)")]

    def wrappers(*given):
        sections = outline(explained(env_wrappers=list(given)))[1]
        return [section for section in sections if section.title.startswith("env_wrapper")]

    assert wrappers() == []
    first, second = (
        Section(f"env_wrapper: {name}", "", "fits", owner="acme 1.0") for name in ("x", "y")
    )
    assert wrappers(*on) == [first, second]
    with_others = Section("env_wrapper: x", "", "fits", owner="acme 1.0", others=others)
    assert wrappers(on[0], off, on[1]) == [with_others, second]
    (none,) = wrappers(off)
    assert (none.title, none.others, none.owner) == ("env_wrapper: -", others, "")


def test_sheet_shows_the_sections_as_rows():
    short, whole = (explanation_sheet(explained(), all=all) for all in (False, True))
    ((_, *rows),) = short.tables.values()
    assert rows[:3] == [
        ("observation", "(3,)", "Box(3,) float32"),
        ("preprocessor: none", "(4,)", "fits (SPECIFIC)"),
        ("  from", "", "acme 1.0"),
    ]
    assert rows[3] == ("  obs", "(3,)", "box, 0:3")
    assert rows[4][0] == "filter: -"  # an empty slot comes from no package
    (note,) = short.notes
    assert note[1].startswith("4 ")  # onehot, lstm, beta, gumbel
    ((_, *all_rows),) = whole.tables.values()
    extra = [row for row in all_rows if row not in rows]
    assert [row[1:] for row in extra] == [
        ("", "no Discrete (acme 1.0)"),
        ("", "is off (acme 1.0, GENERIC)"),
        ("", "no Box (acme 1.0)"),
        ("", "by name (acme 1.0)"),
    ]
    assert [text for _, text in whole.notes] == ["width, depth", "heat"]
