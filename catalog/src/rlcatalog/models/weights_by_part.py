"""Weights of an assembled model by part (trunk, memory, head, value), and parts that do not learn.

Names of weights depend on what is around a part: a trunk's `hidden.0.weight` is called
`trunk.hidden.0.weight` below a memory. Relative to the part's own model object, they are always the
same, so a part is addressed by its name and by such relative names.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rlcatalog.errors import ConfigError, nearest
from rlcatalog.models.bookkeeping import get_submodel
from rlcatalog.models.model import ModelV2
from rlcatalog.models.separate_critic import SeparateCritic

#: Begins the names of parts that only the value reads.
CRITIC = "critic"
#: The part of the layers that a `model_interface` adds.
INTERFACE = "interface"
#: Attribute of a model that holds its last layers, and the last layer for the value in them.
_LAST_LAYERS = "outputs"
_VALUE_LAYER = f"{_LAST_LAYERS}.value"
#: With `vf_share_layers=False`, a model keeps the value's copy of `hidden` as `value_hidden`.
_VALUE_PREFIX = "value_"
#: The part of layers that compute both logits and value in a way that only their class knows.
_INSEPARABLE = "model"


class Place(NamedTuple):
    """Some attributes of one model.

    Attributes:
        model: The model.
        is_value_side: Whether these are the value's copies of the model's layers; otherwise all
            other layers but the last ones.
    """

    model: ModelV2
    is_value_side: bool


@dataclass
class PartWeights:
    """The weights of one part of a model.

    Attributes:
        name: The part's name.
        names: Name of each weight relative to the part → its name in the whole model's
            `get_weights()`.
        places: Where the part's layers are.
    """

    name: str
    names: dict[str, str] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)

    def add(self, names: Mapping[str, str], places: Iterable[Place]) -> None:
        """Add weights, and the places of their layers, each once."""
        self.names |= names
        known_places = [(id(place.model), place.is_value_side) for place in self.places]
        for place in places:
            if (id(place.model), place.is_value_side) not in known_places:
                self.places.append(place)


class ModelParts:
    """The parts of a model, by name.

    Args:
        model: The outermost model.

    Attributes:
        main: The parts that every weight belongs to exactly one of.
        nets: Parts of these parts: the nets for single leaves of the observation, such as
            `trunk["obs['camera']"]`.
    """

    def __init__(self, model: ModelV2) -> None:
        self.main: dict[str, PartWeights] = {}
        self.nets: dict[str, PartWeights] = {}
        #: Key of each weight → its name in the whole model.
        self._whole_names: dict[Hashable, str] = {}
        for name, key in model._rlcatalog_bookkeeping.weight_keys(model).items():
            self._whole_names.setdefault(key, name)
        self._visit(model, side="")
        has_critic = any(name.startswith(f"{CRITIC}.") for name in self.main)
        if has_critic and "value" in self.main:
            value = self.main.pop("value")
            value.name = f"{CRITIC}.value"
            self.main[value.name] = value

    def select(self, name: str, what: str) -> PartWeights:
        """Return a part by name; `"critic"` stands for all parts that begin with `critic.`.

        Args:
            name: The name.
            what: Where the name comes from, for the error message.

        Raises:
            ConfigError: The model has no such part.
        """
        part = self.main.get(name) or self.nets.get(name)
        if part is not None:
            return part
        known_names = [*self.main, *self.nets]
        parts_of_critic = []
        for part in self.main.values():
            if part.name.startswith(f"{CRITIC}."):
                parts_of_critic.append(part)
        if parts_of_critic:
            known_names.append(CRITIC)
        if name != CRITIC or not parts_of_critic:
            raise ConfigError(
                f"{what}: this model has no part {name!r}.{nearest(str(name), known_names)} Its"
                f" parts: {', '.join(known_names)}."
            )
        critic = PartWeights(CRITIC)
        for part in parts_of_critic:
            relative_part = part.name.removeprefix(f"{CRITIC}.")
            names = {f"{relative_part}.{name}": whole for name, whole in part.names.items()}
            critic.add(names, part.places)
        return critic

    def _visit(self, model: ModelV2, side: str) -> None:
        """Add the weights of a model and of the models inside it.

        Args:
            model: The model.
            side: `"critic."` in the value's chain; empty in the policy's.
        """
        inner_weights: set[Hashable] = set()
        for inner in chain_inside(model):
            self._visit(inner.model, f"{CRITIC}." if inner.is_value_side else side)
            inner_weights.update(
                inner.model._rlcatalog_bookkeeping.weight_keys(inner.model).values()
            )
        own_weights = {}
        for name, key in model._rlcatalog_bookkeeping.weight_keys(model).items():
            if key not in inner_weights:
                own_weights[name] = self._whole_names[key]
        if isinstance(model, SeparateCritic):
            for name, name_in_model in own_weights.items():
                # As in a model with last layers, so that weights can be moved between the two.
                self._add("value", {f"{_LAST_LAYERS}.{name}": name_in_model})
        elif model._rlcatalog_bookkeeping.has_last_layers(model):
            self._add_with_last_layers(model, own_weights, side)
        else:
            part = f"{side}{_part_without_last_layers(model)}"
            self._add(part, own_weights, Place(model, is_value_side=False))
        self._add_nets(model, side)

    def _add_with_last_layers(
        self, model: ModelV2, own_weights: Mapping[str, str], side: str
    ) -> None:
        """Add the weights of a model that ends with our layers for logits and value."""
        slot = _slot(model)
        body = Place(model, is_value_side=False)
        value_side = Place(model, is_value_side=True)
        for name, name_in_model in own_weights.items():
            attribute = name.partition(".")[0]
            if name.startswith(f"{_VALUE_LAYER}."):
                self._add("value", {name: name_in_model})
            elif attribute == _LAST_LAYERS:
                self._add("head", {name: name_in_model})
            elif is_of_value(attribute):
                # As the policy's layer is called, so that weights can be moved between the two.
                policy_name = name.removeprefix(_VALUE_PREFIX)
                self._add(f"{CRITIC}.{slot}", {policy_name: name_in_model}, value_side)
            else:
                self._add(f"{side}{slot}", {name: name_in_model}, body)

    def _add(self, part: str, names: Mapping[str, str], *places: Place) -> None:
        """Add weights to a part; a part without weights does not exist."""
        if not names:
            return
        self.main.setdefault(part, PartWeights(part)).add(names, places)

    def _add_nets(self, model: ModelV2, side: str) -> None:
        """Add the nets that a model has for single leaves of the observation."""
        chain = {id(inner.model) for inner in chain_inside(model)}
        for prefix, net in type(model).inner_models(model).items():
            path = prefix.removesuffix(": ")
            is_value_side = path.startswith("value: ")
            path = path.removeprefix("value: ")
            if id(net) in chain or not path:
                continue
            net_side = f"{CRITIC}." if is_value_side else side
            part = self.main.get(f"{net_side}{_slot(model)}")
            if part is None:
                continue
            names = {}
            for name, key in net._rlcatalog_bookkeeping.weight_keys(net).items():
                if key in self._whole_names:  # a class of a user may list any models
                    names[name] = self._whole_names[key]
            place = Place(net, is_value_side=False)
            name = f'{part.name}["{path}"]'
            self.nets[name] = PartWeights(name, names, [place])
            part.places.append(place)


def chain_inside(model: ModelV2) -> list[Place]:
    """Return the models that `assemble` put into a model; only the value reads some of them."""
    passed_models = model._rlcatalog_bookkeeping.passed_models
    if not passed_models:
        return []  # a user's class may have models of its own, which belong to it
    inner_models = []
    for name in ("trunk", "value_trunk", "inner"):
        inner = get_submodel(model, name)
        if inner is not None:
            inner_models.append(Place(inner, is_value_side=name == "value_trunk"))
    if isinstance(model, SeparateCritic):
        inner_models.append(Place(model.policy, is_value_side=False))
        inner_models.append(Place(model.critic, is_value_side=True))
    return inner_models


def is_of_value(attribute: str) -> bool:
    """Return whether an attribute of a model with last layers holds the value's copy of layers."""
    return attribute.startswith(_VALUE_PREFIX)


def _part_without_last_layers(model: ModelV2) -> str:
    """Return the part of a model that does not end with our layers for logits and value."""
    slot = _slot(model)
    if model._rlcatalog_bookkeeping.is_trunk or slot == INTERFACE:
        return slot
    return _INSEPARABLE


def _slot(model: ModelV2) -> str:
    """Return the part that a model's own layers are; "trunk" for a model that was built by hand."""
    return model._rlcatalog_bookkeeping.slot or "trunk"


# --- parts that do not learn ----------------------------------------------------------------------


def set_frozen_parts(model: ModelV2, names: Sequence[str]) -> None:
    """Freeze these parts of a model, and no others: their weights, batch statistics and dropout.

    Args:
        model: The outermost model.
        names: The parts' names.

    Raises:
        ConfigError: The model has no such part; nothing is changed.
    """
    parts = ModelParts(model)
    frozen_parts = [parts.select(name, "freeze_parts") for name in names]
    for part in [*parts.main.values(), *parts.nets.values()]:
        _set_still(part.places, is_still=False)
    weights: set[str] = set()
    for part in frozen_parts:
        _set_still(part.places, is_still=True)
        weights.update(part.names.values())
    model._rlcatalog_bookkeeping.set_frozen_weights(model, weights)


def _set_still(places: Iterable[Place], *, is_still: bool) -> None:
    """Set whether the layers at these places act in training as they do in acting."""
    for place in places:
        bookkeeping = place.model._rlcatalog_bookkeeping
        if place.is_value_side:
            bookkeeping.is_value_side_still = is_still
        else:
            bookkeeping.is_still = is_still


# --- learning rates -------------------------------------------------------------------------------


def parts_with_own_rate(model: ModelV2, names: Collection[str], what: str) -> dict[str, str]:
    """Return the part whose learning rate a weight has, by the weight's name in the model.

    Weights of other parts are left out.

    Args:
        model: The outermost model.
        names: The names of the parts that have their own learning rate.
        what: Where the names come from, for error messages.

    Raises:
        ConfigError: The model has no such part, or two of them contain the same weight.
    """
    part_of: dict[str, str] = {}
    if not names:
        return part_of  # most models have one rate, so their parts need not be found
    parts = ModelParts(model)
    for name in names:
        for weight in parts.select(name, what).names.values():
            if weight in part_of:
                raise ConfigError(
                    f"{what}: {part_of[weight]!r} and {name!r} both contain {weight!r}. Give each"
                    " weight one learning rate: list the smaller parts."
                )
            part_of[weight] = name
    return part_of
