"""Result of a lookup before a model is built, with the names of its parts and the stages of
its model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from typing import Any

from rlcatalog.actions.masks import entry_at
from rlcatalog.choice.action_ranges import ActionRange, action_ranges
from rlcatalog.choice.critic import policy_side
from rlcatalog.choice.dist_plan import DistPlan
from rlcatalog.choice.in_process import in_process
from rlcatalog.choice.selection import Choice
from rlcatalog.choice.slots import MODEL_SLOTS
from rlcatalog.config.flat import FlatConfig
from rlcatalog.config.kernel_keys import (
    IDLE_WITH_CRITIC,
    IDLE_WITH_MEMORY,
    READ_BESIDE,
    READ_BY_KERNEL,
    READ_WITH_MEMORY,
)
from rlcatalog.models import DensePlan, DenseSpec, plan_dense_layers
from rlcatalog.models.layers import dense_layers, without_dense_layers
from rlcatalog.observations import Filter, Leaf, Preprocessor
from rlcatalog.observations.filter import make_filter
from rlcatalog.observations.scaling import describe_scalings
from rlcatalog.observations.structure import model_views
from rlcatalog.observations.visible_observation import (
    KeyPath,
    VisibleObservation,
    without_entries,
)
from rlcatalog.plugins import Part, Request, Stage
from rlcatalog.plugins.registry import Registry
from rlcatalog.spaces import ImageLayout, SpaceInfo, read_layout

#: What the slots of a critic begin with in `PartAddresses.by_slot`.
CRITIC_PREFIX = "critic."


@dataclass(frozen=True)
class PartAddresses:
    """Addresses of the chosen parts, each in the form `"distribution/name"`.

    Attributes:
        by_slot: Slot → address, for the filter and the model. An empty slot is omitted and stays
            empty. The slots of a critic are `"critic.trunk"` and `"critic.memory"`.
        preprocessors: Path → address, for the codecs of an observation space and its subspaces.
        action_dists: Place → address, for the distributions of an action space and its subspaces.
        versions: Distribution → its version at the time of the choice.
    """

    by_slot: Mapping[str, str] = field(default_factory=dict)
    preprocessors: Mapping[str, str] = field(default_factory=dict)
    action_dists: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, resolution: Resolution) -> PartAddresses:
        """Return the addresses of all parts that a lookup chose."""
        parts = resolution.parts_by_slot("filter", *MODEL_SLOTS)
        if resolution.critic is not None:
            for slot, part in resolution.critic.parts_by_slot(*MODEL_SLOTS).items():
                parts[CRITIC_PREFIX + slot] = part
        preprocessors = dict(resolution.preprocessor.parts())
        action_dists = {node.place: node.part for node in resolution.dists.walk()}
        versions = {}
        for part in (*parts.values(), *preprocessors.values(), *action_dists.values()):
            if not part.in_process:  # a class of the running program has no version
                versions[part.distribution] = part.version
        return cls(
            by_slot=_addresses(parts),
            preprocessors=_addresses(preprocessors),
            action_dists=_addresses(action_dists),
            versions=dict(sorted(versions.items())),
        )

    def as_dict(self) -> dict[str, dict[str, str]]:
        """Return the addresses as plain data, under the keys that saved policies and exports have.

        `from_dict` restores them.
        """
        return {
            "parts": dict(self.by_slot),
            "preprocessors": dict(self.preprocessors),
            "action_dists": dict(self.action_dists),
            "versions": dict(self.versions),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Mapping[str, str]]) -> PartAddresses:
        """Return the addresses from the result of `as_dict`."""
        addresses = dict(data)
        by_slot = addresses.pop("parts", {})
        return cls(by_slot, **addresses)

    def of_critic(self) -> PartAddresses:
        """Return the addresses of the critic's parts, by the slots that they fill in the critic."""
        parts = {}
        for slot, address in self.by_slot.items():
            if slot.startswith(CRITIC_PREFIX):
                parts[slot.removeprefix(CRITIC_PREFIX)] = address
        return replace(self, by_slot=parts)

    def check(self, registry: Registry) -> None:
        """Check that each part is available.

        Raises:
            MissingPluginError: A part's package is missing, is disabled, or failed to load.
            UnknownNameError: The package has no such part.
        """
        for slot, address in self.by_slot.items():
            is_of_model = slot.removeprefix(CRITIC_PREFIX) in MODEL_SLOTS
            kind = "model" if is_of_model else slot
            registry.get(kind, address)
        for address in self.preprocessors.values():
            registry.get("preprocessor", address)
        for address in self.action_dists.values():
            registry.get("action_dist", address)


def _addresses(parts: Mapping[str, Part]) -> dict[str, str]:
    return {place: part.address for place, part in parts.items()}


@dataclass(frozen=True)
class Resolution:
    """All choices of one lookup.

    Attributes:
        request: The complete request, about the whole observation.
        config: The parsed model config.
        framework: `"torch"` or `"tf"`.
        choices: Slot → choice, for `preprocessor`, `filter`, `trunk`, `memory`, `head` and
            `action_dist`.
        preprocessor: A preprocessor for the observation space, which defines the shapes.
        dists: The distributions for the action space and its subspaces.
        stages: The stages of the model, followed by the critic's.
        pins: The earlier choices that the lookup repeated, or None for a new choice.
        mask_key: Key, or path of keys, of the action mask in Dict observations, or None.
        unclaimed: The part of what the model sees that the head leaves to the trunk and memory;
            None if it leaves everything.
        visible: The part of the observation that the model sees, if `obs_groups` hides the rest;
            None if it sees the whole observation.
        unseen: The paths of the entries that `obs_groups` shows to neither side.
        critic: The choices for a critic of its own, or None: the same lookup, with the critic's
            config, trunk, memory, stages and visible part.
        env_wrappers: The candidate wrappers for the environment, which read config keys.
        mask_key_path: The keys that lead to the action mask.
        unused_masks: Paths of entries that are named like an action mask, if the lookup uses none.
        hidden_paths: The paths of the leaves that the environment's observations have and this one
            lacks, because `without_critic` left them out. Config keys may still name them.
    """

    request: Request
    config: FlatConfig
    framework: str
    choices: dict[str, Choice]
    preprocessor: Preprocessor
    dists: DistPlan
    stages: tuple[Stage, ...]
    pins: PartAddresses | None = None
    mask_key: str | None = None
    unclaimed: VisibleObservation | None = None
    visible: VisibleObservation | None = None
    critic: Resolution | None = None
    env_wrappers: Sequence[Part] = ()
    mask_key_path: tuple[str, ...] = ()
    unused_masks: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    hidden_paths: tuple[str, ...] = ()

    @property
    def shows_mask(self) -> bool:
        """Whether the model sees the action mask."""
        if not self.mask_key_path:
            return False
        # By the keys, because another entry may have the same short path as the mask.
        return entry_at(self.request.obs, self.mask_key_path) is not None

    @cached_property
    def model_request(self) -> Request:
        """The request as the model sees it: about the visible part of the observation."""
        return request_of_model(self.request, self.config, self.visible, self.critic is not None)

    @property
    def slots_of_model(self) -> dict[str, Part | None]:
        """Slot → the chosen part, or None, for the slots of the model."""
        return {slot: self.choices[slot].part for slot in MODEL_SLOTS}

    @property
    def claimed_entries(self) -> list[KeyPath]:
        """The keys that lead to each entry that the head reads itself."""
        if self.unclaimed is None:
            return []
        first_keys: KeyPath = ()
        if self.visible is not None:
            first_keys = self.visible.key_path
        return [(*first_keys, *key_path) for key_path in self.unclaimed.hidden]

    @property
    def model_preprocessor(self) -> Preprocessor:
        """The preprocessor of the visible part of the observation."""
        if self.visible is None:
            return self.preprocessor
        return self.visible.preprocessor

    @property
    def model_space(self) -> Any:
        """The space of the encoded visible part, with which models are built."""
        return self.space_for_model(self.encoded_space)

    def space_for_model(self, encoded_space: Any) -> Any:
        """Return the part of a space of encoded observations that the model sees."""
        if self.visible is None:
            return encoded_space
        return self.visible.space(encoded_space)

    @property
    def lacks_critic(self) -> bool:
        """Whether `without_critic` left the critic out, so that there is no value."""
        return self.critic is None and self.config["critic"] is not None

    def without_critic(self) -> Resolution:
        """Return the choices for the policy alone: for observations with only the entries that it
        sees, and for a model without a value.
        """
        assert self.critic is not None
        obs = self.request.obs
        visible = None
        if self.visible is not None:
            obs = without_entries(obs, self.visible.hidden)
            visible = self.visible.without_hidden()
        preprocessor = self.preprocessor.child(obs)
        kept_paths = {leaf.path for leaf in preprocessor.leaves()}
        whole_paths = [leaf.path for leaf in self.preprocessor.leaves()]
        hidden_paths = [path for path in whole_paths if path not in kept_paths]
        config = policy_side(self.config)
        config["obs_groups"] = None
        config.given = _keys_of_policy(self.config.given)
        config.explicit = _keys_of_policy(self.config.explicit)
        request = self.request.replace(
            obs=obs,
            config=config.read_only(),
            encoded_shape=preprocessor.shape,
            preprocessor=preprocessor,
        )
        num_stages = len(self.stages) - len(self.critic.stages)
        return replace(
            self,
            request=request,
            config=config,
            preprocessor=preprocessor,
            stages=self.stages[:num_stages],
            visible=visible,
            critic=None,
            unseen=(),
            hidden_paths=tuple(hidden_paths),
        )

    @property
    def num_outputs(self) -> int:
        """Number of model outputs that the action distribution needs."""
        return self.dists.size

    @property
    def action(self) -> SpaceInfo:
        """The action space."""
        return self.request.space_for("action_dist")

    def parts_by_slot(self, *slots: str) -> dict[str, Part]:
        """Return the parts in these slots, or in all slots; empty slots are omitted."""
        parts = {slot: self.choices[slot].part for slot in slots or self.choices}
        return {slot: part for slot, part in parts.items() if part is not None}

    def part(self, slot: str) -> Part:
        """Return the part of a slot that is never empty."""
        part = self.choices[slot].part
        assert part is not None
        return part

    def config_keys(self, part: Part) -> list[str]:
        """Return the config keys that a part reads; see `Catalog.config_keys`."""
        assert self.request.catalog is not None
        return self.request.catalog.config_keys(part, self.framework)

    @property
    def shapes(self) -> tuple[Stage, ...]:
        """The stages from observation to action, with their shapes."""
        # A filter does not change the shape that the preprocessor returns.
        encoding = [
            Stage(f"{slot}: {part.name}", self.preprocessor.shape, weights=0)
            for slot, part in self.parts_by_slot("preprocessor", "filter").items()
        ]
        return (
            Stage("observation", self.request.obs.shape, weights=0),
            *encoding,
            *self.stages,
            Stage(f"{self.dists.part.name}: inputs", (self.num_outputs,), weights=0),
            Stage("action", self.action.shape, weights=0),
        )

    @property
    def model_parts(self) -> tuple[str, ...]:
        """The names of the model's parts, from the inside out."""
        return tuple(part.name for part in self.parts_by_slot(*MODEL_SLOTS).values())

    @property
    def num_weights(self) -> int | None:
        """Number of weights of the model and its critic; None if a part does not declare its
        weights, so that they are known only after building.
        """
        num_weights = 0
        for stage in self.stages:
            is_lower_bound = not stage.whole
            if stage.weights is None or is_lower_bound:
                return None
            num_weights += stage.weights
        return num_weights

    @cached_property
    def unread(self) -> dict[str, str]:
        """The config keys that differ from their defaults but that nothing reads: key → condition
        for it to be read.

        Keys are in the config's order. The condition is empty if no chosen part has the key. A
        registered class without `config` and `reads`, such as RLlib's custom classes, is assumed to
        read all keys.
        """
        keys = self._keys_to_read()
        if not keys:
            return {}
        read_by_kernel = self._keys_read_by_kernel()
        # A key without a condition belongs to no part, until one is found below.
        unread = {key: "" for key in keys if key not in read_by_kernel}
        for part in (*self._parts_of_side(), *self.parts_beside_slots):
            if part.undeclared:  # it may read every key
                return {}
            ignored = self._ignored_by(part)
            for key in unread.keys() & set(self.config_keys(part)):
                if key in ignored:
                    condition = ignored[key]
                    unread[key] = condition
                else:
                    del unread[key]
        unread |= self._keys_without_effect()
        return {key: unread[key] for key in keys if key in unread}

    def _keys_to_read(self) -> list[str]:
        """Return the keys that the caller set to something else than their defaults."""
        switches = set()
        for choice in self.choices.values():
            switches |= {part.switch for part, _ in choice.verdicts}
        set_by_caller = self.config.explicit
        differs_from_default = self.config.given
        keys = []
        for key, value in differs_from_default.items():
            # A switch that is off has its effect: its part is not chosen.
            is_switched_off = key in switches and not value
            if key in set_by_caller and not is_switched_off:
                keys.append(key)
        return keys

    def _keys_read_by_kernel(self) -> frozenset[str]:
        if self.has_memory:
            return READ_BY_KERNEL | READ_WITH_MEMORY
        if not self.part("trunk").is_indexed:
            return READ_BY_KERNEL | {"max_seq_len"}  # such a trunk may have a state itself
        return READ_BY_KERNEL

    def _keys_without_effect(self) -> dict[str, str]:
        """Return the keys that have no effect beside these parts and other keys → what they
        need.
        """
        needs = {}
        for key, others in READ_BESIDE.items():
            if not any(_is_set(self.request.config[other]) for other in others):
                needs[key] = " or ".join(others)
        if self.choices["memory"].part is not None:
            needs |= IDLE_WITH_MEMORY
        if self.critic is not None:
            needs |= IDLE_WITH_CRITIC
        return needs

    @property
    def has_memory(self) -> bool:
        """Whether the policy or its critic has a memory."""
        if self.choices["memory"].part is not None:
            return True
        return self.critic is not None and self.critic.has_memory

    @cached_property
    def action_ranges(self) -> tuple[ActionRange, ...]:
        """How the values of each Box action are reached from raw values."""
        return tuple(action_ranges(self.dists, self.config.read_only()))

    def parts(self) -> Iterator[Part]:
        """Yield all chosen parts, including the ones for subspaces and the critic's."""
        yield from self._parts_of_side()
        if self.critic is not None:
            yield from self.critic.parts_by_slot(*MODEL_SLOTS).values()

    def _parts_of_side(self) -> Iterator[Part]:
        """Yield the chosen parts, including the ones for subspaces, without the critic's."""
        yield from self.parts_by_slot().values()
        yield from (part for _, part in self.preprocessor.parts())
        yield from (node.part for node in self.dists.walk())

    def pinned_keys(self) -> dict[str, Any]:
        """Return config keys with the models that the model's parts chose, by name or, for code in
        the config, as that code; see `ModelSpec.pinned_keys`.
        """
        keys: dict[str, Any] = {}
        for slot, part in self.parts_by_slot(*MODEL_SLOTS).items():
            if part.declaration.has("pinned_keys"):
                request = request_for_slot(slot, self.model_request, self.unclaimed)
                keys |= part.ask("pinned_keys", request, returns=_config_keys)
        return keys

    def config_to_repeat(self) -> dict[str, Any]:
        """Return the config with which a lookup with these pins repeats the choices: the keys that
        differ from their defaults, and the keys in which the parts name the models that they chose.
        """
        config = self.config.given | self.pinned_keys()
        if self.critic is not None:
            config["critic"] = self.critic.config_to_repeat()
        return config

    @cached_property
    def inner_nets(self) -> list[Part]:
        """The models that the model's parts chose for parts of the observation."""
        assert self.request.catalog is not None
        registry = self.request.catalog.registry
        nets = []
        for choices in self.pinned_keys().values():
            for choice in choices.values():
                is_code = not isinstance(choice, str)
                net = in_process("model", choice) if is_code else registry.get("model", choice)
                nets.append(net)
        return nets

    @property
    def parts_beside_slots(self) -> list[Part]:
        """The parts that read config keys but fill no slot."""
        return [*self.env_wrappers, *self.inner_nets]

    @cached_property
    def new_filter(self) -> Filter | None:
        """A filter without statistics, which shows what the policy's filter changes."""
        part = self.choices["filter"].part
        return make_filter(part, self.preprocessor, self.config, self.unclaimed, self.hidden_paths)

    @cached_property
    def encoded_space(self) -> Any:
        """The space of encoded and filtered observations, which models are built with."""
        if self.new_filter is None:
            return self.preprocessor.observation_space
        return self.new_filter.processed_space(self.preprocessor)

    @property
    def model_views(self) -> list[tuple[str, tuple[int, ...], str]]:
        """Return the entries of a model's input, each with its name, shape (without the batch axis)
        and dtype.
        """
        return model_views(self.model_preprocessor, self.encoded_space.dtype)

    def sees(self, leaf: Leaf) -> bool:
        """Return whether the model sees a leaf of the observation."""
        if self.visible is None:
            return True
        return any(start <= leaf.start < stop for start, stop in self.visible.columns)

    def leaf_scalings(self, leaves: Sequence[Leaf]) -> list[str]:
        """Return what the net does to the integers in each leaf; empty texts if it reads the
        leaves as they are.
        """
        if not self._scales_integers(self.part("trunk")):
            return ["" for _ in leaves]
        texts = describe_scalings(self.encoded_space, leaves)
        # The trunk may have chosen nets for the images. One that ignores the key, such as one with
        # a given `image_scale`, scales them in another way, so their texts are empty.
        nets_for_images = []
        for part in self.parts_beside_slots:
            if self._reads(part, "image_layout"):
                nets_for_images.append(part)
        if all("scale_integers" not in self._ignored_by(part) for part in nets_for_images):
            return texts
        for index, leaf in enumerate(leaves):
            if leaf.path in self.image_layouts:
                texts[index] = ""
        return texts

    def _scales_integers(self, trunk: Part) -> bool:
        """Return whether `scale_integers` is on and has an effect on a trunk."""
        if not self.config["scale_integers"] or not self._reads(trunk, "scale_integers"):
            return False
        return "scale_integers" not in self._ignored_by(trunk)

    def _reads(self, part: Part, key: str) -> bool:
        return key in self.config_keys(part)

    @cached_property
    def image_layouts(self) -> dict[str, ImageLayout]:
        """Path → layout of each image that a net reads by its layout."""
        readers = (*self._parts_of_side(), *self.parts_beside_slots)
        if not any(self._reads(part, "image_layout") for part in readers):
            return {}
        key = self.config["image_layout"]
        request = request_for_slot("trunk", self.model_request, self.unclaimed)
        return {info.path: read_layout(info.shape or (), key) for info in request.images}

    def _ignored_by(self, part: Part) -> Mapping[str, str]:
        """Return the keys that have no effect on a part here → what they need."""
        if part.declaration.ignores is None:
            return {}
        return part.ask("ignores", self.model_request, returns=_config_keys)


def _keys_of_policy(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return config keys without those about a critic, or about the parts of both sides."""
    kept = {key: value for key, value in keys.items() if key not in ("critic", "freeze_parts")}
    if keys.get("obs_groups"):
        groups = keys["obs_groups"]
        kept["obs_groups"] = {name: paths for name, paths in groups.items() if name != "critic"}
    return kept


def _is_set(value: Any) -> bool:
    """Return whether a config value asks for something: not None and not an empty list or name.

    A user's module is not asked for its truth value, which `torch.compile` modules refuse to give.
    """
    if isinstance(value, list | tuple | str):
        return len(value) > 0
    return value is not None


def request_of_model(
    request: Request, config: FlatConfig, visible: VisibleObservation | None, has_critic: bool
) -> Request:
    """Return a request as the parts of a model see it.

    Args:
        request: The request about the whole observation.
        config: The config of this side of the model.
        visible: The part of the observation that it sees, or None.
        has_critic: Whether a critic estimates the values, so that the model does not.
    """
    if has_critic:
        request = request.replace(config=policy_side(config).read_only())
    if visible is not None:
        request = visible.request(request)
    return request


def critic_stages(parts: Iterable[Part | None], request: Request, is_complete: bool) -> list[Stage]:
    """Return the stages of a critic, with its value.

    Args:
        parts: The parts of the critic's slots.
        request: The request as the critic sees it.
        is_complete: Whether the critic is a complete model, which computes the value itself.
    """
    stages = model_stages(parts, request, num_outputs=1 if is_complete else None)
    width = _width_after(stages)
    if not is_complete:
        # A width that is known only after building is a lower bound here.
        weights = (width or 0) + 1
        stages.append(Stage("value", (), weights, whole=width is not None))
    return [replace(stage, name=f"critic, {stage.name}") for stage in stages]


def model_stages(
    parts: Iterable[Part | None],
    request: Request,
    num_outputs: int | None,
    unclaimed: VisibleObservation | None = None,
) -> list[Stage]:
    """Return the stages of a model, from the inside out; raise an error for a config that cannot be
    built.

    Args:
        parts: The parts of the model's slots.
        request: The request.
        num_outputs: Width of the outermost part's output, or None for a trunk.
        unclaimed: The part of the observation that a head leaves to the other parts.
    """
    filled = [part for part in parts if part is not None]
    is_value_apart = _has_separate_value(filled, request, num_outputs)
    moved_layers = _layers_after_memory(filled, request)
    # With a separate value, or with layers after the memory, and no head, no part has the last
    # layers, so the model adds them.
    is_apart = is_value_apart or bool(moved_layers)
    adds_last_layers = is_apart and num_outputs is not None and filled[-1].slot != "head"
    stages: list[Stage] = []
    # The value's copies of the trunk and the memory.
    value_stages: list[Stage] = []
    width: int | None = None
    value_width: int | None = None
    for part in filled:
        if part.slot == "head":
            stages += value_stages
        part_outputs = None
        if part is filled[-1] and not adds_last_layers:
            part_outputs = num_outputs
        part_request = request_for_slot(part.slot, request, unclaimed)
        part_request = part_request.replace(num_outputs=part_outputs, trunk_width=width)
        whole_request = part_request
        if part.slot == "trunk" and moved_layers:
            keys = without_dense_layers(part.dense_layers)
            part_request = part_request.replace(config={**part_request.config, **keys})
        part_stages = _stages_of(part, part_request)
        if part.slot == "memory" and moved_layers:
            width = _width_after(part_stages)
            part_stages += _stages_after_memory(part, moved_layers, width)
        stages += part_stages
        width = _width_after(part_stages)
        if is_value_apart and _is_copied_for_value(part, request):
            if moved_layers and request.config["vf_memory"] == "none":
                # The value has a whole trunk, because it has no memory before the dense layers.
                part_stages = _stages_of(part, whole_request)
            value_stages += [replace(stage, name=f"value, {stage.name}") for stage in part_stages]
            value_width = _width_after(part_stages)
    if adds_last_layers:
        # A width that is known only after building counts as 1, and `whole` says that there may be
        # more weights.
        last_layers = plan_dense_layers(
            request.config, num_inputs=width or 1, hidden=[], num_outputs=num_outputs
        )
        *values, logits = last_layers.stages()  # beside a critic, there is no value
        stages += value_stages
        if not is_value_apart:
            value_width = width
        for value in values:
            value_weights = (value_width or 0) + 1  # a weight for each input, and the bias
            stages.append(replace(value, weights=value_weights, whole=value_width is not None))
        stages.append(replace(logits, whole=width is not None))
    return stages


def _layers_after_memory(parts: Sequence[Part], request: Request) -> list[DenseSpec]:
    """Return the trunk's dense layers that follow the memory, because of `memory_first`."""
    has_memory = any(part.slot == "memory" for part in parts)
    if not has_memory or not request.config["memory_first"]:
        return []
    return dense_layers(parts[0].dense_layers, request.config)


def _stages_after_memory(memory: Part, layers: list[DenseSpec], width: int | None) -> list[Stage]:
    """Return the stages of the dense layers after a memory.

    Args:
        memory: The memory.
        layers: The layers.
        width: The width of the memory's output; None if it is known only after building.
    """
    first, *others = DensePlan.of_trunk(width or 1, layers).stages()
    stages = [replace(first, whole=width is not None), *others]
    return [replace(stage, name=f"{memory.name}: {stage.name}") for stage in stages]


def _has_separate_value(parts: Sequence[Part], request: Request, num_outputs: int | None) -> bool:
    """Return whether the value has a trunk, and perhaps a memory, that the policy does not share.

    A trunk alone builds the layers of its value itself, and a trunk without outputs has no value.
    """
    if num_outputs is None or request.config["vf_share_layers"]:
        return False
    return any(part.slot != "trunk" for part in parts)


def _is_copied_for_value(part: Part, request: Request) -> bool:
    if part.slot == "memory":
        has_value_memory: bool = request.config["vf_memory"] != "none"
        return has_value_memory
    return part.slot == "trunk"


def request_for_slot(slot: str, request: Request, unclaimed: VisibleObservation | None) -> Request:
    """Return the request as one of the model's slots sees it: the head sees the whole observation,
    the others what the head leaves to them.
    """
    if unclaimed is None or slot == "head":
        return request
    return unclaimed.request(request)


def _stages_of(part: Part, request: Request) -> list[Stage]:
    """Return what a part of a model says of its stages, with the part's name before their names."""
    if part.declaration.has("describe"):
        stages = part.ask("describe", request, returns=_stages)
    elif request.num_outputs is None:
        stages = [Stage("output", shape=None)]
    else:
        stages = [Stage("output", shape=(request.num_outputs,))]
    return [replace(stage, name=f"{part.name}: {stage.name}") for stage in stages]


def _width_after(stages: Sequence[Stage]) -> int | None:
    """Return the width of the last stage's output; None if it is known only after building."""
    if not stages or not stages[-1].shape:
        return None
    return stages[-1].shape[-1]


def _stages(answer: Any) -> list[Stage]:
    """Check the result of a plugin's `describe` function, and convert its numbers into ints."""
    is_list = isinstance(answer, list | tuple)
    if not is_list or not all(type(stage) is Stage for stage in answer):
        raise TypeError("a list of Stage was expected")
    stages = []
    for stage in answer:
        sizes = [*(stage.shape or ()), stage.weights or 0]
        are_sizes = all(isinstance(size, Integral) and int(size) >= 0 for size in sizes)
        if type(stage.name) is not str or not are_sizes:
            raise TypeError(
                f"a stage has a name, and integers or None for shape and weights; found {stage!r}"
            )
        shape = None
        if stage.shape is not None:
            shape = tuple(map(int, stage.shape))
        weights = None
        if stage.weights is not None:
            weights = int(stage.weights)
        stages.append(Stage(stage.name, shape, weights, bool(stage.whole)))
    return stages


def _config_keys(answer: Any) -> dict[str, Any]:
    is_mapping = isinstance(answer, Mapping)
    if not is_mapping or not all(type(key) is str for key in answer):
        raise TypeError("a dict of config keys was expected")
    return dict(answer)
