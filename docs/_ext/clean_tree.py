"""A Sphinx extension: a build that changes the repository fails, and names the files."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata


def changed_files(folder: Path) -> set[str]:
    """Return the files of a folder that differ from the last commit, new ones included; none
    outside of git.
    """
    command = ["git", "status", "--porcelain", "--untracked-files=all", "--", "."]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return set()
    return {line[3:] for line in done.stdout.splitlines()}


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the extension."""
    folder = Path(app.srcdir)
    before = changed_files(folder)

    def check(app: Sphinx, error: Exception | None) -> None:
        if changed := sorted(changed_files(folder) - before):
            raise RuntimeError(
                f"the build changed {', '.join(changed)}. Let the page write into its working"
                " folder, which is removed: nb_execution_in_temp in docs/conf.py."
            )

    app.connect("build-finished", check)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
