"""Runs with several seeds: their commands, folders and picture, failures, and signals."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from rlcatalog.errors import ConfigError, FailedRunsError, RunFolderError
from rlcatalog_runs import run_folder
from rlcatalog_runs.commands.several_seeds import command_line, parse_seeds, refuse_with_seeds
from rlcatalog_runs.summaries import read_run
from rlcatalog_runs.surroundings import usable_cores

#: A command with the options of `train`, which learns nothing. It first runs the code that a test
#: puts into an environment variable; the processes that it starts do not. With `--set`:
#:
#: - `fail`, `break` and `die` name seeds (`1+3`) that raise an error of rlcatalog, raise another
#:   error, or are killed;
#: - `sleep` is the duration of a run in seconds;
#: - after Ctrl-C, a run writes a checkpoint, unless `unsaved` names its seed, and ends after a
#:   moment, or, with `stubborn`, after a minute.
PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
from typing import Annotated
import typer
from rlcatalog_runs import record_run, run_folder
from rlcatalog_runs.commands.several_seeds import parse_seeds, train_seeds

exec(os.environ.pop("TOY_SETUP", ""))


def toy(
    context: typer.Context,
    env_id: Annotated[str, typer.Argument()],
    settings: Annotated[list[str] | None, typer.Option("--set")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    seeds: Annotated[str | None, typer.Option("--seeds")] = None,
    out: Annotated[Path | None, typer.Option()] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite")] = False,
    record: Annotated[Path | None, typer.Option()] = None,
    threads: Annotated[int, typer.Option()] = 1,
):
    if seeds is not None:
        train_seeds(context, parse_seeds(seeds), out, threads=threads, overwrite=overwrite)
        return
    values = dict(text.split("=") for text in settings or [])
    started = time.time()
    with run_folder(out, overwrite), record_run(out):
        algorithm = {"name": "PPO", "seed": seed}
        about = {"env": env_id, "steps": 200, "framework": "torch", "algorithm": algorithm}
        (out / "config.json").write_text(json.dumps({**about, "model": {}}))
        rows = [
            {"timesteps_total": 100 * i, "episode_return_mean": float(seed + i)} for i in (1, 2)
        ]
        (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
        (out / "argv.json").write_text(json.dumps(sys.argv[1:]))
        print("there", flush=True)
        if str(seed) in values.get("fail", "").split("+"):
            from rlcatalog.errors import NonFiniteError
            raise NonFiniteError("the loss is NaN")
        if str(seed) in values.get("break", "").split("+"):
            raise ZeroDivisionError("not ours")
        if str(seed) in values.get("die", "").split("+"):
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            time.sleep(float(values.get("sleep", "0")))
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            if str(seed) not in values.get("unsaved", "").split("+"):
                (out / "checkpoints/step-000001500").mkdir(parents=True)
            time.sleep(60 if "stubborn" in values else 0.3)
            raise
        finally:
            (out / "times.json").write_text(json.dumps([started, time.time()]))
"""

#: What differs on Windows: processes have no groups, get no signals, and are ended without notice.
WINDOWS = """
import os, signal, subprocess
from rlcatalog_runs.commands import child_processes

class WindowsProcess(subprocess.Popen):
    def __init__(self, *arguments, process_group=None, **options):
        if process_group is not None:
            raise ValueError("process_group is only supported on POSIX platforms")
        super().__init__(*arguments, **options)

    def poll(self):
        if super().poll() == -9:
            self.returncode = 1  # the exit status that TerminateProcess sets
        return self.returncode

    def send_signal(self, number):
        if number != signal.SIGTERM:
            raise ValueError(f"Unsupported signal: {number}")
        self.terminate()

    def terminate(self):
        os.kill(self.pid, 9)

    kill = terminate

child_processes.WINDOWS = True
subprocess.Popen = WindowsProcess
del os.killpg, signal.SIGKILL, signal.SIGHUP
"""

PLUGIN = """
from rlcatalog import CommandSpec, hookimpl

@hookimpl
def rlcatalog_commands():
    return [CommandSpec("toy", {"cli": "toy_command:toy"}, "Learns nothing.")]
"""


@pytest.fixture(autouse=True)
def sigint():
    """Handle SIGINT: in the background of a shell, tests and the processes they start ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def environ(tmp_path_factory):
    """Return an environment in whose processes a plugin brings the command `toy`."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "toy_command.py").write_text(PROGRAM)
    (folder / "toy_plugin.py").write_text(PLUGIN)
    about = folder / "toy-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\nRequires-Dist: rlcatalog<0.2,>=0.1\n"
    )
    (about / "entry_points.txt").write_text("[rlcatalog.plugins]\ntoy = toy_plugin\n")
    return {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}


def start_command(folder, environ, *arguments):
    command = [
        sys.executable,
        "-P",
        "-m",
        "rlcatalog_cli",
        "toy",
        "CartPole-v1",
        f"--out={folder}",
        *arguments,
    ]
    return subprocess.Popen(
        command,
        env=environ,
        cwd=folder.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


@pytest.fixture(scope="module")
def toy(environ):
    """Return the command in this process; its children are processes of the program."""
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("PYTHONPATH", environ["PYTHONPATH"])
    monkeypatch.syspath_prepend(environ["PYTHONPATH"])
    app = typer.Typer()
    app.callback()(lambda: None)
    app.command("toy")(importlib.import_module("toy_command").toy)

    def run(folder, *arguments):
        line = ["toy", "CartPole-v1", f"--out={folder}", *arguments]
        return CliRunner().invoke(app, line, catch_exceptions=False).output

    yield run
    monkeypatch.undo()


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


# --- the option -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("0", [0]),
        ("0,1,2", [0, 1, 2]),
        ("0-4", [0, 1, 2, 3, 4]),
        (" 7, 0 - 2 ", [7, 0, 1, 2]),
        ("4294967295", [2**32 - 1]),
    ],
)
def test_seeds_are_numbers_and_ranges(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected numbers and ranges, such as 0,1,2 or 0-4"),
        ("1,", "expected numbers"),
        ("-1", "expected numbers"),
        ("1.5", "expected numbers"),
        ("a", "--seeds 'a': expected numbers"),
        ("1-2-3", "expected numbers"),
        ("\u0663", "expected numbers"),  # a digit, but not of ASCII
        ("4294967296", "is too large"),  # 2**32
        ("4-0", "the range 4-0 is empty; write 0-4"),
        ("0,1,0", "0 is repeated"),
        ("0-2,1", "1 is repeated"),
        ("0-1000", "more than 1000 seeds"),
        ("0-999,2000", "more than 1000 seeds"),
        pytest.param("9" * 100_000, "expected numbers", id="long-number"),
    ],
)
def test_wrong_seeds_are_an_error(text, message):
    with pytest.raises(ConfigError, match="--seeds") as caught:
        parse_seeds(text)

    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000


def rebuild_command_line(*arguments):
    """Run a command `learn` that is like `train`; return the command line for each of its seeds."""
    lines = []

    def command(
        context: typer.Context,
        env_id: Annotated[str, typer.Argument()],
        model: Annotated[list[str] | None, typer.Option("--model", "-m")] = None,
        seed: Annotated[int, typer.Option()] = 0,
        seeds: Annotated[str | None, typer.Option("--seeds")] = None,
        explore: Annotated[bool, typer.Option()] = True,
        quiet: Annotated[bool, typer.Option("--quiet")] = False,
        lr: Annotated[float, typer.Option()] = 0.1,
        out: Annotated[Path | None, typer.Option()] = None,
        resume: Annotated[Path | None, typer.Option()] = None,
    ) -> None:
        # Each seed gets other values of --seeds and --out.
        lines.append(command_line(context, ("seeds", "out")))
        refuse_with_seeds(context)

    app = typer.Typer()
    app.callback()(lambda: None)
    app.command("learn")(command)
    CliRunner().invoke(app, ["learn", *arguments], catch_exceptions=False)
    [line] = lines
    return line


def test_command_line_without_options_is_the_argument():
    assert rebuild_command_line("CartPole-v1") == ["learn", "--", "CartPole-v1"]


def test_command_line_has_the_options_that_were_typed():
    typed = ["--lr", "1e-05", "-m", "a=[1, 2]", "CartPole-v1", "--model=b= --seeds 3"]
    typed += ["--no-explore", "--quiet", "--seeds", "0,1", "--out", "x"]

    # All but --seeds and --out, of which each seed gets its own.
    assert rebuild_command_line(*typed) == [
        "learn",
        "--model=a=[1, 2]",
        "--model=b= --seeds 3",
        "--no-explore",
        "--quiet",
        "--lr=1e-05",
        "--",
        "CartPole-v1",
    ]


def test_command_line_is_the_same_when_rebuilt_again():
    typed = ["--lr", "1e-05", "-m", "a=[1, 2]", "CartPole-v1", "--model=b= --seeds 3"]
    name, *arguments = rebuild_command_line(*typed, "--no-explore", "--quiet")

    assert rebuild_command_line(*arguments) == [name, *arguments]


@pytest.mark.parametrize(
    ("option", "message"),
    [("--seed=0", "--seed: names one seed"), ("--resume=x", "--resume: resumes one run")],
)
def test_option_of_one_run_is_an_error_with_seeds(option, message):
    with pytest.raises(ConfigError, match=message):
        rebuild_command_line("CartPole-v1", option)


# --- the runs -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_seeds(toy, tmp_path_factory):
    """The folder of runs with the seeds 0 and 1, and what the command printed.

    A run has as many threads as there are cores, so that the second waits for the first.
    """
    folder = tmp_path_factory.mktemp("two") / "run"
    arguments = [
        "--seeds=0,1",
        "--set",
        "a=b c",
        "--set=sleep=0.3",
        f"--record={folder.parent / 'data'}",
        f"--threads={usable_cores()}",
    ]
    return folder, toy(folder, *arguments)


def read_json(path):
    return json.loads(path.read_text())


def test_seeds_have_a_folder_and_a_log_each_and_one_picture(two_seeds):
    folder, _ = two_seeds

    names = {path.name for path in folder.iterdir()}
    assert names == {"seed-0", "seed-0.log", "seed-1", "seed-1.log", "learning_curves.png"}
    assert (folder / "learning_curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("seed", [0, 1])
def test_seed_has_its_own_command(two_seeds, seed):
    folder, _ = two_seeds

    # The user typed --seeds, --out, --record, --set and --threads.
    assert read_json(folder / f"seed-{seed}/argv.json") == [
        "toy",
        f"--seed={seed}",
        f"--out={folder}/seed-{seed}",
        f"--record={folder.parent}/data/seed-{seed}",
        "--set=a=b c",
        "--set=sleep=0.3",
        f"--threads={usable_cores()}",  # all cores, as typed
        "--",
        "CartPole-v1",
    ]


@pytest.mark.parametrize("seed", [0, 1])
def test_output_of_a_seed_is_in_its_log(two_seeds, seed):
    folder, _ = two_seeds

    # What the program `toy` prints when it begins.
    assert (folder / f"seed-{seed}.log").read_text() == "there\n"


def test_command_prints_the_result_of_each_seed(two_seeds):
    _, printed = two_seeds

    # The program `toy` has a mean return of its seed and 2.
    assert "seed 0: finished, 200 steps, mean return 2.0" in printed
    assert "seed 1: finished, 200 steps, mean return 3.0" in printed
    # Two runs with the seeds 0 and 1: their mean return, and its range.
    assert re.search(r"PPO, torch +2 +0, 1 +2\.5 +2 to 3", printed)


def test_seeds_refuse_a_folder_with_a_run(toy, two_seeds):
    folder, _ = two_seeds
    before = (folder / "seed-1/argv.json").read_bytes()

    with pytest.raises(RunFolderError, match="seed-1: already contains a run"):
        toy(folder, "--seeds=1,7")

    assert not (folder / "seed-7").exists()
    assert (folder / "seed-1/argv.json").read_bytes() == before


def test_seeds_overwrite_a_run_if_asked(toy, tmp_path):
    toy(tmp_path / "run", "--seeds=1")
    before = (tmp_path / "run/seed-1/argv.json").read_bytes()

    toy(tmp_path / "run", "--seeds=1", "--overwrite", "--set=a=b")

    assert (tmp_path / "run/seed-1/argv.json").read_bytes() != before


def test_seeds_refuse_a_folder_in_use(toy, tmp_path):
    (tmp_path / "seed-1.log").write_text("the output of the other run")
    with (
        run_folder(tmp_path / "seed-1"),
        pytest.raises(RunFolderError, match="seed-1: another process is writing a run"),
    ):
        toy(tmp_path, "--seeds=0,1", "--overwrite")
    assert [path.name for path in tmp_path.iterdir()] == ["seed-1.log"]
    assert (tmp_path / "seed-1.log").read_text() == "the output of the other run"


@pytest.mark.slow
def test_failed_seeds_are_named_and_end_no_other(toy, tmp_path):
    folder = tmp_path / "run"

    # Seeds 1 and 3 raise an error of rlcatalog, seed 2 is killed, and seed 0 raises another error.
    with pytest.raises(FailedRunsError) as caught:
        toy(folder, "--seeds=0-4", "--set=fail=1+3", "--set=die=2", "--set=break=0")

    assert str(caught.value).splitlines() == [
        f"4 of 5 seeds failed; their output is in {folder}/seed-N.log.",
        "seed 0: exit status 1: ZeroDivisionError: not ours",
        "seeds 1, 3: the loss is NaN",
        "seed 2: signal SIGKILL",
    ]
    assert read_run(folder / "seed-4").status == "finished"
    assert (folder / "learning_curves.png").exists()


def test_picture_is_missing_if_all_seeds_fail(toy, tmp_path):
    with pytest.raises(FailedRunsError, match="1 of 1 seeds failed"):
        toy(tmp_path / "run", "--seeds=0", "--set=fail=0")

    assert not (tmp_path / "run/learning_curves.png").exists()


needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"),
    reason="this system does not say which cores a process may use",
)


@needs_affinity
def test_usable_cores_are_those_of_the_process():
    assert usable_cores() == len(os.sched_getaffinity(0))


@needs_affinity
def test_runs_at_once_have_a_core_for_each_thread(two_seeds):
    folder, printed = two_seeds

    assert printed.startswith("2 seeds, 1 at once")
    begin_and_end = [read_json(folder / f"seed-{seed}/times.json") for seed in (0, 1)]
    (_, end_of_first), (begin_of_second, _) = sorted(begin_and_end)
    assert end_of_first <= begin_of_second


@pytest.fixture(
    params=[
        pytest.param("", id="Linux"),
        pytest.param(WINDOWS, id="Windows", marks=pytest.mark.slow),
    ]
)
def on_each_system(request, environ):
    """An environment in whose processes the command runs as on Linux or as on Windows."""
    return {**environ, "TOY_SETUP": request.param}


def start_runs(folder, environ, *arguments):
    """Start the command with four seeds that sleep; return it and the seeds that have started."""
    process = start_command(
        folder, environ, "--seeds=0-3", "--set=sleep=60", "--threads=1", *arguments
    )
    started = range(min(4, usable_cores()))
    logs = [folder / f"seed-{seed}.log" for seed in started]
    wait_until(lambda: all(log.exists() and log.read_text() == "there\n" for log in logs))
    return process, started


def press_ctrl_c(process):
    """Send SIGINT to the whole group of a process, as a terminal does.

    The processes that the command starts are in this group on Windows only.
    """
    os.killpg(process.pid, signal.SIGINT)


def read_statuses(folder, seeds):
    return {read_run(folder / f"seed-{seed}").status for seed in seeds}


def test_ctrl_c_saves_the_runs_that_have_started(on_each_system, tmp_path):
    folder = tmp_path / "run"
    process, started = start_runs(folder, on_each_system)

    press_ctrl_c(process)
    _, printed = process.communicate(timeout=60)

    assert process.returncode == 130  # 128 and the number of SIGINT
    assert f"seeds have saved their runs and ended: {', '.join(map(str, started))}." in printed
    assert read_statuses(folder, started) == {"interrupted"}


def test_ctrl_c_says_what_became_of_seeds(on_each_system, tmp_path):
    folder = tmp_path / "run"
    # As many of four seeds start as there are cores. After Ctrl-C, each writes a checkpoint of
    # step 1,500, and seed 0 saves nothing.
    process, started = start_runs(folder, on_each_system, "--set=unsaved=0")

    press_ctrl_c(process)
    _, printed = process.communicate(timeout=60)

    _, _, summary = printed.partition("Interrupted by SIGINT. The runs have ended:\n")
    lines = summary.splitlines()
    assert lines[0] == "seed 0: not saved: KeyboardInterrupt; it has no checkpoint"
    if len(started) == 2:
        assert lines[1:] == [
            "seed 1: saved at step 1,500",
            "seeds 2, 3: not started",
            f"To continue a saved run: rlcatalog train --resume {folder}/seed-N",
        ]


@pytest.mark.parametrize(
    ("system", "end_of_process"),
    [
        pytest.param("", "signal SIGKILL", id="Linux", marks=pytest.mark.slow),
        pytest.param(WINDOWS, "exit status 1", id="Windows"),
    ],
)
def test_second_ctrl_c_ends_the_runs_at_once(environ, tmp_path, system, end_of_process):
    folder = tmp_path / "run"
    environ = {**environ, "TOY_SETUP": system}
    # Stubborn runs write a checkpoint of step 1,500 after the first Ctrl-C, but go on for a minute.
    process, started = start_runs(folder, environ, "--set=stubborn=1")
    checkpoints = [folder / f"seed-{seed}/checkpoints" for seed in started]

    press_ctrl_c(process)
    assert "Another signal, such as Ctrl-C, ends them at once." in process.stderr.readline()
    wait_until(lambda: all(path.exists() for path in checkpoints))
    assert process.poll() is None  # it still waits for its runs
    press_ctrl_c(process)
    _, printed = process.communicate(timeout=30)

    assert process.returncode == 130  # 128 and the number of SIGINT
    assert read_statuses(folder, started) == {"died"}
    assert f": not saved: {end_of_process}; its last checkpoint is at step 1,500\n" in printed
    assert not (folder / "learning_curves.png").exists()


def test_sigterm_ends_all_runs(environ, tmp_path):
    folder = tmp_path / "run"
    process, started = start_runs(folder, environ)

    os.killpg(process.pid, signal.SIGTERM)
    _, printed = process.communicate(timeout=60)

    assert process.returncode == 143  # 128 and the number of SIGTERM
    assert read_statuses(folder, started) == {"died"}
    assert ": not saved: signal SIGTERM; it has no checkpoint\n" in printed
    assert "To continue" not in printed  # because there are no checkpoints
    # No further seed was started.
    next_seed = len(started)
    assert not (folder / f"seed-{next_seed}").exists()


def test_closed_terminal_ends_all_runs(environ, tmp_path):
    folder = tmp_path / "run"
    process, started = start_runs(folder, environ)

    process.stderr.close()  # what the command prints cannot be written any more
    process.send_signal(signal.SIGHUP)
    process.stdout.close()
    process.wait(timeout=60)

    assert process.returncode == 129  # 128 and the number of SIGHUP
    assert read_statuses(folder, started) == {"died"}


def test_run_ended_before_it_began_is_not_called_saved(toy, environ, tmp_path):
    folder = tmp_path / "run"
    toy(folder, "--seeds=0")  # a finished run, which is to be overwritten
    (folder / "seed-0.log").unlink()
    process = start_command(folder, environ, "--seeds=0", "--overwrite")
    wait_until((folder / "seed-0.log").exists)  # the process exists, but its run has not begun

    press_ctrl_c(process)
    _, printed = process.communicate(timeout=60)

    assert "seed 0: not saved: its process ended before the run began (" in printed
    assert read_statuses(folder, [0]) == {"finished"}  # the old run is still there


#: The second process cannot be started, for example because the disk is full.
FULL_DISK = """
from rlcatalog_runs.commands import several_seeds

real = several_seeds.start_process

def start_process(arguments, output):
    if "--seed=1" not in arguments:
        return real(arguments, output)
    first = Path(output.name).with_name("seed-0.log")
    while first.read_text() != "there\\n":
        time.sleep(0.05)
    raise OSError(28, "No space left on device")

several_seeds.start_process = start_process
"""


@pytest.mark.skipif(usable_cores() < 2, reason="two seeds cannot run at once")
@pytest.mark.parametrize(
    ("system", "end_of_process"),
    [("", "signal SIGTERM"), (WINDOWS, "exit status 1")],
    ids=["Linux", "Windows"],
)
def test_error_of_the_command_ends_all_runs(environ, tmp_path, system, end_of_process):
    folder = tmp_path / "run"
    # Seed 0 runs. To start the process of seed 1 raises an error, as on a full disk.
    environ = {**environ, "TOY_SETUP": system + FULL_DISK}

    process = start_command(folder, environ, "--seeds=0,1,2", "--set=sleep=60", "--threads=1")
    _, printed = process.communicate(timeout=60)

    assert process.returncode == 1
    assert read_statuses(folder, [0]) == {"died"}
    assert printed.splitlines()[-3:] == [
        f"seed 0: not saved: {end_of_process}; it has no checkpoint",
        "seeds 1, 2: not started",
        "error: [Errno 28] No space left on device",
    ]


#: Ctrl-C comes before a new process can receive it, so that only the command does.
MISSED_CTRL_C = """
from rlcatalog_runs.commands import several_seeds

real = several_seeds.start_process

def start_process(arguments, output):
    process = real(arguments, output)
    os.kill(os.getpid(), signal.SIGINT)
    return process

several_seeds.start_process = start_process
"""


def test_process_that_misses_ctrl_c_is_ended(environ, tmp_path):
    environ = {**environ, "TOY_SETUP": WINDOWS + MISSED_CTRL_C}

    process = start_command(tmp_path / "run", environ, "--seeds=0", "--set=sleep=60")
    _, printed = process.communicate(timeout=30)

    assert process.returncode == 130
    assert "its process ended before the run began (exit status 1)" in printed
