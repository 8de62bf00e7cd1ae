"""TensorFlow operations on symbolic Keras tensors, which Keras 3 rejects outside of layers.

`rlcatalog port` replaces `tf.expand_dims(x, 1)` with `apply(lambda x: tf.expand_dims(x, 1), x)`.
Keras' `Lambda` treats all inputs as floats, so operations such as `tf.one_hot` fail in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from rlcatalog_compat.frameworks import keras_module


def apply(function: Callable[..., Any], inputs: Any) -> Any:
    """Return a function's value; for symbolic inputs, the output of a layer that computes it in
    each pass.

    The function's defaults are read now, because lists and arrays may change later. Symbolic
    tensors among them become inputs.

    Args:
        function: Function of the inputs.
        inputs: A tensor, or a list or dict of tensors, possibly mixed with other values.
    """
    keras: Any = keras_module()
    whole = keras.tree.map_structure(_own, (inputs, function.__defaults__ or ()))
    leaves = keras.tree.flatten(whole)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, keras.KerasTensor)]

    def compute(tensors: Sequence[Any]) -> Any:
        given = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        first, defaults = keras.tree.pack_sequence_as(whole, given)
        return function(first, *defaults)

    return _layer_class()(compute)([leaves[place] for place in places]) if places else compute([])


def _own(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


@cache
def _layer_class() -> type:
    keras: Any = keras_module()

    class Operation(keras.layers.Layer):  # type: ignore[misc]
        """Layer without weights that computes a function of its inputs and keeps their dtypes."""

        def __init__(self, function: Callable[[Sequence[Any]], Any]) -> None:
            super().__init__(autocast=False)
            self._function, self.supports_masking = function, True

        def call(self, inputs: Any) -> Any:
            return self._function(inputs)

        def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
            return None

    return Operation
