"""Whole algorithms on a local Ray: several processes, a killed one, checkpoints, and what is left
without Ray.
"""

import json
import os
import signal
import sys
import threading
from contextlib import contextmanager

import gymnasium as gym
import numpy as np
import pytest
import users_nets_module
import warm

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
from ray.rllib.algorithms.algorithm import Algorithm

import rlcatalog
from rlcatalog.catalog import default_catalog
from rlcatalog.errors import SavedPolicyError
from rlcatalog_cli import main
from rlcatalog_rllib import to_policy
from rlcatalog_runs.checkpoints import checkpoints_of

#: A filter of an installed plugin's, and a model that is registered here.
MODEL = {"observation_filter": "MeanStdFilter", "custom_model": "slim", "fcnet_hiddens": [16]}


@pytest.fixture(scope="module", autouse=True)
def by_value(local_ray):
    """Have Ray pickle what is defined here: workers may not find the folder of these tests."""
    local_ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    local_ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def users_nets(tmp_path_factory):
    """A user's module; its model has a name in this process, as has another that
    cannot be pickled.
    """
    default_catalog.cache_clear()
    catalog = default_catalog()
    with users_nets_module.users_nets(tmp_path_factory.mktemp("code")) as module:
        catalog.register_model("slim", module.Slim)
        catalog.register_model(
            "unrelated", type("Unrelated", (module.Slim,), {"lock": threading.Lock()})
        )
        yield module
    default_catalog.cache_clear()


@contextmanager
def trained(bench, count):
    """PPO with `count` environment runners and as many learners, trained for two iterations of 400
    steps.

    Each of these processes imports PyTorch and TensorFlow, which takes ten seconds: `make test` has
    one of a kind.
    """
    config = bench.config("CartPole-v1", MODEL, runners=count, fragment=200 // count, seed=0)
    # Or `algo` and `pairs` would wait for each other's processors.
    config.env_runners(num_cpus_per_env_runner=0)
    made = config.learners(num_learners=count).build_algo()
    for _ in range(2):
        made.train()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def algo(local_ray, bench, users_nets):
    """PPO with an environment runner and a learner."""
    with trained(bench, 1) as made:
        yield made


@pytest.fixture(scope="module")
def pairs(local_ray, bench, users_nets):
    """PPO with two environment runners and two learners; the last test kills a runner."""
    with trained(bench, 2) as made:
        yield made


def pids(algo):
    return algo.env_runner_group.foreach_env_runner(lambda _: os.getpid(), local_env_runner=False)


def learned(runner):
    """Return how many observations a runner's filter knows."""
    return int(runner._env_to_module[0].encoders["default_policy"].policy.filter.get_state()["n"])


@pytest.mark.parametrize(
    ("name", "count"), [("algo", 1), pytest.param("pairs", 2, marks=pytest.mark.attack)]
)
def test_parts_are_found_in_every_process(request, name, count):
    algo, here = request.getfixturevalue(name), os.getpid()
    found = algo.env_runner_group.foreach_env_runner(
        lambda r: (
            os.getpid(),
            type(r.module.model).__name__,
            learned(r),
            r.module.model.hidden.layers[0].out_features,
        ),
        local_env_runner=False,
    )
    assert len({pid for pid, *_ in found} - {here}) == count
    assert {name for _, name, _, _ in found} == {"Slim"}
    assert {width for *_, width in found} == {8}
    assert len({n for _, _, n, _ in found}) == 1  # they share what their filters learned
    assert found[0][2] > 400
    names = algo.learner_group.foreach_learner(
        lambda one: (os.getpid(), type(one.module["default_policy"].unwrapped().model).__name__)
    )
    names = [name.get() for name in names]
    assert len({pid for pid, _ in names} - {here, *(pid for pid, *_ in found)}) == count
    assert {name for _, name in names} == {"Slim"}


def test_every_environment_runner_imports_triton_before_tensorflow(algo, import_order):
    orders = algo.env_runner_group.foreach_env_runner(import_order, local_env_runner=False)
    assert orders == [["triton", "tensorflow"]]
    assert algo.env_runner_group.num_remote_worker_restarts() == 0


ACT_ALIKE = """
import json, sys
sys.modules["ray"] = None  # as if it were not installed
import numpy as np, rlcatalog
sys.path.insert(0, sys.argv[3])
import users_nets
rlcatalog.default_catalog().register_model("slim", users_nets.Slim)
policy = rlcatalog.load(sys.argv[1])
step = policy.act(np.asarray(json.loads(sys.argv[2]), np.float32), explore=False)
print(json.dumps([step.raw_action.tolist(), step.dist_inputs.tolist()]))
"""


@pytest.mark.attack
def test_the_exported_policy_acts_the_same_without_ray(pairs, users_nets, tmp_path):
    algo = pairs
    policy = to_policy(algo)
    policy.save(tmp_path / "policy")
    obs = np.random.default_rng(0).normal(0, 0.1, (9, 4)).astype(np.float32)
    arguments = [
        str(tmp_path / "policy"),
        json.dumps(obs.tolist()),
        os.path.dirname(users_nets.__file__),
    ]
    done = warm.run(["-c", ACT_ALIKE, *arguments], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    raw, params = json.loads(done.stdout)
    import torch

    weights = algo.learner_group.get_weights()["default_policy"]
    module = algo.get_module()
    module.set_state(weights)
    runner = algo.env_runner
    encoded = runner._env_to_module[0].encoders["default_policy"].policy.preprocess(obs)
    assert np.abs(encoded - obs).max() > 0.1  # the filter does something
    out = module.forward_inference({"obs": torch.from_numpy(encoded)})
    np.testing.assert_array_equal(out["actions"].numpy(), np.asarray(raw)[:, 0])
    np.testing.assert_allclose(out["action_dist_inputs"].numpy(), params, atol=1e-6)


@pytest.mark.attack
def test_a_policy_of_rllib_leaves_as_a_file_that_needs_no_framework(algo, tmp_path):
    pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")
    policy = to_policy(algo)
    policy.export(tmp_path / "policy.onnx")
    obs = np.random.default_rng(0).normal(0, 0.1, (9, 4)).astype(np.float32)
    found, expected = (
        rlcatalog.Actor(tmp_path / "policy.onnx").act(obs, explore=False),
        policy.act(obs, explore=False),
    )
    np.testing.assert_array_equal(found.action, expected.action)
    for name in ("dist_inputs", "logp", "value"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=1e-5, atol=1e-5
        )


def test_a_checkpoint_brings_the_same_parts_back_and_another_environment_is_refused(
    algo, bench, tmp_path
):
    path = algo.save_to_path(str(tmp_path / "checkpoint"))
    before = to_policy(algo)
    alone = (
        algo.config.copy(copy_frozen=False).env_runners(num_env_runners=0).learners(num_learners=0)
    )
    restored = Algorithm.from_checkpoint(path, config=alone)
    after = to_policy(restored)
    for name, value in before.model.get_weights().items():
        np.testing.assert_array_equal(after.model.get_weights()[name], value)
    np.testing.assert_array_equal(
        after.filter.get_state()["mean"], before.filter.get_state()["mean"]
    )
    assert after.resolution.choices["trunk"].component.name == "slim"
    steps = restored.train()["num_env_steps_sampled_lifetime"]
    assert steps > 600
    restored.stop()
    elsewhere = bench.config(lambda: gym.make("Acrobot-v1"), MODEL, runners=0).build_algo()
    with pytest.raises(
        SavedPolicyError, match=r"a different environment: its observation space is Box.*\(4,\)"
    ):
        elsewhere.restore_from_path(path)
    elsewhere.stop()


@pytest.mark.attack
def test_several_learners_keep_the_same_weights(pairs):
    """Their processes import RLlib, and so TensorFlow, before anything of ours: triton is loaded
    apart.
    """
    states = pairs.learner_group.foreach_learner(
        lambda learner: learner.module["default_policy"].get_state()
    )
    first, second = (state.get() for state in states)
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])


@pytest.mark.attack
def test_a_killed_environment_runner_does_not_end_the_run(pairs):
    algo = pairs
    before = pids(algo)
    os.kill(before[0], signal.SIGKILL)
    steps = algo.train()["num_env_steps_sampled_lifetime"]
    for _ in range(20):
        result = algo.train()
        if len(set(pids(algo)) - {before[0]}) == 2:
            break
    after = pids(algo)
    assert len(after) == 2
    assert before[0] not in after
    assert result["num_env_steps_sampled_lifetime"] > steps
    known = algo.env_runner_group.foreach_env_runner(lambda r: learned(r), local_env_runner=False)
    algo.train()
    assert min(known) > 400  # the new one was told what the filter knows


@pytest.mark.attack
def test_an_asynchronous_algorithm_runs(local_ray, bench):
    config = bench.config(
        "CartPole-v1", {"use_lstm": True, "lstm_cell_size": 8}, "appo", runners=1, fragment=20
    )
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=100)
    # The processes of `algo` and `pairs` may hold all there are.
    config.env_runners(num_cpus_per_env_runner=0)
    made = config.learners(num_learners=0).build_algo()
    try:
        # Wait for the actors to start: training asks without a pause, and leaves them little of the
        # processor.
        made.env_runner_group.foreach_env_runner(
            lambda runner: len(runner.sample()), local_env_runner=False
        )
        while made.train().get("num_env_steps_sampled_lifetime", 0) < 200:
            pass
        assert to_policy(made).act(np.zeros((2, 4), np.float32)).action.shape == (2,)
    finally:
        made.stop()


def test_dqn_runs(local_ray, bench):
    config = bench.config(
        "CartPole-v1", algo="dqn", num_steps_sampled_before_learning_starts=50, fragment=4
    )
    config.reporting(min_sample_timesteps_per_iteration=64)
    made = config.build_algo()
    try:
        result = made.train()
        assert result["learners"]["default_policy"]["td_error_mean"] > 0
        assert to_policy(made).act(np.zeros((2, 4), np.float32)).action.shape == (2,)
    finally:
        made.stop()


def test_the_command_trains_and_leaves_a_policy(local_ray, tmp_path, capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        return ended.value.code, "".join(capsys.readouterr())

    arguments = [
        "train",
        "CartPole-v1",
        "-e",
        "rllib",
        "--steps",
        "150",
        "--env-runners",
        "0",
        "--envs",
        "2",
        "--out",
        str(tmp_path),
        "--model",
        "fcnet_hiddens=[8]",
        "--set",
        "train_batch_size_per_learner=100",
        "--set",
        "minibatch_size=50",
    ]
    code, said = run(*arguments)
    assert code == 0, said
    assert rlcatalog.load(tmp_path / "policy").config["fcnet_hiddens"] == [8]
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["timesteps_total"] >= 150
    about = json.loads((tmp_path / "config.json").read_text())
    assert about["env"] == "CartPole-v1"
    assert about["algorithm"]["name"] == "PPO"
    assert "mean return" in run("evaluate", str(tmp_path), "--episodes", "2")[1]
    restored = Algorithm.from_checkpoint(str(checkpoints_of(tmp_path)[-1] / "algorithm"))
    obs = np.full((1, 4), 0.1, np.float32)
    ours, theirs = (
        one.act(obs, explore=False).value
        for one in (rlcatalog.load(tmp_path / "policy"), to_policy(restored))
    )
    np.testing.assert_array_equal(ours, theirs)
    restored.stop()
    code, said = run("train", "CartPole-v1", "-e", "rllib", "--set", "num_env_runners=0")
    assert (code, "Use its option instead: --env-runners." in " ".join(said.split())) == (1, True)
    code, said = run("train", "CartPole-v1", "-e", "rllib", "--algo", "PPOO")
    assert code == 1
    assert "unknown algorithm 'PPOO'. Did you mean 'PPO'?" in " ".join(said.split())
