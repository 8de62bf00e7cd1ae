"""Discovery, from entry points to a load plan in pure functions: scan, de-duplicate, sort, mark what is left out."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

GROUP = "rlcatalog.plugins"
#: Reading a marker goes through `ast.parse`, which may fail where several threads do it at once (CPython 3.11).
_PARSING = threading.Lock()


def normalize(name: str) -> str:
    """Return a distribution's name in its canonical spelling (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


@dataclass(frozen=True)
class Candidate:
    """A plugin found, not yet imported.

    Attributes:
        name: The entry point's name.
        value: The module the entry point names.
        distribution: Normalised name of the distribution, or an empty string.
        version: Its version, or an empty string.
        requires: Its `Requires-Dist` lines.
        entry_point: The object whose `load()` imports the module.
    """

    name: str
    value: str
    distribution: str
    version: str
    requires: tuple[str, ...]
    entry_point: Any


@cache
def scan() -> tuple[Any, ...]:
    """Return the process's entry points of our group; the installed packages are walked once per process."""
    # Imported here: it costs more than the rest of `import rlcatalog` together.
    import importlib_metadata

    try:
        return tuple(importlib_metadata.entry_points(group=GROUP))
    except Exception:  # one damaged installation must not hide the others: ask each for itself
        return tuple(_from_each(importlib_metadata.distributions()))


def _from_each(distributions: Iterable[Any]) -> Iterator[Any]:
    seen: set[str] = set()
    for distribution in distributions:
        try:
            name = normalize(distribution.name)
            if name not in seen:  # the first copy on the path is the one that is imported
                seen.add(name)
                yield from distribution.entry_points.select(group=GROUP)
        except Exception:  # nothing can be said about it, not even its name
            continue


def candidates(entry_points: Iterable[Any]) -> list[Candidate]:
    """Describe each entry point once, in an order that depends on names alone.

    An editable install can show one distribution twice; equal (distribution, name, value) triples are one plugin.
    """
    found: dict[tuple[str, str, str], Candidate] = {}
    for entry_point in entry_points:
        name, version, requires = _metadata(entry_point.dist)
        if entry_point.dist is not None:  # without a name it would pass for a part of the running program
            name = name or normalize(entry_point.name)
        key = (name, entry_point.name, entry_point.value)
        if key not in found:
            found[key] = Candidate(entry_point.name, entry_point.value, name, version, requires, entry_point)
    return [found[key] for key in sorted(found)]


def _metadata(dist: Any) -> tuple[str, str, tuple[str, ...]]:
    """Return name, version and requirements; empty ones for an installation whose metadata is damaged."""
    try:
        metadata = dist.metadata  # parsed anew at each access, hence read once
        return normalize(metadata["Name"]), str(metadata["Version"]), tuple(metadata.get_all("Requires-Dist") or ())
    except Exception:
        return "", "", ()


def _names(text: str) -> frozenset[str]:
    return frozenset(normalize(part) for part in text.split(",") if part.strip())


def disabled_reason(candidate: Candidate, environ: Mapping[str, str]) -> str | None:
    """Say why the environment variables keep a plugin from being imported, or None.

    `RLCATALOG_DISABLE_PLUGINS` lists plugins to leave out (`*` for all), `RLCATALOG_LOAD_PLUGINS` the only ones to load
    (empty: none). Both take distribution and entry-point names, separated by commas.
    """
    own = {candidate.distribution, normalize(candidate.name)}
    blocked = environ.get("RLCATALOG_DISABLE_PLUGINS", "")
    if own & _names(blocked) or "*" in (part.strip() for part in blocked.split(",")):
        return f"disabled by RLCATALOG_DISABLE_PLUGINS={blocked!r}"
    allowed = environ.get("RLCATALOG_LOAD_PLUGINS")
    if allowed is not None and not own & _names(allowed):
        return f"not in RLCATALOG_LOAD_PLUGINS={allowed!r}"
    return None


def incompatible_reason(candidate: Candidate, kernel_version: str) -> str | None:
    """Say why a distribution's own metadata rules this kernel out, or None."""
    for line in candidate.requires:
        if not re.match(r"rlcatalog(?![\w.-])", line, re.IGNORECASE):
            continue
        from packaging.requirements import InvalidRequirement, Requirement

        try:
            with _PARSING:
                requirement = Requirement(line)
        except InvalidRequirement as error:
            return f"its metadata has an unreadable requirement {line!r}: {error}"
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if not requirement.specifier.contains(kernel_version, prereleases=True):
            return f"it needs rlcatalog{requirement.specifier} and this is rlcatalog {kernel_version}"
    return None
