"""Writes the tables of `docs/results.md`: what learning tests returned, from the records beside
them.

Run it after `make sweep` has written a record: `python tools/results_page.py`, or with `--check` to
only say whether the page is up to date.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from generated import ROOT, fill, table, write

TARGET = ROOT / "docs/results.md"
_NAMES = {
    "ppo": "PPO", "dqn": "DQN", "sac": "SAC", "td3": "TD3", "a2c": "A2C", "pg": "PG",
    "cartpole": "CartPole", "pendulum": "Pendulum", "lstm": "LSTM", "api": "API",
    "tf": "TensorFlow", "torch": "PyTorch", "appo": "APPO", "impala": "IMPALA",
    "sb3": "Stable-Baselines3", "minigrid": "MiniGrid", "acrobot": "Acrobot",
}  # fmt: skip


def records() -> dict[Path, dict[str, dict[str, Any]]]:
    """Return the records: test file → test → its record."""
    paths = sorted(
        [
            *ROOT.glob("tests/learning/test_learn_*.json"),
            *ROOT.glob("*/*/tests/test_*_learning.json"),
        ]
    )
    return {path.with_suffix(".py"): json.loads(path.read_text(encoding="utf-8")) for path in paths}


def words(test: str) -> str:
    """Return what a test of learning shows, in words."""
    name, _, case = test.removeprefix("test_").rstrip("]").partition("[")
    said = " ".join(_NAMES.get(word, word) for word in name.split("_"))
    case = ", ".join(_NAMES.get(word, word) for word in case.split("-"))
    return f"{said} ({case})" if case else said


def row(test: str, record: dict[str, Any]) -> tuple[str, ...]:
    """Return a row of the table: what was learned, and the returns over seeds."""
    returns = sorted(record.get("returns", {}).values())
    mark = f"≥ {record['at_least']:.4g}" if "at_least" in record else f"≤ {record['at_most']:.4g}"
    chance = f"{record['chance']:.4g}" if record.get("chance") is not None else "—"
    if not returns:
        return words(test), f"none: {record['exception']}", "—", "—", mark, chance
    spread = f"{returns[0]:.5g} to {returns[-1]:.5g}"
    return words(test), str(len(returns)), f"{statistics.median(returns):.5g}", spread, mark, chance


def tables() -> str:
    """Return the tables, one for each file of tests."""
    text = []
    for path, found in records().items():
        place = path.relative_to(ROOT).as_posix()
        head = ("what", "seeds", "median", "lowest to highest", "threshold", "chance")
        rows = [row(test, record) for test, record in sorted(found.items())]
        text += [f"[`{place}`](../{place})", "", table(head, *rows), ""]
    return "\n".join(text[:-1])


def filled(text: str) -> str:
    """Return the page with its tables written anew, between their markers."""
    return fill(TARGET, text, {"records": tables()})


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is up to date."""
    return write({TARGET: filled(TARGET.read_text(encoding="utf-8"))}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
