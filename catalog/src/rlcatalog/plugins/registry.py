"""Registry of names: plugins' parts, registered parts, and their origins."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping

from rlcatalog import public_index
from rlcatalog.errors import (
    AmbiguousChoiceError,
    DeclarationError,
    DuplicateNameError,
    MissingPluginError,
    UnknownNameError,
    nearest,
    shown,
)
from rlcatalog.frameworks import frameworks
from rlcatalog.plugins import install_hints
from rlcatalog.plugins.discovery import PluginRecord, normalize
from rlcatalog.plugins.names import bare_keys, may_claim, ways_to_say
from rlcatalog.plugins.part import Part

#: The owner of parts that the running program registers.
THIS_PROCESS = "this process"


class Registry:
    """Registry of all parts in one catalog by kind and name, with the config structs that
    define their keys. It is never changed; `with_registered` returns a new one.

    Args:
        records: The plugins, loaded or not.
        parts: The parts of the loaded plugins.
        classes: Config struct → the distribution that owns its keys.
        paths: Import path, as written in declarations → config struct.
    """

    def __init__(
        self,
        records: list[PluginRecord],
        parts: Iterable[Part],
        classes: Mapping[type, str],
        paths: Mapping[str, type],
    ) -> None:
        self.records = records
        #: Sorted by kind, name and distribution.
        self._parts = sorted(parts, key=_order)
        #: (kind, address or bare name) → possible parts. Several parts are only
        #: distinguished by address.
        self._meanings: dict[tuple[str, str], list[Part]] = {}
        for c in self._parts:
            self._meanings[c.kind, c.address] = [c]
            if may_claim(c.kind, c.name, c.distribution):
                self._meanings.setdefault((c.kind, c.name), []).append(c)
        self.config_classes, self.config_paths = dict(classes), dict(paths)
        #: Struct → field → name of the key in a config, if it differs from the field; and bare
        #: config key → the distributions that have it, if only its address works.
        self.key_names, self.homeless_keys = bare_keys(classes)

    def with_registered(self, part: Part, struct: type | None = None) -> Registry:
        """Return a registry that has a part of the running program, too.

        It takes precedence over plugins, and replaces an earlier one.

        Args:
            part: The part.
            struct: The struct that defines the part's config keys, as named in its
                declaration, or None.

        Raises:
            DuplicateNameError: A config key belongs to another part.
            DeclarationError: The part names an undeclared framework or config key.
        """
        if (error := unknown_framework(part)) is not None:
            raise error
        key, path = (part.kind, part.name), str(part.declaration.config)
        others = [c for c in self if not (c.in_process and (c.kind, c.name) == key)]
        used = {c.declaration.config for c in others if c.in_process}
        paths = {
            p: s
            for p, s in self.config_paths.items()
            if self.config_classes[s] != THIS_PROCESS or p in used
        }
        if struct is not None and struct not in paths.values():
            paths.pop(path, None)
            owners = {field: self.config_classes[s] for s in paths.values() for field in _keys(s)}
            owners |= dict.fromkeys(public_index.kernel_keys(), "rlcatalog")
            for field in _keys(struct):
                if field in owners:
                    raise DuplicateNameError(
                        f"{part.kind} {part.name!r}: config key {field!r} belongs to"
                        f" {owners[field]}. Use another name."
                    )
        if struct is not None:
            paths[path] = struct
        if (
            error := unknown_key(part, [field for s in paths.values() for field in _keys(s)])
        ) is not None:
            raise error
        registry = copy.copy(self)
        registry._parts = sorted([*others, part], key=_order)
        registry._meanings = {**self._meanings, key: [part]}
        registry.config_classes = {
            s: self.config_classes.get(s, THIS_PROCESS) for s in paths.values()
        }
        registry.config_paths = paths
        return registry

    # --- lookup -----------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def active(self, kind: str) -> list[Part]:
        """Return the parts of a kind, sorted by name."""
        return [c for c in self if c.kind == kind]

    def name_of(self, part: Part) -> str:
        """Return the name by which `get` finds a part: its bare name, or its address if the
        name is ambiguous.
        """
        is_clear = self._meanings.get((part.kind, part.name)) == [part]
        return part.name if is_clear else part.address

    def names(self, kinds: Iterable[str]) -> list[str]:
        """Return the names by which `get` finds the parts of the given kinds."""
        return sorted(self.name_of(c) for kind in kinds for c in self.active(kind))

    def get(self, kind: str, name: str) -> Part:
        """Return a part by name, or by `distribution/name`.

        Raises:
            MissingPluginError: The package with this name is missing, is disabled, or failed to
                load.
            AmbiguousChoiceError: Several plugins use this name, and none owns it.
            UnknownNameError: No part has this name.
        """
        meanings = self._meanings.get((kind, name), [])
        return meanings[0] if len(meanings) == 1 else self._look_closely(kind, name)

    def _look_closely(self, kind: str, asked: str) -> Part:
        """Return the part for an address in a different spelling; for any other name, raise
        the error.
        """
        distribution, _, name = asked.rpartition("/")
        distribution = normalize(distribution)
        label = kind.replace("_", " ")
        meanings = self._meanings.get(
            (kind, f"{distribution}/{name}" if distribution else name), []
        )
        if len(meanings) > 1:
            raise AmbiguousChoiceError(ways_to_say(label, name, (c.distribution for c in meanings)))
        if meanings:
            return meanings[0]
        names = self.names([kind])
        self.explain_missing(
            f"{label} {shown(asked)}", distribution or public_index.provider_of(kind, name)
        )
        if owners := [c.distribution for c in self.active(kind) if c.name == name]:
            raise UnknownNameError(ways_to_say(label, name, owners))
        have = (
            f"Known: {', '.join(names)}."
            if names
            else f"No {label}s are installed. {install_hints.how_to_start()}"
        )
        raise UnknownNameError(f"Unknown {label} {shown(asked)}.{nearest(name, names)} {have}")

    def explain_missing(self, what: str, distribution: str | None) -> None:
        """Check that `distribution`, which provides `what`, is loaded.

        Raises:
            MissingPluginError: It is not loaded. None passes.
        """
        if distribution is None:
            return
        if (
            record := next((r for r in self.records if r.distribution == distribution), None)
        ) is None:
            raise MissingPluginError(f"{what} {install_hints.how_to_get(distribution)}")
        if record.status != "loaded":
            raise MissingPluginError(
                f"{what} is provided by {distribution} {record.version}, which {record.condition}"
            )


def _order(part: Part) -> tuple[str, str, str]:
    return part.kind, part.name, part.distribution


def _keys(struct: type) -> tuple[str, ...]:
    return struct.__struct_fields__  # type: ignore[attr-defined,no-any-return]


def unknown_key(part: Part, declared: Collection[str]) -> DeclarationError | None:
    """Return the error for an undeclared config key in a declaration, or None.

    Absent packages' keys are accepted.

    Args:
        part: The part.
        declared: The keys of all config structs except the kernel's.
    """
    known = {*public_index.kernel_keys(), *declared}
    for key in part.declaration.named_keys:
        if key not in known and public_index.provider_of("config", key) is None:
            field = "reads" if key in part.declaration.reads else "switch"
            return DeclarationError(
                f"{part.kind} {part.name!r}: {field} names the config key {shown(key)},"
                f" which no package declares.{nearest(key, known)} Name a key of the kernel, of"
                " this part's config struct, or of another package."
            )
    return None


def unknown_framework(part: Part, declared: Iterable[str] = ()) -> DeclarationError | None:
    """Return the error for a part whose targets name only unknown frameworks or a misspelt
    one, or None.

    Args:
        part: The part.
        declared: Frameworks that are not in the table yet.
    """
    declaration, known = (
        part.declaration,
        {*frameworks(), *public_index.frameworks(), *declared},
    )
    if declaration.targets_allowed is not None:
        return None
    unknown = [name for name in declaration.targets if name not in known]
    # A framework may come from a plugin that is not installed; a similar name is probably misspelt.
    for name in unknown:
        if len(unknown) == len(declaration.targets) or nearest(name, known):
            return DeclarationError(
                f"{type(declaration).__name__}({part.name!r}): unknown framework {name!r} in"
                f" targets; known: {sorted(known)}.{nearest(name, known)}"
            )
    return None
