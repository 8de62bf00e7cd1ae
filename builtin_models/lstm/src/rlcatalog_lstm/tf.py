"""The LSTM in TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

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
        self, x: Any, h: Any, c: Any, seq_lens: Any, time_major: bool, like_steps: bool = False
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
            return self._sequences(x, h, c, seq_lens, time_major, stops=False)

        def step() -> tuple[Any, Any, Any]:
            new_h, new_c = self._step(self._projected(x), h, c)
            return new_h, new_h, new_c

        def sequences() -> tuple[Any, Any, Any]:
            if tf.executing_eagerly():
                check_lengths(np.asarray(seq_lens).tolist(), int(steps_of(x, seq_lens)))
            # Padding may contain NaN, which gradients would spread.
            real = tf.reshape(tf.sequence_mask(seq_lens, steps_of(x, seq_lens)), [-1, 1])
            return self._sequences(tf.where(real, x, 0.0), h, c, seq_lens, time_major)

        if seq_lens is None:
            return step()
        rows, sequences_given = x.shape[0], seq_lens.shape[0]
        if rows is not None and sequences_given is not None:
            return step() if rows == sequences_given else sequences()
        return tf.cond(tf.equal(tf.shape(x)[0], tf.shape(seq_lens)[0]), step, sequences)  # type: ignore[no-any-return]

    def canonical(self) -> Iterator[tuple[str, Any, tuple[int, ...] | None]]:
        """Yield the canonical name, the variable, and its axis order in the canonical layout."""
        yield "weight_ih", self.kernel, (1, 0)
        yield "weight_hh", self.recurrent, (1, 0)
        yield "bias", self.bias, None

    def _projected(self, x: Any) -> Any:
        return tf.nn.bias_add(tf.matmul(x, self.kernel), self.bias)

    def _step(self, projected: Any, h: Any, c: Any) -> tuple[Any, Any]:
        i, f, g, o = tf.split(projected + tf.matmul(h, self.recurrent), 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return tf.sigmoid(o) * tf.tanh(c), c

    def _sequences(
        self, x: Any, h: Any, c: Any, seq_lens: Any, time_major: bool, stops: bool = True
    ) -> tuple[Any, Any, Any]:
        """Process sequences of any length; with `stops`, each state stays constant after its
        sequence ends.
        """
        if time_major:
            timed = add_time_dimension(x, seq_lens, time_major=True)
            shape = tf.concat([tf.shape(timed)[:2], [4 * self.size]], axis=0)
            projected = tf.reshape(self._projected(tf.reshape(timed, [-1, x.shape[1]])), shape)
        else:
            projected = add_time_dimension(self._projected(x), seq_lens, time_major=True)
        steps = tf.shape(projected)[0]
        # Use arrays: the gradient of a tensor's slice is as large as the tensor, at every step.
        inputs = tf.TensorArray(tf.float32, steps, element_shape=[None, 4 * self.size]).unstack(
            projected
        )
        outputs = tf.TensorArray(tf.float32, steps, element_shape=[None, self.size])
        lengths = tf.cast(seq_lens, tf.int32)[:, None]

        def body(t: Any, h: Any, c: Any, outputs: Any) -> tuple[Any, ...]:
            new_h, new_c = self._step(inputs.read(t), h, c)
            if not stops:
                return t + 1, new_h, new_c, outputs.write(t, new_h)
            running = t < lengths
            outputs = outputs.write(t, tf.where(running, new_h, 0.0))
            return t + 1, tf.where(running, new_h, h), tf.where(running, new_c, c), outputs

        rows = tf.TensorShape([None, self.size])
        _, h, c, outputs = tf.while_loop(
            lambda t, *_: t < steps,
            body,
            (tf.constant(0), h, c, outputs),
            shape_invariants=(tf.TensorShape([]), rows, rows, tf.TensorShape(None)),
        )
        return tf.reshape(tf.transpose(outputs.stack(), [1, 0, 2]), [-1, self.size]), h, c


class LSTMWrapper(AroundTrunk, TFModelV2):
    """LSTM around a trunk, followed by logits and a value; see `AroundTrunk`."""

    cell_class, outputs_class = LSTMCell, OutputLayers

    def _inputs(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Any, list[Any], Any]:
        x, _ = features_of(self.trunk, input_dict, [], None)
        if self.past.width:
            widths = [
                width for width in (self.past.width - self.past.rewards, self.past.rewards) if width
            ]
            views = zip(self.past.of_input(input_dict), widths, strict=True)
            past = [tf.reshape(tf.cast(view, tf.float32), [-1, width]) for view, width in views]
            x = tf.concat([x, *past], axis=1)
        sequences = tf.shape(x if seq_lens is None else seq_lens)[0]
        state = [tf.cast(part, tf.float32) for part in state] or [
            tf.zeros([sequences, self.cell.size])
        ] * 2
        return x, state, None if input_dict.get("single_steps") else seq_lens

    def get_initial_state(self) -> list[Any]:
        """Return `[h, c]` at the start of an episode: zeros `[cell]`."""
        return [tf.zeros(self.cell.size) for _ in range(2)]


def _gates(initial: Sequence[Initial], shape: tuple[int, ...]) -> Any:
    """Return the initial values for all gates, concatenated to `[4 * shape[0], ...]`."""
    inputs = shape[0] if len(shape) == 1 else None
    return tf.concat(
        [initial_value(shape, one.name, one.config, inputs) for one in initial], axis=0
    )
