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
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState

from rlcatalog.errors import ConfigError, EnvironmentFaultError, NotServedError, WorkerError
from rlcatalog_ppo import PG, PPO
from rlcatalog_ppo.env_state import Resumable
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
    result = collect_and_train(env, {**config, "vector": "async"})

    assert expected.rollout.done.any()
    assert expected.rollout.bootstrap.any()  # of truncated episodes
    for name in ("obs", "raw_action", "logp", "value", "reward", "done", "bootstrap", "last_value"):
        column = getattr(result.rollout, name)
        np.testing.assert_array_equal(column, getattr(expected.rollout, name), err_msg=name)
    assert result.info == expected.info
    assert result.episodes == expected.episodes
    for name, array in expected.weights.items():
        np.testing.assert_array_equal(result.weights[name], array, err_msg=name)
    assert running_processes() == []


def test_run_in_processes_resumes_from_a_checkpoint(tmp_path):
    config = {**SMALL, "vector": "async", "reward_scale": True}
    uninterrupted = PPO(RandomWalk, config)
    uninterrupted.train()
    uninterrupted.save_checkpoint(tmp_path / "checkpoint")
    info = uninterrupted.train()["info"]
    uninterrupted.stop()

    resumed = PPO.restore(tmp_path / "checkpoint", RandomWalk)

    assert resumed.begun_anew == {}
    assert resumed.train()["info"] == info
    resumed.stop()


def test_environment_error_names_environment_and_step():
    seed_of_second_env = derive_seed(SMALL["seed"], SeedStream.ENVIRONMENTS, 1)
    env_config = {"failing_seed": seed_of_second_env}
    algo = PPO(RandomWalk, {**SMALL, "vector": "async", "env_config": env_config})

    with pytest.raises(EnvironmentFaultError, match="the wheel came off") as caught:
        algo.train()

    message = str(caught.value)
    assert message.startswith(
        "environment 1 of 2: step 2 of its episode raised UnpicklableError: the wheel came off,"
        " 100%d ("
    )
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

    # The error refers to the algorithm, which is not deleted while `caught` exists.
    with pytest.raises(NotServedError, match="needs a value estimate") as caught:
        PPO(RandomWalk, {**SMALL, "vector": "async", "model": {"custom_model": WithoutValue}})

    assert running_processes() == [], caught


def test_unpicklable_environment_function_is_an_error():
    lock = threading.Lock()

    def make_env():
        return RandomWalk({"lock": lock})

    with pytest.raises(ConfigError, match=r"vector='async': the function") as caught:
        PPO(make_env, {**SMALL, "vector": "async"})

    assert " cannot be sent " in str(caught.value)
    assert "TypeError" in str(caught.value)


def test_unknown_vector_is_an_error():
    with pytest.raises(ConfigError, match="'vector'"):
        PPO(RandomWalk, {**SMALL, "vector": "threads"})


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


# --- Workers without processes: creation ----------------------------------------------------------


class FakeProcess:
    """A process that ends when it is waited for, if it ends at all."""

    def __init__(self, exitcode=None, *, ends=False):
        self.exitcode = exitcode
        self.ends = ends
        self.joins = 0

    def join(self, timeout=None):
        self.joins += 1

    def is_alive(self):
        has_ended = self.ends and self.joins > 0
        return not has_ended


@pytest.fixture
def gymnasium_class(monkeypatch):
    """Replace the creation and closing of `AsyncVectorEnv`, so that there are no processes.

    Returns:
        `created` and `closed` are the arguments of the calls. A test may set `errors`, which the
        creations raise in turn, and `processes`, which the creations start.
    """
    fake = SimpleNamespace(created=[], closed=[], errors=[], processes=[])
    instances = []

    def create(envs, makers, **options):
        instances.append(envs)
        envs.closed = False
        envs.viewer = None
        fake.created.append((makers, options))
        if fake.processes:
            envs.processes = fake.processes
        if fake.errors:
            raise fake.errors.pop(0)

    def close_extras(envs, timeout=None, terminate=False):
        fake.closed.append({"timeout": timeout, "terminate": terminate})

    monkeypatch.setattr(AsyncVectorEnv, "__init__", create)
    monkeypatch.setattr(AsyncVectorEnv, "close_extras", close_extras)
    yield fake
    for envs in instances:
        envs.closed = True  # there is nothing to close when it is deleted


#: How `close_extras` of Gymnasium ends all processes.
TERMINATED = {"timeout": None, "terminate": True}


class TwoStates(gym.Env):
    """Observes 2.5 after a reset and 2.75 after a step; `failing` names a method that fails."""

    observation_space = spaces.Box(2, 3, (2,), np.float32)
    action_space = spaces.Discrete(2)
    failing = None

    def reset(self, *, seed=None, options=None):
        if TwoStates.failing == "reset":
            raise RuntimeError("the wheel came off")
        return np.full(2, 2.5, np.float32), {}

    def step(self, action):
        if TwoStates.failing == "step":
            raise RuntimeError("the wheel came off")
        return np.full(2, 2.75, np.float32), 1.5, False, True, {}


def make_two_states():
    return Resumable(TwoStates())


def test_workers_share_memory(gymnasium_class):
    Workers([make_two_states, make_two_states])

    [(makers, options)] = gymnasium_class.created
    assert len(makers) == 2
    has_forkserver = "forkserver" in multiprocessing.get_all_start_methods()
    assert options == {
        "copy": False,
        "context": "forkserver" if has_forkserver else "spawn",
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "shared_memory": True,
    }


@pytest.mark.parametrize("error", [TypeError("a space"), ValueError("a space")])
def test_workers_of_unknown_spaces_share_no_memory(gymnasium_class, error):
    gymnasium_class.errors = [error]

    Workers([make_two_states])

    attempts = [options["shared_memory"] for _, options in gymnasium_class.created]
    assert attempts == [True, False]


def test_workers_start_no_process_for_unpicklable_functions(gymnasium_class):
    lock = threading.Lock()

    with pytest.raises(ConfigError, match="function that creates environments") as caught:
        Workers([make_two_states, lambda: TwoStates(lock)])

    assert "vector='async': the function" in str(caught.value)
    assert " cannot be sent" in str(caught.value)
    assert gymnasium_class.created == []


@pytest.mark.parametrize("error", [EOFError(), BrokenPipeError()])
def test_process_that_ends_at_its_start_is_named(gymnasium_class, error):
    alive = FakeProcess()
    killed = FakeProcess(-9, ends=True)
    exited = FakeProcess(3, ends=True)
    gymnasium_class.errors = [error]
    gymnasium_class.processes = [alive, killed, exited]

    with pytest.raises(WorkerError, match=r"ended: environment 1 \(killed by SIGKILL\)\. See"):
        Workers([make_two_states] * 3)

    assert gymnasium_class.closed == [TERMINATED]
    # The first one that has ended is enough, so the third is not waited for.
    assert alive.joins == 1
    assert killed.joins == 1
    assert exited.joins == 0


def test_other_error_at_the_start_ends_the_processes(gymnasium_class):
    gymnasium_class.errors = [RuntimeError("no paint")]
    gymnasium_class.processes = [FakeProcess()]

    with pytest.raises(RuntimeError, match=r"^no paint$"):
        Workers([make_two_states])

    assert gymnasium_class.closed == [TERMINATED]


@pytest.mark.parametrize("error", [RuntimeError("no paint"), EOFError("no paint")])
def test_error_before_any_process_starts_is_raised_as_it_is(gymnasium_class, error):
    gymnasium_class.errors = [error]

    with pytest.raises(type(error), match=r"^no paint$"):
        Workers([make_two_states])

    assert gymnasium_class.closed == []


# --- Workers without processes: inside a process --------------------------------------------------


@pytest.fixture
def make_in_parent(gymnasium_class):
    """Return the function that `Workers` passes to Gymnasium; Gymnasium calls it in each process,
    and in this one to read the spaces.
    """
    Workers([make_two_states])
    [maker] = gymnasium_class.created[-1][0]
    yield maker
    TwoStates.failing = None


@pytest.fixture
def signal_calls(monkeypatch):
    calls = []
    monkeypatch.setattr(signal, "signal", lambda *arguments: calls.append(arguments))
    return calls


@pytest.fixture
def make_in_worker(make_in_parent, signal_calls, monkeypatch):
    """Return the same function, in what looks like another process."""
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    return make_in_parent


def test_parent_makes_the_environment_as_it_is(make_in_parent, signal_calls):
    env = make_in_parent()

    assert type(env) is Resumable
    assert signal_calls == []


def test_worker_ignores_ctrl_c(make_in_worker, signal_calls):
    make_in_worker()

    assert signal_calls == [(signal.SIGINT, signal.SIG_IGN)]


def test_worker_passes_on_what_its_environment_returns(make_in_worker):
    env = make_in_worker()
    assert type(env.env) is Resumable

    obs, _ = env.reset(seed=1)
    assert obs.tolist() == [2.5, 2.5]

    obs, *rest = env.step(0)
    assert obs.tolist() == [2.75, 2.75]
    assert rest == [1.5, False, True, {}]


def test_worker_reports_an_error_of_reset_in_the_info(make_in_worker):
    env = make_in_worker()
    TwoStates.failing = "reset"

    obs, info = env.reset()

    assert obs in TwoStates.observation_space  # a placeholder
    [report] = info.values()
    assert report.startswith("environment 0 of 1: reset raised RuntimeError: the wheel came off (")
    assert "Traceback" in report
    assert report.endswith("RuntimeError: the wheel came off")


def test_worker_reports_an_error_of_step_in_the_info(make_in_worker):
    env = make_in_worker()
    env.reset()
    TwoStates.failing = "step"

    obs, _, terminated, truncated, info = env.step(0)

    assert obs.tolist() == [2.5, 2.5]  # the last observation, which the reset returned
    # At the end of an episode, Gymnasium would reset the environment that has failed.
    assert not terminated
    assert not truncated
    [report] = info.values()
    assert "step 1 of its episode raised RuntimeError" in report


def test_worker_reports_an_invalid_step_without_a_traceback(make_in_worker):
    env = make_in_worker()
    env.reset()
    env.env.env.step = lambda action: None

    *_, info = env.step(0)

    [report] = info.values()
    assert "returned None" in report
    assert "Traceback" not in report  # there is no exception


# --- Workers without processes: answers -----------------------------------------------------------


@pytest.fixture
def workers(gymnasium_class):
    """Three workers that wait for a call."""
    envs = Workers([make_two_states] * 3)
    envs.processes = [FakeProcess(), FakeProcess(), FakeProcess()]
    envs._state = AsyncState.DEFAULT
    return envs


def let_gymnasium_return(monkeypatch, method, answer):
    monkeypatch.setattr(AsyncVectorEnv, method, lambda *arguments, **options: answer)


def let_gymnasium_raise(monkeypatch, method, error):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(AsyncVectorEnv, method, fail)


def test_reset_passes_on_the_answer(workers, monkeypatch):
    let_gymnasium_return(monkeypatch, "reset", ("obs", {"other": 1}))

    assert workers.reset() == ("obs", {"other": 1})


def test_step_passes_on_the_answer(workers, monkeypatch):
    let_gymnasium_return(monkeypatch, "step", ("obs", 1, 2, 3, {"_other": 1}))

    assert workers.step(0) == ("obs", 1, 2, 3, {"_other": 1})


@pytest.mark.parametrize("answer", [(1, 2, 3), ("a", {"x": 1})], ids=["numbers", "dict-at-end"])
def test_call_passes_on_the_answer(answer, workers, monkeypatch):
    let_gymnasium_return(monkeypatch, "call", answer)

    assert workers.call("where") == answer


@pytest.mark.parametrize(
    ("has_report", "message"),
    [([True, True, True], "a"), ([False, True, True], "b"), ([False, False, True], "c")],
)
def test_first_reported_error_is_raised(has_report, message, workers, make_in_worker, monkeypatch):
    TwoStates.failing = "reset"
    _, info = make_in_worker().reset()
    [key] = info  # under which a worker reports errors
    # Gymnasium stacks infos, and marks under `_key` which environments have the key.
    infos = {key: np.array(["a", "b", "c"], object), f"_{key}": np.array(has_report)}
    let_gymnasium_return(monkeypatch, "reset", ("obs", infos))

    with pytest.raises(EnvironmentFaultError, match=f"^{message}$"):
        workers.reset(seed=1)


@pytest.mark.parametrize(
    ("exitcodes", "message"),
    [
        ([None, -15, None], r"environment 1 \(killed by SIGTERM\)\. See"),
        ([0, None, None], r"environment 0 \(exit code 0\)\. See"),
        ([None, None, 7], r"environment 2 \(exit code 7\)\. See"),
        ([None, None, None], r"processes ended: unknown which\. See"),
    ],
)
def test_processes_that_ended_are_named(workers, gymnasium_class, exitcodes, message, monkeypatch):
    workers.processes = [FakeProcess(code, ends=code is not None) for code in exitcodes]
    let_gymnasium_raise(monkeypatch, "step", EOFError())

    with pytest.raises(WorkerError, match=message):
        workers.step(None)

    assert gymnasium_class.closed == [TERMINATED]  # the others end too


def test_process_that_ended_without_an_exit_code_is_named(workers, monkeypatch):
    workers.processes = [FakeProcess(None, ends=True)]
    let_gymnasium_raise(monkeypatch, "call", OSError())

    with pytest.raises(WorkerError, match=r"environment 0 \(exit code None\)"):
        workers.call("where")


# --- Workers without processes: closing -----------------------------------------------------------


def test_idle_workers_close(workers, gymnasium_class):
    workers.close_extras(5)

    assert gymnasium_class.closed == [{"timeout": 5, "terminate": False}]
    assert workers._state is AsyncState.DEFAULT


def test_workers_end_at_once_if_asked(workers, gymnasium_class):
    workers.close_extras(5, terminate=True)

    assert gymnasium_class.closed == [TERMINATED]
    assert workers._state is AsyncState.DEFAULT


def test_workers_that_take_a_step_end_at_once(workers, gymnasium_class):
    workers._state = AsyncState.WAITING_STEP

    workers.close_extras(5)

    assert gymnasium_class.closed == [TERMINATED]
    assert workers._state is AsyncState.DEFAULT


def test_workers_without_a_state_end_at_once(workers, gymnasium_class):
    del workers._state  # Gymnasium sets it last

    workers.close_extras(5)

    assert gymnasium_class.closed == [TERMINATED]
    assert workers._state is AsyncState.DEFAULT


@pytest.mark.parametrize("count", [1, 3])
def test_workers_end_at_once_if_some_have_ended(count, workers, gymnasium_class):
    for process in workers.processes[:count]:
        process.ends = True
        process.join()  # a fake process ends when it is waited for

    workers.close_extras(5)

    assert gymnasium_class.closed == [TERMINATED]
    assert workers._state is AsyncState.DEFAULT


@pytest.mark.parametrize("error", [EOFError, BrokenPipeError])
def test_workers_that_do_not_answer_are_terminated(workers, error, monkeypatch):
    attempts = []

    def close_extras(envs, timeout=None, terminate=False):
        attempts.append({"terminate": terminate})
        if not terminate:
            raise error

    monkeypatch.setattr(AsyncVectorEnv, "close_extras", close_extras)

    workers.close_extras(5)

    assert attempts == [{"terminate": False}, {"terminate": True}]
