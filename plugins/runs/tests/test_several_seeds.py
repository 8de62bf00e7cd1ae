"""Several seeds of one command: processes side by side, folders, failures, signals,
and a picture.
"""

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
from rlcatalog_runs.commands.several_seeds import command_line, parse_seeds, refuse_with_seeds
from rlcatalog_runs.summaries import read_run
from rlcatalog_runs.surroundings import usable_cores

#: A command with the options of `train`, which learns nothing.
PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
from typing import Annotated
import typer
from rlcatalog_runs import recorded, run_folder
from rlcatalog_runs.commands.several_seeds import parse_seeds, train_seeds


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
    given = dict(text.split("=") for text in settings or [])
    begun = time.time()
    with run_folder(out, overwrite), recorded(out):
        algorithm = {"name": "PPO", "seed": seed}
        about = {"env": env_id, "steps": 200, "framework": "torch", "algorithm": algorithm}
        (out / "config.json").write_text(json.dumps({**about, "model": {}}))
        rows = [
            {"timesteps_total": 100 * i, "episode_return_mean": float(seed + i)} for i in (1, 2)
        ]
        (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
        (out / "argv.json").write_text(json.dumps(sys.argv[1:]))
        print("there", flush=True)
        if str(seed) in given.get("fail", "").split("+"):
            from rlcatalog.errors import NonFiniteError
            raise NonFiniteError("the loss is NaN")
        if str(seed) in given.get("break", "").split("+"):
            raise ZeroDivisionError("not ours")
        if str(seed) in given.get("die", "").split("+"):
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            time.sleep(float(given.get("sleep", "0")))
        except KeyboardInterrupt:
            (out / "saved").write_text("asked once")
            try:
                time.sleep(60 if "stubborn" in given else 1)
            except KeyboardInterrupt:
                (out / "saved").write_text("asked twice")
            raise
        finally:
            (out / "times.json").write_text(json.dumps([begun, time.time()]))
"""

PLUGIN = """
from rlcatalog import CommandSpec, hookimpl

@hookimpl
def rlcatalog_commands():
    return [CommandSpec("toy", {"cli": "toy_command:toy"}, "Learns nothing.")]
"""


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


def start(folder, environ, *arguments):
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


def until(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
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
        ("\u0663", "expected numbers"),
        ("4294967296", "is too large"),
        ("4-0", "the range 4-0 is empty; write 0-4"),
        ("0,1,0", "0 is repeated"),
        ("0-2,1", "1 is repeated"),
        ("0-1000", "more than 1000 seeds"),
        ("0-999,2000", "more than 1000 seeds"),
        ("9" * 100_000, "expected numbers"),
    ],
)
def test_other_seeds_are_refused(text, message):
    with pytest.raises(ConfigError, match="--seeds") as caught:
        parse_seeds(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000


def parsed(*arguments):
    """Return the command line that a context gives back, and whether it goes with several seeds."""
    found = []

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
        found.append(command_line(context, ("seeds", "out")))
        refuse_with_seeds(context)

    app = typer.Typer()
    app.callback()(lambda: None)
    app.command("learn")(command)
    CliRunner().invoke(app, ["learn", *arguments], catch_exceptions=False)
    return found[0]


def test_a_command_line_is_what_was_typed_without_what_each_seed_gets_anew():
    assert parsed("CartPole-v1") == ["learn", "--", "CartPole-v1"]
    typed = [
        "--lr",
        "1e-05",
        "-m",
        "a=[1, 2]",
        "CartPole-v1",
        "--model=b= --seeds 3",
        "--no-explore",
        "--quiet",
    ]
    expected = [
        "learn",
        "--model=a=[1, 2]",
        "--model=b= --seeds 3",
        "--no-explore",
        "--quiet",
        "--lr=1e-05",
        "--",
        "CartPole-v1",
    ]
    assert parsed(*typed, "--seeds", "0,1", "--out", "x") == expected
    assert parsed(*expected[1:]) == expected


@pytest.mark.parametrize(
    ("option", "message"),
    [("--seed=0", "--seed: names one seed"), ("--resume=x", "--resume: resumes one run")],
)
def test_one_seed_and_several_are_an_error(option, message):
    with pytest.raises(ConfigError, match=message):
        parsed("CartPole-v1", option)


# --- the runs -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(toy, tmp_path_factory):
    """Return the folder of a run of two seeds with a thread per core, what it printed, and when
    each ran.
    """
    folder = tmp_path_factory.mktemp("two") / "run"
    more = [
        "--set",
        "a=b c",
        "--set=sleep=0.3",
        f"--record={folder.parent / 'data'}",
        f"--threads={usable_cores()}",
    ]
    out = toy(folder, "--seeds=0,1", *more)
    return (
        folder,
        out,
        [json.loads((folder / f"seed-{seed}/times.json").read_text()) for seed in (0, 1)],
    )


def test_each_seed_has_a_process_and_a_folder_and_all_have_one_picture(toy, two):
    folder, out, _ = two
    names = {"learning_curves.png"} | {
        f"seed-{seed}{end}" for seed in range(2) for end in ("", ".log")
    }
    assert {path.name for path in folder.iterdir()} == names
    assert (folder / "learning_curves.png").read_bytes().startswith(b"\x89PNG")
    for seed in range(2):
        assert json.loads((folder / f"seed-{seed}/argv.json").read_text()) == [
            "toy",
            f"--seed={seed}",
            f"--out={folder}/seed-{seed}",
            f"--record={folder.parent}/data/seed-{seed}",
            "--set=a=b c",
            "--set=sleep=0.3",
            f"--threads={usable_cores()}",
            "--",
            "CartPole-v1",
        ]
        assert f"seed {seed}: 200 steps, mean return {seed + 2}.0" in out
        assert (folder / f"seed-{seed}.log").read_text() == "there\n"
    assert re.search(r"PPO, torch +2 +0, 1 +2\.5 +2 to 3", out)
    before = (folder / "seed-1/argv.json").read_bytes()
    with pytest.raises(RunFolderError, match="seed-1: already contains a run"):
        toy(folder, "--seeds=1,7")
    assert not (folder / "seed-7").exists()
    assert (folder / "seed-1/argv.json").read_bytes() == before
    toy(folder, "--seeds=1", "--overwrite")
    assert (folder / "seed-1/argv.json").read_bytes() != before


@pytest.mark.attack
def test_a_seed_that_fails_is_named_and_ends_no_other(toy, tmp_path):
    folder = tmp_path / "run"
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


def test_where_all_seeds_fail_there_is_no_picture(toy, tmp_path):
    with pytest.raises(FailedRunsError, match="1 of 1 seeds failed"):
        toy(tmp_path / "run", "--seeds=0", "--set=fail=0")
    assert not (tmp_path / "run/learning_curves.png").exists()


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"),
    reason="this system does not say which cores a process may use",
)
def test_no_more_run_at_once_than_there_are_cores_for_their_threads(two):
    _, out, times = two
    assert usable_cores() == len(os.sched_getaffinity(0))
    assert out.startswith("2 seeds, 1 at once")
    first, second = sorted(times)
    assert first[1] <= second[0]


@pytest.mark.parametrize(
    ("number", "word"),
    [pytest.param(signal.SIGINT, "SIGINT", marks=pytest.mark.attack), (signal.SIGTERM, "SIGTERM")],
)
def test_a_signal_ends_all_runs_and_waits_for_them(environ, tmp_path, number, word):
    folder = tmp_path / "run"
    child = start(folder, environ, "--seeds=0-3", "--set=sleep=60", "--threads=1")
    at_once = min(4, usable_cores())
    logs = [folder / f"seed-{seed}.log" for seed in range(at_once)]
    until(lambda: all(log.exists() and log.read_text() == "there\n" for log in logs))
    begun = time.monotonic()
    os.killpg(child.pid, number)  # to the whole group, as a terminal does
    _, err = child.communicate(timeout=60)
    assert time.monotonic() - begun < 30
    assert child.returncode == 128 + number
    assert f"{word}: waiting for {at_once} runs" in err
    assert f"--resume {folder}/seed-N" in err
    for seed in range(at_once):
        if number == signal.SIGINT:
            assert (folder / f"seed-{seed}/saved").read_text() == "asked once"
        assert json.loads((folder / f"seed-{seed}/run.json").read_text())["status"] == (
            "interrupted" if number == signal.SIGINT else "running"
        )
    assert not (folder / f"seed-{at_once}").exists()


@pytest.mark.attack
def test_a_second_signal_ends_the_runs_at_once(environ, tmp_path):
    folder = tmp_path / "run"
    child = start(folder, environ, "--seeds=0", "--set=sleep=60", "--set=stubborn=1")
    log, saved = folder / "seed-0.log", folder / "seed-0/saved"
    until(lambda: log.exists() and log.read_text() == "there\n")
    child.send_signal(signal.SIGINT)
    until(saved.exists)
    time.sleep(0.2)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=30)
    assert child.returncode == 130
    assert not (folder / "learning_curves.png").exists()
