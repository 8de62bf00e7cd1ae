"""`python -m benchmarks.learning`: train what is missing of the comparison, and write its page and
the zoo.

Each finished run is a line of results.jsonl. Stop it at any time; the same command goes on with
what is missing.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.learning.records import Records
from benchmarks.learning.task import DEFAULTS, NETS, OWN_NETS, used_by
from benchmarks.learning.tasks import TASKS

ROOT = Path(__file__).resolve().parents[2]
#: Claims, and the policies that rlcatalog-ppo trained.
RUNS = ROOT / "runs" / "learning"
RECORDS = Records(Path(__file__).with_name("results.jsonl"), RUNS / "claims")
#: Where `make compare` puts requirements/compare.txt.
BESIDE = ROOT / ".venv" / "compare"
#: Points of a curve that are kept.
POINTS = 60
#: Packages whose versions a record holds, where they are installed.
PACKAGES = (
    "rlcatalog",
    "torch",
    "numpy",
    "gymnasium",
    "stable-baselines3",
    "sb3-contrib",
    "ray",
    "mujoco",
    "minigrid",
    "MinAtar",
    "popgym",
    "Box2D",
)
#: How a process says that another one has its run.
TAKEN = 3
#: Exit status after Ctrl-C.
INTERRUPTED = 130

Run = tuple[str, str, str, int]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__)
    parser.add_argument(
        "--task", action="append", choices=list(TASKS), help="only this one; repeatable"
    )
    parser.add_argument(
        "--engine", action="append", choices=list(NETS), help="only this one; repeatable"
    )
    parser.add_argument(
        "--seeds", type=int, help="so many seeds of each task, instead of its own number"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side [default: 2]")
    parser.add_argument(
        "--unclaimed",
        action="store_true",
        help="also the tasks without a claim, which take longest",
    )
    parser.add_argument("--list", action="store_true", help="train nothing; print what is missing")
    parser.add_argument(
        "--report", action="store_true", help="train nothing; write the page and the zoo"
    )
    parser.add_argument(
        "--try",
        type=int,
        dest="trial",
        metavar="STEPS",
        help="train each run of seed 0 for so many steps and keep nothing: does it work here?",
    )
    parser.add_argument(
        "--one", nargs=4, metavar=("ENGINE", "TASK", "NET", "SEED"), help=argparse.SUPPRESS
    )
    given = parser.parse_args()
    sys.path.append(str(BESIDE))
    if given.one:
        engine, task, net, seed = given.one
        return _train((engine, task, net, int(seed)), given.trial)
    if given.report:
        failed = 0
    else:
        os.nice(19)
        failed = _train_missing(given)
    if given.list or given.trial or failed == INTERRUPTED:
        return failed
    from benchmarks.learning import report, zoo

    # What was trained with other settings stays in the file, and is not shown.
    rows = [row for row in RECORDS.read() if key_in(row) == key_of(*(row[name] for name in NAMED))]
    for task in zoo.write(rows, RUNS):
        print(f"The zoo has a new policy of {task}.")
    report.write(rows)
    return failed


# --- which runs -----------------------------------------------------------------------------------


def wanted(given: argparse.Namespace) -> Iterator[Run]:
    """Yield all runs, seed by seed and short tasks first.

    If the runs are stopped early, fewer seeds are compared, but of all tasks.
    """
    tasks = [
        name for name in given.task or TASKS if given.task or given.unclaimed or TASKS[name].claimed
    ]
    runs = []
    for name in tasks:
        task = TASKS[name]
        for engine, nets in task.nets.items():
            if given.engine and engine not in given.engine:
                continue
            for seed in range(given.seeds or task.seeds_of(engine)):
                runs += [(seed, task.cost, (engine, name, net, seed)) for net in nets]
    yield from (run for *_, run in sorted(runs, key=lambda entry: entry[:2]))


NAMED = ("engine", "task", "net", "seed")


def key_of(engine: str, task: str, net: str, seed: int) -> dict[str, Any]:
    """Return what tells runs apart.

    Another number of steps, other settings of this net, or other defaults of the catalog are
    another run.
    """
    settings = None
    if task in TASKS:
        about = TASKS[task]
        settings = {**used_by(net, about.given), "steps": about.steps_of(engine)}
        if net not in OWN_NETS and not about.kept_defaults:
            settings["defaults"] = DEFAULTS
    return {"engine": engine, "task": task, "net": net, "seed": seed, "settings": settings}


def key_in(row: dict[str, Any]) -> dict[str, Any]:
    """Return the key of a record's run."""
    return {**{name: row[name] for name in NAMED}, "settings": used_by(row["net"], row["settings"])}


def missing(given: argparse.Namespace) -> list[Run]:
    """Return the runs without a record whose environments are installed; say which are not."""
    done = [key_in(row) for row in RECORDS.read()]
    runs = [run for run in wanted(given) if key_of(*run) not in done]
    lacking = {
        name
        for _, task, _, _ in runs
        for name in TASKS[task].needs
        if importlib.util.find_spec(name) is None
    }
    if lacking:
        print(
            f"Not installed: {', '.join(sorted(lacking))}. Their tasks are left out; make compare"
            f" installs them, or pip install --no-deps --target {BESIDE} -r"
            " requirements/compare.txt",
            file=sys.stderr,
        )
    return [run for run in runs if not lacking & set(TASKS[run[1]].needs)]


def _costs() -> dict[tuple[str, ...], float]:
    """Return the mean CPU seconds of the kept runs, by engine, task and net."""
    seconds: dict[tuple[str, ...], list[float]] = {}
    for row in RECORDS.read():
        seconds.setdefault((row["engine"], row["task"], row["net"]), []).append(row["seconds"])
    return {side: sum(many) / len(many) for side, many in seconds.items()}


def _hours(runs: list[Run]) -> float:
    costs = _costs()
    return sum(costs.get(run[:3], TASKS[run[1]].cost) for run in runs) / 3600


# --- training them --------------------------------------------------------------------------------


def _train_missing(given: argparse.Namespace) -> int:
    """Train what is missing, each run in a process of its own; return 1 if one failed."""
    runs = [run for run in wanted(given) if run[3] == 0] if given.trial else missing(given)
    print(f"{len(runs)} runs, about {_hours(runs):.1f} CPU hours", flush=True)
    if given.list:
        for run in runs:
            print(*run)
        return 0
    group = os.getpgid(0)
    print(f"Pause with kill -STOP -- -{group}, go on with kill -CONT -- -{group}.", flush=True)
    left, failed, stopped = list(runs), 0, False

    def do(run: Run) -> None:
        nonlocal failed
        options = ["--try", str(given.trial)] if given.trial else []
        command = [sys.executable, "-m", "benchmarks.learning", *options, "--one", *map(str, run)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        left.remove(run)
        if stopped:
            return
        if done.returncode == TAKEN:
            print(*run, "is trained by another process", flush=True)
        elif done.returncode:
            failed = 1
            print(
                f"{run} failed: {done.stderr.strip().splitlines()[-1:]}",
                file=sys.stderr,
                flush=True,
            )
        else:
            row = json.loads(done.stdout.strip().splitlines()[-1])
            print(
                *run,
                f"return {row['return']}, {row['seconds']} CPU s; {len(left)} runs left, about"
                f" {_hours(left):.1f} CPU hours",
                flush=True,
            )

    pool = ThreadPoolExecutor(given.jobs)
    try:
        list(pool.map(do, runs))
    except KeyboardInterrupt:
        stopped = True
        print("Interrupted. Finished runs are kept; the same command goes on.", file=sys.stderr)
    finally:
        pool.shutdown(cancel_futures=True)
    return INTERRUPTED if stopped else failed


def _train(run: Run, trial: int | None) -> int:
    """Train one run in this process and keep its record, unless it is a trial; print it."""
    import benchmarks.learning.engine as engine
    from benchmarks.learning.engines import train

    if trial:
        engine.EPISODES = 2
        TASKS[run[1]].steps.update(dict.fromkeys(NETS, trial))
        print(json.dumps(_measured(run, train(*run))))
        return 0
    key = key_of(*run)
    with RECORDS.claim(key) as mine:
        if not mine or key in [key_in(row) for row in RECORDS.read()]:
            return TAKEN
        folder = RUNS / run[1].replace("/", "-") / f"{run[0]}-{run[2]}-{run[3]}"
        record = _measured(run, train(*run, keep=folder))
        RECORDS.append(record)
    print(json.dumps(record))
    return 0


def _measured(run: Run, result: dict[str, Any]) -> dict[str, Any]:
    curve = result["curve"]
    kept = curve[:: -(-len(curve) // POINTS)] if curve else []
    numbers = {
        name: round(result[name], 3) for name in ("return", "greedy_return", "train_seconds")
    }
    return {
        **key_of(*run),
        **numbers,
        "curve": [(steps, round(mean, 3)) for steps, mean in kept],
        "seconds": round(time.process_time(), 1),
        "parameters": result["parameters"],
        "versions": _versions(),
        "commit": _commit(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _versions() -> dict[str, str]:
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _commit() -> str | None:
    """Return the commit of the checkout, or None outside of one."""
    done = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or None


if __name__ == "__main__":
    sys.exit(main())
