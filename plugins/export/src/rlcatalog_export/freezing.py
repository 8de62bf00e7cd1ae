"""Freezing: what an installed package makes of a policy so that it acts faster, or the reason why none does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcatalog.errors import CatalogError, reason
from rlcatalog.frameworks import frameworks
from rlcatalog.plugins import public_index
from rlcatalog_policy import Frozen

if TYPE_CHECKING:
    from rlcatalog_policy import Policy


def freeze(policy: Policy, rows: int, seed: int | None) -> Frozen:
    """Freeze a policy; see `Policy.freeze`."""
    framework = frameworks()[policy.framework]
    if framework.target("freeze") is None:
        return Frozen(policy, None, _nothing(policy.framework))
    try:
        return Frozen(policy, framework.load("freeze")(policy, rows, seed))
    except CatalogError as error:
        return Frozen(policy, None, reason(error))


def _nothing(framework: str) -> str:
    said = f"nothing installed here freezes policies of {framework}"
    owner = public_index.provider_of("framework", f"{framework}: freeze")
    return said if owner is None else f"{said}; {owner} does: pip install '{owner}[{framework}]'"
