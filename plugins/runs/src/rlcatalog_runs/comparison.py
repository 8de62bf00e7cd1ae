"""Learning curves for one or several runs, with the interquartile mean over seeds and its interval.

Agarwal et al. (2021) recommend this for small numbers of seeds.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlcatalog.errors import ConfigError, nearest, one_line, output_errors
from rlcatalog.frameworks import Array
from rlcatalog_policy import write_file
from rlcatalog_runs.summaries import Row, Run, read_rows, table_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Number of points in a curve.
POINTS = 200
#: Number of settings in a label, unless more are needed to tell the curves apart.
SETTINGS_IN_LABEL = 3
#: Maximum number of characters of a setting in a label.
LONGEST = 60
#: Settings that a label shows without their names.
_UNNAMED_SETTINGS = ("algorithm", "framework")
#: Fraction of runs trimmed at each end.
CUT = 0.25
#: Number of bootstrap samples.
REPEATS = 2000
#: Ends of the interval in percent.
ENDS = (2.5, 97.5)
#: Number of values that are resampled at once, which limits the memory in use.
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


class _Curve(NamedTuple):
    """A run's mean returns, `[rows]`, and the increasing numbers of steps at which it has them.

    Attributes:
        run: The run.
        steps: Environment steps, `[rows]`.
        returns: Mean returns, `[rows]`.
    """

    run: Run
    steps: Array
    returns: Array


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
    last_step = min(curve.steps[-1] for curve in curves)
    for curve in curves:
        if curve.steps[0] > last_step:
            raise ConfigError(
                f"{curve.run.folder}: has its first mean return only after the end of the shortest"
                f" run, at {last_step:,.0f} steps."
            )
    # Settings are dicts, which cannot be keys; equal settings have the same text.
    settings_by_text: dict[str, dict[str, Any]] = {}
    curves_by_text: dict[str, list[_Curve]] = {}
    for curve in curves:
        settings = _settings_for(curve.run, by, runs)
        text = _as_text(settings)
        settings_by_text.setdefault(text, settings)
        curves_by_text.setdefault(text, []).append(curve)
    labels = _labels(list(settings_by_text.values()))
    groups = []
    for label, curves_of_group in zip(labels, curves_by_text.values(), strict=True):
        groups.append(_group(label, curves_of_group, last_step=last_step))
    return groups


def _group(label: str, curves: Sequence[_Curve], *, last_step: float) -> Group:
    """Return the curve of a group of runs from where all of them have returns."""
    first_step = max(curve.steps[0] for curve in curves)
    steps = np.linspace(last_step / POINTS, last_step, POINTS)
    is_between = (steps >= first_step) & (steps < last_step)
    steps = np.append(steps[is_between], last_step)  # so that at least this one is left
    returns = np.stack([np.interp(steps, curve.steps, curve.returns) for curve in curves])
    return Group(
        label,
        [curve.run for curve in curves],
        steps,
        middle=interquartile_mean(returns),
        interval=interval(returns) if len(curves) > 1 else None,
    )


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
    ending = path.suffix.lower().lstrip(".")
    if ending not in formats:
        listing = ", ".join(f".{name}" for name in sorted(formats))
        raise ConfigError(
            f"--out {path}: not a picture format.{nearest(ending, formats)} Formats: {listing}."
        )


def draw(path: Path, rows: Sequence[Row], title: str) -> None:
    """Plot a learning curve: the mean return of the last 100 episodes against environment steps."""
    rows_with_return = [row for row in rows if row.episode_return_mean is not None]
    steps = [row.timesteps_total for row in rows_with_return]
    returns: Any = [row.episode_return_mean for row in rows_with_return]
    figure, axes = _figure(height=4, title=title, returns="mean return, last 100 episodes")
    axes.plot(steps, returns, color="#1f6fb2")
    _write_picture(path, figure)


def draw_groups(path: Path, groups: Sequence[Group], title: str) -> None:
    """Plot several curves in one picture.

    Args:
        path: File for the picture; its suffix selects the format.
        groups: The curves.
        title: The title above the curves.
    """
    from matplotlib.font_manager import FontProperties

    figure, axes = _figure(
        height=4.2 + 0.22 * len(groups),  # a line of the legend for each group
        title=title,
        returns="return, mean of the last 100 episodes",
    )
    for index, group in enumerate(groups):
        colour = _COLOURS[index % len(_COLOURS)]
        num_times_colour_used = index // len(_COLOURS)
        style = _STYLES[num_times_colour_used % len(_STYLES)]
        count = "1 run" if len(group.runs) == 1 else f"{len(group.runs)} runs"
        axes.plot(
            group.steps,
            group.middle,
            color=colour,
            linestyle=style,
            label=f"{group.label} ({count})",
        )
        if group.interval is not None:
            low, high = group.interval
            axes.fill_between(group.steps, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlim(left=0)
    legend = figure.legend(loc="outside lower center", ncols=1, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a setting's value may contain dollar signs
    if any(group.interval is not None for group in groups):
        legend.set_title(
            "lines: interquartile mean over runs; bands: its 95% interval",
            FontProperties(size="small"),
        )
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_picture(path, figure)


def _figure(*, height: float, title: str, returns: str) -> tuple[Figure, Axes]:
    """Return a figure for plotting returns against environment steps, and its axes.

    Args:
        height: Height in inches.
        title: The title.
        returns: Which returns these are, for the vertical axis.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, height), layout="constrained")
    axes = figure.subplots()
    axes.set_title(one_line(title), parse_math=False)
    axes.set(xlabel="environment steps", ylabel=returns)
    axes.grid(alpha=0.3)
    return figure, axes


def _write_picture(path: Path, figure: Figure) -> None:
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120, format=path.suffix.lower().lstrip("."))
    write_file(path.parent, path.name, picture.getvalue())


def _curve(run: Run) -> _Curve:
    """Return a run's curve; of several rows for one step, the last one counts."""
    return_at_step: dict[float, float] = {}
    for row in read_rows(run.folder):
        value = row.episode_return_mean
        if value is not None and np.isfinite(value):
            return_at_step[row.timesteps_total] = value
        else:  # this row counts, and not an earlier one for the same step
            return_at_step.pop(row.timesteps_total, None)
    if not return_at_step:
        raise ConfigError(f"{run.folder}: has no mean return yet, because no episode has ended.")
    points = np.array(sorted(return_at_step.items()), np.float64)  # [rows, 2]
    steps, returns = points.T
    return _Curve(run, steps, returns)


# --- labels ---------------------------------------------------------------------------------------


def settings_of(run: Run) -> dict[str, Any]:
    """Return a run's settings as a flat dict without the seed: algorithm, framework
    and all keys.
    """
    settings: dict[str, Any] = {
        "algorithm": shown_algorithm(run),
        "framework": run.framework,
        "steps": run.wanted,  # the number of steps to train for
    }
    algorithm_keys = {}
    for key, value in table_in(run.config, "algorithm").items():
        if key not in ("name", "seed", *_UNNAMED_SETTINGS):
            algorithm_keys[key] = value
    settings |= algorithm_keys
    for slot, part in table_in(run.config, "parts").items():
        settings[f"parts.{slot}"] = part
    for key, value in table_in(run.config, "model").items():
        if key not in algorithm_keys:
            settings[key] = value
    return settings


def shown_algorithm(run: Run) -> str:
    """Return an algorithm's display name, with its engine."""
    name = run.algorithm or "-"
    return name if run.engine is None else f"{name} ({run.engine})"


def _settings_for(run: Run, by: str | None, runs: Sequence[Run]) -> dict[str, Any]:
    """Return the settings of a run that can distinguish curves.

    Args:
        run: The run.
        by: As for `compare`.
        runs: All runs, whose settings may be named in `by`.
    """
    settings = settings_of(run)
    if by is None:
        return settings
    if by == "model":
        model = table_in(run.config, "model")
        names = [name for name in settings if name in model or name.startswith("parts.")]
        return {name: settings[name] for name in names}
    names_of_runs = {name for other in runs for name in settings_of(other)}
    if by not in names_of_runs:
        raise ConfigError(
            f"--by {by}: no run has a key of this name.{nearest(by, [*names_of_runs, 'model'])} Use"
            " model, framework, algorithm, or a key of the algorithm or the model."
        )
    return {by: settings.get(by)}


def _labels(settings_of_groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return short labels that tell several settings apart."""
    names = list(dict.fromkeys(name for settings in settings_of_groups for name in settings))
    if len(names) == 1:  # the runs are grouped by this setting alone
        [name] = names
        return [_text_of_setting(name, settings.get(name)) for settings in settings_of_groups]
    unnamed_settings = [name for name in _UNNAMED_SETTINGS if _differ(settings_of_groups, name)]
    if not unnamed_settings:
        unnamed_settings = [name for name in _UNNAMED_SETTINGS if name in names]
    # A label begins with these settings. If several begin alike, details follow.
    beginnings = [_text_of_settings(settings, unnamed_settings) for settings in settings_of_groups]
    labels = list(beginnings)
    for beginning in set(beginnings):
        indices = [index for index, other in enumerate(beginnings) if other == beginning]
        details = _details([settings_of_groups[index] for index in indices], names)
        for index, detail in zip(indices, details, strict=True):
            parts = [part for part in (beginning, detail) if part]
            labels[index] = ": ".join(parts) or "default model"
    return labels


def _details(settings_of_groups: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Return texts that tell apart the settings of groups with the same beginning of a label.

    Args:
        settings_of_groups: The settings of each group.
        names: Names of all settings.
    """
    names_that_differ = [name for name in names if _differ(settings_of_groups, name)]
    num_shown = min(SETTINGS_IN_LABEL, len(names_that_differ))
    while True:
        shown_names = names_that_differ[:num_shown]
        texts = [_text_of_settings(settings, shown_names) for settings in settings_of_groups]
        are_distinct = len(set(texts)) == len(texts)
        if are_distinct or num_shown == len(names_that_differ):
            return texts
        num_shown += 1


def _differ(settings_of_groups: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Return whether a setting has more than one value."""
    return len({_as_text(settings.get(name)) for settings in settings_of_groups}) > 1


def _as_text(value: Any) -> str:
    """Return a text that is the same for equal values from a config."""
    return json.dumps(value, sort_keys=True, default=str)


def _text_of_settings(settings: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(_text_of_setting(name, settings.get(name)) for name in names)


def _text_of_setting(name: str, value: Any) -> str:
    """Return the text for a setting in a label."""
    if value is None:
        text = "-"
    elif isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, separators=(",", ":"))
    if name not in _UNNAMED_SETTINGS:
        text = f"{name}={text}"
    return one_line(text, LONGEST)


# --- one curve for several runs -------------------------------------------------------------------


def interquartile_mean(returns: Array, axis: int = 0) -> Array:
    """Return the interquartile mean; for fewer than four runs, the mean.

    Args:
        returns: Mean returns, with the runs along `axis`.
        axis: The axis of the runs, which is removed.
    """
    ordered = np.sort(np.moveaxis(returns, axis, 0), axis=0)
    num_trimmed = int(CUT * len(ordered))
    return np.asarray(ordered[num_trimmed : len(ordered) - num_trimmed].mean(0))


def interval(returns: Array) -> Array:
    """Return the 95% interval of the interquartile mean, `[2, points]`: percentiles from a
    bootstrap over the runs.

    The random draws are the same each time, so that pictures are reproducible.

    Args:
        returns: `[runs, points]`.
    """
    num_runs, num_points = returns.shape
    # Each sample draws as many runs as there are, with replacement.
    samples = np.random.default_rng(0).integers(num_runs, size=(REPEATS, num_runs))
    # The samples of all points may need too much memory, so compute a part of them at a time.
    num_parts = max(1, math.ceil(REPEATS * num_runs * num_points / _AT_ONCE))
    means = []
    for part in np.array_split(samples, num_parts):
        if len(part):  # with more parts than samples, some parts are empty
            means.append(interquartile_mean(returns[part], axis=1))
    return np.asarray(np.percentile(np.concatenate(means), ENDS, axis=0))
