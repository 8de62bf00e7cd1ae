"""Codecs for the Atari emulator's pixels and RAM. All arithmetic is float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import cv2
import numpy as np

from rlcatalog.config import read_config
from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog.observations import Array, Preprocessor, Writer
from rlcatalog_atari.config import AtariConfig

if TYPE_CHECKING:
    from gymnasium import Space
    from numpy.typing import ArrayLike

#: Height of most Atari screens, and the rows at top and bottom that show scores and border.
_SCREEN_HEIGHT = 210
_CROPPED = 25
#: Smaller frames are computed in two steps, via this size.
_INTERMEDIATE_SIZE = 84
#: The sum of three colours, as a matrix.
_SUM = np.ones((1, 3), np.float32)


def _holds_integers(array: Array) -> bool:
    """Return whether the dtype is a signed or unsigned integer, but not bool."""
    return array.dtype.kind in "iu"


class BytesPreprocessor(Preprocessor):
    """Base class for both codecs, for uint8 Box spaces."""

    def check(self, obs: ArrayLike) -> None:
        info = self.info
        try:
            array = np.asarray(obs)
        except ValueError:  # lists of different lengths
            # Raises an error, as do the calls below.
            self.refuse(f"{info.describe()}: integers of shape {info.shape}", obs)
        if not _holds_integers(array) or array.shape != info.shape:
            self.refuse(f"{info.describe()}: integers of shape {info.shape}", obs)
        is_outside = (array < info.low) | (array > info.high)
        if is_outside.any():
            place = tuple(int(i) for i in np.argwhere(is_outside)[0])
            expected = f"{info.describe()}: values within the bounds of the space, at {list(place)}"
            self.refuse(expected, array[place])

    def refuse_space(self, expected: str) -> NoReturn:
        """Raise UnsupportedSpaceError for this codec's space."""
        raise UnsupportedSpaceError(
            f"{self.info.path}: {type(self).__name__} takes {expected}; found"
            f" {self.info.describe()}. Remove custom_preprocessor from the config, or convert the"
            " observations in an environment wrapper."
        )


class GenericPixelPreprocessor(BytesPreprocessor):
    """Codec for images, which are cropped, resized by area averaging, and scaled to floats.

    Images with 210 rows (most Atari screens) lose 25 rows at the top and 25 at the bottom each. The
    result has shape `[dim, dim, 3]`, or `[dim, dim, 1]` for gray images and with `grayscale`, and
    values `(x - 128) / 128`, or `x / 255` with `zero_mean=False`.

    Raises:
        UnsupportedSpaceError: The space is not a uint8 Box with shape `[H, W]`, `[H, W, 1]` or
            `[H, W, 3]`.
        ConfigError: An option has an invalid value.
    """

    def _init_shape(self, obs_space: Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        info = self.info
        shape = info.shape or ()
        channels = shape[2:]
        is_image = len(shape) in (2, 3) and channels in ((), (1,), (3,))
        if info.kind != "box" or info.dtype != "uint8" or not is_image:
            self.refuse_space("images: a Box of uint8 with shape (H, W), (H, W, 1) or (H, W, 3)")
        self._settings = read_config(options, AtariConfig)
        self._has_colours = channels == (3,)
        #: Whether colours become one channel.
        self._averages_colours = self._has_colours and self._settings.grayscale
        dim = self._settings.dim
        keeps_colours = self._has_colours and not self._averages_colours
        return (dim, dim, 3 if keeps_colours else 1)

    def writer(self, start: int) -> Writer:
        stop = start + self.size
        shape = self.info.shape

        def write(obs: ArrayLike, out: Array) -> None:
            image = np.asarray(obs)
            if image.shape != shape or not _holds_integers(image):
                raise ValueError(f"{image.dtype} values of shape {image.shape} instead of {shape}")
            out[start:stop] = self._encode(image).ravel()

        return write

    def bounds(self) -> tuple[Array, Array]:
        lowest = -1.0 if self._settings.zero_mean else 0.0
        return np.full(self.size, lowest, np.float32), np.full(self.size, 1.0, np.float32)

    def _encode(self, image: Array) -> Array:
        dim = self._settings.dim
        if len(image) == _SCREEN_HEIGHT:
            image = image[_CROPPED:-_CROPPED]
        # Before anything is computed: in uint8 the subtraction below would wrap around.
        pixels: Array = image.astype(np.float32)
        # Both resizing and averaging are sums, so that the order does not count; resizing one
        # channel takes half the time.
        if self._averages_colours:
            pixels = cv2.transform(pixels, _SUM)
        if dim < _INTERMEDIATE_SIZE:
            pixels = _resize(pixels, _INTERMEDIATE_SIZE)
        pixels = _resize(pixels, dim)
        if self._averages_colours:
            pixels /= np.float32(3)
        # The weights of an area may sum to a little more than 1.
        np.minimum(pixels, 255, out=pixels)
        if self._settings.zero_mean:
            pixels -= np.float32(128)
            pixels *= np.float32(1 / 128)  # a power of 2, so exactly the division's result
        else:
            pixels /= np.float32(255)
        return pixels


def _resize(pixels: Array, size: int) -> Array:
    """Resize an image to `[size, size]` by area averaging."""
    resized: Array = cv2.resize(pixels, (size, size), interpolation=cv2.INTER_AREA)
    return resized


class AtariRamPreprocessor(BytesPreprocessor):
    """Codec for the bytes of the RAM: floats `(x - 128) / 128`, from -1 to 127/128, in the space's
    shape.

    Raises:
        UnsupportedSpaceError: The space is not a uint8 Box with one axis.
    """

    def _init_shape(self, obs_space: Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        if self.info.kind != "box" or self.info.dtype != "uint8" or self.info.rank != 1:
            self.refuse_space("RAM: a Box of uint8 with one axis")
        return tuple(self.info.shape or ())

    def writer(self, start: int) -> Writer:
        write_rows = self.batch_writer(start)
        stop = start + self.size

        def write(obs: ArrayLike, out: Array) -> None:
            write_rows(np.asarray(obs)[None], out[None, :stop])

        return write

    def batch_writer(self, start: int) -> Writer:
        stop = start + self.size
        shape = self.shape

        def write(batch: ArrayLike, out: Array) -> None:
            values = np.asarray(batch)
            if values.shape != (len(out), *shape) or not _holds_integers(values):
                raise ValueError(
                    f"{values.dtype} values of shape {values.shape[1:]} instead of {shape}"
                )
            columns = out[:, start:stop]
            np.subtract(values, np.float32(128), out=columns, casting="same_kind")
            columns /= 128

        return write

    def bounds(self) -> tuple[Array, Array]:
        return np.full(self.size, -1.0, np.float32), np.full(self.size, 127 / 128, np.float32)
