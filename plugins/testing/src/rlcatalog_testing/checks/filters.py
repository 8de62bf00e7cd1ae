"""Checks for observation filters."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from rlcatalog import Filter
from rlcatalog.internals import make_filter
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.examples import quiet
from rlcatalog_testing.passes import Array, alike

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

    def __init__(self, subject: Subject, obs: Any, config: Mapping[str, Any]) -> None:
        self._subject, self._options = subject, subject.catalog.parse_config(config)
        self.preprocessor = subject.catalog.preprocessor_for(obs, self._options)
        obs.seed(0)
        drawn = self.preprocessor.transform_batch([obs.sample() for _ in range(2 * ROWS)])
        self.encoded, self.others = drawn[:ROWS], drawn[ROWS:]

    def __str__(self) -> str:
        return self.preprocessor.info.describe()

    def make(self) -> Filter:
        """Return a new filter."""
        with quiet():  # ignore a warning that there is nothing to filter
            made = make_filter(self._subject.part, self.preprocessor, self._options)
        assert made is not None
        return made

    def teach(self) -> Filter:
        """Return a new filter that has learned from the encoded observations."""
        made = self.make()
        made(self.encoded.copy(), update=True)
        return made

    def filtered(self, by: Filter, update: bool = False) -> Array:
        """Filter the other observations and return the results."""
        return by(self.others.copy(), update=update)


def benches(subject: Subject) -> Iterator[Bench]:
    """Yield a bench for each observation space and config in a filter's examples."""
    return (Bench(subject, example.obs, example.config) for example in subject.distinct("obs"))


#: Checks for filters, bench by bench.
check_benches = partial(check, "filter", each=benches)


@check_benches(hint="compute into a new array: the encoded observations belong to others")
def leaves_its_input_alone(bench: Bench) -> None:
    """The filter's input stays unchanged, with or without learning."""
    for update in (False, True):
        given = bench.encoded.copy()
        bench.make()(given, update=update)
        require(
            np.array_equal(given, bench.encoded),
            f"{bench}: with update={update}, it changes its argument",
        )


@check_benches(hint="return numbers with the shape and within the bounds of processed_space()")
def returns_what_it_announced(bench: Bench) -> None:
    """The filter returns as many observations as it gets, even zero, with its space's shape, dtype
    and bounds.
    """
    made = bench.make()
    space = made.processed_space(bench.preprocessor)
    low, high = space.low - 1e-4, space.high + 1e-4
    for update in (False, True, False):
        for given in (bench.encoded, bench.others[:1], *([] if update else [bench.encoded[:0]])):
            found = made(given.copy(), update=update)
            shape = (len(given), *space.shape)
            fits = isinstance(found, np.ndarray) and found.shape == shape
            require(fits, f"{bench}: it returned shape {np.shape(found)}, expected {shape}")
            fits = np.can_cast(found.dtype, space.dtype) or found.dtype == np.float32
            require(
                fits, f"{bench}: it returned {found.dtype}, but its space has dtype {space.dtype}"
            )
            if not ((found >= low) & (found <= high)).all():
                require(
                    False,
                    f"{bench}: it returned {found.min():.4g} to {found.max():.4g}, outside its"
                    " space",
                )


@check_benches(hint="change statistics only under `if update:`, and before filtering")
def learns_only_when_asked(bench: Bench) -> None:
    """Without `update`, the filter does not learn: its state and results stay the same."""
    made = bench.teach()
    before = _copy(made.get_state())
    first = bench.filtered(made)
    for _ in range(2):
        alike(bench.filtered(made), first, f"{bench}: the same observations, filtered again")
    _same_state(made.get_state(), before, f"{bench}: after filtering without update, its state")


@check_benches(
    hint="return everything that was learned from get_state(), and restore all of it in set_state()"
)
def state_is_saved_and_restored(bench: Bench) -> None:
    """A second filter with the same state gives the same results; later learning does not change
    the state's arrays.
    """
    made, restored = bench.teach(), bench.make()
    state = made.get_state()
    wrong = [
        f"{name!r}: {type(value).__name__}"
        for name, value in state.items()
        if not (isinstance(name, str) and isinstance(value, np.ndarray))
    ]
    require(
        not wrong, f"{bench}: get_state() must return arrays by name, found {{{', '.join(wrong)}}}"
    )
    kept = _copy(state)
    restored.set_state(kept)
    expected = bench.filtered(made)
    alike(
        bench.filtered(restored),
        expected,
        f"{bench}: a filter with its state, compared with itself",
    )
    _same_state(restored.get_state(), kept, f"{bench}: the state of a restored filter")
    for one in (made, restored):
        bench.filtered(one, update=True)
    _same_state(
        restored.get_state(),
        _copy(made.get_state()),
        f"{bench}: the state of both after further learning",
    )
    what = f"{bench}: a filter that learned further from its state, compared with itself"
    alike(bench.filtered(restored), bench.filtered(made), what)
    _same_state(
        state, kept, f"{bench}: while the filter learned further, the state returned before"
    )


@check_benches(
    hint="store statistics in attributes that deepcopy can copy, not in the class or the module"
)
def copies_are_independent(bench: Bench) -> None:
    """A copy, and another filter of the same kind, learn independently."""
    made, new = bench.teach(), _copy(bench.make().get_state())
    state, expected = _copy(made.get_state()), bench.filtered(made)
    for name, other in (("a copy", copy.deepcopy(made)), ("another filter", bench.make())):
        other(bench.others.copy() + 1, update=True)
        alike(bench.filtered(made), expected, f"{bench}: after {name} has learned, the filter")
        _same_state(made.get_state(), state, f"{bench}: after {name} has learned, its state")
    _same_state(
        bench.make().get_state(),
        new,
        f"{bench}: the state of a new filter, after others have learned,",
    )


@check_benches(hint="leave the leaves of preprocessor.leaves() that are not `numeric` unchanged")
def leaves_one_hots_and_masks_alone(bench: Bench) -> None:
    """One-hot vectors, masks, indices and padding stay unchanged."""
    filtered = bench.filtered(bench.teach())
    kept = [leaf for leaf in bench.preprocessor.leaves() if not leaf.numeric]
    if filtered.shape != bench.others.shape or not kept:
        raise NotApplicable("its examples contain only quantities, or it returns a different shape")
    given, flat = (array.reshape(ROWS, -1) for array in (bench.others, filtered))
    for leaf in kept:
        columns = slice(leaf.start, leaf.stop)
        alike(flat[:, columns], given[:, columns], f"{bench}: {leaf.path} ({leaf.kind})")


@check_benches(hint="filter each row with the learned statistics, not with other rows in the batch")
def filters_each_row_alone(bench: Bench) -> None:
    """An observation is filtered in the same way on its own and in a batch."""
    made = bench.teach()
    alone = np.concatenate([made(bench.others[i : i + 1].copy()) for i in range(ROWS)])
    alike(
        alone,
        bench.filtered(made),
        f"{bench}: observations filtered one by one, compared with all at once",
    )


def _copy(state: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.array(value) for name, value in state.items()}


def _same_state(found: Mapping[str, Array], expected: Mapping[str, Array], what: str) -> None:
    require(
        found.keys() == expected.keys(), f"{what} has {sorted(found)}, expected {sorted(expected)}"
    )
    for name, value in expected.items():
        alike(np.asarray(found[name]), value, f"{what} {name!r}")
