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

# These limits for "auto" were measured on CartPole.

#: With one environment, PPO with a frozen policy takes 0.9 times as long. With two or more, the
#: time for stepping the environments dominates.
MOST_ENVS = 1
#: Recording the graph takes as long as a thousand steps, so shorter runs do not use it.
FIRST_STEPS = 1000
#: Updating the weights costs as much time as five steps save, so A2C, which learns every five
#: steps, would be slower.
SHORTEST_ROLLOUT = 64


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
        self.policy = policy
        self.mode = frozen
        self.restart()

    def restart(self) -> None:
        """Return to the policy itself, because its weights may be other tensors now."""
        self.acting: Policy | Frozen = self.policy
        model: Any = self.policy.model
        self._weights: list[Tensor] = [*model.parameters(), *model.buffers()]
        self._weights_version = 0
        self._steps_before_freezing = 0
        self._steps_since_update = 0
        #: Whether a frozen policy acts, now or later in the run.
        self._may_freeze = self.mode != "never" and self.policy.device == "cpu"

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
            deterministic: Whether to take the distribution's deterministic actions.
            memory: The model's memory for each of the B episodes. The returned step's state
                contains the next memory.
        """
        # A recorded graph computes no gradients.
        if not self._may_freeze or torch.is_grad_enabled():
            return None
        rows = len(encoded)
        frozen = self._frozen_policy(rows)
        if frozen is None:
            return None
        self._steps_since_update += 1
        state = frozen.initial_state(rows)
        if state is not None:  # the model has a memory
            state = state._replace(memory=tuple(part.numpy() for part in memory))
        step = frozen.act_encoded(
            encoded.numpy(),
            state,
            mask=None if mask is None else mask.numpy(),
            explore=not deterministic,
        )
        # The first step of a graph may show that its results differ from the policy's.
        self._may_freeze = _is_recorded(frozen)
        return step

    def _frozen_policy(self, rows: int) -> Frozen | None:
        """Return the frozen policy with the current weights, or None if the policy itself must act.

        Args:
            rows: Number of environments.
        """
        frozen = self.acting
        if not isinstance(frozen, Frozen):
            return self._freeze(rows) if self._is_time_to_freeze(rows) else None
        weights_version = self._current_version()
        if weights_version == self._weights_version:
            return frozen
        if self.mode == "auto" and self._steps_since_update < SHORTEST_ROLLOUT:
            # Updates after so few steps cost more time than these steps save.
            self.acting = self.policy
            self._may_freeze = False
            return None
        frozen.update()
        self._weights_version = weights_version
        self._steps_since_update = 0
        return frozen

    def _is_time_to_freeze(self, rows: int) -> bool:
        """Count a step of so many environments, and return whether to freeze the policy now."""
        if self.mode == "always":
            return True
        self._steps_before_freezing += 1
        if rows > MOST_ENVS:
            self._may_freeze = False  # it will never be time
            return False
        return self._steps_before_freezing > FIRST_STEPS

    def _freeze(self, rows: int) -> Frozen | None:
        """Freeze the policy; return None if its step cannot be recorded, so that it would not be
        faster.
        """
        # Drawn from PyTorch's generator, so that the algorithm's seed determines the run.
        seed = int(torch.randint(2**31, ()))
        frozen = self.policy.freeze(rows, seed=seed)
        self.acting = frozen
        self._weights_version = self._current_version()
        # The policy is frozen in the middle of a rollout. Its remaining steps must not look like a
        # short rollout.
        self._steps_since_update = SHORTEST_ROLLOUT
        self._may_freeze = _is_recorded(frozen)
        return frozen if self._may_freeze else None

    def _current_version(self) -> int:
        """Return a number that changes with the weights."""
        # PyTorch counts in-place changes of a tensor; a replaced tensor has another address.
        return sum([version_of(weight) + weight.data_ptr() for weight in self._weights])

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the state without the frozen policy, because a copy must freeze its own policy."""
        return FrozenCollector, (self.policy, self.mode)


def _is_recorded(frozen: Frozen) -> bool:
    """Return whether a frozen policy acts with a recorded graph; otherwise, it has a reason."""
    return frozen.reason is None
