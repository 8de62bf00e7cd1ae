"""Files of exported policies: they carry a checksum, and others are refused."""

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
from rlcatalog.errors import SavedPolicyError


@pytest.fixture
def files(exported):
    return exported


@pytest.mark.parametrize("version", [b"1", b"3"])
def test_a_file_of_another_format_version_is_refused(files, tmp_path, version):
    """Whatever its checksum says; without it, as a file of version 1 was, it is refused as well."""
    content = (
        files["policy.onnx"]
        .read_bytes()
        .replace(b'"format_version":2', b'"format_version":' + version)
    )
    body = content[:-64]
    for name, data in (
        ("signed", body + hashlib.sha256(body).hexdigest().encode()),
        ("cut", content[:-86]),
    ):
        (tmp_path / f"{name}.onnx").write_bytes(data)
        with pytest.raises(
            SavedPolicyError, match=rf"format version {version.decode()} instead of 2"
        ):
            rlcatalog.Actor(tmp_path / f"{name}.onnx")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["policy.onnx", "policy.pt2", "policy-savedmodel"])
def test_a_new_file_loads_without_a_warning(files, name):
    actor = rlcatalog.Actor(files[name])
    assert actor.interface.format_version == 2
    assert actor.act([OBS.sample()]).action.shape == (1, 2)


def test_a_new_file_without_its_checksum_is_refused(files, tmp_path):
    shutil.copy(files["policy.onnx"], tmp_path / "cut.onnx")
    with (tmp_path / "cut.onnx").open("rb+") as file:  # the last entry of the metadata
        file.truncate(file.seek(0, os.SEEK_END) - 86)
    onnx.load_model(tmp_path / "cut.onnx")  # a sound file of ONNX
    shutil.copy(files["policy.pt2"], tmp_path / "cut.pt2")
    with (tmp_path / "cut.pt2").open("rb+") as file:  # the comment of the archive
        file.truncate(file.seek(0, os.SEEK_END) - 81)
        file.seek(-2, os.SEEK_END)
        file.write(b"\0\0")
    shutil.copytree(files["policy-savedmodel"], tmp_path / "cut")
    (tmp_path / "cut/assets.extra/rlcatalog.sha256").unlink()
    for name in ("cut.onnx", "cut.pt2", "cut"):
        with pytest.raises(
            SavedPolicyError,
            match=r"files of format version 2 have a checksum, but this file has none",
        ):
            rlcatalog.Actor(tmp_path / name)


def test_a_changed_file_is_refused_in_each_format(files, tmp_path):
    for name in ("policy.onnx", "policy.pt2"):
        content = bytearray(files[name].read_bytes())
        content[len(content) // 2] ^= 1
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SavedPolicyError, match="its checksum differs"):
            rlcatalog.Actor(tmp_path / name)
    folder = tmp_path / "folder"
    shutil.copytree(files["policy-savedmodel"], folder)
    (folder / "more").write_text("")
    with pytest.raises(SavedPolicyError, match="its checksum differs"):
        rlcatalog.Actor(folder)


def test_pipes_and_devices_are_not_waited_for_and_links_are_followed_at_the_top_alone(
    files, tmp_path
):
    for suffix in (".onnx", ".pt2"):
        os.mkfifo(tmp_path / f"pipe{suffix}")
        (tmp_path / f"device{suffix}").symlink_to("/dev/zero")
        for name in ("pipe", "device"):
            with pytest.raises(SavedPolicyError, match="not a regular file"):
                rlcatalog.Actor(tmp_path / f"{name}{suffix}")
        (tmp_path / f"latest{suffix}").symlink_to(files[f"policy{suffix}"])
        rlcatalog.Actor(tmp_path / f"latest{suffix}")
    folder = tmp_path / "folder"
    shutil.copytree(files["policy-savedmodel"], folder)
    os.mkfifo(folder / "pipe")
    with pytest.raises(SavedPolicyError, match="neither a file nor a folder"):
        rlcatalog.Actor(folder)
    (folder / "pipe").unlink()
    (folder / "saved_model.pb").unlink()
    (folder / "saved_model.pb").symlink_to(files["policy-savedmodel"] / "saved_model.pb")
    with pytest.raises(SavedPolicyError, match="a link, which is not followed"):
        rlcatalog.Actor(folder)


def test_weights_in_other_files_are_not_read(files, tmp_path, monkeypatch):
    model = onnx.load_model(files["policy.onnx"])
    weights = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    size = len(weights.raw_data)
    (tmp_path / "secret").write_bytes(bytes(size))
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "secret"), ("offset", "0"), ("length", str(size))):
        entry = weights.external_data.add()
        entry.key, entry.value = key, value
    relabelled(model, tmp_path / "policy.onnx")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SavedPolicyError, match="cannot be read"):
        rlcatalog.Actor("policy.onnx")


def test_an_observation_out_of_bounds_is_still_refused_at_the_first_act(files):
    with pytest.raises(rlcatalog.errors.ObservationError):
        rlcatalog.Actor(files["policy.onnx"]).act([{"d": 1, "v": np.array([9, 0], np.float32)}])
