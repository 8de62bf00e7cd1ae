"""Measures one part in this process: `python -m benchmarks.part PART JSON_FILE [NAME ...]`; started
by the command.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from benchmarks import harness, profiles
from rlcatalog.frameworks import load_first

#: Those whose results are no times of calls: they print tables of their own.
OWN_TABLES = ("ppo", "sb3", "rllib")


def main(part: str, target: str, names: list[str]) -> None:
    """Print the part's table, profile what is over budget, and write what is kept."""
    load_first("triton", before="tensorflow")  # some parts meet PyTorch's optimisers
    harness.CHOSEN[:] = names
    if part not in OWN_TABLES:
        print(harness.HEADER, flush=True)
    found = [*importlib.import_module(f"benchmarks.cases_{part}").run()]
    profiles.report(found)
    kept = {figure.name: figure.entry for figure in harness.figures(found)}
    Path(target).write_text(json.dumps(kept), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
