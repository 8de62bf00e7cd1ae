"""Summaries of a policy: its parts and shapes, and its model's layers with their weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import msgspec

import rlcatalog_policy
from rlcatalog.choice import MODEL_SLOTS, Resolution
from rlcatalog.internals import Sheet
from rlcatalog.models import weights_of

Shape = tuple[int, ...]
#: A model may have thousands of layers; the whole table is in `Summary.layers`.
_MOST_LAYERS = 200


@dataclass(frozen=True)
class Layer:
    """A layer of a model.

    Attributes:
        name: Description of the layer, such as `fcnet: hidden 1 (tanh)`; for a model that was built
            to count its weights, the common prefix of the weights' names.
        shape: Shape of the layer's output for one observation, or None if unknown.
        weights: Number of its weights.
        arrays: Name and shape of each weight array; empty if no model was built.
    """

    name: str
    shape: Shape | None
    weights: int
    arrays: Mapping[str, Shape] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Summary:
    """A model's layers; printed as a table, or shown as HTML in notebooks.

    Attributes:
        parts: The names of the model's parts, from the inside out: `("fcnet", "lstm")`.
        framework: `"torch"` or `"tf"`.
        layers: The layers, from the inside out.
        built: Whether a model was built to count its weights, because one of its parts does
            not declare them.
    """

    parts: tuple[str, ...]
    framework: str
    layers: tuple[Layer, ...]
    built: bool

    @property
    def weights(self) -> int:
        """Number of the model's weights."""
        return sum(layer.weights for layer in self.layers)

    def __repr__(self) -> str:
        return self.sheet().text()

    def _repr_html_(self) -> str:
        return self.sheet().html()

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as plain data, as printed by `--json`."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return plain | {"weights": self.weights}

    def sheet(self) -> Sheet:
        """Return the summary as a sheet."""
        show = _arrays if self.built else _output
        header = ("layer", "arrays" if self.built else "output", "weights")
        rows = [(layer.name, show(layer), f"{layer.weights:,}") for layer in self.layers]
        amount = f"{self.weights:,} numbers, {_size(4 * self.weights)} as float32"
        facts = [("framework", self.framework), ("weights", amount)]
        return Sheet(
            " around ".join(reversed(self.parts)),
            facts,
            {"layers": [header, *rows]},
            most=_MOST_LAYERS,
        )


def summarize_layers(resolution: Resolution) -> Summary | None:
    """Return the summary without building a model, or None if a part does not declare its
    weights.
    """
    layers = [
        Layer(one.name, one.shape, one.weights)
        for one in resolution.layers
        if one.weights is not None and one.whole
    ]
    if len(layers) < len(resolution.layers):
        return None
    return Summary(resolution.model_parts, resolution.framework, tuple(layers), built=False)


def summarize_weights(policy: rlcatalog_policy.Policy) -> Summary:
    """Return the summary of a built model, in the order of `ModelV2.get_weights`."""
    groups: dict[str, dict[str, Shape]] = {}
    for name, array in weights_of(policy.model).items():
        layer, _, last = name.rpartition(".")
        groups.setdefault(layer or last, {})[last] = tuple(array.shape)
    layers = (
        Layer(name, None, sum(map(prod, arrays.values())), arrays)
        for name, arrays in groups.items()
    )
    return Summary(policy.resolution.model_parts, policy.framework, tuple(layers), built=True)


def policy_sheet(policy: rlcatalog_policy.Policy) -> Sheet:
    """Return the sheet that shows a policy."""
    resolution = policy.resolution
    parts = resolution.parts_by_slot("preprocessor", "filter", *MODEL_SLOTS, "action_dist")
    rows = [(slot, part.name, part.provider) for slot, part in parts.items()]
    shapes = [
        (stage.name, "-" if stage.shape is None else str(stage.shape))
        for stage in resolution.shapes
    ]
    weights = weights_of(policy.model)
    count = sum(array.size for array in weights.values())
    facts = [
        ("observation", resolution.request.obs.describe()),
        ("action", resolution.action.describe()),
        ("weights", f"{count:,} numbers in {len(weights)} arrays"),
    ]
    notes = [("config", ", ".join(sorted(resolution.config.given)) or "all defaults")]
    tables: dict[str, list[tuple[str, ...]]] = {
        "parts": [("slot", "part", "provided by"), *rows],
        "shapes": [("stage", "shape"), *shapes],
    }
    return Sheet(f"Policy ({policy.framework})", facts, tables, notes)


def _output(layer: Layer) -> str:
    return "-" if layer.shape is None else f"({', '.join(['B', *map(str, layer.shape)])})"


def _arrays(layer: Layer) -> str:
    return ", ".join(
        f"{name} {'x'.join(map(str, shape)) or '1'}" for name, shape in layer.arrays.items()
    )


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
