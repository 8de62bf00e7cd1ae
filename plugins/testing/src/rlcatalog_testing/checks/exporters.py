"""Checks for export formats."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import CatalogError, SavedPolicyError
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.examples import Example
from rlcatalog_testing.passes import Array

if TYPE_CHECKING:
    from rlcatalog_export import Interface

#: A nested observation, an action mask, and a memory if one is installed: everything that formats
#: support.
_OBS = spaces.Dict({"a": spaces.Box(-1, 1, (3,), np.float32), "b": spaces.Discrete(4)})
_ACTION: spaces.Space[Any] = spaces.Discrete(3, start=1)
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class ExportTrial:
    """ExportTrial policy that the checks share.

    Attributes:
        subject: The format.
        policy: The policy.
        interface: Result of the export. changed: Changes that the export made to the policy's
            weights and next draws.
        files: Contents of the written files, keyed by path; `"."` for a single file.
    """

    subject: Subject
    policy: Any
    interface: Interface
    changed: list[str]
    files: dict[str, bytes]

    @contextmanager
    def written(self) -> Iterator[Path]:
        """Export the policy again; the file or folder is removed afterwards."""
        with _place(self.subject) as path:
            for name, content in self.files.items():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                (path / name).write_bytes(content)
            yield path

    def actor(self, path: Path) -> rlcatalog.Actor:
        """Return the written files."""
        return rlcatalog.Actor(path, catalog=self.subject.catalog)


@contextmanager
def _place(subject: Subject) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / f"policy{getattr(subject.part.declaration, 'suffix', '')}"


def _export(subject: Subject) -> ExportTrial:
    catalog = subject.catalog
    memory = {"use_lstm": True} if "lstm" in {c.name for c in catalog.parts("model")} else {}
    try:
        policy = subject.build(Example(_OBS, _ACTION, {"fcnet_hiddens": [4], **memory}))
    except CatalogError as error:
        raise NotApplicable(f"no policy can be built to test it with: {error}") from error
    before = _state(policy)
    with _place(subject) as path:
        interface = policy.export(path, format=subject.part.name)
        after = _state(policy)
        written = [file for file in (path, *path.rglob("*")) if file.is_file()]
        files = {str(file.relative_to(path)): file.read_bytes() for file in written}
    changed = [name for name, array in before.items() if not np.array_equal(array, after[name])]
    return ExportTrial(subject, policy, interface, changed, files)


#: Checks for formats, with the exported policy.
check_exports = partial(
    check,
    "exporter",
    each=lambda subject: [subject.once(("exported", subject.framework), lambda: _export(subject))],
)


def _state(policy: Any) -> dict[str, Array]:
    found = {**policy.model.get_weights(), **policy.random_state()}
    return {name: np.array(array) for name, array in found.items()}


@check_exports(
    hint="let the file compute the same results as the policy: compare each output with the"
    " policy's"
)
def the_file_acts_as_the_policy(exported: ExportTrial) -> None:
    """A file computes the same results as the policy, over several steps, for batches of any size,
    and with masks.
    """
    policy = exported.policy
    with exported.written() as path:
        from rlcatalog_export import observations  # requested by a format's plugin

        actor, rng = exported.actor(path), np.random.default_rng(0)
        for rows in (1, 4):
            state = other = None
            for t in range(4):
                obs, mask = observations(policy, rows, rng)
                mask = mask if actor.interface.input("mask") is not None else None
                step = policy.act(obs, state, mask=mask, explore=False)
                found = actor.act(obs, other, mask=mask, explore=False)
                for name in ("action", "dist_inputs", "logp", "value"):
                    ours, theirs = getattr(step, name), getattr(found, name)
                    near = ours is None or np.allclose(
                        theirs, ours, rtol=_TOLERANCE, atol=_TOLERANCE
                    )
                    require(
                        near,
                        f"step {t} with {rows} rows: {name} is {theirs} in the file, {ours} in the"
                        " policy",
                    )
                state, other = step.state, found.state


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
        found = exported.actor(path).interface
    require(
        found == exported.interface,
        f"the file says {found}; exporting returned {exported.interface}",
    )


@check_exports(
    hint="raise SavedPolicyError in the runner's constructor for anything that cannot be read"
)
def damaged_files_are_refused(exported: ExportTrial) -> None:
    """Truncated and foreign files raise SavedPolicyError."""
    largest, whole = max(exported.files.items(), key=lambda item: len(item[1]))
    with exported.written() as path:
        for what, data in (
            ("cut off", whole[: len(whole) // 2]),
            ("emptied", b""),
            ("overwritten", b"no policy"),
        ):
            (path / largest).write_bytes(data)
            with suppress(SavedPolicyError):
                exported.actor(path)
                raise AssertionError(
                    f"{(path / largest).name} was {what}, but could be read without an error"
                )
