"""Checkpoints of runs: replaced as a whole, even if their writer is killed, and never links."""

from __future__ import annotations

import os

import pytest

from rlcatalog.errors import SavedPolicyError
from rlcatalog_runs import checkpoint_name, new_checkpoint, newest_checkpoint, prune_checkpoints
from rlcatalog_runs.checkpoints import checkpoints_of


def write_checkpoint(folder, text="new"):
    with new_checkpoint(folder) as temporary:
        (temporary / "state").write_text(text)


def read_checkpoint(folder):
    """Return the text in a checkpoint, or in a run's newest one."""
    return (newest_checkpoint(folder) / "state").read_text()


# --- replacement ----------------------------------------------------------------------------------


class KilledError(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def killed_at_renaming(monkeypatch):
    """Return a function that kills the writer of a checkpoint at its first (0), second or third
    renaming. Nothing is removed afterwards.
    """

    def kill(number):
        rename = os.rename
        renamings = 0

        def rename_or_die(*args, **kwargs):
            nonlocal renamings
            if renamings == number:
                monkeypatch.setattr("shutil.rmtree", lambda *args, **kwargs: None)
                raise KilledError
            renamings += 1
            return rename(*args, **kwargs)

        monkeypatch.setattr(os, "rename", rename_or_die)

    return kill


@pytest.fixture(params=[(0, "old"), (1, "old"), (2, "new")], ids=["first", "second", "third"])
def half_replaced(request, killed_at_renaming, monkeypatch, tmp_path):
    """The folder of a checkpoint whose replacement was killed, and the text that it must have."""
    number, text = request.param
    write_checkpoint(tmp_path / "mine", "old")
    killed_at_renaming(number)
    with pytest.raises(KilledError):
        write_checkpoint(tmp_path / "mine", "new")
    monkeypatch.undo()
    return tmp_path / "mine", text


def test_killed_replacement_leaves_the_old_or_the_new(half_replaced):
    folder, text = half_replaced

    assert read_checkpoint(folder) == text


def test_checkpoint_is_replaced_after_a_killed_replacement(half_replaced):
    folder, _ = half_replaced

    write_checkpoint(folder, "later")

    assert read_checkpoint(folder) == "later"
    assert os.listdir(folder.parent) == ["mine"]  # what was half written is gone


def test_two_writers_of_a_checkpoint_do_not_disturb_each_other(tmp_path):
    with new_checkpoint(tmp_path / "mine") as temporary:
        (temporary / "state").write_text("slow")
        write_checkpoint(tmp_path / "mine", "fast")
        assert (temporary / "state").read_text() == "slow"

    assert read_checkpoint(tmp_path / "mine") == "slow"  # which ended last
    assert os.listdir(tmp_path) == ["mine"]


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.write_text("a file")], ids=["pipe", "file"]
)
def test_file_in_the_place_of_a_checkpoint_is_replaced(tmp_path, make):
    make(tmp_path / "mine")

    write_checkpoint(tmp_path / "mine", "new")

    assert read_checkpoint(tmp_path / "mine") == "new"
    assert os.listdir(tmp_path) == ["mine"]


# --- links ----------------------------------------------------------------------------------------


@pytest.fixture
def other_run(tmp_path):
    """The folder of another run, with a checkpoint at step 5."""
    folder = tmp_path / "other"
    write_checkpoint(folder / "checkpoints" / checkpoint_name(5), "another run's")
    return folder


@pytest.fixture
def run_with_linked_folder(tmp_path, other_run):
    """A run whose folder of checkpoints is a link to another run's."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "checkpoints").symlink_to(other_run / "checkpoints")
    return folder


def test_linked_folder_has_no_checkpoints(run_with_linked_folder):
    assert checkpoints_of(run_with_linked_folder) == []
    with pytest.raises(SavedPolicyError, match=r"checkpoints: a link, which is not"):
        newest_checkpoint(run_with_linked_folder)


def test_prune_keeps_the_checkpoints_in_a_linked_folder(run_with_linked_folder, other_run):
    prune_checkpoints(run_with_linked_folder, 0)

    assert read_checkpoint(other_run) == "another run's"


@pytest.fixture
def run_with_linked_checkpoint(tmp_path, other_run):
    """A run whose checkpoint at step 9 is a link to another run's, after its own at step 1."""
    folder = tmp_path / "run"
    write_checkpoint(folder / "checkpoints" / checkpoint_name(1), "its own")
    link = folder / "checkpoints" / checkpoint_name(9)
    link.symlink_to(other_run / "checkpoints" / checkpoint_name(5))
    return folder


def test_linked_checkpoint_is_not_read(run_with_linked_checkpoint):
    assert read_checkpoint(run_with_linked_checkpoint) == "its own"


def test_prune_removes_a_link_but_not_its_target(run_with_linked_checkpoint, other_run):
    prune_checkpoints(run_with_linked_checkpoint, 1)

    link = run_with_linked_checkpoint / "checkpoints" / checkpoint_name(9)
    assert not os.path.lexists(link)
    assert read_checkpoint(run_with_linked_checkpoint) == "its own"
    assert read_checkpoint(other_run) == "another run's"
