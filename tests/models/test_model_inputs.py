"""Inputs of models: widths of any integer type, and observations as NumPy arrays."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from observation_kinds import KINDS, SIZES

import rlcatalog
from rlcatalog import ModelCatalog
from rlcatalog.models import inner_model
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = [
    pytest.mark.usefixtures("one_thread", "seeded"),
    # One config serves parts of every kind here.
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning"),
]

OBS = spaces.Box(-1, 1, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (12, 12, 3), np.uint8)
TWO_ACTIONS = spaces.Discrete(2)
SMALL = {"fcnet_hiddens": [4], "lstm_cell_size": 4, "conv_filters": [[4, [12, 12], 1]]}
in_both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


# --- widths ---------------------------------------------------------------------------------------


def define_model(framework, width=None):
    """Return a model class that sets `num_outputs` to a number of the type of `width`.

    As a trunk it has this width; without one, it leaves `num_outputs` as it is.
    """
    base = TorchModelV2 if framework == "torch" else TFModelV2

    class Custom(base):
        def __init__(self, *args):
            super().__init__(*args)
            self.num_outputs_of_base = self.num_outputs
            if width is not None:
                number = width if self.num_outputs is None else type(width)(self.num_outputs)
                self.num_outputs = number

        def forward(self, input_dict, state, seq_lens):
            x = input_dict["obs_flat"]
            zeros = torch.zeros if framework == "torch" else tf.zeros
            return x[:, :1] + zeros(self.num_outputs), state

    return Custom


def check_all_widths_are_ints(obs_space, config, framework, number):
    encoded = rlcatalog.default_catalog().preprocessor_for(obs_space).observation_space
    config = {**SMALL, **config}
    model = ModelCatalog.get_model_v2(encoded, TWO_ACTIONS, number(2), config, framework)
    while model is not None:
        assert type(model.num_outputs) is int
        model = inner_model(model)


integer_types = pytest.mark.parametrize("number", [np.int64, np.int32, np.uint8, int])


@pytest.mark.grid
@in_both_frameworks
@integer_types
@pytest.mark.parametrize(
    ("obs_space", "config"),
    [
        (OBS, {}),
        (IMAGE, {}),
        (OBS, {"use_lstm": True}),
        (OBS, {"use_attention": True}),
        (spaces.Dict({"i": IMAGE, "v": OBS}), {}),
    ],
    ids=["vector", "image", "LSTM", "attention", "Dict"],
)
def test_num_outputs_becomes_an_int(obs_space, config, framework, number):
    check_all_widths_are_ints(obs_space, config, framework, number)


@pytest.mark.grid
@in_both_frameworks
@integer_types
@pytest.mark.parametrize("use_lstm", [False, True])
def test_num_outputs_that_a_custom_model_sets_becomes_an_int(framework, number, use_lstm):
    config = {"custom_model": define_model(framework, width=number(5)), "use_lstm": use_lstm}
    check_all_widths_are_ints(OBS, config, framework, number)


@pytest.mark.grid
@in_both_frameworks
@integer_types
def test_custom_model_receives_num_outputs_as_an_int(framework, number):
    custom = define_model(framework)
    config = {"custom_model": custom}
    check_all_widths_are_ints(OBS, config, framework, number)

    model = ModelCatalog.get_model_v2(OBS, TWO_ACTIONS, number(2), config, framework)

    assert type(model.num_outputs_of_base) is int


# --- arrays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_list", [False, True], ids=["array", "array of a list"])
@pytest.mark.parametrize(
    ("space", "keys"), [(space, keys) for space, keys, *_ in KINDS.values()], ids=KINDS
)
def test_tensorflow_model_accepts_arrays(space, keys, is_list):
    config = {**SIZES, "fcnet_hiddens": [4], **keys}
    policy = rlcatalog.build(space, TWO_ACTIONS, config, "tf")
    space.seed(0)
    obs = policy.preprocess([space.sample() for _ in range(3)])
    expected, _ = policy.model({"obs": tf.constant(obs), "is_training": False})

    array = np.asarray(obs.tolist(), obs.dtype) if is_list else obs
    outputs, _ = policy.model({"obs": array, "is_training": False})

    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)


NESTED = spaces.Dict(
    a=spaces.Discrete(3),
    b=spaces.Box(-1, 1, (2,)),
    c=spaces.Tuple([spaces.MultiDiscrete([2, 3])]),
)
#: Two observations of `NESTED`.
NESTED_ARRAYS = {
    "a": np.array([0, 2]),
    "b": np.array([[0.5, 0.25], [-1, 1]], np.float32),
    "c": (np.array([[1, 2], [0, 0]]),),
}
#: The same, encoded: a is one-hot of 3, b as it is, c one-hot of 2 and one-hot of 3.
ENCODED = np.array(
    [[1, 0, 0, 0.5, 0.25, 0, 1, 0, 0, 1], [0, 0, 1, -1, 1, 1, 0, 1, 0, 0]], np.float32
)


def to_array(tensor):
    return tensor.detach().numpy() if torch.is_tensor(tensor) else np.asarray(tensor)


@in_both_frameworks
@pytest.mark.parametrize("use_lstm", [False, True])
@pytest.mark.parametrize("obs", [NESTED_ARRAYS, ENCODED], ids=["nested", "encoded"])
def test_model_accepts_nested_arrays(framework, use_lstm, obs):
    to_tensor = torch.as_tensor if framework == "torch" else tf.constant
    encoded_space = ModelCatalog.get_preprocessor_for_space(NESTED).observation_space
    config = {**SMALL, "use_lstm": use_lstm}
    model = ModelCatalog.get_model_v2(encoded_space, TWO_ACTIONS, 2, config, framework)
    state = []
    if use_lstm:
        state = [to_tensor(np.zeros((2, 4), np.float32)) for _ in range(2)]
    lengths = to_tensor(np.ones(2, np.int32))
    input_dict = {"obs": obs}

    outputs, _ = model(input_dict, state, lengths)

    expected, _ = model({"obs": to_tensor(ENCODED)}, state, lengths)
    np.testing.assert_allclose(to_array(outputs), to_array(expected), rtol=1e-5)
    assert input_dict["obs"] is obs


@in_both_frameworks
def test_custom_model_receives_tensors(framework):
    base = TorchModelV2 if framework == "torch" else TFModelV2
    is_tensor = torch.is_tensor if framework == "torch" else tf.is_tensor

    class KeepsInputs(base):
        def forward(self, input_dict, state, seq_lens):
            self.obs = input_dict["obs"]
            self.obs_flat = input_dict["obs_flat"]
            return self.obs_flat[:, :2], state

    encoded_space = ModelCatalog.get_preprocessor_for_space(NESTED).observation_space
    model = KeepsInputs(encoded_space, TWO_ACTIONS, 2, {}, "model")
    model({"obs": NESTED_ARRAYS})

    assert is_tensor(model.obs["a"])
    assert is_tensor(model.obs["b"])
    assert is_tensor(model.obs["c"][0])
    assert is_tensor(model.obs_flat)
    np.testing.assert_array_equal(model.obs_flat, ENCODED)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (4, 5, 3), (2, 2, 2, 2)], ids=str)
def test_obs_flat_of_a_tensorflow_model_has_rank_2(shape):
    class KeepsInputs(TFModelV2):
        def forward(self, input_dict, state, seq_lens):
            self.obs_flat = input_dict["obs_flat"]
            return tf.zeros([len(self.obs_flat), 2]), state

    model = KeepsInputs(spaces.Box(-1, 1, shape, np.float32), TWO_ACTIONS, 2, {}, "model")
    obs = np.random.default_rng(0).uniform(-1, 1, (5, *shape)).astype(np.float32)

    model({"obs": obs})

    np.testing.assert_array_equal(np.asarray(model.obs_flat), obs.reshape(5, -1))
