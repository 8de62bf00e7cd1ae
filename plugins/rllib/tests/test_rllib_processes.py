"""Processes that Ray starts, with triton and TensorFlow installed: the order of imports, and those
that keep dying.
"""

import os
import signal
import sys
import time
from types import SimpleNamespace

import gymnasium as gym
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
from ray import tune
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env

import rlcatalog_rllib
from rlcatalog.errors import WorkerError
from rlcatalog_rllib.env_runner import check_runners
from rlcatalog_rllib.worker_deaths import LIMIT, forget_starts, record_start


@pytest.fixture(autouse=True)
def by_value(request):
    """Have Ray pickle what is defined here: workers do not find the folder of these tests."""
    if "local_ray" not in request.fixturenames:
        yield
        return
    pickler = request.getfixturevalue("local_ray").cloudpickle
    pickler.register_pickle_by_value(sys.modules[__name__])
    yield
    pickler.unregister_pickle_by_value(sys.modules[__name__])


def small(env="CartPole-v1", *, runners=0):
    """Return a configured PPO that trains on 24 steps an iteration; seeded, for Ray's seeding
    imports triton.
    """
    config = (
        PPOConfig().debugging(seed=0, log_level="CRITICAL").reporting(min_time_s_per_iteration=0)
    )
    config.env_runners(
        num_env_runners=runners, num_envs_per_env_runner=1, rollout_fragment_length=12
    )
    config.training(train_batch_size_per_learner=24, minibatch_size=12, num_epochs=1)
    return rlcatalog_rllib.configure(config, env, model={"fcnet_hiddens": [8]})


# --- triton before TensorFlow ---------------------------------------------------------------------


@pytest.mark.attack  # a learner of its own process trains in test_rllib_algorithms.py
# Gymnasium of what Ray makes of the spaces.
@pytest.mark.filterwarnings("ignore:.*WARN:UserWarning")
def test_a_trial_of_ray_tune_trains(local_ray, tmp_path):
    """Its process imports RLlib, and so TensorFlow, before anything of ours: triton is loaded
    apart.
    """
    settings = tune.RunConfig(stop={"training_iteration": 2}, storage_path=str(tmp_path), verbose=0)
    (trial,) = tune.Tuner("PPO", param_space=small(), run_config=settings).fit()
    assert trial.error is None
    assert trial.metrics["num_env_steps_sampled_lifetime"] == 48


@pytest.fixture
def impostors(tmp_path):
    """A folder with an empty triton, and a TensorFlow that notes whether triton was there, and is
    none.

    Nor is PyTorch one: RLlib is imported sooner without.
    """
    noting = (
        "import sys\nsys.asked = [*getattr(sys, 'asked', []), 'triton' in sys.modules]\nraise"
        " ImportError\n"
    )
    for name, text in {"triton": "", "tensorflow": noting, "torch": "raise ImportError\n"}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.mark.attack  # the order in real runners is seen in test_rllib_algorithms.py
def test_the_setup_hook_comes_before_rllib(local_ray, impostors):
    """As Ray's hook for a whole job, here set for one task alone; what its process imports first is
    RLlib.
    """
    from ray._private.ray_constants import WORKER_PROCESS_SETUP_HOOK_ENV_VAR

    def first():
        import ray.rllib  # noqa: F401

        return sys.asked

    hook = {
        WORKER_PROCESS_SETUP_HOOK_ENV_VAR: "rlcatalog_rllib.prepare_worker",
        "PYTHONPATH": str(impostors),
    }
    asked = local_ray.get(local_ray.remote(first).options(runtime_env={"env_vars": hook}).remote())
    assert set(asked) == {True}


# --- processes that keep dying --------------------------------------------------------------------


class Starts:
    """An actor that records its starts as a runner does, and dies in `die` of them."""

    def __init__(self, die, how):
        self.error = record_start()
        if self.error is None and die:
            if how == "SIGSEGV":
                os.kill(os.getpid(), signal.SIGSEGV)
            os._exit(1)

    def gather(self):
        forget_starts()
        return record_start()

    def told(self):
        return self.error


def check_told(error, cause):
    """Check what an error says of the deaths before it."""
    assert isinstance(error, WorkerError)
    assert f"died {LIMIT} times in a row before it collected any data" in str(error)
    assert f"Cause of the last death: {cause}" in str(error)
    log = str(error).partition("): ")[2].partition(". Fix")[0]
    assert os.path.isfile(log), error


# A signal ends real runners as well, further down.
@pytest.mark.parametrize(
    ("how", "cause"),
    [
        pytest.param("SIGSEGV", "SIGSEGV", marks=pytest.mark.attack),
        ("exit", "none in the log, as after SIGKILL"),
    ],
)
def test_repeated_deaths_are_told_with_cause_and_log_until_a_process_gathers(local_ray, how, cause):
    actor = local_ray.remote(max_restarts=10, num_cpus=0)(Starts).remote(True, how)
    error = local_ray.get(actor.told.remote(), timeout=100)
    ended = local_ray.get([actor.gather.remote() for _ in range(2 * LIMIT)])
    local_ray.kill(actor)
    check_told(error, cause)
    assert ended == [None] * 2 * LIMIT


class Deadly(gym.Wrapper):
    """Ends its process when it is made or stepped, but for the driver's."""

    def __init__(self, worker, when):
        super().__init__(gym.make("CartPole-v1"))
        self.stepped = worker and when == "stepped"
        if worker and when == "made":
            os.kill(os.getpid(), signal.SIGSEGV)

    def step(self, action):
        if self.stepped:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().step(action)


def train(config, seconds):
    """Train, as a user's loop does."""
    algo, deadline = config.build_algo(), time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            algo.train()
            time.sleep(0.2)
    finally:
        algo.stop()


@pytest.mark.attack  # a runner of their own is told apart above
@pytest.mark.parametrize("when", ["made", "stepped"])
def test_a_run_whose_runners_keep_dying_ends_with_the_cause(local_ray, when):
    register_env(f"deadly-{when}", lambda config: Deadly(getattr(config, "worker_index", 0), when))
    config = small(f"deadly-{when}", runners=1)
    with pytest.raises(WorkerError) as caught:
        train(config, seconds=500)
    check_told(caught.value, "SIGSEGV")


def test_runners_that_ray_restarted_are_asked_for_their_failure():
    class Group:
        """One runner that works, and one that does not."""

        def foreach_env_runner(self, ask, **_):
            return [
                ask(SimpleNamespace(_failure=failure)) for failure in (None, WorkerError("SIGSEGV"))
            ]

    settings = SimpleNamespace(env_runner_health_probe_timeout_s=1)
    check_runners(
        algorithm=SimpleNamespace(
            env_runner_group=None, eval_env_runner_group=None, config=settings
        )
    )
    for groups in [(Group(), None), (None, Group())]:
        algorithm = SimpleNamespace(
            env_runner_group=groups[0], eval_env_runner_group=groups[1], config=settings
        )
        with pytest.raises(WorkerError, match=r"^SIGSEGV$"):
            check_runners(algorithm=algorithm, metrics_logger=None)


def test_callbacks_of_the_user_stay():
    def mine(**_):
        """Nothing."""

    config = PPOConfig().callbacks(on_algorithm_init=mine, on_env_runners_recreated=[mine])
    for _ in range(2):  # configured anew
        rlcatalog_rllib.configure(config, "CartPole-v1")
        assert config.callbacks_on_algorithm_init == [mine, check_runners]
        assert config.callbacks_on_env_runners_recreated == [mine, check_runners]
