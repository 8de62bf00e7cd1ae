"""Recognition of Atari games by their class names, without importing them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rlcatalog import SpaceInfo
from rlcatalog.config import read_config
from rlcatalog_atari.config import AtariConfig

DEFAULT_PREFERENCE = "deepmind"

_ATARI = "ale_py.env.AtariEnv"
#: Number of bytes of RAM in the console.
_RAM_SIZE = 128
_OBSERVATION_WRAPPER = "gymnasium.core.ObservationWrapper"

#: Gymnasium wrappers that prepare Atari observations, fully or in part, but are not
#: ObservationWrappers.
_PREPARING = {
    "gymnasium.wrappers.atari_preprocessing.AtariPreprocessing",
    "gymnasium.wrappers.stateful_observation.MaxAndSkipObservation",
}


def why_not(env: Any, config: Mapping[str, Any]) -> str | None:
    """Return why an environment is left unchanged; None if it must be prepared.

    Args:
        env: The environment, or None.
        config: The model config; missing keys take their defaults.
    """
    if (game := getattr(env, "unwrapped", None)) is None or _ATARI not in _classes(game):
        return (
            "takes Atari environments (ale_py), not"
            f" {type(game).__name__ if game is not None else 'nothing'}"
        )
    if (preference := config.get("preprocessor_pref", DEFAULT_PREFERENCE)) is None:
        return "preprocessor_pref is None"
    if config.get("custom_preprocessor") is not None:
        return "custom_preprocessor needs unchanged observations"
    if changed := [type(layer).__name__ for layer in _layers(env) if _changes_observations(layer)]:
        return f"{changed[0]} has already changed the observations"
    space = env.observation_space
    if "gymnasium.spaces.box.Box" not in _classes(space):
        return f"takes pixels or RAM, not {type(space).__name__} observations"
    if preference == "deepmind" and len(space.shape) == 1:
        return "RAM observations have no frames to stack (preprocessor_pref 'rllib' scales them)"
    return None


def ignored_keys(obs: SpaceInfo, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the wrapper's keys that do not affect the observations, each with the condition under
    which it would.

    The observations reveal whether an environment was wrapped; in unclear cases, it counts as
    wrapped.

    Args:
        obs: The observation space that a model was built for.
        config: The model config; missing keys take their defaults.
    """
    settings = read_config(config, AtariConfig)
    preference = settings.preprocessor_pref
    if preference == "rllib" and obs.shape == (_RAM_SIZE,):
        return dict.fromkeys(
            ("framestack", "dim", "grayscale", "zero_mean"),
            "an Atari environment that emits pixels",
        )
    games = "an Atari environment that wrap_env prepares"
    shown = [leaf.shape for leaf in obs.walk() if _may_show_frames(leaf.shape or (), settings.dim)]
    if preference is None or not shown:
        # a preference.
        return {
            name: games for name in AtariConfig.__struct_fields__ if name != "preprocessor_pref"
        }
    if preference == "rllib":
        return {"framestack": "preprocessor_pref='deepmind'"}
    ignored = dict.fromkeys(("grayscale", "zero_mean"), "preprocessor_pref='rllib'")
    if all(math.prod(shape or ()) % (settings.dim**2 * settings.frames) for shape in shown):
        ignored["framestack"] = games
    return ignored


def _may_show_frames(shape: tuple[int, ...], dim: int) -> bool:
    """Return whether a part of an observation may contain prepared frames, even if flattened,
    stacked or transposed.
    """
    return shape.count(dim) > 1 or (len(shape) == 1 and shape[0] % dim**2 == 0)


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
