"""The LSTM and the GRU in TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from rlcatalog.frameworks import Tensor
from rlcatalog_lstm.common import AroundTrunk
from rlcatalog_lstm.config import GRU, LSTM, CellKind, CellPlan, Initial, check_lengths
from rlcatalog_tf import (
    OutputLayers,
    TFModelV2,
    add_time_dimension,
    features_of,
    initial_value,
    steps_of,
    tf,
)


class RecurrentCell:
    """Recurrent layer with a trainable bias for each gate.

    Kernels are in TensorFlow's layout `[in, gates * size]`; their canonical form is in PyTorch's
    layout.

    Args:
        cell: Sizes and initialisers of the cell.
    """

    kind: ClassVar[CellKind]

    def __init__(self, cell: CellPlan) -> None:
        self.size = cell.size
        self.kernel = tf.Variable(
            tf.transpose(_gates(cell.input_weights, (cell.size, cell.inputs))), name="kernel"
        )
        recurrent = _gates(cell.recurrent_weights, (cell.size, cell.size))
        self.recurrent = tf.Variable(tf.transpose(recurrent), name="recurrent")
        self.bias = tf.Variable(_gates(cell.biases, (cell.size,)), name="bias")

    def run(
        self,
        x: Tensor,
        states: Sequence[Tensor],
        seq_lens: Tensor | None,
        time_major: bool,
        like_steps: bool,
    ) -> tuple[Any, ...]:
        """Process sequences.

        Args:
            x: Inputs `[S * T, inputs]`, padded to equal lengths.
            states: The states `[S, size]` before the first step; the first one is the output.
            seq_lens: Lengths `[S]`, or None for single steps.
            time_major: Whether the inputs are projected as `[T, S, inputs]`.
            like_steps: Whether to process padding like steps.

        Returns:
            Outputs `[S * T, size]`, with zeros at padded places, and the states at the end of each
            sequence.

        Raises:
            ModelContractError: A length is not between 1 and T (checked only in eager mode).
        """
        # Running through the padding is faster than stopping at each sequence's end.
        if like_steps:
            assert seq_lens is not None  # such a call has sequences
            return self._sequences(x, states, seq_lens, time_major, stops=False)

        def step() -> tuple[Any, ...]:
            new_states = self._step(self._projected(x), states)
            return new_states[0], *new_states

        def sequences() -> tuple[Any, ...]:
            assert seq_lens is not None  # else it is a step
            if tf.executing_eagerly():
                check_lengths(np.asarray(seq_lens).tolist(), int(steps_of(x, seq_lens)))
            # Padding may contain NaN, which gradients would spread.
            real = tf.reshape(tf.sequence_mask(seq_lens, steps_of(x, seq_lens)), [-1, 1])
            return self._sequences(tf.where(real, x, 0.0), states, seq_lens, time_major)

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
        """Return the inputs' share of the gates, `[B, gates * size]`."""
        return tf.nn.bias_add(tf.matmul(x, self.kernel), self.bias)

    def _step(self, projected: Tensor, states: Sequence[Tensor]) -> tuple[Any, ...]:
        """Return the states after one step."""
        raise NotImplementedError

    def _sequences(
        self,
        x: Tensor,
        states: Sequence[Tensor],
        seq_lens: Tensor,
        time_major: bool,
        stops: bool = True,
    ) -> tuple[Any, ...]:
        """Process sequences of any length; with `stops`, each state stays constant after its
        sequence ends.
        """
        width = self.kind.gates * self.size
        if time_major:
            timed = add_time_dimension(x, seq_lens, time_major=True)
            rows = tf.reshape(timed, [-1, x.shape[1]])
            shape = tf.concat([tf.shape(timed)[:2], [width]], axis=0)
            projected = tf.reshape(self._projected(rows), shape)
        else:
            projected = add_time_dimension(self._projected(x), seq_lens, time_major=True)
        steps = tf.shape(projected)[0]
        # Use arrays: the gradient of a tensor's slice is as large as the tensor, at every step.
        inputs = tf.TensorArray(tf.float32, steps, element_shape=[None, width])
        inputs = inputs.unstack(projected)
        outputs = tf.TensorArray(tf.float32, steps, element_shape=[None, self.size])
        lengths = tf.cast(seq_lens, tf.int32)[:, None]

        def body(t: Tensor, outputs: tf.TensorArray, *states: Tensor) -> tuple[Any, ...]:
            new_states = self._step(inputs.read(t), states)
            output = new_states[0]
            if not stops:
                return t + 1, outputs.write(t, output), *new_states
            is_running = t < lengths
            outputs = outputs.write(t, tf.where(is_running, output, 0.0))
            pairs = zip(new_states, states, strict=True)
            kept_states = [tf.where(is_running, new, old) for new, old in pairs]
            return t + 1, outputs, *kept_states

        # In a trace, the number of rows may be unknown.
        shapes_of_states = [tf.TensorShape([None, self.size]) for _ in states]
        _, outputs, *states = tf.while_loop(
            lambda t, *_: t < steps,
            body,
            (tf.constant(0), outputs, *states),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape(None), *shapes_of_states),
        )
        by_sequence = tf.transpose(outputs.stack(), [1, 0, 2])
        return tf.reshape(by_sequence, [-1, self.size]), *states


class LSTMCell(RecurrentCell):
    """LSTM layer (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al.) with a single
    bias or, with `lstm_two_biases`, with two.

    The gates are in the order input, forget, cell, output.

    Args:
        cell: Sizes and initialisers of the cell.
    """

    kind = LSTM

    def __init__(self, cell: CellPlan) -> None:
        super().__init__(cell)
        self.bias_hh: Any = None
        if cell.has_two_biases:
            self.bias_hh = tf.Variable(_gates(cell.biases, (cell.size,)), name="bias_hh")

    def __call__(
        self,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        seq_lens: Tensor | None,
        time_major: bool,
        like_steps: bool = False,
    ) -> tuple[Any, ...]:
        """Process sequences from their outputs `h` and cell states `c` on; see
        `RecurrentCell.run`.
        """
        return self.run(x, (h, c), seq_lens, time_major, like_steps)

    def canonical(self) -> Iterator[tuple[str, Any, tuple[int, ...] | None]]:
        """Yield the canonical name, the variable, and its axis order in the canonical layout."""
        yield from super().canonical()
        if self.bias_hh is not None:
            yield "bias_hh", self.bias_hh, None

    def _projected(self, x: Tensor) -> Any:
        """Return the inputs' share of the gates, with both biases."""
        projected = super()._projected(x)
        if self.bias_hh is None:
            return projected
        return projected + self.bias_hh

    def _step(self, projected: Tensor, states: Sequence[Tensor]) -> tuple[Any, ...]:
        h, c = states
        i, f, g, o = tf.split(projected + tf.matmul(h, self.recurrent), 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return tf.sigmoid(o) * tf.tanh(c), c


class GRUCell(RecurrentCell):
    """GRU layer (Cho et al. 2014, with the reset gate after the matrix product, as in Keras'
    `reset_after` and in torch.nn.GRU).

    The gates are in the order reset, update, new. The new gate has a second bias, which the reset
    gate multiplies.

    Args:
        cell: Sizes and initialisers of the cell.
    """

    kind = GRU

    def __init__(self, cell: CellPlan) -> None:
        super().__init__(cell)
        self.bias_hn = tf.Variable(_gates(cell.biases[2:], (cell.size,)), name="bias_hn")

    def __call__(
        self,
        x: Tensor,
        h: Tensor,
        seq_lens: Tensor | None,
        time_major: bool,
        like_steps: bool = False,
    ) -> tuple[Any, ...]:
        """Process sequences from their outputs `h` on; see `RecurrentCell.run`."""
        return self.run(x, (h,), seq_lens, time_major, like_steps)

    def canonical(self) -> Iterator[tuple[str, Any, tuple[int, ...] | None]]:
        """Yield the canonical name, the variable, and its axis order in the canonical layout."""
        yield from super().canonical()
        yield "bias_hn", self.bias_hn, None

    def _step(self, projected: Tensor, states: Sequence[Tensor]) -> tuple[Any, ...]:
        (h,) = states
        x_reset, x_update, x_new = tf.split(projected, 3, axis=1)
        h_reset, h_update, h_new = tf.split(tf.matmul(h, self.recurrent), 3, axis=1)
        reset = tf.sigmoid(x_reset + h_reset)
        update = tf.sigmoid(x_update + h_update)
        new = tf.tanh(x_new + reset * (h_new + self.bias_hn))
        return ((1.0 - update) * new + update * h,)


class _Wrapper(AroundTrunk, TFModelV2):
    """Recurrent cells around a trunk, followed by logits and a value; see `AroundTrunk`."""

    list_class = list
    outputs_class = OutputLayers

    def _inputs(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any], Any]:
        """Return the first cell's inputs, the state, and the sequence lengths (None for single
        steps).
        """
        x, _ = features_of(self.trunk, input_dict, state=[], seq_lens=None)
        if self.past.width:
            # The views are the past action, if the cell reads it, and then the past reward, if so.
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
            state = [zeros] * self.num_states
        if input_dict.get("single_steps"):
            return x, state, None
        return x, state, seq_lens

    def get_initial_state(self) -> list[Any]:
        """Return the states at the start of an episode: zeros `[cell]`."""
        return [tf.zeros(self.cell.size) for _ in range(self.num_states)]


class LSTMWrapper(_Wrapper):
    """LSTM around a trunk, followed by logits and a value; see `AroundTrunk`."""

    kind = LSTM
    cell_class = LSTMCell


class GRUWrapper(_Wrapper):
    """GRU around a trunk, followed by logits and a value; see `AroundTrunk`."""

    kind = GRU
    cell_class = GRUCell


def _gates(initial: Sequence[Initial], shape: tuple[int, ...]) -> Any:
    """Return the initial values for all gates, concatenated to `[gates * shape[0], ...]`."""
    is_bias = len(shape) == 1
    inputs = shape[0] if is_bias else None
    gates = []
    for initializer in initial:
        gates.append(initial_value(shape, initializer.name, initializer.config, inputs))
    return tf.concat(gates, axis=0)
