"""The commands `runs` and `compare`, which show run folders in a table or a picture."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from rlcatalog.errors import SavedPolicyError, one_line, reason
from rlcatalog_cli import print_answer
from rlcatalog_runs import comparison, json_line
from rlcatalog_runs.summaries import Run, find_runs, read_run

_COLOURS = {
    "finished": "green",
    "running": "cyan",
    "failed": "red",
    "died": "red",
    "interrupted": "yellow",
}
#: Columns with numbers.
_NUMBERS = ("seed", "steps", "return", "best evaluation", "time", "runs", "final return")
#: Wider than any line, so that nothing is wrapped or cut.
_WIDE = 100_000


def runs(
    directory: Annotated[
        Path, typer.Argument(metavar="PATH", help="Folder to search, at any depth.")
    ] = Path("runs"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per run instead of a table.")
    ] = False,
) -> None:
    """List training runs, newest first: steps, returns and status."""
    found, damaged = _read([directory])
    found.sort(key=lambda run: (-run.started, str(run.folder)))
    if as_json:
        for run in found:
            print_answer(json_line(_as_json(run)))
        for folder, error in damaged:
            print_answer(json_line({"folder": str(folder), "status": "damaged", "error": error}))
        return
    if found:
        _print_table([_cells(run) for run in found])
    for folder, error in damaged:
        print(f"{one_line(str(folder), _WIDE)}: damaged: {error}")


def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Run folders, or folders that contain them."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="File for the picture; its suffix selects the format.",
        ),
    ] = Path("comparison.png"),
    by: Annotated[
        str | None,
        typer.Option(
            metavar="model|framework|algorithm|KEY",
            help="Group runs by this setting; the default is everything except the seed.",
        ),
    ] = None,
) -> None:
    """Plot learning curves with intervals over seeds; runs that differ only in their seed form one
    curve.
    """
    comparison.check_picture(out)
    found, damaged = _read(folders)
    if damaged:
        raise SavedPolicyError(f"{damaged[0][0]}: damaged: {damaged[0][1]}")
    groups = comparison.compare(found, by)
    print_groups(groups)
    comparison.draw_groups(out, groups, groups[0].runs[0].env or "")
    print(f"picture: {out}")


def print_groups(groups: Sequence[comparison.Group]) -> None:
    """Print each curve's final value."""
    rows = []
    for group in groups:
        interval = (
            "one run"
            if group.interval is None
            else " to ".join(map(_number, group.interval[:, -1]))
        )
        seeds = [run.seed for run in group.runs]
        rows.append(
            {
                "curve": group.label,
                "runs": str(len(group.runs)),
                "seeds": one_line(
                    ", ".join("-" if seed is None else str(seed) for seed in seeds), 40
                ),
                "final return": _number(group.middle[-1]),
                "95% interval": interval,
            }
        )
    _print_table(rows)
    every = [run for group in groups for run in group.runs]
    end = groups[0].steps[-1]
    shortest = min(every, key=lambda run: run.steps).folder
    where = (
        f", where the shortest run ends: {shortest}"
        if any(run.steps > 1.05 * end for run in every)
        else ""
    )
    print(f"compared after {end:,.0f} steps{where}")
    for group in groups:
        made = [json_line({"seed": run.seed, **comparison.settings_of(run)}) for run in group.runs]
        twice = next(
            (run for run, how in zip(group.runs, made, strict=True) if made.count(how) > 1), None
        )
        if twice is not None:
            print(
                f"{group.label}: seed {twice.seed} occurs more than once, so the interval is too"
                " narrow."
            )


def _read(paths: Sequence[Path]) -> tuple[list[Run], list[tuple[Path, str]]]:
    """Return the runs at or below the given paths, and damaged folders with their problems.

    Raises:
        SavedPolicyError: A path does not contain any run.
    """
    folders: dict[Path, Path] = {}  # each folder once
    for path in paths:
        inside = list(find_runs(path))
        if not inside:
            what = "contains no run" if path.is_dir() else "no such folder"
            raise SavedPolicyError(
                f"{one_line(str(path))}: {what}. `rlcatalog train ENV_ID` creates one in runs."
            )
        for folder in inside:
            folders.setdefault(folder.resolve(), folder)
    found, damaged = [], []
    for folder in folders.values():
        try:
            found.append(read_run(folder))
        except SavedPolicyError as error:
            damaged.append((folder, one_line(str(error), _WIDE)))
        except (OSError, ValueError, OverflowError) as error:
            damaged.append((folder, reason(error)))
    return found, damaged


def _as_json(run: Run) -> dict[str, Any]:
    fields = run._asdict()
    del fields["config"]
    began = (
        datetime.fromtimestamp(run.started, UTC)
        .isoformat(timespec="seconds")
        .replace("+00:00", "Z")
    )
    return {**fields, "folder": str(run.folder), "started": began}


def _cells(run: Run) -> dict[str, str]:
    done = f"{run.steps:,}" if run.wanted is None else f"{run.steps:,} of {run.wanted:,}"
    status = f"failed: {run.error}" if run.status == "failed" and run.error else run.status or "-"
    return {
        "folder": str(run.folder),
        "environment": run.env or "-",
        "algorithm": comparison.shown_algorithm(run),
        "framework": run.framework or "-",
        "seed": "-" if run.seed is None else str(run.seed),
        "steps": done,
        "return": _number(run.last_return),
        "best evaluation": _number(run.best_evaluation),
        "time": _time(run.seconds),
        "status": status,
    }


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if 100 <= abs(value) < 1e9 else f"{value:.3g}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, hours = round(seconds / 60), int(seconds // 3600)
    return f"{minutes} min" if seconds < 6000 else f"{hours}:{round(seconds / 60) % 60:02} h"


def _print_table(cells: Sequence[dict[str, str]]) -> None:
    """Print rows as a table if it fits, otherwise as two lines each.

    Without a terminal, print plain, uncut lines.
    """
    rows = [{name: Text(one_line(text, _WIDE)) for name, text in row.items()} for row in cells]
    for row in rows:
        if (status := row.get("status")) is not None:
            status.stylize(_COLOURS.get(status.plain.partition(":")[0], ""))
    console = Console()
    drawn = console.is_terminal and not console.is_dumb_terminal
    table = Table(box=box.HEAVY_HEAD if drawn else None, show_edge=drawn, pad_edge=drawn)
    for name in rows[0]:
        table.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    wide = Console(width=_WIDE, height=len(rows))
    width = Measurement.get(wide, wide.options, table).maximum
    if not drawn or width <= console.width:
        with wide.capture() as captured:
            wide.print(table)
        sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
        return
    for row in rows:
        (_, first), *others = row.items()
        console.print(first, soft_wrap=True, style="bold")
        line = Text("  ")
        for name, text in others:
            line.append(", " if len(line) > 2 else "")
            line.append_text(Text(f"{name} ") + text if name in _NUMBERS else text)
        console.print(line, soft_wrap=True)
