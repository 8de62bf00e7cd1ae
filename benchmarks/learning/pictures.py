"""Pictures of the comparison: differences with intervals, and learning curves with bands."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.measures import MARK, Estimate
from benchmarks.learning.task import Side
from rlcatalog_runs.comparison import interquartile_mean, interval

Array = np.ndarray[Any, Any]
#: Of Okabe and Ito; a side has the same colour everywhere.
COLOURS = {
    ("sb3", "own"): "#56b4e9",
    ("sb3", "numbers"): "#999999",
    ("sb3", "catalog"): "#0072b2",
    ("ours", "catalog"): "#009e73",
    ("ours", "attention"): "#cc79a7",
    ("ours", "lstm"): "#cc79a7",
    ("ours", "independent"): "#e69f00",
    ("rllib", "own"): "#e69f00",
    ("rllib", "catalog"): "#d55e00",
}
#: Dark colours for matplotlib's figures, whose colours are inline styles; texts have none.
_DARK = """<style>
   @media (prefers-color-scheme: dark) {
    text { fill: #d1d5db; }
    [style*="fill: #ffffff"] { fill: #131416 !important; }
    [style*="stroke: #000000"] { stroke: #d1d5db !important; }
    [style*="stroke: #cccccc"] { stroke: #3f4348 !important; }
   }
  </style>"""


def draw_differences(path: Path, rows: Sequence[tuple[str, Side, Estimate]]) -> None:
    """Draw the differences of labelled rows, in percent of the range."""
    plt = _pyplot()
    fig, axes = plt.subplots(figsize=(8, 0.32 * len(rows) + 1.2), layout="constrained")
    for place, (_, side, (point, low, high)) in enumerate(reversed(rows)):
        axes.plot([low, high], [place, place], color=COLOURS[side], linewidth=3, alpha=0.5)
        axes.plot(point, place, "o", color=COLOURS[side])
    axes.axvline(0, color="gray", linewidth=1)
    axes.axvline(MARK, color="gray", linewidth=1, linestyle=":")
    axes.set_yticks(range(len(rows)), [label for label, *_ in reversed(rows)])
    axes.set_xlabel("difference, percent of the task's range (95% intervals)")
    _save(fig, path)


def draw_curves(
    path: Path,
    panels: Sequence[tuple[str, Mapping[Side, tuple[Array, Array]]]],
    names: Mapping[Side, str],
) -> None:
    """Draw panels of curves, two in a row.

    Args:
        path: The picture.
        panels: Title, and for each side steps `[points]` and returns `[seeds, points]`.
        names: Names of sides, for the legend.
    """
    plt = _pyplot()
    height = -(-len(panels) // 2)
    fig, grid = plt.subplots(
        height, 2, figsize=(9, 2.2 * height + 0.4), layout="constrained", squeeze=False
    )
    shown: dict[Side, Any] = {}
    for axes, (title, curves) in zip(grid.flat, panels, strict=False):
        for side, (steps, returns) in curves.items():
            shown[side] = axes.plot(steps, interquartile_mean(returns), color=COLOURS[side])[0]
            if len(returns) > 1:
                axes.fill_between(
                    steps, *interval(returns), color=COLOURS[side], alpha=0.2, linewidth=0
                )
        axes.set_title(title, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(alpha=0.3)
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    for axes in grid[-1]:
        axes.set_xlabel("environment steps", fontsize=8)
    sides = [side for side in COLOURS if side in shown]
    fig.legend(
        [shown[side] for side in sides],
        [names[side] for side in sides],
        loc="outside lower center",
        ncols=3,
        fontsize=7,
    )
    _save(fig, path)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _save(fig: Any, path: Path) -> None:
    """Write a figure as an SVG file that has dark colours where the reader prefers them."""
    plt = _pyplot()
    text = io.StringIO()
    # Texts stay texts, and the same figure gives the same file.
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rlcatalog"}):
        fig.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(fig)
    head, style, rest = text.getvalue().partition("<style")
    assert style, "matplotlib writes a style, before which ours is placed"
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(f"{head}{_DARK}\n  {style}{rest}", encoding="utf-8")
