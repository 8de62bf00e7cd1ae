"""Recipe from which every worker builds a policy: a model config, and the parts that the driver
chose.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import rlcatalog
from rlcatalog import Catalog, Policy, default_catalog
from rlcatalog.choice import PartAddresses, Resolution
from rlcatalog.config import RULES
from rlcatalog.errors import CatalogError, NotServedError, UnreadKeysWarning
from rlcatalog.plugins import Part
from rlcatalog_policy import UNSAVED_RULES
from rlcatalog_rllib.parcels import Parcel, content_of, packed, unpacked
from rlcatalog_rllib.spaces import Space
from rlcatalog_torch import ActionCritic, build_action_critic

#: Key in a module's `model_config` for the names of the chosen parts.
PARTS = "_rlcatalog_parts"
#: Key for the catalog, if it is not the process's; Ray pickles it for its workers.
CATALOG = "_rlcatalog_catalog"
#: Key for the list of the catalog's keys; all others are Ray's.
KEYS = "_rlcatalog_keys"
#: Key for the engine's defaults.
DEFAULTS = "_rlcatalog_defaults"
#: Key for the model config of critics for the values of actions.
ACTION_CRITICS = "_rlcatalog_action_critics"
#: Keys that Ray's algorithms add to a module's `model_config`, and which are not rlcatalog's.
RAYS_OWN = frozenset(
    {"double_q", "dueling", "epsilon", "num_atoms", "std_init", "twin_q", "v_max", "v_min"}
)
#: Keys that Ray's algorithms set for their own networks.
RAYS_DEFAULTS = frozenset({"vf_share_layers"})


@dataclass(frozen=True)
class Recipe:
    """Recipe from which any process can build the same policy.

    Attributes:
        model: The model config.
        pins: The chosen parts, or None if each process chooses its own.
        catalog: The catalog for the parts, or a parcel that contains it. If None, each process uses
            its own.
        defaults: Defaults that match the algorithm's own nets, used for keys missing from the model
            config and from that of a critic of its own.
        warned: Whether the driver has already warned about unused keys.
        action_critics: The key `critic` of the user's model config, if the algorithm learns the
            values of actions, so that its critics are not part of the policy. None otherwise.
    """

    model: Mapping[str, Any]
    pins: PartAddresses | None = None
    catalog: Catalog | Parcel | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    warned: bool = False
    action_critics: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, model_config: Mapping[str, Any] | None) -> Recipe:
        """Read the recipe from a module's `model_config`."""
        settings = dict(model_config or {})
        pins = settings.pop(PARTS, None)
        catalog = settings.pop(CATALOG, None)
        keys = settings.pop(KEYS, None)
        defaults = dict(settings.pop(DEFAULTS, {}))
        action_critics = settings.pop(ACTION_CRITICS, None)
        is_by_hand = keys is None
        if is_by_hand:  # the user wrote the module's `model_config`, instead of `configure`
            keys = [key for key in settings if key not in RAYS_OWN | RAYS_DEFAULTS]
        model = unpacked({key: settings[key] for key in keys})
        for key in RAYS_DEFAULTS:
            if key in settings and key not in model:
                defaults[key] = settings[key]
        if not is_by_hand:
            # Only recipes of earlier versions lack rules.
            for key, value in UNSAVED_RULES.items():
                if key not in keys:
                    defaults[key] = value
        return cls(
            model,
            pins=None if pins is None else PartAddresses.from_dict(pins),
            catalog=catalog,
            defaults=defaults,
            warned=not is_by_hand,
            action_critics=None if action_critics is None else unpacked(action_critics),
        )

    def with_critics_apart(self) -> Recipe:
        """Return the recipe with the key `critic` of its model config as `action_critics`."""
        if self.action_critics is not None:
            return self
        model = dict(self.model)
        return replace(self, action_critics=model.pop("critic", None), model=model)

    def model_config(self, searched: Collection[str] = ()) -> dict[str, Any]:
        """Return the recipe as a module's `model_config`.

        Args:
            searched: Keys that Ray Tune searches over. Their values come from a trial's config, and
                the trial's processes choose the parts.
        """
        model = {key: value for key, value in self.model.items() if key not in searched}
        config = packed(model)
        config[KEYS] = list(self.model)
        config[DEFAULTS] = dict(self.defaults)
        config[PARTS] = None if self.pins is None or searched else self.pins.as_dict()
        if self.catalog is not None:
            config[CATALOG] = self.catalog
        if self.action_critics is not None:
            if "critic" in searched:
                config[KEYS].append("critic")  # for `with_critics_apart`
            else:
                config[ACTION_CRITICS] = packed(self.action_critics)
        return config

    def __reduce__(self) -> tuple[Any, ...]:
        return Recipe.of, (self.model_config(),)


def choose_parts(
    obs_space: Space,
    action_space: Space,
    model: Mapping[str, Any] | None,
    catalog: Catalog | None,
    defaults: Mapping[str, Any],
    *,
    has_action_critics: bool = False,
) -> tuple[Recipe, Policy]:
    """Choose the parts for an observation space and an action space, and build them once.

    Args:
        obs_space: The environment's observation space.
        action_space: Its action space.
        model: The model config.
        catalog: The catalog for the parts. If None, the process's.
        defaults: The engine's defaults, used for keys missing from the model config. The algorithm
            that runs the recipe adds missing keys from `RAYS_DEFAULTS`.
        has_action_critics: Whether the algorithm learns the values of actions with critics of its
            own, as SAC does. The key `critic` is then their config.

    Returns:
        The recipe for all workers, and the policy that was built in this process.

    Raises:
        CatalogError: See `rlcatalog.Catalog.build`.
    """
    lookup_catalog = default_catalog() if catalog is None else catalog
    if "init" in lookup_catalog.parse_config(model).explicit:
        # It names the initial values of all layers, so the engine's for some of them give way.
        defaults = {
            key: value for key, value in defaults.items() if not key.endswith("_initializer")
        }
    given_critic_config = None
    if has_action_critics and lookup_catalog.action_critic_config(model) is not None:
        policy_config = dict(model or {})
        given_critic_config = policy_config.pop("critic")
        model = policy_config
    policy = rlcatalog.build(
        obs_space, action_space, model, "torch", catalog=lookup_catalog, defaults=defaults
    )
    resolution = policy.resolution
    # The workers get the values of these keys, even if the config leaves them open. Ray's
    # connectors read max_seq_len.
    decided_keys = ("max_seq_len", *RULES, *defaults)
    decided = {key: resolution.config[key] for key in decided_keys}
    if resolution.critic is not None:
        # It shares no layers with the policy, whatever the algorithm's own networks do.
        decided.pop("vf_share_layers", None)
    config = {**resolution.config.explicit, **decided}
    parts = _all_parts(resolution)
    if given_critic_config is not None:
        # It is built here once, so that an error is raised here, and not in a learner's process.
        recipe = Recipe(config, defaults=dict(defaults), action_critics=given_critic_config)
        critic = build_critic_of_actions(recipe, policy, lookup_catalog)
        parts += _all_parts(critic.resolution)
        given_critic_config = {**given_critic_config, **critic.resolution.pinned_keys()}
    # Registered parts are sent with the catalog; classes in the config are sent separately.
    in_process = [part for part in parts if part.in_process]
    registered = [part for part in in_process if _contains(lookup_catalog, part)]
    catalog_to_send: Catalog | Parcel | None = catalog
    if catalog is None and registered:
        catalog_to_send = Parcel.of_catalog(lookup_catalog, registered)
    if len(registered) < len(in_process):
        # Classes in the config have no names by which another process could find them again.
        recipe = Recipe(
            config,
            pins=None,
            catalog=catalog_to_send,
            defaults=dict(defaults),
            warned=True,
            action_critics=given_critic_config,
        )
        return recipe, policy
    # Every process finds the parts by name, so the workers build exactly the chosen ones.
    config.update(resolution.pinned_keys())
    if resolution.critic is not None:
        config["critic"] = {**config["critic"], **resolution.critic.pinned_keys()}
    recipe = Recipe(
        config,
        pins=PartAddresses.of(resolution),
        catalog=catalog_to_send,
        defaults=dict(defaults),
        warned=True,
        action_critics=given_critic_config,
    )
    return recipe, policy


def _all_parts(resolution: Resolution) -> list[Part]:
    """Return all parts that a lookup chose, with the nets inside the policy's and the critic's
    models.
    """
    parts = [*resolution.parts(), *resolution.inner_nets]
    if resolution.critic is not None:
        parts += resolution.critic.inner_nets
    return parts


def _contains(catalog: Catalog, part: Part) -> bool:
    """Return whether a catalog contains a part, and not just one that is equal."""
    return any(part is other for other in catalog.parts())


def build_policy(recipe: Recipe, obs_space: Space, action_space: Space) -> Policy:
    """Build a policy from a recipe.

    Args:
        recipe: The recipe.
        obs_space: The environment's observation space.
        action_space: Its action space.

    Raises:
        CatalogError: A part cannot be built on this Ray node. The message names the node and any
            missing package.
    """
    catalog = default_catalog() if recipe.catalog is None else content_of(recipe.catalog)
    pins = recipe.pins
    try:
        if pins is not None:
            pins.check(catalog.registry)  # report a missing package before its unknown config keys
        with warnings.catch_warnings():
            if recipe.warned:
                warnings.simplefilter("ignore", UnreadKeysWarning)
            return rlcatalog.build(
                obs_space,
                action_space,
                recipe.model,
                "torch",
                pins=pins,
                defaults=recipe.defaults,
                catalog=catalog,
            )
    except CatalogError as error:
        message = f"{this_machine()}: the parts cannot be built here. {error}"
        if pins is not None and pins.versions:
            versions = ", ".join(f"{name} {version}" for name, version in pins.versions.items())
            message += f" (They were chosen with {versions}.)"
        error.args = (message,)
        raise


def build_critic_of_actions(
    recipe: Recipe, policy: Policy, catalog: Catalog | None = None
) -> ActionCritic:
    """Build a critic for the values of actions from a recipe, with new weights.

    Args:
        recipe: The recipe, which has `action_critics`.
        policy: The policy that was built from it.
        catalog: The catalog for the parts. If None, the recipe's.

    Raises:
        CatalogError: The parts cannot be built.
        NotServedError: The critic needs other encoded observations than the policy.
    """
    if catalog is None:
        catalog = default_catalog() if recipe.catalog is None else content_of(recipe.catalog)
    whole_config = {**recipe.model, "critic": recipe.action_critics}
    config = catalog.action_critic_config(whole_config)
    with warnings.catch_warnings():
        if recipe.warned:
            warnings.simplefilter("ignore", UnreadKeysWarning)
        critic = build_action_critic(
            policy.observation_space,
            policy.action_space,
            config,
            catalog=catalog,
            defaults=recipe.defaults,
        )
    if critic.preprocessor.shape != policy.preprocessor.shape:
        raise NotServedError(
            "critic: its model reads another form of the observation than the policy's: shape"
            f" {critic.preprocessor.shape} instead of {policy.preprocessor.shape}. A class in"
            " RLlib's form, for example, sees an action mask in the observation, which other"
            " models do not. Use the same kind of model on both sides."
        )
    return critic


@contextmanager
def prefix_errors(where: Callable[[], str]) -> Iterator[None]:
    """Context manager that adds a place, such as a policy's name, to the messages of errors;
    `where` names it then.
    """
    try:
        yield
    except CatalogError as error:
        error.args = (f"{where()}: {error}",)
        raise


def this_machine() -> str:
    """Return the name of the machine that this process runs on, and of its Ray node, if any."""
    import ray

    if not ray.is_initialized():
        return f"machine {platform.node()}"
    node = ray.get_runtime_context().get_node_id()
    address = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return f"node {address} ({platform.node()}, Ray node {node})"
