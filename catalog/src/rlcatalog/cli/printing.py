"""Tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape as escape_markup
from rich.table import Table

from rlcatalog.choice import SHOWN_SLOTS, keys_read, plan_rows, provider, shape_rows
from rlcatalog.plugins import Component, PluginRecord, public_index

_COLOURS = {"loaded": "green", "shadowed": "yellow", "disabled": "yellow"}


def escape(text: str) -> str:
    """Return what a plugin wrote, as it is to be printed: no markup, no control characters."""
    kept = (c if c.isprintable() else " " if c.isspace() else "?" for c in text)
    return escape_markup("".join(kept))


def print_list(plugins: Sequence[PluginRecord], components: Sequence[Component]) -> None:
    """Print the plugins and their components."""
    console = Console()
    if not plugins:
        console.print(f"No plugins are installed. {public_index.install_hint()}", soft_wrap=True)
        return
    table = Table("plugin", "distribution", "version", "status", title="Plugins", title_justify="left")
    for record in plugins:
        colour = _COLOURS.get(record.status, "red")
        cells = map(escape, (record.name, record.distribution, record.version))
        table.add_row(*cells, f"[{colour}]{record.status}[/]")
    console.print(table)
    for record in plugins:
        if record.error is not None:
            console.print(escape(f"{record.name}: {record.status}: {record.error}"), soft_wrap=True)
    table = Table("kind", "name", "frameworks", "summary", "distribution", title="Components", title_justify="left")
    for part in components:
        shown = part.kind, part.name, ", ".join(part.frameworks), part.declaration.summary, part.distribution
        table.add_row(*map(escape, shown))
    console.print(table)


def print_explanation(env_id: str, found: dict[str, Any]) -> None:
    """Print the choices with their reasons, and the shapes along the way."""
    console = Console()
    console.print(f"[bold]{escape(env_id)}[/]  framework: {found['framework']}")
    console.print(f"observation: {found['observation_space']}", markup=False, soft_wrap=True)
    console.print(f"action: {found['action_space']}", markup=False, soft_wrap=True)
    if found["action_mask"]:
        console.print(f"action mask: {found['action_mask']}, kept out of the model's input", markup=False)
    table = Table("slot", "candidate", "rank", "reason", "provided by", title="Choices", title_justify="left")
    for slot in SHOWN_SLOTS:
        choice = found[slot]
        if choice["chosen"] is None:
            if choice["candidates"]:
                table.add_row(slot, "-", "", escape(choice["reason"]), "")
            continue
        shown, others = choice["candidates"], []
        if slot == "preprocessor":  # there is one for each kind of space
            others = [c["name"] for c in shown[1:] if c["rank"] is None]
            shown = [c for c in shown if c["name"] not in others]
        for index, candidate in enumerate(shown):
            first = index == 0
            name = f"[{'bold green' if first else 'dim'}]{escape(candidate['name'])}[/]"
            rank, reason = candidate["rank"] or "-", escape(candidate["reason"])
            table.add_row(slot if first else "", name, rank, reason, escape(provider(candidate)))
        if others:
            table.add_row(
                "", f"[dim]{len(others)} others[/]", "-", "for other kinds of space, or by name only (see --json)", ""
            )
        table.add_section()
    for node in found["action_parts"]:
        name = f"[bold green]{escape(node['chosen'])}[/]"
        table.add_row(escape(node["path"]), name, "", escape(node["reason"]), escape(provider(node)))
    for wrapper in found["env_wrappers"]:
        name = f"[bold green]{escape(wrapper['name'])}[/]" if wrapper["applied"] else "-"
        table.add_row("env_wrapper", name, "", escape(wrapper["reason"]), escape(wrapper["provider"]))
    console.print(table)
    plan = Table("leaf", "kind", "slice", "shape", title="Plan of the encoded observation", title_justify="left")
    for row in plan_rows(found):
        plan.add_row(*map(escape, row))
    console.print(plan)
    views = Table("input_dict", "shape", "dtype", title="What the model sees", title_justify="left")
    for view in found["model_sees"]:
        views.add_row(escape(view["name"]), "(" + ", ".join(["B", *map(str, view["shape"])]) + ")", view["dtype"])
    console.print(views)
    shapes = Table("stage", "shape", title="Shapes", title_justify="left")
    for row in shape_rows(found):
        shapes.add_row(*map(escape, row))
    console.print(shapes)
    for slot, names in keys_read(found).items():
        console.print(f"[bold]{slot}[/] reads: {escape(', '.join(names))}", soft_wrap=True)
    if found["unread"]:
        console.print(f"[bold yellow]nothing reads[/]: {escape(', '.join(found['unread']))}", soft_wrap=True)
