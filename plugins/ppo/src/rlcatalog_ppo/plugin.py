"""Declarations: the commands this package adds, and a check for the conformance kit."""

from __future__ import annotations

from rlcatalog import CheckSpec, CommandSpec, hookimpl


@hookimpl
def rlcatalog_commands() -> list[CommandSpec]:
    return [
        CommandSpec("train", {"cli": "rlcatalog_ppo.cli:train"}, "Train a policy with PPO, A2C or policy gradient."),
        CommandSpec("evaluate", {"cli": "rlcatalog_ppo.cli:evaluate"}, "Play episodes with a saved policy."),
        CommandSpec("runs", {"cli": "rlcatalog_ppo.runs_commands:runs"}, "List training runs with their returns."),
        CommandSpec("compare", {"cli": "rlcatalog_ppo.runs_commands:compare"}, "Draw the curves of runs together."),
    ]


@hookimpl
def rlcatalog_checks() -> list[CheckSpec]:
    return [
        CheckSpec(
            "ppo_moves_every_weight",
            {"checks": "rlcatalog_ppo.checks:ppo_moves_every_weight"},
            "one update of PPO moves every weight",
        )
    ]
