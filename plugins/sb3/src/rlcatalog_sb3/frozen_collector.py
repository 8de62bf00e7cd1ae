"""Rollouts with a frozen policy: a recorded graph computes actions, values and log densities if it
saves time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlcatalog import Policy, Step
from rlcatalog.errors import ConfigError
from rlcatalog_policy import Frozen
from rlcatalog_torch.private_api import version_of

#: On CartPole, PPO with one environment takes 0.9 times as long; with two or more, stepping
#: dominates. Updating the weights costs as much time as five steps save, so A2C, which learns every
#: five steps, would be slower. Recording the graph takes as long as a thousand steps, so shorter
#: runs do not use it.
MOST_ENVS, FIRST_STEPS, SHORTEST_ROLLOUT = 1, 1000, 64


class FrozenCollector:
    """Collector that acts with a frozen policy and keeps its weights up to date.

    Args:
        policy: The policy.
        frozen: `"auto"` (on the CPU with one environment, from the thousandth step on, if rollouts
            have 64 steps or more), `"always"` or `"never"`.

    Attributes:
        acting: The policy that acts: `policy` itself or its frozen form. If the frozen form is not
            faster, its `reason` explains why.

    Raises:
        ConfigError: `frozen` has any other value.
    """

    def __init__(self, policy: Policy, frozen: str) -> None:
        if frozen not in ("auto", "always", "never"):
            raise ConfigError(
                f"frozen: expected one of 'auto', 'always', 'never', found {frozen!r}."
            )
        self.policy, self.mode = policy, frozen
        self.begin()

    def begin(self) -> None:
        """Return to the policy itself, because its weights have changed."""
        self.acting: Policy | Frozen = self.policy
        model: Any = self.policy.model
        self._weights = [*model.parameters(), *model.buffers()]
        #: Number of steps before freezing, and number of steps since the weights changed.
        self._steps = self._since = self._stamp = 0
        self._open = self.mode != "never" and self.policy.device == "cpu"

    def step(
        self,
        encoded: Tensor,
        mask: Tensor | None,
        deterministic: bool,
        memory: Sequence[Tensor] = (),
    ) -> Step | None:
        """Compute a step; return None if the policy itself must compute it.

        Args:
            encoded: Encoded observations `[B, ...]`.
            mask: Action masks, boolean `[B, m]`, or None.
            deterministic: Whether to take the most likely actions.
            memory: The model's memory for each of the B episodes. The returned step's state
                contains the next memory.
        """
        if not self._open or torch.is_grad_enabled():
            return None
        if not isinstance(self.acting, Frozen) and not self._frozen(len(encoded)):
            return None
        acting: Any = self.acting
        if (stamp := self._now()) != self._stamp:
            if self.mode == "auto" and self._since < SHORTEST_ROLLOUT:
                self.acting, self._open = self.policy, False
                return None
            acting.update()
            self._stamp, self._since = stamp, 0
        self._since += 1
        if (state := acting.initial_state(len(encoded))) is not None:
            state = state._replace(memory=tuple(part.numpy() for part in memory))
        found: Step = acting.act_encoded(
            encoded.numpy(),
            state,
            mask=None if mask is None else mask.numpy(),
            explore=not deterministic,
        )
        self._open = acting.reason is None
        return found

    def _frozen(self, rows: int) -> bool:
        """Freeze the policy if it is time to, and return whether it is frozen."""
        if self.mode == "auto":
            self._steps += 1
            self._open = rows <= MOST_ENVS
            if not self._open or self._steps <= FIRST_STEPS:
                return False
        seed = int(torch.randint(2**31, ()))  # so that the algorithm's seed determines the run
        acting = self.policy.freeze(rows, seed=seed)
        self.acting, self._stamp, self._since = acting, self._now(), SHORTEST_ROLLOUT
        self._open = acting.reason is None
        return self._open

    def _now(self) -> int:
        """Return a number that changes with the weights: the sum of their versions
        and addresses.
        """
        return sum([version_of(weight) + weight.data_ptr() for weight in self._weights])

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the state without the frozen policy, because a copy must freeze its own policy."""
        return FrozenCollector, (self.policy, self.mode)
