"""`rlcatalog train` with PPO: folders, early ends, resumed runs, wrong options."""

import gc
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
from rlcatalog_cli import main
from rlcatalog_ppo import checkpoints, commands
from rlcatalog_ppo.engine import PPOEngine
from rlcatalog_ppo.environments import EnvMaker
from rlcatalog_ppo.update import RolloutLearner
from rlcatalog_runs import Interrupted, interruptible, newest_checkpoint
from rlcatalog_runs.checkpoints import checkpoint_steps, checkpoints_of

pytestmark = pytest.mark.usefixtures("blank_curves")

#: An iteration is 50 steps: 25 in each of 2 environments.
SMALL = [
    "--set=num_envs=2",
    "--set=rollout_length=25",
    "--set=minibatch_size=25",
    "--set=num_epochs=1",
    "--model=fcnet_hiddens=[8]",
    "--framework=torch",
    "--quiet",
]


def run_command(*arguments):
    """Run `rlcatalog ARGUMENTS`, and return its exit status."""
    try:
        main([*map(str, arguments)])
    except SystemExit as end:
        return end.code or 0
    return 0


def train(*arguments):
    """Run `rlcatalog train ARGUMENTS`, and return its exit status."""
    return run_command("train", *arguments)


def read_weights(folder):
    return rlcatalog.load(folder / "policy").model.get_weights()


def read_rows(folder):
    """Return a run's metrics without times."""
    rows = []
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        del row["time_total_s"], row["steps_per_second"]
        rows.append(row)
    return rows


def read_json(path):
    return json.loads(path.read_text())


def edit_json(path, **changes):
    path.write_text(json.dumps({**read_json(path), **changes}))


def assert_same_run(folder, other):
    assert read_rows(folder) == read_rows(other)
    weights = read_weights(other)
    for name, array in read_weights(folder).items():
        np.testing.assert_array_equal(array, weights[name], err_msg=name)


def read_files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert train("CartPole-v1", "--steps", 100, *SMALL, "--out", folder) == 0
    return folder


@pytest.fixture
def run_of_100_steps(trained_run, tmp_path):
    """The folder of a finished run, which a test may change."""
    return Path(shutil.copytree(trained_run, tmp_path / "run"))


# --- resumed runs ---------------------------------------------------------------------------------

LONG_RUN = [
    *SMALL,
    # The learning rate falls over the whole run, so half of it is told how long the whole will be.
    "--set=total_steps=400",
    "--checkpoint-every=50",
    "--keep-checkpoints=3",
    "--eval-every=100",
    "--eval-episodes=2",
]


@pytest.fixture(scope="module")
def uninterrupted_run(tmp_path_factory):
    """The folder of a run of 400 steps."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert train("CartPole-v1", "--steps", 400, *LONG_RUN, "--out", folder) == 0
    return folder


@pytest.fixture(scope="module")
def trained_half(tmp_path_factory):
    folder = tmp_path_factory.mktemp("half") / "run"
    arguments = ["--steps", 200, *LONG_RUN, "--log", "csv", "--out", folder]
    assert train("CartPole-v1", *arguments) == 0
    return folder


@pytest.fixture
def half_run(trained_half, tmp_path):
    """The folder of a run that ended after 200 of these 400 steps, which a test may change."""
    return Path(shutil.copytree(trained_half, tmp_path / "half"))


def test_last_three_checkpoints_are_kept(half_run):
    names = [path.name for path in checkpoints_of(half_run)]

    assert names == ["step-000000100", "step-000000150", "step-000000200"]


def test_resumed_run_equals_an_uninterrupted_run(half_run, uninterrupted_run):
    assert train("--resume", half_run, "--steps", 400) == 0

    assert_same_run(half_run, uninterrupted_run)
    best_policy = (half_run / "best" / "policy.json").read_bytes()
    assert best_policy == (uninterrupted_run / "best" / "policy.json").read_bytes()
    assert read_json(half_run / "run.json")["status"] == "finished"


def test_resumed_run_continues_its_csv_file(half_run):
    assert train("--resume", half_run, "--steps", 400) == 0

    lines = (half_run / "progress.csv").read_text().splitlines()
    second_column = [line.split(",")[1] for line in lines]
    assert second_column == ["timesteps_total", *map(str, range(50, 401, 50))]


def test_run_resumes_from_an_earlier_checkpoint(half_run, uninterrupted_run):
    assert train("--resume", half_run, "--steps", 400) == 0

    assert train("--resume", half_run / "checkpoints" / "step-000000300") == 0

    assert_same_run(half_run, uninterrupted_run)
    assert read_json(half_run / "run.json")["status"] == "finished"


@pytest.fixture
def run_resumed_with_changes(run_of_100_steps):
    """A run of 200 steps, whose second half has other settings."""
    changes = ["--set", "gamma=0.5", "--threads", "2"]
    assert train("--resume", run_of_100_steps, "--steps", 200, *changes) == 0
    return run_of_100_steps


def test_resumed_run_may_change_its_settings(run_resumed_with_changes):
    config = read_json(run_resumed_with_changes / "config.json")

    assert config["algorithm"]["gamma"] == 0.5
    assert config["run"]["threads"] == 2
    assert config["steps"] == 200
    assert config["run"]["steps"] == 200


def test_schedule_of_a_resumed_run_is_stretched(run_resumed_with_changes):
    config = read_json(run_resumed_with_changes / "config.json")
    assert config["algorithm"]["total_steps"] == 200

    rates = [row["info"]["learner"]["lr"] for row in read_rows(run_resumed_with_changes)]
    # 1e-3 falls to 0 over 100 steps and then over 200; an iteration has 50.
    np.testing.assert_allclose(rates, [1e-3, 0.5e-3, 0.5e-3, 0.25e-3])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["CartPole-v1"], "a resumed run keeps its ENV_ID. Remove ENV_ID."),
        (["--overwrite"], "keeps its --overwrite. Remove --overwrite."),
        (["--set", "lr=fast"], "PPO config key 'lr'"),
        (["--set", "model=1"], "do not accept 'model'. Use its option"),
        (["--import", "no_such_module"], "--import no_such_module"),
        (["--device", "cuda:99"], "device='cuda:99'"),
        (["--log", "csv,csv"], "'csv' is named twice"),
    ],
)
def test_resume_with_a_wrong_option_changes_nothing(arguments, message, run_of_100_steps, capsys):
    before = read_files(run_of_100_steps)

    assert train("--resume", run_of_100_steps, "--steps", 200, *arguments) == 1

    assert message in capsys.readouterr().err
    assert read_files(run_of_100_steps) == before


def test_resume_from_the_checkpoint_before_removes_a_damaged_one(run_of_100_steps):
    damaged = newest_checkpoint(run_of_100_steps)
    (damaged / "training.json").write_text("{")

    assert train("--resume", checkpoints_of(run_of_100_steps)[0], "--steps", 200) == 0

    assert not damaged.is_dir()


def test_run_killed_after_its_last_step_is_finished_by_resume(run_of_100_steps):
    weights = read_weights(run_of_100_steps)
    rows = read_rows(run_of_100_steps)
    # As if it were killed before it could draw its curve.
    edit_json(run_of_100_steps / "run.json", status="running", ended=None)
    (run_of_100_steps / "learning_curve.png").unlink()

    assert train("--resume", run_of_100_steps) == 0

    assert read_json(run_of_100_steps / "run.json")["status"] == "finished"
    assert (run_of_100_steps / "learning_curve.png").is_file()
    assert read_rows(run_of_100_steps) == rows
    for name, array in read_weights(run_of_100_steps).items():
        np.testing.assert_array_equal(array, weights[name])


# --- runs that end early --------------------------------------------------------------------------


# If the signal arrives while Python runs a callback of the garbage collector, such as the one that
# Hypothesis installs, Python reports the exception as unraisable, and the run raises it again
# later.
ignore_lost_exceptions = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def interrupted_run(request, tmp_path, capsys):
    """A run that got a signal after its checkpoint of 200 steps.

    Returns:
        Its folder, the signal, its exit status, and what it printed.
    """
    folder = tmp_path / "run"
    has_ended = threading.Event()

    def send_signal_after_checkpoint():
        while not has_ended.wait(0.02):
            if (folder / "checkpoints" / "step-000000200").is_dir():
                os.kill(os.getpid(), request.param)
                return

    sender = threading.Thread(target=send_signal_after_checkpoint)
    sender.start()
    try:
        arguments = ["--steps", 20_000, *SMALL, "--checkpoint-every", 200, "--out", folder]
        status = train("CartPole-v1", *arguments)
    finally:
        has_ended.set()
        sender.join()
    return folder, request.param, status, capsys.readouterr().err


@ignore_lost_exceptions
def test_interrupted_run_continues_as_it_says(interrupted_run):
    folder, number, status, error = interrupted_run

    assert status == 128 + number
    assert f"Interrupted by {number.name}. The run up to step" in error
    assert f"To continue: rlcatalog train --resume {folder}" in error
    saved_steps = checkpoints.read(folder)[1]["steps"]
    assert saved_steps >= 200
    assert f" step {saved_steps:,} is saved." in error
    assert read_json(folder / "run.json")["status"] == "interrupted"
    rlcatalog.load(folder / "policy")
    assert run_command("evaluate", folder, "--episodes", "1", "--quiet") == 0
    assert train("--resume", folder, "--steps", saved_steps + 50) == 0


@ignore_lost_exceptions
def test_interrupt_lost_in_a_garbage_collection_ends_the_run(tmp_path, monkeypatch):
    num_updates = 0
    update = RolloutLearner.update
    is_sent = False

    def send_signal(phase, info):
        nonlocal is_sent
        if not is_sent:
            is_sent = True
            os.kill(os.getpid(), signal.SIGINT)

    def collect_garbage_and_update(self, *args, **kwargs):
        nonlocal num_updates
        num_updates += 1
        if num_updates == 3:
            gc.callbacks.append(send_signal)
            try:
                gc.collect()
            finally:
                gc.callbacks.remove(send_signal)
        return update(self, *args, **kwargs)

    monkeypatch.setattr(RolloutLearner, "update", collect_garbage_and_update)
    folder = tmp_path / "run"

    status = train("CartPole-v1", "--steps", 2_000, *SMALL, "--out", folder)

    assert is_sent
    assert status == 130  # 128 and the number of SIGINT
    assert num_updates == 3  # Python dropped the exception, so the third iteration was completed
    assert read_json(folder / "run.json")["status"] == "interrupted"


def test_signal_handlers_are_restored():
    before = signal.getsignal(signal.SIGTERM)

    with pytest.raises(Interrupted) as caught, interruptible():  # noqa: PT012  the second line waits for the signal
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)

    assert caught.value.exit_status == 143  # 128 and the number of SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.fixture
def run_on_a_full_disk(capsys, tmp_path, monkeypatch):
    """The folder of a run whose disk was full when it wrote its checkpoint of 100 steps.

    A test reads what it printed from `capsys`.
    """
    folder = tmp_path / "full"
    real_write = os.write
    real_write_checkpoint = checkpoints.write
    is_full = False

    def write(handle, data):
        if is_full:
            raise OSError(28, "No space left on device")
        return real_write(handle, data)

    def write_checkpoint(path, *arguments):
        nonlocal is_full
        is_full = checkpoint_steps(path) >= 100
        real_write_checkpoint(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        patch.setattr(checkpoints, "write", write_checkpoint)
        arguments = ["--steps", 200, *SMALL, "--checkpoint-every", 50, "--out", folder]
        assert train("CartPole-v1", *arguments) == 1
        is_full = False
    return folder


def test_full_disk_leaves_the_complete_checkpoint(run_on_a_full_disk, capsys):
    error = capsys.readouterr().err
    assert "cannot be written: [Errno 28] No space left on device" in error
    assert checkpoints.read(run_on_a_full_disk)[1]["steps"] == 50
    rlcatalog.load(run_on_a_full_disk / "policy")
    names = [path.name for path in (run_on_a_full_disk / "checkpoints").iterdir()]
    complete = [path.name for path in checkpoints_of(run_on_a_full_disk)]
    assert [name for name in names if name.startswith("step")] == complete


def test_run_on_a_full_disk_can_be_resumed(run_on_a_full_disk, tmp_path):
    other = tmp_path / "other"
    arguments = ["--steps", 200, *SMALL, "--checkpoint-every", 50, "--out", other]
    assert train("CartPole-v1", *arguments) == 0

    assert train("--resume", run_on_a_full_disk) == 0

    assert_same_run(run_on_a_full_disk, other)


class BreaksInStep90(gym.Env):
    """Random observations; the 90th step of an environment raises an error if it is broken."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    is_broken = True

    def __init__(self):
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.is_broken and self.steps == 90:
            raise RuntimeError("the simulator is gone")
        obs = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        terminated = self.np_random.random() < 0.1
        return obs, float(action), terminated, False, {}


@pytest.fixture
def failed_run(capsys, tmp_path, monkeypatch):
    """The folder of a run whose environments broke in their 90th step, in the fourth iteration.

    A test reads what it printed from `capsys`.
    """
    spec = gym.envs.registration.EnvSpec("Breaks-v0", BreaksInStep90)
    monkeypatch.setitem(gym.registry, "Breaks-v0", spec)
    assert train("Breaks-v0", "--steps", 1000, *SMALL, "--out", tmp_path / "run") == 1
    return tmp_path / "run"


def test_environment_error_names_the_line_of_the_environment(failed_run, capsys):
    error = capsys.readouterr().err

    assert re.search(
        r"raised RuntimeError: the simulator is gone \(.*test_ppo_runs\.py:\d+, in step\)", error
    )
    assert read_json(failed_run / "run.json")["status"] == "failed"


def test_failed_run_can_be_resumed_from_a_complete_iteration(failed_run, monkeypatch):
    # The state is not copied after each iteration, so this may be any of the complete ones.
    assert checkpoints.read(failed_run)[1]["steps"] in (0, 50, 100, 150)
    monkeypatch.setattr(BreaksInStep90, "is_broken", False)

    assert train("--resume", failed_run, "--steps", 300) == 0

    steps = [row["timesteps_total"] for row in read_rows(failed_run)]
    assert steps == [50, 100, 150, 200, 250, 300]


# --- folders and modules --------------------------------------------------------------------------


def test_overwrite_removes_the_files_of_a_run_alone(tmp_path):
    folder = tmp_path / "run"
    logs = ["--eval-every", 50, "--log", "csv,tensorboard"]
    assert train("CartPole-v1", "--steps", 100, *SMALL, *logs, "--out", folder) == 0
    files_of_the_user = {"notes.txt", "checkpoints/mine.pt", "tensorboard/mine"}
    for name in files_of_the_user:
        (folder / name).write_text("mine")

    # Without evaluations and logs.
    assert train("CartPole-v1", "--steps", 50, *SMALL, "--out", folder, "--overwrite") == 0

    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    assert files_of_the_user <= names
    assert "best" not in names  # the folder of the evaluations' best policy
    assert "progress.csv" not in names
    assert not any("tfevents" in name for name in names)  # TensorBoard's files
    assert [path.name for path in checkpoints_of(folder)] == ["step-000000000", "step-000000050"]


def test_run_in_an_environment_of_a_module_resumes_twice(tmp_path):
    folder = tmp_path / "run"
    assert train("drift_env:Drift-v0", "--steps", 50, *SMALL, "--out", folder) == 0

    for steps in (100, 150):
        assert train("--resume", folder, "--import", "drift_env", "--steps", steps) == 0

    config = read_json(folder / "config.json")
    assert config["env"] == "Drift-v0"
    assert config["env_module"] == "drift_env"


@pytest.fixture
def forget_short_cartpole(tmp_path, monkeypatch):
    """Make a module `short_cartpole`, which registers `ShortCartPole-v0`; return a function after
    which neither is known, as in a new process.
    """
    (tmp_path / "short_cartpole.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('ShortCartPole-v0', 'gymnasium.envs.classic_control:CartPoleEnv',"
        " max_episode_steps=20)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def forget():
        gym.registry.pop("ShortCartPole-v0", None)
        sys.modules.pop("short_cartpole", None)

    yield forget
    forget()


@pytest.fixture
def run_with_import(forget_short_cartpole, tmp_path):
    """The folder of a run whose environment's module was passed with --import."""
    folder = tmp_path / "run"
    arguments = ["--import", "short_cartpole", "--steps", 50, *SMALL, "--out", folder]
    assert train("ShortCartPole-v0", *arguments) == 0
    forget_short_cartpole()
    return folder


def test_unknown_environment_error_names_the_option_import(forget_short_cartpole, tmp_path, capsys):
    assert train("ShortCartPole-v0", "--steps", 50, *SMALL, "--out", tmp_path / "run") == 1

    assert "--import PACKAGE" in capsys.readouterr().err


def test_resume_without_the_import_names_the_module(run_with_import, capsys):
    config = read_json(run_with_import / "config.json")

    assert config["env"] == "ShortCartPole-v0"
    assert config["env_module"] == "short_cartpole"

    assert train("--resume", run_with_import, "--steps", 100) == 1

    error = " ".join(capsys.readouterr().err.split())
    assert "registered by the module 'short_cartpole'" in error
    assert "pass --import short_cartpole" in error


def test_run_with_import_is_resumed_and_evaluated(run_with_import):
    module = ["--import", "short_cartpole"]

    assert train("--resume", run_with_import, "--steps", 100, *module) == 0
    assert run_command("evaluate", run_with_import, "--episodes", 1, "--quiet", *module) == 0


@pytest.mark.parametrize(
    "arguments",
    [["short_cartpole:ShortCartPole-v0"], ["ShortCartPole-v0", "--import", "short_cartpole"]],
    ids=["module-in-id", "import"],
)
def test_interrupted_run_says_to_continue_with_the_import(
    arguments, forget_short_cartpole, tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "stopped early"
    monkeypatch.setattr(
        PPOEngine, "learn", lambda engine, session: os.kill(os.getpid(), signal.SIGINT)
    )

    assert train(*arguments, *SMALL, "--out", folder) == 130  # 128 and the number of SIGINT

    line = f"To continue: rlcatalog train --resume '{folder}' --import short_cartpole\n"
    assert line in capsys.readouterr().err


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vector", "both"], "'vector'"),
        (["--device", "gpu0"], "device='gpu0'"),
        (["--framework", "jax"], "jax"),
        (["--set", "lr"], "expected KEY=VALUE"),
        (["--set", "vector=async"], "--vector"),
        (["--seeds", "0", "--seed", "1"], "--seed"),
        (["--import", "no.such"], "no.such"),
        (["--set", "lr_schedule=[1]"], "lr_schedule"),
    ],
)
def test_wrong_option_creates_no_folder(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert train("CartPole-v1", "--steps", 50, *arguments) == 1

    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_pickled_env_maker_finds_its_own_catalog():
    catalog = rlcatalog.Catalog()
    maker = EnvMaker("CartPole-v1", {}, {}, catalog)

    assert pickle.loads(pickle.dumps(maker))._catalog is catalog


def test_pickled_env_maker_finds_the_default_catalog():
    maker = EnvMaker("CartPole-v1", {}, {}, rlcatalog.default_catalog())

    assert pickle.loads(pickle.dumps(maker))._catalog is rlcatalog.default_catalog()


def test_readme_has_each_option_of_evaluate():
    app = typer.Typer(add_completion=False)
    app.command()(commands.evaluate)
    options = []
    for parameter in typer.main.get_command(app).params:
        options += parameter.opts
    readme = (Path(__file__).parents[1] / "README.md").read_text()

    missing = [option for option in options if option.startswith("--") and option not in readme]

    assert missing == []
    assert len(options) > 8  # the command's options were found
