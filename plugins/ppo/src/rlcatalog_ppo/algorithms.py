"""The algorithms of this package, by the names that `rlcatalog train --algo` takes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from rlcatalog.errors import UnknownNameError, nearest, shown

if TYPE_CHECKING:
    from rlcatalog_ppo.algorithm import OnPolicy

#: Name → where its class is; imported when it is asked for.
ALGORITHMS = {"PPO": "rlcatalog_ppo.ppo:PPO", "A2C": "rlcatalog_ppo.a2c:A2C", "PG": "rlcatalog_ppo.pg:PG"}


def algorithm_class(name: str) -> type[OnPolicy]:
    """Return the class of an algorithm.

    Raises:
        UnknownNameError: There is none of this name.
    """
    if name not in ALGORITHMS:
        raise UnknownNameError(
            f"unknown algorithm {shown(name)}.{nearest(name.upper(), ALGORITHMS)} There are: {', '.join(ALGORITHMS)}."
        )
    module, _, attribute = ALGORITHMS[name].partition(":")
    found: type[OnPolicy] = getattr(import_module(module), attribute)
    return found
