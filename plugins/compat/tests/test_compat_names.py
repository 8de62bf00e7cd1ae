"""RLlib's modules under rlcatalog_compat: their names, and reasons for missing ones."""

import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import warm

import rlcatalog_compat
from rlcatalog import errors
from rlcatalog_compat import mirror
from rlcatalog_compat.names import modules, reasons, supported_paths

ROOT = Path(__file__).resolve().parents[3]
NAMES = [
    (path, name, target)
    for path, module in modules().items()
    for name, target in module.names.items()
]


def get_framework(target):
    """Return the framework in the name of a module, or None."""
    last = re.split(r"[._]", target.partition(":")[0])[-1]
    return last if last in ("torch", "tf") else None


# --- the table of names ---------------------------------------------------------------------------


@pytest.mark.parametrize("framework", [None, "torch", "tf"])
def test_names_are_the_objects_of_the_table(framework):
    names = [entry for entry in NAMES if get_framework(entry[2]) == framework]

    assert len(names) > 30
    for path, name, target in names:
        value = getattr(importlib.import_module(f"rlcatalog_compat.{path}"), name)
        home, _, attribute = target.partition(":")
        expected = getattr(importlib.import_module(home), attribute)
        # MODEL_DEFAULTS is a new dictionary at each access.
        assert value is expected or value == expected, (path, name)


def test_names_of_the_table_are_identifiers():
    for path, module in modules().items():
        for name in (*module.names, *module.refused):
            assert name.isidentifier(), (path, name)


def test_names_of_the_table_are_either_present_or_refused():
    for path, module in modules().items():
        assert not module.names.keys() & module.refused.keys(), path


def test_layouts_of_the_table_go_from_older_to_newer():
    versions = ["0.8", "1.13", "2.9", "2.60"]

    for path, module in modules().items():
        first, _, last = module.layouts.partition("–")
        assert versions.index(first) <= versions.index(last), path


def test_reasons_are_for_modules_without_refused_names():
    paths = []
    for path in reasons():
        module = modules().get(path)
        if module and module.refused.keys() & set(reasons()):
            paths.append(path)

    assert paths == []


def test_finder_knows_every_package_of_the_table():
    packages = {path.partition(".")[0] for path in (*supported_paths(), *reasons())}

    assert set(mirror.ROOTS) == packages


def test_page_and_stubs_are_generated_from_the_table():
    spec = importlib.util.spec_from_file_location("porting_table", ROOT / "tools/porting_table.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)

    stale_files = []
    for path, generated_text in tool.files().items():
        if not path.exists() or path.read_text("utf-8") != generated_text:
            stale_files.append(path)

    assert not stale_files, "run `make generate`"


# --- imports --------------------------------------------------------------------------------------


def test_plugin_loads_without_reading_the_table():
    code = "import sys, rlcatalog_compat.plugin\nprint('tomllib' in sys.modules)"

    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert process.stdout.strip() == "False"


#: Prints which of four packages are imported.
IMPORT_MODULES = """
import sys
import rlcatalog_compat as ray
import rlcatalog_compat.rllib.models.torch.misc, rlcatalog_compat.rllib.agents.ppo

ray.init(num_cpus=1)
ray.shutdown()
ray.rllib.models.torch
print({"torch", "tensorflow", "libcst", "rlcatalog_ppo"} & set(sys.modules))
"""


def test_modules_load_without_frameworks(tmp_path):
    process = warm.run(["-c", IMPORT_MODULES], tmp_path, frameworks=False)

    assert process.stdout.strip() == "set()", process.stderr


@pytest.mark.parametrize(
    ("path", "name", "reason"),
    [
        ("rllib.models.torch.modules", "GRUGate", "rlcatalog-attention"),
        ("rllib.models.torch.misc", "SlimFCC", "Did you mean 'SlimFC'"),
        ("rllib.agents.ppo.ppo_torch_policy", "PPOTorchPolicy", "losses and learning steps"),
        ("rllib.core.rl_module", "RLModule", "RLModule"),
        ("rllib.models", "Model", "derive from TorchModelV2"),
        ("rllib.nowhere", "x", "unknown to rlcatalog-compat"),
        ("tune", "run", "Ray's experiments"),
        ("train", "Checkpoint", "Ray's experiments"),
    ],
)
def test_import_of_a_missing_name_says_why(path, name, reason):
    with pytest.raises(ImportError, match=reason) as caught:
        exec(f"from rlcatalog_compat.{path} import {name}")

    assert isinstance(caught.value, errors.CatalogError)


def test_missing_name_is_an_attribute_error_with_its_reason():
    module = importlib.import_module("rlcatalog_compat.rllib.models.torch.modules")

    with pytest.raises(AttributeError, match="rlcatalog-attention") as caught:
        module.GRUGate

    assert isinstance(caught.value, errors.CatalogError)


def test_hasattr_and_getattr_do_not_find_missing_names():
    assert not hasattr(importlib.import_module("rlcatalog_compat.tune"), "run")
    assert getattr(rlcatalog_compat, "get", None) is None


def test_name_is_not_a_module():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("rlcatalog_compat.rllib.models.torch.misc.SlimFC")


def test_special_names_are_missing_without_a_reason():
    module = importlib.import_module("rlcatalog_compat.rllib.models.torch.misc")

    assert not hasattr(module, "__wrapped__")
    assert not hasattr(rlcatalog_compat, "_pytestfixturefunction")


def test_dir_and_all_list_the_names_of_a_module():
    module = importlib.import_module("rlcatalog_compat.rllib.models.torch.misc")

    assert "SlimFC" in dir(module)
    assert module.__all__ == sorted(modules()["rllib.models.torch.misc"].names)


def test_dir_lists_modules_of_a_package():
    assert "torch" in dir(importlib.import_module("rlcatalog_compat.rllib.models"))


# --- missing frameworks and packages --------------------------------------------------------------


@pytest.fixture
def without_tensorflow(monkeypatch):
    """As if TensorFlow were not installed."""

    def require(framework):
        if framework == "tf":
            raise errors.MissingFrameworkError("TensorFlow is not installed")

    monkeypatch.setattr(mirror, "require_framework", require)
    monkeypatch.setattr("rlcatalog_compat.frameworks.require_framework", require)


@pytest.mark.usefixtures("without_tensorflow")
def test_class_of_a_missing_framework_can_be_derived_from():
    base = importlib.import_module("rlcatalog_compat.rllib.models.tf.tf_modelv2").TFModelV2

    class Model(base):
        pass

    with pytest.raises(errors.MissingFrameworkError, match="Model: TensorFlow is not installed"):
        Model()


@pytest.mark.usefixtures("without_tensorflow")
def test_try_import_tf_without_tensorflow_returns_none():
    imports = importlib.import_module("rlcatalog_compat.rllib.utils.framework")

    assert imports.try_import_tf() == (None, None, None)


@pytest.mark.usefixtures("without_tensorflow")
def test_try_import_tf_without_tensorflow_raises_if_told_to():
    imports = importlib.import_module("rlcatalog_compat.rllib.utils.framework")

    with pytest.raises(errors.MissingFrameworkError):
        imports.try_import_tf(error=True)


def test_try_import_torch_without_pytorch_returns_placeholders(monkeypatch):
    def require(framework):
        raise errors.MissingFrameworkError("PyTorch is not installed")

    # As if PyTorch were not installed.
    monkeypatch.setattr("rlcatalog_compat.frameworks.require_framework", require)
    imports = importlib.import_module("rlcatalog_compat.rllib.utils.framework")

    torch, nn = imports.try_import_torch()

    class Net(nn.Module):
        pass

    assert torch is None
    with pytest.raises(errors.MissingFrameworkError):
        Net()


def test_missing_package_of_a_name_is_an_error():
    with pytest.raises(errors.MissingPluginError, match="is a third-party package") as caught:
        mirror.resolve("rlcatalog_nowhere:Thing", "Thing")

    assert "rlcatalog-nowhere is a third-party" in str(caught.value)
