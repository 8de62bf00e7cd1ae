"""Readers for recorded experience: RLlib's JSON files with plain columns, and folders recorded by
rlcatalog_ppo.
"""

from __future__ import annotations

import glob
import importlib
import json
import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

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

    def __init__(self, inputs: Any, ioctx: Any = None) -> None:
        self._recorded: Any = None
        self.files = (
            [str(file) for file in inputs]
            if isinstance(inputs, list | tuple)
            else self._find(str(inputs))
        )
        for file in self.files:
            if "://" in file or file.endswith(".zip"):
                raise NotServedError(
                    f"{file}: only local text files can be read; download or unzip it first."
                )
            if not os.path.isfile(os.path.expanduser(file)):
                raise SavedPolicyError(f"{file}: there is no such file.")
        if not self.files and self._recorded is None:
            raise SavedPolicyError(f"{shown(inputs)}: there are no JSON files.")
        self._lines = _lines(self.files[0]) if self.files else iter(())

    def _find(self, inputs: str) -> list[str]:
        folder = os.path.expanduser(inputs)
        if not os.path.isdir(folder):
            return [inputs] if "://" in inputs else sorted(glob.glob(folder, recursive=True))
        files = sorted(
            str(file) for file in Path(folder).iterdir() if file.suffix in (".json", ".zip")
        )
        if not files and list(Path(folder).glob("rollout-*.npz")):
            self._recorded = importlib.import_module("rlcatalog_ppo.offline").Reader(folder)
        return files

    def next(self) -> Any:
        """Return the next batch: a `SampleBatch` of arrays, or a `MultiAgentBatch`.

        Raises:
            SavedPolicyError: A line is not an RLlib batch, or no file contains a batch.
            NotServedError: A column is packed.
        """
        if self._recorded is not None:
            return SampleBatch(self._recorded.next())
        for _ in range(_ATTEMPTS):
            if (found := next(self._lines, None)) is not None:
                return _batch(*found)
            self._lines = _lines(random.choice(self.files))
        raise SavedPolicyError(f"{shown(self.files)}: no batch in {_ATTEMPTS} consecutive files.")

    def read_all_files(self) -> Iterator[Any]:
        """Yield every batch once, file by file."""
        for file in self.files:
            yield from (_batch(*line) for line in _lines(file))

    def tf_input_ops(self, queue_size: int = 1) -> dict[str, Any]:
        """Return a batch as TensorFlow tensors; each run of a traced function reads a new batch.

        Text columns and `infos` are omitted. Columns are cast to the first batch's dtypes.

        Args:
            queue_size: Accepted without effect; there is no queue.

        Raises:
            NotServedError: The batches have several agents, or a column is packed.
        """
        if self._recorded is not None:
            made: dict[str, Any] = self._recorded.tf_input_ops()
            return made
        ops: dict[str, Any] = importlib.import_module("rlcatalog_compat.tensors.tf").input_ops(
            self.next
        )
        return ops


def _lines(file: str) -> Iterator[tuple[str, int, str]]:
    """Yield the file, number and text of each non-empty line."""
    opened: TextIO
    with open(os.path.expanduser(file), encoding="utf-8") as opened:
        for number, line in enumerate(opened, 1):
            if line.strip():
                yield file, number, line


def _batch(file: str, number: int, line: str) -> Any:
    """Parse the batch in a line.

    Raises:
        SavedPolicyError: The line is not a batch.
        NotServedError: A column is packed.
    """
    where = f"{file}, line {number}"
    try:
        data = json.loads(line)
    except ValueError as error:
        raise SavedPolicyError(f"{where}: not JSON: {error}") from error
    kind = data.pop("type", None) if isinstance(data, dict) else None
    if kind == "SampleBatch":
        return _columns(data, where)
    if kind == "MultiAgentBatch" and isinstance(data.get("policy_batches"), dict):
        batches = {
            policy: _columns(columns, where) for policy, columns in data["policy_batches"].items()
        }
        return MultiAgentBatch(batches, int(data.get("count", 0)))
    raise SavedPolicyError(
        f"{where}: expected an RLlib batch, an object whose 'type' is 'SampleBatch' or"
        f" 'MultiAgentBatch'; found {shown(data if kind is None else kind, 80)}."
    )


def _columns(data: Mapping[str, Any], where: str) -> SampleBatch:
    data = {name: column for name, column in data.items() if name != "type"}
    if packed := [name for name, column in data.items() if _is_packed(column)]:
        raise NotServedError(
            f"{where}: packed: {', '.join(packed)}. Such a column contains a compressed pickle,"
            " and reading a pickle can run code. If you trust the file, use Ray to rewrite it"
            " with plain columns: ray.rllib.offline.JsonWriter(folder, compress_columns=[]), or"
            " record with output_compress_columns=[]."
        )
    columns = {}
    for name, column in data.items():
        try:
            columns[name] = (
                column if name == SampleBatch.INFOS else map_leaves(np.asarray, column, kinds=())
            )
        except ValueError:  # rows of different lengths
            raise SavedPolicyError(
                f"{where}: {name}: expected rows of one shape, found several."
            ) from None
    return SampleBatch(columns)


def _is_packed(column: Any) -> bool:
    return (
        any(map(_is_packed, column.values()))
        if isinstance(column, dict)
        else isinstance(column, str)
    )
