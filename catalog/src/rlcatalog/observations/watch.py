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
        return  # its results come from these arrays
    for name, expected in (
        ("writer", "a function (observation, out)"),
        ("batch_writer", "a function (batch, out)"),
        ("leaves", "a list of Leaf"),
        ("bounds", f"two arrays of shape ({codec.size},)"),
    ):
        method = f"{codec.who}: its {name}()"

        def error(why: str, method: str = method) -> ModelContractError:
            return ModelContractError(f"{method} raised {why}")

        with raised_as(error, CatalogError):
            answer = codec.bounds() if name == "bounds" else getattr(codec, name)(0)
        if name == "leaves":
            fits = isinstance(answer, list | tuple) and all(
                hasattr(leaf, "numeric") for leaf in answer
            )
        elif name == "bounds":
            fits = (
                isinstance(answer, tuple)
                and [getattr(b, "shape", None) for b in answer] == [(codec.size,)] * 2
            )
        else:
            fits = callable(answer)
        if not fits:
            raise ModelContractError(f"{method} must return {expected}, found {shown(answer)}.")


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
    if codec.info.is_composite and len(codec.children) == len(codec.info.children):
        for child, part in zip(codec.children, codec.info.split(obs), strict=True):
            check_slice(child, part)
    home = {getattr(type(codec), name).__module__ for name in ("writer", "batch_writer")}
    if not codec.is_watched or home == {_HOME}:
        return
    # Start of its slice in a longer array, with equal space before and after it.
    first = codec.size + 8
    for name, write in (
        ("writer", codec.writer(first)),
        ("batch_writer", codec.batch_writer(first)),
    ):
        is_batch = name == "batch_writer"
        out = np.full((*([1] * is_batch), codec.size + 2 * first), _CANARY, np.float32)
        out[..., first : first + codec.size] = 0.0
        given = stack(codec.info, [obs]) if is_batch else obs
        try:
            returned = write(given, out)
        except (Exception, SystemExit):  # encoding it raises the error
            return
        own = out[..., first : first + codec.size]
        if returned is not None and own.size and not _writes(write, given, out, own):
            raise ModelContractError(
                f"{codec.who}: its {name}(start) returns {shown(returned)} instead of writing into"
                " `out`, so every observation would be encoded as zeros. Write the values:"
                f" out[..., start : start + {codec.size}] = values."
            )
        own[...] = _CANARY
        if (out != _CANARY).any():
            at = int(np.argwhere(out != _CANARY)[0, -1]) - first
            raise ModelContractError(
                f"{codec.who}: its {name}(start) writes to position start{at:+d}; its slice is the"
                f" {codec.size} positions from start on."
            )


def _writes(write: Callable[[Any, Array], Any], given: Any, out: Array, own: Array) -> bool:
    """Return whether a writer changes anything in its slice.

    Args:
        write: The writer.
        given: An observation, or a batch of one.
        out: The array that it writes to.
        own: Its slice of the array.
    """
    own[...] = _CANARY
    write(given, out)
    return bool((own != _CANARY).any())


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
    wrong = (encoded < lowest) | (encoded > highest)
    if wrong.any():
        at = int(np.argwhere(wrong)[0, -1])
        path = next(
            (leaf.path for leaf in codec.leaves() if leaf.start <= at < leaf.stop), codec.info.path
        )
        who = next((part.who for part in codec.codecs() if part.info.path == path), codec.who)
        raise ModelContractError(
            f"{who}: {path} is encoded as {encoded[wrong][0]} at position {at}, outside"
            f" [{low[at]}, {high[at]}], the range that its bounds() returns."
        )
