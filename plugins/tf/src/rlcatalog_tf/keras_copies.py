"""Deep copies of Keras layers.

Keras copies a layer through its config, which many classes do not support. This module only copies
`Sequential` and functional models in this way. It copies any other layer attribute by attribute, as
`copy.deepcopy` does.
"""

from __future__ import annotations

import copy
import copyreg
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlcatalog.errors import NotServedError, raised_as
from rlcatalog_tf import keras
from rlcatalog_tf.private_api import KerasLayer, is_functional, layers_in, tracker_of

#: Lock held while the rules for copies are in Python's process-wide table.
_COPYING = threading.Lock()


def copy_layer(layer: Any) -> Any:
    """Return a layer of the same class with separate variables that have equal values.

    Raises:
        NotServedError: The layer cannot be copied.
    """
    if not isinstance(layer, keras.layers.Layer):
        raise NotServedError(
            f"{type(layer).__name__} is a layer of legacy Keras (tf_keras), which rlcatalog cannot"
            " copy for a second model (a target network, a copied policy). Pass its class, or a"
            " function that creates one."
        )
    layers = layers_in(layer)
    trackers = [tracker_of(part) for part in layers]
    problem = (
        f"{type(layer).__name__} cannot be copied, which a second model needs (a target"
        " network, a copied policy)"
    )
    with raised_as(
        lambda why: NotServedError(
            f"{problem}: {why}. Pass its class, or a function that creates one."
        )
    ):
        # With these, Keras finds a user's layer classes by name.
        classes = {type(part).__name__: type(part) for part in layers}
        with (
            keras.saving.custom_object_scope(classes),
            _copying_with(_rules_for(layers)),
            _unlocked(trackers),
        ):
            twin = copy.deepcopy(layer)
        if not _has_equal_variables(layer, twin):
            raise ValueError("the copy has different weights")
    return twin


def _has_equal_variables(layer: KerasLayer, twin: KerasLayer) -> bool:
    """Return whether the variables of a copy are others with equal values."""
    for variable, other in zip(layer.variables, twin.variables, strict=True):
        if variable is other or not np.array_equal(variable.numpy(), other.numpy()):
            return False
    return True


def _rules_for(layers: list[KerasLayer]) -> dict[type, Callable[[Any], Any]]:
    """Return the function that copies objects of each class, as `copyreg.dispatch_table` has it."""
    rules: dict[type, Callable[[Any], Any]] = {}
    for layer in layers:
        rules[type(layer)] = _copy_by_graph if _is_graph(layer) else _copy_by_attributes
    rules[types.ModuleType] = _copy_by_name
    return rules


@contextmanager
def _copying_with(rules: Mapping[type, Callable[[Any], Any]]) -> Iterator[None]:
    """Return a context in which `copy.deepcopy` copies objects of each class by its function."""
    # `copy.deepcopy` looks up here how to copy an object, before it calls `__reduce_ex__`.
    table = copyreg.dispatch_table
    # A lock, because all threads share the table.
    with _COPYING:
        rules_before = {cls: table[cls] for cls in rules if cls in table}
        try:
            table.update(rules)
            yield
        finally:
            for cls in rules:
                del table[cls]
            table.update(rules_before)


@contextmanager
def _unlocked(trackers: list[Any]) -> Iterator[None]:
    """Return a context in which layers accept new variables.

    A built layer's tracker of variables is locked. A copy inherits the lock, and could not store
    its variables.
    """
    locked = [tracker for tracker in trackers if tracker.locked]
    try:
        for tracker in locked:
            tracker.unlock()
        yield
    finally:
        for tracker in locked:
            tracker.lock()


def _is_graph(layer: KerasLayer) -> bool:
    """Return whether a layer is a `Sequential` or functional model, which Keras can copy."""
    return type(layer) is keras.Sequential or is_functional(layer)


# Each of the following returns what `__reduce__` would: how `copy.deepcopy` makes the copy.


def _copy_by_name(module: types.ModuleType) -> str:
    """Return a name, for which `copy.deepcopy` takes the object itself."""
    return module.__name__


def _copy_by_attributes(layer: KerasLayer) -> Any:
    """Return how to make a new object, and the attributes, which `copy.deepcopy` copies, too."""
    return object.__new__, (type(layer),), dict(vars(layer))


def _copy_by_graph(layer: KerasLayer) -> Any:
    """Return a function that returns Keras' copy of a model, and the function's arguments."""
    twin = keras.models.clone_model(layer)
    for variable, other in zip(layer.variables, twin.variables, strict=True):
        other.assign(variable.value)

    def get_twin() -> Any:
        return twin

    no_arguments = ()
    return get_twin, no_arguments
