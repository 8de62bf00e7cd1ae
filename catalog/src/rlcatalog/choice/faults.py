"""A lookup goes on without a stranger's part that turns out broken, and says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import TypeVar

from rlcatalog.errors import CatalogError, PartError
from rlcatalog.plugins import Component, public_index, tell_once

T = TypeVar("T")

#: Identity of a component → why the lookup in progress does without it.
_LEFT_OUT: ContextVar[Mapping[int, str]] = ContextVar("rlcatalog_left_out", default=MappingProxyType({}))


def left_out(component: Component) -> str | None:
    """Return why the lookup in progress does without a component, or None."""
    return _LEFT_OUT.get().get(id(component))


def is_repeated() -> bool:
    """Whether a lookup is in progress that does without something, and so must not be answered from memory."""
    return bool(_LEFT_OUT.get())


def without_faulty(find: Callable[[], T], *, strict: bool) -> T:
    """Return what a lookup finds; it is repeated without each part that was chosen by its rank and is broken.

    A part that the public index lists, one of the running program and one that the config names are not replaced, and
    where nothing else fits the first error is raised.

    Args:
        find: The lookup.
        strict: Raise the error of a broken part instead.
    """
    faults: list[PartError] = []
    aside = dict(_LEFT_OUT.get())
    while True:
        here = _LEFT_OUT.set(dict(aside))
        try:
            found = find()
            break
        except PartError as error:
            part = error.part
            own = part is None or part.in_process or public_index.lists(part)
            if strict or own or id(part) in aside:
                raise (faults[0] if faults else error) from error.__cause__
            faults.append(error)
            aside[id(part)] = f"left out: {error}"
        except CatalogError:
            if faults:
                raise faults[0] from faults[0].__cause__
            raise
        finally:
            _LEFT_OUT.reset(here)
    for fault in faults:
        part = fault.part
        tell_once(
            f"{fault} The lookup goes on without it; keep it out with RLCATALOG_DISABLE_PLUGINS={part.distribution}.",
            (part.kind, part.address, str(fault)),
        )
    return found
