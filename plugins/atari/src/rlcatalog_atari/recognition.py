"""Recognition of Atari games: told by their classes' names, so that nothing is imported for the question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

DEFAULT_PREFERENCE = "deepmind"

_ATARI = "ale_py.env.AtariEnv"
_OBSERVATION_WRAPPER = "gymnasium.core.ObservationWrapper"

#: Wrappers of gymnasium that prepare Atari observations, or part of it, and are no ObservationWrapper.
_PREPARING = {
    "gymnasium.wrappers.atari_preprocessing.AtariPreprocessing",
    "gymnasium.wrappers.stateful_observation.MaxAndSkipObservation",
}


def why_not(env: Any, config: Mapping[str, Any]) -> str | None:
    """Say why an environment is left as it is; None for one that is to be prepared.

    Args:
        env: The environment, or None.
        config: The model config; missing keys have their defaults.
    """
    game = getattr(env, "unwrapped", None)
    if game is None or _ATARI not in _classes(game):
        return f"takes Atari environments (ale_py), not {type(game).__name__ if game is not None else 'nothing'}"
    preference = config.get("preprocessor_pref", DEFAULT_PREFERENCE)
    if preference is None:
        return "preprocessor_pref is None"
    if config.get("custom_preprocessor") is not None:
        return "custom_preprocessor takes the observations as they are"
    changed = [type(layer).__name__ for layer in _layers(env) if _changes_observations(layer)]
    if changed:
        return f"{changed[0]} has changed the observations already"
    space = env.observation_space
    if "gymnasium.spaces.box.Box" not in _classes(space):
        return f"takes pixels or RAM, not {type(space).__name__} observations"
    if preference == "deepmind" and len(space.shape) == 1:
        return "RAM observations have no frames to stack (preprocessor_pref 'rllib' scales them)"
    return None


def _classes(thing: Any) -> set[str]:
    return {f"{cls.__module__}.{cls.__qualname__}" for cls in type(thing).__mro__}


def _layers(env: Any) -> Iterator[Any]:
    """Yield the wrappers around an environment, the innermost first."""
    if env is not env.unwrapped:
        yield from _layers(env.env)
        yield env


def _changes_observations(wrapper: Any) -> bool:
    if _classes(wrapper) & {_OBSERVATION_WRAPPER, *_PREPARING}:
        return True
    outer, inner = wrapper.observation_space, wrapper.env.observation_space
    return outer is not inner and outer != inner
