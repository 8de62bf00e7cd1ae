"""Files of folders that others may have written: regular files of a bounded size are read, all else
is refused.
"""

import os
import socket

import pytest

from rlcatalog.errors import SavedPolicyError
from rlcatalog_policy import check_files, read_file, read_json


def put_link(path):
    path.symlink_to(path.parent.parent / "outside")


def put_dangling_link(path):
    path.symlink_to(path.parent / "missing")


def put_device(path):
    path.symlink_to("/dev/zero")


def put_folder_link(path):
    path.symlink_to(path.parent.parent, target_is_directory=True)


def put_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket may be 100 characters long
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


KINDS = {
    "link": put_link,
    "dangling link": put_dangling_link,
    "device": put_device,
    "folder link": put_folder_link,
    "FIFO": os.mkfifo,
    "socket": put_socket,
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "outside").write_text("{}")
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    (tmp_path / "folder" / "inside" / "file").write_text("{}")
    return tmp_path / "folder"


@pytest.mark.parametrize("put", KINDS.values(), ids=KINDS)
def test_what_is_no_regular_file_is_not_read(folder, put):
    put(folder / "file")
    with pytest.raises(SavedPolicyError, match="file: cannot be read"):
        read_file(folder / "file", 10)


@pytest.mark.parametrize("place", ["file", "inside/other"])
@pytest.mark.parametrize("put", KINDS.values(), ids=KINDS)
def test_folder_that_holds_another_kind_of_file_is_refused(folder, put, place):
    check_files(folder)
    put(folder / place)
    with pytest.raises(
        SavedPolicyError, match=rf"{place}: (a link, which is not followed|neither a file nor a)"
    ):
        check_files(folder)


def test_folder_that_is_skipped_is_a_folder_of_its_own(folder):
    put_link(folder / "inside" / "link")
    check_files(folder, skip=["inside"])
    (folder / "inside").rename(folder.parent / "elsewhere")
    (folder / "inside").symlink_to(folder.parent / "elsewhere")
    with pytest.raises(SavedPolicyError, match="inside: a link"):
        check_files(folder, skip=["inside"])


def test_file_is_read_up_to_its_limit(folder):
    path = folder / "file"
    path.write_bytes(b"x" * 10)
    assert read_file(path, 10) == b"x" * 10
    with pytest.raises(
        SavedPolicyError, match="file: is too large: it has 10 bytes; at most 9 are allowed"
    ):
        read_file(path, 9)
    with path.open("wb") as file:
        file.truncate(1 << 40)  # holes alone: it takes no room on the disk
    with pytest.raises(SavedPolicyError, match="it has 1099511627776 bytes"):
        read_file(path, 1 << 20)
    with pytest.raises(FileNotFoundError):
        read_file(folder / "missing", 9)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 9000, b"9" * 5000], ids=range(5))
def test_what_is_no_json_is_refused(folder, content):
    (folder / "file").write_bytes(content)
    with pytest.raises(SavedPolicyError, match="file: truncated or not JSON: "):
        read_json(folder / "file", 10_000)


def test_json_is_read(folder):
    assert read_json(folder / "inside" / "file", 2) == {}
