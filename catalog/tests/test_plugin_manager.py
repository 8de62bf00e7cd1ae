"""pluggy's manager of a catalog: it lists, traces and blocks plugins; wrong hooks are reported."""

from __future__ import annotations

import numpy as np
import pytest
from faulty_functions import function_that_raises

from rlcatalog import Catalog, ModelSpec, hookimpl
from rlcatalog.errors import PluginWarning
from rlcatalog.plugins.loader import HOOK_RETURNS
from rlcatalog_testing import PluginEntryPoint, plugin_of


def net_plugin(name):
    """Return the entry point of a distribution whose plugin declares one model of its name."""
    spec = ModelSpec(name, {"torch": f"{name}.torch:Net"}, "a net")
    return PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), name)


def status_of(catalog, distribution):
    """Return the record of a distribution's plugin."""
    (record,) = [record for record in catalog.plugins if record.distribution == distribution]
    return record


# --- listing, tracing, blocking -------------------------------------------------------------------


def test_manager_lists_plugins_by_distribution():
    catalog = Catalog([net_plugin("acme"), net_plugin("zeta")])

    names = [name for name, plugin in catalog.plugin_manager.list_name_plugin()]

    assert names == ["acme", "zeta"]


class EqualsEverything:
    """A value by mistake in place of a module, which says that it equals any other."""

    def __eq__(self, other):
        return True

    __hash__ = None


@pytest.mark.parametrize(
    ("plugin", "cause"),
    [
        pytest.param(np.zeros((2, 2)), "ndarray that cannot be compared", id="array"),
        pytest.param(EqualsEverything(), "equals every other object", id="equal-to-all"),
    ],
)
def test_plugin_that_is_a_value_leaves_the_next_one_working(plugin, cause):
    with pytest.warns(PluginWarning, match=cause):
        catalog = Catalog([PluginEntryPoint(plugin, "acme"), net_plugin("zeta")])

    assert [part.distribution for part in catalog.parts()] == ["zeta"]


def test_second_plugin_of_a_distribution_has_a_longer_name():
    plugins = [plugin_of(rlcatalog_models=[]), plugin_of(rlcatalog_models=[])]
    points = [
        PluginEntryPoint(plugins[0], "acme", name="first"),
        PluginEntryPoint(plugins[1], "acme", name="second"),
    ]

    manager = Catalog(points).plugin_manager

    # The first plugin has the name of its distribution.
    assert manager.get_plugin("acme") is plugins[0]
    assert manager.get_plugin("acme/second") is plugins[1]


def test_hook_calls_are_monitored_with_the_plugin_name():
    catalog = Catalog([net_plugin("acme"), net_plugin("zeta")])
    catalog.plugin_manager.set_blocked("acme")
    catalog.refresh()
    calls = []

    def record_call(hook_name, hook_impls, kwargs):
        calls.append((hook_name, [impl.plugin_name for impl in hook_impls]))

    def ignore_result(outcome, hook_name, hook_impls, kwargs):
        pass

    catalog.plugin_manager.add_hookcall_monitoring(record_call, ignore_result)
    catalog.plugin_manager.unblock("acme")
    catalog.refresh()

    # zeta was loaded all the time, so its hook is not called again.
    assert calls == [("rlcatalog_models", ["acme"])]


def test_blocked_plugin_is_disabled_after_refresh():
    catalog = Catalog([net_plugin("acme"), net_plugin("zeta")])

    catalog.plugin_manager.set_blocked("acme")
    catalog.refresh()

    assert [part.name for part in catalog.parts()] == ["zeta"]
    assert status_of(catalog, "acme").status == "disabled"
    assert status_of(catalog, "acme").error == "blocked in the catalog's plugin_manager"


def test_unblocked_plugin_is_loaded_again():
    catalog = Catalog([net_plugin("acme")])
    catalog.plugin_manager.set_blocked("acme")
    catalog.refresh()

    catalog.plugin_manager.unblock("acme")
    catalog.refresh()

    assert [part.name for part in catalog.parts()] == ["acme"]


def test_refresh_calls_no_hook_of_a_loaded_plugin():
    calls = []

    class Plugin:
        @hookimpl
        def rlcatalog_models(self):
            calls.append("rlcatalog_models")
            return []

    catalog = Catalog([PluginEntryPoint(Plugin(), "acme")])
    catalog.refresh()

    assert calls == ["rlcatalog_models"]  # once, when it was loaded


# --- wrong hooks ----------------------------------------------------------------------------------


@pytest.fixture(params=HOOK_RETURNS)
def hook(request):
    """The name of a hook."""
    return request.param


def plugin_with(name, function):
    """Return a plugin that has one function, marked as a hook."""
    return type("Plugin", (), {name: staticmethod(hookimpl(function))})()


def return_nothing():
    return []


def load_beside_acme(plugin):
    """Load a broken plugin beside a working one; return its error and the manager's plugins."""
    points = [PluginEntryPoint(plugin, "broken"), net_plugin("acme")]
    with pytest.warns(PluginWarning, match="plugin 'broken' of broken 1.0 has failed"):
        catalog = Catalog(points)
    names = [name for name, plugin in catalog.plugin_manager.list_name_plugin()]
    return status_of(catalog, "broken").error, names


def test_misspelt_hook_names_the_right_one(hook):
    misspelt = hook.removesuffix("s")

    error, registered = load_beside_acme(plugin_with(misspelt, return_nothing))

    assert f"{misspelt!r} is not one of rlcatalog's hooks. Did you mean {hook!r}?" in error
    assert registered == ["acme"]


def test_hook_with_an_argument_is_refused(hook):
    error, registered = load_beside_acme(plugin_with(hook, lambda config: []))

    assert f"Hooks of rlcatalog take no arguments: def {hook}()." in error
    assert registered == ["acme"]


@pytest.mark.parametrize("returned", ["text", None, [object]], ids=["text", "none", "list"])
def test_hook_with_a_wrong_result_is_refused(hook, returned):
    error, registered = load_beside_acme(plugin_with(hook, lambda: returned))

    assert f"{hook}() must return a list of {HOOK_RETURNS[hook].__name__}, found" in error
    assert registered == ["acme"]


def test_hook_that_raises_is_blamed_on_its_plugin(hook):
    failing_hook = function_that_raises(ZeroDivisionError("no nets today"))

    error, registered = load_beside_acme(plugin_with(hook, failing_hook))

    assert error == "ZeroDivisionError: no nets today"
    assert registered == ["acme"]
