"""Clarity figures of three libraries that people like to read, for `tools/house.py`.

`house_peers.json` keeps the figures with the versions that they were counted in.
"""

from __future__ import annotations

import json
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

from house_clarity import measure_clarity
from house_code import Source

FILE = Path(__file__).with_name("house_peers.json")
#: Heading of a library's column → its distribution.
PEERS = {"pluggy": "pluggy", "SB3": "stable-baselines3", "httpx": "httpx"}


def read_peers(file: Path = FILE) -> dict[str, dict[str, str]]:
    """Return heading → measure → figure; a heading is a library's name and version."""
    peers = json.loads(file.read_text(encoding="utf-8"))
    return {f"{name} {peer['version']}": peer["figures"] for name, peer in peers.items()}


def write_peers(folder: Path, file: Path = FILE) -> None:
    """Measure the libraries that pip installed into a folder, and keep their figures."""
    peers = {}
    for name, project in PEERS.items():
        distribution = _find_distribution(folder, project)
        rows = measure_clarity(folder, _read_distribution(folder, distribution))
        figures = {row.measure: row.figure for row in rows}
        peers[name] = {"version": distribution.version, "figures": figures}
    file.write_text(json.dumps(peers, indent=2) + "\n", encoding="utf-8")


def _find_distribution(folder: Path, project: str) -> Distribution:
    for distribution in distributions(name=project, path=[str(folder)]):
        return distribution
    raise FileNotFoundError(
        f"{folder} does not contain {project}. Install it there:"
        f" pip install --no-deps --target {folder} {' '.join(PEERS.values())}"
    )


def _read_distribution(folder: Path, distribution: Distribution) -> list[Source]:
    """Return the Python files of an installed library."""
    sources = []
    for file in distribution.files or ():
        if file.suffix == ".py":
            text = (folder / file).read_text(encoding="utf-8")
            sources.append(Source(PurePosixPath(file), text))
    return sources
