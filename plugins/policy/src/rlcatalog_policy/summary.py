"""What people are shown of a policy: its parts and shapes, and the layers of its model with their weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from rlcatalog.choice import MODEL_SLOTS, Resolution
from rlcatalog.internals import Sheet, Table
from rlcatalog.models import weights_of

if TYPE_CHECKING:
    from rlcatalog_policy.policy import Policy

Shape = tuple[int, ...]
#: A model may have thousands of layers; its whole table is in `Summary.layers`.
_MOST_LAYERS = 200


@dataclass(frozen=True)
class Layer:
    """A layer of a model.

    Attributes:
        name: What it is, such as `fcnet: hidden 1 (tanh)`; of a model that was built to be counted, what its weights'
            names begin with.
        shape: Shape of its output for one observation, or None where that is not known.
        weights: How many weights it has.
        arrays: Name and shape of each array of weights; empty where nothing was built.
    """

    name: str
    shape: Shape | None
    weights: int
    arrays: Mapping[str, Shape] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Summary:
    """The layers of a model; printed as a table, in notebooks as HTML.

    Attributes:
        parts: The names of the model's parts, from the inside out: `("fcnet", "lstm")`.
        framework: `"torch"` or `"tf"`.
        layers: The layers, from the inside out.
        built: Whether a model was built to count its weights, because one of its parts does not announce them.
    """

    parts: tuple[str, ...]
    framework: str
    layers: tuple[Layer, ...]
    built: bool

    @property
    def weights(self) -> int:
        """How many weights the model has."""
        return sum(layer.weights for layer in self.layers)

    def __repr__(self) -> str:
        return self.sheet().text()

    def _repr_html_(self) -> str:
        return self.sheet().html()

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as plain data, the `--json` form."""
        return {
            "parts": list(self.parts),
            "framework": self.framework,
            "weights": self.weights,
            "built": self.built,
            "layers": [
                {
                    "name": layer.name,
                    "shape": None if layer.shape is None else list(layer.shape),
                    "weights": layer.weights,
                    "arrays": {name: list(shape) for name, shape in layer.arrays.items()},
                }
                for layer in self.layers
            ],
        }

    def rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return the table's header and its rows, as text."""
        if self.built:
            header = "layer", "arrays", "weights"
            return header, [(layer.name, _arrays(layer.arrays), f"{layer.weights:,}") for layer in self.layers]
        header = "layer", "output", "weights"
        return header, [(layer.name, _batched(layer.shape), f"{layer.weights:,}") for layer in self.layers]

    def sheet(self) -> Sheet:
        """Return what is shown."""
        facts = [
            ("framework", self.framework),
            ("weights", self.amount),
        ]
        return Sheet(self.title, facts, [Table("layers", *self.rows(), most=_MOST_LAYERS)])

    @property
    def amount(self) -> str:
        """How many weights the model has, in words."""
        return f"{self.weights:,} numbers, {_size(4 * self.weights)} as float32"

    @property
    def title(self) -> str:
        """The model's parts in words: `lstm around fcnet`."""
        return " around ".join(reversed(self.parts))


def summarize_layers(resolution: Resolution) -> Summary | None:
    """Return the summary of a model that is not built, or None where a part of it does not announce its weights."""
    layers = []
    for stage in resolution.layers:
        if stage.weights is None or not stage.whole:
            return None
        layers.append(Layer(stage.name, stage.shape, stage.weights))
    return Summary(resolution.model_parts, resolution.framework, tuple(layers), built=False)


def summarize_weights(parts: tuple[str, ...], framework: str, weights: Iterable[tuple[str, Shape]]) -> Summary:
    """Return the summary of a model that is built.

    Args:
        parts: The names of the model's parts, from the inside out.
        framework: `"torch"` or `"tf"`.
        weights: Name and shape of each array of its weights, in the order of `ModelV2.get_weights`.
    """
    groups: dict[str, dict[str, Shape]] = {}
    for name, shape in weights:
        layer, _, last = name.rpartition(".")
        groups.setdefault(layer or last, {})[last] = tuple(shape)
    layers = (Layer(name, None, sum(map(prod, arrays.values())), arrays) for name, arrays in groups.items())
    return Summary(parts, framework, tuple(layers), built=True)


def policy_sheet(policy: Policy) -> Sheet:
    """Return what is shown of a policy."""
    resolution = policy.resolution
    rows = []
    for slot in ("preprocessor", "filter", *MODEL_SLOTS, "action_dist"):
        part = resolution.choices[slot].component
        if part is not None:
            rows.append((slot, part.name, part.provider))
    shapes = [(stage.name, "-" if stage.shape is None else str(stage.shape)) for stage in resolution.shapes]
    weights = weights_of(policy.model)
    count = sum(array.size for array in weights.values())
    action = resolution.request.action
    facts = [
        ("observation", resolution.request.obs.describe()),
        ("action", "" if action is None else action.describe()),
        ("weights", f"{count:,} numbers in {len(weights)} arrays"),
    ]
    notes = [("config", ", ".join(sorted(resolution.config.given)) or "all defaults")]
    tables = [Table("parts", ("slot", "part", "provided by"), rows), Table("shapes", ("stage", "shape"), shapes)]
    return Sheet(f"Policy ({policy.framework})", facts, tables, notes)


def _batched(shape: Shape | None) -> str:
    return "-" if shape is None else "(" + ", ".join(["B", *map(str, shape)]) + ")"


def _arrays(arrays: Mapping[str, Shape]) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, shape)) or '1'}" for name, shape in arrays.items())


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
