"""Explanation of a lookup: plain data, and the sections shown as text, as HTML and in
the picture.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from rlcatalog import provided
from rlcatalog.choice.resolution import Resolution
from rlcatalog.choice.selection import Choice, Verdict
from rlcatalog.choice.sheet import ROWS, Row, Sheet
from rlcatalog.errors import MissingExtraError, MissingPluginError
from rlcatalog.spaces import ImageLayout

#: The slots of an explanation in display order; the trunk is called model.
_SLOTS = ("preprocessor", "filter", "model", "memory", "head", "action_dist")


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
        with suppress(MissingExtraError, MissingPluginError):
            return self.svg() + html
        return html

    def text(self, *, all: bool = False) -> str:
        """Return the explanation as text, which `rlcatalog explain` prints.

        Args:
            all: Also show the parts that were not chosen, the config keys that each part
                reads, and complete lists.
        """
        return explanation_sheet(self.as_dict(), all=all).text()

    def svg(self) -> str:
        """Return a picture of the pipeline from observation to action, with each slot's part
        and candidates.

        Raises:
            MissingPluginError: rlcatalog-cli, which draws it, is not installed.
            MissingExtraError: drawsvg is not installed.
        """
        svg: str = provided.pipeline_svg(self.as_dict())
        return svg

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, as printed by `--json`.

        All other formats are generated from it.
        """
        resolution, steps = self.resolution, self.resolution.mask_steps
        leaves = resolution.preprocessor.leaves()
        return {
            "env": self.env or None,
            "observation_space": resolution.request.obs.describe(),
            "action_space": resolution.action.describe(),
            "framework": resolution.framework,
            **{s: self._choice(resolution.choices["trunk" if s == "model" else s]) for s in _SLOTS},
            "action_parts": [
                {"path": node.info.path, "space": node.info.describe(), **self._choice(node.choice)}
                for child in resolution.dists.children
                for node in child.walk()
            ],
            "action_ranges": [
                {"path": box.path, "mapping": box.mapping, "problems": list(box.problems)}
                for box in resolution.action_ranges
            ],
            "unread": list(resolution.unread),
            "action_mask": "".join(["obs", *(f"[{step!r}]" for step in steps)]) if steps else None,
            "model_sees_mask": resolution.shows_mask,
            "unused_masks": list(resolution.unused_masks),
            "plan": [
                {
                    "path": leaf.path,
                    "kind": leaf.kind,
                    "slice": [leaf.start, leaf.stop],
                    "shape": list(leaf.shape),
                    "scaling": scaling,
                    "image": _describe_image(resolution.image_layouts.get(leaf.path)),
                }
                for leaf, scaling in zip(leaves, resolution.leaf_scalings(leaves), strict=True)
            ],
            "filtered": (
                []
                if resolution.new_filter is None
                else [leaf.path for leaf in resolution.new_filter.leaves]
            ),
            "model_sees": [
                {"name": name, "shape": list(shape), "dtype": dtype}
                for name, shape, dtype in resolution.model_views
            ],
            "shapes": [
                {
                    "stage": stage.name,
                    "shape": list(stage.shape) if stage.shape is not None else None,
                }
                for stage in resolution.shapes
            ],
            "env_wrappers": [
                {
                    "name": part.name,
                    "provider": part.provider,
                    "applied": answer.rank is not None,
                    "reason": answer.why,
                }
                for part, answer in self.wrappers
            ],
            **({} if self.frozen is None else {"frozen": self.frozen}),
        }

    def _choice(self, choice: Choice) -> dict[str, Any]:
        chosen = choice.part
        return {
            "chosen": chosen and chosen.name,
            "distribution": chosen and chosen.distribution,
            "version": chosen and chosen.version,
            "reason": choice.why,
            "config_keys": self.resolution.config_keys(chosen) if chosen else [],
            "candidates": [
                {
                    "name": part.name,
                    "distribution": part.distribution,
                    "version": part.version,
                    "rank": None if answer.rank is None else answer.rank.name,
                    "reason": choice.why if part is chosen else answer.why,
                }
                for part, answer in choice.verdicts
            ],
        }


@dataclass(frozen=True)
class Section:
    """Section of an explanation, for a slot, the observation or the action.

    All output formats show the same sections.

    Attributes:
        title: Slot and part, such as `"model: fcnet"`; `"memory: -"` if the slot is empty.
        shape: The shape of its output; empty if the lines show it.
        why: The reason for the choice.
        lines: Its parts: name, shape, and a note.
        owner: Distribution and version of the part; empty for the environment.
        others: The name of each part that was not chosen, and the reason.
    """

    title: str
    shape: str
    why: str
    lines: Sequence[Row] = ()
    owner: str = ""
    others: Sequence[tuple[str, str]] = ()


def outline(
    data: Mapping[str, Any], *, whole: bool = False, keys: bool = False
) -> tuple[str, list[Section], list[tuple[str, str]]]:
    """Return the content of an explanation for all output formats: title, sections, and notes with
    name and text.

    Args:
        data: The explanation, `Explanation.as_dict`.
        whole: Whether to show long lists in full.
        keys: Whether the notes include the config keys that each part reads.
    """
    plan = [(leaf["path"], _shape(leaf["shape"]), _leaf_note(leaf)) for leaf in data["plan"]]
    seen = [
        (f"sees {view['name']}", _shape(["B", *view["shape"]]), view["dtype"])
        for view in data["model_sees"]
    ]
    parts = [
        (
            node["path"],
            "",
            f"{node['space']}: {node['chosen']}, {node['reason']}"
            f" ({_source(node['candidates'][0])})",
        )
        for node in data["action_parts"]
    ]
    filtered = [(f"filters {path}", "", "") for path in data["filtered"]]
    first: dict[str, Sequence[Row]] = {
        "preprocessor": plan,
        "filter": filtered,
        "model": seen,
        "action_dist": parts,
    }
    note = "kept out of the model's input"
    if data["model_sees_mask"]:
        note = (
            "the model sees it; rlcatalog masks the outputs, so the model need not, but it must"
            " not undo the mask"
        )
    mask = [("action mask", "", f"{data['action_mask']}, {note}")] if data["action_mask"] else []
    ranges = [(box["path"], "", box["mapping"]) for box in data["action_ranges"]]
    sections = [
        *_wrapper_sections(data["env_wrappers"]),
        Section(
            "observation", _shape(data["shapes"][0]["shape"], ""), data["observation_space"], mask
        ),
        *(
            _slot_section(slot, data, first.get(slot, []), sys.maxsize if whole else ROWS)
            for slot in _SLOTS
        ),
        *([Section("frozen", "", data["frozen"])] if "frozen" in data else []),
        Section(
            "action", _shape(data["shapes"][-1]["shape"], ""), str(data["action_space"]), ranges
        ),
    ]
    readers = {slot: data[slot] for slot in _SLOTS} | {
        node["path"]: node for node in data["action_parts"]
    }
    notes = {f"{name} reads": part["config_keys"] for name, part in readers.items() if keys}
    notes |= {
        "not read by any part": data["unread"],
        "not used as action masks": data["unused_masks"],
    }
    title = f"{data['env']}, " if data["env"] else ""
    return (
        f"{title}framework: {data['framework']}",
        sections,
        [
            *((name, ", ".join(texts)) for name, texts in notes.items() if texts),
            *(("hard to reach", text) for box in data["action_ranges"] for text in box["problems"]),
        ],
    )


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
    title, sections, notes = outline(data, whole=all, keys=all)
    rows = [row for section in sections for row in _rows(section, all)]
    if not all:
        count = sum(len(section.others) for section in sections)
        notes.append(
            (
                "not shown",
                f"{count} other parts, and the config keys read (--all, or .text(all=True))",
            )
        )
    return Sheet(title, tables={"": [(), *rows]}, notes=notes, most=sys.maxsize)


def _leaf_note(leaf: Mapping[str, Any]) -> str:
    """Return the note on a leaf of the observation: its kind, its slice, and what a net does to
    it.
    """
    start, stop = leaf["slice"]
    notes = [leaf["kind"], f"{start}:{stop}", leaf["image"], leaf["scaling"]]
    return ", ".join(note for note in notes if note)


def _describe_image(layout: ImageLayout | None) -> str:
    """Return how a net reads an image's axes; empty for other leaves."""
    if layout is None:
        return ""
    doubt = "" if layout.is_certain else " (or otherwise: set image_layout)"
    return f"image of {layout}{doubt}"


def _rows(section: Section, all: bool) -> Iterator[Row]:
    yield section.title, section.shape, section.why
    if section.owner:
        yield "  from", "", section.owner
    yield from ((f"  {name}", shape, text) for name, shape, text in section.lines)
    if all:
        yield from ((f"  not chosen: {name}", "", why) for name, why in section.others)


def _slot_section(slot: str, data: Mapping[str, Any], first: Sequence[Row], most: int) -> Section:
    """Return a slot's section: the given lines, then the stages of its part.

    It shows at most `most` of each.
    """
    choice, name = data[slot], data[slot]["chosen"]
    others = _losers(choice)
    if slot == "action_dist":
        others += [
            (f"{node['path']}: {n}", why)
            for node in data["action_parts"]
            for n, why in _losers(node)
        ]
    if name is None:
        return Section(f"{slot}: -", "", choice["reason"], others=others)
    title, rank = f"{slot}: {name}", choice["candidates"][0]["rank"]
    stages: list[Row] = [(stage["stage"], _shape(stage["shape"]), "") for stage in data["shapes"]]
    shape = next((shape for stage, shape, _ in stages if stage == title), "")
    own = f"{name}: ", f"value, {name}: "  # the value may have a copy of it
    lines: list[Row] = []
    for some in (first, [line for line in stages if line[0].startswith(own)]):
        lines += some[:most]
        if len(some) > most:
            lines.append((f"... {len(some) - most} more", "", ""))
    why = choice["reason"] + (f" ({rank})" if rank else "")
    return Section(title, shape, why, lines, _provider(choice), others)


def _losers(choice: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the name and reason for each candidate that was not chosen, which means all except the
    first.
    """
    losers = choice["candidates"][choice["chosen"] is not None :]
    return [(part["name"], f"{part['reason']} ({_source(part)})") for part in losers]


def _wrapper_sections(wrappers: Sequence[Mapping[str, Any]]) -> list[Section]:
    others = [(w["name"], f"{w['reason']} ({w['provider']})") for w in wrappers if not w["applied"]]
    made = [
        Section(f"env_wrapper: {w['name']}", "", w["reason"], owner=w["provider"])
        for w in wrappers
        if w["applied"]
    ]
    if not others:
        return made
    first, *rest = made or [Section("env_wrapper: -", "", "nothing matches")]
    return [replace(first, others=others), *rest]


def _source(part: Mapping[str, Any]) -> str:
    return _provider(part) + (f", {part['rank']}" if part["rank"] else "")


def _provider(part: Mapping[str, Any]) -> str:
    return f"{part['distribution']} {part['version']}".strip() or "this process"


def _shape(shape: Sequence[Any] | None, unknown: str = "known after build") -> str:
    return unknown if shape is None else f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
