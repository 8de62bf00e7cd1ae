"""Attacks on exported policies: crafted interfaces with a correct checksum, and damaged files."""

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

#: Stands for a value that is removed.
REMOVED = object()
VALUES = [
    REMOVED,
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

# `exported` has the files of a policy in each format: name → path.


# --- crafted interfaces ---------------------------------------------------------------------------


def list_places(data, before=()):
    """Return the keys that lead to each value in nested data."""
    if isinstance(data, dict):
        entries = data.items()
    elif isinstance(data, list):
        entries = enumerate(data)
    else:
        return []
    places = []
    for key, value in entries:
        place = (*before, key)
        places.append(place)
        places += list_places(value, place)
    return places


def get_value(data, place):
    for key in place:
        data = data[key]
    return data


def change_value(data, place, value):
    """Return a copy of nested data with another value at a place."""
    data = copy.deepcopy(data)
    parent = get_value(data, place[:-1])
    if value is REMOVED:
        del parent[place[-1]]
    else:
        parent[place[-1]] = value
    return data


def swap_values(data, first, second):
    """Return a copy of nested data with the values of two places swapped."""
    changed = change_value(data, first, get_value(data, second))
    return change_value(changed, second, get_value(data, first))


def craft_interfaces(interface, count, seed):
    """Yield names and texts of crafted interfaces.

    In four of five a single value is changed; in the others two are swapped, or the text is cut.
    """
    rng = random.Random(seed)
    places = list_places(interface)
    cases = [(place, value) for place in places for value in VALUES]
    changes = count * 4 // 5
    for place, value in rng.sample(cases, changes):
        text = json.dumps(change_value(interface, place, value))
        yield f"{place} = {str(value)[:40]!r}", text
    for _ in range(count - changes):
        first, second = rng.sample(places, 2)
        try:
            text = json.dumps(swap_values(interface, first, second))
        except (LookupError, TypeError):  # one is inside the other
            text = json.dumps(interface)[: rng.randrange(2000)]
        yield f"{first} and {second} swapped", text


def load_crafted_interfaces(source, folder, count, seed):
    """Load files with crafted interfaces, and act if a file loads.

    Returns:
        What went wrong: errors of other types than ours, calls that took long, files written.
    """
    faults = []
    interface = interface_of(onnx.load_model(source))
    for name, text in craft_interfaces(interface, count, seed):
        path = relabelled(onnx.load_model(source), folder / "policy.onnx", text)
        start = time.perf_counter()
        try:
            rlcatalog.Actor(path, seed=0).act(TRIED)
        except CatalogError:
            pass
        except BaseException as error:
            faults.append((name, f"{type(error).__name__}: {error}"[:200]))
        seconds = time.perf_counter() - start
        if seconds > 10:
            faults.append((name, f"took {seconds:.1f} s"))
        if [file.name for file in folder.iterdir()] != ["policy.onnx"]:
            faults.append((name, "wrote a file"))
    return faults


def test_some_crafted_interfaces_raise_typed_errors(exported, tmp_path):
    faults = load_crafted_interfaces(exported["policy.onnx"], tmp_path, count=4, seed=0)

    assert faults == []


@pytest.mark.slow
def test_crafted_interfaces_raise_typed_errors(exported, tmp_path):
    faults = load_crafted_interfaces(exported["policy.onnx"], tmp_path, count=2000, seed=1)

    assert faults == []


# --- damaged files --------------------------------------------------------------------------------


def damage_bytes(content, rng):
    """Return other content than this: bits flipped, cut, blanked, swapped, repeated or inserted."""
    while True:
        data = bytearray(content)
        at = rng.randrange(len(data))
        match rng.choice(
            ["flip", "flip", "flips", "cut", "blank", "swap", "repeat", "insert", "version"]
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
            case "repeat":
                data += data[at:]
            case "insert":
                data[at:at] = rng.randbytes(8)
            case "version":
                data = data.replace(b'"format_version":2', b'"format_version":1')
        if data != content:
            return bytes(data)


def write_damaged_copy(source, target, rng):
    """Write a damaged copy of a file or folder."""
    if source.is_file():
        target.write_bytes(damage_bytes(source.read_bytes(), rng))
        return
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    files = sorted(file for file in target.rglob("*") if file.is_file())
    file, other = rng.sample(files, 2)
    match rng.choice(["bytes", "bytes", "remove", "swap", "add"]):
        case "bytes":
            file.write_bytes(damage_bytes(file.read_bytes(), rng))
        case "remove":
            file.unlink()
        case "swap":
            content = file.read_bytes()
            file.write_bytes(other.read_bytes())
            other.write_bytes(content)
        case "add":
            (file.parent / "new").write_bytes(other.read_bytes())


def load_damaged_files(source, folder, count, seed):
    """Load damaged copies, and return which loaded or raised an error of another type."""
    rng = random.Random(seed)
    faults = []
    for i in range(count):
        write_damaged_copy(source, folder / source.name, rng)
        try:
            rlcatalog.Actor(folder / source.name, seed=0)
            faults.append((i, "loaded"))
        except SavedPolicyError:
            pass
        except BaseException as error:
            faults.append((i, f"{type(error).__name__}: {error}"[:200]))
    return faults


@pytest.mark.parametrize("name", FORMATS)
def test_some_damaged_files_do_not_load(exported, tmp_path, name):
    assert load_damaged_files(exported[name], tmp_path, count=6, seed=0) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_do_not_load(exported, tmp_path, name):
    assert load_damaged_files(exported[name], tmp_path, count=500, seed=1) == []
