"""Frozen policies of models with all kinds of PyTorch's layers and functions.

Crosses: policy, export, torch.
"""

import pytest

pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")

import torch
from frozen_policies import (
    ROWS,
    VECTOR,
    Plain,
    user_policy as build_computing,
    walk as assert_act_alike,
)
from gymnasium.spaces import Discrete

import rlcatalog

NETS = {
    "activations": lambda: [
        getattr(torch.nn, name)()
        for name in (
            "ELU",
            "SELU",
            "CELU",
            "GELU",
            "SiLU",
            "Softplus",
            "LeakyReLU",
            "Hardtanh",
            "Hardsigmoid",
            "Hardswish",
            "ReLU6",
            "LogSigmoid",
            "Mish",
            "Softsign",
            "Tanhshrink",
            "Sigmoid",
        )
    ],
    "gelu by tanh": lambda: [torch.nn.GELU(approximate="tanh")],
    "norms": lambda: [torch.nn.LayerNorm(6), torch.nn.GroupNorm(2, 6), torch.nn.BatchNorm1d(6)],
    "convolutions": lambda: [
        torch.nn.Unflatten(1, (1, 2, 3)),
        torch.nn.ZeroPad2d((1, 2, 3, 1)),
        torch.nn.Conv2d(1, 4, 2, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.MaxPool2d(2, stride=1),
        torch.nn.AvgPool2d(2, padding=1),
        torch.nn.Conv2d(4, 4, (1, 2), bias=False, groups=2),
        torch.nn.GroupNorm(2, 4),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(6),
    ],
    "attention": lambda: [
        torch.nn.Unflatten(1, (3, 2)),
        torch.nn.TransformerEncoderLayer(2, 1, 4, batch_first=True),
        torch.nn.Flatten(),
    ],
}


def assert_is_recorded(policy):
    """Assert that a frozen policy records a graph, and acts as the policy."""
    frozen = policy.freeze(ROWS)
    assert frozen.reason is None
    assert_act_alike(policy, [frozen], steps=5, tolerance=2e-5)
    assert frozen.reason is None


@pytest.mark.parametrize("name", NETS)
def test_layers_of_pytorch_are_recorded(name):
    class HasLayers(Plain):
        def __init__(self, *args):
            super().__init__(*args)
            torch.manual_seed(0)
            first = torch.nn.Linear(3, 6)
            last = torch.nn.Linear(6, 2)
            self.net = torch.nn.Sequential(first, *NETS[name](), last)
            self.net(torch.zeros(2, 3))  # lazy layers read their width from this input

        def forward(self, input_dict, state, seq_lens):
            self.rows = len(input_dict["obs"])  # read by `value_function`
            return self.net(input_dict["obs"]), state

    policy = rlcatalog.build(VECTOR, Discrete(2), {"custom_model": HasLayers}, "torch")

    assert_is_recorded(policy)


FUNCTIONS = {
    "numbers": lambda x: torch.stack(
        [
            x.log1p(),
            x.expm1(),
            x.exp().pow(1.5),
            x.square(),
            x.abs().rsqrt(),
            x.round(),
            x.floor() + x.ceil() - x.trunc(),
            x.sign() * x.sin() + x.cos(),
            torch.div(x * 9, 2, rounding_mode="floor"),
            torch.div(x * 9, 2, rounding_mode="trunc"),
            torch.lerp(x, x * 2, 0.3),
            torch.addcdiv(x, x, x.exp(), value=2),
            3 - x,
            2 / (x + 3),
            torch.maximum(x, -x),
            x.erf(),
            x.atan(),
            x.clamp(-0.5, 0.5),
            x.clamp(max=torch.zeros(3)),
            x.masked_fill(x > 0, 7.0),
        ],
        1,
    ).flatten(1),
    "places": lambda x: torch.cat(
        [
            x[:, [2, 0, 1]],
            x.repeat(1, 2),
            x.unsqueeze(1).expand(-1, 2, -1).flatten(1),
            x[:, -1:],
            x.t().reshape(-1)[: len(x)].view(-1, 1),
            torch.stack(x.unbind(1), 1),
            x[:, None].transpose(1, 2).flatten(1),
            torch.nn.functional.pad(x, (1, 2), value=3.0),
            torch.cat(x.chunk(2, 1), 1),
            x.narrow(1, 1, 2),
            torch.searchsorted(torch.tensor([-0.5, 0.0, 0.5]), x).float(),
            torch.searchsorted(torch.stack([x[:, 0] - 0.2, x[:, 0]], 1), x, right=True).float(),
            x.gather(1, (x > 0).long()),
            torch.nn.functional.embedding((x > 0).long(), torch.eye(2)).flatten(1),
        ],
        1,
    ),
    "sums": lambda x: torch.stack(
        [
            x.sum(1),
            x.mean(-1),
            x.amax(1),
            x.amin(1),
            x.max(1).values,
            x.min(1).indices.float(),
            x.argmax(1).float(),
            x.norm(dim=1),
            x.logsumexp(1),
            x.cumsum(1)[:, 1],
            (x > 0).any(1).float(),
            (x > 0).all(1).float(),
            x.softmax(1)[:, 0],
            x.log_softmax(1)[:, 2],
            x.sum() + x[:, 0],
            x.max() + x[:, 0],
            torch.nn.functional.normalize(x, dim=1)[:, 1],
        ],
        1,
    ),
    "conditions": lambda x: torch.stack(
        [
            torch.where((x > 0) & (x < 0.5) | ~(x >= -0.5), x, 0.0)[:, 0],
            (x[:, 0] == x[:, 1]).float(),
            (x != 0).float()[:, 0],
            torch.logical_or(x > 0.2, x <= -0.2).float()[:, 1],
            torch.logical_not(x > 0).double()[:, 2].float(),
            (x[:, 0] * 3).long().float(),
            (x.isnan().float())[:, 0],
            ((x * 4).int() + 1)[:, 0].float(),
        ],
        1,
    ),
    "products": lambda x: torch.cat(
        [
            torch.bmm(x[:, None], x[:, :, None]).flatten(1),
            torch.baddbmm(
                x[:, None], x[:, None], x[:, :, None] @ x[:, None], beta=0.5, alpha=2
            ).flatten(1),
            x @ torch.arange(9.0).view(3, 3),
            torch.einsum("bi,bj->bij", x, x).flatten(1),
            x.mv(torch.ones(3))[:, None],
        ],
        1,
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_pytorch_are_recorded(name):
    width = FUNCTIONS[name](torch.zeros(2, 3)).shape[1]
    # Sums of all results, with weights that differ, become the three inputs of the last layer.
    mixing = torch.sin(torch.arange(float(width * 3))).view(width, 3)

    def compute(model, x):
        results = FUNCTIONS[name](x)
        return model.layer(torch.where(results.isnan(), 0, results) @ mixing)

    assert_is_recorded(build_computing(compute))
