"""Files of saved folders: the lock, atomic writes, and reads of regular files of limited size."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import threading
from contextlib import chdir

import pytest
from faulty_functions import function_that_raises

from rlcatalog.errors import SavedPolicyError
from rlcatalog_policy import (
    RegularFile,
    check_files,
    lock_folder,
    read_file,
    read_json,
    sync_folder,
    write_file,
)


def count_open_files():
    """Return how many file descriptors this process has open."""
    return len(os.listdir("/dev/fd"))


# --- the lock -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", [True, False], ids=["wait", "no-wait"])
def test_lock_excludes_others_until_released(tmp_path, wait):
    for _ in range(2):  # once released, the folder can be locked again
        with (
            lock_folder(tmp_path, wait=wait),
            pytest.raises(BlockingIOError),
            lock_folder(tmp_path, wait=False),
        ):
            pytest.fail("two holders of one lock")


def test_lock_leaves_no_file_behind(tmp_path):
    open_before = count_open_files()

    with lock_folder(tmp_path):
        assert count_open_files() == open_before + 1

    assert count_open_files() == open_before
    assert os.listdir(tmp_path) == []


def test_refused_lock_leaves_no_file_open(tmp_path):
    with lock_folder(tmp_path):
        open_before = count_open_files()
        with pytest.raises(BlockingIOError), lock_folder(tmp_path, wait=False):
            pytest.fail("two holders of one lock")
        assert count_open_files() == open_before


def test_lock_waits_for_its_holder(tmp_path):
    entered = threading.Event()

    def enter():
        with lock_folder(tmp_path):
            entered.set()

    with lock_folder(tmp_path):
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(timeout=0.05)

    thread.join(timeout=10)
    assert entered.is_set()


def test_lock_of_a_file_is_an_error(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(NotADirectoryError), lock_folder(tmp_path / "file"):
        pytest.fail("a file was locked")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.EINVAL])
def test_file_system_without_locks_needs_no_lock(tmp_path, monkeypatch, number):
    def flock(handle, operation):
        raise OSError(number, "no locks here")

    monkeypatch.setattr(fcntl, "flock", flock)

    with lock_folder(tmp_path):
        write_file(tmp_path, "file", b"x")

    assert (tmp_path / "file").read_bytes() == b"x"


def test_lock_raises_other_system_errors(tmp_path, monkeypatch):
    def flock(handle, operation):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(fcntl, "flock", flock)

    with pytest.raises(OSError, match="broken"), lock_folder(tmp_path):
        pytest.fail("locked in spite of the error")


# --- writing --------------------------------------------------------------------------------------


def test_write_replaces_the_file_and_leaves_nothing_else(tmp_path):
    open_before = count_open_files()

    for content in (b"first", b"", b"the third, which is longer"):
        write_file(tmp_path, "file", content)
        assert (tmp_path / "file").read_bytes() == content

    assert os.listdir(tmp_path) == ["file"]
    assert count_open_files() == open_before


def test_new_file_is_readable_and_writable_by_all(tmp_path):
    # The umask, which usually removes some of the permissions, is 0 here.
    usual_umask = os.umask(0)
    try:
        write_file(tmp_path, "file", b"x")
    finally:
        os.umask(usual_umask)

    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666


def test_partial_write_is_continued(tmp_path, monkeypatch):
    real_write = os.write
    sizes = []

    def write_three_bytes(handle, data):
        assert data, "os.write was called without data"
        sizes.append(len(data))
        return real_write(handle, data[:3])

    monkeypatch.setattr(os, "write", write_three_bytes)
    write_file(tmp_path, "file", b"0123456789")

    assert (tmp_path / "file").read_bytes() == b"0123456789"
    assert sizes == [10, 7, 4, 1]


def test_write_passes_at_most_64_mib_to_the_system(tmp_path, monkeypatch):
    mib_64 = 64 * 1024 * 1024
    sizes = []

    def count_only(handle, data):
        assert data, "os.write was called without data"
        sizes.append(len(data))
        return len(data)

    monkeypatch.setattr(os, "write", count_only)
    write_file(tmp_path, "file", bytes(mib_64 + 5))

    assert sizes == [mib_64, 5]


def test_write_syncs_the_content_before_it_renames(tmp_path, monkeypatch):
    calls = []
    real_write = os.write
    real_fsync = os.fsync
    real_replace = os.replace

    def write(handle, data):
        calls.append("write")
        return real_write(handle, data)

    def fsync(handle):
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        calls.append("fsync folder" if is_folder else "fsync file")
        real_fsync(handle)

    def replace(source, target):
        calls.append("replace")
        real_replace(source, target)

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_file(tmp_path, "file", b"x")

    assert calls == ["write", "fsync file", "replace", "fsync folder"]


@pytest.mark.parametrize("failing_call", ["write", "fsync", "replace"])
def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch, failing_call):
    write_file(tmp_path, "file", b"old")
    open_before = count_open_files()

    disk_is_full = OSError(errno.ENOSPC, "disk is full")

    monkeypatch.setattr(os, failing_call, function_that_raises(disk_is_full))
    with pytest.raises(OSError, match="disk is full"):
        write_file(tmp_path, "file", b"new")

    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"
    assert count_open_files() == open_before


def test_write_replaces_a_link_and_keeps_its_target(tmp_path):
    (tmp_path / "target").write_bytes(b"theirs")
    (tmp_path / "file").symlink_to(tmp_path / "target")

    write_file(tmp_path, "file", b"ours")

    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"theirs"


def test_sync_folder_syncs_the_folder_and_closes_it(tmp_path, monkeypatch):
    synced_folders = []

    def fsync(handle):
        synced_folders.append(stat.S_ISDIR(os.fstat(handle).st_mode))

    monkeypatch.setattr(os, "fsync", fsync)
    open_before = count_open_files()

    sync_folder(tmp_path)

    assert synced_folders == [True]
    assert count_open_files() == open_before


def test_sync_folder_ignores_folders_that_cannot_be_opened(tmp_path):
    sync_folder(tmp_path / "missing")  # no error: Windows, for example, cannot open any folder


# --- reading --------------------------------------------------------------------------------------


@pytest.fixture
def digits_path(tmp_path):
    """The path of a file that contains `0123456789`."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    return path


def test_regular_file_has_a_path_and_a_size(digits_path):
    file = RegularFile(digits_path)

    assert file.path == digits_path
    assert file.size == 10
    file.close()


@pytest.mark.parametrize(
    ("size", "content"),
    [(3, b"012"), (None, b"0123456789"), (10, b"0123456789"), (0, b"")],
)
def test_each_read_starts_at_the_beginning_of_the_file(digits_path, size, content):
    file = RegularFile(digits_path)

    assert file.read(3) == b"012"
    assert file.read(size) == content
    file.close()


def test_regular_file_can_be_closed_twice(digits_path):
    open_before = count_open_files()
    file = RegularFile(digits_path)

    file.close()
    file.close()

    assert count_open_files() == open_before


def test_read_of_more_bytes_than_the_file_has_is_an_error(digits_path):
    file = RegularFile(digits_path)

    with pytest.raises(SavedPolicyError, match="truncated or changed since it was saved") as caught:
        file.read(11)

    assert "it is shorter now" in str(caught.value)
    file.close()


def test_read_of_a_file_that_became_shorter_is_an_error(digits_path):
    file = RegularFile(digits_path, most=10)
    digits_path.write_bytes(b"01234")

    with pytest.raises(SavedPolicyError, match="it is shorter now"):
        file.read()

    file.close()


@pytest.mark.parametrize(
    ("create", "message"),
    [
        pytest.param(lambda path: path.mkdir(), "it is not a regular file", id="folder"),
        pytest.param(os.mkfifo, "it is not a regular file", id="pipe"),
        pytest.param(
            lambda path: path.write_bytes(b"xx"),
            "too large: it has 2 bytes; at most 1 are",
            id="too-large",
        ),
    ],
)
def test_rejected_file_is_closed(tmp_path, create, message):
    path = tmp_path / "file"
    create(path)
    open_before = count_open_files()

    for _ in range(3):
        with pytest.raises(SavedPolicyError, match=message):
            RegularFile(path, most=1)

    assert count_open_files() == open_before


def create_link_to_file(path):
    path.symlink_to(path.parent.parent / "file-outside")


def create_link_to_missing_file(path):
    path.symlink_to(path.parent / "missing")


def create_link_to_device(path):
    path.symlink_to("/dev/zero")


def create_link_to_folder(path):
    path.symlink_to(path.parent.parent, target_is_directory=True)


def create_socket(path):
    # The path of a socket has a limit of about 100 characters, so that its name alone is used.
    with chdir(path.parent), socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)


creates_a_link = pytest.mark.parametrize(
    "create",
    [
        pytest.param(create_link_to_file, id="link-to-file"),
        pytest.param(create_link_to_missing_file, id="link-to-missing-file"),
        pytest.param(create_link_to_device, id="link-to-device"),
        pytest.param(create_link_to_folder, id="link-to-folder"),
    ],
)
creates_a_special_file = pytest.mark.parametrize(
    "create",
    [pytest.param(os.mkfifo, id="pipe"), pytest.param(create_socket, id="socket")],
)


@pytest.fixture
def folder(tmp_path):
    """A folder with a subfolder `inside`, which contains a file; another file is outside."""
    (tmp_path / "file-outside").write_text("{}")
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    (tmp_path / "folder" / "inside" / "file").write_text("{}")
    return tmp_path / "folder"


@creates_a_link
def test_link_is_not_read(folder, create):
    create(folder / "link")

    with pytest.raises(SavedPolicyError, match="link: cannot be read: a link, which is"):
        read_file(folder / "link", most=10)


@creates_a_special_file
def test_pipe_or_socket_is_not_read(folder, create):
    create(folder / "special")

    with pytest.raises(SavedPolicyError, match="special: cannot be read"):
        read_file(folder / "special", most=10)


def test_path_through_a_file_cannot_be_read(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(SavedPolicyError, match=r"cannot be read: .*Not a directory"):
        RegularFile(tmp_path / "file" / "inside")


def test_path_with_a_null_byte_cannot_be_read(tmp_path):
    with pytest.raises(SavedPolicyError, match=r"cannot be read: .*null"):
        RegularFile(tmp_path / "zero\0byte")


@pytest.mark.parametrize("read", [RegularFile, read_file])
def test_missing_file_raises_file_not_found_error(tmp_path, read):
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "missing", most=9)


def test_read_file_closes_the_file(digits_path):
    open_before = count_open_files()

    assert read_file(digits_path, most=10) == b"0123456789"

    assert count_open_files() == open_before


def test_sparse_file_above_the_limit_is_rejected(digits_path):
    one_tebibyte = 1 << 40
    with digits_path.open("wb") as file:
        file.truncate(one_tebibyte)  # consists of holes, so that it takes no room on the disk

    with pytest.raises(SavedPolicyError, match="it has 1099511627776 bytes"):
        read_file(digits_path, most=1 << 20)


# --- reading JSON ---------------------------------------------------------------------------------


def test_json_is_read_up_to_its_limit(tmp_path):
    path = tmp_path / "file"
    path.write_text("{}")

    assert read_json(path, most=2) == {}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="truncated"),
        pytest.param(b"\xff", id="not-utf8"),
        pytest.param(b"[" * 9000, id="deeply-nested"),
        pytest.param(b"9" * 5000, id="number-too-long"),
    ],
)
def test_invalid_json_is_rejected(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)

    with pytest.raises(SavedPolicyError, match="file: truncated or not JSON: "):
        read_json(path, most=10_000)


def nest(levels, *, containers):
    """Return JSON of the number 1 inside so many lists and tables, in this order from inside."""
    text = "1"
    for level in range(levels):
        if containers[level % len(containers)] == "table":
            text = f'{{"a": {text}}}'
        else:
            text = f"[{text}]"
    return text


def count_levels(value):
    if isinstance(value, dict):
        return 1 + count_levels(value["a"])
    if isinstance(value, list):
        return 1 + count_levels(value[0])
    assert value == 1
    return 0


nested_containers = pytest.mark.parametrize(
    "containers",
    [["table"], ["list"], ["list", "table"]],
    ids=["tables", "lists", "lists-and-tables"],
)


@nested_containers
def test_json_with_100_levels_is_read(tmp_path, containers):
    path = tmp_path / "file"
    path.write_text(nest(100, containers=containers))

    assert count_levels(read_json(path)) == 100


@nested_containers
def test_json_with_101_levels_is_rejected(tmp_path, containers):
    path = tmp_path / "file"
    path.write_text(nest(101, containers=containers))

    with pytest.raises(SavedPolicyError, match=r"not JSON: .*nested too deeply"):
        read_json(path)


def test_json_of_4_mib_is_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"[1]".ljust(4 * 1024 * 1024))  # filled up with spaces

    assert read_json(path) == [1]


def test_json_of_more_than_4_mib_is_rejected(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"[1]".ljust(4 * 1024 * 1024 + 1))

    with pytest.raises(SavedPolicyError, match="4194305 bytes; at most 4194304"):
        read_json(path)


# --- checking folders -----------------------------------------------------------------------------


def test_check_files_accepts_files_and_folders(folder):
    check_files(folder)


anywhere = pytest.mark.parametrize("place", ["other", "inside/other"])


@creates_a_link
@anywhere
def test_check_files_rejects_links(folder, create, place):
    create(folder / place)

    with pytest.raises(SavedPolicyError, match=f"{place}: a link, which is not") as caught:
        check_files(folder)

    assert "not followed. Remove it" in str(caught.value)


@creates_a_special_file
@anywhere
def test_check_files_rejects_pipes_and_sockets(folder, create, place):
    create(folder / place)

    with pytest.raises(SavedPolicyError, match=f"{place}: neither a file nor a") as caught:
        check_files(folder)

    assert "folder. Remove it" in str(caught.value)


@pytest.mark.parametrize("create", [os.mkfifo, create_link_to_file], ids=["pipe", "link"])
def test_check_files_skips_subfolders_by_name(folder, create):
    create(folder / "inside" / "other")

    check_files(folder, skip=["inside"])


def test_check_files_does_not_skip_a_link(folder):
    elsewhere = folder.parent / "elsewhere"
    (folder / "inside").rename(elsewhere)
    (folder / "inside").symlink_to(elsewhere)

    with pytest.raises(SavedPolicyError, match="inside: a link"):
        check_files(folder, skip=["inside"])


def test_check_files_of_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(SavedPolicyError, match="missing: cannot be read"):
        check_files(tmp_path / "missing")
