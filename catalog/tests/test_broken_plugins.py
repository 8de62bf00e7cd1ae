"""Broken plugins: each one is reported with its cause, and the other plugins still work."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field

import gymnasium as gym
import numpy as np
import pytest
from faulty_functions import function_that_raises, function_that_returns
from plugin_processes import run_beside_plugins

from rlcatalog import (
    ActionDistSpec,
    Catalog,
    EnvWrapperSpec,
    Match,
    ModelSpec,
    PreprocessorSpec,
    Rank,
)
from rlcatalog.errors import (
    CatalogError,
    MissingPluginError,
    PartError,
    PluginError,
    PluginWarning,
)
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

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
        ("it needs rlcatalog>=99", "Install a version of broken-too-new for it"),
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


#: Two working plugins, each with the size of the matrices that its preprocessor is for.
WORKING = {"alpha": 3, "omega": 4}


@pytest.fixture(scope="module")
def write_plugins(install_plugin):
    """Write working and broken plugins with these names into a folder."""

    def write(folder, names):
        for name in names:
            if name in WORKING:
                source = WORKING_PLUGIN.format(name=name, module=name, number=WORKING[name])
                config = CONFIG_MODULE.format(key=f"{name}_size")
                install_plugin(folder, name, source, extra={f"{name}_config": config})
                continue
            case = BROKEN[name]
            extra = {}
            if case.config is not None:
                extra[f"broken_{name.replace('-', '_')}_config"] = case.config
            install_plugin(
                folder, f"broken-{name}", case.source, requires=case.requires, extra=extra
            )

    return write


@pytest.fixture
def install_broken_plugins(tmp_path, write_plugins, read_entry_points):
    """Install the working plugins and some broken ones, and return all their entry points."""

    def install(*names):
        write_plugins(tmp_path, [*WORKING, *names])
        return read_entry_points(tmp_path)

    return install


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
    names = [part.name for part in catalog.parts()]
    assert names == ["alpha", "omega", "alpha_codec", "omega_codec"]
    assert catalog.parse_config({"alpha_size": 7})["omega_size"] == 3
    for number in (3, 4):
        observation = np.ones((number, 2), np.float32)
        space = gym.spaces.Box(-1, 1, observation.shape, np.float32)
        encoded = catalog.preprocessor_for(space).transform(observation)
        assert list(encoded) == [2 * number, number]  # the sum of the ones, and the plugin's number


@pytest.mark.parametrize("name", BROKEN)
def test_broken_plugin_leaves_the_others_working(install_broken_plugins, name):
    entry_points = install_broken_plugins(name)

    catalog, messages = load_with_warnings(entry_points, expected_warnings=1)

    records = {record.distribution: record for record in catalog.plugins}
    assert list(records) == ["alpha", f"broken-{name}", "omega"]
    assert records["alpha"].status == "loaded"
    assert records["omega"].status == "loaded"
    check_broken_plugin(name, record=records[f"broken-{name}"], messages=messages)
    check_working_plugins(catalog)


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("import-error", "broken-import-error 1.0 has failed: ModuleNotFoundError: "),
        ("exit-in-hook", "broken-exit-in-hook 1.0 has failed: SystemExit: 3"),
        ("too-new", "broken-too-new 1.0 is incompatible: it needs rlcatalog>=99"),
    ],
)
def test_strict_mode_raises_the_first_failure(install_broken_plugins, name, failure):
    entry_points = install_broken_plugins(name)

    with pytest.raises(CatalogError) as caught:
        Catalog(entry_points, environ={"RLCATALOG_STRICT_PLUGINS": "1"})

    assert failure in str(caught.value)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("value", ["", "0"], ids=["empty", "zero"])
def test_strict_mode_can_be_switched_off(install_broken_plugins, value):
    entry_points = install_broken_plugins("argument")
    load_with_warnings(entry_points, expected_warnings=1, RLCATALOG_STRICT_PLUGINS=value)


def test_strict_mode_accepts_disabled_broken_plugin(install_broken_plugins):
    entry_points = install_broken_plugins("import-error")
    environ = {"RLCATALOG_STRICT_PLUGINS": "1", "RLCATALOG_DISABLE_PLUGINS": "broken-import-error"}

    catalog = Catalog(entry_points, environ=environ)

    check_working_plugins(catalog)


def test_plugin_whose_second_hook_fails_adds_no_parts(tmp_path, install_plugin, read_entry_points):
    source = """
from rlcatalog import ActionDistSpec, hookimpl

@hookimpl
def rlcatalog_action_dists():
    return [ActionDistSpec("half_dist", {"torch": "m:C"}, "", size=len)]

@hookimpl
def rlcatalog_models():
    raise RuntimeError("halfway")
"""
    install_plugin(tmp_path, "half", source)

    with pytest.warns(PluginWarning, match="RuntimeError: halfway"):
        catalog = Catalog(read_entry_points(tmp_path), environ={})

    assert catalog.parts() == []


# --- left out before import -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RLCATALOG_DISABLE_PLUGINS", "broken-import-error,broken_system_exit"),
        ("RLCATALOG_DISABLE_PLUGINS", " Broken.Import.Error , BROKEN-SYSTEM-EXIT "),
        ("RLCATALOG_LOAD_PLUGINS", "alpha, omega"),
    ],
    ids=["disabled", "disabled-by-another-spelling", "not-in-the-list-to-load"],
)
def test_excluded_broken_plugins_are_never_imported(install_broken_plugins, variable, value):
    entry_points = install_broken_plugins("import-error", "system-exit")

    catalog = Catalog(entry_points, environ={variable: value})

    check_working_plugins(catalog)
    records = {record.distribution: record for record in catalog.plugins}
    for name in ("broken-import-error", "broken-system-exit"):
        assert records[name].status == "disabled"
        assert f"{variable}={value!r}" in records[name].error


def test_incompatible_plugin_is_not_imported(install_broken_plugins):
    load_with_warnings(install_broken_plugins("too-new"), expected_warnings=1)

    assert "broken_too_new" not in sys.modules


def test_message_names_an_incompatible_package_once(install_broken_plugins):
    entry_points = install_broken_plugins("too-new")

    catalog, [warning] = load_with_warnings(entry_points, expected_warnings=1)

    heading = "of broken-too-new 1.0 is incompatible: it needs rlcatalog>=99"
    assert heading in warning
    with pytest.raises(MissingPluginError, match="is incompatible: it needs"):
        catalog.registry.explain_missing("a net", "broken-too-new")


# --- broken at the lookup -------------------------------------------------------------------------

each_broken_match_function = pytest.mark.parametrize(
    ("match", "cause"),
    [
        pytest.param(
            function_that_raises(ZeroDivisionError("no")),
            "its match function raised ZeroDivisionError: no",
            id="raises",
        ),
        pytest.param(
            function_that_raises(SystemExit("bye")),
            "its match function raised SystemExit: bye",
            id="exits",
        ),
        pytest.param(
            function_that_returns(True),
            "its match function returned True instead of a Match",
            id="returns-true",
        ),
        pytest.param(
            function_that_returns(Match("best", "x")),
            "its match function returned Match(rank='best', why='x')",
            id="returns-unknown-rank",
        ),
    ],
)


@each_broken_match_function
def test_broken_match_function_error_names_plugin(match, cause):
    codec = PreprocessorSpec("bad", {"numpy": "m:C"}, "", match=match)
    catalog = isolated_catalog(PluginEntryPoint(plugin_of(rlcatalog_preprocessors=[codec]), "acme"))

    with pytest.raises(PartError) as caught:
        catalog.preprocessor_for(gym.spaces.Box(-1, 1, (3, 2)))

    assert str(caught.value).startswith(f"preprocessor 'bad' (acme 1.0): {cause}")


@each_broken_match_function
def test_broken_wrapper_match_fails_only_if_plugin_is_preferred(match, cause):
    wrapper = EnvWrapperSpec("wrapper", {"numpy": "m:wrap"}, "", match=match)
    acme = PluginEntryPoint(plugin_of(rlcatalog_env_wrappers=[wrapper]), "acme")
    env = gym.make("CartPole-v1")

    # A plugin that is not preferred is not asked.
    assert isolated_catalog(acme).wrap_env(env) is env

    with pytest.raises(PartError) as caught:
        isolated_catalog(acme, prefer=["acme"]).wrap_env(env)
    assert str(caught.value).startswith(f"env_wrapper 'wrapper' (acme 1.0): {cause}")


def fits(request):
    return Match(Rank.GENERIC, "fits")


def explain(*, describe=None, size=lambda action, config: 2):
    """Explain a lookup in which acme's model and distribution have these functions."""
    net = ModelSpec("net", {"torch": "m:C"}, "", match=fits, describe=describe)
    dist = ActionDistSpec("dist", {"torch": "m:C"}, "", match=fits, size=size)
    plugin = plugin_of(rlcatalog_models=[net], rlcatalog_action_dists=[dist])
    catalog = isolated_catalog("rlcatalog-preprocessors", PluginEntryPoint(plugin, "acme"))
    catalog.explain(gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2))


@pytest.mark.parametrize(
    ("describe", "cause"),
    [
        pytest.param(
            function_that_raises(ZeroDivisionError("no")), "ZeroDivisionError: no", id="raises"
        ),
        pytest.param(function_that_raises(SystemExit(4)), "SystemExit: 4", id="exits"),
        pytest.param(
            function_that_returns([("hidden", 3)]), "('hidden', 3)", id="returns-no-stage"
        ),
    ],
)
def test_broken_describe_function_error_names_model(describe, cause):
    with pytest.raises(PluginError) as caught:
        explain(describe=describe)

    assert "model 'net' (acme 1.0)" in str(caught.value)
    assert cause in str(caught.value)


@pytest.mark.parametrize(
    ("size", "cause"),
    [
        pytest.param(
            function_that_raises(ZeroDivisionError("no")), "ZeroDivisionError: no", id="raises"
        ),
        pytest.param(function_that_returns(None), "None", id="returns-none"),
    ],
)
def test_broken_size_function_error_names_distribution(size, cause):
    with pytest.raises(PluginError) as caught:
        explain(size=size)

    assert "action_dist 'dist' (acme 1.0)" in str(caught.value)
    assert cause in str(caught.value)


# --- real processes -------------------------------------------------------------------------------

#: The broken plugins that the command line is also tried with, each in a new process.
TRIED_ON_COMMAND_LINE = [
    "syntax-error", "import-error", "system-exit", "argument", "misspelt", "unmarked",
    "returns-text", "returns-none", "too-new", "config-syntax",
]  # fmt: skip


def run_command(*arguments, folders, **environ):
    """Run `rlcatalog` beside the plugins of some folders; stderr lists what it imports."""
    flags = ["-X", "importtime"]
    return run_beside_plugins(folders, *arguments, python_flags=flags, **environ)


def read_imports(process):
    """Return the top-level packages that a process run with `-X importtime` imported."""
    lines = [line for line in process.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


@pytest.fixture(scope="module")
def two_folders(tmp_path_factory, write_plugins):
    """Folders with the broken plugins of the command line; each has a working one too."""
    first = tmp_path_factory.mktemp("first")
    second = tmp_path_factory.mktemp("second")
    half = len(TRIED_ON_COMMAND_LINE) // 2
    write_plugins(first, ["alpha", *TRIED_ON_COMMAND_LINE[:half]])
    write_plugins(second, ["omega", *TRIED_ON_COMMAND_LINE[half:]])
    return [first, second]


@pytest.fixture(scope="module")
def list_command(two_folders):
    """The process of `rlcatalog list --json` beside the broken plugins, after its end."""
    command = run_command("list", "--json", folders=two_folders, PYTHONHASHSEED="0")
    assert command.returncode == 0, command.stderr
    return command


def check_no_framework_is_imported(process):
    """A command reports a plugin that exits, and imports no framework."""
    imports = read_imports(process)
    assert "rlcatalog" in imports
    assert not imports & {"torch", "tensorflow", "keras"}
    assert "broken-system-exit" in process.stderr


def test_list_reports_broken_plugins(list_command):
    check_no_framework_is_imported(list_command)
    listing = json.loads(list_command.stdout)
    plugins = {plugin["distribution"]: plugin for plugin in listing["plugins"]}
    assert plugins["alpha"]["status"] == "loaded"
    assert plugins["omega"]["status"] == "loaded"
    for name in TRIED_ON_COMMAND_LINE:
        plugin = plugins[f"broken-{name}"]
        assert plugin["name"] == f"broken_{name.replace('-', '_')}"
        assert plugin["version"] == "1.0"
        assert plugin["status"] == BROKEN[name].status
        for phrase in BROKEN[name].phrases:
            assert phrase in plugin["error"]


def test_list_has_parts_of_working_plugins_only(list_command):
    listing = json.loads(list_command.stdout)["parts"]
    # The broken packages have names such as "broken-syntax-error".
    assert not any(part["distribution"].startswith("broken-") for part in listing)
    parts = {part["name"]: part for part in listing}
    assert {"alpha", "omega", "alpha_codec", "omega_codec"} <= set(parts)
    assert parts["alpha"] == {
        "kind": "model",
        "name": "alpha",
        "distribution": "alpha",
        "version": "1.0",
        "frameworks": ["torch"],
        "summary": "a model",
    }


def test_list_does_not_depend_on_orders_of_folders_and_hashes(two_folders, list_command):
    first, second = two_folders

    other = run_command("list", "--json", folders=[second, first], PYTHONHASHSEED="1")

    # That command had the first folder first, and hashes of seed 0.
    assert other.stdout == list_command.stdout


def test_explain_works_beside_broken_plugins(two_folders):
    run = run_command("explain", "CartPole-v1", "--json", folders=two_folders)

    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["model"]["chosen"] == "fcnet"
    check_no_framework_is_imported(run)
    # So `read_imports` does see what a process imports.
    assert "gymnasium" in read_imports(run)


def test_strict_list_fails_beside_broken_plugins(two_folders):
    run = run_command("list", folders=two_folders, RLCATALOG_STRICT_PLUGINS="1")

    assert run.returncode != 0
    phrases = [phrase for name in TRIED_ON_COMMAND_LINE for phrase in BROKEN[name].phrases]
    assert any(phrase in run.stderr for phrase in phrases)
