"""The kernel: import, discovery, repeated lookups, build."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym

import rlcatalog
from benchmarks.harness import Case, Figure, Result, report, wanted

_PLUGIN = """
from rlcatalog import Match, ModelSpec, Rank, hookimpl

@hookimpl
def rlcatalog_models():
    target, config = "bench_plugin_{i}.torch:Net", "bench_plugin_{i}.config:Keys"
    return [ModelSpec("net_{i}", {{"torch": target}}, "a net", config=config)]
"""
_CONFIG = """
from typing import Annotated
import msgspec
from msgspec import Meta

class Keys(msgspec.Struct, frozen=True, kw_only=True):
    bench_{i}_width: Annotated[int, Meta(ge=1, description="width")] = 64
"""
_METADATA = (
    "Metadata-Version: 2.1\nName: bench-plugin-{i}\nVersion: 1.0\nRequires-Dist:"
    " rlcatalog<0.2,>=0.1\n"
)


def _seconds(code: str, path: Path | None = None) -> float:
    """Run code in a fresh process; it prints the seconds it measured."""
    paths = f"import sys; sys.path.insert(0, {str(path)!r})\n" if path else ""
    run = subprocess.run(
        [sys.executable, "-c", paths + code], capture_output=True, text=True, check=True
    )
    return float(run.stdout.split()[-1])


def _process(code: str) -> float:
    timed = f"import time; t = time.perf_counter()\n{code}\nprint(time.perf_counter() - t)"
    return _seconds(timed)


#: Times a plain interpreter's standard library, which nobody here changes: the measure of imports
#: and discovery.
_STANDARD = (
    "import argparse, asyncio, csv, email.message, json, logging, sqlite3, unittest,"
    " xml.dom.minidom"
)


def import_time(rounds: int = 9) -> list[Figure]:
    """Print the time of `import rlcatalog` above bare Python, in fresh processes."""
    name = "import rlcatalog, above bare Python"
    if not wanted(name):
        return []
    pairs = [(_process("import rlcatalog"), _process(_STANDARD)) for _ in range(rounds)]
    cost = statistics.median(cost for cost, _ in pairs) * 1e3
    mark = "met" if cost <= 60 else "**missed**"
    print(f"| {name} | {cost:.1f} ms | | | 60 ms | {mark} |")
    return [Figure(name, [cost / standard for cost, standard in pairs])]


def first_lookup(rounds: int = 9) -> list[Figure]:
    """Print the time of a process's first lookup: plugins are found and loaded, parts chosen, no
    framework imported.
    """
    name = "first lookup, CartPole"
    if not wanted(name):
        return []
    code = (
        "import sys, time, gymnasium as gym, numpy, rlcatalog\nspaces = gym.spaces.Box(-1, 1,"
        " (4,)), gym.spaces.Discrete(2)\nt ="
        " time.perf_counter()\nrlcatalog.default_catalog().resolve(*spaces)\nspent ="
        " time.perf_counter() - t\nassert not {'torch', 'tensorflow'} &"
        " set(sys.modules)\nprint(spent)"
    )
    pairs = [(_seconds(code), _process(_STANDARD)) for _ in range(rounds)]
    cost = statistics.median(cost for cost, _ in pairs) * 1e3
    mark = "met" if cost <= 150 else "**missed**"
    print(f"| {name} | {cost:.1f} ms | | | 150 ms | {mark} |")
    return [Figure(name, [cost / standard for cost, standard in pairs])]


def discovery(rounds: int = 5) -> list[Figure]:
    """Print the cost of a plugin between 100 and 500 of them, and whether it is linear."""
    margin_name, linear_name = (
        "discovery, a plugin more (100 to 500)",
        "discovery, 200 plugins against 100",
    )
    if not wanted(margin_name) and not wanted(linear_name):
        return []
    code = (
        "import time, rlcatalog\nfrom rlcatalog.plugins.discovery import scan\n"
        "import importlib_metadata, msgspec, pluggy\n"
        "from rlcatalog import Catalog\nt = time.perf_counter()\n"
        "found = [e for e in scan() if e.name.startswith('bench')]\n"
        "c = Catalog(found)\nassert len(c.parts()) == {n}\nprint(time.perf_counter() - t)"
    )
    times: dict[int, list[float]] = {100: [], 200: [], 500: []}
    standard = []
    with tempfile.TemporaryDirectory() as folder:
        paths = {n: _plugins(Path(folder) / str(n), n) for n in times}
        for n, path in paths.items():
            _seconds(code.format(n=n), path)  # writes the byte code
        for _ in range(rounds):
            standard.append(_process(_STANDARD))
            for n, path in paths.items():
                times[n].append(_seconds(code.format(n=n), path))
    cost = {n: statistics.median(values) * 1e3 for n, values in times.items()}
    margin = (cost[500] - cost[100]) / 400
    mark = "met" if margin <= 1 else "**missed**"
    print(f"| {margin_name} | {margin:.2f} ms | | | 1 ms | {mark} |")
    print(
        f"| {linear_name} | {cost[200]:.0f} ms | {cost[100]:.0f} ms"
        f" | {cost[200] / cost[100]:.2f} | | for scale |"
    )
    margins = [(a - b) / c for a, b, c in zip(times[500], times[100], standard, strict=True)]
    linear = [a / b for a, b in zip(times[200], times[100], strict=True)]
    return [Figure(margin_name, margins), Figure(linear_name, linear)]


def _plugins(folder: Path, n: int) -> Path:
    for i in range(n):
        package = folder / f"bench_plugin_{i}"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "plugin.py").write_text(_PLUGIN.format(i=i))
        (package / "config.py").write_text(_CONFIG.format(i=i))
        info = folder / f"bench_plugin_{i}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            _METADATA.format(i=i) + "\n" + "A line of description.\n" * 40
        )
        (info / "entry_points.txt").write_text(
            f"[rlcatalog.plugins]\nbench-{i} = bench_plugin_{i}.plugin\n"
        )
    return folder


def lookups() -> Iterator[Case]:
    """A repeated lookup: same space objects, equal config."""
    catalog = rlcatalog.default_catalog()
    box, discrete = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2)
    nested = gym.spaces.Dict({f"part{i}": gym.spaces.Box(-1, 1, (3,)) for i in range(20)})
    config = {"fcnet_hiddens": [64, 64], "fcnet_activation": "relu", "vf_share_layers": False}
    for name, space in (("CartPole", box), ("a 20-leaf Dict", nested)):
        yield Case(
            f"repeated lookup, {name}",
            lambda s=space: catalog.resolve(s, discrete, dict(config), "torch"),
            None,
            20,
        )


def run() -> list[Figure | Result]:
    """Print the kernel's cases."""
    return [*import_time(), *first_lookup(), *discovery(), *report(lookups())]
