"""A third party's plugin and the names of our policies under Stable-Baselines3, and what importing
this package imports.
"""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest
import warm

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

from stable_baselines3 import PPO

import rlcatalog
from rlcatalog.errors import MissingPluginError, UnknownConfigKeyError
from rlcatalog_sb3 import CatalogPolicy
from rlcatalog_sb3.algorithms import algorithm_class

#: The package example-compass, which registers the models and the key that the script uses.
EXAMPLE = Path(__file__).resolve().parents[2] / "example"

#: Arguments: a folder to save to, and folders for sys.path. It prints the models' classes.
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
    after = model.policy.model.get_weights()
    assert any((array != before[name]).any() for name, array in after.items())
    print(type(model.policy.model).__module__, type(model.policy.model).__name__)
    to_policy(model).save(sys.argv[1] + "/policy")
    model.save(sys.argv[1] + "/algorithm.zip")

    extractor_kwargs = {"model_config": {"custom_model": "example_compass_normalized"}}
    kwargs = {
        "features_extractor_class": CatalogExtractor,
        "features_extractor_kwargs": extractor_kwargs,
    }
    dqn = DQN("MlpPolicy", "CartPole-v1", policy_kwargs=kwargs)
    print(type(dqn.q_net.features_extractor.trunk).__name__)
"""


class TrainedWithPlugin(NamedTuple):
    output: str
    folder: Path


@pytest.fixture(scope="module")
def trained_with_plugin(tmp_path_factory):
    """Output and folder of TRAINING_SCRIPT, run in a process in which example-compass is
    installed, unlike here.
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
    script = textwrap.dedent(TRAINING_SCRIPT)
    arguments = [str(folder), str(EXAMPLE / "src"), str(folder / "site")]
    process = warm.run(["-c", script, *arguments], folder)
    assert process.returncode == 0, process.stderr
    return TrainedWithPlugin(process.stdout, folder)


def test_models_of_an_installed_plugin_are_found_by_name(trained_with_plugin):
    assert "import example_compass" not in TRAINING_SCRIPT

    names = trained_with_plugin.output.split()

    assert names == ["example_compass.torch", "GatedNetwork", "NormalizedNetwork"]


def test_saved_policy_names_its_missing_plugin(trained_with_plugin):
    with pytest.raises(MissingPluginError, match="example-compass"):
        rlcatalog.load(trained_with_plugin.folder / "policy")


def test_saved_algorithm_names_the_key_of_a_missing_plugin(trained_with_plugin):
    with pytest.raises(UnknownConfigKeyError, match="key 'example_compass_width'"):
        PPO.load(trained_with_plugin.folder / "algorithm.zip")


# --- names of our policies ------------------------------------------------------------------------

PRINT_POLICY_CLASSES = """
    def print_policy_class(algorithm, policy_name, **model_config):
        kwargs = {"model_config": model_config}
        model = algorithm(policy_name, "CartPole-v1", policy_kwargs=kwargs, device="cpu")
        print(type(model.policy).__name__)


    print_policy_class(stable_baselines3.PPO, "CatalogPolicy")
    print_policy_class(stable_baselines3.A2C, "CatalogPolicy")
    print_policy_class(sb3_contrib.RecurrentPPO, "CatalogRecurrentPolicy", use_lstm=True)
    print_policy_class(sb3_contrib.MaskablePPO, "CatalogMaskablePolicy")
    import rlcatalog_sb3

    print_policy_class(rlcatalog_sb3.RecurrentPPO, "CatalogRecurrentPolicy", use_lstm=True)
"""
#: The classes that PRINT_POLICY_CLASSES prints.
POLICY_CLASSES = [
    "CatalogPolicy",
    "CatalogPolicy",
    "CatalogRecurrentPolicy",
    "CatalogMaskablePolicy",
    "CatalogRecurrentPolicy",
]


def test_policies_are_found_by_name_if_imported_last(tmp_path):
    pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    imports = "import stable_baselines3, sb3_contrib\nimport rlcatalog_sb3"
    script = imports + textwrap.dedent(PRINT_POLICY_CLASSES)

    # In a process that has imported Stable-Baselines3 already.
    process = warm.run(["-c", script], tmp_path)

    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == POLICY_CLASSES


@pytest.mark.slow
def test_policies_are_found_by_name_if_imported_first(tmp_path):
    pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    imports = "from rlcatalog_sb3 import for_sb3\nimport stable_baselines3, sb3_contrib"
    # Build each algorithm with the name of a policy, and print the policy's class.
    script = imports + textwrap.dedent(PRINT_POLICY_CLASSES)

    process = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )

    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == POLICY_CLASSES


def test_algorithm_built_by_name_is_loaded_with_its_policy(tmp_path):
    model = PPO("CatalogPolicy", "CartPole-v1", device="cpu")
    model.save(tmp_path / "model.zip")

    loaded = PPO.load(tmp_path / "model.zip", device="cpu")

    assert type(model.policy) is CatalogPolicy
    assert type(loaded.policy) is CatalogPolicy


# --- imports --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "package", "needs_extra"),
    [("PPO", "stable_baselines3", False), ("TQC", "sb3_contrib", True)],
)
def test_missing_engine_has_its_install_line(algorithm, package, needs_extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)  # importing it is an error

    with pytest.raises(MissingPluginError, match="which is not installed") as caught:
        algorithm_class(algorithm)

    assert ("sb3[contrib]" in str(caught.value)) == needs_extra


def run_script(script):
    """Run a script in a new process and return what it prints."""
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    return process.stdout.strip()


def test_loading_the_plugin_imports_neither_torch_nor_sb3():
    script = """
        import sys
        import rlcatalog

        records = rlcatalog.default_catalog().plugins
        status = [r.status for r in records if r.distribution == "rlcatalog-sb3"]
        assert status == ["loaded"], records
        names = ("torch", "stable_baselines3", "sb3_contrib")
        print([name for name in names if name in sys.modules])
    """
    assert run_script(script) == "[]"


def test_importing_the_package_imports_neither_torch_nor_sb3():
    script = """
        import sys
        import rlcatalog_sb3

        names = ("torch", "stable_baselines3", "sb3_contrib")
        print([name for name in names if name in sys.modules])
    """
    assert run_script(script) == "[]"


def test_package_works_beside_a_broken_sb3_contrib(tmp_path):
    (tmp_path / "sb3_contrib.py").write_text("raise RuntimeError('broken')\n", encoding="utf-8")
    script = """
        from rlcatalog_sb3 import for_sb3
        from stable_baselines3 import PPO
        print(type(PPO("CatalogPolicy", for_sb3("CartPole-v1"), device="cpu").policy).__name__)
    """

    # The folder, in which the broken module is found first, is the working directory.
    process = warm.run(["-c", textwrap.dedent(script)], tmp_path)

    assert process.stdout.strip() == "CatalogPolicy", process.stderr
