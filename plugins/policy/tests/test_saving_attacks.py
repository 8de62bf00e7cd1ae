"""Attacks on saved policies: flipped bits, crafted folders, ends at any moment, several processes
at once.

What kills processes, forks them or bounds their memory runs in `saves_child.py`; the crafted
folders stand in `crafted_saves.py`.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
import warm
from gymnasium import spaces

import rlcatalog
from rlcatalog.config import same
from rlcatalog.errors import ConfigError, SavedPolicyError
from rlcatalog_policy import read_manifest

# One config serves parts of every kind here.
pytestmark = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")

SUPPORT = Path(__file__).resolve().parents[3] / "tests/support"
full = pytest.mark.attack


def attack(name, folder, *arguments, framework="torch"):
    """Run an attack in a process of its own and return what it found."""
    command = [str(SUPPORT / "saves_child.py"), name, str(folder), *map(str, arguments)]
    run = warm.run(command, SUPPORT, {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"})
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture
def saved(tmp_path):
    box, two = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2, start=1)
    config = {
        "fcnet_hiddens": [6],
        "observation_filter": "MeanStdFilter",
        "custom_model_config": {"x": [0.5, math.inf]},
    }
    rlcatalog.build(box, two, config, "torch").save(tmp_path / "policy")
    return tmp_path / "policy"


# --- flipped bits ---------------------------------------------------------------------------------


def flipped_bits(saved, every):
    """Return how many flipped bits of `policy.json` were refused, and those with which it says
    something else.
    """
    path, true = saved / "policy.json", read_manifest(saved)
    data, other, refused = path.read_bytes(), [], 0
    for bit in range(0, 8 * len(data), every):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            if read_manifest(saved) != true:
                other.append(bit)
        except SavedPolicyError:
            refused += 1
    path.write_bytes(data)
    return refused, other


def test_some_flipped_bits_of_the_manifest(saved):
    refused, other = flipped_bits(saved, 7)
    assert other == []
    assert refused > 1000  # spaces between words may become other spaces


@full
def test_every_flipped_bit_of_the_manifest(saved):
    refused, other = flipped_bits(saved, 1)
    assert other == []
    assert refused > 7000


def flipped_bytes(saved, every):
    """Return the places of other files where a flipped bit was not noticed."""
    missed = []
    for path in sorted(saved.glob("*.safetensors")):
        data = path.read_bytes()
        for place in range(0, len(data), every):
            flipped = bytearray(data)
            flipped[place] ^= 1 << place % 8
            path.write_bytes(flipped)
            try:
                rlcatalog.load(saved)
            except SavedPolicyError:
                continue
            missed.append((path.name, place))
        path.write_bytes(data)
    rlcatalog.load(saved)
    return missed


def test_flipped_bytes_of_the_arrays(saved):
    assert flipped_bytes(saved, 100) == []


@full
def test_every_flipped_byte_of_the_arrays(saved):
    assert flipped_bytes(saved, 1) == []


def test_a_save_without_its_checksum_is_refused_under_any_version(saved):
    data = json.loads((saved / "policy.json").read_text())
    del data["checksum"]
    (saved / "policy.json").write_text(json.dumps(data))
    with pytest.raises(SavedPolicyError, match=r"missing: \['checksum'\]"):
        read_manifest(saved)
    (saved / "policy.json").write_text(json.dumps({**data, "format_version": 1}))
    with pytest.raises(SavedPolicyError, match=r"format version 1; .* reads versions 2 and 3"):
        read_manifest(saved)


# --- crafted folders ------------------------------------------------------------------------------


def test_crafted_saves_take_neither_memory_nor_time(tmp_path):
    found = attack("crafted", tmp_path, "torch", 24, 15)
    assert found["raw"] == found["unbounded"] == []
    assert found["refused"] > 60


@full
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_all_crafted_saves_take_neither_memory_nor_time(tmp_path, framework):
    found = attack("crafted", tmp_path, framework, 1, 0)
    assert found["raw"] == found["unbounded"] == []
    assert found["refused"] > 1500


# --- ends at any moment ---------------------------------------------------------------------------


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=full)])
def test_a_save_that_is_killed_at_any_of_its_calls_leaves_the_former_one(tmp_path, every):
    found = attack("killed_at_calls", tmp_path / "policy", every)["found"]
    assert all(whole for *_, whole in found)
    over, into = (
        [loaded for there, _, _, loaded, _ in found if there is over] for over in (True, False)
    )
    # The former save, until it is the later one; in an empty folder none until then.
    assert over == sorted(over)
    assert set(over) == {"former", "later"}
    assert into == sorted(into, reverse=True)
    assert set(into) == {"none", "later"}
    assert [ended for _, _, ended, _, _ in found].count(0) == 2
    assert len(found) > 40 // every


@pytest.mark.parametrize("times", [6, pytest.param(200, marks=full)])
def test_a_save_that_is_killed_at_random_is_not_lost(tmp_path, times):
    assert attack("killed_at_random", tmp_path / "policy", times, 15)["lost"] == []


@full
def test_a_save_that_finds_the_disk_full_leaves_the_former_one_and_nothing_else(tmp_path):
    found = attack("full_disk", tmp_path / "policy")["found"]
    assert all(right and clean for _, _, right, clean in found)
    refused = [said for _, said, _, _ in found if said.startswith("refused: ")]
    assert len(refused) + [said for _, said, _, _ in found].count("saved") == len(found)
    assert len(refused) > 15
    assert all("cannot be written: [Errno 28]" in said for said in refused)


@pytest.mark.parametrize("times", [4, pytest.param(300, marks=full)])
def test_what_two_writers_write_is_read_whole(tmp_path, times):
    found = attack("writers_and_reader", tmp_path / "policy", times)
    assert found["wrong"] == []
    assert found["ended"] == [0, 0]
    assert found["files"] == 3
    assert found["read"] > times // 5


# --- links ----------------------------------------------------------------------------------------


def test_saving_follows_no_links(saved, tmp_path):
    policy, outside = rlcatalog.load(saved), tmp_path / "outside"
    outside.write_text("mine")
    for path in sorted(saved.iterdir()):
        path.unlink()
        path.symlink_to(outside)
    with pytest.raises(SavedPolicyError, match="a link, which is not followed"):
        rlcatalog.load(saved)
    policy.save(saved)
    assert outside.read_text() == "mine"
    assert not any(path.is_symlink() for path in saved.iterdir())
    rlcatalog.load(saved)


# --- config values there and back -----------------------------------------------------------------


def value(rng, depth=0):
    """Return a random value such as configs hold, and such as they should not."""
    atoms = [
        None,
        True,
        False,
        0,
        -1,
        10**30,
        0.1,
        -0.0,
        1e-300,
        math.inf,
        -math.inf,
        math.nan,
        "",
        "x",
        "\ud800",
        "ä\0",
    ]
    odd = [
        np.float32(0.1),
        np.int64(3),
        np.arange(3),
        (1, 2),
        {1, 2},
        b"x",
        1j,
        len,
        range(3),
        {1: 2},
        {"$float": 1},
    ]
    kind = rng.randrange(8 if depth < 3 else 4)
    if kind < 4:
        return rng.choice(atoms)
    if kind == 4:
        return (
            rng.choice(odd) if rng.random() < 0.2 else rng.random() * 10.0 ** rng.randrange(-30, 30)
        )
    if kind == 5:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice("abcdefg$"): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def equal(a, b):
    """Whether two values are the same, NaN included."""
    if isinstance(a, float) and isinstance(b, float):
        return repr(a) == repr(b)
    if isinstance(a, dict):
        return (
            isinstance(b, dict) and list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
        )
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(equal, a, b))
    return same(a, b)


def holds_code(given):
    """Return whether a value has a function inside, which is saved as its name."""
    parts = given.values() if isinstance(given, dict) else given if isinstance(given, list) else ()
    return callable(given) or any(map(holds_code, parts))


@pytest.mark.parametrize("times", [80, pytest.param(1500, marks=full)])
def test_config_values_come_back_as_they_were_or_are_refused(tmp_path, times):
    rng, refused, codes = random.Random(15), 0, 0
    catalog = rlcatalog.default_catalog()
    for number in range(times):
        config = {"fcnet_hiddens": [2], "custom_model_config": {"x": value(rng)}}
        policy = rlcatalog.build(
            spaces.Discrete(2), spaces.Discrete(2), config, "torch", catalog=catalog
        )
        try:
            policy.save(tmp_path / "policy")
        except SavedPolicyError:
            refused += 1
            continue
        found, given = (
            p.config["custom_model_config"] for p in (read_manifest(tmp_path / "policy"), policy)
        )
        if holds_code(given["x"]):
            codes += 1
            with pytest.raises(ConfigError, match="'x' contained code"):
                rlcatalog.load(tmp_path / "policy", catalog=catalog)
            found = rlcatalog.load(tmp_path / "policy", model=given, catalog=catalog).config[
                "custom_model_config"
            ]
        assert equal(found, given), (number, config)
    assert 0 < refused < times / 2
    assert codes or times < 1000
