"""Exporting: a file is written beside its place, compared with the policy, and takes its place if it acts alike."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlcatalog.errors import FolderTakenError, SavedPolicyError
from rlcatalog_export.actor import Actor
from rlcatalog_export.file_check import compare
from rlcatalog_export.formats import exporter_for
from rlcatalog_export.interface import Interface
from rlcatalog_policy import TEMPORARY, sync_folder

if TYPE_CHECKING:
    from rlcatalog.plugins import Component
    from rlcatalog_policy import Policy


def export(policy: Policy, path: str | os.PathLike[str], format: str | None = None) -> Interface:
    """Write a policy in a format; see `Policy.export`."""
    target, catalog = Path(path), policy.catalog
    component = exporter_for(catalog, target, format)
    component.check_framework(policy.framework)
    _check_free(component, target)
    folder = target.parent
    temporary = folder / f".{secrets.token_hex(8)}{TEMPORARY}{component.declaration.suffix}"  # type: ignore[attr-defined]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = component.load(policy.framework)(policy, temporary)
        actor = Actor(runner=component.load("runner")(temporary), catalog=catalog,
                      observation_space=policy.observation_space, action_space=policy.action_space)  # fmt: skip
        compare(written, actor)
        _take_place(temporary, target)
    except OSError as error:
        raise SavedPolicyError(f"{target}: cannot be written: {error}.") from error
    finally:
        _remove(temporary)
    return written.interface  # type: ignore[no-any-return]


def _check_free(component: Component, target: Path) -> None:
    """Raise where a folder stands in the place of one, and is no former export: it would be removed."""
    if component.declaration.suffix or not target.is_dir() or not any(target.iterdir()):  # type: ignore[attr-defined]
        return
    try:
        component.load("runner")(target)
    except SavedPolicyError as error:
        raise FolderTakenError(
            f"{target}: the format {component.name!r} writes a folder, and this one holds something else. Name another."
        ) from error


def _take_place(temporary: Path, target: Path) -> None:
    """Rename what was written, on the disk by then; a former file stays whole until that."""
    if temporary.is_dir():
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync(file)
        former = target.with_name(f".{secrets.token_hex(8)}{TEMPORARY}")
        with suppress(FileNotFoundError):
            os.replace(target, former)
        os.replace(temporary, target)
        _remove(former)
    else:
        _sync(temporary)
        os.replace(temporary, target)
    sync_folder(target.parent)


def _sync(file: Path) -> None:
    with file.open("rb+") as handle:
        os.fsync(handle.fileno())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
