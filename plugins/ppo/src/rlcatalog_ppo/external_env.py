"""Wrapper for vector environments that the caller created."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from rlcatalog.errors import EnvironmentFaultError, shown
from rlcatalog.spaces import env_layout, read_attribute
from rlcatalog_policy import autoreset_of
from rlcatalog_ppo.env_errors import call_env

#: Return values of `step` between observations and infos, with NumPy's letters for their kinds of
#: dtypes: float, signed or unsigned integer, boolean.
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
        self._is_same_step = autoreset_of(env) == "same_step"

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
            has_right_kind = array.dtype.kind in _COLUMNS[name]
            if array.shape != (self.num_envs,) or not has_right_kind:
                kind = "numbers" if name == "reward" else "booleans"
                raise self._fault(
                    f"returned {name} of shape {array.shape} and {array.dtype}; expected shape"
                    f" ({self.num_envs},) and {kind}"
                )
        reward, terminated, truncated = arrays.values()
        has_ended = (terminated | truncated).any()
        if self._is_same_step and has_ended and "final_obs" not in infos:
            raise self._fault(
                'returned no infos["final_obs"], which mode SAME_STEP requires at the end of an'
                " episode"
            )
        return obs, reward, terminated, truncated, infos

    def call(self, name: str, *_: Any) -> tuple[Any, ...]:
        """Return what a method of each environment would return.

        The methods are those of `Resumable`, which does not wrap the environments of a passed
        vector.

        Args:
            name: One of the methods that the algorithm calls: `image_layout`, `resume_state` or
                `resume_from`.
            *_: The method's arguments, which are not needed.
        """
        if name == "image_layout":
            envs = read_attribute(self.env, "envs", ())  # processes and simulators have none
            first_env = next(iter(envs), None)
            return (env_layout(first_env),)
        why = "it belongs to a passed vector environment, which does not report its state"
        if name == "resume_state":
            return ({"generator": {}, "why": why},) * self.num_envs
        return (why,) * self.num_envs  # `resume_from` returns why it failed

    def close(self, **kwargs: Any) -> None:
        """Do nothing: the caller closes the environment."""

    def _fault(self, fault: str) -> EnvironmentFaultError:
        return EnvironmentFaultError(f"the vector environment {type(self.env).__name__} {fault}")
