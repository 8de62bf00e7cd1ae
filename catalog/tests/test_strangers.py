"""Broken parts and config keys of plugins in lookups; requests that cannot be changed; plugins in
real processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import gymnasium as gym
import msgspec
import numpy as np
import pytest

import rlcatalog
from rlcatalog import ActionDistSpec, Catalog, Match, ModelSpec, PreprocessorSpec, Rank, provided
from rlcatalog.config import read_config
from rlcatalog.errors import AmbiguousChoiceError, ConfigError, PluginError, PluginWarning
from rlcatalog_testing import PluginEntryPoint, isolated_catalog

HEALTHY = ("rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical")
BOX, DISCRETE = gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(2)


def net(name, rank, **more):
    """Declare a model that fits everything."""
    return ModelSpec(name, {"torch": "m:C"}, "", match=lambda request: Match(rank, "fits"), **more)


def chosen(catalog, slot="trunk", config=None):
    return catalog.resolve(BOX, DISCRETE, config, "torch").choices[slot]


# --- a part that is broken ------------------------------------------------------------------------


def fail(*arguments):
    raise SystemExit("no licence")


def test_broken_part_is_an_error_only_if_it_is_chosen(plugin):
    spec = net("acme_net", Rank.SPECIFIC, describe=fail)
    point = PluginEntryPoint(plugin(rlcatalog_models=[spec]), "acme")
    text = r"model 'acme_net' \(acme 1\.0\): its describe function raised SystemExit: no licence"
    assert chosen(isolated_catalog(*HEALTHY, point)).component.name == "fcnet"
    with pytest.raises(PluginError, match=text):
        chosen(isolated_catalog(*HEALTHY, point), config={"custom_model": "acme_net"})
    with pytest.raises(PluginError, match=text):
        chosen(isolated_catalog(*HEALTHY, point, prefer=["acme"]))


def test_broken_part_is_an_error_if_nothing_else_fits(plugin):
    spec = ActionDistSpec(
        "mine", {"torch": "m:C"}, "", match=lambda request: Match(Rank.GENERIC, "fits"), size=fail
    )
    catalog = isolated_catalog(
        *HEALTHY[:2], PluginEntryPoint(plugin(rlcatalog_action_dists=[spec]), "acme")
    )
    with pytest.raises(
        PluginError, match=r"action_dist 'mine' \(acme 1\.0\): its size function raised SystemExit"
    ):
        chosen(catalog)


def test_model_that_cannot_be_built_is_an_error(plugin, module):
    pytest.importorskip("torch")
    from rlcatalog_torch import TorchModelV2

    class Net(TorchModelV2):
        def __init__(self, *arguments):
            raise RuntimeError("no driver")

    module(Net=Net)
    for target, says in (
        ("Net", "Net cannot be built: RuntimeError: no driver"),
        ("Missing", "cannot be imported"),
    ):
        spec = net("acme_net", Rank.SPECIFIC)
        spec = replace(spec, targets={"torch": f"made_up_parts:{target}"})
        catalog = isolated_catalog(
            *HEALTHY, PluginEntryPoint(plugin(rlcatalog_models=[spec]), "acme")
        )
        with pytest.raises(PluginError, match=says):
            rlcatalog.build(
                BOX, DISCRETE, {"custom_model": "acme_net"}, framework="torch", catalog=catalog
            )


# --- requests -------------------------------------------------------------------------------------


def test_request_cannot_be_changed_by_match_functions(plugin):
    from rlcatalog_fcnet.config import FcnetConfig

    seen = []

    def match(request):
        request.config["fcnet_hiddens"].append(7)
        request.config["custom_model_config"]["x"] = 1
        read_config(request.config, FcnetConfig).fcnet_hiddens.append(7)
        with pytest.raises(AttributeError):
            request.encoded_shape = (9,)
        seen.append(list(request.config["fcnet_hiddens"]))
        with pytest.raises(TypeError):
            request.config["fcnet_hiddens"] = [7]
        with pytest.raises(ValueError, match="read-only"):
            request.obs.low.fill(7)
        return Match(None, "was here")

    point = PluginEntryPoint(
        plugin(rlcatalog_models=[ModelSpec("acme", {"torch": "m:C"}, "", match=match)]), "acme"
    )
    catalog = isolated_catalog(*HEALTHY, point, prefer=["acme"])
    found = catalog.resolve(BOX, DISCRETE, {"fcnet_hiddens": [64, 64]}, "torch")
    assert seen == [[64, 64]]
    assert found.config["fcnet_hiddens"] == found.config.fresh()["fcnet_hiddens"] == [64, 64]
    assert read_config(found.config.fresh(), FcnetConfig).fcnet_hiddens == [64, 64]
    assert [stage.shape for stage in found.shapes if "hidden" in stage.name] == [(64,), (64,)]
    assert (BOX.low == -1).all()


# --- config keys ----------------------------------------------------------------------------------


class First(msgspec.Struct, frozen=True):
    size: int = 1


class Second(msgspec.Struct, frozen=True):
    size: str = "two"
    max_seq_len: int = 3
    second_depth: int = 4


@pytest.fixture
def two_sizes(plugin, module):
    module(First=First, Second=Second)
    specs = {
        name: ModelSpec(f"{name}_net", {"torch": "m:C"}, "", config=f"made_up_parts:{struct}")
        for name, struct in (("first", "First"), ("second", "Second"))
    }
    points = [
        PluginEntryPoint(plugin(rlcatalog_models=[spec]), name) for name, spec in specs.items()
    ]
    return isolated_catalog(*HEALTHY, *points)


def test_config_key_without_prefix_needs_its_distribution(two_sizes):
    with pytest.raises(
        ConfigError,
        match=r"'size' needs its distribution's name\. Use 'first/size' or 'second/size'",
    ):
        two_sizes.parse_config({"size": 3})
    values = two_sizes.parse_config({"first/size": 3, "second/size": "four", "second_depth": 9})
    assert (read_config(values, First).size, read_config(values, Second).size) == (3, "four")
    assert (values["first/size"], values["second/size"], values["second_depth"]) == (3, "four", 9)
    fresh = two_sizes.parse_config(None).fresh()
    fresh["second/size"] = "five"
    assert (read_config(fresh, First).size, read_config(fresh, Second).size) == (1, "five")
    assert chosen(two_sizes).component.name == "fcnet"
    assert two_sizes.config_keys(two_sizes.registry.get("model", "first_net")) == ["first/size"]


def test_kernel_key_stays_the_kernel_key(two_sizes):
    values = two_sizes.parse_config({"max_seq_len": 7, "second/max_seq_len": 8})
    assert (values["max_seq_len"], read_config(values, Second).max_seq_len) == (7, 8)


# --- mistakes in a plugin's module ----------------------------------------------------------------


def test_star_import_error_names_the_import(tmp_path, install, installed):
    install(tmp_path, "starry", "from rlcatalog import *\n")
    with pytest.warns(
        PluginWarning, match="`from rlcatalog import \\*` needs a catalog for MODEL_DEFAULTS"
    ):
        Catalog(installed(tmp_path), environ={})


# --- classes by name ------------------------------------------------------------------------------


def test_class_of_preprocessors_module_is_the_built_in_one(plugin, module, monkeypatch):
    import rlcatalog.preprocessors as door
    from rlcatalog_preprocessors.integers import OneHotPreprocessor

    module(OneHotPreprocessor=int, Mine=float)
    specs = {
        name: [
            PreprocessorSpec(f"{name}_{cls}", {"numpy": f"made_up_parts:{cls}"}, "")
            for cls in ("OneHotPreprocessor", "Mine")
        ]
        for name in ("aa", "bb")
    }
    points = [
        PluginEntryPoint(plugin(rlcatalog_preprocessors=found), name)
        for name, found in specs.items()
    ]
    for catalog, mine in (
        (isolated_catalog(*HEALTHY, points[0]), True),
        (isolated_catalog(*HEALTHY, *points), False),
    ):
        monkeypatch.setattr(provided, "default_catalog", lambda catalog=catalog: catalog)
        assert door.OneHotPreprocessor is OneHotPreprocessor
        if mine:
            assert door.Mine is float
        else:
            with pytest.raises(AmbiguousChoiceError, match="Mine is a class of aa and bb"):
                door.Mine


# --- real processes -------------------------------------------------------------------------------


def run(folder, *arguments, flags=(), **environ):
    clean = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("RLCATALOG_", "PYTHON"))
    }
    clean |= {
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "200",
        **environ,
    }
    return subprocess.run(
        [sys.executable, *flags, "-m", "rlcatalog_cli", *arguments],
        env=clean,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_command_line_reports_noisy_and_damaged_plugins(tmp_path, install):
    noisy = 'import os\nprint("hello")\nos.system("echo from a shell")\nos.write(1, b"raw\\n")\n'
    install(tmp_path, "aa-noisy", noisy)
    install(
        tmp_path,
        "bb-old",
        "import warnings\nwarnings.warn('old', DeprecationWarning, stacklevel=1)\n",
    )
    damaged = {
        "cc_latin": "[rlcatalog.plugins]\nx = y # é\n".encode("latin-1"),
        "dd_bare": b"x = rlcatalog_x\n",
    }
    for name, data in damaged.items():
        info = install(tmp_path, name, "")
        (info / "entry_points.txt").write_bytes(data)
    nameless = install(tmp_path, "ee-nameless", "")
    (nameless / "METADATA").write_text("Metadata-Version: 2.1\n")
    flags = ["-W", "error::DeprecationWarning:bb_old", "-W", "error::UserWarning"]
    listed = run(tmp_path, "list", "--json", flags=flags)
    assert listed.returncode == 0, listed.stderr
    found = json.loads(listed.stdout)
    assert "hello" in listed.stderr
    plugins = {p["distribution"]: p for p in found["plugins"]}
    assert plugins["aa-noisy"]["status"] == "loaded"
    assert "it has no hook" in plugins["aa-noisy"]["error"]
    assert plugins["bb-old"]["error"] == "DeprecationWarning: old"
    assert "entry_points.txt cannot be read: UnicodeDecodeError" in plugins["cc-latin"]["error"]
    assert "'x = rlcatalog_x' is not in a section" in plugins["dd-bare"]["error"]
    assert plugins["ee-nameless"]["status"] == "loaded"
    assert plugins["rlcatalog-fcnet"]["status"] == "loaded"
    explained = run(tmp_path, "explain", "CartPole-v1", "--json")
    assert json.loads(explained.stdout)["model"]["chosen"] == "fcnet"


def test_list_isolate_names_the_plugins_that_end_the_process(tmp_path, install):
    deaths = {
        "deadly": ("import os; os._exit(0)", "exit status 0"),
        "fatal": ("import os; os.kill(os.getpid(), 11)", "signal SIGSEGV"),
    }
    for name, (source, _) in deaths.items():
        install(tmp_path, name, source)
        assert run(tmp_path, "list", RLCATALOG_LOAD_PLUGINS=name).stdout == ""
    only = {"RLCATALOG_LOAD_PLUGINS": "deadly,fatal,rlcatalog-fcnet"}
    listed = run(tmp_path, "list", "--isolate", "--json", **only)
    assert listed.returncode == 0, listed.stderr
    plugins = {p["distribution"]: p for p in json.loads(listed.stdout)["plugins"]}
    for name, (_, how) in deaths.items():
        assert plugins[name]["status"] == "failed"
        assert plugins[name]["error"] == (
            f"it ended the process that loaded it: {how}; disable it with"
            f" RLCATALOG_DISABLE_PLUGINS={name}"
        )
    assert plugins["rlcatalog-fcnet"]["status"] == "loaded"
