"""The gated transformer (GTrXL) in TensorFlow, around a trunk and standalone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlcatalog_attention.common import AroundTrunk, ByItself, TransformerModel
from rlcatalog_attention.config import EPSILON, AttentionConfig, distances
from rlcatalog_tf import (
    OPS,
    Dense,
    DenseStack,
    OutputLayers,
    TFModelV2,
    features_of,
    initial_value,
    sequence_mask,
    steps_of,
    tf,
)

#: Canonical names, variables, and the axes that turn a value into the canonical layout.
Names = Iterator[tuple[str, Any, tuple[int, ...] | None]]


class Transformer:
    """Linear layer and gated transformer units, with a memory of the last steps.

    Args:
        inputs: Width of the input.
        sizes: Sizes of the transformer.
    """

    def __init__(self, inputs: int, sizes: AttentionConfig) -> None:
        self.sizes, self.slots = sizes, sizes.slots
        self.input = Dense(inputs, sizes.input)
        self.units = [Unit(sizes) for _ in range(sizes.attention_num_transformer_units)]
        self.table = distances(self.slots, sizes.attention_dim)

    def initial_state(self) -> list[Any]:
        """Return the initial state of an episode: the memory `[units, slots, dim]` and the number
        of steps in it.
        """
        return [
            tf.zeros([len(self.units), self.slots, self.sizes.attention_dim]),
            tf.zeros([], tf.int32),
        ]

    def __call__(
        self, rows: Any, state: list[Any], seq_lens: Any, training: bool, outputs_only: bool
    ) -> tuple[Any, list[Any]]:
        """Process sequences.

        Args:
            rows: Inputs `[S * T, inputs]`.
            state: Memory `[S, units, slots, dim]` with the newest step last, and the number of
                steps in it `[S]`; empty at the start of episodes. Unused slots have no influence,
                but must not contain NaN.
            seq_lens: Lengths `[S]`; None if each row is a sequence, in which case most shapes are
                static.
            training: Whether to use the training window instead of the acting window.
            outputs_only: Whether only the outputs are needed.

        Returns:
            Outputs `[S * T, dim]`, and the state at the end of each sequence, or nothing with
            `outputs_only`.
        """
        length: Any = 1
        sequences = tf.shape(rows)[0]
        if seq_lens is not None:
            seq_lens = tf.cast(seq_lens, tf.int32)
            sequences, length = tf.shape(seq_lens)[0], steps_of(rows, seq_lens)
        if not state:
            state = [tf.repeat(part[None], sequences, axis=0) for part in self.initial_state()]
        memory, held = tf.stop_gradient(tf.cast(state[0], tf.float32)), tf.cast(state[1], tf.int32)
        x = self.input(rows)
        slots, window = self.slots, self.sizes.window(training)
        start, keys = slots - window, length + window
        unused = tf.range(slots + length) < (slots - held)[:, None]  # [S, slots + T]
        # The keys are the window's slots, then the steps. Step t sees the keys t, …, t + window,
        # where the last key is step t itself.
        later = tf.range(keys) - tf.range(length)[:, None]
        hidden = (later < 0) | (later > window) | unused[:, None, start:]
        windows = []
        for index, unit in enumerate(self.units):
            steps = tf.reshape(x, [-1, length, self.sizes.attention_dim])
            seen = tf.concat([memory[:, index], steps], axis=1)
            windows.append(seen)
            # A slice from 0 on would cost a copy in the gradient.
            x = unit(
                x,
                unit.attention(
                    seen[:, start:] if start else seen, hidden, self.table[start:], length
                ),
            )
        if outputs_only:
            return x, []
        kept = tf.stop_gradient(tf.stack(windows, axis=1))
        if seq_lens is None:
            kept, taken = kept[:, :, 1:], 1
        else:  # the slots up to the end of each sequence
            last, taken = seq_lens[:, None] + tf.range(slots), seq_lens
            kept = tf.gather(
                kept, tf.repeat(last[:, None], len(self.units), axis=1), axis=2, batch_dims=2
            )
        # a trace would forget it.
        kept.set_shape([None, len(self.units), slots, self.sizes.attention_dim])
        return x, [kept, tf.minimum(held + taken, slots)]


class Unit:
    """Transformer unit: attention and dense layers, each with a gate."""

    def __init__(self, sizes: AttentionConfig) -> None:
        dim, bias = sizes.attention_dim, sizes.attention_init_gru_gate_bias
        self.attention = Attention(sizes)
        self.attention_gate = Gate(dim, bias)
        self.norm = LayerNorm(dim)
        self.mlp = DenseStack(dim, sizes.mlp)
        self.mlp_gate = Gate(dim, bias)

    def __call__(self, x: Any, attended: Any) -> Any:
        """Map the unit's input and the attention's output to the unit's output; all have shape
        `[B, dim]`.
        """
        x = self.attention_gate(x, attended)
        return self.mlp_gate(x, self.mlp(self.norm(x)))


class Attention:
    """Multi-head attention with relative positions and without biases, between a layer
    normalisation and a ReLU.
    """

    def __init__(self, sizes: AttentionConfig) -> None:
        self.heads, self.head_dim = sizes.attention_num_heads, sizes.attention_head_dim
        self.dim, inner = sizes.attention_dim, self.heads * self.head_dim
        self.query, self.key, self.value, self.position = (
            _matrix(inner, self.dim) for _ in range(4)
        )
        self.output = _matrix(self.dim, inner)
        self.content_bias, self.position_bias = (
            tf.Variable(initial_value((self.heads, self.head_dim), "xavier_uniform", {}))
            for _ in range(2)
        )
        self.norm = LayerNorm(self.dim)

    def __call__(self, seen: Any, hidden: Any, table: Any, length: Any) -> Any:
        """Compute the attention for each step of the sequences.

        Args:
            seen: The window's slots, followed by the steps, `[S, K, dim]`.
            hidden: Mask of the keys that are hidden from each step, `[S, T, K]`.
            table: Sinusoids for the distances window, …, 0.
            length: T.
        """
        keys = length + len(table) - 1
        normal = self.norm(seen)
        query = self._project(normal[:, keys - length :], self.query, length)
        content, rows = (_by_head(query + bias) for bias in (self.content_bias, self.position_bias))
        key, value = (
            _by_head(self._project(normal, weight, keys)) for weight in (self.key, self.value)
        )
        position = tf.squeeze(_by_head(self._project(table[None], self.position, len(table))), 1)
        # Column c of a row stands for the distance window - c, and step t finds it at the key t +
        # c. Padding each row by T and reshaping to rows of K does this: it shifts each row one
        # place further than the row before. Do not broadcast batch axes in products: TensorFlow
        # 2.21 with oneDNN then writes outside its memory.
        rows = tf.reshape(rows, [self.heads, -1, self.head_dim])
        scores = tf.pad(tf.matmul(rows, position, transpose_b=True), [[0, 0], [0, 0], [0, length]])
        scores = tf.reshape(scores, [self.heads, -1, length * (keys + 1)])[..., : length * keys]
        scores = tf.reshape(scores, [self.heads, -1, length, keys])
        scores += tf.matmul(content, key, transpose_b=True)
        weights = tf.nn.softmax(tf.where(hidden, scores.dtype.min, scores * self.head_dim**-0.5))
        found = tf.transpose(tf.matmul(weights, value), [1, 2, 0, 3])
        return tf.nn.relu(
            tf.matmul(tf.reshape(found, [-1, self.heads * self.head_dim]), self.output)
        )

    def _project(self, x: Any, weight: Any, length: Any) -> Any:
        """Project `[S, K, dim]` to `[S, K, heads, head_dim]`."""
        x = tf.matmul(tf.reshape(x, [-1, self.dim]), weight)
        return tf.reshape(x, [-1, length, self.heads, self.head_dim])

    def canonical(self) -> Names:
        """Yield the variables with their canonical names and axes; see `rlcatalog_tf.nn.Dense`."""
        for name in ("query", "key", "value", "position", "output"):
            yield name, getattr(self, name), (1, 0)
        yield "content_bias", self.content_bias, None
        yield "position_bias", self.position_bias, None
        yield "norm.weight", self.norm.weight, None
        yield "norm.bias", self.norm.bias, None


class Gate:
    """GRU-style gate that combines the stream x with a sublayer's output y.

    `w` maps y to r, z and the candidate, with columns in this order. `u` maps x to r and z;
    `u_candidate` maps r·x.
    """

    def __init__(self, dim: int, bias: float) -> None:
        self.dim = dim
        self.w, self.u = (
            tf.Variable(tf.concat([_initial_matrix(dim, dim) for _ in range(n)], axis=1))
            for n in (3, 2)
        )
        self.u_candidate = _matrix(dim, dim)
        self.bias = tf.Variable(tf.fill([dim], float(bias)))

    def __call__(self, x: Any, y: Any) -> Any:
        """Combine two tensors `[B, dim]` into one."""
        gates, candidate = tf.split(tf.matmul(y, self.w), [2 * self.dim, self.dim], axis=1)
        r, z = tf.split(gates + tf.matmul(x, self.u), 2, axis=1)
        candidate = tf.tanh(candidate + tf.matmul(tf.sigmoid(r) * x, self.u_candidate))
        return x + tf.sigmoid(z - self.bias) * (candidate - x)

    def canonical(self) -> Names:
        """Yield the variables with their canonical names and axes; see `rlcatalog_tf.nn.Dense`."""
        yield "w", self.w, (1, 0)
        yield "u", self.u, (1, 0)
        yield "u_candidate", self.u_candidate, (1, 0)
        yield "bias", self.bias, None


class LayerNorm:
    """Layer normalisation (Ba et al. 2016) over the last axis."""

    def __init__(self, dim: int) -> None:
        self.weight, self.bias = tf.Variable(tf.ones([dim])), tf.Variable(tf.zeros([dim]))

    def __call__(self, x: Any) -> Any:
        """Map `[..., dim]` to an output of the same shape."""
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        return centred * tf.math.rsqrt(variance + EPSILON) * self.weight + self.bias


def _by_head(x: Any) -> Any:
    """Reorder `[S, K, heads, head_dim]` to `[heads, S, K, head_dim]`."""
    return tf.transpose(x, [2, 0, 1, 3])


def _initial_matrix(rows: int, columns: int) -> Any:
    return tf.transpose(initial_value((rows, columns), "xavier_uniform", {}))


def _matrix(rows: int, columns: int) -> Any:
    """Return a variable in TensorFlow's layout `[columns, rows]`; its canonical form is
    `[rows, columns]`.
    """
    return tf.Variable(_initial_matrix(rows, columns))


class _Model(TransformerModel, TFModelV2):
    ops, transformer_class, outputs_class, features_of = (
        OPS,
        Transformer,
        OutputLayers,
        staticmethod(features_of),
    )

    def _padding(self, x: Any, input_dict: Mapping[str, Any], seq_lens: Any) -> tuple[Any, Any]:
        if seq_lens is None or input_dict.get("single_steps"):
            return None, None
        if input_dict.get("outputs_only") or input_dict.get("no_padding"):
            return seq_lens, None
        return seq_lens, sequence_mask(seq_lens, steps_of(x, seq_lens))


class AttentionWrapper(AroundTrunk, _Model):
    """Gated transformer after a trunk, followed by logits and a value; see `AroundTrunk`."""


class GTrXLNet(ByItself, _Model):
    """The standalone gated transformer; see `ByItself`."""
