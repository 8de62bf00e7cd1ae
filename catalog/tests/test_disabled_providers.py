"""Messages say that a package is disabled, wherever one of its parts is needed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import gymnasium, numpy, rlcatalog
from gymnasium import spaces
OBS, ACT = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)
try:
    {}
except rlcatalog.errors.CatalogError as error:
    print(error)
"""
BUILD = "rlcatalog.build(OBS, ACT, framework='torch')"
#: A disabled package and code that needs it.
CASES = [
    ("rlcatalog-fcnet", BUILD),
    ("rlcatalog-fcnet", "import torch; rlcatalog.build(OBS, ACT, {'custom_model': torch.nn.ReLU})"),
    ("rlcatalog-fcnet", "from rlcatalog_torch import FullyConnectedNetwork"),
    ("rlcatalog-preprocessors", BUILD),
    ("rlcatalog-torch", BUILD),
    ("rlcatalog-export", f"{BUILD}.export('policy.onnx')"),
    ("rlcatalog-export", f"print({BUILD}.freeze().reason)"),
    ("rlcatalog-ppo", "from rlcatalog_ppo import PPO; PPO('CartPole-v1', {'framework': 'torch'})"),
]


@pytest.mark.parametrize(("package", "code"), CASES)
def test_disabled_package_is_called_disabled(package, code):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(code)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "RLCATALOG_DISABLE_PLUGINS": package},
    )
    assert done.returncode == 0, done.stderr
    assert f"disabled by RLCATALOG_DISABLE_PLUGINS='{package}'" in done.stdout
    assert "not installed" not in done.stdout


def test_absent_package_is_called_not_installed(monkeypatch):
    from rlcatalog import provided
    from rlcatalog.plugins import loader

    # As if no package were installed.
    monkeypatch.setattr(loader, "scan", list)
    assert provided.condition_of("rlcatalog-fcnet") is None


def test_condition_of_a_usable_package_is_none():
    from rlcatalog.plugins.loader import condition_of

    assert condition_of("rlcatalog-fcnet") is None
