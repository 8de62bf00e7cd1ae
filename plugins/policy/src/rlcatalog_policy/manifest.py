"""`policy.json`: the manifest of a saved policy, with a checksum."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Annotated, Any, NoReturn

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
#: Name of the manifest's file.
MANIFEST = "policy.json"
#: Keys of the model config that may hold a class or a module, and the keys of its arguments.
CODE_KEYS = {"custom_model": "custom_model_config", "memory": "memory_config"}
#: Roles of array files, with which their names begin.
WEIGHTS = "weights"
FILTER = "filter"

_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Manifest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Content of `policy.json`: names, versions and numbers.

    Attributes:
        format: `"rlcatalog-policy"`.
        format_version: Version of this layout.
        kernel_version: Version of the kernel that wrote it; in the file, its key is `"rlcatalog"`.
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
    kernel_version: str = msgspec.field(name="rlcatalog")
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
        for name, digest in self.files.items():
            if name.startswith(role):
                return file_name(role, digest)
        return None


def is_address(name: str) -> bool:
    """Return whether a saved part's name is `"distribution/name"`; parts that the program defined
    have no distribution.
    """
    return "/" in name


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

    def cannot_be_written(why: str) -> SavedPolicyError:
        return SavedPolicyError(f"the config or a space cannot be written as JSON: {why}")

    # Under the names of the file, which differ from the attributes'.
    keys = manifest.__struct_encode_fields__
    data = dict(zip(keys, msgspec.structs.astuple(manifest), strict=True))
    # JSON supports neither integers with thousands of digits nor lists that contain themselves.
    with raised_as(cannot_be_written, SavedPolicyError):
        data["config"] = {key: _to_json(value, key) for key, value in manifest.config.items()}
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
    data = _read_data(file)
    missing_names = [name for name in Manifest.__struct_encode_fields__ if name not in data]
    if missing_names:
        raise SavedPolicyError(f"{path}: incomplete; missing: {missing_names}.")

    def is_damaged(why: str) -> SavedPolicyError:
        return SavedPolicyError(f"{path}: damaged: {why}")

    with raised_as(is_damaged, SavedPolicyError):
        if data["checksum"] != checksum_of(data):
            raise SavedPolicyError(f"{path}: changed since it was saved (its checksum differs).")
        manifest = msgspec.convert(data, Manifest)
        # What the file leaves out has the default of its time.
        manifest.config = _earlier_defaults(manifest) | config_from_plain(manifest.config)
        # In format version 2, "affine" scaled to all finite bounds, which has another name now.
        if manifest.format_version == 2 and manifest.config["action_bounds"] == "affine":
            manifest.config["action_bounds"] = "affine_all"
    _check_files(manifest, path)
    return manifest


def _read_data(file: RegularFile) -> dict[str, Any]:
    """Read a JSON file that says it is a manifest of a version that can be read."""
    path = file.path

    def is_not_json(why: str) -> SavedPolicyError:
        return SavedPolicyError(f"{path}: truncated or not JSON: {why}")

    with raised_as(is_not_json, SavedPolicyError):
        data = json.loads(file.read().decode(), parse_constant=_refuse_constant)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise SavedPolicyError(
            f"{path}: not written by rlcatalog (it does not say format {FORMAT!r})."
        )
    version = data.get("format_version")
    # EARLIER_DEFAULTS has a key for each readable version. The type must be int, because 2.0 == 2.
    is_readable = type(version) is int and version in EARLIER_DEFAULTS
    if not is_readable:
        readable = " and ".join(map(str, EARLIER_DEFAULTS))
        raise SavedPolicyError(
            f"{path}: format version {version!r}; this rlcatalog ({__version__}) reads versions"
            f" {readable}. It was written by rlcatalog {data.get('rlcatalog')}."
        )
    return data


def _earlier_defaults(manifest: Manifest) -> dict[str, Any]:
    """Return the defaults of the version that wrote a manifest, where they differ from today's."""
    defaults = dict(EARLIER_DEFAULTS[manifest.format_version])
    trunk_is_of_program = not is_address(manifest.parts["trunk"])
    if trunk_is_of_program:
        # A plain module's images have always been read by their shape.
        defaults.pop("image_layout", None)
    return defaults


def _check_files(manifest: Manifest, path: Path) -> None:
    """Raise an error unless the manifest names the format's files, and all of them are in its
    folder.
    """
    roles = [WEIGHTS]
    if "filter" in manifest.parts:
        roles.append(FILTER)
    known_names = set()
    missing_names = []
    for role in roles:
        name = manifest.file(role)
        if name is None:
            missing_names.append(file_name(role, digest=""))  # for the message
        else:
            known_names.add(name)
    if missing_names:
        raise SavedPolicyError(f"{path}: incomplete; missing: {missing_names}.")
    unknown_names = sorted(manifest.files.keys() - known_names)
    if unknown_names:
        raise SavedPolicyError(f"{path}: it names an unknown file, {unknown_names[0]!r}.")


# --- config values as JSON, which has no infinity -------------------------------------------------

#: Keys of tables that stand for a value which JSON does not have.
_FLOAT = "$float"
_SPACE = "$space"
_CODE = "$code"
#: The beginnings of the places at which a config may contain code.
_PLACES_OF_CODE = (
    *[f"{key}[" for key in CODE_KEYS.values()],
    *[f"critic[{key!r}][" for key in CODE_KEYS.values()],
)
#: Such a key → what it stands for.
_RESERVED = {_FLOAT: "infinity", _SPACE: "a space", _CODE: "the name of code"}


class LeftOut(str):
    """Name of a class or function inside a config value, such as in `custom_model_config`.

    The code itself is not saved; `load(model=..., memory=..., critic=...)` supplies it.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _to_json(value: Any, place: str) -> Any:
    """Return a config value as JSON data; reject a value that would not be read back unchanged.

    Args:
        value: The value.
        place: Where it is, for messages: the config's key, with the keys and indices inside it.
    """
    # A subclass of a plain type would be read back as that type.
    exact_type = type(value)
    if exact_type is dict:
        _check_keys(value, place)
        return {name: _to_json(item, f"{place}[{name!r}]") for name, item in value.items()}
    if exact_type is list:
        return [_to_json(item, f"{place}[{index}]") for index, item in enumerate(value)]
    if exact_type is float and not math.isfinite(value):  # JSON has no such numbers
        return {_FLOAT: repr(value)}
    if exact_type in (str, int, float, bool, type(None)):
        return value
    if exact_type is LeftOut:
        return {_CODE: str(value)}
    if isinstance(value, Space):
        space_data = space_to_json(value)
        if space_data is None:
            raise SavedPolicyError(
                f"config key {place!r} contains {value}, a space of a kind that no codec can save."
            )
        return {_SPACE: _to_json(space_data, place)}
    if callable(value) and place.startswith(_PLACES_OF_CODE):
        # The user's class or function, or an instance that can be called.
        return {_CODE: getattr(value, "__qualname__", exact_type.__qualname__)}
    raise SavedPolicyError(
        f"config key {place!r} contains {value!r}, which cannot be saved by name. Register the"
        " class (ModelCatalog.register_custom_model(name, cls)) and write its name into the"
        " config."
    )


def _check_keys(table: dict[Any, Any], place: str) -> None:
    """Raise an error if a table has a key that JSON cannot hold, or that this format reserves."""
    for key in table:
        if type(key) is not str:
            raise SavedPolicyError(
                f"config key {place!r} has the key {key!r}; JSON allows only strings as keys."
            )
    for reserved_key, meaning in _RESERVED.items():
        if reserved_key in table:
            raise SavedPolicyError(
                f"config key {place!r} has the key {reserved_key!r}, which is reserved for"
                f" {meaning}. Rename it."
            )


def plain_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return config values as JSON data for human readers; values that JSON cannot represent become
    text.
    """
    plain = {}
    for key, value in config.items():
        try:
            plain[key] = _to_json(value, key)
        except SavedPolicyError:
            # The user's class or function, or any other object.
            plain[key] = getattr(value, "__qualname__", None) or repr(value)
    return plain


def config_from_plain(config: dict[str, Any]) -> dict[str, Any]:
    """Restore the config values from the result of `plain_config`."""
    return {key: _from_json(value) for key, value in config.items()}


def _from_json(value: Any) -> Any:
    """Return the config value that `_to_json` wrote; code becomes a `LeftOut` with its name."""
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_FLOAT}:
        text = value[_FLOAT]
        if text not in ("inf", "-inf", "nan"):
            raise ValueError(f"{text!r} under {_FLOAT!r} is not a number")
        return float(text)
    if value.keys() == {_SPACE}:
        return space_from_json(value[_SPACE])
    if value.keys() == {_CODE}:
        name = value[_CODE]
        if not isinstance(name, str):
            raise ValueError(f"{name!r} under {_CODE!r} is not a name")
        return LeftOut(name)
    return {name: _from_json(item) for name, item in value.items()}


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")
