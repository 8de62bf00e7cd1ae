"""Checks of steps whose numbers lie on a device: they are computed there, and read later, together.

Reading a number of a GPU waits for the GPU. Therefore a step only computes whether its numbers are
right, and keeps the first step in which they were not. `TensorChecks.read` waits once, looks the
step up among the last ones, and raises the same error as a step of arrays.

In CPU memory, reading waits for nothing. A step's result is therefore read at once, and only the
first wrong step is kept until `TensorChecks.read`.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from rlcatalog.errors import CatalogError, NonFiniteError
from rlcatalog.frameworks import Tensor, TensorOps
from rlcatalog.spaces import map_tensors

#: Number of steps whose tensors are kept, so that a wrong number's row can be named.
_MOST_STEPS = 1024
#: Number of values in these tensors; with float32, 64 MiB of the device's memory.
_MOST_VALUES = 1 << 24
#: The first wrong step, as long as there is none.
_NONE = np.iinfo(np.int64).max


class Check(NamedTuple):
    """A check of some tensors.

    Attributes:
        is_right: Whether their numbers are right: a boolean tensor without axes.
        raise_error: Function of the same tensors as arrays that raises the error for them. It
            raises nothing if their numbers are right.
        tensors: The tensors, or structures of tensors. They are not copied, so a simulator may have
            overwritten them when the check is read.
    """

    is_right: Any
    raise_error: Callable[..., Any]
    tensors: tuple[Any, ...]


class _Entry(NamedTuple):
    """The checks of one step or other call.

    Attributes:
        what: What was called, such as `"step"`.
        number: Its number since the last reading, from 1.
        checks: The checks.
    """

    what: str
    number: int
    checks: Sequence[Check]


class TensorChecks:
    """The checks of a policy's steps since they were last read.

    Args:
        ops: The operations for the tensors.
        is_on_host: Whether the tensors are in CPU memory, where a number can be read at once.
    """

    def __init__(self, ops: TensorOps, is_on_host: bool) -> None:
        self._ops = ops
        self._is_on_host = is_on_host
        self._start()

    def _start(self) -> None:
        #: Number of entries so far whose result only the device knows.
        self._count = 0
        #: What was called → how often.
        self._calls: Counter[str] = Counter()
        #: The first wrong entry in CPU memory.
        self._wrong_entry: _Entry | None = None
        self._entries: deque[_Entry] = deque()
        #: Number of entries to keep; the first one tells how large they are.
        self._most_entries = 0
        #: The index of the first wrong entry and of the next entry, as tensors without axes.
        self._first_wrong: Any = None
        self._next: Any = None

    def add(self, what: str, checks: Sequence[Check]) -> None:
        """Add the checks of one call.

        Args:
            what: What was called, such as `"step"`.
            checks: The checks.
        """
        if not checks:
            return
        is_right = checks[0].is_right
        for check in checks[1:]:
            is_right = is_right & check.is_right
        self._calls[what] += 1
        entry = _Entry(what, self._calls[what], checks)
        known = self._ops.array(is_right) if self._is_on_host else None
        if known is None:  # on another device, or while a graph is traced
            self._add_unknown(entry, is_right)
        elif not known and self._wrong_entry is None:
            self._wrong_entry = entry

    def _add_unknown(self, entry: _Entry, is_right: Any) -> None:
        """Add an entry whose result only the device knows."""
        ops = self._ops
        if self._first_wrong is None:
            self._first_wrong = ops.constant(np.array(_NONE), is_right)
            self._next = ops.constant(np.array(0), is_right)
        if_wrong = ops.minimum(self._first_wrong, self._next)
        self._first_wrong = ops.where(is_right, self._first_wrong, if_wrong)
        self._next = self._next + 1
        self._count += 1
        self._keep(entry)

    def _keep(self, entry: _Entry) -> None:
        """Keep an entry, and forget the oldest one if there are too many."""
        if not self._entries:
            size = max(_count_values(entry.checks), 1)
            self._most_entries = min(max(_MOST_VALUES // size, 1), _MOST_STEPS)
        self._entries.append(entry)
        if len(self._entries) > self._most_entries:
            self._entries.popleft()

    def read(self) -> None:
        """Wait for the device, and raise the error for the first wrong number since the last
        reading; see `Policy.check`.
        """
        wrong_entry = self._wrong_entry
        first_wrong_tensor = self._first_wrong
        entries = self._entries
        num_forgotten = self._count - len(entries)
        self._start()
        if wrong_entry is not None:
            self._raise(wrong_entry)
        if first_wrong_tensor is None:
            return
        first_wrong = int(self._ops.array(first_wrong_tensor))
        if first_wrong == _NONE:
            return
        if first_wrong < num_forgotten:
            raise NonFiniteError(
                f"call {first_wrong + 1} since the last check contained a number that is not"
                " finite, or a mask or integer that is not allowed. Its tensors are no longer kept,"
                f" only those of the last {len(entries)} calls: call check() more often to learn"
                " which row it was."
            )
        self._raise(entries[first_wrong - num_forgotten])

    def _raise(self, entry: _Entry) -> NoReturn:
        """Raise the error for an entry with a wrong number."""
        since = f"{entry.what} {entry.number} since the last check"
        for check in entry.checks:
            arrays = map_tensors(check.tensors, self._ops.array)
            try:
                check.raise_error(*arrays)
            except CatalogError as error:
                # The same error with a longer message, so its cause stays.
                error.args = (f"{since}: {error}",)
                raise
        raise NonFiniteError(
            f"{since}: it contained a number that is not finite, or a mask or integer that is not"
            " allowed, but its tensors have been overwritten since. Pass copies of the observations"
            " (clone()) to learn which row it was."
        )


def _count_values(checks: Sequence[Check]) -> int:
    """Return the number of values in the tensors of checks."""
    sizes: list[int] = []

    def count(tensor: Tensor) -> None:
        sizes.append(math.prod(tensor.shape))

    for check in checks:
        map_tensors(check.tensors, count)
    return sum(sizes)
