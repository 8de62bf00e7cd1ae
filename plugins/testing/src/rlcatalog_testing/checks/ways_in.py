"""Checks of whether parts can be reached: by name, by switch, by class, or in a gap that no listed part fills."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlcatalog.catalog import Catalog
from rlcatalog.choice import Resolution
from rlcatalog.errors import CatalogError
from rlcatalog_testing.checks.action_codecs import action_codecs
from rlcatalog_testing.checks.wrappers import environments
from rlcatalog_testing.contract import Part, check, require
from rlcatalog_testing.examples import NAMING, Example, kind_of, parts_in, quiet

KINDS = ("trunk", "memory", "head", "action_dist", "preprocessor", "filter", "env_wrapper", "action_codec")


@check(
    *KINDS,
    hint="declare switch='KEY', a key of the part's config, or kinds=('package.module.Space',); match alone is asked"
    " where no listed part fits, and for memories, heads and environment wrappers never",
    every_framework=False,
)
def has_a_way_in(part: Part) -> None:
    """A user reaches the part by its name, by its switch, by the class of a space, or where no listed part fits.

    Its switch, where it declares one, is a way in by itself.
    """
    reached = {"env_wrapper": _wraps, "action_codec": _converts}.get(kind_of(part.component), _is_looked_up)
    ways = reached(part)
    require(bool(ways), f"{part.component.address} is installed, and nothing that a user writes leads to it")
    switch = getattr(part.component.declaration, "switch", None)
    require(
        switch is None or "switch" in ways,
        f"its switch {switch!r} does not lead to it: no example that turns it on chooses the part",
    )


def _is_looked_up(part: Part) -> set[str]:
    """Return the ways by which lookups of the examples choose the part."""
    catalog, declaration = _as_users_have_it(part), part.component.declaration
    name = NAMING.get(kind_of(part.component), "custom_model")
    found = set()
    for example in part.examples:
        bare = {key: value for key, value in example.config.items() if key != name}
        is_on = getattr(declaration, "is_on", None)
        unnamed = "switch" if is_on is not None and is_on(_values(catalog, bare)) else "class or gap"
        for way, config in ((unnamed, bare), ("name", {**bare, name: part.component.address})):
            if _chooses(part, catalog, example, config):
                found.add(way)
    return found


def _chooses(part: Part, catalog: Catalog, example: Example, config: dict[str, Any]) -> bool:
    try:
        with quiet():
            chosen: Resolution = catalog.resolve(example.obs, example.action, config, part.framework)
    except CatalogError:
        return False
    return any(component.address == part.component.address for component in parts_in(chosen))


def _wraps(part: Part) -> set[str]:
    """Return the ways by which environments of the examples are wrapped."""
    catalog = _as_users_have_it(part)
    is_on: Callable[[Any], bool] = part.component.declaration.is_on
    with environments(part) as examples:
        said = [(config, catalog.explain_wrapping(env, config)[1]) for env, config in examples]
    return {
        "switch" if is_on(_values(catalog, config)) else "match"
        for config, verdicts in said
        if any(c.address == part.component.address and answer.rank is not None for c, answer in verdicts)
    }


def _converts(part: Part) -> set[str]:
    """Return the way by which actions become the codec's: there is a space of its classes."""
    return {"class" for _ in action_codecs(part)}


def _values(catalog: Catalog, config: Any) -> Any:
    return catalog.parse_config(config)


def _as_users_have_it(part: Part) -> Catalog:
    """Return the catalog without the preference that the kit gives the part's distribution."""
    key = "the catalog without preference"
    if key not in part.shared:
        catalog, own = part.catalog, part.component.distribution
        prefer = tuple(name for name in catalog.prefer if name != own)
        part.shared[key] = Catalog(catalog.entry_points, environ=catalog.environ, prefer=prefer)
    found: Catalog = part.shared[key]
    return found
