"""Formats: which one a path is of, and what runs a file of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlcatalog.errors import AmbiguousChoiceError, ConfigError, SavedPolicyError
from rlcatalog.internals import may_claim, public_index
from rlcatalog.plugins import Component
from rlcatalog_export.contract import Runner

if TYPE_CHECKING:
    from rlcatalog.catalog import Catalog


def exporter_for(catalog: Catalog, path: Path, format: str | None) -> Component:
    """Return the exporter of a format, or of a path's suffix.

    Raises:
        ConfigError: No format is named, and the suffix is of none.
        UnknownNameError: There is no such format.
        MissingPluginError: The package that brings it is not usable here.
    """
    if format is not None:
        return catalog.registry.get("exporter", format)
    known = list(catalog.registry.active("exporter"))
    component = _by_suffix(known, path)
    if component is None:
        suffixes = ", ".join(f"{c.declaration.suffix or 'a folder'}: {c.name!r}" for c in known)  # type: ignore[attr-defined]
        raise ConfigError(
            f"{path}: which format? Its name ends like that of none here ({suffixes}); name one with format=."
        )
    return component


def _by_suffix(components: Sequence[Component], path: Path) -> Component | None:
    """Return the exporter whose suffix a path has, or None; a suffix belongs to whom a name would.

    Raises:
        AmbiguousChoiceError: Two have it.
    """
    matches = []
    for c in components:
        suffix = c.declaration.suffix  # type: ignore[attr-defined]
        if suffix and path.name.endswith(suffix) and (c.in_process or may_claim("suffix", suffix, c.distribution)):
            matches.append(c)
    if len(matches) > 1:
        names = " or ".join(repr(c.address) for c in matches)
        raise AmbiguousChoiceError(f"{path}: several formats have this suffix; name one with format=: {names}.")
    return matches[0] if matches else None


def runner_for(catalog: Catalog, path: Path) -> Runner:
    """Return what runs an exported policy.

    Raises:
        SavedPolicyError: There is no such file, or its name ends like that of no format.
        MissingPluginError: The package of its format is not usable here.
    """
    if not path.exists():
        raise SavedPolicyError(f"{path}: there is no such file.")
    known = list(catalog.registry.active("exporter"))
    component = _by_suffix(known, path)
    if component is None and path.suffix:
        owner = public_index.provider_of("suffix", path.suffix)
        catalog.registry.explain_missing(f"{path}: what runs {path.suffix} files", owner)
    if component is None and path.is_dir():
        component = next((c for c in known if not c.declaration.suffix), None)  # type: ignore[attr-defined]
    if component is None:
        raise SavedPolicyError(f"{path}: its name ends like that of no format known here; formats:"
                               f" {', '.join(c.name for c in known) or 'none'}.")  # fmt: skip
    made: Runner = component.load("runner")(path)
    return made
