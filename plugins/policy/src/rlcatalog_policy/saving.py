"""Writer for policies: saves only names and numbers, and keeps an old save until the new one is
complete.

Arrays go into files named after a hash of their content. Replacing `policy.json`, which names them,
makes the save current; files that it does not name are then removed.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import rlcatalog_policy
from rlcatalog.choice import MODEL_SLOTS, Pins, Resolution
from rlcatalog.config import RULES
from rlcatalog.errors import SavedPolicyError, SavedPolicyWarning
from rlcatalog.internals import __version__
from rlcatalog.models import weights_of
from rlcatalog.reporting import warn_caller
from rlcatalog_policy.files import TEMPORARY, lock_folder, sync_folder, write_file
from rlcatalog_policy.manifest import (
    FILTER,
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    WEIGHTS,
    Manifest,
    encode,
    file_name,
)
from rlcatalog_policy.space_json import action_space_to_json, observation_space_to_json
from rlcatalog_policy.tensors import to_bytes

#: Files of earlier saves, of both formats and of unfinished ones.
_OURS = re.compile(
    rf"(?:{WEIGHTS}|{FILTER})(?:-[0-9a-f]{{16}})?\.safetensors|\..*{re.escape(TEMPORARY)}"
)


def save(policy: rlcatalog_policy.Policy, directory: str | os.PathLike[str]) -> None:
    """Write a policy to a directory; see `Policy.save`."""
    resolution = policy.resolution
    arrays = {WEIGHTS: weights_of(policy.model)}
    if policy.filter is not None:
        arrays[FILTER] = policy.filter.saved_state()
    contents = {role: to_bytes(named) for role, named in arrays.items()}
    digests = {role: hashlib.sha256(content).hexdigest() for role, content in contents.items()}
    names = {role: file_name(role, digest) for role, digest in digests.items()}
    pins: dict[str, Any] = Pins.of(resolution).as_dict()
    manifest = Manifest(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        rlcatalog=__version__,
        framework=policy.framework,
        config=_named(resolution),
        **pins,
        observation_space=observation_space_to_json(policy),
        action_space=action_space_to_json(policy),
        files={names[role]: digests[role] for role in contents},
    )
    _warn_of_spaces(manifest, directory)
    text = encode(manifest)
    _write(Path(directory), {names[role]: content for role, content in contents.items()}, text)


def _warn_of_spaces(manifest: Manifest, directory: str | os.PathLike[str]) -> None:
    """Warn if the folder cannot contain a space, which `load` then needs."""
    missing = [
        key for key in ("observation_space", "action_space") if getattr(manifest, key) is None
    ]
    if missing:
        arguments = ", ".join(f"{key}=env.{key}" for key in missing)
        warn_caller(
            f"{directory}: the saved policy does not contain its {' and '.join(missing)}, which has"
            " a class that only a plugin or the running program knows. Load it with"
            f" rlcatalog.load({str(directory)!r}, {arguments}).",
            SavedPolicyWarning,
        )


def _named(resolution: Resolution) -> dict[str, Any]:
    """Return the config keys to save; for a model defined in the program, a name
    replaces the code.
    """
    rules = {key: resolution.config[key] for key in RULES}
    config = rules | resolution.config.given | resolution.pinned_keys()
    for part in resolution.parts_by_slot(*MODEL_SLOTS).values():
        if part.in_process and any(
            code is config.get("custom_model") for code in part.objects.values()
        ):
            config["custom_model"] = part.name
    return config


def _write(folder: Path, arrays: dict[str, bytes], manifest: bytes) -> None:
    """Write the files of a save; only one process writes at a time.

    Raises:
        SavedPolicyError: The files cannot be written; an existing save is unchanged.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with lock_folder(folder):
            there = set(os.listdir(folder))
            try:
                for name, content in arrays.items():  # existing files too: they may be damaged
                    write_file(folder, name, content)
                write_file(folder, MANIFEST, manifest)
            except OSError:  # not referenced by any file
                _remove(folder, arrays.keys() - there)
                raise
            _remove(folder, there - arrays.keys())
    except OSError as error:
        raise SavedPolicyError(
            f"{folder}: cannot be written: {error}. A policy saved there earlier is unchanged."
        ) from error


def forget(directory: str | os.PathLike[str]) -> None:
    """Remove a saved policy; the folder stays if it contains other files."""
    folder = Path(directory)
    with lock_folder(folder):
        (folder / MANIFEST).unlink(missing_ok=True)  # first, because without it there is no save
        _remove(folder, set(os.listdir(folder)))
    with suppress(OSError):
        folder.rmdir()


def _remove(folder: Path, names: set[str]) -> None:
    """Remove the files of earlier saves from a folder; a file that cannot be removed stays."""
    if ours := [name for name in names if _OURS.fullmatch(name)]:
        for name in ours:
            with suppress(OSError):
                (folder / name).unlink()
        sync_folder(folder)
