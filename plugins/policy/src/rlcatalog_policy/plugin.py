"""Declaration: the command `export`, which needs policies."""

from __future__ import annotations

from rlcatalog import CommandSpec, hookimpl


@hookimpl
def rlcatalog_commands() -> list[CommandSpec]:
    return [CommandSpec("export", {"cli": "rlcatalog.cli.exporting:export"}, "Write a trained policy as one file.")]
