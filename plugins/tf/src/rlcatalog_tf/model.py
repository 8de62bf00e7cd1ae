"""Base classes for models in TensorFlow: `TFModelV2`, `RecurrentNetwork`, and models that contain
other models.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import tensorflow as tf
from gymnasium import Space

from rlcatalog.frameworks import Tensor
from rlcatalog.models import (
    LayersAfterMemory,
    ModelV2,
    ModelWrapper,
    RecurrentBase,
    SeparateCritic,
    SeparateValue,
    check_time_major,
)
from rlcatalog_tf.bookkeeping import TFBookkeeping, variables_of
from rlcatalog_tf.dtypes import dtype_of
from rlcatalog_tf.nn import Dense, DenseStack, OutputLayers, features_of
from rlcatalog_tf.sequences import steps_of


class TFModelV2(ModelV2):
    """Base class for TensorFlow models; Keras models, layers and raw variables can be attributes.

    Implement `__init__`, `forward` and `value_function`; see `ModelV2` for the contract. rlcatalog
    finds variables through the attributes. Models run eagerly or inside a `tf.function`; they do
    not trace themselves.

    Args:
        obs_space: The preprocessor's `observation_space`, or a Box.
        action_space: The environment's action space.
        num_outputs: Width of the output, or None for a trunk.
        model_config: The flat model config.
        name: A name for the model.
    """

    framework_of_class: ClassVar[str] = "tf"
    _rlcatalog_bookkeeping: TFBookkeeping

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int | None,
        model_config: Mapping[str, Any] | None,
        name: str | None,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name, "tf")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make the `value_function` of a derived class check first that it runs in the same trace
        as the last pass.
        """
        super().__init_subclass__(**kwargs)
        definer = next(base for base in cls.__mro__ if "value_function" in vars(base))
        value_function = vars(definer)["value_function"]
        if not isinstance(value_function, types.FunctionType) or definer is ModelV2:
            return
        # A method inherited from a TFModelV2 already has the check; one of a base class for all
        # frameworks has not.
        if definer is cls or not issubclass(definer, TFModelV2):
            cls.value_function = _check_trace_first(value_function)  # type: ignore[method-assign]

    def register_variables(self, variables: Iterable[Any]) -> None:
        """Add variables that are not reachable through attributes (RLlib's models call this
        method).
        """
        self._rlcatalog_bookkeeping.registered.extend(variables)

    def variables(self, as_dict: bool = False) -> list[Any] | dict[str, Any]:
        """Return all variables, as a list or as a dict."""
        # A variable with several canonical arrays is counted once.
        variables = {item.name: item.variable for item in variables_of(self) if item.part == 0}
        if as_dict:
            return variables
        return list(variables.values())

    def trainable_variables(self, as_dict: bool = False) -> list[Any] | dict[str, Any]:
        """Return the trainable variables, as a list or as a dict."""
        variables = {}
        for item in variables_of(self):
            is_frozen = item.name in self._rlcatalog_bookkeeping.frozen_weights
            if item.trainable and item.part == 0 and not is_frozen:
                variables[item.name] = item.variable
        if as_dict:
            return variables
        return list(variables.values())

    def variable_axes(self) -> dict[str, tuple[int, ...] | None]:
        """Return a dict with the axes that transpose each variable into its canonical layout, or
        None.
        """
        return {item.name: item.layout.axes for item in variables_of(self)}


def _check_trace_first(value_function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `value_function` that raises an error outside the trace of the last pass."""

    @functools.wraps(value_function)
    def checked(self: TFModelV2, *args: Any, **kwargs: Any) -> Any:
        self._rlcatalog_bookkeeping.check_trace(self, "value_function")
        return value_function(self, *args, **kwargs)

    return checked


class RecurrentNetwork(RecurrentBase, TFModelV2):
    """Base class for recurrent models: implement `forward_rnn` and `get_initial_state`."""

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Add the time dimension and call `forward_rnn`."""
        flat = tf.cast(input_dict["obs_flat"], dtype_of(self))
        if seq_lens is None:
            seq_lens = tf.ones([tf.shape(flat)[0]], tf.int32)
        sequences = tf.shape(seq_lens)[0]
        steps = steps_of(flat, seq_lens)
        is_time_major = self.is_time_major()
        # `value_function` may return time-major rows, which the kernel reorders by these numbers.
        self._rlcatalog_bookkeeping.time_major_sizes = (steps, sequences) if is_time_major else None
        inputs = tf.reshape(flat, [sequences, steps, flat.shape[-1]])
        if is_time_major:
            inputs = tf.transpose(inputs, [1, 0, 2])
        output, new_state = self.forward_rnn(inputs, state, seq_lens)
        if is_time_major:
            check_time_major(self, tuple(output.shape), *inputs.shape[:2])
            timed = tf.reshape(output, [steps, sequences, output.shape[-1]])
            output = tf.transpose(timed, [1, 0, 2])
        return tf.reshape(output, [-1, output.shape[-1]]), list(new_state)


RecurrentTFModelV2 = RecurrentNetwork


class TFHost(ModelWrapper, TFModelV2):
    """TensorFlow model that contains another model; see `rlcatalog.models.ModelWrapper`."""


class TFSeparateValue(SeparateValue, TFModelV2):
    """TensorFlow model with separate chains for policy and value; see
    `rlcatalog.models.SeparateValue`.
    """

    run_chain = staticmethod(features_of)
    output_layers = OutputLayers

    # `TFModelV2` completes it in subclasses that define it.
    value_function = SeparateValue.value_function


class TFLayersAfterMemory(LayersAfterMemory, TFModelV2):
    """TensorFlow model of a memory and the layers after it; see
    `rlcatalog.models.LayersAfterMemory`.
    """

    run_chain = staticmethod(features_of)
    dense_stack = DenseStack
    output_layers = OutputLayers

    # `TFModelV2` completes it in subclasses that define it.
    value_function = LayersAfterMemory.value_function


class TFSeparateCritic(SeparateCritic, TFModelV2):
    """TensorFlow model of a policy and its critic; see `rlcatalog.models.SeparateCritic`."""

    run_chain = staticmethod(features_of)
    dense_layer = Dense

    # `TFModelV2` completes it in subclasses that define it.
    value_function = SeparateCritic.value_function
