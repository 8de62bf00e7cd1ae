"""The pages for authors of plugins: hooks, doors and the guide say what the code says."""

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import re
import sys
import types

import msgspec
import plugins_page
import pytest
from page_texts import PACKAGES, ROOT, blocks, quoted, read, rows, run

import rlcatalog
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

# --- hooks ----------------------------------------------------------------------------------------


def sections():
    """Return the sections of the hooks page whose title is one name: name → text."""
    parts = re.split(r"^## `(\w+)`\n", read("docs/hooks.md"), flags=re.M)
    return {
        name: re.split(r"^## ", text, flags=re.M)[0]
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def specs():
    return {name: value for name, value in vars(hookspecs).items() if name.startswith("rlcatalog_")}


def test_every_hook_has_a_section():
    assert list(sections()) == list(specs()) == list(HOOK_RETURNS)


@pytest.mark.parametrize("hook", HOOK_RETURNS)
def test_section_gives_the_signature_and_the_fields(hook):
    [line] = [
        line for line in inspect.getsource(specs()[hook]).splitlines() if line.startswith("def ")
    ]
    text = sections()[hook]
    assert blocks(text, "") == [line.partition(":  #")[0] + "\n"]
    spec = HOOK_RETURNS[hook]
    common = {field.name for field in dataclasses.fields(declarations.Declaration)}
    own = {field.name for field in dataclasses.fields(spec)} - common
    assert {quoted(row[0])[0] for row in rows(text)} == own


def test_common_fields_are_documented():
    text = read("docs/hooks.md").partition("## Declarations")[2].partition("\n## ")[0]
    fields = [field.name for field in dataclasses.fields(declarations.Declaration)]
    assert [quoted(row[0])[0] for row in rows(text)] == fields


@pytest.mark.parametrize("hook", HOOK_RETURNS)
def test_example_of_a_hook_loads(hook, monkeypatch):
    [code] = blocks(sections()[hook], "python")
    module = types.ModuleType("example_of_a_hook")
    keys = msgspec.defstruct(
        "MapConfig", [("my_plugin_north_up", bool, False)], kw_only=True, frozen=True
    )
    monkeypatch.setitem(sys.modules, "my_plugin.config", types.SimpleNamespace(MapConfig=keys))
    exec(code, module.__dict__)
    found = isolated_catalog(PluginEntryPoint(module, "my-plugin"))
    assert [(record.status, record.error) for record in found.plugins] == [("loaded", None)]
    assert [type(c.declaration) for c in found.components()] == [HOOK_RETURNS[hook]]
    for component in found.components():
        for target in component.declaration.targets.values():
            assert target.startswith("my_plugin.")


def test_examples_match_what_they_say():
    """The match functions of the examples, asked about something that fits and something that does
    not.
    """
    import gymnasium as gym

    from rlcatalog import Request, SpaceInfo

    def asked(hook, **request):
        namespace = {}
        exec(blocks(sections()[hook], "python")[0], namespace)
        [spec] = namespace[hook]()
        return namespace, spec.judge(Request(**{"obs": box, **request}))

    box = SpaceInfo.read(gym.spaces.Box(-1, 1, (2,)))
    switches = SpaceInfo.read(gym.spaces.MultiBinary(3), "action")
    namespace, answer = asked("rlcatalog_action_dists", action=switches)
    assert answer.rank is not None
    assert namespace["size"](switches, {}) == 3
    namespace, answer = asked("rlcatalog_models", encoded_shape=(4,), num_outputs=2)
    assert answer.rank is not None
    assert asked("rlcatalog_models")[1].rank is None
    assert asked("rlcatalog_preprocessors")[1].rank is None
    env = gym.make("CartPole-v1")
    assert asked("rlcatalog_env_wrappers", env=env)[1].rank is None


def test_statuses_and_variables_are_those_of_the_code():
    text = read("docs/hooks.md")
    statuses = rows(text.partition("## Plugin statuses")[2].partition("\n## ")[0])
    folder = ROOT / "catalog/src/rlcatalog/plugins"
    source = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
    assert {quoted(row[0])[0] for row in statuses} == {
        "loaded",
        "disabled",
        "incompatible",
        "failed",
    }
    assert all(f'"{quoted(row[0])[0]}"' in source for row in statuses)
    variables = {quoted(row[0])[0] for row in rows(text.partition("## Environment variables")[2])}
    sources = (ROOT / "catalog/src/rlcatalog").rglob("*.py")
    used = {
        name
        for path in sources
        for name in re.findall(r"RLCATALOG_[A-Z]+_PLUGINS", path.read_text("utf-8"))
    }
    assert variables == used


def test_what_a_match_function_sees_is_listed():
    text = (
        read("docs/hooks.md")
        .partition("`match`, `describe` and `size` receive a `Request`")[2]
        .partition("\n\n")[0]
    )
    assert set(rlcatalog.Request.__struct_fields__) <= set(quoted(text))


# --- doors ----------------------------------------------------------------------------------------


def listed_doors():
    """Return door → the names that the page lists for it."""
    found, door = {}, ""
    for row in rows(
        read("docs/hooks.md").partition("## What a plugin may import")[2].partition("\n## ")[0]
    ):
        door = quoted(row[0])[0] if row[0] else door
        found.setdefault(door, set()).update(
            quoted(row[1]) + (quoted(row[2]) if "installed parts" in row[1] else [])
        )
    return found


def imported_from_doors():
    """Return door → the names that packages and examples import from it."""
    found = {}
    patterns = ("builtin_*/*/src/**/*.py", "plugins/*/src/**/*.py", "examples/*.py")
    for path in sorted(path for pattern in patterns for path in ROOT.glob(pattern)):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rlcatalog."):
                found.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return found


def test_packages_and_examples_import_what_the_page_lists():
    listed, imported = listed_doors(), imported_from_doors()
    assert len(imported) > 8
    assert set(imported) - set(listed) <= {"rlcatalog.errors", "rlcatalog.internals"}
    unlisted = {door: names - listed[door] for door, names in imported.items() if door in listed}
    assert {door: names for door, names in unlisted.items() if names} == {}


@pytest.mark.parametrize("door", listed_doors())
def test_a_listed_name_is_there(door):
    module = importlib.import_module(door)
    for name in listed_doors()[door] - {"…"}:
        assert hasattr(module, name), name


# --- the authors' guide ---------------------------------------------------------------------------


def test_the_guide_shows_what_the_templates_make():
    page = read("docs/plugins.md")
    assert plugins_page.filled(page) == page, "run `make generate`"
    shown = re.findall(r"^`src/(\w+)/[\w./]+`\n\n```python\n.", page, re.M)
    assert set(shown) == set(plugins_page.packages(page))
    assert len(shown) == 15
    stale = page.replace("class Laplace(", "class Laplacian(")
    assert plugins_page.filled(stale) == page != stale


def test_the_guide_s_own_code_runs(tmp_path):
    """The blocks without a file's name, with the package installed that the page begins."""
    page = read("docs/plugins.md")
    for path, text in plugins_page.packages(page)["acme_resnet"].items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    info = tmp_path / "src/acme_resnet-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: acme-resnet\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(
        "[rlcatalog.plugins]\nacme_resnet = acme_resnet.plugin\n"
    )
    code = "\n".join(
        blocks(re.sub(r"^`src/.*`\n\n```python\n.*?^```$", "", page, flags=re.S | re.M), "python")
    )
    assert "acme_resnet_width" in code
    (tmp_path / "src/page.py").write_text(code, encoding="utf-8")
    said = run(
        "-W",
        "error",
        "-W",
        "ignore:CUDA initialization:UserWarning",
        str(tmp_path / "src/page.py"),
        cwd=tmp_path,
    )
    assert "named in the config" in said


def write_plain_plugin(folder):
    """Write the guide's plugin of a plain module, with the module of the page that it links, and
    return its catalog.
    """
    (net,) = (
        code
        for code in blocks(read("docs/howto/own_model.md"), "python")
        if "class SmallNet" in code
    )
    body = next(node for node in ast.parse(net).body if isinstance(node, ast.ClassDef))
    guide = blocks(read("docs/plugins.md"), "python")
    (plugin,) = (code for code in guide if "acme_small.nets" in code)
    (examples,) = (code for code in guide if "Example(vector" in code)
    (kit,) = (code for code in guide if "parametrize_with_checks(" in code)
    files = {
        "__init__": "",
        "nets": f"from torch import nn\n\n{ast.unparse(body)}",
        "plugin": plugin,
        "examples": examples,
    }
    (folder / "acme_small").mkdir()
    for name, code in files.items():
        (folder / f"acme_small/{name}.py").write_text(code, encoding="utf-8")
    namespace = {}
    exec(
        kit.partition("@parametrize")[0]
        .replace("acme_resnet", "acme_small")
        .replace("-resnet", "-small"),
        namespace,
    )
    return namespace["catalog"]


def test_the_guide_s_plain_plugin_passes_the_kit(tmp_path, monkeypatch, one_thread):
    """Its examples are needed: without them, the kit says so."""
    monkeypatch.syspath_prepend(str(tmp_path))
    catalog = write_plain_plugin(tmp_path)
    outcomes = {
        outcome.name: outcome.status for outcome in check_plugin("acme-small", catalog=catalog)
    }
    for check in (
        "output_width",
        "works_inside_memories",
        "works_under_heads",
        "works_for_a_part_of_an_observation",
    ):
        assert outcomes[f"trunk-acme_small-{check}-torch"] == "passed"
    (component,) = (part for part in catalog.components("model") if part.name == "acme_small")
    spec = dataclasses.replace(component.declaration, examples=None)
    plugin = PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme-small")
    catalog = isolated_catalog(
        "rlcatalog-torch", "rlcatalog-preprocessors", "rlcatalog-categorical", plugin
    )
    (case,) = (
        case for case in cases("acme-small", catalog=catalog) if case.check.name == "output_width"
    )
    with pytest.raises(
        ConformanceError, match=r"shapes cannot be multiplied .* Hint: .* declare examples="
    ) as raised:
        case()
    assert str(raised.value).count("model 'acme_small'") == 1


def test_the_guide_lists_every_kind_and_command():
    from rlcatalog_testing.scaffold import KINDS

    page = read("docs/plugins.md")
    begun = rows(page.partition("## Ten minutes")[2].partition("\n## ")[0])
    assert [quoted(row[1])[0] for row in begun] == [f"rlcatalog new {kind} NAME" for kind in KINDS]
    commands = {
        c.name
        for c in isolated_catalog(*(n for n in PACKAGES if n != "rlcatalog")).components("command")
    }
    named = re.findall(r"^\$ rlcatalog ([\w-]+)", page, re.M)
    assert set(named) <= commands | {"new", "list", "explain", "check"}
    assert {name for name in commands if name.startswith("train")} <= set(named)


@pytest.mark.parametrize(
    ("title", "contract"),
    [
        ("Models", "rlcatalog:ModelV2"),
        ("Distributions", "rlcatalog:ActionDistribution"),
        ("Preprocessors", "rlcatalog:Preprocessor"),
        ("Action codecs", "rlcatalog.actions:ActionCodec"),
        ("Filters", "rlcatalog:Filter"),
    ],
)
def test_the_reference_has_every_method_and_attribute_of_a_contract(title, contract):
    section = read("docs/hooks.md").partition(f"\n### {title}\n")[2]
    section = re.split(r"^##+ ", section, flags=re.M)[0]
    written = {
        name for span in quoted(section) for name in re.findall(r"\w+", span.partition("(")[0])
    }
    module, _, name = contract.partition(":")
    cls = getattr(importlib.import_module(module), name)
    public = {name for name in {*vars(cls), *cls.__annotations__} if not name.startswith("_")}
    assert public - written == set()
    methods = {name for row in rows(section) for name in re.findall(r"`(\w+)\(", row[0])}
    assert {name for name in methods if not hasattr(cls, name)} == set()


def test_the_errors_and_ranks_of_the_guide_are_there():
    from rlcatalog import Rank, errors

    page = read("docs/plugins.md")
    named = [
        quoted(row[0])[0]
        for row in rows(page.partition("## What a part may raise")[2].partition("\n## ")[0])
    ]
    assert len(named) > 5
    for name in named:
        assert issubclass(getattr(errors, name), errors.CatalogError)
    ranks = [quoted(row[0])[0] for row in rows(page.partition("## Ranks")[2].partition("\n## ")[0])]
    assert ranks == [rank.name for rank in sorted(Rank, reverse=True)]
