"""A policy as people see it: its parts, the shapes along the way, how many weights it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcatalog.choice import MODEL_SLOTS
from rlcatalog.internals import Sheet, Table
from rlcatalog.models import weights_of

if TYPE_CHECKING:
    from rlcatalog_policy.policy import Policy


def policy_sheet(policy: Policy) -> Sheet:
    """Return what is shown of a policy."""
    resolution = policy.resolution
    rows = []
    for slot in ("preprocessor", "filter", *MODEL_SLOTS, "action_dist"):
        part = resolution.choices[slot].component
        if part is not None:
            rows.append((slot, part.name, part.provider))
    shapes = [(stage.name, "-" if stage.shape is None else str(stage.shape)) for stage in resolution.shapes]
    weights = weights_of(policy.model)
    count = sum(array.size for array in weights.values())
    action = resolution.request.action
    facts = [
        ("observation", resolution.request.obs.describe()),
        ("action", "" if action is None else action.describe()),
        ("weights", f"{count:,} numbers in {len(weights)} arrays"),
    ]
    notes = [("config", ", ".join(sorted(resolution.config.given)) or "all defaults")]
    tables = [Table("parts", ("slot", "part", "provided by"), rows), Table("shapes", ("stage", "shape"), shapes)]
    return Sheet(f"Policy ({policy.framework})", facts, tables, notes)
