"""Prints requirements at the lowest versions that the packages declare.

`python tools/lowest.py > FILE`. Every package of the repository is covered, with all extras. A
bound `>=1.2` becomes `==1.2`, so it must name a version that exists. What the tests need beside
that comes in whichever version fits.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
#: Environments that the packages' tests play, beside those of `requirements/torch.txt`.
ENVIRONMENTS = ("minigrid", "mujoco")
#: The example of a plugin, and the bridges whose engines bring TensorBoard, which the other tests
#: must not have.
LEFT_OUT = ("example", "rsl_rl", "skrl")
#: Tools of `make lint` alone, and what belongs to one version of PyTorch.
NOT_NEEDED = ("codespell", "import-linter", "mypy", "triton")


def projects() -> list[Path]:
    """Return the `pyproject.toml` of each package that is tested at its lowest versions."""
    folders = ("catalog", "builtin_models/*", "builtin_dists/*", "plugins/*")
    paths = {path for folder in folders for path in ROOT.glob(f"{folder}/pyproject.toml")}
    left_out = {ROOT / f"plugins/{name}/pyproject.toml" for name in LEFT_OUT}
    return sorted(paths - left_out)


def lowest(paths: Iterable[Path]) -> dict[str, str]:
    """Return requirement → lowest version that satisfies every package.

    Args:
        paths: The packages' `pyproject.toml` files; what they require of each other is left out.

    Raises:
        SystemExit: A requirement has no lower bound.
    """
    tables = {path: tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in paths}
    ours = {table["name"] for table in tables.values()}
    versions: dict[str, Version] = {}
    for path, table in tables.items():
        lines = list(table.get("dependencies", []))
        for extra in table.get("optional-dependencies", {}).values():
            lines += extra
        for requirement in map(Requirement, lines):
            if requirement.name in ours:
                continue
            bounds = [
                Version(specifier.version)
                for specifier in requirement.specifier
                if specifier.operator in (">=", "~=", "==")
            ]
            if not bounds:
                raise SystemExit(f"{path}: {str(requirement)!r} has no lower bound")
            extras = ",".join(sorted(requirement.extras))
            name = requirement.name + (f"[{extras}]" if extras else "")
            versions[name] = max([*bounds, versions.get(name, Version("0"))])
    return {name: str(versions[name]) for name in sorted(versions)}


def tools(*files: str) -> list[str]:
    """Return the names that requirements files pin, without versions."""
    names = []
    for file in files:
        text = (ROOT / f"requirements/{file}.txt").read_text(encoding="utf-8")
        names += re.findall(r"^([\w.-]+)==", text, re.MULTILINE)
    return [name for name in names if name not in NOT_NEEDED]


def requirements() -> str:
    """Return the text of the requirements file."""
    paths = projects()
    lines = [f"-e ./{path.parent.relative_to(ROOT)}" for path in paths]
    lines += [f"{name}=={version}" for name, version in lowest(paths).items()]
    return "\n".join([*lines, *tools("torch"), *ENVIRONMENTS]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(requirements())
