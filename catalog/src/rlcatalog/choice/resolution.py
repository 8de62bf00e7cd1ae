"""Result of a lookup before a model is built, with the names of its parts and the stages of
its model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from numbers import Integral
from typing import Any

from rlcatalog.actions.masks import mask_entry
from rlcatalog.choice.action_ranges import ActionRange, action_ranges
from rlcatalog.choice.dist_plan import DistPlan
from rlcatalog.choice.selection import Choice
from rlcatalog.choice.slots import MODEL_SLOTS, slot_of
from rlcatalog.config.flat import FlatConfig
from rlcatalog.config.kernel_keys import (
    IDLE_WITH_MEMORY,
    READ_BESIDE,
    READ_BY_KERNEL,
    READ_WITH_MEMORY,
)
from rlcatalog.models import output_plan
from rlcatalog.observations import Filter, Leaf, Preprocessor
from rlcatalog.observations.filter import make_filter
from rlcatalog.observations.scaling import describe_scalings
from rlcatalog.observations.structure import model_views
from rlcatalog.observations.trunk_observation import TrunkObservation
from rlcatalog.plugins import Part, Request, Stage
from rlcatalog.plugins.registry import Registry
from rlcatalog.spaces import ImageLayout, SpaceInfo, read_layout


@dataclass(frozen=True)
class Pins:
    """Addresses of the chosen parts, each in the form `"distribution/name"`.

    Attributes:
        parts: Slot → address. An empty slot is omitted and stays empty.
        preprocessors: Path → address, for the codecs of an observation space and its subspaces.
        action_dists: Place → address, for the distributions of an action space and its subspaces.
        versions: Distribution → its version at the time of the choice.
    """

    parts: Mapping[str, str] = field(default_factory=dict)
    preprocessors: Mapping[str, str] = field(default_factory=dict)
    action_dists: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, resolution: Resolution) -> Pins:
        """Return the addresses of all parts that a lookup chose."""
        models = resolution.parts_by_slot("filter", *MODEL_SLOTS)
        preprocessors = dict(resolution.preprocessor.parts())
        action_dists = {node.place: node.part for node in resolution.dists.walk()}
        everything = [*models.values(), *preprocessors.values(), *action_dists.values()]
        versions = {c.distribution: c.version for c in everything if c.distribution}
        named = [
            {place: c.address for place, c in chosen.items()}
            for chosen in (models, preprocessors, action_dists)
        ]
        return cls(named[0], named[1], named[2], dict(sorted(versions.items())))

    def as_dict(self) -> dict[str, dict[str, str]]:
        """Return the pins as plain data; `Pins(**data)` restores them."""
        return asdict(self)

    def check(self, registry: Registry) -> None:
        """Check that each part is available.

        Raises:
            MissingPluginError: A part's package is missing, is disabled, or failed to load.
            UnknownNameError: The package has no such part.
        """
        for slot, name in self.parts.items():
            registry.get("model" if slot in MODEL_SLOTS else slot, name)
        for kind, names in (
            ("preprocessor", self.preprocessors),
            ("action_dist", self.action_dists),
        ):
            for name in names.values():
                registry.get(kind, name)


@dataclass(frozen=True)
class Resolution:
    """All choices of one lookup.

    Attributes:
        request: The complete request.
        config: The parsed model config.
        framework: `"torch"` or `"tf"`.
        choices: Slot → choice, for `preprocessor`, `filter`, `trunk`, `memory`, `head` and
            `action_dist`.
        preprocessor: A preprocessor for the observation space, which defines the shapes.
        dists: The distributions for the action space and its subspaces.
        layers: The stages of the model.
        pins: The earlier choices that the lookup repeated, or None for a new choice.
        mask_key: Key, or path of keys, of the action mask in Dict observations, or None.
        unclaimed: The part of the observation that the head leaves to the trunk and memory; None if
            it leaves the whole observation.
        env_wrappers: The candidate wrappers for the environment, which read config keys.
        mask_steps: The keys that lead to the action mask.
        unused_masks: Paths of entries that are named like an action mask, if the lookup uses none.
    """

    request: Request
    config: FlatConfig
    framework: str
    choices: dict[str, Choice]
    preprocessor: Preprocessor
    dists: DistPlan
    layers: tuple[Stage, ...]
    pins: Pins | None = None
    mask_key: str | None = None
    unclaimed: TrunkObservation | None = None
    env_wrappers: Sequence[Part] = ()
    mask_steps: tuple[str, ...] = ()
    unused_masks: tuple[str, ...] = ()

    @property
    def shows_mask(self) -> bool:
        """Whether the model sees the action mask."""
        return self.mask_key is not None and mask_entry(self.request.obs, self.mask_key) is not None

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
        parts = self.parts_by_slot("preprocessor", "filter").items()
        return (
            Stage("observation", self.request.obs.shape, 0),
            *(Stage(f"{slot}: {part.name}", self.preprocessor.shape, 0) for slot, part in parts),
            *self.layers,
            Stage(f"{self.dists.part.name}: inputs", (self.num_outputs,), 0),
            Stage("action", self.action.shape, 0),
        )

    @property
    def model_parts(self) -> tuple[str, ...]:
        """The names of the model's parts, from the inside out."""
        return tuple(part.name for part in self.parts_by_slot(*MODEL_SLOTS).values())

    @cached_property
    def unread(self) -> dict[str, str]:
        """The config keys that differ from their defaults but that nothing reads: key → condition
        for it to be read.

        Keys are in the config's order. The condition is empty if no chosen part has the key. A
        registered class without `config` and `reads`, such as RLlib's custom classes, is assumed to
        read all keys.
        """
        # The choice itself reads a switch that is off, because the part is not chosen.
        switches = {part.switch for choice in self.choices.values() for part, _ in choice.verdicts}
        asked = {
            key: value for key, value in self.config.given.items() if key in self.config.explicit
        }
        given = [key for key, value in asked.items() if key not in switches or value]
        read, idle = READ_BY_KERNEL, {}
        if self.choices["memory"].part is not None:
            read, idle = read | READ_WITH_MEMORY, IDLE_WITH_MEMORY
        elif not self.part("trunk").is_indexed:  # it may have a separate state
            read |= {"max_seq_len"}
        left = {key: "" for key in given if key not in read}
        for part in (*self.parts(), *self.beside) if given else ():
            if part.undeclared:
                return {}
            ignored = self._ignored_by(part)
            for key in left.keys() & set(self.config_keys(part)):
                if key in ignored:
                    left[key] = ignored[key]
                else:
                    del left[key]
        for key, others in READ_BESIDE.items():
            if key in given and not any(self.request.config[other] for other in others):
                left[key] = " or ".join(others)
        left |= {key: idle[key] for key in given if key in idle}
        return {key: left[key] for key in given if key in left}

    @cached_property
    def action_ranges(self) -> tuple[ActionRange, ...]:
        """How the values of each Box action are reached from raw values."""
        return tuple(action_ranges(self.dists, self.config.read_only()))

    def parts(self) -> Iterator[Part]:
        """Yield all chosen parts, including the ones for subspaces."""
        yield from self.parts_by_slot().values()
        yield from (part for _, part in self.preprocessor.parts())
        yield from (node.part for node in self.dists.walk())

    def pinned_keys(self) -> dict[str, Any]:
        """Return config keys with the models that the model's parts chose; see
        `ModelSpec.pinned_keys`.
        """
        keys: dict[str, Any] = {}
        for slot, part in self.parts_by_slot(*MODEL_SLOTS).items():
            if getattr(part.declaration, "pinned_keys", None) is not None:
                inner = self.unclaimed is not None and slot != "head"
                request = self.unclaimed.request(self.request) if inner else self.request  # type: ignore[union-attr]
                keys |= part.ask("pinned_keys", request, returns=_config_keys)
        return keys

    @cached_property
    def inner_nets(self) -> list[Part]:
        """The models that the model's parts chose for parts of the observation."""
        assert self.request.catalog is not None
        registry = self.request.catalog.registry
        nets = []
        for names in self.pinned_keys().values():
            nets += [registry.get("model", name) for name in names.values()]
        return nets

    @property
    def beside(self) -> list[Part]:
        """The parts that read config keys but fill no slot."""
        return [*self.env_wrappers, *self.inner_nets]

    @cached_property
    def new_filter(self) -> Filter | None:
        """A filter without statistics, which shows what the policy's filter changes."""
        part = self.choices["filter"].part
        return make_filter(part, self.preprocessor, self.config, self.unclaimed)

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
        return model_views(self.preprocessor, self.encoded_space.dtype)

    def leaf_scalings(self, leaves: Sequence[Leaf]) -> list[str]:
        """Return what the net does to the integers in each leaf; empty texts if it reads the
        leaves as they are.
        """
        trunk = self.part("trunk")
        is_idle = not self.config["scale_integers"] or "scale_integers" in self._ignored_by(trunk)
        if is_idle or "scale_integers" not in self.config_keys(trunk):
            return ["" for _ in leaves]
        texts = describe_scalings(self.encoded_space, leaves)
        # Nets for parts of the observation: one for images may have a factor of its own.
        readers = [part for part in self.beside if "image_layout" in self.config_keys(part)]
        if any("scale_integers" in self._ignored_by(part) for part in readers):
            pairs = zip(leaves, texts, strict=True)
            texts = ["" if leaf.path in self.image_layouts else text for leaf, text in pairs]
        return texts

    @cached_property
    def image_layouts(self) -> dict[str, ImageLayout]:
        """Path → layout of each image that a net reads by its layout."""
        readers = (*self.parts(), *self.beside)
        if not any("image_layout" in self.config_keys(part) for part in readers):
            return {}
        given = self.config["image_layout"]
        inner = self.request if self.unclaimed is None else self.unclaimed.request(self.request)
        return {info.path: read_layout(info.shape or (), given) for info in inner.images}

    def _ignored_by(self, part: Part) -> Mapping[str, str]:
        """Return the keys that have no effect on a part here → what they need."""
        if part.declaration.ignores is None:
            return {}
        return part.ask("ignores", self.request, returns=_config_keys)


def model_stages(
    parts: Iterable[Part | None],
    request: Request,
    num_outputs: int | None,
    unclaimed: TrunkObservation | None = None,
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
    # The value may have a separate trunk and memory below the head.
    has_own_value = num_outputs is not None and any(slot_of(part) != "trunk" for part in filled)
    apart = has_own_value and not request.config["vf_share_layers"]
    stages: list[Stage] = []
    beside: list[Stage] = []
    width: int | None = None
    value_width: int | None = None
    for part in filled:
        slot = slot_of(part)
        stages += beside if slot == "head" else []
        outputs = num_outputs if part is filled[-1] and (slot == "head" or not apart) else None
        described = [Stage("output", (outputs,) if outputs is not None else None)]
        if getattr(part.declaration, "describe", None) is not None:
            asked = request if unclaimed is None or slot == "head" else unclaimed.request(request)
            described = part.ask(
                "describe", asked.replace(num_outputs=outputs, trunk_width=width), returns=_stages
            )
        own = [replace(stage, name=f"{part.name}: {stage.name}") for stage in described]
        stages += own
        shape = described[-1].shape if described else None
        width = shape[-1] if shape else None
        if (
            apart
            and slot != "head"
            and not (slot == "memory" and request.config["vf_memory"] == "none")
        ):
            beside += [replace(stage, name=f"value, {stage.name}") for stage in own]
            value_width = width
    if apart and slot_of(filled[-1]) != "head":
        value, logits = output_plan(request.config, width or 1, [], num_outputs).stages()
        value = replace(value, weights=(value_width or 0) + 1, whole=value_width is not None)
        stages += [*beside, value, replace(logits, whole=width is not None)]
    return stages


def _stages(answer: Any) -> list[Stage]:
    if not isinstance(answer, list | tuple) or not all(type(stage) is Stage for stage in answer):
        raise TypeError("a list of Stage was expected")
    stages = []
    for stage in answer:
        numbers = [*(stage.shape or ()), stage.weights or 0]
        if type(stage.name) is not str or not all(
            isinstance(n, Integral) and int(n) >= 0 for n in numbers
        ):
            raise TypeError(
                f"a stage has a name, and integers or None for shape and weights; found {stage!r}"
            )
        shape = None if stage.shape is None else tuple(map(int, stage.shape))
        weights = None if stage.weights is None else int(stage.weights)
        stages.append(Stage(stage.name, shape, weights, bool(stage.whole)))
    return stages


def _config_keys(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, Mapping) or not all(type(key) is str for key in answer):
        raise TypeError("a dict of config keys was expected")
    return dict(answer)
