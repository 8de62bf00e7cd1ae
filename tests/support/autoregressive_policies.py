"""Autoregressive policies with random weights, and the paper's equations for their densities.

The equations (Germain et al. 2015, 8 to 14) are computed in NumPy, unit by unit and in double
precision.
"""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Tuple
from scipy import special, stats

import rlcatalog

OBS_SPACE = Box(-1, 1, (3,), np.float32)
SMALL_MODEL = {
    "use_autoregressive": True,
    "fcnet_hiddens": [6],
    "fcnet_activation": "tanh",
    "autoregressive_hiddens": [4],
}


def to_numpy(x):
    return x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)


def to_tensor(x, framework):
    return torch.as_tensor(np.asarray(x)) if framework == "torch" else tf.constant(np.asarray(x))


def randomise_weights(model, seed=0, scale=0.7):
    """Give a model weights far from zero, so that each part visibly depends on earlier ones."""
    rng = np.random.default_rng(seed)
    weights = model.get_weights()
    model.set_weights(
        {name: rng.normal(0, scale, w.shape).astype(w.dtype) for name, w in weights.items()}
    )


def build_policy(space, framework="torch", *, obs_space=OBS_SPACE, seed=0, scale=0.7, **config):
    """Build a small autoregressive policy with random weights; keywords are config keys."""
    policy = rlcatalog.build(obs_space, space, {**SMALL_MODEL, **config}, framework)
    randomise_weights(policy.model, seed, scale)
    return policy


def without_tracing(policy):
    """Return a context in which a policy of TensorFlow acts eagerly: tracing takes longer than most
    tests.
    """
    if policy.framework == "tf":
        return policy.backend.untraced(policy.backend.generator)
    return nullcontext()


def random_observations(rows, seed=1):
    return np.random.default_rng(seed).uniform(-1, 1, (rows, 3)).astype(np.float32)


def distribution(policy, obs, mask=None):
    """Return the distribution for observations; differentiable, and eager in TensorFlow."""
    inputs, _ = policy.model({"obs": to_tensor(obs, policy.framework)}, [], None)
    if mask is not None:
        inputs = policy.dist_class.masked(inputs, to_tensor(mask, policy.framework))
    return policy.dist_class(inputs, policy.model)


def compute_logp(policy, obs, raw_actions, mask=None):
    """Return the policy's log densities of raw actions, float64 `[B]`."""
    raw_actions = to_tensor(raw_actions, policy.framework)
    return to_numpy(distribution(policy, obs, mask).logp(raw_actions)).astype(np.float64)


def compute_params(policy, obs, raw_actions):
    """Return the parameters of all parts, each given the earlier parts of raw actions."""
    raw_actions = to_tensor(raw_actions, policy.framework)
    return to_numpy(distribution(policy, obs).params_given(raw_actions))


def leaves(space, path="action"):
    """Yield path, kind and size of each part as the README defines parts, without the package.

    The kind is "choice", "bits", or the bounds of a Box of floats.
    """
    if isinstance(space, Discrete):
        yield path, "choice", int(space.n)
    elif isinstance(space, MultiDiscrete):
        for place in np.ndindex(space.nvec.shape):
            yield f"{path}[{', '.join(map(str, place))}]", "choice", int(space.nvec[place])
    elif isinstance(space, MultiBinary):
        yield path, "bits", int(np.prod(space.shape))
    elif isinstance(space, Box) and space.dtype.kind in "iu":
        for i, (low, high) in enumerate(zip(space.low.ravel(), space.high.ravel(), strict=True)):
            yield f"{path}[{i}]", "choice", int(high) - int(low) + 1
    elif isinstance(space, Box):
        yield path, (space.low.ravel(), space.high.ravel()), int(np.prod(space.shape))
    else:
        children = enumerate(space.spaces) if isinstance(space, Tuple) else space.spaces.items()
        for key, child in children:
            yield from leaves(child, f"{path}[{key!r}]")


def all_actions(space):
    """Return every raw action of a space of choices and bits, `[actions, raw values]`."""
    values = []
    for _, kind, size in leaves(space):
        if kind == "choice":
            values.append(range(size))
        else:
            values += [range(2)] * size
    return np.array(list(itertools.product(*values)), np.int64)


def exact_logp(policy, space, obs, raw_actions, order=(), hiddens=(4,)):
    """Return log densities by the paper's equations; `order` lists paths of parts drawn first."""
    equations = PaperEquations(policy.model.get_weights(), space, order, hiddens)
    return equations.logp(obs, raw_actions)


def exact_probabilities(policy, space, obs, order=()):
    """Return every raw action and its probability for one observation `[1, 3]`."""
    raw_actions = all_actions(space)
    rows = np.repeat(obs, len(raw_actions), axis=0)
    return raw_actions, np.exp(exact_logp(policy, space, rows, raw_actions, order))


class PaperEquations:
    """P(a1) P(a2 | a1) … from weights alone.

    For each part it looks only at the parts drawn before, so that it needs no masks.

    Args:
        weights: The model's weights by name.
        space: The action space.
        order: Paths of the parts that are drawn first; the others follow in the space's order.
        hiddens: Units of each part in each hidden layer.
    """

    def __init__(self, weights, space, order=(), hiddens=(4,)):
        self.weights = {name: np.asarray(value, np.float64) for name, value in weights.items()}
        self.parts = []
        params = raw = columns = 0
        for path, kind, size in leaves(space):
            has_deviations = kind not in ("choice", "bits")
            params_width = 2 * size if has_deviations else size
            raw_width = 1 if kind == "choice" else size
            part = SimpleNamespace(
                path=path,
                kind=kind,
                size=size,
                params=slice(params, params + params_width),
                raw=slice(raw, raw + raw_width),
                seen=slice(columns, columns + size),
            )
            self.parts.append(part)
            params += params_width
            raw += raw_width
            columns += size
        self.n_params = params
        self.hiddens = [len(self.parts) * units for units in hiddens]
        first = list(order)
        #: Indices of the parts in the order in which they are drawn.
        self.order = sorted(
            range(len(self.parts)),
            key=lambda i: (
                first.index(self.parts[i].path) if self.parts[i].path in first else len(first)
            ),
        )

    def part(self, rank):
        """Return the part that is drawn as number `rank`."""
        return self.parts[self.order[rank]]

    def _seen(self, part, raw):
        """Return what later parts see of a part: one-hot vectors, or the raw values.

        Raw values of a bounded Box are in [-1, 1] already, before they are scaled to its bounds.
        """
        value = raw[:, part.raw]
        if part.kind == "choice":
            return np.eye(part.size)[value[:, 0].astype(int)]
        return value

    def params(self, obs, raw, rank):
        """Return the parameters `[B, n]` of the part drawn as number `rank`, given the values of
        those drawn before it.
        """
        w = self.weights
        params = self.part(rank).params
        raw = np.asarray(raw, np.float64)
        x = np.tanh(obs @ w["trunk.hidden.layers.0.weight"].T + w["trunk.hidden.layers.0.bias"])
        # A unit of degree m belongs to the part drawn as number m.
        degree = np.arange(self.hiddens[0]) // (self.hiddens[0] // len(self.parts))
        sums = x @ w["to_context.weight"].T + w["to_context.bias"]
        for m in range(rank):
            earlier = self.part(m)
            effect = self._seen(earlier, raw) @ w["conditionals.actions"][:, earlier.seen].T
            sums = sums + np.where(degree > m, effect, 0.0)
        hidden = np.tanh(sums)
        for layer, width in enumerate(self.hiddens[1:]):
            next_degree = np.arange(width) // (width // len(self.parts))
            weight = w[f"conditionals.hidden.{layer}.weight"]
            units = []
            for unit in range(width):
                inputs = degree <= next_degree[unit]
                units.append(hidden[:, inputs] @ weight[unit, inputs])
            hidden = np.tanh(np.stack(units, axis=1) + w[f"conditionals.hidden.{layer}.bias"])
            degree = next_degree
        logits = x @ w["outputs.logits.weight"][params].T + w["outputs.logits.bias"][params]
        inputs = degree <= rank
        return logits + hidden[:, inputs] @ w["conditionals.params"][params][:, inputs].T

    def part_logp(self, obs, raw, rank):
        """Return the log density `[B]` of the part drawn as number `rank`, given earlier ones."""
        part = self.part(rank)
        params = self.params(obs, raw, rank)
        value = np.asarray(raw, np.float64)[:, part.raw]
        if part.kind == "choice":
            logp = special.log_softmax(params, axis=1)
            return logp[np.arange(len(value)), value[:, 0].astype(int)]
        if part.kind == "bits":
            return stats.bernoulli.logpmf(value, special.expit(params)).sum(axis=1)
        mean, log_std = np.split(params, 2, axis=1)
        return stats.norm.logpdf(value, mean, np.exp(log_std)).sum(axis=1)

    def logp(self, obs, raw):
        """Return the log density `[B]` of raw actions."""
        obs = np.asarray(obs, np.float64)
        return sum(self.part_logp(obs, raw, rank) for rank in range(len(self.parts)))
