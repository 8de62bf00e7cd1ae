"""`policy.json`: the manifest of a saved policy, with a checksum."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Annotated, Any

import msgspec
from gymnasium import Space

from rlcatalog.errors import SavedPolicyError, raised_as
from rlcatalog.internals import __version__
from rlcatalog_policy.files import MOST_JSON, RegularFile
from rlcatalog_policy.space_json import space_from_json, space_to_json

FORMAT = "rlcatalog-policy"
FORMAT_VERSION = 3
#: Version of the layout → values of config keys that files of this version leave out, because they
#: were the defaults. The layout itself has not changed since.
EARLIER_DEFAULTS: dict[int, dict[str, Any]] = {
    2: {"action_bounds": "clip", "image_layout": "hwc", "scale_integers": False},
    FORMAT_VERSION: {},
}
#: Values of `rlcatalog.config.RULES` in files from before rules were saved.
UNSAVED_RULES = EARLIER_DEFAULTS[2]
MANIFEST, WEIGHTS, FILTER = "policy.json", "weights", "filter"

_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Manifest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Content of `policy.json`: names, versions and numbers.

    Attributes:
        format: `"rlcatalog-policy"`.
        format_version: Version of this layout.
        rlcatalog: Version of the kernel that wrote it.
        framework: `"torch"` or `"tf"`.
        config: The keys of the model config that differ from their defaults, and the values of all
            `rlcatalog.config.RULES`.
        parts: Slot → `"distribution/name"`.
        preprocessors: Path → `"distribution/name"`.
        action_dists: The same for the action space and its parts.
        versions: Distribution → version.
        observation_space: The space as plain data, or None (see `space_to_json`).
        action_space: The same for actions.
        files: File name → SHA-256 of the file's content.
        checksum: SHA-256 of all of the above (see `checksum_of`).
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
    files: dict[str, _Digest]
    checksum: str = ""

    def file(self, role: str) -> str | None:
        """Return the name of the file that contains the weights or the filter's state, or None."""
        digest = next(
            (digest for name, digest in self.files.items() if name.startswith(role)), None
        )
        return None if digest is None else file_name(role, digest)


def file_name(role: str, digest: str) -> str:
    """Return a name for an array file, derived from its content."""
    return f"{role}-{digest[:16]}.safetensors"


def checksum_of(data: dict[str, Any]) -> str:
    """Return the SHA-256 of a manifest without its checksum, as ASCII-only JSON with sorted keys
    and no spaces.
    """
    rest = {key: value for key, value in data.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def encode(manifest: Manifest) -> bytes:
    """Return the content of `policy.json`, with its checksum.

    Raises:
        SavedPolicyError: A value in the config is not plain data, or the content is too large.
    """
    data = msgspec.structs.asdict(manifest)
    # JSON supports neither integers with thousands of digits nor lists that contain themselves.
    with raised_as(
        lambda why: SavedPolicyError(f"the config or a space cannot be written as JSON: {why}"),
        SavedPolicyError,
    ):
        data["config"] = {key: _encoded(value, key) for key, value in manifest.config.items()}
        data["checksum"] = checksum_of(data)
        text = json.dumps(data, indent=2, allow_nan=False).encode() + b"\n"
    if len(text) > MOST_JSON:
        raise SavedPolicyError(
            f"config and spaces take {len(text)} bytes as JSON; at most {MOST_JSON} are allowed."
        )
    return text


def decode(file: RegularFile) -> Manifest:
    """Read `policy.json`.

    Raises:
        SavedPolicyError: The file is damaged, was not written by rlcatalog, or has a different
            format version.
    """
    path = file.path
    with raised_as(
        lambda why: SavedPolicyError(f"{path}: truncated or not JSON: {why}"), SavedPolicyError
    ):
        data = json.loads(file.read().decode(), parse_constant=_refuse_constant)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise SavedPolicyError(
            f"{path}: not written by rlcatalog (it does not say format {FORMAT!r})."
        )
    version = data.get("format_version")
    if type(version) is not int or version not in EARLIER_DEFAULTS:
        readable = " and ".join(map(str, EARLIER_DEFAULTS))
        raise SavedPolicyError(
            f"{path}: format version {version!r}; this rlcatalog ({__version__}) reads versions"
            f" {readable}. It was written by rlcatalog {data.get('rlcatalog')}."
        )
    if missing := [name for name in Manifest.__struct_fields__ if name not in data]:
        raise SavedPolicyError(f"{path}: incomplete; missing: {missing}.")
    with raised_as(lambda why: SavedPolicyError(f"{path}: damaged: {why}"), SavedPolicyError):
        if data["checksum"] != checksum_of(data):
            raise SavedPolicyError(f"{path}: changed since it was saved (its checksum differs).")
        manifest = msgspec.convert(data, Manifest)
        manifest.config = _earlier_defaults(manifest) | config_from_plain(manifest.config)
        # Format version 2 scaled to all finite bounds.
        if version == 2 and manifest.config["action_bounds"] == "affine":
            manifest.config["action_bounds"] = "affine_all"
    _check_files(manifest, path)
    return manifest


def _earlier_defaults(manifest: Manifest) -> dict[str, Any]:
    """Return the defaults of the version that wrote a manifest, where they differ from today's."""
    defaults = dict(EARLIER_DEFAULTS[manifest.format_version])
    if "/" not in manifest.parts["trunk"]:
        # A plain module's images have always been read by their shape.
        defaults.pop("image_layout", None)
    return defaults


def _check_files(manifest: Manifest, path: Path) -> None:
    """Raise an error unless the manifest names the format's files, and all of them are in its
    folder.
    """
    roles = [WEIGHTS, FILTER] if "filter" in manifest.parts else [WEIGHTS]
    names = {role: manifest.file(role) for role in roles}
    if missing := [file_name(role, "") for role, name in names.items() if name is None]:
        raise SavedPolicyError(f"{path}: incomplete; missing: {missing}.")
    if unknown := sorted(set(manifest.files) - set(names.values())):
        raise SavedPolicyError(f"{path}: it names an unknown file, {unknown[0]!r}.")


# --- config values as JSON, which has no infinity -------------------------------------------------

_FLOAT, _SPACE, _CODE = "$float", "$space", "$code"


class LeftOut(str):
    """Name of a class or function in `custom_model_config`.

    The code itself is not saved; `load(model=...)` supplies it.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _encoded(value: Any, place: str) -> Any:
    """Return a config value as JSON data; reject a value that would not be read back unchanged."""
    kind = type(value)
    if kind is dict:
        for name in value:
            if type(name) is not str:
                raise SavedPolicyError(
                    f"config key {place!r} has the key {name!r}; JSON allows only strings as keys."
                )
        for reserved, what in (
            (_FLOAT, "infinity"),
            (_SPACE, "a space"),
            (_CODE, "the name of code"),
        ):
            if reserved in value:
                raise SavedPolicyError(
                    f"config key {place!r} has the key {reserved!r}, which is reserved for {what}."
                    " Rename it."
                )
        return {name: _encoded(item, f"{place}[{name!r}]") for name, item in value.items()}
    if kind is list:
        return [_encoded(item, f"{place}[{index}]") for index, item in enumerate(value)]
    if kind is float and not math.isfinite(value):
        return {_FLOAT: repr(value)}
    if kind in (str, int, float, bool, type(None)):
        return value
    if isinstance(value, Space):
        if (written := space_to_json(value)) is None:
            raise SavedPolicyError(
                f"config key {place!r} contains {value}, a space of a kind that no codec can save."
            )
        return {_SPACE: _encoded(written, place)}
    if callable(value) and place.startswith("custom_model_config["):
        return {_CODE: getattr(value, "__qualname__", kind.__qualname__)}
    raise SavedPolicyError(
        f"config key {place!r} contains {value!r}, which cannot be saved by name. Register the"
        " class (ModelCatalog.register_custom_model(name, cls)) and write its name into the"
        " config."
    )


def plain_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return config values as JSON data for human readers; values that JSON cannot represent become
    text.
    """
    plain = {}
    for key, value in config.items():
        try:
            plain[key] = _encoded(value, key)
        except SavedPolicyError:
            plain[key] = getattr(value, "__qualname__", None) or repr(value)
    return plain


def config_from_plain(config: dict[str, Any]) -> dict[str, Any]:
    """Restore the config values from the result of `plain_config`."""
    return {key: _decoded(value) for key, value in config.items()}


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_FLOAT}:
            if value[_FLOAT] not in ("inf", "-inf", "nan"):
                raise ValueError(f"{value[_FLOAT]!r} under {_FLOAT!r} is not a number")
            return float(value[_FLOAT])
        if value.keys() == {_SPACE}:
            return space_from_json(value[_SPACE])
        if value.keys() == {_CODE}:
            if not isinstance(value[_CODE], str):
                raise ValueError(f"{value[_CODE]!r} under {_CODE!r} is not a name")
            return LeftOut(value[_CODE])
        return {name: _decoded(item) for name, item in value.items()}
    return [_decoded(item) for item in value] if isinstance(value, list) else value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
