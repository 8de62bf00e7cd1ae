"""Decorators that RLlib's code carries; here they mark and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


def override(cls: Any) -> Callable[[_T], _T]:
    """Return a decorator that marks a method as overriding one of `cls`.

    Nothing is checked: the base classes here need not have every method that RLlib's have.

    Args:
        cls: The class whose method is meant.
    """

    def mark(method: _T) -> _T:
        return method

    return mark


def _same(obj: _T) -> _T:
    """Return the class or function as it is."""
    return obj


PublicAPI = DeveloperAPI = ExperimentalAPI = OldAPIStack = _same
OverrideToImplementCustomLogic = OverrideToImplementCustomLogic_CallToSuperRecommended = _same


def is_overridden(obj: Any) -> bool:
    """Return whether a bound method is defined by the class of its object and not by the first one above."""
    owner = type(obj.__self__)
    return any(obj.__name__ in vars(cls) for cls in owner.__mro__[:-2])
