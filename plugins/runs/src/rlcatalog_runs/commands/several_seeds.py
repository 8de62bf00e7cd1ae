"""Training with several seeds: one process per seed, as many in parallel as there are cores, and
one picture.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from rlcatalog.errors import ConfigError, FailedRunsError, SavedPolicyError, one_line, shown
from rlcatalog_cli import describe_exit
from rlcatalog_runs import Interrupted, refuse_taken, run_folder
from rlcatalog_runs.commands.tables import print_groups
from rlcatalog_runs.comparison import compare, draw_groups
from rlcatalog_runs.interrupts import signal_handler
from rlcatalog_runs.summaries import Run, read_run
from rlcatalog_runs.surroundings import usable_cores

#: The picture of all seeds, in the folder of their runs.
CURVES = "learning_curves.png"
#: Maximum number of seeds in one call, and the largest seed.
MOST, LARGEST = 1000, 2**32 - 1
#: Seconds between checks on the processes, number of these checks per check on their folders, and
#: number of bytes at the end of a log that are searched for an error.
_PAUSE, _LOOK, _TAIL = 0.2, 5, 1 << 16


class _Child(NamedTuple):
    """A seed, with the process that trains it."""

    seed: int
    process: subprocess.Popen[bytes]
    log: Path


def parse_seeds(text: str) -> list[int]:
    """Return the seeds that `--seeds` names: numbers and ranges, such as `0,1,2` or `0-4,10`.

    Args:
        text: The option's value.

    Raises:
        ConfigError: The text has a different format, repeats a seed, or names too many seeds.
    """
    seeds: list[int] = []
    for part in text.split(","):
        if (
            found := re.fullmatch(r"\s*(\d{1,10})(?:\s*-\s*(\d{1,10}))?\s*", part, re.ASCII)
        ) is None:
            raise ConfigError(
                f"--seeds {shown(text)}: expected numbers and ranges, such as 0,1,2 or 0-4."
            )
        first, last = int(found[1]), int(found[2] or found[1])
        twice = [seed for seed in seeds if first <= seed <= last]
        for is_wrong, why in (
            (last > LARGEST, f"{last} is too large; seeds are 0 to {LARGEST}"),
            (last < first, f"the range {first}-{last} is empty; write {last}-{first}"),
            (len(seeds) + last - first >= MOST, f"more than {MOST} seeds"),
            (twice, f"{min(twice, default=0)} is repeated"),
        ):
            if is_wrong:
                raise ConfigError(f"--seeds {shown(text)}: {why}.")
        seeds += range(first, last + 1)
    return seeds


def train_seeds(
    context: typer.Context,
    seeds: Sequence[int],
    folder: Path,
    *,
    threads: int = 1,
    overwrite: bool = False,
    per_seed: Sequence[str] = ("record",),
    resume: Callable[[str], str] = "rlcatalog train --resume {}".format,
) -> None:
    """Run the command once per seed, each time in a separate process and folder, and plot the
    curves.

    The folder contains `seed-0`, `seed-0.log`, … and `learning_curves.png`. If a seed fails, the
    others continue. SIGINT, SIGTERM and SIGHUP are passed on to the runs, which then save and end;
    a second signal ends them at once.

    Args:
        context: The command's context; the command takes `--seed`, `--out` and `--seeds`; see
            `refuse_with_seeds`.
        seeds: The seeds.
        folder: The folder for all runs.
        threads: Number of threads per run; with more threads, fewer runs are parallel.
        overwrite: Replace existing runs.
        per_seed: Names of other options whose value is a folder, in which each seed gets a
            subfolder.
        resume: Function that returns the command for resuming the run in a folder.

    Raises:
        RunFolderError: A folder contains a run, or another process is writing to it.
        FailedRunsError: Some runs failed; all others have ended.
        Exit: The command received a stop signal.
    """
    for seed in seeds:
        refuse_taken(folder / f"seed-{seed}", overwrite)
    line = command_line(context, ("seed", "seeds", "out", *per_seed))
    own = {
        name: Path(value) for name in per_seed if (value := context.params.get(name)) is not None
    }

    def start(seed: int) -> _Child:
        options = [f"--seed={seed}", f"--out={folder / f'seed-{seed}'}"]
        options += [
            f"--{name.replace('_', '-')}={path / f'seed-{seed}'}" for name, path in own.items()
        ]
        log = folder / f"seed-{seed}.log"
        log.unlink(missing_ok=True)  # it may be a link
        with log.open("xb") as output:
            return _Child(seed, _process([line[0], *options, *line[1:]], output), log)

    at_once = max(1, min(len(seeds), usable_cores() // max(1, threads)))
    with run_folder(folder, overwrite):
        print(f"{len(seeds)} seeds, {at_once} at once, into {folder}", flush=True)
        try:
            errors = _all(seeds, start, at_once, bool(context.params.get("quiet")))
        except Interrupted as stop:
            told = (
                f"Interrupted by {stop}. The runs have ended. To continue each:"
                f" {resume(f'{folder}/seed-N')}"
            )
            print(told, file=sys.stderr)
            raise typer.Exit(stop.exit_status) from None
        _draw(folder, [seed for seed in seeds if seed not in errors])
    if errors:
        raise FailedRunsError(_told(errors, len(seeds), folder))


def refuse_with_seeds(context: typer.Context) -> None:
    """Raise an error if an option does not work with several seeds.

    Raises:
        ConfigError: The user passed such an option.
    """
    for name, why in (
        ("seed", "names one seed, --seeds several. Pass one of them."),
        ("resume", "resumes one run. Resume the runs of several seeds one by one."),
    ):
        if name in context.params and is_given(context, name):
            raise ConfigError(f"--{name}: {why}")


def command_line(context: typer.Context, without: Sequence[str] = ()) -> list[str]:
    """Return the current command and its options, as arguments for `rlcatalog`.

    Args:
        context: The command's context.
        without: Names of parameters to omit.
    """
    options: list[str] = []
    rest: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in without or not is_given(context, name):
            continue
        value = context.params[name]
        values = list(value) if isinstance(value, list | tuple) else [value]
        if parameter.param_type_name == "argument":
            rest += map(str, values)
        elif getattr(parameter, "is_flag", False):
            options.append(max(parameter.opts if value else parameter.secondary_opts, key=len))
        else:
            options += [f"{max(parameter.opts, key=len)}={one}" for one in values]
    return [str(context.info_name), *options, "--", *rest]


def is_given(context: typer.Context, name: str) -> bool:
    """Return whether the user passed a parameter."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _process(arguments: Sequence[str], output: Any) -> subprocess.Popen[bytes]:
    """Start `rlcatalog` in a separate process group, so that Ctrl-C reaches it only once, through
    this process.
    """
    here = "" in sys.path or os.getcwd() in sys.path
    command = [sys.executable, *([] if here else ["-P"]), "-m", "rlcatalog_cli", *arguments]
    group: dict[str, Any] = {} if os.name == "nt" else {"process_group": 0}
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, **group
    )


def _all(
    seeds: Sequence[int], start: Callable[[int], _Child], at_once: int, quiet: bool
) -> dict[int, str]:
    """Run all seeds to the end, and return a dict from failed seeds to errors.

    Raises:
        Interrupted: The command received a stop signal, and all runs have ended.
    """
    waiting, tasks, pauses = list(seeds), dict[_Child, TaskID](), itertools.count()
    errors: dict[int, str] = {}
    asked = list[int]()
    with (
        signal_handler(lambda number, _: asked.append(number), "SIGINT", "SIGTERM", "SIGHUP"),
        _bars(quiet) as bars,
    ):
        try:
            while waiting or tasks:
                while waiting and len(tasks) < at_once and not asked:
                    child = start(waiting.pop(0))
                    tasks[child] = bars.add_task(f"seed {child.seed}", total=None, value="-")
                if asked:
                    _end(list(tasks), asked)
                    raise Interrupted(asked[0])
                time.sleep(_PAUSE)
                for child in [child for child in tasks if child.process.poll() is not None]:
                    bars.remove_task(tasks.pop(child))
                    if child.process.returncode:
                        errors[child.seed] = _error(child)
                    print(
                        f"seed {child.seed}: {errors.get(child.seed) or _outcome(child)}",
                        flush=True,
                    )
                if not bars.disable and next(pauses) % _LOOK == 0:
                    for child, task in tasks.items():
                        if (found := _look(child)) is not None:
                            bars.update(
                                task,
                                total=found[0].wanted,
                                completed=found[0].steps,
                                value=found[1],
                            )
        except Exception:  # such as a full disk when starting a process
            _end(list(tasks), [signal.SIGTERM])
            raise
    return errors


def _bars(quiet: bool) -> Progress:
    """Return progress bars for the runs.

    The bars are hidden if there is no terminal or the command is quiet.
    """
    columns = (
        "{task.description}",
        "{task.completed:,.0f} steps",
        "mean return {task.fields[value]}",
    )
    console = Console()
    return Progress(
        TextColumn(columns[0]),
        BarColumn(),
        *map(TextColumn, columns[1:]),
        TimeElapsedColumn(),
        console=console,
        disable=quiet or not console.is_terminal or console.is_dumb_terminal,
    )


def _look(child: _Child) -> tuple[Run, str] | None:
    """Return a run's summary, and its mean return as text; None if the folder is currently being
    written.
    """
    with suppress(SavedPolicyError, OSError):
        run = read_run(child.log.with_suffix(""))
        return run, "-" if run.last_return is None else f"{run.last_return:.1f}"
    return None


def _end(children: Sequence[_Child], asked: Sequence[int]) -> None:
    """Ask processes to end and wait for them; a second signal kills them."""
    name = signal.Signals(asked[0]).name
    told = (
        f"{name}: waiting for {len(children)} runs to save and end; a second signal ends them"
        " at once"
    )
    print(told, file=sys.stderr)
    for child in children:
        _send(child, signal.SIGINT if asked[0] == signal.SIGINT else signal.SIGTERM)
    while any(child.process.poll() is None for child in children):
        time.sleep(_PAUSE)
        if len(asked) > 1:
            for child in children:
                _send(child, getattr(signal, "SIGKILL", signal.SIGTERM))


def _send(child: _Child, number: int) -> None:
    with suppress(OSError):  # it has ended
        if os.name == "nt":
            child.process.terminate()
        elif number == getattr(signal, "SIGKILL", None):
            os.killpg(child.process.pid, number)  # including the processes of its environments
        else:
            child.process.send_signal(number)


def _error(child: _Child) -> str:
    """Return why a run failed: the error that it printed, or how its process ended."""
    code = child.process.returncode
    how = describe_exit(code)
    with suppress(OSError):
        log = child.log.read_bytes()[-_TAIL:].decode(errors="replace")
        lines = [line for line in log.splitlines() if line.strip(" │╰╯─╭╮")]
        for line in reversed(lines):
            if line.startswith("error: "):
                return one_line(line, 2000)
        if lines and code > 0:
            return f"error: {how}: {one_line(lines[-1].strip(' │'))}"
    return f"error: {how}"


def _outcome(child: _Child) -> str:
    """Describe how a run ended, if it did not fail."""
    found = _look(child)
    return "ended" if found is None else f"{found[0].steps:,} steps, mean return {found[1]}"


def _draw(folder: Path, seeds: Sequence[int]) -> None:
    """Plot the curves of the runs that did not fail, and print their final values."""
    if not seeds:
        return
    try:
        groups = compare([read_run(folder / f"seed-{seed}") for seed in seeds])
    except (ConfigError, SavedPolicyError) as error:
        print(f"no picture: {error}", file=sys.stderr)
        return
    env = groups[0].runs[0].env
    print_groups(groups)
    draw_groups(
        folder / CURVES,
        groups,
        f"{env}, {len(seeds)} seeds" if len(seeds) > 1 else f"{env}, seed {seeds[0]}",
    )
    print(f"learning curves: {folder / CURVES}")


def _told(errors: dict[int, str], count: int, folder: Path) -> str:
    """Return the errors from several seeds, grouped by message."""
    alike: dict[str, list[int]] = {}
    for seed in sorted(errors):
        alike.setdefault(errors[seed].removeprefix("error: "), []).append(seed)
    lines = [
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}: {text}"
        for text, seeds in alike.items()
    ]
    return "\n".join(
        [f"{len(errors)} of {count} seeds failed; their output is in {folder}/seed-N.log.", *lines]
    )
