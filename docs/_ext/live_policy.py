"""A Sphinx extension: what the home page needs to play an exported policy in the browser.

The programs are those of `examples/browser`. onnxruntime-web is there after `npm ci
--ignore-scripts` in that folder, which `make docs` runs if npm is installed. Without it, the page
shows a film instead.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

BROWSER = Path(__file__).resolve().parents[2] / "examples/browser"
RUNTIME = BROWSER / "node_modules/onnxruntime-web/dist"
PROGRAMS = ("cartpole.js", "policy.js")
#: The files of onnxruntime-web that a page loads for a policy on the CPU.
RUNTIME_FILES = (
    "ort.wasm.min.mjs",
    "ort-wasm-simd-threaded.mjs",
    "ort-wasm-simd-threaded.wasm",
)


def is_runtime_installed() -> bool:
    """Return whether the files of onnxruntime-web are there."""
    return all((RUNTIME / name).is_file() for name in RUNTIME_FILES)


def add_script(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Add the script to the home page, and the picture that other sites show beside a link."""
    card = app.config.html_baseurl + context["pathto"]("_static/card.png", 1)
    tags = context.get("metatags", "")  # generated pages have none
    context["metatags"] = tags + f'<meta property="og:image" content="{card}">'
    if page == "index" and is_runtime_installed():
        app.add_js_file("live.js", type="module")


def copy_files(app: Sphinx, error: Exception | None) -> None:
    """Copy the programs and onnxruntime-web into the site."""
    if error or app.builder.format != "html" or not is_runtime_installed():
        return
    target = Path(app.outdir) / "_static/live"
    (target / "onnxruntime").mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        shutil.copy(BROWSER / name, target)
    for name in RUNTIME_FILES:
        shutil.copy(RUNTIME / name, target / "onnxruntime")


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the extension."""
    app.connect("html-page-context", add_script)
    app.connect("build-finished", copy_files)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
