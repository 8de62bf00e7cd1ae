"""Declarations: the command this package adds, and a check for the conformance kit."""

from __future__ import annotations

from rlcatalog import CheckSpec, CommandSpec, hookimpl


@hookimpl
def rlcatalog_commands() -> list[CommandSpec]:
    return [
        CommandSpec("train-sb3", {"cli": "rlcatalog_sb3.commands:train_sb3"}, "Train a policy with Stable-Baselines3."),
    ]


@hookimpl
def rlcatalog_checks() -> list[CheckSpec]:
    return [
        CheckSpec(
            "sb3_moves_every_weight",
            {"checks": "rlcatalog_sb3.checks:sb3_moves_every_weight"},
            "one update of Stable-Baselines3's PPO moves every weight",
        )
    ]
