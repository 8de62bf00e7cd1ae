"""Search for a TensorFlow model's variables, with stable names.

A name is the path of attributes and indices that leads to the variable, as in PyTorch's
`state_dict`. Keras's own names, such as "dense_3", contain a counter that differs between
instances. The search covers lists, dicts and objects of any class.

An object that stores variables in a different layout than PyTorch defines `canonical()`. This
method yields the name, the variable, and the axis order that transposes its value into the
canonical layout, or None. Common Keras layers get PyTorch's names and layouts
(`rlcatalog_tf.keras_layouts`).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rlcatalog.models import ModelV2
from rlcatalog.observations import Preprocessor
from rlcatalog_tf.keras_layouts import Layout, layouts_of
from rlcatalog_tf.private_api import is_functional, is_internal


class NamedVariable(NamedTuple):
    """Variable, or a part of a variable, with its canonical name.

    Attributes:
        name: Canonical name.
        variable: The tf.Variable.
        layout: Its canonical form.
        part: Index of the array, if the variable has several canonical arrays.
        trainable: Whether it is trained. For a frozen Keras layer, the layer stores this, and its
            tf.Variables do not.
    """

    name: str
    variable: Any
    layout: Layout
    part: int = 0
    trainable: bool = True

    def value(self) -> np.ndarray[Any, Any]:
        """Return the value in the canonical layout."""
        return self.layout.split(self.variable.numpy())[self.part]


#: Layout of a variable that keeps its name and its layout.
AS_IT_IS = Layout(("",))


def find_variables(model: Any) -> list[NamedVariable]:
    """Return each of a model's variables once, in the order of the model's attributes."""
    seen: set[tuple[int, int]] = set()
    variables = []
    for item in _walk(model, "", set()):
        if (id(item.variable), item.part) not in seen:
            seen.add((id(item.variable), item.part))
            variables.append(item)
    return variables


def has_unbuilt_layers(value: Any, _visited: set[int] | None = None) -> bool:
    """Return whether `find_variables` reaches a Keras layer that only creates its variables on the
    first call.
    """
    visited = set() if _visited is None else _visited
    if isinstance(value, _PLAIN) or id(value) in visited:
        return False
    visited.add(id(value))
    if _is_layer(value):
        return not value.built
    return any(has_unbuilt_layers(part, visited) for _, part in _parts(value))


def raw_variable(variable: Any) -> Any:
    """Return a Keras variable's tf.Variable; return a tf.Variable unchanged."""
    return variable if isinstance(variable, tf.Variable) else variable.value


#: Types that contain no model variables. A preprocessor refers to its catalog.
_PLAIN = (
    str,
    bytes,
    int,
    float,
    type(None),
    type,
    np.ndarray,
    types.FunctionType,
    types.ModuleType,
    Preprocessor,
)
#: Packages whose objects are not searched, except layers, modules and variables: other objects
#: contain variables of optimisers and caches.
_CLOSED = frozenset({"tensorflow", "keras", "tf_keras", "numpy", "gymnasium", "torch"})


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and contents of a list, dict or object."""
    if isinstance(value, list | tuple):
        yield from ((str(index), item) for index, item in enumerate(value))
    elif isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items())
    elif isinstance(value, tf.Module) or type(value).__module__.partition(".")[0] not in _CLOSED:
        for name, item in _attributes(value):
            # Internal attributes of the kernel and of TensorFlow.
            if not name.startswith("_rlcatalog") and not is_internal(name):
                yield name, item


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from list(getattr(value, "__dict__", {}).items())
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(value, name):
                yield name, getattr(value, name)


def _walk(value: Any, path: str, visited: set[int]) -> Iterator[NamedVariable]:
    if isinstance(value, tf.Variable):
        yield NamedVariable(path, value, AS_IT_IS, trainable=value.trainable)
        return
    if isinstance(value, _PLAIN) or id(value) in visited:
        return
    visited.add(id(value))
    keras = sys.modules.get("keras")
    if not isinstance(value, ModelV2) and callable(getattr(type(value), "canonical", None)):
        for name, variable, axes in value.canonical():
            yield NamedVariable(
                _join(path, name),
                raw_variable(variable),
                Layout((name,), axes),
                trainable=variable.trainable,
            )
    elif keras is not None and isinstance(value, keras.Variable):
        yield NamedVariable(path, value.value, AS_IT_IS, trainable=value.trainable)
    elif _is_layer(value):
        yield from _layer(value, path, visited)
    else:
        for name, item in _parts(value):
            yield from _walk(item, _join(path, name), visited)


def loaded_kerases() -> list[Any]:
    """Return Keras and legacy Keras, if they are loaded."""
    return [
        module for name in ("keras", "tf_keras") if (module := sys.modules.get(name)) is not None
    ]


def is_layer_class(cls: type) -> bool:
    """Return whether a class is one of Keras layers or models, or of legacy Keras."""
    return issubclass(cls, tuple(keras.layers.Layer for keras in loaded_kerases()))


def _is_layer(value: Any) -> bool:
    return any(isinstance(value, keras.layers.Layer) for keras in loaded_kerases())


def _layer(layer: Any, path: str, visited: set[int]) -> Iterator[NamedVariable]:
    """Yield a layer's variables: canonical ones, those of its inner layers, then all others under
    their own names.
    """
    if not layer.built and not isinstance(layer, tuple(keras.Model for keras in loaded_kerases())):
        return
    variables: list[NamedVariable] = []
    for keras in loaded_kerases():
        if isinstance(layer, keras.Sequential) or is_functional(layer):
            for index, inner in enumerate(layer.layers):
                variables += _walk(inner, _join(path, str(index)), visited)
            break
        if (layouts := layouts_of(layer, keras)) is not None:
            for variable, layout in layouts:
                own, trains = raw_variable(variable), variable.trainable
                variables += [
                    NamedVariable(_join(path, name), own, layout, i, trains)
                    for i, name in enumerate(layout.names)
                ]
            break
    else:
        # Keras' internal attributes lead to the same layers again.
        given = {
            name
            for keras in loaded_kerases()
            for cls in (keras.layers.Layer, keras.Model)
            for name in _fresh(cls)
        }
        for name, item in _attributes(layer):
            if name not in given and not is_internal(name) and _holds_layers(item):
                variables += _walk(item, _join(path, name), visited)
    yield from variables
    known = {id(item.variable) for item in variables}
    rest = [
        variable
        for variable in (layer.weights if layer.built else [])
        if id(raw_variable(variable)) not in known
    ]
    # Legacy: dense_3/kernel:0.
    names = [variable.name.rpartition("/")[2].partition(":")[0] for variable in rest]
    for index, (name, variable) in enumerate(zip(names, rest, strict=True)):
        where = _join(path, name if names.count(name) == 1 else str(index))
        yield NamedVariable(where, raw_variable(variable), AS_IT_IS, trainable=variable.trainable)


def _holds_layers(value: Any) -> bool:
    """Return whether a layer's attribute is a layer, a variable, or a list or dict that contains
    one.
    """
    if isinstance(value, list | tuple):
        return any(map(_holds_layers, value))
    if isinstance(value, Mapping):
        return any(map(_holds_layers, value.values()))
    return _is_layer(value) or isinstance(
        value,
        (
            tf.Variable,
            *(keras.Variable for keras in loaded_kerases() if hasattr(keras, "Variable")),
        ),
    )


@cache
def _fresh(cls: Any) -> frozenset[str]:
    return frozenset(vars(cls()))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
