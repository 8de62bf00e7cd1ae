"""The floors of action distributions: drawing, scoring the draw, entropy and divergence, by hand
for one case each.

They are right for ordinary inputs only: what keeps the distributions finite elsewhere is left out.
Shapes and bounds are known in advance. Actions are scored as the numbers they are, as those that
were stored must be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.floors import HALF_LOG_2PI, torch_diag_gaussian

# Inputs, other inputs → sample, logp, entropy if any, kl.
Floor = Callable[[Tensor, Tensor], tuple[Any, ...]]
# Tuple([Discrete(5), Box(3), Dict(a=Discrete(4), b=MultiDiscrete([3, 3]))]).
Nested = tuple[Any, Any, dict[str, Any]]

LOG_2 = math.log(2.0)
#: Added to the logits of places that only fill a row up: their probability is 0, and 0 times it is
#: 0.
NEVER = -1e30
#: Where the choices of `Nested` stand among its 21 inputs; the Gaussian's are 5 to 10.
NESTED_LENS, NESTED_STARTS = (5, 4, 3, 3), (0, 11, 15, 18)


def places(
    lens: Sequence[int], starts: Sequence[int]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the columns behind choices in rows of equal length, and what is added to them: 0, or
    `NEVER`.
    """
    longest = max(lens)
    index, bias = (
        np.zeros((len(lens), longest), np.int64),
        np.full((len(lens), longest), NEVER, np.float32),
    )
    for row, (n, start) in enumerate(zip(lens, starts, strict=True)):
        index[row, :n], bias[row, :n] = range(start, start + n), 0
    return index.reshape(-1), bias.reshape(-1)


# PyTorch


def torch_choices(logits: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draws `[B, k]` from the logits `[B, k, n]` of k choices.

    The draw is that of `floors.torch_draw`; its clocks are logs of uniform numbers, for
    `exponential_` is slow.
    """
    logps, other_logps = logits.log_softmax(-1), other.log_softmax(-1)
    p = logps.exp()
    sample = (p / torch.empty_like(p).uniform_(1e-30, 1.0).log_()).argmin(-1, keepdim=True)
    logp = logps.gather(-1, sample).sum((-2, -1))
    negative_entropy = (p * logps).sum((-2, -1))
    return (
        sample.squeeze(-1),
        logp,
        -negative_entropy,
        negative_entropy - (p * other_logps).sum((-2, -1)),
    )


def torch_multi_categorical(logits: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """10 choices of 5."""
    return torch_choices(logits.view(-1, 10, 5), other.view(-1, 10, 5))


def torch_ragged(lens: Sequence[int]) -> Floor:
    """Returns the floor of choices of unequal lengths."""
    index, bias = map(torch.from_numpy, places(lens, [sum(lens[:i]) for i in range(len(lens))]))
    k, longest = len(lens), max(lens)

    def padded(logits: Tensor) -> Tensor:
        return logits.index_select(1, index).add_(bias).view(-1, k, longest)

    return lambda logits, other: torch_choices(padded(logits), padded(other))


def torch_squashed_gaussian(low: Tensor, high: Tensor, *, from_draw: bool = False) -> Floor:
    """Returns the floor of normal values squashed between bounds `[d]`, log standard deviations cut
    off at -5 and 2.

    Args:
        low: Lower bounds.
        high: Upper bounds.
        from_draw: Score the normal value of the draw, which a stored action does not have; for
            scale.
    """
    d, width = low.numel(), high - low
    lowest, highest = torch.nextafter(low, high), torch.nextafter(high, low)
    volume = float(width.log().sum())
    constant, of_draw = volume - d * (HALF_LOG_2PI + LOG_2), -volume - d * (HALF_LOG_2PI + LOG_2)

    def run(params: Tensor, other: Tensor) -> tuple[Tensor, ...]:
        mean, log_std = params[:, :d], params[:, d:].clamp(-5.0, 2.0)
        other_log_std = other[:, d:].clamp(-5.0, 2.0)
        std = log_std.exp()
        noise = torch.randn_like(mean)
        twice = torch.addcmul(mean, std, noise).mul_(2.0)
        sample = torch.addcmul(low, width, twice.sigmoid())
        if from_draw:
            terms = functional.softplus(twice).mul_(2.0).sub_(twice).add_(log_std, alpha=-1.0)
            logp = terms.addcmul_(noise, noise, value=-0.5).sum(-1).add_(of_draw + d * LOG_2)
        else:
            x = sample.clamp(lowest, highest)
            below, above = (x - low).log_(), (high - x).log_()
            z = torch.sub(below - above, mean, alpha=2.0).div_(std)
            logp = constant - below.add_(above).add_(log_std).addcmul_(z, z, value=0.125).sum(-1)
        shift, log_ratio = mean - other[:, :d], log_std - other_log_std
        ratio = torch.addcmul(std.square(), shift, shift).mul_((-2.0 * other_log_std).exp_())
        kl = ratio.mul_(0.5).sub_(log_ratio).sum(-1).sub_(0.5 * d)
        return sample, logp, kl

    return run


def torch_bernoulli(logits: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Bits: with s = softplus, log p(a) = a x - s(x), so that one sum of s(x) serves all three."""
    p = logits.sigmoid()
    sample = torch.rand_like(p) < p
    log_norm, other_log_norm = (
        functional.softplus(logits).sum(-1),
        functional.softplus(other).sum(-1),
    )
    logp = (logits * sample).sum(-1) - log_norm
    entropy = log_norm - (p * logits).sum(-1)
    return sample.long(), logp, entropy, other_log_norm - entropy - (p * other).sum(-1)


def torch_beta(low: Tensor, high: Tensor) -> Floor:
    """Returns the floor of Beta values between bounds `[d]`, concentrations `1 + softplus`."""
    d, width = low.numel(), high - low
    lowest, highest = torch.nextafter(low, high), torch.nextafter(high, low)
    log_width = width.log()
    volume = float(log_width.sum())

    def norm(excess: Tensor, both: Tensor) -> Tensor:
        return (both.lgamma() - (excess + 1.0).lgamma_().sum(1)).sum(-1)

    def run(params: Tensor, other: Tensor) -> tuple[Tensor, ...]:
        excess = functional.softplus(params).view(-1, 2, d)  # concentrations less 1
        other_excess = functional.softplus(other).view(-1, 2, d)
        concentration = excess + 1.0
        total, other_total = concentration.sum(1), other_excess.sum(1).add_(2.0)
        gamma = torch._standard_gamma(concentration)
        first = gamma[:, 0]
        sample = torch.addcmul(low, width, first / (first + gamma[:, 1]))
        x = sample.clamp(lowest, highest)
        logs = torch.stack((x - low, high - x), 1).log_().sub_(log_width)
        log_norm = (total.lgamma() - concentration.lgamma().sum(1)).sum(-1)
        logp = (excess * logs).sum((-2, -1)).add_(log_norm).sub_(volume)
        expected = concentration.digamma().sub_(total.digamma().unsqueeze(1))
        entropy = volume - log_norm - (excess * expected).sum((-2, -1))
        kl = (excess - other_excess).mul_(expected).sum((-2, -1)).add_(log_norm)
        return sample, logp, entropy, kl.sub_(norm(other_excess, other_total))

    return run


def torch_nested() -> Callable[[Tensor, Tensor], tuple[Nested, Tensor, Tensor, Tensor]]:
    """Returns the floor of the nested space: its four choices side by side, its Gaussian apart."""
    index, bias = map(torch.from_numpy, places(NESTED_LENS, NESTED_STARTS))

    def padded(params: Tensor) -> Tensor:
        return params.index_select(1, index).add_(bias).view(-1, 4, 5)

    def run(params: Tensor, other: Tensor) -> tuple[Nested, Tensor, Tensor, Tensor]:
        chosen, logp, entropy, kl = torch_choices(padded(params), padded(other))
        values, *rest = torch_diag_gaussian(params[:, 5:11], other[:, 5:11])
        sample = (chosen[:, 0], values, {"a": chosen[:, 1], "b": chosen[:, 2:]})
        return sample, logp.add_(rest[0]), entropy.add_(rest[1]), kl.add_(rest[2])

    return run


# TensorFlow


def tf_traced(width: int, run: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns a function of two tensors `[B, width]` in one trace."""
    import tensorflow as tf

    return tf.function(
        run, input_signature=[tf.TensorSpec([None, width], tf.float32)] * 2, autograph=False
    )


def tf_choices(logits: Any, other: Any) -> tuple[Any, Any, Any, Any]:
    """Draws `[B, k]` from the logits `[B, k, n]` of k choices."""
    import tensorflow as tf

    _, k, n = logits.shape
    logps, other_logps = tf.nn.log_softmax(logits), tf.nn.log_softmax(other)
    sample = tf.reshape(tf.random.categorical(tf.reshape(logits, [-1, n]), 1), [-1, k])
    logp = tf.reduce_sum(tf.gather(logps, sample, batch_dims=2), -1)
    p = tf.exp(logps)
    negative_entropy = tf.reduce_sum(p * logps, [1, 2])
    return (
        sample,
        logp,
        -negative_entropy,
        negative_entropy - tf.reduce_sum(p * other_logps, [1, 2]),
    )


def tf_multi_categorical() -> Callable[[Any, Any], Any]:
    """10 choices of 5."""
    import tensorflow as tf

    return tf_traced(
        50, lambda a, b: tf_choices(tf.reshape(a, [-1, 10, 5]), tf.reshape(b, [-1, 10, 5]))
    )


def tf_padded(lens: Sequence[int], starts: Sequence[int]) -> Callable[[Any], Any]:
    """Returns what lays choices of unequal lengths out as `[B, k, longest]`."""
    import tensorflow as tf

    index, bias = places(lens, starts)
    return lambda logits: tf.reshape(
        tf.gather(logits, index, axis=1) + bias, [-1, len(lens), max(lens)]
    )


def tf_ragged(lens: Sequence[int]) -> Callable[[Any, Any], Any]:
    """Returns the floor of choices of unequal lengths."""
    padded = tf_padded(lens, [sum(lens[:i]) for i in range(len(lens))])
    return tf_traced(sum(lens), lambda a, b: tf_choices(padded(a), padded(b)))


def tf_squashed_gaussian(
    low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]
) -> Callable[[Any, Any], Any]:
    """Returns `torch_squashed_gaussian` as a traced function."""
    import tensorflow as tf

    d, width, lowest, highest = (
        low.size,
        high - low,
        np.nextafter(low, high),
        np.nextafter(high, low),
    )
    constant = float(np.log(width).sum()) - d * (HALF_LOG_2PI + LOG_2)

    def run(params: Any, other: Any) -> tuple[Any, Any, Any]:
        mean, log_std = params[:, :d], tf.clip_by_value(params[:, d:], -5.0, 2.0)
        other_log_std = tf.clip_by_value(other[:, d:], -5.0, 2.0)
        std = tf.exp(log_std)
        sample = low + width * tf.sigmoid(2.0 * (mean + std * tf.random.normal(tf.shape(mean))))
        x = tf.clip_by_value(sample, lowest, highest)
        below, above = tf.math.log(x - low), tf.math.log(high - x)
        z = (0.5 * (below - above) - mean) / std
        logp = constant - tf.reduce_sum(0.5 * tf.square(z) + below + above + log_std, -1)
        inverse, log_ratio = tf.exp(-other_log_std), log_std - other_log_std
        moved, ratio = (mean - other[:, :d]) * inverse, std * inverse
        return (
            sample,
            logp,
            tf.reduce_sum(0.5 * (tf.square(ratio) + tf.square(moved)) - log_ratio, -1) - 0.5 * d,
        )

    return tf_traced(2 * d, run)


def tf_bernoulli() -> Callable[[Any, Any], Any]:
    """Returns `torch_bernoulli` of 12 bits as a traced function."""
    import tensorflow as tf

    def run(logits: Any, other: Any) -> tuple[Any, Any, Any, Any]:
        p = tf.sigmoid(logits)
        bits = tf.random.uniform(tf.shape(p)) < p
        log_norm = tf.reduce_sum(tf.math.softplus(logits), -1)
        logp = tf.reduce_sum(tf.where(bits, logits, 0.0), -1) - log_norm
        entropy = log_norm - tf.reduce_sum(p * logits, -1)
        kl = tf.reduce_sum(tf.math.softplus(other) - p * other, -1) - entropy
        return tf.cast(bits, tf.int64), logp, entropy, kl

    return tf_traced(12, run)


def tf_beta(low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> Callable[[Any, Any], Any]:
    """Returns `torch_beta` as a traced function."""
    import tensorflow as tf

    d, width, lowest, highest = (
        low.size,
        high - low,
        np.nextafter(low, high),
        np.nextafter(high, low),
    )
    log_width = np.log(width)
    volume = float(log_width.sum())

    def run(params: Any, other: Any) -> tuple[Any, Any, Any, Any]:
        excess = tf.reshape(tf.math.softplus(params), [-1, 2, d])  # concentrations less 1
        other_excess = tf.reshape(tf.math.softplus(other), [-1, 2, d])
        concentration = excess + 1.0
        total, other_total = tf.reduce_sum(concentration, 1), tf.reduce_sum(other_excess, 1) + 2.0
        first, second = tf.unstack(
            tf.reshape(tf.random.gamma([], concentration), [-1, 2, d]), axis=1
        )
        sample = low + width * (first / (first + second))
        x = tf.clip_by_value(sample, lowest, highest)
        logs = tf.math.log(tf.stack((x - low, high - x), 1)) - log_width
        lgamma = tf.math.lgamma
        log_norm = tf.reduce_sum(lgamma(total) - tf.reduce_sum(lgamma(concentration), 1), -1)
        other_log_norm = tf.reduce_sum(
            lgamma(other_total) - tf.reduce_sum(lgamma(other_excess + 1.0), 1), -1
        )
        logp = tf.reduce_sum(excess * logs, [1, 2]) + (log_norm - volume)
        expected = tf.math.digamma(concentration) - tf.math.digamma(total)[:, None]
        entropy = volume - log_norm - tf.reduce_sum(excess * expected, [1, 2])
        kl = tf.reduce_sum((excess - other_excess) * expected, [1, 2]) + log_norm - other_log_norm
        return sample, logp, entropy, kl

    return tf_traced(2 * d, run)


def tf_nested() -> Callable[[Any, Any], Any]:
    """Returns `torch_nested` as a traced function."""
    import tensorflow as tf

    padded = tf_padded(NESTED_LENS, NESTED_STARTS)

    def run(params: Any, other: Any) -> tuple[Nested, Any, Any, Any]:
        chosen, logp, entropy, kl = tf_choices(padded(params), padded(other))
        mean, log_std = params[:, 5:8], params[:, 8:11]
        std, volume = tf.exp(log_std), tf.reduce_sum(log_std, -1)
        values = mean + std * tf.random.normal(tf.shape(mean))
        logp += -0.5 * tf.reduce_sum(tf.square((values - mean) / std), -1) - (
            volume + 3 * HALF_LOG_2PI
        )
        delta = params[:, 5:11] - other[:, 5:11]
        shift, ratio = delta[:, :3] * tf.exp(-other[:, 8:11]), tf.exp(delta[:, 3:])
        kl += tf.reduce_sum(0.5 * (tf.square(shift) + tf.square(ratio) - 1.0) - delta[:, 3:], -1)
        sample = (chosen[:, 0], values, {"a": chosen[:, 1], "b": chosen[:, 2:]})
        return sample, logp, entropy + volume + 3 * (0.5 + HALF_LOG_2PI), kl

    return tf_traced(21, run)
