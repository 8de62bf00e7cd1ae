"""Plugins that are made up or installed for a test, and catalogs of a few packages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import importlib_metadata
import pytest
from made_up_plugins import entry_point, module, plugin

from rlcatalog import Catalog
from rlcatalog.plugins.discovery import scan

__all__ = ["entry_point", "module", "plugin"]


@pytest.fixture(scope="session")
def install_plugin() -> Callable[..., Path]:
    """Write a plugin and its metadata into a folder, as pip does, and return the metadata's folder.

    `install_plugin(folder, "acme", source, extra={"another_module": source})` writes two modules.
    """

    def make(
        folder: Path,
        distribution: str,
        source: str = "",
        *,
        requires: Sequence[str] = ("rlcatalog>=0.1",),
        entry_point: str | None = None,
        extra: dict[str, str] | None = None,
    ) -> Path:
        module = distribution.replace("-", "_")
        info = folder / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        lines = ["Metadata-Version: 2.1", f"Name: {distribution}", "Version: 1.0"]
        lines += [f"Requires-Dist: {line}" for line in requires]
        (info / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(
            f"[rlcatalog.plugins]\n{entry_point or module} = {module}\n", encoding="utf-8"
        )
        modules = {module: source, **(extra or {})}
        for name, text in modules.items():
            (folder / f"{name}.py").write_text(text, encoding="utf-8")
        return info

    return make


@pytest.fixture
def read_entry_points(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], list[Any]]]:
    """Make the plugins of a folder importable, and return their entry points.

    After the test, their modules are forgotten.
    """
    modules_before = set(sys.modules)
    folders: list[Path] = []

    def use(folder: Path) -> list[Any]:
        folders.append(folder)
        monkeypatch.syspath_prepend(str(folder))
        points = []
        for distribution in importlib_metadata.distributions(path=[str(folder)]):
            points += distribution.entry_points
        return points

    yield use
    for name in set(sys.modules) - modules_before:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and any(Path(file).is_relative_to(folder) for folder in folders):
            del sys.modules[name]


def make_catalog_of_four() -> Catalog:
    names = ("fcnet", "categorical", "gaussian", "preprocessors")
    return Catalog([point for point in scan() if point.name in names], environ={})


@pytest.fixture(scope="module")
def read_only_catalog() -> Catalog:
    """A catalog of four installed plugins, for tests that only read it."""
    return make_catalog_of_four()


@pytest.fixture
def catalog() -> Catalog:
    """A catalog of four installed plugins, for a test that may change it."""
    return make_catalog_of_four()
