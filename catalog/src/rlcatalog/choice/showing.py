"""Tables for people, as text and as HTML: what a lookup chose, and what a policy is made of."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from rlcatalog.errors import one_line

#: The slots of an explanation, in the order of the data.
SHOWN_SLOTS = ("preprocessor", "filter", "model", "memory", "head", "action_dist")
#: Most rows of a table, and most characters of a cell and of a line beside the tables.
_ROWS, _CELL, _LINE = 24, 120, 600

#: Of cells, in HTML; a cell of an explanation may begin with spaces.
_LEFT = "style='text-align:left;white-space:pre-wrap'"

#: A line of a section: name, shape, and what else is known.
Line = tuple[str, str, str]


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        title: What it shows; empty where the sheet's title says it.
        header: Names of its columns, or none.
        rows: Its rows, a text for each column.
        most: The most rows that are shown.
    """

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    most: int = _ROWS

    def short(self) -> list[tuple[str, ...]]:
        """Return the rows as they are shown: on one line each, and so many that they can be read."""
        kept = [
            (*(one_line(cell, _CELL) for cell in cells), one_line(last, _LINE))
            for *cells, last in self.rows[: self.most]
        ]
        if len(self.rows) > self.most:
            more = f"... {len(self.rows) - self.most} more"
            kept.append((more, *("" for _ in self.header[1:])))
        return kept

    def lines(self) -> list[str]:
        """Return it as lines of text."""
        rows = [*([self.header] if self.header else []), *self.short()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        shown = ["  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows]
        return ["", f"{self.title}:", *(f"  {line}" for line in shown)] if self.title else shown

    def html(self) -> str:
        """Return it as HTML."""
        caption = f"<caption {_LEFT}>{escape(self.title)}</caption>" if self.title else ""
        head = "".join(f"<th {_LEFT}>{escape(cell)}</th>" for cell in self.header)
        body = "".join(
            "<tr>" + "".join(f"<td {_LEFT}>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.short()
        )
        return f"<table>{caption}{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


@dataclass(frozen=True)
class Sheet:
    """What is shown of an object.

    Attributes:
        title: What it is.
        facts: Name and text of each line above the tables.
        tables: The tables; those without rows are left out.
        notes: Name and text of each line below them.
    """

    title: str
    facts: Sequence[tuple[str, str]]
    tables: Sequence[Table]
    notes: Sequence[tuple[str, str]] = ()

    def text(self) -> str:
        """Return it as plain text."""
        tables = [line for table in self.tables if table.rows for line in table.lines()]
        return "\n".join([self.title, *_lines(self.facts), *tables, *_lines(self.notes)])

    def html(self) -> str:
        """Return it as HTML; what plugins wrote is escaped."""
        tables = "".join(table.html() for table in self.tables if table.rows)
        return f"<div><p><b>{escape(self.title)}</b></p>{_list(self.facts)}{tables}{_list(self.notes)}</div>"


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


def explanation_title(found: Mapping[str, Any]) -> str:
    """Return the first line of an explanation."""
    return ", ".join([*([found["env"]] if found["env"] else []), f"framework: {found['framework']}"])


def sections(found: Mapping[str, Any], most: int = _ROWS) -> list[Section]:
    """Return what is shown of an explanation, given as plain data.

    Args:
        found: The explanation, `Explanation.as_dict`.
        most: The most lines of a section.
    """
    plan = [
        (leaf["path"], _shape(leaf["shape"]), "{}, {}:{}".format(leaf["kind"], *leaf["slice"]))
        for leaf in found["plan"]
    ]
    seen = [(f"sees {view['name']}", _shape(["B", *view["shape"]]), view["dtype"]) for view in found["model_sees"]]
    parts = [(node["path"], "", _part_of_action(node)) for node in found["action_parts"]]
    first = {"preprocessor": plan, "model": seen, "action_dist": parts}
    mask = [("action mask", "", _mask_note(found))] if found["action_mask"] else []
    return [
        *_wrapper_sections(found["env_wrappers"]),
        Section("observation", _space_shape(found["shapes"][0]), found["observation_space"], mask),
        *(
            _slot_section(slot, found, [first.get(slot, []), _stages(found, found[slot]["chosen"])], most)
            for slot in SHOWN_SLOTS
        ),
        *([Section("frozen", "", found["frozen"])] if "frozen" in found else []),
        Section("action", _space_shape(found["shapes"][-1]), str(found["action_space"])),
    ]


def explanation_notes(found: Mapping[str, Any], *, with_keys: bool) -> list[tuple[str, str]]:
    """Return the lines below the sections: name and text.

    Args:
        found: The explanation, `Explanation.as_dict`.
        with_keys: Also the config keys that each part reads.
    """
    parts = {slot: found[slot] for slot in SHOWN_SLOTS} | {node["path"]: node for node in found["action_parts"]}
    notes = [
        (f"{slot} reads", ", ".join(part["config_keys"]))
        for slot, part in parts.items()
        if with_keys and part["config_keys"]
    ]
    if found["unread"]:
        notes.append(("read by nothing", ", ".join(found["unread"])))
    if found["unused_masks"]:
        notes.append(("not used as action masks", ", ".join(found["unused_masks"])))
    return notes


def explanation_html(found: Mapping[str, Any]) -> str:
    """Return an explanation as HTML: the short sheet, and behind a click everything."""
    everything = explanation_sheet(found, all=True).html()
    return f"{explanation_sheet(found).html()}<details><summary>everything</summary>{everything}</details>"


def explanation_sheet(found: Mapping[str, Any], *, all: bool = False) -> Sheet:
    """Return an explanation as a sheet.

    Args:
        found: The explanation, `Explanation.as_dict`.
        all: Also the parts that were not chosen, the config keys that are read, and long lists whole.
    """
    shown = sections(found, sys.maxsize if all else _ROWS)
    rows = [row for section in shown for row in _rows(section, all)]
    notes = explanation_notes(found, with_keys=all)
    if not all:
        count = sum(len(section.others) for section in shown)
        notes.append(("not shown", f"{count} other parts, and the config keys read (--all, or .text(all=True))"))
    return Sheet(explanation_title(found), [], [Table("", (), rows, sys.maxsize)], notes)


def _rows(section: Section, all: bool) -> Iterator[Line]:
    yield section.title, section.shape, section.why
    if section.owner:
        yield "  from", "", section.owner
    yield from ((f"  {name}", shape, text) for name, shape, text in section.lines)
    if all:
        yield from ((f"  not chosen: {name}", "", why) for name, why in section.others)


def _slot_section(slot: str, found: Mapping[str, Any], lists: Sequence[Sequence[Line]], most: int) -> Section:
    choice, name = found[slot], found[slot]["chosen"]
    others = _losers(choice)
    if slot == "action_dist":
        others += [(f"{node['path']}: {n}", why) for node in found["action_parts"] for n, why in _losers(node)]
    if name is None:
        return Section(f"{slot}: -", "", choice["reason"], others=others)
    title, rank = f"{slot}: {name}", choice["candidates"][0]["rank"]
    shape = next((_shape(stage["shape"]) for stage in found["shapes"] if stage["stage"] == title), "")
    why = choice["reason"] + (f" ({rank})" if rank else "")
    return Section(title, shape, why, [line for lines in lists for line in _cut(lines, most)], provider(choice), others)


def _losers(choice: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the candidates but the chosen one, which comes first: name, and why not."""
    losers = choice["candidates"][choice["chosen"] is not None :]
    return [(part["name"], f"{part['reason']} ({_source(part)})") for part in losers]


def _cut(lines: Sequence[Line], most: int) -> Sequence[Line]:
    return lines if len(lines) <= most else [*lines[:most], (f"... {len(lines) - most} more", "", "")]


def _stages(found: Mapping[str, Any], name: str | None) -> list[Line]:
    """Return the stages of a part; the value's own copy of it among them."""
    own = f"{name}: ", f"value, {name}: "
    return [(stage["stage"], _shape(stage["shape"]), "") for stage in found["shapes"] if stage["stage"].startswith(own)]


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


def _mask_note(found: Mapping[str, Any]) -> str:
    shown = "the model is shown it, and rlcatalog masks its outputs: a model need not, and must not undo it"
    seen = shown if found["model_sees_mask"] else "kept out of the model's input"
    return f"{found['action_mask']}, {seen}"


def provider(part: Mapping[str, Any]) -> str:
    """Return who provides a part of an explanation."""
    return f"{part['distribution']} {part['version']}".strip() or "this process"


def _source(part: Mapping[str, Any]) -> str:
    return provider(part) + (f", {part['rank']}" if part["rank"] else "")


def _space_shape(stage: Mapping[str, Any]) -> str:
    return "" if stage["shape"] is None else _shape(stage["shape"])


def _shape(shape: Sequence[Any] | None) -> str:
    return "known after build" if shape is None else f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"


def _lines(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}: {one_line(text, _LINE)}" for name, text in pairs]


def _list(pairs: Sequence[tuple[str, str]]) -> str:
    if not pairs:
        return ""
    items = (f"<li>{escape(name)}: {escape(one_line(text, _LINE))}</li>" for name, text in pairs)
    return f"<ul>{''.join(items)}</ul>"
