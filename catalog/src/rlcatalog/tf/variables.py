"""Variables of a TensorFlow model, found under stable names.

A name is the path of attributes and indices that leads to the variable, as in PyTorch's `state_dict`; the counters in
Keras' own names ("dense_3") differ from one instance to the next.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf


class VariableHolder:
    """Base of models, and of layers that are no Keras layers: their attributes are searched for variables.

    One whose variables have another canonical layout than their own defines `canonical()`, which yields name, variable
    and the axes that turn its value into that layout, or None.
    """


class Found(NamedTuple):
    """One variable.

    Attributes:
        name: Canonical name.
        variable: The tf.Variable.
        axes: Axes that turn its value into the canonical layout, or None.
    """

    name: str
    variable: Any
    axes: tuple[int, ...] | None


def find(model: Any) -> list[Found]:
    """Return the variables of a model in the order of its attributes, each once."""
    seen: set[int] = set()
    found = []
    for item in _walk(model, "", set()):
        if id(item.variable) not in seen:
            seen.add(id(item.variable))
            found.append(item)
    return found


def unbuilt(value: Any, _visited: set[int] | None = None) -> bool:
    """Whether a Keras layer, wherever `find` looks, has yet to make its variables at its first call."""
    visited = set() if _visited is None else _visited
    if isinstance(value, str | int | float | type(None)) or id(value) in visited:
        return False
    visited.add(id(value))
    keras = sys.modules.get("keras")
    if keras is not None and isinstance(value, keras.layers.Layer):
        return not value.built
    if isinstance(value, list | tuple):
        parts = list(value)
    elif isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, VariableHolder | tf.Module):
        parts = list(vars(value).values())
    else:
        return False
    return any(unbuilt(part, visited) for part in parts)


def raw(variable: Any) -> Any:
    """Return the tf.Variable behind a Keras variable; a tf.Variable is returned as it is."""
    return variable if isinstance(variable, tf.Variable) else variable.value


def _walk(value: Any, path: str, visited: set[int]) -> Iterator[Found]:
    if isinstance(value, tf.Variable):
        yield Found(path, value, None)
        return
    if isinstance(value, str | int | float | type(None)) or id(value) in visited:
        return
    visited.add(id(value))
    keras = sys.modules.get("keras")
    if hasattr(value, "canonical"):
        for name, variable, axes in value.canonical():
            yield Found(_join(path, name), raw(variable), axes)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _walk(item, _join(path, str(index)), visited)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, _join(path, str(key)), visited)
    elif keras is not None and isinstance(value, keras.Variable):
        yield Found(path, value.value, None)
    elif keras is not None and isinstance(value, keras.layers.Layer):
        yield from _keras(value, path, visited, keras)
    elif isinstance(value, VariableHolder | tf.Module):
        for name, item in vars(value).items():
            if name == "_registered" or name.startswith("_self_"):  # added afterwards; TensorFlow's own bookkeeping
                continue
            yield from _walk(item, _join(path, name), visited)


def _keras(layer: Any, path: str, visited: set[int], keras: Any) -> Iterator[Found]:
    if isinstance(layer, keras.Model):
        for index, inner in enumerate(layer.layers):
            yield from _walk(inner, _join(path, str(index)), visited)
    dense = isinstance(layer, keras.layers.Dense)
    names = [variable.name for variable in layer.weights]
    for index, variable in enumerate(layer.weights):
        name = variable.name if names.count(variable.name) == 1 else str(index)
        is_kernel = dense and name == "kernel"
        yield Found(_join(path, "weight" if is_kernel else name), raw(variable), (1, 0) if is_kernel else None)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
