"""Learning curves for one or several runs, with the interquartile mean over seeds and its interval.

Agarwal et al. (2021) recommend this for small numbers of seeds.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlcatalog.errors import ConfigError, nearest, one_line, output_errors
from rlcatalog_policy import write_file
from rlcatalog_runs.summaries import Row, Run, read_rows, table_in

Array = np.ndarray[Any, Any]

#: Number of points in a curve.
POINTS = 200
#: Maximum number of settings in a label (further ones are only counted), and of characters per
#: setting.
SHOWN, LONGEST = 3, 60
#: Settings that a label shows without their names.
_PLAIN = ("algorithm", "framework")
#: Fraction of runs trimmed at each end, number of bootstrap samples, and the interval's ends in
#: percent.
CUT, REPEATS, ENDS = 0.25, 2000, (2.5, 97.5)
#: Number of values that are resampled at once.
_AT_ONCE = 2_000_000
#: Color-blind safe colors (Okabe and Ito), and line styles for further curves.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_STYLES = ("-", "--", ":", "-.")


class Group(NamedTuple):
    """Group of runs that form one curve.

    Attributes:
        label: Settings that distinguish this group from the others.
        runs: The runs.
        steps: Environment steps, `[points]`.
        middle: Interquartile mean of the returns at each step, `[points]`; for a single run, its
            return.
        interval: Lower and upper ends of the 95% interval, `[2, points]`; None for a single run.
    """

    label: str
    runs: Sequence[Run]
    steps: Array
    middle: Array
    interval: Array | None


def compare(runs: Sequence[Run], by: str | None = None) -> list[Group]:
    """Return the runs' curves, up to the step at which the shortest run ends.

    Args:
        runs: Runs in one environment.
        by: Setting by which to group the runs: `"model"`, `"framework"`, `"algorithm"`, or a key of
            the algorithm or the model. If None, all settings except the seed.

    Raises:
        ConfigError: The runs' environments differ, a run has no returns yet, or no run has a key
            named `by`.
    """
    _check_environment(runs)
    curves = [_curve(run) for run in runs]
    shortest = min(steps[-1] for steps, _ in curves)
    if late := [run for run, (steps, _) in zip(runs, curves, strict=True) if steps[0] > shortest]:
        raise ConfigError(
            f"{late[0].folder}: has its first mean return only after the end of the shortest run,"
            f" at {shortest:,.0f} steps."
        )
    alike: dict[str, list[int]] = {}
    chosen = [_chosen(run, by, runs) for run in runs]
    for index, settings in enumerate(chosen):
        alike.setdefault(json.dumps(settings, sort_keys=True, default=str), []).append(index)
    labels = _labels([chosen[indices[0]] for indices in alike.values()])
    groups = []
    for label, indices in zip(labels, alike.values(), strict=True):
        first = max(curves[index][0][0] for index in indices)
        grid = np.linspace(shortest / POINTS, shortest, POINTS)
        grid = np.append(grid[(grid >= first) & (grid < shortest)], shortest)
        returns = np.stack([np.interp(grid, *curves[index]) for index in indices])
        ends = interval(returns) if len(returns) > 1 else None
        groups.append(
            Group(
                label, [runs[index] for index in indices], grid, interquartile_mean(returns), ends
            )
        )
    return groups


def _check_environment(runs: Sequence[Run]) -> None:
    """Raise an error unless there are runs and all of them used the same environment."""
    if not runs:
        raise ConfigError("compare: no runs to compare.")
    for run in runs:
        if run.env is None:
            raise ConfigError(
                f"{run.folder}: its environment is unknown, because its config.json is missing."
            )
        if run.env != runs[0].env:
            raise ConfigError(
                f"compare: returns of different environments are not comparable: {runs[0].folder}"
                f" ran {runs[0].env}, {run.folder} ran {run.env}. Compare runs in one environment."
            )


def check_picture(path: Path) -> None:
    """Raise an error if a picture cannot be written in the format that a path's suffix selects.

    Raises:
        ConfigError: It cannot be written.
    """
    from matplotlib.figure import Figure

    formats = Figure().canvas.get_supported_filetypes()
    if (ending := path.suffix.lower().lstrip(".")) not in formats:
        known = ", ".join(f".{name}" for name in sorted(formats))
        raise ConfigError(
            f"--out {path}: not a picture format.{nearest(ending, formats)} Formats: {known}."
        )


def draw(path: Path, rows: Sequence[Row], title: str) -> None:
    """Plot a learning curve: the mean return of the last 100 episodes against environment steps."""
    points = [
        (row.timesteps_total, row.episode_return_mean)
        for row in rows
        if row.episode_return_mean is not None
    ]
    figure, axes = _figure(4, title, "mean return, last 100 episodes")
    axes.plot([x for x, _ in points], [y for _, y in points], color="#1f6fb2")
    _write_picture(path, figure)


def draw_groups(path: Path, groups: Sequence[Group], title: str) -> None:
    """Plot several curves in one picture.

    Args:
        path: File for the picture; its suffix selects the format.
        groups: The curves.
        title: The title above the curves.
    """
    from matplotlib.font_manager import FontProperties

    figure, axes = _figure(4.2 + 0.22 * len(groups), title, "return, mean of the last 100 episodes")
    for index, group in enumerate(groups):
        colour, style = (
            _COLOURS[index % len(_COLOURS)],
            _STYLES[index // len(_COLOURS) % len(_STYLES)],
        )
        runs = f"{len(group.runs)} runs" if len(group.runs) > 1 else "1 run"
        axes.plot(
            group.steps,
            group.middle,
            color=colour,
            linestyle=style,
            label=f"{group.label} ({runs})",
        )
        if group.interval is not None:
            axes.fill_between(group.steps, *group.interval, color=colour, alpha=0.2, linewidth=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlim(0, None)
    below = figure.legend(loc="outside lower center", ncols=1, frameon=False)
    for text in below.get_texts():
        text.set_parse_math(False)  # names of settings, and their values
    if any(group.interval is not None for group in groups):
        below.set_title(
            "lines: interquartile mean over runs; bands: its 95% interval",
            FontProperties(size="small"),
        )
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_picture(path, figure)


def _figure(height: float, title: str, returns: str) -> tuple[Any, Any]:
    """Return a figure for plotting returns against environment steps, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, height), layout="constrained")
    axes = figure.subplots()
    axes.set_title(one_line(title), parse_math=False)
    axes.set(xlabel="environment steps", ylabel=returns)
    axes.grid(alpha=0.3)
    return figure, axes


def _write_picture(path: Path, figure: Any) -> None:
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120, format=path.suffix.lower().lstrip("."))
    write_file(path.parent, path.name, picture.getvalue())


def _curve(run: Run) -> tuple[Array, Array]:
    """Return a run's steps (increasing) and mean returns, each `[rows]`."""
    points = {row.timesteps_total: row.episode_return_mean for row in read_rows(run.folder)}
    known = sorted(
        (steps, value)
        for steps, value in points.items()
        if value is not None and np.isfinite(value)
    )
    if not known:
        raise ConfigError(f"{run.folder}: has no mean return yet, because no episode has ended.")
    steps, returns = np.array(known, np.float64).T
    return steps, returns


def settings_of(run: Run) -> dict[str, Any]:
    """Return a run's settings as a flat dict without the seed: algorithm, framework
    and all keys.
    """
    algorithm, model, parts = (
        table_in(run.config, name) for name in ("algorithm", "model", "parts")
    )
    keys = {key: value for key, value in algorithm.items() if key not in ("name", "seed", *_PLAIN)}
    return {
        "algorithm": shown_algorithm(run),
        "framework": run.framework,
        "steps": run.wanted,
        **keys,
        **{f"parts.{slot}": name for slot, name in parts.items()},
        **{key: value for key, value in model.items() if key not in keys},
    }


def shown_algorithm(run: Run) -> str:
    """Return an algorithm's display name, with its engine."""
    name = run.algorithm or "-"
    return name if run.engine is None else f"{name} ({run.engine})"


def _chosen(run: Run, by: str | None, runs: Sequence[Run]) -> dict[str, Any]:
    """Return the settings of a run that can distinguish curves."""
    settings = settings_of(run)
    if by is None:
        return settings
    if by == "model":
        model = table_in(run.config, "model")
        return {
            key: value
            for key, value in settings.items()
            if key in model or key.startswith("parts.")
        }
    known = {key for other in runs for key in settings_of(other)}
    if by not in known:
        raise ConfigError(
            f"--by {by}: no run has a key of this name.{nearest(by, [*known, 'model'])} Use model,"
            " framework, algorithm, or a key of the algorithm or the model."
        )
    return {by: settings.get(by)}


def _labels(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return short labels that tell several settings apart."""
    names = list(dict.fromkeys(key for settings in found for key in settings))
    if len(names) == 1:
        return [_written(names[0], settings.get(names[0])) for settings in found]
    first = [name for name in _PLAIN if _differ(found, name)] or [
        name for name in _PLAIN if name in names
    ]
    labels = [_text(settings, first) for settings in found]
    for label in set(labels):
        alike = [index for index, other in enumerate(labels) if other == label]
        differing = [name for name in names if _differ([found[index] for index in alike], name)]
        for count in range(min(SHOWN, len(differing)), len(differing) + 1):
            told = [_text(found[index], differing[:count]) for index in alike]
            if len(set(told)) == len(told):
                break
        for index, text in zip(alike, told, strict=True):
            labels[index] = ": ".join(filter(None, (label, text)))
    return [label or "default model" for label in labels]


def _differ(found: Sequence[Mapping[str, Any]], name: str) -> bool:
    return (
        len({json.dumps(settings.get(name), sort_keys=True, default=str) for settings in found}) > 1
    )


def _text(settings: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(_written(name, settings.get(name)) for name in names)


def _written(name: str, value: Any) -> str:
    """Return the text for a setting in a label."""
    text = (
        "-"
        if value is None
        else value
        if isinstance(value, str)
        else json.dumps(value, separators=(",", ":"))
    )
    return one_line(text if name in _PLAIN else f"{name}={text}", LONGEST)


# --- one curve for several runs -------------------------------------------------------------------


def interquartile_mean(returns: Array, axis: int = 0) -> Array:
    """Return the interquartile mean; for fewer than four runs, the mean.

    Args:
        returns: Mean returns, with the runs along `axis`.
        axis: The axis of the runs, which is removed.
    """
    ordered = np.sort(np.moveaxis(returns, axis, 0), axis=0)
    cut = int(CUT * len(ordered))
    return np.asarray(ordered[cut : len(ordered) - cut].mean(0))


def interval(returns: Array) -> Array:
    """Return the 95% interval of the interquartile mean, `[2, points]`: percentiles from a
    bootstrap over the runs.

    The random draws are the same each time, so that pictures are reproducible.

    Args:
        returns: `[runs, points]`.
    """
    runs, points = returns.shape
    draws = np.random.default_rng(0).integers(runs, size=(REPEATS, runs))
    parts = np.array_split(draws, max(1, -(-REPEATS * runs * points // _AT_ONCE)))
    means = np.concatenate(
        [interquartile_mean(returns[part], axis=1) for part in parts if len(part)]
    )
    return np.asarray(np.percentile(means, ENDS, axis=0))
