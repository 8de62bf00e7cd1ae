"""Checks of samples from action distributions: the seed determines them, and greedy acting does not
sample.
"""

from __future__ import annotations

import numpy as np

from rlcatalog_testing.contract import require
from rlcatalog_testing.examples import observations_of
from rlcatalog_testing.passes import Array, alike
from rlcatalog_testing.trials import Trial, check_chance_trials, check_trials

ROWS = 5
#: Number of draws that a centre is compared with, and the number of standard errors by which it may
#: be off.
DRAWS, ERRORS = 2048, 6.0
#: Number of rows that are drawn again: enough to differ by chance, even if few actions are likely.
MANY = 200


@check_trials(hint="do not use random numbers in deterministic_sample(), only in sample()")
def deterministic_sample_is_no_draw(trial: Trial) -> None:
    """Without exploration, the action is the same each time."""
    inputs = np.repeat(trial.inputs(ROWS), 8, axis=0)
    dist = trial.dist(inputs)
    first = trial.raw(dist.deterministic_sample())
    for what, other in (("in a second call", dist), ("for equal inputs", trial.dist(inputs))):
        alike(
            trial.raw(other.deterministic_sample()),
            first,
            f"{trial}: deterministic_sample() {what}",
        )
    alike(
        np.repeat(first[::8], 8, axis=0), first, f"{trial}: deterministic_sample() for equal rows"
    )


@check_trials(
    hint="return the mode, or a mean or median that is likely; choosing each part greedily is fine"
)
def deterministic_sample_is_likely(trial: Trial) -> None:
    """Without exploration, the action is likely; floats are the mode, the mean or the median."""
    inputs, every = trial.inputs(ROWS), trial.every_action()
    best = trial.raw(trial.dist(inputs).deterministic_sample())
    if every is not None:
        logp = trial.logp(trial.dist(inputs), best)
        least = -np.log(len(every)) - 1e-3
        unlikely = (
            f"log probability {logp.min():.4g}: less likely than any of {len(every)} random samples"
        )
        require(bool((logp >= least).all()), f"{trial}: {unlikely}")
        return
    for row, own in zip(inputs, best, strict=True):
        drawn = trial.raw(trial.dist(np.tile(row, (DRAWS, 1))).sample())
        what = _unlike(trial, row, drawn, own)
        require(
            what is None,
            f"{trial}: {own} is unlike the samples, whose mean is {drawn.mean(axis=0)}: {what}",
        )


def _unlike(trial: Trial, row: Array, drawn: Array, best: Array) -> str | None:
    """Return an action's values that differ from the samples: floats far from their centre, or rare
    choices.
    """
    same, ways = np.ones(len(drawn), bool), 1.0
    for leaf, columns in trial.pieces():
        piece, own = drawn[:, columns], best[columns]
        if leaf.raw_kind == "onehot":
            same, ways = same & (piece.argmax(axis=1) == own.argmax()), ways * leaf.width
        elif leaf.counts is not None:
            same, ways = (
                same & (piece == own).all(axis=1),
                ways * float(np.prod(leaf.counts, dtype=float)),
            )
        elif not (_is_mean_or_median(piece, own) or _is_mode(trial, row, drawn, best, columns)):
            return f"{own} is not the mean or median of {leaf.info.path}, or a mode of logp"
    return (
        None if same.mean() >= 0.4 / ways else f"its choices have the frequency {same.mean():.4g}"
    )


def _is_mean_or_median(piece: Array, own: Array) -> bool:
    """Return whether floats equal the mean or the median of the draws, within sampling error."""
    slack = 1e-4 + ERRORS * piece.std(axis=0) / np.sqrt(len(piece))
    margin = ERRORS / 2 / np.sqrt(len(piece))
    low, high = np.quantile(piece, [0.5 - margin, 0.5 + margin], axis=0)
    is_mean = (np.abs(own - piece.mean(axis=0)) <= slack).all()
    return bool(is_mean or ((low - 1e-4 <= own) & (own <= high + 1e-4)).all())


def _is_mode(trial: Trial, row: Array, drawn: Array, best: Array, columns: slice) -> bool:
    """Return whether no small step from an action, in the direction between two samples, makes it
    more likely.
    """
    steps = np.zeros((64, len(best)))
    steps[:, columns] = 0.1 * (drawn[:64, columns] - drawn[64:128, columns])
    around = (best + np.concatenate([steps, -steps, steps[:1] * 0])).astype(np.float32)
    with np.errstate(all="ignore"):
        logp = trial.logp(trial.dist(np.tile(row, (len(around), 1))), around)
    return bool(np.nanmax(logp) <= logp[-1] + 1e-3)


@check_chance_trials(
    hint="draw from the framework's random generators, which are seeded and stored with runs"
)
def draws_follow_the_seed(trial: Trial) -> None:
    """The same seed, or a policy's stored random state, gives the same actions; a different seed
    gives others.
    """
    dist = trial.dist(trial.inputs(MANY))

    def draw(seed: int) -> Array:
        trial.kit.seed(seed)
        return trial.raw(dist.sample())

    first, again, other = map(draw, (1, 1, 2))
    require(
        np.array_equal(first, again),
        f"{trial}: with the same seed, sample() draws different actions",
    )
    require(
        not np.array_equal(first, other),
        f"{trial}: with a different seed, sample() draws the same actions",
    )
    policy, observations = trial.policy, observations_of(trial.example, MANY)
    encoded, mask = policy.preprocess(observations), policy.action_mask(observations)
    state = policy.random_state()
    first = policy.act_encoded(encoded, mask=mask).raw_action
    policy.set_random_state(state)
    again, other = (policy.act_encoded(encoded, mask=mask).raw_action for _ in range(2))
    same = "with its earlier random state, the policy"
    require(np.array_equal(first, again), f"{trial}: {same} draws different actions")
    require(
        not np.array_equal(first, other), f"{trial}: the policy draws the same actions every time"
    )
