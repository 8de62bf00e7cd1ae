"""Codecs for the Atari emulator's pixels and RAM. All arithmetic is float32."""

from __future__ import annotations

from typing import Any, NoReturn

import cv2
import numpy as np

from rlcatalog.config import read_config
from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog.observations import Array, Preprocessor, Writer
from rlcatalog_atari.config import AtariConfig

#: Height of most Atari screens, and the rows at top and bottom that show scores and border.
_SCREEN_HEIGHT = 210
_CROPPED = 25
#: Smaller frames are computed in two steps, via this size.
_BY_WAY_OF = 84
#: The sum of three colours, as a matrix.
_SUM = np.ones((1, 3), np.float32)


class BytesPreprocessor(Preprocessor):
    """Base class for both codecs, for uint8 Box spaces."""

    def check(self, obs: Any) -> None:
        info = self.info
        try:
            array = np.asarray(obs)
        except ValueError:  # lists of different lengths
            self.refuse(f"{info.describe()}: integers of shape {info.shape}", obs)
        if array.dtype.kind not in "iu" or array.shape != info.shape:
            self.refuse(f"{info.describe()}: integers of shape {info.shape}", obs)
        outside = (array < info.low) | (array > info.high)
        if outside.any():
            at = tuple(int(i) for i in np.argwhere(outside)[0])
            self.refuse(
                f"{info.describe()}: values within the bounds of the space, at {list(at)}",
                array[at],
            )

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

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        info, shape = self.info, self.info.shape or ()
        if (
            info.kind != "box"
            or info.dtype != "uint8"
            or len(shape) not in (2, 3)
            or shape[2:] not in ((), (1,), (3,))
        ):
            self.refuse_space("images: a Box of uint8 with shape (H, W), (H, W, 1) or (H, W, 3)")
        self._settings = read_config(options, AtariConfig)
        self._colours = 3 if shape[2:] == (3,) else 1
        dim = self._settings.dim
        return (dim, dim, 1 if self._settings.grayscale else self._colours)

    def writer(self, start: int) -> Writer:
        stop, shape = start + self.size, self.info.shape

        def write(obs: Any, out: Array) -> None:
            image = np.asarray(obs)
            if image.shape != shape or image.dtype.kind not in "iu":
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
        gray = self._settings.grayscale and self._colours == 3
        # Both are sums, so that the order does not count: resizing one channel takes half the time.
        if gray:
            pixels = cv2.transform(pixels, _SUM)
        for size in (_BY_WAY_OF, dim) if dim < _BY_WAY_OF else (dim,):
            pixels = cv2.resize(pixels, (size, size), interpolation=cv2.INTER_AREA)
        if gray:
            pixels /= np.float32(3)
        # The weights of an area may sum to a little more than 1.
        np.minimum(pixels, 255, out=pixels)
        if self._settings.zero_mean:
            pixels -= np.float32(128)
            pixels *= np.float32(1 / 128)  # a power of 2, so exactly the division's result
        else:
            pixels /= np.float32(255)
        return pixels


class AtariRamPreprocessor(BytesPreprocessor):
    """Codec for the bytes of the RAM: floats `(x - 128) / 128`, from -1 to 127/128, in the space's
    shape.

    Raises:
        UnsupportedSpaceError: The space is not a uint8 Box with one axis.
    """

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        if self.info.kind != "box" or self.info.dtype != "uint8" or self.info.rank != 1:
            self.refuse_space("RAM: a Box of uint8 with one axis")
        return tuple(self.info.shape or ())

    def writer(self, start: int) -> Writer:
        write_rows, size = self.batch_writer(start), start + self.size

        def write(obs: Any, out: Array) -> None:
            write_rows(np.asarray(obs)[None], out[None, :size])

        return write

    def batch_writer(self, start: int) -> Writer:
        stop, shape = start + self.size, self.shape

        def write(batch: Any, out: Array) -> None:
            values = np.asarray(batch)
            if values.shape != (len(out), *shape) or values.dtype.kind not in "iu":
                raise ValueError(
                    f"{values.dtype} values of shape {values.shape[1:]} instead of {shape}"
                )
            part_of_out = out[:, start:stop]
            np.subtract(values, np.float32(128), out=part_of_out, casting="same_kind")
            part_of_out /= 128

        return write

    def bounds(self) -> tuple[Array, Array]:
        return np.full(self.size, -1.0, np.float32), np.full(self.size, 127 / 128, np.float32)
