"""Folders of training runs: one run, one writer, and a config that makes nobody import anything."""

from __future__ import annotations

import json
import os

import gymnasium as gym
import pytest

from rlcatalog.errors import CatalogError, RunFolderError, SavedPolicyError, UnknownNameError
from rlcatalog_runs import import_modules, read_config, refuse_taken, run_folder, write_config


@pytest.mark.parametrize(
    "name", ["config.json", "metrics.jsonl", "policy", "progress.csv", "algorithm.zip"]
)
def test_a_folder_that_holds_a_run_is_refused_and_stays_as_it_is(tmp_path, name):
    (tmp_path / name).write_text("a run")
    for attempt in (lambda: refuse_taken(tmp_path, False), run_folder(tmp_path).__enter__):
        with pytest.raises(RunFolderError, match="already contains a run") as caught:
            attempt()
        assert isinstance(caught.value, FileExistsError)
        assert str(tmp_path) in str(caught.value)
        assert "--overwrite" in str(caught.value)
    assert (tmp_path / name).read_text() == "a run"


def test_overwriting_removes_the_run_and_nothing_else(tmp_path):
    run, outside = tmp_path / "run", tmp_path / "outside"
    (run / "policy").mkdir(parents=True)
    outside.write_text("mine")
    for name in (
        "config.json",
        "metrics.jsonl",
        "policy/policy.json",
        "policy/weights-0123456789abcdef.safetensors",
    ):
        (run / name).write_text("a run")
    (run / "progress.csv").symlink_to(outside)
    for name in ("notes.txt", "policy/notes.txt"):
        (run / name).write_text("mine")
    with run_folder(run, overwrite=True):
        found = sorted(str(path.relative_to(run)) for path in run.rglob("*"))
        assert found == ["notes.txt", "policy", "policy/notes.txt", "run.lock"]
    assert outside.read_text() == "mine"


def test_a_policy_that_is_a_link_is_unlinked_and_what_it_points_at_stays(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/policy.json").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/policy").symlink_to(tmp_path / "other")
    with run_folder(tmp_path / "run", overwrite=True):
        assert not os.path.lexists(tmp_path / "run/policy")
    assert (tmp_path / "other/policy.json").read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["checkpoints", "tensorboard", "wandb", "best", "policy", "learning_curve.png"]
)
def test_overwriting_follows_no_links(tmp_path, name):
    outside, run = tmp_path / "outside", tmp_path / "run"
    (outside / "step-000000001").mkdir(parents=True)
    for inside in ("events.out.tfevents.1.2", "run-1", "policy.json"):
        (outside / inside).write_text("mine")
    run.mkdir()
    (run / name).symlink_to(outside)
    with run_folder(run, overwrite=True):
        assert os.listdir(run) == ["run.lock"]
    assert len(os.listdir(outside)) == 4


def test_a_folder_in_which_nothing_was_written_does_not_stay(tmp_path):
    with pytest.raises(ZeroDivisionError), run_folder(tmp_path / "run"):
        raise ZeroDivisionError
    assert not (tmp_path / "run").exists()


# --- the config -----------------------------------------------------------------------------------


def test_a_module_that_was_typed_is_noted_and_not_followed(tmp_path):
    write_config(tmp_path, "some.module:Env-v0", {"algorithm": {}})
    assert json.loads((tmp_path / "config.json").read_text()) == {
        "env": "Env-v0",
        "env_module": "some.module",
        "algorithm": {},
    }
    with pytest.raises(SavedPolicyError, match=r"pass --import some\.module"):
        read_config(tmp_path)
    assert read_config(tmp_path, ["some.module"])["env"] == "Env-v0"
    write_config(tmp_path, "CartPole-v1", {"algorithm": {"env_config": {"render_mode": None}}})
    assert read_config(tmp_path)["algorithm"]["env_config"] == {"render_mode": None}


@pytest.mark.parametrize(
    "config",
    [
        {"env": "evil:CartPole-v1"},
        {"env": " evil.mod:CartPole-v1"},
        {"env": "evil:a:b"},
        {"env": "evil:\nCartPole-v1"},
        {"env": "CartPole-v1", "algorithm": {"env_config": {"env_id": "evil:CartPole-v1"}}},
        {
            "env": "CartPole-v1",
            "algorithm": {"env_config": {"wrappers": [{"cls": "evil.mod:Wrapper"}]}},
        },
        {"env": "CartPole-v1", "algorithm": {"env_config": {"evil:x": 1}}},
    ],
)
def test_an_import_path_in_a_config_is_refused(tmp_path, config):
    (tmp_path / "config.json").write_text(json.dumps({"algorithm": {}, **config}))
    with pytest.raises(SavedPolicyError, match="names the import path"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "{}",
        '{"env": 3, "algorithm": {}}',
        '{"env": "x", "algorithm": []}',
        "[" * 100_000,
        "\ud800",
        '{"env": "x", "algorithm": {"env_config": [1]}}',
        '{"env": ["a:b"], "algorithm": {}}',
    ],
    ids=range(10),
)
def test_a_damaged_config_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(
        SavedPolicyError, match=r"not a folder that `rlcatalog train` wrote: config\.json"
    ):
        read_config(tmp_path)


def test_a_config_that_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(SavedPolicyError, match="not a regular file"):
        read_config(tmp_path)


@pytest.mark.parametrize("name", ["no_such_module_anywhere", "", ".x", "a:b"])
def test_a_module_that_cannot_be_imported_is_named(name):
    with pytest.raises(UnknownNameError, match="--import") as caught:
        import_modules([name])
    assert isinstance(caught.value, CatalogError)


def test_a_module_registers_its_environments_when_asked(tmp_path, monkeypatch):
    code = (
        "import gymnasium\ndef register_envs():\n    gymnasium.register('Asked-v0', lambda: None)\n"
    )
    (tmp_path / "registers_when_asked.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert (
            import_modules(["registers_when_asked"], "Asked-v0") == "registers_when_asked:Asked-v0"
        )
    finally:
        gym.registry.pop("Asked-v0")
