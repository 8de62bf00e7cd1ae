"""Videos of a policy in an environment, and windows that show it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from rlcatalog.catalog import close_env
from rlcatalog.errors import ConfigError, MissingExtraError, NotServedError, reason, shown
from rlcatalog.plugins import install_hint
from rlcatalog.spaces import read_attribute
from rlcatalog_policy import write_file
from rlcatalog_ppo.environments import vector
from rlcatalog_runs.evaluation import SIDE_BY_SIDE

#: Maximum number of episodes in a film.
EPISODES = 5

#: File suffix → container, codec, pixel format, factor of width and height, codec options
#: (measured: the same file size in one third of the time).
_KINDS: dict[str, tuple[str, str, str, int, dict[str, str]]] = {
    ".mp4": ("mp4", "h264", "yuv420p", 2, {"preset": "veryfast"}),
    ".gif": ("gif", "gif", "pal8", 1, {}),
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
        if path.suffix.lower() not in _KINDS:
            raise ConfigError(
                f"--video {path}: expected a file that ends in {' or '.join(_KINDS)}."
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
        self.path, self.frames, self.episodes = path, 0, 0
        self.fps = 30.0  # for environments that do not specify a speed
        self._file = io.BytesIO()
        self._stream: Any = None
        self._shape: tuple[int, ...] = ()

    def add(self, frame: Any) -> None:
        """Add a frame.

        Args:
            frame: RGB image `[height, width, 3]`, uint8; all frames have the same size.

        Raises:
            NotServedError: The frame has a different shape or dtype.
        """
        if (
            not isinstance(frame, np.ndarray)
            or frame.dtype != np.uint8
            or not self._fits(frame.shape)
        ):
            found = (
                f"{frame.dtype} {list(frame.shape)}"
                if isinstance(frame, np.ndarray)
                else shown(frame)
            )
            wanted = list(self._shape) if self._shape else "[height, width, 3]"
            raise NotServedError(
                f"--video: frame {self.frames + 1}: expected uint8 {wanted}, found {found}."
            )
        if not self._shape:
            self._begin(frame.shape)
        margin = [(0, -size % self._multiple) for size in frame.shape[:2]]
        if any(more for _, more in margin):
            frame = np.pad(frame, [*margin, (0, 0)], mode="edge")
        self._container.mux(self._stream.encode(_picture(frame, self._stream.pix_fmt)))
        self.frames += 1

    def write(self) -> None:
        """Write the file.

        Raises:
            OSError: The file cannot be written; an existing file remains unchanged.
        """
        self._container.mux(self._stream.encode())  # frames still in the encoder
        self._container.close()
        write_file(self.path.parent, self.path.name, self._file.getvalue())

    def _fits(self, shape: tuple[int, ...]) -> bool:
        return (
            shape == self._shape
            if self._shape
            else len(shape) == 3 and shape[2] == 3 and min(shape) > 0
        )

    def _begin(self, shape: tuple[int, ...]) -> None:
        import av

        container, codec, pixels, self._multiple, options = _KINDS[self.path.suffix.lower()]
        self._container = av.open(self._file, "w", format=container)
        rate = Fraction(self.fps).limit_denominator(1001)  # as in television's 30000/1001
        self._stream = self._container.add_stream(codec, rate=rate, options=options)
        self._stream.pix_fmt, self._shape = pixels, shape
        self._stream.height, self._stream.width = (
            size + -size % self._multiple for size in shape[:2]
        )


def _picture(frame: _Frame, pixels: str) -> Any:
    """Convert an image to a frame for the encoder; in a GIF, each frame has its own palette."""
    from av import VideoFrame
    from PIL import Image

    if pixels != "pal8":
        return VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
    image = Image.fromarray(frame).quantize(256, Image.Quantize.FASTOCTREE)
    colours = np.array(image.getpalette("RGB"), np.uint8).reshape(-1, 3)
    palette = np.full((256, 4), 255, np.uint8)  # opaque, red, green, blue
    palette[: len(colours), 1:] = colours
    indexed: Any = (np.asarray(image), palette)
    return VideoFrame.from_ndarray(indexed, format="pal8")


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
    wanted, fps = (
        min(episodes, EPISODES),
        _metadata(make, name, ("rgb_array",), "--video").get("render_fps"),
    )
    if isinstance(fps, int | float) and 0 < fps <= 1000:
        film.fps = float(fps)
    count = min(SIDE_BY_SIDE, episodes // wanted)
    return vector(
        lambda: make(None),
        count,
        lambda: FilmWrapper(make("rgb_array"), film, wanted),
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
    # Gymnasium shows the frames of environments that do not open a window.
    _metadata(make, name, ("human", "rgb_array"), "--render")
    if sys.platform.startswith("linux") and not any(map(os.environ.get, _DISPLAYS)):
        raise NotServedError(
            "--render: there is no display for a window: neither DISPLAY nor WAYLAND_DISPLAY is"
            " set. Use --video FILE.mp4, which needs no display."
        )
    return vector(lambda: WindowWrapper(make("human")), 1, mask_key=mask_key)


def _metadata(make: Maker, name: str, wanted: tuple[str, ...], option: str) -> Mapping[str, Any]:
    """Return an environment's metadata; raise an error if it does not support any of the render
    modes.
    """
    env = make(None)
    metadata = dict(read_attribute(env, "metadata") or {})
    close_env(env)
    modes = [mode for mode in metadata.get("render_modes") or () if mode is not None]
    if not set(wanted) & set(modes):
        raise NotServedError(
            f"{option}: environment {name} has no render mode {wanted[0]!r}. It has:"
            f" {', '.join(map(repr, modes)) or 'none'}."
        )
    return metadata


@contextmanager
def _rendering(env: _Env, mode: str) -> Iterator[None]:
    """Context manager that adds the environment and the render mode to errors in rendering."""
    name = type(env.unwrapped).__name__
    if (spec := read_attribute(env, "spec")) is not None:
        name = spec.id
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
        self._film, self._episodes = film, episodes

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        found = self.env.reset(seed=seed, options=options)
        self._take()
        return found

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._take()
        if (terminated or truncated) and self._film.episodes < self._episodes:
            self._film.episodes += 1
        return obs, reward, terminated, truncated, info

    def _take(self) -> None:
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

    _open = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the first episode opens the window."""
        if self._open:
            return self.env.reset(seed=seed, options=options)
        with _rendering(self.env, "human"):
            found = self.env.reset(seed=seed, options=options)
        pygame = sys.modules.get("pygame")  # most environments use pygame, which fails silently
        if (
            pygame is not None
            and pygame.display.get_init()
            and pygame.display.get_driver() == "offscreen"
        ):
            raise NotServedError(
                f"--render: no window opened on the display {os.environ.get('DISPLAY', '')!r}."
            )
        self._open = True
        return found
