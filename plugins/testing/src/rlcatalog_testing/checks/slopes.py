"""Checks of the gradients of action distributions: those of the numbers that they return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from rlcatalog.actions import params_given
from rlcatalog.errors import NoClosedFormError
from rlcatalog_testing.contract import Part, check, require
from rlcatalog_testing.trials import Trial, trials

Array = np.ndarray[Any, Any]

ROWS = 2
#: How far inputs are moved for a difference quotient, and how far it may be off, absolutely and relatively.
STEP, TOLERANCE = 1e-2, 0.02

#: `ask(raw, x)`: one number for each row of raw actions `[B, width]` and of inputs `[B, size]`.
Ask = Callable[[Array, Any], Any]


@check(
    "action_dist",
    hint="let gradients flow through all that logp, entropy and kl are computed from: no detach(), no stop_gradient",
)
def gradients_are_those_of_numbers(part: Part) -> None:
    """The gradients of logp, entropy and kl are what difference quotients of their numbers say."""
    for trial in trials(part):
        inputs = trial.inputs(ROWS, 0.5)
        raw = trial.raw(trial.dist(inputs).sample())
        for name, ask in _asked(trial, raw):
            try:
                slopes = _slopes(trial, ask, inputs, raw)
                gradient = trial.gradient(partial(ask, raw), inputs)
            except NoClosedFormError:
                continue
            gradient = np.zeros_like(inputs) if gradient is None else gradient
            wrong = np.abs(gradient - slopes) > TOLERANCE * (1 + np.abs(slopes))
            if wrong.any():
                row, column = (int(i) for i in np.argwhere(wrong)[0])
                require(
                    False,
                    f"{trial}: the gradient of {name} by input {column} is {gradient[row, column]:.4g}, and its"
                    f" difference quotient {slopes[row, column]:.4g}",
                )


def _asked(trial: Trial, raw: Array) -> Iterator[tuple[str, Ask]]:
    """Yield what has a gradient by the inputs; the divergence is that of what was stored to what is now, as in PPO."""
    yield "logp", lambda raw, x: trial.dist(x).logp(trial.actions(raw))
    if getattr(trial.dist(trial.inputs(1)), "entropy_kind", "exact") == "exact":
        yield "entropy", lambda raw, x: trial.dist(x).entropy()
    stored, model = trial.policy.stored_dist, trial.policy.model
    old = trial.array(params_given(trial.dist(trial.inputs(ROWS, 0.5, seed=1)), trial.actions(raw)))

    def kl(raw: Array, x: Any) -> Any:
        now = stored(params_given(trial.dist(x), trial.actions(raw)), model)
        return stored(trial.ops.tensor(np.resize(old, (len(raw), old.shape[1]))), model).kl(now)

    yield "kl", kl


def _slopes(trial: Trial, ask: Ask, inputs: Array, raw: Array) -> Array:
    """Return difference quotients `[B, size]`, all of them computed in one batch."""
    rows, size = inputs.shape
    steps = STEP * np.repeat(np.eye(size, dtype=np.float32), rows, axis=0)
    tiled = np.tile(inputs, (size, 1))
    both = np.concatenate([tiled + steps, tiled - steps])
    says = trial.array(ask(np.tile(raw, (2 * size, 1)), trial.ops.tensor(both))).astype(np.float64)
    above, below = says.reshape(2, size, rows)
    slopes: Array = ((above - below) / (2 * STEP)).T
    return slopes
