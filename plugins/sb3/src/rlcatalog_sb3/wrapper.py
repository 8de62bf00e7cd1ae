"""An environment with flat spaces, for algorithms that take no others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

import rlcatalog
from rlcatalog.cli import make_env
from rlcatalog.errors import ModelContractError
from rlcatalog_sb3.flattening import Flattening


class FlattenSpaces(gym.Wrapper[Any, Any, Any, Any]):
    """Shows an environment of any spaces as one that Stable-Baselines3 takes.

    Observations are encoded by the catalog's preprocessor, once, as they come; actions are the raw ones that the
    policy drew, and are adapted here. The flat spaces know the environment's own, so that a `CatalogPolicy` finds them.

    Args:
        env: The environment. Has it a method `action_masks()` (sb3-contrib's way to mask), and hold its observations
            no mask, these masks are put into the observations.
        model_config: The model config, where it shapes observations or actions.

    Raises:
        NotServedError: The config asks for an observation filter.
        UnsupportedSpaceError: No installed part takes a space.
    """

    def __init__(self, env: gym.Env[Any, Any], model_config: Mapping[str, Any] | None = None) -> None:
        super().__init__(env)
        # Masks in the observation win: they are those of the observation, whenever one asks.
        inside = Flattening(env.observation_space, env.action_space, model_config)
        self._outside = not inside.masked and bool(inside.masks.size) and env.has_wrapper_attr("action_masks")
        self.flattening = inside
        if self._outside:
            self.flattening = Flattening(env.observation_space, env.action_space, model_config, masked=True)
        self.observation_space = self.flattening.observation_space
        self.action_space = self.flattening.action_space
        self._mask: Any = None
        if self.flattening.masked:  # an environment without masks has no such method: MaskablePPO looks for it
            self.action_masks = self._last_mask

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**options)
        return self._observed(obs, False), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(self.flattening.act(action))
        return self._observed(obs, terminated or truncated), reward, terminated, truncated, info

    def _last_mask(self) -> Any:
        """Return the action mask of the last observation, boolean `[m]`."""
        return self._mask

    def _observed(self, obs: Any, last: bool) -> Any:
        mask = self.env.get_wrapper_attr("action_masks")() if self._outside else None
        seen = self.flattening.observe(obs, mask, last=last)
        if self.flattening.masked:
            self._mask = seen["action_mask"].astype(bool)
        return seen


def for_sb3(env: gym.Env[Any, Any] | str, model_config: Mapping[str, Any] | None = None) -> FlattenSpaces:
    """Flatten an environment's spaces, so that Stable-Baselines3 takes it.

    `PPO(CatalogPolicy, for_sb3(env))` trains in an environment of any spaces that the installed parts serve.
    The wrappers of the installed plugins that match are put around it first (see `rlcatalog.wrap_env`). For several
    environments: `make_vec_env(id, 4, wrapper_class=for_sb3, wrapper_kwargs={"model_config": ...})`.

    Args:
        env: A single environment, or a Gymnasium id.
        model_config: The model config, where it shapes observations or actions; see `FlattenSpaces`.

    Raises:
        ModelContractError: It is no single environment.
    """
    if isinstance(env, str):
        env = make_env(env)
    if not isinstance(env, gym.Env):
        raise ModelContractError(
            f"for_sb3: expected a gymnasium.Env or an id, found {type(env).__name__}. Vector environments are made of"
            " wrapped ones: make_vec_env(id, n, wrapper_class=for_sb3)."
        )
    return FlattenSpaces(rlcatalog.wrap_env(env, model_config), model_config)
