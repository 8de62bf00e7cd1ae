"""Compat's spaces, `from_config` and functions of NumPy beside those of the installed Ray."""

import abc

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from nested import assert_equal

from rlcatalog.errors import ConfigError, ObservationError, UnsupportedSpaceError
from rlcatalog_compat.rllib.models.torch.modules.convtranspose2d_stack import ConvTranspose2DStack
from rlcatalog_compat.rllib.utils import numpy as numpy_utils
from rlcatalog_compat.rllib.utils.from_config import from_config
from rlcatalog_compat.rllib.utils.spaces.flexdict import FlexDict
from rlcatalog_compat.rllib.utils.spaces.simplex import Simplex
from rlcatalog_compat.rllib.utils.spaces.space_utils import convert_element_to_space_type

pytest.importorskip("ray.rllib")
from ray.rllib.utils import from_config as ray_from_config, numpy as ray_numpy
from ray.rllib.utils.spaces import simplex as ray_simplex, space_utils as ray_spaces

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
def float_name_of_numpy_1(monkeypatch):
    """RLlib 2.54 reads `np.float_`, which NumPy 2 removed."""
    monkeypatch.setattr(np, "float_", np.float64, raising=False)


@pytest.mark.usefixtures("float_name_of_numpy_1")  # RLlib reads np.float_
def test_values_take_the_types_of_a_sample_as_in_ray():
    value = {"a": np.ones(2, np.float64), "b": (4, 2.0), "c": np.float32(1)}
    sample = {"a": np.zeros(2, np.float32), "b": (np.array(0, np.int32), 3), "c": np.int64(2)}

    converted = convert_element_to_space_type(value, sample)

    assert converted["a"].dtype == np.float32
    assert converted["b"][0].dtype == np.int32
    assert type(converted["b"][1]) is int
    assert isinstance(converted["c"], np.int64)
    assert_equal(converted, ray_spaces.convert_element_to_space_type(value, sample))


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
        "b": (np.full((*rows, 2), 1), np.full((*rows, 2, 3), 0.5)),
    }

    ours = numpy_utils.flatten_inputs_to_1d_tensor(values, structure, time_axis=time_axis)
    theirs = ray_numpy.flatten_inputs_to_1d_tensor(values, structure, time_axis=time_axis)

    # One-hots of 4, 2 and 5, and 2 x 3 numbers.
    assert ours.shape == (*rows, 4 + 2 + 5 + 6)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


def test_flatten_inputs_matches_ray_without_a_batch_axis():
    structure = (spaces.Discrete(3), spaces.Box(-1, 1, (2, 2)))
    box = np.array([[0.1, 0.2], [0.3, 0.4]])

    ours = numpy_utils.flatten_inputs_to_1d_tensor((2, box), structure, batch_axis=False)

    theirs = ray_numpy.flatten_inputs_to_1d_tensor((np.array(2), box), structure, batch_axis=False)
    # A one-hot and four numbers.
    np.testing.assert_allclose(ours, [0, 0, 1, 0.1, 0.2, 0.3, 0.4], rtol=1e-6)
    np.testing.assert_array_equal(ours, np.ravel(theirs))  # Ray adds an axis


def test_flatten_inputs_rejects_a_time_axis_without_a_batch_axis():
    with pytest.raises(ConfigError, match="batch_axis=True with time_axis=True"):
        numpy_utils.flatten_inputs_to_1d_tensor(
            (2,), (spaces.Discrete(3),), time_axis=True, batch_axis=False
        )


@pytest.mark.parametrize("utils", [numpy_utils, ray_numpy], ids=["compat", "ray"])
def test_immutable_array_cannot_be_changed(utils):
    action = utils.make_action_immutable(np.zeros(2))

    with pytest.raises(ValueError, match="read-only"):
        action[0] = 1


@pytest.mark.parametrize("utils", [numpy_utils, ray_numpy], ids=["compat", "ray"])
def test_immutable_dict_cannot_be_changed(utils):
    action = utils.make_action_immutable({"a": 1})

    with pytest.raises(TypeError, match="does not support item assignment"):
        action["a"] = 2


@pytest.mark.parametrize("utils", [numpy_utils, ray_numpy], ids=["compat", "ray"])
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
