"""Fixtures for these tests: RLlib's environment runners and learners in this process, and a local
Ray for algorithms that need processes.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

#: For names of environments.
_NUMBERS = itertools.count()


def pytest_collection_modifyitems(items):
    """Ray's own warnings, and Gymnasium's about the id that every environment runner registers
    anew.
    """
    for item in items:
        if "/rllib/tests/" not in item.path.as_posix():
            continue
        for known in (
            "ignore:.*Overriding environment rllib-single-agent-env-v0",
            "ignore:.*Getting the length of a multi-dimensional MultiDiscrete",
            "ignore::DeprecationWarning:ray.*",
            "ignore::ResourceWarning",
            "ignore:.*is a deprecated alias:DeprecationWarning",
        ):
            item.add_marker(pytest.mark.filterwarnings(known))


@pytest.fixture(autouse=True)
def one_thread():
    """Small networks are fastest with one thread; and Ray's seeding makes PyTorch deterministic,
    for good.
    """
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


class Training(NamedTuple):
    """An environment runner, a learner, and the learner's module."""

    runner: Any
    learner: Any
    module: Any


class LocalRLlib:
    """Pieces of RLlib that run one at a time in this process, without Ray."""

    def __init__(self):
        self.learners = []

    @staticmethod
    def configure(
        env,
        model=None,
        algo="ppo",
        *,
        num_envs=2,
        steps_per_env=12,
        num_runners=0,
        seed=0,
        catalog=None,
        **training,
    ):
        """Return a small algorithm config with catalog parts, seeded, so that each run is equal.

        Args:
            env: An id, a class, or a function without arguments that returns an environment.
            model: Model config. Without `fcnet_hiddens`, the model has one layer of 8 units.
            algo: "ppo", "appo", "impala", "dqn" or "sac".
            num_envs: Number of environments of a runner.
            steps_per_env: Steps that a runner takes in each environment per call of `sample`.
            num_runners: Number of runners in other processes.
            seed: Ray's seed.
            catalog: The catalog for the parts.
            training: Arguments for `config.training`.
        """
        from ray.rllib.algorithms.appo import APPOConfig
        from ray.rllib.algorithms.dqn import DQNConfig
        from ray.rllib.algorithms.impala import IMPALAConfig
        from ray.rllib.algorithms.ppo import PPOConfig
        from ray.rllib.algorithms.sac import SACConfig
        from ray.tune.registry import register_env

        import rlcatalog_rllib

        classes = {
            "ppo": PPOConfig,
            "appo": APPOConfig,
            "impala": IMPALAConfig,
            "dqn": DQNConfig,
            "sac": SACConfig,
        }
        config = classes[algo]()
        config.debugging(seed=seed, log_level="ERROR").reporting(min_time_s_per_iteration=0)
        config.env_runners(
            num_env_runners=num_runners,
            num_envs_per_env_runner=num_envs,
            rollout_fragment_length=steps_per_env,
        )
        steps = num_envs * steps_per_env
        settings = {"train_batch_size_per_learner": steps * max(1, num_runners)}
        if algo == "ppo":
            settings["minibatch_size"] = max(1, steps // 2)
            settings["num_epochs"] = 1
        config.training(**{**settings, **training})
        if not isinstance(env, str | type):
            make_env = env
            env = f"test-env-{next(_NUMBERS)}"
            register_env(env, lambda _: make_env())
        model = {"fcnet_hiddens": [8], **(model or {})}
        return rlcatalog_rllib.configure(config, env, model=model, catalog=catalog)

    @staticmethod
    def make_runner(config):
        """Return an environment runner."""
        from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

        return SingleAgentEnvRunner(config=config)

    def make_learner(self, config, runner):
        """Return a learner, whose threads end with the test."""
        learner = config.build_learner(env=runner.env, spaces=runner.get_spaces())
        self.learners.append(learner)
        return learner

    def make_training(self, config):
        """Return an environment runner, a learner, and the learner's module."""
        runner = self.make_runner(config)
        learner = self.make_learner(config, runner)
        return Training(runner, learner, learner.module["default_policy"])

    def close_learners(self):
        """Stop the threads of all learners."""
        for learner in self.learners:
            if hasattr(learner, "shutdown"):  # not in Ray 2.54, whose learners have none here
                learner.shutdown()
        self.learners.clear()

    @staticmethod
    @contextmanager
    def build_algorithm(config):
        """Build an algorithm, which needs the fixture `local_ray`, and stop it at the end."""
        algorithm = config.build_algo()
        try:
            yield algorithm
        finally:
            algorithm.stop()

    @staticmethod
    def train_asynchronously(algorithm, num_steps):
        """Train APPO until its runners have taken some steps, and return the last result."""
        # Wait until the runners have started: training leaves them little of the processor.
        algorithm.env_runner_group.foreach_env_runner(
            lambda runner: len(runner.sample()), local_env_runner=False
        )
        result = {}
        while result.get("num_env_steps_sampled_lifetime", 0) < num_steps:
            result = algorithm.train()
        return result

    @staticmethod
    def update(learner, episodes):
        """Train a learner on episodes at once; IMPALA's own update would wait for its thread."""
        from ray.rllib.core.learner.learner import Learner
        from ray.rllib.core.learner.training_data import TrainingData

        steps = {"num_env_steps_sampled_lifetime": 0}
        return Learner.update(
            learner, training_data=TrainingData(episodes=episodes), timesteps=steps
        )

    @staticmethod
    def make_batch(learner, episodes):
        """Return the training batch that the learner's connectors make of episodes."""
        return learner._learner_connector(
            rl_module=learner.module, batch={}, episodes=episodes, shared_data={}, metrics=None
        )["default_policy"]


@pytest.fixture(scope="session")
def rllib():
    """RLlib's configs, environment runners and learners in this process; see `LocalRLlib`."""
    return LocalRLlib()


@pytest.fixture(autouse=True)
def close_learners(rllib):
    """Stop the threads of the learners that a test made."""
    yield
    rllib.close_learners()


@pytest.fixture(scope="session")
def import_order():
    """Return what a process asks itself: which of triton and TensorFlow it has imported, in that
    order.
    """
    for name in ("triton", "tensorflow"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    return lambda *_: [name for name in sys.modules if name in ("triton", "tensorflow")]
