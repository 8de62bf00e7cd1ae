"""The pages people read: their code runs, their tables say what the code says, and what is generated is fresh."""

import ast
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import json
import os
import re
import sys
import types
import warnings
from pathlib import Path

import command_line
import config_table
import msgspec
import pages
import plugins_page
import public_index
import pytest
import warm

import rlcatalog
from rlcatalog.config import keys_of
from rlcatalog.errors import ConfigError, UnknownConfigKeyError
from rlcatalog.plugins import declarations, hookspecs
from rlcatalog.plugins.loader import HOOK_RETURNS
from rlcatalog_ppo import config as ppo
from rlcatalog_testing import ConformanceError, PluginEntryPoint, cases, check_plugin, isolated_catalog, plugin_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "rlcatalog": "catalog",
    "rlcatalog-torch": "plugins/torch",
    "rlcatalog-tf": "plugins/tf",
    "rlcatalog-policy": "plugins/policy",
    "rlcatalog-runs": "plugins/runs",
    "rlcatalog-testing": "plugins/testing",
    "rlcatalog-cli": "plugins/cli",
    "rlcatalog-fcnet": "builtin_models/fcnet",
    "rlcatalog-visionnet": "builtin_models/visionnet",
    "rlcatalog-lstm": "builtin_models/lstm",
    "rlcatalog-attention": "builtin_models/attention",
    "rlcatalog-complex-input": "builtin_models/complex_input",
    "rlcatalog-parametric": "builtin_models/parametric",
    "rlcatalog-categorical": "builtin_dists/categorical",
    "rlcatalog-gaussian": "builtin_dists/gaussian",
    "rlcatalog-bounded": "builtin_dists/bounded",
    "rlcatalog-deterministic": "builtin_dists/deterministic",
    "rlcatalog-multi-action": "builtin_dists/multi_action",
    "rlcatalog-autoregressive": "builtin_dists/autoregressive",
    "rlcatalog-preprocessors": "plugins/preprocessors",
    "rlcatalog-atari": "plugins/atari",
    "rlcatalog-filters": "plugins/filters",
    "rlcatalog-ppo": "plugins/ppo",
    "rlcatalog-sb3": "plugins/sb3",
    "rlcatalog-rllib": "plugins/rllib",
    "rlcatalog-export": "plugins/export",
    "rlcatalog-compat": "plugins/compat",
}
SITE = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md") if "_build" not in path.parts)
#: Pages whose code runs as it stands; those of the site: `test_docs_site.py`.
RUNNABLE = ["README.md", *(f"{folder}/README.md" for folder in PACKAGES.values())]


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def rows(text):
    """Return the cells of every row of every table in a text, heads left out."""
    found = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        head = number + 1 < len(lines) and re.fullmatch(r"\|[\s|:-]+\|", lines[number + 1])
        if line.startswith("|") and not head and not re.fullmatch(r"\|[\s|:-]+\|", line):
            found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return found


def between(text, marker):
    return text.partition(f"<!-- {marker} -->")[2].partition(f"<!-- /{marker} -->")[0]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def literal(cell):
    return ast.literal_eval(cell.strip("`"))


def run(*arguments, cwd):
    """Run Python in a process of its own; TensorFlow greets on standard error, so that is only shown on failure."""
    done = warm.run(arguments, cwd, {"COLUMNS": "200"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- code in the pages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", RUNNABLE)
def test_python_in_page_runs(page, tmp_path):
    pages.check(page, ROOT, tmp_path, warm.run)


def test_the_other_code_of_the_page_of_hooks_runs(tmp_path):
    """That of the sections that are about no hook: the conformance kit, and weights."""
    rest = "".join(part for part in re.split(r"^(?=## )", read("docs/hooks.md"), flags=re.M) if part[:4] != "## `")
    assert len(pages.blocks(rest)) >= 5
    options = ("-W", "error", "-W", "ignore:CUDA initialization:UserWarning")
    pages.printed(rest, "docs/hooks.md", tmp_path, warm.run, *options)


def test_commands_in_readme_run(tmp_path):
    """Each `rlcatalog ...` line of the tour, in order; training and evaluation are cut short."""
    lines = re.findall(r"^\$ rlcatalog (.*)$", read("README.md"), re.M)
    assert [line.split()[0] for line in lines] == ["list", "explain", "summary", "train", "evaluate"]
    for line in lines:
        line = re.sub(r"--episodes \d+", "--episodes 2", re.sub(r"--steps \d+", "--steps 512", line))
        done = command_line.rlcatalog(*line.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    left = {path.name for path in (tmp_path / "runs/tour").iterdir()}
    assert left == {"learning_curve.png", "metrics.jsonl", "config.json", "run.json", "policy", "checkpoints"}


@pytest.mark.parametrize(
    "page", ["README.md", *(f"{folder}/README.md" for folder in PACKAGES.values()), *SITE, "CHANGELOG.md",
             "CONTRIBUTING.md", "SECURITY.md", "RELEASING.md"],
)  # fmt: skip
def test_links_lead_somewhere(page):
    text = re.sub(r"^```\w+\n.*?^```$", "", read(page), flags=re.S | re.M)  # code may hold what looks like a link
    for path, name in re.findall(r'\]\((\S+\.py) "(\w+)"\)', text):
        source = ((ROOT / page).parent / path).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", source, re.M), f"{path} has no {name}"
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if page == "docs/learning.md" and target.startswith("https://"):  # the sources of what others published
            continue
        assert "://" not in target, target
        linked = (ROOT / page).parent / target if target else ROOT / page
        assert linked.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.M)
            assert anchor in {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}, anchor


# --- security ---------------------------------------------------------------------------------------------------------


def test_every_sentence_of_the_security_section_names_a_test_that_is_there():
    section = read("SECURITY.md").partition("## Sentence by sentence\n")[2].partition("\n## ")[0]
    sentences = re.findall(r"^- (.*)$", section, re.M)
    assert len(sentences) > 15
    for sentence in sentences:
        tests = re.findall(r'\]\((\S+) "(\w+)"\)', sentence)
        for path, name in tests:
            assert re.search(rf"^def {name}\(", read(path), re.M), f"{path} has no {name}"
        assert tests, sentence


# --- hooks -----------------------------------------------------------------------------------------------------------


def sections():
    """Return the sections of the hooks page whose title is one name: name → text."""
    parts = re.split(r"^## `(\w+)`\n", read("docs/hooks.md"), flags=re.M)
    return {name: re.split(r"^## ", text, flags=re.M)[0] for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def specs():
    return {name: value for name, value in vars(hookspecs).items() if name.startswith("rlcatalog_")}


def test_every_hook_has_a_section():
    assert list(sections()) == list(specs()) == list(HOOK_RETURNS)


@pytest.mark.parametrize("hook", HOOK_RETURNS)
def test_section_gives_the_signature_and_the_fields(hook):
    [line] = [line for line in inspect.getsource(specs()[hook]).splitlines() if line.startswith("def ")]
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
    keys = msgspec.defstruct("MapConfig", [("my_plugin_north_up", bool, False)], kw_only=True, frozen=True)
    monkeypatch.setitem(sys.modules, "my_plugin.config", types.SimpleNamespace(MapConfig=keys))
    exec(code, module.__dict__)
    found = isolated_catalog(PluginEntryPoint(module, "my-plugin"))
    assert [(record.status, record.error) for record in found.plugins] == [("loaded", None)]
    assert [type(c.declaration) for c in found.components()] == [HOOK_RETURNS[hook]]
    for component in found.components():
        for target in component.declaration.targets.values():
            assert target.startswith("my_plugin.")


def test_examples_match_what_they_say():
    """The match functions of the examples, asked about something that fits and something that does not."""
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
    assert {quoted(row[0])[0] for row in statuses} == {"loaded", "disabled", "incompatible", "failed"}
    assert all(f'"{quoted(row[0])[0]}"' in source for row in statuses)
    variables = {quoted(row[0])[0] for row in rows(text.partition("## Environment variables")[2])}
    sources = (ROOT / "catalog/src/rlcatalog").rglob("*.py")
    used = {name for path in sources for name in re.findall(r"RLCATALOG_[A-Z]+_PLUGINS", path.read_text("utf-8"))}
    assert variables == used


def test_what_a_match_function_sees_is_listed():
    text = read("docs/hooks.md").partition("`match`, `describe` and `size` receive a `Request`")[2].partition("\n\n")[0]
    fields = {field.name for field in dataclasses.fields(rlcatalog.Request)}
    assert fields <= set(quoted(text))


# --- doors -----------------------------------------------------------------------------------------------------------


def listed_doors():
    """Return door → the names that the page lists for it."""
    found, door = {}, ""
    for row in rows(read("docs/hooks.md").partition("## What a plugin may import")[2].partition("\n## ")[0]):
        door = quoted(row[0])[0] if row[0] else door
        found.setdefault(door, set()).update(quoted(row[1]) + (quoted(row[2]) if "installed parts" in row[1] else []))
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


# --- the authors' guide -----------------------------------------------------------------------------------------------


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
    (info / "entry_points.txt").write_text("[rlcatalog.plugins]\nacme_resnet = acme_resnet.plugin\n")
    code = "\n".join(blocks(re.sub(r"^`src/.*`\n\n```python\n.*?^```$", "", page, flags=re.S | re.M), "python"))
    assert "acme_resnet_width" in code
    (tmp_path / "src/page.py").write_text(code, encoding="utf-8")
    said = run(
        "-W", "error", "-W", "ignore:CUDA initialization:UserWarning", str(tmp_path / "src/page.py"), cwd=tmp_path
    )
    assert "named in the config" in said


def write_plain_plugin(folder):
    """Write the guide's plugin of a plain module, with the module of the page that it links, and return its catalog."""
    (net,) = (code for code in blocks(read("docs/howto/own_model.md"), "python") if "class SmallNet" in code)
    body = next(node for node in ast.parse(net).body if isinstance(node, ast.ClassDef))
    guide = blocks(read("docs/plugins.md"), "python")
    (plugin,) = (code for code in guide if "acme_small.nets" in code)
    (examples,) = (code for code in guide if "Example(vector" in code)
    (kit,) = (code for code in guide if "parametrize_with_checks(" in code)
    files = {
        "__init__": "", "nets": f"from torch import nn\n\n{ast.unparse(body)}", "plugin": plugin, "examples": examples,
    }  # fmt: skip
    (folder / "acme_small").mkdir()
    for name, code in files.items():
        (folder / f"acme_small/{name}.py").write_text(code, encoding="utf-8")
    namespace = {}
    exec(kit.partition("@parametrize")[0].replace("acme_resnet", "acme_small").replace("-resnet", "-small"), namespace)
    return namespace["catalog"]


def test_the_guide_s_plain_plugin_passes_the_kit(tmp_path, monkeypatch, one_thread):
    """Its examples are needed: without them, the kit says so."""
    monkeypatch.syspath_prepend(str(tmp_path))
    catalog = write_plain_plugin(tmp_path)
    outcomes = {outcome.name: outcome.status for outcome in check_plugin("acme-small", catalog=catalog)}
    for check in ("output_width", "works_inside_memories", "works_under_heads", "works_for_a_part_of_an_observation"):
        assert outcomes[f"trunk-acme_small-{check}-torch"] == "passed"
    (component,) = (part for part in catalog.components("model") if part.name == "acme_small")
    spec = dataclasses.replace(component.declaration, examples=None)
    plugin = PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme-small")
    catalog = isolated_catalog("rlcatalog-torch", "rlcatalog-preprocessors", "rlcatalog-categorical", plugin)
    (case,) = (case for case in cases("acme-small", catalog=catalog) if case.check.name == "output_width")
    with pytest.raises(ConformanceError, match=r"shapes cannot be multiplied .* Hint: .* declare examples=") as raised:
        case()
    assert str(raised.value).count("model 'acme_small'") == 1


def test_the_guide_lists_every_kind_and_command():
    from rlcatalog_testing.scaffold import KINDS

    page = read("docs/plugins.md")
    begun = rows(page.partition("## Ten minutes")[2].partition("\n## ")[0])
    assert [quoted(row[1])[0] for row in begun] == [f"rlcatalog new {kind} NAME" for kind in KINDS]
    commands = {c.name for c in isolated_catalog(*(n for n in PACKAGES if n != "rlcatalog")).components("command")}
    named = re.findall(r"^\$ rlcatalog ([\w-]+)", page, re.M)
    assert set(named) <= commands | {"new", "list", "explain", "check"}
    assert {name for name in commands if name.startswith("train")} <= set(named)


@pytest.mark.parametrize(
    ("title", "contract"),
    [("Models", "rlcatalog:ModelV2"), ("Distributions", "rlcatalog:ActionDistribution"),
     ("Preprocessors", "rlcatalog:Preprocessor"), ("Action codecs", "rlcatalog.actions:ActionCodec"),
     ("Filters", "rlcatalog:Filter")],
)  # fmt: skip
def test_the_reference_has_every_method_and_attribute_of_a_contract(title, contract):
    section = read("docs/hooks.md").partition(f"\n### {title}\n")[2]
    section = re.split(r"^##+ ", section, flags=re.M)[0]
    written = {name for span in quoted(section) for name in re.findall(r"\w+", span.partition("(")[0])}
    module, _, name = contract.partition(":")
    cls = getattr(importlib.import_module(module), name)
    public = {name for name in {*vars(cls), *cls.__annotations__} if not name.startswith("_")}
    assert public - written == set()
    methods = {name for row in rows(section) for name in re.findall(r"`(\w+)\(", row[0])}
    assert {name for name in methods if not hasattr(cls, name)} == set()


def test_the_errors_and_ranks_of_the_guide_are_there():
    from rlcatalog import Rank, errors

    page = read("docs/plugins.md")
    named = [quoted(row[0])[0] for row in rows(page.partition("## What a part may raise")[2].partition("\n## ")[0])]
    assert len(named) > 5
    for name in named:
        assert issubclass(getattr(errors, name), errors.CatalogError)
    ranks = [quoted(row[0])[0] for row in rows(page.partition("## Ranks")[2].partition("\n## ")[0])]
    assert ranks == [rank.name for rank in sorted(Rank, reverse=True)]


# --- config ----------------------------------------------------------------------------------------------------------


def key_rows():
    return {quoted(row[0])[0]: row[1:] for row in rows(between(read("docs/config.md"), "keys"))}


def keys_of_status(status):
    return [key for key, row in key_rows().items() if row[0] == status]


@functools.cache
def catalog():
    return isolated_catalog(*(name for name in PACKAGES if name != "rlcatalog"))


def parse(config):
    return catalog().parse_config(config)


def test_config_table_check_finds_a_stale_page(tmp_path, monkeypatch):
    """The check of `make lint` can fail: on a page with one row taken out it does."""
    page = read("docs/config.md")
    stale = re.sub(r"^\| `fcnet_hiddens`.*\n", "", page, flags=re.M)
    assert stale != page
    (tmp_path / "config.md").write_text(stale, encoding="utf-8")
    monkeypatch.setattr(config_table, "TARGET", tmp_path / "config.md")
    assert config_table.main(["--check"]) == 1


#: What RLlib's model config ever held, by era and family; written down a second time, apart from the tool's list.
RLLIB_KEYS = {
    *(f"fcnet_{k}" for k in ("hiddens", "activation")),
    *(f"post_fcnet_{k}" for k in ("hiddens", "activation")),
    *(f"conv_{k}" for k in ("filters", "activation")),
    *(f"lstm_{k}" for k in ("cell_size", "use_prev_action", "use_prev_reward", "use_prev_action_reward")),
    *(f"attention_{k}" for k in ("num_transformer_units", "dim", "num_heads", "head_dim", "memory_inference")),
    *(f"attention_{k}" for k in ("memory_training", "position_wise_mlp_dim", "init_gru_gate_bias")),
    *(f"attention_use_n_prev_{k}" for k in ("actions", "rewards")),
    *(f"custom_{k}" for k in ("model", "model_config", "action_dist", "preprocessor", "options")),
    "free_log_std", "no_final_linear", "vf_share_layers", "use_lstm", "use_attention", "max_seq_len", "_time_major",
    "framestack", "dim", "grayscale", "zero_mean", "num_framestacks", "preprocessor_pref", "observation_filter",
    "_disable_preprocessor_api", "_no_preprocessing", "_disable_action_flattening", "_use_default_native_models",
    "encoder_latent_dim", "always_check_shapes", "log_std_clip_param", "state_shape",
    "squash_to_range", "channel_major", "downscale_factor", "extra_frameskip",
    *(
        f"{prefix}_{part}_initializer{suffix}"
        for prefix, part_of_it in {"fcnet": "weights", "post_fcnet": "weights", "lstm": "weights", "conv": "kernel",
                                   "conv_transpose": "kernel"}.items()
        for part in (part_of_it, "bias")
        for suffix in ("", "_config")
    ),
}  # fmt: skip


def test_table_has_every_key():
    assert set(key_rows()) >= RLLIB_KEYS
    assert set(key_rows()) >= set(catalog().schema.keys)
    assert {row[0] for row in key_rows().values()} <= {"honoured", "alias", "ignored", "refused"}
    assert set(keys_of_status("honoured")) == set(catalog().schema.defaults())
    unplaced = [key for key, row in key_rows().items() if not row[3]]
    assert not unplaced, f"no meaning: {unplaced}"


@pytest.mark.parametrize("key", keys_of_status("honoured"))
def test_honoured(key):
    _, default, owner, _ = key_rows()[key]
    row = catalog().schema.keys[key]
    assert owner == f"`{row.owner}`"
    assert literal(default) == row.default
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse({key: literal(default)})[key] == rlcatalog.MODEL_DEFAULTS[key] == row.default


#: Alias → a value to give, and what stands under the new name then.
ALIASED = {
    "custom_options": ({"a": 1}, {"a": 1}),
    "always_check_shapes": (True, "always"),
    "_no_preprocessing": (True, True),
    "lstm_use_prev_action_reward": (True, True),
}


@pytest.mark.parametrize("key", keys_of_status("alias"))
def test_alias(key):
    targets = quoted(key_rows()[key][2])
    given, expected = ALIASED[key]
    with pytest.warns(DeprecationWarning, match=f"{key!r}.*{' and '.join(map(repr, targets))}"):
        values = parse({key: given})
    assert values == {**parse({}), **dict.fromkeys(targets, expected)}


@pytest.mark.parametrize("key", keys_of_status("ignored"))
def test_ignored(key):
    with pytest.warns(DeprecationWarning, match=f"{key!r} has no effect"):
        assert parse({key: [7]}) == parse({})


@pytest.mark.parametrize("key", keys_of_status("refused"))
def test_refused(key):
    with pytest.raises(ConfigError, match=f"{key!r} is not supported: ") as caught:
        parse({key: True})
    assert not isinstance(caught.value, UnknownConfigKeyError)
    advice = str(caught.value).partition("is not supported: ")[2].rstrip(".")
    assert advice in key_rows()[key][3]


@pytest.mark.parametrize("config", [ppo.PPOConfig, ppo.A2CConfig, ppo.PGConfig])
def test_keys_of_algorithms(config):
    """Those that all have, and in a table of its own what an algorithm adds or changes."""
    page, name = read("docs/config.md"), config.algorithm
    shared, own = ({quoted(row[0])[0]: row[1:] for row in rows(between(page, part))} for part in ("on-policy", name))
    known = {row.name: row for row in keys_of(config)}
    assert set(shared) == set(ppo.OnPolicyConfig.__struct_fields__)
    assert own.keys() - shared.keys() == known.keys() - shared.keys()
    found = shared | own
    for key, (default, aliases, meaning) in found.items():
        value = literal(default)
        assert value == known[key].default == getattr(ppo.parse({key: value}, config), key)
        assert meaning, f"{name} key {key!r} has no meaning"
        for alias in quoted(aliases):
            with pytest.warns(DeprecationWarning, match=f"{alias!r}.*{key!r}"):
                assert getattr(ppo.parse({alias: value}, config), key) == value
    assert sorted(alias for row in found.values() for alias in quoted(row[1])) == sorted(config.aliases)
    with pytest.warns(DeprecationWarning, match="use_pytorch"):
        assert ppo.parse({"use_pytorch": True}, config).framework == "torch"
    for key in ("observation_filter", "preprocessor_pref", "_disable_preprocessor_api"):
        assert ppo.parse({key: "x"}, config).model == {key: "x"}


@pytest.mark.parametrize(
    ("marker", "key"), [("activations", "fcnet_activation"), ("initialisers", "fcnet_weights_initializer")]
)
def test_names_are_accepted(marker, key):
    found = rows(between(read("docs/config.md"), marker))
    assert len(found) > 5
    for row in found:
        for name in [*quoted(row[0]), *quoted(row[-1])]:
            assert parse({key: name})[key] == name
        if marker == "initialisers":
            arguments = dict(argument.split("=") for argument in quoted(row[1]))
            parse({key: quoted(row[0])[0], f"{key}_config": {k: float(v) for k, v in arguments.items()}})


@pytest.mark.parametrize("package", PACKAGES)
def test_key_tables_of_package_readmes(package):
    """Each key a README gives exists, with this default; a plugin's README gives all keys the plugin owns."""
    known = dict(catalog().schema.keys)
    if package == "rlcatalog-ppo":
        known = {row.name: row for row in keys_of(ppo.PPOConfig)}
    text = read(f"{PACKAGES[package]}/README.md").partition("## Config keys")[2].partition("\n## ")[0]
    given = set()
    for keys, defaults, _ in rows(text):
        names, values = quoted(keys), [literal(f"`{value}`") for value in quoted(defaults)]
        values *= len(names) if len(values) == 1 else 1
        assert [known[name].default for name in names] == values
        given |= set(names)
    owned = {name for name, row in catalog().schema.keys.items() if row.owner == package}
    assert given >= (owned if package != "rlcatalog" else {n for n in owned if "initializer" not in n})


# --- RLlib's names ---------------------------------------------------------------------------------------------------


def seed_rows():
    return rows(read("docs/seeds.md").partition("## Names")[2].partition("\n## ")[0])


def resolve(path):
    """Return the object at a dotted path: the longest module that imports, then attributes."""
    names = path.split(".")
    for length in range(len(names), 0, -1):
        module = ".".join(names[:length])
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module and not module.startswith(f"{error.name}."):
                raise
            continue
        for name in names[length:]:
            found = getattr(found, name)
        return found
    raise AssertionError(f"nothing at {path}")


@pytest.mark.parametrize(("name", "here", "remarks"), seed_rows(), ids=[row[0] for row in seed_rows()])
def test_name_has_a_path(name, here, remarks):
    if not here.startswith("not supported: "):
        [path] = quoted(here)
        assert resolve(path) is not None
    for path in quoted(remarks.partition("also ")[2]):
        assert resolve(path) is not None


def test_seed_table_has_the_names_the_page_imports():
    """The names in the import lines of the five editions."""
    served = {here.strip("`") for _, here, _ in seed_rows()}
    tf, torch = "rlcatalog_tf.", "rlcatalog_torch."
    assert served >= {
        *("rlcatalog.ModelCatalog", "rlcatalog.Preprocessor", "rlcatalog.one_hot"),
        *("rlcatalog.ActionDistribution", "rlcatalog.TupleActions", "rlcatalog.restore_original_dimensions"),
        *(f"{tf}TFModelV2", f"{tf}RecurrentNetwork", f"{tf}RecurrentTFModelV2", f"{tf}FullyConnectedNetwork"),
        *(f"{tf}Categorical", f"{tf}normc_initializer", f"{torch}TorchModelV2", f"{torch}RecurrentNetwork"),
        *("rlcatalog_ppo", "rlcatalog_ppo.PPO", "rlcatalog_ppo.PPOTrainer", "rlcatalog.spaces.Repeated"),
    }
    names = " ".join(row[0] for row in seed_rows())
    assert all(word in names for word in ("A2CTrainer", "ray.init", "RepeatedValues", "ComplexInputNetwork", "gym.Env"))


# --- what is generated, and the house -------------------------------------------------------------------------------


def test_install_hints_are_fresh():
    written = json.loads(read("catalog/src/rlcatalog/plugins/public_index.json"))
    assert written == public_index.data(), "run `make generate`"


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_type_checkers_see_the_classes_that_are_imported(framework):
    """The stub of a framework's door says for each part which class it is; the door gives that class."""
    path, text = public_index.stub(framework)
    assert path.read_text(encoding="utf-8") == text, "run `make generate`"
    said = dict(re.findall(r"^(\w+) = (\w[\w.]+)$", text, re.M))
    exports = json.loads(read("catalog/src/rlcatalog/plugins/public_index.json"))["provides"]
    assert set(said) == {key.rpartition("/")[2] for key in exports if key.startswith(f"export/{framework}/")}
    door = importlib.import_module(f"rlcatalog_{framework}")
    for name, place in said.items():
        module, _, attribute = place.rpartition(".")
        assert getattr(door, name) is getattr(importlib.import_module(module), attribute), name


def test_the_packages_on_disk_are_installed():
    on_disk = {str(path.relative_to(ROOT)) for path in public_index.packages().values()}
    demo, torch, dev = (
        re.findall(r"^-e \./(\S+)", read(f"requirements/{name}.txt"), re.M) for name in ("demo", "torch", "dev")
    )
    assert sorted(demo + torch + dev) == sorted(on_disk)
    assert sorted(dev) == [
        "plugins/export",
        "plugins/rllib",
        "plugins/sb3",
        "plugins/tf",
    ]  # the demo has no use for them
    assert on_disk == set(PACKAGES.values())
    assert "plugins/example" not in on_disk


def test_the_page_of_packages_names_them_and_each_has_one():
    named = {quoted(row[0])[0]: re.search(r"\(../../(.*)\)", row[0])[1] for row in rows(read("docs/packages/index.md"))}
    assert named == PACKAGES
    included = {re.search(r"include\} ../../(.*)/README.md", read(page))[1]
                for page in SITE if page.startswith("docs/packages/") and not page.endswith("index.md")}  # fmt: skip
    assert included == {*PACKAGES.values(), "plugins/example"}


#: Folders that hold no text of ours.
SKIPPED = {"__pycache__", "runs", "dist", "build", "_build", "node_modules"}


def test_no_machine_paths():
    """No file names a folder of somebody's machine, or the host of a package registry."""
    # Spelt apart, so that this file does not match itself.
    folders = re.compile(rf"(?<![\w.~/])/({'|'.join(('work', 'root', 'home', 'Users', 'tmp', 'mnt'))})/\w")
    hosts = re.compile(r"pypi\.o" r"rg|pythonho" r"sted|anaconda\.c" r"om")
    wrong = []
    for folder, folders_below, files in os.walk(ROOT):
        folders_below[:] = [name for name in folders_below if name not in SKIPPED and not (
            name.startswith(".") and name not in (".ci", ".github")) and not name.endswith(".egg-info")]  # fmt: skip
        for name in files:
            path = Path(folder, name)
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            for number, line in enumerate(text.splitlines(), 1):
                if folders.search(line) or hosts.search(line):
                    wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not wrong, "\n".join(wrong)
