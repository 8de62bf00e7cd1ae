"""`Catalog.refresh`, which finds plugins that are installed while the program runs."""

from __future__ import annotations

import shutil
import threading
from functools import partial

import gymnasium as gym
import msgspec
import numpy as np
import pytest

import rlcatalog
from rlcatalog import Catalog, Match, ModelV2, Rank
from rlcatalog.errors import PluginWarning
from rlcatalog.plugins.discovery import scan

THREE_FEATURES = gym.spaces.Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = gym.spaces.Discrete(2)


class Net(ModelV2):
    """A model of the running program."""

    framework_of_class = "torch"


class MineConfig(msgspec.Struct, frozen=True, kw_only=True):
    mine_width: int = 3


def write_model_plugin(name, *, options=""):
    """Return the source of a plugin with one model; `options` are more arguments of its spec."""
    return f"""
from rlcatalog import Match, ModelSpec, Rank, hookimpl

@hookimpl
def rlcatalog_models():
    return [ModelSpec({name!r}, {{"torch": "nowhere:Net"}}, "made up", {options})]
"""


@pytest.fixture
def install(tmp_path, install_plugin, read_entry_points):
    """Install a plugin while the program runs, and return the folder of its metadata."""
    read_entry_points(tmp_path)  # puts the folder on the path, and forgets its modules afterwards
    yield partial(install_plugin, tmp_path)
    scan.cache_clear()


def test_refresh_finds_newly_installed_plugin(install):
    catalog = Catalog(environ={})
    install("late-nets", write_model_plugin("late_nets_one"))
    assert "late_nets_one" not in catalog.registry.names(["model"])

    [record] = catalog.refresh()

    assert record.distribution == "late-nets"
    assert record.version == "1.0"
    assert record.status == "loaded"
    assert catalog.registry.get("model", "late_nets_one").distribution == "late-nets"


def test_refresh_returns_only_new_plugins(install):
    catalog = Catalog(environ={})
    install("late-nets", write_model_plugin("late_nets_one"))
    catalog.refresh()

    assert catalog.refresh() == []


def test_refresh_keeps_the_config_keys_of_other_plugins(install):
    catalog = Catalog(environ={})
    install("late-nets", write_model_plugin("late_nets_one"))

    catalog.refresh()

    assert "fcnet_hiddens" in catalog.schema.keys  # of rlcatalog-fcnet


def test_refresh_forgets_uninstalled_plugin(install):
    catalog = Catalog(environ={})
    distributions_before = {record.distribution for record in catalog.plugins}
    info = install("late-nets", write_model_plugin("late_nets_one"))
    catalog.refresh()
    shutil.rmtree(info)

    assert catalog.refresh() == []

    assert {record.distribution for record in catalog.plugins} == distributions_before


def test_refresh_keeps_registered_classes(install):
    catalog = Catalog(environ={})
    catalog.register_model("mine", Net)
    info = install("late-nets", write_model_plugin("late_nets_one"))

    catalog.refresh()
    assert catalog.registry.get("model", "mine").load("torch") is Net

    shutil.rmtree(info)
    catalog.refresh()
    assert catalog.registry.get("model", "mine").load("torch") is Net


def test_refresh_drops_class_that_reads_a_removed_key(install):
    config = "import msgspec\n\nclass Keys(msgspec.Struct):\n    late_width: int = 3\n"
    source = write_model_plugin("late_keys_net", options="config='late_keys_config:Keys'")
    info = install("late-keys", source, extra={"late_keys_config": config})
    catalog = Catalog(environ={})
    catalog.register_model("mine", Net, reads=("late_width",))
    shutil.rmtree(info)

    with pytest.warns(PluginWarning, match=r"'mine', .* is omitted: .*late_width"):
        catalog.refresh()

    names = catalog.registry.names(["model"])
    assert "mine" not in names
    assert "late_keys_net" not in names


def test_refresh_forgets_cached_lookups(install):
    catalog = Catalog(environ={}, prefer=["late-best"])
    assert catalog.resolve(THREE_FEATURES, TWO_ACTIONS).part("trunk").name == "fcnet"
    match = "match=lambda request: Match(Rank.SPECIFIC, 'best')"
    install("late-best", write_model_plugin("late_best_net", options=match))

    catalog.refresh()

    assert catalog.resolve(THREE_FEATURES, TWO_ACTIONS).part("trunk").name == "late_best_net"


def test_refresh_reports_broken_plugin(install):
    catalog = Catalog(environ={"RLCATALOG_STRICT_PLUGINS": ""})
    install("late-broken", "import a_module_nobody_has")

    with pytest.warns(PluginWarning, match="a_module_nobody_has"):
        [record] = catalog.refresh()

    assert record.status == "failed"


def test_refresh_in_strict_mode_raises_and_changes_nothing(install):
    catalog = Catalog(environ={"RLCATALOG_STRICT_PLUGINS": "1"})
    registry_before = catalog.registry
    install("late-broken", "import a_module_nobody_has")

    with pytest.raises(rlcatalog.errors.CatalogError, match="a_module_nobody_has"):
        catalog.refresh()

    assert catalog.registry is registry_before


def test_registered_name_wins_over_new_plugin(install):
    catalog = Catalog(environ={})
    catalog.register_model("late_rival_net", Net)
    install("late-rival", write_model_plugin("late_rival_net"))

    catalog.refresh()

    assert catalog.registry.get("model", "late_rival_net").in_process
    address = "late-rival/late_rival_net"
    assert catalog.registry.get("model", address).distribution == "late-rival"


def test_refresh_of_given_plugins_loads_them_again(catalog):
    names_before = catalog.registry.names(["model"])
    catalog.register_model("mine", Net, config=MineConfig)

    assert catalog.refresh() == []

    assert catalog.registry.names(["model"]) == sorted([*names_before, "mine"])
    assert catalog.parse_config({"mine_width": 7}).given == {"mine_width": 7}


def test_refresh_does_not_disturb_lookups_of_other_threads(catalog):
    catalog.register_model("mine", Net, match=lambda request: Match(Rank.SPECIFIC, "mine"))
    stop = threading.Event()
    errors = []

    def look_up_until_stopped():
        while not stop.is_set():
            try:
                space = gym.spaces.Box(-1, 1, (3,))  # new, so that no cached lookup is used
                assert catalog.resolve(space, TWO_ACTIONS).part("trunk").name == "mine"
            except Exception as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=look_up_until_stopped) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        catalog.refresh()  # while the other threads look up
    stop.set()
    for thread in threads:
        thread.join()

    assert errors == []
