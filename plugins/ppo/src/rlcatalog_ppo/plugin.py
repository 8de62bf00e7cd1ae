"""Declarations: the commands this package adds."""

from __future__ import annotations

from rlcatalog import CommandSpec, hookimpl


@hookimpl
def rlcatalog_commands() -> list[CommandSpec]:
    return [
        CommandSpec("train", {"cli": "rlcatalog_ppo.cli:train"}, "Train a policy with PPO."),
        CommandSpec("evaluate", {"cli": "rlcatalog_ppo.cli:evaluate"}, "Play episodes with a saved policy."),
    ]
