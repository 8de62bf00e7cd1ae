"""PyTorch's Adam of our own, which equals torch.optim's bit by bit, and what a run imports."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import warm
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import NotServedError
from rlcatalog_ppo.config import PPOConfig
from rlcatalog_ppo.torch import TorchMinibatchOptimizer
from rlcatalog_torch.learner import Adam, clip_gradients, gradient_norm

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def make_weights(*dtypes, device="cpu"):
    """Return weights of many shapes and memory layouts, in each dtype."""
    generator = torch.Generator().manual_seed(0)
    tensors = []
    for shape in ((5, 7), (33,), (), (1, 1), (0, 4), (300, 41)):
        tensors.append(torch.randn(shape, generator=generator))
    kernels = torch.randn(8, 3, 3, 3, generator=generator)
    tensors.append(kernels.contiguous(memory_format=torch.channels_last))
    tensors.append(torch.randn(6, 4, generator=generator).t())
    weights = []
    for dtype in dtypes:
        weights.extend(torch.nn.Parameter(tensor.to(device, dtype)) for tensor in tensors)
    return weights


def copy_weights(weights):
    return [torch.nn.Parameter(weight.detach().clone()) for weight in weights]


def set_gradients(weights, *, step):
    """Set random gradients, which are the same for the same step.

    Their size is about that of epsilon in some steps, and far from it in others. In three of four
    steps, every third weight has none.
    """
    generator = torch.Generator().manual_seed(step)
    size = 10.0 ** (step % 9 - 6)
    for i, weight in enumerate(weights):
        random = torch.randn(weight.shape, generator=generator) * size
        weight.grad = None
        if i % 3 != 0 or step % 4 == 0:
            # With the weight's device, dtype and memory layout.
            weight.grad = torch.empty_like(weight).detach().copy_(random)


def assert_equal(tensors, other_tensors):
    """Assert that the tensors of two lists are equal, bit by bit."""
    for tensor, other in zip(tensors, other_tensors, strict=True):
        assert torch.equal(tensor, other), (
            tensor.shape,
            tensor.dtype,
            (tensor - other).abs().max(),
        )


# --- steps ----------------------------------------------------------------------------------------

all_devices = pytest.mark.parametrize("device", DEVICES)
all_dtypes = pytest.mark.parametrize(
    "dtypes",
    [
        [torch.float32],
        [torch.float64],
        [torch.bfloat16],
        [torch.float32, torch.float64, torch.bfloat16],
    ],
    ids=str,
)


@all_dtypes
@all_devices
def test_adam_equals_fused_adam_of_pytorch(dtypes, device):
    weights = make_weights(*dtypes, device=device)
    expected_weights = copy_weights(weights)
    optimizer = Adam(weights, eps=1e-5)
    reference = torch.optim.Adam(expected_weights, eps=1e-5, fused=True)

    for step in range(60):
        lr = 1e-2 * (1 - step / 120)  # falls from 0.01 to about 0.005
        set_gradients(weights, step=step)
        set_gradients(expected_weights, step=step)
        optimizer.step(lr)
        reference.param_groups[0]["lr"] = lr
        reference.step()
        assert_equal(weights, expected_weights)

    for weight, expected_weight in zip(weights, expected_weights, strict=True):
        expected = reference.state[expected_weight]
        state = optimizer.state[weight]
        assert state.step == expected["step"]
        assert torch.equal(state.first, expected["exp_avg"])
        assert torch.equal(state.second, expected["exp_avg_sq"])


def test_adam_with_rates_of_parts_equals_groups_of_pytorch():
    weights = make_weights(torch.float32)
    expected_weights = copy_weights(weights)
    optimizer = Adam(weights, eps=1e-5)
    optimizer.part_of = dict.fromkeys(weights[:3], "trunk")
    groups = [{"params": expected_weights[:3]}, {"params": expected_weights[3:]}]
    reference = torch.optim.Adam(groups, eps=1e-5, fused=True)

    for step in range(20):
        lr = 1e-2 * (1 - step / 40)
        set_gradients(weights, step=step)
        set_gradients(expected_weights, step=step)
        optimizer.step(lr, {"trunk": lr / 8})
        for group, group_lr in zip(reference.param_groups, [lr / 8, lr], strict=True):
            group["lr"] = group_lr
        reference.step()

    assert_equal(weights, expected_weights)


def test_weight_without_gradient_stays_and_has_no_state():
    weight = torch.nn.Parameter(torch.ones(3))
    other = torch.nn.Parameter(torch.ones(3))
    other.grad = torch.ones(3)
    optimizer = Adam([weight, other])

    optimizer.step(lr=0.1)

    assert torch.equal(weight, torch.ones(3))
    assert list(optimizer.state) == [other]


def test_weight_passed_twice_takes_one_step():
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    optimizer = Adam([weight, weight])

    optimizer.step(lr=0.1)

    assert optimizer.state[weight].step == 1


def test_zero_grad_clears_gradients():
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)

    Adam([weight]).zero_grad()

    assert weight.grad is None


def test_gradient_may_have_other_memory_layout_than_weight():
    zeros = torch.zeros(2, 3, 2, 2)
    weight = torch.nn.Parameter(zeros.contiguous(memory_format=torch.channels_last))
    weight.grad = torch.linspace(-1, 1, 24).reshape(2, 3, 2, 2)

    Adam([weight], eps=1.0).step(lr=1.0)

    # Adam's first step is lr * gradient / (|gradient| + eps).
    expected = -weight.grad / (weight.grad.abs() + 1)
    np.testing.assert_allclose(weight.detach(), expected, rtol=1e-5)


def to_float64(net):
    net.double()


def to_bfloat16(net):
    net.bfloat16()


def to_channels_last(net):
    net.to(memory_format=torch.channels_last)


def gradient_from_1_to_2(weight):
    """Return a gradient with the weight's shape, dtype and memory layout."""
    numbers = torch.linspace(1.0, 2.0, weight.numel()).reshape(weight.shape)
    return torch.empty_like(weight).detach().copy_(numbers)


@pytest.mark.parametrize("convert", [to_float64, to_bfloat16, to_channels_last])
def test_state_follows_converted_weights(convert):
    net = torch.nn.Conv2d(3, 8, 2)
    optimizer = Adam(net.parameters())

    def take_three_steps():
        for _ in range(3):
            for weight in net.parameters():
                weight.grad = gradient_from_1_to_2(weight)
            optimizer.step(lr=0.1)

    take_three_steps()
    convert(net)
    take_three_steps()

    for weight in net.parameters():
        state = optimizer.state[weight]
        assert state.first.dtype == weight.dtype
        assert state.step == 6  # three before the conversion and three after it
        # After six equal gradients, the moving average with decay 0.9 is 1 - 0.9**6 of them, within
        # the precision of bfloat16.
        expected = (1 - 0.9**6) * gradient_from_1_to_2(weight)
        torch.testing.assert_close(state.first, expected, rtol=2e-2, atol=0.0)


def test_state_is_on_meta_device_if_weight_is():
    weight = torch.nn.Parameter(torch.zeros(3, device="meta"))
    weight.grad = torch.zeros(3, device="meta")
    optimizer = Adam([weight])

    optimizer.step(lr=0.1)

    assert optimizer.state[weight].first.device.type == "meta"


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        pytest.param(
            torch.zeros(3, dtype=torch.complex64), "found one of torch.complex64", id="complex"
        ),
        pytest.param(
            torch.zeros(4, 4)[:, :2],
            r"strides \(4, 1\) is a view",
            id="memory-with-gaps",
        ),
        pytest.param(torch.zeros(3).expand(2, 3), "or overlaps", id="overlapping-memory"),
    ],
)
def test_adam_refuses_weights_it_cannot_update(weight, message):
    with pytest.raises(NotServedError, match=message):
        Adam([weight])


# --- clipping -------------------------------------------------------------------------------------


def gradients_of(weights):
    return [weight.grad for weight in weights if weight.grad is not None]


@pytest.mark.parametrize("limit", [0.5, 1e3], ids=["below-norm", "above-norm"])
@pytest.mark.parametrize(
    "dtypes", [[torch.float32], [torch.float64, torch.bfloat16, torch.float32]], ids=str
)
def test_clipping_equals_that_of_pytorch(dtypes, limit):
    weights = make_weights(*dtypes)
    expected_weights = copy_weights(weights)
    # In this step, every third weight has no gradient.
    set_gradients(weights, step=5)
    set_gradients(expected_weights, step=5)

    norm = gradient_norm(weights)
    clip_gradients(weights, norm, limit)

    expected_norm = torch.nn.utils.clip_grad_norm_(expected_weights, limit)
    assert torch.equal(norm, expected_norm)
    assert_equal(gradients_of(weights), gradients_of(expected_weights))


def test_norm_without_gradients_is_zero():
    assert gradient_norm(make_weights(torch.float32)) == 0.0


# --- the state of PPO's optimiser -----------------------------------------------------------------


def make_optimizer(obs_shape, dtype):
    """Return PPO's optimiser; the kernels of a model for images are `channels_last`."""
    policy = rlcatalog.build(
        spaces.Box(-1, 1, obs_shape, np.float32), spaces.Discrete(2), framework="torch"
    )
    policy.model.to(dtype)
    return TorchMinibatchOptimizer(policy, PPOConfig())


def take_steps(optimizer, steps):
    """Take steps with random gradients; the first weight has none in step 0."""
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for i, weight in enumerate(optimizer.parameters):
            weight.grad = None
            if i > 0 or step > 0:
                random = torch.randn(weight.shape, generator=generator)
                weight.grad = torch.empty_like(weight).detach().copy_(random)
        optimizer.optimizer.step(1e-2)


def test_state_counts_missing_steps_of_weights():
    optimizer = make_optimizer((4,), torch.float32)

    take_steps(optimizer, [0, 1, 2])

    first_weight, *_ = optimizer.model.trainable_variables(as_dict=True)
    state = optimizer.get_state()
    assert state["step"] == 3
    assert state["behind"] == {first_weight: 2}  # it has no gradient in step 0


@pytest.mark.parametrize(
    ("obs_shape", "dtype"),
    [
        pytest.param((42, 42, 3), torch.float32, id="image"),
        pytest.param((4,), torch.float64, id="float64"),
        pytest.param((4,), torch.bfloat16, id="bfloat16"),
    ],
)
def test_restored_optimizer_takes_same_steps(obs_shape, dtype):
    optimizer = make_optimizer(obs_shape, dtype)
    take_steps(optimizer, [0, 1, 2])

    restored = make_optimizer(obs_shape, dtype)
    restored.set_state(optimizer.get_state())
    # The state has no weights; a checkpoint contains them separately.
    for weight, saved in zip(restored.parameters, optimizer.parameters, strict=True):
        weight.data = saved.detach().clone()

    take_steps(optimizer, [3, 4, 5])
    take_steps(restored, [3, 4, 5])
    assert_equal(restored.parameters, optimizer.parameters)


# --- what a run imports ---------------------------------------------------------------------------

#: Runs the commands in its argument; prints, for each, which modules of the compiler are imported,
#: and then what an optimiser of torch.optim imports.
RUN_COMMANDS = """
import json, sys
from rlcatalog_cli import main

class StopAtCompiler:
    # Ends an import of torch._dynamo, which takes seconds.
    def find_spec(self, name, *_):
        if name == "torch._dynamo":
            raise InterruptedError(name)

imported = []
for arguments in json.loads(sys.argv[1]):
    try:
        main(arguments)
    except SystemExit as end:
        assert not end.code
    compiler = ("torch._dynamo", "sympy", "triton")
    imported.append([name for name in compiler if name in sys.modules])
import torch
sys.meta_path.insert(0, StopAtCompiler())
try:
    torch.optim.Adam([torch.zeros(1, requires_grad=True)], fused=True)
    imported.append([])
except InterruptedError as error:
    imported.append([*error.args])
print(json.dumps(imported))
"""


@pytest.mark.slow
def test_run_and_its_evaluation_do_not_import_the_compiler(tmp_path):
    folder = str(tmp_path / "run")
    train = ["train", "CartPole-v1", "--framework", "torch", "--steps", "64", "--out", folder]
    small_lstm = ["--model", "use_lstm=true", "--set", "num_envs=2", "--set", "rollout_length=32"]
    evaluate = ["evaluate", folder, "--episodes", "1"]
    commands = json.dumps([train + small_lstm, evaluate])

    process = warm.run(["-c", RUN_COMMANDS, commands], tmp_path, frameworks=False)

    assert process.returncode == 0, process.stderr
    # The modules of PyTorch's compiler that each command and, after them, torch.optim imported.
    by_train, by_evaluate, by_torch_optim = json.loads(process.stdout.splitlines()[-1])
    assert by_train == []
    assert by_evaluate == []
    # If torch.optim no longer imports the compiler, our Adam is no longer needed.
    assert by_torch_optim == ["torch._dynamo"]
