"""Declarations: the command this package adds."""

from __future__ import annotations

from rlcatalog import CommandSpec, hookimpl


@hookimpl
def rlcatalog_commands() -> list[CommandSpec]:
    return [
        CommandSpec(
            "train-rllib", {"cli": "rlcatalog_rllib.cli:train_rllib"}, "Train a policy with an algorithm of Ray RLlib."
        )
    ]
