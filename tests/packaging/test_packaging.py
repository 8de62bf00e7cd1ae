"""Every package works alone: built as a wheel, unpacked into an empty environment beside the kernel, run from outside.

The third parties come from a folder of links to the packages of this environment, so that nothing is downloaded; a
framework is left out of the folder where its absence is the point.
"""

from __future__ import annotations

import compileall
import csv
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import warm
from packaging.requirements import Requirement

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).resolve().parents[2]

#: Distribution → its folder, the kernel first.
FOLDERS = {
    tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"]: path.parent
    for pattern in ("catalog", "builtin_models/*", "builtin_dists/*", "plugins/*")
    for path in sorted(ROOT.glob(f"{pattern}/pyproject.toml"))
}
PLUGINS = [name for name in FOLDERS if name != "rlcatalog"]

#: The smallest set that chooses and builds parts for CartPole, and what makes a policy of them.
PARTS = ["rlcatalog", "rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical"]
GROUP = [*PARTS, "rlcatalog-policy"]

FRAMEWORKS = {"torch": "torch", "tf": "tensorflow"}


def module_of(distribution: str) -> str:
    return distribution.replace("-", "_")


def needed_by(distribution: str, *extras: str) -> list[str]:
    """Return a package and the packages of this repository it requires, directly or not; with extras of its own."""
    found, waiting = [], [distribution]
    while waiting:
        name = waiting.pop()
        if name in FOLDERS and name not in found:
            found.append(name)
            project = tomllib.loads((FOLDERS[name] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            lines = list(project["dependencies"])
            if name == distribution:
                lines += [line for extra in extras for line in project.get("optional-dependencies", {}).get(extra, ())]
            waiting += [Requirement(line).name for line in lines]
    return found


def beside(distribution: str) -> list[str]:
    """Return what a package is tried with: what it requires, both frameworks, and the codecs of Gymnasium's spaces."""
    if distribution in ("rlcatalog", "rlcatalog-torch", "rlcatalog-tf"):
        return needed_by(distribution)
    return list(dict.fromkeys([*needed_by(distribution, *FRAMEWORKS), *needed_by("rlcatalog-preprocessors")]))


# --- wheels ----------------------------------------------------------------------------------------------------------

BUILD = """
import importlib, os, sys, tomllib

_, out, *folders = sys.argv
for folder in folders:
    os.chdir(folder)  # what a build backend is called from
    with open("pyproject.toml", "rb") as project:
        backend = tomllib.load(project)["build-system"]["build-backend"]
    importlib.import_module(backend).build_wheel(out)
"""


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> dict[str, Path]:
    """Build every package of the repository, all in one process, as pip would in many; distribution → wheel."""
    folder = tmp_path_factory.mktemp("wheels")
    subprocess.run([sys.executable, "-c", BUILD, folder, *FOLDERS.values()], check=True, timeout=120)
    built = {path.name.split("-")[0]: path for path in folder.iterdir()}
    assert set(built) == {module_of(name) for name in FOLDERS}
    return {name: built[module_of(name)] for name in FOLDERS}


def wrong_contents(wheel: Path, distribution: str) -> list[str]:
    """Say what a wheel holds that it should not, and what it lacks."""
    module = module_of(distribution)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = next(name.split("/")[0] for name in names if name.split("/")[0].endswith(".dist-info"))
        entry_points = archive.read(f"{info}/entry_points.txt").decode() if f"{info}/entry_points.txt" in names else ""
    wrong = [f"a second top entry: {top}" for top in sorted({n.split("/")[0] for n in names} - {module, info})]
    wrong += [f"not for users: {n}" for n in names if {"tests", "__pycache__", "conftest.py"} & set(n.split("/"))]
    wrong += [f"not for users: {n}" for n in names if n.split("/")[-1].startswith("test_")]
    if distribution != "rlcatalog" and f"{module}.plugin" not in entry_points:
        wrong.append("its entry point is missing")
    if f"{module}/py.typed" not in names:
        wrong.append("no py.typed")
    return wrong


@pytest.mark.parametrize("distribution", FOLDERS)
def test_a_wheel_holds_one_package_and_all_of_it(wheels, distribution):
    assert wrong_contents(wheels[distribution], distribution) == []
    source = FOLDERS[distribution] / "src"
    files = {p.relative_to(source).as_posix() for p in source.rglob("*") if p.is_file() and p.suffix != ".pyc"}
    with zipfile.ZipFile(wheels[distribution]) as archive:
        assert files == {name for name in archive.namelist() if ".dist-info/" not in name}


def test_the_contents_check_finds_a_second_package_and_tests(wheels, tmp_path):
    """A check that could not fail would prove nothing."""
    bad = tmp_path / wheels["rlcatalog-fcnet"].name
    with zipfile.ZipFile(wheels["rlcatalog-fcnet"]) as good, zipfile.ZipFile(bad, "w") as archive:
        for name in good.namelist():
            if not name.endswith(("py.typed", "entry_points.txt")):
                archive.writestr(name, good.read(name))
        archive.writestr("helpers/__init__.py", "")
        archive.writestr("rlcatalog_fcnet/tests/test_x.py", "")
    assert wrong_contents(bad, "rlcatalog-fcnet") == [
        "a second top entry: helpers",
        "not for users: rlcatalog_fcnet/tests/test_x.py",
        "not for users: rlcatalog_fcnet/tests/test_x.py",
        "its entry point is missing",
        "no py.typed",
    ]


# --- environments ----------------------------------------------------------------------------------------------------


@cache
def unpacked(wheel: Path) -> Path:
    """Unpack a wheel and compile it as pip does, once: many processes import from copies of it."""
    folder = wheel.with_suffix(".unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    compileall.compile_dir(folder, quiet=2)
    return folder


@dataclass(frozen=True)
class Environment:
    """A virtual environment of its own, and how to run it from outside the repository."""

    folder: Path

    @property
    def site(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def install(self, wheel: Path) -> None:
        shutil.copytree(unpacked(wheel), self.site, copy_function=os.link, dirs_exist_ok=True)

    def uninstall(self, distribution: str) -> None:
        (record,) = self.site.glob(f"{module_of(distribution)}-*.dist-info/RECORD")
        with record.open(newline="", encoding="utf-8") as lines:
            paths = [self.site / row[0] for row in csv.reader(lines)]
        for path in paths:
            path.unlink()
        for name in (module_of(distribution), record.parent.name):
            for folder in sorted((self.site / name).rglob("*/"), reverse=True):
                for compiled in folder.glob("*.pyc"):
                    compiled.unlink()
                folder.rmdir()
            (self.site / name).rmdir()  # fails if RECORD forgot a file

    def run(self, *arguments: str, warmed: Environment | None = None) -> subprocess.CompletedProcess[str]:
        """Run `python ARGUMENTS`: `-c`, code and more, or `-m`, a module and more.

        Where a `warmed` environment is given, with the same third parties and nothing of ours, the process is forked
        from one of it that has imported them, and then finds what is installed here.
        """
        if warmed is None:
            clean = {key: value for key, value in os.environ.items() if not key.startswith(("RLCATALOG_", "PYTHON"))}
            return subprocess.run(
                [self.folder / "bin" / "python", "-I", "-B", *arguments],
                cwd=self.folder, env=clean | {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"},
                capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
        how, what, *more = arguments
        code = what if how == "-c" else f"import runpy\nrunpy.run_module({what!r}, run_name='__main__')"
        moved = f"import sys\nsys.path.insert(1, {str(self.site)!r})\nsys.prefix = {str(self.folder)!r}\n"
        python = [str(warmed.folder / "bin" / "python"), "-I", "-B"]
        return warm.run(["-c", moved + code, *more], self.folder, python=python)

    def probe(self, code: str, warmed: Environment | None = None, **data) -> dict:
        """Run `code`, which finds `data` and fills `report`, and return the report; `warmed` as in `run`."""
        code = f"{PRELUDE}\n{code}\nprint('report:', json.dumps(report))"
        process = self.run("-c", code, json.dumps(data), warmed=warmed)
        if process.returncode != 0:
            raise ProbeError(process.stderr)
        return json.loads(process.stdout.rpartition("report:")[2])


class ProbeError(AssertionError):
    """A probe failed; the message is its standard error."""


@pytest.fixture(scope="session")
def third_parties(tmp_path_factory):
    """Make a folder of links to what is installed here, this repository's packages and some others left out."""
    ours = {module_of(name) for name in FOLDERS}

    @cache
    def make(*without: str) -> Path:
        folder = tmp_path_factory.mktemp("third_parties")
        for site in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
            for path in Path(site).iterdir():
                name = path.name.partition("-")[0].partition(".")[0].lower()
                ignored = path.suffix in (".pth", ".egg-link") or path.name.startswith(("_editable", "__editable"))
                if not ignored and name not in ours and not name.startswith("rlcatalog") and name not in without:
                    (folder / path.name).symlink_to(path)
        return folder

    return make


@pytest.fixture(scope="session")
def environment(tmp_path_factory, wheels, third_parties):
    """Make an empty environment with some of our wheels, and third parties without some frameworks."""

    def make(*distributions: str, without: tuple[str, ...] = ()) -> Environment:
        made = Environment(tmp_path_factory.mktemp("environment") / "venv")
        venv.EnvBuilder(with_pip=False, symlinks=True).create(made.folder)
        (made.site / "third_parties.pth").write_text(f"{third_parties(*without)}\n", encoding="utf-8")
        for name in distributions:
            made.install(wheels[name])
        return made

    return make


@pytest.fixture(scope="session")
def bare(environment):
    """An environment with nothing of ours and no framework, to fork from."""
    return environment(without=("torch", "tensorflow"))


# --- what runs inside ------------------------------------------------------------------------------------------------

PRELUDE = """
import contextlib, importlib, importlib.util, json, pkgutil, sys
from pathlib import Path

data, report = json.loads(sys.argv[1]), {}
prefix = Path(sys.prefix).resolve()


#: Files that one package alone loads, where it is installed.
READERS = {"commands": "rlcatalog_cli", "checks": "rlcatalog_testing", "examples": "rlcatalog_testing"}


def is_read(target):
    # Whether the package that loads a command or a check is here.
    reader = {"cli": "rlcatalog_cli", "checks": "rlcatalog_testing"}.get(target)
    return reader is None or importlib.util.find_spec(reader) is not None


def absent(names):
    for name in names:
        assert importlib.util.find_spec(name) is None, f"{name} is there"


def import_all(package):
    package = importlib.import_module(package)
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".", lambda name: None):
        readers = {READERS[part] for part in found.name.split(".") if part in READERS}
        if not any(importlib.util.find_spec(reader) is None for reader in readers):
            importlib.import_module(found.name)


def files_are_here(*packages):
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in packages:
            assert Path(module.__file__).resolve().is_relative_to(prefix), module.__file__
"""

#: One package beside the kernel: nothing else is there, it loads, every module imports, its parts work.
ALONE = """
absent(data["siblings"])
import gymnasium as gym
import numpy as np
import rlcatalog
from rlcatalog.models import ModelPart, assemble
from rlcatalog.actions import BoundDistribution
from rlcatalog.errors import CatalogError, MissingPluginError, UnsupportedSpaceError
from rlcatalog.frameworks import frameworks
from rlcatalog.plugins import Request
from rlcatalog.spaces import Repeated, Simplex

catalog = rlcatalog.Catalog(environ={})
report["plugins"] = [[r.distribution, r.status, r.error] for r in catalog.plugins]
import_all(data["module"])
files_are_here("rlcatalog", data["module"])

spaces = gym.spaces
box = spaces.Box(-1, 1, (4,), np.float32)
image = spaces.Box(0, 255, (10, 10, 3), np.float32)
samples = [
    box, spaces.Discrete(3), spaces.Box(0, 255, (84, 84, 3), np.uint8), spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(3), spaces.Dict({"a": box}), spaces.Tuple([box, spaces.Discrete(2)]), spaces.Text(3),
    spaces.Sequence(box), spaces.OneOf([box, spaces.Discrete(2)]), spaces.Graph(box, box), Repeated(box, 3),
    Simplex((3,)),
]
for name, module in list(sys.modules.items()):  # and a plugin's own kinds of space
    if name.partition(".")[0] == data["module"] != "rlcatalog":
        kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == name]
        for kind in kinds:
            if issubclass(kind, gym.Space):
                with contextlib.suppress(TypeError):  # made with one number, or not at all
                    samples.append(kind(4))
values = catalog.schema.defaults()
values |= {key: 100 for key in ("sequence_max_len", "graph_max_nodes", "graph_max_edges") if key in values}


def fits(component, *wanted, **more):
    requests = ((s, Request(*[rlcatalog.SpaceInfo.read(s, path) for path in wanted], values, **more)) for s in samples)
    return [s for s, request in requests if component.declaration.judge(request).rank is not None]


def trunk_class(framework):
    # A model whose features are its observations.
    base = importlib.import_module("rlcatalog_" + framework)
    base = base.TorchModelV2 if framework == "torch" else base.TFModelV2

    class Bare(base):
        def __init__(self, *args):
            super().__init__(*args)
            self.num_outputs = 4

        def forward(self, input_dict, state, seq_lens):
            return input_dict["obs_flat"], state

    return Bare


class Sevens(rlcatalog.ActionDistribution):
    @staticmethod
    def required_model_output_shape(action_space, model_config=None):
        return int(np.prod(action_space.shape))

    def sample(self):
        return self.inputs[:, 0] if self.inputs.shape[1] == 1 else self.inputs

    def logp(self, actions):
        return self.inputs[:, 0] * 0


class Plain(rlcatalog.Preprocessor):
    def _init_shape(self, obs_space, options):
        return obs_space.shape


def environments():
    for name in ("CartPole-v1", "ale_py:ALE/Breakout-v5"):
        with contextlib.suppress(ImportError):  # ale_py is there for the package that needs it
            yield gym.make(name)


def tensor(array, framework):
    if framework == "torch":
        return importlib.import_module("torch").as_tensor(array)
    return importlib.import_module("tensorflow").constant(array)


class Pair(Sevens):
    # A product of two of these.
    @classmethod
    def parts(cls, action, size, options):
        return [(child, Sevens, size // 2) for child in action.children]


def work_together(component, framework):
    # A distribution around another one, and the head that serves it, joined as the catalog does where both are there.
    own = [c for c in catalog.components() if c.distribution == component.distribution]
    dists = [c for c in own if c.kind == "action_dist" and c.declaration.wraps_default]
    heads = [c for c in own if c.kind == "model" and c.declaration.slot == "head"]
    if not dists or component not in (*dists, *heads):
        return False
    ((dist,), (head,)) = dists, heads
    space = spaces.Tuple([box, box])
    action, config = rlcatalog.SpaceInfo.read(space, "action"), dict(values)
    size = dist.declaration.size(action, config, 8)
    cls = dist.load(framework)
    bound = BoundDistribution(cls, cls.options_for(action, config, [(Pair, 8)]))
    parts = [ModelPart(trunk_class(framework)), ModelPart(head.load(framework), slot="head")]
    model = assemble(parts, box, space, size, lambda: dict(config), "model", action_dist=bound)
    inputs, _ = model({"obs": tensor(np.ones((3, 4), np.float32), framework)})
    made = bound(inputs, model)
    drawn = made.sample()
    assert tuple(drawn.shape) == (3, 8)
    assert made.logp(drawn).tolist() == [0, 0, 0] if framework == "torch" else not np.any(made.logp(drawn))
    assert tuple(model.value_function().shape) == (3,)
    return True


def work(component, framework):
    name = component.name
    if component.kind == "framework":  # its targets are not called by frameworks
        return frameworks()[name].load(framework) is not None
    if work_together(component, framework):
        return True
    if component.kind == "preprocessor":
        for space in fits(component, "obs"):
            made = catalog.preprocessor_for(space, values)
            assert made.component is component
            assert made.transform(space.sample()).shape == made.shape
            return True
        for space in samples:  # one that is only chosen by name
            with contextlib.suppress(CatalogError, AttributeError, TypeError, ValueError):
                made = catalog.preprocessor_for(space, {**values, "custom_preprocessor": name})
                assert made.transform(space.sample()).shape == made.shape
                return True
    elif component.kind == "filter":
        made = component.load(framework)(Plain(box), values)
        assert np.isfinite(made(np.ones((2, 4), np.float32), update=True)).all()
        return True
    elif component.kind == "env_wrapper":
        for env in environments():
            wrapped = catalog.wrap_env(env)
            if wrapped is not env:
                assert wrapped.observation_space.contains(wrapped.reset(seed=0)[0])
                return True
    elif component.kind == "action_dist":
        composite = component.declaration.composite
        for space in [spaces.Tuple([spaces.Discrete(2), box])] if composite else samples:
            # The parts of a composite come from packages that are not here.
            parts = {f"action[{i}]": Sevens for i in range(2)} if composite else None
            with contextlib.suppress(UnsupportedSpaceError, MissingPluginError):
                cls, size = catalog.action_dist(space, {"custom_action_dist": parts}, name, framework)
                dist = cls(tensor(np.zeros((2, size), np.float32), framework))
                assert np.isfinite(np.asarray(dist.logp(dist.sample()))).all()
                return True
    elif component.kind == "model":
        config = {"custom_model": name}
        if component.declaration.slot == "memory":  # around a trunk of the program's own
            asks = next(key for key in catalog.config_keys(component) if key.startswith("use_"))
            config = {"custom_model": trunk_class(framework), asks: True}
        observed = [box, image, spaces.Dict({"eye": image, "self": box})]
        if component.declaration.slot == "head":  # the same, and what a head may find in the observation
            asks = [key for key in catalog.config_keys(component) if key.startswith("use_")]
            config = {"custom_model": trunk_class(framework), "custom_action_dist": Sevens, **dict.fromkeys(asks, True)}
            observed = [spaces.Dict({"avail_actions": spaces.Box(-1, 1, (2, 3)), "self": box})]
        for space in observed:
            with contextlib.suppress(UnsupportedSpaceError, MissingPluginError):
                whole = isinstance(space, spaces.Box)
                seen = space if whole else catalog.preprocessor_for(space).observation_space
                model = catalog.model_v2(seen, spaces.Discrete(2), 2, config, framework)
                state = [tensor(np.stack([np.asarray(part)] * 3), framework) for part in model.get_initial_state()]
                obs = tensor(np.zeros((3, *seen.shape), np.float32), framework)
                output, state = model({"obs": obs}, state, tensor(np.ones(3, np.int32), framework))
                assert tuple(output.shape) == (3, 2)
                assert tuple(model.value_function().shape) == (3,)
                return True
    if component.kind not in ("command", "check") or is_read(framework):
        component.load(framework)
    return False


report["worked"], report["imported"] = [], []
for component in catalog.components():
    if component.distribution == data["distribution"]:
        for framework in component.frameworks:
            done = report["worked" if work(component, framework) else "imported"]
            done.append(f"{component.kind}/{component.name}/{framework}")
report["components"] = [
    f"{c.kind}/{c.name}/{framework}" for c in catalog.components() if c.distribution == data["distribution"]
    for framework in c.frameworks
]
"""

#: Without any framework: everything answers, and what needs one names the extra.
WITHOUT_FRAMEWORKS = """
absent(["torch", "tensorflow"])
import rlcatalog
from rlcatalog.errors import MissingFrameworkError
from rlcatalog.frameworks import require_framework

catalog = rlcatalog.Catalog(environ={})
report["statuses"] = [r.status for r in catalog.plugins]
report["said"] = {}
for component in catalog.components():
    if component.distribution == data["distribution"] and component.kind not in ("framework", "exporter"):
        for framework in filter(is_read, component.frameworks):
            try:
                component.load(framework)
            except MissingFrameworkError as error:
                report["said"][f"{component.name}/{framework}"] = str(error)
for framework in ("torch", "tf"):
    try:
        require_framework(framework)
    except MissingFrameworkError as error:
        report["said"][framework] = str(error)
"""

#: One framework of two: a policy acts with it, the other one's extra is named.
ONE_FRAMEWORK = """
absent([data["missing_module"], *data["siblings"]])
import gymnasium as gym
import rlcatalog
from rlcatalog.errors import MissingFrameworkError

env = gym.make("CartPole-v1")
policy = rlcatalog.build(env=env, config={"fcnet_hiddens": [8]})  # the installed one need not be named
assert policy.framework == data["framework"], policy.framework
obs, _ = env.reset(seed=0)
step = policy.act(obs[None])
assert env.action_space.contains(step.action[0]), step.action
report["shapes"] = [list(step.action.shape), list(step.dist_inputs.shape), list(step.value.shape)]
try:
    rlcatalog.build(env=env, framework=data["missing"])
except MissingFrameworkError as error:
    report["said"] = str(error)
files_are_here(*data["ours"])
report["modules"] = [name for name in sys.modules if name in ("torch", "tensorflow")]
"""


def siblings_of(*distributions: str) -> list[str]:
    return [module_of(name) for name in FOLDERS if name not in distributions]


# --- each package alone ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def alone(environment, request) -> dict[str, Future]:
    """Start the slow probes, in one process that has imported the frameworks; distribution → its report to come."""
    pool = ThreadPoolExecutor(1)

    empty = environment()

    def probe(distribution: str) -> dict:
        needed = beside(distribution)
        return environment(*needed).probe(
            ALONE, empty, distribution=distribution, module=module_of(distribution), siblings=siblings_of(*needed)
        )

    tests = [item for item in request.session.items if item.path == Path(__file__) and "alone" in item.fixturenames]
    asked = {item.callspec.params["distribution"] for item in tests}
    reports = {name: pool.submit(probe, name) for name in FOLDERS if name in asked}
    pool.shutdown(wait=False)
    return reports


#: In `make test` every third; the contracts of imports and the one lookup without siblings are tried of all.
SOME_ALONE = [
    name if place % 3 == 0 else pytest.param(name, marks=pytest.mark.attack) for place, name in enumerate(FOLDERS)
]


@pytest.mark.parametrize("distribution", SOME_ALONE)
def test_a_package_works_alone_beside_the_kernel(alone, distribution):
    report = alone[distribution].result()
    plugins = [name for name in beside(distribution) if name != "rlcatalog"]
    assert [name for name, *_ in report["plugins"]] == sorted(plugins)
    for name, status, error in report["plugins"]:
        assert status == "loaded", (name, error)
    assert sorted(report["worked"] + report["imported"]) == sorted(report["components"])
    if distribution == "rlcatalog":
        assert report["components"] == []
        return
    assert report["components"]
    # Commands, engines, checks and formats are for parts of other packages.
    parts = [
        part for part in report["components"] if not part.startswith(("command/", "engine/", "check/", "exporter/"))
    ]
    if parts:
        assert report["worked"]
    for framework in {part.rpartition("/")[2] for part in parts}:
        assert any(part.endswith(f"/{framework}") for part in report["worked"])


#: In `make test` every fourth: what they say is the kernel's, and their extras are looked at where each works alone.
OF_ALL_KINDS = [
    name if place % 4 == 0 else pytest.param(name, marks=pytest.mark.attack)
    for place, name in enumerate(name for name in FOLDERS if name not in ("rlcatalog-torch", "rlcatalog-tf"))
]


@pytest.mark.parametrize("distribution", OF_ALL_KINDS)
def test_without_a_framework_a_package_names_the_extra(environment, bare, distribution):
    needed = needed_by(distribution)
    made = environment(*needed, without=("torch", "tensorflow"))
    report = made.probe(WITHOUT_FRAMEWORKS, bare, distribution=distribution)
    assert set(report["statuses"]) <= {"loaded"}
    said = report["said"]
    for framework in FRAMEWORKS:
        assert f"pip install 'rlcatalog[{framework}]'" in said.pop(framework)
    for part, message in said.items():
        framework = part.partition("/")[2]
        assert f"framework={framework!r} needs the package" in message
        assert f"pip install '{distribution}[{framework}]'" in message
    folder = FOLDERS[distribution].parent.name
    assert len(said) >= 2 or not folder.startswith("builtin")


# --- a few together --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "missing"), [("torch", "tf"), pytest.param("tf", "torch", marks=pytest.mark.attack)]
)
def test_a_few_packages_act_with_one_framework_and_name_the_other_ones_extra(environment, framework, missing):
    group = [*GROUP, f"rlcatalog-{framework}"]
    report = environment(*group, without=(FRAMEWORKS[missing],)).probe(
        ONE_FRAMEWORK, framework=framework, missing=missing, missing_module=FRAMEWORKS[missing],
        siblings=siblings_of(*group), ours=[module_of(name) for name in group],
    )  # fmt: skip
    assert report["shapes"] == [[1], [1, 2], [1]]
    assert report["modules"] == [FRAMEWORKS[framework]]
    assert f"framework={missing!r} needs the package 'rlcatalog-{missing}'" in report["said"]
    assert f"[{missing}]'" in report["said"]


def test_the_kernel_alone_lists_nothing_and_says_what_to_install(environment, bare):
    alone = environment("rlcatalog", "rlcatalog-cli", without=("torch", "tensorflow"))
    listing = alone.run("-m", "rlcatalog_cli", "list", warmed=bare)
    assert listing.returncode == 0, listing.stderr
    assert "No parts are installed" in listing.stdout
    assert "pip install rlcatalog-atari rlcatalog-attention" in " ".join(listing.stdout.split())
    as_json = alone.run("-m", "rlcatalog_cli", "list", "--json", warmed=bare)
    assert as_json.returncode == 0, as_json.stderr
    assert [plugin["distribution"] for plugin in json.loads(as_json.stdout)["plugins"]] == ["rlcatalog-cli"]
    explained = alone.run("-m", "rlcatalog_cli", "explain", "CartPole-v1", warmed=bare)
    assert explained.returncode == 1
    assert "rlcatalog-preprocessors, which is not installed: pip install rlcatalog-preprocessors" in explained.stderr
    assert "Traceback" not in explained.stderr
    report = alone.probe(NOT_THERE, bare)
    assert "rlcatalog-preprocessors, which is not installed: pip install rlcatalog-preprocessors" in report["explain"]
    for name, owner in {
        **dict.fromkeys(("build", "load", "Policy"), "rlcatalog-policy"),
        "Actor": "rlcatalog-export",
    }.items():
        assert report[name] == f"rlcatalog.{name} is provided by {owner}, which is not installed: pip install {owner}"
    assert report["framework"].endswith("Install it with: pip install 'rlcatalog[torch]'")


#: What the kernel alone says of what it lacks.
NOT_THERE = """
import gymnasium as gym
import rlcatalog
from rlcatalog.errors import MissingFrameworkError, MissingPluginError
from rlcatalog.frameworks import framework_name

spaces = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2)
for name, ask in {
    "explain": lambda: rlcatalog.explain(*spaces), "build": lambda: rlcatalog.build(*spaces),
    "load": lambda: rlcatalog.load("policy"), "Policy": lambda: rlcatalog.Policy,
    "Actor": lambda: rlcatalog.Actor("policy.onnx"), "framework": lambda: framework_name("torch"),
}.items():
    try:
        ask()
    except (MissingFrameworkError, MissingPluginError) as error:
        report[name] = str(error)
"""

#: The seeds' lookups, a pass, and a distribution's draws.
LOOKUPS = """
absent(data["siblings"])
import gymnasium as gym
import numpy as np
import torch
from rlcatalog import ModelCatalog

obs, action = gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(2)
preprocessor = ModelCatalog.get_preprocessor_for_space(obs)
dist_class, size = ModelCatalog.get_action_dist(action, {}, framework="torch")
model = ModelCatalog.get_model_v2(preprocessor.observation_space, action, size, {"fcnet_hiddens": [8]}, "torch")
outputs, _ = model({"obs": torch.as_tensor(preprocessor.transform(obs.sample()))[None]}, [], None)
dist = dist_class(outputs, model)
sample = dist.sample()
report["logp"] = dist.logp(sample).tolist()
report["expected"] = torch.log_softmax(outputs, -1)[0, sample].tolist()
report["value"] = list(model.value_function().shape)
"""


def test_parts_are_looked_up_and_work_without_the_policy(environment):
    group = [*PARTS, "rlcatalog-torch"]
    report = environment(*group, without=("tensorflow",)).probe(LOOKUPS, siblings=siblings_of(*group))
    assert report["logp"] == pytest.approx(report["expected"], rel=1e-5)
    assert report["value"] == [1]


# --- uninstalling ----------------------------------------------------------------------------------------------------

NEEDED_BY_CARTPOLE = PARTS[1:]

#: An environment that cannot be served once a package is gone.
MISSED = {**dict.fromkeys(NEEDED_BY_CARTPOLE, "CartPole-v1"), "rlcatalog-gaussian": "Pendulum-v1"}


#: Several command lines, one after another; of each, its exit status and what it printed.
COMMANDS = """
import contextlib, io, json, sys
from rlcatalog_cli import main

found = []
for line in json.loads(sys.argv[1]):
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(line)
        except SystemExit as end:
            status = end.code or 0
    found.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""


#: Ours, without the outsider's example.
OURS = [name for name in PLUGINS if name.startswith("rlcatalog-")]


@pytest.fixture(scope="session")
def full(environment):
    """An environment with every package of ours, without frameworks: nothing below needs one."""
    return environment("rlcatalog", *OURS, without=("torch", "tensorflow"))


@pytest.mark.parametrize(
    "distribution",
    [
        name
        if name in (*MISSED, "rlcatalog-policy", "rlcatalog-lstm")
        else pytest.param(name, marks=pytest.mark.attack)
        for name in OURS
        if name != "rlcatalog-cli"
    ],
)
def test_uninstalling_one_package_leaves_the_others_working(full, bare, wheels, distribution):
    missed = MISSED.get(distribution, "CartPole-v1")
    lines = [["list", "--json"], ["explain", missed], ["explain", "CartPole-v1", "--json"]]
    full.uninstall(distribution)
    try:
        process = full.run("-c", COMMANDS, json.dumps(lines), warmed=bare)
    finally:
        full.install(wheels[distribution])
    assert process.returncode == 0, process.stderr
    (listed, listing, said), (refused, _, why), (explained, choices, error) = json.loads(process.stdout)
    assert listed == 0, said
    statuses = {plugin["distribution"]: plugin["status"] for plugin in json.loads(listing)["plugins"]}
    assert statuses == dict.fromkeys(set(OURS) - {distribution}, "loaded")
    if distribution in MISSED:
        assert refused == 1
        assert f"{distribution}, which is not installed: pip install {distribution}" in why
        assert "Traceback" not in why
    if distribution not in NEEDED_BY_CARTPOLE:
        assert explained == 0, error
        assert json.loads(choices)["action_dist"]["chosen"] == "categorical"


# --- the probes can fail ---------------------------------------------------------------------------------------------


def wheel_of(folder: Path, distribution: str, **modules: str) -> Path:
    """Write a wheel by hand."""
    module = module_of(distribution)
    path = folder / f"{module}-1.0-py3-none-any.whl"
    info = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name, source in {"__init__": "", **modules}.items():
            archive.writestr(f"{module}/{name}.py", source)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        archive.writestr(f"{info}/entry_points.txt", f"[rlcatalog.plugins]\n{module} = {module}.plugin\n")
    return path


HONEST = """
import rlcatalog

@rlcatalog.hookimpl
def rlcatalog_filters():
    return []
"""


def probe_of_stranger(environment, distribution: str, *extra: str) -> dict:
    return environment.probe(
        ALONE, distribution=distribution, module=module_of(distribution), siblings=siblings_of("rlcatalog", *extra)
    )


def test_a_package_that_uses_a_sibling_it_does_not_declare_is_found(environment, tmp_path):
    made = environment("rlcatalog", without=("torch", "tensorflow"))
    made.install(wheel_of(tmp_path, "honest", plugin=HONEST))
    assert probe_of_stranger(made, "honest")["plugins"] == [["honest", "loaded", None]]
    made = environment("rlcatalog", without=("torch", "tensorflow"))
    made.install(wheel_of(tmp_path, "sneaky", plugin="import rlcatalog", deep="from rlcatalog_fcnet import config"))
    with pytest.raises(ProbeError, match="No module named 'rlcatalog_fcnet'"):
        probe_of_stranger(made, "sneaky")


def test_a_sibling_that_is_there_is_found(environment, tmp_path):
    made = environment("rlcatalog", "rlcatalog-fcnet", without=("torch", "tensorflow"))
    made.install(wheel_of(tmp_path, "honest", plugin=HONEST))
    with pytest.raises(ProbeError, match="rlcatalog_fcnet is there"):
        probe_of_stranger(made, "honest")


def test_a_module_from_outside_the_environment_is_found(environment, tmp_path):
    made = environment("rlcatalog", without=("torch", "tensorflow"))
    (tmp_path / "outside.py").write_text("", encoding="utf-8")
    (made.site / "outside.pth").write_text(f"{tmp_path}\n", encoding="utf-8")
    with pytest.raises(ProbeError, match=r"AssertionError: .*outside\.py"):
        made.probe("import outside\nfiles_are_here('outside')")


def test_a_plugin_that_does_not_load_is_found(environment, tmp_path):
    made = environment("rlcatalog", without=("torch", "tensorflow"))
    made.install(wheel_of(tmp_path, "broken", plugin="import rlcatalog\nraise RuntimeError('no')", deep=""))
    made.install(wheel_of(tmp_path, "entryless", plugin="import rlcatalog"))
    (made.site / "entryless-1.0.dist-info" / "entry_points.txt").unlink()
    report = made.probe(
        "import warnings, rlcatalog\nwarnings.simplefilter('ignore')\n"
        "report['plugins'] = [[r.distribution, r.status] for r in rlcatalog.Catalog(environ={}).plugins]"
    )
    assert report["plugins"] == [["broken", "failed"]]
