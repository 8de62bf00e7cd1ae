"""Stepper of an `Actor`: as a policy's, for what a file can do."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcatalog.frameworks import Step
from rlcatalog_policy import Stepper

Array = np.ndarray[Any, Any]


class ActorStepper(Stepper):
    """Acts in `n` environments and keeps their states, over the ends of episodes; see `Stepper`."""

    def _beside(self, obs: Any, idle: Array, prev_reward: Any, mask: Any, explore: bool) -> Step:
        """Act everywhere: in idle rows everything is allowed, and the value is that of what was seen there."""
        actor: Any = self.policy
        if idle.any() and actor.masks.size:
            mask = actor.masks.of(obs, idle) if mask is None else actor.masks.matrix(mask, self.n, idle)
        return actor.act(obs, self.state, prev_reward=prev_reward, mask=mask, explore=explore)  # type: ignore[no-any-return]
