"""Files of exported policies: their checksums and versions, and files that are not followed."""

from __future__ import annotations

import hashlib
import os
import shutil

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")

from exported_files import OBS, relabelled

import rlcatalog
from rlcatalog.errors import ObservationError, SavedPolicyError

# `exported` has the files of a policy in three formats: name → path.


# --- checksums and versions -----------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["policy.onnx", "policy.pt2", "policy-savedmodel"])
def test_exported_file_loads_and_acts_without_a_warning(exported, name):
    actor = rlcatalog.Actor(exported[name])

    assert actor.interface.format_version == 2
    assert actor.act([OBS.sample()]).action.shape == (1, 2)  # actions have 2 numbers


def set_format_version(content, version):
    """Return the content of an ONNX file with another format version and a wrong checksum."""
    return content.replace(b'"format_version":2', f'"format_version":{version}'.encode())


@pytest.mark.parametrize("version", [1, 3])
def test_file_of_another_version_is_an_error(exported, tmp_path, version):
    content = set_format_version(exported["policy.onnx"].read_bytes(), version)
    without_checksum = content[:-64]  # 64 hexadecimal digits
    checksum = hashlib.sha256(without_checksum).hexdigest().encode()
    (tmp_path / "policy.onnx").write_bytes(without_checksum + checksum)

    with pytest.raises(SavedPolicyError, match=f"format version {version} instead of 2"):
        rlcatalog.Actor(tmp_path / "policy.onnx")


@pytest.mark.parametrize("version", [1, 3])
def test_file_of_another_version_without_checksum_is_an_error(exported, tmp_path, version):
    content = set_format_version(exported["policy.onnx"].read_bytes(), version)
    # The entry of the checksum has 86 bytes. Files of version 1 had none.
    (tmp_path / "policy.onnx").write_bytes(content[:-86])

    with pytest.raises(SavedPolicyError, match=f"format version {version} instead of 2"):
        rlcatalog.Actor(tmp_path / "policy.onnx")


def remove_checksum_of_onnx(source, target):
    """Copy a file without the last entry of its metadata, which has 86 bytes."""
    target.write_bytes(source.read_bytes()[:-86])
    onnx.load_model(target)  # a valid ONNX file


def remove_checksum_of_pt2(source, target):
    """Copy a zip archive without its comment: 81 bytes with the length before it."""
    target.write_bytes(source.read_bytes()[:-81])
    with target.open("rb+") as file:
        file.seek(-2, os.SEEK_END)
        file.write(b"\0\0")  # the length of the comment


def remove_checksum_of_savedmodel(source, target):
    shutil.copytree(source, target)
    (target / "assets.extra/rlcatalog.sha256").unlink()


@pytest.mark.parametrize(
    ("name", "remove_checksum"),
    [
        ("policy.onnx", remove_checksum_of_onnx),
        ("policy.pt2", remove_checksum_of_pt2),
        ("policy-savedmodel", remove_checksum_of_savedmodel),
    ],
)
def test_file_without_its_checksum_does_not_load(exported, tmp_path, name, remove_checksum):
    remove_checksum(exported[name], tmp_path / name)

    with pytest.raises(SavedPolicyError, match="but this file has none") as caught:
        rlcatalog.Actor(tmp_path / name)

    assert "files of format version 2 have a checksum, but" in str(caught.value)


def test_saved_model_with_another_file_does_not_load(exported, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(exported["policy-savedmodel"], folder)
    (folder / "more").write_text("")

    with pytest.raises(SavedPolicyError, match="its checksum differs"):
        rlcatalog.Actor(folder)


# --- pipes, devices and links ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["policy.onnx", "policy.pt2"])
def test_actor_does_not_wait_for_a_pipe(tmp_path, name):
    os.mkfifo(tmp_path / name)

    with pytest.raises(SavedPolicyError, match="not a regular file"):
        rlcatalog.Actor(tmp_path / name)


@pytest.mark.parametrize("name", ["policy.onnx", "policy.pt2"])
def test_actor_does_not_read_a_device(tmp_path, name):
    (tmp_path / name).symlink_to("/dev/zero")

    with pytest.raises(SavedPolicyError, match="not a regular file"):
        rlcatalog.Actor(tmp_path / name)


@pytest.mark.parametrize("name", ["policy.onnx", "policy.pt2"])
def test_actor_follows_a_link_to_a_file(exported, tmp_path, name):
    (tmp_path / name).symlink_to(exported[name])

    rlcatalog.Actor(tmp_path / name)


def test_actor_does_not_wait_for_a_pipe_in_a_folder(exported, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(exported["policy-savedmodel"], folder)
    os.mkfifo(folder / "pipe")

    with pytest.raises(SavedPolicyError, match="neither a file nor a folder"):
        rlcatalog.Actor(folder)


def test_actor_does_not_follow_links_in_a_folder(exported, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(exported["policy-savedmodel"], folder)
    (folder / "saved_model.pb").unlink()
    (folder / "saved_model.pb").symlink_to(exported["policy-savedmodel"] / "saved_model.pb")

    with pytest.raises(SavedPolicyError, match="a link, which is not followed"):
        rlcatalog.Actor(folder)


# --- content --------------------------------------------------------------------------------------


def test_actor_reads_no_weights_from_other_files(exported, tmp_path, monkeypatch):
    model = onnx.load_model(exported["policy.onnx"])
    weights = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    size = len(weights.raw_data)
    (tmp_path / "secret").write_bytes(bytes(size))
    # ONNX allows a tensor to name a file that has its data.
    onnx.external_data_helper.set_external_data(weights, "secret", offset=0, length=size)
    weights.ClearField("raw_data")
    relabelled(model, tmp_path / "policy.onnx")  # writes it with a correct checksum
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SavedPolicyError, match="cannot be read"):
        rlcatalog.Actor("policy.onnx")


def test_actor_of_a_file_checks_observations(exported):
    actor = rlcatalog.Actor(exported["policy.onnx"])
    out_of_bounds = {"d": 1, "v": np.array([9, 0], np.float32)}  # v is between -1 and 1

    with pytest.raises(ObservationError):
        actor.act([out_of_bounds])
