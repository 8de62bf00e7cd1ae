"""Mutation testing: `python tools/mutate.py builtin_dists/gaussian` changes a package's code a
little, many times over.

A mutant no test notices is a line no test holds. Each mutant is tried in a forked process that has
the heavy libraries loaded, on a copy of the tree, with the tests of the package that run its line,
fastest first. Of some packages folders of `tests/` count too. Mutants that cannot be told from the
original stand in `equivalent_mutants.toml`.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import dataclasses
import gc
import importlib
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mutation_child
from mutants import Mutant, mutants_of

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")

#: Loaded once, before any process is forked; none of ours. triton comes before TensorFlow (see
#: `before_tensorflow`).
PRELOADED = (
    "hypothesis",
    "numpy",
    "scipy.stats",
    "scipy.special",
    "scipy.integrate",
    "gymnasium",
    "torch",
    "triton",
    "tensorflow",
    "msgspec",
    "safetensors",
    "typer.testing",
    "rich.table",
)
#: Package → folders of `tests/` that test it through the other packages.
ELSEWHERE = {
    "catalog": ("frameworks", "masks", "memory", "models", "plugins", "seeds", "spaces"),
    "plugins/export": ("export",),
    "plugins/policy": ("masks", "memory", "models", "saving", "spaces"),
}
#: Files that declare what there is and what it is called; mutated when named one by one.
DECLARING = ("__init__.py", "plugin.py", "config.py", "cli.py")
#: Seconds of tests, by the time they took unchanged, that one mutant is given; faster tests go
#: first.
ENOUGH = 60.0
#: A mutant is stopped, and counts as killed, after this many seconds and four times the time the
#: tests should take.
PATIENCE = 30.0


@dataclasses.dataclass(frozen=True)
class Test:
    """A test that passes on the tree as it is: its name, its time, the lines it runs."""

    name: str
    seconds: float
    lines: dict[str, frozenset[int]]


@dataclasses.dataclass
class Running:
    """A process at work, when it has to be done, and what it works on."""

    work: Any
    begun: float
    deadline: float
    slot: Path


class Tree:
    """Copies of a tree's files to change, one for each process that runs at the same time.

    Args:
        root: The tree. Files git ignores are left out.
        scratch: Where the copies go.
        slots: How many.
    """

    def __init__(self, root: Path, scratch: Path, slots: int) -> None:
        self.root = root
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        )
        files = [
            Path(name) for name in listed.stdout.split("\0") if name and (root / name).is_file()
        ]
        self.slots = [scratch / f"tree{i}" for i in range(slots)]
        for slot in self.slots:
            for file in files:
                (slot / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / file, slot / file)
            compileall.compile_dir(slot, quiet=2)

    def package(self, path: Path) -> Path:
        """Return the folder, relative to the root, of the package a file or folder belongs to."""
        folder = self.slots[0] / path
        while not ((folder / "pyproject.toml").is_file() and (folder / "src").is_dir()):
            if folder == self.slots[0]:
                raise SystemExit(f"{path}: no package, nor a file or folder of one.")
            folder = folder.parent
        return folder.relative_to(self.slots[0])

    def sources(self, path: Path) -> Iterator[str]:
        """Yield the Python files of a package's code at or below a path."""
        start = self.slots[0] / path
        found = [start] if start.is_file() else sorted(start.rglob("*.py"))
        for file in found:
            name = file.relative_to(self.slots[0]).as_posix()
            if "/src/" in name and (start.is_file() or file.name not in DECLARING):
                yield name

    def tests(self, package: Path) -> list[str]:
        """Return the test files of a package."""
        elsewhere = ELSEWHERE.get(package.as_posix(), ())
        folders = [package / "tests", *(Path("tests") / name for name in elsewhere)]
        slot = self.slots[0]
        return [
            f.relative_to(slot).as_posix()
            for at in folders
            for f in sorted((slot / at).glob("test_*.py"))
        ]


class Workers:
    """Processes side by side, one in each copy of the tree.

    Args:
        tree: The copies.
    """

    def __init__(self, tree: Tree) -> None:
        self._free = list(tree.slots)
        self._running: dict[int, Running] = {}

    def run(
        self, jobs: Iterator[tuple[Any, Any, float]]
    ) -> Iterator[tuple[Any, Path, int | None, float]]:
        """Yield for each job (work, what does it in a slot, seconds it may take): work, slot,
        status and seconds.

        The status is None when time ran out.
        """
        jobs = iter(jobs)
        more = True
        while more or self._running:
            while more and self._free:
                job = next(jobs, None)
                if job is None:
                    more = False
                    break
                work, start, seconds = job
                slot = self._free.pop()
                begun = time.monotonic()
                self._running[start(slot)] = Running(work, begun, begun + seconds, slot)
            yield from self._done()

    def _done(self) -> Iterator[tuple[Any, Path, int | None, float]]:
        time.sleep(0.02)
        for pid, running in list(self._running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            late = not ended and time.monotonic() > running.deadline
            if ended or late:
                with contextlib.suppress(ProcessLookupError):  # what it started goes too
                    os.killpg(pid, signal.SIGKILL)
                if late:
                    os.waitpid(pid, 0)
                del self._running[pid]
                self._free.append(running.slot)
                code = None if late else os.waitstatus_to_exitcode(status)
                yield running.work, running.slot, code, time.monotonic() - running.begun


def collect(tree: Tree, files: list[str]) -> list[Test]:
    """Run test files on the unchanged tree and return the tests that pass.

    Raises:
        SystemExit: A test fails there, so a failure with a mutant would mean nothing.
    """

    def start(file: str) -> Any:
        def begin(slot: Path) -> int:
            report = slot.with_suffix(".seen")
            report.unlink(missing_ok=True)
            return mutation_child.fork(
                lambda: mutation_child.watch(slot, [file], report), slot.with_suffix(".out")
            )

        return begin

    tests, failing = [], []
    for file, slot, status, seconds in Workers(tree).run((f, start(f), 900.0) for f in files):
        report = slot.with_suffix(".seen")
        seen = json.loads(report.read_text()) if report.exists() else {}
        passed = {name: entry for name, entry in seen.items() if entry["outcome"] == "passed"}
        print(f"  {file}: {len(passed)} tests, {seconds:.0f} s", flush=True)
        if status not in (0, 5):  # 5: no test of the file runs here
            print(slot.with_suffix(".out").read_text()[-2000:])
            names = [name for name, entry in seen.items() if entry["outcome"] == "failed"]
            failing += names or [
                f"{file} ({'out of time' if status is None else f'status {status}'})"
            ]
        for name, entry in passed.items():
            lines = {path: frozenset(numbers) for path, numbers in entry["lines"].items()}
            tests.append(Test(name, entry["seconds"], lines))
    if failing:
        raise SystemExit(
            f"{len(failing)} tests fail before any mutation, so what fails with a mutant would say"
            " nothing. Mend them, or name others with --tests:\n  " + "\n  ".join(failing)
        )
    return tests


def choose(mutant: Mutant, tests: list[Test], package: Path, killers: Counter[str]) -> list[Test]:
    """Return the tests a mutant is given, in order.

    First those that run its statement, then those that run anything of its file: a value a fixture
    or a cache holds was made in another test. Tests of the package come before others, those that
    killed often before those that did not, fast ones before slow ones.
    """
    span = range(mutant.lines[0], mutant.lines[1] + 1) if mutant.lines else None
    ranked = []
    for test in tests:
        lines = test.lines.get(mutant.path, frozenset())
        if lines or span is None:  # what a class or a module holds may matter to who never runs it
            near = bool(lines) if span is None else any(line in lines for line in span)
            own = test.name.startswith(f"{package.as_posix()}/")
            ranked.append(
                (
                    not near,
                    not own,
                    -min(killers[test.name], 3),
                    round(test.seconds, 1),
                    test.name,
                    test,
                )
            )
    chosen, total = [], 0.0
    for *_, test in sorted(ranked, key=lambda r: r[:-1]):
        if total + test.seconds <= ENOUGH or not chosen:
            chosen.append(test)
            total += test.seconds
    return chosen


def sample(mutants: list[Mutant], number: int, seed: int) -> list[Mutant]:
    """Return so many of the mutants, evenly over the files (0: all), always the same
    for one seed.
    """
    if not number or number >= len(mutants):
        return mutants
    dice = random.Random(seed)
    queues: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        queues.setdefault(mutant.path, []).append(mutant)
    for queue in queues.values():
        dice.shuffle(queue)
    # Each file gives at least two, the rest by size; where there are too many files for that,
    # chance says which.
    taken = [queue.pop() for queue in queues.values() for _ in range(min(2, len(queue)))]
    taken = dice.sample(taken, number) if len(taken) > number else taken
    rest = [mutant for queue in queues.values() for mutant in queue]
    taken += dice.sample(rest, number - len(taken))
    return sorted(taken, key=lambda m: (m.path, m.begin, m.text))


def equivalents() -> list[dict[str, str]]:
    """Return the reviewed mutants that change nothing that matters; each entry says why."""
    found: list[dict[str, str]] = (
        tomllib.loads(EQUIVALENT.read_text())["mutant"] if EQUIVALENT.exists() else []
    )
    return found


def why_equivalent(mutant: Mutant, entries: list[dict[str, str]]) -> str | None:
    """Return why a mutant can be told from the original by no test, or None.

    An entry holds for the mutants that agree in all it says: `path` and `inside` as they are,
    `source` a part of the line, `change` as it is.
    """
    for entry in entries:
        same = all(
            entry.get(name, getattr(mutant, name)) == getattr(mutant, name)
            for name in ("path", "inside", "change")
        )
        if same and entry.get("source", "") in mutant.source:
            return entry["why"]
    return None


def _key(mutant: Mutant) -> tuple[str, str, str, str]:
    return mutant.path, mutant.inside, mutant.source, mutant.change


def try_mutants(
    tree: Tree, package: Path, mutants: list[Mutant], tests: list[Test], deadline: float
) -> Iterator[tuple[Mutant, str, str, float]]:
    """Yield each mutant with what became of it, the test that killed it (or what was printed) and
    the seconds taken.
    """
    killers: Counter[str] = Counter()
    sources = {m.path: (tree.slots[0] / m.path).read_text() for m in mutants}

    def start(mutant: Mutant, chosen: list[Test]) -> Any:
        def begin(slot: Path) -> int:
            file, verdict = slot / mutant.path, slot.with_suffix(".verdict")
            verdict.unlink(missing_ok=True)
            Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)
            file.write_text(mutant.apply(sources[mutant.path]))
            module = mutant.path.partition("/src/")[2].partition("/")[0]
            names = [test.name for test in chosen]
            return mutation_child.fork(
                lambda: mutation_child.judge(slot, module, names, verdict), slot.with_suffix(".out")
            )

        return begin

    untried: list[tuple[Mutant, str]] = []

    def jobs() -> Iterator[tuple[Mutant, Any, float]]:
        for mutant in mutants:
            chosen = choose(mutant, tests, package, killers)
            if not chosen:
                untried.append((mutant, "uncovered"))
            elif time.monotonic() > deadline:
                untried.append((mutant, "out of time"))
            else:
                yield (
                    mutant,
                    start(mutant, chosen),
                    PATIENCE + 4 * sum(test.seconds for test in chosen),
                )

    for mutant, slot, status, seconds in Workers(tree).run(jobs()):
        (slot / mutant.path).write_text(sources[mutant.path])
        verdict = slot.with_suffix(".verdict")
        killer = verdict.read_text() if verdict.exists() else ""
        killers[killer] += 1
        if status == 0:
            yield mutant, "survived", "", seconds
        elif status in (3, 5):
            yield mutant, "broken", slot.with_suffix(".out").read_text()[-2000:], seconds
        else:
            yield (
                mutant,
                "timeout" if status is None else "killed",
                killer or f"status {status}",
                seconds,
            )
    for mutant, what in untried:
        yield mutant, what, "", 0.0


def main() -> int:
    """Read the arguments, try the mutants, print what survived and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "paths", nargs="+", help="package folders, or files and folders of their code"
    )
    parser.add_argument(
        "--n", type=int, default=100, help="mutants per package; 0: all (default: 100)"
    )
    parser.add_argument("--seed", type=int, default=0, help="chooses the sample (default: 0)")
    parser.add_argument(
        "--tree", type=Path, default=ROOT, help="another checkout to change and test"
    )
    parser.add_argument(
        "--minutes", type=float, default=29, help="stop after that long (default: 29)"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes side by side"
    )
    parser.add_argument("--tests", nargs="+", help="test files to use, not all of the package's")
    earlier = parser.add_mutually_exclusive_group()
    earlier.add_argument(
        "--again", type=Path, help="only what survived in this report of an earlier run"
    )
    earlier.add_argument(
        "--same", type=Path, help="the mutants of this report again, whatever became of them"
    )
    parser.add_argument(
        "--report", type=Path, help="write what became of each mutant there, as JSON"
    )
    asked = parser.parse_args()
    deadline = time.monotonic() + 60 * asked.minutes
    os.environ.update(OMP_NUM_THREADS="1", TF_CPP_MIN_LOG_LEVEL="3", TF_NUM_INTRAOP_THREADS="1")
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        tree = Tree(asked.tree.resolve(), Path(scratch).resolve(), asked.jobs)
        packages: dict[Path, list[str]] = {}
        for path in asked.paths:
            packages.setdefault(tree.package(Path(path)), []).extend(tree.sources(Path(path)))
        _preload()
        rows, entries = [], []
        for package, files in packages.items():
            row, found = _package(tree, package, sorted(set(files)), asked, deadline)
            rows.append(row)
            entries += found
    if asked.report:
        asked.report.write_text(json.dumps(entries, indent=1, ensure_ascii=False))
    print(
        "\n| package | mutants | killed | of them timeouts | survived | equivalent | uncovered |"
        " rate |"
    )
    print("|---|---|---|---|---|---|---|---|")
    print(*rows, sep="\n")
    return int(any(entry["became"] in ("survived", "uncovered", "broken") for entry in entries))


def _preload() -> None:
    """Import what every child needs, without the notices."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    os.dup2(kept, 2)
    gc.collect()
    # Pytest collects garbage several times, and each would look through all of TensorFlow.
    gc.freeze()


def _package(
    tree: Tree, package: Path, files: list[str], asked: argparse.Namespace, deadline: float
) -> tuple[str, list[dict[str, Any]]]:
    """Try the mutants of one package; return its line of the table and the entries of
    the report.
    """
    known = equivalents()
    every = [m for file in files for m in mutants_of(file, (tree.slots[0] / file).read_text())]
    chosen = sample(every, asked.n, asked.seed)
    if report := asked.again or asked.same:
        left = {
            (e["path"], e["inside"], e["source"], e["change"])
            for e in json.loads(report.read_text())
            if e["path"] in files
            and (asked.same or e["became"] not in ("killed", "timeout", "equivalent"))
        }
        chosen = [m for m in every if _key(m) in left]
        print(f"{package}: {len(left) - len(chosen)} mutants of {report} are not in this code")
    print(f"{package}: {len(chosen)} of {len(every)} mutants of {len(files)} files", flush=True)
    reasons = {_key(m): why for m in chosen if (why := why_equivalent(m, known)) is not None}
    same = [m for m in chosen if _key(m) in reasons]
    trying = [m for m in chosen if _key(m) not in reasons]
    tests = collect(tree, asked.tests or tree.tests(package)) if trying else []
    counts = Counter({"equivalent": len(same)})
    entries = [
        {**dataclasses.asdict(m), "became": "equivalent", "by": reasons[_key(m)], "seconds": 0.0}
        for m in same
    ]
    for mutant, became, by, seconds in try_mutants(tree, package, trying, tests, deadline):
        counts[became] += 1
        entries.append(
            {**dataclasses.asdict(mutant), "became": became, "by": by, "seconds": round(seconds, 1)}
        )
        if became not in ("killed", "timeout"):
            print(
                f"  {became}: {mutant.path}:{mutant.line} {mutant.inside}: {mutant.change}\n"
                f"    {by}",
                flush=True,
            )
    killed = counts["killed"] + counts["timeout"]
    tried = killed + counts["survived"] + counts["uncovered"] + counts["broken"]
    if counts["out of time"]:
        print(f"  {counts['out of time']} mutants were not tried: out of time")
    rate = f"{100 * killed / tried:.1f} %" if tried else "-"
    cells = [
        package,
        len(chosen),
        killed,
        counts["timeout"],
        counts["survived"],
        len(same),
        counts["uncovered"],
        rate,
    ]
    return "| " + " | ".join(map(str, cells)) + " |", entries


if __name__ == "__main__":
    sys.exit(main())
