"""Floors of whole models in TensorFlow: one hand-traced function to act, one to train, on plain
variables.

They are made of a catalog model's weights (`get_weights`: PyTorch's layouts), so that both sides
compute the same numbers. Lengths of sequences differ from batch to batch, so the LSTM is a loop and
not unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.floors import Act
from benchmarks.floors_models import CLIP, ENTROPY_WEIGHT, VALUE_WEIGHT

Array = np.ndarray[Any, Any]
Weights = Mapping[str, Array]


class Net:
    """What all floors have: the variables, dense layers, and logits and value at the end.

    Attributes:
        signature: Shapes and dtypes of an observation and of the parts of the state, without batch
            axes.
    """

    signature: tuple[tuple[Sequence[int], Any], ...]

    def __init__(self, weights: Weights) -> None:
        self.variables: list[Any] = []
        self.weights = weights
        self.logits, self.value = self.dense("outputs.logits"), self.dense("outputs.value")

    def variable(self, value: Any) -> Any:
        """Return a variable that is trained."""
        self.variables.append(tf.Variable(np.ascontiguousarray(value)))
        return self.variables[-1]

    def kernel(self, *names: str) -> Any:
        """Return one or several matrices side by side, `[in, out]`."""
        return self.variable(np.concatenate([self.weights[name] for name in names]).T)

    def dense(self, name: str) -> Callable[[Any], Any]:
        """Return a dense layer."""
        kernel, bias = self.kernel(f"{name}.weight"), self.variable(self.weights[f"{name}.bias"])
        return lambda x: tf.nn.bias_add(tf.matmul(x, kernel), bias)

    def ends(self, x: Any) -> tuple[Any, Any]:
        """Return logits `[B, n]` and values `[B]`."""
        return self.logits(x), self.value(x)[:, 0]

    def trunk(self) -> Callable[[Any], Any]:
        """Return two tanh layers."""
        first, second = (self.dense(f"trunk.hidden.layers.{i}") for i in (0, 1))
        return lambda x: tf.tanh(second(tf.tanh(first(x))))


class VisionFloor(Net):
    """Images `[B, 84, 84, 4]`, uint8."""

    signature = (((84, 84, 4), tf.uint8),)

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights)
        self.nature = "hidden.layers.0.weight" in weights
        names = [f"convs.layers.{i}" for i in range(3 if self.nature else 2)]
        self.convs = [
            (
                self.variable(weights[f"{name}.weight"].transpose(2, 3, 1, 0)),
                self.variable(weights[f"{name}.bias"]),
            )
            for name in names
        ]
        self.strides, self.padding = ((4, 2, 1), "VALID") if self.nature else ((4, 2), "SAME")
        if self.nature:
            self.hidden = self.dense("hidden.layers.0")
        else:  # the last convolution covers its map: a dense layer
            weight = weights["convs.layers.2.weight"]
            kernel = self.variable(weight.transpose(2, 3, 1, 0).reshape(-1, len(weight)))
            bias = self.variable(weights["convs.layers.2.bias"])
            self.hidden = lambda x: tf.nn.bias_add(tf.matmul(x, kernel), bias)

    def step(self, images: Any) -> tuple[Any, ...]:
        """Compute logits and values."""
        x = tf.cast(images, tf.float32) * (1 / 255)
        for (kernel, bias), stride in zip(self.convs, self.strides, strict=True):
            x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, stride, self.padding), bias))
        return self.ends(tf.nn.relu(self.hidden(tf.reshape(x, [-1, np.prod(x.shape[1:])]))))

    sequences = step


class LstmFloor(Net):
    """Two tanh layers and an LSTM."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights)
        self.hidden = self.trunk()
        self.input, self.recurrent = self.kernel("cell.weight_ih"), self.kernel("cell.weight_hh")
        self.bias = self.variable(weights["cell.bias"])
        self.size = self.recurrent.shape[0]
        self.signature = (
            ((weights["trunk.hidden.layers.0.weight"].shape[1],), tf.float32),
            *[((self.size,), tf.float32)] * 2,
        )

    def step(self, obs: Any, h: Any, c: Any) -> tuple[Any, ...]:
        """Take one step: `[B, obs]`, the states `[B, cell]`."""
        h, c = self._cell(tf.nn.bias_add(tf.matmul(self.hidden(obs), self.input), self.bias), h, c)
        return *self.ends(h), h, c

    def sequences(self, obs: Any, h: Any, c: Any) -> tuple[Any, Any]:
        """Run over padded sequences `[S, T, obs]`; returns logits `[S * T, n]` and values
        `[S * T]`.
        """
        x = self.hidden(tf.reshape(obs, [-1, obs.shape[2]]))
        x = tf.nn.bias_add(tf.matmul(x, self.input), self.bias)
        steps = tf.shape(obs)[1]
        x = tf.transpose(tf.reshape(x, [-1, steps, 4 * self.size]), [1, 0, 2])
        inputs = tf.TensorArray(tf.float32, steps, element_shape=[None, 4 * self.size]).unstack(x)
        outputs = tf.TensorArray(tf.float32, steps, element_shape=[None, self.size])

        def body(t: Any, h: Any, c: Any, outputs: Any) -> tuple[Any, ...]:
            h, c = self._cell(inputs.read(t), h, c)
            return t + 1, h, c, outputs.write(t, h)

        start = (tf.constant(0), h, c, outputs)
        outputs = tf.while_loop(lambda t, *_: t < steps, body, start, maximum_iterations=steps)[3]
        return self.ends(tf.reshape(tf.transpose(outputs.stack(), [1, 0, 2]), [-1, self.size]))

    def _cell(self, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        i, f, g, o = tf.split(x + tf.matmul(h, self.recurrent), 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return tf.sigmoid(o) * tf.tanh(c), c


class AttentionFloor(Net):
    """Two tanh layers and one gated transformer unit of one head, which projects its whole window
    at each step.
    """

    def __init__(self, weights: Weights, slots: int = 50) -> None:
        super().__init__(weights)
        self.hidden, self.input = self.trunk(), self.dense("transformer.input")
        unit = "transformer.units.0."
        names = (f"{unit}attention.{name}" for name in ("query", "position", "output"))
        self.query, self.position, self.output = map(self.kernel, names)
        self.key_value = self.kernel(f"{unit}attention.key", f"{unit}attention.value")
        self.content_bias, self.position_bias = (
            self.variable(weights[f"{unit}attention.{name}_bias"])
            for name in ("content", "position")
        )
        self.norm, self.mlp_norm = self._norm(f"{unit}attention.norm"), self._norm(f"{unit}norm")
        self.gate, self.mlp_gate = (
            self._gate(f"{unit}attention_gate"),
            self._gate(f"{unit}mlp_gate"),
        )
        first, second = (self.dense(f"{unit}mlp.layers.{i}") for i in (0, 1))
        self.mlp = lambda x: tf.nn.relu(second(tf.nn.relu(first(x))))
        self.dim, self.head = self.query.shape
        self.slots, self.scale = slots, self.head**-0.5
        angles = np.arange(slots, -1, -1.0)[:, None] * 10000.0 ** (
            -np.arange(0, self.dim, 2) / self.dim
        )
        self.table = tf.constant(
            np.concatenate([np.sin(angles), np.cos(angles)], axis=1), tf.float32
        )
        obs_size = weights["trunk.hidden.layers.0.weight"].shape[1]
        self.signature = (
            ((obs_size,), tf.float32),
            ((1, slots, self.dim), tf.float32),
            ((), tf.int32),
        )

    def step(self, obs: Any, memory: Any, held: Any) -> tuple[Any, ...]:
        """Take one step: `[B, obs]`, the memory `[B, 1, slots, dim]`, the number of steps it holds
        `[B]`.
        """
        x = self.input(self.hidden(obs))
        seen = tf.concat([memory[:, 0], x[:, None]], axis=1)
        normal = self.norm(seen)
        query = tf.matmul(normal[:, -1], self.query)
        key, value = self._key_value(normal, self.slots + 1)
        scores = tf.matmul(
            query + self.position_bias, tf.matmul(self.table, self.position), transpose_b=True
        )
        scores += tf.linalg.matvec(key, query + self.content_bias)
        hidden = tf.range(self.slots + 1) < (self.slots - held)[:, None]
        weights = tf.nn.softmax(tf.where(hidden, scores.dtype.min, scores * self.scale))
        x = self._unclaimed(x, tf.matmul(weights[:, None], value)[:, 0])
        return *self.ends(x), seen[:, None, 1:], tf.minimum(held + 1, self.slots)

    def sequences(self, obs: Any, memory: Any, held: Any) -> tuple[Any, Any]:
        """Run over padded sequences `[S, T, obs]`; returns logits `[S * T, n]` and values
        `[S * T]`.
        """
        shape = tf.shape(obs)
        sequences, length = shape[0], shape[1]
        keys = self.slots + length
        x = self.input(self.hidden(tf.reshape(obs, [-1, obs.shape[2]])))
        steps = tf.reshape(x, [sequences, length, self.dim])
        normal = self.norm(tf.concat([memory[:, 0], steps], axis=1))
        query = tf.matmul(tf.reshape(normal[:, self.slots :], [-1, self.dim]), self.query)
        key, value = self._key_value(normal, keys)
        # Step t sees the keys t, …, t + slots; the distances move one place to the right from step
        # to step.
        scores = tf.matmul(
            query + self.position_bias, tf.matmul(self.table, self.position), transpose_b=True
        )
        scores = tf.reshape(tf.pad(scores, [[0, 0], [0, length]]), [sequences, -1])[
            :, : length * keys
        ]
        content = tf.reshape(query + self.content_bias, [sequences, length, self.head])
        scores = tf.reshape(scores, [sequences, length, keys]) + tf.matmul(
            content, key, transpose_b=True
        )
        later = tf.range(keys) - tf.range(length)[:, None]
        unused = tf.range(keys) < (self.slots - held)[:, None]
        hidden = (later < 0) | (later > self.slots) | unused[:, None]
        weights = tf.nn.softmax(tf.where(hidden, scores.dtype.min, scores * self.scale))
        return self.ends(self._unclaimed(x, tf.reshape(tf.matmul(weights, value), [-1, self.head])))

    def _key_value(self, normal: Any, keys: Any) -> list[Any]:
        both = tf.matmul(tf.reshape(normal, [-1, self.dim]), self.key_value)
        return tf.split(tf.reshape(both, [-1, keys, 2 * self.head]), 2, axis=2)

    def _unclaimed(self, x: Any, found: Any) -> Any:
        x = self.gate(x, tf.nn.relu(tf.matmul(found, self.output)))
        return self.mlp_gate(x, self.mlp(self.mlp_norm(x)))

    def _norm(self, name: str) -> Callable[[Any], Any]:
        weight, bias = (
            self.variable(self.weights[f"{name}.{kind}"]) for kind in ("weight", "bias")
        )

        def norm(x: Any) -> Any:
            mean, variance = tf.nn.moments(x, -1, keepdims=True)
            return (x - mean) * (tf.math.rsqrt(variance + 1e-5) * weight) + bias

        return norm

    def _gate(self, name: str) -> Callable[[Any, Any], Any]:
        w, u, u_candidate = (self.kernel(f"{name}.{kind}") for kind in ("w", "u", "u_candidate"))
        bias, dim = self.variable(self.weights[f"{name}.bias"]), len(self.weights[f"{name}.bias"])

        def gate(x: Any, y: Any) -> Any:
            gates, candidate = tf.split(tf.matmul(y, w), [2 * dim, dim], axis=1)
            r, z = tf.split(gates + tf.matmul(x, u), 2, axis=1)
            candidate = tf.tanh(candidate + tf.matmul(tf.sigmoid(r) * x, u_candidate))
            return x + tf.sigmoid(z - bias) * (candidate - x)

        return gate


class ActFloor:
    """One traced step, NumPy in and out, states included."""

    def __init__(self, net: Any) -> None:
        signature = [tf.TensorSpec([None, *shape], dtype) for shape, dtype in net.signature]

        @tf.function(input_signature=signature, autograph=False)
        def step(*inputs: Any) -> Any:
            logits, value, *state = net.step(*inputs)
            action = tf.random.categorical(logits, 1)[:, 0]
            logp = -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=action, logits=logits)
            return action, logp, value, logits, *state

        self.step = step.get_concrete_function()  # spares the function its look at the arguments
        self.constant = tf.constant

    def act(self, obs: Array, *state: Array) -> tuple[Act, tuple[Array, ...]]:
        """Act on observations `[B, ...]`; returns what a step takes, and the state after it."""
        action, logp, value, logits, *state_after = self.step(
            self.constant(obs), *map(self.constant, state)
        )
        found = action.numpy(), logp.numpy(), value.numpy(), logits.numpy()
        return found, tuple(part.numpy() for part in state_after)


def ppo_loss(logp: Any, entropy: Any, value: Any, batch: Mapping[str, Any]) -> Any:
    """Return PPO's loss of rows `[R]`; where the batch has a mask, of the rows in it."""
    ratio, advantage = tf.exp(logp - batch["logp"]), batch["advantage"]
    surrogate = tf.minimum(
        ratio * advantage, tf.clip_by_value(ratio, 1 - CLIP, 1 + CLIP) * advantage
    )
    loss = VALUE_WEIGHT * tf.square(value - batch["target"]) - surrogate - ENTROPY_WEIGHT * entropy
    if "mask" not in batch:
        return tf.reduce_mean(loss)
    return tf.reduce_sum(loss * batch["mask"]) / tf.reduce_sum(batch["mask"])


def evaluated(net: Any, batch: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return logp and entropy of a floor's policy, and its values, row by row."""
    logits, value = net.sequences(batch["obs"], *batch["state"])
    logps = tf.nn.log_softmax(logits)
    logp = tf.gather(logps, batch["action"], batch_dims=1)
    return logp, -tf.reduce_sum(tf.exp(logps) * logps, -1), value


def training_step(
    variables: Sequence[Any],
    evaluate: Callable[[Any], tuple[Any, Any, Any]],
    batch: Mapping[str, Any],
    optimizer: Any,
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return a traced training step on a batch: forward, loss, backward, optimiser; and its
    gradients' squared norm.
    """
    optimizer.build(list(variables))
    batch = tf.nest.map_structure(tf.constant, dict(batch))
    signature = tf.nest.map_structure(lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), batch)
    # Timed: the length is known at run time.
    if len(signature["obs"].shape) == 3 and batch["state"]:
        signature["obs"] = tf.TensorSpec([None, None, *batch["obs"].shape[2:]], tf.float32)

    def gradients(batch: Any) -> tuple[Any, list[Any]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = ppo_loss(*evaluate(batch), batch)
        return loss, tape.gradient(loss, variables)

    @tf.function(input_signature=[signature], autograph=False)
    def step(batch: Any) -> Any:
        loss, found = gradients(batch)
        optimizer.apply(found, variables)
        return loss

    @tf.function(input_signature=[signature], autograph=False)
    def size(batch: Any) -> Any:
        return tf.add_n([tf.reduce_sum(tf.square(gradient)) for gradient in gradients(batch)[1]])

    return lambda: step(batch).numpy(), lambda: size(batch).numpy()
