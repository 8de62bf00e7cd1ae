"""Private names of other libraries: only the packages' `private_api.py` use them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path, PurePosixPath

import pytest
import warm
from house_code import Source, read_sources
from private_uses import private_uses, private_uses_of_bases

from rlcatalog.private_names import PrivateNames

ROOT = Path(__file__).resolve().parents[2]

#: Uses of private names in other files → why they may stay.
ALLOWED = {
    "catalog/src/rlcatalog/plugins/discovery.py _normalized_name": "Python's importlib.metadata"
    " finds plugins without reading the headers of all packages; without the name, it reads them",
    "plugins/torch/src/rlcatalog_torch/load_order.py tensorflow.python": "private_api.py imports"
    " PyTorch, before which the file is read; without the name, triton is not isolated",
}
#: Methods that a library documents for subclasses to override → where its classes are defined.
EXTENSION_POINTS = {
    "_forward_inference": "ray.rllib.core.rl_module.",
    "_forward_exploration": "ray.rllib.core.rl_module.",
    "_forward_train": "ray.rllib.core.rl_module.",
    "_on_step": "stable_baselines3.common.callbacks.",
    "_on_rollout_start": "stable_baselines3.common.callbacks.",
    "_on_rollout_end": "stable_baselines3.common.callbacks.",
}
#: Package → the libraries whose private names its `private_api.py` contains.
LIBRARIES = {
    "rlcatalog_torch": ["torch"],
    "rlcatalog_tf": ["tensorflow", "tf_keras"],
    "rlcatalog_rllib": ["ray"],
    "rlcatalog_sb3": ["stable-baselines3"],
    "rlcatalog_ppo": ["gymnasium"],
    "rlcatalog_atari": ["ale-py"],
    "rlcatalog_skrl": ["skrl"],
}


def write(text, path="plugins/torch/src/rlcatalog_torch/nn.py"):
    """Return a source file with a text."""
    return Source(PurePosixPath(path), text)


def is_extension_point(use):
    """Return whether a library documents the private name in a use of a base class."""
    name, _, base = use.partition(": ")[2].partition(" of ")
    return name in EXTENSION_POINTS and base.startswith(EXTENSION_POINTS[name])


def test_private_names_are_used_in_private_api_alone():
    uses = private_uses(read_sources(ROOT))
    others = [use for use in uses if re.sub(r":\d+", "", use) not in ALLOWED]
    assert others == [], "Move these uses to the package's private_api.py, or use a public name."


def test_bases_from_libraries_lend_no_private_names(tmp_path):
    # In a process of its own, because other tests change classes.
    process = warm.run([str(ROOT / "tools/private_uses.py")], tmp_path)
    assert process.returncode == 0, process.stderr
    uses = [line for line in process.stdout.splitlines() if " of " in line]
    others = [use for use in uses if not is_extension_point(use)]
    assert len(uses) > len(EXTENSION_POINTS)  # the tool has found the classes
    assert others == [], "Move these uses to a class in the package's private_api.py."


def pinned_version(library):
    """Return the version of a library that the tests are run with."""
    pins = "".join(path.read_text("utf-8") for path in (ROOT / "requirements").glob("*.txt"))
    (version,) = set(re.findall(rf"^{library}==([^\s;]+)", pins, re.M))
    return version


@pytest.mark.parametrize("package", LIBRARIES)
def test_private_api_gives_the_versions_that_are_tested(package):
    if package == "rlcatalog_skrl":  # skrl is in a folder of its own
        pytest.importorskip("skrl")
    module = importlib.import_module(f"{package}.private_api")

    for library in LIBRARIES[package]:
        version = pinned_version(library)
        assert version in module.__doc__, f"{package} was not tried with {library} {version}"


@pytest.mark.parametrize("package", LIBRARIES)
def test_private_names_give_the_versions_that_are_tested(package):
    if package == "rlcatalog_skrl":  # skrl is in a folder of its own
        pytest.importorskip("skrl")
    module = importlib.import_module(f"{package}.private_api")

    for names in vars(module).values():
        if isinstance(names, PrivateNames) and names.library in LIBRARIES[package]:
            assert names.tried == pinned_version(names.library)


def test_private_api_files_are_all_listed():
    files = {path.parent.name for path in ROOT.glob("*/*/src/*/private_api.py")}
    assert files == set(LIBRARIES)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("import torch._dynamo", "torch._dynamo"),
        ("from torch._C import Tag", "torch._C.Tag"),
        ("from ray.tune.registry import _global_registry", "ray.tune.registry._global_registry"),
        ("from keras.src.models import Functional", "keras.src.models.Functional"),
        ("torch._C._get_tracing_state()", "torch._C._get_tracing_state"),
        ("tensor._version", "tensor._version"),
        ("envs._state = None", "envs._state"),
        ("buffer._get_samples = patched", "buffer._get_samples"),
        ("getattr(game, '_frameskip', 1)", "_frameskip"),
        ("setattr(game, '_frameskip', 1)", "_frameskip"),
        ("operator.attrgetter('grad._version')", "_version"),
        ("module.__dict__['_modules']", "_modules"),
        ("'_modules' in vars(module)", "_modules"),
        (
            "importlib.import_module('tensorflow.python.framework')",
            "tensorflow.python.framework",
        ),
        ("resolve('torch:_standard_gamma')", "torch._standard_gamma"),
    ],
)
def test_private_use_is_found(line, name):
    source = write(f"def run():\n    {line}\n")
    assert f"{source.path}:2 {name}" in private_uses([source])


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.add(1, 2)",
        "from rlcatalog_torch._tables import rows",
        "class Net:\n    def _run(self): ...\n    def run(self, other): other._run()",
        "class Net:\n    def __init__(self): self._rows = 1\nrows = lambda net: net._rows",
        "sys._getframe(1)\npoint._replace(x=1)",
        "net._rlcatalog_bookkeeping.part",
        "'_softmax'",
        "'a sentence about torch._C'",
        "module.__dict__['weight']",
    ],
)
def test_public_and_own_names_are_not_found(text):
    assert private_uses([write(text)]) == []


def test_names_of_the_kernel_are_every_package_s_own():
    kernel = write("class Codec:\n    _low = 0", "catalog/src/rlcatalog/spaces/codec.py")
    other = write("class Net:\n    _high = 0", "plugins/tf/src/rlcatalog_tf/nn.py")
    source = write("codec._low\nnet._high")
    assert private_uses([kernel, other, source]) == [f"{source.path}:2 net._high"]


def test_private_api_may_use_private_names_but_owns_none():
    path = "plugins/torch/src/rlcatalog_torch/private_api.py"
    home = write("class Movable:\n    def _apply(self): torch._C.run()", path)
    source = write("module._apply(convert)")
    assert private_uses([home, source]) == [f"{source.path}:1 module._apply"]


class _Pool(pytest.Module):
    """Class that inherits from a library's, with some private names of it."""

    _collection = None  # our own

    def _getobj(self):
        """Override."""

    def size(self):
        return self._collection, self._obj, self._importconftest


def test_private_names_of_a_base_are_found_in_a_class():
    uses = private_uses_of_bases([_Pool])
    here = f"{__name__}._Pool"
    assert f"{here}: _getobj of _pytest.python.Module" in uses
    assert f"{here}: _obj of _pytest.python.PyobjMixin" in uses
    assert not [use for use in uses if "_collection" in use or "_importconftest" in use]
