"""The convolutional network: its options in pairs, against NumPy by hand and between the
frameworks.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

from rlcatalog import Request, SpaceInfo
from rlcatalog.catalog import default_catalog
from rlcatalog_tf import VisionNetwork as TFNet
from rlcatalog_torch import VisionNetwork as TorchNet
from rlcatalog_visionnet.plugin import describe

HEIGHT, WIDTH, CHANNELS = 13, 9, 2

# --- the options, in pairs ------------------------------------------------------------------------

FILTERS = {
    "default": None,
    "to 1x1": [[6, [4, 3], [2, 3]], [5, 3, 2], [7, [4, 2], [4, 2]]],
    "stride over kernel": [[6, [2, 3], [3, 1]], [5, [1, 2], 2]],
    "impala": "impala",
}
#: What the default must be for 13x9, worked out by hand.
DERIVED = {
    None: [[16, [4, 3], [2, 1]], [32, [3, 3], 1], [256, [7, 9], 1]],
    "valid": [[16, [4, 3], [2, 1]], [32, [3, 3], 1], [256, [3, 5], 1]],
    "same": [[16, [4, 3], [2, 1]], [32, [3, 3], 1], [256, [7, 9], [7, 9]]],
}
OPTIONS = {
    "conv_filters": list(FILTERS),
    "conv_activation": ["relu", "tanh", "softmax"],
    "conv_padding": [None, "same", "valid"],
    "conv_flatten": [False, True],
    "image_layout": ["hwc", "chw"],
    "image_scale": [None, False, 0.5],
    "dtype": [np.uint8, np.float32],
    "vf_share_layers": [True, False],
    "free_log_std": [False, True],
    "no_final_linear": [False, True],
    "post_fcnet_hiddens": [[], [8, 6]],
    "num_outputs": [4, None],
}


def allowed(case):
    """Whether a combination is one the network takes; the others are errors, tested elsewhere."""
    filters, padding = case["conv_filters"], case["conv_padding"]
    if filters == "impala":
        return padding is None
    if filters == "stride over kernel":
        dense = (
            case["post_fcnet_hiddens"] or not case["no_final_linear"] or case["num_outputs"] is None
        )
        return case["conv_flatten"] and bool(dense)
    return not (filters == "to 1x1" and padding == "valid")  # its last kernel would not fit


def pairs_of(case):
    values = [(key, repr(value)) for key, value in case.items()]
    return set(itertools.combinations(values, 2))


def combinations():
    """Every combination that is allowed."""
    cases = (
        dict(zip(OPTIONS, values, strict=True)) for values in itertools.product(*OPTIONS.values())
    )
    return [case for case in cases if allowed(case)]


def pairwise():
    """Return few combinations with many pairs of values, found greedily in a sample."""
    sample = random.Random(0).sample(combinations(), 500)
    pairs, chosen, covered = [pairs_of(case) for case in sample], [], set()
    while True:
        best = max(range(len(sample)), key=lambda i: len(pairs[i] - covered))
        if pairs[best] <= covered:
            return chosen
        covered |= pairs[best]
        chosen.append(sample[best])


CASES = pairwise()


def label(case):
    return "-".join(str(getattr(value, "__name__", value)) for value in case.values())


def test_the_cases_cover_all_pairs():
    named = [[(key, repr(value)) for value in values] for key, values in OPTIONS.items()]
    every = {
        pair
        for one, other in itertools.combinations(named, 2)
        for pair in itertools.product(one, other)
    }
    left = every.difference(*map(pairs_of, CASES))
    assert left
    for case in combinations():  # what is left is not allowed
        assert not [pair for pair in left if all(repr(case[key]) == value for key, value in pair)]
    assert len(CASES) < 40


def config_of(case):
    own = {key: value for key, value in case.items() if key not in ("num_outputs", "dtype")}
    return {**own, "conv_filters": FILTERS[case["conv_filters"]]}


def shape_of(case):
    return (CHANNELS, HEIGHT, WIDTH) if case["image_layout"] == "chw" else (HEIGHT, WIDTH, CHANNELS)


def expected_of(case, net, images):
    """Outputs and values of a case in float64; `net` is the network by hand."""
    x = images.astype(np.float64)
    x = x.transpose(0, 2, 3, 1) if case["image_layout"] == "chw" else x
    x = (
        x
        * {None: 1 / 255 if case["dtype"] == np.uint8 else 1, False: 1, 0.5: 0.5}[
            case["image_scale"]
        ]
    )
    filters = FILTERS[case["conv_filters"]]
    filters = DERIVED[case["conv_padding"]] if filters is None else filters
    impala = filters == "impala"
    last = [net.activate] * impala + [net.post] * len(case["post_fcnet_hiddens"])
    resized = case["no_final_linear"] and case["num_outputs"] is not None
    by_conv = resized and not last
    padding, body = case["conv_padding"], filters
    if by_conv:
        # The last convolution is the output; those before it keep their padding.
        body = filters[:-1]
    output_activation = last.pop() if resized and last else None

    def features(prefix):
        if impala:
            maps = net.impala(f"{prefix}convs", x)
        elif by_conv:
            maps = net.listed(f"{prefix}convs", x, body, padding or "same")
        else:
            maps = net.listed(f"{prefix}convs", x, body, padding)
        return maps, net.hidden(f"{prefix}hidden", maps, last)

    maps, policy = features("")
    if case["num_outputs"] is None:
        return policy, None
    if by_conv:
        conv = net.conv("outputs.logits", maps, filters[-1][2], padding or "valid")
        assert conv.shape[1:3] == (1, 1)
        output = net.activate(conv)[:, 0, 0]
    else:
        output = net.dense("outputs.logits", policy)
        output = output if output_activation is None else output_activation(output)
    if case["free_log_std"]:
        log_std = net.weights["outputs.free_log_std.log_std"]
        output = np.concatenate([output, np.tile(log_std, (len(x), 1))], axis=1)
    value = policy if case["vf_share_layers"] else features("value_")[1]
    return output, net.dense("outputs.value", value)[:, 0]


# --- every case -----------------------------------------------------------------------------------


def both(build, case):
    rest = {"num_outputs": case["num_outputs"], "dtype": case["dtype"]}
    shape, config = shape_of(case), config_of(case)
    return build(TorchNet, shape, config, seed=1, **rest), build(
        TFNet, shape, config, seed=2, **rest
    )


@pytest.mark.parametrize("case", CASES, ids=label)
def test_every_option(case, assert_close, build, by_hand, images, run):
    (first, second), x = both(build, case), images(shape_of(case), case["dtype"])
    weights, other = first.get_weights(), second.get_weights()
    # Names and shapes are the same, in the same order.
    assert {n: a.shape for n, a in weights.items()} == {n: a.shape for n, a in other.items()}
    assert (
        list(first.variables(as_dict=True)) == list(second.variables(as_dict=True)) == list(weights)
    )
    # Structure: both against NumPy.
    expected = expected_of(case, by_hand(weights, case["conv_activation"]), x)
    assert first.num_outputs == second.num_outputs == expected[0].shape[1]
    assert_close(run(first, x), expected)
    assert_close(run(second, x), expected_of(case, by_hand(other, case["conv_activation"]), x))
    # Weights copied across give the same outputs, and copied back too.
    before = run(first, x), run(second, x)
    second.set_weights(weights)
    assert_close(run(second, x), before[0])
    first.set_weights(other)
    assert_close(run(first, x), before[1])
    # A row does not depend on its batch.
    for model, whole in ((first, before[1]), (second, before[0])):
        assert_close(run(model, x[1:2]), [part if part is None else part[1:2] for part in whole])


@pytest.mark.parametrize("case", CASES[::3], ids=label)
def test_gradients_reach_every_parameter(case, build, images):
    (first, second), x = both(build, case), images(shape_of(case), case["dtype"])
    second.set_weights(first.get_weights())
    factor = np.random.default_rng(3).normal(size=(len(x), first.num_outputs)).astype(np.float32)
    output, _ = first({"obs": torch.from_numpy(x)})
    loss = (output * torch.from_numpy(factor)).sum()
    if first.outputs is not None:
        loss = loss + first.value_function().square().sum()
    names = first.trainable_variables(as_dict=True)
    found = torch.autograd.grad(loss, list(names.values()))
    with tf.GradientTape() as tape:
        output, _ = second({"obs": tf.constant(x)})
        loss = tf.reduce_sum(output * factor)
        if second.outputs is not None:
            loss += tf.reduce_sum(tf.square(second.value_function()))
    others = tape.gradient(loss, list(second.trainable_variables(as_dict=True).values()))
    for name, one, other in zip(names, found, others, strict=True):
        assert one.abs().sum() > 0, name
        other = other.numpy().transpose({4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}[one.ndim])
        scale = max(1, float(one.abs().max()))
        np.testing.assert_allclose(
            one.numpy() / scale, other / scale, rtol=0, atol=1e-4, err_msg=name
        )


@pytest.mark.parametrize("case", CASES[::4], ids=label)
def test_traced_it_is_the_same(case, assert_close, build, images, run):
    (_, model), x = both(build, case), images(shape_of(case), case["dtype"])

    @tf.function(input_signature=[tf.TensorSpec([None, *x.shape[1:]], x.dtype)], autograph=False)
    def traced(x):
        output, _ = model({"obs": x})
        return output, tf.zeros([0]) if model.outputs is None else model.value_function()

    for rows in (1, 3):
        output, value = traced(tf.constant(x[:rows]))
        found = output.numpy(), None if model.outputs is None else value.numpy()
        assert_close(found, run(model, x[:rows]))


@pytest.mark.parametrize("case", CASES, ids=label)
def test_describe_tells_the_shapes_of_the_built_network(case, build, images):
    shape, shapes = shape_of(case), []
    values = default_catalog().parse_config(config_of(case))
    info = SpaceInfo.read(spaces.Box(0, 255, shape, np.uint8))
    stages = describe(Request(info, None, values, None, shape, case["num_outputs"]))
    model = build(TorchNet, shape, config_of(case), case["num_outputs"], case["dtype"])

    def note(module, inputs, output):
        size = tuple(output.shape[1:])
        shapes.append(
            size if len(size) < 3 or case["image_layout"] == "chw" else (*size[1:], size[0])
        )

    layers = [*model.convs.layers, model.convs, *model.hidden.layers]
    if model.value_convs is not None:
        layers += [*model.value_convs.layers, model.value_convs, *model.value_hidden.layers]
    for layer in layers:
        layer.register_forward_hook(note)
    output, _ = model({"obs": torch.from_numpy(images(shape, case["dtype"]))})
    if case["num_outputs"] is not None:
        shapes += [tuple(model.value_function().shape[1:]), tuple(output.shape[1:])]
    assert [stage.shape for stage in stages] == shapes
