"""Checks of formats that policies are exported in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import CatalogError, SavedPolicyError
from rlcatalog_policy import build
from rlcatalog_testing.contract import NotApplicable, Part, check, require
from rlcatalog_testing.examples import quiet

if TYPE_CHECKING:
    from rlcatalog_export import Interface

Array = np.ndarray[Any, Any]

#: A nested observation, a mask for the action, and a memory where one is installed: all that a format carries.
_OBS = spaces.Dict({"a": spaces.Box(-1, 1, (3,), np.float32), "b": spaces.Discrete(4)})
_ACTION: spaces.Space[Any] = spaces.Discrete(3, start=1)
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class _Tried:
    """A policy that was exported.

    Attributes:
        policy: The policy.
        interface: What exporting returned.
        changed: What exporting changed of its weights and of what it draws next.
        suffix: How the file's name ends.
        files: What was written: content by path, `""` for a single file.
    """

    policy: Any
    interface: Interface
    changed: list[str]
    suffix: str
    files: dict[str, bytes]

    @contextmanager
    def written(self) -> Iterator[Path]:
        """Write the file, or the folder, once more; it is removed afterwards."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"policy{self.suffix}"
            for name, content in self.files.items():
                file = path / name if name else path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            yield path


def _tried(part: Part) -> _Tried:
    """Return a policy that was exported; the checks share it."""
    key = f"exported from {part.framework}"
    if key not in part.shared:
        part.shared[key] = _export(part)
    found: _Tried = part.shared[key]
    return found


def _export(part: Part) -> _Tried:
    component, catalog = part.component, part.catalog
    memory = {"use_lstm": True} if "lstm" in {c.name for c in catalog.components("model")} else {}
    with quiet():
        try:
            policy = build(_OBS, _ACTION, {"fcnet_hiddens": [4], **memory}, part.framework, catalog=catalog)
        except CatalogError as error:
            raise NotApplicable(f"no policy can be built to try it with: {error}") from error
    before = _state(policy)
    suffix = getattr(component.declaration, "suffix", "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"policy{suffix}"
        interface = policy.export(path, format=component.name)
        after = _state(policy)
        if path.is_dir():
            files = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
        else:
            files = {"": path.read_bytes()}
    changed = [name for name, array in before.items() if not np.array_equal(array, after[name])]
    return _Tried(policy, interface, changed, suffix, files)


def _state(policy: Any) -> dict[str, Array]:
    found = {**policy.model.get_weights(), **policy.random_state()}
    return {name: np.array(array) for name, array in found.items()}


@check("exporter", hint="let the file compute what the policy does: compare each output with the policy's own")
def the_file_acts_as_the_policy(part: Part) -> None:
    """What a file computes is what the policy computes, over steps, for batches of any size, and for masks."""
    tried = _tried(part)
    policy = tried.policy
    with tried.written() as path:
        from rlcatalog_export import observations  # which the plugin of a format asks for

        actor, rng = rlcatalog.Actor(path, catalog=part.catalog), np.random.default_rng(0)
        for rows in (1, 4):
            state = other = None
            for t in range(4):
                obs, mask = observations(policy, rows, rng)
                mask = mask if actor.interface.input("mask") is not None else None
                step = policy.act(obs, state, mask=mask, explore=False)
                found = actor.act(obs, other, mask=mask, explore=False)
                for name in ("action", "dist_inputs", "logp", "value"):
                    ours, theirs = getattr(step, name), getattr(found, name)
                    near = ours is None or np.allclose(theirs, ours, rtol=_TOLERANCE, atol=_TOLERANCE)
                    require(near, f"step {t} of {rows} rows: {name} is {theirs} in the file, {ours} in the policy")
                state, other = step.state, found.state


@check("exporter", hint="work on a copy of the policy: copy.deepcopy(policy)")
def exporting_leaves_the_policy_alone(part: Part) -> None:
    """The policy's weights, and what it draws next, are as before."""
    changed = _tried(part).changed
    require(not changed, f"exporting changed {', '.join(changed)}")


@check("exporter", hint="store interface.to_json() in the file, and let the runner return it as its `interface`")
def the_interface_is_in_the_file(part: Part) -> None:
    """A file says by itself what its inputs and outputs are."""
    tried = _tried(part)
    with tried.written() as path:
        found = rlcatalog.Actor(path, catalog=part.catalog).interface
    require(found == tried.interface, f"the file says {found}; exporting returned {tried.interface}")


@check("exporter", hint="raise SavedPolicyError for whatever cannot be read, in the runner's constructor")
def damaged_files_are_refused(part: Part) -> None:
    """Files cut off in the middle and files of something else are refused by SavedPolicyError."""
    tried = _tried(part)
    largest, whole = max(tried.files.items(), key=lambda item: len(item[1]))
    with tried.written() as path:
        file = path / largest if largest else path
        for what, data in (("cut off", whole[: len(whole) // 2]), ("emptied", b""), ("overwritten", b"no policy")):
            file.write_bytes(data)
            try:
                rlcatalog.Actor(path, catalog=part.catalog)
            except SavedPolicyError:
                continue
            raise AssertionError(f"{file.name} was {what}, and is read without an error")
