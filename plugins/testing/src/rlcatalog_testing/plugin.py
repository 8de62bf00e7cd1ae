"""Declarations: commands that check and create plugins."""

from __future__ import annotations

from rlcatalog import CommandSpec, hookimpl


@hookimpl
def rlcatalog_commands() -> list[CommandSpec]:
    return [
        CommandSpec(
            "check",
            {"cli": "rlcatalog_testing.commands:check"},
            "Check every part of an installed plugin.",
        ),
        CommandSpec(
            "new", {"cli": "rlcatalog_testing.commands:new"}, "Write a new plugin package."
        ),
    ]
