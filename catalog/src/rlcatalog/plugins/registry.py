"""Registry of who provides which name: conflicts, overrides, in-process registration, provenance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rlcatalog.errors import (
    DeclarationError,
    DuplicateNameError,
    MissingPluginError,
    UnknownNameError,
    nearest,
    shown,
)
from rlcatalog.frameworks import frameworks
from rlcatalog.plugins import public_index
from rlcatalog.plugins.component import Component
from rlcatalog.plugins.discovery import normalize
from rlcatalog.plugins.record import Loaded, PluginRecord


class Registry:
    """All components of one catalog, by kind and name."""

    def __init__(self) -> None:
        self._active: dict[tuple[str, str], Component] = {}
        self._shadowed: list[Component] = []
        self._extensions: list[Component] = []
        self._config_owner: dict[str, str] = {}
        self.config_classes: dict[type, str] = {}
        self.config_paths: dict[str, type] = {}
        self.records: list[PluginRecord] = []

    # --- filling ---------------------------------------------------------------------------------------------------

    def add_plugin(self, record: PluginRecord, loaded: Loaded, reserved: Mapping[str, str]) -> None:
        """Add what a plugin declared: everything, or nothing when a name is taken.

        Args:
            record: The plugin's record.
            loaded: Its declarations.
            reserved: Config keys that are taken, with their owner (the kernel's own).

        Raises:
            DuplicateNameError: A name or a config key belongs to another plugin.
        """
        everything = [Component(d, record.distribution, record.version) for d in loaded.declarations]
        for component in everything:
            _check_frameworks(component)
        own = [component for component in everything if component.declaration.extends is None]
        names = [(c.kind, c.name) for c in own]
        for key in names:
            if names.count(key) > 1:
                raise DuplicateNameError(f"{record.distribution} declares {key[0]} {key[1]!r} twice.")
        for component in own:
            self._check_name(component)
        owners = {**reserved, **self._config_owner}
        for struct in loaded.config_classes.values():
            for key in struct.__struct_fields__:  # type: ignore[attr-defined]
                if owners.get(key, record.distribution) != record.distribution:
                    raise DuplicateNameError(
                        f"config key {key!r} of {record.distribution} belongs to {owners[key]} already."
                        f" Prefix it with the plugin's own name, or disable one: {_disable(owners[key], record)}."
                    )
        for component in own:
            self._insert(component)
        self._extensions += [component for component in everything if component.declaration.extends is not None]
        self.config_paths.update(loaded.config_classes)
        for struct in loaded.config_classes.values():
            self.config_classes[struct] = record.distribution
            self._config_owner.update(dict.fromkeys(struct.__struct_fields__, record.distribution))  # type: ignore[attr-defined]

    def add_in_process(self, component: Component, override: bool) -> None:
        """Add a component of the running program; it replaces an earlier one of the program's own.

        Raises:
            DuplicateNameError: The name is a plugin's and `override` is False.
        """
        _check_frameworks(component)
        key = (component.kind, component.name)
        old = self._active.get(key)
        if old is not None and not old.in_process:
            if not override:
                raise DuplicateNameError(
                    f"{component.kind} {component.name!r} is provided by {old.provider}."
                    " Register yours under another name, or pass override=True to shadow it."
                )
            old.shadowed_by = "this process"
            self._shadowed = [*self._shadowed, old]
        self._active = {**self._active, key: component}  # another thread may be going over the old one

    def _check_name(self, component: Component) -> None:
        old = self._active.get((component.kind, component.name))
        if old is None:
            return
        mine, theirs = component.address, old.address
        if component.declaration.overrides == theirs and old.declaration.overrides is None:
            return
        if old.declaration.overrides == mine and component.declaration.overrides is None:
            return
        raise DuplicateNameError(
            f"{component.kind} {component.name!r}: {_clash(component, old)}; {old.distribution} keeps it. Ways out: let"
            " one declare overrides='distribution/name', put the one you want first with"
            f" RLCATALOG_PREFER_PLUGINS={component.distribution}, or disable one with"
            f" RLCATALOG_DISABLE_PLUGINS={old.distribution}."
        )

    def _insert(self, component: Component) -> None:
        key = (component.kind, component.name)
        old = self._active.get(key)
        if old is not None and old.declaration.overrides == component.address:
            component.shadowed_by = old.distribution
            self._shadowed.append(component)
            return
        if old is not None:
            old.shadowed_by = component.distribution
            self._shadowed.append(old)
        self._active[key] = component

    # --- asking ----------------------------------------------------------------------------------------------------

    def active(self, kind: str) -> list[Component]:
        """Return the components of a kind that lookups see, sorted by name."""
        active = self._active
        return [active[key] for key in sorted(active) if key[0] == kind]

    def __iter__(self) -> Iterator[Component]:
        everything = [*self._active.values(), *self._shadowed]
        return iter(sorted(everything, key=lambda c: (c.kind, c.name, c.distribution)))

    def get(self, kind: str, name: str, distribution: str | None = None) -> Component:
        """Return a component by name, or by `distribution` and name even where it is shadowed.

        Raises:
            MissingPluginError: The name is known, its package is not usable here.
            UnknownNameError: No such name.
        """
        asked = shown(name)
        if "/" in name and distribution is None:
            distribution, _, name = name.partition("/")
        distribution = normalize(distribution) if distribution is not None else None
        if distribution is None:
            found = self._active.get((kind, name))
        else:
            found = next((c for c in self if (c.kind, c.name, c.distribution) == (kind, name, distribution)), None)
        if found is not None:
            return found
        names = [c.name for c in self.active(kind)]
        label = kind.replace("_", " ")
        self.explain_missing(f"{label} {asked}", distribution or public_index.provider_of(kind, name))
        have = f"Known: {', '.join(names)}." if names else f"No {label}s are installed. {public_index.install_hint()}"
        raise UnknownNameError(f"Unknown {label} {asked}.{nearest(name, names)} {have}")

    def explain_missing(self, what: str, distribution: str | None) -> None:
        """Raise MissingPluginError when `distribution`, which provides `what`, is not usable; else return.

        Raises:
            MissingPluginError: Always, unless `distribution` is None or loaded.
        """
        if distribution is None:
            return
        record = next((r for r in self.records if r.distribution == distribution), None)
        if record is None:
            raise MissingPluginError(f"{what} {public_index.how_to_get(distribution)}")
        if record.status not in ("loaded", "shadowed"):
            raise MissingPluginError(
                f"{what} is provided by {distribution} {record.version}, which is {record.status}: {record.error}"
            )

    def extend(self) -> None:
        """Give components the code that other packages bring for them."""
        for extension in self._extensions:
            wanted = (extension.kind, extension.declaration.extends)
            for victim in self:
                if (victim.kind, victim.address) == wanted:
                    victim.extensions.update(dict.fromkeys(extension.declaration.targets, extension))

    def mark_shadowed(self) -> None:
        """Give plugins all of whose components are overridden the status `"shadowed"`."""
        live = {c.distribution for c in self._active.values()}
        for record in self.records:
            victims = [c for c in self._shadowed if c.distribution == record.distribution]
            if record.status == "loaded" and victims and record.distribution not in live:
                record.status = "shadowed"
                record.error = f"overridden by {', '.join(sorted({str(c.shadowed_by) for c in victims}))}"

    def names(self, kinds: Iterable[str]) -> list[str]:
        """Return the names of all active components of the given kinds."""
        return sorted(c.name for kind in kinds for c in self.active(kind))


def _check_frameworks(component: Component) -> None:
    """Raise where no framework of a component's targets is known, or one of them is misspelt."""
    declaration, known = component.declaration, frameworks()
    if declaration.targets_allowed is not None:
        return
    unknown = [name for name in declaration.targets if name not in known]
    for name in unknown:  # a framework may come from a plugin that is not installed here; a name close by is misspelt
        if len(unknown) == len(declaration.targets) or nearest(name, known):
            raise DeclarationError(
                f"{type(declaration).__name__}({component.name!r}): unknown framework {name!r} in targets; known:"
                f" {sorted(known)}.{nearest(name, known)}"
            )


def _clash(component: Component, old: Component) -> str:
    mine, theirs = component.address, old.address
    victims = component.declaration.overrides, old.declaration.overrides
    if victims[0] is not None and victims[0] == victims[1]:
        return f"{theirs} and {mine} both override {victims[0]}"
    chain = [f"{who} overrides {victim}" for who, victim in zip((mine, theirs), victims, strict=True) if victim]
    if len(chain) == 2:
        return f"{' and '.join(chain)}, and an override cannot be overridden"
    aside = f" ({chain[0]})" if chain else ""
    return f"{theirs} and {mine} have the same name, and neither names the other as its victim{aside}"


def _disable(owner: str, record: PluginRecord) -> str:
    return f"RLCATALOG_DISABLE_PLUGINS={record.distribution if owner == 'rlcatalog' else owner}"
