"""A third party's plugin, found by its entry point: on a node of a cluster, missing on one, and at
a checkpoint.
"""

import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
from ray.cluster_utils import Cluster
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPOConfig

import rlcatalog_rllib
from rlcatalog.catalog import default_catalog
from rlcatalog.errors import MissingPluginError
from rlcatalog.plugins.discovery import scan

EXAMPLE = Path(__file__).resolve().parents[2] / "example" / "src" / "example_compass"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder in which the plugin is installed."""
    folder = tmp_path_factory.mktemp("compass")
    shutil.copytree(EXAMPLE, folder / "example_compass")
    info = folder / "example_compass-3.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example-compass\nVersion: 3.1\n")
    (info / "entry_points.txt").write_text(
        "[rlcatalog.plugins]\ncompass = example_compass.plugin\n"
    )
    return folder


@contextmanager
def found_here(installed):
    """This process has the plugin; none of it is imported before, and none is left behind."""

    def forget():
        default_catalog.cache_clear(), scan.cache_clear()
        for name in [name for name in sys.modules if name.partition(".")[0] == "example_compass"]:
            del sys.modules[name]

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(installed))
            forget()
            yield
    finally:
        forget()


@contextmanager
def node(ray, installed):
    """A second node, with the plugin on its path; gives its id.

    Only work that asks for "compass" goes there.
    """
    cluster = Cluster(shutdown_at_exit=False)
    cluster.head_node = ray._private.worker._global_node
    added = cluster.add_node(
        wait=False,
        num_cpus=0,
        resources={"compass": 1},
        env_vars={"PYTHONPATH": str(installed)},
        object_store_memory=100 * 2**20,
    )
    try:
        deadline = time.monotonic() + 100
        while not (there := [one for one in ray.nodes() if "compass" in one["Resources"]]):
            assert time.monotonic() < deadline, "the node did not come up"
            time.sleep(0.1)
        yield there[0]["NodeID"]
    finally:
        added.kill_all_processes(check_alive=False, allow_graceful=True)


def config_of():
    """PPO with the plugin's model."""
    config = PPOConfig().env_runners(num_env_runners=0, num_envs_per_env_runner=1)
    config.training(train_batch_size_per_learner=100, minibatch_size=50, num_epochs=1)
    model = {"custom_model": "example_compass_glu", "example_compass_width": 12}
    return rlcatalog_rllib.configure(config, "CartPole-v1", model=model)


@pytest.mark.attack
def test_a_plugins_model_is_used_by_name_on_another_node(local_ray, installed):
    bare = local_ray.get_runtime_context().get_node_id()
    with node(local_ray, installed) as equipped, found_here(installed):
        config = config_of().env_runners(num_env_runners=1)
        algo = (
            config.copy(copy_frozen=False)
            .env_runners(num_cpus_per_env_runner=0, custom_resources_per_env_runner={"compass": 1})
            .build_algo()
        )
        algo.train()
        models = algo.env_runner_group.foreach_env_runner(
            lambda r: [
                type(r.module.model).__module__,
                r.module.model.gated.out_features,
                local_ray.get_runtime_context().get_node_id(),
            ],
            local_env_runner=False,
        )
        algo.stop()
        with pytest.raises(MissingPluginError) as missing:
            config.build_algo()
    assert models == [["example_compass.torch", 24, equipped]]
    assert equipped != bare
    assert "example-compass" in str(missing.value)
    assert f"Ray node {bare}" in str(missing.value)


def test_a_checkpoint_whose_plugin_is_missing_is_refused(local_ray, installed, tmp_path):
    with found_here(installed):
        algo = config_of().build_algo()
        algo.save_to_path(str(tmp_path / "checkpoint"))
        algo.stop()
    with pytest.raises(MissingPluginError, match="example-compass is a third-party package"):
        Algorithm.from_checkpoint(tmp_path / "checkpoint")
