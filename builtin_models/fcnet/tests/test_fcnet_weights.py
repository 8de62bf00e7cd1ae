"""Weights of the fully connected network: reading, setting and copying them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from model_runs import add_to_weights, assert_close, run_model

from rlcatalog.errors import ModelContractError, StaleOutputError

OBSERVATIONS = np.float32([[0.1, 0.2, 0.3], [0.4, -0.5, 0.6]])


@pytest.fixture
def model_and_wrong_weights(framework, build_net):
    """A network, and its weights plus 1, of which one is missing, one unknown, one misshapen."""
    model = build_net(framework, fcnet_hiddens=[8])
    weights = {name: array + 1 for name, array in model.get_weights().items()}
    del weights["outputs.logits.bias"]
    weights["extra"] = np.zeros(1)
    weights["outputs.value.weight"] = np.zeros((1, 9))  # instead of (1, 8)
    return model, weights


def test_set_weights_names_missing_unknown_and_misshapen_ones(model_and_wrong_weights):
    model, weights = model_and_wrong_weights

    with pytest.raises(ModelContractError) as caught:
        model.set_weights(weights)

    message = str(caught.value)
    assert "Missing: ['outputs.logits.bias']" in message
    assert "unknown: ['extra']" in message
    assert "outputs.value.weight: (1, 9) instead of (1, 8)" in message


def test_set_weights_changes_nothing_after_an_error(model_and_wrong_weights):
    model, weights = model_and_wrong_weights
    before = model.get_weights()

    with pytest.raises(ModelContractError):
        model.set_weights(weights)

    for name, array in model.get_weights().items():
        np.testing.assert_array_equal(array, before[name])


def test_get_weights_returns_copies(framework, build_net):
    model = build_net(framework, fcnet_hiddens=[8])
    bias = model.get_weights()["outputs.logits.bias"]

    bias += 1

    np.testing.assert_array_equal(model.get_weights()["outputs.logits.bias"], [0, 0, 0, 0])


def test_state_dict_transfers_all_weights(build_net):
    source = build_net("torch", fcnet_hiddens=[8], free_log_std=True)
    target = build_net("torch", fcnet_hiddens=[8], free_log_std=True)

    target.load_state_dict(source.state_dict())

    expected = source.get_weights()
    assert list(source.state_dict()) == list(expected)
    for name, array in target.get_weights().items():
        np.testing.assert_array_equal(array, expected[name])


def test_functional_call_uses_other_weights(build_net):
    model = build_net("torch", fcnet_hiddens=[8])
    other = build_net("torch", fcnet_hiddens=[8])

    inputs = {"obs": torch.from_numpy(OBSERVATIONS)}
    outputs, _ = torch.func.functional_call(model, dict(other.named_parameters()), (inputs,))

    assert_close(outputs.detach(), run_model(other, OBSERVATIONS).outputs)


@pytest.fixture(params=[True, False], ids=["shared-value", "separate-value"])
def trained_net(request, build_net):
    """A network after a backward pass: it keeps outputs and features that have a graph."""
    model = build_net(
        "torch",
        fcnet_hiddens=[8],
        fcnet_activation=torch.nn.PReLU,
        vf_share_layers=request.param,
    )
    model({"obs": torch.from_numpy(OBSERVATIONS)})
    model.value_function().sum().backward()
    return model


def test_deepcopy_of_a_trained_net_gives_the_same_results(trained_net):
    copied = copy.deepcopy(trained_net)

    copied_results = run_model(copied, OBSERVATIONS)
    results = run_model(trained_net, OBSERVATIONS)
    np.testing.assert_array_equal(copied_results.outputs, results.outputs)
    np.testing.assert_array_equal(copied_results.values, results.values)


def test_deepcopy_of_a_trained_net_has_no_value_before_a_pass(trained_net):
    copied = copy.deepcopy(trained_net)

    with pytest.raises(StaleOutputError):
        copied.value_function()


def test_deepcopy_of_a_trained_net_has_its_own_weights(trained_net):
    before = trained_net.get_weights()
    copied = copy.deepcopy(trained_net)

    add_to_weights(copied, 1)

    for name, array in trained_net.get_weights().items():
        np.testing.assert_array_equal(array, before[name])
    outputs = run_model(trained_net, OBSERVATIONS).outputs
    assert not np.allclose(run_model(copied, OBSERVATIONS).outputs, outputs)


def test_deepcopy_after_a_pass_in_inference_mode(build_net):
    model = build_net("torch", fcnet_hiddens=[8])
    with torch.inference_mode():
        model({"obs": torch.from_numpy(OBSERVATIONS)})

    copied = copy.deepcopy(model)

    expected = run_model(model, OBSERVATIONS)
    np.testing.assert_array_equal(run_model(copied, OBSERVATIONS).outputs, expected.outputs)
