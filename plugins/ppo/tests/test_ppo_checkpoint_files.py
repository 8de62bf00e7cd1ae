"""Files of a checkpoint: their form, and what is an error."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest
from training_states import make_state

import rlcatalog
from rlcatalog.errors import ResumeWarning, SavedPolicyError
from rlcatalog_policy import checksum_of
from rlcatalog_ppo import checkpoints


@pytest.fixture(scope="module")
def policy():
    return rlcatalog.build(
        env=gym.make("CartPole-v1"), config={"fcnet_hiddens": [2]}, framework="torch"
    )


@pytest.fixture
def checkpoint(policy, tmp_path):
    """The folder of a checkpoint with `make_state()`."""
    folder = tmp_path / "checkpoint"
    # Anything may be under "policy", because it is not written with the state.
    checkpoints.write(folder, policy, {**make_state(), "policy": {"weights": object()}})
    return folder


def test_checkpoint_text_is_signed(checkpoint):
    text = (checkpoint / "training.json").read_text()

    about = json.loads(text)
    assert text.endswith("}\n")
    assert about["format"] == "rlcatalog-training"
    assert about["format_version"] == 1
    assert about["checksum"] == checksum_of(about)
    assert "policy" not in about["state"]


def test_checkpoint_has_a_policy_a_text_and_a_file_of_arrays(checkpoint, policy):
    about = json.loads((checkpoint / "training.json").read_text())

    [file_of_arrays] = about["files"]
    files = {path.name for path in checkpoint.iterdir()}
    assert files == {"policy", "training.json", file_of_arrays}
    saved_policy = rlcatalog.load(checkpoint / "policy")
    assert saved_policy.model.get_weights().keys() == policy.model.get_weights().keys()


def test_checkpoint_is_read_as_it_was_written(checkpoint):
    folder, state = checkpoints.read(checkpoint)

    assert folder == checkpoint
    assert state.keys() == make_state().keys()
    np.testing.assert_array_equal(state["randomness"]["numpy"][1], np.zeros(624))


def edit_and_sign(checkpoint, **changes):
    """Change entries of a checkpoint's text, and write the checksum that fits."""
    path = checkpoint / "training.json"
    about = {**json.loads(path.read_text()), **changes}
    about["checksum"] = checksum_of(about)
    path.write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "no format 'rlcatalog-training' in it"),
        ({"format_version": 2}, "format version 2; this rlcatalog reads 1"),
        ({"files": {"../other": "0"}}, r"names the file '\.\./other'"),
    ],
)
def test_checkpoint_with_another_entry_is_an_error(changes, message, checkpoint):
    edit_and_sign(checkpoint, **changes)

    with pytest.raises(SavedPolicyError, match=message) as caught:
        checkpoints.read(checkpoint)

    assert "checkpoint/training.json: not a checkpoint, or damaged: " in str(caught.value)


def test_checkpoint_without_entries_is_an_error(checkpoint):
    (checkpoint / "training.json").write_text("[]")

    with pytest.raises(SavedPolicyError, match="no format 'rlcatalog-training' in it"):
        checkpoints.read(checkpoint)


def test_checkpoint_changed_without_its_checksum_is_an_error(checkpoint):
    path = checkpoint / "training.json"
    about = json.loads(path.read_text())
    about["state"]["steps"] = 7
    path.write_text(json.dumps(about))

    with pytest.raises(SavedPolicyError, match="its checksum differs"):
        checkpoints.read(checkpoint)


def test_checkpoint_with_overwritten_arrays_is_an_error(checkpoint):
    [file_of_arrays] = checkpoint.glob("*.safetensors")
    file_of_arrays.write_bytes(b"\0" * 100)

    with pytest.raises(SavedPolicyError, match="truncated or changed"):
        checkpoints.read(checkpoint)


def test_checkpoint_with_an_invalid_state_is_an_error(checkpoint):
    about = json.loads((checkpoint / "training.json").read_text())
    edit_and_sign(checkpoint, state={**about["state"], "steps": -7})

    with pytest.raises(SavedPolicyError, match=r"not a checkpoint, or damaged: .*steps"):
        checkpoints.read(checkpoint)


def test_checkpoint_with_a_link_is_not_read(checkpoint, tmp_path):
    (checkpoint / "link").symlink_to(tmp_path)

    with pytest.raises(SavedPolicyError, match="link: a link, which is not followed"):
        checkpoints.read(checkpoint)


def test_checkpoint_with_a_text_above_32_mib_is_not_read(checkpoint):
    with (checkpoint / "training.json").open("r+b") as file:
        file.truncate(2**25 + 1)  # fills it with zeros, which take no space

    with pytest.raises(SavedPolicyError, match="at most 33554432"):  # 2**25
        checkpoints.read(checkpoint)


def test_read_of_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(SavedPolicyError, match="contains no checkpoint to resume") as caught:
        checkpoints.read(tmp_path)

    assert "(no training.json)" in str(caught.value)


def test_read_of_a_saved_policy_says_what_to_do(policy, tmp_path):
    policy.save(tmp_path)

    with pytest.raises(SavedPolicyError, match="contains a saved policy") as caught:
        checkpoints.read(tmp_path)

    message = str(caught.value)
    assert "contains a saved policy, not a checkpoint" in message
    assert f"rlcatalog.load({str(tmp_path)!r})" in message
    assert "algo.save_checkpoint(folder)" in message


REPLAYED = {"generator": {"g": 0}, "actions": [1] * 300}
SAVES_ITS_STATE = {"generator": {"g": 1}, "levels": [1] * 30}


def write_two_environments(folder, policy):
    """Write a checkpoint with an environment that is replayed by its actions, and another one."""
    config = {"num_envs": 2, "env_config": {}}
    state = make_state(environments=[REPLAYED, SAVES_ITS_STATE], config=config)
    checkpoints.write(folder, policy, state)


def test_actions_are_left_out_only_if_the_text_is_too_long(policy, tmp_path, monkeypatch):
    write_two_environments(tmp_path / "unlimited", policy)
    size = (tmp_path / "unlimited" / "training.json").stat().st_size

    monkeypatch.setattr(checkpoints, "_MAX_BYTES", size)  # in bytes
    write_two_environments(tmp_path / "just short enough", policy)

    _, state = checkpoints.read(tmp_path / "just short enough")
    assert state["environments"] == [REPLAYED, SAVES_ITS_STATE]

    monkeypatch.setattr(checkpoints, "_MAX_BYTES", size - 1)
    with pytest.warns(ResumeWarning, match="need too much space to be saved"):
        write_two_environments(tmp_path / "too long", policy)

    _, state = checkpoints.read(tmp_path / "too long")
    why = "the actions of its episode need too much space to be saved"
    # The first environment has lost its actions.
    assert state["environments"] == [{"generator": {"g": 0}, "why": why}, SAVES_ITS_STATE]


def test_error_of_a_callback_is_blamed_on_its_state():
    with (
        pytest.raises(SavedPolicyError, match=r"^Evaluation: the saved state") as caught,
        checkpoints.name_owner_in_errors("Evaluation"),
    ):
        raise KeyError("x")

    assert "does not fit: KeyError: 'x'." in str(caught.value)


@pytest.mark.parametrize("error", [SavedPolicyError("as it is"), ResumeWarning("as it is")])
def test_error_of_rlcatalog_is_not_blamed_on_the_state(error):
    with (
        pytest.raises(type(error), match=r"^as it is$"),
        checkpoints.name_owner_in_errors("Evaluation"),
    ):
        raise error
