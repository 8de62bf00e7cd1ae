"""The pages for authors of plugins: hooks, importable names and the guide agree with the code."""

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import re
import sys
import types

import gymnasium as gym
import msgspec
import numpy as np
import pages
import plugins_page
import pytest
import warm
from gymnasium import spaces
from page_texts import PACKAGES, ROOT, between, blocks, quoted, read, rows, run

import rlcatalog
from rlcatalog import Rank, Request, SpaceInfo, errors
from rlcatalog.plugins import declarations, hookspecs
from rlcatalog.plugins.loader import HOOK_RETURNS
from rlcatalog_testing import (
    ConformanceError,
    PluginEntryPoint,
    cases,
    check_plugin,
    isolated_catalog,
    plugin_of,
)
from rlcatalog_testing.scaffold import KINDS


def write_metadata(folder, distribution):
    """Write what an installed package has beside its code, into `folder/src`."""
    package = distribution.replace("-", "_")
    metadata = folder / f"src/{package}-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {distribution}\nVersion: 0.1.0\n")
    entry_point = f"[rlcatalog.plugins]\n{package} = {package}.plugin\n"
    (metadata / "entry_points.txt").write_text(entry_point)


# --- hooks ----------------------------------------------------------------------------------------


HOOK_PAGES = "docs/reference/hooks"


def read_hook_page(hook):
    return read(f"{HOOK_PAGES}/{hook}.md")


def read_declaration(hook):
    """Return the part of a hook's page that comes from the docstrings."""
    return between(read_hook_page(hook), "declaration")


def read_section(page, title):
    """Return the text below a title, up to the next one of the same level."""
    return read(page).partition(f"## {title}\n")[2].partition("\n## ")[0]


def hook_functions():
    """Return name → function of the hook specifications."""
    hooks = vars(hookspecs).items()
    return {name: value for name, value in hooks if name.startswith("rlcatalog_")}


def field_names(declaration):
    return [field.name for field in dataclasses.fields(declaration)]


def test_hooks_all_have_a_page():
    pages = {path.stem for path in (ROOT / HOOK_PAGES).glob("rlcatalog_*.md")}
    assert pages == set(hook_functions())
    assert list(hook_functions()) == list(HOOK_RETURNS)


@pytest.mark.parametrize("page", ["docs/hooks.md", f"{HOOK_PAGES}/index.md"])
def test_page_lists_all_hooks(page):
    table = [" ".join(cells) for cells in rows(read(page))]
    listed = re.findall(r"\[`(rlcatalog_\w+)`\]\(\S*\1\.md\)", "\n".join(table))
    assert listed == list(HOOK_RETURNS)


@pytest.mark.parametrize("hook", HOOK_RETURNS)
def test_page_shows_the_signature_of_the_hook(hook):
    source = inspect.getsource(hook_functions()[hook])
    (line,) = re.findall(r"^def .*$", source, re.M)
    signature = line.partition(":  #")[0]  # without a comment for a linter
    assert blocks(read_declaration(hook), "") == [f"{signature}\n"]


@pytest.mark.parametrize("hook", HOOK_RETURNS)
def test_page_lists_the_fields_that_the_hook_adds(hook):
    common_fields = set(field_names(declarations.Declaration))
    all_fields = set(field_names(HOOK_RETURNS[hook]))
    listed = {quoted(cells[0])[0] for cells in rows(read_declaration(hook))}
    # A docstring may describe a common field again.
    assert all_fields - common_fields <= listed <= all_fields


def test_page_lists_the_fields_of_all_declarations():
    table = rows(between(read(f"{HOOK_PAGES}/index.md"), "fields"))
    assert [quoted(cells[0])[0] for cells in table] == field_names(declarations.Declaration)


def run_example(hook):
    """Run the example of a hook, and return the namespace that it fills."""
    section = read_section(f"{HOOK_PAGES}/{hook}.md", "Example")
    (code,) = blocks(section, "python")
    namespace = {}
    exec(code, namespace)
    return namespace


@pytest.fixture
def config_of_examples(monkeypatch):
    """The module that the example of config keys names."""
    keys = msgspec.defstruct(
        "MapConfig", [("my_plugin_north_up", bool, False)], kw_only=True, frozen=True
    )
    module = types.SimpleNamespace(MapConfig=keys)
    monkeypatch.setitem(sys.modules, "my_plugin.config", module)


@pytest.mark.usefixtures("config_of_examples")
@pytest.mark.parametrize("hook", HOOK_RETURNS)
def test_example_of_a_hook_loads(hook):
    module = types.ModuleType("example_of_a_hook")
    module.__dict__.update(run_example(hook))

    catalog = isolated_catalog(PluginEntryPoint(module, "my-plugin"))

    [record] = catalog.plugins
    assert record.status == "loaded"
    assert record.error is None
    [part] = catalog.parts()
    assert type(part.declaration) is HOOK_RETURNS[hook]
    for target in part.declaration.targets.values():
        assert target.startswith("my_plugin.")


# --- match functions of the examples --------------------------------------------------------------


VECTOR = SpaceInfo.read(gym.spaces.Box(-1, 1, (2,)))
SWITCHES = SpaceInfo.read(gym.spaces.MultiBinary(3), "action")


def judge(hook, **request):
    """Return what the example's part answers to a request for a vector of observations."""
    (spec,) = run_example(hook)[hook]()
    return spec.judge(Request(obs=VECTOR, **request))


def test_example_distribution_fits_multibinary_actions():
    assert judge("rlcatalog_action_dists", action=SWITCHES).rank is not None
    size = run_example("rlcatalog_action_dists")["size"]
    assert size(SWITCHES, {}) == 3  # a logit for each bit


def test_example_model_fits_encoded_vectors():
    assert judge("rlcatalog_models", encoded_shape=(4,), num_outputs=2).rank is not None


@pytest.mark.parametrize("hook", ["rlcatalog_models", "rlcatalog_preprocessors"])
def test_example_fits_no_request_without_an_encoded_shape(hook):
    assert judge(hook).rank is None


def test_example_wrapper_does_not_fit_cartpole():
    env = gym.make("CartPole-v1")
    assert judge("rlcatalog_env_wrappers", env=env).rank is None


# --- tables of the reference ----------------------------------------------------------------------


def test_page_lists_the_statuses_of_plugins():
    table = rows(read_section("docs/reference/plugin_rules.md", "Plugin statuses"))
    statuses = {quoted(cells[0])[0] for cells in table}
    assert statuses == {"loaded", "disabled", "incompatible", "failed"}
    sources = (ROOT / "catalog/src/rlcatalog/plugins").glob("*.py")
    code = "".join(path.read_text(encoding="utf-8") for path in sources)
    for status in statuses:
        assert f'"{status}"' in code


def test_page_lists_the_environment_variables():
    table = rows(read_section("docs/reference/plugin_rules.md", "Environment variables"))
    used = set()
    for path in (ROOT / "catalog/src/rlcatalog").rglob("*.py"):
        used |= set(re.findall(r"RLCATALOG_[A-Z]+_PLUGINS", path.read_text("utf-8")))
    assert {quoted(cells[0])[0] for cells in table} == used


def test_page_lists_the_fields_of_a_request():
    table = rows(between(read(f"{HOOK_PAGES}/index.md"), "request"))
    assert set(Request.__struct_fields__) <= {quoted(cells[0])[0] for cells in table}


@pytest.mark.parametrize(
    ("hook", "contract"),
    [
        ("rlcatalog_models", "rlcatalog:ModelV2"),
        ("rlcatalog_action_dists", "rlcatalog:ActionDistribution"),
        ("rlcatalog_preprocessors", "rlcatalog:Preprocessor"),
        ("rlcatalog_action_codecs", "rlcatalog.actions:ActionCodec"),
        ("rlcatalog_filters", "rlcatalog:Filter"),
    ],
)
class TestContracts:
    """What the pages say about the classes that a plugin's parts derive from."""

    @staticmethod
    def section(hook):
        return read_section(f"{HOOK_PAGES}/{hook}.md", "The class")

    @staticmethod
    def load(contract):
        module, _, name = contract.partition(":")
        return getattr(importlib.import_module(module), name)

    def test_section_has_every_public_name(self, hook, contract):
        cls = self.load(contract)
        public = {name for name in {*vars(cls), *cls.__annotations__} if not name.startswith("_")}
        written = set()
        for code in quoted(self.section(hook)):
            written |= set(re.findall(r"\w+", code.partition("(")[0]))
        assert public - written == set()

    def test_section_has_no_method_that_does_not_exist(self, hook, contract):
        for first_cell, *_ in rows(self.section(hook)):
            for name in re.findall(r"`(\w+)\(", first_cell):
                assert hasattr(self.load(contract), name), name


# --- names to import ------------------------------------------------------------------------------


def read_importable_names():
    """Return door → the names that the page lists for it; "…" stands for further ones."""
    names = {}
    door = ""
    table = rows(read("docs/reference/imports.md"))
    for first_cell, listed, meaning in table:
        door = quoted(first_cell)[0] if first_cell else door  # an empty cell repeats the one above
        names.setdefault(door, set()).update(quoted(listed))
        if "installed parts" in listed:
            names[door] |= set(quoted(meaning))
    return names


def find_imported_names():
    """Return door → the names that packages and examples import from it."""
    names = {}
    for pattern in ("builtin_*/*/src/**/*.py", "plugins/*/src/**/*.py", "examples/*.py"):
        for path in ROOT.glob(pattern):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("rlcatalog."):
                    names.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return names


#: Doors that the page describes elsewhere: errors, and what only packages of ours may use.
WITHOUT_A_LIST = {"rlcatalog.errors", "rlcatalog.internals"}


def test_packages_and_examples_only_import_listed_names():
    imported = find_imported_names()
    assert len(imported) > 8
    for door in set(imported) - WITHOUT_A_LIST:
        assert imported[door] - read_importable_names()[door] == set(), door


@pytest.mark.parametrize("door", read_importable_names())
def test_listed_names_exist(door):
    module = importlib.import_module(door)
    for name in read_importable_names()[door] - {"…"}:
        assert hasattr(module, name), name


# --- the guide to hooks ---------------------------------------------------------------------------


FILE_BLOCK = re.compile(r"^`(src/[\w./]+)`\n\n```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def acme_sail(tmp_path):
    """The folder of the plugin that the guide to hooks writes, as if it were installed."""
    files = {"src/acme_sail/__init__.py": ""}
    for path, code in FILE_BLOCK.findall(read("docs/hooks.md")):
        files[path] = files.get(path, "") + code  # later blocks are added to a file
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    write_metadata(tmp_path, "acme-sail")
    return tmp_path / "src"


def test_code_of_the_guide_to_hooks_runs(acme_sail):
    # The interpreter finds the package in the folder in which it runs.
    text = FILE_BLOCK.sub("", read("docs/hooks.md"))
    options = ["-W", "error", "-W", "ignore:CUDA initialization:UserWarning"]
    outputs = pages.printed(text, "docs/hooks.md", acme_sail, warm.run, *options)
    assert outputs == [output for _, _, output in pages.blocks(text)]


def test_command_of_the_guide_to_hooks_runs(acme_sail):
    command = "from rlcatalog_cli import main; main(['acme-sail-heading', '2'])"
    output = run("-c", command, cwd=acme_sail)
    assert f"$ rlcatalog acme-sail-heading 2\n{output}" in read("docs/hooks.md")


def test_plugin_of_the_guide_to_hooks_passes_the_kit(acme_sail, monkeypatch, one_thread):
    monkeypatch.syspath_prepend(str(acme_sail))
    catalog = isolated_catalog(
        "rlcatalog-torch",
        "rlcatalog-preprocessors",
        "rlcatalog-fcnet",
        "rlcatalog-categorical",
        PluginEntryPoint("acme_sail.plugin", "acme-sail"),
    )
    check_plugin("acme-sail", catalog=catalog)


# --- the guide to plugins -------------------------------------------------------------------------


def test_guide_shows_the_files_of_the_templates():
    page = read("docs/plugins.md")
    assert plugins_page.filled(page) == page, "run `make generate`"


def test_guide_shows_a_file_of_each_package():
    page = read("docs/plugins.md")
    packages = re.findall(r"^`src/(\w+)/[\w./]+`\n\n```python\n.", page, re.M)
    assert len(packages) == 15
    # The package with several parts is only a command.
    assert {*packages, "acme_parts"} == set(plugins_page.packages(page))


def install_acme_resnet(folder):
    """Write the package that the guide begins, as if it were installed in `folder/src`."""
    for path, text in plugins_page.packages(read("docs/plugins.md"))["acme_resnet"].items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    write_metadata(folder, "acme-resnet")


def test_code_of_the_guide_runs(tmp_path):
    install_acme_resnet(tmp_path)
    # A block below the name of a file is a part of that package. The others use it.
    file_block = r"^`src/.*`\n\n```python\n.*?^```$"
    flags = re.DOTALL | re.MULTILINE
    page_without_files = re.sub(file_block, "", read("docs/plugins.md"), flags=flags)
    code = "\n".join(blocks(page_without_files, "python"))
    assert "acme_resnet_width" in code
    script = tmp_path / "src/page.py"
    script.write_text(code, encoding="utf-8")

    # PyTorch's CUDA build warns on a computer without a GPU.
    warnings = ["-W", "error", "-W", "ignore:CUDA initialization:UserWarning"]
    output = run(*warnings, str(script), cwd=tmp_path)

    assert "named in the config" in output


def find_block(page, text):
    """Return the only block of Python of a page that contains a text."""
    (code,) = (code for code in blocks(read(page), "python") if text in code)
    return code


def write_plain_plugin(folder):
    """Write the guide's plugin of a plain module, and return its catalog.

    The module is the one of the page on own models, which the guide links.
    """
    net = find_block("docs/howto/own_model.md", "class SmallNet")
    (module,) = (node for node in ast.parse(net).body if isinstance(node, ast.ClassDef))
    files = {
        "__init__.py": "",
        "nets.py": f"from torch import nn\n\n{ast.unparse(module)}",
        "plugin.py": find_block("docs/plugins.md", "acme_small.nets"),
        "examples.py": find_block("docs/plugins.md", "Example(vector"),
    }
    (folder / "acme_small").mkdir()
    for name, code in files.items():
        (folder / "acme_small" / name).write_text(code, encoding="utf-8")
    # The guide's test of another plugin, as far as its catalog.
    kit = find_block("docs/plugins.md", "parametrize_with_checks(").partition("@parametrize")[0]
    namespace = {}
    exec(kit.replace("acme_resnet", "acme_small").replace("-resnet", "-small"), namespace)
    return namespace["catalog"]


@pytest.fixture
def plain_plugin_catalog(tmp_path, monkeypatch, one_thread):
    monkeypatch.syspath_prepend(str(tmp_path))
    return write_plain_plugin(tmp_path)


def test_plain_plugin_of_the_guide_passes_the_kit(plain_plugin_catalog):
    outcomes = check_plugin("acme-small", catalog=plain_plugin_catalog)
    statuses = {outcome.name: outcome.status for outcome in outcomes}
    for check in (
        "output_width",
        "works_inside_memories",
        "works_under_heads",
        "works_for_a_part_of_an_observation",
    ):
        assert statuses[f"trunk-acme_small-{check}-torch"] == "passed"


@pytest.fixture
def bounded_plugin(tmp_path, monkeypatch, one_thread):
    """The guide's plugin of a distribution with bounds, written below a folder for imports."""
    package = tmp_path / "acme_bounded"
    package.mkdir()
    files = {
        "__init__.py": "",
        "plugin.py": find_block("docs/plugins.md", "acme_bounded.torch"),
        "torch.py": find_block("docs/plugins.md", "class Kumaraswamy"),
    }
    for name, code in files.items():
        (package / name).write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return PluginEntryPoint(
        "acme_bounded.plugin", "acme-bounded", requires=("rlcatalog>=0.1,<0.2",)
    )


def test_bounded_distribution_of_the_guide_passes_the_kit(bounded_plugin):
    catalog = isolated_catalog(
        "rlcatalog-torch",
        "rlcatalog-preprocessors",
        "rlcatalog-fcnet",
        "rlcatalog-categorical",
        "rlcatalog-multi-action",
        bounded_plugin,
    )

    outcomes = check_plugin("acme-bounded", catalog=catalog)

    statuses = [outcome.status for outcome in outcomes]
    assert statuses.count("passed") > 15
    policy = rlcatalog.build(
        spaces.Box(-1, 1, (3,), np.float32),
        spaces.Box(0, 5, (2,), np.float32),
        {"custom_action_dist": "acme_bounded"},
        "torch",
        catalog=catalog,
    )
    step = policy.act(np.zeros((64, 3), np.float32))
    # Raw actions within the bounds are not scaled to them again.
    np.testing.assert_array_equal(step.action, step.raw_action)
    assert step.action.min() >= 0
    assert step.action.max() > 1


def test_kit_asks_for_the_examples_that_the_guide_declares(plain_plugin_catalog):
    model = plain_plugin_catalog.registry.get("model", "acme_small").declaration
    without_examples = dataclasses.replace(model, examples=None)
    plugin = PluginEntryPoint(plugin_of(rlcatalog_models=[without_examples]), "acme-small")
    catalog = isolated_catalog(
        "rlcatalog-torch", "rlcatalog-preprocessors", "rlcatalog-categorical", plugin
    )
    all_cases = {case.check.name: case for case in cases("acme-small", catalog=catalog)}

    with pytest.raises(ConformanceError, match=r"Hint: .* declare examples=") as caught:
        all_cases["output_width"]()

    # The model does not fit the kit's own examples.
    assert "shapes cannot be multiplied" in str(caught.value)


def test_guide_lists_every_kind_of_scaffold():
    table = rows(read_section("docs/plugins.md", "Ten minutes"))
    commands = [quoted(cells[1])[0] for cells in table]
    assert commands == [f"rlcatalog new {kind} NAME" for kind in KINDS]


def test_guide_runs_existing_commands():
    packages = [name for name in PACKAGES if name != "rlcatalog"]
    commands = {part.name for part in isolated_catalog(*packages).parts("command")}
    used = set(re.findall(r"^\$ rlcatalog ([\w-]+)", read("docs/plugins.md"), re.M))
    assert used <= commands | {"new", "list", "explain", "check"}
    assert {name for name in commands if name.startswith("train")} <= used


def test_guide_lists_errors_that_a_part_may_raise():
    table = rows(read_section("docs/plugins.md", "What a part may raise"))
    names = [quoted(cells[0])[0] for cells in table]
    assert len(names) > 5
    for name in names:
        assert issubclass(getattr(errors, name), errors.CatalogError)


def test_rules_list_ranks_from_the_highest():
    table = rows(read_section("docs/reference/plugin_rules.md", "Ranks"))
    assert [quoted(cells[0])[0] for cells in table] == [rank.name for rank in sorted(Rank)[::-1]]
