"""Encoders for a module's observations and action masks, and its views of the past."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlcatalog import Policy
from rlcatalog_rllib.filters import merged, since
from rlcatalog_rllib.recipe import Recipe, build_policy
from rlcatalog_rllib.spaces import MASK, OBS, VIEWS, encoded_rows, encoded_space, rows_of

Array = np.ndarray[Any, Any]


class EpisodeEncoder:
    """Encoder that replaces one module's observations in the episodes with encoded ones.

    Args:
        recipe: The recipe from which to build the module's policy.
        observation_space: The environment's observation space for this module.
        action_space: Its action space.

    Attributes:
        policy: The policy.
        space: Space of encoded observations; see `rlcatalog_rllib.spaces`.
    """

    def __init__(self, recipe: Recipe, observation_space: Any, action_space: Any) -> None:
        self._made_of = recipe, observation_space, action_space
        self._inside = hasattr(observation_space, "original_space")
        own = observation_space.original_space if self._inside else observation_space
        self.policy = build_policy(recipe, own, action_space)
        self.space = encoded_space(self.policy)
        self._history = ViewHistory(self.policy)
        self._histories: dict[Any, ViewHistory] = {}
        self._begun: dict[str, Array] = (
            {} if self.policy.filter is None else self.policy.filter.get_state()
        )

    def encode(self, episodes: Sequence[Any], learn: bool, *, in_step: bool = True) -> None:
        """Replace the last observation of each episode.

        Args:
            episodes: Ray's episodes, each with one agent.
            learn: Whether the filter learns from these observations.
            in_step: Whether every call passes all episodes of a vector environment. If False, each
                episode's past is tracked separately.
        """
        raw = [episode.get_observations(-1) for episode in episodes]
        encoded = self._encoded(raw, learn)
        views = (
            self._views(episodes, encoded, in_step)
            if VIEWS in getattr(self.space, "spaces", ())
            else None
        )
        rows = encoded_rows(encoded, mask=self._masks(raw, episodes), views=views)
        for episode, row in zip(episodes, rows, strict=True):
            episode.set_observations(at_indices=-1, new_data=row)
            episode.observation_space = self.space

    def _encoded(self, raw: list[Any], learn: bool) -> Array:
        if not self._inside:
            return self.policy.preprocess(raw, update=learn)
        encoded = np.stack([one[OBS] for one in raw])
        return (
            encoded
            if self.policy.filter is None
            else self.policy.filter.filtered(encoded, update=learn)
        )

    def _masks(self, raw: list[Any], episodes: Sequence[Any]) -> Iterable[Array] | None:
        if self.policy.masks.key is None:
            return None
        if self._inside:
            return [one[MASK].astype(np.int8) for one in raw]
        if not any(episode.is_done for episode in episodes):
            return np.asarray(self.policy.action_mask(raw)).astype(np.int8)
        pairs = zip(raw, episodes, strict=True)
        return [
            self.policy.encoder.mask_of(one, over=episode.is_done).astype(np.int8)
            for one, episode in pairs
        ]

    def _views(self, episodes: Sequence[Any], encoded: Array, in_step: bool) -> list[Any]:
        if in_step:
            return rows_of(self._history.see(list(episodes), encoded), len(episodes))
        found = []
        for episode, row in zip(episodes, encoded, strict=True):
            history = self._histories.setdefault(episode.id_, ViewHistory(self.policy))
            found += rows_of(history.see([episode], row[None]), 1)
            if episode.is_done:
                del self._histories[episode.id_]
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return EpisodeEncoder, self._made_of, self.get_state()

    # --- the filter's statistics ------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return the filter's current statistics and the statistics after the last merge."""
        if self.policy.filter is None:
            return {}
        return {"filter": self.policy.filter.get_state(), "begun": dict(self._begun)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the statistics."""
        if state and self.policy.filter is not None:
            self.policy.filter.set_state(state["filter"])
            self._begun = self.policy.filter.get_state()

    __setstate__ = set_state

    def merge_states(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the merged statistics of all environment runners."""
        states = [state for state in states if state]
        if self.policy.filter is None or not states:
            return {}
        # Each runner contributes the statistics collected since they were last set; this one has
        # the rest.
        known = self.policy.filter.get_state()
        together = merged([known, *(since(state["begun"], state["filter"]) for state in states)])
        # Ray does not store it elsewhere if the driver has no runner.
        self.set_state({"filter": together})
        return {"filter": together, "begun": together}


class ViewHistory:
    """History of recent steps in an environment runner's episodes.

    Args:
        policy: The policy whose model requests views.
    """

    def __init__(self, policy: Policy) -> None:
        self._views = policy.views
        self._history: Any = None
        self._obs: Array | None = None
        #: Id and time step of each environment's episode in the last call.
        self._seen: list[tuple[str, int]] = []

    def see(self, episodes: list[Any], obs: Array) -> dict[str, Any]:
        """Record the last step, and return the current views `[B, ...]`.

        Args:
            episodes: Ray's episodes, one per environment.
            obs: The episodes' current encoded observations `[B, ...]`.
        """
        rows = len(episodes)
        now = [(episode.id_, episode.t) for episode in episodes]
        before = self._seen if len(self._seen) == rows else [("", 0)] * rows
        went_on = np.array([new == (id_, t + 1) for new, (id_, t) in zip(now, before, strict=True)])
        if self._history is None or len(self._history.t) != rows or self._obs is None:
            self._history, went_on = self._views.start(rows), np.zeros(rows, np.bool_)
        elif went_on.any():
            taken = [
                np.reshape(e.get_actions(-1), -1) if on else None
                for e, on in zip(episodes, went_on, strict=True)
            ]
            none = np.zeros_like(next(action for action in taken if action is not None))
            actions = np.stack([none if action is None else action for action in taken])
            self._history = self._views.after(self._history, self._obs, actions)
        if not went_on.all():
            self._history = self._views.restart(self._history, ~went_on)
        if self._views.reads_rewards:
            rewards = [
                episode.get_rewards(-1) if on else 0.0
                for episode, on in zip(episodes, went_on, strict=True)
            ]
            self._history = self._views.rewarded(self._history, rewards)
        self._obs, self._seen = obs, now
        return self._views.see(self._history, obs)
