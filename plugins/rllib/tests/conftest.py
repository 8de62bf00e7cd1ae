"""What the tests share: environment runners and learners without Ray's actors, and one local Ray
for those with.
"""

from __future__ import annotations

import itertools
import sys

import pytest

_NAMES = itertools.count()


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


class Bench:
    """Makes what Ray runs, one piece at a time and in this process."""

    @staticmethod
    def config(
        env,
        model=None,
        algo="ppo",
        *,
        envs=2,
        fragment=12,
        runners=0,
        seed=0,
        catalog=None,
        **training,
    ):
        """Return a small, configured algorithm config; seeded, so that each run shows the same."""
        from ray.rllib.algorithms.appo import APPOConfig
        from ray.rllib.algorithms.dqn import DQNConfig
        from ray.rllib.algorithms.impala import IMPALAConfig
        from ray.rllib.algorithms.ppo import PPOConfig
        from ray.tune.registry import register_env

        import rlcatalog_rllib

        classes = {"ppo": PPOConfig, "appo": APPOConfig, "impala": IMPALAConfig, "dqn": DQNConfig}
        config = (
            classes[algo]()
            .debugging(seed=seed, log_level="ERROR")
            .reporting(min_time_s_per_iteration=0)
        )
        config.env_runners(
            num_env_runners=runners, num_envs_per_env_runner=envs, rollout_fragment_length=fragment
        )
        settings = {"train_batch_size_per_learner": envs * fragment * max(1, runners)}
        if algo == "ppo":
            settings |= {"minibatch_size": max(1, envs * fragment // 2), "num_epochs": 1}
        config.training(**{**settings, **training})
        if not isinstance(env, str) and not isinstance(env, type):
            name, make = f"made-{next(_NAMES)}", env
            register_env(name, lambda _: make())
            env = name
        model = {"fcnet_hiddens": [8], **(model or {})}
        return rlcatalog_rllib.configure(config, env, model=model, catalog=catalog)

    @staticmethod
    def runner(config):
        """Return an environment runner in this process."""
        from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

        return SingleAgentEnvRunner(config=config)

    @staticmethod
    def learner(config, runner):
        """Return a learner in this process."""
        return config.build_learner(env=runner.env, spaces=runner.get_spaces())

    @staticmethod
    def close(learner):
        """Stop a learner's threads."""
        if hasattr(learner, "shutdown"):  # not in Ray 2.54, whose learners have none here
            learner.shutdown()

    @staticmethod
    def update(learner, episodes):
        """Train on episodes, at once: IMPALA's own update would wait for a thread of its."""
        from ray.rllib.core.learner.learner import Learner
        from ray.rllib.core.learner.training_data import TrainingData

        steps = {"num_env_steps_sampled_lifetime": 0}
        return Learner.update(
            learner, training_data=TrainingData(episodes=episodes), timesteps=steps
        )

    @staticmethod
    def batch(learner, episodes):
        """Return the training batch that the learner's connectors make of episodes."""
        return learner._learner_connector(
            rl_module=learner.module, batch={}, episodes=episodes, shared_data={}, metrics=None
        )["default_policy"]


@pytest.fixture(scope="session")
def bench():
    """See `Bench`."""
    return Bench()


@pytest.fixture(scope="session")
def import_order():
    """Return what a process asks itself: which of triton and TensorFlow it has imported, in that
    order.
    """
    for name in ("triton", "tensorflow"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    return lambda *_: [name for name in sys.modules if name in ("triton", "tensorflow")]


@pytest.fixture(scope="session")
def local_ray():
    """One Ray on this machine, for all tests that need processes."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    # Without a runtime_env, workers inherit this process's environment, and Ray uses its prestarted
    # workers.
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=150 * 2**20,
        log_to_driver=False,
        # Or workers starve beside a busy test.
        logging_level="ERROR",
        _system_config={"worker_niceness": 0},
    )
    yield ray
    ray.shutdown()
