"""Loading rejects saved policies that are truncated, changed, crafted or need something that is
not installed.
"""

from __future__ import annotations

import pickle
import re
import time

import numpy as np
import pytest
from crafted_saves import put_arrays
from gymnasium import spaces
from safetensors.numpy import load_file, save as to_bytes
from small_catalogs import make_catalog

import rlcatalog
from rlcatalog.errors import (
    CatalogError,
    MissingPluginError,
    SavedPolicyWarning,
)
from rlcatalog.plugins import install_hint
from rlcatalog_policy import loading

THREE_FEATURES = spaces.Box(-np.inf, np.inf, (3,), np.float32)
THREE_ACTIONS = spaces.Discrete(3, start=5)
MEBIBYTE = 1 << 20


def build(*, obs_space=THREE_FEATURES, hiddens=(8,)):
    config = {"fcnet_hiddens": list(hiddens)}
    return rlcatalog.build(obs_space, THREE_ACTIONS, config, "torch", catalog=make_catalog())


@pytest.fixture
def saved(directory):
    """The directory of a saved policy."""
    build().save(directory)
    return directory


# --- the manifest ---------------------------------------------------------------------------------


def test_missing_directory_is_not_a_saved_policy(tmp_path, load_error):
    load_error(tmp_path / "nowhere", "not a saved policy")


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


@pytest.mark.grid
@pytest.mark.parametrize("key", NEEDED_KEYS)
@pytest.mark.parametrize("value", [None, 3, [], ["x"], "weights.safetensors", {"x": 1}], ids=repr)
def test_manifest_with_an_invalid_value_is_rejected(saved, key, value, edit_manifest):
    edit_manifest(saved, **{key: value})

    with pytest.raises(CatalogError) as caught:
        loading.load(saved, catalog=make_catalog())

    assert str(saved) in str(caught.value)


def test_missing_plugin_error_says_how_the_policy_was_saved(saved):
    [version] = [record.version for record in make_catalog().plugins if record.name == "fcnet"]
    catalog_without_fcnet = make_catalog(plugins=["categorical", "preprocessors"])

    with pytest.raises(MissingPluginError, match=": this policy cannot be restored") as caught:
        loading.load(saved, catalog=catalog_without_fcnet)

    message = str(caught.value)
    assert message.startswith(str(saved))
    assert "(It was saved for framework='torch', with " in message
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
def test_truncated_weights_file_is_rejected(saved, keep, arrays_file, load_error):
    path = arrays_file(saved)
    path.write_bytes(path.read_bytes()[:keep])

    message = load_error(saved, "truncated or changed since it was saved")

    assert path.name in message


def test_weights_file_that_is_a_pickle_is_rejected(saved, load_error):
    put_arrays(saved, pickle.dumps({"hidden": np.zeros(3)}))

    load_error(saved, r"weights-\w+\.safetensors: not a safe")


def test_weights_of_another_model_are_rejected(saved, edit_manifest, load_error):
    edit_manifest(saved, config={"fcnet_hiddens": [9]})

    message = load_error(saved, "these weights belong to a differ")

    assert ".safetensors: FullyConnectedNetwork: " in message
    assert "hidden.layers.0.weight: (8, 3) instead of (9, 3)" in message


# --- the arrays, before a model is built ----------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
def test_weights_of_another_dtype_are_rejected(saved, arrays_file, load_error, dtype):
    weights = load_file(arrays_file(saved))
    weights["hidden.layers.0.weight"] = weights["hidden.layers.0.weight"].astype(dtype)
    put_arrays(saved, to_bytes(weights))

    message = load_error(saved, "weights with a different dtype")

    assert f"hidden.layers.0.weight: {dtype} instead of float32" in message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
def test_weights_that_are_not_finite_warn(directory, value):
    policy = build()
    weights = policy.model.get_weights()
    weights["hidden.layers.0.bias"][0] = value
    weights["hidden.layers.0.weight"][0, 0] = value
    policy.model.set_weights(weights)
    policy.save(directory)

    names = r"hidden\.layers\.0\.bias, hidden\.layers\.0\.weight\."
    with pytest.warns(SavedPolicyWarning, match=f"values are not finite, in {names}"):
        loaded = loading.load(directory, catalog=make_catalog())

    np.testing.assert_array_equal(loaded.model.get_weights()["hidden.layers.0.bias"][0], value)


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
    saved, edit_manifest, load_error, monkeypatch, config, framework
):
    edit_manifest(saved, config=config, framework=framework)
    monkeypatch.setattr(loading, "Policy", None)  # building a policy would fail

    message = load_error(saved, r"contains \d+ weights in \d+ arrays, but")

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
def test_crafted_header_is_rejected_at_once(saved, arrays_file, load_error, header, cause):
    arrays_file(saved).write_bytes(len(header).to_bytes(8, "little") + header.encode())
    start = time.perf_counter()

    load_error(saved, cause)

    assert time.perf_counter() - start < 5  # multiplying the long axes would take 22 seconds


# --- sizes ----------------------------------------------------------------------------------------


def test_manifest_that_is_too_long_is_not_read(saved, load_error):
    path = saved / "policy.json"
    path.write_bytes(path.read_bytes() + b" " * (4 * MEBIBYTE))

    message = load_error(saved, r"policy\.json: is too large: it has")

    assert f"bytes; at most {4 * MEBIBYTE} are allowed" in message


def test_large_model_is_loaded(directory):
    policy = build(hiddens=[2_500, 2_500])
    policy.save(directory)

    loaded = loading.load(directory, catalog=make_catalog())

    loaded_weights = loaded.model.get_weights()
    for name, array in policy.model.get_weights().items():
        np.testing.assert_array_equal(loaded_weights[name], array)


def test_space_that_is_too_large_has_to_be_passed(saved, edit_manifest, load_error):
    space = {
        "space": "box",
        "dtype": "float32",
        "shape": [1_000_000, 1_000_000],
        "low": "0.0",
        "high": "1.0",
    }
    edit_manifest(saved, observation_space=space)

    message = load_error(saved, "its observation_space cannot be read: ")

    assert "it has 1000000000000 entries" in message
    assert "pass it to" in message


# --- saving meanwhile -----------------------------------------------------------------------------


def test_load_starts_again_if_another_policy_is_saved(saved, assert_same_policy, monkeypatch):
    later_policy = build(hiddens=[4])
    real_read_manifest = loading.read_manifest
    reads = []

    def read_manifest_and_save_after_the_first(source):
        manifest = real_read_manifest(source)
        if not reads:
            later_policy.save(saved)
        reads.append(source)
        return manifest

    monkeypatch.setattr(loading, "read_manifest", read_manifest_and_save_after_the_first)

    loaded = loading.load(saved, catalog=make_catalog())

    assert_same_policy(loaded, later_policy, [np.zeros(3, np.float32)])
