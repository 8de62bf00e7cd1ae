"""Explanation of a lookup: plain data, and the sections shown as text, as HTML and in
the picture.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rlcatalog import provided
from rlcatalog.choice.resolution import Resolution
from rlcatalog.choice.selection import Choice, Verdict
from rlcatalog.choice.sheet import ROWS, Row, Sheet
from rlcatalog.config.kernel_keys import KernelConfig
from rlcatalog.errors import MissingExtraError, MissingPluginError
from rlcatalog.observations import Leaf
from rlcatalog.observations.embeddings import embedded_leaves
from rlcatalog.spaces import ImageLayout, SpaceInfo, is_in_part, write_path
from rlcatalog.spaces.images import lacks_channel_axis

#: What an explanation calls the slots, in its order → the slots.
_SLOTS = {
    "preprocessor": "preprocessor",
    "filter": "filter",
    "model": "trunk",
    "memory": "memory",
    "head": "head",
    "action_dist": "action_dist",
}
#: The slots whose lines are branches: the leaves of an observation, and the parts of an action.
_BRANCHING_SLOTS = ("preprocessor", "action_dist")


@dataclass(frozen=True, repr=False)
class Explanation:
    """Reasons for a lookup's choices; shown as text, or as HTML in notebooks.

    Attributes:
        resolution: The choices.
        frozen: For a frozen policy, whether it acts faster and, if not, why. Otherwise None.
        env: Name of the environment; empty if two spaces were given.
        wrappers: Each installed environment wrapper's answer.
    """

    resolution: Resolution
    frozen: str | None = None
    env: str = ""
    wrappers: tuple[Verdict, ...] = ()

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        html = explanation_html(self.as_dict())
        with suppress(MissingExtraError, MissingPluginError):  # then it has no picture
            return self.svg() + html
        return html

    def text(self, *, all: bool = False) -> str:
        """Return the explanation as text, which `rlcatalog explain` prints.

        Args:
            all: Also show the parts that were not chosen, the config keys that each part
                reads, and complete lists.
        """
        return explanation_sheet(self.as_dict(), all=all).text()

    def svg(self, *, all: bool = False) -> str:
        """Return a picture of the way from observation to action, with the part in each slot.

        Args:
            all: Also show empty slots, the parts that were not chosen, and the config keys that
                each part reads.

        Raises:
            MissingPluginError: rlcatalog-cli, which draws it, is not installed.
            MissingExtraError: drawsvg is not installed.
        """
        svg: str = provided.pipeline_svg(self.as_dict(), all=all)
        return svg

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, as printed by `--json`.

        All other formats are generated from it.
        """
        resolution = self.resolution
        data: dict[str, Any] = {
            "env": self.env or None,
            "observation_space": resolution.request.obs.describe(),
            "action_space": resolution.action.describe(),
            "framework": resolution.framework,
            "weights": resolution.num_weights,
            "frozen_parts": list(resolution.config["freeze_parts"]),
        }
        for name, slot in _SLOTS.items():
            data[name] = self._choice(resolution.choices[slot])
        data |= {
            "action_parts": self._action_parts(),
            "action_ranges": self._action_ranges(),
            "unread": list(resolution.unread),
            "action_mask": self._place_of_mask(),
            "model_sees_mask": resolution.shows_mask,
            "unused_masks": list(resolution.unused_masks),
            "plan": self._plan(),
            "filtered": self._filtered_paths(),
            "model_sees": _model_inputs(resolution),
            "shapes": self._shapes_of_stages(),
            "env_wrappers": self._answers_of_wrappers(),
        }
        if resolution.critic is not None:
            data["critic"] = self._critic(resolution.critic)
        frozen_parts = resolution.config["freeze_parts"]
        if frozen_parts:
            data["freeze_parts"] = list(frozen_parts)
        init = resolution.config["init"]
        if init != KernelConfig().init:
            data["init"] = init
        if self.frozen is not None:
            data["frozen"] = self.frozen
        return data

    def _critic(self, critic: Resolution) -> dict[str, Any]:
        """Return the parts of a critic of its own, and what it sees."""
        policy_has_memory = self.resolution.choices["memory"].part is not None
        critic_has_memory = critic.choices["memory"].part is not None
        return {
            "model": self._choice(critic.choices["trunk"]),
            "memory": self._choice(critic.choices["memory"]),
            "model_sees": _model_inputs(critic),
            "unread": list(critic.unread),
            "unseen": list(self.resolution.unseen),
            "makes_recurrent": critic_has_memory and not policy_has_memory,
        }

    def _action_parts(self) -> list[dict[str, Any]]:
        """Return the distributions inside a joint one."""
        parts = []
        for child in self.resolution.dists.children:
            for node in child.walk():
                where = {"path": node.info.path, "space": node.info.describe()}
                parts.append(where | self._choice(node.choice))
        return parts

    def _action_ranges(self) -> list[dict[str, Any]]:
        """Return how the values of each Box action are reached from raw values."""
        return [
            {"path": entry.path, "mapping": entry.mapping, "problems": list(entry.problems)}
            for entry in self.resolution.action_ranges
        ]

    def _place_of_mask(self) -> str | None:
        """Return where the action mask is in an observation, as an expression."""
        key_path = self.resolution.mask_key_path
        if not key_path:
            return None
        return write_path(key_path)

    def _plan(self) -> list[dict[str, Any]]:
        """Return what the preprocessor and the net do with each leaf of an observation."""
        resolution = self.resolution
        leaves = resolution.preprocessor.leaves()
        scalings = resolution.leaf_scalings(leaves)
        layouts = resolution.image_layouts
        spaces = {info.path: info for info in resolution.preprocessor.info.walk()}
        rows = []
        for leaf, scaling in zip(leaves, scalings, strict=True):
            rows.append(
                {
                    "path": leaf.path,
                    "kind": leaf.kind,
                    "slice": [leaf.start, leaf.stop],
                    "shape": list(leaf.shape),
                    "scaling": scaling,
                    "image": _describe_image(spaces.get(leaf.path), layouts.get(leaf.path)),
                }
            )
        if resolution.config["embeddings"] is not None:
            _add_embeddings(rows, resolution)
        if resolution.critic is not None:
            _add_sides(rows, leaves, resolution, resolution.critic)
        return rows

    def _filtered_paths(self) -> list[str]:
        observation_filter = self.resolution.new_filter
        if observation_filter is None:
            return []
        return [leaf.path for leaf in observation_filter.leaves]

    def _shapes_of_stages(self) -> list[dict[str, Any]]:
        """Return the stages from observation to action, with their shapes."""
        return [
            {"stage": stage.name, "shape": _as_list(stage.shape)}
            for stage in self.resolution.shapes
        ]

    def _answers_of_wrappers(self) -> list[dict[str, Any]]:
        """Return each environment wrapper's answer, and whether it is applied."""
        return [
            {
                "name": part.name,
                "provider": part.provider,
                "applied": match.rank is not None,
                "reason": match.why,
            }
            for part, match in self.wrappers
        ]

    def _choice(self, choice: Choice) -> dict[str, Any]:
        """Return the part of a slot, and all candidates with their answers."""
        chosen = choice.part
        candidates = []
        for part, match in choice.verdicts:
            candidates.append(
                {
                    "name": part.name,
                    "distribution": part.distribution,
                    "version": part.version,
                    "rank": None if match.rank is None else match.rank.name,
                    "reason": choice.why if part is chosen else match.why,
                }
            )
        data: dict[str, Any] = {
            "chosen": None,
            "distribution": None,
            "version": None,
            "reason": choice.why,
            "config_keys": [],
            "candidates": candidates,
        }
        if chosen is not None:
            data["chosen"] = chosen.name
            data["distribution"] = chosen.distribution
            data["version"] = chosen.version
            data["config_keys"] = self.resolution.config_keys(chosen)
        return data


def _model_inputs(resolution: Resolution) -> list[dict[str, Any]]:
    """Return the entries of a model's input, without the batch axis."""
    return [
        {"name": name, "shape": list(shape), "dtype": dtype}
        for name, shape, dtype in resolution.model_views
    ]


def _add_embeddings(rows: Sequence[dict[str, Any]], resolution: Resolution) -> None:
    """Add to the row of each leaf what nets make of its ids; an empty text for other leaves."""
    embedded = embedded_leaves(resolution.preprocessor, resolution.config["embeddings"])
    for row in rows:
        texts = []
        for leaf in embedded:
            if is_in_part(row["path"], leaf.path) and row["kind"] != "mask":
                texts.append(leaf.description)
            elif is_in_part(leaf.path, row["path"]):  # the row is a list that contains the leaf
                texts.append(f"{leaf.path}: {leaf.description}")
        row["embedding"] = "; ".join(texts)


def _add_sides(
    rows: Sequence[dict[str, Any]],
    leaves: Sequence[Leaf],
    policy: Resolution,
    critic: Resolution,
) -> None:
    """Add to the row of each leaf which side of the model sees it, and what the critic does with
    it.
    """
    spaces = {info.path: info for info in critic.preprocessor.info.walk()}
    scalings = critic.leaf_scalings(leaves)
    for row, leaf, scaling in zip(rows, leaves, scalings, strict=True):
        row["seen_by"] = []
        if policy.sees(leaf):
            row["seen_by"].append("policy")
        else:
            row["scaling"] = ""
            row["image"] = ""
        if critic.sees(leaf):
            row["seen_by"].append("critic")
            row["critic_scaling"] = scaling
            layout = critic.image_layouts.get(leaf.path)
            row["critic_image"] = _describe_image(spaces.get(leaf.path), layout)


class Line(NamedTuple):
    """Line of an explanation: the name of something, its shape, and a note; all but the name may be
    empty.
    """

    name: str
    shape: str = ""
    note: str = ""


@dataclass(frozen=True)
class Section:
    """Section of an explanation, for a slot, the observation or the action.

    All output formats show the same sections.

    Attributes:
        topic: What it is about: a slot, `"critic"`, `"critic memory"`, `"env_wrapper"`, `"frozen"`,
            `"observation"` or `"action"`.
        part: The name of the part in a slot, `"-"` if the slot is empty; empty for other topics.
        shape: The shape of its output; empty if the lines show it.
        why: The reason for the choice.
        branches: What the way from observation to action splits into here: the leaves of an
            observation, or the parts of an action.
        lines: What else belongs to it, such as the stages of a model.
        owner: Distribution and version of the part; empty for the environment.
        others: The name of each part that was not chosen, and the reason.
    """

    topic: str
    part: str
    shape: str
    why: str
    branches: Sequence[Line] = ()
    lines: Sequence[Line] = ()
    owner: str = ""
    others: Sequence[tuple[str, str]] = ()

    @property
    def title(self) -> str:
        """Topic and part, such as `"model: fcnet"`; `"memory: -"` if the slot is empty."""
        if not self.part:
            return self.topic
        return f"{self.topic}: {self.part}"

    @property
    def is_empty_slot(self) -> bool:
        """Whether no part was chosen."""
        return self.part == "-"


class Outline(NamedTuple):
    """The content of an explanation for all output formats.

    Attributes:
        title: The title.
        overview: Name and text of each line of the overview: the part in each slot, the number of
            weights, and the parts that do not learn.
        sections: The sections.
        notes: Name and text of each note.
    """

    title: str
    overview: list[tuple[str, str]]
    sections: list[Section]
    notes: list[tuple[str, str]]


def outline(data: Mapping[str, Any], *, whole: bool = False, keys: bool = False) -> Outline:
    """Return the content of an explanation for all output formats.

    Args:
        data: The explanation, `Explanation.as_dict`.
        whole: Whether to show long lists in full.
        keys: Whether the notes include the config keys that each part reads.
    """
    title = f"framework: {data['framework']}"
    if data["env"]:
        title = f"{data['env']}, {title}"
    most_lines = sys.maxsize if whole else ROWS
    lines_of_slots = _lines_of_slots(data)
    sections = _wrapper_sections(data["env_wrappers"])
    sections.append(_observation_section(data))
    for slot in _SLOTS:
        first_lines = lines_of_slots.get(slot, [])
        if slot == "action_dist" and "critic" in data:
            sections += _critic_sections(data, most_lines)
        sections.append(_slot_section(slot, data, first_lines, most_lines))
    if "frozen" in data:  # only the explanation of a frozen policy says so
        sections.append(Section("frozen", part="", shape="", why=data["frozen"]))
    sections.append(_action_section(data))
    notes = []
    if keys:
        notes += _notes_on_keys(data)
    if data["unread"]:
        notes.append(("not read by any part", ", ".join(data["unread"])))
    if "init" in data:
        notes.append(("initial weights", f"{data['init']} (init)"))
    if "freeze_parts" in data:
        notes.append(("parts that do not learn", ", ".join(data["freeze_parts"])))
    if "critic" in data:
        notes += _notes_on_critic(data["critic"])
    if data["unused_masks"]:
        notes.append(("not used as action masks", ", ".join(data["unused_masks"])))
    for action_range in data["action_ranges"]:
        notes += [("hard to reach", problem) for problem in action_range["problems"]]
    return Outline(title, _overview(data), sections, notes)


def _overview(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the lines that an explanation begins with."""
    choices = {slot: data[slot] for slot in _SLOTS}
    if "critic" in data:
        choices["critic"] = data["critic"]["model"]
        choices["critic memory"] = data["critic"]["memory"]
    lines = []
    for name, choice in choices.items():
        lines.append((name, choice["chosen"] or "-"))
    weights = "known after build (rlcatalog summary, or policy.summary())"
    if data["weights"] is not None:
        weights = f"{data['weights']:,}"
    lines.append(("weights", weights))
    if data["frozen_parts"]:
        lines.append(("does not learn", ", ".join(data["frozen_parts"])))
    return lines


def _lines_of_slots(data: Mapping[str, Any]) -> dict[str, list[Line]]:
    """Return slot → the lines that it shows beside the stages of its part."""
    leaves = []
    for leaf in data["plan"]:
        leaves.append(Line(leaf["path"], _shape_text(leaf["shape"]), _leaf_note(leaf)))
    model_inputs = _lines_of_inputs(data["model_sees"])
    dists = []
    for node in data["action_parts"]:
        chosen = _chosen_candidate(node)
        note = f"{node['space']}: {node['chosen']}, {node['reason']} ({_source(chosen)})"
        dists.append(Line(node["path"], note=note))
    return {
        "preprocessor": leaves,
        "filter": [Line(f"filters {path}") for path in data["filtered"]],
        "model": model_inputs,
        "action_dist": dists,
    }


def _lines_of_inputs(model_inputs: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Return a line for each entry of a model's input."""
    lines = []
    for view in model_inputs:
        batch_shape = ["B", *view["shape"]]
        lines.append(Line(f"sees {view['name']}", _shape_text(batch_shape), view["dtype"]))
    return lines


def _observation_section(data: Mapping[str, Any]) -> Section:
    """Return the section about the environment's observation, with its action mask."""
    branches = []
    if data["action_mask"]:
        note = "kept out of the model's input"
        if data["model_sees_mask"]:
            note = (
                "the model sees it; rlcatalog masks the outputs, so the model need not, but it must"
                " not undo the mask"
            )
        branches.append(Line("action mask", note=f"{data['action_mask']}, {note}"))
    first_stage = data["shapes"][0]  # the observation as the environment returns it
    shape = _shape_text(first_stage["shape"], unknown="")
    why = data["observation_space"]
    return Section("observation", part="", shape=shape, why=why, branches=branches)


def _action_section(data: Mapping[str, Any]) -> Section:
    lines = [Line(entry["path"], note=entry["mapping"]) for entry in data["action_ranges"]]
    last_stage = data["shapes"][-1]  # the action as the environment gets it
    shape = _shape_text(last_stage["shape"], unknown="")
    why = str(data["action_space"])
    return Section("action", part="", shape=shape, why=why, lines=lines)


def _notes_on_keys(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the config keys that each part reads, as notes."""
    readers = {slot: data[slot] for slot in _SLOTS}
    readers |= {node["path"]: node for node in data["action_parts"]}
    if "critic" in data:
        readers["critic"] = data["critic"]["model"]
        readers["critic memory"] = data["critic"]["memory"]
    notes = []
    for name, part in readers.items():
        if part["config_keys"]:
            notes.append((f"{name} reads", ", ".join(part["config_keys"])))
    return notes


def explanation_html(data: Mapping[str, Any]) -> str:
    """Return an explanation as HTML: the short sheet, followed by the full one in a collapsible
    section.
    """
    short = explanation_sheet(data).html()
    everything = explanation_sheet(data, all=True).html()
    return f"{short}<details><summary>everything</summary>{everything}</details>"


def explanation_sheet(data: Mapping[str, Any], *, all: bool = False) -> Sheet:
    """Return an explanation as a sheet.

    Args:
        data: The explanation, `Explanation.as_dict`.
        all: Also show the parts that were not chosen, the config keys that each part
            reads, and complete lists.
    """
    content = outline(data, whole=all, keys=all)
    no_header = ()
    overview: list[Row] = [no_header, *content.overview]
    rows: list[Row] = [no_header]
    num_others = 0
    for section in content.sections:
        rows += _rows(section, show_others=all)
        num_others += len(section.others)
    if not all:
        text = f"{num_others} other parts, and the config keys read (--all, or .text(all=True))"
        content.notes.append(("not shown", text))
    # The second table has no title: its rows begin with the names of the sections.
    tables = {"parts": overview, "": rows}
    # `outline` has shortened the lists, so the sheet shows all rows.
    return Sheet(content.title, tables=tables, notes=content.notes, most=sys.maxsize)


def _leaf_note(leaf: Mapping[str, Any]) -> str:
    """Return the note on a leaf of the observation: its kind, its slice, and what a net does to
    it.
    """
    start, stop = leaf["slice"]
    notes = [leaf["kind"], f"{start}:{stop}", leaf["image"], leaf["scaling"]]
    if "embedding" in leaf:
        notes.append(leaf["embedding"])
    if "seen_by" in leaf:
        notes += _notes_on_sides(leaf)
    return ", ".join(note for note in notes if note)


def _notes_on_sides(leaf: Mapping[str, Any]) -> list[str]:
    """Return which side sees a leaf, and what the critic does with it if the policy does not do the
    same.
    """
    sides = leaf["seen_by"]
    notes = []
    if "critic" in sides:
        of_policy = (leaf["image"], leaf["scaling"])
        of_critic = (leaf["critic_image"], leaf["critic_scaling"])
        if of_critic != of_policy:
            notes += [f"critic: {note}" for note in of_critic if note]
    seen_by = "neither side"
    if sides:
        seen_by = " and ".join(sides)
    return [*notes, f"seen by {seen_by}"]


def _describe_image(info: SpaceInfo | None, layout: ImageLayout | None) -> str:
    """Return how a net reads an image's axes, or why it reads a picture as numbers; empty for other
    leaves.
    """
    if layout is None:
        if info is not None and lacks_channel_axis(info):
            shape = (*(info.shape or ()), 1)
            return f"numbers, not an image: for convolutions, use the shape {shape}"
        return ""
    text = f"image of {layout}"
    if not layout.is_certain:
        text += " (or otherwise: set image_layout)"
    return text


def _rows(section: Section, *, show_others: bool) -> Iterator[Row]:
    """Yield a section's rows: name, shape and note; all but the first are indented."""
    yield section.title, section.shape, section.why
    if section.owner:
        yield "  from", "", section.owner
    for name, shape, note in (*section.branches, *section.lines):
        yield f"  {name}", shape, note
    if show_others:
        for name, why in section.others:
            yield f"  not chosen: {name}", "", why


def _slot_section(
    slot: str, data: Mapping[str, Any], first_lines: Sequence[Line], most_lines: int
) -> Section:
    """Return a slot's section: the first lines, then the stages of its part.

    It shows at most `most_lines` of each.
    """
    choice = data[slot]
    others = _losers(choice)
    if slot == "action_dist":
        for node in data["action_parts"]:  # the distributions inside a joint one
            others += [(f"{node['path']}: {name}", why) for name, why in _losers(node)]
    name = choice["chosen"]
    # The value may have a copy of the part.
    stage_names = (f"{name}: ", f"value, {name}: ")
    return _section_of_part(slot, choice, others, stage_names, data, first_lines, most_lines)


def _critic_sections(data: Mapping[str, Any], most_lines: int) -> list[Section]:
    """Return the sections of a critic of its own: for its trunk and for its memory."""
    critic = data["critic"]
    trunk = critic["model"]
    memory = critic["memory"]
    memory_lines = []
    if critic["makes_recurrent"]:
        note = "the policy has none, but is trained on sequences, because its critic has one"
        memory_lines.append(Line("memory of the critic alone", note=note))
    trunk_stages = (f"critic, {trunk['chosen']}: ", "critic, value")
    memory_stages = (f"critic, {memory['chosen']}: ",)
    input_lines = _lines_of_inputs(critic["model_sees"])
    return [
        _section_of_part(
            "critic", trunk, _losers(trunk), trunk_stages, data, input_lines, most_lines
        ),
        _section_of_part(
            "critic memory", memory, _losers(memory), memory_stages, data, memory_lines, most_lines
        ),
    ]


def _notes_on_critic(critic: Mapping[str, Any]) -> list[tuple[str, str]]:
    notes = []
    if critic["unread"]:
        notes.append(("critic: not read by any part", ", ".join(critic["unread"])))
    if critic["unseen"]:
        notes.append(("seen by neither side", ", ".join(critic["unseen"])))
    return notes


def _section_of_part(
    label: str,
    choice: Mapping[str, Any],
    others: Sequence[tuple[str, str]],
    stage_names: tuple[str, ...],
    data: Mapping[str, Any],
    first_lines: Sequence[Line],
    most_lines: int,
) -> Section:
    """Return the section of a part that was chosen, or of an empty slot.

    Args:
        label: What the section calls the slot.
        choice: The choice for the slot.
        others: The name of each part that was not chosen, and the reason.
        stage_names: The beginnings of the names of the part's stages.
        data: The explanation.
        first_lines: The lines before the stages.
        most_lines: The maximum number of lines of each kind.
    """
    name = choice["chosen"]
    if name is None:
        return Section(label, part="-", shape="", why=choice["reason"], others=others)
    title = f"{label}: {name}"
    shape = ""
    stages = []
    for stage in data["shapes"]:
        stage_name = stage["stage"]
        stage_shape = _shape_text(stage["shape"])
        if stage_name == title:
            shape = stage_shape
        if stage_name.startswith(stage_names):
            stages.append(Line(stage_name, stage_shape))
    why = choice["reason"]
    rank = _chosen_candidate(choice)["rank"]
    if rank:
        why += f" ({rank})"
    branches = []
    lines = _shorten(first_lines, most_lines)
    if label in _BRANCHING_SLOTS:
        branches, lines = lines, branches
    return Section(
        label,
        part=name,
        shape=shape,
        why=why,
        branches=branches,
        lines=[*lines, *_shorten(stages, most_lines)],
        owner=_provider(choice),
        others=others,
    )


def _shorten(lines: Sequence[Line], most: int) -> list[Line]:
    """Return the first lines, and a line that says how many more there are."""
    shown = list(lines[:most])
    if len(lines) > most:
        shown.append(Line(f"... {len(lines) - most} more"))
    return shown


def _chosen_candidate(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a slot's chosen candidate, which is the first."""
    chosen: Mapping[str, Any] = choice["candidates"][0]
    return chosen


def _losers(choice: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the name and reason of each candidate that was not chosen."""
    losers = choice["candidates"]
    if choice["chosen"] is not None:
        losers = losers[1:]  # the chosen one is the first
    return [(part["name"], f"{part['reason']} ({_source(part)})") for part in losers]


def _wrapper_sections(wrappers: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Return a section for each wrapper that is applied; the first one shows all others."""
    sections = []
    others = []
    for wrapper in wrappers:
        name = wrapper["name"]
        why = wrapper["reason"]
        if wrapper["applied"]:
            owner = wrapper["provider"]
            sections.append(Section("env_wrapper", part=name, shape="", why=why, owner=owner))
        else:
            others.append((name, f"{why} ({wrapper['provider']})"))
    if others and not sections:
        sections.append(Section("env_wrapper", part="-", shape="", why="nothing matches"))
    if others:
        first_section = sections[0]
        sections[0] = replace(first_section, others=others)
    return sections


def _source(part: Mapping[str, Any]) -> str:
    """Return a candidate's provider and rank."""
    source = _provider(part)
    if part["rank"]:
        source += f", {part['rank']}"
    return source


def _provider(part: Mapping[str, Any]) -> str:
    return f"{part['distribution']} {part['version']}".strip() or "this process"


def _as_list(shape: tuple[int, ...] | None) -> list[int] | None:
    return None if shape is None else list(shape)


def _shape_text(shape: Sequence[int | str] | None, unknown: str = "known after build") -> str:
    """Return a shape as Python shows a tuple, such as `(B, 84, 84)`; `unknown` if it is None."""
    if shape is None:
        return unknown
    lengths = ", ".join(map(str, shape))
    if len(shape) == 1:
        lengths += ","
    return f"({lengths})"
