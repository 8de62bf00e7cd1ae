"""Files of saved folders: the lock, atomic writes, and reads of regular files only."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading

import pytest

from rlcatalog.errors import SavedPolicyError
from rlcatalog_policy import (
    TEMPORARY,
    RegularFile,
    check_files,
    locked,
    read_file,
    read_json,
    sync_folder,
    write_file,
)


@pytest.fixture
def descriptors():
    """Count this process's open file descriptors: `descriptors()`."""
    return lambda: len(os.listdir("/dev/fd"))


# --- the lock -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", [True, False])
def test_lock_excludes_others_until_it_ends(tmp_path, descriptors, wait):
    before = descriptors()
    for _ in range(2):  # once released, the folder can be locked again
        with locked(tmp_path, wait=wait):
            with pytest.raises(BlockingIOError), locked(tmp_path, wait=False):
                pytest.fail("two holders of one lock")
            assert descriptors() == before + 1
    assert descriptors() == before
    assert not os.listdir(tmp_path)


def test_lock_waits_for_its_holder(tmp_path):
    entered = threading.Event()

    def enter():
        with locked(tmp_path):
            entered.set()

    with locked(tmp_path):
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.05)
    thread.join(10)
    assert entered.is_set()


def test_only_folders_are_locked(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError), locked(tmp_path / "file"):
        pytest.fail("a file was locked")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.EINVAL])
def test_file_system_without_locks_is_used_without_one(tmp_path, monkeypatch, number):
    def flock(handle, operation):
        raise OSError(number, "no locks here")

    monkeypatch.setattr(fcntl, "flock", flock)
    with locked(tmp_path):
        write_file(tmp_path, "file", b"x")
    assert (tmp_path / "file").read_bytes() == b"x"


def test_other_errors_of_the_lock_are_raised(tmp_path, monkeypatch):
    def flock(handle, operation):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="broken"), locked(tmp_path):
        pytest.fail("locked in spite of the error")


# --- writing --------------------------------------------------------------------------------------


def test_file_is_replaced_and_nothing_else_is_left(tmp_path, descriptors):
    before = descriptors()
    for content in (b"first", b"", b"the third, which is longer"):
        write_file(tmp_path, "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert os.listdir(tmp_path) == ["file"]
    assert descriptors() == before


def test_new_file_has_the_usual_permissions(tmp_path):
    kept = os.umask(0)
    try:
        write_file(tmp_path, "file", b"x")
    finally:
        os.umask(kept)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666


def test_write_that_takes_a_part_is_continued(tmp_path, monkeypatch):
    real, sizes = os.write, []

    def write(handle, data):
        assert data, "nothing was given to be written"
        sizes.append(len(data))
        return real(handle, data[:3])

    monkeypatch.setattr(os, "write", write)
    write_file(tmp_path, "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"
    assert sizes == [10, 7, 4, 1]


def test_at_most_64_mib_are_written_at_once(tmp_path, monkeypatch):
    sizes = []

    def write(handle, data):
        assert data, "nothing was given to be written"
        sizes.append(len(data))
        return len(data)

    monkeypatch.setattr(os, "write", write)
    write_file(tmp_path, "file", bytes((1 << 26) + 5))
    assert sizes == [1 << 26, 5]


def test_content_is_on_the_disk_before_its_name_is(tmp_path, monkeypatch):
    events = []
    for name in ("write", "fsync", "replace"):
        real = getattr(os, name)

        def call(first, *rest, name=name, real=real):
            kind = (
                ""
                if name == "replace"
                else ("folder" if stat.S_ISDIR(os.fstat(first).st_mode) else "file")
            )
            events.append(f"{name} {kind}".strip())
            return real(first, *rest)

        monkeypatch.setattr(os, name, call)
    write_file(tmp_path, "file", b"x")
    assert events == ["write file", "fsync file", "replace", "fsync folder"]


@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_failed_write_leaves_the_old_file_alone(tmp_path, monkeypatch, descriptors, fails):
    write_file(tmp_path, "file", b"old")
    before = descriptors()

    def fail(*arguments):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, fails, fail)
    with pytest.raises(OSError, match="full"):
        write_file(tmp_path, "file", b"new")
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"
    assert descriptors() == before


def test_file_that_another_has_put_there_is_not_written_into(tmp_path, monkeypatch):
    monkeypatch.setattr("secrets.token_hex", lambda count: "0" * 2 * count)
    planted = tmp_path / f".file-{'0' * 16}{TEMPORARY}"
    planted.write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        write_file(tmp_path, "file", b"ours")
    assert planted.read_bytes() == b"theirs"
    assert not (tmp_path / "file").exists()


def test_link_is_replaced_and_its_target_stays(tmp_path):
    (tmp_path / "target").write_bytes(b"theirs")
    (tmp_path / "file").symlink_to(tmp_path / "target")
    write_file(tmp_path, "file", b"ours")
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"theirs"


def test_folder_is_synced_where_the_system_can(tmp_path, monkeypatch, descriptors):
    before, synced = descriptors(), []
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append(stat.S_ISDIR(os.fstat(handle).st_mode))
    )
    sync_folder(tmp_path)
    assert synced == [True]
    assert descriptors() == before
    sync_folder(tmp_path / "missing")  # such as Windows, which opens no folders: no error


# --- reading --------------------------------------------------------------------------------------


def test_regular_file_is_read_from_its_beginning_each_time(tmp_path, descriptors):
    (tmp_path / "file").write_bytes(b"0123456789")
    before, file = descriptors(), RegularFile(tmp_path / "file")
    assert (file.path, file.size) == (tmp_path / "file", 10)
    assert [file.read(3), file.read(), file.read(10), file.read(0)] == [
        b"012",
        b"0123456789",
        b"0123456789",
        b"",
    ]
    with pytest.raises(
        SavedPolicyError, match="file: truncated or changed since it was saved: it is shorter now"
    ):
        file.read(11)
    file.close()
    file.close()  # again: nothing happens
    assert descriptors() == before


def test_file_that_became_shorter_is_noticed(tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")
    file = RegularFile(tmp_path / "file", 10)
    (tmp_path / "file").write_bytes(b"01234")
    with pytest.raises(SavedPolicyError, match="it is shorter now"):
        file.read()
    file.close()


@pytest.mark.parametrize("kind", ["folder", "FIFO", "too large"])
def test_refused_file_is_closed(tmp_path, descriptors, kind):
    path = tmp_path / "file"
    {
        "folder": path.mkdir,
        "FIFO": lambda: os.mkfifo(path),
        "too large": lambda: path.write_bytes(b"xx"),
    }[kind]()
    before = descriptors()
    for _ in range(3):
        match = (
            "too large: it has 2 bytes; at most 1 are"
            if kind == "too large"
            else "it is not a regular file"
        )
        with pytest.raises(SavedPolicyError, match=match) as caught:
            RegularFile(path, 1)
        del caught
    assert descriptors() == before


def test_why_a_file_cannot_be_opened_is_named(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "missing")
    (tmp_path / "file").touch()
    with pytest.raises(
        SavedPolicyError, match="link: cannot be read: a link, which is not followed"
    ):
        RegularFile(tmp_path / "link")
    with pytest.raises(SavedPolicyError, match=r"cannot be read: .*Not a directory"):
        RegularFile(tmp_path / "file" / "inside")
    with pytest.raises(SavedPolicyError, match=r"cannot be read: .*null"):
        RegularFile(tmp_path / "zero\0byte")
    with pytest.raises(FileNotFoundError):
        RegularFile(tmp_path / "missing")


def test_reader_closes_the_file(tmp_path, descriptors):
    (tmp_path / "file").write_bytes(b"xyz")
    before = descriptors()
    assert read_file(tmp_path / "file", 3) == b"xyz"
    assert descriptors() == before


def nested(levels, table):
    text = "1"
    for level in range(levels):
        text = f'{{"a": {text}}}' if table(level) else f"[{text}]"
    return text


@pytest.mark.parametrize(
    "table",
    [lambda level: True, lambda level: False, lambda level: level % 2],
    ids=["tables", "lists", "both"],
)
def test_json_may_be_nested_100_levels_deep(tmp_path, table):
    path = tmp_path / "file"
    path.write_text(nested(100, table))
    value, levels = read_json(path), 0
    while value != 1:
        value, levels = value["a" if isinstance(value, dict) else 0], levels + 1
    assert levels == 100
    path.write_text(nested(101, table))
    with pytest.raises(SavedPolicyError, match=r"file: truncated or not JSON: .*nested too deeply"):
        read_json(path)


def test_json_may_have_4_mib(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"[1]".ljust(1 << 22))
    assert read_json(path) == [1]
    path.write_bytes(b"[1]".ljust((1 << 22) + 1))
    with pytest.raises(SavedPolicyError, match="it has 4194305 bytes; at most 4194304 are allowed"):
        read_json(path)


def test_what_a_folder_contains_is_called_what_it_is(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").touch()
    check_files(tmp_path)
    os.mkfifo(tmp_path / "sub" / "pipe")
    with pytest.raises(
        SavedPolicyError, match=r"sub/pipe: neither a file nor a folder\. Remove it"
    ):
        check_files(tmp_path)
    check_files(tmp_path, skip=("sub",))
    (tmp_path / "sub" / "pipe").unlink()
    for target in (tmp_path / "sub" / "file", tmp_path / "sub"):
        (tmp_path / "link").symlink_to(target)
        with pytest.raises(
            SavedPolicyError, match=r"/link: a link, which is not followed\. Remove it"
        ):
            check_files(tmp_path)
        (tmp_path / "link").unlink()
    with pytest.raises(SavedPolicyError, match="missing: cannot be read"):
        check_files(tmp_path / "missing")
