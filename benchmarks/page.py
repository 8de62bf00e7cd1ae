"""The tables in `docs/reference/speed_floors.md`: what `make bench BENCH_ARGS=--save` has printed,
part by part, with where it ran.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
#: The page of `make bench`, and that of `make gpu`.
PAGE = _REFERENCE / "speed_floors.md"
GPU_PAGE = _REFERENCE / "speed_gpu.md"
BEGIN, END = "<!-- written by `make bench BENCH_ARGS=--save`: begin -->", "<!-- end -->"


def parts(page: str, begin: str) -> tuple[str, str, str]:
    """Return a page's marked region, and what comes before and after it, markers included.

    Raises:
        SystemExit: The page has no such region.
    """
    before, found, rest = page.partition(begin)
    region, end, after = rest.partition(END)
    if not (found and end):
        raise SystemExit(
            f"The page must hold the lines {begin!r} and {END!r}, between which the tables stand."
        )
    return f"{before}{begin}", region, f"{END}{after}"


def replaced(page: str, begin: str, text: str) -> str:
    """Return a page with another text in its marked region."""
    before, _, after = parts(page, begin)
    return f"{before}\n\n{text}\n\n{after}"


def processor() -> str:
    """Return the name of the processor."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    name = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return name[1] if name else platform.processor() or platform.machine()


def machine() -> str:
    """Return what is measured on: the processor, the number of cores that may be used, and how busy
    they are.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f", load {os.getloadavg()[0]:.1f} at the end" if hasattr(os, "getloadavg") else ""
    many = "core" if cores == 1 else "cores"
    return f"{processor()}, {cores} {many}{load}, {platform.system()}"


def sections(printed: str) -> dict[str, str]:
    """Return part → table of what was printed, whose headings are `## part`."""
    pieces = re.split(r"^#{2,3} (\w+)$", printed, flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(pieces[1::2], pieces[2::2], strict=True)}


def updated(
    page: str,
    printed: str,
    measured: Mapping[str, Mapping[str, Any]],
    order: Sequence[str],
    where: str,
) -> str:
    """Return the page with the tables of some parts replaced; the others stay.

    Args:
        page: The page.
        printed: What the benchmarks printed.
        measured: Part → when it was measured, and with which versions.
        order: All parts, in the order of the page.
        where: What was measured on.

    Raises:
        SystemExit: The page does not say where its tables stand.
    """
    found = sections(parts(page, BEGIN)[1])
    for part, table in sections(printed).items():
        versions = ", ".join(
            f"{name} {version}" for name, version in measured[part]["versions"].items()
        )
        found[part] = f"{measured[part]['date']}; {where}; {versions}.\n\n{table}"
    text = "\n\n".join(f"### {part}\n\n{found[part]}" for part in order if part in found)
    return replaced(page, BEGIN, text)
