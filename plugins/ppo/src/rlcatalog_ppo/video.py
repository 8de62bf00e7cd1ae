"""Videos of a policy in an environment, and windows that show it."""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from rlcatalog.catalog import close_env, registered_id
from rlcatalog.errors import ConfigError, MissingExtraError, NotServedError, reason, shown
from rlcatalog.plugins import install_hint
from rlcatalog.spaces import read_attribute
from rlcatalog_policy import write_file
from rlcatalog_ppo.environments import vector
from rlcatalog_runs.evaluation import MOST_ENVS_AT_ONCE

#: Maximum number of episodes in a film.
EPISODES = 5


class _Format(NamedTuple):
    """How a film is encoded.

    Attributes:
        container: The file format's name in PyAV.
        codec: The codec's name in PyAV.
        pixels: The pixel format.
        multiple: Width and height must be multiples of this number.
        options: Options of the codec.
    """

    container: str
    codec: str
    pixels: str
    multiple: int
    options: dict[str, str]


#: File suffix → format.
_FORMATS = {
    # "veryfast" was measured: the same file size in one third of the time.
    ".mp4": _Format("mp4", "h264", pixels="yuv420p", multiple=2, options={"preset": "veryfast"}),
    ".gif": _Format("gif", "gif", pixels="pal8", multiple=1, options={}),
}

#: Environment variables that name a display or say that none is needed.
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")

_Env = gymnasium.Env[Any, Any]
_Frame = np.ndarray[Any, np.dtype[np.uint8]]
Maker = Callable[[str | None], Any]


class Film:
    """Film that is encoded frame by frame in memory and written completely or not at all.

    Args:
        path: The file, with the suffix `.mp4` (H.264) or `.gif`. An existing file is replaced.

    Attributes:
        fps: Frames per second; set it before adding the first frame.
        frames: Number of frames.
        episodes: Number of episodes.

    Raises:
        ConfigError: The file has a different suffix, or its folder cannot be created.
        MissingExtraError: The encoder is not installed.
    """

    def __init__(self, path: Path) -> None:
        suffix = path.suffix.lower()
        if suffix not in _FORMATS:
            raise ConfigError(
                f"--video {path}: expected a file that ends in {' or '.join(_FORMATS)}."
            )
        if find_spec("av") is None:
            raise MissingExtraError(
                f"--video: the encoder av is not installed. {install_hint('rlcatalog-ppo[video]')}"
            )
        if path.is_dir():
            raise ConfigError(f"--video {path} is a folder. Pass the path of a file.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"--video {path}: its folder cannot be created: {reason(error)}"
            ) from error
        if not os.access(path.parent, os.W_OK):
            raise ConfigError(f"--video {path}: its folder is not writable.")
        self.path = path
        self.frames = 0
        self.episodes = 0
        self.fps = 30.0  # for environments that do not specify a speed
        self._format = _FORMATS[suffix]
        self._file = io.BytesIO()
        #: The first frame sets these.
        self._container: Any = None
        self._stream: Any = None
        self._shape: tuple[int, ...] | None = None

    def add(self, frame: Any) -> None:
        """Add a frame.

        Args:
            frame: RGB image `[height, width, 3]`, uint8; all frames have the same size.

        Raises:
            NotServedError: The frame has a different shape or dtype.
        """
        self._check_frame(frame)
        if self._shape is None:
            self._begin(frame.shape)
        height, width, _ = frame.shape
        # The encoder may need an even number of rows and columns, so repeat the last ones.
        missing_rows = self._round_up(height) - height
        missing_columns = self._round_up(width) - width
        if missing_rows or missing_columns:
            frame = np.pad(frame, [(0, missing_rows), (0, missing_columns), (0, 0)], mode="edge")
        self._container.mux(self._stream.encode(_video_frame(frame, self._format.pixels)))
        self.frames += 1

    def write(self) -> None:
        """Write the file.

        Raises:
            OSError: The file cannot be written; an existing file remains unchanged.
        """
        self._container.mux(self._stream.encode())  # frames still in the encoder
        self._container.close()
        write_file(self.path.parent, self.path.name, self._file.getvalue())

    def _check_frame(self, frame: Any) -> None:
        """Raise an error unless a frame is an RGB image of the film's size."""
        if not isinstance(frame, np.ndarray):
            raise self._frame_error(found=shown(frame))
        if self._shape is None:
            has_right_shape = frame.ndim == 3 and frame.shape[2] == 3 and frame.size > 0
        else:
            has_right_shape = frame.shape == self._shape
        if frame.dtype != np.uint8 or not has_right_shape:
            raise self._frame_error(found=f"{frame.dtype} {list(frame.shape)}")

    def _frame_error(self, *, found: str) -> NotServedError:
        shape = "[height, width, 3]" if self._shape is None else str(list(self._shape))
        return NotServedError(
            f"--video: frame {self.frames + 1}: expected uint8 {shape}, found {found}."
        )

    def _begin(self, shape: tuple[int, ...]) -> None:
        """Create the encoder for frames of a shape `[height, width, 3]`."""
        import av

        self._container = av.open(self._file, "w", format=self._format.container)
        rate = Fraction(self.fps).limit_denominator(1001)  # as in television's 30000/1001
        self._stream = self._container.add_stream(
            self._format.codec, rate=rate, options=self._format.options
        )
        self._stream.pix_fmt = self._format.pixels
        height, width, _ = shape
        self._stream.height = self._round_up(height)
        self._stream.width = self._round_up(width)
        self._shape = shape

    def _round_up(self, size: int) -> int:
        """Return the next width or height that the format supports."""
        return math.ceil(size / self._format.multiple) * self._format.multiple


def _video_frame(frame: _Frame, pixels: str) -> Any:
    """Convert an image to a frame for the encoder; in a GIF, each frame has its own palette."""
    from av import VideoFrame
    from PIL import Image

    if pixels != "pal8":  # only a GIF has a palette of 8 bits
        return VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
    image = Image.fromarray(frame).quantize(256, Image.Quantize.FASTOCTREE)
    colours = np.array(image.getpalette("RGB"), np.uint8).reshape(-1, 3)  # at most 256
    # Four bytes for each colour: 255 for opaque, then red, green and blue.
    palette = np.full((256, 4), 255, np.uint8)
    palette[: len(colours), 1:] = colours
    # PyAV declares an array, but takes the indices and their palette for this pixel format.
    indices_and_palette: Any = (np.asarray(image), palette)
    return VideoFrame.from_ndarray(indices_and_palette, format="pal8")


def make_film_envs(
    make: Maker, name: str, film: Film, episodes: int, mask_key: str | None = "action_mask"
) -> VectorEnv[Any, Any, Any]:
    """Return a vector environment that films the first episodes of its first environment.

    The number of environments is chosen so that the first one plays 5 episodes, or all episodes if
    there are fewer.

    Args:
        make: Function that creates an environment with a given render mode.
        name: The environment's name, for messages.
        film: The film.
        episodes: Total number of episodes that will be played.
        mask_key: See `environments.vector`.

    Raises:
        NotServedError: The environment does not render frames.
    """
    for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        # Rendering frames needs neither display nor sound card.
        os.environ.setdefault(driver, "dummy")
    metadata = _read_metadata(make, name, modes=("rgb_array",), option="--video")
    fps = metadata.get("render_fps")
    if isinstance(fps, int | float) and 0 < fps <= 1000:
        film.fps = float(fps)
    num_filmed = min(episodes, EPISODES)
    num_envs = min(MOST_ENVS_AT_ONCE, episodes // num_filmed)
    return vector(
        lambda: make(None),
        num_envs,
        first=lambda: FilmWrapper(make("rgb_array"), film, num_filmed),
        mask_key=mask_key,
    )


def make_window_env(
    make: Maker, name: str, mask_key: str | None = "action_mask"
) -> VectorEnv[Any, Any, Any]:
    """Return a vector environment with a single environment, which is shown in a window.

    Args:
        make: Function that creates an environment with a given render mode.
        name: The environment's name, for messages.
        mask_key: See `environments.vector`.

    Raises:
        NotServedError: The environment has no such render mode, or there is no display.
    """
    # An accelerated window loads Mesa's LLVM, which crashes the process if TensorFlow has loaded
    # another LLVM.
    os.environ.setdefault("SDL_FRAMEBUFFER_ACCELERATION", "0")
    # For the error if the environment has neither mode. With only the second one, Gymnasium itself
    # shows the frames in a window.
    _read_metadata(make, name, modes=("human", "rgb_array"), option="--render")
    has_display = any(os.environ.get(variable) for variable in _DISPLAYS)
    if sys.platform.startswith("linux") and not has_display:
        raise NotServedError(
            "--render: there is no display for a window: neither DISPLAY nor WAYLAND_DISPLAY is"
            " set. Use --video FILE.mp4, which needs no display."
        )
    return vector(lambda: WindowWrapper(make("human")), 1, mask_key=mask_key)


def _read_metadata(
    make: Maker, name: str, *, modes: tuple[str, ...], option: str
) -> Mapping[str, Any]:
    """Return an environment's metadata.

    Args:
        make: Function that creates an environment with a given render mode.
        name: The environment's name, for messages.
        modes: Render modes; the environment must support at least one of them.
        option: The option of the command, for messages.

    Raises:
        NotServedError: The environment supports none of the modes.
    """
    env = make(None)
    metadata = dict(read_attribute(env, "metadata") or {})
    close_env(env)
    # Some environments list None, for no rendering, among their modes.
    supported_modes = [mode for mode in metadata.get("render_modes") or () if mode is not None]
    if not set(modes) & set(supported_modes):
        listing = ", ".join(map(repr, supported_modes)) or "none"
        raise NotServedError(
            f"{option}: environment {name} has no render mode {modes[0]!r}. It has: {listing}."
        )
    return metadata


@contextmanager
def _rendering(env: _Env, mode: str) -> Iterator[None]:
    """Context manager that adds the environment and the render mode to errors in rendering."""
    name = registered_id(env) or type(env.unwrapped).__name__
    try:
        yield
    except gymnasium.error.DependencyNotInstalled as error:
        raise MissingExtraError(
            f"Environment {name}: a package that renders it is not installed: {error}"
        ) from error
    except Exception as error:
        raise NotServedError(
            f"Environment {name} cannot be rendered as {mode!r}: {reason(error)}"
        ) from error


class FilmWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that films the first episodes of an environment, one frame per observation.

    Args:
        env: The environment, made with `render_mode="rgb_array"`.
        film: The film.
        episodes: Number of episodes.
    """

    def __init__(self, env: _Env, film: Film, episodes: int) -> None:
        super().__init__(env)
        self._film = film
        self._episodes = episodes

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        returned = self.env.reset(seed=seed, options=options)
        self._film_frame()
        return returned

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._film_frame()
        if (terminated or truncated) and self._film.episodes < self._episodes:
            self._film.episodes += 1
        return obs, reward, terminated, truncated, info

    def _film_frame(self) -> None:
        if self._film.episodes >= self._episodes:
            return
        with _rendering(self.env, "rgb_array"):
            frame: Any = self.env.render()
        self._film.add(frame)


class WindowWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that raises an informative error if an environment's window does not open.

    Args:
        env: The environment, made with `render_mode="human"`.
    """

    _is_open = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the first episode opens the window."""
        if self._is_open:
            return self.env.reset(seed=seed, options=options)
        with _rendering(self.env, "human"):
            returned = self.env.reset(seed=seed, options=options)
        if _pygame_draws_offscreen():
            raise NotServedError(
                f"--render: no window opened on the display {os.environ.get('DISPLAY', '')!r}."
            )
        self._is_open = True
        return returned


def _pygame_draws_offscreen() -> bool:
    """Return whether pygame, which most environments use, has silently opened no window."""
    pygame = sys.modules.get("pygame")
    if pygame is None or not pygame.display.get_init():
        return False
    return bool(pygame.display.get_driver() == "offscreen")
