"""Summaries of a policy: its parts and shapes, and its model's layers with their weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec

from rlcatalog.choice import MODEL_SLOTS, Resolution
from rlcatalog.internals import Sheet
from rlcatalog.models import weights_of

if TYPE_CHECKING:
    from rlcatalog_policy.policy import Policy

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
        header = ("layer", "output", "weights")
        if self.built:
            header = ("layer", "arrays", "weights")
        rows = []
        for layer in self.layers:
            description = _arrays_text(layer) if self.built else _output_text(layer)
            rows.append((layer.name, description, f"{layer.weights:,}"))
        size = _size_text(num_bytes=4 * self.weights)  # a float32 has 4 bytes
        facts = [
            ("framework", self.framework),
            ("weights", f"{self.weights:,} numbers, {size} as float32"),
        ]
        title = " around ".join(reversed(self.parts))
        return Sheet(title, facts, {"layers": [header, *rows]}, most=_MOST_LAYERS)


def summarize_layers(resolution: Resolution) -> Summary | None:
    """Return the summary without building a model, or None if a part does not declare its
    weights.
    """
    layers = []
    for stage in resolution.stages:
        # Without `whole`, the part announces a lower bound.
        if stage.weights is None or not stage.whole:
            return None
        layers.append(Layer(stage.name, stage.shape, stage.weights))
    return Summary(resolution.model_parts, resolution.framework, tuple(layers), built=False)


def summarize_weights(policy: Policy) -> Summary:
    """Return the summary of a built model, in the order of `ModelV2.get_weights`."""
    shapes_by_layer: dict[str, dict[str, Shape]] = {}
    for name, array in weights_of(policy.model).items():
        layer_name, _, array_name = name.rpartition(".")
        # A weight without a prefix is a layer by itself.
        shapes = shapes_by_layer.setdefault(layer_name or array_name, {})
        shapes[array_name] = tuple(array.shape)
    layers = []
    for layer_name, shapes in shapes_by_layer.items():
        num_weights = sum(prod(shape) for shape in shapes.values())
        layers.append(Layer(layer_name, shape=None, weights=num_weights, arrays=shapes))
    return Summary(policy.resolution.model_parts, policy.framework, tuple(layers), built=True)


def policy_sheet(policy: Policy) -> Sheet:
    """Return the sheet that shows a policy."""
    resolution = policy.resolution
    parts = resolution.parts_by_slot("preprocessor", "filter", *MODEL_SLOTS, "action_dist")
    part_rows = [(slot, part.name, part.provider) for slot, part in parts.items()]
    if resolution.critic is not None:
        for slot, part in resolution.critic.parts_by_slot(*MODEL_SLOTS).items():
            part_rows.append((f"critic: {slot}", part.name, part.provider))
    shape_rows = []
    for stage in resolution.shapes:
        shape_text = "-" if stage.shape is None else str(stage.shape)
        shape_rows.append((stage.name, shape_text))
    tables: dict[str, list[tuple[str, ...]]] = {
        "parts": [("slot", "part", "provided by"), *part_rows],
        "shapes": [("stage", "shape"), *shape_rows],
    }

    weights = weights_of(policy.model)
    num_weights = sum(array.size for array in weights.values())
    facts = [
        ("observation", resolution.request.obs.describe()),
        ("action", resolution.action.describe()),
        ("weights", f"{num_weights:,} numbers in {len(weights)} arrays"),
    ]
    non_default_keys = ", ".join(sorted(resolution.config.given))
    notes = [("config", non_default_keys or "all defaults")]
    return Sheet(f"Policy ({policy.framework})", facts, tables, notes)


def _output_text(layer: Layer) -> str:
    if layer.shape is None:
        return "-"
    axes = ["B", *map(str, layer.shape)]
    return f"({', '.join(axes)})"


def _arrays_text(layer: Layer) -> str:
    texts = []
    for name, shape in layer.arrays.items():
        shape_text = "x".join(map(str, shape)) or "1"  # an array without axes has one number
        texts.append(f"{name} {shape_text}")
    return ", ".join(texts)


def _size_text(num_bytes: float) -> str:
    size = num_bytes
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
