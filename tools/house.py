"""Figures about the code, in one table: `python tools/house.py [CHECKOUT]`.

Readers decide whether the code is clear; counts only watch. A goal that is met by a trick is not
met. Lines, classes, names at doors and calls have no goal, because a limit on them can be met by
packing more into each line.

Density, complexity, long functions and untyped parameters appear beside the figures of pluggy,
Stable-Baselines3 (SB3) and httpx, which people like to read. `house_peers.json` keeps these figures
and the versions. To measure the newest versions, install them into a folder:

    pip install --no-deps --target FOLDER pluggy stable-baselines3 httpx
    python tools/house.py --measure-peers FOLDER

The calls of a checkout are counted by its own `.venv`. `--since COMMIT` also prints what changed
after an earlier commit: statements, and code lines that moved out of the kernel, were deleted or
were added.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from house_clarity import count_constructs, measure_clarity
from house_code import (
    Source,
    compare,
    count_lines,
    find_package,
    find_untyped_types,
    in_kernel,
    read_commit,
    read_sources,
    room,
    share_untyped,
)
from house_imports import LIBRARY, Imports
from house_peers import FILE, read_peers, write_peers
from house_table import Row, format_table
from words import pages

ROOT = Path(__file__).resolve().parents[1]


def measure_sizes(sources: list[Source]) -> Iterator[Row]:
    """Yield lines, files and classes of the kernel, and lines of all packages."""
    kernel = [source for source in sources if in_kernel(source)]
    classes = 0
    for source in kernel:
        if room(source) != "errors":
            classes += len(source.classes())
    framework_names = sum(source.framework_names() for source in kernel)
    yield Row("code lines of the kernel", f"{count_lines(kernel):,}")
    yield Row("code lines of all packages", f"{count_lines(sources):,}")
    yield Row("files of the kernel", str(len(kernel)))
    yield Row("classes of the kernel, without errors", str(classes))
    yield Row("names of frameworks in the kernel", str(framework_names), "0")


def measure_doors(folder: Path, imports: Imports) -> Iterator[Row]:
    """Yield how many names the doors of the kernel list, and which of them are not used."""
    kernel_names = imports.names_at_doors({"rlcatalog"})
    library = {f"rlcatalog_{name}" for name in LIBRARY}
    all_names = imports.names_at_doors({"rlcatalog", *library})
    used = names_on_pages(folder)
    used.update(name for _, name in imports.used_names(_is_outside_kernel))
    unused = [f"{door}.{name}" for door, name in kernel_names if name not in used]
    yield Row("names at the kernel's doors", str(len(kernel_names)))
    yield Row("names at the doors of kernel and library packages", str(len(all_names)))
    yield Row(
        "names at the kernel's doors that no package or page uses", str(len(unused)), "0", unused
    )


def _is_outside_kernel(module: str) -> bool:
    return module.partition(".")[0] != "rlcatalog"


def names_on_pages(folder: Path) -> set[str]:
    """Return the names in the code of pages written by hand: in blocks and between backticks."""
    names: set[str] = set()
    for page in pages(folder):
        text = page.read_text(encoding="utf-8")
        for code in re.findall(r"```.*?```|`[^`]+`", text, flags=re.DOTALL):
            names.update(re.findall(r"\w+", code))
    return names


def measure_imports(folder: Path, sources: list[Source], imports: Imports) -> Iterator[Row]:
    """Yield cycles, imports upward and imports that the table of packages does not allow.

    Imports for type checkers alone cannot fail when a program runs, so they are counted apart.
    """
    cycles = imports.cycles()
    upward = imports.upward()
    beside = imports.arrows()
    places = [", ".join(modules) for modules in cycles]
    yield Row("import cycles", str(len(cycles)), "0", places)
    yield Row("imports upward", str(len(upward)), "0", upward)
    yield Row("imports beside the table of packages", str(len(beside)), "0", beside)

    with_checkers = Imports(folder, sources, for_checkers=True)
    wrong_imports = {*with_checkers.upward(), *with_checkers.arrows()}
    for_checkers = sorted(wrong_imports.difference(upward, beside))
    yield Row(
        "imports for type checkers, upward or beside the table",
        str(len(for_checkers)),
        places=for_checkers,
    )
    all_cycles = with_checkers.cycles()
    yield Row("import cycles, imports for type checkers included", str(len(all_cycles)))


def measure_calls(folder: Path) -> Iterator[Row]:
    """Yield calls and depth of building, loading and acting."""
    python = folder / ".venv/bin/python"
    if not python.is_file():
        yield Row("calls and depth", f"not counted: {folder.name} has no .venv")
        return
    script = Path(__file__).with_name("house_calls.py")
    run = subprocess.run([python, script, folder], capture_output=True, text=True, check=False)
    if run.returncode:
        error = "no output"
        if run.stderr.strip():
            error = run.stderr.strip().splitlines()[-1]
        yield Row("calls and depth", f"not counted: {error}")
        return
    steps = json.loads(run.stdout.splitlines()[-1])
    for step, counts in steps.items():
        yield Row(f"calls and depth of {step}", f"{counts['calls']:,}; {counts['depth']}")


def measure_acting_steps(sources: list[Source]) -> Iterator[Row]:
    """Yield the functions of each framework that turn a policy's inputs into an action."""
    for framework in ("torch", "tf"):
        functions: list[str] = []
        for source in sources:
            if framework in _names_in_path(source):
                functions.extend(source.acting_steps())
        measure = f"copies of the acting step in {framework}"
        yield Row(measure, str(len(functions)), "1", functions)


def _names_in_path(source: Source) -> set[str]:
    """Return the names of a file and its folders, such as `plugins`, `torch` and `backend`."""
    return set(source.path.with_suffix("").parts)


def measure_types(sources: list[Source]) -> Iterator[Row]:
    """Yield the share of untyped parameters of each package, the highest first."""
    by_package: dict[str, list[Source]] = {}
    for source in sources:
        by_package.setdefault(find_package(source), []).append(source)
    # A package may use an alias of another one, so aliases are collected first.
    untyped_types = find_untyped_types(sources)
    shares = {name: share_untyped(own, untyped_types) for name, own in by_package.items()}
    for name in sorted(shares, key=lambda name: shares[name], reverse=True):
        yield Row(f"untyped parameters of {name}", f"{shares[name]:.1%}", "at most 10%")


def measure_changes(folder: Path, commit: str, sources: list[Source]) -> Iterator[Row]:
    """Yield how statements and code lines changed after a commit."""
    before = read_commit(folder, commit)
    if before is None:
        yield Row(f"since {commit}", "no such commit here")
        return
    statements = _count_statements(sources) - _count_statements(before)
    lines = compare(before, sources)
    yield Row(f"statements added since {commit}", f"{statements:+,}")
    yield Row(f"code lines moved out of the kernel since {commit}", f"{lines['moved']:,}")
    yield Row(f"code lines deleted since {commit}", f"{lines['deleted']:,}")
    yield Row(f"code lines added since {commit}", f"{lines['added']:,}")


def _count_statements(sources: list[Source]) -> int:
    return sum(count_constructs(source.tree)["statements"] for source in sources)


def report(folder: Path, since: str | None = None) -> Iterator[Row]:
    """Yield the rows of the table for a checkout."""
    sources = read_sources(folder)
    imports = Imports(folder, sources)
    format_skips = sum(source.format_skips() for source in sources)
    yield from measure_sizes(sources)
    yield from measure_doors(folder, imports)
    yield from measure_calls(folder)
    yield from measure_imports(folder, sources, imports)
    yield from measure_acting_steps(sources)
    yield Row("`# fmt: skip`", str(format_skips), "at most 25")
    yield from measure_clarity(folder, sources)
    yield from measure_types(sources)
    if since:
        yield from measure_changes(folder, since, sources)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "checkout", nargs="?", type=Path, default=ROOT, help="folder to measure [default: this one]"
    )
    parser.add_argument("--since", metavar="COMMIT", help="print what changed after this commit")
    parser.add_argument(
        "--measure-peers",
        metavar="FOLDER",
        type=Path,
        help=f"measure the libraries installed in FOLDER, and write {FILE.name}",
    )
    options = parser.parse_args()
    if options.measure_peers:
        write_peers(options.measure_peers)
    print(format_table(report(options.checkout.resolve(), options.since), read_peers()))


if __name__ == "__main__":
    main()
