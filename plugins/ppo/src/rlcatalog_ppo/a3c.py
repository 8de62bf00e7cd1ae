"""RLlib's module of two algorithms: A2C is served, A3C is not."""

from __future__ import annotations

from typing import Any

from rlcatalog.errors import NotServedError
from rlcatalog_ppo.a2c import A2C, A2CConfig, A2CTrainer

__all__ = ["A2C", "A2CConfig", "A2CTrainer", "A3CTrainer"]


class A3CTrainer:
    """The asynchronous form of A2C, which is not served.

    Raises:
        NotServedError: Always; it says why.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotServedError(
            "A3C is not served: its workers each compute gradients of their own, at their own pace, from weights that"
            " are out of date, and a run can never be repeated. A2C is the same algorithm with the workers in step:"
            " rlcatalog_ppo.A2C, with vector='async' for environments in processes of their own."
        )
