"""`rlcatalog train`: one command for every engine, an engine of another package among them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

import rlcatalog
from rlcatalog.catalog import default_catalog
from rlcatalog.errors import SavedPolicyError
from rlcatalog.plugins.discovery import scan
from rlcatalog_cli import main
from rlcatalog_cli.app import make_app
from rlcatalog_runs.checkpoints import checkpoint_steps, checkpoints_of
from rlcatalog_runs.commands.train_options import OF_ALL, engines
from rlcatalog_runs.records import read_record

#: An engine that learns nothing: it counts, and its return is its steps.
PLUGIN = """
import json
import time
from typing import Annotated

from msgspec import Meta

from rlcatalog import EngineSpec, hookimpl
from rlcatalog_runs import Engine, RunOptions, describe_policy


class TurboOptions(RunOptions, kw_only=True, frozen=True):
    device: str | None = None
    acme_boost: Annotated[int, Meta(ge=1, description="Count faster.", extra={"metavar": "N"})] = 10


class Turbo(Engine):
    options = TurboOptions
    algorithms = ("Count", "Leap")
    checkpoint = "state.json"
    not_restored = "nothing random is left"

    def __init__(self, plan):
        import gymnasium

        import rlcatalog

        super().__init__(plan)
        self.done, self.closed = plan.steps, False
        if plan.checkpoint is None:
            self.policy = rlcatalog.build(
                env=gymnasium.make(plan.env_id), config=plan.model, framework="torch"
            )
        else:
            self.policy = rlcatalog.load(plan.checkpoint / "policy")
            assert json.loads((plan.checkpoint / "state.json").read_text()) == plan.steps

    @property
    def steps(self):
        return self.done

    def describe(self):
        told = {
            "name": self.plan.algorithm,
            "seed": self.plan.seed,
            "env_config": {},
            **self.plan.settings,
        }
        return {"algorithm": told, **describe_policy(self.policy)}

    def learn(self, session):
        def save():
            session.save_checkpoint(
                self.done, self.policy, lambda new: (new / "state.json").write_text(str(self.done))
            )

        while self.done < session.options.steps and session.stopping is None:
            self.done += session.options.acme_boost
            row = {"timesteps_total": self.done, "episode_return_mean": float(self.done)}
            session.report(row, lambda: self.policy, episodes=self.done)
            if session.is_checkpoint_due(self.done):
                save()
            if self.plan.settings.get("raise_at") == self.done:
                raise ZeroDivisionError("the clutch slips")
            session.interrupts.check()
            time.sleep(self.plan.settings.get("pause", 0))
        save()


@hookimpl
def rlcatalog_engines():
    return [EngineSpec("acme_turbo", {"engine": "acme_turbo:Turbo"}, "counts")]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with an installed plugin that brings an engine."""
    found = tmp_path_factory.mktemp("plugin")
    (found / "acme_turbo.py").write_text(PLUGIN)
    about = found / "acme_turbo-1.0.dist-info"
    about.mkdir()
    lines = [
        "Metadata-Version: 2.1",
        "Name: acme-turbo",
        "Version: 1.0",
        "Requires-Dist: rlcatalog<0.2,>=0.1",
    ]
    (about / "METADATA").write_text("\n".join([*lines, ""]))
    (about / "entry_points.txt").write_text("[rlcatalog.plugins]\nacme_turbo = acme_turbo\n")
    return found


@pytest.fixture
def train(folder, monkeypatch, capsys):
    """Return the command in a process that has the plugin: exit status, and what it prints."""
    monkeypatch.syspath_prepend(str(folder))
    forgotten = ("acme_turbo", "rlcatalog_runs.commands.train")
    for name in forgotten:
        monkeypatch.delitem(sys.modules, name, raising=False)
    scan.cache_clear()
    default_catalog.cache_clear()
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments):
        status = 0
        try:
            main(["train", *map(str, arguments)])
        except SystemExit as end:
            status = end.code or 0
        return status, "".join(capsys.readouterr())

    yield run
    for name in forgotten:
        sys.modules.pop(name, None)
    scan.cache_clear()
    default_catalog.cache_clear()


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


# --- an engine of another package -----------------------------------------------------------------


def test_an_engine_of_another_package_trains_and_goes_on(train, tmp_path):
    out = tmp_path / "run"
    code, printed = train(
        "CartPole-v1",
        "-e",
        "acme_turbo",
        "-n",
        100,
        "-o",
        out,
        "-m",
        "fcnet_hiddens=[4]",
        "-s",
        "gain=2",
        "--seed",
        3,
        "--device",
        "cpu",
        "--acme-boost",
        "20",
        "--log",
        "csv",
        "--eval-every",
        50,
        "--eval-episodes",
        2,
        "--checkpoint-every",
        40,
    )
    assert code == 0, printed
    assert [row["timesteps_total"] for row in rows(out)] == [20, 40, 60, 80, 100]
    assert [row["timesteps_total"] for row in rows(out) if "evaluation" in row] == [60, 100]
    assert [checkpoint_steps(path) for path in checkpoints_of(out)] == [80, 100]
    left = {
        "policy",
        "best",
        "metrics.jsonl",
        "progress.csv",
        "learning_curve.png",
        "config.json",
        "run.json",
    }
    assert left <= {path.name for path in out.iterdir()}
    config = json.loads((out / "config.json").read_text())
    assert config["algorithm"] == {"name": "Count", "seed": 3, "env_config": {}, "gain": 2}
    assert (config["run"]["engine"], config["run"]["acme_boost"]) == ("acme_turbo", 20)
    assert rlcatalog.load(out / "policy").config["fcnet_hiddens"] == [4]
    assert (read_record(out)["engine"], read_record(out)["status"]) == ("acme_turbo", "finished")
    assert "the learning curve" not in printed
    assert f"learning curve: {out}/learning_curve.png" in printed
    code, printed = train("--resume", out, "--steps", 130, "--acme-boost", 10)
    assert code == 0, printed
    assert "resuming after 100 steps; nothing random is left" in printed
    assert [row["timesteps_total"] for row in rows(out)] == [20, 40, 60, 80, 100, 110, 120, 130]
    assert len((out / "progress.csv").read_text().splitlines()) == 9
    assert train("--resume", out / "checkpoints/step-000000120", "--steps", 130)[0] == 0
    assert [row["timesteps_total"] for row in rows(out)][-1] == 130


def test_a_run_of_it_ends_at_a_return_and_is_kept_where_it_fails(train, tmp_path):
    code, printed = train(
        "CartPole-v1", "-e", "acme-turbo/acme_turbo", "-o", tmp_path / "a", "--stop-at", 150
    )
    assert code == 0
    assert (
        "ended after 150 steps: the mean return of 100 episodes is 150, the target 150" in printed
    )
    with pytest.raises(ZeroDivisionError, match="the clutch slips"):
        train(
            "CartPole-v1", "-e", "acme_turbo", "-o", tmp_path / "b", "-n", 100, "-s", "raise_at=50"
        )
    assert read_record(tmp_path / "b")["status"] == "failed"
    assert (tmp_path / "b/learning_curve.png").is_file()
    assert checkpoint_steps(checkpoints_of(tmp_path / "b")[-1]) == 50


@pytest.fixture
def begun(folder, tmp_path):
    """The folder of a run that is training in another process, and the process."""
    out = tmp_path / "begun"
    command = [sys.executable, "-m", "rlcatalog_cli", "train", "CartPole-v1", "-e", "acme_turbo"]
    command += ["--out", str(out), "--checkpoint-every", "10", "-s", "pause=0.01", "-n", "1000000"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and not checkpoints_of(out):
        time.sleep(0.05)
    yield out, process
    process.kill()
    process.wait()


def listed_status(folder):
    """Return a run's status in the output of `rlcatalog runs --json`."""
    arguments = ["runs", str(folder), "--json"]
    output = CliRunner().invoke(make_app(arguments), arguments, catch_exceptions=False).output
    return json.loads(output)["status"]


def test_train_refuses_a_folder_in_use(train, begun):
    out, process = begun
    assert listed_status(out) == "running"
    commands = [["CartPole-v1", "--out", out, "--overwrite", "-e", name] for name in engines()]
    for command in [*commands, ["--resume", out]]:
        status, printed = train(*command)
        assert (status, "another process is writing a run to this folder" in printed) == (1, True)
    before = checkpoints_of(out)[-1]
    while checkpoints_of(out)[-1] == before:
        assert process.poll() is None
        time.sleep(0.05)


def test_train_takes_the_folder_of_a_killed_run(train, begun):
    out, process = begun
    process.kill()
    process.wait()
    steps = checkpoint_steps(checkpoints_of(out)[-1])
    assert listed_status(out) == "died"
    status, printed = train("--resume", out, "--steps", steps + 20)
    assert (status, f"resuming after {steps:,} steps" in printed) == (0, True)
    assert listed_status(out) == "finished"
    status, _ = train("CartPole-v1", "-e", "acme_turbo", "-o", out, "-n", 20, "--overwrite")
    assert (status, rows(out)[-1]["timesteps_total"]) == (0, 20)


@pytest.mark.attack  # that each seed has a process: test_several_seeds.py
def test_several_seeds_of_it(train, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{':'.join(path for path in sys.path if path)}")
    monkeypatch.chdir(tmp_path)
    code, printed = train(
        "CartPole-v1", "-e", "acme_turbo", "-n", 30, "--seeds", "0-1", "--algo", "Leap"
    )
    assert code == 0, printed
    (out,) = (tmp_path / "runs/CartPole-v1").iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-Leap-2seeds", out.name)
    assert [
        json.loads((out / f"seed-{n}/config.json").read_text())["algorithm"]["seed"] for n in (0, 1)
    ] == [0, 1]
    assert re.search(r"Leap \(acme_turbo\), torch +2 +0, 1 +30 ", printed)


def test_its_options_are_shown_in_a_group_of_its_own(train):
    code, printed = train("--help")
    assert code == 0
    assert re.search(r"─ Engine acme_turbo ─.*\n.*--acme-boost +N +Count faster\.", printed)
    assert "acme_turbo: Count, Leap" in " ".join(printed.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["-e", "acme_turbo", "--threads", "2"],
            "--threads: engine acme_turbo has no such option. Engines with it",
        ),
        (
            ["-e", "acme_turbo", "--record", "x"],
            "engine acme_turbo has no such option. Engines with it: ppo.",
        ),
        (
            ["-e", "ppo", "--acme-boost", "2"],
            "engine ppo has no such option. Engines with it: acme_turbo.",
        ),
        (["-e", "acme_turbo", "--acme-boost", "0"], "--acme-boost: Expected `int` >= 1."),
        (["-e", "acme_turbo", "--acme-boost", "much"], "--acme-boost: Expected `int`, got `str`."),
        (
            ["-e", "acme_turbo", "--algo", "leap"],
            "--algo: unknown algorithm 'leap'. Did you mean 'Leap'? Engine",
        ),
        (["-e", "acme_turba"], "Unknown engine 'acme_turba'. Did you mean 'acme_turbo'?"),
        (["-e", "acme_turbo", "-m", "fcnet_hidden=[8]"], "fcnet_hiddens"),
        (["-e", "acme_turbo", "--seeds", "0,1", "-m", "fcnet_hidden=[8]"], "fcnet_hiddens"),
        (["-e", "acme_turbo", "--log", "cvs"], "--log: unknown log 'cvs'. Did you mean 'csv'?"),
    ],
)
def test_what_it_does_not_take_is_said_before_there_is_a_folder(
    arguments, message, train, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, printed = train("CartPole-v1", *arguments)
    assert code == 1
    assert message in printed
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def twenty(tmp_path_factory):
    """Where the run of `out` is, once a test has made it."""
    return tmp_path_factory.mktemp("twenty") / "run"


@pytest.fixture
def out(train, twenty, tmp_path):
    """A copy of a run of twenty steps."""
    if not twenty.exists():
        assert train("CartPole-v1", "-e", "acme_turbo", "-n", 20, "-o", twenty)[0] == 0
    return shutil.copytree(twenty, tmp_path / "run")


@pytest.mark.parametrize("name", ["algo", "seed", "model", "out"])
def test_what_a_resumed_run_keeps(name, train, out):
    value = {"seed": "1", "model": "use_lstm=true"}.get(name, "Leap")
    code, printed = train("--resume", out, "--steps", 40, f"--{name}", value)
    assert (code, f"a resumed run keeps its --{name}." in printed) == (1, True)


def test_a_resumed_run_is_of_the_engine_that_is_typed(train, out):
    code, printed = train("--resume", out, "--steps", 40, "-e", "ppo")
    assert (code, "this run used engine 'acme_turbo', not 'ppo'" in printed) == (1, True)
    assert train("--resume", out, "--steps", 40, "-e", "acme-turbo/acme_turbo")[0] == 0


def test_paths_are_those_that_the_command_was_given(out):
    """Typer before 0.29 keeps strings in its context, and gives paths to the command."""
    from rlcatalog_runs.commands.train import train

    typed = {"resume": out, "engine": "ppo"}
    origin = SimpleNamespace(name="COMMANDLINE")
    context = SimpleNamespace(
        params={**typed, "resume": str(out)},
        get_parameter_source=lambda name: origin if name in typed else None,
    )
    with pytest.raises(SavedPolicyError, match="this run used engine 'acme_turbo'"):
        train(context, **typed)


def test_an_engine_that_is_not_installed_names_its_package(train, monkeypatch):
    monkeypatch.setenv("RLCATALOG_DISABLE_PLUGINS", "rlcatalog-ppo")
    default_catalog.cache_clear()
    code, printed = train("CartPole-v1")
    assert code == 1
    assert "engine 'ppo' is provided by rlcatalog-ppo" in printed


# --- the options ----------------------------------------------------------------------------------

SHARED = [
    "steps",
    "checkpoint_every",
    "keep_checkpoints",
    "eval_every",
    "eval_episodes",
    "stop_at",
    "log",
]


@pytest.mark.parametrize(
    ("engine", "package", "more"),
    [
        (
            "ppo",
            "gymnasium",
            {"threads", "framework", "device", "vector", "envs", "frozen", "record"},
        ),
        ("sb3", "stable_baselines3", {"threads", "device", "vector", "envs", "frozen"}),
        ("rllib", "ray", {"device", "envs", "env_runners"}),
    ],
)
def test_the_same_options_under_every_engine_where_they_make_sense(engine, package, more):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    fields = set(engines()[engine].options.__struct_fields__) - OF_ALL
    assert fields == {*SHARED, *more}


def test_each_option_is_on_the_page():
    page = (Path(__file__).parents[1] / "README.md").read_text()
    command = typer.main.get_command(make_app(["train"])).commands["train"]
    options = [option for parameter in command.params for option in parameter.opts]
    assert [
        option for option in options if option.startswith("--") and f"`{option}" not in page
    ] == []
    assert 25 < len(options) <= 50
