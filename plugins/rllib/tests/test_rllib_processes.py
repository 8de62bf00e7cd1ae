"""Processes that Ray starts: the order of imports in them, and runners whose processes die."""

import os
import signal
import sys
import time
from types import SimpleNamespace
from typing import NamedTuple

import gymnasium as gym
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
from ray import tune
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env
from torch import nn

import rlcatalog_rllib
from rlcatalog.errors import SavedPolicyError, WorkerError
from rlcatalog_rllib import worker_deaths
from rlcatalog_rllib.env_runner import CatalogEnvRunner, check_runners
from rlcatalog_rllib.worker_deaths import LIMIT, forget_starts, record_start


@pytest.fixture(autouse=True)
def pickle_this_file(request):
    """Have Ray pickle what this file defines, because workers cannot import it."""
    if "local_ray" not in request.fixturenames:
        yield
        return
    pickler = request.getfixturevalue("local_ray").cloudpickle
    pickler.register_pickle_by_value(sys.modules[__name__])
    yield
    pickler.unregister_pickle_by_value(sys.modules[__name__])


def configure_ppo(env="CartPole-v1", *, num_runners=0, model=None):
    """Configure PPO with iterations of 24 steps; seeded, because Ray's seeding imports triton."""
    config = PPOConfig().debugging(seed=0, log_level="CRITICAL")
    config.reporting(min_time_s_per_iteration=0)
    config.env_runners(
        num_env_runners=num_runners, num_envs_per_env_runner=1, rollout_fragment_length=12
    )
    config.training(train_batch_size_per_learner=24, minibatch_size=12, num_epochs=1)
    return rlcatalog_rllib.configure(config, env, model=model or {"fcnet_hiddens": [8]})


# --- triton before TensorFlow ---------------------------------------------------------------------


@pytest.mark.slow  # test_rllib_algorithms.py trains a learner in a process
# Gymnasium's, about spaces that Ray makes.
@pytest.mark.filterwarnings("ignore:.*WARN:UserWarning")
def test_trial_of_ray_tune_trains(local_ray, tmp_path):
    # A trial's process imports RLlib, and so TensorFlow, before rlcatalog, which must not import
    # triton later.
    settings = tune.RunConfig(stop={"training_iteration": 2}, storage_path=str(tmp_path), verbose=0)

    (trial,) = tune.Tuner("PPO", param_space=configure_ppo(), run_config=settings).fit()

    assert trial.error is None
    assert trial.metrics["num_env_steps_sampled_lifetime"] == 48  # two iterations of 24 steps


#: Notes whether triton is imported already, and cannot be imported itself.
FAKE_TENSORFLOW = """
import sys
sys.triton_came_first = [*getattr(sys, "triton_came_first", []), "triton" in sys.modules]
raise ImportError
"""


@pytest.fixture
def fake_packages(tmp_path):
    """A folder with an empty triton, a TensorFlow that notes whether triton is imported, and no
    PyTorch, without which RLlib is imported sooner.
    """
    (tmp_path / "triton.py").write_text("")
    (tmp_path / "tensorflow.py").write_text(FAKE_TENSORFLOW)
    (tmp_path / "torch.py").write_text("raise ImportError\n")
    return tmp_path


@pytest.mark.slow  # starts a worker process
def test_setup_hook_imports_triton_before_rllib(local_ray, fake_packages):
    from ray._private.ray_constants import WORKER_PROCESS_SETUP_HOOK_ENV_VAR

    def import_rllib():
        import ray.rllib  # noqa: F401

        # RLlib imports TensorFlow. The fake one notes here whether triton was imported before it.
        return sys.triton_came_first

    # Ray's hook for all processes of a job, here for those of one task.
    env_vars = {
        WORKER_PROCESS_SETUP_HOOK_ENV_VAR: "rlcatalog_rllib.prepare_worker",
        "PYTHONPATH": str(fake_packages),
    }
    task = local_ray.remote(import_rllib).options(runtime_env={"env_vars": env_vars})

    triton_came_first = local_ray.get(task.remote())

    # A note for each time that TensorFlow is imported.
    assert set(triton_came_first) == {True}


# --- processes that keep dying --------------------------------------------------------------------


@pytest.fixture
def store(monkeypatch, tmp_path):
    """A dict in place of Ray's store, as if this were an actor's process with a log.

    Returns:
        The log's path.
    """
    values = {}
    log = tmp_path / "worker.err"
    monkeypatch.setattr(worker_deaths, "_record_key", lambda: b"key")
    monkeypatch.setattr(worker_deaths, "error_log", lambda: str(log))
    monkeypatch.setattr(worker_deaths, "get_value", values.get)
    monkeypatch.setattr(worker_deaths, "put_value", values.__setitem__)
    monkeypatch.setattr(worker_deaths, "delete_value", values.pop)
    return log


def test_start_after_deaths_is_an_error_with_the_last_cause(store):
    store.write_text("*** SIGSEGV received at time=1 ***\n")

    starts = [record_start() for _ in range(LIMIT + 1)]

    assert starts[:LIMIT] == [None] * LIMIT
    assert isinstance(starts[LIMIT], WorkerError)
    assert "Cause of the last death: SIGSEGV" in str(starts[LIMIT])
    assert str(store) in str(starts[LIMIT])


def test_start_after_collecting_data_is_the_first_again(store):
    for _ in range(2 * LIMIT):
        assert record_start() is None
        forget_starts()


class DyingActor:
    """An actor that records its starts as a runner does, and dies until it gets an error.

    Args:
        way: How it dies: "SIGSEGV" or "exit".
    """

    def __init__(self, way):
        # RLlib would import TensorFlow, which takes seconds.
        os.environ["RLLIB_TEST_NO_TF_IMPORT"] = "1"
        from rlcatalog_rllib import worker_deaths

        self.worker_deaths = worker_deaths
        self.error = worker_deaths.record_start()
        if self.error is not None:
            return
        if way == "SIGSEGV":
            os.kill(os.getpid(), signal.SIGSEGV)
        os._exit(1)

    def collect_and_start_again(self):
        self.worker_deaths.forget_starts()
        return self.worker_deaths.record_start()

    def get_error(self):
        return self.error


def assert_tells_of_deaths(error, cause):
    assert isinstance(error, WorkerError)
    message = str(error)
    assert f"died {LIMIT} times in a row before it collected any data" in message
    assert f"Cause of the last death: {cause}" in message
    # "The log, on MACHINE (...): PATH. Fix the cause."
    log = message.partition("): ")[2].partition(". Fix")[0]
    assert os.path.isfile(log), error


class Deaths(NamedTuple):
    """What an actor got whose process died several times."""

    error: WorkerError | None
    cause: str
    #: Errors at starts after the actor had collected data.
    later_errors: list[WorkerError | None]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("SIGSEGV", "SIGSEGV"), id="SIGSEGV"),
        pytest.param(("exit", "none in the log, as after SIGKILL"), id="exit"),
    ],
)
def deaths(request, local_ray):
    """Repeated deaths of an actor's process."""
    way, cause = request.param
    local_ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    actor = local_ray.remote(max_restarts=10, num_cpus=0)(DyingActor).remote(way)
    error = local_ray.get(actor.get_error.remote(), timeout=100)
    starts = [actor.collect_and_start_again.remote() for _ in range(2 * LIMIT)]
    later_errors = local_ray.get(starts)
    local_ray.kill(actor)
    local_ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    return Deaths(error, cause, later_errors)


@pytest.mark.slow  # Ray starts a process several times
def test_repeated_deaths_are_an_error_with_cause_and_log(deaths):
    assert_tells_of_deaths(deaths.error, deaths.cause)


@pytest.mark.slow
def test_deaths_are_not_counted_after_collecting_data(deaths):
    assert deaths.later_errors == [None] * (2 * LIMIT)


class DeadlyEnv(gym.Wrapper):
    """CartPole that kills a worker's process, when it is built or when it is stepped."""

    def __init__(self, is_in_worker, moment):
        super().__init__(gym.make("CartPole-v1"))
        self.kills_at_step = is_in_worker and moment == "step"
        if is_in_worker and moment == "build":
            os.kill(os.getpid(), signal.SIGSEGV)

    def step(self, action):
        if self.kills_at_step:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().step(action)


def train(config, seconds):
    """Train in a loop, as a user's program does."""
    deadline = time.monotonic() + seconds
    algorithm = config.build_algo()
    try:
        while time.monotonic() < deadline:
            algorithm.train()
            time.sleep(0.2)
    finally:
        algorithm.stop()


@pytest.mark.slow  # starts several worker processes
@pytest.mark.parametrize("moment", ["build", "step"])
def test_run_whose_runners_keep_dying_ends_with_the_cause(local_ray, moment):
    def make_env(config):
        # Ray's workers are numbered from 1, and this process is 0.
        is_in_worker = getattr(config, "worker_index", 0) > 0
        return DeadlyEnv(is_in_worker, moment)  # kills a worker at this moment

    register_env(f"deadly-{moment}", make_env)
    config = configure_ppo(f"deadly-{moment}", num_runners=1)

    with pytest.raises(WorkerError) as caught:
        train(config, seconds=500)

    assert_tells_of_deaths(caught.value, "SIGSEGV")


#: This process, also in what Ray pickles of this file.
DRIVER = os.getpid()


class NarrowInWorkers(nn.Module):
    """A module that is built with fewer weights in Ray's workers than in this process."""

    def __init__(self, space):
        super().__init__()
        width = 8 if os.getpid() == DRIVER else 7
        self.layer = nn.Linear(space.shape[0], width)

    def forward(self, obs):
        return self.layer(obs)


@pytest.mark.slow  # starts a worker process
def test_run_whose_runners_refuse_the_weights_ends(local_ray):
    config = configure_ppo(num_runners=1, model=NarrowInWorkers)

    with pytest.raises(SavedPolicyError, match="belong to a different model"):
        train(config, seconds=500)


# --- the check of runners -------------------------------------------------------------------------


class GroupWithFailure:
    """Stands for Ray's group of runners: one that works, and one with an error."""

    def foreach_env_runner(self, function, **_):
        runners = [make_runner(failure=None), make_runner(failure=WorkerError("SIGSEGV"))]
        return [function(runner) for runner in runners]


def make_runner(failure):
    """Return a runner without environments that reports this failure."""
    runner = object.__new__(CatalogEnvRunner)
    runner._failure = failure
    return runner


def make_algorithm(env_runner_group, eval_env_runner_group):
    """Return an object with the attributes of an algorithm that the check reads."""
    return SimpleNamespace(
        env_runner_group=env_runner_group,
        eval_env_runner_group=eval_env_runner_group,
        config=SimpleNamespace(env_runner_health_probe_timeout_s=1),
    )


def test_check_passes_without_runners():
    check_runners(algorithm=make_algorithm(None, None))


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param((GroupWithFailure(), None), id="training"),
        pytest.param((None, GroupWithFailure()), id="evaluation"),
    ],
)
def test_check_raises_the_error_of_a_runner(groups):
    with pytest.raises(WorkerError, match=r"^SIGSEGV$"):
        check_runners(algorithm=make_algorithm(*groups), metrics_logger=None)


@pytest.mark.parametrize("times", [1, 2], ids=["configured once", "configured twice"])
def test_check_is_added_once_after_callbacks_of_a_user(times):
    def callback(**_):
        """A user's callback."""

    config = PPOConfig().callbacks(on_algorithm_init=callback, on_env_runners_recreated=[callback])

    for _ in range(times):
        rlcatalog_rllib.configure(config, "CartPole-v1")

    assert config.callbacks_on_algorithm_init == [callback, check_runners]
    assert config.callbacks_on_env_runners_recreated == [callback, check_runners]
