"""Functions with a fault, for parts, hooks and whatever a test replaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def function_that_raises(error: BaseException) -> Callable[..., Any]:
    """Return a function that takes any arguments, and raises an error."""

    def fail(*arguments: Any, **options: Any) -> Any:
        raise error

    return fail


def function_that_returns(value: Any) -> Callable[..., Any]:
    """Return a function that takes any arguments, and returns a value."""

    def answer(*arguments: Any, **options: Any) -> Any:
        return value

    return answer
