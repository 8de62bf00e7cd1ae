"""The LSTM in TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlcatalog.frameworks import Tensor
from rlcatalog_lstm.common import AroundTrunk
from rlcatalog_lstm.config import CellPlan, Initial, check_lengths
from rlcatalog_tf import (
    OutputLayers,
    TFModelV2,
    add_time_dimension,
    features_of,
    initial_value,
    steps_of,
    tf,
)


class LSTMCell:
    """LSTM layer with a single bias (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et
    al.).

    The gates are in the order input, forget, cell, output. Kernels are in TensorFlow's layout
    `[in, 4 size]`; their canonical form is in PyTorch's layout.

    Args:
        cell: Sizes and initialisers of the cell.
    """

    def __init__(self, cell: CellPlan) -> None:
        self.size = cell.size
        self.kernel = tf.Variable(
            tf.transpose(_gates(cell.input_weights, (cell.size, cell.inputs))), name="kernel"
        )
        recurrent = _gates(cell.recurrent_weights, (cell.size, cell.size))
        self.recurrent = tf.Variable(tf.transpose(recurrent), name="recurrent")
        self.bias = tf.Variable(_gates(cell.biases, (cell.size,)), name="bias")

    def __call__(
        self,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        seq_lens: Tensor | None,
        time_major: bool,
        like_steps: bool = False,
    ) -> tuple[Any, Any, Any]:
        """Process sequences.

        Args:
            x: Inputs `[S * T, inputs]`, padded to equal lengths.
            h: Outputs `[S, size]` before the first step.
            c: Cell states `[S, size]` before the first step.
            seq_lens: Lengths `[S]`, or None for single steps.
            time_major: Whether the inputs are projected as `[T, S, inputs]`.
            like_steps: Whether to process padding like steps.

        Returns:
            Outputs `[S * T, size]`, with zeros at padded places, and both states at the end of each
            sequence.

        Raises:
            ModelContractError: A length is not between 1 and T (checked only in eager mode).
        """
        # Running through the padding is faster than stopping at each sequence's end.
        if like_steps:
            assert seq_lens is not None  # such a call has sequences
            return self._sequences(x, h, c, seq_lens, time_major, stops=False)

        def step() -> tuple[Any, Any, Any]:
            new_h, new_c = self._step(self._projected(x), h, c)
            return new_h, new_h, new_c

        def sequences() -> tuple[Any, Any, Any]:
            assert seq_lens is not None  # else it is a step
            if tf.executing_eagerly():
                check_lengths(np.asarray(seq_lens).tolist(), int(steps_of(x, seq_lens)))
            # Padding may contain NaN, which gradients would spread.
            real = tf.reshape(tf.sequence_mask(seq_lens, steps_of(x, seq_lens)), [-1, 1])
            return self._sequences(tf.where(real, x, 0.0), h, c, seq_lens, time_major)

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

    def canonical(self) -> Iterator[tuple[str, Any, tuple[int, ...] | None]]:
        """Yield the canonical name, the variable, and its axis order in the canonical layout."""
        yield "weight_ih", self.kernel, (1, 0)
        yield "weight_hh", self.recurrent, (1, 0)
        yield "bias", self.bias, None

    def _projected(self, x: Tensor) -> Any:
        """Return the inputs' share of the gates, `[B, 4 size]`."""
        return tf.nn.bias_add(tf.matmul(x, self.kernel), self.bias)

    def _step(self, projected: Tensor, h: Tensor, c: Tensor) -> tuple[Any, Any]:
        """Return both states after one step."""
        i, f, g, o = tf.split(projected + tf.matmul(h, self.recurrent), 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return tf.sigmoid(o) * tf.tanh(c), c

    def _sequences(
        self,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        seq_lens: Tensor,
        time_major: bool,
        stops: bool = True,
    ) -> tuple[Any, Any, Any]:
        """Process sequences of any length; with `stops`, each state stays constant after its
        sequence ends.
        """
        if time_major:
            timed = add_time_dimension(x, seq_lens, time_major=True)
            rows = tf.reshape(timed, [-1, x.shape[1]])
            shape = tf.concat([tf.shape(timed)[:2], [4 * self.size]], axis=0)
            projected = tf.reshape(self._projected(rows), shape)
        else:
            projected = add_time_dimension(self._projected(x), seq_lens, time_major=True)
        steps = tf.shape(projected)[0]
        # Use arrays: the gradient of a tensor's slice is as large as the tensor, at every step.
        inputs = tf.TensorArray(tf.float32, steps, element_shape=[None, 4 * self.size])
        inputs = inputs.unstack(projected)
        outputs = tf.TensorArray(tf.float32, steps, element_shape=[None, self.size])
        lengths = tf.cast(seq_lens, tf.int32)[:, None]

        def body(t: Tensor, h: Tensor, c: Tensor, outputs: tf.TensorArray) -> tuple[Any, ...]:
            new_h, new_c = self._step(inputs.read(t), h, c)
            if not stops:
                return t + 1, new_h, new_c, outputs.write(t, new_h)
            is_running = t < lengths
            outputs = outputs.write(t, tf.where(is_running, new_h, 0.0))
            h = tf.where(is_running, new_h, h)
            c = tf.where(is_running, new_c, c)
            return t + 1, h, c, outputs

        # In a trace, the number of rows may be unknown.
        shape_of_state = tf.TensorShape([None, self.size])
        _, h, c, outputs = tf.while_loop(
            lambda t, *_: t < steps,
            body,
            (tf.constant(0), h, c, outputs),
            shape_invariants=(
                tf.TensorShape([]),
                shape_of_state,
                shape_of_state,
                tf.TensorShape(None),
            ),
        )
        by_sequence = tf.transpose(outputs.stack(), [1, 0, 2])
        return tf.reshape(by_sequence, [-1, self.size]), h, c


class LSTMWrapper(AroundTrunk, TFModelV2):
    """LSTM around a trunk, followed by logits and a value; see `AroundTrunk`."""

    cell_class = LSTMCell
    outputs_class = OutputLayers

    def _inputs(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any], Any]:
        """Return the cell's inputs, its state, and the sequence lengths (None for single steps)."""
        x, _ = features_of(self.trunk, input_dict, state=[], seq_lens=None)
        if self.past.width:
            # The views are the past action, if the LSTM reads it, and then the past reward, if so.
            action_width = self.past.width - self.past.rewards
            widths = [width for width in (action_width, self.past.rewards) if width]
            columns = [x]
            for view, width in zip(self.past.of_input(input_dict), widths, strict=True):
                columns.append(tf.reshape(tf.cast(view, tf.float32), [-1, width]))
            x = tf.concat(columns, axis=1)
        if state:
            state = [tf.cast(values, tf.float32) for values in state]
        else:
            sequences = tf.shape(x if seq_lens is None else seq_lens)[0]
            zeros = tf.zeros([sequences, self.cell.size])
            state = [zeros, zeros]
        if input_dict.get("single_steps"):
            return x, state, None
        return x, state, seq_lens

    def get_initial_state(self) -> list[Any]:
        """Return `[h, c]` at the start of an episode: zeros `[cell]`."""
        return [tf.zeros(self.cell.size) for _ in range(2)]


def _gates(initial: Sequence[Initial], shape: tuple[int, ...]) -> Any:
    """Return the initial values for all gates, concatenated to `[4 * shape[0], ...]`."""
    is_bias = len(shape) == 1
    inputs = shape[0] if is_bias else None
    gates = []
    for initializer in initial:
        gates.append(initial_value(shape, initializer.name, initializer.config, inputs))
    return tf.concat(gates, axis=0)
