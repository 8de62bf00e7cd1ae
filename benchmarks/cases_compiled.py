"""`torch.compile(policy.as_module())` against a compiled module written by hand, without
gradients: both return normalised log probabilities and values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

import rlcatalog
from benchmarks import floors
from benchmarks.harness import Case, Result, report

OBS, ACTIONS, HIDDENS, CELL = gym.spaces.Box(-1, 1, (8,)), 5, [256, 256], 256
BATCHES = (1, 64)
#: Largest ratio to the module written by hand.
BUDGET = 1.1


class BareNet(nn.Module):
    """Dense layers, then logits and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.logits, self.value = floors.build_torch(8, ACTIONS, HIDDENS)

    def forward(self, obs: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map `[B, 8]` to log probabilities `[B, n]` and values `[B]`."""
        features = self.trunk(obs)
        logits = self.logits(features)
        if mask is not None:
            logits = torch.where(mask, logits, torch.finfo(logits.dtype).min)
        return logits.log_softmax(-1), self.value(features).squeeze(-1)


class BareLSTM(nn.Module):
    """One LSTM cell, then logits and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, CELL)
        self.logits, self.value = nn.Linear(CELL, ACTIONS), nn.Linear(CELL, 1)

    def forward(self, obs: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Any, ...]:
        """Map `[B, 8]` and a state to log probabilities `[B, n]`, values `[B]` and a state."""
        h, c = self.cell(obs, state)
        return self.logits(h).log_softmax(-1), self.value(h).squeeze(-1), (h, c)


class BareModel(nn.Module):
    """A policy's model with the same distribution, without the rest of the policy."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.model, self.dist_class = policy.model, policy.dist_class

    def forward(self, obs: Tensor) -> tuple[Any, Tensor]:
        """Map `[B, 8]` to a distribution and values `[B]`."""
        outputs, _ = self.model({"obs": obs, "is_training": self.training}, [], None)
        return self.dist_class(outputs, self.model), self.model.value_function()


def compiled(module: nn.Module) -> Any:
    """Return a module as one graph."""
    return torch.compile(module, fullgraph=True, dynamic=False)


def policy_of(config: dict[str, Any]) -> Any:
    """Return a policy with five actions."""
    return rlcatalog.build(OBS, gym.spaces.Discrete(ACTIONS), config, "torch")


def cases() -> Iterator[Case]:
    """A net, with masks and without, and an LSTM that goes from step to step."""
    for batch in BATCHES:
        obs = torch.rand(batch, 8)
        mask = torch.ones(batch, ACTIONS, dtype=torch.bool)
        policy = policy_of({"fcnet_hiddens": HIDDENS})
        ours, bare = compiled(policy.as_module()), compiled(BareModel(policy))
        yield Case(
            "compiled, fcnet, to its model",
            lambda ours=ours, obs=obs: ours(obs),
            lambda bare=bare, obs=obs: bare(obs),
            BUDGET,
            str(batch),
        )
        bare = compiled(BareNet())
        yield Case(
            "compiled, fcnet",
            lambda ours=ours, obs=obs: ours(obs),
            lambda bare=bare, obs=obs: bare(obs),
            BUDGET,
            str(batch),
        )
        yield Case(
            "compiled, masked",
            lambda ours=ours, obs=obs, mask=mask: ours(obs, mask),
            lambda bare=bare, obs=obs, mask=mask: bare(obs, mask),
            BUDGET,
            str(batch),
        )
        policy = policy_of({"fcnet_hiddens": [], "use_lstm": True, "lstm_cell_size": CELL})
        ours, bare = compiled(policy.as_module()), compiled(BareLSTM())
        state = (torch.zeros(batch, CELL), torch.zeros(batch, CELL))
        yield Case(
            "compiled, LSTM",
            lambda ours=ours, obs=obs, state=state: ours(obs, state=state),
            lambda bare=bare, obs=obs, state=state: bare(obs, state),
            BUDGET,
            str(batch),
        )


def run() -> list[Result]:
    """Print the cases of compiled modules."""
    torch.set_num_threads(1)
    # All policies share the code of one module, of which PyTorch compiles eight variants.
    torch._dynamo.config.recompile_limit = 64
    with torch.no_grad():
        return report([*cases()])
