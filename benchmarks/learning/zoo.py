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
from benchmarks.learning.published_tasks import PUBLISHED
from rlcatalog_ppo.commands import ZOO
from rlcatalog_runs.evaluation import play

#: Episodes that a policy plays for its record, and the seed of their environments: those of
#: `rlcatalog evaluate`.
EPISODES, SEED = 100, 10_000

Row = dict[str, Any]


def write(rows: Sequence[Row], runs: Path, zoo: Path = ZOO) -> Iterator[str]:
    """Export each task's best kept policy with the default net, unless the zoo has a better one,
    and yield the tasks.

    Args:
        rows: Records of runs.
        runs: Folder of the kept policies, `TASK/ours-catalog-SEED`.
        zoo: Folder of the zoo.
    """
    for task, about in PUBLISHED.items():
        if not isinstance(about.make, Registered):
            continue  # an environment of ours has no id to name it by
        wanted = [
            row
            for row in rows
            if (row["engine"], row["task"], row["net"]) == ("ours", task, "catalog")
        ]
        folders = {
            row["seed"]: runs / task.replace("/", "-") / f"ours-catalog-{row['seed']}"
            for row in wanted
        }
        kept = [row for row in wanted if folders[row["seed"]].is_dir()]
        if not kept:
            continue
        row = max(kept, key=lambda row: row["greedy_return"])
        file = zoo / f"{about.make.name.replace('/', '-')}.onnx"
        record = file.with_suffix(".json")
        if (
            record.exists()
            and json.loads(record.read_text())["run"]["greedy_return"] >= row["greedy_return"]
        ):
            continue
        zoo.mkdir(exist_ok=True)
        rlcatalog.load(folders[row["seed"]]).export(file)
        run = {key: part for key, part in row.items() if key != "curve"}
        record.write_text(json.dumps({**_played(file, about.make), "run": run}, indent=1) + "\n")
        yield task


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
