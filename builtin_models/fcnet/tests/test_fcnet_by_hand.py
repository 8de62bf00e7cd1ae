"""Every combination of the fully connected network's keys, against NumPy and between frameworks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from scipy import special, stats

from rlcatalog import Request, SpaceInfo
from rlcatalog.catalog import default_catalog
from rlcatalog.config import ACTIVATIONS, INITIALIZERS
from rlcatalog_fcnet.plugin import describe
from rlcatalog_tf import FullyConnectedNetwork as TFNet, nn as tf_nn
from rlcatalog_torch import FullyConnectedNetwork as TorchNet, nn as torch_nn

OBS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Discrete(4)
ROWS = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)


# --- the combinations -----------------------------------------------------------------------------

OPTIONS = {
    "fcnet_hiddens": [[], [8], [8, 6]],
    "post_fcnet_hiddens": [[], [5], [7, 5]],
    "no_final_linear": [False, True],
    "vf_share_layers": [True, False],
    "free_log_std": [False, True],
    "num_outputs": [4, None],
}


def combine_options():
    """Yield every combination of the structural keys.

    The two activations change from one combination to the next, so that all pairs occur.
    """
    count = len(ACTIVATIONS)
    for index, values in enumerate(itertools.product(*OPTIONS.values())):
        case = dict(zip(OPTIONS, values, strict=True))
        case["fcnet_activation"] = ACTIVATIONS[index % count]
        case["post_fcnet_activation"] = ACTIVATIONS[(index + index // count) % count]
        yield case


CASES = list(combine_options())


def label(case):
    flags = ""
    for key in ("no_final_linear", "vf_share_layers", "free_log_std"):
        if case[key]:
            flags += key[0]
    sizes = f"{case['fcnet_hiddens']}+{case['post_fcnet_hiddens']}"
    activations = f"{case['fcnet_activation']}-{case['post_fcnet_activation']}"
    return f"{sizes}-{flags}-{case['num_outputs']}-{activations}"


def mark_four_of_five_as_attacks(cases):
    """Return all cases; `make test` runs every fifth, `make attack` the others."""
    marked = []
    for index, case in enumerate(cases):
        marks = () if index % 5 == 0 else pytest.mark.attack
        marked.append(pytest.param(case, marks=marks))
    return marked


def test_cases_cover_all_pairs_of_values():
    values = {**OPTIONS, "fcnet_activation": ACTIVATIONS, "post_fcnet_activation": ACTIVATIONS}

    for first, second in itertools.combinations(values, 2):
        pairs = {(repr(case[first]), repr(case[second])) for case in CASES}
        assert len(pairs) == len(values[first]) * len(values[second]), (first, second)


def without_num_outputs(case):
    return {key: value for key, value in case.items() if key != "num_outputs"}


# --- NumPy by hand --------------------------------------------------------------------------------

ACTIVATIONS_BY_HAND = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "silu": lambda x: x * special.expit(x),
    "gelu": lambda x: x * stats.norm.cdf(x),
    "sigmoid": special.expit,
    "softplus": lambda x: np.logaddexp(0, x),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "selu": lambda x: (
        1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
    ),
    "softmax": lambda x: special.softmax(x, axis=-1),
}


def compute_by_hand(case, weights):
    """Return outputs and values of a network with these weights, computed in float64."""
    layers = [(width, case["fcnet_activation"]) for width in case["fcnet_hiddens"]]
    layers += [(width, case["post_fcnet_activation"]) for width in case["post_fcnet_hiddens"]]
    last_activation = "linear"
    if case["no_final_linear"] and case["num_outputs"] is not None and layers:
        last_activation = layers.pop()[1]

    def apply_layer(name, x):
        return x @ weights[f"{name}.weight"].T.astype(np.float64) + weights[f"{name}.bias"]

    def apply_stack(name):
        y = ROWS.astype(np.float64)
        for i, (width, activation) in enumerate(layers):
            y = ACTIVATIONS_BY_HAND[activation](apply_layer(f"{name}.layers.{i}", y))
            assert y.shape[1] == width
        return y

    features = apply_stack("hidden")
    if case["num_outputs"] is None:
        return features, None
    output = ACTIVATIONS_BY_HAND[last_activation](apply_layer("outputs.logits", features))
    if case["free_log_std"]:
        log_std = np.tile(weights["outputs.free_log_std.log_std"], (len(ROWS), 1))
        output = np.concatenate([output, log_std], axis=1)
    value_features = features if case["vf_share_layers"] else apply_stack("value_hidden")
    return output, apply_layer("outputs.value", value_features)[:, 0]


def test_comparison_with_numpy_sees_a_changed_bias(assert_same_results, build_net, run_net):
    case = CASES[0]  # no hidden layers
    model = build_net(TorchNet, **case)

    weights = model.get_weights()
    weights["outputs.logits.bias"] = weights["outputs.logits.bias"] + 0.01

    with pytest.raises(AssertionError):
        assert_same_results(run_net(model), compute_by_hand(case, weights))


# --- every combination ----------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("cls", [TorchNet, TFNet])
@pytest.mark.parametrize("case", CASES, ids=label)
def test_outputs_and_values_match_numpy(case, cls, assert_same_results, build_net, run_net):
    model = build_net(cls, seed=1, **case)

    assert_same_results(run_net(model), compute_by_hand(case, model.get_weights()))


@pytest.mark.grid
@pytest.mark.parametrize("cls", [TorchNet, TFNet])
@pytest.mark.parametrize("case", CASES, ids=label)
def test_num_outputs_of_a_trunk_is_its_last_width(case, cls, build_net, run_net):
    model = build_net(cls, seed=1, **case)

    outputs, _ = run_net(model)

    widths = [3, *case["fcnet_hiddens"], *case["post_fcnet_hiddens"]]  # 3 inputs
    expected = case["num_outputs"] or widths[-1]
    assert model.num_outputs == expected
    assert outputs.shape == (16, expected)  # 16 observations


@pytest.mark.parametrize("case", mark_four_of_five_as_attacks(CASES), ids=label)
def test_frameworks_have_the_same_weights_in_one_order(case, build_net):
    torch_net = build_net(TorchNet, **case)
    tf_net = build_net(TFNet, **case)

    torch_weights = torch_net.get_weights()
    tf_weights = tf_net.get_weights()

    torch_shapes = {name: array.shape for name, array in torch_weights.items()}
    tf_shapes = {name: array.shape for name, array in tf_weights.items()}
    assert torch_shapes == tf_shapes
    assert list(torch_net.variables(as_dict=True)) == list(torch_weights)
    assert list(tf_net.variables(as_dict=True)) == list(torch_weights)


@pytest.mark.parametrize("case", mark_four_of_five_as_attacks(CASES), ids=label)
def test_frameworks_agree_after_weights_are_swapped(case, assert_same_results, build_net, run_net):
    torch_net = build_net(TorchNet, seed=1, **case)
    tf_net = build_net(TFNet, seed=2, **case)
    torch_weights = torch_net.get_weights()
    tf_weights = tf_net.get_weights()
    torch_results = run_net(torch_net)
    tf_results = run_net(tf_net)

    tf_net.set_weights(torch_weights)
    torch_net.set_weights(tf_weights)

    assert_same_results(run_net(tf_net), torch_results)
    assert_same_results(run_net(torch_net), tf_results)


@pytest.mark.parametrize("case", mark_four_of_five_as_attacks(CASES), ids=label)
def test_frameworks_have_the_same_gradients(case, build_net):
    torch_net = build_net(TorchNet, seed=1, **case)
    tf_net = build_net(TFNet, seed=1, **case)
    random = np.random.default_rng(3)
    output_factors = random.normal(size=(16, torch_net.num_outputs)).astype(np.float32)
    value_factors = random.normal(size=16).astype(np.float32)

    torch_gradients = compute_torch_gradients(torch_net, output_factors, value_factors)
    tf_gradients = compute_tf_gradients(tf_net, output_factors, value_factors)

    assert list(torch_gradients) == list(tf_gradients)
    for name, gradient in torch_gradients.items():
        assert np.abs(gradient).sum() > 0, name
        np.testing.assert_allclose(gradient, tf_gradients[name], rtol=1e-4, atol=1e-4, err_msg=name)


def compute_torch_gradients(model, output_factors, value_factors):
    """Return the gradients of the weighted sum of outputs and values: name → array."""
    parameters = model.trainable_variables(as_dict=True)
    if not parameters:
        return {}
    output, _ = model({"obs": torch.from_numpy(ROWS)})
    loss = (output * torch.from_numpy(output_factors)).sum()
    if model.outputs is not None:
        loss = loss + (model.value_function() * torch.from_numpy(value_factors)).sum()
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    return {name: gradient.numpy() for name, gradient in zip(parameters, gradients, strict=True)}


def compute_tf_gradients(model, output_factors, value_factors):
    """Return the same in TensorFlow, with weights in PyTorch's layout [outputs, inputs]."""
    variables = model.trainable_variables(as_dict=True)
    with tf.GradientTape() as tape:
        output, _ = model({"obs": tf.constant(ROWS)})
        loss = tf.reduce_sum(output * output_factors)
        if model.outputs is not None:
            loss += tf.reduce_sum(model.value_function() * value_factors)
    arrays = {}
    for name, gradient in zip(
        variables, tape.gradient(loss, list(variables.values())), strict=True
    ):
        assert gradient is not None, name
        arrays[name] = gradient.numpy().T if name.endswith("weight") else gradient.numpy()
    return arrays


def trace(model):
    """Return a `tf.function` that computes outputs and values (no values for a trunk)."""

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    def run_traced(x):
        output, _ = model({"obs": x})
        return output, tf.zeros([0]) if model.outputs is None else model.value_function()

    return run_traced


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("case", CASES[::9], ids=label)
def test_traced_outputs_and_values_match_torch(case, rows, assert_same_results, build_net, run_net):
    torch_net = build_net(TorchNet, seed=1, **case)
    tf_net = build_net(TFNet, seed=1, **case)

    output, value = trace(tf_net)(tf.constant(ROWS[:rows]))

    values = None if tf_net.outputs is None else value.numpy()
    assert_same_results((output.numpy(), values), run_net(torch_net, ROWS[:rows]))


@pytest.mark.parametrize("case", CASES[::9], ids=label)
def test_traced_network_uses_weights_set_after_tracing(case, build_net, run_net):
    tf_net = build_net(TFNet, seed=1, **case)
    run_traced = trace(tf_net)
    run_traced(tf.constant(ROWS))

    other = build_net(TorchNet, seed=5, **case)
    tf_net.set_weights(other.get_weights())

    expected, _ = run_net(other)
    np.testing.assert_allclose(run_traced(tf.constant(ROWS))[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES[::5], ids=label)
def test_calls_create_no_variables(case, run_net):
    def build_tf_net():
        return TFNet(OBS, ACTIONS, case["num_outputs"], without_num_outputs(case), "net")

    names = []

    def record_name(create, **kwargs):
        names.append(kwargs.get("name"))
        return create(**kwargs)

    model = build_tf_net()
    before = [id(variable) for variable in model.variables()]
    with tf.variable_creator_scope(record_name):
        run_net(model)
        run_net(model)
        assert names == []
        build_tf_net()  # shows that new variables are recorded

    assert len(names) == len(before)
    assert [id(variable) for variable in model.variables()] == before


@pytest.mark.parametrize("case", CASES[::5], ids=label)
def test_describe_lists_the_shapes_of_the_layers(case, build_net, run_net):
    config = default_catalog().parse_config(without_num_outputs(case))
    request = Request(SpaceInfo.read(OBS), None, config, None, OBS.shape, case["num_outputs"])
    model = build_net(TorchNet, **case)
    shapes = []

    def record_shape(module, inputs, output):
        shapes.append(tuple(output.shape[1:]))

    layers = list(model.hidden.layers)
    if model.value_hidden is not None:
        layers += model.value_hidden.layers
    for layer in layers:
        layer.register_forward_hook(record_shape)
    output, value = run_net(model)
    if value is not None:
        shapes += [value.shape[1:], output.shape[1:]]

    assert [stage.shape for stage in describe(request)] == shapes


# --- activations ----------------------------------------------------------------------------------

NUMBERS = np.concatenate([np.linspace(-6, 6, 61), [-100, 100, 1e-8, 0]]).astype(np.float32)
#: Two columns, for softmax.
INPUTS_OF_ACTIVATIONS = NUMBERS[:, None] * np.float32([1, 0.5])


def test_both_frameworks_have_every_activation():
    assert set(torch_nn.ACTIVATIONS) == set(ACTIVATIONS)
    assert set(tf_nn.ACTIVATIONS) == set(ACTIVATIONS)
    assert set(ACTIVATIONS_BY_HAND) == set(ACTIVATIONS)


def test_both_frameworks_have_every_initializer():
    assert set(torch_nn._INITIALIZERS) == set(INITIALIZERS)
    assert set(tf_nn._INITIALIZERS) == set(INITIALIZERS)


@pytest.mark.parametrize(
    ("nn", "to_tensor"),
    [
        pytest.param(torch_nn, torch.from_numpy, id="torch"),
        pytest.param(tf_nn, tf.constant, id="tf"),
    ],
)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_matches_its_formula(name, nn, to_tensor):
    function = nn.activation(name)

    if function is None:  # linear
        outputs = INPUTS_OF_ACTIVATIONS
    else:
        outputs = np.asarray(function(to_tensor(INPUTS_OF_ACTIVATIONS)))

    expected = ACTIVATIONS_BY_HAND[name](INPUTS_OF_ACTIVATIONS.astype(np.float64))
    np.testing.assert_allclose(outputs, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("nn", [torch_nn, tf_nn], ids=["torch", "tf"])
@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("ReLU", "relu"),
        ("swish", "silu"),
        ("Tanh", "tanh"),
        ("LeakyReLU", "leaky_relu"),
        ("GELU", "gelu"),
        (None, "linear"),
        ("None", "linear"),
    ],
)
def test_activation_accepts_rllib_spellings(spelling, name, nn):
    assert nn.activation(spelling) is nn.ACTIVATIONS[name]


@pytest.mark.parametrize(
    ("cls", "function"),
    [
        pytest.param(TorchNet, torch.relu, id="torch-function"),
        pytest.param(TorchNet, torch.nn.ReLU, id="torch-class"),
        pytest.param(TorchNet, torch.nn.ReLU(), id="torch-module"),
        pytest.param(TFNet, tf.nn.relu, id="tf-function"),
        pytest.param(TFNet, tf.keras.activations.relu, id="keras-function"),
        pytest.param(TFNet, tf.keras.layers.ReLU, id="keras-class"),
    ],
)
def test_activation_may_be_a_callable(cls, function, assert_same_results, build_net, run_net):
    by_name = build_net(TorchNet, fcnet_hiddens=[8], fcnet_activation="relu")

    by_function = build_net(cls, fcnet_hiddens=[8], fcnet_activation=function)

    assert_same_results(run_net(by_function), run_net(by_name))


def test_activation_with_parameters_is_trained():
    config = {"fcnet_hiddens": [8, 6], "fcnet_activation": torch.nn.PReLU, "vf_share_layers": False}
    model = TorchNet(OBS, ACTIONS, num_outputs=4, model_config=config, name="net")
    slopes = []
    for name, parameter in model.named_parameters():
        if "activation" in name and parameter.shape == (1,):
            slopes.append(name)

    output, _ = model({"obs": torch.from_numpy(ROWS)})
    (output.sum() + model.value_function().sum()).backward()

    assert len(slopes) == 4  # 2 layers of the policy and 2 of the value, none shared
    assert all(parameter.grad is not None for parameter in model.parameters())
