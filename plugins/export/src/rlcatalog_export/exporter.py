"""Export: write a new file, compare it with the policy, and move it into place if both agree."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from rlcatalog.errors import FolderTakenError, NotServedError, SavedPolicyError
from rlcatalog.plugins import Part
from rlcatalog_export.actor import Actor
from rlcatalog_export.file_check import compare
from rlcatalog_export.formats import ExportResult, Runner, exporter_for
from rlcatalog_export.interface import Interface
from rlcatalog_policy import TEMPORARY, Policy, copy_without_critic, sync_folder


def export(policy: Policy, path: str | os.PathLike[str], format: str | None = None) -> Interface:
    """Write a policy in a format; see `Policy.export`."""
    target = Path(path)
    catalog = policy.catalog
    part = exporter_for(catalog, target, format)
    part.check_framework(policy.framework)
    _check_free(part, target)
    policy = _policy_to_write(policy)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(
            TEMPORARY, ".", target.parent, ignore_cleanup_errors=True
        ) as holder:
            temporary = Path(holder, f"policy{part.declaration.suffix}")  # type: ignore[attr-defined]
            written: ExportResult = part.load(policy.framework)(policy, temporary)
            actor = Actor(
                runner=_runner_of(part, temporary, target),
                catalog=catalog,
                observation_space=policy.observation_space,
                action_space=policy.action_space,
            )
            compare(written, actor)
            # The old file stays complete until the new one is on disk (fsync) and replaces it.
            for file in (temporary, *temporary.rglob("*")):
                if file.is_file():
                    with file.open("rb+") as handle:
                        os.fsync(handle.fileno())
            if temporary.is_dir():  # a folder cannot replace another folder
                with suppress(FileNotFoundError):
                    os.replace(target, Path(holder, "former"))
            os.replace(temporary, target)
        sync_folder(target.parent)
    except OSError as error:
        raise SavedPolicyError(f"{target} cannot be written: {error}.") from error
    return written.interface


def _policy_to_write(policy: Policy) -> Policy:
    """Return the policy whose steps a file computes: with `obs_groups`, a copy without the critic,
    which gets only what the policy sees; otherwise the policy itself.

    Raises:
        NotServedError: A file for the copy cannot contain the filter.
    """
    has_groups = policy.resolution.critic is not None and bool(policy.config["obs_groups"])
    if not has_groups:
        return policy
    copy = copy_without_critic(policy)
    if copy.filter is not None and copy.filter.lowered() is None:
        raise NotServedError(
            f"export: {copy.filter.who} has no tensor form, so that a file would take filtered"
            " observations. With obs_groups, these contain what only the critic sees. Give the"
            " filter a method `lowered`, or save the policy, which acts without the critic"
            " (policy.save)."
        )
    return copy


def _runner_of(part: Part, temporary: Path, target: Path) -> Runner:
    """Return the runner of a file that has just been written.

    Raises:
        NotServedError: The format's own library cannot run what was written.
    """
    try:
        runner: Runner = part.load("runner")(temporary)
    except SavedPolicyError as error:
        # The message names the temporary file, which the user does not know.
        why = str(error).removeprefix(f"{temporary} cannot be read: ")
        raise NotServedError(
            f"export: {target} was not written, because the library that runs {part.name!r}"
            f" files cannot run this policy: {why} If the model computes in bfloat16, which this"
            " library supports in few operations, convert it to float32, or use another format."
        ) from error
    return runner


def _check_free(part: Part, target: Path) -> None:
    """Raise an error if the path is a folder other than an earlier export, because exporting would
    remove it.
    """
    writes_folder = not part.declaration.suffix  # type: ignore[attr-defined]
    is_occupied = target.is_dir() and any(target.iterdir())
    if not writes_folder or not is_occupied:
        return
    try:
        part.load("runner")(target)
    except SavedPolicyError as error:
        raise FolderTakenError(
            f"{target}: the format {part.name!r} would replace this folder, which is not an"
            " exported policy. Choose a different path."
        ) from error
