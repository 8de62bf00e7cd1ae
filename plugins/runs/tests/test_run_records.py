"""Records of runs: their default folders, how they ended, and what they were made with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from types import ModuleType

import pytest
import warm

from rlcatalog.errors import SavedPolicyError
from rlcatalog_runs import default_folder, record_run, run_folder
from rlcatalog_runs.records import read_record
from rlcatalog_runs.surroundings import hardware, revision, versions


def read_json(path):
    return json.loads(path.read_text())


def seconds_since(time):
    return (datetime.now(UTC) - time).total_seconds()


# --- default folders ------------------------------------------------------------------------------


def test_default_folders_of_the_same_second_have_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    folders = [default_folder("CartPole-v1") for _ in range(12)]

    assert len(set(folders)) == 12
    for folder in folders:
        assert folder.is_dir()
        assert re.fullmatch(r"[\d-]{10}T[\d-]{8}-seed0(-\d+)?", folder.name)


def test_default_folder_is_named_by_time_and_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    folder = default_folder("CartPole-v1")

    time = datetime.strptime(folder.name, "%Y-%m-%dT%H-%M-%S-seed0").replace(tzinfo=UTC)
    assert abs(seconds_since(time)) < 60


@pytest.mark.parametrize(
    ("env_id", "algorithm", "seed", "name"),
    [
        ("ALE/Pong-v5", None, 3, "ALE_Pong-v5/TIME-seed3"),
        (
            "minigrid:MiniGrid-Empty-5x5-v0",
            "A2C",
            0,
            "minigrid_MiniGrid-Empty-5x5-v0/TIME-A2C-seed0",
        ),
        ("..", None, [0, 1, 2], "_/TIME-3seeds"),
    ],
)
def test_default_folder_is_named_by_what_runs(env_id, algorithm, seed, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    folder = default_folder(env_id, algorithm, seed)

    assert re.sub(r"[\d-]{10}T[\d-]{8}", "TIME", folder.as_posix()) == f"runs/{name}"
    # Nothing outside of this folder, whatever the environment's id.
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


# --- folders of resumed runs ----------------------------------------------------------------------


def test_resume_in_a_missing_folder_is_an_error(tmp_path):
    folder = tmp_path / "none"

    with (
        pytest.raises(SavedPolicyError, match="contains no run to resume"),
        run_folder(folder, resume=True),
    ):
        pass

    assert not folder.exists()


def test_resumed_run_keeps_its_files(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("rows")

    with run_folder(tmp_path, resume=True):
        assert (tmp_path / "metrics.jsonl").read_text() == "rows"


# --- records --------------------------------------------------------------------------------------


def test_record_of_a_running_run_has_no_end(tmp_path):
    with run_folder(tmp_path), record_run(tmp_path):
        record = read_json(tmp_path / "run.json")
        assert read_record(tmp_path)["status"] == "running"

    assert record["status"] == "running"
    assert record["ended"] is None
    assert record["seconds"] is None
    assert record["error"] is None


@pytest.fixture
def record(tmp_path, monkeypatch):
    """The record of a finished run of Stable-Baselines3."""
    monkeypatch.setattr(sys, "argv", ["rlcatalog", "train", "CartPole-v1"])
    with (
        run_folder(tmp_path),
        record_run(tmp_path, engine="stable_baselines3", packages=("json", "no_such_module")),
    ):
        pass
    return read_json(tmp_path / "run.json")


def test_record_of_a_finished_run_has_its_times(record):
    assert record["status"] == "finished"
    assert record["error"] is None
    assert 0 <= record["seconds"] < 60
    assert record["started"] <= record["ended"]
    for name in ("started", "ended"):
        assert abs(seconds_since(datetime.fromisoformat(record[name]))) < 60


def test_record_has_command_and_engine(record):
    assert record["command"] == ["rlcatalog", "train", "CartPole-v1"]
    assert record["engine"] == "stable_baselines3"


def test_record_has_versions_of_installed_packages(record):
    assert record["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert record["versions"]["json"] == json.__version__
    assert "no_such_module" not in record["versions"]


def test_record_has_the_hardware(record):
    assert set(record["hardware"]) == {
        "platform",
        "machine",
        "cpu",
        "cores",
        "usable_cores",
        "memory",
        "gpus",
    }
    assert record["hardware"]["cores"] == os.cpu_count()


def test_record_leaves_no_other_file(record, tmp_path):
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ValueError("the first line\nthe second"), "failed", "ValueError: the first line"),
        (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt"),
        (SystemExit(143), "interrupted", "SystemExit: 143"),
    ],
    ids=["error", "ctrl-c", "exit"],
)
def test_record_has_the_error_that_ended_the_run(error, status, line, tmp_path):
    with pytest.raises(type(error)), run_folder(tmp_path), record_run(tmp_path):
        raise error

    record = read_record(tmp_path)
    assert record["status"] == status
    assert record["error"] == line
    assert record["ended"]


def test_record_of_an_overwritten_run_has_no_error(tmp_path):
    with pytest.raises(ZeroDivisionError), run_folder(tmp_path), record_run(tmp_path):
        raise ZeroDivisionError

    with run_folder(tmp_path, overwrite=True), record_run(tmp_path):
        pass

    assert read_record(tmp_path)["status"] == "finished"
    assert read_record(tmp_path)["error"] is None


def test_error_of_a_run_is_raised_if_its_record_is_not_written(tmp_path, monkeypatch):
    def fail_on_a_full_disk(*arguments):
        raise OSError(28, "No space left on device")

    def fail_in_a_run():
        with run_folder(tmp_path), record_run(tmp_path):
            monkeypatch.setattr("rlcatalog_runs.records.write_file", fail_on_a_full_disk)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_a_run()

    # run.json still says that the run goes on, but no process has locked the folder.
    assert read_record(tmp_path)["status"] == "died"


@pytest.fixture
def interrupted_after_100_seconds(tmp_path):
    """The record of a run in `tmp_path`."""
    with run_folder(tmp_path), record_run(tmp_path):
        pass
    record = {**read_record(tmp_path), "seconds": 100.0, "status": "interrupted"}
    (tmp_path / "run.json").write_text(json.dumps(record))
    return record


@pytest.mark.parametrize("times", [1, 2])
def test_record_of_a_resumed_run_keeps_its_start(interrupted_after_100_seconds, times, tmp_path):
    for _ in range(times):
        with run_folder(tmp_path, resume=True), record_run(tmp_path, resumed=True):
            assert read_record(tmp_path)["status"] == "running"

    record = read_record(tmp_path)
    assert record["started"] == interrupted_after_100_seconds["started"]
    assert 100 <= record["seconds"] < 160
    assert len(record["resumed"]) == times


def test_damaged_record_is_replaced_by_a_resumed_run(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("rows")
    (tmp_path / "run.json").write_text("{")

    with run_folder(tmp_path, resume=True), record_run(tmp_path, resumed=True):
        pass

    assert read_record(tmp_path)["status"] == "finished"


def test_folder_without_a_record_has_none(tmp_path):
    assert read_record(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"[" * 100_000, b"\xed\xa0\x80"],
    ids=["empty", "nested", "surrogate"],
)
def test_record_that_is_not_json_is_an_error(content, tmp_path):
    (tmp_path / "run.json").write_bytes(content)

    with pytest.raises(SavedPolicyError, match=r"run\.json: not a record of a run"):
        read_record(tmp_path)


@pytest.mark.parametrize(
    "record",
    [
        [],
        {},
        {"status": 3},
        {"status": "died", "seconds": "x"},
        {"status": "died", "resumed": [3]},
        {"status": "died", "started": 3},
        {"status": "died", "error": []},
    ],
    ids=str,
)
def test_record_with_a_wrong_value_is_an_error(record, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(record))

    with pytest.raises(SavedPolicyError, match=r"run\.json: not a record of a run"):
        read_record(tmp_path)


# --- versions and hardware ------------------------------------------------------------------------


def test_versions_and_hardware_import_no_framework(tmp_path):
    code = """
import sys
import gymnasium
from rlcatalog_runs.surroundings import hardware, versions

package_versions = versions(("ray", "stable_baselines3"))
hardware()
frameworks = {"torch", "tensorflow", "ray", "stable_baselines3"}
assert not frameworks & set(sys.modules), sys.modules
# Only packages that are imported have a version here.
assert not frameworks & set(package_versions), package_versions
assert {"python", "rlcatalog", "numpy", "gymnasium"} <= set(package_versions), package_versions
"""

    process = warm.run(["-c", code], tmp_path, frameworks=False)

    assert process.returncode == 0, process.stderr


def test_versions_are_those_of_imported_packages(monkeypatch):
    import numpy as np

    class Torch:
        __version__ = "9.9"

    monkeypatch.setitem(sys.modules, "torch", Torch)

    assert versions()["torch"] == "9.9"
    assert versions()["numpy"] == np.__version__


def test_version_that_a_module_lacks_is_its_package_s(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytest", ModuleType("pytest"))

    assert versions(["pytest"])["pytest"] == pytest.__version__


def test_version_of_a_module_without_a_package_is_unknown(monkeypatch):
    monkeypatch.setitem(sys.modules, "acme_engine", ModuleType("acme_engine"))

    assert versions(["acme_engine"])["acme_engine"] == "unknown"


class FakeCuda:
    """Two GPUs, whose names can be read once CUDA is initialised."""

    def __init__(self, *, initialized):
        self.initialized = initialized

    def is_initialized(self):
        return self.initialized

    def device_count(self):
        assert self.initialized
        return 2

    def get_device_name(self, index):
        assert self.initialized
        return f"GPU {index}"


@pytest.fixture
def torch_with_cuda(monkeypatch):
    """Replace PyTorch by one with two GPUs, called "GPU 0" and "GPU 1"."""

    def replace(*, initialized):
        module = ModuleType("torch")
        module.__version__ = "9.9"
        module.cuda = FakeCuda(initialized=initialized)
        monkeypatch.setitem(sys.modules, "torch", module)

    return replace


def test_gpus_are_named_if_cuda_is_initialized(torch_with_cuda):
    torch_with_cuda(initialized=True)

    assert hardware()["gpus"] == ["GPU 0", "GPU 1"]


def test_gpus_are_not_named_before_cuda_is_initialized(torch_with_cuda):
    """Naming them would initialise it, which takes time and memory."""
    torch_with_cuda(initialized=False)

    # TensorFlow may name others.
    assert not {"GPU 0", "GPU 1"} & set(hardware()["gpus"])


def test_record_names_neither_user_nor_computer(monkeypatch):
    name = "ada-l"
    for variable in ("LOGNAME", "USER", "HOSTNAME"):
        monkeypatch.setenv(variable, name)
    monkeypatch.setenv("HOME", os.path.join(os.sep, "home", name))
    monkeypatch.setattr("platform.node", lambda: name)
    monkeypatch.setattr("socket.gethostname", lambda: name)

    assert name not in json.dumps([hardware(), versions(), revision()])


# --- the revision of the code ---------------------------------------------------------------------


def git(*arguments, cwd):
    """Run git with none of the user's settings, and return what it prints."""
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    process = subprocess.run(
        ["git", *identity, *arguments],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    return process.stdout.strip()


@pytest.fixture
def folder_without_git(tmp_path, monkeypatch):
    """The current folder, which is in no repository."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def repository(folder_without_git):
    """The current folder, which is a repository with the file code.py and one commit."""
    git("init", "-q", cwd=folder_without_git)
    (folder_without_git / "code.py").write_text("one")
    git("add", "code.py", cwd=folder_without_git)
    git("commit", "-q", "-m", "one", cwd=folder_without_git)
    return folder_without_git


def test_revision_without_a_repository_is_none(folder_without_git):
    assert revision() is None


def test_revision_without_a_commit_is_none(folder_without_git):
    git("init", "-q", cwd=folder_without_git)

    assert revision() is None


def test_revision_ignores_files_that_are_not_tracked(repository):
    (repository / "runs").mkdir()
    (repository / "runs/new").write_text("not tracked")

    assert revision() == {"revision": git("rev-parse", "HEAD", cwd=repository), "dirty": False}


def test_revision_of_changed_code_is_dirty(repository):
    (repository / "code.py").write_text("two")

    assert revision() == {"revision": git("rev-parse", "HEAD", cwd=repository), "dirty": True}


@pytest.fixture
def file_of_hooks(repository):
    """The file that a repository's hooks would write if git ran one for `git status`."""
    file = repository / "written-by-a-hook"
    script = repository / "script"
    script.write_text(f"#!/bin/sh\ntouch {file}\n")
    script.chmod(0o755)
    (repository / ".git/hooks").mkdir(exist_ok=True)
    for name in ("post-index-change", "fsmonitor-watchman"):
        hook = repository / ".git/hooks" / name
        hook.write_text(script.read_text())
        hook.chmod(0o755)
    git("config", "core.fsmonitor", str(script), cwd=repository)
    os.utime(repository / "code.py", (1, 1))  # git has something to refresh
    return file


def test_revision_runs_no_hook_of_the_repository(repository, file_of_hooks):
    assert revision() is not None

    assert not file_of_hooks.exists()
    # `git status` on its own runs them.
    subprocess.run(["git", "status"], cwd=repository, capture_output=True, check=True)
    assert file_of_hooks.exists()


def test_revision_without_git_is_none(monkeypatch):
    monkeypatch.setenv("PATH", "")

    assert revision() is None


def test_revision_with_a_broken_git_is_none(tmp_path, monkeypatch):
    (tmp_path / "git").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert revision() is None
