"""`Workers` without processes: how they begin, what they answer, and the error when a process has
ended.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState

from rlcatalog.errors import ConfigError, EnvironmentFaultError, WorkerError
from rlcatalog_ppo.env_state import Resumable
from rlcatalog_ppo.workers import Workers


class Process:
    """A process that ends once it was waited for, if it ends at all."""

    def __init__(self, exitcode=None, ends=False):
        self.exitcode, self.ends, self.waited = exitcode, ends, 0

    def join(self, timeout=None):
        self.waited += 1

    def is_alive(self):
        return not (self.ends and self.waited)


@pytest.fixture
def begun(monkeypatch):
    """Return how Gymnasium's class was created and closed; `begun.errors` are raised in turn by its
    creation.
    """
    calls, made = SimpleNamespace(created=[], closed=[], errors=[], processes=[]), []

    def create(envs, makers, **options):
        made.append(envs)
        envs.closed, envs.viewer = False, None
        calls.created.append((makers, options))
        if calls.processes:
            envs.processes = calls.processes
        if calls.errors and (error := calls.errors.pop(0)) is not None:
            raise error

    def close_extras(envs, timeout=None, terminate=False):
        calls.closed.append((timeout, terminate))

    monkeypatch.setattr(AsyncVectorEnv, "__init__", create)
    monkeypatch.setattr(AsyncVectorEnv, "close_extras", close_extras)
    yield calls
    for envs in made:
        envs.closed = True  # there is nothing to close when it is collected


def make():
    return Resumable(Walk())


class Walk(gym.Env):
    """Fails where `fails` says."""

    observation_space, action_space = spaces.Box(2, 3, (2,), np.float32), spaces.Discrete(2)
    fails = "nowhere"

    def reset(self, *, seed=None, options=None):
        if Walk.fails == "reset":
            raise RuntimeError("the wheel came off")
        return np.full(2, 2.5, np.float32), {}

    def step(self, action):
        if Walk.fails == "step":
            raise RuntimeError("the wheel came off")
        return np.full(2, 2.75, np.float32), 1.5, False, True, {}


# --- creation -------------------------------------------------------------------------------------


def test_environments_share_memory_where_their_spaces_allow_it(begun):
    Workers([make, make])
    [(makers, options)] = begun.created
    assert len(makers) == 2
    context = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    assert options == {
        "copy": False,
        "context": context,
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "shared_memory": True,
    }


@pytest.mark.parametrize("error", [TypeError("a space"), ValueError("a space")])
def test_other_spaces_are_sent(begun, error):
    begun.errors = [error]
    Workers([make])
    assert [options["shared_memory"] for _, options in begun.created] == [True, False]


def test_what_cannot_be_sent_is_refused_before_anything_begins(begun):
    lock = threading.Lock()
    with pytest.raises(
        ConfigError, match="vector='async': the function that creates environments cannot be sent"
    ):
        Workers([make, lambda: Walk(lock)])
    assert begun.created == []


@pytest.mark.parametrize("error", [EOFError(), BrokenPipeError()])
def test_environment_whose_process_ended_while_it_began_is_named(begun, error):
    begun.errors, begun.processes = (
        [error],
        [Process(), Process(-9, ends=True), Process(3, ends=True)],
    )
    with pytest.raises(WorkerError, match=r"ended: environment 1 \(killed by SIGKILL\)\. See"):
        Workers([make] * 3)
    assert begun.closed == [(None, True)]
    # The first that ended tells enough.
    assert [process.waited for process in begun.processes] == [1, 1, 0]


def test_another_error_ends_the_processes_and_stays_as_it_is(begun):
    begun.errors, begun.processes = [RuntimeError("no paint")], [Process()]
    with pytest.raises(RuntimeError, match=r"^no paint$"):
        Workers([make])
    assert begun.closed == [(None, True)]


@pytest.mark.parametrize("error", [RuntimeError("no paint"), EOFError("no paint")])
def test_error_before_there_are_processes_stays_as_it_is(begun, error):
    begun.errors = [error]
    with pytest.raises(type(error), match=r"^no paint$"):
        Workers([make])
    assert begun.closed == []


# --- inside a process -----------------------------------------------------------------------------


@pytest.fixture
def inside(begun, monkeypatch):
    """Return a function that makes an environment as a worker does."""
    Workers([make])
    [maker] = begun.created[-1][0]
    signals, parent = [], os.getpid()
    monkeypatch.setattr(signal, "signal", lambda *arguments: signals.append(arguments))

    def made(process):
        monkeypatch.setattr(os, "getpid", lambda: parent + process)
        return maker(), signals

    yield made
    Walk.fails = "nowhere"


def test_the_parent_reads_spaces_and_a_worker_leaves_the_interrupt_to_it(inside):
    plain, signals = inside(0)
    assert (type(plain), signals) == (Resumable, [])
    reports, signals = inside(1)
    assert (type(reports.env), signals) == (Resumable, [(signal.SIGINT, signal.SIG_IGN)])
    assert reports.reset(seed=1)[0].tolist() == [2.5, 2.5]
    obs, *rest = reports.step(0)
    assert (obs.tolist(), rest) == ([2.75, 2.75], [1.5, False, True, {}])


def test_worker_reports_faults_in_its_infos(inside):
    reports, _ = inside(1)
    Walk.fails = "reset"
    obs, info = reports.reset()
    assert obs in Walk.observation_space  # a placeholder
    [text] = info.values()
    assert text.startswith("environment 0 of 1: reset raised RuntimeError: the wheel came off (")
    assert "Traceback" in text
    assert text.endswith("RuntimeError: the wheel came off")
    Walk.fails = "nowhere"
    reports.reset()
    Walk.fails = "step"
    obs, _, *ends, info = reports.step(0)
    # An end would reset what has failed.
    assert (obs.tolist(), ends) == ([2.5, 2.5], [False, False])
    assert "step 1 of its episode raised RuntimeError" in next(iter(info.values()))
    Walk.fails = "nowhere"
    reports.env.env.step = lambda action: None
    [text] = reports.step(0)[-1].values()
    assert "returned None" in text
    assert "Traceback" not in text  # nothing was raised


# --- answers --------------------------------------------------------------------------------------


@pytest.fixture
def workers(begun):
    envs = Workers([make] * 3)
    envs.processes, envs._state = [Process(), Process(), Process()], AsyncState.DEFAULT
    return envs


def test_answers_are_passed_on(workers, monkeypatch):
    for name, arguments, answer in (
        ("reset", {}, ("obs", {"other": 1})),
        ("step", {"actions": 0}, ("obs", 1, 2, 3, {"_other": 1})),
        ("call", {"name": "where"}, (1, 2, 3)),
        ("call", {"name": "where"}, ("a", {"x": 1})),
    ):
        monkeypatch.setattr(AsyncVectorEnv, name, lambda *given, answer=answer, **named: answer)
        assert getattr(workers, name)(*arguments.values()) == answer


@pytest.mark.parametrize("first", [0, 1, 2])
def test_first_fault_is_raised(workers, inside, monkeypatch, first):
    reports, _ = inside(1)
    Walk.fails = "reset"
    [key] = reports.reset()[1]
    infos = {key: np.array(["a", "b", "c"], object), f"_{key}": np.arange(3) >= first}
    monkeypatch.setattr(AsyncVectorEnv, "reset", lambda *given, **named: ("obs", infos))
    with pytest.raises(EnvironmentFaultError, match=f"^{'abc'[first]}$"):
        workers.reset(seed=1)


@pytest.mark.parametrize(
    ("exitcodes", "said"),
    [
        ([None, -15, None], r"environment 1 \(killed by SIGTERM\)\. See"),
        ([0, None, None], r"environment 0 \(exit code 0\)\. See"),
        ([None, None, 7], r"environment 2 \(exit code 7\)\. See"),
        ([None, None, None], r"processes ended: unknown which\. See"),
    ],
)
def test_processes_that_ended_are_named_and_the_others_ended(
    workers, begun, exitcodes, said, monkeypatch
):
    workers.processes = [Process(code, ends=code is not None) for code in exitcodes]

    def broken(*given, **named):
        raise EOFError

    monkeypatch.setattr(AsyncVectorEnv, "step", broken)
    with pytest.raises(WorkerError, match=said):
        workers.step(None)
    assert begun.closed == [(None, True)]


def test_process_that_ended_without_a_code_is_named(workers, monkeypatch):
    workers.processes = [Process(None, ends=True)]
    monkeypatch.setattr(
        AsyncVectorEnv, "call", lambda *given, **named: (_ for _ in ()).throw(OSError())
    )
    with pytest.raises(WorkerError, match=r"environment 0 \(exit code None\)"):
        workers.call("where")


@pytest.mark.parametrize(
    ("terminate", "state", "ended", "expected"),
    [
        (False, AsyncState.DEFAULT, 0, [(5, False)]),
        (True, AsyncState.DEFAULT, 0, [(None, True)]),
        (False, AsyncState.WAITING_STEP, 0, [(None, True)]),
        (False, None, 0, [(None, True)]),
        (False, AsyncState.DEFAULT, 1, [(None, True)]),
        (False, AsyncState.DEFAULT, 3, [(None, True)]),
    ],
)
def test_waiting_processes_close_and_others_are_ended(
    workers, begun, terminate, state, ended, expected
):
    if state is None:
        del workers._state
    else:
        workers._state = state
    for process in workers.processes[:ended]:
        process.ends = process.waited = True
    workers.close_extras(5, terminate)
    assert begun.closed == expected
    assert workers._state is AsyncState.DEFAULT


@pytest.mark.parametrize("error", [EOFError, BrokenPipeError])
def test_processes_that_do_not_answer_are_ended(workers, begun, error, monkeypatch):
    ways = []

    def close_extras(envs, timeout=None, terminate=False):
        ways.append(terminate)
        if not terminate:
            raise error

    monkeypatch.setattr(AsyncVectorEnv, "close_extras", close_extras)
    workers.close_extras(5)
    assert ways == [False, True]
