"""The recipe of a policy, which every worker builds: the model config, and the parts chosen where the run began."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import rlcatalog
from rlcatalog import Catalog, Policy, default_catalog
from rlcatalog.choice import Pins
from rlcatalog.errors import CatalogError, UnreadKeysWarning
from rlcatalog_rllib.parcels import Parcel, content_of, packed, unpacked

#: Under this key a module's `model_config` names the chosen parts.
PARTS = "_rlcatalog_parts"
#: Under this one stands the catalog, where it is not that of the process; Ray pickles it for its workers.
CATALOG = "_rlcatalog_catalog"
#: Under this one stand the names of the keys that are the catalog's; the others are Ray's.
KEYS = "_rlcatalog_keys"
#: What Ray's algorithms put into a module's `model_config` of themselves; none of it is ours.
RAYS_OWN = frozenset({"double_q", "dueling", "epsilon", "num_atoms", "std_init", "twin_q", "v_max", "v_min"})
#: What they put there as the default of their own nets.
RAYS_DEFAULTS = frozenset({"vf_share_layers"})


@dataclass(frozen=True)
class Recipe:
    """What a policy is built from, in any process.

    Attributes:
        model: The model config.
        pins: The parts that were chosen, or None where each process chooses itself.
        catalog: The catalog they come from, or a parcel of it; None for that of each process.
        defaults: Defaults of the algorithm's own nets, for keys that the model config does not give.
        warned: Whether keys that nothing reads were spoken of where the run began.
    """

    model: Mapping[str, Any]
    pins: Pins | None = None
    catalog: Catalog | Parcel | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    warned: bool = False

    @classmethod
    def of(cls, model_config: Mapping[str, Any] | None) -> Recipe:
        """Read it out of a module's `model_config`."""
        given = dict(model_config or {})
        pins, catalog = given.pop(PARTS, None), given.pop(CATALOG, None)
        keys = given.pop(KEYS, None)
        if by_hand := keys is None:
            keys = [key for key in given if key not in RAYS_OWN | RAYS_DEFAULTS]
        model = unpacked({key: given[key] for key in keys})
        defaults = {key: given[key] for key in RAYS_DEFAULTS if key in given and key not in model}
        return cls(model, None if pins is None else Pins(**pins), catalog, defaults, not by_hand)

    def model_config(self, searched: Collection[str] = ()) -> dict[str, Any]:
        """Return it as a module's `model_config`.

        Args:
            searched: Keys that Tune is to search over: their values come from the config of the trial, whose processes
                choose the parts.
        """
        catalog = {} if self.catalog is None else {CATALOG: self.catalog}
        pins = None if self.pins is None or searched else self.pins.as_dict()
        model = {key: value for key, value in self.model.items() if key not in searched}
        return {**packed(model), KEYS: list(self.model), PARTS: pins, **catalog}

    def __reduce__(self) -> tuple[Any, ...]:
        return Recipe.of, ({**self.defaults, **self.model_config()},)


def choose_parts(
    obs_space: Any,
    action_space: Any,
    model: Mapping[str, Any] | None,
    catalog: Catalog | None,
    defaults: Mapping[str, Any],
) -> tuple[Recipe, Policy]:
    """Choose the parts for a pair of spaces, and build them once.

    Args:
        obs_space: The environment's observation space.
        action_space: Its action space.
        model: The model config.
        catalog: The catalog they come from; the process's when None.
        defaults: Defaults of the engine's own, for keys that the model config does not give. Those of `RAYS_DEFAULTS`
            that are missing are left to the algorithm that runs with the recipe.

    Returns:
        What every worker builds, and what was built here.

    Raises:
        CatalogError: See `rlcatalog.Catalog.build`.
    """
    asked = default_catalog() if catalog is None else catalog
    policy = rlcatalog.build(obs_space, action_space, model, "torch", catalog=asked, defaults=defaults)
    resolution = policy.resolution
    # Ray's connectors look for max_seq_len.
    decided = {"max_seq_len", *defaults}
    explicit = {**resolution.config.explicit, **{key: resolution.config[key] for key in decided}}
    # What the program registered is known elsewhere where the catalog goes along; a class in the config goes by itself.
    own = [component for component in resolution.parts() if component.in_process]
    named = [component for component in own if any(component is c for c in asked.components())]
    along = Parcel.of_catalog(asked, named) if catalog is None and named else catalog
    if len(named) < len(own):
        return Recipe(explicit, None, along, warned=True), policy
    return Recipe({**explicit, **resolution.pinned_keys()}, Pins.of(resolution), along, warned=True), policy


def build_policy(recipe: Recipe, obs_space: Any, action_space: Any) -> Policy:
    """Build the policy of a recipe.

    Args:
        recipe: What it is built from.
        obs_space: The environment's observation space.
        action_space: Its action space.

    Raises:
        CatalogError: A part cannot be built here; the message names the node, and the package where one is missing.
    """
    catalog = default_catalog() if recipe.catalog is None else content_of(recipe.catalog)
    pins = recipe.pins
    try:
        if pins is not None:
            pins.check(catalog.registry)  # a missing package is named before its config keys are
        with warnings.catch_warnings():
            if recipe.warned:
                warnings.simplefilter("ignore", UnreadKeysWarning)
            return rlcatalog.build(
                obs_space, action_space, recipe.model, "torch", pins=pins, defaults=recipe.defaults, catalog=catalog
            )
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
