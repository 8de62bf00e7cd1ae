"""Where an environment stands, so that a run that was stopped goes on in the middle of its episodes.

Three ways, the first that an environment allows:

1. It says its state itself: `get_state()` and `set_state(state)` of the innermost environment (or those of an Atari
   game), and of every wrapper around it; Gymnasium's usual wrappers are known.
2. Its episode is played again: the state of its generator at the last reset and the actions since. What is observed
   then, and the generator, must be what they were.
3. Neither: its next episode begins, and a warning says so.
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
from gymnasium import wrappers

from rlcatalog_ppo.trees import take_apart

#: What changes in a wrapper from step to step.
_CHANGES: dict[type, tuple[str, ...]] = {
    wrappers.TimeLimit: ("_elapsed_steps",),
    wrappers.OrderEnforcing: ("_has_reset", "_has_rendered"),
    wrappers.PassiveEnvChecker: ("checked_reset", "checked_step", "checked_render", "close_called"),
    wrappers.AtariPreprocessing: ("lives", "game_over", "obs_buffer"),
    wrappers.FrameStackObservation: ("obs_queue",),
    wrappers.TransformObservation: (),
    wrappers.TransformReward: (),
    wrappers.TransformAction: (),
    wrappers.ClipAction: (),
    wrappers.RescaleAction: (),
    wrappers.FlattenObservation: (),
}
#: The longest episode that is played again; it would take minutes, and its actions much memory.
_LONGEST = 200_000
_PLAIN = (bool, int, float, str, list, deque)


class Resumable(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The outermost wrapper: it can say where its environment stands, and go there.

    It also hands out a copy of an episode's last observation, which a reset may write over before anyone has read it.

    Args:
        env: The environment.
        index: Its place among those stepped side by side.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], index: int = 0) -> None:
        super().__init__(env)
        self.metadata = dict(env.metadata)  # vector environments write their mode into it
        self.index = index
        self._levels = _levels(env)
        #: How the episode began, and the actions since; None where it is too long to be played again.
        self._begun: dict[str, Any] | None = None
        self._actions: list[Any] | None = None
        self._obs: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        if self._levels is None:
            self._begun = {"generator": _generator(self.env), "seed": seed, "options": deepcopy(options)}
            self._actions = []
        obs, info = self.env.reset(seed=seed, options=options)
        self._obs = obs
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step."""
        if self._actions is not None:
            self._actions.append(_kept(action))
            if len(self._actions) > _LONGEST:
                self._actions = None
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._obs = obs = deepcopy(obs) if terminated or truncated else obs
        return obs, reward, terminated, truncated, info

    def where(self) -> dict[str, Any]:
        """Return where the environment stands: a structure for `trees.take_apart`."""
        found: dict[str, Any] = {"generator": _generator(self.env)}
        if self._levels is not None:
            try:
                states = [get() for get, _ in self._levels]
                take_apart(states, {})
                return {**found, "levels": deepcopy(states)}
            except Exception as error:  # of the environment's own code, or what cannot be written down
                return {**found, "why": f"its state cannot be kept: {type(error).__name__}: {error}"}
        if _is_game(self.env.unwrapped):  # its chance is not that of its generator
            return {
                **found,
                "why": "a wrapper around the game has no get_state() and set_state(state)",
            }
        if self._begun is None or self._actions is None:
            return {**found, "why": f"its episode is longer than {_LONGEST} steps"}
        try:
            actions = self.action_space.to_jsonable(list(self._actions))
            json.dumps([actions, self._begun["options"]])
        except Exception as error:
            return {**found, "why": f"its actions cannot be kept: {type(error).__name__}: {error}"}
        return {**found, "begun": self._begun, "actions": actions, "seen": fingerprint(self._obs)}

    def go_to(self, places: Sequence[Mapping[str, Any]]) -> str | None:
        """Go where an environment of this kind stood.

        Args:
            places: What `where` returned, for each environment; this one's is at its index.

        Returns:
            None, or why it could not; then its next episode is to begin.
        """
        place = places[self.index]
        try:
            failed = self._go_to(place)
        except Exception as error:
            failed = f"{type(error).__name__}: {error}"
        if failed is not None:
            _set_generator(self.env, place["generator"])
        return failed

    def _go_to(self, place: Mapping[str, Any]) -> str | None:
        if "why" in place:
            return str(place["why"])
        if "levels" in place:
            if self._levels is None or len(self._levels) != len(place["levels"]):
                return "its wrappers are others than they were"
            for (_, put), state in zip(self._levels, place["levels"], strict=True):
                put(deepcopy(state))
            _set_generator(self.env, place["generator"])
            return None
        begun = place["begun"]
        _set_generator(self.env, begun["generator"])
        self.reset(seed=begun["seed"], options=begun["options"])
        if self._begun is None:
            return "its wrappers are others than they were"
        self._begun["generator"] = begun["generator"]
        for action in self.action_space.from_jsonable(place["actions"]):
            self.step(action)
        if fingerprint(self._obs) != place["seen"]:
            return "played again, its episode shows another observation"
        if _generator(self.env) != place["generator"]:
            return "played again, its episode leaves its generator in another state"
        return None


def _kept(action: Any) -> Any:
    """Return an action that the caller may write over; numbers need no copy."""
    if isinstance(action, np.generic):
        return action
    return action.copy() if isinstance(action, np.ndarray) else deepcopy(action)


def fingerprint(tree: Any) -> str:
    """Return the SHA-256 of an observation: of its structure, dtypes, shapes and numbers."""
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


# --- an environment that says its state itself -----------------------------------------------------------------------

_Level = tuple[Callable[[], Any], Callable[[Any], None]]


def _levels(env: Any) -> list[_Level] | None:
    """Return how the state of each wrapper and of the environment inside is read and set, or None."""
    found: list[_Level] = []
    while True:
        level = _own(env) or _known(env)
        if level is None:
            return None
        found.append(level)
        if not isinstance(env, gymnasium.Wrapper):
            return found
        env = env.env


def _own(env: Any) -> _Level | None:
    names = ("get_state", "set_state")
    return (env.get_state, env.set_state) if all(callable(getattr(type(env), name, None)) for name in names) else None


def _known(env: Any) -> _Level | None:
    if type(env) in _CHANGES:
        names = _CHANGES[type(env)]

        def put(state: Mapping[str, Any]) -> None:
            for name, value in state.items():
                now = getattr(env, name)
                if name not in names or (type(now) in _PLAIN and type(value) is not type(now)):
                    raise ValueError(f"{type(env).__name__} has no {name} of {type(value).__name__}")
                longest = getattr(now, "maxlen", None)
                object.__setattr__(env, name, deque(value, longest) if longest is not None else value)

        return lambda: {name: getattr(env, name) for name in names if hasattr(env, name)}, put
    if _is_game(env):
        return lambda: env.clone_state(include_rng=True).serialize(), lambda state: _restore_game(env, state)
    return None


def _is_game(env: Any) -> bool:
    """Whether an environment is an Atari game of the Arcade Learning Environment."""
    return all(hasattr(type(env), name) for name in ("clone_state", "restore_state")) and hasattr(env, "ale")


def _restore_game(env: Any, state: bytes) -> None:
    from ale_py import ALEState

    env.restore_state(ALEState(state))


# --- generators -------------------------------------------------------------------------------------------------------


def _generator(env: gymnasium.Env[Any, Any]) -> Any:
    """Return the state of an environment's generator, as JSON holds it."""
    return _plain(env.unwrapped.np_random.bit_generator.state)


def _set_generator(env: gymnasium.Env[Any, Any], state: Any) -> None:
    env.unwrapped.np_random.bit_generator.state = state


def _plain(state: Any) -> Any:
    if isinstance(state, Mapping):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray | np.generic) else state
