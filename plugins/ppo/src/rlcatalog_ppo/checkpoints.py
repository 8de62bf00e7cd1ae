"""Checkpoints: folders that store an algorithm's whole state, each written completely or not at
all.

The folder contains the saved policy (see `Policy.save`), `training.json` with numbers and names,
and a file of arrays, whose name is in `training.json`. Nothing in the folder is executed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
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

FORMAT = "rlcatalog-training"
FORMAT_VERSION = 1
#: Folder of the saved policy, and file of numbers and names.
POLICY = "policy"
TRAINING = "training.json"

#: Maximum size of `training.json` in bytes.
_MAX_BYTES = 1 << 25


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
    state_without_policy = {key: part for key, part in state.items() if key != "policy"}
    try:
        plain_state = take_apart(state_without_policy, arrays)
    except TypeError as error:
        raise SavedPolicyError(f"{folder}: the run cannot be saved: {error}") from error
    array_file = to_bytes(arrays)
    digest = hashlib.sha256(array_file).hexdigest()
    name = f"training-{digest[:16]}.safetensors"
    content: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "rlcatalog": __version__,
        "files": {name: digest},
        "state": plain_state,
    }
    json_file = _with_checksum(content)
    if len(json_file) > _MAX_BYTES:
        # The recorded actions of long episodes take the most space.
        plain_state["environments"] = _without_actions(plain_state["environments"])
        json_file = _with_checksum(content)
    with new_checkpoint(folder) as temporary:
        policy.save(temporary / POLICY)
        write_file(temporary, name, array_file)
        write_file(temporary, TRAINING, json_file)
    warn_of_unsaved_episodes(plain_state["environments"])


def _without_actions(env_states: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return environments' states without actions to replay, so that new episodes will begin."""
    why = "the actions of its episode need too much space to be saved"
    smaller_states = []
    for env_state in env_states:
        if "actions" in env_state:
            env_state = {"generator": env_state["generator"], "why": why}
        smaller_states.append(env_state)
    return smaller_states


def _with_checksum(content: dict[str, Any]) -> bytes:
    """Return the content of `training.json`, after setting its checksum."""
    content["checksum"] = checksum_of(content)
    return json.dumps(content, allow_nan=False).encode() + b"\n"


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
        data = read_file(path, _MAX_BYTES)
    except FileNotFoundError:
        if _is_saved_policy(folder):
            raise SavedPolicyError(
                f"{directory}: contains a saved policy, not a checkpoint to resume from (no"
                f" {TRAINING}). Load the policy with rlcatalog.load({str(directory)!r}). To write a"
                " checkpoint for restore, call algo.save_checkpoint(folder) instead of"
                " algo.save(folder)."
            ) from None
        raise SavedPolicyError(
            f"{directory}: contains no checkpoint to resume from (no {TRAINING})."
        ) from None
    check_files(folder)
    with raised_as(
        lambda why: SavedPolicyError(f"{path}: not a checkpoint, or damaged: {why}."),
        SavedPolicyError,
    ):
        content = json.loads(data.decode())
        _check_content(content)
        [(name, digest)] = content["files"].items()  # `write` names exactly one file
        if Path(name).name != name:  # a path would lead out of the folder
            raise ValueError(f"names the file {name!r}")
        with closing(RegularFile(folder / name)) as file:
            arrays = TensorFile(file).read(digest)  # an error if the digest differs
        state: dict[str, Any] = put_together(content["state"], arrays)
        check_state(state)
    return folder, state


def _is_saved_policy(folder: Path) -> bool:
    try:
        read_manifest(folder)
    except SavedPolicyError:
        return False
    return True


def _check_content(content: Any) -> None:
    """Raise a ValueError unless the content of `training.json` is complete and of this format."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"no format {FORMAT!r} in it")
    if content.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"format version {content.get('format_version')!r}; this rlcatalog reads"
            f" {FORMAT_VERSION}"
        )
    if content.get("checksum") != checksum_of(content):
        raise ValueError("changed since it was written (its checksum differs)")


def name_owner_in_errors(owner: str | Path) -> AbstractContextManager[None]:
    """Context manager that adds the owner of a saved state to errors caused by that state.

    Args:
        owner: A checkpoint's folder or a callback's class.

    Raises:
        SavedPolicyError: The state does not match its owner.
    """
    # A framework, environment or callback received a state that it did not write.
    return raised_as(
        lambda why: SavedPolicyError(f"{owner}: the saved state does not fit: {why}."),
        CatalogError,
        Warning,
    )
