"""The floors: what an engineer would write by hand for one job, with identical inputs and outputs.

A floor is no catalog in small: it knows its sizes in advance, checks nothing and leaves out
whatever its job does not need. A `*_functional` floor is fused further than code that holds modules
can be, and is printed only for scale. TensorFlow is imported inside the TensorFlow floors, so that
a benchmark of torch never loads it; threads are the caller's to set.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

# Action [B], logp [B], value [B], logits [B, n].
Act = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
# Sample, logp [B], entropy [B], kl [B].
Dist = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


# PyTorch


def build_torch(
    obs_size: int, n: int, hiddens: Sequence[int]
) -> tuple[nn.Sequential, nn.Linear, nn.Linear]:
    """Builds a tanh trunk, its logits head and its value head: weight rows of L2 norm 1 (heads
    0.01), zero biases.
    """

    def linear(n_in: int, n_out: int, std: float) -> nn.Linear:
        layer = nn.Linear(n_in, n_out)
        with torch.no_grad():
            weight = layer.weight.normal_()
            weight.mul_(std / weight.norm(dim=1, keepdim=True))
            layer.bias.zero_()
        return layer

    sizes = (obs_size, *hiddens)
    layers = [m for pair in itertools.pairwise(sizes) for m in (linear(*pair, 1.0), nn.Tanh())]
    return nn.Sequential(*layers), linear(sizes[-1], n, 0.01), linear(sizes[-1], 1, 0.01)


def build_lstm_torch(obs_size: int, n: int, hiddens: Sequence[int], cell: int) -> nn.ModuleList:
    """Builds the same trunk, an LSTM with one bias (Glorot, orthogonal; forget gates open), and the
    heads behind it.
    """
    trunk, *_ = build_torch(obs_size, n, hiddens)
    lstm = nn.LSTM(hiddens[-1], cell, batch_first=True)
    with torch.no_grad():
        for gate in lstm.weight_ih_l0.chunk(4):
            nn.init.xavier_uniform_(gate)
        for gate in lstm.weight_hh_l0.chunk(4):
            nn.init.orthogonal_(gate)
        lstm.bias_hh_l0.zero_()
        lstm.bias_ih_l0.zero_()[cell : 2 * cell] = 1.0
    _, logits, value = build_torch(cell, n, ())
    return nn.ModuleList([trunk, lstm, logits, value])


def torch_draw(logps: torch.Tensor) -> torch.Tensor:
    """Draws categories `[B, 1]`: the first of exponential clocks that tick at the probabilities'
    rates to ring.
    """
    return (logps - torch.empty_like(logps).exponential_().log_()).argmax(-1, keepdim=True)


class TorchActFloor:
    """Bare modules and a fused draw under `inference_mode`, NumPy in and out."""

    def __init__(self, obs_size: int, n_actions: int, hiddens: Sequence[int]) -> None:
        self.trunk, self.logits, self.value = build_torch(obs_size, n_actions, hiddens)

    @torch.inference_mode()
    def act(self, obs: np.ndarray) -> Act:
        """Acts on float32 observations `[B, obs]`."""
        features = self.trunk(torch.from_numpy(obs))
        logits = self.logits(features)
        value = self.value(features).squeeze(-1)
        logps = logits.log_softmax(-1)
        action = torch_draw(logps)
        logp = logps.gather(-1, action).squeeze(-1)
        return action.squeeze(-1).numpy(), logp.numpy(), value.numpy(), logits.numpy()


def torch_act_functional(
    trunk: nn.Sequential, logits: nn.Linear, value: nn.Linear
) -> Callable[[np.ndarray], Act]:
    """Returns the same act without modules: one `addmm` per hidden layer and one for both heads
    together.

    The weights are transposed copies, blind to later training, so that no library can do this.
    """

    def frozen(weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return bias.detach().clone(), weight.detach().t().contiguous()

    hidden = [frozen(m.weight, m.bias) for m in trunk if isinstance(m, nn.Linear)]
    bias, weight = frozen(
        torch.cat([logits.weight, value.weight]), torch.cat([logits.bias, value.bias])
    )
    n = logits.out_features

    @torch.inference_mode()
    def act(obs: np.ndarray) -> Act:
        x = torch.from_numpy(obs)
        for b, w in hidden:
            x = torch.addmm(b, x, w).tanh_()
        out = torch.addmm(bias, x, weight)
        z = out[:, :n]
        logps = z.log_softmax(-1)
        action = torch_draw(logps)
        logp = logps.gather(-1, action)
        return action.numpy()[:, 0], logp.numpy()[:, 0], out.numpy()[:, n], z.numpy()

    return act


def torch_categorical(logits: torch.Tensor, other_logits: torch.Tensor) -> Dist:
    """Draws from logits `[B, n]`; the divergence is the one to `other_logits`."""
    logps, other_logps = logits.log_softmax(-1), other_logits.log_softmax(-1)
    sample = torch_draw(logps)
    logp = logps.gather(-1, sample).squeeze(-1)
    p = logps.exp()
    negative_entropy = (p * logps).sum(-1)
    return sample.squeeze(-1), logp, -negative_entropy, negative_entropy - (p * other_logps).sum(-1)


def torch_diag_gaussian(params: torch.Tensor, other: torch.Tensor) -> Dist:
    """Draws from means and log standard deviations `[B, 2 d]`; the divergence is the one to
    `other`.
    """
    d = params.shape[-1] // 2
    mean, log_std = params[:, :d], params[:, d:]
    std = log_std.exp()
    sample = torch.addcmul(mean, std, torch.randn_like(mean))
    log_volume = log_std.sum(-1)
    z = (sample - mean).div_(std)
    logp = z.square_().sum(-1).mul_(-0.5).sub_(log_volume).sub_(d * HALF_LOG_2PI)
    entropy = log_volume + d * (0.5 + HALF_LOG_2PI)
    shift, other_log_std = mean - other[:, :d], other[:, d:]
    ratio = torch.addcmul(std.square(), shift, shift).mul_((-2.0 * other_log_std).exp_())
    kl = ratio.sum(-1).sub_(d).mul_(0.5).add_(other_log_std.sum(-1)).sub_(log_volume)
    return sample, logp, entropy, kl


# TensorFlow


def build_tf(obs_size: int, n: int, hiddens: Sequence[int]) -> tuple[list[Any], Any, Any]:
    """Builds the Keras layers that `build_torch` builds for torch: (hidden layers,
    logits, value).
    """
    import keras
    import tensorflow as tf

    def dense(n_in: int, n_out: int, std: float, activation: str | None) -> Any:
        def normc(shape: tuple[int, ...], dtype: str) -> Any:
            return std * tf.math.l2_normalize(tf.random.normal(shape, dtype=dtype), 0)

        layer = keras.layers.Dense(n_out, activation, kernel_initializer=normc)
        layer.build((None, n_in))
        return layer

    sizes = (obs_size, *hiddens)
    hidden = [dense(*pair, 1.0, "tanh") for pair in itertools.pairwise(sizes)]
    return hidden, dense(sizes[-1], n, 0.01, None), dense(sizes[-1], 1, 0.01, None)


class TFActFloor:
    """Bare Keras layers and a draw in one traced function, NumPy in and out."""

    def __init__(self, obs_size: int, n_actions: int, hiddens: Sequence[int]) -> None:
        import tensorflow as tf

        self.hidden, self.logits, self.value = build_tf(obs_size, n_actions, hiddens)

        @tf.function(input_signature=[tf.TensorSpec([None, obs_size], tf.float32)], autograph=False)
        def step(x: Any) -> Any:
            for layer in self.hidden:
                x = layer(x)
            logits, value = self.logits(x), self.value(x)
            action = tf.random.categorical(logits, 1)[:, 0]
            logp = -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=action, logits=logits)
            return action, logp, value[:, 0], logits

        self.step = step.get_concrete_function()  # spares the function its look at the arguments
        self.constant = tf.constant

    def act(self, obs: np.ndarray) -> Act:
        """Acts on float32 observations `[B, obs]`."""
        action, logp, value, logits = self.step(self.constant(obs))
        return action.numpy(), logp.numpy(), value.numpy(), logits.numpy()


def tf_categorical(n: int) -> Callable[[Any, Any], Any]:
    """Returns `torch_categorical` for `n` categories as a traced function."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None, n], tf.float32)] * 2, autograph=False)
    def run(logits: Any, other_logits: Any) -> Any:
        logps, other_logps = tf.nn.log_softmax(logits), tf.nn.log_softmax(other_logits)
        sample = tf.random.categorical(logits, 1)
        logp = tf.gather(logps, sample, batch_dims=1)[:, 0]
        p = tf.exp(logps)
        negative_entropy = tf.reduce_sum(p * logps, -1)
        return (
            sample[:, 0],
            logp,
            -negative_entropy,
            negative_entropy - tf.reduce_sum(p * other_logps, -1),
        )

    return run


def tf_diag_gaussian(d: int) -> Callable[[Any, Any], Any]:
    """Returns `torch_diag_gaussian` for `d` dimensions as a traced function."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None, 2 * d], tf.float32)] * 2, autograph=False)
    def run(params: Any, other: Any) -> Any:
        mean, log_std = params[:, :d], params[:, d:]
        std = tf.exp(log_std)
        sample = mean + std * tf.random.normal(tf.shape(mean))
        log_volume = tf.reduce_sum(log_std, -1)
        logp = (
            -0.5 * tf.reduce_sum(tf.square((sample - mean) / std), -1)
            - log_volume
            - d * HALF_LOG_2PI
        )
        entropy = log_volume + d * (0.5 + HALF_LOG_2PI)
        delta, other_log_std = params - other, other[:, d:]
        shift, ratio = delta[:, :d] * tf.exp(-other_log_std), tf.exp(delta[:, d:])
        kl = tf.reduce_sum(0.5 * (tf.square(shift) + tf.square(ratio) - 1.0) - delta[:, d:], -1)
        return sample, logp, entropy, kl

    return run
