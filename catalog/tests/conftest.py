"""What the tests share: plugins made up for a test, catalogs, saved policies."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from types import ModuleType
from typing import Any

import importlib_metadata
import numpy as np
import pytest

from rlcatalog import Catalog, Policy
from rlcatalog.errors import SavedPolicyError
from rlcatalog.plugins import scan
from rlcatalog.testing import plugin_of
from rlcatalog_policy import loading


class MadeUpDistribution:
    """The part of a distribution that discovery reads; `metadata` is a new object at each access, as in real ones."""

    def __init__(self, name: str, version: str = "1.0", requires: Sequence[str] = ()) -> None:
        self._fields = [("Name", name), ("Version", version), *(("Requires-Dist", line) for line in requires)]

    @property
    def metadata(self) -> Message:
        message = Message()
        for key, value in self._fields:
            message[key] = value
        return message


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
            name, value or f"{name}.plugin", MadeUpDistribution(distribution, version, requires), plugin
        )

    return make


@pytest.fixture
def plugin() -> Callable[..., ModuleType]:
    """Make a plugin module from its hooks' results: `plugin(rlcatalog_models=[spec])`."""

    return plugin_of


@pytest.fixture
def install() -> Callable[..., Path]:
    """Write an installed plugin: `install(folder, "some-dist", source, extra={"some_dist_config": source})`."""

    def make(
        folder: Path,
        distribution: str,
        source: str,
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
        for name, text in {module: source, **(extra or {})}.items():
            (folder / f"{name}.py").write_text(text, encoding="utf-8")
        return info

    return make


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], list[Any]]]:
    """Make the plugins of a folder importable and return their entry points; forget their modules afterwards."""
    before, folders = set(sys.modules), []

    def use(folder: Path) -> list[Any]:
        folders.append(folder)
        monkeypatch.syspath_prepend(str(folder))
        return [ep for dist in importlib_metadata.distributions(path=[str(folder)]) for ep in dist.entry_points]

    yield use
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and any(Path(file).is_relative_to(folder) for folder in folders):
            del sys.modules[name]


def _catalog_of_four() -> Catalog:
    names = ("fcnet", "categorical", "gaussian", "preprocessors")
    return Catalog([point for point in scan() if point.name in names], environ={})


@pytest.fixture(scope="module")
def shared() -> Catalog:
    """A catalog of four installed plugins, for tests that only read it."""
    return _catalog_of_four()


@pytest.fixture
def catalog() -> Catalog:
    """A catalog of four installed plugins, of this test's own."""
    return _catalog_of_four()


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make an importable module for classes that declarations name: `module(Net=cls)`."""

    def make(**members: Any) -> None:
        made = ModuleType("made_up_parts")
        vars(made).update(members)
        monkeypatch.setitem(sys.modules, "made_up_parts", made)

    return make


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where a policy is saved."""
    return tmp_path / "policy"


@pytest.fixture
def arrays() -> Callable[..., Path]:
    """Return the one file of a saved policy with its weights, or another role: `arrays(directory, "filter")`."""

    def find(directory: Path, role: str = "weights") -> Path:
        (found,) = directory.glob(f"{role}-*.safetensors")
        return found

    return find


@pytest.fixture
def same_policy() -> Callable[[Policy, Policy, Any], None]:
    """Check that two policies answer observations alike: `same_policy(a, b, obs)`."""

    def check(a: Policy, b: Policy, obs: Any) -> None:
        first, second = a.act(obs, explore=False), b.act(obs, explore=False)
        np.testing.assert_allclose(first.dist_inputs, second.dist_inputs, rtol=0, atol=1e-5)
        np.testing.assert_allclose(first.value, second.value, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(first.raw_action.shape, second.raw_action.shape)
        np.testing.assert_allclose(first.raw_action, second.raw_action, atol=1e-5)
        np.testing.assert_allclose(first.action, second.action, atol=1e-5)

    return check


@pytest.fixture
def edit() -> Callable[..., dict[str, Any]]:
    """Change keys of a saved manifest and return the manifest as it was: `edit(directory, framework="tf")`.

    It is signed anew, as whoever forges one would.
    """

    def change(directory: Path, **changes: Any) -> dict[str, Any]:
        path = directory / "policy.json"
        manifest: dict[str, Any] = json.loads(path.read_text())
        changed = {key: value for key, value in {**manifest, **changes}.items() if key != "checksum"}
        text = json.dumps(changed, sort_keys=True, separators=(",", ":"))
        path.write_text(json.dumps({**changed, "checksum": hashlib.sha256(text.encode()).hexdigest()}))
        return manifest

    return change


@pytest.fixture
def refused() -> Callable[..., str]:
    """Check that loading is refused with the directory's name, and return what was said."""

    def check(directory: Path, match: str, error: type[Exception] = SavedPolicyError, **spaces_given: Any) -> str:
        with pytest.raises(error, match=match) as caught:
            loading.load(directory, catalog=_catalog_of_four(), **spaces_given)
        assert str(directory) in str(caught.value)
        return str(caught.value)

    return check
