"""Draws `docs/_static/card.png`, which other sites show beside a link, from `card.svg`.

It needs Chromium, and `make docs` does not need it: run it after `card.svg` has changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from generated import ROOT

CARD = ROOT / "docs/_static/card.svg"
#: Names under which Chromium is installed.
BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome", "chrome")


def main() -> int:
    """Draw the picture."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"Chromium is not installed: none of {', '.join(BROWSERS)}", file=sys.stderr)
        return 1
    page = f"<style>body {{ margin: 0 }}</style>{CARD.read_text(encoding='utf-8')}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "card.html"
        path.write_text(page, encoding="utf-8")
        command = [
            browser,
            "--headless",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1200,630",
            f"--user-data-dir={folder}/profile",
            f"--screenshot={CARD.with_suffix('.png')}",
        ]
        if os.geteuid() == 0:
            command.append("--no-sandbox")
        subprocess.run([*command, path.as_uri()], check=True, capture_output=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
