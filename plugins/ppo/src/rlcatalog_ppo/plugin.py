"""Declarations: the engine, the command `evaluate`, code for the frameworks, and a check for the
conformance kit.
"""

from __future__ import annotations

from rlcatalog import CheckSpec, CommandSpec, EngineSpec, FrameworkSpec, hookimpl


@hookimpl
def rlcatalog_engines() -> list[EngineSpec]:
    return [
        EngineSpec(
            "ppo", {"engine": "rlcatalog_ppo.engine:PPOEngine"}, "PPO, A2C and policy gradient"
        )
    ]


@hookimpl
def rlcatalog_commands() -> list[CommandSpec]:
    return [
        CommandSpec(
            "evaluate",
            {"cli": "rlcatalog_ppo.commands:evaluate"},
            "Play episodes with a saved policy.",
        )
    ]


@hookimpl
def rlcatalog_frameworks() -> list[FrameworkSpec]:
    return [
        FrameworkSpec(
            "torch",
            targets={"ppo": "rlcatalog_ppo.torch:TorchMinibatchOptimizer"},
            summary="an optimiser step of the algorithms",
            extends="rlcatalog-torch/torch",
        ),
        FrameworkSpec(
            "tf",
            targets={
                "ppo": "rlcatalog_ppo.tf:TFMinibatchOptimizer",
                "ppo_input_ops": "rlcatalog_ppo.tf:input_ops",
            },
            summary="an optimiser step of the algorithms, and recorded rollouts as tensors",
            extends="rlcatalog-tf/tf",
        ),
    ]


@hookimpl
def rlcatalog_checks() -> list[CheckSpec]:
    return [
        CheckSpec(
            "ppo_moves_every_weight",
            {"checks": "rlcatalog_ppo.checks:ppo_moves_every_weight"},
            "one PPO update changes every weight",
        )
    ]
