"""Encoding of recorded episodes for the BC and MARWIL learners, identical to an environment
runner's encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat

import numpy as np
import tree  # type: ignore[import-untyped]
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from rlcatalog import Policy
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Array, TensorTree
from rlcatalog_rllib.connectors import MakeConnectors, call_users_function
from rlcatalog_rllib.spaces import Space, encoded_rows, has_views, raw_action_space, rows_of


class EncodeEpisodes(ConnectorV2):
    """Learner connector that encodes the observations of recorded episodes, and converts their
    actions to raw actions.

    Recorded episodes contain the environment's observations and actions, which the trained module's
    policy encodes. Episodes that were recorded with the catalog's connectors already contain
    encoded observations and raw actions, and do not change. If the environment's space also
    contains their observations, only the episodes' action space shows that they are encoded. Ray's
    tables with a row for each step do not store it, so record such data as episodes.
    """

    def __call__(
        self, *, rl_module: RLModule, batch: dict[str, Any], episodes: list[Any], **kwargs: Any
    ) -> dict[str, Any]:
        """Replace the recorded episodes in the list with encoded ones."""
        module: Any = rl_module
        if isinstance(rl_module, MultiRLModule):
            module = rl_module[DEFAULT_MODULE_ID]
        for number, episode in enumerate(episodes):
            if not isinstance(episode, SingleAgentEpisode):
                raise NotServedError(
                    "EncodeEpisodes: found episodes of several agents, but BC and MARWIL train"
                    " only one."
                )
            if not _is_encoded(episode, module.policy, module.observation_space):
                episodes[number] = _encode_episode(episode, module.policy, module.observation_space)
        return batch


def _is_encoded(episode: SingleAgentEpisode, policy: Policy, encoded_space: Space) -> bool:
    """Return whether an episode already has encoded observations and raw actions.

    Args:
        episode: The recorded episode.
        policy: The policy of the trained module.
        encoded_space: The space of the module's observations.
    """
    raw_actions = raw_action_space(policy)
    if raw_actions != policy.action_space and episode.action_space == raw_actions:
        return True
    first = _steps_of(episode.get_observations())[0]
    # Gymnasium warns about an observation of another form, so the second space is asked only if the
    # first one does not contain the observation.
    is_from_env = policy.observation_space.contains(first)
    return not is_from_env and encoded_space.contains(first)


def _encode_episode(
    episode: SingleAgentEpisode, policy: Policy, encoded_space: Space
) -> SingleAgentEpisode:
    """Return an episode with encoded observations and raw actions.

    Args:
        episode: The recorded episode.
        policy: The policy of the trained module.
        encoded_space: The space of the module's observations.
    """
    raw_actions = _raw_actions(_steps_of(episode.get_actions()), policy)
    rewards: list[SupportsFloat] = [float(reward) for reward in episode.get_rewards()]
    observations = _steps_of(episode.get_observations())
    encoded = policy.preprocess(observations)
    masks = None
    if policy.masks.key is not None:
        masks = _masks(observations, policy, is_done=episode.is_done)
    views = None
    if has_views(encoded_space):
        views = _views(encoded, raw_actions, rewards, policy)
    is_single_choice = policy.action_codec.scalar
    # A slice of Ray's buffer has no steps from before the episode's start.
    extra_outputs = {
        name: _steps_of(column[:]) for name, column in episode.extra_model_outputs.items()
    }
    encoded_episode = SingleAgentEpisode(
        id_=episode.id_,
        observations=encoded_rows(encoded, mask=masks, views=views),
        actions=list(raw_actions[:, 0] if is_single_choice else raw_actions),
        rewards=rewards,
        infos=episode.get_infos(),
        terminated=episode.is_terminated,
        truncated=episode.is_truncated,
        len_lookback_buffer=0,  # it has no steps from before its start
        extra_model_outputs=extra_outputs,
        observation_space=encoded_space,
        action_space=raw_action_space(policy),
        t_started=episode.t_started,
    )
    return encoded_episode.to_numpy() if episode.is_numpy else encoded_episode


def _raw_actions(actions: list[Any], policy: Policy) -> Array:
    """Return the raw actions `[T, width]` for T actions of the environment."""
    if not actions:
        return np.zeros((0, policy.action_codec.width))
    batch = tree.map_structure(lambda *leaves: np.stack(leaves), *actions)
    return np.asarray(policy.raw_action(batch)).reshape(len(actions), -1)


def _masks(observations: list[Any], policy: Policy, *, is_done: bool) -> list[Array]:
    """Return the columns of the observations' action masks.

    Args:
        observations: All observations of an episode.
        policy: The policy.
        is_done: Whether the episode is over. If so, no action follows its last observation, whose
            mask need not allow any.
    """
    masks = []
    for t, obs in enumerate(observations):
        is_last = is_done and t == len(observations) - 1
        masks.append(policy.encoder.mask_of(obs, over=is_last).astype(np.int8))
    return masks


def _views(
    encoded: Array, raw_actions: Array, rewards: Sequence[SupportsFloat], policy: Policy
) -> list[Any]:
    """Return the views of the past for each of an episode's observations.

    Args:
        encoded: The encoded observations `[T + 1, ...]`.
        raw_actions: The raw actions `[T, width]`.
        rewards: The rewards of the T steps.
        policy: The policy whose model requests the views.
    """
    rows: list[Any] = []
    history = policy.views.start(1)  # of one environment
    for t in range(len(encoded)):
        if t > 0:
            history = policy.views.after(history, encoded[t - 1 : t], raw_actions[t - 1 : t])
            history = policy.views.rewarded(history, [float(rewards[t - 1])])
        views = policy.views.see(history, encoded[t : t + 1])
        rows += rows_of(views, count=1)
    return rows


@dataclass(frozen=True)
class EpisodesToLearner:
    """Factory for the first learner connectors: the user's, then `EncodeEpisodes`.

    Attributes:
        own: The user's function for this pipeline, or None.
    """

    own: MakeConnectors | None = None

    def __call__(
        self, observation_space: Space | None = None, action_space: Space | None = None
    ) -> list[ConnectorV2]:
        own = call_users_function(self.own, observation_space, action_space)
        return [*own, EncodeEpisodes()]


def refuse_filter(policy: Policy) -> None:
    """Reject an observation filter, because its statistics would come from recorded data.

    Raises:
        NotServedError: The policy has a filter.
    """
    if policy.filter is not None:
        raise NotServedError(
            "observation_filter: BC and MARWIL read data in several processes, whose statistics"
            " Ray does not merge. Remove it, or normalise the recorded observations beforehand."
        )


def _steps_of(column: TensorTree) -> list[Any]:
    """Convert a column to a list of steps.

    Ray stores either a list, or arrays in the structure of one step.
    """
    if isinstance(column, list):
        return column
    if isinstance(column, np.ndarray):
        return list(column)
    step_count = len(tree.flatten(column)[0])
    return rows_of(column, step_count)
