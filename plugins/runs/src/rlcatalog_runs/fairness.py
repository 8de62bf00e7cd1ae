"""Whether a comparison of runs is fair: equal lengths, equal tasks, and as many seeds for each
curve.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rlcatalog_runs.comparison import Group, settings_of
from rlcatalog_runs.summaries import Run, table_in

#: Lengths of runs may differ by this factor without a warning: the last iteration of each run
#: passes the requested number of steps.
_TOLERANCE = 1.05


def unfair_differences(groups: Sequence[Group]) -> list[str]:
    """Return what makes a comparison of these curves unfair: a sentence for each difference that
    the settings in their labels do not explain.
    """
    runs = [run for group in groups for run in group.runs]
    differences = [
        _difference_in_length(runs),
        _difference_in_task(runs),
        _difference_in_seeds(groups),
    ]
    sentences = [sentence for sentence in differences if sentence is not None]
    for group in groups:
        run = _run_that_occurs_twice(group)
        if run is not None:
            sentences.append(
                f"{group.label}: seed {run.seed} occurs more than once, so the interval is too"
                " narrow."
            )
    return sentences


def _difference_in_length(runs: Sequence[Run]) -> str | None:
    shortest = min(runs, key=_num_steps)
    longest = max(runs, key=_num_steps)
    if longest.steps <= _TOLERANCE * shortest.steps:
        return None
    return (
        f"the runs have different lengths, from {shortest.steps:,} steps ({shortest.folder}) to"
        f" {longest.steps:,} ({longest.folder}). They are compared where the shortest one ends. To"
        f" compare them to the end: rlcatalog train --resume {shortest.folder} --steps"
        f" {longest.steps}."
    )


def _num_steps(run: Run) -> int:
    return run.steps


def _difference_in_task(runs: Sequence[Run]) -> str | None:
    """Return whether the runs configured their environment, which has the same name, differently.

    Runs in environments of different names cannot be compared at all.
    """
    first_run = runs[0]
    first_config = _env_config(first_run)
    for run in runs:
        env_config = _env_config(run)
        if env_config != first_config:
            return (
                f"the runs have different tasks: env_config is {first_config} in"
                f" {first_run.folder}, and {env_config} in {run.folder}."
            )
    return None


def _env_config(run: Run) -> str:
    """Return the config of a run's environment as text."""
    env_config = table_in(table_in(run.config, "algorithm"), "env_config")
    return json.dumps(env_config, sort_keys=True, default=str)


def _difference_in_seeds(groups: Sequence[Group]) -> str | None:
    fewest = min(groups, key=_num_runs)
    most = max(groups, key=_num_runs)
    if _num_runs(fewest) == _num_runs(most):
        return None
    return (
        f"the curves have different numbers of seeds: {_num_runs(most)} ({most.label}) and"
        f" {_num_runs(fewest)} ({fewest.label}). The mean over fewer seeds depends more on chance."
    )


def _num_runs(group: Group) -> int:
    return len(group.runs)


def _run_that_occurs_twice(group: Group) -> Run | None:
    """Return the first run whose seed and settings another run has too, or None."""
    texts = []
    for run in group.runs:
        settings = {"seed": run.seed, **settings_of(run)}
        texts.append(json.dumps(settings, sort_keys=True, default=str))
    for run, text in zip(group.runs, texts, strict=True):
        if texts.count(text) > 1:
            return run
    return None
