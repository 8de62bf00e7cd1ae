"""Catalogs with selected plugins, for tests."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

from rlcatalog import Catalog, hookimpl
from rlcatalog.internals import find_plugins, normalize, scan


class _StandInDistribution:
    """Stand-in for an installed distribution, which has only headers."""

    def __init__(self, name: str, version: str, requires: Sequence[str]) -> None:
        self.name = name
        lines = [f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {line}" for line in requires]
        self._headers = "\n".join(lines)

    def read_text(self, filename: str) -> str | None:
        """Return the text of a file, or None if the distribution lacks it."""
        if filename == "METADATA":
            return self._headers
        return None


class PluginEntryPoint:
    """Stand-in for the entry point of an installed plugin.

    Args:
        plugin: The plugin's module, its import path, or any object with hook methods.
        distribution: Name of the distribution that it stands for.
        name: Name of the entry point. If None, the distribution's name.
        version: The distribution's version.
        requires: The distribution's `Requires-Dist` lines.
    """

    def __init__(
        self,
        plugin: ModuleType | str | object,
        distribution: str,
        *,
        name: str | None = None,
        version: str = "1.0",
        requires: Sequence[str] = (),
    ) -> None:
        self._plugin = plugin
        self.name = name or distribution
        if isinstance(plugin, str):
            self.value = plugin
        else:
            # A module has this name; the author's object may have none.
            self.value = getattr(plugin, "__name__", type(plugin).__name__)
        self.dist = _StandInDistribution(distribution, version, requires)

    def load(self) -> Any:
        """Import the plugin."""
        if isinstance(self._plugin, str):
            return importlib.import_module(self._plugin)
        return self._plugin


def plugin_of(**hooks: Any) -> ModuleType:
    """Create a plugin module without a file.

    Args:
        **hooks: For each hook, its return value or its function.

    Example:
        >>> plugin = PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme-resnet")
        >>> catalog = isolated_catalog(plugin)
    """
    plugin = ModuleType("made_up_plugin")
    for name, hook in hooks.items():
        function = hook if isinstance(hook, FunctionType) else _function_that_returns(hook)
        setattr(plugin, name, hookimpl(function))
    return plugin


def _function_that_returns(value: Any) -> Callable[[], Any]:
    # A def rather than a partial, because pluggy reads a hook's parameters.
    def hook() -> Any:
        return value

    return hook


def isolated_catalog(
    *plugins: PluginEntryPoint | str,
    environ: Mapping[str, str] | None = None,
    prefer: Sequence[str] = (),
) -> Catalog:
    """Return a catalog with exactly these plugins.

    Args:
        *plugins: Entry points of plugins, or names of installed distributions.
        environ: Environment variables. If None, empty.
        prefer: Distributions whose parts win ties.
    """
    installed = {plugin.distribution: plugin.entry_point for plugin in find_plugins(scan())}
    entry_points = []
    for plugin in plugins:
        if isinstance(plugin, str):
            entry_points.append(installed[normalize(plugin)])
        else:
            entry_points.append(plugin)
    return Catalog(entry_points, environ=environ or {}, prefer=prefer)
