"""Folders of saved policies: the files that a save writes, replaces and removes, and how a policy
is loaded from them.
"""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from faulty_functions import function_that_raises
from gymnasium import spaces
from small_catalogs import make_catalog

import rlcatalog
from rlcatalog import Filter, FilterSpec, Match, ModelSpec, Rank
from rlcatalog.config import RULES
from rlcatalog.errors import (
    ConfigError,
    NotServedError,
    SavedPolicyError,
    UnknownNameError,
)
from rlcatalog_policy import TEMPORARY, forget, load, loading, lock_folder, read_manifest, saving
from rlcatalog_torch import FullyConnectedNetwork, LSTMWrapper

TWO_FEATURES = spaces.Box(-1, 1, (2,), np.float32)
THREE_ACTIONS = spaces.Discrete(3)
TWO_OBS = np.float32([[0.5, -0.5], [1, 0]])


def build_policy(catalog, **config):
    return rlcatalog.build(
        TWO_FEATURES, THREE_ACTIONS, {"fcnet_hiddens": [2], **config}, "torch", catalog=catalog
    )


def list_files(folder):
    return sorted(os.listdir(folder))


def read_config(folder):
    return json.loads((folder / "policy.json").read_text())["config"]


def assert_same_outputs(policy, other):
    np.testing.assert_array_equal(policy.act(TWO_OBS).dist_inputs, other.act(TWO_OBS).dist_inputs)


@pytest.fixture
def saved_folder(catalog, directory):
    """The folder of a saved policy with random weights."""
    build_policy(catalog).save(directory)
    return directory


# --- saving ---------------------------------------------------------------------------------------


def test_save_creates_the_folder_with_its_parents(catalog, tmp_path):
    folder = tmp_path / "a" / "b"

    build_policy(catalog).save(folder)

    [weights] = read_manifest(folder).files
    assert list_files(folder) == ["policy.json", weights]


def test_save_into_an_existing_folder_replaces_its_files(catalog, saved_folder):
    policy = build_policy(catalog)

    policy.save(saved_folder)

    [weights] = read_manifest(saved_folder).files
    assert list_files(saved_folder) == ["policy.json", weights]
    assert_same_outputs(load(saved_folder, catalog=catalog), policy)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("weights.safetensors", id="weights-without-hash"),
        pytest.param("filter.safetensors", id="filter-without-hash"),
        pytest.param(f"filter-{'0' * 16}.safetensors", id="filter-with-hash"),
        pytest.param(f".policy.json-1{TEMPORARY}", id="temporary"),
    ],
)
def test_save_removes_files_of_earlier_saves(catalog, saved_folder, name):
    [earlier_weights] = read_manifest(saved_folder).files
    (saved_folder / name).write_bytes(b"x")

    build_policy(catalog).save(saved_folder)

    [weights] = read_manifest(saved_folder).files
    assert weights != earlier_weights
    assert list_files(saved_folder) == ["policy.json", weights]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("notes.txt", id="notes"),
        pytest.param("weights-1.safetensors", id="hash-too-short"),
        pytest.param(f"weights-{'g' * 16}.safetensors", id="hash-not-hexadecimal"),
        pytest.param("weights.bin", id="other-suffix"),
        pytest.param(f"x{TEMPORARY}", id="temporary-without-dot"),
    ],
)
def test_save_keeps_files_of_others(catalog, saved_folder, name):
    (saved_folder / name).write_bytes(b"x")

    build_policy(catalog).save(saved_folder)

    [weights] = read_manifest(saved_folder).files
    assert list_files(saved_folder) == sorted(["policy.json", weights, name])


def test_save_repairs_a_damaged_file(catalog, saved_folder):
    policy = load(saved_folder, catalog=catalog)
    [weights] = read_manifest(saved_folder).files
    (saved_folder / weights).write_bytes(b"damaged")

    policy.save(saved_folder)

    assert_same_outputs(load(saved_folder, catalog=catalog), policy)


@pytest.fixture(params=["weights", "policy.json"])
def fill_disk(request, monkeypatch):
    """Fills the disk, so that the weights, or else the manifest, cannot be written."""
    real_replace = os.replace

    def replace(source, target):
        if target.name.startswith(request.param):
            raise OSError("disk is full")
        return real_replace(source, target)

    def fill():
        monkeypatch.setattr(os, "replace", replace)

    return fill


def test_failed_save_leaves_the_earlier_policy(catalog, saved_folder, fill_disk):
    earlier_policy = load(saved_folder, catalog=catalog)
    earlier_files = list_files(saved_folder)
    fill_disk()

    with pytest.raises(SavedPolicyError, match="cannot be written: disk is full") as caught:
        build_policy(catalog).save(saved_folder)

    assert "A policy saved there earlier is unchanged." in str(caught.value)
    assert list_files(saved_folder) == earlier_files
    assert_same_outputs(load(saved_folder, catalog=catalog), earlier_policy)


def test_failed_save_of_the_same_policy_removes_nothing(catalog, saved_folder, fill_disk):
    policy = load(saved_folder, catalog=catalog)
    files = list_files(saved_folder)
    fill_disk()

    # Both saves have the same weights, so that they share the file with the weights.
    with pytest.raises(SavedPolicyError, match="cannot be written"):
        policy.save(saved_folder)

    assert list_files(saved_folder) == files
    assert_same_outputs(load(saved_folder, catalog=catalog), policy)


@pytest.mark.parametrize("folder", ["file", "file/inside"])
def test_save_into_a_path_that_is_a_file_is_an_error(catalog, tmp_path, folder):
    (tmp_path / "file").touch()

    with pytest.raises(SavedPolicyError, match=r"file.*: cannot be written: ") as caught:
        build_policy(catalog).save(tmp_path / folder)

    assert "A policy saved there earlier is unchanged." in str(caught.value)


@pytest.fixture
def lock_checks(saved_folder, monkeypatch):
    """A list with one entry for each listing of the folder during which the folder is locked."""
    checks = []
    real_listdir = os.listdir

    def listdir(folder):
        with pytest.raises(BlockingIOError), lock_folder(saved_folder, wait=False):
            pass
        checks.append("locked")
        return real_listdir(folder)

    monkeypatch.setattr(os, "listdir", listdir)
    return checks


def test_save_locks_the_folder(catalog, saved_folder, lock_checks):
    build_policy(catalog).save(saved_folder)

    assert lock_checks == ["locked"]


def test_forget_locks_the_folder(saved_folder, lock_checks):
    forget(saved_folder)

    assert lock_checks == ["locked"]


def test_save_ignores_a_file_that_cannot_be_removed(catalog, saved_folder):
    # A folder that has the name of an earlier save's file cannot be removed as a file.
    (saved_folder / "weights.safetensors").mkdir()

    build_policy(catalog).save(saved_folder)

    assert "weights.safetensors" in list_files(saved_folder)


@pytest.fixture
def synced_listings(monkeypatch):
    """A list of what was in the folder each time that `saving` flushed it to the disk."""
    listings = []

    def sync_folder(folder):
        listings.append(list_files(folder))

    monkeypatch.setattr(saving, "sync_folder", sync_folder)
    return listings


def test_save_flushes_the_folder_after_removals(catalog, saved_folder, synced_listings):
    build_policy(catalog).save(saved_folder)  # removes the earlier weights

    assert synced_listings == [list_files(saved_folder)]


def test_save_without_removals_flushes_nothing_more(catalog, saved_folder, synced_listings):
    load(saved_folder, catalog=catalog).save(saved_folder)  # the same weights: the same files

    assert synced_listings == []


# --- forgetting -----------------------------------------------------------------------------------


def test_forget_removes_the_folder(saved_folder):
    forget(saved_folder)

    assert not saved_folder.exists()


def test_forget_keeps_a_folder_with_other_files(saved_folder):
    (saved_folder / "notes.txt").touch()
    (saved_folder / f".weights-1{TEMPORARY}").touch()

    forget(str(saved_folder))

    assert list_files(saved_folder) == ["notes.txt"]


def test_forget_of_a_forgotten_policy_does_nothing(saved_folder):
    (saved_folder / "notes.txt").touch()
    forget(saved_folder)

    forget(saved_folder)

    assert list_files(saved_folder) == ["notes.txt"]


def test_forget_removes_the_manifest_first(saved_folder, monkeypatch):
    # `forget` lists the folder to find the files to remove; by then the manifest is gone.
    listings = []
    real_listdir = os.listdir

    def listdir(folder):
        names = real_listdir(folder)
        listings.append(names)
        return names

    monkeypatch.setattr(os, "listdir", listdir)
    forget(saved_folder)

    [[remaining_file]] = listings
    assert remaining_file.startswith("weights-")


# --- names in the saved config --------------------------------------------------------------------


class Trunk(FullyConnectedNetwork):
    """A model that is defined in the program and comes from no package."""


def test_unregistered_model_is_saved_under_its_class_name(catalog, directory):
    policy = build_policy(catalog, custom_model=Trunk)

    policy.save(directory)

    rules = {key: policy.config[key] for key in RULES}
    assert read_config(directory) == {"fcnet_hiddens": [2], "custom_model": "Trunk", **rules}
    # The policy's own config is unchanged.
    assert policy.resolution.config.given["custom_model"] is Trunk


def test_registered_model_is_saved_under_its_registered_name(catalog, directory):
    catalog.register_model("mine", Trunk)

    build_policy(catalog, custom_model="mine").save(directory)

    assert read_config(directory)["custom_model"] == "mine"


def test_model_keeps_its_name_beside_a_registered_memory(directory, module):
    class Memory(LSTMWrapper):
        pass

    def match_everything(request):
        return Match(Rank.SPECIFIC, "any")

    module(Memory=Memory)  # can now be imported from made_up_parts
    targets = {"torch": "made_up_parts:Memory"}
    memory = ModelSpec("mine", targets, summary="", slot="memory", match=match_everything)
    catalog = make_catalog(plugins=["fcnet", "lstm", "categorical", "preprocessors"])
    catalog.register(memory)
    # `Trunk` is not registered, and is saved under the name of its class.
    policy = build_policy(catalog, custom_model=Trunk, lstm_cell_size=2)

    policy.save(directory)

    manifest = read_manifest(directory)
    assert manifest.config["custom_model"] == "Trunk"
    assert manifest.parts["memory"] == "mine"


def test_models_for_entries_of_a_dict_are_saved_with_the_config(directory):
    vector_and_image = spaces.Dict(a=TWO_FEATURES, b=spaces.Box(0, 255, (10, 10, 3), np.uint8))
    policy = rlcatalog.build(vector_and_image, THREE_ACTIONS, {"post_fcnet_hiddens": [2]}, "torch")

    policy.save(directory)

    config = read_config(directory)
    rules = {key: policy.config[key] for key in RULES}
    assert config == {"post_fcnet_hiddens": [2], **policy.resolution.pinned_keys(), **rules}
    assert "input_nets" in config


# --- loading --------------------------------------------------------------------------------------


def test_policy_loads_with_the_default_catalog(saved_folder):
    assert load(saved_folder).catalog is rlcatalog.default_catalog()


def test_policy_loads_with_a_given_catalog(catalog, saved_folder):
    assert load(saved_folder, catalog=catalog).catalog is catalog


def test_error_for_a_run_folder_names_the_policy_inside(catalog, tmp_path):
    run = tmp_path / "run"
    build_policy(catalog).save(run / "policy")

    with pytest.raises(SavedPolicyError) as caught:
        load(run)

    assert str(caught.value) == (
        f"{run}: not a saved policy; it has no policy.json."
        f" Its folder 'policy' is one: {run / 'policy'}."
    )


def test_error_for_a_run_folder_names_no_empty_folder(tmp_path):
    (tmp_path / "run" / "policy").mkdir(parents=True)

    with pytest.raises(SavedPolicyError, match=r"it has no policy\.json\.") as caught:
        load(tmp_path / "run")

    assert "Its folder" not in str(caught.value)


def test_load_gives_up_after_ten_attempts(catalog, saved_folder, monkeypatch):
    real_read_manifest = loading.read_manifest
    manifests = []

    def read_manifest_of_a_newer_save(source):
        # Each manifest names another missing file, as if its save had been replaced meanwhile.
        manifest = real_read_manifest(source)
        digest = f"{len(manifests):064}"
        manifest.files = {f"weights-{digest[:16]}.safetensors": digest}
        manifests.append(manifest)
        return manifest

    monkeypatch.setattr(loading, "read_manifest", read_manifest_of_a_newer_save)

    with pytest.raises(SavedPolicyError, match="was written 10 times while it was being") as caught:
        load(saved_folder, catalog=catalog)

    assert "Try again later" in str(caught.value)
    assert len(manifests) == 10


def test_load_looks_for_a_missing_file_twice(catalog, saved_folder, monkeypatch):
    real_read_manifest = loading.read_manifest
    reads = []

    def read_manifest_and_count(source):
        reads.append(source)
        return real_read_manifest(source)

    monkeypatch.setattr(loading, "read_manifest", read_manifest_and_count)
    [weights] = read_manifest(saved_folder).files
    (saved_folder / weights).unlink()

    with pytest.raises(SavedPolicyError, match=rf"{weights}: cannot be read: "):
        load(saved_folder, catalog=catalog)
    assert len(reads) == 2  # a newer save might have removed the file, so that it looks again


def test_load_accepts_the_saved_action_space(catalog, saved_folder):
    loaded = load(saved_folder, catalog=catalog, action_space=spaces.Discrete(3))

    assert loaded.action_space == spaces.Discrete(3)


def test_load_rejects_another_action_space(catalog, saved_folder):
    with pytest.raises(SavedPolicyError) as caught:
        load(saved_folder, catalog=catalog, action_space=spaces.Discrete(4))

    manifest = saved_folder / "policy.json"
    assert str(caught.value) == f"{manifest}: its action_space is Discrete(3), not Discrete(4)."


def test_load_rejects_another_observation_space(catalog, saved_folder):
    saved_space = spaces.Box(-1, 1, (2,))
    other_space = spaces.Box(-2, 1, (2,))

    with pytest.raises(SavedPolicyError) as caught:
        load(saved_folder, catalog=catalog, observation_space=other_space)

    manifest = saved_folder / "policy.json"
    message = f"{manifest}: its observation_space is {saved_space}, not {other_space}."
    assert str(caught.value) == message


@pytest.fixture
def register_filter(catalog, module):
    """Register a filter of the program: `register_filter("name", filter_class)`."""

    def register(name, filter_class):
        module(**{filter_class.__name__: filter_class})
        target = f"made_up_parts:{filter_class.__name__}"
        catalog.register(FilterSpec(name, {"numpy": target}, ""))

    return register


def test_filter_defined_in_the_program_is_found_by_name(catalog, directory, register_filter):
    class Counter(Filter):
        def __call__(self, encoded, *, update=False):
            return encoded.copy()

        def get_state(self):
            return {"count": np.array(3)}

        def set_state(self, state):
            self.count = int(state["count"])

    register_filter("counter", Counter)

    build_policy(catalog, observation_filter="counter").save(directory)

    assert load(directory, catalog=catalog).filter.count == 3


def test_unregistered_filter_error_says_what_to_import(catalog, directory, register_filter):
    class Unchanged(Filter):
        def __call__(self, encoded, *, update=False):
            return encoded.copy()

    register_filter("unchanged", Unchanged)
    build_policy(catalog, observation_filter="unchanged").save(directory)
    another_catalog = make_catalog(plugins=["fcnet", "categorical", "preprocessors"])

    with pytest.raises(UnknownNameError, match="'unchanged' is not from a package") as caught:
        load(directory, catalog=another_catalog)

    advice = "Import the module that registers it, and load again. (It was saved for"
    assert advice in str(caught.value)


def test_filter_error_names_the_statistics_file(catalog, directory, register_filter):
    class Failing(Filter):
        def __call__(self, encoded, *, update=False):
            return encoded.copy()

        def get_state(self):
            return {"count": np.array(3)}

        def set_state(self, state):
            raise ValueError("no such statistics")

    register_filter("failing", Failing)
    build_policy(catalog, observation_filter="failing").save(directory)
    path = directory / read_manifest(directory).file("filter")

    with pytest.raises(SavedPolicyError, match=rf"^{path}: .*no such statistics"):
        load(directory, catalog=catalog)


# --- the code of the model ------------------------------------------------------------------------


@pytest.fixture
def trunk_folder(catalog, directory):
    """The folder of a saved policy with the model `Trunk`."""
    build_policy(catalog, custom_model=Trunk).save(directory)
    return directory


def test_unregistered_model_error_has_a_line_to_paste(catalog, trunk_folder):
    with pytest.raises(UnknownNameError, match="'Trunk' is not from a package") as caught:
        load(trunk_folder, catalog=catalog)

    advice = (
        f"Pass its code: rlcatalog.load({str(trunk_folder)!r}, model=Trunk). If it was registered,"
        " import the module that registers it, and load again. (It was saved for"
    )
    assert advice in str(caught.value)


def test_unregistered_model_loads_with_its_class(catalog, directory):
    policy = build_policy(catalog, custom_model=Trunk)
    policy.save(directory)

    assert_same_outputs(load(directory, catalog=catalog, model=Trunk), policy)


def test_code_for_an_argument_saved_without_code_is_an_error(catalog, trunk_folder):
    # A dict passes code for arguments in custom_model_config; here it is empty.
    with pytest.raises(ConfigError, match="'width' had no code when the policy was") as caught:
        load(trunk_folder, catalog=catalog, model={"width": 3})

    assert "saved; none did." in str(caught.value)


def test_unknown_packaged_model_error_does_not_ask_for_code(catalog, saved_folder, edit_manifest):
    parts = read_manifest(saved_folder).parts
    edit_manifest(saved_folder, parts={**parts, "trunk": "rlcatalog-fcnet/gone"})

    with pytest.raises(UnknownNameError, match="gone") as caught:
        load(saved_folder, catalog=catalog)

    assert "is not from a package" not in str(caught.value)


def test_unknown_config_key_error_does_not_ask_for_code(catalog, trunk_folder, edit_manifest):
    # The key is misspelled: it lacks the "s" of fcnet_hiddens.
    edit_manifest(trunk_folder, config={"custom_model": "Trunk", "fcnet_hidden": [2]})

    with pytest.raises(ConfigError, match="fcnet_hidden") as caught:
        load(trunk_folder, catalog=catalog, model=Trunk)

    assert "is not from a package" not in str(caught.value)


def test_torch_model_is_rejected_in_tensorflow(catalog, trunk_folder):
    with pytest.raises(NotServedError, match="has no code for framework='tf'"):
        load(trunk_folder, catalog=catalog, model=Trunk, framework="tf")


def test_code_for_a_packaged_model_is_rejected(catalog, saved_folder):
    with pytest.raises(ConfigError, match=r"fcnet/fcnet\. Remove the argument"):
        load(saved_folder, catalog=catalog, model=Trunk)


# --- models that are larger than the file ---------------------------------------------------------


@pytest.fixture
def small_folder(catalog, directory):
    """The folder of a policy with 4 inputs, 1 output and a hidden layer of 2: 16 weights."""
    box = spaces.Box(-1, 1, (4,), np.float32)
    config = {"fcnet_hiddens": [2]}
    rlcatalog.build(box, spaces.Discrete(1), config, "torch", catalog=catalog).save(directory)
    return directory


@pytest.mark.parametrize(
    "hiddens",
    [
        # A hidden layer of n has 4 * n + n weights, the output and the value have n + 1 each:
        # 7 * 599,186 + 2 is 2**22.
        pytest.param([599_186], id="4-million-weights"),
        # The output and the value are the other two layers.
        pytest.param([1] * 998, id="1000-layers"),
    ],
)
def test_config_up_to_the_limits_is_built(
    catalog, small_folder, edit_manifest, monkeypatch, hiddens
):
    edit_manifest(small_folder, config={"fcnet_hiddens": hiddens})
    raise_instead_of_building = function_that_raises(RuntimeError("the model is built"))
    monkeypatch.setattr(loading, "Policy", raise_instead_of_building)

    # The check of the config has passed, because the next step fails.
    with pytest.raises(SavedPolicyError, match="RuntimeError: the model is built"):
        load(small_folder, catalog=catalog)


@pytest.mark.parametrize(
    ("hiddens", "size"),
    [
        pytest.param(
            [599_187],  # 7 * 599,187 + 2 weights
            "4194311 or more in 3 layers",
            id="more-than-4-million-weights",
        ),
        pytest.param(
            [1] * 999,  # 5 weights, then 2 in each further layer
            "2005 or more in 1001 layers",
            id="more-than-1000-layers",
        ),
    ],
)
def test_config_beyond_the_limits_is_rejected(catalog, small_folder, edit_manifest, hiddens, size):
    edit_manifest(small_folder, config={"fcnet_hiddens": hiddens})

    with pytest.raises(SavedPolicyError, match="contains 16 weights in 6 arrays") as caught:
        load(small_folder, catalog=catalog)

    assert f"but the config describes a model of {size}" in str(caught.value)
