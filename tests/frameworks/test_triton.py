"""triton before TensorFlow: the other order ends a process that then uses PyTorch's optimisers.

The real libraries are imported in child processes. Which of them our code imports first is tried
with empty packages of their names, so that all modules can be tried in one process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]

#: Where requirements/dev.txt installs triton, its absence is a fault of the environment and no
#: reason to skip.
HAS_WHEELS = sys.platform == "linux" and platform.machine() == "x86_64"
needs_triton = pytest.mark.skipif(
    not HAS_WHEELS and importlib.util.find_spec("triton") is None,
    reason="triton has no wheel for this machine",
)

ADAM = "import torch; w = torch.zeros(1, requires_grad=True); torch.optim.Adam([w]).step()"
BUILD = """import gymnasium, rlcatalog
spaces = gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2)"""


def run(code: str, *paths: Path, arguments: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter, with folders in front of its path."""
    environ = dict(os.environ)
    if paths:
        environ["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env=environ,
        cwd=ROOT,
    )


def assert_prints(process: subprocess.CompletedProcess[str], output: str) -> None:
    """Assert that a program ended without an error and printed this."""
    assert process.returncode == 0, process.stderr
    assert process.stdout == output, process.stderr


# --- the real libraries ---------------------------------------------------------------------------


#: Imports a module that imports TensorFlow before all else; then each program is run in a process
#: forked from this one, whose exit code and output it prints.
TENSORFLOW_FIRST = """
import importlib, json, os, sys, tempfile
importlib.import_module(sys.argv[2])
for program in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        if (pid := os.fork()) == 0:
            os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
            code = 1
            try:
                exec(program, {"__name__": "__main__"})
                code = 0
            except BaseException:
                import traceback
                traceback.print_exc()
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0), err.seek(0)
        print(json.dumps([code, out.read(), err.read()]))
"""

#: The paths on which PyTorch may import triton. With `policy` below, each acts for itself.
PATHS = {
    "act": "policy.act([[0.0] * 3])",
    "load": "policy.save('saved'); rlcatalog.load('saved').act([[0.0] * 3])",
    "freeze": "policy.freeze(1).act([[0.0] * 3])",
    "export to ONNX": "policy.export('policy.onnx')",
    "export to torch.export": "policy.export('policy.pt2')",
    "evaluate": "policy.evaluate({'obs': obs, 'raw_action': policy.act(obs).raw_action})",
    "own optimizer": "torch.optim.Adam(policy.model.parameters()).step()",
    "torch.compile": "torch.compile(policy.as_module(), backend='eager')(torch.zeros(1, 3))",
    "train": "from rlcatalog_ppo import PPO; PPO('CartPole-v1', SMALL).train()",
    "Stable-Baselines3": """
import stable_baselines3
from rlcatalog_sb3 import CatalogPolicy
stable_baselines3.PPO(CatalogPolicy, "CartPole-v1", n_steps=8, batch_size=8).learn(8)
""",
    "determinism": "torch.use_deterministic_algorithms(True)  # as Ray does, where there is a seed",
}
#: What each of them prints: the categories of the warnings about the order, whether triton was
#: imported, and whether the flags for libraries are as they were.
ON_A_PATH = f"""
import os, sys, tempfile, warnings

flags = sys.getdlopenflags()
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    {BUILD.replace(chr(10), chr(10) + "    ")}
    import numpy, torch
    os.chdir(tempfile.mkdtemp())
    policy = rlcatalog.build(*spaces, {{"fcnet_hiddens": [8]}}, framework="torch")
    obs = numpy.zeros((2, 3), numpy.float32)
    SMALL = {{"num_envs": 2, "rollout_length": 8, "minibatch_size": 8}}
    exec(CODE)
order = [w.category.__name__ for w in seen if "Order" in w.category.__name__]
print(order, "triton" in sys.modules, sys.getdlopenflags() == flags)
"""
#: The paths that are known to import triton with the tested PyTorch.
IMPORT_TRITON = ["export to ONNX", "export to torch.export", "own optimizer", "torch.compile"]


class Ending(NamedTuple):
    """How a program ended."""

    code: int
    output: str
    errors: str


def run_after(module: str, *programs: str) -> list[Ending]:
    """Run programs in processes in which a module has imported TensorFlow first."""
    process = run(TENSORFLOW_FIRST, arguments=[json.dumps(programs), module])
    assert process.returncode == 0, process.stderr
    return [Ending(*json.loads(line)) for line in process.stdout.splitlines()]


@pytest.fixture(scope="module")
def endings() -> dict[str, Ending]:
    """How each path ends after `import tensorflow`."""
    programs = [f"CODE = {code!r}\n{ON_A_PATH}" for code in PATHS.values()]
    return dict(zip(PATHS, run_after("tensorflow", *programs), strict=True))


@pytest.mark.slow  # a test below shows who warns
@needs_triton
def test_tensorflow_first_ends_a_process_without_rlcatalog():
    # If this fails one day, the order does not matter any more, and the guard can go.
    (ending,) = run_after("tensorflow", "import triton; print('alive')")
    assert ending.code < 0, ending.errors  # killed by a signal
    assert "alive" not in ending.output


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize("path", PATHS)
def test_path_works_after_tensorflow_and_warns_of_triton(path, endings):
    ending = endings[path]
    assert ending.code == 0, ending.errors
    with_triton = "['LoadOrderWarning'] True True\n"
    without_triton = "[] False True\n"
    if path in IMPORT_TRITON:
        assert ending.output == with_triton, ending.errors
    else:  # depends on PyTorch's version
        assert ending.output in (with_triton, without_triton), ending.errors


@pytest.mark.slow
@needs_triton
def test_rllib_imported_first_warns_and_works():
    pytest.importorskip("ray", reason="Ray is not installed")
    code = f"import rlcatalog_rllib; rlcatalog_rllib.spec; {ADAM}"

    (ending,) = run_after("ray.rllib.algorithms.ppo", f"CODE = {code!r}\n{ON_A_PATH}")

    assert ending.code == 0, ending.errors
    assert ending.output == "['LoadOrderWarning'] True True\n", ending.errors


@pytest.mark.slow  # a test below shows which of the two each module imports first
@needs_triton
def test_torch_optimizer_works_after_a_tensorflow_policy():
    act = "rlcatalog.build(*spaces, framework='tf').act([[0.0] * 3])"
    process = run(f"{BUILD}\n{act}\n{ADAM}; print('alive')")
    assert_prints(process, "alive\n")


# --- what is imported first, tried with empty packages --------------------------------------------

#: Imports each module by name, and prints whether triton was imported when the module imported
#: TensorFlow or Keras. The empty TensorFlow below appends it to `sys.asked`.
PROBE = """
import importlib, json, sys
import numpy, gymnasium

found = {}
for name in json.loads(sys.argv[1]):
    for module in [
        m for m in sys.modules if m == "triton" or m.startswith(("rlcatalog_tf", "rlcatalog_"))
    ]:
        del sys.modules[module]
    sys.meta_path = [
        finder for finder in sys.meta_path if "load_order" not in type(finder).__module__
    ]
    sys.asked = []
    try:
        importlib.import_module(name)
    except ImportError:
        pass
    found[name] = sys.asked
print(json.dumps(found))
"""


#: Appends whether triton was imported before, and fails, since nothing works without TensorFlow.
FAKE_TENSORFLOW = """
import sys
sys.asked.append("triton" in sys.modules)
raise ImportError("a fake")
"""
FAKES = {
    "triton": "",
    "tensorflow": FAKE_TENSORFLOW,
    "keras": "import tensorflow",
    "ray": "",
    "ray.rllib": "import tensorflow",
    "stable_baselines3": "import tensorflow",
    "sb3_contrib": "import tensorflow",
    "third_party": "import tensorflow",
}


@pytest.fixture(scope="module")
def fakes(tmp_path_factory) -> Path:
    """A folder with an empty triton, a TensorFlow that records its imports, and packages that
    import it.
    """
    folder = tmp_path_factory.mktemp("fakes")
    for name, code in FAKES.items():
        package = folder.joinpath(*name.split("."))
        package.mkdir()
        (package / "__init__.py").write_text(code, encoding="utf-8")
    return folder


def find_sources() -> list[Path]:
    """Return all files of the packages."""
    paths: list[Path] = []
    for pattern in ("catalog", "builtin_*/*", "plugins/*"):
        paths += ROOT.glob(f"{pattern}/src/**/*.py")
    return paths


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[parts.index("src") + 1 :]).removesuffix(".__init__")


def find_modules(group: str) -> list[str]:
    """Return the names of the modules with code for TensorFlow, or of a bridge's package."""
    names = []
    for path in find_sources():
        if group == "tf":
            is_wanted = path.stem == "tf" or "tf" in path.parts
        else:
            is_wanted = f"rlcatalog_{group}" in path.parts
        if is_wanted and "example_compass" not in path.parts:  # which stands for a third party
            names.append(module_name(path))
    return names


@pytest.fixture(scope="module")
def imports_of_tensorflow(fakes) -> dict[str, list[bool]]:
    """Module → whether triton was there, each time that the module imported TensorFlow."""
    names = [name for group in ("tf", "rllib", "sb3") for name in find_modules(group)]
    process = run(PROBE, fakes, arguments=[json.dumps(names)])
    assert process.returncode == 0, process.stderr
    imports: dict[str, list[bool]] = json.loads(process.stdout)
    return imports


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "at_least"),  # modules that import TensorFlow; fewer would mean that none was found
    [("tf", 21), ("rllib", 6), ("sb3", 6)],
)
def test_modules_import_triton_before_tensorflow(group, at_least, imports_of_tensorflow):
    modules = find_modules(group)

    too_late = [name for name in modules if False in imports_of_tensorflow[name]]
    importing = [name for name in modules if imports_of_tensorflow[name]]

    assert too_late == []
    assert len(importing) >= at_least


LOAD_THIRD_PARTY_CODE = """
import sys
sys.asked = []
from rlcatalog import ModelSpec
from rlcatalog.errors import PluginError
from rlcatalog.plugins.registry import Part
spec = ModelSpec("net", {"tf": "third_party:Net"}, "A net.")
part = Part(spec, "third_party", "1.0")
was_imported = "triton" in sys.modules
try:
    part.load("tf")
except PluginError:  # because the fake TensorFlow fails
    print(was_imported, sys.asked)
"""


def test_triton_is_loaded_before_third_party_code(fakes):
    assert_prints(run(LOAD_THIRD_PARTY_CODE, fakes), "False [True]\n")


def test_only_the_plugin_of_tensorflow_imports_it():
    tf_plugin = ROOT / "plugins/tf/src/rlcatalog_tf"
    third_party = ROOT / "plugins/example"  # which shows what a user may write
    wrong = []
    for path in [*find_sources(), *ROOT.glob("examples/**/*.py")]:
        if path.is_relative_to(tf_plugin) or path.is_relative_to(third_party):
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.match(r"\s*(import|from) (tensorflow|keras)\b", line):
                wrong.append(f"{path.relative_to(ROOT)}: {line.strip()}")
    assert wrong == []


@pytest.mark.parametrize(
    "code",
    [
        "import rlcatalog",
        "import rlcatalog; rlcatalog.default_catalog().parts()",
        f"{BUILD}\nrlcatalog.explain(*spaces, framework='tf')",
        pytest.param(
            f"{BUILD}\nrlcatalog.build(*spaces, framework='torch')", marks=pytest.mark.slow
        ),
        "import rlcatalog_sb3, rlcatalog_rllib, rlcatalog_ppo",
    ],
    ids=["import", "list", "explain", "torch", "packages"],
)
def test_triton_is_not_imported_without_tensorflow(code, fakes):
    program = f"import sys; sys.asked = []\n{code}\nprint('triton' in sys.modules, sys.asked)"
    assert_prints(run(program, fakes), "False []\n")


# --- one library before another -------------------------------------------------------------------


@pytest.fixture
def libraries(tmp_path):
    """A folder with two modules, `early` and `late`, that append their names when they run."""
    for name in ("early", "late"):
        code = f"import sys; sys.ran.append({name!r})\n"
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    return tmp_path


#: Asks for the same order twice, as several packages do.
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
def test_library_is_loaded_before_the_other_and_only_with_it(code, ran, libraries):
    assert_prints(run(f"{ORDER}{code}\nprint(sys.ran)", libraries), f"{ran}\n")


def test_missing_early_library_is_left_out(libraries):
    (libraries / "early.py").unlink()
    assert_prints(run(f"{ORDER}import late\nprint(sys.ran)", libraries), "['late']\n")


IMPORT_MISSING = """
try:
    import late
except ModuleNotFoundError as error:
    print(error)
print(sys.ran)
"""


def test_missing_late_library_raises_its_error(libraries):
    (libraries / "late.py").unlink()
    assert_prints(run(ORDER + IMPORT_MISSING, libraries), "No module named 'late'\n[]\n")


def test_asking_again_for_an_order_adds_no_finder(libraries):
    code = "load_first('early', before='late')\nprint(len(sys.meta_path) - finders)"
    assert_prints(run(ORDER + code, libraries), "0\n")


IMPORT_TENSORFLOW = """
from rlcatalog_tf import before_tensorflow
before_tensorflow()
import tensorflow
print("imported")
"""


def test_triton_with_failing_import_does_no_harm(tmp_path):
    (tmp_path / "triton.py").write_text("raise RuntimeError('broken')", encoding="utf-8")
    (tmp_path / "tensorflow.py").write_text("", encoding="utf-8")
    assert_prints(run(IMPORT_TENSORFLOW, tmp_path), "imported\n")


# --- who warns ------------------------------------------------------------------------------------


#: Prints whether the symbols of its libraries are kept apart from those of others.
FAKE_TRITON = """
import os, sys
print("isolated", bool(sys.getdlopenflags() & os.RTLD_DEEPBIND))
"""


@pytest.fixture
def triton_and_tensorflow(tmp_path):
    """A folder with a fake triton and an empty TensorFlow."""
    tensorflow = tmp_path / "tensorflow"
    tensorflow.mkdir()
    (tensorflow / "__init__.py").write_text("import tensorflow.python\n", encoding="utf-8")
    (tensorflow / "python.py").write_text("", encoding="utf-8")
    (tmp_path / "triton.py").write_text(FAKE_TRITON, encoding="utf-8")
    return tmp_path


#: Prints the names of warnings, and keeps the flags with which libraries are loaded.
WARNINGS = """
import sys, warnings
warnings.simplefilter("always")
warnings.showwarning = lambda message, category, *_: print(category.__name__)
flags = sys.getdlopenflags()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RTLD_DEEPBIND is Linux's")
@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("import tensorflow, rlcatalog_torch, triton", "LoadOrderWarning\nisolated True\n"),
        ("import rlcatalog_torch, tensorflow, triton", "isolated False\n"),
        ("import rlcatalog_torch, triton, tensorflow", "isolated False\n"),
        ("import rlcatalog_torch, triton", "isolated False\n"),
        ("import tensorflow, rlcatalog_torch", ""),
        ("import importlib.util as u, tensorflow, rlcatalog_torch; u.find_spec('triton')", ""),
        (
            "import importlib, tensorflow, rlcatalog_torch, triton; importlib.reload(triton)",
            "LoadOrderWarning\nisolated True\nisolated True\n",
        ),
    ],
)
def test_triton_after_tensorflow_is_isolated_with_a_warning(code, printed, triton_and_tensorflow):
    program = f"{WARNINGS}{code}\nassert sys.getdlopenflags() == flags"
    assert_prints(run(program, triton_and_tensorflow), printed)


IMPORT_BROKEN_TRITON = """
try:
    import tensorflow, rlcatalog_torch, triton
except RuntimeError as error:
    print(error)
assert sys.getdlopenflags() == flags
"""


def test_triton_that_fails_after_tensorflow_restores_flags(triton_and_tensorflow):
    broken = triton_and_tensorflow / "triton.py"
    broken.write_text("raise RuntimeError('broken')\n", "utf-8")

    process = run(WARNINGS + IMPORT_BROKEN_TRITON, triton_and_tensorflow)

    assert_prints(process, "LoadOrderWarning\nbroken\n")


def test_triton_is_guarded_in_one_place():
    # A call for each path was forgotten for exports, so one place guards all of them.
    guards = []
    for path in find_sources():
        code = path.read_text(encoding="utf-8")
        if "RTLD_DEEPBIND" in code or "guard_triton()" in code:
            guards.append(module_name(path))
    assert sorted(guards) == ["rlcatalog_torch", "rlcatalog_torch.load_order"]


# --- pinned versions ------------------------------------------------------------------------------


def read_pin(file, package):
    """Return the only line of a file of requirements that pins a package."""
    lines = (ROOT / "requirements" / file).read_text().splitlines()
    (pin,) = [line for line in lines if line.startswith(f"{package}==")]
    return pin


def test_install_page_names_the_pinned_pytorch():
    pin = read_pin("demo.txt", "torch")
    assert f"`{pin}`" in (ROOT / "docs/start.md").read_text()


@pytest.mark.skipif(not HAS_WHEELS, reason="the wheel is for Linux on x86_64")
def test_pinned_triton_is_installed():
    pin = Requirement(read_pin("dev.txt", "triton"))
    assert pin.marker.evaluate()
    assert pin.specifier.contains(metadata.version("triton"))


@pytest.mark.skipif(not HAS_WHEELS, reason="the wheel is for Linux on x86_64")
def test_installed_triton_is_the_version_pytorch_requires():
    # The CPU build of PyTorch requires none.
    for line in metadata.requires("torch") or ():
        if line.startswith("triton"):
            assert Requirement(line).specifier.contains(metadata.version("triton"))
