"""The fully connected network: every combination of its keys, against NumPy by hand and between the
frameworks.
"""

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

OBS, ACTIONS, INPUTS = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4), 3
X = np.random.default_rng(0).normal(size=(16, INPUTS)).astype(np.float32)


# --- the combinations -----------------------------------------------------------------------------

OPTIONS = {
    "fcnet_hiddens": [[], [8], [8, 6]],
    "post_fcnet_hiddens": [[], [5], [7, 5]],
    "no_final_linear": [False, True],
    "vf_share_layers": [True, False],
    "free_log_std": [False, True],
    "num_outputs": [4, None],
}


def combinations():
    """Every combination of the structural keys; the two activations go round, so that all pairs
    occur.
    """
    for index, values in enumerate(itertools.product(*OPTIONS.values())):
        first, second = (
            ACTIVATIONS[i % len(ACTIVATIONS)] for i in (index, index + index // len(ACTIVATIONS))
        )
        case = dict(zip(OPTIONS, values, strict=True))
        yield {**case, "fcnet_activation": first, "post_fcnet_activation": second}


CASES = list(combinations())


def label(case):
    flags = "".join(
        key[0] for key in ("no_final_linear", "vf_share_layers", "free_log_std") if case[key]
    )
    sizes = "+".join(str(case[key]) for key in ("fcnet_hiddens", "post_fcnet_hiddens"))
    activations = f"{case['fcnet_activation']}-{case['post_fcnet_activation']}"
    return f"{sizes}-{flags}-{case['num_outputs']}-{activations}"


def test_the_combinations_cover_all_pairs():
    values = {**OPTIONS, "fcnet_activation": ACTIVATIONS, "post_fcnet_activation": ACTIVATIONS}
    for a, b in itertools.combinations(values, 2):
        assert len({(repr(case[a]), repr(case[b])) for case in CASES}) == len(values[a]) * len(
            values[b]
        ), (a, b)


def config_of(case):
    return {key: value for key, value in case.items() if key != "num_outputs"}


# --- NumPy by hand --------------------------------------------------------------------------------

BY_HAND = {
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


def by_hand(case, weights, x=X):
    """Outputs and values of a network of a case, in float64."""
    layers = [(n, case["fcnet_activation"]) for n in case["fcnet_hiddens"]]
    layers += [(n, case["post_fcnet_activation"]) for n in case["post_fcnet_hiddens"]]
    last = "linear"
    if case["no_final_linear"] and case["num_outputs"] is not None and layers:
        last = layers.pop()[1]

    def linear(name, x):
        return x @ weights[f"{name}.weight"].T.astype(np.float64) + weights[f"{name}.bias"]

    def stack(name):
        y = x.astype(np.float64)
        for i, (width, activation) in enumerate(layers):
            y = BY_HAND[activation or "linear"](linear(f"{name}.layers.{i}", y))
            assert y.shape[1] == width
        return y

    features = stack("hidden")
    if case["num_outputs"] is None:
        return features, None
    output = BY_HAND[last or "linear"](linear("outputs.logits", features))
    if case["free_log_std"]:
        output = np.concatenate(
            [output, np.tile(weights["outputs.free_log_std.log_std"], (len(x), 1))], axis=1
        )
    value_features = features if case["vf_share_layers"] else stack("value_hidden")
    return output, linear("outputs.value", value_features)[:, 0]


def test_the_hand_written_reference_can_fail(assert_close, build, plain, run):
    model = build(TorchNet, plain)
    weights = model.get_weights()
    weights["outputs.logits.bias"] = weights["outputs.logits.bias"] + 0.01
    with pytest.raises(AssertionError):
        assert_close(run(model), by_hand(plain, weights))


# --- every combination ----------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("cls", [TorchNet, TFNet])
@pytest.mark.parametrize("case", CASES, ids=label)
def test_every_combination_of_keys(case, cls, assert_close, build, run):
    model = build(cls, case, 1)
    width = (
        case["num_outputs"] or ([INPUTS] + case["fcnet_hiddens"] + case["post_fcnet_hiddens"])[-1]
    )
    assert model.num_outputs == width
    assert_close(run(model), by_hand(case, model.get_weights()))
    assert run(model)[0].shape == (len(X), width)


@pytest.mark.parametrize(
    "case",
    [
        case if i % 5 == 0 else pytest.param(case, marks=pytest.mark.attack)
        for i, case in enumerate(CASES)
    ],
    ids=label,
)
def test_the_frameworks_agree_in_every_combination(case, assert_close, build, run):
    first, second = build(TorchNet, case, 1), build(TFNet, case, 2)
    weights = first.get_weights()
    # Names and shapes are the same, in the same order.
    assert {n: a.shape for n, a in weights.items()} == {
        n: a.shape for n, a in second.get_weights().items()
    }
    assert (
        list(first.variables(as_dict=True)) == list(second.variables(as_dict=True)) == list(weights)
    )
    # Weights copied across give the same outputs, and copied back too.
    other = second.get_weights()
    before = run(first), run(second)
    second.set_weights(weights)
    assert_close(run(second), before[0])
    first.set_weights(other)
    assert_close(run(first), before[1])
    # Gradients reach every parameter, and are the same ones in both.
    second.set_weights(first.get_weights())
    assert_same_gradients(first, second)


def assert_same_gradients(first, second):
    random = np.random.default_rng(3)
    a, b = (
        random.normal(size=(len(X), first.num_outputs)).astype(np.float32),
        random.normal(size=len(X)),
    )
    b = b.astype(np.float32)
    output, _ = first({"obs": torch.from_numpy(X)})
    loss = (output * torch.from_numpy(a)).sum()
    if first.outputs is not None:
        loss = loss + (first.value_function() * torch.from_numpy(b)).sum()
    parameters = first.trainable_variables(as_dict=True)
    found = torch.autograd.grad(loss, list(parameters.values())) if parameters else []
    variables = second.trainable_variables(as_dict=True)
    with tf.GradientTape() as tape:
        output, _ = second({"obs": tf.constant(X)})
        loss = tf.reduce_sum(output * a)
        if second.outputs is not None:
            loss += tf.reduce_sum(second.value_function() * b)
    others = tape.gradient(loss, list(variables.values()))
    for name, one, other in zip(parameters, found, others, strict=True):
        assert other is not None, name
        assert one.abs().sum() > 0, name
        other = other.numpy().T if name.endswith("weight") else other.numpy()
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("case", CASES[::9], ids=label)
def test_traced_it_is_the_same(case, assert_close, build, run):
    first, second = build(TorchNet, case, 1), build(TFNet, case, 2)
    second.set_weights(first.get_weights())

    @tf.function(input_signature=[tf.TensorSpec([None, INPUTS], tf.float32)])
    def traced(x):
        output, _ = second({"obs": x})
        return output, tf.zeros([0]) if second.outputs is None else second.value_function()

    for rows in (1, 16):
        output, value = traced(tf.constant(X[:rows]))
        found = output.numpy(), None if second.outputs is None else value.numpy()
        assert_close(found, run(first, X[:rows]))
    # Variables are read anew: a change shows without tracing again.
    first.set_weights(build(TorchNet, case, 5).get_weights())
    second.set_weights(first.get_weights())
    np.testing.assert_allclose(traced(tf.constant(X))[0], run(first)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES[::5], ids=label)
def test_a_call_makes_no_variables(case, run):
    model, made = TFNet(OBS, ACTIONS, case["num_outputs"], config_of(case), "net"), []

    def note(create, **kwargs):
        made.append(kwargs.get("name"))
        return create(**kwargs)

    before = [id(variable) for variable in model.variables()]
    with tf.variable_creator_scope(note):
        for _ in range(2):
            run(model)
        TFNet(OBS, ACTIONS, case["num_outputs"], config_of(case), "control")
    assert [id(variable) for variable in model.variables()] == before
    assert len(made) == len(before)  # the control's, and no other


@pytest.mark.parametrize("case", CASES[::5], ids=label)
def test_describe_tells_the_shapes_of_the_built_network(case, build, run):
    catalog = default_catalog()
    values = catalog.parse_config(config_of(case))
    info = SpaceInfo.read(OBS)
    stages = describe(Request(info, None, values, None, OBS.shape, case["num_outputs"]))
    model, shapes = build(TorchNet, case), []

    def note(module, inputs, output):
        shapes.append(tuple(output.shape[1:]))

    apart = [] if model.value_hidden is None else model.value_hidden.layers
    for layer in [*model.hidden.layers, *apart]:
        layer.register_forward_hook(note)
    output, value = run(model)
    built = [*shapes, *([value.shape[1:], output.shape[1:]] if value is not None else [])]
    assert [stage.shape for stage in stages] == built


# --- activations ----------------------------------------------------------------------------------

GRID = np.concatenate([np.linspace(-6, 6, 61), [-100, 100, 1e-8, 0]]).astype(np.float32)[
    :, None
] * np.float32([1, 0.5])


def test_every_name_exists_in_both_frameworks():
    assert set(torch_nn.ACTIVATIONS) == set(tf_nn.ACTIVATIONS) == set(ACTIVATIONS) == set(BY_HAND)
    assert set(torch_nn._INITIALIZERS) == set(tf_nn._INITIALIZERS) == set(INITIALIZERS)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_what_its_name_says(name):
    expected = BY_HAND[name](GRID.astype(np.float64))
    for nn, convert in ((torch_nn, torch.from_numpy), (tf_nn, tf.constant)):
        function = nn.activation(name)
        found = GRID if function is None else np.asarray(function(convert(GRID)))
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


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
def test_rllibs_spellings(spelling, name):
    for nn in (torch_nn, tf_nn):
        assert nn.activation(spelling) is nn.ACTIVATIONS[name]


def test_callables_of_the_framework(assert_close, build, plain, run):
    relu = {**plain, "fcnet_hiddens": [8], "fcnet_activation": "relu"}
    expected = run(build(TorchNet, relu))
    for function in (torch.relu, torch.nn.ReLU, torch.nn.ReLU()):
        assert_close(run(build(TorchNet, {**relu, "fcnet_activation": function})), expected)
    for function in (tf.nn.relu, tf.keras.activations.relu, tf.keras.layers.ReLU):
        assert_close(run(build(TFNet, {**relu, "fcnet_activation": function})), expected)


def test_an_activation_with_parameters_is_trained():
    config = {"fcnet_hiddens": [8, 6], "fcnet_activation": torch.nn.PReLU, "vf_share_layers": False}
    model = TorchNet(OBS, ACTIONS, 4, config, "net")
    slopes = [
        name for name, p in model.named_parameters() if p.shape == (1,) and "activation" in name
    ]
    assert len(slopes) == 4  # two per stack, none shared
    output, _ = model({"obs": torch.from_numpy(X)})
    (output.sum() + model.value_function().sum()).backward()
    assert all(p.grad is not None for p in model.parameters())
