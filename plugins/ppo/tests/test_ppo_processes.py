"""Environments in processes: their experience, their errors, and the end of the processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog.errors import EnvironmentFaultError, NotServedError, WorkerError
from rlcatalog_ppo import PG, PPO
from rlcatalog_ppo.workers import Workers
from rlcatalog_runs.seeds import SeedStream, derive_seed

SMALL = {
    "num_envs": 2,
    "rollout_length": 20,
    "minibatch_size": 20,
    "num_epochs": 1,
    "seed": 3,
    "model": {"fcnet_hiddens": [8]},
}


class RandomWalk(gym.Env):
    """A random walk that terminates far from 0, is truncated after 9 steps, and overwrites its
    observations.

    Args:
        config: `failing_seed`: the environment with this seed raises an error in its second step.
            `killed_at_step`: its process is killed in this step of an episode.
    """

    observation_space = spaces.Dict({"x": spaces.Box(-9, 9, (2,)), "side": spaces.Discrete(3)})
    action_space = spaces.Discrete(2)

    def __init__(self, config=None):
        self.config = config or {}
        self.obs = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.obs[:] = self.np_random.normal(size=2)
        return {"x": self.obs, "side": 1}, {}

    def step(self, action):
        self.t += 1
        if self.t == 2 and self.np_random_seed == self.config.get("failing_seed"):
            raise UnpicklableError("the wheel came off, 100%d")
        if self.t == self.config.get("killed_at_step"):
            os.kill(os.getpid(), signal.SIGKILL)
        self.obs += self.np_random.normal(size=2) * 0.3 * (2 * action - 1)
        terminated = bool(np.abs(self.obs).max() > 2)
        truncated = self.t == 9
        obs = {"x": self.obs, "side": int(self.t % 3)}
        return obs, float(self.obs[0]), terminated, truncated, {}


class UnpicklableError(Exception):
    """Has a lock, which cannot be sent to another process."""

    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


class RandomWalkOfAnySize(RandomWalk):
    """Has observations of variable size, which do not fit into shared memory."""

    observation_space = spaces.Dict(
        {"x": spaces.Box(-9, 9, (2,)), "side": spaces.Sequence(spaces.Discrete(3))}
    )

    def reset(self, **arguments):
        obs, info = super().reset(**arguments)
        return {**obs, "side": (1,)}, info

    def step(self, action):
        obs, *rest = super().step(action)
        return {**obs, "side": (1,) * (self.t % 3)}, *rest


def running_processes():
    return [process.name for process in multiprocessing.active_children()]


# --- training -------------------------------------------------------------------------------------


def collect_and_train(env, config):
    """Return a rollout, and what was learned from it and from another one."""
    algo = PPO(env, config)
    assert isinstance(algo._envs, Workers) == (config["vector"] == "async")
    rollout = algo._collector.collect(20)
    algo._learner.update(algo._batch(rollout), 1e-2)
    info = algo.train()["info"]
    algo.stop()
    return SimpleNamespace(
        rollout=rollout,
        info=info,
        episodes=algo._collector.episodes,
        weights=algo.policy.model.get_weights(),
    )


@pytest.mark.parametrize(
    ("env", "model_keys"),
    [(RandomWalk, {}), (RandomWalkOfAnySize, {"sequence_max_len": 2})],
    ids=["shared-memory", "variable-size"],
)
def test_processes_give_the_experience_of_one_process(env, model_keys):
    config = {**SMALL, "model": {**SMALL["model"], **model_keys}}

    expected = collect_and_train(env, {**config, "vector": "sync"})
    actual = collect_and_train(env, {**config, "vector": "async"})

    for name in ("obs", "raw_action", "logp", "value", "reward", "done", "bootstrap", "last_value"):
        column = getattr(actual.rollout, name)
        np.testing.assert_array_equal(column, getattr(expected.rollout, name), err_msg=name)
    assert actual.rollout.bootstrap.any()  # episodes were truncated
    assert actual.info == expected.info
    assert actual.episodes == expected.episodes
    for name, weight in actual.weights.items():
        np.testing.assert_array_equal(weight, expected.weights[name], err_msg=name)
    assert running_processes() == []


def test_run_in_processes_resumes_from_a_checkpoint(tmp_path):
    config = {**SMALL, "vector": "async", "reward_scale": True}
    uninterrupted = PPO(RandomWalk, config)
    uninterrupted.train()
    uninterrupted.save_checkpoint(tmp_path / "checkpoint")
    info = uninterrupted.train()["info"]
    uninterrupted.stop()

    resumed = PPO.restore(tmp_path / "checkpoint", RandomWalk)

    assert resumed.new_episode_reasons == {}  # all environments continue their episodes
    assert resumed.train()["info"] == info
    resumed.stop()


def test_environment_error_names_environment_and_step():
    # An environment with this seed raises an error in its second step.
    seed_of_second_env = derive_seed(SMALL["seed"], SeedStream.ENVIRONMENTS, 1)
    env_config = {"failing_seed": seed_of_second_env}
    algo = PPO(RandomWalk, {**SMALL, "vector": "async", "env_config": env_config})

    with pytest.raises(EnvironmentFaultError, match="the wheel came off") as caught:
        algo.train()

    message = str(caught.value)
    assert message.startswith("environment 1 of 2: step 2 of its episode raised UnpicklableError")
    # The text of the error is not used as a format, in spite of its %d.
    assert "the wheel came off, 100%d (" in message
    assert ", in step)" in message
    algo.stop()
    assert running_processes() == []


def test_error_of_a_killed_process_names_its_signal():
    env_config = {"killed_at_step": 4}
    algo = PPO(RandomWalk, {**SMALL, "vector": "async", "env_config": env_config})

    with pytest.raises(WorkerError, match="environment processes ended: environment") as caught:
        algo.train()

    assert "(killed by SIGKILL)" in str(caught.value)
    assert running_processes() == []  # the other one has ended too
    algo.stop()


class LeavesFileWhenClosed(RandomWalk):
    """Writes a file named after its process to `config["folder"]` when it is closed."""

    def close(self):
        self.config["folder"].joinpath(f"closed-{os.getpid()}").touch()


def test_processes_close_their_environments(tmp_path):
    env_config = {"folder": tmp_path}
    algo = PPO(LeavesFileWhenClosed, {**SMALL, "vector": "async", "env_config": env_config})
    files_of_processes = {f"closed-{process.pid}" for process in algo._envs.processes}

    algo.stop()

    # This process has closed one too, which it made to read its spaces.
    files = {path.name for path in tmp_path.iterdir()}
    assert files >= files_of_processes


def test_refused_model_leaves_no_process():
    import torch  # not above, because each process imports this file

    from rlcatalog_torch import TorchModelV2

    class WithoutValue(TorchModelV2, torch.nn.Module):
        def __init__(self, *args):
            TorchModelV2.__init__(self, *args)
            torch.nn.Module.__init__(self)
            self.logits = torch.nn.Linear(5, self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            return self.logits(input_dict["obs_flat"]), state

    # `caught` keeps the algorithm alive until the end of the test, so the processes were stopped,
    # and did not end because the algorithm was deleted.
    with pytest.raises(NotServedError, match="needs a value estimate") as caught:
        PPO(RandomWalk, {**SMALL, "vector": "async", "model": {"custom_model": WithoutValue}})

    assert running_processes() == [], caught


def test_processes_know_an_id_registered_in_the_script():
    config = {"num_envs": 2, "rollout_length": 3, "seed": 3, "model": {"fcnet_hiddens": [8]}}
    gym.register("OnlyHere-v0", lambda **env_config: RandomWalk(env_config))
    try:
        algo = PG("OnlyHere-v0", {**config, "vector": "async"})
    finally:
        gym.registry.pop("OnlyHere-v0")

    assert algo.train()["timesteps_total"] == 6  # 3 steps in 2 environments
    algo.stop()


# --- the end of a program -------------------------------------------------------------------------

SCRIPT = """
import signal, time
import gymnasium
from rlcatalog_ppo.workers import Workers

if __name__ == "__main__":
    # A shell starts background processes with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # As PPO makes them, without importing PyTorch.
    envs = Workers([lambda: gymnasium.make("CartPole-v1")] * 2)
    envs.reset(seed=0)
    print(*(process.pid for process in envs.processes), flush=True)
    try:
        while True:
            envs.step(envs.action_space.sample())
    except KeyboardInterrupt:
        time.sleep(0.5)
        print(all(process.is_alive() for process in envs.processes), flush=True)
        time.sleep(60)
"""


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        state = file.read().rpartition(")")[2].split()[0]
    is_zombie = state == "Z"
    return not is_zombie


@pytest.fixture
def program(tmp_path):
    """A program with two environment processes, and the numbers of these."""
    (tmp_path / "script.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert len(workers) == 2
    time.sleep(0.2)
    yield process, workers
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks processes up under /proc")
def test_ctrl_c_leaves_the_environment_processes_to_the_program(program):
    """A terminal sends Ctrl-C to the whole group, but the program may still need its processes."""
    process, workers = program

    os.killpg(process.pid, signal.SIGINT)

    assert process.stdout.readline() == "True\n"  # the program says that they are alive
    assert all(is_running(pid) for pid in workers)


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks processes up under /proc")
def test_environment_processes_end_with_a_killed_program(program):
    process, workers = program

    process.kill()  # as the system does when memory runs out: the program closes nothing
    process.wait()

    deadline = time.monotonic() + 20
    while any(is_running(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_running(pid) for pid in workers)
