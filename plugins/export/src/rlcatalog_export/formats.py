"""Formats: `ExportResult` and `Runner`, and the choice of a format for a path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rlcatalog import ExporterSpec
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
    exporters = list(catalog.registry.active("exporter"))
    part = _by_suffix(exporters, path)
    if part is not None:
        return part
    formats = []
    for exporter in exporters:
        suffix = _suffix_of(exporter) or "a folder"
        formats.append(f"{suffix}: {exporter.name!r}")
    raise ConfigError(
        f"{path}: no installed format uses this suffix ({', '.join(formats)}); choose a format with"
        " format=."
    )


def _suffix_of(exporter: Part) -> str:
    """Return the suffix of a format's files; empty if it writes folders."""
    declaration = exporter.declaration
    assert isinstance(declaration, ExporterSpec)
    suffix: str = declaration.suffix
    return suffix


def _by_suffix(exporters: Sequence[Part], path: Path) -> Part | None:
    """Return the exporter for a path's suffix, or None.

    Conflicts are resolved in the same way as for equal names.

    Raises:
        AmbiguousChoiceError: Two exporters use the suffix.
    """
    matches = []
    for exporter in exporters:
        suffix = _suffix_of(exporter)
        if not suffix or not path.name.endswith(suffix):
            continue
        # The public index says which distribution a known suffix belongs to.
        if exporter.in_process or may_claim("suffix", suffix, exporter.distribution):
            matches.append(exporter)
    if len(matches) > 1:
        names = " or ".join(repr(exporter.address) for exporter in matches)
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
    exporters = list(catalog.registry.active("exporter"))
    part = _by_suffix(exporters, path)
    if part is None and path.suffix:
        # Raises an error if a known package, which is not installed, reads such files.
        owner = public_index.provider_of("suffix", path.suffix)
        catalog.registry.explain_missing(f"{path}: the runner of {path.suffix} files", owner)
    if part is None and path.is_dir():
        folder_formats = [exporter for exporter in exporters if not _suffix_of(exporter)]
        part = folder_formats[0] if folder_formats else None
    if part is None:
        names = ", ".join(exporter.name for exporter in exporters) or "none"
        raise SavedPolicyError(
            f"{path}: no installed format uses this suffix; installed formats: {names}."
        )
    runner: Runner = part.load("runner")(path)
    return runner
