"""The mirror of RLlib's modules: every name stands for something, and what is not
served says why.
"""

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
from rlcatalog_compat.names import known, modules, reasons

ROOT = Path(__file__).resolve().parents[3]
NAMES = [
    (path, name, target)
    for path, module in modules().items()
    for name, target in module.names.items()
]


def framework_of(target):
    last = re.split(r"[._]", target.partition(":")[0])[-1]
    return last if last in ("torch", "tf") else None


@pytest.mark.parametrize("framework", [None, "torch", "tf"])
def test_every_name_stands_for_what_the_table_says(framework):
    found = 0
    for path, name, target in NAMES:
        if framework_of(target) != framework:
            continue
        value = getattr(importlib.import_module(f"rlcatalog_compat.{path}"), name)
        home, _, attribute = target.partition(":")
        expected = getattr(importlib.import_module(home), attribute)
        # MODEL_DEFAULTS is fresh at each access.
        assert value is expected or value == expected, (path, name)
        found += 1
    assert found > 30


def test_every_name_of_the_table_is_one():
    for path, module in modules().items():
        for name in (*module.names, *module.refused):
            assert name.isidentifier(), (path, name)


def test_the_finder_knows_every_package_of_the_table():
    assert set(mirror.ROOTS) == {path.partition(".")[0] for path in (*known(), *reasons())}


def test_a_plugin_is_loaded_without_reading_the_table():
    code = "import sys, rlcatalog_compat.plugin\nprint('tomllib' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"


def test_importing_modules_imports_no_framework(tmp_path):
    code = (
        "import sys, rlcatalog_compat as ray\n"
        "import rlcatalog_compat.rllib.models.torch.misc, rlcatalog_compat.rllib.agents.ppo\n"
        "ray.init(num_cpus=1); ray.shutdown(); ray.rllib.models.torch;"
        "print({'torch', 'tensorflow', 'libcst', 'rlcatalog_ppo'} & set(sys.modules))"
    )
    done = warm.run(["-c", code], tmp_path, frameworks=False)
    assert done.stdout.strip() == "set()", done.stderr


@pytest.mark.parametrize(
    ("path", "name", "says"),
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
def test_what_is_not_served_says_why(path, name, says):
    with pytest.raises(ImportError, match=says) as raised:
        exec(f"from rlcatalog_compat.{path} import {name}")
    assert isinstance(raised.value, errors.CatalogError)


def test_an_attribute_that_is_not_served_is_an_attribute_error():
    module = importlib.import_module("rlcatalog_compat.rllib.models.torch.modules")
    with pytest.raises(AttributeError, match="rlcatalog-attention") as raised:
        module.GRUGate
    assert isinstance(raised.value, errors.CatalogError)
    assert not hasattr(importlib.import_module("rlcatalog_compat.tune"), "run")
    assert getattr(rlcatalog_compat, "get", None) is None


def test_a_name_is_no_module():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("rlcatalog_compat.rllib.models.torch.misc.SlimFC")


def test_names_of_pythons_own_are_plainly_missing():
    module = importlib.import_module("rlcatalog_compat.rllib.models.torch.misc")
    assert not hasattr(module, "__wrapped__")
    assert not hasattr(rlcatalog_compat, "_pytestfixturefunction")
    assert "SlimFC" in dir(module)
    assert "torch" in dir(importlib.import_module("rlcatalog_compat.rllib.models"))
    assert module.__all__ == sorted(modules()["rllib.models.torch.misc"].names)


def test_classes_of_a_missing_framework_can_be_derived_from(monkeypatch):
    def require(framework):
        if framework == "tf":
            raise errors.MissingFrameworkError("TensorFlow is not installed")

    monkeypatch.setattr(mirror, "require_framework", require)
    monkeypatch.setattr("rlcatalog_compat.frameworks.require_framework", require)
    base = importlib.import_module("rlcatalog_compat.rllib.models.tf.tf_modelv2").TFModelV2

    class Model(base):
        pass

    with pytest.raises(errors.MissingFrameworkError, match="Model: TensorFlow is not installed"):
        Model()
    imports = importlib.import_module("rlcatalog_compat.rllib.utils.framework")
    assert imports.try_import_tf() == (None, None, None)
    with pytest.raises(errors.MissingFrameworkError):
        imports.try_import_tf(error=True)


def test_without_pytorch_its_modules_are_stand_ins(monkeypatch):
    def require(framework):
        raise errors.MissingFrameworkError("PyTorch is not installed")

    monkeypatch.setattr("rlcatalog_compat.frameworks.require_framework", require)
    torch, nn = importlib.import_module("rlcatalog_compat.rllib.utils.framework").try_import_torch()
    assert torch is None
    with pytest.raises(errors.MissingFrameworkError):
        type("Net", (nn.Module,), {})()


def test_a_missing_package_is_named():
    with pytest.raises(
        errors.MissingPluginError, match="rlcatalog-nowhere is a third-party package"
    ):
        mirror.resolve("rlcatalog_nowhere:Thing", "Thing")


def test_every_reason_belongs_to_a_module_that_is_not_in_the_table():
    assert not [
        path
        for path in reasons()
        if modules().get(path) and modules()[path].refused.keys() & set(reasons())
    ]
    for path, module in modules().items():
        assert not module.names.keys() & module.refused.keys(), path
        first, _, last = module.layouts.partition("–")
        order = ["0.8", "1.13", "2.9", "2.60"]
        assert order.index(first) <= order.index(last), path


def test_page_and_stubs_are_fresh():
    spec = importlib.util.spec_from_file_location("porting_table", ROOT / "tools/porting_table.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    stale = [
        path
        for path, text in tool.files().items()
        if not path.exists() or path.read_text("utf-8") != text
    ]
    assert not stale, "run `make generate`"
