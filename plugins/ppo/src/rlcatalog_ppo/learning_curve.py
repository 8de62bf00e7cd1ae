"""A training run's picture: `learning_curve.png`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


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
