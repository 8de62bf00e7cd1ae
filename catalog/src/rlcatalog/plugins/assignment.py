"""Building the registry from declarations: unusable parts are omitted, and the others get
their names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from rlcatalog import public_index
from rlcatalog.errors import CatalogError, DuplicateNameError
from rlcatalog.plugins.discovery import PluginRecord
from rlcatalog.plugins.names import may_claim
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
    for record, c in _parts(records):  # of usable plugins: entries are final
        try:
            c.declaration.enter()
        except CatalogError as error:
            record.leave_out(c, error)
    registry = Registry(
        records,
        [c for _, c in _parts(records) if c.declaration.extends is None],
        {struct: c.distribution for _, c, struct in _holders(records)},
        {str(c.declaration.config): struct for _, c, struct in _holders(records)},
    )
    _extend(registry)
    return registry


def _parts(records: Sequence[PluginRecord]) -> list[tuple[PluginRecord, Part]]:
    """Return the parts that are usable so far, each with its plugin."""
    return [(record, c) for record in records for c in record.parts]


def _holders(records: Sequence[PluginRecord]) -> list[tuple[PluginRecord, Part, type]]:
    """Return the usable parts that have a config struct, each with that struct."""
    return [
        (record, c, record.config_classes[c.declaration.config])
        for record, c in _parts(records)
        if c.declaration.config is not None and c.declaration.extends is None
    ]


def _refuse_twice(records: Sequence[PluginRecord]) -> None:
    """Mark a distribution's plugins as failed if it declares the same name twice."""
    own = [(record, c) for record, c in _parts(records) if c.declaration.extends is None]
    count = Counter((c.kind, c.address) for _, c in own)
    for record, c in own:
        if count[c.kind, c.address] > 1:
            record.fail(DuplicateNameError(f"{c.distribution} declares {c.kind} {c.name!r} twice."))


def _refuse_claims(records: Sequence[PluginRecord]) -> None:
    """Drop parts that claim another part's entry in a process-wide table.

    If both are third-party parts, drop both.
    """
    claims: dict[tuple[str, str], list[tuple[PluginRecord, Part]]] = defaultdict(list)
    for record, c in _parts(records):
        for entry in c.declaration.entries:
            claims[c.kind, entry].append((record, c))
    for (kind, entry), rivals in sorted(claims.items()):
        distributions = sorted({c.distribution for _, c in rivals})
        owner = public_index.provider_of(kind, entry)
        keepers = [d for d in distributions if may_claim(kind, entry, d)] or (
            [] if owner else distributions
        )
        for record, c in rivals:
            if keepers != [c.distribution] and c in record.parts:
                text = (
                    f"belongs to {owner}, and {c.distribution} claims it"
                    if owner
                    else (f"is claimed by {' and '.join(distributions)}")
                )
                record.leave_out(
                    c,
                    DuplicateNameError(
                        f"{kind} {c.name!r}: {entry!r} {text}. Use another name, or disable one"
                        f" plugin: RLCATALOG_DISABLE_PLUGINS={c.distribution}."
                    ),
                )


def _refuse_unknown_frameworks(records: Sequence[PluginRecord]) -> None:
    """Mark plugins as failed if their parts name unknown frameworks; any plugin may declare a
    framework.
    """
    declared = [c.name for _, c in _parts(records) if c.kind == "framework"]
    for record, c in _parts(records):
        # entries are of no framework.
        error = None if c.declaration.entries else unknown_framework(c, declared)
        if error is not None:
            record.fail(error)


def _refuse_shared_structs(records: Sequence[PluginRecord]) -> None:
    """Drop parts whose config struct another distribution also uses."""
    users: dict[type, set[str]] = defaultdict(set)
    for _, c, struct in _holders(records):
        users[struct].add(c.distribution)
    for record, c, struct in _holders(records):
        if len(users[struct]) > 1:
            record.leave_out(
                c,
                DuplicateNameError(
                    f"{c.kind} {c.name!r}: {' and '.join(sorted(users[struct]))} share the config"
                    f" struct {c.declaration.config}, but its keys can only belong to one package."
                    " Define a separate struct."
                ),
            )


def _refuse_unknown_keys(records: Sequence[PluginRecord]) -> None:
    """Drop parts that name an undeclared config key."""
    known = {
        key if may_claim("config", key, c.distribution) else f"{c.distribution}/{key}"
        for _, c, struct in _holders(records)
        for key in struct.__struct_fields__  # type: ignore[attr-defined]
    }
    for record, c in _parts(records):
        if (error := unknown_key(c, known)) is not None:
            record.leave_out(c, error)


def _extend(registry: Registry) -> None:
    """Add code from other packages to the parts that it extends.

    The framework's own package takes precedence.
    """
    owners = {c.name: c.distribution for c in registry.active("framework")}
    parts = {(c.kind, c.address): c for c in registry}
    brought: dict[tuple[str, str, str], list[tuple[PluginRecord, Part]]] = defaultdict(list)
    for record, c in _parts(registry.records):
        for framework in c.declaration.targets if c.declaration.extends is not None else ():
            brought[c.kind, str(c.declaration.extends), framework].append((record, c))
    for (kind, address, framework), rivals in brought.items():
        if (part := parts.get((kind, address))) is None:
            continue
        own = part.distribution if framework in part.declaration.targets else owners.get(framework)
        is_owned = own == part.distribution or any(c.distribution == own for _, c in rivals)
        for record, c in rivals:
            if is_owned and c.distribution != own:
                text = (
                    f"{c.distribution} extends {kind} {address}, but its code for {framework!r}"
                    f" belongs to {own}."
                )
                record.leave_out(c, DuplicateNameError(text))
            else:
                part.extensions.setdefault(framework, []).append(c)
