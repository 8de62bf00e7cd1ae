"""A Sphinx extension: pages of the repository as pages of the site, and links between them and to
classes.

Pages are written for people who browse the repository, with links from file to file. A page of the
site that is nothing but an `include` of a file outside this folder gets that file's text. A link to
such a file leads to its page, and a link to any other file of the repository to a copy of it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from docutils.nodes import Element, TextElement
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode
from sphinx.util.typing import ExtensionMetadata

DOCS = Path(__file__).resolve().parents[1]
_INCLUDE = re.compile(r"^```\{include\} (\S+)\n```$", re.M)
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?(?: \"[^\"]*\")?\))")


def stubs() -> dict[Path, Path]:
    """Return the files outside this folder that have a page here → that page."""
    found = {}
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        for target in _INCLUDE.findall(text):
            found[(page.parent / target).resolve()] = page
    return found


def relinked(text: str, written: Path, page: Path, pages: dict[Path, Path]) -> str:
    """Return a text whose links lead where they led, from the page that shows it.

    Args:
        text: Markdown.
        written: The file that holds it, which its links start from.
        page: The file of the page that shows it.
        pages: Files that are shown by a page → that page.
    """

    def link(match: re.Match[str]) -> str:
        if "://" in match[2]:
            return match[0]
        target = (written.parent / match[2]).resolve()
        if (target / "README.md").exists():
            target = target / "README.md"
        target = pages.get(target, target)
        return match[1] + os.path.relpath(target, page.parent) + match[3]

    return _LINK.sub(link, text)


def read_page(app: Sphinx, docname: str, content: list[str]) -> None:
    """Give a page the text of the file that it includes, with links that lead to pages."""
    pages, page = stubs(), Path(app.env.doc2path(docname))
    text = content[0]
    included = _INCLUDE.search(text)
    written = page
    if included:
        written = (page.parent / included[1]).resolve()
        app.env.note_dependency(str(written))
        text = text.replace(included[0], written.read_text(encoding="utf-8"))
    content[0] = relinked(text, written, page, pages)


def written_short(
    app: Sphinx, env: BuildEnvironment, node: Element, shown: TextElement
) -> Element | None:
    """Lead a class that a docstring names without its module to the one that is described under
    this name.
    """
    if node.get("refdomain") != "py" or node.get("reftype") not in ("class", "exc"):
        return None
    name = node["reftarget"].rpartition(".")[2]
    if f"\n## `{name}`\n" in (DOCS / "reference/errors.md").read_text(encoding="utf-8"):
        return make_refnode(
            app.builder, node["refdoc"], "reference/errors", name.lower(), shown, name
        )
    domain = env.domains.python_domain
    found = {
        full
        for full in domain.objects
        if full.rpartition(".")[2] == name and not domain.objects[full].aliased
    }
    if len(found) != 1:
        return None
    place = domain.objects[full := found.pop()]
    return make_refnode(app.builder, node["refdoc"], place.docname, place.node_id, shown, full)


def as_written(_: Sphinx, what: str, *rest: Any) -> None:
    """Read a docstring as it is meant: a colon in an attribute's first line ends no type, code may
    have a plural.
    """
    lines = rest[-1]
    lines[:] = [re.sub(r"(`[^`]+`)(\w)", r"\1\\ \2", line) for line in lines]
    before, colon, after = lines[0].partition(": ") if lines else ("", "", "")
    if what in ("attribute", "property", "data") and colon:
        lines[0:1] = [before + ":", after]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the extension."""
    app.connect("source-read", read_page)
    app.connect("autodoc-process-docstring", as_written, priority=400)  # before napoleon
    app.connect("missing-reference", written_short)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
