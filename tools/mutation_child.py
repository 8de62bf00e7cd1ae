"""What runs in a forked process of `tools/mutate.py`: pytest on a copy of the tree, on chosen
tests, watched or not.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

#: Tests nobody waits for here: they train for minutes, or install packages.
NOT_RUN = "not learn and (grid or not slow) and not packaging"


def fork(job: Callable[[], int], output: Path) -> int:
    """Start a process group that does a job and ends with the status it returns; return its id.

    Args:
        job: What is done.
        output: The file its output goes to.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 3
    try:
        os.setsid()
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        status = job()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(status)


def enter(tree: Path) -> None:
    """Make this process, and those it starts, import the packages of a tree, and its tests from the
    root.
    """
    sources = [str(p) for p in sorted([*tree.glob("*/src"), *tree.glob("*/*/src")])]
    sys.path[:0] = [str(tree), *sources]
    os.environ["PYTHONPATH"] = os.pathsep.join(sources)
    # Two mutants may be written within one second with the same length: bytecode would hide the
    # second.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.chdir(tree)


def watch(tree: Path, tests: Iterable[str], report: Path) -> int:
    """Run all tests of some files and write down for each how long it took and which lines of the
    tree it ran.
    """
    enter(tree)
    watcher = _Watcher(tree)
    status = _pytest(tree, tests, watcher)
    report.write_text(json.dumps(watcher.seen))
    return status


def judge(tree: Path, module: str, tests: list[str], verdict: Path) -> int:
    """Run tests in the order given up to the first that fails; write its name down.

    Args:
        tree: A tree that holds the mutant.
        module: Import name of the mutant's package, whose place is checked.
        tests: Node ids.
        verdict: Where the name of the test goes that failed.
    """
    enter(tree)
    spec = importlib.util.find_spec(module)
    if spec is None or not str(spec.origin).startswith(str(tree)):
        print(f"{module} is imported from {spec and spec.origin}, not from {tree}")
        return 3
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    return _pytest(tree, files, _Chosen(tests, verdict), "-x")


def _pytest(tree: Path, tests: Iterable[str], plugin: object, *options: str) -> int:
    arguments = [
        "-c",
        str(tree / "pyproject.toml"),
        f"--rootdir={tree}",
        "-p",
        "no:cacheprovider",
        "-q",
        "--tb=short",
    ]
    arguments.append("--assert=plain")  # what is loaded already cannot be rewritten
    arguments += [f"--basetemp={tree}.tmp", "-m", NOT_RUN, *options, *tests]
    return int(pytest.main(arguments, plugins=[plugin]))


class _Settings:
    """Hypothesis as a mutant needs it: no limit on time (the machine is busy), and no search for a
    smaller failure.
    """

    def pytest_collection(self) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutate", parent=settings.default, deadline=None, phases=phases)
        settings.load_profile("mutate")


class _Chosen(_Settings):
    """Keeps the tests asked for, in the order asked for.

    Args:
        tests: Node ids.
        verdict: Where the name of the test goes that failed.
    """

    def __init__(self, tests: list[str], verdict: Path) -> None:
        self._order = {test: i for i, test in enumerate(tests)}
        self._verdict = verdict

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(chosen, key=lambda item: self._order[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._verdict.exists():
            self._verdict.write_text(report.nodeid)


class _Watcher(_Settings):
    """Notes the lines of a tree's packages that each test runs, and how long it takes.

    Args:
        tree: Its root.
    """

    def __init__(self, tree: Path) -> None:
        self.seen: dict[str, dict[str, Any]] = {}
        self._tree = f"{tree}{os.sep}"
        self._names: dict[str, str | None] = {}
        self._lines: set[tuple[str, int]] = set()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, None, None]:
        self._lines = set()
        begin = time.perf_counter()
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        yield
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        lines: dict[str, list[int]] = {}
        for name, line in sorted(self._lines):
            lines.setdefault(name, []).append(line)
        entry = self.seen.setdefault(item.nodeid, {"outcome": "passed"})
        entry.update(seconds=time.perf_counter() - begin, lines=lines)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        entry = self.seen.setdefault(report.nodeid, {"outcome": "passed"})
        if report.failed or (report.skipped and entry["outcome"] != "failed"):
            entry["outcome"] = report.outcome

    def _enter(self, frame: Any, event: str, argument: Any) -> Any:
        """Trace the functions of the tree alone, bodies of modules and classes excepted."""
        code = frame.f_code
        file = code.co_filename
        if file not in self._names:
            inside = file.startswith(self._tree) and "/src/" in file
            self._names[file] = file.removeprefix(self._tree) if inside else None
        name = self._names[file]
        if name is None or code.co_name == "<module>":
            return None
        lines = self._lines

        def step(frame: Any, event: str, argument: Any) -> Any:
            lines.add((name, frame.f_lineno))
            return step

        return step
