"""Plain Keras layers as memories."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from rlcatalog.errors import CatalogError, ModelContractError, raised_as
from rlcatalog.frameworks import Tensor, TensorTree
from rlcatalog_plain.memory.common import Memory
from rlcatalog_plain.tf import KerasSource
from rlcatalog_tf import (
    OutputLayers,
    TFModelV2,
    add_time_dimension,
    features_of,
    keras,
    raw_variable,
    steps_of,
    tf,
)


class PlainMemory(KerasSource, Memory, TFModelV2):
    """Recurrent layer, or layer with a state, after a trunk; see `Memory`."""

    outputs_class = OutputLayers
    expected = (
        "keras.layers.GRU, LSTM, SimpleRNN or RNN, a cell such as keras.layers.GRUCell, or a layer"
        " with initial_state(batch_size), and call(x, state) -> (y, state) for one step"
    )

    def trunk_features(self, input_dict: dict[str, Any]) -> Any:
        """Return the trunk's features `[S * T, n]`."""
        features, _ = features_of(self.trunk, input_dict, state=[], seq_lens=None)
        return features

    def start(self, like: Tensor) -> list[Any]:
        """Return the state vectors `[S, n]` at the start of episodes."""
        rows = tf.shape(like)[0]
        return [tf.tile(vector[None], [rows, 1]) for vector in self.get_initial_state()]

    def run(
        self,
        x: Tensor,
        state: list[Any],
        seq_lens: Tensor | None,
        like_steps: bool,
        training: bool,
    ) -> tuple[Any, list[Any]]:
        """Run the module; see `Memory.run`."""
        begin = self._stored(state)

        def step() -> tuple[Any, list[Any]]:
            return self._step(x, begin, training)

        def sequences() -> tuple[Any, list[Any]]:
            assert seq_lens is not None  # else it is a step
            return self._sequences(x, begin, seq_lens, like_steps, training)

        if seq_lens is None:
            return step()
        # Sequences of one step each. A trace may not know the numbers of rows and sequences yet.
        row_count = x.shape[0]
        sequence_count = seq_lens.shape[0]
        if row_count is None or sequence_count is None:
            are_single_steps = tf.equal(tf.shape(x)[0], tf.shape(seq_lens)[0])
            return tf.cond(are_single_steps, step, sequences)  # type: ignore[no-any-return]
        if row_count == sequence_count:
            return step()
        return sequences()

    def _stored(self, vectors: Sequence[Tensor]) -> list[Any]:
        """Return state vectors `[S, n]` in the dtypes in which they are stored: floats as
        float32.
        """
        stored = []
        for leaf, vector in zip(self.layout.leaves, vectors, strict=True):
            dtype = tf.float32 if leaf.dtype.is_floating else leaf.dtype
            stored.append(tf.cast(vector, dtype))
        return stored

    def _step(self, x: Tensor, vectors: list[Any], training: bool) -> tuple[Any, list[Any]]:
        """Return the features and the state vectors after one step."""
        tensors = []
        for leaf, vector in zip(self.layout.leaves, vectors, strict=True):
            tensors.append(tf.reshape(tf.cast(vector, leaf.dtype), [-1, *leaf.shape]))
        y, new_state = _call_step(self.module, x, self.layout.state(tensors), training)
        return tf.cast(y, tf.float32), self._stored(self.layout.vectors(new_state))

    def _sequences(
        self,
        x: Tensor,
        vectors: list[Any],
        seq_lens: Tensor,
        like_steps: bool,
        training: bool,
    ) -> tuple[Any, list[Any]]:
        """Process sequences of any length; unless padding counts as steps, each state stays
        constant after its sequence ends.
        """
        if not like_steps:
            # Padding may contain NaN, which gradients would spread.
            is_real = tf.reshape(tf.sequence_mask(seq_lens, steps_of(x, seq_lens)), [-1, 1])
            x = tf.where(is_real, x, 0.0)
        timed = add_time_dimension(x, seq_lens, time_major=True)
        steps = tf.shape(timed)[0]
        # Use arrays: the gradient of a tensor's slice is as large as the tensor, at every step.
        inputs = tf.TensorArray(tf.float32, steps, element_shape=[None, self._trunk_width])
        inputs = inputs.unstack(timed)
        outputs = tf.TensorArray(tf.float32, steps, element_shape=[None, self.module_width])
        lengths = tf.cast(seq_lens, tf.int32)[:, None]

        def body(t: Tensor, outputs: tf.TensorArray, *vectors: Tensor) -> tuple[Any, ...]:
            y, new_vectors = self._step(inputs.read(t), list(vectors), training)
            if like_steps:
                return t + 1, outputs.write(t, y), *new_vectors
            is_running = t < lengths
            outputs = outputs.write(t, tf.where(is_running, y, 0.0))
            kept = []
            for new, old in zip(new_vectors, vectors, strict=True):
                kept.append(tf.where(is_running, new, old))
            return t + 1, outputs, *kept

        # In a trace, the number of rows may be unknown.
        shapes_of_vectors = [tf.TensorShape([None, vector.shape[1]]) for vector in vectors]
        _, outputs, *vectors = tf.while_loop(
            lambda t, *_: t < steps,
            body,
            (tf.constant(0), outputs, *vectors),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape(None), *shapes_of_vectors),
        )
        by_sequence = tf.transpose(outputs.stack(), [1, 0, 2])
        return tf.reshape(by_sequence, [-1, self.module_width]), list(vectors)

    # --- the module -------------------------------------------------------------------------------

    def check_module(self) -> None:
        """Raise an error unless the layer is a memory that fits the trunk, and build it."""
        module = self.module
        if isinstance(module, keras.layers.Bidirectional):
            raise self.not_served(
                "both directions", "While acting, the future is unknown: pass the layer inside it."
            )
        if isinstance(module, keras.layers.RNN):
            if module.stateful:
                raise self.not_served(
                    "stateful=True", "The policy keeps the state of each episode: leave it out."
                )
            if module.go_backwards:
                raise self.not_served(
                    "go_backwards=True", "While acting, the future is unknown: leave it out."
                )
            self._check_cell(module.cell)
            self._build(input_shape=(None, None, self._trunk_width))
        elif _is_cell(module):
            self._check_cell(module)
            self._build(input_shape=(None, self._trunk_width))
        elif not callable(getattr(module, "initial_state", None)):  # a user's layer
            raise self.no_memory()

    def _check_cell(self, cell: Any) -> None:
        """Raise an error unless a cell can be used, and takes inputs of the trunk's width."""
        cells = [cell]
        if isinstance(cell, keras.layers.StackedRNNCells):
            cells = cell.cells
        for inner in cells:
            # Keras' cells have these attributes; a user's cell may not.
            rates = [getattr(inner, name, 0.0) for name in ("dropout", "recurrent_dropout")]
            if any(rates):
                raise self.not_served(
                    "dropout", "Put a Dropout layer into the trunk, or leave it out."
                )
        # A cell without weights, or a user's cell, has none.
        kernel = getattr(cells[0], "kernel", None)
        if kernel is not None:
            self.refuse_width(int(kernel.shape[0]))

    def _build(self, input_shape: tuple[int | None, ...]) -> None:
        """Create the layer's weights, unless it has them."""
        if self.module.built:
            return
        name = type(self).__name__
        with raised_as(
            lambda why: ModelContractError(
                f"memory: {name} cannot be built for {self._trunk_width} features: it raised {why}."
            ),
            CatalogError,
        ):
            self.module.build(input_shape)

    def initial_state(self, rows: int) -> Any:
        """Return the module's state at the start of episodes, with a row for each."""
        module = self.module
        if isinstance(module, keras.layers.RNN):
            return module.get_initial_state(rows)
        if _is_cell(module):
            return module.get_initial_state(batch_size=rows)
        return module.initial_state(rows)

    def try_step(self, state: TensorTree, rows: int) -> Any:
        """Run the layer for one step on zeros, in inference mode, and restore its variables."""
        module = self.module
        x = tf.zeros([rows, self._trunk_width])
        # A layer that is not built yet creates its variables in the call; these are kept.
        variables = [raw_variable(variable) for variable in module.variables]
        values = [variable.numpy() for variable in variables]
        result = _call_step(module, x, state, training=False)
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        return result

    def is_trained(self, state: TensorTree) -> bool:
        """Return whether weights of the module are in a state."""
        with tf.GradientTape() as tape:
            self.initial_state(rows=1)
        return bool(tape.watched_variables())

    def first_arguments(
        self, signature: inspect.Signature, keywords: Mapping[str, Any]
    ) -> list[Any]:
        """Return the width of the trunk's features, if the class or factory takes it; Keras'
        recurrent layers and cells see it in their first call.
        """
        code: Any = self.source
        if isinstance(code, functools.partial):
            code = code.func
        if isinstance(code, type) and issubclass(code, (keras.layers.RNN, *_cell_classes())):
            return []
        return super().first_arguments(signature, keywords)


def _cell_classes() -> tuple[type, ...]:
    """Return Keras' classes of recurrent cells."""
    layers = keras.layers
    return layers.GRUCell, layers.LSTMCell, layers.SimpleRNNCell, layers.StackedRNNCells


def _is_cell(module: Any) -> bool:
    """Return whether a layer is a recurrent cell as Keras' RNN takes it."""
    # A user's layer may lack them.
    return hasattr(module, "state_size") and callable(getattr(module, "get_initial_state", None))


def _call_step(module: Any, x: Tensor, state: Any, training: bool) -> Any:
    """Return a layer's output and new state for one step."""
    cell = module
    if isinstance(module, keras.layers.RNN):
        cell = module.cell
    elif not _is_cell(module):
        return module(x, state, training=training)
    y, new_state = cell(x, state, training=training)
    # Stacked cells return the state of a cell without the list around it.
    return y, tf.nest.pack_sequence_as(state, tf.nest.flatten(new_state))
