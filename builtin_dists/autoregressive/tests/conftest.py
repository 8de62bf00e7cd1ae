"""What these tests share: policies with weights far from zero, and the paper's equations in NumPy,
unit by unit.
"""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Tuple
from scipy import special, stats

import rlcatalog

OBS = Box(-1, 1, (3,), np.float32)
SMALL = {
    "use_autoregressive": True,
    "fcnet_hiddens": [6],
    "fcnet_activation": "tanh",
    "autoregressive_hiddens": [4],
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Small tensors gain nothing from a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    tf.random.set_seed(0)


@pytest.fixture(params=["torch", "tf"])
def framework(request):
    return request.param


def array(x):
    return x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)


def tensor(x, framework):
    return torch.as_tensor(np.asarray(x)) if framework == "torch" else tf.constant(np.asarray(x))


def randomise(model, seed=0, scale=0.7):
    rng = np.random.default_rng(seed)
    model.set_weights(
        {n: rng.normal(0, scale, w.shape).astype(w.dtype) for n, w in model.get_weights().items()}
    )


def build(space, framework="torch", config=None, obs=OBS, seed=0, scale=0.7):
    """A policy whose conditionals differ visibly from row to row and from prefix to prefix."""
    policy = rlcatalog.build(obs, space, {**SMALL, **(config or {})}, framework)
    randomise(policy.model, seed, scale)
    return policy


def untraced(policy):
    """A context in which a policy of TensorFlow acts without tracing it first, which takes longer
    than the test.
    """
    return (
        policy.backend.untraced(policy.backend.generator)
        if policy.framework == "tf"
        else nullcontext()
    )


def observations(rows, seed=1):
    return np.random.default_rng(seed).uniform(-1, 1, (rows, 3)).astype(np.float32)


def dist_of(policy, obs, mask=None):
    """The distribution for observations, differentiable; in TensorFlow eager."""
    inputs, _ = policy.model({"obs": tensor(obs, policy.framework)}, [], None)
    if mask is not None:
        inputs = policy.dist_class.masked(inputs, tensor(mask, policy.framework))
    return policy.dist_class(inputs, policy.model)


def leaves(space, path="action"):
    """Yield path, kind and size of each part, as the README says what a part is; nothing of the
    package is used.
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
    """Every raw action of a space of choices and bits, [P, raw]."""
    values = []
    for _, kind, size in leaves(space):
        values += [range(size)] if kind == "choice" else [range(2)] * size
    return np.array(list(itertools.product(*values)), np.int64)


class Reference:
    """P(a1) P(a2 | a1) … from weights alone, in double precision: Germain et al. 2015, equations 8
    to 14.

    The parts before the one that is asked about are all it looks at, so that no mask can leak.
    """

    def __init__(self, weights, space, order=(), hiddens=(4,)):
        self.w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
        self.parts, params, raw, columns = [], 0, 0, 0
        for path, kind, size in leaves(space):
            choice, own = kind == "choice", kind not in ("choice", "bits")
            widths = (2 * size if own else size, 1 if choice else size, size)
            spans = [
                slice(at, at + width)
                for at, width in zip((params, raw, columns), widths, strict=True)
            ]
            self.parts.append(
                SimpleNamespace(
                    path=path, kind=kind, size=size, params=spans[0], raw=spans[1], seen=spans[2]
                )
            )
            params, raw, columns = params + widths[0], raw + widths[1], columns + widths[2]
        first = list(order)
        self.order = sorted(
            range(len(self.parts)),
            key=lambda i: (
                first.index(self.parts[i].path) if self.parts[i].path in first else len(first)
            ),
        )
        self.n_params, self.hiddens = params, [len(self.parts) * units for units in hiddens]

    def _seen(self, part, raw):
        value = raw[:, part.raw]
        if part.kind == "choice":
            return np.eye(part.size)[value[:, 0].astype(int)]
        if part.kind == "bits":
            return value
        # Raw values of a bounded Box are in [-1, 1] already, before they are scaled to its bounds.
        return value

    def params(self, obs, raw, rank):
        """The parameters [B, n] of the part drawn as number `rank`, given the values of those drawn
        before it.
        """
        w, part, raw = self.w, self.parts[self.order[rank]], np.asarray(raw, np.float64)
        x = np.tanh(obs @ w["trunk.hidden.layers.0.weight"].T + w["trunk.hidden.layers.0.bias"])
        before = [self.parts[i] for i in self.order[:rank]]
        # A unit of degree m is one of those that belong to the part drawn as number m.
        degree = np.arange(self.hiddens[0]) // (self.hiddens[0] // len(self.parts))
        sums = x @ w["to_context.weight"].T + w["to_context.bias"]
        for m, earlier in enumerate(before):
            part_of = self._seen(earlier, raw) @ w["conditionals.actions"][:, earlier.seen].T
            sums = sums + np.where(degree > m, part_of, 0.0)
        h = np.tanh(sums)
        for layer, width in enumerate(self.hiddens[1:]):
            later = np.arange(width) // (width // len(self.parts))
            weight = w[f"conditionals.hidden.{layer}.weight"]
            h = np.tanh(
                np.stack(
                    [
                        h[:, degree <= later[k]] @ weight[k, degree <= later[k]]
                        for k in range(width)
                    ],
                    1,
                )
                + w[f"conditionals.hidden.{layer}.bias"]
            )
            degree = later
        plain = (
            x @ w["outputs.logits.weight"][part.params].T + w["outputs.logits.bias"][part.params]
        )
        return (
            plain
            + h[:, degree <= rank] @ w["conditionals.params"][part.params][:, degree <= rank].T
        )

    def part_logp(self, obs, raw, rank):
        part, params = self.parts[self.order[rank]], self.params(obs, raw, rank)
        value = np.asarray(raw, np.float64)[:, part.raw]
        if part.kind == "choice":
            return special.log_softmax(params, axis=1)[
                np.arange(len(value)), value[:, 0].astype(int)
            ]
        if part.kind == "bits":
            return stats.bernoulli.logpmf(value, special.expit(params)).sum(axis=1)
        mean, log_std = np.split(params, 2, axis=1)
        return stats.norm.logpdf(value, mean, np.exp(log_std)).sum(axis=1)

    def logp(self, obs, raw):
        obs = np.asarray(obs, np.float64)
        return sum(self.part_logp(obs, raw, rank) for rank in range(len(self.parts)))


@pytest.fixture(scope="session")
def ar():
    """The helpers above, as one object."""
    return SimpleNamespace(
        OBS=OBS,
        SMALL=SMALL,
        array=array,
        tensor=tensor,
        randomise=randomise,
        build=build,
        observations=observations,
        dist_of=dist_of,
        leaves=leaves,
        all_actions=all_actions,
        Reference=Reference,
        untraced=untraced,
    )
