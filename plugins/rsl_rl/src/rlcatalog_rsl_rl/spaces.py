"""Spaces of a policy, read from the observation groups and the actions of an rsl_rl environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor

from rlcatalog.errors import ConfigError, UnsupportedSpaceError

Space = gym.Space[Any]


class ObservationGroups:
    """The groups of an environment's observations that a policy and its critic see.

    Args:
        obs: A batch of observations.
        actor: Names of the groups that the actor sees.
        critic: Names of the groups that the critic sees.
        observation_space: The space of an observation; None reads it from the batch.

    Attributes:
        names: The groups of both sides.
        space: The space of the policy's observations: a Dict with an entry for each group, or the
            space of the only group.

    Raises:
        UnsupportedSpaceError: A group's dtype says too little about its space.
        ConfigError: `observation_space` lacks a group.
    """

    def __init__(
        self,
        obs: TensorDict,
        actor: Sequence[str],
        critic: Sequence[str],
        observation_space: Space | None = None,
    ) -> None:
        self.actor = list(actor)
        self.critic = list(critic)
        self.names = list(dict.fromkeys([*actor, *critic]))
        self._is_dict = len(self.names) > 1
        if observation_space is None:
            self.space = self._read_space(obs)
        else:
            self.space = self._select_space(observation_space)

    def _read_space(self, obs: TensorDict) -> Space:
        """Return the space that the groups' shapes and dtypes describe."""
        group_spaces = {name: space_of_group(obs[name], name) for name in self.names}
        if self._is_dict:
            return spaces.Dict(group_spaces)
        return group_spaces[self.names[0]]

    def _select_space(self, space: Space) -> Space:
        """Return the part of a given space that belongs to the groups."""
        if not isinstance(space, spaces.Dict):
            if self._is_dict:
                raise ConfigError(
                    f"observation_space: expected a Dict with the groups {self.names}, found"
                    f" {space}."
                )
            return space
        self._is_dict = True
        missing = [name for name in self.names if name not in space.spaces]
        if missing:
            raise ConfigError(
                f"observation_space: expected an entry for each of the groups {self.names}; it has"
                f" {list(space.spaces)}, and lacks {missing}."
            )
        return spaces.Dict({name: space.spaces[name] for name in self.names})

    def select(self, obs: TensorDict) -> Tensor | dict[str, Tensor]:
        """Return a batch of observations in the structure of the space.

        Groups that only the critic sees may be missing, as where the policy is used alone.
        """
        if not self._is_dict:
            only_group: Tensor = obs[self.names[0]]
            return only_group
        return {name: obs[name] for name in self.names if name in obs}

    def config_keys(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config keys for a critic that sees other groups than the actor; none if both
        see the same.

        Raises:
            ConfigError: The config has `obs_groups` of its own.
        """
        if "obs_groups" in config:
            raise ConfigError(
                "model_config['obs_groups']: the runner's config says which groups each side sees,"
                " 'obs_groups': {'actor': [...], 'critic': [...]}. Remove the key."
            )
        if set(self.actor) == set(self.critic):
            return {}
        groups = {"policy": self.actor, "critic": self.critic}
        return {"critic": config.get("critic") or {}, "obs_groups": groups}


def space_of_group(values: Tensor, name: str) -> Space:
    """Return the space of an observation group, as its shape and dtype describe it.

    Args:
        values: A batch of the group, `[N, ...]`.
        name: The group's name.

    Raises:
        UnsupportedSpaceError: The dtype leaves open what the numbers mean.
    """
    shape = tuple(values.shape[1:])
    if values.dtype.is_floating_point:
        return spaces.Box(-np.inf, np.inf, shape, np.float32)
    if values.dtype is torch.bool:
        # Gymnasium tells MultiBinary(3) from MultiBinary((3,)); masks are the former.
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if values.dtype is torch.uint8:
        return spaces.Box(0, 255, shape, np.uint8)
    raise UnsupportedSpaceError(
        f"obs[{name!r}]: expected floats, booleans or uint8, found {values.dtype}, whose range is"
        " unknown. Pass the space: CatalogEnv(env, observation_space=...)."
    )


def free_actions(count: int) -> Space:
    """Return the space of actions that rsl_rl passes on as they are: floats without bounds."""
    return spaces.Box(-np.inf, np.inf, (count,), np.float32)
