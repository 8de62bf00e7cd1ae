"""RLlib's decorators, and helpers that warn about deprecated names."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

# --- marks without effect -------------------------------------------------------------------------

_T = TypeVar("_T")


def override(cls: Any) -> Callable[[_T], _T]:
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


def is_overridden(obj: Any) -> bool:
    """Return whether a bound method overrides the one in the first base class of its object's
    class.
    """
    owner = type(obj.__self__)
    return any(obj.__name__ in vars(cls) for cls in owner.__mro__[:-2])


# --- deprecation ----------------------------------------------------------------------------------

#: RLlib's mark for a config key that was not set.
DEPRECATED_VALUE = -1

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
    hint = help or (f"Use {new} instead." if new else "")
    text = f"{old} is deprecated. {hint}".rstrip()
    if error:
        raise (
            error
            if isinstance(error, Exception)
            else (error if isinstance(error, type) else ValueError)(text)
        )
    warnings.warn(text, DeprecationWarning, stacklevel=2)


def Deprecated(
    old: Any = None, *, new: str | None = None, help: str | None = None, error: Any = None
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
        target: Callable[..., Any] = getattr(obj, "__init__") if isinstance(obj, type) else obj  # noqa: B009

        def warned(*args: Any, **kwargs: Any) -> Any:
            deprecation_warning(old or obj.__name__, new, help=help, error=error)
            return target(*args, **kwargs)

        if isinstance(obj, type):
            setattr(obj, "__init__", warned)  # noqa: B010
            return obj
        return wraps(obj)(warned)

    return decorate


def log_once(key: str) -> bool:
    """Return True only on the first call with a given key in this process."""
    new = key not in _SEEN
    _SEEN.add(key)
    return new
