"""Freezing: what an installed package makes of a policy so that it acts faster, or the reason why none does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcatalog.errors import CatalogError, reason
from rlcatalog.plugins import public_index
from rlcatalog_policy import Frozen

if TYPE_CHECKING:
    from rlcatalog.catalog import Catalog
    from rlcatalog_policy import Policy

#: What a target of an `ExporterSpec` is called that freezes policies of a framework.
FROZEN = "frozen-"


def freeze(catalog: Catalog, policy: Policy, rows: int, seed: int | None) -> Frozen:
    """Freeze a policy; see `Policy.freeze`."""
    target = FROZEN + policy.framework
    said = None
    for component in catalog.registry.active("exporter"):
        if target not in component.declaration.targets:
            continue
        try:
            return Frozen(policy, component.load(target)(policy, rows, seed))
        except CatalogError as error:
            said = reason(error)
    return Frozen(policy, None, said or _nothing(policy.framework))


def _nothing(framework: str) -> str:
    said = f"nothing installed here freezes policies of {framework}"
    owner = public_index.provider_of("frozen", framework)
    return said if owner is None else f"{said}; {owner} does: pip install '{owner}[{framework}]'"
