"""Registry of who provides which name: conflicts, in-process registration, provenance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlcatalog.errors import (
    AmbiguousChoiceError,
    CatalogError,
    DeclarationError,
    DuplicateNameError,
    IncompatiblePluginError,
    MissingPluginError,
    UnknownNameError,
    nearest,
    reason,
    shown,
)
from rlcatalog.frameworks import frameworks
from rlcatalog.plugins import public_index
from rlcatalog.plugins.component import Component
from rlcatalog.plugins.declarations import Declaration
from rlcatalog.plugins.discovery import normalize
from rlcatalog.plugins.names import bare_keys, bare_names, ways_to_say

if TYPE_CHECKING:
    from msgspec import Struct

#: Who owns what the running program registered.
THIS_PROCESS = "this process"


class Registry:
    """All components of one catalog, by kind and name."""

    def __init__(self) -> None:
        self._parts: list[Component] = []
        #: (kind, address) → the plugin's part.
        self._addresses: dict[tuple[str, str], Component] = {}
        #: (kind, name) → the plugins' parts that the bare name may mean; see `rlcatalog.plugins.names`.
        self._names: dict[tuple[str, str], list[Component]] = {}
        #: What the running program registered; it is replaced, never changed: another thread may be going over it.
        self._own: dict[tuple[str, str], Component] = {}
        self.config_classes: dict[type, str] = {}
        self.config_defaults: dict[type, Any] = {}
        self.config_paths: dict[str, type] = {}
        #: Struct → field → what the key is called in a config, where that is not the field's name.
        self.key_names: dict[type, dict[str, str]] = {}
        #: Config key → the distributions that have it, where it means nothing alone.
        self.homeless_keys: dict[str, list[str]] = {}
        self.records: list[PluginRecord] = []

    # --- filling ---------------------------------------------------------------------------------------------------

    def add_components(self, components: Iterable[Component]) -> None:
        """Add the components of plugins, once."""
        self._parts = list(components)
        self._addresses = {(c.kind, c.address): c for c in self._parts}
        self._names = bare_names(self._parts)

    def add_configs(self, structs: Mapping[type, str]) -> None:
        """Add the config structs of plugins: config struct → distribution."""
        self.config_classes.update(structs)
        for record in self.records:
            self.config_paths |= {path: struct for path, struct in record.config_classes.items() if struct in structs}
            self.config_defaults |= {s: default for s, default in record.config_defaults.items() if s in structs}
        self.key_names, self.homeless_keys = bare_keys(structs)

    def add_in_process(self, component: Component, struct: type | None = None, default: Struct | None = None) -> None:
        """Add a component of the running program; it comes before a plugin's, and replaces an earlier one.

        Args:
            component: The component.
            struct: The struct with its config keys, which its declaration names, or None.
            default: That struct, made of its defaults.

        Raises:
            DuplicateNameError: A config key is another's.
            DeclarationError: It names a config key that nobody declares.
        """
        check_frameworks(component)
        key = (component.kind, component.name)
        structs, kernels = self._structs_without(key), public_index.keys_of("rlcatalog")
        if struct is not None and struct not in structs:
            structs = {s: path for s, path in structs.items() if path != component.declaration.config}
            for field in struct.__struct_fields__:  # type: ignore[attr-defined]
                holders = (self.config_classes[s] for s in structs if field in s.__struct_fields__)  # type: ignore[attr-defined]
                owner = "rlcatalog" if field in kernels else next(holders, None)
                if owner is not None:
                    raise DuplicateNameError(
                        f"{component.kind} {component.name!r}: config key {field!r} belongs to {owner}. Call yours"
                        " something else."
                    )
        known = {*kernels, *(field for s in (*structs, struct) for field in getattr(s, "__struct_fields__", ()))}
        for name in component.declaration.named_keys:
            if name not in known and public_index.provider_of("config", name) is None:
                raise unknown_key(component, name, known)
        self._own = {**self._own, key: component}
        self.config_classes = {s: owner for s, owner in self.config_classes.items() if s in structs}
        self.config_paths = {path: s for path, s in self.config_paths.items() if s in structs}
        if struct is not None:
            self.config_classes.setdefault(struct, THIS_PROCESS)
            self.config_paths[str(component.declaration.config)] = struct
            self.config_defaults = {**self.config_defaults, struct: default}

    def _structs_without(self, key: tuple[str, str]) -> dict[type, str | None]:
        """Return config struct → import path, but for those of the program that only a component has."""
        others = {c.declaration.config for k, c in self._own.items() if k != key}
        paths = {struct: path for path, struct in self.config_paths.items()}
        return {
            struct: paths.get(struct)
            for struct, owner in self.config_classes.items()
            if owner != THIS_PROCESS or paths.get(struct) in others
        }

    # --- asking ----------------------------------------------------------------------------------------------------

    def active(self, kind: str) -> list[Component]:
        """Return the components of a kind, sorted by name."""
        return [c for c in self if c.kind == kind]

    def name_of(self, component: Component) -> str:
        """Return the name by which `get` finds a component: its own, or its address where that one is not clear."""
        key = component.kind, component.name
        means = [self._own[key]] if key in self._own else self._names.get(key, [])
        return component.name if len(means) == 1 and component is means[0] else component.address

    def __iter__(self) -> Iterator[Component]:
        everything = [*self._parts, *self._own.values()]
        return iter(sorted(everything, key=lambda c: (c.kind, c.name, c.distribution)))

    def get(self, kind: str, name: str) -> Component:
        """Return a component by name, or by `distribution/name`.

        Raises:
            MissingPluginError: The name is known, its package is not usable here.
            AmbiguousChoiceError: Several plugins have the name, and it belongs to none of them.
            UnknownNameError: No such name.
        """
        component = self._own.get((kind, name)) or self._addresses.get((kind, name))
        if component is None and len(means := self._names.get((kind, name), [])) == 1:
            component = means[0]
        return self._look_closely(kind, name) if component is None else component

    def _look_closely(self, kind: str, asked: str) -> Component:
        """Return the component of an address in another spelling; raise what is wrong with any other name."""
        distribution, _, name = asked.rpartition("/")
        distribution = normalize(distribution)
        label = kind.replace("_", " ")
        if distribution and (component := self._addresses.get((kind, f"{distribution}/{name}"))) is not None:
            return component
        if len(means := self._names.get((kind, name), [])) > 1 and not distribution:
            raise AmbiguousChoiceError(ways_to_say(label, name, (c.distribution for c in means)))
        names = self.names([kind])
        self.explain_missing(f"{label} {shown(asked)}", distribution or public_index.provider_of(kind, name))
        if called := [c.distribution for c in self.active(kind) if c.name == name]:
            raise UnknownNameError(ways_to_say(label, name, called))
        have = f"Known: {', '.join(names)}." if names else f"No {label}s are installed. {public_index.install_hint()}"
        raise UnknownNameError(f"Unknown {label} {shown(asked)}.{nearest(name, names)} {have}")

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
        if record.status != "loaded":
            raise MissingPluginError(
                f"{what} is provided by {distribution} {record.version}, which is {record.status}: {record.error}"
            )

    def names(self, kinds: Iterable[str]) -> list[str]:
        """Return the names by which `get` finds the components of the given kinds."""
        return sorted(self.name_of(c) for kind in kinds for c in self.active(kind))


def unknown_key(component: Component, key: str, known: Iterable[str]) -> DeclarationError:
    """Return the error for a component whose declaration names a config key that nobody has."""
    field = "reads" if key in component.declaration.reads else "switch"
    return DeclarationError(
        f"{component.kind} {component.name!r}: {field} names the config key {shown(key)}, which nobody declares."
        f"{nearest(key, known)} Name a key of the kernel's, of this part's config struct, or of another package."
    )


def check_frameworks(component: Component) -> None:
    """Raise where no framework of a component's targets is known, or one of them is misspelt."""
    declaration, known = component.declaration, {*frameworks(), *public_index.frameworks()}
    if declaration.targets_allowed is not None:
        return
    unknown = [name for name in declaration.targets if name not in known]
    for name in unknown:  # a framework may come from a plugin that is not installed here; a name close by is misspelt
        if len(unknown) == len(declaration.targets) or nearest(name, known):
            raise DeclarationError(
                f"{type(declaration).__name__}({component.name!r}): unknown framework {name!r} in targets; known:"
                f" {sorted(known)}.{nearest(name, known)}"
            )


@dataclass
class PluginRecord:
    """How a plugin ended.

    Attributes:
        name: Entry-point name.
        distribution: Distribution that provides it.
        version: That distribution's version.
        status: `"loaded"`, `"disabled"`, `"incompatible"` or `"failed"`.
        error: Why it is not loaded, or what of it is left out, as text; None when all is well.
        exception: The exception behind `error` where it failed.
        problems: What is wrong with it, one by one, where it is loaded.
        declarations: What it declares.
        config_classes: Import path → struct that holds config keys of its parts.
        config_defaults: Struct → the struct made of its defaults.
    """

    name: str
    distribution: str
    version: str
    status: str = "loaded"
    error: str | None = None
    exception: BaseException | None = field(default=None, repr=False)
    problems: list[CatalogError] = field(default_factory=list, repr=False)
    declarations: tuple[Declaration, ...] = field(default=(), repr=False)
    config_classes: dict[str, type] = field(default_factory=dict, repr=False)
    config_defaults: dict[type, Any] = field(default_factory=dict, repr=False)

    def fail(self, exception: BaseException, status: str = "failed") -> None:
        """Note that the plugin is not usable, and why."""
        self.status, self.exception, self.error = status, exception, _text(exception)

    def note(self, problem: CatalogError) -> None:
        """Note what is wrong with a plugin that is usable all the same."""
        self.problems.append(problem)
        self.error = "; ".join(dict.fromkeys(map(_text, self.problems)))


def _text(exception: BaseException) -> str:
    plain = isinstance(exception, DeclarationError | IncompatiblePluginError)
    return reason(exception).removeprefix(f"{type(exception).__name__}: ") if plain else reason(exception)
