"""Readers for recorded experience: RLlib's JSON files with plain columns, and folders recorded by
rlcatalog_ppo.
"""

from __future__ import annotations

import glob
import importlib
import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlcatalog.errors import NotServedError, SavedPolicyError, shown
from rlcatalog_compat.batches import MultiAgentBatch, SampleBatch
from rlcatalog_compat.spaces import map_leaves

#: Maximum number of consecutive files without a batch.
_ATTEMPTS = 100


class JsonReader:
    """Endless reader for batches in RLlib's JSON files, line by line; after the first file, the
    order is random.

    It reads columns that are plain lists. By default, RLlib packs observations into pickles.
    Loading them can run code, so the reader rejects them and names the columns.

    Args:
        inputs: A file, a folder, a glob pattern (`"data/*.json"`), or a list of files. A folder
            without JSON files that `PPO(..., record=FOLDER)` has written is read as
            `rlcatalog_ppo.offline.Reader` reads it.
        ioctx: Accepted without effect, because RLlib's workers and their config are not supported.

    Raises:
        SavedPolicyError: The file does not exist.
        NotServedError: A path is a zip file or a URL instead of a local text file.
    """

    def __init__(
        self,
        inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        ioctx: Any = None,
    ) -> None:
        #: Reader of the folder that rlcatalog_ppo recorded; None for RLlib's files.
        self._recorded: Any = None
        if isinstance(inputs, list | tuple):
            self.files = [str(file) for file in inputs]
        else:
            self.files = _find_files(str(inputs))
            if not self.files:
                self._recorded = _reader_of_recording(str(inputs))
        for file in self.files:
            if "://" in file or file.endswith(".zip"):
                raise NotServedError(
                    f"{file}: only local text files can be read; download or unzip it first."
                )
            if not os.path.isfile(os.path.expanduser(file)):
                raise SavedPolicyError(f"{file}: there is no such file.")
        if not self.files and self._recorded is None:
            raise SavedPolicyError(f"{shown(inputs)}: there are no JSON files.")
        self._lines: Iterator[_Line] = iter(())
        if self.files:
            self._lines = _lines(self.files[0])

    def next(self) -> Any:
        """Return the next batch: a `SampleBatch` of arrays, or a `MultiAgentBatch`.

        Raises:
            SavedPolicyError: A line is not an RLlib batch, or no file contains a batch.
            NotServedError: A column is packed.
        """
        if self._recorded is not None:
            return SampleBatch(self._recorded.next())
        for _ in range(_ATTEMPTS):
            for line in self._lines:
                return _parse_batch(line)  # only the next one
            self._lines = _lines(random.choice(self.files))
        raise SavedPolicyError(f"{shown(self.files)}: no batch in {_ATTEMPTS} consecutive files.")

    def read_all_files(self) -> Iterator[Any]:
        """Yield every batch once, file by file."""
        for file in self.files:
            for line in _lines(file):
                yield _parse_batch(line)

    def tf_input_ops(self, queue_size: int = 1) -> dict[str, Any]:
        """Return a batch as TensorFlow tensors; each run of a traced function reads a new batch.

        Text columns and `infos` are omitted. Columns are cast to the first batch's dtypes.

        Args:
            queue_size: Accepted without effect; there is no queue.

        Raises:
            NotServedError: The batches have several agents, or a column is packed.
        """
        if self._recorded is not None:
            ops: dict[str, Any] = self._recorded.tf_input_ops()
        else:
            tf_functions = importlib.import_module("rlcatalog_compat.tensors.tf")
            ops = tf_functions.input_ops(self.next)
        return ops


def _find_files(inputs: str) -> list[str]:
    """Return the files of a folder, a glob pattern, a file or a URL."""
    path = os.path.expanduser(inputs)
    if os.path.isdir(path):
        files = []
        for file in Path(path).iterdir():
            if file.suffix in (".json", ".zip"):
                files.append(str(file))
        return sorted(files)
    if "://" in inputs:
        return [inputs]
    return sorted(glob.glob(path, recursive=True))


def _reader_of_recording(inputs: str) -> Any:
    """Return a reader of a folder that rlcatalog_ppo recorded, or None for other paths."""
    folder = os.path.expanduser(inputs)
    if not os.path.isdir(folder) or not list(Path(folder).glob("rollout-*.npz")):
        return None
    return importlib.import_module("rlcatalog_ppo.offline").Reader(folder)


class _Line(NamedTuple):
    """Non-empty line of a file.

    Attributes:
        where: The file and the line's number, for messages.
        text: The text.
    """

    where: str
    text: str


def _lines(file: str) -> Iterator[_Line]:
    """Yield the non-empty lines of a file."""
    with open(os.path.expanduser(file), encoding="utf-8") as text_file:
        for number, text in enumerate(text_file, 1):
            if text.strip():
                yield _Line(f"{file}, line {number}", text)


def _parse_batch(line: _Line) -> SampleBatch | MultiAgentBatch:
    """Return the batch in a line.

    Raises:
        SavedPolicyError: The line is not a batch.
        NotServedError: A column is packed.
    """
    where = line.where
    try:
        data = json.loads(line.text)
    except ValueError as error:
        raise SavedPolicyError(f"{where}: not JSON: {error}") from error
    kind = None
    if isinstance(data, dict):
        kind = data.pop("type", None)
    if kind == "SampleBatch":
        return _parse_columns(data, where)
    if kind == "MultiAgentBatch" and isinstance(data.get("policy_batches"), dict):
        batches = {}
        for policy, columns in data["policy_batches"].items():
            batches[policy] = _parse_columns(columns, where)
        return MultiAgentBatch(batches, int(data.get("count", 0)))
    unexpected = data if kind is None else kind
    raise SavedPolicyError(
        f"{where}: expected an RLlib batch, an object whose 'type' is 'SampleBatch' or"
        f" 'MultiAgentBatch'; found {shown(unexpected, 80)}."
    )


def _parse_columns(data: Mapping[str, Any], where: str) -> SampleBatch:
    """Return the batch with these columns.

    Args:
        data: Column → rows, and `"type"`.
        where: The file and line, for messages.

    Raises:
        NotServedError: A column is packed.
        SavedPolicyError: A column's rows have different shapes.
    """
    data = {name: column for name, column in data.items() if name != "type"}
    packed = [name for name, column in data.items() if _is_packed(column)]
    if packed:
        raise NotServedError(
            f"{where}: packed: {', '.join(packed)}. Such a column contains a compressed pickle,"
            " and reading a pickle can run code. If you trust the file, use Ray to rewrite it"
            " with plain columns: ray.rllib.offline.JsonWriter(folder, compress_columns=[]), or"
            " record with output_compress_columns=[]."
        )
    columns = {}
    for name, column in data.items():
        if name == SampleBatch.INFOS:
            columns[name] = column
            continue
        try:
            # Only dicts are structures here: a list is one array.
            columns[name] = map_leaves(np.asarray, column, kinds=())
        except ValueError:  # rows of different lengths
            raise SavedPolicyError(
                f"{where}: {name}: expected rows of one shape, found several."
            ) from None
    return SampleBatch(columns)


def _is_packed(column: Any) -> bool:
    """Return whether a column, or one inside it, is a text instead of a list of rows."""
    if isinstance(column, dict):
        return any(map(_is_packed, column.values()))
    return isinstance(column, str)
