"""`make` sets up with the Python that is there: the first of 3.11, 3.12 and 3.13 that runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).resolve().parents[1] / "Makefile"

#: Stands for an interpreter of another version: it runs the program it is given under that version's number.
INTERPRETER = """#!/bin/sh
[ "$1" = -c ] && exec {python} -c "import sys; sys.version_info = ({version}); $2"
echo "$0 $*"
"""
#: What a version manager leaves on the path for a version that is not installed.
SHIM = "#!/bin/sh\necho 'command not found' >&2\nexit 127\n"
#: A system's Python whose venv is a package of its own.
NO_VENV = "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'ensurepip'\" >&2\nexit 1\n"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")


def set_up(folder: Path, pythons: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Ask make for an environment, in an empty folder and with these commands alone on the path."""
    commands = folder / "bin"
    commands.mkdir()
    for tool in ("sh", "test", "echo"):
        found = shutil.which(tool)
        assert found is not None
        (commands / tool).symlink_to(found)
    for name, text in pythons.items():
        (commands / name).write_text(text, encoding="utf-8")
        (commands / name).chmod(0o755)
    shutil.copy(MAKEFILE, folder / "Makefile")
    make = str(shutil.which("make"))
    return subprocess.run(
        [make, "--no-print-directory", *arguments, ".venv/bin/pip"],
        cwd=folder, capture_output=True, text=True, timeout=60, env={"PATH": str(commands)},
    )  # fmt: skip


def python(version: tuple[int, int]) -> str:
    return INTERPRETER.format(python=sys.executable, version=f"{version[0]}, {version[1]}, 0")


@pytest.mark.parametrize(("pythons", "chosen"), [
    ({"python3.11": python((3, 11)), "python3.12": python((3, 12))}, "python3.11"),
    ({"python3.12": python((3, 12)), "python3.13": python((3, 13))}, "python3.12"),
    ({"python3.11": SHIM, "python3.12": SHIM, "python3.13": python((3, 13))}, "python3.13"),
    ({"python3.11": NO_VENV, "python3.12": python((3, 12))}, "python3.12"),
    ({"python3": python((3, 13))}, "python3"),
    ({"python3.12": python((3, 12)), "python3": python((3, 14))}, "python3.12"),
], ids=["oldest", "no-3.11", "shims", "no-venv", "plain-name", "3.14"])  # fmt: skip
def test_the_first_python_that_runs_is_taken(pythons, chosen, tmp_path):
    done = set_up(tmp_path, pythons)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"{chosen} -m venv .venv"


@pytest.mark.parametrize(
    "pythons", [{}, {"python3": python((3, 10))}, {"python3": python((3, 14))}, {"python3.11": SHIM}],
    ids=["none", "3.10", "3.14", "a-shim"],
)  # fmt: skip
def test_without_one_make_says_what_to_do(pythons, tmp_path):
    done = set_up(tmp_path, pythons)
    assert done.returncode != 0
    assert "No Python 3.11, 3.12 or 3.13" in done.stderr
    assert "make PYTHON=" in done.stderr


def test_whoever_names_a_python_gets_that_one(tmp_path):
    mine = {"python3.11": python((3, 11)), "mine": python((3, 12))}
    assert set_up(tmp_path, mine, "PYTHON=mine").stdout.splitlines()[0] == "mine -m venv .venv"
