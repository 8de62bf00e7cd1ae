"""A Sphinx extension: each tutorial can be downloaded as a notebook.

The first cell of the notebook installs rlcatalog from a clone. Its text has no links, because they
lead to pages that are not beside it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
from myst_nb.core.read import read_myst_markdown_notebook

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

TUTORIALS = Path(__file__).resolve().parents[1] / "tutorials"
#: The first cell. One of the tutorials imports Stable-Baselines3 and sb3-contrib.
INSTALL = """\
# Start Jupyter in a clone of rlcatalog. This cell installs rlcatalog from there.
%pip install --quiet '.[torch,sb3]' sb3-contrib"""
_TITLE = re.compile(r"^# .*\n", re.M)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def tutorials() -> list[Path]:
    """Return the tutorials: the pages with cells."""
    return [
        path
        for path in sorted(TUTORIALS.glob("*.md"))
        if "{code-cell}" in path.read_text(encoding="utf-8")
    ]


def make_notebook(page: Path) -> nbformat.NotebookNode:
    """Return a tutorial as a notebook, without outputs."""
    notebook = read_myst_markdown_notebook(page.read_text(encoding="utf-8"))
    notebook.metadata = nbformat.from_dict({"kernelspec": _KERNEL})
    install = nbformat.v4.new_code_cell(INSTALL)
    notebook.cells.insert(0, install)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # the same in each build
        if cell.cell_type == "markdown":
            cell.source = _LINK.sub(r"\1", cell.source)
    nbformat.validate(notebook)
    return notebook


def link_notebook(app: Sphinx, docname: str, content: list[str]) -> None:
    """Add a link to the notebook below a tutorial's title."""
    if Path(app.env.doc2path(docname)) not in tutorials():
        return
    address = f"../_static/notebooks/{Path(docname).name}.ipynb"
    link = f'<a href="{address}" download>Download as a notebook</a>'
    html = f'\n```{{raw}} html\n<p class="notebook">{link}</p>\n```\n'
    content[0] = _TITLE.sub(lambda match: match[0] + html, content[0], count=1)


def write_notebooks(app: Sphinx, error: Exception | None) -> None:
    """Write the notebooks into the site."""
    if error or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "_static/notebooks"
    folder.mkdir(parents=True, exist_ok=True)
    for page in tutorials():
        nbformat.write(make_notebook(page), folder / f"{page.stem}.ipynb")


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the extension."""
    app.connect("source-read", link_notebook)
    app.connect("build-finished", write_notebooks)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
