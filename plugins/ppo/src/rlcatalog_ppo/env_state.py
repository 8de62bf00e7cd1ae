"""Environment state, from which a stopped run resumes in the middle of its episodes.

The first of these three methods that the environment supports is used:

1. Save and restore the state with `get_state()` and `set_state(state)` of the innermost environment
   (or of an Atari game) and of every wrapper around it. Gymnasium's common wrappers are supported.
2. Replay the last complete episode and the one in progress with the recorded actions, from the
   generator's state at the first reset. Rewards, episode ends, the last observation, the last info
   and the generator must match.
3. Begin a new episode, with a warning, when the checkpoint is written and when it is read. This is
   also what happens if the generator is neither a `Generator` nor a `RandomState` of NumPy, so that
   its state cannot be read.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Protocol

import gymnasium
import numpy as np

from rlcatalog.actions import info_mask
from rlcatalog.catalog import close_env
from rlcatalog.config import plain
from rlcatalog.errors import EnvironmentFaultError, reason
from rlcatalog.spaces import env_layout, read_attribute
from rlcatalog_ppo.env_errors import call_env
from rlcatalog_ppo.env_returns import FLAGS, NUMBERS, RESET, STEP, ReturnChecker
from rlcatalog_ppo.private_api import changing_attributes
from rlcatalog_ppo.trees import take_apart

#: Types of values that keep their type when a state is restored.
_PLAIN = (bool, int, float, str, list, deque)
#: Length of the longest episode that is replayed. A longer one would take minutes, and its actions
#: a lot of memory.
_MAX_REPLAYED_STEPS = 200_000


class _Episode:
    """Record of an episode, from which the episode can be replayed.

    Args:
        generator: State of the environment's generator before the reset.
        seed: The reset's `seed`.
        options: The reset's `options`.

    Attributes:
        start: The generator's state before the reset, and the reset's arguments.
        actions: The actions so far.
        rewards: The rewards so far.
        ended: Whether the last action terminated the episode, and whether it was truncated.
    """

    def __init__(
        self,
        generator: Mapping[str, Any],
        seed: int | None,
        options: Mapping[str, Any] | None,
    ) -> None:
        self.start = {"generator": generator, "seed": seed, "options": deepcopy(options)}
        self.actions: list[Any] = []
        self.rewards: list[Any] = []
        self.ended = (False, False)

    def record(self, space: gymnasium.Space[Any]) -> dict[str, Any]:
        """Return the episode as plain data: the actions to replay, and a fingerprint of the
        outcome.

        Args:
            space: The environment's action space.

        Raises:
            TypeError, ValueError: An action or an option of the reset is not plain data.
        """
        start = {**self.start, "generator": plain(self.start["generator"])}
        record = {"begun": start, "actions": space.to_jsonable(self.actions)}
        json.dumps(record)  # raises an error if the record is not plain data
        record["outcome"] = self.outcome()
        return record

    def outcome(self) -> str:
        """Return a fingerprint of the rewards and the way the episode ended."""
        return fingerprint((np.array(self.rewards, np.float64), self.ended))


class Resumable(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Outermost wrapper, which reports an environment's errors and saves and restores its state.

    It returns a copy of an episode's last observation, because a reset may overwrite it before it
    is read. It drops infos except for their action masks, because this package reads nothing else
    and Gymnasium may be unable to stack them.

    Args:
        env: The environment.
        index: The environment's index in the vector environment.
        count: Number of environments in the vector environment.
        closes: Whether closing the wrapper closes the environment.
        mask_key: Key of action masks in infos, or None if they are not read.

    Attributes:
        obs: The last observation, or None.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        index: int = 0,
        count: int = 1,
        *,
        closes: bool = True,
        mask_key: str | None = "action_mask",
    ) -> None:
        super().__init__(env)
        self._closes = closes
        self._mask_key = mask_key
        # A copy, because vector environments write their mode into the metadata.
        self.metadata = dict(read_attribute(env, "metadata") or {})
        self.index = index
        self.count = count
        #: The environment and its wrappers; None if one of them does not report its state.
        self._levels = _levels(env)
        self._return_checker = ReturnChecker(env.observation_space)
        self._has_usual_format = self._return_checker.has_usual_format
        #: The episode in progress and the one before it. None if the environment reports its state,
        #: if its generator cannot be read, or if an episode is too long.
        self._episode: _Episode | None = None
        self._former_episode: _Episode | None = None
        self._steps = 0
        self.obs: Any = None
        self._info: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Raises:
            EnvironmentFaultError: The environment raised an exception, or returned something
                invalid.
        """
        if self._levels is None:  # a resumed run can only replay the episode, so record it
            generator = _generator_of(self.env)
            self._former_episode = self._episode
            self._episode = None
            if generator is not None:
                self._episode = _Episode(_state_of(generator), seed, options)
        self._steps = 0
        returned = call_env(self._fault, self.env.reset, seed=seed, options=options)
        self._check(returned, RESET)
        self.obs, self._info = returned
        return self.obs, self._info_with_only_masks()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step.

        Raises:
            EnvironmentFaultError: The environment raised an exception, or returned something
                invalid.
        """
        episode = self._episode
        if episode is not None:
            # An environment or its caller may write into an array; a NumPy scalar cannot change.
            is_immutable = isinstance(action, np.generic)
            episode.actions.append(action if is_immutable else deepcopy(action))
        self._steps += 1
        returned = call_env(self._fault, self.env.step, action)
        # A quick test, which nearly all values pass; the others are checked in detail.
        try:
            obs, reward, terminated, truncated, self._info = returned
            is_usual = (
                type(reward) in NUMBERS
                and type(terminated) in FLAGS
                and type(truncated) in FLAGS
                and type(self._info) is dict
                and self._has_usual_format(obs)
            )
        except (TypeError, ValueError):
            is_usual = False
        if not is_usual:
            self._check(returned, STEP)
        has_ended = terminated or truncated
        if has_ended:
            obs = deepcopy(obs)  # the next reset may overwrite it
        self.obs = obs
        if episode is not None:
            episode.rewards.append(reward)
            if has_ended:
                episode.ended = (bool(terminated), bool(truncated))
            elif self._steps > _MAX_REPLAYED_STEPS:
                self._episode = None  # stop recording
        return obs, reward, terminated, truncated, self._info_with_only_masks()

    def close(self) -> None:
        """Close the environment, unless it belongs to the caller."""
        if self._closes:
            close_env(self.env)

    def _info_with_only_masks(self) -> dict[str, Any]:
        """Return the last info without anything but its action mask."""
        mask = info_mask(self._info, self._mask_key)
        return {} if mask is None else {str(self._mask_key): mask}

    def _check(self, returned: Any, names: tuple[str, ...]) -> None:
        """Raise an error if what a method returned is invalid.

        Args:
            returned: What the environment's method returned.
            names: `RESET` or `STEP`.
        """
        fault = self._return_checker.fault(returned, names)
        if fault is not None:
            raise self._fault(fault)

    def _fault(self, fault: str) -> EnvironmentFaultError:
        """Return the error for a fault, such as "returned the reward None; expected a number"."""
        method = f"step {self._steps} of its episode" if self._steps else "reset"
        return EnvironmentFaultError(f"environment {self.index} of {self.count}: {method} {fault}")

    def image_layout(self) -> str | None:
        """Return the layout of the environment's images, if its wrappers say it."""
        return env_layout(self.env)

    # --- saving and resuming ------------------------------------------------------------------

    def resume_state(self) -> dict[str, Any]:
        """Return the state that `resume_from` restores, as a structure for `trees.take_apart`.

        Its entries depend on the way to resume; see the start of this file:

        - `"generator"`: the state of the environment's generator, in any case.
        - `"levels"`: the states that the environment and its wrappers report.
        - `"begun"`, `"actions"`, `"outcome"`, `"before"`, `"seen"`, `"infos"`: what to replay, and
          what the replay must lead to.
        - `"why"`: the reason why the environment cannot resume its episode.
        """
        generator_state = _generator_state(self.env)
        if self._levels is not None:
            return {"generator": generator_state, **self._reported_state(self._levels)}
        if _is_game(self.env.unwrapped):
            # A game does not draw from `np_random`, so a replay would see other random numbers.
            why = "a wrapper around the game has no get_state() and set_state(state)"
            return {"generator": generator_state, "why": why}
        if not generator_state:
            return {"generator": generator_state, "why": _why_unreadable(self.env)}
        if self._episode is None:
            why = f"its episode is longer than {_MAX_REPLAYED_STEPS} steps"
            return {"generator": generator_state, "why": why}
        return {"generator": generator_state, **self._episodes_to_replay(self._episode)}

    def _reported_state(self, levels: Sequence[_Level]) -> dict[str, Any]:
        """Return the states that the environment and its wrappers report, or why they cannot be
        saved.
        """
        try:
            states = [level.get_state() for level in levels]
            take_apart(states, arrays={})  # raises an error if a state is not plain data
            return {"levels": deepcopy(states)}
        # The environment's code may raise anything.
        except Exception as error:
            return {"why": f"its state cannot be saved: {type(error).__name__}: {error}"}

    def _episodes_to_replay(self, episode: _Episode) -> dict[str, Any]:
        """Return the episode in progress and, if there is room, the one before it; or why they
        cannot be saved.
        """
        try:
            state = episode.record(self.action_space)
            former = self._former_episode
            if former is not None and self._steps + len(former.actions) <= _MAX_REPLAYED_STEPS:
                state["before"] = former.record(self.action_space)
        except Exception as error:
            return {"why": f"its actions cannot be saved: {reason(error)}"}
        state["seen"] = fingerprint(self.obs)
        state["infos"] = _comparable(self._info)
        return state

    def resume_from(self, env_states: Sequence[Mapping[str, Any]]) -> str | None:
        """Restore a state that `resume_state` returned.

        Args:
            env_states: The states of all environments, by index, because a vector environment
                passes the same arguments to each of its environments.

        Returns:
            None on success; otherwise the reason for the failure, after which a new episode must
            begin.
        """
        env_state = env_states[self.index]
        try:
            failure = self._restore(env_state)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        if failure is not None:
            self._forget_episodes()  # they are not part of the next episode
            _set_generator(self.env, env_state["generator"])
        return failure

    def _restore(self, env_state: Mapping[str, Any]) -> str | None:
        """Restore the environment's state, or return why that is impossible."""
        if "why" in env_state:
            return str(env_state["why"])
        levels = self._levels or ()
        states = env_state.get("levels", ())
        if len(levels) != len(states):
            return "its wrappers have changed"
        if self._levels is None:
            return self._replay(env_state)
        for level, state in zip(levels, states, strict=True):
            level.set_state(deepcopy(state))
        _set_generator(self.env, env_state["generator"])
        return None

    def _forget_episodes(self) -> None:
        self._episode = None
        self._former_episode = None

    def _replay(self, env_state: Mapping[str, Any]) -> str | None:
        """Replay the recorded episodes, oldest first; return the first difference, if any."""
        self._forget_episodes()
        records = [env_state]
        former_episode = env_state.get("before")
        if former_episode is not None:
            records.insert(0, former_episode)
        _set_generator(self.env, records[0]["begun"]["generator"])
        for record in records:
            start = record["begun"]
            if _generator_state(self.env) != start["generator"]:
                return "after a replay of its last episode, its generator is in a different state"
            self.reset(seed=start["seed"], options=start["options"])
            difference = self._replay_actions(record)
            if difference is not None:
                return f"its replayed episode {difference}"
        if _generator_state(self.env) != env_state["generator"]:
            return "after a replay of its episode, its generator is in a different state"
        return self._difference_in_infos(env_state)

    def _replay_actions(self, record: Mapping[str, Any]) -> str | None:
        """Take an episode's recorded actions; return the first difference, if any."""
        episode = self._episode
        assert episode is not None
        actions = self.action_space.from_jsonable(record["actions"])
        for num_steps, action in enumerate(actions, 1):
            self.step(action)  # adds to `episode`
            is_over = any(episode.ended)  # terminated or truncated
            if is_over and num_steps < len(actions):
                return f"ends after {num_steps} of {len(actions)} steps"
        if "seen" in record and fingerprint(self.obs) != record["seen"]:
            return "has a different observation"
        if "outcome" in record and episode.outcome() != record["outcome"]:
            return "has different rewards or a different end"
        return None

    def _difference_in_infos(self, env_state: Mapping[str, Any]) -> str | None:
        """Return which entries of the last info differ after a replay; None if all are equal."""
        if "infos" not in env_state:
            return None  # 0.1.0 saved neither outcomes nor infos
        infos = _comparable(self._info)
        saved_infos = env_state["infos"]
        names = []
        for name in sorted(infos.keys() | saved_infos.keys()):
            if infos.get(name) != saved_infos.get(name):
                names.append(name)
        if not names:
            return None
        return f"its replayed episode has different infos: {', '.join(names)}"


def _comparable(info: Mapping[Any, Any]) -> dict[str, str]:
    """Return fingerprints of the info entries that the same steps must reproduce.

    A single float may be a time, and objects may differ between runs, so both are omitted at every
    level.
    """
    return {str(key): fingerprint(_without_times(part)) for key, part in info.items()}


def _without_times(part: Any) -> Any:
    """Return a part of an info without floats and objects, which become None.

    A float array stays, because a time is a single number.
    """
    if isinstance(part, Mapping):
        return {key: _without_times(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [_without_times(value) for value in part]
    if isinstance(part, np.ndarray | np.generic):
        is_exact = part.dtype.kind in "biuSU"  # booleans, integers, bytes and text
        is_float_array = part.ndim > 0 and part.dtype.kind in "fc"  # floats, complex numbers
        return part if is_exact or is_float_array else None
    return part if isinstance(part, bool | int | str | bytes) else None


def fingerprint(tree: Any) -> str:
    """Return the SHA-256 of an observation's structure, dtypes, shapes and numbers."""
    digest = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, Mapping):
            for key in sorted(part, key=str):
                digest.update(f"{key!r}:".encode())
                add(part[key])
        # Gymnasium's `GraphInstance` is a tuple with a field `nodes`; its repr is used, below.
        elif isinstance(part, list | tuple) and not hasattr(part, "nodes"):
            digest.update(f"({len(part)}".encode())
            for item in part:
                add(item)
        elif isinstance(part, np.ndarray | np.generic | bool | int | float):
            array = np.asarray(part)
            digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        else:
            digest.update(repr(part).encode())

    add(tree)
    return digest.hexdigest()


# --- an environment that reports its state --------------------------------------------------------


class _Level(Protocol):
    """A wrapper or the innermost environment, whose state can be read and written."""

    def get_state(self) -> Any:
        """Return the state."""

    def set_state(self, state: Any) -> None:
        """Restore the state that `get_state` returned."""


def _levels(env: gymnasium.Env[Any, Any]) -> list[_Level] | None:
    """Return each wrapper and the innermost environment, outermost first; None if the state of one
    cannot be read and written.
    """
    level = _level(env)
    if level is None:
        return None
    if not isinstance(env, gymnasium.Wrapper):
        return [level]
    inner_levels = _levels(env.env)
    return None if inner_levels is None else [level, *inner_levels]


def _level(env: Any) -> _Level | None:
    """Return the interface to an environment's own state, without that of environments inside."""
    # Look at the class: a wrapper object also has the attributes of the environment inside it.
    has_methods = all(
        callable(getattr(type(env), name, None)) for name in ("get_state", "set_state")
    )
    if has_methods:
        level: _Level = env
        return level
    names = changing_attributes(env)
    if names is not None:
        return _GymnasiumWrapper(env, names)
    if _is_game(env):
        return _Game(env)
    return None


class _GymnasiumWrapper:
    """State of one of Gymnasium's wrappers: the attributes that change from step to step.

    Args:
        env: The wrapper.
        names: The names of these attributes.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], names: tuple[str, ...]) -> None:
        self._env = env
        self._names = names

    def get_state(self) -> dict[str, Any]:
        """Return the attributes by name."""
        return {name: getattr(self._env, name) for name in self._names}  # Gymnasium's attributes

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the attributes.

        Raises:
            ValueError: The wrapper has no such attribute, or it has a different type.
        """
        for name, value in state.items():
            current_value = getattr(self._env, name)  # an attribute of Gymnasium's
            current_type = type(current_value)
            has_other_type = current_type in _PLAIN and type(value) is not current_type
            if name not in self._names or has_other_type:
                raise ValueError(
                    f"{type(self._env).__name__} has no {name} of {type(value).__name__}"
                )
            if isinstance(current_value, deque):
                value = deque(value, current_value.maxlen)  # saved states lack the length
            setattr(self._env, name, value)


class _Game:
    """State of a game of the Arcade Learning Environment, with its random numbers.

    Args:
        game: The game.
    """

    def __init__(self, game: Any) -> None:
        self._game = game

    def get_state(self) -> bytes:
        """Return the game's state."""
        state: bytes = self._game.clone_state(include_rng=True).serialize()
        return state

    def set_state(self, state: bytes) -> None:
        """Restore the game's state."""
        from ale_py import ALEState

        self._game.restore_state(ALEState(state))


def _is_game(env: Any) -> bool:
    """Return whether an environment is an Atari game from the Arcade Learning Environment."""
    # Its package need not be installed, so its class cannot be named here.
    has_methods = all(hasattr(type(env), name) for name in ("clone_state", "restore_state"))
    return has_methods and hasattr(env, "ale")  # an attribute of ale_py's environment


# --- generators -----------------------------------------------------------------------------------


#: NumPy's generators. The second one is older; dm_control, bsuite and environments for gym have it.
_Generator = np.random.Generator | np.random.RandomState


def _generator_of(env: gymnasium.Env[Any, Any]) -> _Generator | None:
    """Return an environment's `np_random`, or None if it cannot be read or is something else."""
    random = _random_of(env)
    return random if isinstance(random, _Generator) else None


def _state_of(generator: _Generator) -> dict[str, Any]:
    """Return a generator's state, which `_set_generator` restores."""
    if isinstance(generator, np.random.RandomState):
        state: Any = generator.get_state(legacy=False)
    else:
        state = generator.bit_generator.state
    return dict(state)


def _generator_state(env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """Return the state of an environment's generator as plain data; empty without a generator."""
    generator = _generator_of(env)
    return {} if generator is None else dict(plain(_state_of(generator)))


def _set_generator(env: gymnasium.Env[Any, Any], state: Mapping[str, Any]) -> None:
    """Set the state of an environment's generator; do nothing if none was saved, or if the
    environment has none.
    """
    generator = _generator_of(env)
    if not state or generator is None:
        return
    if isinstance(generator, np.random.RandomState):
        generator.set_state(dict(state))
    else:
        generator.bit_generator.state = state


def _why_unreadable(env: gymnasium.Env[Any, Any]) -> str:
    """Return why an environment's generator cannot be saved."""
    random = _random_of(env)
    if random is None:
        return "its generator np_random cannot be read, so its episode cannot be replayed"
    return (
        f"its generator np_random is a {type(random).__name__}, not one of NumPy, so its episode"
        " cannot be replayed"
    )


def _random_of(env: gymnasium.Env[Any, Any]) -> Any:
    """Return an environment's `np_random` of any type; None if it cannot be read."""
    return read_attribute(read_attribute(env, "unwrapped", env), "np_random")
