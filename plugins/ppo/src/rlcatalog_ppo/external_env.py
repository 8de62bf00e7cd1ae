"""Wrapper for vector environments that the caller created."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from rlcatalog.errors import EnvironmentFaultError, shown
from rlcatalog.spaces import env_layout, read_attribute
from rlcatalog_policy import autoreset_of
from rlcatalog_ppo.env_errors import call_env

#: Return values of `step` between observations and infos, with their dtype kinds.
_COLUMNS = {"reward": "fiub", "terminated": "b", "truncated": "b"}


class ExternalVectorEnv(VectorWrapper):
    """Wrapper for a vector environment that the caller creates and closes.

    It reports invalid return values.

    In mode SAME_STEP, its environments must return copies, because they are reset before an
    episode's last observation is read.

    Args:
        env: The vector environment.

    Raises:
        ConfigError: The environment's metadata does not contain an autoreset mode.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self._has_final_obs = autoreset_of(env) == "same_step"

    def reset(self, **options: Any) -> Any:
        """Begin an episode in every environment, or in the ones selected by
        `options["reset_mask"]`.
        """
        return call_env(self._fault, self.env.reset, **options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in every environment.

        Raises:
            EnvironmentFaultError: The environment raised an exception, or returned something
                invalid.
        """
        returned = call_env(self._fault, self.env.step, actions)
        try:
            obs, *columns, infos = returned
            arrays = dict(zip(_COLUMNS, map(np.asarray, columns), strict=True))
        except (TypeError, ValueError):
            raise self._fault(
                f"returned {shown(returned)}; expected (obs, {', '.join(_COLUMNS)}, infos)"
            ) from None
        for name, array in arrays.items():
            if array.shape != (self.num_envs,) or array.dtype.kind not in _COLUMNS[name]:
                expected = (
                    f"shape ({self.num_envs},) and {'numbers' if name == 'reward' else 'booleans'}"
                )
                raise self._fault(
                    f"returned {name} of shape {array.shape} and {array.dtype}; expected {expected}"
                )
        reward, terminated, truncated = arrays.values()
        if self._has_final_obs and (terminated | truncated).any() and "final_obs" not in infos:
            raise self._fault(
                'returned no infos["final_obs"], which mode SAME_STEP requires at the end of an'
                " episode"
            )
        return obs, reward, terminated, truncated, infos

    def call(self, name: str, *_: Any) -> tuple[Any, ...]:
        """Answer `where` and `go_to`, as `Resumable` does, for environments whose
        state is unknown.
        """
        if name == "image_layout":
            return (env_layout(next(iter(read_attribute(self.env, "envs", ())), None)),)
        why = "it belongs to a passed vector environment, which does not report its state"
        return ({"generator": {}, "why": why} if name == "where" else why,) * self.num_envs

    def close(self, **kwargs: Any) -> None:
        """Do nothing: the caller closes the environment."""

    def _fault(self, what: str) -> EnvironmentFaultError:
        return EnvironmentFaultError(f"the vector environment {type(self.env).__name__} {what}")
