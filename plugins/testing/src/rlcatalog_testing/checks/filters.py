"""Checks for observation filters."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog import Filter
from rlcatalog.frameworks import Array
from rlcatalog.internals import make_filter
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.examples import quiet
from rlcatalog_testing.passes import alike

ROWS = 6


class Bench:
    """Filter for one observation space, which can be created repeatedly.

    Args:
        subject: The filter.
        obs: The observation space.
        config: Config keys for the model.

    Attributes:
        encoded: Encoded observations `[ROWS, *shape]`.
        others: Other encoded observations.
    """

    def __init__(self, subject: Subject, obs: spaces.Space[Any], config: Mapping[str, Any]) -> None:
        self._subject = subject
        self._options = subject.catalog.parse_config(config)
        self.preprocessor = subject.catalog.preprocessor_for(obs, self._options)
        obs.seed(0)
        encoded = self.preprocessor.transform_batch([obs.sample() for _ in range(2 * ROWS)])
        self.encoded = encoded[:ROWS]
        self.others = encoded[ROWS:]

    def __str__(self) -> str:
        return self.preprocessor.info.describe()

    def make(self) -> Filter:
        """Return a new filter."""
        with quiet():  # ignore a warning that there is nothing to filter
            new_filter = make_filter(self._subject.part, self.preprocessor, self._options)
        assert new_filter is not None
        return new_filter

    def teach(self) -> Filter:
        """Return a new filter that has learned from the encoded observations."""
        new_filter = self.make()
        new_filter(self.encoded.copy(), update=True)
        return new_filter

    def apply(self, filter_: Filter) -> Array:
        """Filter the other observations without learning, and return the results."""
        return filter_(self.others.copy(), update=False)

    def teach_more(self, filter_: Filter) -> None:
        """Let a filter learn from the other observations, too."""
        filter_(self.others.copy(), update=True)


def benches(subject: Subject) -> Iterator[Bench]:
    """Yield a bench for each observation space and config in a filter's examples."""
    return (Bench(subject, example.obs, example.config) for example in subject.distinct("obs"))


#: Checks for filters, bench by bench.
check_benches = partial(check, "filter", each=benches)


@check_benches(hint="compute into a new array: the encoded observations belong to others")
def leaves_its_input_alone(bench: Bench) -> None:
    """The filter's input stays unchanged, with or without learning."""
    for update in (False, True):
        new_filter = bench.make()
        argument = bench.encoded.copy()
        new_filter(argument, update=update)
        require(
            np.array_equal(argument, bench.encoded),
            f"{bench}: with update={update}, it changes its argument",
        )


@check_benches(hint="return numbers with the shape and within the bounds of processed_space()")
def returns_what_it_announced(bench: Bench) -> None:
    """The filter returns as many observations as it gets, even zero, with its space's shape, dtype
    and bounds.
    """
    new_filter = bench.make()
    space = new_filter.processed_space(bench.preprocessor)
    one_observation = bench.others[:1]
    no_observations = bench.encoded[:0]
    for update in (False, True, False):
        batches = [bench.encoded, one_observation]
        if not update:
            batches.append(no_observations)  # nothing can be learned from none
        for batch in batches:
            results = new_filter(batch.copy(), update=update)
            _check_results(results, len(batch), space, bench)


def _check_results(results: Array, rows: int, space: spaces.Box, bench: Bench) -> None:
    """Raise an error unless results are an array of rows in a space."""
    shape = (rows, *space.shape)
    has_shape = isinstance(results, np.ndarray) and results.shape == shape
    require(has_shape, f"{bench}: it returned shape {np.shape(results)}, expected {shape}")
    has_dtype = np.can_cast(results.dtype, space.dtype) or results.dtype == np.float32
    require(
        has_dtype, f"{bench}: it returned {results.dtype}, but its space has dtype {space.dtype}"
    )
    is_inside = (results >= space.low - 1e-4) & (results <= space.high + 1e-4)
    if not is_inside.all():
        raise AssertionError(
            f"{bench}: it returned {results.min():.4g} to {results.max():.4g}, outside its space"
        )


@check_benches(hint="change statistics only under `if update:`, and before filtering")
def learns_only_when_asked(bench: Bench) -> None:
    """Without `update`, the filter does not learn: its state and results stay the same."""
    taught = bench.teach()
    state_before = _copy(taught.get_state())
    results = bench.apply(taught)
    for _ in range(2):
        alike(bench.apply(taught), results, f"{bench}: the same observations, filtered again")
    _check_same_state(
        taught.get_state(), state_before, f"{bench}: after filtering without update, its state"
    )


@check_benches(
    hint="return everything that was learned from get_state(), and restore all of it in set_state()"
)
def state_is_saved_and_restored(bench: Bench) -> None:
    """A second filter with the same state gives the same results; later learning does not change
    the state's arrays.
    """
    taught = bench.teach()
    restored = bench.make()
    state = taught.get_state()
    _check_that_state_has_arrays(state, bench)
    state_before = _copy(state)
    restored.set_state(state_before)
    alike(
        bench.apply(restored),
        bench.apply(taught),
        f"{bench}: a filter with its state, compared with itself",
    )
    _check_same_state(
        restored.get_state(), state_before, f"{bench}: the state of a restored filter"
    )
    bench.teach_more(taught)
    bench.teach_more(restored)
    _check_same_state(
        restored.get_state(),
        _copy(taught.get_state()),
        f"{bench}: the state of both after further learning",
    )
    alike(
        bench.apply(restored),
        bench.apply(taught),
        f"{bench}: a filter that learned further from its state, compared with itself",
    )
    _check_same_state(
        state, state_before, f"{bench}: while the filter learned further, the state returned before"
    )


def _check_that_state_has_arrays(state: Mapping[str, Array], bench: Bench) -> None:
    wrong = []
    for name, value in state.items():
        is_array_by_name = isinstance(name, str) and isinstance(value, np.ndarray)
        if not is_array_by_name:
            wrong.append(f"{name!r}: {type(value).__name__}")
    entries = ", ".join(wrong)
    require(not wrong, f"{bench}: get_state() must return arrays by name, found {{{entries}}}")


@check_benches(
    hint="store statistics in attributes that deepcopy can copy, not in the class or the module"
)
def copies_are_independent(bench: Bench) -> None:
    """A copy, and another filter of the same kind, learn independently."""
    taught = bench.teach()
    initial_state = _copy(bench.make().get_state())
    state = _copy(taught.get_state())
    results = bench.apply(taught)
    for name, other in (("a copy", copy.deepcopy(taught)), ("another filter", bench.make())):
        other(bench.others.copy() + 1, update=True)
        alike(bench.apply(taught), results, f"{bench}: after {name} has learned, the filter")
        _check_same_state(
            taught.get_state(), state, f"{bench}: after {name} has learned, its state"
        )
    _check_same_state(
        bench.make().get_state(),
        initial_state,
        f"{bench}: the state of a new filter, after others have learned,",
    )


@check_benches(hint="leave the leaves of preprocessor.leaves() that are not `numeric` unchanged")
def leaves_one_hots_and_masks_alone(bench: Bench) -> None:
    """One-hot vectors, masks, indices and padding stay unchanged."""
    results = bench.apply(bench.teach())
    not_numeric = [leaf for leaf in bench.preprocessor.leaves() if not leaf.numeric]
    if results.shape != bench.others.shape or not not_numeric:
        raise NotApplicable("its examples contain only quantities, or it returns a different shape")
    flat_results = results.reshape(ROWS, -1)
    flat_others = bench.others.reshape(ROWS, -1)
    for leaf in not_numeric:
        columns = slice(leaf.start, leaf.stop)
        what = f"{bench}: {leaf.path} ({leaf.kind})"
        alike(flat_results[:, columns], flat_others[:, columns], what)


@check_benches(hint="filter each row with the learned statistics, not with other rows in the batch")
def filters_each_row_alone(bench: Bench) -> None:
    """An observation is filtered in the same way on its own and in a batch."""
    taught = bench.teach()
    singles = [taught(obs[None].copy()) for obs in bench.others]
    alike(
        np.concatenate(singles),
        bench.apply(taught),
        f"{bench}: observations filtered one by one, compared with all at once",
    )


def _copy(state: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.array(value) for name, value in state.items()}


def _check_same_state(state: Mapping[str, Array], expected: Mapping[str, Array], what: str) -> None:
    require(
        state.keys() == expected.keys(), f"{what} has {sorted(state)}, expected {sorted(expected)}"
    )
    for name, value in expected.items():
        alike(np.asarray(state[name]), value, f"{what} {name!r}")
