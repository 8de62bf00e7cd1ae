"""Environment wrappers for Atari games."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import msgspec
import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TransformObservation

from rlcatalog.config import read_config
from rlcatalog.errors import NotServedError
from rlcatalog.observations import Array, Preprocessor
from rlcatalog_atari.config import AtariConfig
from rlcatalog_atari.episodes import FireOnReset, TerminalOnLifeLoss, action_of
from rlcatalog_atari.private_api import frames_per_step
from rlcatalog_atari.recognition import reason_to_leave_unchanged

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Maximum number of no-ops at the start of a game, as in the DQN paper; they vary the starts.
_MOST_NOOPS = 30
#: Emulator frames per action.
_FRAME_SKIP = 4


def wrap(env: gymnasium.Env[Any, Any], config: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Prepare an Atari environment according to `preprocessor_pref`.

    `"deepmind"`: see `stacked_frames`. `"rllib"` applies `EncodedObservation` and, with
    `atari_terminal_on_life_loss`, also `TerminalOnLifeLoss`.

    Args:
        env: An Atari environment that still emits the emulator's own observations.
        config: The model config; missing keys take their defaults.

    Raises:
        ConfigError: A key has an invalid value.
        NotServedError: The environment cannot or must not be changed. The message says why.
    """
    settings = read_config(config, AtariConfig)
    reason = reason_to_leave_unchanged(env, config)
    if reason is not None:
        raise NotServedError(
            f"atari: {env} cannot be wrapped: {reason}. rlcatalog.wrap_env leaves it unchanged."
        )
    if settings.preprocessor_pref == "deepmind":
        return stacked_frames(env, settings)
    if settings.atari_terminal_on_life_loss:
        env = TerminalOnLifeLoss(env)
    return EncodedObservation(env, msgspec.structs.asdict(settings))


def stacked_frames(env: gymnasium.Env[Any, Any], settings: AtariConfig) -> gymnasium.Env[Any, Any]:
    """Return the environment with gray, resized and stacked frames: uint8 `[dim, dim, frames]`,
    newest frame last.

    This function combines Gymnasium's AtariPreprocessing and FrameStackObservation, and presses
    FIRE at the start if the game has that button. An episode starts with up to 30 no-ops. Each
    action lasts 4 frames, and the observation is the maximum of the last two, unless the
    environment skips frames itself. An episode is a whole game; after a lost life, the agent itself
    must press FIRE. With `atari_terminal_on_life_loss`, an episode is one life and starts with a
    press of FIRE.

    Args:
        env: An Atari environment with pixel observations, in colour or gray. Its frames are not
            used: the wrapper takes them from the emulator's screen.
        settings: Frame sizes, and the rule for the end of episodes.
    """
    game: Any = env.unwrapped
    # Gymnasium's wrapper takes the action 0 for the no-op.
    noop_is_first = not game.continuous and action_of(env, "NOOP") == 0
    noop_max = _MOST_NOOPS if noop_is_first else 0
    skips_frames = frames_per_step(game) != 1
    frame_skip = 1 if skips_frames else _FRAME_SKIP  # frames are never skipped twice
    frames = settings.frames
    env = AtariPreprocessing(
        env,
        noop_max=noop_max,
        frame_skip=frame_skip,
        screen_size=settings.dim,
        # Without stacking, a frame still has an axis for channels.
        grayscale_newaxis=frames == 1,
    )
    if settings.atari_terminal_on_life_loss:
        env = TerminalOnLifeLoss(env)
    if action_of(env, "FIRE") is not None:
        env = FireOnReset(env)
    if frames == 1:
        return env
    space = Box(0, 255, (settings.dim, settings.dim, frames), np.uint8)
    return TransformObservation(FrameStackObservation(env, frames), channels_last, space)


def channels_last(stack: Array) -> Array:
    """Return stacked frames `[frames, height, width]` as a view `[height, width, frames]`."""
    return stack.transpose(1, 2, 0)


class EncodedObservation(gymnasium.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """Wrapper that encodes pixels with `GenericPixelPreprocessor`, and RAM with
    `AtariRamPreprocessor`.

    The observation space is a float32 Box, so a policy for it does not encode observations twice.

    Args:
        env: An Atari environment with pixel or RAM observations.
        options: The codecs' config keys.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], options: Mapping[str, Any]) -> None:
        from rlcatalog_atari.preprocessors import AtariRamPreprocessor, GenericPixelPreprocessor

        RecordConstructorArgs.__init__(self, options=dict(options))
        super().__init__(env)
        is_ram = len(env.observation_space.shape or ()) == 1
        codec = AtariRamPreprocessor if is_ram else GenericPixelPreprocessor
        self.preprocessor: Preprocessor = codec(env.observation_space, options)
        low, high = self.preprocessor.bounds()
        shape = self.preprocessor.shape
        self.observation_space = Box(low.reshape(shape), high.reshape(shape), dtype=np.float32)

    def observation(self, observation: ArrayLike) -> Array:
        return self.preprocessor.transform(observation)

    def get_state(self) -> None:
        """Return the wrapper's state, which is empty, for resuming a run (see
        `rlcatalog train --resume`).
        """

    def set_state(self, state: None) -> None:
        """Do nothing."""
