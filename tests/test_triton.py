"""triton before TensorFlow: the other order ends a process that then touches PyTorch's optimisers.

The real libraries meet in processes of their own. Which of them our code imports first is seen with empty packages of
their names, so that every door can be tried in one process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rlcatalog.errors import LoadOrderWarning
from rlcatalog.frameworks import load_order

ROOT = Path(__file__).resolve().parents[1]

#: Where requirements/dev.txt installs triton, its absence is a fault of the environment and no reason to skip.
HAS_WHEELS = sys.platform == "linux" and platform.machine() == "x86_64"
needs_triton = pytest.mark.skipif(
    not HAS_WHEELS and importlib.util.find_spec("triton") is None, reason="triton has no wheel for this machine"
)

ADAM = "import torch; w = torch.zeros(1, requires_grad=True); torch.optim.Adam([w]).step()"
BUILD = """import gymnasium, rlcatalog
spaces = gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2)"""


def run(code: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter, with folders in front of its path."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))} if paths else dict(os.environ)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, env=environ, cwd=ROOT
    )


# --- the real libraries ----------------------------------------------------------------------------------------------


@needs_triton
def test_tensorflow_first_ends_the_process():
    # What all of this is about. When it stops failing, so may we.
    done = run("import tensorflow; import triton; print('alive')")
    assert done.returncode < 0, done.stderr
    assert "alive" not in done.stdout


@needs_triton
def test_a_tensorflow_policy_and_then_a_torch_optimizer():
    done = run(f"{BUILD}\nrlcatalog.build(*spaces, framework='tf').act([[0.0] * 3])\n{ADAM}; print('alive')")
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


@needs_triton
def test_whoever_imported_tensorflow_first_is_warned_once_and_goes_on():
    done = run(
        "import tensorflow, warnings, sys\n"
        "flags = sys.getdlopenflags()\n"
        "from rlcatalog_ppo import PPO\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    for seed in range(2):\n"
        "        PPO('CartPole-v1', {'num_envs': 2, 'rollout_length': 8, 'minibatch_size': 8, 'seed': seed}).train()\n"
        "print([w.category.__name__ for w in seen if 'Order' in w.category.__name__], sys.getdlopenflags() == flags)"
    )
    assert (done.returncode, done.stdout) == (0, "['LoadOrderWarning'] True\n"), done.stderr


@needs_triton
def test_rllib_imported_first_is_warned_of_and_goes_on():
    pytest.importorskip("ray", reason="Ray is not installed")
    done = run(
        "import warnings\n"
        "from ray.rllib.algorithms.ppo import PPOConfig\n"
        "import rlcatalog_rllib\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    rlcatalog_rllib.spec\n"
        f"{ADAM}\n"
        "torch.use_deterministic_algorithms(True)\n"  # as Ray does, where there is a seed
        "print([w.category.__name__ for w in seen if 'Order' in w.category.__name__])"
    )
    assert (done.returncode, done.stdout) == (0, "['LoadOrderWarning']\n"), done.stderr


# --- what is imported first, seen with empty packages ----------------------------------------------------------------

#: Imports each module by name, and says whether triton was there when it asked for TensorFlow or Keras.
PROBE = """
import importlib, json, sys
import numpy, gymnasium
found = {}
for name in json.loads(sys.argv[1]):
    for module in [m for m in sys.modules if m == "triton" or m.startswith(("rlcatalog_tf", "rlcatalog_"))]:
        del sys.modules[module]
    sys.meta_path = [finder for finder in sys.meta_path if "load_order" not in type(finder).__module__]
    sys.asked = []
    try:
        importlib.import_module(name)
    except ImportError:
        pass
    found[name] = sys.asked
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def impostors(tmp_path_factory) -> Path:
    """A folder with an empty triton, and with a TensorFlow and what imports it, which note how it was asked for."""
    folder = tmp_path_factory.mktemp("impostors")
    for name, text in {
        "triton": "",
        "ray": "",
        "tensorflow": "import sys\nsys.asked.append('triton' in sys.modules)\nraise ImportError('an impostor')\n",
        "keras": "import tensorflow\n",
        **dict.fromkeys(["ray.rllib", "stable_baselines3", "sb3_contrib", "stranger"], "import tensorflow\n"),
    }.items():
        package = folder.joinpath(*name.split("."))
        package.mkdir()
        (package / "__init__.py").write_text(text, encoding="utf-8")
    return folder


def sources() -> list[Path]:
    """All files of the packages."""
    return [path for pattern in ("catalog", "builtin_*/*", "plugins/*") for path in ROOT.glob(f"{pattern}/src/**/*.py")]


def dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[parts.index("src") + 1 :]).removesuffix(".__init__")


def test_every_module_that_imports_tensorflow_has_triton_first(impostors):
    ours = [dotted(path) for path in sources() if path.stem == "tf" or "tf" in path.parts]
    ours = [name for name in ours if not name.startswith("compass_agents")]  # a stranger's
    assert len(ours) > 20
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(ours)],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(impostors)}, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [name for name in ours if False in found[name]] == []
    assert sum(found[name] != [] for name in ours) > 20


def test_a_strangers_target_has_triton_first(impostors):
    done = run(
        "import sys; sys.asked = []\n"
        "from rlcatalog import ModelSpec\n"
        "from rlcatalog.errors import PluginError\n"
        "from rlcatalog.plugins.registry import Component\n"
        "component = Component(ModelSpec('net', {'tf': 'stranger:Net'}, 'A net.'), 'stranger', '1.0')\n"
        "before = 'triton' in sys.modules\n"
        "try: component.load('tf')\n"
        "except PluginError: print(before, sys.asked)",
        impostors,
    )
    assert (done.returncode, done.stdout) == (0, "False [True]\n"), done.stderr


@pytest.mark.parametrize("bridge", ["rllib", "sb3"])
def test_bridges_to_what_imports_tensorflow_have_triton_first(bridge, impostors):
    """Every module of theirs, each imported first in its process as one that is unpickled is."""
    names = [dotted(path) for path in sources() if f"rlcatalog_{bridge}" in path.parts]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(names)],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(impostors)}, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    order = json.loads(done.stdout)
    assert [name for name in names if False in order[name]] == []
    assert sum(order[name] != [] for name in names) > 5


def test_our_own_code_takes_tensorflow_from_the_kernel():
    kernel, stranger = ROOT / "plugins/tf/src/rlcatalog_tf", ROOT / "plugins/example"
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in [*sources(), *ROOT.glob("examples/**/*.py")]
        if kernel not in path.parents and stranger not in path.parents
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.match(r"\s*(import|from) (tensorflow|keras)\b", line)
    ]
    assert wrong == []


@pytest.mark.parametrize("code", [
    "import rlcatalog",
    "import rlcatalog; rlcatalog.default_catalog().components()",
    f"{BUILD}\nrlcatalog.explain(*spaces, framework='tf')",
    f"{BUILD}\nrlcatalog.build(*spaces, framework='torch')",
    "import rlcatalog_sb3, rlcatalog_rllib, rlcatalog_ppo",
], ids=["import", "list", "explain", "torch", "packages"])  # fmt: skip
def test_triton_is_left_alone_where_tensorflow_is_not_wanted(code, impostors):
    done = run(f"import sys; sys.asked = []\n{code}\nprint('triton' in sys.modules, sys.asked)", impostors)
    assert (done.returncode, done.stdout) == (0, "False []\n"), done.stderr


# --- one library before another ---------------------------------------------------------------------------------------


@pytest.fixture
def libraries(tmp_path):
    """A folder with two modules that note when they run."""
    for name in ("early", "late"):
        (tmp_path / f"{name}.py").write_text(f"import sys; sys.ran.append({name!r})\n", encoding="utf-8")
    return tmp_path


ORDER = """
import importlib.util, sys
sys.ran = []
from rlcatalog.frameworks import load_first
for _ in range(2):
    load_first("early", before="late")
finders = len(sys.meta_path)
"""


@pytest.mark.parametrize(
    ("code", "ran"),
    [
        ("", []),
        ("importlib.util.find_spec('late')", []),
        ("import early", ["early"]),
        ("import late", ["early", "late"]),
        ("import early, late, early", ["early", "late"]),
        ("import late; importlib.reload(late)", ["early", "late", "late"]),
        ("import late; load_first('early', before='late'); import late", ["early", "late"]),
        ("assert importlib.util.find_spec('late').loader.get_source('late')", []),
    ],
)
def test_a_library_is_loaded_before_the_other_and_with_it_alone(code, ran, libraries):
    done = run(f"{ORDER}{code}\nprint(sys.ran)", libraries)
    assert (done.returncode, done.stdout) == (0, f"{ran}\n"), done.stderr


@pytest.mark.parametrize("missing", ["early", "late"])
def test_a_missing_library_changes_nothing(missing, libraries):
    (libraries / f"{missing}.py").unlink()
    code = "try:\n    import late\nexcept ModuleNotFoundError as error: print(error)\nprint(sys.ran)"
    done = run(ORDER + code, libraries)
    expected = {"early": "['late']\n", "late": "No module named 'late'\n[]\n"}
    assert (done.returncode, done.stdout) == (0, expected[missing]), done.stderr


def test_asking_twice_for_one_order_changes_nothing(libraries):
    done = run(f"{ORDER}load_first('early', before='late')\nprint(len(sys.meta_path) - finders)", libraries)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_a_triton_that_cannot_be_imported_does_no_harm(tmp_path):
    for name, text in {"triton": "raise RuntimeError('broken')", "tensorflow": ""}.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    done = run("from rlcatalog.frameworks import before_tensorflow as b; b(); import tensorflow; print('on')", tmp_path)
    assert (done.returncode, done.stdout) == (0, "on\n"), done.stderr


# --- who warns -------------------------------------------------------------------------------------------------------


@pytest.fixture
def too_late(monkeypatch):
    """TensorFlow came first, as far as the kernel sees; what is imported stays as it is."""
    monkeypatch.setattr(load_order, "came_first", lambda early, late: True)
    monkeypatch.setattr(load_order, "_import", lambda module: None)
    load_order._warn.cache_clear()
    yield
    load_order._warn.cache_clear()


def make_sb3(algorithm, policy, **kwargs):
    import stable_baselines3

    return getattr(stable_baselines3, algorithm)(policy, "CartPole-v1", device="cpu", policy_kwargs=kwargs)


def sb3_policy():
    from rlcatalog_sb3 import CatalogPolicy

    make_sb3("PPO", CatalogPolicy)


def sb3_features():
    from rlcatalog_sb3 import CatalogExtractor

    make_sb3("DQN", "MlpPolicy", features_extractor_class=CatalogExtractor)


def ppo():
    from rlcatalog_ppo import PPO

    PPO("CartPole-v1")


@pytest.mark.parametrize("make", [ppo, sb3_policy, sb3_features])
def test_a_warning_comes_before_the_optimizer(make, too_late):
    with pytest.warns(LoadOrderWarning, match="put `import triton` in front of what imports tensorflow"):
        make()


def test_no_warning_where_all_is_well():
    ppo()


@pytest.mark.parametrize(
    ("triton", "tensorflow", "late"), [(True, True, False), (False, True, True), (False, False, False)]
)
def test_it_is_too_late_when_tensorflow_is_there_and_triton_is_not(triton, tensorflow, late, monkeypatch):
    for name, there in (("triton", triton), ("tensorflow", tensorflow)):
        if there:
            monkeypatch.setitem(sys.modules, name, sys)
        else:
            monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert load_order.came_first("tensorflow", "triton") is late
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert load_order.came_first("tensorflow", "triton") is False


# --- what the page says ----------------------------------------------------------------------------------------------


def test_the_page_on_installing_names_the_pinned_pytorch():
    pins = [line for line in (ROOT / "requirements/demo.txt").read_text().splitlines() if line.startswith("torch==")]
    assert len(pins) == 1
    assert f"`{pins[0]}`" in (ROOT / "docs/start.md").read_text()


@pytest.mark.skipif(not HAS_WHEELS, reason="the wheel is for Linux on x86_64")
def test_the_pinned_triton_is_the_one_pytorch_wants():
    lines = (ROOT / "requirements/dev.txt").read_text().splitlines()
    (pinned,) = [Requirement(line) for line in lines if line.startswith("triton==")]
    assert pinned.marker.evaluate()
    assert pinned.specifier.contains(metadata.version("triton"))
    wanted = [Requirement(line) for line in metadata.requires("torch") or () if line.startswith("triton")]
    # The CPU build wants none, whichever PyTorch it is.
    assert [need for need in wanted if not need.specifier.contains(metadata.version("triton"))] == []
