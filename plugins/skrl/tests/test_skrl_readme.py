"""The code of the README, and of the page on simulators, runs as it is shown."""

import os
from pathlib import Path

import pytest

pytest.importorskip("skrl", reason="skrl is not installed; `make test` runs it apart")

from page_texts import blocks
from skrl_runs import SkrlEnv
from tensor_envs import TensorCartPole

import rlcatalog

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("page", ["plugins/skrl/README.md", "docs/howto/simulators.md"])
def test_code_of_page_trains_and_saves_a_policy(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    codes = [code for code in blocks(text, "py") if "rlcatalog_skrl" in code]
    assert codes
    for code in codes:
        exec(code, {"simulator": SkrlEnv(TensorCartPole(4))})
    policy = rlcatalog.load("policy")
    assert policy.config["fcnet_hiddens"] == [64, 64]
    assert "policy" in os.listdir(tmp_path)  # beside the agent's log
