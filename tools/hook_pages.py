"""Writes what `docs/reference/hooks` takes from the code: each hook's signature and the fields of
its declaration, from their docstrings.

Run by `tools/reference_pages.py`. What a page says around that, an example and the contract of the
class that the declaration names, is written by hand.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generated import ROOT, fill, table

from rlcatalog import Request
from rlcatalog.plugins import hookspecs
from rlcatalog.plugins.declarations import Declaration
from rlcatalog.plugins.loader import HOOK_RETURNS

TARGET = ROOT / "docs/reference/hooks"


def split_docstring(value: Any) -> tuple[str, dict[str, str]]:
    """Return an object's description as Markdown, and the names and meanings of its attributes."""
    text = inspect.cleandoc(value.__doc__ or "")
    text = text.partition("\n\nExample:\n")[0]
    description, _, attributes = text.partition("\n\nAttributes:\n")
    entries = re.sub(r"\n {5,}", " ", attributes).splitlines()
    pairs = (entry.strip().partition(": ") for entry in entries)
    return description, {name: meaning for name, _, meaning in pairs if name}


def describe_hook(hook: str) -> str:
    """Return a hook's signature, what it returns, and the fields of that declaration."""
    function = getattr(hookspecs, hook)
    source = inspect.getsource(function)
    (line,) = re.findall(r"^def .*$", source, re.M)
    signature = line.partition(":  #")[0]  # without a comment for a linter
    declaration = HOOK_RETURNS[hook]
    description, fields = split_docstring(declaration)
    text = ["```", signature, "```", "", inspect.cleandoc(function.__doc__ or ""), ""]
    text += [f"**`{declaration.__name__}`.** {description}"]
    if fields:
        text += ["", table(("field", "meaning"), *_rows(fields))]
    return "\n".join(text)


def _rows(fields: dict[str, str]) -> list[tuple[str, str]]:
    return [(f"`{name}`", meaning) for name, meaning in fields.items()]


def list_hooks() -> str:
    """Return the table of all hooks."""
    rows = []
    for hook, declaration in HOOK_RETURNS.items():
        summary = inspect.cleandoc(getattr(hookspecs, hook).__doc__ or "").partition("\n\n")[0]
        meaning = summary.replace("\n", " ").removeprefix("Return the ")
        meaning = meaning.replace(" that this plugin provides", "").rstrip(".")
        rows.append((f"[`{hook}`]({hook}.md)", f"`{declaration.__name__}`", meaning))
    return table(("hook", "returns a list of", "for"), *rows)


def _request_fields() -> Iterator[tuple[str, str]]:
    """Yield the names of a request's attributes and properties, each with its meaning."""
    _, fields = split_docstring(Request)
    yield from fields.items()
    for name, value in vars(Request).items():
        if isinstance(value, property):
            summary = inspect.cleandoc(value.__doc__ or "").partition("\n\n")[0]
            yield name, summary.replace("\n", " ")


def pages() -> dict[Path, str]:
    """Return the pages with what they take from the code: file → text."""
    _, fields = split_docstring(Declaration)
    contents: dict[Path, dict[str, str]] = {
        TARGET / "index.md": {
            "hooks": list_hooks(),
            "fields": table(("field", "meaning"), *_rows(fields)),
            "request": table(("attribute", "meaning"), *_rows(dict(_request_fields()))),
        }
    }
    for hook in HOOK_RETURNS:
        contents[TARGET / f"{hook}.md"] = {"declaration": describe_hook(hook)}
    return {
        path: fill(path, path.read_text(encoding="utf-8"), tables)
        for path, tables in contents.items()
    }
