"""Writes the table of `docs/porting.md` and the stubs of the mirror, from the names of
rlcatalog-compat.

Run it after a name was added: `python tools/porting_table.py`, or with `--check` to only say
whether they are fresh.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from generated import ROOT, fill, write

from rlcatalog_compat.names import Module, modules, reasons, supported_paths

PAGE = ROOT / "docs/porting.md"
STUBS = ROOT / "plugins/compat/src/rlcatalog_compat"
OWN = "rlcatalog_compat."


def rows(path: str, module: Module) -> list[str]:
    """Return the rows of a module: one per place its names stand in, then those that are not
    supported.
    """
    homes: dict[str, list[str]] = defaultdict(list)
    for name, target in module.names.items():
        home, _, attribute = target.partition(":")
        homes[home].append(f"`{name}`" if name == attribute else f"`{name}` (`{attribute}`)")
    layouts = " to ".join(dict.fromkeys(module.layouts.split("–")))
    found = [
        f"| `ray.{path}` | {layouts} | {', '.join(sorted(names))} |"
        f" {'own' if home.startswith(OWN) else f'`{home}`'} |"
        for home, names in sorted(homes.items())
    ]
    reasons: dict[str, list[str]] = defaultdict(list)
    for name, why in module.refused.items():
        reasons[why].append(f"`{name}`")
    for why, names in reasons.items():
        found.append(f"| `ray.{path}` | {layouts} | {', '.join(names)} | not supported: {why} |")
    return found


def page(text: str) -> str:
    """Return the page with fresh tables."""
    served = [row for path, module in sorted(modules().items()) for row in rows(path, module)]
    refused = [f"| `ray.{path}` | {why} |" for path, why in sorted(reasons().items())]
    tables = {
        "names": [
            "| module | in RLlib | names | provided by |",
            "| --- | --- | --- | --- |",
            *served,
        ],
        "refused": ["| path | why |", "| --- | --- |", *refused],
    }
    return fill(PAGE, text, {name: "\n".join(lines) for name, lines in tables.items()})


def stub(path: str) -> str:
    """Return the stub of a module of the mirror."""
    below = sorted(
        other.rpartition(".")[2] for other in supported_paths() if other.rpartition(".")[0] == path
    )
    imports: dict[str, list[str]] = defaultdict(list)
    for name, target in modules()[path].names.items() if path in modules() else ():
        home, _, attribute = target.partition(":")
        imports[home].append(f"{attribute} as {name}")
    lines = [
        f"from {home} import {name}"
        for home, names in sorted(imports.items())
        for name in sorted(names)
    ]
    if below:
        lines += [
            f"from . import {name} as {name}"
            for name in below
            if f"as {name}\n" not in "\n".join(lines) + "\n"
        ]
    return "\n".join(lines) + "\n" * bool(lines)


def files() -> dict[Path, str]:
    """Return the contents of all generated files."""
    found = {
        STUBS / path.replace(".", "/") / "__init__.pyi": stub(path)
        for path in sorted(supported_paths())
    }
    return {PAGE: page(PAGE.read_text(encoding="utf-8")), **found}


def main(arguments: list[str]) -> int:
    """Write the files, or with `--check` say whether they are up to date."""
    new = files()
    gone = [path for path in STUBS.rglob("__init__.pyi") if path not in new]
    for path in gone:
        print(f"{path.relative_to(ROOT)} belongs to no module.", file=sys.stderr)
    return int(write(new, arguments) or (arguments == ["--check"] and bool(gone)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
