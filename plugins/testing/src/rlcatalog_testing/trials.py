"""Trials of action distributions, one for each action space in a part's examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog.actions import ActionCodec, action_codec, params_given, unbind
from rlcatalog.errors import CatalogError
from rlcatalog.frameworks import Array, Tensor, TensorOps, TensorTree, tensor_ops
from rlcatalog.internals import Key
from rlcatalog.observations import rows
from rlcatalog.plugins import Part
from rlcatalog.spaces import parts_of
from rlcatalog_policy import Policy
from rlcatalog_testing.changes import changes
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.examples import NAMING, Example
from rlcatalog_testing.passes import kit_of

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
        self.subject = subject
        self.example = example
        self.policy: Policy = subject.policy(example)
        parts = [plan.part for plan in self.policy.resolution.dists.walk()]
        names = ", ".join(part.name for part in parts)
        require(subject.part in parts, f"{example}: {names} was chosen instead")
        self.size = self.policy.resolution.dists.size
        self.codec: ActionCodec = self.policy.action_codec
        self.ops: TensorOps = tensor_ops(self.policy.framework)
        self.kit = kit_of(self.policy.framework)

    def __str__(self) -> str:
        keys = dict(self.example.config)
        keys.pop(NAMING["action_dist"], None)
        given = f" with {keys}" if keys else ""
        return f"{self.example.action}{given}"

    @property
    def is_subject(self) -> bool:
        """Whether the distribution under test is for the whole space rather than a part of it."""
        return self.policy.resolution.dists.part is self.subject.part

    def inputs(self, count: int, scale: float = 1.0, seed: int = 0) -> Array:
        """Return typical model outputs `[count, size]`."""
        rng = np.random.default_rng(seed)
        inputs = scale * rng.normal(size=(count, self.size))
        return inputs.astype(np.float32)

    def dist(self, inputs: Array | Tensor, mask: Array | None = None) -> Any:
        """Return the distribution for inputs `[B, size]` (array or tensor), after applying a mask
        `[B, m]`.
        """
        tensor = self.ops.tensor(inputs)
        if mask is not None:
            tensor = self.policy.dist_class.masked(tensor, self.ops.booleans(mask, tensor))
        return self.policy.dist_class(tensor, self.policy.model)

    def flat(self, sample: TensorTree) -> Any:
        """Return a sample as a single tensor, which is how engines store it."""
        parts = parts_of(sample)
        if parts is None:
            return sample
        return self.ops.columns(parts)

    def raw(self, sample: TensorTree) -> Array:
        """Return a sample as an array `[B, width]`."""
        if isinstance(sample, np.ndarray):
            values = sample
        else:
            values = self.array(self.flat(sample))
        if values.ndim == 1:
            return values[:, None]
        return values.reshape(len(values), -1)

    def actions(self, raw: Array) -> Any:
        """Return stored raw actions `[B, width]` in the form that `logp` expects."""
        tensor = self.ops.tensor(np.ascontiguousarray(raw))
        if self.codec.scalar:
            return tensor[:, 0]
        return tensor

    def logp(self, dist: Any, raw: Array) -> Array:
        """Return the log density of raw actions as a float64 array."""
        return self.array(dist.logp(self.actions(raw))).astype(np.float64)

    def params(self, dist: Any, raw: Array) -> Array:
        """Return a distribution's stored parameters, `[B, n]`."""
        return self.array(params_given(dist, self.actions(raw)))

    def stored(self, dist: Any, raw: Array) -> Any:
        """Return the distribution that engines rebuild from the inputs stored with raw actions."""
        params = self.ops.tensor(self.params(dist, raw))
        return self.policy.stored_dist(params, self.policy.model)

    def masks_to_try(self, count: int) -> list[Array | None]:
        """Return None, for no mask, and then random masks `[count, m]` if the actions can be
        masked.
        """
        if not self.policy.masks.size:
            return [None]
        return [None, random_mask(self, count)]

    def pieces(self) -> Iterator[tuple[ActionCodec, slice]]:
        """Yield the codec for each leaf of the space, with its columns in raw actions."""
        start = 0
        for leaf in self.codec.leaves:
            yield leaf, slice(start, start + leaf.width)
            start += leaf.width

    @staticmethod
    def has_entropy(dist: Any) -> bool:
        """Return whether a distribution's entropy is exact rather than an estimate."""
        return entropy_kind_of(dist) == "exact"

    def entropy(self, dist: Any) -> Any:
        """Return the entropy `[B]`, or its estimate if it has no closed form."""
        if self.has_entropy(dist):
            return dist.entropy()
        return dist.entropy_estimate()

    def array(self, tensor: Tensor) -> Array:
        """Convert a tensor to an array."""
        return np.asarray(self.ops.array(tensor))

    def every_action(self) -> Array | None:
        """Return all raw actions `[n, width]` if there are only a few; None if there are many or
        they have floats.
        """
        counts: list[int] = []
        for leaf in self.codec.leaves:
            if leaf.counts is None:
                return None
            counts += leaf.counts
        # As floats, because the product of many counts is too large for an int64.
        if np.prod(counts, dtype=float) > MOST_ACTIONS:
            return None
        combinations = np.array(list(np.ndindex(*counts)), np.int64)
        raw = combinations.reshape(-1, self.codec.width)
        raw = raw[~self.has_unread_values(raw)]
        return raw[list(self.lie_inside(raw))]

    def has_unread_values(self, raw: Array) -> Array:
        """Return which raw actions `[B, width]` hold a number other than 0 in a place that does not
        count: these are other forms of an action with zeros there.
        """
        used = self.codec.used(raw)
        if used is None:
            return np.zeros(len(raw), np.bool_)
        is_unread: Array = raw.astype(np.bool_) & ~used
        has_unread: Array = np.any(is_unread, axis=1)
        return has_unread

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
        first_sample = self.raw(dist.sample())
        second_sample = self.raw(dist.sample())
        if self.array(dist.entropy()).any():
            return False
        if self.logp(dist, first_sample).any():
            return False
        return np.array_equal(first_sample, second_sample)


def trials(subject: Subject) -> list[Trial]:
    """Return one trial for each action space and config in a part's examples, and one for each
    config key that changes the distribution's options.
    """
    examples = [*subject.distinct("action"), *examples_with_other_options(subject)]
    return [Trial(subject, example) for example in examples]


def examples_with_other_options(subject: Subject) -> list[Example]:
    """Return an example for each config key of a distribution that changes its options, such as a
    temperature: the first of the part's examples in which it does, with another value of the key.
    """
    key = ("other options", subject.framework)
    return subject.once(key, partial(_find_examples_with_other_options, subject))


def _find_examples_with_other_options(subject: Subject) -> list[Example]:
    found = []
    keys = subject.catalog.schema.keys
    for name in subject.catalog.config_keys(subject.part, subject.framework):
        if name not in keys:
            continue
        for example in subject.distinct("action"):
            other = _with_other_options(subject, example, keys[name])
            if other is not None:
                found.append(other)
                break
    return found


def _with_other_options(subject: Subject, example: Example, key: Key) -> Example | None:
    """Return an example with another value of a key under which the distribution has other options
    than without it; None if the first three values do not change them, or are refused.
    """
    parts, options = _parts_and_options(subject, example)
    for change in islice(changes(key, subject.catalog, example.config), 3):
        other = replace(example, config={**example.config, **change})
        try:
            other_parts, other_options = _parts_and_options(subject, other)
            # Where a key selects other parts, as a switch does, it is no option of this one.
            if other_parts != parts or other_options == options:
                continue
            subject.policy(other)
        except CatalogError:
            continue
        return other
    return None


def _parts_and_options(subject: Subject, example: Example) -> tuple[list[Part], str]:
    """Return the parts that are chosen for an example, and the options of the distribution under
    test as text.
    """
    resolution = subject.resolve(example)
    config = resolution.config.read_only()
    options: list[Mapping[str, Any]] = []
    for plan in resolution.dists.walk():
        if plan.part is subject.part:
            _, options_of_node = unbind(plan.load(resolution.framework, config))
            options.append(options_of_node)
    return list(resolution.parts()), repr(options)


def chance_trials(subject: Subject) -> list[Trial]:
    """Return the first and the last trial of a distribution that is not deterministic.

    Raises:
        NotApplicable: All of the distribution's trials are deterministic.
    """
    all_trials = [Trial(subject, example) for example in subject.distinct("action")]
    for trial in all_trials:
        if trial.is_subject and trial.is_point():
            raise NotApplicable("a point mass: it has no randomness")
    if len(all_trials) < 2:
        return all_trials
    return [all_trials[0], all_trials[-1]]


#: Checks for action distributions, trial by trial.
check_trials = partial(check, "action_dist", each=trials)
check_chance_trials = partial(check, "action_dist", each=chance_trials)


def entropy_kind_of(dist: Any) -> str:
    """Return whether a distribution's entropy is `"exact"` or an `"estimate"`."""
    return getattr(dist, "entropy_kind", "exact")  # a class from elsewhere need not have it


def contains(space: spaces.Space[Any], action: Any) -> bool:
    """Return whether an action, given as one row of a batch, is in a space."""
    # One row of a batch for a Box of rank 0 is a number. Spaces of other packages may be like a
    # Box, too.
    is_like_box = hasattr(space, "low")
    if is_like_box and not isinstance(action, np.ndarray):
        action = np.asarray(action)
    return bool(space.contains(action))


def random_mask(trial: Trial, count: int, seed: int = 0) -> Array:
    """Return random masks `[count, m]` that forbid about half of the values, but allow a sampled
    action in each row.
    """
    rng = np.random.default_rng(seed)
    mask: Array = rng.random((count, trial.policy.masks.size)) < 0.5
    actions = trial.raw(trial.dist(trial.inputs(count, seed=seed + 1)).sample())
    columns = trial.codec.mask_taken(actions)
    if columns is None:
        # Only the codec knows which columns an action needs.
        return np.ones_like(mask)
    np.put_along_axis(mask, columns, values=True, axis=1)
    return mask
