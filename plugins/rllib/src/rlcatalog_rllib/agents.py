"""Support for several agents: each module's recipe encodes its agents' observations and adapts
their actions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils.spaces.space_utils import (
    clip_action,
    get_base_struct_from_space,
    unsquash_action,
)

from rlcatalog.actions import first_row
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_policy import same_space, space_to_json
from rlcatalog_rllib.connectors import Encoding
from rlcatalog_rllib.encoders import EpisodeEncoder
from rlcatalog_rllib.recipe import Recipe
from rlcatalog_rllib.rl_module import CatalogModule
from rlcatalog_rllib.spaces import Space


class ModuleSpaces(NamedTuple):
    """The observation space and the action space of an agent or a module."""

    observation_space: Space
    action_space: Space


def spaces_of_agents(
    env: gymnasium.Env[Any, Any] | MultiAgentEnv,
) -> tuple[spaces.Dict, spaces.Dict]:
    """Return the observation spaces of an environment's agents as a Dict, and their action spaces
    as another.

    Raises:
        ConfigError: The environment has only one agent.
    """
    if not isinstance(env, MultiAgentEnv):
        raise ConfigError(
            f"multi_agent(policies=...): {type(env).__name__} is not a"
            " ray.rllib.env.multi_agent_env.MultiAgentEnv. Remove multi_agent() if the"
            " environment has only one agent."
        )
    agents: Any = env.possible_agents
    observations = spaces.Dict({agent: env.get_observation_space(agent) for agent in agents})
    actions = spaces.Dict({agent: env.get_action_space(agent) for agent in agents})
    return observations, actions


def spaces_of_modules(
    config: AlgorithmConfig, observations: spaces.Dict, actions: spaces.Dict
) -> dict[str, ModuleSpaces]:
    """Return each module's observation and action space, taken from `policies` or else from the
    agents mapped to it.

    Args:
        config: Ray's AlgorithmConfig, after `multi_agent(...)`.
        observations: Each agent's observation space.
        actions: Each agent's action space.

    Raises:
        ConfigError: A module's spaces are not given, and no agent is mapped to it.
        NotServedError: Agents with different spaces are mapped to the same module.
    """
    agents = {
        agent: ModuleSpaces(space, actions[agent]) for agent, space in observations.spaces.items()
    }
    agents_by_module = _agents_by_module(config, agents)
    policies: Any = config.policies
    module_spaces = {}
    for module_id in policies:
        policy_spec = policies[module_id] if isinstance(policies, Mapping) else None
        # Ray's PolicySpec has these attributes, but a policy may also be given in another form.
        obs_space: Space | None = getattr(policy_spec, "observation_space", None)
        action_space: Space | None = getattr(policy_spec, "action_space", None)  # see above
        if obs_space is None or action_space is None:
            mapped = agents_by_module.get(module_id, [])
            agent_spaces = _spaces_of_mapped_agents(module_id, mapped, agents)
            if obs_space is None:
                obs_space = agent_spaces.observation_space
            if action_space is None:
                action_space = agent_spaces.action_space
        module_spaces[module_id] = ModuleSpaces(obs_space, action_space)
    return module_spaces


def _agents_by_module(config: AlgorithmConfig, agents: Iterable[Any]) -> dict[str, list[Any]]:
    """Return which agents are mapped to each module in a new episode."""
    episode = MultiAgentEpisode()
    map_agent: Any = config.policy_mapping_fn
    agents_by_module: dict[str, list[Any]] = {}
    for agent in agents:
        agents_by_module.setdefault(map_agent(agent, episode), []).append(agent)
    return agents_by_module


def _spaces_of_mapped_agents(
    module_id: str, mapped: Sequence[Any], agents: Mapping[Any, ModuleSpaces]
) -> ModuleSpaces:
    """Return the spaces of the agents that are mapped to a module.

    Args:
        module_id: The module's id.
        mapped: The agents that are mapped to it.
        agents: The spaces of all agents.

    Raises:
        ConfigError: No agent is mapped to the module.
        NotServedError: The agents have different spaces.
    """
    # A mapping may be random in each episode; if all agents have equal spaces, any agent will do.
    if not mapped and _are_alike(list(agents.values())):
        mapped = list(agents)
    if not mapped:
        raise ConfigError(
            f"policies: no agent is mapped to {module_id!r}, so its spaces are unknown. Pass"
            f" them: policies={{{module_id!r}: PolicySpec(observation_space=...,"
            f" action_space=...)}}."
        )
    mapped_spaces = [agents[agent] for agent in mapped]
    if not _are_alike(mapped_spaces):
        pairs = "; ".join(f"{obs}, {action}" for obs, action in mapped_spaces)
        raise NotServedError(
            f"policies: {module_id!r} serves the agents {', '.join(map(repr, mapped))}, whose"
            f" spaces differ: {pairs}. Map them to separate modules."
        )
    return mapped_spaces[0]


def _are_alike(agents: Sequence[ModuleSpaces]) -> bool:
    """Return whether agents have equal observation spaces and equal action spaces."""
    for agent in agents[1:]:
        if not _is_same(agents[0].observation_space, agent.observation_space):
            return False
        if not _is_same(agents[0].action_space, agent.action_space):
            return False
    return True


def _is_same(first: Space, second: Space) -> bool:
    """Return whether two spaces are equal; by their own comparison if their kind is a plugin's."""
    first_data = space_to_json(first)
    second_data = space_to_json(second)
    if first_data is None or second_data is None:
        return bool(first == second)
    return same_space(first_data, second_data)


class EncodeAgents(Encoding):
    """Env-to-module connector that encodes each agent's observations for its module; see
    `EncodeObservations`.

    Observations for modules without catalog parts do not change.

    Args:
        input_observation_space: A Dict of the agents' observation spaces.
        input_action_space: A Dict of their action spaces.
        recipes: The recipe for each module's policy.
        module_spaces: Each module's observation and action space.
    """

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        recipes: Mapping[str, Recipe],
        module_spaces: Mapping[str, ModuleSpaces],
        **kwargs: Any,
    ) -> None:
        self.encoders = {
            name: EpisodeEncoder(
                recipe, module_spaces[name].observation_space, module_spaces[name].action_space
            )
            for name, recipe in recipes.items()
        }
        space_by_module = {}
        for name, own_spaces in module_spaces.items():
            if name in self.encoders:
                space_by_module[name] = self.encoders[name].space
            else:  # a module without catalog parts, whose observations do not change
                space_by_module[name] = own_spaces.observation_space
        # Ray's constructor asks for it, by `recompute_output_observation_space`.
        self._space = spaces.Dict(space_by_module)
        super().__init__(
            input_observation_space,
            input_action_space,
            recipes=recipes,
            module_spaces=module_spaces,
            **kwargs,
        )

    def recompute_output_observation_space(
        self, input_observation_space: Space, input_action_space: Space
    ) -> Any:
        """Return a Dict that contains one space per module."""
        return self._space

    def __call__(
        self,
        *,
        rl_module: RLModule,
        batch: dict[str, Any],
        episodes: list[Any],
        explore: bool | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Replace the last observation of each agent that took a step."""
        episodes_by_module: dict[str, list[Any]] = {}
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=True):
            episodes_by_module.setdefault(str(episode.module_id), []).append(episode)
        for name, module_episodes in episodes_by_module.items():
            if name in self.encoders:
                self.encoders[name].encode(module_episodes, bool(explore), in_step=False)
        return batch


class AdaptAgents(ConnectorV2):
    """Last module-to-env connector, which maps raw actions to the environment's actions, agent by
    agent.

    Actions from modules without catalog parts are mapped to their spaces as Ray does.

    Args:
        input_observation_space: A Dict of the agents' observation spaces.
        input_action_space: A Dict of their action spaces.
        normalize_actions: Ray's setting, which applies to modules without catalog parts.
        clip_actions: Ray's setting, which applies to modules without catalog parts.
    """

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        normalize_actions: bool = True,
        clip_actions: bool = False,
        **kwargs: Any,
    ) -> None:
        #: Ray's function that maps the actions of modules without catalog parts, if any.
        self._adapt: Any = None
        if normalize_actions:
            self._adapt = unsquash_action
        elif clip_actions:
            self._adapt = clip_action
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def __call__(  # type: ignore[override]
        self,
        *,
        rl_module: MultiRLModule,
        batch: dict[str, Any],
        episodes: list[MultiAgentEpisode],
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Add the environments' actions to a batch in which each environment has a dict from agents
        to raw actions.
        """
        env_actions: list[dict[Any, Any]] = []
        for episode, raw_actions in zip(episodes, batch[Columns.ACTIONS], strict=True):
            actions = {}
            for agent, raw_action in raw_actions.items():
                module_id: Any = episode.module_for(agent)
                module = rl_module[module_id]
                if isinstance(module, CatalogModule):
                    batch_of_one = np.reshape(raw_action, (1, -1))
                    actions[agent] = first_row(module.policy.adapt(batch_of_one))
                else:  # a module without catalog parts
                    actions[agent] = self._map_to_space(raw_action, agent)
            env_actions.append(actions)
        batch[Columns.ACTIONS_FOR_ENV] = env_actions
        return batch

    def _map_to_space(self, action: Any, agent: Hashable) -> Any:
        """Return the action of a module without catalog parts, mapped to its space as Ray does."""
        if self._adapt is None:
            return action
        action_spaces: Any = self.input_action_space
        space_structure = get_base_struct_from_space(action_spaces[agent])  # type: ignore[no-untyped-call]
        return self._adapt(action, space_structure)
