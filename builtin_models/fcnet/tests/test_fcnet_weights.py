"""Weights of the fully connected network: read, set and copied."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from rlcatalog.errors import ModelContractError, StaleOutputError
from rlcatalog_tf import FullyConnectedNetwork as TFNet
from rlcatalog_torch import FullyConnectedNetwork as TorchNet

X = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_weights_of_another_network_are_refused_by_name(cls, build, plain):
    model = build(cls, {**plain, "fcnet_hiddens": [8]})
    before = model.get_weights()
    wrong = {**before, "extra": np.zeros(1), "outputs.value.weight": np.zeros((1, 9))}
    del wrong["outputs.logits.bias"]
    with pytest.raises(ModelContractError) as caught:
        model.set_weights(wrong)
    said = str(caught.value)
    assert "Missing: ['outputs.logits.bias']" in said
    assert "unknown: ['extra']" in said
    assert "outputs.value.weight: (1, 9) instead of (1, 8)" in said
    for name, array in model.get_weights().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_weights_are_copies(cls, assert_close, build, plain, run):
    model = build(cls, {**plain, "fcnet_hiddens": [8]})
    before = run(model)
    for array in model.get_weights().values():
        array += 1
    assert_close(run(model), before, 0)


def test_the_state_dict_is_pytorchs_own(assert_close, build, plain, run):
    case = {**plain, "fcnet_hiddens": [8], "free_log_std": True}
    first, second = build(TorchNet, case, 1), build(TorchNet, case, 2)
    assert not np.allclose(run(first)[0], run(second)[0])
    second.load_state_dict(first.state_dict())
    assert_close(run(second), run(first), 0)
    assert list(first.state_dict()) == list(first.get_weights())
    # Weights are read at each pass: a functional call with other ones sees them.
    other = build(TorchNet, case, 3)
    output, _ = torch.func.functional_call(
        first, dict(other.named_parameters()), ({"obs": torch.from_numpy(X)},)
    )
    np.testing.assert_allclose(output.detach(), run(other)[0], rtol=1e-6)


@pytest.mark.parametrize("share", [True, False])
def test_a_copy_after_a_training_pass(share, assert_close, build, plain, run):
    case = {
        **plain,
        "fcnet_hiddens": [8],
        "fcnet_activation": torch.nn.PReLU,
        "vf_share_layers": share,
    }
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


def test_a_copy_inside_inference_mode(assert_close, build, plain, run):
    model = build(TorchNet, {**plain, "fcnet_hiddens": [8]})
    with torch.inference_mode():
        model({"obs": torch.from_numpy(X)})
    assert_close(run(copy.deepcopy(model)), run(model), 0)
