"""`python -m benchmarks.peers`: rlcatalog and other libraries on the same work;
`--help` says how.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import page
from benchmarks.peers import report, work

#: Where `make peers` puts requirements/peers.txt, which only tianshou's process sees.
BESIDE = report.ROOT / ".venv" / "peers"
#: Where `make environments ENVIRONMENTS_ARGS="--group envpool"` puts EnvPool.
POOL = report.ROOT / ".venv-environments" / "envpool" / "lib"


class Worker:
    """A process with one library.

    Attributes:
        versions: Versions of the library's packages.
        memory: Its peak in bytes after acting once.
        missing: Why the library cannot be imported, or None.

    Raises:
        RuntimeError: The process ended, or the library failed; the message holds what it printed.
    """

    def __init__(self, library: str, beside: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.peers.worker", library]
        folders = [str(folder) for folder in POOL.glob("python*/site-packages")]
        if library == "tianshou":
            folders.append(str(beside))
        self.library, self._log = library, tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self._process = subprocess.Popen(
            [*command, *folders],
            cwd=report.ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "OMP_NUM_THREADS": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"},
        )
        first = self._read()
        self.missing: str | None = first.get("missing")
        self.versions: dict[str, str] = first.get("versions", {})
        self.memory: float = first.get("memory", 0.0)

    def prepare(self, name: str) -> bool:
        """Prepare some work; return whether the library has such a thing."""
        able: bool = self.ask(name)["able"]
        return able

    def seconds(self) -> float:
        """Return the seconds per unit of what was prepared."""
        seconds: float = self.ask("measure")["seconds"]
        return seconds

    def ask(self, line: str) -> dict[str, Any]:
        """Return the answer to a line."""
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = (
            json.loads(line) if line else {"error": f"ended with {self._process.wait()}"}
        )
        if "error" in answer:
            self._log.seek(0)
            raise RuntimeError(f"{self.library}: {answer['error']}\n{self._log.read()[-2000:]}")
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
        self._log.close()


@contextmanager
def workers(libraries: Sequence[str], beside: Path) -> Iterator[list[Worker]]:
    """Start a process for each library that is installed; say which are not."""
    started: list[Worker] = []
    try:
        for library in libraries:
            started.append(Worker(library, beside))
            if started[-1].missing:
                print(
                    f"{work.LIBRARIES[library]} is left out: {started[-1].missing}",
                    file=sys.stderr,
                    flush=True,
                )
        yield [worker for worker in started if not worker.missing]
    finally:
        for worker in started:
            worker.close()


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure each row in rounds, all libraries in turn within a round, and print the rows as they
    come.
    """
    libraries = [
        "ours",
        *(library for library in work.LIBRARIES if library in chosen.library and library != "ours"),
    ]
    versions = {"python": platform.python_version()} | {
        name: version(name) for name in ("torch", "numpy", "gymnasium")
    }
    stored: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "rounds": chosen.rounds,
        "rows": {},
    }
    with workers(libraries, chosen.beside) as running:
        stored["libraries"] = [worker.library for worker in running]
        for name in chosen.work:
            if name == "memory":
                rounds: dict[str, Any] = {worker.library: [worker.memory] for worker in running}
            else:
                rounds = timed(running, name, chosen.rounds)
            stored["rows"][name] = report.entry(rounds)
            lines = report.table(stored, [name]).splitlines()
            print(*lines[0 if len(stored["rows"]) == 1 else -1 :], sep="\n", flush=True)
        for worker in running:
            versions |= worker.versions
    return stored | {"machine": page.machine(), "versions": versions}


def timed(running: Sequence[Worker], name: str, rounds: int) -> dict[str, list[float] | None]:
    """Return library → seconds, round by round; each round begins with another library."""
    able = [worker for worker in running if worker.prepare(name)]
    kept: dict[str, list[float]] = {worker.library: [] for worker in able}
    for turn in range(rounds):
        first = turn % len(able)
        for worker in able[first:] + able[:first]:
            kept[worker.library].append(worker.seconds())
    return {worker.library: kept.get(worker.library) for worker in running}


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description="Measure rlcatalog and other libraries on the same work, each in its own"
        " process, in alternating rounds. Prints rlcatalog's figures and the other libraries'"
        " times relative to them.",
    )
    parser.add_argument(
        "--rounds", type=int, default=7, metavar="N", help="measurements of each cell [default: 7]"
    )
    parser.add_argument(
        "--library", action="append", choices=list(work.LIBRARIES), help="only this one; repeatable"
    )
    parser.add_argument(
        "--work",
        action="append",
        choices=list(work.ALL_WORK),
        help="only this row; repeatable; those"
        ' with EnvPool need `make environments ENVIRONMENTS_ARGS="--group envpool"` first',
    )
    parser.add_argument(
        "--save", action="store_true", help="store the figures; write docs/speed.md and README.md"
    )
    parser.add_argument(
        "--report", action="store_true", help="measure nothing; write the pages from stored figures"
    )
    parser.add_argument(
        "--beside",
        type=Path,
        default=BESIDE,
        metavar="FOLDER",
        help="where requirements/peers.txt is installed [default: .venv/peers]",
    )
    chosen = parser.parse_args(given)
    if chosen.save and (chosen.library or chosen.work or chosen.report):
        parser.error("--save stores the whole table: it goes with no --library, --work or --report")
    if chosen.rounds < 1:
        parser.error("--rounds must be at least 1")
    chosen.library, chosen.work = (
        chosen.library or list(work.LIBRARIES),
        chosen.work or list(work.WORK),
    )
    return chosen


def main(given: Sequence[str] | None = None) -> int:
    """Measure, or only write the pages."""
    chosen = arguments(given)
    if chosen.report:
        report.write(json.loads(report.STORED.read_text(encoding="utf-8")))
        return 0
    stored = measure(chosen)
    print(f"\n{report.faster(stored, chosen.work)}")
    if chosen.save:
        report.STORED.write_text(
            json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        report.write(stored)
        print(f"\nstored in {report.STORED.name}, docs/speed.md and README.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
