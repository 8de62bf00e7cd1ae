"""A third party's plugin under Stable-Baselines3: installed, named in the config,
imported nowhere.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import warm

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

from stable_baselines3 import PPO

import rlcatalog
from rlcatalog.errors import MissingPluginError, UnknownConfigKeyError
from rlcatalog_sb3 import CatalogPolicy

EXAMPLE = Path(__file__).resolve().parents[2] / "example"

TRAINING_SCRIPT = """
    import sys

    sys.path[:0] = sys.argv[2:]
    from stable_baselines3 import DQN, PPO
    from rlcatalog_sb3 import CatalogExtractor, CatalogPolicy, to_policy

    model = PPO(
        CatalogPolicy,
        "CartPole-v1",
        n_steps=32,
        batch_size=32,
        device="cpu",
        policy_kwargs={
            "model_config": {"custom_model": "example_compass_glu", "example_compass_width": 8}
        },
    )
    before = model.policy.model.get_weights()
    model.learn(64)
    assert any(
        (value != before[name]).any() for name, value in model.policy.model.get_weights().items()
    )
    print(type(model.policy.model).__module__, type(model.policy.model).__name__)
    to_policy(model).save(sys.argv[1] + "/policy")
    model.save(sys.argv[1] + "/algorithm.zip")

    chosen = {"model_config": {"custom_model": "example_compass_normalized"}}
    kwargs = {"features_extractor_class": CatalogExtractor, "features_extractor_kwargs": chosen}
    print(
        type(
            DQN("MlpPolicy", "CartPole-v1", policy_kwargs=kwargs).q_net.features_extractor.trunk
        ).__name__
    )
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Run the script where the example is installed, its package and its metadata; return what it
    printed and saved.
    """
    folder = tmp_path_factory.mktemp("example")
    metadata = folder / "site" / "example_compass-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: example-compass\nVersion: 1.0\n", encoding="utf-8"
    )
    (metadata / "entry_points.txt").write_text(
        "[rlcatalog.plugins]\ncompass = example_compass.plugin\n", encoding="utf-8"
    )
    where = map(str, (EXAMPLE / "src", folder / "site"))
    found = warm.run(["-c", textwrap.dedent(TRAINING_SCRIPT), str(folder), *where], folder)
    assert found.returncode == 0, found.stderr
    return found.stdout, folder


def test_a_third_partys_plugin_is_used_by_name_alone(trained):
    assert "import example_compass" not in TRAINING_SCRIPT
    assert trained[0].split() == ["example_compass.torch", "GatedNetwork", "NormalizedNetwork"]


def test_what_was_saved_names_the_plugin_that_is_missing_here(trained):
    with pytest.raises(MissingPluginError, match="example-compass"):
        rlcatalog.load(trained[1] / "policy")
    with pytest.raises(
        UnknownConfigKeyError, match="Unknown model config key 'example_compass_width'"
    ):
        PPO.load(trained[1] / "algorithm.zip")


def test_loading_the_plugin_imports_neither_torch_nor_stable_baselines():
    script = """
        import sys
        import rlcatalog

        records = rlcatalog.default_catalog().plugins
        assert [r.status for r in records if r.distribution == "rlcatalog-sb3"] == ["loaded"], (
            records
        )
        print(
            [name for name in ("torch", "stable_baselines3", "sb3_contrib") if name in sys.modules]
        )
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


ORDERS = {
    "ours last": "import stable_baselines3, sb3_contrib\nimport rlcatalog_sb3",
    "ours first, by a name": "from rlcatalog_sb3 import for_sb3\nimport stable_baselines3,"
    " sb3_contrib",
}
BY_NAME = """
    def made(algorithm, policy, **model_config):
        kwargs = {"model_config": model_config}
        print(
            type(
                algorithm(policy, "CartPole-v1", policy_kwargs=kwargs, device="cpu").policy
            ).__name__
        )


    made(stable_baselines3.PPO, "CatalogPolicy")
    made(stable_baselines3.A2C, "CatalogPolicy")
    made(sb3_contrib.RecurrentPPO, "CatalogRecurrentPolicy", use_lstm=True)
    made(sb3_contrib.MaskablePPO, "CatalogMaskablePolicy")
    import rlcatalog_sb3

    made(rlcatalog_sb3.RecurrentPPO, "CatalogRecurrentPolicy", use_lstm=True)
"""


@pytest.mark.parametrize(
    "order", ["ours last", pytest.param("ours first, by a name", marks=pytest.mark.attack)]
)
def test_policies_are_found_by_name_in_either_order(order, tmp_path):
    pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    program = ["-c", ORDERS[order] + textwrap.dedent(BY_NAME)]
    if order == "ours last":
        found = warm.run(program, tmp_path)  # a process that has imported Stable-Baselines3
    else:
        found = subprocess.run(
            [sys.executable, *program], cwd=tmp_path, capture_output=True, text=True
        )
    assert found.returncode == 0, found.stderr
    plain, memory, masked = "CatalogPolicy", "CatalogRecurrentPolicy", "CatalogMaskablePolicy"
    assert found.stdout.split() == [plain, plain, memory, masked, memory]


def test_the_package_alone_imports_neither_torch_nor_stable_baselines():
    script = """
        import sys
        import rlcatalog_sb3

        print(
            [name for name in ("torch", "stable_baselines3", "sb3_contrib") if name in sys.modules]
        )
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_an_algorithm_found_by_name_comes_back(tmp_path):
    model = PPO("CatalogPolicy", "CartPole-v1", device="cpu")
    model.save(tmp_path / "model.zip")
    assert (
        type(PPO.load(tmp_path / "model.zip", device="cpu").policy)
        is type(model.policy)
        is CatalogPolicy
    )


def test_an_sb3_contrib_that_cannot_be_imported_is_no_hindrance(tmp_path):
    (tmp_path / "sb3_contrib.py").write_text("raise RuntimeError('broken')\n", encoding="utf-8")
    script = """
        from rlcatalog_sb3 import for_sb3
        from stable_baselines3 import PPO
        print(type(PPO("CatalogPolicy", for_sb3("CartPole-v1"), device="cpu").policy).__name__)
    """
    found = warm.run(["-c", textwrap.dedent(script)], tmp_path)
    assert found.stdout.strip() == "CatalogPolicy", found.stderr
