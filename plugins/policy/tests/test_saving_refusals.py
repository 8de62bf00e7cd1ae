"""Saved policies: refused by name when they are truncated, foreign or cannot be restored here."""

from __future__ import annotations

import hashlib
import json
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


def catalog_of(*more, names=("fcnet", "categorical", "gaussian", "preprocessors")):
    return Catalog([*(point for point in scan() if point.name in names), *more], environ={})


@pytest.fixture
def written(directory):
    obs_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    policy = rlcatalog.build(
        obs_space,
        spaces.Discrete(3, start=5),
        {"fcnet_hiddens": [8]},
        "torch",
        catalog=catalog_of(),
    )
    policy.save(directory)
    return directory


def test_an_empty_or_missing_directory(tmp_path, refused):
    refused(tmp_path, r"not a saved policy; it has no policy\.json")
    refused(tmp_path / "nowhere", "not a saved policy")


@pytest.mark.parametrize("keep", [0, 1, 0.5, 0.99])
def test_a_truncated_manifest(written, keep, refused):
    path = written / "policy.json"
    data = path.read_bytes()
    path.write_bytes(data[: keep if isinstance(keep, int) else int(len(data) * keep)])
    refused(written, r"policy\.json: truncated or not JSON")


@pytest.mark.parametrize(
    "text", ["[]", "3", "null", "{}", '{"format": "other", "format_version": 1}']
)
def test_foreign_json(written, text, refused):
    (written / "policy.json").write_text(text)
    refused(written, r"policy\.json: not written by rlcatalog")


def test_a_manifest_that_is_no_text(written, refused):
    (written / "policy.json").write_bytes(b"\xff\xfe\x00\x80")
    refused(written, r"policy\.json: truncated or not JSON")


@pytest.mark.parametrize("version", [1, 4, 2.0, "2", True, None])
def test_another_format_version(written, edit, refused, version):
    edit(written, format_version=version, rlcatalog="9.9")
    refused(
        written,
        rf"format version {version!r}; this rlcatalog \([\d.]+\) reads versions 2 and 3. It was"
        r" written by rlcatalog 9\.9",
    )


NEEDED = [
    "framework",
    "config",
    "parts",
    "preprocessors",
    "versions",
    "observation_space",
    "action_space",
    "files",
]


@pytest.mark.parametrize("key", NEEDED)
def test_a_manifest_without_a_key_names_it(written, key, refused):
    path = written / "policy.json"
    manifest = json.loads(path.read_text())
    del manifest[key]
    path.write_text(json.dumps(manifest))
    refused(written, rf"policy\.json: incomplete; missing: \['{key}'\]")


@pytest.mark.grid
@pytest.mark.parametrize("key", NEEDED)
@pytest.mark.parametrize("value", [None, 3, [], ["x"], "weights.safetensors", {"x": 1}], ids=repr)
def test_a_manifest_with_nonsense_in_it_is_refused(written, key, value, edit):
    edit(written, **{key: value})
    with pytest.raises(CatalogError) as caught:
        loading.load(written, catalog=catalog_of())
    assert str(written) in str(caught.value)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_truncated_weights(written, keep, arrays, refused):
    path = arrays(written)
    path.write_bytes(path.read_bytes()[:keep])
    refused(written, r"weights-\w+\.safetensors: .*truncated or changed since it was saved")


def test_changed_weights(written, arrays, refused):
    path = arrays(written)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    refused(written, r"weights-\w+\.safetensors: truncated or changed")


def test_missing_weights(written, arrays, refused):
    arrays(written).unlink()
    refused(written, r"weights-\w+\.safetensors: cannot be read")


def test_weights_that_are_no_safetensors(written, edit, refused):
    import pickle

    data = pickle.dumps({"hidden": np.zeros(3)})
    digest = hashlib.sha256(data).hexdigest()
    (written / f"weights-{digest[:16]}.safetensors").write_bytes(data)
    edit(written, files={f"weights-{digest[:16]}.safetensors": digest})
    refused(written, r"weights-\w+\.safetensors: not a safetensors file")


def test_weights_of_another_model(written, edit, refused):
    edit(written, config={"fcnet_hiddens": [9]})
    said = refused(
        written,
        r"weights-\w+\.safetensors: FullyConnectedNetwork: these weights belong to a differ",
    )
    assert "hidden.layers.0.weight: (8, 3) instead of (9, 3)" in said


@pytest.mark.parametrize(
    "name", ["evil.bin", "weights.pkl", "../weights.safetensors", "/weights.safetensors"]
)
def test_a_file_the_format_does_not_know(written, name, arrays, edit, refused):
    (written.parent / "weights.safetensors").write_bytes(arrays(written).read_bytes())
    manifest = edit(written)
    (digest,) = manifest["files"].values()
    edit(written, files={**manifest["files"], name: digest})
    refused(written, "unknown file")


def test_a_missing_plugin_is_named_with_its_version(written):
    with pytest.raises(MissingPluginError) as caught:
        loading.load(written, catalog=catalog_of(names=("categorical", "preprocessors")))
    said = str(caught.value)
    version = next(r.version for r in catalog_of().plugins if r.name == "fcnet")
    assert said.startswith(f"{written}: this policy cannot be restored here.")
    assert said.endswith(install_hint("rlcatalog-fcnet"))
    assert f"rlcatalog-fcnet {version}" in said


def test_a_config_of_another_time_is_refused_by_name(written, edit, refused):
    edit(written, config={"fcnet_hidden": [8]})
    refused(written, "Unknown model config key 'fcnet_hidden'", ConfigError)


# --- what the files hold, before anything is built ------------------------------------------------


@pytest.fixture
def rewrite(arrays, edit):
    """Put other arrays into a saved policy, named and signed as a save would:
    `rewrite(directory, change)`.
    """

    def put(directory, change, role="weights"):
        path = arrays(directory, role)
        found = load_file(path)
        change(found)
        data = to_bytes(found)
        digest = hashlib.sha256(data).hexdigest()
        files = {**edit(directory)["files"], f"{role}-{digest[:16]}.safetensors": digest}
        del files[path.name]
        path.unlink()
        (directory / f"{role}-{digest[:16]}.safetensors").write_bytes(data)
        edit(directory, files=files)

    return put


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
def test_weights_of_another_dtype(written, rewrite, refused, dtype):
    name = "hidden.layers.0.weight"
    rewrite(written, lambda found: found.update({name: found[name].astype(dtype)}))
    said = refused(written, "weights with a different dtype than the model's")
    assert f"{name}: {dtype} instead of float32" in said


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_warned_of(written, rewrite, value):
    rewrite(written, lambda found: found["hidden.layers.0.bias"].__setitem__(0, value))
    with pytest.warns(
        SavedPolicyWarning, match=r"some values are not finite, in hidden\.layers\.0\.bias\."
    ):
        policy = loading.load(written, catalog=catalog_of())
    assert str(policy.model.get_weights()["hidden.layers.0.bias"][0]) == str(np.float32(value))


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    "config",
    [
        {"fcnet_hiddens": [20_000] * 4},
        {"post_fcnet_hiddens": [20_000] * 4},
        {"fcnet_hiddens": [1] * 9_999},
    ],
    ids=["wide", "wide behind", "many"],
)
def test_a_config_that_asks_for_more_than_the_file_holds(
    written, edit, refused, monkeypatch, config, framework
):
    edit(written, config=config, framework=framework)
    monkeypatch.setattr(loading, "Policy", None)  # nothing is built
    refused(
        written,
        r"contains \d+ weights in \d+ arrays, but the config describes a model of \d+ or more in"
        r" \d+ layers",
    )


def entry(shape, dtype="F32", offsets="[0, 0]"):
    return f'{{"w": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": {offsets}}}}}'


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (entry(f"[{','.join(['9' * 4_000] * 250)}]"), "'w' in its header: Expected `int`"),
        (entry([0, 10**30]), "'w' in its header: Expected `int`"),
        (entry([0, 2**62]), "larger than any array"),
        (entry([0] * 100), "length <= 32"),
        (entry([1.0], offsets="[0, 4]"), "Expected `int`, got `float`"),
        (entry([], dtype="F8", offsets="[0, 4]"), "dtype 'F8' is not among BOOL"),
        (entry([], offsets="[4, 8]"), "its header describes 4 bytes, but 0 follow it"),
        (entry("[[1]]"), "'w' in its header: Expected `int`, got `array`"),
        # Deeper than any Python lets a decoder recurse; Python 3.13 decodes 9,000 levels.
        (entry("[" * 1_000_000 + "]" * 1_000_000), "its header cannot be read"),
        (" " * (1 << 25), r"its header would have 33554432 of \d+ bytes; at most 16777216"),
    ],
    ids=[
        "long numbers",
        "a long number",
        "empty and large",
        "many axes",
        "a float",
        "dtype",
        "gap",
        "nested",
        "deep",
        "long",
    ],
)
def test_a_crafted_header_is_refused_at_once(written, arrays, refused, header, why):
    path = arrays(written, "weights")
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode())
    begun = time.perf_counter()
    refused(written, why)
    assert time.perf_counter() - begun < 5  # the long numbers took 22 s to be multiplied


def test_arrays_that_share_bytes_are_refused(written, arrays, edit, refused):
    # Names, shapes, dtypes and the length are the model's; the last array is moved onto the first.
    path = arrays(written, "weights")
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    last = max(header.values(), key=lambda entry: entry["data_offsets"][1])
    last["data_offsets"] = [0, last["data_offsets"][1] - last["data_offsets"][0]]
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + content[8 + length :]
    name = f"weights-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
    files = {**edit(written)["files"], name: hashlib.sha256(data).hexdigest()}
    del files[path.name]
    path.rename(written / name).write_bytes(data)
    edit(written, files=files)
    refused(written, "not a safetensors file, truncated or changed since it was saved: .*[oO]ffset")


def test_more_arrays_than_a_header_may_name_are_not_written():
    zero = np.zeros((), np.float32)
    with pytest.raises(
        SavedPolicyError, match=r"17000 arrays take \d+ bytes of a safetensors header; at most 16"
    ):
        saved_bytes({f"{i:01000}": zero for i in range(17_000)})


def test_a_long_manifest_is_neither_read_nor_written(written, refused):
    path = written / "policy.json"
    path.write_bytes(path.read_bytes() + b" " * (1 << 22))
    refused(written, r"policy\.json: is too large: it has \d+ bytes; at most 4194304 are allowed")
    low = np.random.default_rng(0).random(200_000, np.float32)
    policy = rlcatalog.build(
        spaces.Box(low, low + 1),
        spaces.Discrete(2),
        {"fcnet_hiddens": [1]},
        "torch",
        catalog=catalog_of(),
    )
    with pytest.raises(
        SavedPolicyError, match=r"config and spaces take \d+ bytes as JSON; at most 4194304"
    ):
        policy.save(written)


def test_a_large_model_comes_back(directory):
    obs_space = spaces.Box(-1, 1, (3,), np.float32)
    policy = rlcatalog.build(
        obs_space,
        spaces.Discrete(3),
        {"fcnet_hiddens": [2_500, 2_500]},
        "torch",
        catalog=catalog_of(),
    )
    policy.save(directory)
    back = loading.load(directory, catalog=catalog_of())
    for name, array in policy.model.get_weights().items():
        np.testing.assert_array_equal(back.model.get_weights()[name], array)


def test_a_space_too_large_to_be_made_from_a_file_is_given(written, edit, refused):
    large = {
        "space": "box",
        "dtype": "float32",
        "shape": [1 << 20, 1 << 20],
        "low": "0.0",
        "high": "1.0",
    }
    edit(written, observation_space=large)
    refused(
        written, r"its observation_space cannot be read: it has 1099511627776 entries.*pass it to"
    )


def test_a_reader_begins_anew_where_a_writer_was_faster(written, same_policy, monkeypatch):
    """Between reading `policy.json` and opening what it names, another policy is saved."""
    obs_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    later = rlcatalog.build(
        obs_space,
        spaces.Discrete(3, start=5),
        {"fcnet_hiddens": [4]},
        "torch",
        catalog=catalog_of(),
    )
    real, saved = loading.read_manifest, []

    def slow(source):
        manifest = real(source)
        if not saved:
            saved.append(later.save(written))
        return manifest

    monkeypatch.setattr(loading, "read_manifest", slow)
    same_policy(loading.load(written, catalog=catalog_of()), later, [np.zeros(3, np.float32)])
