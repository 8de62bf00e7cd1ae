"""Kernel-side state of TensorFlow models (see `rlcatalog.models.bookkeeping`)."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Hashable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rlcatalog.errors import StaleOutputError
from rlcatalog.frameworks import Tensor, TensorTree
from rlcatalog.models import (
    ModelBookkeeping,
    ModelV2,
    check_weights,
    get_submodel,
    inner_model,
    is_model,
)
from rlcatalog.spaces import map_tensors
from rlcatalog_tf.nn import OutputLayers
from rlcatalog_tf.private_api import outer_graph
from rlcatalog_tf.sequences import Padding
from rlcatalog_tf.variables import AS_IT_IS, NamedVariable, find_variables, raw_variable


class TFBookkeeping(ModelBookkeeping):
    """Kernel-side state of a TensorFlow model.

    Attributes:
        registered: The arguments of `register_variables`.
        trace: Weak reference to the graph of the last call, if it was traced.
        frozen_layers: The Keras layers of frozen parts, and whether each was trainable before.
    """

    last_layers = OutputLayers
    of_last_pass = (*ModelBookkeeping.of_last_pass, "trace")

    def __init__(self, model: ModelV2) -> None:
        super().__init__(model)
        self.registered: list[Any] = []
        self.trace: Any = None
        self.frozen_layers: list[tuple[Any, bool]] = []

    def as_tensors(self, model: ModelV2, obs: TensorTree) -> Any:
        """Convert NumPy arrays in observations to tensors."""

        def to_tensor(leaf: Tensor) -> Any:
            if isinstance(leaf, np.ndarray):
                return self.ops.tensor(leaf)
            return leaf

        return map_tensors(obs, to_tensor)

    def run(
        self, model: ModelV2, inputs: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> Any:
        """Call `forward`, and record the graph of its output."""
        if self.is_still and self._may_stand_still(model):
            inputs["is_training"] = False
        result = model.forward(inputs, state, seq_lens)
        graph = _current_graph()
        self.trace = None if graph is None else weakref.ref(graph)
        return result

    def _may_stand_still(self, model: ModelV2) -> bool:
        """Return whether all layers of a model are in one part, so that the whole model can act in
        training as it does in acting. A model with a state reads sequences differently in the two.
        """
        has_state = bool(list(model.get_initial_state()))
        return not self.has_last_layers(model) and not has_state

    def check_trace(self, model: ModelV2, what: str) -> None:
        """Raise an error if the last forward pass ran in a different `tf.function`."""
        if self.trace is None:
            return  # it ran eagerly
        graph = _current_graph()
        # The pass may have run in a function that encloses the current one.
        while graph is not None:
            if graph is self.trace():  # a weak reference
                return
            graph = outer_graph(graph)
        raise StaleOutputError(
            f"{type(model).__name__}.{what}() belongs to the last forward pass, which ran inside a"
            " tf.function. Call it in the same function, and return its result."
        )

    def weights(self, model: ModelV2) -> dict[str, np.ndarray[Any, Any]]:
        """Return all variables as arrays, in canonical layouts."""
        return {item.name: item.value() for item in variables_of(model)}

    def set_weights(self, model: ModelV2, weights: Mapping[str, Any]) -> None:
        """Set all variables from arrays."""
        variables = variables_of(model)
        shapes = {item.name: item.value().shape for item in variables}
        check_weights(model, shapes, weights)
        # A variable may have several arrays under different names; the last one completes it.
        arrays_of: dict[int, list[Any]] = {}
        for item in variables:
            arrays = arrays_of.setdefault(id(item.variable), [])
            arrays.append(np.asarray(weights[item.name]))
            if len(arrays) == len(item.layout.names):
                item.variable.assign(item.layout.join(*arrays))

    def weight_keys(self, model: ModelV2) -> dict[str, Hashable]:
        """Return the identity of each array of each variable by its canonical name."""
        return {item.name: (id(item.variable), item.part) for item in variables_of(model)}

    def set_frozen_weights(self, model: ModelV2, names: Collection[str]) -> None:
        """Stop the learning of these weights of a model, and of no others.

        Keras' layers then also leave their batch statistics alone.
        """
        # Setting it for a layer sets it for the layers inside, which come first.
        for layer, was_trainable in reversed(self.frozen_layers):
            layer.trainable = was_trainable
        items = [item for item in variables_of(model) if item.name in names]
        self.frozen_weights = frozenset(item.name for item in items if item.trainable)
        layers = {id(item.layer): item.layer for item in items if item.layer is not None}
        self.frozen_layers = [(layer, layer.trainable) for layer in layers.values()]
        for layer in layers.values():
            layer.trainable = False

    def batch_major(self, rows: Any, steps: int | Tensor, sequences: int | Tensor) -> Any:
        """Reorder rows `[T * B, ...]` from time-major to batch-major."""
        # Of anything else, `check_values` says later what is wrong.
        if not tf.is_tensor(rows) or not rows.shape.rank:
            return rows
        timed = tf.reshape(rows, tf.concat([[steps, sequences], tf.shape(rows)[1:]], axis=0))
        turned = tf.transpose(timed, [1, 0, *range(2, rows.shape.rank + 1)])
        return tf.ensure_shape(tf.reshape(turned, tf.shape(rows)), rows.shape)

    def padding(self, seq_lens: Tensor, rows: Tensor) -> Padding | None:
        """Return which rows are padding, or None if there is no padding."""
        return Padding.of(seq_lens, rows)


def _current_graph() -> Any:
    """Return the graph of the `tf.function` that is being traced; None in eager execution."""
    if tf.executing_eagerly():
        return None
    return tf.compat.v1.get_default_graph()


def variables_of(model: ModelV2) -> list[NamedVariable]:
    """Return a model's variables: first those in attributes, then registered ones, including those
    of its trunks.
    """
    variables = find_variables(model)
    known = {id(item.variable) for item in variables}
    # Models whose trunks to search, with the paths that lead to them.
    outer_models: list[tuple[Any, str]] = [(model, "")]
    # The list grows while the loop goes through it, because a trunk may contain another.
    for outer, path in outer_models:
        # The variables of `register_variables`.
        registered = [
            raw_variable(variable) for variable in outer._rlcatalog_bookkeeping.registered
        ]
        new_variables = [variable for variable in registered if id(variable) not in known]
        for index, variable in enumerate(new_variables):
            name = f"{path}registered.{index}"
            variables.append(NamedVariable(name, variable, AS_IT_IS, trainable=variable.trainable))
        known.update(map(id, new_variables))
        trunks = {
            "trunk": inner_model(outer),
            "value_trunk": get_submodel(outer, "value_trunk"),
            "critic": get_submodel(outer, "critic"),
        }
        for name, trunk in trunks.items():
            if not is_model(trunk):
                continue  # None, or a user's attribute of this name
            # The outer model may keep its trunk where `find_variables` does not search.
            hidden = [item for item in find_variables(trunk) if id(item.variable) not in known]
            for item in hidden:
                variables.append(item._replace(name=f"{path}_rlcatalog_{name}.{item.name}"))
            known |= {id(item.variable) for item in hidden}
            outer_models.append((trunk, f"{path}{name}."))
    return variables
