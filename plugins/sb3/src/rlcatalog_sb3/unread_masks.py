"""Warnings about action masks that Stable-Baselines3 does not read."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from stable_baselines3.common.vec_env import VecEnv

from rlcatalog.actions import ActionMasks, info_mask
from rlcatalog.errors import UnusedMaskWarning
from rlcatalog.reporting import warn_caller


def warn_of_info(info: Mapping[str, Any], masks: ActionMasks) -> None:
    """Warn if an environment's info has an action mask; Stable-Baselines3 does not read infos.

    Args:
        info: The info that `reset` returned.
        masks: The reader of the policy's masks.
    """
    if masks.size and info_mask(info, masks.info_key) is not None:
        _warn(place_of_mask=f"info[{masks.info_key!r}]", what_is_not_read="infos")


class UnreadMasks:
    """Check, made once at the first step, whether the environment has masks that are not read.

    Args:
        env: The algorithm's vector environment, or None.
        masks: The reader of the policy's masks.
        calls_method: Whether the algorithm calls the environment's `action_masks()`.
    """

    def __init__(self, env: VecEnv | None, masks: ActionMasks, *, calls_method: bool) -> None:
        self._masks = masks
        self._calls_method = calls_method
        # A policy must not keep its environment alive.
        self._env = None if env is None else weakref.ref(env)

    def warn(self) -> None:
        """Warn about the masks, if there are any.

        Warns:
            UnusedMaskWarning: The environment has masks that the policy never sees.
        """
        if self._env is None:
            return
        env = self._env()  # None if the environment no longer exists
        self._env = None  # warn only once
        has_nothing_to_mask = self._masks.size == 0
        # With None as the config's `action_mask_key`, the user turns such masks off.
        ignores_masks = self._masks.info_key is None
        if env is None or has_nothing_to_mask or ignores_masks:
            return
        if not self._calls_method and _has_mask_method(env):
            _warn(place_of_mask="action_masks()", what_is_not_read="this method")
        # One environment's info is enough.
        for info in env.reset_infos[:1]:
            warn_of_info(info, self._masks)


def _has_mask_method(env: VecEnv) -> bool:
    """Return whether the environments of SB3's vector environment have a method `action_masks`."""
    try:
        return bool(env.has_attr("action_masks"))
    except Exception:  # raised by an environment's code, in place of AttributeError
        return False


def _warn(*, place_of_mask: str, what_is_not_read: str) -> None:
    warn_caller(
        f"the environment gives an action mask, {place_of_mask}, but Stable-Baselines3 does not"
        f" read {what_is_not_read}, so the policy may choose forbidden actions. Move the mask into"
        " the observation: wrap each environment with rlcatalog.wrap_env(env), and for_sb3 around"
        " it, for_sb3(rlcatalog.wrap_env(env)).",
        UnusedMaskWarning,
    )
