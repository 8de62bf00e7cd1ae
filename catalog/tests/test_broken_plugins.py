"""Broken plugins: each one is reported with its cause, and the other plugins still work."""

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

#: A working plugin with a model, a config key and a preprocessor for boxes of shape (number, 2).
WORKING_PLUGIN = """
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

CONFIG_MODULE = """
import msgspec


class Config(msgspec.Struct, frozen=True, kw_only=True):
    {key}: int = 3
"""

PLUGIN_WITH_ONE_HOOK = (
    "from rlcatalog import ActionDistSpec, ModelSpec, hookimpl\n\n@hookimpl\ndef {signature}:\n"
    "    {body}\n"
)
MODEL_SPEC = """ModelSpec("broken_net", {"torch": "m:C"}, "")"""


def write_hook(body: str, *, signature: str = "rlcatalog_models()") -> str:
    """Return the source of a plugin with one hook."""
    return PLUGIN_WITH_ONE_HOOK.format(signature=signature, body=body)


def write_model_with_config(config: str) -> str:
    """Return the source of a plugin with one model, whose config struct stands at `config`."""
    return write_hook(
        f'return [ModelSpec("broken_net", {{"torch": "m:C"}}, "", config={config!r})]'
    )


@dataclass(frozen=True)
class Case:
    """One way to be broken: the plugin's source, and phrases of the error in its record."""

    source: str
    phrases: tuple[str, ...]
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
    "exit-in-hook": Case(write_hook("raise SystemExit(3)"), ("SystemExit: 3",)),
    "error-in-hook": Case(write_hook("return [1 / 0]"), ("ZeroDivisionError: division by zero",)),
    "argument": Case(
        write_hook("return []", signature="rlcatalog_models(config)"),
        (
            "'broken_argument'",
            "rlcatalog_models",
            "{'config'}",
            "take no arguments: def rlcatalog_models().",
        ),
    ),
    "misspelt": Case(
        write_hook("return []", signature="rlcatalog_model()"),
        (
            "'broken_misspelt'",
            "'rlcatalog_model' is not one of rlcatalog's hooks",
            "Did you mean 'rlcatalog_models'?",
        ),
    ),
    "invented": Case(
        write_hook("return []", signature="rlcatalog_something_else()"),
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
        write_hook("return 'fcnet'"),
        ("rlcatalog_models() must return a list of ModelSpec, found 'fcnet'",),
    ),
    "returns-none": Case(
        write_hook("return None"),
        ("rlcatalog_models() must return a list of ModelSpec, found None",),
    ),
    "returns-classes": Case(
        write_hook("return [dict]"), ("must return a list of ModelSpec, found [<class 'dict'>]",)
    ),
    "returns-one": Case(
        write_hook(f"return {MODEL_SPEC}"),
        ("must return a list of ModelSpec, found ModelSpec(",),
    ),
    "yields": Case(
        write_hook(f"yield {MODEL_SPEC}"),
        ("must return a list of ModelSpec, found <generator object",),
    ),
    "returns-other-kind": Case(
        write_hook("return [ActionDistSpec('d', {'torch': 'm:C'}, '', size=len)]"),
        ("rlcatalog_models() must return a list of ModelSpec, found [ActionDistSpec(",),
    ),
    "bad-declaration": Case(
        write_hook("return [ModelSpec('net', {'jax': 'm:C'}, '')]"),
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
        write_hook(
            'return [ModelSpec("net", {"torch": "m:C"}, ""), ModelSpec("net", {"tf": "m:C"}, "")]'
        ),
        ("DuplicateNameError: broken-same-name-twice declares model 'net' twice",),
    ),
    "config-syntax": Case(
        write_model_with_config("broken_config_syntax_config:Config"),
        ("SyntaxError",),
        config="class Config(:\n",
    ),
    "config-missing": Case(
        write_model_with_config("broken_config_missing_config:Konfig"),
        ("config='broken_config_missing_config:Konfig' must name a msgspec.Struct, found None",),
        config=CONFIG_MODULE.format(key="x"),
    ),
    "config-no-struct": Case(
        write_model_with_config("broken_config_no_struct_config:Config"),
        ("must name a msgspec.Struct, found <class 'broken_config_no_struct_config.Config'>",),
        config="class Config:\n    x: int = 1\n",
    ),
}


@pytest.fixture
def write_plugins(tmp_path, install):
    """Write the two working plugins and the broken ones with these names; return the folder."""

    def write(names, folder=tmp_path):
        for name, number in (("alpha", 3), ("omega", 4)):
            source = WORKING_PLUGIN.format(name=name, module=name, number=number)
            config = CONFIG_MODULE.format(key=f"{name}_size")
            install(folder, name, source, extra={f"{name}_config": config})
        for name in names:
            case = BROKEN[name]
            extra = {}
            if case.config is not None:
                module = f"broken_{name.replace('-', '_')}"
                extra[f"{module}_config"] = case.config
            install(folder, f"broken-{name}", case.source, requires=case.requires, extra=extra)
        return folder

    return write


def load_with_warnings(entry_points, *, expected_warnings, **environ):
    """Return a catalog of plugins of which some are broken, and the texts of its warnings."""
    with pytest.warns(PluginWarning) as caught:
        catalog = Catalog(entry_points, environ=environ)
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == expected_warnings, messages
    return catalog, messages


def check_broken_plugin(name, *, record, messages):
    """The record names the cause; one warning says how to disable and uninstall the plugin."""
    case = BROKEN[name]
    assert record.status == case.status
    for phrase in case.phrases:
        assert phrase in record.error
    heading = f"of broken-{name} 1.0 {record.condition}"
    (message,) = [text for text in messages if heading in text]
    assert f"RLCATALOG_DISABLE_PLUGINS=broken-{name}" in message
    assert f"pip uninstall broken-{name}" in message


def check_working_plugins(catalog):
    """The catalog has what the two working plugins declare, and nothing else."""
    names = [component.name for component in catalog.components()]
    assert names == ["alpha", "omega", "alpha_codec", "omega_codec"]
    assert catalog.parse_config({"alpha_size": 7})["omega_size"] == 3
    for number in (3, 4):
        observation = np.ones((number, 2), np.float32)
        space = gym.spaces.Box(-1, 1, observation.shape, np.float32)
        encoded = catalog.preprocessor_for(space).transform(observation)
        assert list(encoded) == [2 * number, number]  # the sum of the ones, and the plugin's number


@pytest.mark.parametrize("name", BROKEN)
def test_broken_plugin_leaves_the_others_working(write_plugins, installed, name):
    catalog, messages = load_with_warnings(installed(write_plugins([name])), expected_warnings=1)

    records = {record.distribution: record for record in catalog.plugins}
    assert list(records) == ["alpha", f"broken-{name}", "omega"]
    assert records["alpha"].status == "loaded"
    assert records["omega"].status == "loaded"
    check_broken_plugin(name, record=records[f"broken-{name}"], messages=messages)
    check_working_plugins(catalog)


def test_all_broken_plugins_at_once_are_reported(write_plugins, installed):
    points = installed(write_plugins(BROKEN))

    catalog, messages = load_with_warnings(points, expected_warnings=len(BROKEN))

    records = {record.distribution: record for record in catalog.plugins}
    loaded = [name for name, record in records.items() if record.status == "loaded"]
    assert len(records) == len(BROKEN) + 2
    assert loaded == ["alpha", "omega"]
    for name in BROKEN:
        check_broken_plugin(name, record=records[f"broken-{name}"], messages=messages)
    check_working_plugins(catalog)


@pytest.mark.parametrize("name", BROKEN)
def test_strict_mode_raises_the_first_failure(write_plugins, installed, name):
    case = BROKEN[name]
    points = installed(write_plugins([name]))

    with pytest.raises(CatalogError) as caught:
        Catalog(points, environ={"RLCATALOG_STRICT_PLUGINS": "1"})

    verb = "has" if case.status == "failed" else "is"
    message = str(caught.value)
    assert f"broken-{name} 1.0 {verb} {case.status}: " in message
    for phrase in case.phrases:
        assert phrase in message
    assert isinstance(caught.value.__cause__, BaseException)


@pytest.mark.parametrize("value", ["", "0"], ids=["empty", "zero"])
def test_strict_mode_can_be_switched_off(write_plugins, installed, value):
    points = installed(write_plugins(["argument"]))
    load_with_warnings(points, expected_warnings=1, RLCATALOG_STRICT_PLUGINS=value)


def test_strict_mode_accepts_disabled_broken_plugin(write_plugins, installed):
    points = installed(write_plugins(["import-error"]))
    environ = {"RLCATALOG_STRICT_PLUGINS": "1", "RLCATALOG_DISABLE_PLUGINS": "broken-import-error"}

    catalog = Catalog(points, environ=environ)

    check_working_plugins(catalog)


def test_plugin_whose_second_hook_fails_adds_no_parts(install, installed, tmp_path):
    first_hook = write_hook(
        'return [ActionDistSpec("half_dist", {"torch": "m:C"}, "", size=len)]',
        signature="rlcatalog_action_dists()",
    )
    second_hook = '\n@hookimpl\ndef rlcatalog_models():\n    raise RuntimeError("halfway")\n'
    install(tmp_path, "half", first_hook + second_hook)

    catalog, [message] = load_with_warnings(installed(tmp_path), expected_warnings=1)

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
    ids=["disabled", "disabled-by-another-spelling", "not-in-the-list-to-load"],
)
def test_excluded_broken_plugins_are_never_imported(write_plugins, installed, environ):
    points = installed(write_plugins(["import-error", "system-exit"]))

    catalog = Catalog(points, environ=environ)

    check_working_plugins(catalog)
    assert "alpha" in sys.modules
    [(variable, value)] = environ.items()
    records = {record.distribution: record for record in catalog.plugins}
    for name in ("broken-import-error", "broken-system-exit"):
        assert records[name].status == "disabled"
        assert f"{variable}={value!r}" in records[name].error


@pytest.mark.parametrize(
    "environ",
    [
        {"RLCATALOG_DISABLE_PLUGINS": "*"},
        {"RLCATALOG_LOAD_PLUGINS": ""},
        {"RLCATALOG_DISABLE_PLUGINS": "alpha,omega"},
    ],
    ids=["all-disabled", "none-to-load", "disabled-by-name"],
)
def test_excluded_working_plugins_are_never_imported(write_plugins, installed, environ):
    catalog = Catalog(installed(write_plugins([])), environ=environ)

    assert [record.status for record in catalog.plugins] == ["disabled", "disabled"]
    assert catalog.components() == []
    assert not {"alpha", "alpha_config", "omega"} & set(sys.modules)


#: A plugin of the distribution some-dist with the entry point "nets", which must not be imported.
RAISES_WHEN_IMPORTED = "raise AssertionError('imported')\n"


@pytest.mark.parametrize(
    "environ",
    [{"RLCATALOG_DISABLE_PLUGINS": "nets"}, {"RLCATALOG_LOAD_PLUGINS": "others"}],
    ids=["disable", "load"],
)
def test_entry_point_name_excludes_plugin(tmp_path, install, installed, environ):
    install(tmp_path, "some-dist", RAISES_WHEN_IMPORTED, entry_point="nets")

    catalog = Catalog(installed(tmp_path), environ=environ)

    assert [record.status for record in catalog.plugins] == ["disabled"]


def test_entry_point_name_in_load_list_loads_plugin(tmp_path, install, installed):
    install(tmp_path, "some-dist", RAISES_WHEN_IMPORTED, entry_point="nets")

    _, [message] = load_with_warnings(
        installed(tmp_path), expected_warnings=1, RLCATALOG_LOAD_PLUGINS="Nets"
    )

    assert "AssertionError: imported" in message


def test_incompatible_plugin_is_not_imported(write_plugins, installed):
    points = installed(write_plugins(["too-new"]))

    _, [message] = load_with_warnings(points, expected_warnings=1)

    assert "imported" not in message
    assert "broken_too_new" not in sys.modules


# --- broken at the lookup -------------------------------------------------------------------------

#: The body of a broken match function, and the cause that the error names.
BROKEN_MATCH_BODIES = [
    pytest.param(
        "return 1 / 0",
        "its match function raised ZeroDivisionError: division by zero",
        id="raises",
    ),
    pytest.param(
        "raise SystemExit('bye')", "its match function raised SystemExit: bye", id="exits"
    ),
    pytest.param(
        "return True",
        "its match function returned True instead of a Match",
        id="returns-true",
    ),
    pytest.param(
        "return Match('best', 'x')",
        "its match function returned Match(rank='best', why='x')",
        id="returns-unknown-rank",
    ),
]


@pytest.mark.parametrize(("body", "cause"), BROKEN_MATCH_BODIES)
def test_broken_match_function_error_names_plugin(write_plugins, install, installed, body, cause):
    source = (
        "from rlcatalog import Match, PreprocessorSpec, hookimpl\n\ndef match(request):\n"
        "    {}\n\n@hookimpl\n"
        'def rlcatalog_preprocessors():\n    return [PreprocessorSpec("bad", {{"numpy": "m:C"}},'
        ' "", match=match)]\n'
    )
    folder = write_plugins([])
    install(folder, "broken-match", source.format(body))
    catalog = Catalog(installed(folder), environ={})
    info = SpaceInfo.read(gym.spaces.Box(-1, 1, (3, 2), np.float32))

    with pytest.raises(PartError) as caught:
        catalog.slots.preprocessor(Request(info), None)

    assert str(caught.value).startswith(f"preprocessor 'bad' (broken-match 1.0): {cause}")


class ThreeNumbers(Preprocessor):
    """Stands for a preprocessor with three outputs."""

    def _init_shape(self, obs_space, options):
        return (3,)


def match_everything(request):
    return Match(Rank.GENERIC, "fits")


@pytest.fixture
def explain_with(entry_point, plugin, module):
    """Explain a lookup with a plugin whose parts have these functions."""
    module(Codec=ThreeNumbers)

    def explain(*, describe=None, size=lambda action, config: 2):
        codec = PreprocessorSpec(
            "codec", {"numpy": "made_up_parts:Codec"}, "", match=match_everything
        )
        net = ModelSpec("net", {"torch": "m:C"}, "", match=match_everything, describe=describe)
        dist = ActionDistSpec("dist", {"torch": "m:C"}, "", match=match_everything, size=size)
        module = plugin(
            rlcatalog_preprocessors=[codec],
            rlcatalog_models=[net],
            rlcatalog_action_dists=[dist],
        )
        catalog = Catalog([entry_point("some-dist", module)], environ={})
        catalog.explain(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2))

    return explain


@pytest.mark.parametrize(
    ("describe", "cause"),
    [
        pytest.param(lambda request: 1 / 0, "ZeroDivisionError: division by zero", id="raises"),
        pytest.param(lambda request: sys.exit(4), "SystemExit: 4", id="exits"),
        pytest.param(lambda request: [("hidden", 3)], "('hidden', 3)", id="returns-no-stage"),
    ],
)
def test_broken_describe_function_error_names_model(explain_with, describe, cause):
    with pytest.raises(PluginError) as caught:
        explain_with(describe=describe)

    assert "model 'net' (some-dist 1.0)" in str(caught.value)
    assert cause in str(caught.value)


@pytest.mark.parametrize(
    ("size", "cause"),
    [
        pytest.param(
            lambda action, config: 1 / 0, "ZeroDivisionError: division by zero", id="raises"
        ),
        pytest.param(lambda action, config: None, "None", id="returns-none"),
    ],
)
def test_broken_size_function_error_names_distribution(explain_with, size, cause):
    with pytest.raises(PluginError) as caught:
        explain_with(size=size)

    assert "action_dist 'dist' (some-dist 1.0)" in str(caught.value)
    assert cause in str(caught.value)


@pytest.mark.parametrize(("body", "cause"), BROKEN_MATCH_BODIES)
def test_broken_wrapper_match_fails_only_if_plugin_is_preferred(entry_point, plugin, body, cause):
    namespace = {"Match": Match}
    exec(f"def match(request):\n    {body}", namespace)
    spec = EnvWrapperSpec(
        "wrapper", {"numpy": "a_module_nobody_has:wrap"}, "", match=namespace["match"]
    )
    point = entry_point("some-dist", plugin(rlcatalog_env_wrappers=[spec]))
    env = gym.make("CartPole-v1")

    # The wrapper of a plugin that is not preferred is not asked.
    assert Catalog([point], environ={}).wrap_env(env) is env
    preferring = Catalog([point], environ={}, prefer=["some-dist"])
    with pytest.raises(PartError) as caught:
        preferring.wrap_env(env)
    assert str(caught.value).startswith(f"env_wrapper 'wrapper' (some-dist 1.0): {cause}")


# --- real processes -------------------------------------------------------------------------------

#: The broken plugins that the command line is also tried with, each in a new process.
TRIED_ON_COMMAND_LINE = [
    "syntax-error", "import-error", "system-exit", "argument", "misspelt", "unmarked",
    "returns-text", "returns-none", "too-new", "config-syntax",
]  # fmt: skip


def run_command(*arguments, folders, **environ):
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


def read_imports(process):
    """Return the top-level packages that a process run with `-X importtime` imported."""
    lines = [line for line in process.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


@pytest.fixture
def two_layouts(tmp_path, write_plugins, install):
    """Write the same plugins twice, split over two folders that are installed and searched in
    opposite orders.
    """
    write_plugins(TRIED_ON_COMMAND_LINE, tmp_path / "all")
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


def check_listing(process):
    """`rlcatalog list --json` reports each broken plugin, and lists parts of working ones only."""
    assert process.returncode == 0, process.stderr
    listing = json.loads(process.stdout)
    plugins = {plugin["distribution"]: plugin for plugin in listing["plugins"]}
    assert plugins["alpha"]["status"] == "loaded"
    assert plugins["omega"]["status"] == "loaded"
    for name in TRIED_ON_COMMAND_LINE:
        plugin = plugins[f"broken-{name}"]
        assert set(plugin) == {"name", "distribution", "version", "status", "error"}
        assert plugin["name"] == f"broken_{name.replace('-', '_')}"
        assert plugin["version"] == "1.0"
        assert plugin["status"] == BROKEN[name].status
        for phrase in BROKEN[name].phrases:
            assert phrase in plugin["error"]
    parts = {part["name"]: part for part in listing["components"]}
    assert {"alpha", "omega", "alpha_codec", "omega_codec"} <= set(parts)
    assert not any(part["distribution"].startswith("broken-") for part in listing["components"])
    assert parts["alpha"] == {
        "kind": "model",
        "name": "alpha",
        "distribution": "alpha",
        "version": "1.0",
        "frameworks": ["torch"],
        "summary": "a model",
    }


def check_explanation(process):
    """`rlcatalog explain --json` names the chosen parts."""
    assert process.returncode == 0, process.stderr
    choices = json.loads(process.stdout)
    for slot in ("preprocessor", "model", "action_dist"):
        assert choices[slot]["chosen"]
        assert choices[slot]["distribution"]


def check_imports(process):
    """A command reports a plugin that exits, and imports no framework."""
    imports = read_imports(process)
    assert "rlcatalog" in imports
    assert not imports & {"torch", "tensorflow", "keras"}
    assert "broken-system-exit" in process.stderr


@pytest.mark.parametrize("seeds", [2, pytest.param(5, marks=pytest.mark.attack)])
def test_command_line_works_beside_broken_plugins(two_layouts, seeds):
    orders = [
        [dist.name for dist in importlib_metadata.distributions(path=list(map(str, folders)))]
        for folders in two_layouts
    ]
    assert orders[0] != orders[1]  # otherwise equal listings would prove nothing

    with ThreadPoolExecutor(2) as pool:
        list_runs = [
            pool.submit(
                run_command,
                "list",
                "--json",
                folders=two_layouts[seed % 2],
                PYTHONHASHSEED=str(seed),
            )
            for seed in range(seeds)
        ]
        explain_run = pool.submit(
            run_command, "explain", "CartPole-v1", "--json", folders=two_layouts[0]
        )
        strict_run = pool.submit(
            run_command, "list", folders=two_layouts[0], RLCATALOG_STRICT_PLUGINS="1"
        )
    listing, *other_listings = [run.result() for run in list_runs]
    explanation = explain_run.result()
    strict = strict_run.result()

    check_listing(listing)
    for other in other_listings:  # neither the order of plugins nor of hashes matters
        assert other.stdout == listing.stdout
    check_explanation(explanation)
    assert "gymnasium" in read_imports(explanation)  # `read_imports` sees imports at all
    check_imports(listing)
    check_imports(explanation)
    assert strict.returncode != 0
    phrases = [phrase for name in TRIED_ON_COMMAND_LINE for phrase in BROKEN[name].phrases]
    assert any(phrase in strict.stderr for phrase in phrases)
