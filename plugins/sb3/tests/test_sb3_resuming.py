"""Runs of `rlcatalog train --engine sb3` are kept while they train, end politely, and go on."""

import json
import os
import signal

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger
from typer.testing import CliRunner

import rlcatalog
from rlcatalog.errors import (
    CatalogError,
    ConfigError,
    NonFiniteError,
    RunFolderError,
    SavedPolicyError,
)
from rlcatalog_cli.app import make_app
from rlcatalog_runs import Interrupted, Interrupts, RunPlan, Session
from rlcatalog_runs.checkpoints import checkpoint_steps, checkpoints_of
from rlcatalog_runs.records import read_record
from rlcatalog_sb3.algorithms import make
from rlcatalog_sb3.checkpoints import CheckpointCallback, restore
from rlcatalog_sb3.engine import SB3Options
from rlcatalog_sb3.flat_spaces import for_sb3

pytestmark = pytest.mark.usefixtures("blank_curves")
SMALL = {"fcnet_hiddens": [8]}
SETTINGS = {
    "PPO": ["--envs", "2", "--set", "n_steps=32", "--set", "batch_size=32", "--set", "n_epochs=1"],
    "DQN": ["--set", "learning_starts=20", "--set", "buffer_size=100000"],
}


def run(*arguments):
    return CliRunner().invoke(make_app(arguments), arguments, catch_exceptions=False)


def train(folder, algo, steps, *more):
    return [
        "train",
        "CartPole-v1",
        "-e",
        "sb3",
        "--algo",
        algo,
        "-n",
        str(steps),
        "--out",
        str(folder),
        "--model",
        "fcnet_hiddens=[8]",
        *SETTINGS[algo],
        *more,
    ]


def rows(folder):
    return [
        json.loads(line)
        for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]


@pytest.mark.parametrize(
    ("algo", "number"),
    [("PPO", signal.SIGINT), pytest.param("DQN", signal.SIGTERM, marks=pytest.mark.attack)],
)
def test_a_run_that_is_asked_to_end_is_kept_and_goes_on(algo, number, tmp_path, monkeypatch):
    algorithm = getattr(stable_baselines3, algo)
    update, asked = algorithm.train, []

    def ask(self, *args, **kwargs):
        if self.num_timesteps > 150 and not asked:
            asked.append(self)
            os.kill(os.getpid(), number)
        update(self, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(algorithm, "train", ask)
        ended = run(*train(tmp_path, algo, 10_000_000, "--checkpoint-every", "64"))
    said = ended.output
    assert ended.exit_code == 128 + number, said
    assert f"Interrupted by {number.name}. The run up to step" in said
    assert f"rlcatalog train --resume {tmp_path} --engine sb3" in said
    assert read_record(tmp_path)["status"] == "interrupted"
    kept = checkpoint_steps(checkpoints_of(tmp_path)[-1])
    assert f"step {kept:,} is saved" in said
    assert len(checkpoints_of(tmp_path)) == 2
    policy = rlcatalog.load(tmp_path / "policy")
    first = rows(tmp_path)

    said = run("train", "-e", "sb3", "--resume", str(tmp_path), "--steps", str(kept + 200)).output
    assert (
        f"resuming after {kept:,} steps; Stable-Baselines3 restores neither environments nor random"
        in said
    )
    assert checkpoint_steps(checkpoints_of(tmp_path)[-1]) >= kept + 200
    steps = [int(row["time/total_timesteps"]) for row in rows(tmp_path)]
    assert steps == sorted(set(steps))
    assert steps[-1] > kept
    as_before = [row["time/total_timesteps"] for row in first]
    assert [row["time/total_timesteps"] for row in rows(tmp_path)][: len(first)] == as_before
    # A first row has no updates.
    updates = [int(row["train/n_updates"]) for row in rows(tmp_path) if row.get("train/n_updates")]
    assert updates == sorted(updates)
    assert updates[-1] > max(int(row.get("train/n_updates") or 0) for row in first)
    obs = np.full((1, 4), 0.1, np.float32)
    trained = rlcatalog.load(tmp_path / "policy")
    if algo == "PPO":  # a policy of DQN gives no values
        assert not np.array_equal(trained.values(obs), policy.values(obs))
    assert "mean return" in run("evaluate", str(tmp_path), "--episodes", "2").output
    record = read_record(tmp_path)
    assert (record["status"], len(record["resumed"])) == ("finished", 1)
    assert json.loads((tmp_path / "config.json").read_text())["env"] == "CartPole-v1"


def algorithm_in(folder, name, environment="CartPole-v1", envs=2, interrupts=None, **settings):
    """Return an algorithm, and the callback that keeps it."""
    env = make_vec_env(lambda: for_sb3(environment, SMALL), n_envs=envs, seed=0)
    algorithm = make(name, env, SMALL, device="cpu", seed=0, **settings)
    algorithm.set_logger(Logger(None, []))
    plan = RunPlan(environment, SB3Options(engine="sb3"), name)
    return algorithm, CheckpointCallback(
        Session(plan, folder, interrupts or Interrupts(), [], print)
    )


def tensors(state):
    return [value for _, value in sorted(state.items())]


@pytest.mark.parametrize("size", [16, 1000], ids=["full", "not full"])
def test_a_checkpoint_holds_weights_optimiser_and_replay_buffer(size, tmp_path):
    algorithm, keeping = algorithm_in(
        tmp_path, "DQN", learning_starts=4, buffer_size=size, train_freq=1
    )
    algorithm.learn(40, keeping)
    keeping.save()
    (_, last) = checkpoints_of(tmp_path)
    env = make_vec_env(lambda: for_sb3("CartPole-v1", SMALL), n_envs=2, seed=0)
    found = restore("DQN", last, env, device="cpu", seed=5)
    assert (found.num_timesteps, found._n_updates) == (40, algorithm._n_updates)
    assert found._n_updates > 10
    for ours, theirs in zip(
        tensors(found.policy.state_dict()), tensors(algorithm.policy.state_dict()), strict=True
    ):
        assert torch.equal(ours, theirs)
    moments, expected = (one.policy.optimizer.state_dict()["state"] for one in (found, algorithm))
    assert all(torch.equal(moments[key]["exp_avg"], expected[key]["exp_avg"]) for key in expected)
    ours, theirs = found.replay_buffer, algorithm.replay_buffer
    assert (ours.pos, ours.full, ours.buffer_size) == (theirs.pos, theirs.full, theirs.buffer_size)
    assert theirs.full == (size == 16)
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    if not theirs.full:  # what is empty takes no room
        assert (last / "replay_buffer.pkl").stat().st_size < ours.observations.nbytes
    found.learn(20, reset_num_timesteps=False)
    assert found.num_timesteps == 60


class Masked(gym.Env):
    """Observations of two parts; a step may fail."""

    observation_space = gym.spaces.Dict(
        {"seen": gym.spaces.Box(-1, 1, (2,)), "action_mask": gym.spaces.Box(0, 1, (3,), np.int8)}
    )
    action_space = gym.spaces.Discrete(3)
    fails_after = None

    def __init__(self):
        self.taken = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action):
        self.taken += 1
        if self.taken == Masked.fails_after:
            raise RuntimeError("the robot fell over")
        return self._look(), 1.0, False, self.taken % 7 == 0, {}

    def _look(self):
        return {
            "seen": self.np_random.uniform(-1, 1, 2).astype(np.float32),
            "action_mask": np.ones(3, np.int8),
        }


@pytest.fixture
def masked():
    gym.register("Masked-v0", Masked)
    yield "Masked-v0"
    Masked.fails_after = None
    del gym.registry["Masked-v0"]


def test_a_replay_buffer_of_several_parts_comes_back(masked, tmp_path):
    env = make_vec_env(lambda: for_sb3(Masked(), SMALL), n_envs=1, seed=0)
    algorithm = make("MaskablePPO", env, SMALL, device="cpu", n_steps=8, batch_size=8)
    assert isinstance(algorithm.observation_space, gym.spaces.Dict)
    from stable_baselines3 import DQN
    from stable_baselines3.common.buffers import DictReplayBuffer

    from rlcatalog_sb3.checkpoints import _fill_up, _save_buffer

    plain = gym.wrappers.TransformObservation(Masked(), lambda obs: obs, Masked.observation_space)
    dqn = DQN("MultiInputPolicy", plain, buffer_size=50, learning_starts=1, device="cpu").learn(20)
    assert isinstance(dqn.replay_buffer, DictReplayBuffer)
    before = dqn.replay_buffer
    _save_buffer(dqn, tmp_path / "buffer.pkl")
    assert dqn.replay_buffer is before
    dqn.load_replay_buffer(tmp_path / "buffer.pkl")
    assert len(dqn.replay_buffer.rewards) == 21
    _fill_up(dqn.replay_buffer)
    for key, column in before.observations.items():
        np.testing.assert_array_equal(dqn.replay_buffer.observations[key], column)
    np.testing.assert_array_equal(dqn.replay_buffer.rewards, before.rewards)


def test_an_error_of_the_environment_leaves_the_run_as_it_was_before_the_rollout(masked, tmp_path):
    Masked.fails_after = 20
    arguments = [
        "train",
        masked,
        "-e",
        "sb3",
        "--algo",
        "MaskablePPO",
        "-n",
        "64",
        "--out",
        str(tmp_path),
        "--model",
        "fcnet_hiddens=[8]",
        "--set",
        "n_steps=8",
        "--set",
        "batch_size=8",
    ]
    with pytest.raises(RuntimeError, match="fell over"):
        run(*arguments)
    assert read_record(tmp_path)["status"] == "failed"
    # The third rollout of eight was not whole.
    assert checkpoint_steps(checkpoints_of(tmp_path)[-1]) == 16
    Masked.fails_after = None
    run("train", "-e", "sb3", "--resume", str(tmp_path))
    assert [int(row["time/total_timesteps"]) for row in rows(tmp_path)] == [
        8,
        16,
        24,
        32,
        40,
        48,
        56,
        64,
    ]


def test_off_policy_a_step_that_was_not_stored_is_not_counted(tmp_path):
    interrupts = Interrupts()
    algorithm, keeping = algorithm_in(
        tmp_path, "DQN", interrupts=interrupts, learning_starts=4, train_freq=8, buffer_size=100
    )

    step, taken = algorithm.env.step, []

    def ask(actions):
        taken.append(actions)
        if len(taken) == 11:
            interrupts.pending = signal.SIGTERM
        return step(actions)

    algorithm.env.step = ask
    with pytest.raises(Interrupted):
        algorithm.learn(1000, keeping)
    keeping.save_early()
    assert algorithm.num_timesteps == 20  # ten steps of two environments
    assert algorithm.replay_buffer.pos == 10
    assert checkpoint_steps(checkpoints_of(tmp_path)[-1]) == 20


def test_weights_that_are_no_numbers_replace_no_policy(tmp_path):
    algorithm, keeping = algorithm_in(tmp_path, "PPO", n_steps=8, batch_size=8, n_epochs=1)
    algorithm.learn(16, keeping)
    obs = np.full((1, 4), 0.1, np.float32)
    before = rlcatalog.load(tmp_path / "policy").values(obs)
    with torch.no_grad():
        next(algorithm.policy.parameters()).fill_(float("nan"))
    with pytest.raises(
        NonFiniteError, match=r"after 16 steps, PPO has NaN or infinite weights.*after 0 steps"
    ):
        keeping.save()
    keeping.save_early()  # says nothing: there is an error already
    np.testing.assert_array_equal(rlcatalog.load(tmp_path / "policy").values(obs), before)


def test_from_an_earlier_checkpoint_what_came_later_is_taken_back(tmp_path):
    run(*train(tmp_path, "PPO", 256, "--checkpoint-every", "64", "--keep-checkpoints", "4"))
    kept = [checkpoint_steps(path) for path in checkpoints_of(tmp_path)]
    assert kept == [64, 128, 192, 256]
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"timesteps_total": 1')  # killed while it wrote
    run(
        "train",
        "-e",
        "sb3",
        "--resume",
        str(tmp_path / "checkpoints/step-000000128"),
        "--steps",
        "192",
        "--checkpoint-every",
        "0",
        "--keep-checkpoints",
        "9",
    )
    assert [checkpoint_steps(path) for path in checkpoints_of(tmp_path)] == [64, 128, 192]
    assert [int(row["time/total_timesteps"]) for row in rows(tmp_path)] == [64, 128, 192]
    with pytest.raises(RunFolderError, match="checkpoints"):
        run(*train(tmp_path, "PPO", 64))
    (tmp_path / "checkpoints/mine").write_text("kept")
    run(*train(tmp_path, "PPO", 64, "--overwrite", "--checkpoint-every", "0"))
    assert [checkpoint_steps(path) for path in checkpoints_of(tmp_path)] == [0, 64]
    assert (tmp_path / "checkpoints/mine").read_text() == "kept"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    run(*train(folder, "PPO", 64))
    return folder


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["CartPole-v1"], "keeps its ENV_ID. Remove"),
        (["--algo", "DQN"], "keeps its --algo. Remove"),
        (["--set", "gamma=0.9"], "keeps its --set. Remove"),
        (["--envs", "1"], "keeps its --envs. Remove"),
        (["--seed", "0"], "keeps its --seed. Remove"),
        (["--overwrite"], "keeps its --overwrite. Remove"),
        ([], "its 64 steps are done; pass --steps 128 to train further"),
    ],
)
def test_what_stands_beside_resume(finished, more, message):
    with pytest.raises(ConfigError, match=message):
        run("train", "-e", "sb3", *more, "--resume", str(finished))


def test_what_cannot_go_on_is_said(finished, tmp_path):
    with pytest.raises(
        ConfigError, match="pass an environment, such as CartPole-v1, or resume a run"
    ):
        run("train", "--engine", "sb3")
    with pytest.raises(
        SavedPolicyError, match=r"not a folder that `rlcatalog train` wrote: config\.json"
    ):
        run("train", "-e", "sb3", "--resume", str(tmp_path))
    with pytest.raises(SavedPolicyError, match="this run used engine 'sb3', not 'ppo'"):
        run("train", "--engine", "ppo", "--resume", str(finished))
    config = json.loads((finished / "config.json").read_text())
    other = tmp_path / "other"
    other.mkdir()
    cases = {
        "this run used engine 'ppo', not 'sb3'": {"engine": "ppo", "steps": 64},
        "does not contain the run's options": {"engine": "sb3", "steps": "many"},
        "contains no checkpoint": {"engine": "sb3", "steps": 99},
        "does not name its engine, so it cannot be resumed": {"command": "train-sb3", "steps": 99},
        "Unknown engine 'sb4'. Did you mean 'sb3'": {"engine": "sb4"},
    }
    for message, told in cases.items():
        (other / "config.json").write_text(json.dumps({**config, "run": told}))
        with pytest.raises(CatalogError, match=message):
            run("train", "-e", "sb3", "--resume", str(other))
    (other / "config.json").write_text(
        json.dumps({key: part for key, part in config.items() if key != "run"})
    )
    with pytest.raises(SavedPolicyError, match="does not name its engine"):
        run("train", "-e", "sb3", "--resume", str(other))


class Trap:
    """A pickle that leaves a file where it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_folder_alone_has_no_pickle_read(finished, tmp_path):
    """Whatever it says: only a typed `--engine sb3` has a checkpoint's algorithm read, which runs
    what is in it.
    """
    import pickle
    import shutil

    folder, trap = tmp_path / "run", tmp_path / "trap"
    shutil.copytree(finished, folder)
    (checkpoints_of(folder)[-1] / "algorithm.zip").write_bytes(pickle.dumps(Trap(trap)))
    with pytest.raises(ConfigError, match=rf"are pickles.*--resume {folder} --engine sb3\."):
        run("train", "--resume", str(folder), "--steps", "100")
    for engine in ("ppo", "rllib"):
        with pytest.raises(CatalogError, match=r"this run used engine 'sb3'|rlcatalog-rllib"):
            run("train", "--resume", str(folder), "--steps", "100", "--engine", engine)
    assert not trap.exists()


def test_a_damaged_checkpoint_is_said_and_nothing_changes(finished, tmp_path):
    import shutil

    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    last = checkpoints_of(folder)[-1]
    (last / "algorithm.zip").write_bytes(b"no zip")
    before = sorted(str(path) for path in folder.rglob("*"))
    with pytest.raises(SavedPolicyError, match="not a checkpoint, or damaged"):
        run("train", "-e", "sb3", "--resume", str(folder), "--steps", "100")
    assert sorted(str(path) for path in folder.rglob("*")) == before
    assert os.path.exists(folder / "policy")


@pytest.mark.parametrize("algo", SETTINGS)
def test_a_run_that_was_killed_after_its_last_step_is_brought_to_its_end(algo, tmp_path):
    run(*train(tmp_path, algo, 64))
    weights, table = rlcatalog.load(tmp_path / "policy").model.get_weights(), rows(tmp_path)
    (tmp_path / "run.json").write_text(
        json.dumps({**read_record(tmp_path), "status": "running", "ended": None})
    )
    assert run("train", "-e", "sb3", "--resume", str(tmp_path)).exit_code == 0
    assert read_record(tmp_path)["status"] == "finished"
    assert rows(tmp_path) == table
    for name, array in rlcatalog.load(tmp_path / "policy").model.get_weights().items():
        np.testing.assert_array_equal(array, weights[name])
    with pytest.raises(ConfigError, match="its 64 steps are done"):
        run("train", "-e", "sb3", "--resume", str(tmp_path))


@pytest.mark.parametrize("algo", ["PPO", pytest.param("DQN", marks=pytest.mark.attack)])
def test_evaluations_change_nothing_of_the_run(algo, tmp_path):
    """Neither the weights nor the rows; a run that they end is saved as it was then."""
    alone, watched, ended = (tmp_path / name for name in ("alone", "watched", "ended"))
    run(*train(alone, algo, 192))
    run(*train(watched, algo, 192, "--eval-every", "60", "--eval-episodes", "2"))
    expected = rlcatalog.load(alone / "policy").model.get_weights()
    for name, array in rlcatalog.load(watched / "policy").model.get_weights().items():
        np.testing.assert_array_equal(array, expected[name])
    timeless = [
        [
            {
                k: v
                for k, v in row.items()
                if not k.startswith(("time/fps", "time/time", "evaluation"))
            }
            for row in table
        ]
        for table in (rows(alone), rows(watched))
    ]
    assert timeless[0] == timeless[1]
    figures = [row["evaluation"] for row in rows(watched) if "evaluation" in row]
    assert 2 <= len(figures) <= 3
    assert figures[0].keys() == {"return_mean", "return_std", "sampled_return_mean", "episodes"}
    assert (watched / "best" / "policy.json").is_file()
    said = run(
        *train(ended, algo, 1000, "--eval-every", "60", "--eval-episodes", "1", "--stop-at", "1")
    ).output
    steps = checkpoint_steps(checkpoints_of(ended)[-1])
    assert f"ended after {steps:,} steps: the mean return of an evaluation is" in said
    assert rows(ended)[-1]["timesteps_total"] <= steps < 300
    assert read_record(ended)["status"] == "finished"


@pytest.mark.attack  # each of the processes imports PyTorch
@pytest.mark.parametrize("envs", [1, 2])
def test_environments_in_processes_of_their_own_take_the_same_steps(envs, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, more in ((one, []), (other, ["--vector", "async"])):
        arguments = train(folder, "PPO", 64, *more)
        arguments[arguments.index("--envs") + 1] = str(envs)
        run(*arguments)
    expected = rlcatalog.load(one / "policy").model.get_weights()
    for name, array in rlcatalog.load(other / "policy").model.get_weights().items():
        np.testing.assert_array_equal(array, expected[name])
