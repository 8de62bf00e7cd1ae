"""The explanation of a lookup: one structure of plain data, and what every medium shows of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlcatalog import provided
from rlcatalog.choice.render import ROWS, Sheet, Table
from rlcatalog.choice.selection import Choice, Verdict
from rlcatalog.errors import MissingExtraError, MissingPluginError

if TYPE_CHECKING:
    from rlcatalog.choice.resolution import Resolution

#: The slots of an explanation, in the order in which they are shown: name → slot.
SHOWN_SLOTS = {
    "preprocessor": "preprocessor", "filter": "filter", "model": "trunk", "memory": "memory", "head": "head",
    "action_dist": "action_dist",
}  # fmt: skip

#: A line of a section: name, shape, and what else is known.
Line = tuple[str, str, str]


@dataclass(frozen=True, repr=False)
class Explanation:
    """Why a lookup chose what it chose; printed as text, in notebooks as HTML.

    Attributes:
        resolution: What it chose.
        frozen: Of a frozen policy: that it acts faster, or why it does not.
        env: Name of the environment that was asked about; empty where two spaces were given.
        wrappers: What each installed environment wrapper said to it.
    """

    resolution: Resolution
    frozen: str | None = None
    env: str = ""
    wrappers: tuple[Verdict, ...] = ()

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        html = explanation_html(self.as_dict())
        try:
            return self.svg() + html
        except (MissingExtraError, MissingPluginError):
            return html

    def text(self, *, all: bool = False) -> str:
        """Return it as text, which `rlcatalog explain` prints.

        Args:
            all: Also the parts that were not chosen, the config keys that are read, and long lists whole.
        """
        return explanation_sheet(self.as_dict(), all=all).text()

    def svg(self) -> str:
        """Return a picture of the same: the way from observation to action, who fills each slot, and who does not.

        Raises:
            MissingPluginError: rlcatalog-cli, which draws it, is not installed.
            MissingExtraError: drawsvg is not installed.
        """
        return provided.pipeline_svg(self.as_dict())

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, the `--json` form."""
        resolution, action = self.resolution, self.resolution.request.action
        return {
            "env": self.env or None,
            "observation_space": resolution.request.obs.describe(),
            "action_space": action.describe() if action is not None else None,
            "framework": resolution.framework,
            **{name: self._choice(resolution.choices[slot]) for name, slot in SHOWN_SLOTS.items()},
            "action_parts": [
                {"path": node.info.path, "space": node.info.describe(), **self._choice(node.choice)}
                for child in resolution.actions.children
                for node in child.walk()
            ],
            "unread": list(resolution.unread),
            "action_mask": "obs" + "".join(f"[{step!r}]" for step in resolution.mask_steps)
            if resolution.mask_steps
            else None,
            "model_sees_mask": resolution.shows_mask,
            "unused_masks": list(resolution.unused_masks),
            "plan": [
                {"path": leaf.path, "kind": leaf.kind, "slice": [leaf.start, leaf.stop], "shape": list(leaf.shape)}
                for leaf in resolution.preprocessor.leaves()
            ],
            "model_sees": [
                {"name": name, "shape": list(shape), "dtype": dtype} for name, shape, dtype in resolution.model_views
            ],
            "shapes": [
                {"stage": stage.name, "shape": list(stage.shape) if stage.shape is not None else None}
                for stage in resolution.shapes
            ],
            "env_wrappers": [
                {"name": part.name, "provider": part.provider, "applied": v.rank is not None, "reason": v.why}
                for v in self.wrappers
                if (part := v.component)
            ],
            **({} if self.frozen is None else {"frozen": self.frozen}),
        }

    def _choice(self, choice: Choice) -> dict[str, Any]:
        component = choice.component
        return {
            "chosen": component.name if component else None,
            "distribution": component.distribution if component else None,
            "version": component.version if component else None,
            "reason": choice.why,
            "config_keys": self.resolution.config_keys(component) if component else [],
            "candidates": [
                {
                    "name": part.name,
                    "distribution": part.distribution,
                    "version": part.version,
                    "rank": v.rank.name if v.rank is not None else None,
                    "reason": v.why,
                }
                for v in choice.verdicts
                if (part := v.component)
            ],
        }


@dataclass(frozen=True)
class Section:
    """What an explanation says about one slot, about the observation or about the action; every medium shows these.

    Attributes:
        title: Slot and part, such as `"model: fcnet"`; `"memory: -"` where the slot is empty.
        shape: The shape behind it; empty where its lines have it.
        why: Why the part was chosen.
        lines: What it consists of: name, shape, and what else is known.
        owner: Distribution and version of the part; empty for what is the environment's.
        others: The parts that were not chosen: name, and why.
    """

    title: str
    shape: str
    why: str
    lines: Sequence[Line] = ()
    owner: str = ""
    others: Sequence[tuple[str, str]] = ()


def explanation_title(data: Mapping[str, Any]) -> str:
    """Return the first line of an explanation."""
    return ", ".join([*([data["env"]] if data["env"] else []), f"framework: {data['framework']}"])


def sections(data: Mapping[str, Any], most: int = ROWS) -> list[Section]:
    """Return what is shown of an explanation, given as plain data.

    Args:
        data: The explanation, `Explanation.as_dict`.
        most: The most lines of a section.
    """
    plan = [
        (leaf["path"], _shape(leaf["shape"]), "{}, {}:{}".format(leaf["kind"], *leaf["slice"])) for leaf in data["plan"]
    ]
    seen = [(f"sees {view['name']}", _shape(["B", *view["shape"]]), view["dtype"]) for view in data["model_sees"]]
    parts = [(node["path"], "", _part_of_action(node)) for node in data["action_parts"]]
    first = {"preprocessor": plan, "model": seen, "action_dist": parts}
    note = "kept out of the model's input"
    if data["model_sees_mask"]:
        note = "the model is shown it, and rlcatalog masks its outputs: a model need not, and must not undo it"
    mask = [("action mask", "", f"{data['action_mask']}, {note}")] if data["action_mask"] else []
    return [
        *_wrapper_sections(data["env_wrappers"]),
        Section("observation", _shape(data["shapes"][0]["shape"], ""), data["observation_space"], mask),
        *(
            _slot_section(slot, data, [first.get(slot, []), _stages(data, data[slot]["chosen"])], most)
            for slot in SHOWN_SLOTS
        ),
        *([Section("frozen", "", data["frozen"])] if "frozen" in data else []),
        Section("action", _shape(data["shapes"][-1]["shape"], ""), str(data["action_space"])),
    ]


def explanation_notes(data: Mapping[str, Any], *, with_keys: bool) -> list[tuple[str, str]]:
    """Return the lines below the sections: name and text.

    Args:
        data: The explanation, `Explanation.as_dict`.
        with_keys: Also the config keys that each part reads.
    """
    parts = {slot: data[slot] for slot in SHOWN_SLOTS} | {node["path"]: node for node in data["action_parts"]}
    notes = [
        (f"{slot} reads", ", ".join(part["config_keys"]))
        for slot, part in parts.items()
        if with_keys and part["config_keys"]
    ]
    if data["unread"]:
        notes.append(("read by nothing", ", ".join(data["unread"])))
    if data["unused_masks"]:
        notes.append(("not used as action masks", ", ".join(data["unused_masks"])))
    return notes


def explanation_html(data: Mapping[str, Any]) -> str:
    """Return an explanation as HTML: the short sheet, and behind a click everything."""
    everything = explanation_sheet(data, all=True).html()
    return f"{explanation_sheet(data).html()}<details><summary>everything</summary>{everything}</details>"


def explanation_sheet(data: Mapping[str, Any], *, all: bool = False) -> Sheet:
    """Return an explanation as a sheet.

    Args:
        data: The explanation, `Explanation.as_dict`.
        all: Also the parts that were not chosen, the config keys that are read, and long lists whole.
    """
    shown = sections(data, sys.maxsize if all else ROWS)
    rows = [row for section in shown for row in _rows(section, all)]
    notes = explanation_notes(data, with_keys=all)
    if not all:
        count = sum(len(section.others) for section in shown)
        notes.append(("not shown", f"{count} other parts, and the config keys read (--all, or .text(all=True))"))
    return Sheet(explanation_title(data), [], [Table("", (), rows, sys.maxsize)], notes)


def _rows(section: Section, all: bool) -> Iterator[Line]:
    yield section.title, section.shape, section.why
    if section.owner:
        yield "  from", "", section.owner
    yield from ((f"  {name}", shape, text) for name, shape, text in section.lines)
    if all:
        yield from ((f"  not chosen: {name}", "", why) for name, why in section.others)


def _slot_section(slot: str, data: Mapping[str, Any], lists: Sequence[Sequence[Line]], most: int) -> Section:
    choice, name = data[slot], data[slot]["chosen"]
    others = _losers(choice)
    if slot == "action_dist":
        others += [(f"{node['path']}: {n}", why) for node in data["action_parts"] for n, why in _losers(node)]
    if name is None:
        return Section(f"{slot}: -", "", choice["reason"], others=others)
    title, rank = f"{slot}: {name}", choice["candidates"][0]["rank"]
    shape = next((_shape(stage["shape"]) for stage in data["shapes"] if stage["stage"] == title), "")
    why = choice["reason"] + (f" ({rank})" if rank else "")
    shown: list[Line] = []
    for lines in lists:
        shown += lines[:most]
        if len(lines) > most:
            shown.append((f"... {len(lines) - most} more", "", ""))
    return Section(title, shape, why, shown, provider(choice), others)


def _losers(choice: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the candidates but the chosen one, which comes first: name, and why not."""
    losers = choice["candidates"][choice["chosen"] is not None :]
    return [(part["name"], f"{part['reason']} ({_source(part)})") for part in losers]


def _stages(data: Mapping[str, Any], name: str | None) -> list[Line]:
    """Return the stages of a part; the value's own copy of it among them."""
    own = f"{name}: ", f"value, {name}: "
    return [(stage["stage"], _shape(stage["shape"]), "") for stage in data["shapes"] if stage["stage"].startswith(own)]


def _wrapper_sections(wrappers: Sequence[Mapping[str, Any]]) -> list[Section]:
    others = [(w["name"], f"{w['reason']} ({w['provider']})") for w in wrappers if not w["applied"]]
    made = [
        Section(f"env_wrapper: {w['name']}", "", w["reason"], owner=w["provider"]) for w in wrappers if w["applied"]
    ]
    if not others:
        return made
    first, *rest = made or [Section("env_wrapper: -", "", "nothing matches")]
    return [replace(first, others=others), *rest]


def _part_of_action(node: Mapping[str, Any]) -> str:
    source = _source({**node, "rank": node["candidates"][0]["rank"]})
    return f"{node['space']}: {node['chosen']}, {node['reason']} ({source})"


def provider(part: Mapping[str, Any]) -> str:
    """Return who provides a part of an explanation."""
    return f"{part['distribution']} {part['version']}".strip() or "this process"


def _source(part: Mapping[str, Any]) -> str:
    return provider(part) + (f", {part['rank']}" if part["rank"] else "")


def _shape(shape: Sequence[Any] | None, unknown: str = "known after build") -> str:
    return unknown if shape is None else f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
