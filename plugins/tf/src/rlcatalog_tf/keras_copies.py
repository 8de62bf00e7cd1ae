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
from typing import Any

import numpy as np

from rlcatalog.errors import NotServedError, raised_as
from rlcatalog_tf import keras
from rlcatalog_tf.private_api import is_functional, layers_in, tracker_of

#: Lock held while the rules for copies are in Python's process-wide table.
_COPYING = threading.Lock()


def copy_layer(layer: Any) -> Any:
    """Return a layer of the same class with separate variables that have equal values.

    Raises:
        NotServedError: The layer cannot be copied.
    """
    layers = layers_in(layer)
    rules: dict[Any, Any] = {
        type(part): _by_graph if _is_graph(part) else _by_attributes for part in layers
    }
    # By name, because a copy has the same name.
    rules[types.ModuleType] = lambda module: module.__name__
    names = {cls.__name__: cls for cls in rules}
    locked = [tracker for tracker in map(tracker_of, layers) if tracker.locked]
    what = (
        f"{type(layer).__name__} cannot be copied, which a second model needs (a target"
        " network, a copied policy)"
    )
    with raised_as(
        lambda why: NotServedError(
            f"{what}: {why}. Pass its class, or a function that creates one."
        )
    ):
        with _COPYING, keras.saving.custom_object_scope(names):
            former = {
                cls: copyreg.dispatch_table[cls] for cls in rules if cls in copyreg.dispatch_table
            }
            try:
                for tracker in locked:
                    tracker.unlock()
                copyreg.dispatch_table.update(rules)
                made = copy.deepcopy(layer)
            finally:
                for cls in rules:
                    del copyreg.dispatch_table[cls]
                copyreg.dispatch_table.update(former)
                for tracker in locked:
                    tracker.lock()
        pairs = zip(layer.variables, made.variables, strict=True)
        if not all(a is not b and np.array_equal(a.numpy(), b.numpy()) for a, b in pairs):
            raise ValueError("the copy has different weights")
    return made


def _is_graph(layer: Any) -> bool:
    return type(layer) is keras.Sequential or is_functional(layer)


def _by_attributes(layer: Any) -> Any:
    return object.__new__, (type(layer),), dict(vars(layer))


def _by_graph(layer: Any) -> Any:
    made = keras.models.clone_model(layer)
    for variable, other in zip(layer.variables, made.variables, strict=True):
        other.assign(variable.value)
    return lambda: made, ()
