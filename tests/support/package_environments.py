"""The repository's packages as wheels in empty environments, and programs run there."""

from __future__ import annotations

import compileall
import csv
import json
import os
import shutil
import subprocess
import tomllib
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import warm
from package_probes import PRELUDE
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]

#: Distribution → its folder, the kernel first.
FOLDERS = {
    tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"]: path.parent
    for pattern in ("catalog", "builtin_models/*", "builtin_dists/*", "plugins/*")
    for path in sorted(ROOT.glob(f"{pattern}/pyproject.toml"))
}


def module_of(distribution: str) -> str:
    return distribution.replace("-", "_")


def needed_by(distribution: str, *extras: str) -> list[str]:
    """Return a package and the packages of this repository it requires, directly or not; with
    extras of its own.
    """
    found, waiting = [], [distribution]
    while waiting:
        name = waiting.pop()
        if name in FOLDERS and name not in found:
            found.append(name)
            project = tomllib.loads((FOLDERS[name] / "pyproject.toml").read_text(encoding="utf-8"))[
                "project"
            ]
            lines = list(project["dependencies"])
            if name == distribution:
                lines += [
                    line
                    for extra in extras
                    for line in project.get("optional-dependencies", {}).get(extra, ())
                ]
            waiting += [Requirement(line).name for line in lines]
    return found


def installed_by(line: str) -> set[str]:
    """Return the distributions that pip installs for a requirement, such as `"rlcatalog[actor]"`:
    packages of this repository by their `pyproject.toml`, others by what is installed here.
    """
    done: set[str] = set()
    waiting = [line]
    while waiting:
        line = waiting.pop()
        if line in done:
            continue
        done.add(line)
        requirement = Requirement(line)
        if requirement.name in FOLDERS:
            waiting += lines_of_project(requirement)
        else:
            waiting += lines_of_installed(requirement)
    return {Requirement(line).name for line in done}


def lines_of_project(requirement: Requirement) -> list[str]:
    """Return what a package of this repository requires, with the extras of a requirement."""
    text = (FOLDERS[requirement.name] / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    lines = list(project["dependencies"])
    for extra in requirement.extras:
        lines += project["optional-dependencies"][extra]
    return lines


def lines_of_installed(requirement: Requirement) -> list[str]:
    """Return what an installed distribution requires, with the extras of a requirement."""
    lines = []
    for line in metadata.requires(requirement.name) or []:
        marker = Requirement(line).marker
        # An empty extra stands for what is required without any.
        if marker is None or any(marker.evaluate({"extra": e}) for e in ("", *requirement.extras)):
            lines.append(line)
    return lines


def link_distributions(names: Iterable[str], folder: Path) -> None:
    """Link distributions of this environment into a folder, as if they were installed there."""
    for name in names:
        distribution = metadata.distribution(name)
        tops = {path.parts[0] for path in distribution.files or ()}
        for top in tops - {"..", "__pycache__"}:
            link = folder / top
            if not link.exists():  # two distributions can share a namespace
                link.symlink_to(distribution.locate_file(top))


BUILD = """
import importlib, os, sys, tomllib

_, out, *folders = sys.argv
for folder in folders:
    os.chdir(folder)  # what a build backend is called from
    with open("pyproject.toml", "rb") as project:
        backend = tomllib.load(project)["build-system"]["build-backend"]
    importlib.import_module(backend).build_wheel(out)
"""


@cache
def unpacked(wheel: Path) -> Path:
    """Unpack a wheel and compile it as pip does, once: many processes import from copies of it."""
    folder = wheel.with_suffix(".unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    compileall.compile_dir(folder, quiet=2)
    return folder


@dataclass(frozen=True)
class Environment:
    """A virtual environment of its own, and how to run it from outside the repository."""

    folder: Path

    @property
    def site(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def install(self, wheel: Path) -> None:
        shutil.copytree(unpacked(wheel), self.site, copy_function=os.link, dirs_exist_ok=True)

    def uninstall(self, distribution: str) -> None:
        (record,) = self.site.glob(f"{module_of(distribution)}-*.dist-info/RECORD")
        with record.open(newline="", encoding="utf-8") as lines:
            paths = [self.site / row[0] for row in csv.reader(lines)]
        for path in paths:
            path.unlink()
        for name in (module_of(distribution), record.parent.name):
            for folder in sorted((self.site / name).rglob("*/"), reverse=True):
                for compiled in folder.glob("*.pyc"):
                    compiled.unlink()
                folder.rmdir()
            (self.site / name).rmdir()  # fails if RECORD forgot a file

    def run(
        self, *arguments: str, warmed: Environment | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `python ARGUMENTS`: `-c`, code and more, or `-m`, a module and more.

        It runs in the environment's folder, unless `cwd` names another.

        Where a `warmed` environment is given, with the same third parties and nothing of ours, the
        process is forked from one of it that has imported them, and then finds what is installed
        here.
        """
        if warmed is None:
            clean = {
                key: value
                for key, value in os.environ.items()
                if not key.startswith(("RLCATALOG_", "PYTHON"))
            }
            return subprocess.run(
                [self.folder / "bin" / "python", "-I", "-B", *arguments],
                cwd=cwd or self.folder,
                env=clean | {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        how, what, *more = arguments
        code = (
            what
            if how == "-c"
            else f"import runpy\nrunpy.run_module({what!r}, run_name='__main__')"
        )
        moved = (
            f"import sys\nsys.path.insert(1, {str(self.site)!r})\nsys.prefix ="
            f" {str(self.folder)!r}\n"
        )
        python = [str(warmed.folder / "bin" / "python"), "-I", "-B"]
        return warm.run(["-c", moved + code, *more], self.folder, python=python)

    def probe(self, code: str, warmed: Environment | None = None, **data) -> dict:
        """Run `code`, which finds `data` and fills `report`, and return the report; `warmed` as in
        `run`.
        """
        code = f"{PRELUDE}\n{code}\nprint('report:', json.dumps(report))"
        process = self.run("-c", code, json.dumps(data), warmed=warmed)
        if process.returncode != 0:
            raise ProbeError(process.stderr)
        return json.loads(process.stdout.rpartition("report:")[2])


class ProbeError(AssertionError):
    """A probe failed; the message is its standard error."""
