"""Declarations: a check for the conformance kit.

There is no engine for `rlcatalog train`, which makes Gymnasium's environments; those of skrl come
from a simulator's program.
"""

from __future__ import annotations

from rlcatalog import CheckSpec, hookimpl


@hookimpl
def rlcatalog_checks() -> list[CheckSpec]:
    return [
        CheckSpec(
            "skrl_moves_every_weight",
            {"checks": "rlcatalog_skrl.checks:skrl_moves_every_weight"},
            "one update of skrl's PPO changes every weight",
        )
    ]
