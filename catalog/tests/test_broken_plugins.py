"""Plugins broken in every way we could think of: the others work, and each broken one is reported
with its cause.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

import gymnasium as gym
import importlib_metadata
import numpy as np
import pytest

from rlcatalog import (
    ActionDistSpec,
    Catalog,
    EnvWrapperSpec,
    Match,
    ModelSpec,
    Preprocessor,
    PreprocessorSpec,
    Rank,
    Request,
    SpaceInfo,
)
from rlcatalog.errors import CatalogError, PartError, PluginError, PluginWarning

GOOD = """
from rlcatalog import Match, ModelSpec, PreprocessorSpec, Rank, hookimpl
from rlcatalog.observations import Preprocessor


class Codec(Preprocessor):
    def _init_shape(self, obs_space, options):
        return (2,)

    def transform(self, observation):
        return [observation.sum(), {number}]


def match(request):
    return (
        Match(Rank.GENERIC, "a matrix")
        if request.obs.shape == ({number}, 2)
        else Match(None, "another shape")
    )


@hookimpl
def rlcatalog_preprocessors():
    return [PreprocessorSpec("{name}_codec", {{"numpy": "{module}:Codec"}}, "a codec", match=match)]


@hookimpl
def rlcatalog_models():
    return [
        ModelSpec("{name}", {{"torch": "{module}:Net"}}, "a model", config="{module}_config:Config")
    ]
"""

CONFIG = """
import msgspec


class Config(msgspec.Struct, frozen=True, kw_only=True):
    {key}: int = 3
"""

HOOK = (
    "from rlcatalog import ActionDistSpec, ModelSpec, hookimpl\n\n@hookimpl\ndef {signature}:\n"
    "    {body}\n"
)
SPEC = 'ModelSpec("broken_net", {{"torch": "m:C"}}, ""{more})'


def hook(body: str, signature: str = "rlcatalog_models()") -> str:
    return HOOK.format(signature=signature, body=body)


def models(more: str = "") -> str:
    return hook(f"return [{SPEC.format(more=more)}]")


@dataclass(frozen=True)
class Case:
    """One way to be broken: the plugin's source and what its record must say."""

    source: str
    says: tuple[str, ...]
    status: str = "failed"
    requires: tuple[str, ...] = ("rlcatalog>=0.1",)
    config: str | None = field(default=None, repr=False)


BROKEN = {
    "syntax-error": Case("def broken(:\n", ("SyntaxError: ", "broken_syntax_error.py, line 1")),
    "import-error": Case(
        "import a_module_nobody_has\n",
        ("ModuleNotFoundError: No module named 'a_module_nobody_has'",),
    ),
    "wrong-import": Case(
        "from rlcatalog import NoSuchThing\n", ("ImportError: cannot import name 'NoSuchThing'",)
    ),
    "system-exit": Case("raise SystemExit('no licence')\n", ("SystemExit: no licence",)),
    "system-exit-without-words": Case("import sys; sys.exit()\n", ("SystemExit",)),
    "exit-in-hook": Case(hook("raise SystemExit(3)"), ("SystemExit: 3",)),
    "error-in-hook": Case(hook("return [1 / 0]"), ("ZeroDivisionError: division by zero",)),
    "argument": Case(
        hook("return []", "rlcatalog_models(config)"),
        (
            "'broken_argument'",
            "rlcatalog_models",
            "{'config'}",
            "take no arguments: def rlcatalog_models().",
        ),
    ),
    "misspelt": Case(
        hook("return []", "rlcatalog_model()"),
        (
            "'broken_misspelt'",
            "'rlcatalog_model' is not one of rlcatalog's hooks",
            "Did you mean 'rlcatalog_models'?",
        ),
    ),
    "invented": Case(
        hook("return []", "rlcatalog_something_else()"),
        (
            "'rlcatalog_something_else' is not one of rlcatalog's hooks",
            "rlcatalog_preprocessors, rlcatalog_filters",
        ),
    ),
    "unmarked": Case(
        "def rlcatalog_models():\n    return []\n",
        ("'broken_unmarked'", "rlcatalog_models() is not decorated with @rlcatalog.hookimpl"),
    ),
    "unmarked-misspelt": Case(
        "def rlcatalog_action_dist():\n    return []\n",
        (
            "'rlcatalog_action_dist' is not one of rlcatalog's hooks",
            "Did you mean 'rlcatalog_action_dists'?",
        ),
    ),
    "returns-text": Case(
        hook("return 'fcnet'"),
        ("rlcatalog_models() must return a list of ModelSpec, found 'fcnet'",),
    ),
    "returns-none": Case(
        hook("return None"), ("rlcatalog_models() must return a list of ModelSpec, found None",)
    ),
    "returns-classes": Case(
        hook("return [dict]"), ("must return a list of ModelSpec, found [<class 'dict'>]",)
    ),
    "returns-one": Case(
        hook(f"return {SPEC.format(more='')}"),
        ("must return a list of ModelSpec, found ModelSpec(",),
    ),
    "yields": Case(
        hook(f"yield {SPEC.format(more='')}"),
        ("must return a list of ModelSpec, found <generator object",),
    ),
    "returns-other-kind": Case(
        hook("return [ActionDistSpec('d', {'torch': 'm:C'}, '', size=len)]"),
        ("rlcatalog_models() must return a list of ModelSpec, found [ActionDistSpec(",),
    ),
    "bad-declaration": Case(
        hook("return [ModelSpec('net', {'jax': 'm:C'}, '')]"),
        ("unknown framework 'jax'", "known: ['tf', 'torch']"),
    ),
    "too-new": Case(
        "raise AssertionError('imported')\n",
        (
            "broken-too-new 1.0",
            "it needs rlcatalog>=99",
            "Install a version of broken-too-new for it",
        ),
        status="incompatible",
        requires=("rlcatalog>=99",),
    ),
    "unreadable-bound": Case(
        "raise AssertionError('imported')\n",
        ("unreadable requirement 'rlcatalog >=> 1'",),
        status="incompatible",
        requires=("rlcatalog >=> 1",),
    ),
    "same-name-twice": Case(
        hook(
            'return [ModelSpec("net", {"torch": "m:C"}, ""), ModelSpec("net", {"tf": "m:C"}, "")]'
        ),
        ("DuplicateNameError: broken-same-name-twice declares model 'net' twice",),
    ),
    "config-syntax": Case(
        models(', config="broken_config_syntax_config:Config"'),
        ("SyntaxError",),
        config="class Config(:\n",
    ),
    "config-missing": Case(
        models(', config="broken_config_missing_config:Konfig"'),
        ("config='broken_config_missing_config:Konfig' must name a msgspec.Struct, found None",),
        config=CONFIG.format(key="x"),
    ),
    "config-no-struct": Case(
        models(', config="broken_config_no_struct_config:Config"'),
        ("must name a msgspec.Struct, found <class 'broken_config_no_struct_config.Config'>",),
        config="class Config:\n    x: int = 1\n",
    ),
}


@pytest.fixture
def write(tmp_path, install):
    """Write the two good plugins and some broken ones; return the folder."""

    def make(names, folder=tmp_path):
        for number, name in enumerate(["alpha", "omega"], 3):
            module = name
            extra = {f"{module}_config": CONFIG.format(key=f"{name}_size")}
            source = GOOD.format(name=name, module=module, number=number)
            install(folder, module.replace("_", "-"), source, extra=extra)
        for name in names:
            case, module = BROKEN[name], f"broken_{name.replace('-', '_')}"
            extra = {f"{module}_config": case.config} if case.config is not None else {}
            install(folder, f"broken-{name}", case.source, requires=case.requires, extra=extra)
        return folder

    return make


def load(entry_points, count, **environ):
    """Load plugins of which `count` are broken; each gives one warning."""
    with pytest.warns(PluginWarning) as caught:
        catalog = Catalog(entry_points, environ=environ)
    messages = [str(w.message) for w in caught]
    assert len(messages) == count, messages
    return catalog, messages


def check_report(name, record, messages):
    case = BROKEN[name]
    assert record.status == case.status
    for part in case.says:
        assert part in record.error
    (message,) = [m for m in messages if f"of broken-{name} 1.0 {record.condition}" in m]
    assert f"RLCATALOG_DISABLE_PLUGINS=broken-{name}" in message
    assert f"pip uninstall broken-{name}" in message


def check_good(catalog):
    """Everything the good plugins provide is there and works, and nothing else is."""
    assert [c.name for c in catalog.components()] == [
        "alpha",
        "omega",
        "alpha_codec",
        "omega_codec",
    ]
    assert catalog.parse_config({"alpha_size": 7})["omega_size"] == 3
    for number in (3, 4):
        space = gym.spaces.Box(-1, 1, (number, 2), np.float32)
        encoded = catalog.preprocessor_for(space).transform(np.ones((number, 2), np.float32))
        assert list(encoded) == [2 * number, number]


@pytest.mark.parametrize("name", BROKEN)
def test_one_broken_plugin_leaves_the_others_working(write, installed, name):
    catalog, messages = load(installed(write([name])), 1)
    records = {r.distribution: r for r in catalog.plugins}
    assert list(records) == ["alpha", f"broken-{name}", "omega"]
    assert records["alpha"].status == records["omega"].status == "loaded"
    check_report(name, records[f"broken-{name}"], messages)
    check_good(catalog)


def test_all_broken_at_once(write, installed):
    catalog, messages = load(installed(write(BROKEN)), len(BROKEN))
    records = {r.distribution: r for r in catalog.plugins}
    assert len(records) == len(BROKEN) + 2
    assert [name for name, record in records.items() if record.status == "loaded"] == [
        "alpha",
        "omega",
    ]
    for name in BROKEN:
        check_report(name, records[f"broken-{name}"], messages)
    check_good(catalog)


@pytest.mark.parametrize("name", BROKEN)
def test_strict_raises_the_first_failure(write, installed, name):
    points = installed(write([name]))
    with pytest.raises(CatalogError) as raised:
        Catalog(points, environ={"RLCATALOG_STRICT_PLUGINS": "1"})
    state = (
        f"broken-{name} 1.0 {'has' if BROKEN[name].status == 'failed' else 'is'}"
        f" {BROKEN[name].status}: "
    )
    assert all(part in str(raised.value) for part in (state, *BROKEN[name].says))
    assert isinstance(raised.value.__cause__, BaseException)


@pytest.mark.parametrize("value", ["", "0"])
def test_strict_can_be_switched_off(write, installed, value):
    load(installed(write(["argument"])), 1, RLCATALOG_STRICT_PLUGINS=value)


def test_strict_is_content_with_healthy_and_disabled_plugins(write, installed):
    environ = {"RLCATALOG_STRICT_PLUGINS": "1", "RLCATALOG_DISABLE_PLUGINS": "broken-import-error"}
    check_good(Catalog(installed(write(["import-error"])), environ=environ))


def test_a_plugin_that_fails_halfway_leaves_nothing_behind(install, installed, tmp_path):
    second = '\n@hookimpl\ndef rlcatalog_models():\n    raise RuntimeError("halfway")\n'
    first = 'return [ActionDistSpec("half_dist", {"torch": "m:C"}, "", size=len)]'
    install(tmp_path, "half", hook(first, "rlcatalog_action_dists()") + second)
    catalog, (message,) = load(installed(tmp_path), 1)
    assert "RuntimeError: halfway" in message
    assert catalog.components() == []


# --- left out before import -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "environ",
    [
        {"RLCATALOG_DISABLE_PLUGINS": "broken-import-error,broken_system_exit"},
        {"RLCATALOG_DISABLE_PLUGINS": " Broken.Import.Error , BROKEN-SYSTEM-EXIT "},
        {"RLCATALOG_LOAD_PLUGINS": "alpha, omega"},
    ],
)
def test_plugins_left_out_are_never_imported(write, installed, environ):
    catalog = Catalog(installed(write(["import-error", "system-exit"])), environ=environ)
    check_good(catalog)
    assert "alpha" in sys.modules
    variable, value = next(iter(environ.items()))
    for name in ("broken-import-error", "broken-system-exit"):
        (record,) = [r for r in catalog.plugins if r.distribution == name]
        assert record.status == "disabled"
        assert f"{variable}={value!r}" in record.error


@pytest.mark.parametrize(
    "environ",
    [
        {"RLCATALOG_DISABLE_PLUGINS": "*"},
        {"RLCATALOG_LOAD_PLUGINS": ""},
        {"RLCATALOG_DISABLE_PLUGINS": "alpha,omega"},  # a distribution and an entry point
    ],
)
def test_healthy_plugins_left_out_are_never_imported_either(write, installed, environ):
    catalog = Catalog(installed(write([])), environ=environ)
    assert [r.status for r in catalog.plugins] == ["disabled", "disabled"]
    assert catalog.components() == []
    assert not {"alpha", "alpha_config", "omega"} & set(sys.modules)


def test_the_lists_take_entry_point_names_too(tmp_path, install, installed):
    install(tmp_path, "some-dist", "raise AssertionError('imported')\n", entry_point="nets")
    for environ in ({"RLCATALOG_DISABLE_PLUGINS": "nets"}, {"RLCATALOG_LOAD_PLUGINS": "others"}):
        assert [r.status for r in Catalog(installed(tmp_path), environ=environ).plugins] == [
            "disabled"
        ]
    _, (message,) = load(installed(tmp_path), 1, RLCATALOG_LOAD_PLUGINS="Nets")
    assert "AssertionError: imported" in message


def test_an_incompatible_plugin_is_not_imported(write, installed):
    _, (message,) = load(installed(write(["too-new"])), 1)
    assert "imported" not in message
    assert "broken_too_new" not in sys.modules


# --- broken at the lookup -------------------------------------------------------------------------

MATCHERS = {
    "raises": ("return 1 / 0", "its match function raised ZeroDivisionError: division by zero"),
    "exits": ("raise SystemExit('bye')", "its match function raised SystemExit: bye"),
    "returns_true": ("return True", "its match function returned True instead of a Match"),
    "ranks_wrong": (
        "return Match('best', 'x')",
        "its match function returned Match(rank='best', why='x')",
    ),
}


@pytest.mark.parametrize("name", MATCHERS)
def test_a_match_function_that_fails_is_an_error_that_names_its_plugin(
    write, install, installed, name
):
    body, reason = MATCHERS[name]
    source = (
        "from rlcatalog import Match, PreprocessorSpec, hookimpl\n\ndef match(request):\n"
        "    {}\n\n@hookimpl\n"
        'def rlcatalog_preprocessors():\n    return [PreprocessorSpec("bad", {{"numpy": "m:C"}},'
        ' "", match=match)]\n'
    )
    folder = write([])
    install(folder, "broken-match", source.format(body))
    catalog = Catalog(installed(folder), environ={})
    info = SpaceInfo.read(gym.spaces.Box(-1, 1, (3, 2), np.float32))
    with pytest.raises(PartError) as raised:
        catalog.slots.preprocessor(Request(info), None)
    assert str(raised.value).startswith(f"preprocessor 'bad' (broken-match 1.0): {reason}")


FUNCTIONS = {
    "describe raises": (
        {"describe": lambda request: 1 / 0},
        {},
        "ZeroDivisionError: division by zero",
    ),
    "describe exits": ({"describe": lambda request: sys.exit(4)}, {}, "SystemExit: 4"),
    "describe returns nonsense": (
        {"describe": lambda request: [("hidden", 3)]},
        {},
        "('hidden', 3)",
    ),
    "size raises": (
        {},
        {"size": lambda action, config: 1 / 0},
        "ZeroDivisionError: division by zero",
    ),
    "size returns nonsense": ({}, {"size": lambda action, config: None}, "None"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_the_chosen_part_that_fails_names_the_part_and_its_plugin(
    entry_point, plugin, module, name
):
    of_model, of_dist, says = FUNCTIONS[name]
    module(Codec=type("Codec", (Preprocessor,), {"_init_shape": lambda self, space, options: (3,)}))

    def fits(request):
        return Match(Rank.GENERIC, "fits")

    made = plugin(
        rlcatalog_preprocessors=[
            PreprocessorSpec("codec", {"numpy": "made_up_parts:Codec"}, "", match=fits)
        ],
        rlcatalog_models=[ModelSpec("net", {"torch": "m:C"}, "", match=fits, **of_model)],
        rlcatalog_action_dists=[
            ActionDistSpec(
                "dist",
                {"torch": "m:C"},
                "",
                match=fits,
                **{"size": lambda action, config: 2, **of_dist},
            )
        ],
    )
    catalog = Catalog([entry_point("some-dist", made)], environ={})
    with pytest.raises(PluginError) as raised:
        catalog.explain(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2))
    what = "model 'net'" if of_model else "action_dist 'dist'"
    assert f"{what} (some-dist 1.0)" in str(raised.value)
    assert says in str(raised.value)


@pytest.mark.parametrize("name", MATCHERS)
def test_a_wrappers_match_function_that_fails_is_an_error_where_it_is_asked(
    entry_point, plugin, name
):
    namespace = {"Match": Match}
    exec(f"def match(request):\n    {MATCHERS[name][0]}", namespace)
    spec = EnvWrapperSpec(
        "wrapper", {"numpy": "a_module_nobody_has:wrap"}, "", match=namespace["match"]
    )
    point, env = (
        entry_point("some-dist", plugin(rlcatalog_env_wrappers=[spec])),
        gym.make("CartPole-v1"),
    )
    assert Catalog([point], environ={}).wrap_env(env) is env
    with pytest.raises(
        PartError, match=r"env_wrapper 'wrapper' \(some-dist 1\.0\): its match function"
    ):
        Catalog([point], environ={}, prefer=["some-dist"]).wrap_env(env)


# --- real processes -------------------------------------------------------------------------------

#: How a real command line ends up with a plugin: these are worth a process, the others behave the
#: same.
REAL = [
    "syntax-error", "import-error", "system-exit", "argument", "misspelt", "unmarked",
    "returns-text", "returns-none", "too-new", "config-syntax",
]  # fmt: skip


def command(*arguments, folders, **environ):
    """Run `python -m rlcatalog_cli` with the plugins of some folders beside the installed ones."""
    clean = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("RLCATALOG_", "PYTHON"))
    }
    clean |= {
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "PYTHONDONTWRITEBYTECODE": "1",
        **environ,
    }
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "rlcatalog_cli", *arguments],
        env=clean,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def imported(process):
    """Return the top-level packages that a process run with `-X importtime` imported."""
    lines = [line for line in process.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


@pytest.fixture
def two_layouts(tmp_path, write, install):
    """Write the same plugins twice, split over two folders that are installed and searched in
    opposite orders.
    """
    write(REAL, tmp_path / "all")
    layouts = []
    for name, direction in (("forwards", 1), ("backwards", -1)):
        infos = sorted((tmp_path / "all").glob("*.dist-info"))
        halves = [tmp_path / name / "first", tmp_path / name / "second"]
        for half, start in list(zip(halves, (0, 1), strict=True))[::direction]:
            half.mkdir(parents=True)
            for info in list(islice(infos, start, None, 2))[::direction]:
                (half / info.name).mkdir()
                for file in info.iterdir():
                    (half / info.name / file.name).write_bytes(file.read_bytes())
        layouts.append([*halves[::direction], tmp_path / "modules"])
    (tmp_path / "modules").mkdir()
    for file in (tmp_path / "all").glob("*.py"):
        file.rename(tmp_path / "modules" / file.name)
    return layouts


@pytest.mark.parametrize("seeds", [2, pytest.param(5, marks=pytest.mark.attack)])
def test_the_command_line_with_broken_plugins(two_layouts, seeds):
    orders = [
        [dist.name for dist in importlib_metadata.distributions(path=list(map(str, folders)))]
        for folders in two_layouts
    ]
    assert orders[0] != orders[1]  # else the two layouts would show nothing
    with ThreadPoolExecutor(2) as pool:
        listings = [
            pool.submit(
                command, "list", "--json", folders=two_layouts[seed % 2], PYTHONHASHSEED=str(seed)
            )
            for seed in range(seeds)
        ]
        explained = pool.submit(command, "explain", "CartPole-v1", "--json", folders=two_layouts[0])
        strict = pool.submit(command, "list", folders=two_layouts[0], RLCATALOG_STRICT_PLUGINS="1")
    first, *others = [listing.result() for listing in listings]
    assert first.returncode == 0, first.stderr
    for other in others:
        assert other.stdout == first.stdout
    listing = json.loads(first.stdout)
    plugins = {plugin["distribution"]: plugin for plugin in listing["plugins"]}
    assert plugins["alpha"]["status"] == plugins["omega"]["status"] == "loaded"
    for name in REAL:
        case, plugin = BROKEN[name], plugins[f"broken-{name}"]
        assert set(plugin) == {"name", "distribution", "version", "status", "error"}
        assert (plugin["name"], plugin["version"]) == (f"broken_{name.replace('-', '_')}", "1.0")
        assert plugin["status"] == case.status
        assert all(part in plugin["error"] for part in case.says)
    names = {part["name"] for part in listing["components"]}
    assert {"alpha", "omega", "alpha_codec", "omega_codec"} <= names
    assert not any(part["distribution"].startswith("broken-") for part in listing["components"])
    entry = next(part for part in listing["components"] if part["name"] == "alpha")
    assert entry == {
        "kind": "model",
        "name": "alpha",
        "distribution": "alpha",
        "version": "1.0",
        "frameworks": ["torch"],
        "summary": "a model",
    }

    answer = explained.result()
    assert answer.returncode == 0, answer.stderr
    choices = json.loads(answer.stdout)
    for slot in ("preprocessor", "model", "action_dist"):
        assert choices[slot]["chosen"]
        assert choices[slot]["distribution"]
    assert "gymnasium" in imported(answer)  # the list of imports can be trusted
    for process in (first, answer):
        assert "rlcatalog" in imported(process)
        assert not imported(process) & {"torch", "tensorflow", "keras"}
        assert "broken-system-exit" in process.stderr

    assert strict.result().returncode != 0
    assert any(part in strict.result().stderr for name in REAL for part in BROKEN[name].says)
