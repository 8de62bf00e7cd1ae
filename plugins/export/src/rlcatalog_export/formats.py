"""Formats: `ExportResult` and `Runner`, and the choice of a format for a path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rlcatalog.errors import AmbiguousChoiceError, ConfigError, SavedPolicyError
from rlcatalog.frameworks import Array
from rlcatalog.internals import may_claim, public_index
from rlcatalog.plugins import Part

if TYPE_CHECKING:
    from rlcatalog.catalog import Catalog
    from rlcatalog_export.interface import Interface
    from rlcatalog_policy import Policy


@dataclass(frozen=True)
class ExportResult:
    """Result of a writer.

    Attributes:
        interface: The file's inputs and outputs.
        policy: Copy of the policy for the comparison with the file.
        drawing: `drawing(noise)` returns a context in which `policy.act` samples from noise
            `[B, k]` as the file does. If None, sampled outputs are not compared.
    """

    interface: Interface
    policy: Policy
    drawing: Callable[[Array], AbstractContextManager[Any]] | None


class Runner(Protocol):
    """Base class for objects that run an exported policy.

    Attributes:
        interface: The file's inputs and outputs as JSON, written by `Interface.to_json`.
        checked: Whether the file has a (correct) checksum for its whole content; None if the format
            has no checksums. A wrong checksum raises `SavedPolicyError` instead.
    """

    interface: str

    @property
    def checked(self) -> bool | None:  # documented above
        ...

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Sequence[Array]:
        """Return a dict of outputs for a dict of inputs."""


def exporter_for(catalog: Catalog, path: Path, format: str | None) -> Part:
    """Return the exporter for a named format, or else for a path's suffix.

    Raises:
        ConfigError: No format is named, and no format uses the suffix.
        UnknownNameError: No format has this name.
        MissingPluginError: The format's package cannot be used.
    """
    if format is not None:
        return catalog.registry.get("exporter", format)
    known = list(catalog.registry.active("exporter"))
    if (part := _by_suffix(known, path)) is None:
        suffixes = ", ".join(f"{c.declaration.suffix or 'a folder'}: {c.name!r}" for c in known)  # type: ignore[attr-defined]
        raise ConfigError(
            f"{path}: no installed format uses this suffix ({suffixes}); choose a format with"
            " format=."
        )
    return part


def _by_suffix(parts: Sequence[Part], path: Path) -> Part | None:
    """Return the exporter for a path's suffix, or None.

    Conflicts are resolved in the same way as for equal names.

    Raises:
        AmbiguousChoiceError: Two exporters use the suffix.
    """
    matches = []
    for c in parts:
        suffix = c.declaration.suffix  # type: ignore[attr-defined]
        if (
            suffix
            and path.name.endswith(suffix)
            and (c.in_process or may_claim("suffix", suffix, c.distribution))
        ):
            matches.append(c)
    if len(matches) > 1:
        names = " or ".join(repr(c.address) for c in matches)
        raise AmbiguousChoiceError(
            f"{path}: several formats use this suffix; choose one with format=: {names}."
        )
    return matches[0] if matches else None


def runner_for(catalog: Catalog, path: Path) -> Runner:
    """Return the runner for an exported policy.

    Raises:
        SavedPolicyError: The file does not exist, or no format uses its suffix.
        MissingPluginError: The format's package cannot be used.
    """
    if not path.exists():
        raise SavedPolicyError(f"{path}: there is no such file.")
    known = list(catalog.registry.active("exporter"))
    if (part := _by_suffix(known, path)) is None and path.suffix:
        owner = public_index.provider_of("suffix", path.suffix)
        catalog.registry.explain_missing(f"{path}: the runner of {path.suffix} files", owner)
    if part is None and path.is_dir():
        part = next((c for c in known if not c.declaration.suffix), None)  # type: ignore[attr-defined]
    if part is None:
        raise SavedPolicyError(
            f"{path}: no installed format uses this suffix; installed formats: "
            f"{', '.join(c.name for c in known) or 'none'}."
        )
    made: Runner = part.load("runner")(path)
    return made
