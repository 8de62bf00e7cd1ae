"""Layers, tensor functions and helpers under RLlib's names, and beside RLlib's own."""

import importlib
import importlib.util

import numpy as np
import pytest
import warm
from gymnasium import spaces

from rlcatalog import ModelCatalog
from rlcatalog.errors import ConfigError, UnsupportedSpaceError
from rlcatalog_compat.rllib.models.modelv2 import flatten, restore_original_dimensions
from rlcatalog_compat.rllib.models.torch.misc import (
    AppendBiasLayer,
    Reshape,
    SlimConv2d,
    SlimFC,
    normc_initializer,
    same_padding,
    valid_padding,
)
from rlcatalog_compat.rllib.models.utils import (
    get_activation_fn,
    get_filter_config,
    get_initializer,
)
from rlcatalog_compat.rllib.policy.rnn_sequencing import add_time_dimension
from rlcatalog_compat.rllib.utils import deep_update, force_list, merge_dicts
from rlcatalog_compat.rllib.utils.numpy import convert_to_numpy, fc, huber_loss, sigmoid, softmax
from rlcatalog_compat.rllib.utils.spaces.space_utils import (
    batch,
    flatten_space,
    flatten_to_single_ndarray,
    get_base_struct_from_space,
    unbatch,
)

torch = pytest.importorskip("torch")


# --- layers ---------------------------------------------------------------------------------------


def test_slim_fc_is_a_matrix_product_with_bias():
    layer = SlimFC(3, 2, initializer=torch.nn.init.ones_, activation_fn="tanh", bias_init=0.25)

    output = layer(torch.tensor([[0.1, 0.2, 0.3]]))

    expected = np.tanh(0.1 + 0.2 + 0.3 + 0.25)
    assert output[0].tolist() == pytest.approx([expected, expected])


def test_normc_initializer_gives_rows_of_its_norm():
    layer = SlimFC(3, 2, initializer=normc_initializer(0.5))

    norms = layer.state_dict()["_model.0.weight"].norm(dim=1)

    assert norms.tolist() == pytest.approx([0.5, 0.5])


def test_slim_fc_may_have_no_bias():
    layer = SlimFC(3, 2, use_bias=False, activation_fn=torch.nn.ReLU)

    assert list(layer.state_dict()) == ["_model.0.weight"]


def test_slim_fc_has_no_activation_by_default():
    assert len(SlimFC(3, 2)._model) == 1


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "out"),
    [
        pytest.param((84, 84), (8, 8), 4, (2, 2, 2, 2), (21, 21), id="84x84"),
        pytest.param((10, 7), 3, (2, 3), (1, 1, 0, 1), (5, 3), id="two-strides"),
        pytest.param((5, 5), (4, 4), 1, (1, 2, 1, 2), (5, 5), id="unequal-margins"),
    ],
)
def test_same_padding_gives_the_size_of_a_convolution(size, kernel, stride, padding, out):
    assert same_padding(size, kernel, stride) == (padding, out)

    convolution = SlimConv2d(2, 3, kernel, stride, padding)
    assert convolution(torch.zeros(1, 2, *size)).shape[2:] == out


def test_valid_padding_gives_the_size_of_a_convolution():
    convolution = SlimConv2d(1, 1, (3, 2), 2, None, activation_fn=None)

    output = convolution(torch.zeros(1, 1, 9, 8))

    assert tuple(output.shape[2:]) == valid_padding((9, 8), (3, 2), 2)


def test_slim_conv2d_pads_adds_its_bias_and_rectifies():
    image = torch.tensor([[[[1.0, 2.0], [3.0, -5.0]]]])
    convolution = SlimConv2d(
        1, 1, 2, 1, padding=(0, 1, 0, 1), initializer=torch.nn.init.ones_, bias_init=-1
    )

    # The sums of 2x2 windows are 1, -3, -2 and -5, each minus 1, and not less than 0.
    assert convolution(image).tolist() == [[[[0.0, 0.0], [0.0, 0.0]]]]
    assert list(convolution.state_dict()) == ["_model.1.weight", "_model.1.bias"]


def test_slim_conv2d_pads_at_the_given_sides():
    image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    convolution = SlimConv2d(
        1, 1, 2, 1, padding=(0, 1, 0, 1), initializer=torch.nn.init.ones_, bias_init=-1
    )

    # Zeros at the right and below.
    expected = [[1 + 2 + 3 + 4 - 1.0, 2 + 4 - 1.0], [3 + 4 - 1.0, 4 - 1.0]]
    assert convolution(image).tolist() == [[expected]]


def test_slim_conv2d_without_padding_and_activation_is_a_sum():
    image = torch.tensor([[[[1.0, 2.0], [3.0, -9.0]]]])

    convolution = SlimConv2d(1, 1, 2, 1, None, torch.nn.init.ones_, activation_fn=None)

    assert convolution(image).item() == 1 + 2 + 3 - 9


def test_append_bias_layer_appends_its_numbers_to_each_row():
    layer = AppendBiasLayer(2)
    torch.nn.init.constant_(layer.log_std, 0.5)

    assert layer(torch.zeros(2, 1)).tolist() == [[0.0, 0.5, 0.5], [0.0, 0.5, 0.5]]


def test_reshape_infers_the_number_of_rows():
    assert Reshape([-1, 3])(torch.zeros(2, 6)).shape == (4, 3)


#: Importing RLlib switches TensorFlow's eager mode off, so that it has a process of its own.
COMPARE_WITH_RLLIB = """
import torch
from ray.rllib.models.torch import misc as theirs
from rlcatalog_compat.rllib.models.torch import misc as ours

x, image = torch.randn(4, 6), torch.randn(2, 3, 11, 9)
for name, arguments, value in [
    ("SlimFC", dict(in_size=6, out_size=5, activation_fn="swish"), x),
    ("AppendBiasLayer", dict(num_bias_vars=3), x),
    (
        "SlimConv2d",
        dict(in_channels=3, out_channels=4, kernel=3, stride=2, padding=(1, 1, 1, 1)),
        image,
    ),
]:
    own, other = getattr(ours, name)(**arguments), getattr(theirs, name)(**arguments)
    own.load_state_dict(other.state_dict())
    assert torch.equal(own(value), other(value)), name
for arguments in [((84, 84), 8, 4), ((11, 30), (5, 2), (3, 4))]:
    assert ours.same_padding(*arguments) == theirs.same_padding(*arguments)
    assert ours.valid_padding(*arguments) == theirs.valid_padding(*arguments)
print("equal")
"""


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="compares with RLlib's own, which is not installed",
)
def test_layers_match_rllib_with_the_same_weights(tmp_path):
    process = warm.run(["-c", COMPARE_WITH_RLLIB], tmp_path)

    assert process.stdout.strip() == "equal", process.stderr


@pytest.mark.parametrize("shape", [(7,), (5, 3), (3, 3, 2, 4)], ids=str)
def test_keras_normc_fills_tensors_of_any_rank(shape):
    pytest.importorskip("tensorflow")
    from rlcatalog_compat.rllib.models.tf.misc import normc_initializer as keras_normc

    value = np.asarray(keras_normc(0.5)(shape, dtype="float32"))

    assert value.shape == shape
    assert np.allclose(np.square(value).sum(0), 0.5**2)


# --- names of functions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("relu", torch.nn.ReLU),
        ("GELU", torch.nn.GELU),
        ("linear", None),
        (torch.tanh, torch.tanh),
    ],
)
def test_get_activation_fn_finds_functions(name, function):
    assert get_activation_fn(name, "torch") is function


def test_get_activation_fn_rejects_an_unknown_name():
    with pytest.raises(ConfigError, match="nothing"):
        get_activation_fn("nothing", "torch")


def test_get_initializer_finds_the_default():
    assert get_initializer("default", "torch") is torch.nn.init.xavier_uniform_


def test_get_filter_config_finds_the_filters_of_a_size():
    assert get_filter_config((84, 84, 4))[-1] == [256, [11, 11], 1]


def test_get_filter_config_lists_the_known_sizes():
    with pytest.raises(ConfigError, match="84 x 84"):
        get_filter_config((33, 33, 3))


# --- tensors in PyTorch ---------------------------------------------------------------------------


@pytest.fixture
def torch_utils():
    return importlib.import_module("rlcatalog_compat.rllib.utils.torch_utils")


@pytest.mark.parametrize(
    ("values", "space", "expected"),
    [
        pytest.param([1, 0], spaces.Discrete(3), [[0, 1, 0], [1, 0, 0]], id="Discrete"),
        pytest.param([[1, 0]], spaces.MultiDiscrete([2, 3]), [[0, 1, 1, 0, 0]], id="MultiDiscrete"),
    ],
)
def test_torch_one_hot(torch_utils, values, space, expected):
    assert torch_utils.one_hot(torch.tensor(values), space).tolist() == expected


def test_torch_one_hot_rejects_other_spaces(torch_utils):
    with pytest.raises(UnsupportedSpaceError):
        torch_utils.one_hot(torch.tensor([1]), spaces.MultiBinary(3))


@pytest.mark.parametrize(
    ("predictions", "expected"),
    [
        pytest.param([1.0, 2.0, 4.0], 1.0, id="exact"),
        pytest.param([0.0, 0.0, 0.0], 0.0, id="constant"),
        pytest.param([-9.0, -18.0, -36.0], -1.0, id="never-below-minus-1"),
    ],
)
def test_torch_explained_variance(torch_utils, predictions, expected):
    y = torch.tensor([1.0, 2.0, 4.0])

    assert torch_utils.explained_variance(y, torch.tensor(predictions)).item() == expected


def test_torch_huber_loss(torch_utils):
    loss = torch_utils.huber_loss(torch.tensor([0.5, -3.0]))

    assert loss.tolist() == [0.5**2 / 2, 3 - 0.5]


def test_torch_sequence_mask(torch_utils):
    mask = torch_utils.sequence_mask(torch.tensor([1, 3]))

    assert mask.tolist() == [[True, False, False], [True, True, True]]


def test_torch_reduce_mean_ignore_inf(torch_utils):
    assert torch_utils.reduce_mean_ignore_inf(torch.tensor([1.0, -torch.inf, 3.0])).item() == 2.0


def test_convert_to_torch_tensor_keeps_the_structure(torch_utils):
    converted = torch_utils.convert_to_torch_tensor({"a": np.zeros(2), "b": (np.int64(3), None)})

    assert converted["a"].dtype is torch.float32
    assert converted["b"][0].dtype is torch.int64
    assert converted["b"][1] is None


def test_torch_flatten_inputs_joins_one_hots_and_numbers(torch_utils):
    values = {"a": torch.tensor([2, 0]), "b": torch.ones(2, 2)}
    structure = {"a": spaces.Discrete(3), "b": spaces.Box(0, 1, (2,))}

    flat = torch_utils.flatten_inputs_to_1d_tensor(values, structure)

    assert flat.tolist() == [[0, 0, 1, 1, 1], [1, 0, 0, 1, 1]]


def test_torch_float_min_is_that_of_rllib(torch_utils):
    assert torch_utils.FLOAT_MIN == -3.4e38


# --- tensors in TensorFlow ------------------------------------------------------------------------


@pytest.fixture
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture
def tf_utils(tf):
    return importlib.import_module("rlcatalog_compat.rllib.utils.tf_utils")


@pytest.mark.parametrize(
    ("values", "space", "expected"),
    [
        pytest.param([1, 0], spaces.Discrete(3), [[0, 1, 0], [1, 0, 0]], id="Discrete"),
        pytest.param([[1, 0]], spaces.MultiDiscrete([2, 3]), [[0, 1, 1, 0, 0]], id="MultiDiscrete"),
    ],
)
def test_tf_one_hot(tf, tf_utils, values, space, expected):
    assert tf_utils.one_hot(tf.constant(values), space).numpy().tolist() == expected


def test_tf_explained_variance_is_never_below_minus_1(tf, tf_utils):
    y = tf.constant([1.0, 2.0, 4.0])

    assert float(tf_utils.explained_variance(y, -9 * y)) == -1.0


def test_tf_huber_loss(tf, tf_utils):
    loss = tf_utils.huber_loss(tf.constant([0.5, -3.0]))

    assert loss.numpy().tolist() == [0.5**2 / 2, 3 - 0.5]


def test_tf_reduce_mean_ignore_inf(tf, tf_utils):
    assert float(tf_utils.reduce_mean_ignore_inf(tf.constant([1.0, -np.inf, 3.0]))) == 2.0


def test_tf_flatten_inputs_joins_one_hots_and_numbers(tf, tf_utils):
    values = {"a": tf.constant([2, 0]), "b": tf.ones([2, 2])}
    structure = {"a": spaces.Discrete(3), "b": spaces.Box(0, 1, (2,))}

    flat = tf_utils.flatten_inputs_to_1d_tensor(values, structure)

    assert flat.numpy().tolist() == [[0, 0, 1, 1, 1], [1, 0, 0, 1, 1]]


# --- structure of observations --------------------------------------------------------------------


def encode_space(space):
    return ModelCatalog.get_preprocessor_for_space(space).observation_space


@pytest.mark.parametrize("library", [torch, "torch", None], ids=["module", "name", "none"])
def test_restore_original_dimensions_of_torch_tensors(library):
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (2,))})
    obs = torch.tensor([[0.0, 1.0, 0.5, 0.25]])

    restored = restore_original_dimensions(obs, encode_space(space), library)

    assert restored["b"].tolist() == [[0.5, 0.25]]


def test_restore_original_dimensions_of_arrays():
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (2,))})
    obs = np.float32([[0.0, 1.0, 0.5, 0.25]])

    restored = restore_original_dimensions(obs, encode_space(space), np)

    assert restored["a"].tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("library", ["module", "tf", None])
def test_restore_original_dimensions_of_tf_tensors(tf, library):
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (1, 2))})
    obs = tf.constant([[0.0, 1.0, 0.5, 0.25]])

    library = tf if library == "module" else library
    restored = restore_original_dimensions(obs, encode_space(space), library)

    assert restored["b"].numpy().tolist() == [[[0.5, 0.25]]]


def test_flatten_joins_all_axes_of_a_row():
    assert flatten(torch.zeros(2, 3, 4), "torch").shape == (2, 12)


def test_add_time_dimension_by_seq_lens_or_max_seq_len():
    rows = torch.arange(12).reshape(6, 2)

    by_lengths = add_time_dimension(rows, seq_lens=torch.tensor([3, 2]), framework="torch")
    by_max = add_time_dimension(rows, max_seq_len=3, framework="torch")

    assert by_lengths.tolist() == rows.reshape(2, 3, 2).tolist()
    assert torch.equal(by_max, by_lengths)


def test_add_time_dimension_with_time_first():
    rows = torch.zeros(8, 5)  # two sequences of four steps

    timed = add_time_dimension(rows, max_seq_len=4, framework="torch", time_major=True)

    assert timed.shape == (4, 2, 5)


def test_add_time_dimension_in_tensorflow(tf):
    rows = tf.zeros([8, 5])  # two sequences of four steps

    timed = add_time_dimension(rows, max_seq_len=4, framework="tf")
    time_first = add_time_dimension(rows, tf.constant([4, 2]), framework="tf", time_major=True)

    assert timed.shape == (2, 4, 5)
    assert time_first.shape == (4, 2, 5)


# --- arrays ---------------------------------------------------------------------------------------


def test_sigmoid_of_zero_is_a_half():
    assert sigmoid(0.0) == 0.5


def test_softmax_of_logarithms_are_their_shares():
    assert softmax(np.array([0.0, np.log(3.0)])).tolist() == pytest.approx([1 / 4, 3 / 4])


def test_huber_loss_is_quadratic_then_linear():
    assert huber_loss(np.array([0.5, -3.0])).tolist() == [0.5**2 / 2, 3 - 0.5]


@pytest.mark.parametrize(
    ("weights", "framework"),
    [
        pytest.param([[1.0, 0.0]], {"framework": "torch"}, id="torch-outputs-first"),
        pytest.param([[1.0], [0.0]], {}, id="inputs-first"),
    ],
)
def test_fc_takes_weights_in_the_layout_of_the_framework(weights, framework):
    assert fc([[1.0, 2.0]], weights, [0.5], **framework).tolist() == [[1.5]]


def test_convert_to_numpy_uses_32_bits():
    tensors = {"a": torch.tensor([1, 2]), "b": [torch.tensor(1.5, dtype=torch.float64)]}

    arrays = convert_to_numpy(tensors)

    assert arrays["a"].dtype == np.int32
    assert arrays["b"][0].dtype == np.float32


# --- dictionaries and lists -----------------------------------------------------------------------


def test_merge_dicts_merges_nested_ones_into_a_new_one():
    first = {"a": {"x": 1, "y": 2}, "b": 1}

    merged = merge_dicts(first, {"a": {"y": 3}, "c": 4})

    assert merged == {"a": {"x": 1, "y": 3}, "b": 1, "c": 4}
    assert first == {"a": {"x": 1, "y": 2}, "b": 1}


def test_deep_update_rejects_new_keys():
    with pytest.raises(KeyError, match="'z'"):
        deep_update({"a": {}}, {"z": 1})


def test_deep_update_allows_new_keys_below_listed_ones():
    updated = deep_update({"a": {"x": 1}}, {"a": {"n": 2}}, False, ["a"])

    assert updated == {"a": {"x": 1, "n": 2}}


def test_force_list_makes_a_list_of_anything():
    assert force_list() == []
    assert force_list((1, 2)) == [1, 2]
    assert force_list("ab", to_tuple=True) == ("ab",)


# --- structures of spaces -------------------------------------------------------------------------

BOX = spaces.Box(0, 1, (2,))
THREE = spaces.Discrete(3)
NESTED = spaces.Dict({"b": THREE, "a": spaces.Tuple([BOX, THREE])})


def test_get_base_struct_has_the_spaces_as_leaves():
    assert get_base_struct_from_space(NESTED) == {"a": (BOX, THREE), "b": THREE}


def test_flatten_space_lists_leaves_by_sorted_keys():
    assert flatten_space(NESTED) == [BOX, THREE, THREE]


def test_flatten_to_single_ndarray_joins_by_sorted_keys():
    flat = flatten_to_single_ndarray({"b": 3, "a": (np.array([1, 2]),)})

    assert flat.tolist() == [1, 2, 3]


def test_batch_and_unbatch_structures():
    rows = [{"a": np.array([1]), "b": (2,)}, {"a": np.array([3]), "b": (4,)}]

    joined = batch(rows)

    assert joined["a"].tolist() == [[1], [3]]
    assert [row["b"][0] for row in unbatch(joined)] == [2, 4]
