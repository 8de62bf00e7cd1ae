"""Wrapper for vector environments that exist as one: the caller created them, or the environment's
maker makes all of them at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from rlcatalog.catalog import close_env, vector_layout, vector_source
from rlcatalog.errors import EnvironmentFaultError, shown
from rlcatalog.spaces import read_attribute
from rlcatalog_policy import autoreset_of
from rlcatalog_ppo.env_errors import call_env

#: Return values of `step` between observations and infos, with NumPy's letters for their kinds of
#: dtypes: float, signed or unsigned integer, boolean.
_COLUMNS = {"reward": "fiub", "terminated": "b", "truncated": "b"}


class ExternalVectorEnv(VectorEnv[Any, Any, Any]):
    """Wrapper for a vector environment that was created as one.

    It reports invalid return values. The environment need not have Gymnasium's class: older
    versions of EnvPool have a `gymnasium.Env` with `num_envs`.

    In mode SAME_STEP, its environments must return copies, because they are reset before an
    episode's last observation is read.

    Args:
        env: The vector environment.
        closes: Whether closing the wrapper closes the environment; False if it was passed.

    Raises:
        ConfigError: The environment's metadata does not contain an autoreset mode.
    """

    def __init__(self, env: Any, *, closes: bool = False) -> None:
        self.env = env
        self._closes = closes
        source = vector_source(env)
        self.num_envs = int(source.num_envs)
        self.single_observation_space = source.single_observation_space
        self.single_action_space = source.single_action_space
        self.observation_space = source.observation_space
        self.action_space = source.action_space
        self.metadata = dict(read_attribute(env, "metadata") or {})
        self._is_same_step = autoreset_of(env) == "same_step"

    @property
    def unwrapped(self) -> Any:
        """The innermost vector environment."""
        return read_attribute(self.env, "unwrapped", self.env)

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

        The methods are those of `Resumable`, which does not wrap the environments of such a vector.

        Args:
            name: One of the methods that the algorithm calls: `image_layout`, `resume_state` or
                `resume_from`.
            *_: The method's arguments, which are not needed.
        """
        if name == "image_layout":
            return (vector_layout(self.env),)
        kind = "vector environment" if self._closes else "passed vector environment"
        why = f"it belongs to a {kind}, which does not report its state"
        if name == "resume_state":
            return ({"generator": {}, "why": why},) * self.num_envs
        return (why,) * self.num_envs  # `resume_from` returns why it failed

    def close(self, **kwargs: Any) -> None:
        """Close the environment, unless the caller passed it and closes it."""
        if self._closes:
            close_env(self.env)

    def _fault(self, fault: str) -> EnvironmentFaultError:
        return EnvironmentFaultError(f"the vector environment {type(self.env).__name__} {fault}")
