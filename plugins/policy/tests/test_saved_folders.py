"""Folders of saved policies: which files a save writes, replaces and removes, also
when it fails.
"""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog import Filter, FilterSpec, Match, ModelSpec, Rank
from rlcatalog.config import RULES
from rlcatalog.errors import (
    ConfigError,
    MissingPluginError,
    NotServedError,
    SavedPolicyError,
    SavedPolicyWarning,
    UnknownNameError,
)
from rlcatalog.plugins.discovery import scan
from rlcatalog_policy import TEMPORARY, forget, load, loading, locked, read_manifest, saving
from rlcatalog_torch import FullyConnectedNetwork, LSTMWrapper

OBS, THREE = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)
ROWS = np.float32([[0.5, -0.5], [1, 0]])


def policy_of(catalog, width=2, **config):
    return rlcatalog.build(
        OBS, THREE, {"fcnet_hiddens": [width], **config}, "torch", catalog=catalog
    )


def names(folder):
    return sorted(os.listdir(folder))


@pytest.fixture
def saved(catalog, directory):
    policy_of(catalog).save(directory)
    return directory


# --- saving ---------------------------------------------------------------------------------------


def test_folder_is_made_with_its_parents(catalog, tmp_path):
    folder = tmp_path / "a" / "b"
    policy_of(catalog).save(folder)
    assert [name.partition("-")[0] for name in names(folder)] == ["policy.json", "weights"]
    policy_of(catalog).save(folder)  # it is there already
    assert len(names(folder)) == 2


def test_save_removes_earlier_files_of_saves_and_no_others(catalog, saved):
    (before,) = (name for name in names(saved) if name.startswith("weights"))
    ours = [
        "weights.safetensors",
        "filter.safetensors",
        f"filter-{'0' * 16}.safetensors",
        f".policy.json-1{TEMPORARY}",
    ]
    theirs = [
        "notes.txt",
        "weights-1.safetensors",
        f"weights-{'g' * 16}.safetensors",
        "weights.bin",
        f"x{TEMPORARY}",
    ]
    for name in [*ours, *theirs]:
        (saved / name).write_bytes(b"x")
    policy = policy_of(catalog)
    policy.save(saved)
    (after,) = read_manifest(saved).files
    assert after != before
    assert names(saved) == sorted([after, "policy.json", *theirs])
    np.testing.assert_array_equal(
        load(saved, catalog=catalog).act(ROWS).dist_inputs, policy.act(ROWS).dist_inputs
    )


def test_damaged_file_is_written_again(catalog, saved):
    policy = load(saved, catalog=catalog)
    (name,) = read_manifest(saved).files
    (saved / name).write_bytes(b"damaged")
    policy.save(saved)
    np.testing.assert_array_equal(
        load(saved, catalog=catalog).act(ROWS).dist_inputs, policy.act(ROWS).dist_inputs
    )


@pytest.mark.parametrize("fails", ["weights", "policy.json"])
def test_failed_save_leaves_the_earlier_one(catalog, saved, monkeypatch, fails):
    earlier, before = load(saved, catalog=catalog), names(saved)
    real = os.replace

    def replace(source, target):
        if target.name.startswith(fails):
            raise OSError("full")
        return real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(
        SavedPolicyError,
        match=r"policy: cannot be written: full\. A policy saved there earlier is unch",
    ):
        policy_of(catalog).save(saved)
    assert names(saved) == before
    with pytest.raises(SavedPolicyError, match="cannot be written"):
        earlier.save(saved)  # the same names: what is there is kept
    assert names(saved) == before
    np.testing.assert_array_equal(
        load(saved, catalog=catalog).act(ROWS).dist_inputs, earlier.act(ROWS).dist_inputs
    )


def test_folder_that_cannot_be_one_is_refused(catalog, tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "inside"):
        with pytest.raises(
            SavedPolicyError,
            match=r"file.*: cannot be written: .*A policy saved there earlier is unchang",
        ):
            policy_of(catalog).save(folder)


def test_save_waits_for_the_lock(catalog, saved, monkeypatch):
    held = []

    def listing(folder, real=os.listdir):
        with pytest.raises(BlockingIOError), locked(saved, wait=False):
            pass
        held.append(1)
        return real(folder)

    monkeypatch.setattr(saving.os, "listdir", listing)
    policy_of(catalog).save(saved)
    forget(saved)
    assert len(held) == 2


def test_file_that_cannot_be_removed_stays(catalog, saved):
    (saved / "weights.safetensors").mkdir()
    policy_of(catalog).save(saved)
    assert "weights.safetensors" in names(saved)


def test_removed_names_are_flushed_to_the_disk(catalog, saved, monkeypatch):
    flushed = []
    monkeypatch.setattr(saving, "sync_folder", lambda folder: flushed.append(names(folder)))
    policy_of(catalog).save(saved)
    assert flushed == [names(saved)]
    load(saved, catalog=catalog).save(saved)  # nothing to remove
    assert len(flushed) == 1


# --- forgetting -----------------------------------------------------------------------------------


def test_forgotten_policy_leaves_no_folder(catalog, saved):
    forget(saved)
    assert not saved.exists()


def test_folder_with_other_files_stays(catalog, saved):
    (saved / "notes.txt").touch()
    (saved / f".weights-1{TEMPORARY}").touch()
    forget(str(saved))
    assert names(saved) == ["notes.txt"]
    forget(saved)  # there is nothing to forget
    assert names(saved) == ["notes.txt"]


def test_what_names_the_files_is_forgotten_first(saved, monkeypatch):
    left = []
    monkeypatch.setattr(
        saving.os,
        "listdir",
        lambda folder, real=os.listdir: left.append(real(folder)) or real(folder),
    )
    forget(saved)
    assert [[name.partition("-")[0] for name in found] for found in left] == [["weights"]]


# --- what is named --------------------------------------------------------------------------------


class Trunk(FullyConnectedNetwork):
    """A model of the program."""


def test_code_of_a_model_is_saved_by_its_name(catalog, directory):
    policy = policy_of(catalog, custom_model=Trunk)
    policy.save(directory)
    config = json.loads((directory / "policy.json").read_text())["config"]
    rules = {key: policy.config[key] for key in RULES}
    assert config == {"fcnet_hiddens": [2], "custom_model": "Trunk", **rules}
    catalog.register_model("mine", Trunk)
    policy_of(catalog, custom_model="mine").save(directory)
    assert json.loads((directory / "policy.json").read_text())["config"]["custom_model"] == "mine"
    # The policy's own config is unchanged.
    assert policy.resolution.config.given["custom_model"] is Trunk


def test_other_parts_of_the_program_do_not_replace_the_models_name(directory, module):
    module(Memory=type("Memory", (LSTMWrapper,), {}))
    installed = ("fcnet", "lstm", "categorical", "preprocessors")
    catalog = rlcatalog.Catalog([point for point in scan() if point.name in installed], environ={})
    match = Match(Rank.SPECIFIC, "any")
    catalog.register(
        ModelSpec(
            "mine",
            {"torch": "made_up_parts:Memory"},
            "",
            slot="memory",
            match=lambda request: match,
        )
    )
    policy = policy_of(catalog, custom_model=Trunk, lstm_cell_size=2)
    assert policy.resolution.component("memory").name == "mine"
    policy.save(directory)
    manifest = read_manifest(directory)
    assert (manifest.config["custom_model"], manifest.parts["memory"]) == ("Trunk", "mine")


def test_models_for_parts_of_an_observation_are_saved_with_the_config(directory):
    space = spaces.Dict(a=OBS, b=spaces.Box(0, 255, (10, 10, 3), np.uint8))
    policy = rlcatalog.build(space, THREE, {"post_fcnet_hiddens": [2]}, "torch")
    policy.save(directory)
    config = json.loads((directory / "policy.json").read_text())["config"]
    rules = {key: policy.config[key] for key in RULES}
    assert config == {"post_fcnet_hiddens": [2], **policy.resolution.pinned_keys(), **rules}
    assert "input_nets" in config


# --- loading --------------------------------------------------------------------------------------


def test_policy_loads_in_its_framework_or_in_another(catalog, saved):
    assert load(saved, catalog=catalog).framework == "torch"
    assert load(saved, catalog=catalog, framework="torch").framework == "torch"
    other = load(saved, catalog=catalog, framework="tf")
    assert other.framework == "tf"
    np.testing.assert_allclose(
        other.act(ROWS).dist_inputs,
        load(saved, catalog=catalog).act(ROWS).dist_inputs,
        rtol=1e-5,
        atol=1e-6,
    )
    assert load(saved).catalog is rlcatalog.default_catalog()
    assert load(saved, catalog=catalog).catalog is catalog


def test_where_a_folder_holds_no_policy_one_beside_it_is_named(catalog, saved, tmp_path):
    policy_of(catalog).save(tmp_path / "run" / "policy")
    with pytest.raises(SavedPolicyError) as caught:
        load(tmp_path / "run")
    inside = tmp_path / "run" / "policy"
    message = (
        f"{tmp_path / 'run'}: not a saved policy; it has no policy.json. Its folder 'policy'"
        f" is one: {inside}."
    )
    assert str(caught.value) == message
    (tmp_path / "other" / "policy").mkdir(parents=True)
    with pytest.raises(SavedPolicyError, match=r"it has no policy\.json\.$"):
        load(tmp_path / "other")


def test_reader_gives_up_after_ten_attempts(catalog, saved, monkeypatch):
    real, manifests = loading.read_manifest, []

    def always_new(source):
        manifest = real(source)
        manifest.files = {
            f"weights-{len(manifests):016}.safetensors": f"{len(manifests):016}" + "0" * 48
        }
        manifests.append(manifest)
        return manifest

    monkeypatch.setattr(loading, "read_manifest", always_new)
    with pytest.raises(
        SavedPolicyError,
        match=r"policy: was written 10 times while it was being read. Try again later",
    ):
        load(saved, catalog=catalog)
    assert len(manifests) == 10


def test_missing_file_is_looked_for_twice(catalog, saved, monkeypatch):
    real, read = loading.read_manifest, []
    monkeypatch.setattr(loading, "read_manifest", lambda source: read.append(1) or real(source))
    (name,) = real(saved).files
    (saved / name).unlink()
    with pytest.raises(SavedPolicyError, match=rf"^{saved / name}: cannot be read: "):
        load(saved, catalog=catalog)
    assert len(read) == 2


def test_space_is_given_as_it_was(catalog, saved):
    assert load(saved, catalog=catalog, action_space=spaces.Discrete(3)).action_space == THREE
    space = spaces.Box(-1, 1, (2,), np.float32)
    assert load(saved, catalog=catalog, observation_space=space).observation_space is space
    for name, other in (
        ("action_space", spaces.Discrete(4)),
        ("observation_space", spaces.Box(-2, 1, (2,))),
    ):
        with pytest.raises(SavedPolicyError) as caught:
            load(saved, catalog=catalog, **{name: other})
        written = THREE if name == "action_space" else OBS
        assert (
            str(caught.value) == f"{saved / 'policy.json'}: its {name} is {written}, not {other}."
        )


def test_policy_without_its_plugin_says_how_it_was_saved(catalog, saved):
    version = next(record.version for record in catalog.plugins if record.name == "fcnet")
    without = rlcatalog.Catalog([], environ={})
    with pytest.raises(MissingPluginError) as caught:
        load(saved, catalog=without)
    message = str(caught.value)
    assert message.startswith(f"{saved}: this policy cannot be restored here. ")
    assert "(It was saved for framework='torch', with " in message
    assert f"rlcatalog-fcnet {version}" in message
    assert "is not from a package" not in message


def test_model_of_the_program_is_asked_for_as_a_line_to_paste(catalog, directory):
    policy = policy_of(catalog, custom_model=Trunk)
    policy.save(directory)
    with pytest.raises(UnknownNameError) as caught:
        load(directory, catalog=catalog)
    code = (
        f"'Trunk' is not from a package. Pass its code: rlcatalog.load({str(directory)!r},"
        " model=Trunk). If it was re"
    )
    assert code in str(caught.value)
    assert (
        "gistered, import the module that registers it, and load again. (It was saved for"
        in str(caught.value)
    )
    loaded = load(directory, catalog=catalog, model=Trunk)
    np.testing.assert_array_equal(loaded.act(ROWS).dist_inputs, policy.act(ROWS).dist_inputs)
    with pytest.raises(
        ConfigError, match=r"model: 'width' had no code when the policy was saved; none did\."
    ):
        load(directory, catalog=catalog, model={"width": 3})


def test_only_unknown_names_of_the_program_are_explained(catalog, saved, edit, directory):
    parts = read_manifest(saved).parts
    edit(saved, parts={**parts, "trunk": "rlcatalog-fcnet/gone"})
    with pytest.raises(UnknownNameError, match="gone") as caught:
        load(saved, catalog=catalog)
    assert "is not from a package" not in str(caught.value)
    policy_of(catalog, custom_model=Trunk).save(directory)
    edit(directory, config={"custom_model": "Trunk", "fcnet_hidden": [2]})
    with pytest.raises(ConfigError, match="fcnet_hidden") as caught:
        load(directory, catalog=catalog, model=Trunk)
    assert "is not from a package" not in str(caught.value)


def test_filter_of_the_program_is_imported_again(catalog, directory, module):
    class Same(Filter):
        def __call__(self, encoded, *, update=False):
            return encoded.copy()

        def get_state(self):
            return {"n": np.array(3)}

        def set_state(self, state):
            self.n = int(state["n"])

    module(Same=Same)
    spec = FilterSpec("same", {"numpy": "made_up_parts:Same"}, "")
    catalog.register(spec)
    policy_of(catalog, observation_filter="same").save(directory)
    assert load(directory, catalog=catalog).filter.n == 3
    names_given = ("fcnet", "categorical", "preprocessors")
    without = rlcatalog.Catalog(
        [point for point in scan() if point.name in names_given], environ={}
    )
    with pytest.raises(UnknownNameError) as caught:
        load(directory, catalog=without)
    assert (
        "'same' is not from a package. Import the module that registers it, and load again. (It"
        in str(caught.value)
    )


def test_error_of_a_filter_names_the_file_of_its_statistics(catalog, directory, module):
    class Failing(Filter):
        text = ""

        def __call__(self, encoded, *, update=False):
            return encoded.copy()

        def get_state(self):
            return {"n": np.array(3)}

        def set_state(self, state):
            raise ValueError(self.text)

    module(Failing=Failing)
    catalog.register(FilterSpec("failing", {"numpy": "made_up_parts:Failing"}, ""))
    policy_of(catalog, observation_filter="failing").save(directory)
    path = directory / read_manifest(directory).file("filter")
    for Failing.text in ("no such statistics", f"{path} has no such statistics"):
        with pytest.raises(SavedPolicyError, match=rf"^{path}: .*no such statistics"):
            load(directory, catalog=catalog)


def test_values_that_are_not_finite_are_warned_of_by_their_arrays(catalog, directory):
    policy = policy_of(catalog)
    weights = policy.model.get_weights()
    names_of = sorted(weights)[:2]
    for name in names_of:
        weights[name].reshape(-1)[0] = np.inf
    policy.model.set_weights(weights)
    policy.save(directory)
    with pytest.warns(
        SavedPolicyWarning,
        match=rf"some values are not finite, in {', '.join(names_of)}\. Acting with",
    ):
        load(directory, catalog=catalog)


def test_model_for_one_framework_is_refused_in_the_other(catalog, directory):
    policy_of(catalog, custom_model=Trunk).save(directory)
    with pytest.raises(NotServedError, match="has no code for framework='tf'"):
        load(directory, catalog=catalog, model=Trunk, framework="tf")


def test_model_from_a_package_needs_no_code(catalog, saved):
    with pytest.raises(
        ConfigError,
        match=r"this model comes from packages: rlcatalog-fcnet/fcnet\. Remove the argument",
    ):
        load(saved, catalog=catalog, model=Trunk)


def test_a_small_file_may_describe_a_model_of_4_million_weights_in_1000_layers(
    catalog, directory, edit, monkeypatch
):
    def build(*arguments):
        raise RuntimeError("it is built")

    space, one = spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(1)
    rlcatalog.build(space, one, {"fcnet_hiddens": [2]}, "torch", catalog=catalog).save(directory)
    monkeypatch.setattr(loading, "Policy", build)
    # One hidden layer of n: 5 n weights, n + 1 for the value, n + 1 for the logits.
    for hidden in ([599_186], [1] * 998):
        edit(directory, config={"fcnet_hiddens": hidden})
        with pytest.raises(
            SavedPolicyError,
            match=r"this policy cannot be restored here. RuntimeError: it is built",
        ):
            load(directory, catalog=catalog)
    for hidden, size in (
        ([599_187], "4194311 or more in 3 layers"),
        ([1] * 999, "2005 or more in 1001 layers"),
    ):
        edit(directory, config={"fcnet_hiddens": hidden})
        with pytest.raises(
            SavedPolicyError,
            match=f"contains 16 weights in 6 arrays, but the config.* a model of {size}",
        ):
            load(directory, catalog=catalog)
