"""The commands `runs` and `compare`, which show run folders in a table or a picture."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from rlcatalog.errors import SavedPolicyError, one_line, reason
from rlcatalog_cli import print_answer
from rlcatalog_runs import comparison, json_line
from rlcatalog_runs.fairness import unfair_differences
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
#: What a table shows in place of an unknown value.
_UNKNOWN = "-"
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
    folders = _read_folders([directory])
    # Runs that started at the same time are sorted by folder.
    newest_first = sorted(folders.runs, key=lambda run: (-run.started, str(run.folder)))
    if as_json:
        for run in newest_first:
            print_answer(json_line(_as_json(run)))
        for damaged in folders.damaged:
            answer = {"folder": str(damaged.path), "status": "damaged", "error": damaged.error}
            print_answer(json_line(answer))
        return
    if newest_first:
        _print_table([_cells(run) for run in newest_first])
    for damaged in folders.damaged:
        print(f"{one_line(str(damaged.path), _WIDE)}: damaged: {damaged.error}")


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
    folders_of_runs = _read_folders(folders)
    for damaged in folders_of_runs.damaged:
        raise SavedPolicyError(f"{damaged.path}: damaged: {damaged.error}")
    groups = comparison.compare(folders_of_runs.runs, by)
    print_groups(groups)
    env = groups[0].runs[0].env  # all runs have the same
    comparison.draw_groups(out, groups, title=env or "")
    print(f"picture: {out}")


def print_groups(groups: Sequence[comparison.Group]) -> None:
    """Print each curve's final value."""
    _print_table([_cells_of_group(group) for group in groups])
    runs = [run for group in groups for run in group.runs]
    last_step = groups[0].steps[-1]
    text = f"compared after {last_step:,.0f} steps"
    # Some runs were cut at the end of the shortest one. Up to 5% of a run is not worth a remark.
    if any(run.steps > 1.05 * last_step for run in runs):
        shortest_run = min(runs, key=lambda run: run.steps)
        text += f", where the shortest run ends: {shortest_run.folder}"
    print(text)
    for sentence in unfair_differences(groups):
        print(f"warning: {sentence}", file=sys.stderr)


def _cells_of_group(group: comparison.Group) -> dict[str, str]:
    """Return a table's cells for a group, by column."""
    seeds = ", ".join("-" if run.seed is None else str(run.seed) for run in group.runs)
    if group.interval is None:
        interval = "one run"
    else:
        low, high = group.interval[:, -1]  # at the last step
        interval = f"{_number(low)} to {_number(high)}"
    return {
        "curve": group.label,
        "runs": str(len(group.runs)),
        "seeds": one_line(seeds, length=40),
        "final return": _number(group.middle[-1]),
        "95% interval": interval,
    }


class _DamagedFolder(NamedTuple):
    """Folder of a run that cannot be read, and why."""

    path: Path
    error: str


class _RunFolders(NamedTuple):
    """The runs at or below some paths."""

    runs: list[Run]
    damaged: list[_DamagedFolder]


def _read_folders(paths: Sequence[Path]) -> _RunFolders:
    """Read the runs at or below the given paths, each folder once.

    Raises:
        SavedPolicyError: A path does not contain any run.
    """
    folder_at_path: dict[Path, Path] = {}
    for path in paths:
        folders = list(find_runs(path))
        if not folders:
            problem = "contains no run" if path.is_dir() else "no such folder"
            raise SavedPolicyError(
                f"{one_line(str(path))}: {problem}. `rlcatalog train ENV_ID` creates one in runs."
            )
        for folder in folders:
            folder_at_path.setdefault(folder.resolve(), folder)
    result = _RunFolders(runs=[], damaged=[])
    for folder in folder_at_path.values():
        try:
            result.runs.append(read_run(folder))
        except SavedPolicyError as error:
            result.damaged.append(_DamagedFolder(folder, one_line(str(error), _WIDE)))
        except (OSError, ValueError, OverflowError) as error:
            result.damaged.append(_DamagedFolder(folder, reason(error)))
    return result


def _as_json(run: Run) -> dict[str, Any]:
    fields = run._asdict()
    del fields["config"]
    start = datetime.fromtimestamp(run.started, UTC).isoformat(timespec="seconds")
    fields["folder"] = str(run.folder)
    fields["started"] = start.replace("+00:00", "Z")
    return fields


def _cells(run: Run) -> dict[str, str]:
    """Return a table's cells for a run, by column."""
    steps = f"{run.steps:,}"
    if run.wanted is not None:
        steps += f" of {run.wanted:,}"
    status = run.status or "-"
    if run.status == "failed" and run.error:
        status += f": {run.error}"
    return {
        "folder": str(run.folder),
        "environment": run.env or "-",
        "algorithm": comparison.shown_algorithm(run),
        "framework": run.framework or "-",
        "seed": "-" if run.seed is None else str(run.seed),
        "steps": steps,
        "return": _number(run.last_return),
        "best evaluation": _number(run.best_evaluation),
        "time": _time(run.seconds),
        "status": status,
    }


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if 100 <= abs(value) < 1e9:
        return f"{value:,.1f}"
    return f"{value:.3g}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if seconds < 6000:
        return f"{minutes} min"
    hours = int(seconds // 3600)
    return f"{hours}:{minutes % 60:02} h"


def _print_table(cells: Sequence[dict[str, str]]) -> None:
    """Print rows as a table if it fits, otherwise as two lines each.

    Without a terminal, print plain, uncut lines.

    Args:
        cells: For each row, the cells by column.
    """
    rows = [{name: Text(one_line(text, _WIDE)) for name, text in row.items()} for row in cells]
    for row in rows:
        if "status" in row:
            status, _, _ = row["status"].plain.partition(":")
            row["status"].stylize(_COLOURS.get(status, ""))
    console = Console()
    is_terminal = console.is_terminal and not console.is_dumb_terminal
    table = Table(
        box=box.HEAVY_HEAD if is_terminal else None, show_edge=is_terminal, pad_edge=is_terminal
    )
    for name in rows[0]:
        table.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    # A console without a terminal would cut the cells at 80 columns, so print to a wide one.
    wide_console = Console(width=_WIDE, height=len(rows))
    width = Measurement.get(wide_console, wide_console.options, table).maximum
    if is_terminal and width > console.width:
        for row in rows:
            _print_in_two_lines(console, row)
        return
    with wide_console.capture() as capture:
        wide_console.print(table)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    sys.stdout.write("\n".join(lines) + "\n")


def _print_in_two_lines(console: Console, row: Mapping[str, Text]) -> None:
    """Print a row's first cell on one line, and the others on the next."""
    first_name, *other_names = row
    console.print(row[first_name], soft_wrap=True, style="bold")
    indent = "  "
    line = Text(indent)
    for name in other_names:
        if row[name].plain == _UNKNOWN:
            continue  # without a column, nothing has to stand in its place
        if len(line) > len(indent):
            line.append(", ")
        if name in _NUMBERS:
            line.append(f"{name} ")  # other cells, such as an algorithm, need no name
        line.append_text(row[name])
    console.print(line, soft_wrap=True)
