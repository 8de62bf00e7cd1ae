"""The hooks: pinned, compared with the page that documents them, and each one at work."""

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

#: Every hook and what its list holds. None takes an argument.
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

BOX, DISCRETE = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2)


# --- the list of hooks ----------------------------------------------------------------------------


def specified():
    """Return the functions that pluggy takes for hooks of ours."""
    return {
        name: f
        for name, f in vars(hookspecs).items()
        if getattr(f, "rlcatalog_spec", None) is not None
    }


def test_hooks_are_complete():
    assert set(specified()) == set(HOOKS)
    assert {name: spec.__name__ for name, spec in HOOK_RETURNS.items()} == HOOKS


@pytest.mark.parametrize("name", HOOKS)
def test_hook_takes_nothing_and_returns_a_list(name):
    signature = inspect.signature(specified()[name])
    assert list(signature.parameters) == []
    assert signature.return_annotation == f"list[{HOOKS[name]}]"
    assert specified()[name].__doc__


def test_hooks_page_has_every_signature():
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(
        r"^\s*def (rlcatalog_\w+)\((.*?)\) -> (.+?):?(?: \.\.\.)?$", text, re.MULTILINE
    )
    assert {name: (arguments, returns) for name, arguments, returns in found} == {
        name: ("", f"list[{spec}]") for name, spec in HOOKS.items()
    }
    for name in HOOKS:
        assert re.search(rf"^#+ .*{name}", text, re.MULTILINE), f"{name} has no heading"


# --- each hook at work ----------------------------------------------------------------------------


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


class Clipped(gym.Wrapper):
    """A wrapper that can be recognised."""


def clipped(env, config):
    """Wrap an environment; the config arrives too."""
    wrapper = Clipped(env)
    wrapper.seen_max_seq_len = config["max_seq_len"]
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
    for thing in (Sum, Halve, clipped, Net, Dist, Steam, greet):
        setattr(module, thing.__name__, thing)
    module.polite = polite
    monkeypatch.setitem(sys.modules, "hook_targets", module)


def always(request):
    return Match(Rank.GENERIC, "fits everything")


def only_boxes(request):
    return always(request) if request.obs.kind == "box" else Match(None, "takes boxes")


def only_cartpole(request):
    if request.env.spec is not None and request.env.spec.id == "CartPole-v1":
        return Match(Rank.SPECIFIC, "it is CartPole")
    return Match(None, "is for CartPole")


DECLARATIONS = {
    "rlcatalog_preprocessors": PreprocessorSpec(
        "sum", {"numpy": "hook_targets:Sum"}, "the sum of a Box", match=only_boxes
    ),
    "rlcatalog_filters": FilterSpec(
        "halve", {"numpy": "hook_targets:Halve"}, "half of everything", match=always
    ),
    "rlcatalog_env_wrappers": EnvWrapperSpec(
        "clip", {"numpy": "hook_targets:clipped"}, "a wrapper", match=only_cartpole
    ),
    "rlcatalog_models": ModelSpec(
        "net",
        {"torch": "hook_targets:Net", "tf": "hook_targets:Net"},
        "a model",
        match=always,
        describe=lambda request: [Stage("hidden", (7,)), Stage("logits", (request.num_outputs,))],
    ),
    "rlcatalog_action_dists": ActionDistSpec(
        "dist",
        {"torch": "hook_targets:Dist"},
        "a distribution",
        match=always,
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
def catalog_with(entry_point, plugin, targets):
    """Make a catalog of plugins that implement one hook each; a plugin is called like its part."""

    def make(*hooks, prefer=()):
        points = [
            entry_point(DECLARATIONS[hook].name, plugin(**{hook: [DECLARATIONS[hook]]}))
            for hook in hooks
        ]
        return Catalog(points, environ={"RLCATALOG_STRICT_PLUGINS": "1"}, prefer=prefer)

    return make


def test_hooks_below_are_complete():
    assert set(DECLARATIONS) == set(HOOKS)
    assert {hook: type(spec).__name__ for hook, spec in DECLARATIONS.items()} == HOOKS


@pytest.mark.parametrize("hook", HOOKS)
def test_plugin_may_implement_one_hook_only(catalog_with, hook):
    catalog = catalog_with(hook)
    declared = DECLARATIONS[hook]
    (component,) = catalog.components()
    assert component.declaration is declared
    assert (component.kind, component.name, component.version) == (
        declared.kind,
        declared.name,
        "1.0",
    )
    assert component.distribution == declared.name
    assert catalog.registry.get(declared.kind, declared.name) is component
    assert [r.status for r in catalog.plugins] == ["loaded"]


def test_hook_may_return_a_tuple_or_an_empty_list(entry_point, plugin):
    module = plugin(rlcatalog_models=(DECLARATIONS["rlcatalog_models"],), rlcatalog_filters=[])
    catalog = Catalog([entry_point("some", module)], environ={"RLCATALOG_STRICT_PLUGINS": "1"})
    assert [c.name for c in catalog.components()] == ["net"]


def test_declared_preprocessor_encodes(catalog_with):
    encoded = (
        catalog_with("rlcatalog_preprocessors")
        .preprocessor_for(BOX)
        .transform(np.array([1, 0, 1], np.float32))
    )
    assert encoded.tolist() == [2.0]


PARTS = ("rlcatalog_preprocessors", "rlcatalog_models", "rlcatalog_action_dists")


def test_declared_model_and_distribution_are_chosen(catalog_with):
    found = catalog_with(*PARTS).explain(BOX, DISCRETE).as_dict()
    assert (found["model"]["chosen"], found["model"]["reason"]) == ("net", "fits everything")
    assert found["model"]["distribution"] == "net"
    assert found["action_dist"]["chosen"] == "dist"
    shapes = [(stage["stage"], stage["shape"]) for stage in found["shapes"]]
    assert shapes[1:5] == [
        ("preprocessor: sum", [1]),
        ("net: hidden", [7]),
        ("net: logits", [2]),
        ("dist: inputs", [2]),
    ]


def test_declared_classes_are_loaded(catalog_with, monkeypatch):
    # Whether installed or not.
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *args: object())
    catalog = catalog_with(*PARTS)
    assert catalog.registry.get("model", "net").load("tf") is Net
    assert catalog.action_dist(DISCRETE, framework="torch") == (Dist, 2)


def test_declared_filter_is_chosen_by_name(catalog_with):
    catalog = catalog_with(*PARTS, "rlcatalog_filters")
    assert catalog.explain(BOX, DISCRETE).as_dict()["filter"]["chosen"] is None
    resolution = catalog.resolve(BOX, DISCRETE, {"observation_filter": "halve"})
    choice = resolution.choices["filter"]
    assert choice.component is not None
    assert (choice.component.name, choice.why) == ("halve", "named in the config")
    made = choice.component.load("numpy")(resolution.preprocessor, resolution.config)
    assert made(np.array([4.0])).tolist() == [2.0]


def test_declared_wrapper_wraps_environments_it_matches(catalog_with):
    catalog = catalog_with("rlcatalog_env_wrappers", prefer=["clip"])
    env = gym.make("CartPole-v1")
    wrapped = catalog.wrap_env(env, {"max_seq_len": 5})
    assert isinstance(wrapped, Clipped)
    assert wrapped.env is env
    assert wrapped.seen_max_seq_len == 5
    other = gym.make("MountainCar-v0")
    assert catalog.wrap_env(other) is other
    # Which it waits in, unasked.
    for others in (Catalog([], environ={}), catalog_with("rlcatalog_env_wrappers")):
        assert others.wrap_env(env) is env


def test_declared_command_is_listed_and_loaded(catalog_with):
    catalog = catalog_with("rlcatalog_commands")
    assert catalog.registry.names(["command"]) == ["greet"]
    assert catalog.registry.get("command", "greet").load("cli") is greet


def test_declared_engine_is_listed_and_loaded(catalog_with):
    catalog = catalog_with("rlcatalog_engines")
    assert catalog.registry.names(["engine"]) == ["steam"]
    assert catalog.registry.get("engine", "steam").load("engine") is Steam


def test_declared_command_runs(tmp_path, install):
    source = (
        "from rlcatalog import CommandSpec, hookimpl\n\n\ndef greet(name: str, loud: bool = False)"
        " -> None:\n"
        '    print(f"hello {name}".upper() if loud else f"hello {name}")\n\n\n@hookimpl\ndef'
        ' rlcatalog_commands():\n    return [CommandSpec("polite-plugin-greet", {"cli":'
        ' "polite_plugin:greet"}, "says hello to someone")]\n'
    )
    install(tmp_path, "polite-plugin", source)
    clean = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("RLCATALOG_", "PYTHON"))
    }

    def run(*commands):
        """Run commands one after another in one process; return what each printed."""
        code = (
            "import json, sys\nfrom rlcatalog_cli import main\nfor arguments in"
            " json.loads(sys.argv[1]):\n"
        )
        code += "    try: main(arguments)\n    except SystemExit as end: print(end.code, end='\\0')"
        done = subprocess.run(
            [sys.executable, "-c", code, json.dumps(commands)],
            env=clean | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout.split("\0")[:-1]

    greeted, overview, listing = run(
        ["polite-plugin-greet", "Ada", "--loud"],
        ["--help"],
        ["list", "--kind", "command", "--json"],
    )
    assert greeted == "HELLO ADA\n0"
    assert "polite-plugin-greet" in overview
    assert "says hello to someone" in overview
    names = {
        part["name"]: part["frameworks"]
        for part in json.loads(listing.removesuffix("0"))["components"]
    }
    assert names["polite-plugin-greet"] == ["cli"]
