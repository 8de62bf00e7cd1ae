"""Attacks on exported policies: crafted interfaces with a right checksum, and damaged files of each
format.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
import time

import onnx
import pytest

pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")

from exported_files import TRIED, interface_of, relabelled

import rlcatalog
from rlcatalog.errors import CatalogError, SavedPolicyError

pytestmark = [
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning"),
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.SavedPolicyWarning"),
]

GONE = object()
VALUES = [
    GONE,
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    7,
    1.5,
    1e308,
    1 << 40,
    1 << 63,
    10**400,
    "",
    "a",
    "obs",
    "../../x",
    "os:system",
    "rlcatalog-fcnet/fcnet",
    "int64",
    "float16",
    "complex64",
    "object",
    "é" * 9,
    "x" * 100_000,
    [],
    [0],
    [-1],
    [1] * 40,
    [1 << 40],
    [1, 2],
    ["a"],
    [[]],
    {},
    {"a": 1},
    {"kind": "box"},
    {"space": "discrete", "n": 1 << 62, "start": 0},
]
FORMATS = ["policy.onnx", "policy.pt2", "policy-savedmodel"]


@pytest.fixture
def files(exported):
    return exported


# --- crafted interfaces ---------------------------------------------------------------------------


def places(data, before=()):
    """Yield the way to each value in nested data."""
    entries = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    for key, value in entries:
        yield (*before, key)
        yield from places(value, (*before, key))


def changed(data, place, value):
    data = copy.deepcopy(data)
    home = data
    for key in place[:-1]:
        home = home[key]
    if value is GONE:
        del home[place[-1]]
    else:
        home[place[-1]] = value
    return data


def crafted(interface, count, seed):
    """Yield names and texts of crafted interfaces: single values changed, two of a place swapped,
    texts cut.
    """
    rng = random.Random(seed)
    everywhere = list(places(interface))
    cases = [(place, value) for place in everywhere for value in VALUES]
    for place, value in rng.sample(cases, count * 4 // 5):
        yield f"{place} = {str(value)[:40]!r}", json.dumps(changed(interface, place, value))
    for _ in range(count - count * 4 // 5):
        one, other = rng.sample(everywhere, 2)
        values = []
        for place in (one, other):
            value = interface
            for key in place:
                value = value[key]
            values.append(value)
        try:
            text = json.dumps(changed(changed(interface, one, values[1]), other, values[0]))
        except (LookupError, TypeError):  # one lies within the other
            text = json.dumps(interface)[: rng.randrange(2000)]
        yield f"{one} and {other} swapped", text


def attack_interfaces(source, folder, count, seed):
    """Return what is wrong after loading crafted interfaces and acting with what loads: raw errors,
    slow ones.
    """
    model, wrong = onnx.load_model(source), []
    interface = interface_of(model)
    for name, text in crafted(interface, count, seed):
        path = relabelled(onnx.load_model(source), folder / "policy.onnx", text)
        begun = time.perf_counter()
        try:
            rlcatalog.Actor(path, seed=0).act(TRIED)
        except CatalogError:
            pass
        except BaseException as error:
            wrong.append((name, f"{type(error).__name__}: {error}"[:200]))
        if (took := time.perf_counter() - begun) > 10:
            wrong.append((name, f"took {took:.1f} s"))
        if [file.name for file in folder.iterdir()] != ["policy.onnx"]:
            wrong.append((name, "wrote a file"))
    return wrong


def test_some_crafted_interfaces(files, tmp_path):
    assert attack_interfaces(files["policy.onnx"], tmp_path, 4, seed=0) == []


@pytest.mark.attack
def test_crafted_interfaces(files, tmp_path):
    assert attack_interfaces(files["policy.onnx"], tmp_path, 2000, seed=1) == []


# --- damaged files --------------------------------------------------------------------------------


def damaged(content, rng):
    """Return other content than this: bits flipped, cut, blanked, swapped, said twice or put in."""
    while True:
        data = bytearray(content)
        at = rng.randrange(len(data))
        match rng.choice(
            ["flip", "flip", "flips", "cut", "blank", "swap", "twice", "more", "version"]
        ):
            case "flip":
                data[at] ^= 1 << rng.randrange(8)
            case "flips":
                for _ in range(20):
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            case "cut":
                del data[at:]
            case "blank":
                data[at : at + 16] = bytes(len(data[at : at + 16]))
            case "swap":
                data[at : at + 64], data[:64] = data[:64], data[at : at + 64]
            case "twice":
                data += data[at:]
            case "more":
                data[at:at] = rng.randbytes(8)
            case "version":
                data = data.replace(b'"format_version":2', b'"format_version":1')
        if data != content:
            return bytes(data)


def damage(source, target, rng):
    """Write a damaged copy of a file or folder."""
    if source.is_file():
        target.write_bytes(damaged(source.read_bytes(), rng))
        return
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    inside = sorted(file for file in target.rglob("*") if file.is_file())
    one, other = rng.sample(inside, 2)
    match rng.choice(["bytes", "bytes", "gone", "swap", "new"]):
        case "bytes":
            one.write_bytes(damaged(one.read_bytes(), rng))
        case "gone":
            one.unlink()
        case "swap":
            first = one.read_bytes()
            one.write_bytes(other.read_bytes())
            other.write_bytes(first)
        case "new":
            (one.parent / "new").write_bytes(other.read_bytes())


def attack_files(source, folder, count, seed):
    """Return the errors that damaged copies were not refused with, and those that loaded."""
    rng, wrong = random.Random(seed), []
    for i in range(count):
        damage(source, folder / source.name, rng)
        try:
            rlcatalog.Actor(folder / source.name, seed=0)
            wrong.append((i, "loaded"))
        except SavedPolicyError:
            pass
        except BaseException as error:
            wrong.append((i, f"{type(error).__name__}: {error}"[:200]))
    return wrong


@pytest.mark.parametrize("name", FORMATS)
def test_some_damaged_files(files, tmp_path, name):
    assert attack_files(files[name], tmp_path, 6, seed=0) == []


@pytest.mark.attack
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files(files, tmp_path, name):
    assert attack_files(files[name], tmp_path, 500, seed=1) == []
