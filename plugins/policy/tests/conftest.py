"""What the tests share: catalogs of few parts, and saved policies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_plugins import entry_point, module, plugin
from small_catalogs import make_catalog

from rlcatalog import Catalog, Policy
from rlcatalog.errors import SavedPolicyError
from rlcatalog_policy import loading

__all__ = ["entry_point", "module", "plugin"]


@pytest.fixture
def catalog() -> Catalog:
    """A catalog of four installed plugins, of this test's own."""
    return make_catalog()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where a policy is saved."""
    return tmp_path / "policy"


@pytest.fixture
def arrays_file() -> Callable[..., Path]:
    """Return the one file of a saved policy with its weights, or another role:
    `arrays_file(directory, "filter")`.
    """

    def find(directory: Path, role: str = "weights") -> Path:
        [path] = directory.glob(f"{role}-*.safetensors")
        return path

    return find


@pytest.fixture
def assert_same_policy() -> Callable[[Policy, Policy, Any], None]:
    """Check that two policies answer observations alike: `assert_same_policy(a, b, obs)`."""

    def check(a: Policy, b: Policy, obs: Any) -> None:
        first = a.act(obs, explore=False)
        second = b.act(obs, explore=False)
        np.testing.assert_allclose(first.dist_inputs, second.dist_inputs, rtol=0, atol=1e-5)
        np.testing.assert_allclose(first.value, second.value, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(first.raw_action.shape, second.raw_action.shape)
        np.testing.assert_allclose(first.raw_action, second.raw_action, atol=1e-5)
        np.testing.assert_allclose(first.action, second.action, atol=1e-5)

    return check


@pytest.fixture
def edit_manifest() -> Callable[..., dict[str, Any]]:
    """Change keys of a saved manifest and return the manifest as it was:
    `edit_manifest(directory, framework="tf")`.

    It signs the manifest again, as a forger would.
    """

    def change(directory: Path, **changes: Any) -> dict[str, Any]:
        path = directory / "policy.json"
        manifest: dict[str, Any] = json.loads(path.read_text())
        changed = {**manifest, **changes}
        changed.pop("checksum", None)
        text = json.dumps(changed, sort_keys=True, separators=(",", ":"))
        changed["checksum"] = hashlib.sha256(text.encode()).hexdigest()
        path.write_text(json.dumps(changed))
        return manifest

    return change


@pytest.fixture
def load_error() -> Callable[..., str]:
    """Check that loading raises an error that names the directory, and return its message:
    `load_error(directory, "not a saved policy")`.
    """

    def check(
        directory: Path, match: str, error: type[Exception] = SavedPolicyError, **options: Any
    ) -> str:
        with pytest.raises(error, match=match) as caught:
            loading.load(directory, catalog=make_catalog(), **options)
        assert str(directory) in str(caught.value)
        return str(caught.value)

    return check
