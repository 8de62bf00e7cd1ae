"""The fully connected network: every combination of its keys, against NumPy by hand and between the frameworks."""

from __future__ import annotations

import copy
import itertools
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from scipy import special, stats

from rlcatalog import ModelCatalog, Request, SpaceInfo
from rlcatalog import build as build_policy
from rlcatalog.catalog import default_catalog
from rlcatalog.errors import ConfigError, ModelContractError, StaleOutputError
from rlcatalog.neutral import ACTIVATIONS, INITIALIZERS
from rlcatalog.tf import FullyConnectedNetwork as TFNet
from rlcatalog.tf import nn as tf_nn
from rlcatalog.torch import FullyConnectedNetwork as TorchNet
from rlcatalog.torch import nn as torch_nn
from rlcatalog_fcnet.plugin import describe

OBS, ACTIONS, INPUTS = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4), 3
X = np.random.default_rng(0).normal(size=(16, INPUTS)).astype(np.float32)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Small tensors gain nothing from a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- the combinations ------------------------------------------------------------------------------------------------

OPTIONS = {
    "fcnet_hiddens": [[], [8], [8, 6]],
    "post_fcnet_hiddens": [[], [5], [7, 5]],
    "no_final_linear": [False, True],
    "vf_share_layers": [True, False],
    "free_log_std": [False, True],
    "num_outputs": [4, None],
}


def combinations():
    """Every combination of the structural keys; the two activations go round, so that all pairs occur."""
    for index, values in enumerate(itertools.product(*OPTIONS.values())):
        first, second = (ACTIVATIONS[i % len(ACTIVATIONS)] for i in (index, index + index // len(ACTIVATIONS)))
        case = dict(zip(OPTIONS, values, strict=True))
        yield {**case, "fcnet_activation": first, "post_fcnet_activation": second}


CASES = list(combinations())


def label(case):
    flags = "".join(key[0] for key in ("no_final_linear", "vf_share_layers", "free_log_std") if case[key])
    sizes = "+".join(str(case[key]) for key in ("fcnet_hiddens", "post_fcnet_hiddens"))
    return f"{sizes}-{flags}-{case['num_outputs']}-{case['fcnet_activation']}-{case['post_fcnet_activation']}"


def test_the_combinations_cover_all_pairs():
    values = {**OPTIONS, "fcnet_activation": ACTIVATIONS, "post_fcnet_activation": ACTIVATIONS}
    for a, b in itertools.combinations(values, 2):
        assert len({(repr(case[a]), repr(case[b])) for case in CASES}) == len(values[a]) * len(values[b]), (a, b)


def config_of(case):
    return {key: value for key, value in case.items() if key != "num_outputs"}


def build(cls, case, seed=0):
    """A network of a case; its weights, biases included, are set to random values of a seed."""
    model = cls(OBS, ACTIONS, case["num_outputs"], config_of(case), "net")
    random = np.random.default_rng(seed)
    weights = {name: random.normal(0, 0.7, array.shape) for name, array in model.get_weights().items()}
    model.set_weights(weights)
    return model


def run(model, x=X):
    """Outputs and values, as arrays; None for the values of a trunk."""
    convert = torch.from_numpy if isinstance(model, TorchNet) else tf.constant
    output, state = model({"obs": convert(x)})
    assert state == []
    value = None if model.logits is None else model.value_function()
    as_array = (lambda t: t.detach().numpy()) if isinstance(model, TorchNet) else (lambda t: t.numpy())
    return as_array(output), None if value is None else as_array(value)


# --- NumPy by hand ---------------------------------------------------------------------------------------------------

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
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
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
    output = BY_HAND[last or "linear"](linear("logits", features))
    if case["free_log_std"]:
        output = np.concatenate([output, np.tile(weights["free_log_std.log_std"], (len(x), 1))], axis=1)
    value_features = features if case["vf_share_layers"] else stack("value_hidden")
    return output, linear("value", value_features)[:, 0]


def assert_close(found, expected, tolerance=1e-5):
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


# --- every combination -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=label)
def test_every_combination_of_keys(case):
    first, second = build(TorchNet, case, 1), build(TFNet, case, 2)
    weights = first.get_weights()
    width = case["num_outputs"] or ([INPUTS] + case["fcnet_hiddens"] + case["post_fcnet_hiddens"])[-1]
    # Structure: both against NumPy.
    assert first.num_outputs == second.num_outputs == width
    assert_close(run(first), by_hand(case, weights))
    assert_close(run(second), by_hand(case, second.get_weights()))
    assert run(first)[0].shape == (len(X), width)
    # Names and shapes are the same, in the same order.
    assert {n: a.shape for n, a in weights.items()} == {n: a.shape for n, a in second.get_weights().items()}
    assert list(first.variables(as_dict=True)) == list(second.variables(as_dict=True)) == list(weights)
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
    a, b = random.normal(size=(len(X), first.num_outputs)).astype(np.float32), random.normal(size=len(X))
    b = b.astype(np.float32)
    output, _ = first({"obs": torch.from_numpy(X)})
    loss = (output * torch.from_numpy(a)).sum()
    if first.logits is not None:
        loss = loss + (first.value_function() * torch.from_numpy(b)).sum()
    parameters = first.trainable_variables(as_dict=True)
    found = torch.autograd.grad(loss, list(parameters.values())) if parameters else []
    variables = second.trainable_variables(as_dict=True)
    with tf.GradientTape() as tape:
        output, _ = second({"obs": tf.constant(X)})
        loss = tf.reduce_sum(output * a)
        if second.logits is not None:
            loss += tf.reduce_sum(second.value_function() * b)
    others = tape.gradient(loss, list(variables.values()))
    for name, one, other in zip(parameters, found, others, strict=True):
        assert other is not None, name
        assert one.abs().sum() > 0, name
        other = other.numpy().T if name.endswith("weight") else other.numpy()
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("case", CASES[::9], ids=label)
def test_traced_it_is_the_same(case):
    first, second = build(TorchNet, case, 1), build(TFNet, case, 2)
    second.set_weights(first.get_weights())

    @tf.function(input_signature=[tf.TensorSpec([None, INPUTS], tf.float32)])
    def traced(x):
        output, _ = second({"obs": x})
        return output, tf.zeros([0]) if second.logits is None else second.value_function()

    for rows in (1, 16):
        output, value = traced(tf.constant(X[:rows]))
        found = output.numpy(), None if second.logits is None else value.numpy()
        assert_close(found, run(first, X[:rows]))
    # Variables are read anew: a change shows without tracing again.
    first.set_weights(build(TorchNet, case, 5).get_weights())
    second.set_weights(first.get_weights())
    np.testing.assert_allclose(traced(tf.constant(X))[0], run(first)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES[::5], ids=label)
def test_a_call_makes_no_variables(case):
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
def test_describe_tells_the_shapes_of_the_built_network(case):
    catalog = default_catalog()
    values = catalog.parse_config(config_of(case)).values
    info = SpaceInfo.read(OBS)
    stages = describe(Request(info, None, values, None, OBS.shape, case["num_outputs"]))
    model, shapes = build(TorchNet, case), []

    def note(module, inputs, output):
        shapes.append(tuple(output.shape[1:]))

    for layer in model.hidden.layers:
        layer.register_forward_hook(note)
    output, value = run(model)
    built = [*shapes, *([value.shape[1:], output.shape[1:]] if value is not None else [])]
    assert [stage.shape for stage in stages] == built


# --- the value -------------------------------------------------------------------------------------------------------


class Counted:
    """Counts the calls of a stack."""

    def __init__(self, stack):
        self.stack, self.calls = stack, 0
        self.outputs = stack.outputs

    def __call__(self, x):
        self.calls += 1
        return self.stack(x)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("no_final_linear", [True, False])
def test_the_value_adds_no_forward_pass(share, no_final_linear):
    case = {**CASES[0], "fcnet_hiddens": [8, 6], "vf_share_layers": share, "no_final_linear": no_final_linear}
    first, second = build(TorchNet, case), build(TFNet, case)
    calls = []
    stacks = ["hidden"] if share else ["hidden", "value_hidden"]
    for name in stacks:
        getattr(first, name).register_forward_hook(lambda *_: calls.append(1))
        setattr(second, name, Counted(getattr(second, name)))
    for model in (first, second):
        run(model)
        for _ in range(3):
            model.value_function()
    assert len(calls) == len(stacks)
    assert [getattr(second, name).calls for name in stacks] == [1] * len(stacks)


def test_the_value_belongs_to_the_last_pass():
    for cls in (TorchNet, TFNet):
        model = build(cls, {**CASES[0], "fcnet_hiddens": [8]})
        values = [run(model, X[i : i + 1])[1] for i in range(2)]
        assert not np.allclose(*values)
        run(model, X[:1])
        np.testing.assert_allclose(run(model, X[1:2])[1], values[1], rtol=1e-6)
        np.testing.assert_array_equal(np.asarray(model.last_output().shape), [1, 4])


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_a_value_before_the_first_pass_is_refused(cls):
    model = build(cls, CASES[0])
    with pytest.raises(StaleOutputError, match="call the model first"):
        model.value_function()
    with pytest.raises(StaleOutputError, match=r"call the model before last_output\(\)"):
        model.last_output()
    assert issubclass(StaleOutputError, RuntimeError)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_a_trunk_has_no_value(cls):
    model = build(cls, {**CASES[0], "num_outputs": None, "vf_share_layers": False})
    run(model)
    assert model.value is None
    assert model.value_hidden is None
    with pytest.raises(StaleOutputError, match="it was built as a trunk"):
        model.value_function()


def test_a_value_outside_its_trace_is_refused():
    model = build(TFNet, {**CASES[0], "fcnet_hiddens": [8]})

    @tf.function
    def forward(x):
        return model({"obs": x})[0]

    @tf.function
    def elsewhere():
        return model.value_function()

    forward(tf.constant(X))
    for ask in (model.value_function, model.last_output, elsewhere):
        with pytest.raises(StaleOutputError, match=r"\(\) belongs to the last forward pass, which ran inside a tf\.fu"):
            ask()
    run(model)  # an eager pass, and all is well again
    assert model.value_function().shape == (16,)


def test_a_value_in_a_branch_of_its_own_trace_is_served():
    model = build(TFNet, {**CASES[0], "fcnet_hiddens": [8]})

    @tf.function(autograph=False)
    def forward(x, wanted):
        model({"obs": x})
        return tf.cond(wanted, model.value_function, lambda: tf.zeros([16]))

    expected = run(build(TorchNet, {**CASES[0], "fcnet_hiddens": [8]}))[1]
    np.testing.assert_allclose(forward(tf.constant(X), tf.constant(True)), expected, rtol=1e-5, atol=1e-5)


def test_unshared_layers_are_not_shared():
    case = {**CASES[0], "fcnet_hiddens": [8], "fcnet_activation": "tanh", "vf_share_layers": False}
    model = build(TorchNet, case)
    output, _ = model({"obs": torch.from_numpy(X)})
    model.value_function().sum().backward(retain_graph=True)
    touched = {name for name, p in model.named_parameters() if p.grad is not None}
    assert touched == {n for n, _ in model.named_parameters() if n.startswith("value")}
    model.zero_grad(set_to_none=True)
    output.sum().backward()
    touched = {name for name, p in model.named_parameters() if p.grad is not None}
    assert touched == {n for n, _ in model.named_parameters() if not n.startswith("value")}


# --- RLlib's faults, mended ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_post_layers_have_their_own_activation(cls):
    case = {**CASES[0], "fcnet_hiddens": [8], "post_fcnet_hiddens": [5], "num_outputs": None}
    case |= {"fcnet_activation": "tanh", "post_fcnet_activation": "relu"}
    features = run(build(cls, case))[0]
    assert (features >= 0).all()
    assert (features == 0).any()
    assert features.max() > 1


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_free_log_std_and_a_trunk_go_together(cls):
    model = build(cls, {**CASES[0], "fcnet_hiddens": [8], "free_log_std": True, "num_outputs": None})
    assert model.num_outputs == 8
    assert list(model.get_weights()) == ["hidden.layers.0.weight", "hidden.layers.0.bias"]


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_no_final_linear_and_a_value_of_its_own_go_together(cls):
    case = {**CASES[0], "fcnet_hiddens": [8, 6], "no_final_linear": True, "vf_share_layers": False}
    model = build(cls, {**case, "fcnet_activation": "tanh"})
    output, value = run(model)
    assert output.shape == (16, 4)
    assert (np.abs(output) <= 1).all()
    assert value.shape == (16,)
    assert np.abs(value).max() > 1  # the value has no activation
    # Both value stacks end before the layer that became the output.
    shapes = {name: array.shape for name, array in model.get_weights().items()}
    assert shapes["value.weight"] == (1, 8)
    assert shapes["logits.weight"] == (4, 8)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_an_odd_number_of_outputs_cannot_be_halved(cls):
    with pytest.raises(ConfigError, match=r"free_log_std needs an even number of outputs.*found 3"):
        cls(OBS, ACTIONS, 3, {"free_log_std": True}, "net")


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_free_log_std_is_trained_does_not_see_the_observation_and_starts_at_zero(cls):
    model = cls(OBS, ACTIONS, 4, {"fcnet_hiddens": [8], "free_log_std": True}, "net")
    np.testing.assert_array_equal(run(model)[0][:, 2:], 0)
    weights = model.get_weights()
    weights["free_log_std.log_std"] = np.array([0.5, -1.0], np.float32)
    model.set_weights(weights)
    np.testing.assert_array_equal(run(model)[0][:, 2:], np.tile(np.float32([0.5, -1.0]), (16, 1)))
    assert "free_log_std.log_std" in model.trainable_variables(as_dict=True)


def test_the_callers_config_is_left_alone():
    config = {"fcnet_hiddens": [8], "post_fcnet_hiddens": [5], "no_final_linear": True}
    before = copy.deepcopy(config)
    for cls in (TorchNet, TFNet):
        cls(OBS, ACTIONS, 4, config, "net")
    assert config == before


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_an_empty_config_means_the_defaults(cls):
    shapes = {name: array.shape for name, array in cls(OBS, ACTIONS, 4, {}, "net").get_weights().items()}
    assert shapes["hidden.layers.0.weight"] == (256, 3)
    assert shapes["hidden.layers.1.weight"] == (256, 256)
    assert shapes["logits.weight"] == (4, 256)


# --- observations of other shapes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (), np.float32),
        spaces.Box(-1, 1, (2, 3), np.float64),
        spaces.Box(0, 255, (2, 2, 3), np.uint8),
        spaces.Box(-5, 5, (4,), np.int64),
    ],
    ids=str,
)
def test_any_box_is_flattened(cls, space):
    model = cls(space, ACTIONS, 4, {"fcnet_hiddens": [], "vf_share_layers": True}, "net")
    space.seed(0)
    obs = np.stack([space.sample() for _ in range(5)])
    convert = torch.from_numpy if cls is TorchNet else tf.constant
    output, _ = model({"obs": convert(obs)})
    weights = model.get_weights()
    expected = obs.reshape(5, -1).astype(np.float64) @ weights["logits.weight"].T + weights["logits.bias"]
    found = np.asarray(output.detach() if cls is TorchNet else output)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


# --- activations -----------------------------------------------------------------------------------------------------

GRID = np.concatenate([np.linspace(-6, 6, 61), [-100, 100, 1e-8, 0]]).astype(np.float32)[:, None] * np.float32([1, 0.5])


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


@pytest.mark.parametrize(("spelling", "name"), [("ReLU", "relu"), ("swish", "silu"), ("Tanh", "tanh"), ("LeakyReLU",
                         "leaky_relu"), ("GELU", "gelu"), (None, "linear"), ("None", "linear")])  # fmt: skip
def test_rllibs_spellings(spelling, name):
    for nn in (torch_nn, tf_nn):
        assert nn.activation(spelling) is nn.ACTIVATIONS[name]


def test_callables_of_the_framework():
    relu = {**CASES[0], "fcnet_hiddens": [8], "fcnet_activation": "relu"}
    expected = run(build(TorchNet, relu))
    for function in (torch.relu, torch.nn.ReLU, torch.nn.ReLU()):
        assert_close(run(build(TorchNet, {**relu, "fcnet_activation": function})), expected)
    for function in (tf.nn.relu, tf.keras.activations.relu, tf.keras.layers.ReLU):
        assert_close(run(build(TFNet, {**relu, "fcnet_activation": function})), expected)


def test_an_activation_with_parameters_is_trained():
    config = {"fcnet_hiddens": [8, 6], "fcnet_activation": torch.nn.PReLU, "vf_share_layers": False}
    model = TorchNet(OBS, ACTIONS, 4, config, "net")
    slopes = [name for name, p in model.named_parameters() if p.shape == (1,) and "activation" in name]
    assert len(slopes) == 4  # two per stack, none shared
    output, _ = model({"obs": torch.from_numpy(X)})
    (output.sum() + model.value_function().sum()).backward()
    assert all(p.grad is not None for p in model.parameters())


# --- initialisers ----------------------------------------------------------------------------------------------------

ROWS, COLUMNS = 60, 150


def normal(std, mean=0.0):
    return stats.norm(mean, std)


def uniform(bound):
    return stats.uniform(-bound, 2 * bound)


def truncated(mean, std):
    return stats.truncnorm(-2, 2, mean, std)


BOTH = ROWS + COLUMNS
DISTRIBUTIONS = [
    ("xavier_uniform", {}, uniform(np.sqrt(6 / BOTH))),
    ("xavier_uniform", {"gain": 3.0}, uniform(3 * np.sqrt(6 / BOTH))),
    ("xavier_normal", {}, normal(np.sqrt(2 / BOTH))),
    ("xavier_normal", {"gain": 0.1}, normal(0.1 * np.sqrt(2 / BOTH))),
    ("kaiming_uniform", {}, uniform(np.sqrt(6 / COLUMNS))),
    ("kaiming_normal", {}, normal(np.sqrt(2 / COLUMNS))),
    ("uniform", {}, uniform(0.05)),
    ("uniform", {"a": 1.0, "b": 3.0}, stats.uniform(1, 2)),
    ("normal", {}, normal(0.05)),
    ("normal", {"mean": 2.0, "std": 0.5}, normal(0.5, 2.0)),
    ("truncated_normal", {}, truncated(0, 0.05)),
    ("truncated_normal", {"mean": -1.0, "std": 2.0}, truncated(-1, 2)),
]


def initialized(framework, shape, name, config=None, seed=0):
    if framework == "torch":
        torch.manual_seed(seed)
        tensor = torch.full(shape, torch.nan)
        torch_nn.initialize(tensor, name, config or {})
        return tensor.numpy()
    tf.random.set_seed(seed)
    return tf_nn.initial_value(shape, name, config or {}).numpy()


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(("name", "config", "truth"), DISTRIBUTIONS, ids=lambda value: str(value)[:20])
def test_an_initialiser_draws_from_its_distribution(framework, name, config, truth):
    values = initialized(framework, (ROWS, COLUMNS), name, config).astype(np.float64)
    assert values.shape == (ROWS, COLUMNS)
    assert stats.kstest(values.ravel(), truth.cdf).pvalue > 1e-3
    low, high = truth.support()
    assert values.min() >= low - 1e-6
    assert values.max() <= high + 1e-6
    # The control: the test would see a scale that is 5 % off.
    assert stats.kstest((values.ravel() - truth.mean()) * 1.1 + truth.mean(), truth.cdf).pvalue < 1e-3


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_fans_of_a_convolution(framework):
    # [out, in, height, width]: 12 outputs and 4 inputs, each through a field of 15.
    values = initialized(framework, (12, 4, 3, 5), "xavier_uniform")
    assert stats.kstest(values.ravel(), uniform(np.sqrt(6 / (15 * 16))).cdf).pvalue > 1e-3
    values = initialized(framework, (12, 4, 3, 5), "kaiming_normal")
    assert stats.kstest(values.ravel(), normal(np.sqrt(2 / 60)).cdf).pvalue > 1e-3


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_constants(framework):
    np.testing.assert_array_equal(initialized(framework, (2, 3), "zeros"), np.zeros((2, 3)))
    np.testing.assert_array_equal(initialized(framework, (2, 3), "ones"), np.ones((2, 3)))
    np.testing.assert_array_equal(initialized(framework, (2, 3), "constant", {"val": 2.5}), np.full((2, 3), 2.5))
    np.testing.assert_array_equal(initialized(framework, (2, 3), "constant"), np.zeros((2, 3)))


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("std", [1.0, 0.01])
def test_normc_gives_each_output_row_its_norm(framework, std):
    values = initialized(framework, (ROWS, COLUMNS), "normc", {"std": std})
    np.testing.assert_allclose(np.linalg.norm(values, axis=1), std, rtol=1e-5)
    assert np.linalg.norm(values, axis=0).std() > 0.01 * std  # columns are not normalised
    # Directions are uniform: the coordinates of a point on a sphere in three dimensions are uniform.
    rows = initialized(framework, (3000, 3), "normc", {"std": std}) / std
    for coordinate in rows.T:
        assert stats.kstest(coordinate, uniform(1).cdf).pvalue > 1e-3


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (5, 5), (4, 2, 3, 3)])
@pytest.mark.parametrize("gain", [1.0, 2.0])
def test_orthogonal_is_orthogonal(framework, shape, gain):
    values = initialized(framework, shape, "orthogonal", {"gain": gain}).reshape(shape[0], -1).astype(np.float64)
    gram = values @ values.T if values.shape[0] <= values.shape[1] else values.T @ values
    np.testing.assert_allclose(gram, gain**2 * np.eye(len(gram)), atol=1e-5)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_orthogonal_prefers_no_direction(framework):
    draws = np.stack([initialized(framework, (3, 3), "orthogonal", seed=seed) for seed in range(150)])
    for i, j in ((0, 0), (1, 2), (2, 2)):
        assert stats.kstest(draws[:, i, j], uniform(1).cdf).pvalue > 1e-3


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    ("name", "neutral"),
    [("xavier_uniform_", "xavier_uniform"), ("glorot_uniform", "xavier_uniform"), ("he_normal", "kaiming_normal"),
     ("Normc", "normc"), ("trunc_normal_", "truncated_normal")],
)  # fmt: skip
def test_names_of_both_worlds(framework, name, neutral):
    np.testing.assert_array_equal(initialized(framework, (4, 5), name), initialized(framework, (4, 5), neutral))


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_a_fresh_network(cls):
    config = {"fcnet_hiddens": [8], "post_fcnet_hiddens": [6], "vf_share_layers": False, "free_log_std": True}
    weights = cls(OBS, ACTIONS, 4, config, "net").get_weights()
    for name, array in weights.items():
        if name.endswith(("bias", "log_std")):
            np.testing.assert_array_equal(array, 0, err_msg=name)
        else:
            norm = 0.01 if name in ("logits.weight", "value.weight") else 1.0
            np.testing.assert_allclose(np.linalg.norm(array, axis=1), norm, rtol=1e-5, err_msg=name)
    # The layer that becomes the output under no_final_linear keeps its own initialiser.
    weights = cls(OBS, ACTIONS, 4, {**config, "no_final_linear": True}, "net").get_weights()
    np.testing.assert_allclose(np.linalg.norm(weights["logits.weight"], axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_initialisers_of_the_config_reach_their_layers(cls):
    config = {
        "fcnet_hiddens": [8, 7], "fcnet_weights_initializer": "constant",
        "fcnet_weights_initializer_config": {"val": 0.25}, "fcnet_bias_initializer": "ones",
        "post_fcnet_hiddens": [6], "post_fcnet_weights_initializer": "orthogonal_",
        "post_fcnet_weights_initializer_config": {"gain": 3.0}, "post_fcnet_bias_initializer": "uniform",
        "post_fcnet_bias_initializer_config": {"a": 5.0, "b": 6.0}, "vf_share_layers": False,
    }  # fmt: skip
    weights = cls(OBS, ACTIONS, 4, config, "net").get_weights()
    for stack in ("hidden", "value_hidden"):
        for layer in (0, 1):
            np.testing.assert_array_equal(weights[f"{stack}.layers.{layer}.weight"], 0.25)
            np.testing.assert_array_equal(weights[f"{stack}.layers.{layer}.bias"], 1)
        post = weights[f"{stack}.layers.2.weight"]
        np.testing.assert_allclose(post @ post.T, 9 * np.eye(6), atol=1e-4)
        assert (weights[f"{stack}.layers.2.bias"] >= 5).all()
        assert (weights[f"{stack}.layers.2.bias"] <= 6).all()
    np.testing.assert_allclose(np.linalg.norm(weights["logits.weight"], axis=1), 0.01, rtol=1e-5)


def test_initialisers_of_the_framework():
    config = {"fcnet_hiddens": [8], "fcnet_weights_initializer": torch.nn.init.ones_}
    np.testing.assert_array_equal(
        TorchNet(OBS, ACTIONS, 4, config, "net").get_weights()["hidden.layers.0.weight"], np.ones((8, 3))
    )
    torch.manual_seed(0)
    config["fcnet_weights_initializer"] = torch_nn.normc_initializer(0.5)
    weights = TorchNet(OBS, ACTIONS, 4, config, "net").get_weights()
    np.testing.assert_allclose(np.linalg.norm(weights["hidden.layers.0.weight"], axis=1), 0.5, rtol=1e-5)
    config["fcnet_weights_initializer"] = tf_nn.normc_initializer(0.5)
    weights = TFNet(OBS, ACTIONS, 4, config, "net").get_weights()
    np.testing.assert_allclose(np.linalg.norm(weights["hidden.layers.0.weight"], axis=1), 0.5, rtol=1e-5)
    config["fcnet_weights_initializer"] = tf.keras.initializers.Constant(0.5)
    weights = TFNet(OBS, ACTIONS, 4, config, "net").get_weights()
    np.testing.assert_array_equal(weights["hidden.layers.0.weight"], np.full((8, 3), 0.5))


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_weights_of_another_network_are_refused_by_name(cls):
    model = build(cls, {**CASES[0], "fcnet_hiddens": [8]})
    before = model.get_weights()
    wrong = {**before, "extra": np.zeros(1), "value.weight": np.zeros((1, 9))}
    del wrong["logits.bias"]
    with pytest.raises(ModelContractError) as caught:
        model.set_weights(wrong)
    said = str(caught.value)
    assert "Missing: ['logits.bias']" in said
    assert "unknown: ['extra']" in said
    assert "value.weight: (1, 9) instead of (1, 8)" in said
    for name, array in model.get_weights().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_weights_are_copies(cls):
    model = build(cls, {**CASES[0], "fcnet_hiddens": [8]})
    before = run(model)
    for array in model.get_weights().values():
        array += 1
    assert_close(run(model), before, 0)


def test_the_state_dict_is_pytorchs_own():
    case = {**CASES[0], "fcnet_hiddens": [8], "free_log_std": True}
    first, second = build(TorchNet, case, 1), build(TorchNet, case, 2)
    assert not np.allclose(run(first)[0], run(second)[0])
    second.load_state_dict(first.state_dict())
    assert_close(run(second), run(first), 0)
    assert list(first.state_dict()) == list(first.get_weights())
    # Weights are read at each pass: a functional call with other ones sees them.
    other = build(TorchNet, case, 3)
    output, _ = torch.func.functional_call(first, dict(other.named_parameters()), ({"obs": torch.from_numpy(X)},))
    np.testing.assert_allclose(output.detach(), run(other)[0], rtol=1e-6)


@pytest.mark.parametrize("share", [True, False])
def test_a_copy_after_a_training_pass(share):
    case = {**CASES[0], "fcnet_hiddens": [8], "fcnet_activation": torch.nn.PReLU, "vf_share_layers": share}
    model = build(TorchNet, case)
    before = run(model)  # outputs and features on a graph are held now
    model.value_function().sum().backward()
    twin = copy.deepcopy(model)
    with pytest.raises(StaleOutputError):
        twin.value_function()
    assert_close(run(twin), before, 0)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1)
    assert_close(run(model), before, 0)
    assert not np.allclose(run(twin)[0], before[0])


def test_a_copy_inside_inference_mode():
    model = build(TorchNet, {**CASES[0], "fcnet_hiddens": [8]})
    with torch.inference_mode():
        model({"obs": torch.from_numpy(X)})
    assert_close(run(copy.deepcopy(model)), run(model), 0)


# --- through the catalog ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_the_catalog_builds_it(framework):
    model = ModelCatalog.get_model_v2(OBS, ACTIONS, 4, {"fcnet_hiddens": [8]}, framework)
    assert type(model) is {"torch": TorchNet, "tf": TFNet}[framework]
    policy = build_policy(OBS, ACTIONS, {"fcnet_hiddens": [8]}, framework)
    step = policy.act(X)
    expected = policy.model.get_weights()
    hidden = np.tanh(np.clip(X, -9, 9) @ expected["hidden.layers.0.weight"].T)
    np.testing.assert_allclose(step.dist_inputs, hidden @ expected["logits.weight"].T, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(step.value, (hidden @ expected["value.weight"].T)[:, 0], rtol=1e-4, atol=1e-6)


BAD = """
import sys
import gymnasium as gym
import rlcatalog
from rlcatalog.errors import CatalogError

box, two, three = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2), gym.spaces.Discrete(3)
for actions, config in [
    (two, {"fcnet_hiddens": "wide"}),
    (two, {"fcnet_hiddens": [8, -1]}),
    (two, {"fcnet_activation": "rlu"}),
    (two, {"fcnet_weights_initializer": "norm_c"}),
    (two, {"fcnet_weights_initializer": "normc", "fcnet_weights_initializer_config": {"sd": 1}}),
    (three, {"free_log_std": True}),
]:
    for framework in ("torch", "tf"):
        try:
            rlcatalog.build(box, actions, config, framework)
        except CatalogError as error:
            print(type(error).__name__, sorted({"torch", "tensorflow"} & set(sys.modules)))
        else:
            print(config, "was accepted")
"""


def test_a_wrong_config_is_refused_before_a_framework_is_imported():
    done = subprocess.run([sys.executable, "-c", BAD], capture_output=True, text=True, check=True)
    kinds = ["ConfigTypeError", "ConfigError", "ConfigError", "ConfigError", "ConfigError", "ConfigError"]
    assert done.stdout.splitlines() == [f"{kind} []" for kind in kinds for _ in range(2)]


def test_the_hand_written_reference_can_fail():
    model = build(TorchNet, CASES[0])
    weights = model.get_weights()
    weights["logits.bias"] = weights["logits.bias"] + 0.01
    with pytest.raises(AssertionError):
        assert_close(run(model), by_hand(CASES[0], weights))
