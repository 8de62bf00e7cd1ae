"""Tables for people, as text and as HTML: what a lookup chose, and what a policy is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from rlcatalog.errors import one_line

#: The slots of an explanation, in the order of the data.
SHOWN_SLOTS = ("preprocessor", "filter", "model", "memory", "head", "action_dist")
#: Most rows of a table, and most characters of a cell and of a line beside the tables.
_ROWS, _CELL, _LINE = 24, 72, 600


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        title: What it shows.
        header: Names of its columns.
        rows: Its rows, a text for each column.
        most: The most rows that are shown.
    """

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    most: int = _ROWS

    def short(self) -> list[tuple[str, ...]]:
        """Return the rows as they are shown: on one line each, and so many that they can be read."""
        kept = [tuple(one_line(cell, _CELL) for cell in row) for row in self.rows[: self.most]]
        if len(self.rows) > self.most:
            more = f"... {len(self.rows) - self.most} more"
            kept.append((more, *("" for _ in self.header[1:])))
        return kept


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
        lines = [self.title, *_lines(self.facts)]
        for table in filter(lambda table: table.rows, self.tables):
            rows = [table.header, *table.short()]
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            shown = ["  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows]
            lines += ["", f"{table.title}:", *(f"  {line}" for line in shown)]
        return "\n".join([*lines, *([""] if self.notes else []), *_lines(self.notes)])

    def html(self) -> str:
        """Return it as HTML; what plugins wrote is escaped."""
        parts = [f"<p><b>{escape(self.title)}</b></p>", _list(self.facts)]
        for table in filter(lambda table: table.rows, self.tables):
            head = "".join(f"<th style='text-align:left'>{escape(cell)}</th>" for cell in table.header)
            body = "".join(
                "<tr>" + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in row) + "</tr>"
                for row in table.short()
            )
            caption = f"<caption style='text-align:left'>{escape(table.title)}</caption>"
            parts.append(f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        return f"<div>{''.join(parts)}{_list(self.notes)}</div>"


def mask_note(found: Mapping[str, Any]) -> str:
    """Return where an explanation, given as plain data, has the action mask from, and whether the model is shown it."""
    shown = "the model is shown it, and rlcatalog masks its outputs: a model need not, and must not undo it"
    seen = shown if found["model_sees_mask"] else "kept out of the model's input"
    return f"{found['action_mask']}, {seen}"


def explanation_sheet(found: Mapping[str, Any]) -> Sheet:
    """Return what is shown of an explanation, given as plain data."""
    facts = [
        ("framework", found["framework"]),
        ("observation", found["observation_space"]),
        ("action", str(found["action_space"])),
    ]
    if found["action_mask"]:
        facts.append(("action mask", mask_note(found)))
    tables = [
        Table("choices", ("slot", "part", "rank", "reason", "provided by"), [*_choices(found), *_action_parts(found)]),
        Table("plan of the encoded observation", ("leaf", "kind", "slice", "shape"), plan_rows(found)),
        Table("shapes", ("stage", "shape"), shape_rows(found)),
    ]
    notes = [(f"{slot} reads", ", ".join(names)) for slot, names in keys_read(found).items()]
    if found["unread"]:
        notes.append(("read by nothing", ", ".join(found["unread"])))
    if found["unused_masks"]:
        notes.append(("not used as action masks", ", ".join(found["unused_masks"])))
    if "frozen" in found:
        notes.append(("frozen", found["frozen"]))
    return Sheet("What the catalog chooses", facts, tables, notes)


def provider(part: Mapping[str, Any]) -> str:
    """Return who provides a part of an explanation."""
    return f"{part['distribution']} {part['version']}".strip() or "this process"


def plan_rows(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the leaves of the encoded observation: path, kind, slice, shape."""
    return [
        (leaf["path"], leaf["kind"], "{}:{}".format(*leaf["slice"]), str(tuple(leaf["shape"])))
        for leaf in found["plan"]
    ]


def shape_rows(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the stages from observation to action with their shapes."""
    structured = {"observation": "see the plan", "action": str(found["action_space"])}
    return [
        (
            stage["stage"],
            structured.get(stage["stage"], "known after build")
            if stage["shape"] is None
            else str(tuple(stage["shape"])),
        )
        for stage in found["shapes"]
    ]


def keys_read(found: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the config keys that are read, by slot; slots that read none are left out."""
    return {slot: found[slot]["config_keys"] for slot in SHOWN_SLOTS if found[slot]["config_keys"]}


def _choices(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return what fills each slot, with those that fit as well; who does not fit is left to the data."""
    rows: list[tuple[str, ...]] = []
    for slot in SHOWN_SLOTS:
        choice = found[slot]
        if choice["chosen"] is None:
            if choice["candidates"]:
                rows.append((slot, "-", "", choice["reason"], ""))
            continue
        for index, part in enumerate(choice["candidates"]):
            if index == 0:
                rows.append((slot, part["name"], part["rank"] or "-", part["reason"], provider(part)))
            elif part["rank"] is not None:
                rows.append(("", f"({part['name']})", part["rank"], part["reason"], provider(part)))
    return rows


def _action_parts(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [(node["path"], node["chosen"], "", node["reason"], provider(node)) for node in found["action_parts"]]


def _lines(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}: {one_line(text, _LINE)}" for name, text in pairs]


def _list(pairs: Sequence[tuple[str, str]]) -> str:
    if not pairs:
        return ""
    items = (f"<li>{escape(name)}: {escape(one_line(text, _LINE))}</li>" for name, text in pairs)
    return f"<ul>{''.join(items)}</ul>"
