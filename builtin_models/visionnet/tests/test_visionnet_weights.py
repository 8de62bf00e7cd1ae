"""Weights of the convolutional network: how they start, how they lie in memory, how they are
copied.
"""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Discrete
from scipy import stats

from rlcatalog.errors import StaleOutputError
from rlcatalog_tf import VisionNetwork as TFNet
from rlcatalog_torch import VisionNetwork as TorchNet

SHAPE = (13, 9, 2)
CONFIG = {"conv_filters": [[6, 4, 2], [16, 3, 1], [8, [7, 5], 1]], "vf_share_layers": False}
BOTH = pytest.mark.parametrize("cls", [TorchNet, TFNet])


def seed(number):
    torch.manual_seed(number)
    tf.random.set_seed(number)


# --- how they start -------------------------------------------------------------------------------


def uniform(shape):
    """The Glorot uniform distribution of a kernel `[out, in, kh, kw]`, or of a dense weight
    `[out, in]`.
    """
    field = int(np.prod(shape[2:]))
    bound = np.sqrt(6 / (field * (shape[0] + shape[1])))
    return stats.uniform(-bound, 2 * bound)


@pytest.mark.grid
@BOTH
@pytest.mark.parametrize(
    "filters", ["nature", "impala", None, [[32, [4, 9], [3, 2]], [64, 3, 2], [128, [5, 5], 1]]]
)
def test_a_fresh_network_starts_like_its_twin(cls, filters, space):
    seed(0)
    model = cls(space((48, 40, 4)), None, 4, {"conv_filters": filters, "conv_flatten": True}, "net")
    checked = 0
    for name, array in model.get_weights().items():
        if name.endswith("bias"):
            np.testing.assert_array_equal(array, 0, err_msg=name)
        elif name.startswith("outputs"):
            np.testing.assert_allclose(np.linalg.norm(array, axis=1), 0.01, rtol=1e-5)
        else:  # kernels, and the dense layer of a preset
            truth, values = uniform(array.shape), array.ravel()[:20_000].astype(np.float64)
            assert stats.kstest(values, truth.cdf).pvalue > 1e-4, name
            assert np.abs(array).max() <= truth.support()[1] + 1e-6
            if len(values) > 4000:  # the control: a scale that is 10 % off would show
                assert stats.kstest(values * 1.1, truth.cdf).pvalue < 1e-4, name
            checked += 1
    assert checked >= 3


@BOTH
def test_initialisers_of_the_config_reach_their_layers(cls, space):
    config = {
        "conv_kernel_initializer": "constant",
        "conv_kernel_initializer_config": {"val": 0.25},
        "conv_bias_initializer": "ones",
        "conv_filters": "nature",
        "post_fcnet_hiddens": [6],
        "vf_share_layers": False,
    }
    weights = cls(space((40, 40, 1)), None, 4, config, "net").get_weights()
    for name, array in weights.items():
        if name.endswith(("hidden.layers.1.weight", "hidden.layers.1.bias")) or name.startswith(
            "outputs"
        ):
            assert (array != 0.25).all(), name
        else:
            np.testing.assert_array_equal(
                array, 0.25 if name.endswith("weight") else 1, err_msg=name
            )
    assert {name.split(".")[0] for name in weights} == {
        "convs",
        "hidden",
        "value_convs",
        "value_hidden",
        "outputs",
    }


@BOTH
def test_a_resized_convolution_keeps_its_initialiser(cls, space):
    config = {"conv_kernel_initializer": "ones", "no_final_linear": True, "free_log_std": True}
    weights = cls(space(SHAPE), None, 6, config, "net").get_weights()
    assert weights["outputs.logits.weight"].shape == (3, 32, 7, 9)
    np.testing.assert_array_equal(weights["outputs.logits.weight"], 1)


def test_initialisers_of_the_framework(space):
    seen = []

    def fill(tensor):
        seen.append(tuple(tensor.shape))
        torch.nn.init.constant_(tensor, 0.5)

    weights = TorchNet(
        space(SHAPE), None, 4, {**CONFIG, "conv_kernel_initializer": fill}, "net"
    ).get_weights()
    np.testing.assert_array_equal(weights["convs.layers.0.weight"], np.full((6, 2, 4, 4), 0.5))
    assert seen == [(6, 2, 4, 4), (16, 6, 3, 3), (8, 16, 7, 5)] * 2
    seen.clear()

    def make(shape, dtype=None):  # Keras' initialisers see Keras' layout
        seen.append(tuple(shape))
        return tf.reshape(tf.range(float(np.prod(shape))), shape)

    weights = TFNet(
        space(SHAPE), None, 4, {**CONFIG, "conv_kernel_initializer": make}, "net"
    ).get_weights()
    expected = np.arange(4 * 4 * 2 * 6).reshape(4, 4, 2, 6).transpose(3, 2, 0, 1)
    np.testing.assert_array_equal(weights["convs.layers.0.weight"], expected)
    assert seen == [(4, 4, 2, 6), (3, 3, 6, 16), (7, 5, 16, 8)] * 2


# --- how they lie in memory -----------------------------------------------------------------------


def all_channels_last(model):
    kernels = [p for p in model.parameters() if p.dim() == 4]
    return len(kernels) == 6 and all(
        p.is_contiguous(memory_format=torch.channels_last) for p in kernels
    )


def reloaded(model):
    other = TorchNet(model.obs_space, model.action_space, 4, model.model_config, "other")
    other.load_state_dict(model.state_dict())
    return other


def reset(model):
    other = TorchNet(model.obs_space, model.action_space, 4, model.model_config, "other")
    other.set_weights(model.get_weights())
    return other


def pickled(model):
    return pickle.loads(pickle.dumps(model))


def saved(model):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = TorchNet(model.obs_space, model.action_space, 4, model.model_config, "other")
    other.load_state_dict(torch.load(file))
    return other


def trained(model):
    """A step of Adam at a learning rate of zero, and back."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    output, _ = model({"obs": torch.zeros(2, *SHAPE)})
    (output.sum() + model.value_function().sum()).backward()
    optimizer.step()
    return model


@pytest.mark.parametrize(
    "way", [reloaded, reset, pickled, saved, copy.deepcopy, trained], ids=lambda f: f.__name__
)
def test_kernels_stay_as_convolutions_like_them(way, assert_close, build, images, run):
    model, x = build(TorchNet, SHAPE, CONFIG), images(SHAPE)
    before = run(model, x)  # outputs on a graph are held now
    assert all_channels_last(model)
    other = way(model)
    assert all_channels_last(other)
    assert_close(run(other, x), before, 1e-6)


def test_kernels_in_pytorchs_usual_layout_are_served_too(assert_close, build, images, run):
    first, second, x = (
        build(TorchNet, SHAPE, CONFIG, seed=1),
        build(TorchNet, SHAPE, CONFIG, seed=2),
        images(SHAPE),
    )
    usual = {
        name: p.detach().clone(memory_format=torch.contiguous_format)
        for name, p in first.named_parameters()
    }
    output, _ = torch.func.functional_call(second, usual, ({"obs": torch.from_numpy(x)},))
    np.testing.assert_allclose(output.detach(), run(first, x)[0], rtol=1e-5, atol=1e-6)
    second.load_state_dict(usual, assign=True)
    assert not all_channels_last(second)
    assert_close(run(second, x), run(first, x), 1e-6)
    output, _ = second({"obs": torch.from_numpy(x)})
    assert all(
        g.abs().sum() > 0
        for g in torch.autograd.grad(output.sum(), list(second.convs.parameters()))
    )


@BOTH
@pytest.mark.parametrize("way", [copy.deepcopy, pickled], ids=lambda f: f.__name__)
def test_a_copy_is_its_own(cls, way, build, images, run):
    model, x = build(cls, SHAPE, CONFIG), images(SHAPE)
    before = run(model, x)[0]
    twin = way(model)
    np.testing.assert_allclose(run(twin, x)[0], before, rtol=1e-6)
    twin.set_weights({name: a + 1 for name, a in twin.get_weights().items()})
    np.testing.assert_array_equal(run(model, x)[0], before)
    assert not np.allclose(run(twin, x)[0], before)


@BOTH
def test_weights_are_copies_in_the_canonical_layout(cls, build, images, run):
    model, x = build(cls, SHAPE, CONFIG), images(SHAPE)
    before, weights = run(model, x)[0], model.get_weights()
    assert {name: a.shape for name, a in weights.items() if name.startswith("convs")} == {
        "convs.layers.0.weight": (6, 2, 4, 4),
        "convs.layers.0.bias": (6,),
        "convs.layers.1.weight": (16, 6, 3, 3),
        "convs.layers.1.bias": (16,),
        "convs.layers.2.weight": (8, 16, 7, 5),
        "convs.layers.2.bias": (8,),
    }
    for array in weights.values():
        array += 1
    np.testing.assert_array_equal(run(model, x)[0], before)


def test_an_activation_with_parameters_is_trained(space, images):
    config = {**CONFIG, "conv_activation": torch.nn.PReLU}
    model = TorchNet(space(SHAPE), None, 4, config, "net")
    slopes = [name for name, p in model.named_parameters() if "activate" in name]
    assert len(slopes) == 6  # three per stack, none shared
    output, _ = model({"obs": torch.from_numpy(images(SHAPE))})
    (output.sum() + model.value_function().sum()).backward()
    assert all(p.grad is not None for p in model.parameters())


# --- the value ------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("no_final_linear", [True, False])
def test_the_value_adds_no_forward_pass(share, no_final_linear, build, images, monkeypatch, run):
    config, x, calls = (
        {**CONFIG, "vf_share_layers": share, "no_final_linear": no_final_linear},
        images(SHAPE),
        [],
    )
    for cls in (TorchNet, TFNet):
        model = build(cls, SHAPE, config)
        kind = type(model.convs)
        name = "forward" if cls is TorchNet else "__call__"
        plain = getattr(kind, name)
        monkeypatch.setattr(
            kind, name, lambda self, x, plain=plain: calls.append(self) or plain(self, x)
        )
        run(model, x)
        first = model.value_function()
        for _ in range(2):
            np.testing.assert_array_equal(
                np.asarray(model.value_function().shape), np.asarray(first.shape)
            )
        assert calls == [model.convs] if share else [model.convs, model.value_convs]
        assert len(calls) == (1 if share else 2)
        calls.clear()


@BOTH
def test_unshared_stacks_are_not_shared(cls, build, images, run):
    model, x = build(cls, SHAPE, {**CONFIG, "post_fcnet_hiddens": [5]}), images(SHAPE)
    output, value = run(model, x)
    for part, touches_value in (
        ("convs", False),
        ("hidden", False),
        ("value_convs", True),
        ("value_hidden", True),
    ):
        weights = model.get_weights()
        moved = {name: a + 0.5 * (name.split(".")[0] == part) for name, a in weights.items()}
        model.set_weights(moved)
        found = run(model, x)
        assert np.array_equal(found[1], value) != touches_value, part
        assert np.array_equal(found[0], output) == touches_value, part
        model.set_weights(weights)


@BOTH
def test_a_trunk_has_features_and_no_value(cls, build, images, run):
    model = build(cls, SHAPE, {**CONFIG, "free_log_std": True, "no_final_linear": True}, None)
    assert model.num_outputs == run(model, images(SHAPE))[0].shape[1] == 8
    assert {name.split(".")[0] for name in model.get_weights()} == {"convs"}
    with pytest.raises(StaleOutputError, match="it was built as a trunk"):
        model.value_function()


@pytest.mark.parametrize("filters", [None, "nature", "impala"])
def test_the_fused_optimiser_sees_gradients_in_the_layout_of_the_weights(filters):
    """PyTorch's fused Adam on the CPU updates wrongly where a weight and its gradient lie
    differently in memory.
    """
    torch.manual_seed(0)
    nets = [
        TorchNet(
            Box(0, 255, (42, 42, 2), np.uint8), Discrete(3), 3, {"conv_filters": filters}, "net"
        )
    ]
    nets.append(copy.deepcopy(nets[0]))
    optimizers = [
        torch.optim.Adam(net.parameters(), lr=1e-2, fused=fused)
        for net, fused in zip(nets, (True, False), strict=True)
    ]
    images = torch.randint(0, 256, (4, 42, 42, 2), dtype=torch.uint8)
    for _ in range(3):
        for net, optimizer in zip(nets, optimizers, strict=True):
            output, _ = net({"obs": images})
            optimizer.zero_grad()
            (output.square().sum() + net.value_function().sum()).backward()
            optimizer.step()
    for (name, fused), plain in zip(nets[0].named_parameters(), nets[1].parameters(), strict=True):
        np.testing.assert_allclose(
            fused.detach(), plain.detach(), rtol=1e-3, atol=1e-4, err_msg=name
        )
