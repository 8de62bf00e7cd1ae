"""What the command `list` shows: the installed parts, and the packages that provide them."""

from __future__ import annotations

from collections.abc import Sequence

from rlcatalog import __version__
from rlcatalog.choice import MODEL_SLOTS
from rlcatalog.frameworks import frameworks
from rlcatalog.internals import PluginRecord, Sheet, how_to_start, public_index
from rlcatalog.plugins import Part

#: The kinds of parts in the order of the list: what an observation passes on its way to an action,
#: then what runs a policy, then what stands around it.
_ORDER = (
    "env_adapter",
    "env_wrapper",
    "preprocessor",
    "filter",
    *MODEL_SLOTS,
    "action_dist",
    "action_codec",
    "framework",
    "engine",
    "exporter",
    "command",
)
#: The title of the trunks, which a config names as `custom_model`.
_TITLES = {"trunk": "model"}
#: The kind that is listed only if it is asked for, because users do not name its parts.
_CHECK = "check"


def list_sheet(
    plugins: Sequence[PluginRecord], parts: Sequence[Part], kind: str | None = None
) -> Sheet:
    """Return the sheet that `list` shows: a table for each kind of part, and one of the packages.

    Args:
        plugins: The installed plugins.
        parts: The parts to list.
        kind: The only kind that was asked for, or None. The packages are then left out.
    """
    tables: dict[str, list[tuple[str, ...]]] = {}
    for title, parts_of_kind in _parts_by_title(parts, kind).items():
        tables[title] = _part_rows(parts_of_kind)
    errors = []
    if kind is None:
        header = ("package", "version", "status")
        packages = []
        for record in plugins:
            packages.append((record.distribution, record.version, record.status))
            if record.error is not None:
                errors.append((record.distribution, f"{record.status}: {record.error}"))
        tables["packages"] = [header, *packages]
    facts = []
    # The command line itself has commands, even if no other package is installed.
    has_only_commands = all(part.kind == "command" for part in parts)
    if has_only_commands and kind is None:
        facts.append(("note", f"No parts are installed. {how_to_start()}"))
    most_rows = max((len(rows) for rows in tables.values()), default=0)  # so that all are shown
    return Sheet(f"rlcatalog {__version__}", facts, tables, errors, most=most_rows)


def _parts_by_title(parts: Sequence[Part], kind: str | None) -> dict[str, list[Part]]:
    """Return the parts by the title of their table, in the order of the tables.

    Code that a package adds to another package's part has no row, because it has no name that a
    user could write: the row of that part shows its framework.
    """
    parts_by_slot: dict[str, list[Part]] = {slot: [] for slot in _ORDER}
    for part in parts:
        is_extension = part.declaration.extends is not None
        is_internal = part.kind == _CHECK and kind != _CHECK
        if not is_extension and not is_internal:
            parts_by_slot.setdefault(part.slot, []).append(part)
    parts_by_title = {}
    for slot, parts_of_slot in parts_by_slot.items():
        if parts_of_slot:
            parts_by_title[_TITLES.get(slot, slot)] = parts_of_slot
    return parts_by_title


def _part_rows(parts: Sequence[Part]) -> list[tuple[str, ...]]:
    """Return the rows of a table: name, package and summary of each part.

    The first row, for the names of the columns, is empty: the cells explain themselves.
    """
    no_header = ()
    rows: list[tuple[str, ...]] = [no_header]
    for part in parts:
        summary = part.declaration.summary
        names = framework_names(part)
        serves_all_frameworks = set(names) >= set(frameworks())
        if names and not serves_all_frameworks:
            summary += f" ({' and '.join(names)} only)"
        rows.append((part.name, part.distribution or "this process", summary))
    return rows


def framework_names(part: Part) -> list[str]:
    """Return the frameworks that a part has code for; empty for a part that needs none.

    A framework's own declaration names its pieces of code where other parts name frameworks, so
    that it has none either.
    """
    known_names = {*frameworks(), *public_index.frameworks()}
    return [name for name in part.frameworks if name in known_names]
