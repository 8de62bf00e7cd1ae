"""Checks on third-party codecs: their declarations, and whether they write only within their slices
and bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.errors import CatalogError, ModelContractError, raised_as, shown
from rlcatalog.frameworks.ops import Array
from rlcatalog.observations.batches import stack
from rlcatalog.observations.limits import widen

if TYPE_CHECKING:
    from rlcatalog.observations.preprocessor import Preprocessor


#: The module of the base class, whose writers need no checks.
_HOME = "rlcatalog.observations.preprocessor"
#: The value next to a slice while a writer is checked.
_CANARY = np.float32(-77777.25)


def check_answers(codec: Preprocessor) -> None:
    """Check the declarations of a codec without children, before it has seen an observation.

    Raises:
        ModelContractError: A method returns the wrong kind of result.
    """
    if codec.children:
        return  # made from the declarations of its children, which are checked themselves
    # The argument 0 is the start of the codec's slice.
    write = _answer_of(codec, "writer", codec.writer, 0)
    if not callable(write):
        raise _wrong_answer(codec, "writer", "a function (observation, out)", write)
    write_batch = _answer_of(codec, "batch_writer", codec.batch_writer, 0)
    if not callable(write_batch):
        raise _wrong_answer(codec, "batch_writer", "a function (batch, out)", write_batch)
    leaves = _answer_of(codec, "leaves", codec.leaves, 0)
    # A plugin's method may return anything; what has the attribute `numeric` is taken for a Leaf.
    if not isinstance(leaves, list | tuple) or not all(hasattr(leaf, "numeric") for leaf in leaves):
        raise _wrong_answer(codec, "leaves", "a list of Leaf", leaves)
    bounds = _answer_of(codec, "bounds", codec.bounds)
    shapes = []
    if isinstance(bounds, tuple):
        shapes = [getattr(bound, "shape", None) for bound in bounds]  # a plugin's objects
    if shapes != [(codec.size,), (codec.size,)]:
        raise _wrong_answer(codec, "bounds", f"two arrays of shape ({codec.size},)", bounds)


def _answer_of(
    codec: Preprocessor, method: str, function: Callable[..., Any], *arguments: int
) -> Any:
    """Call a method of a codec; an error names the method."""

    def error(why: str) -> ModelContractError:
        return ModelContractError(f"{codec.who}: its {method}() raised {why}")

    with raised_as(error, CatalogError):
        return function(*arguments)


def _wrong_answer(
    codec: Preprocessor, method: str, expected: str, answer: object
) -> ModelContractError:
    return ModelContractError(
        f"{codec.who}: its {method}() must return {expected}, found {shown(answer)}."
    )


def check_slice(codec: Preprocessor, obs: Any) -> None:
    """Check that a codec and its children write, and only into their own slices; see
    `Preprocessor.is_watched`.

    Args:
        codec: The codec.
        obs: An observation of its space.

    Raises:
        ModelContractError: A codec writes outside its slice, or returns values instead of writing
            them.
    """
    if not any(part.is_watched for part in codec.codecs()):
        return
    encodes_entry_by_entry = len(codec.children) == len(codec.info.children)
    if codec.info.is_composite and encodes_entry_by_entry:
        for child, part in zip(codec.children, codec.info.split(obs), strict=True):
            check_slice(child, part)
    if codec.is_watched and _has_own_writer(type(codec)):
        can_encode = _check_writer(codec, obs, is_batch=False)
        if can_encode:
            _check_writer(codec, obs, is_batch=True)


def _has_own_writer(cls: type[Preprocessor]) -> bool:
    """Return whether a class overrides a writer of the base class, whose writers need no checks."""
    modules = {cls.writer.__module__, cls.batch_writer.__module__}
    return modules != {_HOME}


def _check_writer(codec: Preprocessor, obs: Any, *, is_batch: bool) -> bool:
    """Check one writer of a codec: it writes into an array in which canaries surround its slice.

    Args:
        codec: The codec.
        obs: An observation.
        is_batch: Whether to check `batch_writer`, with a batch of this observation.

    Returns:
        Whether the writer can encode the observation; an error in it is left to `transform`.

    Raises:
        ModelContractError: See `check_slice`.
    """
    # There is more space before the slice than it has values: if a writer ignores `start` and
    # writes at 0, it writes only outside of its slice.
    start = codec.size + 8
    length = start + codec.size + start
    if is_batch:
        method = "batch_writer"
        write = codec.batch_writer(start)
        shape: tuple[int, ...] = (1, length)
        value = stack(codec.info, [obs])
    else:
        method = "writer"
        write = codec.writer(start)
        shape = (length,)
        value = obs
    out = np.full(shape, _CANARY, np.float32)
    own_slice = out[..., start : start + codec.size]
    own_slice[...] = 0.0
    try:
        returned = write(value, out)
    except (Exception, SystemExit):
        return False
    # A writer that returns values may have written them as well.
    if returned is not None and own_slice.size and not _writes(write, value, out, own_slice):
        raise ModelContractError(
            f"{codec.who}: its {method}(start) returns {shown(returned)} instead of writing into"
            " `out`, so every observation would be encoded as zeros. Write the values:"
            f" out[..., start : start + {codec.size}] = values."
        )
    own_slice[...] = _CANARY  # what it wrote into its own slice does not count
    is_changed = out != _CANARY
    if is_changed.any():
        offset = int(np.argwhere(is_changed)[0, -1]) - start
        raise ModelContractError(
            f"{codec.who}: its {method}(start) writes to position start{offset:+d}; its slice is"
            f" the {codec.size} positions from start on."
        )
    return True


def _writes(write: Callable[[Any, Array], Any], value: Any, out: Array, own_slice: Array) -> bool:
    """Return whether a writer changes anything in its slice.

    Args:
        write: The writer.
        value: An observation, or a batch of one.
        out: The array that it writes to.
        own_slice: Its slice of the array.
    """
    own_slice[...] = _CANARY
    write(value, out)
    return bool((own_slice != _CANARY).any())


def check_bounds(codec: Preprocessor, encoded: Array) -> None:
    """Check that encoded values are within a codec's bounds; see `Preprocessor.is_watched`.

    Args:
        codec: The codec.
        encoded: The values, `[size]` or `[B, size]`.

    Raises:
        ModelContractError: A value is outside.
    """
    if not any(part.is_watched for part in codec.codecs()):
        return
    low, high = codec.bounds()
    lowest, highest = widen(low, high)
    is_outside = (encoded < lowest) | (encoded > highest)
    if not is_outside.any():
        return
    at = int(np.argwhere(is_outside)[0, -1])  # the last axis is the position
    paths = [leaf.path for leaf in codec.leaves() if leaf.start <= at < leaf.stop]
    path = paths[0] if paths else codec.info.path
    codecs_at_path = [part for part in codec.codecs() if part.info.path == path]
    culprit = codecs_at_path[0] if codecs_at_path else codec
    raise ModelContractError(
        f"{culprit.who}: {path} is encoded as {encoded[is_outside][0]} at position {at}, outside"
        f" [{low[at]}, {high[at]}], the range that its bounds() returns."
    )
