"""Declarations: the commands that need nothing but the kernel."""

from __future__ import annotations

from rlcatalog import CommandSpec, hookimpl


@hookimpl
def rlcatalog_commands() -> list[CommandSpec]:
    return [
        CommandSpec("list", {"cli": "rlcatalog_cli.app:list_parts"}, "List the plugins and what they provide."),
        CommandSpec("explain", {"cli": "rlcatalog_cli.app:explain"}, "Say which parts fit an environment."),
    ]
