"""Checks of samples from action distributions: the seed determines them, and greedy acting does not
sample.
"""

from __future__ import annotations

import numpy as np

from rlcatalog.frameworks import Array
from rlcatalog_testing.contract import require
from rlcatalog_testing.examples import observations_of
from rlcatalog_testing.passes import alike
from rlcatalog_testing.trials import Trial, check_chance_trials, check_trials

ROWS = 5
#: Number of draws that a centre is compared with.
DRAWS = 2048
#: Number of standard errors by which a centre may be off.
ERRORS = 6.0
#: Number of rows that are drawn again: enough to differ by chance, even if few actions are likely.
MANY = 200


@check_trials(hint="do not use random numbers in deterministic_sample(), only in sample()")
def deterministic_sample_is_no_draw(trial: Trial) -> None:
    """Without exploration, the action is the same each time."""
    copies = 8
    inputs = np.repeat(trial.inputs(ROWS), copies, axis=0)
    dist = trial.dist(inputs)
    actions = trial.raw(dist.deterministic_sample())
    alike(
        trial.raw(dist.deterministic_sample()),
        actions,
        f"{trial}: deterministic_sample() in a second call",
    )
    alike(
        trial.raw(trial.dist(inputs).deterministic_sample()),
        actions,
        f"{trial}: deterministic_sample() for equal inputs",
    )
    alike(
        np.repeat(actions[::copies], copies, axis=0),
        actions,
        f"{trial}: deterministic_sample() for equal rows",
    )


@check_trials(
    hint="return the mode, or a mean or median that is likely; choosing each part greedily is fine"
)
def deterministic_sample_is_likely(trial: Trial) -> None:
    """Without exploration, the action is likely; floats are the mode, the mean or the median."""
    inputs = trial.inputs(ROWS)
    greedy = trial.raw(trial.dist(inputs).deterministic_sample())
    all_actions = trial.every_action()
    if all_actions is not None:
        logp = trial.logp(trial.dist(inputs), greedy)
        # Of n actions, the most likely one has at least probability 1 / n.
        lowest = -np.log(len(all_actions)) - 1e-3
        require(
            bool((logp >= lowest).all()),
            f"{trial}: log probability {logp.min():.4g}: less likely than any of"
            f" {len(all_actions)} random samples",
        )
        return
    for row, action in zip(inputs, greedy, strict=True):
        samples = trial.raw(trial.dist(np.tile(row, (DRAWS, 1))).sample())
        difference = _difference_from_samples(trial, row, samples, action)
        require(
            difference is None,
            f"{trial}: {action} is unlike the samples, whose mean is {samples.mean(axis=0)}:"
            f" {difference}",
        )


def _difference_from_samples(trial: Trial, row: Array, samples: Array, action: Array) -> str | None:
    """Return in what an action differs from samples: floats far from their centre, or rare choices.

    Args:
        trial: The trial.
        row: The distribution's inputs `[size]`.
        samples: Samples for these inputs `[DRAWS, width]`.
        action: The action `[width]`.
    """
    used = trial.codec.used(action[None])
    used_of_samples = trial.codec.used(samples)
    if used is not None and used_of_samples is not None:
        # Compare it with samples in which the same values count, as in the chosen part of a OneOf.
        has_same_values = np.logical_and.reduce(used_of_samples == used, axis=1)
        samples = samples[has_same_values]
    has_its_choices = np.ones(len(samples), bool)
    num_choices = 1.0
    for leaf, columns in trial.pieces():
        samples_of_leaf = samples[:, columns]
        value = action[columns]
        if used is not None and not used[:, columns].any():
            continue
        if leaf.raw_kind == "onehot":
            has_its_choices &= samples_of_leaf.argmax(axis=1) == value.argmax()
            num_choices *= leaf.width
        elif leaf.counts is not None:
            has_its_choices &= (samples_of_leaf == value).all(axis=1)
            num_choices *= float(np.prod(leaf.counts, dtype=float))
        elif not _is_mean_or_median(samples_of_leaf, value):
            if not _is_mode(trial, row, samples, action, columns):
                return f"{value} is not the mean or median of {leaf.info.path}, or a mode of logp"
    frequency = has_its_choices.mean()
    # The most likely of n choices has at least probability 1 / n; draws may show it less often.
    if frequency >= 0.4 / num_choices:
        return None
    return f"its choices have the frequency {frequency:.4g}"


def _is_mean_or_median(samples: Array, value: Array) -> bool:
    """Return whether floats equal the mean or the median of the draws, within sampling error."""
    root = np.sqrt(len(samples))
    slack = 1e-4 + ERRORS * samples.std(axis=0) / root
    if (np.abs(value - samples.mean(axis=0)) <= slack).all():
        return True
    # The standard error of a quantile near the median is 1 / (2 root).
    margin = ERRORS / 2 / root
    low, high = np.quantile(samples, [0.5 - margin, 0.5 + margin], axis=0)
    is_median = (low - 1e-4 <= value) & (value <= high + 1e-4)
    return bool(is_median.all())


def _is_mode(trial: Trial, row: Array, samples: Array, action: Array, columns: slice) -> bool:
    """Return whether no small step from an action, in the direction between two samples, makes it
    more likely.
    """
    steps = np.zeros((64, len(action)))
    shifted = np.roll(samples, 1, axis=0)
    differences = (samples - shifted)[:64, columns]
    steps[: len(differences), columns] = 0.1 * differences
    no_step = np.zeros((1, len(action)))
    around = (action + np.concatenate([steps, -steps, no_step])).astype(np.float32)
    # A step may leave the distribution's support, where the density is 0.
    with np.errstate(all="ignore"):
        logp = trial.logp(trial.dist(np.tile(row, (len(around), 1))), around)
    logp_of_action = logp[-1]
    return bool(np.nanmax(logp) <= logp_of_action + 1e-3)


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

    actions = draw(seed=1)
    actions_again = draw(seed=1)
    actions_of_other_seed = draw(seed=2)
    require(
        np.array_equal(actions, actions_again),
        f"{trial}: with the same seed, sample() draws different actions",
    )
    require(
        not np.array_equal(actions, actions_of_other_seed),
        f"{trial}: with a different seed, sample() draws the same actions",
    )
    _check_random_state(trial)


def _check_random_state(trial: Trial) -> None:
    """Raise an error unless a policy's random state determines its actions, and each act changes
    it.
    """
    policy = trial.policy
    observations = observations_of(trial.example, MANY)
    encoded = policy.preprocess(observations)
    mask = policy.action_mask(observations)
    state = policy.random_state()
    actions = policy.act_encoded(encoded, mask=mask).raw_action
    policy.set_random_state(state)
    actions_again = policy.act_encoded(encoded, mask=mask).raw_action
    next_actions = policy.act_encoded(encoded, mask=mask).raw_action
    require(
        np.array_equal(actions, actions_again),
        f"{trial}: with its earlier random state, the policy draws different actions",
    )
    require(
        not np.array_equal(actions, next_actions),
        f"{trial}: the policy draws the same actions every time",
    )
