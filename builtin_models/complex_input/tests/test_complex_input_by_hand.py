"""The complex-input network against NumPy by hand, from raw observations, and between the
frameworks.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
import torch
from pairwise import pairwise

FRAMEWORKS = ["torch", "tf"]
OPTIONS = {
    "post_fcnet_hiddens": [[], [6], [7, 5]],
    "vf_share_layers": [True, False],
    "free_log_std": [False, True],
    "no_final_linear": [False, True],
    "num_outputs": [4, None],
}


def allowed(case):
    return bool(case["post_fcnet_hiddens"]) or not case["no_final_linear"]


CASES = [
    case
    for case in (
        dict(zip(OPTIONS, values, strict=True)) for values in itertools.product(*OPTIONS.values())
    )
    if allowed(case)
]
#: Any two values of two keys meet in one of these.
FEW = pairwise(OPTIONS, allowed)


def label(case):
    flags = "".join(
        key[0] for key in ("no_final_linear", "vf_share_layers", "free_log_std") if case[key]
    )
    return f"{case['post_fcnet_hiddens']}-{flags}-{case['num_outputs']}"


def config_of(case, **more):
    config = {key: value for key, value in case.items() if key != "num_outputs"}
    return {"fcnet_hiddens": [5], "post_fcnet_activation": "tanh", **config, **more}


def expected(hand, case, observations):
    """Outputs and values by hand."""
    x = np.stack([hand.features(obs) for obs in observations])
    x = hand.stack("hidden", x, np.tanh)
    if case["num_outputs"] is None:
        return x, None
    output = hand.linear("outputs.logits", x)
    if case["no_final_linear"]:
        output = np.tanh(output)
    if case["free_log_std"]:
        output = np.concatenate(
            [output, np.tile(hand.weights["outputs.free_log_std.log_std"], (len(x), 1))], axis=1
        )
    if not case["vf_share_layers"]:
        x = np.stack([hand.features(obs, "value_nets") for obs in observations])
        x = hand.stack("value_hidden", x, np.tanh)
    return output, hand.linear("outputs.value", x)[:, 0]


@pytest.mark.parametrize(
    "case",
    [case if case in FEW else pytest.param(case, marks=pytest.mark.attack) for case in CASES],
    ids=label,
)
def test_every_combination_of_keys(case, rich, build, run, by_hand, paths_of, assert_close):
    config = config_of(case)
    first, preprocessor = build(rich.space, config, "torch", case["num_outputs"], 1)
    second, _ = build(rich.space, config, "tf", case["num_outputs"], 2)
    observations = rich.case.samples(8, seed=3)
    encoded = preprocessor.transform_batch(observations)
    paths = paths_of(rich.space, rich.options)
    for model in (first, second):
        hand = by_hand(rich.space, rich.options, model.get_weights(), paths)
        truth = expected(hand, case, observations)
        assert_close(run(model, encoded), truth)
        assert model.num_outputs == truth[0].shape[1]
    # Names, shapes and their order are the same; weights copied across give the same outputs.
    weights = first.get_weights()
    assert {n: a.shape for n, a in weights.items()} == {
        n: a.shape for n, a in second.get_weights().items()
    }
    assert (
        list(first.variables(as_dict=True)) == list(second.variables(as_dict=True)) == list(weights)
    )
    second.set_weights(weights)
    assert_close(run(second, encoded), run(first, encoded))
    # A batch of one is the row of the batch.
    for model in (first, second):
        whole = run(model, encoded)
        assert_close(
            run(model, encoded[3:4]), [None if part is None else part[3:4] for part in whole]
        )


def test_the_reference_can_fail(rich, build, run, by_hand, paths_of, assert_close):
    case = {"num_outputs": None, "vf_share_layers": True}
    model, preprocessor = build(rich.space, {"fcnet_hiddens": [5]}, "torch", None)
    observations = rich.case.samples(8, seed=3)
    paths = paths_of(rich.space, rich.options)
    found = run(model, preprocessor.transform_batch(observations))
    for name, weight in model.get_weights().items():
        weights = model.get_weights()
        weights[name] = weight + 0.05
        hand = by_hand(rich.space, rich.options, weights, paths)
        with pytest.raises(AssertionError):
            assert_close(found, expected(hand, case, observations))


def gradients(model, obs, convert):
    """Gradients of a mix of all outputs and values, by name, in the canonical layout."""
    mix = np.random.default_rng(5).normal(size=(len(obs), model.num_outputs)).astype(np.float32)
    values = np.linspace(-1, 2, len(obs), dtype=np.float32)
    variables = model.trainable_variables(as_dict=True)
    x = convert(obs, model.framework)
    if model.framework == "torch":
        loss = (model({"obs": x})[0] * torch.from_numpy(mix)).sum()
        loss = loss + (model.value_function() * torch.from_numpy(values)).sum()
        found = torch.autograd.grad(loss, list(variables.values()))
        return {name: grad.numpy() for name, grad in zip(variables, found, strict=True)}
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model({"obs": x})[0] * mix) + tf.reduce_sum(
            model.value_function() * values
        )
    found = tape.gradient(loss, list(variables.values()))
    assert None not in found
    return {
        name: grad.numpy().T if name.endswith("weight") else grad.numpy()
        for name, grad in zip(variables, found, strict=True)
    }


@pytest.mark.parametrize("share", [True, False])
def test_gradients_reach_every_parameter_and_are_the_same_in_both(share, rich, build, convert):
    config = {
        "fcnet_hiddens": [5],
        "post_fcnet_hiddens": [6],
        "post_fcnet_activation": "tanh",
        "free_log_std": True,
    }
    config["vf_share_layers"] = share
    first, preprocessor = build(rich.space, config, "torch")
    second, _ = build(rich.space, config, "tf")
    second.set_weights(first.get_weights())
    encoded = preprocessor.transform_batch(rich.case.samples(16, seed=1))
    one, other = gradients(first, encoded, convert), gradients(second, encoded, convert)
    assert list(one) == list(other) == list(first.get_weights())
    for name, grad in one.items():
        assert np.abs(grad).max() > 0, name
        np.testing.assert_allclose(other[name], grad, rtol=1e-4, atol=1e-4, err_msg=name)


def test_traced_it_is_the_same(rich, build, run, assert_close):
    config = {"fcnet_hiddens": [5], "vf_share_layers": False}
    model, preprocessor = build(rich.space, config, "tf")
    encoded = preprocessor.transform_batch(rich.case.samples(8, seed=2))

    @tf.function(
        input_signature=[tf.TensorSpec([None, preprocessor.size], tf.float32)], autograph=False
    )
    def traced(x):
        return model({"obs": x})[0], model.value_function()

    for obs in (encoded, encoded[:1]):
        assert_close([part.numpy() for part in traced(tf.constant(obs))], run(model, obs))


@pytest.mark.parametrize("share", [True, False])
def test_the_value_adds_no_forward_pass(share, rich, build, run):
    first, preprocessor = build(
        rich.space, {"fcnet_hiddens": [5], "vf_share_layers": share}, "torch"
    )
    encoded = preprocessor.transform_batch(rich.case.samples(2, seed=2))
    calls = []
    nets = [*first.nets, *(first.value_nets or [])]
    for net in nets:
        net.register_forward_hook(lambda *_: calls.append(1))
    run(first, encoded)
    for _ in range(3):
        first.value_function()
    assert len(calls) == len(nets) == (10 if share else 20)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_value_of_its_own_shares_nothing(framework, rich, build, run, convert):
    config = {"fcnet_hiddens": [5], "post_fcnet_hiddens": [6], "vf_share_layers": False}
    model, preprocessor = build(rich.space, config, framework)
    encoded = preprocessor.transform_batch(rich.case.samples(4, seed=2))
    output, value = run(model, encoded)
    for changed, start in (
        ("value", ("value_nets", "value_hidden", "outputs.value")),
        ("output", ("nets", "hidden")),
    ):
        weights = model.get_weights()
        model.set_weights(
            {name: array + 0.1 * name.startswith(start) for name, array in weights.items()}
        )
        output_now, value_now = run(model, encoded)
        assert np.array_equal(output_now, output) == (changed == "value")
        assert np.array_equal(value_now, value) == (changed == "output")
        model.set_weights(weights)
