"""The result of a lookup before anything is built, and its explanation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any

from rlcatalog import provided
from rlcatalog.actions.masks import mask_entry
from rlcatalog.choice.action_plan import ActionPlan
from rlcatalog.choice.selection import Choice, Verdict
from rlcatalog.choice.showing import explanation_html, explanation_sheet
from rlcatalog.choice.slots import MODEL_SLOTS
from rlcatalog.choice.unread import unread_keys
from rlcatalog.config.kernel_keys import IDLE_WITH_MEMORY, READ_BY_KERNEL, READ_WITH_MEMORY
from rlcatalog.config.schema import ModelConfig
from rlcatalog.errors import MissingExtraError, MissingPluginError
from rlcatalog.models import output_plan
from rlcatalog.observations import Preprocessor
from rlcatalog.observations.filter import make_filter
from rlcatalog.observations.restoring import model_views
from rlcatalog.observations.unclaimed import Unclaimed
from rlcatalog.plugins import Component, ModelSpec, Request, Stage

if TYPE_CHECKING:
    from rlcatalog.choice.pins import Pins


@dataclass(frozen=True)
class Resolution:
    """Every choice of one lookup.

    Attributes:
        request: What was asked, complete.
        config: The parsed model config.
        framework: `"torch"` or `"tf"`.
        choices: Slot → choice, for `preprocessor`, `filter`, `trunk`, `memory`, `head` and `action_dist`.
        preprocessor: A preprocessor for the observation space, to read shapes from.
        actions: The distributions of the action space and of its parts.
        config_keys: Says which config keys a component reads.
        pins: What the lookup repeated, or None where it chose.
        mask_key: Key, or path of keys, of Dict observations under which the action mask stands, or None.
        unclaimed: What the head leaves of the observation for trunk and memory; None where that is all of it.
        beside: Components that read keys without filling a slot: nets found for parts of the observation, and the
            environment wrappers, which were there before.
        mask_steps: The keys that lead to the action mask.
        unused_masks: Paths of entries that are named as an action mask is, where none is used.
    """

    request: Request
    config: ModelConfig
    framework: str
    choices: dict[str, Choice]
    preprocessor: Preprocessor
    actions: ActionPlan
    config_keys: Callable[[Component], list[str]]
    pins: Pins | None = None
    mask_key: str | None = None
    unclaimed: Unclaimed | None = None
    beside: list[Component] = field(default_factory=list)
    mask_steps: tuple[str, ...] = ()
    unused_masks: tuple[str, ...] = ()

    @property
    def shows_mask(self) -> bool:
        """Whether the model is shown the action mask."""
        return self.mask_key is not None and mask_entry(self.request.obs, self.mask_key) is not None

    @property
    def num_outputs(self) -> int:
        """Number of outputs the action distribution needs."""
        return self.actions.size

    def component(self, slot: str) -> Component:
        """Return the component that fills a slot that is never empty."""
        found = self.choices[slot].component
        assert found is not None
        return found

    def explain(self) -> Explanation:
        """Return the choices with their reasons, and the shapes along the way."""
        return Explanation(self)

    @cached_property
    def shapes(self) -> tuple[Stage, ...]:
        """The stages from observation to action, with their shapes; a config that contradicts them is found here."""
        chosen = self.choices["preprocessor"].component
        stages = [
            Stage("observation", self.request.obs.shape, 0),
            Stage(f"preprocessor: {chosen.name if chosen else 'custom'}", self.preprocessor.shape, 0),
        ]
        if (chosen := self.choices["filter"].component) is not None:
            stages.append(Stage(f"filter: {chosen.name}", self.preprocessor.shape, 0))
        stages += self.layers
        stages.append(Stage(f"{self.component('action_dist').name}: inputs", (self.num_outputs,), 0))
        action = self.request.action
        stages.append(Stage("action", action.shape if action is not None else None, 0))
        return tuple(stages)

    @cached_property
    def layers(self) -> tuple[Stage, ...]:
        """The stages of the model."""
        parts = [self.choices[slot].component for slot in MODEL_SLOTS]
        return tuple(model_stages(parts, self.request, self.num_outputs, self.unclaimed))

    @property
    def model_parts(self) -> tuple[str, ...]:
        """The names of the model's parts, from the inside out."""
        chosen = (self.choices[slot].component for slot in MODEL_SLOTS)
        return tuple(component.name for component in chosen if component is not None)

    @cached_property
    def unread(self) -> dict[str, str]:
        """The config keys that differ from their defaults and that nothing reads; see `unread_keys`."""
        # A switch that is off was read by the choice itself: the part is not there.
        switches = {v.component.switch for c in self.choices.values() for v in c.verdicts}
        asked = {key: value for key, value in self.config.given.items() if key in self.config.asked}
        given = [key for key, value in asked.items() if key not in switches or value]
        read, idle = READ_BY_KERNEL, {}
        if self.choices["memory"].component is not None:
            read, idle = read | READ_WITH_MEMORY, IDLE_WITH_MEMORY
        elif not self.component("trunk").is_listed:  # it may have a state of its own
            read |= {"max_seq_len"}
        return unread_keys(given, read, idle, self._readers(), self.config_keys, self.request) if given else {}

    def _readers(self) -> Iterator[Component]:
        yield from (choice.component for choice in self.choices.values() if choice.component is not None)
        yield from (component for _, component in self.preprocessor.components())
        yield from (node.component for node in self.actions.walk())
        yield from self.beside

    def pinned_keys(self) -> dict[str, Any]:
        """Return the config keys that name what the model's parts found in the catalog; see `ModelSpec.pinned_keys`."""
        found: dict[str, Any] = {}
        for slot in MODEL_SLOTS:
            component = self.choices[slot].component
            if component is not None and getattr(component.declaration, "pinned_keys", None) is not None:
                inner = self.unclaimed is not None and slot != "head"
                request = self.unclaimed.request(self.request) if inner else self.request  # type: ignore[union-attr]
                found |= component.ask("pinned_keys", request, returns=_names)
        return found

    @property
    def model_views(self) -> list[tuple[str, tuple[int, ...], str]]:
        """What a model finds in its input: name, shape without the batch axis, dtype."""
        made = make_filter(self.choices["filter"].component, self.preprocessor, self.config.values, self.unclaimed)
        space = self.preprocessor.observation_space if made is None else made.processed_space(self.preprocessor)
        return model_views(self.preprocessor, space.dtype)


def model_stages(
    parts: Iterable[Component | None], request: Request, num_outputs: int | None, unclaimed: Unclaimed | None = None
) -> list[Stage]:
    """Return the stages of a model, from the inside out; a config that cannot be built is found here.

    Args:
        parts: The components of the model's slots.
        request: What is asked.
        num_outputs: Width of the outermost part's output, or None for a trunk.
        unclaimed: What a head leaves of the observation for the others.
    """
    filled = [part for part in parts if part is not None]
    # What a memory or a head stands around is there twice, where the value has layers of its own.
    doubled = next((part for part in filled if _slot_of(part) in ("memory", "head")), None)
    apart = doubled is not None and num_outputs is not None and not request.config["vf_share_layers"]
    stages: list[Stage] = []
    width: int | None = None
    for part in filled:
        wrapped = apart and part is doubled and _slot_of(part) == "memory"
        outputs = num_outputs if part is filled[-1] and not wrapped else None
        found = [Stage("output", (outputs,) if outputs is not None else None)]
        if isinstance(part.declaration, ModelSpec) and part.declaration.describe is not None:
            asked = request if unclaimed is None or part.declaration.slot == "head" else unclaimed.request(request)
            found = part.ask("describe", replace(asked, num_outputs=outputs, trunk_width=width), returns=_stages)
        own = [replace(stage, name=f"{part.name}: {stage.name}") for stage in found]
        inside, shape = width, found[-1].shape if found else None
        width = shape[-1] if shape else None
        if not apart or part is not doubled:
            stages += own
        elif not wrapped:
            stages += [*_of_the_value(stages), *own]
        else:
            bare = request.config["vf_memory"] == "none"
            stages += [*own, *_of_the_value(stages if bare else [*stages, *own])]
            if part is filled[-1]:
                value, logits = output_plan(request.config, width or 1, [], num_outputs).stages()
                reads = inside if bare else width
                stages.append(replace(value, weights=(reads or 0) + 1, whole=reads is not None))
                stages.append(replace(logits, whole=width is not None))
    return stages


def _slot_of(part: Component) -> str:
    return getattr(part.declaration, "slot", "")


def _of_the_value(stages: list[Stage]) -> list[Stage]:
    """Return the stages of the value's own chain."""
    return [replace(stage, name=f"value, {stage.name}") for stage in stages]


@dataclass(frozen=True, repr=False)
class Explanation:
    """Why a lookup chose what it chose; printed as text, in notebooks as HTML.

    Attributes:
        resolution: What it chose.
        frozen: Of a frozen policy: that it acts faster, or why it does not.
        env: Name of the environment that was asked about; empty where two spaces were given.
        wrappers: What each installed environment wrapper said to it.
    """

    resolution: Resolution
    frozen: str | None = None
    env: str = ""
    wrappers: tuple[Verdict, ...] = ()

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        html = explanation_html(self.as_dict())
        try:
            return self.svg() + html
        except (MissingExtraError, MissingPluginError):
            return html

    def text(self, *, all: bool = False) -> str:
        """Return it as text, which `rlcatalog explain` prints.

        Args:
            all: Also the parts that were not chosen, the config keys that are read, and long lists whole.
        """
        return explanation_sheet(self.as_dict(), all=all).text()

    def svg(self) -> str:
        """Return a picture of the same: the way from observation to action, who fills each slot, and who does not.

        Raises:
            MissingPluginError: rlcatalog-cli, which draws it, is not installed.
            MissingExtraError: drawsvg is not installed.
        """
        return provided.pipeline_svg(self.as_dict())

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, the `--json` form."""
        found = self.resolution
        slots = {"preprocessor": "preprocessor", "model": "trunk", "action_dist": "action_dist"}
        action = found.request.action
        return {
            "env": self.env or None,
            "observation_space": found.request.obs.describe(),
            "action_space": action.describe() if action is not None else None,
            "framework": found.framework,
            **{name: self._choice(found.choices[slot]) for name, slot in slots.items()},
            "filter": self._choice(found.choices["filter"]),
            "memory": self._choice(found.choices["memory"]),
            "head": self._choice(found.choices["head"]),
            "action_parts": [
                {"path": node.info.path, "space": node.info.describe(), **self._choice(node.choice)}
                for child in found.actions.children
                for node in child.walk()
            ],
            "unread": list(found.unread),
            "action_mask": "obs" + "".join(f"[{step!r}]" for step in found.mask_steps) if found.mask_steps else None,
            "model_sees_mask": found.shows_mask,
            "unused_masks": list(found.unused_masks),
            "plan": [
                {"path": leaf.path, "kind": leaf.kind, "slice": [leaf.start, leaf.stop], "shape": list(leaf.shape)}
                for leaf in found.preprocessor.leaves()
            ],
            "model_sees": [
                {"name": name, "shape": list(shape), "dtype": dtype} for name, shape, dtype in found.model_views
            ],
            "shapes": [
                {"stage": stage.name, "shape": list(stage.shape) if stage.shape is not None else None}
                for stage in found.shapes
            ],
            "env_wrappers": [
                {
                    "name": v.component.name,
                    "provider": v.component.provider,
                    "applied": v.rank is not None,
                    "reason": v.why,
                }
                for v in self.wrappers
            ],
            **({} if self.frozen is None else {"frozen": self.frozen}),
        }

    def _choice(self, choice: Choice) -> dict[str, Any]:
        component = choice.component
        return {
            "chosen": component.name if component else None,
            "distribution": component.distribution if component else None,
            "version": component.version if component else None,
            "reason": choice.why,
            "config_keys": self.resolution.config_keys(component) if component else [],
            "candidates": [
                {
                    "name": v.component.name,
                    "distribution": v.component.distribution,
                    "version": v.component.version,
                    "rank": v.rank.name if v.rank is not None else None,
                    "reason": v.why,
                }
                for v in choice.verdicts
            ],
        }


def _stages(answer: Any) -> list[Stage]:
    if not isinstance(answer, list | tuple) or not all(type(stage) is Stage for stage in answer):
        raise TypeError("a list of Stage was expected")
    stages = []
    for stage in answer:
        shape, weights = stage.shape, stage.weights
        is_shape = shape is None or (
            isinstance(shape, list | tuple) and all(isinstance(n, Integral) and int(n) >= 0 for n in shape)
        )
        if type(stage.name) is not str or not is_shape:
            raise TypeError(f"a stage has a name and a shape of whole numbers, or None; found {stage!r}")
        if weights is not None and not (isinstance(weights, Integral) and int(weights) >= 0):
            raise TypeError(f"a stage's weights are a whole number, or None; found {stage!r}")
        plain_shape = None if shape is None else tuple(map(int, shape))
        stages.append(Stage(stage.name, plain_shape, None if weights is None else int(weights), bool(stage.whole)))
    return stages


def _names(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, Mapping) or not all(type(key) is str for key in answer):
        raise TypeError("a dict of config keys was expected")
    return dict(answer)
