"""The floors of autoregressive actions: six choices of five, drawn in a loop and scored in one
masked pass, by hand.

They are right for ordinary inputs only, and know all sizes in advance. Weights are given as PyTorch
lays them out, masks multiplied in beforehand where weights do not change between calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

#: Number of choices, values of each, and units of the hidden layer for each.
PARTS, VALUES, UNITS = 6, 5, 16
PARAMS, HIDDEN = PARTS * VALUES, PARTS * UNITS


def torch_sample(actions: Tensor, params: Tensor) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """Returns `inputs [B, PARAMS + HIDDEN] → actions [B, PARTS], parameters, log probability`.

    Args:
        actions: Weights `[HIDDEN, PARAMS]` from one-hots to hidden units.
        params: Weights `[PARAMS, HIDDEN]` from hidden units to parameters.
    """
    rows = actions.t()

    def draw(inputs: Tensor) -> tuple[Tensor, ...]:
        base, sums = inputs.split_with_sizes((PARAMS, HIDDEN), 1)
        hidden = torch.empty_like(sums)
        drawn, found = [], []
        for i in range(PARTS):
            columns, stop = slice(i * VALUES, (i + 1) * VALUES), (i + 1) * UNITS
            hidden[:, i * UNITS : stop] = torch.tanh(sums[:, i * UNITS : stop])
            logits = torch.addmm(base[:, columns], hidden[:, :stop], params[columns, :stop].t())
            p = logits.softmax(-1)
            value = (p / torch.empty_like(p).uniform_(1e-30, 1.0).log_()).argmin(-1)
            drawn.append(value)
            found.append(logits)
            if i < PARTS - 1:
                sums = sums + rows.index_select(0, value + i * VALUES)
        sample, logits = torch.stack(drawn, 1), torch.cat(found, 1)
        logps = logits.view(-1, PARTS, VALUES).log_softmax(-1)
        return sample, logits, logps.gather(-1, sample.unsqueeze(-1)).sum((-2, -1))

    return draw


def torch_pass(
    actions: Tensor, params: Tensor, first: Tensor, last: Tensor, score: bool = True
) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns `inputs, actions [B, PARTS] → log probability [B]`, or without `score` the
    parameters.

    Args:
        actions: See `torch_sample`.
        params: See `torch_sample`.
        first: Mask of the first weights.
        last: Mask of the second.
        score: Whether to go on from the parameters to the log probability.
    """

    def logp(inputs: Tensor, drawn: Tensor) -> Tensor:
        base, context = inputs.split_with_sizes((PARAMS, HIDDEN), 1)
        seen = functional.one_hot(drawn, VALUES).view(-1, PARAMS).float()
        hidden = torch.tanh(torch.addmm(context, seen, (actions * first).t()))
        logits = torch.addmm(base, hidden, (params * last).t())
        if not score:
            return logits
        logps = logits.view(-1, PARTS, VALUES).log_softmax(-1)
        return logps.gather(-1, drawn.unsqueeze(-1)).sum((-2, -1))

    return logp


def tf_sample(actions: Any, params: Any) -> Callable[[Any], tuple[Any, ...]]:
    """The same as `torch_sample` in TensorFlow, traced; weights `[PARAMS, HIDDEN]` and
    `[HIDDEN, PARAMS]`.
    """
    import tensorflow as tf

    @tf.function(
        input_signature=[tf.TensorSpec([None, PARAMS + HIDDEN], tf.float32)], autograph=False
    )
    def draw(inputs: Any) -> tuple[Any, ...]:
        base, sums = tf.split(inputs, [PARAMS, HIDDEN], axis=1)
        hidden, drawn, found = [], [], []
        for i in range(PARTS):
            columns, stop = slice(i * VALUES, (i + 1) * VALUES), (i + 1) * UNITS
            hidden.append(tf.tanh(sums[:, i * UNITS : stop]))
            logits = base[:, columns] + tf.matmul(tf.concat(hidden, 1), params[:stop, columns])
            clock = -tf.math.log1p(-tf.random.uniform(tf.shape(logits)))
            value = tf.argmax(logits - tf.math.log(tf.maximum(clock, 1e-7)), axis=-1)
            drawn.append(value)
            found.append(logits)
            if i < PARTS - 1:
                sums = sums + tf.gather(actions, value + i * VALUES)
        sample, logits = tf.stack(drawn, 1), tf.concat(found, 1)
        logps = tf.nn.log_softmax(tf.reshape(logits, [-1, PARTS, VALUES]))
        return sample, logits, tf.reduce_sum(tf.gather(logps, sample, batch_dims=2), axis=1)

    return draw  # type: ignore[no-any-return]


def tf_pass(
    actions: Any, params: Any, first: np.ndarray[Any, Any], last: np.ndarray[Any, Any]
) -> Callable[[Any, Any], Any]:
    """The same as `torch_pass` in TensorFlow, traced; weights and masks as `tf_sample` has them."""
    import tensorflow as tf

    signature = [
        tf.TensorSpec([None, PARAMS + HIDDEN], tf.float32),
        tf.TensorSpec([None, PARTS], tf.int64),
    ]

    @tf.function(input_signature=signature, autograph=False)
    def logp(inputs: Any, drawn: Any) -> Any:
        base, context = tf.split(inputs, [PARAMS, HIDDEN], axis=1)
        seen = tf.reshape(tf.one_hot(drawn, VALUES), [-1, PARAMS])
        hidden = tf.tanh(context + tf.matmul(seen, actions * first))
        logits = base + tf.matmul(hidden, params * last)
        logps = tf.nn.log_softmax(tf.reshape(logits, [-1, PARTS, VALUES]))
        return tf.reduce_sum(tf.gather(logps, drawn, batch_dims=2), axis=1)

    return logp  # type: ignore[no-any-return]
