"""Raises the version of every package at once: `make version V=0.2.0`.

The packages are released together. A package asks for the others of this repository from this
version on and below the next that may break it: below 0.3 for 0.2.0, below 2 for 1.2.3.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[1]
KERNEL = Path("catalog/src/rlcatalog/_version.py")
CHANGES = Path("CHANGELOG.md")


def projects(root: Path = ROOT) -> list[Path]:
    """Return the pyproject files of the packages that are released, from the root."""
    found = sorted(path for depth in ("*", "*/*") for path in root.glob(f"{depth}/pyproject.toml"))
    return [path.relative_to(root) for path in found if _name(path).startswith("rlcatalog")]


def bounds(version: Version) -> str:
    """Return which versions a package asks for of the others: `>=0.2,<0.3`."""
    lowest = (
        ".".join(map(str, version.release[:2]))
        if not version.pre and not version.micro
        else str(version)
    )
    above = f"0.{version.minor + 1}" if version.major == 0 else str(version.major + 1)
    return f">={lowest},<{above}"


def raised(root: Path, version: Version) -> dict[Path, str]:
    """Return what the files are to hold, by path from the root.

    Raises:
        ValueError: The version is not above that of the kernel, or a file does not look as
            expected.
    """
    text = (root / KERNEL).read_text(encoding="utf-8")
    now = re.search(r'__version__ = "(.+)"', text)
    if now is None or version <= Version(now[1]):
        raise ValueError(
            f"expected a version above {now[1] if now else 'that of ' + str(KERNEL)}, found"
            f" {version}"
        )
    found = {KERNEL: text.replace(now[0], f'__version__ = "{version}"')}
    for path in projects(root):
        text = (root / path).read_text(encoding="utf-8")
        text = re.sub(r'^version = ".+"$', f'version = "{version}"', text, flags=re.MULTILINE)
        found[path] = re.sub(
            r'"(rlcatalog[a-z0-9-]*(?:\[[a-z0-9,]+\])?)>=[^"]+"', rf'"\1{bounds(version)}"', text
        )
    changes = (root / CHANGES).read_text(encoding="utf-8")
    changes, count = re.subn(
        r"^## Unreleased: .+$", f"## Unreleased: {version}", changes, flags=re.MULTILINE
    )
    if not count:
        raise ValueError(
            f"{CHANGES} has no section '## Unreleased: …'; begin one for what comes with {version}"
        )
    return found | {CHANGES: changes}


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write the files; return the exit status."""
    try:
        (asked,) = arguments
        found = raised(root, Version(asked))
    except InvalidVersion:
        print(f"error: {arguments[0]!r} is no version; write one such as 0.2.0", file=sys.stderr)
        return 2
    except ValueError as error:
        print(
            f"error: {error if len(arguments) == 1 else 'say one version: make version V=0.2.0'}",
            file=sys.stderr,
        )
        return 2
    for path, text in found.items():
        (root / path).write_text(text, encoding="utf-8")
    print(f"{asked} stands in {len(found)} files; `make generate` writes what follows from it.")
    return 0


def _name(path: Path) -> str:
    name: str = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {}).get("name", "")
    return name


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
