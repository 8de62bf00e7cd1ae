"""On-policy algorithms over rlcatalog's contract.

`from rlcatalog_ppo import PPO`
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcatalog_ppo.a2c import A2C, A2CTrainer
    from rlcatalog_ppo.pg import PG, PGTrainer
    from rlcatalog_ppo.ppo import PPO, PPOTrainer

__all__ = ["A2C", "PG", "PPO", "A2CTrainer", "PGTrainer", "PPOTrainer"]

_MODULES = {"PPO": "ppo", "PPOTrainer": "ppo", "A2C": "a2c", "A2CTrainer": "a2c", "PG": "pg", "PGTrainer": "pg"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"rlcatalog_ppo.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
