"""The option `--import` of commands."""

from __future__ import annotations

import gymnasium as gym
import pytest

from rlcatalog.errors import CatalogError, UnknownNameError
from rlcatalog_cli import import_modules


@pytest.mark.parametrize("name", ["no_such_module_anywhere", "", ".x", "a:b"])
def test_import_of_a_missing_module_is_an_error(name):
    with pytest.raises(UnknownNameError, match="--import") as caught:
        import_modules([name])

    assert isinstance(caught.value, CatalogError)


def test_imported_module_registers_its_environments(tmp_path, monkeypatch):
    # A module may register them when it is imported, or, as this one does, in `register_envs`.
    code = (
        "import gymnasium\n"
        "def register_envs():\n"
        "    gymnasium.register('Registered-v0', lambda: None)\n"
    )
    (tmp_path / "my_envs.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)

    try:
        env_id = import_modules(["my_envs"], "Registered-v0")
    finally:
        gym.registry.pop("Registered-v0")

    assert env_id == "my_envs:Registered-v0"
