"""Checks for export formats."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

import rlcatalog
from rlcatalog import ExporterSpec
from rlcatalog.errors import CatalogError, SavedPolicyError
from rlcatalog.frameworks import Array
from rlcatalog_policy import Policy
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.examples import Example

if TYPE_CHECKING:
    from rlcatalog_export import Interface

#: A nested observation, an action mask, and a memory if one is installed: everything that formats
#: support.
_OBS = spaces.Dict({"a": spaces.Box(-1, 1, (3,), np.float32), "b": spaces.Discrete(4)})
_ACTION: spaces.Space[Any] = spaces.Discrete(3, start=1)
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class ExportTrial:
    """An export of a policy that the checks share.

    Attributes:
        subject: The format.
        policy: The policy.
        interface: Result of the export.
        changed: Names of the policy's weights and random states that the export has changed.
        files: Contents of the written files, keyed by path; `"."` for a single file.
    """

    subject: Subject
    policy: Policy
    interface: Interface
    changed: list[str]
    files: dict[str, bytes]

    @contextmanager
    def written(self) -> Iterator[Path]:
        """Export the policy again; the file or folder is removed afterwards."""
        with _temporary_path(self.subject) as path:
            for name, content in self.files.items():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                (path / name).write_bytes(content)
            yield path

    def actor(self, path: Path) -> rlcatalog.Actor:
        """Return an actor that runs the files at a path."""
        return rlcatalog.Actor(path, catalog=self.subject.catalog)


@contextmanager
def _temporary_path(subject: Subject) -> Iterator[Path]:
    """Yield the path of a file or folder of a format, in a folder that is removed afterwards."""
    declaration = subject.part.declaration
    assert isinstance(declaration, ExporterSpec)
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / f"policy{declaration.suffix}"


def _export(subject: Subject) -> ExportTrial:
    """Export a small policy.

    Raises:
        NotApplicable: No policy can be built with the installed packages.
    """
    config: dict[str, Any] = {"fcnet_hiddens": [4]}
    if "lstm" in [model.name for model in subject.catalog.parts("model")]:
        config["use_lstm"] = True
    try:
        policy = subject.build(Example(_OBS, _ACTION, config))
    except CatalogError as error:
        raise NotApplicable(f"no policy can be built to test it with: {error}") from error
    arrays_before = _copy_arrays(policy)
    with _temporary_path(subject) as path:
        interface = policy.export(path, format=subject.part.name)
        arrays_after = _copy_arrays(policy)
        files = _read_files(path)
    changed = []
    for name, array in arrays_before.items():
        if not np.array_equal(array, arrays_after[name]):
            changed.append(name)
    return ExportTrial(subject, policy, interface, changed, files)


def _read_files(path: Path) -> dict[str, bytes]:
    """Return the contents of a file, or of the files in a folder, by relative path."""
    files = {}
    for file in (path, *path.rglob("*")):
        if file.is_file():
            files[str(file.relative_to(path))] = file.read_bytes()
    return files


def _copy_arrays(policy: Policy) -> dict[str, Array]:
    """Return copies of a policy's weights and random states."""
    arrays = {**policy.model.get_weights(), **policy.random_state()}
    return {name: np.array(array) for name, array in arrays.items()}


def _shared_export(subject: Subject) -> list[ExportTrial]:
    key = ("exported", subject.framework)
    return [subject.once(key, lambda: _export(subject))]


#: Checks for formats, with the exported policy.
check_exports = partial(check, "exporter", each=_shared_export)


@check_exports(
    hint="let the file compute the same results as the policy: compare each output with the"
    " policy's"
)
def the_file_acts_as_the_policy(exported: ExportTrial) -> None:
    """A file computes the same results as the policy, over several steps, for batches of any size,
    and with masks.
    """
    with exported.written() as path:
        actor = exported.actor(path)
        rng = np.random.default_rng(0)
        for rows in (1, 4):
            _check_episodes(exported.policy, actor, rows, rng)


def _check_episodes(
    policy: Policy, actor: rlcatalog.Actor, rows: int, rng: np.random.Generator
) -> None:
    """Raise an error unless a policy and an actor act alike in four steps of new episodes."""
    # The plugin of a format, whose package brings it, is installed.
    from rlcatalog_export import observations

    takes_mask = actor.interface.input("mask") is not None
    policy_state: Any = None
    actor_state: Any = None
    for t in range(4):
        obs, mask = observations(policy, rows, rng)
        if not takes_mask:
            mask = None
        step = policy.act(obs, policy_state, mask=mask, explore=False)
        actor_step = actor.act(obs, actor_state, mask=mask, explore=False)
        for name in ("action", "dist_inputs", "logp", "value"):
            of_policy = getattr(step, name)
            of_file = getattr(actor_step, name)
            is_close = of_policy is None or np.allclose(
                of_file, of_policy, rtol=_TOLERANCE, atol=_TOLERANCE
            )
            require(
                is_close,
                f"step {t} with {rows} rows: {name} is {of_file} in the file, {of_policy} in the"
                " policy",
            )
        policy_state = step.state
        actor_state = actor_step.state


@check_exports(hint="work on a copy of the policy: copy.deepcopy(policy)")
def exporting_leaves_the_policy_alone(exported: ExportTrial) -> None:
    """The policy's weights and random state stay unchanged."""
    require(not exported.changed, f"exporting changed {', '.join(exported.changed)}")


@check_exports(
    hint="store interface.to_json() in the file, and let the runner return it as its `interface`"
)
def the_interface_is_in_the_file(exported: ExportTrial) -> None:
    """A file contains its interface."""
    with exported.written() as path:
        interface = exported.actor(path).interface
    require(
        interface == exported.interface,
        f"the file says {interface}; exporting returned {exported.interface}",
    )


@check_exports(
    hint="raise SavedPolicyError in the runner's constructor for anything that cannot be read"
)
def damaged_files_are_refused(exported: ExportTrial) -> None:
    """Truncated and foreign files raise SavedPolicyError."""
    largest = max(exported.files, key=lambda name: len(exported.files[name]))
    content = exported.files[largest]
    first_half = content[: len(content) // 2]
    with exported.written() as path:
        file = path / largest
        for damage, data in (
            ("cut off", first_half),
            ("emptied", b""),
            ("overwritten", b"no policy"),
        ):
            file.write_bytes(data)
            try:
                exported.actor(path)
            except SavedPolicyError:
                continue
            raise AssertionError(f"{file.name} was {damage}, but could be read without an error")
