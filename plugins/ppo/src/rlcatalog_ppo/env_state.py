"""Environment state, from which a stopped run resumes in the middle of its episodes.

The first of these three methods that the environment supports is used:

1. Save and restore the state with `get_state()` and `set_state(state)` of the innermost environment
   (or of an Atari game) and of every wrapper around it. Gymnasium's common wrappers are supported.
2. Replay the last complete episode and the one in progress with the recorded actions, from the
   generator's state at the first reset. Rewards, episode ends, the last observation, the last info
   and the generator must match.
3. Begin a new episode, with a warning, when the checkpoint is written and when it is read. This is
   also what happens if the generator is not a `numpy.random.Generator`, whose state can be read.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

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
_LONGEST = 200_000


class _Episode:
    """Record of an episode, from which the episode can be replayed.

    Args:
        generator: State of the environment's generator before the reset.
        seed: The reset's `seed`.
        options: The reset's `options`.

    Attributes:
        begun: The generator's state before the reset, and the reset's arguments.
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
        self.begun = {"generator": generator, "seed": seed, "options": deepcopy(options)}
        self.actions: list[Any] = []
        self.rewards: list[Any] = []
        self.ended = (False, False)

    def record(self, space: gymnasium.Space[Any]) -> dict[str, Any]:
        """Return the episode as plain data: the actions to replay, and a fingerprint of the
        outcome.
        """
        begun = {**self.begun, "generator": plain(self.begun["generator"])}
        record = {"begun": begun, "actions": space.to_jsonable(self.actions)}
        json.dumps(record)
        return {**record, "outcome": self.outcome()}

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
        self._closes, self._mask_key = closes, mask_key
        # A copy, because vector environments write their mode into the metadata.
        self.metadata = dict(read_attribute(env, "metadata") or {})
        self.index, self.count = index, count
        self._levels = _levels(env)
        self._returns = ReturnChecker(env.observation_space)
        self._fits = self._returns.fits
        #: The episode in progress and the one before it. None if the environment reports its state,
        #: if its generator cannot be read, or if an episode is too long.
        self._episode: _Episode | None = None
        self._former: _Episode | None = None
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
        if self._levels is None:
            generator = _generator_of(self.env)
            self._former = self._episode
            self._episode = None
            if generator is not None:
                self._episode = _Episode(generator.bit_generator.state, seed, options)
        self._steps = 0
        returned = call_env(self._fault, self.env.reset, seed=seed, options=options)
        self._check(returned, RESET)
        self.obs, self._info = returned
        return self.obs, self._mask_alone()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step.

        Raises:
            EnvironmentFaultError: The environment raised an exception, or returned something
                invalid.
        """
        if (episode := self._episode) is not None:
            episode.actions.append(action if isinstance(action, np.generic) else deepcopy(action))
        self._steps += 1
        returned = call_env(self._fault, self.env.step, action)
        try:
            obs, reward, terminated, truncated, self._info = returned
            usual = (
                type(reward) in NUMBERS
                and type(terminated) in FLAGS
                and type(truncated) in FLAGS
                and type(self._info) is dict
                and self._fits(obs)
            )
        except (TypeError, ValueError):
            usual = False
        if not usual:
            self._check(returned, STEP)
        over = terminated or truncated
        self.obs = obs = deepcopy(obs) if over else obs
        if episode is not None:
            episode.rewards.append(reward)
            if over:
                episode.ended = bool(terminated), bool(truncated)
            elif self._steps > _LONGEST:
                self._episode = None
        return obs, reward, terminated, truncated, self._mask_alone()

    def close(self) -> None:
        """Close the environment, unless it belongs to the caller."""
        if self._closes:
            close_env(self.env)

    def _mask_alone(self) -> dict[str, Any]:
        """Return the last info without anything but its action mask."""
        mask = info_mask(self._info, self._mask_key)
        return {} if mask is None else {str(self._mask_key): mask}

    def _check(self, returned: Any, names: tuple[str, ...]) -> None:
        if (fault := self._returns.fault(returned, names)) is not None:
            raise self._fault(fault)

    def _fault(self, what: str) -> EnvironmentFaultError:
        where = f"step {self._steps} of its episode" if self._steps else "reset"
        return EnvironmentFaultError(f"environment {self.index} of {self.count}: {where} {what}")

    def image_layout(self) -> str | None:
        """Return the layout of the environment's images, if its wrappers say it."""
        return env_layout(self.env)

    def where(self) -> dict[str, Any]:
        """Return the environment's state as a structure for `trees.take_apart`."""
        place: dict[str, Any] = {"generator": _generator_state(self.env)}
        if self._levels is not None:
            try:
                states = [get() for get, _ in self._levels]
                take_apart(states, {})
                return {**place, "levels": deepcopy(states)}
            # Raised by the environment's code, or by a state that is not plain data.
            except Exception as error:
                return {
                    **place,
                    "why": f"its state cannot be saved: {type(error).__name__}: {error}",
                }
        if _is_game(self.env.unwrapped):  # the environment does not draw from its generator
            return {
                **place,
                "why": "a wrapper around the game has no get_state() and set_state(state)",
            }
        if not place["generator"]:
            return {**place, "why": _why_unreadable(self.env)}
        if self._episode is None:
            return {**place, "why": f"its episode is longer than {_LONGEST} steps"}
        try:
            place |= self._episode.record(self.action_space)
            if self._former is not None and self._steps + len(self._former.actions) <= _LONGEST:
                place["before"] = self._former.record(self.action_space)
        except Exception as error:
            return {
                "generator": place["generator"],
                "why": f"its actions cannot be saved: {reason(error)}",
            }
        return {**place, "seen": fingerprint(self.obs), "infos": _comparable(self._info)}

    def go_to(self, places: Sequence[Mapping[str, Any]]) -> str | None:
        """Restore a state that `where` returned.

        Args:
            places: The states that `where` returned, for all environments, by index.

        Returns:
            None on success; otherwise the reason for the failure, after which a new episode must
            begin.
        """
        place = places[self.index]
        try:
            failed = self._go_to(place)
        except Exception as error:
            failed = f"{type(error).__name__}: {error}"
        if failed is not None:
            self._episode = self._former = None  # they are not part of the next episode
            _set_generator(self.env, place["generator"])
        return failed

    def _go_to(self, place: Mapping[str, Any]) -> str | None:
        if "why" in place:
            return str(place["why"])
        if len(self._levels or ()) != len(place.get("levels", ())):
            return "its wrappers have changed"
        if self._levels is None:
            return self._play_again(place)
        for (_, put), state in zip(self._levels, place["levels"], strict=True):
            put(deepcopy(state))
        _set_generator(self.env, place["generator"])
        return None

    def _play_again(self, place: Mapping[str, Any]) -> str | None:
        """Replay the recorded episodes, oldest first; return the first difference, if any."""
        self._episode = self._former = None
        records = [place["before"], place] if place.get("before") is not None else [place]
        _set_generator(self.env, records[0]["begun"]["generator"])
        for record in records:
            begun = record["begun"]
            if _generator_state(self.env) != begun["generator"]:
                return "after a replay of its last episode, its generator is in a different state"
            self.reset(seed=begun["seed"], options=begun["options"])
            if different := self._repeat(record):
                return f"its replayed episode {different}"
        if _generator_state(self.env) != place["generator"]:
            return "after a replay of its episode, its generator is in a different state"
        infos = _comparable(self._info)
        kept = place.get("infos", infos)  # 0.1.0 saved neither outcomes nor infos
        names = sorted(
            name for name in infos.keys() | kept.keys() if infos.get(name) != kept.get(name)
        )
        return f"its replayed episode has different infos: {', '.join(names)}" if names else None

    def _repeat(self, record: Mapping[str, Any]) -> str | None:
        """Take an episode's recorded actions after its reset; return the first
        difference, if any.
        """
        episode, actions = self._episode, self.action_space.from_jsonable(record["actions"])
        assert episode is not None
        for number, action in enumerate(actions, 1):
            self.step(action)
            if any(episode.ended) and number < len(actions):
                return f"ends after {number} of {len(actions)} steps"
        if "seen" in record and fingerprint(self.obs) != record["seen"]:
            return "has a different observation"
        outcome = episode.outcome()
        return (
            None
            if outcome == record.get("outcome", outcome)
            else "has different rewards or a different end"
        )


def _comparable(info: Mapping[Any, Any]) -> dict[str, str]:
    """Return fingerprints of the info entries that the same steps must reproduce.

    A single float may be a time, and objects may differ between runs, so both are omitted at every
    level.
    """
    return {str(key): fingerprint(_without_times(part)) for key, part in info.items()}


def _without_times(part: Any) -> Any:
    if isinstance(part, Mapping):
        return {key: _without_times(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [_without_times(value) for value in part]
    if isinstance(part, np.ndarray | np.generic):
        return (
            part if part.dtype.kind in "biuSU" or (part.ndim and part.dtype.kind in "fc") else None
        )
    return part if isinstance(part, bool | int | str | bytes) else None


def fingerprint(tree: Any) -> str:
    """Return the SHA-256 of an observation's structure, dtypes, shapes and numbers."""
    digest = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, Mapping):
            for key in sorted(part, key=str):
                digest.update(f"{key!r}:".encode())
                add(part[key])
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

_Level = tuple[Callable[[], Any], Callable[[Any], None]]


def _levels(env: Any) -> list[_Level] | None:
    """Return functions that get and set the state of each wrapper and of the innermost environment,
    or None.
    """
    if (level := _level(env)) is None:
        return None
    if not isinstance(env, gymnasium.Wrapper):
        return [level]
    inside = _levels(env.env)
    return None if inside is None else [level, *inside]


def _level(env: Any) -> _Level | None:
    if all(callable(getattr(type(env), name, None)) for name in ("get_state", "set_state")):
        return env.get_state, env.set_state
    if (names := changing_attributes(env)) is not None:

        def put(state: Mapping[str, Any]) -> None:
            for name, value in state.items():
                now = getattr(env, name)
                if name not in names or (type(now) in _PLAIN and type(value) is not type(now)):
                    raise ValueError(
                        f"{type(env).__name__} has no {name} of {type(value).__name__}"
                    )
                longest = getattr(now, "maxlen", None)
                object.__setattr__(
                    env, name, deque(value, longest) if longest is not None else value
                )

        return lambda: {name: getattr(env, name) for name in names}, put
    if _is_game(env):

        def restore(state: bytes) -> None:
            from ale_py import ALEState

            env.restore_state(ALEState(state))

        return lambda: env.clone_state(include_rng=True).serialize(), restore
    return None


def _is_game(env: Any) -> bool:
    """Return whether an environment is an Atari game from the Arcade Learning Environment."""
    return all(hasattr(type(env), name) for name in ("clone_state", "restore_state")) and hasattr(
        env, "ale"
    )


# --- generators -----------------------------------------------------------------------------------


def _generator_of(env: gymnasium.Env[Any, Any]) -> np.random.Generator | None:
    """Return an environment's `np_random`, or None if it cannot be read or is something else."""
    random = _random_of(env)
    return random if isinstance(random, np.random.Generator) else None


def _generator_state(env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """Return the state of an environment's generator as plain data; empty without a generator."""
    generator = _generator_of(env)
    return {} if generator is None else dict(plain(generator.bit_generator.state))


def _set_generator(env: gymnasium.Env[Any, Any], state: Mapping[str, Any]) -> None:
    """Set the state of an environment's generator; do nothing if none was saved, or if the
    environment has none.
    """
    generator = _generator_of(env)
    if state and generator is not None:
        generator.bit_generator.state = state


def _why_unreadable(env: gymnasium.Env[Any, Any]) -> str:
    """Return why an environment's generator cannot be saved."""
    random = _random_of(env)
    if random is None:
        return "its generator np_random cannot be read, so its episode cannot be replayed"
    return (
        f"its generator np_random is a {type(random).__name__}, not a numpy.random.Generator, so"
        " its episode cannot be replayed"
    )


def _random_of(env: gymnasium.Env[Any, Any]) -> Any:
    """Return an environment's `np_random` of any type; None if it cannot be read."""
    return read_attribute(read_attribute(env, "unwrapped", env), "np_random")
