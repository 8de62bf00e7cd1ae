"""Checks that parts can be chosen by name, by switch or by class, or because no
listed part fits.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rlcatalog.catalog import Catalog
from rlcatalog.errors import CatalogError
from rlcatalog_testing.checks.action_codecs import action_trials
from rlcatalog_testing.checks.wrappers import environments
from rlcatalog_testing.contract import Subject, check, require
from rlcatalog_testing.examples import NAMING, kind_of, quiet

KINDS = (
    "trunk",
    "memory",
    "head",
    "action_dist",
    "preprocessor",
    "filter",
    "env_wrapper",
    "action_codec",
)


@check(
    *KINDS,
    hint="declare switch='KEY', a key in the part's config, or kinds=('package.module.Space',);"
    " match alone is only used if no listed part fits, and never for memories, heads and"
    " environment wrappers",
    every_framework=False,
)
def has_a_way_in(subject: Subject) -> None:
    """The part can be chosen by its name, its switch or the class of a space, or because no listed
    part fits.

    If the part declares a switch, the switch alone selects the part.
    """
    if kind_of(subject.part) == "action_codec":
        ways = {"class" for _ in action_trials(subject)}  # there is a space of one of its classes
    else:
        ways = _wraps(subject) if kind_of(subject.part) == "env_wrapper" else _is_looked_up(subject)
    require(bool(ways), f"{subject.part.address} is installed, but no user input selects it")
    switch = getattr(subject.part.declaration, "switch", None)
    leads = switch is None or "switch" in ways
    require(
        leads,
        f"its switch {switch!r} does not select it: no example that turns it on chooses the part",
    )


def _is_looked_up(subject: Subject) -> set[str]:
    """Return the ways in which the examples' lookups choose the part."""
    catalog, declaration = _as_users_have_it(subject), subject.part.declaration
    name = NAMING.get(kind_of(subject.part), "custom_model")
    found, reader = set(), replace(subject, catalog=catalog)
    for example in subject.examples:
        bare = {key: value for key, value in example.config.items() if key != name}
        is_on = getattr(declaration, "is_on", None)
        unnamed = (
            "switch" if is_on is not None and is_on(catalog.parse_config(bare)) else "class or gap"
        )
        for way, config in ((unnamed, bare), ("name", {**bare, name: subject.part.address})):
            with suppress(CatalogError):
                if subject.part.address in [
                    part.address for part in reader.resolve(example, config).parts()
                ]:
                    found.add(way)
    return found


def _wraps(subject: Subject) -> set[str]:
    """Return the ways in which the examples' environments are wrapped."""
    catalog = _as_users_have_it(subject)
    is_on: Callable[[Any], bool] = subject.part.declaration.is_on
    return {
        "switch" if is_on(catalog.parse_config(config)) else "match"
        for _, env, config in environments(subject)
        for c, answer in catalog.explain_wrapping(env, config)[1]
        if c.address == subject.part.address and answer.rank is not None
    }


def _as_users_have_it(subject: Subject) -> Catalog:
    """Return the catalog without the conformance kit's preference for the part's distribution."""
    catalog, own = subject.catalog, subject.part.distribution
    prefer = tuple(name for name in catalog.prefer if name != own)

    def make() -> Catalog:
        with quiet():  # the kit's catalog has warned of plugins that do not load
            return Catalog(catalog.entry_points, environ=catalog.environ, prefer=prefer)

    return subject.once("unpreferred", make)
