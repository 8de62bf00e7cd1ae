"""The complex-input network's results and gradients, against NumPy and between the frameworks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
import torch
from pairwise import pairwise

OPTIONS = {
    "post_fcnet_hiddens": [[], [6], [7, 5]],
    "vf_share_layers": [True, False],
    "free_log_std": [False, True],
    "no_final_linear": [False, True],
    "num_outputs": [4, None],
}


def is_valid(case):
    return bool(case["post_fcnet_hiddens"]) or not case["no_final_linear"]


def combine_options():
    """Return all valid combinations. `make test` runs as many as have each pair of values."""
    covering_all_pairs = pairwise(OPTIONS, is_valid)
    cases = []
    for values in itertools.product(*OPTIONS.values()):
        case = dict(zip(OPTIONS, values, strict=True))
        if case in covering_all_pairs:
            cases.append(case)
        elif is_valid(case):
            cases.append(pytest.param(case, marks=pytest.mark.attack))
    return cases


def label(case):
    flags = ""
    for key in ("no_final_linear", "vf_share_layers", "free_log_std"):
        if case[key]:
            flags += key[0]
    return f"{case['post_fcnet_hiddens']}-{flags}-{case['num_outputs']}"


@pytest.fixture
def build_case(build_model, rich_case):
    """Build a model of a case, and encode eight observations of ten parts each.

    Returns:
        The model, the observations, and their encoding.
    """

    def build(framework, case, seed=1):
        config = {"fcnet_hiddens": [5], "post_fcnet_activation": "tanh", **case}
        num_outputs = config.pop("num_outputs")
        model, preprocessor = build_model(
            rich_case.space, config, framework, num_outputs, seed=seed
        )
        observations = rich_case.samples(8, seed=3)
        return model, observations, preprocessor.transform_batch(observations)

    return build


# --- NumPy ----------------------------------------------------------------------------------------


def compute_by_hand(network, case, observations):
    """Return outputs and values of a NumPy network."""
    features = network.apply_stack("hidden", network.compute_features(observations))
    if case["num_outputs"] is None:
        return features, None
    output = network.apply_layer("outputs.logits", features)
    if case["no_final_linear"]:
        output = np.tanh(output)
    if case["free_log_std"]:
        log_std = np.tile(network.weights["outputs.free_log_std.log_std"], (len(output), 1))
        output = np.concatenate([output, log_std], axis=1)
    if not case["vf_share_layers"]:
        features = network.compute_features(observations, nets="value_nets")
        features = network.apply_stack("value_hidden", features)
    return output, network.apply_layer("outputs.value", features)[:, 0]


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("case", combine_options(), ids=label)
def test_outputs_and_values_match_numpy(
    framework,
    case,
    build_case,
    run_model,
    rich_case,
    build_numpy_network,
    assert_same_results,
):
    model, observations, encoded = build_case(framework, case)

    results = run_model(model, encoded)

    network = build_numpy_network(rich_case, model.get_weights())
    output, value = compute_by_hand(network, case, observations)
    assert_same_results(results, (output, value))
    assert model.num_outputs == output.shape[1]


def test_comparison_with_numpy_sees_every_changed_weight(
    build_case, run_model, rich_case, build_numpy_network, assert_same_results
):
    case = {"num_outputs": None, "vf_share_layers": True}
    model, observations, encoded = build_case("torch", case, seed=0)
    results = run_model(model, encoded)

    for name, weight in model.get_weights().items():
        weights = model.get_weights()
        weights[name] = weight + 0.05
        network = build_numpy_network(rich_case, weights)
        expected = compute_by_hand(network, case, observations)
        with pytest.raises(AssertionError):
            assert_same_results(results, expected)


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("case", combine_options(), ids=label)
def test_row_alone_matches_its_row_of_a_batch(
    framework, case, build_case, run_model, assert_same_results
):
    model, _, encoded = build_case(framework, case)
    output, value = run_model(model, encoded)

    alone = run_model(model, encoded[3:4])

    expected_value = None if value is None else value[3:4]
    assert_same_results(alone, (output[3:4], expected_value))


# --- PyTorch against TensorFlow -------------------------------------------------------------------


@pytest.mark.parametrize("case", combine_options(), ids=label)
def test_frameworks_have_the_same_weights_in_one_order(case, build_case):
    torch_model, _, _ = build_case("torch", case)
    tf_model, _, _ = build_case("tf", case)

    torch_shapes = {name: array.shape for name, array in torch_model.get_weights().items()}
    tf_shapes = {name: array.shape for name, array in tf_model.get_weights().items()}

    assert torch_shapes == tf_shapes
    assert list(torch_model.variables(as_dict=True)) == list(torch_shapes)
    assert list(tf_model.variables(as_dict=True)) == list(torch_shapes)


@pytest.mark.parametrize("case", combine_options(), ids=label)
def test_frameworks_agree_after_weights_are_copied(
    case, build_case, run_model, assert_same_results
):
    torch_model, _, encoded = build_case("torch", case, seed=1)
    tf_model, _, _ = build_case("tf", case, seed=2)

    tf_model.set_weights(torch_model.get_weights())

    assert_same_results(run_model(tf_model, encoded), run_model(torch_model, encoded))


@pytest.fixture
def compute_gradients(to_tensors):
    """Compute the gradients of a weighted sum of outputs and values, by name."""

    def compute(model, obs):
        random = np.random.default_rng(5)
        output_factors = random.normal(size=(len(obs), model.num_outputs)).astype(np.float32)
        value_factors = np.linspace(-1, 2, len(obs), dtype=np.float32)
        variables = model.trainable_variables(as_dict=True)
        inputs = {"obs": to_tensors(obs, model.framework)}
        if model.framework == "torch":
            output, _ = model(inputs)
            loss = (output * torch.from_numpy(output_factors)).sum()
            loss = loss + (model.value_function() * torch.from_numpy(value_factors)).sum()
            gradients = torch.autograd.grad(loss, list(variables.values()))
        else:
            with tf.GradientTape() as tape:
                output, _ = model(inputs)
                loss = tf.reduce_sum(output * output_factors)
                loss += tf.reduce_sum(model.value_function() * value_factors)
            gradients = tape.gradient(loss, list(variables.values()))
        arrays = {}
        for name, gradient in zip(variables, gradients, strict=True):
            is_tf_matrix = model.framework == "tf" and name.endswith("weight")
            arrays[name] = gradient.numpy().T if is_tf_matrix else gradient.numpy()
        return arrays

    return compute


@pytest.mark.parametrize("share", [True, False], ids=["shared-value", "separate-value"])
def test_frameworks_have_the_same_gradients(share, rich_case, build_model, compute_gradients):
    config = {
        "fcnet_hiddens": [5],
        "post_fcnet_hiddens": [6],
        "post_fcnet_activation": "tanh",
        "free_log_std": True,
        "vf_share_layers": share,
    }
    torch_model, preprocessor = build_model(rich_case.space, config, "torch")
    tf_model, _ = build_model(rich_case.space, config, "tf")
    tf_model.set_weights(torch_model.get_weights())
    encoded = preprocessor.transform_batch(rich_case.samples(16, seed=1))

    torch_gradients = compute_gradients(torch_model, encoded)
    tf_gradients = compute_gradients(tf_model, encoded)

    assert list(torch_gradients) == list(torch_model.get_weights())
    assert list(tf_gradients) == list(torch_gradients)
    for name, gradient in torch_gradients.items():
        assert np.abs(gradient).max() > 0, name
        np.testing.assert_allclose(tf_gradients[name], gradient, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("rows", [8, 1])
def test_traced_network_matches_the_eager_one(
    rows, rich_case, build_model, run_model, assert_same_results
):
    config = {"fcnet_hiddens": [5], "vf_share_layers": False}
    model, preprocessor = build_model(rich_case.space, config, "tf")
    encoded = preprocessor.transform_batch(rich_case.samples(rows, seed=2))

    @tf.function(
        input_signature=[tf.TensorSpec([None, preprocessor.size], tf.float32)], autograph=False
    )
    def run_traced(x):
        return model({"obs": x})[0], model.value_function()

    output, value = run_traced(tf.constant(encoded))

    assert_same_results((output.numpy(), value.numpy()), run_model(model, encoded))


# --- the value ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "nets"),
    [
        pytest.param(True, 10, id="shared-value"),
        pytest.param(False, 20, id="separate-value"),  # ten parts, twice
    ],
)
def test_value_function_runs_no_second_pass(share, nets, rich_case, build_model, run_model):
    config = {"fcnet_hiddens": [5], "vf_share_layers": share}
    model, preprocessor = build_model(rich_case.space, config, "torch")
    calls = []
    for net in [*model.nets, *(model.value_nets or [])]:
        net.register_forward_hook(lambda *_: calls.append(1))

    run_model(model, preprocessor.transform_batch(rich_case.samples(2, seed=2)))
    model.value_function()
    model.value_function()

    assert len(calls) == nets


@pytest.fixture
def build_with_separate_value(build_model, rich_case):
    """Build a model whose value has its own layers; return it and four encoded observations."""

    def build(framework):
        config = {"fcnet_hiddens": [5], "post_fcnet_hiddens": [6], "vf_share_layers": False}
        model, preprocessor = build_model(rich_case.space, config, framework)
        return model, preprocessor.transform_batch(rich_case.samples(4, seed=2))

    return build


def change_weights(model, prefixes):
    """Add 0.1 to the weights whose names have one of these prefixes."""
    weights = model.get_weights()
    for name in weights:
        if name.startswith(prefixes):
            weights[name] = weights[name] + np.float32(0.1)
    model.set_weights(weights)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_layers_of_a_separate_value_change_only_the_value(
    framework, build_with_separate_value, run_model
):
    model, encoded = build_with_separate_value(framework)
    output, value = run_model(model, encoded)

    change_weights(model, ("value_nets", "value_hidden", "outputs.value"))

    new_output, new_value = run_model(model, encoded)
    np.testing.assert_array_equal(new_output, output)
    assert not np.array_equal(new_value, value)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_layers_of_the_policy_do_not_change_a_separate_value(
    framework, build_with_separate_value, run_model
):
    model, encoded = build_with_separate_value(framework)
    output, value = run_model(model, encoded)

    change_weights(model, ("nets", "hidden"))

    new_output, new_value = run_model(model, encoded)
    assert not np.array_equal(new_output, output)
    np.testing.assert_array_equal(new_value, value)
