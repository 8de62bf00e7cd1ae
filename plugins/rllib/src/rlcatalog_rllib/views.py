"""The views of the past that models ask for (`view_requirements`), served to Ray's modules inside the observation."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcatalog import Policy

Array = np.ndarray[Any, Any]


class ViewHistory:
    """Keeps the last steps of the episodes of one environment runner.

    Args:
        policy: Whose model asks for views.
    """

    def __init__(self, policy: Policy) -> None:
        self._views = policy.views
        self._history: Any = None
        self._obs: Array | None = None
        #: Id and time step of each environment's episode at the last call.
        self._seen: list[tuple[str, int]] = []

    def see(self, episodes: list[Any], obs: Array) -> dict[str, Any]:
        """Return the views `[B, ...]` from now, after taking in the step that led here.

        Args:
            episodes: Ray's episodes, one for each environment.
            obs: Their encoded observations of now `[B, ...]`.
        """
        rows = len(episodes)
        now = [(episode.id_, episode.t) for episode in episodes]
        before = self._seen if len(self._seen) == rows else [("", 0)] * rows
        went_on = np.array([new == (id_, t + 1) for new, (id_, t) in zip(now, before, strict=True)])
        if self._history is None or len(self._history.t) != rows or self._obs is None:
            self._history, went_on = self._views.start(rows), np.zeros(rows, np.bool_)
        elif went_on.any():
            taken = [np.reshape(e.get_actions(-1), -1) if on else None for e, on in zip(episodes, went_on, strict=True)]
            none = np.zeros_like(next(action for action in taken if action is not None))
            actions = np.stack([none if action is None else action for action in taken])
            self._history = self._views.after(self._history, self._obs, actions)
        if not went_on.all():
            self._history = self._views.restart(self._history, ~went_on)
        if self._views.reads_rewards:
            rewards = [episode.get_rewards(-1) if on else 0.0 for episode, on in zip(episodes, went_on, strict=True)]
            self._history = self._views.rewarded(self._history, rewards)
        self._obs, self._seen = obs, now
        return self._views.see(self._history, obs)
