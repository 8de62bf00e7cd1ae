"""Preprocessors: from what an environment emits to the array a model sees.

A `Preprocessor` serves one space. The codec protocol (`writer`, `batch_writer`, `restore`, `leaves`, `bounds`,
`check`) is how a composite uses the preprocessors of its children, which it asks the catalog for; the closures those
methods return are compiled once, when the preprocessor is made. A class in RLlib's old form, `_init_shape` and
`transform` alone, gets all of it from this base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from rlcatalog.errors import ModelContractError, ObservationError
from rlcatalog.spaceinfo import SpaceInfo

if TYPE_CHECKING:
    import gymnasium

    from rlcatalog.catalog import Catalog
    from rlcatalog.registry import Component

Array = np.ndarray[Any, Any]
Writer = Callable[[Any, Array], None]

#: What a writer may raise on an observation that does not fit; the full check then says what is wrong.
ENCODING_ERRORS = (KeyError, IndexError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True)
class Leaf:
    """One leaf of a plan: which slice of the flat vector holds what."""

    path: str
    kind: str
    start: int
    stop: int
    shape: tuple[int, ...]


class Preprocessor:
    """Turns observations of one space into arrays of one shape.

    Subclasses implement `_init_shape` and either `transform` (RLlib's form) or `writer` and `batch_writer`.

    Args:
        obs_space: The space to encode.
        options: The model config.
        check: `"first"` checks the first observation against the space, `"always"` each, `"never"` none.
        info: The space already read, with its path; read from `obs_space` when missing.
        catalog: Where composites look their children's preprocessors up; the default catalog when missing.

    Attributes:
        shape: Shape of one encoded observation.
        size: Number of its values.
        observation_space: The space of encoded observations; carries `original_space` unless it is the space itself.
    """

    #: Whether `restore` gives a structure (dict, tuple, …) rather than one array.
    structured = False
    #: The preprocessors of the space's children.
    children: tuple[Preprocessor, ...] = ()
    #: What the catalog made this one from, or None.
    component: Component | None = None

    def __init__(
        self,
        obs_space: gymnasium.Space[Any],
        options: Mapping[str, Any] | None = None,
        *,
        check: str = "first",
        info: SpaceInfo | None = None,
        catalog: Catalog | None = None,
    ) -> None:
        self._processed: Any = None
        self._unchecked = True
        self._obs_space = obs_space
        self._options = dict(options or {})
        self._catalog = catalog
        self.info = info or SpaceInfo.read(obs_space)
        self.set_check(check)
        shape = self._init_shape(obs_space, self._options)
        if shape is None:
            raise ModelContractError(f"{type(self).__name__}._init_shape() must return a shape, found None.")
        self.shape: tuple[int, ...] = tuple(int(n) for n in shape)
        self.size = int(np.prod(self.shape))
        self._compile()

    # --- to implement ----------------------------------------------------------------------------------------------

    def _init_shape(self, obs_space: gymnasium.Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        """Return the shape of an encoded observation."""
        raise NotImplementedError(f"{type(self).__name__} must implement _init_shape(obs_space, options).")

    def writer(self, start: int) -> Writer:
        """Return `write(obs, out)`, which encodes one observation into `out[start:start + size]` (zeroed before)."""
        stop, transform, shape = start + self.size, self.transform, self.shape

        def write(obs: Any, out: Array) -> None:
            encoded = np.asarray(transform(obs))
            if encoded.shape != shape:
                raise ModelContractError(
                    f"{type(self).__name__}.transform() returned shape {encoded.shape}; _init_shape() said {shape}."
                )
            out[start:stop] = encoded.ravel()

        return write

    def batch_writer(self, start: int) -> Writer:
        """Return `write(batch, out)`, which encodes B observations into `out[:, start:start + size]`."""
        write = self.writer(start)

        def write_rows(batch: Any, out: Array) -> None:
            for row, encoded in zip(rows(self.info, batch), out, strict=True):
                write(row, encoded)

        return write_rows

    def restore(self, flat: Any, reshape: Callable[[Any, tuple[int, ...]], Any]) -> Any:
        """Turn encoded values `[..., size]` back into what models see: an array, or a structure of arrays.

        Args:
            flat: Array or tensor `[..., size]`.
            reshape: `reshape(x, shape)` gives the last axis of x the given shape; the tensor library's own.
        """
        return reshape(flat, self.shape)

    def leaves(self, start: int = 0) -> list[Leaf]:
        """Return the plan: the leaves in the order in which they stand in the flat vector."""
        return [Leaf(self.info.path, self.info.kind, start, start + self.size, self.shape)]

    def bounds(self) -> tuple[Array, Array]:
        """Return the lowest and highest encoded values, float32 of shape `[size]`."""
        return np.full(self.size, -np.inf, np.float32), np.full(self.size, np.inf, np.float32)

    def check(self, obs: Any) -> None:
        """Raise unless the observation lies in the space.

        Raises:
            ObservationError: It does not; the message names the leaf's path, what was expected and what was found.
        """
        fits = self._obs_space.contains(obs)
        if not fits and self.info.kind == "box":  # values count, not whether they came as a list or as float64
            array = np.asarray(obs)
            fits = array.dtype.kind in "biuf" and self._obs_space.contains(array.astype(self.info.dtype))
        if not fits:
            self.refuse(f"a value of {self.info.describe()}", obs)

    # --- to call ---------------------------------------------------------------------------------------------------

    def transform(self, observation: Any) -> Array:
        """Encode one observation into a fresh array of `shape`."""
        self.check_shape(observation)
        out = np.zeros(self.size, np.float32)
        try:
            self._write(observation, out)
        except ENCODING_ERRORS as error:
            self._explain(observation, error)
        return out.reshape(self.shape)

    def transform_batch(self, batch: Any) -> Array:
        """Encode a vector environment's batch, or a list of observations, into a fresh array `[B, *shape]`."""
        return self.encode_batch(batch)

    def encode_batch(self, batch: Any) -> Array:
        """Like `transform_batch`, but the array may be, or share memory with, the batch: for reading at once."""
        batch = self._stacked(batch)
        try:
            self._check_rows(batch)
            out = np.zeros((batch_size(self.info, batch), self.size), np.float32)
            self._write_batch(batch, out)
        except ObservationError:
            raise
        except ENCODING_ERRORS as error:
            self._explain_batch(batch, error)
        return out.reshape(len(out), *self.shape)

    def write(self, observation: Any, array: Array, offset: int) -> None:
        """Encode one observation into `array[offset:offset + size]`."""
        target = array[offset : offset + self.size]
        target[:] = 0
        self._write(observation, target)

    def check_shape(self, observation: Any) -> None:
        """Check one observation when the check mode asks for it ("first": until one has passed)."""
        if self._unchecked:
            self.check(observation)
            self._unchecked = self.check_mode == "always"

    def set_check(self, mode: str) -> None:
        """Set when observations are checked: `"first"`, `"always"` or `"never"`."""
        self.check_mode = mode
        self._unchecked = mode != "never"

    @property
    def observation_space(self) -> Any:
        """The space of encoded observations."""
        if self._processed is None:
            from gymnasium.spaces import Box

            low, high = self.bounds()
            space: Any = Box(low.reshape(self.shape), high.reshape(self.shape), self.shape, np.float32)
            space.original_space = self._obs_space
            space.preprocessor = self
            self._processed = space
        return self._processed

    # --- inside ----------------------------------------------------------------------------------------------------

    def child(self, info: SpaceInfo) -> Preprocessor:
        """Return the catalog's preprocessor for a child of this space; children leave checking to their root."""
        from rlcatalog.catalog import default_catalog

        catalog = self._catalog or default_catalog()
        return catalog.preprocessor_for(info, self._options, check="never")

    def refuse(self, expected: str, found: Any) -> NoReturn:
        """Raise ObservationError for this space's path."""
        raise ObservationError(f"{self.info.path}: expected {expected}; found {summary(found)}.")

    def _compile(self) -> None:
        self._processed = None
        self._write = self.writer(0)
        self._write_batch = self.batch_writer(0)

    def _stacked(self, batch: Any) -> Any:
        """Return a list of observations as a batch in the form a vector environment returns."""
        if not isinstance(batch, list):
            return batch
        try:
            return stack(self.info, batch)
        except ENCODING_ERRORS as error:
            for obs in batch:
                self.check(obs)
            raise ObservationError(f"{self.info.path}: this list of observations cannot be stacked: {error}") from error

    def _check_rows(self, batch: Any) -> None:
        if self._unchecked:
            for row in rows(self.info, batch):
                self.check_shape(row)
                if not self._unchecked:
                    break

    def _explain(self, obs: Any, error: Exception) -> NoReturn:
        self.check(obs)
        raise ObservationError(f"{self.info.path}: {summary(obs)} cannot be encoded: {error}") from error

    def _explain_batch(self, batch: Any, error: Exception) -> NoReturn:
        try:
            for row in rows(self.info, batch):
                self.check(row)
        except ObservationError:
            raise
        except ENCODING_ERRORS:
            pass  # a batch of the wrong form has no rows to check
        raise ObservationError(
            f"{self.info.path}: expected a batch of {self.info.describe()}; found {summary(batch)}: {error}"
        ) from error

    def __getstate__(self) -> dict[str, Any]:
        compiled = ("_write", "_write_batch", "_processed", "_catalog", "component")
        return {k: v for k, v in self.__dict__.items() if k not in compiled}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _catalog=None)
        self._compile()


# --- batches -------------------------------------------------------------------------------------------------------


def batch_size(info: SpaceInfo, batch: Any) -> int:
    """Return the number of observations in a batch.

    Raises:
        ValueError: The leaves have different numbers, or there is no leaf to count.
    """
    sizes = sorted({len(column) for column in _columns(info, batch)})
    if len(sizes) != 1:
        raise ValueError(f"its leaves hold {' and '.join(map(str, sizes)) or 'no'} observations")
    return sizes[0]


def _columns(info: SpaceInfo, batch: Any) -> Iterator[Any]:
    if info.kind == "dict":
        for key, child in zip(info.keys, info.children, strict=True):
            yield from _columns(child, batch[key])
    elif info.kind == "tuple":
        for column, child in zip(batch, info.children, strict=True):
            yield from _columns(child, column)
    else:
        yield batch


def rows(info: SpaceInfo, batch: Any) -> Iterator[Any]:
    """Yield the observations of a batch one by one."""
    for i in range(batch_size(info, batch)):
        yield _row(info, batch, i)


def _row(info: SpaceInfo, batch: Any, i: int) -> Any:
    if info.kind == "dict":
        # Keys the space does not have are left in, for the check of the row to find.
        known = {key: _row(child, batch[key], i) for key, child in zip(info.keys, info.children, strict=True)}
        return {**{key: value for key, value in batch.items() if key not in known}, **known}
    if info.kind == "tuple":
        return tuple(_row(child, column, i) for column, child in zip(batch, info.children, strict=True))
    return batch[i]


def stack(info: SpaceInfo, observations: list[Any]) -> Any:
    """Stack single observations into a batch; dicts by key, tuples by position."""
    if info.kind == "dict":
        for obs in observations:
            if set(obs) != set(info.keys):
                raise KeyError(f"keys {sorted(obs)} instead of {list(info.keys)}")
        return {
            key: stack(child, [obs[key] for obs in observations])
            for key, child in zip(info.keys, info.children, strict=True)
        }
    if info.kind == "tuple":
        columns = zip(*observations, strict=True)
        return tuple(stack(child, list(column)) for child, column in zip(info.children, columns, strict=True))
    if info.shape is None:
        return tuple(observations)
    return np.stack([np.asarray(obs) for obs in observations])


def summary(value: Any) -> str:
    """Describe a found value in a few words: type, shape, dtype, and the value when it is short."""
    if isinstance(value, np.ndarray):
        text = f"an array of shape {value.shape}, dtype {value.dtype}"
        return f"{text}: {value.tolist()}" if value.size <= 8 else text
    if isinstance(value, np.generic):
        return f"{value.item()!r} ({value.dtype})"
    text = repr(value)
    return f"{text if len(text) <= 120 else text[:117] + '...'} ({type(value).__name__})"


# --- restoring -----------------------------------------------------------------------------------------------------


def preprocessor_of(obs_space: Any) -> Preprocessor | None:
    """Return the preprocessor behind a processed space, or None for a space as environments have it."""
    found = getattr(obs_space, "preprocessor", None)
    if found is None and hasattr(obs_space, "original_space"):
        from rlcatalog.catalog import default_catalog

        # A processed space from elsewhere (another process, RLlib): the default catalog knows its encoding.
        found = default_catalog().preprocessor_for(SpaceInfo.read(obs_space.original_space), {}, check="never")
        obs_space.preprocessor = found
    return found if isinstance(found, Preprocessor) else None


def restore_original_dimensions(obs: Any, obs_space: Any, tensorlib: Any = "numpy") -> Any:
    """Turn encoded observations back into the structure of the space they came from.

    Args:
        obs: Encoded observations `[..., size]`; a dict or tuple is returned as it is.
        obs_space: The preprocessor's `observation_space`; a space without `original_space` leaves `obs` as it is.
        tensorlib: `"numpy"`, `"torch"` or `"tf"` (`"tf2"`).

    Returns:
        Dicts for Dict, tuples for Tuple, arrays or tensors at the leaves; Discrete leaves stay one-hot.

    Raises:
        ObservationError: The last axis of `obs` has not the encoded size.
    """
    preprocessor = preprocessor_of(obs_space)
    if preprocessor is None or not preprocessor.structured or isinstance(obs, Mapping | tuple | list):
        return obs
    if len(obs.shape) < 2 or obs.shape[-1] != preprocessor.size:
        raise ObservationError(
            f"{preprocessor.info.path}: expected encoded observations of shape [..., {preprocessor.size}] for"
            f" {preprocessor.info.describe()}, found shape {tuple(obs.shape)}."
        )
    return preprocessor.restore(obs, reshaper(tensorlib))


def reshaper(tensorlib: Any) -> Callable[[Any, tuple[int, ...]], Any]:
    """Return `reshape(x, shape)`, which gives the last axis of x the given shape, for a tensor library."""
    if tensorlib in ("tf", "tf2"):
        from rlcatalog.tf.ops import reshape_last

        return reshape_last
    if tensorlib in ("numpy", "torch"):
        return _reshape_last
    raise ModelContractError(f"tensorlib must be 'numpy', 'torch' or 'tf', found {tensorlib!r}.")


def _reshape_last(x: Any, shape: tuple[int, ...]) -> Any:
    return x.reshape(x.shape[:-1] + shape)
