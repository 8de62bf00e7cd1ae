"""Records of runs: what they were made with, how they ended, and where they stand by default."""

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

from rlcatalog.errors import RunFolderError, SavedPolicyError
from rlcatalog_runs import default_folder, recorded, run_folder
from rlcatalog_runs.records import read_record
from rlcatalog_runs.surroundings import hardware, revision, versions

# --- folders --------------------------------------------------------------------------------------


def test_a_new_folder_for_each_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = [default_folder("CartPole-v1") for _ in range(12)]
    assert len(set(made)) == 12
    assert all(folder.is_dir() for folder in made)
    begun = datetime.strptime(made[0].name, "%Y-%m-%dT%H-%M-%S-seed0").replace(tzinfo=UTC)
    assert abs((datetime.now(UTC) - begun).total_seconds()) < 60
    assert all(re.fullmatch(r"[\d-]{10}T[\d-]{8}-seed0(-\d+)?", folder.name) for folder in made)


@pytest.mark.parametrize(
    ("arguments", "end"),
    [
        (("ALE/Pong-v5", None, 3), "ALE_Pong-v5/T-seed3"),
        (
            ("minigrid:MiniGrid-Empty-5x5-v0", "A2C", 0),
            "minigrid_MiniGrid-Empty-5x5-v0/T-A2C-seed0",
        ),
        (("..", None, [0, 1, 2]), "_/T-3seeds"),
    ],
)
def test_a_folder_is_named_after_what_runs(arguments, end, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = default_folder(*arguments)
    assert re.sub(r"[\d-]{10}T[\d-]{8}", "T", folder.as_posix()) == f"runs/{end}"
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_a_run_that_goes_on_keeps_what_is_there(tmp_path):
    with (
        pytest.raises(SavedPolicyError, match="contains no run to resume"),
        run_folder(tmp_path / "none", resume=True),
    ):
        pass
    assert not (tmp_path / "none").exists()
    (tmp_path / "metrics.jsonl").write_text("rows")
    with run_folder(tmp_path, resume=True):
        with (
            pytest.raises(RunFolderError, match="another process"),
            run_folder(tmp_path, resume=True),
        ):
            pass
        assert (tmp_path / "metrics.jsonl").read_text() == "rows"


# --- records --------------------------------------------------------------------------------------


def test_a_record_says_what_the_run_was_made_with(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["rlcatalog", "train", "CartPole-v1"])
    with (
        run_folder(tmp_path),
        recorded(tmp_path, engine="stable_baselines3", packages=("json", "no_such_module")),
    ):
        begun = json.loads((tmp_path / "run.json").read_text())
        assert begun["status"] == "running"
        assert begun["ended"] is begun["seconds"] is begun["error"] is None
        assert read_record(tmp_path)["status"] == "running"
    ended = json.loads((tmp_path / "run.json").read_text())
    assert ended["status"] == "finished"
    assert ended["error"] is None
    assert 0 <= ended["seconds"] < 60
    assert ended["started"] <= ended["ended"]
    for time in (ended["started"], ended["ended"]):
        assert abs((datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()) < 60
    assert ended["command"] == ["rlcatalog", "train", "CartPole-v1"]
    assert ended["engine"] == "stable_baselines3"
    assert ended["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert ended["versions"]["json"] == json.__version__
    assert "no_such_module" not in ended["versions"]
    assert set(ended["hardware"]) == {
        "platform",
        "machine",
        "cpu",
        "cores",
        "usable_cores",
        "memory",
        "gpus",
    }
    assert ended["hardware"]["cores"] == os.cpu_count()
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ValueError("the first line\nthe second"), "failed", "ValueError: the first line"),
        (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt"),
        (SystemExit(143), "interrupted", "SystemExit: 143"),
    ],
)
def test_a_record_says_how_the_run_ended(error, status, line, tmp_path):
    with pytest.raises(type(error)), run_folder(tmp_path), recorded(tmp_path):
        raise error
    record = read_record(tmp_path)
    assert (record["status"], record["error"]) == (status, line)
    assert record["ended"]
    with run_folder(tmp_path, overwrite=True), recorded(tmp_path):
        pass
    assert read_record(tmp_path)["status"] == "finished"
    assert read_record(tmp_path)["error"] is None


def test_the_runs_own_error_is_told_where_its_record_cannot_be_completed(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    def run():
        with run_folder(tmp_path), recorded(tmp_path):
            monkeypatch.setattr("rlcatalog_runs.records.write_file", full)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    # It still says that it runs, and nobody holds the folder.
    assert read_record(tmp_path)["status"] == "died"


def test_a_resumed_run_keeps_when_it_began(tmp_path):
    with run_folder(tmp_path), recorded(tmp_path):
        pass
    first = read_record(tmp_path)
    (tmp_path / "run.json").write_text(
        json.dumps({**first, "seconds": 100.0, "status": "interrupted"})
    )
    for times in (1, 2):
        with run_folder(tmp_path, resume=True), recorded(tmp_path, resumed=True):
            assert read_record(tmp_path)["status"] == "running"
        record = read_record(tmp_path)
        assert record["started"] == first["started"]
        assert 100 <= record["seconds"] < 160
        assert len(record["resumed"]) == times
    (tmp_path / "run.json").write_text("{")
    with run_folder(tmp_path, resume=True), recorded(tmp_path, resumed=True):
        pass
    assert read_record(tmp_path)["status"] == "finished"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"status": 3}', "[" * 100_000, "\ud800"], ids=range(6)
)
def test_a_damaged_record_is_refused(text, tmp_path):
    assert read_record(tmp_path) is None
    (tmp_path / "run.json").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(SavedPolicyError, match=r"run\.json: not a record of a run"):
        read_record(tmp_path)


# --- surroundings ---------------------------------------------------------------------------------


def test_no_framework_is_imported_for_its_version(tmp_path):
    code = (
        "import sys\nimport gymnasium\nfrom rlcatalog_runs.surroundings import hardware,"
        " versions\nfound = versions(('ray', 'stable_baselines3'))\nhardware()\nassert not"
        " {'torch', 'tensorflow', 'ray', 'stable_baselines3'} & set(sys.modules), sys.modules\n"
        "assert not {'torch', 'tensorflow', 'ray', 'stable_baselines3'} & set(found), found\n"
        "assert {'python', 'rlcatalog', 'numpy', 'gymnasium'} <= set(found), found\n"
    )
    done = warm.run(["-c", code], tmp_path, frameworks=False)
    assert done.returncode == 0, done.stderr


def test_what_is_imported_is_noted_with_its_version(monkeypatch):
    import numpy as np

    class Torch:
        __version__ = "9.9"

    monkeypatch.setitem(sys.modules, "torch", Torch)
    found = versions()
    assert found["torch"] == "9.9"
    assert found["numpy"] == np.__version__


def test_a_version_that_a_module_lacks_is_its_package_s(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytest", ModuleType("pytest"))
    assert versions(["pytest"])["pytest"] == pytest.__version__


def test_a_version_that_nothing_states_is_unknown(monkeypatch):
    monkeypatch.setitem(sys.modules, "acme_engine", ModuleType("acme_engine"))
    assert versions(["acme_engine"])["acme_engine"] == "unknown"


def test_accelerators_are_named_by_a_framework_that_has_started_them_and_none_is_started(
    monkeypatch,
):
    class Cuda:
        started = False

        def is_initialized(self):
            return self.started

        def device_count(self):
            assert self.started
            return 2

        def get_device_name(self, index):
            assert self.started
            return f"GPU {index}"

    class Torch:
        __version__ = "9.9"
        cuda = Cuda()

    monkeypatch.setitem(sys.modules, "torch", Torch)
    assert not [name for name in hardware()["gpus"] if name in ("GPU 0", "GPU 1")]
    Torch.cuda.started = True
    assert hardware()["gpus"] == ["GPU 0", "GPU 1"]


def test_neither_user_nor_machine_is_named(monkeypatch):
    for name, value in (
        ("LOGNAME", "ada-l"),
        ("USER", "ada-l"),
        ("HOME", os.path.join(os.sep, "home", "ada-l")),
        ("HOSTNAME", "ada-l"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("platform.node", lambda: "ada-l")
    monkeypatch.setattr("socket.gethostname", lambda: "ada-l")
    assert "ada-l" not in json.dumps([hardware(), versions(), revision()])


def git(*arguments, cwd):
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_the_revision_of_the_code_and_whether_it_was_changed(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    assert revision() is None  # no work tree
    git("init", "-q", cwd=tmp_path)
    assert revision() is None  # no commit
    (tmp_path / "code.py").write_text("one")
    git("add", "code.py", cwd=tmp_path)
    git("commit", "-q", "-m", "one", cwd=tmp_path)
    head = git("rev-parse", "HEAD", cwd=tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/new").write_text("not tracked")
    assert revision() == {"revision": head, "dirty": False}
    (tmp_path / "code.py").write_text("two")
    assert revision() == {"revision": head, "dirty": True}


def test_asking_for_the_revision_runs_nothing_of_the_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git("init", "-q", cwd=tmp_path)
    (tmp_path / "code.py").write_text("one")
    git("add", "code.py", cwd=tmp_path)
    git("commit", "-q", "-m", "one", cwd=tmp_path)
    ran, script = tmp_path / "ran", tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {ran}\n")
    script.chmod(0o755)
    for hook in ("post-index-change", "fsmonitor-watchman"):
        (tmp_path / ".git/hooks").mkdir(exist_ok=True)
        (tmp_path / ".git/hooks" / hook).write_text(script.read_text())
        (tmp_path / ".git/hooks" / hook).chmod(0o755)
    git("config", "core.fsmonitor", str(script), cwd=tmp_path)
    os.utime(tmp_path / "code.py", (1, 1))  # git has something to refresh
    assert revision() is not None
    assert not ran.exists()
    subprocess.run(["git", "status"], cwd=tmp_path, capture_output=True, check=True)
    assert ran.exists()  # the control: asked in the usual way, it runs


@pytest.mark.parametrize("path", ["", "broken"])
def test_without_a_git_that_works_there_is_no_revision(path, tmp_path, monkeypatch):
    (tmp_path / "git").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) if path else "")
    assert revision() is None
