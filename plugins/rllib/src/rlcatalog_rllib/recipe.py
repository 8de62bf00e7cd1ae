"""The recipe of a policy, which every worker builds: the model config, and the parts chosen where the run began."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcatalog import Catalog, Policy, default_catalog
from rlcatalog.choice import Pins
from rlcatalog.errors import CatalogError

#: Under this key a module's `model_config` names the chosen parts.
PARTS = "_rlcatalog_parts"
#: Under this one stands the catalog, where it is not that of the process; Ray pickles it for its workers.
CATALOG = "_rlcatalog_catalog"
#: What Ray's algorithms put into a module's `model_config` of themselves; none of it is ours.
RAYS_OWN = frozenset({"double_q", "dueling", "epsilon", "num_atoms", "std_init", "v_max", "v_min"})


@dataclass(frozen=True)
class Recipe:
    """What a policy is built from, in any process.

    Attributes:
        model: The model config.
        pins: The parts that were chosen, or None where each process chooses itself.
        catalog: The catalog they come from, or None for that of each process.
    """

    model: Mapping[str, Any]
    pins: Pins | None = None
    catalog: Catalog | None = None

    @classmethod
    def of(cls, model_config: Mapping[str, Any] | None) -> Recipe:
        """Read it out of a module's `model_config`."""
        given = dict(model_config or {})
        pins, catalog = given.pop(PARTS, None), given.pop(CATALOG, None)
        model = {key: value for key, value in given.items() if key not in RAYS_OWN}
        return cls(model, None if pins is None else Pins.from_dict(pins), catalog)

    def model_config(self) -> dict[str, Any]:
        """Return it as a module's `model_config`."""
        catalog = {} if self.catalog is None else {CATALOG: self.catalog}
        return {**self.model, PARTS: None if self.pins is None else self.pins.as_dict(), **catalog}


def choose_parts(
    obs_space: Any, action_space: Any, model: Mapping[str, Any] | None, catalog: Catalog | None = None
) -> Recipe:
    """Choose the parts for a pair of spaces; nothing is built.

    Args:
        obs_space: The environment's observation space.
        action_space: Its action space.
        model: The model config.
        catalog: The catalog they come from; the process's when None.

    Raises:
        CatalogError: See `rlcatalog.Catalog.resolve`.
    """
    asked = default_catalog() if catalog is None else catalog
    resolution = asked.resolve(obs_space, action_space, model, "torch")
    values = resolution.config.values
    # Ray's PPO adds vf_share_layers=False to what is left out, and Ray's connectors look for max_seq_len.
    explicit = {key: values[key] for key in ("vf_share_layers", "max_seq_len")}
    components = [c for choice in resolution.choices.values() for c in [choice.component] if c is not None]
    components += [component for _, component in resolution.preprocessor.components()]
    components += [node.component for node in resolution.actions.walk()]
    # A name that the program registered is known elsewhere where its catalog goes along.
    known = [] if catalog is None else catalog.components()
    if any(component.in_process and not any(component is c for c in known) for component in components):
        return Recipe({**resolution.config.given, **explicit}, None, catalog)  # a class goes along
    return Recipe({**resolution.config.given, **resolution.pinned_keys(), **explicit}, Pins.of(resolution), catalog)


def build_policy(recipe: Recipe, obs_space: Any, action_space: Any) -> Policy:
    """Build the policy of a recipe.

    Args:
        recipe: What it is built from.
        obs_space: The environment's observation space.
        action_space: Its action space.

    Raises:
        CatalogError: A part cannot be built here; the message names the node, and the package where one is missing.
    """
    catalog = default_catalog() if recipe.catalog is None else recipe.catalog
    pins = recipe.pins
    try:
        if pins is not None:
            pins.check(catalog.registry)  # a missing package is named before its config keys are
        resolution = catalog.resolve(obs_space, action_space, recipe.model, "torch", pins=pins)
        return Policy(catalog, resolution, obs_space, action_space)
    except CatalogError as error:
        versions = ", ".join(f"{name} {version}" for name, version in (pins.versions if pins else {}).items())
        chosen = f" (They were chosen with {versions}.)" if versions else ""
        error.args = (f"{this_machine()}: the parts cannot be built here. {error}{chosen}",)
        raise


def this_machine() -> str:
    """Name the machine of this process, and the Ray node where there is one."""
    import ray

    if not ray.is_initialized():
        return f"machine {platform.node()}"
    node, address = ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return f"node {address} ({platform.node()}, Ray node {node})"
