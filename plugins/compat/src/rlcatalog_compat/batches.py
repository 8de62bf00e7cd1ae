"""Batches in RLlib's format: dictionaries of columns."""

from __future__ import annotations

import importlib
import io
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_compat.helpers import DEFAULT_POLICY_ID
from rlcatalog_compat.sequences import padded
from rlcatalog_compat.spaces import leaves, map_leaves


def concat_samples(samples: list[SampleBatch]) -> SampleBatch:
    """Concatenate the rows of several batches into one batch.

    Raises:
        ConfigError: The batches have different columns.
    """
    samples = [sample for sample in samples if sample]
    if not samples:
        return SampleBatch()
    names = samples[0].keys()
    if different := [sample for sample in samples if sample.keys() != names]:
        raise ConfigError(
            f"concat_samples: columns {sorted(names)} and {sorted(different[0].keys())} differ."
        )
    return samples[0]._like(
        {name: _map(_join, *(sample[name] for sample in samples)) for name in names}
    )


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

    OBS = CUR_OBS = "obs"
    NEXT_OBS = "new_obs"
    OBS_EMBEDS = "obs_embeds"
    ACTIONS, REWARDS = "actions", "rewards"
    PREV_ACTIONS, PREV_REWARDS = "prev_actions", "prev_rewards"
    DONES, TERMINATEDS, TRUNCATEDS, INFOS = "dones", "terminateds", "truncateds", "infos"
    SEQ_LENS, T = "seq_lens", "t"
    EPS_ID, ENV_ID, AGENT_INDEX, AGENT_ID, UNROLL_ID = (
        "eps_id",
        "env_id",
        "agent_index",
        "agent_id",
        "unroll_id",
    )
    ACTION_DIST_INPUTS, ACTION_DIST = "action_dist_inputs", "action_dist"
    ACTION_PROB, ACTION_LOGP = "action_prob", "action_logp"
    VF_PREDS, VALUES_BOOTSTRAPPED, ACTION_MASK = "vf_preds", "values_bootstrapped", "action_mask"
    RETURNS_TO_GO, ATTENTION_MASKS = "returns_to_go", "attention_masks"

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

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            start, end, _ = key.indices(len(self))
            return self.slice(*self._whole_sequences(start, end))
        if key == "is_training":  # models of older layouts read it as a column
            return (
                self.is_training if "is_training" not in self.keys() else super().__getitem__(key)
            )
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

    def __reduce__(self) -> Any:  # a dict gets its items before its attributes
        return (
            SampleBatch,
            (dict(self),),
            vars(self) | {"get_interceptor": None, "intercepted_values": {}},
        )

    def set_get_interceptor(self, fn: Callable[[Any], Any] | None) -> None:
        """Set the function that is applied to each column when it is first read; None
        removes it.
        """
        self.get_interceptor, self.intercepted_values = fn, {}

    def get(self, key: str, default: Any = None) -> Any:
        """Return a column, or the default if it is missing."""
        with suppress(KeyError):
            return self[key]
        return default

    @property
    def is_training(self) -> Any:
        """Whether the batch is used for training: a boolean, or a boolean tensor."""
        return False if self._is_training is None else self._is_training

    def set_training(self, training: Any = True) -> None:
        """Set whether the batch is used for training."""
        self._is_training = training

    @property
    def count(self) -> int:
        """Number of time steps, without padding."""
        lengths = super().get(self.SEQ_LENS)
        if lengths is not None and len(lengths) and not self.zero_padded:
            return int(sum(int(length) for length in lengths))
        return next(
            (
                len(leaf)
                for name in self._rows()
                for leaf in leaves(super(SampleBatch, self).get(name))
            ),
            0,
        )

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
            yield {name: _map(lambda leaf, row=row: leaf[row], self[name]) for name in self._rows()}

    def columns(self, keys: list[str]) -> list[Any]:
        """Return the columns with the given names."""
        return [self[key] for key in keys]

    def copy(self, shallow: bool = False) -> SampleBatch:
        """Return a copy; unless `shallow` is set, the arrays are copied too."""
        same = self._like(
            {name: _map(lambda x: x if shallow else _copy(x), x) for name, x in self.items()}
        )
        same.added_keys, same.deleted_keys = set(self.added_keys), set(self.deleted_keys)
        same.accessed_keys = set(self.accessed_keys)
        return same

    def slice(self, start: int, end: int) -> SampleBatch:
        """Return the rows from `start` up to `end`.

        A sequence that crosses the boundary is cut. As in RLlib, it keeps the state at its original
        first row, even if that row is removed.
        """
        columns = {
            name: _map(lambda leaf: leaf[start:end], column) for name, column in self._per_row()
        }
        if (lengths := super().get(self.SEQ_LENS)) is not None and len(lengths):
            real = np.asarray([int(length) for length in lengths])
            held = self._held_rows()
            starts = np.cumsum(held) - held
            kept = np.flatnonzero((starts + held > start) & (starts < end))
            first, last = (int(kept[0]), int(kept[-1]) + 1) if len(kept) else (0, 0)
            for name in self.keys() - columns.keys():
                columns[name] = _map(lambda leaf: leaf[first:last], super().__getitem__(name))
            # Padding follows a sequence's rows, so the rows before the cut remain.
            left = np.minimum(starts + real, end) - np.maximum(starts, start)
            columns[self.SEQ_LENS] = np.maximum(left[first:last], 0).astype(np.int32)
        return self._like(columns)

    def _held_rows(self) -> Any:
        """Return the number of rows of each sequence, padding included, `[sequences]`."""
        lengths = super().get(self.SEQ_LENS, ())
        if self.zero_padded:
            return np.full(len(lengths), self.max_seq_len)
        return np.asarray([int(length) for length in lengths], np.int64)

    def _whole_sequences(self, start: int, end: int) -> tuple[int, int]:
        """Return two rows, each moved back to the first row of its sequence; unchanged without
        sequences.
        """
        held = self._held_rows()
        if not len(held):
            return start, end
        edges = np.concatenate([[0], np.cumsum(held)])  # the last edge is the end of the batch
        first, last = np.searchsorted(edges, [start, end], side="right") - 1
        return int(edges[first]), int(edges[last])

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
            ended = ids[1:] != ids[:-1]
        else:
            ended = np.asarray(self[self.DONES], bool)
            if self.TRUNCATEDS in self and self.DONES not in self:
                ended = ended | np.asarray(self[self.TRUNCATEDS], bool)
        edges = sorted({0, *(np.flatnonzero(ended) + 1).tolist(), self.count})
        return [self.slice(a, b) for a, b in pairwise(edges)]

    def timeslices(self, size: int) -> list[SampleBatch]:
        """Split the batch into pieces of `size` rows; the last may be shorter."""
        return [self.slice(i, min(i + size, self.count)) for i in range(0, self.count, size)]

    def shuffle(self) -> SampleBatch:
        """Shuffle the rows in place and return the batch."""
        order = np.random.permutation(self.count)
        for name in self._rows():
            self[name] = _map(lambda leaf: leaf[order], self[name])
        return self

    def concat(self, other: SampleBatch) -> SampleBatch:
        """Return this batch with another batch's rows appended."""
        return concat_samples([self, other])

    concat_samples = staticmethod(concat_samples)

    def get_single_step_input_dict(
        self, view_requirements: Mapping[str, Any], index: Any = "last"
    ) -> SampleBatch:
        """Return a model's inputs at one step; each view is a batch with one row.

        Args:
            view_requirements: A model's views.
            index: The step; `"last"` is the step after the last row.
        """
        now = self.count if index == "last" else int(index)
        found: dict[str, Any] = {}
        for name, view in view_requirements.items():
            column = view.data_col or name
            known = column in self or (column == self.OBS and self.NEXT_OBS in self)
            if column.startswith("state_in_") or not known:
                continue
            steps = [now + int(shift) for shift in np.ravel(view.shift_arr)]
            rows = [self._row(column, step, view.space) for step in steps]
            found[name] = np.asarray(rows if len(rows) > 1 else rows[0])[None]
        return SampleBatch(found)

    def size_bytes(self) -> int:
        """Return the total size of the columns in bytes."""
        return sum(
            getattr(leaf, "nbytes", None) or sys.getsizeof(leaf) for leaf in leaves(dict(self))
        )

    def right_zero_pad(self, max_seq_len: int, exclude_states: bool = True) -> SampleBatch:
        """Pad each sequence with zeros to `max_seq_len` rows, in place, and return the batch.

        Args:
            max_seq_len: Number of rows in each padded sequence.
            exclude_states: Accepted for RLlib's signature; states have one row per sequence and are
                never padded.

        Raises:
            ConfigError: `"seq_lens"` is missing, or a sequence is longer than `max_seq_len`.
        """
        if (lengths := super().get(self.SEQ_LENS)) is None or max(lengths, default=0) > max_seq_len:
            raise ConfigError(
                f"right_zero_pad: expected seq_lens of up to {max_seq_len}, found {lengths}."
            )
        for name, column in self._per_row():
            self[name] = _map(lambda leaf: padded(leaf, lengths, max_seq_len), column)
        self.zero_padded, self.max_seq_len = True, max_seq_len
        return self

    def to_device(
        self, device: Any, framework: str = "torch", pin_memory: bool = False, **kwargs: Any
    ) -> SampleBatch:
        """Convert the columns to PyTorch tensors on a device, in place, and return the batch.

        Raises:
            NotServedError: The framework is not `"torch"`, the only one supported, as in RLlib.
        """
        if framework != "torch":
            raise NotServedError(
                f"to_device: only framework='torch' is supported, found {framework!r}."
            )
        convert = importlib.import_module("rlcatalog_compat.tensors.torch").convert_to_torch_tensor
        for name, column in self.items():
            self[name] = convert(column, device, pin_memory)
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
            self[name] = _map(lambda leaf: _pack(leaf, bulk), self[name])
        return self

    def decompress_if_needed(self, columns: Iterable[str] = ("obs", "new_obs")) -> SampleBatch:
        """Undo `compress`, in place, and return the batch."""
        for name in self.keys() & set(columns):
            self[name] = _map(_unpack, self[name])
        return self

    def _row(self, column: str, step: int, space: Any) -> Any:
        """Return a column's value at one step: zeros before the start, and the next observation
        after the end.
        """
        if column == self.OBS and step >= self.count and self.NEXT_OBS in self:
            return self[self.NEXT_OBS][step - 1]
        if 0 <= step < self.count:
            return self[column][step]
        return np.zeros_like(self[column][0]) if self.count else np.zeros(space.shape, space.dtype)

    def _rows(self) -> list[str]:
        """Return the names of the columns that have one row per step."""
        return [
            name
            for name in self.keys()
            if name != self.SEQ_LENS and not name.startswith("state_in_")
        ]

    def _per_row(self) -> list[tuple[str, Any]]:
        """Return the names and unchanged values of the columns that have one row per step."""
        return [(name, super(SampleBatch, self).__getitem__(name)) for name in self._rows()]

    def _like(self, columns: Mapping[str, Any]) -> SampleBatch:
        made = SampleBatch(columns)
        for name in ("_is_training", "time_major", "zero_padded", "max_seq_len", "get_interceptor"):
            setattr(made, name, getattr(self, name))
        return made


class MultiAgentBatch:
    """Batches of several policies.

    Args:
        policy_batches: Policy → batch.
        env_steps: Number of environment steps.
    """

    def __init__(self, policy_batches: Mapping[str, SampleBatch], env_steps: int) -> None:
        self.policy_batches, self.count = dict(policy_batches), env_steps

    def env_steps(self) -> int:
        """Return the number of environment steps."""
        return self.count

    def agent_steps(self) -> int:
        """Return the total number of steps taken by all agents."""
        return sum(batch.count for batch in self.policy_batches.values())


def convert_ma_batch_to_sample_batch(batch: Any) -> SampleBatch:
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
    found: SampleBatch = batch.policy_batches[DEFAULT_POLICY_ID]
    return found


#: `map_leaves` of columns, in which a list is one leaf.
_map = partial(map_leaves, kinds=tuple)


def _copy(x: Any) -> Any:
    return x.clone() if hasattr(x, "clone") else x.copy() if hasattr(x, "copy") else x


def _join(*parts: Any) -> Any:
    if hasattr(parts[0], "detach"):
        return importlib.import_module("torch").cat(parts)
    return np.concatenate([np.asarray(part) for part in parts])


# --- columns as compressed bytes: arrays in NumPy's format, without pickles -----------------------


def _pack(array: Any, bulk: bool) -> Any:
    """Compress an array as a whole into bytes, or row by row into an array of bytes."""
    if not bulk:
        # An array of bytes would drop trailing zeros.
        made = np.empty(len(array), object)
        made[:] = [_pack(row, bulk=True) for row in array]
        return made
    held = io.BytesIO()
    np.save(held, np.asarray(array), allow_pickle=False)
    return zlib.compress(held.getvalue())


def _unpack(leaf: Any) -> Any:
    """Undo `_pack`; return unpacked values unchanged."""
    if isinstance(leaf, bytes):
        return np.load(io.BytesIO(zlib.decompress(leaf)), allow_pickle=False)
    rows = (
        isinstance(leaf, np.ndarray)
        and leaf.dtype == object
        and len(leaf)
        and isinstance(leaf[0], bytes)
    )
    return np.stack([_unpack(row) for row in leaf]) if rows else leaf
