"""Saving and restoring policies: names and numbers only, nothing that is executed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

import rlcatalog
from rlcatalog.errors import CatalogError, ModelContractError, SavedPolicyError
from rlcatalog.policy import Policy
from rlcatalog.preprocessing import Preprocessor
from rlcatalog.registry import Component
from rlcatalog.slots import MODEL_SLOTS
from rlcatalog.spacejson import space_from_json, space_to_json

if TYPE_CHECKING:
    from rlcatalog.catalog import Catalog
    from rlcatalog.resolution import Resolution

FORMAT = "rlcatalog-policy"
FORMAT_VERSION = 1
MANIFEST, WEIGHTS, FILTER = "policy.json", "weights.safetensors", "filter.safetensors"
#: Slots whose component is written down by name, beside the preprocessors.
_PINNED = ("filter", "trunk", "memory", "head")


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
        observation_space: The space as plain data, or None (see `spacejson`).
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
    parts = {slot: resolution.choices[slot].component for slot in _PINNED}
    preprocessors = dict(codecs_of(policy.preprocessor))
    action_dists = {node.place: node.component for node in resolution.actions.walk()}
    used = [c for c in (*parts.values(), *preprocessors.values(), *action_dists.values()) if c is not None]
    manifest = Manifest(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        rlcatalog=rlcatalog.__version__,
        framework=policy.framework,
        config=resolution.config.given | settled_keys(resolution),
        parts={slot: address_of(component) for slot, component in parts.items() if component is not None},
        preprocessors={path: address_of(component) for path, component in preprocessors.items()},
        action_dists={path: address_of(component) for path, component in action_dists.items()},
        versions={c.distribution: c.version for c in sorted(used, key=lambda c: c.distribution) if c.distribution},
        observation_space=space_to_json(policy.observation_space),
        action_space=space_to_json(policy.action_space),
        files={name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    )
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    target.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (target / name).write_bytes(data)
    (target / MANIFEST).write_bytes(text + b"\n")  # last: a directory without it is no policy


def load(
    catalog: Catalog, directory: str | os.PathLike[str], obs_space: Any = None, action_space: Any = None
) -> Policy:
    """Restore a policy from a directory; see `rlcatalog.load`."""
    source = Path(directory)
    manifest = read_manifest(source)
    tensors = {name: _tensors(source / name, digest) for name, digest in manifest.files.items()}
    obs_space = _space(manifest, "observation_space", source, obs_space)
    action_space = _space(manifest, "action_space", source, action_space)
    pins = {**manifest.parts, "preprocessors": manifest.preprocessors, "action_dists": manifest.action_dists}
    try:
        for slot, address in manifest.parts.items():  # a missing plugin is named before its config keys are
            catalog.registry.get("model" if slot in MODEL_SLOTS else slot, address)
        for kind, addresses in (("preprocessor", manifest.preprocessors), ("action_dist", manifest.action_dists)):
            for address in addresses.values():
                catalog.registry.get(kind, address)
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
            f"{path}: format version {data.get('format_version')!r}; this rlcatalog ({rlcatalog.__version__})"
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


def codecs_of(preprocessor: Preprocessor) -> Iterator[tuple[str, Component]]:
    """Yield path and component of a preprocessor and of its children."""
    assert preprocessor.component is not None
    yield preprocessor.info.path, preprocessor.component
    for child in preprocessor.children:
        yield from codecs_of(child)


def settled_keys(resolution: Resolution) -> dict[str, Any]:
    """Return the config keys that name what the model's parts found in the catalog."""
    found: dict[str, Any] = {}
    for slot in MODEL_SLOTS:
        component = resolution.choices[slot].component
        if component is not None and getattr(component.declaration, "settled", None) is not None:
            request, rest = resolution.request, resolution.rest
            asked = request if rest is None or slot == "head" else rest.request(request)
            found |= component.ask("settled", asked, returns=dict)
    return found


def address_of(component: Component) -> str:
    """Return `"distribution/name"`, by which a component is found again."""
    return f"{component.distribution}/{component.name}" if component.distribution else component.name


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
