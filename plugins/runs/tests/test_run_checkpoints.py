"""Checkpoints of runs: replaced whole, found where a writer was killed, and never behind a link."""

from __future__ import annotations

import os

import pytest

from rlcatalog.errors import SavedPolicyError
from rlcatalog_runs import checkpoint_name, new_checkpoint, newest_checkpoint, prune_checkpoints
from rlcatalog_runs.checkpoints import checkpoints_of


def write(folder, text="new"):
    with new_checkpoint(folder) as inside:
        (inside / "state").write_text(text)


def read(folder):
    return (newest_checkpoint(folder) / "state").read_text()


class Killed(BaseException):
    """Stands for the end of the process: nothing is tidied up after it."""


@pytest.fixture
def killed(monkeypatch):
    """Let the renaming number `at` of a block be its end, and nothing be removed after it."""

    def kill(at):
        rename, calls = os.rename, iter(range(100))

        def renamed(*args, **kwargs):
            if next(calls) == at:
                monkeypatch.setattr("shutil.rmtree", lambda *args, **kwargs: None)
                raise Killed
            return rename(*args, **kwargs)

        monkeypatch.setattr(os, "rename", renamed)

    return kill


@pytest.mark.parametrize(("at", "found"), [(0, "old"), (1, "old"), (2, "new")])
def test_a_replacement_that_is_killed_leaves_one_of_the_two(
    tmp_path, killed, monkeypatch, at, found
):
    folder = tmp_path / "mine"
    write(folder, "old")
    with monkeypatch.context():
        killed(at)
        with pytest.raises(Killed):
            write(folder)
    monkeypatch.undo()
    assert read(folder) == found
    write(folder, "later")
    assert read(folder) == "later"
    assert os.listdir(tmp_path) == ["mine"]


def test_a_writer_that_is_at_work_is_left_alone(tmp_path):
    with new_checkpoint(tmp_path / "mine") as slow:
        (slow / "state").write_text("slow")
        write(tmp_path / "mine", "fast")
        assert (slow / "state").read_text() == "slow"
    assert read(tmp_path / "mine") == "slow"
    assert os.listdir(tmp_path) == ["mine"]


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.write_text("a file")])
def test_what_is_no_folder_is_replaced(tmp_path, put):
    put(tmp_path / "mine")
    write(tmp_path / "mine")
    assert read(tmp_path / "mine") == "new"
    assert os.listdir(tmp_path) == ["mine"]


@pytest.fixture
def other(tmp_path):
    """Another run, with a checkpoint."""
    write(tmp_path / "other" / "checkpoints" / checkpoint_name(5), "another run's")
    return tmp_path / "other"


def test_a_folder_of_checkpoints_that_is_a_link_holds_none(tmp_path, other):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(other / "checkpoints")
    assert checkpoints_of(tmp_path / "run") == []
    with pytest.raises(SavedPolicyError, match=r"run/checkpoints: a link, which is not followed"):
        newest_checkpoint(tmp_path / "run")
    prune_checkpoints(tmp_path / "run", 0)
    assert read(other) == "another run's"


def test_a_checkpoint_that_is_a_link_is_none_and_is_unlinked(tmp_path, other):
    write(tmp_path / "run" / "checkpoints" / checkpoint_name(1))
    link = tmp_path / "run" / "checkpoints" / checkpoint_name(9)
    link.symlink_to(other / "checkpoints" / checkpoint_name(5))
    assert read(tmp_path / "run") == "new"
    prune_checkpoints(tmp_path / "run", 1)
    assert not os.path.lexists(link)
    assert read(tmp_path / "run") == "new"
    assert read(other) == "another run's"
