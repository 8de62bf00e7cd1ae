"""Saving and restoring policies: names and numbers only, nothing that is executed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import rlcatalog
from rlcatalog.errors import CatalogError, ModelContractError, SavedPolicyError
from rlcatalog.policy import Policy
from rlcatalog.preprocessing import Preprocessor
from rlcatalog.registry import Component
from rlcatalog.spacejson import space_from_json, space_to_json

if TYPE_CHECKING:
    from rlcatalog.catalog import Catalog

FORMAT = "rlcatalog-policy"
FORMAT_VERSION = 1
MANIFEST, WEIGHTS, FILTER = "policy.json", "weights.safetensors", "filter.safetensors"
#: Slots whose component is written down by name, beside the preprocessors.
_PINNED = ("filter", "trunk", "memory", "head", "action_dist")


def save(policy: Policy, directory: str | os.PathLike[str]) -> None:
    """Write a policy to a directory; see `Policy.save`."""
    from safetensors.numpy import save as to_bytes

    resolution, target = policy.resolution, Path(directory)
    for key, value in resolution.config.given.items():
        _refuse_code(key, value)
    files = {WEIGHTS: to_bytes(_contiguous(policy.model.get_weights()))}
    if policy.filter is not None:
        files[FILTER] = to_bytes(_contiguous(policy.filter.get_state()))
    parts = {slot: resolution.choices[slot].component for slot in _PINNED}
    preprocessors = dict(_preprocessors(policy.preprocessor))
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "rlcatalog": rlcatalog.__version__,
        "framework": policy.framework,
        "config": resolution.config.given,
        "parts": {slot: _address(component) for slot, component in parts.items() if component is not None},
        "preprocessors": {path: _address(component) for path, component in preprocessors.items()},
        "versions": {
            c.distribution: c.version
            for c in sorted((*parts.values(), *preprocessors.values()), key=lambda c: c.distribution if c else "")
            if c is not None and c.distribution
        },
        "observation_space": space_to_json(policy.observation_space),
        "action_space": space_to_json(policy.action_space),
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    text = json.dumps(manifest, indent=2)
    target.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (target / name).write_bytes(data)
    (target / MANIFEST).write_text(text + "\n", encoding="utf-8")  # last: a directory without it is no policy


def load(
    catalog: Catalog, directory: str | os.PathLike[str], obs_space: Any = None, action_space: Any = None
) -> Policy:
    """Restore a policy from a directory; see `rlcatalog.load`."""
    source = Path(directory)
    manifest = _manifest(source)
    tensors = {name: _tensors(source / name, digest) for name, digest in manifest["files"].items()}
    obs_space = obs_space if obs_space is not None else _space(manifest, "observation_space", source)
    action_space = action_space if action_space is not None else _space(manifest, "action_space", source)
    pins = {**manifest["parts"], "preprocessors": manifest["preprocessors"]}
    try:
        resolution = catalog.resolve(obs_space, action_space, manifest["config"], manifest["framework"], pins=pins)
        policy = Policy(catalog, resolution, obs_space, action_space)
    except CatalogError as error:
        versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
        error.args = (f"{source}: this policy cannot be restored here. {error} (It was saved with {versions}.)",)
        raise
    try:
        policy.model.set_weights(tensors[WEIGHTS])
    except ModelContractError as error:
        raise SavedPolicyError(f"{source / WEIGHTS}: {error}") from error
    if policy.filter is not None:
        policy.filter.set_state(tensors.get(FILTER, {}))
    return policy


def _manifest(source: Path) -> dict[str, Any]:
    path = source / MANIFEST
    if not path.is_file():
        raise SavedPolicyError(f"{source}: not a saved policy; it has no {MANIFEST}.")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SavedPolicyError(f"{path}: truncated or not JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise SavedPolicyError(f"{path}: not written by rlcatalog (no format {FORMAT!r} in it).")
    if manifest.get("format_version") != FORMAT_VERSION:
        raise SavedPolicyError(
            f"{path}: format version {manifest.get('format_version')!r}; this rlcatalog ({rlcatalog.__version__})"
            f" reads version {FORMAT_VERSION}. It was written by rlcatalog {manifest.get('rlcatalog')}."
        )
    needed = {"framework", "config", "parts", "preprocessors", "versions", "observation_space", "action_space", "files"}
    missing = sorted(needed - set(manifest))
    if missing or WEIGHTS not in manifest["files"]:
        raise SavedPolicyError(f"{path}: incomplete; missing: {missing or [WEIGHTS]}.")
    return manifest


def _tensors(path: Path, digest: str) -> dict[str, np.ndarray[Any, Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    if path.name not in (WEIGHTS, FILTER):  # the manifest names files of its own directory alone
        raise SavedPolicyError(f"{path.parent / MANIFEST}: unknown file {path.name!r} in it.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SavedPolicyError(f"{path}: cannot be read: {error}") from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise SavedPolicyError(f"{path}: truncated or changed since it was saved (its checksum differs).")
    try:
        return dict(from_bytes(data))
    except SafetensorError as error:
        raise SavedPolicyError(f"{path}: not a safetensors file: {error}") from error


def _space(manifest: dict[str, Any], key: str, source: Path) -> Any:
    try:
        return space_from_json(manifest[key])
    except (KeyError, TypeError, ValueError) as error:
        raise SavedPolicyError(f"{source / MANIFEST}: its {key} cannot be read: {error}") from error


def _preprocessors(preprocessor: Preprocessor) -> Iterator[tuple[str, Component]]:
    """Yield path and component of a preprocessor and of its children."""
    assert preprocessor.component is not None
    yield preprocessor.info.path, preprocessor.component
    for child in preprocessor.children:
        yield from _preprocessors(child)


def _address(component: Component) -> str:
    return f"{component.distribution}/{component.name}" if component.distribution else component.name


def _contiguous(arrays: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _refuse_code(key: str, value: Any) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            _refuse_code(f"{key}[{name!r}]", item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_code(f"{key}[{index}]", item)
    elif not isinstance(value, str | int | float | bool | type(None)):
        raise SavedPolicyError(
            f"config key {key!r} holds {value!r}, which cannot be written as a name. Register the class"
            " (ModelCatalog.register_custom_model(name, cls)) and write its name into the config."
        )
