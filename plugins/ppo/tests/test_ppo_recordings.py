"""Recorded rollouts: how a run writes them, and how a `Reader` draws batches from them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from numbered_env import NumberedEpisodes, find_ends, read_numbers

from rlcatalog.errors import SavedPolicyError
from rlcatalog_ppo import PPO
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
    folder = tmp_path / "new" / "folder"
    recorder = Recorder(folder, SCALAR_ACTIONS)

    recorder.write(make_rollout(reward=0))
    recorder.write(make_rollout(reward=1))

    assert recorder.next_number == 2
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["rollout-00000.npz", "rollout-00001.npz"]


def test_recorded_file_has_row_per_step(tmp_path):
    Recorder(tmp_path, SCALAR_ACTIONS).write(make_rollout(reward=2))

    columns = read_file(tmp_path / "rollout-00000.npz")

    rows = 3 * 2  # 3 steps in 2 environments
    assert columns["obs"].shape == (rows, 1)
    assert columns["actions"].shape == (rows,)
    assert columns["rewards"].tolist() == [2] * rows
    assert columns["dones"].tolist() == [False] * rows


def test_recorder_continues_after_existing_files(tmp_path):
    Recorder(tmp_path, SCALAR_ACTIONS).write(make_rollout(reward=0))

    recorder = Recorder(tmp_path, SCALAR_ACTIONS)
    assert recorder.next_number == 1
    recorder.write(make_rollout(reward=7))

    assert read_file(tmp_path / "rollout-00000.npz")["rewards"].tolist() == [0] * 6
    assert read_file(tmp_path / "rollout-00001.npz")["rewards"].tolist() == [7] * 6


def test_recorder_writes_action_masks(tmp_path):
    mask = np.ones((3, 2, 4), bool)

    Recorder(tmp_path, SCALAR_ACTIONS).write(make_rollout(reward=0, mask=mask))

    assert read_file(tmp_path / "rollout-00000.npz")["action_mask"].shape == (6, 4)


# --- reading --------------------------------------------------------------------------------------


def test_reader_returns_batches_of_256_rows_by_default(tmp_path):
    Recorder(tmp_path, VECTOR_ACTIONS).write(make_rollout(reward=0))

    batch = Reader(tmp_path).next()

    assert batch["obs"].shape == (256, 1)
    assert batch["actions"].shape == (256, 1)
    assert batch["rewards"].shape == (256,)
    assert batch["dones"].shape == (256,)


def test_reader_returns_what_ppo_recorded(tmp_path):
    config = {"num_envs": 3, "rollout_length": 17, "minibatch_size": 16, "num_epochs": 1}
    PPO(NumberedEpisodes, config, record=tmp_path).train()

    batch = Reader(tmp_path, batch_size=500).next()

    assert batch["obs"].shape == (500, 2)
    assert batch["actions"].shape == (500,)
    # The environment observes the numbers of its episode and step, and pays 1, 2, 3, …
    episode, step = read_numbers(batch["obs"])
    np.testing.assert_array_equal(batch["rewards"], step + 1)
    terminated, truncated = find_ends(episode, step)
    np.testing.assert_array_equal(batch["dones"], terminated | truncated)


def test_reader_draws_again_in_a_traced_function(tmp_path):
    recorder = Recorder(tmp_path, SCALAR_ACTIONS)
    recorder.write(make_rollout(reward=0))
    recorder.write(make_rollout(reward=1))
    reader = Reader(tmp_path, batch_size=500)

    @tf.function
    def draw():
        return reader.tf_input_ops()["rewards"]

    assert draw().shape == (500,)
    assert not np.array_equal(draw(), draw())  # 0s and 1s, drawn at random


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
    message = r"no recorded rollouts\. Record some: `rlcatalog train ENV --record"
    with pytest.raises(SavedPolicyError, match=message):
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

    with pytest.raises(SavedPolicyError, match=r"00000\.npz: not a recorded rollout"):
        Reader(tmp_path)
