"""A pipeline's slots and their candidates: preprocessor, filter, trunk, memory, head, action
distribution.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rlcatalog import public_index
from rlcatalog.actions.masks import mask_entry
from rlcatalog.choice.in_process import Code, in_process
from rlcatalog.choice.selection import (
    KEYS,
    Choice,
    choose,
    chosen_before,
    keys_that_choose_one_slot,
)
from rlcatalog.errors import (
    ConfigError,
    NoMatchError,
    UnsupportedSpaceError,
)
from rlcatalog.observations.visible_observation import VisibleObservation
from rlcatalog.plugins import ActionDistSpec, Part, Request
from rlcatalog.plugins.registry import Registry
from rlcatalog.spaces import SpaceInfo

if TYPE_CHECKING:
    from rlcatalog.choice.resolution import PartAddresses

#: Slots of the model, from the inside out.
MODEL_SLOTS = ("trunk", "memory", "head")


class IndexEntry(NamedTuple):
    """What the public index knows of a slot that is chosen by the kind of a space.

    Attributes:
        title: Name of the slot's parts in messages.
        kind: The kind of the index's entries for spaces.
    """

    title: str
    kind: str


_INDEX_ENTRIES = {
    "preprocessor": IndexEntry("preprocessor", "space"),
    "action_dist": IndexEntry("action distribution", "action_space"),
}


class ModelChoices(NamedTuple):
    """The choices for the slots of a model.

    Attributes:
        choices: Slot → choice, from the inside out.
        unclaimed: The part of the observation that the head leaves to the trunk and memory; None if
            it leaves the whole observation.
    """

    choices: Mapping[str, Choice]
    unclaimed: VisibleObservation | None

    @property
    def parts(self) -> dict[str, Part | None]:
        """Slot → the chosen part, or None."""
        return {slot: choice.part for slot, choice in self.choices.items()}


class Slots:
    """Choice of a part for each slot.

    Args:
        registry: The parts; if they change, create new Slots.
        prefer: Distributions whose parts count as listed and win ties.
    """

    def __init__(self, registry: Registry, prefer: Sequence[str]) -> None:
        self.registry = registry
        self.prefer = prefer
        self._parts: dict[str, list[Part]] = {}
        for part in registry:
            self._parts.setdefault(part.slot, []).append(part)
        #: Classes of a space → the preprocessors that can fit it.
        self._codecs: dict[tuple[str, ...], list[Part]] = {}
        #: Installed distributions that failed to load. Other plugins do not replace their parts.
        self._failed: set[str] = set()
        for record in registry.records:
            if record.status in ("failed", "incompatible"):
                self._failed.add(record.distribution)

    # --- parts by name ----------------------------------------------------------------------------

    def named(self, kind: str, value: str | Code | None) -> Part | None:
        """Return the part for a name or class from a config; None for None."""
        if value is None:
            return None
        if isinstance(value, str):
            return self.registry.get(kind, value)
        return in_process(kind, value)

    def named_memory(self, value: str | Code | None) -> Part | None:
        """Return the part for the value of the config key `memory`; None for None.

        Raises:
            ConfigError: It is the name of a trunk or a head.
        """
        if not isinstance(value, str):
            return self.named("memory", value)
        part = self.registry.get("model", value)
        if part.slot != "memory":
            memories = sorted(other.name for other in self._parts.get("memory", ()))
            raise ConfigError(
                f"memory={value!r} names a {part.slot} ({part.provider}); expected a memory: the"
                f" class of a recurrent layer, or one of {', '.join(memories)}. To use this"
                f" {part.slot}, set custom_model={value!r}."
            )
        return part

    def repeat(self, slot: str, name: str) -> Choice:
        """Return the choice of an earlier lookup, without asking the candidates."""
        kind = "model" if slot in MODEL_SLOTS else slot
        part = self.registry.get(kind, name)
        verdict = chosen_before(part)
        return Choice(part, verdict.match.why, (verdict,))

    # --- one slot after another -------------------------------------------------------------------

    def env_wrappers(self, config: Mapping[str, Any]) -> list[Part]:
        """Return the candidate wrappers for an environment: registered, listed, and switched-on
        ones.
        """
        wrappers = []
        for part in self._parts.get("env_wrapper", ()):
            is_listed = part.is_indexed or part.distribution in self.prefer
            if part.in_process or is_listed or part.declaration.is_on(config):
                wrappers.append(part)
        return wrappers

    def choose_preprocessor(self, request: Request, pins: PartAddresses | None = None) -> Choice:
        """Choose the preprocessor for an observation, or for a space inside it.

        Args:
            request: The request, whose `obs` is the space.
            pins: Addresses of the parts of an earlier lookup, which this lookup repeats.
        """
        info = request.obs
        if pins is not None and info.path in pins.preprocessors:
            return self.repeat("preprocessor", pins.preprocessors[info.path])
        if info.path == "obs":
            named = self.named("preprocessor", request.config.get("custom_preprocessor"))
            candidates = self._parts.get("preprocessor", [])
        else:
            named = None
            # explain() shows no candidates for children, so codecs for other classes are not asked.
            candidates = self._codecs_of_child(info)
        choice = self._choose(
            "preprocessor", request, named, candidates, named_by="custom_preprocessor"
        )
        if choice.part is None:
            raise self._no_preprocessor(request)
        return choice

    def _no_preprocessor(self, request: Request) -> UnsupportedSpaceError:
        """Return the error for a space without a preprocessor; if a leaf of it causes the error,
        raise that leaf's.
        """
        info = request.obs
        for leaf in info.walk():
            if leaf is not info and not leaf.children:
                # Raises an error if this leaf is the cause.
                self.choose_preprocessor(request.replace(obs=leaf))
        self._refuse_missing("preprocessor", request)
        installed = [part.name for part in self.registry.active("preprocessor")]
        return UnsupportedSpaceError(
            f"{info.path}: no installed preprocessor supports"
            f" {info.describe()}.{self._similar_kinds(info)} Installed:"
            f" {', '.join(installed) or 'none'}."
            " Wrap the environment to change the space, or install a plugin that declares a"
            " codec for it."
        )

    def _similar_kinds(self, info: SpaceInfo) -> str:
        """Return a hint if codecs are declared for a class of the same name in another
        (non-Gymnasium) module.
        """
        module, _, name = info.kind.rpartition(".")
        if not module:
            return ""
        hint = f" Its kind is {info.kind!r}"
        for codec in self.registry.active("preprocessor"):
            for kind in codec.declaration.kinds:
                _, _, kind_name = kind.rpartition(".")
                if kind_name == name:
                    hint += f"; {codec.name} is for {kind!r}"
        return f"{hint}."

    def _codecs_of_child(self, info: SpaceInfo) -> list[Part]:
        """Return the preprocessors that can fit a space inside another one.

        They are kept by the space's classes, because a space has many similar children.
        """
        codecs = self._codecs.get(info.classes)
        if codecs is None:
            parts = self._parts.get("preprocessor", ())
            codecs = [part for part in parts if _can_fit_child(part, info)]
            self._codecs[info.classes] = codecs
        return codecs

    def choose_filter(self, request: Request, pins: PartAddresses | None = None) -> Choice:
        """Choose the observation filter; `pins` are the choices of an earlier lookup to repeat."""
        if pins is not None and "filter" in pins.by_slot:
            return self.repeat("filter", pins.by_slot["filter"])
        name = request.config["observation_filter"]
        if name == "NoFilter":
            return Choice(part=None, why="observation_filter is 'NoFilter'")
        named = self.registry.get("filter", name)
        return choose("filter", self._parts.get("filter", ()), request, named=named)

    def choose_action_dist(
        self, request: Request, named: Part | None, outer: Part | None = None
    ) -> Choice:
        """Choose a distribution; never `outer`, which wraps the chosen one."""
        candidates = [part for part in self._parts.get("action_dist", ()) if part is not outer]
        named_by: str | None = "custom_action_dist"
        if named is not None and _wraps_another(named):
            named_by = None  # a switch may select the distribution inside it
        choice = self._choose("action_dist", request, named, candidates, named_by)
        if choice.part is None:
            self._refuse_missing("action_dist", request)
            info = request.space_for("action_dist")
            why = choice.reasons("none is installed")
            raise UnsupportedSpaceError(
                f"{info.path}: no installed distribution supports {info.describe()} ({why})."
            )
        return choice

    def choose_model(
        self,
        request: Request,
        custom: Part | None,
        pins: PartAddresses | None = None,
        memory: Part | None = None,
    ) -> ModelChoices:
        """Choose the model's parts: first the head, which may leave only part of the
        observation to the others.

        Args:
            request: The request.
            custom: The part that `custom_model` names.
            pins: Addresses of the parts of an earlier lookup, which this lookup repeats.
            memory: The part that `memory` names.

        Raises:
            AmbiguousChoiceError: Two keys choose the memory.
        """
        named = self._named_parts(request, custom, memory)
        head = self._model_part("head", request, named, pins)
        unclaimed = unclaimed_by(head.part, request)
        inner_request = request
        if unclaimed is not None:
            inner_request = unclaimed.request(request)
        choices = self._trunk_and_memory(inner_request, named, pins)
        return ModelChoices({**choices, "head": head}, unclaimed)

    def choose_critic(
        self,
        request: Request,
        custom: Part | None,
        pins: PartAddresses | None = None,
        memory: Part | None = None,
    ) -> ModelChoices:
        """Choose the parts of a critic of its own: a trunk, and perhaps a memory.

        Args:
            request: The request, with the critic's config.
            custom: The part that the critic's `custom_model` names.
            pins: Addresses of the critic's parts of an earlier lookup, which this lookup repeats.
            memory: The part that the critic's `memory` names.

        Raises:
            ConfigError: `custom_model` names a head.
            AmbiguousChoiceError: Two keys choose the memory.
        """
        if custom is not None and custom.slot == "head":
            raise ConfigError(
                f"critic: custom_model={custom.name!r} is a head, which computes outputs for"
                " actions. A critic has a trunk and a memory: name one of these."
            )
        named = self._named_parts(request, custom, memory)
        choices = self._trunk_and_memory(request, named, pins)
        no_head = Choice(part=None, why="a critic has no head")
        return ModelChoices({**choices, "head": no_head}, unclaimed=None)

    def _named_parts(
        self, request: Request, custom: Part | None, memory: Part | None
    ) -> dict[str, Part]:
        """Return slot → the part that `custom_model` or `memory` names.

        Raises:
            AmbiguousChoiceError: Two keys choose the memory.
        """
        named = {}
        if custom is not None:
            named[custom.slot] = custom
        if memory is not None:
            if "memory" in named:  # by custom_model
                raise keys_that_choose_one_slot("memory", ["memory", "custom_model"], request)
            named["memory"] = memory
        return named

    def _trunk_and_memory(
        self, request: Request, named: Mapping[str, Part], pins: PartAddresses | None
    ) -> dict[str, Choice]:
        """Choose a trunk and a memory; see `choose_model`.

        Args:
            request: The request, about what they see.
            named: Slot → the part that the config names.
            pins: See `choose_model`.
        """
        trunk = self._model_part("trunk", request, named, pins)
        memory = self._model_part("memory", request, named, pins)
        if trunk.part is None:
            provider = public_index.provider_of("model", "fallback")
            self.registry.explain_missing("the default model", provider)
            space = request.obs.describe()
            raise NoMatchError(f"No installed model fits {space} ({trunk.reasons()}).")
        return {"trunk": trunk, "memory": memory}

    def _model_part(
        self, slot: str, request: Request, named: Mapping[str, Part], pins: PartAddresses | None
    ) -> Choice:
        """Choose the part of one of the model's slots; see `choose_model`."""
        if pins is not None and slot in pins.by_slot:
            # The saved policy's part, even if the config's name now means another one.
            return self.repeat(slot, pins.by_slot[slot])
        named_part = named.get(slot)
        if pins is not None and named_part is None:
            return Choice(part=None, why="empty when the policy was saved")
        named_by = KEYS[slot]
        if slot == "memory" and request.config.get("memory") is None:
            named_by = "custom_model"
        return self._choose(slot, request, named_part, self._parts.get(slot, ()), named_by)

    def choose_trunk(self, request: Request, name: str | Code | None) -> Part:
        """Choose the trunk for a part of an observation; see `Catalog.trunk`."""
        named = self.named("model", name)
        choice = self._choose("trunk", request, named, self._parts.get("trunk", ()))
        if choice.part is None:
            info = request.obs
            raise NoMatchError(
                f"{info.path}: no installed model fits {info.describe()} ({choice.reasons()})."
            )
        return choice.part

    # --- packages that cannot be used -------------------------------------------------------------

    def _choose(
        self,
        slot: str,
        request: Request,
        named: Part | None,
        candidates: Iterable[Part],
        named_by: str | None = None,
    ) -> Choice:
        """Choose a part for a slot, unless an unusable package also has candidates for it; see
        `choose`.
        """
        if named is None and self._failed:
            self._refuse_missing(slot, request, among=self._failed)
        return choose(slot, candidates, request, named=named, named_by=named_by, prefer=self.prefer)

    def _refuse_missing(
        self, slot: str, request: Request, among: Collection[str] | None = None
    ) -> None:
        """Raise an error if the public index has a part for a slot whose package cannot be used.

        Args:
            slot: The slot.
            request: The request, whose space such a part would serve.
            among: The packages to consider; None considers all.
        """
        info = request.space_for(slot)
        owners = []
        if slot in MODEL_SLOTS:
            what = f"the {slot}"
            if info.path != "obs":  # a part of the observation
                what = f"{info.path}: the {slot}"
            # The index lists models by the rank of their input, and under "composite" the models
            # for structured observations.
            if request.encoded_shape is not None:
                rank = len(request.encoded_shape)
                owners.append(public_index.provider_of(slot, str(rank)))
            if info.is_composite:
                owners.append(public_index.provider_of(slot, "composite"))
        else:
            entry = _INDEX_ENTRIES.get(slot, IndexEntry(slot, slot))
            what = f"{info.path}: the {entry.title} for {info.describe()}"
            owners.append(public_index.provider_of(entry.kind, info.kind))
        for owner in owners:
            if among is None or owner in among:
                self.registry.explain_missing(what, owner)  # raises an error if it is not loaded


def _wraps_another(dist: Part) -> bool:
    declaration = dist.declaration
    return isinstance(declaration, ActionDistSpec) and declaration.wraps_default


def _can_fit_child(codec: Part, child: SpaceInfo) -> bool:
    """Return whether a codec can be chosen for a child without being named: a name in the config is
    for the whole observation.
    """
    spec = codec.declaration
    if spec.kinds:
        return child.distance(spec.kinds) is not None
    return spec.match is not None or bool(spec.switch)


def unclaimed_by(head: Part | None, request: Request) -> VisibleObservation | None:
    """Return the part of an observation that a head leaves to the trunk, or None if it leaves the
    whole observation.
    """
    if head is None or not head.declaration.has("claims"):
        return None
    claimed = head.ask("claims", request, returns=_claimed_keys)
    # Even a head without claims changes an observation of one entry and a mask: the trunk then
    # sees the entry without the Dict around it.
    if not claimed and not _has_one_entry_beside_mask(request):
        return None
    if request.preprocessor is None:
        raise UnsupportedSpaceError(
            f"{request.obs.path}: {head.name} reads parts of encoded observations, so it needs"
            " their preprocessor: pass"
            " ModelCatalog.get_preprocessor_for_space(space).observation_space."
        )
    hidden = [(key,) for key in claimed]
    return VisibleObservation(request.preprocessor, hidden, head.name)


def _has_one_entry_beside_mask(request: Request) -> bool:
    """Return whether a Dict observation has a single entry beside its mask.

    The mask is not encoded, but makes the observation a Dict. The single entry is then passed
    without the Dict.
    """
    if request.mask_key is None or mask_entry(request.obs, request.mask_key) is not None:
        return False
    return len(request.obs.keys) == 1


def _claimed_keys(answer: Any) -> tuple[str, ...]:
    is_list = isinstance(answer, list | tuple)
    if not is_list or not all(type(key) is str for key in answer):
        raise TypeError("a list of observation keys was expected")
    return tuple(answer)
