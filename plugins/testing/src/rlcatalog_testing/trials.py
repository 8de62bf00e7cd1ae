"""Trials of action distributions, one for each action space in a part's examples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from rlcatalog.actions import ActionCodec, action_codec, params_given
from rlcatalog.frameworks import TensorOps, tensor_ops
from rlcatalog.observations import rows
from rlcatalog.spaces import parts_of
from rlcatalog_policy import Policy
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.examples import Example
from rlcatalog_testing.passes import Array, kit_of

#: Maximum number of actions in a space that are tried one by one.
MOST_ACTIONS = 64


class Trial:
    """Trial of a distribution for one action space.

    Args:
        subject: The distribution under test, or a distribution that combines it with others.
        example: The spaces.

    Attributes:
        example: The spaces.
        policy: The policy that has this distribution.
        size: Number of the distribution's inputs.
        codec: The codec of the action space.
        ops: The framework's tensor operations.
        kit: The framework's code for the conformance kit.
    """

    def __init__(self, subject: Subject, example: Example) -> None:
        self.subject, self.example = subject, example
        self.policy: Policy = subject.policy(example)
        chosen = [node.part for node in self.policy.resolution.dists.walk()]
        require(
            subject.part in chosen,
            f"{example}: {', '.join(c.name for c in chosen)} was chosen instead",
        )
        self.size = self.policy.resolution.dists.size
        self.codec: ActionCodec = self.policy.action_codec
        self.ops: TensorOps = tensor_ops(self.policy.framework)
        self.kit = kit_of(self.policy.framework)

    def __str__(self) -> str:
        return str(self.example.action)

    @property
    def is_subject(self) -> bool:
        """Whether the distribution under test is for the whole space rather than a part of it."""
        return self.policy.resolution.dists.part is self.subject.part

    def inputs(self, count: int, scale: float = 1.0, seed: int = 0) -> Array:
        """Return typical model outputs `[count, size]`."""
        return (scale * np.random.default_rng(seed).normal(size=(count, self.size))).astype(
            np.float32
        )

    def dist(self, inputs: Any, mask: Array | None = None) -> Any:
        """Return the distribution for inputs `[B, size]` (array or tensor), after applying a mask
        `[B, m]`.
        """
        tensor = self.ops.tensor(inputs)
        if mask is not None:
            tensor = self.policy.dist_class.masked(tensor, self.ops.booleans(mask, tensor))
        return self.policy.dist_class(tensor, self.policy.model)

    def flat(self, sample: Any) -> Any:
        """Return a sample as a single tensor, which is how engines store it."""
        parts = parts_of(sample)
        return sample if parts is None else self.ops.columns(parts)

    def raw(self, sample: Any) -> Array:
        """Return a sample as an array `[B, width]`."""
        found = sample if isinstance(sample, np.ndarray) else self.array(self.flat(sample))
        return found[:, None] if found.ndim == 1 else found.reshape(len(found), -1)

    def actions(self, raw: Array) -> Any:
        """Return stored raw actions `[B, width]` in the form that `logp` expects."""
        tensor = self.ops.tensor(np.ascontiguousarray(raw))
        return tensor[:, 0] if self.codec.scalar else tensor

    def logp(self, dist: Any, raw: Array) -> Array:
        """Return the log density of raw actions as a float64 array."""
        return self.array(dist.logp(self.actions(raw))).astype(np.float64)

    def params(self, dist: Any, raw: Array) -> Array:
        """Return a distribution's stored parameters, `[B, n]`."""
        return self.array(params_given(dist, self.actions(raw)))

    def stored(self, dist: Any, raw: Array) -> Any:
        """Return the distribution that engines rebuild from the inputs stored with raw actions."""
        return self.policy.stored_dist(self.ops.tensor(self.params(dist, raw)), self.policy.model)

    def pieces(self) -> Iterator[tuple[ActionCodec, slice]]:
        """Yield the codec for each leaf of the space, with its columns in raw actions."""
        start = 0
        for leaf in self.codec.leaves:
            yield leaf, slice(start, start + leaf.width)
            start += leaf.width

    @staticmethod
    def has_entropy(dist: Any) -> bool:
        """Return whether a distribution's entropy is exact rather than an estimate."""
        return getattr(dist, "entropy_kind", "exact") == "exact"

    def entropy(self, dist: Any) -> Any:
        """Return the entropy `[B]`, or its estimate if it has no closed form."""
        return dist.entropy() if self.has_entropy(dist) else dist.entropy_estimate()

    def array(self, tensor: Any) -> Array:
        """Convert a tensor to an array."""
        return np.asarray(self.ops.array(tensor))

    def every_action(self) -> Array | None:
        """Return all raw actions `[n, width]` if there are only a few; None if there are many or
        they have floats.
        """
        counts = [leaf.counts for leaf in self.codec.leaves]
        if None in counts:
            return None
        flat = [count for leaf_counts in counts for count in leaf_counts or ()]
        if np.prod(flat, dtype=float) > MOST_ACTIONS:
            return None
        raw = np.array(list(np.ndindex(*flat)), np.int64).reshape(-1, self.codec.width)
        return raw[list(self.lie_inside(raw))]

    def lie_inside(self, raw: Array, bounds: str = "clip") -> Iterator[bool]:
        """Yield, for each raw action, whether its environment action is in the space."""
        plan = self.policy.resolution.dists
        codec = action_codec(plan.info, bounds, plan.raw_kinds(self.policy.framework))
        for action in rows(plan.info, codec.adapt(raw)):
            yield contains(self.example.action, action)

    def is_point(self) -> bool:
        """Return whether sampling is deterministic and the distribution declares this."""
        dist = self.dist(self.inputs(8))
        if not self.has_entropy(dist):
            return False
        one, other = self.raw(dist.sample()), self.raw(dist.sample())
        surely = not self.array(dist.entropy()).any() and not self.logp(dist, one).any()
        return surely and np.array_equal(one, other)


def trials(subject: Subject) -> list[Trial]:
    """Return one trial for each action space and config in a part's examples."""
    return [Trial(subject, example) for example in subject.distinct("action")]


def chance_trials(subject: Subject) -> list[Trial]:
    """Return the first and the last trial of a distribution that is not deterministic.

    Raises:
        NotApplicable: All of the distribution's trials are deterministic.
    """
    found = trials(subject)
    if any(trial.is_point() for trial in found if trial.is_subject):
        raise NotApplicable("a point mass: it has no randomness")
    return found if len(found) < 2 else [found[0], found[-1]]


#: Checks for action distributions, trial by trial.
check_trials = partial(check, "action_dist", each=trials)
check_chance_trials = partial(check, "action_dist", each=chance_trials)


def contains(space: Any, action: Any) -> bool:
    """Return whether an action, given as one row of a batch, is in a space."""
    if hasattr(space, "low") and not isinstance(action, np.ndarray):
        action = np.asarray(action)  # rank 0 is returned as a number
    return bool(space.contains(action))


def random_mask(trial: Trial, count: int, seed: int = 0) -> Array:
    """Return random masks `[count, m]` that forbid about half of the values, but allow a sampled
    action in each row.
    """
    rng = np.random.default_rng(seed)
    mask: Array = rng.random((count, trial.policy.masks.size)) < 0.5
    drawn = trial.raw(trial.dist(trial.inputs(count, seed=seed + 1)).sample())
    columns = trial.codec.mask_taken(drawn)
    if columns is None:  # only the codec knows which columns an action needs
        return np.ones_like(mask)
    np.put_along_axis(mask, columns, True, axis=1)
    return mask
