"""Messages about a package that is needed, but disabled."""

from __future__ import annotations

import pytest
import warm


@pytest.mark.parametrize(
    ("package", "statement"),
    [
        ("rlcatalog-fcnet", "rlcatalog.build(OBS, ACTIONS, framework='torch')"),
        ("rlcatalog-plain", "rlcatalog.build(OBS, ACTIONS, {'custom_model': torch.nn.ReLU})"),
        ("rlcatalog-fcnet", "from rlcatalog_torch import FullyConnectedNetwork"),
        ("rlcatalog-preprocessors", "rlcatalog.build(OBS, ACTIONS, framework='torch')"),
        ("rlcatalog-torch", "rlcatalog.build(OBS, ACTIONS, framework='torch')"),
        ("rlcatalog-export", "rlcatalog.build(OBS, ACTIONS, framework='torch').export('a.onnx')"),
        (
            "rlcatalog-export",
            "print(rlcatalog.build(OBS, ACTIONS, framework='torch').freeze().reason)",
        ),
        (
            "rlcatalog-ppo",
            "from rlcatalog_ppo import PPO; PPO('CartPole-v1', {'framework': 'torch'})",
        ),
    ],
    ids=["model", "plain-module", "class", "preprocessor", "framework", "export", "freeze", "ppo"],
)
def test_disabled_package_is_called_disabled(tmp_path, package, statement):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    program = f"""
import rlcatalog
import torch
from gymnasium.spaces import Box, Discrete

OBS = Box(-1, 1, (3,))
ACTIONS = Discrete(2)
try:
    {statement}
except rlcatalog.errors.CatalogError as error:
    print(error)
"""

    run = warm.run(["-c", program], tmp_path, {"RLCATALOG_DISABLE_PLUGINS": package})

    assert run.returncode == 0, run.stderr
    assert f"disabled by RLCATALOG_DISABLE_PLUGINS='{package}'" in run.stdout
    assert "not installed" not in run.stdout


def test_condition_of_an_absent_package_is_none(monkeypatch):
    from rlcatalog.plugins import loader

    # As if no package were installed: the scan returns an empty list.
    monkeypatch.setattr(loader, "scan", list)

    assert loader.condition_of("rlcatalog-fcnet") is None


def test_condition_of_a_usable_package_is_none():
    from rlcatalog.plugins.loader import condition_of

    assert condition_of("rlcatalog-fcnet") is None
