"""Runs of `rlcatalog train --engine sb3`: checkpoints, interruptions and resuming."""

import json
import os
import pickle
import shutil
import signal
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

import stable_baselines3
import torch
from command_line import run_command
from stable_baselines3.common.buffers import DictReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger

import rlcatalog
from rlcatalog.errors import (
    CatalogError,
    ConfigError,
    NonFiniteError,
    SavedPolicyError,
)
from rlcatalog_runs import Interrupted, Interrupts, RunPlan, Session
from rlcatalog_runs.checkpoints import checkpoint_steps, checkpoints_of
from rlcatalog_runs.display import RunDisplay
from rlcatalog_runs.records import read_record
from rlcatalog_sb3.algorithms import make
from rlcatalog_sb3.checkpoints import CheckpointCallback, _restore_full_size, _save_buffer, restore
from rlcatalog_sb3.engine import SB3Options
from rlcatalog_sb3.flat_spaces import for_sb3

pytestmark = pytest.mark.usefixtures("blank_curves")

SMALL = {"fcnet_hiddens": [8]}


def train_cartpole(algo, *, steps, out, envs=2, options=""):
    """Train with the command line: PPO in rollouts of 32 steps, or DQN."""
    settings = "--set learning_starts=20 --set buffer_size=100000"
    if algo == "PPO":
        settings = f"--envs {envs} --set n_steps=32 --set batch_size=32 --set n_epochs=1"
    return run_command(
        f"train CartPole-v1 --engine sb3 --algo {algo} --steps {steps} --out {out}"
        f" --model fcnet_hiddens=[8] {settings} {options}"
    )


def resume(folder, options=""):
    return run_command(f"train --engine sb3 --resume {folder} {options}")


def read_metrics(folder):
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def read_steps(folder):
    """Return the number of environment steps in each row of the metrics."""
    return [int(row["time/total_timesteps"]) for row in read_metrics(folder)]


def steps_of_checkpoints(folder):
    return [checkpoint_steps(path) for path in checkpoints_of(folder)]


def assert_equal_weights(folder, other):
    """Compare the weights of the policies that two runs saved."""
    weights = rlcatalog.load(folder / "policy").model.get_weights()
    expected = rlcatalog.load(other / "policy").model.get_weights()
    for name, array in weights.items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run of PPO that has finished its 64 steps; not to be written to."""
    folder = tmp_path_factory.mktemp("finished")
    train_cartpole("PPO", steps=64, out=folder)
    return folder


# --- interrupted runs -----------------------------------------------------------------------------


class InterruptedRun(NamedTuple):
    folder: Path
    algo: str
    signal: signal.Signals
    result: Any  # exit code and output of the command

    @property
    def saved_steps(self):
        return steps_of_checkpoints(self.folder)[-1]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("PPO", signal.SIGINT), id="PPO"),
        pytest.param(("DQN", signal.SIGTERM), id="DQN", marks=pytest.mark.slow),
    ],
)
def interrupted(request, tmp_path_factory):
    """A run that got a signal at its first update after 150 steps; not to be written to."""
    algo, number = request.param
    algorithm_class = getattr(stable_baselines3, algo)
    update = algorithm_class.train
    is_sent = False

    def update_and_interrupt(self, *args, **kwargs):
        nonlocal is_sent
        if self.num_timesteps > 150 and not is_sent:
            is_sent = True
            os.kill(os.getpid(), number)
        update(self, *args, **kwargs)

    folder = tmp_path_factory.mktemp("interrupted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(algorithm_class, "train", update_and_interrupt)
        result = train_cartpole(algo, steps=10_000_000, out=folder, options="--checkpoint-every 64")
    return InterruptedRun(folder, algo, number, result)


class ResumedRun(NamedTuple):
    folder: Path
    before: InterruptedRun
    result: Any  # exit code and output of the command


@pytest.fixture(scope="module")
def resumed(interrupted, tmp_path_factory):
    """A copy of the interrupted run, resumed for 200 more steps; not to be written to."""
    folder = tmp_path_factory.mktemp("resumed") / "run"
    shutil.copytree(interrupted.folder, folder)
    result = resume(folder, f"--steps {interrupted.saved_steps + 200}")
    return ResumedRun(folder, interrupted, result)


def test_interrupted_run_exits_with_its_signal(interrupted):
    assert interrupted.result.exit_code == 128 + interrupted.signal
    assert read_record(interrupted.folder)["status"] == "interrupted"


def test_interrupted_run_says_how_to_resume_it(interrupted):
    output = interrupted.result.output

    assert f"Interrupted by {interrupted.signal.name}. The run up to step" in output
    assert f"step {interrupted.saved_steps:,} is saved" in output
    assert f"rlcatalog train --resume {interrupted.folder} --engine sb3" in output


def test_interrupted_run_keeps_its_last_two_checkpoints(interrupted):
    assert len(checkpoints_of(interrupted.folder)) == 2


def test_resumed_run_says_what_is_not_restored(resumed):
    expected = (
        f"resuming after {resumed.before.saved_steps:,} steps; Stable-Baselines3 restores neither"
        " environments nor random"
    )
    assert expected in resumed.result.output


def test_resumed_run_reaches_its_steps(resumed):
    assert steps_of_checkpoints(resumed.folder)[-1] >= resumed.before.saved_steps + 200


def test_resumed_run_appends_to_the_metrics(resumed):
    steps_before = read_steps(resumed.before.folder)

    steps = read_steps(resumed.folder)

    assert steps[: len(steps_before)] == steps_before
    assert steps == sorted(set(steps))
    assert steps[-1] > resumed.before.saved_steps


def test_resumed_run_goes_on_counting_updates(resumed):
    # The first row of a run has no updates yet.
    rows_before = read_metrics(resumed.before.folder)
    updates_before = [int(row.get("train/n_updates") or 0) for row in rows_before]

    rows = read_metrics(resumed.folder)
    updates = [int(row["train/n_updates"]) for row in rows if row.get("train/n_updates")]

    assert updates == sorted(updates)
    assert updates[-1] > max(updates_before)


def test_resumed_run_changes_every_weight(resumed):
    before = rlcatalog.load(resumed.before.folder / "policy").model.get_weights()
    after = rlcatalog.load(resumed.folder / "policy").model.get_weights()

    for name, array in after.items():
        if resumed.before.algo == "DQN" and name.startswith("outputs.value"):
            continue  # DQN has no critic
        assert not np.array_equal(array, before[name]), name


def test_resumed_run_is_recorded_as_resumed_once(resumed):
    record = read_record(resumed.folder)
    config = json.loads((resumed.folder / "config.json").read_text())

    assert record["status"] == "finished"
    assert len(record["resumed"]) == 1
    assert config["env"] == "CartPole-v1"


@pytest.mark.parametrize("algo", ["PPO", "DQN"])
def test_run_killed_after_its_last_step_is_finished_by_resuming(algo, tmp_path):
    train_cartpole(algo, steps=64, out=tmp_path)
    weights_before = rlcatalog.load(tmp_path / "policy").model.get_weights()
    rows_before = read_metrics(tmp_path)
    # The record of a killed run says that it is still running.
    record = {**read_record(tmp_path), "status": "running", "ended": None}
    (tmp_path / "run.json").write_text(json.dumps(record))

    result = resume(tmp_path)

    assert result.exit_code == 0
    assert read_record(tmp_path)["status"] == "finished"
    assert read_metrics(tmp_path) == rows_before
    weights = rlcatalog.load(tmp_path / "policy").model.get_weights()
    for name, weight in weights.items():
        np.testing.assert_array_equal(weight, weights_before[name])


# --- checkpoints ----------------------------------------------------------------------------------


def make_algorithm(name, folder, *, interrupts=None, **settings):
    """Return an algorithm for two CartPoles, and the callback that saves its run in a folder."""
    env = make_vec_env(lambda: for_sb3("CartPole-v1", SMALL), n_envs=2, seed=0)
    algorithm = make(name, env, SMALL, device="cpu", seed=0, **settings)
    algorithm.set_logger(Logger(None, []))
    plan = RunPlan("CartPole-v1", SB3Options(engine="sb3"), name)
    session = Session(plan, folder, interrupts or Interrupts(), [], RunDisplay())
    return algorithm, CheckpointCallback(session)


class RestoredDQN(NamedTuple):
    saved: Any
    restored: Any
    checkpoint: Path


def save_and_restore_dqn(folder, *, buffer_size):
    """Train DQN for 40 steps, 20 in each of two environments; save it and restore it."""
    saved, callback = make_algorithm(
        "DQN", folder, learning_starts=4, buffer_size=buffer_size, train_freq=1
    )
    saved.learn(40, callback)
    callback.save()
    checkpoint = checkpoints_of(folder)[-1]
    env = make_vec_env(lambda: for_sb3("CartPole-v1", SMALL), n_envs=2, seed=0)
    restored = restore("DQN", checkpoint, env, device="cpu", seed=5)
    return RestoredDQN(saved, restored, checkpoint)


@pytest.fixture(
    scope="module",
    # The size counts both environments: after 20 steps, 8 rows are full and 500 are not.
    params=[pytest.param(16, id="full buffer"), pytest.param(1000, id="partly filled buffer")],
)
def dqn(request, tmp_path_factory):
    """DQN and the same algorithm restored from its checkpoint; not to be trained."""
    return save_and_restore_dqn(tmp_path_factory.mktemp("dqn"), buffer_size=request.param)


def test_run_has_checkpoints_of_its_start_and_its_end(tmp_path):
    save_and_restore_dqn(tmp_path, buffer_size=16)

    assert steps_of_checkpoints(tmp_path) == [0, 40]


def test_checkpoint_restores_counters(dqn):
    assert dqn.restored.num_timesteps == 40
    assert dqn.restored._n_updates == dqn.saved._n_updates
    assert dqn.restored._n_updates > 10


def test_checkpoint_restores_weights(dqn):
    weights = dqn.restored.policy.state_dict()
    expected = dqn.saved.policy.state_dict()

    assert weights.keys() == expected.keys()
    for name, tensor in weights.items():
        assert torch.equal(tensor, expected[name])


def test_checkpoint_restores_moments_of_the_optimiser(dqn):
    state = dqn.restored.policy.optimizer.state_dict()["state"]
    expected = dqn.saved.policy.optimizer.state_dict()["state"]

    assert expected
    for key in expected:
        assert torch.equal(state[key]["exp_avg"], expected[key]["exp_avg"])


def test_checkpoint_restores_replay_buffer(dqn):
    buffer = dqn.restored.replay_buffer
    expected = dqn.saved.replay_buffer

    assert buffer.pos == expected.pos
    assert buffer.buffer_size == expected.buffer_size
    assert buffer.full == expected.full
    assert buffer.full == (buffer.buffer_size == 8)  # 16 // 2 environments
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        np.testing.assert_array_equal(getattr(buffer, name), getattr(expected, name))


def test_checkpoint_omits_empty_rows_of_the_replay_buffer(tmp_path):
    dqn = save_and_restore_dqn(tmp_path, buffer_size=1000)

    size_of_file = (dqn.checkpoint / "replay_buffer.pkl").stat().st_size
    assert size_of_file < dqn.restored.replay_buffer.observations.nbytes


@pytest.mark.parametrize("buffer_size", [16, 1000], ids=["full", "partly filled"])
def test_restored_algorithm_trains_on(buffer_size, tmp_path):
    dqn = save_and_restore_dqn(tmp_path, buffer_size=buffer_size)

    dqn.restored.learn(20, reset_num_timesteps=False)

    assert dqn.restored.num_timesteps == 60


class FailingRobot(gym.Env):
    """Observations with an action mask; `step` raises an error at its call number `fails_at`."""

    observation_space = gym.spaces.Dict(
        {"seen": gym.spaces.Box(-1, 1, (2,)), "action_mask": gym.spaces.Box(0, 1, (3,), np.int8)}
    )
    action_space = gym.spaces.Discrete(3)
    fails_at = None

    def __init__(self):
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        if self.steps == FailingRobot.fails_at:
            raise RuntimeError("the robot fell over")
        return self._observe(), 1.0, False, self.steps % 7 == 0, {}

    def _observe(self):
        seen = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"seen": seen, "action_mask": np.ones(3, np.int8)}


@pytest.fixture
def robot_id():
    """The id under which `FailingRobot` is registered."""
    gym.register("FailingRobot-v0", FailingRobot)
    yield "FailingRobot-v0"
    FailingRobot.fails_at = None
    del gym.registry["FailingRobot-v0"]


def test_replay_buffer_of_dict_observations_is_restored(tmp_path):
    # No run trains DQN on Dict observations, so this test calls the functions of checkpoints.
    dqn = stable_baselines3.DQN(
        "MultiInputPolicy", FailingRobot(), buffer_size=50, learning_starts=1, device="cpu"
    ).learn(20)
    expected = dqn.replay_buffer
    assert isinstance(expected, DictReplayBuffer)

    _save_buffer(dqn, tmp_path / "buffer.pkl")  # saves only the rows that are in use
    assert dqn.replay_buffer is expected  # saving cuts a copy
    dqn.load_replay_buffer(tmp_path / "buffer.pkl")
    assert len(dqn.replay_buffer.rewards) == 21  # 20 steps, and the next observation
    _restore_full_size(dqn.replay_buffer)  # adds empty rows

    for key, column in expected.observations.items():
        np.testing.assert_array_equal(dqn.replay_buffer.observations[key], column)
    np.testing.assert_array_equal(dqn.replay_buffer.rewards, expected.rewards)


def test_failing_environment_leaves_the_last_whole_rollout(robot_id, tmp_path):
    FailingRobot.fails_at = 20  # in its third rollout of 8 steps
    line = (
        f"train {robot_id} --engine sb3 --algo MaskablePPO --steps 64 --out {tmp_path}"
        " --model fcnet_hiddens=[8] --set n_steps=8 --set batch_size=8"
    )

    with pytest.raises(RuntimeError, match="the robot fell over"):
        run_command(line)

    assert read_record(tmp_path)["status"] == "failed"
    assert steps_of_checkpoints(tmp_path)[-1] == 2 * 8  # two whole rollouts

    FailingRobot.fails_at = None
    resume(tmp_path)

    assert read_steps(tmp_path) == [8, 16, 24, 32, 40, 48, 56, 64]


def test_interrupted_dqn_counts_only_stored_steps(tmp_path):
    interrupts = Interrupts()
    # DQN in two environments, so each call of step() is two steps.
    algorithm, callback = make_algorithm(
        "DQN", tmp_path, interrupts=interrupts, learning_starts=4, train_freq=8, buffer_size=100
    )
    env_step = algorithm.env.step
    num_calls = 0

    def interrupt_the_eleventh_step(actions):
        nonlocal num_calls
        num_calls += 1
        if num_calls == 11:
            interrupts.pending = signal.SIGTERM  # DQN stops before it stores this step
        return env_step(actions)

    algorithm.env.step = interrupt_the_eleventh_step
    with pytest.raises(Interrupted):
        algorithm.learn(1000, callback)
    callback.save_early()  # as a run does that ends early

    assert algorithm.replay_buffer.pos == 10
    assert algorithm.num_timesteps == 10 * 2
    assert steps_of_checkpoints(tmp_path)[-1] == 10 * 2


def train_ppo_and_break_its_weights(folder):
    """Train PPO for one rollout of 16 steps, then set weights to NaN; return its callback."""
    algorithm, callback = make_algorithm("PPO", folder, n_steps=8, batch_size=8, n_epochs=1)
    algorithm.learn(16, callback)
    with torch.no_grad():
        next(algorithm.policy.parameters()).fill_(float("nan"))
    return callback


def test_saving_nan_weights_is_an_error(tmp_path):
    callback = train_ppo_and_break_its_weights(tmp_path)

    with pytest.raises(NonFiniteError, match=r"after 16 steps, PPO has NaN") as caught:
        callback.save()

    assert "infinite weights" in str(caught.value)
    assert "The policy after 0 steps" in str(caught.value)


def test_nan_weights_do_not_replace_the_saved_policy(tmp_path):
    callback = train_ppo_and_break_its_weights(tmp_path)
    obs = np.full((1, 4), 0.1, np.float32)
    values_before = rlcatalog.load(tmp_path / "policy").values(obs)

    with pytest.raises(NonFiniteError):
        callback.save()
    callback.save_early()  # raises nothing, because a run that ends early has an error already

    np.testing.assert_array_equal(rlcatalog.load(tmp_path / "policy").values(obs), values_before)


# --- resuming -------------------------------------------------------------------------------------


def test_resuming_an_earlier_checkpoint_discards_later_steps(tmp_path):
    options = "--checkpoint-every 64 --keep-checkpoints 4"
    train_cartpole("PPO", steps=256, out=tmp_path, options=options)
    assert steps_of_checkpoints(tmp_path) == [64, 128, 192, 256]

    earlier_checkpoint = tmp_path / "checkpoints/step-000000128"
    resume(earlier_checkpoint, "--steps 192 --checkpoint-every 0 --keep-checkpoints 9")

    assert steps_of_checkpoints(tmp_path) == [64, 128, 192]
    assert read_steps(tmp_path) == [64, 128, 192]


def test_overwriting_removes_checkpoints_but_no_other_files(tmp_path):
    train_cartpole(
        "PPO", steps=192, out=tmp_path, options="--checkpoint-every 64 --keep-checkpoints 4"
    )
    (tmp_path / "checkpoints/notes.txt").write_text("a user's file")

    train_cartpole("PPO", steps=64, out=tmp_path, options="--overwrite --checkpoint-every 0")

    assert steps_of_checkpoints(tmp_path) == [0, 64]
    assert (tmp_path / "checkpoints/notes.txt").read_text() == "a user's file"


@pytest.mark.parametrize(
    ("argument", "name"),
    [
        ("--algo DQN", "--algo"),
        ("--set gamma=0.9", "--set"),
        ("--envs 1", "--envs"),
    ],
)
def test_resuming_rejects_arguments_that_a_run_keeps(finished, argument, name):
    with pytest.raises(ConfigError, match=f"keeps its {name}. Remove"):
        run_command(f"train -e sb3 {argument} --resume {finished}")


def test_training_needs_an_environment_or_a_run():
    with pytest.raises(ConfigError, match=r"pass an environment.*, or resume a run"):
        run_command("train --engine sb3")


@pytest.mark.parametrize(
    ("run", "message"),
    [
        pytest.param(
            {"engine": "ppo", "steps": 64},
            "this run used engine 'ppo', not 'sb3'",
            id="different engine",
        ),
        pytest.param({"engine": "sb3", "steps": 99}, "contains no checkpoint", id="no checkpoint"),
    ],
)
def test_resuming_rejects_a_config_without_a_valid_run(finished, tmp_path, run, message):
    config = json.loads((finished / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "run": run}))

    with pytest.raises(CatalogError, match=message):
        resume(tmp_path)


class FileOpener:
    """An object whose pickle creates a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize(
    ("option", "error", "message"),
    [
        # Only an engine that the user names may load a pickle, because that can run any code.
        pytest.param("", ConfigError, r"are pickles.*--engine sb3\.", id="no engine"),
        pytest.param("--engine ppo", CatalogError, "this run used engine 'sb3'", id="ppo"),
        # The error is another one if rlcatalog-rllib is not installed.
        pytest.param(
            "--engine rllib", CatalogError, "used engine 'sb3'|rlcatalog-rllib", id="rllib"
        ),
    ],
)
def test_resuming_without_engine_sb3_loads_no_pickle(finished, tmp_path, option, error, message):
    run_folder = tmp_path / "run"
    shutil.copytree(finished, run_folder)
    # Loading this pickle would create a file.
    created_file = tmp_path / "created"
    pickled = pickle.dumps(FileOpener(created_file))
    (checkpoints_of(run_folder)[-1] / "algorithm.zip").write_bytes(pickled)

    with pytest.raises(error, match=message):
        run_command(f"train --resume {run_folder} --steps 100 {option}")

    assert not created_file.exists()


def test_resuming_without_engine_says_the_whole_command(finished):
    with pytest.raises(ConfigError, match=rf"--resume {finished} --engine sb3\."):
        run_command(f"train --resume {finished} --steps 100")


def test_resuming_a_damaged_checkpoint_changes_no_file(finished, tmp_path):
    run_folder = tmp_path / "run"
    shutil.copytree(finished, run_folder)
    (checkpoints_of(run_folder)[-1] / "algorithm.zip").write_bytes(b"no zip")
    files_before = sorted(run_folder.rglob("*"))

    with pytest.raises(SavedPolicyError, match="not a checkpoint, or damaged"):
        resume(run_folder, "--steps 100")

    assert sorted(run_folder.rglob("*")) == files_before


# --- evaluations during training ------------------------------------------------------------------


class TwoRuns(NamedTuple):
    without_evaluations: Path
    with_evaluations: Path


@pytest.fixture(scope="module", params=["PPO", pytest.param("DQN", marks=pytest.mark.slow)])
def two_runs(request, tmp_path_factory):
    """Two runs of 192 steps, of which one was evaluated every 60 steps; not to be written to."""
    folder = tmp_path_factory.mktemp("evaluations")
    runs = TwoRuns(folder / "without", folder / "with")
    train_cartpole(request.param, steps=192, out=runs.without_evaluations)
    train_cartpole(
        request.param,
        steps=192,
        out=runs.with_evaluations,
        options="--eval-every 60 --eval-episodes 2",
    )
    return runs


def test_evaluations_leave_the_weights_unchanged(two_runs):
    assert_equal_weights(two_runs.with_evaluations, two_runs.without_evaluations)


def test_evaluations_leave_the_other_metrics_unchanged(two_runs):
    def read_reproducible_metrics(folder):
        rows = []
        for row in read_metrics(folder):
            for name in ("time/fps", "time/time_elapsed", "evaluation"):
                row.pop(name, None)
            rows.append(row)
        return rows

    metrics = read_reproducible_metrics(two_runs.with_evaluations)

    assert metrics == read_reproducible_metrics(two_runs.without_evaluations)


def test_evaluations_are_reported_and_save_the_best_policy(two_runs):
    folder = two_runs.with_evaluations

    evaluations = [row["evaluation"] for row in read_metrics(folder) if "evaluation" in row]

    # The run has 192 steps, and is evaluated every 60 steps.
    assert 2 <= len(evaluations) <= 3
    names = evaluations[0].keys()
    assert names == {"return_mean", "return_std", "sampled_return_mean", "episodes"}
    assert (folder / "best" / "policy.json").is_file()


@pytest.mark.parametrize("algo", ["PPO", pytest.param("DQN", marks=pytest.mark.slow)])
def test_evaluation_ends_a_run_that_reached_its_return(algo, tmp_path):
    # Every episode of CartPole returns at least 1.
    options = "--eval-every 60 --eval-episodes 1 --stop-at 1"
    result = train_cartpole(algo, steps=1000, out=tmp_path, options=options)

    steps = steps_of_checkpoints(tmp_path)[-1]
    assert f"ended after {steps:,} steps: the mean return of an evaluation is" in result.output
    assert read_metrics(tmp_path)[-1]["timesteps_total"] <= steps < 300
    assert read_record(tmp_path)["status"] == "finished"


@pytest.mark.slow  # each of the processes imports PyTorch
@pytest.mark.parametrize("envs", [1, 2])
def test_environments_in_processes_take_the_same_steps(envs, tmp_path):
    train_cartpole("PPO", steps=64, out=tmp_path / "sync", envs=envs)
    train_cartpole("PPO", steps=64, out=tmp_path / "async", envs=envs, options="--vector async")

    assert_equal_weights(tmp_path / "async", tmp_path / "sync")
