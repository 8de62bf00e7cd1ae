"""Attributes of users' objects, which may fail to be read in any way."""

from __future__ import annotations

from typing import Any


def read_attribute(thing: Any, name: str, default: Any = None) -> Any:
    """Return an attribute of a user's object, or a default if it is missing or cannot be read.

    Unlike `getattr`, this also covers a property or a `__getattr__` that raises an error other than
    AttributeError, such as that of an environment that hands unknown names to a simulator.

    Args:
        thing: The object, such as an environment.
        name: The attribute's name.
        default: Value in place of an attribute that cannot be read.
    """
    try:
        return getattr(thing, name, default)
    except Exception:  # raised by the user's code
        return default
