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
from rlcatalog_tf.private_api import KerasLayer, is_functional, is_internal


class NamedVariable(NamedTuple):
    """Variable, or a part of a variable, with its canonical name.

    Attributes:
        name: Canonical name.
        variable: The tf.Variable.
        layout: Its canonical form.
        part: Index of the array, if the variable has several canonical arrays.
        trainable: Whether it is trained. For a frozen Keras layer, the layer stores this, and its
            tf.Variables do not.
        layer: The innermost Keras layer that has it, or None.
    """

    name: str
    variable: Any
    layout: Layout
    part: int = 0
    trainable: bool = True
    layer: Any = None

    def value(self) -> np.ndarray[Any, Any]:
        """Return the value in the canonical layout."""
        return self.layout.split(self.variable.numpy())[self.part]


#: Layout of a variable that keeps its name and its layout.
AS_IT_IS = Layout(("",))


def find_variables(model: Any) -> list[NamedVariable]:
    """Return each of a model's variables once, in the order of the model's attributes."""
    seen: set[tuple[int, int]] = set()
    variables = []
    for item in _walk(model, path="", visited=set()):
        # Two attributes may lead to a variable, and one variable may have several parts.
        key = (id(item.variable), item.part)
        if key not in seen:
            seen.add(key)
            variables.append(item)
    return variables


def has_unbuilt_layers(value: Any) -> bool:
    """Return whether `find_variables` reaches a Keras layer that only creates its variables on the
    first call.
    """
    return _reaches_unbuilt_layer(value, visited=set())


def _reaches_unbuilt_layer(value: Any, visited: set[int]) -> bool:
    if isinstance(value, _TYPES_WITHOUT_VARIABLES) or id(value) in visited:
        return False
    visited.add(id(value))
    if _is_layer(value):
        return not value.built
    return any(_reaches_unbuilt_layer(part, visited) for _, part in _parts(value))


def raw_variable(variable: Any) -> Any:
    """Return a Keras variable's tf.Variable; return a tf.Variable unchanged."""
    if isinstance(variable, tf.Variable):
        return variable
    return variable.value


#: Types that contain no model variables. A preprocessor refers to its catalog.
_TYPES_WITHOUT_VARIABLES = (
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
_PACKAGES_NOT_SEARCHED = frozenset(
    {"tensorflow", "keras", "tf_keras", "numpy", "gymnasium", "torch"}
)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and contents of a list, dict or object."""
    package = type(value).__module__.partition(".")[0]
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield str(index), item
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key), item
    elif isinstance(value, tf.Module) or package not in _PACKAGES_NOT_SEARCHED:
        for name, item in _attributes(value):
            # The kernel's and TensorFlow's own attributes hold no variables of the user.
            if not name.startswith("_rlcatalog") and not is_internal(name):
                yield name, item


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of an object's attributes, in `__dict__` and in slots."""
    # A user's class with slots has no `__dict__`.
    yield from list(getattr(value, "__dict__", {}).items())
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        if isinstance(slots, str):
            slots = (slots,)
        for name in slots:
            # A slot of a user's class may be empty.
            if not name.startswith("__") and hasattr(value, name):
                yield name, getattr(value, name)


def _walk(value: Any, path: str, visited: set[int]) -> Iterator[NamedVariable]:
    """Yield the variables that a value leads to.

    Args:
        value: A variable, a layer, or any object, list or dict.
        path: The path that leads to the value.
        visited: Ids of the objects that have been searched; this function adds to it.
    """
    if isinstance(value, tf.Variable):
        yield NamedVariable(path, value, AS_IT_IS, trainable=value.trainable)
        return
    if isinstance(value, _TYPES_WITHOUT_VARIABLES) or id(value) in visited:
        return
    visited.add(id(value))
    keras = sys.modules.get("keras")
    # A class may define `canonical()`, which yields its variables with PyTorch's names and axes.
    # A user's model may use this name for something else.
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
        for item in _layer(value, path, visited):
            if item.layer is None:
                item = item._replace(layer=value)
            yield item
    else:
        for name, item in _parts(value):
            yield from _walk(item, _join(path, name), visited)


def loaded_keras_modules() -> list[Any]:
    """Return Keras and legacy Keras, if they are loaded."""
    modules = []
    for name in ("keras", "tf_keras"):
        module = sys.modules.get(name)
        # None stands for a module whose import is blocked.
        if module is not None:
            modules.append(module)
    return modules


def is_layer_class(cls: type) -> bool:
    """Return whether a class is one of Keras layers or models, or of legacy Keras."""
    return issubclass(cls, tuple(keras.layers.Layer for keras in loaded_keras_modules()))


def _is_layer(value: Any) -> bool:
    return any(isinstance(value, keras.layers.Layer) for keras in loaded_keras_modules())


def _layer(layer: KerasLayer, path: str, visited: set[int]) -> Iterator[NamedVariable]:
    """Yield a layer's variables: canonical ones, those of its inner layers, then all others under
    their own names.
    """
    is_model = isinstance(layer, tuple(keras.Model for keras in loaded_keras_modules()))
    if not layer.built and not is_model:
        return
    variables = list(_named_variables(layer, path, visited))
    yield from variables
    if layer.built:
        yield from _other_variables(layer, path, known={id(item.variable) for item in variables})


def _named_variables(layer: KerasLayer, path: str, visited: set[int]) -> Iterator[NamedVariable]:
    """Yield the variables of a layer that have canonical names or belong to inner layers."""
    for keras in loaded_keras_modules():
        if isinstance(layer, keras.Sequential) or is_functional(layer):
            for index, inner in enumerate(layer.layers):
                yield from _walk(inner, _join(path, str(index)), visited)
            return
        layouts = layouts_of(layer, keras)
        if layouts is not None:
            for variable, layout in layouts:
                for part, name in enumerate(layout.names):
                    yield NamedVariable(
                        _join(path, name),
                        raw_variable(variable),
                        layout,
                        part=part,
                        trainable=variable.trainable,
                    )
            return
    keras_attributes = _attributes_of_keras()
    for name, item in _attributes(layer):
        # Attributes that Keras sets lead to the same layers again.
        if name in keras_attributes or is_internal(name):
            continue
        if _holds_layers(item):
            yield from _walk(item, _join(path, name), visited)


def _other_variables(layer: KerasLayer, path: str, known: set[int]) -> Iterator[NamedVariable]:
    """Yield a built layer's variables whose ids are not known, under their own names."""
    others = [variable for variable in layer.weights if id(raw_variable(variable)) not in known]
    # Legacy Keras names a variable "dense_3/kernel:0"; only "kernel" is kept.
    names = [variable.name.rpartition("/")[2].partition(":")[0] for variable in others]
    for index, (name, variable) in enumerate(zip(names, others, strict=True)):
        if names.count(name) > 1:
            name = str(index)  # The name alone would not be unique.
        yield NamedVariable(
            _join(path, name), raw_variable(variable), AS_IT_IS, trainable=variable.trainable
        )


def _holds_layers(value: Any) -> bool:
    """Return whether a layer's attribute is a layer, a variable, or a list or dict that contains
    one.
    """
    if isinstance(value, list | tuple):
        return any(map(_holds_layers, value))
    if isinstance(value, Mapping):
        return any(map(_holds_layers, value.values()))
    return _is_layer(value) or _is_variable(value)


def _is_variable(value: Any) -> bool:
    if isinstance(value, tf.Variable):
        return True
    for keras in loaded_keras_modules():
        # Legacy Keras has no such class.
        if hasattr(keras, "Variable") and isinstance(value, keras.Variable):
            return True
    return False


def _attributes_of_keras() -> set[str]:
    """Return the names of the attributes that Keras gives every layer and model."""
    names: set[str] = set()
    for keras in loaded_keras_modules():
        names |= _attributes_of_new(keras.layers.Layer)
        names |= _attributes_of_new(keras.Model)
    return names


@cache
def _attributes_of_new(cls: Any) -> frozenset[str]:
    """Return the names of a new object's attributes."""
    return frozenset(vars(cls()))


def _join(path: str, name: str) -> str:
    """Return the path of an attribute of the object at a path."""
    if not path:
        return name
    return f"{path}.{name}"
