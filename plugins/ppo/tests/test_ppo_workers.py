"""`Workers`, without processes: their creation, answers and errors, and how they close."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from faulty_functions import function_that_raises
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState

from rlcatalog.errors import ConfigError, EnvironmentFaultError, WorkerError
from rlcatalog_ppo.env_state import Resumable
from rlcatalog_ppo.workers import Workers

# --- creation -------------------------------------------------------------------------------------


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
    assert options["shared_memory"] is True
    assert options["copy"] is False  # observations are read in the shared memory
    assert options["autoreset_mode"] is AutoresetMode.SAME_STEP


def test_workers_are_started_by_a_server_where_there_is_one(gymnasium_class):
    Workers([make_two_states])

    [(_, options)] = gymnasium_class.created
    if "forkserver" in multiprocessing.get_all_start_methods():
        assert options["context"] == "forkserver"
    else:
        assert options["context"] == "spawn"


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
    killed = FakeProcess(exitcode=-9, ends=True)  # by the signal 9, SIGKILL
    exited = FakeProcess(exitcode=3, ends=True)
    gymnasium_class.processes = [alive, killed, exited]
    gymnasium_class.errors = [error]

    with pytest.raises(WorkerError, match=r"environment 1 \(killed by SIGKILL\)"):
        Workers([make_two_states] * 3)

    assert gymnasium_class.closed == [TERMINATED]
    assert exited.joins == 0  # the first one that has ended is enough


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


# --- inside a process -----------------------------------------------------------------------------


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


# --- answers --------------------------------------------------------------------------------------


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
    monkeypatch.setattr(AsyncVectorEnv, method, function_that_raises(error))


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
        ([None, -15, None], r"environment 1 \(killed by SIGTERM\)"),
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
        workers.call("resume_state")


# --- closing --------------------------------------------------------------------------------------


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
        attempts.append("terminate" if terminate else "ask")
        if not terminate:
            raise error

    monkeypatch.setattr(AsyncVectorEnv, "close_extras", close_extras)

    workers.close_extras(timeout=5)

    assert attempts == ["ask", "terminate"]
