"""The model contract in TensorFlow 2: `TFModelV2` and `RecurrentNetwork`."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from rlcatalog.errors import StaleOutputError
from rlcatalog.models import ModelV2, check_weights, inner_model
from rlcatalog.tf.dtypes import dtype_of
from rlcatalog.tf.ops import flatten_rows
from rlcatalog.tf.sequences import Padding, steps_of
from rlcatalog.tf.variables import Found, find, raw


class TFModelV2(ModelV2):
    """Base class of TensorFlow models; Keras models, layers and raw variables may be attributes.

    Implement `__init__`, `forward` and `value_function`; see `ModelV2` for the contract. Variables are found by walking
    the attributes. Models run eagerly or inside a `tf.function`; they do not trace themselves.

    Args:
        obs_space: The preprocessor's `observation_space`, or a Box.
        action_space: The environment's action space.
        num_outputs: Width of the output, or None for a trunk.
        model_config: The flat model config.
        name: A name for the model.
    """

    framework_of_class: ClassVar[str] = "tf"

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Mapping[str, Any] | None,
        name: str | None,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name, "tf")
        self._registered: list[Any] = []
        self._trace: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "value_function" in cls.__dict__:
            cls.value_function = _same_trace(cls.__dict__["value_function"])  # type: ignore[method-assign]

    def register_variables(self, variables: Iterable[Any]) -> None:
        """Add variables that cannot be found by walking the attributes (RLlib's models call this)."""
        self._registered.extend(variables)

    def variables(self, as_dict: bool = False) -> list[Any] | dict[str, Any]:
        """Return all variables, as a list or by name."""
        found = {item.name: item.variable for item in self._found() if not item.part}
        return found if as_dict else list(found.values())

    def trainable_variables(self, as_dict: bool = False) -> list[Any] | dict[str, Any]:
        """Return the trainable variables, as a list or by name."""
        found = {item.name: item.variable for item in self._found() if item.variable.trainable and not item.part}
        return found if as_dict else list(found.values())

    def get_weights(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return all variables as arrays, in canonical layouts (see `ModelV2.get_weights`)."""
        return {item.name: item.value() for item in self._found()}

    def variable_axes(self) -> dict[str, tuple[int, ...] | None]:
        """Return by name the axes that turn a variable, and what has its form, into its canonical layout, or None."""
        return {item.name: item.axes for item in self._found()}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Set all variables from arrays (see `ModelV2.set_weights`)."""
        found = self._found()
        check_weights(self, {item.name: item.shape for item in found}, weights)
        parts: dict[int, list[Any]] = {}
        for item in found:
            value = np.asarray(weights[item.name])
            if item.layout is None:
                item.variable.assign(value if item.axes is None else value.transpose(np.argsort(item.axes)))
                continue
            given = parts.setdefault(id(item.variable), [])
            given.append(value)
            if len(given) == len(item.layout.names) and item.layout.back is not None:
                item.variable.assign(item.layout.back(*given))

    def last_output(self) -> Any:
        """Return the output of the last call (see `ModelV2.last_output`)."""
        self._check_trace("last_output")
        return super().last_output()

    def _found(self) -> list[Found]:
        found = find(self)
        known = {id(item.variable) for item in found}
        models: list[tuple[Any, str]] = [(self, "")]
        for model, path in models:  # what a trunk has registered is registered
            extra = [raw(v) for v in model._registered if id(raw(v)) not in known]
            found += [Found(f"{path}registered.{i}", v, None) for i, v in enumerate(extra)]
            known |= {id(v) for v in extra}
            names = {"trunk": inner_model(model), "value_trunk": model._held("value_trunk")}
            for name, inner in names.items():
                if isinstance(inner, TFModelV2):  # it may be kept where nobody finds it
                    hidden = [item for item in find(inner) if id(item.variable) not in known]
                    found += [item._replace(name=f"{path}_rlcatalog_{name}.{item.name}") for item in hidden]
                    known |= {id(item.variable) for item in hidden}
                    models.append((inner, f"{path}{name}."))
        return found

    def _flatten(self, obs: Any) -> Any:
        return flatten_rows(obs)

    def _padding_of(self, seq_lens: Any, rows: Any) -> Padding | None:
        return Padding.of(seq_lens, rows)

    def _remember(self, output: Any) -> None:
        self._last_output = output
        self._trace = None if tf.executing_eagerly() else weakref.ref(tf.compat.v1.get_default_graph())

    def _check_trace(self, what: str) -> None:
        """Raise when the last forward pass ran in a `tf.function` that we are not in."""
        if self._trace is None:
            return
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        while graph is not None:
            if graph is self._trace():
                return
            graph = getattr(graph, "outer_graph", None)
        raise StaleOutputError(
            f"{type(self).__name__}.{what}() belongs to the last forward pass, which ran inside a tf.function. Call it"
            " in the same function, and return what it gives."
        )


def _same_trace(value_function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(value_function)
    def checked(self: TFModelV2) -> Any:
        self._check_trace("value_function")
        return value_function(self)

    return checked


class RecurrentNetwork(TFModelV2):
    """Base class of recurrent models: implement `forward_rnn` and `get_initial_state`."""

    def forward(self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Add the time dimension and call `forward_rnn`."""
        flat = tf.cast(input_dict["obs_flat"], dtype_of(self))
        rows = tf.shape(flat)[0]
        if seq_lens is None:
            seq_lens = tf.ones([rows], tf.int32)
        sequences = tf.shape(seq_lens)[0]
        inputs = tf.reshape(flat, [sequences, steps_of(flat, seq_lens), flat.shape[-1]])
        if self.is_time_major():
            inputs = tf.transpose(inputs, [1, 0, 2])
        output, new_state = self.forward_rnn(inputs, state, seq_lens)
        if self.is_time_major():
            output = tf.transpose(output, [1, 0, 2])
        return tf.reshape(output, [-1, output.shape[-1]]), list(new_state)

    def forward_rnn(self, inputs: Any, state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Compute a batch of sequences.

        Args:
            inputs: Observations `[B, T, obs_size]` (`[T, B, obs_size]` when time-major).
            state: State tensors `[B, ...]`.
            seq_lens: Sequence lengths `[B]`.

        Returns:
            Outputs `[B, T, num_outputs]` and the new state tensors `[B, ...]`.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement forward_rnn(inputs, state, seq_lens).")


RecurrentTFModelV2 = RecurrentNetwork
