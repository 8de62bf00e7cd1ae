"""Training with several seeds: one process per seed, as many in parallel as there are cores, and
one picture.
"""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from rlcatalog.errors import (
    ConfigError,
    FailedRunsError,
    SavedPolicyError,
    one_line,
    reason,
    shown,
)
from rlcatalog_cli import describe_exit
from rlcatalog_runs import Interrupted, refuse_taken, run_folder
from rlcatalog_runs.checkpoints import checkpoint_steps, checkpoints_of
from rlcatalog_runs.commands.child_processes import ask_to_end, kill, start_process
from rlcatalog_runs.commands.tables import print_groups
from rlcatalog_runs.comparison import compare, draw_groups
from rlcatalog_runs.interrupts import signal_handler
from rlcatalog_runs.records import FINISHED, INTERRUPTED
from rlcatalog_runs.summaries import Run, read_run
from rlcatalog_runs.surroundings import usable_cores

#: The picture of all seeds, in the folder of their runs.
CURVES = "learning_curves.png"
#: Maximum number of seeds in one call.
MOST = 1000
#: The largest seed.
LARGEST = 2**32 - 1
#: Seconds between checks on the processes.
_PAUSE = 0.2
#: Number of these checks per check on the runs' folders.
_CHECKS_PER_UPDATE = 5
#: Number of bytes at the end of a log that are searched for an error.
_TAIL = 1 << 16


class _Child(NamedTuple):
    """A seed, with the process that trains it.

    Attributes:
        seed: The seed.
        started: When the process was started, in seconds since 1970.
        process: The process.
        log: File with the process's output.
    """

    seed: int
    started: float
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def folder(self) -> Path:
        """The run's folder, beside its log."""
        return self.log.with_suffix("")


def parse_seeds(text: str) -> list[int]:
    """Return the seeds that `--seeds` names: numbers and ranges, such as `0,1,2` or `0-4,10`.

    Args:
        text: The option's value.

    Raises:
        ConfigError: The text has a different format, repeats a seed, or names too many seeds.
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,10})(?:\s*-\s*(\d{1,10}))?\s*", part, re.ASCII)
        if match is None:
            raise ConfigError(
                f"--seeds {shown(text)}: expected numbers and ranges, such as 0,1,2 or 0-4."
            )
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        fault = _fault_of_range(first, last, seeds)
        if fault is not None:
            raise ConfigError(f"--seeds {shown(text)}: {fault}.")
        seeds += range(first, last + 1)
    return seeds


def _fault_of_range(first: int, last: int, seeds_before: Sequence[int]) -> str | None:
    """Return what is wrong with a range of seeds, or None."""
    if last > LARGEST:
        return f"{last} is too large; seeds are 0 to {LARGEST}"
    if last < first:
        return f"the range {first}-{last} is empty; write {last}-{first}"
    num_seeds = len(seeds_before) + last - first + 1
    if num_seeds > MOST:
        return f"more than {MOST} seeds"
    repeated_seeds = [seed for seed in seeds_before if first <= seed <= last]
    if repeated_seeds:
        return f"{min(repeated_seeds)} is repeated"
    return None


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
    others continue. Ctrl-C, SIGTERM and SIGHUP make the runs save and end, and a second signal ends
    them at once; then the command prints which runs were saved. On Windows, only Ctrl-C does so.

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
    for seed in seeds:  # before the first run starts
        refuse_taken(folder / f"seed-{seed}", overwrite)
    command, *arguments = command_line(context, ("seed", "seeds", "out", *per_seed))
    folders_by_option = {"out": folder}
    for name in per_seed:
        if context.params.get(name) is not None:
            folders_by_option[name] = Path(context.params[name])

    def start(seed: int) -> _Child:
        options = [f"--seed={seed}"]
        for name, parent in folders_by_option.items():
            folder_of_seed = parent / f"seed-{seed}"
            options.append(f"--{name.replace('_', '-')}={folder_of_seed}")
        log = folder / f"seed-{seed}.log"
        log.unlink(missing_ok=True)  # it may be a link
        with log.open("xb") as output:
            start_time = time.time()
            process = start_process([command, *options, *arguments], output)
        return _Child(seed, start_time, process, log)

    num_that_fit = usable_cores() // max(1, threads)
    num_parallel = max(1, min(len(seeds), num_that_fit))
    with run_folder(folder, overwrite):
        print(f"{len(seeds)} seeds, {num_parallel} at once, into {folder}", flush=True)
        runs = _SeedRuns(seeds, start, num_parallel)
        stop = runs.train(quiet=bool(context.params.get("quiet")))
        if stop is not None:
            _print_error(_stop_message(stop, runs, folder, resume))
            raise typer.Exit(stop.exit_status)
        _draw(folder, [seed for seed in seeds if seed not in runs.errors])
    if runs.errors:
        lines = "\n".join(_lines_of_seeds(runs.errors))
        raise FailedRunsError(
            f"{len(runs.errors)} of {len(seeds)} seeds failed; their output is in"
            f" {folder}/seed-N.log.\n{lines}"
        )


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
    arguments: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in without or not is_given(context, name):
            continue
        value = context.params[name]
        values = list(value) if isinstance(value, list | tuple) else [value]
        if parameter.param_type_name == "argument":
            arguments += [str(item) for item in values]
        elif getattr(parameter, "is_flag", False):  # click's parameters; arguments lack it
            flags = parameter.opts if value else parameter.secondary_opts
            options.append(max(flags, key=len))  # the long form
        else:
            flag = max(parameter.opts, key=len)
            options += [f"{flag}={item}" for item in values]
    return [str(context.info_name), *options, "--", *arguments]


def is_given(context: typer.Context, name: str) -> bool:
    """Return whether the user passed a parameter."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


class _SeedRuns:
    """Runs of several seeds, each in a separate process.

    Args:
        seeds: The seeds.
        start: Function that starts a seed's process.
        num_parallel: Number of processes that run at the same time.

    Attributes:
        endings: How each run has ended, by seed.
        errors: Errors of the runs that failed, by seed.
    """

    def __init__(
        self, seeds: Sequence[int], start: Callable[[int], _Child], num_parallel: int
    ) -> None:
        self.endings: dict[int, str] = {}
        self.errors: dict[int, str] = {}
        self._start = start
        self._num_parallel = num_parallel
        self._waiting = list(seeds)
        self._running: list[_Child] = []
        self._signals: list[int] = []

    def train(self, *, quiet: bool) -> Interrupted | None:
        """Run all seeds to the end, or until a signal stops the command.

        All processes have ended when this returns or raises an error.

        Args:
            quiet: Whether to show no progress.

        Returns:
            The signal that stopped the command, or None.
        """

        def append_signal(number: int, _frame: FrameType | None) -> None:
            self._signals.append(number)

        with signal_handler(append_signal, "SIGINT", "SIGTERM", "SIGHUP"), _Bars(quiet) as bars:
            try:
                while self._waiting or self._running:
                    self._start_waiting()
                    time.sleep(_PAUSE)
                    # Before the ended processes: on Windows, Ctrl-C has also reached them.
                    if self._signals:
                        stop = Interrupted(self._signals[0])
                        self._stop(f"Interrupted by {stop}.")
                        return stop
                    self._collect_ended()
                    bars.update(self._running)
            except Exception as error:  # such as a full disk when starting a process
                if not self._signals:
                    self._signals.append(signal.SIGTERM)
                self._stop(f"The runs cannot go on: {reason(error)}.")
                _print_error("\n".join(_lines_of_seeds(self.endings)))
                raise
        return None

    def _start_waiting(self) -> None:
        while self._waiting and len(self._running) < self._num_parallel and not self._signals:
            child = self._start(self._waiting[0])
            del self._waiting[0]  # not before: a seed whose process cannot start is not started
            self._running.append(child)
            if self._signals:
                # On Windows, a process that starts just now may miss Ctrl-C, and would then not
                # end. It has nothing to save yet.
                kill(child.process)

    def _collect_ended(self) -> None:
        for child in list(self._running):
            if child.process.poll() is None:
                continue
            self._running.remove(child)
            if child.process.returncode == 0:
                ending = _outcome(child)
            else:
                ending = _error(child)
                self.errors[child.seed] = ending
            self.endings[child.seed] = ending
            print(f"seed {child.seed}: {ending}", flush=True)

    def _stop(self, why: str) -> None:
        """Ask the processes to save and end, and wait for them; kill them after a second signal.

        Args:
            why: Why they are stopped.
        """
        seeds = ", ".join(str(child.seed) for child in self._running)
        _print_error(
            f"{why} Waiting until these seeds have saved their runs and ended: {seeds}. Another"
            " signal, such as Ctrl-C, ends them at once."
        )
        # Pass on the signal; instead of SIGHUP, which runs do not handle, send SIGTERM.
        was_ctrl_c = self._signals[0] == signal.SIGINT
        number = signal.SIGINT if was_ctrl_c else signal.SIGTERM
        for child in self._running:
            ask_to_end(child.process, number)
        while any(child.process.poll() is None for child in self._running):
            time.sleep(_PAUSE)
            if len(self._signals) > 1:
                for child in self._running:
                    kill(child.process)
        for child in self._running:
            self.endings[child.seed] = _outcome_after_stop(child)
        for seed in self._waiting:
            self.endings[seed] = "not started"


class _Bars:
    """Progress bars of running processes, hidden without a terminal or if the command is quiet.

    Args:
        quiet: Whether the command is quiet.
    """

    def __init__(self, quiet: bool) -> None:
        console = Console()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} steps"),
            TextColumn("mean return {task.fields[value]}"),
            TimeElapsedColumn(),
            console=console,
            disable=quiet or not console.is_terminal or console.is_dumb_terminal,
        )
        self._tasks: dict[int, TaskID] = {}
        self._checks = itertools.count()

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Before rich 14.3, hidden bars print an empty line at their end, which ends the whole
        # command if its standard output is closed.
        if not self._progress.disable:
            self._progress.stop()

    def update(self, running: Sequence[_Child]) -> None:
        """Show the running processes only, and now and then how far their runs are."""
        seeds = [child.seed for child in running]
        for seed in list(self._tasks):
            if seed not in seeds:
                self._progress.remove_task(self._tasks.pop(seed))
        for seed in seeds:
            if seed not in self._tasks:
                self._tasks[seed] = self._progress.add_task(f"seed {seed}", total=None, value="-")
        # Reading a run's folder takes longer than looking at its process, so do it less often.
        is_update_due = next(self._checks) % _CHECKS_PER_UPDATE == 0
        if self._progress.disable or not is_update_due:
            return
        for child in running:
            run = _read(child)
            if run is not None:
                self._progress.update(
                    self._tasks[child.seed],
                    total=run.wanted,
                    completed=run.steps,
                    value=_last_return(run),
                )


def _print_error(text: str) -> None:
    with suppress(OSError):  # the terminal is closed, which also stops the command
        print(text, file=sys.stderr)


def _read(child: _Child) -> Run | None:
    """Return a run's summary, or None if the run has not begun or its folder cannot be read."""
    with suppress(SavedPolicyError, OSError):
        run = read_run(child.folder)
        if run.started >= child.started:  # otherwise, it is the run that this one overwrites
            return run
    return None


def _last_return(run: Run) -> str:
    return "-" if run.last_return is None else f"{run.last_return:.1f}"


def _outcome_after_stop(child: _Child) -> str:
    """Describe how a stopped run has ended: at which step it is saved, or that it is not saved."""
    run = _read(child)
    exit_text = describe_exit(child.process.returncode)
    if run is None:
        return f"not saved: its process ended before the run began ({exit_text})"
    if run.status == FINISHED:
        return _outcome(child)
    error = run.error or exit_text
    checkpoints = checkpoints_of(child.folder)
    if not checkpoints:
        return f"not saved: {error}; it has no checkpoint"
    step = f"at step {checkpoint_steps(checkpoints[-1]):,}"
    if run.status == INTERRUPTED:
        return f"saved {step}"
    return f"not saved: {error}; its last checkpoint is {step}"


def _stop_message(
    stop: Interrupted, runs: _SeedRuns, folder: Path, resume: Callable[[str], str]
) -> str:
    """Return how all runs have ended after a signal, and how to continue those that are saved."""
    lines = [f"Interrupted by {stop}. The runs have ended:", *_lines_of_seeds(runs.endings)]
    if any(checkpoints_of(folder / f"seed-{seed}") for seed in runs.endings):
        command = resume(f"{folder}/seed-N")
        lines.append(f"To continue a saved run: {command}")
    return "\n".join(lines)


def _error(child: _Child) -> str:
    """Return why a run failed: the error that it printed, or how its process ended."""
    exit_status = child.process.returncode
    exit_text = describe_exit(exit_status)
    with suppress(OSError):
        log = child.log.read_bytes()[-_TAIL:].decode(errors="replace")
        # Typer draws a frame around its errors.
        lines = [line for line in log.splitlines() if line.strip(" │╰╯─╭╮")]
        for line in reversed(lines):
            if line.startswith("error: "):
                return one_line(line, length=2000)
        # A negative status is the signal that ended the process, and its last line says nothing
        # about that.
        was_killed = exit_status <= 0
        if lines and not was_killed:
            last_line = one_line(lines[-1].strip(" │"))
            return f"error: {exit_text}: {last_line}"
    return f"error: {exit_text}"


def _outcome(child: _Child) -> str:
    """Describe how a run ended, if it did not fail."""
    run = _read(child)
    if run is None:
        return "ended"
    return f"finished, {run.steps:,} steps, mean return {_last_return(run)}"


def _draw(folder: Path, seeds: Sequence[int]) -> None:
    """Plot the curves of the runs that did not fail, and print their final values."""
    if not seeds:
        return
    try:
        groups = compare([read_run(folder / f"seed-{seed}") for seed in seeds])
    except (ConfigError, SavedPolicyError) as error:
        print(f"no picture: {error}", file=sys.stderr)
        return
    print_groups(groups)
    env = groups[0].runs[0].env
    seeds_text = f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    draw_groups(folder / CURVES, groups, title=f"{env}, {seeds_text}")
    print(f"learning curves: {folder / CURVES}")


def _lines_of_seeds(texts: Mapping[int, str]) -> list[str]:
    """Return a line for each text, with the seeds that have it, sorted by seed."""
    seeds_by_text: dict[str, list[int]] = {}
    for seed in sorted(texts):
        text = texts[seed].removeprefix("error: ")
        seeds_by_text.setdefault(text, []).append(seed)
    lines = []
    for text, seeds in seeds_by_text.items():
        word = "seeds" if len(seeds) > 1 else "seed"
        lines.append(f"{word} {', '.join(map(str, seeds))}: {text}")
    return lines
