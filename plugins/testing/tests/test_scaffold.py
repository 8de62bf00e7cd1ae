"""`rlcatalog new`: what it writes works and passes its own tests and the tools; what it refuses is
left alone.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import warm
from gymnasium.spaces import Box, Dict, Discrete

import rlcatalog
from rlcatalog.errors import (
    DuplicateNameError,
    MissingExtraError,
    UnknownNameError,
)
from rlcatalog.plugins import install_hint, install_hints
from rlcatalog.plugins.discovery import PluginRecord, incompatible_reason
from rlcatalog_cli import main
from rlcatalog_testing import PluginEntryPoint, cases, isolated_catalog, outcomes, scaffold
from rlcatalog_testing.scaffold import (
    FRAMEWORKS,
    KINDS,
    LONGEST_NAME,
    kernel_bound,
    package_files,
    write_package,
)

ROOT = Path(__file__).resolve().parents[3]
TEMPLATES = ROOT / "plugins/testing/src/rlcatalog_testing/templates"
#: The parts around the one that is made; those that stand in its extra `dev`.
AROUND = (
    "rlcatalog-bounded",
    "rlcatalog-categorical",
    "rlcatalog-fcnet",
    "rlcatalog-gaussian",
    "rlcatalog-multi-action",
    "rlcatalog-preprocessors",
)
OF_FRAMEWORKS = [kind for kind, about in KINDS.items() if about.frameworks]
pytestmark = pytest.mark.usefixtures("one_thread", "seeded")


def name_of(kind):
    return f"acme-{kind}"


def package_of(kind):
    return name_of(kind).replace("-", "_")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a package of each kind, all of them importable."""
    folder = tmp_path_factory.mktemp("made")
    for kind in KINDS:
        write_package(folder / name_of(kind), package_files(kind, name_of(kind)))
    sources = [str(folder / name_of(kind) / "src") for kind in KINDS]
    sys.path[:0] = sources
    yield folder
    sys.path[:] = [path for path in sys.path if path not in sources]
    for name in [name for name in sys.modules if name.partition(".")[0] in map(package_of, KINDS)]:
        del sys.modules[name]


@pytest.fixture
def catalog_with(made):
    """A function from kinds to the catalog of their packages and the parts around them."""

    def catalog_with(*kinds):
        points = [PluginEntryPoint(f"{package_of(kind)}.plugin", name_of(kind)) for kind in kinds]
        return isolated_catalog(*points, *AROUND)

    return catalog_with


# --- what is made works ---------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=pytest.mark.attack)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_package_loads_and_keeps_the_kit_s_contract(catalog_with, kind, framework):
    catalog = catalog_with(kind)
    [record] = [record for record in catalog.plugins if record.distribution == name_of(kind)]
    assert (record.status, record.error) == ("loaded", None)
    [component] = [c for c in catalog.components() if c.distribution == name_of(kind)]
    assert component.kind == KINDS[kind].component
    assert component.frameworks == ("torch", "tf") or not KINDS[kind].frameworks
    chosen = [
        case
        for case in cases(name_of(kind), catalog=catalog)
        # What the plugin modules import is looked at below, and in one of them as it is for users,
        # in a process.
        if case.part.framework in (framework, None)
        and (kind == "model" or case.check.name != "imports_no_framework")
    ]
    ended = list(outcomes(chosen))
    assert {outcome.status for outcome in ended} <= {"passed", "skipped"}, ended


@pytest.mark.parametrize("kind", KINDS)
def test_declarations_import_the_kernel_and_their_own_package_alone(made, kind):
    source = (made / name_of(kind) / f"src/{package_of(kind)}/plugin.py").read_text(
        encoding="utf-8"
    )
    nodes = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = {alias.name for node in nodes for alias in node.names if isinstance(node, ast.Import)}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    packages = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
    assert packages - {package_of(kind)} == {"rlcatalog"}


def test_nothing_that_is_made_changes_a_choice(catalog_with):
    """All nine installed, a policy for plain spaces is made of the same parts as with none."""
    slots = ("preprocessor", "filter", "model", "memory", "head", "action_dist")
    structured = Dict({"a": Box(-1, 1, (2,)), "b": Discrete(3)})
    for spaces in ((Box(-1, 1, (4,)), Discrete(2)), (structured, Box(-1, 1, (2,)))):
        with_all, plain = (
            catalog.explain(*spaces).as_dict()
            for catalog in (catalog_with(*KINDS), isolated_catalog(*AROUND))
        )
        assert [with_all[slot]["chosen"] for slot in slots] == [
            plain[slot]["chosen"] for slot in slots
        ]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_parts_that_are_made_work_together(catalog_with, framework):
    """A residual trunk, a GRU, a temperature, a filter and headings on both sides, in
    one policy.
    """
    catalog = catalog_with(*KINDS)
    observed, done = (
        importlib.import_module(f"{package_of(kind)}.spaces").Heading
        for kind in ("codec", "action-codec")
    )
    obs_space = Dict({"course": observed(2), "speed": Box(-1, 1, (3,))})
    config = {
        "custom_model": "acme_model",
        "acme_memory_use": True,
        "acme_memory_size": 8,
        "acme_head_temperature": 2.0,
        "observation_filter": "acme_filter",
    }
    policy = rlcatalog.build(obs_space, Discrete(3), config, framework, catalog=catalog)
    step = policy.act([obs_space.sample() for _ in range(5)])
    assert step.dist_inputs.shape == (5, 3)
    config = {key: value for key, value in config.items() if "head" not in key}
    policy = rlcatalog.build(
        obs_space,
        done(2),
        {**config, "custom_action_dist": "acme_distribution"},
        framework,
        catalog=catalog,
    )
    action = policy.act([obs_space.sample() for _ in range(5)]).action
    assert all(row in policy.action_space for row in action)


@pytest.mark.attack  # that each kind keeps the contract is tried above
def test_a_package_passes_its_own_tests_once_it_is_installed(tmp_path):
    """What pip would write beside the code is written by hand; then the author's first `pytest`, of
    two packages.
    """
    folders = []
    for kind, frameworks in (("model", ["torch"]), ("codec", None)):
        name, package = f"first-{kind}", f"first_{kind}"
        folders.append(tmp_path / name)
        write_package(folders[-1], package_files(kind, name, frameworks))
        project = tomllib.loads((folders[-1] / "pyproject.toml").read_text(encoding="utf-8"))[
            "project"
        ]
        [line] = project["dependencies"]
        [(point, module)] = project["entry-points"]["rlcatalog.plugins"].items()
        info = tmp_path / f"site/{package}-0.1.0.dist-info"
        info.mkdir(parents=True)
        info.joinpath("METADATA").write_text(
            f"Name: {project['name']}\nVersion: 0.1.0\nRequires-Dist: {line}\n"
        )
        info.joinpath("entry_points.txt").write_text(f"[rlcatalog.plugins]\n{point} = {module}\n")
    path = " ".join(map(str, [tmp_path / "site", *(folder / "src" for folder in folders)]))
    arguments = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        f"pythonpath={path}",
        *(str(f / "tests") for f in folders),
    ]
    warnings = ["-W", "error::UserWarning"]
    # Of PyTorch's CUDA build where there is no GPU.
    warnings += ["-W", "ignore:CUDA initialization:UserWarning"]
    done = warm.run([*warnings, "-m", "pytest", *arguments], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ passed", done.stdout, re.M)


# --- what each does -------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_memory_says_the_same_step_by_step_and_over_padded_sequences(catalog_with, framework):
    config = {"acme_memory_use": True, "acme_memory_size": 8, "fcnet_hiddens": [8]}
    policy = rlcatalog.build(
        Box(-1, 1, (4,)), Discrete(3), config, framework, catalog=catalog_with("memory")
    )
    obs, lengths = np.random.default_rng(0).uniform(-1, 1, (7, 4)).astype(np.float32), [4, 2, 1]
    steps, ends, row = [], [], 0
    for length in lengths:
        state = None
        for _ in range(length):
            step = policy.act(obs[row : row + 1], state)
            state, row = step.state, row + 1
            steps.append(step.dist_inputs[0])
        ends.append(state.memory[0][0])
    padded, real = np.full((12, 4), np.nan, np.float32), [0, 1, 2, 3, 4, 5, 8]
    padded[real] = obs
    tensor = (
        importlib.import_module("torch").as_tensor
        if framework == "torch"
        else importlib.import_module("tensorflow").constant
    )
    start = [tensor(np.zeros((3, 8), np.float32))]
    outputs, [end] = policy.model(
        {"obs": tensor(padded)}, start, tensor(np.array(lengths, np.int32))
    )
    outputs, end = (
        part.detach().numpy() if framework == "torch" else part.numpy() for part in (outputs, end)
    )
    np.testing.assert_allclose(outputs[real], steps, atol=1e-6)
    np.testing.assert_allclose(end, ends, atol=1e-6)


@pytest.mark.parametrize("kind", ["model", "memory", "head"])
def test_frameworks_say_the_same_with_the_same_weights(catalog_with, kind):
    configs = {
        "model": {"custom_model": "acme_model", "vf_share_layers": False},
        "memory": {"acme_memory_use": True},
        "head": {"acme_head_temperature": 3.0, "vf_share_layers": False},
    }
    torch, tf = (
        rlcatalog.build(
            Box(-1, 1, (4,)), Discrete(3), configs[kind], framework, catalog=catalog_with(kind)
        )
        for framework in FRAMEWORKS
    )
    tf.model.set_weights(torch.model.get_weights())
    obs, states = np.random.default_rng(0).uniform(-1, 1, (5, 4)).astype(np.float32), [None, None]
    for _ in range(2):
        one, other = (
            policy.act(obs, state) for policy, state in zip((torch, tf), states, strict=True)
        )
        np.testing.assert_allclose(one.dist_inputs, other.dist_inputs, atol=1e-6)
        np.testing.assert_allclose(one.value, other.value, atol=1e-6)
        states = [one.state, other.state]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_distribution_is_scipy_s(catalog_with, framework):
    from scipy.integrate import quad
    from scipy.stats import laplace

    config = {"custom_action_dist": "acme_distribution", "acme_distribution_least_scale": 0.5}
    policy = rlcatalog.build(
        Box(-1, 1, (4,)), Box(-1, 1, (2,)), config, framework, catalog=catalog_with("distribution")
    )
    rng = np.random.default_rng(0)
    inputs, others, actions = (rng.normal(size=(6, n)).astype(np.float32) for n in (4, 4, 2))
    dist, other = policy.dist_class(inputs), policy.dist_class(others)
    scales = [np.maximum(np.exp(x[:, 2:].astype(np.float64)), 0.5) for x in (inputs, others)]
    p, q = (
        laplace(x[:, :2].astype(np.float64), scale)
        for x, scale in zip((inputs, others), scales, strict=True)
    )

    def numbers(tensor):
        return tensor.detach().numpy() if framework == "torch" else tensor.numpy()

    np.testing.assert_allclose(
        numbers(dist.logp(actions)), p.logpdf(actions).sum(1), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(numbers(dist.entropy()), p.entropy().sum(1), rtol=1e-5)
    expected = [
        sum(
            quad(
                lambda x, a=a, b=b: a.pdf(x) * (a.logpdf(x) - b.logpdf(x)),
                -80,
                80,
                points=[a.mean(), b.mean()],
                limit=400,
            )[0]
            for a, b in (
                (laplace(p.mean()[i, j], scales[0][i, j]), laplace(q.mean()[i, j], scales[1][i, j]))
                for j in range(2)
            )
        )
        for i in range(2)
    ]
    np.testing.assert_allclose(numbers(dist.kl(other))[:2], expected, rtol=1e-4)
    drawn = numbers(policy.dist_class(np.repeat(inputs[:1], 20_000, 0)).sample())
    assert drawn.shape == (20_000, 2)
    np.testing.assert_allclose(np.abs(drawn - inputs[0, :2]).mean(0), scales[0][0], rtol=0.05)


# --- the tools ------------------------------------------------------------------------------------


def tool(*arguments, cwd, **environ):
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_has_nothing_to_say(made, tmp_path):
    """By the rules in each package, which are the repository's; nor is it to be reformatted,
    however long a name.
    """
    for kind in KINDS:
        long = f"long-{kind}".ljust(LONGEST_NAME, "x")
        write_package(tmp_path / long, package_files(kind, long))
    for folder in (made, tmp_path):
        tool("ruff", "check", "--no-cache", ".", cwd=folder)
        tool("ruff", "format", "--no-cache", "--check", ".", cwd=folder)
    settings = [
        tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["ruff"]
        for path in (ROOT / "pyproject.toml", made / "acme-model/pyproject.toml")
    ]
    assert settings[0]["lint"]["select"] == settings[1]["lint"]["select"]
    # Of hooks.
    assert set(settings[1]["lint"]["ignore"]) - set(settings[0]["lint"]["ignore"]) == {"D103"}


@pytest.mark.attack  # where no cache of mypy's is, it looks through the frameworks
def test_types_are_strict(made):
    """All packages in one run with the repository's settings, whose cache `make lint`
    has filled.
    """
    pytest.importorskip("mypy")
    path = os.pathsep.join(str(made / name_of(kind) / "src") for kind in KINDS)
    packages = [argument for kind in KINDS for argument in ("-p", package_of(kind))]
    tool("mypy", "--strict", *packages, cwd=ROOT, MYPYPATH=path)
    assert tomllib.loads((made / "acme-model/pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "mypy"
    ]["strict"]


# --- what is written ------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [["torch"], ["tf"], ["tf", "torch"]])
@pytest.mark.parametrize("kind", OF_FRAMEWORKS)
def test_only_the_frameworks_asked_for_are_served(kind, asked):
    files = package_files(kind, "acme-part", asked)
    assert {f for f in FRAMEWORKS if f"src/acme_part/{f}.py" in files} == set(asked)
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert set(project["optional-dependencies"]) == {*asked, "dev"}
    module = ast.parse(files["src/acme_part/plugin.py"])
    [targets] = [
        k.value
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        for k in node.keywords
        if k.arg == "targets"
    ]
    assert set(ast.literal_eval(targets)) == set(asked)
    assert {f for f in FRAMEWORKS if f"acme_part/{f}.py" in files["README.md"]} == set(asked)


def test_no_template_is_left_over():
    used = {
        name
        for kind in KINDS
        for name in (f"{kind}/{path.name}" for path in (TEMPLATES / kind).iterdir())
    }
    found = {
        path.relative_to(TEMPLATES).as_posix()
        for path in TEMPLATES.glob("*/**/*")
        if path.is_file()
    }
    common = {name for name in found if name.startswith("common/")}
    assert found == used | common
    assert len(common) == 6


@pytest.mark.parametrize("kind", [kind for kind, about in KINDS.items() if about.keys])
def test_the_table_of_keys_is_that_of_the_config(made, catalog_with, kind):
    keys = catalog_with(kind).schema.keys
    own = {name: repr(key.default) for name, key in keys.items() if key.owner == name_of(kind)}
    assert own == {f"{package_of(kind)}_{key.name}": key.default for key in KINDS[kind].keys}
    readme = (made / name_of(kind) / "README.md").read_text(encoding="utf-8")
    for key in KINDS[kind].keys:
        assert keys[f"{package_of(kind)}_{key.name}"].meaning == key.meaning
        assert f"| `{package_of(kind)}_{key.name}` | `{key.default}` | {key.meaning} |" in readme


@pytest.mark.parametrize(
    ("version", "bound"),
    [
        ("0.1.0", ">=0.1,<0.2"),
        ("0.12.3", ">=0.12,<0.13"),
        ("1.4.2", ">=1.4,<2"),
        ("2.0.0rc1", ">=2.0.0rc1,<3"),
        ("0.2.0.dev3", ">=0.2.0.dev3,<0.3"),
    ],
)
def test_the_bound_takes_the_kernel_it_was_made_with(version, bound):
    assert kernel_bound(version) == bound
    plugin = PluginRecord("x", "x", "1.0", (f"rlcatalog{bound}",))
    assert incompatible_reason(plugin, version) is None


def test_the_command_writes_the_package_and_says_what_comes_next(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["new", "head", "Acme.Gate", "--frameworks", "tf", "--out", str(tmp_path)])
    assert not ended.value.code
    folder = tmp_path / "Acme.Gate"
    files = package_files("head", "Acme.Gate", ["tf"])
    assert {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    } == files
    assert "src/acme_gate/tf.py" in files
    said = capsys.readouterr().out
    assert f"cd {folder}" in said
    assert 'pip install -e ".[tf,dev]"' in said


@pytest.mark.parametrize(
    ("frameworks", "requirement"),
    [
        (["torch", "tf"], "rlcatalog[torch,tf,testing]"),
        ([], "rlcatalog[torch,testing]"),  # its tests build a policy, which needs one
    ],
)
def test_new_says_first_how_to_install_what_is_missing(
    tmp_path, monkeypatch, capsys, frameworks, requirement
):
    kind = "model" if frameworks else "filter"
    monkeypatch.setattr(scaffold, "RELEASED", False)
    monkeypatch.setattr(install_hints, "RELEASED", False)
    monkeypatch.setattr(scaffold, "missing_distributions", lambda names: ["rlcatalog-tf"])
    with pytest.raises(SystemExit):
        main(["new", kind, "acme-part", "--out", str(tmp_path)])
    hint = install_hint(requirement)
    said = capsys.readouterr().out
    assert said.index(hint) < said.index("pip install -e")
    assert hint in (tmp_path / "acme-part/README.md").read_text(encoding="utf-8")


def test_new_leaves_installing_to_pip_once_released(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scaffold, "RELEASED", True)
    monkeypatch.setattr(scaffold, "missing_distributions", lambda names: ["rlcatalog-tf"])
    with pytest.raises(SystemExit):
        main(["new", "model", "acme-part", "--out", str(tmp_path)])
    workflow = tmp_path / "acme-part/.github/workflows/ci.yml"
    texts = [capsys.readouterr().out, workflow.read_text(encoding="utf-8")]
    lines = [line for text in texts for line in text.splitlines() if "pip install" in line]
    assert all('pip install -e ".[torch,tf,dev]"' in line for line in lines)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["modle", "acme-x"],
            "'modle' is not a kind of part. Did you mean 'model'? Known: model, memory",
        ),
        (["model", "acme-x", "--frameworks", "torhc"], "Did you mean 'torch'? Known: torch, tf."),
        (["model", "acme-x", "--frameworks", ""], "'' has no templates"),
        (
            ["filter", "acme-x", "--frameworks", "torch"],
            "filter: the code for this kind needs no framework",
        ),
        (["model", "acme x"], "'acme x' is not a valid distribution name"),
        (["model", "../acme"], "is not a valid distribution name"),
        (["model", "acme-"], "is not a valid distribution name"),
        (["model", "3d-net"], "would be imported as '3d_net'"),
        (["model", "class"], "would be imported as 'class'"),
        (["model", "a" * 41], "has 41 characters, but at most 40 are allowed"),
        (["model", "Torch"], "is already installed"),
        (["model", "rlcatalog_fcnet"], "is a distribution in the public index"),
        (
            ["model", "fcnet"],
            "would declare the model 'fcnet', but this name belongs to rlcatalog-fcnet",
        ),
        (["memory", "lstm"], "belongs to rlcatalog-lstm"),
        (["filter", "filter"], "would declare the config 'filter_clip', but this name belongs to"),
        (["model", "json"], "a module with that name is installed"),
        (["model", "cv2"], "a module with that name is installed"),
    ],
)
def test_refused_before_anything_is_written(tmp_path, capsys, arguments, said):
    with pytest.raises(SystemExit) as ended:
        main(["new", *arguments, "--out", str(tmp_path / "out")])
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert not (tmp_path / "out").exists()


def test_errors_are_typed():
    for kind, name, expected in (
        ("modle", "acme-x", UnknownNameError),
        ("model", "a b", UnknownNameError),
        ("model", "torch", DuplicateNameError),
    ):
        with pytest.raises(expected):
            package_files(kind, name)


def test_a_folder_that_exists_is_left_as_it_is(tmp_path, capsys):
    (tmp_path / "acme-x").mkdir()
    with pytest.raises(SystemExit):
        main(["new", "model", "acme-x", "--out", str(tmp_path)])
    assert "acme-x already exists, so nothing was written" in capsys.readouterr().err
    assert list((tmp_path / "acme-x").iterdir()) == []


def test_without_the_template_engine_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=re.escape(install_hint("rlcatalog-testing[new]"))):
        package_files("model", "acme-x")
    assert issubclass(MissingExtraError, ImportError)
