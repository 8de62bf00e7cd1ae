"""TensorFlow operations on symbolic Keras tensors, which Keras 3 rejects outside of layers.

`rlcatalog port` replaces `tf.expand_dims(x, 1)` with `apply(lambda x: tf.expand_dims(x, 1), x)`.
Keras' `Lambda` treats all inputs as floats, so operations such as `tf.one_hot` fail in it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache, wraps
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


def lift(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes symbolic tensors as well, for a TensorFlow function in a list
    of layers.

    Args:
        function: Function of a tensor, or of a list or dict of tensors, and of further arguments.
    """

    @wraps(function)
    def lifted(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        return apply(lambda x: function(x, *args, **kwargs), inputs)

    return lifted


def time_distributed(layer: Any, **kwargs: Any) -> Any:
    """Return Keras' layer `TimeDistributed`, which also works if the number of steps is unknown.

    Keras 3 then takes as many steps as there are rows, which ends in an error of TensorFlow, or in
    missing steps.

    Args:
        layer: The layer that is applied to each step.
        **kwargs: Keras' arguments for every layer.
    """
    return _time_distributed_class()(layer, **kwargs)


@cache
def _time_distributed_class() -> type:
    keras: Any = keras_module()

    class TimeDistributed(keras.layers.TimeDistributed):  # type: ignore[misc]
        """Layer that applies another one to all steps at once, as further rows of its batch."""

        def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
            if inputs.shape[1] is not None:
                return super().call(inputs, training=training, mask=mask)
            steps = keras.ops.shape(inputs)[:2]
            arguments = {}
            taken = inspect.signature(self.layer.call).parameters
            if "training" in taken:
                arguments["training"] = training
            if "mask" in taken and mask is not None:
                arguments["mask"] = keras.ops.reshape(mask, (-1, *mask.shape[2:]))
            rows = keras.ops.reshape(inputs, (-1, *inputs.shape[2:]))
            outputs = self.layer.call(rows, **arguments)
            return keras.ops.reshape(outputs, (*steps, *outputs.shape[1:]))

    return TimeDistributed


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

        def compute_output_spec(self, inputs: Any, **arguments: Any) -> Any:
            # Keras 3 marks a product with a number as sparse, although its values are dense.
            dense = [keras.KerasTensor(one.shape, one.dtype) for one in inputs]
            if not any(one.sparse for one in inputs):
                return super().compute_output_spec(inputs, **arguments)
            try:
                return super().compute_output_spec(dense, **arguments)
            except Exception:  # the function needs the sparse tensors of a sparse Input
                return super().compute_output_spec(inputs, **arguments)

        def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
            return None

    return Operation
