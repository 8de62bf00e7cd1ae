"""Compat's batches and sequences beside those of the installed Ray: the same calls, the same
results.
"""

import pickle

import numpy as np
import pytest
import torch
from nested import assert_equal

from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_compat.rllib.models.tf.recurrent_tf_modelv2 import (
    add_time_dimension as older_add_time_dimension,
)
from rlcatalog_compat.rllib.policy import rnn_sequencing
from rlcatalog_compat.rllib.policy.sample_batch import SampleBatch
from rlcatalog_compat.rllib.policy.view_requirement import ViewRequirement

pytest.importorskip("ray.rllib")
from ray.rllib.policy import rnn_sequencing as ray_sequencing
from ray.rllib.policy.sample_batch import SampleBatch as RaySampleBatch
from ray.rllib.policy.view_requirement import ViewRequirement as RayViewRequirement

# --- sequences ------------------------------------------------------------------------------------


def draw_columns(seed):
    """Return the columns of a batch of 23 rows, from several episodes."""
    random = np.random.default_rng(seed)
    return {
        "obs": random.random((23, 2), np.float32),
        "actions": random.integers(0, 9, 23),
        "infos": np.array([{"row": row} for row in range(23)], object),
        "terminateds": random.random(23) < 0.2,
        "eps_id": np.cumsum(random.random(23) < 0.2),
        "unroll_id": np.cumsum(random.random(23) < 0.1),
        "agent_index": np.zeros(23, np.int64),
        "state_in_0": random.random((23, 3)),
        "state_out_0": random.random((23, 3)),
    }


@pytest.fixture(params=range(3), ids=lambda seed: f"seed-{seed}")
def columns(request):
    return draw_columns(request.param)


def chop_with_both(columns, **arguments):
    """Chop columns into sequences of at most four, with compat and with Ray."""
    arguments = {
        "state_columns": [columns["state_in_0"]],
        "max_seq_len": 4,
        "episode_ids": columns["eps_id"],
        "unroll_ids": columns["unroll_id"],
        "agent_indices": columns["agent_index"],
        **arguments,
    }
    ours = rnn_sequencing.chop_into_sequences(**arguments)
    theirs = ray_sequencing.chop_into_sequences(**arguments)
    return ours, theirs


@pytest.mark.parametrize("padding", ["zero", "last"])
@pytest.mark.parametrize("dynamic_max", [True, False])
def test_chop_into_sequences_matches_ray(columns, padding, dynamic_max):
    features = [columns["obs"], columns["actions"].tolist(), columns["infos"]]

    ours, theirs = chop_with_both(
        columns, feature_columns=features, dynamic_max=dynamic_max, padding=padding
    )

    assert_equal(ours, theirs)


@pytest.mark.parametrize("padding", ["zero", "last"])
@pytest.mark.parametrize("dynamic_max", [True, False])
def test_chop_into_sequences_matches_ray_for_nested_data(columns, padding, dynamic_max):
    nested_features = [{"a": columns["obs"], "b": (columns["actions"],)}]

    ours, theirs = chop_with_both(
        columns,
        feature_columns=nested_features,
        handle_nested_data=True,
        dynamic_max=dynamic_max,
        padding=padding,
    )

    assert_equal(ours, theirs)


@pytest.mark.parametrize("padding", ["zero", "last"])
@pytest.mark.parametrize("dynamic_max", [True, False])
def test_chop_into_sequences_matches_ray_for_known_lengths(columns, padding, dynamic_max):
    options = {
        "feature_columns": [columns["obs"], columns["actions"].tolist()],
        "dynamic_max": dynamic_max,
        "padding": padding,
    }
    # Chop the columns once, in order to know the sequences' lengths and first states.
    (_, first_states, lengths), _ = chop_with_both(columns, **options)

    ours, theirs = chop_with_both(
        columns,
        **options,
        seq_lens=lengths,
        state_columns=first_states,
        states_already_reduced_to_init=True,
    )

    assert_equal(ours, theirs)


def test_chop_into_sequences_shuffles_whole_sequences():
    rows = np.arange(1, 13)

    [sequences], [states], lengths = rnn_sequencing.chop_into_sequences(
        feature_columns=[rows],
        state_columns=[rows],  # a sequence has the state of its first row
        max_seq_len=3,
        episode_ids=np.array([0] * 5 + [1] * 5 + [2] * 2),
        shuffle=True,
    )

    sequences = sequences.reshape(-1, 3)
    # An episode of five rows is chopped into three rows and two, which are padded with 0.
    expected = [[1, 2, 3], [4, 5, 0], [6, 7, 8], [9, 10, 0], [11, 12, 0]]
    assert sorted(sequences.tolist()) == expected
    assert states.tolist() == sequences[:, 0].tolist()
    assert lengths.tolist() == [np.count_nonzero(sequence) for sequence in sequences]


def test_chop_into_sequences_rejects_another_padding():
    with pytest.raises(ConfigError, match="expected 'zero' or 'last'"):
        rnn_sequencing.chop_into_sequences(
            feature_columns=[], state_columns=[], max_seq_len=3, padding="first"
        )


def pad(batch, **arguments):
    """Pad a batch to sequences of at most four, with the function of its package."""
    module = rnn_sequencing if isinstance(batch, SampleBatch) else ray_sequencing
    module.pad_batch_to_sequences_of_same_size(batch, 4, **arguments)


def make_views(cls, shift):
    """Return the view of a state, for batches of a class of compat or of Ray."""
    requirement = ViewRequirement if cls is SampleBatch else RayViewRequirement
    return {"state_in_0": requirement("state_out_0", shift=shift)}


@pytest.mark.parametrize("shift", [-1, "-3:-1"])
@pytest.mark.parametrize("padding", ["zero", "last"])
def test_padded_batch_matches_ray(shift, padding):
    ours = SampleBatch(draw_columns(seed=5))
    theirs = RaySampleBatch(draw_columns(seed=5))

    # Before a sequence, a model with this view reads one state, or the last three.
    pad(ours, view_requirements=make_views(SampleBatch, shift), padding=padding)
    pad(theirs, view_requirements=make_views(RaySampleBatch, shift), padding=padding)

    assert_equal(dict(ours), dict(theirs))
    assert ours.zero_padded == theirs.zero_padded
    assert ours.max_seq_len == theirs.max_seq_len


@pytest.mark.parametrize("shift", [-1, "-3:-1"])
@pytest.mark.parametrize("cls", [SampleBatch, RaySampleBatch])
def test_padded_batch_is_not_padded_again(cls, shift):
    batch = cls(draw_columns(seed=5))
    views = make_views(cls, shift)
    pad(batch, view_requirements=views)
    before = dict(batch)

    pad(batch, view_requirements=views)

    assert all(batch[name] is before[name] for name in before)


@pytest.mark.parametrize("multiple", [1, 5])
def test_batch_without_state_is_padded_to_a_multiple(multiple):
    columns = draw_columns(seed=3)
    del columns["state_in_0"]
    del columns["state_out_0"]
    ours = SampleBatch(columns)
    theirs = RaySampleBatch(columns)

    pad(ours, batch_divisibility_req=multiple)
    pad(theirs, batch_divisibility_req=multiple)

    assert len(ours["obs"]) % multiple == 0
    assert_equal(dict(ours), dict(theirs))


ROWS = np.arange(12.0, dtype=np.float32).reshape(6, 2)
#: Two sequences, padded to three steps.
LENGTHS = np.array([2, 3])


@pytest.mark.parametrize("framework", [None, "np"])
def test_add_time_dimension_matches_ray_in_numpy(framework):
    result = rnn_sequencing.add_time_dimension(ROWS, seq_lens=LENGTHS, framework=framework)

    assert isinstance(result, np.ndarray)
    assert_equal(result, ray_sequencing.add_time_dimension(ROWS, seq_lens=LENGTHS, framework="np"))


@pytest.mark.parametrize("framework", [None, "np"])
def test_add_time_dimension_puts_time_first_in_numpy(framework):
    result = rnn_sequencing.add_time_dimension(
        ROWS, seq_lens=LENGTHS, framework=framework, time_major=True
    )

    # Ray's function does not support it.
    assert isinstance(result, np.ndarray)
    np.testing.assert_array_equal(result, ROWS.reshape(2, 3, 2).transpose(1, 0, 2))


def test_older_add_time_dimension_matches_ray():
    result = older_add_time_dimension(ROWS, LENGTHS)

    assert_equal(result, ray_sequencing.add_time_dimension(ROWS, seq_lens=LENGTHS, framework="np"))


# --- batches of sequences -------------------------------------------------------------------------

#: Three sequences of 2, 3 and 4 rows, each with a state.
SEQUENCES = {
    "obs": np.arange(9),
    "seq_lens": np.array([2, 3, 4]),
    "state_in_0": np.array([[1.0], [2.0], [3.0]]),
}


@pytest.mark.parametrize(
    # The sequences are rows 0 to 1, rows 2 to 4 and rows 5 to 8.
    ("start", "end"),
    [(0, 9), (0, 1), (1, 5), (2, 5), (3, 4), (4, 6)],
)
def test_slice_of_sequences_matches_ray(start, end):
    ours = SampleBatch(SEQUENCES).slice(start, end)
    theirs = RaySampleBatch(SEQUENCES).slice(start, end)

    assert_equal(dict(ours), dict(theirs))


def test_size_bytes_matches_ray():
    size = SampleBatch(SEQUENCES).size_bytes()

    assert size == 9 * 8 + 3 * 8 + 3 * 8  # 8 bytes for each number of the three columns
    assert size == RaySampleBatch(SEQUENCES).size_bytes()


def test_right_zero_pad_matches_ray():
    ours = SampleBatch(SEQUENCES)

    padded = ours.right_zero_pad(5)

    assert padded is ours
    assert_equal(dict(ours), dict(RaySampleBatch(SEQUENCES).right_zero_pad(5)))
    assert ours.zero_padded
    assert ours.max_seq_len == 5


def test_slice_of_a_padded_batch_has_whole_sequences():
    padded = SampleBatch(SEQUENCES).right_zero_pad(5)

    last_two = padded.slice(5, 15)

    assert last_two["obs"].tolist() == [2, 3, 4, 0, 0, 5, 6, 7, 8, 0]
    assert last_two["seq_lens"].tolist() == [3, 4]
    assert last_two["state_in_0"].tolist() == [[2], [3]]
    assert set(last_two) == {"obs", "seq_lens", "state_in_0"}


def test_right_zero_pad_rejects_longer_sequences():
    with pytest.raises(ConfigError, match="seq_lens of up to 3"):
        SampleBatch(SEQUENCES).right_zero_pad(3)


def test_right_zero_pad_needs_seq_lens():
    with pytest.raises(ConfigError, match="found None"):
        SampleBatch(obs=np.arange(3)).right_zero_pad(3)


# --- episodes of a batch --------------------------------------------------------------------------

TERMINATEDS = np.array([0, 0, 1, 0, 0, 0])
TRUNCATEDS = np.array([0, 0, 0, 0, 1, 0])
EPISODE_IDS = np.array([1, 1, 1, 2, 3, 3])


@pytest.fixture(params=[False, True], ids=["terminateds", "and-truncateds"])
def columns_of_episodes(request):
    columns = {"a": np.arange(6), "terminateds": TERMINATEDS}
    if request.param:
        columns["truncateds"] = TRUNCATEDS
    return columns


def split_with_both(columns, key):
    """Return the parts of a batch's episodes, in compat and in Ray."""
    ours = SampleBatch(columns).split_by_episode(key=key)
    theirs = RaySampleBatch(columns).split_by_episode(key=key)
    return [dict(part) for part in ours], [dict(part) for part in theirs]


@pytest.mark.parametrize("key", ["dones", "eps_id"])
def test_split_by_episode_matches_ray(columns_of_episodes, key):
    ours, theirs = split_with_both({**columns_of_episodes, "eps_id": EPISODE_IDS}, key)

    assert_equal(ours, theirs)
    assert len(ours) > 1


def test_split_by_episode_without_ids_matches_ray(columns_of_episodes):
    ours, theirs = split_with_both(columns_of_episodes, key=None)

    assert_equal(ours, theirs)
    assert len(ours) > 1


def test_dones_match_ray(columns_of_episodes):
    ours = SampleBatch(columns_of_episodes)["dones"]

    assert_equal(ours, RaySampleBatch(columns_of_episodes)["dones"])


def test_split_by_episode_uses_a_column_of_dones():
    batch = SampleBatch(a=np.arange(4), dones=np.array([0, 1, 0, 0]))

    parts = batch.split_by_episode(key="dones")

    assert [part["a"].tolist() for part in parts] == [[0, 1], [2, 3]]


def test_split_by_episode_rejects_another_key():
    with pytest.raises(ConfigError, match="'eps_id', 'dones' or None; found 'a'"):
        SampleBatch(a=np.arange(4)).split_by_episode(key="a")


def test_split_by_episode_needs_ids_or_terminateds():
    with pytest.raises(KeyError, match="terminateds"):
        SampleBatch(a=np.arange(4)).split_by_episode()


# --- keys, compression, devices -------------------------------------------------------------------


@pytest.mark.parametrize("cls", [SampleBatch, RaySampleBatch], ids=["compat", "ray"])
def test_batch_records_added_deleted_and_accessed_keys(cls):
    batch = cls(obs=np.arange(3), actions=np.arange(3), rewards=np.arange(3))

    batch["extra"] = np.zeros(3)
    batch["obs"] = np.ones(3)
    del batch["actions"]
    batch["rewards"]  # read, which is recorded too

    assert batch.added_keys == {"extra"}
    assert batch.deleted_keys == {"actions"}
    assert batch.accessed_keys == {"rewards"}
    assert batch.copy().added_keys == {"extra"}


@pytest.mark.parametrize("cls", [SampleBatch, RaySampleBatch], ids=["compat", "ray"])
def test_get_interceptor_changes_each_column_once(cls):
    batch = cls(obs=np.arange(3), rewards=np.arange(3))
    calls = []

    def add_one(column):
        calls.append(1)
        return column + 1

    batch.set_get_interceptor(add_one)

    assert batch["obs"].tolist() == [1, 2, 3]
    assert batch["obs"].tolist() == [1, 2, 3]
    assert batch["rewards"].tolist() == [1, 2, 3]
    assert len(calls) == 2  # once for "obs" and once for "rewards"


@pytest.mark.parametrize("cls", [SampleBatch, RaySampleBatch], ids=["compat", "ray"])
def test_get_interceptor_applies_to_copies_until_it_is_removed(cls):
    batch = cls(obs=np.arange(3), rewards=np.arange(3))
    batch.set_get_interceptor(lambda column: column + 1)
    assert batch["obs"].tolist() == [1, 2, 3]
    assert batch["rewards"].tolist() == [1, 2, 3]

    batch["obs"] = np.array([5, 5, 5])
    copied = batch.copy()
    batch.set_get_interceptor(None)

    # The copy keeps the interceptor, and the batch has none.
    assert copied["rewards"].tolist() == [1, 2, 3]
    assert batch["obs"].tolist() == [5, 5, 5]


@pytest.fixture
def columns_to_compress():
    """Columns of observations, which are compressed, and of actions, which are not."""
    return {
        "obs": {"a": np.arange(6.0).reshape(3, 2)},
        "new_obs": np.zeros((3, 1000)),
        "actions": np.arange(3),
    }


@pytest.mark.parametrize("bulk", [False, True])
def test_decompressed_columns_are_the_original_ones(bulk, columns_to_compress):
    batch = SampleBatch(columns_to_compress)

    assert batch.compress(bulk) is batch

    assert_equal(dict(batch.decompress_if_needed()), columns_to_compress)
    assert batch.decompress_if_needed()["actions"].tolist() == [0, 1, 2]


def test_compress_compresses_each_row(columns_to_compress):
    batch = SampleBatch(columns_to_compress).compress(bulk=False)

    assert isinstance(batch["new_obs"][0], bytes)
    assert batch["actions"].tolist() == [0, 1, 2]


def test_compress_in_bulk_compresses_whole_columns(columns_to_compress):
    batch = SampleBatch(columns_to_compress)
    size = batch.size_bytes()

    batch.compress(bulk=True)

    assert isinstance(batch["new_obs"], bytes)
    assert batch["actions"].tolist() == [0, 1, 2]
    assert batch.size_bytes() < size / 10


def test_to_device_makes_tensors():
    batch = SampleBatch(obs=np.arange(3.0), actions=(np.arange(3),)).to_device("cpu")

    assert batch["obs"].dtype is torch.float32
    assert torch.is_tensor(batch["actions"][0])


@pytest.mark.parametrize(
    "infos", [[{"a": 1}, {}], np.array([{"a": 1}, {}], object)], ids=["list", "array"]
)
def test_to_device_leaves_infos_unchanged(infos):
    batch = SampleBatch(obs=np.zeros(2), infos=infos).to_device("cpu")

    assert torch.is_tensor(batch["obs"])
    assert list(batch["infos"]) == [{"a": 1}, {}]


def test_to_device_supports_torch_only():
    batch = SampleBatch(obs=np.arange(3.0))

    with pytest.raises(NotServedError, match="only framework='torch' is supported"):
        batch.to_device("cpu", framework="tf")


def test_pickled_batch_keeps_columns_and_attributes():
    batch = SampleBatch(obs=np.arange(3), _max_seq_len=4)
    batch["new"] = np.arange(3)

    unpickled = pickle.loads(pickle.dumps(batch))

    assert_equal(dict(unpickled), dict(batch))
    assert unpickled.max_seq_len == 4
    assert unpickled.added_keys == {"new"}
