"""The zoo: the best policies that rlcatalog-ppo trained for the comparison, as small files with
their records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import rlcatalog
from benchmarks.learning.environments import Registered
from benchmarks.learning.tasks import TASKS
from rlcatalog_ppo.commands import ZOO
from rlcatalog_runs.evaluation import play

#: Tasks with a policy in the zoo. The environment of each has an id, by which users name it.
ZOO_TASKS = (
    "CartPole-v1",
    "Pendulum-v1",
    "LunarLander-v3",
    "Hopper-v5",
    "MinAtar/Breakout-v1",
    "RepeatPreviousEasy",
    "Workshop",
    "Weeds",
)
#: Episodes that a policy plays for its record, and the seed of their environments: those of
#: `rlcatalog evaluate`.
EPISODES, SEED = 100, 10_000

Row = dict[str, Any]


def write(rows: Sequence[Row], runs: Path, zoo: Path = ZOO) -> Iterator[str]:
    """Export the best kept policy of each task of the zoo, and yield the tasks that got a new one.

    A policy stays in the zoo while its run is among the records and no better one is kept.

    Args:
        rows: Records of runs.
        runs: Folder of the kept policies, `TASK/ours-catalog-SEED`.
        zoo: Folder of the zoo.
    """
    for task in ZOO_TASKS:
        runs_of_task = [
            row
            for row in rows
            if (row["engine"], row["task"], row["net"]) == ("ours", task, "catalog")
        ]
        kept = [row for row in runs_of_task if _folder(row, runs).is_dir()]
        if not kept:
            continue
        best = max(kept, key=_greedy_return)
        record = zoo / f"{_env_of(task).name.replace('/', '-')}.json"
        if record.exists():
            present = json.loads(record.read_text())["run"]
            is_recorded = present in [_without_curve(row) for row in runs_of_task]
            if is_recorded and _greedy_return(present) >= _greedy_return(best):
                continue
        _export(best, _folder(best, runs), record)
        yield task


def _folder(row: Row, runs: Path) -> Path:
    """Return the folder in which the policy of a run is kept."""
    task: str = row["task"]
    return runs / task.replace("/", "-") / f"ours-catalog-{row['seed']}"


def _env_of(task: str) -> Registered:
    """Return the environment of a task of the zoo, which has an id."""
    make = TASKS[task].make
    assert isinstance(make, Registered)
    return make


def _greedy_return(row: Row) -> float:
    value: float = row["greedy_return"]
    return value


def _without_curve(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "curve"}


def _export(row: Row, policy: Path, record: Path) -> None:
    """Export the policy of a run, and write its record beside it.

    Args:
        row: The record of the run.
        policy: Folder of the policy.
        record: The file for the record.
    """
    record.parent.mkdir(exist_ok=True)
    file = record.with_suffix(".onnx")
    rlcatalog.load(policy).export(file)
    facts = {**_played(file, _env_of(row["task"])), "run": _without_curve(row)}
    record.write_text(json.dumps(facts, indent=1) + "\n")


def _played(file: Path, make: Registered) -> Row:
    """Return the environment, and the means of the returns with half the widths of their 95 %
    intervals.
    """
    figures = {}
    for name, explore in (("return", False), ("sampled_return", True)):
        returns = play(rlcatalog.Actor(file, seed=SEED), make, EPISODES, seed=SEED, explore=explore)  # type: ignore[arg-type]
        figures[name] = (round(fmean(returns), 4), round(1.96 * stdev(returns) / EPISODES**0.5, 4))
    return {
        "env": make.name,
        "modules": make.modules,
        "episodes": EPISODES,
        "seed": SEED,
        **figures,
    }
