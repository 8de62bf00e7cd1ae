"""Connectors: one encodes observations for the module, the other adapts actions for the
environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ray.rllib.connectors import module_to_env as rays
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from rlcatalog import Catalog
from rlcatalog.errors import NotServedError
from rlcatalog_rllib.encoders import EpisodeEncoder
from rlcatalog_rllib.env_runner import check_spaces
from rlcatalog_rllib.recipe import Recipe


class Encoding(ConnectorV2):
    """Base class for connectors that encode observations.

    Their state is the filter statistics for each module.

    Attributes:
        encoders: Each module's encoder.
    """

    encoders: Mapping[str, EpisodeEncoder]

    def get_state(
        self, components: Any = None, *, not_components: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Return the filters' current statistics and their statistics after the last merge."""
        return {name: encoder.get_state() for name, encoder in self.encoders.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the statistics."""
        for name in state.keys() & self.encoders.keys():
            self.encoders[name].set_state(state[name])

    def merge_states(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the merged statistics of all environment runners."""
        merge = {name: encoder.merge_states for name, encoder in self.encoders.items()}
        return {
            name: together([state[name] for state in states if name in state])
            for name, together in merge.items()
        }


class EncodeObservations(Encoding):
    """Env-to-module connector that encodes observations with the catalog's preprocessor.

    It writes the results into the episodes, so that the learner also receives them. It adds the
    action mask's columns and the model's views of the past to the encoded observation. An
    observation filter learns only while exploring. Its statistics are this connector's state, which
    Ray merges across all environment runners.

    Args:
        input_observation_space: The environment's observation space.
        input_action_space: Its action space.
        recipe: The recipe for the policy.
    """

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        recipe: Recipe,
        **kwargs: Any,
    ) -> None:
        self.recipe, self.encoders = recipe, {}
        self._spaces: tuple[Any, Any] = (None, None)
        super().__init__(input_observation_space, input_action_space, recipe=recipe, **kwargs)

    def recompute_output_observation_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        """Return the space of encoded observations; see `rlcatalog_rllib.spaces`."""
        if input_action_space is None:
            return input_observation_space
        given = (input_observation_space, input_action_space)
        if any(new is not old for new, old in zip(given, self._spaces, strict=True)):
            self.encoders, self._spaces = (
                {DEFAULT_MODULE_ID: EpisodeEncoder(self.recipe, *given)},
                given,
            )
        return self.encoders[DEFAULT_MODULE_ID].space

    def __call__(
        self,
        *,
        rl_module: Any,
        batch: dict[str, Any],
        episodes: list[Any],
        explore: bool | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Replace the last observation of each episode."""
        if not isinstance(episodes[0], SingleAgentEpisode):
            raise NotServedError(
                "EncodeObservations: found episodes of several agents. Use"
                " rlcatalog_rllib.configure(config, env) after config.multi_agent(...)."
            )
        self.encoders[DEFAULT_MODULE_ID].encode(episodes, bool(explore))
        return batch


class AdaptActions(ConnectorV2):
    """Last module-to-env connector: maps the raw actions that Ray stores and scores to the
    environment's actions.
    """

    def __call__(self, *, rl_module: Any, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add the environment's actions to a batch that contains raw actions `[B]` or
        `[B, width]`.
        """
        raw = batch[Columns.ACTIONS]
        batch[Columns.ACTIONS_FOR_ENV] = rl_module.policy.adapt(
            raw[:, None] if raw.ndim == 1 else raw
        )
        return batch


#: A pipeline in Ray's config: a function that returns connectors.
Pieces = Callable[..., Any]


def pieces_of(make: Pieces | None, *given: Any) -> list[ConnectorV2]:
    """Return the connectors from the user's function; empty if there is no function."""
    made = [] if make is None else make(*given)
    return list(made) if isinstance(made, list | tuple) else [made]


def behind(make: Pieces | None, env: Any, obs_space: Any, action_space: Any) -> Any:
    """Return the observation space after the user's connectors.

    Args:
        make: The user's function for the env-to-module pipeline, or None.
        env: The environment.
        obs_space: Its observation space.
        action_space: Its action space.
    """
    spaces = {
        INPUT_ENV_SPACES: (obs_space, action_space),
        INPUT_ENV_SINGLE_SPACES: (obs_space, action_space),
    }
    for piece in pieces_of(make, env, spaces, None):
        piece.input_action_space = action_space
        piece.input_observation_space = obs_space
        obs_space, action_space = piece.observation_space, piece.action_space
    return obs_space


@dataclass(frozen=True)
class EnvToModule:
    """Factory for the env-to-module connectors: the user's, then the one from `encode`.

    Attributes:
        encode: Creates rlcatalog's connector.
        own: The user's function for this pipeline, or None.
    """

    encode: Callable[[], ConnectorV2]
    own: Pieces | None = None

    def __call__(
        self, env: Any = None, spaces: Any = None, device: Any = None
    ) -> list[ConnectorV2]:
        check_spaces(spaces)
        return [*pieces_of(self.own, env, spaces, device), self.encode()]


@dataclass(frozen=True)
class ModuleToEnv:
    """Factory for the module-to-env connectors: Ray's without NormalizeAndClipActions, the user's,
    then `adapt`'s.

    Attributes:
        own: The user's function for this pipeline, or None.
        adapt: Creates rlcatalog's connector.
        by_agent: Whether there are several agents.
    """

    own: Pieces | None = None
    adapt: Callable[[], ConnectorV2] = AdaptActions
    by_agent: bool = False

    def __call__(self, env: Any = None, spaces: Any = None) -> list[ConnectorV2]:
        unmapping = [rays.ModuleToAgentUnmapping()] if self.by_agent else []
        return [
            rays.GetActions(),
            rays.TensorToNumpy(),
            rays.UnBatchToIndividualItems(),
            *unmapping,
            rays.RemoveSingleTsTimeRankFromBatch(),
            *pieces_of(self.own, env, spaces),
            rays.ListifyDataForVectorEnv(),
            self.adapt(),
        ]


def env_to_module(
    model: Mapping[str, Any] | Recipe | None = None, catalog: Catalog | None = None
) -> Any:
    """Return the argument for `config.env_runners(env_to_module_connector=...)`.

    Args:
        model: The model config, which must be the same as the module's.
        catalog: The catalog for the parts, which must be the same as the module's.
    """
    recipe = model if isinstance(model, Recipe) else Recipe(dict(model or {}), None, catalog)
    return EnvToModule(partial(EncodeObservations, recipe=recipe))


def module_to_env(env: Any = None, spaces: Any = None) -> list[ConnectorV2]:
    """Return the module-to-env pipeline; pass this function as
    `config.env_runners(module_to_env_connector=...)`.

    It also needs `add_default_connectors_to_module_to_env_pipeline=False`. It is Ray's pipeline
    without NormalizeAndClipActions, which would scale raw actions to the bounds a second time.
    """
    return ModuleToEnv()(env, spaces)
