"""A lookup goes on without a stranger's part that turns out broken, and says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from rlcatalog.errors import AmbiguousChoiceError, CatalogError, PartError, PluginWarning
from rlcatalog.plugins import Component
from rlcatalog.reporting import tell_once

T = TypeVar("T")


@dataclass
class _Lookup:
    """A lookup in progress.

    Attributes:
        aside: Identity of a component → why the lookup does without it.
        sayings: What is to be said once it has succeeded.
    """

    aside: Mapping[int, str]
    sayings: list[Callable[[], None]] = field(default_factory=list)


_LOOKUP: ContextVar[_Lookup | None] = ContextVar("rlcatalog_lookup", default=None)


def left_out(component: Component) -> str | None:
    """Return why the lookup in progress does without a component, or None."""
    lookup = _LOOKUP.get()
    return None if lookup is None else lookup.aside.get(id(component))


def is_repeated() -> bool:
    """Whether a lookup is in progress that does without something, and so must not be answered from memory."""
    lookup = _LOOKUP.get()
    return lookup is not None and bool(lookup.aside)


def say(text: str, about: tuple[str, ...], category: type[PluginWarning]) -> None:
    """Warn of a choice, once per process; within a lookup when it has succeeded, for a choice may be taken back."""
    say_when_found(lambda: tell_once(text, about, category))


def say_when_found(saying: Callable[[], None]) -> None:
    """Call a function that warns; within a lookup when it has succeeded."""
    lookup = _LOOKUP.get()
    if lookup is None:
        saying()
    else:
        lookup.sayings.append(saying)


def without_faulty(find: Callable[[], T], *, strict: bool) -> T:
    """Return what a lookup finds; it is repeated without each part that was chosen by its rank and is broken.

    A part that the public index lists, one of the running program, and one that the config names or whose switch is on
    are not replaced, and where nothing else fits the first error is raised. Of lookups within lookups the outermost is
    repeated.

    Args:
        find: The lookup.
        strict: Raise the error of a broken part instead.
    """
    if _LOOKUP.get() is not None:
        return find()
    faults: list[PartError] = []
    aside: dict[int, str] = {}
    while True:
        lookup = _Lookup(dict(aside))
        here = _LOOKUP.set(lookup)
        try:
            found = find()
            break
        except PartError as error:
            part = error.part
            own = part is None or not part.is_strange
            if strict or own or id(part) in aside:
                raise (faults[0] if faults else error) from error.__cause__
            faults.append(error)
            aside[id(part)] = f"left out: {error}"
        except AmbiguousChoiceError:
            raise
        except CatalogError:
            if faults:
                raise faults[0] from faults[0].__cause__
            raise
        finally:
            _LOOKUP.reset(here)
    for fault in faults:
        part = fault.part
        tell_once(
            f"{fault} The lookup goes on without it; keep it out with RLCATALOG_DISABLE_PLUGINS={part.distribution}.",
            (part.kind, part.address, str(fault)),
        )
    for saying in lookup.sayings:
        saying()
    return found
