"""Messages about a package that is needed, but disabled."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import gymnasium, numpy, rlcatalog
from gymnasium import spaces
OBS = spaces.Box(-1, 1, (3,))
ACT = spaces.Discrete(2)
try:
    {}
except rlcatalog.errors.CatalogError as error:
    print(error)
"""
BUILD = "rlcatalog.build(OBS, ACT, framework='torch')"


@pytest.mark.parametrize(
    ("package", "statement"),
    [
        pytest.param("rlcatalog-fcnet", BUILD, id="model"),
        pytest.param(
            "rlcatalog-fcnet",
            "import torch; rlcatalog.build(OBS, ACT, {'custom_model': torch.nn.ReLU})",
            id="layers-around-a-module",
        ),
        pytest.param(
            "rlcatalog-fcnet",
            "from rlcatalog_torch import FullyConnectedNetwork",
            id="name-of-a-class",
        ),
        pytest.param("rlcatalog-preprocessors", BUILD, id="preprocessor"),
        pytest.param("rlcatalog-torch", BUILD, id="framework"),
        pytest.param("rlcatalog-export", f"{BUILD}.export('policy.onnx')", id="export"),
        pytest.param("rlcatalog-export", f"print({BUILD}.freeze().reason)", id="freeze"),
        pytest.param(
            "rlcatalog-ppo",
            "from rlcatalog_ppo import PPO; PPO('CartPole-v1', {'framework': 'torch'})",
            id="ppo",
        ),
    ],
)
def test_disabled_package_is_called_disabled(package, statement):
    pytest.importorskip("torch", reason="PyTorch is not installed")

    program = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(statement)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "RLCATALOG_DISABLE_PLUGINS": package},
    )

    assert program.returncode == 0, program.stderr
    assert f"disabled by RLCATALOG_DISABLE_PLUGINS='{package}'" in program.stdout
    assert "not installed" not in program.stdout


def test_condition_of_an_absent_package_is_none(monkeypatch):
    from rlcatalog import provided
    from rlcatalog.plugins import loader

    # As if no package were installed: the scan returns an empty list.
    monkeypatch.setattr(loader, "scan", list)

    assert provided.condition_of("rlcatalog-fcnet") is None


def test_condition_of_a_usable_package_is_none():
    from rlcatalog.plugins.loader import condition_of

    assert condition_of("rlcatalog-fcnet") is None
