"""PyTorch's Adam of our own: equal to torch.optim's bit by bit, and what torch.optim brings stays
outside.
"""

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
from rlcatalog_ppo.torch import Optimizer
from rlcatalog_torch.learner import Adam, clip_gradients, gradient_norm

EPS = 1e-5
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
SHAPES = [(5, 7), (33,), (), (1, 1), (0, 4), (300, 41)]


def weights_of(dtype, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    found = [torch.randn(shape, generator=generator) for shape in SHAPES]
    found += [
        torch.randn(8, 3, 3, 3, generator=generator).contiguous(memory_format=torch.channels_last)
    ]
    found += [torch.randn(6, 4, generator=generator).t()]
    return [torch.nn.Parameter(weight.to(device, dtype)) for weight in found]


def theirs_of(weights):
    # What PPO used before there was one of our own.
    return torch.optim.Adam(weights, eps=EPS, fused=True)


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other), (one.shape, one.dtype, (one - other).abs().max())


def hand_out_gradients(ours, theirs, step):
    """Give both the same gradients, of sizes about epsilon and far from it; every third weight has
    one now and then.
    """
    generator = torch.Generator().manual_seed(step)
    for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        gradient = torch.randn(one.shape, generator=generator) * 10.0 ** (step % 9 - 6)
        if index % 3 == 0 and step % 4:
            one.grad = other.grad = None
            continue
        flatten_structured = torch.empty_like(one).detach().copy_(gradient)
        one.grad, other.grad = flatten_structured, flatten_structured.clone()


@pytest.mark.parametrize(
    "dtypes",
    [
        [torch.float32],
        [torch.float64],
        [torch.bfloat16],
        [torch.float32, torch.float64, torch.bfloat16],
    ],
    ids=str,
)
@pytest.mark.parametrize("device", DEVICES)
def test_every_step_is_that_of_fused_adam(dtypes, device):
    ours = [weight for dtype in dtypes for weight in weights_of(dtype, device)]
    theirs = [torch.nn.Parameter(weight.detach().clone()) for weight in ours]
    start = [weight.detach().clone() for weight in ours]
    mine, reference = Adam(ours, eps=EPS), theirs_of(theirs)
    for step in range(60):
        lr = 1e-2 * (1 - step / 120)
        hand_out_gradients(ours, theirs, step)
        mine.step(lr)
        for group in reference.param_groups:
            group["lr"] = lr
        reference.step()
        assert_same(ours, theirs)
    for weight, other, before in zip(ours, theirs, start, strict=True):
        state, expected = mine.state[weight], reference.state[other]
        assert_same(state, [expected["step"], expected["exp_avg"], expected["exp_avg_sq"]])
        assert weight.numel() == 0 or not torch.equal(weight, before)
    assert {int(mine.state[weight].step) for weight in ours} == {15, 60}


def test_weight_that_never_had_a_gradient_has_no_state():
    kept, moved = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    mine = Adam([kept, moved, moved], eps=EPS)
    moved.grad = torch.ones(3)
    mine.step(0.1)
    assert torch.equal(kept, torch.ones(3))
    assert list(mine.state) == [moved]
    assert mine.state[moved].step == 1  # once, though it was named twice
    mine.zero_grad()
    assert moved.grad is None


def test_gradients_in_another_order_of_memory_are_read_by_their_places():
    weight = torch.nn.Parameter(
        torch.zeros(2, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    )
    weight.grad = torch.linspace(-1, 1, 24).reshape(2, 3, 2, 2)
    Adam([weight], eps=1.0).step(1.0)
    np.testing.assert_allclose(weight.detach(), -weight.grad / (weight.grad.abs() + 1), rtol=1e-5)


def gradient_of(weight):
    return torch.linspace(1.0, 2.0, weight.numel()).reshape(weight.shape)


@pytest.mark.parametrize(
    "convert",
    [
        lambda net: net.double(),
        lambda net: net.bfloat16(),
        lambda net: net.to(memory_format=torch.channels_last),
    ],
    ids=["float64", "bfloat16", "channels_last"],
)
def test_state_follows_weights_that_are_converted(convert):
    net = torch.nn.Conv2d(3, 8, 2)
    mine = Adam(net.parameters(), eps=EPS)
    for step in range(6):
        if step == 3:
            convert(net)
        for weight in net.parameters():
            weight.grad = torch.empty_like(weight).detach().copy_(gradient_of(weight))
        mine.step(0.1)
    for weight in net.parameters():
        assert mine.state[weight].first.dtype == weight.dtype
        assert mine.state[weight].step == 6
        # Of equal gradients the mean after t steps is 1 - 0.9**t of each: what was there before
        # counts on.
        expected = (1 - 0.9**6) * gradient_of(weight)
        torch.testing.assert_close(mine.state[weight].first.float(), expected, rtol=2e-2, atol=0.0)


@pytest.mark.parametrize("limit", [1e-3, 0.5, 5.0, 1e3])
@pytest.mark.parametrize(
    "dtypes", [[torch.float32], [torch.float64, torch.bfloat16, torch.float32]], ids=str
)
def test_gradients_are_clipped_as_pytorch_does(dtypes, limit):
    ours = [weight for dtype in dtypes for weight in weights_of(dtype, "cpu")]
    theirs = [torch.nn.Parameter(weight.detach().clone()) for weight in ours]
    hand_out_gradients(ours, theirs, 1)
    assert {weight.grad is None for weight in ours} == {True, False}
    norm = gradient_norm(ours)
    clip_gradients(ours, norm, limit)
    expected = torch.nn.utils.clip_grad_norm_(theirs, limit)
    assert torch.equal(norm, expected)
    assert_same(
        *(
            [weight.grad for weight in weights if weight.grad is not None]
            for weights in (ours, theirs)
        )
    )
    assert gradient_norm([weight for weight in ours if weight.grad is None]) == 0.0


def test_nothing_is_computed_on_the_meta_device():
    weight = torch.nn.Parameter(torch.zeros(3, device="meta"))
    mine = Adam([weight], eps=EPS)
    weight.grad = torch.zeros(3, device="meta")
    mine.step(0.1)
    assert mine.state[weight].first.device.type == "meta"


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        (
            torch.zeros(3, dtype=torch.complex64),
            "needs floating-point weights, found one of torch.complex64",
        ),
        (
            torch.zeros(4, 4)[:, :2],
            r"shape \(4, 2\) and strides \(4, 1\) is a view whose memory has gaps",
        ),
        (torch.zeros(3).expand(2, 3), "or overlaps"),
    ],
)
def test_weights_that_adam_cannot_serve_are_refused(weight, said):
    with pytest.raises(NotServedError, match=said):
        Adam([weight])


# --- the state of PPO's optimiser -----------------------------------------------------------------


def optimizer_of(shape, convert=lambda model: model):
    """An optimiser whose model has kernels that lie `channels_last`, if it sees pictures."""
    policy = rlcatalog.build(
        spaces.Box(-1, 1, shape, np.float32), spaces.Discrete(2), framework="torch"
    )
    convert(policy.model)
    return Optimizer(policy, PPOConfig())


def give_gradients(optimizer, seed):
    generator = torch.Generator().manual_seed(seed)
    for index, weight in enumerate(optimizer.parameters):
        weight.grad = None
        if index or seed:  # the first weight misses the first step
            weight.grad = (
                torch.empty_like(weight)
                .detach()
                .copy_(torch.randn(weight.shape, generator=generator))
            )


@pytest.mark.parametrize(
    ("shape", "convert"),
    [
        ((4,), lambda model: model),
        ((42, 42, 3), lambda model: model),
        ((4,), lambda model: model.double()),
        ((4,), lambda model: model.bfloat16()),
    ],
    ids=["vector", "picture", "float64", "bfloat16"],
)
def test_optimiser_that_was_given_the_state_takes_the_same_steps(shape, convert):
    optimizer = optimizer_of(shape, convert)
    for seed in range(3):
        give_gradients(optimizer, seed)
        optimizer.optimizer.step(1e-2)
    kept, weights = (
        optimizer.get_state(),
        [weight.detach().clone() for weight in optimizer.parameters],
    )
    names = list(optimizer.model.trainable_variables(as_dict=True))
    assert (kept["step"], kept["behind"]) == (3, {names[0]: 2})
    fresh = optimizer_of(shape, convert)
    fresh.set_state(kept)
    for weight, value in zip(fresh.parameters, weights, strict=True):
        weight.data = value.clone()
    for seed in range(3, 6):
        for one in (optimizer, fresh):
            give_gradients(one, seed)
            one.optimizer.step(1e-2)
    assert_same(fresh.parameters, optimizer.parameters)


# --- what a run imports ---------------------------------------------------------------------------

COMMANDS = """
import json, sys
from rlcatalog_cli import main

def note():
    found.append([name for name in ("torch._dynamo", "sympy", "triton") if name in sys.modules])

class Dynamo:
    # Ends an import of torch._dynamo, which takes seconds.
    def find_spec(self, name, *_):
        if name == "torch._dynamo":
            raise InterruptedError(name)

found = []
for arguments in json.loads(sys.argv[1]):
    try:
        main(arguments)
    except SystemExit as end:
        assert not end.code
    note()
import torch
sys.meta_path.insert(0, Dynamo())
try:
    torch.optim.Adam([torch.zeros(1, requires_grad=True)], fused=True)
    found.append([])
except InterruptedError as error:
    found.append([*error.args])
print(json.dumps(found))
"""


@pytest.mark.attack
def test_run_and_its_evaluation_import_none_of_the_compiler(tmp_path):
    folder = str(tmp_path / "run")
    train = ["train", "CartPole-v1", "--framework", "torch", "--steps", "64", "--out", folder]
    train += ["--model", "use_lstm=true"]
    for setting in ("num_envs=2", "rollout_length=32", "minibatch_size=32"):
        train += ["--set", setting]
    commands = json.dumps([train, ["evaluate", folder, "--episodes", "1"]])
    done = warm.run(["-c", COMMANDS, commands], tmp_path, frameworks=False)
    assert done.returncode == 0, done.stderr
    trained, evaluated, control = json.loads(done.stdout.splitlines()[-1])
    assert trained == evaluated == []
    # The lines above could not fail, were this not so. When it stops being so, Adam of our own has
    # had its day.
    assert control == ["torch._dynamo"]
