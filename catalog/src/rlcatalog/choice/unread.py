"""Keys of a config that no chosen part reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rlcatalog.config.kernel_keys import READ_BESIDE
from rlcatalog.plugins import Component, Request

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
    given: Iterable[str],
    read: Set[str],
    idle: Mapping[str, str],
    chosen: Iterable[Component],
    keys_of: Callable[[Component], Iterable[str]],
    request: Request,
) -> dict[str, str]:
    """Return the keys that no part reads, in the order in which they were given: key → what it takes to be read.

    A class of the running program that declares neither `config` nor `reads`, as RLlib's custom classes do, counts as
    reading everything.

    Args:
        given: The keys whose value is not the default.
        read: The keys that the kernel and the engines read.
        idle: Keys that have no effect whatever part reads them: key → what it takes.
        chosen: The components that were chosen.
        keys_of: Returns the config keys that a component reads.
        request: What they were chosen for.

    Returns:
        The text is empty where no chosen component has the key.
    """
    left = {key: "" for key in given if key not in read}
    for component in chosen:
        if component.undeclared:
            return {}
        ignored = _ignored(component, request)
        for key in left.keys() & set(keys_of(component)):
            if key in ignored:
                left[key] = ignored[key]
            else:
                del left[key]
    for key, others in READ_BESIDE.items():
        if key in given and not any(request.config[other] for other in others):
            left[key] = " or ".join(others)
    left |= {key: idle[key] for key in given if key in idle}
    return {key: left[key] for key in given if key in left}


def _ignored(component: Component, request: Request) -> Mapping[str, str]:
    if component.declaration.ignores is None:
        return {}
    return component.ask("ignores", request, returns=_reasons)


def _reasons(answer: Any) -> dict[str, str]:
    if not isinstance(answer, Mapping) or not all(type(part) is str for item in answer.items() for part in item):
        raise TypeError("a dict of config keys and what it takes to read them was expected")
    return dict(answer)
