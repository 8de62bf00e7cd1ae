"""Recorded rollouts: how a run writes them, and how a `Reader` draws batches from them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rlcatalog.errors import SavedPolicyError
from rlcatalog_ppo.offline import Reader, Recorder
from rlcatalog_ppo.rollout import Rollout

#: All that a `Recorder` reads of a policy.
SCALAR_ACTIONS = SimpleNamespace(action_codec=SimpleNamespace(scalar=True))
VECTOR_ACTIONS = SimpleNamespace(action_codec=SimpleNamespace(scalar=False))


def make_rollout(*, reward, mask=None):
    """Return a rollout of 3 steps in 2 environments, in which all rewards are equal."""
    zeros = np.zeros((3, 2), np.float32)
    return Rollout(
        obs=np.zeros((3, 2, 1)),
        raw_action=np.zeros((3, 2, 1), int),
        logp=zeros,
        value=zeros,
        reward=zeros + reward,
        done=np.zeros((3, 2), bool),
        bootstrap=zeros,
        last_value=np.zeros(2),
        mask=mask,
    )


def read_file(path):
    """Return the columns of a recorded rollout."""
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


# --- writing --------------------------------------------------------------------------------------


def test_recorder_writes_file_per_rollout(tmp_path):
    recorder = Recorder(tmp_path / "new" / "folder", SCALAR_ACTIONS)
    assert recorder.number == 0

    for reward in (0, 1, 2):
        recorder.write(make_rollout(reward=reward))

    assert recorder.number == 3
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == [
        "rollout-00000.npz",
        "rollout-00001.npz",
        "rollout-00002.npz",
    ]


def test_recorded_file_has_row_per_step(tmp_path):
    Recorder(tmp_path, SCALAR_ACTIONS).write(make_rollout(reward=2))

    columns = read_file(tmp_path / "rollout-00000.npz")

    # 3 steps in 2 environments
    assert {name: column.shape for name, column in columns.items()} == {
        "obs": (6, 1),
        "actions": (6,),
        "rewards": (6,),
        "dones": (6,),
    }
    assert columns["rewards"].tolist() == [2] * 6


def test_recorder_continues_after_existing_files(tmp_path):
    Recorder(tmp_path, SCALAR_ACTIONS).write(make_rollout(reward=0))

    recorder = Recorder(tmp_path, SCALAR_ACTIONS)
    assert recorder.number == 1
    recorder.write(make_rollout(reward=7))

    assert read_file(tmp_path / "rollout-00000.npz")["rewards"].tolist() == [0] * 6
    assert read_file(tmp_path / "rollout-00001.npz")["rewards"].tolist() == [7] * 6


def test_recorder_writes_action_masks(tmp_path):
    mask = np.ones((3, 2, 4), bool)

    Recorder(tmp_path, SCALAR_ACTIONS).write(make_rollout(reward=0, mask=mask))

    assert read_file(tmp_path / "rollout-00000.npz")["action_mask"].shape == (6, 4)


# --- reading --------------------------------------------------------------------------------------


def test_reader_returns_batches_of_256_rows(tmp_path):
    Recorder(tmp_path, VECTOR_ACTIONS).write(make_rollout(reward=0))

    batch = Reader(tmp_path).next()

    assert {name: column.shape for name, column in batch.items()} == {
        "obs": (256, 1),
        "actions": (256, 1),
        "rewards": (256,),
        "dones": (256,),
    }


def first_rewards(folder, **options):
    """Return the first reward of each of 20 batches."""
    reader = Reader(folder, batch_size=3, **options)
    return [float(reader.next()["rewards"][0]) for _ in range(20)]


def test_reader_draws_from_all_files(tmp_path):
    recorder = Recorder(tmp_path, VECTOR_ACTIONS)
    recorder.write(make_rollout(reward=0))
    recorder.write(make_rollout(reward=1))

    assert set(first_rewards(tmp_path)) == {0, 1}


def test_reader_draws_by_its_seed(tmp_path):
    recorder = Recorder(tmp_path, VECTOR_ACTIONS)
    recorder.write(make_rollout(reward=0))
    recorder.write(make_rollout(reward=1))

    assert first_rewards(tmp_path) == first_rewards(tmp_path, seed=0)
    assert first_rewards(tmp_path) != first_rewards(tmp_path, seed=1)


def test_empty_folder_is_an_error(tmp_path):
    with pytest.raises(SavedPolicyError, match="no recorded rollouts"):
        Reader(tmp_path)


def test_pickled_objects_in_file_are_refused(tmp_path):
    # NumPy stores an array of objects as a pickle, and loading a pickle can run code.
    objects = np.array([print, None], dtype=object)
    np.savez(tmp_path / "rollout-00000.npz", rewards=objects)

    with pytest.raises(SavedPolicyError, match="not a recorded rollout") as caught:
        Reader(tmp_path)

    assert "rollout-00000.npz" in str(caught.value)
    assert "allow_pickle" in str(caught.value)


def test_damaged_file_is_named(tmp_path):
    (tmp_path / "rollout-00000.npz").write_bytes(b"no archive")

    with pytest.raises(SavedPolicyError, match=r"rollout-00000\.npz: not a recorded rollout"):
        Reader(tmp_path)
