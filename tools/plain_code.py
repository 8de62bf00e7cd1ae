"""Check what packs several steps into one expression, or hides what an argument means.

ruff has no rule for these. `CONTRIBUTING.md` says how code is written instead.

    python tools/plain_code.py [PATH ...]

checks the packages' `src` and the examples, or the given files and folders.
`tools/plain_code.toml` lists the exceptions: a file, a function, a rule and the reason.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
EXCEPTIONS = ROOT / "tools" / "plain_code.toml"

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Finding(NamedTuple):
    """A place that breaks a rule."""

    file: str
    line: int
    function: str
    rule: str


class File:
    """A file with what the rules ask about its nodes.

    Args:
        name: The file's path, relative to the checkout.
        text: What it holds.
        our_functions: The functions and classes that our packages define.
    """

    def __init__(self, name: str, text: str, our_functions: frozenset[str]) -> None:
        self.name = name
        self.tree = ast.parse(text)
        self._lines = text.splitlines()
        self._parents: dict[ast.AST, ast.AST] = {}
        for parent in ast.walk(self.tree):
            for child in ast.iter_child_nodes(parent):
                self._parents[child] = parent
        self._our_names = self._imported_from_us() | defined_names(self.tree)
        self._our_names &= our_functions

    def parents(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, from the inside out."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    def function_of(self, node: ast.AST) -> str:
        """Return the name of the function around a node, with its class."""
        owners = [node, *self.parents(node)]
        named = [owner for owner in owners if isinstance(owner, (*_FUNCTIONS, ast.ClassDef))]
        return ".".join(owner.name for owner in reversed(named))

    def has_comment(self, node: ast.AST) -> bool:
        """Return whether a comment stands in the lines of a node's statement or right above."""
        statement = next(
            owner for owner in (node, *self.parents(node)) if isinstance(owner, ast.stmt)
        )
        end = getattr(node, "end_lineno", None) or statement.lineno
        return any("#" in line for line in self._lines[statement.lineno - 2 : end])

    def calls_ours(self, call: ast.Call) -> bool:
        """Return whether a call's target is a function or class of our packages.

        Only names that the file defines or imports, and methods of `self`, are known.
        """
        target = call.func
        if isinstance(target, ast.Name):
            return target.id in self._our_names
        is_own_method = (
            isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and target.value.id in ("self", "cls")
        )
        return is_own_method and target.attr in self._our_names

    def _imported_from_us(self) -> set[str]:
        names: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rlcatalog"):
                names.update(alias.asname or alias.name for alias in node.names)
        return names


def defined_names(tree: ast.AST) -> set[str]:
    """Return the names of the functions and classes that a file defines."""
    return {node.name for node in ast.walk(tree) if isinstance(node, (*_FUNCTIONS, ast.ClassDef))}


def find(file: File) -> Iterator[Finding]:
    """Yield what breaks a rule in a file, in the order of its lines."""
    findings = []
    for node in ast.walk(file.tree):
        for name, rule in RULES.items():
            if isinstance(node, rule.node) and rule.is_broken(node, file):
                findings.append(Finding(file.name, node.lineno, file.function_of(node), name))
    yield from sorted(findings, key=lambda finding: finding.line)


# --- the rules ------------------------------------------------------------------------------------


def _contains_conditional(node: ast.IfExp, file: File) -> bool:
    return any(isinstance(child, ast.IfExp) for child in ast.walk(node) if child is not node)


def _packs_f_string(node: ast.JoinedStr, file: File) -> bool:
    for field in node.values:
        if isinstance(field, ast.FormattedValue):
            inside = ast.walk(field.value)
            if any(isinstance(part, ast.IfExp | ast.JoinedStr) for part in inside):
                return True
    return False


def _multiplies_by_condition(node: ast.BinOp, file: File) -> bool:
    is_product = isinstance(node.op, ast.Mult)
    return is_product and _is_text_or_list(node.left) and _is_condition(node.right)


def _is_text_or_list(node: ast.expr) -> bool:
    if isinstance(node, ast.JoinedStr | ast.List):
        return True
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_condition(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "bool"
    is_not = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return is_not or isinstance(node, ast.Compare | ast.BoolOp)


def _stands_for_if(node: ast.BoolOp, file: File) -> bool:
    is_statement = isinstance(next(file.parents(node)), ast.Expr)
    # `condition and value or other`
    chooses = (
        isinstance(node.op, ast.Or)
        and isinstance(node.values[0], ast.BoolOp)
        and isinstance(node.values[-1], ast.Constant)
    )
    return is_statement or chooses


def _is_no_test(walrus: ast.NamedExpr, file: File) -> bool:
    """Return whether a walrus stands elsewhere than in the one condition of an `if` or `while`."""
    inner: ast.AST = walrus
    for parent in file.parents(walrus):
        if isinstance(parent, ast.If | ast.While):
            return inner is not parent.test
        if isinstance(parent, ast.BoolOp | ast.stmt | ast.comprehension):
            return True
        inner = parent
    return True


def _assigns_several(node: ast.Assign, file: File) -> bool:
    [target, *_] = node.targets
    if not isinstance(target, ast.Tuple) or not isinstance(node.value, ast.Tuple):
        return False
    is_swap = sorted(map(ast.unparse, target.elts)) == sorted(map(ast.unparse, node.value.elts))
    return not is_swap


def _is_kept(function: ast.Lambda, file: File) -> bool:
    parent = next(file.parents(function))
    if isinstance(parent, ast.arguments):
        return True  # a parameter's default
    kept_by = (ast.Assign, ast.AnnAssign, ast.Return, ast.Dict, ast.List, ast.Tuple, ast.IfExp)
    return isinstance(parent, kept_by)


def _passes_bare_value(call: ast.Call, file: File) -> bool:
    return file.calls_ours(call) and any(map(_is_bare, call.args))


def _is_bare(argument: ast.expr) -> bool:
    if isinstance(argument, ast.Constant):
        return argument.value is None or isinstance(argument.value, bool)
    return isinstance(argument, ast.Dict) and not argument.keys


def _asks_without_reason(call: ast.Call, file: File) -> bool:
    is_question = isinstance(call.func, ast.Name) and call.func.id in ("getattr", "hasattr")
    names_attribute = len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
    return is_question and names_attribute and not file.has_comment(call)


class Rule(NamedTuple):
    """A rule about one kind of node.

    Attributes:
        node: The kind of node.
        is_broken: `is_broken(node, file)` returns whether a node breaks the rule.
        advice: What is wrong, and what to write instead.
    """

    node: type[ast.expr] | type[ast.stmt]
    is_broken: Callable[[Any, File], bool]
    advice: str


RULES = {
    "nested-conditional": Rule(
        ast.IfExp,
        _contains_conditional,
        "a conditional expression inside another one: write `if` statements",
    ),
    "packed-f-string": Rule(
        ast.JoinedStr,
        _packs_f_string,
        "a conditional or an f-string inside an f-string: name it before",
    ),
    "product-as-if": Rule(
        ast.BinOp,
        _multiplies_by_condition,
        "a text or list times a condition: write an `if` statement",
    ),
    "boolean-as-if": Rule(
        ast.BoolOp,
        _stands_for_if,
        "`and` or `or` in place of `if`: write an `if` statement",
    ),
    "walrus": Rule(
        ast.NamedExpr,
        _is_no_test,
        "a walrus that is not the whole test of an `if` or `while`: assign before",
    ),
    "tuple-assignment": Rule(
        ast.Assign,
        _assigns_several,
        "several values assigned at once: write a line for each",
    ),
    "kept-lambda": Rule(
        ast.Lambda,
        _is_kept,
        "a lambda that is stored or returned: define a function",
    ),
    "bare-argument": Rule(
        ast.Call,
        _passes_bare_value,
        "a bare {}, None, True or False as a positional argument: use its keyword",
    ),
    "asked-attribute": Rule(
        ast.Call,
        _asks_without_reason,
        "getattr or hasattr without a comment that says whose object it is",
    ),
}


def read_exceptions() -> dict[tuple[str, str, str], str]:
    """Return (file, function, rule) → reason."""
    entries = tomllib.loads(EXCEPTIONS.read_text()).get("exception", [])
    return {(entry["file"], entry["function"], entry["rule"]): entry["why"] for entry in entries}


def checked_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files to check; if no path is given, those of the packages and the examples."""
    given = list(paths)
    if not given:
        packages = (
            *ROOT.glob("catalog/src"),
            *ROOT.glob("builtin_*/*/src"),
            *ROOT.glob("plugins/*/src"),
        )
        given = [*packages, ROOT / "examples"]
    files: set[Path] = set()
    for path in given:
        files.update(path.resolve().rglob("*.py") if path.is_dir() else [path.resolve()])
    return sorted(files)


def our_functions() -> frozenset[str]:
    """Return the names of the functions and classes of all packages."""
    names: set[str] = set()
    for pattern in ("catalog/src", "builtin_*/*/src", "plugins/*/src"):
        for folder in ROOT.glob(pattern):
            for file in folder.rglob("*.py"):
                names |= defined_names(ast.parse(file.read_text()))
    return frozenset(names)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path, help="files and folders to check")
    exceptions = read_exceptions()
    unused = set(exceptions)
    ours = our_functions()
    paths = parser.parse_args().paths
    count = 0
    for path in checked_files(paths):
        file = File(path.relative_to(ROOT).as_posix(), path.read_text(), ours)
        for finding in find(file):
            key = (finding.file, finding.function, finding.rule)
            unused.discard(key)
            if key not in exceptions:
                count += 1
                print(
                    f"{finding.file}:{finding.line}: {finding.rule}: {RULES[finding.rule].advice}"
                )
    if not paths:
        for name, function, rule in sorted(unused):
            count += 1
            print(
                f"{EXCEPTIONS.name}: {name}, {function}: no {rule} is left there; remove the entry"
            )
    if count:
        sys.exit(f"{count} places to write in another way.")


if __name__ == "__main__":
    main()
