"""Environment wrapper that moves action masks from infos or a method into the observations."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlcatalog.actions import ActionMasks, info_mask, mask_key, mask_method
from rlcatalog.choice.environments import refuse_engine_wrapper
from rlcatalog.errors import (
    ActionMaskError,
    EnvironmentFaultError,
    UnsupportedSpaceError,
    UnusedMaskWarning,
)
from rlcatalog.spaces import SpaceInfo

#: Entry for observations that are not a Dict, beside their mask.
_OBS = "obs"


def move_masks(env: gymnasium.Env[Any, Any], key: str | None) -> gymnasium.Env[Any, Any]:
    """Return an environment whose observations contain its action masks.

    Without masks outside the observations, it is the same environment.

    Args:
        env: A single environment. It is reset once if only that can show whether it has masks.
        key: The model config's `action_mask_key`.

    Raises:
        ModelContractError: There are masks to move, but the environment is in an engine's wrapper.
    """
    action = SpaceInfo.read(env.action_space, "action")
    try:
        masks = ActionMasks(action)
    except UnsupportedSpaceError:  # building a policy raises this error, too
        return env
    if key is None or not masks.size:
        return env
    key_in_obs = mask_key(SpaceInfo.read(env.observation_space), action, key)
    if key_in_obs is not None:  # the masks are in the observations already
        return env
    if mask_method(env) is None and not _has_info_mask(env, key):
        return env
    refuse_engine_wrapper(env, addition="a mask from the info or from action_masks()")
    return MasksInObservations(env, masks, key)


def _has_info_mask(env: gymnasium.Env[Any, Any], key: str) -> bool:
    try:
        with warnings.catch_warnings():
            # An engine's wrapper warns of such a mask, which the caller refuses.
            warnings.simplefilter("ignore", UnusedMaskWarning)
            _, info = env.reset()
    except Exception:  # of any kind; the caller's own reset shows it
        return False
    return isinstance(info, Mapping) and info_mask(info, key) is not None


class MasksInObservations(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that adds an environment's action masks to its observations.

    Masks come from the info, from `action_masks()`, or from both; then an action must be allowed by
    both. The first reset decides whether they come from the info. The mask of an episode's last
    observation, after which no action follows, may be missing or forbid everything; it then allows
    everything.

    Args:
        env: The environment.
        masks: Reader for the action space's masks.
        key: Key of the masks, in the info and in the observations.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], masks: ActionMasks, key: str) -> None:
        super().__init__(env)
        self._masks = masks
        self._key = key
        #: The environment's `action_masks` method, or None.
        self._method = mask_method(env)
        #: Whether masks come from the info; None before the first reset.
        self._in_info: bool | None = None
        #: The last observation's mask.
        self._columns = np.ones(masks.size, np.bool_)
        inner = env.observation_space
        self._has_dict = isinstance(inner, spaces.Dict)  # then the mask becomes one more entry
        entries: dict[str, gymnasium.Space[Any]] = {_OBS: inner}
        if isinstance(inner, spaces.Dict):
            entries = dict(inner.spaces)
        self.observation_space = spaces.Dict({**entries, key: spaces.MultiBinary(masks.size)})

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        obs, info = self.env.reset(seed=seed, options=options)
        if self._in_info is None:
            self._in_info = info_mask(info, self._key) is not None
        return self._with_mask(obs, info, is_over=False), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step.

        Raises:
            EnvironmentFaultError: The info of a step that another one follows has no mask.
            ActionMaskError: A mask has the wrong format, or allows nothing.
        """
        obs, reward, terminated, truncated, info = self.env.step(action)
        obs_with_mask = self._with_mask(obs, info, is_over=bool(terminated or truncated))
        return obs_with_mask, reward, terminated, truncated, info

    def action_masks(self) -> Any:
        """Return the last observation's mask, boolean `[m]`, for sb3-contrib's MaskablePPO."""
        return self._columns

    def get_state(self) -> dict[str, Any]:
        """Return the wrapper's state, from which a stopped run resumes."""
        return {"in_info": self._in_info, "mask": self._columns}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `get_state` returned."""
        self._in_info = state["in_info"]
        self._columns = state["mask"]

    def _with_mask(self, obs: Any, info: Mapping[Any, Any], *, is_over: bool) -> dict[str, Any]:
        """Return an observation with its mask; `is_over` says that no action follows."""
        try:
            batch = self._masks.joint(self._current_masks(info), batch_size=1)
            self._columns = batch[0]
        except (ActionMaskError, EnvironmentFaultError):
            if not is_over:
                raise
            self._columns = np.ones(self._masks.size, np.bool_)
        entries = obs if self._has_dict else {_OBS: obs}
        return {**entries, self._key: self._columns.astype(np.int8)}

    def _current_masks(self, info: Mapping[Any, Any]) -> list[Any]:
        """Return the current masks, each as a batch of one."""
        masks: list[Any] = []
        if self._in_info:
            mask = info_mask(info, self._key)
            if mask is None:
                raise EnvironmentFaultError(
                    f"info has no {self._key!r}, but the info of the first reset had an action"
                    " mask there. Return one after every reset and step that an action follows."
                )
            masks.append([mask])
        if self._method is not None:
            masks.append([self._method()])
        return masks
