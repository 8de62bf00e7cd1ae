"""Declarations: commands that train, list and compare runs, and export policies."""

from __future__ import annotations

from rlcatalog import CommandSpec, hookimpl


@hookimpl
def rlcatalog_commands() -> list[CommandSpec]:
    return [
        CommandSpec(
            "train",
            {"cli": "rlcatalog_runs.commands.train:train"},
            "Train a policy with an engine.",
        ),
        CommandSpec(
            "runs",
            {"cli": "rlcatalog_runs.commands.tables:runs"},
            "List training runs with their returns.",
        ),
        CommandSpec(
            "compare",
            {"cli": "rlcatalog_runs.commands.tables:compare"},
            "Plot learning curves of runs.",
        ),
        CommandSpec(
            "export",
            {"cli": "rlcatalog_runs.commands.export:export"},
            "Export a trained policy as one file.",
        ),
    ]
