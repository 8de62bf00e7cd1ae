"""Private names of Ray: each still does what rlcatalog relies on in the installed version.

If one of these tests fails after an upgrade, Ray has changed the name: adapt
`rlcatalog_rllib/private_api.py`, which says what the name is for.
"""

import os
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
import ray
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.marwil import MARWILConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.tune.registry import register_env

from rlcatalog.errors import NotServedError
from rlcatalog_rllib import private_api, worker_deaths

#: Names the version in the message of every failure.
VERSION = f"Ray {ray.__version__}"


def user_function(*arguments):
    """Stand for a function that a user passes to Ray."""


def test_registered_env_is_the_function_given_to_ray():
    register_env("rlcatalog-private-api", user_function)

    assert private_api.registered_env("rlcatalog-private-api") is user_function, VERSION


def test_unregistered_env_is_none():
    assert private_api.registered_env("rlcatalog-never-registered") is None, VERSION


def test_default_model_config_is_the_class_s_own():
    config = PPOConfig().rl_module(model_config={"vf_share_layers": True})
    # False is PPO's own setting.
    assert private_api.default_model_config(config)["vf_share_layers"] is False, VERSION


def test_given_model_config_is_the_user_s_alone():
    config = PPOConfig().rl_module(model_config={"fcnet_hiddens": [7]})

    assert private_api.given_model_config(PPOConfig()) == {}, VERSION
    assert private_api.given_model_config(config) == {"fcnet_hiddens": [7]}, VERSION


def test_given_module_spec_is_the_user_s_alone():
    spec = RLModuleSpec()
    config = DQNConfig().rl_module(rl_module_spec=spec)

    assert private_api.given_module_spec(DQNConfig()) is None, VERSION
    assert private_api.given_module_spec(config) is spec, VERSION


@pytest.mark.parametrize(
    ("read", "configure"),
    [
        pytest.param(
            private_api.given_env_to_module,
            lambda config: config.env_runners(env_to_module_connector=user_function),
            id="env to module",
        ),
        pytest.param(
            private_api.given_module_to_env,
            lambda config: config.env_runners(module_to_env_connector=user_function),
            id="module to env",
        ),
        pytest.param(
            private_api.given_learner_connector,
            lambda config: config.training(learner_connector=user_function),
            id="learner",
        ),
    ],
)
def test_given_connectors_are_the_user_s_functions(read, configure):
    config = configure(MARWILConfig())

    assert read(MARWILConfig()) is None, VERSION
    assert read(config) is user_function, VERSION


@pytest.mark.parametrize(
    "read",
    [
        private_api.default_model_config,
        private_api.given_model_config,
        private_api.given_module_spec,
        private_api.given_env_to_module,
        private_api.given_module_to_env,
        private_api.given_learner_connector,
    ],
)
def test_missing_setting_is_reported_with_the_version(read):
    with pytest.raises(NotServedError, match=r"has no AlgorithmConfig\._"):
        read(object())


class StoreActor:
    """Actor that reads and writes Ray's key-value store, and can end its process."""

    def __init__(self):
        # RLlib would import TensorFlow, which takes seconds.
        os.environ["RLLIB_TEST_NO_TF_IMPORT"] = "1"
        from rlcatalog_rllib import private_api

        self.api = private_api

    def get(self, key):
        return self.api.get_value(key)

    def put(self, key, value):
        self.api.put_value(key, value)

    def delete(self, key):
        self.api.delete_value(key)

    def write_to_stderr(self, text):
        print(text, file=sys.stderr, flush=True)
        return self.api.error_log()

    def end_process(self):
        os._exit(1)


@pytest.fixture(scope="module")
def actor(local_ray):
    """A `StoreActor` that Ray restarts once."""
    pickler = local_ray.cloudpickle
    pickler.register_pickle_by_value(sys.modules[__name__])
    actor = local_ray.remote(max_restarts=1, max_task_retries=2)(StoreActor).remote()
    yield actor
    local_ray.kill(actor)
    pickler.unregister_pickle_by_value(sys.modules[__name__])


def test_values_outlive_an_actor_s_process(actor):
    ray.get(actor.put.remote(b"rlcatalog:test", b"1"))

    actor.end_process.options(max_task_retries=0).remote()

    assert ray.get(actor.get.remote(b"rlcatalog:test")) == b"1", VERSION
    ray.get(actor.delete.remote(b"rlcatalog:test"))


def test_values_that_are_missing_or_deleted_are_none(actor):
    assert ray.get(actor.get.remote(b"rlcatalog:test")) is None, VERSION

    ray.get(actor.put.remote(b"rlcatalog:test", b"1"))
    ray.get(actor.delete.remote(b"rlcatalog:test"))

    assert ray.get(actor.get.remote(b"rlcatalog:test")) is None, VERSION


def test_error_log_contains_what_a_process_writes_to_stderr(actor):
    line = "a line of this test"

    path = Path(ray.get(actor.write_to_stderr.remote(line)))

    # Ray writes the log a little later.
    deadline = time.monotonic() + 10
    while line not in path.read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert line in path.read_text(), f"{VERSION}: {path}"


def test_deaths_are_not_counted_without_a_store(monkeypatch):
    # A name that Ray does not have, in place of the store's functions.
    missing = private_api.RAY.name("ray.experimental.internal_kv:_gone", "count deaths")
    for name in ("get_value", "put_value", "delete_value"):
        monkeypatch.setattr(worker_deaths, name, missing)
    monkeypatch.setattr(worker_deaths, "_record_key", lambda: b"key")

    assert worker_deaths.record_start() is None
    worker_deaths.forget_starts()  # raises nothing
