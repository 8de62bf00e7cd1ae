"""Algorithms on a local Ray: several processes, a killed runner, checkpoints, and the policies that
they export.
"""

import json
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import pytest
import users_nets_module
import warm
from command_line import run_command

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
import torch
from ray.rllib.algorithms.algorithm import Algorithm

import rlcatalog
from rlcatalog.catalog import default_catalog
from rlcatalog.errors import SavedPolicyError
from rlcatalog_rllib import to_policy
from rlcatalog_runs.checkpoints import checkpoints_of

#: A filter, and the registered model "slim", which has half of the units.
MODEL = {"observation_filter": "MeanStdFilter", "custom_model": "slim", "fcnet_hiddens": [16]}


@pytest.fixture(scope="module", autouse=True)
def pickle_this_file(local_ray):
    """Have Ray pickle what this file defines, because workers may not import it."""
    local_ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    local_ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def users_nets(tmp_path_factory):
    """A user's module, whose class `Slim` is registered as "slim" in this process, beside a class
    that cannot be pickled.
    """
    default_catalog.cache_clear()
    catalog = default_catalog()
    with users_nets_module.users_nets(tmp_path_factory.mktemp("code")) as module:
        catalog.register_model("slim", module.Slim)
        unrelated = type("Unrelated", (module.Slim,), {"lock": threading.Lock()})
        catalog.register_model("unrelated", unrelated)
        yield module
    default_catalog.cache_clear()


@contextmanager
def train_with_processes(rllib, count):
    """Train PPO with `count` environment runners and `count` learners, in separate processes,
    for two iterations of 400 steps.

    Each process imports PyTorch and TensorFlow, which takes ten seconds.
    """
    config = rllib.configure(
        "CartPole-v1", MODEL, num_runners=count, steps_per_env=200 // count, seed=0
    )
    # Without this, the algorithms of this file would wait for each other's processors.
    config.env_runners(num_cpus_per_env_runner=0)
    algorithm = config.learners(num_learners=count).build_algo()
    for _ in range(2):
        algorithm.train()
    yield algorithm
    algorithm.stop()


@pytest.fixture(scope="module")
def algorithm(local_ray, rllib, users_nets):
    """PPO with a remote environment runner and a remote learner."""
    with train_with_processes(rllib, 1) as algorithm:
        yield algorithm


@pytest.fixture(scope="module")
def algorithm_with_pairs(local_ray, rllib, users_nets):
    """PPO with two remote environment runners and two remote learners; a test kills a runner."""
    with train_with_processes(rllib, 2) as algorithm:
        yield algorithm


#: An algorithm with one process of each kind or, in `make attack`, with two.
each_number_of_processes = pytest.mark.parametrize(
    ("name", "count"),
    [
        pytest.param("algorithm", 1, id="1"),
        pytest.param("algorithm_with_pairs", 2, id="2", marks=pytest.mark.slow),
    ],
)


def call_runners(algorithm, function):
    """Call a function with each remote environment runner, and return its results."""
    return algorithm.env_runner_group.foreach_env_runner(function, local_env_runner=False)


def pids_of_runners(algorithm):
    return call_runners(algorithm, lambda runner: os.getpid())


def call_learners(algorithm, function):
    """Call a function with each learner, and return its results."""
    results = algorithm.learner_group.foreach_learner(function)
    return [result.get() for result in results]


def count_filtered_rows(runner):
    """Return how many observations a runner's filter has seen."""
    policy = runner._env_to_module[0].encoders["default_policy"].policy
    return int(policy.filter.get_state()["n"])


def make_observations():
    return np.random.default_rng(0).normal(0, 0.1, (9, 4)).astype(np.float32)


# --- parts in every process -----------------------------------------------------------------------


class Process(NamedTuple):
    pid: int
    model: str
    num_units: int  # of the model's first layer


def describe_model(model):
    return Process(os.getpid(), type(model).__name__, model.hidden.layers[0].out_features)


def describe_runner(runner):
    return describe_model(runner.module.model)


def describe_learner(learner):
    return describe_model(learner.module["default_policy"].unwrapped().model)


@each_number_of_processes
def test_registered_model_is_built_in_every_process(request, name, count):
    # An algorithm with `count` runners, and as many learners.
    algorithm = request.getfixturevalue(name)

    runners = call_runners(algorithm, describe_runner)
    learners = call_learners(algorithm, describe_learner)

    assert len(runners) == count
    assert len(learners) == count
    for process in [*runners, *learners]:
        assert process.model == "Slim"
        assert process.num_units == 8  # half of the 16 in fcnet_hiddens
    pids = {os.getpid(), *(process.pid for process in [*runners, *learners])}
    assert len(pids) == 1 + 2 * count  # this process, runners and learners


@each_number_of_processes
def test_runners_share_the_statistics_of_their_filters(request, name, count):
    algorithm = request.getfixturevalue(name)

    counts = call_runners(algorithm, count_filtered_rows)

    assert len(counts) == count
    assert len(set(counts)) == 1
    assert counts[0] > 400  # more than the steps of one of two iterations


def test_runners_import_triton_before_tensorflow(algorithm, import_order):
    orders = call_runners(algorithm, import_order)

    assert orders == [["triton", "tensorflow"]]
    assert algorithm.env_runner_group.num_remote_worker_restarts() == 0


@pytest.mark.slow
def test_several_learners_have_the_same_weights(algorithm_with_pairs):
    # The processes of learners import RLlib, and so TensorFlow, before rlcatalog imports triton.
    first, second = call_learners(
        algorithm_with_pairs, lambda learner: learner.module["default_policy"].get_state()
    )

    assert first.keys() == second.keys()
    for name, weight in first.items():
        np.testing.assert_array_equal(weight, second[name])


# --- exported policies ----------------------------------------------------------------------------

#: Program that prints the actions of a saved policy, and cannot import Ray. Arguments: the policy,
#: observations, and the folder of the user's module.
ACT_WITHOUT_RAY = """
import json, sys
sys.modules["ray"] = None  # importing it fails
import numpy as np, rlcatalog
sys.path.insert(0, sys.argv[3])
import users_nets
rlcatalog.default_catalog().register_model("slim", users_nets.Slim)
policy = rlcatalog.load(sys.argv[1])
step = policy.act(np.asarray(json.loads(sys.argv[2]), np.float32), explore=False)
print(json.dumps([step.raw_action.tolist(), step.dist_inputs.tolist()]))
"""


@pytest.mark.slow
def test_exported_policy_acts_without_ray(algorithm_with_pairs, users_nets, tmp_path):
    to_policy(algorithm_with_pairs).save(tmp_path / "policy")
    obs = make_observations()
    folder_of_module = os.path.dirname(users_nets.__file__)
    arguments = [str(tmp_path / "policy"), json.dumps(obs.tolist()), folder_of_module]

    process = warm.run(["-c", ACT_WITHOUT_RAY, *arguments], cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    raw_actions, dist_inputs = json.loads(process.stdout)

    # The filter is in the runner's connector, and the newest weights are in the learners.
    encoder = algorithm_with_pairs.env_runner._env_to_module[0].encoders["default_policy"]
    filtered_obs = encoder.policy.preprocess(obs)
    assert np.abs(filtered_obs - obs).max() > 0.1  # the filter changes observations
    module = algorithm_with_pairs.get_module()
    module.set_state(algorithm_with_pairs.learner_group.get_weights()["default_policy"])
    expected = module.forward_inference({"obs": torch.from_numpy(filtered_obs)})
    np.testing.assert_array_equal(np.ravel(raw_actions), expected["actions"].numpy())
    np.testing.assert_allclose(dist_inputs, expected["action_dist_inputs"].numpy(), atol=1e-6)


@pytest.mark.slow
def test_onnx_file_acts_like_the_exported_policy(algorithm, tmp_path):
    pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")
    policy = to_policy(algorithm)
    policy.export(tmp_path / "policy.onnx")
    obs = make_observations()

    step = rlcatalog.Actor(tmp_path / "policy.onnx").act(obs, explore=False)

    expected = policy.act(obs, explore=False)
    np.testing.assert_array_equal(step.action, expected.action)
    np.testing.assert_allclose(step.dist_inputs, expected.dist_inputs, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(step.logp, expected.logp, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(step.value, expected.value, rtol=1e-5, atol=1e-5)


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(algorithm, tmp_path_factory):
    return algorithm.save_to_path(str(tmp_path_factory.mktemp("checkpoint")))


def test_restored_algorithm_has_the_same_parts_and_trains(algorithm, checkpoint):
    # Unlike the saved algorithm, the restored one runs in this process alone.
    config = algorithm.config.copy(copy_frozen=False)
    config.env_runners(num_env_runners=0).learners(num_learners=0)

    restored = Algorithm.from_checkpoint(checkpoint, config=config)
    policy = to_policy(restored)
    result = restored.train()
    restored.stop()

    expected = to_policy(algorithm)
    weights = policy.model.get_weights()
    for name, expected_weight in expected.model.get_weights().items():
        np.testing.assert_array_equal(weights[name], expected_weight)
    np.testing.assert_array_equal(
        policy.filter.get_state()["mean"], expected.filter.get_state()["mean"]
    )
    assert policy.resolution.choices["trunk"].part.name == "slim"
    # The checkpoint has two iterations of 400 steps.
    assert result["num_env_steps_sampled_lifetime"] > 800


def test_checkpoint_of_another_environment_is_rejected(rllib, checkpoint):
    acrobot = rllib.configure(lambda: gym.make("Acrobot-v1"), MODEL).build_algo()

    with pytest.raises(SavedPolicyError, match="a different environment: its") as caught:
        acrobot.restore_from_path(checkpoint)
    acrobot.stop()

    message = str(caught.value)
    assert "its observation space is Box" in message
    assert "(4,)" in message  # of CartPole


# --- runs -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_run_goes_on_after_an_environment_runner_is_killed(algorithm_with_pairs):
    algorithm = algorithm_with_pairs
    killed_pid, _ = pids_of_runners(algorithm)
    os.kill(killed_pid, signal.SIGKILL)
    steps_before = algorithm.train()["num_env_steps_sampled_lifetime"]

    # Ray starts another runner after some iterations.
    for _ in range(20):
        result = algorithm.train()
        pids = pids_of_runners(algorithm)
        if len(pids) == 2 and killed_pid not in pids:
            break

    assert len(pids) == 2
    assert killed_pid not in pids
    assert result["num_env_steps_sampled_lifetime"] > steps_before
    # The new runner has got the filter's statistics of all iterations, of 400 steps each.
    counts = call_runners(algorithm, count_filtered_rows)
    assert min(counts) > 400
    algorithm.train()  # raises no error


@pytest.mark.slow
def test_appo_with_an_lstm_trains_and_acts(local_ray, rllib):
    model = {"use_lstm": True, "lstm_cell_size": 8}
    config = rllib.configure("CartPole-v1", model, "appo", num_runners=1, steps_per_env=20)
    config.reporting(min_sample_timesteps_per_iteration=100)
    config.learners(num_learners=0)
    # The other algorithms' processes may occupy all processors.
    config.env_runners(num_cpus_per_env_runner=0)

    with rllib.build_algorithm(config) as algorithm:
        rllib.train_asynchronously(algorithm, num_steps=200)
        two_observations = np.zeros((2, 4), np.float32)
        step = to_policy(algorithm).act(two_observations)

    assert step.action.shape == (2,)


def test_dqn_trains_and_acts(local_ray, rllib):
    config = rllib.configure(
        "CartPole-v1", algo="dqn", steps_per_env=4, num_steps_sampled_before_learning_starts=50
    )
    config.reporting(min_sample_timesteps_per_iteration=64)

    with rllib.build_algorithm(config) as algorithm:
        result = algorithm.train()
        two_observations = np.zeros((2, 4), np.float32)
        step = to_policy(algorithm).act(two_observations)

    assert result["learners"]["default_policy"]["td_error_mean"] > 0
    assert step.action.shape == (2,)


# --- the command line -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_folder(local_ray, tmp_path_factory):
    """The folder of a run of PPO of 150 steps; not to be written to."""
    folder = tmp_path_factory.mktemp("run")
    result = run_command(
        f"train CartPole-v1 --engine rllib --steps 150 --out {folder} --env-runners 0 --envs 2"
        " --model fcnet_hiddens=[8] --set train_batch_size_per_learner=100 --set minibatch_size=50"
    )
    assert result.exit_code == 0
    return folder


def test_command_saves_policy_metrics_and_config(run_folder):
    policy = rlcatalog.load(run_folder / "policy")
    *_, last_row = (run_folder / "metrics.jsonl").read_text().splitlines()
    config = json.loads((run_folder / "config.json").read_text())

    assert policy.config["fcnet_hiddens"] == [8]
    assert json.loads(last_row)["timesteps_total"] >= 150
    assert config["env"] == "CartPole-v1"
    assert config["algorithm"]["name"] == "PPO"


def test_policy_of_the_command_can_be_evaluated(run_folder):
    result = run_command(f"evaluate {run_folder} --episodes 2")

    assert "mean return" in result.output


def test_checkpoint_of_the_command_has_the_values_of_its_policy(run_folder):
    obs = np.full((1, 4), 0.1, np.float32)
    last_checkpoint = checkpoints_of(run_folder)[-1]

    restored = Algorithm.from_checkpoint(str(last_checkpoint / "algorithm"))
    values = to_policy(restored).act(obs, explore=False).value
    restored.stop()

    expected = rlcatalog.load(run_folder / "policy").act(obs, explore=False).value
    np.testing.assert_array_equal(values, expected)
