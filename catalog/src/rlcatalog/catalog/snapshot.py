"""`CatalogSnapshot`: a catalog between two changes, which chooses, explains and builds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from rlcatalog.actions import mask_key
from rlcatalog.actions.masks import check_mask_path, mask_key_path, unused_masks
from rlcatalog.catalog.lookup_cache import Config, LookupCache
from rlcatalog.catalog.lookup_warnings import warn_of_problems
from rlcatalog.catalog.model_building import build_model
from rlcatalog.choice import PartAddresses, Resolution, model_stages
from rlcatalog.choice.critic import (
    check_critic_keys,
    check_instances,
    config_of_action_critic,
    is_complete,
    parse_critic,
    shared_keys,
)
from rlcatalog.choice.dist_plan import named_dists, plan_dists
from rlcatalog.choice.embedding_checks import check_head_reads_no_ids, check_trunk_embeds
from rlcatalog.choice.in_process import Code
from rlcatalog.choice.obs_groups import hidden_entries, unseen_paths
from rlcatalog.choice.resolution import critic_stages, request_for_slot, request_of_model
from rlcatalog.choice.slots import ModelChoices, Slots
from rlcatalog.config import keys_of
from rlcatalog.config.flat import FlatConfig, ReadOnlyConfig
from rlcatalog.config.schema import Schema
from rlcatalog.config.values import plain_values
from rlcatalog.errors import NotServedError, UnsupportedSpaceError
from rlcatalog.frameworks import default_framework, framework_name
from rlcatalog.observations import Preprocessor, preprocessor_of
from rlcatalog.observations.creation import create_preprocessor
from rlcatalog.observations.embeddings import check_embeddings, check_no_filter
from rlcatalog.observations.visible_observation import KeyPath, VisibleObservation
from rlcatalog.plugins import Part, Request
from rlcatalog.plugins.registry import Registry
from rlcatalog.spaces.info import Space, SpaceInfo

if TYPE_CHECKING:
    from rlcatalog.models import ModelV2
    from rlcatalog.plugins.request import PartsCatalog

T = TypeVar("T")


class Query(NamedTuple):
    """What a whole pipeline is chosen for.

    Attributes:
        obs_space: The environment's observation space.
        action_space: The environment's action space.
        config: The model config.
        framework: `"torch"` or `"tf"`, or None for the default; see `Catalog.resolve`.
        pins: The parts that a saved policy chose, which this lookup repeats; None makes new
            choices.
        defaults: An engine's defaults for keys that the config does not set.
    """

    obs_space: Space
    action_space: Space
    config: Mapping[str, Any] | None = None
    framework: str | None = None
    pins: PartAddresses | None = None
    defaults: Mapping[str, Any] | None = None


class Answer(NamedTuple):
    """The resolution of a query.

    Attributes:
        query: The query, with the defaults that the resolution has.
        resolution: The resolution.
        is_recalled: Whether it is the result of an earlier lookup.
    """

    query: Query
    resolution: Resolution
    is_recalled: bool


class Creation(NamedTuple, Generic[T]):
    """An object, and the answer from which it was created."""

    answer: Answer
    created: T


class CatalogSnapshot:
    """A catalog between two changes: what it holds, and the lookups in it.

    It is never changed: a catalog that changes makes a new one. So each lookup sees the catalog
    either before or after a change.

    Args:
        catalog: The catalog, for requests and preprocessors.
        registry: The parts.
        prefer: Distributions whose parts count as listed and win ties.
    """

    def __init__(self, catalog: PartsCatalog, registry: Registry, prefer: Sequence[str]) -> None:
        self.catalog = catalog
        self.registry = registry
        self.schema = Schema(registry)
        self.slots = Slots(registry, prefer)
        self._cache = LookupCache()

    def config_keys(self, part: Part, framework: str | None = None) -> list[str]:
        """Return the config keys that a part reads; see `Catalog.config_keys`."""
        if framework is not None:
            # Another package's code for this framework may read other keys.
            for extension in part.extensions.get(framework, ()):
                if extension.declaration.reads:
                    return list(extension.declaration.reads)
        keys: list[str] = []
        struct = self.registry.config_struct_of(part)
        if struct is not None:
            # Only the keys that several packages have need a longer name than their field's.
            long_names = self.registry.key_names.get(struct, {})
            keys += [long_names.get(key.name, key.name) for key in keys_of(struct)]
        keys += part.declaration.named_keys
        return list(dict.fromkeys(keys))  # each key once

    def action_critic_config(self, config: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return the config of a critic for the values of actions; see
        `Catalog.action_critic_config`.
        """
        parsed = self.schema.parse(config)
        if parsed["obs_groups"]:
            raise NotServedError(
                "obs_groups: a critic for the values of actions sees the same observation as the"
                " policy. Remove obs_groups from the model config."
            )
        check_critic_keys(parsed)
        if parsed["critic"] is None:
            return None
        no_defaults = None
        critic = parse_critic(self.schema, parsed, no_defaults, self._shared_keys)
        return config_of_action_critic(parsed, critic, self.registry)

    # --- a whole pipeline, remembered -------------------------------------------------------------

    def resolve(self, query: Query) -> Resolution:
        """Choose a part for every slot; see `Catalog.resolve`."""
        recalled = self._recall(query)
        if recalled is not None:
            return recalled
        answer = call_with_fewer_defaults(self._answer, query)
        self._warn_and_remember(answer)
        return answer.resolution

    def build(self, create: Callable[[Resolution], T], query: Query) -> T:
        """Choose a part for every slot and return `create(resolution)`; see
        `Catalog.build_from_lookup`.
        """

        def answer_and_create(query: Query) -> Creation[T]:
            answer = self._answer(query)
            return Creation(answer, create(answer.resolution))

        creation = call_with_fewer_defaults(answer_and_create, query)
        self._warn_and_remember(creation.answer)
        return creation.created

    def explain(self, query: Query) -> Resolution:
        """Return the resolution to explain, without a warning."""
        return self._cache.recall_or_find(
            key=("explanation", query.framework),
            spaces=(query.obs_space, query.action_space),
            config=_config_to_remember(query),
            find=lambda: self.choose(query),
        )

    def _answer(self, query: Query) -> Answer:
        """Recall the resolution of a query, or choose parts for it."""
        recalled = self._recall(query)
        if recalled is not None:
            return Answer(query, recalled, is_recalled=True)
        return Answer(query, self.choose(query), is_recalled=False)

    def _recall(self, query: Query) -> Resolution | None:
        """Return the resolution of an earlier query like this one, or None."""
        if query.pins is not None:
            return None  # the cache does not compare pins
        resolution: Resolution | None = self._cache.recall(
            key=("resolution", query.framework),
            spaces=(query.obs_space, query.action_space),
            config=_config_to_remember(query),
        )
        return resolution

    def _warn_and_remember(self, answer: Answer) -> None:
        """Warn of a new resolution and remember it.

        This comes last: if building from the resolution raises an error, the error says what to do,
        and needs no warning before it.
        """
        query = answer.query
        if answer.is_recalled or query.pins is not None:
            return  # this choice was made, and warned of, before
        warn_of_problems(answer.resolution, list(self.registry), self.config_keys)
        self._cache.remember(
            key=("resolution", query.framework),
            spaces=(query.obs_space, query.action_space),
            config=_config_to_remember(query),
            result=answer.resolution,
        )

    # --- a whole pipeline, chosen -----------------------------------------------------------------

    def choose(self, query: Query) -> Resolution:
        """Choose a part for every slot, from observation to action."""
        # The config, the framework and the two spaces.
        config = self.schema.parse(query.config, query.defaults)
        config.catalog = self.catalog
        check_critic_keys(config)
        custom_model = self.slots.named("model", config["custom_model"])
        memory = self.slots.named_memory(config["memory"])
        custom_dists = named_dists(self.slots, config["custom_action_dist"])
        critic_config = None
        custom_critic = None
        critic_memory = None
        if config["critic"] is not None:
            critic_config = parse_critic(self.schema, config, query.defaults, self._shared_keys)
            custom_critic = self.slots.named("model", critic_config["custom_model"])
            critic_memory = self.slots.named_memory(critic_config["memory"])
            check_instances("custom_model", custom_model, custom_critic)
            check_instances("memory", memory, critic_memory)
        framework = framework_for(
            query.framework,
            custom_model,
            memory,
            custom_critic,
            critic_memory,
            *custom_dists.values(),
        )
        obs_info = SpaceInfo.read(query.obs_space)
        action_info = SpaceInfo.read(query.action_space, "action")
        if query.pins is None:
            # A saved policy keeps the meaning that its key has always had.
            check_mask_path(obs_info, config["action_mask_key"])
        mask_place = find_mask(obs_info, action_info, config, custom_model)
        request = Request(
            mask_place.rest_of_obs,
            action_info,
            config.read_only(),
            framework,
            catalog=self.catalog,
            mask_key=mask_place.key,
            is_repeated=query.pins is not None,
        )

        # Preprocessor and filter.
        preprocessor_choice = self.slots.choose_preprocessor(request, query.pins)
        filter_choice = self.slots.choose_filter(request, query.pins)
        preprocessor = self.make_preprocessor(
            request.obs,
            config,
            pins=query.pins,
            chosen={request.obs.path: preprocessor_choice.part},
        )
        if not preprocessor.size:
            raise _no_values(request.obs)
        check_embeddings(config, preprocessor)
        models_preprocessor = _seen_by_models(preprocessor)
        request = request.replace(
            encoded_shape=preprocessor.shape, preprocessor=models_preprocessor
        )

        # The action distribution, which determines the number of model outputs.
        dists = plan_dists(self.slots, request, custom_dists, query.pins)
        if not dists.size:
            raise action_info.error_without_values(dists.part.name)
        request = request.replace(num_outputs=dists.size)

        # Trunk, memory and head. A config with contradictory shapes fails here, before a framework
        # is imported.
        hidden = hidden_entries(config["obs_groups"] or {}, obs_info, mask_place.key_path)
        visible = None
        if hidden.get("policy"):
            visible = VisibleObservation(
                models_preprocessor, hidden["policy"], "obs_groups['policy']"
            )
        model_request = request_of_model(request, config, visible, critic_config is not None)
        model_choices = self.slots.choose_model(model_request, custom_model, query.pins, memory)
        self._check_model_embeds(model_choices, model_request)
        stages = model_stages(
            model_choices.parts.values(), model_request, dists.size, model_choices.unclaimed
        )
        resolution = Resolution(
            request=request,
            config=config,
            framework=framework,
            choices={
                "preprocessor": preprocessor_choice,
                "filter": filter_choice,
                "action_dist": dists.choice,
                **model_choices.choices,
            },
            preprocessor=preprocessor,
            dists=dists,
            stages=tuple(stages),
            pins=query.pins,
            mask_key=mask_place.key,
            unclaimed=model_choices.unclaimed,
            visible=visible,
            env_wrappers=tuple(self.slots.env_wrappers(config)),
            mask_key_path=mask_place.key_path,
            unused_masks=mask_place.unused,
            unseen=tuple(unseen_paths(hidden)),
        )
        if config["embeddings"] is not None and resolution.new_filter is not None:
            filtered_paths = [leaf.path for leaf in resolution.new_filter.leaves]
            check_no_filter(config["embeddings"], preprocessor, filtered_paths)
        if critic_config is None:
            return resolution
        critic = self._choose_critic(
            resolution, critic_config, custom_critic, critic_memory, hidden.get("critic")
        )
        return replace(resolution, critic=critic, stages=(*stages, *critic.stages))

    @cached_property
    def _shared_keys(self) -> frozenset[str]:
        """The config keys that a critic has from the policy's config."""
        return shared_keys(self.registry)

    def _choose_critic(
        self,
        resolution: Resolution,
        config: FlatConfig,
        custom: Part | None,
        memory: Part | None,
        hidden: Sequence[KeyPath] | None,
    ) -> Resolution:
        """Choose a trunk and a memory for a critic of its own.

        Args:
            resolution: The choices for the policy.
            config: The critic's config.
            custom: The part that the critic's `custom_model` names.
            memory: The part that the critic's `memory` names.
            hidden: The keys that lead to each entry that `obs_groups` hides from the critic; None
                if it has no group.

        Returns:
            The policy's resolution with the choices for the critic in place of those for the
            policy's model.
        """
        preprocessor = resolution.request.preprocessor
        assert preprocessor is not None
        who = "obs_groups['critic']"
        sees_single_entry = False
        if hidden is None:
            # Without a group, the critic sees what the policy's head leaves to its trunk.
            who = "critic"
            hidden = resolution.claimed_entries
            sees_single_entry = resolution.unclaimed is not None
        if resolution.shows_mask and resolution.mask_key_path not in hidden:
            hidden = [*hidden, resolution.mask_key_path]  # it belongs to the policy
        visible = None
        if hidden or sees_single_entry:
            visible = VisibleObservation(preprocessor, hidden, who)
        request = resolution.request.replace(config=config.read_only())
        critic_request = request_of_model(request, config, visible, has_critic=False)
        pins = None if resolution.pins is None else resolution.pins.of_critic()
        choices = self.slots.choose_critic(critic_request, custom, pins, memory)
        self._check_model_embeds(choices, critic_request)
        stages = critic_stages(choices.parts.values(), critic_request, is_complete(choices.parts))
        return replace(
            resolution,
            request=request,
            config=config,
            choices={**resolution.choices, **choices.choices},
            stages=tuple(stages),
            pins=pins,
            unclaimed=None,
            visible=visible,
            env_wrappers=(),
        )

    def _check_model_embeds(self, choices: ModelChoices, request: Request) -> None:
        """Raise an error if a part of a model reads ids as numbers.

        Args:
            choices: The choices for the model's slots.
            request: The request as the model sees it.
        """
        request_of_trunk = request_for_slot("trunk", request, choices.unclaimed)
        check_head_reads_no_ids(request, request_of_trunk)
        trunk = choices.parts["trunk"]
        if trunk is not None:
            self._check_trunk_embeds(trunk, request_of_trunk)

    def _check_trunk_embeds(self, trunk: Part, request: Request) -> None:
        """Raise an error if a trunk reads ids as numbers."""
        if request.config.get("embeddings") is not None:
            check_trunk_embeds(trunk, request, self.config_keys(trunk, request.framework))

    # --- single parts -----------------------------------------------------------------------------

    def choose_trunk(self, request: Request, name: str | Code | None) -> Part:
        """Choose the trunk for a part of an observation; see `Catalog.trunk`."""
        trunk = self.slots.choose_trunk(request.replace(catalog=self.catalog), name)
        self._check_trunk_embeds(trunk, request)
        return trunk

    def make_preprocessor(
        self,
        space: Space | SpaceInfo,
        config: Mapping[str, Any] | None = None,
        *,
        check: str | None = None,
        pins: PartAddresses | None = None,
        chosen: Mapping[str, Part | None] | None = None,
    ) -> Preprocessor:
        """Create the preprocessor for a space; see `Catalog.preprocessor_for`.

        Args:
            space: The space, or what is known of it.
            config: The model config.
            check: How often observations are checked; None asks the config.
            pins: The preprocessors that a saved policy chose, which this lookup repeats.
            chosen: Path of a space → the preprocessor that is already chosen for it.
        """
        info = space if isinstance(space, SpaceInfo) else SpaceInfo.read(space)
        options: dict[str, Any] = {}
        if config is not None:
            options = plain_values(config)  # a copy, because a preprocessor may change its options
        # A preprocessor in RLlib's form reads its options under this name.
        options["custom_options"] = options.get("custom_model_config", {})
        if check is None:
            check = options.get("check_observations", "first")
        part = None
        if chosen is not None:
            part = chosen.get(info.path)
        if part is None:
            request = Request(info, config=ReadOnlyConfig(options))
            part = self.slots.choose_preprocessor(request, pins).part
        assert part is not None  # `choose_preprocessor` raises an error instead
        find_child = partial(self.make_preprocessor, check="never", pins=pins, chosen=chosen)
        preprocessor = create_preprocessor(part, info, options, check, find_child)
        preprocessor.made_by = self.catalog
        return preprocessor

    def action_dist(
        self,
        action_space: Space,
        config: Mapping[str, Any] | None,
        dist_type: str | type | None,
        framework: str | None,
    ) -> tuple[Any, int]:
        """Return the distribution class for an action space and its number of inputs; see
        `Catalog.action_dist`.
        """
        return self._cache.recall_or_find(
            key=("action_dist", framework),
            spaces=(action_space,),
            config=(config, dist_type),
            find=lambda: self._choose_dist(action_space, config, dist_type, framework),
        )

    def _choose_dist(
        self,
        action_space: Space,
        config: Mapping[str, Any] | None,
        dist_type: str | type | None,
        framework: str | None,
    ) -> tuple[Any, int]:
        """Return what `action_dist` returns, by a new lookup."""
        values = self.schema.parse(config)
        values.catalog = self.catalog
        custom_dists = named_dists(self.slots, values["custom_action_dist"], dist_type)
        custom_model = None
        memory = None
        if framework is None:
            # The model computes the distribution's inputs, so it has the same framework.
            custom_model = self.slots.named("model", values["custom_model"])
            memory = self.slots.named_memory(values["memory"])
        framework = framework_for(framework, *custom_dists.values(), custom_model, memory)
        action_info = SpaceInfo.read(action_space, "action")
        # A request needs an observation, but distributions see only the action space.
        request = Request(action_info, action_info, values.read_only(), framework)
        plan = plan_dists(self.slots, request, custom_dists)
        return plan.load(framework, values.read_only()), plan.size

    def model_v2(
        self,
        obs_space: Space,
        action_space: Space,
        num_outputs: int | None,
        config: Mapping[str, Any] | None,
        framework: str | None,
        *,
        default_model: type | None,
        name: str,
        interface: type | None,
        kwargs: Mapping[str, Any] | None,
    ) -> ModelV2:
        """Build a model for encoded observations; see `Catalog.model_v2`."""
        plan = self._cache.recall_or_find(
            key=("model", framework, num_outputs),
            spaces=(obs_space, action_space),
            config=(config, default_model),
            find=lambda: self._plan_model(
                obs_space, action_space, num_outputs, config, framework, default_model
            ),
        )
        return build_model(
            plan.parts,
            plan.obs_space,
            action_space,
            num_outputs,
            plan.config,
            plan.framework,
            name=name,
            interface=interface,
            kwargs=kwargs,
            unclaimed=plan.unclaimed,
            action_dist=plan.action_dist,
        )

    def _plan_model(
        self,
        obs_space: Space,
        action_space: Space,
        num_outputs: int | None,
        config: Mapping[str, Any] | None,
        framework: str | None,
        default_model: type | None,
    ) -> _ModelPlan:
        """Choose the parts of a model for `model_v2`."""
        parsed = self.schema.parse(config)
        parsed.catalog = self.catalog
        if parsed["critic"] is not None or parsed["obs_groups"]:
            raise NotServedError(
                "get_model_v2 builds one model, for all values of an encoded observation, so it"
                " takes neither critic nor obs_groups. Remove them, or build a policy with"
                " rlcatalog.build(obs_space, action_space, config); its `model` has both sides."
            )
        # The default model is chosen like a custom model, but it is built from `parsed`, so that it
        # does not get the `custom_model_config`.
        values = FlatConfig(parsed)
        if not values["custom_model"]:
            values["custom_model"] = default_model
        custom_model = self.slots.named("model", values["custom_model"])
        memory = self.slots.named_memory(values["memory"])
        framework = framework_for(framework, custom_model, memory)
        embeds = values["embeddings"] is not None
        if _needs_encoding(obs_space, custom_model, embeds):
            obs_space = self.make_preprocessor(obs_space, values, check="never").observation_space
        # RLlib's attribute of an encoded space.
        obs_info = SpaceInfo.read(getattr(obs_space, "original_space", obs_space))
        action_info = SpaceInfo.read(action_space, "action")
        preprocessor = preprocessor_of(obs_space, self.catalog)
        encoded_shape = None
        if SpaceInfo.read(obs_space).kind == "box":
            encoded_shape = obs_space.shape
        elif preprocessor is not None:  # one Discrete or MultiDiscrete, whose integers stay
            encoded_shape = preprocessor.shape
        request = Request(
            obs_info,
            action_info,
            values.read_only(),
            framework,
            encoded_shape=encoded_shape,
            num_outputs=num_outputs,
            preprocessor=preprocessor,
            catalog=self.catalog,
            mask_key=mask_key(obs_info, action_info, values["action_mask_key"]),
        )
        model_choices = self.slots.choose_model(request, custom_model, memory=memory)
        if preprocessor is not None:
            check_embeddings(values, preprocessor)
        self._check_model_embeds(model_choices, request)
        # Raises an error where config and shapes contradict each other.
        model_stages(model_choices.parts.values(), request, num_outputs, model_choices.unclaimed)
        action_dist = None
        if model_choices.parts["head"] is not None:  # a head is built with the action distribution
            action_dist, _ = self.action_dist(
                action_space, config, dist_type=None, framework=framework
            )
        return _ModelPlan(
            model_choices.parts, obs_space, parsed, framework, model_choices.unclaimed, action_dist
        )


class _ModelPlan(NamedTuple):
    """What `build_model` needs to know of a lookup."""

    parts: Mapping[str, Part | None]
    obs_space: Space
    config: FlatConfig
    framework: str
    unclaimed: VisibleObservation | None
    action_dist: Any


def _config_to_remember(query: Query) -> Config:
    """Return what the cache compares of a query's config: with the defaults, if there are any."""
    if not query.defaults:
        return query.config
    return query.config, query.defaults


class MaskPlace(NamedTuple):
    """Where the action mask is in an observation.

    Attributes:
        key: Key, or path of keys, of the mask, or None if there is none.
        key_path: The keys that lead to it.
        rest_of_obs: The observation as the parts see it, in general without the mask.
        unused: Paths of entries that are named like a mask, if none is one.
    """

    key: str | None
    key_path: tuple[str, ...]
    rest_of_obs: SpaceInfo
    unused: tuple[str, ...]


def find_mask(
    obs: SpaceInfo, action: SpaceInfo, config: FlatConfig, custom_model: Part | None
) -> MaskPlace:
    """Find the action mask in an observation.

    A custom preprocessor, and a custom model in RLlib's form, see the whole observation, with the
    mask. For other models the mask is applied to the output.
    """
    key = mask_key(obs, action, config["action_mask_key"])
    if key is None:
        unused = unused_masks(obs, action, config["action_mask_key"])
        return MaskPlace(key=None, key_path=(), rest_of_obs=obs, unused=unused)
    key_path = mask_key_path(obs, key)
    users_code_sees_mask = config["custom_preprocessor"] is not None
    if custom_model is not None and not custom_model.is_plain:
        users_code_sees_mask = True
    rest_of_obs = obs if users_code_sees_mask else obs.without(*key_path)
    return MaskPlace(key, key_path, rest_of_obs, unused=())


def framework_for(framework: str | None, *named: Part | None) -> str:
    """Return a lookup's framework: the given one, or a registered class's, or the default."""
    if framework is not None:
        return framework_name(framework)
    for part in named:
        if part is None or not part.in_process:
            continue
        if len(part.frameworks) == 1:  # a class for several frameworks decides nothing
            return part.frameworks[0]
    return default_framework()


def call_with_fewer_defaults(attempt: Callable[[Query], T], query: Query) -> T:
    """Return `attempt(query)`; if it fails, try without each default in turn, then without any.

    The last error is raised.
    """
    if not query.defaults:
        return attempt(query)
    queries_with_defaults = [query]
    for dropped in query.defaults:
        kept = {name: value for name, value in query.defaults.items() if name != dropped}
        if kept:
            queries_with_defaults.append(query._replace(defaults=kept))
    for query_with_defaults in queries_with_defaults:
        try:
            return attempt(query_with_defaults)
        except Exception:  # a user's class may refuse an engine's default with any error
            continue
    return attempt(query._replace(defaults=None))


def _needs_encoding(obs_space: Space, custom_model: Part | None, embeds: bool) -> bool:
    """Return whether a model for the environment's own space sees it encoded.

    Models of the catalog see a Dict or Tuple encoded, and plain modules see every space but a Box
    encoded; a class in RLlib's form sees the structure.

    Args:
        obs_space: The space.
        custom_model: The part that `custom_model` names.
        embeds: Whether the model embeds ids, whose range only their codec knows.
    """
    # RLlib's attribute of an encoded space.
    is_encoded = hasattr(obs_space, "original_space")
    if is_encoded or (custom_model is not None and custom_model.undeclared):
        return False
    info = SpaceInfo.read(obs_space)
    if info.is_composite or embeds:
        return True
    return custom_model is not None and custom_model.is_plain and info.kind != "box"


def _seen_by_models(preprocessor: Preprocessor) -> Preprocessor:
    """Return the preprocessor whose structure models restore from their observations.

    A codec in RLlib's style may create its observation space and set its `original_space` to the
    space of a different preprocessor.
    """
    if type(preprocessor).observation_space is Preprocessor.observation_space:
        return preprocessor
    other = preprocessor_of(preprocessor.observation_space)
    if other is None or other.shape != preprocessor.shape:
        return preprocessor
    return other


def _no_values(obs: SpaceInfo) -> UnsupportedSpaceError:
    return UnsupportedSpaceError(
        f"{obs.path}: {obs.describe()} has no values, so a model would have no input. Add a"
        " value to the observation, such as a constant"
        " (gymnasium.wrappers.TransformObservation)."
    )
