"""`tools/port_report.py` on two small models: one runs after the command alone, one is bound to its
algorithm.
"""

import importlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

RUNS = """\
import gym
import numpy as np
import torch
from ray import tune
from ray.rllib.models.torch.misc import SlimFC
from ray.rllib.models.torch.torch_modelv2 import TorchModelV2
from helpers.sizes import HIDDEN
from viewer import Window


class Small(TorchModelV2, torch.nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        torch.nn.Module.__init__(self)
        self.body = SlimFC(int(np.product(obs_space.shape)), HIDDEN)
        self.policy, self.value = SlimFC(HIDDEN, num_outputs), SlimFC(HIDDEN, 1)

    def forward(self, input_dict, state, seq_lens):
        self.features = self.body(input_dict["obs"].float())
        return self.policy(self.features), state

    def value_function(self):
        return self.value(self.features).squeeze(1)

    def show(self):
        Window().open(self)


tune.run("PPO")
"""

BOUND = """\
from ray.rllib.agents.qmix.qmix_policy import QMixLoss
from ray.rllib.models.torch.torch_modelv2 import TorchModelV2


class Mixer(TorchModelV2):
    loss = QMixLoss
"""

ITEM = """\
repository = "nobody/{name}"
commit = "0123456789abcdef"
path = "models/{name}.py"
class = "{cls}"
framework = "torch"
observation_space = "spaces.Box(-1, 1, (3,))"
action_space = "spaces.Discrete(2)"
"""


@pytest.mark.attack  # a tool of this repository's own, whose models run in processes
def test_the_report_tells_what_runs_from_what_is_bound(tmp_path):
    pytest.importorskip("torch")
    items = {
        "runs": (RUNS, "Small", 'class_alone = true\nstubs = ["viewer"]\nstubs_why = "draws"\n'),
        "bound": (BOUND, "Mixer", 'bound = "learns by QMIX"\n'),
    }
    for name, (text, cls, more) in items.items():
        code = tmp_path / "items" / name / "code"
        (code / "models").mkdir(parents=True)
        (code / "models" / f"{name}.py").write_text(text)
        (code / "helpers").mkdir()
        (code / "helpers/sizes.py").write_text("HIDDEN = 4\n")
        (code.parent / "item.toml").write_text(ITEM.format(name=name, cls=cls) + more)
    target = tmp_path / "found.json"
    command = [sys.executable, ROOT / "tools/port_report.py", tmp_path / "items", "--json", target]
    printed = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=300
    ).stdout
    bound, runs = json.loads(target.read_text())
    stages = "port import register build forward value update save load"
    assert list(runs["stages"]) == stages.split(), runs
    assert (runs["result"], bound["result"], bound["stage"]) == ("runs", "bound", "import")
    assert bound["why"] == "learns by QMIX"
    assert "ray" in bound["error"]
    assert any("QMixLoss" in note for note in bound["notes"])
    assert "2 repositories" in printed
    assert "1 run, 1 are bound, 0 are also broken under RLlib, 0 fail" in printed
    assert "HIDDEN" not in target.read_text()
    assert "SlimFC" in (tmp_path / "items/runs/code/models/runs.py").read_text()
    assert "from ray import tune" in (tmp_path / "items/runs/code/models/runs.py").read_text()


def test_the_page_holds_the_results_and_no_code(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    tool = importlib.import_module("port_report")
    results = json.loads(tool.DATA.read_text(encoding="utf-8"))
    text = tool.PAGE.read_text(encoding="utf-8")
    assert tool.page(text, results) == text, "python tools/port_report.py --write"
    assert len(results) >= 60
    assert sum(found["framework"] == "tf" for found in results) >= 20
    assert sum(found["memory"] for found in results) >= 10
    per_repository = Counter(found["repository"] for found in results)
    assert max(per_repository.values()) <= 3
    assert not any("traceback" in found for found in results)
    count = Counter(found["result"] for found in results)
    assert not count["fails"], "or say in README.md how many fail"
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    claim = (
        f"Of [{len(results)} published classes](docs/ported_models.md), {count['runs']} run"
        " after porting,"
    )
    assert f"{claim} {count['bound']} need" in readme
    assert f"and {count['broken']} do not run under RLlib either." in readme
