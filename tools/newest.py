"""Tests with the newest versions that pip finds: `make newest`.

The other tests run with the versions that `requirements/` pins. Here pip chooses without pins, as
it does for a user:

1. Each extra is resolved for an empty environment. pip only says what it would install.
2. All packages are installed into an empty environment with the newest gymnasium. Ray, which asks
   for an older one, comes without its dependencies. The README, the pages, the examples and the
   tests of all packages run there.
3. `rllib` is installed into another environment, as pip resolves it, with the gymnasium that Ray
   asks for. RLlib's tests run there.

In the end, the failures are listed by package. `--save` writes them into docs/development.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import generated
import lowest
import update

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/development.md"
FOLDER = ROOT / ".venv-newest"
#: What the table of versions shows.
SHOWN = ("torch", "tensorflow", "gymnasium", "numpy", "ray", "stable-baselines3", "onnxruntime")
#: Extras whose packages need a version of gymnasium that is not the newest.
WITH_RAY = ("rllib", "all")
#: Extras that bring TensorBoard, which the tests of other packages must not have.
WITH_TENSORBOARD = ("rsl_rl", "skrl")
#: What the tests need beside the packages.
TOOLS = lowest.tools("demo", "torch", "dev")
#: Left out: long runs, and wheels, which `make dist` installs.
MARKS = "not learn and not slow and not packaging"
#: Tests of the repository itself, such as those that read the pinned versions.
OF_REPOSITORY = (
    "tests/tools",
    "tests/packaging",
    "tests/learning",
    "tests/frameworks/test_triton.py",
)


@dataclass(frozen=True)
class Suite:
    """Tests that ran in one environment.

    Attributes:
        name: The environment's name.
        passed: Number of tests that passed.
        failures: Names of the tests that did not, as `path::test`.
    """

    name: str
    passed: int
    failures: tuple[str, ...]

    def by_package(self) -> dict[str, int]:
        """Return package folder → number of failures."""
        return dict(Counter(package_of(name) for name in self.failures))


def package_of(test: str) -> str:
    """Return the folder of the package that a test belongs to, or `tests/NAME`."""
    parts = test.split("/")
    depth = 1 if parts[0] == "catalog" else 2
    return "/".join(parts[:depth])


def extras() -> list[str]:
    """Return the extras of a clone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["optional-dependencies"])


def resolutions(python: Path) -> dict[str, dict[str, str] | None]:
    """Return extra → the versions that pip would install for it, None where there are none."""
    versions: dict[str, dict[str, str] | None] = {}
    for extra in extras():
        try:
            versions[extra] = update.resolve(
                [f"{ROOT}[{extra}]"], "--no-build-isolation", python=python
            )
        except SystemExit:
            versions[extra] = None
    return versions


def make_environment(folder: Path, interpreter: str) -> Path:
    """Make an empty environment with what builds the packages, and return its Python."""
    subprocess.run([interpreter, "-m", "venv", "--clear", folder], check=True)
    python = folder / "bin/python"
    # Older versions of pip take very long to find versions that fit one another.
    install(python, "--upgrade", "pip", "-r", str(ROOT / "requirements/build.txt"))
    return python


def install(python: Path, *arguments: str) -> None:
    """Install into an environment."""
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *arguments], check=True)


def install_extras(python: Path, wanted: Sequence[str]) -> None:
    """Install extras and what the tests need into an environment."""
    print(f"Installing {', '.join(wanted)} …", flush=True)
    install(python, "--no-build-isolation", f"{ROOT}[{','.join(wanted)}]", *TOOLS)


def install_rest(python: Path) -> None:
    """Install what only the extra `all` brings; Ray and its package without their dependencies."""
    install(python, "--no-build-isolation", "drawsvg", f"{ROOT}/plugins/compat")
    alone = [f"{ROOT}/plugins/rllib", *update.pins("without_dependencies")]
    install(python, "--no-build-isolation", "--no-deps", *alone)


def version_of(python: Path) -> str:
    """Return the version of a Python."""
    command = [python, "-c", "import platform; print(platform.python_version())"]
    return subprocess.check_output(command, text=True).strip()


def run_tests(name: str, python: Path, paths: Sequence[str]) -> Suite:
    """Run tests in an environment, and return what passed and what failed."""
    report = FOLDER / f"{name}.xml"
    command = [python, "-m", "pytest", "-m", MARKS, "-n", "2", "--dist", "loadfile", "-q"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command += [f"--junitxml={report}", "-o", "junit_family=xunit1", *paths]
    subprocess.run(command, cwd=ROOT, env=environ, check=False)
    return read_report(name, report)


def read_report(name: str, report: Path) -> Suite:
    """Return what a report of pytest says."""
    passed = 0
    failures = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failures.append(f"{case.get('file')}::{case.get('name')}")
        elif case.find("skipped") is None:
            passed += 1
    return Suite(name, passed, tuple(failures))


def version_table(versions: dict[str, dict[str, str] | None]) -> list[str]:
    """Return a Markdown table of the versions that each extra brings."""
    lines = [f"| extra | {' | '.join(SHOWN)} |", "|---" * (len(SHOWN) + 1) + "|"]
    for extra, found in versions.items():
        if found is None:
            lines.append(f"| `{extra}` | cannot be installed |" + " |" * (len(SHOWN) - 1))
            continue
        cells = [found.get(name, "") for name in SHOWN]
        lines.append(f"| `{extra}` | {' | '.join(cells)} |")
    return lines


def summary(suites: Sequence[Suite], python: str) -> list[str]:
    """Return sentences about what passed, and what broke by package.

    Args:
        suites: What ran.
        python: The version of Python.
    """
    today = datetime.date.today().isoformat()
    lines = []
    for suite in suites:
        broken = ", ".join(f"{name} {number}" for name, number in suite.by_package().items())
        lines.append(
            f"- {today}, Python {python}, {suite.name}: {suite.passed:,} tests"
            f" passed, {len(suite.failures)} failed{f' ({broken})' if broken else ''}."
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Resolve, install, test, and return 1 if something broke."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", action="store_true", help="write the result into the page")
    parser.add_argument("--python", default=sys.executable, help="the Python of the environments")
    options = parser.parse_args(arguments)

    newest = make_environment(FOLDER / "newest", options.python)
    versions = resolutions(newest)
    print("\n".join(version_table(versions)), flush=True)
    left_out = (*WITH_RAY, *WITH_TENSORBOARD)
    install_extras(newest, [extra for extra in extras() if extra not in left_out])
    install_rest(newest)
    ignored = [f"--ignore={path}" for path in OF_REPOSITORY]
    suites = [run_tests("all packages, Ray with the newest gymnasium", newest, ignored)]

    with_ray = make_environment(FOLDER / "rllib", options.python)
    install_extras(with_ray, ["rllib", "testing"])
    suites.append(run_tests("rlcatalog-rllib as pip resolves it", with_ray, ["plugins/rllib"]))
    text = "\n".join([*summary(suites, version_of(newest)), "", *version_table(versions)])
    print(text)
    for suite in suites:
        for failure in suite.failures:
            print(f"failed in {suite.name}: {failure}")
    if options.save:
        page = generated.fill(PAGE, PAGE.read_text(encoding="utf-8"), {"newest": text})
        PAGE.write_text(page, encoding="utf-8")
    return int(None in versions.values() or any(suite.failures for suite in suites))


if __name__ == "__main__":
    sys.exit(main())
