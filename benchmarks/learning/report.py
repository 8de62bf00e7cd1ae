"""The page of the comparison, docs/learning.md, from the records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.learning.measures import (
    FEWEST,
    MARK,
    Estimate,
    holm,
    pooled_difference,
    probability_below_zero,
    probability_of_improvement,
    summary,
    verdict,
)
from benchmarks.learning.page_text import DIFFERS, TEXT
from benchmarks.learning.part_tasks import PARTS
from benchmarks.learning.pictures import Array, draw_curves, draw_differences
from benchmarks.learning.published_tasks import PUBLISHED
from benchmarks.learning.task import Side, Task
from benchmarks.learning.tasks import EASY, TASKS
from benchmarks.learning.zoo import EPISODES
from rlcatalog_ppo.commands import ZOO
from rlcatalog_runs.comparison import interquartile_mean

Row = dict[str, Any]
DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, PICTURES = DOCS / "learning.md", DOCS / "pictures"
NAMES = {"sb3": "Stable-Baselines3", "rllib": "Ray RLlib", "ours": "rlcatalog-ppo"}
SIDES = {
    ("sb3", "own"): "Stable-Baselines3, own",
    ("sb3", "numbers"): "Stable-Baselines3, own, tool as numbers",
    ("sb3", "catalog"): "Stable-Baselines3, catalog",
    ("ours", "catalog"): "rlcatalog-ppo",
    ("ours", "attention"): "rlcatalog-ppo, attention",
    ("ours", "lstm"): "rlcatalog-ppo, LSTM",
    ("ours", "independent"): "rlcatalog-ppo, independent choices",
    ("rllib", "own"): "Ray RLlib, own",
    ("rllib", "catalog"): "Ray RLlib, catalog",
}
#: Task, engine and net → why rlcatalog's returns are lower.
REASONS = {
    ("CountRecallEasy", "ours", "attention"): (
        "Attention learns later here. With three times as many steps, the training return of seed 0"
        " stays near -0.92 for 300,000 steps, and is -0.88 after 600,000. With the default initial"
        " weights, it ends at -0.90 after 200,000 steps. All LSTMs of Stable-Baselines3 start to"
        " learn within 200,000 steps, and four of five of each of the others."
    )
}


class Comparison(NamedTuple):
    """A net of the catalog under one engine, beside the net it is compared with.

    Attributes:
        task: Name of the task.
        side: Engine and net of the catalog.
        base: Engine and net that it is compared with.
    """

    task: str
    side: Side
    base: Side

    @property
    def engine(self) -> str:
        """The engine of the catalog's net."""
        return self.side[0]

    @property
    def about(self) -> Task:
        """The task."""
        return TASKS[self.task]

    @property
    def name(self) -> str:
        """The engine, and the net if it is not the usual one."""
        engine, net = self.side
        return NAMES[engine] if net == "catalog" else SIDES[self.side]

    @property
    def seeds(self) -> int:
        """How many seeds are wanted."""
        return self.about.seeds_of(self.engine)


def comparisons(tasks: Sequence[str]) -> Iterator[Comparison]:
    """Yield all comparisons of some tasks."""
    for task in tasks:
        for side, base in TASKS[task].pairs:
            yield Comparison(task, side, base)


def paired(rows: Sequence[Row], one: Comparison) -> Array:
    """Return the returns of the seeds that both sides were trained with, `[seeds, 2]`: what is
    compared with, ours.
    """
    sides = [
        {row["seed"]: row["return"] for row in _runs(rows, side, one.task)}
        for side in (one.base, one.side)
    ]
    seeds = sorted(set(sides[0]) & set(sides[1]))
    return np.array([[side[seed] for side in sides] for seed in seeds]).reshape(-1, 2)


def curves(rows: Sequence[Row], side: Side, task: str) -> tuple[Array, Array] | None:
    """Return steps `[points]` and the returns of all seeds there `[seeds, points]`; None where
    there are none.
    """
    found = [np.array(row["curve"]).T for row in _runs(rows, side, task) if row["curve"]]
    if not found:
        return None
    grid = np.linspace(
        max(steps[0] for steps, _ in found), min(steps[-1] for steps, _ in found), 60
    )
    return grid, np.stack([np.interp(grid, steps, means) for steps, means in found])


def write(rows: Sequence[Row]) -> None:
    """Write the page and its pictures from the records there are."""
    measured = {
        one: summary(returns, one.about.low, one.about.high)["difference"]
        for one in comparisons([*TASKS])
        if len(returns := paired(rows, one)) >= FEWEST
    }
    pictures = {}
    for tasks, name in ((PUBLISHED, "published"), (PARTS, "parts"), (EASY, "easy")):
        ends = [
            (f"{one.task}, {one.name}", one.side, difference)
            for one, difference in measured.items()
            if one.task in tasks
        ]
        pictures[f"{name}_differences"] = _picture(
            f"learning_{name}", "Differences in percent of the range", ends
        )
        if ends:
            draw_differences(PICTURES / f"learning_{name}.svg", ends)
        panels = [*_panels(rows, tasks)]
        pictures[f"{name}_curves"] = _picture(f"curves_{name}", "Learning curves", panels)
        if panels:
            draw_curves(PICTURES / f"curves_{name}.svg", panels, SIDES)
    kept = ", ".join(name for name, task in TASKS.items() if task.kept_defaults)
    PAGE.write_text(
        TEXT.format(
            mark=f"{MARK:.0f}",
            fewest=FEWEST,
            published="\n".join(_published_line(rows, one) for one in comparisons([*PUBLISHED])),
            conclusions="\n".join(_conclusions(rows, measured)) or "None yet.",
            parts="\n".join(_part_line(rows, one) for one in comparisons([*PARTS])),
            parts_about="\n".join(f"- **{name}**. {task.about}" for name, task in PARTS.items()),
            figures="\n".join(_figures(rows)),
            settings="\n".join(_settings(rows)),
            differs="\n".join(f"- {text}" for text in DIFFERS).format(kept=kept),
            easy="\n".join(
                _easy_line(rows, one)
                for one in sorted(comparisons([*EASY]), key=lambda one: [*NAMES].index(one.engine))
            ),
            zoo="\n".join(_zoo()),
            zoo_episodes=EPISODES,
            versions=_versions(rows),
            **pictures,
        ),
        encoding="utf-8",
    )


def _panels(
    rows: Sequence[Row], tasks: Iterable[str]
) -> Iterator[tuple[str, dict[Side, tuple[Array, Array]]]]:
    """Yield the panels of curves; RLlib, which trains for other steps, has panels of its own."""
    for task in tasks:
        drawn = {side: found for side in SIDES if (found := curves(rows, side, task))}
        for engines in (("sb3", "ours"), ("rllib",)):
            if part := {side: found for side, found in drawn.items() if side[0] in engines}:
                yield f"{task}{', Ray RLlib' if engines == ('rllib',) else ''}", part


def _picture(name: str, about: str, drawn: Sequence[Any]) -> str:
    return f"![{about}](pictures/{name}.svg)" if drawn else "*Not yet run.*"


# --- tables ---------------------------------------------------------------------------------------


def _published_line(rows: Sequence[Row], one: Comparison) -> str:
    return f"| {one.task} | {one.name} {_measured_cells(rows, one)}"


def _part_line(rows: Sequence[Row], one: Comparison) -> str:
    return f"| {one.task} | {SIDES[one.base]} {_measured_cells(rows, one)}"


def _measured_cells(rows: Sequence[Row], one: Comparison) -> str:
    """Return the cells of a comparison from its steps on."""
    steps = f"| {one.about.steps_of(one.engine):,} "
    returns = paired(rows, one)
    if len(returns) < FEWEST:
        done = "not yet run" if not len(returns) else f"{len(returns)} of {one.seeds} seeds"
        return f"{steps}| {done} | | | | | |"
    cells = summary(returns, one.about.low, one.about.high)
    costs = " / ".join(_cost(rows, side, one.task) for side in (one.base, one.side))
    better = probability_of_improvement([returns])
    return (
        f"{steps}| {len(returns)} | {_interval(cells['base'])} | {_interval(cells['catalog'])} |"
        f" {_judged(cells['difference'], len(returns))} | {_share(better)} | {costs} |"
    )


def _easy_line(rows: Sequence[Row], one: Comparison) -> str:
    returns = paired(rows, one)
    begins = f"| {one.name} | {one.task} | {one.about.steps_of(one.engine):,} | {len(returns)} "
    if not len(returns):
        return f"{begins}| | | not yet run | |"
    if len(returns) < FEWEST:
        base, ours = returns.mean(0)
        return f"{begins}| {_figure(base)} | {_figure(ours)} | no claim | |"
    cells = summary(returns, one.about.low, one.about.high)
    better = _share(probability_of_improvement([returns]))
    return (
        f"{begins}| {_interval(cells['base'])} | {_interval(cells['catalog'])} |"
        f" {_judged(cells['difference'], len(returns))} | {better} |"
    )


def _conclusions(rows: Sequence[Row], measured: dict[Comparison, Estimate]) -> Iterator[str]:
    """Yield a line for each comparison that is undecided or below 0, and the probability over all
    tasks.
    """
    for one, difference in measured.items():
        text = verdict(difference, len(paired(rows, one)))
        if text and one.task not in PARTS:
            reason = REASONS.get((one.task, *one.side), "")
            if difference.high < 0 and not reason:
                reason = "The reason is not known yet."
            yield f"- {one.task}, {one.name}: {text}. {reason}".rstrip()
    for engine in NAMES:
        tasks = [
            one for one in measured if one.side == (engine, "catalog") and one.task in PUBLISHED
        ]
        if len(tasks) > 1:
            pairs = [paired(rows, one) for one in tasks]
            better = probability_of_improvement(pairs)
            pooled = pooled_difference(
                [
                    100 * (pair[:, 1] - pair[:, 0]) / (one.about.high - one.about.low)
                    for one, pair in zip(tasks, pairs, strict=True)
                ]
            )
            yield (
                f"- {NAMES[engine]}: over {len(tasks)} tasks, the probability of improvement is"
                f" {_share(better)}, and the mean difference {_percent(pooled)}."
            )
    yield _corrected(rows, [one for one in measured if one.task not in PARTS])


def _corrected(rows: Sequence[Row], tested: Sequence[Comparison]) -> str:
    """Return a line with the comparisons that are below 0 after Holm's correction."""
    p_values = [probability_below_zero(paired(rows, one)) for one in tested]
    below = [
        f"{one.task}, {one.name}"
        for one, is_below in zip(tested, holm(p_values), strict=True)
        if is_below
    ]
    return (
        f"- Paired t-tests of all {len(tested)} comparisons with published settings or of easy"
        f" tasks, with Holm's correction, below 0 at 5%: {'; '.join(below) or 'none'}."
    )


def _figures(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the published figures, beside the returns of the most likely actions here."""
    for name, task in PUBLISHED.items():
        here = []
        for side, label in SIDES.items():
            greedy = np.array([row["greedy_return"] for row in _runs(rows, side, name)])
            if len(greedy):
                here.append(f"{label}: {_figure(float(interquartile_mean(greedy)))}")
        for figure in task.published:
            reached = "; ".join(here) or "not yet run"
            yield (
                f"| {name} | {task.steps_of('sb3'):,} | {reached} | {_figure(figure.value)} |"
                f" [{figure.what}]({figure.source}) |"
            )


def _settings(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the settings of each task, their source, and the number of weights of each net."""
    for name, task in PUBLISHED.items():
        given = {key: value for key, value in task.given.items() if value not in ([], None)}
        counts = {
            side: row["parameters"]
            for side in SIDES
            for row in _runs(rows, side, name)
            if row["parameters"]
        }
        weights = (
            "; ".join(f"{SIDES[side]}: {count:,}" for side, count in counts.items())
            or "not yet run"
        )
        yield (
            f"**{name}** ({task.algorithm}). Source: {task.source}.\n\n- settings: `{given}`\n-"
            f" weights: {weights}\n"
        )


def _zoo() -> Iterator[str]:
    """Yield the policies of the zoo."""
    for path in sorted(ZOO.glob("*.json")):
        record = json.loads(path.read_text())
        run = record["run"]
        reached = " | ".join(
            f"{mean:,.4g} ± {margin:.2g}"
            for mean, margin in (record["return"], record["sampled_return"])
        )
        size = path.with_suffix(".onnx").stat().st_size / 1000
        yield (
            f"| `zoo:{record['env']}` | {reached} | {run['settings']['steps']:,} | {run['seed']}"
            f" | {size:.0f} |"
        )


def _versions(rows: Sequence[Row]) -> str:
    """Return a list of the versions in the records, all of them where a package has several."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        for package, version in row.get("versions", {}).items():
            found.setdefault(package, {})[version] = None
    lines = (f"- {package}: {' and '.join(versions)}" for package, versions in found.items())
    return "\n".join(lines) or "- none recorded"


def _runs(rows: Sequence[Row], side: Side, task: str) -> list[Row]:
    return [row for row in rows if (row["engine"], row["net"], row["task"]) == (*side, task)]


def _cost(rows: Sequence[Row], side: Side, task: str) -> str:
    """Return the median CPU seconds for 1,000 steps of training."""
    steps = TASKS[task].steps_of(side[0])
    seconds = np.median([row["train_seconds"] for row in _runs(rows, side, task)])
    return f"{1000 * float(seconds) / steps:.2f}"


def _percent(difference: Estimate) -> str:
    point, low, high = (round(percent, 1) + 0.0 for percent in difference)  # without a -0.0
    return f"{point:+.1f}% ({low:+.1f} to {high:+.1f})"


def _judged(difference: Estimate, seeds: int) -> str:
    """Return a difference with its verdict."""
    text = verdict(difference, seeds)
    return f"{_percent(difference)}{f', **{text}**' if text else ''}"


def _interval(estimate: Estimate) -> str:
    point, low, high = map(_figure, estimate)
    return f"{point} ({low} to {high})"


def _share(share: Estimate) -> str:
    return f"{share.point:.2f} ({share.low:.2f} to {share.high:.2f})"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
