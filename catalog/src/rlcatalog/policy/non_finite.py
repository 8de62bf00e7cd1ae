"""Check of numbers that are none: nobody acts upon them in silence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlcatalog.errors import NonFiniteError

Array = np.ndarray[Any, Any]


def check_finite(logp: Array, inputs: Array, encoded: Array) -> None:
    """Raise where an action was drawn from a distribution whose parameters are no numbers.

    Args:
        logp: Log densities of the actions `[B]`.
        inputs: What the distributions were made of `[B, n]`.
        encoded: The observations `[B, ...]`.

    Raises:
        NonFiniteError: A log density is NaN.
    """
    # A sum of squares is NaN where one of them is; at every step, this takes a third of isnan's time.
    if not math.isnan(np.vdot(logp, logp)):
        return
    row = int(np.flatnonzero(np.isnan(logp.reshape(len(logp), -1)).any(axis=1))[0])
    finite = np.isfinite(np.asarray(encoded[row], np.float64)).all()
    why = (
        "its observation is finite: look at the model's weights, and at past steps if it has a memory"
        if finite
        else "its observation holds values that are not finite: mend it in the environment"
    )
    values = ", ".join(f"{value:.6g}" for value in np.ravel(inputs[row])[:8])
    more = ", …" if np.size(inputs[row]) > 8 else ""
    raise NonFiniteError(
        f"row {row} of {len(logp)}: the log density of its action is NaN; the parameters of its distribution are"
        f" [{values}{more}], and {why}."
    )
