"""Policies saved: names and numbers only, nothing that is executed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rlcatalog._version import __version__
from rlcatalog.choice import Pins
from rlcatalog.errors import SavedPolicyError
from rlcatalog.spaces import space_to_json

if TYPE_CHECKING:
    from rlcatalog.policy.policy import Policy

FORMAT = "rlcatalog-policy"
FORMAT_VERSION = 1
MANIFEST, WEIGHTS, FILTER = "policy.json", "weights.safetensors", "filter.safetensors"


class Manifest(msgspec.Struct, kw_only=True):
    """What `policy.json` holds: names, versions and numbers.

    Attributes:
        format: `"rlcatalog-policy"`.
        format_version: Version of this layout.
        rlcatalog: Version of the kernel that wrote it.
        framework: `"torch"` or `"tf"`.
        config: The keys of the model config that are not at their default.
        parts: Slot → `"distribution/name"`.
        preprocessors: Path → `"distribution/name"`.
        action_dists: The same for the action space and its parts.
        versions: Distribution → version.
        observation_space: The space as plain data, or None (see `space_to_json`).
        action_space: The same for actions.
        files: File → SHA-256 of its content.
    """

    format: str
    format_version: int
    rlcatalog: str
    framework: str
    config: dict[str, Any]
    parts: dict[str, str]
    preprocessors: dict[str, str]
    action_dists: dict[str, str]
    versions: dict[str, str]
    observation_space: dict[str, Any] | None
    action_space: dict[str, Any] | None
    files: dict[str, str]


def save(policy: Policy, directory: str | os.PathLike[str]) -> None:
    """Write a policy to a directory; see `Policy.save`."""
    from safetensors.numpy import save as to_bytes

    resolution, target = policy.resolution, Path(directory)
    for key, value in resolution.config.given.items():
        _refuse_code(key, value)
    files = {WEIGHTS: to_bytes(_contiguous(policy.model.get_weights()))}
    if policy.filter is not None:
        files[FILTER] = to_bytes(_contiguous(policy.filter.get_state()))
    pins = Pins.of(resolution)
    manifest = Manifest(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        rlcatalog=__version__,
        framework=policy.framework,
        config=resolution.config.given | resolution.pinned_keys(),
        **pins.as_dict(),
        observation_space=space_to_json(policy.observation_space),
        action_space=space_to_json(policy.action_space),
        files={name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    )
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    target.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (target / name).write_bytes(data)
    (target / MANIFEST).write_bytes(text + b"\n")  # last: a directory without it is no policy


def _contiguous(arrays: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.asarray(array, order="C") for name, array in arrays.items()}


def _refuse_code(key: str, value: Any) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                raise SavedPolicyError(f"config key {key!r} has the key {name!r}; only text can be a key in JSON.")
            _refuse_code(f"{key}[{name!r}]", item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_code(f"{key}[{index}]", item)
    elif not isinstance(value, str | int | float | bool | type(None)):
        raise SavedPolicyError(
            f"config key {key!r} holds {value!r}, which cannot be written as a name. Register the class"
            " (ModelCatalog.register_custom_model(name, cls)) and write its name into the config."
        )
