"""The value of the fully connected network: it belongs to the last pass, and adds no other."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch

from rlcatalog.errors import StaleOutputError
from rlcatalog_tf import FullyConnectedNetwork as TFNet
from rlcatalog_torch import FullyConnectedNetwork as TorchNet

ROWS = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)


class CountedStack:
    """A stack of layers that counts its calls."""

    def __init__(self, stack):
        self.stack = stack
        self.calls = 0
        self.outputs = stack.outputs

    def __call__(self, x):
        self.calls += 1
        return self.stack(x)


@pytest.mark.parametrize(
    ("share", "stacks"),
    [
        pytest.param(True, ["hidden"], id="shared"),
        pytest.param(False, ["hidden", "value_hidden"], id="separate"),
    ],
)
@pytest.mark.parametrize("no_final_linear", [True, False])
def test_tf_value_adds_no_pass(share, stacks, no_final_linear, build_net, run_net):
    model = build_net(
        TFNet, fcnet_hiddens=[8, 6], vf_share_layers=share, no_final_linear=no_final_linear
    )
    for name in stacks:
        setattr(model, name, CountedStack(getattr(model, name)))

    run_net(model)
    model.value_function()
    model.value_function()

    assert [getattr(model, name).calls for name in stacks] == [1] * len(stacks)


@pytest.mark.parametrize(
    ("share", "stacks"),
    [
        pytest.param(True, ["hidden"], id="shared"),
        pytest.param(False, ["hidden", "value_hidden"], id="separate"),
    ],
)
@pytest.mark.parametrize("no_final_linear", [True, False])
def test_torch_value_adds_no_pass(share, stacks, no_final_linear, build_net, run_net):
    model = build_net(
        TorchNet, fcnet_hiddens=[8, 6], vf_share_layers=share, no_final_linear=no_final_linear
    )
    calls = []
    for name in stacks:
        getattr(model, name).register_forward_hook(lambda *_: calls.append(1))

    run_net(model)
    model.value_function()
    model.value_function()

    assert len(calls) == len(stacks)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_value_belongs_to_the_last_pass(cls, build_net, run_net):
    model = build_net(cls, fcnet_hiddens=[8])
    _, first = run_net(model, ROWS[:1])
    _, second = run_net(model, ROWS[1:2])

    run_net(model, ROWS[:1])
    _, second_again = run_net(model, ROWS[1:2])

    assert not np.allclose(first, second)
    np.testing.assert_allclose(second_again, second, rtol=1e-6)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_last_output_has_the_shape_of_the_last_pass(cls, build_net, run_net):
    model = build_net(cls, num_outputs=4)

    run_net(model, ROWS)
    run_net(model, ROWS[:1])

    assert tuple(model.last_output().shape) == (1, 4)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_value_before_the_first_pass_is_an_error(cls, build_net):
    model = build_net(cls)

    with pytest.raises(StaleOutputError, match="call the model first"):
        model.value_function()
    with pytest.raises(StaleOutputError, match=r"call the model before last_output\(\)"):
        model.last_output()


def test_stale_output_error_is_a_runtime_error():
    assert issubclass(StaleOutputError, RuntimeError)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_trunk_has_no_value(cls, build_net, run_net):
    trunk = build_net(cls, num_outputs=None, vf_share_layers=False)

    run_net(trunk)

    assert trunk.outputs is None
    assert trunk.value_hidden is None
    with pytest.raises(StaleOutputError, match="it was built as a trunk"):
        trunk.value_function()


@pytest.fixture
def traced_net(build_net):
    """A network whose last pass ran inside a `tf.function`."""
    model = build_net(TFNet, fcnet_hiddens=[8])

    @tf.function
    def run_traced(x):
        return model({"obs": x})[0]

    run_traced(tf.constant(ROWS))
    return model


@pytest.mark.parametrize("method", ["value_function", "last_output"])
def test_result_of_a_traced_pass_is_an_error_outside(traced_net, method):
    with pytest.raises(StaleOutputError, match=r"which ran inside a tf\.fu") as caught:
        getattr(traced_net, method)()

    assert "() belongs to the last forward pass, " in str(caught.value)


def test_value_of_a_traced_pass_is_an_error_in_another_trace(traced_net):
    @tf.function
    def compute_value():
        return traced_net.value_function()

    with pytest.raises(StaleOutputError, match=r"which ran inside a tf\.fu") as caught:
        compute_value()

    assert "() belongs to the last forward pass, " in str(caught.value)


def test_eager_pass_after_a_traced_one_has_a_value(traced_net, run_net):
    run_net(traced_net)

    assert traced_net.value_function().shape == (16,)  # 16 observations


def test_value_inside_a_branch_of_its_own_trace(build_net, run_net):
    tf_net = build_net(TFNet, seed=0, fcnet_hiddens=[8])
    torch_net = build_net(TorchNet, seed=0, fcnet_hiddens=[8])

    @tf.function(autograph=False)
    def compute_value(x, is_wanted):
        tf_net({"obs": x})
        return tf.cond(is_wanted, tf_net.value_function, lambda: tf.zeros([16]))

    value = compute_value(tf.constant(ROWS), tf.constant(True))

    _, expected = run_net(torch_net)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)


# --- separate layers ------------------------------------------------------------------------------

LAYERS_OF_THE_POLICY = {
    "hidden.layers.0.weight",
    "hidden.layers.0.bias",
    "outputs.logits.weight",
    "outputs.logits.bias",
}
LAYERS_OF_THE_VALUE = {
    "value_hidden.layers.0.weight",
    "value_hidden.layers.0.bias",
    "outputs.value.weight",
    "outputs.value.bias",
}


def find_gradients(model):
    """Return the names of the parameters that have a gradient."""
    return {name for name, weight in model.named_parameters() if weight.grad is not None}


def test_gradients_of_a_separate_value_reach_its_layers_only(build_net):
    model = build_net(TorchNet, fcnet_hiddens=[8], vf_share_layers=False)
    model({"obs": torch.from_numpy(ROWS)})

    model.value_function().sum().backward()

    assert find_gradients(model) == LAYERS_OF_THE_VALUE


def test_gradients_of_outputs_miss_a_separate_value(build_net):
    model = build_net(TorchNet, fcnet_hiddens=[8], vf_share_layers=False)
    output, _ = model({"obs": torch.from_numpy(ROWS)})

    output.sum().backward()

    assert find_gradients(model) == LAYERS_OF_THE_POLICY
