"""Compat's own functions beside those of the installed Ray: the same calls, the same results."""

import abc
import pickle

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

from rlcatalog.errors import ConfigError, NotServedError, ObservationError, UnsupportedSpaceError
from rlcatalog_compat.rllib.models.tf.recurrent_tf_modelv2 import (
    add_time_dimension as older_add_time_dimension,
)
from rlcatalog_compat.rllib.models.torch.modules.convtranspose2d_stack import ConvTranspose2DStack
from rlcatalog_compat.rllib.policy import rnn_sequencing
from rlcatalog_compat.rllib.policy.sample_batch import SampleBatch
from rlcatalog_compat.rllib.policy.view_requirement import ViewRequirement
from rlcatalog_compat.rllib.utils import numpy as numpy_utils
from rlcatalog_compat.rllib.utils.from_config import from_config
from rlcatalog_compat.rllib.utils.spaces.flexdict import FlexDict
from rlcatalog_compat.rllib.utils.spaces.simplex import Simplex
from rlcatalog_compat.rllib.utils.spaces.space_utils import convert_element_to_space_type

pytest.importorskip("ray.rllib")
from ray.rllib.policy import rnn_sequencing as ray_sequencing
from ray.rllib.policy.sample_batch import SampleBatch as RaySampleBatch
from ray.rllib.policy.view_requirement import ViewRequirement as RayViewRequirement
from ray.rllib.utils import from_config as ray_from_config, numpy as ray_numpy
from ray.rllib.utils.spaces import simplex as ray_simplex, space_utils as ray_spaces


def assert_equal(ours, theirs):
    """Compare nested dictionaries, lists, tuples and arrays."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for name in theirs:
            assert_equal(ours[name], theirs[name])
    elif is_nested(theirs):
        assert len(ours) == len(theirs)
        for our_part, their_part in zip(ours, theirs, strict=True):
            assert_equal(our_part, their_part)
    else:
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def is_nested(value):
    if not isinstance(value, (list, tuple)) or not value:
        return False
    return value[0] is not None and not np.isscalar(value[0])


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


paddings = pytest.mark.parametrize("padding", ["zero", "last"])
dynamic_maxes = pytest.mark.parametrize("dynamic_max", [True, False])


@paddings
@dynamic_maxes
def test_chop_into_sequences_matches_ray(columns, padding, dynamic_max):
    features = [columns["obs"], columns["actions"].tolist(), columns["infos"]]

    ours, theirs = chop_with_both(
        columns, feature_columns=features, dynamic_max=dynamic_max, padding=padding
    )

    assert_equal(ours, theirs)


@paddings
@dynamic_maxes
def test_chop_into_sequences_matches_ray_for_nested_data(columns, padding, dynamic_max):
    features = [{"a": columns["obs"], "b": (columns["actions"],)}]

    ours, theirs = chop_with_both(
        columns,
        feature_columns=features,
        handle_nested_data=True,
        dynamic_max=dynamic_max,
        padding=padding,
    )

    assert_equal(ours, theirs)


@paddings
@dynamic_maxes
def test_chop_into_sequences_matches_ray_for_known_lengths(columns, padding, dynamic_max):
    features = [columns["obs"], columns["actions"].tolist(), columns["infos"]]
    arguments = {"feature_columns": features, "dynamic_max": dynamic_max, "padding": padding}
    (_, states, lengths), _ = chop_with_both(columns, **arguments)

    ours, theirs = chop_with_both(
        columns,
        **arguments,
        seq_lens=lengths,
        state_columns=states,
        states_already_reduced_to_init=True,
    )

    assert_equal(ours, theirs)


def test_chop_into_sequences_shuffles_whole_sequences():
    rows = np.arange(12)

    [sequences], [states], lengths = rnn_sequencing.chop_into_sequences(
        feature_columns=[rows],
        state_columns=[rows],  # the number of a sequence's first row
        max_seq_len=3,
        episode_ids=rows // 5,  # episodes of 5, 5 and 2 rows
        shuffle=True,
    )

    assert sorted(lengths) == [2, 2, 2, 3, 3]
    for sequence, first, length in zip(sequences.reshape(-1, 3), states, lengths, strict=True):
        padding = [0] * (3 - length)
        assert sequence.tolist() == [*range(first, first + length), *padding]


def test_chop_into_sequences_rejects_another_padding():
    with pytest.raises(ConfigError, match="expected 'zero' or 'last'"):
        rnn_sequencing.chop_into_sequences(
            feature_columns=[], state_columns=[], max_seq_len=3, padding="first"
        )


def pad(batch, **arguments):
    """Pad a batch to sequences of at most four, with the function of its package."""
    module = rnn_sequencing if isinstance(batch, SampleBatch) else ray_sequencing
    module.pad_batch_to_sequences_of_same_size(batch, 4, **arguments)


def make_views(shift):
    """Return the views of a state in both packages."""
    ours = {"state_in_0": ViewRequirement("state_out_0", shift=shift)}
    theirs = {"state_in_0": RayViewRequirement("state_out_0", shift=shift)}
    return ours, theirs


@pytest.mark.parametrize("shift", [-1, "-3:-1"])
@paddings
def test_padded_batch_matches_ray(shift, padding):
    ours = SampleBatch(draw_columns(5))
    theirs = RaySampleBatch(draw_columns(5))
    our_views, their_views = make_views(shift)

    pad(ours, view_requirements=our_views, padding=padding)
    pad(theirs, view_requirements=their_views, padding=padding)

    assert_equal(dict(ours), dict(theirs))
    assert ours.zero_padded == theirs.zero_padded
    assert ours.max_seq_len == theirs.max_seq_len


@pytest.mark.parametrize("shift", [-1, "-3:-1"])
@pytest.mark.parametrize("cls", [SampleBatch, RaySampleBatch])
def test_padded_batch_is_not_padded_again(cls, shift):
    batch = cls(draw_columns(5))
    our_views, their_views = make_views(shift)
    views = our_views if cls is SampleBatch else their_views
    pad(batch, view_requirements=views)
    before = dict(batch)

    pad(batch, view_requirements=views)

    assert all(batch[name] is before[name] for name in before)


@pytest.mark.parametrize("multiple", [1, 5])
def test_batch_without_state_is_padded_to_a_multiple(multiple):
    columns = draw_columns(3)
    del columns["state_in_0"]
    del columns["state_out_0"]
    ours = SampleBatch(columns)
    theirs = RaySampleBatch(columns)

    pad(ours, batch_divisibility_req=multiple)
    pad(theirs, batch_divisibility_req=multiple)

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


def test_add_time_dimension_matches_ray_in_torch():
    result = rnn_sequencing.add_time_dimension(ROWS, seq_lens=LENGTHS, framework="torch")

    assert torch.is_tensor(result)
    assert_equal(result, ray_sequencing.add_time_dimension(ROWS, seq_lens=LENGTHS, framework="np"))


def test_add_time_dimension_puts_time_first_in_torch():
    result = rnn_sequencing.add_time_dimension(
        ROWS, seq_lens=LENGTHS, framework="torch", time_major=True
    )

    assert torch.is_tensor(result)
    np.testing.assert_array_equal(result, ROWS.reshape(2, 3, 2).transpose(1, 0, 2))


def test_add_time_dimension_matches_ray_in_tensorflow():
    result = rnn_sequencing.add_time_dimension(ROWS, seq_lens=LENGTHS, framework="tf2")

    assert tf.is_tensor(result)
    assert_equal(result, ray_sequencing.add_time_dimension(ROWS, seq_lens=LENGTHS, framework="np"))


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
    ("start", "end"), [(0, 9), (0, 1), (1, 5), (2, 5), (3, 4), (1, 9), (4, 6), (5, 9), (6, 8)]
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
    with pytest.raises(ConfigError, match="expected 'eps_id', 'dones' or None; found 'a'"):
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
    assert len(calls) == 2


@pytest.mark.parametrize("cls", [SampleBatch, RaySampleBatch], ids=["compat", "ray"])
def test_get_interceptor_applies_to_copies_until_it_is_removed(cls):
    batch = cls(obs=np.arange(3), rewards=np.arange(3))
    batch.set_get_interceptor(lambda column: column + 1)
    # It changes a column when it is first read.
    batch["obs"]
    batch["rewards"]

    batch["obs"] = np.full(3, 5)
    copied = batch.copy()
    batch.set_get_interceptor(None)

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


# --- spaces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [Simplex, ray_simplex.Simplex], ids=["compat", "ray"])
def test_simplex_has_one_concentration_per_component(cls):
    space = cls((3, 2), np.array([1.0, 2.0]))

    assert space.concentration.tolist() == [1, 2]


@pytest.mark.parametrize("cls", [Simplex, ray_simplex.Simplex], ids=["compat", "ray"])
def test_simplex_rejects_another_number_of_concentrations(cls):
    with pytest.raises((AssertionError, ValueError)):
        cls((3, 4), np.array([1, 2, 1]))


@pytest.fixture
def numpy_1_names(monkeypatch):
    """RLlib 2.54 reads a name that NumPy 2 removed."""
    monkeypatch.setattr(np, "float_", np.float64, raising=False)


@pytest.mark.usefixtures("numpy_1_names")
def test_values_take_the_types_of_a_sample_as_in_ray():
    sample = {"a": np.zeros(2, np.float32), "b": (np.array(0, np.int32), 3), "c": np.int64(2)}
    value = {"a": np.ones(2), "b": (4, 2.0), "c": np.float32(1.0)}

    converted = convert_element_to_space_type(value, sample)

    assert_equal(converted, ray_spaces.convert_element_to_space_type(value, sample))
    assert converted["a"].dtype == np.float32
    assert converted["b"][0].dtype == np.int32
    assert type(converted["b"][1]) is int
    assert isinstance(converted["c"], np.int64)


def test_value_of_another_kind_than_its_sample_is_an_error():
    with pytest.raises(ObservationError, match=r"array of shape \(2,\), found 1"):
        convert_element_to_space_type({"a": 1}, {"a": np.zeros(2)})


def test_flex_dict_keeps_keys_in_the_order_they_were_set():
    space = FlexDict({})

    space["b"] = gym.spaces.Discrete(2)
    space["a"] = gym.spaces.Box(-1, 1, (2,))

    sample = space.sample()
    assert list(space.spaces) == ["b", "a"]
    assert list(sample) == ["b", "a"]
    assert space.contains(sample)


def test_flex_dict_takes_keyword_arguments():
    assert list(FlexDict(x=gym.spaces.Discrete(2)).spaces) == ["x"]


def test_flex_dict_rejects_a_value_that_is_not_a_space():
    with pytest.raises(UnsupportedSpaceError, match="expected a space, found 3"):
        FlexDict({})["c"] = 3


# --- from_config ----------------------------------------------------------------------------------


class Recorder:
    """Keeps the arguments it was made with."""

    def __init__(self, *args, **kwargs):
        self.args = args
        self.kwargs = kwargs


class OtherRecorder(Recorder):
    pass


Recorder.__type_registry__ = {"other": OtherRecorder}


@pytest.mark.parametrize(
    ("config", "kwargs"),
    [
        pytest.param(None, {"a": 1}, id="no-config"),
        pytest.param({"a": 1}, {"a": 2}, id="arguments"),
        pytest.param("other", {"a": 1}, id="registered-name"),
        pytest.param({"type": "OtherRecorder", "_args": [3]}, {}, id="name-and-positional"),
        pytest.param(OtherRecorder, {"b": 2}, id="class"),
        pytest.param(f"{__name__}.OtherRecorder", {}, id="dotted-name"),
        pytest.param({"type": f"{__name__}.Recorder", "k": 1}, {}, id="dotted-name-in-dict"),
        pytest.param("Recorder", {"_args": 5}, id="own-name"),
    ],
)
def test_from_config_makes_the_objects_of_ray(config, kwargs):
    ours = from_config(Recorder, config, **kwargs)
    theirs = ray_from_config.from_config(Recorder, config, **kwargs)

    assert type(ours) is type(theirs)
    assert ours.args == theirs.args
    assert ours.kwargs == theirs.kwargs


def test_from_config_returns_an_object_unchanged():
    recorder = OtherRecorder()

    assert from_config(Recorder, recorder) is recorder


def test_from_config_needs_no_class_beside_a_type():
    assert isinstance(from_config({"type": f"{__name__}.OtherRecorder"}), OtherRecorder)


@pytest.mark.parametrize("make", [from_config, ray_from_config.from_config], ids=["compat", "ray"])
def test_from_config_takes_a_dotted_name_and_arguments(make):
    recorder = make(f"{__name__}.OtherRecorder", {"a": 1})

    assert type(recorder) is OtherRecorder
    assert recorder.kwargs == {"a": 1}


class Abstract(abc.ABC):
    @abc.abstractmethod
    def act(self): ...


@pytest.mark.parametrize("make", [from_config, ray_from_config.from_config], ids=["compat", "ray"])
def test_from_config_returns_none_for_an_abstract_class(make):
    assert make(Abstract, {}) is None


def test_from_config_rejects_an_unknown_name():
    with pytest.raises(ConfigError, match=r"one of \['other'\], found 'nowhere'"):
        from_config(Recorder, "nowhere")


def test_from_config_without_a_class_is_an_error():
    with pytest.raises(ConfigError, match="expected a class or its name, found None"):
        from_config({"a": 1})


# --- numbers and modules --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time_axis", "rows"),
    [pytest.param(False, (2,), id="rows"), pytest.param(True, (2, 3), id="rows-and-steps")],
)
def test_flatten_inputs_matches_ray(time_axis, rows):
    structure = {
        "a": spaces.Discrete(4),
        "b": (spaces.MultiDiscrete([2, 5]), spaces.Box(-1, 1, (2, 3))),
    }
    values = {
        "a": np.full(rows, 3),
        "b": (np.full((*rows, 2), 1), np.random.default_rng(0).random((*rows, 2, 3))),
    }

    ours = numpy_utils.flatten_inputs_to_1d_tensor(values, structure, time_axis=time_axis)

    theirs = ray_numpy.flatten_inputs_to_1d_tensor(values, structure, time_axis=time_axis)
    assert ours.shape == (*rows, 4 + (2 + 5) + 2 * 3)  # one-hots, and numbers as they are
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


STRUCTURE = (spaces.Discrete(3), spaces.MultiDiscrete([2, 2]), spaces.Box(-1, 1, (2, 2)))


def test_flatten_inputs_matches_ray_without_a_batch_axis():
    multi_discrete = np.array([1, 0])
    box = np.ones((2, 2))

    ours = numpy_utils.flatten_inputs_to_1d_tensor(
        (2, multi_discrete, box), STRUCTURE, batch_axis=False
    )

    theirs = ray_numpy.flatten_inputs_to_1d_tensor(
        (np.array(2), multi_discrete, box), STRUCTURE, batch_axis=False
    )
    np.testing.assert_array_equal(ours, np.ravel(theirs))


def test_flatten_inputs_rejects_a_time_axis_without_a_batch_axis():
    values = (2, np.array([1, 0]), np.ones((2, 2)))

    with pytest.raises(ConfigError, match="batch_axis=True with time_axis=True"):
        numpy_utils.flatten_inputs_to_1d_tensor(values, STRUCTURE, time_axis=True, batch_axis=False)


both_numpy_utils = pytest.mark.parametrize("utils", [numpy_utils, ray_numpy], ids=["compat", "ray"])


@both_numpy_utils
def test_immutable_array_cannot_be_changed(utils):
    action = utils.make_action_immutable(np.zeros(2))

    with pytest.raises(ValueError, match="read-only"):
        action[0] = 1


@both_numpy_utils
def test_immutable_dict_cannot_be_changed(utils):
    action = utils.make_action_immutable({"a": 1})

    with pytest.raises(TypeError, match="does not support item assignment"):
        action["a"] = 2


@both_numpy_utils
def test_immutable_number_is_the_number(utils):
    assert utils.make_action_immutable(3) == 3


def test_conv_transpose_stack_returns_a_distribution_of_images():
    stack = ConvTranspose2DStack(input_size=5, output_shape=(3, 64, 64), bias_init=0.5)

    images = stack(torch.zeros(2, 5))

    # The density of a normal distribution at its mean, with a scale of 1.
    log_density = -0.5 * np.log(2 * np.pi) * 3 * 64 * 64
    assert images.mean.shape == (2, 3, 64, 64)
    assert images.sample().shape == (2, 3, 64, 64)
    assert images.log_prob(images.mean).tolist() == pytest.approx([log_density] * 2, rel=1e-5)


def test_conv_transpose_stack_has_the_kernels_of_ray():
    stack = ConvTranspose2DStack(input_size=5, output_shape=(3, 64, 64), bias_init=0.5)

    kernels = [tuple(weight.shape) for weight in stack.parameters() if weight.ndim == 4]

    assert kernels == [(1024, 128, 5, 5), (128, 64, 5, 5), (64, 32, 6, 6), (32, 3, 6, 6)]


def test_conv_transpose_stack_uses_its_initializer():
    stack = ConvTranspose2DStack(
        input_size=3, filters=[(4, 2, 1)], initializer=torch.nn.init.ones_, output_shape=(1, 2, 2)
    )

    image = stack(torch.ones(1, 3)).mean

    # Three inputs of 1 make four features of 3, and their sum is 12.
    assert image.tolist() == [[[[12.0, 12.0], [12.0, 12.0]]]]
