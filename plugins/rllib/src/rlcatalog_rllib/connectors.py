"""The two connectors: observations on their way to the module, actions on their way to the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.module_to_env import (
    GetActions,
    ListifyDataForVectorEnv,
    RemoveSingleTsTimeRankFromBatch,
    TensorToNumpy,
    UnBatchToIndividualItems,
)
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from rlcatalog import Catalog, Policy
from rlcatalog.errors import NotServedError
from rlcatalog_rllib.env_runner import check_spaces
from rlcatalog_rllib.filters import merged, since
from rlcatalog_rllib.recipe import Recipe, build_policy
from rlcatalog_rllib.spaces import MASK, OBS, VIEWS, encoded_space, rows_of
from rlcatalog_rllib.views import ViewHistory

Array = np.ndarray[Any, Any]


class EncodeObservations(ConnectorV2):
    """Encodes observations with the catalog's preprocessor, env-to-module.

    What it makes stands in the episodes afterwards: the learner gets it, too. Beside the encoded observation it puts
    the columns of the action mask, and what the model is shown of the past. A filter learns while exploring; its
    statistics are this connector's state, and Ray merges those of all environment runners.

    Args:
        input_observation_space: The environment's observation space.
        input_action_space: Its action space.
        recipe: What the policy is built from.
    """

    def __init__(
        self, input_observation_space: Any = None, input_action_space: Any = None, *, recipe: Recipe, **kwargs: Any
    ) -> None:
        self.recipe = recipe
        self._policy: Policy | None = None
        self._spaces: tuple[Any, Any] = (None, None)
        self._begun: dict[str, Array] = {}
        self._inside = False
        super().__init__(input_observation_space, input_action_space, recipe=recipe, **kwargs)

    def recompute_output_observation_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
        """Return the space of encoded observations; see `rlcatalog_rllib.spaces`."""
        if input_action_space is None:
            return input_observation_space
        given = (input_observation_space, input_action_space)
        if self._policy is None or any(new is not old for new, old in zip(given, self._spaces, strict=True)):
            self._inside = hasattr(input_observation_space, "original_space")
            space = input_observation_space.original_space if self._inside else input_observation_space
            self._policy = build_policy(self.recipe, space, input_action_space)
            self._spaces = given
            self._view_history = ViewHistory(self._policy)
            self._space = encoded_space(self._policy)
            self._plain = self._space is not None and not hasattr(self._space, "spaces")
            if self._policy.filter is not None:
                self._begun = self._policy.filter.get_state()
        return self._space

    def __call__(
        self, *, rl_module: Any, batch: dict[str, Any], episodes: list[Any], explore: bool | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Replace the last observation of each episode."""
        if not isinstance(episodes[0], SingleAgentEpisode):
            raise NotServedError("rlcatalog-rllib serves environments with one agent; found multi-agent episodes.")
        raw = [episode.get_observations(-1) for episode in episodes]
        encoded = self._encoded(raw, bool(explore))
        rows: list[Any] = list(encoded)
        if not self._plain:
            rows = self._with_more(rows, encoded, raw, episodes)
        for episode, row in zip(episodes, rows, strict=True):
            episode.set_observations(at_indices=-1, new_data=row)
            episode.observation_space = self._space
        return batch

    def _encoded(self, raw: list[Any], learn: bool) -> Array:
        assert self._policy is not None
        if not self._inside:
            return self._policy.preprocess(raw, update=learn)
        encoded = np.stack([one[OBS] for one in raw])
        return encoded if self._policy.filter is None else self._policy.filter.filtered(encoded, update=learn)

    def _with_more(self, rows: list[Any], encoded: Array, raw: list[Any], episodes: list[Any]) -> list[Any]:
        policy = self._policy
        assert policy is not None
        found: list[dict[str, Any]] = [{OBS: row} for row in rows]
        if policy.masks.key is not None:
            for one, mask in zip(found, self._masks(policy, raw, episodes), strict=True):
                one[MASK] = mask
        if VIEWS in self._space.spaces:
            views = self._view_history.see(episodes, encoded)
            for one, seen in zip(found, rows_of(views, len(raw)), strict=True):
                one[VIEWS] = seen
        return found

    def _masks(self, policy: Policy, raw: list[Any], episodes: list[Any]) -> list[Array]:
        if self._inside:
            return [one[MASK].astype(np.int8) for one in raw]
        if not any(episode.is_done for episode in episodes):
            found = policy.action_mask(raw)
            assert found is not None
            return list(found.astype(np.int8))
        pairs = zip(raw, episodes, strict=True)
        return [policy.encoder.mask_of(one, over=episode.is_done).astype(np.int8) for one, episode in pairs]

    # --- the filter's statistics -----------------------------------------------------------------------------------

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Return the filter's statistics: all of them, and those that were the same everywhere."""
        if self._policy is None or self._policy.filter is None:
            return {}
        return {"filter": self._policy.filter.get_state(), "begun": dict(self._begun)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take over the statistics."""
        if state and self._policy is not None and self._policy.filter is not None:
            self._policy.filter.set_state(state["filter"])
            self._begun = self._policy.filter.get_state()

    def merge_states(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the statistics of all environment runners together."""
        states = [state for state in states if state]
        if self._policy is None or self._policy.filter is None or not states:
            return {}
        # Each runner's own part is what it learned since it last took over statistics; this connector holds the rest.
        known = self._policy.filter.get_state()
        together = merged([known, *(since(state["begun"], state["filter"]) for state in states)])
        self.set_state({"filter": together})  # Ray keeps it nowhere else where the driver has no runner of its own
        return {"filter": together, "begun": together}


class AdaptActions(ConnectorV2):
    """Maps raw actions, which are stored and scored, to the environment's actions; module-to-env, the last piece."""

    def __call__(self, *, rl_module: Any, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add the environment's actions to a batch with raw ones `[B]` or `[B, width]`."""
        raw = batch[Columns.ACTIONS]
        batch[Columns.ACTIONS_FOR_ENV] = rl_module.policy.action_codec.adapt(raw[:, None] if raw.ndim == 1 else raw)
        return batch


@dataclass(frozen=True)
class _EnvToModule:
    recipe: Recipe

    def __call__(self, env: Any = None, spaces: Any = None, device: Any = None) -> list[ConnectorV2]:
        check_spaces(spaces)
        return [EncodeObservations(recipe=self.recipe)]


def env_to_module(model: Mapping[str, Any] | Recipe | None = None, catalog: Catalog | None = None) -> Any:
    """Return what `config.env_runners(env_to_module_connector=...)` takes.

    Args:
        model: The model config; the same as the module's.
        catalog: The catalog the parts come from; the same as the module's.
    """
    return _EnvToModule(model if isinstance(model, Recipe) else Recipe(dict(model or {}), None, catalog))


def module_to_env(env: Any = None, spaces: Any = None) -> list[ConnectorV2]:
    """Return the module-to-env pipeline: what `config.env_runners(module_to_env_connector=...)` takes is this function.

    It needs `add_default_connectors_to_module_to_env_pipeline=False`: it is Ray's own pipeline less
    NormalizeAndClipActions, which would bring raw actions into the bounds once more.
    """
    return [
        GetActions(), TensorToNumpy(), UnBatchToIndividualItems(), RemoveSingleTsTimeRankFromBatch(),
        ListifyDataForVectorEnv(), AdaptActions(),
    ]  # fmt: skip
