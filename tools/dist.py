"""Builds what is released into `dist/`, and tries it: `make dist`.

Every package becomes a wheel and a source archive; twine reads them as the index would. Each
package is installed alone and tried, and some extras too (the tests in `tests/packaging` that are
marked `packaging`). Then `rlcatalog[torch]` is installed from the wheels into an empty environment,
with third parties at the versions of `requirements/demo.txt`, and the README's tour is run there;
and the same from a bare clone by the README's install line. Last, `make demo` runs in the clone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
#: The README's tour, shorter.
TOUR = (
    ("list",),
    ("explain", "CartPole-v1", "--model", "fcnet_hiddens=[64,64]"),
    ("summary", "CartPole-v1"),
    ("train", "CartPole-v1", "--steps", "4096", "--out", "tour"),
    ("evaluate", "tour", "--episodes", "3"),
)


def folders() -> list[Path]:
    """Return the folders of the packages that are released."""
    found = sorted(path for depth in ("*", "*/*") for path in ROOT.glob(f"{depth}/pyproject.toml"))
    names = {
        path.parent: tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"]
        for path in found
    }
    return [folder for folder, name in names.items() if name.startswith("rlcatalog")]


def build() -> list[Path]:
    """Build every package; return the files."""
    shutil.rmtree(DIST, ignore_errors=True)
    for folder in folders():
        _run(sys.executable, "-m", "hatchling", "build", "-d", str(DIST), cwd=folder)
    files = sorted(DIST.iterdir())
    if len(files) != 2 * len(folders()):
        raise SystemExit(
            f"error: {len(folders())} packages became {len(files)} files instead of two each"
        )
    return files


def try_install(folder: Path, *what: str) -> None:
    """Install something into an empty environment in a folder, and run the tour there.

    Args:
        folder: The folder.
        what: What pip is to install, from the folder.
    """
    venv.create(folder / "venv", with_pip=True)
    pins = folder / "pins.txt"
    lines = (ROOT / "requirements/demo.txt").read_text(encoding="utf-8").splitlines()
    pins.write_text(
        "\n".join(line for line in lines if re.match(r"[A-Za-z]", line)) + "\n", encoding="utf-8"
    )
    programs = folder / "venv/bin"
    _run(
        str(programs / "pip"),
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--constraint",
        str(pins),
        *what,
        cwd=folder,
    )
    for arguments in TOUR:
        _run(str(programs / "rlcatalog"), *arguments, cwd=folder)
    shutil.rmtree(folder / "venv")


def clone_into(folder: Path) -> None:
    """Clone what is committed into a new folder."""
    _run("git", "clone", "--quiet", str(ROOT), str(folder), cwd=ROOT)


def demo(clone: Path) -> None:
    """Run the README's first command in a clone, which sets up its own `.venv`."""
    _run("make", "demo", "STEPS=2000", cwd=clone)


def _run(*command: str, cwd: Path) -> None:
    outer = ("RLCATALOG_", "PYTHON", "MAKE", "MFLAGS")  # variables of the make that runs this
    clean = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )


def main() -> None:
    """Build, check and try."""
    files = build()
    print(f"{len(files)} files in {DIST.relative_to(ROOT)}; twine reads them")
    _run(sys.executable, "-m", "twine", "check", "--strict", *map(str, files), cwd=ROOT)
    print("each package is installed alone from its wheel, loads, and is tried")
    _run(sys.executable, "-m", "pytest", "-q", "-m", "packaging", "tests/packaging", cwd=ROOT)
    with tempfile.TemporaryDirectory() as folder:
        wheels, clone = Path(folder) / "wheels", Path(folder) / "clone"
        wheels.mkdir()
        print(
            "rlcatalog[torch] is installed from the wheels into an empty environment, and the tour"
            " is run there"
        )
        try_install(wheels, "--find-links", str(DIST), "rlcatalog[torch]")
        clone_into(clone)
        print("the README's install line runs in a bare clone, and the tour in its environment")
        try_install(clone, ".[torch]")
        print("make demo sets up the clone and runs there")
        demo(clone)
    print("all of it works")


if __name__ == "__main__":
    main()
