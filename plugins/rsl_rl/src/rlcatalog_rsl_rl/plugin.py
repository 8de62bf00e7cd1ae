"""Declarations: a check for the conformance kit.

There is no engine for `rlcatalog train`, which makes Gymnasium's environments; those of rsl_rl come
from a simulator's program.
"""

from __future__ import annotations

from rlcatalog import CheckSpec, hookimpl


@hookimpl
def rlcatalog_checks() -> list[CheckSpec]:
    return [
        CheckSpec(
            "rsl_rl_moves_every_weight",
            {"checks": "rlcatalog_rsl_rl.checks:rsl_rl_moves_every_weight"},
            "one update of rsl_rl's PPO changes every weight",
        )
    ]
