"""Floors of whole models in PyTorch: bare modules that act and train, with the shapes of the
catalog's defaults.

The modules take the weights of the catalog's models (`adopt`), so that both sides compute the same
numbers. Images stay `channels_last` from the observation to the dense layers, a convolution that
covers its map is a dense layer, and single steps of the LSTM go to `torch.lstm_cell`. See
`benchmarks.floors` for what a floor is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.floors import Act, torch_draw

Array = np.ndarray[Any, Any]
Batch = Mapping[str, Tensor]

#: How an optimiser clears the gradients, and how it updates the weights.
Optimizer = tuple[Callable[[], object], Callable[[], object]]

CLIP, VALUE_WEIGHT, ENTROPY_WEIGHT = 0.2, 0.5, 0.01
#: So small that the weights, and with them the time of a step, stay the same.
LEARNING_RATE = 1e-9


class VisionFloor(nn.Module):
    """Images `[B, 84, 84, 4]`, uint8, to logits `[B, n]` and values `[B]`."""

    def __init__(self, nature: bool, n: int) -> None:
        super().__init__()
        if nature:
            convs = [nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1)]
            modules: list[nn.Module] = [convs[0], _relu(), convs[1], _relu(), convs[2], _relu()]
            dense = nn.Linear(7 * 7 * 64, 512)
        else:
            convs = [nn.Conv2d(4, 16, 8, 4, padding=2), nn.Conv2d(16, 32, 4, 2)]
            modules = [convs[0], _relu(), nn.ZeroPad2d((1, 2, 1, 2)), convs[1], _relu()]
            dense = nn.Linear(11 * 11 * 32, 256)
        self.convs = nn.Sequential(*modules).to(memory_format=torch.channels_last)
        self.dense = nn.Sequential(dense, _relu())
        self.logits, self.value = nn.Linear(dense.out_features, n), nn.Linear(dense.out_features, 1)
        last = "hidden" if nature else "convs"
        self.names = {
            f"convs.{2 * i if nature else 3 * i}": f"convs.layers.{i}" for i in range(len(convs))
        }
        self.names |= {"dense.0": f"{last}.layers.{0 if nature else 2}", **_ENDS}

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Compute logits and values."""
        x = self.convs(images.permute(0, 3, 1, 2).float().mul_(1 / 255))
        x = self.dense(x.permute(0, 2, 3, 1).flatten(1))
        return self.logits(x), self.value(x).squeeze(1)

    step = forward


class LstmFloor(nn.Module):
    """Observations to logits and values through two tanh layers and an LSTM."""

    def __init__(self, obs_size: int, n: int, hiddens: Sequence[int], cell: int) -> None:
        super().__init__()
        self.trunk, width = _trunk(obs_size, hiddens)
        self.lstm = nn.LSTM(width, cell, batch_first=True)
        self.lstm.bias_hh_l0.requires_grad_(False).zero_()  # one of the two biases is enough
        self.logits, self.value = nn.Linear(cell, n), nn.Linear(cell, 1)
        self.names = {**_TRUNK, **_ENDS, "lstm.bias_ih_l0": "cell.bias"}
        self.names |= {"lstm.weight_ih_l0": "cell.weight_ih", "lstm.weight_hh_l0": "cell.weight_hh"}

    def step(self, obs: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        """Take one step: `[B, obs]`, the states `[B, cell]`."""
        lstm = self.lstm
        weights = (lstm.weight_ih_l0, lstm.weight_hh_l0, lstm.bias_ih_l0, lstm.bias_hh_l0)
        h, c = torch.lstm_cell(self.trunk(obs), (h, c), *weights)
        return self.logits(h), self.value(h).squeeze(1), h, c

    def forward(self, obs: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Run over padded sequences `[S, T, obs]`; returns logits `[S * T, n]` and values
        `[S * T]`.
        """
        y, _ = self.lstm(self.trunk(obs), (h[None], c[None]))
        y = y.flatten(0, 1)
        return self.logits(y), self.value(y).squeeze(1)


class AttentionFloor(nn.Module):
    """Observations to logits and values through two tanh layers and one gated transformer unit of
    one head.

    Each step it projects the whole window to keys, values and positions, which is what the modules
    say.
    """

    table: Tensor
    places: Tensor

    def __init__(
        self,
        obs_size: int,
        n: int,
        hiddens: Sequence[int],
        dim: int = 64,
        head: int = 32,
        slots: int = 50,
        mlp: int = 32,
    ) -> None:
        super().__init__()
        self.trunk, width = _trunk(obs_size, hiddens)
        self.input = nn.Linear(width, dim)
        self.query, self.key_value = (
            nn.Linear(dim, head, bias=False),
            nn.Linear(dim, 2 * head, bias=False),
        )
        self.position, self.output = (
            nn.Linear(dim, head, bias=False),
            nn.Linear(head, dim, bias=False),
        )
        self.content_bias, self.position_bias = (
            nn.Parameter(torch.zeros(1, head)) for _ in range(2)
        )
        self.norm, self.mlp_norm = nn.LayerNorm(dim, 1e-5), nn.LayerNorm(dim, 1e-5)
        self.gate, self.mlp_gate = GateFloor(dim), GateFloor(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, mlp), _relu(), nn.Linear(mlp, dim), _relu())
        self.logits, self.value = nn.Linear(dim, n), nn.Linear(dim, 1)
        self.slots, self.scale = slots, head**-0.5
        angles = torch.arange(slots, -1, -1.0)[:, None] * 10000.0 ** (
            -torch.arange(0, dim, 2) / dim
        )
        self.register_buffer(
            "table", torch.cat([angles.sin(), angles.cos()], dim=1), persistent=False
        )
        self.register_buffer("places", torch.arange(slots + 1.0), persistent=False)
        unit = "transformer.units.0."
        self.names = {
            **_TRUNK,
            **_ENDS,
            "input": "transformer.input",
            "norm": f"{unit}attention.norm",
            "mlp_norm": f"{unit}norm",
            "gate": f"{unit}attention_gate",
            "mlp_gate": f"{unit}mlp_gate",
            "mlp.0": f"{unit}mlp.layers.0",
            "mlp.2": f"{unit}mlp.layers.1",
            "content_bias": f"{unit}attention.content_bias",
            "position_bias": f"{unit}attention.position_bias",
            "query.weight": f"{unit}attention.query",
            "key_value.weight": (f"{unit}attention.key", f"{unit}attention.value"),
            "position.weight": f"{unit}attention.position",
            "output.weight": f"{unit}attention.output",
        }

    def step(self, obs: Tensor, memory: Tensor, held: Tensor) -> tuple[Tensor, ...]:
        """Take one step: `[B, obs]`, the memory `[B, 1, slots, dim]`, the number of steps it holds
        `[B]`.
        """
        x = self.input(self.trunk(obs))
        seen = torch.cat([memory[:, 0], x[:, None]], dim=1)
        normal = self.norm(seen)
        query, (key, value) = self.query(normal[:, -1:]), self.key_value(normal).chunk(2, dim=2)
        scores = (query + self.position_bias) @ self.position(self.table).t()
        scores = torch.baddbmm(scores, query + self.content_bias, key.transpose(1, 2))
        hidden = (self.places < (self.slots - held)[:, None])[:, None]
        weights = (scores * self.scale).masked_fill_(hidden, -math.inf).softmax(dim=2)
        x = self._unclaimed(x, (weights @ value)[:, 0])
        return (
            self.logits(x),
            self.value(x).squeeze(1),
            seen[:, None, 1:],
            (held + 1).clamp_(max=self.slots),
        )

    def forward(self, obs: Tensor, memory: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
        """Run over padded sequences `[S, T, obs]`; returns logits `[S * T, n]` and values
        `[S * T]`.
        """
        sequences, length, _ = obs.shape
        x = self.input(self.trunk(obs))
        normal = self.norm(torch.cat([memory[:, 0], x], dim=1))
        query, (key, value) = (
            self.query(normal[:, self.slots :]),
            self.key_value(normal).chunk(2, dim=2),
        )
        # Step t sees the keys t, …, t + slots; the distances move one place to the right from step
        # to step.
        keys = self.slots + length
        scores = F.pad((query + self.position_bias) @ self.position(self.table).t(), (0, length))
        scores = scores.view(sequences, -1)[:, : length * keys].view(sequences, length, keys)
        scores = torch.baddbmm(scores, query + self.content_bias, key.transpose(1, 2))
        later = torch.arange(keys) - torch.arange(length)[:, None]
        hidden = (
            (later < 0)
            | (later > self.slots)
            | (torch.arange(keys) < (self.slots - held)[:, None])[:, None]
        )
        weights = (scores * self.scale).masked_fill(hidden, -math.inf).softmax(dim=2)
        x = self._unclaimed(x.flatten(0, 1), (weights @ value).flatten(0, 1))
        return self.logits(x), self.value(x).squeeze(1)

    def _unclaimed(self, x: Tensor, found: Tensor) -> Tensor:
        x = self.gate(x, self.output(found).relu_())
        return self.mlp_gate(x, self.mlp(self.mlp_norm(x)))


class GateFloor(nn.Module):
    """A GRU as a gate."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.w, self.u = (
            nn.Parameter(torch.zeros(3 * dim, dim)),
            nn.Parameter(torch.zeros(2 * dim, dim)),
        )
        self.u_candidate, self.bias = (
            nn.Parameter(torch.zeros(dim, dim)),
            nn.Parameter(torch.zeros(dim)),
        )
        self.dim = dim

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Map two `[B, dim]` to one."""
        gates, candidate = F.linear(y, self.w).split([2 * self.dim, self.dim], dim=1)
        r, z = torch.addmm(gates, x, self.u.t()).chunk(2, dim=1)
        candidate = torch.addmm(candidate, r.sigmoid() * x, self.u_candidate.t()).tanh()
        return torch.lerp(x, candidate, (z - self.bias).sigmoid())


_ENDS = {"logits": "outputs.logits", "value": "outputs.value"}
_TRUNK = {"trunk.0": "trunk.hidden.layers.0", "trunk.2": "trunk.hidden.layers.1"}


def _relu() -> nn.ReLU:
    return nn.ReLU(inplace=True)


def _trunk(obs_size: int, hiddens: Sequence[int]) -> tuple[nn.Sequential, int]:
    first, second = hiddens
    return nn.Sequential(
        nn.Linear(obs_size, first), nn.Tanh(), nn.Linear(first, second), nn.Tanh()
    ), second


@torch.no_grad()
def adopt(net: Any, weights: Mapping[str, Array]) -> None:
    """Copy a catalog model's weights (`get_weights`) into a floor's modules."""
    left = set(weights)
    for name, tensor in net.named_parameters():
        owner, _, kind = name.rpartition(".")
        theirs = net.names.get(name) or (
            net.names[owner] + "." + kind if owner in net.names else None
        )
        if theirs is None:
            continue  # the LSTM's second bias
        parts = (theirs,) if isinstance(theirs, str) else theirs
        value = torch.cat([torch.from_numpy(weights[part]) for part in parts])
        if value.dim() == 4 and tensor.dim() == 2:  # a convolution as a dense layer: channels last
            value = value.permute(0, 2, 3, 1).flatten(1)
        tensor.copy_(value)
        left -= set(parts)
    assert not left, f"weights the floor has no place for: {sorted(left)}"


class ActFloor:
    """Bare modules and a fused draw under `inference_mode`, NumPy in and out, states included."""

    def __init__(self, net: Any) -> None:
        self.net = net

    @torch.inference_mode()
    def act(self, obs: Array, *state: Array) -> tuple[Act, tuple[Array, ...]]:
        """Act on observations `[B, ...]`; returns what a step takes, and the state after it."""
        logits, value, *state_after = self.net.step(
            torch.from_numpy(obs), *map(torch.from_numpy, state)
        )
        logps = logits.log_softmax(-1)
        action = torch_draw(logps)
        logp = logps.gather(-1, action).squeeze(-1)
        found = action.squeeze(-1).numpy(), logp.numpy(), value.numpy(), logits.numpy()
        return found, tuple(part.numpy() for part in state_after)


def ppo_loss(logp: Tensor, entropy: Tensor, value: Tensor, batch: Batch) -> Tensor:
    """Return PPO's loss of rows `[R]`; where the batch has a mask, of the rows in it."""
    ratio, advantage = (logp - batch["logp"]).exp(), batch["advantage"]
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    loss = VALUE_WEIGHT * (value - batch["target"]).square() - surrogate - ENTROPY_WEIGHT * entropy
    return (
        loss.mean() if "mask" not in batch else (loss * batch["mask"]).sum() / batch["mask"].sum()
    )


def evaluated(net: Any, batch: Batch, state: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return logp and entropy of a floor's policy, and its values, row by row."""
    logits, value = net(batch["obs"], *state)
    logps = logits.log_softmax(-1)
    logp = logps.gather(-1, batch["action"][:, None]).squeeze(-1)
    return logp, -(logps.exp() * logps).sum(-1), value


def training_step(
    evaluate: Callable[[], tuple[Tensor, Tensor, Tensor]],
    batch: Batch,
    clear: Callable[[], object],
    update: Callable[[], object],
) -> Callable[[], Tensor]:
    """Return a training step: forward, loss, backward, and the optimiser's `clear` (before
    backward) and `update`.
    """

    def step() -> Tensor:
        loss = ppo_loss(*evaluate(), batch)
        clear()
        loss.backward()
        update()
        return loss.detach()

    return step


def adam(parameters: Sequence[nn.Parameter]) -> Optimizer:
    """Return PyTorch's Adam."""
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=True)
    return optimizer.zero_grad, optimizer.step
