"""The recipe of a policy, which every worker builds: the model config, and the parts chosen where the run began."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlcatalog import Policy, default_catalog
from rlcatalog.choice import MODEL_SLOTS, Resolution
from rlcatalog.errors import CatalogError
from rlcatalog.plugins import Component
from rlcatalog.policy import codecs_of, pinned_keys

#: Under this key a module's `model_config` names the chosen parts.
PARTS = "_rlcatalog_parts"
#: What Ray's algorithms put into a module's `model_config` of themselves; none of it is ours.
RAYS_OWN = frozenset({"double_q", "dueling", "epsilon", "num_atoms", "std_init", "v_max", "v_min"})
#: The slots that are repeated by name, beside preprocessors and distributions.
_SLOTS = ("filter", *MODEL_SLOTS)


@dataclass(frozen=True)
class Recipe:
    """What a policy is built from, in any process.

    Attributes:
        model: The model config.
        pins: Slot → `"distribution/name"` as `Catalog.resolve` takes them, or None where each process chooses itself.
        versions: Distribution → version, where the parts were chosen.
    """

    model: Mapping[str, Any]
    pins: Mapping[str, Any] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, model_config: Mapping[str, Any] | None) -> Recipe:
        """Read it out of a module's `model_config`."""
        given = dict(model_config or {})
        parts = given.pop(PARTS, {})
        model = {key: value for key, value in given.items() if key not in RAYS_OWN}
        return cls(model, parts.get("pins"), parts.get("versions", {}))

    def model_config(self) -> dict[str, Any]:
        """Return it as a module's `model_config`."""
        return {**self.model, PARTS: {"pins": self.pins, "versions": dict(self.versions)}}


def choose_parts(obs_space: Any, action_space: Any, model: Mapping[str, Any] | None) -> Recipe:
    """Choose the parts for a pair of spaces; nothing is built.

    Args:
        obs_space: The environment's observation space.
        action_space: Its action space.
        model: The model config.

    Raises:
        CatalogError: See `rlcatalog.Catalog.resolve`.
    """
    catalog = default_catalog()
    resolution = catalog.resolve(obs_space, action_space, model, "torch")
    values = resolution.config.values
    # Ray's PPO adds vf_share_layers=False to what is left out, and Ray's connectors look for max_seq_len.
    explicit = {key: values[key] for key in ("vf_share_layers", "max_seq_len")}
    chosen = list(_chosen(resolution))
    if any(component.in_process for _, component in chosen):
        return Recipe({**resolution.config.given, **explicit})  # a class goes along; its name would not be known
    pins: dict[str, Any] = {"preprocessors": {}, "action_dists": {}}
    for (kind, place), component in chosen:
        address = component.address
        (pins if kind == "slot" else pins[kind])[place] = address
    versions = {component.distribution: component.version for _, component in chosen}
    return Recipe(
        {**resolution.config.given, **pinned_keys(resolution), **explicit}, pins, dict(sorted(versions.items()))
    )


def build_policy(recipe: Recipe, obs_space: Any, action_space: Any) -> Policy:
    """Build the policy of a recipe.

    Args:
        recipe: What it is built from.
        obs_space: The environment's observation space.
        action_space: Its action space.

    Raises:
        CatalogError: A part cannot be built here; the message names the node, and the package where one is missing.
    """
    catalog = default_catalog()
    pins = recipe.pins
    try:
        for kind, address in _addresses(pins):  # a missing package is named before its config keys are
            catalog.registry.get(kind, address)
        resolution = catalog.resolve(obs_space, action_space, recipe.model, "torch", pins=pins)
        return Policy(catalog, resolution, obs_space, action_space)
    except CatalogError as error:
        versions = ", ".join(f"{name} {version}" for name, version in recipe.versions.items())
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


def _chosen(resolution: Resolution) -> Iterator[tuple[tuple[str, str], Component]]:
    """Yield (kind, place) and component of everything chosen."""
    for slot in _SLOTS:
        component = resolution.choices[slot].component
        if component is not None:
            yield ("slot", slot), component
    for path, component in codecs_of(resolution.preprocessor):
        yield ("preprocessors", path), component
    for node in resolution.actions.walk():
        yield ("action_dists", node.place), node.component


def _addresses(pins: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield kind and address of every pinned part."""
    for slot, value in (pins or {}).items():
        if slot in ("preprocessors", "action_dists"):
            yield from ((slot.removesuffix("s"), address) for address in value.values())
        else:
            yield ("model" if slot in MODEL_SLOTS else slot), value
