"""What a framework declares for the algorithms: its learner, and the optimiser step that this package adds to it."""

from __future__ import annotations

from typing import Any

from rlcatalog.frameworks import Learner, default_framework, framework_name, frameworks


def set_threads(framework: str | None, count: int) -> None:
    """Set how many threads one operation of a framework may use; before its first operation."""
    learner_of(default_framework() if framework is None else framework_name(framework)).set_threads(count)


def learner_of(framework: str) -> type[Learner]:
    """Return the class of a framework's learner.

    Raises:
        NotServedError: It has none.
    """
    found: type[Learner] = frameworks()[framework].load("learner", "rlcatalog-ppo")
    return found


def optimizer_of(framework: str) -> Any:
    """Return the class that takes optimiser steps in a framework, `rlcatalog_ppo.learner.Optimizer`.

    Raises:
        NotServedError: There is none.
    """
    return frameworks()[framework].load("ppo", "rlcatalog-ppo")
