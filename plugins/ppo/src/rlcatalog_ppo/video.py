"""Videos and windows of an environment that a policy plays."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from rlcatalog.errors import ConfigError, MissingExtraError, NotServedError, reason, shown
from rlcatalog_policy import write_file
from rlcatalog_ppo.environments import vector
from rlcatalog_runs.evaluation import SIDE_BY_SIDE

#: Most episodes in a film.
EPISODES = 5

#: Endings of a film's file: its container, its codec, how pixels are stored, what width and height are multiples of,
#: the codec's options (measured: a third of the time, and as small).
_KINDS: dict[str, tuple[str, str, str, int, dict[str, str]]] = {
    ".mp4": ("mp4", "h264", "yuv420p", 2, {"preset": "veryfast"}),
    ".gif": ("gif", "gif", "pal8", 1, {}),
}

#: What names a display, or says that none is needed.
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")

_Env = gymnasium.Env[Any, Any]
_Frame = np.ndarray[Any, np.dtype[np.uint8]]
Maker = Callable[[str | None], Any]


class Film:
    """A film that is encoded frame by frame in memory and written whole, or not at all.

    Args:
        path: Its file, which ends in `.mp4` (H.264) or `.gif`; an existing one is replaced.

    Attributes:
        fps: Frames a second; set before the first frame.
        frames: How many frames it has.
        episodes: How many episodes.

    Raises:
        ConfigError: The file has another ending, or its folder cannot be made.
        MissingExtraError: The encoder is not installed.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix.lower() not in _KINDS:
            raise ConfigError(f"--video {path}: expected a file that ends in {' or '.join(_KINDS)}.")
        if find_spec("av") is None:
            raise MissingExtraError(
                "--video: av, which encodes it, is not installed: pip install 'rlcatalog-ppo[video]'."
            )
        if path.is_dir():
            raise ConfigError(f"--video {path}: a folder; name a file.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--video {path}: its folder cannot be made: {reason(error)}") from error
        if not os.access(path.parent, os.W_OK):
            raise ConfigError(f"--video {path}: its folder is not writable.")
        self.path, self.frames, self.episodes = path, 0, 0
        self.fps = 30.0  # where the environment does not say
        self._file = io.BytesIO()
        self._stream: Any = None
        self._shape: tuple[int, ...] = ()

    def add(self, frame: Any) -> None:
        """Add a frame.

        Args:
            frame: `[height, width, 3]` uint8, red, green, blue; the first one's size.

        Raises:
            NotServedError: It is something else.
        """
        if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or not self._fits(frame.shape):
            found = f"{frame.dtype} {list(frame.shape)}" if isinstance(frame, np.ndarray) else shown(frame)
            wanted = list(self._shape) if self._shape else "[height, width, 3]"
            raise NotServedError(f"--video: frame {self.frames + 1}: expected uint8 {wanted}, found {found}.")
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
            OSError: It cannot be written; an existing file stays as it is.
        """
        self._container.mux(self._stream.encode())  # what the encoder still holds
        self._container.close()
        write_file(self.path.parent, self.path.name, self._file.getvalue())

    def _fits(self, shape: tuple[int, ...]) -> bool:
        return shape == self._shape if self._shape else len(shape) == 3 and shape[2] == 3 and min(shape) > 0

    def _begin(self, shape: tuple[int, ...]) -> None:
        import av

        container, codec, pixels, self._multiple, options = _KINDS[self.path.suffix.lower()]
        self._container = av.open(self._file, "w", format=container)
        rate = Fraction(self.fps).limit_denominator(1000)
        self._stream = self._container.add_stream(codec, rate=rate, options=options)
        self._stream.pix_fmt, self._shape = pixels, shape
        self._stream.height, self._stream.width = (size + -size % self._multiple for size in shape[:2])


def _picture(frame: _Frame, pixels: str) -> Any:
    """Return a frame as the encoder takes it; a GIF's frame with its own palette."""
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


def filmed(make: Maker, name: str, film: Film, episodes: int) -> VectorEnv[Any, Any, Any]:
    """Return environments stepped side by side; the first episodes of the first one are filmed.

    There are as many that the first one plays 5 episodes, or all of them if there are fewer.

    Args:
        make: Makes an environment in a render mode.
        name: Its name, for messages.
        film: The film.
        episodes: How many episodes will be played in all.

    Raises:
        NotServedError: It renders no frames.
    """
    for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        os.environ.setdefault(driver, "dummy")  # frames need neither display nor sound card, whose absence is printed
    wanted, fps = min(episodes, EPISODES), _metadata(make, name, ("rgb_array",), "--video").get("render_fps")
    if isinstance(fps, int | float) and 0 < fps <= 1000:
        film.fps = float(fps)
    count = min(SIDE_BY_SIDE, episodes // wanted)
    return vector(lambda: make(None), count, lambda: Filmed(make("rgb_array"), film, wanted))


def windowed(make: Maker, name: str) -> VectorEnv[Any, Any, Any]:
    """Return one environment that is shown in a window.

    Args:
        make: Makes an environment in a render mode.
        name: Its name, for messages.

    Raises:
        NotServedError: It has no such mode, or there is no display.
    """
    # An accelerated window loads Mesa's LLVM, which ends the process where TensorFlow has brought another.
    os.environ.setdefault("SDL_FRAMEBUFFER_ACCELERATION", "0")
    # Gymnasium shows the frames of those that open no window of their own.
    _metadata(make, name, ("human", "rgb_array"), "--render")
    if sys.platform.startswith("linux") and not any(map(os.environ.get, _DISPLAYS)):
        raise NotServedError(
            "--render: there is no display to open a window on: neither DISPLAY nor WAYLAND_DISPLAY is set."
            " --video FILE.mp4 needs none."
        )
    return vector(lambda: Windowed(make("human")), 1)


def _metadata(make: Maker, name: str, wanted: tuple[str, ...], option: str) -> Mapping[str, Any]:
    """Return an environment's metadata, or raise if it has none of the render modes."""
    with closing(make(None)) as env:
        metadata = dict(env.metadata)
    modes = [mode for mode in metadata.get("render_modes") or () if mode is not None]
    if not set(wanted) & set(modes):
        raise NotServedError(
            f"{option}: environment {name} has no render mode {wanted[0]!r}. It has:"
            f" {', '.join(map(repr, modes)) or 'none'}."
        )
    return metadata


@contextmanager
def _rendering(env: _Env, mode: str) -> Iterator[None]:
    """Run an environment's rendering; an error names the environment and the render mode."""
    name = type(env.unwrapped).__name__ if env.spec is None else env.spec.id
    try:
        yield
    except gymnasium.error.DependencyNotInstalled as error:
        raise MissingExtraError(f"Environment {name}: a package that renders it is not installed: {error}") from error
    except Exception as error:
        raise NotServedError(f"Environment {name} cannot be rendered as {mode!r}: {reason(error)}") from error


class Filmed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that films the first episodes of an environment, one frame per observation.

    Args:
        env: The environment, made with `render_mode="rgb_array"`.
        film: The film.
        episodes: How many episodes.
    """

    def __init__(self, env: _Env, film: Film, episodes: int) -> None:
        super().__init__(env)
        self._film, self._episodes = film, episodes

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
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


class Windowed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that reports why an environment's window does not open.

    Args:
        env: The environment, made with `render_mode="human"`.
    """

    _open = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the first one opens the window."""
        if self._open:
            return self.env.reset(seed=seed, options=options)
        with _rendering(self.env, "human"):
            found = self.env.reset(seed=seed, options=options)
        pygame = sys.modules.get("pygame")  # which draws most environments, and says nothing where it shows nothing
        if pygame is not None and pygame.display.get_init() and pygame.display.get_driver() == "offscreen":
            raise NotServedError(f"--render: no window opens on the display {os.environ.get('DISPLAY', '')!r}.")
        self._open = True
        return found
