"""Proximal policy optimisation over rlcatalog's contract.

`from rlcatalog_ppo import PPO`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcatalog_ppo.ppo import PPO, PPOTrainer

__all__ = ["PPO", "PPOTrainer"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from rlcatalog_ppo import ppo

        return getattr(ppo, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
