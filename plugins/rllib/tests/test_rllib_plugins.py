"""A third party's plugin under RLlib: on one node of a cluster, missing on another, and at a
checkpoint.
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
def site_folder(tmp_path_factory):
    """A folder in which example-compass is installed, version 3.1."""
    folder = tmp_path_factory.mktemp("compass")
    shutil.copytree(EXAMPLE, folder / "example_compass")
    info = folder / "example_compass-3.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example-compass\nVersion: 3.1\n")
    (info / "entry_points.txt").write_text(
        "[rlcatalog.plugins]\ncompass = example_compass.plugin\n"
    )
    return folder


def forget_plugin():
    """Forget the plugin in this process, and which plugins are installed."""
    default_catalog.cache_clear()
    scan.cache_clear()
    for name in list(sys.modules):
        if name.partition(".")[0] == "example_compass":
            del sys.modules[name]


@contextmanager
def plugin_in_this_process(site_folder):
    """Context manager in which this process has the plugin."""
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(site_folder))
            forget_plugin()
            yield
    finally:
        forget_plugin()


@contextmanager
def node_with_plugin(ray, site_folder):
    """Context manager that adds a second node, which has the plugin, and yields its id.

    Only work that requires the resource "compass" runs there.
    """
    cluster = Cluster(shutdown_at_exit=False)
    cluster.head_node = ray._private.worker._global_node
    added = cluster.add_node(
        wait=False,
        num_cpus=0,
        resources={"compass": 1},
        env_vars={"PYTHONPATH": str(site_folder)},
        object_store_memory=100 * 2**20,
    )
    try:
        yield wait_for_node(ray, resource="compass", seconds=100)
    finally:
        added.kill_all_processes(check_alive=False, allow_graceful=True)


def wait_for_node(ray, resource, seconds):
    """Return the id of the node that has a resource, once it has started."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for node in ray.nodes():
            if resource in node["Resources"]:
                return node["NodeID"]
        time.sleep(0.1)
    raise TimeoutError("the node did not start")


def configure_with_plugin(width=12):
    """Configure PPO with the plugin's model."""
    config = PPOConfig().env_runners(num_env_runners=0, num_envs_per_env_runner=1)
    config.training(train_batch_size_per_learner=100, minibatch_size=50, num_epochs=1)
    model = {"custom_model": "example_compass_glu", "example_compass_width": width}
    return rlcatalog_rllib.configure(config, "CartPole-v1", model=model)


@pytest.mark.slow
def test_model_of_a_plugin_is_used_by_name_on_another_node(local_ray, site_folder):
    def describe_runner(runner):
        model = runner.module.model
        node = local_ray.get_runtime_context().get_node_id()
        return type(model).__module__, model.gated.out_features, node

    with (
        node_with_plugin(local_ray, site_folder) as other_node,
        plugin_in_this_process(site_folder),
    ):
        # A runner that requires the resource "compass" runs on the other node.
        config = configure_with_plugin(width=12).env_runners(
            num_env_runners=1,
            num_cpus_per_env_runner=0,
            custom_resources_per_env_runner={"compass": 1},
        )
        algorithm = config.build_algo()
        algorithm.train()
        descriptions = algorithm.env_runner_group.foreach_env_runner(
            describe_runner, local_env_runner=False
        )
        algorithm.stop()

    assert other_node != local_ray.get_runtime_context().get_node_id()
    # A gated layer has twice as many outputs as its width, here 12.
    assert descriptions == [("example_compass.torch", 24, other_node)]


@pytest.mark.slow
def test_error_names_the_node_without_a_plugin(local_ray, site_folder):
    node = local_ray.get_runtime_context().get_node_id()

    with plugin_in_this_process(site_folder):
        config = configure_with_plugin().env_runners(num_env_runners=1)
        # The runner's process does not have the plugin.
        with pytest.raises(MissingPluginError, match="example-compass") as caught:
            config.build_algo()

    assert f"Ray node {node}" in str(caught.value)


def test_checkpoint_names_its_missing_plugin(local_ray, site_folder, tmp_path):
    with plugin_in_this_process(site_folder):
        algorithm = configure_with_plugin().build_algo()
        algorithm.save_to_path(str(tmp_path / "checkpoint"))
        algorithm.stop()

    with pytest.raises(MissingPluginError, match="example-compass is a third-party package"):
        Algorithm.from_checkpoint(tmp_path / "checkpoint")
