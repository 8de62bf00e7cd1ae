"""NaN and infinity checks: they raise an error before a policy acts on or learns from a non-finite
number.

Each check computes one sum of products over an existing array, which takes a third as long as
`isfinite`. The sum is finite only if all numbers are finite. If it is not finite, possibly only
because of large numbers, every number is checked.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlcatalog.errors import NonFiniteError
from rlcatalog.observations import Array, Preprocessor


def check_step(
    logp: Array,
    value: Array | None,
    inputs: Array,
    encoded: Array,
    preprocessor: Preprocessor,
    t: Array | None = None,
) -> None:
    """Raise an error if an action was drawn from non-finite parameters, or if its value estimate is
    not finite.

    Args:
        logp: Log densities of the actions `[B]`.
        value: Value estimates `[B]`, or None.
        inputs: Parameters of the distributions `[B, n]`.
        encoded: The observations `[B, ...]`.
        preprocessor: The preprocessor, which says what part of an observation an index belongs to.
        t: Number of steps taken so far in each episode `[B]`, if counted.

    Raises:
        NonFiniteError: A number is NaN or infinite.
    """
    if (
        math.isfinite(np.vdot(logp, logp if value is None else value))
        # a masked logit overflows.
        and (math.isfinite(np.vdot(inputs, inputs)) or np.isfinite(inputs).all())
        and (encoded.dtype.kind != "f" or math.isfinite(np.vdot(encoded, encoded)))
    ):
        return
    looked_at = [
        (logp, "the log density of its action"),
        (inputs, "a parameter of its action's distribution"),
    ]
    for numbers, what in (
        looked_at if value is None else [*looked_at, (value, "its value estimate")]
    ):
        if (row := _first_row(numbers)) is None:
            continue
        problem = f"{what} is {_shown(_wrong(numbers[row])[0])}"
        values = ", ".join(f"{number:.6g}" for number in np.ravel(inputs[row])[:8])
        more = ", …" if np.size(inputs[row]) > 8 else ""
        place = place_of(preprocessor, encoded[row])
        why = (
            "its observation is finite: look at the model's weights, and at past steps if it has a"
            " memory; to forbid an action, set its logit to the lowest finite number"
            if place is None
            else f"its observation contains values that are not finite: {place}; fix it in the"
            " environment"
        )
        raise NonFiniteError(
            f"row {row} of {len(logp)}: {problem}; the parameters of its distribution are"
            f" [{values}{more}], and {why}{_after(t, row)}.",
            row,
        )
    check_observations(encoded, preprocessor, t)


def check_observations(encoded: Array, preprocessor: Preprocessor, t: Array | None = None) -> None:
    """Raise an error if an encoded observation contains NaN or infinity.

    Args:
        encoded: The observations `[B, ...]`.
        preprocessor: The preprocessor, which says what part of an observation an index belongs to.
        t: Number of steps taken so far in each episode `[B]`, if counted.

    Raises:
        NonFiniteError: A number is NaN or infinite; the message names its row and the part of the
            observation.
    """
    if encoded.dtype.kind == "f" and (row := _first_row(encoded)) is not None:
        raise NonFiniteError(
            f"row {row} of {len(encoded)}: its observation contains values that are not finite:"
            f" {place_of(preprocessor, encoded[row])}; fix it in the environment{_after(t, row)}.",
            row,
        )


def check_rows(numbers: Array, what: str, why: str, t: Array | None = None) -> None:
    """Raise an error if a row of numbers `[B, ...]` contains NaN or infinity.

    Args:
        numbers: The numbers.
        what: What the numbers are, such as `"its value estimate"`.
        why: Advice for the message.
        t: Number of steps taken so far in each episode `[B]`, if counted.

    Raises:
        NonFiniteError: A number is NaN or infinite.
    """
    if (row := _first_row(numbers)) is not None:
        wrong = _shown(_wrong(numbers[row])[0])
        raise NonFiniteError(
            f"row {row} of {len(numbers)}: {what} is {wrong}: {why}{_after(t, row)}.", row
        )


def place_of(preprocessor: Preprocessor, encoded: Array) -> str | None:
    """Return an encoded observation's first non-finite value and its location, or None if all
    values are finite.
    """
    values, places = _wrong(encoded)
    if not len(places):
        return None
    at = int(places[0])
    for leaf in preprocessor.leaves():
        if leaf.start <= at < leaf.stop:
            index = (
                ", ".join(str(int(i)) for i in np.unravel_index(at - leaf.start, leaf.shape))
                if leaf.shape
                else ""
            )
            return f"{_shown(values)} at {leaf.path}{f'[{index}]' if index else ''}"
    return f"{_shown(values)} at {preprocessor.info.path}"


def _wrong(row: Any) -> tuple[Any, Array]:
    """Return a row's first non-finite value, and the indices of all non-finite values."""
    flat = np.ravel(row)
    places = np.flatnonzero(~np.isfinite(flat))
    return (flat[places[0]] if len(places) else None), places


def _first_row(numbers: Array) -> int | None:
    """Return the first row that contains a non-finite number, or None."""
    if math.isfinite(np.vdot(numbers, numbers)):
        return None
    wrong = np.argwhere(~np.isfinite(numbers))
    return int(wrong[0, 0]) if len(wrong) else None


def _shown(value: Any) -> str:
    return "NaN" if np.isnan(value) else f"{value}"


def _after(t: Array | None, row: int) -> str:
    return "" if t is None else f" (after {int(t[row])} steps of its episode)"
