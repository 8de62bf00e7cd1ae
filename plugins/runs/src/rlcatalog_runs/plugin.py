"""Declarations: commands that train, list and compare runs, and export policies."""

from __future__ import annotations

from rlcatalog import CommandSpec, hookimpl


@hookimpl
def rlcatalog_commands() -> list[CommandSpec]:
    return [
        CommandSpec(
            "train",
            targets={"cli": "rlcatalog_runs.commands.train:train"},
            summary="Train a policy with an engine.",
        ),
        CommandSpec(
            "runs",
            targets={"cli": "rlcatalog_runs.commands.tables:runs"},
            summary="List training runs with their returns.",
        ),
        CommandSpec(
            "compare",
            targets={"cli": "rlcatalog_runs.commands.tables:compare"},
            summary="Plot learning curves of runs.",
        ),
        CommandSpec(
            "export",
            targets={"cli": "rlcatalog_runs.commands.export:export"},
            summary="Export a trained policy as one file.",
        ),
    ]
