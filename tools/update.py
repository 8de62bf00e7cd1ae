"""Raises the pinned versions in `requirements/` to the newest: `make update`.

pip resolves all packages of the test environment together, without pins, so that the new versions
fit one another. It prints what moved; run the tests before you commit the files.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "requirements"
#: Installed into one environment, so resolved together.
TOGETHER = ("build", "demo", "torch", "dev", "docs", "dist")
#: Installed without dependencies, so resolved without them.
ALONE = ("without_dependencies", "skrl", "rsl_rl", "timm", "compare", "peers")
#: Installed without dependencies, but lists all of them, so resolved with them.
SERVER = "server"
#: Each belongs to one version of PyTorch: change them together with it, by hand.
FOLLOW_TORCH = ("torchvision", "triton")
_PIN = re.compile(r"^([\w.-]+)(\[[\w,-]+\])?==([^\s;]+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    """Return the packages that a requirements file pins: name with extras → version."""
    text = (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")
    return {package + (extras or ""): version for package, extras, version in _PIN.findall(text)}


def resolve(
    requirements: Sequence[str], *options: str, python: str | Path = sys.executable
) -> dict[str, str]:
    """Return the versions that pip would install into an empty environment: name → version.

    Args:
        requirements: What to install.
        options: More options of pip.
        python: The Python whose pip is asked.

    Raises:
        SystemExit: pip found no set of versions that fit one another.
    """
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        what = ["--dry-run", "--ignore-installed", "--report", str(report)]
        run = subprocess.run([*pip, *what, *options, *requirements], cwd=ROOT, check=False)
        if run.returncode:
            raise SystemExit("pip found no versions that fit one another; see its message above.")
        entries = json.loads(report.read_text(encoding="utf-8"))["install"]
    metadata = [entry["metadata"] for entry in entries]
    return {normal(item["name"]): item["version"] for item in metadata}


def normal(name: str) -> str:
    """Return a distribution's name in the form in which names are compared, without extras."""
    return re.sub(r"[-_.]+", "-", name.partition("[")[0]).lower()


def torch_for_cpu() -> str:
    """Return the newest version of PyTorch that pip finds as a build for the CPU.

    Other builds bring several gigabytes of CUDA. Where pip finds no build for the CPU, the pinned
    version stays.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", "torch"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    builds = re.findall(r"([\d.]+)\+cpu", found)
    return builds[0] if builds else pins("demo")["torch"]


def replace(text: str, versions: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return a requirements file with new versions, and a line for each that moved.

    Args:
        text: The file's text.
        versions: Name of a distribution → newest version. Packages that are missing here stay.
    """
    moves = []

    def new_pin(match: re.Match[str]) -> str:
        package, extras, old = match.groups()
        # "2.13.0+cpu" satisfies "==2.13.0", which other platforms have too.
        new = versions.get(normal(package), old).partition("+")[0]
        if package not in FOLLOW_TORCH and new != old:
            moves.append(f"{package} {old} → {new}")
            return f"{package}{extras or ''}=={new}"
        return match.group()

    return _PIN.sub(new_pin, text), moves


def locals_of(name: str) -> list[str]:
    """Return the local packages that a requirements file installs, as arguments of pip."""
    text = (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")
    return [word for line in re.findall(r"^-e \S+", text, re.MULTILINE) for word in line.split()]


def newest() -> dict[str, dict[str, str]]:
    """Return the newest versions for each requirements file."""
    torch = f"torch=={torch_for_cpu()}"
    names: list[str] = []
    folders: list[str] = []
    for file in TOGETHER:
        names += [name for name in pins(file) if normal(name) not in ("torch", *FOLLOW_TORCH)]
        folders += locals_of(file)
    together = resolve([torch, *names, *folders], "--no-build-isolation")
    versions = dict.fromkeys(TOGETHER, together)
    for file in ALONE:
        versions[file] = resolve(list(pins(file)), "--no-deps")
    versions[SERVER] = resolve(list(pins(SERVER)))
    return versions


def main() -> int:
    """Write the new versions and print what moved."""
    for file, versions in newest().items():
        path = REQUIREMENTS / f"{file}.txt"
        text, moves = replace(path.read_text(encoding="utf-8"), versions)
        path.write_text(text, encoding="utf-8")
        for move in moves:
            print(f"{path.name}: {move}")
    print(f"Unchanged by hand: {', '.join(FOLLOW_TORCH)}, which follow PyTorch.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
