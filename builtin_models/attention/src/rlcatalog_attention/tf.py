"""The gated transformer (GTrXL) in TensorFlow, around a trunk and standalone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlcatalog.frameworks import Array, Tensor
from rlcatalog_attention.common import AroundTrunk, ByItself, Sequences, TransformerModel
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
        self.sizes = sizes
        self.slots = sizes.slots
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
        self,
        rows: Tensor,
        state: list[Any],
        seq_lens: Tensor | None,
        training: bool,
        outputs_only: bool,
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
            sequences = tf.shape(seq_lens)[0]
            length = steps_of(rows, seq_lens)
        if not state:
            state = [
                tf.repeat(initial[None], sequences, axis=0) for initial in self.initial_state()
            ]
        memory = tf.stop_gradient(tf.cast(state[0], tf.float32))
        used_slots = tf.cast(state[1], tf.int32)
        x = self.input(rows)
        # Acting and training may show fewer past steps than the memory has slots: the last ones.
        window = self.sizes.window(training)
        start = self.slots - window
        # The memory fills from its end, so the first slots are unused early in an episode.
        is_unused = tf.range(self.slots + length) < (self.slots - used_slots)[:, None]
        # The keys are the window's slots, then the steps. Step t sees the keys t, …, t + window,
        # where the last key is step t itself.
        later = tf.range(length + window) - tf.range(length)[:, None]
        hidden = (later < 0) | (later > window) | is_unused[:, None, start:]
        keys_of_units = []
        for index, unit in enumerate(self.units):
            steps = tf.reshape(x, [-1, length, self.sizes.attention_dim])
            keys = tf.concat([memory[:, index], steps], axis=1)
            keys_of_units.append(keys)
            if start:  # a slice from 0 on would cost a copy in the gradient
                keys = keys[:, start:]
            x = unit(x, unit.attention(keys, hidden, self.table[start:], length))
        if outputs_only:
            return x, []
        keys = tf.stop_gradient(tf.stack(keys_of_units, axis=1))
        return x, self._new_state(keys, used_slots, seq_lens)

    def _new_state(self, keys: Tensor, used_slots: Tensor, seq_lens: Tensor | None) -> list[Any]:
        """Return the state after the sequences: the last slots before the end of each sequence.

        Args:
            keys: The units' inputs, preceded by the memory: `[S, units, slots + T, dim]`.
            used_slots: Number of steps in the memory.
            seq_lens: Lengths; None for single steps.
        """
        units = len(self.units)
        if seq_lens is None:
            # One step: every slot moves on by one, and the oldest falls out.
            memory = keys[:, :, 1:]
            used_slots = used_slots + 1
        else:
            # After a sequence of length n, the memory begins n places later.
            places = seq_lens[:, None] + tf.range(self.slots)
            places = tf.repeat(places[:, None], units, axis=1)
            memory = tf.gather(keys, places, axis=2, batch_dims=2)
            used_slots = used_slots + seq_lens
        # A trace may lose the static shape.
        memory.set_shape([None, units, self.slots, self.sizes.attention_dim])
        return [memory, tf.minimum(used_slots, self.slots)]


class Unit:
    """Transformer unit: attention and dense layers, each with a gate."""

    def __init__(self, sizes: AttentionConfig) -> None:
        dim = sizes.attention_dim
        bias = sizes.attention_init_gru_gate_bias
        self.attention = Attention(sizes)
        self.attention_gate = Gate(dim, bias)
        self.norm = LayerNorm(dim)
        self.mlp = DenseStack(dim, sizes.mlp)
        self.mlp_gate = Gate(dim, bias)

    def __call__(self, x: Tensor, attention: Tensor) -> Any:
        """Map the unit's input and the attention's output to the unit's output; all have shape
        `[B, dim]`.
        """
        x = self.attention_gate(x, attention)
        return self.mlp_gate(x, self.mlp(self.norm(x)))


class Attention:
    """Multi-head attention with relative positions and without biases, between a layer
    normalisation and a ReLU.
    """

    def __init__(self, sizes: AttentionConfig) -> None:
        self.heads = sizes.attention_num_heads
        self.head_dim = sizes.attention_head_dim
        self.dim = sizes.attention_dim
        inner = self.heads * self.head_dim  # width of all heads
        self.query = _matrix(inner, self.dim)
        self.key = _matrix(inner, self.dim)
        self.value = _matrix(inner, self.dim)
        self.position = _matrix(inner, self.dim)
        self.output = _matrix(self.dim, inner)
        self.content_bias = _bias(self.heads, self.head_dim)
        self.position_bias = _bias(self.heads, self.head_dim)
        self.norm = LayerNorm(self.dim)

    def __call__(self, context: Tensor, hidden: Tensor, table: Array, length: int | Tensor) -> Any:
        """Compute the attention for each step of the sequences.

        Args:
            context: The window's slots, followed by the steps, `[S, K, dim]`.
            hidden: Mask of the keys that are hidden from each step, `[S, T, K]`.
            table: Sinusoids for the distances window, …, 0.
            length: T.
        """
        keys = length + len(table) - 1
        normal = self.norm(context)
        query = self._project(normal[:, keys - length :], self.query, length)
        content = _by_head(query + self.content_bias)
        rows = _by_head(query + self.position_bias)
        key = _by_head(self._project(normal, self.key, keys))
        value = _by_head(self._project(normal, self.value, keys))
        position = _by_head(self._project(table[None], self.position, len(table)))
        position = tf.squeeze(position, axis=1)
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
        outputs = tf.transpose(tf.matmul(weights, value), [1, 2, 0, 3])  # [S, T, heads, head_dim]
        outputs = tf.reshape(outputs, [-1, self.heads * self.head_dim])
        return tf.nn.relu(tf.matmul(outputs, self.output))

    def _project(self, x: Tensor, weight: Tensor, length: int | Tensor) -> Any:
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
        self.w = _matrices(3, dim)
        self.u = _matrices(2, dim)
        self.u_candidate = _matrix(dim, dim)
        self.bias = tf.Variable(tf.fill([dim], float(bias)))

    def __call__(self, x: Tensor, y: Tensor) -> Any:
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
        self.weight = tf.Variable(tf.ones([dim]))
        self.bias = tf.Variable(tf.zeros([dim]))

    def __call__(self, x: Tensor) -> Any:
        """Map `[..., dim]` to an output of the same shape."""
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        return centred * tf.math.rsqrt(variance + EPSILON) * self.weight + self.bias


def _by_head(x: Tensor) -> Any:
    """Reorder `[S, K, heads, head_dim]` to `[heads, S, K, head_dim]`."""
    return tf.transpose(x, [2, 0, 1, 3])


def _initial_matrix(rows: int, columns: int) -> Any:
    return tf.transpose(initial_value((rows, columns), "xavier_uniform", config={}))


def _matrix(rows: int, columns: int) -> Any:
    """Return a variable in TensorFlow's layout `[columns, rows]`; its canonical form is
    `[rows, columns]`.
    """
    return tf.Variable(_initial_matrix(rows, columns))


def _matrices(count: int, size: int) -> Any:
    """Return square matrices, each initialised separately, as one variable
    `[size, count * size]`.
    """
    return tf.Variable(tf.concat([_initial_matrix(size, size) for _ in range(count)], axis=1))


def _bias(heads: int, head_dim: int) -> Any:
    return tf.Variable(initial_value((heads, head_dim), "xavier_uniform", config={}))


class _Model(TransformerModel, TFModelV2):
    ops = OPS
    transformer_class = Transformer
    outputs_class = OutputLayers
    features_of = staticmethod(features_of)

    def _sequences(
        self, x: Tensor, input_dict: Mapping[str, Any], seq_lens: Tensor | None
    ) -> Sequences:
        if seq_lens is None or input_dict.get("single_steps"):
            return Sequences(lengths=None, real=None)
        # With "outputs_only", padded places hold copies of a sequence's last step.
        if input_dict.get("outputs_only") or input_dict.get("no_padding"):
            return Sequences(seq_lens, real=None)
        return Sequences(seq_lens, real=sequence_mask(seq_lens, steps_of(x, seq_lens)))


class AttentionWrapper(AroundTrunk, _Model):
    """Gated transformer after a trunk, followed by logits and a value; see `AroundTrunk`."""


class GTrXLNet(ByItself, _Model):
    """The standalone gated transformer; see `ByItself`."""
