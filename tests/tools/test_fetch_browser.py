"""`tools/fetch_browser.py`: how Debian's Chromium is unpacked, with programs that act for apt-get
and dpkg-deb.
"""

import os
import subprocess

import fetch_browser
import pytest

APT_GET = """#!/bin/sh
case "$*" in
*--simulate*)
    echo "Inst libsound1 (1.0 Debian:12 [amd64])"
    echo "Inst chromium-headless-shell (156 Debian:12 [amd64])"
    echo "Conf libsound1 (1.0 Debian:12 [amd64])";;
download*)
    shift
    for package in "$@"; do touch "$package.deb"; done;;
*) exit 1;;
esac
"""
# Unpacks a library from one package, and a browser that prints where it looks for libraries.
DPKG_DEB = """#!/bin/sh
case "$2" in
*libsound1.deb) mkdir -p "$3/usr/lib/x86" && touch "$3/usr/lib/x86/libsound.so.1";;
*chromium-headless-shell.deb)
    mkdir -p "$3/usr/lib/chromium"
    program="$3/usr/lib/chromium/chromium-headless-shell"
    printf '#!/bin/sh\\necho "$1 with $LD_LIBRARY_PATH"\\n' > "$program"
    chmod +x "$program";;
*) exit 1;;
esac
"""


def write_program(path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def debian(tmp_path, monkeypatch):
    """A folder that comes first in PATH, with programs of Debian that reach no network."""
    folder = tmp_path / "bin"
    folder.mkdir()
    write_program(folder / "apt-get", APT_GET)
    write_program(folder / "dpkg-deb", DPKG_DEB)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_fetched_browser_starts_with_its_libraries(debian, tmp_path):
    target = tmp_path / "browser"
    fetch_browser.fetch(target)

    launcher = target / "chromium-headless-shell"
    result = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith(f"--version with {target}/usr/lib/x86:")


def test_browser_that_does_not_start_is_removed(debian, tmp_path):
    write_program(debian / "dpkg-deb", DPKG_DEB.replace('echo "$1', 'exit 127; echo "$1'))
    target = tmp_path / "browser"
    with pytest.raises(fetch_browser.NoBrowserError, match="--version"):
        fetch_browser.fetch(target)
    assert not target.exists()


def test_error_names_the_command_that_failed(debian, tmp_path):
    write_program(debian / "apt-get", "#!/bin/sh\necho 'E: no such package' >&2\nexit 100\n")
    with pytest.raises(fetch_browser.NoBrowserError, match="E: no such package"):
        fetch_browser.fetch(tmp_path / "browser")


def test_error_on_other_systems_names_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(fetch_browser.NoBrowserError, match="`apt-get` is missing"):
        fetch_browser.fetch(tmp_path / "browser")
