"""Discovery of plugins from entry points: scans, removes duplicates, sorts, and marks disabled
plugins.

Only this file reads the files of installed distributions. It reads them through the package
`importlib_metadata`, because the standard library's copy of it differs from one Python to the next.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rlcatalog.declaration import normalize as normalize
from rlcatalog.errors import (
    CatalogError,
    DeclarationError,
    IncompatiblePluginError,
    PluginError,
    reason,
)

if TYPE_CHECKING:
    from rlcatalog.plugins.part import Part

GROUP = "rlcatalog.plugins"
#: The files with a distribution's headers: a wheel's, an egg folder's, and an egg that is a file.
_HEADER_FILES = ("METADATA", "PKG-INFO", "")
#: A header that a plugin's record needs. Lines that begin with a space continue its value.
_HEADER = re.compile(
    r"^(Name|Version|Requires-Dist):(.*(?:\n[ \t].*)*)$", re.IGNORECASE | re.MULTILINE
)
#: A version without suffix.
_NUMBERS = r"(\d+(?:\.\d+)*)"
#: Reading a marker goes through `ast.parse`, which may fail if several threads do it at the same
#: time (CPython 3.11).
_PARSING = threading.Lock()


@dataclass
class PluginRecord:
    """A plugin: its entry point and its status.

    Attributes:
        name: Entry-point name.
        distribution: Normalised name of the distribution that provides it.
        version: Version of that distribution, or an empty string.
        requires: That distribution's `Requires-Dist` lines.
        entry_point: The object whose `load()` imports the plugin.
        status: `"loaded"`, `"disabled"`, `"incompatible"` or `"failed"`.
        error: Why the plugin is not loaded, or which parts are omitted, as text; None if there
            are no problems.
        exception: The exception that caused `error`, if the plugin failed.
        problems: The problems of a loaded plugin.
        parts: The plugin's parts, without the omitted ones.
        config_classes: Import path → config struct, for the plugin's parts.
        plugin_name: The plugin's name in pluggy's manager: its distribution's name, or
            `distribution/name` for a second plugin of one distribution.
    """

    name: str
    distribution: str
    version: str
    requires: tuple[str, ...] = field(default=(), repr=False)
    entry_point: Any = field(default=None, repr=False)
    status: str = "loaded"
    error: str | None = None
    exception: BaseException | None = field(default=None, repr=False)
    problems: list[CatalogError] = field(default_factory=list, repr=False)
    parts: list[Part] = field(default_factory=list, repr=False)
    config_classes: dict[str, type] = field(default_factory=dict, repr=False)
    plugin_name: str = field(default="", repr=False)

    @property
    def condition(self) -> str:
        """The status with the error, as a predicate: `"has failed: ..."`."""
        verb = "has" if self.status == "failed" else "is"
        return f"{verb} {self.status}: {self.error}"

    def fail(self, exception: BaseException, status: str = "failed") -> None:
        """Record that the plugin is unusable, and why."""
        self.status = status
        self.exception = exception
        self.error = _text(exception)
        self.parts = []

    def refuse(self, why: str) -> None:
        """Record that the plugin requires a different version of the kernel."""
        fix = f"Install a version of {self.distribution} for it, or another version of rlcatalog."
        self.fail(
            IncompatiblePluginError(f"{self.distribution} {self.version}: {why}. {fix}"),
            "incompatible",
        )
        # Messages have the distribution before this text already.
        self.error = f"{why}. {fix}"

    def note(self, problem: CatalogError) -> None:
        """Record a problem with a plugin that is still usable."""
        self.problems.append(problem)
        self.error = "; ".join(dict.fromkeys(map(_text, self.problems)))

    def leave_out(self, part: Part, problem: CatalogError) -> None:
        """Drop a part and record the reason. A plugin with no parts left has failed."""
        self.note(problem)
        self.parts = [other for other in self.parts if other is not part]
        if not self.parts:
            self.status = "failed"
            self.exception = self.problems[0]


def _text(exception: BaseException) -> str:
    """Return an error's text, with its type if rlcatalog does not raise it for plugins alone."""
    text = reason(exception)
    if isinstance(exception, DeclarationError | IncompatiblePluginError):
        _, _, text = text.partition(": ")
    return text


class _DamagedEntryPoint(NamedTuple):
    """Entry point of an installed distribution whose files cannot be read; loading it raises the
    original error.
    """

    name: str
    dist: Any
    error: BaseException
    value: str = ""

    def load(self) -> Any:
        """Raise the original error."""
        raise self.error


class _Distribution(Protocol):
    """What discovery asks of an installed distribution, whichever import finder returns it."""

    @property
    def name(self) -> str: ...

    @property
    def entry_points(self) -> Any: ...

    def read_text(self, filename: str) -> str | None: ...


class _Headers(NamedTuple):
    """Headers of a distribution; empty if the distribution lacks them."""

    name: str = ""
    version: str = ""
    requires: tuple[str, ...] = ()


@cache
def scan() -> tuple[Any, ...]:
    """Return the entry points in rlcatalog's group; installed packages are read once
    per process.
    """
    # Imported here: it costs more than the rest of `import rlcatalog` together.
    from importlib_metadata import distributions

    installed: dict[str, Any] = {}
    for number, distribution in enumerate(distributions()):
        name = name_of(distribution) or f"distribution {number}"
        # Python imports the first copy on the path. One without headers is what an uninstallation
        # left behind.
        if name not in installed or not _has_headers(installed[name]):
            installed[name] = distribution
    entry_points: list[Any] = []
    for name, distribution in installed.items():
        entry_points += _entry_points_of(name, distribution)
    return tuple(entry_points)


def installed_version(name: str) -> str | None:
    """Return the version of an installed distribution, or None if it is not installed.

    The version is empty if the distribution's metadata is damaged.
    """
    from importlib_metadata import distributions

    versions = [_headers_of(copy).version for copy in distributions(name=name)]
    if not versions:
        return None
    for version in versions:
        if version:  # a copy without a version is the remainder of an uninstallation
            return version
    return ""


def name_of(distribution: _Distribution) -> str:
    """Return the canonical name of an installed distribution; empty if its metadata is damaged."""
    with suppress(Exception):
        # importlib_metadata's private name comes from the folder: reading the metadata of all
        # installed packages is slow.
        name_of_folder = getattr(distribution, "_normalized_name", None)
        return normalize(name_of_folder or distribution.name)
    return ""


def _has_headers(distribution: _Distribution) -> bool:
    with suppress(Exception):
        return _header_text(distribution) is not None
    return False


def _header_text(distribution: _Distribution) -> str | None:
    """Return the text of the file with a distribution's headers, or None if there is none."""
    for file in _HEADER_FILES:
        text = distribution.read_text(file)
        if text is not None:
            return text
    return None


def _headers_of(distribution: _Distribution) -> _Headers:
    """Return a distribution's headers; empty ones if its metadata is damaged.

    `distribution.metadata` contains the same headers, but it loads the standard library's parser
    for e-mails, which takes a tenth of a process's first lookup.
    """
    values: dict[str, list[str]] = {"name": [], "version": [], "requires-dist": []}
    with suppress(Exception):  # damaged metadata leaves the lists empty
        text = _header_text(distribution) or ""
        # The description starts after the first empty line, and may contain anything.
        headers = text.partition("\n\n")[0]
        for header, value in _HEADER.findall(headers):
            values[header.lower()].append(" ".join(value.split()))
    return _Headers(
        name=_first(values["name"]),
        version=_first(values["version"]),
        requires=tuple(values["requires-dist"]),
    )


def _first(values: Sequence[str]) -> str:
    return values[0] if values else ""


def _entry_points_of(name: str, distribution: _Distribution) -> Iterator[Any]:
    """Yield a distribution's entry points in our group, or one entry point with the reason why they
    cannot be read.
    """
    text = ""
    try:
        text = distribution.read_text("entry_points.txt") or ""
        if GROUP in text:
            yield from distribution.entry_points.select(group=GROUP)
        first_line = _first_line(text)
        lacks_section = bool(first_line) and not first_line.startswith("[")
        if "rlcatalog" in text and lacks_section:
            raise ValueError(f"{first_line!r} is not in a section; expected the section [{GROUP}]")
    except Exception as error:
        content = text.encode(errors="replace")
        if isinstance(error, UnicodeDecodeError):
            content = error.object  # the file's bytes
        # Only report broken files that mention rlcatalog.
        if b"rlcatalog" in content:
            why = PluginError(f"entry_points.txt cannot be read: {reason(error)}")
            yield _DamagedEntryPoint(name, distribution, why)


def _first_line(text: str) -> str:
    """Return the first line of a file of entry points that is neither empty nor a comment."""
    for line in text.splitlines():
        line = line.strip()
        if line and not line.startswith(("#", ";")):
            return line
    return ""


def find_plugins(entry_points: Iterable[Any]) -> list[PluginRecord]:
    """Return each entry point's plugin once, in an order that depends only on names.

    An editable install can list the same distribution twice; equal (distribution, name, value)
    triples are one plugin.
    """
    plugins: dict[tuple[str, str, str], PluginRecord] = {}
    for point in entry_points:
        # An entry point that the caller made may lack a distribution.
        provider = getattr(point, "dist", None)
        headers = _Headers() if provider is None else _headers_of(provider)
        # An empty name would make its parts look as if the running program had registered them.
        distribution = normalize(headers.name or point.name)
        record = PluginRecord(point.name, distribution, headers.version, headers.requires, point)
        plugins.setdefault((distribution, point.name, point.value), record)
    records = [plugins[key] for key in sorted(plugins)]
    names: set[str] = set()
    for record in records:
        record.plugin_name = record.distribution
        if record.distribution in names:  # a second plugin of one distribution
            record.plugin_name = f"{record.distribution}/{record.name}"
        names.add(record.plugin_name)
    return records


def _names(text: str) -> frozenset[str]:
    return frozenset(normalize(part) for part in text.split(",") if part.strip())


def disabled_reason(plugin: PluginRecord, environ: Mapping[str, str]) -> str | None:
    """Return why environment variables disable a plugin, or None.

    `RLCATALOG_DISABLE_PLUGINS` lists plugins to skip (`*` for all), and `RLCATALOG_LOAD_PLUGINS`
    lists the only ones to load (empty for none). Both take distribution and entry-point names,
    separated by commas.
    """
    names = {plugin.distribution, normalize(plugin.name)}
    blocked = environ.get("RLCATALOG_DISABLE_PLUGINS", "")
    blocks_all = "*" in (part.strip() for part in blocked.split(","))
    if blocks_all or names & _names(blocked):  # one of the plugin's names is listed
        return f"disabled by RLCATALOG_DISABLE_PLUGINS={blocked!r}"
    allowed = environ.get("RLCATALOG_LOAD_PLUGINS")
    if allowed is not None and not names & _names(allowed):
        return f"not in RLCATALOG_LOAD_PLUGINS={allowed!r}"
    return None


def _is_in_simple_range(line: str, version: str) -> bool:
    """Return whether a requirement has the form `rlcatalog<0.2,>=0.1` and a version without suffix
    is in that range.

    Most requirements have this form, and `packaging`, which reads all forms, takes long to import.
    """
    texts = re.fullmatch(rf"rlcatalog<{_NUMBERS},>={_NUMBERS} {_NUMBERS}", f"{line} {version}")
    if texts is None:
        return False
    end, start, number = map(_release, texts.groups())
    return start <= number < end


def _release(version: str) -> tuple[int, ...]:
    """Return a version as numbers without zeros at the end, because 1.0 is 1."""
    without_zeros = re.sub(r"(\.0+)+$", "", version)
    return tuple(map(int, without_zeros.split(".")))


def incompatible_reason(plugin: PluginRecord, kernel_version: str) -> str | None:
    """Return why a distribution's metadata excludes this kernel, or None."""
    for line in plugin.requires:
        is_about_kernel = re.match(r"rlcatalog(?![\w.-])", line, re.IGNORECASE)
        if is_about_kernel and not _is_in_simple_range(line, kernel_version):
            why = _excluding_reason(line, kernel_version)
            if why is not None:
                return why
    return None


def _excluding_reason(line: str, kernel_version: str) -> str | None:
    """Return why a requirement excludes this kernel, or None."""
    # Imported here, because it takes a tenth of a process's first lookup and is rarely needed.
    from packaging.requirements import Requirement

    try:
        with _PARSING:
            requirement = Requirement(line)
        without_extras = {"extra": ""}
        applies = requirement.marker is None or requirement.marker.evaluate(without_extras)
        is_served = requirement.specifier.contains(kernel_version, prereleases=True)
    except Exception as error:  # any, because evaluating a marker raises errors of many types
        return f"its metadata has an unreadable requirement {line!r}: {reason(error)}"
    if applies and not is_served:
        return f"it needs rlcatalog{requirement.specifier}, but this is rlcatalog {kernel_version}"
    return None
