"""Checkpoints: folders that store an algorithm's whole state, each written completely or not at
all.

The folder contains the saved policy (see `Policy.save`), `training.json` with numbers and names,
and a file of arrays, whose name is in `training.json`. Nothing in the folder is executed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any

from rlcatalog import Policy, __version__
from rlcatalog.errors import CatalogError, SavedPolicyError, raised_as
from rlcatalog_policy import (
    RegularFile,
    TensorFile,
    check_files,
    checksum_of,
    read_file,
    read_manifest,
    to_bytes,
    write_file,
)
from rlcatalog_ppo.training_state import check_state, warn_of_unsaved_episodes
from rlcatalog_ppo.trees import put_together, take_apart
from rlcatalog_runs import new_checkpoint, newest_checkpoint

FORMAT, FORMAT_VERSION = "rlcatalog-training", 1
POLICY, TRAINING = "policy", "training.json"

#: Maximum size of `training.json` in bytes.
_LONGEST = 1 << 25


def write(directory: str | os.PathLike[str], policy: Policy, state: Mapping[str, Any]) -> None:
    """Write a checkpoint; replace an existing one with the same name.

    Args:
        directory: Folder of the checkpoint.
        policy: The policy to save.
        state: The algorithm's state (see `OnPolicy.state`). The policy's arrays go into separate
            files.

    Raises:
        SavedPolicyError: The state or the model config contains values that are not plain data, or
            the files cannot be written. Other checkpoints are unchanged.

    Warns:
        ResumeWarning: Environments whose episodes cannot be resumed will begin new ones.
    """
    folder = Path(directory)
    arrays: dict[str, Any] = {}
    try:
        written = take_apart({key: part for key, part in state.items() if key != "policy"}, arrays)
    except TypeError as error:
        raise SavedPolicyError(f"{folder}: the run cannot be saved: {error}") from error
    content = to_bytes(arrays)
    digest = hashlib.sha256(content).hexdigest()
    name = f"training-{digest[:16]}.safetensors"
    about: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "rlcatalog": __version__,
        "files": {name: digest},
        "state": written,
    }
    text = _signed(about)
    if len(text) > _LONGEST:
        why = "the actions of its episode need too much space to be saved"
        written["environments"] = [
            {"generator": place["generator"], "why": why} if "actions" in place else place
            for place in written["environments"]
        ]
        text = _signed(about)
    with new_checkpoint(folder) as temporary:
        policy.save(temporary / POLICY)
        write_file(temporary, name, content)
        write_file(temporary, TRAINING, text)
    warn_of_unsaved_episodes(written["environments"])


def _signed(about: dict[str, Any]) -> bytes:
    about["checksum"] = checksum_of(about)
    return json.dumps(about, allow_nan=False).encode() + b"\n"


def read(directory: str | os.PathLike[str]) -> tuple[Path, dict[str, Any]]:
    """Read a checkpoint.

    Args:
        directory: Folder of a checkpoint, or of a run whose last checkpoint is read.

    Returns:
        The checkpoint's folder, and the state that was passed to `write`. The policy is in the
        subfolder `policy`.

    Raises:
        SavedPolicyError: The folder contains no checkpoint, or a damaged one.
    """
    folder = newest_checkpoint(Path(directory))
    path = folder / TRAINING
    try:
        data = read_file(path, _LONGEST)
    except FileNotFoundError:
        what = f"contains no checkpoint to resume from (no {TRAINING})."
        with suppress(SavedPolicyError):
            read_manifest(folder)
            what = (
                f"contains a saved policy, not a checkpoint to resume from (no {TRAINING}). Load"
                f" the policy with rlcatalog.load({str(directory)!r}). To write a checkpoint for"
                " restore, call algo.save_checkpoint(folder) instead of algo.save(folder)."
            )
        raise SavedPolicyError(f"{directory}: {what}") from None
    check_files(folder)
    with raised_as(
        lambda why: SavedPolicyError(f"{path}: not a checkpoint, or damaged: {why}."),
        SavedPolicyError,
    ):
        about = json.loads(data.decode())
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise ValueError(f"no format {FORMAT!r} in it")
        if about.get("format_version") != FORMAT_VERSION:
            raise ValueError(
                f"format version {about.get('format_version')!r}; this rlcatalog reads"
                f" {FORMAT_VERSION}"
            )
        if about.get("checksum") != checksum_of(about):
            raise ValueError("changed since it was written (its checksum differs)")
        [(name, digest)] = about["files"].items()
        if Path(name).name != name:
            raise ValueError(f"names the file {name!r}")
        with closing(RegularFile(folder / name)) as file:
            arrays = TensorFile(file).read(digest)
        state: dict[str, Any] = put_together(about["state"], arrays)
        check_state(state)
    return folder, state


def blamed(what: str | Path) -> AbstractContextManager[None]:
    """Context manager that adds the owner of a saved state to errors caused by that state.

    Args:
        what: The owner: a checkpoint's folder or a callback's class.

    Raises:
        SavedPolicyError: The state does not match its owner.
    """
    # A framework, environment or callback received a state that it did not write.
    return raised_as(
        lambda why: SavedPolicyError(f"{what}: the saved state does not fit: {why}."),
        CatalogError,
        Warning,
    )
