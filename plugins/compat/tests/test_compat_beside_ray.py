"""What compat has of its own beside the installed Ray's: the same calls, the same results."""

import abc
import pickle

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

from rlcatalog.errors import ConfigError, NotServedError, ObservationError, UnsupportedSpaceError
from rlcatalog_compat.rllib.models.tf.recurrent_tf_modelv2 import add_time_dimension as older
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
from ray.rllib.policy.sample_batch import SampleBatch as RaysBatch
from ray.rllib.policy.view_requirement import ViewRequirement as RaysView
from ray.rllib.utils import from_config as ray_from_config, numpy as ray_numpy
from ray.rllib.utils.spaces import simplex as ray_simplex, space_utils as ray_spaces


def agree(ours, theirs):
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for name in theirs:
            agree(ours[name], theirs[name])
    elif (
        isinstance(theirs, (list, tuple))
        and theirs
        and not np.isscalar(theirs[0])
        and theirs[0] is not None
    ):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            agree(one, other)
    else:
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def columns(seed, rows=23):
    rng = np.random.default_rng(seed)
    return {
        "obs": rng.random((rows, 2), np.float32),
        "actions": rng.integers(0, 9, rows),
        "infos": np.array([{"row": row} for row in range(rows)], object),
        "terminateds": rng.random(rows) < 0.2,
        "eps_id": np.cumsum(rng.random(rows) < 0.2),
        "unroll_id": np.cumsum(rng.random(rows) < 0.1),
        "agent_index": np.zeros(rows, np.int64),
        "state_in_0": rng.random((rows, 3)),
        "state_out_0": rng.random((rows, 3)),
    }


@pytest.mark.parametrize("padding", ["zero", "last"])
@pytest.mark.parametrize("dynamic_max", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_sequences_are_cut_as_by_ray(padding, dynamic_max, seed):
    batch = columns(seed)
    given = {
        "feature_columns": [batch["obs"], batch["actions"].tolist(), batch["infos"]],
        "state_columns": [batch["state_in_0"]],
        "max_seq_len": 4,
        "episode_ids": batch["eps_id"],
        "unroll_ids": batch["unroll_id"],
        "agent_indices": batch["agent_index"],
        "dynamic_max": dynamic_max,
        "padding": padding,
    }
    found = rnn_sequencing.chop_into_sequences(**given)
    agree(found, ray_sequencing.chop_into_sequences(**given))
    nested = {
        **given,
        "feature_columns": [{"a": batch["obs"], "b": (batch["actions"],)}],
        "handle_nested_data": True,
    }
    agree(
        rnn_sequencing.chop_into_sequences(**nested), ray_sequencing.chop_into_sequences(**nested)
    )
    known = {
        **given,
        "seq_lens": found[2],
        "state_columns": found[1],
        "states_already_reduced_to_init": True,
    }
    agree(rnn_sequencing.chop_into_sequences(**known), ray_sequencing.chop_into_sequences(**known))


def test_shuffled_sequences_stay_whole():
    rows = np.arange(12)
    features, states, lengths = rnn_sequencing.chop_into_sequences(
        feature_columns=[rows],
        state_columns=[rows],
        max_seq_len=3,
        episode_ids=rows // 5,
        shuffle=True,
    )
    assert sorted(lengths) == [2, 2, 2, 3, 3]
    for row, state, length in zip(features[0].reshape(-1, 3), states[0], lengths, strict=True):
        assert row.tolist() == [*range(state, state + length), *[0] * (3 - length)]
    with pytest.raises(ConfigError, match="expected 'zero' or 'last'"):
        rnn_sequencing.chop_into_sequences(
            feature_columns=[], state_columns=[], max_seq_len=3, padding="first"
        )


@pytest.mark.parametrize("shift", [-1, "-3:-1"])
@pytest.mark.parametrize("padding", ["zero", "last"])
def test_batches_are_padded_as_by_ray(shift, padding):
    ours, theirs = SampleBatch(columns(5)), RaysBatch(columns(5))
    for batch, module, view in (
        (ours, rnn_sequencing, ViewRequirement),
        (theirs, ray_sequencing, RaysView),
    ):
        views = {"state_in_0": view("state_out_0", shift=shift)}
        module.pad_batch_to_sequences_of_same_size(
            batch, 4, view_requirements=views, padding=padding
        )
        before = dict(batch)
        module.pad_batch_to_sequences_of_same_size(batch, 4, view_requirements=views)
        assert all(batch[name] is before[name] for name in before)
    agree(dict(ours), dict(theirs))
    assert (ours.zero_padded, ours.max_seq_len) == (theirs.zero_padded, theirs.max_seq_len)


def test_batches_without_a_state_are_padded_to_a_multiple_alone():
    for multiple in (1, 5):
        found = []
        for cls, module in ((SampleBatch, rnn_sequencing), (RaysBatch, ray_sequencing)):
            batch = cls(
                {name: column for name, column in columns(3).items() if "state" not in name}
            )
            module.pad_batch_to_sequences_of_same_size(batch, 4, batch_divisibility_req=multiple)
            found.append(dict(batch))
        agree(*found)


@pytest.mark.parametrize("time_major", [False, True])
def test_arrays_get_a_time_axis(time_major):
    rows, lengths = np.arange(12.0, dtype=np.float32).reshape(6, 2), np.array([2, 3])
    expected = ray_sequencing.add_time_dimension(rows, seq_lens=lengths, framework="np")
    if time_major:  # for which Ray's own has no working code in NumPy
        expected = np.moveaxis(expected, 1, 0)
    for framework in (None, "np"):
        found = rnn_sequencing.add_time_dimension(
            rows, seq_lens=lengths, framework=framework, time_major=time_major
        )
        assert isinstance(found, np.ndarray)
        agree(found, expected)
    found = rnn_sequencing.add_time_dimension(
        rows, seq_lens=lengths, framework="torch", time_major=time_major
    )
    assert torch.is_tensor(found)
    agree(found, expected)
    if not time_major:
        found = rnn_sequencing.add_time_dimension(rows, seq_lens=lengths, framework="tf2")
        assert tf.is_tensor(found)
        agree(found, expected)
        agree(older(rows, lengths), expected)


SEQUENCES = {
    "obs": np.arange(9),
    "seq_lens": np.array([2, 3, 4]),
    "state_in_0": np.array([[1.0], [2.0], [3.0]]),
}


@pytest.mark.parametrize(
    ("start", "end"), [(0, 9), (0, 1), (1, 5), (2, 5), (3, 4), (1, 9), (4, 6), (5, 9), (6, 8)]
)
def test_sequences_are_sliced_as_by_ray(start, end):
    agree(
        dict(SampleBatch(SEQUENCES).slice(start, end)), dict(RaysBatch(SEQUENCES).slice(start, end))
    )


def test_padding_and_sizes_as_by_ray():
    ours, theirs = SampleBatch(SEQUENCES), RaysBatch(SEQUENCES)
    assert ours.size_bytes() == theirs.size_bytes() == 9 * 8 + 3 * 8 + 3 * 8
    assert ours.right_zero_pad(5) is ours
    agree(dict(ours), dict(theirs.right_zero_pad(5)))
    assert (ours.zero_padded, ours.max_seq_len) == (True, 5)
    agree(
        dict(ours.slice(5, 15)),
        {"obs": [2, 3, 4, 0, 0, 5, 6, 7, 8, 0], "seq_lens": [3, 4], "state_in_0": [[2], [3]]},
    )
    with pytest.raises(ConfigError, match="seq_lens of up to 3"):
        SampleBatch(SEQUENCES).right_zero_pad(3)
    with pytest.raises(ConfigError, match="found None"):
        SampleBatch(obs=np.arange(3)).right_zero_pad(3)


@pytest.mark.parametrize("key", [None, "dones", "eps_id"])
@pytest.mark.parametrize("truncated", [False, True])
def test_episodes_are_split_as_by_ray(key, truncated):
    given = {
        "a": np.arange(6),
        "terminateds": np.array([0, 0, 1, 0, 0, 0]),
        "eps_id": np.array([1, 1, 1, 2, 3, 3]),
    }
    if key is None:
        del given["eps_id"]
    if truncated:
        given["truncateds"] = np.array([0, 0, 0, 0, 1, 0])
    ours, theirs = (cls(given).split_by_episode(key=key) for cls in (SampleBatch, RaysBatch))
    agree([dict(part) for part in ours], [dict(part) for part in theirs])
    assert len(ours) > 1
    agree(SampleBatch(given)["dones"], RaysBatch(given)["dones"])


def test_dones_that_are_there_count():
    parts = SampleBatch(a=np.arange(4), dones=np.array([0, 1, 0, 0])).split_by_episode(key="dones")
    assert [part["a"].tolist() for part in parts] == [[0, 1], [2, 3]]
    with pytest.raises(ConfigError, match="expected 'eps_id', 'dones' or None; found 'a'"):
        SampleBatch(a=np.arange(4)).split_by_episode(key="a")
    with pytest.raises(KeyError, match="terminateds"):
        SampleBatch(a=np.arange(4)).split_by_episode()


def test_keys_are_noted_and_columns_intercepted_as_by_ray():
    notes = []
    for cls in (SampleBatch, RaysBatch):
        batch, calls = cls(obs=np.arange(3), actions=np.arange(3), rewards=np.arange(3)), []
        batch["extra"] = np.zeros(3)
        batch["obs"] = np.ones(3)
        del batch["actions"]
        batch.set_get_interceptor(lambda column, calls=calls: calls.append(1) or column + 1)
        seen = [batch["obs"].tolist(), batch["obs"].tolist(), batch["rewards"].tolist()]
        batch["obs"] = np.full(3, 5)
        copied = batch.copy()
        batch.set_get_interceptor(None)
        notes.append(
            (
                batch.added_keys,
                batch.deleted_keys,
                batch.accessed_keys,
                seen,
                len(calls),
                copied["rewards"].tolist(),
                copied.added_keys,
                batch["obs"].tolist(),
            )
        )
    assert notes[0] == notes[1]


@pytest.mark.parametrize("bulk", [False, True])
def test_compressed_columns_come_back(bulk):
    given = {
        "obs": {"a": np.arange(6.0).reshape(3, 2)},
        "new_obs": np.zeros((3, 1000)),
        "actions": np.arange(3),
    }
    batch = SampleBatch(given)
    size = batch.size_bytes()
    assert batch.compress(bulk) is batch
    assert isinstance(batch["new_obs"] if bulk else batch["new_obs"][0], bytes)
    assert batch["actions"].tolist() == [0, 1, 2]
    assert not bulk or batch.size_bytes() < size / 10
    agree(dict(batch.decompress_if_needed()), given)
    agree(batch.decompress_if_needed()["actions"], [0, 1, 2])


@pytest.mark.parametrize("infos", [[{"a": 1}, {}], np.array([{"a": 1}, {}], object)])
def test_infos_stay_as_they_are_on_a_device(infos):
    batch = SampleBatch(obs=np.zeros(2), infos=infos).to_device("cpu")
    assert torch.is_tensor(batch["obs"])
    assert list(batch["infos"]) == [{"a": 1}, {}]


def test_batches_go_to_a_device_and_through_pickle():
    batch = SampleBatch(obs=np.arange(3.0), actions=(np.arange(3),)).to_device("cpu")
    assert batch["obs"].dtype is torch.float32
    assert torch.is_tensor(batch["actions"][0])
    with pytest.raises(NotServedError, match="only framework='torch' is supported"):
        batch.to_device("cpu", framework="tf")
    batch = SampleBatch(obs=np.arange(3), _max_seq_len=4)
    batch["new"] = np.arange(3)
    again = pickle.loads(pickle.dumps(batch))
    agree(dict(again), dict(batch))
    assert (again.max_seq_len, again.added_keys) == (4, {"new"})


def test_a_simplex_has_one_concentration_per_component_as_in_ray():
    for module in (ray_simplex.Simplex, Simplex):
        assert module((3, 2), np.array([1.0, 2.0])).concentration.tolist() == [1, 2]
        with pytest.raises((AssertionError, ValueError)):
            module((3, 4), np.array([1, 2, 1]))


def test_values_take_the_dtypes_of_a_sample_as_in_ray(monkeypatch):
    # RLlib 2.54 asks for a name that NumPy 2 removed.
    monkeypatch.setattr(np, "float_", np.float64, raising=False)
    sample = {"a": np.zeros(2, np.float32), "b": (np.array(0, np.int32), 3), "c": np.int64(2)}
    value = {"a": np.ones(2), "b": (4, 2.0), "c": np.float32(1.0)}
    found = convert_element_to_space_type(value, sample)
    theirs = ray_spaces.convert_element_to_space_type(value, sample)
    agree(found, theirs)
    assert [found["a"].dtype, found["b"][0].dtype, type(found["b"][1])] == [
        np.float32,
        np.int32,
        int,
    ]
    assert isinstance(found["c"], np.int64)
    with pytest.raises(ObservationError, match=r"array of shape \(2,\), found 1"):
        convert_element_to_space_type({"a": 1}, {"a": np.zeros(2)})


def test_a_flex_dict_takes_keys_later():
    space = FlexDict({})
    space["b"] = gym.spaces.Discrete(2)
    space["a"] = gym.spaces.Box(-1, 1, (2,))
    assert list(space.spaces) == list(space.sample()) == ["b", "a"]
    assert space.contains(space.sample())
    assert list(FlexDict(x=space["a"]).spaces) == ["x"]
    with pytest.raises(UnsupportedSpaceError, match="expected a space, found 3"):
        space["c"] = 3


class Made:
    def __init__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs


class Other(Made):
    pass


Made.__type_registry__ = {"other": Other}


@pytest.mark.parametrize(
    ("config", "kwargs"),
    [
        (None, {"a": 1}),
        ({"a": 1}, {"a": 2}),
        ("other", {"a": 1}),
        ({"type": "Other", "_args": [3]}, {}),
        (Other, {"b": 2}),
        (f"{__name__}.Other", {}),
        ({"type": f"{__name__}.Made", "k": 1}, {}),
        ("Made", {"_args": 5}),
    ],
)
def test_configs_describe_objects_as_in_ray(config, kwargs):
    ours, theirs = (
        make(Made, config, **kwargs) for make in (from_config, ray_from_config.from_config)
    )
    assert (type(ours), ours.args, ours.kwargs) == (type(theirs), theirs.args, theirs.kwargs)


def test_objects_are_their_own_config():
    made = Other()
    assert from_config(Made, made) is made
    assert isinstance(from_config({"type": f"{__name__}.Other"}), Other)
    with pytest.raises(ConfigError, match=r"one of \['other'\], found 'nowhere'"):
        from_config(Made, "nowhere")


class Abstract(abc.ABC):
    @abc.abstractmethod
    def act(self): ...


def test_abstract_class_is_made_into_none_as_in_ray():
    assert ray_from_config.from_config(Abstract, {}) is None
    assert from_config(Abstract, {}) is None


def test_dotted_name_is_taken_beside_its_arguments_as_in_ray():
    for make in (from_config, ray_from_config.from_config):
        made = make(f"{__name__}.Other", {"a": 1})
        assert type(made) is Other
        assert made.kwargs == {"a": 1}


def test_config_without_a_class_is_refused():
    with pytest.raises(ConfigError, match="expected a class or its name, found None"):
        from_config({"a": 1})


@pytest.mark.parametrize("time_axis", [False, True])
def test_structure_is_flattened_to_an_array_as_in_ray(time_axis):
    rows = (2, 3) if time_axis else (2,)
    structure = {
        "a": spaces.Discrete(4),
        "b": (spaces.MultiDiscrete([2, 5]), spaces.Box(-1, 1, (2, 3))),
    }
    values = {
        "a": np.full(rows, 3),
        "b": (np.full((*rows, 2), 1), np.random.default_rng(0).random((*rows, 2, 3))),
    }
    ours, theirs = (
        flatten(values, structure, time_axis=time_axis)
        for flatten in (
            numpy_utils.flatten_inputs_to_1d_tensor,
            ray_numpy.flatten_inputs_to_1d_tensor,
        )
    )
    assert ours.shape == (*rows, 4 + 7 + 6)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


def test_single_structure_is_flattened_to_an_array_as_in_ray():
    structure = (spaces.Discrete(3), spaces.MultiDiscrete([2, 2]), spaces.Box(-1, 1, (2, 2)))
    values = (2, np.array([1, 0]), np.ones((2, 2)))
    ours = numpy_utils.flatten_inputs_to_1d_tensor(values, structure, batch_axis=False)
    theirs = ray_numpy.flatten_inputs_to_1d_tensor(
        (np.array(2), *values[1:]), structure, batch_axis=False
    )
    np.testing.assert_array_equal(ours, np.ravel(theirs))
    with pytest.raises(ConfigError, match="batch_axis=True with time_axis=True"):
        numpy_utils.flatten_inputs_to_1d_tensor(values, structure, True, batch_axis=False)


@pytest.mark.parametrize("module", ["ours", "rays"])
def test_immutable_action_cannot_be_changed(module):
    make = {"ours": numpy_utils, "rays": ray_numpy}[module].make_action_immutable
    with pytest.raises(ValueError, match="read-only"):
        make(np.zeros(2))[0] = 1
    with pytest.raises(TypeError, match="does not support item assignment"):
        make({"a": 1})["a"] = 2
    assert make(3) == 3


def test_images_are_made_of_vectors():
    stack = ConvTranspose2DStack(input_size=5, output_shape=(3, 64, 64), bias_init=0.5)
    found = stack(torch.zeros(2, 5))
    assert found.mean.shape == found.sample().shape == (2, 3, 64, 64)
    assert found.log_prob(found.mean).tolist() == pytest.approx(
        [-0.5 * np.log(2 * np.pi) * 3 * 64 * 64] * 2, rel=1e-5
    )
    widths = [tuple(weight.shape) for weight in stack.parameters() if weight.ndim == 4]
    assert widths == [(1024, 128, 5, 5), (128, 64, 5, 5), (64, 32, 6, 6), (32, 3, 6, 6)]
    small = ConvTranspose2DStack(
        input_size=3, filters=[(4, 2, 1)], initializer=torch.nn.init.ones_, output_shape=(1, 2, 2)
    )
    assert small(torch.ones(1, 3)).mean.tolist() == [[[[12.0, 12.0], [12.0, 12.0]]]]
