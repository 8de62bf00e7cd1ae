"""NaN and infinity checks: they raise an error before a policy acts on or learns from a non-finite
number.

Each check computes one sum of products over an existing array, which takes a third as long as
`isfinite`. The sum is finite only if all numbers are finite. If it is not finite, possibly only
because of large numbers, every number is checked.
"""

from __future__ import annotations

import math

import numpy as np

from rlcatalog.errors import NonFiniteError
from rlcatalog.observations import Array, Preprocessor


def check_finite_step(
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
    # A fast check of the usual case: a sum of products is finite only if all numbers in it are. The
    # first sum is of both the log densities and the values.
    has_finite_results = math.isfinite(np.vdot(logp, logp if value is None else value))
    # The square of a masked logit, the lowest finite number, overflows: then look at each number.
    has_finite_inputs = math.isfinite(np.vdot(inputs, inputs)) or np.isfinite(inputs).all()
    has_finite_obs = encoded.dtype.kind != "f" or math.isfinite(np.vdot(encoded, encoded))
    if has_finite_results and has_finite_inputs and has_finite_obs:
        return

    numbers_with_names = [
        (logp, "the log density of its action"),
        (inputs, "a parameter of its action's distribution"),
    ]
    if value is not None:
        numbers_with_names.append((value, "its value estimate"))
    for numbers, name in numbers_with_names:
        row = _first_row(numbers)
        if row is not None:
            number = _first_in(numbers[row])
            problem = f"{name} is {_number_text(number)}"
            parameters = _parameters_text(inputs[row])
            why = _cause(preprocessor, encoded[row])
            raise NonFiniteError(
                f"row {row} of {len(logp)}: {problem}; the parameters of its distribution are"
                f" {parameters}, and {why}{_steps_text(t, row)}.",
                row,
            )
    check_observations(encoded, preprocessor, t)


def _parameters_text(parameters: Array) -> str:
    """Return the first eight of an action's distribution's parameters as text."""
    numbers = np.ravel(parameters)
    texts = [f"{number:.6g}" for number in numbers[:8]]
    if numbers.size > 8:
        texts.append("…")
    return f"[{', '.join(texts)}]"


def _cause(preprocessor: Preprocessor, encoded: Array) -> str:
    """Return why an action's numbers are not finite, judging by its encoded observation."""
    place = place_of(preprocessor, encoded)
    if place is None:
        return (
            "its observation is finite: look at the model's weights, and at past steps if it has a"
            " memory; to forbid an action, set its logit to the lowest finite number"
        )
    return (
        f"its observation contains values that are not finite: {place}; fix it in the environment"
    )


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
    if encoded.dtype.kind != "f":
        return
    row = _first_row(encoded)
    if row is not None:
        raise NonFiniteError(
            f"row {row} of {len(encoded)}: its observation contains values that are not finite:"
            f" {place_of(preprocessor, encoded[row])}; fix it in the"
            f" environment{_steps_text(t, row)}.",
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
    row = _first_row(numbers)
    if row is not None:
        number = _first_in(numbers[row])
        raise NonFiniteError(
            f"row {row} of {len(numbers)}: {what} is {_number_text(number)}:"
            f" {why}{_steps_text(t, row)}.",
            row,
        )


def check_values(values: Array) -> None:
    """Raise an error if a value estimate `[B]` that was computed without acting is not finite.

    Raises:
        NonFiniteError: A number is NaN or infinite.
    """
    check_rows(
        values,
        what="its value estimate",
        why="look at its observation, and at the model's weights",
    )


def place_of(preprocessor: Preprocessor, encoded: Array) -> str | None:
    """Return an encoded observation's first non-finite value and its location, or None if all
    values are finite.
    """
    numbers = np.ravel(encoded)
    places = np.flatnonzero(~np.isfinite(numbers))
    if not len(places):
        return None
    place = int(places[0])
    number_text = _number_text(numbers[place])
    for leaf in preprocessor.leaves():
        if leaf.start <= place < leaf.stop:
            index = ""
            if leaf.shape:
                axes = np.unravel_index(place - leaf.start, leaf.shape)
                index = f"[{', '.join(str(int(axis)) for axis in axes)}]"
            return f"{number_text} at {leaf.path}{index}"
    return f"{number_text} at {preprocessor.info.path}"


def _first_in(row: Array) -> float:
    """Return a row's first non-finite number."""
    numbers = np.ravel(row)
    places = np.flatnonzero(~np.isfinite(numbers))
    return float(numbers[places[0]])


def _first_row(numbers: Array) -> int | None:
    """Return the first row that contains a non-finite number, or None."""
    if math.isfinite(np.vdot(numbers, numbers)):
        return None
    indices = np.argwhere(~np.isfinite(numbers))
    if not len(indices):
        return None  # all numbers are finite, but their squares are too large for the sum
    return int(indices[0, 0])


def _number_text(number: float) -> str:
    if np.isnan(number):
        return "NaN"
    return str(number)


def _steps_text(t: Array | None, row: int) -> str:
    if t is None:
        return ""
    return f" (after {int(t[row])} steps of its episode)"
