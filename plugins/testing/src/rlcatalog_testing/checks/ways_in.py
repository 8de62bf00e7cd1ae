"""Checks that parts can be chosen by name, by switch or by class, or because no
listed part fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlcatalog.catalog import Catalog
from rlcatalog.errors import CatalogError
from rlcatalog.internals import public_index
from rlcatalog_testing.checks.action_codecs import action_trials
from rlcatalog_testing.checks.wrappers import environments
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.examples import NAMING, Example, quiet

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
    part = subject.part
    ways = _ways_in(subject)
    require(bool(ways), f"{part.address} is installed, but no user input selects it")
    require(
        part.switch is None or "switch" in ways,
        f"its switch {part.switch!r} does not select it: no example that turns it on chooses the"
        " part",
    )


def _is_in_unlisted_framework(subject: Subject) -> bool:
    return subject.framework not in (None, *public_index.frameworks())


@check(
    "trunk",
    "memory",
    "head",
    "action_dist",
    hint="bring code for the parts that are named, or leave these spaces to other frameworks",
    where=_is_in_unlisted_framework,
)
def spaces_have_code(subject: Subject) -> None:
    """In a framework of another package, all parts around the part have code for its examples; the
    other checks leave out the examples for which a part has none.
    """
    unserved = subject.unserved
    if not unserved:
        return
    reasons = "; ".join(dict.fromkeys(unserved.values()))
    raise NotApplicable(f"{reasons}; left out: {', '.join(unserved)}")


def _ways_in(subject: Subject) -> set[str]:
    """Return the ways in which the part's examples select it: `"name"`, `"switch"`, `"class"`,
    `"class or gap"` or `"match"`.
    """
    if subject.part.slot == "action_codec":
        return _ways_to_a_codec(subject)
    if subject.part.slot == "env_wrapper":
        return _ways_to_a_wrapper(subject)
    return _ways_to_a_chosen_part(subject)


def _ways_to_a_codec(subject: Subject) -> set[str]:
    # There are trials for each space of one of its classes.
    all_trials = list(action_trials(subject))
    if not all_trials:
        return set()
    return {"class"}


def _ways_to_a_chosen_part(subject: Subject) -> set[str]:
    """Return the ways in which the examples' lookups choose the part."""
    part = subject.part
    catalog = _catalog_without_preference(subject)
    as_users_have_it = replace(subject, catalog=catalog)
    name_key = NAMING.get(part.slot, "custom_model")
    ways = set()
    for example in subject.examples:
        config = {key: value for key, value in example.config.items() if key != name_key}
        is_on = part.declaration.is_on(catalog.parse_config(config))
        if _is_chosen_for(as_users_have_it, example, config):
            ways.add("switch" if is_on else "class or gap")
        config[name_key] = part.address
        if _is_chosen_for(as_users_have_it, example, config):
            ways.add("name")
    return ways


def _is_chosen_for(subject: Subject, example: Example, config: Mapping[str, Any]) -> bool:
    try:
        parts = list(subject.resolve(example, config).parts())
    except CatalogError:
        return False
    # Another catalog has another object for the part.
    return any(part.address == subject.part.address for part in parts)


def _ways_to_a_wrapper(subject: Subject) -> set[str]:
    """Return the ways in which the examples' environments are wrapped."""
    part = subject.part
    catalog = _catalog_without_preference(subject)
    ways = set()
    for _, env, config in environments(subject):
        _, verdicts = catalog.explain_wrapping(env, config)
        for candidate, answer in verdicts:
            if candidate.address == part.address and answer.rank is not None:
                is_on = part.declaration.is_on(catalog.parse_config(config))
                ways.add("switch" if is_on else "match")
    return ways


def _catalog_without_preference(subject: Subject) -> Catalog:
    """Return the catalog as users have it, without the conformance kit's preference for the part's
    distribution.
    """
    catalog = subject.catalog
    distribution = subject.distribution
    prefer = tuple(name for name in catalog.prefer if name != distribution)

    def make() -> Catalog:
        with quiet():  # the kit's catalog has warned of plugins that do not load
            return Catalog(catalog.entry_points, environ=catalog.environ, prefer=prefer)

    return subject.once("unpreferred", make)
