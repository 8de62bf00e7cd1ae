"""Recognition of Atari games by their class names, without importing them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlcatalog import SpaceInfo
from rlcatalog.config import read_config
from rlcatalog_atari.config import AtariConfig

if TYPE_CHECKING:
    import gymnasium

    Environment = gymnasium.Env[Any, Any]

DEFAULT_PREFERENCE = "deepmind"

_ATARI = "ale_py.env.AtariEnv"
#: Number of bytes of RAM in the console.
_RAM_SIZE = 128
_OBSERVATION_WRAPPER = "gymnasium.core.ObservationWrapper"

#: Gymnasium wrappers that prepare Atari observations, fully or in part, but are not
#: ObservationWrappers.
_PREPARATION_WRAPPERS = {
    "gymnasium.wrappers.atari_preprocessing.AtariPreprocessing",
    "gymnasium.wrappers.stateful_observation.MaxAndSkipObservation",
}


def reason_to_leave_unchanged(env: Environment | None, config: Mapping[str, Any]) -> str | None:
    """Return why an environment is left unchanged, as `explain` shows it; None if it must be
    prepared.

    Args:
        env: The environment, or None.
        config: The model config; missing keys take their defaults.
    """
    # A user's environment of another library need not have this attribute.
    game = getattr(env, "unwrapped", None)
    if env is None or game is None:
        return "takes Atari environments (ale_py), not nothing"
    if _ATARI not in _class_names(game):
        return f"takes Atari environments (ale_py), not {type(game).__name__}"
    preference = config.get("preprocessor_pref", DEFAULT_PREFERENCE)
    if preference is None:
        return "preprocessor_pref is None"
    if config.get("custom_preprocessor") is not None:
        return "custom_preprocessor needs unchanged observations"
    for wrapper in _wrappers(env):
        if _changes_observations(wrapper):
            return f"{type(wrapper).__name__} has already changed the observations"
    space = env.observation_space
    is_box = "gymnasium.spaces.box.Box" in _class_names(space)
    if not is_box:
        return f"takes pixels or RAM, not {type(space).__name__} observations"
    is_ram = len(space.shape or ()) == 1
    if preference == "deepmind" and is_ram:
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
        pixel_keys = ("framestack", "dim", "grayscale", "zero_mean")
        return dict.fromkeys(pixel_keys, "an Atari environment that emits pixels")
    wrapped_games = "an Atari environment that wrap_env prepares"
    frame_shapes = []
    for leaf in obs.walk():
        shape = leaf.shape or ()
        if _may_hold_frames(shape, settings.dim):
            frame_shapes.append(shape)
    if preference is None or not frame_shapes:
        keys = [name for name in AtariConfig.__struct_fields__ if name != "preprocessor_pref"]
        return dict.fromkeys(keys, wrapped_games)
    if preference == "rllib":
        return {"framestack": "preprocessor_pref='deepmind'"}
    ignored = dict.fromkeys(("grayscale", "zero_mean"), "preprocessor_pref='rllib'")
    pixels_of_stack = settings.dim**2 * settings.frames
    may_be_stacked = any(math.prod(shape) % pixels_of_stack == 0 for shape in frame_shapes)
    if not may_be_stacked:
        ignored["framestack"] = wrapped_games
    return ignored


def _may_hold_frames(shape: tuple[int, ...], dim: int) -> bool:
    """Return whether a part of an observation may contain prepared frames, even if flattened,
    stacked or transposed.
    """
    has_two_such_axes = shape.count(dim) > 1
    may_be_flat_frames = len(shape) == 1 and shape[0] % dim**2 == 0
    return has_two_such_axes or may_be_flat_frames


def _class_names(thing: object) -> set[str]:
    """Return the full names of an object's class and its bases."""
    return {f"{cls.__module__}.{cls.__qualname__}" for cls in type(thing).__mro__}


def _wrappers(env: Any) -> Iterator[Any]:
    """Yield the wrappers around an environment, the innermost first."""
    if env is not env.unwrapped:
        yield from _wrappers(env.env)
        yield env


def _changes_observations(wrapper: gymnasium.Wrapper[Any, Any, Any, Any]) -> bool:
    if _class_names(wrapper) & {_OBSERVATION_WRAPPER, *_PREPARATION_WRAPPERS}:
        return True
    outer_space = wrapper.observation_space
    inner_space = wrapper.env.observation_space
    return outer_space is not inner_space and outer_space != inner_space
