"""Encoding of recorded episodes for the BC and MARWIL learners, identical to an environment
runner's encoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tree  # type: ignore[import-untyped]
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from rlcatalog.errors import NotServedError
from rlcatalog_rllib.connectors import Pieces, pieces_of
from rlcatalog_rllib.spaces import VIEWS, Array, encoded_rows, rows_of


class EncodeEpisodes(ConnectorV2):
    """Learner connector that encodes the observations of recorded episodes, and converts their
    actions to raw actions.

    Recorded episodes contain the environment's observations and actions, which the trained module's
    policy encodes. Episodes that were recorded with the catalog's connectors already contain
    encoded observations and raw actions, and do not change.
    """

    def __call__(
        self, *, rl_module: Any, batch: dict[str, Any], episodes: list[Any], **kwargs: Any
    ) -> dict[str, Any]:
        """Replace the recorded episodes in the list with encoded ones."""
        module: Any = (
            rl_module[DEFAULT_MODULE_ID] if isinstance(rl_module, MultiRLModule) else rl_module
        )
        self._policy: Any = module.policy
        self._space: Any = module.observation_space
        for number, episode in enumerate(episodes):
            if not isinstance(episode, SingleAgentEpisode):
                raise NotServedError(
                    "EncodeEpisodes: found episodes of several agents, but BC and MARWIL train"
                    " only one."
                )
            observations = _items(episode.get_observations())
            first = observations[0]
            if self._policy.observation_space.contains(first) or not self._space.contains(first):
                episodes[number] = self._encoded(episode, observations)
        return batch

    def _encoded(self, episode: Any, observations: list[Any]) -> SingleAgentEpisode:
        policy = self._policy
        actions, rewards = _items(episode.get_actions()), list(map(float, episode.get_rewards()))
        stacked = tree.map_structure(lambda *parts: np.stack(parts), *actions) if actions else None
        raw = policy.raw_action(stacked) if actions else np.zeros((0, policy.action_codec.width))
        raw = np.asarray(raw).reshape(len(actions), -1)
        scalar = policy.action_codec.scalar
        made = SingleAgentEpisode(
            id_=episode.id_,
            observations=self._rows(observations, raw, rewards, episode.is_done),
            actions=list(raw[:, 0] if scalar else raw),
            rewards=[*rewards],
            infos=episode.get_infos(),
            terminated=episode.is_terminated,
            truncated=episode.is_truncated,
            len_lookback_buffer=0,
            extra_model_outputs={
                name: _items(value[:]) for name, value in episode.extra_model_outputs.items()
            },
            observation_space=self._space,
            action_space=policy.action_space,
            t_started=episode.t_started,
        )
        return made.to_numpy() if episode.is_numpy else made

    def _rows(
        self, observations: list[Any], raw: Array, rewards: list[float], done: bool
    ) -> list[Any]:
        policy, masks, shown = self._policy, None, None
        encoded = policy.preprocess(observations)
        if policy.masks.key is not None:
            over = [*[False] * (len(observations) - 1), done]
            pairs = zip(observations, over, strict=True)
            masks = [policy.encoder.mask_of(obs, over=last).astype(np.int8) for obs, last in pairs]
        if VIEWS in getattr(self._space, "spaces", ()):
            shown, views, history = list[Any](), policy.views, policy.views.start(1)
            for t in range(len(encoded)):
                if t:
                    history = views.after(history, encoded[t - 1 : t], raw[t - 1 : t])
                    history = views.rewarded(history, [rewards[t - 1]])
                shown += rows_of(views.see(history, encoded[t : t + 1]), 1)
        return encoded_rows(encoded, mask=masks, views=shown)


@dataclass(frozen=True)
class EpisodesToLearner:
    """Factory for the first learner connectors: the user's, then `EncodeEpisodes`.

    Attributes:
        own: The user's function for this pipeline, or None.
    """

    own: Pieces | None = None

    def __call__(
        self, observation_space: Any = None, action_space: Any = None
    ) -> list[ConnectorV2]:
        return [*pieces_of(self.own, observation_space, action_space), EncodeEpisodes()]


def refuse_filter(policy: Any) -> None:
    """Reject an observation filter, because its statistics would come from recorded data.

    Raises:
        NotServedError: The policy has a filter.
    """
    if policy.filter is not None:
        raise NotServedError(
            "observation_filter: BC and MARWIL read data in several processes, whose statistics"
            " Ray does not merge. Remove it, or normalise the recorded observations beforehand."
        )


def _items(column: Any) -> list[Any]:
    """Convert a column to a list of steps.

    Ray stores either a list, or arrays in the structure of one step.
    """
    if isinstance(column, list):
        return column
    if isinstance(column, np.ndarray):
        return list(column)
    return rows_of(column, len(tree.flatten(column)[0]))
