"""A training run's picture: `learning_curve.png`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from rlcatalog.errors import one_line
from rlcatalog_policy import write_file
from rlcatalog_runs.summaries import Row


def draw(path: Path, rows: Sequence[Row], title: str) -> None:
    """Draw the learning curve: mean return of the last 100 episodes over environment steps."""
    from matplotlib.figure import Figure

    points = [(row.timesteps_total, row.episode_return_mean) for row in rows if row.episode_return_mean is not None]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([x for x, _ in points], [y for _, y in points], color="#1f6fb2")
    axes.set_title(one_line(title), parse_math=False)
    axes.set(xlabel="environment steps", ylabel="mean return, last 100 episodes")
    axes.grid(alpha=0.3)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120, format="png")
    write_file(path.parent, path.name, picture.getvalue())
