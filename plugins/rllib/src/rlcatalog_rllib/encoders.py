"""Encoders for a module's observations and action masks, and its views of the past."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from rlcatalog import Policy
from rlcatalog.frameworks import Array
from rlcatalog_rllib.filters import merged, since
from rlcatalog_rllib.recipe import Recipe, build_policy
from rlcatalog_rllib.spaces import (
    MASK,
    OBS,
    Space,
    encoded_rows,
    encoded_space,
    has_views,
    raw_action_space,
    rows_of,
)


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

    def __init__(self, recipe: Recipe, observation_space: Space, action_space: Space) -> None:
        self._arguments = (recipe, observation_space, action_space)
        # Ray cannot batch the observations of some spaces, so `EncodedInside` encodes them in the
        # environment. Only its space, and those of encoded observations, have this attribute.
        original_space: Space | None = getattr(observation_space, "original_space", None)
        self._is_encoded_in_env = original_space is not None
        env_space = observation_space if original_space is None else original_space
        self.policy = build_policy(recipe, env_space, action_space)
        self.space = encoded_space(self.policy)
        self._raw_actions = raw_action_space(self.policy)
        self._has_views = has_views(self.space)
        # The past of a vector environment's episodes, or of each episode; see `encode`.
        self._history = ViewHistory(self.policy)
        self._history_by_episode: dict[Any, ViewHistory] = {}
        #: The filter's statistics after the last merge, or at the start.
        self._merged_statistics: dict[str, Array] = {}
        if self.policy.filter is not None:
            self._merged_statistics = self.policy.filter.get_state()

    def encode(
        self, episodes: Sequence[SingleAgentEpisode], learn: bool, *, in_step: bool = True
    ) -> None:
        """Replace the last observation of each episode, and the spaces of the episode.

        Args:
            episodes: Ray's episodes, each with one agent.
            learn: Whether the filter learns from these observations.
            in_step: Whether every call passes all episodes of a vector environment. If False, each
                episode's past is tracked separately.
        """
        observations = [episode.get_observations(-1) for episode in episodes]
        encoded = self._encode(observations, learn)
        views = None
        if self._has_views:
            if in_step:
                views = self._views_in_step(episodes, encoded)
            else:
                views = self._views_by_episode(episodes, encoded)
        masks = self._masks(observations, episodes)
        rows = encoded_rows(encoded, mask=masks, views=views)
        for episode, row in zip(episodes, rows, strict=True):
            episode.set_observations(at_indices=-1, new_data=row)
            episode.observation_space = self.space
            episode.action_space = self._raw_actions

    def _encode(self, observations: list[Any], learn: bool) -> Array:
        """Return encoded and filtered observations `[B, ...]`."""
        if not self._is_encoded_in_env:
            return self.policy.preprocess(observations, update=learn)
        encoded = np.stack([obs[OBS] for obs in observations])
        if self.policy.filter is None:
            return encoded
        return self.policy.filter.filtered(encoded, update=learn)

    def _masks(
        self, observations: list[Any], episodes: Sequence[SingleAgentEpisode]
    ) -> Iterable[Array] | None:
        """Return the columns of the observations' action masks, or None if they have no masks."""
        if self.policy.masks.key is None:
            return None
        if self._is_encoded_in_env:
            return [obs[MASK].astype(np.int8) for obs in observations]
        if not any(episode.is_done for episode in episodes):
            # All masks can be read at once, which is faster.
            return np.asarray(self.policy.action_mask(observations)).astype(np.int8)
        # After the end of an episode, the mask need not allow any action.
        masks = []
        for obs, episode in zip(observations, episodes, strict=True):
            mask = self.policy.encoder.mask_of(obs, over=episode.is_done)
            masks.append(mask.astype(np.int8))
        return masks

    def _views_in_step(self, episodes: Sequence[SingleAgentEpisode], encoded: Array) -> list[Any]:
        """Return the views of a vector environment's episodes, which all take a step together."""
        views = self._history.see(episodes, encoded)
        return rows_of(views, len(episodes))

    def _views_by_episode(
        self, episodes: Sequence[SingleAgentEpisode], encoded: Array
    ) -> list[Any]:
        """Return the views of episodes that take steps at different times."""
        rows: list[Any] = []
        for episode, obs in zip(episodes, encoded, strict=True):
            history = self._history_by_episode.setdefault(episode.id_, ViewHistory(self.policy))
            batch_of_one = obs[None]
            views = history.see([episode], batch_of_one)
            rows += rows_of(views, count=1)
            if episode.is_done:
                del self._history_by_episode[episode.id_]
        return rows

    def __reduce__(self) -> tuple[Any, ...]:
        return EpisodeEncoder, self._arguments, self.get_state()

    # --- the filter's statistics ------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Return the filter's current statistics and the statistics after the last merge."""
        if self.policy.filter is None:
            return {}
        return {"filter": self.policy.filter.get_state(), "begun": dict(self._merged_statistics)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the statistics."""
        if state and self.policy.filter is not None:
            self.policy.filter.set_state(state["filter"])
            self._merged_statistics = self.policy.filter.get_state()

    __setstate__ = set_state

    def merge_states(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the merged statistics of all environment runners."""
        states = [state for state in states if state]
        if self.policy.filter is None or not states:
            return {}
        # Each runner contributes what it has collected since the last merge ("begun"). What all
        # runners collected before is in this filter.
        new_statistics = [since(state["begun"], state["filter"]) for state in states]
        together = merged([self.policy.filter.get_state(), *new_statistics])
        # If the driver has no runner, Ray does not store the merged state elsewhere.
        self.set_state({"filter": together})
        return {"filter": together, "begun": together}


class _Step(NamedTuple):
    """Position of an environment in its episode."""

    episode_id: str
    t: int

    def follows(self, last: _Step) -> bool:
        """Return whether this is the step after `last` in the same episode."""
        return self == (last.episode_id, last.t + 1)


class ViewHistory:
    """History of recent steps in an environment runner's episodes.

    Args:
        policy: The policy whose model requests views.
    """

    def __init__(self, policy: Policy) -> None:
        self._views = policy.views
        #: The history, the encoded observations, and each episode's id and time step, as of the
        #: last call; None before the first one.
        self._history: Any = None
        self._obs: Array | None = None
        self._last_steps: list[_Step] = []

    def see(self, episodes: Sequence[SingleAgentEpisode], obs: Array) -> dict[str, Any]:
        """Record the last step, and return the current views `[B, ...]`.

        Args:
            episodes: Ray's episodes, one per environment.
            obs: The episodes' current encoded observations `[B, ...]`.
        """
        count = len(episodes)
        steps = [_Step(episode.id_, episode.t) for episode in episodes]
        has_no_past = self._obs is None or len(self._obs) != count
        if has_no_past:  # the first call, or another number of environments
            self._history = self._views.start(count)
            has_continued = np.zeros(count, np.bool_)
        else:
            has_continued = np.array(
                [step.follows(last) for step, last in zip(steps, self._last_steps, strict=True)]
            )
            if has_continued.any():
                # The past of these episodes now includes their last observation and action.
                assert self._obs is not None  # there was a step before
                actions = _last_actions(episodes, has_continued)
                self._history = self._views.after(self._history, self._obs, actions)
        if not has_continued.all():
            self._history = self._views.restart(self._history, ~has_continued)
        if self._views.reads_rewards:
            rewards = [0.0] * count
            for row in np.flatnonzero(has_continued).tolist():
                rewards[row] = episodes[row].get_rewards(-1)
            self._history = self._views.rewarded(self._history, rewards)
        self._obs = obs
        self._last_steps = steps
        return self._views.see(self._history, obs)


def _last_actions(episodes: Sequence[SingleAgentEpisode], has_continued: Array) -> Array:
    """Return the last raw actions `[B, width]` of episodes; zeros for an episode that did not
    continue.
    """
    rows = np.flatnonzero(has_continued).tolist()
    taken = np.stack([np.reshape(episodes[row].get_actions(-1), -1) for row in rows])
    actions = np.zeros((len(episodes), taken.shape[1]), taken.dtype)
    actions[rows] = taken
    return actions
