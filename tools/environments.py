"""Tries environments of other packages with rlcatalog's defaults: `make environments`.

`tools/environments.toml` lists the environments in groups. For each group:

1. A virtual environment is made in `.venv-environments/`, with PyTorch, the packages of this
   repository in editable form, and what the group requires.
2. For each of its environments, `tools/environments_child.py` builds and explains a policy, trains
   it for 2,000 steps, saves, loads and exports it.
3. The tests that the group has run, such as those of a framework that nothing else needs.

The results are kept in `docs/environments.json`, from which the tables of `docs/environments.md`
are made. An environment that has a result is not tried again without `--again`, so an interrupted
run continues where it stopped.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import environments_page
import newest
import update

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tools/environments.toml"
CHILD = ROOT / "tools/environments_child.py"
FOLDER = ROOT / ".venv-environments"
#: Variables with which environments draw without a screen.
NO_SCREEN = {
    "MUJOCO_GL": "egl",
    "PYGLET_HEADLESS": "true",
    "SDL_AUDIODRIVER": "dummy",
    "SDL_VIDEODRIVER": "dummy",
}
#: An environment as the list has it, or its result.
Row = dict[str, Any]


class InstallError(Exception):
    """pip could not install a group's requirements; the message is its reason."""


class GroupTests(NamedTuple):
    """A file of tests that runs in a group's environment.

    Attributes:
        group: The group.
        file: The file, relative to the repository.
    """

    group: str
    file: str


def read_tests() -> list[GroupTests]:
    """Return the files of tests that the groups have."""
    data = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return [GroupTests(**entry) for entry in data["tests"]]


def read_list() -> tuple[dict[str, list[str]], list[Row]]:
    """Return group → requirements, and the environments; each has a name."""
    data = tomllib.loads(LIST.read_text(encoding="utf-8"))
    entries = [{"name": entry.get("id"), **entry} for entry in data["environments"]]
    return data["groups"], entries


def read_results() -> dict[str, Row]:
    """Return environment's name → kept result."""
    if not environments_page.DATA.exists():
        return {}
    rows = json.loads(environments_page.DATA.read_text(encoding="utf-8"))
    return {row["name"]: row for row in rows}


def write_results(entries: Sequence[Row], results: dict[str, Row]) -> None:
    """Keep the results of the listed environments, in the list's order."""
    rows = [results[entry["name"]] for entry in entries if entry["name"] in results]
    text = json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
    environments_page.DATA.write_text(text, encoding="utf-8")


def our_packages() -> list[str]:
    """Return the packages of this repository that an environment needs, as arguments of pip."""
    return [*update.locals_of("demo"), "-e", "./plugins/export[torch]"]


def make_group(group: str, requirements: Sequence[str], interpreter: str) -> Path:
    """Make a group's virtual environment, unless it is there, and return its Python.

    Raises:
        InstallError: The requirements cannot be installed.
    """
    folder = FOLDER / group
    python = folder / "bin/python"
    wanted = "\n".join([*our_packages(), *requirements])
    # Beside the folder: what lies in the folder of the base is linked into the groups'.
    marker = FOLDER / f"{group}.txt"
    if marker.exists() and marker.read_text(encoding="utf-8") == wanted:
        return python
    base = make_base(interpreter)
    shutil.rmtree(folder, ignore_errors=True)
    # Links save the space that PyTorch needs: pip replaces files and does not write into them.
    shutil.copytree(base, folder, symlinks=True, copy_function=os.link)
    pip = [python, "-m", "pip", "install", "--no-build-isolation", "--disable-pip-version-check"]
    run = subprocess.run(
        [*pip, *our_packages(), *requirements],
        cwd=ROOT,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if run.returncode:
        shutil.rmtree(folder)
        raise InstallError(install_reason(run.stdout))
    marker.write_text(wanted, encoding="utf-8")
    return python


def make_base(interpreter: str) -> Path:
    """Make the virtual environment that each group begins with, unless it is there.

    It has what builds the packages, and PyTorch as `requirements/demo.txt` pins it.
    """
    folder = FOLDER / "base"
    marker = FOLDER / "base.txt"
    torch = f"torch=={update.pins('demo')['torch']}"
    if not marker.exists() or marker.read_text(encoding="utf-8") != torch:
        python = newest.make_environment(folder, interpreter)
        newest.install(python, torch)
        marker.write_text(torch, encoding="utf-8")
    return folder


def install_reason(output: str) -> str:
    """Return the reason in pip's output why something cannot be installed.

    Args:
        output: What pip printed.
    """
    depends = re.findall(r"^ +(\S+ \S+ depends on .+)$", output, re.MULTILINE)
    others = [line for line in depends if not line.startswith("rlcatalog")]
    if others:
        return others[0]
    lines = [line.strip() for line in output.splitlines()]
    for start in ("ERROR: No matching distribution", "error in ", "ERROR: ", "error: "):
        for line in lines:
            if line.startswith(start):
                return line.removeprefix("ERROR: ")
    return lines[-1] if lines else "pip printed nothing"


def try_environment(python: Path, entry: Row, seconds: float) -> Row:
    """Return what came of an environment, tried in a process of its own.

    Args:
        python: The group's Python.
        entry: The environment.
        seconds: How long the process may run.

    Raises:
        SystemExit: The process ended before it tried anything.
    """
    file = FOLDER / "row.json"
    file.unlink(missing_ok=True)
    home = FOLDER / "home"  # some packages write settings and caches
    home.mkdir(exist_ok=True)
    variables = os.environ | NO_SCREEN | {"OMP_NUM_THREADS": "1", "HOME": str(home)}
    command = [python, CHILD, json.dumps(entry), file]
    error = ""
    try:
        run = subprocess.run(
            command,
            cwd=home,
            env=variables,
            check=False,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        error = f"stopped after {seconds:g} seconds"
    else:
        if run.returncode:
            last = run.stderr.strip().rpartition("\n")[2]
            error = f"the process ended with status {run.returncode}: {last}"
    if not file.exists():
        raise SystemExit(f"{CHILD.name} did not come to its first step: {error}")
    row: Row = json.loads(file.read_text(encoding="utf-8"))
    if error:
        row["error"] = error
    return row


def run_tests(test: GroupTests, requirements: Sequence[str], interpreter: str) -> bool:
    """Run a file of tests in its group's environment; return whether all of them pass.

    Args:
        test: The file.
        requirements: What the group requires.
        interpreter: The Python of the groups.
    """
    try:
        python = make_group(test.group, requirements, interpreter)
    except InstallError as error:
        print(f"{test.file}: {error}")
        return False
    pins = update.pins("torch")
    needed = [f"{name}=={pins[name]}" for name in ("hypothesis", "pytest", "pytest-xdist")]
    newest.install(python, *needed)
    run = subprocess.run([python, "-m", "pytest", "-q", test.file], cwd=ROOT, check=False)
    return run.returncode == 0


def pinned_version(package: str, requirements: Sequence[str]) -> str:
    """Return the version of a package that a group pins."""
    for requirement in requirements:
        name, _, version = requirement.partition("==")
        if update.normal(name) == update.normal(package):
            return version
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the environments without a result, and write the results and the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--group", help="try the environments of this group alone")
    parser.add_argument("--only", default="", help="try those whose names match this expression")
    parser.add_argument("--again", action="store_true", help="try those with a result, too")
    parser.add_argument("--seconds", type=float, default=300, help="limit for each environment")
    parser.add_argument("--python", default=sys.executable, help="the Python of the groups")
    options = parser.parse_args(arguments)
    groups, entries = read_list()
    if options.group is not None and options.group not in groups:
        parser.error(f"--group: expected one of {', '.join(groups)}; found {options.group!r}")
    python_version = newest.version_of(Path(options.python))
    results = read_results()
    selected = [
        entry
        for entry in entries
        if options.group in (None, entry["group"])
        and re.search(options.only, entry["name"])
        and (options.again or entry["name"] not in results)
    ]
    for entry in selected:
        requirements = groups[entry["group"]]
        row = {
            "name": entry["name"],
            "package": entry["package"],
            "group": entry["group"],
            "version": pinned_version(entry["package"], requirements),
            "python": python_version,
            "date": datetime.date.today().isoformat(),
        }
        if "id" in entry:
            row["id"] = entry["id"]
        try:
            python = make_group(entry["group"], requirements, options.python)
            row |= try_environment(python, entry, options.seconds)
        except InstallError as error:
            row |= {"failed": "install", "error": str(error)}
        results[entry["name"]] = row
        write_results(entries, results)
        print(f"{entry['package']}, {entry['name']}: {environments_page.words(row)}", flush=True)
    failed = []
    for test in read_tests():
        is_selected = options.group in (None, test.group) and re.search(options.only, test.file)
        if is_selected and not run_tests(test, groups[test.group], options.python):
            failed.append(test.file)
    status = environments_page.main([])
    if failed:
        print(f"failed: {', '.join(failed)}")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
