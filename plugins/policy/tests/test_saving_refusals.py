"""Loading rejects saved policies that are truncated, changed, crafted or need something that is
not installed.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import time

import numpy as np
import pytest
from gymnasium import spaces
from safetensors.numpy import load_file, save as to_bytes

import rlcatalog
from rlcatalog import Catalog
from rlcatalog.errors import (
    CatalogError,
    ConfigError,
    MissingPluginError,
    SavedPolicyError,
    SavedPolicyWarning,
)
from rlcatalog.plugins import install_hint
from rlcatalog.plugins.discovery import scan
from rlcatalog_policy import loading, to_bytes as saved_bytes

DEFAULT_PLUGINS = ("fcnet", "categorical", "gaussian", "preprocessors")
OBS = spaces.Box(-np.inf, np.inf, (3,), np.float32)
THREE = spaces.Discrete(3, start=5)
MEBIBYTE = 1 << 20


def make_catalog(plugins=DEFAULT_PLUGINS):
    """Return a catalog of the installed plugins with these entry-point names."""
    return Catalog([point for point in scan() if point.name in plugins], environ={})


def build(*, obs_space=OBS, hiddens=(8,)):
    config = {"fcnet_hiddens": list(hiddens)}
    return rlcatalog.build(obs_space, THREE, config, "torch", catalog=make_catalog())


@pytest.fixture
def saved(directory):
    """The directory of a saved policy."""
    build().save(directory)
    return directory


# --- the manifest ---------------------------------------------------------------------------------


def test_empty_directory_is_not_a_saved_policy(tmp_path, refused):
    refused(tmp_path, r"not a saved policy; it has no policy\.json")


def test_missing_directory_is_not_a_saved_policy(tmp_path, refused):
    refused(tmp_path / "nowhere", "not a saved policy")


@pytest.mark.parametrize(
    "keep",
    [
        pytest.param(lambda content: b"", id="empty"),
        pytest.param(lambda content: content[:1], id="one-byte"),
        pytest.param(lambda content: content[: len(content) // 2], id="half"),
        pytest.param(lambda content: content[: len(content) * 99 // 100], id="99-percent"),
    ],
)
def test_truncated_manifest_is_rejected(saved, keep, refused):
    path = saved / "policy.json"
    path.write_bytes(keep(path.read_bytes()))

    refused(saved, r"policy\.json: truncated or not JSON")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[]", id="list"),
        pytest.param("3", id="number"),
        pytest.param("null", id="null"),
        pytest.param("{}", id="empty-dict"),
        pytest.param('{"format": "other", "format_version": 1}', id="other-format"),
    ],
)
def test_manifest_of_another_program_is_rejected(saved, text, refused):
    (saved / "policy.json").write_text(text)

    refused(saved, r"policy\.json: not written by rlcatalog")


def test_manifest_that_is_not_utf8_is_rejected(saved, refused):
    (saved / "policy.json").write_bytes(b"\xff\xfe\x00\x80")

    refused(saved, r"policy\.json: truncated or not JSON")


@pytest.mark.parametrize("version", [1, 4, 2.0, "2", True, None], ids=repr)
def test_unknown_format_version_error_names_the_writer(saved, edit, refused, version):
    edit(saved, format_version=version, rlcatalog="9.9")

    message = refused(saved, f"format version {version!r}; this rlcatalog")

    assert "reads versions 2 and 3. It was written by rlcatalog 9.9" in message


NEEDED_KEYS = [
    "framework",
    "config",
    "parts",
    "preprocessors",
    "versions",
    "observation_space",
    "action_space",
    "files",
]


@pytest.mark.parametrize("key", NEEDED_KEYS)
def test_manifest_without_a_key_error_names_it(saved, key, refused):
    path = saved / "policy.json"
    manifest = json.loads(path.read_text())
    del manifest[key]
    path.write_text(json.dumps(manifest))

    refused(saved, rf"incomplete; missing: \['{key}'\]")


@pytest.mark.grid
@pytest.mark.parametrize("key", NEEDED_KEYS)
@pytest.mark.parametrize("value", [None, 3, [], ["x"], "weights.safetensors", {"x": 1}], ids=repr)
def test_manifest_with_an_invalid_value_is_rejected(saved, key, value, edit):
    edit(saved, **{key: value})

    with pytest.raises(CatalogError) as caught:
        loading.load(saved, catalog=make_catalog())

    assert str(saved) in str(caught.value)


def test_unknown_config_key_error_names_the_key(saved, edit, refused):
    edit(saved, config={"fcnet_hidden": [8]})

    refused(saved, "Unknown model config key 'fcnet_hidden'", ConfigError)


def test_missing_plugin_error_names_version_and_directory(saved):
    [version] = [record.version for record in make_catalog().plugins if record.name == "fcnet"]

    with pytest.raises(MissingPluginError, match=": this policy cannot be restored") as caught:
        loading.load(saved, catalog=make_catalog(("categorical", "preprocessors")))

    message = str(caught.value)
    assert message.startswith(str(saved))
    assert f"rlcatalog-fcnet {version}" in message
    assert message.endswith(install_hint("rlcatalog-fcnet"))


# --- the weights file -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keep",
    [
        pytest.param(0, id="empty"),
        pytest.param(4, id="4-bytes"),
        pytest.param(100, id="100-bytes"),
        pytest.param(-1, id="all-but-the-last-byte"),
    ],
)
def test_truncated_weights_file_is_rejected(saved, keep, arrays, refused):
    path = arrays(saved)
    path.write_bytes(path.read_bytes()[:keep])

    message = refused(saved, "truncated or changed since it was saved")

    assert path.name in message


def test_changed_weights_file_is_rejected(saved, arrays, refused):
    path = arrays(saved)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # the last bit
    path.write_bytes(bytes(content))

    refused(saved, r"weights-\w+\.safetensors: truncated or")


def test_missing_weights_file_is_rejected(saved, arrays, refused):
    arrays(saved).unlink()

    refused(saved, r"weights-\w+\.safetensors: cannot be read")


def test_weights_file_that_is_a_pickle_is_rejected(saved, edit, refused):
    content = pickle.dumps({"hidden": np.zeros(3)})
    digest = hashlib.sha256(content).hexdigest()
    name = f"weights-{digest[:16]}.safetensors"
    (saved / name).write_bytes(content)
    edit(saved, files={name: digest})

    refused(saved, r"weights-\w+\.safetensors: not a safe")


def test_weights_of_another_model_are_rejected(saved, edit, refused):
    edit(saved, config={"fcnet_hiddens": [9]})

    message = refused(saved, "these weights belong to a differ")

    assert ".safetensors: FullyConnectedNetwork: " in message
    assert "hidden.layers.0.weight: (8, 3) instead of (9, 3)" in message


@pytest.mark.parametrize(
    "name", ["evil.bin", "weights.pkl", "../weights.safetensors", "/weights.safetensors"]
)
def test_file_of_unknown_name_is_rejected(saved, name, arrays, edit, refused):
    (saved.parent / "weights.safetensors").write_bytes(arrays(saved).read_bytes())
    manifest = edit(saved)
    [digest] = manifest["files"].values()
    edit(saved, files={**manifest["files"], name: digest})

    refused(saved, "unknown file")


# --- the arrays, before a model is built ----------------------------------------------------------


@pytest.fixture
def rewrite(arrays, edit):
    """Change the arrays of a saved policy, and sign the file as a save would."""

    def change_arrays(directory, change):
        path = arrays(directory)
        weights = load_file(path)
        change(weights)
        content = to_bytes(weights)
        digest = hashlib.sha256(content).hexdigest()
        name = f"weights-{digest[:16]}.safetensors"
        files = {**edit(directory)["files"], name: digest}
        del files[path.name]
        path.unlink()
        (directory / name).write_bytes(content)
        edit(directory, files=files)

    return change_arrays


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
def test_weights_of_another_dtype_are_rejected(saved, rewrite, refused, dtype):
    name = "hidden.layers.0.weight"

    def change_dtype(weights):
        weights[name] = weights[name].astype(dtype)

    rewrite(saved, change_dtype)

    message = refused(saved, "weights with a different dtype")

    assert f"{name}: {dtype} instead of float32" in message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
def test_weights_that_are_not_finite_warn(saved, rewrite, value):
    name = "hidden.layers.0.bias"

    def set_first_value(weights):
        weights[name][0] = value

    rewrite(saved, set_first_value)

    with pytest.warns(SavedPolicyWarning, match=r"not finite, in hidden\.layers\.0\.bias\."):
        policy = loading.load(saved, catalog=make_catalog())

    np.testing.assert_array_equal(policy.model.get_weights()[name][0], np.float32(value))


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    "config",
    [
        {"fcnet_hiddens": [20_000] * 4},
        {"post_fcnet_hiddens": [20_000] * 4},
        {"fcnet_hiddens": [1] * 9_999},
    ],
    ids=["wide", "wide-post-layers", "many-layers"],
)
def test_config_of_a_model_larger_than_the_file_is_rejected(
    saved, edit, refused, monkeypatch, config, framework
):
    edit(saved, config=config, framework=framework)
    monkeypatch.setattr(loading, "Policy", None)  # building a policy would fail

    message = refused(saved, r"contains \d+ weights in \d+ arrays, but")

    assert re.search(r"the config describes a model of \d+ or more in \d+ layers", message)


def write_header(shape, *, dtype="F32", offsets="[0, 0]"):
    """Return the header of a safetensors file with one array, "w"."""
    return f'{{"w": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": {offsets}}}}}'


@pytest.mark.parametrize(
    ("header", "cause"),
    [
        pytest.param(
            write_header(f"[{','.join(['9' * 4_000] * 250)}]"),
            "'w' in its header: Expected `int`",
            id="250-axes-of-4000-digits",
        ),
        pytest.param(
            write_header([0, 10**30]), "'w' in its header: Expected `int`", id="axis-beyond-int64"
        ),
        pytest.param(
            write_header([0, 2**62]), "larger than any array", id="empty-array-with-a-long-axis"
        ),
        pytest.param(write_header([0] * 100), "length <= 32", id="100-axes"),
        pytest.param(
            write_header([1.0], offsets="[0, 4]"), "Expected `int`, got `float`", id="float-as-axis"
        ),
        pytest.param(
            write_header([], dtype="F8", offsets="[0, 4]"),
            "dtype 'F8' is not among BOOL",
            id="unknown-dtype",
        ),
        pytest.param(
            write_header([], offsets="[4, 8]"),
            "describes 4 bytes, but 0 follow it",
            id="bytes-beyond-the-end",
        ),
        pytest.param(write_header("[[1]]"), "Expected `int`, got `array`", id="list-as-axis"),
        # No Python lets a decoder recurse so deeply; Python 3.13 decodes 9,000 levels.
        pytest.param(
            write_header("[" * 1_000_000 + "]" * 1_000_000),
            "its header cannot be read",
            id="million-nested-lists",
        ),
        pytest.param(
            " " * (32 * MEBIBYTE),
            rf"its header would have {32 * MEBIBYTE} of",
            id="longer-than-allowed",
        ),
    ],
)
def test_crafted_header_is_rejected_at_once(saved, arrays, refused, header, cause):
    arrays(saved).write_bytes(len(header).to_bytes(8, "little") + header.encode())
    start = time.perf_counter()

    refused(saved, cause)

    assert time.perf_counter() - start < 5  # multiplying the long axes would take 22 seconds


def test_header_that_is_too_long_error_names_the_limit(saved, arrays, refused):
    header = " " * (32 * MEBIBYTE)
    arrays(saved).write_bytes(len(header).to_bytes(8, "little") + header.encode())

    message = refused(saved, "its header would have")

    assert f"bytes; at most {16 * MEBIBYTE}" in message


def test_arrays_that_share_bytes_are_rejected(saved, arrays, edit, refused):
    # Names, shapes, dtypes and the length stay; the last array is moved onto the first.
    path = arrays(saved)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    last = max(header.values(), key=lambda entry: entry["data_offsets"][1])
    last["data_offsets"] = [0, last["data_offsets"][1] - last["data_offsets"][0]]
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + content[8 + length :]
    name = f"weights-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
    files = {**edit(saved)["files"], name: hashlib.sha256(data).hexdigest()}
    del files[path.name]
    path.rename(saved / name).write_bytes(data)
    edit(saved, files=files)

    message = refused(saved, "not a safetensors file, truncated or")

    assert re.search("changed since it was saved: .*[oO]ffset", message)


# --- sizes ----------------------------------------------------------------------------------------


def test_arrays_whose_names_fill_the_header_are_not_written():
    zero = np.zeros((), np.float32)
    # 17,000 names of 1,000 digits each
    arrays = {f"{i:01000}": zero for i in range(17_000)}

    with pytest.raises(SavedPolicyError, match=r"17000 arrays take \d+ bytes of a safe") as caught:
        saved_bytes(arrays)

    assert "header; at most 16" in str(caught.value)


def test_manifest_that_is_too_long_is_not_read(saved, refused):
    path = saved / "policy.json"
    path.write_bytes(path.read_bytes() + b" " * (4 * MEBIBYTE))

    message = refused(saved, r"policy\.json: is too large: it has")

    assert f"bytes; at most {4 * MEBIBYTE} are allowed" in message


def test_manifest_that_is_too_long_is_not_written(saved):
    low = np.random.default_rng(0).random(200_000, np.float32)  # each bound is written as text
    policy = build(obs_space=spaces.Box(low, low + 1), hiddens=[1])

    with pytest.raises(SavedPolicyError, match=r"config and spaces take \d+ bytes") as caught:
        policy.save(saved)

    assert f"as JSON; at most {4 * MEBIBYTE}" in str(caught.value)


def test_large_model_is_loaded(directory):
    policy = build(hiddens=[2_500, 2_500])
    policy.save(directory)

    loaded = loading.load(directory, catalog=make_catalog())

    loaded_weights = loaded.model.get_weights()
    for name, array in policy.model.get_weights().items():
        np.testing.assert_array_equal(loaded_weights[name], array)


def test_space_that_is_too_large_has_to_be_passed(saved, edit, refused):
    space = {
        "space": "box",
        "dtype": "float32",
        "shape": [MEBIBYTE, MEBIBYTE],
        "low": "0.0",
        "high": "1.0",
    }
    edit(saved, observation_space=space)

    message = refused(saved, "its observation_space cannot be read: ")

    assert f"it has {MEBIBYTE**2} entries" in message
    assert "pass it to" in message


# --- saving meanwhile -----------------------------------------------------------------------------


def test_load_starts_again_if_another_policy_is_saved(saved, same_policy, monkeypatch):
    later_policy = build(hiddens=[4])
    read_manifest = loading.read_manifest
    reads = []

    def read_manifest_and_save(source):
        """Save another policy after the first reading of `policy.json`."""
        manifest = read_manifest(source)
        if not reads:
            later_policy.save(saved)
        reads.append(source)
        return manifest

    monkeypatch.setattr(loading, "read_manifest", read_manifest_and_save)

    loaded = loading.load(saved, catalog=make_catalog())

    same_policy(loaded, later_policy, [np.zeros(3, np.float32)])
