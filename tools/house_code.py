"""Counts of code for `tools/house.py`: lines, functions, classes, parameters, and lines that moved
between packages.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

#: Where packages stand in a checkout.
PACKAGES = ("catalog", "builtin_models/*", "builtin_dists/*", "plugins/*")
KERNEL = "catalog/src/rlcatalog"

_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Source:
    """A Python file: its text, its tree and its code lines.

    Args:
        path: Where it stands in its checkout.
        text: What it holds.
    """

    def __init__(self, path: PurePosixPath, text: str) -> None:
        self.path = path
        self.text = text
        self.tree = ast.parse(text)

    def code_lines(self) -> list[int]:
        """Return the numbers of the lines with code: no comments, docstrings or blank lines."""
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in _NO_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
        for node in ast.walk(self.tree):
            docstring = _docstring(node)
            if docstring is not None:
                lines.difference_update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
        return sorted(lines)

    def code(self) -> list[str]:
        """Return the lines with code, without their indentation."""
        lines = self.text.splitlines()
        return [lines[number - 1].strip() for number in self.code_lines()]

    def functions(self) -> Iterator[tuple[str, int]]:
        """Yield the place of each function and its number of code lines, the
        signature among them.
        """
        code = set(self.code_lines())
        for node in ast.walk(self.tree):
            if isinstance(node, _FUNCTIONS):
                size = len(code & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
                yield f"{self.path}:{node.lineno} {node.name}", size

    def classes(self) -> list[str]:
        """Return the names of the classes at the top of the file that have no underscore."""
        return [
            n.name
            for n in self.tree.body
            if isinstance(n, ast.ClassDef) and not n.name.startswith("_")
        ]

    def parameters(self) -> Iterator[str]:
        """Yield the type of each named parameter, empty if it has no annotation.

        `self`, `cls`, `*args` and `**kwargs` are left out.
        """
        for node in ast.walk(self.tree):
            if isinstance(node, _FUNCTIONS):
                for parameter in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                    if parameter.arg not in ("self", "cls"):
                        yield _type_text(parameter.annotation)

    def untyped_aliases(self) -> Iterator[str]:
        """Yield the names that the file gives to `Any` or `object`."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, ast.AnnAssign):
                targets = [node.target]
            else:
                continue
            if _type_text(node.value) in _UNTYPED:
                yield from (target.id for target in targets if isinstance(target, ast.Name))

    def format_skips(self) -> int:
        """Return how many comments keep a statement from ruff's format."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
        return sum("fmt: skip" in comment for comment in comments)

    def acting_steps(self) -> Iterator[str]:
        """Yield the functions that take a policy from inputs to an action: they call both ways of
        choosing one.
        """
        for node in ast.walk(self.tree):
            if isinstance(node, _FUNCTIONS):
                called = {
                    n.func.attr
                    for n in ast.walk(node)
                    if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
                }
                if {"sample", "deterministic_sample"} <= called:
                    yield f"{self.path}:{node.lineno} {node.name}"

    def framework_names(self) -> int:
        """Return how often code names a framework: in imports, names, attributes and strings
        without a space.
        """
        count = 0
        for node in ast.walk(self.tree):
            value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
            word = value if isinstance(value, str) else _WORD_OF.get(type(node), lambda _: "")(node)
            count += " " not in word and bool(FRAMEWORKS & set(re.split(r"[.:]", word)))
        return count


_UNTYPED = {"Any", "object"}
#: What frameworks are called in code.
FRAMEWORKS = {"torch", "tf", "tf2", "tensorflow", "keras", "triton"}
_WORD_OF: dict[type, Callable[[Any], str]] = {
    ast.Name: lambda node: node.id,
    ast.Attribute: lambda node: node.attr,
    ast.alias: lambda node: node.name,
    ast.ImportFrom: lambda node: node.module or "",
}


def _type_text(annotation: ast.expr | None) -> str:
    """Return a type as text, without the module `typing`; empty if there is none."""
    if annotation is None:
        return ""
    return ast.unparse(annotation).removeprefix("typing.")


def _docstring(node: ast.AST) -> ast.Expr | None:
    if (
        isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
    ):
        first = node.body[0]
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            return first
    return None


def read_sources(folder: Path) -> list[Source]:
    """Return the source files of all packages of a checkout."""
    paths = (
        p
        for pattern in PACKAGES
        for src in folder.glob(f"{pattern}/src")
        for p in src.rglob("*.py")
    )
    return [
        Source(PurePosixPath(path.relative_to(folder).as_posix()), path.read_text(encoding="utf-8"))
        for path in sorted(paths)
    ]


def read_commit(folder: Path, commit: str) -> list[Source] | None:
    """Return the source files of all packages at a commit of a checkout's history, or None without
    that commit.
    """
    git = ["git", "-C", str(folder)]
    listing = subprocess.run(
        [*git, "ls-tree", "-r", "--name-only", commit], capture_output=True, text=True, check=False
    )
    if listing.returncode:
        return None
    paths = [PurePosixPath(line) for line in listing.stdout.splitlines() if line.endswith(".py")]
    ours = [path for path in paths if any(_is_source(path, pattern) for pattern in PACKAGES)]
    names = "".join(f"{commit}:{path}\n" for path in ours)
    output = subprocess.run(
        [*git, "cat-file", "--batch"], input=names.encode(), capture_output=True, check=True
    ).stdout
    sources = []
    for path in ours:
        header, _, output = output.partition(b"\n")
        size = int(header.split()[2])
        sources.append(Source(path, output[:size].decode()))
        output = output[size + 1 :]
    return sources


def _is_source(path: PurePosixPath, pattern: str) -> bool:
    """Return whether a path lies in the `src` folder of a package that a pattern names."""
    depth = len(PurePosixPath(pattern).parts)
    return path.parts[depth : depth + 1] == ("src",) and PurePosixPath(*path.parts[:depth]).match(
        pattern
    )


def in_kernel(source: Source) -> bool:
    """Return whether a file belongs to the kernel."""
    return source.path.is_relative_to(KERNEL)


def find_package(source: Source) -> str:
    """Return the import name of the package that a file belongs to."""
    parts = source.path.parts
    return parts[parts.index("src") + 1]


def room(source: Source) -> str:
    """Return the room of a file of the kernel; the name of a file at its top is its own."""
    return source.path.relative_to(KERNEL).parts[0].removesuffix(".py")


def count_lines(sources: Iterable[Source]) -> int:
    """Return the number of code lines of files."""
    return sum(len(source.code_lines()) for source in sources)


def find_untyped_types(sources: Iterable[Source]) -> set[str]:
    """Return the types that tell a reader nothing: `Any`, `object` and the aliases that files give
    them. No annotation, the empty text, means `Any` to a type checker, so it is one of them.
    """
    types = {"", *_UNTYPED}
    for source in sources:
        types.update(source.untyped_aliases())
    return types


def share_untyped(sources: Iterable[Source], untyped_types: set[str]) -> float:
    """Return the share of parameters whose whole type is one of `untyped_types`."""
    types: list[str] = []
    for source in sources:
        types.extend(source.parameters())
    untyped = sum(text in untyped_types for text in types)
    return untyped / max(1, len(types))


def compare(before: Iterable[Source], after: Iterable[Source]) -> Mapping[str, int]:
    """Return how many code lines left the kernel for other packages, and how many were deleted and
    added in all.

    Lines are told by their text: one that left the kernel and is new elsewhere has moved.
    """
    kernel_before, others_before = _lines_by_place(before)
    kernel_after, others_after = _lines_by_place(after)
    moved = (kernel_before - kernel_after) & (others_after - others_before)
    all_before, all_after = kernel_before + others_before, kernel_after + others_after
    return {
        "moved": moved.total(),
        "deleted": (all_before - all_after).total(),
        "added": (all_after - all_before).total(),
    }


def _lines_by_place(sources: Iterable[Source]) -> tuple[Counter[str], Counter[str]]:
    kernel: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for source in sources:
        (kernel if in_kernel(source) else others).update(source.code())
    return kernel, others
