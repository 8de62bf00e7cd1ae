"""The value of the fully connected network: of the last pass, without a pass of its own."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch

from rlcatalog.errors import StaleOutputError
from rlcatalog_tf import FullyConnectedNetwork as TFNet
from rlcatalog_torch import FullyConnectedNetwork as TorchNet

X = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)


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
def test_the_value_adds_no_forward_pass(share, no_final_linear, build, plain, run):
    case = {
        **plain,
        "fcnet_hiddens": [8, 6],
        "vf_share_layers": share,
        "no_final_linear": no_final_linear,
    }
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


def test_the_value_belongs_to_the_last_pass(build, plain, run):
    for cls in (TorchNet, TFNet):
        model = build(cls, {**plain, "fcnet_hiddens": [8]})
        values = [run(model, X[i : i + 1])[1] for i in range(2)]
        assert not np.allclose(*values)
        run(model, X[:1])
        np.testing.assert_allclose(run(model, X[1:2])[1], values[1], rtol=1e-6)
        np.testing.assert_array_equal(np.asarray(model.last_output().shape), [1, 4])


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_a_value_before_the_first_pass_is_refused(cls, build, plain):
    model = build(cls, plain)
    with pytest.raises(StaleOutputError, match="call the model first"):
        model.value_function()
    with pytest.raises(StaleOutputError, match=r"call the model before last_output\(\)"):
        model.last_output()
    assert issubclass(StaleOutputError, RuntimeError)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_a_trunk_has_no_value(cls, build, plain, run):
    model = build(cls, {**plain, "num_outputs": None, "vf_share_layers": False})
    run(model)
    assert model.outputs is None
    assert model.value_hidden is None
    with pytest.raises(StaleOutputError, match="it was built as a trunk"):
        model.value_function()


def test_a_value_outside_its_trace_is_refused(build, plain, run):
    model = build(TFNet, {**plain, "fcnet_hiddens": [8]})

    @tf.function
    def forward(x):
        return model({"obs": x})[0]

    @tf.function
    def elsewhere():
        return model.value_function()

    forward(tf.constant(X))
    for ask in (model.value_function, model.last_output, elsewhere):
        with pytest.raises(
            StaleOutputError,
            match=r"\(\) belongs to the last forward pass, which ran inside a tf\.fu",
        ):
            ask()
    run(model)  # an eager pass, and all is well again
    assert model.value_function().shape == (16,)


def test_a_value_in_a_branch_of_its_own_trace_is_served(build, plain, run):
    model = build(TFNet, {**plain, "fcnet_hiddens": [8]})

    @tf.function(autograph=False)
    def forward(x, wanted):
        model({"obs": x})
        return tf.cond(wanted, model.value_function, lambda: tf.zeros([16]))

    expected = run(build(TorchNet, {**plain, "fcnet_hiddens": [8]}))[1]
    np.testing.assert_allclose(
        forward(tf.constant(X), tf.constant(True)), expected, rtol=1e-5, atol=1e-5
    )


def test_unshared_layers_are_not_shared(build, plain):
    case = {**plain, "fcnet_hiddens": [8], "fcnet_activation": "tanh", "vf_share_layers": False}
    model = build(TorchNet, case)
    output, _ = model({"obs": torch.from_numpy(X)})
    model.value_function().sum().backward(retain_graph=True)
    touched = {name for name, p in model.named_parameters() if p.grad is not None}
    assert touched == {
        n for n, _ in model.named_parameters() if n.startswith(("value_hidden", "outputs.value"))
    }
    model.zero_grad(set_to_none=True)
    output.sum().backward()
    touched = {name for name, p in model.named_parameters() if p.grad is not None}
    assert touched == {
        n
        for n, _ in model.named_parameters()
        if not n.startswith(("value_hidden", "outputs.value"))
    }
