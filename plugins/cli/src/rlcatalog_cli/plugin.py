"""Declarations: the commands that only need the kernel."""

from __future__ import annotations

from rlcatalog import CommandSpec, hookimpl


@hookimpl
def rlcatalog_commands() -> list[CommandSpec]:
    return [
        CommandSpec(
            "list", {"cli": "rlcatalog_cli.app:list_parts"}, "List the plugins and their parts."
        ),
        CommandSpec(
            "explain",
            {"cli": "rlcatalog_cli.app:explain"},
            "Show which parts fit an environment, and why.",
        ),
    ]
