"""Figures of how clearly code reads, for `tools/house.py`. They are counted in the same way for our
packages and for other libraries, so that the two can be compared.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from house_code import Source, find_untyped_types, share_untyped
from house_table import Row

#: What packs several steps into one expression → the most of it per 1,000 statements.
MOST_PER_1000 = {
    "conditional expressions": 25,
    "tuple assignments": 5,
    "walrus assignments": 3,
    "comprehensions": 40,
    "lambdas": 5,
}
#: Complexity (McCabe 1976) above which a function counts as complex.
MOST_COMPLEX = 12
#: Code lines above which a function counts as long.
MOST_LINES = 60

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def measure_clarity(root: Path, sources: Iterable[Source]) -> Iterator[Row]:
    """Yield statements, density, complex and long functions, and untyped parameters.

    Args:
        root: The folder that the paths of the sources begin in.
        sources: The files to measure.
    """
    sources = list(sources)
    counts: Counter[str] = Counter()
    for source in sources:
        counts.update(count_constructs(source.tree))
    statements = counts["statements"]
    yield Row("statements of all packages", f"{statements:,}")
    for construct, most in MOST_PER_1000.items():
        density = 1000 * counts[construct] / max(1, statements)
        yield Row(f"{construct} per 1,000 statements", f"{density:.1f}", f"at most {most}")
    nested = counts["nested conditional expressions"]
    yield Row("nested conditional expressions", str(nested), "0")

    yield _measure_complexity(root, sources)
    long = find_long_functions(sources)
    yield Row(
        f"functions over {MOST_LINES} code lines", str(len(long)), "0 without a named reason", long
    )
    untyped = share_untyped(sources, find_untyped_types(sources))
    yield Row("untyped parameters of all packages", f"{untyped:.1%}")


def count_constructs(tree: ast.AST) -> Counter[str]:
    """Return how many statements a file has, and how many of each construct that packs steps.

    Docstrings and other constants alone on a line, such as `...`, do not count as statements. A
    conditional expression counts as nested if its condition or one of its values is another one.
    """
    counts: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not _is_constant(node):
            counts["statements"] += 1
        if isinstance(node, ast.IfExp):
            counts["conditional expressions"] += 1
            if any(isinstance(child, ast.IfExp) for child in ast.iter_child_nodes(node)):
                counts["nested conditional expressions"] += 1
        elif isinstance(node, ast.Assign) and _is_tuple_assignment(node):
            counts["tuple assignments"] += 1
        elif isinstance(node, ast.NamedExpr):
            counts["walrus assignments"] += 1
        elif isinstance(node, _COMPREHENSIONS):
            counts["comprehensions"] += 1
        elif isinstance(node, ast.Lambda):
            counts["lambdas"] += 1
    return counts


def _is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_tuple_assignment(assignment: ast.Assign) -> bool:
    """Return whether an assignment writes several values to several names: `a, b = x, y`.

    Unpacking one value (`a, b = pair`) does not count.
    """
    has_tuple_target = any(isinstance(target, ast.Tuple) for target in assignment.targets)
    return has_tuple_target and isinstance(assignment.value, ast.Tuple)


def _measure_complexity(root: Path, sources: list[Source]) -> Row:
    measure = f"functions with complexity over {MOST_COMPLEX}"
    if find_spec("ruff") is None:
        return Row(measure, "not counted: this Python has no ruff")
    functions = find_complex_functions(root, sources)
    return Row(measure, str(len(functions)), "0 without a named reason", functions)


def find_complex_functions(root: Path, sources: list[Source]) -> list[str]:
    """Return the place and the complexity of each function that is too complex, by ruff's C901.

    Functions marked `noqa: C901` count as well, because only some libraries mark theirs.
    """
    root = root.resolve()  # ruff reports absolute paths
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",  # the settings of the measured checkout do not count
        "--ignore-noqa",
        "--no-cache",
        "--exit-zero",
        "--select=C901",
        f"--config=lint.mccabe.max-complexity={MOST_COMPLEX}",
        "--output-format=json",
    ]
    paths = [root / source.path for source in sources]
    run = subprocess.run([*command, *paths], stdout=subprocess.PIPE, text=True, check=True)
    functions = []
    for finding in json.loads(run.stdout):
        path = Path(finding["filename"]).relative_to(root).as_posix()
        functions.append(f"{path}:{finding['location']['row']} {finding['message']}")
    return functions


def find_long_functions(sources: list[Source]) -> list[str]:
    """Return the place and the size of each function that is too long, the longest first."""
    functions: list[tuple[str, int]] = []
    for source in sources:
        functions.extend(source.functions())
    functions.sort(key=lambda function: function[1], reverse=True)
    return [f"{place}, {lines} code lines" for place, lines in functions if lines > MOST_LINES]
