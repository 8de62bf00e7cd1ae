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
    owners = {}  # struct → distribution
    structs = {}  # import path → struct
    for user in _struct_users(records):
        owners[user.struct] = user.part.distribution
        structs[str(user.part.declaration.config)] = user.struct
    # An extension is code for another part, so it has no name in the registry.
    parts = [part for _, part in _parts(records) if part.declaration.extends is None]
    registry = Registry(records, parts, owners, structs)
    _extend(registry)
    return registry


class _StructUser(NamedTuple):
    """A part with a config struct, and its plugin."""

    record: PluginRecord
    part: Part
    struct: type


class _PluginPart(NamedTuple):
    """A part and its plugin."""

    record: PluginRecord
    part: Part


def _parts(records: Sequence[PluginRecord]) -> list[_PluginPart]:
    """Return the parts that are usable so far, each with its plugin."""
    parts = []
    for record in records:
        parts += [_PluginPart(record, part) for part in record.parts]
    return parts


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
    # Kind and entry → the parts that claim the entry.
    claims: dict[tuple[str, str], list[_PluginPart]] = defaultdict(list)
    for claimant in _parts(records):
        for entry in claimant.part.declaration.entries:
            claims[claimant.part.kind, entry].append(claimant)
    for (kind, entry), claimants in sorted(claims.items()):
        distributions = sorted({claimant.part.distribution for claimant in claimants})
        owner = public_index.provider_of(kind, entry)
        keepers = [name for name in distributions if may_claim(kind, entry, name)]
        if not keepers and owner is None:  # a single claimant may then keep the entry
            keepers = distributions
        for record, part in claimants:
            is_only_keeper = keepers == [part.distribution]
            is_left_out_already = part not in record.parts  # for another entry
            if is_only_keeper or is_left_out_already:
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
    # Struct → the distributions that use it.
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
    for user in _struct_users(records):
        distribution = user.part.distribution
        for key in field_names(user.struct):
            if may_claim("config", key, distribution):
                declared.add(key)
            else:
                declared.add(f"{distribution}/{key}")
    for record, part in _parts(records):
        error = unknown_key(part, declared)
        if error is not None:
            record.leave_out(part, error)


def _enter_shared_declarations(records: Sequence[PluginRecord]) -> None:
    """Enter what all catalogs share into its tables, and drop the declarations that clash.

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
    framework_owners = {part.name: part.distribution for part in registry.active("framework")}
    parts = {(part.kind, part.address): part for part in registry}
    # Kind, address and framework → the extensions of that part for that framework.
    extensions: dict[tuple[str, str, str], list[_PluginPart]] = defaultdict(list)
    for plugin_part in _parts(registry.records):
        extension = plugin_part.part
        address = extension.declaration.extends
        if address is not None:
            for framework in extension.declaration.targets:
                extensions[extension.kind, address, framework].append(plugin_part)
    for (kind, address, framework), rivals in extensions.items():
        part = parts.get((kind, address))
        if part is None:  # its package is not installed
            continue
        owner = framework_owners.get(framework)
        if framework in part.declaration.targets:  # the part has code for it already
            owner = part.distribution
        distributions = {part.distribution, *(rival.part.distribution for rival in rivals)}
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
