"""Action masks that environments give beside their observations: in infos, or from a method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.actions import NOT_GIVEN, ActionMasks
from rlcatalog.errors import (
    ActionMaskError,
    CatalogError,
    EnvironmentFaultError,
    UnusedMaskWarning,
    reason,
)
from rlcatalog.frameworks import Array
from rlcatalog.reporting import warn_caller
from rlcatalog.spaces import read_attribute
from rlcatalog_policy.stepper import autoreset_of

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

#: How to train without masks, for messages.
_WAY_OUT = "To use no masks, set the model config key 'action_mask_key' to None."


class EnvMasks:
    """Reader for the action masks that a vector environment gives beside its observations.

    A mask is in the infos, under the model config's `action_mask_key`, or the environments have a
    method `action_masks()`, as in sb3-contrib. With both, an action must be allowed by both. If the
    observation space has a mask, that one alone counts, and nothing is read here.

    The first reset decides whether masks are in the infos. If they are, every later info must have
    one if an action follows it, so the info of an episode's last step need not.

    Args:
        masks: The policy's reader of masks, `policy.masks`.
        envs: The vector environment, in any of Gymnasium's autoreset modes.

    Attributes:
        columns: The masks of the next actions, boolean `[N, m]`; None if there are none, or before
            `begin`.

    Example:
        >>> envs = gym.make_vec("Taxi-v4", 2)
        >>> policy = rlcatalog.build(env=envs)
        >>> masks = EnvMasks(policy.masks, envs)
        >>> obs, infos = envs.reset(seed=0)
        >>> masks.begin(infos)
        >>> step = policy.act(obs, mask=masks.argument)
        >>> obs, _, terminated, truncated, infos = envs.step(step.action)
        >>> masks.after_step(infos, terminated | truncated)
    """

    def __init__(self, masks: ActionMasks, envs: VectorEnv[Any, Any, Any]) -> None:
        self._masks = masks
        self._n = int(envs.num_envs)
        self._resets_at_once = autoreset_of(envs) == "same_step"
        #: Whether masks beside the observations count: there is none in them, and masks are not
        #: switched off.
        self._reads_masks = masks.key is None and masks.info_key is not None
        #: Returns the masks of all environments; None if they have no method for masks.
        self._call_action_masks: Callable[[], Iterable[Any]] | None = None
        if self._reads_masks:
            self._call_action_masks = _method_of(envs)
        #: Whether masks are in the infos; the first reset decides.
        self._in_infos = False
        self.columns: Array | None = None

    @property
    def argument(self) -> Any:
        """The argument `mask` for `act`: the masks, or `NOT_GIVEN` if there are none."""
        if self.columns is None:
            return NOT_GIVEN
        return self.columns

    def begin(self, infos: Mapping[str, Any]) -> None:
        """Read the masks after a reset of all environments, which decides where masks are.

        Warns:
            UnusedMaskWarning: There are masks, but the action space has nothing to forbid.
        """
        if not self._reads_masks:
            return
        self._in_infos = any(mask is not None for mask in self._from_infos(infos))
        if self._call_action_masks is not None:
            masks = self._from_method()
            if all(mask is None for mask in masks):
                self._call_action_masks = None  # there is such a method, but it gives no masks
        has_masks = self._in_infos or self._call_action_masks is not None
        self.columns = None
        if not self._masks.size:
            if has_masks:
                self._warn_of_unused_masks()
            return
        if has_masks:
            # Everything is allowed until `_update`, below, has read the masks.
            self.columns = np.ones((self._n, self._masks.size), np.bool_)
        all_rows = np.ones(self._n, np.bool_)
        self._update(infos, all_rows)

    def after_step(self, infos: Mapping[str, Any], ended: Array) -> None:
        """Read the masks after a step.

        Args:
            infos: The step's infos.
            ended: Booleans `[N]`: whether the step ended the episode. Unless the autoreset mode is
                SAME_STEP, these environments keep their masks until they have been reset.
        """
        acts_next = ~ended
        if self._resets_at_once:
            acts_next = np.ones(self._n, np.bool_)
        self._update(infos, acts_next)

    def after_reset(self, infos: Mapping[str, Any], rows: Array) -> None:
        """Read the masks after a reset of some environments.

        Args:
            infos: The reset's infos.
            rows: Booleans `[N]`: which environments were reset.
        """
        self._update(infos, rows)

    def _update(self, infos: Mapping[str, Any], rows: Array) -> None:
        """Read the masks of the environments in `rows`, booleans `[N]`."""
        if not self._reads_masks or not self._masks.size or not rows.any():
            return
        if not self._in_infos:
            self._refuse_late_mask(infos, rows)
        if self.columns is None:
            return
        batches = []
        if self._in_infos:
            batches.append(self._complete(self._from_infos(infos), rows))
        if self._call_action_masks is not None:
            batches.append(self._complete(self._from_method(), rows))
        try:
            columns = self._masks.joint(batches, self._n)
        except ActionMaskError as error:
            raise ActionMaskError(
                f"{self._where()}: {error} Rows are environments. {_WAY_OUT}"
            ) from error
        # The other environments keep their masks.
        self.columns = np.where(rows[:, None], columns, self.columns)

    def _from_infos(self, infos: Mapping[str, Any]) -> list[Any]:
        """Return each environment's mask in a vector environment's infos, or None without one."""
        assert self._masks.info_key is not None
        return masks_in_infos(infos, self._masks.info_key, self._n)

    def _from_method(self) -> list[Any]:
        """Return what each environment's `action_masks()` returns."""
        assert self._call_action_masks is not None
        try:
            return list(self._call_action_masks())
        except CatalogError:  # it explains itself
            raise
        except Exception as error:
            raise EnvironmentFaultError(f"action_masks() raised {reason(error)}") from error

    def _complete(self, masks: Sequence[Any], rows: Array) -> list[Any]:
        """Return the masks of the environments in `rows`, in a batch of all environments.

        The other environments take the mask of the first one, which is not used.
        """
        envs = [int(env) for env in np.flatnonzero(rows)]
        for env in envs:
            if masks[env] is None:
                raise EnvironmentFaultError(
                    f"environment {env} of {self._n} gave an action mask before, but not now"
                    f" ({self._where()}). Give one after every reset and step that an action"
                    f" follows. {_WAY_OUT}"
                )
        batch = [masks[envs[0]]] * self._n
        for env in envs:
            batch[env] = masks[env]
        return batch

    def _refuse_late_mask(self, infos: Mapping[str, Any], rows: Array) -> None:
        """Raise an error if there is a mask in the infos, but there was none at the first reset."""
        key = str(self._masks.info_key)
        if key not in infos:
            return
        for env, mask in enumerate(self._from_infos(infos)):
            if rows[env] and mask is not None:
                raise EnvironmentFaultError(
                    f"environment {env} of {self._n} has an action mask in info[{key!r}], but the"
                    f" first reset's info had none. Return it from reset() too. {_WAY_OUT}"
                )

    def _warn_of_unused_masks(self) -> None:
        warn_caller(
            f"the environment gives an action mask ({self._where()}), which is not used:"
            f" {self._masks.action.describe()} has no values that a mask could forbid. To"
            " silence this warning, set the model config key 'action_mask_key' to None.",
            UnusedMaskWarning,
        )

    def _where(self) -> str:
        places = []
        if self._in_infos:
            places.append(f"info[{self._masks.info_key!r}]")
        if self._call_action_masks is not None:
            places.append("action_masks()")
        return " and ".join(places)


def masks_in_infos(infos: Mapping[str, Any], key: str, n: int) -> list[Any]:
    """Return each environment's action mask in a vector environment's infos, or None without one.

    Gymnasium batches the entry `key` of the single infos, and writes under `_key` which of the
    environments have it.

    Args:
        infos: The infos of a vector environment.
        key: The model config's `action_mask_key`.
        n: Number of environments.
    """
    if key not in infos:
        return [None] * n
    has_mask = infos.get(f"_{key}", np.ones(n, np.bool_))
    masks: list[Any] = []
    for env in range(n):
        if has_mask[env]:
            masks.append(_entry_of_env(infos[key], env))
        else:
            masks.append(None)
    return masks


def _entry_of_env(entry: Any, env: int) -> Any:
    """Return one environment's part of a batched entry: an array, or a dictionary of entries."""
    if not isinstance(entry, Mapping):
        return entry[env]
    entry_of_env = {}
    for name in entry:
        # Gymnasium notes under "_name" which environments have "name".
        is_note = name.startswith("_") and name[1:] in entry
        if not is_note:
            entry_of_env[name] = _entry_of_env(entry[name], env)
    return entry_of_env


def _method_of(envs: VectorEnv[Any, Any, Any]) -> Callable[[], Iterable[Any]] | None:
    """Return a function that returns the masks of all environments by calling `action_masks()`, or
    None if there is no such method.
    """
    innermost_envs = read_attribute(envs, "unwrapped", envs)
    try:
        is_method_of_envs = any(innermost_envs.call("has_wrapper_attr", "action_masks"))
    except Exception:
        # There are no single environments, or `call` has a different form: the vector environment
        # itself may have the method.
        method: Callable[[], Iterable[Any]] | None = read_attribute(innermost_envs, "action_masks")
        return method if callable(method) else None
    if is_method_of_envs:
        return partial(innermost_envs.call, "action_masks")
    return None
