"""`Preprocessor`: base class for preprocessors, which encode an environment's observations as
arrays for models.

A `Preprocessor` encodes one space. Composites use their children's preprocessors, which the catalog
finds, through the codec protocol: `writer`, `batch_writer`, `restore`, `leaves`, `bounds`, `check`.
The closures that these methods return are created once, on first use. For a class in RLlib's style,
which has only `_init_shape` and `transform`, the base class implements the protocol.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np
from numpy import zeros

import rlcatalog
from rlcatalog.errors import (
    CatalogError,
    ModelContractError,
    ObservationError,
    ObservationWarning,
    OutOfBoundsError,
    reason,
    shown,
)
from rlcatalog.frameworks.ops import NUMBER_KINDS, Array as Array, Tensor, TensorOps
from rlcatalog.observations.batches import (
    copy_batch,
    first_size,
    is_unchanged,
    rows,
    stack,
    summary,
)
from rlcatalog.observations.limits import check_values
from rlcatalog.observations.watch import check_bounds, check_slice
from rlcatalog.reporting import warn_caller
from rlcatalog.spaces.info import KINDS, Space, SpaceInfo

if TYPE_CHECKING:
    from rlcatalog.plugins import Part
    from rlcatalog.plugins.request import PartsCatalog

Writer = Callable[[Any, Array], None]

_FLOAT32 = np.dtype(np.float32)

#: Errors that a writer may raise on an observation that does not fit; the full check then reports
#: the problem.
ENCODING_ERRORS = (
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RuntimeError,  # of PyTorch, for a tensor that requires a gradient
)


@dataclass(frozen=True)
class Leaf:
    """One leaf of a plan: its slice of the flat vector, and what the slice contains.

    Attributes:
        path: The leaf's path in the observation, such as `obs['camera'][0]`.
        kind: Kind of the space, or `"length"`, `"mask"` or `"tag"` for a slice with additional
            values.
        start: Index of its first value in the flat vector.
        stop: End index.
        shape: Shape in which a model sees the leaf.
        numeric: Whether the slice contains quantities, which a filter may normalise, not one-hot
            vectors, masks, indices or padding.
    """

    path: str
    kind: str
    start: int
    stop: int
    shape: tuple[int, ...]
    numeric: bool = False


@dataclass(frozen=True, eq=False)
class Ids:
    """The ids that a codec writes for one leaf, which a net can look up in a table.

    There is one id for each entry of the leaf, and each entry has its own ids. The characters of a
    text are the exception: all of them have the same ids.

    Attributes:
        lowest: The lowest id of each entry, int64 `[entries]`; `[1]` for a text.
        counts: The number of ids of each entry, int64 `[entries]`; `[1]` for a text.
        characters: For a text, the largest number of its characters. Their ids are followed by a
            mask, which is 1 for each character and 0 after the text. None for other leaves.
    """

    lowest: Array
    counts: Array
    characters: int | None = None

    @property
    def largest(self) -> int:
        """The largest distance of an id from zero."""
        highest = self.lowest + self.counts - 1
        return int(max(-self.lowest.min(initial=0), highest.max(initial=0)))


class Preprocessor:
    """Base class for preprocessors, which encode the observations of one space as arrays of one
    shape.

    Subclasses implement `_init_shape` and either `transform` (RLlib's style) or `writer` and
    `batch_writer`.

    Args:
        obs_space: The space to encode.
        options: The model config.
        check: `"first"` checks the first observation against the space, and only warns of values
            outside their bounds; `"always"` checks each; `"never"` checks none.
        info: The space as a tree, with its path; None reads `obs_space`.
        find_child: A function `find_child(info, options)` that returns a child's preprocessor; None
            uses the default catalog.

    Attributes:
        shape: Shape of one encoded observation.
        size: Number of its values.
        observation_space: The space of encoded observations; has an attribute `original_space`
            unless it is the original space itself.
    """

    #: Whether `restore` returns a structure (dict, tuple, …) instead of one array.
    structured = False
    #: The preprocessors of the space's children.
    children: tuple[Preprocessor, ...] = ()
    #: The part from which the catalog created it, and the catalog; None for one that your code
    #: created.
    part: Part | None = None
    made_by: PartsCatalog | None = None
    #: Whether to check its contract with the first observations; not for codecs that the
    #: conformance kit tests.
    is_watched = True

    def __init__(
        self,
        obs_space: Space,
        options: Mapping[str, Any] | None = None,
        *,
        check: str = "first",
        info: SpaceInfo | None = None,
        find_child: Callable[[SpaceInfo, Mapping[str, Any]], Preprocessor] | None = None,
    ) -> None:
        #: Whether an earlier check found that encoding a batch leaves the batch unchanged.
        self._is_batch_safe = False
        self._obs_space = obs_space
        self._options = dict(options or {})
        self._find_child = find_child
        self.info = info or SpaceInfo.read(obs_space)
        self.check_mode = check
        #: Whether the next observation must be checked.
        self._checks_next = check != "never"
        self.shape = self._check_encoded_shape(self._init_shape(obs_space, self._options))
        self.size = math.prod(self.shape)
        self._is_flat = len(self.shape) == 1

    # --- to implement -----------------------------------------------------------------------------

    def _init_shape(self, obs_space: Space, options: dict[str, Any]) -> tuple[int, ...]:
        """Return the shape of an encoded observation."""
        raise NotImplementedError(
            f"{type(self).__name__} must implement _init_shape(obs_space, options)."
        )

    def writer(self, start: int) -> Writer:
        """Return `write(obs, out)`, which encodes one observation into `out[start:start + size]`
        (zeroed before).
        """
        stop = start + self.size
        shape = self.shape
        transform = self.transform

        def write(obs: Any, out: Array) -> None:
            output = transform(obs)
            try:
                encoded = np.asarray(output)
            except ValueError:  # lists of different lengths
                raise ModelContractError(
                    f"{self.who}: its transform() returned no array: {shown(output)}."
                ) from None
            if encoded.shape != shape:
                raise ModelContractError(
                    f"{self.who}: transform() returned shape {encoded.shape}, but _init_shape()"
                    f" returned {shape}."
                )
            if encoded.dtype.kind not in NUMBER_KINDS:
                raise ModelContractError(
                    f"{self.who}: its transform() must return numbers, found {encoded.dtype}."
                )
            out[start:stop] = encoded.ravel()

        return write

    def batch_writer(self, start: int) -> Writer:
        """Return `write(batch, out)`, which encodes B observations into
        `out[:, start:start + size]`.

        `out` is float32; `write` raises ValueError for a batch whose length is not `len(out)`.
        """
        write = self.writer(start)

        def write_rows(batch: Any, out: Array) -> None:
            for row, encoded in zip(rows(self.info, batch), out, strict=True):
                write(row, encoded)

        return write_rows

    def restore(self, flat: Tensor, ops: TensorOps) -> Any:
        """Convert encoded values `[..., size]` into a model's input: an array, or a structure of
        arrays.

        Args:
            flat: Array or tensor `[..., size]`.
            ops: The tensor library's operations.
        """
        if self._is_flat:
            return flat
        return ops.reshape(flat, self.shape)

    def leaves(self, start: int = 0) -> list[Leaf]:
        """Return the plan: the leaves in the order of the flat vector."""
        info = self.info
        numeric = info.kind == "box" and info.dtype != "bool"
        return [Leaf(info.path, info.kind, start, start + self.size, self.shape, numeric)]

    def bounds(self) -> tuple[Array, Array]:
        """Return the lowest and highest encoded values, float32 of shape `[size]`."""
        low = np.full(self.size, -np.inf, np.float32)
        high = np.full(self.size, np.inf, np.float32)
        return low, high

    def integer_ranges(self) -> Array:
        """Return which encoded values are integers of the observation that a net may scale.

        Returns:
            For each value, the largest difference between its bounds up to which it is scaled, or 0
            if it is never scaled; `[size]`. See `rlcatalog.observations.scaling_of`.
        """
        return np.zeros(self.size)

    def ids(self) -> Ids | None:
        """Return the ids that this codec writes, if its values are ids; otherwise None.

        A codec for a Discrete, a MultiDiscrete or a Text writes ids where
        `rlcatalog.spaces.embedding_size` returns a number. They must be exact in float32, so none
        is larger than 2**24.
        """
        return None

    def check(self, obs: Any) -> None:
        """Check that the observation is in the space.

        Raises:
            ObservationError: The observation is outside; the message gives the leaf's path, the
                expected value and the actual value. For a value outside the bounds of its space,
                which can be encoded, an OutOfBoundsError.
        """
        if self._obs_space.contains(obs):
            return
        expected = f"a value of {self.info.describe()}"
        if self.info.kind == "box":
            # `contains` also refuses another dtype, such as float64; only shape and values matter.
            array = np.asarray(obs)
            if array.dtype.kind in NUMBER_KINDS and array.shape == self.info.shape:
                space: Any = self._obs_space
                check_values(self, array.astype(space.dtype), expected, space.low, space.high)
                return
        self.refuse(expected, obs)

    # The next two are only used if the class that defines the writer, or a subclass of it, defines
    # them: for another writer, they would describe a different encoding.

    def standard_space(self) -> SpaceInfo | None:
        """Return a space of a kind that saved files can contain, and that this codec encodes like
        its own; None if there is none.

        By default, it is the space itself if it, or a base of its class, has a known kind. Saved
        policies contain this space, because a subclass need not be importable where they are
        loaded.
        """
        return self.info if self.info.kind in KINDS.values() else None

    def lowered(self) -> Callable[[Any, TensorOps], Any] | None:
        """Return `encode(x, ops)`, which encodes a tensor `[B, *shape]` like `encode_batch`.

        `ops` is the tensor library's `TensorOps`. Exported policies use this function, and policies
        that act on tensors. If it returns None, which is the default, the exported policy expects
        encoded observations, and a policy refuses tensors.
        """
        return None

    def side_by_side(self) -> Sequence[tuple[str | int, Preprocessor]] | None:
        """Return each child's key or position and its codec, if the children are encoded one after
        the other.
        """
        return None

    # --- to call ----------------------------------------------------------------------------------

    def transform(self, observation: Any) -> Array:
        """Encode one observation into a new array of `shape`."""
        checks_this = self._checks_next
        if checks_this:
            self.check_shape(observation)
        out = zeros(self.size, _FLOAT32)
        self._write_or_refuse(observation, out)
        # Only in the mode "always": `check_shape` has just ended the checks of the mode "first".
        if checks_this and self._checks_next:
            check_bounds(self, out)
        if self._is_flat:
            return out
        return out.reshape(self.shape)

    def transform_batch(self, batch: Any) -> Array:
        """Encode a vector environment's batch, or a list of observations, into a new array
        `[B, *shape]`.
        """
        return self.encode_batch(batch)

    def encode_batch(self, batch: Any) -> Array:
        """Encode like `transform_batch`; the array may share memory with the batch, so read it
        immediately.
        """
        if isinstance(batch, list):
            batch = self._stack(batch)
        is_watching = self._checks_next or not self._is_batch_safe
        copy = None
        try:
            if is_watching:
                self._check_rows(batch)
                copy = copy_batch(batch)
            out = zeros((first_size(self.info, batch), self.size), _FLOAT32)
            self._write_batch(batch, out)
        except CatalogError:
            raise
        except (Exception, SystemExit) as error:
            self._refuse_batch(batch, error)
        if is_watching:
            self._check_encoding(batch, copy, out)
        if self._is_flat:
            return out
        return out.reshape(len(out), *self.shape)

    def _check_encoding(self, batch: Any, copy: Any, encoded: Array) -> None:
        """Check an encoded batch against the contract of codecs.

        Args:
            batch: The batch.
            copy: A copy of it from before it was encoded, or None if it cannot be copied.
            encoded: The encoded values.

        Raises:
            ModelContractError: A value is outside the codec's bounds, or the batch was modified.
        """
        if self._checks_next:
            check_bounds(self, encoded)
        if not is_unchanged(copy, batch):
            who = " or ".join(dict.fromkeys(codec.who for codec in self.codecs()))
            raise ModelContractError(
                f"{who} modifies its observations; it may only write into `out`."
            )
        self._is_batch_safe = True

    def write(self, observation: Any, array: Array, offset: int) -> None:
        """Encode one observation into `array[offset:offset + size]`."""
        target = array[offset : offset + self.size]
        target[:] = 0
        self._write_or_refuse(observation, target)

    def check_shape(self, observation: Any) -> None:
        """Check one observation if the check mode requires it ("first": until one has passed)."""
        if not self._checks_next:
            return
        try:
            self.check(observation)
        except OutOfBoundsError as error:
            self._report_bounds(error)
        # `check_slice` runs the codec's transform, which in RLlib's style calls this method again;
        # that call must not check.
        self._checks_next = False
        try:
            check_slice(self, observation)
        except BaseException:
            self._checks_next = True  # no observation has passed
            raise
        self._checks_next = self.check_mode == "always"

    def set_check(self, mode: str) -> None:
        """Set when observations are checked: `"first"`, `"always"` or `"never"`."""
        self.check_mode = mode
        self._checks_next = mode != "never"

    @property
    def catalog(self) -> PartsCatalog:
        """The catalog that created this preprocessor, or the default catalog."""
        return self.made_by or rlcatalog.default_catalog()

    @cached_property
    def observation_space(self) -> Any:
        """The space of encoded observations."""
        return self.processed_space(*self.bounds())

    def processed_space(self, low: Array, high: Array) -> Any:
        """Return a float32 Box of `shape` from which models restore the structure; `low` and `high`
        are `[size]`.
        """
        from gymnasium.spaces import Box

        space: Any = Box(low.reshape(self.shape), high.reshape(self.shape), self.shape, np.float32)
        space.original_space = self._obs_space
        space.preprocessor = self
        return space

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Yield path and part, for this preprocessor and all its children's preprocessors."""
        for codec in self.codecs():
            yield codec.info.path, cast("Part", codec.part)

    @property
    def who(self) -> str:
        """Class and origin, for messages."""
        name = type(self).__qualname__
        if self.part is None:
            return name
        return f"{name} ({self.part.name!r} of {self.part.provider})"

    def codecs(self) -> Iterator[Preprocessor]:
        """Yield this codec and the codecs of all subspaces, depth first."""
        yield self
        for child in self.children:
            yield from child.codecs()

    # --- inside -----------------------------------------------------------------------------------

    def child(self, info: SpaceInfo) -> Preprocessor:
        """Return the catalog's preprocessor for a child of this space; children leave checking to
        the root.
        """
        if self._find_child is not None:
            return self._find_child(info, self._options)
        return self.catalog.preprocessor_for(info, self._options, check="never")

    def refuse(self, expected: str, value: Any) -> NoReturn:
        """Raise an ObservationError with this space's path."""
        raise ObservationError(f"{self.info.path}: expected {expected}; found {summary(value)}.")

    def refuse_value(self, expected: str, value: Any) -> NoReturn:
        """Raise an OutOfBoundsError with this space's path, for a value that can be encoded."""
        raise OutOfBoundsError(f"{self.info.path}: expected {expected}; found {summary(value)}.")

    def _report_bounds(self, error: OutOfBoundsError) -> None:
        """Raise the error for a value outside its bounds if every observation is checked; otherwise
        warn, because later observations with such a value pass as well.

        Raises:
            OutOfBoundsError: The check mode is `"always"`.

        Warns:
            ObservationWarning: In any other mode.
        """
        cure = "Correct the environment's observation_space, or its observations"
        if self.check_mode == "always":
            raise OutOfBoundsError(
                f"{error} {cure}; or set check_observations='first', which only warns."
            ) from None
        warn_caller(
            f"{error} The observation is used as it is, and the bounds of later ones are not"
            f" checked. {cure}; check_observations='always' makes this an error, and 'never'"
            " switches the check off.",
            ObservationWarning,
        )

    # Compiled at first use, because children's writers depend on their position in the whole array.

    @cached_property
    def _write(self) -> Writer:
        return self.writer(0)

    @cached_property
    def _write_batch(self) -> Writer:
        return self.batch_writer(0)

    def _write_or_refuse(self, observation: Any, out: Array) -> None:
        """Encode one observation into an array of zeros `[size]`; raise an error with the reason if
        it does not fit.
        """
        try:
            self._write(observation, out)
        except CatalogError:
            raise
        except (Exception, SystemExit) as error:
            self._refuse_observation(observation, error)

    def _stack(self, observations: list[Any]) -> Any:
        """Return a list of observations as a batch, in the form that a vector
        environment returns.
        """
        try:
            return stack(self.info, observations)
        except ENCODING_ERRORS as error:
            for obs in observations:
                self.check(obs)
            raise ObservationError(
                f"{self.info.path}: this list of observations cannot be stacked: {error}"
            ) from error

    def _check_encoded_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the result of `_init_shape` as a tuple of integers.

        Raises:
            ModelContractError: It is not a shape.
        """
        try:
            sizes = tuple(map(int, shape))
            is_shape = sizes == tuple(shape) and min(sizes, default=0) >= 0
        except (TypeError, ValueError, OverflowError):
            is_shape = False
        if not is_shape:
            raise ModelContractError(
                f"{type(self).__name__}._init_shape() must return a shape, found {shown(shape)}. A"
                " shape is a tuple of integers >= 0."
            )
        return sizes

    def _check_rows(self, batch: Any) -> None:
        """Check the observations of a batch if the check mode requires it."""
        if not self._checks_next:
            return
        for row in rows(self.info, batch):
            self.check_shape(row)
            if not self._checks_next:
                break  # the mode "first": one has passed

    def _refuse_observation(self, obs: Any, error: BaseException) -> NoReturn:
        """Raise the error for an observation that could not be encoded."""
        try:
            self.check(obs)
        except CatalogError:
            raise
        except (Exception, SystemExit) as error_of_check:
            error = error_of_check  # a user's observation may break the check as well
        raise ObservationError(
            f"{self.info.path}: {summary(obs)} cannot be encoded: {self._who_raised(error)} raised"
            f" {reason(error)}"
        ) from error

    def _refuse_batch(self, batch: Any, error: BaseException) -> NoReturn:
        """Raise the error for a batch that could not be encoded."""
        try:
            _check_structure(self.info, batch)
            for row in rows(self.info, batch):
                self.check(row)
        except CatalogError:
            raise
        except (Exception, SystemExit):
            # A batch of the wrong form has no rows to check: the first error says more.
            pass
        raise ObservationError(
            f"{self.info.path}: expected a batch of {self.info.describe()}; found {summary(batch)}:"
            f" {self._who_raised(error)} raised {reason(error)}"
        ) from error

    def _who_raised(self, error: BaseException) -> str:
        """Return the codec, this one or a child, whose code raised an error: the owner of the
        innermost line.
        """
        codec_by_module = {type(codec).__module__: codec for codec in self.codecs()}
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        for frame in reversed(frames):
            module = frame.f_globals.get("__name__", "")
            if module in codec_by_module:
                return codec_by_module[module].who
        return self.who

    def __getstate__(self) -> dict[str, Any]:
        # Closures cannot be pickled; the part and the catalog belong to this process.
        return {name: value for name, value in vars(self).items() if name not in _NOT_PICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _find_child=None)


#: Attributes of a preprocessor that stay in its process.
_NOT_PICKLED = (
    "_write",
    "_write_batch",
    "observation_space",
    "_find_child",
    "part",
    "made_by",
)


def _check_structure(info: SpaceInfo, batch: Any) -> None:
    """Raise an error unless a batch for a Dict or Tuple has its structure."""
    if info.kind == "dict":
        if not isinstance(batch, Mapping) or set(batch) != set(info.keys):
            keys = f"a dict with the keys {list(info.keys)}"
            raise _wrong_structure(info, keys, batch)
    elif info.kind == "tuple":
        if not isinstance(batch, tuple | list) or len(batch) != len(info.children):
            raise _wrong_structure(info, f"a tuple of {len(info.children)} parts", batch)
    else:
        return
    for child, part in zip(info.children, info.split(batch), strict=True):
        _check_structure(child, part)


def _wrong_structure(info: SpaceInfo, expected: str, batch: Any) -> ObservationError:
    return ObservationError(
        f"{info.path}: expected {expected}, for a batch of {info.describe()}; found"
        f" {summary(batch)}."
    )
