"""Plugin declaration of the command that lists a model's layers."""

from __future__ import annotations

from rlcatalog import CommandSpec, hookimpl


@hookimpl
def rlcatalog_commands() -> list[CommandSpec]:
    return [
        CommandSpec(
            "summary", {"cli": "rlcatalog_policy.commands:summary"}, "Print the layers of a model."
        )
    ]
