"""Writer for policies: saves only names and numbers, and keeps an old save until the new one is
complete.

Arrays go into files named after a hash of their content. Replacing `policy.json`, which names them,
makes the save current; files that it does not name are then removed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rlcatalog.choice import MODEL_SLOTS, PartAddresses, Resolution
from rlcatalog.config import RULES
from rlcatalog.errors import SavedPolicyError, SavedPolicyWarning
from rlcatalog.frameworks import Array
from rlcatalog.internals import __version__
from rlcatalog.models import code_of, weights_of
from rlcatalog.reporting import warn_caller
from rlcatalog_policy.files import TEMPORARY, lock_folder, sync_folder, write_file
from rlcatalog_policy.manifest import (
    CODE_KEYS,
    FILTER,
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    WEIGHTS,
    LeftOut,
    Manifest,
    encode,
    file_name,
)
from rlcatalog_policy.space_json import action_space_to_json, observation_space_to_json
from rlcatalog_policy.tensors import to_bytes

if TYPE_CHECKING:
    from rlcatalog_policy.policy import Policy

#: Files of earlier saves, of both formats and of unfinished ones.
_OURS = re.compile(
    rf"(?:{WEIGHTS}|{FILTER})(?:-[0-9a-f]{{16}})?\.safetensors|\..*{re.escape(TEMPORARY)}"
)


def save(policy: Policy, directory: str | os.PathLike[str]) -> None:
    """Write a policy to a directory; see `Policy.save`."""
    resolution = policy.resolution
    array_files = [_encode_arrays(WEIGHTS, weights_of(policy.model))]
    if policy.filter is not None:
        array_files.append(_encode_arrays(FILTER, policy.filter.saved_state()))

    addresses = PartAddresses.of(resolution)
    manifest = Manifest(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        kernel_version=__version__,
        framework=policy.framework,
        config=_config_to_save(resolution),
        parts=dict(addresses.by_slot),
        preprocessors=dict(addresses.preprocessors),
        action_dists=dict(addresses.action_dists),
        versions=dict(addresses.versions),
        observation_space=observation_space_to_json(policy),
        action_space=action_space_to_json(policy),
        files={file.name: file.digest for file in array_files},
    )
    _warn_of_missing_spaces(manifest, directory)
    _write(Path(directory), array_files, encode(manifest))


class _ArrayFile(NamedTuple):
    """A file of arrays to write, with its name and the SHA-256 of its content."""

    name: str
    content: bytes
    digest: str


def _encode_arrays(role: str, arrays: Mapping[str, Array]) -> _ArrayFile:
    """Return the file of a policy's weights or of its filter's state."""
    content = to_bytes(arrays)
    digest = hashlib.sha256(content).hexdigest()
    return _ArrayFile(file_name(role, digest), content, digest)


def _warn_of_missing_spaces(manifest: Manifest, directory: str | os.PathLike[str]) -> None:
    """Warn if the folder cannot contain a space, which `load` then needs."""
    missing = []
    if manifest.observation_space is None:
        missing.append("observation_space")
    if manifest.action_space is None:
        missing.append("action_space")
    if missing:
        arguments = ", ".join(f"{name}=env.{name}" for name in missing)
        warn_caller(
            f"{directory}: the saved policy does not contain its {' and '.join(missing)}, which has"
            " a class that only a plugin or the running program knows. Load it with"
            f" rlcatalog.load({str(directory)!r}, {arguments}).",
            SavedPolicyWarning,
        )


def _config_to_save(resolution: Resolution) -> dict[str, Any]:
    """Return the config keys to save; for a model defined in the program, a name
    replaces the code.
    """
    # Saved even if they have their defaults, which may change in a later version.
    rules = {key: resolution.config[key] for key in RULES}
    config = rules | chosen_config(resolution)
    _name_code(config, resolution)
    if resolution.critic is not None:
        _name_code(config["critic"], resolution.critic)
    return config


def _name_code(config: dict[str, Any], resolution: Resolution) -> None:
    """Write the names of parts defined in the program in place of their code."""
    for key in CODE_KEYS:
        code_in_config = config.get(key)
        for part in resolution.parts_by_slot(*MODEL_SLOTS).values():
            # Parts of the running program have their code for each framework; others have none.
            if any(code is code_in_config for code in part.objects.values()):
                config[key] = part.name


def chosen_config(resolution: Resolution) -> dict[str, Any]:
    """Return the config keys that differ from their defaults, and those in which the model's parts
    name the models that they chose; a name replaces code among those models.
    """
    config = dict(resolution.config.given)
    for key, choices in resolution.pinned_keys().items():
        config[key] = {place: _name_of_choice(choice) for place, choice in choices.items()}
    if resolution.critic is not None:
        config["critic"] = chosen_config(resolution.critic)
    return config


def _name_of_choice(choice: str | Callable[..., Any]) -> str:
    """Return the name of a model that a model's part chose, as a saved policy stores it."""
    if isinstance(choice, str):
        return choice
    return LeftOut(code_of(choice).__qualname__)


def _write(folder: Path, array_files: Sequence[_ArrayFile], manifest: bytes) -> None:
    """Write the files of a save; only one process writes at a time.

    Raises:
        SavedPolicyError: The files cannot be written; an existing save is unchanged.
    """
    new_names = {file.name for file in array_files}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with lock_folder(folder):
            names_before = set(os.listdir(folder))
            try:
                # Files that exist already are written as well, because they may be damaged.
                for file in array_files:
                    write_file(folder, file.name, file.content)
                write_file(folder, MANIFEST, manifest)
            except OSError:
                # No manifest names the new files.
                _remove(folder, new_names - names_before)
                raise
            _remove(folder, names_before - new_names)
    except OSError as error:
        raise SavedPolicyError(
            f"{folder}: cannot be written: {error}. A policy saved there earlier is unchanged."
        ) from error


def forget(directory: str | os.PathLike[str]) -> None:
    """Remove a saved policy; the folder stays if it contains other files."""
    folder = Path(directory)
    with lock_folder(folder):
        # First, because without a manifest there is no save.
        (folder / MANIFEST).unlink(missing_ok=True)
        _remove(folder, set(os.listdir(folder)))
    with suppress(OSError):
        folder.rmdir()


def _remove(folder: Path, names: set[str]) -> None:
    """Remove the files of earlier saves from a folder; a file that cannot be removed stays."""
    our_names = [name for name in names if _OURS.fullmatch(name)]
    if not our_names:
        return
    for name in our_names:
        with suppress(OSError):
            (folder / name).unlink()
    sync_folder(folder)
