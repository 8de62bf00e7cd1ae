"""Stepper: acts in several environments, and restarts their episodes in each autoreset mode."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rlcatalog.actions import NOT_GIVEN
from rlcatalog.catalog import class_name, count_envs, registered_id
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError
from rlcatalog.spaces import read_attribute
from rlcatalog_policy.tensor_encoder import are_tensors

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import AutoresetMode

    from rlcatalog.frameworks import Array, Step

    # A name of the kernel that only annotations need.
    from rlcatalog.internals import AnyEnv
    from rlcatalog_policy.encoder import Batch, Masks
    from rlcatalog_policy.frozen_wrapper import Frozen
    from rlcatalog_policy.history import Rewards, Rows
    from rlcatalog_policy.policy import Policy
    from rlcatalog_policy.state import State

    VectorEnv: TypeAlias = gymnasium.vector.VectorEnv[Any, Any, Any]

#: Gymnasium's autoreset modes.
AUTORESET = ("same_step", "next_step", "disabled")


def autoreset_of(envs: VectorEnv) -> str:
    """Return a vector environment's autoreset mode, one of `AUTORESET`.

    Raises:
        ConfigError: The vector environment reports no mode, or an unknown mode.
    """
    # Gymnasium writes the mode into the metadata of the environment's class, where the next vector
    # environment of that class overwrites it. The attribute belongs to the vector environment.
    innermost_envs = read_attribute(envs, "unwrapped", envs)
    mode = read_attribute(innermost_envs, "autoreset_mode")
    if mode is None:
        metadata = read_attribute(envs, "metadata") or {}
        mode = metadata.get("autoreset_mode")
    if mode is None:
        raise ConfigError(
            f"{type(envs).__name__} does not declare when it resets its environments"
            f" (metadata['autoreset_mode']): pass autoreset=, one of {', '.join(AUTORESET)}."
        )
    return _parse_mode(mode)


def describe_env(env: AnyEnv) -> tuple[str, str]:
    """Describe an environment argument, and what to pass if several environments are needed, for
    error messages.

    Args:
        env: A single environment, a vector environment, or what creates one.
    """
    name = class_name(env)
    num_envs = count_envs(env)
    if num_envs is not None:
        description = f"a vector environment of {num_envs} ({name})"
        source = "MyEnv"  # the name of the environments' class is unknown
    else:
        description = f"one environment ({name})"
        env_id = registered_id(env)
        source = name if env_id is None else repr(env_id)
    return (
        description,
        f"pass the id, the class or a function that makes a single environment: env={source}.",
    )


class Stepper:
    """Stepper that acts in `n` environments and keeps their states across episodes.

    Pass each step `done = terminated | truncated` of the step before. Where an episode has ended,
    the stepper begins the next one with a new state. The observation that you pass in such a row
    depends on the autoreset mode of the vector environment:

    - `"same_step"`: it is the first observation of the next episode.
    - `"next_step"`: it is the last observation of the episode that has ended. The environment
      ignores the action, and returns the first observation of the next episode, so ignore the
      action and its log density too; a mask may even forbid the action. The value is the one of the
      last observation.
    - `"disabled"`: it is the first observation of the next episode, which you get from
      `envs.reset(options={"reset_mask": done})`.

    Args:
        policy: The policy.
        n: The vector environment, whose number of environments and mode are read, or the number of
            environments.
        autoreset: The mode. If None, the mode of the vector environment, or `"same_step"` if you
            pass a number.

    Raises:
        ConfigError: There are no environments, or the mode is unknown.
    """

    def __init__(
        self,
        policy: Policy | Frozen,
        n: int | VectorEnv,
        autoreset: str | AutoresetMode | None = None,
    ) -> None:
        self.policy = policy
        self.n = _number_of_envs(n)
        if autoreset is not None:
            self.autoreset = _parse_mode(autoreset)
        elif isinstance(n, int | np.integer):
            self.autoreset = "same_step"
        else:
            self.autoreset = autoreset_of(n)
        self.state: State | None = policy.initial_state(self.n)
        #: Environments whose next episode begins with the next observation.
        self._begins_with_next_obs = np.zeros(self.n, bool)
        #: The last encoded observations, on which idle rows act.
        self._encoded: Array | None = None

    def reset(self, rows: Rows | None = None) -> None:
        """Start new episodes in the given rows (indices or a boolean mask), or in all rows.

        Args:
            rows: Indices `[k]` or booleans `[n]`.
        """
        if rows is None:
            self.state = self.policy.initial_state(self.n)
            self._begins_with_next_obs = np.zeros(self.n, bool)
        else:
            self.state = self.policy.restart(self.state, rows)
            self._begins_with_next_obs[rows] = False

    def step(
        self,
        obs: Batch,
        *,
        done: Array | Sequence[bool] | None = None,
        prev_reward: Rewards | None = None,
        mask: Masks = NOT_GIVEN,
        explore: bool = True,
    ) -> Step:
        """Start new episodes where `done`, then act.

        Args:
            obs: Observations of all environments.
            done: Booleans `[n]`: whether the last step ended the episode; see the class.
            prev_reward: Rewards `[n]` of the last step.
            mask: Action masks; see `Policy.act`.
            explore: Whether to sample instead of taking the deterministic action; see `Policy.act`.

        Raises:
            ModelContractError: There are more or fewer observations, or values of `done`, than
                environments.
            NotServedError: The observations are tensors, and the mode is `"next_step"`.
        """
        if are_tensors(obs):
            return self._step_on_tensors(obs, done, prev_reward, mask, explore)
        ended = self._read_done(done)
        if self.autoreset == "next_step":
            # An episode that ended a step ago begins with this observation. One that ended with
            # this observation is idle: the environment ignores the action.
            self._restart_states(self._begins_with_next_obs)
            step = self._act_with_idle_rows(obs, ended, prev_reward, mask, explore)
            self._begins_with_next_obs = ended
        else:
            self._restart_states(ended)
            step = self.policy.act(
                obs, self.state, prev_reward=prev_reward, mask=mask, explore=explore
            )
            self._check_number(len(step.raw_action))
        self.state = step.state
        return step

    def _step_on_tensors(
        self, obs: Batch, done: Any, prev_reward: Rewards | None, mask: Masks, explore: bool
    ) -> Step:
        """Start new episodes where `done`, then act; see `step`.

        Whether any episode has ended is not asked, because that would wait for the device.
        """
        if self.autoreset == "next_step":
            raise NotServedError(
                "stepper: tensors are not supported in the autoreset mode 'next_step', in which the"
                " rows that act depend on the data. Use 'same_step' or 'disabled', or pass arrays."
            )
        if done is not None:
            self.state = self.policy.restart(self.state, done)
        step = self.policy.act(obs, self.state, prev_reward=prev_reward, mask=mask, explore=explore)
        self._check_number(len(step.raw_action))
        self.state = step.state
        return step

    def _restart_states(self, begins_episode: Array) -> None:
        if begins_episode.any():
            self.reset(begins_episode)

    def _act_with_idle_rows(
        self,
        obs: Batch,
        idle: Array,
        prev_reward: Rewards | None,
        mask: Masks,
        explore: bool,
    ) -> Step:
        """Act. Idle rows act on their previous observation, whose mask allows an action.

        Args:
            obs: Observations of all environments.
            idle: Booleans `[n]`: whether the environment ignores the action.
            prev_reward: Rewards `[n]` of the last step.
            mask: Action masks; see `Policy.act`.
            explore: Whether to sample instead of taking the deterministic action; see `Policy.act`.
        """
        policy = self.policy
        policy_only = policy.encoder.lacks_critic_entries(obs)
        if policy_only:
            encoded = policy.encoder.encode_batch(obs, mask=None).obs
        else:
            encoded = policy.preprocess(obs)
        self._check_number(len(encoded))
        act = partial(
            policy.act_encoded,
            state=self.state,
            prev_reward=prev_reward,
            explore=explore,
            policy_only=policy_only,
        )
        mask_rows = None
        if mask is NOT_GIVEN:
            mask_rows = policy.action_mask(obs, idle=idle)
        elif mask is not None:
            mask_rows = policy.masks.matrix(mask, self.n, idle)

        encoded_before = self._encoded
        self._encoded = encoded
        if encoded_before is None or not idle.any():
            return act(encoded, mask=mask_rows)
        last_observations = encoded[idle]  # a copy, because `idle` selects rows
        encoded[idle] = encoded_before[idle]
        step = act(encoded, mask=mask_rows)
        if step.value is None:
            return step
        # The value belongs to the episode's last observation.
        value = step.value.copy()
        value[idle] = self._values_of_rows(idle, last_observations, prev_reward)
        return step._replace(value=value)

    def _values_of_rows(self, rows: Array, encoded: Array, prev_reward: Rewards | None) -> Array:
        """Return the values of some rows' observations, under the states before this step.

        Args:
            rows: Booleans `[n]`.
            encoded: The encoded observations of these rows.
            prev_reward: Rewards `[n]` of the last step, of all rows.
        """
        state = None
        if self.state is not None:
            state = self.state.rows(rows)
        reward = None
        if prev_reward is not None:
            reward = np.asarray(prev_reward)[rows]
        values: Array = self.policy.values(encoded, state, prev_reward=reward)
        return values

    def _check_number(self, observations: int) -> None:
        if observations != self.n:
            raise ModelContractError(
                f"obs: expected the observations of {self.n} environments, found {observations}."
            )

    def _read_done(self, done: Array | Sequence[bool] | None) -> Array:
        if done is None:
            return np.zeros(self.n, bool)
        ended = np.asarray(done)
        if ended.shape != (self.n,):
            what_was_passed = f"shape {ended.shape}" if ended.ndim else repr(done)
            raise ModelContractError(
                f"done: expected {self.n} booleans, one for each environment, found"
                f" {what_was_passed}."
            )
        return ended.astype(bool)


def _parse_mode(mode: str | AutoresetMode) -> str:
    """Return a mode by the name used here; Gymnasium's `AutoresetMode.NEXT_STEP` and `"NextStep"`
    also work.
    """
    value = getattr(mode, "value", mode)  # of Gymnasium's enumeration
    lower_case = str(value).replace("_", "").lower()
    for name in AUTORESET:
        if name.replace("_", "") == lower_case:
            return name
    raise ConfigError(f"autoreset: expected one of {', '.join(AUTORESET)}, found {mode!r}.")


def _number_of_envs(envs: int | VectorEnv) -> int:
    n: Any = getattr(envs, "num_envs", envs)  # of a user's vector environment
    is_number = isinstance(n, int | np.integer) and not isinstance(n, bool)
    if not is_number or n < 1:
        raise ConfigError(
            "stepper: expected a number of environments, 1 or more, or a vector environment;"
            f" found {n!r}."
        )
    return int(n)
