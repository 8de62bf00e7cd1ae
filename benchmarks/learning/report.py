"""The page of the comparison: interquartile means with intervals, and the paired difference in percent of the range."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.engines import NETS
from benchmarks.learning.tasks import TASKS
from rlcatalog_ppo.interquartile import interquartile_mean, interval

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, PICTURE = DOCS / "learning.md", DOCS / "pictures" / "learning.png"
NAMES = {"sb3": "Stable-Baselines3", "rllib": "Ray RLlib"}
#: The claim: the lower end of the difference, in percent of the task's range.
MARK = -10.0


def paired(rows: list[dict[str, Any]], engine: str, task: str) -> np.ndarray[Any, Any]:
    """Return the returns of the seeds that both nets were trained with, `[seeds, 2]`: own net, catalog's."""
    of = {net: {row["seed"]: row["return"] for row in rows if (row["engine"], row["task"], row["net"])
                == (engine, task, net)} for net in NETS}  # fmt: skip
    seeds = sorted(set(of[NETS[0]]) & set(of[NETS[1]]))
    return np.array([[of[net][seed] for net in NETS] for seed in seeds]).reshape(-1, 2)


def summary(returns: np.ndarray[Any, Any], task: str) -> dict[str, Any]:
    """Return interquartile means with 95 % bootstrap intervals (Agarwal et al. 2021), and those of the difference.

    Args:
        returns: Returns of seeds, `[seeds, 2]`.
        task: Name of the task, whose range the difference is given in.
    """
    reach = TASKS[task].high - TASKS[task].low
    columns = {"own": returns[:, :1], "catalog": returns[:, 1:],
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
                own, ours = returns.mean(0)
                lines.append(f"| {NAMES[engine]} | {task} | {about.steps[engine]:,} | {len(returns)} | {own:.3g} |"
                             f" {ours:.3g} | no claim |")  # fmt: skip
                continue
            told = summary(returns, task)
            found.append((engine, task, told))
            cells = [f"{point:.3g} ({low:.3g} to {high:.3g})" for point, low, high in
                     (told["own"], told["catalog"])]  # fmt: skip
            point, low, high = told["difference"]
            kept = "" if low >= MARK else ", **below the mark**"
            lines.append(f"| {NAMES[engine]} | {task} | {about.steps[engine]:,} | {len(returns)} | {cells[0]} |"
                         f" {cells[1]} | {point:+.1f} % ({low:+.1f} to {high:+.1f}){kept} |")  # fmt: skip
    PICTURE.parent.mkdir(exist_ok=True)
    _draw(found)
    PAGE.write_text(_TEXT.format(rows="\n".join(lines), versions=", ".join(f"{name} {version(name)}" for name in (
        "torch", "gymnasium", "stable-baselines3", "ray"))), encoding="utf-8")  # fmt: skip


def _draw(found: list[tuple[str, str, dict[str, Any]]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, axes = plt.subplots(figsize=(8, 0.4 * len(found) + 1.2), layout="constrained")
    for place, (engine, _, told) in enumerate(reversed(found)):
        point, low, high = told["difference"]
        colour = {"sb3": "tab:blue", "rllib": "tab:orange"}[engine]
        axes.plot([low, high], [place, place], color=colour, linewidth=3, alpha=0.5)
        axes.plot(point, place, "o", color=colour)
    axes.axvline(0, color="gray", linewidth=1)
    axes.axvline(MARK, color="gray", linewidth=1, linestyle=":")
    axes.set_yticks(range(len(found)), [f"{task}, {NAMES[engine]}" for engine, task, _ in reversed(found)])
    axes.set_xlabel("catalog's net minus the engine's own, percent of the task's range (95 % intervals)")
    fig.savefig(PICTURE, dpi=120)
    plt.close(fig)


_TEXT = """# Learning results

PPO of each engine with its own net and with the one that the catalog chooses: equal hyperparameters, steps and seeds.
`make compare` trains what is missing and writes this page; the runs stand in `benchmarks/learning/results.jsonl`, the
settings in `benchmarks/learning/tasks.py`.

![Differences in percent of the range](pictures/learning.png)

A trained policy plays 50 episodes, drawing actions as in training. The table has interquartile means over seeds with
95 % bootstrap intervals; the last column is the paired difference in percent of the task's range, from acting at random
to the best return. The claim is that its lower end is at least -10 %. Tasks with fewer than three seeds carry no claim.

| engine | task | steps | seeds | its own net | the catalog's | difference |
|---|---|---|---|---|---|---|
{rows}

{versions}; one thread a run.
"""
