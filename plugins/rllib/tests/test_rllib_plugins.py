"""A third party's plugin, found by its entry point: on the nodes of a cluster, missing on one, and at a checkpoint."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
from ray.rllib.algorithms.algorithm import Algorithm

from rlcatalog.errors import MissingPluginError

EXAMPLE = Path(__file__).resolve().parents[2] / "example" / "src" / "compass_agents"

#: The training script; it imports nothing of the plugin's.
SCRIPT = """
import json, sys
import ray
from ray.cluster_utils import Cluster
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
import rlcatalog_rllib

cluster = Cluster()
for resources, environ in (({}, {}), ({}, {}), ({"bare": 1}, {"RLCATALOG_DISABLE_PLUGINS": "compass-agents"})):
    cluster.add_node(num_cpus=0 if resources else 1, resources=resources, env_vars=environ, include_dashboard=False,
                     object_store_memory=100 * 2**20)
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
config = PPOConfig().env_runners(num_env_runners=2, num_envs_per_env_runner=1)
config.training(train_batch_size_per_learner=100, minibatch_size=50, num_epochs=1)
rlcatalog_rllib.configure(config, "CartPole-v1", model={"custom_model": "glu", "compass_width": 12})
algo = config.build_algo()
algo.train()
here = "compass_agents" in sys.modules["__main__"].__dict__
models = algo.env_runner_group.foreach_env_runner(
    lambda r: [type(r.module.model).__module__, r.module.model.gated.out_features,
               ray.get_runtime_context().get_node_id()], local_env_runner=False
)
path = algo.save_to_path(sys.argv[1])

@ray.remote(num_cpus=0, resources={"bare": 1})
def without():
    try:
        SingleAgentEnvRunner(config=config)
    except Exception as error:
        return [type(error).__name__, str(error), ray.get_runtime_context().get_node_id()]

missing = ray.get(without.remote())
algo.stop()
ray.shutdown()
cluster.shutdown()
print(json.dumps({"imported here": here, "models": models, "missing": missing}))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What the script found, with the plugin on the path, and where its checkpoint is."""
    folder = tmp_path_factory.mktemp("compass")
    shutil.copytree(EXAMPLE, folder / "compass_agents")
    info = folder / "compass_agents-3.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: compass-agents\nVersion: 3.1\n")
    (info / "entry_points.txt").write_text("[rlcatalog.plugins]\ncompass = compass_agents.plugin\n")
    environ = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder / "checkpoint")],
        env=environ, capture_output=True, text=True, check=False, timeout=150,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), folder / "checkpoint"


def test_a_plugins_model_is_used_by_name_on_each_node(run):
    found, _ = run
    assert [model[:2] for model in found["models"]] == [["compass_agents.torch", 24]] * 2
    assert len({node for *_, node in found["models"]}) == 2
    assert not found["imported here"]


def test_a_node_without_the_plugin_is_named_with_the_package(run):
    kind, text, node = run[0]["missing"]
    assert kind == "MissingPluginError"
    assert "compass-agents" in text
    assert f"Ray node {node}" in text
    assert node not in {other for *_, other in run[0]["models"]}


def test_a_checkpoint_whose_plugin_is_missing_is_refused(run, local_ray):
    _, checkpoint = run
    with pytest.raises(MissingPluginError, match=r"compass-agents.*pip install compass-agents"):
        Algorithm.from_checkpoint(checkpoint)
