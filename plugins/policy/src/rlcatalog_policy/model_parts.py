"""Parts of a policy's model that do not learn, and its weights as groups for an optimiser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlcatalog.errors import ConfigError
from rlcatalog.internals import ModelParts, set_frozen_parts
from rlcatalog.models import parts_with_own_rate

if TYPE_CHECKING:
    from rlcatalog_policy.policy import Policy

#: The config key with the names of the parts that do not learn.
FREEZE_PARTS = "freeze_parts"


def change_frozen_parts(policy: Policy, names: Sequence[str]) -> None:
    """Freeze these parts of a policy's model, and no others; saved policies hold the names.

    Args:
        policy: The policy.
        names: The parts' names.

    Raises:
        ConfigError: The model has no such part; nothing is changed.
    """
    set_frozen_parts(policy.model, names)
    before = policy.resolution.config
    # Explicit keys replace defaults, of which `given` has those of an engine.
    config = policy.catalog.schema.parse(
        {**before.explicit, FREEZE_PARTS: list(names)}, defaults=before.given
    )
    config.catalog = before.catalog
    policy.resolution = replace(policy.resolution, config=config)
    policy.config = config.fresh()


def names_without(names: Sequence[str], unfrozen: Sequence[str]) -> list[str]:
    """Return names of frozen parts without some of them.

    Raises:
        ConfigError: One of them is not a name in the list.
    """
    for name in unfrozen:
        if name not in names:
            frozen = ", ".join(map(repr, names)) or "none"
            raise ConfigError(f"unfreeze_parts: {name!r} is not frozen; frozen parts: {frozen}.")
    return [name for name in names if name not in unfrozen]


def parameter_groups(policy: Policy, lr_parts: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return a policy's trainable weights by part; see `Policy.parameter_groups`."""
    model: Any = policy.model  # a class of a framework, which lists its weights
    group_of_weight = {}
    for part in ModelParts(model).main.values():
        group_of_weight.update(dict.fromkeys(part.names.values(), part.name))
    group_of_weight |= parts_with_own_rate(model, lr_parts, "lr_parts")
    groups: dict[str, dict[str, Any]] = {}
    for name, weight in model.trainable_variables(as_dict=True).items():
        part_name = group_of_weight[name]
        if part_name not in groups:
            groups[part_name] = {"name": part_name, "params": []}
            if part_name in lr_parts:
                groups[part_name]["lr"] = lr_parts[part_name]
        groups[part_name]["params"].append(weight)
    return list(groups.values())
