"""RLlib's decorators, and helpers that warn about deprecated names."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from types import MethodType
from typing import Any, TypeVar

# --- marks without effect -------------------------------------------------------------------------

_T = TypeVar("_T")


def override(cls: type) -> Callable[[_T], _T]:  # noqa: ARG001  (RLlib's signature)
    """Return a decorator that marks a method as overriding a method of `cls`.

    The override is not checked, because base classes may lack methods that RLlib's classes have.

    Args:
        cls: The class whose method is overridden.
    """
    return _same


def _same(obj: _T) -> _T:
    """Return the class or function unchanged."""
    return obj


PublicAPI = DeveloperAPI = ExperimentalAPI = OldAPIStack = _same
OverrideToImplementCustomLogic = OverrideToImplementCustomLogic_CallToSuperRecommended = _same


def is_overridden(obj: MethodType) -> bool:
    """Return whether a bound method overrides the one in the first base class of its object's
    class.
    """
    owner = type(obj.__self__)
    # The last two classes are that base class and `object`.
    derived_classes = owner.__mro__[:-2]
    return any(obj.__name__ in vars(cls) for cls in derived_classes)


# --- deprecation ----------------------------------------------------------------------------------

#: RLlib's mark for a config key that was not set.
DEPRECATED_VALUE = -1

#: Keys that `log_once` was called with.
_SEEN: set[str] = set()


def deprecation_warning(
    old: str,
    new: str | None = None,
    *,
    help: str | None = None,
    error: bool | type[Exception] | Exception | None = None,
) -> None:
    """Warn that something is deprecated, or raise an error.

    Args:
        old: Deprecated name or call.
        new: Replacement.
        help: Text to show instead of the hint to use `new`.
        error: True to raise a ValueError, or the exception to raise.

    Raises:
        Exception: `error` is set.
    """
    hint = ""
    if help:
        hint = help
    elif new:
        hint = f"Use {new} instead."
    text = f"{old} is deprecated. {hint}".rstrip()
    if isinstance(error, Exception):
        raise error
    if isinstance(error, type):
        raise error(text)
    if error:
        raise ValueError(text)
    warnings.warn(text, DeprecationWarning, stacklevel=2)


def Deprecated(
    old: str | Callable[..., Any] | None = None,
    *,
    new: str | None = None,
    help: str | None = None,
    error: bool | type[Exception] | Exception | None = None,
) -> Any:
    """Return a decorator that warns each time a function or class is used, or raises an error if
    `error` is set.

    Args:
        old: The deprecated name; if the decorator is used without parentheses, the decorated object
            itself.
        new: Replacement.
        help: Text to show instead of the hint to use `new`.
        error: See `deprecation_warning`.
    """
    if callable(old):
        return Deprecated(new=new, help=help, error=error)(old)

    def decorate(obj: Any) -> Any:
        name = old or obj.__name__

        def warn_before(function: Callable[..., Any]) -> Callable[..., Any]:
            def warn_and_call(*args: Any, **kwargs: Any) -> Any:
                deprecation_warning(name, new, help=help, error=error)
                return function(*args, **kwargs)

            return warn_and_call

        if isinstance(obj, type):
            # mypy forbids `obj.__init__`, because a subclass may have another signature.
            constructor = getattr(obj, "__init__")  # noqa: B009
            setattr(obj, "__init__", warn_before(constructor))  # noqa: B010
            return obj
        return wraps(obj)(warn_before(obj))

    return decorate


def log_once(key: str) -> bool:
    """Return True only on the first call with a given key in this process."""
    is_new = key not in _SEEN
    _SEEN.add(key)
    return is_new
