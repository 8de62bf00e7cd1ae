"""Folders of runs: what they refuse, what overwriting removes, and configs that import nothing."""

from __future__ import annotations

import json
import os

import pytest

from rlcatalog.errors import RunFolderError, SavedPolicyError
from rlcatalog_runs import read_config, refuse_taken, run_folder, write_config

# --- folders with a run ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "policy", "algorithm.zip"])
def test_folder_that_contains_a_run_is_refused(name, tmp_path):
    (tmp_path / name).write_text("a run")

    with pytest.raises(RunFolderError, match="already contains a run") as caught:
        refuse_taken(tmp_path, overwrite=False)

    assert isinstance(caught.value, FileExistsError)
    assert str(tmp_path) in str(caught.value)
    assert "--overwrite" in str(caught.value)
    assert (tmp_path / name).read_text() == "a run"


def test_run_folder_refuses_a_folder_with_a_run(tmp_path):
    (tmp_path / "config.json").write_text("a run")

    with pytest.raises(RunFolderError, match="already contains a run"), run_folder(tmp_path):
        pass

    assert (tmp_path / "config.json").read_text() == "a run"


def test_folder_is_removed_if_nothing_was_written(tmp_path):
    with pytest.raises(ZeroDivisionError), run_folder(tmp_path / "run"):
        raise ZeroDivisionError

    assert not (tmp_path / "run").exists()


# --- overwriting ----------------------------------------------------------------------------------


def test_overwriting_removes_the_files_of_a_run_alone(tmp_path):
    (tmp_path / "policy").mkdir()
    (tmp_path / "config.json").write_text("of a run")
    (tmp_path / "policy/policy.json").write_text("of a run")
    (tmp_path / "policy/weights-0123456789abcdef.safetensors").write_text("of a run")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "policy/notes.txt").write_text("mine")

    with run_folder(tmp_path, overwrite=True):
        names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))

    # While the run is written, the folder is locked.
    assert names == ["notes.txt", "policy", "policy/notes.txt", "run.lock"]


def test_overwriting_keeps_the_file_that_a_link_points_to(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    (run / "progress.csv").symlink_to(outside)

    with run_folder(run, overwrite=True):
        assert os.listdir(run) == ["run.lock"]

    assert outside.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "file_in_folder"),
    [
        ("checkpoints", "step-000000001"),
        ("tensorboard", "events.out.tfevents.1.2"),
        ("wandb", "run-1"),
        ("policy", "policy.json"),
    ],
)
def test_overwriting_keeps_the_folder_that_a_link_points_to(tmp_path, name, file_in_folder):
    outside = tmp_path / "outside"
    outside.mkdir()
    # A file with the name of a run's own, which overwriting would remove from a real folder.
    (outside / file_in_folder).write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    (run / name).symlink_to(outside)

    with run_folder(run, overwrite=True):
        assert os.listdir(run) == ["run.lock"]

    assert (outside / file_in_folder).read_text() == "mine"


# --- the config -----------------------------------------------------------------------------------


def test_module_in_an_env_id_is_written_beside_it(tmp_path):
    write_config(tmp_path, "some.module:Env-v0", {"algorithm": {}})

    assert json.loads((tmp_path / "config.json").read_text()) == {
        "env": "Env-v0",
        "env_module": "some.module",
        "algorithm": {},
    }


def test_module_in_a_config_is_not_imported(tmp_path):
    write_config(tmp_path, "some.module:Env-v0", {"algorithm": {}})

    with pytest.raises(SavedPolicyError, match=r"pass --import some\.module"):
        read_config(tmp_path)


def test_config_with_a_module_from_the_user_is_read(tmp_path):
    write_config(tmp_path, "some.module:Env-v0", {"algorithm": {}})

    assert read_config(tmp_path, ["some.module"])["env"] == "Env-v0"


def test_config_has_the_config_of_its_environment(tmp_path):
    env_config = {"render_mode": None}
    write_config(tmp_path, "CartPole-v1", {"algorithm": {"env_config": env_config}})

    assert read_config(tmp_path)["algorithm"]["env_config"] == env_config


@pytest.mark.parametrize(
    "config",
    [
        {"env": "evil:CartPole-v1"},
        {"env": " evil.mod:\nCartPole-v1"},
        {
            "env": "CartPole-v1",
            "algorithm": {"env_config": {"wrappers": [{"cls": "evil.mod:Wrapper"}]}},
        },
        {"env": "CartPole-v1", "algorithm": {"env_config": {"evil:x": 1}}},
    ],
    ids=str,
)
def test_config_with_an_import_path_is_an_error(tmp_path, config):
    (tmp_path / "config.json").write_text(json.dumps({"algorithm": {}, **config}))

    with pytest.raises(SavedPolicyError, match="names the import path"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"3",
        b"{}",
        b'{"env": 3, "algorithm": {}}',
        b'{"env": "x", "algorithm": []}',
        pytest.param(b"[" * 100_000, id="nested"),
        pytest.param(b"\xed\xa0\x80", id="surrogate"),
        b'{"env": "x", "algorithm": {"env_config": [1]}}',
        b'{"env": ["a:b"], "algorithm": {}}',
    ],
)
def test_damaged_config_is_an_error(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)

    with pytest.raises(SavedPolicyError, match="not a folder that `rlcatalog train`") as caught:
        read_config(tmp_path)

    assert "`rlcatalog train` wrote: config.json" in str(caught.value)


def test_config_that_is_a_pipe_is_an_error(tmp_path):
    os.mkfifo(tmp_path / "config.json")

    with pytest.raises(SavedPolicyError, match="not a regular file"):
        read_config(tmp_path)
