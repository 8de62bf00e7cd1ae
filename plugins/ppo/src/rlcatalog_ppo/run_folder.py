"""A training run's folder: `metrics.jsonl`, `learning_curve.png`, `config.json` and the saved policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlcatalog.errors import SavedPolicyError

CONFIG, METRICS, CURVE, POLICY = "config.json", "metrics.jsonl", "learning_curve.png", "policy"


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Write the resolved config of a run."""
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def read_config(folder: Path) -> dict[str, Any]:
    """Read the config of a run.

    Raises:
        SavedPolicyError: The folder holds no run, or its config is damaged.
    """
    path = folder / CONFIG
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict) or not {"env", "algorithm"} <= config.keys():
            raise ValueError("it names no environment")
    except (OSError, ValueError) as error:
        raise SavedPolicyError(f"{folder}: not a folder that `rlcatalog train` wrote: {path.name}: {error}") from error
    return config


def draw(path: Path, results: Sequence[dict[str, Any]], title: str) -> None:
    """Draw the learning curve: mean return of the last 100 episodes over environment steps."""
    from matplotlib.figure import Figure

    points = [(r["timesteps_total"], r["episode_return_mean"]) for r in results if r["episode_return_mean"] is not None]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([x for x, _ in points], [y for _, y in points], color="#1f6fb2")
    axes.set(title=title, xlabel="environment steps", ylabel="mean return, last 100 episodes")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
