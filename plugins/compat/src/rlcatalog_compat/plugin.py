"""Declarations: this package's command."""

from __future__ import annotations

from rlcatalog import CommandSpec, hookimpl


@hookimpl
def rlcatalog_commands() -> list[CommandSpec]:
    return [
        CommandSpec(
            "port",
            {"cli": "rlcatalog_compat.codemod.commands:port"},
            "Rewrite code written for RLlib.",
        )
    ]
