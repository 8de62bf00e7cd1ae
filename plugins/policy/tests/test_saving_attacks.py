"""Attacks on saved policies: flipped bits, crafted folders, processes that end at any moment, and
several processes at once.

Attacks that kill processes, fork them or limit their memory run in `saves_child.py`, a process of
its own; `crafted_saves.py` contains the crafted folders.
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

# Some of the crafted configs contain keys that no part reads.
pytestmark = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")

SUPPORT = Path(__file__).resolve().parents[3] / "tests/support"
full = pytest.mark.slow


def run_attack(name, folder, *arguments):
    """Run an attack in a process of its own, and return its results as a dict."""
    command = [str(SUPPORT / "saves_child.py"), name, str(folder), *map(str, arguments)]
    process = warm.run(command, SUPPORT, {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"})
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.fixture
def saved(tmp_path):
    """The folder of a saved policy with a filter, and with infinity in its config."""
    config = {
        "fcnet_hiddens": [6],
        "observation_filter": "MeanStdFilter",
        "custom_model_config": {"x": [0.5, math.inf]},
    }
    obs_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2, start=1)
    rlcatalog.build(obs_space, action_space, config, "torch").save(tmp_path / "policy")
    return tmp_path / "policy"


# --- flipped bits ---------------------------------------------------------------------------------


class FlippedBits:
    """Reads `policy.json` with each n-th bit flipped, one at a time.

    Attributes:
        rejected: Number of flipped bits with which the file was rejected.
        misread: The flipped bits with which the file had another content.
    """

    def __init__(self, folder, *, every):
        path = folder / "policy.json"
        manifest = read_manifest(folder)
        content = path.read_bytes()
        self.rejected = 0
        self.misread = []
        for bit in range(0, 8 * len(content), every):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            try:
                if read_manifest(folder) != manifest:
                    self.misread.append(bit)
            except SavedPolicyError:
                self.rejected += 1
        path.write_bytes(content)


# Some flipped bits change nothing: a space between words may become another kind of space.


def test_some_flipped_bits_of_the_manifest(saved):
    flipped_bits = FlippedBits(saved, every=7)

    assert flipped_bits.misread == []
    assert flipped_bits.rejected > 1000


@full
def test_every_flipped_bit_of_the_manifest(saved):
    flipped_bits = FlippedBits(saved, every=1)

    assert flipped_bits.misread == []
    assert flipped_bits.rejected > 7000


def find_unnoticed_flips(folder, *, every):
    """Flip a bit of each n-th byte of the array files, one at a time; return the places where
    the policy was loaded all the same.
    """
    unnoticed = []
    for path in sorted(folder.glob("*.safetensors")):
        content = path.read_bytes()
        for place in range(0, len(content), every):
            flipped = bytearray(content)
            flipped[place] ^= 1 << place % 8
            path.write_bytes(flipped)
            try:
                rlcatalog.load(folder)
            except SavedPolicyError:
                continue
            unnoticed.append((path.name, place))
        path.write_bytes(content)
    rlcatalog.load(folder)  # no error: all files are as they were
    return unnoticed


def test_some_flipped_bytes_of_the_arrays(saved):
    assert find_unnoticed_flips(saved, every=100) == []


@full
def test_every_flipped_byte_of_the_arrays(saved):
    assert find_unnoticed_flips(saved, every=1) == []


@pytest.mark.parametrize(
    ("version", "message"),
    [
        pytest.param(3, r"missing: \['checksum'\]", id="this-version"),
        pytest.param(1, "version 1; .* reads versions 2 and 3", id="version-without"),
    ],
)
def test_save_without_a_checksum_is_rejected(saved, version, message):
    path = saved / "policy.json"
    data = json.loads(path.read_text())
    del data["checksum"]
    path.write_text(json.dumps({**data, "format_version": version}))

    with pytest.raises(SavedPolicyError, match=message):
        read_manifest(saved)


# --- crafted folders ------------------------------------------------------------------------------


def test_crafted_saves_take_neither_memory_nor_time(tmp_path):
    random_order_seed = 15
    results = run_attack("crafted", tmp_path, "torch", 24, random_order_seed)  # each 24th

    assert results["raw"] == []
    assert results["unbounded"] == []
    assert results["refused"] > 60


@full
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_all_crafted_saves_take_neither_memory_nor_time(tmp_path, framework):
    random_order_seed = 0
    results = run_attack("crafted", tmp_path, framework, 1, random_order_seed)  # each one

    assert results["raw"] == []
    assert results["unbounded"] == []
    assert results["refused"] > 1500


# --- processes that end at any moment -------------------------------------------------------------


@pytest.fixture(scope="module", params=[4, pytest.param(1, marks=full)])
def killed_saves(request, tmp_path_factory):
    """Saves that were killed at each n-th of their system calls, over a former save and into an
    empty folder: a list of (has_former, call, exit_code, loaded_policy, can_be_repeated).
    """
    folder = tmp_path_factory.mktemp("killed") / "policy"
    return run_attack("killed_at_calls", folder, request.param)["found"]


def test_save_killed_at_any_call_leaves_the_former_save(killed_saves):
    loaded = [loaded for has_former, _, _, loaded, _ in killed_saves if has_former]

    # "former" comes before "later" in the alphabet: after a certain call, the new save is there.
    assert set(loaded) == {"former", "later"}
    assert loaded == sorted(loaded)


def test_first_save_killed_at_any_call_is_complete_or_absent(killed_saves):
    loaded = [loaded for has_former, _, _, loaded, _ in killed_saves if not has_former]

    # "none" comes after "later" in the alphabet.
    assert set(loaded) == {"none", "later"}
    assert loaded == sorted(loaded, reverse=True)


def test_save_works_after_one_killed_at_any_call(killed_saves):
    assert all(can_be_repeated for *_, can_be_repeated in killed_saves)


def test_killed_saves_cover_all_calls_of_a_save(request, killed_saves):
    every = request.node.callspec.params["killed_saves"]
    exit_codes = [exit_code for _, _, exit_code, _, _ in killed_saves]

    # The last save in each of the two folders makes fewer calls, so that it is not killed.
    assert exit_codes.count(0) == 2
    assert len(killed_saves) > 40 // every


@pytest.mark.parametrize("times", [6, pytest.param(200, marks=full)])
def test_save_killed_at_a_random_moment_is_not_lost(tmp_path, times):
    random_seed = 15

    results = run_attack("killed_at_random", tmp_path / "policy", times, random_seed)

    assert results["lost"] == []


@full
def test_save_on_a_full_disk_leaves_the_former_save_alone(tmp_path):
    # A list of (call, result, is_right_policy, is_clean_folder), one for each failing call.
    saves = run_attack("full_disk", tmp_path / "policy")["found"]

    results = [result for _, result, _, _ in saves]
    errors = [result for result in results if result.startswith("refused: ")]
    assert all(is_right_policy for _, _, is_right_policy, _ in saves)
    assert all(is_clean_folder for _, _, _, is_clean_folder in saves)
    assert len(errors) + results.count("saved") == len(saves)
    assert len(errors) > 15
    assert all("cannot be written: [Errno 28]" in error for error in errors)


@pytest.mark.parametrize("times", [4, pytest.param(300, marks=full)])
def test_reader_beside_two_writers_reads_complete_saves(tmp_path, times):
    results = run_attack("writers_and_reader", tmp_path / "policy", times)

    assert results["wrong"] == []
    assert results["ended"] == [0, 0]  # the exit codes of the writers
    assert results["files"] == 3  # the manifest, the weights and the filter
    assert results["read"] > times // 5


# --- links ----------------------------------------------------------------------------------------


@pytest.fixture
def saved_as_links(saved, tmp_path):
    """A policy, and its folder, in which all files are links to a file outside."""
    policy = rlcatalog.load(saved)
    outside = tmp_path / "outside"
    outside.write_text("mine")
    for path in sorted(saved.iterdir()):
        path.unlink()
        path.symlink_to(outside)
    return policy, saved, outside


def test_loading_follows_no_links(saved_as_links):
    _, folder, _ = saved_as_links

    with pytest.raises(SavedPolicyError, match="a link, which is not followed"):
        rlcatalog.load(folder)


def test_saving_follows_no_links(saved_as_links):
    policy, folder, outside = saved_as_links

    policy.save(folder)

    assert outside.read_text() == "mine"
    assert not any(path.is_symlink() for path in folder.iterdir())
    rlcatalog.load(folder)  # no error


# --- config values there and back -----------------------------------------------------------------

ORDINARY_VALUES = [
    None, True, False, 0, -1, 10**30, 0.1, -0.0, 1e-300, math.inf, -math.inf, math.nan, "", "x",
    "\ud800", "ä\0",
]  # fmt: skip
#: Values that JSON cannot represent, or only otherwise.
ODD_VALUES = [
    np.float32(0.1), np.int64(3), np.arange(3), (1, 2), {1, 2}, b"x", 1j, len, range(3), {1: 2},
    {"$float": 1},
]  # fmt: skip


def random_value(rng, depth=0):
    """Return a random value as configs may contain it, or as they should not."""
    kind = rng.randrange(8 if depth < 3 else 4)
    if kind < 4:
        return rng.choice(ORDINARY_VALUES)
    if kind == 4:
        if rng.random() < 0.2:
            return rng.choice(ODD_VALUES)
        return rng.random() * 10.0 ** rng.randrange(-30, 30)
    if kind == 5:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice("abcdefg$"): random_value(rng, depth + 1) for _ in range(rng.randrange(4))}


def are_equal(value, other):
    """Return whether two values are the same; a NaN is the same as another."""
    if isinstance(value, float) and isinstance(other, float):
        return repr(value) == repr(other)
    if isinstance(value, dict):
        return (
            isinstance(other, dict)
            and list(value) == list(other)
            and all(are_equal(value[key], other[key]) for key in value)
        )
    if isinstance(value, list):
        return (
            isinstance(other, list)
            and len(value) == len(other)
            and all(map(are_equal, value, other))
        )
    return same(value, other)


def contains_code(value):
    """Return whether a value contains a function, which is saved as its name."""
    if isinstance(value, dict):
        return any(map(contains_code, value.values()))
    if isinstance(value, list):
        return any(map(contains_code, value))
    return callable(value)


def restore_model_config(folder, saved_config):
    """Return the `custom_model_config` of a saved policy.

    If it contained code, only `load` restores it, and needs the code.
    """
    if not contains_code(saved_config["x"]):
        return read_manifest(folder).config["custom_model_config"]
    with pytest.raises(ConfigError, match="'x' contained code"):
        rlcatalog.load(folder)
    return rlcatalog.load(folder, model=saved_config).config["custom_model_config"]


@pytest.mark.parametrize("times", [80, pytest.param(1500, marks=full)])
def test_config_values_come_back_or_are_rejected(tmp_path, times):
    rng = random.Random(15)
    two = spaces.Discrete(2)
    rejected = 0

    for _ in range(times):
        config = {"fcnet_hiddens": [2], "custom_model_config": {"x": random_value(rng)}}
        policy = rlcatalog.build(two, two, config, "torch")
        try:
            policy.save(tmp_path)
        except SavedPolicyError:
            rejected += 1
            continue
        saved_config = policy.config["custom_model_config"]
        assert are_equal(restore_model_config(tmp_path, saved_config), saved_config), config

    # Some of the values are odd ones, which cannot be saved; most can.
    assert 0 < rejected < times / 2
