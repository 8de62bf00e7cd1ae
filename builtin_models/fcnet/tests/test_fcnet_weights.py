"""Weights of the fully connected network: reading, setting and copying them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from rlcatalog.errors import ModelContractError, StaleOutputError
from rlcatalog_tf import FullyConnectedNetwork as TFNet
from rlcatalog_torch import FullyConnectedNetwork as TorchNet

ROWS = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_set_weights_names_missing_unknown_and_misshapen_ones(cls, build_net):
    model = build_net(cls, fcnet_hiddens=[8])
    weights = model.get_weights()
    del weights["outputs.logits.bias"]
    weights["extra"] = np.zeros(1)
    weights["outputs.value.weight"] = np.zeros((1, 9))

    with pytest.raises(ModelContractError) as caught:
        model.set_weights(weights)

    message = str(caught.value)
    assert "Missing: ['outputs.logits.bias']" in message
    assert "unknown: ['extra']" in message
    assert "outputs.value.weight: (1, 9) instead of (1, 8)" in message


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_set_weights_changes_nothing_after_an_error(cls, build_net):
    model = build_net(cls, fcnet_hiddens=[8])
    before = model.get_weights()
    weights = {name: array + 1 for name, array in before.items()}
    del weights["outputs.logits.bias"]
    weights["extra"] = np.zeros(1)
    weights["outputs.value.weight"] = np.zeros((1, 9))  # instead of (1, 8)

    with pytest.raises(ModelContractError):
        model.set_weights(weights)

    for name, array in model.get_weights().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_get_weights_returns_copies(cls, assert_same_results, build_net, run_net):
    model = build_net(cls, fcnet_hiddens=[8])
    before = run_net(model)

    for array in model.get_weights().values():
        array += 1

    assert_same_results(run_net(model), before, tolerance=0)


def test_state_dict_transfers_all_weights(assert_same_results, build_net, run_net):
    source = build_net(TorchNet, seed=1, fcnet_hiddens=[8], free_log_std=True)
    target = build_net(TorchNet, seed=2, fcnet_hiddens=[8], free_log_std=True)
    assert not np.allclose(run_net(source)[0], run_net(target)[0])

    target.load_state_dict(source.state_dict())

    assert_same_results(run_net(target), run_net(source), tolerance=0)


def test_state_dict_has_the_names_of_get_weights(build_net):
    model = build_net(TorchNet, fcnet_hiddens=[8], free_log_std=True)

    assert list(model.state_dict()) == list(model.get_weights())


def test_functional_call_uses_other_weights(build_net, run_net):
    model = build_net(TorchNet, seed=1, fcnet_hiddens=[8], free_log_std=True)
    other = build_net(TorchNet, seed=3, fcnet_hiddens=[8], free_log_std=True)

    inputs = {"obs": torch.from_numpy(ROWS)}
    output, _ = torch.func.functional_call(model, dict(other.named_parameters()), (inputs,))

    expected, _ = run_net(other)
    np.testing.assert_allclose(output.detach(), expected, rtol=1e-6)


@pytest.fixture(params=[True, False], ids=["shared-value", "separate-value"])
def trained_net(request, build_net, run_net):
    """A network after a backward pass: it keeps outputs and features that have a graph."""
    model = build_net(
        TorchNet,
        fcnet_hiddens=[8],
        fcnet_activation=torch.nn.PReLU,
        vf_share_layers=request.param,
    )
    run_net(model)
    model.value_function().sum().backward()
    return model


def test_deepcopy_of_a_trained_net_gives_the_same_results(
    trained_net, assert_same_results, run_net
):
    copied = copy.deepcopy(trained_net)

    assert_same_results(run_net(copied), run_net(trained_net), tolerance=0)


def test_deepcopy_of_a_trained_net_has_no_value_before_a_pass(trained_net):
    copied = copy.deepcopy(trained_net)

    with pytest.raises(StaleOutputError):
        copied.value_function()


def test_deepcopy_of_a_trained_net_has_its_own_weights(trained_net, assert_same_results, run_net):
    before = run_net(trained_net)
    copied = copy.deepcopy(trained_net)

    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.add_(1)

    assert_same_results(run_net(trained_net), before, tolerance=0)
    assert not np.allclose(run_net(copied)[0], before[0])


def test_deepcopy_after_a_pass_in_inference_mode(assert_same_results, build_net, run_net):
    model = build_net(TorchNet, fcnet_hiddens=[8])
    with torch.inference_mode():
        model({"obs": torch.from_numpy(ROWS)})

    copied = copy.deepcopy(model)

    assert_same_results(run_net(copied), run_net(model), tolerance=0)
