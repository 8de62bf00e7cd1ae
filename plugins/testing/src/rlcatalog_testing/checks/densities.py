"""Checks of action distributions: densities, entropies and KL divergences against samples, and
their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from rlcatalog.actions import params_given
from rlcatalog.errors import NoClosedFormError
from rlcatalog_testing.contract import NotApplicable, check, require
from rlcatalog_testing.passes import Array
from rlcatalog_testing.trials import Trial, check_chance_trials, check_trials, random_mask, trials

#: Number of draws that a mean is taken over, and the number of standard errors by which it may be
#: off.
DRAWS, ERRORS = 2048, 6.0
#: Number of rows of inputs, each of which is a distribution.
ROWS = 2
#: With more floats than this, draws seldom fall into a given box.
MOST_FLOATS = 4


@check_chance_trials(
    hint="normalise logp: the sum or integral of the density over all actions is 1"
)
def density_integrates_to_one(trial: Trial) -> None:
    """Probabilities sum to 1 over all actions; densities are normalised, as an integral over a box
    of samples shows.

    If x is drawn from p, the mean of 1/p(x) over the draws within a box is the volume of the box.
    This equality only holds if p integrates to 1 and is the density of the samples.
    """
    every = trial.every_action()
    for row in trial.inputs(ROWS, 0.5):
        if every is not None:
            total = np.exp(trial.logp(trial.dist(np.tile(row, (len(every), 1))), every)).sum()
            what = f"the probabilities of all {len(every)} actions sum to {total:.6g}"
            require(abs(total - 1) < 1e-4, f"{trial}: {what}")
        else:
            found, error, expected = _volumes(trial, row)
            require(
                abs(found - expected) <= ERRORS * error + 0.01 * expected,
                f"{trial}: from its draws and its density, a box of volume {expected:.4g} has the"
                f" volume {found:.4g} ± {error:.2g}: the density does not integrate to 1, or does"
                " not match the samples",
            )


def _volumes(trial: Trial, row: Array) -> tuple[float, float, float]:
    """Return a box's volume by importance sampling, the standard error of this estimate, and the
    exact volume.

    Raises:
        NotApplicable: The action contains too many floats.
    """
    dist = trial.dist(np.tile(row, (4 * DRAWS, 1)))
    drawn = trial.raw(dist.sample())
    floats, shares, counted = _kinds_of_columns(trial)
    if not 0 < len(floats) <= MOST_FLOATS:
        raise NotApplicable("too many actions to sum over, and too many floats to integrate over")
    values, half = drawn[:, floats].astype(np.float64), 2 * DRAWS
    # From draws other than the counted ones.
    low, high = np.quantile(values[:half], [0.2, 0.8], axis=0)
    require(bool((high > low).all()), f"{trial}: the same value is drawn every time")
    inside = ((values[half:] >= low) & (values[half:] <= high)).all(axis=1)
    weights = np.zeros(half)
    weights[inside] = np.exp(-trial.logp(dist, drawn)[half:][inside])
    volume = float(np.prod(high - low)) * counted * _within(low, high, floats, shares)
    return float(weights.mean()), float(weights.std() / np.sqrt(half)), volume


def _kinds_of_columns(trial: Trial) -> tuple[list[int], list[list[int]], int]:
    """Return the free floats' indices, the groups of fractions among them, and the number of
    integer combinations.

    The fractions in a group sum to less than 1. The last fraction is 1 minus the others, so it is
    not in the group.
    """
    floats: list[int] = []
    shares: list[list[int]] = []
    counted = 1
    for leaf, piece in trial.pieces():
        columns = list(range(piece.start, piece.stop))
        if leaf.counts is not None:
            counted *= int(np.prod(leaf.counts, dtype=float))
        elif leaf.raw_kind == "onehot" or leaf.info.kind == "simplex":
            size = leaf.width if leaf.raw_kind == "onehot" else (leaf.info.shape or (1,))[-1]
            groups = [columns[i : i + size - 1] for i in range(0, leaf.width, size)]
            shares += groups
            floats += [column for group in groups for column in group]
        else:
            floats += columns
    return floats, shares, counted


def _within(low: Array, high: Array, floats: list[int], shares: list[list[int]]) -> float:
    """Return the share of a box's volume in which the fractions sum to less than 1."""
    points = np.random.default_rng(0).uniform(low, high, (50_000, len(low)))
    fits = np.ones(len(points), bool)
    for group in shares:
        fits &= points[:, [floats.index(column) for column in group]].sum(axis=1) < 1
    return float(fits.mean())


@check_chance_trials(hint="draw with the probabilities that logp returns")
def draws_follow_logp(trial: Trial) -> None:
    """If there are only few actions, their frequencies match their probabilities."""
    if (every := trial.every_action()) is None:
        raise NotApplicable(
            "its actions cannot be counted; density_integrates_to_one checks logp instead"
        )
    for row in trial.inputs(ROWS):
        drawn = trial.raw(trial.dist(np.tile(row, (DRAWS, 1))).sample())
        chance = np.exp(trial.logp(trial.dist(np.tile(row, (len(every), 1))), every))
        for action, expected in zip(every, chance, strict=True):
            often = float((drawn == action).all(axis=1).mean())
            slack = ERRORS * np.sqrt(expected * abs(1 - expected) / DRAWS) + 4 / DRAWS
            what = (
                f"{trial}: {action} has probability {expected:.4g}, but is drawn with frequency"
                f" {often:.4g}"
            )
            require(abs(often - expected) <= slack, what)


@check_chance_trials(
    hint="entropy is the mean of -logp in nats; if it is an estimate, set entropy_kind = 'estimate'"
)
def entropy_agrees_with_draws(trial: Trial) -> None:
    """The entropy, or the average of its estimates, equals the mean of -logp over samples."""
    for row in trial.inputs(ROWS):
        dist = trial.dist(np.tile(row, (DRAWS, 1)))
        logp = trial.logp(dist, trial.raw(dist.sample()))
        name = "entropy()" if trial.has_entropy(dist) else "entropy_estimate()"
        if not trial.has_entropy(dist):
            with suppress(NoClosedFormError):
                dist.entropy()
                hidden = (
                    "entropy() returns numbers, and entropy_kind = 'estimate' hides them from"
                    " engines"
                )
                require(False, f"{trial}: {hidden}")
        says = trial.array(trial.entropy(dist)).astype(np.float64)
        _check_mean(f"{trial}: {name}", says, "-logp", -logp)


def _check_mean(name: str, says: Array, of: str, drawn: Array) -> None:
    """Raise an error unless the mean of the given numbers equals the mean of the samples, within
    sampling error.
    """
    error = float(np.hypot(drawn.std(), says.std()) / np.sqrt(DRAWS))
    what = (
        f"{name} is {says.mean():.5g}, but the mean of {of} over draws is {drawn.mean():.5g} ±"
        f" {error:.2g}"
    )
    require(abs(says.mean() - drawn.mean()) <= ERRORS * error + 1e-3, what)


@check_chance_trials(hint="kl(other) is the mean of self.logp - other.logp over draws of self")
def kl_agrees_with_draws(trial: Trial) -> None:
    """The KL divergence between stored distributions equals the mean difference in log density over
    samples.
    """
    for i, row in enumerate(trial.inputs(ROWS)):
        other = row + trial.inputs(1, seed=10 + i)[0]
        here, there = (trial.dist(np.tile(x, (DRAWS, 1))) for x in (row, other))
        raw = trial.raw(here.sample())
        ratio = trial.logp(here, raw) - trial.logp(there, raw)
        for name, says in _divergences(trial, here, there, raw):
            _check_mean(f"{trial}: {name}", says, "the differences of logp", ratio)


def _divergences(trial: Trial, here: Any, there: Any, raw: Array) -> list[tuple[str, Array]]:
    """Return the KL divergences between stored distributions and between the distributions
    themselves, if defined.

    Raises:
        NotApplicable: They have no divergence.
    """
    divergences = []
    pairs = {
        "kl of the stored ones": (trial.stored(here, raw), trial.stored(there, raw)),
        "kl": (here, there),
    }
    for name, (one, other) in pairs.items():
        try:
            divergences.append((name, trial.array(one.kl(other)).astype(np.float64)))
        except NoClosedFormError:
            continue
        except NotImplementedError:
            require(
                False,
                f"{trial}: {name} raises NotImplementedError: if there is no closed form, leave"
                " out kl",
            )
    if not divergences:
        raise NotApplicable("it reports that its divergence has no closed form")
    return divergences


@check_trials(
    hint="subtract log probabilities with the same normalisation: KL(p, p) is 0, and no KL is"
    " negative"
)
def kl_of_itself_is_zero(trial: Trial) -> None:
    """`KL(p, p)` is 0, and `KL(p, q)` is not negative."""
    inputs = trial.inputs(8)
    dist, same, other = (
        trial.dist(inputs),
        trial.dist(inputs.copy()),
        trial.dist(trial.inputs(8, seed=1)),
    )
    raw = trial.raw(dist.sample())
    for name, says in _divergences(trial, dist, same, raw):
        require(bool((np.abs(says) < 1e-4).all()), f"{trial}: {name} from itself is {says}")
    for name, says in _divergences(trial, dist, other, raw):
        require(
            bool((says > -1e-4).all()), f"{trial}: {name} from a different one is {says.min():.4g}"
        )


@check(
    "action_dist",
    each=lambda subject: trials(subject)[:2],
    hint="clamp the inputs to exp, and replace -inf with finite numbers before multiplying",
)
def gradients_are_finite(trial: Trial) -> None:
    """Log densities and entropies, and their gradients, are finite for extreme inputs and under
    masks.
    """
    signs = np.where(np.arange(trial.size) % 2, 1.0, -1.0)
    extremes = [
        value * pattern
        for value in (1e3, 30.0)
        for pattern in (signs, -signs, signs**2, -(signs**2))
    ]
    inputs = np.array([*extremes, np.zeros(trial.size)], np.float32)
    for mask in [None, random_mask(trial, len(inputs))] if trial.policy.masks.size else [None]:
        _check_finite(trial, inputs, mask)


def _check_finite(trial: Trial, inputs: Array, mask: Array | None) -> None:
    where = f"{trial}{'' if mask is None else ' under a mask'}"
    dist = trial.dist(inputs, mask)
    kind = "entropy" if trial.has_entropy(dist) else "entropy_estimate"
    asked: dict[str, Any] = {kind: lambda x: trial.entropy(trial.dist(x, mask))}
    for name in ("sample", "deterministic_sample"):
        actions = trial.actions(trial.raw(getattr(dist, name)()))
        asked[f"logp of {name}()"] = lambda x, actions=actions: trial.dist(x, mask).logp(actions)
    for name, function in asked.items():
        says = trial.array(function(trial.ops.tensor(inputs)))
        gradient = trial.kit.gradient(function, inputs)
        for what, values in ((name, says[:, None]), (f"the gradient of {name}", gradient)):
            finite = (
                np.ones(len(inputs), bool) if values is None else np.isfinite(values).all(axis=1)
            )
            require(
                bool(finite.all()),
                f"{where}: {what} is not finite for inputs {inputs[int(finite.argmin())]}",
            )


#: Step size for difference quotients, and their absolute and relative tolerance.
STEP, TOLERANCE = 1e-2, 0.02

#: `ask(raw, x)` returns one number for each row of raw actions `[B, width]` and inputs `[B, size]`.
Ask = Callable[[Array, Any], Any]


@check_trials(
    hint="let gradients flow through everything that logp, entropy and kl use: no detach(), no"
    " stop_gradient"
)
def gradients_are_those_of_numbers(trial: Trial) -> None:
    """The gradients of logp, entropy and kl match difference quotients."""
    inputs = trial.inputs(ROWS, 0.5)
    raw = trial.raw(trial.dist(inputs).sample())
    for name, ask in _questions(trial, raw):
        try:
            slopes = _slopes(trial, ask, inputs, raw)
            gradient = trial.kit.gradient(partial(ask, raw), inputs)
        except NoClosedFormError:
            continue
        gradient = np.zeros_like(inputs) if gradient is None else gradient
        wrong = np.abs(gradient - slopes) > TOLERANCE * (1 + np.abs(slopes))
        if wrong.any():
            row, column = (int(i) for i in np.argwhere(wrong)[0])
            says = (
                f"{gradient[row, column]:.4g}, but its difference quotient is"
                f" {slopes[row, column]:.4g}"
            )
            require(
                False, f"{trial}: the gradient of {name} with respect to input {column} is {says}"
            )


def _questions(trial: Trial, raw: Array) -> Iterator[tuple[str, Ask]]:
    """Yield functions that have gradients for the inputs; KL divergences are from stored to
    current, as in PPO.
    """
    yield "logp", lambda raw, x: trial.dist(x).logp(trial.actions(raw))
    if trial.has_entropy(trial.dist(trial.inputs(1))):
        yield "entropy", lambda raw, x: trial.dist(x).entropy()
    stored, model = trial.policy.stored_dist, trial.policy.model
    old = trial.params(trial.dist(trial.inputs(ROWS, 0.5, seed=1)), raw)

    def kl(raw: Array, x: Any) -> Any:
        now = stored(params_given(trial.dist(x), trial.actions(raw)), model)
        return stored(trial.ops.tensor(np.resize(old, (len(raw), old.shape[1]))), model).kl(now)

    yield "kl", kl


def _slopes(trial: Trial, ask: Ask, inputs: Array, raw: Array) -> Array:
    """Return difference quotients `[B, size]`, all of which are computed in one batch."""
    rows, size = inputs.shape
    steps = STEP * np.repeat(np.eye(size, dtype=np.float32), rows, axis=0)
    tiled = np.tile(inputs, (size, 1))
    both = np.concatenate([tiled + steps, tiled - steps])
    says = trial.array(ask(np.tile(raw, (2 * size, 1)), trial.ops.tensor(both))).astype(np.float64)
    above, below = says.reshape(2, size, rows)
    return ((above - below) / (2 * STEP)).T
