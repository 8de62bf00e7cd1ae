"""Connectors: one encodes observations for the module, the other adapts actions for the
environment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import gymnasium
from ray.rllib.connectors import module_to_env as rays
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.typing import DeviceType

from rlcatalog import Catalog
from rlcatalog.errors import NotServedError
from rlcatalog_rllib.encoders import EpisodeEncoder
from rlcatalog_rllib.env_runner import check_spaces
from rlcatalog_rllib.recipe import Recipe
from rlcatalog_rllib.spaces import Space


class Encoding(ConnectorV2):
    """Base class for connectors that encode observations.

    Their state is the filter statistics for each module.

    Attributes:
        encoders: Each module's encoder.
    """

    encoders: Mapping[str, EpisodeEncoder]

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the filters' current statistics and their statistics after the last merge."""
        return {name: encoder.get_state() for name, encoder in self.encoders.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the statistics."""
        for name in state.keys() & self.encoders.keys():
            self.encoders[name].set_state(state[name])

    def merge_states(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the merged statistics of all environment runners."""
        merged_states = {}
        for name, encoder in self.encoders.items():
            encoder_states = [state[name] for state in states if name in state]
            merged_states[name] = encoder.merge_states(encoder_states)
        return merged_states


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
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        recipe: Recipe,
        **kwargs: Any,
    ) -> None:
        self.recipe = recipe
        self.encoders = {}
        self._spaces: tuple[Space | None, Space | None] = (None, None)
        super().__init__(input_observation_space, input_action_space, recipe=recipe, **kwargs)

    def recompute_output_observation_space(
        self, input_observation_space: Space, input_action_space: Space | None
    ) -> Any:
        """Return the space of encoded observations; see `rlcatalog_rllib.spaces`."""
        if input_action_space is None:
            return input_observation_space
        old_observation_space, old_action_space = self._spaces
        # Ray calls this method often; an encoder is built again only for other spaces.
        if (
            input_observation_space is not old_observation_space
            or input_action_space is not old_action_space
        ):
            encoder = EpisodeEncoder(self.recipe, input_observation_space, input_action_space)
            self.encoders = {DEFAULT_MODULE_ID: encoder}
            self._spaces = (input_observation_space, input_action_space)
        return self.encoders[DEFAULT_MODULE_ID].space

    def __call__(
        self,
        *,
        rl_module: RLModule,
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
        rows = raw[:, None] if raw.ndim == 1 else raw
        batch[Columns.ACTIONS_FOR_ENV] = rl_module.policy.adapt(rows)
        return batch


#: The user's function for a pipeline in Ray's config. It returns a connector, or a list of them.
MakeConnectors: TypeAlias = "Callable[..., Any]"


def call_users_function(make: MakeConnectors | None, *arguments: Any) -> list[ConnectorV2]:
    """Return the connectors from the user's function; empty if there is no function.

    Args:
        make: The function, or None.
        arguments: The arguments that Ray passes to it.
    """
    if make is None:
        return []
    connectors = make(*arguments)
    return list(connectors) if isinstance(connectors, list | tuple) else [connectors]


def space_behind_connectors(
    make: MakeConnectors | None,
    env: gymnasium.Env[Any, Any] | MultiAgentEnv,
    *,
    obs_space: Space,
    action_space: Space,
) -> Space:
    """Return the observation space after the user's connectors.

    Args:
        make: The user's function for the env-to-module pipeline, or None.
        env: The environment.
        obs_space: Its observation space.
        action_space: Its action space.
    """
    # For Ray, the spaces of a vector environment and of its members. Here, both are `env`.
    spaces = {
        INPUT_ENV_SPACES: (obs_space, action_space),
        INPUT_ENV_SINGLE_SPACES: (obs_space, action_space),
    }
    no_device = None  # the connectors are created for their spaces, and do not run
    # The spaces after a connector are the input of the next one.
    for connector in call_users_function(make, env, spaces, no_device):
        connector.input_action_space = action_space
        connector.input_observation_space = obs_space
        obs_space = connector.observation_space
        action_space = connector.action_space
    return obs_space


@dataclass(frozen=True)
class EnvToModule:
    """Factory for the env-to-module connectors: the user's, then the one from `encode`.

    Attributes:
        encode: Creates rlcatalog's connector.
        own: The user's function for this pipeline, or None.
    """

    encode: Callable[[], ConnectorV2]
    own: MakeConnectors | None = None

    def __call__(
        self,
        env: gymnasium.Env[Any, Any] | None = None,
        spaces: Mapping[str, Any] | None = None,
        device: DeviceType | None = None,
    ) -> list[ConnectorV2]:
        check_spaces(spaces)
        return [*call_users_function(self.own, env, spaces, device), self.encode()]


@dataclass(frozen=True)
class ModuleToEnv:
    """Factory for the module-to-env connectors: Ray's without NormalizeAndClipActions, the user's,
    then `adapt`'s.

    Attributes:
        own: The user's function for this pipeline, or None.
        adapt: Creates rlcatalog's connector.
        by_agent: Whether there are several agents.
    """

    own: MakeConnectors | None = None
    adapt: Callable[[], ConnectorV2] = AdaptActions
    by_agent: bool = False

    def __call__(
        self,
        env: gymnasium.Env[Any, Any] | None = None,
        spaces: Mapping[str, Any] | None = None,
    ) -> list[ConnectorV2]:
        # Ray's own connectors in Ray's order, without NormalizeAndClipActions.
        connectors = [
            rays.GetActions(),
            rays.TensorToNumpy(),
            rays.UnBatchToIndividualItems(),
        ]
        if self.by_agent:
            connectors.append(rays.ModuleToAgentUnmapping())
        connectors.append(rays.RemoveSingleTsTimeRankFromBatch())
        connectors += call_users_function(self.own, env, spaces)  # the user's connectors
        connectors.append(rays.ListifyDataForVectorEnv())
        connectors.append(self.adapt())  # maps raw actions to the environment's actions
        return connectors


def env_to_module(
    model: Mapping[str, Any] | Recipe | None = None, catalog: Catalog | None = None
) -> Any:
    """Return the argument for `config.env_runners(env_to_module_connector=...)`.

    Args:
        model: The model config, which must be the same as the module's.
        catalog: The catalog for the parts, which must be the same as the module's.
    """
    if isinstance(model, Recipe):
        recipe = model
    else:
        recipe = Recipe(dict(model or {}), catalog=catalog)
    return EnvToModule(partial(EncodeObservations, recipe=recipe))


def module_to_env(
    env: gymnasium.Env[Any, Any] | None = None, spaces: Mapping[str, Any] | None = None
) -> list[ConnectorV2]:
    """Return the module-to-env pipeline; pass this function as
    `config.env_runners(module_to_env_connector=...)`.

    It also needs `add_default_connectors_to_module_to_env_pipeline=False`. It is Ray's pipeline
    without NormalizeAndClipActions, which would scale raw actions to the bounds a second time.
    """
    return ModuleToEnv()(env, spaces)
