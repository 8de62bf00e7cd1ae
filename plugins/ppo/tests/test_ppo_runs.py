"""`rlcatalog train`: what its folder holds, how a run ends early, and how it goes on."""

import json
import os
import pickle
import re
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import typer

import rlcatalog
from rlcatalog.errors import ConfigError
from rlcatalog_cli import main
from rlcatalog_ppo import checkpoints, commands
from rlcatalog_ppo.engine import PPOEngine, PPOOptions
from rlcatalog_ppo.environments import EnvMaker
from rlcatalog_runs import Interrupted, RunPlan, interruptible, newest_checkpoint, prune_checkpoints
from rlcatalog_runs.checkpoints import checkpoint_steps, checkpoints_of

pytestmark = pytest.mark.usefixtures("blank_curves")
SMALL = [
    "--set",
    "num_envs=2",
    "--set",
    "rollout_length=25",
    "--set",
    "minibatch_size=25",
    "--set",
    "num_epochs=1",
    "--model",
    "fcnet_hiddens=[8]",
    "--framework",
    "torch",
    "--quiet",
]


def command(*arguments):
    """Run a command; return its exit status."""
    try:
        main([*map(str, arguments)])
    except SystemExit as end:
        return end.code
    return 0


def train(*arguments):
    return command("train", *arguments)


def result(folder):
    """Return the weights of a run, and its metrics but for times."""
    weights = rlcatalog.load(folder / "policy").model.get_weights()
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timeless = [
        {k: v for k, v in row.items() if k not in ("time_total_s", "steps_per_second")}
        for row in rows
    ]
    return weights, timeless


def same(one, other):
    (weights, rows), (weights2, rows2) = result(one), result(other)
    assert rows == rows2
    for name, array in weights.items():
        np.testing.assert_array_equal(array, weights2[name], err_msg=name)


@pytest.fixture(scope="module")
def hundred(tmp_path_factory):
    """A finished run of a hundred steps."""
    folder = tmp_path_factory.mktemp("hundred") / "run"
    assert not train("CartPole-v1", "--steps", 100, *SMALL, "--out", folder)
    return folder


@pytest.fixture
def folder(hundred, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(hundred, tmp_path / "run"))


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_run_goes_on_from_its_end_and_from_a_checkpoint(tmp_path, capsys):
    whole, half = tmp_path / "whole", tmp_path / "half"
    often = [
        "--checkpoint-every",
        50,
        "--keep-checkpoints",
        3,
        "--eval-every",
        100,
        "--eval-episodes",
        2,
    ]
    # The learning rate goes down over the whole run: half of it is told how long the whole will be.
    schedule = ["--set", "total_steps=400"]
    assert not train("CartPole-v1", "--steps", 400, *SMALL, *often, *schedule, "--out", whole)
    assert not train(
        "CartPole-v1", "--steps", 200, *SMALL, *often, *schedule, "--out", half, "--log", "csv"
    )
    assert [path.name for path in checkpoints_of(half)] == [
        f"step-{n:09d}" for n in (100, 150, 200)
    ]
    assert not train("--resume", half, "--steps", 400)
    same(half, whole)
    assert (half / "best" / "policy.json").read_bytes() == (
        whole / "best" / "policy.json"
    ).read_bytes()
    table = (half / "progress.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in table] == [
        "timesteps_total",
        *map(str, range(50, 401, 50)),
    ]
    assert not train("--resume", half / "checkpoints" / "step-000000300")  # back, and once more
    same(half, whole)
    assert json.loads((half / "run.json").read_text())["status"] == "finished"
    capsys.readouterr()
    assert train("--resume", half) == 1
    assert "its 400 steps are done; pass --steps 800 to train further" in capsys.readouterr().err


def test_keys_may_change_on_the_way_and_the_schedule_stretches(folder):
    assert not train("--resume", folder, "--steps", 200, "--set", "gamma=0.5", "--threads", "2")
    config = json.loads((folder / "config.json").read_text())
    assert config["algorithm"]["gamma"] == 0.5
    assert config["algorithm"]["total_steps"] == config["steps"] == config["run"]["steps"] == 200
    assert config["run"]["threads"] == 2
    rates = [row["info"]["learner"]["lr"] for row in result(folder)[1]]
    np.testing.assert_allclose(rates, [1e-3, 0.5e-3, 0.5e-3, 0.25e-3])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["CartPole-v1"], "a resumed run keeps its ENV_ID. Remove ENV_ID."),
        (["--seed", "1"], "keeps its --seed. Remove --seed."),
        (["--model", "use_lstm=true"], "keeps its --model. Remove --model."),
        (["--out", "elsewhere"], "keeps its --out. Remove --out."),
        (["--overwrite"], "keeps its --overwrite. Remove --overwrite."),
        (["--set", "lr=fast"], "PPO config key 'lr'"),
        (["--set", "model=1"], "does not accept 'model'. Use its option"),
        (["--import", "no_such_module"], "--import no_such_module"),
        (["--device", "cuda:99"], "device='cuda:99'"),
        (["--log", "csv,csv"], "'csv' is named twice"),
    ],
)
def test_what_resume_refuses(arguments, message, folder, capsys):
    before = contents(folder)
    assert train("--resume", folder, "--steps", 200, *arguments) == 1
    assert message in capsys.readouterr().err
    assert contents(folder) == before


def test_there_is_nothing_to_go_on_with(folder, tmp_path, capsys):
    assert train("--resume", tmp_path / "nothing") == 1
    assert "not a folder that `rlcatalog train` wrote" in capsys.readouterr().err
    prune_checkpoints(folder, 0)
    assert train("--resume", folder, "--steps", 200) == 1
    assert "contains no checkpoint to resume from" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_leaves_a_policy_and_a_run_to_go_on_with(number, tmp_path, capsys):
    folder = tmp_path / "run"
    ended, written = threading.Event(), folder / "checkpoints" / "step-000000200"

    def ask():
        while not ended.wait(0.02):
            if written.is_dir():
                return os.kill(os.getpid(), number)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        arguments = ["--steps", 20_000, *SMALL, "--checkpoint-every", 200, "--out", folder]
        assert train("CartPole-v1", *arguments) == 128 + number
    finally:
        ended.set()
        asking.join()
    err = capsys.readouterr().err
    assert f"Interrupted by {number.name}. The run up to step" in err
    assert f"To continue: rlcatalog train --resume {folder}" in err
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    saved = checkpoints.read(folder)[1]["steps"]
    assert saved >= 200
    assert f" step {saved:,} is saved." in err
    rlcatalog.load(folder / "policy")
    assert not command("evaluate", folder, "--episodes", "1", "--quiet")
    assert not train("--resume", folder, "--steps", saved + 50)


class Full:
    """A disk that is full from some moment on."""

    def __init__(self, monkeypatch):
        self.full, write = False, os.write

        def limited(handle, data):
            if self.full:
                raise OSError(28, "No space left on device")
            return write(handle, data)

        monkeypatch.setattr(os, "write", limited)


def test_full_disk_leaves_the_checkpoint_before(tmp_path, monkeypatch, capsys):
    folder, disk = tmp_path / "run", Full(monkeypatch)
    check = checkpoints.write

    def later(path, *rest):
        disk.full = checkpoint_steps(path) >= 100
        check(path, *rest)

    monkeypatch.setattr(checkpoints, "write", later)
    assert (
        train("CartPole-v1", "--steps", 200, *SMALL, "--checkpoint-every", 50, "--out", folder) == 1
    )
    disk.full = False
    monkeypatch.undo()
    assert "cannot be written: [Errno 28] No space left on device" in capsys.readouterr().err
    assert [
        path.name for path in (folder / "checkpoints").iterdir() if path.name.startswith("step")
    ] == [path.name for path in checkpoints_of(folder)]
    assert checkpoints.read(folder)[1]["steps"] == 50
    rlcatalog.load(folder / "policy")
    whole = tmp_path / "whole"
    assert not train(
        "CartPole-v1", "--steps", 200, *SMALL, "--checkpoint-every", 50, "--out", whole
    )
    assert not train("--resume", folder)
    same(folder, whole)


class Breaks(gym.Env):
    """An environment whose simulator goes away."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    steps = 0
    broken = True

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.broken and self.steps == 90:
            raise RuntimeError("the simulator is gone")
        return (
            self.np_random.uniform(-1, 1, 2).astype(np.float32),
            float(action),
            self.np_random.random() < 0.1,
            False,
            {},
        )


def test_error_leaves_the_run_as_it_was_before_the_iteration(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(
        gym.registry, "Breaks-v0", gym.envs.registration.EnvSpec("Breaks-v0", Breaks)
    )
    assert train("Breaks-v0", "--steps", 1000, *SMALL, "--out", tmp_path / "run") == 1
    printed = capsys.readouterr().err
    assert re.search(
        r"raised RuntimeError: the simulator is gone \(.*test_ppo_runs\.py:\d+, in step\)", printed
    )
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"
    # The last that was noted.
    assert checkpoints.read(tmp_path / "run")[1]["steps"] in (0, 50, 100, 150)
    monkeypatch.setattr(Breaks, "broken", False)
    assert not train("--resume", tmp_path / "run", "--steps", 300)
    assert not train(
        "Breaks-v0", "--steps", 300, *SMALL, "--set", "total_steps=300", "--out", tmp_path / "whole"
    )
    assert [row["timesteps_total"] for row in result(tmp_path / "run")[1]] == list(
        range(50, 301, 50)
    )


def test_overwrite_removes_what_a_run_leaves_and_nothing_else(tmp_path):
    folder = tmp_path / "run"
    assert not train(
        "CartPole-v1",
        "--steps",
        100,
        *SMALL,
        "--eval-every",
        50,
        "--log",
        "csv,tensorboard",
        "--out",
        folder,
    )
    for mine in ("notes.txt", "checkpoints/mine.pt", "tensorboard/mine"):
        (folder / mine).write_text("mine")
    assert not train("CartPole-v1", "--steps", 50, *SMALL, "--out", folder, "--overwrite")
    left = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert {"notes.txt", "checkpoints/mine.pt", "tensorboard/mine"} <= left
    assert not any(
        name.startswith("best") or "tfevents" in name or name == "progress.csv" for name in left
    )
    assert [path.name for path in checkpoints_of(folder)] == ["step-000000000", "step-000000050"]


def test_signals_are_given_back():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted) as caught, interruptible():  # noqa: PT012  the second line waits for the signal
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
    assert caught.value.exit_status == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_checkpoint_that_is_damaged_is_said(folder, capsys):
    last = newest_checkpoint(folder)
    (last / "training.json").write_text("{")
    assert train("--resume", folder, "--steps", 200) == 1
    error = capsys.readouterr().err
    assert "not a checkpoint, or damaged" in error
    assert not train("--resume", checkpoints_of(folder)[0], "--steps", 200)
    assert not last.is_dir()


def test_each_option_of_evaluate_is_on_the_page():
    app = typer.Typer(add_completion=False)
    app.command()(commands.evaluate)
    page = (Path(__file__).parents[1] / "README.md").read_text()
    options = [
        option for parameter in typer.main.get_command(app).params for option in parameter.opts
    ]
    assert [
        option for option in options if option.startswith("--") and f"{option}" not in page
    ] == []
    assert len(options) > 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vector", "both"], "'vector'"),
        (["--device", "gpu0"], "device='gpu0'"),
        (["--algo", "A3C"], "Did you mean 'A2C'"),
        (["--seeds", "0,1", "--model", "fcnet_hidden=[8]"], "fcnet_hiddens"),
        (["--framework", "jax"], "jax"),
        (["--set", "lr"], "expected KEY=VALUE"),
        (["--set", "vector=async"], "--vector"),
        (["--model", "fcnet_hidden=[8]"], "fcnet_hiddens"),
        (["--log", "tensorbord"], "Did you mean 'tensorboard'"),
        (["--seeds", "a"], "--seeds"),
        (["--seeds", "0", "--seed", "1"], "--seed"),
        (["--import", "no.such"], "no.such"),
        (["--set", "lr_schedule=[1]"], "lr_schedule"),
    ],
)
def test_wrong_values_are_said_before_there_is_a_folder(
    arguments, message, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert train("CartPole-v1", "--steps", 50, *arguments) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_run_of_a_module_goes_on_twice(tmp_path, capsys):
    folder = tmp_path / "run"
    assert not train("drift_env:Drift-v0", "--steps", 50, *SMALL, "--out", folder)
    for steps in (100, 150):
        assert not train("--resume", folder, "--import", "drift_env", "--steps", steps)
    config = json.loads((folder / "config.json").read_text())
    assert (config["env"], config["env_module"]) == ("Drift-v0", "drift_env")


def test_fewer_steps_than_are_done_change_nothing(folder, capsys):
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "status": "interrupted"}))
    config = json.loads((folder / "config.json").read_text())
    config["run"]["steps"] = 1000  # it was interrupted after a tenth
    (folder / "config.json").write_text(json.dumps(config))
    before = contents(folder)
    assert train("--resume", folder, "--steps", 60) == 1
    assert "its 100 steps are done; pass --steps 1000 to train further" in capsys.readouterr().err
    assert contents(folder) == before


def test_run_notes_the_module_that_was_typed_with_import(tmp_path, capsys, monkeypatch):
    (tmp_path / "corr_env.py").write_text(
        "import gymnasium\ngymnasium.register('Corr-v0',"
        " 'gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=20)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "run"

    def forget():
        gym.registry.pop("Corr-v0", None)
        sys.modules.pop("corr_env", None)

    try:
        assert train("Corr-v0", "--steps", 50, *SMALL, "--out", folder) == 1
        assert "--import PACKAGE" in capsys.readouterr().err
        assert not train("Corr-v0", "--import", "corr_env", "--steps", 50, *SMALL, "--out", folder)
        config = json.loads((folder / "config.json").read_text())
        assert (config["env"], config["env_module"]) == ("Corr-v0", "corr_env")
        forget()
        assert train("--resume", folder, "--steps", 100) == 1
        err = " ".join(capsys.readouterr().err.split())
        assert "registered by the module 'corr_env'" in err
        assert "pass --import corr_env" in err
        assert not train("--resume", folder, "--steps", 100, "--import", "corr_env")
        assert not command("evaluate", folder, "--episodes", 1, "--quiet", "--import", "corr_env")
        forget()
        monkeypatch.setattr(
            PPOEngine, "learn", lambda engine, session: os.kill(os.getpid(), signal.SIGINT)
        )
        stopped, line = (
            tmp_path / "stopped early",
            "To continue: rlcatalog train --resume '{}' --import corr_env\n",
        )
        for arguments in (
            ["corr_env:Corr-v0", *SMALL],
            ["Corr-v0", "--import", "corr_env", *SMALL],
        ):
            assert train(*arguments, "--out", stopped, "--overwrite") == 130
            assert line.format(stopped) in capsys.readouterr().err
            forget()
    finally:
        forget()


def test_a_run_that_was_killed_after_its_last_step_is_brought_to_its_end(folder):
    before = result(folder)
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "status": "running", "ended": None}))
    (folder / "learning_curve.png").unlink()
    assert not train("--resume", folder)
    assert json.loads((folder / "run.json").read_text())["status"] == "finished"
    assert (folder / "learning_curve.png").is_file()
    assert result(folder)[1] == before[1]
    for name, array in result(folder)[0].items():
        np.testing.assert_array_equal(array, before[0][name])
    assert train("--resume", folder) == 1


def test_engine_refuses_a_setting_before_there_is_a_folder():
    plan = RunPlan("CartPole-v1", PPOOptions(engine="ppo"), "PPO", settings={"gamma": "high"})
    with pytest.raises(ConfigError, match="gamma"):
        PPOEngine.check(plan)


def test_environments_find_the_catalog_they_were_made_with_elsewhere():
    own = rlcatalog.Catalog()
    for catalog in (own, rlcatalog.default_catalog()):
        maker = pickle.loads(pickle.dumps(EnvMaker("CartPole-v1", {}, {}, catalog)))
        assert maker._catalog is catalog


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_evaluation_shows_its_progress_unless_it_is_told_not_to(quiet, tmp_path, monkeypatch):
    rlcatalog.build(env=gym.make("CartPole-v1"), config={"fcnet_hiddens": [4]}).save(tmp_path)
    asked = []

    def shown(*args, quiet, **kwargs):
        asked.append(quiet)
        return show_progress(*args, quiet=True, **kwargs)

    show_progress = commands.show_progress
    monkeypatch.setattr(commands, "show_progress", shown)
    assert not command("evaluate", tmp_path, "--env", "CartPole-v1", "--episodes", 1, *quiet)
    assert asked == [bool(quiet)]
