"""What stands for the names of a framework that is not installed."""

from __future__ import annotations

from typing import Any

from rlcatalog.errors import MissingFrameworkError


class Absent:
    """Base of the classes that stand for others: they can be named and derived from, not used."""

    why = "its framework is not installed"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise MissingFrameworkError(f"{type(self).__name__}: {self.why}")


def absent(name: str, why: str) -> type[Absent]:
    """Return a class that stands for another one.

    Args:
        name: Its name.
        why: Why it cannot be used.
    """
    return type(name, (Absent,), {"why": why})


class AbsentModule:
    """A module of a framework that is not installed: each of its names is a class that says so when it is used.

    Args:
        why: Why it cannot be used.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return absent(name, self._why)
