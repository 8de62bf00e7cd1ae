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

from rlcatalog.frameworks import Tensor
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
    # Lists and arrays are copied, because the program may change them before the layer runs.
    arguments = keras.tree.map_structure(_copy_array, (inputs, function.__defaults__ or ()))
    leaves = keras.tree.flatten(arguments)
    symbolic_tensors = {}
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, keras.KerasTensor):
            symbolic_tensors[index] = leaf

    def compute(tensors: Sequence[Any]) -> Any:
        """Call the function with tensors in place of the symbolic tensors."""
        values = list(leaves)
        for index, tensor in zip(symbolic_tensors, tensors, strict=True):
            values[index] = tensor
        first, defaults = keras.tree.pack_sequence_as(arguments, values)
        return function(first, *defaults)

    if not symbolic_tensors:
        return compute([])
    layer = _layer_class()(compute)
    return layer(list(symbolic_tensors.values()))


def lift(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes symbolic tensors as well, for a TensorFlow function in a list
    of layers.

    Args:
        function: Function of a tensor, or of a list or dict of tensors, and of further arguments.
    """

    @wraps(function)
    def apply_function(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        return apply(lambda x: function(x, *args, **kwargs), inputs)

    return apply_function


def time_distributed(layer: Callable[..., Any], **kwargs: Any) -> Any:
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

        def call(
            self, inputs: Tensor, training: bool | None = None, mask: Tensor | None = None
        ) -> Any:
            num_steps = inputs.shape[1]
            if num_steps is not None:  # Keras' own layer works
                return super().call(inputs, training=training, mask=mask)
            batch_and_steps = keras.ops.shape(inputs)[:2]
            arguments = {}
            parameters = inspect.signature(self.layer.call).parameters
            if "training" in parameters:
                arguments["training"] = training
            if "mask" in parameters and mask is not None:
                arguments["mask"] = keras.ops.reshape(mask, (-1, *mask.shape[2:]))
            rows = keras.ops.reshape(inputs, (-1, *inputs.shape[2:]))
            outputs = self.layer.call(rows, **arguments)
            return keras.ops.reshape(outputs, (*batch_and_steps, *outputs.shape[1:]))

    return TimeDistributed


def _copy_array(leaf: Any) -> Any:
    """Return a copy of an array; other leaves are unchanged."""
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    return leaf


@cache
def _layer_class() -> type:
    keras: Any = keras_module()

    class Operation(keras.layers.Layer):  # type: ignore[misc]
        """Layer without weights that computes a function of its inputs and keeps their dtypes."""

        def __init__(self, function: Callable[[Sequence[Any]], Any]) -> None:
            super().__init__(autocast=False)
            self._function = function
            self.supports_masking = True

        def call(self, inputs: Sequence[Any]) -> Any:
            return self._function(inputs)

        def compute_output_spec(self, inputs: Sequence[Any], **arguments: Any) -> Any:
            if not any(tensor.sparse for tensor in inputs):
                return super().compute_output_spec(inputs, **arguments)
            # Keras 3 marks a product with a number as sparse, although its values are dense.
            dense_inputs = [keras.KerasTensor(tensor.shape, tensor.dtype) for tensor in inputs]
            try:
                return super().compute_output_spec(dense_inputs, **arguments)
            except Exception:  # the function needs the sparse tensors of a sparse Input
                return super().compute_output_spec(inputs, **arguments)

        def compute_mask(self, inputs: Sequence[Any], previous_mask: Any) -> None:
            """Return no mask for the output."""

    return Operation
