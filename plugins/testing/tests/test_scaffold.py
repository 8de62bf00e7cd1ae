"""`rlcatalog new`: the packages that it writes, their own tests, and what it refuses."""

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
from rlcatalog.errors import DuplicateNameError, MissingExtraError, UnknownNameError
from rlcatalog.plugins import install_hint, install_hints
from rlcatalog.plugins.discovery import PluginRecord, incompatible_reason
from rlcatalog_cli import main
from rlcatalog_testing import PluginEntryPoint, cases, isolated_catalog, outcome_of, scaffold
from rlcatalog_testing.scaffold import (
    FRAMEWORKS,
    KINDS,
    LONGEST_NAME,
    PACKAGE,
    kernel_bound,
    package_files,
    write_package,
)

ROOT = Path(__file__).resolve().parents[3]
TEMPLATES = ROOT / "plugins/testing/src/rlcatalog_testing/templates"
#: The built-in packages beside a new one; those of its extra `dev`.
BUILT_IN = (
    "rlcatalog-bounded",
    "rlcatalog-categorical",
    "rlcatalog-fcnet",
    "rlcatalog-gaussian",
    "rlcatalog-multi-action",
    "rlcatalog-preprocessors",
)
KINDS_WITH_FRAMEWORKS = [kind for kind, about in KINDS.items() if about.frameworks]
KINDS_WITH_KEYS = [kind for kind, about in KINDS.items() if about.keys]
pytestmark = pytest.mark.usefixtures("one_thread", "seeded")


def distribution_of(kind):
    return f"acme-{kind}"


def module_of(kind):
    return f"acme_{kind}".replace("-", "_")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with a package of each kind, such as acme-model, which can be imported."""
    folder = tmp_path_factory.mktemp("packages")
    sources = []
    for kind in KINDS:
        write_package(folder / distribution_of(kind), package_files(kind, distribution_of(kind)))
        sources.append(str(folder / distribution_of(kind) / "src"))
    sys.path[:0] = sources
    yield folder
    sys.path[:] = [path for path in sys.path if path not in sources]
    modules = [module_of(kind) for kind in KINDS]
    for name in list(sys.modules):
        if name.partition(".")[0] in modules:
            del sys.modules[name]


@pytest.fixture
def make_catalog(packages):
    """Return a catalog of built-in packages and of the packages of these kinds."""

    def make(*kinds):
        plugins = [
            PluginEntryPoint(f"{module_of(kind)}.plugin", distribution_of(kind)) for kind in kinds
        ]
        return isolated_catalog(*plugins, *BUILT_IN)

    return make


# --- the packages keep their contracts ------------------------------------------------------------

each_kind = pytest.mark.parametrize("kind", KINDS)
each_framework = pytest.mark.parametrize("framework", FRAMEWORKS)


@each_kind
def test_package_declares_a_part_of_its_kind(make_catalog, kind):
    catalog = make_catalog(kind)

    [record] = [plugin for plugin in catalog.plugins if plugin.distribution == f"acme-{kind}"]
    assert record.status == "loaded"
    assert record.error is None
    [part] = [part for part in catalog.parts() if part.distribution == f"acme-{kind}"]
    assert part.kind == KINDS[kind].part_kind
    if KINDS[kind].frameworks:
        assert part.frameworks == ("torch", "tf")


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=pytest.mark.slow)])
@each_kind
def test_package_passes_the_conformance_kit(make_catalog, kind, framework):
    for case in cases(distribution_of(kind), catalog=make_catalog(kind)):
        # This check starts a process. The imports of every package are tested below.
        if case.check.name == "imports_no_framework" and kind != "model":
            continue
        if case.subject.framework in (framework, None):
            outcome = outcome_of(case)
            assert outcome.status in ("passed", "skipped"), outcome.why


@each_kind
def test_plugin_module_imports_only_the_kernel_and_its_package(packages, kind):
    module = packages / distribution_of(kind) / f"src/{module_of(kind)}/plugin.py"
    source = module.read_text(encoding="utf-8")

    imported_packages = set(re.findall(r"^(?:from|import) (\w+)", source, re.MULTILINE))

    assert imported_packages - sys.stdlib_module_names <= {"rlcatalog", module_of(kind)}
    assert "rlcatalog" in imported_packages


@pytest.mark.parametrize(
    ("obs_space", "action_space"),
    [
        pytest.param(Box(-1, 1, (4,)), Discrete(2), id="vector"),
        pytest.param(Dict({"a": Box(-1, 1, (2,)), "b": Discrete(3)}), Box(-1, 1, (2,)), id="dict"),
    ],
)
def test_new_packages_do_not_change_any_choice(make_catalog, obs_space, action_space):
    slots = ("preprocessor", "filter", "model", "memory", "head", "action_dist")
    built_in = isolated_catalog(*BUILT_IN).explain(obs_space, action_space).as_dict()

    explanation = make_catalog(*KINDS).explain(obs_space, action_space).as_dict()

    for slot in slots:
        assert explanation[slot]["chosen"] == built_in[slot]["chosen"]


# --- the packages work together -------------------------------------------------------------------


@pytest.fixture
def obs_space(packages):
    """A space with a Heading, which the new preprocessor encodes."""
    heading = importlib.import_module("acme_codec.spaces").Heading
    return Dict({"course": heading(2), "speed": Box(-1, 1, (3,))})


MEMORY_AND_FILTER = {
    "custom_model": "acme_model",
    "acme_memory_use": True,
    "acme_memory_size": 8,
    "observation_filter": "acme_filter",
}


@each_framework
def test_new_parts_work_in_one_policy(make_catalog, obs_space, framework):
    config = {**MEMORY_AND_FILTER, "acme_head_temperature": 2.0}
    policy = rlcatalog.build(
        obs_space, Discrete(3), config, framework, catalog=make_catalog(*KINDS)
    )

    step = policy.act([obs_space.sample() for _ in range(5)])

    assert step.dist_inputs.shape == (5, 3)


@each_framework
def test_new_distribution_and_action_codec_work_together(make_catalog, obs_space, framework):
    heading = importlib.import_module("acme_action_codec.spaces").Heading
    config = {**MEMORY_AND_FILTER, "custom_action_dist": "acme_distribution"}
    policy = rlcatalog.build(obs_space, heading(2), config, framework, catalog=make_catalog(*KINDS))

    actions = policy.act([obs_space.sample() for _ in range(5)]).action

    assert all(action in policy.action_space for action in actions)


def install_by_hand(folder, site):
    """Write the metadata of a package into a folder, as pip does when it installs it."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [requirement] = project["dependencies"]
    [(name, module)] = project["entry-points"]["rlcatalog.plugins"].items()
    info = site / f"{folder.name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Name: {project['name']}\nVersion: 0.1.0\nRequires-Dist: {requirement}\n"
    )
    (info / "entry_points.txt").write_text(f"[rlcatalog.plugins]\n{name} = {module}\n")


@pytest.mark.slow  # faster tests run the kit for each kind
def test_installed_packages_pass_their_own_tests(tmp_path):
    model = tmp_path / "first-model"
    parts = tmp_path / "first-parts"
    kinds = ["model", "distribution", "codec"]
    write_package(model, package_files("model", "first-model", ["torch"]))
    write_package(parts, package_files(PACKAGE, "first-parts", ["torch"], kinds))
    install_by_hand(model, tmp_path / "site")
    install_by_hand(parts, tmp_path / "site")
    path = f"pythonpath={tmp_path / 'site'} {model / 'src'} {parts / 'src'}"

    warnings = ["-W", "error::UserWarning"]
    # PyTorch's CUDA build warns on a computer without a GPU.
    warnings += ["-W", "ignore:CUDA initialization:UserWarning"]
    options = ["-q", "-p", "no:cacheprovider", "-o", path]
    folders = [str(model / "tests"), str(parts / "tests")]
    run = warm.run([*warnings, "-m", "pytest", *options, *folders], tmp_path)

    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"^\d+ passed", run.stdout, re.MULTILINE)


# --- packages with several parts ------------------------------------------------------------------

#: Sets of kinds that together contain each kind; the second one has three kinds of one hook.
SETS = {
    "acme-three": ("model", "distribution", "codec"),
    "acme-models": ("model", "memory", "head"),
    "acme-others": ("action-codec", "filter", "wrapper", "command"),
}


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A folder with a package of each set, which can be imported."""
    folder = tmp_path_factory.mktemp("several")
    sources = []
    for name, kinds in SETS.items():
        write_package(folder / name, package_files(PACKAGE, name, None, kinds))
        sources.append(str(folder / name / "src"))
    sys.path[:0] = sources
    yield folder
    sys.path[:] = [path for path in sys.path if path not in sources]
    roots = [name.replace("-", "_") for name in SETS]
    for name in list(sys.modules):
        if name.partition(".")[0] in roots:
            del sys.modules[name]


each_set = pytest.mark.parametrize("name", SETS)


def catalog_of(name):
    plugin = PluginEntryPoint(f"{name.replace('-', '_')}.plugin", name)
    return isolated_catalog(plugin, *BUILT_IN)


@each_set
@pytest.mark.usefixtures("several")
def test_package_declares_a_part_of_each_of_its_kinds(name):
    parts = [part for part in catalog_of(name).parts() if part.distribution == name]

    assert sorted(part.kind for part in parts) == sorted(
        KINDS[kind].part_kind for kind in SETS[name]
    )
    assert all(
        part.name.startswith(name.replace("-", "_")) for part in parts if part.kind != "command"
    )


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=pytest.mark.slow)])
@each_set
@pytest.mark.usefixtures("several")
def test_package_of_several_parts_passes_the_conformance_kit(name, framework):
    for case in cases(name, catalog=catalog_of(name)):
        if case.check.name == "imports_no_framework" and name != "acme-three":
            continue  # this check starts a process
        if case.subject.framework in (framework, None):
            outcome = outcome_of(case)
            assert outcome.status in ("passed", "skipped"), outcome.why


def test_packages_of_several_parts_pass_ruff(several):
    everything = package_files(PACKAGE, "long-name-of-a-company-x", None, list(KINDS))
    write_package(several / "long-name-of-a-company-x", everything)

    run_tool("ruff", "check", "--no-cache", ".", cwd=several)
    run_tool("ruff", "format", "--no-cache", "--check", ".", cwd=several)


def test_names_in_a_package_are_its_own():
    files = package_files(PACKAGE, "other-parts", None, list(KINDS))

    for path, text in files.items():
        assert "acme" not in text, path
        assert "{{" not in text.replace("${{", ""), path  # a name that was not filled in


def test_project_of_several_parts_has_one_entry_point():
    files = package_files(PACKAGE, "acme-mixed", ["torch"], ["codec", "model"])

    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert project["entry-points"] == {"rlcatalog.plugins": {"acme_mixed": "acme_mixed.plugin"}}
    assert set(project["optional-dependencies"]) == {"torch", "dev"}
    assert "src/acme_mixed/model/torch.py" in files
    assert "src/acme_mixed/model/tf.py" not in files


def test_readme_of_several_parts_describes_each_file():
    files = package_files(PACKAGE, "acme-mixed", None, list(KINDS))
    without_purpose = ("README.md", ".gitignore", ".github/workflows/ci.yml", "pyproject.toml")

    for path in files:
        if path not in without_purpose and not path.endswith(("__init__.py", "py.typed")):
            assert f"| `{path}` | " in files["README.md"]
    for kind in KINDS:
        assert f"## {KINDS[kind].about}" in files["README.md"]


# --- the parts compute what they should -----------------------------------------------------------


@each_framework
def test_new_distribution_is_a_laplace_distribution(make_catalog, framework):
    config = {"custom_action_dist": "acme_distribution", "acme_distribution_least_scale": 0.5}
    catalog = make_catalog("distribution")
    policy = rlcatalog.build(Box(-1, 1, (4,)), Box(-1, 1, (2,)), config, framework, catalog=catalog)
    # Two means, then the logs of two scales, of which the second is raised to the least scale.
    inputs = np.array([[0, 1, np.log(2), -9]], np.float32)

    logp = policy.dist_class(inputs).logp(np.array([[4, 1]], np.float32))

    # The density of 4 is exp(-4 / 2) / (2 * 2), and that of 1 is 1 / (2 * 0.5) = 1.
    np.testing.assert_allclose(np.asarray(logp), [-2 - np.log(4)], rtol=1e-5)


# --- linters and type checkers --------------------------------------------------------------------


def run_tool(*arguments, cwd, **environ):
    run = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_packages_pass_ruff(packages):
    run_tool("ruff", "check", "--no-cache", ".", cwd=packages)
    run_tool("ruff", "format", "--no-cache", "--check", ".", cwd=packages)


def test_packages_with_the_longest_name_pass_ruff(tmp_path):
    for kind in KINDS:
        name = f"long-{kind}".ljust(LONGEST_NAME, "x")
        write_package(tmp_path / name, package_files(kind, name))

    run_tool("ruff", "check", "--no-cache", ".", cwd=tmp_path)
    run_tool("ruff", "format", "--no-cache", "--check", ".", cwd=tmp_path)


def read_settings(project, tool):
    return tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["tool"][tool]


def test_packages_have_the_ruff_rules_of_this_repository(packages):
    rules_here = read_settings(ROOT, "ruff")["lint"]

    rules = read_settings(packages / "acme-model", "ruff")["lint"]

    assert rules["select"] == rules_here["select"]
    # D103: hooks need no docstring. ARG: rlcatalog decides what they and methods take.
    own = {"D103", "ARG001", "ARG003", "ARG004"}
    assert set(rules["ignore"]) - set(rules_here["ignore"]) == own


@pytest.mark.slow  # without mypy's cache, it reads the frameworks for minutes
def test_packages_pass_mypy(packages):
    pytest.importorskip("mypy")
    path = os.pathsep.join(str(packages / distribution_of(kind) / "src") for kind in KINDS)
    arguments = ["--strict"]
    for kind in KINDS:
        arguments += ["-p", module_of(kind)]

    # In this repository, whose cache `make lint` has filled.
    run_tool("mypy", *arguments, cwd=ROOT, MYPYPATH=path)


def test_packages_ask_mypy_to_be_strict(packages):
    assert read_settings(packages / "acme-model", "mypy")["strict"]


# --- the files of a package -----------------------------------------------------------------------


@pytest.fixture(params=[["torch"], ["tf"], ["tf", "torch"]], ids="-".join)
def frameworks(request):
    return request.param


@pytest.mark.parametrize("kind", KINDS_WITH_FRAMEWORKS)
def test_package_has_modules_of_its_frameworks_only(kind, frameworks):
    files = package_files(kind, "acme-part", frameworks)

    modules = [name for name in FRAMEWORKS if f"src/acme_part/{name}.py" in files]
    named_in_readme = [name for name in FRAMEWORKS if f"acme_part/{name}.py" in files["README.md"]]
    assert set(modules) == set(frameworks)
    assert set(named_in_readme) == set(frameworks)


@pytest.mark.parametrize("kind", KINDS_WITH_FRAMEWORKS)
def test_package_has_extras_of_its_frameworks_only(kind, frameworks):
    files = package_files(kind, "acme-part", frameworks)

    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert set(project["optional-dependencies"]) == {*frameworks, "dev"}


@pytest.mark.parametrize("kind", KINDS_WITH_FRAMEWORKS)
def test_package_declares_targets_of_its_frameworks_only(kind, frameworks):
    files = package_files(kind, "acme-part", frameworks)

    plugin = ast.parse(files["src/acme_part/plugin.py"])
    keywords = [node for node in ast.walk(plugin) if isinstance(node, ast.keyword)]
    [targets] = [keyword.value for keyword in keywords if keyword.arg == "targets"]
    assert set(ast.literal_eval(targets)) == set(frameworks)


def test_templates_of_unknown_kinds_are_not_left_over():
    files = [path for path in TEMPLATES.glob("*/**/*") if path.is_file()]

    # Those of a kind lie in its folder, those of all kinds in "common", and what joins several
    # parts in "package".
    folders = {path.relative_to(TEMPLATES).parts[0] for path in files}
    assert folders == {*KINDS, "common", PACKAGE}


@each_kind
def test_templates_of_a_kind_are_directly_in_its_folder(kind):
    assert all(path.is_file() for path in (TEMPLATES / kind).iterdir())


def test_templates_of_all_kinds_are_six():
    files = [path for path in (TEMPLATES / "common").glob("**/*") if path.is_file()]

    assert len(files) == 6


@pytest.mark.parametrize("kind", KINDS_WITH_KEYS)
def test_package_declares_the_keys_of_its_kind(make_catalog, kind):
    keys = make_catalog(kind).schema.keys

    defaults = {
        name: repr(key.default) for name, key in keys.items() if key.owner == distribution_of(kind)
    }
    prefix = module_of(kind)
    assert defaults == {f"{prefix}_{key.name}": key.default for key in KINDS[kind].keys}
    for key in KINDS[kind].keys:
        assert keys[f"{prefix}_{key.name}"].meaning == key.meaning


@pytest.mark.parametrize("kind", KINDS_WITH_KEYS)
def test_readme_has_a_table_of_the_keys(packages, kind):
    readme = (packages / distribution_of(kind) / "README.md").read_text(encoding="utf-8")

    for key in KINDS[kind].keys:
        assert f"| `{module_of(kind)}_{key.name}` | `{key.default}` | {key.meaning} |" in readme


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
def test_package_requires_the_version_it_was_written_with(version, bound):
    record = PluginRecord("acme", "acme", "1.0", requires=(f"rlcatalog{bound}",))

    assert kernel_bound(version) == bound
    assert incompatible_reason(record, version) is None


# --- the command ----------------------------------------------------------------------------------


def run_new(*arguments):
    """Run `rlcatalog new`, and return its exit status."""
    with pytest.raises(SystemExit) as caught:
        main(["new", *arguments])
    return caught.value.code or 0


def test_command_writes_the_package(tmp_path):
    status = run_new("head", "Acme.Gate", "--frameworks", "tf", "--out", str(tmp_path))

    assert status == 0
    written_files = {}
    for path in (tmp_path / "Acme.Gate").rglob("*"):
        if path.is_file():
            name = path.relative_to(tmp_path / "Acme.Gate").as_posix()
            written_files[name] = path.read_text(encoding="utf-8")
    assert written_files == package_files("head", "Acme.Gate", ["tf"])
    assert "src/acme_gate/tf.py" in written_files


def test_command_writes_a_package_with_several_parts(tmp_path):
    status = run_new(
        "package",
        "acme-mixed",
        "--with",
        "model, codec",
        "--frameworks",
        "tf",
        "--out",
        str(tmp_path),
    )

    assert status == 0
    package = tmp_path / "acme-mixed/src/acme_mixed"
    assert {path.name for path in package.iterdir() if path.is_dir()} == {"codec", "model"}
    assert not (package / "model/torch.py").exists()


def test_command_says_what_comes_next(tmp_path, capsys):
    run_new("head", "Acme.Gate", "--frameworks", "tf", "--out", str(tmp_path))

    text = capsys.readouterr().out
    assert f"cd {tmp_path / 'Acme.Gate'}" in text
    assert 'pip install -e ".[tf,dev]"' in text


@pytest.mark.parametrize(
    ("kind", "requirement"),
    [
        ("model", "rlcatalog[torch,tf,testing]"),
        # A filter needs no framework, but its tests build a policy.
        ("filter", "rlcatalog[torch,testing]"),
    ],
)
def test_command_says_first_how_to_install_what_is_missing(
    tmp_path, monkeypatch, capsys, kind, requirement
):
    # As long as rlcatalog is not released, pip cannot install what the new package needs.
    monkeypatch.setattr(scaffold, "RELEASED", False)
    monkeypatch.setattr(install_hints, "RELEASED", False)
    monkeypatch.setattr(scaffold, "missing_distributions", lambda names: ["rlcatalog-tf"])

    run_new(kind, "acme-part", "--out", str(tmp_path))

    output = capsys.readouterr().out
    readme = (tmp_path / "acme-part/README.md").read_text(encoding="utf-8")
    assert output.index(install_hint(requirement)) < output.index("pip install -e")
    assert install_hint(requirement) in readme


def test_command_leaves_installing_to_pip_once_released(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scaffold, "RELEASED", True)
    monkeypatch.setattr(scaffold, "missing_distributions", lambda names: ["rlcatalog-tf"])

    run_new("model", "acme-part", "--out", str(tmp_path))

    workflow = tmp_path / "acme-part/.github/workflows/ci.yml"
    text = capsys.readouterr().out + workflow.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if "pip install" in line]
    assert all('pip install -e ".[torch,tf,dev]"' in line for line in lines)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["modle", "acme-x"],
            "'modle' is not a kind of part. Did you mean 'model'? Known: model, memory",
            id="misspelt-kind",
        ),
        pytest.param(["package", "acme-x"], "it has no parts", id="package-without-parts"),
        pytest.param(
            ["package", "acme-x", "--with", "model,modle"],
            "'modle' is not a kind of part. Did you mean 'model'?",
            id="misspelt-kind-of-a-package",
        ),
        pytest.param(
            ["package", "acme-x", "--with", "model,model"], "named twice", id="kind-named-twice"
        ),
        pytest.param(
            ["model", "acme-x", "--with", "codec"],
            "rlcatalog new package NAME --with model,codec",
            id="parts-of-a-model",
        ),
        pytest.param(
            ["package", "acme-x", "--with", "codec,filter", "--frameworks", "torch"],
            "needs no framework",
            id="framework-of-codecs",
        ),
        pytest.param(
            ["package", "a" * 30, "--with", "distribution"],
            "has 43 characters, but at most 40 are allowed",
            id="long-name-of-a-part",
        ),
        pytest.param(
            ["model", "acme-x", "--frameworks", "torhc"],
            "Did you mean 'torch'? Known: torch, tf.",
            id="misspelt-framework",
        ),
        pytest.param(
            ["model", "acme-x", "--frameworks", ""], "'' has no templates", id="empty-framework"
        ),
        pytest.param(
            ["filter", "acme-x", "--frameworks", "torch"],
            "filter: the code for this kind needs no framework",
            id="framework-of-a-filter",
        ),
        pytest.param(
            ["model", "acme x"], "'acme x' is not a valid distribution name", id="name-with-space"
        ),
        pytest.param(
            ["model", "../acme"], "is not a valid distribution name", id="name-with-slash"
        ),
        pytest.param(["model", "acme-"], "is not a valid distribution name", id="name-with-dash"),
        pytest.param(["model", "3d-net"], "would be imported as '3d_net'", id="name-with-digit"),
        pytest.param(["model", "class"], "would be imported as 'class'", id="python-keyword"),
        pytest.param(
            ["model", "a" * 41], "has 41 characters, but at most 40 are allowed", id="long-name"
        ),
        pytest.param(["model", "Torch"], "is already installed", id="installed-package"),
        pytest.param(
            ["model", "rlcatalog_fcnet"],
            "is a distribution in the public index",
            id="package-of-the-public-index",
        ),
        pytest.param(
            ["model", "fcnet"],
            "would declare the model 'fcnet', but this name belongs to rlcatalog-fcnet",
            id="name-of-a-built-in-model",
        ),
        pytest.param(
            ["memory", "lstm"], "belongs to rlcatalog-lstm", id="name-of-a-built-in-memory"
        ),
        pytest.param(
            ["filter", "filter"],
            "would declare the config 'filter_clip', but this name belongs to",
            id="name-of-a-config-key",
        ),
        pytest.param(
            ["model", "json"], "a module with that name is installed", id="standard-library"
        ),
        pytest.param(
            ["model", "cv2"], "a module with that name is installed", id="module-of-a-package"
        ),
    ],
)
def test_command_rejects_arguments_before_it_writes(tmp_path, capsys, arguments, message):
    status = run_new(*arguments, "--out", str(tmp_path / "out"))

    assert status == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        pytest.param("modle", "acme-x", UnknownNameError, id="unknown-kind"),
        pytest.param("model", "a b", UnknownNameError, id="invalid-name"),
        pytest.param("model", "torch", DuplicateNameError, id="taken-name"),
    ],
)
def test_package_files_raises_typed_errors(kind, name, error):
    with pytest.raises(error):
        package_files(kind, name)


def test_command_leaves_an_existing_folder_alone(tmp_path, capsys):
    (tmp_path / "acme-x").mkdir()

    run_new("model", "acme-x", "--out", str(tmp_path))

    assert "acme-x already exists, so nothing was written" in capsys.readouterr().err
    assert list((tmp_path / "acme-x").iterdir()) == []


def test_missing_template_engine_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)  # as if it were not installed

    with pytest.raises(MissingExtraError) as caught:
        package_files("model", "acme-x")

    assert install_hint("rlcatalog-testing[new]") in str(caught.value)
    assert isinstance(caught.value, ImportError)
