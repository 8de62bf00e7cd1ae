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
from rlcatalog.plugins.names import field_names, may_claim, name_keys, ways_to_say
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
        #: (kind, address or bare name) → the parts that it may mean. Several parts are only
        #: distinguished by address.
        self._parts_by_name: dict[tuple[str, str], list[Part]] = {}
        for part in self._parts:
            self._parts_by_name[part.kind, part.address] = [part]
            if may_claim(part.kind, part.name, part.distribution):
                self._parts_by_name.setdefault((part.kind, part.name), []).append(part)
        self.config_classes = dict(classes)
        self.config_paths = dict(paths)
        names = name_keys(classes)  # of the config keys
        #: Struct → field → name of the key in a config, if it differs from the field.
        self.key_names = names.addresses
        #: Bare config key → the distributions that have it, if only its address works.
        self.homeless_keys = names.homeless

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
        error = unknown_framework(part)
        if error is not None:
            raise error
        others = [other for other in self if not _is_replaced(other, part)]
        paths = self._remaining_paths(others)
        if struct is not None:
            if struct not in paths.values():
                # The new struct may replace an earlier one with the same path, and have its keys.
                paths.pop(str(part.declaration.config), None)
                self._check_new_keys(part, struct, paths.values())
            paths[str(part.declaration.config)] = struct
        declared: list[str] = []
        for other_struct in paths.values():
            declared += field_names(other_struct)
        error = unknown_key(part, declared)
        if error is not None:
            raise error
        registry = copy.copy(self)
        registry._parts = sorted([*others, part], key=_order)
        registry._parts_by_name = {**self._parts_by_name, (part.kind, part.name): [part]}
        registry.config_classes = {
            other: self.config_classes.get(other, THIS_PROCESS) for other in paths.values()
        }
        registry.config_paths = paths
        return registry

    def _remaining_paths(self, parts: Iterable[Part]) -> dict[str, type]:
        """Return the import paths of config structs without the ones that only a replaced part of
        the running program named.
        """
        named = {part.declaration.config for part in parts if part.in_process}
        paths = {}
        for path, struct in self.config_paths.items():
            if self.config_classes[struct] != THIS_PROCESS or path in named:
                paths[path] = struct
        return paths

    def _check_new_keys(self, part: Part, struct: type, others: Iterable[type]) -> None:
        """Check that no config key of a new struct belongs to another struct."""
        owners = {}
        for other in others:
            for key in field_names(other):
                owners[key] = self.config_classes[other]
        owners |= dict.fromkeys(public_index.kernel_keys(), "rlcatalog")
        for key in field_names(struct):
            if key in owners:
                raise DuplicateNameError(
                    f"{part.kind} {part.name!r}: config key {key!r} belongs to"
                    f" {owners[key]}. Use another name."
                )

    # --- lookup -----------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def config_struct_of(self, part: Part) -> type | None:
        """Return the struct that defines a part's config keys, or None."""
        path = part.declaration.config
        if path is None:
            return None
        return self.config_paths.get(path)

    def active(self, kind: str) -> list[Part]:
        """Return the parts of a kind, sorted by name."""
        return [part for part in self if part.kind == kind]

    def name_of(self, part: Part) -> str:
        """Return the name by which `get` finds a part: its bare name, or its address if the
        name is ambiguous.
        """
        if self._parts_by_name.get((part.kind, part.name)) == [part]:
            return part.name
        return part.address

    def names(self, kinds: Iterable[str]) -> list[str]:
        """Return the names by which `get` finds the parts of the given kinds."""
        names: list[str] = []
        for kind in kinds:
            names += map(self.name_of, self.active(kind))
        return sorted(names)

    def get(self, kind: str, name: str) -> Part:
        """Return a part by name, or by `distribution/name`.

        Raises:
            MissingPluginError: The package with this name is missing, is disabled, or failed to
                load.
            AmbiguousChoiceError: Several plugins use this name, and none owns it.
            UnknownNameError: No part has this name.
        """
        candidates = self._parts_by_name.get((kind, name), [])
        if len(candidates) == 1:
            return candidates[0]
        return self._look_closely(kind, name)

    def _look_closely(self, kind: str, name_or_address: str) -> Part:
        """Return the part for an address in a different spelling; for any other name, raise
        the error.
        """
        written_distribution, _, name = name_or_address.rpartition("/")
        distribution = normalize(written_distribution)
        label = kind.replace("_", " ")
        address = f"{distribution}/{name}" if distribution else name
        candidates = self._parts_by_name.get((kind, address), [])
        if len(candidates) > 1:
            distributions = [part.distribution for part in candidates]
            raise AmbiguousChoiceError(ways_to_say(label, name, distributions))
        if candidates:
            return candidates[0]
        provider = distribution or public_index.provider_of(kind, name)
        self.explain_missing(f"{label} {shown(name_or_address)}", provider)
        parts = [part for part in self.active(kind) if part.name == name]
        if parts:
            owners = [part.distribution for part in parts]
            raise UnknownNameError(ways_to_say(label, name, owners))
        names = self.names([kind])
        if names:
            installed = f"Known: {', '.join(names)}."
        else:
            installed = f"No {label}s are installed. {install_hints.how_to_start()}"
        raise UnknownNameError(
            f"Unknown {label} {shown(name_or_address)}.{nearest(name, names)} {installed}"
        )

    def explain_missing(self, what: str, distribution: str | None) -> None:
        """Check that `distribution`, which provides `what`, is loaded.

        Raises:
            MissingPluginError: It is not loaded. None passes.
        """
        if distribution is None:
            return
        records = [record for record in self.records if record.distribution == distribution]
        if not records:
            raise MissingPluginError(f"{what} {install_hints.how_to_get(distribution)}")
        record = records[0]
        if record.status != "loaded":
            raise MissingPluginError(
                f"{what} is provided by {distribution} {record.version}, which {record.condition}"
            )


def _is_replaced(part: Part, new: Part) -> bool:
    """Return whether a new part of the running program replaces an earlier one."""
    return part.in_process and part.kind == new.kind and part.name == new.name


def _order(part: Part) -> tuple[str, str, str]:
    return part.kind, part.name, part.distribution


def unknown_key(part: Part, declared: Collection[str]) -> DeclarationError | None:
    """Return the error for an undeclared config key in a declaration, or None.

    Absent packages' keys are accepted.

    Args:
        part: The part.
        declared: The keys of all config structs except the kernel's.
    """
    all_keys = {*public_index.kernel_keys(), *declared}
    for key in part.declaration.named_keys:
        if key not in all_keys and public_index.provider_of("config", key) is None:
            field = "reads" if key in part.declaration.reads else "switch"
            return DeclarationError(
                f"{part.kind} {part.name!r}: {field} names the config key {shown(key)},"
                f" which no package declares.{nearest(key, all_keys)} Name a key of the kernel, of"
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
    declaration = part.declaration
    if declaration.targets_allowed is not None:
        return None
    names = {*frameworks(), *public_index.frameworks(), *declared}
    unknown = [name for name in declaration.targets if name not in names]
    has_known = len(unknown) < len(declaration.targets)
    for name in unknown:
        similar = nearest(name, names)
        # A name like a known one is probably misspelt. Any other may be the framework of a plugin
        # that is not installed, as long as the part also has code for a known one.
        if similar or not has_known:
            return DeclarationError(
                f"{type(declaration).__name__}({part.name!r}): unknown framework {name!r} in"
                f" targets; known: {sorted(names)}.{similar}"
            )
    return None
