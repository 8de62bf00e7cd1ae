"""Prints what the house is measured by: sizes, doors, imports, calls, types.

`python tools/house.py [CHECKOUT]` measures this checkout or another. Calls are counted by that
checkout's own `.venv`. `--since COMMIT` also compares code lines with an earlier commit of it:
which moved out of the kernel, which are gone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from house_code import (
    Source,
    compare,
    count_lines,
    in_kernel,
    read_commit,
    read_sources,
    room,
    share_untyped,
)
from house_imports import LIBRARY, Imports, is_library

ROOT = Path(__file__).resolve().parents[1]

#: Code lines beyond which a function counts as long.
LONG = 40

Row = tuple[str, str, str]


def measure_sizes(sources: list[Source]) -> Iterator[Row]:
    """Yield lines, files and classes of the kernel, and lines of all packages."""
    kernel = [source for source in sources if in_kernel(source)]
    staying = [source for source in kernel if room(source) not in LIBRARY]
    classes = [name for source in staying if room(source) != "errors" for name in source.classes()]
    yield (
        "code lines of the kernel",
        f"{count_lines(kernel):,}",
        "6,400 when cut, 5,800 when simplified",
    )
    yield "code lines of its rooms that stay", f"{count_lines(staying):,}", ""
    yield "code lines of all packages", f"{count_lines(sources):,}", "35,000 when simplified"
    yield "files of the kernel", str(len(kernel)), "80"
    yield "classes in its rooms that stay, errors aside", str(len(classes)), "70"
    named = sum(source.framework_names() for source in staying)
    leaving = sum(source.framework_names() for source in kernel) - named
    yield "names of frameworks in its rooms that stay, in the others", f"{named}, {leaving}", "0"


def measure_doors(imports: Imports) -> Iterator[Row]:
    """Yield how many names stand at the kernel's doors, and how many of them nobody outside asks
    for.
    """
    library = {f"rlcatalog_{name}" for name in LIBRARY}
    kernel = imports.names_at_doors({"rlcatalog"})
    staying = [entry for entry in kernel if not is_library(entry[0])]
    everything = imports.names_at_doors({"rlcatalog", *library})
    outsiders = imports.packages() - library - {"rlcatalog"}
    used = {
        name for _, name in imports.used_names(lambda module: module.partition(".")[0] in outsiders)
    }
    by_frameworks = {
        name for _, name in imports.used_names(lambda module: is_library(module, ("torch", "tf")))
    }
    unused = [name for _, name in kernel if name not in used]
    beside = [name for name in unused if name not in by_frameworks]
    yield "names at the kernel's doors, those of rooms that stay", str(len(staying)), "220"
    yield "names at its doors and the library's", str(len(everything)), "340"
    yield (
        "names at its doors without a user outside",
        f"{len(unused)}, {len(beside)} beside torch and tf",
        "20 beside",
    )


def measure_imports(imports: Imports) -> Iterator[Row]:
    """Yield cycles, imports upward and arrows between packages that the design does not have."""
    for measure, entries in (
        ("import cycles", [", ".join(members) for members in imports.cycles()]),
        ("imports upward", imports.upward()),
        ("arrows beside the table of packages", imports.arrows()),
    ):
        yield measure, "; ".join([str(len(entries)), *entries]), "0"


def measure_calls(folder: Path) -> Iterator[Row]:
    """Yield calls and depth of building, loading and acting."""
    goals = {"build": "500; 15", "load": "600", "act": "35", "act, Dict with a mask": "60"}
    python, script = folder / ".venv/bin/python", Path(__file__).with_name("house_calls.py")
    if not python.is_file():
        yield "calls", f"not counted: {folder.name} has no .venv", ""
        return
    run = subprocess.run([python, script, folder], capture_output=True, text=True, check=False)
    if run.returncode:
        yield "calls", f"not counted: {(run.stderr.strip().splitlines() or ['no output'])[-1]}", ""
        return
    for step, figure in json.loads(run.stdout.splitlines()[-1]).items():
        yield (
            f"calls and depth of {step}",
            f"{figure['calls']:,}; {figure['depth']}",
            goals.get(step, ""),
        )


def measure_code(sources: list[Source]) -> Iterator[Row]:
    """Yield copies of the acting step, long functions and untyped parameters."""
    frameworks = [
        s
        for s in sources
        if {"torch", "tf", "rlcatalog_torch", "rlcatalog_tf"} & set(s.path.parts[2:5])
    ]
    copies = [place for source in frameworks for place in source.acting_steps()]
    functions = sorted(
        (entry for s in sources for entry in s.functions()), key=lambda entry: entry[1]
    )
    long = sum(size > LONG for _, size in functions)
    kernel = [source for source in sources if in_kernel(source)]
    yield "copies of the acting step", "; ".join([str(len(copies)), *copies]), "1 per framework"
    yield "longest function", f"{functions[-1][1]} ({functions[-1][0]})", "60"
    yield f"functions over {LONG} code lines", f"{long / len(functions):.1%}", "5 %"
    yield "untyped parameters of the kernel", f"{share_untyped(kernel):.0%}", "8 %"


def measure_moves(folder: Path, commit: str, sources: list[Source]) -> Iterator[Row]:
    """Yield how many code lines moved out of the kernel since a commit, and how many went and came
    in all.
    """
    before = read_commit(folder, commit)
    if before is None:
        yield f"since {commit}", "no such commit here", ""
        return
    change = compare(before, sources)
    yield f"code lines since {commit}: moved out of the kernel", f"{change['moved']:,}", ""
    yield (
        f"code lines since {commit}: deleted, added",
        f"{change['deleted']:,}, {change['added']:,}",
        "",
    )


def report(folder: Path, since: str | None = None) -> Iterator[Row]:
    """Yield (measure, figure, goal) for a checkout; goals are upper bounds."""
    sources = read_sources(folder)
    imports = Imports(folder, sources)
    yield from measure_sizes(sources)
    yield from measure_doors(imports)
    yield from measure_imports(imports)
    yield from measure_calls(folder)
    yield from measure_code(sources)
    if since:
        yield from measure_moves(folder, since, sources)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", nargs="?", type=Path, default=ROOT)
    parser.add_argument(
        "--since", metavar="COMMIT", default="6a04567", help="an earlier commit [default: 6a04567]"
    )
    options = parser.parse_args()
    for measure, figure, goal in report(options.checkout.resolve(), options.since):
        print(f"{measure}: {figure}" + (f"  (goal: {goal})" if goal else ""))
