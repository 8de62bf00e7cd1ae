"""From what plugins declared to the registry: parts that cannot be used are left out, the others get their names."""

from __future__ import annotations

from collections import Counter, defaultdict

from rlcatalog.errors import CatalogError, DuplicateNameError
from rlcatalog.plugins import public_index
from rlcatalog.plugins.component import Component
from rlcatalog.plugins.names import find_losers, may_claim
from rlcatalog.plugins.registry import PluginRecord, Registry, check_frameworks, unknown_key


def assign(registry: Registry) -> None:
    """Put what the plugins in the registry's records declared into it, and note in the records what is left out."""
    parts = _Parts(registry.records)
    parts.refuse_twice()
    parts.enter()
    for component in parts.left():
        try:
            if not component.declaration.entries:  # whose targets are called by frameworks
                check_frameworks(component)
        except CatalogError as error:
            parts.record_of[id(component)].fail(error)
    parts.refuse_shared_structs()
    parts.refuse_unknown_keys()
    registry.add_configs({struct: c.distribution for c, struct in parts.holders()})
    registry.add_components(c for c in parts.left() if c.declaration.extends is None)
    parts.extend(registry)
    parts.fail_empty()
    parts.leave()


class _Parts:
    """The parts of all plugins, on their way into the registry."""

    def __init__(self, records: list[PluginRecord]) -> None:
        self._records = records
        self.record_of: dict[int, PluginRecord] = {}
        self._all: list[Component] = []
        self._lost: set[int] = set()
        #: Components that this catalog added to the tables of the process.
        self._entered: list[Component] = []
        for record in records:
            for declaration in record.declarations:
                self._all.append(component := Component(declaration, record.distribution, record.version))
                self.record_of[id(component)] = record

    def left(self) -> list[Component]:
        """Return the parts that are usable so far."""
        return [c for c in self._all if self.record_of[id(c)].status == "loaded" and id(c) not in self._lost]

    def lose(self, component: Component, error: CatalogError) -> None:
        """Leave a part out, and say why in its plugin's record."""
        self._lost.add(id(component))
        self.record_of[id(component)].note(error)

    def refuse_twice(self) -> None:
        """Fail the plugins of a distribution that declares one name twice."""
        own = [c for c in self._all if c.declaration.extends is None]
        count = Counter((c.kind, c.address) for c in own)
        for c in own:
            if count[c.kind, c.address] > 1:
                text = f"{c.distribution} declares {c.kind} {c.name!r} twice."
                self.record_of[id(c)].fail(DuplicateNameError(text))

    def enter(self) -> None:
        """Enter what goes into tables of the process: parts of any plugin may be written in a framework of another."""
        for component, error in find_losers(self.left()):
            self.lose(component, error)
        for component in self.left():
            try:
                if component.declaration.enter():
                    self._entered.append(component)
            except CatalogError as error:
                self.lose(component, error)

    def leave(self) -> None:
        """Take what plugins entered that have failed since out of the tables again."""
        for component in self._entered:
            if self.record_of[id(component)].status != "loaded":
                component.declaration.leave()

    def refuse_shared_structs(self) -> None:
        """Leave out the parts whose config struct another distribution has, too."""
        users: dict[type, set[str]] = defaultdict(set)
        for c, struct in self.holders():
            users[struct].add(c.distribution)
        for c, struct in self.holders():
            if len(users[struct]) > 1:
                self.lose(c, DuplicateNameError(
                    f"{c.kind} {c.name!r}: {' and '.join(sorted(users[struct]))} have one config struct,"
                    f" {c.declaration.config}, whose keys can belong to one alone. Write one of your own."
                ))  # fmt: skip

    def refuse_unknown_keys(self) -> None:
        """Leave out the parts that name a config key which nobody has; one of a package that is absent may be there."""
        known = {*public_index.keys_of("rlcatalog")}
        for c, struct in self.holders():
            fields: tuple[str, ...] = struct.__struct_fields__  # type: ignore[attr-defined]
            known |= {key if may_claim("config", key, c.distribution) else f"{c.distribution}/{key}" for key in fields}
        loaded = {record.distribution for record in self._records if record.declarations}
        for c in self.left():
            for key in c.declaration.named_keys:
                if key not in known and public_index.provider_of("config", key) in {None, *loaded}:
                    self.lose(c, unknown_key(c, key, known))
                    break

    def holders(self) -> list[tuple[Component, type]]:
        """Return the parts that are left and have a config struct, with it."""
        return [
            (c, self.record_of[id(c)].config_classes[c.declaration.config])
            for c in self.left()
            if c.declaration.config is not None and c.declaration.extends is None
        ]

    def extend(self, registry: Registry) -> None:
        """Give components the code that other packages bring for them; the framework's own package comes first."""
        owners = {c.name: c.distribution for c in registry.active("framework")}
        brought: dict[tuple[str, str, str], list[Component]] = defaultdict(list)
        for c in self.left():
            for framework in c.declaration.targets if c.declaration.extends is not None else ():
                brought[c.kind, str(c.declaration.extends), framework].append(c)
        victims = {(c.kind, c.address): c for c in registry}
        for (kind, address, framework), rivals in brought.items():
            victim = victims.get((kind, address))
            if victim is None:
                continue
            own = victim.distribution if framework in victim.declaration.targets else owners.get(framework)
            kept = [c for c in rivals if c.distribution == own]
            if kept or own == victim.distribution:
                for c in rivals:
                    if c.distribution != own:
                        text = f"{c.distribution} extends {kind} {address}, whose code for {framework!r} is {own}'s."
                        self.lose(c, DuplicateNameError(text))
            else:
                kept = rivals
            if len(kept) == 1:
                victim.extensions[framework] = kept[0]
            elif kept:
                victim.rivals[framework] = kept

    def fail_empty(self) -> None:
        """Fail plugins of which nothing is left."""
        left = {id(self.record_of[id(c)]) for c in self.left()}
        for record in self._records:
            if record.declarations and record.status == "loaded" and id(record) not in left:
                text = record.error
                record.fail(record.problems[0])
                record.error = text
