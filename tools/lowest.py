"""Prints requirements at the lowest versions the packages declare: `python tools/lowest.py > FILE`.

Covered are the packages of `requirements/demo.txt` with the extra `torch`. A bound `>=1.2` becomes
`==1.2`, so it must name a version that exists. What the tests need beside
(`requirements/torch.txt`) comes in whichever version fits these.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
#: The extras whose bounds count. TensorFlow has no wheels beside the lowest versions of the rest on
#: every machine.
EXTRAS = ("torch",)


def lowest(projects: Iterable[Path], extras: Sequence[str] = EXTRAS) -> dict[str, str]:
    """Return distribution → lowest version that satisfies every package.

    Args:
        projects: The packages' `pyproject.toml` files; what they require of each other is left out.
        extras: The optional dependencies that count too.

    Raises:
        SystemExit: A requirement has no lower bound.
    """
    read = {path: tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in projects}
    ours = {project["name"] for project in read.values()}
    found: dict[str, Version] = {}
    for path, project in read.items():
        optional = project.get("optional-dependencies", {})
        lines = [
            *project.get("dependencies", []),
            *(line for extra in extras for line in optional.get(extra, [])),
        ]
        for requirement in map(Requirement, lines):
            if requirement.name in ours:
                continue
            bounds = [
                Version(s.version)
                for s in requirement.specifier
                if s.operator in (">=", "~=", "==")
            ]
            if not bounds:
                raise SystemExit(f"{path}: {str(requirement)!r} has no lower bound")
            found[requirement.name] = max([*bounds, *filter(None, [found.get(requirement.name)])])
    return {name: str(found[name]) for name in sorted(found)}


def requirements() -> str:
    """Return the text of the requirements file."""
    demo, torch = (
        (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8")
        for name in ("demo", "torch")
    )
    folders = re.findall(r"^-e \./(\S+)", demo, re.M)
    bounds = lowest(ROOT / folder / "pyproject.toml" for folder in folders)
    lines = [f"{name}=={version}" for name, version in bounds.items()]
    lines += re.findall(r"^([\w.-]+)==", torch, re.M)
    return "\n".join([*(f"-e ./{folder}" for folder in folders), *lines]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(requirements())
