"""triton before TensorFlow: the other order ends a process that then touches PyTorch's optimisers.

The real libraries meet in processes of their own. Which of them our code imports first is seen with
empty packages of their names, so that every door can be tried in one process.
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
    environ = (
        {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        if paths
        else dict(os.environ)
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env=environ,
        cwd=ROOT,
    )


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


def ends_after(module: str, *programs: str) -> list[tuple[int, str, str]]:
    """Return the exit code, output and errors of programs that a module with TensorFlow came
    before.
    """
    done = run(TENSORFLOW_FIRST, arguments=[json.dumps(programs), module])
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def ends() -> dict[str, tuple[int, str, str]]:
    """How each path ends after `import tensorflow`."""
    programs = [f"CODE = {code!r}\n{ON_A_PATH}" for code in PATHS.values()]
    return dict(zip(PATHS, ends_after("tensorflow", *programs), strict=True))


@pytest.mark.attack  # who warns is seen below
@needs_triton
def test_tensorflow_first_ends_a_process_without_rlcatalog():
    # What all of this is about. When it stops failing, so may we.
    [(code, out, err)] = ends_after("tensorflow", "import triton; print('alive')")
    assert code < 0, err
    assert "alive" not in out


@pytest.mark.attack
@needs_triton
@pytest.mark.parametrize("path", PATHS)
def test_path_works_after_tensorflow_and_warns_of_triton(path, ends):
    code, out, err = ends[path]
    assert code == 0, err
    # One warning where triton was imported, none elsewhere.
    assert out in ("['LoadOrderWarning'] True True\n", "[] False True\n"), err
    if path in IMPORT_TRITON:
        assert out.startswith("['LoadOrderWarning']")


@pytest.mark.attack
@needs_triton
def test_rllib_imported_first_is_warned_of_and_goes_on():
    pytest.importorskip("ray", reason="Ray is not installed")
    program = f"CODE = 'import rlcatalog_rllib; rlcatalog_rllib.spec; {ADAM}'\n{ON_A_PATH}"
    [(code, out, err)] = ends_after("ray.rllib.algorithms.ppo", program)
    assert (code, out) == (0, "['LoadOrderWarning'] True True\n"), err


@pytest.mark.attack  # which of the two each module asks for first is seen below
@needs_triton
def test_torch_optimizer_works_after_a_tensorflow_policy():
    done = run(
        f"{BUILD}\nrlcatalog.build(*spaces, framework='tf').act([[0.0] * 3])\n{ADAM};"
        " print('alive')"
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


# --- what is imported first, seen with empty packages ---------------------------------------------

#: Imports each module by name, and says whether triton was there when it asked for TensorFlow or
#: Keras.
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


@pytest.fixture(scope="module")
def impostors(tmp_path_factory) -> Path:
    """A folder with an empty triton, and with a TensorFlow and what imports it, which note how it
    was asked for.
    """
    folder = tmp_path_factory.mktemp("impostors")
    for name, text in {
        "triton": "",
        "ray": "",
        "tensorflow": "import sys\nsys.asked.append('triton' in sys.modules)\nraise"
        " ImportError('an impostor')\n",
        "keras": "import tensorflow\n",
        **dict.fromkeys(
            ["ray.rllib", "stable_baselines3", "sb3_contrib", "stranger"], "import tensorflow\n"
        ),
    }.items():
        package = folder.joinpath(*name.split("."))
        package.mkdir()
        (package / "__init__.py").write_text(text, encoding="utf-8")
    return folder


def sources() -> list[Path]:
    """All files of the packages."""
    return [
        path
        for pattern in ("catalog", "builtin_*/*", "plugins/*")
        for path in ROOT.glob(f"{pattern}/src/**/*.py")
    ]


def dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[parts.index("src") + 1 :]).removesuffix(".__init__")


#: Whose modules are probed; those of the bridges are each imported first in their process as one
#: that is unpickled is.
PROBED = {
    "tf": lambda path: path.stem == "tf" or "tf" in path.parts,
    "rllib": lambda path: "rlcatalog_rllib" in path.parts,
    "sb3": lambda path: "rlcatalog_sb3" in path.parts,
}


@pytest.fixture(scope="module")
def asked(impostors) -> dict[str, dict[str, list[bool]]]:
    """Whose → module → whether triton was there each time that it asked for TensorFlow."""
    names = {
        whose: [dotted(path) for path in sources() if wanted(path)]
        for whose, wanted in PROBED.items()
    }
    everyone = [
        name for found in names.values() for name in found if not name.startswith("example_compass")
    ]
    # example_compass is a stranger's.
    done = run(PROBE, impostors, arguments=[json.dumps(everyone)])
    assert done.returncode == 0, done.stderr
    order = json.loads(done.stdout)
    return {
        whose: {name: order[name] for name in found if name in order}
        for whose, found in names.items()
    }


@pytest.mark.attack
@pytest.mark.parametrize(
    ("whose", "modules", "asking"), [("tf", 20, 20), ("rllib", 5, 5), ("sb3", 5, 5)]
)
def test_every_module_that_imports_tensorflow_has_triton_first(whose, modules, asking, asked):
    found = asked[whose]
    assert len(found) > modules
    assert [name for name in found if False in found[name]] == []
    assert sum(found[name] != [] for name in found) > asking


def test_triton_is_loaded_before_third_party_code(impostors):
    done = run(
        "import sys; sys.asked = []\nfrom rlcatalog import ModelSpec\nfrom rlcatalog.errors import"
        " PluginError\nfrom rlcatalog.plugins.registry import Component\ncomponent ="
        " Component(ModelSpec('net', {'tf': 'stranger:Net'}, 'A net.'), 'stranger', '1.0')\nbefore"
        " = 'triton' in sys.modules\ntry: component.load('tf')\nexcept PluginError: print(before,"
        " sys.asked)",
        impostors,
    )
    assert (done.returncode, done.stdout) == (0, "False [True]\n"), done.stderr


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


@pytest.mark.parametrize(
    "code",
    [
        "import rlcatalog",
        "import rlcatalog; rlcatalog.default_catalog().components()",
        f"{BUILD}\nrlcatalog.explain(*spaces, framework='tf')",
        pytest.param(
            f"{BUILD}\nrlcatalog.build(*spaces, framework='torch')", marks=pytest.mark.attack
        ),
        "import rlcatalog_sb3, rlcatalog_rllib, rlcatalog_ppo",
    ],
    ids=["import", "list", "explain", "torch", "packages"],
)
def test_triton_is_left_alone_where_tensorflow_is_not_wanted(code, impostors):
    done = run(
        f"import sys; sys.asked = []\n{code}\nprint('triton' in sys.modules, sys.asked)", impostors
    )
    assert (done.returncode, done.stdout) == (0, "False []\n"), done.stderr


# --- one library before another -------------------------------------------------------------------


@pytest.fixture
def libraries(tmp_path):
    """A folder with two modules that note when they run."""
    for name in ("early", "late"):
        (tmp_path / f"{name}.py").write_text(
            f"import sys; sys.ran.append({name!r})\n", encoding="utf-8"
        )
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
def test_library_is_loaded_before_the_other_and_only_with_it(code, ran, libraries):
    done = run(f"{ORDER}{code}\nprint(sys.ran)", libraries)
    assert (done.returncode, done.stdout) == (0, f"{ran}\n"), done.stderr


@pytest.mark.parametrize("missing", ["early", "late"])
def test_missing_library_changes_nothing(missing, libraries):
    (libraries / f"{missing}.py").unlink()
    code = (
        "try:\n    import late\nexcept ModuleNotFoundError as error: print(error)\nprint(sys.ran)"
    )
    done = run(ORDER + code, libraries)
    expected = {"early": "['late']\n", "late": "No module named 'late'\n[]\n"}
    assert (done.returncode, done.stdout) == (0, expected[missing]), done.stderr


def test_asking_twice_for_one_order_changes_nothing(libraries):
    done = run(
        f"{ORDER}load_first('early', before='late')\nprint(len(sys.meta_path) - finders)", libraries
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_triton_with_failing_import_does_no_harm(tmp_path):
    for name, text in {"triton": "raise RuntimeError('broken')", "tensorflow": ""}.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    done = run(
        "from rlcatalog_tf import before_tensorflow as b; b(); import tensorflow; print('on')",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "on\n"), done.stderr


# --- who warns ------------------------------------------------------------------------------------


@pytest.fixture
def libraries_of_both(tmp_path):
    """A folder with a triton that notes how its libraries are loaded, and an empty TensorFlow."""
    tensorflow = tmp_path / "tensorflow"
    tensorflow.mkdir()
    (tensorflow / "__init__.py").write_text("import tensorflow.python\n", encoding="utf-8")
    (tensorflow / "python.py").write_text("", encoding="utf-8")
    (tmp_path / "triton.py").write_text(
        "import os, sys\nprint('isolated', bool(sys.getdlopenflags() & os.RTLD_DEEPBIND))\n",
        encoding="utf-8",
    )
    return tmp_path


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
def test_triton_after_tensorflow_is_isolated_with_a_warning(code, printed, libraries_of_both):
    done = run(f"{WARNINGS}{code}\nassert sys.getdlopenflags() == flags", libraries_of_both)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_triton_that_fails_after_tensorflow_restores_flags(libraries_of_both):
    (libraries_of_both / "triton.py").write_text("raise RuntimeError('broken')\n", "utf-8")
    code = (
        "try:\n    import tensorflow, rlcatalog_torch, triton\nexcept RuntimeError as e: print(e)"
    )
    done = run(f"{WARNINGS}{code}\nassert sys.getdlopenflags() == flags", libraries_of_both)
    assert (done.returncode, done.stdout) == (0, "LoadOrderWarning\nbroken\n"), done.stderr


def test_triton_is_guarded_in_one_place():
    # One place guards every path; a call per path was forgotten for exports.
    guards = [
        dotted(path)
        for path in sources()
        if "RTLD_DEEPBIND" in path.read_text(encoding="utf-8")
        or "guard_triton()" in path.read_text(encoding="utf-8")
    ]
    assert sorted(guards) == ["rlcatalog_torch", "rlcatalog_torch.load_order"]


# --- what the page says ---------------------------------------------------------------------------


def test_install_page_names_the_pinned_pytorch():
    pins = [
        line
        for line in (ROOT / "requirements/demo.txt").read_text().splitlines()
        if line.startswith("torch==")
    ]
    assert len(pins) == 1
    assert f"`{pins[0]}`" in (ROOT / "docs/start.md").read_text()


@pytest.mark.skipif(not HAS_WHEELS, reason="the wheel is for Linux on x86_64")
def test_pinned_triton_is_the_version_pytorch_requires():
    lines = (ROOT / "requirements/dev.txt").read_text().splitlines()
    (pinned,) = [Requirement(line) for line in lines if line.startswith("triton==")]
    assert pinned.marker.evaluate()
    assert pinned.specifier.contains(metadata.version("triton"))
    wanted = [
        Requirement(line) for line in metadata.requires("torch") or () if line.startswith("triton")
    ]
    # The CPU build wants none, whichever PyTorch it is.
    assert [
        need for need in wanted if not need.specifier.contains(metadata.version("triton"))
    ] == []
