"""Declarations: the command this package adds."""

from __future__ import annotations

from rlcatalog import CommandSpec, hookimpl


@hookimpl
def rlcatalog_commands() -> list[CommandSpec]:
    return [
        CommandSpec("train-sb3", {"cli": "rlcatalog_sb3.cli:train_sb3"}, "Train a policy with Stable-Baselines3."),
    ]
