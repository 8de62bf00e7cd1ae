"""`rlcatalog train` with an engine of another package: runs, folders in use, options."""

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
from rlcatalog_runs.commands.train_options import OPTIONS_OF_ALL_ENGINES, engines
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

    @property
    def columns(self):
        return {"divergence": "info/kl"}

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

        session.begin(self.policy)
        while self.done < session.options.steps and session.stopping is None:
            self.done += session.options.acme_boost
            session.advance(self.done)
            row = {"timesteps_total": self.done, "episode_return_mean": float(self.done)}
            row["info"] = {"kl": self.done / 100}
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
def plugin_folder(tmp_path_factory):
    """Return a folder with an installed plugin that brings the engine `acme_turbo`."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "acme_turbo.py").write_text(PLUGIN)
    about = folder / "acme_turbo-1.0.dist-info"
    about.mkdir()
    lines = [
        "Metadata-Version: 2.1",
        "Name: acme-turbo",
        "Version: 1.0",
        "Requires-Dist: rlcatalog<0.2,>=0.1",
    ]
    (about / "METADATA").write_text("\n".join([*lines, ""]))
    (about / "entry_points.txt").write_text("[rlcatalog.plugins]\nacme_turbo = acme_turbo\n")
    return folder


@pytest.fixture
def train(plugin_folder, monkeypatch, capsys):
    """Return the command `rlcatalog train` in a process that has the plugin; it returns its exit
    status and what it printed.
    """
    monkeypatch.syspath_prepend(str(plugin_folder))
    # They are imported again, with the plugin; and once more without it afterwards.
    modules = ("acme_turbo", "rlcatalog_runs.commands.train")
    for name in modules:
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
    for name in modules:
        sys.modules.pop(name, None)
    scan.cache_clear()
    default_catalog.cache_clear()


def read_json(path):
    return json.loads(path.read_text())


def read_rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def read_steps(folder):
    """Return the steps in each row of a run's metrics."""
    return [row["timesteps_total"] for row in read_rows(folder)]


# --- runs of the engine ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished_runs(tmp_path_factory):
    """A folder for the run that `finished` trains once, and for what it printed."""
    return tmp_path_factory.mktemp("finished_runs")


@pytest.fixture
def finished(train, finished_runs):
    """The folder of a run of 100 steps, 20 in an iteration, and what it printed.

    It is not to be written to: later tests get the same run.
    """
    folder = finished_runs / "run"
    output = finished_runs / "output"
    if output.exists():
        return folder, output.read_text()
    arguments = [
        "--engine=acme_turbo",
        "--acme-boost=20",
        "--steps=100",
        "--seed=3",
        "--device=cpu",
        "--model=fcnet_hiddens=[4]",
        "--set=gain=2",
        "--log=csv",
        "--eval-every=50",
        "--eval-episodes=2",
        "--checkpoint-every=40",
    ]
    status, printed = train("CartPole-v1", *arguments, "--out", folder)
    assert status == 0, printed
    output.write_text(printed)
    return folder, printed


@pytest.fixture
def copy_of_finished(finished, tmp_path):
    """A copy of the folder of that run."""
    folder, _ = finished
    return shutil.copytree(folder, tmp_path / "copy")


def test_run_reports_each_iteration(finished):
    folder, _ = finished

    assert read_steps(folder) == [20, 40, 60, 80, 100]  # --acme-boost=20 steps each


def test_run_evaluates_regularly(finished):
    folder, _ = finished

    evaluated = [row["timesteps_total"] for row in read_rows(folder) if "evaluation" in row]
    assert evaluated == [60, 100]  # the first iterations after each 50 steps


def test_run_keeps_its_last_two_checkpoints(finished):
    folder, _ = finished

    steps = [checkpoint_steps(path) for path in checkpoints_of(folder)]
    assert steps == [80, 100]  # of 40, 80 and the last


def test_run_leaves_its_files(finished):
    folder, printed = finished

    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "policy",
        "best",
        "metrics.jsonl",
        "progress.csv",
        "learning_curve.png",
        "config.json",
        "run.json",
    }
    assert f"learning curve: {folder}/learning_curve.png" in printed


def test_train_says_what_it_trains(finished):
    folder, printed = finished

    # The net has 4 inputs, 4 hidden units, 2 logits and a value: 20 + 10 + 5 weights.
    assert printed.splitlines()[:5] == [
        "training  Count on CartPole-v1, engine acme_turbo",
        "run       100 steps, seed 3",
        f"folder    {folder}",
        "net       fcnet, 35 weights, actions from categorical",
        "device    cpu, with torch",
    ]


def test_train_prints_a_row_per_tenth_and_evaluations(finished):
    _, printed = finished

    begin = printed.index("      steps")
    header, *lines = printed[begin:].splitlines()
    assert header.split() == ["steps", "return", "length", "divergence", "steps/s"]
    rows = [line.split()[:-1] for line in lines[:7]]  # without the speed
    assert rows[0] == ["20", "20.0", "-", "0.2"]  # its episodes have no length
    assert rows[2] == ["60", "60.0", "-", "0.6"]
    assert lines[3].startswith("evaluation at 60 steps: return ")
    assert "in 2 episodes" in lines[3]
    assert rows[5] == ["100", "100.0", "-", "1"]
    assert lines[6].startswith("evaluation at 100 steps: return ")


def test_train_ends_with_the_next_commands(finished):
    folder, printed = finished

    assert printed.splitlines()[-4:] == [
        "next:",
        f"  rlcatalog evaluate {folder}",
        f"  rlcatalog train --resume {folder} --steps 200",
        f"  rlcatalog export {folder}",
    ]


def test_quiet_train_prints_only_where_the_results_are(train, tmp_path):
    folder = tmp_path / "run"
    _, printed = train("CartPole-v1", "-e", "acme_turbo", "-n", 20, "-o", folder, "--quiet")

    assert printed.splitlines() == [
        f"policy: {folder}/policy",
        f"learning curve: {folder}/learning_curve.png",
    ]


def test_train_prints_at_most_a_row_per_tenth(train, tmp_path):
    arguments = ["-e", "acme_turbo", "-n", 1000, "--acme-boost", 5, "-o", tmp_path / "run"]
    _, printed = train("CartPole-v1", *arguments)

    steps = re.findall(r"^ +([\d,]+) +[\d.,]+ +- ", printed, re.M)
    assert steps == ["100", "200", "300", "400", "500", "600", "700", "800", "900", "1,000"]


def test_run_writes_its_config_and_record(finished):
    folder, _ = finished

    # It was started with --seed=3 --set=gain=2 --acme-boost=20 --model=fcnet_hiddens=[4].
    config = read_json(folder / "config.json")
    assert config["algorithm"] == {"name": "Count", "seed": 3, "env_config": {}, "gain": 2}
    assert config["run"]["engine"] == "acme_turbo"
    assert config["run"]["acme_boost"] == 20
    assert rlcatalog.load(folder / "policy").config["fcnet_hiddens"] == [4]
    assert read_record(folder)["engine"] == "acme_turbo"
    assert read_record(folder)["status"] == "finished"


def test_resumed_run_adds_iterations(copy_of_finished, train):
    folder = copy_of_finished

    status, printed = train("--resume", folder, "--steps", 130, "--acme-boost", 10)

    assert status == 0, printed
    assert "resuming after 100 steps; nothing random is left" in printed
    assert read_steps(folder) == [20, 40, 60, 80, 100, 110, 120, 130]
    lines = (folder / "progress.csv").read_text().splitlines()
    assert len(lines) == 9  # the names, and 8 iterations


def test_run_resumes_from_an_earlier_checkpoint(copy_of_finished, train):
    folder = copy_of_finished
    assert train("--resume", folder, "--steps", 130, "--acme-boost", 10)[0] == 0

    checkpoint = folder / "checkpoints/step-000000120"
    status, _ = train("--resume", checkpoint, "--steps", 130)

    assert status == 0
    assert read_steps(folder)[-1] == 130


def test_run_ends_at_its_target_return(train, tmp_path):
    # The engine's return is its number of steps.
    arguments = ["-e", "acme-turbo/acme_turbo", "--stop-at", 150]
    status, printed = train("CartPole-v1", *arguments, "-o", tmp_path / "run")

    assert status == 0
    assert "ended after 150 steps: the mean return of 100 episodes is 150" in printed
    assert "150, the target 150" in printed


def test_failed_run_keeps_its_last_checkpoint(train, tmp_path):
    folder = tmp_path / "run"

    with pytest.raises(ZeroDivisionError, match="the clutch slips"):
        train("CartPole-v1", "-e", "acme_turbo", "-o", folder, "-n", 100, "-s", "raise_at=50")

    assert read_record(folder)["status"] == "failed"
    assert (folder / "learning_curve.png").is_file()
    assert checkpoint_steps(checkpoints_of(folder)[-1]) == 50


@pytest.mark.slow  # test_several_seeds.py has quicker tests
def test_several_seeds_train_with_the_engine(train, plugin_folder, tmp_path, monkeypatch):
    # Each seed trains in its own process, which needs the plugin of the engine as well.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(plugin_folder), *filter(None, sys.path)]))
    monkeypatch.chdir(tmp_path)

    arguments = ["-e", "acme_turbo", "-n", 30, "--seeds", "0-1", "--algo", "Leap"]
    status, printed = train("CartPole-v1", *arguments)

    assert status == 0, printed
    [folder] = (tmp_path / "runs/CartPole-v1").iterdir()
    assert folder.name.endswith("-Leap-2seeds")
    for seed in (0, 1):
        config = read_json(folder / f"seed-{seed}/config.json")
        assert config["algorithm"]["seed"] == seed
    # Its row in the table: two runs, seeds 0 and 1, a mean return of 30.
    assert re.search(r"Leap \(acme_turbo\), torch +2 +0, 1 +30 ", printed)


# --- folders in use -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running(plugin_folder, tmp_path_factory):
    """The folder of a run that is training in another process, and the process.

    Tests that only look at the run come before the one that kills the process.
    """
    folder = tmp_path_factory.mktemp("running") / "run"
    command = [sys.executable, "-m", "rlcatalog_cli", "train", "CartPole-v1", "-e", "acme_turbo"]
    command += ["--out", str(folder), "--checkpoint-every", "10", "-s", "pause=0.01"]
    command += ["-n", "1000000"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(plugin_folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and not checkpoints_of(folder):
        time.sleep(0.05)
    yield folder, process
    process.kill()
    process.wait()


@pytest.fixture
def killed(running):
    """The folder of a run whose process was killed."""
    folder, process = running
    process.kill()
    process.wait()
    return folder


def list_status(folder):
    """Return a run's status in the output of `rlcatalog runs --json`."""
    arguments = ["runs", str(folder), "--json"]
    output = CliRunner().invoke(make_app(arguments), arguments, catch_exceptions=False).output
    return json.loads(output)["status"]


def test_train_refuses_to_overwrite_a_folder_in_use(train, running):
    folder, _ = running
    assert list_status(folder) == "running"

    for engine in engines():
        status, printed = train("CartPole-v1", "--out", folder, "--overwrite", "-e", engine)

        assert status == 1
        assert "another process is writing a run to this folder" in printed


def test_train_resumes_a_killed_run(train, killed):
    assert list_status(killed) == "died"
    steps = checkpoint_steps(checkpoints_of(killed)[-1])

    status, printed = train("--resume", killed, "--steps", steps + 20)

    assert status == 0
    assert f"resuming after {steps:,} steps" in printed
    assert list_status(killed) == "finished"


# --- options --------------------------------------------------------------------------------------


def test_engine_has_a_group_of_options_in_help(train):
    status, printed = train("--help")

    assert status == 0
    assert re.search(r"─ Engine acme_turbo ─.*\n.*--acme-boost +N +Count faster\.", printed)
    words = printed.replace("│", " ").split()
    assert "acme_turbo: Count, Leap" in " ".join(words)


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
def test_wrong_option_creates_no_folder(arguments, message, train, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    status, printed = train("CartPole-v1", *arguments)

    assert status == 1
    assert message in printed
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def trained_folder(tmp_path_factory):
    """Where `run_of_20_steps` trains, once a test needs it."""
    return tmp_path_factory.mktemp("trained") / "run"


@pytest.fixture
def run_of_20_steps(train, trained_folder, tmp_path):
    """The folder of a run, which a test may change."""
    if not trained_folder.exists():
        status, _ = train("CartPole-v1", "-e", "acme_turbo", "-n", 20, "-o", trained_folder)
        assert status == 0
    return shutil.copytree(trained_folder, tmp_path / "run")


@pytest.mark.parametrize(
    ("option", "value"),
    [("algo", "Leap"), ("seed", "1"), ("model", "use_lstm=true"), ("out", "elsewhere")],
)
def test_resumed_run_keeps_what_determines_it(option, value, train, run_of_20_steps):
    status, printed = train("--resume", run_of_20_steps, "--steps", 40, f"--{option}", value)

    assert status == 1
    assert f"a resumed run keeps its --{option}." in printed


def test_resume_with_another_engine_is_an_error(train, run_of_20_steps):
    status, printed = train("--resume", run_of_20_steps, "--steps", 40, "-e", "ppo")

    assert status == 1
    assert "this run used engine 'acme_turbo', not 'ppo'" in printed


def test_resume_accepts_its_engine_by_its_full_name(train, run_of_20_steps):
    arguments = ["--steps", 40, "-e", "acme-turbo/acme_turbo"]
    status, _ = train("--resume", run_of_20_steps, *arguments)

    assert status == 0


def test_resume_reads_paths_from_arguments_of_the_command(run_of_20_steps):
    from rlcatalog_runs.commands.train import train

    was_typed = SimpleNamespace(name="COMMANDLINE")
    sources = {"resume": was_typed, "engine": was_typed}
    # Typer before 0.29 keeps a text in its context, but passes a path to the command.
    context = SimpleNamespace(
        params={"resume": str(run_of_20_steps), "engine": "ppo"},
        get_parameter_source=sources.get,
    )

    with pytest.raises(SavedPolicyError, match="this run used engine 'acme_turbo'"):
        train(context, resume=run_of_20_steps, engine="ppo")


def test_missing_engine_names_its_package(train, monkeypatch):
    monkeypatch.setenv("RLCATALOG_DISABLE_PLUGINS", "rlcatalog-ppo")
    default_catalog.cache_clear()

    status, printed = train("CartPole-v1")

    assert status == 1
    assert "engine 'ppo' is provided by rlcatalog-ppo" in printed


#: Options of all engines, beside those in `OPTIONS_OF_ALL_ENGINES`.
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
    ("engine", "package", "own_options"),
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
def test_engine_has_the_shared_and_its_own_options(engine, package, own_options):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")

    options = set(engines()[engine].options.__struct_fields__) - OPTIONS_OF_ALL_ENGINES

    assert options == {*SHARED, *own_options}


def test_readme_has_each_option_of_train():
    command = typer.main.get_command(make_app(["train"])).commands["train"]
    options = []
    for parameter in command.params:
        options += [option for option in parameter.opts if option.startswith("--")]
    readme = (Path(__file__).parents[1] / "README.md").read_text()

    missing = [option for option in options if f"`{option}" not in readme]

    assert missing == []
    assert "--resume" in options  # the options were found
