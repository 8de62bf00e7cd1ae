"""Plugin declaration: the command that lists the layers of a model."""

from __future__ import annotations

from rlcatalog import CommandSpec, hookimpl


@hookimpl
def rlcatalog_commands() -> list[CommandSpec]:
    return [CommandSpec("summary", {"cli": "rlcatalog_policy.commands:summary"}, "Print the layers of a model.")]
