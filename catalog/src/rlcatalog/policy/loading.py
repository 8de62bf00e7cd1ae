"""Policies restored: what was written is checked, and the parts that were chosen are found again by name."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rlcatalog._version import __version__
from rlcatalog.choice import Pins
from rlcatalog.errors import CatalogError, ModelContractError, SavedPolicyError
from rlcatalog.policy.policy import Policy
from rlcatalog.policy.saving import FILTER, FORMAT, FORMAT_VERSION, MANIFEST, WEIGHTS, Manifest
from rlcatalog.spaces import space_from_json, space_to_json

if TYPE_CHECKING:
    from rlcatalog.catalog import Catalog


def load(
    catalog: Catalog, directory: str | os.PathLike[str], obs_space: Any = None, action_space: Any = None
) -> Policy:
    """Restore a policy from a directory; see `rlcatalog.load`."""
    source = Path(directory)
    manifest = read_manifest(source)
    tensors = {name: _tensors(source / name, digest) for name, digest in manifest.files.items()}
    obs_space = _space(manifest, "observation_space", source, obs_space)
    action_space = _space(manifest, "action_space", source, action_space)
    pins = Pins(manifest.parts, manifest.preprocessors, manifest.action_dists, manifest.versions)
    try:
        pins.check(catalog.registry)  # a missing plugin is named before its config keys are
        resolution = catalog.resolve(obs_space, action_space, manifest.config, manifest.framework, pins=pins)
        policy = Policy(catalog, resolution, obs_space, action_space)
    except CatalogError as error:
        versions = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
        error.args = (f"{source}: this policy cannot be restored here. {error} (It was saved with {versions}.)",)
        raise
    try:
        policy.model.set_weights(tensors[WEIGHTS])
    except ModelContractError as error:
        raise SavedPolicyError(f"{source / WEIGHTS}: {error}") from error
    if policy.filter is not None:
        policy.filter.set_state(tensors[FILTER])
    return policy


def read_manifest(source: Path) -> Manifest:
    """Read what a saved policy says about itself.

    Raises:
        SavedPolicyError: The folder holds none, or it is damaged.
    """
    path = source / MANIFEST
    if not path.is_file():
        raise SavedPolicyError(f"{source}: not a saved policy; it has no {MANIFEST}.")
    try:
        data = msgspec.json.decode(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SavedPolicyError(f"{path}: truncated or not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise SavedPolicyError(f"{path}: not written by rlcatalog (no format {FORMAT!r} in it).")
    if data.get("format_version") != FORMAT_VERSION:
        raise SavedPolicyError(
            f"{path}: format version {data.get('format_version')!r}; this rlcatalog ({__version__})"
            f" reads version {FORMAT_VERSION}. It was written by rlcatalog {data.get('rlcatalog')}."
        )
    missing = [name for name in Manifest.__struct_fields__ if name not in data]
    if missing:
        raise SavedPolicyError(f"{path}: incomplete; missing: {missing}.")
    try:
        manifest = msgspec.convert(data, Manifest)
    except msgspec.ValidationError as error:
        raise SavedPolicyError(f"{path}: damaged: {error}") from error
    needed = {WEIGHTS, FILTER} if "filter" in manifest.parts else {WEIGHTS}
    if missing := sorted(needed - set(manifest.files)):
        raise SavedPolicyError(f"{path}: incomplete; missing: {missing}.")
    if unknown := sorted(set(manifest.files) - needed):  # it names files of its own directory alone
        raise SavedPolicyError(f"{path}: unknown file {unknown[0]!r} in it.")
    return manifest


def _tensors(path: Path, digest: str) -> dict[str, np.ndarray[Any, Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

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


def _space(manifest: Manifest, key: str, source: Path, given: Any) -> Any:
    written = getattr(manifest, key)
    if given is not None:
        if written is not None and space_to_json(given) != written:
            raise SavedPolicyError(f"{source / MANIFEST}: its {key} is {space_from_json(written)}, not {given}.")
        return given
    try:
        return space_from_json(written)
    except (KeyError, TypeError, ValueError, AssertionError, AttributeError, ArithmeticError) as error:
        raise SavedPolicyError(f"{source / MANIFEST}: its {key} cannot be read: {error}") from error
