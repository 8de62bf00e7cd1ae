"""Twins: the same policy in another framework, with the same weights and statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcatalog.choice import Pins
from rlcatalog.errors import CatalogError, NotServedError
from rlcatalog.frameworks import require_framework

if TYPE_CHECKING:
    from rlcatalog.policy import Policy


def twin_of(policy: Policy, framework: str) -> Policy:
    """Return a policy of the same parts in another framework, with this one's weights and statistics.

    Args:
        policy: The policy.
        framework: The other framework.

    Raises:
        NotServedError: A part has no code for it, or another model there.
        MissingFrameworkError: It is not installed.
    """
    require_framework(framework)
    resolution = policy.resolution
    spaces, config = (policy.observation_space, policy.action_space), resolution.config.given | resolution.pinned_keys()
    try:
        found = policy.catalog.resolve(*spaces, config, framework, pins=Pins.of(resolution))
        made = type(policy)(policy.catalog, found, *spaces)
        made.model.set_weights(policy.model.get_weights())
    except CatalogError as error:
        raise NotServedError(
            f"export: a policy of framework {policy.framework!r} is exported through {framework!r}, and has no such"
            f" twin: {error}"
        ) from error
    if policy.filter is not None and made.filter is not None:
        made.filter.set_state(policy.filter.saved_state())
    return made
