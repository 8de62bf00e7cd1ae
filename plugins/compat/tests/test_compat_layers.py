"""Layers, tensors and helpers under RLlib's names, against hand computations and against RLlib's
own.
"""

import importlib
import importlib.util

import numpy as np
import pytest
import warm
from gymnasium import spaces

from rlcatalog.errors import ConfigError, UnsupportedSpaceError
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


def test_a_dense_layer_is_the_matrix_product():
    layer = SlimFC(3, 2, normc_initializer(0.5), "tanh", bias_init=0.25)
    weight, bias = layer.state_dict()["_model.0.weight"], layer.state_dict()["_model.0.bias"]
    assert torch.allclose(weight.square().sum(1), torch.tensor(0.25))
    assert bias.tolist() == [0.25, 0.25]
    x = torch.randn(5, 3)
    assert torch.allclose(layer(x), torch.tanh(x @ weight.T + 0.25), atol=1e-6)
    assert list(SlimFC(3, 2, use_bias=False, activation_fn=torch.nn.ReLU).state_dict()) == [
        "_model.0.weight"
    ]
    assert len(SlimFC(3, 2)._model) == 1


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "out"),
    [
        ((84, 84), (8, 8), 4, (2, 2, 2, 2), (21, 21)),
        ((10, 7), 3, (2, 3), (1, 1, 0, 1), (5, 3)),
        ((5, 5), (4, 4), 1, (1, 2, 1, 2), (5, 5)),
    ],
)
def test_same_padding(size, kernel, stride, padding, out):
    assert same_padding(size, kernel, stride) == (padding, out)
    conv = SlimConv2d(2, 3, kernel, stride, padding)
    assert conv(torch.zeros(1, 2, *size)).shape[2:] == out


def test_valid_padding_is_what_a_convolution_gives():
    conv = SlimConv2d(1, 1, (3, 2), 2, None, activation_fn=None)
    assert tuple(conv(torch.zeros(1, 1, 9, 8)).shape[2:]) == valid_padding((9, 8), (3, 2), 2)


def test_a_convolution_pads_and_rectifies():
    conv = SlimConv2d(1, 1, 2, 1, (0, 1, 0, 1), initializer=torch.nn.init.ones_, bias_init=-1)
    image = torch.tensor([[[[1.0, 2.0], [3.0, -9.0]]]])
    # -3, -7, -6, -9 and the bias, cut off at 0.
    assert conv(image).tolist() == [[[[0.0, 0.0], [0.0, 0.0]]]]
    assert SlimConv2d(1, 1, 2, 1, None, torch.nn.init.ones_, None)(image).item() == -3.0
    assert list(conv.state_dict()) == ["_model.1.weight", "_model.1.bias"]


def test_appended_bias_and_shape():
    layer = AppendBiasLayer(2)
    torch.nn.init.constant_(layer.log_std, 0.5)
    assert layer(torch.zeros(2, 1)).tolist() == [[0.0, 0.5, 0.5]] * 2
    assert Reshape([-1, 3])(torch.zeros(2, 6)).shape == (4, 3)


#: RLlib's import switches TensorFlow's eager mode off, so that it has a process of its own.
COMPARISON = """
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
def test_layers_equal_rllibs_with_the_same_weights(tmp_path):
    done = warm.run(["-c", COMPARISON], tmp_path)
    assert done.stdout.strip() == "equal", done.stderr


def test_activations_and_initialisers_by_name():
    assert get_activation_fn("relu", "torch") is torch.nn.ReLU
    assert get_activation_fn("GELU", "torch") is torch.nn.GELU
    assert get_activation_fn("linear", "torch") is None
    assert get_activation_fn(torch.tanh, "torch") is torch.tanh
    with pytest.raises(ConfigError, match="nothing"):
        get_activation_fn("nothing", "torch")
    assert get_initializer("default", "torch") is torch.nn.init.xavier_uniform_
    assert get_filter_config((84, 84, 4))[-1] == [256, [11, 11], 1]
    with pytest.raises(ConfigError, match="84 x 84"):
        get_filter_config((33, 33, 3))


def test_tensors_in_pytorch():
    tensors = importlib.import_module("rlcatalog_compat.rllib.utils.torch_utils")
    assert tensors.one_hot(torch.tensor([1, 0]), spaces.Discrete(3)).tolist() == [
        [0, 1, 0],
        [1, 0, 0],
    ]
    found = tensors.one_hot(torch.tensor([[1, 0]]), spaces.MultiDiscrete([2, 3]))
    assert found.tolist() == [[0, 1, 1, 0, 0]]
    with pytest.raises(UnsupportedSpaceError):
        tensors.one_hot(torch.tensor([1]), spaces.MultiBinary(3))
    y = torch.tensor([1.0, 2.0, 4.0])
    assert tensors.explained_variance(y, y).item() == 1.0
    assert tensors.explained_variance(y, torch.zeros(3)).item() == 0.0
    assert tensors.explained_variance(y, -9 * y).item() == -1.0
    assert tensors.huber_loss(torch.tensor([0.5, -3.0])).tolist() == [0.125, 2.5]
    assert tensors.sequence_mask(torch.tensor([1, 3])).tolist() == [
        [True, False, False],
        [True, True, True],
    ]
    assert tensors.reduce_mean_ignore_inf(torch.tensor([1.0, -torch.inf, 3.0])).item() == 2.0
    converted = tensors.convert_to_torch_tensor({"a": np.zeros(2), "b": (np.int64(3), None)})
    assert converted["a"].dtype is torch.float32
    assert converted["b"][0].dtype is torch.int64
    assert converted["b"][1] is None
    values = {"a": torch.tensor([2, 0]), "b": torch.ones(2, 2)}
    flat = tensors.flatten_inputs_to_1d_tensor(
        values, {"a": spaces.Discrete(3), "b": spaces.Box(0, 1, (2,))}
    )
    assert flat.tolist() == [[0, 0, 1, 1, 1], [1, 0, 0, 1, 1]]
    assert tensors.FLOAT_MIN == -3.4e38


def test_tensors_in_tensorflow():
    tf = pytest.importorskip("tensorflow")
    tensors = importlib.import_module("rlcatalog_compat.rllib.utils.tf_utils")
    assert tensors.one_hot(tf.constant([1, 0]), spaces.Discrete(3)).numpy().tolist() == [
        [0, 1, 0],
        [1, 0, 0],
    ]
    found = tensors.one_hot(tf.constant([[1, 0]]), spaces.MultiDiscrete([2, 3]))
    assert found.numpy().tolist() == [[0, 1, 1, 0, 0]]
    y = tf.constant([1.0, 2.0, 4.0])
    assert float(tensors.explained_variance(y, -9 * y)) == -1.0
    assert tensors.huber_loss(tf.constant([0.5, -3.0])).numpy().tolist() == [0.125, 2.5]
    assert float(tensors.reduce_mean_ignore_inf(tf.constant([1.0, -np.inf, 3.0]))) == 2.0
    values = {"a": tf.constant([2, 0]), "b": tf.ones([2, 2])}
    flat = tensors.flatten_inputs_to_1d_tensor(
        values, {"a": spaces.Discrete(3), "b": spaces.Box(0, 1, (2,))}
    )
    assert flat.numpy().tolist() == [[0, 0, 1, 1, 1], [1, 0, 0, 1, 1]]
    from rlcatalog import ModelCatalog
    from rlcatalog_compat.rllib.models.modelv2 import restore_original_dimensions

    tree = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (1, 2))})
    encoded = ModelCatalog.get_preprocessor_for_space(tree).observation_space
    for library in (tf, "tf", None):
        restored = restore_original_dimensions(
            tf.constant([[0.0, 1.0, 0.5, 0.25]]), encoded, library
        )
        assert restored["b"].numpy().tolist() == [[[0.5, 0.25]]]
    assert add_time_dimension(tf.zeros([6, 2]), max_seq_len=3, framework="tf").shape == (2, 3, 2)
    assert add_time_dimension(
        tf.zeros([6, 2]), tf.constant([3, 2]), framework="tf", time_major=True
    ).shape == (3, 2, 2)


def test_the_time_axis():
    rows = torch.arange(12).reshape(6, 2)
    timed = add_time_dimension(rows, seq_lens=torch.tensor([3, 2]), framework="torch")
    assert timed.tolist() == rows.reshape(2, 3, 2).tolist()
    assert add_time_dimension(rows, max_seq_len=3, framework="torch", time_major=True).shape == (
        3,
        2,
        2,
    )
    assert torch.equal(add_time_dimension(rows, max_seq_len=3, framework="torch"), timed)


def test_structure_is_restored_by_library_or_by_module():
    from rlcatalog import ModelCatalog
    from rlcatalog_compat.rllib.models.modelv2 import flatten, restore_original_dimensions

    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (2,))})
    encoded = ModelCatalog.get_preprocessor_for_space(space).observation_space
    obs = torch.tensor([[0.0, 1.0, 0.5, 0.25]])
    for library in (torch, "torch", None):
        found = restore_original_dimensions(obs, encoded, library)
        assert found["b"].tolist() == [[0.5, 0.25]]
    assert restore_original_dimensions(obs.numpy(), encoded, np)["a"].tolist() == [[0.0, 1.0]]
    assert flatten(torch.zeros(2, 3, 4), "torch").shape == (2, 12)


def test_arrays():
    assert sigmoid(0.0) == 0.5
    assert softmax(np.array([0.0, np.log(3.0)])).tolist() == pytest.approx([0.25, 0.75])
    assert huber_loss(np.array([0.5, -3.0])).tolist() == [0.125, 2.5]
    assert fc([[1.0, 2.0]], [[1.0, 0.0]], [0.5], framework="torch").tolist() == [[1.5]]
    assert fc([[1.0, 2.0]], [[1.0], [0.0]], [0.5]).tolist() == [[1.5]]
    found = convert_to_numpy(
        {"a": torch.tensor([1, 2]), "b": [torch.tensor(1.5, dtype=torch.float64)]}
    )
    assert found["a"].dtype == np.int32
    assert found["b"][0].dtype == np.float32


def test_dictionaries_and_lists():
    first = {"a": {"x": 1, "y": 2}, "b": 1}
    assert merge_dicts(first, {"a": {"y": 3}, "c": 4}) == {"a": {"x": 1, "y": 3}, "b": 1, "c": 4}
    assert first == {"a": {"x": 1, "y": 2}, "b": 1}
    with pytest.raises(KeyError, match="'z'"):
        deep_update({"a": {}}, {"z": 1})
    assert deep_update({"a": {"x": 1}}, {"a": {"n": 2}}, False, ["a"]) == {"a": {"x": 1, "n": 2}}
    assert force_list() == []
    assert force_list((1, 2)) == [1, 2]
    assert force_list("ab", to_tuple=True) == ("ab",)


def test_structures_of_spaces():
    box, three = spaces.Box(0, 1, (2,)), spaces.Discrete(3)
    space = spaces.Dict({"b": three, "a": spaces.Tuple([box, three])})
    assert get_base_struct_from_space(space) == {"a": (box, three), "b": three}
    assert flatten_space(space) == [box, three, three]
    assert flatten_to_single_ndarray({"b": 3, "a": (np.array([1, 2]),)}).tolist() == [1, 2, 3]
    rows = [{"a": np.array([1]), "b": (2,)}, {"a": np.array([3]), "b": (4,)}]
    joined = batch(rows)
    assert joined["a"].tolist() == [[1], [3]]
    assert [row["b"][0] for row in unbatch(joined)] == [2, 4]


@pytest.mark.parametrize("shape", [(7,), (5, 3), (3, 3, 2, 4)])
def test_keras_initialiser_fills_tensors_of_any_rank(shape):
    pytest.importorskip("tensorflow")
    normc = importlib.import_module("rlcatalog_compat.rllib.models.tf.misc").normc_initializer
    value = np.asarray(normc(0.5)(shape, dtype="float32"))
    assert value.shape == shape
    assert np.allclose(np.square(value).sum(0), 0.25)
