"""Locks of run folders: between processes, after a kill, and on file systems without locks."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from rlcatalog.errors import CatalogWarning, RunFolderError
from rlcatalog_runs import Engine, read_config, record_run, refuse_taken, run_folder
from rlcatalog_runs.engines import resumed_plan
from rlcatalog_runs.locks import LOCK, FolderLock
from rlcatalog_runs.records import read_record

WRITER = """
import sys, time
from pathlib import Path
from rlcatalog_runs import record_run, run_folder, write_config
folder = Path(sys.argv[1])
with run_folder(folder), record_run(folder):
    write_config(folder, "CartPole-v1", {"algorithm": {}, "run": {"engine": "ppo"}})
    print("writing", flush=True)
    time.sleep(60)
"""

#: A run whose process has a forked child, such as a worker, which outlives it. The child prints its
#: number when everything that happens after a fork is done.
PARENT = """
import os, sys, time
from pathlib import Path
from rlcatalog_runs import run_folder
with run_folder(Path(sys.argv[1])):
    if not os.fork():
        print(os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
"""


def start_process(code, folder):
    command = [sys.executable, "-c", code, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


@pytest.fixture(scope="module")
def folder_in_use(tmp_path_factory):
    """A folder to which another process is writing a run; not to be written to."""
    folder = tmp_path_factory.mktemp("in_use") / "run"
    process = start_process(WRITER, folder)
    assert process.stdout.readline() == "writing\n"
    yield folder
    kill(process)


@pytest.fixture(scope="module")
def run_of_killed_process(tmp_path_factory):
    """The folder of a run whose process was killed; not to be written to."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    process = start_process(WRITER, folder)
    assert process.stdout.readline() == "writing\n"
    kill(process)
    return folder


@pytest.fixture
def killed_run(run_of_killed_process, tmp_path):
    """A copy of the folder of a run whose process was killed."""
    return shutil.copytree(run_of_killed_process, tmp_path / "killed")


def read_files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def let_flock_fail(monkeypatch, number):
    """Let the system refuse locks with an error of this number."""

    def flock(handle, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)


# --- two processes --------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"resume": True}], ids=str)
def test_run_folder_refuses_a_second_process(folder_in_use, options):
    before = read_files(folder_in_use)

    with (
        pytest.raises(RunFolderError, match="another process is writing a run") as caught,
        run_folder(folder_in_use, **options),
    ):
        pass

    assert str(folder_in_use) in str(caught.value)
    assert "Wait until it has ended, or stop it." in str(caught.value)
    assert read_files(folder_in_use) == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_refuse_taken_refuses_a_folder_in_use(folder_in_use, overwrite):
    with pytest.raises(RunFolderError, match="another process is writing a run"):
        refuse_taken(folder_in_use, overwrite)


def test_resumed_plan_refuses_a_folder_in_use(folder_in_use):
    config = read_config(folder_in_use)

    with pytest.raises(RunFolderError, match="another process is writing a run"):
        resumed_plan(Engine, folder_in_use, config, typed={}, imported=())


def test_run_folder_refuses_a_second_run_of_its_process(folder):
    with (
        run_folder(folder),
        pytest.raises(RunFolderError, match="another process is writing a run"),
        run_folder(folder),
    ):
        pass


def test_record_of_a_live_process_is_running(folder_in_use):
    assert read_record(folder_in_use)["status"] == "running"


def test_record_of_a_killed_process_has_died(run_of_killed_process):
    text = (run_of_killed_process / "run.json").read_text()
    assert json.loads(text)["status"] == "running"
    assert read_record(run_of_killed_process)["status"] == "died"


def test_record_of_a_copied_run_has_died(folder_in_use, tmp_path):
    """It is a new folder, which no process has locked, although the lock's file is there."""
    copy = shutil.copytree(folder_in_use, tmp_path / "copy")

    assert (copy / LOCK).exists()
    assert read_record(copy)["status"] == "died"


@pytest.mark.parametrize("options", [{"overwrite": True}, {"resume": True}], ids=str)
def test_run_folder_of_a_killed_run_is_free(killed_run, options):
    assert (killed_run / LOCK).exists()

    with run_folder(killed_run, **options), record_run(killed_run):
        assert read_record(killed_run)["status"] == "running"

    assert read_record(killed_run)["status"] == "finished"


def test_lock_is_released_while_a_forked_child_lives(folder):
    # This process writes a run, forks a child that does nothing, and prints the child's number.
    process = start_process(PARENT, folder)
    child = int(process.stdout.readline())
    try:
        assert FolderLock(folder).is_held()

        kill(process)

        assert not FolderLock(folder).is_held()
    finally:
        os.kill(child, signal.SIGKILL)  # raises an error if the child has ended before


# --- the lock's file ------------------------------------------------------------------------------


def test_lock_file_exists_only_while_a_run_writes(folder):
    with run_folder(folder):
        assert os.listdir(folder) == [LOCK]
        (folder / "config.json").write_text("{}")

    assert os.listdir(folder) == ["config.json"]


def test_lock_waits_for_a_reader(folder):
    """A reader holds the lock for a moment, and a run that begins then is not refused."""
    folder.mkdir()
    reader = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(reader, fcntl.LOCK_EX)
    # Closing the file after 0.1 seconds releases the lock.
    release_soon = threading.Timer(0.1, os.close, [reader])
    release_soon.start()

    with run_folder(folder):
        pass

    release_soon.join()


def test_lock_is_read_without_being_written(run_of_killed_process, monkeypatch):
    real_open = os.open

    def open_on_read_only_file_system(path, flags, *arguments, **options):
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real_open(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", open_on_read_only_file_system)

    # The file of the killed process's lock is still there.
    assert read_record(run_of_killed_process)["status"] == "died"


def test_lock_of_a_missing_folder_is_free(folder):
    assert not FolderLock(folder).is_held()
    assert not folder.exists()


def test_lock_that_is_a_link_is_refused(folder, tmp_path):
    (tmp_path / "target").write_text("mine")
    folder.mkdir()
    (folder / LOCK).symlink_to(tmp_path / "target")

    with (
        pytest.raises(RunFolderError, match=r"cannot be locked: .*links.* Remove it\."),
        run_folder(folder),
    ):
        pass

    assert (tmp_path / "target").read_text() == "mine"


def test_lock_that_is_a_folder_is_refused(folder):
    (folder / LOCK).mkdir(parents=True)

    with (
        pytest.raises(RunFolderError, match=r"locked: IsADirectoryError.* Remove it\."),
        run_folder(folder),
    ):
        pass


# --- file systems without locks -------------------------------------------------------------------


@pytest.mark.parametrize("error_number", [errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL])
def test_lock_is_left_out_on_file_systems_without_locks(folder, monkeypatch, error_number):
    let_flock_fail(monkeypatch, error_number)

    with (
        pytest.warns(CatalogWarning, match="its file system has no locks"),
        run_folder(folder),
        record_run(folder),
    ):
        assert read_record(folder)["status"] == "running"

    assert read_record(folder)["status"] == "finished"
    assert os.listdir(folder) == ["run.json"]  # and no file of a lock


def test_lock_error_names_its_cause(folder, monkeypatch):
    let_flock_fail(monkeypatch, errno.EIO)

    with (
        pytest.raises(RunFolderError, match=r"locked: OSError: .*Input/output error"),
        run_folder(folder),
    ):
        pass
