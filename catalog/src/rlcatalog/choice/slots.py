"""A pipeline's slots and their candidates: preprocessor, filter, trunk, memory, head, action
distribution.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcatalog import public_index
from rlcatalog.actions.masks import mask_entry
from rlcatalog.choice.in_process import in_process
from rlcatalog.choice.selection import Choice, choose
from rlcatalog.errors import NoMatchError, UnsupportedSpaceError
from rlcatalog.observations.trunk_observation import TrunkObservation
from rlcatalog.plugins import Match, ModelSpec, Part, Request
from rlcatalog.plugins.registry import Registry
from rlcatalog.spaces import SpaceInfo

if TYPE_CHECKING:
    from rlcatalog.choice.resolution import Pins

#: Slots of the model, from the inside out.
MODEL_SLOTS = ("trunk", "memory", "head")

#: Slot → name of its parts in messages, and their kind of entry for spaces in the public index.
_INDEXED = {
    "preprocessor": ("preprocessor", "space"),
    "action_dist": ("action distribution", "action_space"),
}


class Slots:
    """Choice of a part for each slot.

    Args:
        registry: The parts; if they change, create new Slots.
        prefer: Distributions whose parts count as listed and win ties.
    """

    def __init__(self, registry: Registry, prefer: Sequence[str]) -> None:
        self.registry, self.prefer = registry, prefer
        self._parts: dict[str, list[Part]] = {}
        for part in registry:
            self._parts.setdefault(slot_of(part), []).append(part)
        self._known_takers: dict[tuple[str, ...], list[Part]] = {}
        #: Installed distributions that failed to load. Other plugins do not replace their parts.
        self._failed = {
            r.distribution for r in registry.records if r.status in ("failed", "incompatible")
        }

    def env_wrappers(self, config: Mapping[str, Any]) -> list[Part]:
        """Return the candidate wrappers for an environment: registered, listed, and switched-on
        ones.
        """
        return [
            c
            for c in self._parts.get("env_wrapper", ())
            if c.in_process
            or c.is_indexed
            or c.distribution in self.prefer
            or c.declaration.is_on(config)
        ]

    def named(self, kind: str, value: str | type | None) -> Part | None:
        """Return the part for a name or class from a config; None for None."""
        if isinstance(value, str):
            return self.registry.get(kind, value)
        return None if value is None else in_process(kind, value)

    def repeat(self, slot: str, name: str) -> Choice:
        """Return the choice of an earlier lookup, without asking the candidates."""
        part = self.registry.get("model" if slot in MODEL_SLOTS else slot, name)
        why = "chosen before, when the policy was saved or its run began"
        return Choice(part, why, ((part, Match(None, why)),))

    def _refuse_missing(
        self, slot: str, request: Request, among: Collection[str] | None = None
    ) -> None:
        """Raise an error if an indexed part for a slot has an unusable package; `among` limits
        the parts.
        """
        info = request.space_for(slot)
        if slot in MODEL_SLOTS:  # by the shape of its input, or by whether that has parts
            what = f"the {slot}" if info.path == "obs" else f"{info.path}: the {slot}"
            entries = (
                [] if request.encoded_shape is None else [(slot, str(len(request.encoded_shape)))]
            )
            entries += [(slot, "composite")] if info.is_composite else []
        else:
            label, kind = _INDEXED.get(slot, (slot, slot))
            what, entries = f"{info.path}: the {label} for {info.describe()}", [(kind, info.kind)]
        for owner in (public_index.provider_of(kind, name) for kind, name in entries):
            if among is None or owner in among:
                self.registry.explain_missing(what, owner)

    def _choose(
        self, slot: str, request: Request, named: Part | None, candidates: Iterable[Part]
    ) -> Choice:
        """Choose a part for a slot, unless an unusable package also has candidates for it."""
        if named is None and self._failed:
            self._refuse_missing(slot, request, self._failed)
        return choose(slot, candidates, request, named=named, prefer=self.prefer)

    def preprocessor(self, request: Request, pins: Pins | None) -> Choice:
        info = request.obs
        if pins is not None and info.path in pins.preprocessors:
            return self.repeat("preprocessor", pins.preprocessors[info.path])
        named = self.named(
            "preprocessor",
            request.config.get("custom_preprocessor") if info.path == "obs" else None,
        )
        # Only ask the codecs of the child's class, because explain() shows no candidates for
        # children.
        candidates = (
            self._takers(info) if info.path != "obs" else self._parts.get("preprocessor", [])
        )
        choice = self._choose("preprocessor", request, named, candidates)
        if choice.part is None:
            for leaf in info.walk():
                if leaf is not info and not leaf.children:
                    self.preprocessor(request.replace(obs=leaf), None)
            self._refuse_missing("preprocessor", request)
            raise UnsupportedSpaceError(
                f"{info.path}: no installed preprocessor supports"
                f" {info.describe()}.{self._nearly(info)} Installed:"
                f" {', '.join(c.name for c in self.registry.active('preprocessor')) or 'none'}."
                " Wrap the environment to change the space, or install a plugin that declares a"
                " codec for it."
            )
        return choice

    def _nearly(self, info: SpaceInfo) -> str:
        """Return a hint if codecs are declared for a class of the same name in another
        (non-Gymnasium) module.
        """
        module, _, name = info.kind.rpartition(".")
        if not module:
            return ""
        declared = [
            (c.name, kind)
            for c in self.registry.active("preprocessor")
            for kind in c.declaration.kinds
        ]
        near = [
            f"; {codec} is for {kind!r}"
            for codec, kind in declared
            if kind.rpartition(".")[2] == name
        ]
        return f" Its kind is {info.kind!r}{''.join(near)}."

    def _takers(self, info: SpaceInfo) -> list[Part]:
        """Return the preprocessors that can fit a space, cached by class, because a space has many
        similar children.
        """
        if info.classes not in self._known_takers:
            self._known_takers[info.classes] = [
                c for c in self._parts.get("preprocessor", ()) if _can_fit(c, info)
            ]
        return self._known_takers[info.classes]

    def filter(self, request: Request, pins: Pins | None) -> Choice:
        if pins is not None and "filter" in pins.parts:
            return self.repeat("filter", pins.parts["filter"])
        name = request.config["observation_filter"]
        if name == "NoFilter":
            return Choice(None, "observation_filter is 'NoFilter'")
        return choose(
            "filter",
            self._parts.get("filter", ()),
            request,
            named=self.registry.get("filter", name),
        )

    def action_dist(
        self, request: Request, named: Part | None, outer: Part | None = None
    ) -> Choice:
        candidates = [c for c in self._parts.get("action_dist", ()) if c is not outer]
        choice = self._choose("action_dist", request, named, candidates)
        if choice.part is None:
            self._refuse_missing("action_dist", request)
            info, why = request.space_for("action_dist"), choice.reasons("none is installed")
            raise UnsupportedSpaceError(
                f"{info.path}: no installed distribution supports {info.describe()} ({why})."
            )
        return choice

    def model(
        self, request: Request, custom: Part | None, pins: Pins | None
    ) -> tuple[dict[str, Choice], TrunkObservation | None]:
        """Choose the model's parts: first the head, which may leave only part of the
        observation to the others.
        """
        choices = {"head": self._model_part("head", request, custom, pins)}
        unclaimed = unclaimed_by(choices["head"].part, request)
        inner = request if unclaimed is None else unclaimed.request(request)
        choices = {
            slot: self._model_part(slot, inner, custom, pins) for slot in ("trunk", "memory")
        } | choices
        if choices["trunk"].part is None:
            provider = public_index.provider_of("model", "fallback")
            self.registry.explain_missing("the default model", provider)
            raise NoMatchError(
                f"No installed model fits {inner.obs.describe()} ({choices['trunk'].reasons()})."
            )
        return choices, unclaimed

    def _model_part(
        self, slot: str, request: Request, custom: Part | None, pins: Pins | None
    ) -> Choice:
        # Regardless of what the config's name means now.
        if pins is not None and slot in pins.parts:
            return self.repeat(slot, pins.parts[slot])
        named = custom if custom is not None and slot_of(custom) == slot else None
        if pins is not None and named is None:
            return Choice(None, "empty when the policy was saved")
        return self._choose(slot, request, named, self._parts.get(slot, ()))

    def trunk(self, request: Request, name: str | None) -> Part:
        """Choose the trunk for a part of an observation; see `Catalog.trunk`."""
        choice = self._choose(
            "trunk", request, self.named("model", name), self._parts.get("trunk", ())
        )
        if choice.part is None:
            path, space = request.obs.path, request.obs.describe()
            raise NoMatchError(f"{path}: no installed model fits {space} ({choice.reasons()}).")
        return choice.part


def _can_fit(codec: Part, child: SpaceInfo) -> bool:
    """Return whether a codec can be chosen for a child; a name in the config is for the whole
    observation.
    """
    spec = codec.declaration
    return child.distance(spec.kinds) is not None if spec.kinds else bool(spec.match or spec.switch)


def unclaimed_by(head: Part | None, request: Request) -> TrunkObservation | None:
    """Return the part of an observation that a head leaves to the trunk, or None if it leaves the
    whole observation.
    """
    if (
        head is None
        or not isinstance(head.declaration, ModelSpec)
        or head.declaration.claims is None
    ):
        return None
    claimed = head.ask("claims", request, returns=_claimed)
    # The mask is not encoded, but makes the observation a Dict: a single other entry is passed
    # without the Dict.
    hidden = request.mask_key is not None and mask_entry(request.obs, request.mask_key) is None
    alone = hidden and len(request.obs.keys) == 1
    if not claimed and not alone:
        return None
    if request.preprocessor is None:
        raise UnsupportedSpaceError(
            f"{request.obs.path}: {head.name} reads parts of encoded observations, so it needs"
            " their preprocessor: pass"
            " ModelCatalog.get_preprocessor_for_space(space).observation_space."
        )
    return TrunkObservation(request.preprocessor, claimed, head.name)


def slot_of(part: Part) -> str:
    """Return a part's slot: its declared slot for a model, otherwise its kind."""
    return part.declaration.slot if isinstance(part.declaration, ModelSpec) else part.kind


def _claimed(answer: Any) -> tuple[str, ...]:
    if not isinstance(answer, list | tuple) or not all(type(key) is str for key in answer):
        raise TypeError("a list of observation keys was expected")
    return tuple(answer)
