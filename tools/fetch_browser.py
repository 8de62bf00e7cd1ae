"""Finds Chromium for the tests of the site; where none is installed, unpacks Debian's.

`make browser` runs it. On Debian, the package `chromium-headless-shell` and the libraries that it
needs are downloaded and unpacked into `.venv/.browser`. This needs no root, installs nothing on the
machine, and `make clean` removes it. On any other system, a message says what to install.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/support"))

import browser  # noqa: E402

PACKAGE = "chromium-headless-shell"
INSTALL_ONE = (
    f"Install Chromium or Chrome, so that one of {', '.join(browser.NAMES)} is in PATH."
    " On Debian, running `apt-get update` as root may be enough."
)


class NoBrowserError(Exception):
    """No browser is installed, and none can be downloaded; the message says what to do."""


def run(command: list[str], folder: Path) -> str:
    """Run a command in a folder and return what it prints.

    Raises:
        NoBrowserError: It fails.
    """
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        line = " ".join(command[:3])
        raise NoBrowserError(f"`{line} …` failed: {result.stderr.strip()[-600:]}")
    return result.stdout


def list_packages(folder: Path) -> list[str]:
    """Return Debian's package and those that it needs, as far as they are not installed."""
    command = ["apt-get", "install", "--simulate", "--no-install-recommends", PACKAGE]
    return re.findall(r"^Inst (\S+)", run(command, folder), re.MULTILINE)


def unpack_debian(target: Path) -> None:
    """Download Debian's package with what it needs, and unpack all of it.

    Args:
        target: The folder to unpack into; a former one is replaced.
    """
    for command in ("apt-get", "dpkg-deb"):
        if shutil.which(command) is None:
            raise NoBrowserError(f"`{command}` is missing, so this is not Debian.")
    with tempfile.TemporaryDirectory() as name:
        downloads = Path(name)
        packages = list_packages(downloads)
        run(["apt-get", "download", *packages], downloads)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for file in sorted(downloads.glob("*.deb")):
            run(["dpkg-deb", "--extract", str(file), str(target)], downloads)


def write_launcher(target: Path) -> None:
    """Write the script that starts the browser with the libraries beside it."""
    folders = sorted({str(path.parent) for path in target.rglob("*.so*")})
    libraries = ":".join([*folders, "$LD_LIBRARY_PATH"])
    program = target / "usr/lib/chromium" / PACKAGE
    launcher = target / PACKAGE
    launcher.write_text(
        f'#!/bin/sh\nexport LD_LIBRARY_PATH="{libraries}"\nexec "{program}" "$@"\n',
        encoding="utf-8",
    )
    launcher.chmod(0o755)


def fetch(target: Path) -> None:
    """Put a browser that starts into a folder.

    Raises:
        NoBrowserError: This is not possible on this machine; the folder is then empty.
    """
    try:
        unpack_debian(target)
        write_launcher(target)
        run([str(target / PACKAGE), "--version"], target)
    except (NoBrowserError, OSError):
        shutil.rmtree(target, ignore_errors=True)
        raise


def main() -> None:
    """Find a browser, or download one, and print where it is."""
    if browser.browser() is None:
        print(f"No browser is in PATH. Trying to download Debian's {PACKAGE}, about 70 MB.")
        try:
            fetch(browser.FETCHED)
        except (NoBrowserError, OSError) as error:
            sys.exit(f"There is no browser, and none could be downloaded. {error}\n{INSTALL_ONE}")
    found = browser.browser()
    assert found is not None, "the launcher has one of the names"
    print(f"browser: {os.path.relpath(found, ROOT) if found.startswith(str(ROOT)) else found}")


if __name__ == "__main__":
    main()
