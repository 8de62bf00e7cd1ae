"""Support for several agents: each module's recipe encodes its agents' observations and adapts
their actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
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

Spaces = tuple[Any, Any]


def spaces_of_agents(env: Any) -> Spaces:
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
    return observations, spaces.Dict({agent: env.get_action_space(agent) for agent in agents})


def spaces_of_modules(
    config: Any, observations: spaces.Dict, actions: spaces.Dict
) -> dict[str, Spaces]:
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
    agents = {agent: (space, actions[agent]) for agent, space in observations.spaces.items()}
    episode, mapped = MultiAgentEpisode(), dict[str, list[Any]]()
    for agent in agents:
        mapped.setdefault(config.policy_mapping_fn(agent, episode), []).append(agent)
    found = {}
    for module_id in config.policies:
        given = config.policies[module_id] if isinstance(config.policies, Mapping) else None
        theirs = getattr(given, "observation_space", None), getattr(given, "action_space", None)
        # A mapping may be random in each episode; if all agents have equal spaces, any agent will
        # do.
        of = mapped.get(module_id) or (list(agents) if _alike(list(agents.values())) else [])
        if not of and None in theirs:
            raise ConfigError(
                f"policies: no agent is mapped to {module_id!r}, so its spaces are unknown. Pass"
                f" them: policies={{{module_id!r}: PolicySpec(observation_space=...,"
                f" action_space=...)}}."
            )
        own = [agents[agent] for agent in of]
        if None in theirs and not _alike(own):
            raise NotServedError(
                f"policies: {module_id!r} serves the agents {', '.join(map(repr, of))}, whose"
                f" spaces differ: {'; '.join(f'{obs}, {action}' for obs, action in own)}. Map them"
                " to separate modules."
            )
        obs, action = own[0] if own else theirs
        found[module_id] = (theirs[0] or obs, theirs[1] or action)
    return found


def _alike(found: list[Any]) -> bool:
    first, *others = found or [(None, None)]
    return all(_same(a, b) for other in others for a, b in zip(first, other, strict=True))


def _same(a: Any, b: Any) -> bool:
    data = space_to_json(a), space_to_json(b)
    return bool(a == b) if None in data else same_space(*data)


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
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        recipes: Mapping[str, Recipe],
        module_spaces: Mapping[str, Spaces],
        **kwargs: Any,
    ) -> None:
        self.encoders = {
            name: EpisodeEncoder(recipe, *module_spaces[name]) for name, recipe in recipes.items()
        }
        found = {name: own for name, (own, _) in module_spaces.items()}
        self._space = spaces.Dict(
            found | {name: encoder.space for name, encoder in self.encoders.items()}
        )
        super().__init__(
            input_observation_space,
            input_action_space,
            recipes=recipes,
            module_spaces=module_spaces,
            **kwargs,
        )

    def recompute_output_observation_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        """Return a Dict that contains one space per module."""
        return self._space

    def __call__(
        self,
        *,
        rl_module: Any,
        batch: dict[str, Any],
        episodes: list[Any],
        explore: bool | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Replace the last observation of each agent that took a step."""
        of_module: dict[str, list[Any]] = {}
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=True):
            of_module.setdefault(str(episode.module_id), []).append(episode)
        for name, stepped in of_module.items():
            if name in self.encoders:
                self.encoders[name].encode(stepped, bool(explore), in_step=False)
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
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        normalize_actions: bool = True,
        clip_actions: bool = False,
        **kwargs: Any,
    ) -> None:
        self._adapt: Any = (
            unsquash_action if normalize_actions else clip_action if clip_actions else None
        )
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def __call__(
        self, *, rl_module: Any, batch: dict[str, Any], episodes: list[Any], **kwargs: Any
    ) -> dict[str, Any]:
        """Add the environments' actions to a batch in which each environment has a dict from agents
        to raw actions.
        """
        found: list[dict[Any, Any]] = [{} for _ in batch[Columns.ACTIONS]]
        for episode, raw, adapted in zip(episodes, batch[Columns.ACTIONS], found, strict=True):
            for agent, action in raw.items():
                policy = getattr(rl_module[episode.module_for(agent)], "policy", None)
                if policy is not None:
                    action = first_row(policy.adapt(np.reshape(action, (1, -1))))
                elif self._adapt is not None:
                    space = self.input_action_space[agent]
                    base = get_base_struct_from_space(space)  # type: ignore[no-untyped-call]
                    action = self._adapt(action, base)
                adapted[agent] = action
        batch[Columns.ACTIONS_FOR_ENV] = found
        return batch
