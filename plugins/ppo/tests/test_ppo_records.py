"""Experience that a run records to files, and the batches that are read from them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from numbered_env import NumberedEpisodes, find_ends, read_numbers

from rlcatalog.errors import SavedPolicyError
from rlcatalog_ppo import PPO
from rlcatalog_ppo.offline import Reader
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

SMALL = {"num_envs": 3, "rollout_length": 17, "minibatch_size": 16, "num_epochs": 1, "seed": 0}


@pytest.fixture
def record(tmp_path):
    """A folder with the record of two rollouts of `NumberedEpisodes`."""
    folder = tmp_path / "record"
    algo = PPO(NumberedEpisodes, {**SMALL, "model": {"fcnet_hiddens": [8]}}, record=folder)
    algo.train()
    algo.train()
    return folder


def test_rollouts_are_written_to_numbered_files(record):
    names = sorted(path.name for path in record.iterdir())

    assert names == ["rollout-00000.npz", "rollout-00001.npz"]


def test_reader_returns_recorded_rows(record):
    batch = Reader(record, batch_size=500).next()

    episode, step = read_numbers(batch["obs"])
    terminated, truncated = find_ends(episode, step)
    assert batch["obs"].shape == (500, 2)
    assert batch["actions"].shape == (500,)
    np.testing.assert_array_equal(batch["dones"], terminated | truncated)
    np.testing.assert_array_equal(batch["rewards"], step + 1)  # as the environment pays


def test_reader_draws_other_rows_each_time(record):
    reader = Reader(record, batch_size=500)

    assert not np.array_equal(reader.next()["obs"], reader.next()["obs"])


def test_reader_draws_other_rows_each_time_in_a_traced_function(record):
    reader = Reader(record, batch_size=500)

    @tf.function
    def draw():
        return reader.tf_input_ops()["obs"]

    assert draw().shape == (500, 2)
    assert not np.array_equal(draw(), draw())


def test_reader_of_a_folder_without_records_names_the_command(tmp_path):
    command = "rlcatalog train ENV --record"
    with pytest.raises(SavedPolicyError, match=rf"no recorded rollouts\. Record some: `{command}"):
        Reader(tmp_path)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_record_has_the_rewards_of_the_environment(framework, tmp_path):
    """Not those of truncated episodes plus a value, as for training."""
    base = {"torch": TorchModelV2, "tf": TFModelV2}[framework]

    class ValueNearSeven(base):
        def __init__(self, *args):
            super().__init__(*args)
            if framework == "torch":
                self.layer = torch.nn.Linear(2, self.num_outputs)
            else:
                self.layer = tf.keras.layers.Dense(self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            return self.layer(input_dict["obs"]), state

        def value_function(self):
            return self.last_output()[:, 0] + 7.0

    config = {**SMALL, "framework": framework, "model": {"custom_model": ValueNearSeven}}
    PPO(NumberedEpisodes, config, record=tmp_path).train()

    batch = Reader(tmp_path, batch_size=500).next()
    _, step = read_numbers(batch["obs"])  # the environment observes the number of the step
    np.testing.assert_array_equal(batch["rewards"], step + 1)  # and pays the number of the next
