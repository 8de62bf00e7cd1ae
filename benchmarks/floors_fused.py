"""Hand-fused acting of whole models in PyTorch, for scale: what `floors.torch_act_functional` is to
dense layers.

The weights are transposed, joined and scaled copies, blind to later training: code that holds
modules cannot do this.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.floors import torch_draw
from benchmarks.floors_models import Array, AttentionFloor, GateFloor, LstmFloor, VisionFloor

# Observations and states → logits and value side by side, new states.
Step = Callable[..., tuple[Tensor, ...]]
Pair = tuple[Tensor, Tensor]  # bias, transposed weight: what addmm takes


def fused(net: Any) -> Callable[..., Any]:
    """Return what `floors_models.ActFloor(net).act` does, without modules."""
    step: Step = {VisionFloor: _vision, LstmFloor: _lstm, AttentionFloor: _attention}[type(net)](
        net
    )
    n = net.logits.out_features

    @torch.inference_mode()
    def act(obs: Array, *state: Array) -> tuple[Any, tuple[Array, ...]]:
        out, *state_after = step(torch.from_numpy(obs), *map(torch.from_numpy, state))
        logits = out[:, :n]
        logps = logits.log_softmax(-1)
        action = torch_draw(logps)
        logp = logps.gather(-1, action)
        found = action.numpy()[:, 0], logp.numpy()[:, 0], out.numpy()[:, n], logits.numpy()
        return found, tuple(part.numpy() for part in state_after)

    return act


def _pair(*layers: nn.Linear) -> Pair:
    """Return layers of one input as one."""
    weight, bias = (
        torch.cat([getattr(layer, name).detach() for layer in layers])
        for name in ("weight", "bias")
    )
    return bias, weight.t().contiguous()


def _turned(weight: Tensor) -> Tensor:
    return weight.detach().t().contiguous()


def _vision(net: VisionFloor) -> Step:
    convs = [module for module in net.convs if isinstance(module, nn.Conv2d)]
    pads = next((module.padding for module in net.convs if isinstance(module, nn.ZeroPad2d)), None)
    weights = [conv.weight.detach().clone(memory_format=torch.channels_last) for conv in convs]
    weights[0] /= 255
    biases = [conv.bias.detach().clone() for conv in convs if conv.bias is not None]
    dense, ends = _pair(net.dense[0]), _pair(net.logits, net.value)  # type: ignore[arg-type]

    def step(images: Tensor) -> tuple[Tensor, ...]:
        x = images.permute(0, 3, 1, 2).float()
        for i, (weight, bias, conv) in enumerate(zip(weights, biases, convs, strict=True)):
            if i and pads is not None:
                x = F.pad(x, pads)
            x = F.conv2d(x, weight, bias, conv.stride, conv.padding).relu_()
        x = torch.addmm(dense[0], x.permute(0, 2, 3, 1).flatten(1), dense[1]).relu_()
        return (torch.addmm(ends[0], x, ends[1]),)

    return step


def _hidden(trunk: nn.Sequential) -> list[Pair]:
    return [_pair(layer) for layer in trunk if isinstance(layer, nn.Linear)]


def _lstm(net: LstmFloor) -> Step:
    hidden, ends, lstm = _hidden(net.trunk), _pair(net.logits, net.value), net.lstm
    n = lstm.hidden_size
    # The three sigmoids side by side.
    order = torch.arange(4 * n).view(4, n)[[0, 1, 3, 2]].flatten()
    weight = (
        torch.cat([lstm.weight_ih_l0, lstm.weight_hh_l0], dim=1).detach()[order].t().contiguous()
    )
    bias = lstm.bias_ih_l0.detach()[order]

    def step(x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        for b, w in hidden:
            x = torch.addmm(b, x, w).tanh_()
        gates = torch.addmm(bias, torch.cat([x, h], dim=1), weight)
        into, keep, out = gates[:, : 3 * n].sigmoid_().split(n, dim=1)
        c = torch.addcmul(keep * c, into, gates[:, 3 * n :].tanh_())
        h = out * c.tanh()
        return torch.addmm(ends[0], h, ends[1]), h, c

    return step


def _gate(gate: GateFloor) -> Callable[[Tensor, Tensor], Tensor]:
    dim = gate.dim
    w, u, u_candidate = map(_turned, (gate.w, gate.u, gate.u_candidate))
    bias = torch.cat([torch.zeros(dim), -gate.bias.detach()])

    def run(x: Tensor, y: Tensor) -> Tensor:
        projected = y @ w
        r, z = torch.addmm(projected[:, : 2 * dim], x, u).add_(bias).sigmoid_().split(dim, dim=1)
        return torch.lerp(x, torch.addmm(projected[:, 2 * dim :], r * x, u_candidate).tanh_(), z)

    return run


def _attention(net: AttentionFloor) -> Step:
    """The query goes over to the keys' side, as the window is long and the query one; distances are
    projected once.
    """
    hidden, ends, entry = _hidden(net.trunk), _pair(net.logits, net.value), _pair(net.input)
    query, output = _turned(net.query.weight), _turned(net.output.weight)
    key, value = net.key_value.weight.detach().chunk(2)
    value = value.t().contiguous()
    key = key * net.scale
    positions = (net.table @ net.position.weight.detach().t()).t().contiguous() * net.scale
    content_bias, position_bias = net.content_bias.detach(), net.position_bias.detach()
    norm, mlp_norm = (
        (layer.weight.detach(), layer.bias.detach()) for layer in (net.norm, net.mlp_norm)
    )
    mlp, gate, mlp_gate = _hidden(net.mlp), _gate(net.gate), _gate(net.mlp_gate)
    shape, slots = net.norm.normalized_shape, net.slots

    def step(x: Tensor, memory: Tensor, held: Tensor) -> tuple[Tensor, ...]:
        for b, w in hidden:
            x = torch.addmm(b, x, w).tanh_()
        x = torch.addmm(entry[0], x, entry[1])
        seen = torch.cat([memory[:, 0], x[:, None]], dim=1)
        normal = F.layer_norm(seen, shape, *norm, 1e-5)
        asked = normal[:, -1] @ query
        content = (asked + content_bias) @ key
        scores = torch.baddbmm(
            ((asked + position_bias) @ positions)[:, None], content[:, None], normal.transpose(1, 2)
        )
        scores.masked_fill_((net.places < (slots - held)[:, None])[:, None], -math.inf)
        found = ((scores.softmax(dim=2) @ normal)[:, 0] @ value) @ output
        x = gate(x, found.relu_())
        y = F.layer_norm(x, shape, *mlp_norm, 1e-5)
        for b, w in mlp:
            y = torch.addmm(b, y, w).relu_()
        x = mlp_gate(x, y)
        return torch.addmm(ends[0], x, ends[1]), seen[:, None, 1:], (held + 1).clamp_(max=slots)

    return step
