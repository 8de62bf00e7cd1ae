"""`policy.json`: how config values are written, what is refused, and what its text looks like."""

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
WEIGHTS = f"weights-{DIGEST[:16]}.safetensors"
FILTER = f"filter-{DIGEST[:16]}.safetensors"


def manifest_of(config=None, parts=None, files=None):
    return Manifest(
        format="rlcatalog-policy",
        format_version=3,
        rlcatalog="0.1",
        framework="torch",
        config=config or {},
        parts={"trunk": "a/b", **(parts or {})},
        preprocessors={},
        action_dists={},
        versions={"a": "1"},
        observation_space=None,
        action_space=None,
        files={WEIGHTS: DIGEST} if files is None else files,
    )


@pytest.fixture
def read(tmp_path):
    """Decode the content of a manifest's file: `read(content)`."""

    def decoded(content):
        (tmp_path / "policy.json").write_bytes(content)
        file = RegularFile(tmp_path / "policy.json")
        try:
            return decode(file)
        finally:
            file.close()

    return decoded


def signed(**changes):
    """Return a manifest's content with changed keys and a checksum that fits, as a forger would
    write it.
    """
    data = {**json.loads(encode(manifest_of())), **changes}
    data = {name: value for name, value in data.items() if name != "checksum"}
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return json.dumps({**data, "checksum": hashlib.sha256(text.encode()).hexdigest()}).encode()


def test_manifest_is_indented_text_that_ends_with_a_line(read):
    content = encode(manifest_of({"b": 1, "a": [1.5, None, True, "x"]}))
    data = json.loads(content)
    assert content == json.dumps(data, indent=2).encode() + b"\n"
    assert list(data)[:3] == ["format", "format_version", "rlcatalog"]
    assert (data["format"], data["format_version"]) == ("rlcatalog-policy", 3)
    back = read(content)
    assert back.config == {"b": 1, "a": [1.5, None, True, "x"]}
    assert back.checksum == data["checksum"] == checksum_of(data)


def test_checksum_covers_everything_but_itself_in_any_order():
    data = {"b": [1, 2], "a": "\u00e9", "checksum": "x"}
    text = '{"a":"\\u00e9","b":[1,2]}'
    assert checksum_of(data) == hashlib.sha256(text.encode()).hexdigest()
    assert checksum_of({"a": "\u00e9", "b": [1, 2]}) == checksum_of(data)
    with pytest.raises(ValueError, match="not JSON compliant"):
        checksum_of({"a": math.nan})


CONFIG = {
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


def test_config_values_come_back(read):
    back = read(encode(manifest_of(CONFIG))).config
    assert back == CONFIG
    assert [type(value) for value in back["numbers"][:2]] == [int, float]
    assert math.isnan(read(encode(manifest_of({"x": math.nan}))).config["x"])
    plain = plain_config(CONFIG)
    assert plain["large"] == {"$float": "inf"}
    assert plain["table"] == {"a": {"b": {"$float": "-inf"}}, "c": "x"}
    assert plain["spaces"] == [
        {"$space": {"space": "discrete", "n": 3, "start": 0, "dtype": "int64"}}
    ]
    assert config_from_plain(json.loads(json.dumps(plain))) == CONFIG


class Outsider(Space):
    """A kind of space that no codec saves."""

    def __repr__(self):
        return "Outsider()"


def test_code_is_named_where_a_model_gets_it_and_refused_elsewhere(read):
    options = {"act": math.sqrt, "more": [Outsider, {"x": len}], "n": 3}
    config = read(encode(manifest_of({"custom_model_config": options}))).config[
        "custom_model_config"
    ]
    assert repr(config) == "{'act': sqrt, 'more': [Outsider, {'x': len}], 'n': 3}"
    assert config["act"] == "sqrt"
    for value in (math.sqrt, Outsider):
        with pytest.raises(
            SavedPolicyError,
            match=r"config key 'act' contains <.*cannot be saved by name\. Register",
        ):
            encode(manifest_of({"act": value}))
    with pytest.raises(
        SavedPolicyError, match=r"config key \"custom_model_config\['x'\]\" contains b'1', which"
    ):
        encode(manifest_of({"custom_model_config": {"x": b"1"}}))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": {1: 2}}, r"config key \"key\['a'\]\" has the key 1; JSON allows only strings"),
        (
            [{"$float": "inf"}],
            r"config key 'key\[0\]' has the key '\$float', which is reserved for infinity\. Rename",
        ),
        ({"$space": 1}, r"'key' has the key '\$space', which is reserved for a space"),
        (
            {"$code": 1, "b": 2},
            r"'key' has the key '\$code', which is reserved for the name of code",
        ),
        ((1, 2), r"config key 'key' contains \(1, 2\), which cannot be saved by name"),
        (np.float32(1), "config key 'key' contains .*cannot be saved by name"),
        (
            Outsider(),
            r"config key 'key' contains Outsider\(\), a space of a kind that no codec can save",
        ),
    ],
)
def test_what_json_would_change_is_refused_by_its_place(value, why):
    with pytest.raises(SavedPolicyError, match=why):
        encode(manifest_of({"key": value}))


def test_for_readers_other_values_become_text():
    config = {"cls": Outsider, "object": (1, 2), "n": 3, "list": [1.5], "function": math.sqrt}
    assert plain_config(config) == {
        "cls": "Outsider",
        "object": "(1, 2)",
        "n": 3,
        "list": [1.5],
        "function": "sqrt",
    }


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"$float": "1"}, r"'1' under '\$float' is not a number"),
        ({"$float": 1}, r"1 under '\$float' is not"),
        ({"$code": 3}, r"3 under '\$code' is not a name"),
        ({"$space": {"space": "other"}}, "unknown kind of space"),
    ],
)
def test_encoded_values_of_other_kinds_are_refused(value, why, read):
    with pytest.raises(ValueError, match=why):
        config_from_plain({"a": [value]})
    with pytest.raises(SavedPolicyError, match=rf"policy\.json: damaged: .*{why}"):
        read(signed(config={"a": value}))


def test_table_with_more_than_an_encoded_value_is_a_table():
    table = {"$float": "x", "b": 1}
    assert config_from_plain({"a": table, "b": {"$space": 1, "c": 2}}) == {
        "a": table,
        "b": {"$space": 1, "c": 2},
    }


# --- the file -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"[]", b'["format"]', b"3", b"null", b"{}", b'{"format": "other"}']
)
def test_what_rlcatalog_did_not_write_is_refused(read, content):
    with pytest.raises(
        SavedPolicyError,
        match=r"policy\.json: not written by rlcatalog \(it does not say format 'rl",
    ):
        read(content)


@pytest.mark.parametrize("content", [b'{"a": NaN}', b'{"a": Infinity}', b"", b"\xff", b"9" * 5000])
def test_what_is_no_strict_json_is_refused(read, content):
    with pytest.raises(SavedPolicyError, match=r"policy\.json: truncated or not JSON: "):
        read(content)


def test_version_2_is_read_with_its_defaults(read):
    listed = manifest_of({"fcnet_hiddens": [4]}, parts={"trunk": "rlcatalog-fcnet/fcnet"})
    listed.format_version = 2

    config = read(encode(listed)).config

    assert config == {"fcnet_hiddens": [4], **EARLIER_DEFAULTS[2]}
    assert config["scale_integers"] is False


@pytest.mark.parametrize("version", [1, 4, 2.0, True, "2", None])
def test_other_versions_are_refused(read, version):
    with pytest.raises(SavedPolicyError, match=r"versions 2 and 3\. It was written by rlcatalog 9"):
        read(signed(format_version=version, rlcatalog="9"))


def test_changed_manifest_is_refused(read):
    content = encode(manifest_of({"seed": 1}))
    assert read(content).config == {"seed": 1}
    with pytest.raises(SavedPolicyError, match="changed since it was saved"):
        read(content.replace(b'"seed": 1', b'"seed": 2'))
    data = json.loads(content)
    del data["framework"], data["files"]
    with pytest.raises(SavedPolicyError, match=r"incomplete; missing: \['framework', 'files'\]"):
        read(json.dumps(data).encode())
    for changes in (
        {"more": 1},
        {"files": {WEIGHTS: "AB" * 32}},
        {"files": {WEIGHTS: DIGEST[:-1]}},
    ):
        with pytest.raises(SavedPolicyError, match=r"policy\.json: damaged: "):
            read(signed(**changes))


def test_files_of_the_format_are_named(read):
    back = read(
        encode(manifest_of(parts={"filter": "f/g"}, files={WEIGHTS: DIGEST, FILTER: DIGEST}))
    )
    assert (back.file("weights"), back.file("filter")) == (WEIGHTS, FILTER)
    assert file_name("weights", DIGEST) == WEIGHTS
    back = read(encode(manifest_of()))
    assert (back.file("weights"), back.file("filter")) == (WEIGHTS, None)
    for parts, files, lacks in (
        ({}, {}, "weights-"),
        ({"filter": "f/g"}, {WEIGHTS: DIGEST}, "filter-"),
    ):
        with pytest.raises(
            SavedPolicyError, match=rf"incomplete; missing: \['{lacks}\.safetensors'\]"
        ):
            read(encode(manifest_of(parts=parts, files=files)))
    for name in (FILTER, "weights-0.safetensors", "a.bin"):
        with pytest.raises(SavedPolicyError, match=f"it names an unknown file, '{name}'"):
            read(encode(manifest_of(files={WEIGHTS: DIGEST, name: DIGEST})))


def test_manifest_may_have_4_mib():
    rest = len(encode(manifest_of({"text": ""})))
    assert len(encode(manifest_of({"text": "x" * ((1 << 22) - rest)}))) == 1 << 22
    with pytest.raises(
        SavedPolicyError, match="config and spaces take 4194305 bytes as JSON; at most 4194304"
    ):
        encode(manifest_of({"text": "x" * ((1 << 22) - rest + 1)}))
