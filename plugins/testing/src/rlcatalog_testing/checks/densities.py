"""Checks of action distributions: densities, entropies and KL divergences against samples, and
their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rlcatalog.actions import ActionCodec, params_given
from rlcatalog.errors import NoClosedFormError
from rlcatalog.frameworks import Array, Tensor
from rlcatalog_testing.contract import NotApplicable, Subject, check, require
from rlcatalog_testing.trials import Trial, check_chance_trials, check_trials, trials

#: Number of draws that a mean is taken over.
DRAWS = 2048
#: Number of standard errors by which a mean over draws may be off.
ERRORS = 6.0
#: Number of rows of inputs, each of which is a distribution.
ROWS = 2
#: With more floats than this, draws seldom fall into a given box.
MOST_FLOATS = 4


@check_chance_trials(
    hint="normalise logp: the sum or integral of the density over all actions is 1"
)
def density_integrates_to_one(trial: Trial) -> None:
    """Probabilities sum to 1 over all actions, and densities integrate to 1."""
    all_actions = trial.every_action()
    for row in trial.inputs(ROWS, 0.5):
        if all_actions is not None:
            total = _probabilities(trial, row, all_actions).sum()
            require(
                abs(total - 1) < 1e-4,
                f"{trial}: the probabilities of all {len(all_actions)} actions sum to {total:.6g}",
            )
        else:
            # If x is drawn from p, the mean of 1/p(x) over the draws within a box is the volume of
            # the box. This only holds if p integrates to 1 and is the density of the samples.
            box = _measure_box(trial, row)
            require(
                abs(box.estimate - box.volume) <= ERRORS * box.error + 0.01 * box.volume,
                f"{trial}: from its draws and its density, a box of volume {box.volume:.4g} has the"
                f" volume {box.estimate:.4g} ± {box.error:.2g}: the density does not integrate to"
                " 1, or does not match the samples",
            )


def _probabilities(trial: Trial, row: Array, actions: Array) -> Array:
    """Return the probability of each action for the same inputs."""
    dist = trial.dist(np.tile(row, (len(actions), 1)))
    return np.exp(trial.logp(dist, actions))


class _Box(NamedTuple):
    """A box in the space of actions.

    Attributes:
        estimate: Its volume by importance sampling.
        error: The standard error of the estimate.
        volume: Its volume.
    """

    estimate: float
    error: float
    volume: float


def _measure_box(trial: Trial, row: Array) -> _Box:
    """Return a box that contains many of the samples for inputs, and its volume.

    Raises:
        NotApplicable: The action contains too many floats, or has them in some rows only.
    """
    dist = trial.dist(np.tile(row, (4 * DRAWS, 1)))
    samples = trial.raw(dist.sample())
    if trial.codec.used(samples) is not None:
        raise NotApplicable("its draws have floats in some rows only, so that none fill a box")
    columns = _columns_of(trial)
    if not 0 < len(columns.floats) <= MOST_FLOATS:
        raise NotApplicable("too many actions to sum over, and too many floats to integrate over")
    half = 2 * DRAWS
    floats = samples[:, columns.floats].astype(np.float64)
    # One half of the draws sets the box's limits, the other half is counted within them.
    low, high = np.quantile(floats[:half], [0.2, 0.8], axis=0)
    require(bool((high > low).all()), f"{trial}: the same value is drawn every time")
    floats_to_count = floats[half:]
    is_inside = ((floats_to_count >= low) & (floats_to_count <= high)).all(axis=1)
    logp = trial.logp(dist, samples)[half:]
    weights = np.zeros(half)
    weights[is_inside] = np.exp(-logp[is_inside])
    edges = float(np.prod(high - low))
    volume = edges * columns.combinations * _share_of_fractions(low, high, columns)
    return _Box(
        estimate=float(weights.mean()),
        error=float(weights.std() / np.sqrt(half)),
        volume=volume,
    )


class _Columns(NamedTuple):
    """The columns of raw actions by their kind.

    Attributes:
        floats: The columns of free floats.
        fractions: Groups of those columns that hold fractions, which sum to less than 1. The last
            fraction is 1 minus the others, so it is not free.
        combinations: The number of values that the columns of integers have together.
    """

    floats: list[int]
    fractions: list[list[int]]
    combinations: int


def _columns_of(trial: Trial) -> _Columns:
    floats: list[int] = []
    fractions: list[list[int]] = []
    combinations = 1
    for leaf, piece in trial.pieces():
        columns = list(range(piece.start, piece.stop))
        if leaf.counts is not None:
            combinations *= int(np.prod(leaf.counts, dtype=float))
        elif leaf.raw_kind == "onehot" or leaf.info.kind == "simplex":
            size = _size_of_group(leaf)
            for start in range(0, leaf.width, size):
                free = columns[start : start + size - 1]
                fractions.append(free)
                floats += free
        else:
            floats += columns
    return _Columns(floats, fractions, combinations)


def _size_of_group(leaf: ActionCodec) -> int:
    """Return how many values of a leaf sum to 1: all of a one-hot, the last axis of a simplex."""
    if leaf.raw_kind == "onehot":
        return leaf.width
    shape = leaf.info.shape or (1,)
    return shape[-1]


def _share_of_fractions(low: Array, high: Array, columns: _Columns) -> float:
    """Return the share of a box's volume in which the fractions sum to less than 1."""
    points = np.random.default_rng(0).uniform(low, high, (50_000, len(low)))
    is_possible = np.ones(len(points), bool)
    for group in columns.fractions:
        indices = [columns.floats.index(column) for column in group]
        is_possible &= points[:, indices].sum(axis=1) < 1
    return float(is_possible.mean())


@check_chance_trials(hint="draw with the probabilities that logp returns")
def draws_follow_logp(trial: Trial) -> None:
    """If there are only few actions, their frequencies match their probabilities."""
    all_actions = trial.every_action()
    if all_actions is None:
        raise NotApplicable(
            "its actions cannot be counted; density_integrates_to_one checks logp instead"
        )
    for row in trial.inputs(ROWS):
        samples = trial.raw(trial.dist(np.tile(row, (DRAWS, 1))).sample())
        probabilities = _probabilities(trial, row, all_actions)
        for action, probability in zip(all_actions, probabilities, strict=True):
            frequency = float((samples == action).all(axis=1).mean())
            # The standard error of a frequency, and a few draws for rare actions.
            error = np.sqrt(probability * abs(1 - probability) / DRAWS)
            require(
                abs(frequency - probability) <= ERRORS * error + 4 / DRAWS,
                f"{trial}: {action} has probability {probability:.4g}, but is drawn with frequency"
                f" {frequency:.4g}",
            )


@check_chance_trials(
    hint="let entropy return the mean of -logp in nats; if it is an estimate, set entropy_kind ="
    " 'estimate'"
)
def entropy_agrees_with_draws(trial: Trial) -> None:
    """The entropy, or the average of its estimates, equals the mean of -logp over samples."""
    for row in trial.inputs(ROWS):
        dist = trial.dist(np.tile(row, (DRAWS, 1)))
        logp = trial.logp(dist, trial.raw(dist.sample()))
        if trial.has_entropy(dist):
            name = "entropy()"
        else:
            name = "entropy_estimate()"
            require(
                not _has_closed_form(dist),
                f"{trial}: entropy() returns numbers, and entropy_kind = 'estimate' hides them from"
                " engines",
            )
        entropy = trial.array(trial.entropy(dist)).astype(np.float64)
        _check_mean(f"{trial}: {name}", entropy, "-logp", -logp)


def _has_closed_form(dist: Any) -> bool:
    """Return whether a distribution returns an entropy."""
    try:
        dist.entropy()
    except NoClosedFormError:
        return False
    return True


def _check_mean(name: str, numbers: Array, name_of_samples: str, samples: Array) -> None:
    """Raise an error unless the mean of the given numbers equals the mean of the samples, within
    sampling error.
    """
    # Both may be random: estimates vary as samples do.
    error = float(np.hypot(samples.std(), numbers.std()) / np.sqrt(DRAWS))
    mean = numbers.mean()
    expected = samples.mean()
    require(
        abs(mean - expected) <= ERRORS * error + 1e-3,
        f"{name} is {mean:.5g}, but the mean of {name_of_samples} over draws is {expected:.5g} ±"
        f" {error:.2g}",
    )


@check_chance_trials(
    hint="let kl(other) return the mean of self.logp - other.logp over draws of self"
)
def kl_agrees_with_draws(trial: Trial) -> None:
    """The KL divergence between stored distributions equals the mean difference in log density over
    samples.
    """
    for index, row in enumerate(trial.inputs(ROWS)):
        other_row = row + trial.inputs(1, seed=10 + index)[0]
        dist = trial.dist(np.tile(row, (DRAWS, 1)))
        other = trial.dist(np.tile(other_row, (DRAWS, 1)))
        raw = trial.raw(dist.sample())
        differences = trial.logp(dist, raw) - trial.logp(other, raw)
        for name, divergence in _divergences(trial, dist, other, raw):
            _check_mean(f"{trial}: {name}", divergence, "the differences of logp", differences)


def _divergences(trial: Trial, dist: Any, other: Any, raw: Array) -> list[tuple[str, Array]]:
    """Return the KL divergences between stored distributions and between the distributions
    themselves, if defined.

    Raises:
        NotApplicable: They have no divergence.
    """
    pairs = {
        "kl of the stored ones": (trial.stored(dist, raw), trial.stored(other, raw)),
        "kl": (dist, other),
    }
    divergences = []
    for name, (from_dist, to_dist) in pairs.items():
        try:
            divergence = trial.array(from_dist.kl(to_dist)).astype(np.float64)
        except NoClosedFormError:
            continue
        except NotImplementedError:
            raise AssertionError(
                f"{trial}: {name} raises NotImplementedError: if there is no closed form, leave"
                " out kl"
            ) from None
        divergences.append((name, divergence))
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
    dist = trial.dist(inputs)
    equal_dist = trial.dist(inputs.copy())
    other_dist = trial.dist(trial.inputs(8, seed=1))
    raw = trial.raw(dist.sample())
    for name, divergence in _divergences(trial, dist, equal_dist, raw):
        is_zero = (np.abs(divergence) < 1e-4).all()
        require(bool(is_zero), f"{trial}: {name} from itself is {divergence}")
    for name, divergence in _divergences(trial, dist, other_dist, raw):
        lowest = divergence.min()
        require(
            bool((divergence > -1e-4).all()),
            f"{trial}: {name} from a different one is {lowest:.4g}",
        )


def _first_two_trials(subject: Subject) -> list[Trial]:
    return trials(subject)[:2]


@check(
    "action_dist",
    each=_first_two_trials,
    hint="clamp the inputs to exp, and replace -inf with finite numbers before multiplying",
)
def gradients_are_finite(trial: Trial) -> None:
    """Log densities and entropies, and their gradients, are finite for extreme inputs and under
    masks.
    """
    ones = np.ones(trial.size)
    alternating = np.where(np.arange(trial.size) % 2, 1.0, -1.0)
    rows = []
    for size in (1e3, 30.0):
        rows += [size * alternating, -size * alternating, size * ones, -size * ones]
    rows.append(np.zeros(trial.size))
    inputs = np.array(rows, np.float32)
    for mask in trial.masks_to_try(len(inputs)):
        _check_finite(trial, inputs, mask)


class _MaskedQuestions:
    """Functions of a distribution's inputs whose values and gradients must be finite.

    Args:
        trial: The trial.
        mask: The action mask, or None.
    """

    def __init__(self, trial: Trial, mask: Array | None) -> None:
        self._trial = trial
        self._mask = mask

    def entropy(self, inputs: Tensor) -> Any:
        """Return the entropy or its estimate."""
        return self._trial.entropy(self._trial.dist(inputs, self._mask))

    def logp(self, inputs: Tensor, actions: Tensor) -> Any:
        """Return the log density of the actions."""
        return self._trial.dist(inputs, self._mask).logp(actions)


def _check_finite(trial: Trial, inputs: Array, mask: Array | None) -> None:
    where = str(trial) if mask is None else f"{trial} under a mask"
    dist = trial.dist(inputs, mask)
    questions = _MaskedQuestions(trial, mask)
    functions: dict[str, Callable[[Any], Any]] = {}
    entropy_name = "entropy" if trial.has_entropy(dist) else "entropy_estimate"
    functions[entropy_name] = questions.entropy
    sampled = trial.actions(trial.raw(dist.sample()))
    functions["logp of sample()"] = partial(questions.logp, actions=sampled)
    greedy = trial.actions(trial.raw(dist.deterministic_sample()))
    functions["logp of deterministic_sample()"] = partial(questions.logp, actions=greedy)
    for name, function in functions.items():
        values = trial.array(function(trial.ops.tensor(inputs)))
        gradient = trial.kit.gradient(function, inputs)
        _check_rows_finite(values[:, None], inputs, f"{where}: {name}")
        if gradient is not None:
            _check_rows_finite(gradient, inputs, f"{where}: the gradient of {name}")


def _check_rows_finite(numbers: Array, inputs: Array, what: str) -> None:
    is_finite = np.isfinite(numbers).all(axis=1)
    if not is_finite.all():
        first_row = int(is_finite.argmin())
        raise AssertionError(f"{what} is not finite for inputs {inputs[first_row]}")


#: Step size for difference quotients.
STEP = 1e-2
#: Absolute and relative tolerance of difference quotients.
TOLERANCE = 0.02

#: `function(raw, inputs)` returns one number for each row of raw actions `[B, width]` and inputs
#: `[B, size]`.
RowFunction = Callable[[Array, Any], Any]


@check_trials(
    hint="let gradients flow through everything that logp, entropy and kl use: no detach(), no"
    " stop_gradient"
)
def gradients_are_those_of_numbers(trial: Trial) -> None:
    """The gradients of logp, entropy and kl match difference quotients."""
    inputs = trial.inputs(ROWS, 0.5)
    raw = trial.raw(trial.dist(inputs).sample())
    for name, function in _differentiable_functions(trial, raw):
        try:
            slopes = _slopes(trial, function, inputs, raw)
            gradient = trial.kit.gradient(partial(function, raw), inputs)
        except NoClosedFormError:
            continue
        if gradient is None:
            gradient = np.zeros_like(inputs)
        is_wrong = np.abs(gradient - slopes) > TOLERANCE * (1 + np.abs(slopes))
        if is_wrong.any():
            row, column = np.argwhere(is_wrong)[0].tolist()
            raise AssertionError(
                f"{trial}: the gradient of {name} with respect to input {column} is"
                f" {gradient[row, column]:.4g}, but its difference quotient is"
                f" {slopes[row, column]:.4g}"
            )


def _differentiable_functions(trial: Trial, raw: Array) -> Iterator[tuple[str, RowFunction]]:
    """Yield functions that have gradients for the inputs; KL divergences are from stored to
    current, as in PPO.
    """

    def logp(raw: Array, inputs: Tensor) -> Any:
        return trial.dist(inputs).logp(trial.actions(raw))

    def entropy(_: Array, inputs: Tensor) -> Any:
        return trial.dist(inputs).entropy()

    yield "logp", logp
    if trial.has_entropy(trial.dist(trial.inputs(1))):
        yield "entropy", entropy

    old_dist = trial.dist(trial.inputs(ROWS, 0.5, seed=1))
    old_params = trial.params(old_dist, raw)

    def kl(raw: Array, inputs: Tensor) -> Any:
        stored = trial.policy.stored_dist
        model = trial.policy.model
        new_params = params_given(trial.dist(inputs), trial.actions(raw))
        # Difference quotients ask for many copies of the rows in one batch.
        params = np.resize(old_params, (len(raw), old_params.shape[1]))
        return stored(trial.ops.tensor(params), model).kl(stored(new_params, model))

    yield "kl", kl


def _slopes(trial: Trial, function: RowFunction, inputs: Array, raw: Array) -> Array:
    """Return difference quotients `[B, size]`, all of which are computed in one batch."""
    rows, size = inputs.shape
    # The first `rows` rows change the first input, the next ones the second input, and so on.
    steps = STEP * np.repeat(np.eye(size, dtype=np.float32), rows, axis=0)
    tiled_inputs = np.tile(inputs, (size, 1))
    inputs_around = np.concatenate([tiled_inputs + steps, tiled_inputs - steps])
    tiled_raw = np.tile(raw, (2 * size, 1))
    numbers = trial.array(function(tiled_raw, trial.ops.tensor(inputs_around)))
    above, below = numbers.astype(np.float64).reshape(2, size, rows)
    return ((above - below) / (2 * STEP)).T
