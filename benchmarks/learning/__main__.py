"""`python -m benchmarks.learning`: train what is missing of the comparison, and write its page."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.learning.engines import NETS, SETTINGS, train
from benchmarks.learning.tasks import TASKS

#: A line for each run.
RESULTS = Path(__file__).with_name("results.jsonl")
#: Points of a curve that are kept.
POINTS = 60


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__)
    parser.add_argument("--task", action="append", choices=list(TASKS), help="only this one; repeatable")
    parser.add_argument("--engine", action="append", choices=list(NETS), help="only this one; repeatable")
    parser.add_argument("--seeds", type=int, help="so many seeds of each task, instead of its own number")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--unclaimed", action="store_true", help="also the tasks without a claim, which take longest")
    parser.add_argument("--report", action="store_true", help="train nothing; write the page")
    parser.add_argument("--one", nargs=4, metavar=("ENGINE", "TASK", "NET", "SEED"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        engine, task, net, seed = given.one
        began = time.process_time()
        score, curve = train(engine, task, net, int(seed))
        kept = curve[:: -(-len(curve) // POINTS)] if curve else []
        print(json.dumps({**_key(engine, task, net, int(seed)), "return": round(score, 3),
                          "curve": [(steps, round(mean, 3)) for steps, mean in kept],
                          "seconds": round(time.process_time() - began, 1)}))  # fmt: skip
        return
    if not given.report:
        missing = [run for run in _wanted(given) if _key(*run) not in [_known(row) for row in _rows()]]
        print(f"{len(missing)} runs")
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(_run, missing))
    from benchmarks.learning.report import write

    # What was trained with other settings stays in the file, and is not shown.
    write([row for row in _rows() if _known(row) == _key(*(row[name] for name in ("engine", "task", "net", "seed")))])


def _wanted(given: argparse.Namespace) -> Iterator[tuple[str, str, str, int]]:
    """All runs, seed by seed, so that what is cut off is a comparison of fewer seeds."""
    tasks = [name for name in given.task or TASKS if given.task or given.unclaimed or TASKS[name].claimed]
    pairs = [(engine, name) for name in tasks for engine in given.engine or NETS]
    many = {(engine, name): given.seeds or TASKS[name].seeds_of(engine) for engine, name in pairs}
    for seed in range(max(many.values())):
        for engine, name in pairs:
            if seed < many[engine, name]:
                yield from ((engine, name, net, seed) for net in NETS[engine])


def _key(engine: str, task: str, net: str, seed: int) -> dict[str, Any]:
    """Return what tells runs apart; another number of steps or other settings are another run."""
    settings = {**SETTINGS, **TASKS[task].settings, "steps": TASKS[task].steps_of(engine)}
    return {"engine": engine, "task": task, "net": net, "seed": seed, "settings": settings}


def _known(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("engine", "task", "net", "seed", "settings")}


def _rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def _run(run: tuple[str, str, str, int]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.learning", "--one", *map(str, run)], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        print(f"{run} failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return
    line = done.stdout.strip().splitlines()[-1]
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    row = json.loads(line)
    print(*run, row["return"], f"{row['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
