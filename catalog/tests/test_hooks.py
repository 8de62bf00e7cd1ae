"""The hooks of plugins: their list, the page that documents them, and what each one does."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import gymnasium as gym
import numpy as np
import pytest

from rlcatalog import (
    ActionCodecSpec,
    ActionDistribution,
    ActionDistSpec,
    Catalog,
    CheckSpec,
    CommandSpec,
    EngineSpec,
    EnvWrapperSpec,
    ExporterSpec,
    Filter,
    FilterSpec,
    FrameworkSpec,
    Match,
    ModelSpec,
    Preprocessor,
    PreprocessorSpec,
    Rank,
    Stage,
)
from rlcatalog.plugins import hookspecs
from rlcatalog.plugins.loader import HOOK_RETURNS
from rlcatalog_testing import check

#: Every hook, and the class of the declarations that it returns.
HOOKS = {
    "rlcatalog_preprocessors": "PreprocessorSpec",
    "rlcatalog_filters": "FilterSpec",
    "rlcatalog_env_wrappers": "EnvWrapperSpec",
    "rlcatalog_models": "ModelSpec",
    "rlcatalog_action_dists": "ActionDistSpec",
    "rlcatalog_action_codecs": "ActionCodecSpec",
    "rlcatalog_frameworks": "FrameworkSpec",
    "rlcatalog_exporters": "ExporterSpec",
    "rlcatalog_commands": "CommandSpec",
    "rlcatalog_engines": "EngineSpec",
    "rlcatalog_checks": "CheckSpec",
}

PAGE = Path(__file__).parents[2] / "docs/hooks.md"

BOX = gym.spaces.Box(-1, 1, (3,), np.float32)
DISCRETE = gym.spaces.Discrete(2)


# --- the list of hooks ----------------------------------------------------------------------------


def find_hookspecs():
    """Return the functions that pluggy takes for hooks of rlcatalog."""
    return {
        name: function
        for name, function in vars(hookspecs).items()
        if getattr(function, "rlcatalog_spec", None) is not None
    }


def test_hooks_are_complete():
    assert set(find_hookspecs()) == set(HOOKS)


def test_loader_checks_what_each_hook_returns():
    assert {name: spec.__name__ for name, spec in HOOK_RETURNS.items()} == HOOKS


@pytest.mark.parametrize(("name", "declaration"), HOOKS.items())
def test_hook_takes_nothing_and_returns_a_list(name, declaration):
    hook = find_hookspecs()[name]

    signature = inspect.signature(hook)

    assert list(signature.parameters) == []
    assert signature.return_annotation == f"list[{declaration}]"
    assert hook.__doc__


def test_hooks_page_has_every_signature():
    text = PAGE.read_text(encoding="utf-8")
    definition = r"^\s*def (rlcatalog_\w+)\((.*?)\) -> (.+?):?(?: \.\.\.)?$"

    signatures = {
        name: (arguments, returns)
        for name, arguments, returns in re.findall(definition, text, re.MULTILINE)
    }

    no_arguments = ""
    assert signatures == {name: (no_arguments, f"list[{spec}]") for name, spec in HOOKS.items()}


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_page_has_a_heading_for_every_hook(name):
    text = PAGE.read_text(encoding="utf-8")

    assert re.search(rf"^#+ .*{name}", text, re.MULTILINE)


# --- what each hook does --------------------------------------------------------------------------


class Sum(Preprocessor):
    """Encodes a Box as its sum."""

    def _init_shape(self, obs_space, options):
        return (1,)

    def transform(self, observation):
        return np.array([observation.sum()], np.float32)


class Halve(Filter):
    """Halves everything."""

    def __call__(self, encoded, *, update=False):
        return encoded / 2


class ClippingWrapper(gym.Wrapper):
    """A wrapper that can be recognised."""


def clip(env, config):
    """Wrap an environment, and keep a key of the config."""
    wrapper = ClippingWrapper(env)
    wrapper.max_seq_len = config["max_seq_len"]
    return wrapper


class Net:
    """Stands for a model class."""


class Dist(ActionDistribution):
    """Stands for a distribution class."""


class Steam:
    """Stands for an engine."""


def greet():
    """Stand for a command."""


@check("command", hint="say hello")
def polite(part):
    """Stand for a check."""


@pytest.fixture
def targets(monkeypatch):
    """Make the classes above importable as `hook_targets`."""
    module = ModuleType("hook_targets")
    for target in (Sum, Halve, clip, Net, Dist, Steam, greet):
        setattr(module, target.__name__, target)
    module.polite = polite
    monkeypatch.setitem(sys.modules, "hook_targets", module)


def match_all(request):
    return Match(Rank.GENERIC, "fits everything")


def match_boxes(request):
    if request.obs.kind == "box":
        return Match(Rank.GENERIC, "a box")
    return Match(None, "takes boxes")


def match_cartpole(request):
    if request.env.spec is not None and request.env.spec.id == "CartPole-v1":
        return Match(Rank.SPECIFIC, "it is CartPole")
    return Match(None, "is for CartPole")


#: Hook → the declaration that a plugin with only this hook returns.
DECLARATIONS = {
    "rlcatalog_preprocessors": PreprocessorSpec(
        "sum", {"numpy": "hook_targets:Sum"}, "the sum of a Box", match=match_boxes
    ),
    "rlcatalog_filters": FilterSpec(
        "halve", {"numpy": "hook_targets:Halve"}, "half of everything", match=match_all
    ),
    "rlcatalog_env_wrappers": EnvWrapperSpec(
        "clip", {"numpy": "hook_targets:clip"}, "a wrapper", match=match_cartpole
    ),
    "rlcatalog_models": ModelSpec(
        "net",
        {"torch": "hook_targets:Net", "tf": "hook_targets:Net"},
        "a model",
        match=match_all,
        describe=lambda request: [Stage("hidden", (7,)), Stage("logits", (request.num_outputs,))],
    ),
    "rlcatalog_action_dists": ActionDistSpec(
        "dist",
        {"torch": "hook_targets:Dist"},
        "a distribution",
        match=match_all,
        size=lambda action, config: action.n,
    ),
    "rlcatalog_action_codecs": ActionCodecSpec(
        "codec", {"numpy": "hook_targets:Codec"}, "a codec", kinds=("hook_targets.Space",)
    ),
    "rlcatalog_frameworks": FrameworkSpec(
        "hooked",
        {"backend": "hook_targets:Backend", "ops": "hook_targets:OPS"},
        "a framework",
        module="numpy",
    ),
    "rlcatalog_exporters": ExporterSpec(
        "form", {"runner": "hook_targets:Runner"}, "a format", suffix=".form"
    ),
    "rlcatalog_commands": CommandSpec("greet", {"cli": "hook_targets:greet"}, "says hello"),
    "rlcatalog_engines": EngineSpec("steam", {"engine": "hook_targets:Steam"}, "an engine"),
    "rlcatalog_checks": CheckSpec("polite", {"checks": "hook_targets:polite"}, "says hello once"),
}


@pytest.fixture
def make_catalog(entry_point, plugin, targets):
    """Return a catalog of plugins with one hook each. A plugin has the name of its part."""

    def make(*hooks, prefer=()):
        points = []
        for hook in hooks:
            spec = DECLARATIONS[hook]
            points.append(entry_point(spec.name, plugin(**{hook: [spec]})))
        return Catalog(points, environ={"RLCATALOG_STRICT_PLUGINS": "1"}, prefer=prefer)

    return make


def test_declarations_of_these_tests_are_complete():
    assert {hook: type(spec).__name__ for hook, spec in DECLARATIONS.items()} == HOOKS


@pytest.mark.parametrize(("hook", "declaration"), DECLARATIONS.items(), ids=DECLARATIONS)
def test_plugin_may_implement_one_hook_only(make_catalog, hook, declaration):
    catalog = make_catalog(hook)

    [record] = catalog.plugins
    assert record.status == "loaded"
    [component] = catalog.components()
    assert component.declaration is declaration
    assert component.kind == declaration.kind
    assert component.name == declaration.name
    assert component.distribution == declaration.name
    assert component.version == "1.0"
    assert catalog.registry.get(declaration.kind, declaration.name) is component


@pytest.mark.parametrize("sequence", [list, tuple])
def test_hook_may_return_a_list_or_a_tuple(entry_point, plugin, sequence):
    spec = ModelSpec("net", {"torch": "hook_targets:Net"}, "a model")
    acme = plugin(rlcatalog_models=sequence([spec]))

    catalog = Catalog([entry_point("acme", acme)], environ={"RLCATALOG_STRICT_PLUGINS": "1"})

    assert [part.name for part in catalog.components()] == ["net"]


def test_hook_may_return_an_empty_list(entry_point, plugin):
    acme = plugin(rlcatalog_filters=[])

    catalog = Catalog([entry_point("acme", acme)], environ={"RLCATALOG_STRICT_PLUGINS": "1"})

    assert catalog.components() == []


def test_declared_preprocessor_encodes(make_catalog):
    catalog = make_catalog("rlcatalog_preprocessors")

    encoded = catalog.preprocessor_for(BOX).transform(np.array([1, 0, 1], np.float32))

    assert encoded.tolist() == [2.0]  # it returns the sum


@pytest.fixture
def small_catalog(make_catalog):
    """A catalog of three parts: the preprocessor sum, the model net, and the distribution dist."""
    return make_catalog("rlcatalog_preprocessors", "rlcatalog_models", "rlcatalog_action_dists")


def test_declared_model_and_distribution_are_chosen(small_catalog):
    explanation = small_catalog.explain(BOX, DISCRETE).as_dict()

    assert explanation["model"]["chosen"] == "net"
    assert explanation["model"]["reason"] == "fits everything"
    assert explanation["model"]["distribution"] == "net"  # the package has the part's name
    assert explanation["action_dist"]["chosen"] == "dist"


def test_explanation_has_the_stages_that_a_model_describes(small_catalog):
    explanation = small_catalog.explain(BOX, DISCRETE).as_dict()

    shapes = [(stage["stage"], stage["shape"]) for stage in explanation["shapes"]]
    assert shapes[1:5] == [
        ("preprocessor: sum", [1]),
        ("net: hidden", [7]),
        ("net: logits", [2]),
        ("dist: inputs", [2]),
    ]


@pytest.fixture
def all_packages_installed(monkeypatch):
    """Make rlcatalog find every package, so that classes of any framework are loaded."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *arguments: object())


@pytest.mark.usefixtures("all_packages_installed")
def test_declared_model_class_is_loaded(small_catalog):
    assert small_catalog.registry.get("model", "net").load("tf") is Net


@pytest.mark.usefixtures("all_packages_installed")
def test_declared_distribution_class_is_loaded(small_catalog):
    assert small_catalog.action_dist(DISCRETE, framework="torch") == (Dist, 2)


FOUR_PARTS = (
    "rlcatalog_preprocessors",
    "rlcatalog_models",
    "rlcatalog_action_dists",
    "rlcatalog_filters",
)


def test_declared_filter_is_not_a_default(make_catalog):
    explanation = make_catalog(*FOUR_PARTS).explain(BOX, DISCRETE).as_dict()

    assert explanation["filter"]["chosen"] is None


def test_declared_filter_is_chosen_by_name(make_catalog):
    catalog = make_catalog(*FOUR_PARTS)

    resolution = catalog.resolve(BOX, DISCRETE, {"observation_filter": "halve"})

    choice = resolution.choices["filter"]
    assert choice.component.name == "halve"
    assert choice.why == "named in the config"
    halve = choice.component.load("numpy")(resolution.preprocessor, resolution.config)
    assert halve(np.array([4.0])).tolist() == [2.0]


def test_declared_wrapper_wraps_environments_it_matches(make_catalog):
    catalog = make_catalog("rlcatalog_env_wrappers", prefer=["clip"])
    env = gym.make("CartPole-v1")

    wrapped = catalog.wrap_env(env, {"max_seq_len": 5})

    assert isinstance(wrapped, ClippingWrapper)
    assert wrapped.env is env
    assert wrapped.max_seq_len == 5


def test_declared_wrapper_leaves_other_environments_alone(make_catalog):
    catalog = make_catalog("rlcatalog_env_wrappers", prefer=["clip"])
    env = gym.make("MountainCar-v0")

    assert catalog.wrap_env(env) is env


def test_declared_wrapper_is_used_only_if_preferred(make_catalog):
    catalog = make_catalog("rlcatalog_env_wrappers")
    env = gym.make("CartPole-v1")

    assert catalog.wrap_env(env) is env


def test_catalog_without_wrappers_returns_the_environment():
    env = gym.make("CartPole-v1")

    assert Catalog([], environ={}).wrap_env(env) is env


def test_declared_command_is_listed_and_loaded(make_catalog):
    registry = make_catalog("rlcatalog_commands").registry

    assert registry.names(["command"]) == ["greet"]
    assert registry.get("command", "greet").load("cli") is greet


def test_declared_engine_is_listed_and_loaded(make_catalog):
    registry = make_catalog("rlcatalog_engines").registry

    assert registry.names(["engine"]) == ["steam"]
    assert registry.get("engine", "steam").load("engine") is Steam


# --- a command of a plugin ------------------------------------------------------------------------

PLUGIN_WITH_A_COMMAND = """
from rlcatalog import CommandSpec, hookimpl


def greet(name: str, loud: bool = False) -> None:
    text = f"hello {name}"
    print(text.upper() if loud else text)


@hookimpl
def rlcatalog_commands():
    targets = {"cli": "polite_plugin:greet"}
    return [CommandSpec("polite-plugin-greet", targets, "says hello to someone")]
"""


@pytest.fixture
def run_command(tmp_path, install):
    """Run `rlcatalog` beside a plugin with the command polite-plugin-greet."""
    install(tmp_path, "polite-plugin", PLUGIN_WITH_A_COMMAND)
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RLCATALOG_", "PYTHON"))
    }

    def run(*arguments):
        command = subprocess.run(
            [sys.executable, "-m", "rlcatalog_cli", *arguments],
            env=clean | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return command.stdout

    return run


def test_declared_command_runs(run_command):
    assert run_command("polite-plugin-greet", "Ada", "--loud") == "HELLO ADA\n"


def test_declared_command_is_in_the_help(run_command):
    overview = run_command("--help")

    assert "polite-plugin-greet" in overview
    assert "says hello to someone" in overview


def test_declared_command_is_in_the_list_of_parts(run_command):
    listing = json.loads(run_command("list", "--kind", "command", "--json"))

    frameworks = {part["name"]: part["frameworks"] for part in listing["components"]}
    assert frameworks["polite-plugin-greet"] == ["cli"]
