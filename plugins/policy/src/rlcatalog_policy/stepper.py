"""Stepper: acts in several environments, and restarts their episodes in each autoreset mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.actions import NOT_GIVEN
from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog.spaces import read_attribute

if TYPE_CHECKING:
    from rlcatalog.frameworks import Array, Step
    from rlcatalog_policy.frozen import Frozen
    from rlcatalog_policy.policy import Policy
    from rlcatalog_policy.state import State


#: Gymnasium's autoreset modes.
AUTORESET = ("same_step", "next_step", "disabled")


def autoreset_of(envs: Any) -> str:
    """Return a vector environment's autoreset mode, one of `AUTORESET`.

    Raises:
        ConfigError: The vector environment reports no mode, or an unknown mode.
    """
    # Gymnasium writes the mode into the metadata of the environment's class, where the next vector
    # environment of that class overwrites it. The attribute belongs to the vector environment.
    mode = read_attribute(read_attribute(envs, "unwrapped", envs), "autoreset_mode")
    if mode is None:
        mode = (read_attribute(envs, "metadata") or {}).get("autoreset_mode")
    if mode is None:
        raise ConfigError(
            f"{type(envs).__name__} does not declare when it resets its environments"
            f" (metadata['autoreset_mode']): pass autoreset=, one of {', '.join(AUTORESET)}."
        )
    return _named(mode)


def describe_env(env: Any) -> tuple[str, str]:
    """Describe an environment argument, and what to pass if several environments are needed, for
    error messages.

    Args:
        env: A single environment or a vector environment.
    """
    name = type(read_attribute(env, "unwrapped", env)).__name__
    spec = read_attribute(env, "spec")
    if read_attribute(env, "num_envs") is not None:
        what, source = f"a vector environment of {env.num_envs} ({name})", "MyEnv"
    else:
        what, source = f"one environment ({name})", name if spec is None else repr(spec.id)
    return (
        what,
        f"pass the id, the class or a function that makes a single environment: env={source}.",
    )


class Stepper:
    """Stepper that acts in `n` environments and keeps their states across episodes.

    Pass `done = terminated | truncated` of the previous step. Which observations belong to it
    depends on Gymnasium's mode:

    - `"same_step"`: the first observation of the next episode.
    - `"next_step"`: the episode's last observation. The environment ignores the action chosen for
      it, and returns the next episode's first observation. In such a row, ignore the action and its
      log density; a mask may even forbid the action. The value belongs to the last observation.
    - `"disabled"`: the first observation of the next episode, from the caller's
      `envs.reset(options={"reset_mask": done})`.

    Args:
        policy: The policy.
        n: Number of environments, or a vector environment, from which the number and the mode are
            read.
        autoreset: The mode. If None, the vector environment's mode, or `"same_step"` for a number
            of environments.

    Raises:
        ConfigError: There are no environments, or the mode is unknown.
    """

    def __init__(self, policy: Policy | Frozen, n: Any, autoreset: Any = None) -> None:
        self.policy, self.n = policy, _number(n)
        if autoreset is None:
            autoreset = autoreset_of(n) if hasattr(n, "num_envs") else "same_step"
        self.autoreset = _named(autoreset)
        self.state: State | None = policy.initial_state(self.n)
        #: Environments whose next episode begins with the next observation.
        self._over = np.zeros(self.n, bool)
        self._encoded: Array | None = None

    def reset(self, rows: Any = None) -> None:
        """Start new episodes in the given rows (indices or a boolean mask), or in all rows.

        Args:
            rows: Indices `[k]` or booleans `[n]`.
        """
        if rows is None:
            self.state, self._over = self.policy.initial_state(self.n), np.zeros(self.n, bool)
        else:
            self.state = self.policy.restart(self.state, rows)
            self._over[rows] = False

    def step(
        self,
        obs: Any,
        *,
        done: Any = None,
        prev_reward: Any = None,
        mask: Any = NOT_GIVEN,
        explore: bool = True,
    ) -> Step:
        """Start new episodes where `done`, then act.

        Args:
            obs: Observations of all environments.
            done: Booleans `[n]`: whether the last step ended the episode; see the class.
            prev_reward: Rewards `[n]` of the last step.
            mask: Action masks; see `Policy.act`.
            explore: Whether to sample instead of taking the most likely action.

        Raises:
            ModelContractError: There are more or fewer observations, or values of `done`, than
                environments.
        """
        ended = self._ended(done)
        begun = self._over if self.autoreset == "next_step" else ended
        if begun.any():
            self.reset(begun)
        if self.autoreset == "next_step":
            step = self._beside(obs, ended, prev_reward, mask, explore)
            self._over = ended
        else:
            step = self.policy.act(
                obs, self.state, prev_reward=prev_reward, mask=mask, explore=explore
            )
            self._check_number(len(step.raw_action))
        self.state = step.state
        return step

    def _beside(self, obs: Any, idle: Array, prev_reward: Any, mask: Any, explore: bool) -> Step:
        """Act. Idle rows act on their previous observation, whose mask allows an action."""
        policy = self.policy
        encoded = policy.preprocess(obs)
        self._check_number(len(encoded))
        if mask is NOT_GIVEN:
            mask = policy.action_mask(obs, idle=idle)
        elif mask is not None:
            mask = policy.masks.matrix(mask, self.n, idle)
        if not idle.any() or self._encoded is None:
            self._encoded = encoded
            return policy.act_encoded(
                encoded, self.state, prev_reward=prev_reward, mask=mask, explore=explore
            )
        last, state = encoded[idle], None if self.state is None else self.state.rows(idle)
        encoded[idle] = self._encoded[idle]
        self._encoded = encoded
        step = policy.act_encoded(
            encoded, self.state, prev_reward=prev_reward, mask=mask, explore=explore
        )
        if step.value is None:
            return step
        value = step.value.copy()
        reward = None if prev_reward is None else np.asarray(prev_reward)[idle]
        value[idle] = policy.values(last, state, prev_reward=reward)
        return step._replace(value=value)

    def _check_number(self, observations: int) -> None:
        if observations != self.n:
            raise ModelContractError(
                f"obs: expected the observations of {self.n} environments, found {observations}."
            )

    def _ended(self, done: Any) -> Array:
        if done is None:
            return np.zeros(self.n, bool)
        ended = np.asarray(done)
        if ended.shape != (self.n,):
            raise ModelContractError(
                f"done: expected {self.n} booleans, one for each environment, found"
                f" {f'shape {ended.shape}' if ended.ndim else repr(done)}."
            )
        return ended.astype(bool)


def _named(mode: Any) -> str:
    """Return a mode by the name used here; Gymnasium's `AutoresetMode.NEXT_STEP` and `"NextStep"`
    also work.
    """
    written = str(getattr(mode, "value", mode)).replace("_", "").lower()
    for name in AUTORESET:
        if name.replace("_", "") == written:
            return name
    raise ConfigError(f"autoreset: expected one of {', '.join(AUTORESET)}, found {mode!r}.")


def _number(envs: Any) -> int:
    n = getattr(envs, "num_envs", envs)
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ConfigError(
            "stepper: expected a number of environments, 1 or more, or a vector environment;"
            f" found {n!r}."
        )
    return int(n)
