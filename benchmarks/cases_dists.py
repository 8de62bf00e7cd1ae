"""Action distributions in PyTorch: construct, sample, logp of the sample, entropy where exact, kl
to a second one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, distributions as peers

import rlcatalog
from benchmarks import floors, floors_dists
from benchmarks.harness import Case, Result, report

# Inputs, other inputs → sample, logp, entropy if exact, kl.
Run = Callable[[Tensor, Tensor], tuple[Any, ...]]

RAGGED = (3, 2, 5, 7, 4)
#: Bounds of the squashed Gaussian and of Beta: not the same in every dimension, so that nobody can
#: leave them out.
LOW, HIGH = np.linspace(-1.0, -2.0, 8, dtype=np.float32), np.linspace(1.0, 3.0, 8, dtype=np.float32)


NESTED = spaces.Tuple(
    [
        spaces.Discrete(5),
        spaces.Box(-1, 1, (3,), np.float32),
        spaces.Dict({"a": spaces.Discrete(4), "b": spaces.MultiDiscrete([3, 3])}),
    ]
)
#: Name → action space and how the catalog is asked for the distribution.
SPACES: dict[str, tuple[gym.Space[Any], dict[str, Any]]] = {
    "Categorical(18)": (spaces.Discrete(18), {}),
    "MultiCategorical(10 of 5)": (spaces.MultiDiscrete([5] * 10), {}),
    f"MultiCategorical{RAGGED}": (spaces.MultiDiscrete(RAGGED), {}),
    "SquashedGaussian(8)": (spaces.Box(LOW, HIGH), {"custom_action_dist": "squashed_gaussian"}),
    "Bernoulli(12)": (spaces.MultiBinary(12), {}),
    "Beta(4)": (spaces.Box(LOW[:4], HIGH[:4]), {"custom_action_dist": "beta"}),
    "nested composite": (NESTED, {}),
}
#: Those that are measured with a mask, too: number of inputs, columns of the mask among them, a
#: choice's first columns.
MASKED: dict[str, tuple[int, list[int], list[int]]] = {
    "Categorical(18)": (18, list(range(18)), [0]),
    "MultiCategorical(10 of 5)": (50, list(range(50)), list(range(0, 50, 5))),
    "nested composite": (21, [*range(5), *range(11, 21)], [0, 11, 15, 18]),
}


def some_mask(name: str, batch: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return a mask that forbids three values in ten, but no choice's first, and the same over all
    inputs.
    """
    size, columns, first = MASKED[name]
    allowed = np.ones((batch, size), np.bool_)
    allowed[:, columns] = np.random.default_rng(0).random((batch, len(columns))) < 0.7
    allowed[:, first] = True
    return allowed[:, columns], allowed


# What torch.distributions does for the same, as libraries use it: an object per part.


def independent(
    dists: Sequence[Any], joined: Callable[[list[Tensor]], Any], others: Sequence[Any]
) -> tuple[Any, ...]:
    """Return the results of several distributions, their numbers added up."""
    samples = [dist.sample() for dist in dists]
    logp = sum(dist.log_prob(x) for dist, x in zip(dists, samples, strict=True))
    kl = sum(peers.kl_divergence(dist, other) for dist, other in zip(dists, others, strict=True))
    return joined(samples), logp, sum(dist.entropy() for dist in dists), kl


def peer_categorical(logits: Tensor, other: Tensor) -> tuple[Any, ...]:
    """One choice."""
    return independent([choice(logits)], lambda drawn: drawn[0], [choice(other)])


def choice(logits: Tensor) -> peers.Categorical:
    return peers.Categorical(logits=logits, validate_args=False)


def normal(mean: Tensor, log_std: Tensor) -> peers.Independent:
    return peers.Independent(
        peers.Normal(mean, log_std.exp(), validate_args=False), 1, validate_args=False
    )


def peer_multi(lens: Sequence[int]) -> Run:
    """A Categorical per choice."""

    def run(logits: Tensor, other: Tensor) -> tuple[Any, ...]:
        mine, others = (
            [choice(part) for part in x.split(list(lens), dim=1)] for x in (logits, other)
        )
        return independent(mine, lambda drawn: torch.stack(drawn, dim=1), others)

    return run


def peer_squashed(low: Tensor, high: Tensor) -> Run:
    """A Normal; its values are squashed, and actions unsquashed, by hand, as no transform gives a
    divergence.
    """
    half = (high - low) / 2
    log_half = half.log()

    def run(params: Tensor, other: Tensor) -> tuple[Any, ...]:
        one, second = (
            normal(x.chunk(2, -1)[0], x.chunk(2, -1)[1].clamp(-5.0, 2.0)) for x in (params, other)
        )
        sample = low + half * (one.sample().tanh() + 1.0)
        y = ((sample - low) / half - 1.0).clamp(-1.0 + 6e-8, 1.0 - 6e-8)
        logp = one.log_prob(y.atanh()) - ((1.0 - y.square()).log() + log_half).sum(-1)
        return sample, logp, peers.kl_divergence(one, second)

    return run


def peer_bernoulli(logits: Tensor, other: Tensor) -> tuple[Any, ...]:
    """Independent Bernoullis, their samples made whole numbers."""

    def bits(x: Tensor) -> peers.Independent:
        return peers.Independent(
            peers.Bernoulli(logits=x, validate_args=False), 1, validate_args=False
        )

    return independent([bits(logits)], lambda drawn: drawn[0].long(), [bits(other)])


def peer_beta(low: Tensor, high: Tensor) -> Run:
    """Independent Betas; the interval by hand."""
    width = high - low
    volume = width.log().sum()

    def run(params: Tensor, other: Tensor) -> tuple[Any, ...]:
        one, second = (
            peers.Independent(
                peers.Beta(
                    *(torch.nn.functional.softplus(x) + 1.0).chunk(2, -1), validate_args=False
                ),
                1,
            )
            for x in (params, other)
        )
        sample = low + width * one.sample()
        logp = one.log_prob(((sample - low) / width).clamp(1e-7, 1.0 - 1e-7)) - volume
        return sample, logp, one.entropy() + volume, peers.kl_divergence(one, second)

    return run


def peer_nested(params: Tensor, other: Tensor) -> tuple[Any, ...]:
    """An object per leaf, and one per choice of the MultiDiscrete."""

    def parts(x: Tensor) -> list[Any]:
        a, mean, log_std, b, c, d = x.split([5, 3, 3, 4, 3, 3], dim=1)
        return [choice(a), normal(mean, log_std), choice(b), choice(c), choice(d)]

    def joined(drawn: list[Tensor]) -> Any:
        return drawn[0], drawn[1], {"a": drawn[2], "b": torch.stack(drawn[3:], dim=1)}

    return independent(parts(params), joined, parts(other))


# The cases.


@dataclass(frozen=True)
class Subject:
    """One distribution.

    Attributes:
        name: For the table.
        space: The action space.
        floor: The same by hand.
        peer: The same with torch.distributions.
        config: How the catalog is asked for it.
        masked: Whether it is measured with a mask, too.
    """

    name: str
    space: gym.Space[Any]
    floor: Run
    peer: Run
    config: Mapping[str, Any]
    masked: bool = False


def subjects() -> list[Subject]:
    """Return the distributions that are measured."""
    low, high = torch.from_numpy(LOW), torch.from_numpy(HIGH)
    by_hand, ragged = floors_dists, f"MultiCategorical{RAGGED}"
    floor_of = {
        "Categorical(18)": (floors.torch_categorical, peer_categorical),
        "MultiCategorical(10 of 5)": (by_hand.torch_multi_categorical, peer_multi([5] * 10)),
        ragged: (by_hand.torch_ragged(RAGGED), peer_multi(RAGGED)),
        "SquashedGaussian(8)": (
            by_hand.torch_squashed_gaussian(low, high),
            peer_squashed(low, high),
        ),
        "Bernoulli(12)": (by_hand.torch_bernoulli, peer_bernoulli),
        "Beta(4)": (by_hand.torch_beta(low[:4], high[:4]), peer_beta(low[:4], high[:4])),
        "nested composite": (by_hand.torch_nested(), peer_nested),
    }
    return [
        Subject(name, space, *floor_of[name], config, name in MASKED)
        for name, (space, config) in SPACES.items()
    ]


def ours(dist_class: Any) -> Run:
    """Return what is measured of a distribution."""
    exact = dist_class.entropy_kind == "exact"

    def run(inputs: Tensor, other: Tensor) -> tuple[Any, ...]:
        dist = dist_class(inputs)
        sample = dist.sample()
        if not exact:
            return sample, dist.logp(sample), dist.kl(dist_class(other))
        return sample, dist.logp(sample), dist.entropy(), dist.kl(dist_class(other))

    return run


def check(
    dist_class: Any, floor: Run, inputs: Tensor, other: Tensor, tolerance: float = 1e-4
) -> None:
    """Raise unless a floor and a distribution agree on the floor's sample, whose form must be the
    distribution's.
    """
    sample, *theirs = floor(inputs, other)
    mine, logp, *found = ours(dist_class)(inputs, other)
    dist = dist_class(inputs)
    for value, expected in zip([dist.logp(sample), *found], theirs, strict=True):
        torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance)
    # Not known as the distribution's own draw.
    again = dist.logp(torch.utils._pytree.tree_map(torch.clone, mine))
    torch.testing.assert_close(logp, again, rtol=1e-5, atol=1e-5)
    forms = [
        torch.utils._pytree.tree_map(lambda x: (x.shape, x.dtype), value)
        for value in (sample, mine)
    ]
    assert forms[0] == forms[1], forms


def cases() -> Iterator[Case]:
    """Every distribution against its floor and against torch.distributions."""
    catalog = rlcatalog.default_catalog()
    for batch in (1, 1024):
        for subject in subjects():
            dist_class, size = catalog.action_dist(subject.space, subject.config, framework="torch")
            inputs, other = torch.randn(batch, size), torch.randn(batch, size)
            run, floor, peer = ours(dist_class), subject.floor, subject.peer
            check(dist_class, floor, inputs, other)
            # Near the bounds, theirs is less exact.
            check(dist_class, peer, 0.1 * inputs, other, 1e-3)
            mine = lambda run=run, a=inputs, b=other: run(a, b)  # noqa: E731
            name, by_peers = (
                f"{subject.name}, torch",
                f"{subject.name}, torch, to torch.distributions",
            )
            theirs = lambda floor=floor, a=inputs, b=other: floor(a, b)  # noqa: E731
            yield Case(name, mine, theirs, 1.3, str(batch))
            yield Case(
                by_peers, mine, lambda peer=peer, a=inputs, b=other: peer(a, b), 1.0, str(batch)
            )
            if subject.name.startswith("Squashed"):
                drawn = floors_dists.torch_squashed_gaussian(
                    *map(torch.from_numpy, (LOW, HIGH)), from_draw=True
                )
                fused = lambda f=drawn, a=inputs, b=other: f(a, b)  # noqa: E731
                yield Case(f"{name}, to scoring the draw", mine, fused, None, str(batch))
            if subject.masked:
                yield from masked(subject, dist_class, inputs, other)


def masked(subject: Subject, dist_class: Any, inputs: Tensor, other: Tensor) -> Iterator[Case]:
    """The same with a mask to bake in: against the floor without one, and against
    torch.distributions with one.

    The second distribution is one of stored inputs, whose masks are baked in already.
    """
    mask, allowed = map(torch.from_numpy, some_mask(subject.name, len(inputs)))
    other = dist_class.masked(other, mask)
    run = ours(dist_class)
    lowest = torch.finfo(inputs.dtype).min
    assert torch.equal(dist_class.masked(inputs, mask), torch.where(allowed, inputs, lowest))
    check(dist_class, subject.peer, torch.where(allowed, inputs, lowest), other, 1e-3)
    mine = lambda: run(dist_class.masked(inputs, mask), other)  # noqa: E731
    theirs = lambda: subject.floor(inputs, other)  # noqa: E731
    peer = lambda: subject.peer(torch.where(allowed, inputs, lowest), other)  # noqa: E731
    name, batch = f"{subject.name}, masked, torch", str(len(inputs))
    yield Case(f"{name}, to the floor unmasked", mine, theirs, 1.6, batch)
    yield Case(f"{name}, to torch.distributions", mine, peer, 1.0, batch)


def run() -> list[Result]:
    """Print PyTorch's distributions."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.no_grad():
        return report(cases())
