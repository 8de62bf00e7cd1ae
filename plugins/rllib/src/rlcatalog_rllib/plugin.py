"""Declarations: this package's engine, and a check for the conformance kit."""

from __future__ import annotations

from rlcatalog import CheckSpec, EngineSpec, hookimpl


@hookimpl
def rlcatalog_engines() -> list[EngineSpec]:
    return [EngineSpec("rllib", {"engine": "rlcatalog_rllib.engine:RLlibEngine"}, "Ray RLlib")]


@hookimpl
def rlcatalog_checks() -> list[CheckSpec]:
    return [
        CheckSpec(
            "rllib_moves_every_weight",
            {"checks": "rlcatalog_rllib.checks:rllib_moves_every_weight"},
            "one update of RLlib's PPO changes every weight",
        )
    ]
