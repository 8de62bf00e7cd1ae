"""Batches in RLlib's format: dictionaries of columns."""

from __future__ import annotations

import builtins
import importlib
import io
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space
from numpy.typing import ArrayLike

from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog.frameworks import Array, Tensor
from rlcatalog_compat.helpers import DEFAULT_POLICY_ID
from rlcatalog_compat.sequences import pad
from rlcatalog_compat.spaces import leaves, map_leaves

if TYPE_CHECKING:
    from rlcatalog import ViewRequirement


def concat_samples(samples: list[SampleBatch]) -> SampleBatch:
    """Concatenate the rows of several batches into one batch.

    Raises:
        ConfigError: The batches have different columns.
    """
    batches = [sample for sample in samples if sample]
    if not batches:
        return SampleBatch()
    names = batches[0].keys()
    for batch in batches:
        if batch.keys() != names:
            raise ConfigError(
                f"concat_samples: columns {sorted(names)} and {sorted(batch.keys())} differ."
            )
    columns = {}
    for name in names:
        columns[name] = _map(_join, *(batch[name] for batch in batches))
    return batches[0]._with_columns(columns)


class SampleBatch(dict[str, Any]):
    """A trajectory's columns by name, with one row per time step.

    Columns are arrays, tensors, or structures of them; lists become arrays. `"seq_lens"`,
    `"state_in_0"` and so on have one row per sequence and do not count as rows. If there is no
    column `"dones"`, reading it returns `"terminateds"`.

    `batch[start:end]` returns whole sequences, as in RLlib: in a batch with `"seq_lens"`, both
    indices are moved back to the first row of their sequence, so that each state belongs to the
    first row that follows it. `batch.slice(start, end)` returns exactly these rows.

    Attributes:
        accessed_keys: Names of the columns that were read.
        added_keys: Names of columns that were added after construction.
        deleted_keys: Names of the columns that were deleted.
        get_interceptor: Function applied to each column when it is first read, or None.

    Args:
        *args: Arguments of `dict`.
        **kwargs: Columns, except `_is_training`, `_time_major`, `_zero_padded` and `_max_seq_len`,
            which set attributes.
    """

    OBS = "obs"
    CUR_OBS = "obs"
    NEXT_OBS = "new_obs"
    OBS_EMBEDS = "obs_embeds"
    ACTIONS = "actions"
    REWARDS = "rewards"
    PREV_ACTIONS = "prev_actions"
    PREV_REWARDS = "prev_rewards"
    DONES = "dones"
    TERMINATEDS = "terminateds"
    TRUNCATEDS = "truncateds"
    INFOS = "infos"
    SEQ_LENS = "seq_lens"
    T = "t"
    EPS_ID = "eps_id"
    ENV_ID = "env_id"
    AGENT_INDEX = "agent_index"
    AGENT_ID = "agent_id"
    UNROLL_ID = "unroll_id"
    ACTION_DIST_INPUTS = "action_dist_inputs"
    ACTION_DIST = "action_dist"
    ACTION_PROB = "action_prob"
    ACTION_LOGP = "action_logp"
    VF_PREDS = "vf_preds"
    VALUES_BOOTSTRAPPED = "values_bootstrapped"
    ACTION_MASK = "action_mask"
    RETURNS_TO_GO = "returns_to_go"
    ATTENTION_MASKS = "attention_masks"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._is_training = kwargs.pop("_is_training", None)
        self.time_major = kwargs.pop("_time_major", None)
        self.zero_padded = kwargs.pop("_zero_padded", False)
        self.max_seq_len = kwargs.pop("_max_seq_len", None)
        self.accessed_keys: set[str] = set()
        self.added_keys: set[str] = set()
        self.deleted_keys: set[str] = set()
        self.get_interceptor: Callable[[Any], Any] | None = None
        self.intercepted_values: dict[str, Any] = {}
        super().__init__(*args, **kwargs)
        for name, column in self.items():
            if isinstance(column, list) and name != self.INFOS:
                super().__setitem__(name, np.asarray(column))

    def __getitem__(self, key: str | builtins.slice) -> Any:
        if isinstance(key, slice):
            start, end, _ = key.indices(len(self))
            sizes = self._sequence_sizes()
            if len(sizes):
                start = _start_of_sequence(sizes, start)
                end = _start_of_sequence(sizes, end)
            return self.slice(start, end)
        if key == "is_training":  # models of older layouts read it as a column
            if "is_training" in self.keys():
                return super().__getitem__(key)
            return self.is_training
        if key == self.DONES and key not in self:
            key = self.TERMINATEDS
        value = super().__getitem__(key)
        self.accessed_keys.add(key)
        if self.get_interceptor is None:
            return value
        if key not in self.intercepted_values:
            self.intercepted_values[key] = self.get_interceptor(value)
        return self.intercepted_values[key]

    def __setitem__(self, key: str, column: Any) -> None:
        if key not in self:
            self.added_keys.add(key)
        self.intercepted_values.pop(key, None)
        super().__setitem__(key, column)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self.deleted_keys.add(key)
        self.intercepted_values.pop(key, None)

    def __reduce__(self) -> Any:
        # By default, pickle sets a dict's items before its attributes, but `__setitem__` needs
        # them. The interceptor is left out, because it may be a closure.
        attributes = vars(self) | {"get_interceptor": None, "intercepted_values": {}}
        return SampleBatch, (dict(self),), attributes

    def set_get_interceptor(self, fn: Callable[[Any], Any] | None) -> None:
        """Set the function that is applied to each column when it is first read; None
        removes it.
        """
        self.get_interceptor = fn
        self.intercepted_values = {}

    def get(self, key: str, default: Any = None) -> Any:
        """Return a column, or the default if it is missing."""
        with suppress(KeyError):
            return self[key]
        return default

    @property
    def is_training(self) -> Any:
        """Whether the batch is used for training: a boolean, or a boolean tensor."""
        if self._is_training is None:
            return False
        return self._is_training

    def set_training(self, training: bool | Tensor = True) -> None:
        """Set whether the batch is used for training."""
        self._is_training = training

    @property
    def count(self) -> int:
        """Number of time steps, without padding."""
        lengths = super().get(self.SEQ_LENS)
        if lengths is not None and len(lengths) and not self.zero_padded:
            return sum(int(length) for length in lengths)
        for _, column in self._row_columns():
            for leaf in leaves(column):
                return len(leaf)
        return 0

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return bool(self.keys())

    def env_steps(self) -> int:
        """Return the number of environment steps."""
        return self.count

    agent_steps = env_steps

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows, each as a dict with one value per column."""
        for row in range(self.count):
            yield {name: _map(itemgetter(row), self[name]) for name in self._row_column_names()}

    def columns(self, keys: list[str]) -> list[Any]:
        """Return the columns with the given names."""
        return [self[key] for key in keys]

    def copy(self, shallow: bool = False) -> SampleBatch:
        """Return a copy; unless `shallow` is set, the arrays are copied too."""
        columns = {}
        for name, column in self.items():
            columns[name] = _map(_same if shallow else _copy, column)
        batch = self._with_columns(columns)
        batch.added_keys = set(self.added_keys)
        batch.deleted_keys = set(self.deleted_keys)
        batch.accessed_keys = set(self.accessed_keys)
        return batch

    def slice(self, start: int, end: int) -> SampleBatch:
        """Return the rows from `start` up to `end`.

        A sequence that crosses the boundary is cut. As in RLlib, it keeps the state at its original
        first row, even if that row is removed. A batch with padding then returns its rows without
        the padding, because the cut sequence is shorter than the others.
        """
        columns = {}
        rows = [slice(start, end)]
        cuts_padded_sequence = self._cuts_padded_sequence(start, end)
        if cuts_padded_sequence:
            rows = self._rows_without_padding(start, end)
        for name, column in self._row_columns():
            columns[name] = _map(partial(_take, rows), column)
        lengths = super().get(self.SEQ_LENS)
        if lengths is not None and len(lengths):
            columns.update(self._slice_sequences(start, end))
        batch = self._with_columns(columns)
        if cuts_padded_sequence:
            batch.zero_padded = False
            batch.max_seq_len = None
        return batch

    def _cuts_padded_sequence(self, start: int, end: int) -> bool:
        """Return whether a slice has only some of the rows of a padded sequence."""
        if not self.zero_padded or self.max_seq_len is None:
            return False
        last = min(end, self.count)
        is_whole = start % self.max_seq_len == 0 and last % self.max_seq_len == 0
        return not is_whole

    def _rows_without_padding(self, start: int, end: int) -> list[builtins.slice]:
        """Return the rows from `start` up to `end` that are not padding: a slice for each
        sequence.
        """
        rows = []
        for index, length in enumerate(super().__getitem__(self.SEQ_LENS)):
            first_row = index * self.max_seq_len
            begin = max(first_row, start)
            stop = max(min(first_row + int(length), end), begin)
            rows.append(slice(begin, stop))
        return rows

    def _slice_sequences(self, start: int, end: int) -> dict[str, Any]:
        """Return the columns with one row per sequence, for the rows from `start` up to `end`."""
        sizes = self._sequence_sizes()
        starts = np.cumsum(sizes) - sizes
        ends = starts + sizes
        # Sequences with at least one of these rows; they follow each other.
        overlapping = np.flatnonzero((ends > start) & (starts < end))
        sequences = slice(0, 0)
        if len(overlapping):
            sequences = slice(int(overlapping[0]), int(overlapping[-1]) + 1)
        columns = {}
        row_columns = self._row_column_names()
        for name in self.keys():
            if name not in row_columns:
                columns[name] = _map(itemgetter(sequences), super().__getitem__(name))
        # Padding follows a sequence's rows, so the rows before the cut remain.
        lengths = np.asarray([int(length) for length in super().__getitem__(self.SEQ_LENS)])
        new_lengths = np.minimum(starts + lengths, end) - np.maximum(starts, start)
        columns[self.SEQ_LENS] = np.maximum(new_lengths[sequences], 0).astype(np.int32)
        return columns

    def _sequence_sizes(self) -> Array:
        """Return the number of rows of each sequence, padding included, `[sequences]`."""
        lengths = super().get(self.SEQ_LENS, ())
        if self.zero_padded:
            return np.full(len(lengths), self.max_seq_len)
        return np.asarray([int(length) for length in lengths], np.int64)

    def split_by_episode(self, key: str | None = None) -> list[SampleBatch]:
        """Return one batch per episode.

        Args:
            key: `"eps_id"` (changes between episodes) or `"dones"` (true at their ends; if missing,
                `"terminateds"` or `"truncateds"`). By default, the first of these columns that
                exists.

        Raises:
            ConfigError: The key is not one of these.
            KeyError: The required column is missing.
        """
        if key not in (None, self.EPS_ID, self.DONES):
            raise ConfigError(
                f"split_by_episode: expected 'eps_id', 'dones' or None; found {key!r}."
            )
        if key == self.EPS_ID or (key is None and self.EPS_ID in self):
            ids = np.asarray(super().__getitem__(self.EPS_ID))
            is_last_step = ids[1:] != ids[:-1]
        else:
            # Reading "dones" returns "terminateds" if there is no such column.
            is_last_step = np.asarray(self[self.DONES], bool)
            if self.TRUNCATEDS in self and self.DONES not in self:
                is_last_step = is_last_step | np.asarray(self[self.TRUNCATEDS], bool)
        episode_ends = np.flatnonzero(is_last_step) + 1
        edges = sorted({0, *episode_ends.tolist(), self.count})
        return [self.slice(start, end) for start, end in pairwise(edges)]

    def timeslices(self, size: int) -> list[SampleBatch]:
        """Split the batch into pieces of `size` rows; the last may be shorter."""
        slices = []
        for start in range(0, self.count, size):
            end = min(start + size, self.count)
            slices.append(self.slice(start, end))
        return slices

    def shuffle(self) -> SampleBatch:
        """Shuffle the rows in place and return the batch."""
        order = np.random.permutation(self.count)
        for name in self._row_column_names():
            self[name] = _map(lambda leaf: leaf[order], self[name])
        return self

    def concat(self, other: SampleBatch) -> SampleBatch:
        """Return this batch with another batch's rows appended."""
        return concat_samples([self, other])

    concat_samples = staticmethod(concat_samples)

    def get_single_step_input_dict(
        self, view_requirements: Mapping[str, ViewRequirement], index: int | str = "last"
    ) -> SampleBatch:
        """Return a model's inputs at one step; each view is a batch with one row.

        Args:
            view_requirements: A model's views.
            index: The step; `"last"` is the step after the last row.
        """
        current_step = self.count if index == "last" else int(index)
        views: dict[str, Any] = {}
        for name, view in view_requirements.items():
            column = view.data_col or name
            has_column = column in self
            if column == self.OBS and self.NEXT_OBS in self:
                has_column = True
            if column.startswith("state_in_") or not has_column:
                continue
            rows = []
            for shift in np.ravel(view.shift_arr):
                rows.append(self._row(column, current_step + int(shift), view.space))
            # A view of one step has no axis for steps.
            view_value = rows if len(rows) > 1 else rows[0]
            views[name] = np.asarray(view_value)[None]
        return SampleBatch(views)

    def size_bytes(self) -> int:
        """Return the total size of the columns in bytes."""
        return sum(_count_bytes(leaf) for leaf in leaves(dict(self)))

    def right_zero_pad(self, max_seq_len: int, exclude_states: bool = True) -> SampleBatch:
        """Pad each sequence with zeros to `max_seq_len` rows, in place, and return the batch.

        Args:
            max_seq_len: Number of rows in each padded sequence.
            exclude_states: Accepted for RLlib's signature; states have one row per sequence and are
                never padded.

        Raises:
            ConfigError: `"seq_lens"` is missing, or a sequence is longer than `max_seq_len`.
        """
        lengths = super().get(self.SEQ_LENS)
        if lengths is None or max(lengths, default=0) > max_seq_len:
            raise ConfigError(
                f"right_zero_pad: expected seq_lens of up to {max_seq_len}, found {lengths}."
            )
        for name, column in self._row_columns():
            self[name] = _map(lambda leaf: pad(leaf, lengths, max_seq_len), column)
        self.zero_padded = True
        self.max_seq_len = max_seq_len
        return self

    def to_device(
        self,
        device: Any,
        framework: str = "torch",
        pin_memory: bool = False,
        **kwargs: Any,
    ) -> SampleBatch:
        """Convert the columns to PyTorch tensors on a device, in place, and return the batch.

        Raises:
            NotServedError: The framework is not `"torch"`, the only one supported, as in RLlib.
        """
        if framework != "torch":
            raise NotServedError(
                f"to_device: only framework='torch' is supported, found {framework!r}."
            )
        torch_functions = importlib.import_module("rlcatalog_compat.tensors.torch")
        for name, column in self.items():
            self[name] = torch_functions.convert_to_torch_tensor(column, device, pin_memory)
        return self

    def compress(
        self, bulk: bool = False, columns: Iterable[str] = ("obs", "new_obs")
    ) -> SampleBatch:
        """Compress array columns in place, and return the batch.

        Args:
            bulk: Whether to compress each column as a whole instead of row by row.
            columns: Names of the columns.
        """
        for name in self.keys() & set(columns):
            self[name] = _map(_compress_whole if bulk else _compress_rows, self[name])
        return self

    def decompress_if_needed(self, columns: Iterable[str] = ("obs", "new_obs")) -> SampleBatch:
        """Undo `compress`, in place, and return the batch."""
        for name in self.keys() & set(columns):
            self[name] = _map(_decompress, self[name])
        return self

    def _row(self, column: str, step: int, space: Space[Any]) -> Any:
        """Return a column's value at one step: zeros before the start, and the next observation
        after the end.
        """
        if column == self.OBS and step >= self.count and self.NEXT_OBS in self:
            return self[self.NEXT_OBS][step - 1]
        if 0 <= step < self.count:
            return self[column][step]
        if self.count:
            return np.zeros_like(self[column][0])
        return np.zeros(space.shape, space.dtype)

    def _row_column_names(self) -> list[str]:
        """Return the names of the columns that have one row per step."""
        names = []
        for name in self.keys():
            if name != self.SEQ_LENS and not name.startswith("state_in_"):
                names.append(name)
        return names

    def _row_columns(self) -> list[tuple[str, Any]]:
        """Return the names and values of the columns that have one row per step, without the
        interceptor and without a record in `accessed_keys`.
        """
        columns = []
        for name in self._row_column_names():
            columns.append((name, super().__getitem__(name)))
        return columns

    def _with_columns(self, columns: Mapping[str, Any]) -> SampleBatch:
        """Return a batch with these columns and with the settings of this batch."""
        batch = SampleBatch(columns)
        batch._is_training = self._is_training
        batch.time_major = self.time_major
        batch.zero_padded = self.zero_padded
        batch.max_seq_len = self.max_seq_len
        batch.get_interceptor = self.get_interceptor
        return batch


def _start_of_sequence(sizes: Array, row: int) -> int:
    """Return the first row of the sequence that a row belongs to; after the last sequence, the end
    of the batch.

    Args:
        sizes: Number of rows of each sequence.
        row: The row.
    """
    edges = np.concatenate([[0], np.cumsum(sizes)])
    sequence = np.searchsorted(edges, row, side="right") - 1
    return int(edges[sequence])


class MultiAgentBatch:
    """Batches of several policies.

    Args:
        policy_batches: Policy → batch.
        env_steps: Number of environment steps.
    """

    def __init__(self, policy_batches: Mapping[str, SampleBatch], env_steps: int) -> None:
        self.policy_batches = dict(policy_batches)
        self.count = env_steps

    def env_steps(self) -> int:
        """Return the number of environment steps."""
        return self.count

    def agent_steps(self) -> int:
        """Return the total number of steps taken by all agents."""
        return sum(batch.count for batch in self.policy_batches.values())


def convert_ma_batch_to_sample_batch(batch: SampleBatch | MultiAgentBatch) -> SampleBatch:
    """Return the only batch in a MultiAgentBatch; return a SampleBatch unchanged.

    Raises:
        ConfigError: There are several policies.
    """
    if isinstance(batch, SampleBatch):
        return batch
    if list(batch.policy_batches) != [DEFAULT_POLICY_ID]:
        raise ConfigError(
            f"expected one policy, {DEFAULT_POLICY_ID!r}; found {sorted(batch.policy_batches)}."
        )
    return batch.policy_batches[DEFAULT_POLICY_ID]


#: `map_leaves` of columns, in which a list is one leaf.
_map = partial(map_leaves, kinds=tuple)


def _take(rows: Sequence[slice], leaf: Any) -> Any:
    """Return the rows in several slices of a tensor or array, one after the other."""
    if len(rows) == 1:
        return leaf[rows[0]]
    return _join(*(leaf[some_rows] for some_rows in rows))


def _same(leaf: Any) -> Any:
    """Return the leaf itself, for a shallow copy."""
    return leaf


def _copy(leaf: Any) -> Any:
    """Return a copy of a tensor or an array; other leaves are unchanged."""
    # PyTorch's tensors.
    if hasattr(leaf, "clone"):
        return leaf.clone()
    # NumPy's arrays.
    if hasattr(leaf, "copy"):
        return leaf.copy()
    return leaf


def _count_bytes(leaf: Any) -> int:
    """Return the size of a leaf in bytes."""
    # NumPy's arrays, and PyTorch's tensors.
    num_bytes: int | None = getattr(leaf, "nbytes", None)
    return num_bytes or sys.getsizeof(leaf)


def _join(*parts: Any) -> Any:
    """Return the concatenation of tensors or arrays."""
    # PyTorch's tensors.
    if hasattr(parts[0], "detach"):
        return importlib.import_module("torch").cat(parts)
    return np.concatenate([np.asarray(part) for part in parts])


# --- columns as compressed bytes: arrays in NumPy's format, without pickles -----------------------


def _compress_whole(array: ArrayLike) -> bytes:
    """Compress an array as a whole."""
    file = io.BytesIO()
    np.save(file, np.asarray(array), allow_pickle=False)
    return zlib.compress(file.getvalue())


def _compress_rows(array: Array) -> Array:
    """Compress an array row by row, into an array with the bytes of each row."""
    # An array with dtype bytes would drop trailing zeros.
    rows = np.empty(len(array), object)
    rows[:] = [_compress_whole(row) for row in array]
    return rows


def _decompress(leaf: Any) -> Any:
    """Undo `_compress_whole` and `_compress_rows`; return other values unchanged."""
    if isinstance(leaf, bytes):
        return np.load(io.BytesIO(zlib.decompress(leaf)), allow_pickle=False)
    is_object_array = isinstance(leaf, np.ndarray) and leaf.dtype == object
    if is_object_array and len(leaf) and isinstance(leaf[0], bytes):
        return np.stack([_decompress(row) for row in leaf])
    return leaf
