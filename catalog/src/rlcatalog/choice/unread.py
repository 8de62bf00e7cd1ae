"""Keys of a config that no chosen part reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rlcatalog.config import ARGUMENTS_OF_CUSTOM, READ_BY_KERNEL
from rlcatalog.plugins import Component

#: The components that were found for parts of the observation, by models that hold others.
_FOUND: ContextVar[list[Component] | None] = ContextVar("rlcatalog_found", default=None)


@contextmanager
def noting_found() -> Iterator[list[Component]]:
    """Note, in the list it yields, every component that a model which holds others asks the catalog for."""
    found: list[Component] = []
    here = _FOUND.set(found)
    try:
        yield found
    finally:
        _FOUND.reset(here)


def note_found(component: Component) -> None:
    """Note a component that was found for a model that holds others."""
    found = _FOUND.get()
    if found is not None:
        found.append(component)


def unread_keys(
    given: Mapping[str, Any], chosen: Iterable[Component], keys_of: Callable[[Component], Iterable[str]]
) -> tuple[str, ...]:
    """Return the keys that nobody reads, in the order in which they were given.

    A class of the running program that declares neither `config` nor `reads`, as RLlib's custom classes do, counts as
    reading everything.

    Args:
        given: The keys whose value is not the default.
        chosen: The components that were chosen.
        keys_of: Returns the config keys that a component reads.
    """
    left = [key for key in given if key not in READ_BY_KERNEL]
    for component in chosen:
        if not left or component.undeclared:
            return ()
        own = set(keys_of(component))
        left = [key for key in left if key not in own]
    return tuple(key for key in left if not any(given.get(name) for name in ARGUMENTS_OF_CUSTOM.get(key, ())))
