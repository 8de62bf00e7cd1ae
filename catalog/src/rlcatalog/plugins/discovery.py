"""Discovery, from entry points to a load plan in pure functions: scan, de-duplicate, sort, mark what is left out."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from rlcatalog.errors import PluginError, reason

if TYPE_CHECKING:
    from importlib.metadata import Distribution

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


@dataclass(frozen=True)
class _DamagedEntryPoint:
    """Stands for the entry points of an installed distribution whose files cannot be read; loading it says why."""

    name: str
    dist: Any
    error: BaseException
    value: str = ""

    def load(self) -> Any:
        """Raise what is wrong."""
        raise self.error


@cache
def scan() -> tuple[Any, ...]:
    """Return the process's entry points of our group; the installed packages are walked once per process."""
    # Imported here: it costs more than the rest of `import rlcatalog` together.
    import importlib_metadata

    installed: dict[str, Any] = {}
    for number, distribution in enumerate(importlib_metadata.distributions()):
        name = name_of(distribution) or f"distribution {number}"
        # The first copy on the path is the one that is imported, unless it is what an uninstallation left behind.
        if name not in installed or not _is_whole(installed[name]):
            installed[name] = distribution
    return tuple(point for name, found in installed.items() for point in _entry_points_of(name, found))


def name_of(distribution: Distribution) -> str:
    """Return the canonical name of an installed distribution; empty where its metadata is damaged."""
    try:
        # The folder's name where it has one: reading the metadata of every installed package takes long.
        return normalize(getattr(distribution, "_normalized_name", None) or distribution.name)
    except Exception:
        return ""


def _is_whole(distribution: Distribution) -> bool:
    try:
        return any(distribution.read_text(file) is not None for file in ("METADATA", "PKG-INFO", ""))
    except Exception:
        return False


def _entry_points_of(name: str, distribution: Distribution) -> Iterator[Any]:
    """Yield a distribution's entry points of our group, or one that says why they cannot be read."""
    text = ""
    try:
        text = distribution.read_text("entry_points.txt") or ""
        if GROUP in text:
            yield from distribution.entry_points.select(group=GROUP)
        first = next((line for line in map(str.strip, text.splitlines()) if line and line[0] not in "#;"), "[")
        if "rlcatalog" in text and not first.startswith("["):
            raise ValueError(f"{first!r} stands in no section; the section is [{GROUP}]")
    except Exception as error:
        # Others' broken files are no concern of ours: only what speaks of us is reported.
        known = error.object if isinstance(error, UnicodeDecodeError) else text.encode(errors="replace")
        if b"rlcatalog" in known:
            yield _DamagedEntryPoint(
                name, distribution, PluginError(f"entry_points.txt cannot be read: {reason(error)}")
            )


def candidates(entry_points: Iterable[Any]) -> list[Candidate]:
    """Describe each entry point once, in an order that depends on names alone.

    An editable install can show one distribution twice; equal (distribution, name, value) triples are one plugin.
    """
    by_key: dict[tuple[str, str, str], Candidate] = {}
    for entry_point in entry_points:
        name, version, requires = _metadata(entry_point.dist)
        name = name or normalize(entry_point.name)  # without one it would pass for a part of the running program
        key = (name, entry_point.name, entry_point.value)
        if key not in by_key:
            by_key[key] = Candidate(entry_point.name, entry_point.value, name, version, requires, entry_point)
    return [by_key[key] for key in sorted(by_key)]


def _metadata(dist: Distribution) -> tuple[str, str, tuple[str, ...]]:
    """Return name, version and requirements; empty ones for an installation whose metadata is damaged."""
    try:
        metadata = dist.metadata  # parsed anew at each access, hence read once
        version = metadata["Version"]
        requires = tuple(map(str, metadata.get_all("Requires-Dist") or ()))
        return normalize(metadata["Name"]), "" if version is None else str(version), requires
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
        from packaging.requirements import Requirement

        try:
            with _PARSING:
                requirement = Requirement(line)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            served = requirement.specifier.contains(kernel_version, prereleases=True)
        except Exception as error:  # of many kinds, for a marker is evaluated
            return f"its metadata has an unreadable requirement {line!r}: {reason(error)}"
        if not served:
            return f"it needs rlcatalog{requirement.specifier} and this is rlcatalog {kernel_version}"
    return None
