"""Returns and lengths of episodes, both finished and in progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlcatalog.frameworks import Array

#: Number of finished episodes that means are taken over.
_RECENT_EPISODES = 100


@dataclass
class Episodes:
    """Record of finished episodes' returns and lengths.

    Attributes:
        returns: Undiscounted returns of the last 100 episodes.
        lengths: Lengths of the last 100 episodes in steps.
        total: Number of finished episodes.
    """

    returns: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT_EPISODES))
    lengths: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT_EPISODES))
    total: int = 0

    def add(self, episode_return: float, length: int) -> None:
        """Add a finished episode."""
        self.returns.append(episode_return)
        self.lengths.append(length)
        self.total += 1

    def get_state(self) -> dict[str, Any]:
        """Return the state as a structure for `trees.take_apart`."""
        return {
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "total": self.total,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Episodes:
        """Return the record whose state `get_state` returned."""
        return cls(
            returns=deque(state["returns"], maxlen=_RECENT_EPISODES),
            lengths=deque(state["lengths"], maxlen=_RECENT_EPISODES),
            total=state["total"],
        )

    def metrics(self) -> dict[str, Any]:
        """Return the number of episodes, and the means over the last 100.

        The means are None before the first episode ends.
        """
        mean_return = float(np.mean(self.returns)) if self.returns else None
        mean_length = float(np.mean(self.lengths)) if self.lengths else None
        return {
            "episodes_total": self.total,
            "episode_return_mean": mean_return,
            "episode_reward_mean": mean_return,  # RLlib's older name
            "episode_len_mean": mean_length,
        }


class EpisodesInProgress:
    """Returns and lengths of N environments' episodes so far.

    Attributes:
        returns: Undiscounted sums of the rewards `[N]`.
        lengths: Numbers of steps `[N]`. The array is changed in place, because errors about an
            environment read from it which step failed.
    """

    def __init__(self, num_envs: int) -> None:
        self.returns = np.zeros(num_envs)
        self.lengths = np.zeros(num_envs, np.int64)

    def add_step(self, reward: Array, *, idle: Array) -> None:
        """Add a step's rewards `[N]`; an idle step does not count for an episode's length."""
        self.returns += reward
        self.lengths += ~idle

    def reset(self, rows: Array) -> None:
        """Begin new episodes in some environments, given as booleans `[N]`."""
        self.returns[rows] = 0.0
        self.lengths[rows] = 0

    def set_state(self, *, returns: Array, lengths: Array) -> None:
        """Restore returns and lengths."""
        self.returns[:] = returns
        self.lengths[:] = lengths
