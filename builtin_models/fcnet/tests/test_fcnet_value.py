"""The value of the fully connected network: it belongs to the last pass, and adds no other."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from builders import to_array
from model_runs import add_to_weights, assert_close, run_model, set_random_weights

from rlcatalog.errors import StaleOutputError

OBSERVATIONS = np.float32([[0.1, 0.2, 0.3], [0.4, -0.5, 0.6]])


@pytest.mark.parametrize("no_final_linear", [False, True])
@pytest.mark.parametrize("share", [True, False], ids=["shared-value", "separate-value"])
def test_value_function_runs_no_second_pass(framework, share, no_final_linear, build_net):
    model = build_net(
        framework, fcnet_hiddens=[8, 6], vf_share_layers=share, no_final_linear=no_final_linear
    )
    set_random_weights(model)
    values = run_model(model, OBSERVATIONS).values

    # A second pass through the hidden layers would give other values.
    add_to_weights(model, 1, prefixes=["hidden", "value_hidden"])

    assert_close(to_array(model.value_function()), values)
    assert not np.allclose(run_model(model, OBSERVATIONS).values, values)


def test_value_belongs_to_the_last_pass(framework, build_net):
    model = set_random_weights(build_net(framework, fcnet_hiddens=[8]))
    values = run_model(model, OBSERVATIONS).values
    assert not np.isclose(values[0], values[1])

    first = run_model(model, OBSERVATIONS[:1])
    second = run_model(model, OBSERVATIONS[1:])

    assert_close(first.values, values[:1])
    assert_close(second.values, values[1:])


def test_last_output_has_the_shape_of_the_last_pass(framework, build_net):
    model = build_net(framework, num_outputs=4)

    run_model(model, OBSERVATIONS)
    run_model(model, OBSERVATIONS[:1])

    assert tuple(model.last_output().shape) == (1, 4)


def test_value_before_the_first_pass_is_an_error(framework, build_net):
    model = build_net(framework)

    with pytest.raises(StaleOutputError, match="call the model first"):
        model.value_function()


def test_stale_output_error_is_a_runtime_error():
    assert issubclass(StaleOutputError, RuntimeError)


def test_trunk_has_no_value(framework, build_net):
    trunk = build_net(framework, num_outputs=None, vf_share_layers=False)
    run_model(trunk, OBSERVATIONS)

    with pytest.raises(StaleOutputError, match="it was built as a trunk"):
        trunk.value_function()

    assert trunk.outputs is None
    assert trunk.value_hidden is None


@pytest.mark.parametrize("method", ["value_function", "last_output"])
def test_result_of_a_traced_pass_is_an_error_outside(method, build_net):
    model = build_net("tf", fcnet_hiddens=[8])
    run_traced = tf.function(lambda obs: model({"obs": obs})[0])
    run_traced(OBSERVATIONS)

    with pytest.raises(StaleOutputError, match=r"which ran inside a tf\.function"):
        getattr(model, method)()


def test_eager_pass_after_a_traced_one_has_a_value(build_net):
    model = build_net("tf", fcnet_hiddens=[8])
    run_traced = tf.function(lambda obs: model({"obs": obs})[0])
    run_traced(OBSERVATIONS)

    model({"obs": tf.constant(OBSERVATIONS)})

    assert model.value_function().shape == (2,)  # 2 observations


def test_value_may_be_computed_in_a_branch_of_its_trace(build_net):
    model = set_random_weights(build_net("tf", fcnet_hiddens=[8]))

    @tf.function(autograph=False)
    def compute_values(obs, is_wanted):
        model({"obs": obs})
        return tf.cond(is_wanted, model.value_function, lambda: tf.zeros([2]))

    values = compute_values(tf.constant(OBSERVATIONS), tf.constant(True))

    assert_close(values, run_model(model, OBSERVATIONS).values)


# --- separate layers ------------------------------------------------------------------------------


def list_weights_with_gradients(model):
    return [name for name, weight in model.named_parameters() if weight.grad is not None]


def test_gradients_of_a_separate_value_reach_its_layers_only(build_net):
    model = build_net("torch", fcnet_hiddens=[8], vf_share_layers=False)
    model({"obs": torch.from_numpy(OBSERVATIONS)})

    model.value_function().sum().backward()

    assert list_weights_with_gradients(model) == [
        "value_hidden.layers.0.weight",
        "value_hidden.layers.0.bias",
        "outputs.value.weight",
        "outputs.value.bias",
    ]


def test_gradients_of_outputs_do_not_reach_a_separate_value(build_net):
    model = build_net("torch", fcnet_hiddens=[8], vf_share_layers=False)
    outputs, _ = model({"obs": torch.from_numpy(OBSERVATIONS)})

    outputs.sum().backward()

    assert list_weights_with_gradients(model) == [
        "hidden.layers.0.weight",
        "hidden.layers.0.bias",
        "outputs.logits.weight",
        "outputs.logits.bias",
    ]
