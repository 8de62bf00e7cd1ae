"""Building the registry from declarations: unusable parts are omitted, and the others get
their names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from rlcatalog import public_index
from rlcatalog.errors import CatalogError, DuplicateNameError
from rlcatalog.plugins.discovery import PluginRecord
from rlcatalog.plugins.names import field_names, may_claim
from rlcatalog.plugins.part import Part
from rlcatalog.plugins.registry import Registry, unknown_framework, unknown_key


def assign(records: list[PluginRecord]) -> Registry:
    """Return the registry of the plugins' parts; note omitted parts in the plugins'
    records.
    """
    _refuse_twice(records)
    _refuse_claims(records)
    _refuse_unknown_frameworks(records)
    _refuse_shared_structs(records)
    _refuse_unknown_keys(records)
    _enter_shared_declarations(records)
    owners = {}
    structs = {}
    for user in _struct_users(records):
        owners[user.struct] = user.part.distribution
        structs[str(user.part.declaration.config)] = user.struct
    parts = [part for _, part in _parts(records) if part.declaration.extends is None]
    registry = Registry(records, parts, owners, structs)
    _extend(registry)
    return registry


class _StructUser(NamedTuple):
    """A part with a config struct, and its plugin."""

    record: PluginRecord
    part: Part
    struct: type


def _parts(records: Sequence[PluginRecord]) -> list[tuple[PluginRecord, Part]]:
    """Return the parts that are usable so far, each with its plugin."""
    pairs = []
    for record in records:
        pairs += [(record, part) for part in record.parts]
    return pairs


def _struct_users(records: Sequence[PluginRecord]) -> list[_StructUser]:
    """Return the usable parts that have a config struct."""
    users = []
    for record, part in _parts(records):
        path = part.declaration.config
        if path is not None and part.declaration.extends is None:
            users.append(_StructUser(record, part, record.config_classes[path]))
    return users


def _refuse_twice(records: Sequence[PluginRecord]) -> None:
    """Mark a distribution's plugins as failed if it declares the same name twice."""
    parts = [(record, part) for record, part in _parts(records) if part.declaration.extends is None]
    count = Counter((part.kind, part.address) for _, part in parts)
    for record, part in parts:
        if count[part.kind, part.address] > 1:
            record.fail(
                DuplicateNameError(f"{part.distribution} declares {part.kind} {part.name!r} twice.")
            )


def _refuse_claims(records: Sequence[PluginRecord]) -> None:
    """Drop parts that claim another part's entry in a table that all catalogs share.

    If both are third-party parts, drop both.
    """
    claims: dict[tuple[str, str], list[tuple[PluginRecord, Part]]] = defaultdict(list)
    for record, part in _parts(records):
        for entry in part.declaration.entries:
            claims[part.kind, entry].append((record, part))
    for (kind, entry), claimants in sorted(claims.items()):
        distributions = sorted({part.distribution for _, part in claimants})
        owner = public_index.provider_of(kind, entry)
        keepers = [name for name in distributions if may_claim(kind, entry, name)]
        if not keepers and owner is None:
            keepers = distributions
        for record, part in claimants:
            is_only_keeper = keepers == [part.distribution]
            if is_only_keeper or part not in record.parts:
                continue
            if owner is not None:
                cause = f"belongs to {owner}, and {part.distribution} claims it"
            else:
                cause = f"is claimed by {' and '.join(distributions)}"
            error = DuplicateNameError(
                f"{kind} {part.name!r}: {entry!r} {cause}. Use another name, or disable one"
                f" plugin: RLCATALOG_DISABLE_PLUGINS={part.distribution}."
            )
            record.leave_out(part, error)


def _refuse_unknown_frameworks(records: Sequence[PluginRecord]) -> None:
    """Mark plugins as failed if their parts name unknown frameworks; any plugin may declare a
    framework.
    """
    declared = [part.name for _, part in _parts(records) if part.kind == "framework"]
    for record, part in _parts(records):
        if part.declaration.entries:
            continue  # what all catalogs share is not for one framework
        error = unknown_framework(part, declared)
        if error is not None:
            record.fail(error)


def _refuse_shared_structs(records: Sequence[PluginRecord]) -> None:
    """Drop parts whose config struct another distribution also uses."""
    users = _struct_users(records)
    distributions: dict[type, set[str]] = defaultdict(set)
    for user in users:
        distributions[user.struct].add(user.part.distribution)
    for record, part, struct in users:
        if len(distributions[struct]) > 1:
            names = " and ".join(sorted(distributions[struct]))
            error = DuplicateNameError(
                f"{part.kind} {part.name!r}: {names} share the config"
                f" struct {part.declaration.config}, but its keys can only belong to one package."
                " Define a separate struct."
            )
            record.leave_out(part, error)


def _refuse_unknown_keys(records: Sequence[PluginRecord]) -> None:
    """Drop parts that name an undeclared config key."""
    declared = set()
    for _, part, struct in _struct_users(records):
        for key in field_names(struct):
            if may_claim("config", key, part.distribution):
                declared.add(key)
            else:
                declared.add(f"{part.distribution}/{key}")
    for record, part in _parts(records):
        error = unknown_key(part, declared)
        if error is not None:
            record.leave_out(part, error)


def _enter_shared_declarations(records: Sequence[PluginRecord]) -> None:
    """Enter frameworks and action codecs into their tables, and drop the ones that clash.

    This comes after all other checks, because an entry applies to every catalog of the process.
    """
    for record, part in _parts(records):
        try:
            part.declaration.enter()
        except CatalogError as error:
            record.leave_out(part, error)


def _extend(registry: Registry) -> None:
    """Add code from other packages to the parts that it extends.

    The framework's own package takes precedence.
    """
    owners = {part.name: part.distribution for part in registry.active("framework")}
    parts = {(part.kind, part.address): part for part in registry}
    extensions: dict[tuple[str, str, str], list[tuple[PluginRecord, Part]]] = defaultdict(list)
    for record, extension in _parts(registry.records):
        address = extension.declaration.extends
        if address is not None:
            for framework in extension.declaration.targets:
                extensions[extension.kind, address, framework].append((record, extension))
    for (kind, address, framework), rivals in extensions.items():
        part = parts.get((kind, address))
        if part is None:
            continue
        owner = owners.get(framework)
        if framework in part.declaration.targets:
            owner = part.distribution
        distributions = {part.distribution, *(rival.distribution for _, rival in rivals)}
        owner_has_code = owner in distributions
        for record, extension in rivals:
            if owner_has_code and extension.distribution != owner:
                error = DuplicateNameError(
                    f"{extension.distribution} extends {kind} {address}, but its code for"
                    f" {framework!r} belongs to {owner}."
                )
                record.leave_out(extension, error)
            else:
                part.extensions.setdefault(framework, []).append(extension)
