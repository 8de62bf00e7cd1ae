"""The page of the comparison: interquartile means with intervals, and the paired difference in percent of the range."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.engines import BASES
from benchmarks.learning.task import NETS
from benchmarks.learning.tasks import TASKS
from rlcatalog_runs.comparison import interquartile_mean, interval

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, PICTURE, CURVES = DOCS / "learning.md", DOCS / "pictures" / "learning.png", DOCS / "pictures" / "curves.png"
NAMES = {"sb3": "Stable-Baselines3", "rllib": "Ray RLlib", "ours": "rlcatalog-ppo"}
COLOURS = {("sb3", "own"): "#56b4e9", ("sb3", "catalog"): "#0072b2", ("ours", "catalog"): "#009e73",
           ("rllib", "own"): "#e69f00", ("rllib", "catalog"): "#d55e00"}  # fmt: skip
#: The claim: the lower end of the difference, in percent of the task's range.
MARK = -10.0


def paired(rows: list[dict[str, Any]], engine: str, task: str) -> np.ndarray[Any, Any]:
    """Return the returns of the seeds that both sides were trained with, `[seeds, 2]`: what is compared with, ours."""
    sides = [{row["seed"]: row["return"] for row in _runs(rows, side, task)}
             for side in (BASES[engine], (engine, "catalog"))]  # fmt: skip
    seeds = sorted(set(sides[0]) & set(sides[1]))
    return np.array([[side[seed] for side in sides] for seed in seeds]).reshape(-1, 2)


def curves(rows: list[dict[str, Any]], side: tuple[str, str], task: str) -> tuple[np.ndarray[Any, Any], ...] | None:
    """Return steps `[points]` and the returns of all seeds there `[seeds, points]`; None where there are none."""
    found = [np.array(row["curve"]).T for row in _runs(rows, side, task) if row["curve"]]
    if not found:
        return None
    grid = np.linspace(max(steps[0] for steps, _ in found), min(steps[-1] for steps, _ in found), 60)
    return grid, np.stack([np.interp(grid, steps, means) for steps, means in found])


def _runs(rows: list[dict[str, Any]], side: tuple[str, str], task: str) -> list[dict[str, Any]]:
    return [row for row in rows if (row["engine"], row["net"], row["task"]) == (*side, task)]


def summary(returns: np.ndarray[Any, Any], task: str) -> dict[str, Any]:
    """Return interquartile means with 95 % bootstrap intervals (Agarwal et al. 2021), and those of the difference.

    Args:
        returns: Returns of seeds, `[seeds, 2]`, as `paired` gives them.
        task: Name of the task, whose range the difference is given in.
    """
    reach = TASKS[task].high - TASKS[task].low
    columns = {"base": returns[:, :1], "catalog": returns[:, 1:],
               "difference": 100 * (returns[:, 1:] - returns[:, :1]) / reach}  # fmt: skip
    return {name: (float(interquartile_mean(column)[0]), *map(float, interval(column)[:, 0]))
            for name, column in columns.items()}  # fmt: skip


def write(rows: list[dict[str, Any]]) -> None:
    """Write the page and its picture from the runs there are."""
    lines, found = [], []
    for engine in NAMES:
        for task, about in TASKS.items():
            returns = paired(rows, engine, task)
            if not len(returns):
                continue
            if len(returns) < 3:
                base, ours = returns.mean(0)
                lines.append(f"| {NAMES[engine]} | {task} | {about.steps_of(engine):,} | {len(returns)} |"
                             f" {_figure(base)} | {_figure(ours)} | no claim |")  # fmt: skip
                continue
            told = summary(returns, task)
            found.append((engine, task, told))
            cells = [f"{point} ({low} to {high})" for point, low, high in
                     (map(_figure, told[side]) for side in ("base", "catalog"))]  # fmt: skip
            point, low, high = (round(percent, 1) + 0.0 for percent in told["difference"])  # without a -0.0
            kept = "" if low >= MARK else ", **below the mark**"
            lines.append(f"| {NAMES[engine]} | {task} | {about.steps_of(engine):,} | {len(returns)} | {cells[0]} |"
                         f" {cells[1]} | {point:+.1f} % ({low:+.1f} to {high:+.1f}){kept} |")  # fmt: skip
    PICTURE.parent.mkdir(exist_ok=True)
    _draw(found)
    _draw_curves(rows)
    PAGE.write_text(_TEXT.format(rows="\n".join(lines), versions=", ".join(f"{name} {version(name)}" for name in (
        "torch", "gymnasium", "stable-baselines3", "ray"))), encoding="utf-8")  # fmt: skip


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _draw(found: list[tuple[str, str, dict[str, Any]]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, axes = plt.subplots(figsize=(8, 0.4 * len(found) + 1.2), layout="constrained")
    for place, (engine, _, told) in enumerate(reversed(found)):
        point, low, high = told["difference"]
        colour = COLOURS[engine, "catalog"]
        axes.plot([low, high], [place, place], color=colour, linewidth=3, alpha=0.5)
        axes.plot(point, place, "o", color=colour)
    axes.axvline(0, color="gray", linewidth=1)
    axes.axvline(MARK, color="gray", linewidth=1, linestyle=":")
    axes.set_yticks(range(len(found)), [f"{task}, {NAMES[engine]}" for engine, task, _ in reversed(found)])
    axes.set_xlabel("difference, percent of the task's range (95 % intervals)")
    fig.savefig(PICTURE, dpi=120)
    plt.close(fig)


def _draw_curves(rows: list[dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    columns = (("Stable-Baselines3 and rlcatalog-ppo", ("sb3", "ours")), ("Ray RLlib", ("rllib",)))
    drawn = [task for task in TASKS if any(row["task"] == task for row in rows)]
    fig, grid = plt.subplots(len(drawn), 2, figsize=(9, 2.2 * len(drawn)), layout="constrained", squeeze=False)
    for task, line in zip(drawn, grid, strict=True):
        for axes, (title, engines) in zip(line, columns, strict=True):
            for side in ((engine, net) for engine in engines for net in NETS[engine]):
                found = curves(rows, side, task)
                if found is None:
                    continue
                steps, returns = found
                label = NAMES[side[0]] + ("" if side[0] == "ours" else f", {side[1]}")
                axes.plot(steps, interquartile_mean(returns), color=COLOURS[side], label=label)
                if len(returns) > 1:
                    axes.fill_between(steps, *interval(returns), color=COLOURS[side], alpha=0.2, linewidth=0)
            axes.set_title(f"{task}: {title}", fontsize=9)
            axes.tick_params(labelsize=7)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            axes.grid(alpha=0.3)
    for axes in grid[0]:
        axes.legend(fontsize=7)
    for axes in grid[-1]:
        axes.set_xlabel("environment steps", fontsize=8)
    fig.savefig(CURVES, dpi=110)
    plt.close(fig)


_TEXT = """# Learning under each engine

This page compares PPO of three engines with equal hyperparameters, steps and seeds. Stable-Baselines3 and Ray RLlib
train their own network and the one that rlcatalog chooses. PPO of rlcatalog-ppo trains the network that rlcatalog
chooses, and is compared with the own network of Stable-Baselines3. It uses the same defaults: a value with its own
layers and weight 0.5, and standard deviations that do not depend on the observation. `make compare` trains missing
runs and writes this page. The runs are in `benchmarks/learning/results.jsonl`, the settings in
`benchmarks/learning/tasks.py`.

![Differences in percent of the range](pictures/learning.png)

Each trained policy plays 50 episodes and samples its actions as in training. The table shows interquartile means over
seeds with 95 % bootstrap intervals. The last column is the paired difference in percent of the task's range, from
random actions to the best return. The claim is that its lower end is at least -10 %. Tasks with fewer than three
seeds make no claim; `make compare COMPARE_ARGS=--unclaimed` trains them.

| engine | task | steps | seeds | baseline | rlcatalog | difference |
|---|---|---|---|---|---|---|
{rows}

The curves show the mean return of the last 100 training episodes. Lines are interquartile means over seeds, and bands
their 95 % intervals:

![Learning curves](pictures/curves.png)

{versions}; one thread per run.
"""
