"""Declarations: the command this package adds, and a check for the conformance kit."""

from __future__ import annotations

from rlcatalog import CheckSpec, CommandSpec, hookimpl


@hookimpl
def rlcatalog_commands() -> list[CommandSpec]:
    return [
        CommandSpec(
            "train-rllib",
            {"cli": "rlcatalog_rllib.commands:train_rllib"},
            "Train a policy with Ray RLlib.",
        )
    ]


@hookimpl
def rlcatalog_checks() -> list[CheckSpec]:
    return [
        CheckSpec(
            "rllib_moves_every_weight",
            {"checks": "rlcatalog_rllib.checks:rllib_moves_every_weight"},
            "one update of RLlib's PPO moves every weight",
        )
    ]
