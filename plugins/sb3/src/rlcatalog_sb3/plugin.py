"""Declarations: the engine this package adds, and a check for the conformance kit."""

from __future__ import annotations

from rlcatalog import CheckSpec, EngineSpec, hookimpl


@hookimpl
def rlcatalog_engines() -> list[EngineSpec]:
    return [EngineSpec("sb3", {"engine": "rlcatalog_sb3.engine:SB3Engine"}, "Stable-Baselines3")]


@hookimpl
def rlcatalog_checks() -> list[CheckSpec]:
    return [
        CheckSpec(
            "sb3_moves_every_weight",
            {"checks": "rlcatalog_sb3.checks:sb3_moves_every_weight"},
            "one update of Stable-Baselines3's PPO changes every weight",
        )
    ]
