"""Fixtures that make up plugins: their entry points, their modules, their parts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from rlcatalog_testing import plugin_of


class MadeUpDistribution:
    """The part of a distribution that discovery reads: the file with its headers."""

    def __init__(self, name: str, version: str = "1.0", requires: Sequence[str] = ()) -> None:
        lines = [f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {line}" for line in requires]
        self._metadata = "\n".join(lines)

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            return self._metadata
        return None


@dataclass(frozen=True)
class MadeUpEntryPoint:
    """An entry point whose `load` hands out an object, or raises it when it is an exception."""

    name: str
    value: str
    dist: MadeUpDistribution | None
    plugin: Any = None

    def load(self) -> Any:
        if isinstance(self.plugin, BaseException):
            raise self.plugin
        return self.plugin


@pytest.fixture
def entry_point() -> Callable[..., MadeUpEntryPoint]:
    """Make an entry point: `entry_point("some-dist", plugin, name=…, version=…, requires=[…])`."""

    def make(
        distribution: str,
        plugin: Any = None,
        *,
        name: str | None = None,
        value: str | None = None,
        version: str = "1.0",
        requires: Sequence[str] = (),
    ) -> MadeUpEntryPoint:
        name = name or distribution.replace("-", "_")
        return MadeUpEntryPoint(
            name,
            value or f"{name}.plugin",
            MadeUpDistribution(distribution, version, requires),
            plugin,
        )

    return make


@pytest.fixture
def plugin() -> Callable[..., ModuleType]:
    """Make a plugin module from its hooks' results: `plugin(rlcatalog_models=[spec])`."""

    return plugin_of


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make an importable module for classes that declarations name: `module(Net=cls)`."""

    def make(**members: Any) -> None:
        made = ModuleType("made_up_parts")
        vars(made).update(members)
        monkeypatch.setitem(sys.modules, "made_up_parts", made)

    return make
