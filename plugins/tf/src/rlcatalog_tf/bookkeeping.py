"""Kernel-side state of TensorFlow models (see `rlcatalog.models.bookkeeping`)."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rlcatalog.errors import StaleOutputError
from rlcatalog.models import ModelBookkeeping, check_weights, get_submodel, inner_model, is_model
from rlcatalog.spaces import map_tensors
from rlcatalog_tf.private_api import outer_graph
from rlcatalog_tf.sequences import Padding
from rlcatalog_tf.variables import AS_IT_IS, NamedVariable, find_variables, raw_variable


class TFBookkeeping(ModelBookkeeping):
    """Kernel-side state of a TensorFlow model.

    Attributes:
        registered: The arguments of `register_variables`.
        trace: Weak reference to the graph of the last call, if it was traced.
    """

    of_last_pass = (*ModelBookkeeping.of_last_pass, "trace")

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.registered: list[Any] = []
        self.trace: Any = None

    def as_tensors(self, model: Any, obs: Any) -> Any:
        """Convert NumPy arrays in observations to tensors."""
        return map_tensors(
            obs, lambda leaf: self.ops.tensor(leaf) if isinstance(leaf, np.ndarray) else leaf
        )

    def run(self, model: Any, inputs: dict[str, Any], state: list[Any], seq_lens: Any) -> Any:
        """Call `forward`, and record the graph of its output."""
        result = model.forward(inputs, state, seq_lens)
        self.trace = (
            None if tf.executing_eagerly() else weakref.ref(tf.compat.v1.get_default_graph())
        )
        return result

    def check_trace(self, model: Any, what: str) -> None:
        """Raise an error if the last forward pass ran in a different `tf.function`."""
        if self.trace is None:
            return
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        while graph is not None:
            if graph is self.trace():
                return
            graph = outer_graph(graph)
        raise StaleOutputError(
            f"{type(model).__name__}.{what}() belongs to the last forward pass, which ran inside a"
            " tf.function. Call it in the same function, and return its result."
        )

    def weights(self, model: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Return all variables as arrays, in canonical layouts."""
        return {item.name: item.value() for item in variables_of(model)}

    def set_weights(self, model: Any, weights: Mapping[str, Any]) -> None:
        """Set all variables from arrays."""
        variables = variables_of(model)
        check_weights(model, {item.name: item.value().shape for item in variables}, weights)
        parts: dict[int, list[Any]] = {}
        for item in variables:
            given = parts.setdefault(id(item.variable), [])
            given.append(np.asarray(weights[item.name]))
            if len(given) == len(item.layout.names):
                item.variable.assign(item.layout.join(*given))

    def batch_major(self, rows: Any, steps: Any, sequences: Any) -> Any:
        """Reorder rows `[T * B, ...]` from time-major to batch-major."""
        if not tf.is_tensor(rows) or not rows.shape.rank:
            return rows  # `check_values` raises the error
        timed = tf.reshape(rows, tf.concat([[steps, sequences], tf.shape(rows)[1:]], axis=0))
        turned = tf.transpose(timed, [1, 0, *range(2, rows.shape.rank + 1)])
        return tf.ensure_shape(tf.reshape(turned, tf.shape(rows)), rows.shape)

    def padding(self, seq_lens: Any, rows: Any) -> Padding | None:
        """Return which rows are padding, or None if there is no padding."""
        return Padding.of(seq_lens, rows)


def variables_of(model: Any) -> list[NamedVariable]:
    """Return a model's variables: first those in attributes, then registered ones, including those
    of its trunks.
    """
    variables = find_variables(model)
    known = {id(item.variable) for item in variables}
    models: list[tuple[Any, str]] = [(model, "")]
    for outer, path in models:  # a trunk's variables are already registered
        extra = [
            raw_variable(v) for v in outer._rlcatalog.registered if id(raw_variable(v)) not in known
        ]
        variables += [
            NamedVariable(f"{path}registered.{i}", v, AS_IT_IS, trainable=v.trainable)
            for i, v in enumerate(extra)
        ]
        known |= {id(v) for v in extra}
        names = {"trunk": inner_model(outer), "value_trunk": get_submodel(outer, "value_trunk")}
        for name, inner in names.items():
            if is_model(inner):  # it may be stored where it cannot be found
                hidden = [item for item in find_variables(inner) if id(item.variable) not in known]
                variables += [
                    item._replace(name=f"{path}_rlcatalog_{name}.{item.name}") for item in hidden
                ]
                known |= {id(item.variable) for item in hidden}
                models.append((inner, f"{path}{name}."))
    return variables
