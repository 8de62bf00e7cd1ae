"""Weights of the convolutional network: initial values, memory layout, copies, and the value."""

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
#: Three convolutions, with other ones for the value.
CONFIG = {"conv_filters": [[6, 4, 2], [16, 3, 1], [8, [7, 5], 1]], "vf_share_layers": False}
both_classes = pytest.mark.parametrize("cls", [TorchNet, TFNet])


# --- initial values -------------------------------------------------------------------------------


def make_glorot_uniform(shape):
    """Return the distribution of a kernel [out, in, kh, kw], or a dense weight [out, in]."""
    places = int(np.prod(shape[2:]))
    bound = np.sqrt(6 / (places * (shape[0] + shape[1])))
    return stats.uniform(-bound, 2 * bound)


@pytest.fixture(
    params=["nature", "impala", None, [[32, [4, 9], [3, 2]], [64, 3, 2], [128, [5, 5], 1]]],
    ids=["nature", "impala", "default", "list"],
)
def build_initial_weights(request, make_image_space):
    """Build a network with certain filters, and return its weights."""

    def build(cls):
        torch.manual_seed(0)
        tf.random.set_seed(0)
        config = {"conv_filters": request.param, "conv_flatten": True}
        return cls(
            make_image_space((48, 40, 4)), None, num_outputs=4, model_config=config, name="net"
        ).get_weights()

    return build


@pytest.mark.grid
@both_classes
def test_initial_kernels_are_glorot_uniform(cls, build_initial_weights):
    weights = build_initial_weights(cls)

    kernels = {}
    for name, array in weights.items():
        if name.endswith("weight") and not name.startswith("outputs"):
            kernels[name] = array
    assert len(kernels) >= 3
    for name, array in kernels.items():
        expected = make_glorot_uniform(array.shape)
        values = array.ravel()[:20_000].astype(np.float64)
        assert stats.kstest(values, expected.cdf).pvalue > 1e-4, name
        assert np.abs(array).max() <= expected.support()[1] + 1e-6
        if len(values) > 4000:  # enough to see a scale that is 10 % too large
            assert stats.kstest(values * 1.1, expected.cdf).pvalue < 1e-4, name


@pytest.mark.grid
@both_classes
def test_initial_biases_are_zero(cls, build_initial_weights):
    for name, array in build_initial_weights(cls).items():
        if name.endswith("bias"):
            np.testing.assert_array_equal(array, 0, err_msg=name)


@pytest.mark.grid
@both_classes
def test_initial_output_layers_have_rows_of_norm_one_hundredth(cls, build_initial_weights):
    weights = build_initial_weights(cls)

    for name in ("outputs.logits.weight", "outputs.value.weight"):
        norms = np.linalg.norm(weights[name], axis=1)
        np.testing.assert_allclose(norms, 0.01, rtol=1e-5)


@both_classes
def test_conv_initializers_reach_convolutions_and_preset_layer(cls, make_image_space):
    config = {
        "conv_kernel_initializer": "constant",
        "conv_kernel_initializer_config": {"val": 0.25},
        "conv_bias_initializer": "ones",
        "conv_filters": "nature",
        "post_fcnet_hiddens": [6],
        "vf_share_layers": False,
    }

    weights = cls(
        make_image_space((40, 40, 1)), None, num_outputs=4, model_config=config, name="net"
    ).get_weights()

    parts = {name.split(".")[0] for name in weights}
    assert parts == {"convs", "hidden", "value_convs", "value_hidden", "outputs"}
    for name, array in weights.items():
        # Layer 1 is that of post_fcnet_hiddens; layer 0 belongs to the preset.
        is_post_layer = "hidden.layers.1." in name
        if is_post_layer or name.startswith("outputs"):
            assert (array != 0.25).all(), name
        elif name.endswith("weight"):
            np.testing.assert_array_equal(array, 0.25, err_msg=name)
        else:
            np.testing.assert_array_equal(array, 1, err_msg=name)


@both_classes
def test_convolution_as_output_keeps_its_initializer(cls, make_image_space):
    config = {"conv_kernel_initializer": "ones", "no_final_linear": True, "free_log_std": True}

    weights = cls(
        make_image_space((13, 9, 2)), None, num_outputs=6, model_config=config, name="net"
    ).get_weights()

    logits_weight = weights["outputs.logits.weight"]
    assert logits_weight.shape == (3, 32, 7, 9)  # 3 means; 3 log stds have no inputs
    np.testing.assert_array_equal(logits_weight, 1)


def test_torch_initializer_receives_kernels_in_torch_layout(make_image_space):
    shapes = []

    def fill_with_half(tensor):
        shapes.append(tuple(tensor.shape))
        torch.nn.init.constant_(tensor, 0.5)

    config = {
        "conv_filters": [[6, 4, 2], [16, 3, 1], [8, [7, 5], 1]],
        "conv_kernel_initializer": fill_with_half,
        "vf_share_layers": False,
    }
    weights = TorchNet(
        make_image_space((13, 9, 2)), None, num_outputs=4, model_config=config, name="net"
    ).get_weights()

    # [outputs, inputs, height, width]; for the policy, and again for the value
    assert shapes == [(6, 2, 4, 4), (16, 6, 3, 3), (8, 16, 7, 5)] * 2
    np.testing.assert_array_equal(weights["convs.layers.0.weight"], np.full((6, 2, 4, 4), 0.5))


def test_keras_initializer_receives_kernels_in_keras_layout(make_image_space):
    shapes = []

    def count_up(shape, dtype=None):
        shapes.append(tuple(shape))
        return tf.reshape(tf.range(float(np.prod(shape))), shape)

    config = {
        "conv_filters": [[6, 4, 2], [16, 3, 1], [8, [7, 5], 1]],
        "conv_kernel_initializer": count_up,
        "vf_share_layers": False,
    }
    weights = TFNet(
        make_image_space((13, 9, 2)), None, num_outputs=4, model_config=config, name="net"
    ).get_weights()

    # [height, width, inputs, outputs]; for the policy, and again for the value
    assert shapes == [(4, 4, 2, 6), (3, 3, 6, 16), (7, 5, 16, 8)] * 2
    expected = np.arange(4 * 4 * 2 * 6).reshape(4, 4, 2, 6).transpose(3, 2, 0, 1)
    np.testing.assert_array_equal(weights["convs.layers.0.weight"], expected)


# --- memory layout --------------------------------------------------------------------------------


def has_kernels_with_channels_last(model):
    """Return whether the six kernels lie in memory as PyTorch's fastest convolutions read them."""
    kernels = [weight for weight in model.parameters() if weight.dim() == 4]
    assert len(kernels) == 6
    return all(kernel.is_contiguous(memory_format=torch.channels_last) for kernel in kernels)


def build_another(model):
    return TorchNet(model.obs_space, model.action_space, 4, model.model_config, "other")


def load_state_dict(model):
    other = build_another(model)
    other.load_state_dict(model.state_dict())
    return other


def set_weights(model):
    other = build_another(model)
    other.set_weights(model.get_weights())
    return other


def copy_by_pickle(model):
    return pickle.loads(pickle.dumps(model))


def save_and_load(model):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = build_another(model)
    other.load_state_dict(torch.load(file))
    return other


def train_without_change(model):
    """Take a step of Adam at a learning rate of zero."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    output, _ = model({"obs": torch.zeros(2, *SHAPE)})
    (output.sum() + model.value_function().sum()).backward()
    optimizer.step()
    return model


@pytest.mark.parametrize(
    "copy_model",
    [
        load_state_dict,
        set_weights,
        copy_by_pickle,
        save_and_load,
        copy.deepcopy,
        train_without_change,
    ],
)
def test_copies_keep_channels_last(
    copy_model, assert_same_results, build_net, draw_images, run_net
):
    model = build_net(TorchNet, SHAPE, CONFIG)
    images = draw_images(SHAPE)
    before = run_net(model, images)  # the model now keeps outputs with a graph
    assert has_kernels_with_channels_last(model)

    other = copy_model(model)

    assert has_kernels_with_channels_last(other)
    assert_same_results(run_net(other, images), before, tolerance=1e-6)


def make_contiguous(model):
    """Return a model's weights in PyTorch's usual layout, with channels first."""
    weights = {}
    for name, weight in model.named_parameters():
        weights[name] = weight.detach().clone(memory_format=torch.contiguous_format)
    return weights


def test_functional_call_takes_kernels_with_channels_first(build_net, draw_images, run_net):
    model = build_net(TorchNet, SHAPE, CONFIG, seed=1)
    other = build_net(TorchNet, SHAPE, CONFIG, seed=2)
    images = draw_images(SHAPE)

    inputs = {"obs": torch.from_numpy(images)}
    output, _ = torch.func.functional_call(model, make_contiguous(other), (inputs,))

    expected, _ = run_net(other, images)
    np.testing.assert_allclose(output.detach(), expected, rtol=1e-5, atol=1e-6)


def test_kernels_with_channels_first_give_the_same_results(
    assert_same_results, build_net, draw_images, run_net
):
    source = build_net(TorchNet, SHAPE, CONFIG, seed=1)
    model = build_net(TorchNet, SHAPE, CONFIG, seed=2)
    images = draw_images(SHAPE)

    model.load_state_dict(make_contiguous(source), assign=True)

    assert not has_kernels_with_channels_last(model)
    assert_same_results(run_net(model, images), run_net(source, images), tolerance=1e-6)


def test_kernels_with_channels_first_have_gradients(build_net, draw_images):
    model = build_net(TorchNet, SHAPE, CONFIG)
    model.load_state_dict(make_contiguous(model), assign=True)

    output, _ = model({"obs": torch.from_numpy(draw_images(SHAPE))})

    gradients = torch.autograd.grad(output.sum(), list(model.convs.parameters()))
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


@pytest.mark.parametrize("filters", [None, "nature", "impala"])
def test_fused_adam_updates_like_plain_adam(filters):
    # On the CPU it is wrong where a weight and its gradient lie differently in memory.
    torch.manual_seed(0)
    space = Box(0, 255, (42, 42, 2), np.uint8)
    fused_net = TorchNet(
        space, Discrete(3), num_outputs=3, model_config={"conv_filters": filters}, name="net"
    )
    plain_net = copy.deepcopy(fused_net)
    images = torch.randint(0, 256, (4, 42, 42, 2), dtype=torch.uint8)

    train_three_steps(fused_net, torch.optim.Adam(fused_net.parameters(), 1e-2, fused=True), images)
    train_three_steps(
        plain_net, torch.optim.Adam(plain_net.parameters(), 1e-2, fused=False), images
    )

    plain_weights = dict(plain_net.named_parameters())
    for name, weight in fused_net.named_parameters():
        np.testing.assert_allclose(
            weight.detach(), plain_weights[name].detach(), rtol=1e-3, atol=1e-4, err_msg=name
        )


def train_three_steps(net, optimizer, images):
    for _ in range(3):
        output, _ = net({"obs": images})
        optimizer.zero_grad()
        (output.square().sum() + net.value_function().sum()).backward()
        optimizer.step()


# --- copies ---------------------------------------------------------------------------------------


@both_classes
@pytest.mark.parametrize("copy_model", [copy.deepcopy, copy_by_pickle])
def test_copy_has_its_own_weights(cls, copy_model, build_net, draw_images, run_net):
    model = build_net(cls, SHAPE, CONFIG)
    images = draw_images(SHAPE)
    before, _ = run_net(model, images)

    copied = copy_model(model)
    np.testing.assert_allclose(run_net(copied, images)[0], before, rtol=1e-6)
    copied.set_weights({name: array + 1 for name, array in copied.get_weights().items()})

    np.testing.assert_array_equal(run_net(model, images)[0], before)
    assert not np.allclose(run_net(copied, images)[0], before)


@both_classes
def test_get_weights_has_kernels_in_torch_layout(cls, build_net):
    config = {"conv_filters": [[6, 4, 2], [16, 3, 1], [8, [7, 5], 1]]}

    weights = build_net(cls, (13, 9, 2), config).get_weights()

    shapes = {name: a.shape for name, a in weights.items() if name.startswith("convs")}
    assert shapes == {
        "convs.layers.0.weight": (6, 2, 4, 4),
        "convs.layers.0.bias": (6,),
        "convs.layers.1.weight": (16, 6, 3, 3),
        "convs.layers.1.bias": (16,),
        "convs.layers.2.weight": (8, 16, 7, 5),
        "convs.layers.2.bias": (8,),
    }


@both_classes
def test_get_weights_returns_copies(cls, build_net, draw_images, run_net):
    model = build_net(cls, SHAPE, CONFIG)
    images = draw_images(SHAPE)
    before, _ = run_net(model, images)

    for array in model.get_weights().values():
        array += 1

    np.testing.assert_array_equal(run_net(model, images)[0], before)


def test_activation_with_parameters_is_trained(make_image_space, draw_images):
    config = {
        "conv_filters": [[6, 4, 2], [16, 3, 1], [8, [7, 5], 1]],
        "conv_activation": torch.nn.PReLU,
        "vf_share_layers": False,
    }
    model = TorchNet(
        make_image_space((13, 9, 2)), None, num_outputs=4, model_config=config, name="net"
    )

    output, _ = model({"obs": torch.from_numpy(draw_images((13, 9, 2)))})
    (output.sum() + model.value_function().sum()).backward()

    slopes = [name for name, _ in model.named_parameters() if "activate" in name]
    assert len(slopes) == 6  # 3 layers of the policy and 3 of the value, none shared
    assert all(parameter.grad is not None for parameter in model.parameters())


# --- the value ------------------------------------------------------------------------------------


@pytest.fixture
def count_stack_calls(monkeypatch):
    """Record each call of a model's stacks of convolutions."""

    def count(model):
        calls = []
        stack_class = type(model.convs)
        method = "forward" if isinstance(model, TorchNet) else "__call__"
        original = getattr(stack_class, method)

        def record_call(self, x):
            calls.append(self)
            return original(self, x)

        monkeypatch.setattr(stack_class, method, record_call)
        return calls

    return count


@both_classes
@pytest.mark.parametrize("share", [True, False], ids=["shared-value", "separate-value"])
@pytest.mark.parametrize("no_final_linear", [True, False])
def test_value_function_runs_no_second_pass(
    cls, share, no_final_linear, build_net, draw_images, count_stack_calls, run_net
):
    config = {
        "conv_filters": [[6, 4, 2], [16, 3, 1], [8, [7, 5], 1]],
        "vf_share_layers": share,
        "no_final_linear": no_final_linear,
    }
    model = build_net(cls, (13, 9, 2), config)
    calls = count_stack_calls(model)

    run_net(model, draw_images((13, 9, 2)))
    for _ in range(3):
        assert tuple(model.value_function().shape) == (3,)  # 3 images

    if share:
        assert calls == [model.convs]
    else:
        assert calls == [model.convs, model.value_convs]


@pytest.fixture
def run_with_changed_part(build_net, draw_images, run_net):
    """Run a network with a separate value, before and after one part's weights change."""

    def run(cls, part):
        model = build_net(cls, SHAPE, {**CONFIG, "post_fcnet_hiddens": [5]})
        before = run_net(model, draw_images(SHAPE))
        weights = model.get_weights()
        for name in weights:
            if name.split(".")[0] == part:
                weights[name] = weights[name] + np.float32(0.5)
        model.set_weights(weights)
        return before, run_net(model, draw_images(SHAPE))

    return run


@both_classes
@pytest.mark.parametrize("part", ["convs", "hidden"])
def test_policy_layers_do_not_change_a_separate_value(cls, part, run_with_changed_part):
    (output, value), (new_output, new_value) = run_with_changed_part(cls, part)

    assert not np.array_equal(new_output, output)
    np.testing.assert_array_equal(new_value, value)


@both_classes
@pytest.mark.parametrize("part", ["value_convs", "value_hidden"])
def test_layers_of_a_separate_value_change_only_the_value(cls, part, run_with_changed_part):
    (output, value), (new_output, new_value) = run_with_changed_part(cls, part)

    np.testing.assert_array_equal(new_output, output)
    assert not np.array_equal(new_value, value)


@both_classes
def test_trunk_has_features_and_no_value(cls, build_net, draw_images, run_net):
    config = {
        "conv_filters": [[6, 4, 2], [16, 3, 1], [8, [7, 5], 1]],
        "vf_share_layers": False,
        "free_log_std": True,
        "no_final_linear": True,
    }
    trunk = build_net(cls, (13, 9, 2), config, num_outputs=None)

    features, _ = run_net(trunk, draw_images((13, 9, 2)))

    assert trunk.num_outputs == 8  # channels of the last convolution
    assert features.shape[1] == 8
    assert {name.split(".")[0] for name in trunk.get_weights()} == {"convs"}
    with pytest.raises(StaleOutputError, match="it was built as a trunk"):
        trunk.value_function()
