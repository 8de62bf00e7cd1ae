"""Inputs of models: widths of any integer type, and observations as NumPy arrays."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from builders import to_array, to_tensor
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

THREE_FEATURES = spaces.Box(-1, 1, (3,), np.float32)
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


integer_types = pytest.mark.parametrize("number", [np.int64, np.uint8])


@pytest.mark.grid
@in_both_frameworks
@integer_types
@pytest.mark.parametrize(
    ("obs_space", "config"),
    [
        (THREE_FEATURES, {}),
        (IMAGE, {}),
        (THREE_FEATURES, {"use_lstm": True}),
        (THREE_FEATURES, {"use_attention": True}),
        (spaces.Dict({"i": IMAGE, "v": THREE_FEATURES}), {}),
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
    check_all_widths_are_ints(THREE_FEATURES, config, framework, number)


@pytest.mark.grid
@in_both_frameworks
@integer_types
def test_custom_model_receives_num_outputs_as_an_int(framework, number):
    custom = define_model(framework)
    config = {"custom_model": custom}
    check_all_widths_are_ints(THREE_FEATURES, config, framework, number)

    model = ModelCatalog.get_model_v2(THREE_FEATURES, TWO_ACTIONS, number(2), config, framework)

    assert type(model.num_outputs_of_base) is int


# --- arrays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "config"), [(space, config) for space, config in KINDS.values()], ids=KINDS
)
def test_tensorflow_model_accepts_arrays(space, config):
    policy = rlcatalog.build(space, TWO_ACTIONS, {**SIZES, "fcnet_hiddens": [4], **config}, "tf")
    array = policy.preprocess([space.sample() for _ in range(3)])

    outputs_of_array, _ = policy.model({"obs": array})

    outputs_of_tensor, _ = policy.model({"obs": tf.constant(array)})
    np.testing.assert_allclose(outputs_of_array, outputs_of_tensor, rtol=1e-5, atol=1e-6)


NESTED_SPACE = spaces.Dict(
    a=spaces.Discrete(3),
    b=spaces.Box(-1, 1, (2,)),
    c=spaces.Tuple([spaces.MultiDiscrete([2, 3])]),
)
#: Two observations of `NESTED_SPACE`.
NESTED_ARRAYS = {
    "a": np.array([0, 2]),
    "b": np.array([[0.5, 0.25], [-1, 1]], np.float32),
    "c": (np.array([[1, 2], [0, 0]]),),
}
#: The same, encoded: a is one-hot of 3, b as it is, c one-hot of 2 and one-hot of 3.
ENCODED_ARRAYS = np.array(
    [[1, 0, 0, 0.5, 0.25, 0, 1, 0, 0, 1], [0, 0, 1, -1, 1, 1, 0, 1, 0, 0]], np.float32
)


def build_model_of_nested_space(framework, config):
    encoded_space = ModelCatalog.get_preprocessor_for_space(NESTED_SPACE).observation_space
    return ModelCatalog.get_model_v2(encoded_space, TWO_ACTIONS, 2, config, framework)


def run_on_two_rows(model, obs):
    """Return the outputs of the model for the first step of two episodes."""
    state = []
    for part in model.get_initial_state():
        state.append(to_tensor(model.framework, np.stack([to_array(part)] * 2)))
    lengths = to_tensor(model.framework, np.ones(2, np.int32))
    outputs, _ = model({"obs": obs}, state, lengths)
    return to_array(outputs)


@in_both_frameworks
@pytest.mark.parametrize("use_lstm", [False, True])
def test_model_accepts_nested_and_encoded_arrays(framework, use_lstm):
    config = {"fcnet_hiddens": [4], "lstm_cell_size": 4, "use_lstm": use_lstm}
    model = build_model_of_nested_space(framework, config)

    outputs_of_tensor = run_on_two_rows(model, to_tensor(framework, ENCODED_ARRAYS))

    outputs_of_encoded = run_on_two_rows(model, ENCODED_ARRAYS)
    outputs_of_nested = run_on_two_rows(model, NESTED_ARRAYS)
    np.testing.assert_allclose(outputs_of_encoded, outputs_of_tensor, rtol=1e-5)
    np.testing.assert_allclose(outputs_of_nested, outputs_of_tensor, rtol=1e-5)


def test_traced_model_accepts_nested_tensors_of_unknown_rows():
    model = build_model_of_nested_space("tf", {"fcnet_hiddens": [4]})
    signature = {
        "a": tf.TensorSpec([None], tf.int64),
        "b": tf.TensorSpec([None, 2], tf.float32),
        "c": (tf.TensorSpec([None, 2], tf.int64),),
    }

    @tf.function(input_signature=[signature])
    def outputs_of(obs):
        outputs, _ = model({"obs": obs})
        return outputs

    outputs = outputs_of(tf.nest.map_structure(tf.constant, NESTED_ARRAYS))

    expected, _ = model({"obs": tf.constant(ENCODED_ARRAYS)})
    np.testing.assert_allclose(outputs, expected, rtol=1e-5)


@in_both_frameworks
def test_input_dict_of_the_caller_keeps_its_array(framework):
    model = build_model_of_nested_space(framework, {"fcnet_hiddens": [4]})
    input_dict = {"obs": ENCODED_ARRAYS}

    model(input_dict)

    assert input_dict["obs"] is ENCODED_ARRAYS


@in_both_frameworks
def test_custom_model_receives_tensors(framework):
    base = TorchModelV2 if framework == "torch" else TFModelV2
    is_tensor = torch.is_tensor if framework == "torch" else tf.is_tensor

    class KeepsInputs(base):
        def forward(self, input_dict, state, seq_lens):
            self.obs = input_dict["obs"]
            self.obs_flat = input_dict["obs_flat"]
            return self.obs_flat[:, :2], state  # any two outputs

    model = build_model_of_nested_space(framework, {"custom_model": KeepsInputs})
    model({"obs": NESTED_ARRAYS})

    assert is_tensor(model.obs["a"])
    assert is_tensor(model.obs["b"])
    assert is_tensor(model.obs["c"][0])
    assert is_tensor(model.obs_flat)
    np.testing.assert_array_equal(model.obs_flat, ENCODED_ARRAYS)


@pytest.mark.parametrize("shape", [(), (3,), (4, 5, 3)], ids=str)
def test_obs_flat_of_a_tensorflow_model_has_rank_2(shape):
    class KeepsInputs(TFModelV2):
        def forward(self, input_dict, state, seq_lens):
            self.obs_flat = input_dict["obs_flat"]
            return tf.zeros([2, self.num_outputs]), state

    space = spaces.Box(-1, 1, shape, np.float32)
    model = KeepsInputs(space, TWO_ACTIONS, 2, {}, "model")
    obs = np.stack([space.sample(), space.sample()])

    model({"obs": obs})

    np.testing.assert_array_equal(np.asarray(model.obs_flat), obs.reshape(2, -1))
