"""`policy.json`: the text that is written, how config values are written, and what is rejected."""

from __future__ import annotations

import hashlib
import json
import math

import numpy as np
import pytest
from gymnasium import Space, spaces

from rlcatalog.errors import SavedPolicyError
from rlcatalog_policy import Manifest, RegularFile, checksum_of, config_from_plain, plain_config
from rlcatalog_policy.manifest import EARLIER_DEFAULTS, decode, encode, file_name

DIGEST = "ab" * 32
WEIGHTS = "weights-abababababababab.safetensors"
FILTER = "filter-abababababababab.safetensors"


def make_manifest(*, config=None, parts=None, files=None, version=3):
    """Return a valid manifest with these fields changed."""
    return Manifest(
        format="rlcatalog-policy",
        format_version=version,
        kernel_version="0.1",
        framework="torch",
        config=config or {},
        parts=parts or {"trunk": "a/b"},
        preprocessors={},
        action_dists={},
        versions={"a": "1"},
        observation_space=None,
        action_space=None,
        files={WEIGHTS: DIGEST} if files is None else files,
    )


def forge_manifest(**fields):
    """Return the content of a manifest with changed or added fields, and a checksum that fits."""
    data = {**json.loads(encode(make_manifest())), **fields}
    del data["checksum"]
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    data["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps(data).encode()


@pytest.fixture
def read(tmp_path):
    """Read the content of a manifest from a file: `read(content)`."""

    def read_from_file(content):
        path = tmp_path / "policy.json"
        path.write_bytes(content)
        file = RegularFile(path)
        try:
            return decode(file)
        finally:
            file.close()

    return read_from_file


# --- the text -------------------------------------------------------------------------------------


def test_manifest_is_indented_json_with_a_newline_at_its_end():
    content = encode(make_manifest(config={"b": 1, "a": [1.5, None, True, "x"]}))

    assert content == json.dumps(json.loads(content), indent=2).encode() + b"\n"


def test_manifest_begins_with_format_and_versions():
    data = json.loads(encode(make_manifest()))

    assert list(data)[:3] == ["format", "format_version", "rlcatalog"]
    assert data["format"] == "rlcatalog-policy"
    assert data["format_version"] == 3


def test_manifest_contains_its_checksum(read):
    content = encode(make_manifest(config={"a": 1}))
    data = json.loads(content)

    assert data["checksum"] == checksum_of(data)
    assert read(content).checksum == data["checksum"]


def test_checksum_is_that_of_sorted_ascii_json_without_itself():
    data = {"b": [1, 2], "a": "é", "checksum": "x"}

    text = r'{"a":"\u00e9","b":[1,2]}'
    assert checksum_of(data) == hashlib.sha256(text.encode()).hexdigest()


def test_checksum_of_nan_is_an_error():
    with pytest.raises(ValueError, match="not JSON compliant"):
        checksum_of({"a": math.nan})


FOUR_MIB = 4 * 1024 * 1024


def test_manifest_of_4_mib_is_written():
    size_without_text = len(encode(make_manifest(config={"text": ""})))
    text = "x" * (FOUR_MIB - size_without_text)

    assert len(encode(make_manifest(config={"text": text}))) == FOUR_MIB


def test_manifest_of_more_than_4_mib_is_an_error():
    size_without_text = len(encode(make_manifest(config={"text": ""})))
    text = "x" * (FOUR_MIB - size_without_text + 1)

    with pytest.raises(SavedPolicyError, match="4194305 bytes as JSON; at most 4194304") as caught:
        encode(make_manifest(config={"text": text}))

    assert "config and spaces take 4194305 bytes" in str(caught.value)


# --- config values --------------------------------------------------------------------------------

CONFIG = {
    "ordinary": ["b", 1, 1.5, None, True],
    "large": math.inf,
    "small": -math.inf,
    "numbers": [1, 2.5, [math.inf]],
    "table": {"a": {"b": -math.inf}, "c": "x"},
    "flag": False,
    "nothing": None,
    "text": "inf",
    "space": spaces.Box(-np.inf, 1, (2,)),
    "spaces": [spaces.Discrete(3)],
}


def test_config_values_come_back_from_the_file(read):
    config = read(encode(make_manifest(config=CONFIG))).config

    assert config == CONFIG
    assert type(config["numbers"][0]) is int
    assert type(config["numbers"][1]) is float


def test_nan_comes_back_from_the_file(read):
    config = read(encode(make_manifest(config={"x": math.nan}))).config

    assert math.isnan(config["x"])


def test_infinity_is_written_under_a_reserved_key():
    plain = plain_config({"large": math.inf, "table": {"a": {"b": -math.inf}, "c": "x"}})

    assert plain["large"] == {"$float": "inf"}
    assert plain["table"] == {"a": {"b": {"$float": "-inf"}}, "c": "x"}


def test_space_is_written_under_a_reserved_key():
    discrete = {"space": "discrete", "n": 3, "start": 0, "dtype": "int64"}

    assert plain_config({"spaces": [spaces.Discrete(3)]}) == {"spaces": [{"$space": discrete}]}


def test_plain_config_writes_other_values_as_text():
    config = {"cls": Space, "object": (1, 2), "n": 3, "list": [1.5], "function": math.sqrt}

    assert plain_config(config) == {
        "cls": "Space",
        "object": "(1, 2)",
        "n": 3,
        "list": [1.5],
        "function": "sqrt",
    }


def test_code_in_the_custom_model_config_is_saved_by_name(read):
    options = {"act": math.sqrt, "more": [Space, {"x": len}], "n": 3}

    config = read(encode(make_manifest(config={"custom_model_config": options}))).config

    options_read = config["custom_model_config"]
    assert repr(options_read) == "{'act': sqrt, 'more': [Space, {'x': len}], 'n': 3}"
    assert options_read["act"] == "sqrt"


@pytest.mark.parametrize("code", [math.sqrt, Space], ids=["function", "class"])
def test_code_elsewhere_in_the_config_is_an_error(code):
    with pytest.raises(SavedPolicyError, match=r"cannot be saved by name\. Register") as caught:
        encode(make_manifest(config={"act": code}))

    assert "config key 'act' contains <" in str(caught.value)


class UnknownSpace(Space):
    """A kind of space that no codec can save."""

    def __repr__(self):
        return "UnknownSpace()"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param(
            {"a": {1: 2}},
            """config key "key['a']" has the key 1; JSON allows only strings""",
            id="number-as-key",
        ),
        pytest.param(
            [{"$float": "inf"}],
            "config key 'key[0]' has the key '$float', which is reserved for infinity. Rename",
            id="reserved-for-infinity",
        ),
        pytest.param(
            {"$space": 1},
            "'key' has the key '$space', which is reserved for a space",
            id="reserved-for-spaces",
        ),
        pytest.param(
            {"$code": 1, "b": 2},
            "'key' has the key '$code', which is reserved for the name of code",
            id="reserved-for-code",
        ),
        pytest.param(
            (1, 2), "config key 'key' contains (1, 2), which cannot be saved by name", id="tuple"
        ),
        pytest.param(
            UnknownSpace(),
            "config key 'key' contains UnknownSpace(), a space of a kind that no codec can save",
            id="unknown-space",
        ),
    ],
)
def test_config_value_that_json_cannot_represent_is_an_error(value, message):
    with pytest.raises(SavedPolicyError) as caught:
        encode(make_manifest(config={"key": value}))

    assert message in str(caught.value)


def test_numpy_number_in_the_config_is_an_error():
    with pytest.raises(SavedPolicyError, match="cannot be saved by name") as caught:
        encode(make_manifest(config={"key": np.float32(1)}))

    assert "config key 'key' contains " in str(caught.value)


def test_error_for_an_option_of_the_model_names_its_place():
    with pytest.raises(SavedPolicyError, match="contains b'1', which") as caught:
        encode(make_manifest(config={"custom_model_config": {"x": b"1"}}))

    assert """config key "custom_model_config['x']" contains""" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ({"$float": "1"}, r"'1' under '\$float' is not a number"),
        ({"$float": 1}, r"1 under '\$float' is not"),
        ({"$code": 3}, r"3 under '\$code' is not a name"),
        ({"$space": {"space": "other"}}, "unknown kind of space"),
    ],
    ids=["text-as-float", "number-as-float", "number-as-code", "unknown-space"],
)
def test_file_with_an_invalid_value_is_damaged(value, match, read):
    with pytest.raises(SavedPolicyError, match=rf"policy\.json: damaged: .*{match}"):
        read(forge_manifest(config={"a": value}))


@pytest.mark.parametrize("table", [{"$float": "x", "b": 1}, {"$space": 1, "c": 2}], ids=str)
def test_table_with_another_key_beside_a_reserved_one_is_a_table(table):
    assert config_from_plain({"a": table}) == {"a": table}


# --- reading the file -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [b"[]", b'["format"]', b"3", b"null", b"{}", b'{"format": "other"}'],
    ids=bytes.decode,
)
def test_file_of_another_program_is_rejected(read, content):
    with pytest.raises(SavedPolicyError, match=r"policy\.json: not written by rlcatalog"):
        read(content)


@pytest.mark.parametrize(
    "content",
    [b'{"a": NaN}', b'{"a": Infinity}', b"", b"\xff", b"9" * 5000],
    ids=["nan", "infinity", "empty", "not-utf8", "number-too-long"],
)
def test_file_that_is_not_strict_json_is_rejected(read, content):
    with pytest.raises(SavedPolicyError, match=r"policy\.json: truncated or not JSON: "):
        read(content)


def test_version_2_is_read_with_its_defaults(read):
    manifest = make_manifest(
        version=2, config={"fcnet_hiddens": [4]}, parts={"trunk": "rlcatalog-fcnet/fcnet"}
    )

    config = read(encode(manifest)).config

    assert config == {"fcnet_hiddens": [4], **EARLIER_DEFAULTS[2]}
    assert config["scale_integers"] is False


def test_affine_of_version_2_scales_to_all_finite_bounds(read):
    manifest = make_manifest(version=2, config={"action_bounds": "affine"})

    config = read(encode(manifest)).config

    assert config["action_bounds"] == "affine_all"  # what "affine" meant in version 2


@pytest.mark.parametrize("version", [1, 4, 2.0, True, "2", None], ids=repr)
def test_other_versions_are_rejected(read, version):
    with pytest.raises(SavedPolicyError, match=r"versions 2 and 3\. It was written by rl"):
        read(forge_manifest(format_version=version, rlcatalog="9"))


def test_changed_file_is_rejected(read):
    content = encode(make_manifest(config={"seed": 1}))

    with pytest.raises(SavedPolicyError, match="changed since it was saved"):
        read(content.replace(b'"seed": 1', b'"seed": 2'))


def test_file_with_missing_keys_is_rejected(read):
    data = json.loads(encode(make_manifest()))
    del data["framework"]
    del data["files"]

    with pytest.raises(SavedPolicyError, match=r"missing: \['framework', 'files'\]"):
        read(json.dumps(data).encode())


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"more": 1}, id="unknown-key"),
        pytest.param({"files": {WEIGHTS: "AB" * 32}}, id="uppercase-digest"),
        pytest.param({"files": {WEIGHTS: DIGEST[:-1]}}, id="short-digest"),
    ],
)
def test_file_with_an_invalid_field_is_damaged(read, fields):
    with pytest.raises(SavedPolicyError, match=r"policy\.json: damaged: "):
        read(forge_manifest(**fields))


# --- names of files -------------------------------------------------------------------------------


def test_file_name_contains_the_beginning_of_the_digest():
    assert file_name("weights", "0123456789abcdef" * 4) == "weights-0123456789abcdef.safetensors"


def test_manifest_names_weights_and_filter(read):
    manifest = make_manifest(
        parts={"trunk": "a/b", "filter": "f/g"}, files={WEIGHTS: DIGEST, FILTER: DIGEST}
    )

    manifest = read(encode(manifest))

    assert manifest.file("weights") == WEIGHTS
    assert manifest.file("filter") == FILTER


def test_manifest_without_filter_names_weights_alone(read):
    manifest = read(encode(make_manifest()))

    assert manifest.file("weights") == WEIGHTS
    assert manifest.file("filter") is None


@pytest.mark.parametrize(
    ("manifest", "missing"),
    [
        pytest.param(make_manifest(files={}), "weights-.safetensors", id="weights"),
        pytest.param(
            make_manifest(parts={"trunk": "a/b", "filter": "f/g"}, files={WEIGHTS: DIGEST}),
            "filter-.safetensors",
            id="filter",
        ),
    ],
)
def test_manifest_that_does_not_name_a_needed_file_is_rejected(read, manifest, missing):
    with pytest.raises(SavedPolicyError) as caught:
        read(encode(manifest))

    assert f"incomplete; missing: ['{missing}']" in str(caught.value)


@pytest.mark.parametrize("name", [FILTER, "weights-0.safetensors", "a.bin"])
def test_manifest_that_names_an_unknown_file_is_rejected(read, name):
    with pytest.raises(SavedPolicyError, match=f"it names an unknown file, '{name}'"):
        read(encode(make_manifest(files={WEIGHTS: DIGEST, name: DIGEST})))
